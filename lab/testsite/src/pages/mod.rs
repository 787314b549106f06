//! The pages of the sites: articles, challenges, documents. Pure functions from a path to bytes,
//! without state or network.
//!
//! Invariants: the same path always gives the same bytes, so a test can compare fetched and served
//! pages. All texts were written for this project.

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
