//! Nodes whose attempts say something else than those of all others, on the sites that they share.
//!
//! Owns the measure. It names nodes and leaves nobody out: that is for a person. Must not know where attempts are kept.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::model::node_id::Origin;

/// Who is farther off than this is named.
pub const SIGMA: f64 = 5.0;
/// A node with fewer attempts at a site, by one fetcher, is not compared there; and what the others have must be twice as much.
const ATTEMPTS_MIN: f64 = 5.0;
/// Honest nodes differ, too: by the hour, the address, the section of a site. So much, of a success rate, is no sign.
const HONEST: f64 = 0.1;
/// Sites that are named of each.
const SITES: usize = 5;

/// Successes of attempts.
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

/// A site on which a node differs, and by what.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Difference {
    /// The domain.
    pub domain: String,
    /// By which fetcher.
    pub fetcher: String,
    /// The node's attempts there.
    pub attempts: u64,
    /// The share of them that delivered.
    pub success_rate: f64,
    /// The attempts of all others that are not suspicious themselves.
    pub others_attempts: u64,
    /// The share of these that delivered.
    pub others_success_rate: f64,
}

/// A node that is off the others.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Suspect {
    /// Its name.
    pub origin: Origin,
    /// How far, in standard deviations of what chance and honest differences make.
    pub sigma: f64,
    /// On how many sites it was compared, a fetcher counting for itself.
    pub sites: usize,
    /// Those on which it differs most, the most first.
    pub differences: Vec<Difference>,
}

/// What was compared, and who is off.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Comparison {
    /// Nodes with attempts. With fewer than three nobody can say which of them is wrong, and none is named.
    pub nodes: usize,
    /// Sites at which two nodes or more have been, a fetcher counting for itself.
    pub shared_sites: usize,
    /// Who is off, the farthest first.
    pub suspects: Vec<Suspect>,
}

/// Gathers attempts of many nodes. Memory: some hundred bytes for each node, site and fetcher.
#[derive(Clone, Debug, Default)]
pub struct Compare {
    sites: HashMap<(String, String), BTreeMap<Origin, Rate>>,
    nodes: BTreeSet<Origin>,
}

impl Compare {
    /// Counts in an attempt whose outcome counts.
    pub fn observe(&mut self, node: Origin, domain: &str, fetcher: &str, success: bool) {
        self.nodes.insert(node);
        let site = self.sites.entry((domain.to_owned(), fetcher.to_owned())).or_default();
        site.entry(node).or_default().add(Rate { attempts: 1, success: u64::from(success) });
    }

    /// Compares each node with all others. Whoever is farthest off is named first and counts for nobody after that, so that a liar makes no
    /// honest node suspicious.
    pub fn compare(&self) -> Comparison {
        let shared_sites = self.sites.values().filter(|rates| rates.len() > 1).count();
        let mut left = self.nodes.clone();
        let mut suspects = Vec::new();
        while left.len() > 2 {
            let all = left.iter().filter_map(|node| self.look(*node, &left));
            let Some(worst) = all.max_by(|a, b| a.sigma.total_cmp(&b.sigma)) else { break };
            if worst.sigma <= SIGMA {
                break;
            }
            left.remove(&worst.origin);
            suspects.push(worst);
        }
        suspects.sort_by(|a, b| b.sigma.total_cmp(&a.sigma));
        Comparison { nodes: self.nodes.len(), shared_sites, suspects }
    }

    /// How far a node is off those of `left`; none where they share no site with enough attempts.
    fn look(&self, node: Origin, left: &BTreeSet<Origin>) -> Option<Suspect> {
        let mut found: Vec<(f64, Difference)> = Vec::new();
        for ((domain, fetcher), rates) in &self.sites {
            let Some(own) = rates.get(&node).copied() else { continue };
            let mut others = Rate::default();
            rates.iter().filter(|(by, _)| **by != node && left.contains(by)).for_each(|(_, rate)| others.add(*rate));
            let (n, m) = (own.attempts as f64, others.attempts as f64);
            if n < ATTEMPTS_MIN || m < 2.0 * ATTEMPTS_MIN {
                continue;
            }
            let both = ((own.success + others.success) as f64 + 1.0) / (n + m + 2.0);
            let variance = both * (1.0 - both) * (1.0 / n + 1.0 / m) + HONEST * HONEST;
            let square = (own.of() - others.of()).powi(2) / variance;
            let difference = Difference {
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
        // By the square, then by name: what a map's order does must not be seen.
        found.sort_by(|a, b| {
            let by_name = || (&a.1.domain, &a.1.fetcher).cmp(&(&b.1.domain, &b.1.fetcher));
            b.0.total_cmp(&a.0).then_with(by_name)
        });
        let sum: f64 = found.iter().map(|(square, _)| square).sum();
        let (sigma, sites) = (sigma(sum, found.len() as f64), found.len());
        let differences = found.into_iter().take(SITES).map(|(_, difference)| difference).collect();
        Some(Suspect { origin: node, sigma, sites, differences })
    }
}

/// How far a sum of squares over so many sites is from what is expected, by the cube root that makes it nearly normal (Wilson and
/// Hilferty).
fn sigma(sum: f64, sites: f64) -> f64 {
    let spread = 2.0 / (9.0 * sites);
    ((sum / sites).cbrt() - (1.0 - spread)) / spread.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(n: u8) -> Origin {
        Origin::from_bytes([n; 16])
    }

    /// Numbers from 0 to 1 that look like chance.
    struct Luck(u64);

    impl Luck {
        fn next(&mut self) -> f64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    /// `nodes` at 40 sites with rates of their own; `liars` say the opposite. Each node's view of a site is off by up to `off`.
    fn town(nodes: u8, liars: &[u8], attempts: usize, off: f64, seed: u64) -> Comparison {
        let (mut luck, mut compare) = (Luck(seed), Compare::default());
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
    fn a_liar_is_named_and_nobody_else() {
        for seed in 0..40 {
            let found = town(10, &[4], 20, 0.1, seed);
            assert_eq!((found.nodes, found.shared_sites), (10, 40));
            let named: Vec<Origin> = found.suspects.iter().map(|suspect| suspect.origin).collect();
            assert_eq!(named, [node(4)], "{found:?}");
            let first = &found.suspects[0].differences[0];
            assert!((first.success_rate - first.others_success_rate).abs() > 0.5 && first.attempts == 20, "{first:?}");
            let found = town(3, &[2], 20, 0.1, seed);
            assert_eq!(found.suspects.first().map(|suspect| suspect.origin), Some(node(2)), "one of three: {found:?}");
            assert_eq!(found.suspects.len(), 1);
        }
    }

    #[test]
    fn two_liars_among_ten_are_both_named() {
        for seed in 0..40 {
            let found = town(10, &[1, 9], 20, 0.05, seed);
            let named: BTreeSet<Origin> = found.suspects.iter().map(|suspect| suspect.origin).collect();
            assert_eq!(named, BTreeSet::from([node(1), node(9)]));
        }
    }

    #[test]
    fn honest_nodes_that_see_somewhat_different_sites_are_not_named() {
        for seed in 0..40 {
            assert_eq!(town(10, &[], 50, 0.1, seed).suspects, []);
            assert_eq!(town(3, &[], 5, 0.1, seed).suspects, []);
        }
    }

    #[test]
    fn of_two_nobody_can_say_who_is_wrong() {
        assert_eq!(town(2, &[1], 50, 0.0, 1).suspects, []);
        assert_eq!(Compare::default().compare(), Comparison::default());
    }
}
