//! Fleets: many nodes that crawl one world, independently, divided by site, or with shared
//! evidence.
//!
//! The nodes are real selectors, and what they share goes through the real codec and peer state of
//! `fetchwise-fleet`, under a virtual clock.
//!
//! Owns: `message_delay` the arrival of messages, `global_evidence` the snapshots of evidence that
//! belongs to no single site, `topology` the ways to crawl, `cluster_run` a run, `report` the
//! results, `html` the plots.
//!
//! Invariants: the same world, policy and seeds give the same numbers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::counters::Counters;
use crate::environment::Tool;
use crate::error::SimulateError;
use crate::generate::Web;
use crate::policies::NamedPolicy;
use crate::run::RunContext;
use crate::world::World;

mod cluster_run;
mod global_evidence;
mod html;
mod message_delay;
mod report;
mod topology;

pub use html::{fleet_html, fleet_plots};
pub use report::{FleetReport, fleet_table};
pub use topology::Egress;

use crate::fleet::cluster_run::Run;
use crate::fleet::global_evidence::SnapshotTraffic;
use crate::fleet::message_delay::Traffic;
use crate::fleet::topology::Topology;

/// Larger fleets also crawl in scope `own`.
const MAX_READ_ALL: usize = 100;

/// Options of a run.
#[derive(Default)]
pub struct FleetOptions<'p> {
    /// The numbers of nodes: each is run. A single node always runs.
    pub nodes: Vec<usize>,
    /// The maximum times until the others observe a recorded attempt: each is run.
    pub delays: Vec<Duration>,
    /// The addresses of their requests.
    pub egress: Egress,
    /// Whether smaller fleets also crawl in scope `own`: fleets of more than a hundred nodes always
    /// do.
    pub own: bool,
    /// The number of threads; 0 for the number of cores.
    pub threads: usize,
    /// Called after each run with the number of completed runs and of all runs.
    pub progress: Option<&'p (dyn Fn(usize, usize) + Sync)>,
}

impl std::fmt::Debug for FleetOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FleetOptions")
            .field("nodes", &self.nodes)
            .field("delays", &self.delays)
            .field("egress", &self.egress)
            .field("own", &self.own)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

/// Runs one node, and then each fleet, in `world` with every seed, and returns one report each.
///
/// Cost: a sharing fleet of N nodes observes every attempt N times, a microsecond or two each;
/// memory of N selectors per thread.
///
/// # Errors
/// [`SimulateError`] without seeds, or with the oracle, which learns nothing.
pub fn simulate_fleet(
    world: &World,
    policy: &NamedPolicy,
    seeds: &[u64],
    options: &FleetOptions<'_>,
) -> Result<Vec<FleetReport>, SimulateError> {
    if seeds.is_empty() {
        return Err(SimulateError::NoSeeds);
    }
    let Some(make) = &policy.make else { return Err(SimulateError::NoLearner) };
    let mut ways = vec![(1, Topology::Apart)];
    for count in options.nodes.iter().copied().filter(|count| *count > 1) {
        ways.extend([(count, Topology::Apart), (count, Topology::Sites)]);
        if options.own || count > MAX_READ_ALL {
            ways.push((count, Topology::Own));
        }
        ways.extend(options.delays.iter().map(|delay| (count, Topology::Sharing(*delay))));
    }
    let tools = Tool::all(world);
    let webs: Vec<OnceLock<Web>> = seeds.iter().map(|_| OnceLock::new()).collect();
    // The first job of each seed is the oracle.
    let jobs = ways.len() + 1;
    let run = |job: usize| {
        let (seed, job) = (job / jobs, job % jobs);
        let web = webs[seed].get_or_init(|| Web::generate(world, seeds[seed]));
        let stage = RunContext { world, web, tools: &tools, seed: seeds[seed], timing: false };
        match job.checked_sub(1).map(|way| ways[way]) {
            None => Ok(Run {
                tally: stage.run_oracle(),
                traffic: Traffic::default(),
                images: SnapshotTraffic::default(),
            }),
            Some((count, way)) => cluster_run::run(&stage, &**make, way, count, options.egress),
        }
    };
    let runs = run_all(jobs * seeds.len(), options, &run)?;
    let of = |job: usize| -> Vec<&Run> { runs.iter().skip(job).step_by(jobs).collect() };
    let oracle: Vec<Counters> = of(0).into_iter().map(|run| run.tally.clone()).collect();
    let mut reports: Vec<FleetReport> = Vec::new();
    for (index, (count, way)) in ways.iter().enumerate() {
        let report = FleetReport::new(
            world,
            policy.name(),
            seeds,
            (*count, *way, options.egress),
            &of(index + 1),
            &oracle,
        );
        let report = report.beside(reports.first());
        reports.push(report);
    }
    Ok(reports)
}

/// Returns the results of all jobs, in their order.
fn run_all(
    count: usize,
    options: &FleetOptions<'_>,
    run: &(dyn Fn(usize) -> Result<Run, SimulateError> + Sync),
) -> Result<Vec<Run>, SimulateError> {
    let results: Vec<Mutex<Option<Result<Run, SimulateError>>>> =
        (0..count).map(|_| Mutex::new(None)).collect();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        loop {
            // Relaxed: each number is given out once, and results are read after all threads have
            // ended.
            let job = next.fetch_add(1, Ordering::Relaxed);
            if job >= count {
                return;
            }
            *results[job].lock().unwrap_or_else(PoisonError::into_inner) = Some(run(job));
            if let Some(progress) = options.progress {
                progress(done.fetch_add(1, Ordering::Relaxed) + 1, count);
            }
        }
    };
    let threads = match options.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(count) {
            scope.spawn(work);
        }
        work();
    });
    results
        .into_iter()
        .filter_map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner))
        .collect()
}
