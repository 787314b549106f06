//! Evidence as plain columns, for snapshots and for comparing two replays of the same log.
//!
//! Owns: reading all cells into [`EvidenceSnapshot`] and adding an image to evidence.
//!
//! Invariants: rows are sorted by key and fetchers by name, so equal evidence gives equal columns
//! whatever the order of learning. Adding an image keeps what the evidence already has.
//!
//! Must not know: how columns become bytes.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use super::decay::Decay;
use super::entry::{Breaker, Entry, SharedEntry};
use super::{EntryWriter, Evidence, Key};
use crate::evidence::daily_block_counts::{DAYS_KEPT, Day, day_number};
use crate::evidence::decayed_counts::RawCounts;
use crate::evidence::host_signal_counts::{RawSignalCounts, seconds};
use crate::evidence::host_signal_slots::{HostSignalSlots, SignalId, SignalSide};
use fetchwise_types::heuristic::url::ContentKind;
use fetchwise_types::registry::{FetcherId, Registry, canonical};
use fetchwise_types::time::Timestamp;

/// Decayed weight below which an entry has faded: images leave such entries out.
pub(crate) const FADED: f64 = 0.01;

/// Number of entries per thread below which a further thread costs more than it saves.
const MIN_PART: usize = 4096;

/// Largest factor between two scales, as the exponents of [`Decay`] are limited.
const MAX_SCALE: f64 = 1e270;

/// Address of an entry: its hash in the map, or the index of a static entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EntryAddress {
    /// One of the constants below.
    pub(crate) kind: u32,
    /// The hash, or the index among the entries of its kind.
    pub(crate) key: u64,
}

impl EntryAddress {
    pub(super) const GLOBAL: u32 = 0;
    const FLAG: u32 = 1;
    const HINT: u32 = 2;
    const DEPTH: u32 = 3;
    /// The largest value, so that the map's entries sort last.
    pub(crate) const MAP: u32 = 4;
}

/// One cell: group and fetcher packed as in memory, with the fetcher's index in
/// [`EvidenceSnapshot::fetchers`], and its weights.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CellRow {
    pub(crate) tag: u64,
    pub(crate) raw: RawCounts,
}

/// One breaker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BreakerRow {
    /// The fetcher's index in [`EvidenceSnapshot::fetchers`].
    pub(crate) fetcher: u32,
    pub(crate) blocks: u32,
    pub(crate) last: Timestamp,
}

/// A host signal: its index in [`EvidenceSnapshot::signals`] and the day it was last shown.
pub(crate) type SlotRow = Option<(u32, u16)>;

/// One signal and fetcher.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SignalCellRow {
    /// The signal's index in [`EvidenceSnapshot::signals`].
    pub(crate) tag: u32,
    /// The fetcher's index in [`EvidenceSnapshot::fetchers`].
    pub(crate) fetcher: u32,
    pub(crate) is_file: bool,
    pub(crate) raw: RawSignalCounts,
}

/// One entry. Its cells and breakers follow those of the entries before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryRow {
    pub(crate) address: EntryAddress,
    pub(crate) attempts: u32,
    pub(crate) cells: u32,
    pub(crate) breakers: u32,
    /// The signals of the domain's blocks and pages, then those of the site.
    pub(crate) signals: [SlotRow; 4],
    /// The hash of the domain's site; 0 if that is the domain itself, or the key is not a domain.
    pub(crate) site: u64,
}

/// One day of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DayRow {
    /// The domain's hash.
    pub(crate) key: u64,
    pub(crate) day: Day,
}

/// All evidence of one process at one time, as plain columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EvidenceSnapshot {
    /// The scale of the weights; `None` in an image without weights.
    pub(crate) decay: Option<Decay>,
    /// The time at which entries were checked for having faded.
    pub(crate) as_of: Timestamp,
    pub(crate) fetchers: Vec<String>,
    pub(crate) entries: Vec<EntryRow>,
    pub(crate) cells: Vec<CellRow>,
    pub(crate) breakers: Vec<BreakerRow>,
    /// The names of signals, in order, and their cells.
    pub(crate) signals: Vec<String>,
    pub(crate) signal_cells: Vec<SignalCellRow>,
    /// The days of domains, by domain and day, and the time before which attempts may be missing
    /// among them.
    pub(crate) days: Vec<DayRow>,
    pub(crate) days_since: Option<Timestamp>,
}

