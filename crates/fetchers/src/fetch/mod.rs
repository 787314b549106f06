//! Fetchers: named ways to get a page, and what each must keep to.
//!
//! [`Fetcher`] is the trait that a crawler's own fetchers implement. What a fetcher owns is transport: it dials, follows
//! redirects, decodes and bounds the body, and says how long it took. It does not judge the page: that is [`fetchwise_detect`].

pub mod address_guard;
pub mod archive;
pub mod body;
#[cfg(feature = "browser")]
pub mod browser;
pub mod command;
mod cooldown;
pub mod dial;
pub mod flaresolverr;
pub mod http;
pub mod local_faults;
mod process_group;
pub mod proxy;
pub mod search_api;
pub mod upstream;
pub mod yt_dlp;

use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::time::Duration;

use url::Url;

use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::provenance::Provenance;
use fetchwise_types::response::{Header, Page};

pub use body::Body;

/// What a request may cost at most.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Time for the whole request: connecting, redirects and body.
    pub deadline: Duration,
    /// Bytes of body, after content decoding.
    pub max_body: u64,
    /// Bytes of body kept in memory; what is longer goes on to a temporary file.
    pub max_in_memory: usize,
    /// Bytes of response headers.
    pub max_headers: usize,
    /// Redirects followed.
    pub max_redirects: u32,
    /// Decoded bytes for each encoded one, from 1 MiB decoded on: a gzip bomb ends as `too_large`.
    pub max_decompression_ratio: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(30),
            max_body: 256 << 20,
            max_in_memory: 2 << 20,
            max_headers: 64 << 10,
            max_redirects: 10,
            max_decompression_ratio: 200,
        }
    }
}

/// One request to be made.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What to get: http or https, without user info.
    pub url: &'a Url,
    /// What it may cost.
    pub limits: &'a Limits,
}

/// A response that arrived, whatever its status.
#[derive(Debug)]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// All response headers, in order.
    pub headers: Vec<Header>,
    /// The body, content-decoded.
    pub body: Body,
    /// The URL that answered, after redirects.
    pub final_url: Url,
    /// The URLs that redirected to it, the one that was asked for first; as far as the fetcher has seen them.
    pub chain: Vec<Url>,
    /// From the first byte sent (or the name look-up) to the last byte received.
    pub duration: Duration,
    /// The server ended the body before its announced length. What came is in `body`.
    pub truncated: bool,
    /// The requests that were made for it, in order, the one that it answers last; empty unless the fetcher was asked to keep them.
    pub exchange: Vec<Exchange>,
    /// Who answered in the site's place, where the site was not asked.
    pub provenance: Option<Provenance>,
    /// How many requests to the host of `final_url` it took in all, for a fetcher that knows: one that renders asks for more than the
    /// page. Without it the page and its redirects count.
    pub requests: Option<u16>,
}

/// One request as it went out, for those who keep archives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// What was asked for.
    pub url: Url,
    /// The headers of the request.
    pub request: Vec<Header>,
    /// The address that answered.
    pub peer: Option<IpAddr>,
    /// The answer, when it was a redirect; that of the last request is the [`Response`] itself.
    pub redirect: Option<Redirect>,
}

/// An answer that led elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// HTTP status.
    pub status: u16,
    /// All response headers, in order.
    pub headers: Vec<Header>,
}

impl Response {
    /// An answer of `final_url`, with nothing else known of how it came.
    pub fn new(status: u16, headers: Vec<Header>, body: Body, final_url: Url) -> Self {
        Self {
            status,
            headers,
            body,
            final_url,
            chain: Vec::new(),
            duration: Duration::ZERO,
            truncated: false,
            exchange: Vec::new(),
            provenance: None,
            requests: None,
        }
    }

    /// The response as the detector reads it.
    pub fn page<'a>(&'a self, url: &'a Url) -> Page<'a> {
        Page {
            url: Some(url.as_str()),
            final_url: Some(self.final_url.as_str()),
            status: self.status,
            headers: &self.headers,
            body: self.body.head(),
        }
    }
}

