//! One entry: all cells of one domain and of the site named like it (or of another key), and what else belongs to a domain.
//!
//! The first cells are in the entry itself, taken in order, which is all that most domains need. Further ones live in an
//! append-only chain of chunks that double in size. A group of cells (one level, kind and path) has its window of eight in
//! each chunk, so a look-up reads a few lines however many paths a domain has. Reading is a walk over initialised chunks: atomic
//! loads, no lock. A new chunk is made under a `OnceLock`, by whoever records.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

use crate::evidence::daily_block_counts::Days;
use crate::evidence::decayed_counts::{Cell, Weights};
use crate::evidence::host_signal_slots::Slots;
use fetchwise_types::heuristic::url::ContentKind;
use fetchwise_types::registry::FetcherId;
use fetchwise_types::time::Timestamp;

/// Cells in the entry itself: enough for a domain, a path and a suffix, each with two fetchers.
pub(super) const INLINE_CELLS: usize = 6;
/// As many of them as are fetched from memory before they are needed: those that a decision reads, with two fetchers and a path.
const TOUCHED_CELLS: usize = 4;
/// Cells of one group that stand together in a chunk.
const WINDOW: usize = 8;
/// A chain is not made longer than this; 8 + 16 + 32 + ... cells are over a million by then.
const CHUNKS_MAX: usize = 18;

/// What a group of cells stands for within an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Level {
    /// The entry's own key.
    Own = 0,
    /// A section of the domain.
    Path = 1,
    /// A suffix on the domain.
    Suffix = 2,
    /// The other domains of the site that is named like the domain. The site's own weights are these and the domain's: most sites
    /// are one domain, whose cells need not be kept twice.
    Site = 3,
}

/// The cells of one key within an entry, over all fetchers: level, file or page, and which path or suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group(u64);

const CLAIMED: u64 = 1 << 63;
const FETCHER_BITS: u32 = 12;

impl Group {
    /// The group of `level` and `kind`; `hash` tells paths (or suffixes) apart.
    pub(crate) fn new(level: Level, kind: ContentKind, hash: u64) -> Self {
        let key = (level as u64) << 61 | (kind as u64) << 60 | (hash >> 16) << FETCHER_BITS;
        Self(CLAIMED | key)
    }

    /// Whether it is of a site's other domains; all others are their domain's own.
    pub(crate) fn is_of_others(self) -> bool {
        (self.0 >> 61) & 3 == Level::Site as u64
    }

    /// Whether it is of the entry's own key: each attempt is in one such cell of it.
    #[cfg(feature = "journal")]
    pub(crate) fn is_own(self) -> bool {
        (self.0 >> 61) & 3 == Level::Own as u64
    }

    /// What it is of.
    #[cfg(feature = "journal")]
    pub(crate) fn level(self) -> Level {
        [Level::Own, Level::Path, Level::Suffix, Level::Site][(self.0 >> 61) as usize & 3]
    }

    fn tag(self, fetcher: FetcherId) -> u64 {
        self.0 | u64::from(fetcher.0)
    }

    /// Where the group's window starts in a chunk of `len` cells.
    fn start(self, len: usize) -> usize {
        // Fibonacci hashing spreads neighbouring groups; a chunk's length is a power of two.
        (self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as usize & (len - 1)
    }
}

/// The cells and the domain state under one key.
///
/// The cells in the entry itself are taken from the first on: a look-up ends at the first that is free.
#[derive(Debug, Default)]
// In this order: what every decision reads is in as few cache lines as can be.
#[repr(C)]
pub(crate) struct Entry {
    more: OnceLock<Box<Chunk>>,
    breakers: OnceLock<Box<BreakerChunk>>,
    paused_until_ms: AtomicI64,
    /// Attempts that counted, by any fetcher.
    pub(crate) attempts: AtomicU32,
    /// Whether other domains of the site have a cell here.
    has_others: AtomicBool,
    /// What the domain's answers showed, and what any domain of the site of its name last showed. With them the cells of a
    /// [`Shared`] entry begin with a cache line.
    pub(crate) shown: Slots,
    pub(crate) site_shown: Slots,
    cells: [Cell; INLINE_CELLS],
    /// How many of the domain's attempts were blocked, by days. Behind the cells, since no decision reads it.
    pub(crate) days: Days,
    /// The hash of the site that the domain is of; 0 where that is the domain itself, or nobody has said. Beside the days.
    site: AtomicU64,
}

/// An entry that all domains share and all threads write to. Each of its cells has a cache line of its own, so that adding to one
/// fetcher's cell does not slow down adding to another's. It is aligned to two lines, since processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Shared(Entry);

impl std::ops::Deref for Shared {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        &self.0
    }
}

