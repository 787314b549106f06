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
    /// Number of requests to its host, including this one: resources of a page cost the host as
    /// much as pages.
    pub(crate) requests: u16,
    pub(super) decoded: u64,
    pub(super) encoded: u64,
}

impl Document {
    /// Returns whether its response is one that the browser shows, and so replaces the document
    /// before it.
    pub(super) fn is_shown(&self) -> bool {
        self.status.is_some_and(|status| !matches!(status, 204 | 205 | 304))
            && is_rendered(&self.headers)
    }

    /// Returns the announced length of the body, if the server sends one and the body is not
    /// encoded.
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

/// Returns whether a browser renders the response as a document. Other types (PDF, JSON, images,
/// feeds, attachments) are wanted as the received bytes, not as a viewer's rendering.
pub(super) fn is_rendered(headers: &[Header]) -> bool {
    let is = |essence: &str, name: &str| essence.eq_ignore_ascii_case(name);
    // Without a type the browser inspects the bytes. It would download what it does not render, and
    // that ends as cancelled.
    !is_attachment(headers)
        && media_type(headers).is_none_or(|e| is(e, "text/html") || is(e, "application/xhtml+xml"))
}

/// Returns whether a browser saves the response to a navigation instead of showing it: the page
/// before stays then.
pub(super) fn is_download(headers: &[Header]) -> bool {
    is_attachment(headers)
        || media_type(headers).is_some_and(|kind| !is_shown(&kind.to_ascii_lowercase()))
}

/// Returns whether the server asks that the response be saved. A disposition that browsers do not
/// know means the same.
fn is_attachment(headers: &[Header]) -> bool {
    let disposition =
        header(headers, "content-disposition").and_then(|value| value.split(';').next());
    let kind =
        disposition.map(str::trim).filter(|kind| !kind.is_empty() && !kind.contains(['=', '"']));
    kind.is_some_and(|kind| !kind.eq_ignore_ascii_case("inline"))
}

/// Returns whether a browser shows a media type by itself, or with its viewer.
fn is_shown(kind: &str) -> bool {
    let (class, subtype) = kind.split_once('/').unwrap_or((kind, ""));
    match class {
        "text" => !matches!(
            subtype,
            "calendar" | "x-calendar" | "x-vcalendar" | "vcalendar" | "vcard" | "x-vcard" | "csv"
        ),
        "image" | "audio" | "video" | "multipart" => true,
        "application" => {
            matches!(
                subtype,
                "pdf" | "json" | "xml" | "javascript" | "x-javascript" | "ecmascript" | "ogg"
            ) || subtype.ends_with("+xml")
                || subtype.ends_with("+json")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(kind: &str, disposition: &str) -> Vec<Header> {
        let both = [("Content-Type", kind), ("Content-Disposition", disposition)];
        both.into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| Header::new(name, value))
            .collect()
    }

    #[test]
    fn a_download_is_what_a_browser_does_not_show() {
        for (kind, disposition) in [
            ("application/zip", ""),
            ("application/octet-stream", ""),
            ("application/vnd.ms-excel", "inline"),
            ("text/csv", ""),
            ("text/html", "attachment"),
            ("text/html", " Attachment; filename=\"a.html\""),
            ("text/html", "save"),
            ("application/pdf", "attachment;filename=a.pdf"),
            ("", "attachment"),
            ("font/woff2", ""),
        ] {
            assert!(is_download(&headers(kind, disposition)), "{kind} {disposition}");
        }
        for (kind, disposition) in [
            ("text/html; charset=utf-8", ""),
            ("TEXT/HTML", "inline; filename=a.html"),
            ("text/plain", "filename=a.txt"),
            ("application/pdf", "inline"),
            ("application/problem+json", ""),
            ("application/atom+xml", ""),
            ("image/svg+xml", ""),
            ("video/mp4", ""),
            ("", ""),
        ] {
            assert!(!is_download(&headers(kind, disposition)), "{kind} {disposition}");
        }
    }
}
