//! The fetcher trait, its requests and responses, and the fetchers.
//!
//! [`Fetcher`] is the trait that a crawler's own fetchers implement. A fetcher owns transport: it
//! dials, follows redirects, decodes and bounds the body, and measures the duration.
//!
//! Must not know: how a page is judged. That is the part of `fetchwise-detect`.

pub mod address_guard;
pub mod archive;
pub mod body;
#[cfg(feature = "browser")]
pub mod browser;
pub mod command;
mod cooldown;
pub mod dial;
pub mod flaresolverr;
pub mod host_headers;
pub mod http;
pub mod local_faults;
pub mod page_judge;
mod process_group;
pub mod proxy;
pub mod redirect_gate;
mod response_head;
pub mod search_api;
pub mod signing;
pub mod upstream;
pub mod validators;
pub mod yt_dlp;

use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::time::Duration;

use url::Url;

use self::http::CookieJar;
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::provenance::Provenance;
use fetchwise_types::response::{Header, Page, is_part};

pub use body::Body;
pub use page_judge::PageJudge;
pub use redirect_gate::RedirectGate;
pub use validators::Validators;

/// Limits of a request.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Time for the whole request: connecting, redirects and body.
    pub deadline: Duration,
    /// Bytes of the body, after content decoding.
    pub max_body: u64,
    /// Bytes of the body that are kept in memory; a longer body continues in a temporary file.
    pub max_in_memory: usize,
    /// Bytes of the response headers.
    pub max_headers: usize,
    /// Number of redirects to follow.
    pub max_redirects: u32,
    /// Decoded bytes per encoded byte, checked from 1 MiB of decoded bytes on: a gzip bomb ends as
    /// `too_large`.
    pub max_decompression_ratio: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(30),
            max_body: 256 << 20,
            max_in_memory: 2 << 20,
            max_headers: 256 << 10,
            max_redirects: 10,
            max_decompression_ratio: 200,
        }
    }
}

/// A request to make.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// URL to get: http or https, without user info.
    pub url: &'a Url,
    /// Limits of the request.
    pub limits: &'a Limits,
    /// Decides about redirects that the fetcher follows by itself. Fetchers that cannot ask it
    /// ignore it.
    pub gate: Option<&'a dyn RedirectGate>,
    /// Validators of an earlier response of this URL, sent with the first request only. Only
    /// [`http`] sends them.
    pub validators: Option<&'a Validators>,
    /// Bytes of the decoded body that are enough. The rest is not read, and a response that is
    /// longer is not [`truncated`](Response::truncated). Only [`http`] stops there; with others,
    /// [`Limits::max_body`] applies.
    pub read_at_most: Option<u64>,
    /// Tells a fetcher that renders whether a page has something to read yet. Without it, a page
    /// without visible text has not.
    pub judge: Option<&'a dyn PageJudge>,
    /// The cookies of the requests before, and those of redirects afterwards, for a caller that
    /// follows redirects written in pages. Only [`http`] has them.
    pub cookies: Option<&'a CookieJar>,
}

impl<'a> Request<'a> {
    /// Returns a request that follows redirects everywhere.
    pub fn new(url: &'a Url, limits: &'a Limits) -> Self {
        Self {
            url,
            limits,
            gate: None,
            validators: None,
            read_at_most: None,
            judge: None,
            cookies: None,
        }
    }
}

/// A received response, whatever its status.
#[derive(Debug)]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// All response headers, in order.
    pub headers: Vec<Header>,
    /// Content-decoded body.
    pub body: Body,
    /// URL that responded, after redirects.
    pub final_url: Url,
    /// URLs that redirected to it, the requested one first, as far as the fetcher knows them.
    pub chain: Vec<Url>,
    /// Time from the first byte sent (or the name lookup) to the last byte received.
    pub duration: Duration,
    /// The server ended the body before its announced length; `body` holds the received part.
    pub truncated: bool,
    /// Requests that led to the response, in order; the response belongs to the last one. Empty
    /// unless the fetcher was told to keep them.
    pub exchange: Vec<Exchange>,
    /// Server of the response if it is not the site itself, and the capture time.
    pub provenance: Option<Provenance>,
    /// Number of requests to the host of `final_url`, for a fetcher that knows it: one that renders
    /// makes further requests for a page. If unknown, the page and its redirects count.
    pub requests: Option<u16>,
    /// URLs of requests that the server did not answer: it closed the kept connection instead, and
    /// each was sent again.
    pub unanswered: Vec<Url>,
    /// A 403 or 429 to a signed request that asks for a signature, although the host has refused
    /// the one that it asked for within the last hour.
    pub is_signature_rejected: bool,
}

