//! One entry: all cells of a domain and of the site of the same name (or of another key), and the
//! domain's other state.
//!
//! The first cells are inline and taken in order; most domains need no more. Further cells live in
//! an append-only chain of chunks. A group of cells (one level, kind and path) has a window of
//! eight in each chunk, so a look-up reads a few cache lines however many paths a domain has. A
//! chunk is twice as long as the one before it if that one is in use, so that memory grows with the
//! number of cells even if one group needs many windows. A reader walks over initialised chunks
//! with atomic loads and takes no lock. The recording thread creates a new chunk under a
//! `OnceLock`.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

use crate::evidence::daily_block_counts::{Days, FirstDays, MoreDays};
use crate::evidence::decayed_counts::{DecayedCounts, Weights};
use crate::evidence::host_signal_slots::HostSignalSlots;
use crate::evidence::writer_count::WriterCount;
use fetchwise_types::heuristic::url::ContentKind;
use fetchwise_types::registry::FetcherId;
use fetchwise_types::time::Timestamp;

/// Number of inline cells: enough for a domain, a path and a suffix, each with two fetchers.
pub(super) const INLINE_CELLS: usize = 6;
/// Number of inline cells that are prefetched: those that a decision reads, with two fetchers and a
/// path.
const TOUCHED_CELLS: usize = 4;
/// Number of cells of one group that are adjacent in a chunk.
const WINDOW: usize = 8;
/// Maximum number of chunks in a chain. Their windows together have room for every fetcher of one
/// group.
const MAX_CHUNKS: usize = 48;
/// Upper bound of a chunk's length: 16 + 32 + ... cells are two million by then.
const MAX_CHUNK_CELLS: usize = 1 << 20;
/// The part of a chunk that has to be in use before the next one is longer.
const IN_USE_PART: usize = 4;

/// The kind of key that a group of cells has within an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Level {
    /// The entry's own key.
    Own = 0,
    /// A section of the domain.
    Path = 1,
    /// A suffix on the domain.
    Suffix = 2,
    /// The other domains of the site that has the domain's name. The site's weights are the sum of
    /// these and the domain's: most sites are one domain, whose cells need not be stored twice.
    Site = 3,
}

/// The cells of one key within an entry, over all fetchers: level, file or page, and which path or
/// suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group(u64);

/// The parts, at the level of an entry's own key, of the groups that only keys that sites share
/// have.
const UNPROVEN_PART: u64 = 1 << 16;
const PROVEN_LATER_PART: u64 = 2 << 16;

const CLAIMED: u64 = 1 << 63;
const FETCHER_BITS: u32 = 12;

impl Group {
    /// Returns the group of `level` and `kind`; `hash` distinguishes paths (or suffixes).
    pub(crate) fn new(level: Level, kind: ContentKind, hash: u64) -> Self {
        let key = (level as u64) << 61 | (kind as u64) << 60 | (hash >> 16) << FETCHER_BITS;
        Self(CLAIMED | key)
    }

    /// Returns the group with the failures of sites that had delivered nothing yet, under a key
    /// that sites share.
    pub(crate) fn unproven(kind: ContentKind) -> Self {
        Self::new(Level::Own, kind, UNPROVEN_PART)
    }

    /// Returns the group with that part of the failures in [`unproven`](Self::unproven) whose sites
    /// delivered later.
    pub(crate) fn proven_later(kind: ContentKind) -> Self {
        Self::new(Level::Own, kind, PROVEN_LATER_PART)
    }

    /// Returns whether the group counts weights of attempts that another group of the entry counts
    /// as well.
    pub(crate) fn is_counted_elsewhere(self) -> bool {
        [ContentKind::Page, ContentKind::File].map(Self::proven_later).contains(&self)
    }

    /// Returns whether the group belongs to a site's other domains. All other groups belong to the
    /// entry's domain.
    pub(crate) fn is_of_others(self) -> bool {
        (self.0 >> 61) & 3 == Level::Site as u64
    }

