//! Counts of one signal and fetcher: how attempts ended on hosts that had shown the signal before.
//!
//! Owns: the cell, the change that one attempt makes, and two estimates: how similar hosts with the
//! signal are, and whether their vendor has changed its policy.
//!
//! Invariants: each pair is one atomic, so a reader never sees more successes than attempts.
//!
//! Must not know: names.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::decay::Decay;
use crate::evidence::decayed_counts::rescaled_pair;
use crate::evidence::decayed_counts::{pack, unpack};
use crate::evidence::host_signal_slots::SignalId;
use fetchwise_types::heuristic::url::ContentKind;
use fetchwise_types::registry::FetcherId;
use fetchwise_types::time::Timestamp;

/// Number of attempts that a cell remembers.
const MAX_ATTEMPTS: f64 = 200.0;
/// The recent pair: its capacity in attempts, the attempts it needs to be trusted, and the
/// difference from which on it replaces the long-term pair.
const MAX_RECENT: f64 = 10.0;
const MIN_RECENT: f32 = 5.0;
const POLICY_CHANGE_FROM: f32 = 0.4;
/// The weight of a signal against a host's own attempts: the minimum if hosts differ entirely, the
/// maximum if they are all alike. A new signal weighs four attempts, by pseudo-comparisons.
const MIN_WEIGHT: f64 = 2.0;
const MAX_WEIGHT: f64 = 12.0;
const PSEUDO_COMPARISONS: f64 = 10.0;
const START_WEIGHT: f64 = 5.0;

/// One attempt as an observation about the signals that its host had shown before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SignalObservation {
    /// The signal of blocks and the signal of pages.
    pub(crate) signals: [Option<SignalId>; 2],
    pub(crate) fetcher: FetcherId,
    pub(crate) kind: ContentKind,
    pub(crate) at: Timestamp,
    /// The weight: each fetcher contributes once a day per host.
    pub(crate) weight: f32,
    pub(crate) success: bool,
    /// Result of the fetcher's previous attempt on the host, if that was at least half an hour ago.
    pub(crate) last: Option<bool>,
    /// Whether this is the first observation since the host shows its current signals.
    pub(crate) is_first: bool,
}

/// The values of a cell at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct SignalWeights {
    pub(crate) success: f64,
    pub(crate) total: f64,
    /// The weight of the signal against a host's own attempts, in attempts.
    pub(crate) alike: f64,
    /// Time at which the vendor changed its policy for this fetcher, in seconds since 1970; 0 for
    /// never.
    pub(crate) turned_s: u32,
    /// Hosts that have contributed.
    pub(crate) hosts: u32,
}

/// Atomic counts of one signal and fetcher.
#[derive(Debug, Default)]
pub(crate) struct SignalCounts {
    /// Successes and attempts, on the scale of the evidence.
    pair: AtomicU64,
    /// The same over about the last ten attempts.
    short: AtomicU64,
    /// Attempts that ended like the one before on the host, and attempts that had one before.
    alike: AtomicU64,
    /// Successes among both attempts of these comparisons.
    both: AtomicU32,
    /// The weight that follows from these three, in attempts against a host's own, as f32; 0 before
    /// the first comparison.
    weight: AtomicU32,
    newest_s: AtomicU32,
    turned_s: AtomicU32,
    hosts: AtomicU32,
}

/// The content of a cell as plain numbers, on its evidence's scale.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RawSignalCounts {
    pub(crate) pair: (f32, f32),
    pub(crate) short: (f32, f32),
    pub(crate) alike: (f32, f32),
    pub(crate) both: f32,
    pub(crate) newest_s: u32,
    pub(crate) turned_s: u32,
    pub(crate) hosts: u32,
}