impl Evidence {
    /// Returns an image of everything that has not faded by `as_of`. Its fetchers are those of its
    /// cells and those in `seen`. Cost: a pass over all entries and a sort.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn image(
        &self,
        registry: &Registry,
        as_of: Timestamp,
        seen: &[String],
    ) -> EvidenceSnapshot {
        self.image_over(registry, as_of, seen, FADED)
    }

    /// Returns an image like [`image`](Self::image), of the entries whose decayed weight is at
    /// least `least`.
    pub(crate) fn image_over(
        &self,
        registry: &Registry,
        as_of: Timestamp,
        seen: &[String],
        least: f64,
    ) -> EvidenceSnapshot {
        let mut image =
            EvidenceSnapshot { decay: Some(self.decay()), as_of, ..EvidenceSnapshot::default() };
        let down = self.decay().down(as_of);
        let places = self.add_signals(&mut image);
        self.add_fixed(&mut image);
        let rows = RowReader { places, down, days_from: oldest(as_of), least };
        self.each_entry(&mut |key, entry| {
            rows.push(self, &mut image, (key, entry));
            ControlFlow::Continue(())
        });
        image.days_since = self
            .days_since()
            .filter(|since| day_number(*since).is_none_or(|day| day >= rows.days_from));
        image.name_fetchers(registry, seen);
        debug_assert_eq!(
            image.entries.iter().map(|row| row.cells).sum::<u32>() as usize,
            image.cells.len()
        );
        debug_assert_eq!(
            image.entries.iter().map(|row| row.breakers).sum::<u32>() as usize,
            image.breakers.len()
        );
        image
    }

    /// Adds the entries that are not in the map.
    pub(super) fn add_fixed(&self, image: &mut EvidenceSnapshot) {
        let fixed = |kind, entries: &[SharedEntry], image: &mut EvidenceSnapshot| {
            for (key, entry) in (0u64..).zip(entries) {
                image.push(EntryAddress { kind, key }, entry, [None; 4], |_| true);
            }
        };
        fixed(EntryAddress::GLOBAL, std::slice::from_ref(&self.global), image);
        fixed(EntryAddress::FLAG, &self.flags, image);
        fixed(EntryAddress::HINT, &self.hints, image);
        fixed(EntryAddress::DEPTH, &self.depths, image);
    }

    /// Returns a slot with its signal's index in an image, given those of all rows.
    pub(super) fn slot_row(&self, slot: Option<(SignalId, u16)>, places: &[u32]) -> SlotRow {
        slot.filter(|(id, _)| self.signals().row(*id).is_some())
            .and_then(|(id, day)| Some((*places.get(id.row_index())?, day)))
    }

    /// Adds the signals and their cells to an image, with the fetchers' ids. Returns the index of
    /// each row's signal in the image.
    pub(super) fn add_signals(&self, image: &mut EvidenceSnapshot) -> Vec<u32> {
        let names = self.signals().names();
        image.signals = names.iter().map(|name| String::from(&**name)).collect();
        image.signals.sort_unstable();
        let place =
            |name: &str| image.signals.partition_point(|other| other.as_str() < name) as u32;
        let places: Vec<u32> = names.iter().map(|name| place(name)).collect();
        for (index, tag) in places.iter().enumerate() {
            self.signals().each_cell(index, |fetcher, kind, cell| {
                let raw = cell.raw();
                if raw != RawSignalCounts::default() {
                    let is_file = kind == ContentKind::File;
                    image.signal_cells.push(SignalCellRow {
                        tag: *tag,
                        fetcher: u32::from(fetcher.0),
                        is_file,
                        raw,
                    });
                }
            });
        }
        places
    }

    /// Returns empty evidence on the same scale, with the same limit. If evicted entries are kept,
    /// there is no limit: it has no place to keep its own.
    pub(crate) fn empty_like(&self) -> Self {
        let max_keys = self.key_limit.max().filter(|_| !self.keeps_evicted());
        Self::new(self.decay(), max_keys, self.suffixes.clone(), false)
    }

    /// Adds other evidence of the same scale and registry.
    pub(crate) fn merge(&self, other: &Self) {
        let add = |to: &Entry, from: &Entry| {
            from.each_cell(|group, fetcher, cell| {
                if let Some(own) = to.claim(group, fetcher) {
                    own.absorb(&cell.raw());
                }
            });
        };
        let all = |to: &[SharedEntry], from: &[SharedEntry]| {
            to.iter().zip(from).for_each(|(to, from)| add(to, from))
        };
        add(&self.global, &other.global);
        all(&self.flags, &other.flags);
        all(&self.hints, &other.hints);
        all(&self.depths, &other.depths);
        let (guard, other_guard) = (self.guard(), other.guard());
        for (key, from) in other.entries.iter(&other_guard) {
            add(&self.entry_or_new(Key(*key), self.decay().landmark(), &guard), from);
        }
        self.shared_version.change();
    }

    /// Adds an image, with its weights converted to this evidence's scale. If half-lives differ,
    /// each weight is the one at the time of the image and decays by the new half-life from then
    /// on. Times after `present` count as `present`.
    pub(crate) fn absorb(&self, image: &EvidenceSnapshot, registry: &Registry, present: Timestamp) {
        self.combine(image, registry, CombineMode::Load { present });
    }

    /// Adds or subtracts an image of another process's evidence, concurrently with all other
    /// operations.
    pub(crate) fn combine(&self, image: &EvidenceSnapshot, registry: &Registry, how: CombineMode) {
        let Some(absorber) = Absorber::new(self, image, registry, how) else { return };
        // One reservation, because each doubling would move every entry.
        if how != CombineMode::Subtract {
            self.reserve(image.entries.len());
        }
        absorber.add_signals(self, image);
        self.signals().update_information(self.decay().down(image.as_of));
        if matches!(how, CombineMode::Load { .. }) {
            self.set_days_since(image.days_since);
        }
        let (mut cells, mut breakers) = (&image.cells[..], &image.breakers[..]);
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            let absorber = &absorber;
            // Parts share no entry, so no thread waits for another.
            for entries in image.entries.chunks(image.entries.len().div_ceil(threads).max(MIN_PART))
            {
                let own_cells = take(&mut cells, entries.iter().map(|row| row.cells).sum());
                let own_breakers =
                    take(&mut breakers, entries.iter().map(|row| row.breakers).sum());
                let part =
                    ImagePart { entries, cells: own_cells, breakers: own_breakers, days: &[] };
                scope.spawn(move || absorber.add_part(self, &part, image.as_of));
            }
            for days in image.days.chunks(image.days.len().div_ceil(threads).max(MIN_PART)) {
                scope.spawn(move || absorber.add_days(self, days, image.as_of));
            }
        });
        self.shared_version.change();
    }

    /// Returns how the weights of an image become those of this evidence; `None` for an image
    /// without weights.
    fn scaling(&self, image: &EvidenceSnapshot, present: Option<Timestamp>) -> Option<Scaling> {
        let from = image.decay?;
        let scale = match from.half_life() == self.decay().half_life() {
            true => self.decay().rebase(&from),
            false => (from.down(image.as_of) * self.decay().up(image.as_of)).min(MAX_SCALE),
        };
        Some(Scaling { scale, unit: present.map(|present| self.decay().up(present)), present })
    }

    /// Returns the static entry of an address.
    fn static_entry(&self, address: EntryAddress) -> Option<&Entry> {
        match address.kind {
            EntryAddress::GLOBAL => Some(self.global()),
            EntryAddress::FLAG => at(&self.flags, address.key),
            EntryAddress::HINT => at(&self.hints, address.key),
            EntryAddress::DEPTH => at(&self.depths, address.key),
            _ => None,
        }
    }
}

