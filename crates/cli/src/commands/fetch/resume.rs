//! The state of a run: the links that are done, and those that it left.
//!
//! The inputs and outputs of a run identify it. During the run, the file `run-<hash>` in the data directory gets one line
//! for each link whose result was written, so that the same command continues an interrupted run. When the run
//! completes, `left-<hash>` replaces it. It names the links that were not delivered, for `--only`. Results that wait for
//! an earlier one are in `held-<state file>`: see [`HeldResults`].
//!
//! Invariants: a link is recorded only after its result was passed on, and only a final end counts as done: see
//! [`LinkEnd`]. An incomplete line of a crash is ignored. The lock of the data directory keeps two runs apart. A file is
//! never read into memory: what is kept is a hash per finished link.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::FetchArgs;
use crate::terminal::output::{note, shown};
use fetchwise::heuristic::url::without_user;
use fetchwise::pipeline::{Link, Report};
use fetchwise::time::Timestamp;
use fetchwise_crawl::input::position::InputPosition;
use fetchwise_crawl::link_end::{LeftLinks, LinkEnd};
use fetchwise_crawl::results::finished_item::FinishedItem;
use fetchwise_crawl::results::held_results::{EarlierResults, HeldResults};
use fetchwise_crawl::results::result_order::Stored;

/// The number of hex digits of a link's hash.
const DIGITS: usize = 32;
/// The prefixes of the two kinds of state files.
const RUNNING: &str = "run-";
const LEFT: &str = "left-";
/// The prefix of the results that wait, before the name of the state file.
const HELD: &str = "held-";
/// The time after which the links that a run left, and results that wait, are forgotten.
const LEFT_FOR: Duration = Duration::from_secs(30 * 86_400);

/// The state of a run.
#[derive(Debug)]
pub(super) struct Resume {
    /// The file that gets a line for each link.
    path: PathBuf,
    /// The file with the links that the run leaves.
    left_path: PathBuf,
    /// The file with the results that wait.
    held_path: PathBuf,
    earlier: EarlierLinks,
    /// Opened when the first link is done.
    file: Option<File>,
    failed: bool,
}

/// The links of earlier runs that this one does not fetch.
#[derive(Debug, Default)]
pub(super) struct EarlierLinks {
    /// The links that an earlier run finished.
    finished: HashSet<u64>,
    /// How often those were finished that were finished more than once.
    repeated: HashMap<u64, u32>,
    /// The selected links that the last run left, if only those are fetched.
    only: Option<HashSet<u64>>,
    /// The results that the interrupted run did not print.
    held: EarlierResults,
}

/// A link that a run left because of a pause.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LeftForPause {
    /// The link's name: the caller's id, or the URL.
    pub(crate) link: String,
    /// The time at which it was left.
    pub(crate) at: Timestamp,
}

/// A line of a state file.
struct StateLine {
    hash: u128,
    end: LinkEnd,
    paused: Option<LeftForPause>,
}

impl Resume {
    /// Looks in `dir` for an earlier run with the same inputs and outputs; with `--restart` removes it. Also returns the
    /// file for results that wait.
    pub(super) fn open(dir: &Path, args: &FetchArgs) -> io::Result<(Self, HeldResults)> {
        let key = key(args);
        let (running, left_path) = (dir.join(format!("{RUNNING}{key:032x}")), dir.join(format!("{LEFT}{key:032x}")));
        let mut earlier = EarlierLinks::default();
        if args.restart {
            remove(&running)?;
            remove(&held_path(&running))?;
            remove(&held_path(&left_path))?;
        }
        let mut path = running;
        if !args.only.is_empty() && args.retry.is_none() {
            // An interrupted run is continued first: its own file says what is not fetched yet.
            if path.exists() || held_path(&path).exists() {
                return Err(io::Error::other("an earlier run was interrupted; continue it without --only first"));
            }
            let mut left = HashSet::new();
            for_each_line(&left_path, |_, _, line| {
                match args.only.iter().any(|which: &LeftLinks| which.selects(line.end)) {
                    true => left.insert(short(line.hash)),
                    false => left.remove(&short(line.hash)),
                };
            })?;
            earlier.only = Some(left);
            path.clone_from(&left_path);
        } else {
            for_each_line(&path, |_, _, line| {
                if line.end.is_done() {
                    earlier.add_finished(short(line.hash));
                }
            })?;
        }
        let held_path = held_path(&path);
        let (held, found, unusable) = HeldResults::open(held_path.clone(), key)?;
        earlier.held = found;
        if let Some(why) = unusable {
            note(format_args!(
                "fetchwise: warning: ignoring the unprinted results in {}: {why}; their links are fetched again",
                shown(&held_path)
            ));
        }
        Ok((Self { path, left_path, held_path, earlier, file: None, failed: false }, held))
    }