impl SignalCounts {
    /// Adds one observation; `detects_change` says whether to detect a policy change of the vendor.
    pub(super) fn observe(
        &self,
        decay: &Decay,
        observation: &SignalObservation,
        detects_change: bool,
    ) {
        let up = decay.up(observation.at);
        let weight = (up * f64::from(observation.weight)) as f32;
        let at_s = seconds(observation.at);
        // Relaxed throughout: each pair is independent, and a stale newest time scales one slightly
        // too low.
        let newest_s = self.newest_s.fetch_max(at_s, Ordering::Relaxed).max(at_s);
        let unit = if newest_s == at_s {
            up
        } else {
            decay.up(Timestamp::from_millis(i64::from(newest_s) * 1000))
        };
        if observation.is_first {
            self.hosts.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(last) = observation.last {
            self.compare(observation.success, last);
        }
        if !(unit as f32).is_finite() || !weight.is_finite() {
            // The value exceeds f32, 120 half-lives after the landmark.
            return;
        }
        let add = |to: &AtomicU64, most: f64| {
            let most = (most * unit) as f32;
            let added = |bits| {
                let (mut success, mut total) = unpack(bits);
                total += weight;
                success += if observation.success { weight } else { 0.0 };
                let scale = if total > most { most / total } else { 1.0 };
                pack((success * scale).min(total * scale), total * scale)
            };
            let before =
                to.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bits| Some(added(bits)));
            unpack(added(before.unwrap_or_else(|bits| bits)))
        };
        let (success, total) = add(&self.pair, MAX_ATTEMPTS);
        if !detects_change {
            return;
        }
        let (short_success, short_total) = add(&self.short, MAX_RECENT);
        // Slightly less than five, since sums of weights are rounded.
        let is_sure = short_total >= (MIN_RECENT - 1e-3) * unit as f32;
        if is_sure && (short_success / short_total - success / total).abs() > POLICY_CHANGE_FROM {
            self.pair.store(pack(short_success, short_total), Ordering::Relaxed);
            self.turned_s.store(at_s, Ordering::Relaxed);
        }
    }

