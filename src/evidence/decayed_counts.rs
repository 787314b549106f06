//! One cell: the evidence about one fetcher under one key, as lock-free atomic counts.
//!
//! Invariants: a reader sees `success <= total` and `blocked <= total`. A writer adds to the total
//! first, a reader loads it last and clamps the others to it. Clamping matters while a cell is
//! cleared or an attempt is subtracted: an attempt added at that moment may leave a part of itself.
//! A cell is claimed once by compare-and-swap and never freed.
//!
//! Must not know: the meaning of its key.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::decay::Decay;
use fetchwise_types::time::Timestamp;

/// Attempts that the recent pair remembers, so that a busy site's change shows within tens of them.
const MAX_RECENT: f64 = 64.0;
/// The chance of the opposite outcome, as the alert pair saw it, above which an outcome makes the
/// pair forget: about a half.
const SURPRISE_FROM: f32 = 0.47;
/// The increase of forgetting with that chance.
const FORGET: f32 = 2.0;
/// The fraction that remains after the greatest surprise, so that a single attempt never decides.
const MIN_KEEP: f32 = 0.05;

/// Seconds by which an attempt of another process may be older than the newest one and still count
/// as recent: clocks differ, and batches wait.
const LATE_S: u32 = 60;

/// Marks in the two top bits of a cell's count of attempts: whether the fetcher has contributed
/// since its host shows its current signals, and the result of its last attempt, valid only if it
/// has contributed.
const CONTRIBUTED: u32 = 1 << 31;
const LAST_SUCCESS: u32 = 1 << 30;
const COUNT: u32 = LAST_SUCCESS - 1;

/// The change that one attempt makes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Increment {
    /// Time of the attempt.
    pub at: Timestamp,
    /// Weight: 0.5 for a timeout, else 1.
    pub weight: f64,
    /// Whether content was delivered.
    pub success: bool,
    /// Whether it was blocked.
    pub blocked: bool,
    /// Duration in milliseconds.
    pub duration_ms: f64,
}

/// Number of threads that may add to a cell at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writers {
    /// Any number of recording threads: each change is one atomic step.
    Many,
    /// One thread of a replay, which has all of the cell's attempts: a load and a store are enough.
    One,
}

impl Writers {
    /// Changes the value of an atomic and returns the previous one.
    #[inline]
    fn change(self, of: &AtomicU64, order: Ordering, f: impl Fn(u64) -> u64) -> u64 {
        match self {
            Self::Many => {
                let changed = of.fetch_update(order, Ordering::Relaxed, |bits| Some(f(bits)));
                changed.unwrap_or_else(|bits| bits)
            }
            Self::One => {
                let before = of.load(Ordering::Relaxed);
                let after = f(before);
                debug_assert_eq!(
                    of.load(Ordering::Relaxed),
                    before,
                    "another thread adds to the cell of one writer"
                );
                of.store(after, order);
                before
            }
        }
    }

    /// Increments a counter.
    #[inline]
    pub(crate) fn count(self, of: &AtomicU32) {
        match self {
            Self::Many => drop(of.fetch_add(1, Ordering::Relaxed)),
            Self::One => of.store(of.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed),
        }
    }

    /// Raises a value to `at_least` and returns the result.
    #[inline]
    fn raise(self, of: &AtomicU32, at_least: u32) -> u32 {
        match self {
            Self::Many => of.fetch_max(at_least, Ordering::Relaxed).max(at_least),
            Self::One => {
                let most = of.load(Ordering::Relaxed).max(at_least);
                of.store(most, Ordering::Relaxed);
                most
            }
        }
    }
}

/// The decayed weights of one heuristic and fetcher at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Weights {
    /// The weight of the successes.
    pub success: f64,
    /// The weight of the attempts that counted.
    pub total: f64,
    /// The weight of the blocks.
    pub blocked: f64,
    /// Milliseconds spent, each weighted like its attempt.
    pub duration_ms: f64,
    /// Attempts that counted, undecayed.
    pub attempts: u32,
    /// The recent pair's successes.
    pub recent_success: f64,
    /// The recent pair's attempts, at most 64.
    pub recent_total: f64,
    /// The alert pair's successes. It works like the recent pair, but a surprising outcome makes it
    /// forget.
    pub alert_success: f64,
    /// The alert pair's attempts, at most 64.
    pub alert_total: f64,
    /// The time of the newest attempt in seconds since 1970, if the cell keeps a recent pair; 0 if
    /// unknown.
    pub newest_s: u32,
}

