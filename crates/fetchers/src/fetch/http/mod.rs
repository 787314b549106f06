//! `direct_access`: the plain HTTP fetcher. HTTP/1.1 and HTTP/2 over pooled connections, redirects,
//! content codings, limits.
//!
//! Invariants: every connection comes from the [`Dialer`](super::dial::Dialer), and so goes to an
//! address that the guard allowed, at each redirect. A fetch ends by its deadline and keeps its
//! memory limits, whatever the server sends.
//!
//! Must not know: how a page is judged. A 403 or an empty body is a [`Response`] like any other.
//!
//! Cookies that a redirect sets are sent with the later requests of the same fetch, as in a
//! browser, and are forgotten with it: none passes from one fetch to the next.
//!
//! It runs no scripts, reads no robots.txt, and does not retry failed requests, with three
//! exceptions. If a pooled connection turns out to have been closed while it was idle, before a
//! byte of a response arrived, the request is sent once more, since the server never responded to
//! the first. The response and the error name such requests, because the server may have read them.
//! A signed request is sent once more if its response, a 403 or 429, asks for another signature.
//! And a request over HTTP/2 is sent once more over HTTP/1.1 if the server requires that, cannot
//! speak HTTP/2 although it agreed to, or says that the connection is the wrong one.

mod builder;
mod connector;
mod cookies;
mod decode;
mod error_chain;
mod failure;
mod gzip;
mod http1_hosts;
mod redirect;
mod set_cookie;
mod tracked_connection;

use std::fmt;
use std::future::{Future as _, poll_fn};
use std::path::PathBuf;
use std::pin::Pin;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{
    AUTHORIZATION, COOKIE, IF_MODIFIED_SINCE, IF_NONE_MATCH, LOCATION, PROXY_AUTHORIZATION,
};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body as _, Incoming};
use hyper_util::client::legacy::Error;
use hyper_util::client::legacy::connect::capture_connection;
use url::Url;

use super::body::BodyCollector;
use super::{
    Exchange, FetchFuture, Fetcher, LimitMet, Limits, Redirect, RedirectGate, Request, Response,
    Validators,
};
use crate::fetch::address_guard::AddressGuard;
use crate::fetch::host_headers::{HostHeaders, replace};
use crate::fetch::redirect_gate::within;
use crate::fetch::signing::{RequestSignature, RequestSigner, SIGNATURE, SecondSignature};
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::response::Header;

use crate::fetch::http::tracked_connection::{ConnectionCounters, InFlight, TrackedBody};
pub use crate::fetch::response_head::MAX_HEAD;
pub use builder::{BuildError, DEFAULT_NAME, DEFAULT_USER_AGENT, HttpFetcherBuilder};
use builder::{HttpClient, IDLE_PER_HOST, Versions};
pub(crate) use connector::Connector;
use connector::PeerAddress;
pub use cookies::CookieJar;
use failure::Failure;
use http1_hosts::Http1Hosts;
use redirect::{RedirectChain, is_redirect};

/// Maximum length of a URL in `http::Uri`.
const MAX_URL: usize = u16::MAX as usize - 1;

/// Maximum bytes of a redirect's body that are read so that its connection can be reused.
const DRAIN_AT_MOST: u64 = 16 << 10;
const DRAIN_TIME: Duration = Duration::from_millis(100);

/// The plain fetcher: one GET, with its redirects.
///
/// A `HttpFetcher` has one connection pool: share it, and use it inside one tokio runtime, which
/// owns its connections.
///
/// ```no_run
/// use fetchwise_fetchers::fetch::address_guard::AddressGuard;
/// use fetchwise_fetchers::fetch::http::HttpFetcher;
/// use fetchwise_fetchers::fetch::{Fetcher, Limits, Request};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let fetcher = HttpFetcher::new(AddressGuard::default())?;
/// let url = "https://example.com/".parse()?;
/// let response = fetcher.fetch(Request::new(&url, &Limits::default())).await?;
/// println!("{} {} bytes", response.status, response.body.len());
/// # Ok(())
/// # }
/// ```
pub struct HttpFetcher {
    name: String,
    client: HttpClient,
    /// For hosts that want HTTP/1.1 although they offer HTTP/2.
    http1_client: HttpClient,
    http1_hosts: Http1Hosts,
    headers: HeaderMap,
    /// Whether plain requests go to a proxy, and the credentials for it.
    proxy: Option<ProxyAccess>,
    temp_dir: Option<PathBuf>,
    keeps_exchange: bool,
    signer: Option<RequestSigner>,
    requires_signature: bool,
    host_headers: HostHeaders,
}

