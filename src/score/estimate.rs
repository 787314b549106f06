//! The estimates: evidence is read level by level, from the general to the specific, and each level
//! moves the previous estimate towards its own success rate.
//!
//! Invariants: no lock, no allocation, no sort, no logarithm. A [`Trace`] receives each step for
//! explanations; the one that `select` uses does nothing and costs nothing.
//!
//! Must not know: which candidate is taken.

use super::confidence::{Basis, Specificity};
use super::cost::{measured_cost, start_costs};
use super::general_cache::{GeneralCache, GeneralKey, MadeFrom};
use super::importance::Importances;
use super::{ImportanceUse, Scored, Settings};
use crate::evidence::{
    Entry, Evidence, Group, Guard, Key, Level, ShownSignals, SignalId, Weights, day_of, part_hash,
};
use crate::score::host_signal_lookup::HostSignalLookup;
use crate::score::priors::{Priors, PseudoAttempts, path_key, site_key};
use crate::score::weitzman_index::{index, last_worth};
use fetchwise_types::attempt::Hint;
use fetchwise_types::heuristic::url::{ContentKind, FLAGS, UrlFeatures};
use fetchwise_types::heuristic::{Heuristic, UrlExtractor};
use fetchwise_types::registry::{FetcherId, MAX_CANDIDATES};
use fetchwise_types::time::Timestamp;

/// The candidates of one decision, on the stack.
pub(crate) type Candidates<'a> = arrayvec::ArrayVec<Scored<'a>, MAX_CANDIDATES>;

/// Mean weight of failures up to which they say little: those of a host that has served nobody.
const WEAK: f64 = 0.3;
/// Decayed attempts of a twin below which they do not stand in.
const MIN_TWIN_ATTEMPTS: f64 = 1e-6;

/// Adds pseudo-attempts to all pairs.
#[inline(always)]
fn add_prior(weights: &mut Weights, &(_, success, total): &PseudoAttempts) {
    weights.success += success;
    weights.total += total;
    weights.recent_success += success;
    weights.recent_total += total;
    weights.alert_success += success;
    weights.alert_total += total;
}

/// One step of a walk for a trace: one candidate's estimate, moved by one level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step<'s> {
    pub(crate) kind: &'s str,
    pub(crate) value: &'s str,
    pub(crate) fetcher: FetcherId,
    /// Decayed successes and attempts that moved the estimate, priors included; those of the alert
    /// pair if the level keeps one.
    pub(crate) success: f64,
    pub(crate) total: f64,
    /// The exact weights, priors included.
    pub(crate) exact_success: f64,
    pub(crate) exact_total: f64,
    pub(crate) blocked: f64,
    pub(crate) attempts: u32,
    pub(crate) estimate_before: f64,
    pub(crate) estimate_after: f64,
    /// The host signal that the step is about.
    pub(crate) signal: Option<SignalId>,
}

/// A receiver of the steps of a walk.
pub(crate) trait Trace {
    /// Whether it ignores all steps. Then kept estimates replace some of them.
    const IS_SILENT: bool = false;

    /// Called for each cell (or prior) that moved an estimate.
    fn step(&mut self, step: Step<'_>);
}

/// A trace that ignores all steps.
pub(crate) struct NoTrace;

impl Trace for NoTrace {
    const IS_SILENT: bool = true;

