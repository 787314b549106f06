//! The steps of a visit: fetch, wait, end. Each owns its claims, and returns them when it is
//! dropped.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::task::Poll;
use std::time::Duration;

use event_listener::{EventListener, Listener};
use url::Url;

use crate::router::RouteError;
use crate::selector::Selector;
use crate::selector::pauses::BreakerTrial;
use crate::state::single_flight::{Follower, Lead};
use crate::trace::Span;
use crate::visit::pace_permit::{AdmissionDelay, PacePermit};
use fetchwise_types::attempt::ErrorType;
use fetchwise_types::attempt::verdict_reason::VerdictReason;
use fetchwise_types::decision::{Selection, Source};
use fetchwise_types::registry::FetcherId;
use fetchwise_types::time::Timestamp;

/// The next step of a visit. There are no others: a `match` with these three arms is complete.
#[derive(Debug)]
pub enum Step<S: Deref<Target = Selector>> {
    /// Make one request, and [report](super::Visit::report) its result.
    Fetch(Fetch<S>),
    /// Come back later.
    Wait(Wait),
    /// The visit has ended.
    End(End),
}

/// One request to make. Dropped without a report, it leaves no trace: nothing is recorded, and its
/// claims (the lead of the host's probe, the trial of a fetcher, the pace permit) are returned.
#[derive(Debug)]
pub struct Fetch<S: Deref<Target = Selector>> {
    pub(super) selector: S,
    /// Its number among the visit's fetches.
    pub(super) number: u32,
    pub(super) selection: Selection,
    pub(super) at: Timestamp,
    pub(super) deadline: Duration,
    pub(super) max_redirects: u32,
    pub(super) redirects: u32,
    pub(super) is_probe: bool,
    /// The requested URL, if a redirect led there.
    pub(super) requested: Option<Box<Url>>,
    /// The domain that the fetcher has entered by following a redirect.
    #[cfg(feature = "pipeline")]
    pub(super) entered: Option<Box<str>>,
    /// Whether that domain has not admitted the request yet.
    #[cfg(feature = "pipeline")]
    pub(super) is_entering: bool,
    pub(super) claims: FetchClaims<S>,
    pub(super) span: Span,
}

impl<S: Deref<Target = Selector>> Fetch<S> {
    /// Returns the name of the fetcher to use.
    pub fn fetcher(&self) -> &str {
        self.selector.fetcher_name(self.selection.fetcher)
    }

    /// Returns the id of the fetcher to use, within its selector.
    pub fn fetcher_id(&self) -> FetcherId {
        self.selection.fetcher
    }

    /// Returns the decision that chose the fetcher: label, rule, confidence, propensity.
    pub fn decision(&self) -> &Selection {
        &self.selection
    }

    /// Returns the time limit of the whole request.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Returns the number of redirects that may be followed; those of this attempt that were
    /// written in HTML are subtracted.
    pub fn max_redirects(&self) -> u32 {
        self.max_redirects
    }

    /// Returns the number of redirects written in HTML that led here, within this attempt.
    pub fn redirects(&self) -> u32 {
        self.redirects
    }

    /// Returns the target of the redirect that led here, within this attempt. `None` if the request
    /// is for the visit's own URL.
    pub fn redirected_to(&self) -> Option<&Url> {
        self.requested.as_deref()
    }

    /// Returns whether it is a probe: short, because a longer request can follow.
    pub fn is_probe(&self) -> bool {
        self.is_probe
    }

    /// Returns the attempt's span: put the request within it. It ends when the fetch is reported or
    /// dropped.
    #[cfg(feature = "tracing")]
    pub fn span(&self) -> &tracing::Span {
        self.span.inner()
    }

    /// Returns the attempt's span, with or without the feature `tracing`.
    #[cfg(feature = "pipeline")]
    pub(crate) fn trace(&self) -> &Span {
        &self.span
    }

