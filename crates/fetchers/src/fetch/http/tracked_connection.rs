//! Facts about a connection that hyper does not track: how many bytes arrived on it, and whether a request was in
//! flight.
//!
//! They serve two purposes. A request on a kept connection is repeated only if not one byte arrived after it was sent;
//! otherwise the server has seen it, and it is an attempt. A connection whose server continues to send without a
//! request is closed.
//!
//! Invariants: bytes are counted above TLS, so the end of a TLS session does not look like a response.
//!
//! Must not know: HTTP.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use http::{Extensions, Response, Uri};
use hyper::body::Incoming;
use hyper_util::client::legacy::Error;
use hyper_util::client::legacy::connect::{CaptureConnection, Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower_service::Service;

/// Bytes that a server may still send after the last request on its connection ended: the rest of a cancelled response.
const MAX_UNREQUESTED: u64 = 1 << 20;

/// A connector whose connections are tracked.
#[derive(Clone, Debug)]
pub(super) struct TrackingConnector<C>(pub(super) C);

impl<C> Service<Uri> for TrackingConnector<C>
where
    C: Service<Uri>,
    C::Future: Send + 'static,
{
    type Response = TokioIo<TrackedStream<C::Response>>;
    type Error = C::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, C::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), C::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.0.call(uri);
        Box::pin(async move {
            let io = TokioIo::new(connecting.await?);
            Ok(TokioIo::new(TrackedStream { io, counters: ConnectionCounters::default() }))
        })
    }
}

/// Counters of the connection that serves a request. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct ConnectionCounters(Arc<Counts>);

/// All accesses are relaxed: one task reads and writes the stream. A value that other tasks see a moment later only
/// affects a repeated request or a closed connection, never the content of a page.
#[derive(Debug, Default)]
struct Counts {
    served: AtomicBool,
    read: AtomicU64,
    read_when_written: AtomicU64,
    in_flight: AtomicUsize,
    unrequested: AtomicU64,
}

impl ConnectionCounters {
    /// Returns the counters of the connection that failed with `error`, if there was one.
    pub(super) fn of_error(error: &Error) -> Option<Self> {
        Self::of(error.connect_info()?)
    }

    fn of(connected: &Connected) -> Option<Self> {
        let mut extras = Extensions::new();
        connected.get_extras(&mut extras);
        extras.remove()
    }

    /// Returns whether the connection served a response, and then ended before a byte of the response to `flight`
    /// arrived. Most likely it was idle for too long, and the server never saw the request.
    pub(super) fn went_stale(&self, flight: Option<&InFlight>) -> bool {
        let Counts { read, read_when_written, .. } = &*self.0;
        let Some(flight) = flight.filter(|flight| Arc::ptr_eq(&flight.counts, &self.0)) else { return false };
        // HTTP/2 writes its own replies (to pings, to settings), which do not begin a request.
        let read_before = if flight.is_h2 { flight.read_at_begin } else { read_when_written.load(Ordering::Relaxed) };
        self.has_served() && read.load(Ordering::Relaxed) == read_before
    }

    /// Returns whether the connection served a response.
    pub(super) fn has_served(&self) -> bool {
        self.0.served.load(Ordering::Relaxed)
    }

    /// Records that this response arrived over its connection.
    pub(super) fn record_response(response: &Response<Incoming>) {
        if let Some(Self(counts)) = response.extensions().get() {
            counts.served.store(true, Ordering::Relaxed);
        }
    }

    /// Marks a request as in flight until the returned guard is dropped.
    fn begin(self, is_h2: bool) -> InFlight {
        self.0.in_flight.fetch_add(1, Ordering::Relaxed);
        self.0.unrequested.store(0, Ordering::Relaxed);
        InFlight { read_at_begin: self.0.read.load(Ordering::Relaxed), counts: self.0, is_h2 }
    }
}

/// A request in flight.
#[derive(Debug)]
pub(super) struct InFlight {
    counts: Arc<Counts>,
    read_at_begin: u64,
    is_h2: bool,
}

impl InFlight {
    /// Starts tracking on the connection of `captured`, as soon as it is known.
    pub(super) fn on(captured: &CaptureConnection) -> Option<Self> {
        let connected = captured.connection_metadata();
        let connected = connected.as_ref()?;
        Some(ConnectionCounters::of(connected)?.begin(connected.is_negotiated_h2()))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.counts.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection whose bytes are counted.
#[derive(Debug)]
pub(super) struct TrackedStream<T> {
    io: TokioIo<T>,
    counters: ConnectionCounters,
}

impl<T: Connection> Connection for TrackedStream<T> {
    fn connected(&self) -> Connected {
        self.io.connected().extra(self.counters.clone())
    }
}

impl<T: hyper::rt::Read + Unpin> AsyncRead for TrackedStream<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        let received = (buf.filled().len() - before) as u64;
        let Counts { read, in_flight, unrequested, .. } = &*self.counters.0;
        read.fetch_add(received, Ordering::Relaxed);
        if in_flight.load(Ordering::Relaxed) == 0
            && unrequested.fetch_add(received, Ordering::Relaxed) > MAX_UNREQUESTED
        {
            return Poll::Ready(Err(io::Error::other("the server sends data without a request")));
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: hyper::rt::Write + Unpin> AsyncWrite for TrackedStream<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.counters.record_write();
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
        self.counters.record_write();
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }
}

impl ConnectionCounters {
    /// Records that the bytes so far arrived before the current write.
    fn record_write(&self) {
        self.0.read_when_written.store(self.0.read.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}
