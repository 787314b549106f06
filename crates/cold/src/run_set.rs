//! The runs of a store, in two layers: young ones have keys of every part, and each other run has
//! keys of one part. A part is an eighth of all keys, by their top bits.
//!
//! Owns: which run counts before which, and which are merged next.
//!
//! Invariants: young runs are newer than the runs of parts, so the oldest of them are merged into
//! parts first. Runs of a part are merged with those of the same part only, so a merge of large
//! runs needs room for one part. Runs that a manifest names are not merged with newer ones: the
//! manifest can then name what they were merged into, and the files can go.
//!
//! Must not know: files, and when a manifest is published.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use crate::merge_policy::{FANOUT, due_merge};
use crate::run::{Run, RunId};
use crate::run_part::{PARTS, part_of};

/// A run with its part; none for a young run.
pub(crate) type Placed = (Option<usize>, Arc<Run>);

/// The runs of a store.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunSet {
    /// The runs of each part, from the oldest to the newest.
    parts: [Vec<Arc<Run>>; PARTS],
    /// The runs with keys of all parts, from the oldest to the newest.
    young: Vec<Arc<Run>>,
}

/// A merge that is due.
#[derive(Debug)]
pub(crate) struct DueMerge {
    /// From the oldest to the newest.
    pub(crate) sources: Vec<Arc<Run>>,
    /// Whether there are older runs than the sources, for each part.
    pub(crate) has_older: [bool; PARTS],
}

impl RunSet {
    /// Returns all runs, those of parts first, and in each layer from the oldest to the newest.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Run>> {
        self.parts.iter().flatten().chain(&self.young)
    }

    /// Returns the runs that may have a key, from the newest to the oldest.
    pub(crate) fn of_key(&self, key: u64) -> impl Iterator<Item = &Arc<Run>> {
        let of_part = self.parts.get(part_of(key)).into_iter().flatten();
        self.young.iter().rev().chain(of_part.rev())
    }

    /// Returns all runs so that each comes before the older ones with the same keys.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &Arc<Run>> {
        self.young.iter().rev().chain(self.parts.iter().flat_map(|runs| runs.iter().rev()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    /// Adds a run that is newer than all others with the same keys.
    pub(crate) fn push(&mut self, (part, run): Placed) {
        match part.and_then(|part| self.parts.get_mut(part)) {
            Some(runs) => runs.push(run),
            None => self.young.push(run),
        }
    }

    /// Replaces runs by what they were merged into. `new` takes the place of the first of them if
    /// they are of its part, and is the newest of its part otherwise.
    pub(crate) fn replace(&mut self, old: &[Arc<Run>], new: Vec<Placed>) {
        let is_old = |run: &Arc<Run>| old.iter().any(|of| Arc::ptr_eq(of, run));
        self.young.retain(|run| !is_old(run));
        let mut places = [None; PARTS];
        for (runs, place) in self.parts.iter_mut().zip(&mut places) {
            *place = runs.iter().position(is_old);
            runs.retain(|run| !is_old(run));
        }
        for (part, run) in new {
            let place = part.and_then(|part| places.get(part).copied().flatten());
            match part.and_then(|part| self.parts.get_mut(part)).zip(place) {
                Some((runs, place)) => runs.insert(place.min(runs.len()), run),
                None => self.push((part, run)),
            }
        }
    }

    /// Returns the merge to do next. Runs up to `unit` bytes are in the lowest tier. `pinned` are
    /// the numbers of the runs that a manifest names, and `may_republish` says whether it can name
    /// others instead.
    pub(crate) fn due(
        &self,
        unit: usize,
        pinned: &BTreeSet<u64>,
        may_republish: bool,
    ) -> Option<DueMerge> {
        let kept = |runs: &[Arc<Run>]| {
            runs.iter().take_while(|run| pinned.contains(&run.id.number)).count()
        };
        if self.young.len() >= FANOUT {
            let named = kept(&self.young);
            let end = if named > 0 && may_republish { named } else { self.young.len() };
            let has_older = self.parts.each_ref().map(|runs| !runs.is_empty());
            return Some(DueMerge { sources: self.young[..end].to_vec(), has_older });
        }
        let unit = (unit * FANOUT / PARTS).max(1) as u64;
        self.parts.iter().find_map(|runs| {
            let sizes: Vec<u64> = runs.iter().map(|run| run.id.len).collect();
            let (named, newer) = sizes.split_at(kept(runs));
            let of_named = due_merge(named, unit).filter(|_| may_republish);
            let range: Range<usize> = of_named.or_else(|| {
                due_merge(newer, unit).map(|of| of.start + named.len()..of.end + named.len())
            })?;
            let has_older = [range.start > 0; PARTS];
            Some(DueMerge { sources: runs[range].to_vec(), has_older })
        })
    }

    /// Returns what a manifest says of the runs that `is_named` accepts, and how many of them, the
    /// last ones, are young.
    pub(crate) fn ids(&self, is_named: impl Fn(u64) -> bool) -> (Vec<RunId>, u16) {
        let named = |run: &&Arc<Run>| is_named(run.id.number);
        let young = self.young.iter().filter(named).count();
        (self.all().filter(named).map(|run| run.id).collect(), young as u16)
    }
}
