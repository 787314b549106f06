//! The main region of a page: what it says without the frame that a site puts around all of its pages - navigation, header, footer,
//! banners about cookies - told block by block, with what stands in each.
//!
//! The page is walked a second time for it, so that only pages are that say something of a wall (`cues`). Must not know what the
//! words mean.

use super::attributes::Attributes;
use super::charset::Charset;
use super::text::{self, Text};
use crate::html::element::Tag;
use crate::html::tokenizer::{Finders, Open, Raw, Shape};
use crate::html::visibility::{Place, Reader, Walk};

/// Most bytes of text that are kept: walls say little, and with more there is no wall to look for.
const TEXT_MAX: usize = 16 << 10;
/// Most blocks.
const BLOCKS_MAX: usize = 400;

/// A piece of text between two ends of elements that separate words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// Where it stands in [`Region::text`].
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// Bytes of it inside links.
    pub(crate) linked: u32,
    pub(crate) heading: bool,
    pub(crate) button: bool,
}

/// What stands in a page's main region.
#[derive(Clone, Debug, Default)]
pub(crate) struct Region {
    /// The blocks' text as sentences are compared, each block between spaces.
    pub(crate) text: String,
    pub(crate) blocks: Vec<Block>,
    pub(crate) links: u32,
    pub(crate) images: u32,
    /// Fields to be filled in, hidden ones apart.
    pub(crate) fields: u32,
    /// An element is named after a captcha or a challenge.
    pub(crate) widget: bool,
    /// It has what articles have: an element for one, or for the time it was written.
    pub(crate) article: bool,
}

/// What the elements around a place are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frame {
    /// Nothing in it is the page's own.
    Whole,
    /// Its links are not; its headings and sentences may be.
    Links,
}

impl Region {
    fn clear(&mut self) {
        let (mut text, mut blocks) = (std::mem::take(&mut self.text), std::mem::take(&mut self.blocks));
        text.clear();
        blocks.clear();
        *self = Self { text, blocks, ..Self::default() };
    }

    /// Reads the main region of `lower`, a page in lower case.
    pub(crate) fn read(&mut self, lower: &[u8], finders: &Finders, charset: Charset, kept: &mut Vec<u8>) {
        self.clear();
        let mut reading = Reading {
            region: self,
            lower,
            charset,
            kept,
            run: Text::default(),
            frame: None,
            linked: 0,
            in_link: false,
            in_heading: false,
            in_button: false,
        };
        let mut walk = Walk::new(lower, finders);
        while walk.step(&mut reading) {
            if reading.region.text.len() > TEXT_MAX || reading.region.blocks.len() > BLOCKS_MAX {
                break;
            }
        }
        reading.end_block();
    }
}

struct Reading<'a> {
    region: &'a mut Region,
    lower: &'a [u8],
    charset: Charset,
    kept: &'a mut Vec<u8>,
    /// The block that is being read.
    run: Text,
    /// The frame that one is in: the element, and how many of its kind are open.
    frame: Option<(Tag, u32, Frame)>,
    /// Characters of the block inside links.
    linked: u32,
    in_link: bool,
    in_heading: bool,
    in_button: bool,
}

