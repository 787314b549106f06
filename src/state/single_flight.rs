//! Single flight: one visit of a host leads its probe, or the trial after its pause, and the others
//! follow.
//!
//! Invariants: a host has at most one leader at a time. Its followers wake when the leader's
//! [`Lead`] is dropped, for whatever reason. They learn whether the leader reached a verdict; if
//! not, one of them leads next. A leader that never ends is given up at its expected end, so no
//! follower waits for ever. A follower that waited for a leader which did not come back can tell.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use event_listener::{Event, EventListener};

use fetchwise_types::time::Timestamp;

const IN_PROGRESS: u8 = 0;
const VERDICT: u8 = 1;
const GIVEN_UP: u8 = 2;
/// The leader did not come back.
const ABANDONED: u8 = 3;

type ByDomain = Arc<DashMap<Box<str>, Arc<InFlight>>>;

/// The flights in progress, by domain.
#[derive(Debug, Default)]
pub(crate) struct SingleFlight {
    by_domain: ByDomain,
}

#[derive(Debug)]
struct InFlight {
    end: AtomicU8,
    expected_by: Timestamp,
    ended: Event,
}

/// The role of a visit that joins a flight.
#[derive(Debug)]
pub(crate) enum FlightRole {
    /// Proceed; the others wait until this is dropped.
    Leader(Lead),
    /// Wait for the leader.
    Follower(Follower),
}

/// The right to proceed. Dropping it lets the followers continue.
#[derive(Debug)]
pub(crate) struct Lead {
    domain: Box<str>,
    by_domain: ByDomain,
    flight: Arc<InFlight>,
}

/// Another visit's flight.
#[derive(Debug)]
pub(crate) struct Follower {
    flight: Arc<InFlight>,
}

impl SingleFlight {
    /// Joins the flight of `domain`, as its leader if there is none. A leader is expected to end by
    /// `expected_by`.
    pub(crate) fn join(&self, domain: &str, now: Timestamp, expected_by: Timestamp) -> FlightRole {
        let flight = || {
            Arc::new(InFlight { end: AtomicU8::new(IN_PROGRESS), expected_by, ended: Event::new() })
        };
        let flight = match self.by_domain.entry(domain.into()) {
            Entry::Occupied(there) if there.get().expected_by > now => {
                return FlightRole::Follower(Follower { flight: Arc::clone(there.get()) });
            }
            Entry::Occupied(mut overdue) => {
                let new = flight();
                overdue.insert(Arc::clone(&new)).end(ABANDONED);
                new
            }
            Entry::Vacant(free) => Arc::clone(free.insert(flight()).value()),
        };
        FlightRole::Leader(Lead {
            domain: domain.into(),
            by_domain: Arc::clone(&self.by_domain),
            flight,
        })
    }

    /// Returns the flight of `domain` that is in progress at `now`, if any.
    pub(crate) fn follow(&self, domain: &str, now: Timestamp) -> Option<Follower> {
        let flight = Arc::clone(self.by_domain.get(domain)?.value());
        (flight.expected_by > now).then_some(Follower { flight })
    }
}

impl InFlight {
    fn end(&self, how: u8) {
        // Release pairs with the Acquire in `Follower::verdict`: a follower that sees the verdict
        // sees the evidence recorded before it. A follower that listened before this store is woken
        // after it, and one that listens later sees it.
        if self.end.compare_exchange(IN_PROGRESS, how, Ordering::Release, Ordering::Relaxed).is_ok()
        {
            self.ended.notify(usize::MAX);
        }
    }
}

impl Lead {
    /// Ends the flight with a verdict: the result is in the evidence, and the followers can
    /// continue.
    pub(crate) fn verdict(self) {
        // Out of the map first, so that a woken follower does not join a flight that is over.
        self.leave();
        self.flight.end(VERDICT);
    }

    /// Ends the flight of a leader that does not come back.
    pub(crate) fn abandon(self) {
        self.leave();
        self.flight.end(ABANDONED);
    }

    fn leave(&self) {
        // The flight may have been given up, and another visit may lead by now.
        self.by_domain.remove_if(&self.domain, |_, flight| Arc::ptr_eq(flight, &self.flight));
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        self.leave();
        self.flight.end(GIVEN_UP);
    }
}

impl Follower {
    /// Returns whether the leader reached a verdict; `None` while it is in progress.
    pub(crate) fn verdict(&self) -> Option<bool> {
        match self.flight.end.load(Ordering::Acquire) {
            IN_PROGRESS => None,
            end => Some(end == VERDICT),
        }
    }

    /// Returns whether the leader had not come back at `now`. A visit that waited for it waits for
    /// no other: the next leader may not come back either.
    pub(crate) fn is_abandoned(&self, now: Timestamp) -> bool {
        match self.flight.end.load(Ordering::Acquire) {
            IN_PROGRESS => self.flight.expected_by <= now,
            end => end == ABANDONED,
        }
    }

    /// Returns the time until which followers wait at most.
    pub(crate) fn expected_by(&self) -> Timestamp {
        self.flight.expected_by
    }

    /// Returns a listener for the leader's end. Check [`verdict`](Self::verdict) after this call:
    /// an end in between wakes no follower.
    pub(crate) fn listen(&self) -> EventListener {
        self.flight.ended.listen()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);
    const LATER: Timestamp = Timestamp::from_millis(1_790_000_060_000);

