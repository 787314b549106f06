//! The steps of a visit: fetch this, wait for that, it has ended. Each owns what it holds, and gives it back when it is dropped.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::time::Duration;

use event_listener::{EventListener, Listener};

use crate::router::RouteError;
use crate::selector::Selector;
use crate::selector::pauses::BreakerTrial;
use crate::state::single_flight::{Follower, Lead};
use crate::trace::Span;
use crate::visit::pace_permit::{Later, Place};
use fetchwise_types::attempt::ErrorType;
use fetchwise_types::decision::{Source, Selection};
use fetchwise_types::registry::FetcherId;
use fetchwise_types::time::Timestamp;

/// What to do next.
#[derive(Debug)]
#[non_exhaustive]
pub enum Step<S: Deref<Target = Selector>> {
    /// Make one request, and [report](super::Visit::report) what it came to.
    Fetch(Fetch<S>),
    /// Come back later.
    Wait(Wait),
    /// There is nothing more to do.
    End(End),
}

/// One request to be made. Dropped without a report, it is as if it had never been handed out: nothing is recorded, and what it held
/// (the lead of the host's probe, the trial of a fetcher) is given back.
#[derive(Debug)]
pub struct Fetch<S: Deref<Target = Selector>> {
    pub(super) selector: S,
    /// Which of the visit's fetches it is.
    pub(super) number: u32,
    pub(super) take: Selection,
    pub(super) at: Timestamp,
    pub(super) deadline: Duration,
    pub(super) redirects_max: u32,
    pub(super) redirects: u32,
    pub(super) is_probe: bool,
    pub(super) held: Held<S>,
    pub(super) span: Span,
}

impl<S: Deref<Target = Selector>> Fetch<S> {
    /// The name of the fetcher to use.
    pub fn fetcher(&self) -> &str {
        self.selector.fetcher_name(self.take.fetcher)
    }

    /// The number of the fetcher to use, within its selector.
    pub fn fetcher_id(&self) -> FetcherId {
        self.take.fetcher
    }

    /// The decision that chose it: label, rule, confidence, propensity.
    pub fn decision(&self) -> &Selection {
        &self.take
    }

    /// Time for the whole request.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// How many more redirects may be followed; those of this attempt that were written in HTML are taken off.
    pub fn redirects_max(&self) -> u32 {
        self.redirects_max
    }

    /// How many redirects written in HTML led here, within this attempt.
    pub fn redirects(&self) -> u32 {
        self.redirects
    }

    /// Whether it is a probe: short, because a longer request can follow.
    pub fn is_probe(&self) -> bool {
        self.is_probe
    }

    /// The attempt as a span: whoever makes the request puts it within. It ends when the fetch is reported or dropped.
    #[cfg(feature = "tracing")]
    pub fn span(&self) -> &tracing::Span {
        self.span.inner()
    }

    /// The attempt as a span, whether there are any or not.
    #[cfg(feature = "pipeline")]
    pub(crate) fn trace(&self) -> &Span {
        &self.span
    }

    /// When it was handed out.
    pub fn at(&self) -> Timestamp {
        self.at
    }
}

/// What a fetch holds while it is under way.
#[derive(Debug)]
pub(super) struct Held<S: Deref<Target = Selector>> {
    /// The lead of the host's probe.
    pub(super) lead: Option<Lead>,
    /// The half-open trial of the fetcher.
    pub(super) trial: Option<FetcherTrial<S>>,
    /// The place in the host's pace.
    pub(super) place: Option<Place<S>>,
}

impl<S: Deref<Target = Selector>> Held<S> {
    pub(super) const NOTHING: Self = Self { lead: None, trial: None, place: None };

    /// What came of it is recorded: followers can go on, and the breaker knows.
    pub(super) fn settle(mut self) {
        if let Some(trial) = self.trial.take() {
            trial.settle();
        }
        if let Some(lead) = self.lead.take() {
            lead.verdict();
        }
    }
}

/// The half-open trial of a fetcher on a domain. Dropped before it is settled, the next caller may try at once.
#[derive(Debug)]
pub(super) struct FetcherTrial<S: Deref<Target = Selector>> {
    selector: S,
    domain: Box<str>,
    fetcher: FetcherId,
    claimed: Option<BreakerTrial>,
}

impl<S: Deref<Target = Selector>> FetcherTrial<S> {
    pub(super) fn new(selector: S, domain: &str, fetcher: FetcherId, claimed: BreakerTrial) -> Self {
        Self { selector, domain: domain.into(), fetcher, claimed: Some(claimed) }
    }

    fn settle(mut self) {
        self.claimed = None;
    }
}

impl<S: Deref<Target = Selector>> Drop for FetcherTrial<S> {
    fn drop(&mut self) {
        if let Some(BreakerTrial::Claimed { seen, at }) = self.claimed {
            self.selector.give_back_breaker_trial(&self.domain, self.fetcher, seen, at);
        }
    }
}

