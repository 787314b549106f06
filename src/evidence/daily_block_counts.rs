//! Daily counts of requests and blocks per domain, for the last ninety UTC days.
//!
//! Only days with attempts take memory. The entry holds two days inline; the next seven lie in the
//! part of an entry that few entries have, each further seven need a chunk, and an expired day
//! gives its slot to a new one. A domain therefore has at most `MAX_SLOTS` slots. Readers and
//! writers use atomic loads and steps; a `OnceLock` guards the creation of a chunk, once in seven
//! days.
//!
//! Owns: the packing of a day into eight bytes, and the choice of the days that are kept.
//!
//! Invariants: the days that are kept do not depend on the order of attempts: the counts of each
//! day less than [`DAYS_KEPT`] before the newest. Every attempt with a domain is counted once,
//! whether it changes weights or not.
//!
//! Must not know: how an attempt ended, other than whether it was a block.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use fetchwise_types::time::Timestamp;

/// Number of days that are kept of a domain, including its newest.
pub(crate) const DAYS_KEPT: u16 = 90;

const INLINE: usize = 2;
const CHUNK: usize = 7;
const MAX_CHUNKS: usize = (DAYS_KEPT as usize - INLINE).div_ceil(CHUNK);
/// Upper bound of a domain's slots.
#[cfg(test)]
const MAX_SLOTS: usize = INLINE + CHUNK * MAX_CHUNKS;

const COUNT_BITS: u32 = 24;
const MAX_COUNT: u64 = (1 << COUNT_BITS) - 1;

/// Counts of attempts and of blocks over some days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BanRate {
    /// Requests with any outcome.
    pub attempts: u64,
    /// Requests that the site blocked.
    pub banned: u64,
}

impl BanRate {
    /// Number of days that are kept of each domain.
    /// [`Selector::ban_rate`](crate::Selector::ban_rate) has no older ones.
    pub const DAYS_KEPT: u32 = DAYS_KEPT as u32;

    /// Returns the ratio of blocked requests; `None` without attempts.
    pub fn rate(self) -> Option<f64> {
        (self.attempts > 0).then(|| self.banned as f64 / self.attempts as f64)
    }

    /// Returns the sum of both counts.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { attempts: self.attempts + other.attempts, banned: self.banned + other.banned }
    }
}

/// The first days of a domain.
#[derive(Debug, Default)]
pub(crate) struct FirstDays([AtomicU64; INLINE]);

/// Further days of a domain.
#[derive(Debug, Default)]
pub(crate) struct MoreDays {
    slots: [AtomicU64; CHUNK],
    next: OnceLock<Box<MoreDays>>,
}

/// The daily counts of one domain. `R` has its further days, and is allocated when there are any.
#[derive(Debug)]
pub(crate) struct Days<'e, R> {
    first: &'e FirstDays,
    rare: &'e OnceLock<Box<R>>,
}

/// The counts of one day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Day {
    /// Days since the epoch.
    pub(crate) day: u16,
    /// Requests with any outcome, at most 16 777 215.
    pub(crate) attempts: u32,
    /// Requests that were blocked.
    pub(crate) banned: u32,
}

/// Returns the day number of a time; `None` for a day that no attempt can have.
pub(crate) fn day_number(at: Timestamp) -> Option<u16> {
    u16::try_from(at.utc_day()).ok()
}

impl Day {
    /// Returns the counts of a single attempt; `None` for a time that no attempt can have.
    pub(crate) fn of(at: Timestamp, is_banned: bool) -> Option<Self> {
        Some(Self { day: day_number(at)?, attempts: 1, banned: u32::from(is_banned) })
    }

    /// Returns counts read from a snapshot; `None` if they are inconsistent.
    pub(crate) fn new(day: u32, attempts: u32, banned: u32) -> Option<Self> {
        let is_sane = banned <= attempts && attempts > 0 && u64::from(attempts) <= MAX_COUNT;
        Some(Self { day: u16::try_from(day).ok().filter(|_| is_sane)?, attempts, banned })
    }

    fn pack(self) -> u64 {
        let counts = u64::from(self.attempts) << COUNT_BITS | u64::from(self.banned);
        if self.attempts == 0 { 0 } else { u64::from(self.day) << (2 * COUNT_BITS) | counts }
    }

    fn unpack(packed: u64) -> Option<Self> {
        let (attempts, banned) =
            ((packed >> COUNT_BITS & MAX_COUNT) as u32, (packed & MAX_COUNT) as u32);
        (attempts > 0).then_some(Self {
            day: (packed >> (2 * COUNT_BITS)) as u16,
            attempts,
            banned,
        })
    }

    /// Returns the sum with `other`, limited to the largest count.
    fn plus(self, other: Self) -> Self {
        let room = MAX_COUNT as u32 - self.attempts;
        let attempts = other.attempts.min(room);
        Self {
            attempts: self.attempts + attempts,
            banned: self.banned + other.banned.min(attempts),
            ..self
        }
    }

