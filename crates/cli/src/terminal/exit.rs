//! How a command ends: exit codes, and failures with what to do about them.

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
    /// Done.
    Done = 0,
    /// Failed.
    Failed = 1,
    /// Bad usage or config.
    Usage = 2,
    /// Refused: locked, damaged, of a newer format.
    Refused = 3,
}

/// Why a command ended early.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
    advice: Option<String>,
}

impl Failure {
    /// Failed.
    pub(crate) fn failed(message: impl fmt::Display) -> Self {
        Self { exit: Exit::Failed, message: message.to_string(), advice: None }
    }

    /// Asked for in a way that cannot be.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self { exit: Exit::Usage, message: message.to_string(), advice: None }
    }

    /// Refused, so that nothing comes to harm.
    #[cfg(feature = "fleet")]
    pub(crate) fn refused(message: impl fmt::Display) -> Self {
        Self { exit: Exit::Refused, message: message.to_string(), advice: None }
    }

    /// Says what to do about it.
    #[must_use]
    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// The exit code.
    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// Whether there is anything to say: whoever closed the pipe that results go to knows what happened.
    pub(crate) fn is_quiet(&self) -> bool {
        self.message.is_empty()
    }

    /// The reader of stdout has gone: stop without a word, as `head` expects.
    pub(crate) fn pipe_closed() -> Self {
        Self { exit: Exit::Done, message: String::new(), advice: None }
    }

    /// Writing to stdout failed.
    pub(crate) fn stdout(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::pipe_closed(),
            _ if interruptible_writer::gave_up(error) => Self::failed("interrupted, and nobody reads the results")
                .advise("the same command takes it up where it stopped"),
            _ => Self::failed(format_args!("cannot write to stdout: {error}")),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.advice {
            Some(advice) => write!(f, "\n  {advice}"),
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
                        "the server at {} writes there, it seems: end it, or use another --data-dir; what only reads works beside it",
                        server.escape_debug()
                    ),
                    None => "another fetchwise writes there: wait until it is done, or use another --data-dir".to_owned(),
                });
            }
            JournalError::Log(LogError::Corrupt { .. }) => Some(
                "nothing was changed: put the damaged file back from a backup, or keep what is good with repair --salvage",
            ),
            JournalError::ClockJump { .. } => {
                Some("nothing was changed: if the clock is right, say so with --trust-clock")
            }
            JournalError::Log(LogError::NewerFormat { .. } | LogError::FingerprintMismatch { .. })
            | JournalError::Record { .. }
            | JournalError::Snapshot { .. } => {
                Some("nothing was changed: use the release of fetchwise that wrote it, or a newer one")
            }
            JournalError::Log(LogError::ReadOnly { .. }) => {
                Some("make the directory writable, or use another one with --data-dir")
            }
            JournalError::Log(LogError::StorageFull { .. }) => Some("make room on that file system, and try again"),
            _ => None,
        };
        Self { exit, message: error.to_string(), advice: advice.map(str::to_owned) }
    }
}

impl From<WarcError> for Failure {
    fn from(error: WarcError) -> Self {
        let (exit, advice) = match &error {
            WarcError::Busy { .. } => {
                (Exit::Refused, Some("wait until it is done, or name another archive with --warc"))
            }
            WarcError::Damaged { .. } => (
                Exit::Refused,
                Some("nothing was changed: move it out of the way, or name another archive with --warc"),
            ),
            _ => (Exit::Failed, None),
        };
        Self { exit, message: error.to_string(), advice: advice.map(str::to_owned) }
    }
}
