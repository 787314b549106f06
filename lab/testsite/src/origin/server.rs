//! The server: listeners, connections, and the lookup of the site for a request. It runs on one
//! thread with its own runtime.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::header::HOST;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use super::body::{Body, text};
use super::certificate::HTTP_2;
use super::ledger::{Ledger, ReceivedRequest, SentPage};
use super::site::Site;
use crate::origin::respond::{SiteRequest, SiteResponse, respond};
use fetchwise::response::Header;

/// Maximum time that a pending file read delays the stop.
const STOP_WAIT: Duration = Duration::from_millis(200);

/// All hosts of an origin.
#[derive(Debug)]
pub(super) struct Hosts {
    by_name: HashMap<String, Host>,
    addresses: Mutex<HashMap<IpAddr, AddressCounts>>,
}

/// Counts of an address.
#[derive(Clone, Debug, Default)]
struct AddressCounts {
    connections: u64,
    /// Bytes that were written to its connections, heads of responses included.
    sent: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Host {
    site: Mutex<Arc<Site>>,
    ledger: Ledger,
}

impl Hosts {
    pub(super) fn new(sites: Vec<(String, Site)>) -> io::Result<Self> {
        let mut by_name = HashMap::new();
        for (name, site) in sites {
            let host = Host { site: Mutex::new(Arc::new(site)), ledger: Ledger::default() };
            if by_name.insert(name.clone(), host).is_some() {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("duplicate host {name}"),
                ));
            }
        }
        Ok(Self { by_name, addresses: Mutex::default() })
    }

    pub(super) fn ledger(&self, host: &str) -> Option<&Ledger> {
        self.by_name.get(&host.to_ascii_lowercase()).map(|host| &host.ledger)
    }

    pub(super) fn set_site(&self, host: &str, site: Site) -> bool {
        let Some(host) = self.by_name.get(&host.to_ascii_lowercase()) else { return false };
        *host.site.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(site);
        true
    }

    pub(super) fn requests(&self) -> Vec<ReceivedRequest> {
        let mut all: Vec<ReceivedRequest> =
            self.by_name.values().flat_map(|host| host.ledger.latest()).collect();
        all.sort_by_key(|request| request.at);
        all
    }

    pub(super) fn connections(&self, address: IpAddr) -> u64 {
        self.counts(address).connections
    }

    pub(super) fn bytes_sent(&self, address: IpAddr) -> u64 {
        // Relaxed: it orders no other memory.
        self.counts(address).sent.load(Ordering::Relaxed)
    }

    fn counts(&self, address: IpAddr) -> AddressCounts {
        let addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        addresses.get(&address).cloned().unwrap_or_default()
    }

    /// Counts a connection, and returns the counter of the bytes that are written to it.
    fn count_connection(&self, address: IpAddr) -> Arc<AtomicU64> {
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = addresses.entry(address).or_default();
        counts.connections += 1;
        Arc::clone(&counts.sent)
    }

    /// Returns the host that a request names, or else the one on the address of the connection.
    fn find(&self, name: Option<&str>, address: IpAddr) -> Option<(&str, &Host)> {
        name.and_then(|name| self.by_name.get_key_value(&name.to_ascii_lowercase()))
            .or_else(|| self.by_name.get_key_value(&address.to_string()))
            .map(|(name, host)| (name.as_str(), host))
    }
}

/// The server thread.
#[derive(Debug)]
pub(super) struct Server {
    stop: oneshot::Sender<Infallible>,
    thread: JoinHandle<()>,
}

impl Server {
    pub(super) fn start(
        listeners: Vec<TcpListener>,
        acceptor: Option<TlsAcceptor>,
        hosts: Arc<Hosts>,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut tasks = Vec::with_capacity(listeners.len());
        for listener in listeners {
            listener.set_nonblocking(true)?;
            let _inside = runtime.enter();
            tasks.push(tokio::net::TcpListener::from_std(listener)?);
        }
        let (stop, stopped) = oneshot::channel::<Infallible>();
        let thread =
            std::thread::Builder::new().name("fetchwise-origin".to_owned()).spawn(move || {
                for listener in tasks {
                    runtime.spawn(accept(listener, acceptor.clone(), Arc::clone(&hosts)));
                }
                // The sender is only ever dropped: that is the stop signal.
                let _ = runtime.block_on(stopped);
                runtime.shutdown_timeout(STOP_WAIT);
            })?;
        Ok(Self { stop, thread })
    }

    /// Closes everything and waits for the thread to end.
    pub(super) fn stop(self) {
        drop(self.stop);
        // The panic hook has already printed a panic of the server thread.
        let _ = self.thread.join();
    }
}

