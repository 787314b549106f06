//! `simulate`: policies in synthetic worlds.
//!
//! Invariants: reads no settings, no log and no clock; the same arguments print the same bytes.

use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use fetchwise_simulate::{
    CRAWLERS, JOINT_WORLDS, JointReport, JointWorld, MORE, NAMES, NamedPolicy, PACE_WORLDS, PACERS, PaceOptions,
    PaceReport, PaceWorld, PolicyReport, SHIPPED, SimulateOptions, World, WorldError, html, joint_html, joint_table,
    pace_html, pace_table, simulate, simulate_joint, simulate_pace, table,
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Output, note};

/// Compare policies in synthetic worlds, with a virtual clock and no network
///
/// Every policy fetches every URL of the world through the calls of a real crawler, with the same random numbers.
/// Regret is the value lost per URL compared with an oracle that knows all probabilities. The same worlds, policies and
/// seeds print the same bytes.
#[derive(Debug, Args)]
#[command(
    after_help = "Policies: default, untagged, index, confident, published, oracle, always_direct, always_browser, \
    ladder, hinted_ladder,\n\
    hinted_breaker, smart, crawlee, tier_tracker, webpeel, one_probe; or all.\n\n\
    Built-in worlds: W1 to W7, newsroom, flaky, restless, scripted, sparse, thrifty, still, captcha-flip, app-drift;\n\
    with vendors: V1 to V4, N1, strict, motley, fickle.\n\n\
    Worlds of rate limits: pace, pace-8h, pace-again, pace-held-out, pace-others. Pacers there: pace, pace20 (with \
    the default\n\
    max_rate), cubic, aimd, none, gradient2, crawlee, autothrottle4, autothrottle1, three_links, one_a_second, storm, \
    heritrix, nutch; or all.\n\n\
    Worlds of fetcher choice and pace, on hosts whose limits depend on the client: joint-1, joint-2. Crawlers there: \
    fetchwise, unpaced,\n\
    oracle, aimd, direct_1s, browser_1s, direct_best, browser_best; or all.\n\n\
    Examples:\n  \
    fetchwise simulate --world W1 --policy default,hinted_breaker --seeds 9001..9005\n  \
    fetchwise simulate --world W1,W4,my-world.toml --policy all --html report.html\n  \
    fetchwise simulate --world pace --policy pace,aimd --html paces.html\n  \
    fetchwise simulate --world joint-1 --policy all --seeds 1 --html joint.html\n  \
    fetchwise simulate --world W1 --fleet 10 --delay 2s,1m\n  \
    fetchwise simulate --show-world W1 > my-world.toml"
)]
pub(crate) struct SimulateArgs {
    /// Use these world files or built-in worlds; repeatable [default: W1 to W7]
    #[arg(long, value_name = "FILE.toml", value_delimiter = ',')]
    pub(crate) world: Vec<PathBuf>,
    /// Compare these policies; repeatable
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "default")]
    pub(crate) policy: Vec<String>,
    /// Use one seed, or the first and the last of several
    #[arg(long, value_name = "A..B", default_value = "9001..9003", value_parser = parse_seeds)]
    pub(crate) seeds: SeedRange,
    /// Write a page with plots too
    #[arg(long, value_name = "FILE.html")]
    pub(crate) html: Option<PathBuf>,
    /// Measure the time of decisions; such results differ from run to run
    #[arg(long)]
    pub(crate) timing: bool,
    /// Use N threads [default: one per processor]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) threads: usize,
    /// Compare one node with fleets of N nodes: separate, divided by site, and learning together
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(2..=10_000))]
    pub(crate) fleet: Vec<u64>,
    /// Set the longest delay of messages between nodes; repeatable [default: 2s]
    #[arg(long, value_name = "TIME", value_delimiter = ',', value_parser = humantime::parse_duration, requires = "fleet")]
    pub(crate) delay: Vec<Duration>,
    /// Give the nodes one IP address together, so that a ban applies to all, or one each
    #[arg(long, value_name = "WHICH", value_parser = ["one", "each"], default_value = "one", requires = "fleet")]
    pub(crate) egress: String,
    /// Run fleets in scope own too: each site has one node, and nodes exchange evidence that belongs to no site
    ///
    /// Fleets of more than 100 nodes always run in it.
    #[arg(long, value_name = "SCOPE", value_parser = ["all", "own"], default_value = "all", requires = "fleet")]
    pub(crate) scope: String,
    /// Write a fleet's plots into this folder as SVG files
    #[arg(long, value_name = "DIR", requires = "fleet")]
    pub(crate) plots: Option<PathBuf>,
    /// Print a built-in world file and stop
    #[arg(long, value_name = "NAME")]
    pub(crate) show_world: Option<String>,
}

