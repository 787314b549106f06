//! The permit of one request: what was so when it went out, so that its answer is judged by that and not by what is so now.

use super::window::Counts;

/// A request that may go out. Give it to [`Pace::record_response`](crate::Pace::record_response) with what came, or to
/// [`Pace::cancel`](crate::Pace::cancel) when it did not go out; until then it counts as one under way.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a permit that is neither done nor given back holds a place of its host for good"]
pub struct Permit {
    /// The host, by the hash of its name.
    pub(crate) host: u64,
    /// When it went out: milliseconds, modulo 2^32.
    pub(crate) at: u32,
    /// How many requests went out to the host within each window, this one included.
    pub(crate) counts: Counts,
    /// How many were under way, this one included.
    pub(crate) in_flight: u8,
    /// [`TRIAL`] and the like.
    flags: u8,
    /// How many requests it was let through for.
    cost: u16,
    /// When the next request could go out once this one was booked, level by level, modulo 2^32: as long as that is so, no other was
    /// booked after it.
    pub(crate) next: [u32; LEVELS],
}

/// The host, its site and its address.
pub(crate) const LEVELS: usize = 3;

/// It is the trial of a hold of its host.
pub(crate) const TRIAL: u8 = 1;
/// The same of its site.
pub(crate) const SITE_TRIAL: u8 = 2;
/// The same of its address.
pub(crate) const ADDRESS_TRIAL: u8 = 4;
/// The caller had more to ask than the host's pace let through.
pub(crate) const PACED: u8 = 8;
/// The same of what the host has in common with others.
pub(crate) const SHARED_PACED: u8 = 16;

impl Permit {
    pub(crate) fn new(host: u64, now: i64, counts: Counts, in_flight: u8, flags: u8, cost: u16) -> Self {
        Self { host, at: wrapped(now), counts, in_flight, flags, cost, next: [0; LEVELS] }
    }

    pub(crate) fn with_next(self, next: [u32; LEVELS]) -> Self {
        Self { next, ..self }
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(crate) fn cost(&self) -> u16 {
        self.cost
    }

    /// When it went out, if it is not older than 24 days.
    pub(crate) fn sent(&self, now: i64) -> i64 {
        let age = wrapped(now).wrapping_sub(self.at).cast_signed();
        now - i64::from(age.max(0))
    }
}

/// A time modulo 2^32 milliseconds.
pub(crate) fn wrapped(ms: i64) -> u32 {
    ms as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_is_small_and_knows_when_it_was_given() {
        assert_eq!(size_of::<Permit>(), 40);
        let now = 1_790_000_000_123;
        let permit = Permit::new(1, now, Counts::default(), 1, TRIAL | PACED, 200);
        assert_eq!(permit.sent(now + 86_400_000), now);
        assert_eq!(permit.sent(now - 5), now - 5);
        assert_eq!(
            (permit.has(TRIAL), permit.has(SITE_TRIAL), permit.has(PACED), permit.cost()),
            (true, false, true, 200)
        );
        let _ = permit;
    }
}
