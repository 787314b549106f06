//! The visit: the fetch of one URL, from the decision to the last recorded attempt, as a state
//! machine without I/O.
//!
//! A visit decides, judges failures, records, retries, escalates and pauses. A driver with network
//! access runs it: the pipeline, the simulator, or your own crawler. A visit starts no task and
//! reads no clock except its selector's.
//!
//! Owns: `step` the steps, `decide` the choice of the next step, `classify` the meaning of a
//! result, `report` what follows from it, `record` the attempt in the log, `end` the ends, `pace`
//! and `pace_permit` the host's pace, `passage` the gate of each request, `redirect` and
//! `redirect_target` the hosts of a chain of redirects, `short_page` and `repeated_page` the
//! doubtful pages, `remote_attempts` the attempts of other processes.
//!
//! Invariants: a fetch that is reported is recorded as one attempt before the next step. A fetch
//! that is dropped leaves no trace. A visit in the same state takes the same steps if it gets the
//! same results at the same times.
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
//!         // Here a crawler makes the request, with fetch.fetcher(), within fetch.deadline().
//!         Step::Fetch(fetch) => visit.report(fetch, Outcome::Content),
//!         Step::Wait(wait) => wait.block(std::time::Duration::from_secs(1)),
//!         Step::End(end) => break end,
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
use crate::metrics::recorder::VisitTimer;
use crate::router::Mode;
use crate::selector::Selector;
use crate::state::proxies::ProxyFaults;
use crate::state::single_flight::Follower;
use crate::trace::Span;
use fetchwise_types::attempt::bounds::link_name;
use fetchwise_types::attempt::verdict_reason::VerdictReason;
use fetchwise_types::attempt::{Arm, ErrorType, Hint};
use fetchwise_types::decision::{Rule, Selection, Source};
use fetchwise_types::fetch_result::ShortPage;
use fetchwise_types::heuristic::Heuristic;
use fetchwise_types::heuristic::url::{fetchable, identity};
use fetchwise_types::registry::{FetcherId, FetcherSet};
use fetchwise_types::time::Timestamp;

mod classify;
mod cross_site_page;
mod decide;
mod end;
mod pace;
pub(crate) mod pace_permit;
pub(crate) mod passage;
mod record;
pub(crate) mod redirect;
mod redirect_target;
mod remote_attempts;
mod repeated_page;
mod report;
mod short_page;
mod step;
#[cfg(test)]
mod tests;

use passage::Passage;
use step::FetchClaims;
pub use step::{End, Fetch, Step, VisitOutcome, Wait, WaitReason, WaitScope};

impl Selector {
    /// Starts a visit of `url`. It decides nothing before its first [`next`](Visit::next).
    ///
    /// # Errors
    /// [`Error::Url`] if the URL cannot be fetched.
    pub fn visit<'a>(&'a self, url: &'a Url) -> Result<Visit<&'a Self, &'a Url>, Error> {
        Visit::new(self, url)
    }
}

/// The fetch of one URL. See the [module](self).
///
/// `S` is how it holds its selector, and `U` how it holds its URL. [`Selector::visit`] takes
/// references. [`Visit::new`] also takes an `Arc` and an owned URL, for a visit that outlives the
/// function that started it. Dropping a visit is safe at any time, and returns all its claims.
///
/// The methods are spread over the files of this module:
///
/// - `mod.rs`: construction, options, [`next`](Self::next) and [`give_up`](Self::give_up)
/// - `decide.rs`: the decision, admission to a paused host, single flight
/// - `report.rs`: [`report`](Self::report) and [`unavailable`](Self::unavailable)
/// - `record.rs`: the attempt in the log
/// - `end.rs`: the ends, and the state of the link
/// - `pace.rs`: pace permits, and doubtful blocks
/// - `redirect.rs`: the hosts of a chain of redirects
/// - `short_page.rs`: short pages that are content
/// - `repeated_page.rs`: pages that come for several addresses
#[derive(Debug)]
pub struct Visit<S: Deref<Target = Selector> + Clone, U: Borrow<Url>> {
    selector: S,
    url: U,
    options: VisitOptions,
    tried: Tried,
    probe: SharedProbe,
    redirects: RedirectChain,
    seen: SeenSigns,
    /// Its way through the pauses and paces of hosts.
    passage: Passage<S>,
    last: LastAttempt,
    /// The next step, if it is settled already.
    next: NextStep<S>,
    #[cfg(feature = "metrics")]
    watch: VisitTimer,
    span: Span,
}