impl Weights {
    /// Returns the weights without the blocks. The pairs have no blocks of their own: the fraction
    /// of blocks among all failures is taken from their failures.
    pub(crate) fn without_blocks(&self) -> Self {
        let failed = self.total - self.success;
        let blocked = self.blocked.min(failed).max(0.0);
        let kept = if failed > 0.0 { 1.0 - blocked / failed } else { 1.0 };
        let rest = |success: f64, total: f64| success + (total - success).max(0.0) * kept;
        let total = self.total - blocked;
        Self {
            total,
            blocked: 0.0,
            duration_ms: if self.total > 0.0 { self.duration_ms * total / self.total } else { 0.0 },
            recent_total: rest(self.recent_success, self.recent_total),
            alert_total: rest(self.alert_success, self.alert_total),
            ..*self
        }
    }

    /// Returns the sum of two cells that together stand for one key. Each recent pair has seen only
    /// some of the attempts, so their sum is scaled back to the capacity of one pair.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        let pair = |(a_success, a_total): (f64, f64), (b_success, b_total): (f64, f64)| {
            let (success, total) = (a_success + b_success, a_total + b_total);
            let scale = if total > MAX_RECENT { MAX_RECENT / total } else { 1.0 };
            (success * scale, total * scale)
        };
        let (recent_success, recent_total) = pair(
            (self.recent_success, self.recent_total),
            (other.recent_success, other.recent_total),
        );
        let (alert_success, alert_total) =
            pair((self.alert_success, self.alert_total), (other.alert_success, other.alert_total));
        Self {
            success: self.success + other.success,
            total: self.total + other.total,
            blocked: self.blocked + other.blocked,
            duration_ms: self.duration_ms + other.duration_ms,
            attempts: self.attempts.saturating_add(other.attempts),
            recent_success,
            recent_total,
            alert_success,
            alert_total,
            newest_s: self.newest_s.max(other.newest_s),
        }
    }
}

/// The content of a cell as plain numbers, on its evidence's scale.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RawCounts {
    pub(crate) success: f64,
    pub(crate) total: f64,
    pub(crate) blocked: f64,
    pub(crate) duration: f64,
    pub(crate) recent_success: f32,
    pub(crate) recent_total: f32,
    /// 0 of 0 if the recent pair stands in for it.
    pub(crate) alert_success: f32,
    pub(crate) alert_total: f32,
    pub(crate) newest_s: u32,
    pub(crate) attempts: u32,
    /// The marks, in the two lowest bits.
    pub(crate) marks: u32,
}

/// The largest weight that an image of any origin can bring: sums of many such weights stay finite.
const MAX_WEIGHT: f64 = 1e270;

impl RawCounts {
    /// Returns the content with its weights multiplied by `scale`. They stay finite. With
    /// `present`, the weight of one attempt at the present, they also stay below the weight of as
    /// many attempts at the present: no attempt was made later, whatever the clock said that its
    /// weight was stored under.
    pub(crate) fn rescaled(&self, scale: f64, present: Option<f64>) -> Self {
        let most = present
            .map_or(MAX_WEIGHT, |unit| (unit * f64::from(self.attempts & COUNT)).min(MAX_WEIGHT));
        // Rounding may have raised a sum slightly above it.
        let is_within = self.total * scale <= most * (1.0 + 1e-6);
        let factor = if is_within { scale } else { most / self.total };
        let pair = |success, total| {
            rescaled_pair((success, total), scale, present.map(|unit| unit * MAX_RECENT))
        };
        let ((recent_success, recent_total), (alert_success, alert_total)) = (
            pair(self.recent_success, self.recent_total),
            pair(self.alert_success, self.alert_total),
        );
        Self {
            success: self.success.min(self.total) * factor,
            total: self.total * factor,
            blocked: self.blocked.min(self.total) * factor,
            duration: (self.duration * factor).min(f64::MAX),
            recent_success,
            recent_total,
            alert_success,
            alert_total,
            ..*self
        }
    }
    /// Returns a difference from `other` that exceeds the rounding of sums in another order.
    pub(crate) fn difference(&self, other: &Self) -> Option<&'static str> {
        let far = |a: f64, b: f64, share: f64| {
            (a - b).abs() > share * a.abs().max(b.abs()).max(f64::MIN_POSITIVE)
        };
        if self.attempts != other.attempts {
            return Some("the counts of attempts differ");
        }
        let exact = [
            (self.total, other.total),
            (self.success, other.success),
            (self.blocked, other.blocked),
        ];
        // After a subtraction the remainder is as exact as the whole was.
        let scale = self.total.abs().max(other.total.abs());
        if exact.iter().any(|(a, b)| (a - b).abs() > 1e-9 * scale) {
            return Some("the weights differ");
        }
        if far(self.duration, other.duration, 1e-6) {
            return Some("the durations differ");
        }
        let recent =
            [(self.recent_total, other.recent_total), (self.recent_success, other.recent_success)];
        let far_recent =
            |(a, b): &(f32, f32)| (a - b).abs() > 1e-3 * self.recent_total.max(other.recent_total);
        recent.iter().any(far_recent).then_some("the recent weights differ")
    }
}

