//! The simulator: the real selector under a virtual clock, in invented worlds where every policy meets the same luck.
//!
//! A [`World`] is read from a file and generated once a seed; each [`Contestant`] then fetches every URL of it, through the
//! calls that a crawler makes. What is counted is compared with an oracle that knows all chances. [`world`] owns the files,
//! `generate` and `web` what happens in a world, `run` the driving, `baseline` and `memory` the policies of others.
//!
//! Same world, policies and seeds: same numbers, to the last bit, on any machine with the same floating point.
//!
//! ```no_run
//! use fetchwise_simulate::{Contestant, SimulateOptions, World, simulate};
//!
//! let world = World::parse(fetchwise_simulate::SHIPPED[0].1, "W1").unwrap();
//! let contestants = ["default", "ladder"].map(|name| Contestant::by_name(name).unwrap());
//! for result in simulate(&world, &contestants, &[9001], &SimulateOptions::default()).unwrap() {
//!     println!("{}: regret {:.2}", result.policy, result.regret);
//! }
//! ```

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use fetchwise::policy::{self, Policy};
use fetchwise::registry::Class;
use generate::Web;
use run::Stage;
use tally::Tally;
use web::Tool;

pub use drive::{Timing, drive};
pub use report::{DrawError, PolicyReport, baseline_wins, html, table};
pub use world::{MORE, SHIPPED, World, WorldError};

mod baseline;
mod chance;
mod drive;
mod generate;
mod memory;
mod oracle;
mod report;
mod run;
mod tally;
mod web;
pub mod world;

/// Why a simulation cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulateError {
    /// Nobody has this name.
    #[error("no policy called {name:?}; there are: {}", NAMES.join(", "))]
    UnknownPolicy {
        /// The name.
        name: String,
    },
    /// There is nothing to run.
    #[error("no seeds to run")]
    NoSeeds,
    /// The selector cannot be built.
    #[error(transparent)]
    Selector(#[from] fetchwise::Error),
}

/// The policies that can be run by name.
pub const NAMES: [&str; 15] = [
    "default",
    "index",
    "confident",
    "published",
    "oracle",
    "always_direct",
    "always_browser",
    "ladder",
    "hinted_ladder",
    "hinted_breaker",
    "smart",
    "crawlee",
    "tier_tracker",
    "webpeel",
    "one_probe",
];

/// Who takes part: a policy, made anew for each seed.
pub struct Contestant {
    name: String,
    /// None for the oracle.
    make: Option<Box<dyn Fn() -> Player + Send + Sync>>,
}

/// Whether a URL goes on to the browser.
type Compares = Box<dyn Fn(&str) -> bool>;

/// A policy as a run drives it.
pub(crate) struct Player {
    pub(crate) policy: Box<dyn Policy>,
    /// Whether a URL that brought content goes to the browser too, to compare.
    pub(crate) compares: Option<Compares>,
}

impl Contestant {
    /// The shipped policy, the baseline, or the oracle called `name`.
    ///
    /// # Errors
    /// [`SimulateError::UnknownPolicy`] lists the names there are.
    pub fn by_name(name: &str) -> Result<Self, SimulateError> {
        let always = |name, class| baseline::Always { name, class };
        let ladder = |name, hints, breaker| baseline::Ladder { name, hints, breaker };
        Ok(match name {
            "oracle" => Self { name: name.to_owned(), make: None },
            "always_direct" => Self::new(name, move || Box::new(always("always_direct", Class::Plain))),
            "always_browser" => Self::new(name, move || Box::new(always("always_browser", Class::Rendering))),
            "ladder" => Self::new(name, move || Box::new(ladder("ladder", false, false))),
            "hinted_ladder" => Self::new(name, move || Box::new(ladder("hinted_ladder", true, false))),
            "hinted_breaker" => Self::new(name, move || Box::new(ladder("hinted_breaker", true, true))),
            "smart" => Self::new(name, || Box::new(baseline::Smart)),
            "tier_tracker" => Self::new(name, || Box::new(memory::TierTracker::default())),
            "webpeel" => Self::new(name, || Box::new(memory::WebPeel::default())),
            "one_probe" => Self::new(name, || Box::new(memory::OneProbe::default())),
            "crawlee" => Self { name: name.to_owned(), make: Some(Box::new(crawlee)) },
            _ => {
                let unknown = || SimulateError::UnknownPolicy { name: name.to_owned() };
                policy::by_name(name).ok_or_else(unknown)?;
                let owned = name.to_owned();
                Self::new(name, move || policy::by_name(&owned).unwrap_or_else(|| Box::new(policy::Default)))
            }
        })
    }

