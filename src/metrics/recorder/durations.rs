//! Histogram of durations, in buckets that grow by a constant factor: eight for each doubling.
//!
//! The buckets are those of Prometheus' native histograms at resolution 3. Every eighth bound is a
//! power of two, so that classic buckets are sums of them.
//!
//! Invariants: adding takes a few comparisons and two additions to atomics.
//!
//! Must not know: what is measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{
    EncodeMetric, MetricEncoder, NativeHistogram, NativeHistogramBuckets, NoLabelSet,
};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// Resolution, as native histograms number it: 2^3 buckets for each doubling.
const SCHEMA: i32 = 3;
const PER_DOUBLING: i32 = 1 << SCHEMA;
/// Powers of two in seconds between which durations are resolved: from a microsecond to one and a
/// half days.
const LOWEST: i32 = -20;
const HIGHEST: i32 = 17;
const BUCKETS: usize = ((HIGHEST - LOWEST) * PER_DOUBLING) as usize;
/// Longest duration in nanoseconds. Longer ones count as this.
const LONGEST_NS: u64 = (1 << HIGHEST) * 1_000_000_000;
/// Duration in seconds up to which it counts as zero.
const ZERO: f64 = 1.0 / (1 << -LOWEST) as f64;

/// Upper bounds of the buckets within a doubling: 2^(n/8).
const BOUNDS: [f64; PER_DOUBLING as usize] = [
    1.0,
    1.090_507_732_665_257_7,
    1.189_207_115_002_721,
    1.296_839_554_651_009_6,
    std::f64::consts::SQRT_2,
    1.542_210_825_407_940_7,
    1.681_792_830_507_429,
    1.834_008_086_409_342_4,
];

/// Distribution of durations, as a histogram with native and classic buckets. Adding to it takes no
/// lock and allocates nothing. A clone shares the distribution.
///
/// ```
/// use std::time::Duration;
/// use fetchwise::metrics::Durations;
///
/// let answers = Durations::default();
/// answers.add(Duration::from_millis(12));
/// let mut registry = prometheus_client::registry::Registry::default();
/// registry.register("answer_seconds", "How long answers took", answers.clone());
/// let mut text = String::new();
/// prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
/// assert!(text.contains("answer_seconds_count 1\n"));
/// ```
#[derive(Clone, Debug)]
pub struct Durations {
    counts: Arc<BucketCounts>,
    /// Powers of two in seconds, between which classic buckets are exported.
    classic: (i32, i32),
}

#[derive(Debug)]
struct BucketCounts {
    zero: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

impl Default for Durations {
    /// Creates a distribution with classic buckets from 16 ms to 128 s, which suit pages.
    fn default() -> Self {
        Self::between(-6, 7)
    }
}

impl Durations {
    /// Creates a distribution with classic buckets whose bounds are the powers of two from
    /// 2^`lowest` to 2^`highest` seconds. The limits are -20 and 17.
    pub fn between(lowest: i32, highest: i32) -> Self {
        let lowest = lowest.clamp(LOWEST + 1, HIGHEST);
        let counts = BucketCounts {
            zero: AtomicU64::new(0),
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
            sum_ns: AtomicU64::new(0),
        };
        Self { counts: Arc::new(counts), classic: (lowest, highest.clamp(lowest, HIGHEST)) }
    }
}

/// Counts at one time.
#[derive(Debug)]
struct DurationsSnapshot {
    count: u64,
    /// Sum in seconds.
    sum: f64,
    zero: u64,
    buckets: Vec<u64>,
}

impl Durations {
    /// Adds a duration. It counts as one and a half days at most.
    pub fn add(&self, time: Duration) {
        self.add_ns(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds a duration in milliseconds.
    pub(crate) fn add_ms(&self, ms: u64) {
        self.add_ns(ms.saturating_mul(1_000_000));
    }

    fn add_ns(&self, ns: u64) {
        let ns = ns.min(LONGEST_NS);
        let counts = &*self.counts;
        let count = match bucket_of(ns as f64 / 1e9) {
            Some(place) => &counts.buckets[place],
            None => &counts.zero,
        };
        count.fetch_add(1, Ordering::Relaxed);
        // After more than 580 years in total it wraps, like a counter that restarts.
        counts.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    fn snapshot(&self) -> DurationsSnapshot {
        let counts = &*self.counts;
        let zero = counts.zero.load(Ordering::Relaxed);
        let buckets: Vec<u64> =
            counts.buckets.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let sum = counts.sum_ns.load(Ordering::Relaxed) as f64 / 1e9;
        // Summed up from the buckets, so that count and buckets agree while others are adding.
        DurationsSnapshot { count: zero + buckets.iter().sum::<u64>(), sum, zero, buckets }
    }
}

/// Returns the bucket of a duration, or `None` for next to nothing. Too long durations belong to
/// the last bucket.
fn bucket_of(seconds: f64) -> Option<usize> {
    if seconds.is_nan() || seconds <= ZERO {
        return None;
    }
    let bits = seconds.to_bits();
    // The number is mantissa * 2^exponent, with a mantissa from 1 to 2.
    let exponent = ((bits >> 52) & 0x7ff) as i32 - 1023;
    let mantissa = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) | 0x3ff0_0000_0000_0000);
    let within = BOUNDS.iter().filter(|bound| **bound < mantissa).count() as i32;
    // The bucket has the upper bound 2^(index / 8). The first one has the index 1 above the lowest
    // power.
    let index = exponent * PER_DOUBLING + within;
    usize::try_from(index - LOWEST * PER_DOUBLING - 1).ok().map(|place| place.min(BUCKETS - 1))
}

impl DurationsSnapshot {
    /// Returns sparse buckets: spans (gap to the previous one, length), and the difference of each
    /// count to the previous one.
    fn native(&self) -> (Vec<(i32, u32)>, Vec<i64>) {
        let (mut spans, mut deltas): (Vec<(i32, u32)>, Vec<i64>) = (Vec::new(), Vec::new());
        let (mut expected, mut last) = (0, 0);
        for (place, count) in (0_i32..).zip(&self.buckets).filter(|(_, count)| **count > 0) {
            let index = place + 1 + LOWEST * PER_DOUBLING;
            match spans.last_mut() {
                Some((_, length)) if index == expected => *length += 1,
                _ => spans.push((index - expected, 1)),
            }
            expected = index + 1;
            let count = i64::try_from(*count).unwrap_or(i64::MAX);
            deltas.push(count - last);
            last = count;
        }
        if spans.is_empty() {
            // An empty span distinguishes a native histogram without buckets from a classic one.
            spans.push((0, 0));
        }
        (spans, deltas)
    }

