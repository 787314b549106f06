//! A crawler that knows many more sites than it keeps in memory: memory, disk, the time of a start,
//! decisions, and maintenance.
//!
//! Each phase is a separate process, so that its memory is that of the phase. All are run with a
//! tenth of the sites and with all of them; the last column goes on along the line through both.
//!
//!     cargo bench -p fetchwise-benches --bench many_sites -- 10000000 [FOLDER]
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, exit};
use std::time::Instant;

use fetchwise::Selector;
use fetchwise::attempt::Attempt;
use fetchwise::journal::maintenance::{self, CompactOptions};
use fetchwise::selector::SelectContext;
use fetchwise::time::Timestamp;
use url::Url;

/// Sites without an argument: as `cargo bench` runs it.
const SITES: u64 = 100_000;
const EXPECTED_SITES: f64 = 100e6;
/// The part of the sites that is in memory.
const IN_MEMORY: u64 = 25;
/// The part of the sites that a killed process has met since its start.
const SINCE_START: u64 = 20;
const DECISIONS: u64 = 20_000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    if let Some((phase, [dir, sites])) =
        args.split_first().filter(|(phase, _)| PHASES.contains(&phase.as_str()))
    {
        run(phase, Path::new(dir), sites.parse().unwrap());
        exit(0);
    }
    let sites = args.first().map_or(SITES, |sites| sites.parse().unwrap());
    let parent = args.get(1).map_or_else(std::env::temp_dir, Into::into);
    let (few, many) = (measure(&parent, sites / 10), measure(&parent, sites));
    println!("{}", cpu());
    println!("{:<54} {:>12} {:>12} {:>12}", "sites", sites / 10, sites, EXPECTED_SITES);
    for (what, value) in &many {
        let slope = (value - few[what]) / (sites - sites / 10) as f64;
        let expected = match what.ends_with("us") {
            // The time of one step follows the caches of the machine, not a line.
            true => "-".to_owned(),
            false => format!("{:.2}", value + slope * (EXPECTED_SITES - sites as f64)),
        };
        println!("{what:<54} {:>12.2} {value:>12.2} {expected:>12}", few[what]);
    }
}

const PHASES: [&str; 7] = [
    "1-record",
    "2-start",
    "3-killed",
    "4-start-after-kill",
    "5-snapshot",
    "6-compact",
    "7-verify",
];

/// Runs all phases in a new folder; returns what they have measured.
fn measure(parent: &Path, sites: u64) -> BTreeMap<String, f64> {
    let dir = tempfile::tempdir_in(parent).unwrap();
    let mut measured = BTreeMap::new();
    for phase in PHASES {
        let args = [phase, dir.path().to_str().unwrap(), &sites.to_string()];
        let output = Command::new(std::env::current_exe().unwrap()).args(args).output().unwrap();
        assert!(output.status.success(), "{phase}: {}", String::from_utf8_lossy(&output.stderr));
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            let (what, value) = line.split_once('=').unwrap();
            eprintln!("{sites} sites, {phase}, {what}: {value}");
            measured.insert(format!("{phase}, {what}"), value.parse().unwrap());
        }
        measured.insert(format!("{phase}, disk at the end, MB"), size(dir.path()) as f64 / 1e6);
    }
    measured
}

