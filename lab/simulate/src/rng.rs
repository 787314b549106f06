//! A repeatable random number generator: each number is a function of its purpose.
//!
//! [`coin`] depends only on its arguments. Two policies that try the same fetcher for the same URL
//! have the same random outcome, in any order. [`Stream`] is the same hash with a counter, for
//! generation.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The purpose of a random number of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Purpose {
    Timeout,
    Protection,
    FalseBlock,
    Render,
    FalseRender,
    Recognised,
    ShowsVendor,
    ShowsAny,
    WhichVendor,
}

/// Returns a number in [0, 1) for one fetcher's try of one URL.
pub(crate) fn coin(seed: u64, url: u32, fetcher: usize, purpose: Purpose) -> f64 {
    let mut key = [0; 6];
    key[..4].copy_from_slice(&url.to_le_bytes());
    key[4] = fetcher as u8;
    key[5] = purpose as u8;
    unit(xxh3_64_with_seed(&key, seed))
}

/// Returns the top 53 bits as a number in [0, 1).
fn unit(hash: u64) -> f64 {
    (hash >> 11) as f64 / (1u64 << 53) as f64
}

/// A sequence of pseudo-random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    seed: u64,
    count: u64,
}

impl Stream {
    /// Returns the stream of `seed` called `name` (for example a site's number). Streams of
    /// different names are independent.
    pub(crate) fn new(seed: u64, name: u64) -> Self {
        Self { seed: xxh3_64_with_seed(&name.to_le_bytes(), seed), count: 0 }
    }

    fn next(&mut self) -> u64 {
        self.count += 1;
        xxh3_64_with_seed(&self.count.to_le_bytes(), self.seed)
    }

    /// Returns a number from the uniform distribution on [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        unit(self.next())
    }

    /// Returns true with probability `p`.
    pub(crate) fn happens(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// Returns a number from the exponential distribution of `mean`.
    pub(crate) fn exp(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// Returns a number from the geometric distribution on 1, 2, ... of `mean`.
    pub(crate) fn geometric(&mut self, mean: f64) -> usize {
        if mean <= 1.0 {
            return 1;
        }
        let count = (1.0 - self.unit()).ln() / (1.0 - 1.0 / mean).ln();
        1 + count as usize
    }

    /// Returns an index of `weights`, with a probability in proportion to its weight.
    pub(crate) fn pick(&mut self, weights: &[f64]) -> usize {
        let mut left = self.unit() * weights.iter().sum::<f64>();
        for (place, weight) in weights.iter().enumerate() {
            left -= weight;
            if left < 0.0 {
                return place;
            }
        }
        weights.len().saturating_sub(1)
    }

    /// Returns a number below `count`.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        ((self.unit() * count as f64) as usize).min(count.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coin_depends_on_all_its_arguments_and_on_nothing_else() {
        let one = coin(1, 2, 3, Purpose::Render);
        assert_eq!(one, coin(1, 2, 3, Purpose::Render));
        for other in [
            coin(9, 2, 3, Purpose::Render),
            coin(1, 9, 3, Purpose::Render),
            coin(1, 2, 4, Purpose::Render),
        ] {
            assert_ne!(one, other);
        }
        assert_ne!(one, coin(1, 2, 3, Purpose::Timeout));
    }

    #[test]
    fn draws_have_their_means() {
        let mut stream = Stream::new(7, 7);
        let n = 200_000;
        let mut mean = |draw: &mut dyn FnMut(&mut Stream) -> f64| {
            (0..n).map(|_| draw(&mut stream)).sum::<f64>() / f64::from(n)
        };
        assert!((mean(&mut |s| s.unit()) - 0.5).abs() < 0.01);
        assert!((mean(&mut |s| s.exp(3.0)) - 3.0).abs() < 0.05);
        assert!((mean(&mut |s| s.geometric(4.0) as f64) - 4.0).abs() < 0.05);
        assert!((mean(&mut |s| s.pick(&[1.0, 0.0, 3.0]) as f64) - 1.5).abs() < 0.02);
    }
}
