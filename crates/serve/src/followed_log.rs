//! The log of another process, as far as a server that follows it has to know.
//!
//! Owns: the error of the last read.
//!
//! Must not know: how the log is read.

use std::sync::{Mutex, PoisonError};

/// A followed log.
#[derive(Debug, Default)]
pub(crate) struct FollowedLog {
    error: Mutex<Option<String>>,
}

impl FollowedLog {
    /// Returns why the last read failed, if it did.
    pub(crate) fn error(&self) -> Option<String> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets or clears the error.
    pub(crate) fn set_error(&self, error: Option<String>) {
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }
}