    /// Returns its claims, so that other visits of the host can continue. For a driver whose client
    /// is overdue: its report can still come, and teaches the same.
    pub fn release(&mut self) {
        self.claims.abandon();
    }

    /// Returns the time at which it was handed out.
    pub fn at(&self) -> Timestamp {
        self.at
    }
}

/// The claims of a fetch in flight.
#[derive(Debug)]
pub(super) struct FetchClaims<S: Deref<Target = Selector>> {
    /// The lead of the host's probe.
    pub(super) lead: Option<Lead>,
    /// The half-open trial of the fetcher.
    pub(super) trial: Option<FetcherTrial<S>>,
    /// The permit in the host's pace.
    pub(super) permit: Option<PacePermit<S>>,
}

impl<S: Deref<Target = Selector>> FetchClaims<S> {
    pub(super) const NONE: Self = Self { lead: None, trial: None, permit: None };

    /// Returns the claims of a request that nobody reports.
    pub(super) fn abandon(&mut self) {
        let Self { lead, .. } = std::mem::replace(self, Self::NONE);
        if let Some(lead) = lead {
            lead.abandon();
        }
    }

    /// Settles the claims after the attempt at `host` was recorded: followers can continue, and the
    /// breaker knows the result. The trial of a fetcher on a host that only redirected is returned.
    pub(super) fn settle(mut self, host: &str) {
        if let Some(trial) = self.trial.take_if(|trial| *trial.domain == *host) {
            trial.settle();
        }
        if let Some(lead) = self.lead.take() {
            lead.verdict();
        }
    }
}

/// The half-open trial of a fetcher on a domain. If it is dropped before it is settled, the next
/// caller may try at once.
#[derive(Debug)]
pub(super) struct FetcherTrial<S: Deref<Target = Selector>> {
    selector: S,
    domain: Box<str>,
    fetcher: FetcherId,
    claimed: Option<BreakerTrial>,
}

impl<S: Deref<Target = Selector>> FetcherTrial<S> {
    pub(super) fn new(
        selector: S,
        domain: &str,
        fetcher: FetcherId,
        claimed: BreakerTrial,
    ) -> Self {
        Self { selector, domain: domain.into(), fetcher, claimed: Some(claimed) }
    }

    fn settle(mut self) {
        self.claimed = None;
    }
}

impl<S: Deref<Target = Selector>> Drop for FetcherTrial<S> {
    fn drop(&mut self) {
        if let Some(BreakerTrial::Claimed { seen, at }) = self.claimed {
            self.selector.return_breaker_trial(&self.domain, self.fetcher, seen, at);
        }
    }
}

/// The one trial of a host whose pause is over. If it is dropped without a verdict, the next caller
/// may try at once.
#[derive(Debug)]
pub(super) struct HostTrial<S: Deref<Target = Selector>> {
    pub(super) selector: S,
    pub(super) domain: Box<str>,
    /// The time until which others are held off, and the end of the pause that is tried out.
    pub(super) held_until: Timestamp,
    pub(super) ended: Timestamp,
    pub(super) is_settled: bool,
    /// The lead of the visits that wait for the trial's end.
    pub(super) lead: Option<Lead>,
}

impl<S: Deref<Target = Selector>> HostTrial<S> {
    /// Settles the trial: its verdict is in the host's pause, and nothing is returned.
    pub(super) fn settle(mut self) {
        self.is_settled = true;
        if let Some(lead) = self.lead.take() {
            lead.verdict();
        }
    }
}

impl<S: Deref<Target = Selector>> Drop for HostTrial<S> {
    fn drop(&mut self) {
        // Compare and swap: a pause that another trial set or lifted stays. This trial's own
        // verdict may pause the host until exactly `held_until`, so a settled trial must not get
        // here.
        if !self.is_settled {
            self.selector.claim_host_trial(&self.domain, self.held_until, self.ended);
        }
    }
}

/// A reason to come back later.
#[derive(Debug)]
pub struct Wait {
    pub(super) until: Timestamp,
    pub(super) reason: WaitReason,
    pub(super) listener: Option<EventListener>,
}