    /// Returns whether the group belongs to the entry's own key. Each attempt changes exactly one
    /// such cell of the entry.
    pub(crate) fn is_own(self) -> bool {
        (self.0 >> 61) & 3 == Level::Own as u64
    }

    /// Returns the group's level.
    pub(crate) fn level(self) -> Level {
        [Level::Own, Level::Path, Level::Suffix, Level::Site][(self.0 >> 61) as usize & 3]
    }

    fn tag(self, fetcher: FetcherId) -> u64 {
        self.0 | u64::from(fetcher.0)
    }

    /// Returns the position of the group's window in a chunk of `len` cells.
    fn start(self, len: usize) -> usize {
        // Fibonacci hashing spreads adjacent groups; a chunk's length is a power of two. The level
        // and the kind are the highest bits, which a product would not carry to lower ones.
        ((self.0 ^ self.0 >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as usize & (len - 1)
    }
}

/// The cells and the domain state under one key.
///
/// Inline cells are taken in order: a look-up ends at the first free one.
#[derive(Debug, Default)]
// The order puts the fields that every decision reads into as few cache lines as possible.
#[repr(C)]
pub(crate) struct Entry {
    rare: OnceLock<Box<Rare>>,
    /// Attempts that counted, by any fetcher.
    pub(crate) attempts: AtomicU32,
    /// Whether other domains of the site have a cell here.
    has_others: AtomicBool,
    /// Who writes, while evicted entries are kept.
    pub(super) writers: WriterCount,
    /// The signals that the domain showed, and those that any domain of the site of its name showed
    /// last.
    pub(crate) signals: HostSignalSlots,
    pub(crate) site_signals: HostSignalSlots,
    /// The hash of the domain's site; 0 if that is the domain itself or unknown.
    site: AtomicU64,
    /// The first daily counts of the domain's attempts and blocks. With them the cells of a
    /// [`SharedEntry`] begin at a cache line.
    first_days: FirstDays,
    cells: [DecayedCounts; INLINE_CELLS],
}

/// What few entries need, allocated for those that do.
#[derive(Debug, Default)]
struct Rare {
    more: OnceLock<Box<Chunk>>,
    paused_until_ms: AtomicI64,
    breakers: BreakerChunk,
    days: MoreDays,
}

impl AsRef<MoreDays> for Rare {
    fn as_ref(&self) -> &MoreDays {
        &self.days
    }
}

/// An entry that all domains share and all threads write to. Each of its cells has its own cache
/// line, so that a write to one fetcher's cell does not slow down a write to another's. It is
/// aligned to two lines, since processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct SharedEntry(Entry);

impl std::ops::Deref for SharedEntry {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        &self.0
    }
}

const _: () = assert!(std::mem::offset_of!(Entry, cells) == 64 && size_of::<DecayedCounts>() == 64);

#[derive(Debug)]
struct Chunk {
    cells: Box<[DecayedCounts]>,
    next: OnceLock<Box<Chunk>>,
}

impl Chunk {
    fn of(len: usize) -> Box<Self> {
        Box::new(Self {
            cells: (0..len).map(|_| DecayedCounts::default()).collect(),
            next: OnceLock::new(),
        })
    }

    fn next(&self) -> Option<&Self> {
        self.next.get().map(|chunk| &**chunk)
    }

    /// Returns the length of the next chunk.
    fn next_len(&self) -> usize {
        let used = self.cells.iter().filter(|cell| cell.tag() != 0).count();
        let len = self.cells.len();
        if used * IN_USE_PART >= len { (len * 2).min(MAX_CHUNK_CELLS) } else { len }
    }
}

/// Returns the cells of `group` in one chunk, in probe order.
fn window(cells: &[DecayedCounts], group: Group) -> impl Iterator<Item = &DecayedCounts> {
    let start = group.start(cells.len());
    let (before, after) = cells.split_at(start);
    after.iter().chain(before).take(WINDOW)
}

impl Entry {
    /// Prefetches the header and the inline cells into the processor's cache. With a million
    /// domains they are in no cache, and fetching all of them at once takes as long as fetching
    /// one.
    #[inline]
    pub(crate) fn touch(&self) {
        // The header may begin anywhere in a line: both ends are read. Relaxed: the values are
        // discarded.
        let header = self.attempts.load(Ordering::Relaxed) ^ self.first_days.touch() as u32;
        let lines = self.cells[..TOUCHED_CELLS].iter().fold(header, |sum, cell| sum ^ cell.touch());
        std::hint::black_box(lines);
    }

