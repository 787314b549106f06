//! Exit codes, and failures with hints.

use std::fmt;
use std::io;

use crate::setup::server_discovery::server_of;
use crate::terminal::interruptible_writer;
use fetchwise::config::ConfigError;
use fetchwise::journal::{JournalError, LogError};
use fetchwise::store::warc::WarcError;

/// Exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The command did its work.
    Done = 0,
    /// The command failed.
    Failed = 1,
    /// The usage or the config is invalid.
    Usage = 2,
    /// The data directory is locked, damaged or of a newer format.
    Refused = 3,
}

/// A failure that ends a command early: its exit code, its message and a hint.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
    advice: Option<String>,
}

impl Failure {
    /// Returns a failure of the work itself.
    pub(crate) fn failed(message: impl fmt::Display) -> Self {
        Self { exit: Exit::Failed, message: message.to_string(), advice: None }
    }

    /// Returns a failure caused by invalid usage or config.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self { exit: Exit::Usage, message: message.to_string(), advice: None }
    }

    /// Returns a refusal: going on could damage something.
    #[cfg(feature = "fleet")]
    pub(crate) fn refused(message: impl fmt::Display) -> Self {
        Self { exit: Exit::Refused, message: message.to_string(), advice: None }
    }

    /// Adds a hint: what the user can do.
    #[must_use]
    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// Returns the exit code.
    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// Returns whether there is no message: the reader of the results closed the pipe, and knows that.
    pub(crate) fn is_quiet(&self) -> bool {
        self.message.is_empty()
    }

    /// Returns the quiet failure for a closed stdout, which `head` expects.
    pub(crate) fn pipe_closed() -> Self {
        Self { exit: Exit::Done, message: String::new(), advice: None }
    }

    /// Returns the failure for an error of a write to stdout.
    pub(crate) fn stdout(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::pipe_closed(),
            _ if interruptible_writer::gave_up(error) => Self::failed("interrupted: the reader of the results stalled")
                .advise("run the same command again to continue where it stopped"),
            _ => Self::failed(format_args!("cannot write to stdout: {error}")),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.advice {
            Some(advice) => write!(f, "\n  hint: {advice}"),
            None => Ok(()),
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::usage(error)
    }
}

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Self {
        let exit = if error.is_refusal() { Exit::Refused } else { Exit::Failed };
        let advice = match &error {
            JournalError::Log(LogError::Locked { dir, .. }) => {
                let failure = Self { exit, message: error.to_string(), advice: None };
                return failure.advise(match server_of(dir) {
                    Some(server) => format!(
                        "end the server at {}, which seems to use it, or choose another --data-dir; \
                         commands that only read still work",
                        server.escape_debug()
                    ),
                    None => "wait until the other fetchwise process ends, or choose another --data-dir".to_owned(),
                });
            }
            JournalError::Log(LogError::Corrupt { .. }) => Some(
                "nothing was changed: restore the damaged file from a backup, or keep the intact part with \
                 repair --salvage",
            ),
            JournalError::ClockJump { .. } => {
                Some("nothing was changed: if the clock is right, confirm it with --trust-clock")
            }
            JournalError::Log(LogError::NewerFormat { .. } | LogError::FingerprintMismatch { .. })
            | JournalError::Record { .. }
            | JournalError::Snapshot { .. } => {
                Some("nothing was changed: use the fetchwise version that wrote it, or a newer one")
            }
            JournalError::Log(LogError::ReadOnly { .. }) => {
                Some("make the directory writable, or choose another one with --data-dir")
            }
            JournalError::Log(LogError::StorageFull { .. }) => Some("free space on that file system and try again"),
            _ => None,
        };
        Self { exit, message: error.to_string(), advice: advice.map(str::to_owned) }
    }
}

impl From<WarcError> for Failure {
    fn from(error: WarcError) -> Self {
        let (exit, advice) = match &error {
            WarcError::Busy { .. } => {
                (Exit::Refused, Some("wait until the other process ends, or choose another archive with --warc"))
            }
            WarcError::Damaged { .. } => {
                (Exit::Refused, Some("nothing was changed: move the archive away, or choose another archive with --warc"))
            }
            _ => (Exit::Failed, None),
        };
        Self { exit, message: error.to_string(), advice: advice.map(str::to_owned) }
    }
}