/// The event that a visit waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitReason {
    /// Another visit probes the host, and shares its verdict.
    Probe,
    /// Another visit tries out the host, whose pause is over.
    Trial,
    /// This machine is at its limits, or no site answers it.
    LocalFault,
    /// The host's pace does not admit the request yet.
    Pace,
    /// The host blocked the visit, which may concern the page or the pace: another URL of the host
    /// goes first.
    Doubt,
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Probe => "probe",
            Self::Trial => "trial",
            Self::LocalFault => "local_fault",
            Self::Pace => "pace",
            Self::Doubt => "doubt",
        })
    }
}

impl Wait {
    pub(super) fn following(
        follower: &Follower,
        listener: EventListener,
        reason: WaitReason,
    ) -> Self {
        Self { until: follower.expected_by(), reason, listener: Some(listener) }
    }

    /// Returns the wait for admission by the host's pace.
    pub(crate) fn for_pace(later: AdmissionDelay) -> Self {
        Self { until: later.until, reason: WaitReason::Pace, listener: later.listener }
    }

    /// Returns the latest end of the wait. Coming back earlier is fine: the visit then says whether
    /// it still has to wait.
    pub fn until(&self) -> Timestamp {
        self.until
    }

    /// Returns the reason of the wait.
    pub fn reason(&self) -> WaitReason {
        self.reason
    }

    /// Completes when the awaited event happens, on any runtime; never if only time ends the wait.
    /// Race it against a timer that ends at [`until`](Self::until).
    #[allow(clippy::manual_async_fn, reason = "the signature promises a `Send` future")]
    pub fn notified(&mut self) -> impl Future<Output = ()> + Send + '_ {
        async move {
            match self.listener.as_mut() {
                Some(listener) => listener.await,
                None => std::future::pending().await,
            }
        }
    }

    /// Completes when the awaited event happens or [`until`](Self::until) has come, whichever is
    /// first. `sleep` makes the timer of the runtime, such as `tokio::time::sleep`. Call
    /// [`Visit::next`](super::Visit::next) afterwards.
    ///
    /// ```
    /// # use fetchwise::{Selector, visit::Step};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let selector = Selector::builder().build()?;
    /// let url = url::Url::parse("https://example.org/").unwrap();
    /// let mut first = selector.visit(&url)?;
    /// let Step::Fetch(fetch) = first.next() else { panic!("the first request of a host goes out at once") };
    /// let mut second = selector.visit(&url)?;
    /// if let Step::Wait(wait) = second.next() {
    ///     // Usually another task reports the first page meanwhile. Here it is given up, which is an event as well.
    ///     drop(fetch);
    ///     wait.ready(tokio::time::sleep).await;
    /// }
    /// # Ok::<(), fetchwise::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn ready<T: Future>(mut self, sleep: impl FnOnce(Duration) -> T) {
        let timer = sleep(self.until.since(Timestamp::now()));
        let (mut timer, mut event) = (std::pin::pin!(timer), std::pin::pin!(self.notified()));
        std::future::poll_fn(|context| {
            match (event.as_mut().poll(context), timer.as_mut().poll(context)) {
                (Poll::Pending, Poll::Pending) => Poll::Pending,
                _ => Poll::Ready(()),
            }
        })
        .await;
    }

    /// Blocks this thread until the awaited event happens, until [`until`](Self::until), or for
    /// `at_most`, whichever is first: for a crawler on threads. Call
    /// [`Visit::next`](super::Visit::next) afterwards.
    pub fn block(self, at_most: Duration) {
        let at_most = at_most.min(self.until.since(Timestamp::now()));
        match self.listener {
            Some(listener) => drop(listener.wait_timeout(at_most)),
            None => std::thread::sleep(at_most),
        }
    }
}

