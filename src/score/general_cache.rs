//! The estimates by general evidence alone, kept from one decision to the next.
//!
//! All URLs with the same flags, depth, suffix and hint have these estimates in common, on every
//! host. They are made from the evidence that all hosts share, and kept while its version stays the
//! same and the time of decisions moves by less than [`MAX_AGE_MS`].
//!
//! A kept estimate differs little from one made afresh. Each level is a weighted mean of the
//! previous level and its own success rate. The version bounds the growth of each cell at 1/64, so
//! a success rate moves by less than 1/64, and the mean of two values that are off by less than
//! 1/64 is off by less than 1/64. A minute changes a weight by less than 1e-4. A selector with
//! exact estimates keeps them only while nothing has changed; then the error is zero.
//!
//! Invariants: readers and writers take no lock and allocate nothing. A reader that meets a writer
//! makes its estimates itself; a writer that meets a writer keeps nothing. A sequence number guards
//! each slot: it is odd while a thread writes.
//!
//! Must not know: how the estimates are made.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};

use super::Scored;
use super::confidence::{Basis, Specificity};
use fetchwise_types::attempt::Hint;
use fetchwise_types::heuristic::url::ContentKind;
use fetchwise_types::time::Timestamp;

/// The time by which decisions may be before or after the making of estimates.
const MAX_AGE_MS: u64 = 60_000;
/// Number of sets of two slots; a power of two. A crawl has some tens of combinations of depth,
/// suffix and flags.
const SETS: usize = 64;
const WAYS: usize = 2;
/// Numbers of one candidate: success and block; the measured cost (3); the basis of confidence (5).
const NUMBERS: usize = 10;

/// Parts of the numbers that not all estimates have.
const HAS_BASIS: u64 = 1;
const HAS_MEASURED_COST: u64 = 2;

/// What the estimates depend on besides the evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GeneralKey {
    /// The hash of the suffix; 0 without one.
    suffix: u64,
    /// The other heuristics; never 0.
    rest: u64,
}

impl GeneralKey {
    #[inline]
    pub(super) fn new(
        kind: ContentKind,
        depth: u32,
        flags: [bool; 4],
        suffix: u64,
        hint: Option<Hint>,
    ) -> Self {
        let flags = flags.iter().fold(0, |bits, flag| bits << 1 | u64::from(*flag));
        let hint = hint.map_or(0, |hint| 1 + hint as u64);
        Self {
            suffix,
            rest: 1 << 63 | hint << 48 | (kind as u64) << 40 | flags << 32 | u64::from(depth),
        }
    }

    #[inline]
    fn set(self) -> usize {
        ((self.suffix ^ self.rest).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as usize % SETS
    }
}

/// What kept estimates were made from: the version of the shared evidence, read before it, and the
/// time.
#[derive(Clone, Copy, Debug)]
pub(super) struct MadeFrom {
    pub(super) version: u64,
    pub(super) now: Timestamp,
}

/// The kept estimates.
#[derive(Debug)]
pub(crate) struct GeneralCache {
    slots: Box<[Slot]>,
    max_age_ms: u64,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot {
    sequence: AtomicU64,
    suffix: AtomicU64,
    rest: AtomicU64,
    version: AtomicU64,
    made_at_ms: AtomicI64,
    parts: AtomicU64,
    numbers: Box<[AtomicU64]>,
}

impl GeneralCache {
    /// Returns an empty cache for this number of candidates.
    pub(crate) fn new(candidates: usize, is_exact: bool) -> Self {
        let numbers = || (0..candidates * NUMBERS).map(|_| AtomicU64::default()).collect();
        let slot = |_| Slot { numbers: numbers(), ..Slot::default() };
        Self {
            slots: (0..SETS * WAYS).map(slot).collect(),
            max_age_ms: if is_exact { 0 } else { MAX_AGE_MS },
        }
    }

    fn set(&self, key: GeneralKey) -> &[Slot] {
        let first = key.set() * WAYS;
        self.slots.get(first..first + WAYS).unwrap_or_default()
    }