/// What the caller wants of a visit.
#[derive(Debug)]
struct VisitOptions {
    /// The name for the link; the URL if `None`.
    link: Option<Box<str>>,
    learning: Option<bool>,
    /// Heuristics that the caller knows besides the URL.
    heuristics: Option<Arc<[Heuristic]>>,
    /// The fetcher of the first attempt.
    preferred: Option<FetcherId>,
    max_pace_wait: Duration,
}

/// What a visit has tried.
#[derive(Debug)]
struct Tried {
    /// Candidates that are unavailable, or were tried.
    excluded: FetcherSet,
    /// The reason why the first unavailable fetcher was unavailable.
    unavailable: Option<String>,
    /// Number of the fetch in flight, or of the last one.
    number: u32,
    /// Number of attempts, without retries.
    attempts: u32,
    /// Number of recorded attempts.
    requests: u32,
    retries: u32,
    timeouts: u32,
    local_faults: u32,
    proxy_faults: ProxyFaults,
    /// What the last failure hints at.
    hint: Option<Hint>,
    /// The arm of the first decision, if there was a choice, and the fetcher that the other arm
    /// would have chosen.
    arm: Option<Arm>,
    shadow: Option<FetcherId>,
}

/// Another visit's probe of the host.
#[derive(Debug, Default)]
struct SharedProbe {
    /// The probe that this visit waits for.
    following: Option<Follower>,
    /// Whether this visit waited for one that reached a verdict.
    followed: bool,
    /// Whether the leader that it waited for did not come back.
    followed_in_vain: bool,
}

/// The redirects of the current attempt.
#[derive(Debug, Default)]
struct RedirectChain {
    /// The target of redirects written in HTML.
    target: Option<Box<Url>>,
    /// How many of those were followed.
    followed: u32,
    /// The URL that the last attempt ended at, if it is on another host than the visit's URL.
    landed: Option<Box<Url>>,
}

/// What the host has shown and asked for.
#[derive(Debug, Default)]
struct SeenSigns {
    /// The longest pause that a response has asked for.
    retry_after: Option<Duration>,
    short_pages: ShortPages,
    /// A block that may concern the page or the pace: the id of the doubt, and the time limit of
    /// its verdict.
    doubt: Option<(u32, Timestamp)>,
    /// The last failure before the last retry, and the time before which that does not go out.
    failed_at: Option<Timestamp>,
    retry_at: Option<Timestamp>,
}

/// The short pages that a visit has seen.
#[derive(Debug, Default)]
struct ShortPages {
    /// From a fetcher that runs no scripts.
    plain: Option<(FetcherId, ShortPage)>,
    /// From a fetcher that runs scripts.
    rendered: Option<ShortPage>,
    /// The text of a doubtful page from a fetcher that runs no scripts.
    doubtful: Option<u64>,
    /// The last page is doubtful, and a browser showed the same words for the site a while ago.
    is_settled: bool,
}

/// The last attempt, as the visit's end reports it.
#[derive(Debug, Default)]
struct LastAttempt {
    at: Option<Timestamp>,
    fetcher: Option<FetcherId>,
    source: Option<Source>,
    confidence: f64,
    status: Option<u16>,
    is_banned: bool,
    /// It was the trial of a host that still refuses all requests.
    was_trial: bool,
    /// The domain that blocked the last blocked attempt.
    blocked_by: Option<Box<str>>,
    message: String,
    /// The price that its 402 named.
    price: Option<Box<str>>,
    /// It got a page of no site.
    is_default_page: bool,
    /// The reason of its verdict, if it failed.
    verdict: Option<Box<VerdictReason>>,
    error: Option<ErrorType>,
}

/// The next step.
#[derive(Debug)]
enum NextStep<S: Deref<Target = Selector>> {
    /// Decide.
    Decide,
    /// Use the same fetcher again: for a retry, or for the target of a redirect.
    Repeat(Selection, FetchClaims<S>),
    /// Decide, but not before then: this machine is at its limits, or no site answers it.
    DecideAfter(Timestamp),
    /// The visit has ended.
    Ended(Box<End>),
}