/// The end of a visit.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct End {
    /// Whether content was delivered, and why not.
    pub how: VisitOutcome,
    /// The fetcher that delivered, or that made the last attempt.
    pub fetcher: Option<FetcherId>,
    /// The label of the decision that delivered, or that ended the visit.
    pub source: Option<Source>,
    /// The fetcher's confidence when it was chosen.
    pub confidence: f64,
    /// The last HTTP status.
    pub status: Option<u16>,
    /// Whether any attempt was blocked.
    pub is_banned: bool,
    /// Whether the last attempt was the trial of a host that served until it began to refuse all
    /// requests, and still does. That says nothing of the link.
    pub was_trial: bool,
    /// The number of recorded attempts, with probe and retry.
    pub requests: u32,
    /// The end of the link's pause, if it is paused now.
    pub paused_until: Option<Timestamp>,
    /// The price that a 402 named.
    pub price: Option<Box<str>>,
    /// Whether what was delivered is a page of no site: of a parked domain, a hoster, or a product
    /// before its log-in.
    pub is_default_page: bool,
    /// The reason of the detector's verdict on the last attempt, if that failed.
    pub verdict: Option<Box<VerdictReason>>,
    /// The reason in words; empty if content was delivered.
    pub message: String,
}

impl End {
    /// Returns whether content was delivered.
    pub fn is_delivered(&self) -> bool {
        matches!(self.how, VisitOutcome::Delivered)
    }
}

/// Whether a visit delivered content.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum VisitOutcome {
    /// Content was delivered.
    Delivered,
    /// No content, for this reason.
    Failed(ErrorType),
    /// No request was made because of a pause.
    Paused {
        /// The end of the pause.
        until: Timestamp,
        /// What is paused.
        whom: WaitScope,
    },
    /// No request was made: no fetcher gets past the vendor that blocks on this host. The link is
    /// paused.
    NoViableFetcher {
        /// The vendor, as blocks name it: `block_datadome`.
        vendor: String,
    },
    /// The table should serve and has no route.
    NoRoute(RouteError),
    /// None of the fetchers that this visit could use is available.
    NoFetcher,
}

impl VisitOutcome {
    /// The names of all ends, as [`name`](Self::name) returns them.
    pub const NAMES: [&str; 7] =
        ["delivered", "failed", "paused", "paced", "no_viable_fetcher", "no_route", "no_fetcher"];

    /// Returns its name: the one that traces, metrics, the HTTP interface, Python and Node have,
    /// too. `paced` is a pause of the host's pace only.
    pub fn name(&self) -> &'static str {
        Self::NAMES[self.index()]
    }

    pub(crate) fn index(&self) -> usize {
        match self {
            Self::Delivered => 0,
            Self::Failed(_) => 1,
            Self::Paused { whom: WaitScope::Pace, .. } => 3,
            Self::Paused { .. } => 2,
            Self::NoViableFetcher { .. } => 4,
            Self::NoRoute(_) => 5,
            Self::NoFetcher => 6,
        }
    }
}

/// The [name](Self::name), with the error type of a failure, the scope of a pause, or the vendor.
impl fmt::Display for VisitOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Failed(error) => write!(f, " ({error})"),
            Self::Paused { whom: whom @ (WaitScope::Link | WaitScope::Host), .. } => {
                write!(f, " ({whom})")
            }
            Self::NoViableFetcher { vendor } => write!(f, " ({vendor})"),
            Self::NoRoute(error) => write!(f, " ({error})"),
            _ => Ok(()),
        }
    }
}

/// How the visit ended, and the reason in words.
impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message.as_str() {
            "" => self.how.fmt(f),
            message => write!(f, "{}: {message}", self.how),
        }
    }
}

/// The scope of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitScope {
    /// The link.
    Link,
    /// Its whole host.
    Host,
    /// The pace of its host: nothing is paused, and the visit may not wait so long for admission,
    /// or its driver did not want to.
    Pace,
}

impl fmt::Display for WaitScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Link => "link",
            Self::Host => "host",
            Self::Pace => "pace",
        })
    }
}
