//! The router of a selector that decides: mode, share and table, and whether learning was taken out
//! of service. All of it can be exchanged while other threads decide.
//!
//! Owns: the active router, its exchange, and the routed decision by it.
//!
//! Invariants: a decision sees one router from beginning to end, the old one or the new one. If
//! only learning serves, that costs one atomic read.
//!
//! Must not know: why the mode changes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use url::Url;

use super::{SelectContext, Selector};
use crate::router::{Fallback, Mode, RouteError, Routed, Router, RouterError};
use crate::trace;

/// The router of a selector that can be exchanged while other threads decide.
pub(crate) struct ActiveRouter {
    state: ArcSwap<RouterState>,
    /// Whether only learning serves; nearly every decision reads it. Written after `state`. A
    /// reader of an old `true` decides as if it had come a moment earlier; a reader of an old
    /// `false` finds the truth in `state`.
    is_plain: AtomicBool,
}

/// The active router, and the fallback if learning is out of service.
#[derive(Clone)]
struct RouterState {
    router: Arc<Router>,
    fallback: Option<Arc<Fallback>>,
}

impl RouterState {
    /// Returns whether learning is out of service. Without a table a fallback has no effect.
    fn has_fallen_back(&self) -> bool {
        self.fallback.is_some() && !self.router.table.is_empty()
    }
}

impl fmt::Debug for ActiveRouter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActiveRouter")
            .field("router", &self.state.load().router)
            .finish_non_exhaustive()
    }
}

impl ActiveRouter {
    pub(super) fn new(router: Router) -> Self {
        let is_plain = AtomicBool::new(router.is_plain());
        Self {
            state: ArcSwap::from_pointee(RouterState { router: Arc::new(router), fallback: None }),
            is_plain,
        }
    }

    fn change(&self, change: impl Fn(&RouterState) -> RouterState) {
        self.state.rcu(|state| change(state));
        // Two threads that change at once may get here in either order: each writes the state that
        // it finds, and the later one finds both changes. Release pairs with the Acquire in
        // `is_only_learning`: a reader of `false` finds the router that it was written for.
        let state = self.state.load();
        self.is_plain.store(state.router.is_plain() && !state.has_fallen_back(), Ordering::Release);
        drop(state);
        let latest = self.state.load();
        if !latest.router.is_plain() || latest.has_fallen_back() {
            self.is_plain.store(false, Ordering::Release);
        }
    }
}

impl Selector {
    /// Returns the active router. It is a copy: it stays unchanged if another one replaces it.
    pub fn router(&self) -> Arc<Router> {
        Arc::clone(&self.active_router.state.load().router)
    }

    /// Replaces the router, from the next decision on, while other threads decide. A visit that has
    /// made an attempt stays with its first arm. A fallback stays active.
    ///
    /// # Errors
    /// [`RouterError`] if the mode needs a table and there is none, or if a route names a fetcher
    /// that is not a candidate; the old router stays.
    ///
    /// ```
    /// use fetchwise::Selector;
    /// use fetchwise::router::{Mode, RouteTable, Router};
    ///
    /// let selector = Selector::builder().build()?;
    /// let mut table = RouteTable::default();
    /// table.insert("example.org", "playwright").unwrap();
    /// selector.set_router(Router { mode: Mode::Split, table, split_share: 0.05 }).unwrap();
    /// selector.set_mode(Mode::Shadow).unwrap();
    /// assert_eq!((selector.router().mode, selector.router().table.len()), (Mode::Shadow, 1));
    /// # Ok::<(), fetchwise::Error>(())
    /// ```
    pub fn set_router(&self, router: Router) -> Result<(), RouterError> {
        router.check(self.candidates().map(|(_, spec)| &*spec.name))?;
        let router = Arc::new(router);
        trace::router(&router);
        self.active_router.change(|state| RouterState {
            router: Arc::clone(&router),
            fallback: state.fallback.clone(),
        });
        Ok(())
    }

    /// Changes the mode, as [`set_router`](Self::set_router) does.
    ///
    /// # Errors
    /// [`RouterError::NoTable`]; the old mode stays.
    pub fn set_mode(&self, mode: Mode) -> Result<(), RouterError> {
        self.set_router(Router { mode, ..(*self.router()).clone() })
    }

    /// Changes the share of domains that [`Mode::Split`] gives to learning, 0 to 1. A domain that
    /// learning serves at one share is served by it at every larger one.
    ///
    /// # Errors
    /// [`RouterError::InvalidShare`]; the old share stays.
    pub fn set_split_share(&self, share: f64) -> Result<(), RouterError> {
        self.set_router(Router { split_share: share, ..(*self.router()).clone() })
    }

    /// Returns why learning is out of service, if it is.
    pub fn fallen_back(&self) -> Option<Arc<Fallback>> {
        self.active_router.state.load().fallback.clone()
    }

    /// Takes learning out of service: the table serves every domain that it contains, whatever the
    /// mode, until [`resume`](Self::resume). The choices of learning are still recorded. Without a
    /// table nothing changes until there is one.
    pub fn fall_back(&self, fallback: Fallback) {
        trace::fell_back(&fallback);
        let fallback = Arc::new(fallback);
        self.active_router.change(|state| RouterState {
            router: Arc::clone(&state.router),
            fallback: Some(Arc::clone(&fallback)),
        });
    }

    /// Puts learning back into service.
    pub fn resume(&self) {
        self.active_router
            .change(|state| RouterState { router: Arc::clone(&state.router), fallback: None });
    }