/// Seeds from the first to the last, including both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeedRange {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// Runs the command.
pub(crate) fn run(args: &SimulateArgs, out: &mut Output) -> Result<Exit, Failure> {
    if let Some(name) = &args.show_world {
        out.raw(shipped(name).ok_or_else(|| no_such_world(name))?.as_bytes())?;
        return Ok(Exit::Done);
    }
    if !args.fleet.is_empty() {
        return run_fleet(args, out);
    }
    if args.world.iter().any(|path| pace_text(path).is_some()) {
        return run_pace(args, out);
    }
    if args.world.iter().any(|path| joint_text(path).is_some()) {
        return run_joint(args, out);
    }
    let worlds = worlds(args)?;
    let policies = policies(args)?;
    let seeds: Vec<u64> = (args.seeds.first..=args.seeds.last).collect();
    let reports: Vec<PolicyReport> = each_world(
        &worlds,
        |world| &world.name,
        out,
        |world, progress| {
            let options = SimulateOptions { threads: args.threads, timing: args.timing, progress: Some(progress) };
            simulate(world, &policies, &seeds, &options).map_err(Failure::failed)
        },
    )?;
    if !out.json {
        out.line(table(&reports).trim_end())?;
    }
    if let Some(path) = &args.html {
        write_page(path, &html(&reports).map_err(Failure::failed)?)?;
    }
    Ok(Exit::Done)
}

/// Runs the command for fleets.
#[cfg(feature = "fleet")]
fn run_fleet(args: &SimulateArgs, out: &mut Output) -> Result<Exit, Failure> {
    use fetchwise_simulate::{Egress, FleetOptions, FleetReport, fleet_html, fleet_plots, fleet_table, simulate_fleet};
    const DELAY: Duration = Duration::from_secs(2);
    let worlds = worlds(args)?;
    let [name] = &args.policy[..] else {
        return Err(Failure::usage("the nodes of a fleet have one policy").advise("give one with --policy"));
    };
    let policy = NamedPolicy::by_name(name.trim()).map_err(Failure::usage)?;
    let seeds: Vec<u64> = (args.seeds.first..=args.seeds.last).collect();
    let nodes: Vec<usize> = args.fleet.iter().map(|nodes| usize::try_from(*nodes).unwrap_or(usize::MAX)).collect();
    let delays = if args.delay.is_empty() { vec![DELAY] } else { args.delay.clone() };
    let egress = if args.egress == "each" { Egress::Each } else { Egress::One };
    let reports: Vec<FleetReport> = each_world(
        &worlds,
        |world| &world.name,
        out,
        |world, progress| {
            let (nodes, delays) = (nodes.clone(), delays.clone());
            let (threads, own) = (args.threads, args.scope == "own");
            let options = FleetOptions { nodes, delays, egress, own, threads, progress: Some(progress) };
            simulate_fleet(world, &policy, &seeds, &options).map_err(Failure::usage)
        },
    )?;
    if !out.json {
        out.line(fleet_table(&reports).trim_end())?;
    }
    if let Some(path) = &args.html {
        write_page(path, &fleet_html(&reports).map_err(Failure::failed)?)?;
    }
    if let Some(dir) = &args.plots {
        let made = std::fs::create_dir_all(dir);
        made.map_err(|error| Failure::failed(format_args!("cannot create {}: {error}", dir.display())))?;
        let plots = fleet_plots(&reports).map_err(Failure::failed)?;
        if plots.is_empty() {
            note("nothing to plot: plots need two fleet sizes or two delays");
        }
        for (name, svg) in plots {
            write_page(&dir.join(format!("{name}.svg")), &svg)?;
        }
    }
    Ok(Exit::Done)
}

/// Fails: this build has no fleets.
#[cfg(not(feature = "fleet"))]
fn run_fleet(args: &SimulateArgs, _: &mut Output) -> Result<Exit, Failure> {
    let SimulateArgs { delay: _, egress: _, scope: _, plots: _, .. } = args;
    Err(Failure::usage("simulate --fleet is missing in this build")
        .advise("build fetchwise-cli with the feature `fleet`"))
}