/// Access to a proxy that takes plain requests.
struct ProxyAccess {
    authorization: Option<HeaderValue>,
}

impl HttpFetcher {
    /// Returns a fetcher named `direct_access` under `guard`, with defaults otherwise.
    ///
    /// # Errors
    /// See [`HttpFetcherBuilder::build`].
    pub fn new(guard: AddressGuard) -> Result<Self, BuildError> {
        Self::builder().guard(guard).build()
    }

    /// Returns a builder of a fetcher.
    pub fn builder() -> HttpFetcherBuilder {
        HttpFetcherBuilder::default()
    }
}

impl HttpFetcherBuilder {
    /// Builds the fetcher, with an empty connection pool.
    ///
    /// # Errors
    /// [`BuildError`] for a header that is invalid or set by the transport, and for an invalid
    /// certificate.
    pub fn build(self) -> Result<HttpFetcher, BuildError> {
        let proxy = self.upstream.as_ref().filter(|upstream| upstream.forwards_requests());
        Ok(HttpFetcher {
            client: self.client(Versions::All)?,
            http1_client: self.client(Versions::Http1)?,
            http1_hosts: Http1Hosts::default(),
            headers: self.request_headers()?,
            proxy: proxy.map(|upstream| ProxyAccess { authorization: upstream.authorization() }),
            name: self.name,
            temp_dir: self.temp_dir,
            keeps_exchange: self.keeps_exchange,
            signer: self.signer,
            requires_signature: self.requires_signature,
            host_headers: self.host_headers,
        })
    }
}

impl fmt::Debug for HttpFetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpFetcher").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Fetcher for HttpFetcher {
    fn name(&self) -> &str {
        &self.name
    }

    fn renders(&self) -> bool {
        false
    }

    fn fetch<'a>(&'a self, request: Request<'a>) -> FetchFuture<'a> {
        Box::pin(async move {
            let start = Instant::now();
            let (mut response_head, mut way) = (None, Way::default());
            let following = self.follow(request, &mut response_head, &mut way);
            let ended = within(request.limits.deadline, request.gate, following).await;
            let duration = start
                .elapsed()
                .saturating_sub(request.gate.map_or(Duration::ZERO, RedirectGate::waited));
            let failure = match ended {
                Some(Ok(done)) => {
                    return Ok(way.annotate(done.into_response(response_head, duration)));
                }
                Some(Err(failure)) => failure,
                None => {
                    let deadline = request.limits.deadline;
                    let is_odd_port =
                        request.url.scheme() == "https" && request.url.port().is_some();
                    let hint = match response_head.is_none() && is_odd_port {
                        true => "; no response: if the port speaks no TLS, try http://",
                        false => "",
                    };
                    let message = format!("the fetch did not end within {deadline:?}{hint}");
                    Failure::past(LimitMet::Deadline(deadline), ErrorKind::Timeout, message)
                }
            };
            let mut error = failure.into_error(duration);
            (error.final_url, error.unanswered) = (way.landed.map(Box::new), way.unanswered.into());
            if let Some(ResponseHead { status, headers }) = response_head {
                error.status = Some(status.as_u16());
                error.headers = headers_as_text(&headers);
            }
            Err(error)
        })
    }
}

/// The head of the response that is being read, kept outside the future so that a later failure can
/// report it.
struct ResponseHead {
    status: StatusCode,
    headers: HeaderMap,
}

/// The way of a fetch so far, kept outside the future so that a failure can report it.
#[derive(Default)]
struct Way {
    /// The URL that redirects led to.
    landed: Option<Url>,
    /// URLs of requests that were not answered, and were sent again.
    unanswered: Vec<Url>,
    /// URLs of requests that were refused, and were sent again in another way: with another
    /// signature, or over HTTP/1.1.
    sent_again: Vec<Url>,
    /// Whether the last response rejects the signature.
    is_signature_rejected: bool,
}

/// A request that can be sent.
struct PreparedRequest {
    request: http::Request<Empty<Bytes>>,
    /// The copy of its headers, if it is kept.
    sent: Option<Vec<Header>>,
    signature: Option<RequestSignature>,
}

