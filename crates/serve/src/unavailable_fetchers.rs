//! The candidates that the configuration makes unavailable. An attempt with such a fetcher makes it
//! available, because the crawler has it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use fetchwise::registry::{FetcherId, FetcherSet};
use fetchwise::selector::Selector;

/// The unavailable candidates.
#[derive(Debug, Default)]
pub(crate) struct UnavailableFetchers {
    now: RwLock<Arc<UnavailableSnapshot>>,
    /// Whether there are any, to skip the look-up if there are none.
    are_any: AtomicBool,
}

/// The unavailable candidates at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnavailableSnapshot {
    by_id: BTreeMap<FetcherId, (String, String)>,
    /// The set of them.
    pub(crate) set: FetcherSet,
}

impl UnavailableFetchers {
    /// Creates the list from names of candidates of `selector`, with the reason why each is
    /// unavailable.
    pub(crate) fn new(
        selector: &Selector,
        reasons: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        let known = |(name, why): (String, String)| {
            let id = selector.fetcher_id(&name).filter(|id| selector.is_candidate(*id))?;
            Some((id, (selector.fetcher_name(id).to_owned(), why)))
        };
        let listed = UnavailableSnapshot::of(reasons.into_iter().filter_map(known).collect());
        Self {
            are_any: AtomicBool::new(!listed.by_id.is_empty()),
            now: RwLock::new(Arc::new(listed)),
        }
    }

    /// Returns the candidates that are unavailable now.
    pub(crate) fn listed(&self) -> Arc<UnavailableSnapshot> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records an attempt with the fetcher called `name`.
    pub(crate) fn seen(&self, name: &str) {
        // Relaxed: a stale value keeps a fetcher unavailable for one more decision.
        if !self.are_any.load(Ordering::Relaxed)
            || !self.listed().by_id.values().any(|(known, _)| known == name)
        {
            return;
        }
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        let mut left = now.by_id.clone();
        left.retain(|_, (known, _)| known != name);
        self.are_any.store(!left.is_empty(), Ordering::Relaxed);
        *now = Arc::new(UnavailableSnapshot::of(left));
    }
}

impl UnavailableSnapshot {
    fn of(by_id: BTreeMap<FetcherId, (String, String)>) -> Self {
        let mut set = FetcherSet::EMPTY;
        by_id.keys().for_each(|id| set.insert(*id));
        Self { by_id, set }
    }

    /// Returns why a candidate is unavailable; none if it is available.
    pub(crate) fn why(&self, id: FetcherId) -> Option<&str> {
        self.by_id.get(&id).map(|(_, why)| why.as_str())
    }
}