    /// Returns the first further cells, if there are any.
    #[inline]
    fn more(&self) -> Option<&Chunk> {
        self.rare.get()?.more.get().map(|chunk| &**chunk)
    }

    fn rare_or_new(&self) -> &Rare {
        self.rare.get_or_init(Box::default)
    }

    /// Returns the daily counts of the domain's attempts and blocks.
    pub(crate) fn days(&self) -> Days<'_, impl Default + AsRef<MoreDays>> {
        Days::new(&self.first_days, &self.rare)
    }

    /// Calls `f` for each fetcher that has a cell in `group`.
    #[inline]
    pub(crate) fn for_each(&self, group: Group, mut f: impl FnMut(FetcherId, &DecayedCounts)) {
        let mut visit = |tag: u64, cell: &DecayedCounts| {
            if tag & !((1 << FETCHER_BITS) - 1) == group.0 {
                f(FetcherId((tag & ((1 << FETCHER_BITS) - 1)) as u16), cell);
            }
        };
        for cell in &self.cells {
            match cell.tag() {
                0 => return,
                tag => visit(tag, cell),
            }
        }
        let mut next = self.more();
        while let Some(chunk) = next {
            window(&chunk.cells, group).for_each(|cell| visit(cell.tag(), cell));
            next = chunk.next();
        }
    }

    /// Calls `f` with the weights of each fetcher in `group`, plus those of `also`, which belongs
    /// to other domains.
    #[inline]
    pub(crate) fn each_weights(
        &self,
        group: Group,
        also: Option<Group>,
        down: f64,
        mut f: impl FnMut(FetcherId, &Weights),
    ) {
        // Acquire pairs with the Release in `claim`. An earlier reader gets the weights of a moment
        // before.
        match also.filter(|_| self.has_others.load(Ordering::Acquire)) {
            None => self.for_each(group, |id, cell| f(id, &cell.read(down))),
            Some(also) => self.each_sum(group, also, down, &mut f),
        }
    }

    #[cold]
    fn each_sum(
        &self,
        group: Group,
        also: Group,
        down: f64,
        f: &mut dyn FnMut(FetcherId, &Weights),
    ) {
        self.for_each(group, |id, cell| {
            let mut weights = cell.read(down);
            self.for_each(also, |other, cell| {
                if other == id {
                    weights = weights.plus(&cell.read(down));
                }
            });
            f(id, &weights);
        });
        self.for_each(also, |id, cell| {
            let mut is_alone = true;
            self.for_each(group, |other, _| is_alone &= other != id);
            if is_alone {
                f(id, &cell.read(down));
            }
        });
    }

    /// Returns the cell of `fetcher` in `group`, claimed now if there was none; `None` when the
    /// entry is full.
    pub(crate) fn claim(&self, group: Group, fetcher: FetcherId) -> Option<&DecayedCounts> {
        // All threads that claim a tag probe the same positions in the same order, and no position
        // is ever freed, so a tag gets one cell only.
        let tag = group.tag(fetcher);
        if group.is_of_others() && !self.has_others.load(Ordering::Relaxed) {
            // Release pairs with the Acquire in `each_weights`.
            self.has_others.store(true, Ordering::Release);
        }
        if let Some(cell) = self.cells.iter().find(|cell| cell.claim(tag)) {
            return Some(cell);
        }
        let mut chunk = self.rare_or_new().more.get_or_init(|| Chunk::of(WINDOW));
        for _ in 1..MAX_CHUNKS {
            if let Some(cell) = window(&chunk.cells, group).find(|cell| cell.claim(tag)) {
                return Some(cell);
            }
            chunk = chunk.next.get_or_init(|| Chunk::of(chunk.next_len()));
        }
        window(&chunk.cells, group).find(|cell| cell.claim(tag))
    }

