//! When learning is worse than the table beyond doubt, however often one looks.
//!
//! Hosts were dealt out to the arms by a hash of their name, so the test deals them out anew: it asks how often a random deal of the
//! same hosts makes learning look as bad as it does. That is exact whatever visits of a host have in common, and for few hosts and
//! rare failures too, where a normal approximation is wrong by orders of magnitude. InterimLooks come when the smaller arm has grown by a
//! quarter, and each may spend only its part of the whole error: alpha / (k (k + 1)) at look k, which adds up to alpha however many
//! there are. So the chance that any look ever calls a learning arm worse that is not is at most 1 - confidence.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::VariantNames;

use crate::ab_test::aggregate::{Aggregate, Sums};
use crate::ab_test::confidence_interval::Dice;
use fetchwise_types::attempt::Arm;
use fetchwise_types::unknown_name::UnknownName;

/// The smaller arm has grown by so much at the next look.
const GROWTH: f64 = 1.25;
/// How alike visits of a host are taken to be: with many visits it weighs as much as 1 / this of one visit each.
const LIKENESS: f64 = 0.1;
/// Deals per look: so many times what its part of alpha can resolve, and at most.
const DEALS: f64 = 4.0;
const MAX_DEALS: f64 = 400_000.0;

/// What learning must not be worse in.
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
    /// The share of visits that bring a page.
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
    /// Its name in configs and JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// How much worse learning may be unless a config says otherwise: of shares as it is, of cost and requests in proportion.
    pub fn margin(self) -> f64 {
        match self {
            Self::Success | Self::Bans => 0.02,
            Self::Cost | Self::Requests => 0.1,
        }
    }

    fn is_share(self) -> bool {
        matches!(self, Self::Success | Self::Bans)
    }

    fn of(self, sums: &Sums) -> f64 {
        let sum = match self {
            Self::Success => sums.delivered,
            Self::Cost => sums.cost,
            Self::Requests => sums.requests,
            Self::Bans => sums.blocked,
        };
        sum / sums.visits
    }

    /// What learning has on a host, less the margin that it is allowed; larger is worse.
    fn harm(self, value: f64, margin: f64, arm: Arm) -> f64 {
        let value = if self == Self::Success { -value } else { value };
        match arm {
            Arm::Legacy => value,
            Arm::Learning if self.is_share() => value - margin,
            Arm::Learning => value / (1.0 + margin),
        }
    }
}

/// When to take learning out of service.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GuardSettings {
    /// Whether to do it at all.
    pub is_on: bool,
    /// What learning must not be worse in.
    pub metric: Metric,
    /// How sure that it is worse, 0.5 to 0.9999: the chance of never falling back for nothing in one stage of a rollout, however
    /// often one looks.
    pub confidence: f64,
    /// How much worse it may be; [`Metric::margin`] when none.
    pub margin: Option<f64>,
    /// No look before each arm has so many visits that the other one could have served.
    pub visits_min: u64,
    /// No look before each arm has so many hosts.
    pub hosts_min: u64,
    /// After so long learning gets another chance, and after twice as long the next time; only an operator's word brings it back
    /// when none.
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

/// How often it was looked, which later looks have to make up for. Belongs to the attempts of one stage, and outlives the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterimLooks {
    /// InterimLooks so far.
    pub made: u32,
    /// The next one is due when the smaller arm has so many visits.
    pub next_at: u64,
}

/// What a look has found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Look {
    /// Its number within the stage, from 1 on.
    pub number: u32,
    /// What was compared.
    pub metric: Metric,
    /// Learning's mean over hosts.
    pub learning: f64,
    /// The table's mean over hosts.
    pub legacy: f64,
    /// How much worse learning may be.
    pub margin: f64,
    /// Visits that both arms could have served: learning's, and the table's.
    pub visits: [u64; 2],
    /// Their hosts.
    pub hosts: [u64; 2],
    /// How likely a random deal of the same hosts makes learning look as bad.
    pub p_value: f64,
    /// How small that has to be at this look.
    pub alpha: f64,
    /// Whether it is.
    pub is_worse: bool,
}

impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [learning, legacy] = [self.learning, self.legacy].map(|value| match self.metric.is_share() {
            true => format!("{:.1} %", 100.0 * value),
            false => format!("{value:.2}"),
        });
        let what = match self.metric {
            Metric::Success => "success",
            Metric::Cost => "cost a visit",
            Metric::Requests => "requests a visit",
            Metric::Bans => "blocked visits",
        };
        write!(
            f,
            "{what}: learning {learning} ({} visits of {} hosts), the table {legacy} ({} visits of {} hosts); p = {:.2e}, {} {:.2e} at \
             look {}",
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
    /// Whether a look is due.
    pub fn is_due(&self, fold: &Aggregate, settings: &GuardSettings) -> bool {
        let arms = Arm::ALL.map(|arm| fold.comparable(arm));
        let smaller = arms.iter().map(|(visits, _)| *visits).min().unwrap_or_default();
        let hosts = arms.iter().map(|(_, hosts)| *hosts).min().unwrap_or_default();
        smaller >= self.next_at.max(settings.visits_min).max(1) && hosts >= settings.hosts_min.max(1)
    }

    /// InterimLooks, if a look is due. Cost: most looks end after some tens of deals of the smaller arm's hosts; one that finds learning
    /// worse needs some thousands.
    pub fn look(&mut self, fold: &Aggregate, settings: &GuardSettings) -> Option<Look> {
        if !self.is_due(fold, settings) {
            return None;
        }
        let arms = Arm::ALL.map(|arm| fold.comparable(arm));
        self.made = self.made.saturating_add(1);
        let smaller = arms.iter().map(|(visits, _)| *visits).min().unwrap_or_default();
        self.next_at = ((smaller as f64 * GROWTH).ceil() as u64).max(smaller + 1);
        let k = f64::from(self.made);
        let alpha = (1.0 - settings.confidence).max(1e-9) / (k * (k + 1.0));
        let margin = settings.margin.unwrap_or(settings.metric.margin());
        let deal = Deal::new(fold, settings.metric, margin);
        let p_value = deal.p_value(alpha, u64::from(self.made));
        Some(Look {
            number: self.made,
            metric: settings.metric,
            learning: mean(fold, settings.metric, Arm::Learning),
            legacy: mean(fold, settings.metric, Arm::Legacy),
            margin,
            visits: arms.map(|(visits, _)| visits),
            hosts: arms.map(|(_, hosts)| hosts),
            p_value,
            alpha,
            is_worse: p_value <= alpha,
        })
    }
}

/// What a host weighs: a hundred visits of one host tell less than one visit each of a hundred.
fn weight(visits: f64) -> f64 {
    visits / (1.0 + (visits - 1.0) * LIKENESS)
}

fn mean(fold: &Aggregate, metric: Metric, arm: Arm) -> f64 {
    let both = fold.units(arm).map(|unit| unit.both).filter(|sums| sums.visits > 0.0);
    let (above, below) = both.fold((0.0, 0.0), |(above, below), sums| {
        let weight = weight(sums.visits);
        (above + weight * metric.of(&sums), below + weight)
    });
    if below > 0.0 { above / below } else { 0.0 }
}

/// All hosts, as they were dealt.
struct Deal {
    /// Weight, and weighted harm, of each host; those of the smaller arm first.
    hosts: Vec<(f64, f64)>,
    /// How many the smaller arm has.
    dealt: usize,
    /// Whether that arm is learning.
    is_learning: bool,
    sum: (f64, f64),
}

impl Deal {
    fn new(fold: &Aggregate, metric: Metric, margin: f64) -> Self {
        let [learning, legacy] = Arm::ALL.map(|arm| {
            let both = fold.units(arm).map(|unit| unit.both).filter(|sums| sums.visits > 0.0);
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

    /// How much more harm learning does, where the smaller arm has this in all.
    fn apart(&self, (weight, harm): (f64, f64)) -> f64 {
        let other = (self.sum.0 - weight, self.sum.1 - harm);
        if weight <= 0.0 || other.0 <= 0.0 {
            return f64::NEG_INFINITY;
        }
        let apart = harm / weight - other.1 / other.0;
        if self.is_learning { apart } else { -apart }
    }

    /// The share of deals that are as bad as the one that was made, itself included. Ends early once it cannot be under `alpha`.
    fn p_value(mut self, alpha: f64, seed: u64) -> f64 {
        let total = |hosts: &[(f64, f64)]| hosts.iter().fold((0.0, 0.0), |(w, h), x| (w + x.0, h + x.1));
        let seen = self.apart(total(&self.hosts[..self.dealt]));
        // What rounding makes of a deal that is the same one counts as as bad.
        let as_bad = seen - 1e-9 * (1.0 + seen.abs());
        let deals = (DEALS / alpha).ceil().min(MAX_DEALS);
        let enough = (alpha * (deals + 1.0)).max(20.0);
        let mut dice = Dice::new(seed ^ (self.hosts.len() as u64).rotate_left(32));
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