/// Atomic counts of one cell. `tag` is 0 while the cell is free.
#[derive(Debug, Default)]
pub(crate) struct DecayedCounts {
    tag: AtomicU64,
    success: AtomicU64,
    total: AtomicU64,
    blocked: AtomicU64,
    duration: AtomicU64,
    recent: AtomicU64,
    /// 0 if there is none: the recent pair stands in for it.
    alert: AtomicU64,
    newest_s: AtomicU32,
    attempts: AtomicU32,
}

impl DecayedCounts {
    /// Returns the tag that this cell is claimed for, or 0.
    pub(crate) fn tag(&self) -> u64 {
        // Acquire pairs with the AcqRel in `claim`.
        self.tag.load(Ordering::Acquire)
    }

    /// Reads any field of the cell to prefetch it.
    #[inline]
    pub(crate) fn touch(&self) -> u32 {
        self.attempts.load(Ordering::Relaxed)
    }

    /// Returns whether an attempt succeeded.
    pub(crate) fn has_success(&self) -> bool {
        // Relaxed: an attempt that is recorded at the same moment may be missed.
        f64::from_bits(self.success.load(Ordering::Relaxed)) > 0.0
    }

    /// Returns the undecayed weight of the attempts.
    pub(crate) fn weight(&self) -> f64 {
        f64::from_bits(self.total.load(Ordering::Relaxed))
    }

    /// Claims the cell for `tag` (not 0). Returns true if the cell belongs to this tag, now or
    /// since before.
    #[inline]
    pub(crate) fn claim(&self, tag: u64) -> bool {
        // Usually the cell is claimed already, and a load leaves its cache line shared with other
        // readers.
        match self.tag() {
            0 => {}
            holder => return holder == tag,
        }
        // Pairs with the Acquire in `tag`; its two sides pair with each other when two threads
        // claim at once.
        match self.tag.compare_exchange(0, tag, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(holder) => holder == tag,
        }
    }

    /// Returns the time in seconds and the result of the fetcher's last attempt, if it has
    /// contributed since its host shows its current signals.
    pub(crate) fn last(&self) -> Option<(u32, bool)> {
        // Relaxed: an attempt recorded at the same moment may be seen as the previous or the next
        // one.
        let marks = self.attempts.load(Ordering::Relaxed);
        (marks & CONTRIBUTED != 0)
            .then(|| (self.newest_s.load(Ordering::Relaxed), marks & LAST_SUCCESS != 0))
    }

