//! The parts of a URL that values of heuristics repeat.
//!
//! Owns: where host and first path segment are in a URL's text.
//!
//! Invariants: the results are slices of the text. The rules never change, because blocks on disk
//! depend on them.
//!
//! Must not know: blocks.

/// The host in the text of a URL, without user and port, and without `www.`.
#[inline]
pub(crate) fn host(url: &str) -> &str {
    let authority = up_to_delimiter(after_scheme(url).unwrap_or_default());
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = host.split_once(':').map_or(host, |(host, _)| host);
    host.strip_prefix("www.").unwrap_or(host)
}

/// The first segment of the path in the text of a URL.
#[inline]
pub(crate) fn section(url: &str) -> &str {
    up_to_delimiter(
        after_scheme(url).and_then(|rest| rest.split_once('/')).map_or("", |(_, path)| path),
    )
}

/// What follows the first `://`. A search for the three characters at once takes several times as
/// long.
fn after_scheme(url: &str) -> Option<&str> {
    let mut rest = url;
    while let Some((_, behind)) = rest.split_once(':') {
        if let Some(found) = behind.strip_prefix("//") {
            return Some(found);
        }
        rest = behind;
    }
    None
}

fn up_to_delimiter(text: &str) -> &str {
    let end = text.bytes().position(|byte| matches!(byte, b'/' | b'?' | b'#'));
    end.and_then(|end| text.get(..end)).unwrap_or(text)
}