fn run(phase: &str, dir: &Path, sites: u64) {
    let begun = Instant::now();
    let blank = || Selector::builder().max_keys((sites / IN_MEMORY) as usize).without_pace();
    if ["5-snapshot", "6-compact", "7-verify"].contains(&phase) {
        maintain(phase, dir, &blank().build().unwrap());
        println!("time, s={}", begun.elapsed().as_secs_f64());
        println!("VmHWM, MB={}", memory("VmHWM"));
        exit(0);
    }
    let selector = blank().journal(dir).build().unwrap();
    if phase.contains("start") {
        println!("start, s={}", begun.elapsed().as_secs_f64());
        decide(&selector, begun, sites);
    }
    let met = match phase {
        "1-record" => 0..sites,
        "3-killed" => 0..sites / SINCE_START,
        _ => 0..0,
    };
    let (now, count) = (Timestamp::now(), met.end);
    let recording = Instant::now();
    for site in met {
        let attempt = Attempt::new(&url(site), "direct_access", now).unwrap().delivered();
        selector.record(attempt, now).unwrap();
    }
    if count > 0 {
        println!("attempt recorded, us={}", recording.elapsed().as_secs_f64() * 1e6 / count as f64);
    }
    println!("VmRSS, MB={}", memory("VmRSS"));
    if phase == "1-record" {
        let closing = Instant::now();
        selector.close().unwrap();
        println!("close, s={}", closing.elapsed().as_secs_f64());
    } else if phase == "3-killed" {
        // The writer is behind by its queue at most, and the process ends without a close.
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
    println!("VmHWM, MB={}", memory("VmHWM"));
    // Without a close, as if killed.
    exit(0);
}

/// Does what the commands of these names do.
fn maintain(phase: &str, dir: &Path, selector: &Selector) {
    let now = Timestamp::now();
    match phase {
        "5-snapshot" => {
            let taken = maintenance::snapshot(dir, selector, now, &mut |_, _| {}).unwrap();
            println!("snapshot, MB={}", taken.bytes as f64 / 1e6);
        }
        "6-compact" => {
            let options = CompactOptions::default();
            maintenance::compact(dir, selector, &options, now, &mut |_, _| {}).unwrap();
        }
        _ => assert!(maintenance::verify(dir, &mut |_, _| {}).unwrap().is_sound()),
    }
}

/// Measures the first decision, then decisions about sites in memory and about others.
fn decide(selector: &Selector, begun: Instant, sites: u64) {
    let context = SelectContext::first_attempt(Timestamp::now());
    let decide = |site: u64| {
        let url = url(site);
        selector.prefetch([&url]);
        let _ = selector.select(&url, &context).unwrap();
        url
    };
    decide(sites / 2);
    println!("first decision after the begin, s={}", begun.elapsed().as_secs_f64());
    let (mut cold, mut hot) = (Vec::new(), Vec::new());
    for n in 0..DECISIONS {
        let site = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % sites;
        let (asked, url) = (Instant::now(), decide(site));
        cold.push(asked.elapsed().as_secs_f64() * 1e6);
        let asked = Instant::now();
        let _ = selector.select(&url, &context).unwrap();
        hot.push(asked.elapsed().as_secs_f64() * 1e6);
    }
    for (name, times) in [("read back and decided", &mut cold), ("decided in memory", &mut hot)] {
        times.sort_unstable_by(f64::total_cmp);
        for (percent, at) in [("p50", times.len() / 2), ("p99", times.len() * 99 / 100)] {
            println!("{name}, {percent}, us={}", times[at]);
        }
    }
}

fn url(site: u64) -> Url {
    Url::parse(&format!("https://site{site}.org/page")).unwrap()
}

fn size(path: &Path) -> u64 {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .map(
            |entry| {
                if entry.path().is_dir() { size(&entry.path()) } else { on_disk(&entry.path()) }
            },
        )
        .sum()
}

#[cfg(unix)]
fn on_disk(file: &Path) -> u64 {
    file.metadata().map_or(0, |of| std::os::unix::fs::MetadataExt::blocks(&of) * 512)
}

#[cfg(not(unix))]
fn on_disk(file: &Path) -> u64 {
    file.metadata().map_or(0, |of| of.len())
}

/// Returns a line of this process's status, in megabytes; not a number where there is none.
fn memory(line: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let value = status
        .lines()
        .find_map(|of| of.strip_prefix(line)?.split_whitespace().nth(1)?.parse::<f64>().ok());
    value.map_or(f64::NAN, |kib| kib * 1024.0 / 1e6)
}

fn cpu() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    info.lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("?", |(_, name)| name)
        .to_owned()
}
