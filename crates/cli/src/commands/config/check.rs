//! `config check`: all problems of the settings at once.

use std::path::{Path, PathBuf};

use clap::Args;
use fetchwise::config::{ConfigError, Layers, Problem, Resolved};
use fetchwise::fetch::address_guard::parse_network;
use fetchwise::registry::{Class, canonical};
use serde::Serialize;

use crate::parse::global::GlobalArgs;
use crate::setup::fetcher_availability::{BrowserArgs, FetcherAvailability};
use crate::setup::identity::{Identity, host_headers};
use crate::setup::settings::{Settings, add_environment, add_options, config_file};
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{CHOSEN, ERROR, Output, note, plain, shown, styled};

/// Check the settings and report each problem with line and column
///
/// Reads the config file, the environment and the options as every command does, and the router
/// table and detection rules that they name. Exits with 2 if there is a problem. Fetches nothing
/// and opens no data directory.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  fetchwise config check fetchwise.toml\n  FETCHWISE_LOG__MAX_DISK_BYTES=2GiB fetchwise \
                  config check --json"
)]
pub(crate) struct CheckArgs {
    /// Check this config file [default: --config, or $FETCHWISE_CONFIG]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

#[derive(Serialize)]
struct CheckJson<'a> {
    ok: bool,
    file: Option<String>,
    problems: Vec<ProblemJson<'a>>,
    warnings: Vec<ProblemJson<'a>>,
}

#[derive(Serialize)]
struct ProblemJson<'a> {
    /// `file`, `environment`, `flag`, or `default` for a problem of several of them together.
    source: &'a str,
    file: Option<String>,
    line: Option<usize>,
    column: Option<usize>,
    /// The variable or option.
    name: Option<String>,
    key: Option<&'a str>,
    message: &'a str,
    did_you_mean: Option<&'a str>,
}

/// The findings of a check: problems with a place, and problems and warnings without one.
#[derive(Default)]
struct Findings {
    problems: Vec<Problem>,
    others: Vec<String>,
    warnings: Vec<Problem>,
    remarks: Vec<String>,
}

/// Runs the command.
pub(super) fn run(
    args: &CheckArgs,
    global: &GlobalArgs,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let file = match &args.file {
        Some(file) => Some(file.clone()),
        None => config_file(global)?,
    };
    let found = check(file.as_deref(), global)?;
    let is_good = found.problems.is_empty() && found.others.is_empty();
    if out.json {
        show_json(file.as_deref(), &found, is_good, out)?;
    } else {
        show(file.as_deref(), &found, is_good, out)?;
    }
    Ok(if is_good { Exit::Done } else { Exit::Usage })
}

fn check(file: Option<&Path>, global: &GlobalArgs) -> Result<Findings, Failure> {
    let mut found = Findings::default();
    let mut layers = Layers::default();
    if let Some(file) = file {
        match layers.file(file) {
            Ok(()) => {}
            Err(ConfigError::Settings(problems)) => found.problems.extend(problems),
            Err(error) => return Err(error.into()),
        }
    }
    add_environment(&mut layers)?;
    add_options(&mut layers, global);
    match layers.resolve() {
        // If the file is not TOML, its settings are unknown.
        Ok(_) if !found.problems.is_empty() => {}
        Ok(resolved) => check_names(resolved, global, &mut found),
        Err(ConfigError::Settings(problems)) => found.problems.extend(problems),
        Err(error) => return Err(error.into()),
    }
    Ok(found)
}

