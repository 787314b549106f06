//! `archive_proxy`: brings a web archive's copy of a page, the newest one or the one nearest to a wanted date.
//!
//! Archives are asked in their order: the Wayback Machine by its availability and CDX interfaces and its raw captures, any other
//! one by its time gate (RFC 7089). Invariant: what comes back is a copy that says from when it is ([`Response::elsewhere`]),
//! never an answer of the live site; what an archive itself does wrong (429, 5xx, no answer) is `proxy_error` without a status, so
//! that neither the site's evidence nor its pauses move; that it has no copy is `not_held`. Requests go out by the plain fetcher
//! and so under its guard and limits.

mod memento;
mod wayback;

use std::fmt;
use std::time::{Duration, Instant};

use url::Url;

use super::http::{BuildError, HttpFetcher, HttpFetcherBuilder};
use super::{FetchError, FetchFuture, Fetcher, LimitMet, Limits, Request, Response};
use crate::fetch::cooldown::{Rest, asked_rest};
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::provenance::Provenance;
use fetchwise_types::response::header;
use fetchwise_types::time::Timestamp;
use memento::CopyAddress;

/// The name under which attempts are logged unless another one is given.
pub const DEFAULT_NAME: &str = "archive_proxy";

/// Bytes of an answer that says where a copy is.
const MAX_LOOKUP: u64 = 1 << 20;

/// One archive, and how it is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Archive {
    /// The Wayback Machine, or one that works as it does.
    Wayback {
        /// Where its captures are: `<base>/web/20240229120000id_/<url>` and `<base>/cdx/search/cdx`.
        base: Url,
        /// Its availability interface, which is asked first; without one the CDX interface is asked at once.
        availability: Option<Url>,
    },
    /// Any archive with a Memento time gate: the page's address is appended to this one.
    TimeGate(Url),
}

impl Archive {
    /// The Internet Archive's Wayback Machine.
    pub fn internet_archive() -> Self {
        let url = |text| Url::parse(text).expect("a constant URL parses");
        Self::Wayback {
            base: url("https://web.archive.org/"),
            availability: Some(url("https://archive.org/wayback/available")),
        }
    }

    fn host(&self) -> &str {
        match self {
            Self::Wayback { base: url, .. } | Self::TimeGate(url) => url.host_str().unwrap_or_default(),
        }
    }
}

/// How an [`ArchiveFetcher`] is set up.
#[derive(Clone, Debug)]
pub struct ArchiveOptions {
    /// The name that attempts are logged under.
    pub name: String,
    /// The archives, in the order in which they are asked.
    pub archives: Vec<Archive>,
    /// The date that the copy should be near to; none: the newest one.
    pub wanted: Option<Timestamp>,
    /// Pages that are asked for at a time: archives are shared by everybody.
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

/// Gets pages from web archives. See the [module](self).
pub struct ArchiveFetcher {
    name: String,
    archives: Vec<(Archive, Rest)>,
    wanted: Option<Timestamp>,
    max_in_flight: usize,
    http: HttpFetcher,
}

impl ArchiveFetcher {
    /// A fetcher that asks the archives of `options` by requests as `http` makes them.
    ///
    /// # Errors
    /// See [`HttpFetcherBuilder::build`].
    pub fn new(options: ArchiveOptions, http: HttpFetcherBuilder) -> Result<Self, BuildError> {
        let http = match options.wanted {
            // A time gate chooses by it; other requests name the copy that they want.
            Some(wanted) => http.header("accept-datetime", memento::http_date(wanted)),
            None => http,
        };
        Ok(Self {
            http: http.name(&*options.name).build()?,
            name: options.name,
            archives: options.archives.into_iter().map(|archive| (archive, Rest::default())).collect(),
            wanted: options.wanted,
            max_in_flight: options.max_in_flight.max(1),
        })
    }

    async fn bring(&self, request: Request<'_>) -> Result<Response, FetchError> {
        let started = Instant::now();
        let (mut not_held, mut faults, mut resting) = (Vec::new(), Vec::new(), Vec::new());
        for (place, (archive, rest)) in self.archives.iter().enumerate() {
            let host = archive.host();
            if let Some(why) = rest.why_not() {
                resting.push(format!("{host}: {why}"));
                continue;
            }
            let left = request.limits.deadline.saturating_sub(started.elapsed());
            // The archives that are still to be asked share the time that is left.
            let share = left / u32::try_from(self.archives.len() - place).unwrap_or(1);
            let errand = Errand {
                http: &self.http,
                url: request.url,
                wanted: self.wanted,
                limits: request.limits,
                until: Instant::now() + share,
            };
            match errand.run(archive).await {
                Ok(response) => {
                    rest.answered();
                    return Ok(Response { duration: started.elapsed(), ..response });
                }
                Err(Trouble::Ours(error)) => return Err(FetchError { duration: started.elapsed(), ..*error }),
                Err(Trouble::NotHeld(why)) => {
                    rest.answered();
                    not_held.push(format!("{host}: {why}"));
                }
                Err(Trouble::Fault { why, asked }) => {
                    rest.failed(asked, &why);
                    faults.push(format!("{host}: {why}"));
                }
            }
        }
        if not_held.is_empty() && faults.is_empty() {
            let why = if resting.is_empty() { "no archive is configured".to_owned() } else { resting.join("; ") };
            return Err(FetchError::unavailable(why));
        }
        // While one of them could not say, nobody knows that there is no copy.
        let kind = if faults.is_empty() && resting.is_empty() { ErrorKind::NotHeld } else { ErrorKind::ProxyError };
        let all: Vec<String> = faults.into_iter().chain(resting).chain(not_held).collect();
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
        Box::pin(self.bring(request))
    }
}

/// Why an archive brought nothing.
enum Trouble {
    /// It has no copy, or shows none.
    NotHeld(String),
    /// It failed, and perhaps asked to be left alone.
    Fault { why: String, asked: Option<Duration> },
    /// Neither it nor the site is to blame: this machine's fault, or a limit of the request that the copy passes.
    Ours(Box<FetchError>),
}

/// One page that one archive is asked for.
struct Errand<'a> {
    http: &'a HttpFetcher,
    url: &'a Url,
    wanted: Option<Timestamp>,
    limits: &'a Limits,
    until: Instant,
}

