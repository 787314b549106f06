//! The records of `peers/`.
//!
//! Owns: their bytes, which `log/FORMAT.md` describes.
//!
//! Invariants: decoding returns what was encoded. Any bytes decode or are refused.

use std::collections::BTreeMap;

use fetchwise::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::intervals::Intervals;
use crate::model::node_id::Origin;
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
pub(crate) enum Event<'b> {
    /// A message as received.
    Message { origin: Origin, position: Position, at: Timestamp, body: &'b [u8] },
    /// An evidence snapshot has replaced everything known of a node.
    Share(TakenShare),
    /// A domain was forgotten.
    Forget { domain: String, until: Timestamp },
    /// A node was excluded.
    Exclude(Origin),
    /// A node was included again.
    Include(Origin),
    /// A node was set aside until an operator accepts it again.
    Aside { origin: Origin, why: String },
    /// Everything read up to this position had nothing new.
    Cursor(Position),
    /// A node was closed after a long absence.
    Close(Origin),
    /// Everything known of these nodes is discarded and fetched again, because their evidence was mixed.
    Dissolve(Vec<Origin>),
    /// A global snapshot, as received, has replaced the previous one of its node.
    General { origin: Origin, at: Timestamp, body: &'b [u8] },
}

/// An applied evidence snapshot, and where it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TakenShare {
    pub(crate) origin: Origin,
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
struct ShareJson {
    origin: String,
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
struct AsideJson {
    origin: String,
    why: String,
}

impl Event<'_> {
    pub(crate) fn encode(&self) -> (u16, Vec<u8>) {
        // Numbers, texts and maps of them always serialise.
        fn json(value: &impl Serialize) -> Vec<u8> {
            serde_json::to_vec(value).unwrap_or_default()
        }
        match self {
            Self::Message { origin, position, at, body } => {
                let mut bytes = Vec::with_capacity(MESSAGE_HEAD + body.len());
                bytes.extend_from_slice(origin.as_bytes());
                bytes.extend_from_slice(&position.incarnation.to_le_bytes());
                bytes.extend_from_slice(&position.seq.to_le_bytes());
                bytes.extend_from_slice(&at.as_millis().to_le_bytes());
                bytes.extend_from_slice(body);
                (MESSAGE, bytes)
            }
            Self::General { origin, at, body } => (GENERAL, general_bytes(*origin, *at, body)),
            Self::Share(share) => {
                let TakenShare { origin, covers, epoch, base, file, at, is_part } = share.clone();
                let (origin, at) = (origin.to_string(), at.as_millis());
                (SHARE, json(&ShareJson { origin, covers, epoch, base, file, at, part: is_part }))
            }
            Self::Forget { domain, until } => {
                (FORGET, json(&ForgetJson { domain: domain.clone(), until: until.as_millis() }))
            }
            Self::Exclude(origin) => (EXCLUDE, origin.as_bytes().to_vec()),
            Self::Include(origin) => (INCLUDE, origin.as_bytes().to_vec()),
            Self::Aside { origin, why } => (ASIDE, json(&AsideJson { origin: origin.to_string(), why: why.clone() })),
            Self::Cursor(position) => {
                let mut bytes = position.incarnation.to_le_bytes().to_vec();
                bytes.extend_from_slice(&position.seq.to_le_bytes());
                (CURSOR, bytes)
            }
            Self::Close(origin) => (CLOSE, origin.as_bytes().to_vec()),
            Self::Dissolve(group) => (DISSOLVE, group.iter().flat_map(|origin| *origin.as_bytes()).collect()),
        }
    }
}

impl<'b> Event<'b> {
    pub(crate) fn decode(kind: u16, schema: u16, bytes: &'b [u8]) -> Result<Self, String> {
        if schema != SCHEMA {
            return Err(format!("a record of kind {kind} in version {schema}"));
        }
        let origin = |text: &str| text.parse::<Origin>().map_err(|error| error.to_string());
        let named = || bytes.try_into().map(Origin::from_bytes).map_err(|_| "an origin is cut off".to_owned());
        let failed = |error: serde_json::Error| error.to_string();
        match kind {
            GENERAL => match general(bytes) {
                Some((origin, at, body)) => Ok(Self::General { origin, at, body }),
                None => Err("a general image is cut off".to_owned()),
            },
            MESSAGE => message(bytes).ok_or_else(|| "a message is cut off".to_owned()),
            SHARE => {
                let json: ShareJson = serde_json::from_slice(bytes).map_err(failed)?;
                let ShareJson { origin: of, covers, epoch, base, file, at, part: is_part } = json;
                let at = Timestamp::from_millis(at);
                if file.contains(['/', '\\']) || !file.starts_with("share-") {
                    return Err(format!("a share in the file {file:?}"));
                }
                Ok(Self::Share(TakenShare { origin: origin(&of)?, covers, epoch, base, file, at, is_part }))
            }
            FORGET => {
                let ForgetJson { domain, until } = serde_json::from_slice(bytes).map_err(failed)?;
                Ok(Self::Forget { domain, until: Timestamp::from_millis(until) })
            }
            EXCLUDE => Ok(Self::Exclude(named()?)),
            INCLUDE => Ok(Self::Include(named()?)),
            ASIDE => {
                let AsideJson { origin: of, why } = serde_json::from_slice(bytes).map_err(failed)?;
                Ok(Self::Aside { origin: origin(&of)?, why })
            }
            CLOSE => Ok(Self::Close(named()?)),
            DISSOLVE => match bytes.as_chunks() {
                (group, []) => Ok(Self::Dissolve(group.iter().copied().map(Origin::from_bytes).collect())),
                _ => Err("an origin is cut off".to_owned()),
            },
            CURSOR => cursor(bytes).ok_or_else(|| "a position is cut off".to_owned()),
            _ => Err(format!("a record of the unknown kind {kind}")),
        }
    }
}

fn message(bytes: &[u8]) -> Option<Event<'_>> {
    let (origin, rest) = bytes.split_first_chunk()?;
    let (incarnation, rest) = rest.split_first_chunk()?;
    let (seq, rest) = rest.split_first_chunk()?;
    let (at, body) = rest.split_first_chunk()?;
    let position = Position { incarnation: u64::from_le_bytes(*incarnation), seq: u64::from_le_bytes(*seq) };
    let at = Timestamp::from_millis(i64::from_le_bytes(*at));
    Some(Event::Message { origin: Origin::from_bytes(*origin), position, at, body })
}

