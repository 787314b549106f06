//! The report: everything that matters about speed and memory, measured side by side in one run,
//! written to `docs/reports/benchmarks.md` with its plots. `make bench-report` runs it.
//!
//! Each subject runs in a separate process, so that heaps and caches are separate, and returns a
//! [`book::Section`] as JSON. Invariants: every figure in the report comes from this run, except
//! those of the history. Nothing is asserted about time: a missed target is reported as missed.
//!
//! `--quick` tries the program in seconds, with meaningless sizes; `--full` adds long measurements;
//! `--only SUBJECT` (repeatable) skips the others. Quick and partial runs write to a directory
//! below the temporary one, so that `docs` only ever has a whole run, unless `--out DIR` is given.
#![allow(clippy::unwrap_used, reason = "a measurement that meets an error has failed")]

mod book;
mod crawlers;
mod fleet;
mod growth;
mod history;
mod host;
mod log;
#[path = "../../../benches/loopback/mod.rs"]
mod loopback;
mod map_peers;
mod measure;
mod memory;
mod mixed;
#[path = "../../../benches/pages/mod.rs"]
mod page_sets;
mod pages;
mod pipeline;
mod plot;
mod record;
mod replay;
mod scaling;
mod select;
mod server;
mod simulate;
mod sqlite;
mod text;
mod traffic;
mod write;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use book::Section;

/// The amount of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Enough to see that the program runs.
    Quick,
    /// The scale of the report.
    Normal,
    /// Includes measurements that take too long for every day.
    Full,
}

impl Scale {
    /// Returns `normal`, or `quick` on a quick run.
    pub(crate) fn pick<T>(self, quick: T, normal: T) -> T {
        if self == Self::Quick { quick } else { normal }
    }

    fn flag(self) -> Option<&'static str> {
        match self {
            Self::Quick => Some("--quick"),
            Self::Normal => None,
            Self::Full => Some("--full"),
        }
    }
}

/// A subject: its name and its measurement.
type Subject = (&'static str, fn(Scale) -> Section);

/// In the order of the report.
const SUBJECTS: &[Subject] = &[
    ("select", select::measure),
    ("peers", mixed::measure),
    ("sqlite", sqlite::measure),
    ("record", record::measure),
    ("log", log::measure),
    ("replay", replay::measure),
    ("memory", memory::measure),
    ("pages", pages::measure),
    ("pipeline", pipeline::measure),
    ("crawlers", crawlers::measure),
    ("simulate", simulate::measure),
    ("scaling", scaling::measure),
    ("fleet", fleet::measure),
];

struct ReportArgs {
    scale: Scale,
    only: Vec<String>,
    out: PathBuf,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["--child", "server"] => server::run(),
        ["--child", "memory", shape, domains] => memory::child(shape, domains.parse().unwrap()),
        ["--child", "subject", name, json, ref rest @ ..] => child(name, Path::new(json), rest),
        _ => match report_args(&args) {
            Ok(report_args) => return run(&report_args),
            Err(message) => {
                eprintln!(
                    "{message}\nusage: fetchwise-bench-report [--quick | --full] [--only SUBJECT]... [--out DIR]"
                );
                return ExitCode::from(2);
            }
        },
    }
    ExitCode::SUCCESS
}

fn report_args(args: &[String]) -> Result<ReportArgs, String> {
    let mut report_args =
        ReportArgs { scale: Scale::Normal, only: Vec::new(), out: PathBuf::new() };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().cloned().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--quick" => report_args.scale = Scale::Quick,
            "--full" => report_args.scale = Scale::Full,
            "--out" => report_args.out = PathBuf::from(value()?),
            "--only" => {
                let name = value()?;
                if !SUBJECTS.iter().any(|(subject, _)| *subject == name) {
                    let names: Vec<&str> = SUBJECTS.iter().map(|(subject, _)| *subject).collect();
                    return Err(format!(
                        "no subject called {name:?}; there are: {}",
                        names.join(", ")
                    ));
                }
                report_args.only.push(name);
            }
            other => return Err(format!("unknown argument {other:?}")),
        }
    }
    if report_args.out.as_os_str().is_empty() {
        let is_whole = report_args.only.is_empty() && report_args.scale != Scale::Quick;
        report_args.out = match is_whole {
            true => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reports"),
            false => std::env::temp_dir().join("fetchwise-bench-report"),
        };
    }
    Ok(report_args)
}

/// Measures one subject and writes its section to `json`.
fn child(name: &str, json: &Path, rest: &[&str]) {
    let scale = match rest {
        ["--quick"] => Scale::Quick,
        ["--full"] => Scale::Full,
        _ => Scale::Normal,
    };
    let (_, measure) = SUBJECTS.iter().find(|(subject, _)| *subject == name).unwrap();
    std::fs::write(json, serde_json::to_vec(&measure(scale)).unwrap()).unwrap();
}

fn run(report_args: &ReportArgs) -> ExitCode {
    let (begun, tmp) = (Instant::now(), tempfile::tempdir().unwrap());
    let host = host::Host::read();
    let mut sections = Vec::new();
    let mut failed = Vec::new();
    for &(name, _) in SUBJECTS.iter().filter(|(name, _)| {
        report_args.only.is_empty() || report_args.only.iter().any(|o| o == name)
    }) {
        let (at, json) = (Instant::now(), tmp.path().join(name));
        eprintln!("{name} ...");
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--child", "subject", name]).arg(&json).args(report_args.scale.flag());
        match command.status() {
            Ok(status) if status.success() => {
                let section: Section =
                    serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
                eprintln!("{name} done in {:.1} s", at.elapsed().as_secs_f64());
                sections.push(section);
            }
            other => {
                eprintln!("{name} FAILED: {other:?}");
                failed.push(name);
            }
        }
    }
    sections.extend(growth::section(&sections));
    write::write(&report_args.out, &host, report_args.scale, &sections, begun.elapsed());
    eprintln!(
        "{} written in {:.0} s",
        report_args.out.join("benchmarks.md").display(),
        begun.elapsed().as_secs_f64()
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