    /// Decides about a first attempt by the active router, as a visit does. `learning` is the
    /// link's own mode.
    ///
    /// # Errors
    /// As [`Router::decide`].
    pub fn route(
        &self,
        url: &Url,
        context: &SelectContext<'_>,
        learning: Option<bool>,
    ) -> Result<Routed, RouteError> {
        let routed = self.route_uncounted(url, context, learning)?;
        self.recorder.count_decision(&routed.decision);
        Ok(routed)
    }

    /// Does the same for a visit, whose requests are counted when they are handed out.
    pub(crate) fn route_uncounted(
        &self,
        url: &Url,
        context: &SelectContext<'_>,
        learning: Option<bool>,
    ) -> Result<Routed, RouteError> {
        let state = self.active_router.state.load();
        state.router.decide_as(self, url, context, learning, state.has_fallen_back())
    }

    /// Returns whether learning serves every link that sets no mode. One atomic read.
    pub(crate) fn is_only_learning(&self) -> bool {
        self.active_router.is_plain.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::RouteTable;
    use fetchwise_types::time::Timestamp;

    fn table(domains: &[&str]) -> RouteTable {
        let mut table = RouteTable::default();
        domains.iter().for_each(|domain| table.insert(domain, "playwright").unwrap());
        table
    }

    fn source(selector: &Selector, url: &str) -> (Mode, &'static str) {
        let url = Url::parse(url).unwrap();
        let routed =
            selector.route(&url, &SelectContext::first_attempt(Timestamp::now()), None).unwrap();
        (routed.arm, routed.decision.selected().unwrap().source.name())
    }

    fn fallback() -> Fallback {
        Fallback {
            at: Timestamp::now(),
            from: Mode::Split,
            split_share: 0.5,
            reason: "worse".to_owned(),
        }
    }

    #[test]
    fn the_mode_changes_from_one_decision_to_the_next_and_back() {
        let selector = Selector::builder().build().unwrap();
        assert_eq!(source(&selector, "http://a.org/"), (Mode::Learning, "probe"));
        selector
            .set_router(Router { mode: Mode::Legacy, table: table(&["a.org"]), split_share: 0.5 })
            .unwrap();
        assert_eq!(source(&selector, "http://a.org/"), (Mode::Legacy, "hard_coded"));
        assert!(!selector.is_only_learning());
        selector.set_mode(Mode::Learning).unwrap();
        assert_eq!(source(&selector, "http://a.org/"), (Mode::Learning, "probe"));
        assert!(selector.is_only_learning());
    }

    #[test]
    fn an_invalid_router_is_refused_and_changes_nothing() {
        let selector = Selector::builder().build().unwrap();
        assert_eq!(selector.set_mode(Mode::Split), Err(RouterError::NoTable { mode: Mode::Split }));
        let mut wrong = RouteTable::default();
        wrong.insert("a.org", "playwrite").unwrap();
        let error = selector
            .set_router(Router { table: wrong, ..Router::default() })
            .unwrap_err()
            .to_string();
        assert!(error.contains("did you mean \"playwright\"?"), "{error}");
        assert!(matches!(
            selector.set_split_share(f64::NAN),
            Err(RouterError::InvalidShare { .. })
        ));
        assert_eq!(*selector.router(), Router::default());
    }

    #[test]
    fn after_a_fallback_the_table_serves_its_domains_until_resume() {
        let router = Router { mode: Mode::Learning, table: table(&["a.org"]), split_share: 1.0 };
        let selector = Selector::builder().router(router).build().unwrap();
        selector.fall_back(fallback());
        assert_eq!(source(&selector, "http://a.org/"), (Mode::Legacy, "hard_coded"));
        assert_eq!(
            source(&selector, "http://other.org/").0,
            Mode::Learning,
            "learning still serves domains without a route"
        );
        let routed = |text: &str| {
            selector
                .route(
                    &Url::parse(text).unwrap(),
                    &SelectContext::first_attempt(Timestamp::now()),
                    None,
                )
                .unwrap()
                .shadow
        };
        assert!(routed("http://a.org/").is_some(), "the choice of learning is still recorded");
        selector.set_mode(Mode::Split).unwrap();
        assert!(selector.fallen_back().is_some(), "a change of mode does not resume");
        assert_eq!(source(&selector, "http://a.org/").0, Mode::Legacy);
        selector.resume();
        assert_eq!(source(&selector, "http://a.org/").0, Mode::Learning);
    }

    #[test]
    fn without_a_table_a_fallback_has_no_effect() {
        let selector = Selector::builder().build().unwrap();
        selector.fall_back(fallback());
        assert!(selector.is_only_learning());
        assert_eq!(source(&selector, "http://a.org/"), (Mode::Learning, "probe"));
    }

    #[test]
    fn decisions_continue_while_the_mode_changes() {
        let router = Router { mode: Mode::Legacy, table: table(&["a.org"]), split_share: 0.5 };
        let selector = Selector::builder().router(router).build().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let (arm, source) = source(&selector, "http://a.org/");
                        assert_eq!(
                            arm == Mode::Legacy,
                            source == "hard_coded",
                            "arm and source must match"
                        );
                    }
                });
            }
            scope.spawn(|| {
                for n in 0..500 {
                    selector
                        .set_mode([Mode::Learning, Mode::Legacy, Mode::Shadow, Mode::Split][n % 4])
                        .unwrap();
                }
            });
        });
    }
}