    /// Marks the fetcher as having contributed, with the result of this attempt.
    pub(crate) fn mark(&self, success: bool) {
        let marked =
            |bits: u32| Some(bits & COUNT | CONTRIBUTED | if success { LAST_SUCCESS } else { 0 });
        let _ = self.attempts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, marked);
    }

    /// Clears the marks, because the host shows other signals from now on.
    pub(crate) fn unmark(&self) {
        self.attempts.fetch_and(COUNT, Ordering::Relaxed);
    }

    /// Returns whether an attempt at `at` is older than the newest by more than a minute. Valid
    /// only if the cell keeps a recent pair.
    pub(crate) fn is_older(&self, at: Timestamp) -> bool {
        // Relaxed: a stale time lets one more attempt count as recent.
        let newest_s = self.newest_s.load(Ordering::Relaxed);
        at.as_millis().div_euclid(1000) < i64::from(newest_s.saturating_sub(LATE_S))
    }

    /// Adds one attempt; `recent` says whether to update the recent pair as well. Returns the
    /// undecayed total before and after.
    pub(crate) fn add(
        &self,
        decay: &Decay,
        up: f64,
        what: &Increment,
        recent: bool,
        writers: Writers,
    ) -> (f64, f64) {
        let weight = up * what.weight;
        let add = |to: &AtomicU64, weight: f64, order| {
            f64::from_bits(
                writers.change(to, order, |bits| (f64::from_bits(bits) + weight).to_bits()),
            )
        };
        // The total goes first. Release on the others pairs with Acquire in `read`, which loads the
        // total last.
        let before = add(&self.total, weight, Ordering::Relaxed);
        if what.success {
            add(&self.success, weight, Ordering::Release);
        }
        if what.blocked {
            add(&self.blocked, weight, Ordering::Release);
        }
        if what.duration_ms > 0.0 {
            add(&self.duration, weight * what.duration_ms, Ordering::Relaxed);
        }
        // Relaxed: a statistic; a reader may see it one attempt late.
        writers.count(&self.attempts);
        if recent {
            self.add_recent(decay, up, what, writers);
        }
        (before, before + weight)
    }

    /// Adds to the recent pair and the alert pair, then scales each to at most 64 attempts as of
    /// the newest time seen.
    fn add_recent(&self, decay: &Decay, up: f64, what: &Increment, writers: Writers) {
        let weight = (up * what.weight) as f32;
        let at_s = u32::try_from(what.at.as_millis().div_euclid(1000).max(0)).unwrap_or(u32::MAX);
        // Relaxed here and below: the pair is a cache in one atomic; a stale newest time scales it
        // slightly too low.
        let newest_s = writers.raise(&self.newest_s, at_s);
        let newest = Timestamp::from_millis(i64::from(newest_s) * 1000).max(what.at);
        let most = (MAX_RECENT * if newest == what.at { up } else { decay.up(newest) }) as f32;
        if !most.is_finite() || !weight.is_finite() {
            // The value exceeds f32, 120 half-lives after the landmark: the pair stays unchanged
            // until weights are rebased.
            return;
        }
        let added = |(mut success, mut total): (f32, f32)| {
            total += weight;
            if what.success {
                success += weight;
            }
            if total > most {
                success *= most / total;
                total = most;
            }
            pack(success.min(total), total)
        };
        let before =
            writers.change(&self.recent, Ordering::Relaxed, |packed| added(unpack(packed)));
        let unit = most / MAX_RECENT as f32;
        writers.change(&self.alert, Ordering::Relaxed, |packed| {
            let pair = unpack(if packed == 0 { before } else { packed });
            added(after_surprise(pair, what, unit))
        });
    }

    /// Turns a failure that was added before into a success. A pair that has forgotten the failure
    /// since is not filled beyond its total.
    pub(crate) fn credit(&self, up: f64, recent: bool, writers: Writers) {
        // Release pairs with the Acquire in `read`, as in `add`.
        writers
            .change(&self.success, Ordering::Release, |bits| (f64::from_bits(bits) + up).to_bits());
        if recent {
            let credited = |packed| {
                let (success, total) = unpack(packed);
                pack((success + up as f32).min(total), total)
            };
            writers.change(&self.recent, Ordering::Relaxed, credited);
            writers.change(&self.alert, Ordering::Relaxed, credited);
        }
    }

    /// Clears the cell. Relaxed throughout: concurrent readers clamp to the total.
    pub(crate) fn clear(&self) {
        for part in
            [&self.success, &self.blocked, &self.duration, &self.recent, &self.alert, &self.total]
        {
            part.store(0, Ordering::Relaxed);
        }
        self.newest_s.store(0, Ordering::Relaxed);
        self.attempts.store(0, Ordering::Relaxed);
    }

    /// Returns the weights as of the time that `down` belongs to.
    pub(crate) fn read(&self, down: f64) -> Weights {
        // Acquire pairs with the Release in `add`: the total read below holds every success and
        // block read here.
        let success = f64::from_bits(self.success.load(Ordering::Acquire)) * down;
        let blocked = f64::from_bits(self.blocked.load(Ordering::Acquire)) * down;
        let total = f64::from_bits(self.total.load(Ordering::Relaxed)) * down;
        let (success, blocked) = (success.min(total), blocked.min(total));
        let recent = self.recent.load(Ordering::Relaxed);
        let (recent_success, recent_total) = unpack(recent);
        let alert = self.alert.load(Ordering::Relaxed);
        let (alert_success, alert_total) = unpack(if alert == 0 { recent } else { alert });
        Weights {
            success,
            total,
            blocked,
            duration_ms: f64::from_bits(self.duration.load(Ordering::Relaxed)) * down,
            attempts: self.attempts.load(Ordering::Relaxed) & COUNT,
            recent_success: f64::from(recent_success) * down,
            recent_total: f64::from(recent_total) * down,
            alert_success: f64::from(alert_success) * down,
            alert_total: f64::from(alert_total) * down,
            // Relaxed: a stale time permits one more exploration.
            newest_s: self.newest_s.load(Ordering::Relaxed),
        }
    }
}