    /// Returns classic buckets with bounds from 2^lowest to 2^highest seconds, and one for longer
    /// durations: bound and count of each.
    fn classic(&self, (lowest, highest): (i32, i32)) -> Vec<(f64, u64)> {
        let mut all = Vec::new();
        let mut counts = self.buckets.iter();
        let mut count = self.zero;
        for power in LOWEST..highest {
            count += counts.by_ref().take(PER_DOUBLING as usize).sum::<u64>();
            if power + 1 >= lowest {
                all.push((2_f64.powi(power + 1), count));
                count = 0;
            }
        }
        all.push((f64::INFINITY, counts.sum()));
        all
    }
}

impl EncodeMetric for Durations {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.encode_buckets(&mut encoder)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

impl Durations {
    /// Encodes both kinds of buckets.
    pub(crate) fn encode_buckets(
        &self,
        encoder: &mut MetricEncoder<'_>,
    ) -> Result<(), std::fmt::Error> {
        let snapshot = self.snapshot();
        let (spans, deltas) = snapshot.native();
        let native = NativeHistogram {
            schema: SCHEMA,
            zero_threshold: ZERO,
            zero_count: snapshot.zero,
            negative: NativeHistogramBuckets { spans: &[], deltas: &[] },
            positive: NativeHistogramBuckets { spans: &spans, deltas: &deltas },
            created: None,
        };
        let classic = snapshot.classic(self.classic);
        encoder.encode_histogram_with_native::<NoLabelSet>(
            snapshot.sum,
            snapshot.count,
            &classic,
            None,
            native,
        )
    }
}

impl TypedMetric for Durations {
    const TYPE: MetricType = MetricType::Histogram;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bounds_are_powers_of_the_eighth_root_of_two() {
        for (n, bound) in BOUNDS.iter().enumerate() {
            assert!((bound - 2_f64.powf(n as f64 / 8.0)).abs() < 1e-15, "{n}");
        }
    }

    #[test]
    fn bounds_belong_to_the_bucket_below() {
        let index =
            |seconds| bucket_of(seconds).map(|place| place as i32 + 1 + LOWEST * PER_DOUBLING);
        assert_eq!(
            [index(1.0), index(1.000_001), index(2.0), index(0.5)],
            [Some(0), Some(1), Some(8), Some(-8)]
        );
        assert_eq!([index(0.0), index(ZERO), index(f64::NAN)], [None; 3]);
        assert_eq!(bucket_of(f64::INFINITY), Some(BUCKETS - 1));
        assert_eq!(bucket_of(ZERO * 1.01), Some(0));
    }

    proptest! {
        #[test]
        fn every_time_lies_within_its_bucket(ms in 1_u64..131_000_000) {
            let seconds = ms as f64 / 1e3;
            let index = bucket_of(seconds).unwrap() as i32 + 1 + LOWEST * PER_DOUBLING;
            let bound = |index: i32| 2_f64.powf(f64::from(index) / 8.0);
            prop_assert!(seconds <= bound(index) * (1.0 + 1e-12));
            prop_assert!(seconds > bound(index - 1) * (1.0 - 1e-12));
        }

        #[test]
        fn both_kinds_of_buckets_add_up(times in prop::collection::vec(0_u64..200_000_000, 0..60)) {
            let durations = Durations::default();
            times.iter().for_each(|ms| durations.add_ms(*ms));
            let snapshot = durations.snapshot();
            prop_assert_eq!(snapshot.count, times.len() as u64);
            let classic = snapshot.classic((-6, 7));
            prop_assert_eq!(classic.len(), 15);
            prop_assert_eq!(classic.iter().map(|(_, count)| count).sum::<u64>(), snapshot.count);
            for (at, (bound, _)) in classic.iter().enumerate() {
                let below: u64 = classic[..=at].iter().map(|(_, count)| count).sum();
                prop_assert_eq!(below, times.iter().filter(|ms| **ms as f64 / 1e3 <= *bound).count() as u64);
            }
            let (spans, deltas) = snapshot.native();
            let (mut count, mut all) = (0_i64, snapshot.zero as i64);
            for delta in &deltas {
                count += delta;
                all += count;
            }
            prop_assert_eq!(all as u64, snapshot.count);
            prop_assert_eq!(spans.iter().map(|(_, length)| *length as usize).sum::<usize>(), deltas.len());
        }
    }
}