/// Runs the command for worlds of rate limits.
fn run_pace(args: &SimulateArgs, out: &mut Output) -> Result<Exit, Failure> {
    let mut worlds = Vec::new();
    for path in &args.world {
        let text = pace_text(path).ok_or_else(|| {
            Failure::usage(format_args!("{} is not a world of rate limits, unlike the others", path.display()))
                .advise("run the two kinds separately")
        })?;
        worlds.push(text.map_err(Failure::usage)?);
    }
    let mut players: Vec<&str> = args.policy.iter().map(|name| name.trim()).collect();
    match players[..] {
        ["default"] => players = vec!["pace"],
        _ if players.contains(&"all") => players = PACERS.to_vec(),
        _ => {}
    }
    let seeds: Vec<u64> = (args.seeds.first..=args.seeds.last).collect();
    let reports: Vec<PaceReport> = each_world(
        &worlds,
        |world| &world.name,
        out,
        |world, progress| {
            let options = PaceOptions { threads: args.threads, progress: Some(progress) };
            simulate_pace(world, &players, &seeds, &options).map_err(Failure::usage)
        },
    )?;
    if !out.json {
        out.line(pace_table(&reports).trim_end())?;
    }
    if let Some(path) = &args.html {
        write_page(path, &pace_html(&reports).map_err(Failure::failed)?)?;
    }
    Ok(Exit::Done)
}

/// Runs the command for worlds of fetcher choice and pace.
fn run_joint(args: &SimulateArgs, out: &mut Output) -> Result<Exit, Failure> {
    let mut worlds = Vec::new();
    for path in &args.world {
        let text = joint_text(path).ok_or_else(|| {
            Failure::usage(format_args!("{} is not a joint world, unlike the others", path.display()))
                .advise("run the two kinds separately")
        })?;
        worlds.push(text.map_err(Failure::usage)?);
    }
    let mut crawlers: Vec<&str> = args.policy.iter().map(|name| name.trim()).collect();
    match crawlers[..] {
        ["default"] => crawlers = vec!["fetchwise"],
        _ if crawlers.contains(&"all") => crawlers = CRAWLERS.to_vec(),
        _ => {}
    }
    let seeds: Vec<u64> = (args.seeds.first..=args.seeds.last).collect();
    let reports: Vec<JointReport> = each_world(
        &worlds,
        |world| &world.name,
        out,
        |world, progress| {
            let options = PaceOptions { threads: args.threads, progress: Some(progress) };
            simulate_joint(world, &crawlers, &seeds, &options).map_err(Failure::usage)
        },
    )?;
    if !out.json {
        out.line(joint_table(&reports).trim_end())?;
    }
    if let Some(path) = &args.html {
        write_page(path, &joint_html(&reports).map_err(Failure::failed)?)?;
    }
    Ok(Exit::Done)
}

/// Returns the world at `path`, or the built-in one of that name, if it is a world of rate limits.
fn pace_text(path: &Path) -> Option<Result<PaceWorld, WorldError>> {
    let text = text_of(path, &PACE_WORLDS)?;
    PaceWorld::is_one(&text).then(|| PaceWorld::parse(&text, &path.display().to_string()))
}

/// Returns the world at `path`, or the built-in one of that name, if it is a joint world.
fn joint_text(path: &Path) -> Option<Result<JointWorld, WorldError>> {
    let text = text_of(path, &JOINT_WORLDS)?;
    JointWorld::is_one(&text).then(|| JointWorld::parse(&text, &path.display().to_string()))
}

/// Returns the text of the file, or the built-in world of that name.
fn text_of(path: &Path, worlds: &[(&str, &str)]) -> Option<String> {
    let shipped = worlds.iter().find(|(name, _)| path.to_str().is_some_and(|path| name.eq_ignore_ascii_case(path)));
    match (std::fs::read_to_string(path), shipped) {
        (Ok(text), _) => Some(text),
        (Err(_), Some((_, text))) => Some((*text).to_owned()),
        (Err(_), None) => None,
    }
}

fn write_page(path: &Path, page: &str) -> Result<(), Failure> {
    std::fs::write(path, page)
        .map_err(|error| Failure::failed(format_args!("cannot write {}: {error}", path.display())))?;
    note(format_args!("wrote {}", path.display()));
    Ok(())
}

