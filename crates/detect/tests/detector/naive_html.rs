//! A naive HTML tokenizer, written to be obvious: one character at a time, one state at a time,
//! everything copied. Tests and the fuzzer compare the streaming tokenizer with it.

/// The result of the naive tokenizer.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Slow {
    /// Visible characters.
    pub(crate) visible: usize,
    /// Characters inside `<noscript>`.
    pub(crate) noscript: usize,
}

#[derive(Clone, Debug)]
struct OpenTag {
    name: String,
    attributes: Vec<(String, String)>,
    self_closing: bool,
}

/// The page in lower case, as characters, with a cursor.
struct Reader {
    text: Vec<char>,
    at: usize,
}

const RAW: [&str; 9] =
    ["script", "style", "title", "textarea", "iframe", "noembed", "noframes", "xmp", "plaintext"];
const VOID: [&str; 14] = [
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source",
    "track", "wbr",
];
const INLINE: [&str; 26] = [
    "a", "b", "i", "u", "s", "em", "strong", "span", "font", "small", "code", "tt", "big", "sub",
    "sup", "abbr", "mark", "bdi", "bdo", "wbr", "kbd", "var", "time", "label", "script", "style",
];
const CLOSES_ITSELF: [&str; 11] =
    ["p", "li", "dt", "dd", "option", "optgroup", "tr", "td", "th", "tbody", "thead"];
const ENDS_PARAGRAPH: [&str; 23] = [
    "div",
    "ul",
    "ol",
    "dl",
    "table",
    "section",
    "article",
    "aside",
    "header",
    "footer",
    "main",
    "nav",
    "form",
    "pre",
    "blockquote",
    "hr",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "figure",
];
const BREAKS_OUT: [&str; 10] = ["p", "body", "head", "img", "br", "li", "span", "b", "i", "strong"];

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\n' | '\r' | '\t' | '\u{C}')
}

impl Reader {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.text.get(self.at + ahead).copied()
    }

    fn looking_at(&self, what: &str) -> bool {
        what.chars().enumerate().all(|(n, c)| self.peek(n) == Some(c))
    }

    /// Reads up to and including `what`, or to the end.
    fn skip_past(&mut self, what: &str) -> String {
        let mut out = String::new();
        while self.at < self.text.len() {
            if self.looking_at(what) {
                self.at += what.chars().count();
                return out;
            }
            out.push(self.text[self.at]);
            self.at += 1;
        }
        out
    }

    /// Reads the tag after `<` or `</`: name, attributes, `>`. `None` if the page ends before.
    fn tag(&mut self) -> Option<OpenTag> {
        let mut name = String::new();
        while let Some(c) = self.peek(0) {
            if c == '>' || c == '/' || (c as u32) <= 0x20 {
                break;
            }
            name.push(c);
            self.at += 1;
        }
        let from = self.at;
        loop {
            let c = self.peek(0)?;
            self.at += 1;
            match c {
                '>' => break,
                '"' | '\'' => {
                    // A value begins after a name and `=`; without a name, `=` is a name itself.
                    let before: String = self.text[from..self.at - 1].iter().collect();
                    let trim =
                        |s: &str| s.trim_end_matches(|c: char| c.is_ascii_whitespace()).to_owned();
                    let name = trim(&before).strip_suffix('=').map(trim);
                    if name.is_some_and(|n| !n.is_empty() && !n.ends_with(['=', '"', '\'', '/'])) {
                        while self.peek(0)? != c {
                            self.at += 1;
                        }
                        self.at += 1;
                    }
                }
                _ => {}
            }
        }
        let inner: Vec<char> = self.text[from..self.at - 1].to_vec();
        Some(OpenTag {
            name,
            self_closing: inner.last() == Some(&'/'),
            attributes: attributes(&inner),
        })
    }
}

fn attributes(inner: &[char]) -> Vec<(String, String)> {
    let mut out = Vec::new();
    let mut at = 0;
    let white = |c: char| c.is_ascii_whitespace();
    loop {
        while at < inner.len() && (white(inner[at]) || inner[at] == '/') {
            at += 1;
        }
        if at >= inner.len() {
            return out;
        }
        let mut name = inner[at].to_string();
        at += 1;
        while at < inner.len() && !matches!(inner[at], '=' | '/') && !is_space(inner[at]) {
            name.push(inner[at]);
            at += 1;
        }
        let mut ahead = at;
        while ahead < inner.len() && white(inner[ahead]) {
            ahead += 1;
        }
        let mut value = String::new();
        if inner.get(ahead) == Some(&'=') {
            at = ahead + 1;
            while at < inner.len() && white(inner[at]) {
                at += 1;
            }
            if let Some(quote @ ('"' | '\'')) = inner.get(at).copied() {
                at += 1;
                while at < inner.len() && inner[at] != quote {
                    value.push(inner[at]);
                    at += 1;
                }
                at += 1;
            } else {
                while at < inner.len() && !white(inner[at]) {
                    value.push(inner[at]);
                    at += 1;
                }
            }
        }
        out.push((name, value));
    }
}

