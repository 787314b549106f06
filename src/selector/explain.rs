//! A decision with every step written down.
//!
//! Invariants: it decides exactly as [`Selector::select`] does next. A decision before it may have
//! used general estimates that were kept, which are off by less than 1/64.

use url::Url;

use super::{DecisionInput, SelectContext, Selector};
use crate::backoff::LinkState;
use crate::explain::{self, CandidateView, Counterfactual, Explanation, Steps};
use crate::score::Settings;
use crate::score::estimate::{Candidates, HeuristicSources, NoTrace, ScoreBasis, Walk};
use fetchwise_types::decision::Decision;
use fetchwise_types::heuristic::url::{UrlError, UrlFeatures, identity};

impl Selector {
    /// Decides as [`Selector::select`] does, and explains the decision. Allocates; not for the hot
    /// path.
    ///
    /// # Errors
    /// As [`Selector::select`].
    pub fn explain(&self, url: &Url, context: &SelectContext<'_>) -> Result<Explanation, UrlError> {
        let features = UrlFeatures::extract(url)?;
        self.bring_back(url, context.heuristics);
        let mut candidates = Candidates::new();
        let mut steps = Steps::new(
            &self.learned.registry,
            self.learned.evidence.signals(),
            features.path_depth,
        );
        let input = DecisionInput { url, features: &features, context };
        let decision = self.decide(input, &mut candidates, &mut steps);
        let link = LinkState { paused_until: None, ..context.link };
        let awake = SelectContext { link, host_trial: true, ..*context };
        let awake_decision = match decision {
            // The useful answer is the decision that would be made without the pause.
            Decision::Paused { .. } => {
                self.decide(DecisionInput { context: &awake, ..input }, &mut candidates, &mut steps)
            }
            other => other,
        };
        let taken = awake_decision.selected();
        let deciding = taken.and_then(|selection| {
            explain::deciding(
                &steps.steps,
                &candidates,
                selection.fetcher,
                selection.rule,
                &self.settings,
            )
        });
        let alternative = taken.and_then(|selection| {
            explain::cheapest_alternative(&candidates, selection.fetcher, &self.settings)
        });
        let counterfactuals = std::iter::once(self.without_domain(url, &features, &awake))
            .chain(alternative)
            .collect();
        let mut heuristics = self.heuristics(url)?;
        heuristics.extend_from_slice(context.heuristics);
        let candidates = candidates.iter().map(|c| CandidateView::of(c, &self.settings)).collect();
        let shown = self.host_signals_of(url, context.now)?;
        let url = identity(url).to_owned();
        Ok(Explanation {
            url,
            heuristics,
            steps: steps.steps,
            candidates,
            decision,
            deciding,
            counterfactuals,
            shown,
        })
    }

    /// Returns the decision without the evidence of the URL's site, domain and section, and without
    /// exploration.
    fn without_domain(
        &self,
        url: &Url,
        features: &UrlFeatures<'_>,
        context: &SelectContext<'_>,
    ) -> Counterfactual {
        let settings = Settings { explore_rate: 0.0, last_ditch: 0.0, ..self.settings.clone() };
        let mut candidates = Candidates::new();
        let guard = self.learned.evidence.guard();
        self.enlist(&mut candidates, None, [None; 2], context);
        let basis = ScoreBasis { settings: &settings, ..self.basis() };
        let walk = Walk::new(basis, &guard, features, context.now)
            .with_twins(self.learned.registry.twins());
        let sources =
            HeuristicSources { url, extractors: &self.extractors, heuristics: context.heuristics };
        walk.run(&mut candidates, sources, context.hint, None, &mut NoTrace);
        let decision = self.choose(url, &candidates, &settings, (0, false), context);
        let taken =
            decision.selected().and_then(|selection| candidates.get(selection.fetcher.index()));
        Counterfactual::WithoutDomain {
            decision,
            candidate: taken.map(|c| CandidateView::of(c, &settings)),
        }
    }
}
