//! Exit codes, and failures with hints.

use std::fmt;
use std::io;

use crate::terminal::interruptible_writer;
use fetchwise::config::ConfigError;
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
    /// The command did its work, and some URLs were not delivered.
    NotDelivered = 4,
}

/// A failure that ends a command early: its exit code, its message and a hint.
///
/// Its texts may name files and values from outside. They are made safe for a terminal when they
/// are printed.
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

    /// Returns a failure of a command or option whose feature this build lacks.
    #[cfg_attr(
        all(feature = "fleet", feature = "parquet", feature = "sqlite"),
        allow(dead_code, reason = "a build with every feature lacks none")
    )]
    pub(crate) fn missing_feature(what: &str, feature: &str) -> Self {
        Self::usage(format_args!("{what} is not in this build of fetchwise, which lacks the feature `{feature}`")).advise(
            format!(
                "build with `cargo build --release --features {feature}`; release archives and the container image have \
                 every feature"
            ),
        )
    }

    /// Returns a refusal: going on could damage something.
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

    /// Returns whether there is no message: the reader of the results closed the pipe, and knows
    /// that.
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
            _ if interruptible_writer::gave_up(error) => {
                Self::failed("interrupted: the reader of the results stalled")
                    .advise("run the same command again to continue where it stopped")
            }
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

impl From<WarcError> for Failure {
    fn from(error: WarcError) -> Self {
        let (exit, advice) = match &error {
            WarcError::Busy { .. } => (
                Exit::Refused,
                Some("wait until the other process ends, or choose another archive with --warc"),
            ),
            WarcError::Damaged { .. } => (
                Exit::Refused,
                Some(
                    "nothing was changed: move the archive away, or choose another archive with --warc",
                ),
            ),
            _ => (Exit::Failed, None),
        };
        Self { exit, message: error.to_string(), advice: advice.map(str::to_owned) }
    }
}
