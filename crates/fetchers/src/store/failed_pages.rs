//! The last bodies of pages that failed, so that a person can see why: one folder per host with an
//! index.
//!
//! Owns: the files that its indexes name, and their limits.
//!
//! Invariants: a host has at most [`FailedPageLimits::per_host`] pages, and all hosts together at
//! most [`FailedPageLimits::total_bytes`] of bodies; the oldest go first. An index is replaced as a
//! whole: after a kill or on a full disk it is the old one or the new one, and names no body that
//! is missing. Files that no index names stay. Nothing outside of the folder is written, whatever a
//! URL or a header contains.
//!
//! Must not know: why a page counts as failed.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use url::Url;

use super::files::{Files, part};
use crate::fetch::Response;
use fetchwise_types::attempt::verdict_reason::VerdictReason;
use fetchwise_types::heuristic::url::{identity, without_user};
use fetchwise_types::response::media_type;
use fetchwise_types::rfc3339;
use fetchwise_types::time::Timestamp;

/// The name of a host's index.
const INDEX: &str = "index.jsonl";
/// The bytes of a body that are kept: those that the detector reads.
const MAX_BODY: u64 = 1 << 20;
/// The longest line of an index that is read.
const MAX_LINE: u64 = 64 << 10;

/// Limits of a folder of failed pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedPageLimits {
    /// Maximum pages of a host. Default: 8.
    pub per_host: usize,
    /// Maximum bytes of all bodies. Default: 256 MiB.
    pub total_bytes: u64,
}

impl Default for FailedPageLimits {
    fn default() -> Self {
        Self { per_host: 8, total_bytes: 256 << 20 }
    }
}

impl FailedPageLimits {
    /// Sets the maximum pages of a host (at least 1).
    #[must_use]
    pub fn with_per_host(self, pages: usize) -> Self {
        Self { per_host: pages.max(1), ..self }
    }

    /// Sets the maximum bytes of all bodies.
    #[must_use]
    pub fn with_total_bytes(self, bytes: u64) -> Self {
        Self { total_bytes: bytes, ..self }
    }
}

/// A page that failed.
#[derive(Clone, Copy, Debug)]
pub struct FailedPage<'a> {
    /// The requested URL.
    pub url: &'a Url,
    /// What came.
    pub response: &'a Response,
    /// The fetcher that got it.
    pub fetcher: &'a str,
    /// The error type of the result.
    pub error_type: &'a str,
    /// The reason of the verdict.
    pub verdict: Option<&'a VerdictReason>,
    /// The time of the result.
    pub at: Timestamp,
}

/// A line of an index. `classify --batch` reads it, and with a `label` of the page `detect check`
/// does.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct IndexLine {
    url: String,
    final_url: Option<String>,
    status: u16,
    headers: BTreeMap<String, String>,
    /// Relative to the index.
    body_path: String,
    error_type: String,
    fetcher: String,
    verdict: Option<VerdictReason>,
    at: String,
    /// Bytes of the body that are kept.
    bytes: u64,
}

/// A folder of failed pages. Share it among tasks.
#[derive(Debug)]
pub struct FailedPages {
    dir: PathBuf,
    limits: FailedPageLimits,
    known: Mutex<KnownPages>,
}

/// The pages that the indexes name.
#[derive(Debug, Default)]
struct KnownPages {
    /// By the folder of the host, the oldest first.
    hosts: BTreeMap<String, VecDeque<IndexLine>>,
    /// Folder and file of every page, the oldest first.
    order: VecDeque<(String, String)>,
    bytes: u64,
}

impl FailedPages {
    /// Opens the folder `dir`, which is created if it is missing, with the pages that earlier runs
    /// have kept in it.
    ///
    /// # Errors
    /// Fails if the folder cannot be created or read.
    pub fn open(dir: impl Into<PathBuf>, limits: FailedPageLimits) -> io::Result<Self> {
        let dir = dir.into();
        fs::create_dir_all(&dir)?;
        let known = Mutex::new(KnownPages::read(&dir)?);
        Ok(Self { dir, limits, known })
    }

