//! `fleet status --outliers`: nodes whose attempts disagree with those of all others.
//!
//! Owns: which attempts are compared. The crate `fetchwise-fleet` compares them.

use std::path::Path;
use std::time::Duration;

use fetchwise_fleet::model::outliers::{OutlierDetector, OutlierReport, RateDifference};
use fetchwise_fleet::{FleetStatus, NodeId, peer_store};
use serde::Serialize;

use super::join::fleet_failure;
use crate::setup::log_scan;
use crate::setup::settings::Settings;
use crate::terminal::exit::Failure;
use crate::terminal::output::{Output, plain};

/// The age limit of compared attempts: older ones say more about sites than about nodes.
const MAX_AGE: Duration = Duration::from_secs(7 * 86_400);

#[derive(Serialize)]
pub(super) struct ComparedJson<'a> {
    /// The number of nodes with attempts to compare.
    compared_nodes: usize,
    shared_sites: usize,
    outliers: Vec<OutlierJson<'a>>,
}

#[derive(Serialize)]
struct OutlierJson<'a> {
    node: String,
    sigma: f64,
    sites: usize,
    differences: Vec<DifferenceJson<'a>>,
}

#[derive(Serialize)]
struct DifferenceJson<'a> {
    domain: &'a str,
    fetcher: &'a str,
    attempts: u64,
    success_rate: f64,
    others_attempts: u64,
    others_success_rate: f64,
}

/// Compares the single attempts of the last week in the directory: the node's own and those of
/// peers.
pub(super) fn compare(
    dir: &Path,
    status: &FleetStatus,
    settings: &Settings,
) -> Result<OutlierReport, Failure> {
    let own: NodeId = status.node.parse().map_err(Failure::failed)?;
    let now = settings.clock.now();
    let mut compare = OutlierDetector::default();
    log_scan::attempts(dir, |attempt| {
        let domain = attempt
            .heuristic("domain")
            .filter(|_| attempt.weight > 0.0 && now.since(attempt.attempted_at) <= MAX_AGE);
        if let Some(domain) = domain {
            compare.observe(own, domain, &attempt.fetcher, attempt.success);
        }
    })?;
    let told = peer_store::scan_attempts(dir, None, |node_id, fact| {
        if let Some(domain) = fact.domain().filter(|_| now.since(fact.at) <= MAX_AGE) {
            compare.observe(node_id, domain, fact.fetcher, fact.success);
        }
    });
    told.map_err(fleet_failure)?;
    Ok(compare.compare())
}

pub(super) fn json(compared: &OutlierReport) -> ComparedJson<'_> {
    let difference = |of| {
        let RateDifference {
            domain,
            fetcher,
            attempts,
            success_rate,
            others_attempts,
            others_success_rate,
            ..
        }: &RateDifference = of;
        DifferenceJson {
            domain,
            fetcher,
            attempts: *attempts,
            success_rate: *success_rate,
            others_attempts: *others_attempts,
            others_success_rate: *others_success_rate,
        }
    };
    let outliers = compared.outliers.iter().map(|outlier| OutlierJson {
        node: outlier.node_id.to_string(),
        sigma: outlier.sigma,
        sites: outlier.sites,
        differences: outlier.differences.iter().map(difference).collect(),
    });
    ComparedJson {
        compared_nodes: compared.nodes,
        shared_sites: compared.shared_sites,
        outliers: outliers.collect(),
    }
}

pub(super) fn show(compared: &OutlierReport, out: &mut Output) -> Result<(), Failure> {
    if compared.nodes < 3 {
        out.line(format_args!(
            "{} nodes have attempts of the last week here: a comparison needs three",
            compared.nodes
        ))?;
        return Ok(());
    }
    if compared.outliers.is_empty() {
        out.line(format_args!(
            "{} nodes agree on the {} sites that they share",
            compared.nodes, compared.shared_sites
        ))?;
    }
    for outlier in &compared.outliers {
        out.line(format_args!(
            "outlier: {} differs from the others by {:.1} sigma on {} sites; `fetchwise fleet exclude {0}` removes \
             its evidence",
            outlier.node_id, outlier.sigma, outlier.sites
        ))?;
        for of in &outlier.differences {
            out.line(format_args!(
                "  {} by {}: {:.0} % of {} attempts delivered; of the others' {} attempts {:.0} %",
                plain(&of.domain),
                plain(&of.fetcher),
                100.0 * of.success_rate,
                of.attempts,
                of.others_attempts,
                100.0 * of.others_success_rate
            ))?;
        }
    }
    Ok(())
}
