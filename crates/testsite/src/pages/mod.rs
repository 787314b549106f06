//! What the demo's sites show: articles, walls, documents. Pure functions from a path to bytes; no state, no network.
//!
//! Everything here was written for this project. The same path always gives the same bytes, so that a test may compare
//! what was fetched with what was served.

pub(super) mod article;
pub(super) mod charset;
pub(super) mod html;
pub(super) mod pdf;
pub(super) mod shell;

/// Escapes text for HTML, in content and in double-quoted attributes.
pub(super) fn escape_html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(c),
        }
    }
    out
}