/// Reads the rows of entries into images as of one time.
pub(super) struct RowReader {
    /// The index of each row's signal in the image.
    pub(super) places: Vec<u32>,
    pub(super) down: f64,
    /// The first day that has not expired.
    pub(super) days_from: u16,
    /// The decayed weight below which entries are left out.
    pub(super) least: f64,
}

impl RowReader {
    /// Adds an entry of the map to an image.
    pub(super) fn push(
        &self,
        of: &Evidence,
        image: &mut EvidenceSnapshot,
        (key, entry): (u64, &Entry),
    ) {
        let [[a, b], [c, d]] = [entry.signals.all(), entry.site_signals.all()];
        let shown = [a, b, c, d].map(|slot| of.slot_row(slot, &self.places));
        let address = EntryAddress { kind: EntryAddress::MAP, key };
        image.push(address, entry, shown, |total| total * self.down >= self.least);
        let days = entry.days().all();
        if days.last().is_some_and(|last| last.day >= self.days_from) {
            image.days.extend(days.into_iter().map(|day| DayRow { key, day }));
        }
    }
}

/// Returns the first day that has not expired.
pub(super) fn oldest(as_of: Timestamp) -> u16 {
    day_number(as_of).unwrap_or(u16::MAX).saturating_sub(DAYS_KEPT - 1)
}

