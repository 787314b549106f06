//! The server: listeners, connections, and which site a request is for. One thread with its own runtime.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::header::HOST;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::body::{Body, text};
use super::ledger::{Ledger, Seen, Shown};
use super::site::Site;
use crate::origin::respond::{Answer, Asked, answer};
use fetchwise::response::Header;

/// How long a file read that is under way may hold up the stop.
const STOP_WAIT: Duration = Duration::from_millis(200);

/// All hosts of an origin.
#[derive(Debug)]
pub(super) struct Hosts {
    by_name: HashMap<String, Host>,
    connections: Mutex<HashMap<IpAddr, u64>>,
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
                return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("two sites for {name}")));
            }
        }
        Ok(Self { by_name, connections: Mutex::default() })
    }

    pub(super) fn ledger(&self, host: &str) -> Option<&Ledger> {
        self.by_name.get(&host.to_ascii_lowercase()).map(|host| &host.ledger)
    }

    pub(super) fn set_site(&self, host: &str, site: Site) -> bool {
        let Some(host) = self.by_name.get(&host.to_ascii_lowercase()) else { return false };
        *host.site.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(site);
        true
    }

    pub(super) fn requests(&self) -> Vec<Seen> {
        let mut all: Vec<Seen> = self.by_name.values().flat_map(|host| host.ledger.latest()).collect();
        all.sort_by_key(|seen| seen.at);
        all
    }

    pub(super) fn connections(&self, address: IpAddr) -> u64 {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).get(&address).copied().unwrap_or(0)
    }

    fn connected(&self, address: IpAddr) {
        *self.connections.lock().unwrap_or_else(PoisonError::into_inner).entry(address).or_default() += 1;
    }

    /// The host that a request names, or else the one on the address that it came in on.
    fn find(&self, name: Option<&str>, address: IpAddr) -> Option<(&str, &Host)> {
        name.and_then(|name| self.by_name.get_key_value(&name.to_ascii_lowercase()))
            .or_else(|| self.by_name.get_key_value(&address.to_string()))
            .map(|(name, host)| (name.as_str(), host))
    }
}

/// The thread that serves.
#[derive(Debug)]
pub(super) struct Server {
    stop: oneshot::Sender<Infallible>,
    thread: JoinHandle<()>,
}

impl Server {
    pub(super) fn start(listeners: Vec<TcpListener>, hosts: Arc<Hosts>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut tasks = Vec::with_capacity(listeners.len());
        for listener in listeners {
            listener.set_nonblocking(true)?;
            let _inside = runtime.enter();
            tasks.push(tokio::net::TcpListener::from_std(listener)?);
        }
        let (stop, stopped) = oneshot::channel::<Infallible>();
        let thread = std::thread::Builder::new().name("fetchwise-origin".to_owned()).spawn(move || {
            for listener in tasks {
                runtime.spawn(accept(listener, Arc::clone(&hosts)));
            }
            // The sender is never used, only dropped: that is the signal.
            let _ = runtime.block_on(stopped);
            runtime.shutdown_timeout(STOP_WAIT);
        })?;
        Ok(Self { stop, thread })
    }

    /// Closes everything and waits until it is closed.
    pub(super) fn stop(self) {
        drop(self.stop);
        // A panic in the server thread has been printed by then, and a drop cannot report it better.
        let _ = self.thread.join();
    }
}

async fn accept(listener: tokio::net::TcpListener, hosts: Arc<Hosts>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(connection(stream, Arc::clone(&hosts)));
            }
            // Out of descriptors, or a client that left at once: wait a little and go on.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn connection(stream: TcpStream, hosts: Arc<Hosts>) {
    let Ok(local) = stream.local_addr() else { return };
    let _ = stream.set_nodelay(true);
    hosts.connected(local.ip());
    let reset = Arc::new(AtomicBool::new(false));
    let wire = Wire { stream, reset: Arc::clone(&reset) };
    let service = service_fn(|request: Request<Incoming>| {
        let (hosts, reset) = (Arc::clone(&hosts), Arc::clone(&reset));
        async move { respond(&hosts, local.ip(), request, &reset).await }
    });
    // Errors here are what clients do (leave early) or what sites do on purpose (break off): nothing to report.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(wire), service).await;
}

/// Enters the request in the ledger and asks its site. The error ends the connection without an answer.
async fn respond(
    hosts: &Hosts,
    local: IpAddr,
    request: Request<Incoming>,
    reset: &AtomicBool,
) -> Result<Response<Body>, Broken> {
    let Some((name, host)) = hosts.find(requested_host(&request).as_deref(), local) else {
        return Ok(text(421, "This server has no such host.\n"));
    };
    let headers: Vec<Header> = request
        .headers()
        .iter()
        .map(|(name, value)| Header::new(name.as_str(), String::from_utf8_lossy(value.as_bytes())))
        .collect();
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let seen = Seen {
        host: name.to_owned(),
        method: request.method().to_string(),
        path: path.clone(),
        headers: headers.clone(),
        at: Instant::now(),
    };
    let at = seen.at;
    let number = host.ledger.enter(seen);
    let site = Arc::clone(&*host.site.lock().unwrap_or_else(PoisonError::into_inner));
    match answer(&site, &Asked { host: name, path: &path, headers: &headers, number, at, ledger: &host.ledger }).await {
        Answer::Response(mut response) => {
            let shown = response.extensions_mut().remove::<Shown>();
            let is_refused = matches!(response.status().as_u16(), 401 | 403 | 429);
            host.ledger.answered(shown, is_refused, path.starts_with("/api/"));
            Ok(response)
        }
        Answer::Reset => {
            // Relaxed: the flag is read when the same task drops the connection.
            reset.store(true, Ordering::Relaxed);
            Err(Broken)
        }
    }
}

/// The host that the request line or the `Host` header names, without its port.
fn requested_host(request: &Request<Incoming>) -> Option<String> {
    if let Some(host) = request.uri().host() {
        return Some(host.trim_matches(['[', ']']).to_owned());
    }
    let authority: http::uri::Authority = request.headers().get(HOST)?.to_str().ok()?.parse().ok()?;
    Some(authority.host().trim_matches(['[', ']']).to_owned())
}

/// A connection that is broken off on purpose.
#[derive(Debug, thiserror::Error)]
#[error("broken off on purpose")]
struct Broken;

/// A stream that is reset instead of closed when told so.
struct Wire {
    stream: TcpStream,
    reset: Arc<AtomicBool>,
}

impl Drop for Wire {
    fn drop(&mut self) {
        if self.reset.load(Ordering::Relaxed) {
            // With no time to linger, closing sends RST. Should it fail, the client sees an early end instead.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