    /// Calls `f` for each cell.
    pub(crate) fn each_cell(&self, mut f: impl FnMut(Group, FetcherId, &DecayedCounts)) {
        let mut visit = |cells: &[DecayedCounts]| {
            for cell in cells {
                let tag = cell.tag();
                if tag != 0 {
                    let (group, fetcher) = Self::split_tag(tag);
                    f(group, FetcherId(fetcher as u16), cell);
                }
            }
        };
        visit(&self.cells);
        let mut next = self.more();
        while let Some(chunk) = next {
            visit(&chunk.cells);
            next = chunk.next();
        }
    }

    /// Returns the hash of the domain's site if that is not the domain itself.
    pub(crate) fn site(&self) -> u64 {
        self.site.load(Ordering::Relaxed)
    }

    /// Records the domain's site.
    pub(crate) fn set_site(&self, site: u64) {
        // Relaxed: an independent value that does not change again. The load first avoids
        // invalidating the cache line of other processors.
        if self.site.load(Ordering::Relaxed) != site {
            self.site.store(site, Ordering::Relaxed);
        }
    }

    /// Records that the domain shows another vendor from now on: each fetcher may contribute once
    /// more.
    pub(crate) fn unmark(&self) {
        self.each_cell(|_, _, cell| cell.unmark());
    }