impl Way {
    /// Returns the response with the requests that were sent more than once.
    fn annotate(self, response: Response) -> Response {
        let Self { unanswered, sent_again, is_signature_rejected, .. } = self;
        let is_same = |url: &&Url| url.host() == response.final_url.host();
        let requests = match sent_again.iter().filter(is_same).count() {
            0 => None,
            again => {
                let others = response.chain.iter().chain(&unanswered).filter(is_same).count();
                u16::try_from(again + others + 1).ok()
            }
        };
        Response { unanswered, requests, is_signature_rejected, ..response }
    }
}

struct CompletedFetch {
    decoded: decode::Decoded,
    final_url: Url,
    chain: Vec<Url>,
    exchange: Vec<Exchange>,
}

impl CompletedFetch {
    fn into_response(self, response_head: Option<ResponseHead>, duration: Duration) -> Response {
        let (status, headers) = response_head
            .map_or_else(Default::default, |a| (a.status, headers_as_text(&a.headers)));
        let Self { decoded, final_url, chain, exchange } = self;
        let truncated = decoded.truncated;
        let response = Response::new(status.as_u16(), headers, decoded.body, final_url);
        Response { chain, duration, truncated, exchange, ..response }
    }
}

/// Asks whether a request may go on to where it was redirected.
async fn admit(request: &Request<'_>, target: &Url) -> Result<(), Failure> {
    match request.gate {
        Some(gate) if !gate.pass(target).await => {
            Err(Failure { stopped: true, ..Failure::new(ErrorKind::RedirectLoop, "not admitted") })
        }
        _ => Ok(()),
    }
}

impl HttpFetcher {
    async fn follow(
        &self,
        request: Request<'_>,
        response_head: &mut Option<ResponseHead>,
        way: &mut Way,
    ) -> Result<CompletedFetch, Failure> {
        let limits = request.limits;
        let mut chain = RedirectChain::new(request.url.clone(), limits.max_redirects);
        let mut cookies = request.cookies.map(CookieJar::get).unwrap_or_default();
        let mut exchange = Vec::new();
        loop {
            *response_head = None;
            let same_origin =
                chain.is_at_start() || chain.current().origin() == request.url.origin();
            // The target of a redirect is another page.
            let validators = request.validators.filter(|_| chain.is_at_start());
            let (response, _flight, sent) =
                self.get(chain.current(), same_origin, (&cookies, validators), way).await?;
            let (head, incoming) = response.into_parts();
            let counters = head.extensions.get::<ConnectionCounters>().cloned();
            let body = TrackedBody { incoming, counters: counters.clone() };
            if let Some(request) = sent {
                let peer = head.extensions.get().map(|PeerAddress(address)| *address);
                exchange.push(Exchange {
                    url: chain.current().clone(),
                    request,
                    peer,
                    redirect: None,
                });
            }
            let ResponseHead { status, headers } =
                response_head.insert(ResponseHead { status: head.status, headers: head.headers });
            check_head(headers, limits)?;
            let asked = chain.current().clone();
            if is_redirect(*status)
                && chain.follow(headers.get(LOCATION).map(HeaderValue::as_bytes))?
            {
                if let Some(last) = exchange.last_mut() {
                    last.redirect = Some(Redirect {
                        status: status.as_u16(),
                        headers: headers_as_text(headers),
                    });
                }
                cookies.keep(headers, &asked);
                drain(body).await;
                admit(&request, chain.current()).await?;
                way.landed = Some(chain.current().clone());
                continue;
            }
            if *status == StatusCode::SWITCHING_PROTOCOLS {
                return Err(Failure::new(
                    ErrorKind::NetworkError,
                    "the server switched protocols without a request",
                ));
            }
            if let Some(jar) = request.cookies {
                jar.keep(cookies);
            }
            let collector = BodyCollector::new(limits).in_dir(self.temp_dir.clone());
            let decoded =
                decode::read(body, headers, (limits, request.read_at_most), collector).await?;
            if decoded.truncated && counters.is_some_and(|counters| counters.was_flooded()) {
                return Err(Failure::of_flood());
            }
            let (final_url, chain) = chain.into_urls();
            return Ok(CompletedFetch { decoded, final_url, chain, exchange });
        }
    }

