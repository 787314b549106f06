//! `simulate`: policies in invented worlds. Reads no settings, no log and no clock: the same arguments print the same bytes.

use std::path::Path;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::args::SimulateArgs;
use super::failure::{Exit, Failure};
use super::out::{Out, note};
use fetchwise_simulate::{Contestant, MORE, NAMES, Options, Report, SHIPPED, World, html, simulate, table};

/// Runs the command.
pub(crate) fn run(args: &SimulateArgs, out: &mut Out) -> Result<Exit, Failure> {
    if let Some(name) = &args.show_world {
        out.raw(shipped(name).ok_or_else(|| no_such_world(name))?.as_bytes())?;
        return Ok(Exit::Done);
    }
    let worlds = worlds(args)?;
    let contestants = contestants(args)?;
    let seeds: Vec<u64> = (args.seeds.first..=args.seeds.last).collect();
    let mut reports: Vec<Report> = Vec::new();
    for world in &worlds {
        let bar = progress_bar(&world.name);
        let progress = |done: usize, count: usize| {
            bar.set_length(count as u64);
            bar.set_position(done as u64);
        };
        let options = Options { threads: args.threads, timing: args.timing, progress: Some(&progress) };
        let of_world = simulate(world, &contestants, &seeds, &options).map_err(Failure::failed)?;
        bar.finish_and_clear();
        if out.json {
            for report in &of_world {
                out.object(report)?;
            }
            out.flush()?;
        }
        reports.extend(of_world);
    }
    if !out.json {
        out.line(table(&reports).trim_end())?;
    }
    if let Some(path) = &args.html {
        let page = html(&reports).map_err(Failure::failed)?;
        std::fs::write(path, page)
            .map_err(|error| Failure::failed(format_args!("cannot write {}: {error}", path.display())))?;
        note(format_args!("wrote {}", path.display()));
    }
    Ok(Exit::Done)
}

fn shipped(name: &str) -> Option<&'static str> {
    SHIPPED.iter().chain(&MORE).find(|world| world.0.eq_ignore_ascii_case(name)).map(|world| world.1)
}

fn no_such_world(name: &str) -> Failure {
    let names: Vec<&str> = SHIPPED.iter().chain(&MORE).map(|world| world.0).collect();
    Failure::usage(format_args!("no shipped world is called {name:?}"))
        .advise(format!("there are {}", names.join(", ")))
}

/// The worlds that were asked for: files, or names of shipped ones. A file wins over a name.
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
        Failure::usage(error).advise("`fetchwise simulate --show-world W1` prints a world file with all keys")
    })
}

fn contestants(args: &SimulateArgs) -> Result<Vec<Contestant>, Failure> {
    let mut names: Vec<&str> = args.policy.iter().map(|name| name.trim()).collect();
    if names.contains(&"all") {
        names = NAMES.to_vec();
    }
    names.into_iter().map(|name| Contestant::by_name(name).map_err(Failure::usage)).collect()
}

/// A bar on stderr, where that is a terminal.
fn progress_bar(world: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} runs, {elapsed}") {
        bar.set_style(style);
    }
    bar.set_message(world.to_owned());
    bar
}
