//! Results: the counters of a policy per URL, compared with the oracle.

use serde::Serialize;

use super::world::World;
use crate::counters::{Counters, Part, Wait, quantile};
use crate::vendor_change::{RightCount, ShiftCounts};
use fetchwise::decision::Source;

mod html;
mod table;

pub use html::html;
pub use table::{baseline_wins, table};

/// The results of one policy in one world, over all seeds. As JSON, one object.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyReport {
    /// The world's name.
    pub world: String,
    /// The policy's name.
    pub policy: String,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// Value of the delivered pages minus costs, per URL.
    pub utility: f64,
    /// Utility lost against the oracle, per URL.
    pub regret: f64,
    /// The standard deviation of regret over the seeds (of a sample; 0 for one seed).
    pub regret_sd: f64,
    /// The share of URLs that ended with content, with dead URLs in the total.
    pub success_rate: f64,
    /// The share of URLs where a failure was taken for content.
    pub false_success_rate: f64,
    /// Costs of requests per URL, in direct requests.
    pub cost_per_url: f64,
    /// Costs of requests per success; null without successes.
    pub cost_per_success: Option<f64>,
    /// Blocked responses per thousand URLs.
    pub blocked_per_1k: f64,
    /// Bans per thousand URLs.
    pub bans_per_1k: f64,
    /// The share of URLs whose first decision was a probe.
    pub probe_share: f64,
    /// Attempts per URL.
    pub attempts_per_url: f64,
    /// Regret over the first three visits of each host.
    pub cold_regret: f64,
    /// The median number of URLs of a warm host that still go to another fetcher first after a
    /// change to a dearer best fetcher. Null when the new fetcher was never used, or there was no
    /// such change.
    pub adapt_worse_p50: Option<u32>,
    /// The 80th percentile of the same.
    pub adapt_worse_p80: Option<u32>,
    /// The median after a change to a cheaper best fetcher.
    pub adapt_better_p50: Option<u32>,
    /// The 80th percentile of the same.
    pub adapt_better_p80: Option<u32>,
    /// The results at vendors' blocks, in a world that has vendors.
    #[serde(flatten)]
    pub vendor_blocks: Option<VendorBlockReport>,
    /// Nanoseconds per decision, when measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decide_ns: Option<f64>,
    /// The data of the plots.
    #[serde(skip)]
    pub(crate) curves: Curves,
}

/// The results of one policy at vendors' blocks.
#[derive(Clone, Debug, Serialize)]
pub struct VendorBlockReport {
    /// Regret per URL over the URLs that meet a vendor's block.
    pub vendor_block_regret: f64,
    /// The same over the first three visits of each host.
    pub vendor_block_cold_regret: f64,
    /// The share of URLs for which no request was made.
    pub unasked_share: f64,
    /// How the policy follows a vendor's change of settings, if there is one.
    #[serde(flatten)]
    pub shift: Option<ShiftReport>,
}

/// The share of pages behind a changing vendor whose first fetcher is the oracle's first choice.
/// Null without such pages.
#[derive(Clone, Debug, Serialize)]
pub struct ShiftReport {
    /// At known hosts before the change.
    pub shift_known: Option<f64>,
    /// At the first page of hosts without a visit from the change until two days after it or
    /// longer, if a dearer fetcher (or none) is best now.
    pub shift_harder_first: Option<f64>,
    /// At the second page of those hosts.
    pub shift_harder_second: Option<f64>,
    /// At the first page, if a cheaper fetcher is best now.
    pub shift_easier_first: Option<f64>,
    /// At the second page of those hosts.
    pub shift_easier_second: Option<f64>,
}

impl VendorBlockReport {
    fn new(world: &World, tallies: &[Counters], oracle: &[Counters]) -> Option<Self> {
        let lost = |of: fn(&Counters) -> Part| {
            let urls: u64 = tallies.iter().map(|t| of(t).urls).sum();
            let lost: f64 =
                tallies.iter().zip(oracle).map(|(t, o)| of(o).utility - of(t).utility).sum();
            lost / (urls as f64).max(1.0)
        };
        let urls: u64 = tallies.iter().map(|t| t.urls).sum();
        let unasked: u64 = tallies.iter().map(|t| t.unasked).sum();
        let report = Self {
            vendor_block_regret: lost(|t| t.vendor_blocks),
            vendor_block_cold_regret: lost(|t| t.vendor_blocks_cold),
            unasked_share: unasked as f64 / (urls as f64).max(1.0),
            shift: world
                .vendors
                .iter()
                .any(|vendor| vendor.shift.is_some())
                .then(|| ShiftReport::new(tallies)),
        };
        (!world.vendors.is_empty()).then_some(report)
    }
}

