//! The selector: it chooses a fetcher for each URL and learns from attempts.
//!
//! [`Selector::select`] is synchronous, takes no lock, makes no system call and allocates nothing.
//! [`Selector::record`] updates memory and passes the attempt to a [`Sink`]. Time, link state and
//! excluded fetchers are passed by value, so the same calls serve a live crawler, a replay and a
//! simulation.
//!
//! Owns: the decision and its label, and the hand-over of attempts to evidence, policy and sink.
//!
//! Must not know: how pages are fetched or judged, and how a log is written.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrayvec::ArrayVec;
use url::Url;

use crate::backoff::{BackoffSettings, LinkState};
use crate::error::Error;
use crate::evidence::{Learned, Weights};
use crate::metrics::recorder::MetricsRecorder;
use crate::policy::Policy;
use crate::score::Settings;
use crate::score::estimate::{Candidates, Local, LocalKeys, NoTrace};
use crate::score::general_cache::GeneralCache;
use crate::score::importance::Importances;
use crate::score::priors::Priors;
use crate::state::State;
use dated::Dated;
use fetchwise_pace::Pace;
use fetchwise_types::attempt::{Attempt, Hint};
use fetchwise_types::decision::Decision;
use fetchwise_types::heuristic::url::{ContentKind, UrlError, UrlFeatures};
use fetchwise_types::heuristic::{Heuristic, UrlExtractor};
use fetchwise_types::registry::{FetcherId, FetcherSet, FetcherSpec};
use fetchwise_types::time::{Clock, Timestamp};

mod active_router;
mod admin;
mod bring_back;
mod builder;
mod connection;
mod dated;
mod decide;
mod decide_by_arm;
mod explain;
pub(crate) mod pauses;
mod portable_priors;
#[cfg(test)]
mod proptests;
mod record;
mod signed_arms;
mod sink;
mod vendor_outlook;

pub use crate::explain::{
    CandidateView, Counterfactual, EvidenceStep, Explanation, HostSignalFetcher, HostSignalView,
    MeasuredCost,
};
pub use crate::score::priors::{PortablePrior, Prior};
pub(crate) use active_router::ActiveRouter;
pub use admin::{LinkAtRisk, PausedHost, RiskReason};
pub use builder::SelectorBuilder;
pub use signed_arms::AfterRefusal;
pub use sink::{Released, Sink, SinkError};

/// Everything that a decision depends on besides the URL.
#[derive(Clone, Copy, Debug, Default)]
pub struct SelectContext<'k> {
    /// The time of the decision.
    pub now: Timestamp,
    /// The link's state; the default for a crawler that keeps none.
    pub link: LinkState,
    /// The kind of this URL's last failure.
    pub hint: Option<Hint>,
    /// Candidates that may not be chosen: tried for this URL already, or unavailable.
    pub excluded: FetcherSet,
    /// Attempts already made for this URL, without the retry of a transient failure.
    pub attempts: u32,
    /// The fetcher that the caller prefers.
    pub prefer: Option<FetcherId>,
    /// This URL is the one trial of a host whose pause has ended, so the host's pause does not
    /// apply to it.
    pub host_trial: bool,
    /// Heuristics that the caller knows besides the URL, such as `(video_platform, vimeo)`. They
    /// count like those that the URL shows. See [`Heuristic::of_caller`].
    pub heuristics: &'k [Heuristic],
}

/// A URL to decide about, and what is known of it.
#[derive(Clone, Copy)]
struct DecisionInput<'a> {
    url: &'a Url,
    features: &'a UrlFeatures<'a>,
    context: &'a SelectContext<'a>,
}

/// Settings of [visits](crate::visit::Visit).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VisitSettings {
    /// Time limit of a whole request.
    pub deadline: Duration,
    /// Time limit of a probe. It is short because the retry, which has the full time, can follow.
    pub probe_deadline: Duration,
    /// Maximum number of redirects, including those written in HTML.
    pub max_redirects: u32,
    /// Maximum number of retries of a transient failure with the same fetcher; they do not count as
    /// attempts.
    pub max_retries: u32,
    /// Number of timeouts, of all fetchers together, after which the visit ends.
    pub max_timeouts: u32,
    /// Maximum number of retries while this machine is at its limits. Then the visit ends as a
    /// local fault.
    pub max_local_faults: u32,
    /// Whether another fetcher is tried after a block; if not, a block ends the visit at once.
    pub escalate_after_block: bool,
    /// Longest wait for the pace of a host. A visit that would have to wait longer ends as paused,
    /// or with the failure that it has. The default is two minutes. A pipeline has a separate limit
    /// (`wait_at_most`), which takes precedence.
    pub max_pace_wait: Duration,
}