impl DecayedCounts {
    /// Subtracts one attempt: the inverse of [`add`](Self::add) to within rounding, and exactly
    /// zero after the last attempt. The recent and alert pairs, which have forgotten their parts,
    /// lose as much as they have.
    pub(crate) fn subtract(&self, up: f64, what: &Increment, recent: bool) {
        let weight = up * what.weight;
        let last = self.attempts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
            (n & COUNT).checked_sub(1).map(|_| n - 1)
        });
        let last = last.is_ok_and(|n| n & COUNT == 1);
        // The parts go before the total, so that they seldom exceed it; if they do, `read` clamps
        // them.
        let weight_of =
            |counts: bool| if last { f64::INFINITY } else { weight * f64::from(u8::from(counts)) };
        sub_f64(&self.success, weight_of(what.success));
        sub_f64(&self.blocked, weight_of(what.blocked));
        sub_f64(
            &self.duration,
            if last { f64::INFINITY } else { weight * what.duration_ms.max(0.0) },
        );
        sub_f64(&self.total, weight_of(true));
        if recent {
            let less = |packed| {
                let (success, total) = unpack(packed);
                let total = (total - weight_of(true) as f32).max(0.0);
                Some(pack((success - weight_of(what.success) as f32).clamp(0.0, total), total))
            };
            let _ = self.recent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
            let _ = self.alert.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// Subtracts a credit: the inverse of [`credit`](Self::credit).
    pub(crate) fn subtract_credit(&self, up: f64, recent: bool) {
        sub_f64(&self.success, up);
        if recent {
            let less = |packed| {
                let (success, total) = unpack(packed);
                Some(pack((success - up as f32).max(0.0), total))
            };
            let _ = self.recent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
            let _ = self.alert.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// Returns the whole content, undecayed.
    pub(crate) fn raw(&self) -> RawCounts {
        // Acquire pairs with the Release in `add`, as in `read`.
        let load = |part: &AtomicU64| f64::from_bits(part.load(Ordering::Acquire));
        let (success, blocked) = (load(&self.success), load(&self.blocked));
        let (recent_success, recent_total) = unpack(self.recent.load(Ordering::Relaxed));
        let (alert_success, alert_total) = unpack(self.alert.load(Ordering::Relaxed));
        let attempts = self.attempts.load(Ordering::Relaxed);
        RawCounts {
            success,
            blocked,
            duration: load(&self.duration),
            total: load(&self.total),
            recent_success,
            recent_total,
            alert_success,
            alert_total,
            newest_s: self.newest_s.load(Ordering::Relaxed),
            attempts: attempts & COUNT,
            marks: attempts >> 30,
        }
    }

    /// Sets the content of a cell that no other thread has yet.
    pub(crate) fn restore(&self, raw: &RawCounts) {
        // Relaxed: publishing the entry makes it visible.
        let weights =
            [(&self.success, raw.success), (&self.total, raw.total), (&self.blocked, raw.blocked)];
        for (part, weight) in weights.into_iter().chain([(&self.duration, raw.duration)]) {
            part.store(weight.to_bits(), Ordering::Relaxed);
        }
        self.recent.store(pack(raw.recent_success, raw.recent_total), Ordering::Relaxed);
        self.alert.store(pack(raw.alert_success, raw.alert_total), Ordering::Relaxed);
        self.newest_s.store(raw.newest_s, Ordering::Relaxed);
        self.attempts.store(raw.attempts & COUNT | raw.marks << 30, Ordering::Relaxed);
    }

    /// Adds the content of another cell of the same scale.
    pub(crate) fn absorb(&self, raw: &RawCounts) {
        if self.attempts.load(Ordering::Relaxed) & COUNT == 0 {
            // At startup no other thread has the cell yet, so stores are enough. Release pairs with
            // the Acquire in `read`, as in `add`.
            self.total.store(raw.total.to_bits(), Ordering::Relaxed);
            self.duration.store(raw.duration.to_bits(), Ordering::Relaxed);
            self.recent.store(pack(raw.recent_success, raw.recent_total), Ordering::Relaxed);
            self.alert.store(pack(raw.alert_success, raw.alert_total), Ordering::Relaxed);
            self.newest_s.store(raw.newest_s, Ordering::Relaxed);
            self.attempts.store(raw.attempts & COUNT | raw.marks << 30, Ordering::Relaxed);
            self.success.store(raw.success.min(raw.total).to_bits(), Ordering::Release);
            self.blocked.store(raw.blocked.min(raw.total).to_bits(), Ordering::Release);
            return;
        }
        // The total goes first. Release on the others pairs with the Acquire in `read`, as in
        // `add`.
        add_f64(&self.total, raw.total, Ordering::Relaxed);
        add_f64(&self.success, raw.success.min(raw.total), Ordering::Release);
        add_f64(&self.blocked, raw.blocked.min(raw.total), Ordering::Release);
        add_f64(&self.duration, raw.duration, Ordering::Relaxed);
        self.attempts.fetch_add(raw.attempts & COUNT, Ordering::Relaxed);
        self.newest_s.fetch_max(raw.newest_s, Ordering::Relaxed);
        let plus = |packed, success: f32, total: f32| {
            let (had_success, had_total) = unpack(packed);
            Some(pack(had_success + success, had_total + total))
        };
        // Images of a release without alert pairs have the recent pair stand in for it.
        let (alert_success, alert_total) = match raw.alert_total > 0.0 {
            true => (raw.alert_success, raw.alert_total),
            false => (raw.recent_success, raw.recent_total),
        };
        let (before, relaxed) = (self.recent.load(Ordering::Relaxed), Ordering::Relaxed);
        let _ = self.alert.fetch_update(relaxed, relaxed, |packed| {
            plus(if packed == 0 { before } else { packed }, alert_success, alert_total)
        });
        let _ = self.recent.fetch_update(relaxed, relaxed, |packed| {
            plus(packed, raw.recent_success, raw.recent_total)
        });
    }
}

/// Evidence snapshots of other processes, which are added and subtracted concurrently with all
/// other operations.
impl DecayedCounts {
    /// Adds the content of another process's cell, on the same scale. The recent pairs are copied
    /// only to a cell that has none.
    pub(crate) fn add_remote(&self, raw: &RawCounts) {
        // The total goes first. Release on the others pairs with the Acquire in `read`, as in
        // `add`.
        add_f64(&self.total, raw.total, Ordering::Relaxed);
        add_f64(&self.success, raw.success.min(raw.total), Ordering::Release);
        add_f64(&self.blocked, raw.blocked.min(raw.total), Ordering::Release);
        add_f64(&self.duration, raw.duration, Ordering::Relaxed);
        self.attempts.fetch_add(raw.attempts & COUNT, Ordering::Relaxed);
        let recent = pack(raw.recent_success, raw.recent_total);
        let relaxed = Ordering::Relaxed;
        if self.newest_s.load(relaxed) == 0
            && self.recent.compare_exchange(0, recent, relaxed, relaxed).is_ok()
        {
            let _ = self.alert.compare_exchange(
                0,
                pack(raw.alert_success, raw.alert_total),
                relaxed,
                relaxed,
            );
            self.newest_s.fetch_max(raw.newest_s, relaxed);
        }
    }

    /// Subtracts what [`add_remote`](Self::add_remote) added, to within rounding; the result is
    /// exactly zero once no attempt is left. The recent and alert pairs lose as much as they have.
    pub(crate) fn subtract_remote(&self, raw: &RawCounts) {
        let (relaxed, given) = (Ordering::Relaxed, raw.attempts & COUNT);
        let less = |n: u32| Some(n - (n & COUNT).min(given));
        let before = self.attempts.fetch_update(relaxed, relaxed, less).unwrap_or_default() & COUNT;
        let is_last = before <= given;
        // The parts go before the total, so that they seldom exceed it; if they do, `read` clamps
        // them.
        let of = |weight: f64| if is_last { f64::INFINITY } else { weight };
        sub_f64(&self.success, of(raw.success.min(raw.total)));
        sub_f64(&self.blocked, of(raw.blocked.min(raw.total)));
        sub_f64(&self.duration, of(raw.duration));
        sub_f64(&self.total, of(raw.total));
        let pair = |packed, success: f32, total: f32| {
            let (had_success, had_total) = unpack(packed);
            let total = (had_total - of(f64::from(total)) as f32).max(0.0);
            Some(pack((had_success - of(f64::from(success)) as f32).clamp(0.0, total), total))
        };
        let _ = self
            .recent
            .fetch_update(relaxed, relaxed, |p| pair(p, raw.recent_success, raw.recent_total));
        let _ = self
            .alert
            .fetch_update(relaxed, relaxed, |p| pair(p, raw.alert_success, raw.alert_total));
        if is_last {
            self.newest_s.store(0, relaxed);
        }
    }
}

/// Returns a pair with its weights multiplied by `scale`, and at most `most` in total. A pair that
/// leaves the range of `f32` is dropped.
pub(super) fn rescaled_pair(
    (success, total): (f32, f32),
    scale: f64,
    most: Option<f64>,
) -> (f32, f32) {
    let (success, total) = (f64::from(success), f64::from(total));
    let factor = match most {
        Some(most) if total * scale > most * (1.0 + 1e-3) => most / total,
        _ => scale,
    };
    let (success, total) = ((success * factor) as f32, (total * factor) as f32);
    if success.is_finite() && total.is_finite() { (success, total) } else { (0.0, 0.0) }
}

fn add_f64(to: &AtomicU64, weight: f64, order: Ordering) {
    let _ = to.fetch_update(order, Ordering::Relaxed, |bits| {
        Some((f64::from_bits(bits) + weight).to_bits())
    });
}

/// Subtracts, down to 0. Relaxed: `read` clamps to the total what it sees of a concurrent
/// subtraction.
fn sub_f64(from: &AtomicU64, weight: f64) {
    if weight > 0.0 {
        let _ = from.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bits| {
            Some((f64::from_bits(bits) - weight).max(0.0).to_bits())
        });
    }
}

/// Returns the alert pair before `what` is added, shrunk by the degree to which `what` contradicts
/// it. `unit` is one attempt's weight.
///
/// A site that served plain requests 64 times in a row forgets nearly all of that when one fails,
/// and is certain again five successes later. A site where half of them fail is never surprised and
/// remembers all 64.
fn after_surprise((success, total): (f32, f32), what: &Increment, unit: f32) -> (f32, f32) {
    // Laplace's rule of succession, so that one success does not make the next one certain.
    let rate = (success + unit) / (total + 2.0 * unit);
    let surprise = if what.success { 1.0 - rate } else { rate };
    let keep =
        (1.0 - FORGET * (surprise - SURPRISE_FROM).max(0.0) * what.weight as f32).max(MIN_KEEP);
    (success * keep, total * keep)
}

pub(super) fn pack(success: f32, total: f32) -> u64 {
    u64::from(success.to_bits()) << 32 | u64::from(total.to_bits())
}

pub(super) fn unpack(packed: u64) -> (f32, f32) {
    (f32::from_bits((packed >> 32) as u32), f32::from_bits(packed as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decay() -> Decay {
        Decay::new(30.0, Timestamp::from_millis(1_800_000_000_000)).unwrap()
    }

    fn add(cell: &DecayedCounts, decay: &Decay, at_ms: i64, success: bool) {
        let at = Timestamp::from_millis(at_ms);
        let what = Increment { at, weight: 1.0, success, blocked: !success, duration_ms: 5.0 };
        cell.add(decay, decay.up(at), &what, true, Writers::Many);
    }

    #[test]
    fn a_claim_holds_for_its_tag_only() {
        let cell = DecayedCounts::default();
        assert!(cell.claim(7) && cell.claim(7) && !cell.claim(8));
        assert_eq!(cell.tag(), 7);
    }

    #[test]
    fn the_recent_pair_forgets_a_busy_past_that_the_exact_weights_keep() {
        let (cell, decay, now) = (DecayedCounts::default(), decay(), 1_800_000_000_000);
        for n in 0..100_000 {
            add(&cell, &decay, now + n, true);
        }
        for n in 0..110 {
            add(&cell, &decay, now + 100_000 + n, n % 20 == 0);
        }
        let weights = cell.read(decay.down(Timestamp::from_millis(now + 100_110)));
        assert!(weights.success / weights.total > 0.99);
        assert!(
            weights.recent_total <= 64.1 && weights.recent_success / weights.recent_total < 0.3,
            "{weights:?}"
        );
        assert_eq!(weights.attempts, 100_110);
    }

    #[test]
    fn the_alert_pair_reacts_to_a_change_within_a_few_attempts_after_any_past() {
        let (cell, decay, now) = (DecayedCounts::default(), decay(), 1_800_000_000_000);
        let rate = |at: i64| {
            let weights = cell.read(decay.down(Timestamp::from_millis(at)));
            weights.alert_success / weights.alert_total
        };
        for n in 0..10_000 {
            add(&cell, &decay, now + n, true);
        }
        add(&cell, &decay, now + 10_000, false);
        assert!(rate(now + 10_000) > 0.7, "one failure decides nothing: {}", rate(now + 10_000));
        for n in 1..6 {
            add(&cell, &decay, now + 10_000 + n, false);
        }
        assert!(rate(now + 10_006) < 0.33, "{}", rate(now + 10_006));
        for n in 0..6 {
            add(&cell, &decay, now + 10_010 + n, true);
        }
        assert!(rate(now + 10_016) > 0.67, "recovered: {}", rate(now + 10_016));
    }

    #[test]
    fn a_cell_cleared_during_writes_never_shows_more_successes_than_attempts() {
        let (cell, decay) = (DecayedCounts::default(), decay());
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                (0..200_000).for_each(|n| add(&cell, &decay, 1_800_000_000_000 + n, n % 2 == 0))
            });
            while !writer.is_finished() {
                cell.clear();
                let seen = cell.read(1.0);
                assert!(seen.success <= seen.total && seen.blocked <= seen.total, "{seen:?}");
            }
        });
        cell.clear();
        assert_eq!(cell.read(1.0), Weights::default());
    }

    #[test]
    fn the_recent_pair_stands_in_for_an_alert_pair_missing_in_an_image() {
        let (decay, now) = (decay(), 1_800_000_000_000);
        let raw = RawCounts {
            success: 6.0,
            total: 8.0,
            recent_success: 6.0,
            recent_total: 8.0,
            attempts: 8,
            ..RawCounts::default()
        };
        let (fresh, used) = (DecayedCounts::default(), DecayedCounts::default());
        add(&used, &decay, now, true);
        for cell in [&fresh, &used] {
            let before = cell.read(1.0);
            cell.absorb(&raw);
            let after = cell.read(1.0);
            assert_eq!(after.attempts, before.attempts + 8);
            assert!((after.alert_total - before.alert_total - 8.0).abs() < 1e-6, "{after:?}");
            assert!((after.alert_success - before.alert_success - 6.0).abs() < 1e-6, "{after:?}");
        }
    }

    #[test]
    fn an_even_mix_of_results_is_never_a_surprise() {
        let (cell, decay, now) = (DecayedCounts::default(), decay(), 1_800_000_000_000);
        for n in 0..1000 {
            add(&cell, &decay, now + n, n % 2 == 0);
            let weights = cell.read(decay.down(Timestamp::from_millis(now + n)));
            assert!(
                n < 20 || (0.4..0.6).contains(&(weights.alert_success / weights.alert_total)),
                "{n}: {weights:?}"
            );
        }
    }

    #[test]
    fn a_reader_never_sees_more_successes_than_attempts() {
        let (cell, decay) = (DecayedCounts::default(), decay());
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                (0..200_000).for_each(|n| add(&cell, &decay, 1_800_000_000_000 + n, true))
            });
            while !writer.is_finished() {
                let seen = cell.read(1.0);
                assert!(seen.success <= seen.total, "{seen:?}");
            }
        });
    }
}
