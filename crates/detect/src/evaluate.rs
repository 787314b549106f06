//! Evaluation of the detector on labelled pages: confusion table, precision, recall, and every
//! mistake with its rule.
//!
//! Each page is classified twice: with its own status, and as if the status were 200. A 403
//! indicates a block whatever the page says, so only the second run shows what the detector reads
//! in the body.
//!
//! A corpus is a file of JSON lines, `{"label", "status", "headers", "url", "body_path"}` plus any
//! other keys. Bodies are separate files; a relative path is relative to the JSON lines file. The
//! labels `block`, `spa_shell` and `queue` have their obvious meaning, `empty` is a page without
//! content, and every other label is a page with content.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::scratch::Scratch;
use crate::verdict::Verdict;

use super::Detector;
use fetchwise_types::response::{Header, Page};

/// The reason why a corpus cannot be evaluated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluateError {
    /// The file, or a body that it names, cannot be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A line is invalid.
    #[error("{path}, line {line}: invalid labelled page: {message}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line number, from 1.
        line: usize,
        /// The problem.
        message: String,
    },
}

/// One line of a corpus.
#[derive(Clone, Debug, Deserialize)]
pub struct LabelledPage {
    /// The class of the page.
    pub label: String,
    /// Details, for reports.
    #[serde(default)]
    pub detail: String,
    /// The HTTP status; 200 if absent.
    #[serde(default = "ok")]
    pub status: u16,
    /// The response headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The URL.
    #[serde(default)]
    pub url: Option<String>,
    /// The path of the body.
    pub body_path: PathBuf,
}

fn ok() -> u16 {
    200
}

/// A class of pages: predicted or actual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PageClass {
    /// A challenge or a refusal.
    Blocked,
    /// A waiting room.
    Queued,
    /// An application shell.
    Shell,
    /// A failure of the server.
    Failed,
    /// Nothing to read.
    Empty,
    /// Content.
    Content,
}

impl PageClass {
    /// Every class, in the order of the table's columns.
    pub const ALL: [Self; 6] =
        [Self::Blocked, Self::Queued, Self::Shell, Self::Failed, Self::Empty, Self::Content];

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::Queued => "queued",
            Self::Shell => "shell",
            Self::Failed => "failed",
            Self::Empty => "empty",
            Self::Content => "content",
        }
    }

    /// Returns the class that `verdict` predicts.
    pub fn of(verdict: &Verdict) -> Self {
        if verdict.is_queued {
            Self::Queued
        } else if verdict.is_blocked {
            Self::Blocked
        } else if verdict.is_server_error {
            Self::Failed
        } else if verdict.has_spa {
            Self::Shell
        } else if verdict.is_empty || verdict.is_undecoded {
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
            "failure" | "failed" => Self::Failed,
            "empty" => Self::Empty,
            _ => Self::Content,
        }
    }
}

/// A page that was classified wrongly.
#[derive(Clone, Debug, Serialize)]
pub struct Misclassification {
    /// The path of the body, as the corpus has it.
    pub body_path: PathBuf,
    /// Its label.
    pub label: String,
    /// Its detail.
    pub detail: String,
    /// The predicted class.
    pub taken_for: PageClass,
    /// The id of the rule that decided, if a rule did.
    pub rule: Option<String>,
    /// The verdict in words.
    pub reason: String,
}

/// Recognition counts of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ClassScore {
    /// Pages of the class that were recognised (true positives).
    pub hits: usize,
    /// Pages of the class that were missed (false negatives).
    pub misses: usize,
    /// Pages of other classes that were taken for it (false positives).
    pub false_alarms: usize,
    /// Pages of other classes.
    pub others: usize,
}

impl ClassScore {
    /// Returns the share of the class's pages that was recognised; `None` without such pages.
    pub fn recall(&self) -> Option<f64> {
        share(self.hits, self.hits + self.misses)
    }

    /// Returns the share of predictions of this class that was right; `None` without predictions.
    pub fn precision(&self) -> Option<f64> {
        share(self.hits, self.hits + self.false_alarms)
    }

    /// Returns the share of other pages that was taken for this class; `None` without other pages.
    pub fn false_alarm_rate(&self) -> Option<f64> {
        share(self.false_alarms, self.others)
    }
}

fn share(part: usize, whole: usize) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Returns the Wilson score interval at 95 % of `part` in `whole`. `None` if `whole` is 0.
pub fn wilson(part: usize, whole: usize) -> Option<(f64, f64)> {
    const Z: f64 = 1.96;
    let share = share(part, whole)?;
    let n = whole as f64;
    let centre = share + Z * Z / (2.0 * n);
    let spread = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + Z * Z / n;
    Some((((centre - spread) / scale).max(0.0), ((centre + spread) / scale).min(1.0)))
}

