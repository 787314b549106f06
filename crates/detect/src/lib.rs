//! Classification of HTTP responses: blocked, application shell, empty, or content.
//!
//! A crawler gets a body for nearly every request, but not always the page. It may get a captcha, a
//! refusal, a waiting room, or an application shell that only a browser can fill. This crate tells
//! them apart and names the vendor of a block. It does no I/O: the caller fetches with any client
//! and passes status, headers and body.
//!
//! # Start here
//!
//! [`Detector::judge`] takes a whole response and returns its [`Outcome`](fetch_result::Outcome),
//! with everything that an attempt log records about it:
//!
//! ```
//! use fetchwise_detect::Detector;
//! use fetchwise_detect::fetch_result::Outcome;
//!
//! let detector = Detector::new();
//! let headers = [("Content-Type", "text/html")];
//!
//! let result = detector.judge(200, headers, b"<title>Just a moment...</title><script>window._cf_chl_opt={}</script>");
//! assert!(matches!(result.outcome, Outcome::Blocked(_)));
//!
//! let page = format!("<h1>Opening hours</h1><p>{}</p>", "The museum is open from nine to five. ".repeat(10));
//! let result = detector.judge(200, headers, page.as_bytes());
//! assert_eq!(result.outcome, Outcome::Content);
//! ```
//!
//! # Details of a verdict
//!
//! [`Detector::inspect`] returns a [`Verdict`]: the kind of block, the vendor, the rule that
//! decided, a confidence, and facts about the page such as its visible characters. It works in a
//! [`Scratch`]. Keep one per thread: after the first pages, ordinary pages need no allocation.
//! [`Detector::explain`] also returns every rule that matched, whether it counted or not.
//!
//! ```
//! use fetchwise_detect::fetch_result::Outcome;
//! use fetchwise_detect::response::{Header, Page};
//! use fetchwise_detect::{Detector, Scratch};
//!
//! let detector = Detector::new();
//! let mut scratch = Scratch::default();
//! let headers = [Header::new("Content-Type", "text/html")];
//! let body = b"<title>Just a moment...</title><script>window._cf_chl_opt={}</script>";
//! let page = Page { status: 403, headers: &headers, body, ..Page::default() };
//! let verdict = detector.inspect(&page, &mut scratch);
//! assert!(verdict.is_blocked);
//! assert_eq!(verdict.vendor.as_deref(), Some("cloudflare"));
//! assert!(matches!(verdict.outcome(&page), Outcome::Blocked(_)));
//! ```
//!
//! # Custom rules
//!
//! Rules are TOML. [`Detector::shipped_rules`] returns the shipped ones, whose first lines explain
//! the keys. [`Detector::with_rules`] adds yours: a rule with the id of a shipped rule replaces it,
//! and `disable` removes shipped rules. [`Detector::reload`] exchanges them while other threads
//! read.
//!
//! ```
//! use fetchwise_detect::Detector;
//! use fetchwise_detect::fetch_result::Outcome;
//!
//! let detector = Detector::with_rules(
//!     r#"
//!     [[rule]]
//!     id = "intranet-gate"
//!     vendor = "gatekeeper"
//!     grade = "strong"
//!     find = ["gatekeeper-challenge"]
//!     note = "the gate in front of our own wiki"
//!     "#,
//! )?;
//! let result = detector.judge(200, [("Content-Type", "text/html")], b"<div class=gatekeeper-challenge>Wait</div>");
//! assert!(matches!(result.outcome, Outcome::Blocked(block) if block.vendor.as_deref() == Some("gatekeeper")));
//! # Ok::<(), fetchwise_detect::RuleError>(())
//! ```
//!
//! # How a page is read
//!
//! 1. Headers are compared with the rules.
//! 2. The body, at most [`DetectorOptions::max_bytes`], is copied in lower case.
//! 3. A streaming tokenizer reads title, text, links and forms. It stops when the page has more
//!    text than most rules allow, unless a header, the title or a marker may prove more.
//! 4. A search finds the markers of rules: in a page with much text only those that can prove
//!    something there.
//! 5. The evidence is weighed in the order of [`Grade`]. Where no rule decides, cues (what the main
//!    content says) are added up.
//!
//! Time is linear in the bytes read, whatever they are.
//!
//! # Features
//!
//! `json` adds [`evaluate`]: it scores a detector on a labelled corpus in JSON lines.
//!
//! Must not know: which fetcher made the request.

