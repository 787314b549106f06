//! Conversion of a verdict to an [`Outcome`], and of a whole response to a [`FetchResult`].
//!
//! A verdict says what is on the page. An outcome says how the request ended, for which the status counts, too.
//!
//! Must not know: which fetcher made the request.

use std::cell::RefCell;

use crate::scratch::Scratch;
use crate::verdict::{ResponseExtractor, Verdict, heuristics};

use super::Detector;
use fetchwise_types::fetch_result::{Block, BlockKind, FetchResult, Outcome, ShortPage};
use fetchwise_types::heuristic::url::parse;
use fetchwise_types::response::{Header, Page, header};

thread_local! {
    /// Buffers of the size of a page. Each thread keeps its own.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Verdict {
    /// Returns the outcome of the request that brought `page`, from which this verdict was made.
    ///
    /// The order: evidence of a block or a waiting room, then the status, then emptiness. A 204, 205 or 304 is an empty
    /// page; a 300 with something to read is content.
    pub fn outcome(&self, page: &Page<'_>) -> Outcome {
        if self.is_queued {
            return Outcome::Queued;
        }
        if self.network_block {
            return Outcome::NetworkBlock;
        }
        if self.is_blocked {
            let kind = self.block_type.unwrap_or(BlockKind::Challenge);
            let (vendor, rule) = (self.vendor.as_deref().map(Into::into), self.rule.as_deref().map(Into::into));
            return Outcome::Blocked(Block::new(kind, vendor, rule));
        }
        match page.status {
            204 | 205 | 304 => Outcome::Empty,
            300 if header(page.headers, "location").is_none() && !self.is_thin() => Outcome::Content,
            200..=299 => self.readable(),
            403 | 429 | 451 => Outcome::Blocked(Block::refusal()),
            status => Outcome::Http(status),
        }
    }

    /// Returns the outcome of a page with a success status.
    fn readable(&self) -> Outcome {
        if let Some(to) = &self.redirect {
            Outcome::Redirect { to: to.clone() }
        } else if self.has_spa {
            Outcome::Shell { framework: self.framework.as_deref().map(Into::into) }
        } else if self.is_empty {
            Outcome::Empty
        } else {
            Outcome::Content
        }
    }

    /// Returns everything that an attempt records about `page`, from which this verdict was made.
    pub fn fetch_result(&self, page: &Page<'_>) -> FetchResult {
        let mut found = Vec::new();
        heuristics(page, self, &mut found);
        let outcome = self.outcome(page);
        let mut result = FetchResult::from(outcome).with_status(page.status);
        result.message = self.is_blocked.then(|| self.reason()).or_else(|| match &result.outcome {
            Outcome::Empty | Outcome::Shell { .. } | Outcome::Queued | Outcome::Redirect { .. } => Some(self.reason()),
            _ => None,
        });
        result.headers = page.headers.to_vec();
        // A URL that cannot be fetched is not one that responded.
        let is_other = |url: &&str| Some(*url) != page.url;
        result.final_url = page.final_url.filter(is_other).and_then(|url| parse(url).ok()).map(Box::new);
        result.heuristics = found;
        result.short = (self.is_empty && self.text_complete).then(|| {
            let short = ShortPage::new(self.text_chars, self.text_hash);
            if self.block_cues { short.suspect() } else { short }
        });
        result
    }
}

impl Detector {
    /// Judges a whole response of any HTTP client: its outcome, with everything that an attempt records about it. Time
    /// is linear in the bytes read.
    ///
    /// `headers` are pairs of name and value from any source. `body` is decoded (no content encoding) and may be cut
    /// short.
    ///
    /// ```
    /// use fetchwise_detect::Detector;
    /// use fetchwise_detect::fetch_result::Outcome;
    ///
    /// let detector = Detector::new();
    /// let result = detector.judge(403, [("Retry-After", "120")], b"<h1>Forbidden</h1>");
    /// assert!(matches!(result.outcome, Outcome::Blocked(_)));
    ///
    /// let stub = b"<meta http-equiv=refresh content='0; url=../index.html'><a href='../index.html'>Moved</a>";
    /// let result = detector.judge(200, [("Content-Type", "text/html")], stub);
    /// assert_eq!(result.outcome, Outcome::Redirect { to: "../index.html".into() });
    /// ```
    pub fn judge<N: AsRef<str>, V: AsRef<[u8]>>(
        &self,
        status: u16,
        headers: impl IntoIterator<Item = (N, V)>,
        body: &[u8],
    ) -> FetchResult {
        let header = |(name, value): (N, V)| Header::new(name.as_ref(), String::from_utf8_lossy(value.as_ref()));
        let headers: Vec<Header> = headers.into_iter().map(header).collect();
        self.judge_page(&Page { status, headers: &headers, body, ..Page::default() })
    }

    /// Like [`judge`](Self::judge), for a [`Page`].
    pub fn judge_page(&self, page: &Page<'_>) -> FetchResult {
        self.judge_with(page, &[])
    }

    /// Like [`judge_page`](Self::judge_page), with custom heuristics of the response.
    pub fn judge_with(&self, page: &Page<'_>, extractors: &[Box<dyn ResponseExtractor>]) -> FetchResult {
        let (verdict, simhash) = SCRATCH.with_borrow_mut(|scratch| {
            let verdict = self.inspect(page, scratch);
            let simhash = if verdict.is_content() || verdict.is_empty { scratch.simhash() } else { None };
            (verdict, simhash)
        });
        let mut result = verdict.fetch_result(page);
        result.simhash = simhash;
        for extractor in extractors {
            extractor.extract(page, &verdict, &mut result.heuristics);
        }
        result
    }
}
