//! The state of a run: the links that are done, and those that it left.
//!
//! The inputs and outputs of a run identify it. During the run, the file `run-<hash>` in the data
//! directory gets one line for each link whose result was written, and one for each link that was
//! added to the running crawl, so that the same command continues an interrupted run. When the run
//! completes, `left-<hash>` replaces it. It names the links that were not delivered, for
//! [`CrawlSpec::only`]. Results that wait for an earlier one are in `held-<state file>`: see
//! [`HeldResults`].
//!
//! Invariants: a link is recorded only after its result was passed on, and only a final end counts
//! as done: see [`LinkEnd`]. A link that was added while a result was passed on is recorded before
//! that. An incomplete line of a crash is ignored. The lock of the data
//! directory keeps two runs apart. A file is never read into memory: what is kept is a hash per
//! finished link.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Take, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::error::CrawlError;
use crate::input::position::InputPosition;
use crate::link_end::{LeftLinks, LinkEnd};
use crate::results::finished_item::FinishedItem;
use crate::results::held_results::{EarlierResults, HeldResults};
use crate::results::result_order::Stored;
use crate::spec::{CrawlSpec, LinkSource, Output};
use fetchwise::heuristic::url::without_user;
use fetchwise::pipeline::{Link, Report};
use fetchwise::query_hash::QueryHash;
use fetchwise::time::Timestamp;

/// The number of hex digits of a link's hash.
const DIGITS: usize = 32;
/// The prefixes of the two kinds of state files.
const RUNNING: &str = "run-";
const LEFT: &str = "left-";
/// The prefix of the results that wait, before the name of the state file.
const HELD: &str = "held-";
/// The letter of a link that was added, where another line has the letter of its end.
const ADDED: char = 'a';
/// The time after which the links that a run left, and results that wait, are forgotten.
const LEFT_FOR: Duration = Duration::from_secs(30 * 86_400);

/// The state of a run.
#[derive(Debug)]
pub(crate) struct Resume {
    /// The file that gets a line for each link.
    path: PathBuf,
    /// The file with the links that the run leaves.
    left_path: PathBuf,
    /// The file with the results that wait.
    held_path: PathBuf,
    /// Hashes the query values of the links that the file names, if the data directory does that.
    query_hash: Option<QueryHash>,
    earlier: EarlierLinks,
    /// The length of the file as it was found.
    found_len: u64,
    /// Opened when the first link is done.
    file: Option<BufWriter<File>>,
    failed: bool,
}

/// The links of earlier runs that this one does not fetch.
#[derive(Debug, Default)]
pub(crate) struct EarlierLinks {
    /// The links that an earlier run finished.
    finished: HashSet<u64>,
    /// How often those were finished that were finished more than once.
    repeated: HashMap<u64, u32>,
    /// The selected links that the last run left, if only those are fetched.
    only: Option<HashSet<u64>>,
    /// The results that the interrupted run did not pass on.
    held: EarlierResults,
}

/// The links that were added to an interrupted run, in the order of adding.
#[derive(Debug)]
pub(crate) struct EarlierAdded {
    from: BufReader<Take<File>>,
    bytes: Vec<u8>,
}

/// The results of an interrupted run that are not used.
#[derive(Debug)]
pub(crate) struct IgnoredResults {
    pub(crate) file: PathBuf,
    pub(crate) reason: &'static str,
}

/// The state of a run as it was found.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) resume: Resume,
    /// The file for results that wait.
    pub(crate) held: HeldResults,
    pub(crate) ignored: Option<IgnoredResults>,
}

/// A link that a run left because of a pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftForPause {
    /// The link's name: the caller's id, or the URL.
    pub link: String,
    /// The time at which it was left.
    pub at: Timestamp,
}

/// A line of a state file.
struct StateLine {
    hash: u128,
    end: LinkEnd,
    paused: Option<LeftForPause>,
}