    /// Sends one request. Returns the head of the response, a guard that marks the request as in
    /// flight while its body is read, and the sent headers, if they are kept.
    async fn get(
        &self,
        url: &Url,
        same_origin: bool,
        (cookies, validators): (&cookies::Cookies, Option<&Validators>),
        way: &mut Way,
    ) -> Result<(http::Response<Incoming>, Option<InFlight>, Option<Vec<Header>>), Failure> {
        let uri = uri_of(url)?;
        let cookies = cookies.header(url, self.headers.get(COOKIE).filter(|_| same_origin));
        // The host may have closed all of its pooled connections.
        let mut stale_connections = 0;
        let mut second = None;
        let mut is_http1 = self.http1_hosts.contains(url, Instant::now());
        let is_proxied = self.http_proxy(url).is_some();
        loop {
            let headers = self.headers_for(same_origin, cookies.as_ref(), validators);
            let PreparedRequest { request, sent, signature } =
                self.prepare(url, &uri, headers, second.as_ref())?;
            let (ended, flight) = self.send(request, is_http1).await;
            match ended {
                Ok(response) if !is_http1 && is_misdirected(&response) => {
                    is_http1 = true;
                    way.sent_again.push(url.clone());
                    drain(tracked(response)).await;
                }
                Ok(response)
                    if is_proxied
                        && response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED =>
                {
                    return Err(Failure::new(
                        ErrorKind::ProxyError,
                        "the proxy requires a user and a password",
                    ));
                }
                Ok(response) => {
                    ConnectionCounters::record_response(&response);
                    let signed = (signature.as_ref(), second.is_some());
                    if let Some(wanted) = self.observe_signing(url, signed, &response, way) {
                        second = Some(wanted);
                        way.sent_again.push(url.clone());
                        drain(tracked(response)).await;
                        continue;
                    }
                    return Ok((response, flight, sent));
                }
                Err(_) if flight.as_ref().is_some_and(|flight| flight.counters().was_flooded()) => {
                    return Err(Failure::of_flood());
                }
                Err(error) if !is_http1 && wants_http1(&error) => {
                    is_http1 = true;
                    self.http1_hosts.add(url, Instant::now());
                    way.unanswered.push(url.clone());
                }
                Err(error)
                    if stale_connections < IDLE_PER_HOST && went_stale(&error, flight.as_ref()) =>
                {
                    stale_connections += 1;
                    way.unanswered.push(url.clone());
                }
                Err(error)
                    if stale_connections < IDLE_PER_HOST && was_refused_by_goodbye(&error) =>
                {
                    stale_connections += 1;
                }
                Err(error) => return Err(Failure::of_request(&error)),
            }
        }
    }

    /// Returns the proxy that sees requests to `url`.
    fn http_proxy(&self, url: &Url) -> Option<&ProxyAccess> {
        self.proxy.as_ref().filter(|_| url.scheme() == "http")
    }

    /// Returns the request with its signature and all headers. `second` is the signature that the
    /// server has asked for.
    fn prepare(
        &self,
        url: &Url,
        uri: &Uri,
        headers: HeaderMap,
        second: Option<&SecondSignature>,
    ) -> Result<PreparedRequest, Failure> {
        let mut request = http::Request::new(Empty::new());
        *request.uri_mut() = uri.clone();
        *request.headers_mut() = headers;
        let given = self.host_headers.for_url(url);
        let signer = self
            .signer
            .as_ref()
            .filter(|_| given.is_none_or(|given| !given.contains_key(SIGNATURE)));
        // After all other headers, and again for each request that goes out.
        let signature = match signer.map(|signer| signer.sign("GET", url, second)).transpose() {
            Ok(signature) => signature.flatten(),
            Err(why) if self.requires_signature => return Err(Failure::of_signing(why)),
            Err(_) => None,
        };
        if let Some(signature) = &signature {
            signature.add_to(request.headers_mut());
        }
        if let Some(given) = given {
            replace(request.headers_mut(), given);
        }
        let sent = self.keeps_exchange.then(|| sent_headers(url, request.headers(), given));
        // After the copy of the request: a proxy's password is not part of it.
        if let Some(authorization) =
            self.http_proxy(url).and_then(|proxy| proxy.authorization.clone())
        {
            request.headers_mut().insert(PROXY_AUTHORIZATION, authorization);
        }
        Ok(PreparedRequest { request, sent, signature })
    }

