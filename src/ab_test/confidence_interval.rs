//! Confidence intervals for clustered samples: hosts are the sample, and visits of one host
//! resemble each other. Pure arithmetic.

/// Normal quantile of a two-sided 95 % interval.
const NORMAL_95: f64 = 1.959_964;
/// Least and largest number of bootstrap resamples, and the limit on all draws of hosts together.
const RESAMPLES: (usize, usize) = (200, 1000);
const MAX_DRAWS: usize = 20_000_000;

/// A value with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Interval {
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// A seeded random number generator: the same log gives the same intervals each time.
pub(super) struct SplitMix64(u64);

impl SplitMix64 {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number of SplitMix64.
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`, with a bias of at most 2^-32.
    pub(super) fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    #[cfg(test)]
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / 2f64.powi(53)
    }
}

/// Returns Wilson's interval of a share of `n` independent visits.
pub(super) fn wilson(share: f64, n: f64) -> Interval {
    let z2 = NORMAL_95 * NORMAL_95;
    let middle = (share + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = NORMAL_95 / (1.0 + z2 / n) * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).sqrt();
    Interval {
        value: share,
        low: (middle - half).clamp(0.0, share),
        high: (middle + half).clamp(share, 1.0),
    }
}

/// Returns a share of visits, given `(hits, visits)` for each host, with Wilson's interval over the
/// effective number of independent visits. That number follows from the similarity of a host's
/// visits. If all visits ended alike, it is the number of hosts, weighted by their visits.
pub(super) fn share(hosts: &[(f64, f64)]) -> Option<Interval> {
    let (some, all) = totals(hosts)?;
    let share = (some / all).clamp(0.0, 1.0);
    let squares: f64 = hosts.iter().map(|(_, n)| n * n).sum();
    let as_hosts = all * all / squares;
    let variance = variance(hosts, share, all);
    let own = share * (1.0 - share);
    let n = if variance > 0.0 && own > 0.0 { (own / variance).clamp(1.0, all) } else { as_hosts };
    Some(wilson(share, n))
}

/// Returns a ratio of two sums over hosts, with the percentiles of a bootstrap over hosts.
pub(super) fn ratio(hosts: &[(f64, f64)], seed: u64) -> Option<Interval> {
    let (above, below) = totals(hosts)?;
    let value = above / below;
    let resamples = (MAX_DRAWS / hosts.len()).clamp(RESAMPLES.0, RESAMPLES.1);
    let mut dice = SplitMix64::new(seed ^ hosts.len() as u64);
    let mut drawn: Vec<f64> = Vec::with_capacity(resamples);
    for _ in 0..resamples {
        let (mut above, mut below) = (0.0, 0.0);
        for _ in 0..hosts.len() {
            let (a, b) = hosts[dice.below(hosts.len())];
            above += a;
            below += b;
        }
        if below > 0.0 {
            drawn.push(above / below);
        }
    }
    drawn.sort_by(f64::total_cmp);
    let at = |share: f64| {
        drawn.get(((drawn.len() as f64 - 1.0) * share).round() as usize).copied().unwrap_or(value)
    };
    Some(Interval { value, low: at(0.025).min(value), high: at(0.975).max(value) })
}

/// Returns a quantile of the buckets of all hosts, by Woodruff: the interval of the share below it,
/// mapped back to buckets.
pub(super) fn quantile(hosts: &[&[(u16, u32)]], at: f64) -> Option<(u16, u16, u16)> {
    let mut buckets: Vec<f64> = Vec::new();
    for &(bucket, count) in hosts.iter().copied().flatten() {
        if buckets.len() <= usize::from(bucket) {
            buckets.resize(usize::from(bucket) + 1, 0.0);
        }
        buckets[usize::from(bucket)] += f64::from(count);
    }
    let all: f64 = buckets.iter().sum();
    if all <= 0.0 {
        return None;
    }
    let find = |share: f64| {
        let mut below = 0.0;
        let place = buckets.iter().position(|count| {
            below += count;
            below > 0.0 && below >= share * all
        });
        place.unwrap_or(buckets.len() - 1) as u16
    };
    let middle = find(at);
    let below = |times: &[(u16, u32)]| {
        let n: f64 = times.iter().map(|(_, count)| f64::from(*count)).sum();
        let some: f64 =
            times.iter().filter(|(b, _)| *b <= middle).map(|(_, count)| f64::from(*count)).sum();
        (some, n)
    };
    let shares: Vec<(f64, f64)> = hosts.iter().map(|times| below(times)).collect();
    let (some, _) = totals(&shares)?;
    let half = NORMAL_95 * variance(&shares, some / all, all).max(at * (1.0 - at) / all).sqrt();
    Some((find((at - half).max(0.0)).min(middle), middle, find((at + half).min(1.0)).max(middle)))
}

/// Returns the difference of two independent figures, from their intervals (Newcombe; for other
/// figures than shares the method is known as MOVER).
pub(super) fn difference(a: Interval, b: Interval) -> Interval {
    let value = a.value - b.value;
    let low = value - (a.value - a.low).hypot(b.high - b.value);
    let high = value + (a.high - a.value).hypot(b.value - b.low);
    Interval { value, low, high }
}

fn totals(hosts: &[(f64, f64)]) -> Option<(f64, f64)> {
    let (above, below) =
        hosts.iter().fold((0.0, 0.0), |(above, below), (a, b)| (above + a, below + b));
    (below > 0.0).then_some((above, below))
}

/// Returns the variance of a ratio, from the spread between hosts.
fn variance(hosts: &[(f64, f64)], ratio: f64, below: f64) -> f64 {
    let count = hosts.len() as f64;
    let correction = if count > 1.0 { count / (count - 1.0) } else { 1.0 };
    hosts.iter().map(|(a, b)| (a - ratio * b).powi(2)).sum::<f64>() * correction / (below * below)
}
