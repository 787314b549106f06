//! The selector: which fetcher for this URL, and what an attempt has shown.
//!
//! [`Selector::select`] is synchronous, takes no lock, makes no system call and allocates nothing; [`Selector::record`]
//! updates memory and hands the attempt to a [`Sink`]. Time, link state and what was tried come in by value, so the same
//! calls serve a live crawler, a replay and a simulation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use url::Url;

use crate::attempt::{Attempt, Hint};
use crate::backoff::{BackoffSettings, LinkState};
use crate::decision::{Decision, Rule, Source, Take};
use crate::evidence::decay::{Decay, HALF_LIFE_DAYS_DEFAULT, HalfLifeError};
use crate::evidence::{Breaker, Entry, Evidence, Key, Masses};
use crate::explain::{self, Steps};
use crate::heuristic::url::{Kind, UrlError, UrlFeatures, identity};
use crate::heuristic::{Heuristic, UrlExtractor};
use crate::policy::{self, Policy, View};
use crate::registry::{BUILT_IN, FetcherId, FetcherSet, FetcherSpec, PROBE_FETCHER, Registry};
use crate::score::estimate::{Candidates, Local, NoTrace, Priors, Trace, Walk};
use crate::score::importance::Importances;
use crate::score::{Scored, Settings};
use crate::time::Timestamp;

pub use crate::explain::{CandidateView, Counterfactual, EvidenceStep, Explanation};
pub use crate::score::estimate::Prior;

/// Where recorded attempts go, beside memory: the log.
pub trait Sink: Send + Sync {
    /// Takes an attempt over. Must not block for long, and must not fail the crawler.
    ///
    /// # Errors
    /// Says why the attempt will not survive the process; memory has it all the same.
    fn append(&self, attempt: &Attempt) -> Result<(), SinkError>;
}

/// An attempt that is in memory but will not survive the process.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the attempt is in memory only: {0}")]
pub struct SinkError(pub Arc<dyn std::error::Error + Send + Sync>);

/// What a decision depends on beside the URL.
#[derive(Clone, Copy, Debug, Default)]
pub struct Situation {
    /// The time of the decision.
    pub now: Timestamp,
    /// The link's state; the default for a crawler that keeps none.
    pub link: LinkState,
    /// What the last failure of this URL looked like.
    pub hint: Option<Hint>,
    /// Candidates that may not be taken: tried for this URL already, or not to be had.
    pub excluded: FetcherSet,
    /// Attempts already made for this URL, a transient failure's retry not among them.
    pub attempts: u32,
    /// The caller wants this one.
    pub wanted: Option<FetcherId>,
    /// This URL is the one trial of a host whose pause has ended: the host's pause holds for the others only.
    pub host_trial: bool,
}

impl Situation {
    /// A first attempt at `now`, about which nothing else is known.
    pub fn first(now: Timestamp) -> Self {
        Self { now, ..Self::default() }
    }
}

/// Builds a [`Selector`].
pub struct SelectorBuilder {
    fetchers: Vec<FetcherSpec>,
    settings: Settings,
    backoff: BackoffSettings,
    half_life_days: f64,
    keys_max: Option<usize>,
    around: Timestamp,
    priors: Vec<Prior>,
    extractors: Vec<Box<dyn UrlExtractor>>,
    policy: Box<dyn Policy>,
}

impl Default for SelectorBuilder {
    fn default() -> Self {
        Self {
            fetchers: Vec::new(),
            settings: Settings::default(),
            backoff: BackoffSettings::default(),
            half_life_days: HALF_LIFE_DAYS_DEFAULT,
            keys_max: None,
            around: Timestamp::now(),
            priors: Prior::built_in(),
            extractors: Vec::new(),
            policy: Box::new(policy::Default),
        }
    }
}

impl SelectorBuilder {
    /// Adds a candidate. Without any, the built-in names are the candidates.
    #[must_use]
    pub fn fetcher(mut self, spec: FetcherSpec) -> Self {
        self.fetchers.push(spec);
        self
    }

    /// Sets the constants of estimate and choice.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Sets how long things wait.
    #[must_use]
    pub fn backoff(mut self, backoff: BackoffSettings) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets the half-life, 7 to 365 days.
    #[must_use]
    pub fn half_life_days(mut self, days: f64) -> Self {
        self.half_life_days = days;
        self
    }