/// Returns the slots of an entry, in the order of [`EntryRow::signals`].
fn slots_of(entry: &Entry) -> [(&HostSignalSlots, SignalSide); 4] {
    let [blocked, served] = SignalSide::BOTH;
    [
        (&entry.signals, blocked),
        (&entry.signals, served),
        (&entry.site_signals, blocked),
        (&entry.site_signals, served),
    ]
}

/// The operation that combines an image with evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CombineMode {
    /// The process starts with the image: no other thread has the evidence yet.
    Load {
        /// The present. Later times come from a wrong clock and count as the present.
        present: Timestamp,
    },
    /// The image of another process is added.
    Add,
    /// An image that was added is subtracted.
    Subtract,
}

/// How the weights of an image become weights of this evidence.
#[derive(Clone, Copy, Debug)]
struct Scaling {
    scale: f64,
    /// The present at a start, and the weight of one attempt at it.
    present: Option<Timestamp>,
    unit: Option<f64>,
}

impl Scaling {
    /// Returns a time in seconds, at most the present.
    fn limit_s(self, newest_s: u32) -> u32 {
        self.present.map_or(newest_s, |present| newest_s.min(seconds(present)))
    }
}

/// Combines rows with evidence. Their fetchers and signals are those of an image.
pub(super) struct Absorber {
    ids: Vec<Option<FetcherId>>,
    signals: Vec<SignalId>,
    scaling: Scaling,
    how: CombineMode,
}

impl Absorber {
    /// Returns the absorber of rows of an image; `None` if the image is without weights.
    pub(super) fn new(
        to: &Evidence,
        image: &EvidenceSnapshot,
        registry: &Registry,
        how: CombineMode,
    ) -> Option<Self> {
        let present = match how {
            CombineMode::Load { present } => Some(present),
            CombineMode::Add | CombineMode::Subtract => None,
        };
        Some(Self {
            scaling: to.scaling(image, present)?,
            ids: image.fetchers.iter().map(|name| registry.intern(name)).collect(),
            signals: image.signals.iter().map(|name| to.signals().id(name)).collect(),
            how,
        })
    }

    /// Adds rows that no other thread adds.
    pub(super) fn add(&self, to: &Evidence, rows: &EvidenceSnapshot) {
        let EvidenceSnapshot { entries, cells, breakers, days, as_of, .. } = rows;
        self.add_part(to, &ImagePart { entries, cells, breakers, days }, *as_of);
    }

