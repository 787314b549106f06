//! From what was read to what it comes to: a verdict's [`Outcome`], and a whole response's [`FetchResult`].
//!
//! A page's verdict and its attempt's outcome are two things. The verdict says what is on the page; the outcome says what the request
//! came to, for which the status counts, too. Must not know which fetcher asked.

use std::cell::RefCell;

use super::{Detector, ResponseExtractor, Scratch, Verdict, heuristics};
use fetchwise_types::fetch_result::{FetchResult, Block, BlockKind, Outcome, ShortPage};
use fetchwise_types::response::{Header, Page, header};

thread_local! {
    /// Reading a page needs buffers of its size; each thread keeps its own from page to page.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Verdict {
    /// What the request came to that brought `page`, which this verdict was read from.
    ///
    /// The order: evidence of a block or a waiting room, then the status, then emptiness. A 204, 205 or 304 is an empty page; a
    /// 300 with something to read is content.
    pub fn outcome(&self, page: &Page<'_>) -> Outcome {
        if self.is_queued {
            return Outcome::Queued;
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
            403 | 429 => Outcome::Blocked(Block::refusal()),
            status => Outcome::Http(status),
        }
    }

    /// What a page with a status of success comes to.
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

    /// All that an attempt records of `page`, which this verdict was read from.
    pub fn answer(&self, page: &Page<'_>) -> FetchResult {
        let mut shown = Vec::new();
        heuristics(page, self, &mut shown);
        let outcome = self.outcome(page);
        let mut answer = FetchResult::from(outcome).with_status(page.status);
        answer.message = self.is_blocked.then(|| self.reason()).or_else(|| match &answer.outcome {
            Outcome::Empty | Outcome::Shell { .. } | Outcome::Queued | Outcome::Redirect { .. } => Some(self.reason()),
            _ => None,
        });
        answer.headers = page.headers.to_vec();
        answer.heuristics = shown;
        answer.short = (self.is_empty && self.text_complete).then(|| {
            let short = ShortPage::new(self.text_chars, self.text_hash);
            if self.wall_cues { short.suspect() } else { short }
        });
        answer
    }
}

impl Detector {
    /// Judges a whole response, for whoever has a client of its own: what it came to, with all that an attempt records of it. The
    /// time is linear in the bytes that are looked at.
    ///
    /// Headers are pairs of name and value from any source. The body is the decoded one, possibly only its beginning.
    ///
    /// ```
    /// use fetchwise_types::fetch_result::Outcome;
    /// use fetchwise_detect::Detector;
    ///
    /// let detector = Detector::new();
    /// let answer = detector.judge(403, [("Retry-After", "120")], b"<h1>Forbidden</h1>");
    /// assert!(matches!(answer.outcome, Outcome::Blocked(_)));
    ///
    /// let stub = b"<meta http-equiv=refresh content='0; url=../index.html'><a href='../index.html'>Moved</a>";
    /// let answer = detector.judge(200, [("Content-Type", "text/html")], stub);
    /// assert_eq!(answer.outcome, Outcome::Redirect { to: "../index.html".into() });
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

    /// As [`judge`](Self::judge), for a page that is put together already.
    pub fn judge_page(&self, page: &Page<'_>) -> FetchResult {
        self.judge_with(page, &[])
    }

    /// As [`judge_page`](Self::judge_page), with a user's own heuristics of the response.
    pub fn judge_with(&self, page: &Page<'_>, extractors: &[Box<dyn ResponseExtractor>]) -> FetchResult {
        let (verdict, sketch) = SCRATCH.with_borrow_mut(|scratch| {
            let verdict = self.inspect(page, scratch);
            let sketch = if verdict.is_content() || verdict.is_empty { scratch.sketch() } else { None };
            (verdict, sketch)
        });
        let mut answer = verdict.answer(page);
        answer.sketch = sketch;
        for extractor in extractors {
            extractor.extract(page, &verdict, &mut answer.heuristics);
        }
        answer
    }
}
