//! The pages that the detector is measured with, and the two HTML parsers beside it. Shared by the `detect` bench and the
//! report. Must not know what is measured of them.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};

use html5ever::tendril::StrTendril;
use html5ever::tokenizer::{BufferQueue, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts};
use lol_html::{HtmlRewriter, Settings, doc_text, element};

/// Markers that a bare scan looks for: a few of the table's, the way a scan without a tokeniser would.
pub(crate) const MARKERS: &[&str] = &[
    "_cf_chl_opt",
    "captcha-delivery.com",
    "px-captcha",
    "_Incapsula_Resource",
    "errors.edgesuite.net",
    "gokuProps",
    "KPSDK",
    "sucuri_cloudproxy_js",
    "ddos-guard",
    "anubis_challenge",
    "sgcaptcha",
    "istlWasHere",
    "_fs-ch-",
    "rbzns",
    "qrator",
    "validateCaptcha",
    "g-recaptcha",
    "h-captcha",
    "__NEXT_DATA__",
    "__NUXT__",
    "id=\"root\"",
    "id=\"app\"",
];

fn html_files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            html_files(&path, out);
        } else if path.extension().is_some_and(|e| e == "html") {
            out.push(path);
        }
    }
}

fn documentation() -> Vec<Vec<u8>> {
    let sysroot = std::process::Command::new("rustc").args(["--print", "sysroot"]).output();
    let root = sysroot.map(|o| PathBuf::from(String::from_utf8_lossy(&o.stdout).trim())).unwrap_or_default();
    let mut files = Vec::new();
    html_files(&root.join("share/doc/rust/html/std"), &mut files);
    files.sort();
    files.iter().step_by(23).filter_map(|f| std::fs::read(f).ok()).collect()
}

/// The sets of pages, by name. `FETCHWISE_CORPUS` adds the pages of a corpus.
pub(crate) fn sets() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let documentation = documentation();
    let between = |low: usize, high: usize, most: usize| -> Vec<Vec<u8>> {
        documentation.iter().filter(|b| (low..high).contains(&b.len())).take(most).cloned().collect()
    };
    let five = documentation.iter().cycle().take(4_000).scan(0, |sum, b| {
        *sum += b.len();
        (*sum < 5_000_000).then(|| b.clone())
    });
    let repeat = |unit: &str| vec![unit.repeat((1 << 20) / unit.len()).into_bytes()];
    let mut sets = vec![
        ("ordinary", between(20_000, 120_000, 60)),
        ("small", between(2_000, 20_000, 100)),
        ("tiny", between(0, 2_000, 100)),
        ("40 KB", between(36_000, 44_000, 1)),
        ("5 MB", vec![five.flatten().collect()]),
        ("adv: a million <", repeat("<")),
        ("adv: < and a blank", repeat("< ")),
        ("adv: tags", repeat("<a>")),
        ("adv: nested comments", repeat("<!-- <!-- ")),
        ("adv: comments that never end", repeat("<!-- > ")),
        ("adv: unclosed quotes", repeat("<a x=\"")),
        ("adv: stray quotes", repeat("<a \" ")),
        ("adv: entities", repeat("&amp;")),
        ("adv: hidden", repeat("<p style='display:none'>a")),
        ("adv: display:none", repeat("display:none ")),
        ("adv: empty scripts", repeat("<script></script>")),
        ("adv: meta", repeat("<meta name=a content=b>")),
        ("adv: text areas", repeat("<textarea></textarea>")),
        ("adv: weak markers", repeat("<div class=\"g-recaptcha\"></div>")),
        ("adv: parts of markers", repeat("<i grecaptcha.>")),
    ];
    if let Some(corpus) = std::env::var_os("FETCHWISE_CORPUS") {
        let mut files = Vec::new();
        html_files(&Path::new(&corpus).parent().unwrap().join("pages"), &mut files);
        files.sort();
        for (name, kind) in [
            ("corpus: ordinary", "ordinary"),
            ("corpus: ssr", "ssr"),
            ("corpus: shells", "spa"),
            ("corpus: blocks", "block"),
        ] {
            let is = |f: &&PathBuf| f.file_name().unwrap().to_string_lossy().starts_with(kind);
            sets.push((name, files.iter().filter(is).map(|f| std::fs::read(f).unwrap()).collect()));
        }
    }
    sets.retain(|(_, pages)| pages.iter().any(|p| !p.is_empty()));
    sets
}

/// The first MiB: what the detector looks at. The parsers get no more.
pub(crate) fn head(page: &[u8]) -> &[u8] {
    &page[..page.len().min(1 << 20)]
}

/// Visible characters and links by `lol_html`.
pub(crate) fn with_lol_html(page: &[u8]) -> (usize, usize) {
    let chars = Cell::new(0);
    let links = Cell::new(0);
    let settings = Settings::new()
        .append_element_content_handler(element!("a", |_| {
            links.set(links.get() + 1);
            Ok(())
        }))
        .append_document_content_handler(doc_text!(|text| {
            if matches!(text.text_type(), lol_html::html_content::TextType::Data) {
                chars.set(chars.get() + text.as_str().chars().filter(|c| !c.is_whitespace()).count());
            }
            Ok(())
        }));
    let mut rewriter = HtmlRewriter::new(settings, |_: &[u8]| {});
    let _ = rewriter.write(head(page)).and_then(|()| rewriter.end());
    (chars.get(), links.get())
}

#[derive(Default)]
struct Sink {
    chars: Cell<usize>,
    links: Cell<usize>,
    skip: RefCell<Option<String>>,
}

impl TokenSink for Sink {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        match token {
            Token::CharacterTokens(text) if self.skip.borrow().is_none() => {
                self.chars.set(self.chars.get() + text.chars().filter(|c| !c.is_whitespace()).count());
            }
            Token::TagToken(tag) => {
                use html5ever::tokenizer::TagKind::{EndTag, StartTag};
                match (tag.kind, &*tag.name) {
                    (StartTag, "a") => self.links.set(self.links.get() + 1),
                    (StartTag, "script") => {
                        *self.skip.borrow_mut() = Some("script".to_owned());
                        return TokenSinkResult::RawData(html5ever::tokenizer::states::RawKind::ScriptData);
                    }
                    (StartTag, "style") => {
                        *self.skip.borrow_mut() = Some("style".to_owned());
                        return TokenSinkResult::RawData(html5ever::tokenizer::states::RawKind::Rawtext);
                    }
                    (EndTag, _) => *self.skip.borrow_mut() = None,
                    _ => {}
                }
            }
            _ => {}
        }
        TokenSinkResult::Continue
    }
}

/// The same by the tokeniser of `html5ever`, without its tree.
pub(crate) fn with_html5ever(page: &[u8]) -> (usize, usize) {
    let text = String::from_utf8_lossy(head(page));
    let queue = BufferQueue::default();
    queue.push_back(StrTendril::from_slice(&text));
    let tokenizer = Tokenizer::new(Sink::default(), TokenizerOpts::default());
    let _ = tokenizer.feed(&queue);
    tokenizer.end();
    (tokenizer.sink.chars.get(), tokenizer.sink.links.get())
}