    #[inline(always)]
    fn step(&mut self, _: Step<'_>) {}
}

/// The entries of a URL's domain and site. They are looked up first, so that the processor fetches
/// their cells from memory while the general ones are read.
#[derive(Clone, Copy)]
pub(crate) struct Local<'l> {
    domain_key: Key,
    site_key: Key,
    pub(crate) domain: Option<&'l Entry>,
    site: Option<&'l Entry>,
    pub(crate) host_signals: HostSignalLookup<'l>,
}

/// The keys of a URL's domain and site.
#[derive(Clone, Copy)]
pub(crate) struct LocalKeys {
    domain: Key,
    site: Key,
}

impl LocalKeys {
    #[inline]
    pub(crate) fn of(features: &UrlFeatures<'_>) -> Self {
        let domain = Key::domain(features.domain);
        Self { domain, site: if features.is_site() { domain } else { Key::domain(features.site) } }
    }
}

impl<'l> Local<'l> {
    /// Finds the entries and prefetches them.
    #[inline]
    pub(crate) fn find(evidence: &'l Evidence, keys: LocalKeys, guard: &'l Guard<'_>) -> Self {
        let domain = evidence.entry(keys.domain, guard);
        domain.into_iter().for_each(Entry::touch);
        let site = if keys.site == keys.domain {
            domain
        } else {
            let site = evidence.entry(keys.site, guard);
            site.into_iter().for_each(Entry::touch);
            site
        };
        Self {
            domain_key: keys.domain,
            site_key: keys.site,
            domain,
            site,
            host_signals: HostSignalLookup::default(),
        }
    }

    /// Returns `self` with the signals of the host that have not expired.
    #[inline]
    pub(crate) fn with_host_signals(mut self, evidence: &'l Evidence, now: Timestamp) -> Self {
        self.host_signals =
            HostSignalLookup::find(evidence.signals(), self.shown_signals(day_of(now)));
        self
    }

    /// Returns the signals of the host on a day.
    #[inline]
    pub(crate) fn shown_signals(&self, today: u16) -> ShownSignals {
        Evidence::shown_signals(self.domain, self.site, today)
    }
}

/// The inputs of a walk over the levels, the same for each level.
pub(crate) struct Walk<'w> {
    pub(crate) evidence: &'w Evidence,
    pub(crate) priors: &'w Priors,
    pub(crate) importances: &'w Importances,
    pub(crate) settings: &'w Settings,
    pub(crate) guard: &'w Guard<'w>,
    pub(crate) down: f64,
    pub(crate) features: &'w UrlFeatures<'w>,
    pub(crate) kind: ContentKind,
    now: Timestamp,
    cache: Option<&'w GeneralCache>,
    /// The candidates that sign, each with its twin.
    pub(crate) twins: &'w [(FetcherId, FetcherId)],
    pub(crate) own: Group,
    /// The group of a site's other domains.
    others: Group,
}

/// Information about a URL besides its features: the extractors of user-defined heuristics, and
/// those that the caller gives.
#[derive(Clone, Copy)]
pub(crate) struct HeuristicSources<'k> {
    pub(crate) url: &'k url::Url,
    pub(crate) extractors: &'k [Box<dyn UrlExtractor>],
    pub(crate) heuristics: &'k [Heuristic],
}

/// One level.
struct LevelInput<'l> {
    kind: &'l str,
    value: &'l str,
    entry: Option<&'l Entry>,
    group: Group,
    /// A second group whose weights are added to the first's.
    also: Option<Group>,
    priors: &'l [PseudoAttempts],
    /// Weight of the estimate so far against this level's evidence, in attempts.
    prior_weight: f64,
    /// Whether the estimate reads the alert pair.
    recent: bool,
    /// Whether the candidate's own weight of a host signal applies to this level.
    of_host: bool,
    /// Whether the probability of a block is estimated here, too.
    blocks: bool,
    specificity: Option<Specificity>,
    /// Factor of this level's weights.
    scale: f64,
}

/// What decisions about all URLs are made from.
#[derive(Clone, Copy)]
pub(crate) struct ScoreBasis<'w> {
    pub(crate) evidence: &'w Evidence,
    pub(crate) priors: &'w Priors,
    pub(crate) importances: &'w Importances,
    pub(crate) settings: &'w Settings,
}

impl<'w> Walk<'w> {
    #[inline]
    pub(crate) fn new(
        basis: ScoreBasis<'w>,
        guard: &'w Guard<'w>,
        features: &'w UrlFeatures<'w>,
        now: Timestamp,
    ) -> Self {
        let ScoreBasis { evidence, priors, importances, settings } = basis;
        let kind = evidence.kind(features);
        let [own, others] = [Level::Own, Level::Site].map(|level| Group::new(level, kind, 0));
        Self {
            evidence,
            priors,
            importances,
            settings,
            guard,
            down: evidence.decay().down(now),
            features,
            kind,
            now,
            cache: None,
            twins: &[],
            own,
            others,
        }
    }

