//! Conversion of a verdict to an [`Outcome`], and of a whole response to a [`FetchResult`].
//!
//! A verdict says what is on the page. An outcome says how the request ended, for which the status
//! counts, too.
//!
//! Must not know: which fetcher made the request.

use std::cell::RefCell;

use crate::scratch::Scratch;
use crate::verdict::{ResponseExtractor, Verdict, heuristics};

use super::Detector;
use fetchwise_types::attempt::verdict_reason::VerdictReason;
use fetchwise_types::fetch_result::{Block, BlockKind, FetchResult, Outcome, ShortPage};
use fetchwise_types::heuristic::url::parse;
use fetchwise_types::response::{Header, Page, header, is_part};

thread_local! {
    /// Buffers of the size of a page. Each thread keeps its own.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Verdict {
    /// Returns the outcome of the request that brought `page`, from which this verdict was made.
    ///
    /// The order: a refusal that names its reason (a 402, the header `crawler-error`), evidence of
    /// a block or a waiting room, the status, emptiness. A 304 is an empty page. A 3xx that leads
    /// nowhere and has something to read is content, and a 206 without all of its page is
    /// truncated.
    pub fn outcome(&self, page: &Page<'_>) -> Outcome {
        if self.network_block {
            return Outcome::NetworkBlock;
        }
        if let Some(refusal) = refusal(page) {
            return refusal;
        }
        if self.is_queued {
            return Outcome::Queued;
        }
        if self.is_blocked {
            let kind = self.block_type.unwrap_or(BlockKind::Challenge);
            let (vendor, rule) =
                (self.vendor.as_deref().map(Into::into), self.rule.as_deref().map(Into::into));
            return Outcome::Blocked(Block::new(kind, vendor, rule));
        }
        if self.is_server_error && !matches!(page.status, 404 | 410 | 429 | 451) {
            return Outcome::ServerError;
        }
        match page.status {
            304 => Outcome::Empty,
            status @ (204 | 205) => Outcome::Http(status),
            206 if is_part(206, page.headers) => Outcome::Truncated,
            300..=399 if !leads_on(page) && !self.is_thin() => self.readable(),
            200..=299 => self.readable(),
            403 | 429 | 451 => Outcome::Blocked(Block::refusal()),
            status => Outcome::Http(status),
        }
    }

    /// Returns the outcome of a page with a success status.
    fn readable(&self) -> Outcome {
        if self.is_login_redirect {
            Outcome::LoginWall
        } else if self.is_undecoded {
            Outcome::Undecoded
        } else if let Some(to) = &self.redirect {
            Outcome::Redirect { to: to.clone() }
        } else if self.has_spa {
            Outcome::Shell { framework: self.framework.as_deref().map(Into::into) }
        } else if self.is_empty {
            Outcome::Empty
        } else {
            Outcome::Content
        }
    }

    /// Returns the reason that an attempt keeps: of everything but plain content and what the
    /// status alone says.
    fn kept_reason(&self, outcome: &Outcome) -> Option<VerdictReason> {
        let is_by_verdict = match outcome {
            Outcome::Content => self.rule.is_some(),
            Outcome::Http(_) | Outcome::Truncated | Outcome::PaymentRequired => false,
            Outcome::Declined | Outcome::IdentityRejected => false,
            _ => true,
        };
        let chars = self.is_html.then_some(self.text_chars);
        let reason = VerdictReason::new(self.rule.as_deref(), &self.cues, chars);
        (is_by_verdict && !reason.is_empty()).then_some(reason)
    }

    /// Returns everything that an attempt records about `page`, from which this verdict was made.
    pub fn fetch_result(&self, page: &Page<'_>) -> FetchResult {
        let mut found = Vec::new();
        heuristics(page, self, &mut found);
        let outcome = self.outcome(page);
        let mut result = FetchResult::from(outcome).with_status(page.status);
        result.price =
            (result.outcome == Outcome::PaymentRequired).then(|| price(page.headers)).flatten();
        result.message = match (&result.outcome, &result.price) {
            (Outcome::PaymentRequired, Some(price)) => Some(format!("the site asks for {price}")),
            (Outcome::PaymentRequired | Outcome::Declined | Outcome::IdentityRejected, _) => None,
            (
                Outcome::Empty
                | Outcome::Shell { .. }
                | Outcome::Queued
                | Outcome::Redirect { .. }
                | Outcome::ServerError
                | Outcome::LoginWall
                | Outcome::Undecoded,
                _,
            ) => Some(self.reason()),
            _ => self.is_blocked.then(|| self.reason()),
        };
        result.verdict = self.kept_reason(&result.outcome).map(Box::new);
        result.headers = page.headers.to_vec();
        // A URL that cannot be fetched is not one that responded.
        let is_other = |url: &&str| Some(*url) != page.url;
        result.final_url =
            page.final_url.filter(is_other).and_then(|url| parse(url).ok()).map(Box::new);
        result.heuristics = found;
        result.short = (self.is_empty && self.text_complete).then(|| {
            let short = ShortPage::new(self.text_chars, self.text_hash);
            if self.block_cues { short.suspect() } else { short }
        });
        result
    }
}