    /// Clears the domain; evidence about other domains of the site of its name stays. An attempt
    /// that is recorded at the same moment may leave a part of itself behind.
    pub(crate) fn forget_domain(&self) {
        self.each_cell(|group, _, cell| {
            if !group.is_of_others() {
                cell.clear();
            }
        });
        self.each_breaker_slot(|slot| {
            let _ = slot.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |packed| {
                (packed != 0).then_some(packed >> (64 - FETCHER_BITS) << (64 - FETCHER_BITS))
            });
        });
        self.attempts.store(0, Ordering::Relaxed);
        self.days().clear();
        self.signals.clear();
        self.site_signals.clear();
        self.set_paused_until(None);
    }

    /// Returns a tag's group and fetcher.
    pub(crate) fn split_tag(tag: u64) -> (Group, u64) {
        let fetcher = tag & ((1 << FETCHER_BITS) - 1);
        (Group(tag - fetcher), fetcher)
    }

    /// Returns whether the key may be one that domains share, such as a suffix: no domain has
    /// attempts here.
    pub(crate) fn may_be_shared(&self) -> bool {
        // Relaxed: a domain that is taken for a shared key costs some estimates that are made
        // afresh.
        self.attempts.load(Ordering::Relaxed) == 0 && !self.has_others.load(Ordering::Relaxed)
    }

    /// Returns the undecayed weight of all cells.
    pub(crate) fn weight(&self) -> f64 {
        let mut sum = 0.0;
        self.each_cell(|_, _, cell| sum += cell.weight());
        sum
    }

    /// Returns the time until which the host is paused, if it ever was.
    pub(crate) fn paused_until(&self) -> Option<Timestamp> {
        // Relaxed: an independent value; a reader that misses it lets one more request through.
        match self.rare.get()?.paused_until_ms.load(Ordering::Relaxed) {
            0 => None,
            ms => Some(Timestamp::from_millis(ms)),
        }
    }

    /// Sets or clears the host's pause.
    pub(crate) fn set_paused_until(&self, until: Option<Timestamp>) {
        let rare = match until {
            Some(_) => Some(self.rare_or_new()),
            None => self.rare.get().map(|rare| &**rare),
        };
        if let Some(rare) = rare {
            rare.paused_until_ms.store(until.map_or(0, Timestamp::as_millis), Ordering::Relaxed);
        }
    }

    /// Replaces the pause if it is still `seen`. The caller that succeeds may make the trial
    /// request.
    pub(crate) fn swap_paused_until(&self, seen: Timestamp, next: Timestamp) -> bool {
        let paused_until_ms = self.rare.get().map(|rare| &rare.paused_until_ms);
        paused_until_ms.is_some_and(|ms| {
            ms.compare_exchange(
                seen.as_millis(),
                next.as_millis(),
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .is_ok()
        })
    }

    /// Returns the breaker of `fetcher`, which is closed if no block was ever recorded.
    pub(crate) fn breaker(&self, fetcher: FetcherId) -> Breaker {
        self.breaker_slot(fetcher, false)
            .map_or(Breaker::CLOSED, |slot| Breaker::unpack(slot.load(Ordering::Relaxed)))
    }

    /// Returns whether any fetcher was ever blocked here.
    pub(crate) fn has_breakers(&self) -> bool {
        // Slots are taken in order. Relaxed: a reader that misses the first block sees the breaker
        // closed.
        self.rare.get().is_some_and(|rare| rare.breakers.slots[0].load(Ordering::Relaxed) != 0)
    }

    /// Counts a block, or closes the breaker after a success.
    pub(crate) fn update_breaker(&self, fetcher: FetcherId, at: Timestamp, blocked: bool) {
        let Some(slot) = self.breaker_slot(fetcher, blocked) else { return };
        // Relaxed: the pair of count and time is one atomic, and no other data depends on it.
        let _ = slot.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |packed| {
            let seen = Breaker::unpack(packed);
            let blocks = if blocked { seen.blocks.saturating_add(1) } else { 0 };
            let last = if blocked { seen.last.max(at) } else { seen.last };
            Some(Breaker { blocks, last }.pack(fetcher))
        });
    }

    /// Replaces the breaker `seen` by `next`, unless it has changed since. Setting `last` to now
    /// claims the half-open trial: the breaker is open again until the trial ends. Returns true for
    /// one caller only.
    pub(crate) fn claim_breaker(&self, fetcher: FetcherId, seen: Breaker, next: Breaker) -> bool {
        self.breaker_slot(fetcher, false).is_some_and(|slot| {
            slot.compare_exchange(
                seen.pack(fetcher),
                next.pack(fetcher),
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .is_ok()
        })
    }

    fn each_breaker_slot(&self, mut f: impl FnMut(&AtomicU64)) {
        let mut next = self.rare.get().map(|rare| &rare.breakers);
        while let Some(chunk) = next {
            chunk.slots.iter().for_each(&mut f);
            next = chunk.next.get().map(|chunk| &**chunk);
        }
    }

    fn breaker_slot(&self, fetcher: FetcherId, make: bool) -> Option<&AtomicU64> {
        let mine = |packed: u64| packed >> (64 - FETCHER_BITS) == u64::from(fetcher.0) + 1;
        let rare = if make { self.rare_or_new() } else { self.rare.get()? };
        let mut chunk = &rare.breakers;
        loop {
            for slot in &chunk.slots {
                let packed = slot.load(Ordering::Relaxed);
                if mine(packed) {
                    return Some(slot);
                }
                if packed == 0 {
                    if !make {
                        return None;
                    }
                    let fresh = Breaker::CLOSED.pack(fetcher);
                    match slot.compare_exchange(0, fresh, Ordering::Relaxed, Ordering::Relaxed) {
                        Ok(_) => return Some(slot),
                        Err(holder) if mine(holder) => return Some(slot),
                        Err(_) => {}
                    }
                }
            }
            chunk = match chunk.next.get() {
                Some(next) => next,
                None if make => chunk.next.get_or_init(Box::default),
                None => return None,
            };
        }
    }
}

