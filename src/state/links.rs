//! Links at risk: the state of every link that is paused, or failed the last time. All other links have the default state and take
//! no memory.

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use crate::backoff::LinkState;

/// The links at risk, by the name that their caller has for them.
#[derive(Debug, Default)]
pub(crate) struct Links {
    at_risk: DashMap<String, LinkState>,
}

impl Links {
    /// Adds what a replay found.
    pub(crate) fn restore(&self, links: impl IntoIterator<Item = (String, LinkState)>) {
        for (link, state) in links {
            self.at_risk.insert(link, state);
        }
    }

    /// The state of `link`.
    pub(crate) fn get(&self, link: &str) -> LinkState {
        self.at_risk.get(link).map_or_else(LinkState::default, |state| *state)
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
                }
                state
            }
            Entry::Vacant(entry) => {
                let state = change(LinkState::default());
                if at_risk(&state) {
                    say(&state);
                    entry.insert(state);
                }
                state
            }
        }
    }
}
