//! The state of an interrupted run: the links that are done.
//!
//! The inputs and outputs of a run identify it. During the run, a small file in the data directory gets one line for
//! each link whose result was written. When the run completes, the file is removed, so that the same command fetches
//! everything again.
//!
//! Invariants: a link is recorded only after its result was passed on, and only if the result is the link's own. A link
//! that failed for lack of disk space, of a fetcher or because of a pause is fetched again. An incomplete line of a
//! crash is ignored. The lock of the data directory keeps two runs apart.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::FetchArgs;
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::pipeline::{Link, Report};

/// The number of hex digits of a link's hash.
const DIGITS: usize = 32;

/// The state of a run.
#[derive(Debug)]
pub(super) struct Resume {
    path: PathBuf,
    /// The links that an earlier run finished, and how often.
    earlier: HashMap<u128, u32>,
    /// Opened when the first link is done.
    file: Option<File>,
    failed: bool,
}

impl Resume {
    /// Looks in `dir` for an earlier run with the same inputs and outputs; with `restart` removes it.
    pub(super) fn open(dir: &Path, args: &FetchArgs, restart: bool) -> io::Result<Self> {
        let path = dir.join(format!("run-{:032x}", key(args)));
        let mut earlier = HashMap::new();
        if restart {
            remove(&path)?;
        } else {
            let mut text = Vec::new();
            match File::open(&path) {
                Ok(mut file) => drop(file.read_to_end(&mut text)?),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            for line in text.split(|byte| *byte == b'\n').filter(|line| line.len() == DIGITS) {
                if let Some(hash) = std::str::from_utf8(line).ok().and_then(|hex| u128::from_str_radix(hex, 16).ok()) {
                    *earlier.entry(hash).or_default() += 1;
                }
            }
        }
        Ok(Self { path, earlier, file: None, failed: false })
    }

    /// Returns whether an earlier run finished this link. Equal links are skipped as often as they were finished.
    pub(super) fn skips(&mut self, link: &Link) -> bool {
        match self.earlier.get_mut(&hash(link)) {
            Some(times) if *times > 0 => {
                *times -= 1;
                true
            }
            _ => false,
        }
    }

    /// Records that a link is done. A failed write only means that the link is fetched again after an interruption; no
    /// further write is tried.
    pub(super) fn note(&mut self, hash: u128) {
        if self.failed {
            return;
        }
        let written = self.file().and_then(|mut file| {
            // The line break comes first, so that an incomplete line of a crash does not affect the next one.
            file.write_all(format!("\n{hash:0width$x}\n", width = DIGITS).as_bytes())
        });
        self.failed = written.is_err();
    }

    /// Ends a complete run: the next one fetches everything again.
    pub(super) fn complete(self) {
        let _ = remove(&self.path);
    }

    fn file(&mut self) -> io::Result<&File> {
        if self.file.is_none() {
            self.file = Some(OpenOptions::new().create(true).append(true).open(&self.path)?);
        }
        self.file.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Returns whether a link is done: it was delivered, or ended in an outcome of the table. Any other result describes
/// this machine, this moment or the speed of the crawl, not the link.
pub(super) fn is_done(report: &Report) -> bool {
    let later = [ErrorKind::LocalFault, ErrorKind::RateLimited];
    let own = |error_type| ErrorKind::from_name(error_type).is_some_and(|kind| !later.contains(&kind));
    report.success || report.error_type.is_some_and(own)
}

/// Returns the hash by which a link is recorded.
pub(super) fn hash(link: &Link) -> u128 {
    let id = link.id.as_deref().unwrap_or_default();
    xxh3_128(format!("{id}\0{}", link.url).as_bytes())
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
    for path in [&args.input, &args.out, &args.warc] {
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

    fn args(line: &str) -> FetchArgs {
        match Cli::try_parse_from(format!("fetchwise fetch {line}").split(' ')).unwrap().command {
            Command::Fetch(args) => args,
            _ => panic!("not a fetch"),
        }
    }

    #[test]
    fn finished_links_are_skipped_as_often_as_they_were_finished() {
        let dir = tempfile::tempdir().unwrap();
        let run = args("http://e.org/ --out pages");
        let (a, b) = (Link::new("http://e.org/a"), Link::new("http://e.org/b"));
        let mut first = Resume::open(dir.path(), &run, false).unwrap();
        assert!(!first.skips(&a));
        first.note(hash(&a));
        first.note(hash(&a));
        drop(first);
        let mut second = Resume::open(dir.path(), &run, false).unwrap();
        assert_eq!([&a, &b, &a, &a].map(|link| second.skips(link)), [true, false, true, false]);
        second.note(hash(&b));
        second.complete();
        assert!(!Resume::open(dir.path(), &run, false).unwrap().skips(&a));
    }

    #[test]
    fn only_a_links_own_outcome_counts_as_done() {
        let ended = |error_type| is_done(&Report { error_type: Some(error_type), ..Report::default() });
        assert!(is_done(&Report { success: true, ..Report::default() }));
        for &kind in ErrorKind::ALL {
            let later = matches!(kind, ErrorKind::LocalFault | ErrorKind::RateLimited);
            assert_eq!(ended(kind.name()), !later, "{kind}");
        }
        let later = [
            Report::STORE_ERROR,
            Report::NO_ROUTE,
            Report::NO_FETCHER,
            Report::NO_VIABLE_FETCHER,
            Report::PAUSED,
            "internal_error",
        ];
        assert!(later.into_iter().all(|error_type| !ended(error_type)));
        // A page that arrived and could not be stored is not done.
        assert!(!is_done(&Report { success: false, status: Some(200), ..Report::default() }));
    }

    #[test]
    fn an_incomplete_line_is_ignored_and_affects_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let run = args("http://e.org/");
        let link = Link::new("http://e.org/a");
        let mut first = Resume::open(dir.path(), &run, false).unwrap();
        first.note(hash(&link));
        let path = first.path.clone();
        drop(first);
        let text = fs::read(&path).unwrap();
        fs::write(&path, &text[..text.len() - 5]).unwrap();
        let mut second = Resume::open(dir.path(), &run, false).unwrap();
        assert!(!second.skips(&link));
        second.note(hash(&link));
        drop(second);
        assert!(Resume::open(dir.path(), &run, false).unwrap().skips(&link));
    }

    #[test]
    fn other_inputs_or_outputs_are_another_run_and_restart_removes_it() {
        let lines = ["http://e.org/", "http://f.org/", "http://e.org/ --out a", "http://e.org/ --warc a", "--input a"];
        let keys: std::collections::HashSet<u128> = lines.iter().map(|line| key(&args(line))).collect();
        assert_eq!(keys.len(), lines.len());
        assert_eq!(key(&args("http://e.org/")), key(&args("http://e.org/ --concurrency 3 --json")));
        let dir = tempfile::tempdir().unwrap();
        let link = Link::new("http://e.org/");
        Resume::open(dir.path(), &args(lines[0]), false).unwrap().note(hash(&link));
        assert!(!Resume::open(dir.path(), &args(lines[0]), true).unwrap().skips(&link));
    }
}
