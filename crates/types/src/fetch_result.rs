//! The result of one request: the vocabulary that detection, fetchers and visits share.
//!
//! Owns: [`Outcome`], its mapping to the error table of attempts, and [`FetchResult`], an outcome
//! with everything that an attempt records.
//!
//! Must not know: how a page is read, and what happens next.

use std::fmt;
use std::time::Duration;

use url::Url;

use crate::attempt::error_kind::ErrorKind;
use crate::attempt::verdict_reason::VerdictReason;
use crate::attempt::{ErrorType, stored_headers};
use crate::consent::Consent;
use crate::heuristic::{DEFAULT_PAGE, Heuristic, SAME_PAGE_OTHER_SITES};
use crate::provenance::Provenance;
use crate::response::Header;

/// The outcome of one request.
///
/// An outcome is an observation, and attributes nothing. The same empty page counts as `wrong_tool`
/// if the fetcher runs no scripts, and as `empty_content` if it does. [`Outcome::counts_as`]
/// decides.
///
/// ```
/// use fetchwise_types::fetch_result::{Block, Outcome};
/// use fetchwise_types::registry::FetcherSpec;
///
/// let (plain, browser) = (FetcherSpec::by_name("direct_access"), FetcherSpec::by_name("playwright"));
/// assert!(Outcome::Content.counts_as(&plain).is_ok());
/// assert_eq!(Outcome::Empty.counts_as(&plain).unwrap_err().name(), "wrong_tool");
/// assert_eq!(Outcome::Empty.counts_as(&browser).unwrap_err().name(), "empty_content");
/// assert_eq!(Outcome::Http(404).counts_as(&plain).unwrap_err().name(), "not_found");
/// assert_eq!(Outcome::Blocked(Block::refusal()).counts_as(&plain).unwrap_err().name(), "blocked_403");
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// The requested content.
    Content,
    /// 304 to the caller's own validators: the content is the one that the caller has. A 304 to a
    /// request without validators is [`Http`](Self::Http).
    NotModified,
    /// A page that only sends its reader to another address, in HTML or in a one-line script.
    Redirect {
        /// The address as the page has it, absolute or relative to the page.
        to: Box<str>,
    },
    /// A challenge or a refusal.
    Blocked(Block),
    /// An application's shell: a script loads the content.
    Shell {
        /// The framework, if it has a name.
        framework: Option<Box<str>>,
    },
    /// A page with almost no text.
    Empty,
    /// A waiting room.
    Queued,
    /// A redirect led to a log-in in place of the page. No fetcher gets further without an account.
    LoginWall,
    /// The server says on the page that it failed or is being maintained, whatever its status: it
    /// refused nobody, and no other fetcher would have got more.
    ServerError,
    /// A status that is neither a success nor a block.
    Http(u16),
    /// The deadline passed.
    Timeout,
    /// The connection failed or broke.
    Network,
    /// The name does not resolve.
    Dns,
    /// The TLS handshake failed.
    Tls,
    /// A server between the crawler and the site failed, not the site: a proxy, an archive, a
    /// service.
    Proxy,
    /// A source that serves in place of the site does not have the page.
    NotHeld,
    /// The network of the crawler put a page in place of the site: a provider, a filter, a captive
    /// portal.
    NetworkBlock,
    /// The body ended before its announced length.
    Truncated,
    /// Too many redirects, or a redirect that goes nowhere.
    RedirectLoop,
    /// The body is still compressed, although its header promises text. The crawler has not decoded
    /// it, so the page says nothing about the site or the fetcher.
    Undecoded,
    /// The body (or the headers) passed a limit.
    TooLarge,
    /// The address may not be dialled.
    RefusedAddress,
    /// Not a URL that can be fetched.
    InvalidUrl,
    /// The host says "not now" to a crawler that it had served: for callers that know it is about
    /// speed. Report a 429 as [`Http`](Self::Http) or [`Blocked`](Self::Blocked); a visit finds out
    /// by itself.
    RateLimited,
    /// The host's robots.txt asks crawlers not to fetch it.
    Disallowed,
    /// The site asks for a price: 402. It is about the page, not about the fetcher.
    PaymentRequired,
    /// The site declines this crawler by name, with 403 and `crawler-error: CrawlerForbidden`.
    Declined,
    /// The site does not accept the crawler's signature, or asks for a stronger one.
    IdentityRejected,
    /// The page's terms reserve it against every purpose of the crawl.
    Reserved,
    /// The crawl's own policy leaves the page.
    LeftByPolicy,
    /// The crawler's own machine is at its limits (descriptors, ports, disk, no network). Neither a
    /// site nor a fetcher caused it, so nothing is recorded, and the visit tries again a little
    /// later.
    Local,
    /// A failure that only the caller has a name for. It counts as the fetcher's failure.
    Other(Box<str>),
}

