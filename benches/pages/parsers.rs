//! The two HTML parsers that the detector is compared with, and the search for markers that follows
//! them.
//!
//! They collect the facts behind a verdict: visible and noscript text, counted and its beginning
//! kept, the title, links, fields, pictures, frames, scripts and their bytes, refreshes, empty
//! elements with an id. Then they search for the markers and sentences of the shipped rules: on a
//! page with much text only those that are significant there, else all. They do not weigh markers
//! or check their positions, so they do a little less than the whole job.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use fetchwise::detect::Detector;
use html5ever::LocalName;
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{
    BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
};
use lol_html::html_content::{Element, TextType};
use lol_html::{EndTagHandler, HandlerResult, HtmlRewriter, Settings, doc_text, element, text};

use super::head;

/// The markers and sentences of the shipped rules in an Aho-Corasick automaton: the part before any
/// wildcard.
pub(crate) struct Markers {
    /// For every page: those of rules that apply despite much text.
    pub(crate) early: AhoCorasick,
    /// For pages with little text.
    late: AhoCorasick,
    sentences: AhoCorasick,
}

impl Markers {
    /// The number of visible characters up to which a page has little text.
    pub(crate) const LITTLE: usize = 1_500;

    pub(crate) fn new() -> Self {
        let rules: toml::Table = Detector::shipped_rules().parse().unwrap();
        let (mut early, mut late, mut sentences) = (Vec::new(), Vec::new(), Vec::new());
        for rule in rules["rule"].as_array().unwrap() {
            let strings =
                |key: &str| rule.get(key).and_then(|v| v.as_array()).cloned().unwrap_or_default();
            let literal =
                |v: &toml::Value| v.as_str().unwrap().split('{').next().unwrap().to_lowercase();
            let also = strings("also");
            let also = also.iter().flat_map(|group| group.as_array().unwrap().clone());
            let find = strings("find").into_iter().chain(also);
            let chars =
                rule.get("max_visible_chars").and_then(toml::Value::as_integer).unwrap_or(0);
            let holds_beside_much =
                chars > 1_500 || matches!(rule["grade"].as_str(), Some("presence" | "paywall"));
            let set = if holds_beside_much { &mut early } else { &mut late };
            set.extend(find.map(|v| literal(&v)));
            sentences.extend(strings("text").iter().map(literal));
        }
        late.extend(early.iter().cloned());
        let build = |patterns: &[String]| {
            let kind = Some(AhoCorasickKind::DFA);
            AhoCorasick::builder().ascii_case_insensitive(true).kind(kind).build(patterns).unwrap()
        };
        Self { early: build(&early), late: build(&late), sentences: build(&sentences) }
    }

    /// Searches a parsed page for markers.
    pub(crate) fn search(&self, page: &[u8], facts: &PageFacts) -> usize {
        if facts.visible.chars > Self::LITTLE {
            return self.early.find_iter(head(page)).count();
        }
        self.late.find_iter(head(page)).count()
            + [&facts.visible, &facts.noscript]
                .map(|t| self.sentences.find_iter(&t.kept).count())
                .iter()
                .sum::<usize>()
    }
}

/// Counted text with collapsed white space, and its beginning.
#[derive(Default)]
pub(crate) struct Text {
    pub(crate) chars: usize,
    space: bool,
    kept: String,
}

impl Text {
    fn push(&mut self, text: &str) {
        for c in text.chars() {
            if c.is_whitespace() {
                self.space = true;
                continue;
            }
            let space = std::mem::take(&mut self.space) && self.chars > 0;
            self.chars += 1 + usize::from(space);
            if self.chars <= Markers::LITTLE {
                self.kept.extend(space.then_some(' '));
                self.kept.push(c.to_ascii_lowercase());
            }
        }
    }
}

/// The facts behind a verdict, besides markers.
#[derive(Default)]
pub(crate) struct PageFacts {
    pub(crate) visible: Text,
    noscript: Text,
    pub(crate) title: String,
    pub(crate) links: usize,
    images: usize,
    inputs: usize,
    frames: usize,
    scripts: usize,
    script_bytes: usize,
    /// Empty elements with an id.
    mounts: usize,
    mount: bool,
    password: bool,
    noindex: bool,
    refresh: Option<String>,
}

