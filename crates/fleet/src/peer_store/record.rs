//! The records of `peers/`.
//!
//! Owns: their bytes, which `log/FORMAT.md` describes.
//!
//! Invariants: decoding returns what was encoded. Any bytes decode or are refused.

use std::collections::BTreeMap;

use fetchwise::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::node_id::NodeId;
use crate::model::position_set::Intervals;
use crate::transport::Position;

/// The fingerprint of the layout of all records.
pub(crate) const FINGERPRINT: [u8; 16] = *b"fetchwise peers1";
/// The schema version of each kind.
pub(crate) const SCHEMA: u16 = 1;

const MESSAGE: u16 = 1;
const SHARE: u16 = 2;
const FORGET: u16 = 3;
const EXCLUDE: u16 = 4;
const INCLUDE: u16 = 5;
const ASIDE: u16 = 6;
const CURSOR: u16 = 7;
const CLOSE: u16 = 8;
const DISSOLVE: u16 = 9;
const GENERAL: u16 = 10;

/// The length of a message record before the message's bytes.
const MESSAGE_HEAD: usize = 40;

/// An event that changes what is known of peers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PeerEvent<'b> {
    /// A message as received.
    Message { node_id: NodeId, position: Position, at: Timestamp, body: &'b [u8] },
    /// An evidence snapshot has replaced everything known of a node.
    Snapshot(AppliedSnapshot),
    /// A domain was forgotten.
    Forget { domain: String, until: Timestamp },
    /// A node was excluded.
    Exclude(NodeId),
    /// A node was included again.
    Include(NodeId),
    /// A node was set aside until an operator accepts it again.
    Aside { node_id: NodeId, why: String },
    /// Everything read up to this position had nothing new.
    Cursor(Position),
    /// A node was closed after a long absence.
    Close(NodeId),
    /// Everything known of these nodes is discarded and fetched again, because their evidence was
    /// mixed.
    Dissolve(Vec<NodeId>),
    /// A global snapshot, as received, has replaced the previous one of its node.
    GlobalSnapshot { node_id: NodeId, at: Timestamp, body: &'b [u8] },
}

/// An applied evidence snapshot, and where it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AppliedSnapshot {
    pub(crate) node_id: NodeId,
    pub(crate) covers: BTreeMap<u32, Intervals>,
    pub(crate) epoch: u32,
    pub(crate) base: u64,
    /// The name of the file in `peers/`.
    pub(crate) file: String,
    /// The time at which it was applied.
    pub(crate) at: Timestamp,
    /// Whether only the evidence of some sites was applied.
    pub(crate) is_part: bool,
}

#[derive(Serialize, Deserialize)]
struct SnapshotJson {
    #[serde(rename = "origin")]
    node_id: String,
    covers: BTreeMap<u32, Intervals>,
    epoch: u32,
    base: u64,
    file: String,
    #[serde(default)]
    at: i64,
    #[serde(default)]
    part: bool,
}

#[derive(Serialize, Deserialize)]
struct ForgetJson {
    domain: String,
    until: i64,
}

#[derive(Serialize, Deserialize)]
struct SetAsideJson {
    #[serde(rename = "origin")]
    node_id: String,
    why: String,
}

impl PeerEvent<'_> {
    pub(crate) fn encode(&self) -> (u16, Vec<u8>) {
        // Numbers, texts and maps of them always serialise.
        fn json(value: &impl Serialize) -> Vec<u8> {
            serde_json::to_vec(value).unwrap_or_default()
        }
        match self {
            Self::Message { node_id, position, at, body } => {
                let mut bytes = Vec::with_capacity(MESSAGE_HEAD + body.len());
                bytes.extend_from_slice(node_id.as_bytes());
                bytes.extend_from_slice(&position.incarnation.to_le_bytes());
                bytes.extend_from_slice(&position.seq.to_le_bytes());
                bytes.extend_from_slice(&at.as_millis().to_le_bytes());
                bytes.extend_from_slice(body);
                (MESSAGE, bytes)
            }
            Self::GlobalSnapshot { node_id, at, body } => {
                (GENERAL, general_bytes(*node_id, *at, body))
            }
            Self::Snapshot(share) => {
                let AppliedSnapshot { node_id, covers, epoch, base, file, at, is_part } =
                    share.clone();
                let (node_id, at) = (node_id.to_string(), at.as_millis());
                (
                    SHARE,
                    json(&SnapshotJson { node_id, covers, epoch, base, file, at, part: is_part }),
                )
            }
            Self::Forget { domain, until } => {
                (FORGET, json(&ForgetJson { domain: domain.clone(), until: until.as_millis() }))
            }
            Self::Exclude(node_id) => (EXCLUDE, node_id.as_bytes().to_vec()),
            Self::Include(node_id) => (INCLUDE, node_id.as_bytes().to_vec()),
            Self::Aside { node_id, why } => {
                (ASIDE, json(&SetAsideJson { node_id: node_id.to_string(), why: why.clone() }))
            }
            Self::Cursor(position) => {
                let mut bytes = position.incarnation.to_le_bytes().to_vec();
                bytes.extend_from_slice(&position.seq.to_le_bytes());
                (CURSOR, bytes)
            }
            Self::Close(node_id) => (CLOSE, node_id.as_bytes().to_vec()),
            Self::Dissolve(group) => {
                (DISSOLVE, group.iter().flat_map(|node_id| *node_id.as_bytes()).collect())
            }
        }
    }
}