fn hides(tag: &OpenTag) -> bool {
    tag.attributes.iter().any(|(name, value)| {
        let declares = |property: &str, wanted: &str| {
            value.split(';').any(|d| {
                d.split_once(':').is_some_and(|(p, v)| {
                    let trim =
                        |s: &str| s.trim_matches(|c: char| c.is_ascii_whitespace()).to_owned();
                    trim(p) == property && trim(v).starts_with(wanted)
                })
            })
        };
        name == "hidden"
            || (name == "style"
                && (declares("display", "none") || declares("visibility", "hidden")))
    })
}

/// Characters of `text` with white space collapsed, and whether white space is pending.
#[derive(Default)]
struct Count {
    chars: usize,
    space: bool,
}

impl Count {
    fn add(&mut self, text: &str) {
        let mut rest: Vec<char> = text.chars().collect();
        rest.reverse();
        while let Some(c) = rest.pop() {
            let c = if c == '&' { entity(&mut rest) } else { c };
            if is_space(c)
                || matches!(c, '\u{A0}' | '\u{200B}'..='\u{200D}' | '\u{3000}' | '\u{FEFF}')
                || c == WHITE
            {
                self.space = true;
            } else {
                self.chars += 1 + usize::from(self.space && self.chars > 0);
                self.space = false;
            }
        }
    }
}

/// A stand-in for white space that was written as an entity: a character that no page has.
const WHITE: char = '\u{10FFFE}';

/// Returns the character of the entity that begins before `rest` (reversed); `&` if there is none.
fn entity(rest: &mut Vec<char>) -> char {
    let ahead: String = rest.iter().rev().take(40).collect();
    let (len, c) = if let Some(number) = ahead.strip_prefix('#') {
        let (digits, radix, skip) = match number.strip_prefix('x') {
            Some(hex) => (hex, 16, 2),
            None => (number, 10, 1),
        };
        let run: String = digits.chars().take(8).take_while(|c| c.is_digit(radix)).collect();
        if run.is_empty() {
            return '&';
        }
        let semicolon = usize::from(digits[run.len()..].starts_with(';'));
        let value = u32::from_str_radix(&run, radix).unwrap_or(0x11_0000);
        (skip + run.len() + semicolon, char::from_u32(value).unwrap_or('?'))
    } else {
        let run: String = ahead.chars().take(32).take_while(char::is_ascii_alphanumeric).collect();
        if run.is_empty() || !ahead[run.len()..].starts_with(';') {
            return '&';
        }
        let white =
            ["nbsp", "ensp", "emsp", "thinsp", "shy", "zwnj", "zwj"].contains(&run.as_str());
        (run.len() + 1, if white { WHITE } else { 'x' })
    };
    rest.truncate(rest.len() - len);
    if c.is_whitespace() || ('\u{200B}'..='\u{200D}').contains(&c) { WHITE } else { c }
}

