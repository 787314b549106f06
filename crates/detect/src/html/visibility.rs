//! Page parts of tokens: code, visible text, text for visitors without scripts, or invisible text.
//!
//! One element at a time is *skipped*: noscript, template, svg, or a hidden one. Only the nesting
//! of elements with its name is counted, so there is no stack, and no page can make one grow. A
//! skipped element that is never closed reaches to the end of the body, as in a browser.

use super::attributes;
use crate::html::element::Tag;
use crate::html::tokenizer::{EndTag, Finders, RawText, StartTag, TextShape, TokenKind, Tokenizer};

/// The part of a response in which something stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum PagePart {
    /// A tag, or a script that runs.
    Code,
    /// Visible text.
    Text,
    /// Text inside `<noscript>`.
    Noscript,
    /// Text of an element that an attribute hides.
    Hidden,
    /// Everything that neither runs nor shows: comments, `<meta>`, templates, styles, data scripts,
    /// the content of text areas.
    Inert,
    /// The title.
    Title,
    /// A response header.
    Header,
}

impl PagePart {
    /// Returns its name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Text => "text",
            Self::Noscript => "noscript",
            Self::Hidden => "hidden",
            Self::Inert => "inert",
            Self::Title => "title",
            Self::Header => "header",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SkipReason {
    Noscript,
    Hidden,
    Template,
    Foreign,
}

#[derive(Clone, Copy, Debug)]
struct SkippedElement<'t> {
    tag: Tag,
    name: &'t [u8],
    depth: u32,
    reason: SkipReason,
}

/// Receiver of the tokens of a page, in order.
pub(crate) trait TokenVisitor {
    /// A token that ends at `end` stands in `place`. Called before the method for its kind.
    fn token(&mut self, place: PagePart, end: usize);
    /// Text, as written.
    fn text(&mut self, place: PagePart, start: usize, end: usize, shape: TextShape);
    /// A start tag; `json` is whether it starts a script with JSON.
    fn open(&mut self, place: PagePart, open: StartTag, json: bool);
    /// An end tag.
    fn close(&mut self, place: PagePart, tag: Tag);
    /// The content of a raw-text element.
    fn raw(&mut self, place: PagePart, element: RawText, start: usize, end: usize);
}

/// A pass over the tokens of a page.
pub(crate) struct TokenWalk<'t> {
    text: &'t [u8],
    tokens: Tokenizer<'t>,
    skip: Option<SkippedElement<'t>>,
    /// Whether the last script does not run ...
    data_script: bool,
    /// ... because it contains JSON.
    json_script: bool,
    title_seen: bool,
}

impl<'t> TokenWalk<'t> {
    /// Starts a pass over `text`, which is in lower case.
    pub(crate) fn new(text: &'t [u8], finders: &'t Finders) -> Self {
        Self {
            text,
            tokens: Tokenizer::new(text, finders),
            skip: None,
            data_script: false,
            json_script: false,
            title_seen: false,
        }
    }

    /// Reads the next token and passes it to `reader`. Returns `false` at the end.
    #[inline(always)]
    pub(crate) fn step(&mut self, reader: &mut impl TokenVisitor) -> bool {
        let Some(kind) = self.tokens.kind() else { return false };
        match kind {
            TokenKind::Text => {
                let start = self.tokens.at();
                let (end, shape) = self.tokens.text();
                let place = self.text_place();
                reader.token(place, end);
                reader.text(place, start, end, shape);
            }
            TokenKind::StartTag => {
                let mut open = self.tokens.open();
                let was_shown = self.skip.is_none();
                let place = self.open(&open);
                open.shown = was_shown && self.skip.is_none();
                reader.token(place, self.tokens.at());
                reader.open(place, open, self.json_script);
            }
            TokenKind::EndTag => {
                let close = self.tokens.close();
                let place = self.close(&close);
                reader.token(place, self.tokens.at());
                reader.close(place, close.tag);
            }
            TokenKind::RawText(element) => {
                let (start, end) = self.tokens.raw(element);
                if end > start {
                    let place = self.raw_place(element);
                    reader.token(place, end);
                    reader.raw(place, element, start, end);
                }
            }
            TokenKind::Declaration => match self.tokens.declaration() {
                Some((start, end)) => {
                    let place = self.text_place();
                    reader.token(place, end);
                    reader.text(place, start, end, TextShape::default());
                }
                None => reader.token(PagePart::Inert, self.tokens.at()),
            },
        }
        true
    }

    #[inline]
    fn text_place(&self) -> PagePart {
        match self.skip {
            None => PagePart::Text,
            Some(SkippedElement { reason: SkipReason::Noscript, .. }) => PagePart::Noscript,
            Some(SkippedElement { reason: SkipReason::Hidden, .. }) => PagePart::Hidden,
            Some(_) => PagePart::Inert,
        }
    }