/// Verdicts of one class and one band of confidence, with the number of right ones.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ConfidenceBand {
    /// The predicted class.
    pub class: PageClass,
    /// The lowest confidence of the band.
    pub from: f32,
    /// Number of verdicts.
    pub verdicts: usize,
    /// Number of right verdicts.
    pub right: usize,
    /// Their mean confidence.
    pub claimed: f64,
}

/// Lower bounds of the confidence bands.
const BANDS: [f32; 6] = [0.0, 0.5, 0.7, 0.85, 0.93, 0.97];
/// Classes whose verdicts have a confidence.
const CLAIMING: [PageClass; 3] = [PageClass::Blocked, PageClass::Queued, PageClass::Shell];

/// Results of one run over the corpus.
#[derive(Clone, Debug, Default, Serialize)]
pub struct EvaluationRun {
    /// For each label, the number of pages by predicted class, in the order of [`PageClass::ALL`].
    pub table: BTreeMap<String, [usize; 6]>,
    /// Blocks.
    pub block: ClassScore,
    /// Shells.
    pub shell: ClassScore,
    /// Pages without content. A corpus may have none; then only the false alarms count.
    pub empty: ClassScore,
    /// Right verdicts by confidence.
    pub reliability: Vec<ConfidenceBand>,
    /// Wrongly classified pages. A shell taken for an empty page is a mistake, and vice versa.
    pub mistakes: Vec<Misclassification>,
}

/// Results of a detector on a corpus.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Evaluation {
    /// Number of pages.
    pub pages: usize,
    /// With the pages' own statuses.
    pub given: EvaluationRun,
    /// As if every status were 200: only headers and body count.
    pub at_200: EvaluationRun,
}

impl Evaluation {
    /// Returns both runs with their names.
    fn both(&self) -> [(&'static str, &EvaluationRun); 2] {
        [("given", &self.given), ("200", &self.at_200)]
    }
}

/// Formats a share with its confidence interval.
fn percent(part: usize, whole: usize) -> String {
    match (share(part, whole), wilson(part, whole)) {
        (Some(share), Some((low, high))) => {
            format!(
                "{:.2} % ({part} of {whole}; {:.1} to {:.1})",
                share * 100.0,
                low * 100.0,
                high * 100.0
            )
        }
        _ => "none".to_owned(),
    }
}

impl fmt::Display for Evaluation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<16}{:>7}", "label", "status")?;
        for class in PageClass::ALL {
            write!(f, "{:>9}", class.name())?;
        }
        writeln!(f, "   right, with the 95 % interval")?;
        for label in self.given.table.keys() {
            for (status, judged) in self.both() {
                let Some(row) = judged.table.get(label) else { continue };
                write!(f, "{label:<16}{status:>7}")?;
                for count in row {
                    write!(f, "{count:>9}")?;
                }
                let right = PageClass::ALL
                    .iter()
                    .position(|class| *class == PageClass::labelled(label))
                    .map_or(0, |n| row[n]);
                writeln!(f, "   {}", percent(right, row.iter().sum()))?;
            }
        }
        for (status, judged) in self.both() {
            for (name, score) in
                [("block", &judged.block), ("shell", &judged.shell), ("empty", &judged.empty)]
            {
                writeln!(
                    f,
                    "{name} at status {status}: recall {}, precision {}, false alarms {}",
                    percent(score.hits, score.hits + score.misses),
                    percent(score.hits, score.hits + score.false_alarms),
                    percent(score.false_alarms, score.others),
                )?;
            }
        }
        writeln!(
            f,
            "{:<10}{:>7}{:>12}{:>10}   right, with the 95 % interval",
            "verdict", "status", "confidence", "claimed"
        )?;
        for (status, judged) in self.both() {
            for band in &judged.reliability {
                let from = format!("from {:.2}", band.from);
                write!(f, "{:<10}{status:>7}{from:>12}{:>10.3}", band.class.name(), band.claimed)?;
                writeln!(f, "   {}", percent(band.right, band.verdicts))?;
            }
        }
        for (status, judged) in self.both() {
            for m in &judged.mistakes {
                let detail = if m.detail.is_empty() { "-" } else { &m.detail };
                let (path, label, taken_for) =
                    (m.body_path.display(), &m.label, m.taken_for.name());
                writeln!(
                    f,
                    "{path} ({label}, {detail}), status {status}: taken for {taken_for}: {}",
                    m.reason
                )?;
            }
        }
        Ok(())
    }
}

