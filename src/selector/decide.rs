//! The decision: pauses first, then the evidence of each candidate, then the policy.
//!
//! Owns: the order of these steps, and the label of the choice.
//!
//! Invariants: no lock, no allocation, no system call.
//!
//! Must not know: how evidence is added up (the walk's), and which fetcher a policy prefers.

use std::sync::atomic::Ordering;

use url::Url;

use super::{DecisionInput, HostRisk, SelectContext, Selector};
use crate::evidence::{Breaker, Entry, Guard, ShownSignals, day_of};
use crate::policy::View;
use crate::score::estimate::{
    Candidates, HeuristicSources, Local, LocalKeys, ScoreBasis, Trace, Walk,
};
use crate::score::{Scored, Settings};
use fetchwise_types::decision::{Decision, Rule, Selection, Source};
use fetchwise_types::heuristic::url::identity;
use fetchwise_types::time::Timestamp;

impl Selector {
    pub(super) fn decide<'s>(
        &'s self,
        input: DecisionInput<'_>,
        candidates: &mut Candidates<'s>,
        trace: &mut impl Trace,
    ) -> Decision {
        self.decide_with_host_risk(input, candidates, trace, &mut HostRisk::Quiet)
    }

    #[inline]
    pub(super) fn decide_with_host_risk<'s>(
        &'s self,
        input: DecisionInput<'_>,
        candidates: &mut Candidates<'s>,
        trace: &mut impl Trace,
        seen: &mut HostRisk,
    ) -> Decision {
        let guard = self.learned.evidence.guard();
        let local = Local::find(&self.learned.evidence, LocalKeys::of(input.features), &guard);
        self.decide_with(input, (&guard, local), candidates, trace, seen)
    }

    /// Decides with the entries of the URL's domain and site.
    #[inline]
    pub(super) fn decide_with<'s>(
        &'s self,
        DecisionInput { url, features, context }: DecisionInput<'_>,
        (guard, mut local): (&Guard<'_>, Local<'_>),
        candidates: &mut Candidates<'s>,
        trace: &mut impl Trace,
        seen: &mut HostRisk,
    ) -> Decision {
        if let Some(until) = context.link.pause_at(context.now) {
            return Decision::Paused { until, host: false };
        }
        if self.settings.host_signal_weight > 0.0 {
            local = local.with_host_signals(&self.learned.evidence, context.now);
        }
        let domain = local.domain;
        if domain.is_some_and(|entry| entry.paused_until().is_some() || entry.has_breakers()) {
            *seen = HostRisk::AtRisk;
        }
        let host_pause = domain.and_then(Entry::paused_until).filter(|until| *until > context.now);
        if let Some(until) = host_pause.filter(|_| !context.host_trial) {
            return Decision::Paused { until, host: true };
        }
        let signals = match self.learned.registry.signed().is_empty() {
            true => [None; 2],
            false => local.shown_signals(day_of(context.now)),
        };
        self.enlist(candidates, domain, signals, context);
        let walk = Walk::new(self.basis(), guard, features, context.now)
            .with_cache(&self.general)
            .with_twins(self.learned.registry.twins());
        let sources =
            HeuristicSources { url, extractors: &self.extractors, heuristics: context.heuristics };
        walk.run(candidates, sources, context.hint, Some(local), trace);
        if let Some(preferred) = context.prefer.and_then(|id| candidates.get(id.index())) {
            return Decision::Selected(selection(
                preferred,
                Source::Requested,
                Rule::Requested,
                1.0,
            ));
        }
        // Relaxed: it seeds a hash.
        let domain_attempts = domain.map_or(0, |entry| entry.attempts.load(Ordering::Relaxed));
        let behind_vendor = context.attempts == 0
            && local.host_signals.has_vendor_evidence(
                candidates,
                walk.kind,
                walk.down,
                &self.priors,
            );
        self.choose(url, candidates, &self.settings, (domain_attempts, behind_vendor), context)
    }

    pub(super) fn basis(&self) -> ScoreBasis<'_> {
        ScoreBasis {
            evidence: &self.learned.evidence,
            priors: &self.priors,
            importances: &self.importances,
            settings: &self.settings,
        }
    }

    /// Calls the policy, and labels its choice.
    pub(super) fn choose(
        &self,
        url: &Url,
        candidates: &Candidates<'_>,
        settings: &Settings,
        (domain_attempts, behind_vendor): (u32, bool),
        context: &SelectContext<'_>,
    ) -> Decision {
        let view = View {
            candidates,
            settings,
            attempts: context.attempts,
            hint: context.hint,
            url: identity(url),
            domain_attempts,
            now: context.now,
            behind_vendor,
        };
        let Some(choice) = self.policy.choose(&view) else {
            let nobody_passes = view.is_first() && behind_vendor;
            return if nobody_passes { Decision::NoViableFetcher } else { Decision::GiveUp };
        };
        let Some(chosen) = candidates.get(choice.fetcher.index()) else { return Decision::GiveUp };
        let source = match choice.rule {
            Rule::Explore => Source::Explore,
            _ if chosen.is_confident(settings) => Source::Learned,
            _ if chosen.is_probe => Source::Probe,
            _ => Source::Inferred,
        };
        Decision::Selected(selection(chosen, source, choice.rule, choice.propensity))
    }

    /// Adds every candidate to the list, with what is known before the walk.
    pub(super) fn enlist<'s>(
        &'s self,
        candidates: &mut Candidates<'s>,
        domain: Option<&Entry>,
        signals: ShownSignals,
        context: &SelectContext<'_>,
    ) {
        let with_breakers = domain.filter(|entry| entry.has_breakers());
        let standing = self.standing(domain, signals, context.now);
        let probe = self.learned.registry.probe();
        for (id, spec) in self.learned.registry.candidates() {
            let open =
                with_breakers.is_some_and(|entry| self.is_open(entry.breaker(id), context.now));
            candidates.push(Scored {
                tried: context.excluded.contains(id)
                    || !standing.is_open() && standing.leaves_out(spec, id, domain, context.now),
                open,
                is_probe: probe == Some(id),
                host_weight: self.settings.level_weight,
                ..Scored::unknown(id, spec)
            });
        }
    }

    /// Returns whether a breaker is open at `now`.
    pub(super) fn is_open(&self, breaker: Breaker, now: Timestamp) -> bool {
        now < breaker.last.saturating_add(self.backoff.breaker_pause(breaker.blocks))
            && breaker.blocks >= self.backoff.breaker_blocks
    }
}

fn selection(chosen: &Scored<'_>, source: Source, rule: Rule, propensity: f64) -> Selection {
    Selection {
        fetcher: chosen.id,
        source,
        rule,
        confidence: chosen.confidence(),
        sample_size: chosen.sample_size(),
        propensity,
        breaker_ignored: chosen.open,
    }
}
