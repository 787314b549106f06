//! Page parts of tokens: code, visible text, text for visitors without scripts, or invisible text.
//!
//! One element at a time is *skipped*: noscript, template, svg, or a hidden one. Only the nesting of elements with its
//! name is counted, so there is no stack, and no page can make one grow. A skipped element that is never closed reaches
//! to the end of the body, as in a browser.

use super::attributes;
use crate::html::element::Tag;
use crate::html::tokenizer::{Close, Finders, Kind, Open, Raw, Shape, Tokens};

/// The part of a response in which something stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Place {
    /// A tag, or a script that runs.
    Code,
    /// Visible text.
    Text,
    /// Text inside `<noscript>`.
    Noscript,
    /// Text of an element that an attribute hides.
    Hidden,
    /// Everything that neither runs nor shows: comments, `<meta>`, templates, styles, data scripts, the content of text
    /// areas.
    Inert,
    /// The title.
    Title,
    /// A response header.
    Header,
}

impl Place {
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
enum Why {
    Noscript,
    Hidden,
    Template,
    Foreign,
}

#[derive(Clone, Copy, Debug)]
struct Skip<'t> {
    tag: Tag,
    name: &'t [u8],
    depth: u32,
    why: Why,
}

/// Receiver of the tokens of a page, in order.
pub(crate) trait Reader {
    /// A token that ends at `end` stands in `place`. Called before the method for its kind.
    fn token(&mut self, place: Place, end: usize);
    /// Text, as written.
    fn text(&mut self, place: Place, start: usize, end: usize, shape: Shape);
    /// A start tag; `json` is whether it starts a script with JSON.
    fn open(&mut self, place: Place, open: Open, json: bool);
    /// An end tag.
    fn close(&mut self, place: Place, tag: Tag);
    /// The content of a raw-text element.
    fn raw(&mut self, place: Place, element: Raw, start: usize, end: usize);
}

/// A pass over the tokens of a page.
pub(crate) struct Walk<'t> {
    text: &'t [u8],
    tokens: Tokens<'t>,
    skip: Option<Skip<'t>>,
    /// Whether the last script does not run ...
    data_script: bool,
    /// ... because it contains JSON.
    json_script: bool,
    title_seen: bool,
}

impl<'t> Walk<'t> {
    /// Starts a pass over `text`, which is in lower case.
    pub(crate) fn new(text: &'t [u8], finders: &'t Finders) -> Self {
        Self {
            text,
            tokens: Tokens::new(text, finders),
            skip: None,
            data_script: false,
            json_script: false,
            title_seen: false,
        }
    }

    /// Reads the next token and passes it to `reader`. Returns `false` at the end.
    #[inline(always)]
    pub(crate) fn step(&mut self, reader: &mut impl Reader) -> bool {
        let Some(kind) = self.tokens.kind() else { return false };
        match kind {
            Kind::Text => {
                let start = self.tokens.at();
                let (end, shape) = self.tokens.text();
                let place = self.text_place();
                reader.token(place, end);
                reader.text(place, start, end, shape);
            }
            Kind::Open => {
                let mut open = self.tokens.open();
                let was_shown = self.skip.is_none();
                let place = self.open(&open);
                open.shown = was_shown && self.skip.is_none();
                reader.token(place, self.tokens.at());
                reader.open(place, open, self.json_script);
            }
            Kind::Close => {
                let close = self.tokens.close();
                let place = self.close(&close);
                reader.token(place, self.tokens.at());
                reader.close(place, close.tag);
            }
            Kind::Raw(element) => {
                let (start, end) = self.tokens.raw(element);
                if end > start {
                    let place = self.raw_place(element);
                    reader.token(place, end);
                    reader.raw(place, element, start, end);
                }
            }
            Kind::Declaration => match self.tokens.declaration() {
                Some((start, end)) => {
                    let place = self.text_place();
                    reader.token(place, end);
                    reader.text(place, start, end, Shape::default());
                }
                None => reader.token(Place::Inert, self.tokens.at()),
            },
        }
        true
    }

    #[inline]
    fn text_place(&self) -> Place {
        match self.skip {
            None => Place::Text,
            Some(Skip { why: Why::Noscript, .. }) => Place::Noscript,
            Some(Skip { why: Why::Hidden, .. }) => Place::Hidden,
            Some(_) => Place::Inert,
        }
    }

