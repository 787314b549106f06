//! Facts about a page from one pass over its tokens: text, links, forms, the title, and its refresh
//! target.
//!
//! The pass may stop once the page has more visible text than any rule allows.
//!
//! Must not know: what the facts mean.

use std::ops::Range;

use memchr::memmem;

use super::attributes::{self, Attributes};
use super::charset::Counting;
use super::redirect::{self, Refresh};
use super::text::VisibleText;
use crate::html::element::Tag;
use crate::html::tokenizer::{Finders, RawText, StartTag, TextShape};
use crate::html::visibility::{PagePart, TokenVisitor, TokenWalk};

/// Maximum visible characters of a page with little text. Rules with at most this limit are
/// searched for in such pages only.
pub(crate) const LITTLE_TEXT: u32 = 1_500;

/// Maximum visible characters of a page with hardly any text. Rules with at most this limit, and
/// those for application shells, are searched for in such pages only.
pub(crate) const HARDLY_ANY_TEXT: u32 = 250;

/// Minimum limit of tokens, for pages of any length ...
const TOKENS_FREE: usize = 8 * 1024;
/// ... which grows by one token per this number of bytes.
const BYTES_PER_TOKEN: usize = 40;

/// Maximum bytes between a `<noscript>` and a style in it that shows what is hidden.
const NOSCRIPT_STYLE: usize = 256;

/// Facts about a page.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageFacts {
    /// Visible characters, up to the end of the pass.
    pub(crate) visible: VisibleText,
    /// Characters inside `<noscript>`.
    pub(crate) noscript: VisibleText,
    /// A style inside noscript shows what is hidden from readers with scripts.
    pub(crate) shows_without_scripts: bool,
    /// The noscript text mentions scripts, as a demand for them does.
    pub(crate) demands_scripts: bool,
    /// Whether the pass reached the end of the page.
    pub(crate) complete: bool,
    /// The first title, unless much text precedes it.
    pub(crate) title: Option<Range<usize>>,
    /// The content of the first `<meta http-equiv=refresh>` that browsers do not ignore.
    pub(crate) refresh: Option<Range<usize>>,
    /// The `href` of the first `<base>` that has one.
    pub(crate) base: Option<Range<usize>>,
    /// The literal, without quotes, in the first script that only sets the location.
    pub(crate) sent_to: Option<Range<usize>>,
    pub(crate) links: u32,
    pub(crate) images: u32,
    /// Visible pictures, players and frames, larger than a dot.
    pub(crate) shown: u32,
    /// Approximate characters of hidden text.
    pub(crate) hidden: usize,
    /// The `<body>` tag was read.
    pub(crate) body: bool,
    pub(crate) inputs: u32,
    pub(crate) forms: u32,
    pub(crate) frames: u32,
    /// Scripts that run, inline or loaded.
    pub(crate) scripts: u32,
    pub(crate) password: bool,
    pub(crate) noindex: bool,
    /// A field asks who the visitor is: e-mail address, phone number, account name, password,
    /// one-time password.
    pub(crate) asks_identity: bool,
    /// A field asks for a message of several lines. The fields that captchas fill in do not count.
    pub(crate) asks_message: bool,
    /// A hidden field has the hardware address of a device.
    pub(crate) has_hardware_address: bool,
    /// The page has furniture of a site's pages that block pages lack: navigation, an article, a
    /// description for social networks.
    pub(crate) furnished: bool,
    /// Its refresh names a URL, and not only for visitors without scripts.
    pub(crate) moved: bool,
    /// Its refresh is for visitors without scripts.
    refresh_in_noscript: bool,
    /// Elements in the body with a hyphen in their name: components that a script fills.
    pub(crate) components: u32,
    /// Empty elements with an id.
    pub(crate) mounts: u32,
    /// Bytes inside `<script>`, up to the end of the pass.
    pub(crate) script_bytes: usize,
    /// Offset at which the pass ended.
    pub(crate) end: usize,
    /// Page parts of the tokens, if the page has few enough; see [`PageFacts::locate`].
    ranges: Vec<PartRange>,
}

/// A range of the page in one page part.
#[derive(Clone, Copy, Debug)]
struct PartRange {
    end: u32,
    place: PagePart,
    /// Visible characters before it.
    visible: u32,
}

/// Maximum number of ranges.
const MAX_RANGES: usize = 1 << 14;

impl PageFacts {
    fn clear(&mut self) {
        let (mut visible, mut noscript) =
            (std::mem::take(&mut self.visible), std::mem::take(&mut self.noscript));
        let mut ranges = std::mem::take(&mut self.ranges);
        visible.clear();
        noscript.clear();
        ranges.clear();
        *self = Self { visible, noscript, ranges, ..Self::default() };
    }

