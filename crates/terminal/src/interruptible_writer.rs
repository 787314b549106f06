//! A writer for stdout and stderr that can give up on a stalled reader.
//!
//! A stalled reader blocks a run only until the user interrupts it.
//!
//! Invariants: before the interruption every write waits, as with any other writer. After it, a
//! write that would block fails.
//!
//! Must not know: the content of the output.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The time at which writes stop waiting, in milliseconds after [`begun`]; at first, never.
static GIVE_UP_AT: AtomicU64 = AtomicU64::new(u64::MAX);

/// Limits the wait of all writes to `time` from now. Only a shorter limit than the current one has
/// an effect.
pub fn give_up_within(time: Duration) {
    let until = begun().elapsed().saturating_add(time).as_millis();
    // Relaxed: a writer that sees the limit a moment later gives up a moment later.
    GIVE_UP_AT.fetch_min(u64::try_from(until).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// Returns whether `error` is that of a write that gave up.
pub fn gave_up(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::TimedOut
}

fn begun() -> Instant {
    static BEGUN: OnceLock<Instant> = OnceLock::new();
    *BEGUN.get_or_init(Instant::now)
}

/// A writer to `W`, which is stdout or stderr, that gives up after the limit of [`give_up_within`].
#[derive(Debug)]
pub struct InterruptibleWriter<W>(pub W);

/// The interval at which a waiting write checks the limit.
#[cfg(unix)]
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The number of bytes that a pipe with any room takes without blocking: PIPE_BUF, which POSIX
/// allows to be as small as 512.
#[cfg(unix)]
const MAX_WRITE_BYTES: usize = if cfg!(target_os = "linux") { 4096 } else { 512 };

#[cfg(unix)]
impl<W: std::os::fd::AsFd> InterruptibleWriter<W> {
    /// Waits until the file takes bytes.
    fn ready(&self) -> io::Result<()> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let look = Timespec { tv_sec: 0, tv_nsec: i64::from(CHECK_INTERVAL.subsec_nanos()) };
        loop {
            match poll(&mut [PollFd::new(&self.0, PollFlags::OUT)], Some(&look)) {
                Ok(0)
                    if begun().elapsed().as_millis()
                        >= u128::from(GIVE_UP_AT.load(Ordering::Relaxed)) =>
                {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "the reader stalled"));
                }
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                // A closed end is ready too: the write reports the error.
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(unix)]
impl<W: std::os::fd::AsFd> Write for InterruptibleWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            self.ready()?;
            // Bypasses the buffer of the standard library, which would write more at a time.
            match rustix::io::write(&self.0, &bytes[..bytes.len().min(MAX_WRITE_BYTES)]) {
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                ended => return Ok(ended?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(not(unix))]
impl<W: Write> Write for InterruptibleWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
