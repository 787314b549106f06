//! A sequential permutation test: decides when learning is significantly worse than the table, for
//! any number of interim looks.
//!
//! A hash of their name assigned hosts to the arms, so the test assigns them again: it computes how
//! often a random assignment of the same hosts makes learning look as bad as it does. That is exact
//! however similar the visits of a host are, and also for few hosts and rare failures, for which a
//! normal approximation is wrong by orders of magnitude.
//!
//! Interim looks take place when the smaller arm has grown by a quarter. Each look may spend only
//! its part of the total error: alpha / (k (k + 1)) at look k, which adds up to alpha for any
//! number of looks. So the probability that any look reports a learning arm as worse that is not is
//! at most 1 - confidence.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::VariantNames;

use crate::ab_test::aggregate::{Aggregate, VisitSums};
use crate::ab_test::confidence_interval::SplitMix64;
use fetchwise_types::attempt::Arm;
use fetchwise_types::unknown_name::UnknownName;

/// Growth of the smaller arm until the next look.
const GROWTH: f64 = 1.25;
/// Assumed similarity of visits of a host: a host with many visits weighs as much as 1 / this of
/// hosts with one visit.
const LIKENESS: f64 = 0.1;
/// Random assignments per look: a multiple of the resolution of its part of alpha, and the limit.
const DEALS: f64 = 4.0;
const MAX_DEALS: f64 = 400_000.0;

/// The metric in which learning must not be worse.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    VariantNames,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", parse_err_ty = UnknownName, parse_err_fn = no_metric)]
pub enum Metric {
    /// The share of visits that deliver a page.
    #[default]
    Success,
    /// The cost of a visit, in plain requests.
    Cost,
    /// The requests of a visit.
    Requests,
    /// The share of visits that are blocked.
    Bans,
}

fn no_metric(name: &str) -> UnknownName {
    UnknownName::new("metric", name, Metric::VARIANTS.iter().copied())
}

impl Metric {
    /// Returns its name in configs and JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the default margin by which learning may be worse: absolute for shares, relative for
    /// cost and requests.
    pub fn margin(self) -> f64 {
        match self {
            Self::Success | Self::Bans => 0.02,
            Self::Cost | Self::Requests => 0.1,
        }
    }

    fn is_share(self) -> bool {
        matches!(self, Self::Success | Self::Bans)
    }

    fn of(self, sums: &VisitSums) -> f64 {
        let sum = match self {
            Self::Success => sums.delivered,
            Self::Cost => sums.cost,
            Self::Requests => sums.requests,
            Self::Bans => sums.blocked,
        };
        sum / sums.visits
    }

    /// Returns learning's value on a host, less its margin; larger is worse.
    fn harm(self, value: f64, margin: f64, arm: Arm) -> f64 {
        let value = if self == Self::Success { -value } else { value };
        match arm {
            Arm::Legacy => value,
            Arm::Learning if self.is_share() => value - margin,
            Arm::Learning => value / (1.0 + margin),
        }
    }
}

/// Settings of the automatic rollback of learning.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GuardSettings {
    /// Whether it is enabled.
    pub is_on: bool,
    /// The metric in which learning must not be worse.
    pub metric: Metric,
    /// The confidence that learning is worse, 0.5 to 0.9999: the probability of no false rollback
    /// in one stage of a rollout, for any number of looks.
    pub confidence: f64,
    /// The margin by which it may be worse; [`Metric::margin`] if `None`.
    pub margin: Option<f64>,
    /// Least number of comparable visits of each arm before the first look.
    pub visits_min: u64,
    /// Least number of hosts of each arm before the first look.
    pub hosts_min: u64,
    /// Time after which learning is tried again, doubled each time. If `None`, only an operator can
    /// resume it.
    pub retry_after: Option<Duration>,
}

impl Default for GuardSettings {
    fn default() -> Self {
        Self {
            is_on: true,
            metric: Metric::Success,
            confidence: 0.95,
            margin: None,
            visits_min: 100,
            hosts_min: 10,
            retry_after: None,
        }
    }
}

/// The number of interim looks so far, which later looks must correct for. It belongs to the
/// attempts of one stage, and outlives the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterimLooks {
    /// Interim looks so far.
    pub made: u32,
    /// Visits of the smaller arm at which the next look is due.
    pub next_at: u64,
}

/// The result of an interim look.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Look {
    /// Its number within the stage, from 1 on.
    pub number: u32,
    /// The compared metric.
    pub metric: Metric,
    /// Learning's mean over hosts.
    pub learning: f64,
    /// The table's mean over hosts.
    pub legacy: f64,
    /// The margin by which learning may be worse.
    pub margin: f64,
    /// Comparable visits: learning's, and the table's.
    pub visits: [u64; 2],
    /// Their hosts.
    pub hosts: [u64; 2],
    /// Probability that a random assignment of the same hosts makes learning look as bad.
    pub p_value: f64,
    /// The probability below which learning counts as worse at this look.
    pub alpha: f64,
    /// Whether learning is worse.
    pub is_worse: bool,
}

impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [learning, legacy] =
            [self.learning, self.legacy].map(|value| match self.metric.is_share() {
                true => format!("{:.1} %", 100.0 * value),
                false => format!("{value:.2}"),
            });
        let what = match self.metric {
            Metric::Success => "success",
            Metric::Cost => "cost per visit",
            Metric::Requests => "requests per visit",
            Metric::Bans => "blocked visits",
        };
        write!(
            f,
            "{what}: learning {learning} ({} visits of {} hosts), the table {legacy} ({} visits of {} hosts); \
             p = {:.2e}, {} {:.2e} at look {}",
            self.visits[0],
            self.hosts[0],
            self.visits[1],
            self.hosts[1],
            self.p_value,
            if self.is_worse { "under" } else { "not under" },
            self.alpha,
            self.number
        )
    }
}