impl Resume {
    /// Looks in `dir` for an earlier run with the same sources and output; one that is to be
    /// restarted is removed.
    pub(crate) fn open(dir: &Path, spec: &CrawlSpec) -> Result<Opened, CrawlError> {
        let key = key(spec);
        let (running, left_path) =
            (dir.join(format!("{RUNNING}{key:032x}")), dir.join(format!("{LEFT}{key:032x}")));
        if spec.restart {
            let files = [running.clone(), held_path(&running), held_path(&left_path)];
            files.iter().try_for_each(|file| remove(file)).map_err(CrawlError::State)?;
        }
        let selects = !spec.only.is_empty() && !spec.retries();
        // An interrupted run is continued first: its own file says what is not fetched yet.
        if selects && (running.exists() || held_path(&running).exists()) {
            return Err(CrawlError::Interrupted);
        }
        let path = if selects { left_path.clone() } else { running };
        let earlier = match selects {
            true => EarlierLinks::left(&path, &spec.only),
            false => EarlierLinks::finished(&path),
        };
        let mut earlier = earlier.map_err(CrawlError::State)?;
        let held_path = held_path(&path);
        let found_len = match fs::metadata(&path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(CrawlError::State(error)),
        };
        let (held, found, unusable) =
            HeldResults::open(held_path.clone(), key).map_err(CrawlError::State)?;
        earlier.held = found;
        let ignored = unusable.map(|reason| IgnoredResults { file: held_path.clone(), reason });
        let resume = Self {
            path,
            left_path,
            held_path,
            query_hash: None,
            earlier,
            found_len,
            file: None,
            failed: false,
        };
        Ok(Opened { resume, held, ignored })
    }

    /// Sets the hash of the query values of the links that the file names.
    pub(crate) fn set_query_hash(&mut self, query_hash: Option<QueryHash>) {
        self.query_hash = query_hash;
    }

    /// Returns the links that this run does not fetch. Called once, by the reader of the input.
    pub(crate) fn take_earlier(&mut self) -> EarlierLinks {
        std::mem::take(&mut self.earlier)
    }

    /// Returns the links that were added to the interrupted run.
    ///
    /// # Errors
    /// The state cannot be read.
    pub(crate) fn earlier_added(&self) -> Result<Option<EarlierAdded>, CrawlError> {
        if self.found_len == 0 {
            return Ok(None);
        }
        let file = File::open(&self.path).map_err(CrawlError::State)?;
        // This run appends to the file meanwhile.
        let found = BufReader::with_capacity(256 << 10, file.take(self.found_len));
        Ok(Some(EarlierAdded { from: found, bytes: Vec::new() }))
    }

    /// Records a link that was added to the running crawl, once [`flush`](Self::flush) writes it.
    pub(crate) fn note_added(&mut self, link: &Link) {
        if self.failed {
            return;
        }
        let (hash, url) = (hash(link), serde_json::to_string(&link.url).unwrap_or_default());
        let written = self
            .file()
            .and_then(|file| writeln!(file, "\n{hash:0width$x}{ADDED}{url}", width = DIGITS));
        self.failed = written.is_err();
    }

    /// Records how a link ended, once [`flush`](Self::flush) writes it. A failed write only means
    /// that the link is fetched again after an interruption; no further write is tried.
    pub(crate) fn note(&mut self, link: &Link, report: &Report, now: Timestamp) {
        if self.failed {
            return;
        }
        let (hash, end) = (hash(link), LinkEnd::of(report));
        let name = match end {
            LinkEnd::Paused => {
                let url = without_user(&link.url);
                let name = link.id.as_deref().unwrap_or(&url);
                let name = self.query_hash.map_or(Cow::Borrowed(name), |hash| hash.url(name));
                serde_json::to_string(&(now.as_millis(), name)).unwrap_or_default()
            }
            _ => String::new(),
        };
        let written = self.file().and_then(|file| {
            // The line break comes first, so that an incomplete line of a crash does not affect the
            // next one.
            writeln!(file, "\n{hash:0width$x}{}{name}", char::from(end.letter()), width = DIGITS)
        });
        self.failed = written.is_err();
    }

    /// Writes what was recorded since the last call.
    pub(crate) fn flush(&mut self) {
        if !self.failed
            && let Some(file) = &mut self.file
        {
            self.failed = file.flush().is_err();
        }
    }

    /// Ends a complete run: the next one fetches everything again, or, if told so, what this one
    /// left.
    pub(crate) fn complete(self) {
        drop(self.file);
        // Where the log has no query values, no file of a complete run has any.
        let left = write_left(&self.path, &self.left_path, self.query_hash.is_none());
        // Without the file, a selection finds nothing; the results were passed on anyway.
        let _ = left;
        if self.path != self.left_path {
            let _ = remove(&self.path);
        }
        let _ = remove(&self.held_path);
        if let Some(dir) = self.left_path.parent() {
            remove_outdated(dir);
        }
    }

