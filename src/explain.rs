//! Explanations: every step from prior to estimate, the step that decided, and counterfactuals.
//!
//! Owns: the presentation of a decision to people.
//!
//! Must not know: how to decide; it uses the steps recorded during the decision.

use crate::evidence::{ANY_BLOCK, HostSignals};
use crate::score::estimate::{Step, Trace};
use crate::score::weitzman_index::{expected_cost, index};
use crate::score::{Scored, Settings, Specificity};
use fetchwise_types::decision::{Decision, Rule};
use fetchwise_types::heuristic::{HOST_SHOWED, Heuristic};
use fetchwise_types::registry::{FetcherId, Registry};
use fetchwise_types::time::Timestamp;

/// The explanation of a decision.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The URL, without fragment.
    pub url: String,
    /// Its heuristics.
    pub heuristics: Vec<Heuristic>,
    /// Each step from prior to estimate, in order, over all candidates; for a paused host, as if it
    /// were not paused.
    pub steps: Vec<EvidenceStep>,
    /// The candidates with their numbers; for a paused host, as if it were not paused.
    pub candidates: Vec<CandidateView>,
    /// The decision.
    pub decision: Decision,
    /// The index in `steps` of the step that decided: after it the chosen fetcher had the highest
    /// index, and kept it. If the fetcher had the highest index from the start, it is the step that
    /// raised it most. `None` if no evidence was used.
    pub deciding: Option<usize>,
    /// The counterfactuals.
    pub counterfactuals: Vec<Counterfactual>,
    /// The signals that the host showed.
    pub shown: Vec<HostSignalView>,
}

/// A signal that a host showed, and the results of fetchers on all hosts that had shown it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HostSignalView {
    /// The signal: `block_datadome`, `spa_framework=next`; `walled` if the vendor is no more
    /// informative than the block itself.
    pub tag: String,
    /// Whether it names the vendor of the host's blocks.
    pub is_vendor: bool,
    /// The day on which the host last showed it, or its site, if the host showed no vendor.
    pub last_shown: Timestamp,
    /// The candidates that were tried on hosts that had shown it.
    pub fetchers: Vec<HostSignalFetcher>,
}

/// The results of a fetcher on hosts that had shown a signal.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HostSignalFetcher {
    /// Its name.
    pub fetcher: String,
    /// Its success rate.
    pub success_rate: f64,
    /// Its decayed attempts; a host counts once a day, and at most 200 are remembered.
    pub attempts: f64,
    /// Number of hosts of these attempts.
    pub hosts: u32,
    /// The success rate on all hosts that had shown any vendor (or any framework).
    pub category_rate: f64,
    /// Weight of the signal against the host's own evidence, in attempts: the more alike the
    /// signal's hosts are, the higher.
    pub weight: f64,
    /// Time at which the vendor changed its policy for the fetcher: earlier attempts of the fetcher
    /// on a host do not count.
    pub turned_at: Option<Timestamp>,
}

/// A decision or a cost under other conditions.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Counterfactual {
    /// The decision without evidence of site, domain and section.
    WithoutDomain {
        /// The decision.
        decision: Decision,
        /// The numbers of the fetcher that it selects, if any.
        candidate: Option<CandidateView>,
    },
    /// The costs if the cheapest of the other candidates were taken.
    CheapestAlternative {
        /// Its numbers.
        candidate: CandidateView,
        /// Its mean cost per page, in plain requests.
        expected_cost: f64,
        /// The mean cost per page of the chosen fetcher.
        expected_cost_chosen: f64,
    },
}

/// One step of an estimate.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EvidenceStep {
    /// The heuristic's type, `global` for the start.
    pub kind: String,
    /// Its value.
    pub value: String,
    /// The fetcher.
    pub fetcher: String,
    /// Decayed successes that moved the estimate, priors included; those of the alert pair if the
    /// level keeps one.
    pub success: f64,
    /// Decayed attempts that moved the estimate, likewise.
    pub total: f64,
    /// Decayed successes, exact, priors included.
    pub exact_success: f64,
    /// Decayed attempts, exact, priors included.
    pub exact_total: f64,
    /// Decayed blocks.
    pub blocked: f64,
    /// Attempts that counted, undecayed.
    pub attempts: u32,
    /// Probability of success before this step.
    pub estimate_before: f64,
    /// Probability of success after it.
    pub estimate_after: f64,
}

