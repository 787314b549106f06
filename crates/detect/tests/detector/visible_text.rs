//! Visible text compared with a real HTML parser: `html5ever` builds the tree, a walk over the tree
//! counts the visible text, and the detector's streaming count must be close to it.
//!
//! Tolerance: the counts are equal on pages of well-formed elements. On real pages they may differ
//! by 2 % or 30 characters for 99 % of the pages, and never by more than 20 %. The detector keeps
//! no tree, so markup that is closed in the wrong order hides or shows a little more or less.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use fetchwise_detect::{Detector, DetectorOptions, Scratch};
use fetchwise_types::response::{Header, Page};
use html5ever::tendril::TendrilSink;
use html5ever::{ParseOpts, parse_document};
use markup5ever_rcdom::{Handle, NodeData, RcDom};
use proptest::prelude::*;

use crate::html_files::html_files;

const UNSEEN: [&str; 12] = [
    "script", "style", "noscript", "template", "svg", "math", "title", "textarea", "iframe",
    "noembed", "noframes", "head",
];
const INLINE: [&str; 26] = [
    "a", "b", "i", "u", "s", "em", "strong", "span", "font", "small", "code", "tt", "big", "sub",
    "sup", "abbr", "mark", "bdi", "bdo", "wbr", "kbd", "var", "time", "label", "script", "style",
];

/// Text as it is counted: white space collapsed, with a gap between blocks.
#[derive(Default)]
struct CollapsedText {
    chars: usize,
    space: bool,
}

impl CollapsedText {
    fn text(&mut self, text: &str) {
        for c in text.chars() {
            // Characters that no browser shows count as white space.
            if c.is_whitespace() || ('\u{200B}'..='\u{200D}').contains(&c) || c == '\u{FEFF}' {
                self.space = true;
            } else {
                self.chars += 1 + usize::from(self.space && self.chars > 0);
                self.space = false;
            }
        }
    }
}

fn hides(name: &str, value: &str) -> bool {
    let declares = |property: &str, wanted: &str| {
        value.split(';').filter_map(|d| d.split_once(':')).any(|(p, v)| {
            p.trim().eq_ignore_ascii_case(property)
                && v.trim_start().to_ascii_lowercase().starts_with(wanted)
        })
    };
    name == "hidden"
        || (name == "style" && (declares("display", "none") || declares("visibility", "hidden")))
}

/// Counts the visible text below `node`, with an explicit stack: pages may be nested deeper than a
/// thread's stack allows.
fn walk(root: &Handle, text: &mut CollapsedText) {
    enum Step {
        Enter(Handle),
        Break,
    }
    let mut stack = vec![Step::Enter(root.clone())];
    while let Some(step) = stack.pop() {
        let Step::Enter(node) = step else {
            text.space = true;
            continue;
        };
        let mut children: Vec<Handle> = node.children.borrow().clone();
        let mut is_block = false;
        match &node.data {
            NodeData::Text { contents } => text.text(&contents.borrow()),
            NodeData::Element { name, attrs, template_contents, .. } => {
                let name = &*name.local;
                let attrs = attrs.borrow();
                let shadow =
                    name == "template" && attrs.iter().any(|a| &*a.name.local == "shadowrootmode");
                if let Some(contents) = &*template_contents.borrow()
                    && shadow
                {
                    children = contents.children.borrow().clone();
                }
                let whole = matches!(name, "html" | "body");
                is_block = !INLINE.contains(&name);
                let hidden = !whole && attrs.iter().any(|a| hides(&a.name.local, &a.value));
                if (UNSEEN.contains(&name) && !shadow) || hidden {
                    children.clear();
                }
            }
            _ => {}
        }
        if is_block {
            text.space = true;
            stack.push(Step::Break);
        }
        stack.extend(children.into_iter().rev().map(Step::Enter));
    }
}

/// Counts visible characters with the parser.
fn by_tree(html: &str) -> usize {
    let dom = parse_document(RcDom::default(), ParseOpts::default()).one(html);
    let mut text = CollapsedText::default();
    walk(&dom.document, &mut text);
    text.chars
}

