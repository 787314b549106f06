//! Import and export of attempts as JSON lines, in batches, as the program's commands `import` and
//! `export` do it.
//!
//! Owns: the counts of an import, and the lines that it could not use.
//!
//! Must not know: where the lines come from, and which attempts are new, which the library's import
//! decides.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use fetchwise::attempt::Attempt;
use fetchwise::attempt::json::to_json_line;
use fetchwise::journal::{
    self, Entry, ImportLineError, ImportedLine, Journal, JournalError, LogError, load, replay,
};
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;

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
    lines: journal::Import<Selector>,
    number: u64,
    /// The counts so far.
    pub summary: Summary,
}

impl Import {
    /// Reads the attempts of the journal in `dir`. Its writes have to be flushed first. Time and
    /// memory are linear in the number of attempts.
    pub fn begin(dir: &Path) -> Result<Self, JournalError> {
        let now = Timestamp::now();
        let learner = Selector::builder().without_pace().around(now).max_keys(None).build();
        let learner = learner.map_err(|error| LogError::Invalid(error.to_string()))?;
        load(dir, &learner, now)?;
        Ok(Self {
            lines: journal::Import::begin(dir, learner)?,
            number: 0,
            summary: Summary::default(),
        })
    }

    /// Imports the next items into the journal; `selector` observes them at once.
    pub fn take(
        &mut self,
        batch: Vec<Item>,
        log: &Journal,
        selector: Option<&Selector>,
    ) -> Result<(), JournalError> {
        let now = Timestamp::date();
        for item in batch {
            self.number += 1;
            let taken = match item {
                Item::Text(text) if text.trim().is_empty() => continue,
                Item::Text(text) => self.lines.take_line(&text, log, now),
                Item::Made(attempt) => self
                    .lines
                    .take(*attempt, log)
                    .map(|new| ImportedLine { new, ..ImportedLine::default() }),
            };
            self.summary.lines += 1;
            match taken {
                Ok(line) => self.count(line, selector),
                Err(ImportLineError::Journal(error)) => return Err(error),
                Err(error) => self.fail(error.to_string()),
            }
        }
        Ok(())
    }

    fn count(&mut self, line: ImportedLine, selector: Option<&Selector>) {
        self.summary.unknown_fields.extend(line.notes.unknown_fields);
        let Some(attempt) = line.new else {
            self.summary.duplicates += 1;
            return;
        };
        if let Some(selector) = selector {
            selector.observe(&attempt);
        }
        self.summary.imported += 1;
        self.summary.clamped += u64::from(line.notes.clamped);
    }

    fn fail(&mut self, error: String) {
        self.summary.failed += 1;
        if self.summary.errors.len() < MAX_NAMED {
            self.summary.errors.push((self.number, error));
        }
    }
}

/// Passes the attempts in `dir` to `write` as JSON lines, in chunks, and empties the text after
/// each chunk. Returns the number of attempts, or the first error of `write`, which is not called
/// again after it. A directory that is not there is an error: a name with a slip would otherwise be
/// a log without attempts.
pub fn export<E>(
    dir: &Path,
    mut write: impl FnMut(&str) -> Result<(), E>,
) -> Result<Result<u64, E>, JournalError> {
    let missing =
        |source| LogError::Io { action: "read", path: dir.to_owned(), source: Arc::new(source) };
    std::fs::read_dir(dir).map_err(missing)?;
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
