//! A positive number in 16 bits, exact to one part in two thousand: rates, counts and latencies as they are remembered.
//!
//! Owns the format: six bits of exponent and ten of mantissa, like a small float without a sign. Invariant: the order of the bits is
//! the order of the numbers, so that two of them are compared without decoding. Must not know what the numbers mean.

/// The exponent that the smallest number has, as `f32` counts it: 2^-32.
const LOWEST: u32 = (127 - 32) << 10;

/// A positive number, or nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Small(u16);

impl Small {
    /// Nothing: below every number.
    pub(crate) const NONE: Self = Self(0);

    /// The nearest number that there is. Zero, negative numbers and NaN are nothing; what is too large is the largest.
    pub(crate) fn new(value: f64) -> Self {
        if value.is_nan() || value <= 0.0 {
            return Self::NONE;
        }
        // Half of the last place that stays is added, so that the cut rounds.
        let bits = ((value as f32).to_bits() + (1 << 12)) >> 13;
        Self(bits.saturating_sub(LOWEST).clamp(1, u32::from(u16::MAX)) as u16)
    }

    /// The number, 0 for nothing.
    pub(crate) fn get(self) -> f64 {
        if self.0 == 0 { 0.0 } else { f64::from(f32::from_bits((u32::from(self.0) + LOWEST) << 13)) }
    }

    /// The number, if there is one.
    pub(crate) fn some(self) -> Option<f64> {
        (self.0 != 0).then(|| self.get())
    }

    pub(crate) fn is_none(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn bits(self) -> u16 {
        self.0
    }

    pub(crate) fn from_bits(bits: u16) -> Self {
        Self(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_within_one_part_in_two_thousand_and_in_order() {
        let mut last = Small::NONE;
        let mut value = 1e-6;
        while value < 1e6 {
            let small = Small::new(value);
            assert!((small.get() / value - 1.0).abs() < 5.1e-4, "{value}");
            assert!(small >= last);
            assert_eq!(Small::new(small.get()), small);
            (last, value) = (small, value * 1.0007);
        }
    }

    #[test]
    fn what_is_no_number_is_nothing_and_what_is_too_large_is_the_largest() {
        for none in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY] {
            assert_eq!(Small::new(none), Small::NONE);
        }
        assert_eq!(Small::new(1e-30), Small(1));
        for large in [1e30, f64::INFINITY, f64::MAX] {
            assert_eq!(Small::new(large), Small(u16::MAX));
        }
        assert!(Small(u16::MAX).get().is_finite());
    }
}