const _: () = assert!(std::mem::offset_of!(Entry, cells) == 64 && size_of::<Cell>() == 64);

#[derive(Debug)]
struct Chunk {
    cells: Box<[Cell]>,
    next: OnceLock<Box<Chunk>>,
}

impl Chunk {
    fn of(len: usize) -> Box<Self> {
        Box::new(Self { cells: (0..len).map(|_| Cell::default()).collect(), next: OnceLock::new() })
    }
}

/// The cells of `group` in one chunk, in probe order.
fn window(cells: &[Cell], group: Group) -> impl Iterator<Item = &Cell> {
    let start = group.start(cells.len());
    let (before, after) = cells.split_at(start);
    after.iter().chain(before).take(WINDOW)
}

impl Entry {
    /// Reads a little of the cells in the entry itself, so that the processor fetches them from memory. With a million domains none
    /// of them is in a cache, and to ask for all of them at once takes the time of one.
    #[inline]
    pub(crate) fn touch(&self) {
        // Relaxed: what is read is thrown away.
        let cells = self.cells[..TOUCHED_CELLS].iter();
        let lines = cells.fold(self.attempts.load(Ordering::Relaxed), |sum, cell| sum ^ cell.touch());
        std::hint::black_box(lines);
    }

    /// Calls `f` for each fetcher that has a cell in `group`.
    #[inline]
    pub(crate) fn for_each(&self, group: Group, mut f: impl FnMut(FetcherId, &Cell)) {
        let mut visit = |tag: u64, cell: &Cell| {
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
        let mut next = &self.more;
        while let Some(chunk) = next.get() {
            window(&chunk.cells, group).for_each(|cell| visit(cell.tag(), cell));
            next = &chunk.next;
        }
    }

    /// Calls `f` with the weights of each fetcher in `group`; with those of `also`, which is of other domains, added to them.
    #[inline]
    pub(crate) fn each_weights(
        &self,
        group: Group,
        also: Option<Group>,
        down: f64,
        mut f: impl FnMut(FetcherId, &Weights),
    ) {
        // Acquire pairs with the Release in `claim`. A reader that comes before it reads the weights of a moment before.
        match also.filter(|_| self.has_others.load(Ordering::Acquire)) {
            None => self.for_each(group, |id, cell| f(id, &cell.read(down))),
            Some(also) => self.each_sum(group, also, down, &mut f),
        }
    }

    #[cold]
    fn each_sum(&self, group: Group, also: Group, down: f64, f: &mut dyn FnMut(FetcherId, &Weights)) {
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

    /// The cell of `fetcher` in `group`, claimed now if there was none. None when the entry is full.
    pub(crate) fn claim(&self, group: Group, fetcher: FetcherId) -> Option<&Cell> {
        // All who claim a tag try the same places in the same order, and no place is ever given back, so a tag gets one cell only.
        let tag = group.tag(fetcher);
        if group.is_of_others() && !self.has_others.load(Ordering::Relaxed) {
            // Release pairs with the Acquire in `each_weights`.
            self.has_others.store(true, Ordering::Release);
        }
        if let Some(cell) = self.cells.iter().find(|cell| cell.claim(tag)) {
            return Some(cell);
        }
        let mut next = &self.more;
        let mut len = WINDOW;
        for _ in 0..CHUNKS_MAX {
            let chunk = next.get_or_init(|| Chunk::of(len));
            if let Some(cell) = window(&chunk.cells, group).find(|cell| cell.claim(tag)) {
                return Some(cell);
            }
            len = chunk.cells.len() * 2;
            next = &chunk.next;
        }
        None
    }

    /// Calls `f` for each cell there is.
    pub(crate) fn each_cell(&self, mut f: impl FnMut(Group, FetcherId, &Cell)) {
        let mut visit = |cells: &[Cell]| {
            for cell in cells {
                let tag = cell.tag();
                if tag != 0 {
                    let (group, fetcher) = Self::split_tag(tag);
                    f(group, FetcherId(fetcher as u16), cell);
                }
            }
        };
        visit(&self.cells);
        let mut next = &self.more;
        while let Some(chunk) = next.get() {
            visit(&chunk.cells);
            next = &chunk.next;
        }
    }

    /// The hash of the site that the domain is of, where it is another one than the domain's.
    #[cfg(feature = "journal")]
    pub(crate) fn site(&self) -> u64 {
        self.site.load(Ordering::Relaxed)
    }

    /// Notes the site that the domain is of.
    pub(crate) fn set_site(&self, site: u64) {
        // Relaxed: one value that stands for itself, and stays. Looked at first, so that nobody's cache is troubled.
        if self.site.load(Ordering::Relaxed) != site {
            self.site.store(site, Ordering::Relaxed);
        }
    }

    /// The domain shows another vendor from now on: each fetcher may speak once more.
    pub(crate) fn unmark(&self) {
        self.each_cell(|_, _, cell| cell.unmark());
    }

    /// Forgets the domain; what is known of other domains of the site of its name stays. An attempt that is recorded in the same moment may
    /// leave a part of itself behind.
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
        self.days.clear();
        self.shown.clear();
        self.site_shown.clear();
        self.set_paused_until(None);
    }

    /// A tag's group and fetcher.
    pub(crate) fn split_tag(tag: u64) -> (Group, u64) {
        let fetcher = tag & ((1 << FETCHER_BITS) - 1);
        (Group(tag - fetcher), fetcher)
    }

    /// The undecayed weight of all its cells.
    pub(crate) fn weight(&self) -> f64 {
        let mut sum = 0.0;
        self.each_cell(|_, _, cell| sum += cell.weight());
        sum
    }

    /// The time until which the host is paused, if it ever was.
    pub(crate) fn paused_until(&self) -> Option<Timestamp> {
        // Relaxed: one value that stands for itself; a reader that misses it lets one more request through.
        match self.paused_until_ms.load(Ordering::Relaxed) {
            0 => None,
            ms => Some(Timestamp::from_millis(ms)),
        }
    }

    /// Sets or lifts the host's pause.
    pub(crate) fn set_paused_until(&self, until: Option<Timestamp>) {
        self.paused_until_ms.store(until.map_or(0, Timestamp::as_millis), Ordering::Relaxed);
    }

    /// Replaces the pause if it is still `seen`: whoever wins may make the trial request.
    pub(crate) fn swap_paused_until(&self, seen: Timestamp, next: Timestamp) -> bool {
        self.paused_until_ms
            .compare_exchange(seen.as_millis(), next.as_millis(), Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// The breaker of `fetcher`, closed when it never met a block.
    pub(crate) fn breaker(&self, fetcher: FetcherId) -> Breaker {
        self.breaker_slot(fetcher, false).map_or(Breaker::CLOSED, |slot| Breaker::unpack(slot.load(Ordering::Relaxed)))
    }

    /// Whether any fetcher met a block here at all.
    pub(crate) fn has_breakers(&self) -> bool {
        self.breakers.get().is_some()
    }

    /// Counts a block, or closes the breaker at a success.
    pub(crate) fn update_breaker(&self, fetcher: FetcherId, at: Timestamp, blocked: bool) {
        let Some(slot) = self.breaker_slot(fetcher, blocked) else { return };
        // Relaxed: the pair of count and time is one atomic, and nothing else is read by it.
        let _ = slot.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |packed| {
            let seen = Breaker::unpack(packed);
            let blocks = if blocked { seen.blocks.saturating_add(1) } else { 0 };
            let last = if blocked { seen.last.max(at) } else { seen.last };
            Some(Breaker { blocks, last }.pack(fetcher))
        });
    }

    /// Exchanges the breaker that somebody has `seen` for `next`, unless it has changed since. Setting `last` to now takes the
    /// half-open trial: the breaker is open again until the trial ends. True for one caller only.
    pub(crate) fn claim_breaker(&self, fetcher: FetcherId, seen: Breaker, next: Breaker) -> bool {
        self.breaker_slot(fetcher, false).is_some_and(|slot| {
            slot.compare_exchange(seen.pack(fetcher), next.pack(fetcher), Ordering::Relaxed, Ordering::Relaxed).is_ok()
        })
    }

    fn each_breaker_slot(&self, mut f: impl FnMut(&AtomicU64)) {
        let mut next = &self.breakers;
        while let Some(chunk) = next.get() {
            chunk.slots.iter().for_each(&mut f);
            next = &chunk.next;
        }
    }

    fn breaker_slot(&self, fetcher: FetcherId, make: bool) -> Option<&AtomicU64> {
        let mine = |packed: u64| packed >> (64 - FETCHER_BITS) == u64::from(fetcher.0) + 1;
        let mut next = &self.breakers;
        loop {
            let chunk = match next.get() {
                Some(chunk) => chunk,
                None if make => next.get_or_init(Box::default),
                None => return None,
            };
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
            next = &chunk.next;
        }
    }
}

/// What a snapshot needs.
#[cfg(feature = "journal")]
impl Entry {
    /// The tag of a group and a fetcher's number, of which there are at most 4096.
    pub(crate) fn join_tag(group: Group, fetcher: u64) -> u64 {
        group.0 | fetcher & ((1 << FETCHER_BITS) - 1)
    }

    /// Calls `f` for each breaker there is.
    pub(crate) fn each_breaker(&self, mut f: impl FnMut(FetcherId, Breaker)) {
        self.each_breaker_slot(|slot| {
            let packed = slot.load(Ordering::Relaxed);
            if let Some(fetcher) = (packed >> (64 - FETCHER_BITS)).checked_sub(1) {
                f(FetcherId(fetcher as u16), Breaker::unpack(packed));
            }
        });
    }

    /// Sets the breaker of `fetcher`, as a snapshot has it.
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

/// The state of one (domain, fetcher) breaker: blocks in a row, and when the last one was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Breaker {
    pub(crate) blocks: u8,
    pub(crate) last: Timestamp,
}

impl Breaker {
    const CLOSED: Self = Self { blocks: 0, last: Timestamp::from_millis(0) };
    const TIME_BITS: u32 = 44;

    /// Fetcher + 1 in the top 12 bits, then 8 bits of blocks and 44 bits of milliseconds, which end in the year 2527.
    fn pack(self, fetcher: FetcherId) -> u64 {
        let ms = self.last.as_millis().clamp(0, (1 << Self::TIME_BITS) - 1) as u64;
        (u64::from(fetcher.0) + 1) << (64 - FETCHER_BITS) | u64::from(self.blocks) << Self::TIME_BITS | ms
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
    use super::*;

    #[test]
    fn a_domain_of_many_paths_finds_each_cell_again() {
        let entry = Entry::default();
        let groups: Vec<Group> = (0..5000u64)
            .map(|n| Group::new(Level::Path, ContentKind::Page, xxhash_rust::xxh3::xxh3_64(&n.to_le_bytes())))
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
    fn a_breaker_counts_blocks_in_a_row_and_content_closes_it() {
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
