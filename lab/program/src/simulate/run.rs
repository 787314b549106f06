//! Runs policies in synthetic worlds.
//!
//! Invariants: reads no settings, no log and no clock; the same arguments print the same bytes.

use std::path::Path;

use fetchwise_simulate::{
    CRAWLERS, Egress, FleetOptions, FleetReport, JOINT_WORLDS, JointReport, JointWorld, MORE,
    NAMES, NamedPolicy, PACE_WORLDS, PACERS, PaceOptions, PaceReport, PaceWorld, PolicyReport,
    SHIPPED, SimulateOptions, World, WorldError, fleet_html, fleet_plots, fleet_table, html,
    joint_html, joint_table, learn_priors, pace_html, pace_table, simulate, simulate_fleet,
    simulate_joint, simulate_pace, table,
};
use fetchwise_terminal::{note, plain, shown};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use super::args::SimulateArgs;
use crate::failure::{Exit, Failure};
use crate::output::Output;

/// The seed of the world in which priors are learned.
const TRAINING_SEED: u64 = 1;

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
            let options = SimulateOptions {
                threads: args.threads,
                timing: args.timing,
                progress: Some(progress),
            };
            simulate(world, &policies, &seeds, &options).map_err(Failure::failed)
        },
    )?;
    if !out.json {
        print_table(&table(&reports), out)?;
    }
    if let Some(path) = &args.html {
        write_page(path, &html(&reports).map_err(Failure::failed)?)?;
    }
    Ok(Exit::Done)
}

/// Prints a table. The names of worlds and of their classes come from files.
fn print_table(table: &str, out: &mut Output) -> Result<(), Failure> {
    let lines: Vec<String> = table.trim_end().lines().map(plain).collect();
    out.line(lines.join("\n"))
}

/// Runs the command for fleets.
fn run_fleet(args: &SimulateArgs, out: &mut Output) -> Result<Exit, Failure> {
    const DELAY: std::time::Duration = std::time::Duration::from_secs(2);
    let worlds = worlds(args)?;
    let [name] = &args.policy[..] else {
        return Err(
            Failure::usage("the nodes of a fleet have one policy").advise("give one with --policy")
        );
    };
    let policy = NamedPolicy::by_name(name.trim()).map_err(Failure::usage)?;
    let seeds: Vec<u64> = (args.seeds.first..=args.seeds.last).collect();
    let nodes: Vec<usize> =
        args.fleet.iter().map(|nodes| usize::try_from(*nodes).unwrap_or(usize::MAX)).collect();
    let delays = if args.delay.is_empty() { vec![DELAY] } else { args.delay.clone() };
    let egress = if args.egress == "each" { Egress::Each } else { Egress::One };
    let reports: Vec<FleetReport> = each_world(
        &worlds,
        |world| &world.name,
        out,
        |world, progress| {
            let (nodes, delays) = (nodes.clone(), delays.clone());
            let (threads, own) = (args.threads, args.scope == "own");
            let options =
                FleetOptions { nodes, delays, egress, own, threads, progress: Some(progress) };
            simulate_fleet(world, &policy, &seeds, &options).map_err(Failure::usage)
        },
    )?;
    if !out.json {
        print_table(&fleet_table(&reports), out)?;
    }
    if let Some(path) = &args.html {
        write_page(path, &fleet_html(&reports).map_err(Failure::failed)?)?;
    }
    if let Some(dir) = &args.plots {
        let made = std::fs::create_dir_all(dir);
        made.map_err(|error| {
            Failure::failed(format_args!("cannot create {}: {error}", dir.display()))
        })?;
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

/// Runs the command for worlds of rate limits.
fn run_pace(args: &SimulateArgs, out: &mut Output) -> Result<Exit, Failure> {
    let mut worlds = Vec::new();
    for path in &args.world {
        let text = pace_text(path).ok_or_else(|| {
            Failure::usage(format_args!(
                "{} is not a world of rate limits, unlike the others",
                path.display()
            ))
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
        print_table(&pace_table(&reports), out)?;
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
            Failure::usage(format_args!(
                "{} is not a joint world, unlike the others",
                path.display()
            ))
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
        print_table(&joint_table(&reports), out)?;
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
    let shipped = worlds
        .iter()
        .find(|(name, _)| path.to_str().is_some_and(|path| name.eq_ignore_ascii_case(path)));
    match (std::fs::read_to_string(path), shipped) {
        (Ok(text), _) => Some(text),
        (Err(_), Some((_, text))) => Some((*text).to_owned()),
        (Err(_), None) => None,
    }
}

fn write_page(path: &Path, page: &str) -> Result<(), Failure> {
    std::fs::write(path, page).map_err(|error| {
        Failure::failed(format_args!("cannot write {}: {error}", path.display()))
    })?;
    note(format_args!("wrote {}", shown(path)));
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
    let names: Vec<&str> =
        SHIPPED.iter().chain(&MORE).chain(&PACE_WORLDS).chain(&JOINT_WORLDS).map(|w| w.0).collect();
    Failure::usage(format_args!("unknown world {name:?}"))
        .advise(format!("choose one of {}", names.join(", ")))
}

/// Returns the requested worlds: files, or built-in ones by name. A file takes precedence over a
/// name.
fn worlds(args: &SimulateArgs) -> Result<Vec<World>, Failure> {
    let shipped = SHIPPED.iter().map(|(name, _)| Path::new(name));
    match args.world.is_empty() {
        true => shipped.map(read_world).collect(),
        false => args.world.iter().map(|path| read_world(path)).collect(),
    }
}

/// Reads a world file, or a built-in world.
fn read_world(path: &Path) -> Result<World, Failure> {
    let world = match path.to_str().and_then(shipped) {
        Some(text) if !path.exists() => World::parse(text, &path.display().to_string()),
        _ => World::read(path),
    };
    world.map_err(|error| {
        Failure::usage(error)
            .advise("print a world file with all keys: fetchwise-lab simulate --show-world W1")
    })
}

fn policies(args: &SimulateArgs) -> Result<Vec<NamedPolicy>, Failure> {
    let mut names: Vec<&str> = args.policy.iter().map(|name| name.trim()).collect();
    if names.contains(&"all") {
        names = NAMES.to_vec();
    }
    let named = names.into_iter().map(|name| NamedPolicy::by_name(name).map_err(Failure::usage));
    let mut policies = named.collect::<Result<Vec<NamedPolicy>, Failure>>()?;
    if let Some(path) = &args.train {
        let priors = learn_priors(&read_world(path)?, TRAINING_SEED).map_err(Failure::failed)?;
        policies.push(NamedPolicy::warm(priors));
    }
    Ok(policies)
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
    if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} runs, {elapsed}")
    {
        bar.set_style(style);
    }
    bar.set_message(world.to_owned());
    bar
}
