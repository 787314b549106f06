//! What a request came to, as whoever made it saw it: the one vocabulary between detection, fetchers and a visit.
//!
//! Owns [`Outcome`], the mapping from it to what an attempt counts as, and [`FetchResult`], which is an outcome with all that an attempt
//! records of it. Must not know how a page is read nor what happens next.

use std::fmt;
use std::time::Duration;

use crate::attempt::ErrorType;
use crate::attempt::error_kind::ErrorKind;
use crate::heuristic::Heuristic;
use crate::provenance::Provenance;
use crate::response::Header;

/// What one request came to.
///
/// It is an observation and blames nobody: the same empty page is the wrong tool's fault when the fetcher runs no scripts, and an
/// empty page when it does. [`Outcome::counts_as`] says which.
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
    /// What was asked for.
    Content,
    /// A page that does nothing but send its reader to another address, in HTML or in a one-line script.
    Redirect {
        /// The address as the page has it, absolute or relative to the page.
        to: Box<str>,
    },
    /// A challenge or a refusal.
    Blocked(Block),
    /// An application's shell: the content comes by script.
    Shell {
        /// The framework, when it has a name.
        framework: Option<Box<str>>,
    },
    /// A page with next to nothing to read.
    Empty,
    /// A waiting room.
    Queued,
    /// A status that is no success, and no block.
    Http(u16),
    /// The deadline passed.
    Timeout,
    /// The connection failed or broke.
    Network,
    /// The name does not resolve.
    Dns,
    /// The TLS handshake failed.
    Tls,
    /// What stands between the crawler and the site failed, not the site: a proxy, an archive, a service.
    Proxy,
    /// A source that was asked in the site's place does not have it.
    NotHeld,
    /// The body ended before its announced length.
    Truncated,
    /// Too many redirects, or a redirect that goes nowhere.
    RedirectLoop,
    /// The body (or the headers) passed a limit.
    TooLarge,
    /// The address is not one that may be dialled.
    RefusedAddress,
    /// Not a URL that can be fetched.
    InvalidUrl,
    /// "Not now", to a crawler that the host had let through: for whoever knows that it is about speed. A 429 is
    /// [`Http`](Self::Http) or [`Blocked`](Self::Blocked), of which a visit finds out itself.
    RateLimited,
    /// The host's robots.txt asks crawlers not to fetch it.
    Disallowed,
    /// The crawler's own machine is at its limits (descriptors, ports, disk, no network): no site and no fetcher is to blame, so
    /// nothing is recorded, and the same is tried again a little later.
    Local,
    /// It failed in a way that only the caller has a name for. Counts as the fetcher's failure.
    Other(Box<str>),
}

/// What kind of block it is, and whose.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Block {
    /// What the visitor is told.
    pub kind: BlockKind,
    /// Whose wall it is, when known.
    pub vendor: Option<Box<str>>,
    /// The id of the detector's rule that told so, if one did.
    pub rule: Option<Box<str>>,
}

/// Whether a block can be solved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BlockKind {
    /// Prove that you are human: a captcha or a script's challenge.
    Challenge,
    /// No.
    Refusal,
}

impl BlockKind {
    /// The name of the failure that it counts as, which it has in JSON, too.
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
    /// A block of this kind, by this vendor, found by this rule.
    pub fn new(kind: BlockKind, vendor: Option<Box<str>>, rule: Option<Box<str>>) -> Self {
        Self { kind, vendor, rule }
    }

    /// A refusal by nobody known: 403 or 429.
    pub fn refusal() -> Self {
        Self { kind: BlockKind::Refusal, vendor: None, rule: None }
    }

    /// A challenge by nobody known.
    pub fn challenge() -> Self {
        Self { kind: BlockKind::Challenge, ..Self::refusal() }
    }

    /// The same with a vendor's name.
    #[must_use]
    pub fn by(self, vendor: &str) -> Self {
        Self { vendor: Some(vendor.into()), ..self }
    }
}

