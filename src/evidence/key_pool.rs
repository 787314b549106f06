//! Pools of keys from which random ones are drawn: the map itself cannot tell a random key.
//!
//! Invariants: adding a key and drawing some take a constant number of steps; the same calls draw
//! the same keys.
//!
//! Must not know: why keys are drawn.

use xxhash_rust::xxh3::xxh3_64;

/// Number of keys that are drawn at once.
pub(super) const DRAWN: usize = 32;

/// Keys of which random ones are drawn. Some may no longer be in the map.
#[derive(Debug, Default)]
pub(super) struct KeyPool {
    keys: Vec<u64>,
    /// Number of random numbers that were drawn, from which the next one is made.
    numbers: u64,
}

impl KeyPool {
    pub(super) fn add(&mut self, key: u64) {
        self.keys.push(key);
    }

    /// Draws random keys, each at a different place.
    pub(super) fn draw(&mut self) -> &[u64] {
        let drawn = DRAWN.min(self.keys.len());
        for place in 0..drawn {
            self.numbers += 1;
            let (number, rest) = (xxh3_64(&self.numbers.to_le_bytes()), self.keys.len() - place);
            let offset = (u128::from(number) * rest as u128) >> 64;
            self.keys.swap(place, place + offset as usize);
        }
        &self.keys[..drawn]
    }

    /// Drops those of the keys drawn last for which `is_gone` holds.
    pub(super) fn drop_drawn(&mut self, is_gone: impl Fn(u64) -> bool) {
        for place in (0..DRAWN.min(self.keys.len())).rev() {
            if is_gone(self.keys[place]) {
                self.keys.swap_remove(place);
            }
        }
    }

    /// Returns the number of keys, including those that are gone.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_drawn_equally_often_and_at_most_once_at_a_time() {
        let (mut pool, mut times) = (KeyPool::default(), [0_u32; 1000]);
        (0..1000).for_each(|key| pool.add(key));
        for _ in 0..10_000 {
            let mut drawn = pool.draw().to_vec();
            drawn.iter().for_each(|key| times[*key as usize] += 1);
            drawn.sort_unstable();
            drawn.dedup();
            assert_eq!(drawn.len(), DRAWN);
        }
        // 320 times each on average, with a standard deviation of 18.
        assert!(times.iter().all(|times| (220..420).contains(times)), "{times:?}");
    }

    #[test]
    fn drawn_keys_can_be_dropped() {
        let mut pool = KeyPool::default();
        (0..100).for_each(|key| pool.add(key));
        let drawn: Vec<u64> = pool.draw().iter().copied().filter(|key| key % 2 == 0).collect();
        pool.drop_drawn(|key| key % 2 == 0);
        let mut left = pool.keys.clone();
        left.sort_unstable();
        assert_eq!(left, (0..100).filter(|key| !drawn.contains(key)).collect::<Vec<_>>());
        let mut small = KeyPool::default();
        small.add(7);
        assert_eq!(small.draw(), [7]);
        small.drop_drawn(|_| true);
        assert_eq!(small.draw(), [0; 0]);
    }
}
