//! A comparison of pacers: the real [`Pace`](fetchwise::pace::Pace) and those of other crawlers, on
//! hosts with limits.
//!
//! A [`PaceWorld`] describes kinds of hosts. Each host draws its numbers from a seed, and each
//! pacer crawls it alone, under a virtual clock. The same try of the same URL has the same random
//! outcome.
//!
//! Owns: `world` the files, `server` the limiters, `crawl` the events, `baseline` the pacers of
//! others, `report` the results.
//!
//! Invariants: the same world, pacers and seeds give the same bytes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use fetchwise::Selector;
use fetchwise::pace::PaceSettings;
use fetchwise::registry::{FetcherId, FetcherSpec};

use super::error::SimulateError;
use crate::rng::Stream;

mod baseline;
mod crawl;
mod html;
pub mod joint;
mod pacer;
mod report;
mod server;
pub mod world;

pub use html::pace_html;
pub use joint::{CRAWLERS, JointReport, JointWorld, joint_html, joint_table, simulate_joint};
pub use report::{PaceReport, pace_table};
pub use world::PaceWorld;

use crate::pace::pacer::{Learned, Pacer};
use baseline::{Baseline, PacingMethod};
use crawl::{Crawl, SiteCounters};
use server::Server;
use world::Class;

/// The names of the pacers, in the order of tables.
pub const PACERS: [&str; 14] = [
    "pace",
    "pace20",
    "cubic",
    "aimd",
    "none",
    "gradient2",
    "crawlee",
    "autothrottle4",
    "autothrottle1",
    "three_links",
    "one_a_second",
    "storm",
    "heritrix",
    "nutch",
];

/// Options of a run.
#[derive(Default)]
pub struct PaceOptions<'p> {
    /// The number of threads; 0 for the number of cores.
    pub threads: usize,
    /// Called after each class with the number of completed classes and of all classes.
    pub progress: Option<&'p (dyn Fn(usize, usize) + Sync)>,
}

impl std::fmt::Debug for PaceOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PaceOptions").field("threads", &self.threads).finish_non_exhaustive()
    }
}

/// Runs all `pacers` in `world` with every seed, and returns one report for each class and pacer.
///
/// # Errors
/// [`SimulateError`] when a name is unknown or there are no seeds.
pub fn simulate_pace(
    world: &PaceWorld,
    pacers: &[&str],
    seeds: &[u64],
    options: &PaceOptions<'_>,
) -> Result<Vec<PaceReport>, SimulateError> {
    if seeds.is_empty() {
        return Err(SimulateError::NoSeeds);
    }
    if let Some(unknown) = pacers.iter().find(|name| !PACERS.contains(name)) {
        return Err(SimulateError::UnknownPolicy { name: (*unknown).to_owned(), known: &PACERS });
    }
    let selector = Selector::builder().fetcher(FetcherSpec::plain("direct_access")).build()?;
    let fetcher = selector.candidates().next().map(|(id, _)| id);
    let jobs: Vec<(&Class, &str)> = world
        .classes
        .iter()
        .flat_map(|class| pacers.iter().map(move |name| (class, *name)))
        .collect();
    let results: Vec<Mutex<Option<PaceReport>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        loop {
            // Relaxed: each number is given out once, and results are read after all threads have
            // ended.
            let job = next.fetch_add(1, Ordering::Relaxed);
            let (Some((class, name)), Some(fetcher)) = (jobs.get(job), fetcher) else { return };
            let counts: Vec<SiteCounters> = seeds
                .iter()
                .flat_map(|seed| crawl_class(world, class, name, *seed, fetcher))
                .collect();
            let report = PaceReport::new(world, class, name, seeds, &counts);
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
    Ok(results
        .into_iter()
        .filter_map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner))
        .collect())
}

/// Crawls all hosts of a class.
fn crawl_class(
    world: &PaceWorld,
    class: &Class,
    name: &str,
    seed: u64,
    fetcher: FetcherId,
) -> Vec<SiteCounters> {
    let (urls, hours) = (class.urls.unwrap_or(world.urls), class.hours.unwrap_or(world.hours));
    let world = &PaceWorld { urls, hours, ..world.clone() };
    let crawls = world.hosts.div_ceil(class.hosts_a_crawl);
    let sites = (0..crawls as u64).flat_map(|number| {
        let own = xxhash_rust::xxh3::xxh3_64_with_seed(class.name.as_bytes(), seed ^ number << 32);
        let servers = 0..class.hosts_a_crawl as u64;
        let mut servers: Vec<Server> = servers
            .map(|server| Server::new(world, class, &mut Stream::new(own, server << 48)))
            .collect();
        let mut pacer = pacer(name, world, class, fetcher);
        let hosts = class.hosts_a_site.max(class.hosts_a_crawl);
        Crawl::new(world, &mut servers, class.busy, &mut *pacer, hosts, own).run()
    });
    sites.collect()
}

fn pacer(name: &str, world: &PaceWorld, class: &Class, fetcher: FetcherId) -> Box<dyn Pacer> {
    let hosts = class.hosts_a_site.max(class.hosts_a_crawl);
    let way = match name {
        "pace" | "pace20" => {
            let default = PaceSettings::default();
            let max_rate = if name == "pace" { f64::INFINITY } else { default.max_rate };
            let settings = PaceSettings { max_rate, max_parallel: world.parallel, ..default };
            return Box::new(Learned::new(settings, hosts, class.hosts_a_crawl == 1, fetcher));
        }
        "cubic" => PacingMethod::Cubic,
        "aimd" => PacingMethod::Aimd,
        "gradient2" => PacingMethod::Gradient2,
        "crawlee" => PacingMethod::Crawlee,
        "autothrottle4" => PacingMethod::AutoThrottle(4.0),
        "autothrottle1" => PacingMethod::AutoThrottle(1.0),
        "three_links" => PacingMethod::ThreeLinks,
        "one_a_second" => PacingMethod::Every(1.0),
        "storm" => PacingMethod::Storm,
        "heritrix" => PacingMethod::Heritrix,
        "nutch" => PacingMethod::Every(5.0),
        _ => PacingMethod::None,
    };
    Box::new(Baseline::new(way, hosts, world.parallel))
}
