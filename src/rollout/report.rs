//! The report of a rollout from the log: both arms, their agreement, the estimated worth of
//! learning in visits that the table served, and the current stage. The command, the API and the
//! dashboard share its structure.

use std::path::Path;

use serde::Serialize;

use super::RolloutError;
use crate::ab_test::{Aggregate, Agreement, Comparison, Look, Window};
use crate::journal::{self, Entry};
use crate::off_policy::{Estimate, Evaluation, OffPolicyEvaluator};
use crate::rollout::state_file::{FallbackRecord, RolloutState, Stage};
use crate::selector::Selector;
use fetchwise_types::attempt::{Arm, Attempt};
use fetchwise_types::rfc3339;

/// Number of hosts that are listed where the arms differ.
const MAX_HOSTS: usize = 20;

/// The report of a rollout. Serialized it is one JSON object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Rollout {
    /// Start of the window of visits; null for all.
    pub since: Option<String>,
    /// End of the window of visits.
    pub until: Option<String>,
    /// The current stage; null if no router table was ever used.
    pub stage: Option<Stage>,
    /// Set while learning is out of service.
    pub fallen_back: Option<FallbackRecord>,
    /// Time at which an operator last resumed learning.
    pub resumed_at: Option<String>,
    /// Number of interim looks within the stage.
    pub looks: u32,
    /// Visits of the smaller arm at which the next look is due; null before the first one.
    pub next_look_at: Option<u64>,
    /// The result of the last look.
    pub last_look: Option<Look>,
    /// The comparison of both arms.
    #[serde(flatten)]
    pub comparison: Comparison,
    /// The agreement of both arms.
    pub agreement: Agreement,
    /// The estimated worth of learning in visits that the table served; null if learning made no
    /// decisions there, or without evaluation.
    pub shadow: Option<ShadowWorth>,
}

/// The worth of learning in visits that the table served: an off-policy estimate, in plain requests
/// per visit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ShadowWorth {
    /// Visits that it rests on.
    pub visits: u64,
    /// The table's worth: pages, less requests and blocks.
    pub table: Worth,
    /// Learning's estimated worth (doubly robust).
    pub learning: Worth,
    /// Learning less the table.
    pub gain: Worth,
    /// Fraction of visits in which learning prefers another fetcher than the table. The log has no
    /// data about them, so the estimate is the model's.
    pub unsupported_share: f64,
    /// Whether the log supports the estimate.
    pub supported: bool,
    /// The reasons if it does not.
    pub warnings: Vec<String>,
}

/// An estimate with its 95 % interval, by the spread between hosts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Worth {
    /// In plain requests per visit.
    pub value: f64,
    /// The interval's lower end.
    pub ci_low: f64,
    /// Its upper end.
    pub ci_high: f64,
}

impl From<Estimate> for Worth {
    fn from(of: Estimate) -> Self {
        Self { value: of.value, ci_low: of.ci_low, ci_high: of.ci_high }
    }
}

impl From<Evaluation> for ShadowWorth {
    fn from(of: Evaluation) -> Self {
        Self {
            visits: of.fetches,
            table: of.logged.into(),
            learning: of.doubly_robust.into(),
            gain: of.gain.into(),
            unsupported_share: of.unsupported_share,
            supported: of.warnings.is_empty(),
            warnings: of.warnings,
        }
    }
}

/// Collects attempts one by one, oldest first, for a report.
#[derive(Debug)]
pub struct RolloutSummary {
    aggregate: Aggregate,
    shadow: Option<OffPolicyEvaluator>,
}

impl RolloutSummary {
    /// Returns a summary without attempts. `costs` are those of fetchers, for example [`costs_of`]
    /// a selector.
    pub fn new(window: Window, costs: impl IntoIterator<Item = (String, f64)>) -> Self {
        Self { aggregate: Aggregate::new(window, costs), shadow: None }
    }