    /// Keeps the estimates by general evidence in `cache`, which was made for the same settings and
    /// candidates.
    pub(crate) fn with_cache(self, cache: &'w GeneralCache) -> Self {
        Self { cache: Some(cache), ..self }
    }

    /// Lets the evidence of unsigned twins stand in where candidates that sign have none.
    #[inline(always)]
    pub(crate) fn with_twins(self, twins: &'w [(FetcherId, FetcherId)]) -> Self {
        Self { twins, ..self }
    }

    /// Scores all candidates; without `local` as if there were no evidence of site, domain and
    /// section.
    pub(crate) fn run<T: Trace>(
        &self,
        candidates: &mut Candidates<'_>,
        sources: HeuristicSources<'_>,
        hint: Option<Hint>,
        local: Option<Local<'_>>,
        trace: &mut T,
    ) {
        let cache = self.cache.filter(|_| self.is_keepable(&sources));
        let kept = cache.map(|cache| {
            let suffix =
                self.features.suffix.map_or(0, |suffix| Key::suffix(suffix.as_str()).bits());
            let key = GeneralKey::new(
                self.kind,
                self.features.path_depth,
                self.features.flags,
                suffix,
                hint,
            );
            (cache, key, MadeFrom { version: self.evidence.shared_version(), now: self.now })
        });
        // An explanation needs the steps. It keeps its estimates, so that the next decision agrees
        // with it.
        if !(T::IS_SILENT
            && kept.is_some_and(|(cache, key, from)| cache.load(key, from, candidates)))
        {
            self.global(candidates, trace);
            self.general(candidates, sources, hint, trace);
            if let Some((cache, key, from)) = kept {
                cache.store(key, from, candidates);
            }
        }
        for candidate in candidates.iter_mut() {
            candidate.general_success = candidate.success;
        }
        if let Some(local) = local {
            self.specific(candidates, local, trace);
        }
        self.rate(candidates);
    }

    /// Returns whether the estimates by general evidence depend only on what [`GeneralKey`] has:
    /// user-defined heuristics have any number of values, and recorded importance can change at any
    /// time.
    #[inline]
    fn is_keepable(&self, sources: &HeuristicSources<'_>) -> bool {
        sources.extractors.is_empty()
            && sources.heuristics.is_empty()
            && self.settings.importance == ImportanceUse::Off
    }

    /// Computes the index and the worth of a last attempt from the probabilities.
    fn rate(&self, candidates: &mut Candidates<'_>) {
        for c in candidates.iter_mut() {
            c.cost = measured_cost(c);
            c.index = index(c.spec, c.cost, c.success, c.block, self.settings);
            c.last_worth = last_worth(c.spec, c.cost, c.success, c.block, self.settings);
            c.general_index = index(c.spec, c.cost, c.general_success, 0.0, self.settings);
        }
    }

    /// The first level: the fetcher's prior and all of its attempts, files and pages separately.
    fn global(&self, candidates: &mut Candidates<'_>, trace: &mut impl Trace) {
        let at = LevelInput {
            prior_weight: self.settings.global_weight,
            ..self.level("global", "", Some(self.evidence.global()))
        };
        self.pull(candidates, &at, trace);
        for candidate in candidates.iter_mut() {
            candidate.block = 0.1;
        }
        let other = |_| self.settings.global_weight;
        self.evidence.global().each_shared_weights(self.kind, self.down, other, |id, weights| {
            if let Some(candidate) = candidates.get_mut(id.index()) {
                candidate.block = (weights.blocked + 0.1) / (weights.total + 1.0);
                (candidate.spent_ms, candidate.spent_on) = (weights.duration_ms, weights.total);
            }
        });
        for &(signed, _) in self.twins {
            let weights = self.with_twin(&at, self.evidence.global(), signed);
            if let (Some(weights), Some(candidate)) = (weights, candidates.get_mut(signed.index()))
            {
                candidate.block = (weights.blocked + 0.1) / (weights.total + 1.0);
                (candidate.spent_ms, candidate.spent_on) = (weights.duration_ms, weights.total);
            }
        }
        start_costs(candidates, self.settings.global_weight);
    }