    fn file(&mut self) -> io::Result<&mut BufWriter<File>> {
        if self.file.is_none() {
            self.file = Some(BufWriter::new(
                OpenOptions::new().create(true).append(true).open(&self.path)?,
            ));
        }
        self.file.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl EarlierLinks {
    /// Returns the links that the interrupted run of the state file `path` finished.
    fn finished(path: &Path) -> io::Result<Self> {
        let mut earlier = Self::default();
        for_each_line(path, |_, line| {
            if line.end.is_done() {
                earlier.add_finished(short(line.hash));
            }
        })?;
        Ok(earlier)
    }

    /// Returns all links but those that the run of the state file `path` left, and that ended as
    /// one of `which`.
    fn left(path: &Path, which: &[LeftLinks]) -> io::Result<Self> {
        let mut left = HashSet::new();
        for_each_line(path, |_, line| {
            match which.iter().any(|which| which.selects(line.end)) {
                true => left.insert(short(line.hash)),
                false => left.remove(&short(line.hash)),
            };
        })?;
        Ok(Self { only: Some(left), ..Self::default() })
    }

    fn add_finished(&mut self, hash: u64) {
        if !self.finished.insert(hash) {
            *self.repeated.entry(hash).or_insert(1) += 1;
        }
    }

    /// Returns whether an earlier run finished this link. Equal links are skipped as often as they
    /// were finished.
    pub(crate) fn skips(&mut self, link: &Link) -> bool {
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

    /// Returns the offset of the result of a link that the interrupted run finished and did not
    /// pass on.
    pub(crate) fn held(&mut self, place: InputPosition, link: &Link) -> Option<u64> {
        if self.held.is_empty() {
            return None;
        }
        self.held.take(place.key_of(link), |text| FinishedItem::restore(text).is_some())
    }

    /// Returns whether a selection leaves out this link.
    pub(crate) fn leaves_out(&self, link: &Link) -> bool {
        self.only.as_ref().is_some_and(|only| !only.contains(&short(hash(link))))
    }
}

impl EarlierAdded {
    /// Returns the URL of the next link; none at the end.
    ///
    /// # Errors
    /// The state cannot be read.
    pub(crate) fn next(&mut self) -> Result<Option<String>, CrawlError> {
        loop {
            self.bytes.clear();
            if self.from.read_until(b'\n', &mut self.bytes).map_err(CrawlError::State)? == 0 {
                return Ok(None);
            }
            let text = String::from_utf8_lossy(&self.bytes);
            if let Some((_, url)) = parse_added(text.trim_end()) {
                return Ok(Some(url));
            }
        }
    }
}

/// Returns the links that the runs of a data directory left because of a pause, and that they have
/// not fetched since.
///
/// # Errors
/// The directory, or a state file in it, cannot be read.
pub fn left_for_pause(dir: &Path) -> io::Result<Vec<LeftForPause>> {
    let mut left = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if [RUNNING, LEFT].iter().any(|prefix| name.starts_with(prefix)) {
            let mut last: HashMap<u128, LeftForPause> = HashMap::new();
            for_each_line(&entry.path(), |_, line| {
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

/// Writes the lines of links that were not delivered to `to`; the last line of each link counts.
/// For links that were added, so do the lines with their URLs if `keeps_added` is set. Without such
/// links removes `to`.
fn write_left(from: &Path, to: &Path, keeps_added: bool) -> io::Result<()> {
    // The offset of each such link's last line.
    let mut left: HashMap<u64, u64> = HashMap::new();
    for_each_line(from, |offset, line| {
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
    for_each_text(from, |offset, text| {
        let is_left = match (parse_line(text), parse_added(text)) {
            (Some(line), _) => left.get(&short(line.hash)) == Some(&offset),
            (None, Some((hash, _))) => keeps_added && left.contains_key(&short(hash)),
            (None, None) => false,
        };
        if written.is_ok() && is_left {
            written = writeln!(out, "{text}");
        }
    })?;
    written.and_then(|()| out.flush())?;
    fs::rename(&new, to)
}

/// Calls `each` with the offset and the content of every complete line about the end of a link; not
/// at all if there is no file.
fn for_each_line(path: &Path, mut each: impl FnMut(u64, StateLine)) -> io::Result<()> {
    for_each_text(path, |offset, text| {
        if let Some(line) = parse_line(text) {
            each(offset, line);
        }
    })
}

/// Calls `each` with the offset and the text of every line of a state file.
fn for_each_text(path: &Path, mut each: impl FnMut(u64, &str)) -> io::Result<()> {
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
        each(offset, text.trim_end_matches(['\n', '\r']));
        offset += count as u64;
    }
}

/// Returns a hash in half the memory: among ten million links, two have the same one with a chance
/// of three in a million.
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

/// Parses the line of a link that was added: its hash and its URL; none for another line or an
/// incomplete one.
fn parse_added(text: &str) -> Option<(u128, String)> {
    let (hash, rest) = text.split_at_checked(DIGITS)?;
    let url = serde_json::from_str(rest.strip_prefix(ADDED)?).ok()?;
    Some((u128::from_str_radix(hash, 16).ok()?, url))
}

/// Removes the files of runs that are too old.
fn remove_outdated(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    let is_temporary = |name: &str| [LEFT, HELD].iter().any(|prefix| name.starts_with(prefix));
    for entry in
        entries.flatten().filter(|entry| is_temporary(&entry.file_name().to_string_lossy()))
    {
        let written = entry.metadata().and_then(|metadata| metadata.modified());
        if written
            .is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age > LEFT_FOR))
        {
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
fn key(spec: &CrawlSpec) -> u128 {
    let mut hasher = Xxh3::new();
    let mut add = |kind: &[u8; 1], text: &[u8]| {
        hasher.update(kind);
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text);
    };
    for source in &spec.sources {
        match source {
            LinkSource::Url(url) => add(b"u", url.as_bytes()),
            LinkSource::File(path) => add(b"f", absolute(path).as_os_str().as_encoded_bytes()),
            LinkSource::Stdin => add(b"i", b""),
            LinkSource::Results(path) => add(b"r", absolute(path).as_os_str().as_encoded_bytes()),
        }
    }
    match &spec.output {
        Some(Output::Folder(path)) => add(b"d", absolute(path).as_os_str().as_encoded_bytes()),
        Some(Output::Archive(path)) => add(b"a", absolute(path).as_os_str().as_encoded_bytes()),
        Some(Output::Named(name)) => add(b"n", name.as_bytes()),
        None => {}
    }
    hasher.digest128()
}

fn absolute(path: &Path) -> PathBuf {
    fs::canonicalize(path)
        .or_else(|_| std::path::absolute(path))
        .unwrap_or_else(|_| path.to_owned())
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

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    fn url(url: &str) -> CrawlSpec {
        CrawlSpec::default().urls([url])
    }

    fn list() -> CrawlSpec {
        CrawlSpec::default().file("list")
    }

    fn only(which: &[LeftLinks]) -> CrawlSpec {
        CrawlSpec { only: which.to_vec(), ..list() }
    }

    fn open(dir: &Path, spec: &CrawlSpec) -> Result<Resume, CrawlError> {
        Resume::open(dir, spec).map(|opened| opened.resume)
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
        let run =
            CrawlSpec { output: Some(Output::Folder("pages".into())), ..url("http://e.org/") };
        let (a, b, c) =
            (Link::new("http://e.org/a"), Link::new("http://e.org/b"), Link::new("http://e.org/c"));
        let mut first = open(dir.path(), &run).unwrap();
        assert!(!first.earlier.skips(&a));
        first.note(&a, &delivered(), NOW);
        first.note(&a, &delivered(), NOW);
        first.note(&c, &failed(Report::PAUSED), NOW);
        drop(first);
        let mut second = open(dir.path(), &run).unwrap();
        assert_eq!(
            [&a, &b, &a, &a, &c].map(|link| second.earlier.skips(link)),
            [true, false, true, false, false]
        );
        second.note(&b, &delivered(), NOW);
        second.complete();
        assert!(!open(dir.path(), &run).unwrap().earlier.skips(&a));
    }

    #[test]
    fn only_selects_what_the_last_run_left_until_it_is_fetched() {
        let dir = tempfile::tempdir().unwrap();
        let run = list();
        let links = ["a", "b", "c", "d"].map(|name| Link::new(format!("http://e.org/{name}")));
        let mut first = open(dir.path(), &run).unwrap();
        let reports = [delivered(), failed(Report::PAUSED), failed("not_found"), failed("timeout")];
        links.iter().zip(&reports).for_each(|(link, report)| first.note(link, report, NOW));
        first.flush();
        let left = [LeftForPause { link: links[1].url.clone(), at: NOW }];
        assert_eq!(left_for_pause(dir.path()).unwrap(), left);
        first.complete();
        assert_eq!(left_for_pause(dir.path()).unwrap(), left);
        let fetched = |which: &[LeftLinks]| {
            let run = open(dir.path(), &only(which)).unwrap();
            links
                .iter()
                .filter(|link| !run.earlier.leaves_out(link))
                .map(|link| &link.url[13..])
                .collect::<String>()
        };
        let (paused, missing, failed) = (LeftLinks::Paused, LeftLinks::Missing, LeftLinks::Failed);
        assert_eq!([paused, missing, failed].map(|which| fetched(&[which])), ["b", "c", "d"]);
        assert_eq!(fetched(&[paused, failed]), "bd");
        let mut again = open(dir.path(), &only(&[paused])).unwrap();
        again.note(&links[1], &delivered(), NOW);
        // Even after a crash, what was fetched is not fetched again.
        drop(again);
        assert_eq!([paused, missing].map(|which| fetched(&[which])), ["", "c"]);
        open(dir.path(), &only(&[paused])).unwrap().complete();
        assert_eq!(
            (left_for_pause(dir.path()).unwrap(), fetched(&[failed])),
            (vec![], "d".to_owned())
        );
        assert!(
            !open(dir.path(), &run).unwrap().earlier.leaves_out(&links[0]),
            "without a selection all are fetched"
        );
    }

    #[test]
    fn added_links_are_kept_until_no_run_can_ask_for_them() {
        let dir = tempfile::tempdir().unwrap();
        let run = list();
        let added = |run: &Resume| {
            let mut added = run.earlier_added().unwrap();
            std::iter::from_fn(|| added.as_mut()?.next().unwrap()).collect::<Vec<_>>()
        };
        let links = ["a", "b\nc", "d"].map(|name| Link::new(format!("http://e.org/{name}")));
        let mut first = open(dir.path(), &run).unwrap();
        assert!(added(&first).is_empty());
        links.iter().for_each(|link| first.note_added(link));
        first.note(&links[0], &delivered(), NOW);
        first.flush();
        assert!(added(&first).is_empty(), "its own are no earlier ones");
        drop(first);
        let mut second = open(dir.path(), &run).unwrap();
        assert_eq!(added(&second), links.each_ref().map(|link| link.url.clone()));
        let later = Link::new("http://e.org/later");
        second.note_added(&later);
        assert_eq!(added(&second).len(), 3);
        for link in [&links[1], &later] {
            second.note(link, &failed("timeout"), NOW);
        }
        second.note(&links[2], &delivered(), NOW);
        second.complete();
        assert!(added(&open(dir.path(), &run).unwrap()).is_empty());
        let again = open(dir.path(), &only(&[LeftLinks::Failed])).unwrap();
        assert_eq!(added(&again), [links[1].url.clone(), later.url.clone()]);
        assert!(!again.earlier.leaves_out(&later) && again.earlier.leaves_out(&links[0]));
        // Where names are hashed, what a complete run leaves names no URL.
        let mut hashed = open(dir.path(), &run).unwrap();
        hashed.set_query_hash(Some(QueryHash::new([7; 16])));
        hashed.note_added(&later);
        hashed.note(&later, &failed("timeout"), NOW);
        hashed.complete();
        assert!(added(&open(dir.path(), &only(&[LeftLinks::Failed])).unwrap()).is_empty());
    }

    #[test]
    fn an_incomplete_line_is_ignored_and_affects_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let run = url("http://e.org/");
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
        let one = || url("http://e.org/");
        let with = |output| CrawlSpec { output: Some(output), ..one() };
        let specs = [
            one(),
            url("http://f.org/"),
            one().urls(["http://f.org/"]),
            with(Output::Folder("a".into())),
            with(Output::Archive("a".into())),
            with(Output::Named("a".into())),
            CrawlSpec::default().file("a"),
            CrawlSpec { sources: vec![LinkSource::Results("a".into())], ..CrawlSpec::default() },
            CrawlSpec { sources: vec![LinkSource::Stdin], ..CrawlSpec::default() },
        ];
        let keys: std::collections::HashSet<u128> = specs.iter().map(key).collect();
        assert_eq!(keys.len(), specs.len());
        assert_eq!(
            key(&one()),
            key(&CrawlSpec { only: vec![LeftLinks::Paused], ..one().concurrency(3).ordered() })
        );
        let dir = tempfile::tempdir().unwrap();
        let link = Link::new("http://e.org/");
        open(dir.path(), &one()).unwrap().note(&link, &delivered(), NOW);
        assert!(!open(dir.path(), &one().restart()).unwrap().earlier.skips(&link));
    }
}