impl Errand<'_> {
    async fn run(&self, archive: &Archive) -> Result<Response, Trouble> {
        match archive {
            Archive::Wayback { base, availability } => {
                let address = wayback::locate(self, base, availability.as_ref()).await?;
                self.copy(address).await
            }
            Archive::TimeGate(gate) => {
                let address = Url::parse(&format!("{gate}{}", self.url)).map_err(|error| {
                    Trouble::NotHeld(format!("its time gate cannot be asked for this URL: {error}"))
                })?;
                self.copy(address).await
            }
        }
    }

    /// Asks for what says where a copy is: the whole answer, which is text.
    async fn look_up(&self, address: &Url) -> Result<String, Trouble> {
        let limits = Limits { deadline: self.left(), max_body: MAX_LOOKUP, ..self.limits.clone() };
        let request = Request { url: address, limits: &limits };
        let response = self.http.fetch(request).await.map_err(|error| fault_of(error, false))?;
        judge_status(&response)?;
        Ok(String::from_utf8_lossy(response.body.head()).into_owned())
    }

    /// Goes to a copy, or to what leads to it, and never off the archive: a captured redirect leads to the copy of where it led.
    async fn copy(&self, mut address: Url) -> Result<Response, Trouble> {
        let mut plain_form = None;
        for _ in 0..=self.limits.max_redirects {
            let limits = Limits { deadline: self.left(), max_redirects: 0, ..self.limits.clone() };
            let error = match self.http.fetch(Request { url: &address, limits: &limits }).await {
                Err(error) => error,
                Ok(response) => {
                    if let Some(captured) = memento::memento_time(&response.headers) {
                        return Ok(self.found(response, captured));
                    }
                    match (judge_status(&response), plain_form.take()) {
                        // The archive does not give its captures in the raw form.
                        (Err(Trouble::NotHeld(_)), Some(plain)) => {
                            address = plain;
                            continue;
                        }
                        (Err(trouble), _) => return Err(trouble),
                        (Ok(()), _) => {
                            let why = format!("{address} does not say that it is a copy (no Memento-Datetime)");
                            return Err(Trouble::Fault { why, asked: None });
                        }
                    }
                }
            };
            let location = match (error.limit, header(&error.headers, "location")) {
                (Some(LimitMet::Redirects(0)), Some(location)) => address.join(location).ok(),
                _ => return Err(fault_of(error, true)),
            };
            let Some(next) = location else {
                return Err(Trouble::NotHeld("its copy is a redirect to nowhere".to_owned()));
            };
            (address, plain_form) = self.follow(&address, next)?;
        }
        Err(Trouble::NotHeld(format!("its copy goes on past {} redirects", self.limits.max_redirects)))
    }

    /// Where `next`, which `here` leads to, is in the archive, raw; and the same in the archive's own form.
    fn follow(&self, here: &Url, next: Url) -> Result<(Url, Option<Url>), Trouble> {
        if next.host_str() == here.host_str() && next.port() == here.port() {
            let raw = CopyAddress::read(next.as_str()).and_then(|copy| copy.raw()).filter(|raw| *raw != next);
            return Ok(match raw {
                Some(raw) => (raw, Some(next)),
                None => (next, None),
            });
        }
        if let Some(raw) = CopyAddress::read(next.as_str()).and_then(|copy| copy.raw()) {
            // The archive's copies are on another host than its time gate.
            return Ok((raw, Some(next)));
        }
        // A captured redirect as it was: it leads to the live site.
        let there = CopyAddress::read(here.as_str()).and_then(|copy| copy.raw_of(next.as_str()));
        there.map(|there| (there, None)).ok_or_else(|| Trouble::NotHeld(format!("it leads away, to {next}")))
    }

    /// The response that a copy is.
    fn found(&self, copy: Response, captured: Timestamp) -> Response {
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

    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
    }
}

/// What an archive's answer comes to that is no copy.
fn judge_status(response: &Response) -> Result<(), Trouble> {
    match response.status {
        200..=299 => Ok(()),
        // Not captured, or shut by its owner's wish.
        status @ (403 | 404 | 406 | 410 | 451) => Err(Trouble::NotHeld(format!("it has no copy (status {status})"))),
        status => {
            let asked = asked_rest(status, &response.headers);
            Err(Trouble::Fault { why: format!("it answered with status {status}"), asked })
        }
    }
}

/// What it means that no answer came. Whether the answer would have been the copy decides who passed a limit.
fn fault_of(error: FetchError, of_copy: bool) -> Trouble {
    if error.local || of_copy && error.kind == ErrorKind::TooLarge {
        return Trouble::Ours(Box::new(error));
    }
    Trouble::Fault { why: format!("it cannot be asked ({})", error.message), asked: None }
}
