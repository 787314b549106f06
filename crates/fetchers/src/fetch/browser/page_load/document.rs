//! The document that a navigation of the main frame brings, and what its head says of it.

use fetchwise_types::response::{Header, header};

/// A navigation of the main frame, and the response it brought.
#[derive(Clone, Debug, Default)]
pub(crate) struct Document {
    pub(super) id: String,
    pub(crate) url: String,
    pub(crate) status: Option<u16>,
    pub(crate) headers: Vec<Header>,
    pub(super) committed: bool,
    pub(super) finished: bool,
    pub(crate) truncated: bool,
    /// How many requests went to its host, this one included: what a page asks for costs the host as much as pages do.
    pub(crate) requests: u16,
    pub(super) decoded: u64,
    pub(super) encoded: u64,
}

impl Document {
    /// How long the body is to be, when the server says so and nothing is done to it on the way.
    pub(crate) fn announced(&self) -> Option<u64> {
        if header(&self.headers, "content-encoding").is_some() {
            return None;
        }
        header(&self.headers, "content-length")?.trim().parse().ok()
    }
}

/// The host that a request goes to.
pub(super) fn host_of(url: &str) -> Option<String> {
    url::Url::parse(url).ok()?.host_str().map(str::to_owned)
}

/// Whether a browser makes a document of it. All else (PDF, JSON, images, feeds, attachments) is wanted as the bytes
/// that came, not as what a viewer makes of them.
pub(super) fn is_rendered(headers: &[Header]) -> bool {
    let attachment = header(headers, "content-disposition")
        .is_some_and(|v| v.trim_start().get(..10).is_some_and(|start| start.eq_ignore_ascii_case("attachment")));
    let essence = header(headers, "content-type")
        .and_then(|v| v.split(';').next())
        .map(|v| v.trim().to_ascii_lowercase())
        .filter(|v| v.contains('/'));
    // Without a type the browser looks at the bytes; what it does not render it would download, which ends as given up.
    !attachment && essence.is_none_or(|e| e == "text/html" || e == "application/xhtml+xml")
}