    fn wait_for(follower: &Follower) -> bool {
        let listener = follower.listen();
        if let Some(verdict) = follower.verdict() {
            return verdict;
        }
        event_listener::Listener::wait_timeout(listener, Duration::from_secs(10))
            .expect("the leader has ended");
        follower.verdict().expect("the leader has ended")
    }

    #[test]
    fn followers_learn_whether_there_is_a_verdict() {
        let flights = SingleFlight::default();
        let join = |domain| flights.join(domain, NOW, LATER);
        let FlightRole::Leader(lead) = join("e.org") else { panic!("the first one leads") };
        let FlightRole::Follower(follower) = join("e.org") else {
            panic!("the second one follows")
        };
        assert!(matches!(join("other.org"), FlightRole::Leader(_)));
        assert_eq!(follower.verdict(), None);
        lead.verdict();
        assert!(wait_for(&follower));
        let FlightRole::Leader(lead) = join("e.org") else { panic!("the flight is over") };
        let FlightRole::Follower(follower) = join("e.org") else {
            panic!("the second one follows")
        };
        drop(lead);
        assert!(!wait_for(&follower), "a cancelled probe leaves no verdict");
    }

    #[test]
    fn a_leader_that_never_ends_is_given_up() {
        let flights = SingleFlight::default();
        let FlightRole::Leader(lost) = flights.join("e.org", NOW, LATER) else {
            panic!("the first one leads")
        };
        let FlightRole::Follower(follower) = flights.join("e.org", NOW, LATER) else {
            panic!("the second one follows")
        };
        let FlightRole::Leader(next) =
            flights.join("e.org", LATER, LATER.saturating_add(Duration::from_secs(1)))
        else {
            panic!("the leader is overdue")
        };
        assert_eq!(follower.verdict(), Some(false));
        drop(lost);
        assert!(
            flights.follow("e.org", LATER).is_some(),
            "the late end of the old leader does not end the new one's lead"
        );
        drop(next);
        assert!(flights.follow("e.org", LATER).is_none());
    }

    #[derive(Clone, Copy, Debug)]
    enum FlightEvent {
        /// A visit joins the flight of one of three hosts.
        Join(u8),
        /// The n-th leader reaches a verdict, or is cancelled.
        Verdict(usize),
        Cancel(usize),
    }

    fn event() -> impl Strategy<Value = FlightEvent> {
        prop_oneof![
            3 => (0..3u8).prop_map(FlightEvent::Join),
            1 => (0..4usize).prop_map(FlightEvent::Verdict),
            1 => (0..4usize).prop_map(FlightEvent::Cancel),
        ]
    }

    proptest! {
        #[test]
        fn a_host_has_one_leader_and_its_followers_learn_its_end(events in prop::collection::vec(event(), 1..60)) {
            let flights = SingleFlight::default();
            let mut leaders: Vec<(u8, usize, Lead)> = Vec::new();
            let mut followers: Vec<(usize, Follower)> = Vec::new();
            for (number, event) in events.iter().enumerate() {
                match *event {
                    FlightEvent::Join(host) => match flights.join(&format!("h{host}.org"), NOW, LATER) {
                        FlightRole::Leader(lead) => {
                            prop_assert!(leaders.iter().all(|(other, ..)| *other != host), "two leaders of one host");
                            leaders.push((host, number, lead));
                        }
                        FlightRole::Follower(follower) => {
                            let led_by = leaders.iter().find(|(other, ..)| *other == host).map(|(_, number, _)| *number);
                            prop_assert!(led_by.is_some(), "a follower without a leader");
                            followers.push((led_by.unwrap_or_default(), follower));
                        }
                    },
                    FlightEvent::Verdict(place) | FlightEvent::Cancel(place) if place < leaders.len() => {
                        let (_, led, lead) = leaders.remove(place);
                        let has_verdict = matches!(event, FlightEvent::Verdict(_));
                        match has_verdict {
                            true => lead.verdict(),
                            false => drop(lead),
                        }
                        let (theirs, others): (Vec<_>, Vec<_>) = followers.into_iter().partition(|(by, _)| *by == led);
                        followers = others;
                        for (_, follower) in theirs {
                            prop_assert_eq!(follower.verdict(), Some(has_verdict));
                        }
                        for (_, follower) in &followers {
                            prop_assert_eq!(follower.verdict(), None, "another flight's end");
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn one_of_several_threads_leads_and_the_others_wait_for_it() {
        for _ in 0..100 {
            let (flights, leading) = (SingleFlight::default(), AtomicUsize::new(0));
            let verdicts: HashSet<bool> = std::thread::scope(|scope| {
                let come = || match flights.join("e.org", NOW, LATER) {
                    FlightRole::Leader(lead) => {
                        assert_eq!(
                            leading.fetch_add(1, Ordering::SeqCst),
                            0,
                            "two leaders at once"
                        );
                        std::thread::yield_now();
                        leading.fetch_sub(1, Ordering::SeqCst);
                        lead.verdict();
                        true
                    }
                    FlightRole::Follower(follower) => wait_for(&follower),
                };
                let threads: Vec<_> = (0..8).map(|_| scope.spawn(come)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(verdicts, HashSet::from([true]), "every leader had a verdict");
        }
    }
}
