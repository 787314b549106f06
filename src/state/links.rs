//! Links at risk: the state of every link that is paused, or failed the last time. All other links have the default state and take
//! no memory.

use std::sync::atomic::{AtomicUsize, Ordering};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use crate::backoff::LinkState;

/// The links at risk, by the name that their caller has for them.
#[derive(Debug, Default)]
pub(crate) struct Links {
    at_risk: DashMap<String, LinkState>,
    /// How many there are, so that where there is none nobody looks for one. Relaxed everywhere: a link that has just been put at risk
    /// by another thread may be missed once, as it would be a moment earlier.
    count: AtomicUsize,
}

impl Links {
    /// Adds what a replay found.
    pub(crate) fn restore(&self, links: impl IntoIterator<Item = (String, LinkState)>) {
        for (link, state) in links {
            if self.at_risk.insert(link, state).is_none() {
                self.count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// How many there are.
    #[cfg(feature = "metrics")]
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Forgets the links that `is_forgotten`.
    pub(crate) fn forget(&self, is_forgotten: impl Fn(&str) -> bool) {
        self.at_risk.retain(|link, _| {
            let goes = is_forgotten(link);
            if goes {
                self.count.fetch_sub(1, Ordering::Relaxed);
            }
            !goes
        });
    }

    /// The state of `link`.
    pub(crate) fn get(&self, link: &str) -> LinkState {
        if self.count.load(Ordering::Relaxed) == 0 {
            return LinkState::default();
        }
        self.at_risk.get(link).map_or_else(LinkState::default, |state| *state)
    }

    /// All of them, in no order.
    pub(crate) fn all(&self) -> Vec<(String, LinkState)> {
        self.at_risk.iter().map(|entry| (entry.key().clone(), *entry.value())).collect()
    }

    /// Changes a link's state from what it is now: another visit of the same link may have ended meanwhile. `say` is told each new
    /// state of a link that is or was at risk, under the entry's lock, so that a log has the changes in the order in which they
    /// were made.
    pub(crate) fn change(
        &self,
        link: &str,
        change: impl FnOnce(LinkState) -> LinkState,
        say: impl FnOnce(&LinkState),
    ) -> LinkState {
        let at_risk = |state: &LinkState| state.risk_level > 0 || state.paused_until.is_some() || state.hint.is_some();
        match self.at_risk.entry(link.to_owned()) {
            Entry::Occupied(mut entry) => {
                let state = change(*entry.get());
                say(&state);
                if at_risk(&state) {
                    entry.insert(state);
                } else {
                    entry.remove();
                    self.count.fetch_sub(1, Ordering::Relaxed);
                }
                state
            }
            Entry::Vacant(entry) => {
                let state = change(LinkState::default());
                if at_risk(&state) {
                    say(&state);
                    entry.insert(state);
                    self.count.fetch_add(1, Ordering::Relaxed);
                }
                state
            }
        }
    }
}