impl Default for VisitSettings {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(30),
            probe_deadline: Duration::from_secs(3),
            max_redirects: 10,
            max_retries: 1,
            max_timeouts: 2,
            max_local_faults: 6,
            escalate_after_block: true,
            max_pace_wait: Duration::from_secs(120),
        }
    }
}

impl SelectContext<'_> {
    /// Returns the context of a first attempt at `now`, with nothing else known.
    pub fn first_attempt(now: Timestamp) -> Self {
        Self { now, ..Self::default() }
    }
}

/// The risk that a decision found for its host, besides the evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostRisk {
    /// The host was never paused, and no fetcher was ever blocked there.
    Quiet,
    /// The host may have to be claimed before a request goes out.
    AtRisk,
}

/// Learns which fetcher works for which URL. Threads share it by reference.
///
/// The methods are spread over the files of this module:
///
/// - `mod.rs`: [`select`](Self::select), [`select_many`](Self::select_many),
///   [`record`](Self::record), [`observe`](Self::observe) and read access
/// - `builder.rs`: [`builder`](Self::builder) and its options
/// - `active_router.rs`: [`route`](Self::route), the mode, the table and the fallback; `route.rs`
///   has [`Router::decide`](crate::router::Router::decide)
/// - `explain.rs`: [`explain`](Self::explain); `vendor_outlook.rs`: fetchers behind the same vendor
/// - `pauses.rs`: pauses of hosts, half-open trials of fetchers, and pauses that other nodes report
/// - `admin.rs`: the operator's view: paused hosts, links at risk, ban rates, and forgetting
/// - `signed_arms.rs`: hosts that refuse the fetchers that sign, and registrations at vendors
/// - `crate::evidence::Learned`: evidence of other processes; `crate::journal`: evidence of a log
/// - `crate::visit`: [`visit`](Self::visit), and `remote_attempts.rs` there: attempts of other
///   processes
///
/// ```
/// use fetchwise::attempt::Attempt;
/// use fetchwise::selector::{Selector, SelectContext};
/// use fetchwise::time::Timestamp;
///
/// let selector = Selector::builder().build().unwrap();
/// let now = Timestamp::now();
/// for n in 0..10 {
///     let url = url::Url::parse(&format!("https://wikipedia.org/wiki/{n}")).unwrap();
///     selector.record(Attempt::new(&url, "playwright", now).unwrap().delivered(), now).unwrap();
/// }
/// let url = url::Url::parse("https://wikipedia.org/wiki/Rust").unwrap();
/// let take = selector.select(&url, &SelectContext::first_attempt(now)).unwrap().selected().unwrap();
/// assert_eq!(selector.fetcher_name(take.fetcher), "playwright");
/// assert_eq!(take.source.name(), "learned");
/// ```
pub struct Selector {
    learned: Learned,
    priors: Priors,
    prior_list: Vec<Prior>,
    importances: Importances,
    general: GeneralCache,
    settings: Settings,
    backoff: BackoffSettings,
    extractors: Vec<Box<dyn UrlExtractor>>,
    policy: Box<dyn Policy>,
    sink: Option<Box<dyn Sink>>,
    recorder: MetricsRecorder,
    clamped: AtomicU64,
    visits: VisitSettings,
    active_router: ActiveRouter,
    clock: Arc<Clock>,
    state: Arc<State>,
    pace: Option<Box<Pace>>,
    after_refusal: AfterRefusal,
    /// Closes the store that the builder opened.
    on_close: Option<OnClose>,
}

/// Closes a store, when nothing else holds it any more.
type OnClose = Box<dyn FnOnce() -> Result<(), Error> + Send + Sync>;

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fetchers: Vec<&str> =
            self.learned.registry.candidates().map(|(_, spec)| &*spec.name).collect();
        f.debug_struct("Selector")
            .field("fetchers", &fetchers)
            .field("policy", &self.policy.name())
            .field("keys", &self.key_count())
            .finish_non_exhaustive()
    }
}

impl Selector {
    /// The number of URLs whose evidence [`Selector::select_many`] requests at once, and the best
    /// number for [`Selector::prefetch`]. Each takes some six cache lines, so those of 16 fit into
    /// the nearest cache together with what all decisions read.
    pub const PREFETCHED: usize = 16;

