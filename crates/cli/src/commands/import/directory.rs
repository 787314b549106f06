//! The data directory that is imported into, and the fleet that hears of it.
//!
//! Must not know what is imported.

use std::path::PathBuf;
use std::sync::Arc;

use super::ImportArgs;
use crate::setup::settings::{Settings, say_torn};
use crate::terminal::exit::Failure;
use fetchwise::journal::{Journal, JournalOptions, OpenCheck};

/// A data directory, open for writing.
pub(super) struct Directory {
    pub(super) dir: PathBuf,
    pub(super) journal: Arc<Journal>,
    #[cfg(feature = "fleet")]
    part: Option<crate::commands::fleet::Part>,
}

impl Directory {
    /// Opens it, and joins the fleet that the settings name, if they name one.
    #[cfg_attr(
        not(feature = "fleet"),
        allow(unused_variables, reason = "without the feature there is no fleet to name")
    )]
    pub(super) fn open(args: &ImportArgs, settings: &Settings) -> Result<Self, Failure> {
        let dir = settings.data_dir()?;
        // The pass over all ids that follows reads everything, so the open need not.
        let (journal, recovery) = Journal::open(&dir, JournalOptions::default().check(OpenCheck::Tail))?;
        say_torn(recovery.torn.as_ref());
        let journal = Arc::new(journal);
        #[cfg(feature = "fleet")]
        let part = crate::commands::fleet::part(settings, &args.fleet, &journal)?;
        Ok(Self {
            dir,
            journal,
            #[cfg(feature = "fleet")]
            part,
        })
    }

    /// Says what is left to say, closes it, and takes a snapshot where one is due. Whether the fleet was told of everything; none where
    /// there is none.
    pub(super) fn close(self, settings: &Settings) -> Result<Option<bool>, Failure> {
        #[cfg(feature = "fleet")]
        let told = self.part.map(crate::commands::fleet::Part::end);
        #[cfg(not(feature = "fleet"))]
        let told = None;
        match Arc::try_unwrap(self.journal) {
            Ok(journal) => journal.close()?,
            // Somebody who was not waited for lets go of it in a moment; nothing is lost until then.
            Err(journal) => journal.flush().wait().map_err(Failure::failed)?,
        }
        settings.snapshot_if_due(&self.dir);
        Ok(told)
    }
}
