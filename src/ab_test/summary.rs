//! The figures for people: each arm's values with their intervals, and the differences between the
//! arms.

use serde::Serialize;

use crate::ab_test::aggregate::{Aggregate, ArmHost, VisitSums, time_of};
use crate::ab_test::confidence_interval;
use crate::ab_test::confidence_interval::Interval;
use fetchwise_types::attempt::Arm;

/// Hosts below which an interval from their spread is not reliable.
const MIN_HOSTS: u64 = 10;

/// The method of an interval. All of them are 95 % intervals, for a single look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Method {
    /// Wilson's score interval, over the effective number of independent visits.
    WilsonByHost,
    /// Percentiles of a bootstrap that draws hosts.
    BootstrapByHost,
    /// Woodruff's interval of the share below a quantile, with hosts as clusters.
    WoodruffByHost,
    /// Newcombe's interval of a difference, from the intervals of both sides.
    Newcombe,
}

/// A number with its 95 % interval; all null without data.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Figure {
    /// The number.
    pub value: Option<f64>,
    /// The interval's lower end.
    pub ci_low: Option<f64>,
    /// Its upper end.
    pub ci_high: Option<f64>,
    /// The method of the interval.
    pub method: Method,
}

impl Figure {
    fn new(of: Option<Interval>, method: Method) -> Self {
        Self {
            value: of.map(|i| i.value),
            ci_low: of.map(|i| i.low),
            ci_high: of.map(|i| i.high),
            method,
        }
    }

    fn interval(&self) -> Option<Interval> {
        Some(Interval { value: self.value?, low: self.ci_low?, high: self.ci_high? })
    }

    fn minus(&self, other: &Self) -> Self {
        let apart = self
            .interval()
            .zip(other.interval())
            .map(|(a, b)| confidence_interval::difference(a, b));
        Self::new(apart, Method::Newcombe)
    }
}

/// Results of visits, as fractions of all visits of the arm. They add up to one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Shares {
    /// With a page.
    pub delivered: f64,
    /// Without a page, after a block.
    pub blocked: f64,
    /// Without a page, for other reasons.
    pub failed: f64,
}

/// A fetcher's fraction of an arm's first requests. Over all fetchers they add up to one.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FetcherShare {
    /// The fetcher.
    pub fetcher: String,
    /// Visits that began with it.
    pub visits: u64,
    /// Fraction of all visits of the arm.
    pub share: f64,
}

/// The figures of one arm.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ArmFigures {
    /// `learning` or `legacy`.
    pub arm: &'static str,
    /// Visits: each fetch of a link counts.
    pub visits: u64,
    /// Fraction of both arms' visits; null without visits.
    pub share_of_visits: Option<f64>,
    /// Hosts, as in the heuristic `domain`.
    pub hosts: u64,
    /// Attempts.
    pub requests: u64,
    /// Visits that delivered a page.
    pub delivered: u64,
    /// Results of visits; null without visits.
    pub shares: Option<Shares>,
    /// Pages per visit, 0 to 1.
    pub success: Figure,
    /// Cost per delivered page, in plain requests, including failed visits.
    pub cost_per_page: Figure,
    /// Requests per delivered page, including those of failed visits.
    pub requests_per_page: Figure,
    /// Fraction of visits with a blocked request, 0 to 1.
    pub ban_rate: Figure,
    /// Median time in requests until the page was delivered, in milliseconds.
    pub latency_p50_ms: Figure,
    /// 95th percentile of that time, in milliseconds.
    pub latency_p95_ms: Figure,
    /// The first fetchers, most frequent first.
    pub fetchers: Vec<FetcherShare>,
}

/// Learning less the table, over visits that both could have served.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Difference {
    /// Comparable visits: learning's, and the table's.
    pub visits: [u64; 2],
    /// Their hosts: learning's, and the table's.
    pub hosts: [u64; 2],
    /// Difference of [`ArmFigures::success`].
    pub success: Figure,
    /// Difference of [`ArmFigures::cost_per_page`].
    pub cost_per_page: Figure,
    /// Difference of [`ArmFigures::requests_per_page`].
    pub requests_per_page: Figure,
    /// Difference of [`ArmFigures::ban_rate`].
    pub ban_rate: Figure,
    /// Difference of [`ArmFigures::latency_p50_ms`], over all visits.
    pub latency_p50_ms: Figure,
    /// Difference of [`ArmFigures::latency_p95_ms`], over all visits.
    pub latency_p95_ms: Figure,
}

/// The comparison of both arms.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Comparison {
    /// Learning, then the table.
    pub arms: [ArmFigures; 2],
    /// Null unless both arms have visits that the other one could have served.
    pub difference: Option<Difference>,
    /// Visits left out because the caller named the fetcher.
    pub named: u64,
    /// Visits left out because their decision is unknown, as in imports.
    pub unknown: u64,
    /// Reasons for caution about the figures.
    pub warnings: Vec<String>,
}