impl PageFacts {
    fn meta(&mut self, attribute: impl Fn(&str) -> Option<String>) {
        let is = |name, value: &str| attribute(name).is_some_and(|v| v.eq_ignore_ascii_case(value));
        if is("http-equiv", "refresh") {
            self.refresh = attribute("content");
        } else if is("name", "robots") {
            self.noindex |= attribute("content").is_some_and(|v| v.contains("noindex"));
        }
    }

    fn input(&mut self, kind: Option<&str>) {
        self.inputs += usize::from(kind != Some("hidden"));
        self.password |= kind == Some("password");
    }
}

fn hides(style: &str) -> bool {
    style.split(';').filter_map(|d| d.split_once(':')).any(|(name, value)| {
        matches!((name.trim(), value.trim()), ("display", v) if v.starts_with("none"))
            || matches!((name.trim(), value.trim()), ("visibility", v) if v.starts_with("hidden"))
    })
}

/// Returns those facts by `lol_html`.
pub(crate) fn with_lol_html(page: &[u8]) -> PageFacts {
    let facts = Rc::new(RefCell::new(PageFacts::default()));
    let skipped = Rc::new(Cell::new(0usize));
    let skip = |el: &mut Element<'_, '_>| -> HandlerResult {
        if let Some(ends) = el.end_tag_handlers() {
            skipped.set(skipped.get() + 1);
            let skipped = Rc::clone(&skipped);
            ends.push(Box::new(move |_| {
                skipped.set(skipped.get().saturating_sub(1));
                Ok(())
            }));
        }
        Ok(())
    };
    let count = |of: fn(&mut PageFacts) -> &mut usize| {
        let facts = &facts;
        move |_: &mut Element<'_, '_>| -> HandlerResult {
            *of(&mut facts.borrow_mut()) += 1;
            Ok(())
        }
    };
    let settings = Settings::new()
        .append_element_content_handler(element!("*", |_| {
            facts.borrow_mut().mount = false;
            Ok(())
        }))
        .append_element_content_handler(element!("div[id], main[id], section[id]", |el| {
            facts.borrow_mut().mount = true;
            if let Some(ends) = el.end_tag_handlers() {
                let facts = Rc::clone(&facts);
                let end: EndTagHandler<'static> = Box::new(move |_| {
                    let facts = &mut *facts.borrow_mut();
                    facts.mounts += usize::from(std::mem::take(&mut facts.mount));
                    Ok(())
                });
                ends.push(end);
            }
            Ok(())
        }))
        .append_element_content_handler(element!("template, svg, math, [hidden]", skip))
        .append_element_content_handler(element!("[style]", |el| {
            if el.get_attribute("style").is_some_and(|style| hides(&style)) {
                skip(el)
            } else {
                Ok(())
            }
        }))
        .append_element_content_handler(element!("a", count(|f| &mut f.links)))
        .append_element_content_handler(element!("img", count(|f| &mut f.images)))
        .append_element_content_handler(element!("script", count(|f| &mut f.scripts)))
        .append_element_content_handler(element!("select, textarea", count(|f| &mut f.inputs)))
        .append_element_content_handler(element!(
            "iframe, frame, object, embed, video, audio",
            count(|f| &mut f.frames)
        ))
        .append_element_content_handler(element!("input", |el| {
            facts.borrow_mut().input(el.get_attribute("type").as_deref());
            Ok(())
        }))
        .append_element_content_handler(element!("meta", |el| {
            facts.borrow_mut().meta(|name| el.get_attribute(name));
            Ok(())
        }))
        .append_element_content_handler(text!("title", |text| {
            facts.borrow_mut().title.push_str(text.as_str());
            Ok(())
        }))
        .append_element_content_handler(text!("noscript", |text| {
            facts.borrow_mut().noscript.push(text.as_str());
            Ok(())
        }))
        .append_document_content_handler(doc_text!(|text| {
            let facts = &mut *facts.borrow_mut();
            match text.text_type() {
                TextType::Data if skipped.get() == 0 => {
                    facts.mount &= text.as_str().trim_ascii().is_empty();
                    facts.visible.push(text.as_str());
                }
                TextType::ScriptData => facts.script_bytes += text.as_str().len(),
                _ => {}
            }
            Ok(())
        }));
    let mut rewriter = HtmlRewriter::new(settings, |_: &[u8]| {});
    let _ = rewriter.write(head(page)).and_then(|()| rewriter.end());
    facts.take()
}

