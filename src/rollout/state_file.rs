//! The saved state of a rollout: the current stage, the number of interim looks, and whether
//! learning is out of service.
//!
//! The state is a small JSON file next to the log. It is replaced as a whole, so that a reader
//! finds the old one or the new one. It contains no host and no URL.
//!
//! Must not know: the consequences of the state.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use crate::ab_test::{InterimLooks, Look};
use crate::router::{Fallback, Mode, Router};
use fetchwise_types::time::Timestamp;

/// The file's name in the data directory.
pub const FILE: &str = "rollout.json";
/// The version of the layout that is written.
const VERSION: u32 = 1;

/// The error of a rollout's state file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RolloutStateError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file has invalid content.
    #[error("invalid rollout state {path}: {reason}; remove it to begin a new stage")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is invalid.
        reason: String,
    },
}

/// A period in which hosts were assigned to the arms in one way. Attempts of different stages are
/// not compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Stage {
    /// Start of the stage.
    #[serde(with = "time_as_text")]
    pub began: Timestamp,
    /// The mode's name.
    pub mode: String,
    /// The share of hosts that [`Mode::Split`] gives to learning.
    pub split_share: f64,
    /// Number of routes in the table.
    pub routes: usize,
    /// A hash of the table.
    pub table: String,
}

impl Stage {
    /// Returns the stage of a router, as of `began`.
    pub fn of(router: &Router, began: Timestamp) -> Self {
        let mut routes: Vec<(&str, &str)> = router.table.iter().collect();
        routes.sort_unstable();
        let mut hash = Xxh3::new();
        for (domain, fetcher) in &routes {
            hash.update(domain.as_bytes());
            hash.update(b"\0");
            hash.update(fetcher.as_bytes());
            hash.update(b"\n");
        }
        Self {
            began,
            mode: router.mode.name().to_owned(),
            split_share: router.split_share,
            routes: routes.len(),
            table: format!("{:016x}", hash.digest()),
        }
    }

    /// Returns whether both stages assign hosts in the same way. The share matters in mode split
    /// only.
    pub fn is_like(&self, other: &Self) -> bool {
        self.mode == other.mode
            && self.table == other.table
            && (self.mode != Mode::Split.name() || self.split_share == other.split_share)
    }
}

/// The state while learning is out of service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FallbackRecord {
    /// Start of the fallback.
    #[serde(with = "time_as_text")]
    pub at: Timestamp,
    /// The name of the previous mode.
    pub from: String,
    /// The share that learning had.
    pub split_share: f64,
    /// The reason, for people.
    pub reason: String,
    /// The look that found learning worse.
    pub look: Option<Look>,
}

impl FallbackRecord {
    pub(super) fn new(why: &Fallback, look: Look) -> Self {
        Self {
            at: why.at,
            from: why.from.name().to_owned(),
            split_share: why.split_share,
            reason: why.reason.clone(),
            look: Some(look),
        }
    }

    /// Returns the fallback for a selector.
    pub fn why(&self) -> Fallback {
        Fallback {
            at: self.at,
            from: self.from.parse().unwrap_or(Mode::Split),
            split_share: self.split_share,
            reason: self.reason.clone(),
        }
    }
}

/// The saved state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RolloutState {
    /// The version of the file's layout.
    pub version: u32,
    /// The current stage.
    pub stage: Option<Stage>,
    /// The interim looks of the stage.
    #[serde(default)]
    pub looks: InterimLooks,
    /// The result of the last look.
    #[serde(default)]
    pub last_look: Option<Look>,
    /// Set while learning is out of service.
    #[serde(default)]
    pub fallen_back: Option<FallbackRecord>,
    /// Number of fallbacks since an operator last resumed learning.
    #[serde(default)]
    pub falls: u32,
    /// Time at which an operator last resumed learning.
    #[serde(default, with = "maybe_time_as_text")]
    pub resumed_at: Option<Timestamp>,
}

impl Default for RolloutState {
    fn default() -> Self {
        Self {
            version: VERSION,
            stage: None,
            looks: InterimLooks::default(),
            last_look: None,
            fallen_back: None,
            falls: 0,
            resumed_at: None,
        }
    }
}