mod classify;
mod collect;
mod cue_tally;
mod cues;
#[cfg(feature = "json")]
mod evaluate;
mod html;
mod identifiers;
mod keyword_baseline;
mod login_address;
mod network_signs;
mod options;
mod rules;
mod scratch;
mod sentences;
mod short_text;
mod simhash;
mod to_outcome;
mod verdict;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;

pub use cue_tally::{Cue, CueSum};
#[cfg(feature = "json")]
pub use evaluate::{
    ClassScore, ConfidenceBand, EvaluateError, Evaluation, EvaluationRun, LabelledPage,
    Misclassification, PageClass, evaluate, wilson,
};
pub use html::page_text::page_text;
pub use html::robots_meta::robots_meta;
pub use html::visibility::PagePart;
pub use options::DetectorOptions;
pub use rules::file::{RuleError, RuleFileError};
pub use rules::strength::Grade;
pub use scratch::Scratch;
pub use verdict::{CONTENT_CHARS, ResponseExtractor, RuleMatch, Vendors, Verdict, heuristics};

pub use fetchwise_types::{fetch_result, heuristic, response};

use crate::html::tokenizer::Finders;
use crate::options::ReadContext;
use crate::rules::compiled::RuleTable;
use fetchwise_types::response::Page;

#[derive(Debug)]
enum DetectorMode {
    Rules,
    Keywords,
}

/// Classifier of responses. `Send` and `Sync`: share it behind an [`Arc`].
///
/// Invariants: each page is read with one set of rules from beginning to end, also while another
/// thread exchanges them ([`Detector::reload`]). Reading takes no lock.
#[derive(Debug)]
pub struct Detector {
    table: ArcSwap<RuleTable>,
    context: ReadContext,
    mode: DetectorMode,
}

/// A verdict with its evidence.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The verdict.
    pub verdict: Verdict,
    /// The rules that matched, whether they counted or not.
    pub matches: Vec<RuleMatch>,
    /// The cues of a block and their sum. `None` if the page contains nothing that only block pages
    /// say.
    pub cues: Option<CueSum>,
}

impl Default for Detector {
    fn default() -> Self {
        Self::new()
    }
}

impl Detector {
    /// Creates a detector with the shipped rules. The first call in a process compiles them; later
    /// calls share the result.
    pub fn new() -> Self {
        Self::of(rules::shipped(), DetectorMode::Rules)
    }

    /// Creates a detector with the shipped rules and custom ones in the same TOML format (see
    /// `docs/guides/detection-rules.md`). A rule with the id of a shipped rule replaces it;
    /// `disable = ["id"]` removes shipped rules.
    ///
    /// # Errors
    ///
    /// [`RuleError`], with line and field. A file with an error is rejected as a whole.
    pub fn with_rules(toml: &str) -> Result<Self, RuleError> {
        Ok(Self::of(Arc::new(rules::with(Some(toml))?), DetectorMode::Rules))
    }

    /// Like [`Detector::with_rules`], from a file.
    ///
    /// # Errors
    ///
    /// [`RuleFileError`], with the file, line and field.
    pub fn from_file(path: &Path) -> Result<Self, RuleFileError> {
        let toml = read_rules(path)?;
        Self::with_rules(&toml)
            .map_err(|source| RuleFileError::Rules { path: path.to_owned(), source })
    }

    /// Replaces the rules by the shipped ones plus custom ones. Other threads may read meanwhile;
    /// pages that they are reading are finished with the old rules.
    ///
    /// # Errors
    ///
    /// [`RuleError`], with line and field. The old rules stay in force.
    ///
    /// ```
    /// use fetchwise_detect::Detector;
    ///
    /// let detector = Detector::new();
    /// let before = detector.rule_count();
    /// let error = detector.reload("[[rule]]\nid = 'mine'\ngrade = 'strong'\nfind = ['abc']\nnote = 'x'").unwrap_err();
    /// assert!(error.to_string().starts_with("line 1: rule `mine`, field `find`"));
    /// assert_eq!(detector.rule_count(), before);
    ///
    /// detector.reload("[[rule]]\nid = 'mine'\ngrade = 'strong'\nfind = ['abcd']\nnote = 'x'")?;
    /// assert_eq!(detector.rule_count(), before + 1);
    /// # Ok::<(), fetchwise_detect::RuleError>(())
    /// ```
    pub fn reload(&self, toml: &str) -> Result<(), RuleError> {
        self.table.store(Arc::new(rules::with(Some(toml))?));
        Ok(())
    }