async fn accept(
    listener: tokio::net::TcpListener,
    acceptor: Option<TlsAcceptor>,
    hosts: Arc<Hosts>,
) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(connection(stream, acceptor.clone(), Arc::clone(&hosts)));
            }
            // Out of file descriptors, or a client that left at once: wait a little and continue.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn connection(stream: TcpStream, acceptor: Option<TlsAcceptor>, hosts: Arc<Hosts>) {
    let Ok(local) = stream.local_addr() else { return };
    let _ = stream.set_nodelay(true);
    let sent = hosts.count_connection(local.ip());
    let reset = Arc::new(AtomicBool::new(false));
    let stream = ResettableStream { stream, reset: Arc::clone(&reset), sent };
    let Some(acceptor) = acceptor else {
        return serve(stream, HttpVersion::One, local.ip(), &hosts, &reset).await;
    };
    // A client that does not trust the certificate leaves during the handshake.
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let version = match stream.get_ref().1.alpn_protocol() {
        Some(HTTP_2) => HttpVersion::Two,
        _ => HttpVersion::One,
    };
    serve(stream, version, local.ip(), &hosts, &reset).await;
}

/// The version of HTTP of a connection.
#[derive(Clone, Copy, Debug)]
enum HttpVersion {
    One,
    Two,
}

/// Responds to the requests of a connection until it ends.
async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    version: HttpVersion,
    local: IpAddr,
    hosts: &Arc<Hosts>,
    reset: &Arc<AtomicBool>,
) {
    let service = service_fn(|request: Request<Incoming>| {
        let (hosts, reset) = (Arc::clone(hosts), Arc::clone(reset));
        async move { handle(&hosts, local, request, &reset).await }
    });
    let stream = TokioIo::new(stream);
    // Errors are clients that leave early or sites that break the connection on purpose: nothing to
    // report.
    match version {
        HttpVersion::One => {
            let _ =
                hyper::server::conn::http1::Builder::new().serve_connection(stream, service).await;
        }
        HttpVersion::Two => {
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = server.serve_connection(stream, service).await;
        }
    }
}

/// Records the request in the ledger and passes it to its site. An error ends the connection
/// without a response.
async fn handle(
    hosts: &Hosts,
    local: IpAddr,
    request: Request<Incoming>,
    reset: &AtomicBool,
) -> Result<Response<Body>, BrokenOnPurpose> {
    let Some((name, host)) = hosts.find(requested_host(&request).as_deref(), local) else {
        return Ok(text(421, "This server has no such host.\n"));
    };
    let headers: Vec<Header> = request
        .headers()
        .iter()
        .map(|(name, value)| Header::new(name.as_str(), String::from_utf8_lossy(value.as_bytes())))
        .collect();
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let authority = requested_authority(&request).unwrap_or_default();
    let received = ReceivedRequest {
        host: name.to_owned(),
        method: request.method().to_string(),
        path: path.clone(),
        headers: headers.clone(),
        at: Instant::now(),
    };
    let at = received.at;
    let number = host.ledger.record_request(received);
    let site = Arc::clone(&*host.site.lock().unwrap_or_else(PoisonError::into_inner));
    let method = request.method().as_str();
    let site_request = SiteRequest {
        host: name,
        method,
        authority: &authority,
        path: &path,
        headers: &headers,
        number,
        at,
        ledger: &host.ledger,
    };
    match respond(&site, &site_request).await {
        SiteResponse::Response(mut response) => {
            let page = response.extensions_mut().remove::<SentPage>();
            let is_refused = matches!(response.status().as_u16(), 401 | 403 | 429);
            host.ledger.record_response(page, is_refused, path.starts_with("/api/"));
            Ok(response)
        }
        SiteResponse::Reset => {
            // Relaxed: the same task reads the flag when it drops the connection.
            reset.store(true, Ordering::Relaxed);
            Err(BrokenOnPurpose)
        }
    }
}

/// Returns the host that the request line or the `Host` header names, without its port.
fn requested_host(request: &Request<Incoming>) -> Option<String> {
    let authority: http::uri::Authority = requested_authority(request)?.parse().ok()?;
    Some(authority.host().trim_matches(['[', ']']).to_owned())
}

/// Returns the host and port that the request line, `:authority` or the `Host` header names.
fn requested_authority(request: &Request<Incoming>) -> Option<String> {
    if let Some(authority) = request.uri().authority() {
        return Some(authority.to_string());
    }
    Some(request.headers().get(HOST)?.to_str().ok()?.to_owned())
}

/// The error of a connection that the site breaks on purpose.
#[derive(Debug, thiserror::Error)]
#[error("broken on purpose")]
struct BrokenOnPurpose;

/// A stream that counts what is written to it, and is reset instead of closed when its flag is set.
struct ResettableStream {
    stream: TcpStream,
    reset: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
}

impl Drop for ResettableStream {
    fn drop(&mut self) {
        if self.reset.load(Ordering::Relaxed) {
            // With zero linger, closing sends RST. If that fails, the client sees an early end
            // instead.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for ResettableStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for ResettableStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        if let Poll::Ready(Ok(len)) = &written {
            self.sent.fetch_add(*len as u64, Ordering::Relaxed);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
