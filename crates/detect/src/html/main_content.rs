//! The main content of a page as text blocks, without the frame around all pages of a site:
//! navigation, header, footer, cookie banners.
//!
//! Cost: a second pass over the page. Only pages that hint at a block (`cues`) pay for it.
//!
//! Must not know: what the words mean.

use super::attributes::Attributes;
use super::charset::Charset;
use super::text::{self, VisibleText};
use crate::html::element::Tag;
use crate::html::tokenizer::{Finders, RawText, StartTag, TextShape};
use crate::html::visibility::{PagePart, TokenVisitor, TokenWalk};

/// Maximum bytes of text that are read. Block pages say little, so a page with more text is none.
const MAX_TEXT: usize = 16 << 10;
/// Maximum number of blocks.
const MAX_BLOCKS: usize = 400;

/// Text between two ends of elements that separate words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextBlock {
    /// Its start in [`MainContent::text`].
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// Bytes of it inside links.
    pub(crate) linked: u32,
    pub(crate) heading: bool,
    pub(crate) button: bool,
}

/// The main content of a page.
#[derive(Clone, Debug, Default)]
pub(crate) struct MainContent {
    /// The text of the blocks, folded as sentences are compared, each block between spaces.
    pub(crate) text: String,
    pub(crate) blocks: Vec<TextBlock>,
    pub(crate) links: u32,
    pub(crate) images: u32,
    /// Input fields, hidden ones excluded.
    pub(crate) fields: u32,
    /// An element is named after a captcha or a challenge.
    pub(crate) widget: bool,
    /// The page has elements of an article: one for the article, or one for its time.
    pub(crate) article: bool,
}

/// Kinds of frames around content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SiteFrame {
    /// Nothing in it is the page's own.
    Whole,
    /// Its links are not the page's own; its headings and sentences may be.
    Links,
}

impl MainContent {
    fn clear(&mut self) {
        let (mut text, mut blocks) =
            (std::mem::take(&mut self.text), std::mem::take(&mut self.blocks));
        text.clear();
        blocks.clear();
        *self = Self { text, blocks, ..Self::default() };
    }

    /// Reads the main content of `lower`, a page in lower case.
    pub(crate) fn read(
        &mut self,
        lower: &[u8],
        finders: &Finders,
        charset: Charset,
        kept: &mut Vec<u8>,
    ) {
        self.clear();
        let mut reader = MainContentReader {
            region: self,
            lower,
            charset,
            kept,
            run: VisibleText::default(),
            frame: None,
            linked: 0,
            in_link: false,
            in_heading: false,
            in_button: false,
        };
        let mut walk = TokenWalk::new(lower, finders);
        while walk.step(&mut reader) {
            if reader.region.text.len() > MAX_TEXT || reader.region.blocks.len() > MAX_BLOCKS {
                break;
            }
        }
        reader.end_block();
    }
}

struct MainContentReader<'a> {
    region: &'a mut MainContent,
    lower: &'a [u8],
    charset: Charset,
    kept: &'a mut Vec<u8>,
    /// The text of the current block.
    run: VisibleText,
    /// The current frame: its element, and the number of open elements of its kind.
    frame: Option<(Tag, u32, SiteFrame)>,
    /// Characters of the block inside links.
    linked: u32,
    in_link: bool,
    in_heading: bool,
    in_button: bool,
}

impl MainContentReader<'_> {
    fn end_block(&mut self) {
        if self.run.chars > 0 {
            self.run.kept_into(self.lower, self.charset.counting, self.kept);
            let chars = self.run.chars;
            self.push_block(chars);
            self.run.clear();
        }
        self.linked = 0;
    }

    /// Adds the kept text as a block of `chars` characters.
    fn push_block(&mut self, chars: u32) {
        let out = &mut self.region.text;
        out.push(' ');
        let start = out.len();
        text::append_collapsed(&self.charset.text(self.kept), out);
        let end = out.len();
        out.push(' ');
        if end > start {
            // Linked text is counted in characters, blocks in bytes.
            let linked = (end - start) as u32 * self.linked.min(chars) / chars.max(1);
            let (heading, button) = (self.in_heading, self.in_button);
            self.region.blocks.push(TextBlock {
                start: start as u32,
                end: end as u32,
                linked,
                heading,
                button,
            });
        }
    }

    fn enter(&mut self, open: &StartTag) {
        let tag = open.tag;
        match &mut self.frame {
            Some((of, depth, _)) if *of == tag => *depth += 1,
            // The page's own content ends a frame that was left open.
            Some(_) if tag == Tag::Main => self.frame = None,
            Some(_) => {}
            None => {
                let frame = frame_of(tag, &self.lower[open.name_end..open.attrs_end]);
                self.frame = frame.map(|frame| (tag, 1, frame));
            }
        }
    }

    fn leave(&mut self, tag: Tag) {
        if let Some((of, depth, _)) = &mut self.frame
            && *of == tag
        {
            *depth -= 1;
            if *depth == 0 {
                self.frame = None;
            }
        }
    }

    fn in_whole_frame(&self) -> bool {
        matches!(self.frame, Some((_, _, SiteFrame::Whole)))
    }

    fn count(&mut self, open: &StartTag) {
        let attrs = &self.lower[open.name_end..open.attrs_end];
        match open.tag {
            Tag::A => self.region.links += u32::from(self.frame.is_none()),
            Tag::Img | Tag::Video | Tag::Audio => {
                self.region.images += u32::from(self.frame.is_none())
            }
            Tag::Article | Tag::Time => self.region.article = true,
            Tag::Textarea | Tag::Select => self.region.fields += 1,
            Tag::Input => self.input(attrs),
            _ => {}
        }
        if matches!(
            open.tag,
            Tag::Div
                | Tag::Iframe
                | Tag::Form
                | Tag::Img
                | Tag::Input
                | Tag::Section
                | Tag::Component
        ) {
            self.region.widget |= names_widget(attrs);
        }
    }

    fn input(&mut self, attrs: &[u8]) {
        let (mut kind, mut value): (&[u8], &[u8]) = (b"text", b"");
        for (name, its) in Attributes::new(attrs) {
            match name {
                b"type" => kind = its,
                b"value" => value = its,
                _ => {}
            }
        }
        match kind {
            b"submit" | b"button" if !value.is_empty() => {
                self.end_block();
                self.kept.clear();
                self.kept.extend_from_slice(value);
                let was = std::mem::replace(&mut self.in_button, true);
                self.push_block(1);
                self.in_button = was;
            }
            b"hidden" | b"submit" | b"button" | b"image" | b"reset" => {}
            _ => self.region.fields += 1,
        }
    }
}

