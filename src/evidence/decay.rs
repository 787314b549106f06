//! Forward decay: the present weight of an attempt, as pure arithmetic.
//!
//! A stored weight never shrinks. An attempt at time t adds `2^((t - L) / H)`, and a reader
//! multiplies the sum by `2^(-(now - L) / H)`, where L is the landmark and H the half-life. The
//! result is exact in any order of attempts, sums can be merged, and no stored weight needs an
//! update as time passes.

use std::time::Duration;

use fetchwise_types::time::Timestamp;

/// The shortest half-life that can be configured, in days.
pub const MIN_HALF_LIFE_DAYS: f64 = 7.0;
/// The longest half-life that can be configured, in days.
pub const MAX_HALF_LIFE_DAYS: f64 = 365.0;
/// The default half-life, in days.
pub const DEFAULT_HALF_LIFE_DAYS: f64 = 30.0;

const DAY_MS: f64 = 86_400_000.0;

/// Half-lives from the landmark to the present that leave room in `f32`, which ends 120 half-lives
/// after the landmark.
const NEAR: std::ops::RangeInclusive<f64> = -8.0..=64.0;

/// The error of a half-life outside the allowed range.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error(
    "invalid half-life of {days} days: expected {MIN_HALF_LIFE_DAYS} to {MAX_HALF_LIFE_DAYS} days"
)]
pub struct HalfLifeError {
    /// The requested half-life, in days.
    pub days: f64,
}

/// The scale of stored weights: half-life and landmark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decay {
    half_life_ms: f64,
    landmark_ms: i64,
}

impl Decay {
    /// Returns a scale with a half-life of `days`, whose landmark is the last multiple of it before
    /// `around`.
    ///
    /// The scale accepts times of up to a thousand half-lives after the landmark; there the
    /// exponent ends.
    ///
    /// # Errors
    /// [`HalfLifeError`] outside 7 to 365 days.
    pub fn new(days: f64, around: Timestamp) -> Result<Self, HalfLifeError> {
        if !(MIN_HALF_LIFE_DAYS..=MAX_HALF_LIFE_DAYS).contains(&days) {
            return Err(HalfLifeError { days });
        }
        let scale = Self { half_life_ms: (days * DAY_MS).round(), landmark_ms: 0 };
        Ok(Self { landmark_ms: scale.landmark_before(around), ..scale })
    }

    /// Returns the last multiple of the half-life before `around`, in milliseconds.
    pub(crate) fn landmark_before(&self, around: Timestamp) -> i64 {
        let half_life_ms = self.half_life_ms as i64;
        around.as_millis().div_euclid(half_life_ms).saturating_mul(half_life_ms)
    }

    /// Returns the scale with the same half-life and this landmark, in milliseconds.
    pub(crate) fn with_landmark(self, landmark_ms: i64) -> Self {
        Self { landmark_ms, ..self }
    }

    /// Returns whether weights at `at` are far from the ends of `f32`.
    pub(crate) fn is_near(&self, at: Timestamp) -> bool {
        NEAR.contains(&self.exponent(at))
    }

    /// Returns the half-life.
    pub fn half_life(&self) -> Duration {
        Duration::from_millis(self.half_life_ms as u64)
    }

    /// Returns the landmark.
    pub fn landmark(&self) -> Timestamp {
        Timestamp::from_millis(self.landmark_ms)
    }

    /// Returns the scale with this landmark, for stored weights.
    pub(crate) fn at_landmark(half_life: Duration, landmark: Timestamp) -> Option<Self> {
        let half_life_ms = half_life.as_millis() as f64;
        let days = half_life_ms / DAY_MS;
        // The stored value may have been rounded to a millisecond.
        let valid = (MIN_HALF_LIFE_DAYS - 1e-6..=MAX_HALF_LIFE_DAYS + 1e-6).contains(&days);
        valid.then_some(Self { half_life_ms, landmark_ms: landmark.as_millis() })
    }

    /// Returns the factor that converts a weight from the scale `from`, which must have the same
    /// half-life, to this one. The factor is exact if both landmarks are multiples of the
    /// half-life: then it is a power of two.
    pub(crate) fn rebase(&self, from: &Self) -> f64 {
        (from.landmark_ms.saturating_sub(self.landmark_ms) as f64 / self.half_life_ms)
            .clamp(-900.0, 900.0)
            .exp2()
    }

    /// Returns the stored weight that an attempt of weight 1 at `t` adds.
    pub fn up(&self, t: Timestamp) -> f64 {
        self.exponent(t).exp2()
    }

    /// Returns the factor that converts a stored weight to its weight at `now`.
    pub fn down(&self, now: Timestamp) -> f64 {
        (-self.exponent(now)).exp2()
    }

    /// Returns half-lives since the landmark, limited so that `exp2` and the sum of many such
    /// values stay finite.
    fn exponent(&self, t: Timestamp) -> f64 {
        (t.as_millis().saturating_sub(self.landmark_ms) as f64 / self.half_life_ms)
            .clamp(-900.0, 900.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weight_halves_with_each_half_life() {
        let now = Timestamp::from_millis(1_800_000_000_000);
        let decay = Decay::new(30.0, now).unwrap();
        for (age_days, weight) in
            [(0.0, 1.0), (15.0, 0.5f64.sqrt()), (30.0, 0.5), (60.0, 0.25), (90.0, 0.125)]
        {
            let then = Timestamp::from_millis(now.as_millis() - (age_days * DAY_MS) as i64);
            assert!((decay.up(then) * decay.down(now) - weight).abs() < 1e-12, "{age_days} days");
        }
    }

    #[test]
    fn half_lives_outside_a_week_to_a_year_are_rejected() {
        for days in [6.9, 365.1, f64::NAN, -30.0, 0.0] {
            assert!(Decay::new(days, Timestamp::default()).is_err(), "{days}");
        }
    }

    #[test]
    fn any_two_times_give_finite_weights() {
        let decay = Decay::new(7.0, Timestamp::default()).unwrap();
        for ms in [i64::MIN, -1, 0, 1, i64::MAX] {
            assert!(decay.up(Timestamp::from_millis(ms)).is_finite());
            assert!(decay.down(Timestamp::from_millis(ms)).is_finite());
        }
    }
}