    /// Keeps the body of a page, and returns its file. An earlier one of the same URL is replaced.
    /// Blocks.
    ///
    /// # Errors
    /// Fails if the body or the index cannot be written. What was kept before stays.
    pub fn keep(&self, page: &FailedPage<'_>) -> io::Result<PathBuf> {
        let name = Files::name(page.url, media_type(&page.response.headers));
        let (Some(host), Some(file)) =
            (name.parent().and_then(Path::to_str), name.file_name().and_then(|f| f.to_str()))
        else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the URL gives no file name"));
        };
        let folder = self.dir.join(host);
        fs::create_dir_all(&folder)?;
        // One writer at a time: an index is written from what all know.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut body = part().tempfile_in(&folder)?;
        let bytes = io::copy(&mut page.response.body.reader().take(MAX_BODY), &mut body)?;
        let path = folder.join(file);
        body.persist(&path).map_err(|error| error.error)?;
        let mut lines = known.hosts.get(host).cloned().unwrap_or_default();
        let mut gone: Vec<IndexLine> = Vec::new();
        lines.retain(|line| line.body_path != file);
        lines.push_back(page.line(file, bytes));
        while lines.len() > self.limits.per_host {
            gone.extend(lines.pop_front());
        }
        if let Err(error) = write_index(&folder, &lines) {
            let is_new = known
                .hosts
                .get(host)
                .is_none_or(|lines| lines.iter().all(|line| line.body_path != file));
            if is_new {
                // It would never be removed: no index names it.
                let _ = fs::remove_file(&path);
            }
            return Err(error);
        }
        remove(&folder, &gone);
        known.set(host, lines);
        known.order.retain(|(of, known)| (&**of, &**known) != (host, file));
        known.order.push_back((host.to_owned(), file.to_owned()));
        self.shrink(&mut known, (host, file))?;
        Ok(path)
    }

    /// Drops the oldest pages beyond the limit of bytes, but not the one that has just been kept.
    fn shrink(&self, known: &mut KnownPages, newest: (&str, &str)) -> io::Result<()> {
        while known.bytes > self.limits.total_bytes {
            let Some((host, file)) =
                known.order.front().cloned().filter(|(host, file)| (&**host, &**file) != newest)
            else {
                return Ok(());
            };
            let folder = self.dir.join(&host);
            let mut kept = known.hosts.get(&host).cloned().unwrap_or_default();
            let place = kept.iter().position(|line| line.body_path == file);
            let gone: Vec<IndexLine> =
                place.and_then(|place| kept.remove(place)).into_iter().collect();
            let written = write_index(&folder, &kept);
            if written.is_ok() {
                remove(&folder, &gone);
            }
            known.set(&host, kept);
            written?;
        }
        Ok(())
    }
}

impl FailedPage<'_> {
    fn line(&self, file: &str, bytes: u64) -> IndexLine {
        let kind = media_type(&self.response.headers)
            .map(|kind| ("content-type".to_owned(), kind.to_owned()));
        let (url, final_url) =
            (without_user(identity(self.url)), without_user(identity(&self.response.final_url)));
        IndexLine {
            final_url: (final_url != url).then(|| final_url.into_owned()),
            url: url.into_owned(),
            status: self.response.status,
            headers: kind.into_iter().collect(),
            body_path: file.to_owned(),
            error_type: self.error_type.to_owned(),
            fetcher: self.fetcher.to_owned(),
            verdict: self.verdict.cloned(),
            at: rfc3339::format(self.at),
            bytes,
        }
    }
}

impl KnownPages {
    /// Reads the indexes below a folder. A line that is not one of an index is left out, and so is
    /// a body that is gone.
    fn read(dir: &Path) -> io::Result<Self> {
        let mut found: Vec<(String, IndexLine)> = Vec::new();
        for host in fs::read_dir(dir)? {
            let host = host?;
            let Ok(name) = host.file_name().into_string() else { continue };
            let Ok(index) = fs::File::open(host.path().join(INDEX)) else { continue };
            for line in lines_of(index) {
                let is_ours = Path::new(&line.body_path).components().count() == 1
                    && line.body_path != INDEX
                    && host.path().join(&line.body_path).is_file();
                if is_ours {
                    found.push((name.clone(), line));
                }
            }
        }
        found.sort_by(|(_, a), (_, b)| a.at.cmp(&b.at));
        let mut known = Self::default();
        for (host, line) in found {
            known.bytes += line.bytes;
            known.order.push_back((host.clone(), line.body_path.clone()));
            known.hosts.entry(host).or_default().push_back(line);
        }
        Ok(known)
    }