    /// Bounds memory: beyond so many keys (domains, sites, suffixes ...) the least attempted go. Unbounded with none, and unless
    /// set.
    #[must_use]
    pub fn keys_max(mut self, keys: impl Into<Option<usize>>) -> Self {
        self.keys_max = keys.into().map(|keys| keys.max(1));
        self
    }

    /// Sets the time around which masses are kept; now unless a simulation says otherwise.
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

    /// Leaves the built-in priors out.
    #[must_use]
    pub fn no_priors(mut self) -> Self {
        self.priors.clear();
        self
    }

    /// Adds a user's own pre-fetch heuristics.
    #[must_use]
    pub fn extractor(mut self, extractor: impl UrlExtractor + 'static) -> Self {
        self.extractors.push(Box::new(extractor));
        self
    }

    /// Sets the policy; `default` unless another is set.
    #[must_use]
    pub fn policy(mut self, policy: Box<dyn Policy>) -> Self {
        self.policy = policy;
        self
    }

    /// Builds it, without evidence.
    ///
    /// # Errors
    /// [`HalfLifeError`] when the half-life is outside what can be configured.
    pub fn build(self) -> Result<Selector, HalfLifeError> {
        let decay = Decay::new(self.half_life_days, self.around)?;
        let fetchers = match self.fetchers.is_empty() {
            true => BUILT_IN.iter().map(|&(name, class)| FetcherSpec::new(name, class)).collect(),
            false => self.fetchers,
        };
        let registry = Registry::new(fetchers);
        Ok(Selector {
            priors: Priors::new(&self.priors, &registry),
            prior_list: self.priors,
            importances: Importances::default(),
            evidence: Evidence::new(decay, self.keys_max),
            registry,
            settings: self.settings,
            backoff: self.backoff,
            extractors: self.extractors,
            policy: self.policy,
            sink: None,
            clamped: AtomicU64::new(0),
        })
    }
}

/// Learns which fetcher works for which URL. Shared by reference between threads.
///
/// ```
/// use fetchwise::attempt::Attempt;
/// use fetchwise::selector::{Selector, Situation};
/// use fetchwise::time::Timestamp;
///
/// let selector = Selector::builder().build().unwrap();
/// let now = Timestamp::now();
/// for n in 0..10 {
///     let url = url::Url::parse(&format!("https://wikipedia.org/wiki/{n}")).unwrap();
///     selector.record(Attempt::new(&url, "playwright", now).unwrap().delivered(), now).unwrap();
/// }
/// let url = url::Url::parse("https://wikipedia.org/wiki/Rust").unwrap();
/// let take = selector.select(&url, &Situation::first(now)).unwrap().taken().unwrap();
/// assert_eq!(selector.fetcher_name(take.fetcher), "playwright");
/// assert_eq!(take.source.name(), "learned");
/// ```
pub struct Selector {
    evidence: Evidence,
    registry: Registry,
    priors: Priors,
    prior_list: Vec<Prior>,
    importances: Importances,
    settings: Settings,
    backoff: BackoffSettings,
    extractors: Vec<Box<dyn UrlExtractor>>,
    policy: Box<dyn Policy>,
    sink: Option<Box<dyn Sink>>,
    clamped: AtomicU64,
}

impl Selector {
    /// Starts building one.
    pub fn builder() -> SelectorBuilder {
        SelectorBuilder::default()
    }

    /// Decides about `url`. Takes no lock, makes no system call, allocates nothing; about a microsecond.
    ///
    /// # Errors
    /// [`UrlError`] when the URL is not one that can be fetched.
    pub fn select(&self, url: &Url, situation: &Situation) -> Result<Decision, UrlError> {
        let features = UrlFeatures::extract(url)?;
        let mut candidates = Candidates::new();
        Ok(self.decide(url, &features, situation, &mut candidates, &mut NoTrace))
    }

