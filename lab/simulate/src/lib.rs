//! The simulator: the real selector under a virtual clock, in generated worlds where every policy
//! meets the same random outcomes.
//!
//! A [`World`] is read from a file and generated once per seed. Each [`NamedPolicy`] then fetches
//! every URL of it, with the calls that a crawler makes. The counters are compared with an oracle
//! that knows all probabilities.
//!
//! Owns: [`world`] has the files, `generate` and `environment` the events in a world, `run` the
//! visits, `baseline` and `learning_baselines` the policies of others.
//!
//! Invariants: the same world, policies and seeds give the same numbers, to the last bit, on any
//! machine with the same floating point.
//!
//! ```no_run
//! use fetchwise_simulate::{NamedPolicy, SimulateOptions, World, simulate};
//!
//! let world = World::parse(fetchwise_simulate::SHIPPED[0].1, "W1").unwrap();
//! let policies = ["default", "ladder"].map(|name| NamedPolicy::by_name(name).unwrap());
//! for result in simulate(&world, &policies, &[9001], &SimulateOptions::default()).unwrap() {
//!     println!("{}: regret {:.2}", result.policy, result.regret);
//! }
//! ```

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::counters::Counters;
use crate::environment::Tool;
use fetchwise::selector::PortablePrior;
use generate::Web;
use run::RunContext;

pub use error::SimulateError;
#[cfg(feature = "fleet")]
pub use fleet::{
    Egress, FleetOptions, FleetReport, fleet_html, fleet_plots, fleet_table, simulate_fleet,
};
pub use pace::joint::world::JOINT_WORLDS;
pub use pace::{CRAWLERS, JointReport, JointWorld, joint_html, joint_table, simulate_joint};
pub use pace::{PACERS, PaceOptions, PaceReport, PaceWorld, pace_html, pace_table, simulate_pace};
pub use plots::DrawError;
pub use policies::{NAMES, NamedPolicy};
pub use report::{PolicyReport, ShiftReport, VendorBlockReport, baseline_wins, html, table};
pub use vendor::{Setting, Shift, Tags, Vendor};
pub use visit_driver::{Timing, drive};
pub use world::{MORE, PACE_WORLDS, SHIPPED, World};
pub use world_file::WorldError;

mod baseline;
mod counters;
mod environment;
mod error;
#[cfg(feature = "fleet")]
mod fleet;
mod generate;
mod learning_baselines;
mod oracle;
pub mod pace;
mod plots;
mod policies;
mod report;
mod rng;
mod run;
mod vendor;
mod vendor_change;
mod visit_driver;
mod visit_result;
pub mod world;
mod world_file;

/// Options of a run.
#[derive(Default)]
pub struct SimulateOptions<'p> {
    /// The number of threads; 0 for the number of cores.
    pub threads: usize,
    /// Whether to measure the duration of decisions. Such results differ from run to run.
    pub timing: bool,
    /// Called after each run with the number of completed runs and of all runs.
    pub progress: Option<&'p (dyn Fn(usize, usize) + Sync)>,
}

impl fmt::Debug for SimulateOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulateOptions")
            .field("threads", &self.threads)
            .field("timing", &self.timing)
            .finish_non_exhaustive()
    }
}

/// Runs every policy in `world` with every seed, and returns one report per policy, in their order.
///
/// The oracle always runs, because regret is measured against it. Cost: about a second per run of
/// 300,000 URLs; memory of one generated world per seed and of one selector per thread.
///
/// # Errors
/// [`SimulateError::NoSeeds`] without seeds.
pub fn simulate(
    world: &World,
    policies: &[NamedPolicy],
    seeds: &[u64],
    options: &SimulateOptions<'_>,
) -> Result<Vec<PolicyReport>, SimulateError> {
    if seeds.is_empty() {
        return Err(SimulateError::NoSeeds);
    }
    let oracle = NamedPolicy { name: "oracle".to_owned(), make: None };
    let runners: Vec<&NamedPolicy> = std::iter::once(&oracle)
        .chain(policies.iter().filter(|policy| policy.make.is_some()))
        .collect();
    let tallies = run_all(world, &runners, seeds, options)?;
    let (oracle, others) = tallies.split_at(seeds.len());
    let mut others = others.chunks(seeds.len());
    let reports = policies.iter().map(|policy| {
        let tallies =
            if policy.make.is_none() { oracle } else { others.next().unwrap_or_default() };
        PolicyReport::new(world, &policy.name, seeds, tallies, oracle)
    });
    Ok(reports.collect())
}

/// Crawls `world` with the default policy, and returns what that teaches of no single host: the
/// priors of [`NamedPolicy::warm`].
///
/// # Errors
/// [`SimulateError`] if the world's fetchers cannot be candidates.
pub fn learn_priors(world: &World, seed: u64) -> Result<Vec<PortablePrior>, SimulateError> {
    let (web, tools) = (Web::generate(world, seed), Tool::all(world));
    RunContext { world, web: &web, tools: &tools, seed, timing: false }.learn_priors()
}

/// Returns the counters of all runs: by runner, then by seed.
fn run_all(
    world: &World,
    runners: &[&NamedPolicy],
    seeds: &[u64],
    options: &SimulateOptions<'_>,
) -> Result<Vec<Counters>, SimulateError> {
    let tools = Tool::all(world);
    let webs: Vec<OnceLock<Web>> = seeds.iter().map(|_| OnceLock::new()).collect();
    let count = runners.len() * seeds.len();
    let results: Vec<Mutex<Option<Result<Counters, SimulateError>>>> =
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
            // Seed by seed, so that few webs exist before they are needed.
            let (seed, runner) = (job / runners.len(), job % runners.len());
            let web = webs[seed].get_or_init(|| Web::generate(world, seeds[seed]));
            let stage =
                RunContext { world, web, tools: &tools, seed: seeds[seed], timing: options.timing };
            let result = match &runners[runner].make {
                None => Ok(stage.run_oracle()),
                Some(make) => stage.run_policy(make()),
            };
            *results[runner * seeds.len() + seed].lock().unwrap_or_else(PoisonError::into_inner) =
                Some(result);
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