    /// Sets the pages of a host.
    fn set(&mut self, host: &str, lines: VecDeque<IndexLine>) {
        let sum = |lines: &VecDeque<IndexLine>| lines.iter().map(|line| line.bytes).sum::<u64>();
        let before = self.hosts.get(host).map_or(0, sum);
        self.bytes = (self.bytes + sum(&lines)).saturating_sub(before);
        let is_kept = |file: &str| lines.iter().any(|line| line.body_path == file);
        self.order.retain(|(of, file)| of != host || is_kept(file));
        match lines.is_empty() {
            true => drop(self.hosts.remove(host)),
            false => drop(self.hosts.insert(host.to_owned(), lines)),
        }
    }
}

/// Returns the lines of an index that can be read.
fn lines_of(index: fs::File) -> Vec<IndexLine> {
    let (mut from, mut lines, mut line) = (BufReader::new(index), Vec::new(), Vec::new());
    loop {
        line.clear();
        match from.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return lines,
            Ok(_) => lines.extend(serde_json::from_slice::<IndexLine>(&line)),
        }
    }
}

/// Replaces the index of a host.
fn write_index(folder: &Path, lines: &VecDeque<IndexLine>) -> io::Result<()> {
    let mut index = part().tempfile_in(folder)?;
    for line in lines {
        serde_json::to_writer(&mut index, line)?;
        index.write_all(b"\n")?;
    }
    index.persist(folder.join(INDEX)).map(drop).map_err(|error| error.error)
}

