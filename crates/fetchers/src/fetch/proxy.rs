//! The filtering forward proxy for programs that resolve names themselves, such as Chromium. The
//! same [`Dialer`] as in the plain fetcher resolves, checks and dials every destination.
//!
//! Invariants: no byte reaches a destination whose address the guard did not allow. The proxy
//! carries plain HTTP in absolute form, and any protocol through CONNECT (HTTPS, WebSockets). It
//! reads nothing inside a tunnel and keeps nothing.
//!
//! Must not know: browsers and pages.
//!
//! It listens on 127.0.0.1, on a port that the system chooses. Clients need its password, which is
//! random for each proxy, so another process of this machine that finds the port cannot use it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_TYPE, HOST, HeaderName, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tower_service::Service;

use super::dial::{Dialer, without_brackets};
use super::http::{Connector, request_failure};
use super::response_head::{Heads, MAX_HEAD, ReadableHeads};
use crate::fetch::address_guard::AddressGuard;
use crate::fetch::local_faults;
use fetchwise_types::attempt::error_kind::ErrorKind;

/// The header of the proxy's own responses to plain HTTP requests: the name of the [`ErrorKind`],
/// and a secret that proves that the proxy wrote it. [`FilteringProxy::own_failure`] reads it. A
/// server's header of this name is dropped on its way through. Tunnelled bytes are not inspected
/// and may contain anything.
pub const ERROR_HEADER: &str = "x-fetchwise-error";

/// The header with the value `1` when the proxy refused to dial. It is dropped from a server's
/// response, too.
pub const REFUSED_HEADER: &str = "x-fetchwise-refused";

/// Maximum number of concurrent connections from browsers, including tunnels; more wait in the
/// listener's queue. One Chromium opens 32 to a proxy.
const MAX_CONNECTIONS: usize = 128;

/// Number of destinations whose last failure is remembered.
const MAX_FAILURES: usize = 256;

/// User name in [`FilteringProxy::credentials`].
const USER: &str = "fetchwise";

const DIAL_TIMEOUT: Duration = Duration::from_secs(30);
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// A forward proxy on loopback that dials only what an [`AddressGuard`] allows. It ends with its
/// tunnels when it is dropped.
///
/// A browser needs `--proxy-server=http://ADDR` and `--proxy-bypass-list=<-loopback>` (without the
/// second flag, Chromium dials loopback itself), and [`FilteringProxy::credentials`] when it asks
/// for them. It must not use a transport that bypasses the proxy: `--disable-quic` and
/// `--force-webrtc-ip-handling-policy=disable_non_proxied_udp`.
///
/// ```no_run
/// use fetchwise_fetchers::fetch::address_guard::AddressGuard;
/// use fetchwise_fetchers::fetch::proxy::FilteringProxy;
///
/// # async fn example() -> std::io::Result<()> {
/// let proxy = FilteringProxy::start(AddressGuard::default()).await?;
/// let flag = format!("--proxy-server=http://{}", proxy.addr());
/// let (user, password) = proxy.credentials();
/// // After a navigation failed:
/// if let Some(failure) = proxy.failure("intranet.example", 443) {
///     println!("{}: {}", failure.kind, failure.message);
/// }
/// # Ok(())
/// # }
/// ```
pub struct FilteringProxy {
    addr: SocketAddr,
    failures: Arc<Failures>,
    secrets: Arc<Secrets>,
    local_faults: Arc<AtomicU64>,
    _stop: DropGuard,
}

/// Secrets that only the proxy and its owner know.
struct Secrets {
    /// Required `Proxy-Authorization` of a client: `Basic ...`.
    authorization: String,
    password: String,
    /// Mark in the proxy's own responses. It is not the password, because scripts of a page may see
    /// such a response.
    mark: String,
}

