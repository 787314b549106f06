//! Judging the detector on labelled pages: a confusion table, precision, recall, and every miss and false alarm with its rule.
//!
//! A corpus is a file of JSON lines, `{"label", "status", "headers", "url", "body_path"}` and anything else, bodies in files of
//! their own (a relative path is relative to the JSONL file). Labels: `block`, `spa_shell` and `queue` are what they say,
//! `empty` is a page without content, every other label is a page with content.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Detector, Scratch, Verdict};
use crate::response::{Header, Page};

/// Why a corpus cannot be judged on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluateError {
    /// The file, or a body it names, cannot be read.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: std::io::Error,
    },
    /// A line is not what it should be.
    #[error("{path}, line {line}: {message}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        message: String,
    },
}

/// One line of a corpus.
#[derive(Clone, Debug, Deserialize)]
pub struct Labelled {
    /// What the page is.
    pub label: String,
    /// More about it, for reports.
    #[serde(default)]
    pub detail: String,
    /// The HTTP status; 200 when absent.
    #[serde(default = "ok")]
    pub status: u16,
    /// The response headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The URL.
    #[serde(default)]
    pub url: Option<String>,
    /// Where the body is.
    pub body_path: PathBuf,
}

fn ok() -> u16 {
    200
}

/// What a page was taken for, or should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Class {
    /// A challenge or a refusal.
    Blocked,
    /// A waiting room.
    Queued,
    /// An application's shell.
    Shell,
    /// Nothing to read.
    Empty,
    /// Content.
    Content,
}

impl Class {
    /// Every class, in the order of the table's columns.
    pub const ALL: [Self; 5] = [Self::Blocked, Self::Queued, Self::Shell, Self::Empty, Self::Content];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::Queued => "queued",
            Self::Shell => "shell",
            Self::Empty => "empty",
            Self::Content => "content",
        }
    }

    /// What `verdict` takes its page for.
    pub fn of(verdict: &Verdict) -> Self {
        if verdict.is_queued {
            Self::Queued
        } else if verdict.is_blocked {
            Self::Blocked
        } else if verdict.has_spa {
            Self::Shell
        } else if verdict.is_empty {
            Self::Empty
        } else {
            Self::Content
        }
    }

    fn labelled(label: &str) -> Self {
        match label {
            "block" | "blocked" => Self::Blocked,
            "queue" | "queued" => Self::Queued,
            "spa_shell" | "shell" => Self::Shell,
            "empty" => Self::Empty,
            _ => Self::Content,
        }
    }
}

/// A page that was taken for something it is not.
#[derive(Clone, Debug, Serialize)]
pub struct Mistake {
    /// Where the body is, as the corpus names it.
    pub body_path: PathBuf,
    /// The label it has.
    pub label: String,
    /// The detail it has.
    pub detail: String,
    /// What it was taken for.
    pub taken_for: Class,
    /// The rule that decided, if one did.
    pub rule: Option<String>,
    /// The verdict in words.
    pub reason: String,
}

/// How often one class was recognised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Score {
    /// Pages of the class that were taken for it.
    pub hits: usize,
    /// Pages of the class that were not.
    pub misses: usize,
    /// Pages of other classes that were taken for it.
    pub false_alarms: usize,
    /// Pages of other classes.
    pub others: usize,
}

impl Score {
    /// Of the pages of the class, the share that was recognised; none without pages.
    pub fn recall(&self) -> Option<f64> {
        share(self.hits, self.hits + self.misses)
    }

    /// Of the pages taken for the class, the share that was right; none when none was.
    pub fn precision(&self) -> Option<f64> {
        share(self.hits, self.hits + self.false_alarms)
    }

    /// Of the pages of other classes, the share taken for this one; none without pages.
    pub fn false_alarm_rate(&self) -> Option<f64> {
        share(self.false_alarms, self.others)
    }
}