/// Removes bodies that the index no longer names. One that cannot be removed only takes space.
fn remove(folder: &Path, gone: &[IndexLine]) {
    for line in gone {
        let _ = fs::remove_file(folder.join(&line.body_path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetch::Body;
    use fetchwise_types::response::Header;

    fn keep(pages: &FailedPages, url: &str, body: &str, at: i64) -> io::Result<PathBuf> {
        let url = Url::parse(url).unwrap();
        let headers = vec![Header::new("Content-Type", "text/html; charset=utf-8")];
        let response =
            Response::new(403, headers, Body::in_memory(body.as_bytes().to_vec()), url.clone());
        let verdict = VerdictReason::new(Some("cues"), &["refused"], Some(12));
        let at = Timestamp::from_millis(at);
        pages.keep(&FailedPage {
            url: &url,
            response: &response,
            fetcher: "direct_access",
            error_type: "blocked_403",
            verdict: Some(&verdict),
            at,
        })
    }

    fn files_below(dir: &Path) -> Vec<String> {
        let mut files = Vec::new();
        for host in fs::read_dir(dir).unwrap() {
            for file in fs::read_dir(host.unwrap().path()).unwrap() {
                files.push(file.unwrap().file_name().into_string().unwrap());
            }
        }
        files.sort();
        files
    }

    fn index(dir: &Path, host: &str) -> Vec<IndexLine> {
        lines_of(fs::File::open(dir.join(host).join(INDEX)).unwrap())
    }

    #[test]
    fn the_index_of_a_host_says_what_came_and_why_it_failed() {
        let dir = tempfile::tempdir().unwrap();
        let pages = FailedPages::open(dir.path(), FailedPageLimits::default()).unwrap();
        let file =
            keep(&pages, "https://me:secret@e.org/a?b#c", "<p>no", 1_790_000_000_000).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "<p>no");
        let lines = index(dir.path(), "e.org");
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!(
            (line.status, &*line.error_type, &*line.fetcher),
            (403, "blocked_403", "direct_access")
        );
        assert_eq!(file, dir.path().join("e.org").join(&line.body_path));
        assert!(
            !line.url.contains("secret")
                && line.verdict.as_ref().unwrap().rule.as_deref() == Some("cues")
        );
    }

    #[test]
    fn a_host_keeps_its_last_pages_over_runs_and_each_url_once() {
        let dir = tempfile::tempdir().unwrap();
        let limits = FailedPageLimits::default().with_per_host(3);
        for run in 0..3 {
            let pages = FailedPages::open(dir.path(), limits).unwrap();
            for n in 0..4 {
                keep(&pages, &format!("https://e.org/{run}/{n}"), "<p>no", run * 1_000_000 + n)
                    .unwrap();
            }
            keep(&pages, &format!("https://e.org/{run}/2"), "<p>again", run * 1_000_000 + 9)
                .unwrap();
        }
        let urls: Vec<_> = index(dir.path(), "e.org").into_iter().map(|line| line.url).collect();
        assert_eq!(urls, ["https://e.org/2/1", "https://e.org/2/3", "https://e.org/2/2"]);
        assert_eq!(files_below(dir.path()).len(), 4, "three bodies and the index");
    }

    #[test]
    fn the_oldest_bodies_of_all_hosts_go_first() {
        let dir = tempfile::tempdir().unwrap();
        let pages =
            FailedPages::open(dir.path(), FailedPageLimits::default().with_total_bytes(1000))
                .unwrap();
        for n in 0..30 {
            keep(&pages, &format!("https://h{}.org/{n}", n % 7), &"x".repeat(100), n).unwrap();
        }
        let lines = |host: i64| index(dir.path(), &format!("h{host}.org"));
        let kept: usize = (0..7).map(|host| lines(host).len()).sum();
        assert_eq!(kept, 10);
        assert!(
            (0..7)
                .flat_map(lines)
                .all(|line| line.at >= rfc3339::format(Timestamp::from_millis(20)))
        );
        let large = keep(&pages, "https://big.org/", &"x".repeat(5000), 99).unwrap();
        assert!(
            large.exists() && pages.known.lock().unwrap().order.len() == 1,
            "the newest always stays"
        );
    }

    #[test]
    fn files_of_others_and_damaged_lines_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("e.org");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("mine.html"), "mine").unwrap();
        fs::write(dir.path().join("secret"), "secret").unwrap();
        let bad = |path: &str| {
            format!(
                r#"{{"url":"https://e.org/","final_url":null,"status":200,"headers":{{}},"body_path":"{path}","error_type":"x","fetcher":"x","verdict":null,"at":"1970-01-01T00:00:00Z","bytes":4}}"#
            )
        };
        fs::write(
            folder.join(INDEX),
            format!("not json\n{}\n{}\n{{", bad("../secret"), bad("gone.html")),
        )
        .unwrap();
        let pages = FailedPages::open(
            dir.path(),
            FailedPageLimits::default().with_per_host(1).with_total_bytes(0),
        )
        .unwrap();
        for n in 0..3 {
            keep(&pages, &format!("https://e.org/{n}"), "<p>no", n).unwrap();
        }
        assert_eq!(fs::read_to_string(folder.join("mine.html")).unwrap(), "mine");
        assert_eq!(fs::read_to_string(dir.path().join("secret")).unwrap(), "secret");
        assert_eq!(index(dir.path(), "e.org").len(), 1);
    }

    /// As on a full disk: the new index cannot be written.
    #[cfg(unix)]
    #[test]
    fn what_was_kept_stays_when_nothing_can_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let pages =
            FailedPages::open(dir.path(), FailedPageLimits::default().with_per_host(1)).unwrap();
        let first = keep(&pages, "https://e.org/1", "<p>one", 1).unwrap();
        let folder = dir.path().join("e.org");
        fs::remove_file(folder.join(INDEX)).unwrap();
        fs::create_dir(folder.join(INDEX)).unwrap();
        assert!(keep(&pages, "https://e.org/2", "<p>two", 2).is_err());
        assert_eq!(fs::read_to_string(&first).unwrap(), "<p>one");
        assert_eq!(files_below(dir.path()).len(), 2, "no body without an index");
        fs::remove_dir(folder.join(INDEX)).unwrap();
        keep(&pages, "https://e.org/3", "<p>three", 3).unwrap();
        assert!(!first.exists() && index(dir.path(), "e.org").len() == 1);
    }
}