    /// Notes what a response to a request, signed or signed for the second time, says of
    /// signatures. Returns the second signature that the server asks for.
    fn observe_signing(
        &self,
        url: &Url,
        (signature, is_second): (Option<&RequestSignature>, bool),
        response: &http::Response<Incoming>,
        way: &mut Way,
    ) -> Option<SecondSignature> {
        let signer = self.signer.as_ref()?;
        let (status, headers) = (response.status(), response.headers());
        let peer = response.extensions().get().map(|PeerAddress(address)| *address);
        signer.observe(url, peer, headers);
        if is_second {
            signer.observe_second(url, status, headers);
        } else if let Some(wanted) =
            signature.and_then(|signature| signer.second(url, signature, status, headers))
        {
            return Some(wanted);
        }
        way.is_signature_rejected = signature.is_some() && signer.is_rejected(url, status, headers);
        None
    }

    /// Returns the headers of a request, before its signature and those that were given for its
    /// host.
    fn headers_for(
        &self,
        same_origin: bool,
        cookies: Option<&HeaderValue>,
        validators: Option<&Validators>,
    ) -> HeaderMap {
        let mut headers = self.headers.clone();
        if !same_origin {
            for secret in [AUTHORIZATION, COOKIE] {
                headers.remove(secret);
            }
        }
        if let Some(cookies) = cookies {
            headers.insert(COOKIE, cookies.clone());
        }
        if let Some(validators) = validators {
            let known =
                [(IF_NONE_MATCH, &validators.etag), (IF_MODIFIED_SINCE, &validators.last_modified)];
            for (name, value) in known {
                if let Some(value) =
                    value.as_ref().and_then(|value| HeaderValue::from_str(value).ok())
                {
                    headers.insert(name, value);
                }
            }
        }
        headers
    }

    /// Sends one request, and tracks the connection that it uses.
    async fn send(
        &self,
        mut request: http::Request<Empty<Bytes>>,
        is_http1: bool,
    ) -> (Result<http::Response<Incoming>, Error>, Option<InFlight>) {
        let captured = capture_connection(&mut request);
        let mut flight = None;
        let client = if is_http1 { &self.http1_client } else { &self.client };
        let mut sending = client.request(request);
        let ended = poll_fn(|cx| {
            let polled = Pin::new(&mut sending).poll(cx);
            if flight.is_none() {
                flight = InFlight::on(&captured);
            }
            polled
        });
        let ended = ended.await;
        if let Ok(response) = &ended
            && matches!(
                response.status(),
                StatusCode::REQUEST_TIMEOUT | StatusCode::MISDIRECTED_REQUEST
            )
            && let Some(connected) = captured.connection_metadata().as_ref()
        {
            // RFC 9110, sections 15.5.9 and 15.5.20: the next request needs another connection.
            connected.poison();
        }
        (ended, flight)
    }
}

/// Returns whether the server says, in HTTP/2, that this connection is the wrong one (RFC 9110, 15.5.20).
fn is_misdirected(response: &http::Response<Incoming>) -> bool {
    response.version() == http::Version::HTTP_2
        && response.status() == StatusCode::MISDIRECTED_REQUEST
}

/// Returns whether the server wants HTTP/1.1: it says so, or it does not speak HTTP/2 although it
/// agreed to, or only nearly.
fn wants_http1(error: &Error) -> bool {
    let has_served = || ConnectionCounters::of_error(error).is_some_and(|link| link.has_served());
    failure::requires_http1(error)
        || failure::is_malformed_http2(error)
        || failure::is_no_http2(error) && !has_served()
}

/// Returns whether the server closed a kept connection instead of responding. It may have read the
/// request.
fn went_stale(error: &Error, flight: Option<&InFlight>) -> bool {
    !failure::is_graceful_goodbye(error)
        && ConnectionCounters::of_error(error).is_some_and(|link| link.went_stale(flight))
}

/// Returns whether the server said that it has not processed the request, because it closes the
/// connection.
fn was_refused_by_goodbye(error: &Error) -> bool {
    failure::is_graceful_goodbye(error)
        && ConnectionCounters::of_error(error).is_some_and(|link| link.has_served())
}

