//! A streaming HTML tokenizer: no tree, no copies, one look at each byte.
//!
//! It reads lower-case bytes in an ASCII-compatible charset. It follows the HTML standard where
//! that decides what is text: quotes in attributes, comments, raw-text elements, CDATA in foreign
//! content. A body may be cut anywhere; a token without an end reaches to the end of the body.
//!
//! Must not know: what is visible (see `visibility`).

use memchr::memchr;
use memchr::memmem::Finder;

use crate::html::byte_masks;
use crate::html::byte_masks::{BLOCK, ByteMasks};
use crate::html::element::Tag;

/// The kind of the next token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// Text between tags: see [`Tokenizer::text`].
    Text,
    /// A start tag: see [`Tokenizer::open`].
    StartTag,
    /// An end tag: see [`Tokenizer::close`].
    EndTag,
    /// The content of a raw-text element: see [`Tokenizer::raw`].
    RawText(RawText),
    /// A comment, doctype or processing instruction, or a CDATA section in foreign content: see
    /// [`Tokenizer::declaration`].
    Declaration,
}

/// A start tag. Offsets are into the tokenized text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartTag {
    pub(crate) tag: Tag,
    /// Offset of its `<`.
    pub(crate) start: usize,
    /// End of its name.
    pub(crate) name_end: usize,
    /// End of its attributes, without `>`.
    pub(crate) attrs_end: usize,
    /// Whether its attributes may hide it.
    pub(crate) may_hide: bool,
    /// Whether its content is visible. The token walk sets it.
    pub(crate) shown: bool,
}

/// An end tag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndTag {
    pub(crate) tag: Tag,
    pub(crate) start: usize,
    pub(crate) name_end: usize,
}

/// The composition of a run of text, counted while its end was searched for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TextShape {
    /// Whether the other fields are valid: the run is ASCII without `&`.
    pub(crate) known: bool,
    /// Bytes other than white space.
    pub(crate) letters: u32,
    /// Positions where text follows white space.
    pub(crate) gaps: u32,
    /// Whether it begins with white space, and so with a gap.
    pub(crate) leading: bool,
    /// Whether it ends with white space.
    pub(crate) trailing: bool,
}

/// Raw-text elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RawText {
    Script,
    Style,
    Title,
    Textarea,
    Iframe,
    Noembed,
    Noframes,
    Xmp,
    Plaintext,
}

impl RawText {
    #[inline]
    fn of(tag: Tag) -> Option<Self> {
        Some(match tag {
            Tag::Script => Self::Script,
            Tag::Style => Self::Style,
            Tag::Title => Self::Title,
            Tag::Textarea => Self::Textarea,
            Tag::Iframe => Self::Iframe,
            Tag::Noembed => Self::Noembed,
            Tag::Noframes => Self::Noframes,
            Tag::Xmp => Self::Xmp,
            Tag::Plaintext => Self::Plaintext,
            _ => return None,
        })
    }

    const fn end_tag(self) -> Option<&'static [u8]> {
        Some(match self {
            Self::Script => b"</script",
            Self::Style => b"</style",
            Self::Title => b"</title",
            Self::Textarea => b"</textarea",
            Self::Iframe => b"</iframe",
            Self::Noembed => b"</noembed",
            Self::Noframes => b"</noframes",
            Self::Xmp => b"</xmp",
            Self::Plaintext => return None,
        })
    }
}

/// The searches of a tokenizer, built once.
#[derive(Debug)]
pub(crate) struct Finders {
    pub(crate) script: Finder<'static>,
    pub(crate) script_open: Finder<'static>,
    style: Finder<'static>,
    comment: Finder<'static>,
    cdata: Finder<'static>,
}

impl Finders {
    pub(crate) fn new() -> Self {
        Self {
            script: Finder::new(b"</script"),
            script_open: Finder::new(b"<script"),
            style: Finder::new(b"</style"),
            comment: Finder::new(b"<!--"),
            cdata: Finder::new(b"]]>"),
        }
    }
}

/// The state of the tokenizer.
pub(crate) struct Tokenizer<'t> {
    text: &'t [u8],
    /// The whole page, while only a part of it is read.
    whole: Option<&'t [u8]>,
    /// The end tag of an enclosed element is missing.
    endless: bool,
    finders: &'t Finders,
    at: usize,
    /// The current block of the page.
    block: ByteMasks,
    raw: Option<RawText>,
    /// Inside `<svg>` or `<math>`, or in XHTML: CDATA sections exist, raw-text elements are
    /// ordinary.
    pub(crate) foreign: bool,
}

