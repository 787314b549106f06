//! HTML elements that matter for reading a page, recognised once per tag by their name as an
//! integer.

/// Bits of the hash of a name.
const HASH_BITS: u32 = 9;
/// A multiplier without collisions among the names below; with any other, the table does not
/// compile.
const HASH: u64 = 0x814cd8c10ff34043;

macro_rules! tags {
    ($($variant:ident = $name:literal,)+) => {
        /// An HTML element.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Tag {
            $($variant,)+
            /// An unlisted element with a hyphen in its name: a component.
            Component,
            /// Any other unlisted element.
            Other,
        }

        const TABLE: [(u64, Tag); 1 << HASH_BITS] = {
            let mut table = [(0, Tag::Other); 1 << HASH_BITS];
            $(
                let at = place(pack($name));
                assert!(table[at].0 == 0, "two names with one hash");
                table[at] = (pack($name), Tag::$variant);
            )+
            table
        };
    };
}

/// Returns at most eight bytes as an integer, the first byte lowest.
#[inline]
const fn pack(name: &[u8]) -> u64 {
    let mut packed = 0;
    let mut i = 0;
    while i < name.len() && i < 8 {
        packed |= (name[i] as u64) << (8 * i);
        i += 1;
    }
    packed
}

#[inline]
const fn place(packed: u64) -> usize {
    (packed.wrapping_mul(HASH) >> (64 - HASH_BITS)) as usize
}

tags! {
    A = b"a", Abbr = b"abbr", Area = b"area", Article = b"article", Aside = b"aside", Audio = b"audio", B = b"b", Base = b"base",
    Bdi = b"bdi", Bdo = b"bdo", Big = b"big", Body = b"body", Br = b"br", Code = b"code", Col = b"col", Dd = b"dd", Div = b"div",
    Dl = b"dl", Dt = b"dt", Em = b"em", Embed = b"embed", Figure = b"figure", Font = b"font", Footer = b"footer",
    Form = b"form", Frame = b"frame", H1 = b"h1", H2 = b"h2", H3 = b"h3", H4 = b"h4", H5 = b"h5", H6 = b"h6", Head = b"head",
    Header = b"header", Hr = b"hr", Html = b"html", I = b"i", Iframe = b"iframe", Img = b"img", Input = b"input", Kbd = b"kbd",
    Label = b"label", Li = b"li", Link = b"link", Main = b"main", Mark = b"mark", Math = b"math", Meta = b"meta", Nav = b"nav",
    Noembed = b"noembed", Noframes = b"noframes", Noscript = b"noscript", Object = b"object", Ol = b"ol",
    Optgroup = b"optgroup", Option = b"option", P = b"p", Param = b"param", Pre = b"pre", S = b"s", Script = b"script",
    Section = b"section", Select = b"select", Small = b"small", Source = b"source", Span = b"span", Strong = b"strong",
    Style = b"style", Sub = b"sub", Sup = b"sup", Svg = b"svg", Table = b"table", Tbody = b"tbody", Td = b"td",
    Template = b"template", Textarea = b"textarea", Th = b"th", Thead = b"thead", Time = b"time", Title = b"title", Tr = b"tr",
    Track = b"track", Tt = b"tt", U = b"u", Ul = b"ul", Var = b"var", Video = b"video", Wbr = b"wbr", Xmp = b"xmp",
    // Longer names, by their first eight bytes.
    Blockquote = b"blockquo", Plaintext = b"plaintex",
}

impl Tag {
    /// Returns the element called `name`, which is in lower case.
    pub(crate) fn of(name: &[u8]) -> Self {
        match name {
            b"plaintext" => Self::Plaintext,
            b"blockquote" => Self::Blockquote,
            // The packed form of the two long names is no element's name.
            b"plaintex" | b"blockquo" => Self::Other,
            _ if name.len() <= 8 => Self::of_packed(pack(name)),
            _ if name.contains(&b'-') => Self::Component,
            _ => Self::Other,
        }
    }

    /// Returns the element whose name, of at most eight bytes, is `packed` with the first byte
    /// lowest.
    #[inline]
    pub(crate) fn of_packed(packed: u64) -> Self {
        let (name, tag) = TABLE[place(packed)];
        if name == packed && packed != 0 {
            tag
        } else if packed.to_le_bytes().contains(&b'-') {
            Self::Component
        } else {
            Self::Other
        }
    }

    #[inline]
    fn is(self, kind: u16) -> bool {
        KINDS[self as usize] & kind != 0
    }

    /// Returns whether the element has no content.
    #[inline]
    pub(crate) fn is_void(self) -> bool {
        self.is(VOID)
    }

