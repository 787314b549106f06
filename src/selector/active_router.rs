//! Changing the router of a selector that decides, and deciding by the one that is in force.
//!
//! Invariant: a decision sees one router from beginning to end. Where nobody but learning is asked that costs one atomic read. Must not
//! know why somebody changes the mode.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use url::Url;

use super::{Selector, SelectContext};
use crate::router::{Fallback, Mode, RouteError, Routed, Router, RouterError};
use crate::selector::router_state::InForce;
use crate::trace;

impl Selector {
    /// The router that is in force. A copy: it stays what it is when another one takes its place.
    pub fn router(&self) -> Arc<Router> {
        Arc::clone(&self.steering.now.load().router)
    }

    /// Puts another router in force, from the next decision on, while other threads decide. Visits that have made an attempt stay
    /// with the arm that they began with. A fall-back stays in force.
    ///
    /// # Errors
    /// [`RouterError`] when its mode needs a table and it has none, or a route leads to no candidate; the old one stays.
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
        self.steering.change(|now| InForce { router: Arc::clone(&router), fallen: now.fallen.clone() });
        Ok(())
    }

    /// Changes the mode, as [`set_router`](Self::set_router) does.
    ///
    /// # Errors
    /// [`RouterError::NoTable`]; the old mode stays.
    pub fn set_mode(&self, mode: Mode) -> Result<(), RouterError> {
        self.set_router(Router { mode, ..(*self.router()).clone() })
    }

    /// Changes the share of domains that [`Mode::Split`] gives to learning, 0 to 1. A domain that has learning at a share has it at
    /// every larger one.
    ///
    /// # Errors
    /// [`RouterError::Share`]; the old share stays.
    pub fn set_split_share(&self, share: f64) -> Result<(), RouterError> {
        self.set_router(Router { split_share: share, ..(*self.router()).clone() })
    }

    /// Why learning is out of service, if it is.
    pub fn fallen_back(&self) -> Option<Arc<Fallback>> {
        self.steering.now.load().fallen.clone()
    }

    /// Takes learning out of service: the table serves every domain that it knows, whatever the mode, until
    /// [`resume`](Self::resume). What learning would have taken is asked and recorded on. Without a table nothing changes, and it is
    /// remembered for when there is one.
    pub fn fall_back(&self, why: Fallback) {
        trace::fell_back(&why);
        let why = Arc::new(why);
        self.steering.change(|now| InForce { router: Arc::clone(&now.router), fallen: Some(Arc::clone(&why)) });
    }

    /// Puts learning back into service.
    pub fn resume(&self) {
        self.steering.change(|now| InForce { router: Arc::clone(&now.router), fallen: None });
    }

    /// Decides about a first attempt by the router that is in force, as a visit does. `learning` is the link's own wish.
    ///
    /// # Errors
    /// As [`Router::decide`].
    pub fn route(&self, url: &Url, situation: &SelectContext<'_>, learning: Option<bool>) -> Result<Routed, RouteError> {
        let routed = self.route_uncounted(url, situation, learning)?;
        self.meter.decided(&routed.decision);
        Ok(routed)
    }

    /// The same for a visit, whose requests are counted as they are handed out.
    pub(crate) fn route_uncounted(
        &self,
        url: &Url,
        situation: &SelectContext<'_>,
        learning: Option<bool>,
    ) -> Result<Routed, RouteError> {
        let now = self.steering.now.load();
        now.router.decide_as(self, url, situation, learning, now.has_fallen())
    }

    /// Whether learning serves everything, links with a wish of their own apart. One atomic read.
    pub(crate) fn is_only_learning(&self) -> bool {
        self.steering.is_plain.load(Ordering::Acquire)
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
        let routed = selector.route(&url, &SelectContext::first_attempt(Timestamp::now()), None).unwrap();
        (routed.arm, routed.decision.selected().unwrap().source.name())
    }

    fn why() -> Fallback {
        Fallback { at: Timestamp::now(), from: Mode::Split, split_share: 0.5, reason: "worse".to_owned() }
    }

    #[test]
    fn the_mode_changes_from_one_decision_to_the_next_and_back() {
        let selector = Selector::builder().build().unwrap();
        assert_eq!(source(&selector, "http://a.org/"), (Mode::Learning, "probe"));
        selector.set_router(Router { mode: Mode::Legacy, table: table(&["a.org"]), split_share: 0.5 }).unwrap();
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
        let error = selector.set_router(Router { table: wrong, ..Router::default() }).unwrap_err().to_string();
        assert!(error.contains("did you mean \"playwright\"?"), "{error}");
        assert!(matches!(selector.set_split_share(f64::NAN), Err(RouterError::Share { .. })));
        assert_eq!(*selector.router(), Router::default());
    }

    #[test]
    fn after_a_fallback_the_table_serves_its_domains_until_resume() {
        let router = Router { mode: Mode::Learning, table: table(&["a.org"]), split_share: 1.0 };
        let selector = Selector::builder().router(router).build().unwrap();
        selector.fall_back(why());
        assert_eq!(source(&selector, "http://a.org/"), (Mode::Legacy, "hard_coded"));
        assert_eq!(source(&selector, "http://other.org/").0, Mode::Learning, "learning still serves domains without a route");
        let routed = |text: &str| {
            selector.route(&Url::parse(text).unwrap(), &SelectContext::first_attempt(Timestamp::now()), None).unwrap().shadow
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
        selector.fall_back(why());
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
                    selector.set_mode([Mode::Learning, Mode::Legacy, Mode::Shadow, Mode::Split][n % 4]).unwrap();
                }
            });
        });
    }
}
