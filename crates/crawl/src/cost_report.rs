//! The cost of a run by fetcher, and an estimate of what a single fetcher would have delivered and
//! cost.
//!
//! Must not know: how it is printed.

use crate::run_log::RunLog;
use crate::totals::Totals;
use fetchwise::analytics::Row;
use fetchwise::heuristic::url::ContentKind;
use fetchwise::registry::Class;
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;

/// The number of attempts from which on a host's evidence counts.
const MIN_ATTEMPTS: f64 = 0.5;

/// The cost of a run.
#[derive(Debug, Default)]
pub struct CostReport {
    /// What each fetcher did, by name.
    pub fetchers: Vec<FetcherCost>,
    /// What the cheapest plain fetcher alone would have done, and the browser alone.
    pub alternatives: Vec<Alternative>,
}

/// What a fetcher did in this run.
#[derive(Debug)]
pub struct FetcherCost {
    /// Its name.
    pub name: String,
    /// Its attempts.
    pub counts: Row,
    /// Their cost in plain requests.
    pub cost: f64,
}

/// What a crawler with one fetcher only would have delivered.
#[derive(Debug)]
pub struct Alternative {
    /// The name of the fetcher.
    pub name: String,
    /// The expected number of pages.
    pub pages: f64,
    /// The cost in plain requests.
    pub cost: f64,
    /// The share of links on hosts where the log has evidence about this fetcher.
    pub known_share: f64,
}

impl CostReport {
    /// Returns the cost of a run, with the evidence of `selector`.
    pub fn new(run_log: &RunLog, totals: &Totals, selector: &Selector, now: Timestamp) -> Self {
        let cost = |name: &str| {
            selector
                .fetcher_id(name)
                .and_then(|id| selector.fetcher(id))
                .map_or(1.0, |spec| spec.cost)
        };
        let fetchers = run_log.fetchers().into_iter().map(|(name, counts)| {
            let cost = cost(&name) * counts.attempts as f64;
            FetcherCost { name, counts, cost }
        });
        let of_class = |class| {
            selector.candidates().find(|(_, spec)| spec.class == class).map(|(_, spec)| spec)
        };
        let plain = of_class(Class::Plain).map(|spec| (&*spec.name, spec.cost));
        let browser = of_class(Class::Rendering).map(|spec| (&*spec.name, spec.cost));
        let rate = |host: &str, fetcher: &str| {
            let weights = selector.weights(("domain", host), ContentKind::Page, fetcher, now);
            (weights.total >= MIN_ATTEMPTS).then(|| weights.success / weights.total)
        };
        let alternative = |(name, cost): (&str, f64), helper: Option<&str>| {
            let (mut pages, mut known, mut links) = (0.0, 0.0, 0.0);
            for (host, totals) in &totals.hosts {
                let of = totals.links as f64;
                links += of;
                // A browser also gets what a plain request gets.
                let best = rate(host, name)
                    .into_iter()
                    .chain(helper.and_then(|helper| rate(host, helper)));
                if let Some(rate) = best.reduce(f64::max) {
                    known += of;
                    pages += of * rate;
                }
            }
            let known_share = if links > 0.0 { known / links } else { 0.0 };
            Alternative { name: name.to_owned(), pages, cost: cost * links, known_share }
        };
        let alternatives = plain.map(|plain| alternative(plain, None)).into_iter();
        let browser = browser.map(|browser| alternative(browser, plain.map(|(name, _)| name)));
        Self { fetchers: fetchers.collect(), alternatives: alternatives.chain(browser).collect() }
    }

    /// Returns the cost of all requests.
    pub fn total(&self) -> f64 {
        self.fetchers.iter().map(|of| of.cost).sum()
    }
}