/// Checks what the settings name: files, networks, fetchers.
fn check_names(resolved: Resolved, global: &GlobalArgs, found: &mut Findings) {
    found.warnings.clone_from(&resolved.warnings);
    let origin = |way: &[&str]| resolved.origin(way);
    for text in &resolved.config.network.allow {
        if let Err(error) = parse_network(text) {
            found.others.push(format!("{}: network.allow: {error}", origin(&["network", "allow"])));
        }
    }
    if let Err(error) = resolved.config.selector().build() {
        found.others.push(error.to_string());
    }
    let settings = match Settings::from_resolved(resolved.clone(), global) {
        Ok(settings) => settings,
        Err(failure) => return found.others.push(failure.to_string()),
    };
    if let Err(failure) = settings.detector() {
        found.others.push(failure.to_string());
    }
    if let Err(failure) = settings.router() {
        found.others.push(failure.to_string());
    }
    let fetchers = &settings.config.fetchers;
    if !fetchers.is_empty() && fetchers.iter().all(|fetcher| fetcher.spec().class != Class::Plain) {
        found.remarks.push(
            "no plain fetcher is listed, so each page costs a browser or more; to change one built-in fetcher only, write \
             [fetcher.NAME] instead of [[fetcher]]"
                .to_owned(),
        );
    }
    if !fetchers.is_empty() {
        // Without a list, the log adds candidates.
        let known: Vec<&str> = fetchers.iter().map(|fetcher| canonical(&fetcher.name)).collect();
        found.others.extend(settings.unknown_names(&known).iter().map(ToString::to_string));
    }
    if let Err(failure) = Identity::load(&settings) {
        found.others.push(failure.to_string());
    }
    if let Err(failure) = host_headers(&settings) {
        found.others.push(failure.to_string());
    }
    match FetcherAvailability::find(&settings, &BrowserArgs::default()) {
        Ok(available) => {
            let left_out = available.left_out();
            found.remarks.extend(
                left_out.map(|(name, why)| format!("fetcher {name} is unavailable: {why}")),
            );
        }
        Err(failure) => found.others.push(failure.to_string()),
    }
}

fn show(
    file: Option<&Path>,
    found: &Findings,
    is_good: bool,
    out: &mut Output,
) -> Result<(), Failure> {
    for problem in &found.problems {
        let place = problem.place().map_or_else(
            || problem.origin.to_string(),
            |(path, at)| format!("{}:{}:{}", shown(path), at.line, at.column),
        );
        out.line(format_args!(
            "{}: {}: {}",
            plain(&place),
            styled(ERROR, "error"),
            plain(&problem.message)
        ))?;
    }
    for other in &found.others {
        out.line(format_args!(
            "{}: {}",
            styled(ERROR, "error"),
            other.lines().map(plain).collect::<Vec<_>>().join("\n")
        ))?;
    }
    for warning in
        found.warnings.iter().map(ToString::to_string).chain(found.remarks.iter().cloned())
    {
        out.line(format_args!("warning: {}", plain(&warning)))?;
    }
    let what = file.map_or_else(
        || "environment (no config file)".to_owned(),
        |file| file.display().to_string(),
    );
    if is_good {
        return out.line(format_args!("{}: {}", plain(&what), styled(CHOSEN, "valid")));
    }
    let count = found.problems.len() + found.others.len();
    note(format_args!("fetchwise: {}: {count} to fix", plain(&what)));
    Ok(())
}

fn show_json(
    file: Option<&Path>,
    found: &Findings,
    is_good: bool,
    out: &mut Output,
) -> Result<(), Failure> {
    let json = |problem| problem_json(problem);
    let plain = |message| ProblemJson {
        source: "default",
        file: None,
        line: None,
        column: None,
        name: None,
        key: None,
        message,
        did_you_mean: None,
    };
    out.object(&CheckJson {
        ok: is_good,
        file: file.map(|file| file.display().to_string()),
        problems: found
            .problems
            .iter()
            .map(json)
            .chain(found.others.iter().map(|text| plain(text)))
            .collect(),
        warnings: found
            .warnings
            .iter()
            .map(json)
            .chain(found.remarks.iter().map(|text| plain(text)))
            .collect(),
    })
}

fn problem_json(problem: &Problem) -> ProblemJson<'_> {
    let place = problem.place();
    ProblemJson {
        source: problem.origin.kind(),
        file: place.map(|(path, _)| path.display().to_string()),
        line: place.map(|(_, at)| at.line),
        column: place.map(|(_, at)| at.column),
        name: place.is_none().then(|| problem.origin.to_string()),
        key: Some(problem.key.as_str()).filter(|key| !key.is_empty()),
        message: &problem.message,
        did_you_mean: problem.meant.as_deref(),
    }
}
