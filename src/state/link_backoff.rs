//! Links at risk: the state of every link that is paused or whose last fetch failed. All other
//! links have the default state and take no memory. The states that other nodes report are kept
//! separately; their reporter bounds and removes them.

use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use xxhash_rust::xxh3::xxh3_64;

use crate::backoff::LinkState;
use fetchwise_types::query_hash::QueryHash;

/// The links at risk, by the caller's name for them.
#[derive(Debug, Default)]
pub(crate) struct LinkBackoff {
    at_risk: DashMap<String, LinkState>,
    /// Hashes the query values in names, if the log does.
    query_hash: Option<QueryHash>,
    /// Number of links at risk, so that an empty map is not searched. Relaxed everywhere: a reader
    /// may miss a link that another thread has just put at risk, as it would a moment earlier.
    count: AtomicUsize,
    /// States that other nodes report, by the hash of a link's name; read without a lock.
    remote: papaya::HashMap<u64, LinkState>,
    /// Number of these states. Relaxed, as above.
    remote_count: AtomicUsize,
}

/// Returns whether a link's state differs from that of an unknown link.
fn is_at_risk(state: &LinkState) -> bool {
    state.risk_level > 0 || state.paused_until.is_some() || state.hint.is_some()
}

/// Merges this process's state of a link with the one that another node reports: the later pause
/// and the greater risk, so that pauses grow as if one process had made all attempts.
fn merged(own: LinkState, remote: LinkState) -> LinkState {
    LinkState {
        paused_until: own.paused_until.max(remote.paused_until),
        risk_level: own.risk_level.max(remote.risk_level),
        attempt_count: own.attempt_count.max(remote.attempt_count),
        hint: own.hint.or(remote.hint),
        ..own
    }
}

impl LinkBackoff {
    /// Returns an empty map that names links as a log does whose query values are hashed.
    pub(crate) fn with_query_hash(query_hash: Option<QueryHash>) -> Self {
        Self { query_hash, ..Self::default() }
    }