    /// Estimates the worth of learning in visits that the table served, too. `selector` must have
    /// no evidence, and the candidates, costs and constants of the crawler; it learns from the
    /// whole log. Cost: an explained decision for each visit that the table served.
    #[must_use]
    pub fn with_shadow(mut self, selector: Selector) -> Self {
        self.shadow = Some(OffPolicyEvaluator::of_shadow(selector));
        self
    }

    /// Adds an attempt. Attempts before the window count as well: estimates within it rest on them.
    pub fn observe(&mut self, attempt: &Attempt) {
        self.aggregate.observe(attempt);
        let is_in = self.aggregate.window().has(attempt.attempted_at);
        match &mut self.shadow {
            Some(shadow) if is_in => shadow.add(attempt),
            Some(shadow) => shadow.learn(attempt),
            None => {}
        }
    }

    /// Returns the report, with the saved state of the current stage.
    pub fn finish(self, kept: Option<RolloutState>) -> Rollout {
        let (kept, window) = (kept.unwrap_or_default(), self.aggregate.window());
        let agreement = self.aggregate.agreement(MAX_HOSTS);
        let evaluation =
            self.shadow.map(OffPolicyEvaluator::finish).filter(|found| found.fetches > 0);
        Rollout {
            since: window.since.map(rfc3339::format),
            until: window.until.map(rfc3339::format),
            stage: kept.stage,
            fallen_back: kept.fallen_back,
            resumed_at: kept.resumed_at.map(rfc3339::format),
            looks: kept.looks.made,
            next_look_at: (kept.looks.made > 0).then_some(kept.looks.next_at),
            last_look: kept.last_look,
            comparison: self.aggregate.comparison(),
            agreement,
            shadow: evaluation.map(ShadowWorth::from),
        }
    }
}

/// Returns the report of the rollout in a data directory, which a crawler may be using. The default
/// window is the current stage, or everything without one. Cost: a pass over the journal, which
/// takes some seconds of a thread if the journal is large.
///
/// # Errors
/// [`RolloutError`] when the journal or the state cannot be read.
///
/// ```
/// use fetchwise::rollout;
/// use fetchwise::Selector;
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path();
/// let selector = Selector::builder().build()?;
/// let rollout = rollout::read(dir, None, rollout::costs_of(&selector), None).unwrap();
/// assert_eq!(rollout.comparison.arms[0].visits, 0);
/// # Ok::<(), fetchwise::Error>(())
/// ```
pub fn read(
    dir: &Path,
    window: Option<Window>,
    costs: impl IntoIterator<Item = (String, f64)>,
    shadow: Option<Selector>,
) -> Result<Rollout, RolloutError> {
    let kept = RolloutState::read(dir)?;
    let window = window.unwrap_or_else(|| window_of(kept.as_ref()));
    let mut aggregate = RolloutSummary::new(window, costs);
    if let Some(selector) = shadow {
        aggregate = aggregate.with_shadow(selector);
    }
    journal::replay(dir, |_, entry| {
        if let Entry::Attempt(attempt) = entry {
            aggregate.observe(&attempt);
        }
    })?;
    Ok(aggregate.finish(kept))
}

/// Returns the window of the current stage: up to now, or until learning was taken out of service.
/// Later visits of the table are not comparable with earlier ones of learning.
pub fn window_of(kept: Option<&RolloutState>) -> Window {
    let stage = kept.and_then(|kept| kept.stage.as_ref());
    let fallen = kept.and_then(|kept| kept.fallen_back.as_ref());
    Window { since: stage.map(|stage| stage.began), until: fallen.map(|fallen| fallen.at) }
}

/// Returns the costs of requests by the fetchers of a selector, in plain requests.
pub fn costs_of(selector: &Selector) -> Vec<(String, f64)> {
    selector.candidates().map(|(_, spec)| (spec.name.to_string(), spec.cost)).collect()
}

impl Rollout {
    /// Returns the figures of an arm.
    pub fn arm(&self, arm: Arm) -> &crate::ab_test::ArmFigures {
        &self.comparison.arms[arm as usize]
    }
}
