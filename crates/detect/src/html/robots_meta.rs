//! Directives for crawlers in the head of a page: `<meta name="robots" content="noindex">`.
//!
//! Invariants: only `meta` elements count, not text of comments, scripts or attributes. Nothing
//! beyond the first 64 KiB, or in the body of the page, is read.
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

/// Returns the `content`, in lower case, of each `meta` element for all crawlers or for the one
/// called `agent`, which pages name by its product token.
///
/// ```
/// let page = b"<!-- <meta name=robots content=none> --><meta name=\"ROBOTS\" content=\"NoIndex, noai\"><body>";
/// assert_eq!(fetchwise_detect::robots_meta(page, "fetchwise"), ["noindex, noai"]);
/// ```
pub fn robots_meta(body: &[u8], agent: &str) -> Vec<String> {
    let body = &body[..body.len().min(MAX_HEAD)];
    // A page is read up to its body, and as a whole where that is none: in a comment, a script or
    // an attribute.
    if let Some(at) = body_tag(body)
        && let Read { found, is_whole: true } = Read::of(&body[..at].to_ascii_lowercase(), agent)
    {
        return found;
    }
    let text = body.to_ascii_lowercase();
    let token = Some(product_token(agent))
        .filter(|token| !token.is_empty())
        .unwrap_or(agent)
        .to_ascii_lowercase();
    let names = |name: &[u8]| memchr::memmem::find(&text, name).is_some();
    // Most pages have no such element.
    if names(b"robots") || !token.is_empty() && names(token.as_bytes()) {
        Read::of(&text, agent).found
    } else {
        Vec::new()
    }
}

/// Returns the end of the first `<body` and of the byte that ends its name.
fn body_tag(text: &[u8]) -> Option<usize> {
    const TAG: &[u8] = b"<body";
    // A text has fewer of these letters than of `<`.
    let begins = memchr::memchr2_iter(b'b', b'B', text).filter_map(|at| at.checked_sub(1));
    let mut ends = begins.map(|at| at + TAG.len()).filter(|end| end < &text.len());
    ends.find(|&end| text[end - TAG.len()..end].eq_ignore_ascii_case(TAG)).map(|end| end + 1)
}

/// What was read in a text.
struct Read {
    found: Vec<String>,
    /// Whether nothing counts that may follow the text.
    is_whole: bool,
}

impl Read {
    /// Reads a text in lower case up to the body of the page.
    fn of(text: &[u8], agent: &str) -> Self {
        let mut found = Vec::new();
        let mut tokens = Tokenizer::new(text, &FINDERS);
        while let Some(kind) = tokens.kind() {
            match kind {
                TokenKind::Text => drop(tokens.text()),
                TokenKind::EndTag => drop(tokens.close()),
                TokenKind::RawText(element) => drop(tokens.raw(element)),
                TokenKind::Declaration => drop(tokens.declaration()),
                TokenKind::StartTag => {
                    let tag = tokens.open();
                    if tag.tag == Tag::Body || found.len() >= MAX_ELEMENTS {
                        return Self { found, is_whole: true };
                    }
                    // A tag that the text ends in is none.
                    if tag.attrs_end >= text.len() {
                        break;
                    }
                    let attributes = text.get(tag.name_end..tag.attrs_end).unwrap_or_default();
                    found.extend(directives(tag.tag, attributes, agent));
                }
            }
        }
        Self { found, is_whole: false }
    }
}

/// Returns the directives of an element with these attributes, if it is one for the crawler.
fn directives(tag: Tag, attributes: &[u8], agent: &str) -> Option<String> {
    if tag != Tag::Meta {
        return None;
    }
    let name = value(attributes, b"name").unwrap_or_default().trim_ascii();
    let is_named = || std::str::from_utf8(name).is_ok_and(|name| is_named(name, agent));
    let is_for_crawler = !name.is_empty() && (name == b"robots" || is_named());
    is_for_crawler.then(|| {
        String::from_utf8_lossy(value(attributes, b"content").unwrap_or_default()).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_elements_of_the_head_for_this_crawler_count() {
        let read = |page: &str| robots_meta(page.as_bytes(), "ExampleBot").join("|");
        assert_eq!(
            read("<meta content=noindex name=robots><meta name=examplebot content='noai'>"),
            "noindex|noai"
        );
        let versioned = robots_meta(b"<meta name=examplebot content=noai>", "ExampleBot/1.0");
        assert_eq!(versioned, ["noai"], "by its product token, as in robots.txt");
        assert_eq!(
            read(
                "<meta name=googlebot content=noindex><script>'<meta name=robots content=none>'</script>"
            ),
            ""
        );
        assert_eq!(read("<title><meta name=robots content=none></title><p>robots"), "");
        assert_eq!(read("<body><meta name=robots content=noindex>"), "");
        assert_eq!(read("<meta name=robots>"), "");
        assert_eq!(read("<meta name=robots content=\"noin"), "");
        assert_eq!(read(&format!("{}<meta name=robots content=none>", " ".repeat(MAX_HEAD))), "");
    }

    /// Reading ends at the body, which is not where its name first stands.
    #[test]
    fn a_body_that_is_none_ends_no_head() {
        let meta = "<META Name=Robots content=NoAI>";
        for before in [
            "<!-- <body> > -->",
            "<!-- <body -- > -->",
            "<script>'<body>'</script>",
            "<script><!-- <script> </script> <body> --></script>",
            "<style><body x</style>",
            "<title><BODY></title>",
            "<noscript><link title='<body>'></noscript>",
            "<meta name=robots title='<body >' content=none>",
            "<bodyguard><body-x>",
            "<iframe><body></iframe>",
            "</body>",
            "b <b>",
        ] {
            let whole = Read::of(
                format!("{before}{meta}<body>{meta}").to_ascii_lowercase().as_bytes(),
                "ExampleBot",
            );
            for after in ["<body>", "<BODY class=x>", "<Body\n>", ""] {
                let page = format!("{before}{meta}{after}");
                assert_eq!(robots_meta(page.as_bytes(), "ExampleBot"), whole.found, "{page}");
                assert_eq!(whole.found.last().map(String::as_str), Some("noai"), "{page}");
            }
        }
        for cut in [
            "<meta name=robots content=none",
            "<meta name=robots content=none <body",
            "<body",
            "<body<body",
        ] {
            assert!(robots_meta(cut.as_bytes(), "ExampleBot").is_empty(), "{cut}");
        }
    }
}