    /// Returns the name of a link in the map and in the log.
    pub(crate) fn name<'l>(&self, link: &'l str) -> Cow<'l, str> {
        self.query_hash.map_or(Cow::Borrowed(link), |hash| hash.url(link))
    }

    /// Adds the states that a replay found.
    pub(crate) fn restore(&self, links: impl IntoIterator<Item = (String, LinkState)>) {
        for (link, state) in links {
            // A log may have older entries whose values are not hashed.
            if self.at_risk.insert(self.name(&link).into_owned(), state).is_none() {
                self.count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns the number of links at risk.
    #[cfg(feature = "metrics")]
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Sets the state that other nodes report for the link with this hash; `None` removes it.
    /// Returns the one before.
    pub(crate) fn set_remote(&self, hash: u64, state: Option<LinkState>) -> Option<LinkState> {
        let remote = self.remote.pin();
        match state.filter(is_at_risk) {
            Some(state) => {
                let before = remote.insert(hash, state).copied();
                if before.is_none() {
                    self.remote_count.fetch_add(1, Ordering::Relaxed);
                }
                before
            }
            None => {
                let before = remote.remove(&hash).copied();
                if before.is_some() {
                    self.remote_count.fetch_sub(1, Ordering::Relaxed);
                }
                before
            }
        }
    }

    /// Returns the hash by which other nodes name a link.
    pub(crate) fn hash(&self, link: &str) -> u64 {
        xxh3_64(self.name(link).as_bytes())
    }

    /// Returns the state that other nodes report for `link`.
    fn remote_state(&self, link: &str) -> Option<LinkState> {
        if self.remote_count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.remote.pin().get(&self.hash(link)).copied()
    }

    /// Removes the state that other nodes report for `link`.
    pub(crate) fn clear_remote(&self, link: &str) {
        if self.remote_state(link).is_some() {
            self.set_remote(self.hash(link), None);
        }
    }

    /// Forgets the links that `is_forgotten` matches.
    pub(crate) fn forget(&self, is_forgotten: impl Fn(&str) -> bool) {
        self.at_risk.retain(|link, _| {
            let goes = is_forgotten(link);
            if goes {
                self.count.fetch_sub(1, Ordering::Relaxed);
            }
            !goes
        });
    }

    /// Returns the state of `link`: this process's own, merged with the reported one.
    pub(crate) fn get(&self, link: &str) -> LinkState {
        let own = match self.count.load(Ordering::Relaxed) {
            0 => LinkState::default(),
            _ => {
                self.at_risk.get(&*self.name(link)).map_or_else(LinkState::default, |state| *state)
            }
        };
        self.remote_state(link).map_or(own, |remote| merged(own, remote))
    }

    /// Returns all links at risk, in no order.
    pub(crate) fn all(&self) -> Vec<(String, LinkState)> {
        self.at_risk.iter().map(|entry| (entry.key().clone(), *entry.value())).collect()
    }

    /// Changes a link's state from its current one, since another visit of the same link may have
    /// ended meanwhile. `on_change` gets each new state of a link that is or was at risk, here or
    /// at another node. It runs under the entry's lock, so a log has the changes in the order in
    /// which they were made. The new state includes the reported one, which is then removed.
    pub(crate) fn change(
        &self,
        link: &str,
        change: impl FnOnce(LinkState) -> LinkState,
        on_change: impl FnOnce(&LinkState),
    ) -> LinkState {
        let remote = self.remote_state(link);
        let begin = |own: LinkState| remote.map_or(own, |remote| merged(own, remote));
        let state = match self.at_risk.entry(self.name(link).into_owned()) {
            Entry::Occupied(mut entry) => {
                let state = change(begin(*entry.get()));
                on_change(&state);
                if is_at_risk(&state) {
                    entry.insert(state);
                } else {
                    entry.remove();
                    self.count.fetch_sub(1, Ordering::Relaxed);
                }
                state
            }
            Entry::Vacant(entry) => {
                let state = change(begin(LinkState::default()));
                if remote.is_some() || is_at_risk(&state) {
                    on_change(&state);
                }
                if is_at_risk(&state) {
                    entry.insert(state);
                    self.count.fetch_add(1, Ordering::Relaxed);
                }
                state
            }
        };
        self.clear_remote(link);
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fetchwise_types::time::Timestamp;

    const LINK: &str = "https://e.org/a";

    fn paused(until: i64, risk_level: u8) -> LinkState {
        LinkState {
            paused_until: Some(Timestamp::from_millis(until)),
            risk_level,
            ..LinkState::default()
        }
    }

    #[test]
    fn the_later_pause_of_this_process_and_other_nodes_holds() {
        let (links, hash) = (LinkBackoff::default(), xxh3_64(LINK.as_bytes()));
        links.set_remote(hash, Some(paused(500, 2)));
        assert_eq!(links.get(LINK), paused(500, 2));
        assert_eq!(links.get("https://e.org/b"), LinkState::default());
        assert!(links.all().is_empty(), "reported states are not this process's own");
        links.restore([(LINK.to_owned(), paused(700, 1))]);
        assert_eq!(links.get(LINK), paused(700, 2));
        links.set_remote(hash, Some(paused(800, 1)));
        assert_eq!(links.get(LINK), paused(800, 1));
        links.set_remote(hash, None);
        assert_eq!(links.get(LINK), paused(700, 1));
        links.set_remote(hash, None);
        links.set_remote(hash, Some(LinkState::default()));
        assert_eq!(links.remote_count.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_change_starts_from_the_state_that_other_nodes_report() {
        let (links, hash) = (LinkBackoff::default(), xxh3_64(LINK.as_bytes()));
        links.set_remote(hash, Some(paused(500, 1)));
        let mut changes = Vec::new();
        links.change(LINK, |state| paused(900, state.risk_level + 1), |state| changes.push(*state));
        assert_eq!((links.get(LINK), &*changes), (paused(900, 2), &[paused(900, 2)][..]));
        assert_eq!(links.remote_count.load(Ordering::Relaxed), 0, "this process has a newer state");
        // A healthy link is reported even if only another node had failures with it.
        links.set_remote(hash ^ 1, Some(paused(500, 1)));
        links.forget(|_| true);
        links.set_remote(hash, Some(paused(500, 1)));
        links.change(LINK, |_| LinkState::default(), |state| changes.push(*state));
        assert_eq!(
            (links.get(LINK), changes.last()),
            (LinkState::default(), Some(&LinkState::default()))
        );
        links.change(LINK, |_| LinkState::default(), |_| panic!("nothing was at risk"));
    }
}
