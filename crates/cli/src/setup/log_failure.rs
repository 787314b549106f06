//! Failures of the attempt log: their exit codes and hints.

use std::borrow::Cow;
use std::io::ErrorKind;

use super::server_discovery::server_of;
use crate::terminal::exit::Failure;
use fetchwise::journal::{JournalError, LogError};

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Self {
        let failure = if error.is_refusal() { Self::refused(&error) } else { Self::failed(&error) };
        match hint(&error) {
            Some(hint) => failure.advise(hint),
            None => failure,
        }
    }
}

/// Returns what the user can do about `error`.
fn hint(error: &JournalError) -> Option<Cow<'static, str>> {
    let hint = match error {
        JournalError::Log(LogError::Locked { dir, .. }) => match server_of(dir) {
            Some(server) => {
                let server = server.escape_debug();
                return Some(Cow::Owned(format!(
                    "end the server at {server}, which seems to use it, or choose another --data-dir; commands that \
                     only read still work, and so does serve --read-only"
                )));
            }
            None => {
                "wait until the other fetchwise process ends, or choose another --data-dir; to watch it, start a crawl \
                 with fetch --serve, or follow its log with serve --read-only"
            }
        },
        JournalError::Log(LogError::Corrupt { .. }) => {
            "nothing was changed: restore the damaged file from a backup, or keep the intact part with repair --salvage"
        }
        JournalError::ClockJump { .. }
        | JournalError::ClockBehind { .. }
        | JournalError::ClockAhead { .. } => {
            "nothing was changed: if the clock is right, confirm it with --trust-clock"
        }
        JournalError::Log(LogError::NewerFormat { .. } | LogError::FingerprintMismatch { .. })
        | JournalError::Record { .. }
        | JournalError::Snapshot { .. } => {
            "nothing was changed: use the fetchwise version that wrote it, or a newer one"
        }
        JournalError::Log(LogError::ReadOnly { .. }) => {
            "make the directory writable, or choose another one with --data-dir"
        }
        JournalError::Log(LogError::StorageFull { source, .. })
            if source.kind() == ErrorKind::FileTooLarge =>
        {
            "raise the limit of file sizes (ulimit -f) and try again"
        }
        JournalError::Log(LogError::StorageFull { .. }) => {
            "free space on that file system and try again"
        }
        _ => return None,
    };
    Some(Cow::Borrowed(hint))
}
