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
use std::ops::ControlFlow;
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
/// Number of groups for each thread whose results wait for their turn.
const GROUPS_WAITING: usize = 4;

impl Evidence {
    /// Returns an image of everything that has no key, and passes the results of `f` for the groups
    /// of the entries that have one to `sink`, in order. An error of `sink` ends it. The fetchers
    /// and signals of the image are those of all groups and those in `seen`; a group has only the
    /// fetchers that occur in it. Cost: a pass over all entries, on `threads` threads, or on one if
    /// evicted entries are kept. Memory holds a few groups.
    pub(crate) fn image_in_groups<T: Send, E>(
        &self,
        registry: &Registry,
        (as_of, seen): (Timestamp, &[String]),
        threads: usize,
        (f, sink): (impl Fn(&EvidenceSnapshot) -> T + Sync, GroupSink<'_, T, E>),
    ) -> Result<EvidenceSnapshot, E> {
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
        let names = match self.keeps_evicted() {
            false => self.groups_of_memory(registry, (&image, &rows), threads, (f, sink)),
            true => self.groups_in_turn(registry, (&image, &rows), (f, sink)),
        }?;
        image.days_since = self
            .days_since()
            .filter(|since| day_number(*since).is_none_or(|day| day >= rows.days_from));
        let names = seen.iter().cloned().chain(names).collect::<BTreeSet<String>>();
        image.name_fetchers(registry, &Vec::from_iter(names));
        Ok(image)
    }

    /// Passes on the results for the groups of all entries, on one thread: entries that left memory
    /// are read in the order of their keys. Returns the names of their fetchers.
    fn groups_in_turn<T, E>(
        &self,
        registry: &Registry,
        (image, rows): (&EvidenceSnapshot, &RowReader),
        (f, sink): (impl Fn(&EvidenceSnapshot) -> T, GroupSink<'_, T, E>),
    ) -> Result<BTreeSet<String>, E> {
        let (mut names, mut keys, mut ended) = (BTreeSet::new(), 0, Ok(()));
        let mut group = EvidenceSnapshot {
            decay: image.decay,
            as_of: image.as_of,
            ..EvidenceSnapshot::default()
        };
        let mut end = |group: &mut EvidenceSnapshot| {
            group.name_fetchers(registry, &[]);
            names.extend(group.fetchers.iter().cloned());
            let passed = sink(f(group));
            group.clear_rows();
            passed
        };
        self.each_entry(&mut |key, entry| {
            rows.push(self, &mut group, (key, entry));
            keys += 1;
            if keys % GROUP_ENTRIES == 0 {
                ended = end(&mut group);
            }
            if ended.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        ended?;
        if keys % GROUP_ENTRIES != 0 {
            end(&mut group)?;
        }
        Ok(names)
    }

    /// Passes on the results for the groups of the entries in memory. Returns the names of their
    /// fetchers.
    fn groups_of_memory<T: Send, E>(
        &self,
        registry: &Registry,
        (image, rows): (&EvidenceSnapshot, &RowReader),
        threads: usize,
        (f, sink): (impl Fn(&EvidenceSnapshot) -> T + Sync, GroupSink<'_, T, E>),
    ) -> Result<BTreeSet<String>, E> {
        let mut keys: Vec<u64> = self.entries.keys(&self.guard()).copied().collect();
        keys.sort_unstable();
        let groups: Vec<&[u64]> = keys.chunks(GROUP_ENTRIES).collect();
        let threads = threads.max(1);
        let mut names = BTreeSet::new();
        for groups in groups.chunks(threads * GROUPS_WAITING) {
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
            let (mut results, found) = on_threads(threads.min(groups.len()), &work);
            names.extend(found);
            results.sort_unstable_by_key(|(index, _)| *index);
            results.into_iter().try_for_each(|(_, result)| sink(result))?;
        }
        Ok(names)
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
    /// `read` adds the rows of a group to some with the fetchers and signals of the image; `keys`
    /// is their number in all groups. After an error of `read` only a part is added.
    pub(crate) fn absorb_groups<G: Sync, E: Send>(
        &self,
        (image, groups, keys): (&EvidenceSnapshot, &[G], usize),
        registry: &Registry,
        present: Timestamp,
        read: impl Fn(&G, &mut EvidenceSnapshot) -> Result<(), E> + Sync,
    ) -> Result<(), E> {
        self.reserve(keys);
        self.absorb(image, registry, present);
        let Some(absorber) = Absorber::new(self, image, registry, CombineMode::Load { present })
        else {
            return Ok(());
        };
        let next = AtomicUsize::new(0);
        let work = || {
            let mut rows = image.without_rows();
            // Relaxed: as above.
            while let Some(group) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
                rows.clear_rows();
                if let Err(error) = read(group, &mut rows) {
                    // No thread begins another group.
                    next.store(groups.len(), Ordering::Relaxed);
                    return (vec![error], BTreeSet::new());
                }
                absorber.add(self, &rows);
            }
            (Vec::new(), BTreeSet::new())
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(groups.len());
        match on_threads(threads, &work).0.pop() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// Takes the results for groups of entries, in order.
pub(crate) type GroupSink<'s, T, E> = &'s mut dyn FnMut(T) -> Result<(), E>;

/// Does the work on some threads, of which this is one. Returns all results, in no order.
fn on_threads<T: Send>(
    threads: usize,
    work: &(impl Fn() -> (Vec<T>, BTreeSet<String>) + Sync),
) -> (Vec<T>, BTreeSet<String>) {
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut all = work();
        for other in others {
            match other.join() {
                Ok((results, names)) => {
                    all.0.extend(results);
                    all.1.extend(names);
                }
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::Entry;
    use crate::evidence::cold_tier::ColdTier;
    use crate::evidence::decay::Decay;
    use crate::evidence::decayed_counts::RawCounts;
    use crate::evidence::{Group, Level};
    use fetchwise_types::heuristic::files::FileSuffixes;
    use fetchwise_types::heuristic::url::ContentKind;
    use fetchwise_types::registry::FetcherId;

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);
    const GROUPS: usize = 10;

    /// A tier that nothing is evicted to.
    #[derive(Debug)]
    struct EmptyTier;

    impl ColdTier for EmptyTier {
        fn put(&self, _: u64, _: &Entry) -> std::io::Result<()> {
            Ok(())
        }

        fn get(&self, _: u64) -> std::io::Result<Option<Entry>> {
            Ok(None)
        }

        fn each_sorted(
            &self,
            _: &mut dyn FnMut(u64, Entry) -> ControlFlow<()>,
        ) -> std::io::Result<()> {
            Ok(())
        }

        fn as_any(&self) -> &dyn std::any::Any {
            self
        }
    }

    fn evidence(max_keys: Option<usize>) -> Evidence {
        let decay = Decay::new(30.0, NOW).unwrap();
        let evidence = Evidence::new(decay, max_keys, FileSuffixes::default(), false);
        for key in 0..(GROUPS * GROUP_ENTRIES) as u64 {
            let guard = evidence.guard();
            let entry = evidence.entry_or_new(Key(key << 40), NOW, &guard);
            let group = Group::new(Level::Own, ContentKind::Page, 0);
            let raw = RawCounts { total: 1.0, attempts: 1, ..RawCounts::default() };
            entry.claim(group, FetcherId(0)).unwrap().restore(&raw);
        }
        evidence
    }

    /// All groups were in memory at once before the first of them was written.
    #[test]
    fn groups_are_passed_on_before_all_are_made() {
        let registry = Registry::new(Vec::new()).unwrap();
        registry.intern("direct_access");
        let (in_memory, evicting) = (evidence(None), evidence(Some(GROUPS * GROUP_ENTRIES * 2)));
        evicting.keep_evicted_in(Box::new(EmptyTier));
        for (evidence, threads, most) in [(&in_memory, 1, 4), (&in_memory, 2, 8), (&evicting, 2, 1)]
        {
            let (made, mut passed, mut first) = (AtomicUsize::new(0), 0, 0);
            let make = |group: &EvidenceSnapshot| {
                made.fetch_add(1, Ordering::SeqCst);
                group.entries.first().map_or(0, |row| row.address.key)
            };
            let mut sink = |key: u64| {
                let waiting = made.load(Ordering::SeqCst) - passed;
                assert!(waiting <= most, "{waiting} groups wait");
                assert!(passed == 0 || key > first, "in the order of their keys");
                (passed, first) = (passed + 1, key);
                Ok::<(), ()>(())
            };
            let image = evidence.image_in_groups(&registry, (NOW, &[]), threads, (make, &mut sink));
            assert_eq!(image.unwrap().fetchers, ["direct_access"]);
            assert_eq!(passed, GROUPS);
            // An error ends it.
            let made = AtomicUsize::new(0);
            let make = |_: &EvidenceSnapshot| {
                made.fetch_add(1, Ordering::SeqCst);
            };
            let mut refuse = |()| Err(());
            let image =
                evidence.image_in_groups(&registry, (NOW, &[]), threads, (make, &mut refuse));
            assert!(image.is_err() && made.into_inner() <= most);
        }
    }
}