    fn compare(&self, success: bool, last: bool) {
        let before = self.alike.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bits| {
            let (alike, n) = unpack(bits);
            let scale = (MAX_ATTEMPTS as f32 / (n + 1.0)).min(1.0);
            Some(pack((alike + f32::from(u8::from(success == last))) * scale, (n + 1.0) * scale))
        });
        let (_, n) = unpack(before.unwrap_or_else(|bits| bits));
        let scale = (MAX_ATTEMPTS as f32 / (n + 1.0)).min(1.0);
        let more = f32::from(u8::from(success)) + f32::from(u8::from(last));
        let _ = self.both.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bits| {
            Some(((f32::from_bits(bits) + more) * scale).to_bits())
        });
        self.weight.store((self.compute_weight() as f32).to_bits(), Ordering::Relaxed);
    }

    /// Returns decayed successes and attempts at the time that `down` belongs to.
    #[inline]
    pub(crate) fn pair(&self, down: f64) -> (f64, f64) {
        let (success, total) = unpack(self.pair.load(Ordering::Relaxed));
        (f64::from(success) * down, f64::from(total) * down)
    }

    /// Returns the weight of the signal against a host's own attempts, in attempts.
    #[inline]
    pub(crate) fn weight(&self) -> f64 {
        match self.weight.load(Ordering::Relaxed) {
            0 => START_WEIGHT - 1.0,
            bits => f64::from(f32::from_bits(bits)),
        }
    }

    /// Returns the time at which the vendor changed its policy for the fetcher, in seconds since
    /// 1970; 0 for never.
    #[inline]
    pub(crate) fn turned_s(&self) -> u32 {
        self.turned_s.load(Ordering::Relaxed)
    }

    /// Returns all values at the time that `down` belongs to.
    pub(crate) fn read(&self, down: f64) -> SignalWeights {
        let (success, total) = self.pair(down);
        SignalWeights {
            success,
            total,
            alike: self.weight(),
            turned_s: self.turned_s(),
            hosts: self.hosts.load(Ordering::Relaxed),
        }
    }

    /// Returns the weight of the signal against a host's own attempts, in attempts.
    ///
    /// Two attempts on one host, at least half an hour apart, end alike more often than two
    /// attempts on any two hosts if hosts differ. The excess is twice the variance between hosts.
    /// The smaller it is, the more the signal says about each host.
    fn compute_weight(&self) -> f64 {
        let (alike, n) = unpack(self.alike.load(Ordering::Relaxed));
        let (alike, n) = (f64::from(alike), f64::from(n));
        let mean =
            (f64::from(f32::from_bits(self.both.load(Ordering::Relaxed))) + 2.0) / (2.0 * n + 4.0);
        let spread = (mean * (1.0 - mean)).max(1e-6);
        let between =
            if n > 0.0 { ((alike / n - (1.0 - 2.0 * spread)) / 2.0).max(0.0) } else { 0.0 };
        let shrunk =
            (n * between + PSEUDO_COMPARISONS * spread / START_WEIGHT) / (n + PSEUDO_COMPARISONS);
        (spread / shrunk - 1.0).clamp(MIN_WEIGHT, MAX_WEIGHT)
    }

    /// Forgets all attempts, because the vendor treats the fetcher differently since `turned_s`.
    pub(super) fn restart(&self, turned_s: u32) {
        self.set(&RawSignalCounts { turned_s, ..RawSignalCounts::default() });
    }

    /// Clears all counts.
    pub(super) fn clear(&self) {
        self.set(&RawSignalCounts::default());
    }

    /// Adds the content of another cell, with its weights multiplied by `scale`. Each pair may
    /// exceed its capacity until the next addition. With `present`, the weight of one attempt at
    /// the present, what is added has at most the weight of a full pair at the present.
    pub(crate) fn absorb(&self, raw: &RawSignalCounts, scale: f64, present: Option<f64>) {
        let own = self.raw();
        let pair =
            |pair, capacity: f64| rescaled_pair(pair, scale, present.map(|unit| unit * capacity));
        let plus = |a: (f32, f32), b: (f32, f32)| (a.0 + b.0, a.1 + b.1);
        self.set(&RawSignalCounts {
            pair: plus(own.pair, pair(raw.pair, MAX_ATTEMPTS)),
            short: plus(own.short, pair(raw.short, MAX_RECENT)),
            alike: plus(own.alike, raw.alike),
            both: own.both + raw.both,
            newest_s: own.newest_s.max(raw.newest_s),
            turned_s: own.turned_s.max(raw.turned_s),
            hosts: own.hosts.saturating_add(raw.hosts),
        });
    }

    /// Returns the whole content.
    pub(crate) fn raw(&self) -> RawSignalCounts {
        let pair = |of: &AtomicU64| unpack(of.load(Ordering::Relaxed));
        RawSignalCounts {
            pair: pair(&self.pair),
            short: pair(&self.short),
            alike: pair(&self.alike),
            both: f32::from_bits(self.both.load(Ordering::Relaxed)),
            newest_s: self.newest_s.load(Ordering::Relaxed),
            turned_s: self.turned_s.load(Ordering::Relaxed),
            hosts: self.hosts.load(Ordering::Relaxed),
        }
    }

    /// Replaces the content by `raw`.
    pub(crate) fn set(&self, raw: &RawSignalCounts) {
        let store = |of: &AtomicU64, (a, b): (f32, f32)| of.store(pack(a, b), Ordering::Relaxed);
        store(&self.pair, raw.pair);
        store(&self.short, raw.short);
        store(&self.alike, raw.alike);
        self.both.store(raw.both.to_bits(), Ordering::Relaxed);
        self.newest_s.store(raw.newest_s, Ordering::Relaxed);
        self.turned_s.store(raw.turned_s, Ordering::Relaxed);
        self.hosts.store(raw.hosts, Ordering::Relaxed);
        let weight = if raw.alike.1 > 0.0 { (self.compute_weight() as f32).to_bits() } else { 0 };
        self.weight.store(weight, Ordering::Relaxed);
    }
}