/// A request as it was sent, for web archives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Requested URL.
    pub url: Url,
    /// Headers of the request.
    pub request: Vec<Header>,
    /// Address that responded.
    pub peer: Option<IpAddr>,
    /// The response if it was a redirect; the response to the last request is the [`Response`]
    /// itself.
    pub redirect: Option<Redirect>,
}

/// A redirect response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// HTTP status.
    pub status: u16,
    /// All response headers, in order.
    pub headers: Vec<Header>,
}

impl Response {
    /// Returns a response of `final_url`, with everything else unknown.
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
            unanswered: Vec::new(),
            is_signature_rejected: false,
        }
    }

    /// Returns whether the body is a part only: the server ended it too early, or sent a part that
    /// nobody asked for.
    pub fn is_incomplete(&self) -> bool {
        self.truncated || is_part(self.status, &self.headers)
    }

    /// Returns the response as the detector reads it.
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

/// A request without a response.
#[derive(Debug)]
pub struct FetchError {
    /// Kind of the error.
    pub kind: ErrorKind,
    /// Message for a person.
    pub message: String,
    /// Duration of the attempt.
    pub duration: Duration,
    /// Status of the response, if it arrived before the failure.
    pub status: Option<u16>,
    /// Headers of the response, if they arrived before the failure.
    pub headers: Vec<Header>,
    /// The fetcher itself is unavailable: its program does not start, or it cannot sign now.
    /// Nothing is recorded.
    pub unavailable: bool,
    /// This machine lacked a resource (file descriptors, ports, disk, a network, a browser that
    /// starts). The error is not attributed to the host or the fetcher, so nothing is recorded
    /// against either. See [`local_faults`].
    pub local: bool,
    /// Limit of the request that ended it, if one did: a higher limit may let it complete.
    pub limit: Option<LimitMet>,
    /// The request's [`RedirectGate`] did not admit a redirect. No host has refused anything, and
    /// nothing is recorded.
    pub stopped: bool,
    /// The URL that was requested last, if redirects led there: the failure is that of its host.
    pub final_url: Option<Box<Url>>,
    /// As [`Response::unanswered`].
    pub unanswered: Box<[Url]>,
    /// The host refused the connection: no fetcher that connects to it from here can do better.
    pub refused: bool,
    /// Another kind of client may not have this failure: this one misses a certificate, or a
    /// version of TLS.
    pub of_client: bool,
}

/// A limit of a request that its response exceeded, with the value of the limit.
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
    /// Returns whether `limits` allow more than the exceeded limit.
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
    /// Returns an error of `kind`, before any response.
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
            stopped: false,
            final_url: None,
            unanswered: Box::default(),
            refused: false,
            of_client: false,
        }
    }

    /// Returns an error for a missing local resource: the request could not be made, or its
    /// response could not be kept.
    pub fn local(message: impl Into<String>, duration: Duration) -> Self {
        Self { local: true, ..Self::new(ErrorKind::LocalFault, message, duration) }
    }

    /// Returns an error for a fetcher that signs its requests and cannot sign now. Without its
    /// signature the request would be another fetcher's.
    pub(crate) fn unsigned(message: impl Into<String>, duration: Duration) -> Self {
        Self { unavailable: true, ..Self::local(message, duration) }
    }

    /// Returns an error for a fetcher that cannot work at all.
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

/// The future that a [`Fetcher`] returns.
pub type FetchFuture<'a> = Pin<Box<dyn Future<Output = Result<Response, FetchError>> + Send + 'a>>;

/// A named way to get a page.
///
/// One call is one attempt. An implementation enforces `request.limits` itself (the pipeline
/// cancels it a little later) and refuses addresses that may not be dialled. Dropping the future
/// cancels it.
pub trait Fetcher: Send + Sync {
    /// Returns the name under which attempts are logged, e.g. `direct_access`.
    fn name(&self) -> &str;

    /// Returns whether scripts run before the body is read. This decides between `wrong_tool` and
    /// `empty_content`.
    fn renders(&self) -> bool;

    /// Returns the maximum number of concurrent fetches. The pipeline waits for a free slot before
    /// the deadline starts.
    fn max_in_flight(&self) -> usize {
        usize::MAX
    }

    /// Returns the deadline of one request, given the default deadline `asked`. A download takes
    /// longer than a page.
    fn deadline(&self, asked: Duration) -> Duration {
        asked
    }

    /// Gets one page.
    fn fetch<'a>(&'a self, request: Request<'a>) -> FetchFuture<'a>;
}