/// One candidate at the time of a decision.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CandidateView {
    /// Its name.
    pub fetcher: String,
    /// The cost of a request here: as configured, or as measured.
    pub cost: f64,
    /// The inputs of a measured cost.
    pub measured: Option<MeasuredCost>,
    /// Probability of success, 0 to 1.
    pub success: f64,
    /// Probability of a block, 0 to 1.
    pub block: f64,
    /// The index while more than one attempt is left.
    pub index: f64,
    /// The expected worth as the last attempt allowed.
    pub last_worth: f64,
    /// Its confidence, 0 to 1.
    pub confidence: f64,
    /// The decayed attempts that confidence rests on.
    pub sample_size: f64,
    /// Whether the confidence is sufficient.
    pub confident: bool,
    /// Decayed attempts on this domain.
    pub domain_attempts: f64,
    /// Whether its breaker is open.
    pub open: bool,
    /// Whether it may not be taken.
    pub excluded: bool,
}

impl CandidateView {
    pub(crate) fn of(c: &Scored<'_>, settings: &Settings) -> Self {
        Self {
            fetcher: c.spec.name.to_string(),
            cost: c.cost,
            measured: MeasuredCost::of(c),
            success: c.success,
            block: c.block,
            index: c.index,
            last_worth: c.last_worth,
            confidence: c.confidence(),
            sample_size: c.sample_size(),
            confident: c.is_confident(settings),
            domain_attempts: c.domain_attempts,
            open: c.open,
            excluded: c.tried,
        }
    }
}

/// A cost measured by request durations.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct MeasuredCost {
    /// The configured cost: the measured cost is between a quarter and four times of it.
    pub configured: f64,
    /// Expected duration of a request of this fetcher here, in milliseconds.
    pub request_ms: f64,
    /// Mean duration of a plain request on all hosts, in milliseconds: the unit.
    pub plain_ms: f64,
}

impl MeasuredCost {
    fn of(c: &Scored<'_>) -> Option<Self> {
        let measured = Self {
            configured: c.spec.cost,
            request_ms: c.spent_ms / c.spent_on.max(f64::MIN_POSITIVE),
            plain_ms: c.plain_ms,
        };
        (c.plain_ms > 0.0).then_some(measured)
    }
}

/// Collector of the steps of a walk.
pub(crate) struct Steps<'s> {
    registry: &'s Registry,
    signals: &'s HostSignals,
    depth: u32,
    pub(crate) steps: Vec<EvidenceStep>,
}

impl<'s> Steps<'s> {
    /// Returns a collector for a URL of the path depth `depth`.
    pub(crate) fn new(registry: &'s Registry, signals: &'s HostSignals, depth: u32) -> Self {
        Self { registry, signals, depth, steps: Vec::new() }
    }
}

impl Trace for Steps<'_> {
    fn step(&mut self, step: Step<'_>) {
        if step.total == 0.0 {
            // A cell without attempts, left behind by a retraction.
            return;
        }
        let value = match step.kind {
            "path_depth" => self.depth.to_string(),
            HOST_SHOWED => step
                .signal
                .and_then(|id| self.signals.name_of(id))
                .map_or(ANY_BLOCK.to_owned(), String::from),
            _ => step.value.to_owned(),
        };
        // Cells are in the order of learning, which a snapshot does not keep. Sorted, so that
        // people see fetchers in registration order.
        let is_later = |known: &EvidenceStep| {
            let same = known.kind == step.kind && known.value == value;
            same && self.registry.find(&known.fetcher) > Some(step.fetcher)
        };
        let place =
            self.steps.iter().rposition(|known| !is_later(known)).map_or(0, |before| before + 1);
        self.steps.insert(
            place,
            EvidenceStep {
                kind: step.kind.to_owned(),
                value,
                fetcher: self
                    .registry
                    .spec(step.fetcher)
                    .map_or_else(String::new, |spec| spec.name.to_string()),
                success: step.success,
                total: step.total,
                exact_success: step.exact_success,
                exact_total: step.exact_total,
                blocked: step.blocked,
                attempts: step.attempts,
                estimate_before: step.estimate_before,
                estimate_after: step.estimate_after,
            },
        );
    }
}

