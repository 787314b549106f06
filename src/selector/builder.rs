//! The builder of a selector.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::{ActiveRouter, AfterRefusal, Selector, Sink, VisitSettings};
use crate::backoff::BackoffSettings;
use crate::error::Error;
use crate::evidence::Learned;
use crate::evidence::decay::{DEFAULT_HALF_LIFE_DAYS, Decay};
use crate::metrics::recorder::MetricsRecorder;
use crate::policy::{self, Policy};
use crate::router::Router;
use crate::score::Settings;
use crate::score::general_cache::GeneralCache;
use crate::score::importance::Importances;
use crate::score::priors::{PortablePrior, Prior, Priors};
use crate::state::State;
use crate::state::link_backoff::LinkBackoff;
use fetchwise_pace::{Pace, PaceMode};
use fetchwise_types::heuristic::UrlExtractor;
use fetchwise_types::heuristic::files::FileSuffixes;
use fetchwise_types::query_hash::QueryHash;
use fetchwise_types::registry::{BUILT_IN, FetcherSpec, Registry};
use fetchwise_types::time::{Clock, Timestamp};

/// Builds a [`Selector`].
pub struct SelectorBuilder {
    fetchers: Vec<FetcherSpec>,
    settings: Settings,
    backoff: BackoffSettings,
    half_life_days: f64,
    max_keys: Option<usize>,
    suffixes: FileSuffixes,
    around: Timestamp,
    priors: Vec<Prior>,
    portable: Vec<PortablePrior>,
    extractors: Vec<Box<dyn UrlExtractor>>,
    policy: Box<dyn Policy>,
    visits: VisitSettings,
    router: Router,
    clock: Arc<Clock>,
    sink: Option<Box<dyn Sink>>,
    pace: PaceChoice,
    open: Vec<Opener>,
    is_exact: bool,
    after_refusal: AfterRefusal,
    query_hash: Option<QueryHash>,
}

/// The paces that visits keep.
#[derive(Default)]
enum PaceChoice {
    /// Learned ones, with default settings. They are made with the selector: a builder that is
    /// given others makes none.
    #[default]
    Default,
    Given(Box<Pace>),
    Off,
}

/// Fills a new selector with earlier evidence, and sets the sink for new attempts.
type Opener = Box<dyn FnOnce(&mut Selector) -> Result<(), Error> + Send>;

impl fmt::Debug for SelectorBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fetchers: Vec<&str> = self.fetchers.iter().map(|spec| &*spec.name).collect();
        f.debug_struct("SelectorBuilder")
            .field("fetchers", &fetchers)
            .field("policy", &self.policy.name())
            .finish_non_exhaustive()
    }
}

impl Default for SelectorBuilder {
    fn default() -> Self {
        Self {
            fetchers: Vec::new(),
            settings: Settings::default(),
            backoff: BackoffSettings::default(),
            half_life_days: DEFAULT_HALF_LIFE_DAYS,
            max_keys: None,
            suffixes: FileSuffixes::default(),
            around: Timestamp::now(),
            priors: Prior::built_in(),
            portable: Vec::new(),
            extractors: Vec::new(),
            policy: Box::new(policy::Default),
            visits: VisitSettings::default(),
            router: Router::default(),
            clock: Arc::default(),
            sink: None,
            pace: PaceChoice::default(),
            open: Vec::new(),
            is_exact: false,
            after_refusal: AfterRefusal::default(),
            query_hash: None,
        }
    }
}

impl SelectorBuilder {
    /// Adds a candidate. If none is added, the built-in names are the candidates.
    #[must_use]
    pub fn fetcher(mut self, spec: FetcherSpec) -> Self {
        self.fetchers.push(spec);
        self
    }

    /// Sets the constants of estimation and choice.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Sets how long hosts, links and fetchers pause.
    #[must_use]
    pub fn backoff(mut self, backoff: BackoffSettings) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets the half-life in days, 7 to 365.
    #[must_use]
    pub fn half_life_days(mut self, days: f64) -> Self {
        self.half_life_days = days;
        self
    }

    /// Sets the hash of the query values in the names of links: the one of the journal that the
    /// selector is loaded from, if it has one.
    #[must_use]
    pub fn query_hash(mut self, hash: impl Into<Option<QueryHash>>) -> Self {
        self.query_hash = hash.into();
        self
    }

    /// Limits memory: beyond this number of keys (domains, sites, suffixes ...) the least attempted
    /// ones are evicted. `None`, the default, sets no limit. With a journal that the builder opens,
    /// or with `keep_evicted`, they go to disk and come back when they are needed; otherwise they
    /// are forgotten.
    #[must_use]
    pub fn max_keys(mut self, keys: impl Into<Option<usize>>) -> Self {
        self.max_keys = keys.into().map(|keys| keys.max(1));
        self
    }

    /// Sets which suffixes mean a file. Evidence about files and pages is separate. Evidence about
    /// a suffix that changes sides stays where it is and fades.
    #[must_use]
    pub fn file_suffixes(mut self, suffixes: FileSuffixes) -> Self {
        self.suffixes = suffixes;
        self
    }

    /// Sets the time around which weights are stored. The default is now; a simulation sets its
    /// own.
    #[must_use]
    pub fn around(mut self, at: Timestamp) -> Self {
        self.around = at;
        self
    }

    /// Adds a prior to the built-in ones.
    #[must_use]
    pub fn prior(mut self, prior: Prior) -> Self {
        self.priors.push(prior);
        self
    }

    /// Adds what another crawler has learned of no single host, as
    /// [`Selector::portable_priors`] returns it. Unknown fetchers have no effect.
    #[must_use]
    pub fn portable_priors(mut self, priors: impl IntoIterator<Item = PortablePrior>) -> Self {
        self.portable.extend(priors);
        self
    }