/// Returns whether a redirect leads to another address. A browser shows the page of one that names
/// none, and of a status that redirects nobody.
fn leads_on(page: &Page<'_>) -> bool {
    let is_redirect = matches!(page.status, 301 | 302 | 303 | 307 | 308);
    let names_address =
        header(page.headers, "location").is_some_and(|location| !location.trim().is_empty());
    is_redirect && names_address
}

/// The code of the header `crawler-error` with which a site declines a crawler by name.
const FORBIDDEN: &str = "CrawlerForbidden";
/// The codes with which a site rejects a crawler's signature.
const IDENTITY_ERRORS: [&str; 2] = ["InvalidSignature", "StrongAuthRequired"];
/// The longest price that is recorded.
const MAX_PRICE: usize = 64;

/// Returns the outcome of a page that refuses and names the reason: it asks for a price, or it
/// means this crawler.
fn refusal(page: &Page<'_>) -> Option<Outcome> {
    let code = |known: &str| {
        header(page.headers, "crawler-error").is_some_and(|code| code.trim() == known)
    };
    match page.status {
        402 => Some(Outcome::PaymentRequired),
        403 if code(FORBIDDEN) => Some(Outcome::Declined),
        400 if IDENTITY_ERRORS.into_iter().any(code) => Some(Outcome::IdentityRejected),
        _ => None,
    }
}

/// Returns the price that the headers name. Two different prices name none, and neither does
/// anything but short plain text.
fn price(headers: &[Header]) -> Option<Box<str>> {
    let mut named =
        headers.iter().filter(|header| header.name.eq_ignore_ascii_case("crawler-price"));
    let price = named.next()?.value.trim();
    let is_plain = price.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    let is_named = !price.is_empty() && price.len() <= MAX_PRICE && is_plain;
    (is_named && named.all(|other| other.value.trim() == price)).then(|| price.into())
}

impl Detector {
    /// Judges a whole response of any HTTP client: its outcome, with everything that an attempt
    /// records about it. Time is linear in the bytes read.
    ///
    /// `headers` are pairs of name and value from any source. `body` is decoded (no content
    /// encoding) and may be cut short.
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
        let header = |(name, value): (N, V)| Header::from_bytes(name.as_ref(), value.as_ref());
        let headers: Vec<Header> = headers.into_iter().map(header).collect();
        self.judge_page(&Page { status, headers: &headers, body, ..Page::default() })
    }

    /// Like [`judge`](Self::judge), for a [`Page`].
    pub fn judge_page(&self, page: &Page<'_>) -> FetchResult {
        self.judge_with(page, &[])
    }

    /// Like [`judge_page`](Self::judge_page), with custom heuristics of the response.
    pub fn judge_with(
        &self,
        page: &Page<'_>,
        extractors: &[Box<dyn ResponseExtractor>],
    ) -> FetchResult {
        let (verdict, simhash) = SCRATCH.with_borrow_mut(|scratch| {
            let verdict = self.inspect(page, scratch);
            let simhash =
                if verdict.is_content() || verdict.is_empty { scratch.simhash() } else { None };
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