impl Aggregate {
    /// Returns the comparison of both arms. Cost: some hundred passes over the hosts, for the
    /// bootstrap.
    pub fn comparison(&self) -> Comparison {
        let mut arms = Arm::ALL.map(|arm| self.figures(arm));
        let all: u64 = arms.iter().map(|arm| arm.visits).sum();
        for arm in &mut arms {
            arm.share_of_visits = (all > 0).then(|| arm.visits as f64 / all as f64);
        }
        let [learning, legacy] = Arm::ALL.map(|arm| self.comparable(arm));
        let difference =
            (learning.0 > 0 && legacy.0 > 0).then(|| self.difference(&arms, learning, legacy));
        let mut warnings = Vec::new();
        for arm in arms.iter().filter(|arm| arm.visits > 0 && arm.hosts < MIN_HOSTS) {
            warnings.push(format!("{}: {} hosts are too few for an interval", arm.arm, arm.hosts));
        }
        let both = learning.0 + legacy.0;
        if difference.is_some() && both < all {
            warnings.push(format!(
                "the difference leaves out {} visits that only one arm could serve: hosts without a route, links that \
                 choose their arm",
                all - both
            ));
        }
        Comparison { arms, difference, named: self.named, unknown: self.unknown, warnings }
    }

    fn figures(&self, arm: Arm) -> ArmFigures {
        let units: Vec<&ArmHost> = self.units(arm).collect();
        let mut sum = VisitSums::default();
        units.iter().for_each(|unit| sum.add(&unit.all));
        let Measures { success, cost_per_page, requests_per_page, ban_rate } =
            measures(&units.iter().map(|unit| unit.all).collect::<Vec<_>>());
        let times: Vec<&[(u16, u32)]> = units.iter().map(|unit| &*unit.times).collect();
        let [latency_p50_ms, latency_p95_ms] = [0.5, 0.95].map(|at| {
            let of = confidence_interval::quantile(&times, at).map(|(low, middle, high)| {
                Interval { value: time_of(middle), low: time_of(low), high: time_of(high) }
            });
            Figure::new(of, Method::WoodruffByHost)
        });
        let delivered = if sum.visits > 0.0 { sum.delivered / sum.visits } else { 0.0 };
        let blocked = if sum.visits > 0.0 { sum.lost_to_blocks / sum.visits } else { 0.0 };
        let shares = Shares { delivered, blocked, failed: (1.0 - delivered - blocked).max(0.0) };
        ArmFigures {
            arm: arm.name(),
            visits: sum.visits as u64,
            share_of_visits: None,
            hosts: units.len() as u64,
            requests: sum.requests as u64,
            delivered: sum.delivered as u64,
            shares: (sum.visits > 0.0).then_some(shares),
            success,
            cost_per_page,
            requests_per_page,
            ban_rate,
            latency_p50_ms,
            latency_p95_ms,
            fetchers: self.fetcher_shares(arm),
        }
    }

    fn fetcher_shares(&self, arm: Arm) -> Vec<FetcherShare> {
        let counts = &self.first[arm as usize];
        let all: u64 = counts.iter().sum();
        let with = self.fetchers.iter().zip(counts).filter(|(_, visits)| **visits > 0);
        let mut shares: Vec<FetcherShare> = with
            .map(|(name, visits)| FetcherShare {
                fetcher: name.to_string(),
                visits: *visits,
                share: *visits as f64 / all as f64,
            })
            .collect();
        shares.sort_by(|a, b| b.visits.cmp(&a.visits).then_with(|| a.fetcher.cmp(&b.fetcher)));
        shares
    }

    fn difference(
        &self,
        arms: &[ArmFigures; 2],
        learning: (u64, u64),
        legacy: (u64, u64),
    ) -> Difference {
        let [a, b] = Arm::ALL.map(|arm| {
            let both: Vec<VisitSums> =
                self.units(arm).map(|unit| unit.both).filter(|sums| sums.visits > 0.0).collect();
            measures(&both)
        });
        Difference {
            visits: [learning.0, legacy.0],
            hosts: [learning.1, legacy.1],
            success: a.success.minus(&b.success),
            cost_per_page: a.cost_per_page.minus(&b.cost_per_page),
            requests_per_page: a.requests_per_page.minus(&b.requests_per_page),
            ban_rate: a.ban_rate.minus(&b.ban_rate),
            latency_p50_ms: arms[0].latency_p50_ms.minus(&arms[1].latency_p50_ms),
            latency_p95_ms: arms[0].latency_p95_ms.minus(&arms[1].latency_p95_ms),
        }
    }
}

struct Measures {
    success: Figure,
    cost_per_page: Figure,
    requests_per_page: Figure,
    ban_rate: Figure,
}

fn measures(hosts: &[VisitSums]) -> Measures {
    let pairs = |of: fn(&VisitSums) -> (f64, f64)| hosts.iter().map(of).collect::<Vec<_>>();
    let share = |of| Figure::new(confidence_interval::share(&pairs(of)), Method::WilsonByHost);
    let ratio = |of, seed| {
        Figure::new(confidence_interval::ratio(&pairs(of), seed), Method::BootstrapByHost)
    };
    Measures {
        success: share(|sums| (sums.delivered, sums.visits)),
        ban_rate: share(|sums| (sums.blocked, sums.visits)),
        cost_per_page: ratio(|sums| (sums.cost, sums.delivered), 1),
        requests_per_page: ratio(|sums| (sums.requests, sums.delivered), 2),
    }
}
