//! The elements that matter for reading a page, told apart once per tag by their name as an integer.

/// Bits of the hash by which a name finds its element.
const HASH_BITS: u32 = 9;
/// A multiplier that gives every name below a place of its own; the table does not compile with one that does not.
const HASH: u64 = 0x814cd8c10ff34043;

macro_rules! tags {
    ($($variant:ident = $name:literal,)+) => {
        /// An element.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Tag {
            $($variant,)+
            /// Any other element with a hyphen in its name: a component.
            Component,
            /// Any other.
            Other,
        }

        const TABLE: [(u64, Tag); 1 << HASH_BITS] = {
            let mut table = [(0, Tag::Other); 1 << HASH_BITS];
            $(
                let at = place(pack($name));
                assert!(table[at].0 == 0, "two names in one place");
                table[at] = (pack($name), Tag::$variant);
            )+
            table
        };
    };
}

/// At most eight bytes as an integer, the first one lowest.
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
    A = b"a", ABBR = b"abbr", AREA = b"area", ARTICLE = b"article", ASIDE = b"aside", AUDIO = b"audio", B = b"b", BASE = b"base",
    BDI = b"bdi", BDO = b"bdo", BIG = b"big", BODY = b"body", BR = b"br", CODE = b"code", COL = b"col", DD = b"dd", DIV = b"div",
    DL = b"dl", DT = b"dt", EM = b"em", EMBED = b"embed", FIGURE = b"figure", FONT = b"font", FOOTER = b"footer",
    FORM = b"form", FRAME = b"frame", H1 = b"h1", H2 = b"h2", H3 = b"h3", H4 = b"h4", H5 = b"h5", H6 = b"h6", HEAD = b"head",
    HEADER = b"header", HR = b"hr", HTML = b"html", I = b"i", IFRAME = b"iframe", IMG = b"img", INPUT = b"input", KBD = b"kbd",
    LABEL = b"label", LI = b"li", LINK = b"link", MAIN = b"main", MARK = b"mark", MATH = b"math", META = b"meta", NAV = b"nav",
    NOEMBED = b"noembed", NOFRAMES = b"noframes", NOSCRIPT = b"noscript", OBJECT = b"object", OL = b"ol",
    OPTGROUP = b"optgroup", OPTION = b"option", P = b"p", PARAM = b"param", PRE = b"pre", S = b"s", SCRIPT = b"script",
    SECTION = b"section", SELECT = b"select", SMALL = b"small", SOURCE = b"source", SPAN = b"span", STRONG = b"strong",
    STYLE = b"style", SUB = b"sub", SUP = b"sup", SVG = b"svg", TABLE = b"table", TBODY = b"tbody", TD = b"td",
    TEMPLATE = b"template", TEXTAREA = b"textarea", TH = b"th", THEAD = b"thead", TIME = b"time", TITLE = b"title", TR = b"tr",
    TRACK = b"track", TT = b"tt", U = b"u", UL = b"ul", VAR = b"var", VIDEO = b"video", WBR = b"wbr", XMP = b"xmp",
    // Longer names, by their first eight bytes; no element has just these.
    BLOCKQUO = b"blockquo", PLAINTEXT = b"plaintex",
}

impl Tag {
    /// The element called `name`, which is in lower case.
    pub(super) fn of(name: &[u8]) -> Self {
        match name {
            b"plaintext" => Self::PLAINTEXT,
            b"blockquote" => Self::BLOCKQUO,
            _ if name.len() <= 8 => Self::of_packed(pack(name)),
            _ if name.contains(&b'-') => Self::Component,
            _ => Self::Other,
        }
    }

    /// The element whose name, of at most eight bytes, is `packed` with the first byte lowest.
    #[inline]
    pub(super) fn of_packed(packed: u64) -> Self {
        let (name, tag) = TABLE[place(packed)];
        if name == packed && packed != 0 {
            tag
        } else if packed.to_le_bytes().contains(&b'-') {
            Self::Component
        } else {
            Self::Other
        }
    }

    /// Elements without content.
    #[inline]
    pub(super) fn is_void(self) -> bool {
        use Tag::*;
        matches!(self, AREA | BASE | BR | COL | EMBED | HR | IMG | INPUT | LINK | META | PARAM | SOURCE | TRACK | WBR)
    }

    /// Elements that do not separate words.
    #[inline]
    pub(super) fn is_inline(self) -> bool {
        use Tag::*;
        matches!(
            self,
            A | B
                | I
                | U
                | S
                | EM
                | STRONG
                | SPAN
                | FONT
                | SMALL
                | CODE
                | TT
                | BIG
                | SUB
                | SUP
                | ABBR
                | MARK
                | BDI
                | BDO
                | WBR
                | KBD
                | VAR
                | TIME
                | LABEL
                | SCRIPT
                | STYLE
        )
    }

    /// Elements of which [`super::facts::Facts`] keeps count, links apart.
    #[inline]
    pub(super) fn is_counted(self) -> bool {
        use Tag::*;
        matches!(
            self,
            IMG | SCRIPT
                | META
                | INPUT
                | SELECT
                | TEXTAREA
                | IFRAME
                | FRAME
                | OBJECT
                | EMBED
                | VIDEO
                | AUDIO
                | Component
        )
    }

    /// Elements whose end tag may be left out before another one of their kind.
    pub(super) fn closes_itself(self) -> bool {
        use Tag::*;
        matches!(self, P | LI | DT | DD | OPTION | OPTGROUP | TR | TD | TH | TBODY | THEAD)
    }

    /// Elements whose end ends what was left open in them.
    pub(super) fn is_list_or_table(self) -> bool {
        use Tag::*;
        matches!(self, UL | OL | DL | TABLE | SELECT | BODY | HTML)
    }

    /// Elements that end a paragraph that was left open.
    pub(super) fn ends_paragraph(self) -> bool {
        use Tag::*;
        matches!(
            self,
            DIV | UL
                | OL
                | DL
                | TABLE
                | SECTION
                | ARTICLE
                | ASIDE
                | HEADER
                | FOOTER
                | MAIN
                | NAV
                | FORM
                | PRE
                | BLOCKQUO
                | HR
                | H1
                | H2
                | H3
                | H4
                | H5
                | H6
                | FIGURE
        )
    }

    /// HTML elements that end foreign content that was never closed.
    pub(super) fn breaks_out(self) -> bool {
        use Tag::*;
        self.ends_paragraph() || matches!(self, P | BODY | HEAD | IMG | BR | LI | SPAN | B | I | STRONG)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart_whatever_their_length() {
        assert_eq!(Tag::of(b"a"), Tag::A);
        assert_eq!(Tag::of(b"noscript"), Tag::NOSCRIPT);
        assert_eq!(Tag::of(b"blockquote"), Tag::BLOCKQUO);
        assert_eq!(Tag::of(b"plaintext"), Tag::PLAINTEXT);
        assert_eq!(Tag::of(b"my-app"), Tag::Component);
        assert_eq!(Tag::of(b"noscripts"), Tag::Other);
        assert_eq!(Tag::of(b"font\xff"), Tag::Other);
        assert_eq!(Tag::of(b""), Tag::Other);
    }
}