    /// Decides about `url`. Takes no lock, makes no system call, allocates nothing; takes about a
    /// microsecond.
    ///
    /// # Errors
    /// [`UrlError`] if the URL cannot be fetched.
    pub fn select(&self, url: &Url, context: &SelectContext<'_>) -> Result<Decision, UrlError> {
        let decision = self.select_uncounted(url, context)?;
        self.recorder.count_decision(&decision);
        Ok(decision)
    }

    /// Decides about many URLs as [`Selector::select`] does about one, and appends the decisions to
    /// `out` in the same order.
    ///
    /// With many domains their evidence is in no cache of the processor, and a decision spends half
    /// its time waiting for memory. Here the evidence of 16 URLs is requested before the first of
    /// them is decided, so that these waits overlap. Allocates nothing if `out` has room. All URLs
    /// have one context; call [`Selector::prefetch`] before decisions with different ones.
    ///
    /// ```
    /// use fetchwise::selector::{SelectContext, Selector};
    /// use fetchwise::time::Timestamp;
    ///
    /// let selector = Selector::builder().build().unwrap();
    /// let urls: Vec<url::Url> = (0..20).map(|n| format!("https://site{n}.example/").parse().unwrap()).collect();
    /// let mut decisions = Vec::new();
    /// selector.select_many(&urls, &SelectContext::first_attempt(Timestamp::now()), &mut decisions);
    /// assert_eq!(decisions.len(), urls.len());
    /// let first = decisions[0].as_ref().unwrap().selected().unwrap();
    /// assert_eq!(selector.fetcher_name(first.fetcher), "direct_access");
    /// ```
    pub fn select_many(
        &self,
        urls: &[Url],
        context: &SelectContext<'_>,
        out: &mut Vec<Result<Decision, UrlError>>,
    ) {
        out.reserve(urls.len());
        let guard = self.learned.evidence.guard();
        for urls in urls.chunks(Self::PREFETCHED) {
            // Three passes: the look-ups of all URLs follow each other closely, so that the
            // processor overlaps them.
            let keyed = |features| (features, LocalKeys::of(&features));
            let read: ArrayVec<_, { Self::PREFETCHED }> =
                urls.iter().map(|url| UrlFeatures::extract(url).map(keyed)).collect();
            let find =
                |(features, keys)| (features, Local::find(&self.learned.evidence, keys, &guard));
            let found: ArrayVec<_, { Self::PREFETCHED }> =
                read.into_iter().map(|read| read.map(find)).collect();
            for (url, found) in urls.iter().zip(found) {
                out.push(found.map(|(features, local)| {
                    let (mut candidates, mut seen) = (Candidates::new(), HostRisk::Quiet);
                    let input = DecisionInput { url, features: &features, context };
                    let decision = self.decide_with(
                        input,
                        (&guard, local),
                        &mut candidates,
                        &mut NoTrace,
                        &mut seen,
                    );
                    self.recorder.count_decision(&decision);
                    decision
                }));
            }
        }
    }