    /// Decides as [`Selector::select`] does and says how it came to it. Allocates; not for the hot path.
    ///
    /// # Errors
    /// As [`Selector::select`].
    pub fn explain(&self, url: &Url, situation: &Situation) -> Result<Explanation, UrlError> {
        let features = UrlFeatures::extract(url)?;
        let mut candidates = Candidates::new();
        let mut steps = Steps { selector: self, depth: features.path_depth, steps: Vec::new() };
        let decision = self.decide(url, &features, situation, &mut candidates, &mut steps);
        let link = LinkState { paused_until: None, ..situation.link };
        let awake = Situation { link, host_trial: true, ..*situation };
        let awake_decision = match decision {
            // What it would be without the pause is what one wants to know.
            Decision::Paused { .. } => self.decide(url, &features, &awake, &mut candidates, &mut steps),
            other => other,
        };
        let taken = awake_decision.taken();
        let deciding = taken
            .and_then(|take| explain::deciding(&steps.steps, &candidates, take.fetcher, take.rule, &self.settings));
        let alternative =
            taken.and_then(|take| explain::cheapest_alternative(&candidates, take.fetcher, &self.settings));
        let counterfactuals = std::iter::once(self.without_domain(url, &features, &awake)).chain(alternative).collect();
        let mut heuristics = features.heuristics();
        for extractor in &self.extractors {
            extractor
                .extract(url, &mut |kind, value| heuristics.push(Heuristic::new(kind.to_owned(), value.to_owned())));
        }
        let candidates = candidates.iter().map(|c| CandidateView::of(c, &self.settings)).collect();
        let url = identity(url).to_owned();
        Ok(Explanation { url, heuristics, steps: steps.steps, candidates, decision, deciding, counterfactuals })
    }

    /// What would be decided if nothing were known of the URL's site, domain and section; without exploration.
    fn without_domain(&self, url: &Url, features: &UrlFeatures<'_>, situation: &Situation) -> Counterfactual {
        let settings = Settings { explore: 0.0, last_ditch: 0.0, ..self.settings.clone() };
        let mut candidates = Candidates::new();
        let guard = self.evidence.guard();
        self.enlist(&mut candidates, None, situation);
        let (priors, importances) = (&self.priors, &self.importances);
        let walk = Walk::new(&self.evidence, priors, importances, &settings, &guard, features, situation.now);
        walk.run(&mut candidates, url, &self.extractors, situation.hint, None, &mut NoTrace);
        let decision = self.choose(url, &candidates, &settings, 0, situation);
        let taken = decision.taken().and_then(|take| candidates.get(take.fetcher.index()));
        Counterfactual::WithoutDomain { decision, candidate: taken.map(|c| CandidateView::of(c, &settings)) }
    }

    /// Records an attempt: memory first, then the sink. A time after `now` becomes `now`.
    ///
    /// # Errors
    /// [`SinkError`] when the attempt will not survive the process; memory has it all the same.
    pub fn record(&self, mut attempt: Attempt, now: Timestamp) -> Result<(), SinkError> {
        if attempt.attempted_at > now {
            attempt.attempted_at = now;
            // Relaxed: a count for people.
            self.clamped.fetch_add(1, Ordering::Relaxed);
        }
        self.observe(&attempt);
        self.sink.as_ref().map_or(Ok(()), |sink| sink.append(&attempt))
    }

    /// Learns from an attempt without handing it on: for replay.
    pub fn observe(&self, attempt: &Attempt) {
        self.evidence.observe(attempt, &self.registry);
        self.policy.observe(attempt);
    }

    /// Drops at once what is known of a domain itself: its evidence, its paths and suffixes, its host's pause. Its share of what
    /// domains have in common goes when a journal with a tombstone for it is loaded.
    pub fn forget_domain(&self, domain: &str) {
        self.evidence.forget_domain(domain);
    }

    /// The priors, in the order they were added.
    pub fn priors(&self) -> &[Prior] {
        &self.prior_list
    }

    /// Sets where recorded attempts go beside memory.
    pub fn set_sink(&mut self, sink: Box<dyn Sink>) {
        self.sink = Some(sink);
    }

    /// The heuristics that attempts at `url` are tagged with, a user's own included.
    ///
    /// # Errors
    /// As [`Selector::select`].
    pub fn heuristics(&self, url: &Url) -> Result<Vec<Heuristic>, UrlError> {
        let mut out = UrlFeatures::extract(url)?.heuristics();
        for extractor in &self.extractors {
            extractor.extract(url, &mut |kind, value| out.push(Heuristic::new(kind.to_owned(), value.to_owned())));
        }
        Ok(out)
    }

    /// The name of a fetcher of this selector.
    pub fn fetcher_name(&self, id: FetcherId) -> &str {
        self.registry.spec(id).map_or("", |spec| &spec.name)
    }

    /// What this selector knows of a fetcher.
    pub fn fetcher(&self, id: FetcherId) -> Option<&FetcherSpec> {
        self.registry.spec(id)
    }

    /// The id of the fetcher called `name`, if this selector knows it. `simple_http` is `direct_access`.
    pub fn fetcher_id(&self, name: &str) -> Option<FetcherId> {
        self.registry.find(name)
    }

