//! `fleet.state`: the state that a node keeps alongside its log.
//!
//! Owns: the file.
//!
//! Invariants: the file is replaced as a whole, and synced before anything that it allows is done.
//! A damaged file is refused.
//!
//! Must not know: what is published.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use fetchwise::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::FleetError;
use crate::failpoints;
use crate::model::node_id::NodeId;
use crate::model::position_set::Intervals;

/// The name of the file in the data directory.
pub const FILE: &str = "fleet.state";
const TMP: &str = "tmp-fleet.state";
/// The maximum length of the file in bytes.
const MAX_LEN: u64 = 1 << 20;

/// An epoch of a log: the positions after `base`, until the next epoch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEpoch {
    /// Its number.
    pub epoch: u32,
    /// The last position of the previous epoch.
    pub base: u64,
}

/// The persistent state of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeState {
    /// The version of the file format.
    pub version: u32,
    /// The node's id.
    #[serde(rename = "origin", with = "node_id_text")]
    pub node_id: NodeId,
    /// The epochs of its log, the oldest first.
    pub forks: Vec<LogEpoch>,
    /// The stream that `acknowledged` refers to; 0 for none yet.
    pub incarnation: u64,
    /// The position up to which everything is in that stream or in an evidence snapshot.
    pub acknowledged: u64,
    /// The position after which nothing has ever been published.
    pub reserved: u64,
    /// The positions that are never published.
    pub withheld: Intervals,
    /// The last position that its evidence snapshot covers.
    pub share: u64,
    /// The time of that snapshot, in milliseconds since 1970; 0 for never.
    pub share_at: i64,
}

mod node_id_text {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::model::node_id::NodeId;

    pub(crate) fn serialize<S: Serializer>(node_id: &NodeId, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(node_id)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<NodeId, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

impl NodeState {
    /// Creates the state of a node that joins for the first time.
    pub fn new(node_id: NodeId) -> Self {
        Self {
            version: 1,
            node_id,
            forks: vec![LogEpoch { epoch: 1, base: 0 }],
            incarnation: 0,
            acknowledged: 0,
            reserved: 0,
            withheld: Intervals::default(),
            share: 0,
            share_at: 0,
        }
    }

    /// Loads the state from `data`. Saves a new one there for a node that joins for the first time.
    pub(crate) fn load_or_create(data: &Path) -> Result<Self, FleetError> {
        if let Some(state) = Self::load(data)? {
            return Ok(state);
        }
        let state = Self::new(NodeId::random());
        state.save(data)?;
        Ok(state)
    }

    /// Returns the current epoch.
    pub fn log_epoch(&self) -> LogEpoch {
        self.forks.last().copied().unwrap_or(LogEpoch { epoch: 1, base: 0 })
    }

    /// Returns the positions of each epoch that the log holds. The current epoch has no end.
    pub fn own(&self) -> BTreeMap<u32, Intervals> {
        let ends = self.forks.iter().skip(1).map(|next| next.base).chain([u64::MAX]);
        self.forks
            .iter()
            .zip(ends)
            .map(|(fork, end)| (fork.epoch, Intervals::of(fork.base.saturating_add(1), end)))
            .collect()
    }

    /// Begins another epoch after `base`, because the directory was restored. Its number is greater
    /// than `known`, the last one that was published.
    pub fn begin_epoch(&mut self, known: u32, base: u64) {
        let epoch = known.max(self.log_epoch().epoch) + 1;
        self.forks.push(LogEpoch { epoch, base });
        (self.acknowledged, self.reserved) = (self.acknowledged.min(base), base);
        self.share = self.share.min(base);
    }

    /// Returns the time of the last evidence snapshot.
    pub fn shared_at(&self) -> Timestamp {
        Timestamp::from_millis(self.share_at)
    }

    /// Reads the state; none if there is no file.
    ///
    /// # Errors
    /// [`FleetError::State`] when the file is damaged or a newer release wrote it.
    pub fn load(dir: &Path) -> Result<Option<Self>, FleetError> {
        let path = dir.join(FILE);
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(|error| FleetError::io(&path, error))?,
        };
        let mut bytes = Vec::new();
        file.take(MAX_LEN + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| FleetError::io(&path, error))?;
        Self::decode(&bytes).map(Some).map_err(|what| FleetError::State { path, what })
    }

    /// Decodes the file.
    ///
    /// # Errors
    /// Returns what is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "is not text".to_owned())?;
        let (json, crc) = text.trim_end().rsplit_once('\n').ok_or("is truncated")?;
        if bytes.len() as u64 > MAX_LEN || crc != format!("{:08x}", crc32c::crc32c(json.as_bytes()))
        {
            return Err("is damaged".into());
        }
        let state: Self =
            serde_json::from_str(json).map_err(|error| format!("cannot be read ({error})"))?;
        let is_ordered = state
            .forks
            .windows(2)
            .all(|pair| pair[0].epoch < pair[1].epoch && pair[0].base <= pair[1].base);
        // No log gets that long, and sums of positions cannot overflow.
        let all = state.forks.iter().map(|fork| fork.base).chain([
            state.acknowledged,
            state.reserved,
            state.share,
        ]);
        let is_small = all.into_iter().all(|position| position < 1 << 62);
        match state.version == 1
            && is_small
            && is_ordered
            && state.forks.first().is_some_and(|fork| fork.epoch > 0)
        {
            true => Ok(state),
            false => Err("is invalid or of a newer release".into()),
        }
    }

