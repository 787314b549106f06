//! Import of attempts as JSON lines.
//!
//! Owns: which attempts of an input are new, and learning from them as from a crawl.
//!
//! Invariants: an attempt is appended at most once, by its id, and never if it is older than the
//! last compaction. An invalid line changes nothing, and neither does another attempt with a known
//! id, which is an error.
//!
//! Must not know: where lines come from, and how results are reported.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::path::Path;

use uuid::Uuid;

use super::{AttemptContent, Journal, JournalError, attempt_contents, maintenance};
use crate::attempt::Attempt;
use crate::attempt::bounds::Unrecordable;
use crate::attempt::json::{ImportError, MAX_LINE_BYTES, Notes, from_json_line};
use crate::rfc3339;
use crate::selector::Selector;
use crate::time::Timestamp;

/// An import in progress. It holds the ids of all attempts in the log, with eight bytes of what
/// each says.
///
/// ```
/// use fetchwise::journal::{Import, Journal, JournalOptions};
/// use fetchwise::selector::Selector;
/// use fetchwise::time::Timestamp;
///
/// # let dir = tempfile::tempdir().unwrap();
/// let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
/// let mut import = Import::begin(dir.path(), Selector::builder().build().unwrap()).unwrap();
/// let line = r#"{"url": "https://example.org/", "fetcher": "playwright", "success": true, "attempted_at": 1763650000123}"#;
/// let now = Timestamp::now();
/// assert!(import.take_line(line, &journal, now).unwrap().new.is_some());
/// assert!(import.take_line(line, &journal, now).unwrap().new.is_none());
/// assert!(import.take_line("nonsense", &journal, now).is_err());
/// ```
#[derive(Debug)]
pub struct Import<L> {
    learner: L,
    known: HashMap<Uuid, AttemptContent>,
    cutoff: Option<Timestamp>,
}

/// The result of a valid line.
#[derive(Debug, Default)]
pub struct ImportedLine {
    /// The attempt as it was appended; `None` if the log or an earlier line already had it.
    pub new: Option<Attempt>,
    /// What the reader noticed about the line.
    pub notes: Notes,
}

/// The reason for which a line was not imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportLineError {
    /// The line is longer than [`MAX_LINE_BYTES`].
    #[error("longer than {MAX_LINE_BYTES} bytes")]
    TooLong,
    /// The line is not an attempt.
    #[error(transparent)]
    Invalid(#[from] ImportError),
    /// The log, or an earlier line, has another attempt with the same id.
    #[error("another attempt has the id {id}: give each attempt its own id, or none")]
    IdTaken {
        /// The id.
        id: Uuid,
    },
    /// The log cannot record the attempt.
    #[error(transparent)]
    Unrecordable(#[from] Unrecordable),
    /// The attempt is from before the last compaction, so its effect may be in a snapshot already.
    #[error("made before {}, when attempts were already compacted: a snapshot may contain it", rfc3339::format(*cutoff))]
    BeforeCompaction {
        /// The end of the compacted time.
        cutoff: Timestamp,
    },
    /// The log refused the attempt. Later lines will probably fail, too.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl<L: Borrow<Selector>> Import<L> {
    /// Reads the ids of all attempts in `dir`, whose writes must have been flushed. `learner` must
    /// have [loaded](super::load) `dir`: it gives new attempts the same tags as in a crawl, and
    /// observes them. Time and memory are linear in the number of attempts.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn begin(dir: &Path, learner: L) -> Result<Self, JournalError> {
        let mut known = HashMap::new();
        attempt_contents(dir, |id, content| {
            known.entry(id).or_insert(content);
        })?;
        Ok(Self { learner, known, cutoff: maintenance::cutoff(dir)? })
    }

    /// Imports the attempt of a line of JSON, as of `now`, into `journal`.
    ///
    /// # Errors
    /// When the line is invalid, or when the log refuses the attempt.
    pub fn take_line(
        &mut self,
        line: &str,
        journal: &Journal,
        now: Timestamp,
    ) -> Result<ImportedLine, ImportLineError> {
        if line.len() > MAX_LINE_BYTES {
            return Err(ImportLineError::TooLong);
        }
        let (attempt, notes) = from_json_line(line, now)?;
        let has_time = !notes.clamped && !notes.id_of_content;
        Ok(ImportedLine { new: self.take_at(attempt, has_time, journal)?, notes })
    }

    /// Imports an attempt into `journal`. Returns it as it was appended; `None` if it was known.
    ///
    /// # Errors
    /// When another attempt has its id, when it is from before the last compaction, or when the log
    /// refuses it.
    pub fn take(
        &mut self,
        attempt: Attempt,
        journal: &Journal,
    ) -> Result<Option<Attempt>, ImportLineError> {
        self.take_at(attempt, true, journal)
    }

    /// Imports an attempt. Without `has_time`, its time tells nothing about whether it is known.
    fn take_at(
        &mut self,
        mut attempt: Attempt,
        has_time: bool,
        journal: &Journal,
    ) -> Result<Option<Attempt>, ImportLineError> {
        let content = AttemptContent::of(&journal.recorded(&attempt))?;
        match self.known.get(&attempt.id) {
            Some(known)
                if known.is_same(content) || !has_time && known.is_same_at_any_time(content) =>
            {
                return Ok(None);
            }
            Some(_) => return Err(ImportLineError::IdTaken { id: attempt.id }),
            None => {}
        }
        if let Some(cutoff) = self.cutoff.filter(|cutoff| attempt.attempted_at < *cutoff) {
            return Err(ImportLineError::BeforeCompaction { cutoff });
        }
        self.known.insert(attempt.id, content);
        self.learner.borrow().tag(&mut attempt);
        journal.append_attempt(&attempt)?;
        self.learner.borrow().observe(&attempt);
        Ok(Some(attempt))
    }
}