    /// Requests the evidence about the domains of some URLs from memory, so that decisions about
    /// them, one after the other, wait less. Call it with up to [`Selector::PREFETCHED`] URLs right
    /// before these decisions; more evict each other from the processor's nearest cache.
    ///
    /// Evidence that [`max_keys`](SelectorBuilder::max_keys) moved to disk is
    /// [read back](Selector::bring_back) into memory first. Without such evidence it changes no
    /// decision.
    pub fn prefetch<'u>(&self, urls: impl IntoIterator<Item = &'u Url>) {
        let (guard, mut urls) = (self.learned.evidence.guard(), urls.into_iter().peekable());
        while urls.peek().is_some() {
            let features = urls.by_ref().take(Self::PREFETCHED).filter_map(|url| {
                self.bring_back(url, &[]);
                UrlFeatures::extract(url).ok()
            });
            let keys: ArrayVec<_, { Self::PREFETCHED }> =
                features.map(|features| LocalKeys::of(&features)).collect();
            keys.iter().for_each(|keys| _ = Local::find(&self.learned.evidence, *keys, &guard));
        }
    }

    /// Decides as [`Selector::select`] does, as a part of a decision that is counted as a whole.
    #[inline]
    pub(crate) fn select_uncounted(
        &self,
        url: &Url,
        context: &SelectContext<'_>,
    ) -> Result<Decision, UrlError> {
        let features = UrlFeatures::extract(url)?;
        let mut candidates = Candidates::new();
        Ok(self.decide(
            DecisionInput { url, features: &features, context },
            &mut candidates,
            &mut NoTrace,
        ))
    }

    /// Decides as [`Selector::select`] does, and returns whether anything was ever paused or
    /// blocked on the host. If not, a visit has nothing to claim.
    pub(crate) fn select_with_host_risk(
        &self,
        url: &Url,
        context: &SelectContext<'_>,
    ) -> Result<(Decision, HostRisk), UrlError> {
        let features = UrlFeatures::extract(url)?;
        let mut candidates = Candidates::new();
        let mut seen = HostRisk::Quiet;
        let input = DecisionInput { url, features: &features, context };
        let decision = self.decide_with_host_risk(input, &mut candidates, &mut NoTrace, &mut seen);
        Ok((decision, seen))
    }

    /// Returns the priors, in the order in which they were added.
    pub fn priors(&self) -> &[Prior] {
        &self.prior_list
    }

    /// Sets the sink that receives recorded attempts. It gets dates.
    pub fn set_sink(&mut self, sink: Box<dyn Sink>) {
        self.sink = Some(Box::new(Dated::new(sink, Arc::clone(&self.clock))));
    }

    /// Ends the session: writes what is left, with the learned paces of hosts, and closes the
    /// journal that the builder opened. Dropping a selector does the same, and hides an error. A
    /// sink of your own stays open; this writes the paces into their store, if they have one.
    ///
    /// A selector that tasks share is closed by the last of them:
    /// `Arc::into_inner(selector).map(Selector::close)`.
    ///
    /// # Errors
    /// [`Error::Journal`] if something that was recorded may not outlive the process.
    ///
    /// ```
    /// # #[cfg(feature = "journal")] {
    /// use fetchwise::Selector;
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path();
    /// let selector = Selector::builder().journal(dir).build()?;
    /// selector.close()?;
    /// # }
    /// # Ok::<(), fetchwise::Error>(())
    /// ```
    pub fn close(mut self) -> Result<(), Error> {
        self.end_session()
    }

    fn end_session(&mut self) -> Result<(), Error> {
        if let Some(pace) = self.pace.take() {
            pace.close(self.clock.now());
        }
        let Some(close) = self.on_close.take() else { return Ok(()) };
        // The store is closed when its last owner lets go of it.
        self.sink = None;
        close()
    }

    /// Sets what closes the store that the selector has opened.
    #[cfg(feature = "journal")]
    pub(crate) fn set_on_close(
        &mut self,
        close: impl FnOnce() -> Result<(), Error> + Send + Sync + 'static,
    ) {
        self.on_close = Some(Box::new(close));
    }

    /// Returns the heuristics that attempts at `url` are tagged with, custom ones included.
    ///
    /// # Errors
    /// As [`Selector::select`].
    pub fn heuristics(&self, url: &Url) -> Result<Vec<Heuristic>, UrlError> {
        let mut out = UrlFeatures::extract(url)?.heuristics();
        for extractor in &self.extractors {
            extractor.extract(url, &mut |kind, value| {
                out.push(Heuristic::new(kind.to_owned(), value.to_owned()))
            });
        }
        Ok(out)
    }

    /// Returns the settings of visits.
    pub fn visit_settings(&self) -> &VisitSettings {
        &self.visits
    }

    /// Returns the time by the clock that visits read.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns the clock that visits read.
    pub fn clock(&self) -> &Arc<Clock> {
        &self.clock
    }

    /// Returns the paces of hosts that visits keep; `None` if the selector was built without.
    /// Decisions do not read them.
    pub fn pace(&self) -> Option<&Pace> {
        self.pace.as_deref()
    }

    /// Sets the store of the learned paces.
    #[cfg(feature = "journal")]
    pub(crate) fn keep_paces(&mut self, keeper: Box<dyn fetchwise_pace::PaceStore>) {
        let keeper = Box::new(Dated::new(keeper, Arc::clone(&self.clock)));
        self.pace = self.pace.take().map(|pace| Box::new(pace.with_store(keeper)));
    }

    /// Returns what the selector has learned, for a log that restores it and for processes that
    /// exchange it.
    #[doc(hidden)]
    pub fn learned(&self) -> &Learned {
        &self.learned
    }

    /// Returns the policy, for a log that restores its memory.
    #[cfg(feature = "journal")]
    pub(crate) fn policy(&self) -> &dyn Policy {
        &*self.policy
    }

    pub(crate) fn recorder(&self) -> &MetricsRecorder {
        &self.recorder
    }

    pub(crate) fn state(&self) -> &Arc<State> {
        &self.state
    }

    pub(crate) fn sink(&self) -> Option<&dyn Sink> {
        self.sink.as_deref()
    }

    /// Returns the state of a link, as visits left it. `link` is the caller's name for it. By
    /// default that is its URL without user info and fragment.
    pub fn link_state(&self, link: &str) -> LinkState {
        self.state.links.get(link)
    }

    /// Adds link states that the caller kept. A journal restores its own.
    pub fn restore_links(&self, links: impl IntoIterator<Item = (String, LinkState)>) {
        self.state.links.restore(links);
    }

    /// Adds the number of pauses in a row of each host, as the caller kept them. A journal restores
    /// its own.
    pub fn restore_host_levels(&self, levels: impl IntoIterator<Item = (String, u8)>) {
        self.state.hosts.restore(levels);
    }

    /// Returns the name of a fetcher of this selector.
    pub fn fetcher_name(&self, id: FetcherId) -> &str {
        self.learned.registry.spec(id).map_or("", |spec| &spec.name)
    }

    /// Returns the spec of a fetcher.
    pub fn fetcher(&self, id: FetcherId) -> Option<&FetcherSpec> {
        self.learned.registry.spec(id)
    }

    /// Returns the id of the fetcher called `name`, if this selector knows it. `simple_http` is
    /// `direct_access`.
    pub fn fetcher_id(&self, name: &str) -> Option<FetcherId> {
        self.learned.registry.find(name)
    }

    /// Returns whether the fetcher can be chosen. The others are known only from recorded attempts.
    pub fn is_candidate(&self, id: FetcherId) -> bool {
        id.index() < self.learned.registry.candidates_len()
    }

    /// Returns the candidates, in order of registration.
    pub fn candidates(&self) -> impl Iterator<Item = (FetcherId, &FetcherSpec)> {
        self.learned.registry.candidates()
    }

    /// Sets the cost of a request for each candidate while other threads decide: `cost` returns it
    /// in plain requests, and whether it is measured; `None` leaves a candidate as it is. Returns
    /// whether any cost has changed. A decision sees the old costs or the new ones, and what was
    /// learned stays.
    ///
    /// ```
    /// use fetchwise::selector::Selector;
    ///
    /// let selector = Selector::builder().build()?;
    /// assert!(selector.set_costs(|spec| (&*spec.name == "playwright").then_some((12.0, false))));
    /// let browser = selector.fetcher_id("playwright").and_then(|id| selector.fetcher(id));
    /// assert_eq!(browser.map(|spec| spec.cost), Some(12.0));
    /// # Ok::<(), fetchwise::error::Error>(())
    /// ```
    pub fn set_costs(&self, cost: impl Fn(&FetcherSpec) -> Option<(f64, bool)>) -> bool {
        self.learned.registry.set_costs(cost)
    }

    /// Returns the constants of estimation and choice.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the settings of pauses.
    pub fn backoff(&self) -> &BackoffSettings {
        &self.backoff
    }

    /// Returns the policy's name.
    pub fn policy_name(&self) -> &str {
        self.policy.name()
    }

    /// Returns the number of keys (domains, sites, suffixes ...) that have evidence in memory.
    pub fn key_count(&self) -> usize {
        self.learned.evidence.keys()
    }

    /// Returns the number of times that a key was evicted because there were too many.
    pub fn evicted_keys(&self) -> u64 {
        self.learned.evidence.evicted()
    }

    /// Returns the number of attempts whose time lay in the future and was set to now.
    pub fn clamped_attempt_count(&self) -> u64 {
        self.clamped.load(Ordering::Relaxed)
    }

    /// Returns the exact weights of one heuristic and fetcher as of `now`, over pages or files,
    /// without priors.
    pub fn weights(
        &self,
        heuristic: (&str, &str),
        kind: ContentKind,
        fetcher: &str,
        now: Timestamp,
    ) -> Weights {
        self.learned.registry.find(fetcher).map_or_else(Weights::default, |id| {
            self.learned.evidence.weights(heuristic, kind, id, now)
        })
    }

    /// Returns whether the host of an attempt has delivered to any fetcher.
    pub(crate) fn has_host_delivered(&self, attempt: &Attempt) -> bool {
        self.learned.evidence.has_host_delivered(attempt)
    }

    /// Sets the importance, from 0 to 1, that analytics found for a heuristic, or for a whole type
    /// if `value` is `None`. [`Settings::importance`] decides whether it has an effect.
    pub fn set_importance(&self, kind: &str, value: Option<&str>, importance: f64) {
        self.importances.set(kind, value, importance);
    }
}

impl Drop for Selector {
    fn drop(&mut self) {
        // Without its own store there is nothing to write: the caller closes what it has opened.
        if self.on_close.is_some() {
            // An error has nowhere to go: `close` returns it.
            let _ = self.end_session();
        }
    }
}