/// A request that brought no response.
#[derive(Debug)]
pub struct FetchError {
    /// What it counts as.
    pub kind: ErrorKind,
    /// What happened, for a person.
    pub message: String,
    /// How long it took.
    pub duration: Duration,
    /// Status and headers, when they came before it went wrong.
    pub status: Option<u16>,
    /// The headers that came before it went wrong.
    pub headers: Vec<Header>,
    /// The fetcher itself is not to be had (its program does not start): nobody was asked for anything, and nothing is
    /// recorded.
    pub unavailable: bool,
    /// This machine lacked something (file descriptors, ports, disk, a network, a browser that starts): it says nothing
    /// about the host or the fetcher, so nothing is to be recorded against either. See [`limits`].
    pub local: bool,
    /// The limit of the request that ended it, when one did: with a higher one it may go on.
    pub limit: Option<LimitMet>,
}

/// A limit of a request that its answer passed, with the value that it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitMet {
    /// [`Limits::deadline`].
    Deadline(Duration),
    /// [`Limits::max_body`].
    Body(u64),
    /// [`Limits::max_headers`].
    Headers(usize),
    /// [`Limits::max_redirects`].
    Redirects(u32),
    /// [`Limits::max_decompression_ratio`].
    DecompressionRatio(u64),
}

impl LimitMet {
    /// Whether `limits` allow more than the limit that was met.
    ///
    /// ```
    /// use fetchwise_fetchers::fetch::{LimitMet, Limits};
    /// let full = Limits { max_redirects: 10, ..Limits::default() };
    /// assert!(LimitMet::Redirects(5).is_wider_in(&full));
    /// assert!(!LimitMet::Redirects(10).is_wider_in(&full));
    /// ```
    pub fn is_wider_in(self, limits: &Limits) -> bool {
        match self {
            Self::Deadline(met) => limits.deadline > met,
            Self::Body(met) => limits.max_body > met,
            Self::Headers(met) => limits.max_headers > met,
            Self::Redirects(met) => limits.max_redirects > met,
            Self::DecompressionRatio(met) => limits.max_decompression_ratio > met,
        }
    }
}

impl FetchError {
    /// An error of `kind`, before any response.
    pub fn new(kind: ErrorKind, message: impl Into<String>, duration: Duration) -> Self {
        Self {
            kind,
            message: message.into(),
            duration,
            status: None,
            headers: Vec::new(),
            unavailable: false,
            local: false,
            limit: None,
        }
    }

    /// This machine lacked something, so that the request could not be made or its answer not be kept.
    pub fn local(message: impl Into<String>, duration: Duration) -> Self {
        Self { local: true, ..Self::new(ErrorKind::LocalFault, message, duration) }
    }

    /// The fetcher cannot work at all.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self { unavailable: true, ..Self::new(ErrorKind::NetworkError, message, Duration::ZERO) }
    }
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)
    }
}

impl std::error::Error for FetchError {}

/// A future that a [`Fetcher`] returns.
pub type FetchFuture<'a> = Pin<Box<dyn Future<Output = Result<Response, FetchError>> + Send + 'a>>;

/// A named way to get a page.
///
/// One call is one attempt. An implementation keeps to `request.limits` itself (the pipeline cuts it off a little later),
/// refuses addresses that may not be dialled, and is cancelled by dropping the future.
pub trait Fetcher: Send + Sync {
    /// The name that attempts are logged under, e.g. `direct_access`.
    fn name(&self) -> &str;

    /// Whether scripts run before the body is read: decides between `wrong_tool` and `empty_content`.
    fn renders(&self) -> bool;

    /// How many fetches it can have under way at once. The pipeline waits for a free place before the deadline starts.
    fn max_in_flight(&self) -> usize {
        usize::MAX
    }

    /// The time that one request may take, where `asked` is what requests get. A download takes longer than a page.
    fn deadline(&self, asked: Duration) -> Duration {
        asked
    }

    /// Gets one page.
    fn fetch<'a>(&'a self, request: Request<'a>) -> FetchFuture<'a>;
}