/// Counts visible characters with the detector.
fn by_stream(html: &str) -> usize {
    static COUNTING: LazyLock<Detector> = LazyLock::new(|| {
        Detector::new()
            .with_options(DetectorOptions::default().with_max_bytes(64 << 20).counting_all())
    });
    let headers = [Header::new("Content-Type", "text/html; charset=utf-8")];
    let page = Page { status: 200, headers: &headers, body: html.as_bytes(), ..Page::default() };
    COUNTING.inspect(&page, &mut Scratch::default()).text_chars as usize
}

/// Compares the counts on real pages.
fn compare(files: &[PathBuf]) {
    let mut off = Vec::new();
    let (mut pages, mut chars) = (0usize, 0usize);
    for path in files {
        // The parser would read pages in other charsets wrongly.
        let Ok(html) = String::from_utf8(std::fs::read(path).unwrap()) else { continue };
        let (tree, stream) = (by_tree(&html), by_stream(&html));
        pages += 1;
        chars += tree;
        let apart = tree.abs_diff(stream);
        if apart * 50 > tree.max(stream) && apart > 30 {
            off.push((apart as f64 / tree.max(stream) as f64, path, tree, stream));
        }
    }
    println!("{pages} pages with {chars} visible characters; {} outside the tolerance", off.len());
    for (share, path, tree, stream) in &off {
        println!(
            "{}: {tree} by the tree, {stream} by the stream ({:.1} %)",
            path.display(),
            share * 100.0
        );
    }
    assert!(off.len() * 100 <= pages, "{} of {pages} pages are more than 2 % apart", off.len());
    assert!(off.iter().all(|(share, ..)| *share <= 0.2), "a page is more than 20 % apart");
}

#[test]
fn text_of_the_rust_documentation_is_counted_like_a_parser_does() {
    let sysroot = std::process::Command::new("rustc").args(["--print", "sysroot"]).output();
    let root = sysroot
        .map(|o| PathBuf::from(String::from_utf8_lossy(&o.stdout).trim()))
        .unwrap_or_default();
    let mut files = Vec::new();
    html_files(&root.join("share/doc/rust/html"), &mut files);
    if files.is_empty() {
        println!("skipped: the Rust documentation is not installed");
        return;
    }
    files.sort();
    // Smaller pages, spread over all of them: the tree is slow in a debug build.
    files.retain(|f| f.metadata().is_ok_and(|m| m.len() < 150_000));
    let step = files.len().div_ceil(if cfg!(debug_assertions) { 150 } else { 3_000 });
    compare(&files.into_iter().step_by(step).collect::<Vec<_>>());
}

#[test]
fn text_of_the_corpus_is_counted_like_a_parser_does() {
    let Some(corpus) = std::env::var_os("FETCHWISE_CORPUS") else {
        println!("skipped: FETCHWISE_CORPUS does not point to a corpus.jsonl");
        return;
    };
    let mut files = Vec::new();
    html_files(&Path::new(&corpus).parent().unwrap().join("pages"), &mut files);
    files.sort();
    if cfg!(debug_assertions) {
        files.retain(|f| f.metadata().is_ok_and(|m| m.len() < 200_000));
    }
    compare(&files);
}