    fn id(&self, rank: u64) -> Option<FetcherId> {
        usize::try_from(rank).ok().and_then(|rank| self.ids.get(rank).copied().flatten())
    }

    /// Combines the cells of the signals. Those of another process count only where there are none.
    fn add_signals(&self, to: &Evidence, image: &EvidenceSnapshot) {
        for SignalCellRow { tag, fetcher, is_file, raw } in &image.signal_cells {
            let row = self.signals.get(*tag as usize).and_then(|id| to.signals().row(*id));
            let kind = if *is_file { ContentKind::File } else { ContentKind::Page };
            let cell = row
                .zip(self.id(u64::from(*fetcher)))
                .and_then(|(row, fetcher)| row.cell(fetcher, kind));
            let Some(cell) = cell else { continue };
            let counts = match self.how {
                CombineMode::Load { .. } => true,
                CombineMode::Add => cell.raw() == RawSignalCounts::default(),
                CombineMode::Subtract => false,
            };
            if counts {
                let newest_s = self.scaling.limit_s(raw.newest_s);
                cell.absorb(
                    &RawSignalCounts { newest_s, ..*raw },
                    self.scaling.scale,
                    self.scaling.unit,
                );
            }
        }
    }

    fn add_part(&self, to: &Evidence, part: &ImagePart<'_>, as_of: Timestamp) {
        let guard = to.guard();
        let (mut cells, mut breakers, mut days) = (part.cells, part.breakers, part.days);
        for row in part.entries {
            let (own_cells, own_breakers) =
                (take(&mut cells, row.cells), take(&mut breakers, row.breakers));
            let key = row.address.key;
            let entry = match row.address.kind {
                EntryAddress::MAP if self.how == CombineMode::Subtract => {
                    to.entry_to_change(Key(key), &guard)
                }
                EntryAddress::MAP => Some(to.entry_or_new(Key(key), as_of, &guard)),
                _ => to.static_entry(row.address).map(EntryWriter::uncounted),
            };
            let Some(entry) = entry else { continue };
            while let Some((DayRow { day, .. }, rest)) =
                days.split_first().filter(|(first, _)| first.key == key)
            {
                entry.days().add(*day);
                days = rest;
            }
            self.add_cells(&entry, own_cells);
            match self.how {
                CombineMode::Subtract => {
                    // Relaxed: a counter that seeds a hash.
                    let less = |n: u32| Some(n.saturating_sub(row.attempts));
                    let _ = entry.attempts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
                }
                CombineMode::Load { .. } | CombineMode::Add => {
                    self.add_facts(&entry, row, own_breakers)
                }
            }
        }
        for DayRow { key, day } in days {
            to.entry_or_new(Key(*key), as_of, &guard).days().add(*day);
        }
    }

    fn add_cells(&self, entry: &Entry, cells: &[CellRow]) {
        for CellRow { tag, raw } in cells {
            let (group, rank) = Entry::split_tag(*tag);
            if let Some(cell) = self.id(rank).and_then(|fetcher| entry.claim(group, fetcher)) {
                let mut raw = raw.rescaled(self.scaling.scale, self.scaling.unit);
                raw.newest_s = self.scaling.limit_s(raw.newest_s);
                match self.how {
                    CombineMode::Load { .. } => cell.absorb(&raw),
                    CombineMode::Add => cell.add_remote(&raw),
                    CombineMode::Subtract => cell.subtract_remote(&raw),
                }
            }
        }
    }

