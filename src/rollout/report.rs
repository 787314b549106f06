//! What a rollout has come to, from the log: both arms, where they agree, what learning would have been worth where the table served,
//! and the stage that is under way. One shape for the command, an API and a dashboard.

use std::path::Path;

use serde::Serialize;

use super::RolloutError;
use crate::ab_test::{Agreement, Comparison, Aggregate, Look, Window};
use crate::journal::{self, Entry};
use crate::off_policy::{Estimate, Evaluation, OffPolicyEvaluator};
use crate::rollout::state_file::{Fallen, Kept, Stage};
use crate::selector::Selector;
use fetchwise_types::attempt::{Arm, Attempt};
use fetchwise_types::rfc3339;

/// Hosts that are named where the arms differ.
const MAX_HOSTS: usize = 20;

/// What a rollout has come to. With serde it is one JSON object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Rollout {
    /// Visits that began from then on; null for all.
    pub since: Option<String>,
    /// Visits that began before then.
    pub until: Option<String>,
    /// The stage that is under way; null where no router table was ever used.
    pub stage: Option<Stage>,
    /// Set while learning is out of service.
    pub fallen_back: Option<Fallen>,
    /// When an operator put it back last.
    pub resumed_at: Option<String>,
    /// How often the guard has looked within the stage.
    pub looks: u32,
    /// The next look is due when the smaller arm has so many visits; null before the first one.
    pub next_look_at: Option<u64>,
    /// What the last look found.
    pub last_look: Option<Look>,
    /// Both arms side by side.
    #[serde(flatten)]
    pub comparison: Comparison,
    /// How often both would take the same fetcher.
    pub agreement: Agreement,
    /// What learning would have been worth where the table served; null where it was not asked, or nobody evaluated it.
    pub shadow: Option<ShadowWorth>,
}

/// What learning would have been worth where the table served: an off-policy estimate, in plain requests a visit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ShadowWorth {
    /// Visits that it rests on.
    pub visits: u64,
    /// What the table's came to: pages, less requests and blocks.
    pub table: Worth,
    /// What learning's would have come to (doubly robust).
    pub learning: Worth,
    /// Learning less the table.
    pub gain: Worth,
    /// The share of visits in which learning wanted another fetcher than the table, which the log knows nothing of: there the
    /// estimate is the model's.
    pub unsupported_share: f64,
    /// Whether the log supports the estimate.
    pub supported: bool,
    /// Why not.
    pub warnings: Vec<String>,
}

/// An estimate with its 95 % interval, by the spread between hosts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Worth {
    /// In plain requests a visit.
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

/// Takes attempts one by one, oldest first, and then says what they come to.
#[derive(Debug)]
pub struct RolloutSummary {
    fold: Aggregate,
    shadow: Option<OffPolicyEvaluator>,
}

impl RolloutSummary {
    /// No attempts yet. `costs` are those of fetchers; [`costs_of`] a selector will do.
    pub fn new(window: Window, costs: impl IntoIterator<Item = (String, f64)>) -> Self {
        Self { fold: Aggregate::new(window, costs), shadow: None }
    }

    /// Works out, too, what learning would have been worth where the table served. `selector` must be without evidence and have the
    /// candidates, costs and constants of the crawler; it is shown the log from the beginning. Costs an explained decision for each
    /// visit that the table served.
    #[must_use]
    pub fn with_shadow(mut self, selector: Selector) -> Self {
        self.shadow = Some(OffPolicyEvaluator::of_shadow(selector));
        self
    }

    /// Takes an attempt, of before the window too: an estimate of its time rests on them.
    pub fn observe(&mut self, attempt: &Attempt) {
        self.fold.observe(attempt);
        let is_in = self.fold.window().has(attempt.attempted_at);
        match &mut self.shadow {
            Some(shadow) if is_in => shadow.add(attempt),
            Some(shadow) => shadow.learn(attempt),
            None => {}
        }
    }

    /// What it all comes to, with what is [`Kept`] of the stage under way.
    pub fn finish(self, kept: Option<Kept>) -> Rollout {
        let (kept, window) = (kept.unwrap_or_default(), self.fold.window());
        let agreement = self.fold.agreement(MAX_HOSTS);
        let evaluation = self.shadow.map(OffPolicyEvaluator::finish).filter(|found| found.fetches > 0);
        Rollout {
            since: window.since.map(rfc3339::format),
            until: window.until.map(rfc3339::format),
            stage: kept.stage,
            fallen_back: kept.fallen_back,
            resumed_at: kept.resumed_at.map(rfc3339::format),
            looks: kept.looks.made,
            next_look_at: (kept.looks.made > 0).then_some(kept.looks.next_at),
            last_look: kept.last_look,
            comparison: self.fold.comparison(),
            agreement,
            shadow: evaluation.map(ShadowWorth::from),
        }
    }
}

/// What the rollout in a data directory has come to, beside a running crawler too. Without a window it is the stage under way, or
/// everything where there is none. Cost: a pass over the journal, which holds a thread for some seconds where that is large.
///
/// # Errors
/// [`RolloutError`] when the journal or what is kept cannot be read.
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
    let kept = Kept::read(dir)?;
    let window = window.unwrap_or_else(|| window_of(kept.as_ref()));
    let mut fold = RolloutSummary::new(window, costs);
    if let Some(selector) = shadow {
        fold = fold.with_shadow(selector);
    }
    journal::replay(dir, |_, entry| {
        if let Entry::Attempt(attempt) = entry {
            fold.observe(&attempt);
        }
    })?;
    Ok(fold.finish(kept))
}

/// The stage that is under way: up to now, or until learning was taken out of service. What the table served from then on is not to
/// be compared with what learning did before.
pub fn window_of(kept: Option<&Kept>) -> Window {
    let stage = kept.and_then(|kept| kept.stage.as_ref());
    let fallen = kept.and_then(|kept| kept.fallen_back.as_ref());
    Window { since: stage.map(|stage| stage.began), until: fallen.map(|fallen| fallen.at) }
}

/// What requests by the fetchers of a selector cost, in plain requests.
pub fn costs_of(selector: &Selector) -> Vec<(String, f64)> {
    selector.candidates().map(|(_, spec)| (spec.name.to_string(), spec.cost)).collect()
}

impl Rollout {
    /// The figures of an arm.
    pub fn arm(&self, arm: Arm) -> &crate::ab_test::ArmFigures {
        &self.comparison.arms[arm as usize]
    }
}