    /// Gives the candidates, which have no estimates yet, the kept ones. Returns false if there are
    /// none.
    #[inline]
    pub(super) fn load(
        &self,
        key: GeneralKey,
        from: MadeFrom,
        candidates: &mut [Scored<'_>],
    ) -> bool {
        let Some(slot) = self.set(key).iter().find(|slot| slot.has(key)) else { return false };
        // Acquire pairs with the Release at the end of `store`: a reader of the number sees what
        // was stored before it.
        let sequence = slot.sequence.load(Ordering::Acquire);
        let is_valid = sequence % 2 == 0
            && slot.has(key)
            && slot.version.load(Ordering::Relaxed) == from.version
            && slot.made_at_ms.load(Ordering::Relaxed).abs_diff(from.now.as_millis())
                <= self.max_age_ms;
        if !is_valid {
            return false;
        }
        slot.read(candidates);
        // Pairs with the Release fence in `store`: a reader of anything that was stored later sees
        // the odd number.
        fence(Ordering::Acquire);
        if slot.sequence.load(Ordering::Relaxed) == sequence {
            return true;
        }
        candidates.iter_mut().for_each(clear);
        false
    }

    /// Keeps the candidates' estimates, unless another thread is storing in the same slot.
    pub(super) fn store(&self, key: GeneralKey, from: MadeFrom, candidates: &[Scored<'_>]) {
        let set = self.set(key);
        let is_stale = |slot: &&Slot| slot.version.load(Ordering::Relaxed) != from.version;
        // Without a free slot the two take turns.
        let turn =
            || set.iter().fold(0, |sum, slot| sum + slot.sequence.load(Ordering::Relaxed) / 2);
        let slot = set.iter().find(|slot| slot.has(key)).or_else(|| set.iter().find(is_stale));
        let Some(slot) = slot.or_else(|| set.get(turn() as usize % WAYS)) else { return };
        let sequence = slot.sequence.load(Ordering::Relaxed);
        let is_mine = sequence % 2 == 0
            && slot
                .sequence
                .compare_exchange(sequence, sequence + 1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        if !is_mine {
            return;
        }
        fence(Ordering::Release);
        slot.suffix.store(key.suffix, Ordering::Relaxed);
        slot.rest.store(key.rest, Ordering::Relaxed);
        slot.version.store(from.version, Ordering::Relaxed);
        slot.made_at_ms.store(from.now.as_millis(), Ordering::Relaxed);
        slot.write(candidates);
        slot.sequence.store(sequence + 2, Ordering::Release);
    }
}

/// Returns a candidate to what it was before it had estimates.
#[cold]
fn clear(candidate: &mut Scored<'_>) {
    candidate.success = candidate.spec.prior;
    candidate.basis = None;
    (candidate.spent_ms, candidate.spent_on, candidate.plain_ms) = (0.0, 0.0, 0.0);
}

impl Slot {
    #[inline]
    fn has(&self, key: GeneralKey) -> bool {
        // Relaxed: `load` checks again under the sequence number.
        self.rest.load(Ordering::Relaxed) == key.rest
            && self.suffix.load(Ordering::Relaxed) == key.suffix
    }

    #[inline]
    fn read(&self, candidates: &mut [Scored<'_>]) {
        let number = |of: &AtomicU64| f64::from_bits(of.load(Ordering::Relaxed));
        let parts = self.parts.load(Ordering::Relaxed);
        for (candidate, numbers) in candidates.iter_mut().zip(self.numbers.as_chunks::<NUMBERS>().0)
        {
            let [success, block, cost @ .., code, basis_success, sample, agreed_success, agreed] =
                numbers;
            (candidate.success, candidate.block) = (number(success), number(block));
            if parts & HAS_MEASURED_COST != 0 {
                let [spent_ms, spent_on, plain_ms] = cost;
                candidate.spent_ms = number(spent_ms);
                (candidate.spent_on, candidate.plain_ms) = (number(spent_on), number(plain_ms));
            }
            if parts & HAS_BASIS != 0 {
                candidate.basis =
                    specificity(code.load(Ordering::Relaxed)).map(|specificity| Basis {
                        specificity,
                        success: number(basis_success),
                        sample: number(sample),
                        recent: None,
                        agreed: (number(agreed_success), number(agreed)),
                    });
            }
        }
    }

    fn write(&self, candidates: &[Scored<'_>]) {
        let mut parts = 0;
        for (candidate, numbers) in candidates.iter().zip(self.numbers.as_chunks::<NUMBERS>().0) {
            let basis = candidate.basis.as_ref();
            let of_basis = |f: fn(&Basis) -> f64| basis.map_or(0.0, f).to_bits();
            let all = [
                candidate.success.to_bits(),
                candidate.block.to_bits(),
                candidate.spent_ms.to_bits(),
                candidate.spent_on.to_bits(),
                candidate.plain_ms.to_bits(),
                basis.map_or(0, |basis| code(basis.specificity)),
                of_basis(|basis| basis.success),
                of_basis(|basis| basis.sample),
                of_basis(|basis| basis.agreed.0),
                of_basis(|basis| basis.agreed.1),
            ];
            numbers
                .iter()
                .zip(all)
                .for_each(|(number, value)| number.store(value, Ordering::Relaxed));
            if basis.is_some() {
                parts |= HAS_BASIS;
            }
            if candidate.plain_ms > 0.0 {
                parts |= HAS_MEASURED_COST;
            }
        }
        self.parts.store(parts, Ordering::Relaxed);
    }
}

/// Returns a general level as a number; 0 is none.
fn code(specificity: Specificity) -> u64 {
    match specificity {
        Specificity::Own(place) => 0x100 | u64::from(place),
        Specificity::Flag(place) => 0x200 | u64::from(place),
        Specificity::Suffix => 0x300,
        // Not general: never kept.
        Specificity::Site | Specificity::Domain | Specificity::DomainPath => 0,
    }
}

fn specificity(code: u64) -> Option<Specificity> {
    let place = (code & 0xff) as u8;
    match code >> 8 {
        1 => Some(Specificity::Own(place)),
        2 => Some(Specificity::Flag(place)),
        3 => Some(Specificity::Suffix),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use fetchwise_types::registry::{FetcherId, FetcherSpec};

    fn key(depth: u32) -> GeneralKey {
        GeneralKey::new(ContentKind::Page, depth, [false; 4], 0, None)
    }

    fn at(version: u64, ms: i64) -> MadeFrom {
        MadeFrom { version, now: Timestamp::from_millis(ms) }
    }

    fn candidates(specs: &[FetcherSpec], value: f64) -> Vec<Scored<'_>> {
        let basis =
            Basis { agreed: (value, value), ..Basis::new(Specificity::Suffix, value, value, None) };
        let scored = specs
            .iter()
            .enumerate()
            .map(|(place, spec)| Scored::unknown(FetcherId(place as u16), spec));
        scored.map(|c| Scored { success: value, block: value, basis: Some(basis), ..c }).collect()
    }

    fn specs() -> Vec<FetcherSpec> {
        ["direct_access", "playwright", "playwright_stealth"].map(FetcherSpec::by_name).to_vec()
    }

    #[test]
    fn estimates_are_kept_for_their_key_version_and_minute() {
        let specs = specs();
        for (is_exact, age) in [(false, MAX_AGE_MS as i64), (true, 0)] {
            let cache = GeneralCache::new(specs.len(), is_exact);
            let mut read = candidates(&specs, 0.0);
            assert!(!cache.load(key(1), at(0, 0), &mut read), "nothing is kept yet");
            cache.store(key(1), at(7, 1000), &candidates(&specs, 0.25));
            for (key, from) in
                [(key(2), at(7, 1000)), (key(1), at(8, 1000)), (key(1), at(7, 1001 + age))]
            {
                assert!(!cache.load(key, from, &mut read));
            }
            for ms in [1000, 1000 + age, 1000 - age] {
                assert!(cache.load(key(1), at(7, ms), &mut read));
                let of = |c: &Scored<'_>| (c.success, c.block, c.basis);
                let want = candidates(&specs, 0.25);
                assert_eq!(
                    read.iter().map(of).collect::<Vec<_>>(),
                    want.iter().map(of).collect::<Vec<_>>()
                );
            }
        }
    }

    #[test]
    fn all_combinations_of_a_crawl_are_kept_at_the_same_time() {
        let specs = specs();
        let cache = GeneralCache::new(specs.len(), true);
        let keys: Vec<GeneralKey> = (0..24).map(key).collect();
        keys.iter().for_each(|key| cache.store(*key, at(1, 0), &candidates(&specs, 0.5)));
        let kept = keys
            .iter()
            .filter(|key| cache.load(**key, at(1, 0), &mut candidates(&specs, 0.0)))
            .count();
        assert!(kept >= 22, "{kept}");
    }

    #[test]
    fn a_reader_never_sees_the_estimates_of_two_writers() {
        let specs = specs();
        let (cache, ends) = (GeneralCache::new(specs.len(), true), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for writer in 1..3_u32 {
                let (cache, ends, specs) = (&cache, &ends, &specs);
                scope.spawn(move || {
                    for n in 0..20_000_u32 {
                        cache.store(
                            key(1),
                            at(0, 0),
                            &candidates(specs, f64::from(n * 4 + writer)),
                        );
                    }
                    ends.store(true, Ordering::Relaxed);
                });
            }
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    let mut read = candidates(&specs, 0.0);
                    if cache.load(key(1), at(0, 0), &mut read) {
                        let first = read[0].success;
                        assert!(read.iter().all(|c| (c.success, c.block) == (first, first)));
                        assert!(
                            read.iter().all(|c| c
                                .basis
                                .is_some_and(|basis| basis.agreed == (first, first)))
                        );
                    }
                }
            });
        });
    }
}
