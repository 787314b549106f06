//! The connections of hyper's pool, which come from the [`Dialer`] and so passed the address guard.
//!
//! Invariants: the pool holds only connections that this connector dialled, so a reused connection
//! was checked, too.
//!
//! Must not know: TLS (hyper-rustls wraps it) and requests.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

use crate::fetch::dial::{DialError, Dialer};
use crate::fetch::local_faults::connections_kept;

/// A connector for hyper's pool.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    dialer: Dialer,
    open: Arc<AtomicUsize>,
    /// Number of connections, busy or idle, from which on a connection is closed after its response
    /// instead of kept. Without it, a crawl of many hosts would fill the process's table of open
    /// files with idle connections.
    keep_at_most: usize,
}

impl Connector {
    pub(crate) fn new(dialer: Dialer) -> Self {
        Self { dialer, open: Arc::default(), keep_at_most: connections_kept() }
    }
}

impl Service<Uri> for Connector {
    type Response = DialledStream;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<DialledStream, DialError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Self { dialer, open, keep_at_most } = self.clone();
        Box::pin(async move {
            let default_port = if uri.scheme_str() == Some("https") { 443 } else { 80 };
            let host = uri.host().unwrap_or_default();
            // A proxy takes plain requests directly, and makes a tunnel for everything else.
            let plain = dialer
                .upstream()
                .filter(|proxy| proxy.forwards_requests() && uri.scheme_str() == Some("http"));
            let stream = match plain {
                Some(proxy) => dialer.dial_proxy(proxy, host).await?,
                None => dialer.dial(host, uri.port_u16().unwrap_or(default_port)).await?,
            };
            let (to_proxy, is_direct) = (plain.is_some(), dialer.upstream().is_none());
            // Relaxed: only a count; one connection more or less at the limit does not matter.
            let keep = open.fetch_add(1, Ordering::Relaxed) < keep_at_most;
            Ok(DialledStream {
                io: TokioIo::new(stream),
                keep,
                to_proxy,
                is_direct,
                _open: OpenCount(open),
            })
        })
    }
}

/// A connection to a checked address.
#[derive(Debug)]
pub(crate) struct DialledStream {
    io: TokioIo<TcpStream>,
    keep: bool,
    /// Whether the peer is a proxy, which needs the absolute URL in a request.
    to_proxy: bool,
    /// Whether the peer is the host itself.
    is_direct: bool,
    _open: OpenCount,
}

#[derive(Debug)]
struct OpenCount(Arc<AtomicUsize>);

impl Drop for OpenCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The peer address of a connection, in the extensions of each response over it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerAddress(pub(super) IpAddr);

impl Connection for DialledStream {
    fn connected(&self) -> Connected {
        let peer = self.io.inner().peer_addr().ok().filter(|_| self.is_direct);
        let connected = Connected::new().proxy(self.to_proxy);
        let connected = match peer {
            Some(peer) => connected.extra(PeerAddress(peer.ip().to_canonical())),
            None => connected,
        };
        if !self.keep {
            // Serves the request that it was dialled for, and is then closed.
            connected.poison();
        }
        connected
    }
}

impl Read for DialledStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl Write for DialledStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }
}
