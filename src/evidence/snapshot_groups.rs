//! Evidence as a sequence of groups of entries, which a snapshot writes and reads without all rows
//! in memory at once.
//!
//! Owns: the division of the map into groups, and the threads that read and add them.
//!
//! Invariants: the groups together are the part of an image that has a key, in the same order.
//! Entries of one group are in no other.
//!
//! Must not know: how a group becomes bytes.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::evidence_snapshot::{Absorber, CombineMode, EvidenceSnapshot, FADED, RowReader, oldest};
use super::{Evidence, Key};
use crate::evidence::daily_block_counts::day_number;
use fetchwise_types::registry::Registry;
use fetchwise_types::time::Timestamp;

/// Number of entries of a group: its rows stay in a core's cache.
pub(crate) const GROUP_ENTRIES: usize = 4096;
/// Number of entries that are prefetched together.
const AHEAD: usize = 16;

impl Evidence {
    /// Returns an image of everything that has no key, and the results of `f` for the groups of the
    /// entries that have one, in order. The fetchers and signals of the image are those of all
    /// groups; a group has only the fetchers that occur in it. Cost: a pass over all entries, on
    /// `threads` threads, or on one if evicted entries are kept.
    pub(crate) fn image_in_groups<T: Send>(
        &self,
        registry: &Registry,
        as_of: Timestamp,
        seen: &[String],
        threads: usize,
        f: impl Fn(&EvidenceSnapshot) -> T + Sync,
    ) -> (EvidenceSnapshot, Vec<T>) {
        let mut image =
            EvidenceSnapshot { decay: Some(self.decay()), as_of, ..EvidenceSnapshot::default() };
        let places = self.add_signals(&mut image);
        self.add_fixed(&mut image);
        let rows = RowReader {
            places,
            down: self.decay().down(as_of),
            days_from: oldest(as_of),
            least: FADED,
        };
        let (results, names) = match self.keeps_evicted() {
            false => self.groups_of_memory(registry, (&image, &rows), threads, f),
            true => self.groups_in_turn(registry, (&image, &rows), f),
        };
        image.days_since = self
            .days_since()
            .filter(|since| day_number(*since).is_none_or(|day| day >= rows.days_from));
        let names = seen.iter().cloned().chain(names).collect::<BTreeSet<String>>();
        image.name_fetchers(registry, &Vec::from_iter(names));
        (image, results)
    }

    /// Returns the results for the groups of all entries, on one thread: entries that left memory
    /// are read in the order of their keys.
    fn groups_in_turn<T>(
        &self,
        registry: &Registry,
        (image, rows): (&EvidenceSnapshot, &RowReader),
        f: impl Fn(&EvidenceSnapshot) -> T,
    ) -> (Vec<T>, BTreeSet<String>) {
        let (mut results, mut names, mut keys) = (Vec::new(), BTreeSet::new(), 0);
        let mut group = EvidenceSnapshot {
            decay: image.decay,
            as_of: image.as_of,
            ..EvidenceSnapshot::default()
        };
        let mut end = |group: &mut EvidenceSnapshot| {
            group.name_fetchers(registry, &[]);
            names.extend(group.fetchers.iter().cloned());
            results.push(f(group));
            group.clear_rows();
        };
        self.each_entry(&mut |key, entry| {
            rows.push(self, &mut group, (key, entry));
            keys += 1;
            if keys % GROUP_ENTRIES == 0 {
                end(&mut group);
            }
        });
        if keys % GROUP_ENTRIES != 0 {
            end(&mut group);
        }
        (results, names)
    }

    /// Returns the results for the groups of the entries in memory.
    fn groups_of_memory<T: Send>(
        &self,
        registry: &Registry,
        (image, rows): (&EvidenceSnapshot, &RowReader),
        threads: usize,
        f: impl Fn(&EvidenceSnapshot) -> T + Sync,
    ) -> (Vec<T>, BTreeSet<String>) {
        let mut keys: Vec<u64> = self.entries.keys(&self.guard()).copied().collect();
        keys.sort_unstable();
        let groups: Vec<&[u64]> = keys.chunks(GROUP_ENTRIES).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            let (mut done, mut names) = (Vec::new(), BTreeSet::new());
            let mut group = EvidenceSnapshot {
                decay: image.decay,
                as_of: image.as_of,
                ..EvidenceSnapshot::default()
            };
            // Relaxed: each index is taken once, and what it stands for does not change.
            while let Some((index, keys)) = Some(next.fetch_add(1, Ordering::Relaxed))
                .and_then(|index| Some((index, groups.get(index)?)))
            {
                self.read_group(&mut group, keys, rows);
                group.name_fetchers(registry, &[]);
                names.extend(group.fetchers.iter().cloned());
                done.push((index, f(&group)));
            }
            (done, names)
        };
        let mut results = Vec::new();
        let mut names = BTreeSet::new();
        std::thread::scope(|scope| {
            let others: Vec<_> =
                (1..threads.min(groups.len())).map(|_| scope.spawn(work)).collect();
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
        (results.into_iter().map(|(_, result)| result).collect(), names)
    }

    /// Replaces the rows of `group` with those of these keys, which are in memory.
    fn read_group(&self, group: &mut EvidenceSnapshot, keys: &[u64], rows: &RowReader) {
        group.clear_rows();
        let guard = self.guard();
        for keys in keys.chunks(AHEAD) {
            self.touch(keys);
            for &key in keys {
                if let Some(entry) = self.entries.get(&key, &guard) {
                    rows.push(self, group, (key, entry));
                }
            }
        }
    }

    /// Returns whether an image has an entry of this domain, or of the site of that name.
    pub(crate) fn is_in_image(&self, domain: &str, as_of: Timestamp) -> bool {
        let (mut image, key) = (EvidenceSnapshot::default(), Key::domain(domain).bits());
        let down = self.decay().down(as_of);
        let rows = RowReader { places: Vec::new(), down, days_from: oldest(as_of), least: FADED };
        self.peek(key, |entry| rows.push(self, &mut image, (key, entry)));
        !image.entries.is_empty()
    }

    /// Adds an image and groups of entries, as [`absorb`](Self::absorb) adds all rows at once.
    /// `read` returns the rows of a group, with the fetchers and signals of the image; `keys` is
    /// their number in all groups.
    pub(crate) fn absorb_groups<G: Sync>(
        &self,
        (image, groups, keys): (&EvidenceSnapshot, &[G], usize),
        registry: &Registry,
        present: Timestamp,
        read: impl Fn(&G, &mut EvidenceSnapshot) + Sync,
    ) {
        self.reserve(keys);
        self.absorb(image, registry, present);
        let Some(absorber) = Absorber::new(self, image, registry, CombineMode::Load { present })
        else {
            return;
        };
        let next = AtomicUsize::new(0);
        let work = || {
            let (fetchers, signals) = (image.fetchers.clone(), image.signals.clone());
            let mut rows = EvidenceSnapshot {
                as_of: image.as_of,
                fetchers,
                signals,
                ..EvidenceSnapshot::default()
            };
            // Relaxed: as above.
            while let Some(group) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
                rows.clear_rows();
                read(group, &mut rows);
                absorber.add(self, &rows);
            }
        };
        std::thread::scope(|scope| {
            let threads =
                std::thread::available_parallelism().map_or(1, usize::from).min(groups.len());
            (1..threads).for_each(|_| drop(scope.spawn(work)));
            work();
        });
    }
}