/// The kind of a block, and its vendor.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Block {
    /// What the visitor gets.
    pub kind: BlockKind,
    /// The vendor, if known.
    pub vendor: Option<Box<str>>,
    /// The id of the detector's rule that matched, if one did.
    pub rule: Option<Box<str>>,
}

/// The kind of a block: whether it can be solved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BlockKind {
    /// A captcha or a script's challenge asks for a proof.
    Challenge,
    /// The request is refused.
    Refusal,
}

impl BlockKind {
    /// Returns the name of the failure that it counts as, in JSON too.
    pub const fn name(self) -> &'static str {
        self.error().name()
    }

    const fn error(self) -> ErrorKind {
        match self {
            Self::Challenge => ErrorKind::BlockedCaptcha,
            Self::Refusal => ErrorKind::Blocked403,
        }
    }
}

impl fmt::Display for BlockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Block {
    /// Returns a block of this kind, by this vendor, found by this rule.
    pub fn new(kind: BlockKind, vendor: Option<Box<str>>, rule: Option<Box<str>>) -> Self {
        Self { kind, vendor, rule }
    }

    /// Returns a refusal by an unknown vendor: 403 or 429.
    pub fn refusal() -> Self {
        Self { kind: BlockKind::Refusal, vendor: None, rule: None }
    }

    /// Returns a challenge by an unknown vendor.
    pub fn challenge() -> Self {
        Self { kind: BlockKind::Challenge, ..Self::refusal() }
    }

    /// Returns the block with a vendor's name.
    #[must_use]
    pub fn by(self, vendor: &str) -> Self {
        Self { vendor: Some(vendor.into()), ..self }
    }
}