    /// Flags, user-defined types, depth, suffix, hint, and the caller's heuristics.
    fn general(
        &self,
        candidates: &mut Candidates<'_>,
        sources: HeuristicSources<'_>,
        hint: Option<Hint>,
        trace: &mut impl Trace,
    ) {
        for (index, name) in
            FLAGS.iter().enumerate().filter(|(index, _)| self.features.flags[*index])
        {
            let at = LevelInput {
                priors: self.priors.of_key(Key::of(name, "true").bits(), self.kind),
                specificity: Some(Specificity::Flag((FLAGS.len() - index) as u8)),
                scale: self.scale(name, || Key::of(name, "true")),
                ..self.level(name, "true", Some(self.evidence.flag(index)))
            };
            self.pull(candidates, &at, trace);
        }
        for (place, extractor) in sources.extractors.iter().enumerate() {
            extractor.extract(sources.url, &mut |kind, value| {
                self.own(candidates, place, kind, value, trace)
            });
        }
        let depth = self.features.path_depth;
        let at = LevelInput {
            priors: self.priors.of_key(Key::depth(depth).bits(), self.kind),
            scale: self.scale("path_depth", || Key::depth(depth)),
            ..self.level("path_depth", "", self.evidence.depth(depth, self.guard))
        };
        self.pull(candidates, &at, trace);
        if let Some(suffix) = &self.features.suffix {
            let key = Key::suffix(suffix.as_str());
            let at = LevelInput {
                priors: self.priors.of_key(key.bits(), self.kind),
                specificity: Some(Specificity::Suffix),
                scale: self.scale("suffix", || key),
                ..self.level("suffix", suffix.as_str(), self.evidence.entry(key, self.guard))
            };
            self.pull(candidates, &at, trace);
        }
        if let Some(hint) = hint {
            let at = LevelInput {
                priors: self.priors.of_hint(hint, self.kind),
                ..self.level("hint", hint.name(), Some(self.evidence.hint(hint)))
            };
            self.pull(candidates, &at, trace);
        }
        // The caller's heuristics come last, because they take precedence over the evidence that
        // all URLs of a depth share.
        for (place, heuristic) in sources.heuristics.iter().enumerate() {
            self.own(
                candidates,
                sources.extractors.len() + place,
                &heuristic.kind,
                &heuristic.value,
                trace,
            );
        }
    }

    /// Moves the estimates by a user-defined heuristic.
    fn own(
        &self,
        candidates: &mut Candidates<'_>,
        place: usize,
        kind: &str,
        value: &str,
        trace: &mut impl Trace,
    ) {
        let key = Key::of(kind, value);
        let at = LevelInput {
            priors: self.priors.of_key(key.bits(), self.kind),
            specificity: Some(Specificity::Own(u8::MAX - place.min(usize::from(u8::MAX)) as u8)),
            scale: self.scale(kind, || key),
            ..self.level(kind, value, self.evidence.entry(key, self.guard))
        };
        self.pull(candidates, &at, trace);
    }

