//! What is remembered of a rollout: the stage that is under way, how often it was looked, and whether learning is out of service.
//!
//! A small JSON file beside the log, replaced as a whole, so that a reader finds the old one or the new one. It holds no host and
//! no URL. Must not know what is done about it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use crate::ab_test::{Look, InterimLooks};
use crate::router::{Fallback, Mode, Router};
use fetchwise_types::time::Timestamp;

/// The file's name in the data directory.
pub const FILE: &str = "rollout.json";
/// The version of its layout that is written.
const VERSION: u32 = 1;

/// What a file of a rollout can be wrong with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeptError {
    /// It cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It cannot be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not what fetchwise writes.
    #[error("{path} is not what fetchwise keeps of a rollout: {reason}; remove it to begin a new stage")]
    Content {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

/// A stretch of time in which hosts were dealt to the arms in one way: attempts of different stages are not compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Stage {
    /// When it began.
    #[serde(with = "time_as_text")]
    pub began: Timestamp,
    /// The mode's name.
    pub mode: String,
    /// The share of hosts that [`Mode::Split`] gives to learning.
    pub split_share: f64,
    /// How many routes the table has.
    pub routes: usize,
    /// Tells one table from another.
    pub table: String,
}

impl Stage {
    /// The stage that a router makes, as of `began`.
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

    /// Whether both deal hosts in the same way. The share counts in mode split alone.
    pub fn is_like(&self, other: &Self) -> bool {
        self.mode == other.mode
            && self.table == other.table
            && (self.mode != Mode::Split.name() || self.split_share == other.split_share)
    }
}

/// Learning is out of service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Fallen {
    /// Since when.
    #[serde(with = "time_as_text")]
    pub at: Timestamp,
    /// The name of the mode that was left.
    pub from: String,
    /// The share that learning had.
    pub split_share: f64,
    /// Why, for people.
    pub reason: String,
    /// The look that found it.
    pub look: Option<Look>,
}

impl Fallen {
    pub(super) fn new(why: &Fallback, look: Look) -> Self {
        Self {
            at: why.at,
            from: why.from.name().to_owned(),
            split_share: why.split_share,
            reason: why.reason.clone(),
            look: Some(look),
        }
    }

    /// The same, as a selector takes it.
    pub fn why(&self) -> Fallback {
        Fallback {
            at: self.at,
            from: self.from.parse().unwrap_or(Mode::Split),
            split_share: self.split_share,
            reason: self.reason.clone(),
        }
    }
}

/// All that is remembered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Kept {
    /// Of the file's layout.
    pub version: u32,
    /// The stage that is under way.
    pub stage: Option<Stage>,
    /// How often it was looked at it.
    #[serde(default)]
    pub looks: InterimLooks,
    /// What the last look found.
    #[serde(default)]
    pub last_look: Option<Look>,
    /// Set while learning is out of service.
    #[serde(default)]
    pub fallen_back: Option<Fallen>,
    /// How often it went out of service since an operator put it back.
    #[serde(default)]
    pub falls: u32,
    /// When somebody put it back last.
    #[serde(default, with = "maybe_time_as_text")]
    pub resumed_at: Option<Timestamp>,
}

impl Default for Kept {
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

impl Kept {
    /// What is kept in a data directory; nothing where no rollout was ever begun.
    ///
    /// # Errors
    /// [`KeptError`] when there is a file that cannot be read.
    pub fn read(dir: &Path) -> Result<Option<Self>, KeptError> {
        let path = dir.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(KeptError::Read { path, source }),
        };
        let wrong = |reason: String| KeptError::Content { path: path.clone(), reason };
        let kept: Self = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        match kept.version {
            VERSION => Ok(Some(kept)),
            other => Err(wrong(format!("its layout has the version {other}, and this release knows {VERSION}"))),
        }
    }

    /// Puts it in the place of what was kept before. It is on disk when this returns.
    ///
    /// # Errors
    /// [`KeptError::Write`].
    pub fn write(&self, dir: &Path) -> Result<(), KeptError> {
        let path = dir.join(FILE);
        let new = dir.join(format!("{FILE}.{}.new", std::process::id()));
        let write = || {
            let mut text = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
            text.push('\n');
            let mut file = File::create(&new)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            // The name is on disk once the directory is. Where a directory cannot be synced the system does it in its own time.
            File::open(dir).and_then(|dir| dir.sync_all()).or(Ok(()))
        };
        write().map_err(|source| KeptError::Write { path: path.clone(), source })
    }

    /// An operator puts learning back into service: the next stage begins `now`, with nothing held against it. Says what was lifted.
    pub fn resume(&mut self, now: Timestamp) -> Option<Fallen> {
        let lifted = self.fallen_back.take()?;
        self.falls = 0;
        self.begin_anew(now);
        self.resumed_at = Some(now);
        Some(lifted)
    }

    /// The same stage from now on, without the looks of before.
    pub(super) fn begin_anew(&mut self, now: Timestamp) {
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

    pub(super) fn serialize<S: Serializer>(at: &Option<Timestamp>, to: S) -> Result<S::Ok, S::Error> {
        match at {
            Some(at) => to.serialize_some(&rfc3339::format(*at)),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
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
    fn what_is_written_reads_back_and_what_is_something_else_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Kept::read(dir.path()).unwrap(), None);
        let now = Timestamp::from_millis(1_790_000_000_123);
        let kept = Kept { stage: Some(Stage::of(&router(Mode::Split, 0.05, "a.org"), now)), ..Kept::default() };
        kept.write(dir.path()).unwrap();
        assert_eq!(Kept::read(dir.path()).unwrap().as_ref(), Some(&kept));
        for bad in ["", "{", "{\"version\": 99}", "[]"] {
            fs::write(dir.path().join(FILE), bad).unwrap();
            let error = Kept::read(dir.path()).unwrap_err().to_string();
            assert!(error.contains("remove it to begin a new stage"), "{error}");
        }
    }

    #[test]
    fn a_stage_is_mode_and_table_and_in_a_split_the_share() {
        let of = |mode, share, domain| Stage::of(&router(mode, share, domain), Timestamp::now());
        assert!(of(Mode::Shadow, 0.1, "a.org").is_like(&of(Mode::Shadow, 0.2, "a.org")));
        assert!(!of(Mode::Split, 0.1, "a.org").is_like(&of(Mode::Split, 0.2, "a.org")));
        assert!(!of(Mode::Split, 0.1, "a.org").is_like(&of(Mode::Split, 0.1, "b.org")));
        assert!(!of(Mode::Split, 0.1, "a.org").is_like(&of(Mode::Shadow, 0.1, "a.org")));
    }
}
