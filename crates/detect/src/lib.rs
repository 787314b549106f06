//! Reading a response: blocked, SPA shell, empty, or content.
//!
//! A [`Detector`] holds the compiled rule table; it is shared between threads, and its rules may be exchanged while they read
//! ([`Detector::reload`]). [`Detector::inspect`] reads one response with a
//! [`Scratch`] that is kept from page to page, so that the common path allocates nothing:
//!
//! 1. headers are compared with the table;
//! 2. the body (at most [`DetectorOptions::max_bytes`]) is copied in lower case;
//! 3. a streaming tokeniser (`block`, `token`, `walk`) reads title, text, links and forms until more text was seen than most rules
//!    allow, and on when a header, a title or a marker may prove something beside more;
//! 4. a search for rare pieces of markers (`scan`) finds them: in a page with much text those that mean something
//!    there, else all;
//! 5. what was gathered so (`gather`) is weighed in the order of the table's grades (`decide`).
//!
//! The time is linear in the bytes looked at. Nothing here does I/O, and nothing knows which fetcher asked.
//!
//! ```
//! use fetchwise_types::fetch_result::Outcome;
//! use fetchwise_detect::{Detector, Scratch};
//! use fetchwise_types::response::{Header, Page};
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

mod classify;
mod collect;
mod concepts;
mod cues;
#[cfg(feature = "json")]
mod evaluate;
mod html;
mod keyword_baseline;
mod rules;
mod simhash;
mod to_outcome;
mod verdict;

use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;

pub use crate::html::visibility::Place;
pub use crate::rules::file::{RuleError, RuleFileError};
pub use crate::rules::strength::Grade;
pub use cues::{Cue, CueSum};
#[cfg(feature = "json")]
pub use evaluate::{Band, Class, EvaluateError, Evaluation, Judged, Labelled, Mistake, Score, evaluate, wilson};
pub use verdict::{CONTENT_CHARS, Match, ResponseExtractor, Vendors, Verdict, heuristics};

pub use fetchwise_types::{fetch_result, response};

use crate::html::page_facts::Facts;
use crate::html::tokenizer::Finders;
use crate::rules::compiled::Table;
use crate::rules::scan::{Buffer, Hit};
use concepts::Meanings;
use cues::Weighing;
use fetchwise_types::response::Page;

/// How a detector reads.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct DetectorOptions {
    /// Bytes of body that are looked at. Default: 1 MiB.
    pub max_bytes: usize,
    /// Count visible text to the end of those bytes, though the verdict is clear before. Default: no.
    pub count_all: bool,
    /// How sure evidence of a wall must be to make a page one, from 0 to 1. A status of 403 or 429 refuses whatever it is. Default: 0.5.
    pub block_threshold: f32,
}

impl Default for DetectorOptions {
    fn default() -> Self {
        Self { max_bytes: 1 << 20, count_all: false, block_threshold: 0.5 }
    }
}

impl DetectorOptions {
    /// Looks at `bytes` of a body (at least 1 KiB).
    #[must_use]
    pub fn with_max_bytes(self, bytes: usize) -> Self {
        Self { max_bytes: bytes.max(1024), ..self }
    }

    /// Takes evidence that is as sure as this for a wall (from 0.05 to 1).
    #[must_use]
    pub fn with_block_threshold(self, confidence: f32) -> Self {
        let block_threshold = if confidence.is_nan() { self.block_threshold } else { confidence.clamp(0.05, 1.0) };
        Self { block_threshold, ..self }
    }

    /// Counts visible text to the end, for reports.
    #[must_use]
    pub fn counting_all(self) -> Self {
        Self { count_all: true, ..self }
    }
}

#[derive(Debug)]
enum Mode {
    Rules,
    Keywords,
}

/// Reads responses. `Send` and `Sync`: share it behind an [`Arc`].
///
/// Its rules may be exchanged while other threads read ([`Detector::reload`]): a page is read with one set of rules from
/// beginning to end, the old or the new one. Reading takes no lock.
#[derive(Debug)]
pub struct Detector {
    table: ArcSwap<Table>,
    finders: Finders,
    options: DetectorOptions,
    mode: Mode,
}

/// Memory that is used again from page to page. One a thread; holds no state that matters between pages, but what
/// [`Scratch::title`] tells of the last one.
#[derive(Debug, Default)]
pub struct Scratch {
    /// The body in lower case.
    lower: Vec<u8>,
    /// The body decoded, when it is in UTF-16.
    decoded: Vec<u8>,
    facts: Facts,
    found: Found,
    hits: Vec<Hit>,
    buffer: Buffer,
    offsets: Vec<u32>,
    kept: Vec<u8>,
    folded: String,
    /// See [`Verdict::text_hash`].
    text_hash: u64,
    title: String,
    /// The title as titles and sentences are compared.
    folded_title: String,
    /// What the page's words mean, wherever they stand.
    meanings: Meanings,
    weighing: Weighing,
}

impl Scratch {
    /// A sketch of the page that was inspected last, where it is HTML with little text.
    fn sketch(&self) -> Option<u64> {
        // Without a hash there is no text, or much of it.
        let visible = self.folded.split('\n').next().filter(|_| self.text_hash != 0)?;
        Some(crate::simhash::of(visible))
    }

    /// The title of the page that was inspected last, entities decoded, at most 1024 bytes. Empty without one.
    pub fn title(&self) -> &str {
        &self.title
    }
}

/// A verdict with all that it rests on.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explained {
    /// The verdict.
    pub verdict: Verdict,
    /// What rules matched: what counted and what did not.
    pub matches: Vec<Match>,
    /// The cues of a wall and what they add up to; none where the page says nothing that only walls say.
    pub cues: Option<CueSum>,
}