/// Returns the kind and the message of a request that hyper's client failed, and whether this
/// machine caused the fault.
pub(crate) fn request_failure(
    error: &hyper_util::client::legacy::Error,
) -> (ErrorKind, String, bool) {
    let Failure { kind, message, local, .. } = Failure::of_request(error);
    (kind, message, local)
}

fn uri_of(url: &Url) -> Result<Uri, Failure> {
    let invalid = |why: String| Failure::new(ErrorKind::InvalidUrl, why);
    if !matches!(url.scheme(), "http" | "https") {
        let scheme: String = url.scheme().chars().take(32).collect();
        return Err(invalid(format!("invalid scheme '{scheme}': expected http or https")));
    }
    let text = url.as_str();
    let text = text.split_once('#').map_or(text, |(before, _)| before);
    if text.len() > MAX_URL {
        return Err(invalid(format!("URL too long: {} bytes, limit {MAX_URL}", text.len())));
    }
    Uri::try_from(text).map_err(|error| invalid(format!("invalid URL for HTTP: {error}")))
}

fn check_head(headers: &HeaderMap, limits: &Limits) -> Result<(), Failure> {
    // As on the wire in HTTP/1: name, colon, space, value, line end.
    let len: usize =
        headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    if len > limits.max_headers {
        let message = format!("headers too long: {len} bytes, limit {}", limits.max_headers);
        return Err(Failure::past(
            LimitMet::Headers(limits.max_headers),
            ErrorKind::TooLarge,
            message,
        ));
    }
    Ok(())
}

fn headers_as_text(headers: &HeaderMap) -> Vec<Header> {
    headers
        .iter()
        .map(|(name, value)| Header::from_bytes(name.as_str(), value.as_bytes()))
        .collect()
}

/// Returns the headers of a request, including the one that the client adds, named as HTTP/1.1
/// writes them. A signature is left out: for a minute it would let others repeat the request as
/// this crawler. So are the headers that were `given` to the crawler for this host.
fn sent_headers(url: &Url, headers: &HeaderMap, given: Option<&HeaderMap>) -> Vec<Header> {
    let host = url.host_str().unwrap_or_default();
    let host = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    let mut sent = vec![Header::new("Host", host)];
    let is_secret = |name: &str| {
        name == SIGNATURE.as_str() || given.is_some_and(|given| given.contains_key(name))
    };
    let shown = headers_as_text(headers).into_iter().filter(|header| !is_secret(&header.name));
    sent.extend(shown.map(|header| Header::from_bytes(title_case(&header.name), header.bytes())));
    sent
}

fn title_case(name: &str) -> String {
    let mut begins = true;
    let case = |c: char| {
        let cased = if begins { c.to_ascii_uppercase() } else { c };
        begins = c == '-';
        cased
    };
    name.chars().map(case).collect()
}

/// Returns the body of a response.
fn tracked(response: http::Response<Incoming>) -> TrackedBody {
    let (head, incoming) = response.into_parts();
    TrackedBody { incoming, counters: head.extensions.get::<ConnectionCounters>().cloned() }
}

async fn drain(mut body: TrackedBody) {
    if body.size_hint().lower() > DRAIN_AT_MOST {
        return;
    }
    let read = async {
        let mut len = 0;
        while let Some(Ok(frame)) = body.frame().await {
            len += frame.data_ref().map_or(0, |data| data.len() as u64);
            if len > DRAIN_AT_MOST {
                break;
            }
        }
    };
    // The next request is made in any case; if the body is not read to its end, the connection is
    // closed instead of kept.
    let _ = tokio::time::timeout(DRAIN_TIME, read).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_url_is_requested_or_invalid(text in "(http|https|ftp|x)://[^ ]{1,30}(/\\PC{0,40})?") {
            if let Ok(url) = Url::parse(&text) {
                let url = RedirectChain::new(url, 0).current().clone();
                match uri_of(&url) {
                    Ok(uri) => {
                        prop_assert!(matches!(url.scheme(), "http" | "https"));
                        prop_assert_eq!(uri.host(), url.host_str());
                        prop_assert_eq!(uri.port_u16(), url.port());
                        prop_assert_eq!(uri.path(), url.path());
                        prop_assert_eq!(uri.query(), url.query());
                    }
                    Err(failure) => prop_assert_eq!(failure.kind, ErrorKind::InvalidUrl),
                }
            }
        }
    }
}
