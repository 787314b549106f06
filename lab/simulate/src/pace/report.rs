//! The results of a class, as JSON and as a table.

use crate::report::distinct;
use std::fmt::Write as _;

use serde::Serialize;

use super::crawl::SiteCounters;
use super::world::{Class, PaceWorld};

/// The results of one pacer on one class of hosts, over all seeds. As JSON, one object.
#[derive(Clone, Debug, Serialize)]
pub struct PaceReport {
    /// The world's name.
    pub world: String,
    /// The class's name.
    pub class: String,
    /// The pacer's name.
    pub pacer: String,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// Whether the class counts in means.
    pub in_mean: bool,
    /// Good pages as a share of those of the best constant pace.
    pub share: f64,
    /// The same within the first ten minutes.
    pub early_share: f64,
    /// Requests refused by a limit, per thousand.
    pub blocked_per_1k: f64,
    /// Closures of the limiter per hour.
    pub limit_hits_per_h: f64,
    /// Minutes until a minute reached four fifths of the best pace; all of them if none did.
    pub converged_min: f64,
    /// The share of the time in which a sequential server was busy; null for others.
    pub busy: Option<f64>,
    /// The mean latency of good pages, as a multiple of the quiet host's.
    pub slower: f64,
    /// Good URLs that were given up, per thousand requests.
    pub lost_per_1k: f64,
    /// Good pages, those of the best pace, and blocks per second, by minute, of the first host.
    #[serde(skip)]
    pub(super) minutes: Vec<[f32; 3]>,
}

impl PaceReport {
    pub(super) fn new(
        world: &PaceWorld,
        class: &Class,
        pacer: &str,
        seeds: &[u64],
        counts: &[SiteCounters],
    ) -> Self {
        let hosts = counts.len().max(1) as f64;
        // Every host has the same weight, however many pages it delivered.
        let mean = |of: &dyn Fn(&SiteCounters) -> f64| counts.iter().map(of).sum::<f64>() / hosts;
        let sum = |of: &dyn Fn(&SiteCounters) -> u64| counts.iter().map(of).sum::<u64>() as f64;
        let busy = mean(&|count| count.busy);
        Self {
            world: world.name.clone(),
            class: class.name.clone(),
            pacer: pacer.to_owned(),
            seeds: seeds.to_vec(),
            in_mean: class.in_mean,
            share: mean(&|count| count.good as f64 / count.best.max(1e-9)),
            early_share: mean(&|count| count.early),
            blocked_per_1k: mean(&|count| {
                1000.0 * count.blocked as f64 / count.requests.max(1) as f64
            }),
            limit_hits_per_h: counts.iter().map(|count| f64::from(count.trips)).sum::<f64>()
                / counts.iter().map(|count| count.hours).sum::<f64>().max(1e-9),
            converged_min: mean(&|count| count.converged_min),
            busy: (busy > 0.0).then_some(busy),
            slower: mean(&|count| count.slower),
            lost_per_1k: 1000.0 * sum(&|count| count.lost) / sum(&|count| count.requests).max(1.0),
            minutes: counts.first().map(|count| count.minutes.clone()).unwrap_or_default(),
        }
    }
}

/// Returns the mean over the classes that count, for one pacer.
pub(super) fn mean(
    reports: &[PaceReport],
    world: &str,
    pacer: &str,
    of: impl Fn(&PaceReport) -> f64,
) -> f64 {
    let found: Vec<f64> = reports
        .iter()
        .filter(|r| r.world == world && r.pacer == pacer && r.in_mean)
        .map(of)
        .collect();
    found.iter().sum::<f64>() / found.len().max(1) as f64
}

/// Returns aligned tables: for each world the means of each pacer, then the share and the blocks of
/// each class.
pub fn pace_table(reports: &[PaceReport]) -> String {
    let mut out = String::new();
    for world in distinct(reports, |report| &*report.world) {
        let pacers = distinct(reports, |report| &*report.pacer);
        let _ = writeln!(
            out,
            "{world}: pages as a share of the best constant pace, refused requests per thousand, closures of the limiter per \
             hour,\nminutes to 80 % of the best pace, latency as a multiple of the quiet host's, share of the first ten \
             minutes\n{:14} {:>6} {:>9} {:>8} {:>10} {:>8} {:>8}",
            "pacer", "share", "blocked/k", "trips/h", "converged", "slower", "early"
        );
        for pacer in &pacers {
            let mean = |of: &dyn Fn(&PaceReport) -> f64| mean(reports, world, pacer, of);
            let _ = writeln!(
                out,
                "{pacer:14} {:>6.2} {:>9.1} {:>8.1} {:>10.0} {:>8.2} {:>8.2}",
                mean(&|r| r.share),
                mean(&|r| r.blocked_per_1k),
                mean(&|r| r.limit_hits_per_h),
                mean(&|r| r.converged_min),
                mean(&|r| r.slower),
                mean(&|r| r.early_share),
            );
        }
        let _ = write!(out, "\n{:14}", "by class");
        for pacer in &pacers {
            let _ = write!(out, " {pacer:>18}");
        }
        out.push('\n');
        for class in distinct(reports, |report| &*report.class) {
            let of = |pacer: &str| {
                reports.iter().find(|r| r.world == world && r.class == class && r.pacer == pacer)
            };
            if !pacers.iter().any(|pacer| of(pacer).is_some()) {
                continue;
            }
            let _ = write!(out, "{class:14}");
            for pacer in &pacers {
                let cell = of(pacer).map_or("-".to_owned(), |r| {
                    format!("{:.2} {:>6.1}{:>5.1}", r.share, r.blocked_per_1k, r.limit_hits_per_h)
                });
                let _ = write!(out, " {cell:>18}");
            }
            let _ = match of(pacers[0]).and_then(|report| report.busy) {
                Some(busy) => writeln!(out, "  busy {:.0} %", 100.0 * busy),
                None => writeln!(out),
            };
        }
        out.push('\n');
    }
    out
}
