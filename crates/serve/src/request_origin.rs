//! What a request addresses, and whether a web page of another origin made it.
//!
//! Invariants: a request has one authority: all of its `Host` headers and its request line name the
//! same one, or it is refused. A page cannot write the headers that are read here: the browser
//! does.
//!
//! Must not know: which authorities a listener serves.

use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};

use crate::problem::Problem;

/// The relation of the page that makes a request to the server, from its browser.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Whether the request is for a page that the browser shows.
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
/// The use of the response.
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// The maximum length of a head: its method, target, and header names and values.
pub(crate) const MAX_HEAD_BYTES: usize = 64 << 10;

/// Returns the authority that a request addresses; none if it names none, as HTTP/1.0 allows.
///
/// # Errors
/// 400 if it names several or an invalid one, 421 if its request line names another one than its
/// `Host`.
pub(crate) fn authority(uri: &Uri, headers: &HeaderMap) -> Result<Option<Authority>, Problem> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next().map(|host| valid(host.as_bytes())).transpose()?;
    if hosts.next().is_some() {
        return Err(Problem::bad_request("several `Host` headers: send one"));
    }
    let Some(target) = uri.authority() else { return Ok(host) };
    let target = valid(target.as_str().as_bytes())?;
    if host.is_some_and(|host| host != target) {
        let words = "the request line and the `Host` header name different servers";
        return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, "misdirected", words));
    }
    Ok(Some(target))
}

fn valid(text: &[u8]) -> Result<Authority, Problem> {
    let invalid = || {
        Problem::bad_request(
            "invalid `Host`: expected a name or an address, with a port if need be",
        )
    };
    let authority = Authority::try_from(text).map_err(|_| invalid())?;
    // The part before an `@` is no host, and is read as one if a colon is in it.
    if authority.host().is_empty() || authority.as_str().contains('@') {
        return Err(invalid());
    }
    Ok(authority)
}

/// Checks that the head of a request is no longer than [`MAX_HEAD_BYTES`].
///
/// # Errors
/// 431 if it is longer.
pub(crate) fn within_head_limit(parts: &Parts) -> Result<(), Problem> {
    let uri = &parts.uri;
    let target = uri.path().len()
        + uri.query().map_or(0, |query| query.len() + 1)
        + uri.authority().map_or(0, |authority| authority.as_str().len())
        + uri.scheme_str().map_or(0, |scheme| scheme.len() + "://".len());
    let headers: usize = parts
        .headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len())
        .sum();
    let line = parts.method.as_str().len() + target + "  HTTP/1.1\r\n\r\n".len();
    if line + headers <= MAX_HEAD_BYTES {
        return Ok(());
    }
    let words = format!("the head of the request is longer than {} KiB", MAX_HEAD_BYTES >> 10);
    Err(Problem::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large", words))
}

/// Returns whether the request comes from a web page that is not a page of `own`. A link to the
/// dashboard is none of its page: the browser shows the response to its user, and the page learns
/// nothing.
pub(crate) fn is_foreign_page(parts: &Parts, own: &Authority) -> bool {
    let headers = &parts.headers;
    let is_of_own = |value: &HeaderValue| {
        let uri = Uri::try_from(value.as_bytes()).ok();
        uri.is_some_and(|uri| uri.authority() == Some(own))
    };
    if headers.get_all(header::ORIGIN).iter().any(|origin| !is_of_own(origin)) {
        return true;
    }
    if is_link_to_dashboard(parts) {
        return false;
    }
    let mut sites = headers.get_all(SEC_FETCH_SITE).iter();
    // `none` is an address that the user typed. `same-site` is another port of this machine.
    sites.any(|site| !matches!(site.as_bytes(), b"same-origin" | b"none"))
        // Browsers without the headers above, and servers that they do not trust with them, have
        // this one.
        || headers.get_all(header::REFERER).iter().any(|page| !is_of_own(page))
}

fn is_link_to_dashboard(parts: &Parts) -> bool {
    let is = |name: &HeaderName, value: &str| {
        parts.headers.get(name).is_some_and(|given| *given == *value)
    };
    parts.method == Method::GET
        && parts.uri.path() == "/"
        && is(&SEC_FETCH_MODE, "navigate")
        && is(&SEC_FETCH_DEST, "document")
}
