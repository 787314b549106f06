//! `archive_proxy`: a fetcher of a web archive's copy of a page, the newest one or the one nearest
//! to a given date.
//!
//! Archives are tried in order: the Wayback Machine by its availability and CDX APIs and its raw
//! captures, any other one by its time gate (RFC 7089).
//!
//! Invariants: a response is a copy with its capture time ([`Response::provenance`]), never a
//! response of the live site. A fault of the archive itself (429, 5xx, no response) is
//! `proxy_error` without a status, so neither the site's evidence nor its pauses change. A missing
//! copy is `not_held`. Requests go through the plain fetcher, and so under its guard and limits.

mod memento;
mod wayback;

use std::fmt;
use std::time::{Duration, Instant};

use url::Url;

use super::http::{BuildError, HttpFetcher, HttpFetcherBuilder};
use super::{FetchError, FetchFuture, Fetcher, LimitMet, Limits, Request, Response};
use crate::fetch::cooldown::{Cooldown, requested_pause};
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::provenance::Provenance;
use fetchwise_types::response::header;
use fetchwise_types::time::Timestamp;
use memento::CopyAddress;

/// Default name under which attempts are logged.
pub const DEFAULT_NAME: &str = "archive_proxy";

/// Maximum bytes of a response that locates a copy.
const MAX_LOOKUP: u64 = 1 << 20;

/// An archive and its protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Archive {
    /// The Wayback Machine, or a compatible archive.
    Wayback {
        /// Base of its captures: `<base>/web/20240229120000id_/<url>` and `<base>/cdx/search/cdx`.
        base: Url,
        /// Its availability API, which gets the first request; `None` starts with the CDX API.
        availability: Option<Url>,
    },
    /// Any archive with a Memento time gate; the page's address is appended to this one.
    TimeGate(Url),
}

impl Archive {
    /// Returns the Internet Archive's Wayback Machine.
    pub fn internet_archive() -> Self {
        let url = |text| Url::parse(text).expect("a constant URL parses");
        Self::Wayback {
            base: url("https://web.archive.org/"),
            availability: Some(url("https://archive.org/wayback/available")),
        }
    }

    fn host(&self) -> &str {
        match self {
            Self::Wayback { base: url, .. } | Self::TimeGate(url) => {
                url.host_str().unwrap_or_default()
            }
        }
    }
}

/// Settings of an [`ArchiveFetcher`].
#[derive(Clone, Debug)]
pub struct ArchiveOptions {
    /// Name under which attempts are logged.
    pub name: String,
    /// Archives, in the order in which they are tried.
    pub archives: Vec<Archive>,
    /// Date that the copy should be near to; `None` for the newest one.
    pub wanted: Option<Timestamp>,
    /// Maximum number of concurrent pages: archives are a shared resource.
    pub max_in_flight: usize,
}

impl Default for ArchiveOptions {
    fn default() -> Self {
        Self {
            name: DEFAULT_NAME.to_owned(),
            archives: vec![Archive::internet_archive()],
            wanted: None,
            max_in_flight: 2,
        }
    }
}

/// A fetcher of copies from web archives. See the [module](self).
pub struct ArchiveFetcher {
    name: String,
    archives: Vec<(Archive, Cooldown)>,
    wanted: Option<Timestamp>,
    max_in_flight: usize,
    http: HttpFetcher,
}

impl ArchiveFetcher {
    /// Returns a fetcher that sends requests to the archives of `options` with the settings of
    /// `http`.
    ///
    /// # Errors
    /// See [`HttpFetcherBuilder::build`].
    pub fn new(options: ArchiveOptions, http: HttpFetcherBuilder) -> Result<Self, BuildError> {
        let http = match options.wanted {
            // A time gate selects by it; other requests name the copy.
            Some(wanted) => http.header("accept-datetime", memento::http_date(wanted)),
            None => http,
        };
        Ok(Self {
            http: http.name(&*options.name).build()?,
            name: options.name,
            archives: options
                .archives
                .into_iter()
                .map(|archive| (archive, Cooldown::default()))
                .collect(),
            wanted: options.wanted,
            max_in_flight: options.max_in_flight.max(1),
        })
    }