fn shipped(name: &str) -> Option<&'static str> {
    SHIPPED
        .iter()
        .chain(&MORE)
        .chain(&PACE_WORLDS)
        .chain(&JOINT_WORLDS)
        .find(|world| world.0.eq_ignore_ascii_case(name))
        .map(|world| world.1)
}

fn no_such_world(name: &str) -> Failure {
    let names: Vec<&str> = SHIPPED.iter().chain(&MORE).chain(&PACE_WORLDS).chain(&JOINT_WORLDS).map(|w| w.0).collect();
    Failure::usage(format_args!("unknown world {name:?}")).advise(format!("choose one of {}", names.join(", ")))
}

/// Returns the requested worlds: files, or built-in ones by name. A file takes precedence over a name.
fn worlds(args: &SimulateArgs) -> Result<Vec<World>, Failure> {
    let read = |path: &Path| match path.to_str().and_then(shipped) {
        Some(text) if !path.exists() => World::parse(text, &path.display().to_string()),
        _ => World::read(path),
    };
    let shipped = SHIPPED.iter().map(|(name, _)| Path::new(name));
    let worlds: Result<Vec<World>, _> = match args.world.is_empty() {
        true => shipped.map(read).collect(),
        false => args.world.iter().map(|path| read(path)).collect(),
    };
    worlds.map_err(|error| {
        Failure::usage(error).advise("print a world file with all keys: fetchwise simulate --show-world W1")
    })
}

fn policies(args: &SimulateArgs) -> Result<Vec<NamedPolicy>, Failure> {
    let mut names: Vec<&str> = args.policy.iter().map(|name| name.trim()).collect();
    if names.contains(&"all") {
        names = NAMES.to_vec();
    }
    names.into_iter().map(|name| NamedPolicy::by_name(name).map_err(Failure::usage)).collect()
}

/// Runs each world and returns all reports. In JSON, prints those of a world as soon as it is done.
fn each_world<W, R: Serialize>(
    worlds: &[W],
    name: impl Fn(&W) -> &str,
    out: &mut Output,
    play: impl Fn(&W, &(dyn Fn(usize, usize) + Sync)) -> Result<Vec<R>, Failure>,
) -> Result<Vec<R>, Failure> {
    let mut reports = Vec::new();
    for world in worlds {
        let bar = progress_bar(name(world));
        let progress = |done: usize, count: usize| {
            bar.set_length(count as u64);
            bar.set_position(done as u64);
        };
        let of_world = play(world, &progress)?;
        bar.finish_and_clear();
        if out.json {
            for report in &of_world {
                out.object(report)?;
            }
            out.flush()?;
        }
        reports.extend(of_world);
    }
    Ok(reports)
}

/// Returns a progress bar on stderr, which shows on a terminal only.
fn progress_bar(world: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} runs, {elapsed}") {
        bar.set_style(style);
    }
    bar.set_message(world.to_owned());
    bar
}

/// Parses `9001` or `9001..9005`, including both ends; `..=` means the same.
fn parse_seeds(text: &str) -> Result<SeedRange, String> {
    const MAX_SEEDS: u64 = 1000;
    let (first, last) = text.split_once("..").map_or((text, text), |(a, b)| (a, b.strip_prefix('=').unwrap_or(b)));
    let number = |text: &str| {
        text.trim()
            .parse::<u64>()
            .map_err(|_| format!("{text:?} is not a valid seed: expected A..B, such as 9001..9005"))
    };
    let range = SeedRange { first: number(first)?, last: number(last)? };
    match range.last.checked_sub(range.first) {
        Some(more) if more < MAX_SEEDS => Ok(range),
        _ => Err(format!("invalid seeds {text}: expected between 1 and {MAX_SEEDS} seeds")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_range_with_both_ends() {
        assert_eq!(parse_seeds("9001..9005"), Ok(SeedRange { first: 9001, last: 9005 }));
        assert_eq!(parse_seeds("1..=2"), Ok(SeedRange { first: 1, last: 2 }));
        assert_eq!(parse_seeds("7"), Ok(SeedRange { first: 7, last: 7 }));
        for bad in ["", "..", "5..4", "a..b", "0..99999", "1,2"] {
            assert!(parse_seeds(bad).is_err(), "{bad}");
        }
    }
}