/// The reason why a destination was not reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyFailure {
    /// Kind of an attempt that failed for this reason: `refused_address`, `dns_error`,
    /// `network_error` or `timeout`.
    pub kind: ErrorKind,
    /// Message for a person.
    pub message: String,
    /// Whether this machine caused the fault ([`crate::fetch::local_faults`]).
    pub local: bool,
}

impl FilteringProxy {
    /// Starts a proxy under `guard` on 127.0.0.1, with the system's resolver.
    ///
    /// # Errors
    /// Fails if no port can be bound.
    pub async fn start(guard: AddressGuard) -> io::Result<Self> {
        Self::start_with(Dialer::new(guard)).await
    }

    /// Starts a proxy that dials through `dialer`.
    ///
    /// # Errors
    /// Fails if no port can be bound.
    pub async fn start_with(dialer: Dialer) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let addr = listener.local_addr()?;
        let failures = Arc::new(Failures::default());
        let secrets = Arc::new(Secrets::random()?);
        let local_faults = Arc::new(AtomicU64::new(0));
        let stop = CancellationToken::new();
        let relay = Arc::new(Relay {
            client: Client::builder(TokioExecutor::new())
                // A kept connection may turn out to be dead when its request can no longer be
                // repeated.
                .pool_max_idle_per_host(0)
                .http1_max_buf_size(MAX_HEAD)
                .http1_preserve_header_case(true)
                .http1_ignore_invalid_headers_in_responses(true)
                .http1_allow_spaces_after_header_name_in_responses(true)
                .http1_allow_obsolete_multiline_headers_in_responses(true)
                .build(ReadableConnector(Connector::new(dialer.clone()))),
            dialer,
            failures: Arc::clone(&failures),
            secrets: Arc::clone(&secrets),
            local_faults: Arc::clone(&local_faults),
            stop: stop.clone(),
        });
        tokio::spawn(stop.clone().run_until_cancelled_owned(accept(listener, relay)));
        Ok(Self { addr, failures, secrets, local_faults, _stop: stop.drop_guard() })
    }

    /// Returns the user and the password that the proxy requires (`Basic`, RFC 7617).
    pub fn credentials(&self) -> (&str, &str) {
        (USER, &self.secrets.password)
    }

    /// Returns the value of a matching `Proxy-Authorization` header.
    pub fn authorization(&self) -> &str {
        &self.secrets.authorization
    }

    /// Returns the error kind in the value of an [`ERROR_HEADER`] if this proxy wrote it. Use it
    /// only for responses to plain `http` requests: the others come from servers.
    pub fn own_failure(&self, header: &str) -> Option<ErrorKind> {
        own_failure(header, &self.secrets.mark)
    }

    /// Returns the mark in the proxy's own responses.
    #[cfg(feature = "browser")]
    pub(super) fn mark(&self) -> &str {
        &self.secrets.mark
    }

    /// Returns how often this machine lacked a resource: descriptors, ports, a network. A request
    /// that fails while this number grows may have failed for that reason.
    pub fn local_faults(&self) -> u64 {
        // Relaxed, here and at the counting: a hint that orders nothing.
        self.local_faults.load(Ordering::Relaxed)
    }

    /// Returns the address that the proxy listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns why the last connection to `host` and `port` failed, unless a later one succeeded.
    /// `host` is as in a URL: with or without the brackets of an IPv6 address, in any case. The
    /// last 256 failed destinations are remembered.
    pub fn failure(&self, host: &str, port: u16) -> Option<ProxyFailure> {
        self.failures.get(host, port)
    }

    /// Returns whether the last connection to `host` and `port` was refused because of its address.
    pub fn refused(&self, host: &str, port: u16) -> bool {
        self.failure(host, port).is_some_and(|failure| failure.kind == ErrorKind::RefusedAddress)
    }
}

impl fmt::Debug for FilteringProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilteringProxy").field("addr", &self.addr).finish_non_exhaustive()
    }
}

type ProxyResponse = Response<BoxBody<Bytes, hyper::Error>>;

