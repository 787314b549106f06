//! The id of a node.
//!
//! Owns: its text form.
//!
//! Must not know: where it is stored.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

/// The id of one node's log. It is random, made when a node first joins, and stored with the log.
///
/// It is printed as 32 hexadecimal digits, as in the broker's subjects and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(Uuid);

/// A text that is not a valid node id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a valid node id: expected 32 hexadecimal digits, as `fetchwise fleet status` prints them"
)]
pub struct InvalidNodeId(String);

impl NodeId {
    /// Creates a new random id.
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }

    /// Creates an id from its 16 bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// Returns the 16 bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(self.0.as_simple(), f)
    }
}

impl FromStr for NodeId {
    type Err = InvalidNodeId;

    fn from_str(text: &str) -> Result<Self, InvalidNodeId> {
        Uuid::try_parse(text).map(Self).map_err(|_| InvalidNodeId(text.chars().take(64).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_id_parses() {
        let node_id = NodeId::random();
        assert_eq!(node_id.to_string().len(), 32);
        assert_eq!(node_id.to_string().parse(), Ok(node_id));
        assert!("nobody".parse::<NodeId>().is_err());
    }
}