    /// Resets the facts for a body that is not HTML.
    pub(crate) fn forget(&mut self) {
        self.clear();
        self.complete = true;
    }

    /// Reads `text` (in lower case) until it has more than `enough` visible characters, or more
    /// tokens than a page of its length needs for so little text.
    pub(crate) fn read(&mut self, text: &[u8], finders: &Finders, counting: Counting, enough: u32) {
        self.clear();
        let mut walk = TokenWalk::new(text, finders);
        let mut tokens_left = if enough == u32::MAX {
            usize::MAX
        } else {
            TOKENS_FREE + text.len() / BYTES_PER_TOKEN
        };
        let mut reader = FactsReader { facts: self, text, counting, enough, mount: None };
        while walk.step(&mut reader) {
            tokens_left -= 1;
            if reader.facts.visible.chars > enough || tokens_left == 0 {
                return;
            }
        }
        self.complete = true;
    }

    /// Records the page part of the token that ends at `end`.
    #[inline(always)]
    fn remember(&mut self, place: PagePart, end: u32) {
        // Ranges of text are not merged: each needs the visible characters before it.
        if let Some(last) = self.ranges.last_mut()
            && last.place == place
            && place != PagePart::Text
        {
            last.end = end;
        } else if self.ranges.len() < MAX_RANGES {
            self.ranges.push(PartRange { end, place, visible: self.visible.chars });
        }
    }

    #[inline]
    fn text(
        &mut self,
        place: PagePart,
        text: &[u8],
        range: Range<usize>,
        counting: Counting,
        enough: u32,
    ) {
        match place {
            PagePart::Text => self.visible.push(text, range, counting, enough),
            PagePart::Noscript => {
                self.demands_scripts |= [&b"javascript"[..], b"java script", b"enable js"]
                    .iter()
                    .any(|name| memmem::find(&text[range.clone()], name).is_some());
                self.noscript.push(text, range, counting, enough);
            }
            _ => {}
        }
    }

    fn count(&mut self, tag: Tag, text: &[u8], range: Range<usize>, place: PagePart) {
        let attrs = &text[range.clone()];
        match tag {
            Tag::Img => self.images += 1,
            Tag::Meta => self.meta(text, range),
            Tag::Base if place == PagePart::Code => self.base_of(text, range),
            Tag::Input => self.input(attrs),
            Tag::Nav | Tag::Article => self.furnished = true,
            Tag::Textarea => {
                self.inputs += 1;
                self.asks_message |= memchr::memmem::find(attrs, b"captcha").is_none();
            }
            Tag::Select => self.inputs += 1,
            Tag::Form => self.forms += 1,
            Tag::Component if place == PagePart::Code => self.components += 1,
            Tag::Body => self.body = true,
            _ => {}
        }
    }

    /// Separates words at block elements.
    #[inline]
    fn space(&mut self, tag: Tag, place: PagePart) {
        if place == PagePart::Code && !tag.is_inline() {
            self.visible.break_word();
            self.noscript.break_word();
        }
    }

    fn input(&mut self, attrs: &[u8]) {
        let (mut kind, mut name, mut filled): (&[u8], &[u8], &[u8]) = (b"text", b"", b"");
        for (key, value) in Attributes::new(attrs) {
            match key {
                b"type" => kind = value,
                b"name" => name = value,
                b"value" => filled = value,
                _ => {}
            }
        }
        self.password |= kind == b"password";
        self.inputs += u32::from(kind != b"hidden");
        self.has_hardware_address |= kind == b"hidden" && is_hardware_address(filled);
        self.asks_identity |= matches!(kind, b"email" | b"tel" | b"password")
            || (kind != b"hidden" && is_of_person(name));
    }

    fn meta(&mut self, text: &[u8], range: Range<usize>) {
        let attrs = &text[range.clone()];
        let (mut equiv, mut name, mut content): (&[u8], &[u8], &[u8]) = (b"", b"", b"");
        let mut property: &[u8] = b"";
        for (key, value) in Attributes::new(attrs) {
            match key {
                b"http-equiv" => equiv = value,
                b"name" => name = value,
                b"content" => content = value,
                b"property" => property = value,
                _ => {}
            }
        }
        self.furnished |= property.starts_with(b"og:");
        if equiv == b"refresh" {
            self.refresh_of(text, range, content);
        } else if name == b"robots" {
            self.noindex |= content.windows(7).any(|w| w == b"noindex");
        }
    }

