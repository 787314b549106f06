//! The visit: one URL on its way from the decision to the last recorded attempt, as a state machine without I/O.
//!
//! It decides, judges what failures mean, records, retries, escalates, pauses; whoever has the network drives it: the pipeline, the
//! simulator, a crawler of one's own. It starts no task and reads no clock but its selector's.
//!
//! `step` owns what is handed out, `decide` what comes next, `report` what an answer means, `short` which short pages are
//! believed. Invariants: each fetch that is reported is recorded as one attempt before the next step; one that is dropped is as if it
//! had never been; the same visit, in the same state, given the same answers at the same times, takes the same steps.
//!
//! ```
//! use fetchwise::fetch_result::Outcome;
//! use fetchwise::visit::Step;
//! use fetchwise::Selector;
//!
//! let selector = Selector::builder().build()?;
//! let url = url::Url::parse("https://example.org/").unwrap();
//! let mut visit = selector.visit(&url)?;
//! let end = loop {
//!     match visit.next() {
//!         // Here a crawler asks the network, with fetch.fetcher(), within fetch.deadline().
//!         Step::Fetch(fetch) => visit.report(fetch, Outcome::Content),
//!         Step::Wait(wait) => wait.block(std::time::Duration::from_secs(1)),
//!         Step::End(end) => break end,
//!         _ => unreachable!("there are no other steps"),
//!     }
//! };
//! assert!(end.is_delivered());
//! assert_eq!(end.requests, 1);
//! # Ok::<(), fetchwise::Error>(())
//! ```

use std::borrow::Borrow;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use url::Url;

use crate::error::Error;
use crate::metrics::recorder::ProbeEnd;
#[cfg(feature = "metrics")]
use crate::metrics::recorder::Watch;
use crate::router::Mode;
use crate::selector::Selector;
use crate::state::single_flight::Follower;
use crate::trace::Span;
use fetchwise_types::attempt::bounds::link_name;
use fetchwise_types::attempt::{Arm, ErrorType, Hint};
use fetchwise_types::decision::{Rule, Source, Selection};
use fetchwise_types::fetch_result::ShortPage;
use fetchwise_types::heuristic::Heuristic;
use fetchwise_types::heuristic::url::{domain_of, fetchable, identity};
use fetchwise_types::registry::{FetcherId, FetcherSet};
use fetchwise_types::time::Timestamp;

mod decide;
mod pace;
pub(crate) mod pace_permit;
mod remote_attempts;
mod repeated_page;
mod report;
mod short_page;
mod step;
#[cfg(test)]
mod tests;

pub use step::{End, VisitOutcome, Fetch, Step, Wait, WaitScope, WaitReason};
use step::{Held, HostTrial};

impl Selector {
    /// Begins a visit of `url`. Nothing is decided before its first [`next`](Visit::next).
    ///
    /// # Errors
    /// [`Error::Url`] when the URL is not one that can be fetched.
    pub fn visit<'a>(&'a self, url: &'a Url) -> Result<Visit<&'a Self, &'a Url>, Error> {
        Visit::new(self, url)
    }
}

