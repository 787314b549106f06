//! The filter of a part: which keys the part certainly does not have.
//!
//! Owns: how a filter of the library becomes bytes, and the check that bytes are one.
//!
//! Invariants: no key of the part is ever denied; every filter that `decode` returns can be asked
//! without a panic.
//!
//! Must not know: where its bytes are stored.

use xorf::{BinaryFuse8, BinaryFuse8Ref, DmaSerializable, Filter as _, FilterRef};

use crate::fields::u32_at;

/// The seed as u64, then the length of a segment, that length minus one, and the length of all
/// segments but the last two, as u32.
pub(crate) const DESCRIPTOR_LEN: usize = BinaryFuse8::DESCRIPTOR_LEN;

/// Without fingerprints it denies nothing.
#[derive(Debug)]
pub(crate) struct Filter {
    descriptor: [u8; DESCRIPTOR_LEN],
    fingerprints: Box<[u8]>,
}

impl Filter {
    /// Builds the filter of distinct keys. If that fails, which is improbable, the filter denies
    /// nothing.
    pub(crate) fn build(keys: &[u64]) -> Self {
        let mut descriptor = [0; DESCRIPTOR_LEN];
        let Ok(built) = BinaryFuse8::try_from(keys) else {
            return Self { descriptor, fingerprints: Box::default() };
        };
        built.dma_copy_descriptor_to(&mut descriptor);
        Self { descriptor, fingerprints: built.fingerprints }
    }

    /// Checks that a key leads to three fingerprints, whatever the key.
    pub(crate) fn decode(descriptor: &[u8], fingerprints: Vec<u8>) -> Option<Self> {
        let descriptor: [u8; DESCRIPTOR_LEN] = descriptor.try_into().ok()?;
        let [segment, mask, most] = [8, 12, 16].map(|at| u32_at(&descriptor, at));
        let is_whole = segment.is_power_of_two() && mask == segment - 1 && most % segment == 0;
        let len = u64::from(most) + 2 * u64::from(segment);
        let is_right = is_whole && most > 0 && len == fingerprints.len() as u64;
        let fingerprints = fingerprints.into_boxed_slice();
        (is_right || fingerprints.is_empty()).then_some(Self { descriptor, fingerprints })
    }

    pub(crate) fn may_contain(&self, key: u64) -> bool {
        self.fingerprints.is_empty()
            || BinaryFuse8Ref::from_dma(&self.descriptor, &self.fingerprints).contains(&key)
    }

    pub(crate) fn descriptor(&self) -> &[u8; DESCRIPTOR_LEN] {
        &self.descriptor
    }

    pub(crate) fn fingerprints(&self) -> &[u8] {
        &self.fingerprints
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::u64_at;

    /// FORMAT.md in code: filters on disk outlive a release of the library.
    fn by_the_format(filter: &Filter, key: u64) -> bool {
        let [segment, most] = [8, 16].map(|at| u64::from(u32_at(filter.descriptor(), at)));
        let mut h = key.wrapping_add(u64_at(filter.descriptor(), 0));
        h = (h ^ h >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
        h = (h ^ h >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        h ^= h >> 33;
        let first = ((u128::from(h) * u128::from(most)) >> 64) as u64;
        let places = [
            first,
            (first + segment) ^ (h >> 18 & (segment - 1)),
            (first + 2 * segment) ^ (h & (segment - 1)),
        ];
        (h ^ h >> 32) as u8
            == places.iter().fold(0, |xor, place| xor ^ filter.fingerprints()[*place as usize])
    }

    fn key(n: u64) -> u64 {
        n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[test]
    fn filters_of_every_size_deny_no_key_and_are_what_the_format_says() {
        for size in (1..200).chain([1000, 4096, 100_000]) {
            let keys: Vec<u64> = (0..size).map(key).collect();
            let built = Filter::build(&keys);
            let filter = Filter::decode(built.descriptor(), built.fingerprints().to_vec()).unwrap();
            assert!(!filter.fingerprints().is_empty(), "{size} keys");
            assert!(
                keys.iter().all(|key| filter.may_contain(*key) && by_the_format(&filter, *key)),
                "{size} keys"
            );
            let others = (size..size + 10_000).map(key).filter(|key| {
                assert_eq!(filter.may_contain(*key), by_the_format(&filter, *key));
                filter.may_contain(*key)
            });
            let wrong = others.count();
            assert!(wrong < 100, "{wrong} of 10000 other keys pass a filter of {size}");
        }
    }

    #[test]
    fn descriptors_that_would_lead_past_the_fingerprints_are_refused() {
        let built = Filter::build(&[key(1), key(2), key(3)]);
        for at in 8..DESCRIPTOR_LEN {
            let mut descriptor = *built.descriptor();
            descriptor[at] ^= 0x41;
            assert!(
                Filter::decode(&descriptor, built.fingerprints().to_vec()).is_none(),
                "byte {at}"
            );
        }
        let longer = [built.fingerprints(), &[0]].concat();
        assert!(Filter::decode(built.descriptor(), longer).is_none());
        let empty = Filter::decode(&[0xff; DESCRIPTOR_LEN], Vec::new()).unwrap();
        assert!(empty.may_contain(5), "a part without a filter may have any key");
    }
}
