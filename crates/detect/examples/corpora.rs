//! Measures the detector on labelled pages and on ordinary ones, in one table:
//! `cargo run --release -p fetchwise-detect --features json --example corpora -- [--mistakes]
//! [PATH...]`.
//!
//! A path is a labelled corpus in JSON lines, whose lines have a `body_path` or the page itself in
//! `html`, or a folder whose HTML files are all content. Without a path, the corpora in
//! `FETCHWISE_CORPUS`, `FETCHWISE_CORPUS2` and so on and the folder in `FETCHWISE_MANUALS` are
//! read. Each page is judged by its body alone, as if its status were 200.
//!
//! A page counts in the row of its group. Labels and details name the group: see `Group::of`.
//! `--mistakes` prints each page that is on the wrong side, with the reason of its verdict.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};

use fetchwise_detect::response::{Header, Page};
use fetchwise_detect::{Detector, Scratch, Verdict, wilson};
use serde_json::Value;

/// Kinds of pages that are measured apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Vendor,
    SiteBuilt,
    Network,
    Failure,
    Gate,
    Shell,
    Content,
    Manual,
}

impl Group {
    /// Returns the group of a labelled page. A block that the corpus calls arguable is in no group.
    fn of(label: &str, detail: &str, note: &str, status: u64, arguable: bool) -> Option<Self> {
        let is_failure = || status >= 500 || note.contains("5xx") || detail.contains("maintenance");
        Some(match label {
            "block" if arguable => return None,
            "network" => Self::Network,
            "block" | "queue" if detail.starts_with("net_") => Self::Network,
            "block" | "queue"
                if detail.starts_with("own_") || detail.starts_with("errorpages_") =>
            {
                Self::SiteBuilt
            }
            "block" | "queue" => Self::Vendor,
            "failure" => Self::Failure,
            "gate" => Self::Gate,
            "shell" | "spa_shell" => Self::Shell,
            _ if is_failure() => Self::Failure,
            _ => Self::Content,
        })
    }
}