/// A connector for one request per connection, whose response the client reads as browsers do.
#[derive(Clone, Debug)]
struct ReadableConnector(Connector);

impl Service<Uri> for ReadableConnector {
    type Response = TokioIo<ReadableHeads<TokioIo<<Connector as Service<Uri>>::Response>>>;
    type Error = <Connector as Service<Uri>>::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.0.call(uri);
        Box::pin(async move {
            Ok(TokioIo::new(ReadableHeads::new(TokioIo::new(connecting.await?), Heads::One)))
        })
    }
}

struct Relay {
    dialer: Dialer,
    client: Client<ReadableConnector, Incoming>,
    failures: Arc<Failures>,
    secrets: Arc<Secrets>,
    local_faults: Arc<AtomicU64>,
    stop: CancellationToken,
}

impl Secrets {
    fn random() -> io::Result<Self> {
        let password = random_text()?;
        let authorization = format!("Basic {}", STANDARD.encode(format!("{USER}:{password}")));
        Ok(Self { authorization, password, mark: random_text()? })
    }

    /// Returns whether a client with these headers may use the proxy. Takes constant time for
    /// passwords of the right length.
    fn is_authorized(&self, headers: &HeaderMap) -> bool {
        let Some(sent) = headers.get(PROXY_AUTHORIZATION).map(HeaderValue::as_bytes) else {
            return false;
        };
        let wanted = self.authorization.as_bytes();
        sent.len() == wanted.len()
            && sent.iter().zip(wanted).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
    }
}