/// Access for snapshots.
impl Entry {
    /// Returns the tag of a group and a fetcher's number, of which there are at most 4096.
    pub(crate) fn join_tag(group: Group, fetcher: u64) -> u64 {
        group.0 | fetcher & ((1 << FETCHER_BITS) - 1)
    }

    /// Calls `f` for each breaker.
    pub(crate) fn each_breaker(&self, mut f: impl FnMut(FetcherId, Breaker)) {
        self.each_breaker_slot(|slot| {
            let packed = slot.load(Ordering::Relaxed);
            if let Some(fetcher) = (packed >> (64 - FETCHER_BITS)).checked_sub(1) {
                f(FetcherId(fetcher as u16), Breaker::unpack(packed));
            }
        });
    }

    /// Sets the breaker of `fetcher` to the state in a snapshot.
    pub(crate) fn set_breaker(&self, fetcher: FetcherId, breaker: Breaker) {
        if let Some(slot) = self.breaker_slot(fetcher, true) {
            slot.store(breaker.pack(fetcher), Ordering::Relaxed);
        }
    }
}

#[derive(Debug, Default)]
struct BreakerChunk {
    slots: [AtomicU64; 3],
    next: OnceLock<Box<BreakerChunk>>,
}

/// The state of one (domain, fetcher) breaker: consecutive blocks and the time of the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Breaker {
    pub(crate) blocks: u8,
    pub(crate) last: Timestamp,
}

impl Breaker {
    const CLOSED: Self = Self { blocks: 0, last: Timestamp::from_millis(0) };
    const TIME_BITS: u32 = 44;

    /// Returns fetcher + 1 in the top 12 bits, then 8 bits of blocks and 44 bits of milliseconds,
    /// which end in the year 2527.
    fn pack(self, fetcher: FetcherId) -> u64 {
        let ms = self.last.as_millis().clamp(0, (1 << Self::TIME_BITS) - 1) as u64;
        (u64::from(fetcher.0) + 1) << (64 - FETCHER_BITS)
            | u64::from(self.blocks) << Self::TIME_BITS
            | ms
    }

    fn unpack(packed: u64) -> Self {
        Self {
            blocks: (packed >> Self::TIME_BITS) as u8,
            last: Timestamp::from_millis((packed & ((1 << Self::TIME_BITS) - 1)) as i64),
        }
    }
}

#[cfg(test)]
mod tests {
    use fetchwise_types::registry::MAX_FETCHERS;

    use super::*;

