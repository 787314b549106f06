//! Where each token of a page stands: in code, in visible text, in text that only shows without scripts, or out of sight.
//!
//! One element at a time is *skipped* (noscript, template, svg, or anything hidden), with the nesting of elements of its
//! own name counted, so no stack is needed and no page can make one grow. A skipped element that is never closed reaches to
//! the end of the body, as it does in a browser.

use super::attributes::{self, Attributes};
use super::token::{Finders, Raw, Token, Tokens};

/// Where something in a page stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Place {
    /// A tag or a script that runs.
    Code,
    /// Text a reader sees.
    Text,
    /// Text inside `<noscript>`.
    Noscript,
    /// Text of an element that is hidden by an attribute.
    Hidden,
    /// What neither runs nor shows: comments, `<meta>`, templates, styles, data scripts, the content of text areas.
    Inert,
    /// The title.
    Title,
    /// A response header.
    Header,
}

impl Place {
    /// Its name in JSON.
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
    name: &'t [u8],
    depth: u32,
    why: Why,
}

/// A walk over the tokens of a page.
pub(super) struct Walk<'t> {
    text: &'t [u8],
    tokens: Tokens<'t>,
    skip: Option<Skip<'t>>,
    data_script: bool,
    title_seen: bool,
}

impl<'t> Walk<'t> {
    /// A walk over `text`, which is in lower case.
    pub(super) fn new(text: &'t [u8], finders: &'t Finders) -> Self {
        Self { text, tokens: Tokens::new(text, finders), skip: None, data_script: false, title_seen: false }
    }

    /// The next token and where it stands.
    #[inline]
    pub(super) fn next(&mut self) -> Option<(Place, Token)> {
        let token = self.tokens.next()?;
        let place = match token {
            Token::Text { .. } | Token::CData { .. } => self.text_place(),
            Token::Open { start, name_end, attrs_end, .. } => self.open(start, name_end, attrs_end),
            Token::Close { start, name_end, .. } => self.close(start, name_end),
            Token::Raw { element, .. } => self.raw_place(element),
            Token::Comment { .. } => Place::Inert,
        };
        Some((place, token))
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

    #[inline]
    fn open(&mut self, start: usize, name_end: usize, attrs_end: usize) -> Place {
        let name = &self.text[start + 1..name_end];
        let attrs = &self.text[name_end..attrs_end];
        if name == b"script" {
            self.data_script = is_data_script(attrs);
        }
        if let Some(skip) = self.skip {
            self.open_skipped(skip, name, attrs);
        } else {
            self.begin_skip(name, attrs);
        }
        let template = matches!(self.skip, Some(Skip { why: Why::Template, .. }));
        if name == b"meta" || template { Place::Inert } else { Place::Code }
    }

    #[inline]
    fn begin_skip(&mut self, name: &'t [u8], attrs: &[u8]) {
        let why = match name {
            b"noscript" => Why::Noscript,
            b"template" => Why::Template,
            b"svg" | b"math" => Why::Foreign,
            // The whole page hidden until a script shows it is still what the server sent.
            b"html" | b"body" | b"script" | b"style" | b"title" => return,
            _ if attrs.len() > 6 && !is_void(name) && attributes::hide(attrs) => Why::Hidden,
            _ => return,
        };
        if why == Why::Foreign {
            if attrs.last() == Some(&b'/') {
                return;
            }
            self.tokens.foreign = true;
        }
        self.skip = Some(Skip { name, depth: 1, why });
    }

    fn open_skipped(&mut self, skip: Skip<'t>, name: &'t [u8], attrs: &[u8]) {
        if skip.why == Why::Foreign {
            if breaks_out(name) {
                self.end_skip();
                self.begin_skip(name, attrs);
            } else if name == skip.name && attrs.last() != Some(&b'/') {
                self.skip = Some(Skip { depth: skip.depth + 1, ..skip });
            }
        } else if name == skip.name && skip.why != Why::Noscript {
            if closes_itself(name) {
                // A new one ends the old one; whether the new one is hidden is its own affair.
                self.end_skip();
                self.begin_skip(name, attrs);
            } else {
                self.skip = Some(Skip { depth: skip.depth + 1, ..skip });
            }
        } else if skip.name == b"p" && ends_paragraph(name) {
            self.end_skip();
            self.begin_skip(name, attrs);
        }
    }

    #[inline]
    fn close(&mut self, start: usize, name_end: usize) -> Place {
        if let Some(skip) = self.skip {
            let name = &self.text[start + 2..name_end];
            if name == skip.name {
                if skip.depth <= 1 {
                    self.end_skip();
                } else {
                    self.skip = Some(Skip { depth: skip.depth - 1, ..skip });
                }
            } else if skip.why == Why::Hidden && closes_itself(skip.name) && is_list_or_table(name) {
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

/// A script that holds data or a template: it does not run.
fn is_data_script(attrs: &[u8]) -> bool {
    if attrs.len() < 6 {
        return false;
    }
    Attributes::new(attrs).find(|(name, _)| *name == b"type").is_some_and(|(_, kind)| {
        [&b"json"[..], b"template", b"text/html", b"text/x-", b"importmap", b"speculationrules"]
            .iter()
            .any(|k| memchr::memmem::find(kind, k).is_some())
    })
}

pub(super) fn is_void(name: &[u8]) -> bool {
    matches!(
        name,
        b"area"
            | b"base"
            | b"br"
            | b"col"
            | b"embed"
            | b"hr"
            | b"img"
            | b"input"
            | b"link"
            | b"meta"
            | b"param"
            | b"source"
            | b"track"
            | b"wbr"
    )
}

/// Elements whose end tag may be left out before another one of their kind.
fn closes_itself(name: &[u8]) -> bool {
    matches!(name, b"p" | b"li" | b"dt" | b"dd" | b"option" | b"optgroup" | b"tr" | b"td" | b"th" | b"tbody" | b"thead")
}

fn is_list_or_table(name: &[u8]) -> bool {
    matches!(name, b"ul" | b"ol" | b"dl" | b"table" | b"select" | b"body" | b"html")
}

fn ends_paragraph(name: &[u8]) -> bool {
    matches!(
        name,
        b"div"
            | b"ul"
            | b"ol"
            | b"dl"
            | b"table"
            | b"section"
            | b"article"
            | b"aside"
            | b"header"
            | b"footer"
            | b"main"
            | b"nav"
            | b"form"
            | b"pre"
            | b"blockquote"
            | b"hr"
            | b"h1"
            | b"h2"
            | b"h3"
            | b"h4"
            | b"h5"
            | b"h6"
            | b"figure"
    )
}

/// HTML elements that end foreign content that was never closed.
fn breaks_out(name: &[u8]) -> bool {
    ends_paragraph(name)
        || matches!(name, b"p" | b"body" | b"head" | b"img" | b"br" | b"li" | b"span" | b"b" | b"i" | b"strong")
}
