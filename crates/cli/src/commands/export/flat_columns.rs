//! The columns of CSV, Parquet and SQLite that analysts would otherwise have to compute.
//!
//! Must not know: any of the formats.

use std::collections::HashMap;

use uuid::Uuid;

use crate::setup::settings::Settings;
use crate::terminal::exit::Failure;
use fetchwise::attempt::Attempt;
use fetchwise::heuristic::url::{domain_of, parse, site_of};
use fetchwise::journal;
use fetchwise::registry::FetcherSpec;
use fetchwise::response::header;
use xxhash_rust::xxh3::xxh3_64;

/// The names of the columns, in order. They follow the fields of JSON.
pub(super) const NAMES: [&str; 5] = ["domain", "site", "cost", "bytes", "visit"];

/// The values of the columns for one attempt.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FlatColumns {
    /// The domain, without `www.`.
    pub(crate) domain: Option<String>,
    /// Its registrable domain.
    pub(crate) site: Option<String>,
    /// The cost of the request, in plain requests.
    pub(crate) cost: f64,
    /// The length of the body that the server announced.
    pub(crate) bytes: Option<u64>,
    /// The id of the first attempt of the same fetch of the link.
    pub(crate) visit: Uuid,
}

/// Computes the columns of attempts in the order of the log.
pub(super) struct Flattener {
    costs: HashMap<String, f64>,
    /// The first attempts of visits that have not delivered, by the hash of their link.
    open: HashMap<u64, Uuid>,
}

impl Flattener {
    /// Returns one with the configured costs, and those that the log knows.
    pub(super) fn new(settings: &Settings) -> Result<Self, Failure> {
        let selector = settings.empty_selector()?;
        let specs =
            settings.specs(&selector, &journal::survey(&settings.existing_dir()?)?.registered);
        let costs = specs.iter().map(|spec| (spec.name.to_string(), spec.cost)).collect();
        Ok(Self { costs, open: HashMap::new() })
    }

    /// Returns the columns of the next attempt.
    pub(super) fn next(&mut self, attempt: &Attempt) -> FlatColumns {
        let cost = match self.costs.get(&attempt.fetcher) {
            Some(cost) => *cost,
            None => {
                let cost = FetcherSpec::by_name(&attempt.fetcher).cost;
                self.costs.insert(attempt.fetcher.clone(), cost);
                cost
            }
        };
        let link = xxh3_64(attempt.link.as_bytes());
        let first = if attempt.try_no <= 1 { None } else { self.open.get(&link).copied() };
        let visit = first.unwrap_or(attempt.id);
        // A delivered page ends its visit, so that memory is needed for failed links only.
        match attempt.success {
            true => self.open.remove(&link),
            false => self.open.insert(link, visit),
        };
        let domain =
            attempt.heuristic("domain").map(str::to_owned).or_else(|| host_of(&attempt.url));
        FlatColumns {
            site: domain.as_deref().map(|domain| site_of(domain).to_owned()),
            domain,
            cost,
            bytes: header(&attempt.response_headers, "content-length")
                .and_then(|length| length.trim().parse().ok()),
            visit,
        }
    }
}

/// Returns the domain in a URL, for an import that names its heuristics.
fn host_of(url: &str) -> Option<String> {
    Some(domain_of(parse(url).ok()?.host_str()?).to_owned())
}
