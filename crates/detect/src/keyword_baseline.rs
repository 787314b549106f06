//! A keyword baseline to compare the detector with: what one writes in an afternoon.
//!
//! Seven keywords anywhere in the bytes make a captcha, and two strings per framework make a shell.
//! Text is what remains without scripts and styles; tags stay in.

use std::sync::Arc;

use crate::scratch::Scratch;
use crate::verdict::{CONTENT_CHARS, Verdict};
use fetchwise_types::fetch_result::BlockKind;
use fetchwise_types::response::Page;

const CAPTCHA: [&str; 7] = [
    "Cloudflare",
    "hCaptcha",
    "reCAPTCHA",
    "g-recaptcha",
    "Just a moment",
    "cf-browser-verification",
    "grecaptcha",
];

const FRAMEWORKS: [(&str, [&str; 2]); 3] = [
    ("react", ["<div id=\"root\">", "__REACT_DEVTOOLS_"]),
    ("vue", ["<div id=\"app\">", "__VUE__"]),
    ("next", ["<div id=\"__next\">", "__NEXT_DATA__"]),
];

/// Classifies a page by keywords.
pub(super) fn inspect(page: &Page<'_>, scratch: &mut Scratch) -> Verdict {
    scratch.read.title.clear();
    let body = page.body;
    let contains = |needle: &str| memchr::memmem::find(body, needle.as_bytes()).is_some();
    let chars = stripped_len(body);
    let captcha = CAPTCHA.iter().find(|k| contains(k));
    let refused = matches!(page.status, 403 | 429);
    let framework = FRAMEWORKS
        .iter()
        .find(|(_, patterns)| {
            chars < CONTENT_CHARS as usize && patterns.iter().any(|p| contains(p))
        })
        .map(|(name, _)| Arc::from(*name));
    Verdict {
        is_blocked: captcha.is_some() || refused,
        block_type: match (captcha, refused) {
            (Some(_), _) => Some(BlockKind::Challenge),
            (None, true) => Some(BlockKind::Refusal),
            _ => None,
        },
        rule: captcha.map(|k| Arc::from(format!("keyword:{k}"))),
        has_spa: framework.is_some(),
        framework,
        is_empty: chars < CONTENT_CHARS as usize,
        is_html: true,
        text_chars: u32::try_from(chars).unwrap_or(u32::MAX),
        text_complete: true,
        bytes: u32::try_from(body.len()).unwrap_or(u32::MAX),
        ..Verdict::default()
    }
}

/// Returns the number of bytes without scripts and styles.
fn stripped_len(body: &[u8]) -> usize {
    let mut left = 0;
    let mut rest = body;
    while let Some((at, end_tag)) = next_element(rest) {
        left += at;
        let inner = &rest[at..];
        let end = find_ignoring_case(inner, end_tag).map_or(inner.len(), |n| n + end_tag.len());
        rest = &inner[end..];
    }
    left + rest.trim_ascii().len()
}

fn next_element(bytes: &[u8]) -> Option<(usize, &'static [u8])> {
    let script = find_ignoring_case(bytes, b"<script").map(|at| (at, &b"</script>"[..]));
    let style = find_ignoring_case(bytes, b"<style").map(|at| (at, &b"</style>"[..]));
    [script, style].into_iter().flatten().min_by_key(|(at, _)| *at)
}

fn find_ignoring_case(bytes: &[u8], lower: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(n) = memchr::memchr(b'<', &bytes[from..]) {
        let at = from + n;
        if bytes[at..].get(..lower.len()).is_some_and(|b| b.eq_ignore_ascii_case(lower)) {
            return Some(at);
        }
        from = at + 1;
    }
    None
}
