//! The use of an earlier crawl's validators: a setting of config files.
//!
//! Must not know: where validators are kept.

use std::fmt;
use std::str::FromStr;

use crate::unknown_name::UnknownName;

/// The use of the bodies that an earlier crawl has stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CacheUse {
    /// Every page is requested in full, and no validators are kept.
    #[default]
    Off,
    /// Pages with validators are requested with them: an unchanged page costs a request and no
    /// body.
    Revalidate,
    /// As [`Revalidate`](Self::Revalidate), and a page within its `max-age` is not requested.
    Fresh,
}

impl CacheUse {
    /// Every use.
    pub const ALL: [Self; 3] = [Self::Off, Self::Revalidate, Self::Fresh];

    /// Returns the name in the config.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Revalidate => "revalidate",
            Self::Fresh => "fresh",
        }
    }
}

impl fmt::Display for CacheUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for CacheUse {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let known = Self::ALL.into_iter().find(|known| known.name() == name);
        known.ok_or_else(|| UnknownName::new("use of the cache", name, Self::ALL.map(Self::name)))
    }
}