impl<S: Deref<Target = Selector> + Clone, U: Borrow<Url>> Visit<S, U> {
    /// Starts a visit of `url`.
    ///
    /// # Errors
    /// [`Error::Url`] if the URL cannot be fetched.
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
            watch: VisitTimer::new(selector.recorder()),
            span: Span::visit(url.borrow()),
            options: VisitOptions {
                link: None,
                learning: None,
                heuristics: None,
                preferred: None,
                max_pace_wait: selector.visit_settings().max_pace_wait,
            },
            tried: Tried {
                excluded: FetcherSet::EMPTY,
                unavailable: None,
                number: 0,
                attempts: 0,
                requests: 0,
                retries: 0,
                timeouts: 0,
                local_faults: 0,
                proxy_faults: ProxyFaults::default(),
                hint: None,
                arm: None,
                shadow: None,
            },
            probe: SharedProbe::default(),
            redirects: RedirectChain::default(),
            seen: SeenSigns::default(),
            passage: Passage::new(selector.clone()),
            last: LastAttempt::default(),
            next: NextStep::Decide,
            selector,
            url,
        })
    }

    /// Sets the caller's name for the link; pauses apply to this name. A URL loses its user info
    /// and fragment, as it does when it is recorded.
    #[must_use]
    pub fn link_id(mut self, link: &str) -> Self {
        let name = link_name(link);
        self.span.link(&name);
        self.options.link = Some(name.into());
        self
    }

    /// Adds heuristics that the caller knows besides the URL. They count like those that the URL
    /// shows.
    #[must_use]
    pub fn with_heuristics(mut self, heuristics: impl IntoIterator<Item = Heuristic>) -> Self {
        // The URL was checked when the visit began. A heuristic that it shows counts once.
        let shown = self.selector.heuristics(self.url.borrow()).unwrap_or_default();
        let mut known: Vec<Heuristic> = Vec::new();
        for heuristic in heuristics {
            if !shown.contains(&heuristic) && !known.contains(&heuristic) {
                known.push(heuristic);
            }
        }
        self.options.heuristics = (!known.is_empty()).then(|| known.into());
        self
    }

    /// Sets this link's own mode, which takes precedence over the router's: [`Mode::Learning`] or,
    /// for any other, the table.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.options.learning = Some(mode == Mode::Learning);
        self
    }

    /// Sets the fetcher of the first attempt.
    ///
    /// # Errors
    /// [`Error::UnknownFetcher`] if no candidate has this name.
    pub fn prefer(mut self, fetcher: &str) -> Result<Self, Error> {
        let known = self.selector.fetcher_id(fetcher).filter(|id| self.selector.is_candidate(*id));
        self.options.preferred = Some(known.ok_or_else(|| Error::UnknownFetcher {
            name: fetcher.to_owned(),
            known: self.selector.candidates().map(|(_, spec)| spec.name.to_string()).collect(),
        })?);
        Ok(self)
    }

    /// Excludes these fetchers: they are unavailable here.
    #[must_use]
    pub fn without(mut self, fetchers: FetcherSet) -> Self {
        self.tried.excluded = self.tried.excluded.union(fetchers);
        self
    }

    /// Leaves the decision how long to wait for the host's pace to the driver.
    #[cfg(feature = "pipeline")]
    #[must_use]
    pub(crate) fn waits_without_limit(mut self) -> Self {
        self.options.max_pace_wait = Duration::MAX;
        self
    }

    /// Continues the way of the link's requests for robots.txt: a host that they try out is tried
    /// out by this visit.
    #[cfg(feature = "pipeline")]
    #[must_use]
    pub(crate) fn continuing(mut self, mut passage: Passage<S>) -> Self {
        // Files of other hosts have come, and their trials are for the pages there.
        passage.host_trial = passage.host_trial.filter(|trial| *trial.domain == *self.domain());
        self.passage = passage;
        self
    }

    /// Returns the address of the next request: the visit's URL, or the target of a redirect
    /// written in HTML.
    pub fn url(&self) -> &Url {
        self.redirects.target.as_deref().unwrap_or_else(|| self.url.borrow())
    }

    /// Returns the number of redirects written in HTML that the current attempt has followed.
    pub fn redirects(&self) -> u32 {
        self.redirects.followed
    }

    /// Returns the visit's span; put spans of your own within it.
    #[cfg(feature = "tracing")]
    pub fn span(&self) -> &tracing::Span {
        self.span.inner()
    }

    /// Returns the number of attempts made so far.
    pub fn requests(&self) -> u32 {
        self.tried.requests
    }

    /// Returns a fetch's pace permit, for a driver whose fetcher is busy.
    #[cfg(feature = "pipeline")]
    pub(crate) fn return_pace_permit(&self, fetch: &mut Fetch<S>) {
        fetch.claims.permit = None;
    }

    /// Takes a pace permit again, or returns what to wait for.
    #[cfg(feature = "pipeline")]
    pub(crate) fn retake_pace_permit(&self, fetch: &mut Fetch<S>) -> Result<(), Wait> {
        fetch.claims.permit = self.take_pace_permit(fetch.selection, self.selector.now())?;
        Ok(())
    }

    /// Returns whether the visit's host has been paused since it was admitted. If so, drop the
    /// fetch and call [`next`](Self::next) again.
    pub fn is_host_paused(&self) -> bool {
        let now = self.selector.now();
        let domain = redirect_target::domain(self.url());
        !self.passage.has_trial_of(domain)
            && self.selector.host_pause(domain).is_some_and(|until| until > now)
    }

    /// Marks a wait as over, for a caller whose selector's clock stands still.
    pub fn waited(&mut self) {
        self.seen.retry_at = None;
        if let NextStep::DecideAfter(until) = &mut self.next {
            *until = Timestamp::default();
        }
    }

    /// Returns the next step. If nothing has to wait, this costs as much as [`Selector::select`].
    ///
    /// Report a fetch, or drop it, before you ask for the next step. A fetch that is reported later
    /// is recorded, and changes nothing else. While a probe is in flight, its own visit waits for
    /// it like any other.
    #[allow(
        clippy::should_implement_trait,
        reason = "an iterator does not get the result of its items back"
    )]
    pub fn next(&mut self) -> Step<S> {
        let now = self.selector.now();
        #[cfg(feature = "metrics")]
        self.watch.steps(now);
        let mut step = self.step(now);
        if let Step::Wait(wait) = &step
            && wait.reason == WaitReason::Pace
            && wait.until.since(now) > self.options.max_pace_wait
        {
            step = Step::End(self.end_at_pace(wait.until, now));
        }
        if let Step::Wait(wait) = &step {
            self.selector.recorder().count_wait(wait.reason as usize);
            self.span.waits(wait.reason, wait.until);
        }
        step
    }

    fn step(&mut self, now: Timestamp) -> Step<S> {
        if self.seen.doubt.is_some()
            && !matches!(self.next, NextStep::Ended(_))
            && let Some(step) = self.doubt_step(now)
        {
            return step;
        }
        if let Some(until) = self.seen.retry_at.filter(|until| *until > now)
            && !matches!(self.next, NextStep::Ended(_))
        {
            return Step::Wait(Wait { until, reason: WaitReason::Doubt, listener: None });
        }
        if !self.selector.state().silent_hosts.is_empty() {
            self.leave_silent_host(now);
        }
        match std::mem::replace(&mut self.next, NextStep::Decide) {
            NextStep::Decide => self.decide(now),
            // Another visit may have paused the host since then. Make no more requests, unless its
            // pace only holds it for a moment.
            NextStep::Repeat(selection, mut claims)
                if self.redirects.target.is_none() && self.is_paused_beyond_its_pace(now) =>
            {
                // Another visit tries the host out: its verdict says whether the retry may go out.
                if let Some(wait) = self.trial_in_progress(now) {
                    claims.lead = None;
                    self.next = NextStep::Repeat(selection, claims);
                    return Step::Wait(wait);
                }
                // The trial may have reached its verdict since the pause was read.
                if !self.is_paused_beyond_its_pace(now) {
                    return self.hand_out_when_admitted(selection, claims, now);
                }
                drop(claims);
                match self.last.error.take() {
                    Some(error) => Step::End(self.fail(error, now)),
                    None => self.decide(now),
                }
            }
            NextStep::Repeat(selection, claims) if self.redirects.target.is_some() => {
                self.hand_out_redirected(selection, claims, now)
            }
            NextStep::Repeat(selection, claims) => {
                self.hand_out_when_admitted(selection, claims, now)
            }
            NextStep::DecideAfter(until) if until > now => {
                self.next = NextStep::DecideAfter(until);
                Step::Wait(Wait { until, reason: WaitReason::LocalFault, listener: None })
            }
            NextStep::DecideAfter(_) => self.decide(now),
            NextStep::Ended(end) => {
                let step = Step::End((*end).clone());
                self.next = NextStep::Ended(end);
                step
            }
        }
    }

    /// Returns what the visit holds for the next step of another visit: a lead, a trial, a permit.
    /// For a driver whose client does not come back, alongside [`Fetch::release`]. The visit can
    /// still continue.
    pub fn release(&mut self) {
        self.passage.host_trial = None;
        if let NextStep::Repeat(_, claims) = &mut self.next {
            claims.abandon();
        }
    }

    /// Ends the visit instead of waiting: with the failure that it has, or as paused until the
    /// wait's end.
    pub fn give_up(&mut self, wait: &Wait) -> End {
        let whom = match wait.reason {
            WaitReason::Pace | WaitReason::Doubt => WaitScope::Pace,
            WaitReason::Probe | WaitReason::Trial | WaitReason::LocalFault => WaitScope::Host,
        };
        self.end_unwaited(wait.until, whom, self.selector.now())
    }

    /// Ends the visit because its host's pace admits no request for longer than it may wait.
    fn end_at_pace(&mut self, until: Timestamp, now: Timestamp) -> End {
        let is_paused = self.selector.host_pause(self.domain()).is_some_and(|until| until > now);
        self.end_unwaited(until, if is_paused { WaitScope::Host } else { WaitScope::Pace }, now)
    }

    fn end_unwaited(&mut self, until: Timestamp, whom: WaitScope, now: Timestamp) -> End {
        match (self.last.error.take(), std::mem::replace(&mut self.next, NextStep::Decide)) {
            (_, NextStep::Ended(end)) => {
                self.next = NextStep::Ended(end.clone());
                *end
            }
            (Some(error), _) => self.fail(error, now),
            (None, _) => self.end(VisitOutcome::Paused { until, whom }, now),
        }
    }

    /// Returns whether the host, or the one that its redirect led to, has been paused since the
    /// visit was admitted, other than by its pace.
    fn is_paused_beyond_its_pace(&self, now: Timestamp) -> bool {
        let is_paused = |domain: &str| {
            let until = self.selector.host_pause(domain).filter(|until| *until > now);
            !self.passage.has_trial_of(domain)
                && until.is_some_and(|until| !self.passage.is_pace_hold(domain, until, now))
        };
        is_paused(self.domain())
            || self
                .redirects
                .landed
                .as_deref()
                .is_some_and(|landed| is_paused(redirect_target::domain(landed)))
    }

    /// Returns the wait for the trial that another visit makes of the host, or of the one that a
    /// redirect led to.
    fn trial_in_progress(&self, now: Timestamp) -> Option<Wait> {
        let landed = self.redirects.landed.as_deref().map(redirect_target::domain);
        self.passage
            .follow_trial(self.domain(), now)
            .or_else(|| self.passage.follow_trial(landed?, now))
    }

    /// Hands out a request once the host's pace admits it.
    fn hand_out_when_admitted(
        &mut self,
        selection: Selection,
        mut claims: FetchClaims<S>,
        now: Timestamp,
    ) -> Step<S> {
        if let Some(until) = self.selector.state().uplink.wait(now) {
            self.next = NextStep::Repeat(selection, claims);
            return Step::Wait(Wait { until, reason: WaitReason::LocalFault, listener: None });
        }
        match self.take_pace_permit(selection, now) {
            Ok(permit) => {
                self.selector.state().uplink.sends(now);
                claims.permit = permit;
                Step::Fetch(self.hand_out(selection, claims, now))
            }
            Err(wait) => {
                self.next = NextStep::Repeat(selection, claims);
                Step::Wait(wait)
            }
        }
    }

    fn hand_out(
        &mut self,
        selection: Selection,
        claims: FetchClaims<S>,
        now: Timestamp,
    ) -> Fetch<S> {
        let settings = self.selector.visit_settings();
        // A probe is short because its retry can follow with the full time.
        let is_probe = selection.source == Source::Probe
            && self.tried.attempts == 0
            && self.tried.retries == 0
            && settings.max_retries > 0;
        let deadline = if is_probe { settings.probe_deadline } else { settings.deadline };
        self.tried.number += 1;
        // The target of a redirect was decided with the request that led there.
        if self.redirects.target.is_none() {
            self.selector.recorder().count_selection(&selection);
            if selection.rule == Rule::SharedProbe {
                self.selector.recorder().count_probe(ProbeEnd::Shared);
            }
        }
        let fetcher = self.selector.fetcher_name(selection.fetcher);
        Fetch {
            span: self.span.attempt(self.url(), fetcher, &selection, self.tried.number),
            selector: self.selector.clone(),
            number: self.tried.number,
            selection,
            at: now,
            deadline,
            max_redirects: settings.max_redirects.saturating_sub(self.redirects.followed),
            redirects: self.redirects.followed,
            is_probe,
            requested: self.redirects.target.clone(),
            #[cfg(feature = "pipeline")]
            entered: None,
            #[cfg(feature = "pipeline")]
            is_entering: false,
            claims,
        }
    }

    fn domain(&self) -> &str {
        redirect_target::domain(self.url.borrow())
    }

    fn link_name(&self) -> &str {
        self.options.link.as_deref().unwrap_or_else(|| identity(self.url.borrow()))
    }
}