impl Outcome {
    /// What an attempt counts as that a fetcher like `by` made. This is the one place where an observation becomes an entry of the
    /// table of outcomes.
    ///
    /// Statuses that no table names: 204, 205 and 304 bring no content, so they count as empty; another 3xx leads nowhere
    /// (`redirect_loop`); 1xx and 0 are no final answer (`network_error`); 600 and above, such as 999, count as `client_error`.
    ///
    /// # Errors
    /// The type of the failure, when it is one.
    pub fn counts_as(&self, by: &crate::registry::FetcherSpec) -> Result<(), ErrorType> {
        let empty = if by.renders { ErrorKind::EmptyContent } else { ErrorKind::WrongTool };
        let kind = match self {
            Self::Content => return Ok(()),
            Self::Blocked(block) => block.kind.error(),
            // A redirect that nobody follows any further is a page with nothing on it.
            Self::Shell { .. } | Self::Empty | Self::Redirect { .. } => empty,
            Self::Queued => ErrorKind::Queued,
            Self::Http(status) => match *status {
                200..=299 | 304 => empty,
                300..=399 => ErrorKind::RedirectLoop,
                401 | 407 => ErrorKind::AuthRequired,
                403 | 429 => ErrorKind::Blocked403,
                404 | 410 => ErrorKind::NotFound,
                400..=499 | 600.. => ErrorKind::ClientError,
                500..=599 => ErrorKind::ServerError,
                0..=199 => ErrorKind::NetworkError,
            },
            Self::Timeout => ErrorKind::Timeout,
            Self::Network => ErrorKind::NetworkError,
            Self::Dns => ErrorKind::DnsError,
            Self::Tls => ErrorKind::TlsError,
            Self::Proxy => ErrorKind::ProxyError,
            Self::NotHeld => ErrorKind::NotHeld,
            Self::Truncated => ErrorKind::Truncated,
            Self::RedirectLoop => ErrorKind::RedirectLoop,
            Self::TooLarge => ErrorKind::TooLarge,
            Self::RefusedAddress => ErrorKind::RefusedAddress,
            Self::InvalidUrl => ErrorKind::InvalidUrl,
            Self::RateLimited => ErrorKind::RateLimited,
            Self::Disallowed => ErrorKind::Disallowed,
            Self::Local => ErrorKind::LocalFault,
            Self::Other(name) => return Err(ErrorType::from_name(name)),
        };
        Err(ErrorType::Known(kind))
    }
}

impl Outcome {
    /// What it comes to when the body ended before its announced length: nothing that was read in it can be relied on, unless a wall
    /// or a status has said enough.
    #[must_use]
    pub fn truncated(self) -> Self {
        match self {
            Self::Content | Self::Empty | Self::Shell { .. } | Self::Redirect { .. } => Self::Truncated,
            other => other,
        }
    }
}

impl From<ErrorKind> for Outcome {
    /// The observation behind an entry of the table: for whoever has the name only.
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
        }
    }
}

impl From<std::io::Error> for Outcome {
    /// A request that failed on its way: a deadline or a broken connection.
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::TimedOut => Self::Timeout,
            _ => Self::Network,
        }
    }
}

impl fmt::Display for Outcome {
    /// In words, for a person.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Content => f.write_str("content"),
            Self::Redirect { to } => write!(f, "a page that only leads on to {to}"),
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
            Self::Shell { framework } => write!(f, "{} shell", framework.as_deref().unwrap_or("script")),
            Self::Empty => f.write_str("next to nothing to read"),
            Self::Queued => f.write_str("waiting room"),
            Self::Http(status) => write!(f, "status {status}"),
            Self::Timeout => f.write_str("no answer in time"),
            Self::Network => f.write_str("the connection failed"),
            Self::Dns => f.write_str("the name does not resolve"),
            Self::Tls => f.write_str("the TLS handshake failed"),
            Self::Proxy => f.write_str("the proxy failed"),
            Self::NotHeld => f.write_str("not held by the source that was asked"),
            Self::Truncated => f.write_str("the body ended before its announced length"),
            Self::RedirectLoop => f.write_str("too many redirects, or one that goes nowhere"),
            Self::TooLarge => f.write_str("larger than the limit"),
            Self::RefusedAddress => f.write_str("an address that may not be dialled"),
            Self::InvalidUrl => f.write_str("no URL that can be fetched"),
            Self::RateLimited => f.write_str("too fast for the host"),
            Self::Disallowed => f.write_str("disallowed by robots.txt"),
            Self::Local => f.write_str("this machine is at its limits"),
            Self::Other(name) => f.write_str(name),
        }
    }
}

/// The visible text of a page that has little of it: what tells a short page from a wall that is short, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShortPage {
    /// Visible characters.
    pub chars: u32,
    /// A hash of the visible text: the same text has the same.
    pub text_hash: u64,
    /// Whether anything on it hints at a wall, without being enough to call it one.
    pub is_suspect: bool,
}

