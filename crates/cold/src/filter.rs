//! The filter of a part: which keys the part certainly does not have.
//!
//! Owns: how a filter of the library becomes bytes, and the check that bytes are one.
//!
//! Invariants: no key of the part is ever denied; every filter that `decode` returns can be asked without a panic.
//!
//! Must not know: where its bytes are stored.

use xorf::{BinaryFuse8, BinaryFuse8Ref, DmaSerializable, Filter as _, FilterRef};

use crate::fields::u32_at;

/// The seed as u64, then the length of a segment, that length minus one, and the length of all segments but the last two,
/// as u32.
pub(crate) const DESCRIPTOR_LEN: usize = BinaryFuse8::DESCRIPTOR_LEN;

/// Without fingerprints it denies nothing.
#[derive(Debug)]
pub(crate) struct Filter {
    descriptor: [u8; DESCRIPTOR_LEN],
    fingerprints: Box<[u8]>,
}

impl Filter {
    /// Builds the filter of distinct keys. If that fails, which is improbable, the filter denies nothing.
    pub(crate) fn build(keys: &[u64]) -> Self {
        let mut descriptor = [0; DESCRIPTOR_LEN];
        let Ok(built) = BinaryFuse8::try_from(keys) else { return Self { descriptor, fingerprints: Box::default() } };
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
        self.fingerprints.is_empty() || BinaryFuse8Ref::from_dma(&self.descriptor, &self.fingerprints).contains(&key)
    }

    pub(crate) fn descriptor(&self) -> &[u8; DESCRIPTOR_LEN] {
        &self.descriptor
    }

    pub(crate) fn fingerprints(&self) -> &[u8] {
        &self.fingerprints
    }
}