    /// The candidates, in order of registration.
    pub fn candidates(&self) -> impl Iterator<Item = (FetcherId, &FetcherSpec)> {
        self.registry.candidates()
    }

    /// The constants.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// How long things wait.
    pub fn backoff(&self) -> &BackoffSettings {
        &self.backoff
    }

    /// The policy's name.
    pub fn policy_name(&self) -> &str {
        self.policy.name()
    }

    /// How many keys (domains, sites, suffixes ...) evidence is kept for.
    pub fn keys(&self) -> usize {
        self.evidence.keys()
    }

    /// How many keys had to go because there were too many.
    pub fn evicted_keys(&self) -> u64 {
        self.evidence.evicted()
    }

    /// How many attempts came with a time in the future and were moved to now.
    pub fn clamped_attempts(&self) -> u64 {
        self.clamped.load(Ordering::Relaxed)
    }

    /// The exact masses of one heuristic and fetcher as of `now`, over pages or files, priors not included.
    pub fn masses(&self, heuristic: (&str, &str), kind: Kind, fetcher: &str, now: Timestamp) -> Masses {
        self.registry.find(fetcher).map_or_else(Masses::default, |id| self.evidence.masses(heuristic, kind, id, now))
    }

    /// Sets what analytics worked out about a heuristic, from 0 to 1, or about a whole type when `value` is none. Whether it
    /// moves anything is up to [`Settings::importance`].
    pub fn set_importance(&self, kind: &str, value: Option<&str>, importance: f64) {
        self.importances.set(kind, value, importance);
    }

    /// Until when the host of `domain` is paused, if it ever was.
    pub fn host_pause(&self, domain: &str) -> Option<Timestamp> {
        let guard = self.evidence.guard();
        self.evidence.entry(Key::domain(domain), &guard)?.paused_until()
    }

    /// Pauses the host of `domain`, or lifts its pause.
    pub fn set_host_pause(&self, domain: &str, until: Option<Timestamp>) {
        let guard = self.evidence.guard();
        // As of the beginning of time: no host that is or was paused makes room for this one.
        self.evidence.entry_or_new(Key::domain(domain), Timestamp::default(), &guard).set_paused_until(until);
    }

    /// Takes the one trial request of a host whose pause has ended: it is paused until `next` for all others. True for one
    /// caller only.
    pub fn claim_host_trial(&self, domain: &str, ended: Timestamp, next: Timestamp) -> bool {
        let guard = self.evidence.guard();
        self.evidence.entry(Key::domain(domain), &guard).is_some_and(|entry| entry.swap_paused_until(ended, next))
    }

    /// Takes the one half-open trial of a fetcher whose breaker on `domain` had run out when the decision was made. True
    /// when there is nothing to take, or when this caller has it; false when another caller came first.
    pub fn claim_breaker_trial(&self, domain: &str, fetcher: FetcherId, now: Timestamp) -> bool {
        let guard = self.evidence.guard();
        let Some(entry) = self.evidence.entry(Key::domain(domain), &guard) else { return true };
        let seen = entry.breaker(fetcher);
        let half_open = seen.blocks >= self.backoff.breaker_blocks;
        !half_open || !self.is_open(seen, now) && entry.claim_breaker(fetcher, seen, now)
    }