    /// Adds what an entry has besides cells.
    fn add_facts(&self, entry: &Entry, row: &EntryRow, breakers: &[BreakerRow]) {
        let present = self.scaling.present;
        for breaker in breakers {
            if let Some(fetcher) = self.id(u64::from(breaker.fetcher))
                && (present.is_some() || entry.breaker(fetcher).last < breaker.last)
            {
                let blocks = u8::try_from(breaker.blocks).unwrap_or(u8::MAX);
                let last = present.map_or(breaker.last, |present| breaker.last.min(present));
                entry.set_breaker(fetcher, Breaker { blocks, last });
            }
        }
        for ((slots, side), shown) in slots_of(entry).into_iter().zip(row.signals) {
            if let Some((tag, day)) = shown {
                slots.set(side, self.signals.get(tag as usize).copied(), day);
            }
        }
        if row.site != 0 {
            entry.set_site(row.site);
        }
        // Relaxed: a counter that seeds a hash.
        entry.attempts.fetch_add(row.attempts, Ordering::Relaxed);
    }

    fn add_days(&self, to: &Evidence, days: &[DayRow], as_of: Timestamp) {
        let guard = to.guard();
        for DayRow { key, day } in days {
            match self.how {
                CombineMode::Subtract => {
                    if let Some(entry) = to.entry_to_change(Key(*key), &guard) {
                        entry.days().subtract(*day);
                    }
                }
                CombineMode::Load { .. } | CombineMode::Add => {
                    to.entry_or_new(Key(*key), as_of, &guard).days().add(*day);
                }
            }
        }
    }
}

/// Entries of an image with their cells and breakers.
struct ImagePart<'i> {
    entries: &'i [EntryRow],
    cells: &'i [CellRow],
    breakers: &'i [BreakerRow],
    /// Days to add, in the order of the entries, behind them those of other domains.
    days: &'i [DayRow],
}

/// Takes the first `count` rows.
pub(crate) fn take<'s, T>(rows: &mut &'s [T], count: u32) -> &'s [T] {
    let (taken, rest) = rows.split_at(rows.len().min(count as usize));
    *rows = rest;
    taken
}

fn at(entries: &[SharedEntry], key: u64) -> Option<&Entry> {
    usize::try_from(key).ok().and_then(|index| entries.get(index)).map(|shared| &**shared)
}

impl EvidenceSnapshot {
    /// Returns the time at which entries were checked for having faded.
    pub fn as_of(&self) -> Timestamp {
        self.as_of
    }

    /// Returns the half-life of the weights in milliseconds; `None` without weights.
    pub fn half_life_ms(&self) -> Option<u64> {
        self.decay.map(|decay| decay.half_life().as_millis() as u64)
    }

    /// Returns the number of keys.
    pub fn keys(&self) -> usize {
        self.entries.len()
    }

    /// Returns an image without rows, with the same fetchers and signals.
    pub(crate) fn without_rows(&self) -> Self {
        let (fetchers, signals) = (self.fetchers.clone(), self.signals.clone());
        Self { decay: self.decay, as_of: self.as_of, fetchers, signals, ..Self::default() }
    }

    /// Appends the entries of another image with the same fetchers and signals.
    pub(crate) fn append_rows(&mut self, rows: &Self) {
        self.entries.extend_from_slice(&rows.entries);
        self.cells.extend_from_slice(&rows.cells);
        self.breakers.extend_from_slice(&rows.breakers);
        self.days.extend_from_slice(&rows.days);
    }

    /// Returns the last key of entries of the map and of days; `None` without either.
    pub(crate) fn last_key(&self) -> Option<u64> {
        let entry = self.entries.last().map(|row| row.address.key);
        entry.max(self.days.last().map(|row| row.key))
    }

    /// Removes the entries of the map with keys up to `key`, and returns them.
    pub(crate) fn take_up_to(&mut self, key: u64) -> Self {
        let count = self.entries.partition_point(|row| row.address.key <= key);
        let sum = |of: fn(&EntryRow) -> u32| {
            self.entries[..count].iter().map(|row| of(row) as usize).sum::<usize>()
        };
        let (cells, breakers) = (sum(|row| row.cells), sum(|row| row.breakers));
        let days = self.days.partition_point(|row| row.key <= key);
        Self {
            entries: self.entries.drain(..count).collect(),
            cells: self.cells.drain(..cells.min(self.cells.len())).collect(),
            breakers: self.breakers.drain(..breakers.min(self.breakers.len())).collect(),
            days: self.days.drain(..days).collect(),
            ..self.without_rows()
        }
    }