impl<'t> Tokenizer<'t> {
    pub(crate) fn new(text: &'t [u8], finders: &'t Finders) -> Self {
        Self {
            text,
            whole: None,
            endless: false,
            finders,
            at: 0,
            block: ByteMasks::first(text),
            raw: None,
            foreign: false,
        }
    }

    /// Returns the end of the last token.
    #[inline(always)]
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Returns the kind of the next token, or `None` at the end. The method for this kind must be
    /// called next.
    #[inline(always)]
    pub(crate) fn kind(&mut self) -> Option<TokenKind> {
        if let Some(element) = self.raw.take() {
            return Some(TokenKind::RawText(element));
        }
        let first = match self.text.get(self.at) {
            Some(first) => *first,
            None => *self.reopen()?,
        };
        if first != b'<' {
            return Some(TokenKind::Text);
        }
        Some(match self.text.get(self.at + 1) {
            Some(b'a'..=b'z') => TokenKind::StartTag,
            Some(b'/') if matches!(self.text.get(self.at + 2), Some(b'a'..=b'z')) => {
                TokenKind::EndTag
            }
            Some(b'/' | b'!' | b'?') => TokenKind::Declaration,
            _ => TokenKind::Text,
        })
    }

    /// Restricts reading to the element whose end tag begins with `end`, whatever is left open in
    /// it. Its content is raw text when scripts run, so no comment and no element in it reaches
    /// beyond.
    pub(crate) fn enclose(&mut self, end: &[u8]) {
        if self.whole.is_some() || self.endless {
            return;
        }
        match memchr::memmem::find(&self.text[self.at..], end) {
            Some(n) => {
                self.whole = Some(self.text);
                self.text = &self.text[..self.at + n];
                self.block = ByteMasks::first(self.text);
            }
            // Searched for once only, so that time stays linear.
            None => self.endless = true,
        }
    }