    fn decide<'s>(
        &'s self,
        url: &Url,
        features: &UrlFeatures<'_>,
        situation: &Situation,
        candidates: &mut Candidates<'s>,
        trace: &mut impl Trace,
    ) -> Decision {
        if let Some(until) = situation.link.pause_at(situation.now) {
            return Decision::Paused { until, host: false };
        }
        let guard = self.evidence.guard();
        let local = Local::find(&self.evidence, features, &guard);
        let domain = local.domain;
        let host_pause = domain.and_then(Entry::paused_until).filter(|until| *until > situation.now);
        if let Some(until) = host_pause.filter(|_| !situation.host_trial) {
            return Decision::Paused { until, host: true };
        }
        self.enlist(candidates, domain, situation);
        let (priors, importances) = (&self.priors, &self.importances);
        let walk = Walk::new(&self.evidence, priors, importances, &self.settings, &guard, features, situation.now);
        walk.run(candidates, url, &self.extractors, situation.hint, Some(local), trace);
        if let Some(wanted) = situation.wanted.and_then(|id| candidates.get(id.index())) {
            return Decision::Take(take(wanted, Source::Hinted, Rule::CallerHint, 1.0));
        }
        // Relaxed: it seeds a hash.
        let domain_attempts = domain.map_or(0, |entry| entry.attempts.load(Ordering::Relaxed));
        self.choose(url, candidates, &self.settings, domain_attempts, situation)
    }

    /// Asks the policy, and labels what it answers.
    fn choose(
        &self,
        url: &Url,
        candidates: &Candidates<'_>,
        settings: &Settings,
        domain_attempts: u32,
        situation: &Situation,
    ) -> Decision {
        let view = View {
            candidates,
            settings,
            attempts: situation.attempts,
            hint: situation.hint,
            url: identity(url),
            domain_attempts,
            now: situation.now,
        };
        let Some(choice) = self.policy.choose(&view) else { return Decision::GiveUp };
        let Some(chosen) = candidates.get(choice.fetcher.index()) else { return Decision::GiveUp };
        let source = match choice.rule {
            Rule::Explore => Source::Explore,
            _ if chosen.is_confident(settings) => Source::Learned,
            _ if &*chosen.spec.name == PROBE_FETCHER => Source::Probe,
            _ => Source::Inferred,
        };
        Decision::Take(take(chosen, source, choice.rule, choice.propensity))
    }

    /// Puts every candidate on the list, with what is known before the walk.
    fn enlist<'s>(&'s self, candidates: &mut Candidates<'s>, domain: Option<&Entry>, situation: &Situation) {
        let with_breakers = domain.filter(|entry| entry.has_breakers());
        for (id, spec) in self.registry.candidates() {
            let open = with_breakers.is_some_and(|entry| self.is_open(entry.breaker(id), situation.now));
            candidates.push(Scored {
                id,
                spec,
                tried: situation.excluded.contains(id),
                open,
                p: spec.prior,
                p_general: spec.prior,
                b: 0.1,
                z: 0.0,
                u: 0.0,
                z_general: 0.0,
                basis: None,
                domain_attempts: 0.0,
                domain_newest_s: 0,
            });
        }
    }

    /// Rule 4: whether a breaker keeps its fetcher away at `now`.
    fn is_open(&self, breaker: Breaker, now: Timestamp) -> bool {
        now < breaker.last.saturating_add(self.backoff.breaker_pause(breaker.blocks))
            && breaker.blocks >= self.backoff.breaker_blocks
    }
}

/// What a journal needs.
#[cfg(feature = "journal")]
impl Selector {
    /// Learns from an attempt where it lies, what domains share apart; the policy does not see it.
    pub(crate) fn learn(&self, shared: &Evidence, attempt: &impl crate::evidence::Observed) {
        self.evidence.observe_apart(shared, attempt, &self.registry);
    }

    /// Says that attempts of sites with these hashes come next.
    pub(crate) fn expect(&self, hashes: &[u64]) {
        self.evidence.touch(hashes);
    }

    /// A place for what domains share, for one of several threads that learn at once.
    pub(crate) fn apart(&self) -> Evidence {
        self.evidence.empty_like()
    }

    /// Adds what one of them has learned there.
    pub(crate) fn merge(&self, shared: &Evidence) {
        self.evidence.merge(shared);
    }

    /// Takes back what an attempt had shown. `with_domain` says whether its domain's own evidence still has it.
    pub(crate) fn take_back(&self, attempt: &impl crate::evidence::Observed, with_domain: bool) {
        self.evidence.take_back(attempt, &self.registry, with_domain);
    }

    /// All evidence that has not faded by `as_of`.
    pub(crate) fn image(&self, as_of: Timestamp, fetchers: &[String]) -> crate::evidence::image::Image {
        self.evidence.image(&self.registry, as_of, fetchers)
    }

    /// Adds an image's evidence.
    pub(crate) fn absorb(&self, image: &crate::evidence::image::Image) {
        self.evidence.absorb(image, &self.registry);
    }

    /// Whether the policy keeps a memory of its own.
    pub(crate) fn policy_remembers(&self) -> bool {
        self.policy.remembers()
    }

    /// Shows the policy an attempt that evidence has already.
    pub(crate) fn show_policy(&self, attempt: &Attempt) {
        self.policy.observe(attempt);
    }
}

fn take(chosen: &Scored<'_>, source: Source, rule: Rule, propensity: f64) -> Take {
    Take {
        fetcher: chosen.id,
        source,
        rule,
        confidence: chosen.confidence(),
        sample_size: chosen.sample_size(),
        propensity,
        breaker_ignored: chosen.open,
    }
}
