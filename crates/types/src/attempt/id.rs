//! Ids of new attempts: UUIDv7, with the time in milliseconds and 74 random bits.
//!
//! Each thread draws its bits alone, without a lock and without a system call: SipHash of a
//! counter, under a 128-bit key that the standard library takes from the system once per thread.
//! SipHash is a pseudo-random function, so the draws of a thread are unrelated, and no two threads
//! or machines share a key. Ids of the same millisecond have no order. `Uuid::now_v7` would take a
//! process-wide lock, and random bits from the system, for every id; so only `Builder` is used from
//! `uuid`.
//!
//! Must not know: attempts.

use std::cell::Cell;
use std::hash::{BuildHasher as _, RandomState};

use uuid::{Builder, Uuid};

use crate::time::Timestamp;

/// Returns a new, unique id. Costs one clock read and two short hashes.
pub fn new() -> Uuid {
    thread_local! {
        static BITS: Bits = Bits::default();
    }
    let [high, low] = BITS.with(Bits::draw).map(u64::to_ne_bytes);
    let mut random = [0; 10];
    random[..8].copy_from_slice(&high);
    random[8..].copy_from_slice(&low[..2]);
    // A clock before 1970 is not worth an error: the random bits make ids unique.
    let millis = u64::try_from(Timestamp::date().as_millis()).unwrap_or(0);
    Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}

/// One thread's random bits. It has no destructor, so it exists for as long as its thread runs.
#[derive(Default)]
struct Bits {
    key: RandomState,
    drawn: Cell<u64>,
}

impl Bits {
    fn draw(&self) -> [u64; 2] {
        let n = self.drawn.get();
        self.drawn.set(n.wrapping_add(1));
        [0_u8, 1].map(|half| self.key.hash_one((n, half)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::thread;

    use uuid::{Variant, Version};

    use super::*;

    #[test]
    fn an_id_is_a_uuid_of_version_7_and_of_now() {
        let before = Timestamp::date().as_millis();
        let id = new();
        let after = Timestamp::date().as_millis();
        assert_eq!(
            (id.get_version(), id.get_variant()),
            (Some(Version::SortRand), Variant::RFC4122)
        );
        let millis = (id.as_u128() >> 80) as i64;
        assert!((before..=after).contains(&millis), "{before} {millis} {after}");
    }

    #[test]
    fn ids_of_all_threads_are_different() {
        const EACH: usize = 20_000;
        let threads: Vec<_> =
            (0..8).map(|_| thread::spawn(|| (0..EACH).map(|_| random_bits()).collect())).collect();
        let ids: Vec<Vec<u128>> =
            threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let first: HashSet<_> = ids.iter().map(|ids| ids[0]).collect();
        assert_eq!(first.len(), 8, "threads begin differently");
        assert_eq!(
            ids.into_iter().flatten().collect::<HashSet<_>>().len(),
            8 * EACH,
            "even without their time"
        );
    }

    #[test]
    fn each_of_the_74_bits_is_set_about_half_of_the_time() {
        const IDS: u32 = 4_000;
        let mut set = [0_u32; 128];
        for _ in 0..IDS {
            let bits = random_bits();
            for (bit, count) in set.iter_mut().enumerate() {
                *count += (bits >> bit & 1) as u32;
            }
        }
        let random = set.iter().filter(|&&count| count > 0 && count < IDS);
        // Ten standard deviations: this fails for a biased bit, and never by chance.
        assert!(random.clone().all(|count| count.abs_diff(IDS / 2) < 320), "{set:?}");
        assert_eq!(random.count(), 74);
    }

    /// Returns an id without its time, version and variant.
    fn random_bits() -> u128 {
        new().as_u128() & 0x0000_0000_0000_0fff_3fff_ffff_ffff_ffff
    }
}