    /// Records a refresh. The first one counts, after those that browsers ignore: in values of
    /// another form, and for visitors without scripts.
    fn refresh_of(&mut self, text: &[u8], tag: Range<usize>, content: &[u8]) {
        if self.refresh.is_some() && !self.refresh_in_noscript {
            return;
        }
        let written = String::from_utf8_lossy(content);
        let written = redirect::decoded(&written);
        let Some(refresh) = Refresh::parse(&written) else { return };
        let in_noscript = in_noscript(&text[..tag.start]);
        if self.refresh.is_some() && in_noscript {
            return;
        }
        self.moved = refresh.has_target() && !in_noscript;
        self.refresh_in_noscript = in_noscript;
        self.refresh = Some(range_in(text, &tag, content));
    }

    /// Records a base. The first one with an address counts, even if its address is unusable.
    fn base_of(&mut self, text: &[u8], tag: Range<usize>) {
        if self.base.is_none()
            && let Some(href) = attributes::value(&text[tag.clone()], b"href")
            && !in_noscript(&text[..tag.start])
        {
            self.base = Some(range_in(text, &tag, href));
        }
    }
}

/// A pass over a page.
struct FactsReader<'a> {
    facts: &'a mut PageFacts,
    text: &'a [u8],
    counting: Counting,
    enough: u32,
    /// The attributes of an element that has been empty so far.
    mount: Option<(usize, usize)>,
}

impl TokenVisitor for FactsReader<'_> {
    #[inline(always)]
    fn token(&mut self, place: PagePart, end: usize) {
        self.facts.end = end;
        self.facts.remember(place, end as u32);
    }

    #[inline(always)]
    fn text(&mut self, place: PagePart, start: usize, end: usize, shape: TextShape) {
        if !(shape.known && shape.letters == 0) {
            self.mount = None;
        }
        if place == PagePart::Hidden {
            self.facts.hidden +=
                if shape.known { shape.letters as usize } else { (end - start) / 2 };
        }
        if shape.known && place == PagePart::Text {
            self.facts.visible.push_known(start..end, shape);
        } else {
            self.facts.text(place, self.text, start..end, self.counting, self.enough);
        }
    }

    #[inline(always)]
    fn open(&mut self, place: PagePart, open: StartTag, json: bool) {
        let tag = open.tag;
        self.mount = tag.is_mount().then_some((open.name_end, open.attrs_end));
        let facts = &mut *self.facts;
        facts.space(tag, place);
        facts.links += u32::from(tag == Tag::A);
        facts.scripts += u32::from(tag == Tag::Script && !json);
        if tag.is_counted() {
            facts.count(tag, self.text, open.name_end..open.attrs_end, place);
            facts.frames += u32::from(open.shown && is_frame(tag));
            facts.shown +=
                u32::from(open.shown && shows(tag, &self.text[open.name_end..open.attrs_end]));
        }
    }

    #[inline(always)]
    fn close(&mut self, place: PagePart, tag: Tag) {
        if let Some((start, end)) = self.mount.take() {
            self.facts.mounts += u32::from(has_id(&self.text[start..end]));
        }
        self.facts.space(tag, place);
    }

    fn raw(&mut self, place: PagePart, element: RawText, start: usize, end: usize) {
        if element == RawText::Script {
            self.facts.script_bytes += end - start;
            if place == PagePart::Code && self.facts.sent_to.is_none() {
                let literal = redirect::literal_in(&self.text[start..end]);
                self.facts.sent_to = literal.map(|range| start + range.start..start + range.end);
            }
        }
        if element == RawText::Style && !self.facts.shows_without_scripts {
            let style = &self.text[start..end];
            self.facts.shows_without_scripts =
                in_noscript(&self.text[start.saturating_sub(NOSCRIPT_STYLE)..start])
                    && memmem::find(style, b"display").is_some()
                    && memmem::find(style, b"block").is_some();
        }
        match place {
            // Beyond this amount of text the pass may have stopped earlier, so the title must not
            // count.
            PagePart::Title if self.facts.visible.chars > LITTLE_TEXT => {}
            PagePart::Title => self.facts.title = Some(start..end),
            _ => self.facts.text(place, self.text, start..end, self.counting, self.enough),
        }
    }
}

impl PageFacts {
    /// Reports the page part of each of `offsets` (ascending) in the last page, with the visible
    /// characters before it. Reads the page again if the pass stopped too early.
    pub(crate) fn locate(
        &self,
        text: &[u8],
        finders: &Finders,
        counting: Counting,
        offsets: &[u32],
        mut at: impl FnMut(usize, PagePart, u32),
    ) {
        let known = self.ranges.last().map_or(0, |last| last.end);
        if self.ranges.len() == MAX_RANGES || offsets.last().is_some_and(|last| *last >= known) {
            return locate_again(text, finders, counting, offsets, at);
        }
        let mut stretches = self.ranges.iter();
        let mut current = stretches.next();
        for (index, offset) in offsets.iter().enumerate() {
            while let Some(stretch) = current
                && stretch.end <= *offset
            {
                current = stretches.next();
            }
            let Some(stretch) = current else { return };
            at(index, stretch.place, stretch.visible);
        }
    }
}