    async fn fetch_copy(&self, request: Request<'_>) -> Result<Response, FetchError> {
        let started = Instant::now();
        let (mut not_held, mut faults, mut paused) = (Vec::new(), Vec::new(), Vec::new());
        for (index, (archive, cooldown)) in self.archives.iter().enumerate() {
            let host = archive.host();
            if let Some(reason) = cooldown.pause_reason() {
                paused.push(format!("{host}: {reason}"));
                continue;
            }
            let left = request.limits.deadline.saturating_sub(started.elapsed());
            // The remaining archives share the remaining time.
            let share = left / u32::try_from(self.archives.len() - index).unwrap_or(1);
            let archive_request = ArchiveRequest {
                http: &self.http,
                url: request.url,
                wanted: self.wanted,
                limits: request.limits,
                until: Instant::now() + share,
            };
            match archive_request.run(archive).await {
                Ok(response) => {
                    cooldown.record_response();
                    return Ok(Response { duration: started.elapsed(), ..response });
                }
                Err(ArchiveError::Local(error)) => {
                    return Err(FetchError { duration: started.elapsed(), ..*error });
                }
                Err(ArchiveError::NotHeld(reason)) => {
                    cooldown.record_response();
                    not_held.push(format!("{host}: {reason}"));
                }
                Err(ArchiveError::Fault { reason, requested_pause }) => {
                    cooldown.record_failure(requested_pause, &reason);
                    faults.push(format!("{host}: {reason}"));
                }
            }
        }
        if not_held.is_empty() && faults.is_empty() {
            let why = if paused.is_empty() {
                "no archives configured".to_owned()
            } else {
                paused.join("; ")
            };
            return Err(FetchError::unavailable(why));
        }
        // While one archive could not respond, it is unknown whether there is a copy.
        let kind = if faults.is_empty() && paused.is_empty() {
            ErrorKind::NotHeld
        } else {
            ErrorKind::ProxyError
        };
        let all: Vec<String> = faults.into_iter().chain(paused).chain(not_held).collect();
        Err(FetchError::new(kind, all.join("; "), started.elapsed()))
    }
}

impl fmt::Debug for ArchiveFetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArchiveFetcher").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Fetcher for ArchiveFetcher {
    fn name(&self) -> &str {
        &self.name
    }

    fn renders(&self) -> bool {
        false
    }

    fn max_in_flight(&self) -> usize {
        self.max_in_flight
    }

    fn fetch<'a>(&'a self, request: Request<'a>) -> FetchFuture<'a> {
        Box::pin(self.fetch_copy(request))
    }
}

/// The reason why an archive delivered no copy.
enum ArchiveError {
    /// It has no copy, or does not show it.
    NotHeld(String),
    /// It failed, and may have requested a pause.
    Fault { reason: String, requested_pause: Option<Duration> },
    /// Neither the archive nor the site is responsible: a local fault, or a limit of the request
    /// that the copy exceeds.
    Local(Box<FetchError>),
}

/// A request for one page to one archive.
struct ArchiveRequest<'a> {
    http: &'a HttpFetcher,
    url: &'a Url,
    wanted: Option<Timestamp>,
    limits: &'a Limits,
    until: Instant,
}