impl InterimLooks {
    /// Returns whether a look is due.
    pub fn is_due(&self, aggregate: &Aggregate, settings: &GuardSettings) -> bool {
        let arms = Arm::ALL.map(|arm| aggregate.comparable(arm));
        let smaller = arms.iter().map(|(visits, _)| *visits).min().unwrap_or_default();
        let hosts = arms.iter().map(|(_, hosts)| *hosts).min().unwrap_or_default();
        smaller >= self.next_at.max(settings.visits_min).max(1)
            && hosts >= settings.hosts_min.max(1)
    }

    /// Takes an interim look if one is due. Cost: most looks end after some tens of assignments of
    /// the smaller arm's hosts; one that finds learning worse needs some thousands.
    pub fn look(&mut self, aggregate: &Aggregate, settings: &GuardSettings) -> Option<Look> {
        if !self.is_due(aggregate, settings) {
            return None;
        }
        let arms = Arm::ALL.map(|arm| aggregate.comparable(arm));
        self.made = self.made.saturating_add(1);
        let smaller = arms.iter().map(|(visits, _)| *visits).min().unwrap_or_default();
        self.next_at = ((smaller as f64 * GROWTH).ceil() as u64).max(smaller + 1);
        let k = f64::from(self.made);
        let alpha = (1.0 - settings.confidence).max(1e-9) / (k * (k + 1.0));
        let margin = settings.margin.unwrap_or(settings.metric.margin());
        let deal = HostAssignment::new(aggregate, settings.metric, margin);
        let p_value = deal.p_value(alpha, u64::from(self.made));
        Some(Look {
            number: self.made,
            metric: settings.metric,
            learning: mean(aggregate, settings.metric, Arm::Learning),
            legacy: mean(aggregate, settings.metric, Arm::Legacy),
            margin,
            visits: arms.map(|(visits, _)| visits),
            hosts: arms.map(|(_, hosts)| hosts),
            p_value,
            alpha,
            is_worse: p_value <= alpha,
        })
    }
}

/// Returns the weight of a host: a hundred visits of one host give less information than one visit
/// each of a hundred.
fn weight(visits: f64) -> f64 {
    visits / (1.0 + (visits - 1.0) * LIKENESS)
}

fn mean(aggregate: &Aggregate, metric: Metric, arm: Arm) -> f64 {
    let both = aggregate.units(arm).map(|unit| unit.both).filter(|sums| sums.visits > 0.0);
    let (above, below) = both.fold((0.0, 0.0), |(above, below), sums| {
        let weight = weight(sums.visits);
        (above + weight * metric.of(&sums), below + weight)
    });
    if below > 0.0 { above / below } else { 0.0 }
}

/// All hosts, in their actual assignment.
struct HostAssignment {
    /// Weight and weighted harm of each host; those of the smaller arm first.
    hosts: Vec<(f64, f64)>,
    /// Number of hosts of the smaller arm.
    dealt: usize,
    /// Whether that arm is learning.
    is_learning: bool,
    sum: (f64, f64),
}

impl HostAssignment {
    fn new(aggregate: &Aggregate, metric: Metric, margin: f64) -> Self {
        let [learning, legacy] = Arm::ALL.map(|arm| {
            let both = aggregate.units(arm).map(|unit| unit.both).filter(|sums| sums.visits > 0.0);
            let weighed = both.map(|sums| {
                let weight = weight(sums.visits);
                (weight, weight * metric.harm(metric.of(&sums), margin, arm))
            });
            weighed.collect::<Vec<_>>()
        });
        let is_learning = learning.len() <= legacy.len();
        let (mut hosts, larger) = if is_learning { (learning, legacy) } else { (legacy, learning) };
        let dealt = hosts.len();
        hosts.extend(larger);
        let sum = hosts.iter().fold((0.0, 0.0), |(w, h), (weight, harm)| (w + weight, h + harm));
        Self { hosts, dealt, is_learning, sum }
    }

    /// Returns the additional harm of learning, given the total of the smaller arm.
    fn apart(&self, (weight, harm): (f64, f64)) -> f64 {
        let other = (self.sum.0 - weight, self.sum.1 - harm);
        if weight <= 0.0 || other.0 <= 0.0 {
            return f64::NEG_INFINITY;
        }
        let apart = harm / weight - other.1 / other.0;
        if self.is_learning { apart } else { -apart }
    }

    /// Returns the share of assignments that are as bad as the actual one, itself included. Stops
    /// early once the share cannot fall below `alpha`.
    fn p_value(mut self, alpha: f64, seed: u64) -> f64 {
        let total =
            |hosts: &[(f64, f64)]| hosts.iter().fold((0.0, 0.0), |(w, h), x| (w + x.0, h + x.1));
        let seen = self.apart(total(&self.hosts[..self.dealt]));
        // An equal assignment counts as equally bad despite rounding.
        let as_bad = seen - 1e-9 * (1.0 + seen.abs());
        let deals = (DEALS / alpha).ceil().min(MAX_DEALS);
        let enough = (alpha * (deals + 1.0)).max(20.0);
        let mut dice = SplitMix64::new(seed ^ (self.hosts.len() as u64).rotate_left(32));
        let (mut made, mut bad) = (0.0, 0.0);
        while made < deals && bad < enough {
            for place in 0..self.dealt {
                let other = place + dice.below(self.hosts.len() - place);
                self.hosts.swap(place, other);
            }
            made += 1.0;
            bad += f64::from(u8::from(self.apart(total(&self.hosts[..self.dealt])) >= as_bad));
        }
        (bad + 1.0) / (made + 1.0)
    }
}
