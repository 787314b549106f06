//! Facts about a connection that hyper does not track: how many bytes arrived on it, how many of
//! them were content, and whether a request was in flight.
//!
//! They serve three purposes. A request on a kept connection is repeated only if not one byte
//! arrived after it was sent; otherwise the server has seen it, and it is an attempt. A connection
//! whose server continues to send without a request is closed. So is one whose server sends much
//! that is neither a response head nor a body: interim responses, or frames of HTTP/2 that keep a
//! core busy.
//!
//! Invariants: bytes are counted above TLS, so the end of a TLS session does not look like a
//! response.
//!
//! Must not know: requests.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Extensions, Response, Uri};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper_util::client::legacy::Error;
use hyper_util::client::legacy::connect::{CaptureConnection, Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower_service::Service;

use super::error_chain::is_flood;
use crate::fetch::response_head::{Heads, ReadableHeads};

/// Bytes that a server may still send after the last request on its connection ended: the rest of a
/// cancelled response.
const MAX_UNREQUESTED: u64 = 1 << 20;

/// Bytes that a server may send without content. It leaves room for the longest head behind a full
/// window of bodies.
const MAX_WITHOUT_CONTENT: u64 = 16 << 20;

/// Bytes on the wire that one byte of a body may cost. Small frames and chunks have headers.
const WIRE_BYTES_PER_BYTE: u64 = 2;

/// A connector whose connections are tracked.
#[derive(Clone, Debug)]
pub(super) struct TrackingConnector<C>(pub(super) C);

impl<C> Service<Uri> for TrackingConnector<C>
where
    C: Service<Uri>,
    C::Response: Connection,
    C::Future: Send + 'static,
{
    type Response = TokioIo<ReadableHeads<TrackedStream<C::Response>>>;
    type Error = C::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, C::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), C::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.0.call(uri);
        Box::pin(async move {
            let io = TokioIo::new(connecting.await?);
            let heads =
                if io.connected().is_negotiated_h2() { Heads::None } else { Heads::EachGet };
            let stream = TrackedStream { io, counters: ConnectionCounters::default() };
            Ok(TokioIo::new(ReadableHeads::new(stream, heads)))
        })
    }
}

/// Counters of the connection that serves a request. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct ConnectionCounters(Arc<Counts>);

/// All accesses are relaxed: one task reads and writes the stream. A value that other tasks see a
/// moment later only affects a repeated request or a closed connection, never the content of a
/// page.
#[derive(Debug, Default)]
struct Counts {
    served: AtomicBool,
    read: AtomicU64,
    read_when_written: AtomicU64,
    in_flight: AtomicUsize,
    unrequested: AtomicU64,
    without_content: AtomicU64,
    flooded: AtomicBool,
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

    /// Returns whether the connection served a response, and then ended before a byte of the
    /// response to `flight` arrived. Most likely it was idle for too long, and the server never saw
    /// the request.
    pub(super) fn went_stale(&self, flight: Option<&InFlight>) -> bool {
        let Counts { read, read_when_written, .. } = &*self.0;
        let Some(flight) = flight.filter(|flight| Arc::ptr_eq(&flight.counts, &self.0)) else {
            return false;
        };
        // HTTP/2 writes its own replies (to pings, to settings), which do not begin a request.
        let read_before = if flight.is_h2 {
            flight.read_at_begin
        } else {
            read_when_written.load(Ordering::Relaxed)
        };
        self.has_served() && read.load(Ordering::Relaxed) == read_before
    }

    /// Returns whether the connection served a response.
    pub(super) fn has_served(&self) -> bool {
        self.0.served.load(Ordering::Relaxed)
    }

    /// Records that this response's head arrived over its connection.
    pub(super) fn record_response(response: &Response<Incoming>) {
        if let Some(Self(counts)) = response.extensions().get() {
            counts.served.store(true, Ordering::Relaxed);
            counts.without_content.store(0, Ordering::Relaxed);
        }
    }

    /// Records that bytes of a body arrived over it.
    fn record_body(&self, bytes: u64) {
        let without = &self.0.without_content;
        let fewer =
            |count: u64| Some(count.saturating_sub(bytes.saturating_mul(WIRE_BYTES_PER_BYTE)));
        let _ = without.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
    }

    /// Returns whether the connection was closed because its server sent too much without content.
    pub(super) fn was_flooded(&self) -> bool {
        self.0.flooded.load(Ordering::Relaxed)
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

impl InFlight {
    /// Returns the counters of its connection.
    pub(super) fn counters(&self) -> ConnectionCounters {
        ConnectionCounters(Arc::clone(&self.counts))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.counts.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A response's body, whose bytes are the content of its connection.
#[derive(Debug)]
pub(super) struct TrackedBody {
    pub(super) incoming: Incoming,
    pub(super) counters: Option<ConnectionCounters>,
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let polled = ready!(Pin::new(&mut self.incoming).poll_frame(cx));
        match (&self.counters, &polled) {
            (Some(counters), Some(Ok(frame))) => {
                counters.record_body(frame.data_ref().map_or(0, |data| data.len() as u64));
            }
            (Some(counters), Some(Err(error))) if is_flood(error) => {
                counters.0.flooded.store(true, Ordering::Relaxed)
            }
            _ => {}
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
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
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        let received = (buf.filled().len() - before) as u64;
        let Counts { read, in_flight, unrequested, without_content, flooded, .. } =
            &*self.counters.0;
        read.fetch_add(received, Ordering::Relaxed);
        if without_content.fetch_add(received, Ordering::Relaxed) > MAX_WITHOUT_CONTENT {
            flooded.store(true, Ordering::Relaxed);
            return Poll::Ready(Err(io::Error::other("the server sends too much without content")));
        }
        if in_flight.load(Ordering::Relaxed) == 0
            && unrequested.fetch_add(received, Ordering::Relaxed) > MAX_UNREQUESTED
        {
            return Poll::Ready(Err(io::Error::other("the server sends data without a request")));
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: hyper::rt::Write + Unpin> AsyncWrite for TrackedStream<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
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
