//! Builder method that gives a selector a persistent journal.
//!
//! It opens the journal, loads what is in it and records into it from then on.

use std::path::PathBuf;
use std::sync::Arc;

use super::cold_tier::keep_evicted_for;
use super::{Journal, JournalOptions, OpenCheck, load};
use crate::selector::SelectorBuilder;

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
            keep_evicted_for(selector, &journal)?;
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
}
