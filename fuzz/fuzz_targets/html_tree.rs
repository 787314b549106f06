//! HTML built from elements with correct and broken end tags: the streaming reader counts visible
//! and noscript text like the slow one, and stopping early changes no decision.
#![no_main]

use std::cell::RefCell;
use std::sync::LazyLock;

use fetchwise::detect::{Detector, DetectorOptions, Scratch};
use fetchwise::response::{Header, Page};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/detect/tests/detector/naive_html.rs"]
mod naive_html;

static DETECTOR: LazyLock<Detector> = LazyLock::new(Detector::new);
static COUNTING: LazyLock<Detector> =
    LazyLock::new(|| Detector::new().with_options(DetectorOptions::default().counting_all()));

thread_local! {
    static USED: RefCell<Scratch> = RefCell::default();
}

/// A part of a page.
#[derive(Arbitrary, Debug)]
enum Node {
    Text(String),
    /// One of [`TEXTS`].
    Known(u8),
    Element {
        name: u8,
        attributes: Vec<Attribute>,
        children: Vec<Node>,
        end: End,
    },
    Comment {
        text: String,
        end: u8,
    },
    /// An element whose content is not markup, with any content.
    Raw {
        name: u8,
        attributes: Vec<Attribute>,
        content: String,
        end: End,
    },
    /// A closing tag.
    Close(u8),
}

#[derive(Arbitrary, Debug)]
struct Attribute {
    name: u8,
    value: String,
    quote: u8,
}

#[derive(Arbitrary, Debug)]
enum End {
    /// `</name>`.
    Proper,
    /// No tag at all.
    Missing,
    /// `<name/>`, without children.
    Slash,
    /// `</NAME attribute="x">`.
    Odd,
}

const NAMES: [&str; 40] = [
    "div",
    "p",
    "span",
    "a",
    "b",
    "ul",
    "li",
    "ol",
    "table",
    "tr",
    "td",
    "th",
    "section",
    "main",
    "h1",
    "form",
    "input",
    "br",
    "img",
    "svg",
    "math",
    "noscript",
    "template",
    "body",
    "head",
    "html",
    "dl",
    "dt",
    "dd",
    "select",
    "option",
    "my-element",
    "blockquote",
    "meta",
    "link",
    "em",
    "figure",
    "tbody",
    "label",
    "code",
];
const RAW: [&str; 9] =
    ["script", "style", "title", "textarea", "iframe", "noembed", "noframes", "xmp", "plaintext"];
const ATTRIBUTES: [&str; 12] = [
    "id",
    "class",
    "hidden",
    "style",
    "href",
    "type",
    "content",
    "name",
    "data-x",
    "shadowrootmode",
    "aria-hidden",
    "http-equiv",
];
const TEXTS: [&str; 16] = [
    "word",
    " ",
    "\n\t",
    "&amp;",
    "&nbsp;",
    "&#x41;",
    "&unknown;",
    "é",
    "\u{A0}",
    "日本語",
    "<",
    "< b",
    "]]>",
    "<![CDATA[x]]>",
    "verify you are human",
    "display:none",
];

fn pick<'a>(list: &[&'a str], at: u8) -> &'a str {
    list[usize::from(at) % list.len()]
}

fn open(name: &str, attributes: &[Attribute], slash: bool, out: &mut String) {
    out.push('<');
    out.push_str(name);
    for attribute in attributes.iter().take(6) {
        out.push(' ');
        out.push_str(pick(&ATTRIBUTES, attribute.name));
        match attribute.quote % 6 {
            0 => {}
            1 => *out += &format!("=\"{}\"", attribute.value.replace('"', "")),
            2 => *out += &format!(" = '{}'", attribute.value.replace('\'', "")),
            3 => out.push_str("=\"display: none\""),
            4 => out.push_str("='a > b'"),
            _ => *out += &format!("={}", attribute.value),
        }
    }
    out.push_str(if slash { "/>" } else { ">" });
}

fn write(node: &Node, depth: usize, out: &mut String) {
    if out.len() > 1 << 16 {
        return;
    }
    match node {
        Node::Text(text) => out.push_str(text),
        Node::Known(at) => out.push_str(pick(&TEXTS, *at)),
        Node::Element { name, attributes, children, end } => {
            let name = pick(&NAMES, *name);
            open(name, attributes, matches!(end, End::Slash), out);
            if depth < 40 && !matches!(end, End::Slash) {
                children.iter().for_each(|child| write(child, depth + 1, out));
            }
            close(name, end, out);
        }
        Node::Comment { text, end } => {
            *out += &format!("<!--{text}{}", ["-->", "--!>", ">", "->", ""][usize::from(*end) % 5]);
        }
        Node::Raw { name, attributes, content, end } => {
            let name = pick(&RAW, *name);
            open(name, attributes, matches!(end, End::Slash), out);
            out.push_str(content);
            close(name, end, out);
        }
        Node::Close(name) => close(pick(&NAMES, *name), &End::Proper, out),
    }
}

fn close(name: &str, end: &End, out: &mut String) {
    match end {
        End::Proper => *out += &format!("</{name}>"),
        End::Odd => *out += &format!("</{} x=\">\">", name.to_uppercase()),
        End::Missing | End::Slash => {}
    }
}

fuzz_target!(|input: (u16, Vec<Node>)| {
    let (status, nodes) = input;
    // The body tag makes the detector treat the page as HTML.
    let mut html = String::from("<body>");
    nodes.iter().for_each(|node| write(node, 0, &mut html));
    let headers = [Header::new("Content-Type", "text/html; charset=utf-8")];
    let page =
        Page { status: status % 1000, headers: &headers, body: html.as_bytes(), ..Page::default() };

    let early = USED.with_borrow_mut(|scratch| DETECTOR.inspect(&page, scratch));
    let all = USED.with_borrow_mut(|scratch| COUNTING.inspect(&page, scratch));
    if all.is_undecoded {
        // As many control characters as compressed bytes have: no text of it is counted.
        assert!(html.bytes().any(|byte| byte.is_ascii_control()), "{html:?}");
        assert_eq!((all.text_chars, early.is_undecoded), (0, true), "{html:?}");
        return;
    }
    let want = naive_html::slow(&html);
    // Without visible text, what noscript or a hidden element has for a reader counts.
    if want.visible > 0 || all.noscript_chars < 400 {
        assert_eq!(all.text_chars as usize, want.visible, "visible: {html:?}");
    }
    assert_eq!(all.noscript_chars as usize, want.noscript, "noscript: {html:?}");
    let decision = |v: &fetchwise::detect::Verdict| {
        (
            v.is_blocked,
            v.is_queued,
            v.has_spa,
            v.is_empty,
            v.rule.clone(),
            v.vendor.clone(),
            v.has_paywall,
            v.soft_404,
        )
    };
    assert_eq!(decision(&early), decision(&all), "stopping early: {html:?}");
    assert!(early.text_chars <= all.text_chars);
});