impl<'b> PeerEvent<'b> {
    pub(crate) fn decode(kind: u16, schema: u16, bytes: &'b [u8]) -> Result<Self, String> {
        if schema != SCHEMA {
            return Err(format!("unknown version {schema} of record kind {kind}"));
        }
        let node_id = |text: &str| text.parse::<NodeId>().map_err(|error| error.to_string());
        let named =
            || bytes.try_into().map(NodeId::from_bytes).map_err(|_| "truncated node id".to_owned());
        let failed = |error: serde_json::Error| error.to_string();
        match kind {
            GENERAL => match general(bytes) {
                Some((node_id, at, body)) => Ok(Self::GlobalSnapshot { node_id, at, body }),
                None => Err("truncated global snapshot".to_owned()),
            },
            MESSAGE => message(bytes).ok_or_else(|| "truncated message".to_owned()),
            SHARE => {
                let json: SnapshotJson = serde_json::from_slice(bytes).map_err(failed)?;
                let SnapshotJson { node_id: of, covers, epoch, base, file, at, part: is_part } =
                    json;
                let at = Timestamp::from_millis(at);
                if file.contains(['/', '\\']) || !file.starts_with("share-") {
                    return Err(format!("invalid snapshot file name {file:?}"));
                }
                Ok(Self::Snapshot(AppliedSnapshot {
                    node_id: node_id(&of)?,
                    covers,
                    epoch,
                    base,
                    file,
                    at,
                    is_part,
                }))
            }
            FORGET => {
                let ForgetJson { domain, until } = serde_json::from_slice(bytes).map_err(failed)?;
                Ok(Self::Forget { domain, until: Timestamp::from_millis(until) })
            }
            EXCLUDE => Ok(Self::Exclude(named()?)),
            INCLUDE => Ok(Self::Include(named()?)),
            ASIDE => {
                let SetAsideJson { node_id: of, why } =
                    serde_json::from_slice(bytes).map_err(failed)?;
                Ok(Self::Aside { node_id: node_id(&of)?, why })
            }
            CLOSE => Ok(Self::Close(named()?)),
            DISSOLVE => match bytes.as_chunks() {
                (group, []) => {
                    Ok(Self::Dissolve(group.iter().copied().map(NodeId::from_bytes).collect()))
                }
                _ => Err("truncated node id".to_owned()),
            },
            CURSOR => cursor(bytes).ok_or_else(|| "truncated position".to_owned()),
            _ => Err(format!("unknown record kind {kind}")),
        }
    }
}

fn message(bytes: &[u8]) -> Option<PeerEvent<'_>> {
    let (node_id, rest) = bytes.split_first_chunk()?;
    let (incarnation, rest) = rest.split_first_chunk()?;
    let (seq, rest) = rest.split_first_chunk()?;
    let (at, body) = rest.split_first_chunk()?;
    let position =
        Position { incarnation: u64::from_le_bytes(*incarnation), seq: u64::from_le_bytes(*seq) };
    let at = Timestamp::from_millis(i64::from_le_bytes(*at));
    Some(PeerEvent::Message { node_id: NodeId::from_bytes(*node_id), position, at, body })
}

/// Encodes a global snapshot for a record and for a section of a snapshot.
pub(super) fn general_bytes(node_id: NodeId, at: Timestamp, body: &[u8]) -> Vec<u8> {
    [&node_id.as_bytes()[..], &at.as_millis().to_le_bytes(), body].concat()
}

/// The inverse of [`general_bytes`].
pub(super) fn general(bytes: &[u8]) -> Option<(NodeId, Timestamp, &[u8])> {
    let (node_id, rest) = bytes.split_first_chunk()?;
    let (at, body) = rest.split_first_chunk()?;
    Some((NodeId::from_bytes(*node_id), Timestamp::from_millis(i64::from_le_bytes(*at)), body))
}

fn cursor(bytes: &[u8]) -> Option<PeerEvent<'_>> {
    let (incarnation, rest) = bytes.split_first_chunk()?;
    let incarnation = u64::from_le_bytes(*incarnation);
    Some(PeerEvent::Cursor(Position {
        incarnation,
        seq: u64::from_le_bytes(rest.try_into().ok()?),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_decodes_to_what_was_encoded() {
        let node_id = NodeId::random();
        let position = Position { incarnation: 3, seq: 9 };
        let at = Timestamp::from_millis(1_800_000_000_000);
        let covers = BTreeMap::from([(1, Intervals::of(1, 40)), (2, Intervals::of(41, 60))]);
        let all = [
            PeerEvent::Message { node_id, position, at, body: b"body" },
            PeerEvent::Snapshot(AppliedSnapshot {
                node_id,
                covers,
                epoch: 2,
                base: 40,
                file: "share-x".into(),
                at,
                is_part: true,
            }),
            PeerEvent::Forget { domain: "example.org".into(), until: at },
            PeerEvent::Exclude(node_id),
            PeerEvent::Include(node_id),
            PeerEvent::Aside { node_id, why: "its clock".into() },
            PeerEvent::Cursor(position),
            PeerEvent::Close(node_id),
            PeerEvent::Dissolve(vec![node_id, NodeId::random()]),
            PeerEvent::GlobalSnapshot { node_id, at, body: b"image" },
        ];
        for event in all {
            let (kind, bytes) = event.encode();
            assert_eq!(PeerEvent::decode(kind, SCHEMA, &bytes), Ok(event));
            for len in 0..bytes.len() {
                let _ = PeerEvent::decode(kind, SCHEMA, &bytes[..len]);
            }
            assert!(PeerEvent::decode(kind, SCHEMA + 1, &bytes).is_err());
        }
        assert!(PeerEvent::decode(99, SCHEMA, &[]).is_err());
        let (kind, bytes) = PeerEvent::Snapshot(AppliedSnapshot {
            node_id,
            covers: BTreeMap::new(),
            epoch: 1,
            base: 0,
            file: "share-/../../x".into(),
            at,
            is_part: false,
        })
        .encode();
        assert!(PeerEvent::decode(kind, SCHEMA, &bytes).is_err());
    }
}