/// Returns 128 random bits from the system, as text.
fn random_text() -> io::Result<String> {
    let mut bytes = [0; 16];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut bytes).map_err(|_| io::Error::other("no random numbers from the system"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// See [`FilteringProxy::own_failure`].
pub(super) fn own_failure(header: &str, mark: &str) -> Option<ErrorKind> {
    let (kind, sent) = header.split_once(' ')?;
    ErrorKind::from_name(kind).filter(|_| sent == mark)
}

async fn accept(listener: TcpListener, relay: Arc<Relay>) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    // The semaphore is never closed: the loop runs until the proxy is dropped.
    while let Ok(slot) = Arc::clone(&slots).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let connection = serve(stream, Arc::clone(&relay), Arc::new(slot));
                tokio::spawn(relay.stop.clone().run_until_cancelled_owned(connection));
            }
            // Most likely out of file descriptors: they come back when connections end.
            Err(error) => {
                if local_faults::is_local_fault(&error) {
                    relay.local_faults.fetch_add(1, Ordering::Relaxed);
                }
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, relay: Arc<Relay>, slot: Arc<OwnedSemaphorePermit>) {
    let service = service_fn(|request| {
        let (relay, slot) = (Arc::clone(&relay), Arc::clone(&slot));
        async move { Ok::<_, Infallible>(relay.handle(request, slot).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
        .preserve_header_case(true)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    // The browser notices a broken connection itself.
    let _ = connection.await;
}

impl Relay {
    async fn handle(
        &self,
        request: Request<Incoming>,
        slot: Arc<OwnedSemaphorePermit>,
    ) -> ProxyResponse {
        if !self.secrets.is_authorized(request.headers()) {
            let mut response = own_response(
                StatusCode::PROXY_AUTHENTICATION_REQUIRED,
                "this proxy serves only the process that started it",
            );
            response
                .headers_mut()
                .insert(PROXY_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"fetchwise\""));
            return response;
        }
        if request.method() == Method::CONNECT {
            return self.tunnel(request, slot).await;
        }
        match (request.uri().scheme_str(), request.uri().authority().cloned()) {
            (Some("http"), Some(authority)) => self.forward(request, &authority).await,
            _ => own_response(StatusCode::BAD_REQUEST, "expected an absolute http URL or CONNECT"),
        }
    }

    async fn tunnel(
        &self,
        request: Request<Incoming>,
        slot: Arc<OwnedSemaphorePermit>,
    ) -> ProxyResponse {
        let target =
            request.uri().authority().and_then(|a| Some((a.host().to_owned(), a.port_u16()?)));
        let Some((host, port)) = target else {
            return own_response(StatusCode::BAD_REQUEST, "missing host or port of CONNECT");
        };
        let dialled = match timeout(DIAL_TIMEOUT, self.dialer.dial(&host, port)).await {
            Ok(dialled) => dialled.map_err(|error| ProxyFailure {
                kind: error.kind(),
                message: error.to_string(),
                local: error.is_local(),
            }),
            Err(_) => {
                let message = format!("no response from {host}");
                Err(ProxyFailure { kind: ErrorKind::Timeout, message, local: false })
            }
        };
        let mut upstream = match dialled {
            Ok(stream) => stream,
            Err(failure) => return self.failure_response(&host, port, failure),
        };
        self.failures.forget(&host, port);
        let tunnel = async move {
            // The slot is held as long as the tunnel is open.
            let _slot = slot;
            if let Ok(upgraded) = hyper::upgrade::on(request).await {
                let _ =
                    tokio::io::copy_bidirectional(&mut TokioIo::new(upgraded), &mut upstream).await;
            }
        };
        tokio::spawn(self.stop.clone().run_until_cancelled_owned(tunnel));
        Response::new(Empty::new().map_err(|never| match never {}).boxed())
    }

    async fn forward(
        &self,
        mut request: Request<Incoming>,
        authority: &Authority,
    ) -> ProxyResponse {
        let (host, port) = (authority.host(), authority.port_u16().unwrap_or(80));
        drop_hop_by_hop(request.headers_mut());
        // The URL determines the destination; a conflicting Host header is not passed on.
        request.headers_mut().remove(HOST);
        let upstream = self.dialer.upstream().filter(|proxy| proxy.forwards_requests());
        if let Some(authorization) = upstream.and_then(super::upstream::Upstream::authorization) {
            request.headers_mut().insert(PROXY_AUTHORIZATION, authorization);
        }
        match self.client.request(request).await {
            Ok(response)
                if upstream.is_some()
                    && response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED =>
            {
                let message = "the proxy requires a user and a password".to_owned();
                self.failure_response(
                    host,
                    port,
                    ProxyFailure { kind: ErrorKind::ProxyError, message, local: false },
                )
            }
            Ok(mut response) => {
                self.failures.forget(host, port);
                drop_hop_by_hop(response.headers_mut());
                for own in [ERROR_HEADER, REFUSED_HEADER] {
                    response.headers_mut().remove(own);
                }
                response.map(BodyExt::boxed)
            }
            Err(error) => {
                let (kind, message, local) = request_failure(&error);
                self.failure_response(host, port, ProxyFailure { kind, message, local })
            }
        }
    }

    fn failure_response(&self, host: &str, port: u16, failure: ProxyFailure) -> ProxyResponse {
        let status = match failure.kind {
            ErrorKind::RefusedAddress => StatusCode::FORBIDDEN,
            ErrorKind::Timeout => StatusCode::GATEWAY_TIMEOUT,
            _ => StatusCode::BAD_GATEWAY,
        };
        let mut response = own_response(status, &failure.message);
        let headers = response.headers_mut();
        // Letters, digits and a space always form a valid header value.
        if let Ok(value) = HeaderValue::try_from(format!("{} {}", failure.kind, self.secrets.mark))
        {
            headers.insert(ERROR_HEADER, value);
        }
        if failure.kind == ErrorKind::RefusedAddress {
            headers.insert(REFUSED_HEADER, HeaderValue::from_static("1"));
        }
        if failure.local {
            self.local_faults.fetch_add(1, Ordering::Relaxed);
        }
        self.failures.remember(host, port, failure);
        response
    }
}

fn own_response(status: StatusCode, text: &str) -> ProxyResponse {
    let body = Full::new(Bytes::from(format!("fetchwise: {text}\n")));
    let mut response = Response::new(body.map_err(|never| match never {}).boxed());
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// Removes the headers that are meant for this connection only (RFC 9110, 7.6.1), including those
/// that `Connection` names.
fn drop_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in [CONNECTION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
    for name in ["keep-alive", "proxy-connection", "proxy-authorization", "proxy-authenticate"] {
        headers.remove(name);
    }
}

/// The last failure of each destination, oldest first.
#[derive(Default)]
struct Failures {
    latest: Mutex<VecDeque<(String, u16, ProxyFailure)>>,
}

impl Failures {
    fn remember(&self, host: &str, port: u16, failure: ProxyFailure) {
        let host = canonical(host);
        let mut latest = self.locked();
        latest.retain(|(h, p, _)| *p != port || *h != host);
        if latest.len() == MAX_FAILURES {
            latest.pop_front();
        }
        latest.push_back((host, port, failure));
    }

    fn forget(&self, host: &str, port: u16) {
        let mut latest = self.locked();
        if !latest.is_empty() {
            let host = canonical(host);
            latest.retain(|(h, p, _)| *p != port || *h != host);
        }
    }

    fn get(&self, host: &str, port: u16) -> Option<ProxyFailure> {
        let host = canonical(host);
        self.locked()
            .iter()
            .find(|(h, p, _)| *p == port && *h == host)
            .map(|(_, _, failure)| failure.clone())
    }

    fn locked(&self) -> MutexGuard<'_, VecDeque<(String, u16, ProxyFailure)>> {
        // Each change is one step, so the data is consistent after a panic.
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn canonical(host: &str) -> String {
    without_brackets(host).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(message: &str) -> ProxyFailure {
        ProxyFailure { kind: ErrorKind::DnsError, message: message.to_owned(), local: false }
    }

    #[test]
    fn only_clients_with_the_password_are_authorized() {
        let secrets = Secrets::random().expect("random numbers");
        let headers = |value: &str| {
            let value = HeaderValue::try_from(value).expect("a header value");
            HeaderMap::from_iter([(PROXY_AUTHORIZATION, value)])
        };
        assert!(secrets.is_authorized(&headers(&secrets.authorization)));
        assert!(!secrets.is_authorized(&HeaderMap::new()));
        assert!(
            !secrets
                .is_authorized(&headers(&Secrets::random().expect("random numbers").authorization))
        );
        assert!(!secrets.is_authorized(&headers(&secrets.authorization[1..])));
        assert_ne!(secrets.password, secrets.mark);
    }

    #[test]
    fn a_failure_without_the_proxys_mark_is_ignored() {
        assert_eq!(own_failure("dns_error 1234", "1234"), Some(ErrorKind::DnsError));
        for forged in
            ["dns_error", "dns_error ", "dns_error 1235", "dns_error 12345", "gremlins 1234", ""]
        {
            assert_eq!(own_failure(forged, "1234"), None, "{forged}");
        }
    }

    #[test]
    fn the_last_failure_of_a_destination_counts() {
        let failures = Failures::default();
        failures.remember("[::1]", 80, failure("first"));
        failures.remember("A.example", 80, failure("second"));
        failures.remember("::1", 80, failure("third"));
        assert_eq!(failures.get("::1", 80), Some(failure("third")));
        assert_eq!(failures.get("a.EXAMPLE", 80), Some(failure("second")));
        assert_eq!(failures.get("a.example", 81), None);
        failures.forget("a.example", 80);
        assert_eq!(failures.get("a.example", 80), None);
    }

    #[test]
    fn old_failures_make_room_for_new_ones() {
        let failures = Failures::default();
        for port in 0..1000 {
            failures.remember("a.example", port, failure("gone"));
        }
        assert_eq!(failures.locked().len(), MAX_FAILURES);
        assert!(failures.get("a.example", 999).is_some() && failures.get("a.example", 0).is_none());
    }
}
