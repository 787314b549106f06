//! Exit codes, and failures with hints: those of the program `fetchwise`.

use std::fmt;
use std::io;

use fetchwise::journal::JournalError;

/// Exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The command did its work.
    Done = 0,
    /// The command failed.
    Failed = 1,
    /// The usage or a file is invalid.
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

    /// Returns a failure caused by invalid usage.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self { exit: Exit::Usage, message: message.to_string(), advice: None }
    }

    /// Returns the failure for an error of a write to stdout; a quiet one for a closed pipe, which
    /// `head` expects.
    pub(crate) fn stdout(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => {
                Self { exit: Exit::Done, message: String::new(), advice: None }
            }
            _ => Self::failed(format_args!("cannot write to stdout: {error}")),
        }
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

    /// Returns whether there is no message.
    pub(crate) fn is_quiet(&self) -> bool {
        self.message.is_empty()
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

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Self {
        let exit = if error.is_refusal() { Exit::Refused } else { Exit::Failed };
        Self { exit, message: error.to_string(), advice: None }
    }
}
