//! The permit of one request: the state when it went out, so that its response is judged by that
//! state and not by the current one.

use super::window::Counts;

/// Permission for one request, which counts as in flight while the permit exists. Pass it to
/// [`Pace::record_response`](crate::Pace::record_response) with the response, or to
/// [`Pace::cancel`](crate::Pace::cancel) if the request did not go out.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a permit that is neither done nor given back holds a place of its host for good"]
pub struct Permit {
    /// The hash of the host's name.
    pub(crate) host: u64,
    /// When it went out, in milliseconds modulo 2^32.
    pub(crate) at: u32,
    /// Requests to the host within each window, including this one.
    pub(crate) counts: Counts,
    /// Requests in flight, including this one.
    pub(crate) in_flight: u8,
    /// [`TRIAL`] and others.
    flags: u8,
    /// The number of requests that it was admitted for.
    cost: u16,
    /// Earliest time of the next request after this one was booked, for each level, modulo 2^32.
    /// While it is unchanged, no other request was booked.
    pub(crate) next: [u32; LEVELS],
}

/// The host, its site and its address.
pub(crate) const LEVELS: usize = 3;

/// It is the trial of a hold of its host.
pub(crate) const TRIAL: u8 = 1;
/// It is the trial of a hold of its site.
pub(crate) const SITE_TRIAL: u8 = 2;
/// It is the trial of a hold of its address.
pub(crate) const ADDRESS_TRIAL: u8 = 4;
/// The caller had more requests than the host's pace admitted.
pub(crate) const PACED: u8 = 8;
/// The caller had more requests than a shared level admitted.
pub(crate) const SHARED_PACED: u8 = 16;

impl Permit {
    /// `seen` is what the host had counted and in flight when the request went out.
    pub(crate) fn new(host: u64, now: i64, seen: (Counts, u8), flags: u8, cost: u16) -> Self {
        let (counts, in_flight) = seen;
        Self { host, at: wrapped(now), counts, in_flight, flags, cost, next: [0; LEVELS] }
    }

    pub(crate) fn with_next(self, next: [u32; LEVELS]) -> Self {
        Self { next, ..self }
    }

    /// Returns the permit of a request that went out at `sent`.
    pub(crate) fn sent_at(self, sent: i64) -> Self {
        Self { at: wrapped(sent), ..self }
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(crate) fn cost(&self) -> u16 {
        self.cost
    }

    /// Returns when it went out, if it is not older than 24 days.
    pub(crate) fn sent(&self, now: i64) -> i64 {
        let age = wrapped(now).wrapping_sub(self.at).cast_signed();
        now - i64::from(age.max(0))
    }
}

/// Returns a time modulo 2^32 milliseconds.
pub(crate) fn wrapped(ms: i64) -> u32 {
    ms as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_is_small_and_knows_when_it_went_out() {
        assert_eq!(size_of::<Permit>(), 40);
        let now = 1_790_000_000_123;
        let permit = Permit::new(1, now, (Counts::default(), 1), TRIAL | PACED, 200);
        assert_eq!(permit.sent(now + 86_400_000), now);
        assert_eq!(permit.sent(now - 5), now - 5);
        assert_eq!(
            (permit.has(TRIAL), permit.has(SITE_TRIAL), permit.has(PACED), permit.cost()),
            (true, false, true, 200)
        );
        let _ = permit;
    }
}