/// Evidence that was found, by rule.
#[derive(Debug, Default)]
struct Found {
    /// For each rule, the parts of it that were seen.
    bits: Vec<u8>,
    /// Rules with at least one part seen, in the order they were.
    touched: Vec<u16>,
    /// Those of them that hold on this page: all parts were seen, and all conditions are met.
    held: Vec<u16>,
    pieces: Vec<Piece>,
}

/// One thing that was seen.
#[derive(Clone, Debug)]
struct Piece {
    rule: u16,
    place: Place,
    at: At,
}

/// Where it was seen.
#[derive(Clone, Copy, Debug)]
enum At {
    Body(u32, u32),
    Folded(u32, u32),
    Title,
    Header(u32),
}

/// Most pieces of evidence that are kept for explaining.
const PIECES_MAX: usize = 256;

impl Found {
    fn clear(&mut self, rules: usize) {
        for rule in self.touched.drain(..) {
            if let Some(bits) = self.bits.get_mut(rule as usize) {
                *bits = 0;
            }
        }
        self.bits.resize(rules, 0);
        self.held.clear();
        self.pieces.clear();
    }

    fn add(&mut self, rule: u16, bit: u8, place: Place, at: At) {
        let bits = &mut self.bits[rule as usize];
        if *bits == 0 {
            self.touched.push(rule);
        }
        *bits |= bit;
        if self.pieces.len() < PIECES_MAX {
            self.pieces.push(Piece { rule, place, at });
        }
    }
}

impl Default for Detector {
    fn default() -> Self {
        Self::new()
    }
}

impl Detector {
    /// The shipped rules. The first call in a process compiles them; later ones share what it made.
    pub fn new() -> Self {
        Self::of(rules::shipped(), Mode::Rules)
    }

    /// The shipped rules and a user's, in the same TOML format (see `docs/concepts/detection.md`). A rule with the id of a shipped one
    /// takes its place; `disable = ["id"]` leaves shipped ones out.
    ///
    /// # Errors
    ///
    /// [`RuleError`], which names line and field. Nothing of a file with an error is used.
    pub fn with_rules(toml: &str) -> Result<Self, RuleError> {
        Ok(Self::of(Arc::new(rules::with(Some(toml))?), Mode::Rules))
    }

    /// As [`Detector::with_rules`], from a file.
    ///
    /// # Errors
    ///
    /// [`RuleFileError`], which names the file, and line and field in it.
    pub fn from_file(path: &Path) -> Result<Self, RuleFileError> {
        let toml = read_rules(path)?;
        Self::with_rules(&toml).map_err(|source| RuleFileError::Rules { path: path.to_owned(), source })
    }

    /// Exchanges the rules for the shipped ones with a user's on top, while other threads go on reading. What is being read
    /// is finished with the old ones.
    ///
    /// # Errors
    ///
    /// [`RuleError`], which names line and field. The old rules stay in force.
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

    /// As [`Detector::reload`], from a file.
    ///
    /// # Errors
    ///
    /// [`RuleFileError`], which names the file, and line and field in it. The old rules stay in force.
    pub fn reload_file(&self, path: &Path) -> Result<(), RuleFileError> {
        let toml = read_rules(path)?;
        self.reload(&toml).map_err(|source| RuleFileError::Rules { path: path.to_owned(), source })
    }

    /// A baseline to compare with: seven keywords anywhere in the bytes, or 403 or 429. Reloading changes nothing.
    pub fn keywords() -> Self {
        Self::of(rules::none(), Mode::Keywords)
    }

    /// The shipped rules that name no vendor: how well a vendor nobody listed is recognised.
    pub fn generic() -> Self {
        Self::of(rules::shipped_generic(), Mode::Rules)
    }

    /// The same rules with other options.
    #[must_use]
    pub fn with_options(mut self, options: DetectorOptions) -> Self {
        self.options = options;
        self
    }

    /// The TOML of the shipped rules: the format's documentation, and a start for one's own.
    pub fn shipped_rules() -> &'static str {
        rules::SHIPPED
    }

    /// The number of rules.
    pub fn rule_count(&self) -> usize {
        self.table.load().rules.len()
    }

    fn of(table: Arc<Table>, mode: Mode) -> Self {
        Self { table: ArcSwap::new(table), finders: Finders::new(), options: DetectorOptions::default(), mode }
    }

    /// Reads one response. Linear in the bytes looked at; no allocation on ordinary pages once `scratch` has grown.
    pub fn inspect(&self, page: &Page<'_>, scratch: &mut Scratch) -> Verdict {
        self.inspect_with(&self.table.load(), page, scratch, false)
    }

    /// As [`Detector::inspect`], with all that matched and where: evidence that counted and evidence that did not.
    pub fn explain(&self, page: &Page<'_>, scratch: &mut Scratch) -> Explained {
        let table = self.table.load();
        let verdict = self.inspect_with(&table, page, scratch, true);
        let (matches, cues) = match self.mode {
            Mode::Rules => (crate::classify::matches(&table, page, scratch), scratch.weighing.explained(&table)),
            Mode::Keywords => (Vec::new(), None),
        };
        Explained { verdict, matches, cues }
    }

    fn inspect_with(&self, table: &Table, page: &Page<'_>, scratch: &mut Scratch, explain: bool) -> Verdict {
        match self.mode {
            Mode::Rules => crate::classify::inspect(self, table, page, scratch, explain),
            Mode::Keywords => crate::keyword_baseline::inspect(page, scratch),
        }
    }
}

fn read_rules(path: &Path) -> Result<String, RuleFileError> {
    std::fs::read_to_string(path).map_err(|source| RuleFileError::Unreadable { path: path.to_owned(), source })
}