fn share(part: usize, whole: usize) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// How a detector judged the pages of a corpus.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Evaluation {
    /// Pages judged.
    pub pages: usize,
    /// For each label, how many of its pages were taken for each class, in the order of [`Class::ALL`].
    pub table: BTreeMap<String, [usize; 5]>,
    /// Blocks.
    pub block: Score,
    /// Shells.
    pub shell: Score,
    /// Pages taken for something they are not. A shell taken for an empty page is one, and the other way round.
    pub mistakes: Vec<Mistake>,
}

impl fmt::Display for Evaluation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<16}", "label")?;
        for class in Class::ALL {
            write!(f, "{:>9}", class.name())?;
        }
        writeln!(f)?;
        for (label, row) in &self.table {
            write!(f, "{label:<16}")?;
            for count in row {
                write!(f, "{count:>9}")?;
            }
            writeln!(f)?;
        }
        for (name, score) in [("block", &self.block), ("shell", &self.shell)] {
            let percent = |share: Option<f64>| share.map_or("none".to_owned(), |s| format!("{:.2} %", s * 100.0));
            writeln!(
                f,
                "{name}: recall {} ({} of {}), precision {}, false alarms {} ({} of {})",
                percent(score.recall()),
                score.hits,
                score.hits + score.misses,
                percent(score.precision()),
                percent(score.false_alarm_rate()),
                score.false_alarms,
                score.others,
            )?;
        }
        for m in &self.mistakes {
            let detail = if m.detail.is_empty() { "-" } else { &m.detail };
            writeln!(
                f,
                "{} ({}, {}): taken for {}: {}",
                m.body_path.display(),
                m.label,
                detail,
                m.taken_for.name(),
                m.reason
            )?;
        }
        Ok(())
    }
}

/// Judges `detector` on the corpus at `path`.
///
/// # Errors
///
/// A file that cannot be read, or a line that is no labelled page, with its number.
pub fn evaluate(detector: &Detector, path: &Path) -> Result<Evaluation, EvaluateError> {
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| EvaluateError::Io { path, source }
    };
    let file = fs::File::open(path).map_err(io(path))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut evaluation = Evaluation::default();
    let mut scratch = Scratch::default();
    for (index, line) in BufReader::new(file).lines().enumerate() {
        let line = line.map_err(io(path))?;
        if line.trim().is_empty() {
            continue;
        }
        let page: Labelled = serde_json::from_str(&line).map_err(|e| EvaluateError::Line {
            path: path.to_owned(),
            line: index + 1,
            message: e.to_string(),
        })?;
        let body_path = folder.join(&page.body_path);
        let body = fs::read(&body_path).map_err(io(&body_path))?;
        let headers: Vec<Header> = page.headers.iter().map(|(n, v)| Header::new(n, v)).collect();
        let response =
            Page { url: page.url.as_deref(), final_url: None, status: page.status, headers: &headers, body: &body };
        let verdict = detector.inspect(&response, &mut scratch);
        evaluation.add(&page, &verdict);
    }
    Ok(evaluation)
}

impl Evaluation {
    /// Counts one page in.
    pub fn add(&mut self, page: &Labelled, verdict: &Verdict) {
        let (is, taken_for) = (Class::labelled(&page.label), Class::of(verdict));
        self.pages += 1;
        let row = self.table.entry(page.label.clone()).or_default();
        row[Class::ALL.iter().position(|c| *c == taken_for).unwrap_or(4)] += 1;
        for (class, score) in [(Class::Blocked, &mut self.block), (Class::Shell, &mut self.shell)] {
            match (is == class, taken_for == class) {
                (true, true) => score.hits += 1,
                (true, false) => score.misses += 1,
                (false, true) => score.false_alarms += 1,
                (false, false) => {}
            }
            score.others += usize::from(is != class);
        }
        if is != taken_for {
            self.mistakes.push(Mistake {
                body_path: page.body_path.clone(),
                label: page.label.clone(),
                detail: page.detail.clone(),
                taken_for,
                rule: verdict.rule.as_deref().map(str::to_owned),
                reason: verdict.reason(),
            });
        }
    }
}