impl Outcome {
    /// Maps the outcome of a request by a fetcher like `by` to the error table. This is the only
    /// place where an observation becomes an entry of that table.
    ///
    /// Statuses that no table names: 204 and 205 say that there is nothing to get, for any fetcher
    /// (`not_found`). A 304 brings no content, so it counts as empty. Another 3xx leads nowhere
    /// (`redirect_loop`). 1xx and 0 are not final (`network_error`). 408, 421 and 425 ask for the
    /// request once more, and 600 and above, such as 999, count as 5xx: all are a `server_error`.
    ///
    /// # Errors
    /// The type of the failure, if it is one.
    pub fn counts_as(&self, by: &crate::registry::FetcherSpec) -> Result<(), ErrorType> {
        let empty = if by.renders { ErrorKind::EmptyContent } else { ErrorKind::WrongTool };
        let kind = match self {
            Self::Content | Self::NotModified => return Ok(()),
            Self::Blocked(block) => block.kind.error(),
            // A redirect that is not followed any further is a page without content.
            Self::Shell { .. } | Self::Empty | Self::Redirect { .. } => empty,
            Self::Queued => ErrorKind::Queued,
            Self::ServerError => ErrorKind::ServerError,
            Self::LoginWall => ErrorKind::AuthRequired,
            Self::Http(status) => match *status {
                204 | 205 => ErrorKind::NotFound,
                200..=299 | 304 => empty,
                300..=399 => ErrorKind::RedirectLoop,
                401 | 407 => ErrorKind::AuthRequired,
                402 => ErrorKind::PaymentRequired,
                403 | 429 | 451 => ErrorKind::Blocked403,
                404 | 410 => ErrorKind::NotFound,
                // RFC 6585: only a server that intercepts the connection sends it.
                511 => ErrorKind::NetworkBlock,
                // RFC 9110, section 15: an unknown class is treated as a 5xx.
                408 | 421 | 425 | 500.. => ErrorKind::ServerError,
                400..=499 => ErrorKind::ClientError,
                0..=199 => ErrorKind::NetworkError,
            },
            Self::Timeout => ErrorKind::Timeout,
            Self::Network => ErrorKind::NetworkError,
            Self::Dns => ErrorKind::DnsError,
            Self::Tls => ErrorKind::TlsError,
            Self::Proxy => ErrorKind::ProxyError,
            Self::NotHeld => ErrorKind::NotHeld,
            Self::NetworkBlock => ErrorKind::NetworkBlock,
            Self::Truncated => ErrorKind::Truncated,
            Self::RedirectLoop => ErrorKind::RedirectLoop,
            Self::TooLarge => ErrorKind::TooLarge,
            Self::RefusedAddress => ErrorKind::RefusedAddress,
            Self::InvalidUrl => ErrorKind::InvalidUrl,
            Self::RateLimited => ErrorKind::RateLimited,
            Self::Disallowed => ErrorKind::Disallowed,
            Self::PaymentRequired => ErrorKind::PaymentRequired,
            Self::Declined => ErrorKind::Declined,
            Self::IdentityRejected => ErrorKind::IdentityRejected,
            Self::Reserved => ErrorKind::Reserved,
            Self::LeftByPolicy => ErrorKind::LeftByPolicy,
            Self::Local | Self::Undecoded => ErrorKind::LocalFault,
            Self::Other(name) => return Err(ErrorType::from_name(name)),
        };
        Err(ErrorType::Known(kind))
    }
}

impl Outcome {
    /// Returns whether what came is a block, a waiting room, a log-in or an error page.
    const fn is_no_page(&self) -> bool {
        matches!(
            self,
            Self::Blocked(_) | Self::Queued | Self::LoginWall | Self::ServerError | Self::Http(_)
        )
    }

    /// Returns the outcome if the body ended before its announced length. Nothing that was read in
    /// it is reliable, unless a block or a status is decisive.
    #[must_use]
    pub fn truncated(self) -> Self {
        match self {
            Self::Content | Self::Empty | Self::Shell { .. } | Self::Redirect { .. } => {
                Self::Truncated
            }
            other => other,
        }
    }
}

impl From<ErrorKind> for Outcome {
    /// Returns the observation behind an entry of the table, for callers that have only its name.
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::BlockedCaptcha => Self::Blocked(Block::challenge()),
            ErrorKind::Blocked403 => Self::Blocked(Block::refusal()),
            ErrorKind::WrongTool | ErrorKind::EmptyContent => Self::Empty,
            ErrorKind::Timeout => Self::Timeout,
            ErrorKind::NetworkError => Self::Network,
            ErrorKind::ServerError => Self::Http(500),
            ErrorKind::Truncated => Self::Truncated,
            ErrorKind::NotFound => Self::Http(404),
            ErrorKind::ClientError => Self::Http(400),
            ErrorKind::AuthRequired => Self::Http(401),
            ErrorKind::DnsError => Self::Dns,
            ErrorKind::TlsError => Self::Tls,
            ErrorKind::ProxyError => Self::Proxy,
            ErrorKind::RedirectLoop => Self::RedirectLoop,
            ErrorKind::TooLarge => Self::TooLarge,
            ErrorKind::RefusedAddress => Self::RefusedAddress,
            ErrorKind::InvalidUrl => Self::InvalidUrl,
            ErrorKind::Queued => Self::Queued,
            ErrorKind::LocalFault => Self::Local,
            ErrorKind::RateLimited => Self::RateLimited,
            ErrorKind::Disallowed => Self::Disallowed,
            ErrorKind::NotHeld => Self::NotHeld,
            ErrorKind::NetworkBlock => Self::NetworkBlock,
            ErrorKind::PaymentRequired => Self::PaymentRequired,
            ErrorKind::Declined => Self::Declined,
            ErrorKind::IdentityRejected => Self::IdentityRejected,
            ErrorKind::Reserved => Self::Reserved,
            ErrorKind::LeftByPolicy => Self::LeftByPolicy,
        }
    }
}

