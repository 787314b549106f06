//! Timing: single operations if the clock is precise enough, else batches.

use std::hint::black_box;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::text;

/// Latencies of single operations, in nanoseconds. Each includes one reading of the clock.
pub(crate) struct Latency(Histogram<u64>);

/// The table heads of [`Latency::cells`].
pub(crate) const CELLS: [&str; 4] = ["p50", "p99", "p99.9", "max"];

impl Latency {
    pub(crate) fn new() -> Self {
        Self(Histogram::new_with_bounds(1, 60_000_000_000, 3).unwrap())
    }

    /// Times one call and drops its result.
    #[inline]
    pub(crate) fn time<T>(&mut self, f: impl FnOnce() -> T) {
        self.timed(f);
    }

    /// Times one call and returns its result.
    #[inline]
    pub(crate) fn timed<T>(&mut self, f: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let result = black_box(f());
        self.add(begun.elapsed());
        result
    }

    #[inline]
    pub(crate) fn add(&mut self, took: Duration) {
        self.0.saturating_record((took.as_nanos() as u64).max(1));
    }

    pub(crate) fn at(&self, percentile: f64) -> f64 {
        self.0.value_at_percentile(percentile) as f64
    }

    pub(crate) fn p50(&self) -> f64 {
        self.at(50.0)
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    pub(crate) fn mean(&self) -> f64 {
        self.0.mean()
    }

    pub(crate) fn max(&self) -> f64 {
        self.0.max() as f64
    }

    pub(crate) fn cells(&self) -> Vec<String> {
        [self.at(50.0), self.at(99.0), self.at(99.9), self.max()].map(text::ns).to_vec()
    }

    /// Returns a row of a table: `what`, then [`Latency::cells`].
    pub(crate) fn row(&self, what: impl Into<String>) -> Vec<String> {
        std::iter::once(what.into()).chain(self.cells()).collect()
    }
}

/// Returns the cost of one reading of the clock, and the latency of two consecutive ones.
pub(crate) fn clock() -> (f64, Latency) {
    const READINGS: u32 = 1_000_000;
    let begun = Instant::now();
    for _ in 0..READINGS {
        black_box(Instant::now());
    }
    let one = begun.elapsed().as_nanos() as f64 / f64::from(READINGS);
    let mut latency = Latency::new();
    for _ in 0..READINGS {
        latency.time(|| ());
    }
    (one, latency)
}

/// Returns the nanoseconds per call of `count` calls, timed together.
pub(crate) fn batch(count: usize, mut f: impl FnMut(usize)) -> f64 {
    let begun = Instant::now();
    for n in 0..count {
        f(n);
    }
    begun.elapsed().as_nanos() as f64 / count as f64
}

/// Returns the least result of a few rounds of `f`, which returns its duration.
pub(crate) fn best(rounds: usize, mut f: impl FnMut() -> f64) -> f64 {
    (0..rounds).map(|_| f()).fold(f64::MAX, f64::min)
}

/// Numbers in an unpredictable order, the same in each run (SplitMix64).
#[derive(Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// Returns the nanoseconds of one dependent read at a random position of a buffer of `bytes`: the
/// latency of memory.
pub(crate) fn random_read(bytes: usize) -> f64 {
    const LINE: usize = 8;
    let lines = (bytes / (LINE * 8)).max(2);
    let mut order: Vec<u32> = (0..lines as u32).collect();
    let mut random = Random(7);
    // One cycle through all lines (Sattolo), so that no short cycle stays in a cache.
    for n in (1..lines).rev() {
        order.swap(n, random.below(n));
    }
    let mut buffer = vec![0u64; lines * LINE];
    for (line, &next) in order.iter().enumerate() {
        buffer[line * LINE] = u64::from(next);
    }
    drop(order);
    let steps = lines.clamp(200_000, 2_000_000);
    let mut at = 0;
    best(3, || batch(steps, |_| at = buffer[at * LINE] as usize) + black_box(at as f64) * 0.0)
}

/// Returns the CPU time of this process.
pub(crate) fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the resident bytes of this process.
pub(crate) fn resident_bytes() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace()
        .next()
        .and_then(|kilobytes| kilobytes.parse::<f64>().ok())
        .unwrap_or(0.0)
        * 1024.0
}