fn locate_again(
    text: &[u8],
    finders: &Finders,
    counting: Counting,
    offsets: &[u32],
    at: impl FnMut(usize, PagePart, u32),
) {
    let mut walk = TokenWalk::new(text, finders);
    let mut locator =
        PartLocator { text, counting, offsets, next: 0, visible: VisibleText::default(), at };
    while locator.next < offsets.len() && walk.step(&mut locator) {}
}

/// A second pass over a page that determines page parts.
struct PartLocator<'a, F> {
    text: &'a [u8],
    counting: Counting,
    offsets: &'a [u32],
    next: usize,
    visible: VisibleText,
    at: F,
}

impl<F: FnMut(usize, PagePart, u32)> TokenVisitor for PartLocator<'_, F> {
    fn token(&mut self, place: PagePart, end: usize) {
        while self.offsets.get(self.next).is_some_and(|offset| (*offset as usize) < end) {
            (self.at)(self.next, place, self.visible.chars);
            self.next += 1;
        }
    }

    fn text(&mut self, place: PagePart, start: usize, end: usize, _shape: TextShape) {
        if place == PagePart::Text {
            self.visible.push(self.text, start..end, self.counting, u32::MAX);
        }
    }

    fn open(&mut self, _place: PagePart, _open: StartTag, _json: bool) {}

    fn close(&mut self, _place: PagePart, _tag: Tag) {}

    fn raw(&mut self, _place: PagePart, _element: RawText, _start: usize, _end: usize) {}
}

/// Returns whether an element is a frame or a player.
fn is_frame(tag: Tag) -> bool {
    matches!(tag, Tag::Iframe | Tag::Frame | Tag::Object | Tag::Embed | Tag::Video | Tag::Audio)
}

/// Returns whether an element is a picture, a player or a frame larger than a dot.
fn shows(tag: Tag, attrs: &[u8]) -> bool {
    if tag != Tag::Img && !is_frame(tag) {
        return false;
    }
    let dot = |(name, value): (&[u8], &[u8])| match name {
        b"width" | b"height" => matches!(value, b"0" | b"1" | b"0px" | b"1px"),
        b"style" => memmem::find(value, b"-9999").is_some(),
        _ => false,
    };
    Attributes::new(attrs)
        .any(|(name, _)| matches!(name, b"src" | b"data" | b"srcset" | b"data-src"))
        && !Attributes::new(attrs).any(dot)
}

/// Returns the range of an attribute's value, which is a slice of its tag. An empty one has no
/// offset in it.
fn range_in(text: &[u8], tag: &Range<usize>, value: &[u8]) -> Range<usize> {
    if value.is_empty() {
        return tag.start..tag.start;
    }
    let start =
        tag.start + (value.as_ptr() as usize).saturating_sub(text[tag.clone()].as_ptr() as usize);
    start..start + value.len()
}

/// Returns whether a `<noscript>` is open at the end of `before`.
fn in_noscript(before: &[u8]) -> bool {
    memmem::rfind(before, b"<noscript") > memmem::rfind(before, b"</noscript")
}

/// Returns whether a value is the hardware address of a device, which only its own network sees:
/// six pairs of hexadecimal digits.
pub(crate) fn is_hardware_address(value: &[u8]) -> bool {
    let fits = |(n, b): (usize, &u8)| {
        if n % 3 == 2 { matches!(b, b':' | b'-') } else { b.is_ascii_hexdigit() }
    };
    value.len() == 17 && value.iter().enumerate().all(fits)
}

/// Returns whether a field of this name asks who the visitor is. Fields of captchas may have
/// similar names.
fn is_of_person(name: &[u8]) -> bool {
    let tells = |part: &[u8]| {
        matches!(part, b"user" | b"username" | b"userid" | b"login" | b"otp")
            || part.ends_with(b"mail")
            || part.ends_with(b"phone")
    };
    memmem::find(name, b"captcha").is_none()
        && name.split(|b| !b.is_ascii_alphanumeric()).any(tells)
}

#[inline]
fn has_id(attrs: &[u8]) -> bool {
    attrs.len() > 3 && attributes::value(attrs, b"id").is_some_and(|id| !id.is_empty())
}
