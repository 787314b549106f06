//! The machine, the compiler and the versions of all compared programs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Crates whose version affects a figure.
const CRATES: &[&str] = &[
    "aho-corasick",
    "dashmap",
    "fetchwise",
    "fjall",
    "html5ever",
    "hyper",
    "hyper-util",
    "libsqlite3-sys",
    "lol_html",
    "papaya",
    "rusqlite",
    "scc",
    "tokio",
    "url",
];

/// Facts by name, in reading order.
pub(crate) struct Host {
    pub(crate) facts: Vec<(&'static str, String)>,
}

impl Host {
    /// Returns a fact by its name.
    pub(crate) fn fact(&self, name: &str) -> String {
        self.facts
            .iter()
            .find(|(fact, _)| *fact == name)
            .map(|(_, value)| value.clone())
            .unwrap_or_default()
    }

    pub(crate) fn read() -> Self {
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = cpu.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            line.split_once(':').map_or("unknown", |(_, value)| value.trim()).to_owned()
        };
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let is_guest = field("flags").split(' ').any(|flag| flag == "hypervisor");
        let clock = first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        let governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
        Self {
            facts: vec![
                (
                    "processor",
                    format!("{}, {cores} cores, {} MHz", field("model name"), field("cpu MHz")),
                ),
                ("virtual machine", if is_guest { "yes" } else { "no sign of it" }.to_owned()),
                ("caches", caches()),
                ("memory", memory()),
                (
                    "governor",
                    if governor.is_empty() {
                        "not reported by the kernel".to_owned()
                    } else {
                        governor
                    },
                ),
                ("clock source", clock),
                ("system", output("uname", &["-sr"])),
                (
                    "file system of the logs",
                    output("df", &["--output=fstype", &std::env::temp_dir().to_string_lossy()]),
                ),
                ("load at the start", load()),
                ("compiler", output("rustc", &["--version"])),
                ("commit", commit()),
                ("date", fetchwise::rfc3339::format(fetchwise::time::Timestamp::now())),
                ("crates", crates()),
            ],
        }
    }
}

fn first_line(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

/// Returns the last line that a command prints.
fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program)
        .args(args)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output();
    let text = output
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    text.trim().lines().last().unwrap_or("unknown").trim().to_owned()
}

/// Returns the load of the last minute, five and fifteen.
pub(crate) fn load() -> String {
    first_line("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(", ")
}

fn commit() -> String {
    let commit = output("git", &["rev-parse", "--short=12", "HEAD"]);
    match output(
        "git",
        &["status", "--porcelain", "--untracked-files=no", "--", "src", "log", "crates", "lab"],
    )
    .as_str()
    {
        "unknown" => commit,
        _ => format!("{commit}, with changes that are not committed"),
    }
}

fn caches() -> String {
    let mut found = Vec::new();
    for index in 0..8 {
        let of = |name: &str| {
            first_line(&format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}"))
        };
        let (level, kind, size) = (of("level"), of("type"), of("size"));
        if !level.is_empty() && kind != "Instruction" {
            found.push(format!("L{level} {size}"));
        }
    }
    found.join(", ")
}

fn memory() -> String {
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes = |name: &str| {
        let line = info.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<f64>().ok()
    };
    let gib = |name: &str| kilobytes(name).unwrap_or(0.0) / (1 << 20) as f64;
    format!("{:.1} GiB, {:.1} GiB free at the start", gib("MemTotal"), gib("MemAvailable"))
}

fn crates() -> String {
    let lock = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock"))
        .unwrap_or_default();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut name = "";
    for line in lock.lines() {
        let value =
            |prefix: &str| line.strip_prefix(prefix).and_then(|rest| rest.strip_suffix('"'));
        if let Some(found) = value("name = \"") {
            name = found;
        } else if let Some(version) = value("version = \"").filter(|_| CRATES.contains(&name)) {
            versions.entry(name).or_default().push(version);
        }
    }
    let listed =
        versions.iter().map(|(name, versions)| format!("{name} {}", versions.join(" and ")));
    listed.collect::<Vec<_>>().join(", ")
}
