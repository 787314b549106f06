//! A system without Unix domain sockets: no process can be controlled, and no command asks one.
//!
//! Invariants: the signatures are those of `client` and `listener`.

use std::path::Path;

use super::{ControlAnswer, ControlRequest, Controlled};
use crate::terminal::exit::Failure;

/// A socket, which this system cannot have.
pub(crate) enum ControlSocket {}

impl ControlSocket {
    /// Returns none.
    pub(crate) fn open(_: &Path, _: &'static str, _: impl Controlled) -> Option<Self> {
        None
    }

    #[allow(clippy::unused_async, reason = "the signature is the same as with Unix domain sockets")]
    pub(crate) async fn close(self) {
        match self {}
    }
}

/// Returns none: no process listens.
#[allow(
    clippy::unnecessary_wraps,
    reason = "the signature is the same as with Unix domain sockets"
)]
pub(crate) fn ask(_: &Path, _: &ControlRequest) -> Result<Option<ControlAnswer>, Failure> {
    Ok(None)
}