impl TokenVisitor for MainContentReader<'_> {
    fn token(&mut self, _place: PagePart, _end: usize) {}

    fn text(&mut self, place: PagePart, start: usize, end: usize, _shape: TextShape) {
        if place != PagePart::Text
            || self.in_whole_frame()
            || (self.frame.is_some() && self.in_link)
        {
            return;
        }
        let before = self.run.chars;
        self.run.push(self.lower, start..end, self.charset.counting, u32::MAX);
        if self.in_link {
            self.linked += self.run.chars - before;
        }
    }

    fn open(&mut self, place: PagePart, open: StartTag, _json: bool) {
        if place != PagePart::Code {
            return;
        }
        let tag = open.tag;
        // Buttons are recognised by name: the table of elements lacks them.
        let button = tag == Tag::Other && &self.lower[open.start + 1..open.name_end] == b"button";
        if !tag.is_inline() {
            self.end_block();
        }
        self.enter(&open);
        if !self.in_whole_frame() {
            self.count(&open);
        }
        match tag {
            Tag::A => self.in_link = true,
            Tag::H1 | Tag::H2 | Tag::H3 | Tag::H4 => self.in_heading = true,
            _ => self.in_button |= button,
        }
    }

    fn close(&mut self, place: PagePart, tag: Tag) {
        if place != PagePart::Code {
            return;
        }
        if !tag.is_inline() {
            self.end_block();
        }
        match tag {
            Tag::A => self.in_link = false,
            Tag::H1 | Tag::H2 | Tag::H3 | Tag::H4 => self.in_heading = false,
            Tag::Other => self.in_button = false,
            _ => {}
        }
        self.leave(tag);
    }

    fn raw(&mut self, _place: PagePart, _element: RawText, _start: usize, _end: usize) {}
}

/// Returns the kind of frame that an element is, if it is one.
fn frame_of(tag: Tag, attrs: &[u8]) -> Option<SiteFrame> {
    match tag {
        Tag::Nav | Tag::Footer | Tag::Select => return Some(SiteFrame::Whole),
        Tag::Header | Tag::Aside => return Some(SiteFrame::Links),
        Tag::Div | Tag::Section | Tag::Ul | Tag::Table => {}
        _ => return None,
    }
    let mut frame = None;
    for (name, value) in Attributes::new(attrs) {
        match (name, value) {
            (b"role", b"navigation" | b"contentinfo" | b"menubar" | b"menu") => {
                return Some(SiteFrame::Whole);
            }
            (b"role", b"banner") => frame = Some(SiteFrame::Links),
            (b"id" | b"class", names) => {
                for named in names.split(|b| b.is_ascii_whitespace()) {
                    frame = named_frame(named).or(frame);
                }
                if frame == Some(SiteFrame::Whole) {
                    return frame;
                }
            }
            _ => {}
        }
    }
    frame
}

/// Returns the kind of frame with this id or class, as sites name them.
fn named_frame(name: &[u8]) -> Option<SiteFrame> {
    let parts = || name.split(|b| matches!(b, b'-' | b'_' | b':'));
    let is = |what: &[&[u8]]| parts().any(|part| what.contains(&part));
    let whole: [&[u8]; 20] = [
        b"footer",
        b"sitefooter",
        b"pagefooter",
        b"globalfooter",
        b"nav",
        b"navbar",
        b"navigation",
        b"navi",
        b"topnav",
        b"menu",
        b"megamenu",
        b"submenu",
        b"breadcrumb",
        b"breadcrumbs",
        b"cookie",
        b"cookies",
        b"cookiebanner",
        b"consent",
        b"gdpr",
        b"newsletter",
    ];
    if is(&whole) {
        // Block pages call the part with their buttons a footer, too.
        let of_block = is(&[
            b"captcha",
            b"challenge",
            b"error",
            b"block",
            b"blocked",
            b"card",
            b"modal",
            b"panel",
            b"dialog",
        ]);
        return (!of_block).then_some(SiteFrame::Whole);
    }
    is(&[b"header", b"topbar", b"sidebar", b"masthead", b"siteheader"]).then_some(SiteFrame::Links)
}

/// Returns whether an attribute names a captcha or a challenge.
fn names_widget(attrs: &[u8]) -> bool {
    const NAMES: [&[u8]; 8] = [
        b"captcha",
        b"turnstile",
        b"geetest",
        b"arkose",
        b"funcaptcha",
        b"challenge",
        b"slider-verify",
        b"nc_wrapper",
    ];
    Attributes::new(attrs)
        .filter(|(name, _)| matches!(*name, b"id" | b"class" | b"src" | b"action" | b"name"))
        .any(|(_, value)| NAMES.iter().any(|widget| memchr::memmem::find(value, widget).is_some()))
}