/// Returns seconds since 1970.
pub(crate) fn seconds(at: Timestamp) -> u32 {
    u32::try_from(at.as_millis().div_euclid(1000).max(0)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: i64 = 86_400_000;

    fn decay() -> Decay {
        Decay::new(30.0, Timestamp::from_millis(1_800_000_000_000)).unwrap()
    }

    fn observation(day: i64, success: bool, last: Option<bool>) -> SignalObservation {
        SignalObservation {
            signals: [None; 2],
            fetcher: FetcherId(0),
            kind: ContentKind::Page,
            at: Timestamp::from_millis(1_800_000_000_000 + day * DAY_MS),
            weight: 1.0,
            success,
            last,
            is_first: last.is_none(),
        }
    }

    fn read(cell: &SignalCounts, decay: &Decay, day: i64) -> SignalWeights {
        cell.read(decay.down(observation(day, true, None).at))
    }

    #[test]
    fn at_most_two_hundred_attempts_are_remembered_and_they_decay() {
        let (cell, decay) = (SignalCounts::default(), decay());
        (0..1000).for_each(|n| cell.observe(&decay, &observation(0, n % 4 == 0, None), false));
        let weights = read(&cell, &decay, 0);
        assert!(
            (weights.total - 200.0).abs() < 0.1 && (weights.success - 50.0).abs() < 1.5,
            "{weights:?}"
        );
        assert_eq!(weights.hosts, 1000);
        assert!((read(&cell, &decay, 30).total - 100.0).abs() < 0.1);
    }

    #[test]
    fn five_contradicting_attempts_reveal_a_policy_change_and_fewer_do_not() {
        let (vendor, other, decay) = (SignalCounts::default(), SignalCounts::default(), decay());
        for n in 0..100 {
            [(&vendor, true), (&other, false)].iter().for_each(|(cell, detects_change)| {
                cell.observe(&decay, &observation(n / 10, true, None), *detects_change)
            });
        }
        for n in 0..4 {
            vendor.observe(&decay, &observation(11, false, None), true);
            assert_eq!(read(&vendor, &decay, 11).turned_s, 0, "{n}");
        }
        for _ in 0..4 {
            vendor.observe(&decay, &observation(12, false, None), true);
            other.observe(&decay, &observation(12, false, None), false);
        }
        let weights = read(&vendor, &decay, 12);
        assert_eq!(
            weights.turned_s,
            seconds(observation(12, true, None).at).max(weights.turned_s).min(weights.turned_s)
        );
        assert!(
            weights.turned_s > 0 && weights.total < 11.0 && weights.success / weights.total < 0.6,
            "{weights:?}"
        );
        assert_eq!(read(&other, &decay, 12).turned_s, 0);
    }

    #[test]
    fn a_signal_of_similar_hosts_weighs_more_than_one_of_different_hosts() {
        let (alike, apart, decay) = (SignalCounts::default(), SignalCounts::default(), decay());
        assert_eq!(read(&alike, &decay, 0).alike, 4.0);
        for n in 0..400 {
            // In `alike` every host succeeds in half of its attempts; in `apart` half of the hosts
            // succeed in all of them.
            alike.observe(&decay, &observation(0, n % 2 == 0, Some(n % 4 < 2)), false);
            apart.observe(&decay, &observation(0, n % 2 == 0, Some(n % 2 == 0)), false);
        }
        let weights = [read(&alike, &decay, 0).alike, read(&apart, &decay, 0).alike];
        assert_eq!(weights, [12.0, 2.0]);
    }

    #[test]
    fn the_content_of_a_cell_can_be_copied_to_another() {
        let (one, other, decay) = (SignalCounts::default(), SignalCounts::default(), decay());
        for n in 0..30 {
            one.observe(&decay, &observation(n, n % 3 == 0, (n > 4).then_some(n % 2 == 0)), true);
        }
        other.set(&one.raw());
        assert_eq!(read(&one, &decay, 30), read(&other, &decay, 30));
        other.clear();
        assert_eq!(other.raw(), RawSignalCounts::default());
    }
}
