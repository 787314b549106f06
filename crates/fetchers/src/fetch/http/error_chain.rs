//! The causes of an error of hyper: a search by type, and their text.
//!
//! Must not know: what a cause means for an attempt.

use std::error::Error;
use std::io;

use h2::Reason;

/// Returns whether h2 gave up on the connection by itself, because of an endless head or of too
/// many small frames.
pub(super) fn is_flood(error: &(dyn Error + 'static)) -> bool {
    find::<h2::Error>(error).is_some_and(|error| {
        error.is_library() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM)
    })
}

/// Returns the first error of type `T` in the chain of causes, even inside an `io::Error`.
pub(super) fn find<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
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

pub(super) fn chain_text(error: &(dyn Error + 'static)) -> String {
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
