//! A positive number in 16 bits with a relative error of at most 1/2000, for persisted rates,
//! counts and latencies.
//!
//! Owns: the format. Six bits of exponent and ten of mantissa, like a small float without a sign.
//!
//! Invariants: the order of the bits is the order of the numbers, so comparisons need no decoding.
//!
//! Must not know: what the numbers mean.

/// The exponent of the smallest number as in `f32`: 2^-32.
const LOWEST: u32 = (127 - 32) << 10;

/// A positive number, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PositiveF16(u16);

impl PositiveF16 {
    /// No number; less than every number.
    pub(crate) const NONE: Self = Self(0);

    /// Returns the nearest number. Zero, negative numbers and NaN are none; too large ones are the
    /// largest.
    pub(crate) fn new(value: f64) -> Self {
        if value.is_nan() || value <= 0.0 {
            return Self::NONE;
        }
        // Adds half of the last remaining place, so that truncation rounds.
        let bits = ((value as f32).to_bits() + (1 << 12)) >> 13;
        Self(bits.saturating_sub(LOWEST).clamp(1, u32::from(u16::MAX)) as u16)
    }

    /// Returns the number, or 0.
    pub(crate) fn get(self) -> f64 {
        if self.0 == 0 {
            0.0
        } else {
            f64::from(f32::from_bits((u32::from(self.0) + LOWEST) << 13))
        }
    }

    /// Returns the number, if there is one.
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
    fn numbers_round_trip_within_one_part_in_two_thousand_and_in_order() {
        let mut last = PositiveF16::NONE;
        let mut value = 1e-6;
        while value < 1e6 {
            let small = PositiveF16::new(value);
            assert!((small.get() / value - 1.0).abs() < 5.1e-4, "{value}");
            assert!(small >= last);
            assert_eq!(PositiveF16::new(small.get()), small);
            (last, value) = (small, value * 1.0007);
        }
    }

    #[test]
    fn invalid_numbers_are_none_and_too_large_ones_are_the_largest() {
        for none in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY] {
            assert_eq!(PositiveF16::new(none), PositiveF16::NONE);
        }
        assert_eq!(PositiveF16::new(1e-30), PositiveF16(1));
        for large in [1e30, f64::INFINITY, f64::MAX] {
            assert_eq!(PositiveF16::new(large), PositiveF16(u16::MAX));
        }
        assert!(PositiveF16(u16::MAX).get().is_finite());
    }
}