    /// Returns the links that this run does not fetch. Called once, by the reader of the input.
    pub(super) fn take_earlier(&mut self) -> EarlierLinks {
        std::mem::take(&mut self.earlier)
    }

    /// Records how a link ended. A failed write only means that the link is fetched again after an interruption; no
    /// further write is tried.
    pub(super) fn note(&mut self, link: &Link, report: &Report, now: Timestamp) {
        if self.failed {
            return;
        }
        let (hash, end) = (hash(link), LinkEnd::of(report));
        let name = match end {
            LinkEnd::Paused => {
                let url = without_user(&link.url);
                let name = link.id.as_deref().unwrap_or(&url);
                serde_json::to_string(&(now.as_millis(), name)).unwrap_or_default()
            }
            _ => String::new(),
        };
        let written = self.file().and_then(|mut file| {
            // The line break comes first, so that an incomplete line of a crash does not affect the next one.
            let letter = char::from(end.letter());
            file.write_all(format!("\n{hash:0width$x}{letter}{name}\n", width = DIGITS).as_bytes())
        });
        self.failed = written.is_err();
    }

    /// Ends a complete run: the next one fetches everything again, or with `--only` what this one left.
    pub(super) fn complete(self) {
        drop(self.file);
        let left = write_left(&self.path, &self.left_path);
        // Without the file, `--only` finds nothing; the results were printed anyway.
        let _ = left;
        if self.path != self.left_path {
            let _ = remove(&self.path);
        }
        let _ = remove(&self.held_path);
        if let Some(dir) = self.left_path.parent() {
            remove_outdated(dir);
        }
    }