    /// Site, domain and section. These levels read the alert pair and estimate the probability of a
    /// block.
    fn specific(&self, candidates: &mut Candidates<'_>, local: Local<'_>, trace: &mut impl Trace) {
        self.apply_host_signals(candidates, &local.host_signals, trace);
        let is_blocking = local.host_signals.is_blocking();
        self.apply_plain_outcomes(candidates, local.site, Some(self.others), is_blocking, trace);
        let at = LevelInput {
            also: Some(self.others),
            priors: self.priors.of_key(site_key(local.site_key), self.kind),
            recent: true,
            blocks: true,
            specificity: Some(Specificity::Site),
            of_host: true,
            ..self.level("site", self.features.site, local.site)
        };
        self.pull(candidates, &at, trace);
        // If site and domain are the same, their plain outcomes were read already.
        if !self.features.is_site() {
            self.apply_plain_outcomes(candidates, local.domain, None, is_blocking, trace);
        }
        let key = local.domain_key;
        let at = LevelInput {
            priors: self.priors.of_key(key.bits(), self.kind),
            recent: true,
            blocks: true,
            specificity: Some(Specificity::Domain),
            of_host: true,
            ..self.level("domain", self.features.domain, local.domain)
        };
        self.pull(candidates, &at, trace);
        if let Some(section) = self.features.section {
            let part = part_hash(section);
            let at = LevelInput {
                group: Group::new(Level::Path, self.kind, part),
                priors: self.priors.of_key(path_key(key, part), self.kind),
                prior_weight: self.settings.path_weight,
                recent: true,
                specificity: Some(Specificity::DomainPath),
                ..self.level("domain_path", section, local.domain)
            };
            self.pull(candidates, &at, trace);
        }
    }

