//! Single flight: one probe at a time for each host. Those who come while it is under way wait for its verdict.
//!
//! Invariant: a host has at most one leader, and its followers wake when the leader's [`Lead`] is dropped, however that
//! comes about. They know whether there was a verdict; after a cancelled probe one of them leads.

use std::sync::Arc;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use tokio::sync::watch;

/// The probes under way, by domain.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    by_domain: Arc<DashMap<String, watch::Receiver<bool>>>,
}

/// What a caller that wants to probe is to do.
pub(crate) enum Role {
    /// Probe; the others wait until this is dropped.
    Leader(Lead),
    /// Wait for the leader's verdict.
    Follower(watch::Receiver<bool>),
}

/// The right to probe a host. Dropping it lets the followers go on.
pub(crate) struct Lead {
    domain: String,
    by_domain: Arc<DashMap<String, watch::Receiver<bool>>>,
    verdict: watch::Sender<bool>,
}

impl Lead {
    /// The probe has ended and what it showed is in the evidence: the followers can go on.
    pub(crate) fn verdict(self) {
        self.verdict.send_replace(true);
    }
}

impl Flights {
    /// Joins the probe of `domain`: as its leader when there is none.
    pub(crate) fn join(&self, domain: &str) -> Role {
        match self.by_domain.entry(domain.to_owned()) {
            Entry::Occupied(flight) => Role::Follower(flight.get().clone()),
            Entry::Vacant(free) => {
                let (verdict, landed) = watch::channel(false);
                free.insert(landed);
                Role::Leader(Lead { domain: domain.to_owned(), by_domain: Arc::clone(&self.by_domain), verdict })
            }
        }
    }
}

/// Waits until the leader is through. Whether there is a verdict.
pub(crate) async fn landed(mut flight: watch::Receiver<bool>) -> bool {
    // An error means that the leader is gone; what it said last stays.
    let _ = flight.wait_for(|verdict| *verdict).await;
    *flight.borrow()
}

impl Drop for Lead {
    fn drop(&mut self) {
        // Out of the map first, so that whoever wakes and asks again finds no flight that is over.
        self.by_domain.remove(&self.domain);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn followers_wait_for_the_leader_and_no_longer() {
        let flights = Flights::default();
        let Role::Leader(lead) = flights.join("e.org") else { panic!("the first one leads") };
        let Role::Follower(flight) = flights.join("e.org") else { panic!("the second one follows") };
        assert!(matches!(flights.join("other.org"), Role::Leader(_)));
        let waiting = tokio::spawn(landed(flight));
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        lead.verdict();
        assert!(waiting.await.unwrap());
        let Role::Leader(lead) = flights.join("e.org") else { panic!("the flight is over") };
        let Role::Follower(flight) = flights.join("e.org") else { panic!("the second one follows") };
        drop(lead);
        assert!(!landed(flight).await, "a cancelled probe leaves no verdict");
    }
}
