//! Who an attempt was made by: a node's log, named once and for all.
//!
//! Owns: the name's form. Must not know: who keeps it where.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

/// The name of one node's log. Made at random when a node first joins, and kept with the log.
///
/// Printed as 32 hexadecimal digits, which is also how it stands in subjects and keys of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin(Uuid);

/// A text that names no origin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names no node: 32 hexadecimal digits do, as `fetchwise fleet status` prints them")]
pub struct BadOrigin(String);

impl Origin {
    /// A new one, which nobody else has.
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }

    /// From its sixteen bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// Its sixteen bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(self.0.as_simple(), f)
    }
}

impl FromStr for Origin {
    type Err = BadOrigin;

    fn from_str(text: &str) -> Result<Self, BadOrigin> {
        Uuid::try_parse(text).map(Self).map_err(|_| BadOrigin(text.chars().take(64).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read() {
        let origin = Origin::random();
        assert_eq!(origin.to_string().len(), 32);
        assert_eq!(origin.to_string().parse(), Ok(origin));
        assert!("nobody".parse::<Origin>().is_err());
    }
}
