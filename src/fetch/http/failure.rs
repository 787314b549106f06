//! What went wrong, as an [`ErrorKind`]: the one place that looks into the error types of hyper, h2, rustls and the dialer.

use std::error::Error;
use std::io;

use h2::Reason;

use crate::attempt::outcome::ErrorKind;
use crate::fetch::dial::DialError;

use super::decode::DecodeError;
use super::redirect::RedirectError;

/// A request that brought no response.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) kind: ErrorKind,
    pub(super) message: String,
}

impl Failure {
    pub(super) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// No answer came, or none that is HTTP.
    pub(super) fn of_request(error: &(dyn Error + 'static)) -> Self {
        if let Some(dial) = find::<DialError>(error) {
            return Self::new(dial.kind(), dial.to_string());
        }
        if let Some(tls) = find::<rustls::Error>(error) {
            return Self::new(ErrorKind::TlsError, tls.to_string());
        }
        let too_large_1 = find::<hyper::Error>(error).is_some_and(hyper::Error::is_parse_too_large);
        // What h2 says, of its own accord, when it gives up on a head that goes on and on.
        let too_large_2 = find::<h2::Error>(error)
            .is_some_and(|error| error.is_library() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM));
        let kind = if too_large_1 || too_large_2 { ErrorKind::TooLarge } else { ErrorKind::NetworkError };
        Self::new(kind, chain_text(error))
    }
}

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Self {
        // A disk that is full is a limit of this machine: neutral, as the limits that were configured.
        Self::new(ErrorKind::TooLarge, error.to_string())
    }
}

impl From<RedirectError> for Failure {
    fn from(error: RedirectError) -> Self {
        Self::new(ErrorKind::RedirectLoop, error.to_string())
    }
}

/// The first error of type `T` in the chain of causes, also when an `io::Error` hides it.
fn find<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = cause(error);
    }
    None
}

fn cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        // `io::Error::source` skips the error that it wraps.
        Some(inner) => Some(inner),
        None => error.source(),
    }
}

fn chain_text(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = cause(error);
    while let Some(error) = next {
        let more = error.to_string();
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        next = cause(error);
    }
    text.chars().take(300).collect()
}