    /// Like [`Detector::reload`], from a file.
    ///
    /// # Errors
    ///
    /// [`RuleFileError`], with the file, line and field. The old rules stay in force.
    pub fn reload_file(&self, path: &Path) -> Result<(), RuleFileError> {
        let toml = read_rules(path)?;
        self.reload(&toml).map_err(|source| RuleFileError::Rules { path: path.to_owned(), source })
    }

    /// Creates a baseline to compare with: seven keywords anywhere in the body, or status 403 or 429.
    /// Reloading has no effect.
    pub fn keywords() -> Self {
        Self::of(rules::none(), DetectorMode::Keywords)
    }

    /// Creates a detector with the shipped rules that name no vendor. It shows how well unlisted
    /// vendors are recognised.
    pub fn generic() -> Self {
        Self::of(rules::shipped_generic(), DetectorMode::Rules)
    }

    /// Sets the options and keeps the rules.
    #[must_use]
    pub fn with_options(mut self, options: DetectorOptions) -> Self {
        self.context.options = options;
        self
    }

    /// Sets the number of visible characters from which on a page of `host` is content, instead of [`CONTENT_CHARS`]:
    /// a site of short pages has a small one. Reading stops at some thousand characters, so no
    /// larger number helps.
    ///
    /// ```
    /// use fetchwise_detect::Detector;
    /// use fetchwise_detect::fetch_result::Outcome;
    /// use fetchwise_detect::response::{Header, Page};
    ///
    /// let headers = [Header::new("Content-Type", "text/html")];
    /// let body = b"<div id=root></div><p>14.2 \xC2\xB0C, dry</p><script src=/app.js></script>";
    /// let url = Some("https://gauge.example/now");
    /// let page = Page { status: 200, headers: &headers, body, url, ..Page::default() };
    /// assert_ne!(Detector::new().judge_page(&page).outcome, Outcome::Content);
    /// let detector = Detector::new().with_min_chars("gauge.example", 8);
    /// assert_eq!(detector.judge_page(&page).outcome, Outcome::Content);
    /// ```
    #[must_use]
    pub fn with_min_chars(mut self, host: &str, chars: u32) -> Self {
        self.context.min_chars.insert(host.to_ascii_lowercase().into(), chars);
        self
    }

    /// Returns the TOML of the shipped rules: it documents the format, and is a start for custom
    /// rules.
    pub fn shipped_rules() -> &'static str {
        rules::SHIPPED
    }

    /// Returns the number of rules.
    pub fn rule_count(&self) -> usize {
        self.table.load().rules.len()
    }

    /// Returns the vendors that rules name, as in the heuristic `block_VENDOR`.
    pub fn vendors(&self) -> Arc<[Arc<str>]> {
        Arc::clone(&self.table.load().vendors)
    }

    fn of(table: Arc<RuleTable>, mode: DetectorMode) -> Self {
        let context = ReadContext {
            finders: Finders::new(),
            options: DetectorOptions::default(),
            min_chars: HashMap::new(),
        };
        Self { table: ArcSwap::new(table), context, mode }
    }

    /// Reads one response. Time is linear in the bytes read. Ordinary pages need no allocation once
    /// `scratch` has grown.
    pub fn inspect(&self, page: &Page<'_>, scratch: &mut Scratch) -> Verdict {
        match self.mode {
            DetectorMode::Rules => {
                classify::inspect(&self.context, &self.table.load(), page, scratch, |judged| {
                    judged.verdict
                })
            }
            DetectorMode::Keywords => keyword_baseline::inspect(page, scratch),
        }
    }

    /// Like [`Detector::inspect`], with all evidence and its position, whether it counted or not.
    pub fn explain(&self, page: &Page<'_>, scratch: &mut Scratch) -> Explanation {
        match self.mode {
            DetectorMode::Rules => {
                classify::inspect(&self.context, &self.table.load(), page, scratch, |judged| {
                    judged.explained()
                })
            }
            DetectorMode::Keywords => {
                let verdict = keyword_baseline::inspect(page, scratch);
                Explanation { verdict, matches: Vec::new(), cues: None }
            }
        }
    }
}

fn read_rules(path: &Path) -> Result<String, RuleFileError> {
    std::fs::read_to_string(path)
        .map_err(|source| RuleFileError::Unreadable { path: path.to_owned(), source })
}