impl ShortPage {
    /// A page with so many visible characters, whose text has this hash, and on which nothing hints at a wall.
    pub fn new(chars: u32, text_hash: u64) -> Self {
        Self { chars, text_hash, is_suspect: false }
    }

    /// The same, with something on it that hints at a wall.
    #[must_use]
    pub fn suspect(self) -> Self {
        Self { is_suspect: true, ..self }
    }
}

/// An outcome with all that is recorded of it. An [`Outcome`] alone is one too.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FetchResult {
    /// What it came to.
    pub outcome: Outcome,
    /// The HTTP status, when there was one.
    pub status: Option<u16>,
    /// The response's headers, of which [`STORED_HEADERS`](crate::attempt::STORED_HEADERS) are recorded.
    pub headers: Vec<Header>,
    /// What the response showed.
    pub heuristics: Vec<Heuristic>,
    /// How long it is asked to be left alone. Without it a `Retry-After` among the headers counts.
    pub retry_after: Option<Duration>,
    /// How many requests to its host it was, where that is known: its redirects on the host, and what a rendered page asked for.
    pub requests: Option<u16>,
    /// How long it took. Without it the time since the fetch was handed out counts.
    pub duration: Option<Duration>,
    /// The text of a page that has little of it.
    pub short: Option<ShortPage>,
    /// A sketch of what a page with little text says: nearly the same for nearly the same text, whatever numbers are in it. None of
    /// pages with much text, and of what is no HTML.
    pub sketch: Option<u64>,
    /// What happened, for a person; the outcome in words without it.
    pub message: Option<String>,
    /// Who answered in the site's place, where the site was not asked.
    pub elsewhere: Option<Provenance>,
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
            short: None,
            sketch: None,
            message: None,
            elsewhere: None,
        }
    }
}

impl From<ErrorKind> for FetchResult {
    fn from(kind: ErrorKind) -> Self {
        Outcome::from(kind).into()
    }
}

impl FetchResult {
    /// The same with a status.
    #[must_use]
    pub fn with_status(self, status: u16) -> Self {
        Self { status: Some(status), ..self }
    }

    /// The same with a wish to be left alone for a while.
    #[must_use]
    pub fn with_retry_after(self, retry_after: Duration) -> Self {
        Self { retry_after: Some(retry_after), ..self }
    }

    /// The same with the time that the request took.
    #[must_use]
    pub fn with_duration(self, duration: Duration) -> Self {
        Self { duration: Some(duration), ..self }
    }

    /// The same, got from somebody who was asked in the site's place: an archive's copy, a search service's record.
    ///
    /// It says nothing about the site of today. A copy of a wall, of a waiting room or of an error page is no copy of the page
    /// (`not_held`), blocks nobody, and what its headers ask for was asked of somebody else. Who answered, and from which day the
    /// copy is, become heuristics: `served_by` and `archived_at`.
    #[must_use]
    pub fn from_elsewhere(mut self, elsewhere: Provenance) -> Self {
        if matches!(self.outcome, Outcome::Blocked(_) | Outcome::Queued | Outcome::Http(_)) {
            self.message = Some(format!("{} has a copy, and it is no page: {}", elsewhere.by, self.outcome));
            (self.outcome, self.status) = (Outcome::NotHeld, None);
        }
        self.retry_after = None;
        self.headers.retain(|header| !header.name.eq_ignore_ascii_case("retry-after"));
        self.heuristics.push(Heuristic::new("served_by", elsewhere.by.to_string()));
        if let Some(day) = elsewhere.day() {
            self.heuristics.push(Heuristic::new("archived_at", day));
        }
        self.elsewhere = Some(elsewhere);
        self
    }

    /// The same with a sentence for a person.
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
            let error = Outcome::Blocked(block).counts_as(&by).map_err(|error| error.name().to_owned());
            assert_eq!(error, Err(name));
        }
        assert_eq!((BlockKind::Challenge.name(), BlockKind::Refusal.name()), ("blocked_captcha", "blocked_403"));
    }

    #[test]
    fn what_only_the_caller_has_a_name_for_is_recorded_under_it() {
        let by = FetcherSpec::by_name("direct_access");
        assert_eq!(Outcome::Other("gremlins".into()).counts_as(&by), Err(ErrorType::Other("gremlins".into())));
    }
}
