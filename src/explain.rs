//! Explanations: every step from prior to estimate, which of them decided, and what would be otherwise.
//!
//! Owns what a decision looks like to a person. It works from the steps that were written down while the decision was made, and
//! must not decide itself.

use crate::evidence::{Tags, WALLED};
use crate::score::estimate::{Step, Trace};
use crate::score::weitzman_index::{expected_cost, index};
use crate::score::{Scored, Settings, Specificity};
use fetchwise_types::decision::{Decision, Rule};
use fetchwise_types::heuristic::{HOST_SHOWED, Heuristic};
use fetchwise_types::registry::{FetcherId, Registry};
use fetchwise_types::time::Timestamp;

/// Why a decision is what it is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The URL, without fragment.
    pub url: String,
    /// Its heuristics.
    pub heuristics: Vec<Heuristic>,
    /// Each step from prior to estimate, in order, over all candidates; while paused as if it were not.
    pub steps: Vec<EvidenceStep>,
    /// The candidates with their numbers; while paused as if it were not.
    pub candidates: Vec<CandidateView>,
    /// What was decided.
    pub decision: Decision,
    /// The place in `steps` of the step that decided: after it the chosen fetcher had the highest index, and kept it. When it had
    /// the highest index from the start, it is the step that raised it most. None where no evidence took part.
    pub deciding: Option<usize>,
    /// What would be otherwise.
    pub counterfactuals: Vec<Counterfactual>,
    /// What the host showed.
    pub shown: Vec<TagView>,
}

/// What a host showed, and how fetchers fare on all hosts that had shown it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TagView {
    /// The tag: `block_datadome`, `spa_framework=next`; `walled` where the vendor tells no more than that there is a wall.
    pub tag: String,
    /// Whether it says whose wall stands before the host.
    pub is_vendor: bool,
    /// The day on which the host, or where it showed no vendor its site, last showed it.
    pub last_shown: Timestamp,
    /// The candidates that were tried on hosts that had shown it.
    pub fetchers: Vec<TagFetcher>,
}

/// How a fetcher fares on hosts that had shown a tag.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TagFetcher {
    /// Its name.
    pub fetcher: String,
    /// The share of its attempts that delivered.
    pub success_rate: f64,
    /// Its decayed attempts; a host counts once a day, and 200 at most are remembered.
    pub attempts: f64,
    /// On how many hosts they were made.
    pub hosts: u32,
    /// The same share on all hosts that had shown any vendor (or any framework).
    pub category_rate: f64,
    /// For how many attempts that counts against the host's own: the more, the more alike the tag's hosts are.
    pub weight: f64,
    /// When the vendor changed its mind about it: what the fetcher did on a host before then does not count.
    pub turned_at: Option<Timestamp>,
}

/// What would be decided, or what it would take, if something were otherwise.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Counterfactual {
    /// If site, domain and section were unknown.
    WithoutDomain {
        /// What would be decided.
        decision: Decision,
        /// The numbers of the fetcher that would be taken, if any.
        candidate: Option<CandidateView>,
    },
    /// If the cheapest of the other candidates were taken.
    CheapestAlternative {
        /// Its numbers.
        candidate: CandidateView,
        /// What a page would cost through it on average, in plain requests.
        expected_cost: f64,
        /// The same through the chosen fetcher.
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
    /// The decayed successes that moved the estimate, priors included; those of the alert pair where the level keeps one.
    pub success: f64,
    /// The decayed attempts that moved the estimate, likewise.
    pub total: f64,
    /// Decayed successes, exact, priors included.
    pub exact_success: f64,
    /// Decayed attempts, exact, priors included.
    pub exact_total: f64,
    /// Decayed blocks.
    pub blocked: f64,
    /// Attempts that counted, undecayed.
    pub attempts: u32,
    /// The chance of success before this step.
    pub estimate_before: f64,
    /// The chance of success after it.
    pub estimate_after: f64,
}

/// One candidate as a decision saw it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CandidateView {
    /// Its name.
    pub fetcher: String,
    /// The cost of a request here: as configured, or as measured.
    pub cost: f64,
    /// How a measured cost came to be.
    pub measured: Option<MeasuredCost>,
    /// The chance of success, 0 to 1.
    pub success: f64,
    /// The chance of a block, 0 to 1.
    pub block: f64,
    /// The index while more than one attempt is left.
    pub index: f64,
    /// The expected worth as the last attempt allowed.
    pub last_worth: f64,
    /// Its confidence, 0 to 1.
    pub confidence: f64,
    /// The decayed attempts that confidence rests on.
    pub sample_size: f64,
    /// Whether that is enough to rely on.
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