    /// Removes the entries and everything that belongs to them.
    pub(crate) fn clear_rows(&mut self) {
        self.entries.clear();
        self.cells.clear();
        self.breakers.clear();
        self.days.clear();
    }

    /// Adds an entry. Rows have the fetchers' ids until [`name_fetchers`](Self::name_fetchers)
    /// replaces them by indexes.
    pub(super) fn push(
        &mut self,
        address: EntryAddress,
        entry: &Entry,
        shown: [SlotRow; 4],
        keep: impl FnOnce(f64) -> bool,
    ) {
        let (first, first_breaker) = (self.cells.len(), self.breakers.len());
        let mut total = 0.0;
        entry.each_cell(|group, fetcher, cell| {
            let raw = cell.raw();
            if raw.attempts > 0 {
                total += raw.total;
                self.cells.push(CellRow { tag: Entry::join_tag(group, u64::from(fetcher.0)), raw });
            }
        });
        if self.cells.len() == first || !keep(total) {
            self.cells.truncate(first);
            return;
        }
        entry.each_breaker(|fetcher, Breaker { blocks, last }| {
            if blocks > 0 {
                self.breakers.push(BreakerRow {
                    fetcher: u32::from(fetcher.0),
                    blocks: u32::from(blocks),
                    last,
                });
            }
        });
        self.entries.push(EntryRow {
            address,
            // Relaxed: a counter that seeds a hash.
            attempts: entry.attempts.load(Ordering::Relaxed),
            cells: (self.cells.len() - first) as u32,
            breakers: (self.breakers.len() - first_breaker) as u32,
            signals: shown,
            site: entry.site(),
        });
    }

    /// Replaces each fetcher's id by its index among the names, and sorts the rows.
    pub(super) fn name_fetchers(&mut self, registry: &Registry, seen: &[String]) {
        let known: Vec<&str> = registry.names().collect();
        let mut is_used = vec![false; known.len()];
        let ids = self.cells.iter().map(|cell| Entry::split_tag(cell.tag).1 as usize);
        let tagged = self.signal_cells.iter().map(|cell| cell.fetcher as usize);
        for id in
            ids.chain(self.breakers.iter().map(|breaker| breaker.fetcher as usize)).chain(tagged)
        {
            if let Some(used) = is_used.get_mut(id) {
                *used = true;
            }
        }
        let used = known
            .iter()
            .zip(&is_used)
            .filter(|(_, used)| **used)
            .map(|(name, _)| (*name).to_owned());
        self.fetchers = used.chain(seen.iter().map(|name| canonical(name).to_owned())).collect();
        self.fetchers.sort_unstable();
        self.fetchers.dedup();
        let place =
            |name: &&str| self.fetchers.partition_point(|other| other.as_str() < *name) as u64;
        let places: Vec<u64> = known.iter().map(place).collect();
        for cell in &mut self.cells {
            let (group, id) = Entry::split_tag(cell.tag);
            cell.tag = Entry::join_tag(group, places[id as usize]);
        }
        for breaker in &mut self.breakers {
            breaker.fetcher = places[breaker.fetcher as usize] as u32;
        }
        for cell in &mut self.signal_cells {
            cell.fetcher = places[cell.fetcher as usize] as u32;
        }
        self.signal_cells.sort_unstable_by_key(|cell| (cell.tag, cell.fetcher, cell.is_file));
        let (mut cells, mut breakers) = (&mut self.cells[..], &mut self.breakers[..]);
        for entry in &self.entries {
            let (own, rest) = cells.split_at_mut(entry.cells as usize);
            own.sort_unstable_by_key(|cell| cell.tag);
            cells = rest;
            let (own, rest) = breakers.split_at_mut(entry.breakers as usize);
            own.sort_unstable_by_key(|breaker| breaker.fetcher);
            breakers = rest;
        }
    }
}
