//! Outliers: nodes whose attempts disagree with those of all others on shared sites.
//!
//! Owns: the measure. It names nodes and excludes none; that is a person's decision.
//!
//! Must not know: where attempts are stored.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::model::node_id::NodeId;

/// The minimum distance, in standard deviations, at which a node is reported.
pub const SIGMA: f64 = 5.0;
/// The minimum number of attempts of a node at a site, by one fetcher. The others need twice as
/// many.
const MIN_ATTEMPTS: f64 = 5.0;
/// The difference of a success rate that is normal between honest nodes. Hour, address and section
/// of a site all vary.
const NORMAL_DIFFERENCE: f64 = 0.1;
/// The number of sites reported per node.
const SITES: usize = 5;

/// Successes and attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rate {
    attempts: u64,
    success: u64,
}

impl Rate {
    fn add(&mut self, other: Self) {
        self.attempts += other.attempts;
        self.success += other.success;
    }

    fn of(self) -> f64 {
        self.success as f64 / self.attempts.max(1) as f64
    }
}

/// A site at which a node differs, and by how much.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RateDifference {
    /// The domain.
    pub domain: String,
    /// The fetcher.
    pub fetcher: String,
    /// The node's attempts there.
    pub attempts: u64,
    /// The ratio of them that delivered.
    pub success_rate: f64,
    /// The attempts of all other nodes that are not outliers.
    pub others_attempts: u64,
    /// The ratio of these that delivered.
    pub others_success_rate: f64,
}

/// A node that differs from the others.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Outlier {
    /// Its id.
    pub node_id: NodeId,
    /// The distance, in standard deviations of chance and normal differences.
    pub sigma: f64,
    /// The number of sites on which it was compared, counted per fetcher.
    pub sites: usize,
    /// The sites on which it differs most, in descending order.
    pub differences: Vec<RateDifference>,
}

/// The result of a comparison.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct OutlierReport {
    /// The number of nodes with attempts. With fewer than three nobody can tell which one is wrong,
    /// so none is reported.
    pub nodes: usize,
    /// The number of sites with attempts of at least two nodes, counted per fetcher.
    pub shared_sites: usize,
    /// The outliers, the farthest first.
    pub outliers: Vec<Outlier>,
}

/// A collector of attempts of many nodes. Memory: some hundred bytes per node, site and fetcher.
#[derive(Clone, Debug, Default)]
pub struct OutlierDetector {
    sites: HashMap<(String, String), BTreeMap<NodeId, Rate>>,
    nodes: BTreeSet<NodeId>,
}

impl OutlierDetector {
    /// Counts an attempt.
    pub fn observe(&mut self, node: NodeId, domain: &str, fetcher: &str, success: bool) {
        self.nodes.insert(node);
        let site = self.sites.entry((domain.to_owned(), fetcher.to_owned())).or_default();
        site.entry(node).or_default().add(Rate { attempts: 1, success: u64::from(success) });
    }

    /// Compares each node with all others. The farthest outlier is reported first and ignored after
    /// that, so a liar makes no honest node suspicious.
    pub fn compare(&self) -> OutlierReport {
        let shared_sites = self.sites.values().filter(|rates| rates.len() > 1).count();
        let mut left = self.nodes.clone();
        let mut outliers = Vec::new();
        while left.len() > 2 {
            let all = left.iter().filter_map(|node| self.distance_of(*node, &left));
            let Some(worst) = all.max_by(|a, b| a.sigma.total_cmp(&b.sigma)) else { break };
            if worst.sigma <= SIGMA {
                break;
            }
            left.remove(&worst.node_id);
            outliers.push(worst);
        }
        outliers.sort_by(|a, b| b.sigma.total_cmp(&a.sigma));
        OutlierReport { nodes: self.nodes.len(), shared_sites, outliers }
    }