    fn level<'l>(
        &'l self,
        kind: &'l str,
        value: &'l str,
        entry: Option<&'l Entry>,
    ) -> LevelInput<'l> {
        LevelInput {
            kind,
            value,
            entry,
            group: self.own,
            also: None,
            priors: &[],
            prior_weight: self.settings.level_weight,
            recent: false,
            of_host: false,
            blocks: false,
            specificity: None,
            scale: 1.0,
        }
    }

    /// Returns the factor of a general heuristic's weights.
    #[inline]
    fn scale(&self, kind: &str, key: impl FnOnce() -> Key) -> f64 {
        match self.settings.importance {
            ImportanceUse::Off => 1.0,
            how => self.importances.factor(how, kind, key()),
        }
    }

    /// Moves each candidate's estimate towards its success rate on this level.
    fn pull(&self, candidates: &mut Candidates<'_>, at: &LevelInput<'_>, trace: &mut impl Trace) {
        let mut seen =
            if self.twins.is_empty() { 0u64 } else { self.pull_with_twins(candidates, at, trace) };
        let moved = seen;
        if let Some(entry) = at.entry.filter(|_| at.scale > 0.0) {
            self.each_weights_at(at, entry, |id, weights| {
                let Some(candidate) = candidates.get_mut(id.index()) else { return };
                if moved != 0 && moved & 1 << id.index() != 0 {
                    return;
                }
                let mut weights = *weights;
                if let Some(prior) = at.priors.iter().find(|prior| prior.0 == id) {
                    seen |= 1 << id.index();
                    add_prior(&mut weights, prior);
                }
                self.pull_one(candidate, at, &weights, trace);
            });
        }
        for &(id, success, total) in at.priors {
            let Some(candidate) = candidates.get_mut(id.index()) else { continue };
            if seen & (1 << id.index()) == 0 {
                let weights = Weights {
                    success,
                    total,
                    recent_success: success,
                    recent_total: total,
                    alert_success: success,
                    alert_total: total,
                    ..Default::default()
                };
                self.pull_one(candidate, at, &weights, trace);
            }
        }
    }

    /// Calls `f` with the weights of each fetcher on a level.
    #[inline(always)]
    fn each_weights_at(
        &self,
        at: &LevelInput<'_>,
        entry: &Entry,
        f: impl FnMut(FetcherId, &Weights),
    ) {
        let down = self.down * at.scale;
        if at.recent {
            return entry.each_weights(at.group, at.also, down, f);
        }
        let of_priors =
            |id| at.priors.iter().find(|prior| prior.0 == id).map_or(0.0, |prior| prior.2);
        entry.each_shared_weights(self.kind, down, |id| at.prior_weight + of_priors(id), f);
    }

    /// Moves the estimates of candidates that sign by their evidence and that of their twins,
    /// without the twins' blocks: those are what a signature may change. A candidate that was
    /// blocked on this level has its own evidence only. Returns the bits of the candidates that
    /// were moved.
    #[cold]
    fn pull_with_twins(
        &self,
        candidates: &mut Candidates<'_>,
        at: &LevelInput<'_>,
        trace: &mut impl Trace,
    ) -> u64 {
        let mut moved = 0;
        let Some(entry) = at.entry.filter(|_| at.scale > 0.0) else { return moved };
        for &(signed, _) in self.twins {
            let weights = self.with_twin(at, entry, signed);
            let (Some(mut weights), Some(candidate)) =
                (weights, candidates.get_mut(signed.index()))
            else {
                continue;
            };
            if let Some(prior) = at.priors.iter().find(|prior| prior.0 == signed) {
                add_prior(&mut weights, prior);
            }
            moved |= 1 << signed.index();
            self.pull_one(candidate, at, &weights, trace);
        }
        moved
    }

    /// Returns the weights of a candidate that signs, together with its twin's; `None` if its own
    /// are all there is.
    fn with_twin(&self, at: &LevelInput<'_>, entry: &Entry, signed: FetcherId) -> Option<Weights> {
        let twin = self.twins.iter().find(|(id, _)| *id == signed)?.1;
        let (mut own, mut of_twin) = (Weights::default(), None);
        self.each_weights_at(at, entry, |id, weights| {
            if id == signed {
                own = *weights;
            } else if id == twin {
                of_twin = Some(weights.without_blocks());
            }
        });
        of_twin
            .filter(|of_twin| own.blocked <= 0.0 && of_twin.total > MIN_TWIN_ATTEMPTS)
            .map(|more| own.plus(&more))
    }

    #[inline(always)]
    fn pull_one(
        &self,
        candidate: &mut Scored<'_>,
        at: &LevelInput<'_>,
        weights: &Weights,
        trace: &mut impl Trace,
    ) {
        // The host's vendor has changed its policy since: earlier attempts of the fetcher here have
        // no value now.
        let is_past = at.recent && weights.newest_s != 0 && weights.newest_s < candidate.turned_s;
        let (success, total) = match at.recent {
            true if is_past => (0.0, 0.0),
            true => (weights.alert_success, weights.alert_total),
            false => (weights.success, weights.total),
        };
        let before = candidate.success;
        let prior_weight = if at.of_host { candidate.host_weight } else { at.prior_weight };
        candidate.success = (success + prior_weight * before) / (total + prior_weight);
        if at.blocks {
            let prior_weight = self.settings.level_weight;
            candidate.block =
                (weights.blocked + prior_weight * candidate.block) / (weights.total + prior_weight);
        }
        if at.of_host && candidate.plain_ms > 0.0 {
            let (spent, on) = (candidate.spent_ms, candidate.spent_on);
            let weight = self.settings.level_weight;
            candidate.spent_ms = weights.duration_ms + weight * spent / on;
            candidate.spent_on = weights.total + weight;
        }
        if let Some(specificity) = at.specificity {
            let recent = at.recent.then_some((weights.recent_success, weights.recent_total));
            let basis = Basis::new(specificity, weights.success, weights.total, recent);
            if !is_past {
                candidate.basis = Some(
                    candidate.basis.map_or(basis, |other| other.stronger(basis, self.settings)),
                );
            }
            if specificity == Specificity::Domain {
                candidate.domain_attempts = weights.total;
                candidate.domain_newest_s = weights.newest_s;
                candidate.has_delivered_here = weights.success > 0.0;
                candidate.is_hardly_tried_here =
                    weights.success <= 0.0 && weights.total <= WEAK * f64::from(weights.attempts);
            }
        }
        trace.step(Step {
            kind: at.kind,
            value: at.value,
            fetcher: candidate.id,
            success,
            total,
            exact_success: weights.success,
            exact_total: weights.total,
            blocked: weights.blocked,
            attempts: weights.attempts,
            estimate_before: before,
            estimate_after: candidate.success,
            signal: None,
        });
    }
}