/// Returns a well-formed element, or text.
fn node() -> impl Strategy<Value = String> {
    let text = prop::sample::select(vec![
        "word",
        "two words",
        " ",
        "\n  ",
        "&amp;",
        "a&nbsp;b",
        "&#233;t&eacute;",
        "日本語",
        "x < y",
        "5 > 4",
        "\u{A0}",
        "é",
    ]);
    let leaf = prop_oneof![
        4 => text.prop_map(str::to_owned),
        1 => prop::sample::select(vec![
            "<br>", "<img alt=\"a > b\">", "<input type=hidden value='</p>'>", "<hr>", "<wbr>", "<!-- <p>no</p> -->",
            "<script>if (a < b) { '<p>no</p>' }</script>", "<style>p { color: red }</style>",
            "<textarea><p>no</p></textarea>", "<noscript><p>no</p></noscript>", "<template><p>no</p></template>",
            "<svg><title>no</title><text>no</text></svg>", "<iframe><p>no</p></iframe>", "<p hidden>no</p>",
            "<div style=\"color: red; display : none\"><p>no</p><div>no</div></div>",
            "<span style='visibility:hidden'>no</span>",
            "<div><template shadowrootmode=\"open\"><p>in the shadow</p></template>next to it</div>",
        ]).prop_map(str::to_owned),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        // Only elements that may contain any other element, so that the parser moves none.
        let element = prop::sample::select(vec![
            "div",
            "section",
            "article",
            "span",
            "ins",
            "main",
            "blockquote",
        ]);
        let attrs = prop::sample::select(vec![
            "",
            " class=\"a > b\"",
            " data-x='\"'",
            " id=x title=\"hidden\"",
            " lang=en",
        ]);
        (element, attrs, prop::collection::vec(inner, 0..6)).prop_map(|(name, attrs, children)| {
            format!("<{name}{attrs}>{}</{name}>", children.concat())
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4 * ProptestConfig::default().cases, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn text_of_well_formed_pages_is_counted_exactly(nodes in prop::collection::vec(node(), 0..12)) {
        let html = format!("<!DOCTYPE html><html><head><title>no</title></head><body>{}</body></html>", nodes.concat());
        prop_assert_eq!(by_stream(&html), by_tree(&html), "{}", html);
    }
}

#[test]
fn the_tree_counts_visible_text() {
    let cases = [
        ("<p>one</p><p>two</p>", 7),
        ("<b>o</b><i>ne</i>", 3),
        ("<title>no</title><p hidden>no</p><svg><text>no</text></svg>yes", 3),
        ("<ul><li hidden>no<li>yes</ul>", 3),
        ("<div><template shadowrootmode=open>yes</template></div><template>no</template>", 3),
    ];
    for (html, want) in cases {
        assert_eq!((by_tree(html), by_stream(html)), (want, want), "{html}");
    }
}

#[test]
fn a_script_in_a_comment_of_a_script_does_not_end_it() {
    let read = |body: &str| {
        let headers = [Header::new("Content-Type", "text/html")];
        let page =
            Page { status: 200, headers: &headers, body: body.as_bytes(), ..Page::default() };
        Detector::new().inspect(&page, &mut Scratch::default()).text_chars
    };
    for (script, chars) in [
        ("var a = '<!-- <script>'; b = '</script> still a script'; c = '-->';", 4),
        ("<!-- x = '<script src=y></script>'; z = 1 //-->", 4),
        ("<!-- hidden from old browsers //-->", 4),
        ("if (a <!--b) {}", 4),
        ("<!--> '<script>'", 4),
    ] {
        assert_eq!(
            read(&format!("<body><script>{script}</script><p>Text</p></body>")),
            chars,
            "{script}"
        );
    }
}

#[test]
fn long_styles_do_not_hide_the_text_behind_them() {
    let headers = [Header::new("Content-Type", "text/html")];
    let style = ".a{color:red}".repeat(100_000);
    let text = "The museum is open from nine to five, and the garden until dusk. ".repeat(10);
    let body = format!(
        "<html><head><title>Museum</title><style>{style}</style></head><body><p>{text}</p></body></html>"
    );
    let page = Page { status: 200, headers: &headers, body: body.as_bytes(), ..Page::default() };
    let verdict = Detector::new().inspect(&page, &mut Scratch::default());
    assert!(verdict.is_content() && verdict.text_chars > 600, "{verdict:?}");
    let body = body.replace(&text, "Your access has been denied. Your IP address is blocked.");
    let page = Page { status: 200, headers: &headers, body: body.as_bytes(), ..Page::default() };
    assert!(Detector::new().inspect(&page, &mut Scratch::default()).is_blocked);
}