impl Reading<'_> {
    fn end_block(&mut self) {
        if self.run.chars > 0 {
            self.run.kept_into(self.lower, self.charset.counting, self.kept);
            let chars = self.run.chars;
            self.push_block(chars);
            self.run.clear();
        }
        self.linked = 0;
    }

    /// Adds what is kept as a block of so many characters.
    fn push_block(&mut self, chars: u32) {
        let out = &mut self.region.text;
        out.push(' ');
        let start = out.len();
        text::append_collapsed(&self.charset.text(self.kept), out);
        let end = out.len();
        out.push(' ');
        if end > start {
            // What is inside links is counted in characters, and blocks in bytes.
            let linked = (end - start) as u32 * self.linked.min(chars) / chars.max(1);
            let (heading, button) = (self.in_heading, self.in_button);
            self.region.blocks.push(Block { start: start as u32, end: end as u32, linked, heading, button });
        }
    }

    fn enter(&mut self, open: &Open) {
        let tag = open.tag;
        match &mut self.frame {
            Some((of, depth, _)) if *of == tag => *depth += 1,
            // What is the page's own ends a frame that was left open.
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
        matches!(self.frame, Some((_, _, Frame::Whole)))
    }

    fn count(&mut self, open: &Open) {
        let attrs = &self.lower[open.name_end..open.attrs_end];
        match open.tag {
            Tag::A => self.region.links += u32::from(self.frame.is_none()),
            Tag::Img | Tag::Video | Tag::Audio => self.region.images += u32::from(self.frame.is_none()),
            Tag::Article | Tag::Time => self.region.article = true,
            Tag::Textarea | Tag::Select => self.region.fields += 1,
            Tag::Input => self.input(attrs),
            _ => {}
        }
        if matches!(
            open.tag,
            Tag::Div | Tag::Iframe | Tag::Form | Tag::Img | Tag::Input | Tag::Section | Tag::Component
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

impl Reader for Reading<'_> {
    fn token(&mut self, _place: Place, _end: usize) {}

    fn text(&mut self, place: Place, start: usize, end: usize, _shape: Shape) {
        if place != Place::Text || self.in_whole_frame() || (self.frame.is_some() && self.in_link) {
            return;
        }
        let before = self.run.chars;
        self.run.push(self.lower, start..end, self.charset.counting, u32::MAX);
        if self.in_link {
            self.linked += self.run.chars - before;
        }
    }

    fn open(&mut self, place: Place, open: Open, _json: bool) {
        if place != Place::Code {
            return;
        }
        let tag = open.tag;
        // Buttons are told apart by name: they stand in no table of elements.
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

    fn close(&mut self, place: Place, tag: Tag) {
        if place != Place::Code {
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

    fn raw(&mut self, _place: Place, _element: Raw, _start: usize, _end: usize) {}
}

/// What kind of frame an element is, if it is one.
fn frame_of(tag: Tag, attrs: &[u8]) -> Option<Frame> {
    match tag {
        Tag::Nav | Tag::Footer | Tag::Select => return Some(Frame::Whole),
        Tag::Header | Tag::Aside => return Some(Frame::Links),
        Tag::Div | Tag::Section | Tag::Ul | Tag::Table => {}
        _ => return None,
    }
    let mut frame = None;
    for (name, value) in Attributes::new(attrs) {
        match (name, value) {
            (b"role", b"navigation" | b"contentinfo" | b"menubar" | b"menu") => return Some(Frame::Whole),
            (b"role", b"banner") => frame = Some(Frame::Links),
            (b"id" | b"class", names) => {
                for named in names.split(|b| b.is_ascii_whitespace()) {
                    frame = named_frame(named).or(frame);
                }
                if frame == Some(Frame::Whole) {
                    return frame;
                }
            }
            _ => {}
        }
    }
    frame
}

/// What sites call their frames.
fn named_frame(name: &[u8]) -> Option<Frame> {
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
        // The part of a wall that holds its buttons is called its footer, too.
        let of_wall =
            is(&[b"captcha", b"challenge", b"error", b"block", b"blocked", b"card", b"modal", b"panel", b"dialog"]);
        return (!of_wall).then_some(Frame::Whole);
    }
    is(&[b"header", b"topbar", b"sidebar", b"masthead", b"siteheader"]).then_some(Frame::Links)
}

/// Whether an attribute names a captcha or a challenge.
fn names_widget(attrs: &[u8]) -> bool {
    const NAMES: [&[u8]; 8] =
        [b"captcha", b"turnstile", b"geetest", b"arkose", b"funcaptcha", b"challenge", b"slider-verify", b"nc_wrapper"];
    Attributes::new(attrs)
        .filter(|(name, _)| matches!(*name, b"id" | b"class" | b"src" | b"action" | b"name"))
        .any(|(_, value)| NAMES.iter().any(|widget| memchr::memmem::find(value, widget).is_some()))
}