    /// Continues after the enclosed element. Returns the first byte there.
    #[cold]
    fn reopen(&mut self) -> Option<&'t u8> {
        self.text = self.whole.take()?;
        self.block = ByteMasks::first(self.text);
        self.text.get(self.at)
    }

    /// Reads text, entities not decoded. Returns its end and its shape.
    #[inline(always)]
    pub(crate) fn text(&mut self) -> (usize, TextShape) {
        let (end, shape) = self.text_run(self.at);
        self.at = end;
        (end, shape)
    }

    /// Returns the end of the text that starts at `from`, at the next `<` that begins markup, and
    /// its shape.
    #[inline(always)]
    fn text_run(&mut self, from: usize) -> (usize, TextShape) {
        let text = self.text;
        let (mut letters, mut gaps, mut odd) = (0, 0, 0);
        // Whether the byte before the block is white space of this run.
        let mut carry = 0;
        let mut at = from;
        let mut leading = false;
        let end = loop {
            let base = self.block.seek(text, at);
            let run = byte_masks::from(at);
            if at == from {
                leading = self.block.space >> (at - base) & 1 == 1;
            }
            // `<` before `<` or white space begins no markup.
            let mut angles = self.block.angle & run & !((self.block.angle | self.block.space) >> 1);
            let end = loop {
                if angles == 0 {
                    break text.len().min(base + BLOCK);
                }
                let found = base + angles.trailing_zeros() as usize;
                // A `<` at the start of a run is no markup.
                if found > from && begins_markup(text.get(found + 1).copied()) {
                    break found;
                }
                angles &= angles - 1;
            };
            let run = run & byte_masks::below(end - base);
            let space = self.block.space & run;
            let letter = run & !space;
            letters += letter.count_ones();
            gaps += (letter & (space << 1 | carry)).count_ones();
            odd |= self.block.odd & run;
            carry = space >> (BLOCK - 1);
            if end < base + BLOCK || end == text.len() {
                break end;
            }
            at = end;
        };
        let trailing = matches!(text[end - 1], b' ' | b'\n' | b'\r' | b'\t' | 0x0C);
        (end, TextShape { known: odd == 0, letters, gaps, leading, trailing })
    }

    /// Reads a start tag.
    #[inline(always)]
    pub(crate) fn open(&mut self) -> StartTag {
        let start = self.at;
        let (name_end, tag) = self.name(start + 1);
        // Most tags have no attributes.
        let (attrs_end, end, may_hide) = if self.text.get(name_end) == Some(&b'>') {
            (name_end, name_end + 1, false)
        } else {
            self.tag_end(name_end)
        };
        self.at = end;
        if !self.foreign && tag.is_raw() && attrs_end < self.text.len() {
            self.raw = RawText::of(tag);
        }
        StartTag { tag, start, name_end, attrs_end, may_hide, shown: true }
    }

    /// Reads an end tag.
    #[inline(always)]
    pub(crate) fn close(&mut self) -> EndTag {
        let start = self.at;
        let (name_end, tag) = self.name(start + 2);
        self.at = if self.text.get(name_end) == Some(&b'>') {
            name_end + 1
        } else {
            self.tag_end(name_end).1
        };
        EndTag { tag, start, name_end }
    }

    /// Reads the name that begins at `from`. Returns its end and its element.
    #[inline(always)]
    fn name(&self, from: usize) -> (usize, Tag) {
        const HIGH: u64 = 0x8080_8080_8080_8080;
        if let Some(Ok(word)) = self.text.get(from..from + 8).map(<[u8; 8]>::try_from) {
            let word = u64::from_le_bytes(word);
            // A byte up to 0x20 ends a name, like `>` and `/`. The lowest set bit is exact.
            let blank = word.wrapping_sub(0x2121_2121_2121_2121) & !word & HIGH;
            let ends = blank | has_byte(word, b'>') | has_byte(word, b'/');
            if ends != 0 {
                let bits = ends.trailing_zeros() & !7;
                return (from + (bits / 8) as usize, Tag::of_packed(word & ((1u64 << bits) - 1)));
            }
        }
        self.long_name(from)
    }

    /// Does the same for a name that is long or at the end of the page.
    #[cold]
    fn long_name(&self, from: usize) -> (usize, Tag) {
        let rest = &self.text[from..];
        let end = from
            + rest.iter().position(|b| matches!(b, b'>' | b'/' | 0..=b' ')).unwrap_or(rest.len());
        (end, Tag::of(&self.text[from..end]))
    }

    /// Returns the end of the attributes, the end of the tag, and whether the attributes may hide
    /// the element. A quote counts only after `=`, where a value may begin.
    fn tag_end(&mut self, from: usize) -> (usize, usize, bool) {
        let text = self.text;
        // The closing quote of the current value; `>` outside of values.
        let mut wanted = b'>';
        let mut may_hide = false;
        let mut at = from;
        while at < text.len() {
            let base = self.block.seek(text, at);
            let run = byte_masks::from(at);
            let hides = self.block.hides & run;
            let mut ends = self.block.ends & run;
            while ends != 0 {
                let bit = ends.trailing_zeros() as usize;
                let found = base + bit;
                let byte = text[found];
                if wanted != b'>' {
                    wanted = if byte == wanted { b'>' } else { wanted };
                } else if byte == b'>' {
                    return (found, found + 1, may_hide || hides & byte_masks::below(bit) != 0);
                } else if opens_value(&text[from..found]) {
                    wanted = byte;
                }
                ends &= ends - 1;
            }
            may_hide |= hides != 0;
            at = base + BLOCK;
        }
        (text.len(), text.len(), may_hide)
    }

    /// Reads a comment, doctype or processing instruction, or a CDATA section, whose range of text
    /// it returns.
    pub(crate) fn declaration(&mut self) -> Option<(usize, usize)> {
        let start = self.at;
        let rest = &self.text[start..];
        if rest.starts_with(b"<!--") {
            self.at = self.comment_end(start);
            return None;
        }
        if self.foreign && rest.starts_with(b"<![cdata[") {
            let begin = start + 9;
            let end =
                self.finders.cdata.find(&self.text[begin..]).map_or(self.text.len(), |n| begin + n);
            self.at = self.text.len().min(end + 3);
            return Some((begin, end));
        }
        self.at = memchr(b'>', rest).map_or(self.text.len(), |n| start + n + 1);
        None
    }

    fn comment_end(&self, start: usize) -> usize {
        let text = self.text;
        // `<!-->` and `<!--->` are complete comments.
        let mut at = start + 4;
        loop {
            let Some(n) = memchr_near(b'>', &text[at..]) else { return text.len() };
            let found = at + n;
            let inner = &text[start + 2..found];
            if inner.ends_with(b"--") || (inner.ends_with(b"--!") && inner.len() > 4) {
                return found + 1;
            }
            at = found + 1;
        }
    }

    /// Reads the content of a raw-text element up to its end tag. Returns its range, which may be
    /// empty.
    pub(crate) fn raw(&mut self, element: RawText) -> (usize, usize) {
        let start = self.at;
        self.at = self.raw_end(element, start);
        (start, self.at)
    }

    fn raw_end(&self, element: RawText, start: usize) -> usize {
        let Some(tag) = element.end_tag() else { return self.text.len() };
        // Scripts with a source are usually empty.
        if self.text[start..].starts_with(tag) && self.text.get(start + tag.len()) == Some(&b'>') {
            return start;
        }
        let mut at = start;
        let mut escape = ScriptEscape { at: start, state: EscapeState::Plain };
        loop {
            let rest = &self.text[at..];
            let found = match element {
                RawText::Script => self.finders.script.find(rest),
                RawText::Style => self.finders.style.find(rest),
                _ => memchr::memmem::find(rest, tag),
            };
            let Some(n) = found else { return self.text.len() };
            let after = at + n + tag.len();
            if ends_name(self.text.get(after))
                && (element != RawText::Script
                    || escape.ends_at(self.text, at + n, &self.finders.comment))
            {
                return at + n;
            }
            at = after;
        }
    }
}