impl RolloutState {
    /// Reads the state in a data directory; `None` if no rollout was ever started.
    ///
    /// # Errors
    /// [`RolloutStateError`] when there is a file that cannot be read.
    pub fn read(dir: &Path) -> Result<Option<Self>, RolloutStateError> {
        let path = dir.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(RolloutStateError::Read { path, source }),
        };
        let wrong = |reason: String| RolloutStateError::Content { path: path.clone(), reason };
        let kept: Self = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        match kept.version {
            VERSION => Ok(Some(kept)),
            other => Err(wrong(format!("unsupported version {other}, expected {VERSION}"))),
        }
    }

    /// Replaces the state. It is on disk when this returns.
    ///
    /// # Errors
    /// [`RolloutStateError::Write`].
    pub fn write(&self, dir: &Path) -> Result<(), RolloutStateError> {
        let path = dir.join(FILE);
        let new = dir.join(format!("{FILE}.{}.new", std::process::id()));
        let write = || {
            let mut text = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
            text.push('\n');
            let mut file = File::create(&new)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            // The name is on disk once the directory is. If a directory cannot be synced, the
            // operating system writes it later.
            File::open(dir).and_then(|dir| dir.sync_all()).or(Ok(()))
        };
        write().map_err(|source| RolloutStateError::Write { path: path.clone(), source })
    }

    /// Puts learning back into service on behalf of an operator: the next stage begins `now`,
    /// without earlier results. Returns the fallback that ended.
    pub fn resume(&mut self, now: Timestamp) -> Option<FallbackRecord> {
        let lifted = self.fallen_back.take()?;
        self.falls = 0;
        self.restart_stage(now);
        self.resumed_at = Some(now);
        Some(lifted)
    }

    /// Restarts the same stage at `now`, without its previous looks.
    pub(super) fn restart_stage(&mut self, now: Timestamp) {
        if let Some(stage) = &mut self.stage {
            stage.began = now;
        }
        (self.looks, self.last_look) = (InterimLooks::default(), None);
    }
}

mod time_as_text {
    use serde::{Deserialize, Deserializer, Serializer, de};

    use fetchwise_types::rfc3339;
    use fetchwise_types::time::Timestamp;

    pub(super) fn serialize<S: Serializer>(at: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&rfc3339::format(*at))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
        rfc3339::parse(&String::deserialize(from)?).map_err(de::Error::custom)
    }
}

mod maybe_time_as_text {
    use serde::{Deserialize, Deserializer, Serializer, de};

    use fetchwise_types::rfc3339;
    use fetchwise_types::time::Timestamp;

    pub(super) fn serialize<S: Serializer>(
        at: &Option<Timestamp>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match at {
            Some(at) => to.serialize_some(&rfc3339::format(*at)),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Timestamp>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| rfc3339::parse(&text).map_err(de::Error::custom)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::RouteTable;

    fn router(mode: Mode, share: f64, domain: &str) -> Router {
        let mut table = RouteTable::default();
        table.insert(domain, "playwright").unwrap();
        Router { mode, table, split_share: share }
    }

    #[test]
    fn a_written_state_reads_back_and_invalid_content_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(RolloutState::read(dir.path()).unwrap(), None);
        let now = Timestamp::from_millis(1_790_000_000_123);
        let kept = RolloutState {
            stage: Some(Stage::of(&router(Mode::Split, 0.05, "a.org"), now)),
            ..RolloutState::default()
        };
        kept.write(dir.path()).unwrap();
        assert_eq!(RolloutState::read(dir.path()).unwrap().as_ref(), Some(&kept));
        for bad in ["", "{", "{\"version\": 99}", "[]"] {
            fs::write(dir.path().join(FILE), bad).unwrap();
            let error = RolloutState::read(dir.path()).unwrap_err().to_string();
            assert!(error.contains("remove it to begin a new stage"), "{error}");
        }
    }

    #[test]
    fn a_stage_depends_on_mode_and_table_and_in_a_split_on_the_share() {
        let of = |mode, share, domain| Stage::of(&router(mode, share, domain), Timestamp::now());
        assert!(of(Mode::Shadow, 0.1, "a.org").is_like(&of(Mode::Shadow, 0.2, "a.org")));
        assert!(!of(Mode::Split, 0.1, "a.org").is_like(&of(Mode::Split, 0.2, "a.org")));
        assert!(!of(Mode::Split, 0.1, "a.org").is_like(&of(Mode::Split, 0.1, "b.org")));
        assert!(!of(Mode::Split, 0.1, "a.org").is_like(&of(Mode::Shadow, 0.1, "a.org")));
    }
}