impl From<std::io::Error> for Outcome {
    /// Converts the error of a failed request: a deadline or a broken connection.
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::TimedOut => Self::Timeout,
            _ => Self::Network,
        }
    }
}

impl fmt::Display for Outcome {
    /// Writes the outcome in words, for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Content => f.write_str("content"),
            Self::NotModified => f.write_str("not modified"),
            Self::Redirect { to } => write!(f, "a page that only redirects to {to}"),
            Self::Blocked(block) => {
                f.write_str(match block.kind {
                    BlockKind::Challenge => "challenge or block page",
                    BlockKind::Refusal => "refused",
                })?;
                if let Some(vendor) = &block.vendor {
                    write!(f, " by {vendor}")?;
                }
                block.rule.as_ref().map_or(Ok(()), |rule| write!(f, " (rule {rule})"))
            }
            Self::Shell { framework } => {
                write!(f, "{} shell", framework.as_deref().unwrap_or("script"))
            }
            Self::Empty => f.write_str("almost no text"),
            Self::Queued => f.write_str("waiting room"),
            Self::LoginWall => f.write_str("a log-in in place of the page"),
            Self::ServerError => f.write_str("the server failed or is being maintained"),
            Self::Http(status) => write!(f, "status {status}"),
            Self::Timeout => f.write_str("no response in time"),
            Self::Network => f.write_str("the connection failed"),
            Self::Dns => f.write_str("the host name does not resolve"),
            Self::Tls => f.write_str("the TLS handshake failed"),
            Self::Proxy => f.write_str("the proxy failed"),
            Self::NotHeld => f.write_str("the requested source does not have it"),
            Self::NetworkBlock => f.write_str("a page of this crawler's network, not of the site"),
            Self::Truncated => f.write_str("the body ended before its announced length"),
            Self::RedirectLoop => f.write_str("too many redirects, or one that goes nowhere"),
            Self::Undecoded => f.write_str("a body that is still compressed"),
            Self::TooLarge => f.write_str("larger than the limit"),
            Self::RefusedAddress => f.write_str("an address that may not be dialled"),
            Self::InvalidUrl => f.write_str("not a URL that can be fetched"),
            Self::RateLimited => f.write_str("too fast for the host"),
            Self::Disallowed => f.write_str("disallowed by robots.txt"),
            Self::PaymentRequired => f.write_str("the site asks for a price"),
            Self::Declined => f.write_str("the site declines this crawler"),
            Self::IdentityRejected => f.write_str("the site rejects the crawler's signature"),
            Self::Reserved => {
                f.write_str("the site reserves the page against every purpose of this crawl")
            }
            Self::LeftByPolicy => f.write_str("the crawl's policy leaves the page"),
            Self::Local => f.write_str("this machine is at its limits"),
            Self::Other(name) => f.write_str(name),
        }
    }
}

/// The visible text of a page that has little of it. It distinguishes a short page from a short
/// block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShortPage {
    /// Number of visible characters.
    pub chars: u32,
    /// A hash of the visible text: equal text has an equal hash.
    pub text_hash: u64,
    /// Whether anything on the page hints at a block, without being sufficient for one.
    pub is_suspect: bool,
}

impl ShortPage {
    /// Returns a page with this number of visible characters and this text hash, and without a hint
    /// of a block.
    pub fn new(chars: u32, text_hash: u64) -> Self {
        Self { chars, text_hash, is_suspect: false }
    }

