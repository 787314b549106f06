//! Import and export of attempts as JSON lines, as the program's commands `import` and `export` do it.
//!
//! Invariants: an attempt is appended at most once, by its id, and never when it is older than the last compaction.
//! Must not know: where the lines come from.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;

use fetchwise::attempt::Attempt;
use fetchwise::attempt::json::{ImportError, MAX_LINE_BYTES, Notes, from_json_line, to_json_line};
use fetchwise::journal::{Entry, Journal, JournalError, LogError, ids, load, maintenance, replay};
use fetchwise::rfc3339;
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;
use uuid::Uuid;

/// Bytes of text per write.
const CHUNK: usize = 1 << 20;
/// Maximum number of unusable lines that are named. Further ones are only counted.
const MAX_NAMED: usize = 1000;

/// The result of an import.
#[derive(Clone, Default)]
pub struct Summary {
    /// Lines that were not blank.
    pub lines: u64,
    /// Attempts that were appended to the journal.
    pub imported: u64,
    /// Attempts that the journal had already.
    pub duplicates: u64,
    /// Lines that cannot be used.
    pub failed: u64,
    /// Attempts whose time was in the future and was set to now.
    pub clamped: u64,
    /// Names of fields that were ignored.
    pub unknown_fields: BTreeSet<String>,
    /// Line numbers, from 1, and the reasons.
    pub errors: Vec<(u64, String)>,
}

/// One item of the input.
pub enum Item {
    /// A line of JSON.
    Text(String),
    /// An existing attempt.
    Made(Box<Attempt>),
}

/// An import in progress.
pub struct Import {
    /// Knows the journal, so that attempts get the same tags as in a crawl.
    learner: Selector,
    known: HashSet<Uuid>,
    cutoff: Option<Timestamp>,
    number: u64,
    /// The counts so far.
    pub summary: Summary,
}

impl Import {
    /// Reads the attempts of the journal in `dir`. Its writes have to be flushed first. Time and memory are linear
    /// in the number of attempts.
    pub fn begin(dir: &Path) -> Result<Self, JournalError> {
        let mut known = HashSet::new();
        ids(dir, |id| {
            known.insert(id);
        })?;
        let now = Timestamp::now();
        let learner = Selector::builder().around(now).max_keys(None).build();
        let learner = learner.map_err(|error| LogError::Invalid(error.to_string()))?;
        load(dir, &learner, now)?;
        Ok(Self { learner, known, cutoff: maintenance::cutoff(dir)?, number: 0, summary: Summary::default() })
    }

    /// Imports the next items into the journal; `selector` observes them at once.
    pub fn take(&mut self, batch: Vec<Item>, log: &Journal, selector: Option<&Selector>) -> Result<(), JournalError> {
        let now = Timestamp::now();
        for item in batch {
            self.number += 1;
            let Some((mut attempt, notes)) = self.read(item, now) else { continue };
            self.known.insert(attempt.id);
            self.learner.tag(&mut attempt);
            log.append_attempt(&attempt)?;
            self.learner.observe(&attempt);
            if let Some(selector) = selector {
                selector.observe(&attempt);
            }
            self.summary.imported += 1;
            self.summary.clamped += u64::from(notes.clamped);
        }
        Ok(())
    }

    /// Returns the attempt of an item, if the item is a valid and new attempt.
    fn read(&mut self, item: Item, now: Timestamp) -> Option<(Attempt, Notes)> {
        let read: Result<(Attempt, Notes), ImportError> = match item {
            Item::Made(attempt) => Ok((*attempt, Notes::default())),
            Item::Text(text) if text.trim().is_empty() => return None,
            Item::Text(text) if text.len() > MAX_LINE_BYTES => {
                self.summary.lines += 1;
                return self.fail(format!("longer than {MAX_LINE_BYTES} bytes"));
            }
            Item::Text(text) => from_json_line(&text, now),
        };
        self.summary.lines += 1;
        let (attempt, mut notes) = match read {
            Ok(read) => read,
            Err(error) => return self.fail(error.to_string()),
        };
        self.summary.unknown_fields.extend(std::mem::take(&mut notes.unknown_fields));
        if self.known.contains(&attempt.id) {
            self.summary.duplicates += 1;
            return None;
        }
        if let Some(cutoff) = self.cutoff.filter(|cutoff| attempt.attempted_at < *cutoff) {
            let cutoff = rfc3339::format(cutoff);
            return self.fail(format!(
                "made before {cutoff}, up to where attempts were compacted: a snapshot may have it already"
            ));
        }
        Some((attempt, notes))
    }

    fn fail<T>(&mut self, error: String) -> Option<T> {
        self.summary.failed += 1;
        if self.summary.errors.len() < MAX_NAMED {
            self.summary.errors.push((self.number, error));
        }
        None
    }
}

/// Passes the attempts in `dir` to `write` as JSON lines, in chunks, and empties the text after each chunk. Returns the
/// number of attempts, or the first error of `write`, which is not called again after it.
pub fn export<E>(dir: &Path, mut write: impl FnMut(&str) -> Result<(), E>) -> Result<Result<u64, E>, JournalError> {
    let (mut text, mut count, mut failed) = (String::new(), 0, None);
    let replayed = replay(dir, |_, entry| {
        let (Entry::Attempt(attempt), None) = (entry, &failed) else { return };
        count += 1;
        text.push_str(&to_json_line(&attempt));
        text.push('\n');
        if text.len() >= CHUNK {
            failed = write(&text).err();
            text.clear();
        }
    });
    // Hand on the readable part before reporting the damage of the log.
    if failed.is_none() && !text.is_empty() {
        failed = write(&text).err();
    }
    replayed?;
    Ok(failed.map_or(Ok(count), Err))
}
