//! Directives for crawlers in the head of a page: `<meta name="robots" content="noindex">`.
//!
//! Invariants: only `meta` elements count, not text of comments, scripts or attributes. Nothing beyond the first 64 KiB,
//! or in the body of the page, is read.
//!
//! Must not know: what a directive means.

use std::sync::LazyLock;

use crate::html::attributes::value;
use crate::html::element::Tag;
use crate::html::tokenizer::{Finders, TokenKind, Tokenizer};
use fetchwise_types::consent::{is_named, product_token};

/// The bytes of a page that are read.
const MAX_HEAD: usize = 64 << 10;
/// The most elements that are returned.
const MAX_ELEMENTS: usize = 16;

static FINDERS: LazyLock<Finders> = LazyLock::new(Finders::new);

/// Returns the `content`, in lower case, of each `meta` element for all crawlers or for the one called `agent`, which
/// pages name by its product token.
///
/// ```
/// let page = b"<!-- <meta name=robots content=none> --><meta name=\"ROBOTS\" content=\"NoIndex, noai\"><body>";
/// assert_eq!(fetchwise_detect::robots_meta(page, "fetchwise"), ["noindex, noai"]);
/// ```
pub fn robots_meta(body: &[u8], agent: &str) -> Vec<String> {
    let text = body[..body.len().min(MAX_HEAD)].to_ascii_lowercase();
    let token = Some(product_token(agent)).filter(|token| !token.is_empty()).unwrap_or(agent).to_ascii_lowercase();
    let names = |name: &[u8]| memchr::memmem::find(&text, name).is_some();
    // Most pages have no such element.
    if !names(b"robots") && (token.is_empty() || !names(token.as_bytes())) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut tokens = Tokenizer::new(&text, &FINDERS);
    while let Some(kind) = tokens.kind() {
        match kind {
            TokenKind::Text => drop(tokens.text()),
            TokenKind::EndTag => drop(tokens.close()),
            TokenKind::RawText(element) => drop(tokens.raw(element)),
            TokenKind::Declaration => drop(tokens.declaration()),
            TokenKind::StartTag => {
                let tag = tokens.open();
                if tag.tag == Tag::Body || found.len() >= MAX_ELEMENTS {
                    break;
                }
                // A tag that the text ends in is none.
                if tag.attrs_end >= text.len() {
                    break;
                }
                let attributes = text.get(tag.name_end..tag.attrs_end).unwrap_or_default();
                let name = value(attributes, b"name").unwrap_or_default().trim_ascii();
                let is_named = || std::str::from_utf8(name).is_ok_and(|name| is_named(name, agent));
                if tag.tag == Tag::Meta && !name.is_empty() && (name == b"robots" || is_named()) {
                    let content = value(attributes, b"content").unwrap_or_default();
                    found.push(String::from_utf8_lossy(content).into_owned());
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_elements_of_the_head_for_this_crawler_count() {
        let read = |page: &str| robots_meta(page.as_bytes(), "ExampleBot").join("|");
        assert_eq!(read("<meta content=noindex name=robots><meta name=examplebot content='noai'>"), "noindex|noai");
        let versioned = robots_meta(b"<meta name=examplebot content=noai>", "ExampleBot/1.0");
        assert_eq!(versioned, ["noai"], "by its product token, as in robots.txt");
        assert_eq!(read("<meta name=googlebot content=noindex><script>'<meta name=robots content=none>'</script>"), "");
        assert_eq!(read("<title><meta name=robots content=none></title><p>robots"), "");
        assert_eq!(read("<body><meta name=robots content=noindex>"), "");
        assert_eq!(read("<meta name=robots>"), "");
        assert_eq!(read("<meta name=robots content=\"noin"), "");
        assert_eq!(read(&format!("{}<meta name=robots content=none>", " ".repeat(MAX_HEAD))), "");
    }
}
