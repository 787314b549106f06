//! The use of an origin's robots.txt: a setting of config files, of the command line and of single
//! links.
//!
//! Must not know: how robots.txt is read.

use std::fmt;
use std::str::FromStr;

use crate::unknown_name::UnknownName;

/// The use of its origin's robots.txt for a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RobotsUse {
    /// It is not requested.
    #[default]
    Ignore,
    /// Its `Crawl-delay` is respected, its rules are not.
    Delay,
    /// Its rules and its `Crawl-delay` are respected.
    Obey,
}

impl RobotsUse {
    const NAMES: [&str; 3] = ["obey", "delay", "ignore"];

    /// Returns the name on the command line and in the config.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ignore => "ignore",
            Self::Delay => "delay",
            Self::Obey => "obey",
        }
    }
}

impl fmt::Display for RobotsUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for RobotsUse {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        [Self::Obey, Self::Delay, Self::Ignore]
            .into_iter()
            .find(|wish| wish.name() == name)
            .ok_or_else(|| UnknownName::new("use of robots.txt", name, Self::NAMES))
    }
}