    /// Returns the distance of a node from the nodes in `left`; none if they share no site with
    /// enough attempts.
    fn distance_of(&self, node: NodeId, left: &BTreeSet<NodeId>) -> Option<Outlier> {
        let mut found: Vec<(f64, RateDifference)> = Vec::new();
        for ((domain, fetcher), rates) in &self.sites {
            let Some(own) = rates.get(&node).copied() else { continue };
            let mut others = Rate::default();
            rates
                .iter()
                .filter(|(by, _)| **by != node && left.contains(by))
                .for_each(|(_, rate)| others.add(*rate));
            let (n, m) = (own.attempts as f64, others.attempts as f64);
            if n < MIN_ATTEMPTS || m < 2.0 * MIN_ATTEMPTS {
                continue;
            }
            let both = ((own.success + others.success) as f64 + 1.0) / (n + m + 2.0);
            let variance =
                both * (1.0 - both) * (1.0 / n + 1.0 / m) + NORMAL_DIFFERENCE * NORMAL_DIFFERENCE;
            let square = (own.of() - others.of()).powi(2) / variance;
            let difference = RateDifference {
                domain: domain.clone(),
                fetcher: fetcher.clone(),
                attempts: own.attempts,
                success_rate: own.of(),
                others_attempts: others.attempts,
                others_success_rate: others.of(),
            };
            found.push((square, difference));
        }
        if found.is_empty() {
            return None;
        }
        // Sorted by square, then by name: the order of a map must not show.
        found.sort_by(|a, b| {
            let by_name = || (&a.1.domain, &a.1.fetcher).cmp(&(&b.1.domain, &b.1.fetcher));
            b.0.total_cmp(&a.0).then_with(by_name)
        });
        let sum: f64 = found.iter().map(|(square, _)| square).sum();
        let (sigma, sites) = (sigma(sum, found.len() as f64), found.len());
        let differences = found.into_iter().take(SITES).map(|(_, difference)| difference).collect();
        Some(Outlier { node_id: node, sigma, sites, differences })
    }
}

/// Returns how far a sum of squares over `sites` sites is from its expectation, by the cube root
/// that makes it nearly normal (Wilson and Hilferty).
fn sigma(sum: f64, sites: f64) -> f64 {
    let spread = 2.0 / (9.0 * sites);
    ((sum / sites).cbrt() - (1.0 - spread)) / spread.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(n: u8) -> NodeId {
        NodeId::from_bytes([n; 16])
    }

    /// Pseudo-random numbers from 0 to 1.
    struct Rng(u64);

    impl Rng {
        fn next(&mut self) -> f64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    /// Simulates `nodes` nodes at 40 sites with different rates; `liars` report the opposite. Each
    /// node's view of a site is off by up to `off`.
    fn simulate(nodes: u8, liars: &[u8], attempts: usize, off: f64, seed: u64) -> OutlierReport {
        let (mut luck, mut compare) = (Rng(seed), OutlierDetector::default());
        for site in 0..40 {
            let rate = luck.next();
            for n in 1..=nodes {
                let seen = (rate + off * (2.0 * luck.next() - 1.0)).clamp(0.0, 1.0);
                for _ in 0..attempts {
                    let success = (luck.next() < seen) != liars.contains(&n);
                    compare.observe(node(n), &format!("s{site}.example"), "direct_access", success);
                }
            }
        }
        compare.compare()
    }

    #[test]
    fn only_a_liar_is_reported() {
        for seed in 0..40 {
            let found = simulate(10, &[4], 20, 0.1, seed);
            assert_eq!((found.nodes, found.shared_sites), (10, 40));
            let named: Vec<NodeId> = found.outliers.iter().map(|suspect| suspect.node_id).collect();
            assert_eq!(named, [node(4)], "{found:?}");
            let first = &found.outliers[0].differences[0];
            assert!(
                (first.success_rate - first.others_success_rate).abs() > 0.5
                    && first.attempts == 20,
                "{first:?}"
            );
            let found = simulate(3, &[2], 20, 0.1, seed);
            assert_eq!(
                found.outliers.first().map(|suspect| suspect.node_id),
                Some(node(2)),
                "one of three: {found:?}"
            );
            assert_eq!(found.outliers.len(), 1);
        }
    }

    #[test]
    fn two_liars_among_ten_are_both_reported() {
        for seed in 0..40 {
            let found = simulate(10, &[1, 9], 20, 0.05, seed);
            let named: BTreeSet<NodeId> =
                found.outliers.iter().map(|suspect| suspect.node_id).collect();
            assert_eq!(named, BTreeSet::from([node(1), node(9)]));
        }
    }

    #[test]
    fn honest_nodes_with_slightly_different_sites_are_not_reported() {
        for seed in 0..40 {
            assert_eq!(simulate(10, &[], 50, 0.1, seed).outliers, []);
            assert_eq!(simulate(3, &[], 5, 0.1, seed).outliers, []);
        }
    }

    #[test]
    fn none_of_two_nodes_is_reported() {
        assert_eq!(simulate(2, &[1], 50, 0.0, 1).outliers, []);
        assert_eq!(OutlierDetector::default().compare(), OutlierReport::default());
    }
}