/// The one trial of a host whose pause is over. Dropped without a verdict, the next caller may try at once.
#[derive(Debug)]
pub(super) struct HostTrial<S: Deref<Target = Selector>> {
    pub(super) selector: S,
    pub(super) domain: Box<str>,
    /// Until when others are held off, and when the pause that it tries out had ended.
    pub(super) held_until: Timestamp,
    pub(super) ended: Timestamp,
    pub(super) is_settled: bool,
    /// Those who wait for the trial's end.
    pub(super) lead: Option<Lead>,
}

impl<S: Deref<Target = Selector>> HostTrial<S> {
    /// Its verdict is in the host's pause: nothing is given back.
    pub(super) fn settle(mut self) {
        self.is_settled = true;
        if let Some(lead) = self.lead.take() {
            lead.verdict();
        }
    }
}

impl<S: Deref<Target = Selector>> Drop for HostTrial<S> {
    fn drop(&mut self) {
        // Compare and swap: a pause that another trial's verdict set, or lifted, stays. This trial's own verdict might end at the
        // very moment that it was held until, which is why it has to be settled.
        if !self.is_settled {
            self.selector.claim_host_trial(&self.domain, self.held_until, self.ended);
        }
    }
}

/// A reason to come back later.
#[derive(Debug)]
pub struct Wait {
    pub(super) until: Timestamp,
    pub(super) why: WaitReason,
    pub(super) listener: Option<EventListener>,
}

/// What a visit waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitReason {
    /// Another visit probes the host: its verdict is shared.
    Probe,
    /// Another visit tries out the host, whose pause is over.
    Trial,
    /// This machine is at its limits.
    LocalFault,
    /// The host's pace has no place yet.
    Pace,
    /// The host met the visit with a wall that may be the page's or the pace's: another URL of it is asked first.
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
    pub(super) fn following(follower: &Follower, listener: EventListener, why: WaitReason) -> Self {
        Self { until: follower.expected_by(), why, listener: Some(listener) }
    }

    /// For a place in the host's pace.
    pub(crate) fn for_place(later: Later) -> Self {
        Self { until: later.until, why: WaitReason::Pace, listener: later.listener }
    }

    /// Until when at the latest. Coming back earlier is right, too: the visit then says whether it still has to wait.
    pub fn until(&self) -> Timestamp {
        self.until
    }

    /// What for.
    pub fn why(&self) -> WaitReason {
        self.why
    }

    /// Ends when what is waited for has come, on any runtime; never when only time can bring it. Race it against a timer that ends
    /// at [`until`](Self::until).
    #[allow(clippy::manual_async_fn, reason = "its signature promises that it can be sent to another thread")]
    pub fn notified(&mut self) -> impl Future<Output = ()> + Send + '_ {
        async move {
            match self.listener.as_mut() {
                Some(listener) => listener.await,
                None => std::future::pending().await,
            }
        }
    }

    /// Blocks this thread until what is waited for has come, or for `at_most`: for a crawler on threads.
    pub fn block(self, at_most: Duration) {
        match self.listener {
            Some(listener) => drop(listener.wait_timeout(at_most)),
            None => std::thread::sleep(at_most),
        }
    }
}

/// How a visit ended.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct End {
    /// Whether content came, and why not if it did not.
    pub how: VisitOutcome,
    /// The fetcher that delivered, or that made the last attempt.
    pub fetcher: Option<FetcherId>,
    /// The decision that delivered, or that ended it.
    pub source: Option<Source>,
    /// The fetcher's confidence when it was chosen.
    pub confidence: f64,
    /// The last HTTP status.
    pub status: Option<u16>,
    /// Whether any attempt was blocked.
    pub is_banned: bool,
    /// Attempts recorded: a probe and a retry included.
    pub requests: u32,
    /// Until when the link is paused now.
    pub paused_until: Option<Timestamp>,
    /// What happened, for a person; empty when content came.
    pub message: String,
}

impl End {
    /// Whether content came.
    pub fn is_delivered(&self) -> bool {
        matches!(self.how, VisitOutcome::Delivered)
    }
}

/// Whether a visit brought content.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum VisitOutcome {
    /// Content came.
    Delivered,
    /// None came, for this reason.
    Failed(ErrorType),
    /// No request was made: not before then.
    Paused {
        /// When it may be asked again.
        until: Timestamp,
        /// What is paused.
        whom: WaitScope,
    },
    /// No request was made: the host has shown whose wall stands before it, and nobody gets past that one. The link is paused.
    NoFetcherGetsPast {
        /// The vendor, as blocks show it: `block_datadome`.
        vendor: String,
    },
    /// The table should serve and has no route.
    NoRoute(RouteError),
    /// None of the fetchers that this visit could use is to be had.
    NoFetcher,
}

/// What is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitScope {
    /// The link.
    Link,
    /// Its whole host.
    Host,
    /// Nothing: its host's pace has no place yet, and whoever drives the visit did not want to wait.
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