impl ShiftReport {
    fn new(tallies: &[Counters]) -> Self {
        let share = |of: fn(&ShiftCounts) -> RightCount| {
            let sum = |part: fn(RightCount) -> u64| {
                tallies.iter().map(|t| part(of(&t.followed))).sum::<u64>()
            };
            let count = sum(|right| right.of);
            (count > 0).then(|| sum(|right| right.right) as f64 / count as f64)
        };
        Self {
            shift_known: share(|f| f.known),
            shift_harder_first: share(|f| f.harder[0]),
            shift_harder_second: share(|f| f.harder[1]),
            shift_easier_first: share(|f| f.easier[0]),
            shift_easier_second: share(|f| f.easier[1]),
        }
    }
}

/// Results over time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Curves {
    /// Regret per URL in each stretch; none without visits.
    pub(crate) regret: Vec<Option<f64>>,
    /// The shares of first decisions by label in each stretch, in the order of [`Source::ALL`].
    pub(crate) labels: Vec<[f64; Source::ALL.len()]>,
    /// Waits after changes.
    pub(crate) worse: Vec<Wait>,
    pub(crate) better: Vec<Wait>,
}

impl PolicyReport {
    /// Sums up `tallies`, one per seed, and compares them with the oracle's.
    pub(crate) fn new(
        world: &World,
        policy: &str,
        seeds: &[u64],
        tallies: &[Counters],
        oracle: &[Counters],
    ) -> Self {
        let sum = |of: &dyn Fn(&Counters) -> f64| tallies.iter().map(of).sum::<f64>();
        let urls = sum(&|t| t.urls as f64).max(1.0);
        let regrets: Vec<f64> = tallies
            .iter()
            .zip(oracle)
            .map(|(t, o)| (o.utility - t.utility) / (t.urls as f64).max(1.0))
            .collect();
        let regret = mean(&regrets);
        let cold_urls = sum(&|t| t.cold_urls as f64).max(1.0);
        let cold: f64 =
            tallies.iter().zip(oracle).map(|(t, o)| o.cold_utility - t.cold_utility).sum();
        let successes = sum(&|t| t.successes as f64);
        let cost = sum(&|t| t.cost);
        let probe = Source::ALL.iter().position(|source| *source == Source::Probe);
        let decisions = sum(&|t| t.decisions as f64);
        let curves = Curves::new(tallies, oracle);
        Self {
            world: world.name.clone(),
            policy: policy.to_owned(),
            seeds: seeds.to_vec(),
            utility: sum(&|t| t.utility) / urls,
            regret,
            regret_sd: deviation(&regrets, regret),
            success_rate: successes / urls,
            false_success_rate: sum(&|t| t.deceived as f64) / urls,
            cost_per_url: cost / urls,
            cost_per_success: (successes > 0.0).then(|| cost / successes),
            blocked_per_1k: 1000.0 * sum(&|t| t.blocked as f64) / urls,
            bans_per_1k: 1000.0 * sum(&|t| t.bans as f64) / urls,
            probe_share: probe.map_or(0.0, |probe| sum(&|t| t.labels[probe] as f64) / urls),
            attempts_per_url: sum(&|t| t.attempts as f64) / urls,
            cold_regret: cold / cold_urls,
            adapt_worse_p50: quantile(&curves.worse, 0.5),
            adapt_worse_p80: quantile(&curves.worse, 0.8),
            adapt_better_p50: quantile(&curves.better, 0.5),
            adapt_better_p80: quantile(&curves.better, 0.8),
            vendor_blocks: VendorBlockReport::new(world, tallies, oracle),
            decide_ns: (decisions > 0.0).then(|| sum(&|t| t.decide_ns as f64) / decisions),
            curves,
        }
    }
}

impl Curves {
    fn new(tallies: &[Counters], oracle: &[Counters]) -> Self {
        let mut curves = Self::default();
        for place in 0..tallies.first().map_or(0, |tally| tally.stretches.len()) {
            let urls: u64 = tallies.iter().map(|tally| tally.stretches[place].urls).sum();
            let lost: f64 = tallies
                .iter()
                .zip(oracle)
                .map(|(t, o)| o.stretches[place].utility - t.stretches[place].utility)
                .sum();
            curves.regret.push((urls > 0).then(|| lost / urls as f64));
            let mut labels = [0.0; Source::ALL.len()];
            for tally in tallies {
                for (share, count) in labels.iter_mut().zip(tally.stretches[place].labels) {
                    *share += count as f64 / urls.max(1) as f64;
                }
            }
            curves.labels.push(labels);
        }
        for tally in tallies {
            curves.worse.extend_from_slice(&tally.adapted.worse);
            curves.better.extend_from_slice(&tally.adapted.better);
        }
        curves
    }
}

pub(crate) fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len().max(1) as f64
}

pub(crate) fn deviation(of: &[f64], mean: f64) -> f64 {
    if of.len() < 2 {
        return 0.0;
    }
    (of.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (of.len() - 1) as f64).sqrt()
}

/// Returns the distinct values of `of`, in order of their first appearance.
pub(crate) fn distinct<'r, R, T: PartialEq>(reports: &'r [R], of: impl Fn(&'r R) -> T) -> Vec<T> {
    let mut all = Vec::new();
    for value in reports.iter().map(of) {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all
}
