//! Choosing and pacing together: hosts whose limits depend on the fetcher, crawled by real visits.
//!
//! A [`JointWorld`] describes kinds of hosts. Each crawler crawls each of them alone, under a
//! virtual clock. The same try of the same URL by the same fetcher has the same random outcome.
//!
//! Owns: `world` the files, `site` the reaction of a host to each fetcher, `crawl` the events,
//! `fetchwise_crawler` the project's crawler, `baselines` those of others, `report` the results.
//!
//! Invariants: the same world, crawlers and seeds give the same bytes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::PaceOptions;
use crate::error::SimulateError;

mod baselines;
mod crawl;
mod fetchwise_crawler;
mod html;
mod report;
mod site;
pub mod world;

pub use html::joint_html;
pub use report::{JointReport, joint_table};
pub use world::JointWorld;

use crate::pace::joint::baselines::{FetcherChoice, FixedCrawler, Pacing};
use crate::pace::joint::fetchwise_crawler::FetchwiseCrawler;
use crawl::{Crawl, Crawler, HostCounters};
use site::Site;
use world::JointClass;

/// The names of the crawlers, in the order of tables.
pub const CRAWLERS: [&str; 8] = [
    "fetchwise",
    "unpaced",
    "oracle",
    "aimd",
    "direct_1s",
    "browser_1s",
    "direct_best",
    "browser_best",
];

/// The shares of the theoretical best constant pace that are tried; the most successful one counts
/// as the best.
const NEARLY: [f64; 5] = [0.98, 0.9, 0.8, 0.7, 0.55];

/// Runs all `crawlers` in `world` with every seed, and returns one report for each class and
/// crawler.
///
/// # Errors
/// [`SimulateError`] when a name is unknown, there are no seeds, or no selector can be built.
pub fn simulate_joint(
    world: &JointWorld,
    crawlers: &[&str],
    seeds: &[u64],
    options: &PaceOptions<'_>,
) -> Result<Vec<JointReport>, SimulateError> {
    if seeds.is_empty() {
        return Err(SimulateError::NoSeeds);
    }
    if let Some(unknown) = crawlers.iter().find(|name| !CRAWLERS.contains(name)) {
        return Err(SimulateError::UnknownPolicy { name: (*unknown).to_owned(), known: &CRAWLERS });
    }
    let jobs: Vec<(&JointClass, &str)> = world
        .classes
        .iter()
        .flat_map(|class| crawlers.iter().map(move |name| (class, *name)))
        .collect();
    let results: Vec<Mutex<Option<Result<JointReport, SimulateError>>>> =
        jobs.iter().map(|_| Mutex::new(None)).collect();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        loop {
            // Relaxed: each number is given out once, and results are read after all threads have
            // ended.
            let job = next.fetch_add(1, Ordering::Relaxed);
            let Some((class, name)) = jobs.get(job) else { return };
            let counts: Result<Vec<HostCounters>, _> = seeds
                .iter()
                .flat_map(|seed| {
                    (0..world.hosts).map(|host| crawl(world, class, name, *seed, host))
                })
                .collect();
            let report = counts.map(|counts| JointReport::new(world, class, name, seeds, &counts));
            *results[job].lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
            if let Some(progress) = options.progress {
                progress(done.fetch_add(1, Ordering::Relaxed) + 1, jobs.len());
            }
        }
    };
    let threads = match options.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(jobs.len()) {
            scope.spawn(work);
        }
        work();
    });
    results
        .into_iter()
        .filter_map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner))
        .collect()
}

/// A constructor of a crawler for a site.
type Make<'m> = &'m dyn Fn(&Site) -> Result<Box<dyn Crawler>, SimulateError>;

/// Crawls one host of a class.
fn crawl(
    world: &JointWorld,
    class: &JointClass,
    name: &str,
    seed: u64,
    host: usize,
) -> Result<HostCounters, SimulateError> {
    let own =
        xxhash_rust::xxh3::xxh3_64_with_seed(class.name.as_bytes(), seed ^ (host as u64) << 32);
    let run = |make: Make<'_>| {
        let mut site = Site::new(world, &world.limits(), class, own);
        let mut crawler = make(&site)?;
        Ok(Crawl::new(world, &mut site, &mut *crawler).run())
    };
    match name {
        "fetchwise" | "unpaced" => {
            run(&|_| Ok(Box::new(FetchwiseCrawler::new(world, name == "fetchwise")?)))
        }
        "oracle" | "direct_best" | "browser_best" => {
            // The best is found by trying: pages are uneven, so it is a little below the
            // theoretical mean.
            let mut best: Option<HostCounters> = None;
            for nearly in NEARLY {
                let count = run(&|site| Ok(known(name, world, site, nearly)))?;
                if best.as_ref().is_none_or(|best| count.good > best.good) {
                    best = Some(count);
                }
            }
            Ok(best.unwrap_or_default())
        }
        _ => run(&|site| Ok(unlearned(name, world, site))),
    }
}

/// Returns the crawler that knows the host beforehand.
fn known(name: &str, world: &JointWorld, site: &Site, nearly: f64) -> Box<dyn Crawler> {
    let best = site.best(0);
    let (first, second) = match name {
        "direct_best" => (0, 0),
        "browser_best" => (browser(site), browser(site)),
        // If one fetcher delivers everything, the second is the best one at the end.
        _ if best.first == best.second => {
            (best.first, site.best((world.hours * 3.6e6) as i64).second)
        }
        _ => (best.first, best.second),
    };
    let gap = 1000.0 / (nearly * site.server.best(0)).max(1e-3);
    let gap = Pacing::Known { gap, truth: site.truth.clone(), first, second };
    Box::new(FixedCrawler::new(
        FetcherChoice::Always(first),
        site.truth.ways.len(),
        gap,
        world.urls,
    ))
}

/// Returns a crawler that learns little or nothing.
fn unlearned(name: &str, world: &JointWorld, site: &Site) -> Box<dyn Crawler> {
    let (choice, gap) = match name {
        "direct_1s" => (FetcherChoice::Always(0), Pacing::Constant(1000.0)),
        "browser_1s" => (FetcherChoice::Always(browser(site)), Pacing::Constant(1000.0)),
        _ => (FetcherChoice::Ladder(0), FixedCrawler::aimd(world.parallel)),
    };
    Box::new(FixedCrawler::new(choice, site.truth.ways.len(), gap, world.urls))
}

/// Returns the index of the first fetcher that renders.
fn browser(site: &Site) -> usize {
    site.truth.ways.iter().position(|way| way.renders).unwrap_or(0)
}