    /// A policy of one's own; `make` is called once a seed.
    pub fn new(name: &str, make: impl Fn() -> Box<dyn Policy> + Send + Sync + 'static) -> Self {
        let player = move || Player { policy: make(), compares: None };
        Self { name: name.to_owned(), make: Some(Box::new(player)) }
    }

    /// What it is called in results.
    pub fn name(&self) -> &str {
        &self.name
    }
}

fn crawlee() -> Player {
    let crawlee = Arc::new(memory::Crawlee::default());
    let asked = Arc::clone(&crawlee);
    Player { policy: Box::new(crawlee), compares: Some(Box::new(move |url| asked.compares(url))) }
}

/// How to run.
#[derive(Default)]
pub struct SimulateOptions<'p> {
    /// Threads; 0 for as many as the machine has.
    pub threads: usize,
    /// Measure how long decisions take. Such results differ from run to run.
    pub timing: bool,
    /// Called after each run with how many are done, and of how many.
    pub progress: Option<&'p (dyn Fn(usize, usize) + Sync)>,
}

/// Runs every contestant in `world` with every seed; one report each, in their order.
///
/// The oracle always runs, since regret is measured against it. Cost: a second or so a run of 300,000 URLs; memory of one
/// generated world a seed and of one selector a thread.
///
/// # Errors
/// [`SimulateError::NoSeeds`] without seeds.
pub fn simulate(
    world: &World,
    contestants: &[Contestant],
    seeds: &[u64],
    options: &SimulateOptions<'_>,
) -> Result<Vec<PolicyReport>, SimulateError> {
    if seeds.is_empty() {
        return Err(SimulateError::NoSeeds);
    }
    let oracle = Contestant { name: "oracle".to_owned(), make: None };
    let runners: Vec<&Contestant> =
        std::iter::once(&oracle).chain(contestants.iter().filter(|contestant| contestant.make.is_some())).collect();
    let tallies = run_all(world, &runners, seeds, options)?;
    let (oracle, others) = tallies.split_at(seeds.len());
    let mut others = others.chunks(seeds.len());
    let reports = contestants.iter().map(|contestant| {
        let tallies = if contestant.make.is_none() { oracle } else { others.next().unwrap_or_default() };
        PolicyReport::new(world, &contestant.name, seeds, tallies, oracle)
    });
    Ok(reports.collect())
}

/// The tallies of all runs: by runner, then by seed.
fn run_all(
    world: &World,
    runners: &[&Contestant],
    seeds: &[u64],
    options: &SimulateOptions<'_>,
) -> Result<Vec<Tally>, SimulateError> {
    let tools = Tool::all(world);
    let webs: Vec<OnceLock<Web>> = seeds.iter().map(|_| OnceLock::new()).collect();
    let count = runners.len() * seeds.len();
    let results: Vec<Mutex<Option<Result<Tally, SimulateError>>>> = (0..count).map(|_| Mutex::new(None)).collect();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        loop {
            // Relaxed: each number is handed out once, and results are read after all threads have ended.
            let job = next.fetch_add(1, Ordering::Relaxed);
            if job >= count {
                return;
            }
            // Seed by seed, so that few webs are generated before they are needed.
            let (seed, runner) = (job / runners.len(), job % runners.len());
            let web = webs[seed].get_or_init(|| Web::generate(world, seeds[seed]));
            let stage = Stage { world, web, tools: &tools, seed: seeds[seed], timing: options.timing };
            let result = match &runners[runner].make {
                None => Ok(stage.run_oracle()),
                Some(make) => stage.run_policy(make()),
            };
            *results[runner * seeds.len() + seed].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
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
    results.into_iter().filter_map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}
