//! The data directory that `import` writes, and the fleet that it notifies.
//!
//! Must not know: what is imported.

use std::path::PathBuf;
use std::sync::Arc;

use super::ImportArgs;
use crate::commands::fetch::build_crawler::hashing;
use crate::setup::settings::Settings;
use crate::terminal::exit::Failure;
use crate::terminal::warnings::warn_torn_tail;
use fetchwise::journal::{Journal, JournalOptions, OpenCheck, load};
use fetchwise::selector::Selector;

/// A data directory, open for writing.
pub(super) struct Directory {
    pub(super) dir: PathBuf,
    pub(super) journal: Arc<Journal>,
    /// What the directory has taught so far.
    pub(super) selector: Selector,
    part: Option<crate::commands::fleet::FleetSession>,
}

impl Directory {
    /// Opens the directory, and joins the fleet if the settings name one.
    pub(super) fn open(args: &ImportArgs, settings: &Settings) -> Result<Self, Failure> {
        let dir = settings.data_dir()?;
        // The later scan of all ids reads everything, so the open need not.
        let (journal, recovery) = Journal::open(
            &dir,
            hashing(JournalOptions::default(), settings).check(OpenCheck::Tail),
        )?;
        warn_torn_tail(recovery.torn.as_ref());
        let journal = Arc::new(journal);
        let part = crate::commands::fleet::open_session(settings, &args.fleet, &journal)?;
        let selector = settings.empty_selector()?;
        load(&dir, &selector, settings.clock.now())?;
        Ok(Self { dir, journal, selector, part })
    }

    /// Closes the directory after everything is published, and takes a snapshot if one is due.
    /// Returns whether the fleet was notified of everything; none without a fleet.
    pub(super) fn close(self, settings: &Settings) -> Result<Option<bool>, Failure> {
        let told = self.part.map(crate::commands::fleet::FleetSession::end);
        match Arc::try_unwrap(self.journal) {
            Ok(journal) => journal.close()?,
            // A task that was not awaited releases it in a moment; flushing here loses nothing.
            Err(journal) => journal.flush().wait().map_err(Failure::failed)?,
        }
        settings.snapshot_if_due(&self.dir);
        Ok(told)
    }
}