    fn raw_place(&mut self, element: RawText) -> PagePart {
        let template =
            matches!(self.skip, Some(SkippedElement { reason: SkipReason::Template, .. }));
        match element {
            RawText::Script if self.data_script || template => PagePart::Inert,
            RawText::Script => PagePart::Code,
            RawText::Title if self.skip.is_none() && !self.title_seen => {
                self.title_seen = true;
                PagePart::Title
            }
            RawText::Xmp | RawText::Plaintext => self.text_place(),
            _ => PagePart::Inert,
        }
    }

    #[inline(always)]
    fn open(&mut self, open: &StartTag) -> PagePart {
        let StartTag { tag, may_hide, .. } = *open;
        if tag == Tag::Script {
            (self.data_script, self.json_script) =
                script_kind(&self.text[open.name_end..open.attrs_end]);
        }
        // Most tags change nothing.
        if self.skip.is_some()
            || may_hide
            || matches!(tag, Tag::Noscript | Tag::Template | Tag::Svg | Tag::Math)
        {
            self.open_special(open);
        }
        let template =
            matches!(self.skip, Some(SkippedElement { reason: SkipReason::Template, .. }));
        if tag == Tag::Meta || template { PagePart::Inert } else { PagePart::Code }
    }

    fn open_special(&mut self, open: &StartTag) {
        let name = &self.text[open.start + 1..open.name_end];
        let attrs = &self.text[open.name_end..open.attrs_end];
        match self.skip {
            Some(skip) => self.open_skipped(skip, open.tag, name, attrs, open.may_hide),
            None => self.begin_skip(open.tag, name, attrs, open.may_hide),
        }
    }

    #[inline]
    fn begin_skip(&mut self, tag: Tag, name: &'t [u8], attrs: &[u8], may_hide: bool) {
        let reason = match tag {
            Tag::Noscript => SkipReason::Noscript,
            // A declarative shadow tree is visible.
            Tag::Template if attributes::value(attrs, b"shadowrootmode").is_some() => return,
            Tag::Template => SkipReason::Template,
            Tag::Svg | Tag::Math => SkipReason::Foreign,
            // A page that is hidden as a whole until a script shows it still counts as visible.
            Tag::Html | Tag::Body | Tag::Script | Tag::Style | Tag::Title => return,
            _ if may_hide && !tag.is_void() && attributes::hide(attrs) => SkipReason::Hidden,
            _ => return,
        };
        if reason == SkipReason::Foreign {
            if attrs.last() == Some(&b'/') {
                return;
            }
            self.tokens.foreign = true;
        }
        if reason == SkipReason::Noscript {
            self.tokens.enclose(b"</noscript");
        }
        self.skip = Some(SkippedElement { tag, name, depth: 1, reason });
    }

    fn open_skipped(
        &mut self,
        skip: SkippedElement<'t>,
        tag: Tag,
        name: &'t [u8],
        attrs: &[u8],
        may_hide: bool,
    ) {
        let same = tag == skip.tag && name == skip.name;
        let ends = match skip.reason {
            SkipReason::Foreign => tag.breaks_out(),
            // The new element closes the skipped one and may be hidden itself.
            _ => (same && tag.closes_itself()) || (skip.tag == Tag::P && tag.ends_paragraph()),
        };
        if ends {
            self.end_skip();
            self.begin_skip(tag, name, attrs, may_hide);
        } else if same
            && skip.reason != SkipReason::Noscript
            && !(skip.reason == SkipReason::Foreign && attrs.last() == Some(&b'/'))
        {
            self.skip = Some(SkippedElement { depth: skip.depth + 1, ..skip });
        }
    }

    #[inline(always)]
    fn close(&mut self, close: &EndTag) -> PagePart {
        if let Some(skip) = self.skip {
            let tag = close.tag;
            if tag == skip.tag && &self.text[close.start + 2..close.name_end] == skip.name {
                if skip.depth <= 1 {
                    self.end_skip();
                } else {
                    self.skip = Some(SkippedElement { depth: skip.depth - 1, ..skip });
                }
            } else if skip.reason == SkipReason::Hidden
                && skip.tag.closes_itself()
                && tag.is_list_or_table()
            {
                self.end_skip();
            }
        }
        PagePart::Code
    }

    fn end_skip(&mut self) {
        self.skip = None;
        self.tokens.foreign = false;
    }
}

/// Returns whether a script contains data or a template, so that it does not run, and whether that
/// is JSON.
fn script_kind(attrs: &[u8]) -> (bool, bool) {
    if attrs.len() < 6 {
        return (false, false);
    }
    let kind = attributes::value(attrs, b"type").unwrap_or_default();
    if matches!(kind, b"" | b"module" | b"text/javascript" | b"application/javascript") {
        return (false, false);
    }
    let has = |part: &[u8]| kind.windows(part.len()).any(|w| w == part);
    let json = has(b"json");
    let others = [&b"template"[..], b"text/html", b"text/x-", b"importmap", b"speculationrules"];
    (json || others.iter().any(|part| has(part)), json)
}
