//! Where both arms were asked: how often they named the same fetcher, and where they did not.

use serde::Serialize;

use crate::ab_test::aggregate::{Aggregate, Host};

/// How often the table and learning named the same fetcher, over visits in which both were asked.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Agreement {
    /// Visits in which both were asked.
    pub asked: u64,
    /// Of those, where both named the same fetcher.
    pub agreed: u64,
    /// As a share; null when nobody was asked. With [`differed_share`](Self::differed_share) it adds up to one.
    pub agreed_share: Option<f64>,
    /// The share in which they named different ones.
    pub differed_share: Option<f64>,
    /// What a first request would have cost on average by the table, in plain requests.
    pub first_cost_table: Option<f64>,
    /// The same by learning.
    pub first_cost_learning: Option<f64>,
    /// What differed, over all hosts, the most frequent first.
    pub pairs: Vec<Differing>,
    /// On so many hosts they differed at least once.
    pub hosts_differing: u64,
    /// Those of them on which they differ most often, the most first.
    pub hosts: Vec<HostAgreement>,
}

/// A way to differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Differing {
    /// What the table names.
    pub table: String,
    /// What learning would take, or takes.
    pub learning: String,
    /// In so many visits.
    pub visits: u64,
    /// The cost of learning's first request less the table's, in plain requests, all of them together.
    pub first_cost: f64,
}

/// A host on which they differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HostAgreement {
    /// The host, as the heuristic `domain` has it.
    pub host: String,
    /// Visits in which both were asked.
    pub asked: u64,
    /// Of those, where both named the same fetcher.
    pub agreed: u64,
    /// How they differ, the most frequent first.
    pub pairs: Vec<Differing>,
}

impl Aggregate {
    /// How often both arms named the same fetcher; of the hosts where they did not, the first `max_hosts`.
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
        let mut differing: Vec<&Host> = self.hosts.iter().filter(|host| host.asked > host.agreed).collect();
        differing.sort_by(|a, b| (b.asked - b.agreed).cmp(&(a.asked - a.agreed)).then_with(|| a.name.cmp(&b.name)));
        let of = |host: &Host| HostAgreement {
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

    /// What all first requests cost by the table and by learning.
    fn first_costs(&self) -> (f64, f64) {
        let cost = |number: u16| self.fetchers.get(usize::from(number)).map_or(0.0, |name| self.cost(name));
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
            b.visits.cmp(&a.visits).then_with(|| (&a.table, &a.learning).cmp(&(&b.table, &b.learning)))
        });
        pairs
    }
}