/// Evaluates `detector` on the corpus at `path`.
///
/// # Errors
///
/// A file cannot be read, or a line is not a labelled page; the error has its number.
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
        let page: LabelledPage = serde_json::from_str(&line).map_err(|e| EvaluateError::Line {
            path: path.to_owned(),
            line: index + 1,
            message: e.to_string(),
        })?;
        let body_path = folder.join(&page.body_path);
        let body = fs::read(&body_path).map_err(io(&body_path))?;
        let headers: Vec<Header> = page.headers.iter().map(|(n, v)| Header::new(n, v)).collect();
        let given = Page {
            url: page.url.as_deref(),
            final_url: None,
            status: page.status,
            headers: &headers,
            body: &body,
        };
        let verdict = detector.inspect(&given, &mut scratch);
        evaluation.given.add(&page, &verdict);
        evaluation
            .at_200
            .add(&page, &detector.inspect(&Page { status: 200, ..given }, &mut scratch));
        evaluation.pages += 1;
    }
    Ok(evaluation)
}

impl EvaluationRun {
    /// Counts one page.
    pub fn add(&mut self, page: &LabelledPage, verdict: &Verdict) {
        let (is, taken_for) = (PageClass::labelled(&page.label), PageClass::of(verdict));
        let row = self.table.entry(page.label.clone()).or_default();
        row[PageClass::ALL.iter().position(|c| *c == taken_for).unwrap_or(5)] += 1;
        let scores = [
            (PageClass::Blocked, &mut self.block),
            (PageClass::Shell, &mut self.shell),
            (PageClass::Empty, &mut self.empty),
        ];
        for (class, score) in scores {
            match (is == class, taken_for == class) {
                (true, true) => score.hits += 1,
                (true, false) => score.misses += 1,
                (false, true) => score.false_alarms += 1,
                (false, false) => {}
            }
            score.others += usize::from(is != class);
        }
        if CLAIMING.contains(&taken_for) {
            self.claim(taken_for, verdict.confidence, is == taken_for);
        }
        if is != taken_for {
            self.mistakes.push(Misclassification {
                body_path: page.body_path.clone(),
                label: page.label.clone(),
                detail: page.detail.clone(),
                taken_for,
                rule: verdict.rule.as_deref().map(str::to_owned),
                reason: verdict.reason(),
            });
        }
    }

    /// Counts a verdict in its confidence band.
    fn claim(&mut self, class: PageClass, confidence: f32, is_right: bool) {
        let from = BANDS.into_iter().rfind(|from| *from <= confidence).unwrap_or_default();
        let at =
            match self.reliability.iter().position(|band| band.class == class && band.from == from)
            {
                Some(at) => at,
                None => {
                    self.reliability.push(ConfidenceBand {
                        class,
                        from,
                        verdicts: 0,
                        right: 0,
                        claimed: 0.0,
                    });
                    self.reliability.sort_by(|a, b| {
                        (a.class, b.from).partial_cmp(&(b.class, a.from)).unwrap_or(Ordering::Equal)
                    });
                    return self.claim(class, confidence, is_right);
                }
            };
        let band = &mut self.reliability[at];
        band.claimed = (band.claimed * band.verdicts as f64 + f64::from(confidence))
            / (band.verdicts + 1) as f64;
        band.verdicts += 1;
        band.right += usize::from(is_right);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_contains_its_share_and_narrows_with_more_pages() {
        let (low, high) = wilson(45, 50).unwrap_or_default();
        assert!((low - 0.786).abs() < 0.001 && (high - 0.957).abs() < 0.001, "{low} {high}");
        assert_eq!(wilson(0, 10).map(|(low, _)| low), Some(0.0));
        assert_eq!(wilson(10, 10).map(|(_, high)| high), Some(1.0));
        let width = |n| wilson(n / 2, n).map(|(low, high)| high - low).unwrap_or_default();
        assert!(width(1000) < width(100) && width(100) < width(10));
        assert_eq!(wilson(0, 0), None);
    }

    #[test]
    fn verdicts_are_counted_in_the_band_of_their_confidence() {
        let mut judged = EvaluationRun::default();
        for (confidence, right) in [(0.98, true), (0.6, false), (0.98, true), (0.69, true)] {
            judged.claim(PageClass::Blocked, confidence, right);
        }
        let rows: Vec<_> =
            judged.reliability.iter().map(|band| (band.from, band.right, band.verdicts)).collect();
        assert_eq!(rows, [(0.97, 2, 2), (0.5, 1, 2)]);
    }
}