/// One URL on its way. See the [module](self).
///
/// `S` is how it holds its selector and `U` how it holds its URL: references from [`Selector::visit`]; an `Arc` and the URL itself,
/// by [`Visit::new`], for a visit that has to outlive the function that began it. Dropping it at any moment is safe, and gives back
/// all that it held.
#[derive(Debug)]
pub struct Visit<S: Deref<Target = Selector> + Clone, U: Borrow<Url>> {
    selector: S,
    url: U,
    /// The caller's name for what is fetched; the URL when none.
    link: Option<Box<str>>,
    learning: Option<bool>,
    /// What the caller knows beside the URL.
    known: Option<Arc<[Heuristic]>>,
    wanted: Option<FetcherId>,
    /// Candidates that are not to be had, or were tried.
    excluded: FetcherSet,
    /// The fetch that is out, or was out last.
    number: u32,
    /// What the next step is, where it is settled already.
    next: Next<S>,
    hint: Option<Hint>,
    /// Attempts, a retry not among them.
    attempts: u32,
    /// Attempts as they are recorded.
    requests: u32,
    retries: u32,
    timeouts: u32,
    local_faults: u32,
    retry_after: Option<Duration>,
    /// This visit is the one trial of a host whose pause has ended.
    host_trial: Option<HostTrial<S>>,
    /// Another visit's probe is waited for.
    following: Option<Follower>,
    /// Another visit's probe has been waited for, and came to a verdict.
    followed: bool,
    /// The arm that the first decision came from, where there was a choice, and what the other one would have taken.
    arm: Option<Arm>,
    shadow: Option<FetcherId>,
    last_attempt_at: Option<Timestamp>,
    /// Where redirects written in HTML have led, within the attempt under way.
    redirected: Option<Box<Url>>,
    redirects: u32,
    shorts: Shorts,
    /// A wall that may be the page's or the pace's: which doubt it is, and until when its verdict is waited for.
    doubt: Option<(u32, Timestamp)>,
    last: Last,
    /// WaitReason the first fetcher that could not be had could not.
    unavailable: Option<String>,
    #[cfg(feature = "metrics")]
    watch: Watch,
    span: Span,
}

/// The short pages that a visit has met.
#[derive(Debug, Default)]
struct Shorts {
    /// By a fetcher that runs no scripts.
    plain: Option<(FetcherId, ShortPage)>,
    /// By one that does.
    rendered: Option<ShortPage>,
}

/// What an end tells of the last attempt.
#[derive(Debug, Default)]
struct Last {
    fetcher: Option<FetcherId>,
    source: Option<Source>,
    confidence: f64,
    status: Option<u16>,
    is_banned: bool,
    message: String,
    error: Option<ErrorType>,
}

/// What the next step is.
#[derive(Debug)]
enum Next<S: Deref<Target = Selector>> {
    /// It has to be decided.
    Decide,
    /// The same fetcher again: a retry, or where a redirect leads.
    Again(Selection, Held<S>),
    /// It has to be decided, not before then: this machine is at its limits.
    After(Timestamp),
    /// Nothing more.
    Ended(Box<End>),
}

impl<S: Deref<Target = Selector> + Clone, U: Borrow<Url>> Visit<S, U> {
    /// Begins a visit of `url`.
    ///
    /// # Errors
    /// [`Error::Url`] when the URL is not one that can be fetched.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use fetchwise::{Selector, visit::Visit};
    ///
    /// let selector = Arc::new(Selector::builder().build()?);
    /// let url = url::Url::parse("https://example.org/").unwrap();
    /// let visit = Visit::new(selector, url)?;
    /// std::thread::spawn(move || drop(visit)).join().unwrap();
    /// # Ok::<(), fetchwise::Error>(())
    /// ```
    pub fn new(selector: S, url: U) -> Result<Self, Error> {
        fetchable(url.borrow())?;
        Ok(Self {
            #[cfg(feature = "metrics")]
            watch: Watch::new(selector.meter()),
            span: Span::visit(url.borrow()),
            selector,
            url,
            link: None,
            learning: None,
            known: None,
            wanted: None,
            excluded: FetcherSet::EMPTY,
            number: 0,
            next: Next::Decide,
            hint: None,
            attempts: 0,
            requests: 0,
            retries: 0,
            timeouts: 0,
            local_faults: 0,
            retry_after: None,
            host_trial: None,
            following: None,
            followed: false,
            arm: None,
            shadow: None,
            last_attempt_at: None,
            redirected: None,
            redirects: 0,
            shorts: Shorts::default(),
            doubt: None,
            last: Last::default(),
            unavailable: None,
        })
    }

    /// Sets the caller's name for what is fetched; pauses hold for this name. A URL is taken without user info and fragment, as it is
    /// recorded.
    #[must_use]
    pub fn link(mut self, link: &str) -> Self {
        let name = link_name(link);
        self.span.link(&name);
        self.link = Some(name.into());
        self
    }