/// A group, a name, and whether a page of the group counts.
type Measure = (Group, &'static str, fn(&Verdict) -> bool);

/// What is counted of a group.
const MEASURES: [Measure; 15] = [
    (Group::Vendor, "blocks of vendors found", is_found),
    (Group::SiteBuilt, "blocks that a site built found", is_found),
    (Group::Network, "pages of networks found", is_found),
    (Group::Network, "pages of networks named", |verdict| verdict.network_block),
    (Group::Failure, "failures of a server called a block", is_found),
    (Group::Failure, "failures of a server named", |verdict| verdict.is_server_error),
    (Group::Gate, "gates called a block", is_found),
    (Group::Gate, "gates named", |verdict| verdict.has_login_wall),
    (Group::Shell, "shells found", |verdict| verdict.has_spa),
    (Group::Content, "content called a block", is_found),
    (Group::Content, "content called a failure", |verdict| verdict.is_server_error),
    (Group::Content, "content called a shell", |verdict| verdict.has_spa),
    (Group::Content, "content called empty", |verdict| {
        verdict.is_empty && verdict.redirect.is_none()
    }),
    (Group::Manual, "manuals called a block", is_found),
    (Group::Manual, "manuals called a failure", |verdict| verdict.is_server_error),
];

fn is_found(verdict: &Verdict) -> bool {
    verdict.is_blocked || verdict.is_queued
}

/// The measures at which a page on the list is a mistake if it counts; at the others, if it does
/// not.
fn is_alarm(name: &str) -> bool {
    name.contains("called")
}

/// Counts and mistakes of one set of pages.
#[derive(Default)]
struct Tally {
    counts: BTreeMap<usize, (usize, usize)>,
    silent: usize,
    html: usize,
    mistakes: Vec<String>,
}

impl Tally {
    fn add(&mut self, group: Option<Group>, name: &str, verdict: &Verdict) {
        self.html += usize::from(verdict.is_html);
        let is_silent = verdict.is_html && verdict.text_chars == 0 && verdict.is_content();
        self.silent += usize::from(is_silent);
        if is_silent {
            self.mistakes.push(format!("silent content: {name}"));
        }
        for (index, (of, measure, counts)) in MEASURES.iter().enumerate() {
            if Some(*of) != group {
                continue;
            }
            let counted = counts(verdict);
            let entry = self.counts.entry(index).or_default();
            *entry = (entry.0 + usize::from(counted), entry.1 + 1);
            if counted == is_alarm(measure) {
                self.mistakes
                    .push(format!("not as wanted, {measure}: {name}: {}", verdict.reason()));
            }
        }
    }

    fn print(&self, set: &str, with_mistakes: bool) {
        for (index, (part, whole)) in &self.counts {
            let (low, high) = wilson(*part, *whole).unwrap_or_default();
            let share = 100.0 * *part as f64 / (*whole).max(1) as f64;
            let (low, high) = (100.0 * low, 100.0 * high);
            let measure = MEASURES.get(*index).map_or("", |(_, name, _)| name);
            println!(
                "| {set} | {measure} | {part} of {whole} | {share:.2} % | {low:.2} to {high:.2} % |"
            );
        }
        println!(
            "| {set} | pages without visible text called content | {} of {} | | |",
            self.silent, self.html
        );
        if with_mistakes {
            self.mistakes.iter().for_each(|mistake| eprintln!("{set}: {mistake}"));
        }
    }
}

/// Judges the labelled pages of a corpus.
fn read_corpus(detector: &Detector, path: &Path, tally: &mut Tally) -> Result<(), Box<dyn Error>> {
    let mut scratch = Scratch::default();
    for line in std::fs::read_to_string(path)?.lines().filter(|line| !line.trim().is_empty()) {
        let labelled: Value = serde_json::from_str(line)?;
        let text = |key: &str| labelled[key].as_str().unwrap_or_default();
        let body = match labelled["html"].as_str() {
            Some(html) => html.as_bytes().to_vec(),
            None => std::fs::read(path.with_file_name(text("body_path")))?,
        };
        let mut headers: Vec<Header> = labelled["headers"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| Header::new(name.as_str(), value.as_str().unwrap_or_default()))
            .collect();
        if headers.is_empty() {
            headers.push(Header::new("content-type", "text/html; charset=utf-8"));
        }
        let (url, final_url) = (labelled["url"].as_str(), labelled["final_url"].as_str());
        let page = Page { status: 200, headers: &headers, body: &body, url, final_url };
        let verdict = detector.inspect(&page, &mut scratch);
        let arguable = labelled["arguable"].as_bool().unwrap_or_default();
        let status = labelled["status"].as_u64().unwrap_or(200);
        let group = Group::of(text("label"), text("detail"), text("note"), status, arguable);
        let name =
            format!("{} {} {} {}", text("body_path"), text("detail"), text("lang"), text("note"));
        tally.add(group, &name, &verdict);
    }
    Ok(())
}

/// Judges every HTML file below a folder as a page of content.
fn read_folder(detector: &Detector, folder: &Path, scratch: &mut Scratch, tally: &mut Tally) {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            read_folder(detector, &path, scratch, tally);
        } else if path.extension().is_some_and(|extension| extension == "html")
            && let Ok(body) = std::fs::read(&path)
        {
            let headers = [Header::new("content-type", "text/html")];
            let page = Page { status: 200, headers: &headers, body: &body, ..Page::default() };
            tally.add(
                Some(Group::Manual),
                &path.display().to_string(),
                &detector.inspect(&page, scratch),
            );
        }
    }
}

/// Returns the paths in the environment.
fn known_paths() -> Vec<PathBuf> {
    [
        "FETCHWISE_CORPUS",
        "FETCHWISE_CORPUS2",
        "FETCHWISE_CORPUS3",
        "FETCHWISE_CORPUS4",
        "FETCHWISE_MANUALS",
    ]
    .iter()
    .filter_map(|name| std::env::var_os(name).map(PathBuf::from))
    .collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let with_mistakes = arguments.iter().any(|argument| argument == "--mistakes");
    let named: Vec<PathBuf> =
        arguments.iter().filter(|of| *of != "--mistakes").map(PathBuf::from).collect();
    let paths = if named.is_empty() { known_paths() } else { named };
    if paths.is_empty() {
        return Err("no pages: name a CORPUS.jsonl or a folder, or set FETCHWISE_CORPUS".into());
    }
    let detector = Detector::new();
    println!("| pages | measure | count | share | interval |\n|---|---|---|---|---|");
    for path in paths {
        let mut tally = Tally::default();
        if path.is_dir() {
            read_folder(&detector, &path, &mut Scratch::default(), &mut tally);
        } else {
            read_corpus(&detector, &path, &mut tally)?;
        }
        let set = path
            .parent()
            .filter(|_| path.is_file())
            .unwrap_or(&path)
            .file_name()
            .unwrap_or_default();
        tally.print(&set.to_string_lossy(), with_mistakes);
    }
    Ok(())
}