/// Encodes a global snapshot for a record and for a section of a snapshot.
pub(super) fn general_bytes(origin: Origin, at: Timestamp, body: &[u8]) -> Vec<u8> {
    [&origin.as_bytes()[..], &at.as_millis().to_le_bytes(), body].concat()
}

/// The inverse of [`general_bytes`].
pub(super) fn general(bytes: &[u8]) -> Option<(Origin, Timestamp, &[u8])> {
    let (origin, rest) = bytes.split_first_chunk()?;
    let (at, body) = rest.split_first_chunk()?;
    Some((Origin::from_bytes(*origin), Timestamp::from_millis(i64::from_le_bytes(*at)), body))
}

fn cursor(bytes: &[u8]) -> Option<Event<'_>> {
    let (incarnation, rest) = bytes.split_first_chunk()?;
    let incarnation = u64::from_le_bytes(*incarnation);
    Some(Event::Cursor(Position { incarnation, seq: u64::from_le_bytes(rest.try_into().ok()?) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_decodes_to_what_was_encoded() {
        let origin = Origin::random();
        let position = Position { incarnation: 3, seq: 9 };
        let at = Timestamp::from_millis(1_800_000_000_000);
        let covers = BTreeMap::from([(1, Intervals::of(1, 40)), (2, Intervals::of(41, 60))]);
        let all = [
            Event::Message { origin, position, at, body: b"body" },
            Event::Share(TakenShare { origin, covers, epoch: 2, base: 40, file: "share-x".into(), at, is_part: true }),
            Event::Forget { domain: "example.org".into(), until: at },
            Event::Exclude(origin),
            Event::Include(origin),
            Event::Aside { origin, why: "its clock".into() },
            Event::Cursor(position),
            Event::Close(origin),
            Event::Dissolve(vec![origin, Origin::random()]),
            Event::General { origin, at, body: b"image" },
        ];
        for event in all {
            let (kind, bytes) = event.encode();
            assert_eq!(Event::decode(kind, SCHEMA, &bytes), Ok(event));
            for len in 0..bytes.len() {
                let _ = Event::decode(kind, SCHEMA, &bytes[..len]);
            }
            assert!(Event::decode(kind, SCHEMA + 1, &bytes).is_err());
        }
        assert!(Event::decode(99, SCHEMA, &[]).is_err());
        let (kind, bytes) = Event::Share(TakenShare {
            origin,
            covers: BTreeMap::new(),
            epoch: 1,
            base: 0,
            file: "share-/../../x".into(),
            at,
            is_part: false,
        })
        .encode();
        assert!(Event::decode(kind, SCHEMA, &bytes).is_err());
    }
}