    /// Says what the caller knows beside the URL: it is learned from and decided by as what the URL shows is.
    #[must_use]
    pub fn knowing(mut self, heuristics: impl IntoIterator<Item = Heuristic>) -> Self {
        // The URL was looked at when the visit began. What it shows counts once.
        let shown = self.selector.heuristics(self.url.borrow()).unwrap_or_default();
        let mut known: Vec<Heuristic> = Vec::new();
        for heuristic in heuristics {
            if !shown.contains(&heuristic) && !known.contains(&heuristic) {
                known.push(heuristic);
            }
        }
        self.known = (!known.is_empty()).then(|| known.into());
        self
    }

    /// Sets this link's own wish for a mode, which goes before the router's: [`Mode::Learning`] or, for any other, the table.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.learning = Some(mode == Mode::Learning);
        self
    }

    /// Sets the fetcher that the first attempt shall be made with.
    ///
    /// # Errors
    /// [`Error::UnknownFetcher`] when no candidate has this name.
    pub fn prefer(mut self, fetcher: &str) -> Result<Self, Error> {
        let known = self.selector.fetcher_id(fetcher).filter(|id| self.selector.is_candidate(*id));
        self.wanted = Some(known.ok_or_else(|| Error::UnknownFetcher {
            name: fetcher.to_owned(),
            known: self.selector.candidates().map(|(_, spec)| spec.name.to_string()).collect(),
        })?);
        Ok(self)
    }

    /// Leaves these fetchers out: they are not to be had here.
    #[must_use]
    pub fn without(mut self, fetchers: FetcherSet) -> Self {
        self.excluded = self.excluded.union(fetchers);
        self
    }

    /// The address to ask for next: the visit's URL, or where a redirect written in HTML has led.
    pub fn url(&self) -> &Url {
        self.redirected.as_deref().unwrap_or_else(|| self.url.borrow())
    }

    /// How many redirects written in HTML the attempt under way has followed.
    pub fn redirects(&self) -> u32 {
        self.redirects
    }

    /// The visit as a span: what belongs to it can be put within it.
    #[cfg(feature = "tracing")]
    pub fn span(&self) -> &tracing::Span {
        self.span.inner()
    }

    /// How many attempts it has made.
    pub fn requests(&self) -> u32 {
        self.requests
    }

    /// Gives back the place that a fetch has in its host's pace, for a driver whose fetcher is busy.
    #[cfg(feature = "pipeline")]
    pub(crate) fn leave_pace(&self, fetch: &mut Fetch<S>) {
        fetch.held.place = None;
    }

    /// Takes a place again that was given back, or says what to wait for.
    #[cfg(feature = "pipeline")]
    pub(crate) fn enter_pace(&self, fetch: &mut Fetch<S>) -> Result<(), Wait> {
        fetch.held.place = self.take_place(fetch.take, self.selector.now())?;
        Ok(())
    }

    /// Whether the visit's host has been paused since it was let in: what was handed out is better dropped and asked for again.
    pub fn is_host_paused(&self) -> bool {
        let now = self.selector.now();
        self.host_trial.is_none() && self.selector.host_pause(self.domain()).is_some_and(|until| until > now)
    }

    /// Says that a wait is over, for a caller whose selector's clock stands still.
    pub fn waited(&mut self) {
        if let Next::After(until) = &mut self.next {
            *until = Timestamp::default();
        }
    }

    /// What to do next. When nothing has to wait it costs what [`Selector::select`] costs.
    ///
    /// Report a fetch or drop it before you ask for the next step. One that is reported later is recorded, and changes nothing else;
    /// while a probe is out, its own visit has to wait for it like any other.
    #[allow(clippy::should_implement_trait, reason = "an iterator could not be told what came of its items")]
    pub fn next(&mut self) -> Step<S> {
        let now = self.selector.now();
        #[cfg(feature = "metrics")]
        self.watch.steps(now);
        let step = self.step(now);
        if let Step::Wait(wait) = &step {
            self.selector.meter().waits(wait.why as usize);
            self.span.waits(wait.why, wait.until);
        }
        step
    }

    fn step(&mut self, now: Timestamp) -> Step<S> {
        if self.doubt.is_some()
            && !matches!(self.next, Next::Ended(_))
            && let Some(step) = self.in_doubt(now)
        {
            return step;
        }
        match std::mem::replace(&mut self.next, Next::Decide) {
            Next::Decide => self.decide(now),
            // The host may have said "not now" to another visit since: then it is asked for nothing more, unless its pace holds it for
            // a moment.
            Next::Again(_, held) if self.redirected.is_none() && self.is_paused_beyond_its_pace(now) => {
                drop(held);
                match self.last.error.take() {
                    Some(error) => Step::End(self.fail(error, now)),
                    None => self.decide(now),
                }
            }
            Next::Again(take, held) => self.go(take, held, now),
            Next::After(until) if until > now => {
                self.next = Next::After(until);
                Step::Wait(Wait { until, why: WaitReason::LocalFault, listener: None })
            }
            Next::After(_) => self.decide(now),
            Next::Ended(end) => {
                let step = Step::End((*end).clone());
                self.next = Next::Ended(end);
                step
            }
        }
    }

    /// Says that this is not waited for: the visit ends, with the failure that it has, or as paused until then.
    pub fn give_up(&mut self, wait: &Wait) -> End {
        let now = self.selector.now();
        match (self.last.error.take(), std::mem::replace(&mut self.next, Next::Decide)) {
            (_, Next::Ended(end)) => {
                self.next = Next::Ended(end.clone());
                *end
            }
            (Some(error), _) => self.fail(error, now),
            (None, _) => {
                let whom = if matches!(wait.why, WaitReason::Pace | WaitReason::Doubt) { WaitScope::Pace } else { WaitScope::Host };
                self.end(VisitOutcome::Paused { until: wait.until, whom }, now)
            }
        }
    }

    /// Whether the host has been paused since the visit was let in, and not by its pace, which is waited for.
    fn is_paused_beyond_its_pace(&self, now: Timestamp) -> bool {
        let until = self.selector.host_pause(self.domain()).filter(|until| *until > now);
        self.host_trial.is_none() && until.is_some_and(|until| self.pace_holds_until(until, now).is_none())
    }

    /// Hands a request out once the host's pace has a place for it.
    fn go(&mut self, take: Selection, mut held: Held<S>, now: Timestamp) -> Step<S> {
        match self.take_place(take, now) {
            Ok(place) => {
                held.place = place;
                Step::Fetch(self.hand_out(take, held, now))
            }
            Err(wait) => {
                self.next = Next::Again(take, held);
                Step::Wait(wait)
            }
        }
    }

    fn hand_out(&mut self, take: Selection, held: Held<S>, now: Timestamp) -> Fetch<S> {
        let settings = self.selector.visit_settings();
        // A probe is short because a longer request can follow: the retry, which is there once.
        let is_probe =
            take.source == Source::Probe && self.attempts == 0 && self.retries == 0 && settings.max_retries > 0;
        let deadline = if is_probe { settings.probe_deadline } else { settings.deadline };
        self.number += 1;
        // Where a redirect leads was decided with the request that met it.
        if self.redirected.is_none() {
            self.selector.meter().took(&take);
            if take.rule == Rule::SharedProbe {
                self.selector.meter().probed(ProbeEnd::Shared);
            }
        }
        let fetcher = self.selector.fetcher_name(take.fetcher);
        Fetch {
            span: self.span.attempt(self.url(), fetcher, &take, self.number),
            selector: self.selector.clone(),
            number: self.number,
            take,
            at: now,
            deadline,
            redirects_max: settings.redirects_max.saturating_sub(self.redirects),
            redirects: self.redirects,
            is_probe,
            held,
        }
    }

    fn domain(&self) -> &str {
        domain_of(self.url.borrow().host_str().unwrap_or_default())
    }

    fn link_name(&self) -> &str {
        self.link.as_deref().unwrap_or_else(|| identity(self.url.borrow()))
    }
}
