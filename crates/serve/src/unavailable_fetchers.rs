//! Candidates that are not to be had by what the server was told, until somebody tells of an attempt with one: then whoever fetches
//! has it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use fetchwise::registry::{FetcherId, FetcherSet};
use fetchwise::selector::Selector;

/// The candidates that nobody is known to have.
#[derive(Debug, Default)]
pub(crate) struct Missing {
    now: RwLock<Arc<Listed>>,
    /// Whether there are any, so that nobody looks where there are none.
    are_any: AtomicBool,
}

/// Who is missing at a moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listed {
    by_id: BTreeMap<FetcherId, (String, String)>,
    /// All of them.
    pub(crate) set: FetcherSet,
}

impl Missing {
    /// Candidates of `selector` by name, with the reason why each is not to be had.
    pub(crate) fn new(selector: &Selector, reasons: impl IntoIterator<Item = (String, String)>) -> Self {
        let known = |(name, why): (String, String)| {
            let id = selector.fetcher_id(&name).filter(|id| selector.is_candidate(*id))?;
            Some((id, (selector.fetcher_name(id).to_owned(), why)))
        };
        let listed = Listed::of(reasons.into_iter().filter_map(known).collect());
        Self { are_any: AtomicBool::new(!listed.by_id.is_empty()), now: RwLock::new(Arc::new(listed)) }
    }

    /// Who is missing now.
    pub(crate) fn listed(&self) -> Arc<Listed> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Somebody has made an attempt with the fetcher called `name`.
    pub(crate) fn seen(&self, name: &str) {
        // Relaxed: a fetcher that was missing a moment ago may be so for one more decision.
        if !self.are_any.load(Ordering::Relaxed) || !self.listed().by_id.values().any(|(known, _)| known == name) {
            return;
        }
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        let mut left = now.by_id.clone();
        left.retain(|_, (known, _)| known != name);
        self.are_any.store(!left.is_empty(), Ordering::Relaxed);
        *now = Arc::new(Listed::of(left));
    }
}

impl Listed {
    fn of(by_id: BTreeMap<FetcherId, (String, String)>) -> Self {
        let mut set = FetcherSet::EMPTY;
        by_id.keys().for_each(|id| set.insert(*id));
        Self { by_id, set }
    }

    /// Why a candidate is not to be had; none when it is.
    pub(crate) fn why(&self, id: FetcherId) -> Option<&str> {
        self.by_id.get(&id).map(|(_, why)| why.as_str())
    }
}