/// Runs the naive tokenizer.
pub(crate) fn slow(html: &str) -> Slow {
    let mut reader = Reader { text: html.chars().map(|c| c.to_ascii_lowercase()).collect(), at: 0 };
    let (mut visible, mut noscript) = (Count::default(), Count::default());
    // The skipped element: its name, its depth, and the reason (n, h, t, s for svg and math).
    let mut skip: Option<(String, usize, char)> = None;
    let mut pending_raw: Option<String> = None;
    let begin = |tag: &OpenTag| -> Option<(String, usize, char)> {
        let why = match tag.name.as_str() {
            "noscript" => 'n',
            "template" if tag.attributes.iter().any(|(name, _)| name == "shadowrootmode") => {
                return None;
            }
            "template" => 't',
            "svg" | "math" if tag.self_closing => return None,
            "svg" | "math" => 's',
            "html" | "body" | "script" | "style" | "title" => return None,
            name if !VOID.contains(&name) && hides(tag) => 'h',
            _ => return None,
        };
        Some((tag.name.clone(), 1, why))
    };
    // The whole page, while only the content of a `noscript` is read: nothing in it reaches beyond.
    let mut whole: Option<Vec<char>> = None;
    loop {
        if reader.at >= reader.text.len() {
            let Some(page) = whole.take() else { break };
            (reader.text, pending_raw) = (page, None);
            continue;
        }
        if let Some(element) = pending_raw.take() {
            let mut raw = String::new();
            let end = format!("</{element}");
            // 0: plain, 1: after `<!--`, 2: after `<script` in it.
            let mut escape = 0;
            while reader.at < reader.text.len() {
                let after = reader.peek(end.len());
                let named = |length: usize| {
                    reader.peek(length).is_some_and(|c| c == '>' || c == '/' || is_space(c))
                };
                if element == "script" {
                    let skipped = match escape {
                        // The dashes may belong to the end of the comment, too.
                        0 if reader.looking_at("<!--") => Some((1, 2)),
                        1 | 2 if reader.looking_at("-->") => Some((0, 3)),
                        1 if reader.looking_at("<script") && named(7) => Some((2, 7)),
                        2 if reader.looking_at("</script")
                            && (named(8) || reader.peek(8).is_none()) =>
                        {
                            Some((1, 8))
                        }
                        _ => None,
                    };
                    if let Some((state, length)) = skipped {
                        escape = state;
                        reader.at += length;
                        continue;
                    }
                }
                if element != "plaintext"
                    && reader.looking_at(&end)
                    && after.is_none_or(|c| c == '>' || c == '/' || is_space(c))
                {
                    break;
                }
                raw.push(reader.text[reader.at]);
                reader.at += 1;
            }
            if element == "xmp" || element == "plaintext" {
                match &skip {
                    None => visible.add(&raw),
                    Some((_, _, 'n')) => noscript.add(&raw),
                    _ => {}
                }
            }
            continue;
        }
        let markup = reader.peek(0) == Some('<')
            && matches!(reader.peek(1), Some('a'..='z' | '/' | '!' | '?'));
        if !markup {
            let mut text = String::new();
            loop {
                text.push(reader.text[reader.at]);
                reader.at += 1;
                let more = reader.at < reader.text.len()
                    && !(reader.peek(0) == Some('<')
                        && matches!(reader.peek(1), Some('a'..='z' | '/' | '!' | '?')));
                if !more {
                    break;
                }
            }
            match &skip {
                None => visible.add(&text),
                Some((_, _, 'n')) => noscript.add(&text),
                _ => {}
            }
            continue;
        }
        let foreign = matches!(&skip, Some((_, _, 's')));
        if reader.looking_at("<!--") {
            // `<!-->` and `<!--->` are complete; others end at `-->` or `--!>`.
            reader.at += 4;
            let mut inner = String::from("--");
            while reader.at < reader.text.len() {
                let c = reader.text[reader.at];
                reader.at += 1;
                if c == '>'
                    && (inner.ends_with("--") || (inner.ends_with("--!") && inner.len() > 4))
                {
                    break;
                }
                inner.push(c);
            }
        } else if foreign && reader.looking_at("<![cdata[") {
            reader.at += 9;
            reader.skip_past("]]>");
        } else if reader.peek(1) == Some('/') && matches!(reader.peek(2), Some('a'..='z')) {
            reader.at += 2;
            let name = match reader.tag() {
                Some(tag) => tag.name,
                None => {
                    reader.at = reader.text.len();
                    continue;
                }
            };
            if let Some((skipped, depth, why)) = &mut skip {
                let ends_list =
                    ["ul", "ol", "dl", "table", "select", "body", "html"].contains(&name.as_str());
                if *skipped == name {
                    *depth -= 1;
                    if *depth == 0 {
                        skip = None;
                    }
                } else if *why == 'h' && CLOSES_ITSELF.contains(&skipped.as_str()) && ends_list {
                    skip = None;
                }
            }
            if !INLINE.contains(&name.as_str()) {
                (visible.space, noscript.space) = (true, true);
            }
        } else if matches!(reader.peek(1), Some('a'..='z')) {
            reader.at += 1;
            let Some(tag) = reader.tag() else {
                reader.at = reader.text.len();
                continue;
            };
            if !foreign && RAW.contains(&tag.name.as_str()) {
                pending_raw = Some(tag.name.clone());
            }
            let was_noscript = matches!(&skip, Some((_, _, 'n')));
            match &mut skip {
                None => skip = begin(&tag),
                Some((name, depth, why)) => {
                    let same = *name == tag.name;
                    let paragraph = ENDS_PARAGRAPH.contains(&tag.name.as_str());
                    let ends = match why {
                        's' => paragraph || BREAKS_OUT.contains(&tag.name.as_str()),
                        _ => {
                            (same && CLOSES_ITSELF.contains(&tag.name.as_str()))
                                || (name == "p" && paragraph)
                        }
                    };
                    if ends {
                        skip = begin(&tag);
                    } else if same && *why != 'n' && !(*why == 's' && tag.self_closing) {
                        *depth += 1;
                    }
                }
            }
            if !was_noscript && whole.is_none() && matches!(&skip, Some((_, _, 'n'))) {
                let end: Vec<char> = "</noscript".chars().collect();
                let found =
                    reader.text[reader.at..].windows(end.len()).position(|part| part == end);
                whole = found.map(|n| {
                    let rest = reader.text.split_off(reader.at + n);
                    reader.text.iter().copied().chain(rest).collect()
                });
            }
            let in_template = matches!(&skip, Some((_, _, 't')));
            if tag.name != "meta" && !in_template && !INLINE.contains(&tag.name.as_str()) {
                (visible.space, noscript.space) = (true, true);
            }
        } else {
            reader.skip_past(">");
        }
    }
    Slow { visible: visible.chars, noscript: noscript.chars }
}