    fn raw_place(&mut self, element: Raw) -> Place {
        let template = matches!(self.skip, Some(Skip { why: Why::Template, .. }));
        match element {
            Raw::Script if self.data_script || template => Place::Inert,
            Raw::Script => Place::Code,
            Raw::Title if self.skip.is_none() && !self.title_seen => {
                self.title_seen = true;
                Place::Title
            }
            Raw::Xmp | Raw::Plaintext => self.text_place(),
            _ => Place::Inert,
        }
    }

    #[inline(always)]
    fn open(&mut self, open: &Open) -> Place {
        let Open { tag, may_hide, .. } = *open;
        if tag == Tag::Script {
            (self.data_script, self.json_script) = script_kind(&self.text[open.name_end..open.attrs_end]);
        }
        // Most tags change nothing.
        if self.skip.is_some() || may_hide || matches!(tag, Tag::Noscript | Tag::Template | Tag::Svg | Tag::Math) {
            self.open_special(open);
        }
        let template = matches!(self.skip, Some(Skip { why: Why::Template, .. }));
        if tag == Tag::Meta || template { Place::Inert } else { Place::Code }
    }

    fn open_special(&mut self, open: &Open) {
        let name = &self.text[open.start + 1..open.name_end];
        let attrs = &self.text[open.name_end..open.attrs_end];
        match self.skip {
            Some(skip) => self.open_skipped(skip, open.tag, name, attrs, open.may_hide),
            None => self.begin_skip(open.tag, name, attrs, open.may_hide),
        }
    }

    #[inline]
    fn begin_skip(&mut self, tag: Tag, name: &'t [u8], attrs: &[u8], may_hide: bool) {
        let why = match tag {
            Tag::Noscript => Why::Noscript,
            // A declarative shadow tree is visible.
            Tag::Template if attributes::value(attrs, b"shadowrootmode").is_some() => return,
            Tag::Template => Why::Template,
            Tag::Svg | Tag::Math => Why::Foreign,
            // A page that is hidden as a whole until a script shows it still counts as visible.
            Tag::Html | Tag::Body | Tag::Script | Tag::Style | Tag::Title => return,
            _ if may_hide && !tag.is_void() && attributes::hide(attrs) => Why::Hidden,
            _ => return,
        };
        if why == Why::Foreign {
            if attrs.last() == Some(&b'/') {
                return;
            }
            self.tokens.foreign = true;
        }
        if why == Why::Noscript {
            self.tokens.enclose(b"</noscript");
        }
        self.skip = Some(Skip { tag, name, depth: 1, why });
    }

    fn open_skipped(&mut self, skip: Skip<'t>, tag: Tag, name: &'t [u8], attrs: &[u8], may_hide: bool) {
        let same = tag == skip.tag && name == skip.name;
        let ends = match skip.why {
            Why::Foreign => tag.breaks_out(),
            // The new element closes the skipped one and may be hidden itself.
            _ => (same && tag.closes_itself()) || (skip.tag == Tag::P && tag.ends_paragraph()),
        };
        if ends {
            self.end_skip();
            self.begin_skip(tag, name, attrs, may_hide);
        } else if same && skip.why != Why::Noscript && !(skip.why == Why::Foreign && attrs.last() == Some(&b'/')) {
            self.skip = Some(Skip { depth: skip.depth + 1, ..skip });
        }
    }

    #[inline(always)]
    fn close(&mut self, close: &Close) -> Place {
        if let Some(skip) = self.skip {
            let tag = close.tag;
            if tag == skip.tag && &self.text[close.start + 2..close.name_end] == skip.name {
                if skip.depth <= 1 {
                    self.end_skip();
                } else {
                    self.skip = Some(Skip { depth: skip.depth - 1, ..skip });
                }
            } else if skip.why == Why::Hidden && skip.tag.closes_itself() && tag.is_list_or_table() {
                self.end_skip();
            }
        }
        Place::Code
    }

    fn end_skip(&mut self) {
        self.skip = None;
        self.tokens.foreign = false;
    }
}

/// Returns whether a script contains data or a template, so that it does not run, and whether that is JSON.
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