    /// Returns the page with a hint of a block.
    #[must_use]
    pub fn suspect(self) -> Self {
        Self { is_suspect: true, ..self }
    }
}

/// An outcome with everything that an attempt records of it. A plain [`Outcome`] converts into one.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FetchResult {
    /// The outcome.
    pub outcome: Outcome,
    /// The HTTP status, if there was one.
    pub status: Option<u16>,
    /// The response's headers; [`STORED_HEADERS`](crate::attempt::STORED_HEADERS) of them are
    /// recorded.
    pub headers: Vec<Header>,
    /// The heuristics that the response shows.
    pub heuristics: Vec<Heuristic>,
    /// The pause that the response asks for. If `None`, a `Retry-After` among the headers counts.
    pub retry_after: Option<Duration>,
    /// Number of requests to its host, if known: redirects on the host, and the requests of a
    /// rendered page.
    pub requests: Option<u16>,
    /// Duration of the request. If `None`, the time since the fetch was handed out counts.
    pub duration: Option<Duration>,
    /// The part of the duration that this machine caused, if it is measured. It does not count as
    /// the host's latency.
    pub local_delay: Option<Duration>,
    /// What the terms of the page permit, if it has some.
    pub consent: Option<Box<Consent>>,
    /// The price that a 402 names.
    pub price: Option<Box<str>>,
    /// The text of a page that has little of it.
    pub short: Option<ShortPage>,
    /// SimHash of the text of a page with little text: almost equal for almost equal text, whatever
    /// its numbers. `None` for pages with much text and for anything but HTML.
    pub simhash: Option<u64>,
    /// The reason of the detector's verdict. `None` for plain content, and for what no detector has
    /// read.
    pub verdict: Option<Box<VerdictReason>>,
    /// The reason in words, for people; the outcome in words if `None`.
    pub message: Option<String>,
    /// The server that responded in place of the site, if the site was not contacted.
    pub provenance: Option<Provenance>,
    /// The URL that responded, after redirects, or the one at which a failed request stood. If it
    /// is on another host, that host gets the pause, the pace, the block and the evidence. If
    /// `None`, the requested URL responded.
    pub final_url: Option<Box<Url>>,
    /// URLs of requests that the server did not answer: it closed the kept connection instead, and
    /// the client sent each again. Each is recorded as an attempt without weight.
    pub unanswered: Vec<Url>,
    /// Whether the host refused the connection. A browser on this machine would be refused as well.
    pub is_refused: bool,
    /// Whether another kind of client may not have this failure: it knows other certificates, or
    /// speaks other versions of a protocol. Such a failure does not end the visit.
    pub is_of_client: bool,
}

impl From<Outcome> for FetchResult {
    fn from(outcome: Outcome) -> Self {
        Self {
            outcome,
            status: None,
            headers: Vec::new(),
            heuristics: Vec::new(),
            retry_after: None,
            requests: None,
            duration: None,
            local_delay: None,
            consent: None,
            price: None,
            short: None,
            simhash: None,
            verdict: None,
            message: None,
            provenance: None,
            final_url: None,
            unanswered: Vec::new(),
            is_refused: false,
            is_of_client: false,
        }
    }
}

impl From<ErrorKind> for FetchResult {
    fn from(kind: ErrorKind) -> Self {
        Outcome::from(kind).into()
    }
}

impl FetchResult {
    /// Returns whether the page is one of no site: see [`DEFAULT_PAGE`].
    pub fn is_default_page(&self) -> bool {
        self.heuristics
            .iter()
            .any(|shown| shown.kind == SAME_PAGE_OTHER_SITES && shown.value == DEFAULT_PAGE)
    }

    /// Returns the headers that an attempt records: the reason of the verdict and the stored ones
    /// of the response.
    pub fn recorded_headers(&self) -> Vec<Header> {
        // No response has such a name: it would be taken for what the crawler says.
        let own = self.verdict.iter().flat_map(|reason| reason.headers());
        let theirs = stored_headers(&self.headers)
            .into_iter()
            .filter(|header| !header.name.starts_with(':'));
        own.chain(theirs).collect()
    }