/// A cost that was taken from how long requests take.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct MeasuredCost {
    /// What was configured: the measured cost is between a quarter and four times of it.
    pub configured: f64,
    /// How long a request of this fetcher is expected to take here, in milliseconds.
    pub request_ms: f64,
    /// How long a plain request takes on average anywhere: the unit.
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

/// Collects the steps of a walk.
pub(crate) struct Steps<'s> {
    registry: &'s Registry,
    tags: &'s Tags,
    depth: u32,
    pub(crate) steps: Vec<EvidenceStep>,
}

impl<'s> Steps<'s> {
    /// For a URL of the path depth `depth`.
    pub(crate) fn new(registry: &'s Registry, tags: &'s Tags, depth: u32) -> Self {
        Self { registry, tags, depth, steps: Vec::new() }
    }
}

impl Trace for Steps<'_> {
    fn step(&mut self, step: Step<'_>) {
        if step.total == 0.0 {
            // What was forgotten left its cell behind.
            return;
        }
        let value = match step.kind {
            "path_depth" => self.depth.to_string(),
            HOST_SHOWED => step.tag.and_then(|id| self.tags.name_of(id)).map_or(WALLED.to_owned(), String::from),
            _ => step.value.to_owned(),
        };
        // Cells lie in the order they were learned in, which a snapshot does not keep: people see fetchers in theirs.
        let is_later = |known: &EvidenceStep| {
            let same = known.kind == step.kind && known.value == value;
            same && self.registry.find(&known.fetcher) > Some(step.fetcher)
        };
        let place = self.steps.iter().rposition(|known| !is_later(known)).map_or(0, |before| before + 1);
        self.steps.insert(
            place,
            EvidenceStep {
                kind: step.kind.to_owned(),
                value,
                fetcher: self.registry.spec(step.fetcher).map_or_else(String::new, |spec| spec.name.to_string()),
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

/// The step of `steps` that decided for `chosen`; see [`Explanation::deciding`].
pub(crate) fn deciding(
    steps: &[EvidenceStep],
    candidates: &[Scored<'_>],
    chosen: FetcherId,
    rule: Rule,
    settings: &Settings,
) -> Option<usize> {
    let name = |id: FetcherId| candidates.get(id.index()).map(|c| &*c.spec.name);
    let is_of = |step: &EvidenceStep, id| name(id) == Some(step.fetcher.as_str());
    let sure = candidates.get(chosen.index()).filter(|c| c.is_confident(settings)).and_then(|c| c.basis);
    if let (Rule::DomainConfident | Rule::CheapestConfident, Some(basis)) = (rule, sure) {
        return steps.iter().rposition(|step| is_of(step, chosen) && is_basis(&step.kind, basis.specificity));
    }
    let mut estimates: Vec<f64> = candidates.iter().map(|c| c.spec.prior).collect();
    let index_at = |c: &Scored<'_>, estimate: f64| index(c.spec, c.cost, estimate, c.block, settings);
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
            // Either the chosen one rose here, or the one that led fell.
            let of = |id| level.iter().position(|step| is_of(step, id));
            turned = of(chosen).or_else(|| ahead.and_then(of)).map(|place| at + place);
        }
        (ahead, at) = (now, at + level.len());
    }
    let gained =
        |c: &Scored<'_>, step: &EvidenceStep| index_at(c, step.estimate_after) - index_at(c, step.estimate_before);
    let gain = |step: &EvidenceStep| candidates.get(chosen.index()).map_or(0.0, |c| gained(c, step));
    let helped = || {
        let own = steps.iter().enumerate().filter(|(_, step)| is_of(step, chosen) && step.total > 0.0);
        own.max_by(|a, b| gain(a.1).total_cmp(&gain(b.1))).map(|(place, _)| place)
    };
    turned.or_else(helped)
}

/// Whether a step's type is the one that confidence was worked out from.
fn is_basis(kind: &str, specificity: Specificity) -> bool {
    match specificity {
        Specificity::DomainPath => kind == "domain_path",
        Specificity::Domain => kind == "domain",
        Specificity::Site => kind == "site",
        Specificity::Suffix => kind == "suffix",
        Specificity::Flag(_) | Specificity::Own(_) => !matches!(
            kind,
            "domain_path" | "domain" | "site" | "suffix" | "path_depth" | "hint" | "global" | "met_here" | HOST_SHOWED
        ),
    }
}

/// The cheapest candidate that could be taken in place of `chosen`.
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
