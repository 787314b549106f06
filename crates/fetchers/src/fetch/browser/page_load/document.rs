//! The document of a navigation of the main frame, and the meaning of its headers.

use fetchwise_types::heuristic::url::site_of;
use fetchwise_types::response::{Header, header, media_type};

/// A navigation of the main frame, and its response.
#[derive(Clone, Debug, Default)]
pub(crate) struct Document {
    pub(super) id: String,
    pub(crate) url: String,
    pub(crate) status: Option<u16>,
    pub(crate) headers: Vec<Header>,
    pub(super) committed: bool,
    pub(super) finished: bool,
    pub(crate) truncated: bool,
    /// Number of requests to its host, including this one: resources of a page cost the host as much as pages.
    pub(crate) requests: u16,
    pub(super) decoded: u64,
    pub(super) encoded: u64,
}

impl Document {
    /// Returns the announced length of the body, if the server sends one and the body is not encoded.
    pub(crate) fn announced(&self) -> Option<u64> {
        if header(&self.headers, "content-encoding").is_some() {
            return None;
        }
        header(&self.headers, "content-length")?.trim().parse().ok()
    }
}

/// Returns the host of a request.
pub(super) fn host_of(url: &str) -> Option<String> {
    url::Url::parse(url).ok()?.host_str().map(str::to_owned)
}

/// Returns whether two URLs have the same registrable domain, or the same host where there is none.
pub(super) fn is_same_site(one: &str, other: &str) -> bool {
    let host = |url| host_of(url).map(|host| host.trim_end_matches('.').to_owned());
    match (host(one), host(other)) {
        (Some(one), Some(other)) => site_of(&one) == site_of(&other),
        _ => false,
    }
}

/// Returns whether a browser renders the response as a document. Other types (PDF, JSON, images, feeds, attachments)
/// are wanted as the received bytes, not as a viewer's rendering.
pub(super) fn is_rendered(headers: &[Header]) -> bool {
    let attachment = header(headers, "content-disposition")
        .is_some_and(|v| v.trim_start().get(..10).is_some_and(|start| start.eq_ignore_ascii_case("attachment")));
    let is = |essence: &str, name: &str| essence.eq_ignore_ascii_case(name);
    // Without a type the browser inspects the bytes. It would download what it does not render, and that ends as
    // cancelled.
    !attachment && media_type(headers).is_none_or(|e| is(e, "text/html") || is(e, "application/xhtml+xml"))
}