    #[test]
    fn a_domain_with_many_paths_finds_each_cell_again() {
        let entry = Entry::default();
        let groups: Vec<Group> = (0..5000u64)
            .map(|n| {
                Group::new(
                    Level::Path,
                    ContentKind::Page,
                    xxhash_rust::xxh3::xxh3_64(&n.to_le_bytes()),
                )
            })
            .collect();
        for group in &groups {
            for fetcher in 0..3 {
                assert!(entry.claim(*group, FetcherId(fetcher)).is_some());
            }
        }
        for group in &groups {
            let mut seen = Vec::new();
            entry.for_each(*group, |fetcher, _| seen.push(fetcher.0));
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 2]);
        }
    }

    #[test]
    fn the_sizes_are_those_that_the_docs_state() {
        assert_eq!((size_of::<Entry>(), size_of::<DecayedCounts>(), INLINE_CELLS), (448, 64, 6));
        assert_eq!(
            (size_of::<Rare>(), size_of::<BreakerChunk>(), size_of::<MoreDays>()),
            (136, 40, 72)
        );
    }

    #[test]
    fn a_plain_domain_needs_no_second_allocation() {
        let (entry, at) = (Entry::default(), Timestamp::from_millis(1_800_000_000_000));
        for level in [Level::Own, Level::Path, Level::Suffix] {
            for fetcher in 0..2 {
                assert!(
                    entry
                        .claim(Group::new(level, ContentKind::Page, 7 << 20), FetcherId(fetcher))
                        .is_some()
                );
            }
        }
        entry.update_breaker(FetcherId(0), at, false);
        entry.set_paused_until(None);
        assert!(
            entry.rare.get().is_none() && !entry.has_breakers() && entry.paused_until().is_none()
        );
        entry.set_paused_until(Some(at));
        assert!(entry.rare.get().is_some() && !entry.has_breakers());
        assert_eq!(entry.paused_until(), Some(at));
        entry.update_breaker(FetcherId(0), at, true);
        assert!(entry.has_breakers());
    }

    #[test]
    fn memory_grows_with_the_number_of_cells() {
        let len = |entry: &Entry| {
            let chunks = std::iter::successors(entry.more(), |chunk| chunk.next());
            chunks.map(|chunk| chunk.cells.len()).sum::<usize>()
        };
        // All names that a selector can know, in groups of the entry's own key.
        let entry = Entry::default();
        let groups =
            [ContentKind::Page, ContentKind::File].map(|kind| Group::new(Level::Own, kind, 0));
        for fetcher in 0..MAX_FETCHERS as u16 {
            assert!(groups.iter().all(|group| entry.claim(*group, FetcherId(fetcher)).is_some()));
        }
        assert!(len(&entry) <= 8 * groups.len() * MAX_FETCHERS, "{}", len(&entry));
        // Many paths.
        let entry = Entry::default();
        let paths = 20_000_u64;
        for path in 0..paths {
            let group = Group::new(
                Level::Path,
                ContentKind::Page,
                xxhash_rust::xxh3::xxh3_64(&path.to_le_bytes()),
            );
            assert!(entry.claim(group, FetcherId(0)).is_some());
        }
        assert!(len(&entry) <= 8 * paths as usize, "{}", len(&entry));
    }

    #[test]
    fn racing_claimers_of_one_tag_share_one_cell() {
        for _ in 0..200 {
            let entry = Entry::default();
            let claim_all = |entry: &Entry| {
                (0..40u64)
                    .map(|n| {
                        let group = Group::new(Level::Path, ContentKind::Page, n << 40);
                        std::ptr::from_ref(entry.claim(group, FetcherId(0)).unwrap()) as usize
                    })
                    .collect::<Vec<_>>()
            };
            let (a, b) = std::thread::scope(|scope| {
                let other = scope.spawn(|| claim_all(&entry));
                (claim_all(&entry), other.join().unwrap())
            });
            assert_eq!(a, b);
        }
    }

    #[test]
    fn a_breaker_counts_consecutive_blocks_and_content_closes_it() {
        let (entry, at) = (Entry::default(), Timestamp::from_millis(1_800_000_000_000));
        for fetcher in 0..7 {
            for n in 0..=fetcher {
                entry.update_breaker(
                    FetcherId(fetcher),
                    at.saturating_add(std::time::Duration::from_secs(n.into())),
                    true,
                );
            }
        }
        assert_eq!(entry.breaker(FetcherId(6)).blocks, 7);
        assert_eq!(entry.breaker(FetcherId(6)).last.as_millis(), at.as_millis() + 6000);
        entry.update_breaker(FetcherId(6), at, false);
        assert_eq!(entry.breaker(FetcherId(6)).blocks, 0);
        assert_eq!(entry.breaker(FetcherId(5)).blocks, 6);
        assert_eq!(entry.breaker(FetcherId(9)).blocks, 0);
    }

    #[test]
    fn a_half_open_trial_goes_to_one_caller() {
        let (entry, at) = (Entry::default(), Timestamp::from_millis(1_800_000_000_000));
        entry.update_breaker(FetcherId(0), at, true);
        let seen = entry.breaker(FetcherId(0));
        let later = at.saturating_add(std::time::Duration::from_secs(3600));
        let claimed = Breaker { last: later, ..seen };
        assert!(entry.claim_breaker(FetcherId(0), seen, claimed));
        assert!(!entry.claim_breaker(FetcherId(0), seen, claimed));
    }
}
