//! What one walk over a page finds out: text, links, forms, the title, where it refreshes to.
//!
//! The walk may stop as soon as more visible text was seen than any rule cares about. Facts are about the page alone; what
//! they mean is decided elsewhere.

use std::ops::Range;

use super::attributes::{self, Attributes};
use super::charset::Counting;
use super::text::Text;
use super::token::{Finders, Raw, Token};
use super::walk::{Place, Walk};

/// What is known of a page.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Visible characters, up to where the walk stopped.
    pub(super) visible: Text,
    /// Characters inside `<noscript>`.
    pub(super) noscript: Text,
    /// Bytes of text in elements that an attribute hides.
    pub(super) hidden_bytes: u32,
    /// Whether the walk reached the end of the page.
    pub(super) complete: bool,
    pub(super) title: Option<Range<usize>>,
    /// Where `<meta http-equiv=refresh>` points, the first that names a URL or a delay.
    pub(super) refresh: Option<Range<usize>>,
    pub(super) links: u32,
    pub(super) images: u32,
    pub(super) inputs: u32,
    pub(super) frames: u32,
    /// Scripts that run, in the page or loaded.
    pub(super) scripts: u32,
    /// Scripts loaded from elsewhere.
    pub(super) loaded_scripts: u32,
    pub(super) password: bool,
    pub(super) noindex: bool,
    /// Elements in the body with a hyphen in their name: components that a script fills.
    pub(super) components: u32,
    /// Elements with an id and nothing in them.
    pub(super) mounts: u32,
    /// `<html>`, `<head>`, `<body>` or a doctype was there.
    pub(super) document: bool,
    pub(super) tokens: u32,
}

impl Facts {
    fn clear(&mut self) {
        let (mut visible, mut noscript) = (std::mem::take(&mut self.visible), std::mem::take(&mut self.noscript));
        visible.clear();
        noscript.clear();
        *self = Self { visible, noscript, ..Self::default() };
    }

    /// Nothing is known: for bodies that are not HTML.
    pub(super) fn forget(&mut self) {
        self.clear();
        self.complete = true;
    }

    /// Walks `text` (in lower case) until more than `enough` visible characters were seen.
    pub(super) fn read(&mut self, text: &[u8], finders: &Finders, counting: Counting, enough: u32) {
        self.clear();
        let mut walk = Walk::new(text, finders);
        let mut empty_mount = false;
        while let Some((place, token)) = walk.next() {
            self.tokens += 1;
            match token {
                Token::Text { start, end } | Token::CData { start, end } => {
                    let run = &text[start..end];
                    self.text(place, run, counting);
                    if self.visible.chars > enough {
                        return;
                    }
                    empty_mount &= run.iter().all(u8::is_ascii_whitespace);
                }
                Token::Open { start, name_end, attrs_end, .. } => {
                    empty_mount = self.open(text, start..attrs_end, name_end, place);
                }
                Token::Close { start, name_end, .. } => {
                    self.mounts += u32::from(std::mem::take(&mut empty_mount));
                    self.space(&text[start + 2..name_end], place);
                }
                Token::Raw { element, start, end } => self.raw(element, start..end, place, text, counting),
                Token::Comment { .. } => {}
            }
        }
        self.complete = true;
    }

    fn text(&mut self, place: Place, run: &[u8], counting: Counting) {
        match place {
            Place::Text => self.visible.push(run, counting),
            Place::Noscript => self.noscript.push(run, counting),
            Place::Hidden => {
                let dense = if run.len() < 64 { run.trim_ascii().len() } else { run.len() };
                self.hidden_bytes = self.hidden_bytes.saturating_add(dense as u32);
            }
            _ => {}
        }
    }

    fn raw(&mut self, element: Raw, range: Range<usize>, place: Place, text: &[u8], counting: Counting) {
        match place {
            Place::Title => self.title = Some(range),
            Place::Text | Place::Noscript | Place::Hidden => self.text(place, &text[range], counting),
            Place::Code if element == Raw::Script => {}
            _ => {}
        }
    }