    fn minus(self, other: Self) -> Self {
        let attempts = self.attempts.saturating_sub(other.attempts);
        Self { attempts, banned: self.banned.saturating_sub(other.banned).min(attempts), ..self }
    }
}

impl FirstDays {
    /// Reads the last slot to prefetch it.
    #[inline]
    pub(crate) fn touch(&self) -> u64 {
        self.0[INLINE - 1].load(Ordering::Relaxed)
    }
}

impl<'e, R: Default + AsRef<MoreDays>> Days<'e, R> {
    pub(crate) fn new(first: &'e FirstDays, rare: &'e OnceLock<Box<R>>) -> Self {
        Self { first, rare }
    }

    /// Adds counts to their day, unless it has expired.
    pub(crate) fn add(&self, what: Day) {
        // A thread that loses a race for a slot tries again: each round at least one thread
        // succeeds.
        while !self.try_add(what) {}
    }

    fn try_add(&self, what: Day) -> bool {
        let (mut newest, mut oldest) = (what.day, None::<(&AtomicU64, u64)>);
        let (mut own, mut free) = (None, None);
        self.each_slot(|slot| {
            // Relaxed everywhere: a day's counts are one independent value.
            let seen = slot.load(Ordering::Relaxed);
            match Day::unpack(seen) {
                None => free = free.or(Some((slot, seen))),
                Some(known) => {
                    newest = newest.max(known.day);
                    if known.day == what.day {
                        own = own.or(Some((slot, seen)));
                    }
                    if oldest.is_none_or(|(_, other)| seen < other) {
                        oldest = Some((slot, seen));
                    }
                }
            }
        });
        if is_over(what.day, newest) {
            return true;
        }
        let swap = |slot: &AtomicU64, seen: u64, next: Day| {
            slot.compare_exchange(seen, next.pack(), Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        if let Some((slot, seen)) = own {
            let Some(known) = Day::unpack(seen) else { return false };
            return swap(slot, seen, known.plus(what));
        }
        let place = oldest
            .filter(|(_, seen)| Day::unpack(*seen).is_some_and(|known| is_over(known.day, newest)));
        match place.or(free) {
            Some((slot, seen)) => swap(slot, seen, what),
            // With all chunks allocated, a day that must be kept lacks a slot only because of a
            // race. Then the oldest day is replaced.
            None if !self.grow() => oldest.is_none_or(|(slot, seen)| swap(slot, seen, what)),
            None => false,
        }
    }

    /// Subtracts counts from their day.
    pub(crate) fn subtract(&self, what: Day) {
        self.each_slot(|slot| {
            let _ = slot.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |packed| {
                let known = Day::unpack(packed).filter(|known| known.day == what.day)?;
                Some(known.minus(what).pack())
            });
        });
    }

    /// Returns the kept days in order.
    pub(crate) fn all(&self) -> Vec<Day> {
        let mut days: Vec<Day> = Vec::new();
        self.each_slot(|slot| days.extend(Day::unpack(slot.load(Ordering::Relaxed))));
        days.sort_unstable();
        let newest = days.last().map_or(0, |last| last.day);
        days.retain(|known| !is_over(known.day, newest));
        // Two threads that began a day at once have a slot each.
        days.dedup_by(|next, known| {
            let same = next.day == known.day;
            if same {
                *known = known.plus(*next);
            }
            same
        });
        days
    }

    /// Returns the sum of the days from `first` to `last`.
    pub(crate) fn sum(&self, first: u16, last: u16) -> BanRate {
        let (mut newest, mut sum) = (0, BanRate::default());
        self.each_slot(|slot| {
            newest = newest.max(Day::unpack(slot.load(Ordering::Relaxed)).map_or(0, |day| day.day))
        });
        self.each_slot(|slot| {
            let known = Day::unpack(slot.load(Ordering::Relaxed));
            let within =
                |known: &Day| (first..=last).contains(&known.day) && !is_over(known.day, newest);
            if let Some(known) = known.filter(within) {
                sum = sum
                    .plus(BanRate { attempts: known.attempts.into(), banned: known.banned.into() });
            }
        });
        sum
    }

    /// Removes all days.
    pub(crate) fn clear(&self) {
        self.each_slot(|slot| slot.store(0, Ordering::Relaxed));
    }

    fn each_slot(&self, mut f: impl FnMut(&'e AtomicU64)) {
        self.first.0.iter().for_each(&mut f);
        let mut next = self.rare.get().map(|rare| (**rare).as_ref());
        while let Some(chunk) = next {
            chunk.slots.iter().for_each(&mut f);
            next = chunk.next.get().map(|chunk| &**chunk);
        }
    }

    /// Allocates a chunk for more days; returns false when all chunks are allocated.
    fn grow(&self) -> bool {
        let Some(rare) = self.rare.get() else {
            self.rare.get_or_init(Box::default);
            return true;
        };
        let mut last = (**rare).as_ref();
        for _ in 1..MAX_CHUNKS {
            match last.next.get() {
                Some(chunk) => last = chunk,
                None => {
                    last.next.get_or_init(Box::default);
                    return true;
                }
            }
        }
        false
    }
}

/// Returns whether a day has expired, given the `newest` day.
fn is_over(day: u16, newest: u16) -> bool {
    newest.saturating_sub(day) >= DAYS_KEPT
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn day(day: u16, attempts: u32, banned: u32) -> Day {
        Day { day, attempts, banned }
    }

    #[derive(Default)]
    struct Domain {
        first: FirstDays,
        rare: OnceLock<Box<Rare>>,
    }

    #[derive(Default)]
    struct Rare(MoreDays);

    impl AsRef<MoreDays> for Rare {
        fn as_ref(&self) -> &MoreDays {
            &self.0
        }
    }

    impl Domain {
        fn days(&self) -> Days<'_, Rare> {
            Days::new(&self.first, &self.rare)
        }
    }

    fn slots(days: &Days<'_, Rare>) -> usize {
        let mut slots = 0;
        days.each_slot(|_| slots += 1);
        slots
    }

    #[test]
    fn a_site_with_requests_on_two_days_needs_no_allocation() {
        let domain = Domain::default();
        let days = domain.days();
        for n in 0..1000 {
            days.add(day(20_000 + n % 2, 1, u32::from(n % 5 == 0)));
        }
        assert_eq!(slots(&days), INLINE);
        assert_eq!(days.all(), [day(20_000, 500, 100), day(20_001, 500, 100)]);
    }

    #[test]
    fn a_site_with_requests_every_day_for_years_has_a_bounded_number_of_slots() {
        let domain = Domain::default();
        let days = domain.days();
        for n in 0..1000 {
            days.add(day(20_000 + n, 2, 1));
        }
        assert!(slots(&days) <= MAX_SLOTS, "{}", slots(&days));
        assert_eq!(days.all(), (910..1000).map(|n| day(20_000 + n, 2, 1)).collect::<Vec<_>>());
        assert_eq!(days.sum(20_993, 20_999), BanRate { attempts: 14, banned: 7 });
        assert_eq!(
            (size_of::<FirstDays>(), size_of::<MoreDays>()),
            (16, 72),
            "sizes that the docs state"
        );
    }

    #[test]
    fn counts_saturate_without_overflow() {
        let domain = Domain::default();
        let days = domain.days();
        days.add(day(7, MAX_COUNT as u32 - 1, 5));
        (0..3).for_each(|_| days.add(day(7, 1, 1)));
        assert_eq!(days.all(), [day(7, MAX_COUNT as u32, 6)]);
    }

    #[test]
    fn concurrent_counts_lose_nothing() {
        for _ in 0..50 {
            let domain = Domain::default();
            let days = domain.days();
            std::thread::scope(|scope| {
                for thread in 0..4u16 {
                    let days = &days;
                    scope.spawn(move || {
                        (0..200u16).for_each(|n| {
                            days.add(day(
                                20_000 + (n * 7 + thread * 13) % 60,
                                1,
                                u32::from(n % 3 == 0),
                            ))
                        })
                    });
                }
            });
            assert_eq!(days.sum(20_000, 20_060), BanRate { attempts: 800, banned: 268 });
            assert!(slots(&days) <= MAX_SLOTS);
        }
    }

    proptest! {
        #[test]
        fn kept_days_do_not_depend_on_the_order(
            events in prop::collection::vec((0..260u16, any::<bool>()), 1..300),
            back_to in 0..90u16,
            back in 0..20usize,
        ) {
            let domain = Domain::default();
            let days = domain.days();
            let mut model = BTreeMap::<u16, (u64, u64)>::new();
            let newest = events.iter().map(|(day, _)| *day).max().unwrap();
            for (number, banned) in &events {
                days.add(day(*number, 1, u32::from(*banned)));
                let known = model.entry(*number).or_default();
                *known = (known.0 + 1, known.1 + u64::from(*banned));
            }
            for (number, banned) in events.iter().take(back) {
                days.subtract(day(*number, 1, u32::from(*banned)));
                let known = model.get_mut(number).unwrap();
                *known = (known.0 - 1, known.1 - u64::from(*banned));
            }
            // The subtracted day may have been the newest.
            let still = model.iter().filter(|(_, (attempts, _))| *attempts > 0).map(|(day, _)| *day).max().unwrap_or(0);
            model.retain(|day, (attempts, _)| *attempts > 0 && newest - day < DAYS_KEPT);
            prop_assert!(slots(&days) <= MAX_SLOTS);
            let kept: BTreeMap<u16, (u64, u64)> =
                days.all().into_iter().map(|d| (d.day, (u64::from(d.attempts), u64::from(d.banned)))).collect();
            if still == newest {
                prop_assert_eq!(&kept, &model);
                let asked = newest.saturating_sub(back_to);
                let want = model.range(asked..=newest).fold((0, 0), |sum, (_, n)| (sum.0 + n.0, sum.1 + n.1));
                let sum = days.sum(asked, newest);
                prop_assert_eq!((sum.attempts, sum.banned), want);
            }
        }
    }
}
