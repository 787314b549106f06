//! Agreement of both arms: how often they chose the same fetcher, and on which hosts they did not.

use serde::Serialize;

use crate::ab_test::aggregate::{Aggregate, HostCounts};

/// Agreement of the table and learning, over visits with a decision of both.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Agreement {
    /// Visits with a decision of both.
    pub asked: u64,
    /// Visits in which both chose the same fetcher.
    pub agreed: u64,
    /// Fraction of agreement; null without visits. It adds up to one with
    /// [`differed_share`](Self::differed_share).
    pub agreed_share: Option<f64>,
    /// Fraction of visits in which they chose different fetchers.
    pub differed_share: Option<f64>,
    /// Mean cost of a first request by the table's choice, in plain requests.
    pub first_cost_table: Option<f64>,
    /// Mean cost of a first request by learning's choice, in plain requests.
    pub first_cost_learning: Option<f64>,
    /// The differences over all hosts, most frequent first.
    pub pairs: Vec<Differing>,
    /// Number of hosts with at least one difference.
    pub hosts_differing: u64,
    /// The hosts with the most differences, in descending order.
    pub hosts: Vec<HostAgreement>,
}

/// A pair of different choices.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Differing {
    /// The table's choice.
    pub table: String,
    /// Learning's choice.
    pub learning: String,
    /// Number of visits.
    pub visits: u64,
    /// Total cost of learning's first requests less the table's, in plain requests.
    pub first_cost: f64,
}

/// A host on which the arms differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HostAgreement {
    /// The host, as in the heuristic `domain`.
    pub host: String,
    /// Visits with a decision of both.
    pub asked: u64,
    /// Visits in which both chose the same fetcher.
    pub agreed: u64,
    /// The differences, most frequent first.
    pub pairs: Vec<Differing>,
}

impl Aggregate {
    /// Returns the agreement of both arms, with at most `max_hosts` of the hosts on which they
    /// differ.
    pub fn agreement(&self, max_hosts: usize) -> Agreement {
        let (mut asked, mut agreed) = (0, 0);
        let mut pairs: Vec<(u16, u16, u64)> = Vec::new();
        for host in &self.hosts {
            asked += host.asked;
            agreed += host.agreed;
            for &(table, learning, count) in &host.differed {
                match pairs.iter_mut().find(|(t, l, _)| (*t, *l) == (table, learning)) {
                    Some((_, _, sum)) => *sum += count,
                    None => pairs.push((table, learning, count)),
                }
            }
        }
        let share = |part: u64| (asked > 0).then(|| part as f64 / asked as f64);
        let mut differing: Vec<&HostCounts> =
            self.hosts.iter().filter(|host| host.asked > host.agreed).collect();
        differing.sort_by(|a, b| {
            (b.asked - b.agreed).cmp(&(a.asked - a.agreed)).then_with(|| a.name.cmp(&b.name))
        });
        let of = |host: &HostCounts| HostAgreement {
            host: host.name.to_string(),
            asked: host.asked,
            agreed: host.agreed,
            pairs: self.differing(&host.differed),
        };
        let (table, learning) = self.first_costs();
        Agreement {
            asked,
            agreed,
            agreed_share: share(agreed),
            differed_share: share(asked - agreed),
            first_cost_table: (asked > 0).then(|| table / asked as f64),
            first_cost_learning: (asked > 0).then(|| learning / asked as f64),
            pairs: self.differing(&pairs),
            hosts_differing: differing.len() as u64,
            hosts: differing.into_iter().take(max_hosts).map(of).collect(),
        }
    }

    /// Returns the total cost of all first requests by the table and by learning.
    fn first_costs(&self) -> (f64, f64) {
        let cost = |number: u16| {
            self.fetchers.get(usize::from(number)).map_or(0.0, |name| self.cost(name))
        };
        let (mut table, mut learning) = (0.0, 0.0);
        for host in &self.hosts {
            for &(same, count) in &host.same {
                let both = cost(same) * count as f64;
                (table, learning) = (table + both, learning + both);
            }
            for &(t, l, count) in &host.differed {
                table += cost(t) * count as f64;
                learning += cost(l) * count as f64;
            }
        }
        (table, learning)
    }

    fn differing(&self, pairs: &[(u16, u16, u64)]) -> Vec<Differing> {
        let name = |number: u16| self.fetchers.get(usize::from(number)).map_or("", |name| name);
        let mut pairs: Vec<Differing> = pairs
            .iter()
            .map(|&(table, learning, visits)| Differing {
                table: name(table).to_owned(),
                learning: name(learning).to_owned(),
                visits,
                first_cost: (self.cost(name(learning)) - self.cost(name(table))) * visits as f64,
            })
            .collect();
        pairs.sort_by(|a, b| {
            b.visits
                .cmp(&a.visits)
                .then_with(|| (&a.table, &a.learning).cmp(&(&b.table, &b.learning)))
        });
        pairs
    }
}