    /// Returns the result with a status.
    #[must_use]
    pub fn with_status(self, status: u16) -> Self {
        Self { status: Some(status), ..self }
    }

    /// Returns the result with a requested pause.
    #[must_use]
    pub fn with_retry_after(self, retry_after: Duration) -> Self {
        Self { retry_after: Some(retry_after), ..self }
    }

    /// Returns the result with the duration of the request.
    #[must_use]
    pub fn with_duration(self, duration: Duration) -> Self {
        Self { duration: Some(duration), ..self }
    }

    /// Returns the result with the part of its duration that this machine caused.
    #[must_use]
    pub fn with_local_delay(self, local_delay: Duration) -> Self {
        Self { local_delay: Some(local_delay), ..self }
    }

    /// Returns the result as one of a server that responded in place of the site: an archive's
    /// copy, a search service's record.
    ///
    /// It says nothing about the site of today. A copy of a block, of a waiting room or of an error
    /// page is not a copy of the page: it counts as `not_held`, and blocks nobody. Its headers ask
    /// nothing of this crawler. The server and the day of the copy become the heuristics
    /// `served_by` and `archived_at`.
    #[must_use]
    pub fn with_provenance(mut self, provenance: Provenance) -> Self {
        let is_refusal = matches!(
            self.outcome,
            Outcome::PaymentRequired | Outcome::Declined | Outcome::IdentityRejected
        );
        if is_refusal || self.outcome.is_no_page() {
            self.message = Some(format!(
                "{} has a copy, but it is not a page: {}",
                provenance.by, self.outcome
            ));
            (self.outcome, self.status) = (Outcome::NotHeld, None);
        }
        (self.retry_after, self.price) = (None, None);
        self.headers.retain(|header| !header.name.eq_ignore_ascii_case("retry-after"));
        self.heuristics.push(Heuristic::new("served_by", provenance.by.to_string()));
        if let Some(day) = provenance.day() {
            self.heuristics.push(Heuristic::new("archived_at", day));
        }
        self.provenance = Some(provenance);
        self
    }

    /// Returns the result as the response of `url`, to which redirects led.
    #[must_use]
    pub fn with_final_url(self, url: Url) -> Self {
        Self { final_url: Some(Box::new(url)), ..self }
    }

    /// Returns the result with a message for people.
    #[must_use]
    pub fn with_message(self, message: impl Into<String>) -> Self {
        Self { message: Some(message.into()), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::FetcherSpec;

    #[test]
    fn every_error_of_the_table_comes_back_from_its_outcome() {
        for (name, renders) in [("direct_access", false), ("playwright", true)] {
            let by = FetcherSpec::by_name(name);
            for &kind in ErrorKind::ALL {
                let expected = match kind {
                    ErrorKind::WrongTool if renders => ErrorKind::EmptyContent,
                    ErrorKind::EmptyContent if !renders => ErrorKind::WrongTool,
                    other => other,
                };
                assert_eq!(Outcome::from(kind).counts_as(&by), Err(ErrorType::Known(expected)));
            }
        }
    }

    #[test]
    fn a_block_is_called_what_it_counts_as() {
        let by = FetcherSpec::by_name("direct_access");
        for block in [Block::challenge(), Block::refusal()] {
            let name = block.kind.to_string();
            let error =
                Outcome::Blocked(block).counts_as(&by).map_err(|error| error.name().to_owned());
            assert_eq!(error, Err(name));
        }
        assert_eq!(
            (BlockKind::Challenge.name(), BlockKind::Refusal.name()),
            ("blocked_captcha", "blocked_403")
        );
    }

    #[test]
    fn a_name_that_only_the_caller_knows_is_recorded() {
        let by = FetcherSpec::by_name("direct_access");
        assert_eq!(
            Outcome::Other("gremlins".into()).counts_as(&by),
            Err(ErrorType::Other("gremlins".into()))
        );
    }
}
