//! Which links of a run are fetched: those that are new to it and that no earlier run has finished.
//!
//! Invariants: the input and the links that are added to a running crawl pass the same admission,
//! so a link that both name is fetched once. Numbers have no gaps.
//!
//! Must not know: where a link comes from, and where its text is.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::batch::{Batch, Item};
use super::line::{self, host_of};
use super::position::InputPosition;
use crate::frontier::QueuedLink;
use crate::resume::EarlierLinks;
use fetchwise::pipeline::Link;

/// The number of links that are remembered to find duplicates: one more would double the memory of
/// the table.
const MAX_SEEN: usize = (1 << 22) / 8 * 7;

/// The admission of a run, which several threads use.
#[derive(Clone, Debug)]
pub(crate) struct SharedAdmission(Arc<Mutex<Admission>>);

/// The admission of a run.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Hashes of the links that were named.
    seen: HashSet<u64>,
    earlier: EarlierLinks,
    /// A buffer.
    text: String,
    /// The number of the next item in the order of reading.
    number: u64,
    /// The number of links that were added to the running crawl.
    added: u64,
}

impl SharedAdmission {
    /// Returns the admission of a run that leaves out what `earlier` says.
    pub(crate) fn new(earlier: EarlierLinks) -> Self {
        Self(Arc::new(Mutex::new(Admission {
            seen: HashSet::new(),
            earlier,
            text: String::new(),
            number: 0,
            added: 0,
        })))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Admission> {
        // The state is consistent even if a thread panicked with it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Admission {
    /// Adds a link to `batch` unless it is left out, which the batch counts. `keep` stores its text
    /// and returns the offset.
    pub(crate) fn admit(
        &mut self,
        link: &Link,
        place: InputPosition,
        batch: &mut Batch,
        keep: impl FnOnce() -> u64,
    ) {
        match self.is_duplicate(link) {
            true => batch.duplicates += 1,
            false => self.admit_new(link, place, batch, keep),
        }
    }

    /// Adds a link of the running crawl to `batch`. Unlike one of the input, it is left out if it
    /// cannot be remembered: pages that link to each other would be fetched again and again.
    pub(crate) fn admit_added(
        &mut self,
        link: &Link,
        batch: &mut Batch,
        keep: impl FnOnce() -> u64,
    ) {
        if self.seen.len() >= MAX_SEEN || self.is_duplicate(link) {
            return;
        }
        batch.added += 1;
        let place = self.next_added();
        self.admit_new(link, place, batch, keep);
    }

    /// Returns the place of the next added link.
    pub(crate) fn next_added(&mut self) -> InputPosition {
        self.added += 1;
        InputPosition::Added(self.added)
    }

    /// Returns the number of an item that is no link.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number - 1
    }

    /// Forgets what earlier runs have finished: the input has no further link.
    pub(crate) fn forget_earlier(&mut self) {
        self.earlier = EarlierLinks::default();
    }

    fn admit_new(
        &mut self,
        link: &Link,
        place: InputPosition,
        batch: &mut Batch,
        keep: impl FnOnce() -> u64,
    ) {
        if self.earlier.leaves_out(link) {
            batch.left_out += 1;
        } else if self.earlier.skips(link) {
            batch.skipped += 1;
        } else if let Some(offset) = self.earlier.held(place, link) {
            let number = self.next_number();
            batch.items.push(Item::Earlier { number, offset });
        } else {
            let number = self.next_number();
            let link_at = QueuedLink { offset: keep(), line: place.number(), number, refused: 0 };
            batch.items.push(Item::Link { host: host_of(&link.url), link: link_at });
        }
    }

    /// Returns whether the run has named this link before. Only the first links are remembered.
    fn is_duplicate(&mut self, link: &Link) -> bool {
        let hash = line::hash(link, &mut self.text);
        if self.seen.len() < MAX_SEEN { !self.seen.insert(hash) } else { self.seen.contains(&hash) }
    }
}