    /// A start tag. Returns whether it may be an empty mount point.
    #[inline]
    fn open(&mut self, text: &[u8], tag: Range<usize>, name_end: usize, place: Place) -> bool {
        let name = &text[tag.start + 1..name_end];
        let attrs = &text[name_end..tag.end];
        self.space(name, place);
        match name {
            b"a" => self.links += 1,
            b"img" => self.images += 1,
            b"script" => self.script(attrs),
            b"meta" => self.meta(text, name_end..tag.end),
            b"input" => {
                let kind = attributes::value(attrs, b"type").unwrap_or(b"text");
                self.password |= kind == b"password";
                self.inputs += u32::from(kind != b"hidden");
            }
            b"select" | b"textarea" => self.inputs += 1,
            b"iframe" | b"frame" | b"object" | b"embed" | b"video" | b"audio" => self.frames += 1,
            b"html" | b"head" | b"body" => self.document = true,
            b"div" | b"main" | b"section" => return attributes_have_id(attrs),
            _ if name.contains(&b'-') && place == Place::Code => self.components += 1,
            _ => {}
        }
        false
    }

    /// Block elements separate words.
    #[inline]
    fn space(&mut self, name: &[u8], place: Place) {
        if place == Place::Code && !is_inline(name) {
            self.visible.break_word();
            self.noscript.break_word();
        }
    }

    fn script(&mut self, attrs: &[u8]) {
        let mut kind: &[u8] = b"";
        let mut loaded = false;
        for (name, value) in Attributes::new(attrs) {
            match name {
                b"type" => kind = value,
                b"src" | b"data-src" => loaded = true,
                _ => {}
            }
        }
        if memchr::memmem::find(kind, b"json").is_none() {
            self.scripts += 1;
            self.loaded_scripts += u32::from(loaded);
        }
    }

    fn meta(&mut self, text: &[u8], range: Range<usize>) {
        let attrs = &text[range.clone()];
        let (mut equiv, mut name, mut content): (&[u8], &[u8], &[u8]) = (b"", b"", b"");
        for (key, value) in Attributes::new(attrs) {
            match key {
                b"http-equiv" => equiv = value,
                b"name" => name = value,
                b"content" => content = value,
                _ => {}
            }
        }
        if equiv == b"refresh" && self.refresh.is_none() {
            let start = range.start + memchr::memmem::find(attrs, content).unwrap_or(0);
            self.refresh = Some(start..start + content.len());
        } else if name == b"robots" {
            self.noindex |= memchr::memmem::find(content, b"noindex").is_some();
        }
    }
}

/// Walks `text` again to say of each of `offsets` (ascending) where it stands and how many visible characters stand before.
pub(super) fn locate(
    text: &[u8],
    finders: &Finders,
    counting: Counting,
    offsets: &[u32],
    mut at: impl FnMut(usize, Place, u32),
) {
    let mut walk = Walk::new(text, finders);
    let mut visible = Text::default();
    let mut next = 0;
    while next < offsets.len() {
        let Some((place, token)) = walk.next() else { return };
        let end = token.end();
        while next < offsets.len() && (offsets[next] as usize) < end {
            at(next, place, visible.chars);
            next += 1;
        }
        if place == Place::Text
            && let Token::Text { start, end } = token
        {
            visible.push(&text[start..end], counting);
            visible.kept.clear();
        }
    }
}

fn attributes_have_id(attrs: &[u8]) -> bool {
    attrs.len() > 3 && attributes::value(attrs, b"id").is_some_and(|id| !id.is_empty())
}

/// Elements that do not separate words.
fn is_inline(name: &[u8]) -> bool {
    matches!(
        name,
        b"a" | b"b"
            | b"i"
            | b"u"
            | b"s"
            | b"em"
            | b"strong"
            | b"span"
            | b"font"
            | b"small"
            | b"code"
            | b"tt"
            | b"big"
            | b"sub"
            | b"sup"
            | b"abbr"
            | b"mark"
            | b"bdi"
            | b"bdo"
            | b"wbr"
            | b"kbd"
            | b"var"
            | b"time"
            | b"label"
            | b"script"
            | b"style"
    )
}
