//! A write timeout: closes the connection of a client that does not read its responses.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// What happens to the writes of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writing {
    /// A write waits for the client.
    Waits,
    /// A write made progress.
    Continues,
    /// Everything written so far is sent.
    Flushed,
}

/// A stream whose writes fail if they make no progress for a time. It reports its writes to
/// `watch`.
#[derive(Debug)]
pub(crate) struct Unstalled<S, W> {
    stream: S,
    time: Duration,
    watch: W,
    /// The timer of a write that waits.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<S, W: Fn(Writing)> Unstalled<S, W> {
    pub(crate) fn new(stream: S, time: Duration, watch: W) -> Self {
        Self { stream, time, watch, timer: None }
    }

    fn check(&mut self, cx: &mut Context<'_>, is_waiting: bool) -> io::Result<()> {
        if !is_waiting {
            if self.timer.take().is_some() {
                (self.watch)(Writing::Continues);
            }
            return Ok(());
        }
        (self.watch)(Writing::Waits);
        let until = Instant::now() + self.time;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        match timer.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl<S: AsyncRead + Unpin, W: Unpin> AsyncRead for Unstalled<S, W> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin, W: Fn(Writing) + Unpin> AsyncWrite for Unstalled<S, W> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.check(cx, written.is_pending())?;
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.check(cx, written.is_pending())?;
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.check(cx, flushed.is_pending())?;
        if matches!(flushed, Poll::Ready(Ok(()))) {
            (self.watch)(Writing::Flushed);
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
        Poll::Ready(Ok(()))
    }
}
