//! Evidence as a sequence of groups of entries, which a snapshot writes and reads without all rows in memory at once.
//!
//! Owns: the division of the map into groups, and the threads that read and add them.
//!
//! Invariants: the groups together are the part of an image that is in the map, in the same order. Entries of one group
//! are in no other.
//!
//! Must not know: how a group becomes bytes.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::evidence_snapshot::{EntryAddress, EvidenceSnapshot, FADED};
use super::host_signal_slots::SignalId;
use super::{Evidence, Key};
use crate::evidence::daily_block_counts::{DAYS_KEPT, day_number};
use crate::evidence::evidence_snapshot::{Absorber, CombineMode, DayRow};
use fetchwise_types::registry::Registry;
use fetchwise_types::time::Timestamp;

/// Number of entries of a group: its rows stay in a core's cache.
pub(crate) const GROUP_ENTRIES: usize = 4096;
/// Number of entries that are prefetched together.
const AHEAD: usize = 16;

impl Evidence {
    /// Returns an image of everything that is not in the map, and the results of `f` for the groups of the map's
    /// entries, in order. The fetchers and signals of the image are those of all groups; a group has only the
    /// fetchers that occur in it. Cost: a pass over all entries, on `threads` threads.
    pub(crate) fn image_in_groups<T: Send>(
        &self,
        registry: &Registry,
        as_of: Timestamp,
        seen: &[String],
        threads: usize,
        f: impl Fn(&EvidenceSnapshot) -> T + Sync,
    ) -> (EvidenceSnapshot, Vec<T>) {
        let mut image = EvidenceSnapshot { decay: Some(self.decay()), as_of, ..EvidenceSnapshot::default() };
        let places = self.add_signals(&mut image);
        self.add_fixed(&mut image);
        let mut keys: Vec<u64> = self.entries.keys(&self.guard()).copied().collect();
        keys.sort_unstable();
        let groups: Vec<&[u64]> = keys.chunks(GROUP_ENTRIES).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            let (mut done, mut names) = (Vec::new(), BTreeSet::new());
            let mut group = EvidenceSnapshot { decay: image.decay, as_of, ..EvidenceSnapshot::default() };
            // Relaxed: each index is taken once, and what it stands for does not change.
            while let Some((index, keys)) =
                Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|index| Some((index, groups.get(index)?)))
            {
                self.read_group(&mut group, keys, &places);
                group.name_fetchers(registry, &[]);
                names.extend(group.fetchers.iter().cloned());
                done.push((index, f(&group)));
            }
            (done, names)
        };
        let mut results = Vec::new();
        let mut names: BTreeSet<String> = seen.iter().cloned().collect();
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads.min(groups.len())).map(|_| scope.spawn(work)).collect();
            let mut all = vec![work()];
            for other in others {
                match other.join() {
                    Ok(part) => all.push(part),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            for (done, found) in all {
                results.extend(done);
                names.extend(found);
            }
        });
        results.sort_unstable_by_key(|(index, _)| *index);
        image.days_since = self.days_since().filter(|since| day_number(*since).is_none_or(|day| day >= oldest(as_of)));
        image.name_fetchers(registry, &Vec::from_iter(names));
        (image, results.into_iter().map(|(_, result)| result).collect())
    }

    /// Replaces the rows of `group` with those of these keys.
    fn read_group(&self, group: &mut EvidenceSnapshot, keys: &[u64], places: &[u32]) {
        group.clear_rows();
        let (down, days_from) = (self.decay().down(group.as_of), oldest(group.as_of));
        let slot = |slot: Option<(SignalId, u16)>| self.slot_row(slot, places);
        let guard = self.guard();
        for keys in keys.chunks(AHEAD) {
            self.touch(keys);
            for &key in keys {
                let Some(entry) = self.entries.get(&key, &guard) else { continue };
                let [[a, b], [c, d]] = [entry.signals.all(), entry.site_signals.all()];
                let address = EntryAddress { kind: EntryAddress::MAP, key };
                group.push(address, entry, [a, b, c, d].map(slot), |total| total * down >= FADED);
                let days = entry.days().all();
                if days.last().is_some_and(|last| last.day >= days_from) {
                    group.days.extend(days.into_iter().map(|day| DayRow { key, day }));
                }
            }
        }
    }

    /// Returns whether an image has an entry of this domain, or of the site of that name.
    pub(crate) fn is_in_image(&self, domain: &str, as_of: Timestamp) -> bool {
        let mut group = EvidenceSnapshot { as_of, ..EvidenceSnapshot::default() };
        self.read_group(&mut group, &[Key::domain(domain).bits()], &[]);
        !group.entries.is_empty()
    }

    /// Adds an image and groups of entries, as [`absorb`](Self::absorb) adds all rows at once. `read` returns the rows
    /// of a group, with the fetchers and signals of the image; `keys` is their number in all groups.
    pub(crate) fn absorb_groups<G: Sync>(
        &self,
        (image, groups, keys): (&EvidenceSnapshot, &[G], usize),
        registry: &Registry,
        present: Timestamp,
        read: impl Fn(&G, &mut EvidenceSnapshot) + Sync,
    ) {
        self.reserve(keys);
        self.absorb(image, registry, present);
        let Some(absorber) = Absorber::new(self, image, registry, CombineMode::Load { present }) else { return };
        let next = AtomicUsize::new(0);
        let work = || {
            let (fetchers, signals) = (image.fetchers.clone(), image.signals.clone());
            let mut rows = EvidenceSnapshot { as_of: image.as_of, fetchers, signals, ..EvidenceSnapshot::default() };
            // Relaxed: as above.
            while let Some(group) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
                rows.clear_rows();
                read(group, &mut rows);
                absorber.add(self, &rows);
            }
        };
        std::thread::scope(|scope| {
            let threads = std::thread::available_parallelism().map_or(1, usize::from).min(groups.len());
            (1..threads).for_each(|_| drop(scope.spawn(work)));
            work();
        });
    }
}

/// Returns the first day that has not expired.
fn oldest(as_of: Timestamp) -> u16 {
    day_number(as_of).unwrap_or(u16::MAX).saturating_sub(DAYS_KEPT - 1)
}
