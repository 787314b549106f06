//! Chance that repeats: numbers that look random and are a function of what they are for.
//!
//! [`coin`] depends on nothing but its arguments, so that two policies that try the same fetcher for the same URL meet the
//! same luck, in whatever order they come to it. [`Stream`] is the same hash with a counter, for generating.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// What a coin of an attempt is tossed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Purpose {
    Timeout,
    Protection,
    FalseWall,
    Render,
    FalseRender,
    Recognised,
    ShowsVendor,
    ShowsAny,
    WhichVendor,
}

/// A number in [0, 1) for one fetcher's try of one URL.
pub(crate) fn coin(seed: u64, url: u32, fetcher: usize, purpose: Purpose) -> f64 {
    let mut key = [0; 6];
    key[..4].copy_from_slice(&url.to_le_bytes());
    key[4] = fetcher as u8;
    key[5] = purpose as u8;
    unit(xxh3_64_with_seed(&key, seed))
}

/// The top 53 bits as a number in [0, 1).
fn unit(hash: u64) -> f64 {
    (hash >> 11) as f64 / (1u64 << 53) as f64
}

/// A sequence of numbers that looks random.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    seed: u64,
    count: u64,
}

impl Stream {
    /// The stream of `seed` called `name` (a site's number, say); streams of other names are unrelated.
    pub(crate) fn new(seed: u64, name: u64) -> Self {
        Self { seed: xxh3_64_with_seed(&name.to_le_bytes(), seed), count: 0 }
    }

    fn next(&mut self) -> u64 {
        self.count += 1;
        xxh3_64_with_seed(&self.count.to_le_bytes(), self.seed)
    }

    /// U: in [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        unit(self.next())
    }

    /// Whether something of chance `p` happens.
    pub(crate) fn happens(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// From the exponential distribution of `mean`.
    pub(crate) fn exp(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// From the geometric distribution on 1, 2, ... of `mean`.
    pub(crate) fn geometric(&mut self, mean: f64) -> usize {
        if mean <= 1.0 {
            return 1;
        }
        let count = (1.0 - self.unit()).ln() / (1.0 - 1.0 / mean).ln();
        1 + count as usize
    }

    /// A place in `weights`, each as likely as it weighs.
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

    /// A number below `count`.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        ((self.unit() * count as f64) as usize).min(count.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coin_depends_on_each_of_its_arguments_and_on_nothing_else() {
        let one = coin(1, 2, 3, Purpose::Render);
        assert_eq!(one, coin(1, 2, 3, Purpose::Render));
        for other in [coin(9, 2, 3, Purpose::Render), coin(1, 9, 3, Purpose::Render), coin(1, 2, 4, Purpose::Render)] {
            assert_ne!(one, other);
        }
        assert_ne!(one, coin(1, 2, 3, Purpose::Timeout));
    }

    #[test]
    fn draws_have_the_means_they_are_named_after() {
        let mut stream = Stream::new(7, 7);
        let n = 200_000;
        let mut mean =
            |draw: &mut dyn FnMut(&mut Stream) -> f64| (0..n).map(|_| draw(&mut stream)).sum::<f64>() / f64::from(n);
        assert!((mean(&mut |s| s.unit()) - 0.5).abs() < 0.01);
        assert!((mean(&mut |s| s.exp(3.0)) - 3.0).abs() < 0.05);
        assert!((mean(&mut |s| s.geometric(4.0) as f64) - 4.0).abs() < 0.05);
        assert!((mean(&mut |s| s.pick(&[1.0, 0.0, 3.0]) as f64) - 1.5).abs() < 0.02);
    }
}