    /// Encodes the file.
    pub fn encode(&self) -> Vec<u8> {
        // Numbers, texts and lists of them always serialise.
        let json = serde_json::to_string(self).unwrap_or_default();
        format!("{json}\n{:08x}\n", crc32c::crc32c(json.as_bytes())).into_bytes()
    }

    /// Replaces the file, synced.
    ///
    /// # Errors
    /// Returns errors of the operating system. The previous file is still there then.
    pub fn save(&self, dir: &Path) -> Result<(), FleetError> {
        let (tmp, path) = (dir.join(TMP), dir.join(FILE));
        let written = (|| {
            let mut file = File::create(&tmp)?;
            file.write_all(&self.encode())?;
            file.sync_all()?;
            failpoints::reached(failpoints::STATE_WRITTEN);
            fs::rename(&tmp, &path)?;
            failpoints::reached(failpoints::STATE_RENAMED);
            File::open(dir)?.sync_all()
        })();
        written.map_err(|error| FleetError::io(&path, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_state_loads_and_a_damaged_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(NodeState::load(dir.path()).unwrap(), None);
        let mut state = NodeState::new(NodeId::random());
        (state.incarnation, state.acknowledged, state.reserved) = (7, 40, 90);
        state.withheld.insert(3, 4);
        state.begin_epoch(1, 30);
        assert_eq!(
            (state.log_epoch(), state.acknowledged, state.reserved),
            (LogEpoch { epoch: 2, base: 30 }, 30, 30)
        );
        assert_eq!(state.own()[&1], Intervals::of(1, 30));
        assert_eq!(state.own()[&2], Intervals::of(31, u64::MAX));
        state.save(dir.path()).unwrap();
        assert_eq!(NodeState::load(dir.path()).unwrap(), Some(state.clone()));
        let whole = state.encode();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            assert!(
                NodeState::decode(&bytes).is_err()
                    || NodeState::decode(&bytes) == Ok(state.clone()),
                "byte {at}"
            );
            let cut = NodeState::decode(&whole[..at]);
            assert!(cut.is_err() || at + 1 >= whole.len(), "cut at {at}: {cut:?}");
        }
        fs::write(dir.path().join(FILE), b"nothing").unwrap();
        assert!(NodeState::load(dir.path()).unwrap_err().is_refusal());
    }
}
