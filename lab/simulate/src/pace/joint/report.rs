//! The results of a class, as JSON and as a table.

use crate::report::distinct;
use std::fmt::Write as _;

use serde::Serialize;

use super::crawl::{HostCounters, Minute};
use super::world::{JointClass, JointWorld};

/// The results of one crawler on one class of hosts, over all seeds. As JSON, one object.
#[derive(Clone, Debug, Serialize)]
pub struct JointReport {
    /// The world's name.
    pub world: String,
    /// The class's name.
    pub class: String,
    /// The crawler's name.
    pub crawler: String,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// Good pages per hour.
    pub pages_per_h: f64,
    /// Good pages as a share of those at the best constant pace, if each page goes to the fetcher
    /// that delivers it.
    pub share: f64,
    /// The same within the first ten minutes.
    pub early_share: f64,
    /// Page requests refused by the limiter, per thousand.
    pub blocked_per_1k: f64,
    /// Page requests that met a block unrelated to pace, per thousand.
    pub content_blocks_per_1k: f64,
    /// Closures of the limiter per hour.
    pub limit_hits_per_h: f64,
    /// Costs of requests, in plain ones, per good page.
    pub cost_per_page: f64,
    /// Rendered pages per good page.
    pub renders_per_page: f64,
    /// URLs that were given up, per thousand page requests.
    pub lost_per_1k: f64,
    /// The first host, minute by minute.
    #[serde(skip)]
    pub(super) minutes: Vec<Minute>,
}

impl JointReport {
    pub(super) fn new(
        world: &JointWorld,
        class: &JointClass,
        crawler: &str,
        seeds: &[u64],
        counts: &[HostCounters],
    ) -> Self {
        let hosts = counts.len().max(1) as f64;
        // Every host has the same weight, however many pages it delivered.
        let mean = |of: &dyn Fn(&HostCounters) -> f64| counts.iter().map(of).sum::<f64>() / hosts;
        let sum = |of: &dyn Fn(&HostCounters) -> f64| counts.iter().map(of).sum::<f64>();
        let (good, hours) =
            (sum(&|count| count.good as f64).max(1.0), sum(&|count| count.hours).max(1e-9));
        let a_thousand = |of: fn(&HostCounters) -> u64| {
            mean(&|count| 1000.0 * of(count) as f64 / count.pages.max(1) as f64)
        };
        Self {
            world: world.name.clone(),
            class: class.name.clone(),
            crawler: crawler.to_owned(),
            seeds: seeds.to_vec(),
            pages_per_h: mean(&|count| count.good as f64 / count.hours.max(1e-9)),
            share: mean(&|count| count.good as f64 / count.best.max(1e-9)),
            early_share: mean(&|count| count.early),
            blocked_per_1k: a_thousand(|count| count.blocked),
            content_blocks_per_1k: a_thousand(|count| count.content_blocked),
            limit_hits_per_h: sum(&|count| f64::from(count.trips)) / hours,
            cost_per_page: sum(&|count| count.cost) / good,
            renders_per_page: sum(&|count| count.rendered as f64) / good,
            lost_per_1k: a_thousand(|count| count.lost),
            minutes: counts.first().map(|count| count.minutes.clone()).unwrap_or_default(),
        }
    }
}

/// Returns the mean of a crawler over all classes.
pub(super) fn mean(
    reports: &[JointReport],
    world: &str,
    crawler: &str,
    of: impl Fn(&JointReport) -> f64,
) -> f64 {
    let found: Vec<f64> =
        reports.iter().filter(|r| r.world == world && r.crawler == crawler).map(of).collect();
    found.iter().sum::<f64>() / found.len().max(1) as f64
}

/// Returns aligned tables: for each world the means of each crawler, then each class.
pub fn joint_table(reports: &[JointReport]) -> String {
    const HEAD: [&str; 8] = [
        "share",
        "early",
        "blocked/k",
        "page blocks/k",
        "trips/h",
        "cost/page",
        "renders/page",
        "lost/k",
    ];
    let mut out = String::new();
    let row = |out: &mut String, name: &str, of: &dyn Fn(fn(&JointReport) -> f64) -> f64| {
        let _ = writeln!(
            out,
            "{name:14} {:>6.2} {:>6.2} {:>9.1} {:>8.1} {:>7.1} {:>9.1} {:>12.2} {:>6.1}",
            of(|r| r.share),
            of(|r| r.early_share),
            of(|r| r.blocked_per_1k),
            of(|r| r.content_blocks_per_1k),
            of(|r| r.limit_hits_per_h),
            of(|r| r.cost_per_page),
            of(|r| r.renders_per_page),
            of(|r| r.lost_per_1k),
        );
    };
    let head = |out: &mut String, name: &str| {
        let _ = writeln!(
            out,
            "{name:14} {:>6} {:>6} {:>9} {:>8} {:>7} {:>9} {:>12} {:>6}",
            HEAD[0], HEAD[1], HEAD[2], HEAD[3], HEAD[4], HEAD[5], HEAD[6], HEAD[7]
        );
    };
    for world in distinct(reports, |report| &*report.world) {
        let crawlers = distinct(reports, |report| &*report.crawler);
        head(&mut out, world);
        for crawler in &crawlers {
            row(&mut out, crawler, &|of| mean(reports, world, crawler, of));
        }
        for class in distinct(reports, |report| &*report.class) {
            let of_class: Vec<&JointReport> =
                reports.iter().filter(|r| r.world == world && r.class == class).collect();
            if of_class.is_empty() {
                continue;
            }
            out.push('\n');
            head(&mut out, class);
            for report in of_class {
                row(&mut out, &report.crawler, &|of| of(report));
            }
        }
        out.push('\n');
    }
    out
}