/// A token sink that collects the same facts, one skipped element at a time.
#[derive(Default)]
struct Sink {
    facts: RefCell<PageFacts>,
    raw: Cell<Option<RawElement>>,
    skip: RefCell<Option<(LocalName, usize)>>,
}

#[derive(Clone, Copy, PartialEq)]
enum RawElement {
    Script,
    Title,
    Other,
}

impl Sink {
    fn open(&self, tag: &Tag) -> TokenSinkResult<()> {
        let facts = &mut *self.facts.borrow_mut();
        let attribute =
            |name: &str| tag.attrs.iter().find(|a| &*a.name.local == name).map(|a| &*a.value);
        let name = &*tag.name;
        facts.mount = matches!(name, "div" | "main" | "section") && attribute("id").is_some();
        let mut skip = self.skip.borrow_mut();
        match &mut *skip {
            Some((skipped, depth)) => *depth += usize::from(*skipped == tag.name),
            None if matches!(name, "noscript" | "template" | "svg" | "math")
                || attribute("hidden").is_some()
                || attribute("style").is_some_and(hides) =>
            {
                *skip = Some((tag.name.clone(), 1));
            }
            None => {}
        }
        let raw = match name {
            "a" => return count(&mut facts.links),
            "img" => return count(&mut facts.images),
            "select" => return count(&mut facts.inputs),
            "frame" | "object" | "embed" | "video" | "audio" => return count(&mut facts.frames),
            "input" => {
                facts.input(attribute("type"));
                return TokenSinkResult::Continue;
            }
            "meta" => {
                facts.meta(|name| attribute(name).map(str::to_owned));
                return TokenSinkResult::Continue;
            }
            "script" => {
                facts.scripts += 1;
                (RawElement::Script, RawKind::ScriptData)
            }
            "title" => (RawElement::Title, RawKind::Rcdata),
            "textarea" => {
                facts.inputs += 1;
                (RawElement::Other, RawKind::Rcdata)
            }
            "style" | "xmp" | "noembed" | "noframes" => (RawElement::Other, RawKind::Rawtext),
            "iframe" => {
                facts.frames += 1;
                (RawElement::Other, RawKind::Rawtext)
            }
            _ => return TokenSinkResult::Continue,
        };
        self.raw.set(Some(raw.0));
        TokenSinkResult::RawData(raw.1)
    }

    fn close(&self, tag: &Tag) {
        let facts = &mut *self.facts.borrow_mut();
        facts.mounts += usize::from(std::mem::take(&mut facts.mount));
        self.raw.set(None);
        let mut skip = self.skip.borrow_mut();
        if let Some((skipped, depth)) = &mut *skip
            && *skipped == tag.name
        {
            *depth -= 1;
            if *depth == 0 {
                *skip = None;
            }
        }
    }

    fn text(&self, text: &str) {
        let facts = &mut *self.facts.borrow_mut();
        match (self.raw.get(), &*self.skip.borrow()) {
            (Some(RawElement::Script), _) => facts.script_bytes += text.len(),
            (Some(RawElement::Title), _) => facts.title.push_str(text),
            (Some(RawElement::Other), _) => {}
            (None, None) => {
                facts.mount &= text.trim_ascii().is_empty();
                facts.visible.push(text);
            }
            (None, Some((name, _))) if &**name == "noscript" => facts.noscript.push(text),
            (None, Some(_)) => {}
        }
    }
}

fn count(what: &mut usize) -> TokenSinkResult<()> {
    *what += 1;
    TokenSinkResult::Continue
}

impl TokenSink for Sink {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        match token {
            Token::CharacterTokens(text) => self.text(&text),
            Token::TagToken(tag) if tag.kind == TagKind::StartTag => return self.open(&tag),
            Token::TagToken(tag) => self.close(&tag),
            _ => {}
        }
        TokenSinkResult::Continue
    }
}

/// Returns the same facts by the tokeniser of `html5ever`, without its tree.
pub(crate) fn with_html5ever(page: &[u8]) -> PageFacts {
    let text = String::from_utf8_lossy(head(page));
    let queue = BufferQueue::default();
    queue.push_back(StrTendril::from_slice(&text));
    let tokenizer = Tokenizer::new(Sink::default(), TokenizerOpts::default());
    let _ = tokenizer.feed(&queue);
    tokenizer.end();
    tokenizer.sink.facts.take()
}