    /// Returns whether the element does not separate words.
    #[inline]
    pub(crate) fn is_inline(self) -> bool {
        self.is(INLINE)
    }

    /// Returns whether [`crate::html::page_facts::PageFacts`] counts the element (links are counted
    /// separately).
    #[inline]
    pub(crate) fn is_counted(self) -> bool {
        self.is(COUNTED)
    }

    /// Returns whether its end tag may be omitted before another element of its kind.
    pub(crate) fn closes_itself(self) -> bool {
        self.is(CLOSES_ITSELF)
    }

    /// Returns whether its end closes the elements left open in it.
    pub(crate) fn is_list_or_table(self) -> bool {
        self.is(LIST_OR_TABLE)
    }

    /// Returns whether it closes an open paragraph.
    pub(crate) fn ends_paragraph(self) -> bool {
        self.is(ENDS_PARAGRAPH)
    }

    /// Returns whether it closes foreign content that was left open.
    pub(crate) fn breaks_out(self) -> bool {
        self.is(ENDS_PARAGRAPH | BREAKS_OUT)
    }

    /// Returns whether its content is raw text.
    #[inline]
    pub(crate) fn is_raw(self) -> bool {
        self.is(RAW)
    }

    /// Returns whether an application may be mounted in it.
    #[inline]
    pub(crate) fn is_mount(self) -> bool {
        self.is(MOUNT)
    }
}

const VOID: u16 = 1;
const INLINE: u16 = 1 << 1;
const COUNTED: u16 = 1 << 2;
const CLOSES_ITSELF: u16 = 1 << 3;
const LIST_OR_TABLE: u16 = 1 << 4;
const ENDS_PARAGRAPH: u16 = 1 << 5;
const BREAKS_OUT: u16 = 1 << 6;
const MOUNT: u16 = 1 << 7;
const RAW: u16 = 1 << 8;

/// Properties of each element.
static KINDS: [u16; Tag::Other as usize + 1] = {
    use Tag::*;
    let kinds: [(u16, &[Tag]); 9] = [
        (
            VOID,
            &[Area, Base, Br, Col, Embed, Hr, Img, Input, Link, Meta, Param, Source, Track, Wbr],
        ),
        (
            INLINE,
            &[
                A, B, I, U, S, Em, Strong, Span, Font, Small, Code, Tt, Big, Sub, Sup, Abbr, Mark,
                Bdi, Bdo, Wbr, Kbd, Var, Time, Label, Script, Style,
            ],
        ),
        (
            COUNTED,
            &[
                Base, Body, Img, Script, Meta, Input, Select, Textarea, Iframe, Frame, Object,
                Embed, Video, Audio, Component, Nav, Article, Form,
            ],
        ),
        (CLOSES_ITSELF, &[P, Li, Dt, Dd, Option, Optgroup, Tr, Td, Th, Tbody, Thead]),
        (LIST_OR_TABLE, &[Ul, Ol, Dl, Table, Select, Body, Html]),
        (
            ENDS_PARAGRAPH,
            &[
                Div, Ul, Ol, Dl, Table, Section, Article, Aside, Header, Footer, Main, Nav, Form,
                Pre, Blockquote, Hr, H1, H2, H3, H4, H5, H6, Figure,
            ],
        ),
        (BREAKS_OUT, &[P, Body, Head, Img, Br, Li, Span, B, I, Strong]),
        (MOUNT, &[Div, Main, Section]),
        (RAW, &[Script, Style, Title, Textarea, Iframe, Noembed, Noframes, Xmp, Plaintext]),
    ];
    let mut table = [0; Tag::Other as usize + 1];
    let mut kind = 0;
    while kind < kinds.len() {
        let (bit, tags) = kinds[kind];
        let mut n = 0;
        while n < tags.len() {
            table[tags[n] as usize] |= bit;
            n += 1;
        }
        kind += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_length_are_recognised() {
        assert_eq!(Tag::of(b"a"), Tag::A);
        assert_eq!(Tag::of(b"noscript"), Tag::Noscript);
        assert_eq!(Tag::of(b"blockquote"), Tag::Blockquote);
        assert_eq!(Tag::of(b"plaintext"), Tag::Plaintext);
        assert_eq!(Tag::of(b"plaintex"), Tag::Other);
        assert_eq!(Tag::of(b"blockquo"), Tag::Other);
        assert_eq!(Tag::of(b"my-app"), Tag::Component);
        assert_eq!(Tag::of(b"noscripts"), Tag::Other);
        assert_eq!(Tag::of(b"font\xff"), Tag::Other);
        assert_eq!(Tag::of(b""), Tag::Other);
    }
}
