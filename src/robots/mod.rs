//! robots.txt: what a host asks crawlers to leave alone, and how fast it wants to be asked (RFC 9309).
//!
//! Whether anybody obeys it is the caller's decision, link by link: [`RobotsUse`]. `cache` reads and keeps the rules. Must not know how
//! a request is made: the pipeline fetches, with the address guard, the limits and the pace that pages have.

use std::fmt;
use std::str::FromStr;

use crate::names::UnknownName;

#[cfg(feature = "pipeline")]
mod cache;

#[cfg(feature = "pipeline")]
pub(crate) use cache::{BODY_MAX, READ_MAX, REDIRECTS_MAX, location};
#[cfg(feature = "pipeline")]
pub use cache::{DEFAULT_AGENT, RobotsTxt, Rules};

/// What a link's fetch does about its origin's robots.txt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RobotsUse {
    /// It is not asked for.
    #[default]
    Ignore,
    /// Its `Crawl-delay` is kept; its rules are not.
    Delay,
    /// Its rules and its `Crawl-delay` are kept.
    Obey,
}

impl RobotsUse {
    const NAMES: [&str; 3] = ["obey", "delay", "ignore"];

    /// The name it has on the command line and in the config.
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