    /// Removes the built-in priors.
    #[must_use]
    pub fn no_priors(mut self) -> Self {
        self.priors.clear();
        self
    }

    /// Adds a custom extractor of pre-fetch heuristics.
    #[must_use]
    pub fn extractor(mut self, extractor: impl UrlExtractor + 'static) -> Self {
        self.extractors.push(Box::new(extractor));
        self
    }

    /// Sets the policy. The default is [`policy::Default`].
    #[must_use]
    pub fn policy(mut self, policy: Box<dyn Policy>) -> Self {
        self.policy = policy;
        self
    }

    /// Sets how visits run: deadlines, retries, and the reach of a block.
    #[must_use]
    pub fn visits(mut self, visits: VisitSettings) -> Self {
        self.visits = visits;
        self
    }

    /// Sets the router, which can let a hand-written table serve. By default learning serves.
    #[must_use]
    pub fn router(mut self, router: Router) -> Self {
        self.router = router;
        self
    }

    /// Sets the clock that visits read. The default is the system clock. While a clock stands
    /// still, the pace of a host admits one request: set the clock to the end of each wait, or
    /// build [`without_pace`](Self::without_pace).
    #[must_use]
    pub fn clock(mut self, clock: Arc<Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the sink that receives recorded attempts, pauses and link states.
    #[must_use]
    pub fn sink(mut self, sink: impl Sink + 'static) -> Self {
        self.sink = Some(Box::new(sink));
        self
    }

    /// Sets what happens on hosts that block the fetchers that sign. Without such a fetcher it has
    /// no effect.
    #[must_use]
    pub fn after_refusal(mut self, after_refusal: AfterRefusal) -> Self {
        self.after_refusal = after_refusal;
        self
    }

    /// Replaces the pace of visits. By default, visits keep a learned pace for each host: at first
    /// two requests per second, and from then on what the host's responses allow. [`PaceMode::Off`]
    /// is the same as [`without_pace`](Self::without_pace).
    #[must_use]
    pub fn pace(mut self, pace: Pace) -> Self {
        self.pace = match pace.settings().mode {
            PaceMode::Off => PaceChoice::Off,
            PaceMode::Learn | PaceMode::Fixed => PaceChoice::Given(Box::new(pace)),
        };
        self
    }

    /// Turns the pace off: the requests of visits go out at once, and the caller keeps the hosts
    /// from being flooded. For hosts of your own, for replays and for measurements.
    ///
    /// ```
    /// use fetchwise::Selector;
    ///
    /// assert!(Selector::builder().build()?.pace().is_some());
    /// assert!(Selector::builder().without_pace().build()?.pace().is_none());
    /// # Ok::<(), fetchwise::Error>(())
    /// ```
    #[must_use]
    pub fn without_pace(mut self) -> Self {
        self.pace = PaceChoice::Off;
        self
    }

    /// Makes decisions reflect every attempt on every host at once. By default, a decision may use
    /// estimates of what all hosts have in common from up to a minute ago, or from before their
    /// evidence grew by a sixty-fourth; that takes fewer instructions. Evidence of the URL's site,
    /// domain and section always counts at once. For tests that compare with exact figures.
    #[must_use]
    pub fn exact_estimates(mut self) -> Self {
        self.is_exact = true;
        self
    }

    /// Adds a function that opens what the selector needs once it is built.
    #[cfg(feature = "journal")]
    pub(crate) fn opened_by(
        mut self,
        open: impl FnOnce(&mut Selector) -> Result<(), Error> + Send + 'static,
    ) -> Self {
        self.open.push(Box::new(open));
        self
    }

    /// Builds the selector. Without a journal it starts without evidence.
    ///
    /// # Errors
    /// [`Error`] names the invalid setting: a half-life out of range, a duplicate fetcher, more
    /// fetchers than can be candidates, or a journal that cannot be opened.
    pub fn build(self) -> Result<Selector, Error> {
        let decay = Decay::new(self.half_life_days, self.around)?;
        let fetchers = match self.fetchers.is_empty() {
            true => BUILT_IN.iter().map(|&(name, class)| FetcherSpec::new(name, class)).collect(),
            false => self.fetchers,
        };
        let registry = Registry::new(fetchers)?;
        let mut priors = Priors::new(&self.priors, &registry);
        priors.add_portable(&self.portable, &registry);
        let mut selector = Selector {
            priors,
            prior_list: self.priors,
            importances: Importances::default(),
            recorder: MetricsRecorder::new(registry.candidates_len()),
            general: GeneralCache::new(registry.candidates_len(), self.is_exact),
            learned: Learned::new(decay, self.max_keys, self.suffixes, self.is_exact, registry),
            settings: self.settings,
            backoff: self.backoff,
            extractors: self.extractors,
            policy: self.policy,
            sink: self.sink,
            clamped: AtomicU64::new(0),
            visits: self.visits,
            active_router: ActiveRouter::new(self.router),
            clock: self.clock,
            state: Arc::new(State {
                links: LinkBackoff::with_query_hash(self.query_hash),
                ..State::default()
            }),
            pace: match self.pace {
                PaceChoice::Default => Some(Box::default()),
                PaceChoice::Given(pace) => Some(pace),
                PaceChoice::Off => None,
            },
            after_refusal: self.after_refusal,
            on_close: None,
        };
        self.open.into_iter().try_for_each(|open| open(&mut selector))?;
        Ok(selector)
    }
}

impl Selector {
    /// Returns a builder with default settings.
    pub fn builder() -> SelectorBuilder {
        SelectorBuilder::default()
    }
}