/// Returns the step of `steps` that decided for `chosen`; see [`Explanation::deciding`].
pub(crate) fn deciding(
    steps: &[EvidenceStep],
    candidates: &[Scored<'_>],
    chosen: FetcherId,
    rule: Rule,
    settings: &Settings,
) -> Option<usize> {
    let name = |id: FetcherId| candidates.get(id.index()).map(|c| &*c.spec.name);
    let is_of = |step: &EvidenceStep, id| name(id) == Some(step.fetcher.as_str());
    let sure =
        candidates.get(chosen.index()).filter(|c| c.is_confident(settings)).and_then(|c| c.basis);
    if let (Rule::DomainConfident | Rule::CheapestConfident, Some(basis)) = (rule, sure) {
        return steps
            .iter()
            .rposition(|step| is_of(step, chosen) && is_basis(&step.kind, basis.specificity));
    }
    let mut estimates: Vec<f64> = candidates.iter().map(|c| c.spec.prior).collect();
    let index_at =
        |c: &Scored<'_>, estimate: f64| index(c.spec, c.cost, estimate, c.block, settings);
    let leader = |estimates: &[f64]| {
        let now = |c: &Scored<'_>| index_at(c, estimates[c.id.index()]);
        let usable = candidates.iter().filter(|c| c.id == chosen || !c.tried && !c.open);
        usable.max_by(|a, b| now(a).total_cmp(&now(b))).map(|c| c.id)
    };
    let (mut ahead, mut turned, mut at) = (leader(&estimates), None, 0);
    for level in steps.chunk_by(|a, b| (&a.kind, &a.value) == (&b.kind, &b.value)) {
        for step in level {
            if let Some(c) = candidates.iter().find(|c| *c.spec.name == *step.fetcher) {
                estimates[c.id.index()] = step.estimate_after;
            }
        }
        let now = leader(&estimates);
        if now != ahead && now == Some(chosen) {
            // Either the chosen one rose here, or the leader fell.
            let of = |id| level.iter().position(|step| is_of(step, id));
            turned = of(chosen).or_else(|| ahead.and_then(of)).map(|place| at + place);
        }
        (ahead, at) = (now, at + level.len());
    }
    let gained = |c: &Scored<'_>, step: &EvidenceStep| {
        index_at(c, step.estimate_after) - index_at(c, step.estimate_before)
    };
    let gain =
        |step: &EvidenceStep| candidates.get(chosen.index()).map_or(0.0, |c| gained(c, step));
    let helped = || {
        let own =
            steps.iter().enumerate().filter(|(_, step)| is_of(step, chosen) && step.total > 0.0);
        own.max_by(|a, b| gain(a.1).total_cmp(&gain(b.1))).map(|(place, _)| place)
    };
    turned.or_else(helped)
}

/// Returns whether a step's type is the one that confidence was computed from.
fn is_basis(kind: &str, specificity: Specificity) -> bool {
    match specificity {
        Specificity::DomainPath => kind == "domain_path",
        Specificity::Domain => kind == "domain",
        Specificity::Site => kind == "site",
        Specificity::Suffix => kind == "suffix",
        Specificity::Flag(_) | Specificity::Own(_) => !matches!(
            kind,
            "domain_path"
                | "domain"
                | "site"
                | "suffix"
                | "path_depth"
                | "hint"
                | "global"
                | "met_here"
                | HOST_SHOWED
        ),
    }
}

/// Returns the cheapest candidate that could be taken in place of `chosen`.
pub(crate) fn cheapest_alternative(
    candidates: &[Scored<'_>],
    chosen: FetcherId,
    settings: &Settings,
) -> Option<Counterfactual> {
    let cost = |c: &Scored<'_>| expected_cost(c.spec, c.cost, c.success, c.block, settings);
    let chosen = candidates.get(chosen.index())?;
    let others = candidates.iter().filter(|c| c.id != chosen.id && !c.tried);
    let cheapest = others.min_by(|a, b| a.cost.total_cmp(&b.cost))?;
    Some(Counterfactual::CheapestAlternative {
        candidate: CandidateView::of(cheapest, settings),
        expected_cost: cost(cheapest),
        expected_cost_chosen: cost(chosen),
    })
}