/// Returns whether `next` ends the name of a tag.
fn ends_name(next: Option<&u8>) -> bool {
    matches!(next, None | Some(b'>' | b'/' | b' ' | b'\t' | b'\n' | b'\r' | 0x0C))
}

/// The escaped states of script data: after `<!--`, a `<script` makes the next `</script` a part of
/// the script.
struct ScriptEscape {
    /// The end of what was read.
    at: usize,
    state: EscapeState,
}

#[derive(Clone, Copy, PartialEq)]
enum EscapeState {
    Plain,
    Escaped,
    DoubleEscaped,
}

impl ScriptEscape {
    /// Reads on to the end tag at `end`. Returns whether it ends the script.
    fn ends_at(&mut self, text: &[u8], end: usize, comment: &Finder<'_>) -> bool {
        loop {
            let rest = &text[self.at..end];
            let dashes = || memchr::memmem::find(rest, b"-->");
            match self.state {
                EscapeState::Plain => {
                    let Some(n) = comment.find(rest) else { break };
                    // The dashes may belong to the end of the comment, too.
                    (self.at, self.state) = (self.at + n + 2, EscapeState::Escaped);
                }
                EscapeState::Escaped => {
                    let close = dashes();
                    let open = script_tag(&rest[..close.unwrap_or(rest.len())], text.get(end));
                    match (open, close) {
                        (Some(n), _) => {
                            (self.at, self.state) = (self.at + n, EscapeState::DoubleEscaped)
                        }
                        (None, Some(n)) => {
                            (self.at, self.state) = (self.at + n + 3, EscapeState::Plain)
                        }
                        (None, None) => break,
                    }
                }
                EscapeState::DoubleEscaped => match dashes() {
                    Some(n) => (self.at, self.state) = (self.at + n + 3, EscapeState::Plain),
                    None => {
                        (self.at, self.state) = (end + b"</script".len(), EscapeState::Escaped);
                        return false;
                    }
                },
            }
        }
        true
    }
}

/// Returns the end of the first `<script` in `text` that is a whole name. `next` follows `text`.
fn script_tag(text: &[u8], next: Option<&u8>) -> Option<usize> {
    const TAG: &[u8] = b"<script";
    let ends = memchr::memmem::find_iter(text, TAG).map(|n| n + TAG.len());
    ends.into_iter().find(|&end| {
        let after = text.get(end).or(next);
        after.is_some() && ends_name(after)
    })
}

/// Returns whether `<` before `next` begins markup.
#[inline]
fn begins_markup(next: Option<u8>) -> bool {
    matches!(next, Some(b'a'..=b'z' | b'/' | b'!' | b'?'))
}

/// Returns whether a quote after `before` begins an attribute value.
#[inline]
fn opens_value(before: &[u8]) -> bool {
    match before {
        [.., b'a'..=b'z', b'='] => return true,
        [.., b'=' | b' ' | b'\t' | b'\n' | b'\r' | 0x0C] => {}
        _ => return false,
    }
    let Some(name) = before.trim_ascii_end().strip_suffix(b"=") else { return false };
    // `=` without a name before it is a name itself.
    !matches!(name.trim_ascii_end().last(), None | Some(b'=' | b'"' | b'\'' | b'/'))
}

#[inline]
fn memchr_near(byte: u8, bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    for chunk in bytes.chunks_exact(8).take(4) {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        let mask = has_byte(u64::from_le_bytes(word), byte);
        if mask != 0 {
            return Some(at + (mask.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
    memchr(byte, &bytes[at..]).map(|n| at + n)
}

/// Returns the high bit of each byte of `word` that equals `byte`. Only the lowest set bit is
/// exact; it is the one used.
#[inline]
fn has_byte(word: u64, byte: u8) -> u64 {
    const LOW: u64 = 0x0101_0101_0101_0101;
    let x = word ^ (LOW * byte as u64);
    x.wrapping_sub(LOW) & !x & (LOW << 7)
}
