//! Builder methods that give a selector a persistent journal, and a place for the evidence that it
//! evicts.
//!
//! Must not know: how evicted evidence is stored.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::cold_tier::{keep_evicted, remove_abandoned};
use super::error::JournalError;
use super::store_health::{Operation, StoreHealth};
use super::write::Keeper;
use super::{Journal, JournalOptions, OpenCheck, load};
use crate::selector::{Selector, SelectorBuilder};

impl SelectorBuilder {
    /// Persists evidence and pauses in the directory `dir`, which is created if it does not exist.
    /// [`build`](SelectorBuilder::build) opens the journal there, loads all of it, including pauses
    /// of links and hosts, and records from then on. Evidence beyond
    /// [`max_keys`](SelectorBuilder::max_keys) goes to disk there.
    /// [`Selector::close`](crate::Selector::close) writes and syncs what is left; so does dropping
    /// the selector, without a report. Both take longer with `max_keys`: see [`Journal::close`]. To
    /// open a journal with options, or to wait until attempts are on disk, open a [`Journal`] and
    /// pass it to [`sink`](SelectorBuilder::sink).
    ///
    /// ```
    /// use fetchwise::Selector;
    /// use fetchwise::fetch_result::Outcome;
    /// use fetchwise::visit::Step;
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path();
    /// let url = url::Url::parse("https://example.org/").unwrap();
    /// let selector = Selector::builder().journal(dir).without_pace().build()?;
    /// let mut visit = selector.visit(&url)?;
    /// while let Step::Fetch(fetch) = visit.next() {
    ///     visit.report(fetch, Outcome::Http(503));
    /// }
    /// drop(visit);
    /// selector.close()?;
    ///
    /// let again = Selector::builder().journal(dir).build()?;
    /// assert!(again.link_state("https://example.org/").paused_until.is_some());
    /// # Ok::<(), fetchwise::Error>(())
    /// ```
    #[must_use]
    pub fn journal(self, dir: impl Into<PathBuf>) -> Self {
        let dir = dir.into();
        self.opened_by(move |selector| {
            // `load` reads everything right after the open, so that the open need only check the
            // tail.
            let (journal, _) =
                Journal::open(&dir, JournalOptions::default().check(OpenCheck::Tail))?;
            keep_for((&dir, journal.store_health(), journal.keeper()), selector)?;
            let loaded = load(&dir, selector, selector.now())?;
            journal.register_fetchers(selector, &loaded.registered)?;
            let journal = Arc::new(journal);
            selector.keep_paces(Box::new(Arc::clone(&journal)));
            selector.set_sink(Box::new(Arc::clone(&journal)));
            selector
                .set_on_close(move || Ok(Arc::into_inner(journal).map_or(Ok(()), Journal::close)?));
            Ok(())
        })
    }

    /// Keeps the evidence that [`max_keys`](SelectorBuilder::max_keys) evicts on disk, in a folder
    /// `cold-0` of the journal's directory. Without this it is forgotten. Load the journal into the
    /// selector afterwards: the folder is emptied, and the load fills it again, from the last
    /// [checkpoint](super::maintenance::checkpoint()) if there is one.
    /// [`journal`](SelectorBuilder::journal) does both. [`Journal::close`] makes the next
    /// checkpoint.
    ///
    /// Without a limit on keys it does nothing.
    #[must_use]
    pub fn keep_evicted(self, journal: &Journal) -> Self {
        let (dir, health) = (journal.dir().to_owned(), Arc::clone(journal.store_health()));
        let keeper = Arc::clone(journal.keeper());
        self.opened_by(move |selector| Ok(keep_for((&dir, &health, &keeper), selector)?))
    }

    /// Does the same for a selector that only reads the journal in `dir`, which another process may
    /// have open. Its folder, the next that is free, goes with the selector. If none can be made
    /// there, what is evicted is forgotten, and an event of `tracing` says why.
    ///
    /// ```
    /// use fetchwise::Selector;
    /// use fetchwise::journal;
    /// use fetchwise::time::Timestamp;
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path();
    /// # Selector::builder().journal(dir).build()?.close()?;
    /// let reader = Selector::builder().max_keys(10_000).keep_evicted_in(dir).build()?;
    /// journal::load(dir, &reader, Timestamp::now())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn keep_evicted_in(self, dir: impl Into<PathBuf>) -> Self {
        let dir = dir.into();
        self.opened_by(move |selector| {
            // A directory that does not exist has no log either, and readers make none.
            if dir.is_dir()
                && let Err(error) = keep_evicted(&dir, selector.learned(), &Arc::default())
            {
                crate::trace::cold_tier_failed(Operation::Write.name(), &error);
            }
            Ok(())
        })
    }
}

/// Keeps what `selector` evicts in the data directory `dir` of a journal, and has the journal make
/// a checkpoint when it is closed.
fn keep_for(
    (dir, health, keeper): (&Path, &Arc<StoreHealth>, &Keeper),
    selector: &Selector,
) -> Result<(), JournalError> {
    let learned = selector.learned();
    keep_evicted(dir, learned, health)?;
    if let Some(keys) = learned.max_keys() {
        remove_abandoned(dir);
        if let Ok(like) = learned.empty_copy_within(keys) {
            // With several selectors it is that of the first.
            let _ = keeper.set((like, Arc::clone(selector.clock())));
        }
    }
    Ok(())
}