    fn file(&mut self) -> io::Result<&File> {
        if self.file.is_none() {
            self.file = Some(OpenOptions::new().create(true).append(true).open(&self.path)?);
        }
        self.file.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl EarlierLinks {
    fn add_finished(&mut self, hash: u64) {
        if !self.finished.insert(hash) {
            *self.repeated.entry(hash).or_insert(1) += 1;
        }
    }

    /// Returns whether an earlier run finished this link. Equal links are skipped as often as they were finished.
    pub(super) fn skips(&mut self, link: &Link) -> bool {
        if self.finished.is_empty() {
            return false;
        }
        let hash = short(hash(link));
        match self.repeated.get_mut(&hash) {
            Some(times) if *times > 1 => {
                *times -= 1;
                true
            }
            _ => self.finished.remove(&hash),
        }
    }

    /// Returns the offset of the result of a link that the interrupted run finished and did not print.
    pub(super) fn held(&mut self, place: InputPosition, link: &Link) -> Option<u64> {
        if self.held.is_empty() {
            return None;
        }
        self.held.take(place.key_of(link), |text| FinishedItem::restore(text).is_some())
    }

    /// Returns whether `--only` leaves out this link.
    pub(super) fn leaves_out(&self, link: &Link) -> bool {
        self.only.as_ref().is_some_and(|only| !only.contains(&short(hash(link))))
    }
}

/// Returns the links that the runs of a data directory left because of a pause, and that they have not fetched since.
pub(crate) fn left_for_pause(dir: &Path) -> io::Result<Vec<LeftForPause>> {
    let mut left = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if [RUNNING, LEFT].iter().any(|prefix| name.starts_with(prefix)) {
            let mut last: HashMap<u128, LeftForPause> = HashMap::new();
            for_each_line(&entry.path(), |_, _, line| {
                match line.paused {
                    Some(paused) => last.insert(line.hash, paused),
                    None => last.remove(&line.hash),
                };
            })?;
            left.extend(last.into_values());
        }
    }
    left.sort_unstable_by(|a, b| (&a.link, a.at).cmp(&(&b.link, b.at)));
    left.dedup_by(|a, b| a.link == b.link);
    Ok(left)
}

/// Writes the lines of links that were not delivered to `to`; the last line of each link counts. Without such links
/// removes `to`.
fn write_left(from: &Path, to: &Path) -> io::Result<()> {
    // The offset of each such link's last line.
    let mut left: HashMap<u64, u64> = HashMap::new();
    for_each_line(from, |offset, _, line| {
        match line.end {
            LinkEnd::Delivered => left.remove(&short(line.hash)),
            _ => left.insert(short(line.hash), offset),
        };
    })?;
    if left.is_empty() {
        return remove(to);
    }
    let new = to.with_extension("new");
    let (mut out, mut written) = (BufWriter::new(File::create(&new)?), Ok(()));
    for_each_line(from, |offset, text, line| {
        if written.is_ok() && left.get(&short(line.hash)) == Some(&offset) {
            written = writeln!(out, "{text}");
        }
    })?;
    written.and_then(|()| out.flush())?;
    fs::rename(&new, to)
}

/// Calls `each` with the offset, the text and the content of every complete line of a state file; not at all if there is
/// no file.
fn for_each_line(path: &Path, mut each: impl FnMut(u64, &str, StateLine)) -> io::Result<()> {
    let mut from = match File::open(path) {
        Ok(file) => BufReader::with_capacity(256 << 10, file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let (mut bytes, mut offset) = (Vec::new(), 0);
    loop {
        bytes.clear();
        let count = from.read_until(b'\n', &mut bytes)?;
        if count == 0 {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_end_matches(['\n', '\r']);
        if let Some(line) = parse_line(text) {
            each(offset, text, line);
        }
        offset += count as u64;
    }
}

/// Returns a hash in half the memory: among ten million links, two have the same one with a chance of three in a
/// million.
fn short(hash: u128) -> u64 {
    hash as u64
}

/// Parses a line; none if it is incomplete.
fn parse_line(text: &str) -> Option<StateLine> {
    let (hash, rest) = text.split_at_checked(DIGITS)?;
    let hash = u128::from_str_radix(hash, 16).ok()?;
    let end = LinkEnd::from_letter(*rest.as_bytes().first()?)?;
    let paused = match end {
        LinkEnd::Paused => {
            let (at, link): (i64, String) = serde_json::from_str(rest.get(1..)?).ok()?;
            Some(LeftForPause { link, at: Timestamp::from_millis(at) })
        }
        _ => None,
    };
    Some(StateLine { hash, end, paused })
}

/// Removes the files of runs that are too old.
fn remove_outdated(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    let is_temporary = |name: &str| [LEFT, HELD].iter().any(|prefix| name.starts_with(prefix));
    for entry in entries.flatten().filter(|entry| is_temporary(&entry.file_name().to_string_lossy())) {
        let written = entry.metadata().and_then(|metadata| metadata.modified());
        if written.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age > LEFT_FOR)) {
            let _ = remove(&entry.path());
        }
    }
}

/// Returns the hash by which a link is recorded.
fn hash(link: &Link) -> u128 {
    let id = link.id.as_deref().unwrap_or_default();
    xxh3_128(format!("{id}\0{}", link.url).as_bytes())
}

/// Returns the file of the results that wait, next to a state file.
fn held_path(state: &Path) -> PathBuf {
    let name = state.file_name().unwrap_or_default().to_string_lossy();
    state.with_file_name(format!("{HELD}{name}"))
}

/// Returns the hash that identifies a run.
fn key(args: &FetchArgs) -> u128 {
    let absolute =
        |path: &PathBuf| fs::canonicalize(path).or_else(|_| std::path::absolute(path)).unwrap_or(path.clone());
    let mut hasher = Xxh3::new();
    for url in &args.urls {
        hasher.update(url.as_bytes());
        hasher.update(b"\0");
    }
    for path in [&args.input, &args.out, &args.warc, &args.retry] {
        hasher.update(b"\0");
        if let Some(path) = path {
            hasher.update(absolute(path).as_os_str().as_encoded_bytes());
        }
    }
    hasher.digest128()
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::command_line::{Cli, Command};
    use clap::Parser;

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    fn args(line: &str) -> FetchArgs {
        match Cli::try_parse_from(format!("fetchwise fetch {line}").split(' ')).unwrap().command {
            Command::Fetch(args) => *args,
            _ => panic!("not a fetch"),
        }
    }

    fn open(dir: &Path, args: &FetchArgs) -> io::Result<Resume> {
        Resume::open(dir, args).map(|(resume, _)| resume)
    }

    fn delivered() -> Report {
        Report { success: true, ..Report::default() }
    }

    fn failed(error_type: &'static str) -> Report {
        Report { error_type: Some(error_type), ..Report::default() }
    }

    #[test]
    fn finished_links_are_skipped_as_often_as_they_were_finished() {
        let dir = tempfile::tempdir().unwrap();
        let run = args("http://e.org/ --out pages");
        let (a, b, c) = (Link::new("http://e.org/a"), Link::new("http://e.org/b"), Link::new("http://e.org/c"));
        let mut first = open(dir.path(), &run).unwrap();
        assert!(!first.earlier.skips(&a));
        first.note(&a, &delivered(), NOW);
        first.note(&a, &delivered(), NOW);
        first.note(&c, &failed(Report::PAUSED), NOW);
        drop(first);
        let mut second = open(dir.path(), &run).unwrap();
        assert_eq!([&a, &b, &a, &a, &c].map(|link| second.earlier.skips(link)), [true, false, true, false, false]);
        second.note(&b, &delivered(), NOW);
        second.complete();
        assert!(!open(dir.path(), &run).unwrap().earlier.skips(&a));
    }

    #[test]
    fn only_selects_what_the_last_run_left_until_it_is_fetched() {
        let dir = tempfile::tempdir().unwrap();
        let run = args("--input list");
        let links = ["a", "b", "c", "d"].map(|name| Link::new(format!("http://e.org/{name}")));
        let mut first = open(dir.path(), &run).unwrap();
        let reports = [delivered(), failed(Report::PAUSED), failed("not_found"), failed("timeout")];
        links.iter().zip(&reports).for_each(|(link, report)| first.note(link, report, NOW));
        let left = [LeftForPause { link: links[1].url.clone(), at: NOW }];
        assert_eq!(left_for_pause(dir.path()).unwrap(), left);
        first.complete();
        assert_eq!(left_for_pause(dir.path()).unwrap(), left);
        let fetched = |only: &str| {
            let run = open(dir.path(), &args(&format!("--input list --only {only}"))).unwrap();
            links.iter().filter(|link| !run.earlier.leaves_out(link)).map(|link| &link.url[13..]).collect::<String>()
        };
        assert_eq!(["paused", "missing", "failed", "paused,failed"].map(fetched), ["b", "c", "d", "bd"]);
        let mut only = open(dir.path(), &args("--input list --only paused")).unwrap();
        only.note(&links[1], &delivered(), NOW);
        // Even after a crash, what was fetched is not fetched again.
        drop(only);
        assert_eq!(["paused", "missing"].map(fetched), ["", "c"]);
        open(dir.path(), &args("--input list --only paused")).unwrap().complete();
        assert_eq!((left_for_pause(dir.path()).unwrap(), fetched("failed")), (vec![], "d".to_owned()));
        assert!(!open(dir.path(), &run).unwrap().earlier.leaves_out(&links[0]), "without --only everything is fetched");
    }

    #[test]
    fn an_incomplete_line_is_ignored_and_affects_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let run = args("http://e.org/");
        let link = Link::new("http://e.org/a");
        let mut first = open(dir.path(), &run).unwrap();
        first.note(&link, &delivered(), NOW);
        let path = first.path.clone();
        drop(first);
        let text = fs::read(&path).unwrap();
        fs::write(&path, &text[..text.len() - 5]).unwrap();
        let mut second = open(dir.path(), &run).unwrap();
        assert!(!second.earlier.skips(&link));
        second.note(&link, &delivered(), NOW);
        drop(second);
        assert!(open(dir.path(), &run).unwrap().earlier.skips(&link));
    }

    #[test]
    fn other_inputs_or_outputs_are_another_run_and_restart_removes_it() {
        let lines = [
            "http://e.org/",
            "http://f.org/",
            "http://e.org/ --out a",
            "http://e.org/ --warc a",
            "--input a",
            "--retry a",
        ];
        let keys: std::collections::HashSet<u128> = lines.iter().map(|line| key(&args(line))).collect();
        assert_eq!(keys.len(), lines.len());
        assert_eq!(key(&args("http://e.org/")), key(&args("http://e.org/ --concurrency 3 --json --only paused")));
        let dir = tempfile::tempdir().unwrap();
        let link = Link::new("http://e.org/");
        open(dir.path(), &args(lines[0])).unwrap().note(&link, &delivered(), NOW);
        assert!(!open(dir.path(), &args("http://e.org/ --restart")).unwrap().earlier.skips(&link));
    }
}