impl ArchiveRequest<'_> {
    async fn run(&self, archive: &Archive) -> Result<Response, ArchiveError> {
        match archive {
            Archive::Wayback { base, availability } => {
                let address = wayback::locate(self, base, availability.as_ref()).await?;
                self.copy(address).await
            }
            Archive::TimeGate(gate) => {
                let address = Url::parse(&format!("{gate}{}", self.url)).map_err(|error| {
                    ArchiveError::NotHeld(format!("invalid URL for its time gate: {error}"))
                })?;
                self.copy(address).await
            }
        }
    }

    /// Requests the text that locates a copy.
    async fn look_up(&self, address: &Url) -> Result<String, ArchiveError> {
        let limits =
            Limits { deadline: self.time_left(), max_body: MAX_LOOKUP, ..self.limits.clone() };
        let request = Request::new(address, &limits);
        let response = self.http.fetch(request).await.map_err(|error| error_of(error, false))?;
        check_status(&response)?;
        Ok(String::from_utf8_lossy(response.body.head()).into_owned())
    }

    /// Follows redirects to a copy, never off the archive: a captured redirect leads to the copy of
    /// its target.
    async fn copy(&self, mut address: Url) -> Result<Response, ArchiveError> {
        let mut plain_form = None;
        for _ in 0..=self.limits.max_redirects {
            let limits =
                Limits { deadline: self.time_left(), max_redirects: 0, ..self.limits.clone() };
            let error = match self.http.fetch(Request::new(&address, &limits)).await {
                Err(error) => error,
                Ok(response) => {
                    if let Some(captured) = memento::memento_time(&response.headers) {
                        return Ok(self.to_response(response, captured));
                    }
                    match (check_status(&response), plain_form.take()) {
                        // The archive does not offer raw captures.
                        (Err(ArchiveError::NotHeld(_)), Some(plain)) => {
                            address = plain;
                            continue;
                        }
                        (Err(error), _) => return Err(error),
                        (Ok(()), _) => {
                            let reason =
                                format!("{address} is not a copy (missing Memento-Datetime)");
                            return Err(ArchiveError::Fault { reason, requested_pause: None });
                        }
                    }
                }
            };
            let location = match (error.limit, header(&error.headers, "location")) {
                (Some(LimitMet::Redirects(0)), Some(location)) => address.join(location).ok(),
                _ => return Err(error_of(error, true)),
            };
            let Some(next) = location else {
                return Err(ArchiveError::NotHeld(
                    "the copy is a redirect with an invalid location".to_owned(),
                ));
            };
            (address, plain_form) = self.follow(&address, next)?;
        }
        Err(ArchiveError::NotHeld(format!(
            "the copy has more than {} redirects",
            self.limits.max_redirects
        )))
    }

    /// Returns the raw address in the archive of `next`, which `here` leads to, and the archive's
    /// own form of it.
    fn follow(&self, here: &Url, next: Url) -> Result<(Url, Option<Url>), ArchiveError> {
        if next.host_str() == here.host_str() && next.port() == here.port() {
            let raw = CopyAddress::read(next.as_str())
                .and_then(|copy| copy.raw())
                .filter(|raw| *raw != next);
            return Ok(match raw {
                Some(raw) => (raw, Some(next)),
                None => (next, None),
            });
        }
        if let Some(raw) = CopyAddress::read(next.as_str()).and_then(|copy| copy.raw()) {
            // The archive's copies are on another host than its time gate.
            return Ok((raw, Some(next)));
        }
        // A captured redirect, which leads to the live site.
        let there = CopyAddress::read(here.as_str()).and_then(|copy| copy.raw_of(next.as_str()));
        there
            .map(|there| (there, None))
            .ok_or_else(|| ArchiveError::NotHeld(format!("the archive redirects away, to {next}")))
    }

    /// Converts a copy to a response.
    fn to_response(&self, copy: Response, captured: Timestamp) -> Response {
        let by = copy.final_url.host_str().unwrap_or_default().to_owned();
        let original = memento::original_link(&copy.headers)
            .or_else(|| CopyAddress::read(copy.final_url.as_str()).map(|copy| copy.original))
            .and_then(|original| Url::parse(original).ok())
            .unwrap_or_else(|| self.url.clone());
        Response {
            headers: memento::captured_headers(&copy.headers),
            chain: if original == *self.url { Vec::new() } else { vec![self.url.clone()] },
            final_url: original,
            provenance: Some(Provenance::copy(&by, captured)),
            ..copy
        }
    }

    fn time_left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
    }
}

/// Checks the status of an archive's response.
fn check_status(response: &Response) -> Result<(), ArchiveError> {
    match response.status {
        200..=299 => Ok(()),
        // Not captured, or closed at the owner's request.
        status @ (403 | 404 | 406 | 410 | 451) => {
            Err(ArchiveError::NotHeld(format!("no copy (status {status})")))
        }
        status => {
            let requested_pause = requested_pause(status, &response.headers);
            Err(ArchiveError::Fault {
                reason: format!("unexpected status {status}"),
                requested_pause,
            })
        }
    }
}

/// Converts a failed request. `of_copy` says whether the response would have been the copy, and so
/// who exceeded a limit.
fn error_of(error: FetchError, of_copy: bool) -> ArchiveError {
    if error.local || of_copy && error.kind == ErrorKind::TooLarge {
        return ArchiveError::Local(Box::new(error));
    }
    ArchiveError::Fault {
        reason: format!("request failed: {}", error.message),
        requested_pause: None,
    }
}
