//! Writing to stdout and stderr without ever being held up for good: a reader that stalls holds a run up only until somebody asks
//! it to stop.
//!
//! Invariant: until then every byte is waited for, as with any other writer; after that a write that would block fails. It knows
//! nothing of what is written.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// When writes stop waiting, in milliseconds after [`begun`]; never at first.
static UNTIL: AtomicU64 = AtomicU64::new(u64::MAX);

/// From now on writes are waited for so long at most. A shorter time than before counts, a longer one does not.
pub(crate) fn give_up_within(time: Duration) {
    let until = begun().elapsed().saturating_add(time).as_millis();
    // Relaxed: a writer that sees it a moment later gives up a moment later.
    UNTIL.fetch_min(u64::try_from(until).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// Whether `error` is that of a write that was given up.
pub(crate) fn gave_up(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::TimedOut
}

fn begun() -> Instant {
    static BEGUN: OnceLock<Instant> = OnceLock::new();
    *BEGUN.get_or_init(Instant::now)
}

/// Writes to `W`, which is stdout or stderr.
#[derive(Debug)]
pub(crate) struct Patient<W>(pub(crate) W);

/// How often it is looked whether to go on waiting.
#[cfg(unix)]
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// So many bytes go into a pipe that has room at all without blocking: PIPE_BUF, which POSIX lets be as small as 512.
#[cfg(unix)]
const PIECE: usize = if cfg!(target_os = "linux") { 4096 } else { 512 };

#[cfg(unix)]
impl<W: std::os::fd::AsFd> Patient<W> {
    /// Waits until it takes bytes.
    fn ready(&self) -> io::Result<()> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let look = Timespec { tv_sec: 0, tv_nsec: i64::from(LOOK_EVERY.subsec_nanos()) };
        loop {
            match poll(&mut [PollFd::new(&self.0, PollFlags::OUT)], Some(&look)) {
                Ok(0) if begun().elapsed().as_millis() >= u128::from(UNTIL.load(Ordering::Relaxed)) => {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "nobody reads"));
                }
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                // An end that is closed is ready, too: the write says what is wrong.
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(unix)]
impl<W: std::os::fd::AsFd> Write for Patient<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            self.ready()?;
            // Past the buffer of the standard library, which would write more at a time.
            match rustix::io::write(&self.0, &bytes[..bytes.len().min(PIECE)]) {
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
impl<W: Write> Write for Patient<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
