//! The decoder of messages.
//!
//! Invariants: no input makes it panic. It takes no more memory than [`MAX_RAW`], [`MAX_ARENA`] and
//! one row for each of [`MAX_ATTEMPTS`] attempts and as many links.
//!
//! Must not know: who may have sent a message.

use std::ops::Range;
use std::time::Duration;

use fetchwise::backoff::{LinkState, MAX_RISK_LEVEL};
use fetchwise::evidence::RemoteAttempt;
use fetchwise::journal::replication::RemoteLinkState;
use fetchwise::time::Timestamp;

use super::names::KNOWN;
use super::{
    HEADER_LEN, Header, MAGIC, MAX_ARENA, MAX_ATTEMPTS, MAX_BODY, MAX_NAME, MAX_RAW, MAX_TAGS,
    Style, VERSION, bit, column, hint_of, parent_of, unzigzag,
};

/// The maximum duration of an attempt in milliseconds (about 300 years).
const MAX_DURATION: u64 = 1 << 43;
/// The maximum number of heuristics of all attempts of a message.
const MAX_TAGS_TOTAL: usize = 1 << 20;

/// The reason why a message cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes are not a message, or the message is truncated.
    #[error("not a fleet message")]
    Foreign,
    /// A newer release wrote it.
    #[error("written by a newer release, in format version {0}")]
    Newer(u8),
    /// The message is longer than allowed, before or after decompression.
    #[error("too large")]
    TooLarge,
    /// The checksum does not match.
    #[error("checksum mismatch")]
    Checksum,
    /// The checksum matches, but the content is invalid.
    #[error("invalid content: {0}")]
    Malformed(&'static str),
}

type Read<T> = Result<T, DecodeError>;

/// A range of the name arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Span(u32, u32);

#[derive(Clone, Debug)]
struct Row {
    position: u64,
    at: i64,
    fetcher: Span,
    bits: u8,
    duration_ms: u64,
    weight: f64,
    tags: Range<u32>,
    link: u64,
}

/// A decoded message.
#[derive(Clone, Debug)]
pub struct Batch {
    header: Header,
    names: String,
    tags: Vec<(Span, Span)>,
    rows: Vec<Row>,
    links: Vec<LinkRow>,
    egress: Span,
}

#[derive(Clone, Copy, Debug)]
struct LinkRow {
    position: u64,
    domain: Span,
    at: i64,
    pause_ms: u64,
    attempts: u32,
    risk_level: u8,
    hint: u8,
    link: u64,
}

/// Returns the header without decoding the attempts. Checks the checksum. `base` and `top` are
/// unknown at this point; they are 0 and `last`.
///
/// # Errors
/// As [`Batch::decode`].
pub fn peek(body: &[u8]) -> Result<Header, DecodeError> {
    split(body).map(|(header, _)| header)
}

fn split(body: &[u8]) -> Read<(Header, &[u8])> {
    let Some((head, frame)) = body.split_at_checked(HEADER_LEN) else {
        return Err(DecodeError::Foreign);
    };
    if !head.starts_with(&MAGIC) {
        return Err(DecodeError::Foreign);
    }
    // All versions have the version number at this offset.
    if head[4] > VERSION.0 {
        return Err(DecodeError::Newer(head[4]));
    }
    if body.len() > MAX_BODY {
        return Err(DecodeError::TooLarge);
    }
    let (mut u32s, mut u64s) = ([0; 4], [0; 8]);
    let mut u32_at = |at: usize| {
        u32s.copy_from_slice(&head[at..at + 4]);
        u32::from_le_bytes(u32s)
    };
    let mut u64_at = |at: usize| {
        u64s.copy_from_slice(&head[at..at + 8]);
        u64::from_le_bytes(u64s)
    };
    let (epoch, first, last, newest) = (u32_at(8), u64_at(12), u64_at(20), u64_at(28) as i64);
    let (count, raw_len, crc) = (u32_at(36), u32_at(40), u32_at(44));
    if crc32c::crc32c_append(crc32c::crc32c(&head[..44]), frame) != crc {
        return Err(DecodeError::Checksum);
    }
    if raw_len as usize > MAX_RAW || count as usize > MAX_ATTEMPTS {
        return Err(DecodeError::TooLarge);
    }
    if epoch == 0
        || first == 0
        || first > last
        || last == u64::MAX
        || u64::from(count) > last - first + 1
    {
        return Err(DecodeError::Malformed("positions"));
    }
    let newest = Timestamp::from_millis(newest);
    Ok((Header { epoch, base: 0, first, last, newest, count, top: last }, frame))
}

impl Batch {
    /// Decodes a message.
    ///
    /// # Errors
    /// Returns what is wrong with the message.
    pub fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let (header, frame) = split(body)?;
        let mut raw_len = [0; 4];
        raw_len.copy_from_slice(&body[40..44]);
        let raw_len = u32::from_le_bytes(raw_len) as usize;
        let raw =
            zstd::bulk::decompress(frame, raw_len).map_err(|_| DecodeError::Malformed("frame"))?;
        if raw.len() != raw_len {
            return Err(DecodeError::Malformed("frame"));
        }
        Decoder::new(header, &raw)?.run()
    }

    /// Returns the header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the number of link states.
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// Returns the egress group of the sender. Link states apply to nodes of that group.
    pub fn egress(&self) -> &str {
        self.text(self.egress)
    }

    fn text(&self, span: Span) -> &str {
        self.names.get(span.0 as usize..span.1 as usize).unwrap_or_default()
    }

    /// Calls `f` with each link state and its position.
    pub fn each_link(&self, mut f: impl FnMut(u64, &RemoteLinkState<'_>)) {
        for row in &self.links {
            let at = Timestamp::from_millis(row.at);
            let until = at.saturating_add(Duration::from_millis(row.pause_ms));
            let state = LinkState {
                paused_until: Some(until).filter(|until| *until > at),
                risk_level: row.risk_level.min(MAX_RISK_LEVEL),
                attempt_count: row.attempts,
                last_attempt_at: None,
                hint: hint_of(row.hint),
            };
            f(
                row.position,
                &RemoteLinkState { link: row.link, domain: self.text(row.domain), state, at },
            );
        }
    }

    /// Calls `f` with each attempt, its position and the hash of its link. The hash is 0 unless the
    /// attempt was blocked.
    pub fn each(&self, mut f: impl FnMut(u64, &RemoteAttempt<'_>, u64)) {
        let text = |span: Span| self.text(span);
        let mut heuristics = Vec::new();
        for row in &self.rows {
            heuristics.clear();
            let tags =
                self.tags.get(row.tags.start as usize..row.tags.end as usize).unwrap_or_default();
            heuristics.extend(tags.iter().map(|(kind, value)| (text(*kind), text(*value))));
            let fact = RemoteAttempt {
                at: Timestamp::from_millis(row.at),
                fetcher: text(row.fetcher),
                weight: row.weight,
                success: row.bits & bit::SUCCESS != 0,
                is_banned: row.bits & bit::BANNED != 0,
                duration_ms: row.duration_ms,
                hint: hint_of(row.bits >> bit::HINT_SHIFT),
                is_file: row.bits & bit::FILE != 0,
                heuristics: &heuristics,
            };
            f(row.position, &fact, row.link);
        }
    }
}

/// The unread rest of a column.
#[derive(Clone, Copy, Debug, Default)]
struct Column<'r>(&'r [u8]);

impl<'r> Column<'r> {
    fn varint(&mut self) -> Read<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let Some((byte, rest)) = self.0.split_first() else { break };
            self.0 = rest;
            let low = u64::from(byte & 0x7f);
            if shift == 63 && low > 1 {
                break;
            }
            value |= low << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::Malformed("truncated column"))
    }

    fn take(&mut self, len: u64) -> Read<&'r [u8]> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let (taken, rest) =
            self.0.split_at_checked(len).ok_or(DecodeError::Malformed("truncated column"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn fixed<const N: usize>(&mut self) -> Read<[u8; N]> {
        let (taken, rest) =
            self.0.split_first_chunk().ok_or(DecodeError::Malformed("truncated column"))?;
        self.0 = rest;
        Ok(*taken)
    }
}

struct Decoder<'r> {
    header: Header,
    columns: [Column<'r>; column::COUNT],
    names: String,
    spans: Vec<Span>,
    patterns: Vec<Range<usize>>,
    kinds: Vec<Span>,
    tags: Vec<(Span, Span)>,
}

impl<'r> Decoder<'r> {
    fn new(header: Header, raw: &'r [u8]) -> Read<Self> {
        let mut columns = [Column::default(); column::COUNT];
        let mut rest = Column(raw);
        while !rest.0.is_empty() {
            let [kind] = rest.fixed::<1>()?;
            let len = rest.varint()?;
            let bytes = rest.take(len)?;
            // Columns that a newer minor version added are skipped.
            if let Some(column) = columns.get_mut(usize::from(kind)) {
                *column = Column(bytes);
            }
        }
        let (mut names, mut spans) = (String::new(), Vec::new());
        for name in KNOWN {
            names.push_str(name);
            spans.push(Span((names.len() - name.len()) as u32, names.len() as u32));
        }
        Ok(Self {
            header,
            columns,
            names,
            spans,
            patterns: Vec::new(),
            kinds: Vec::new(),
            tags: Vec::new(),
        })
    }

    fn varint(&mut self, kind: u8) -> Read<u64> {
        self.columns[usize::from(kind)].varint()
    }

    fn has(&self, kind: u8) -> bool {
        !self.columns[usize::from(kind)].0.is_empty()
    }

    fn run(mut self) -> Read<Batch> {
        if self.has(column::BASE) {
            self.header.base = self.varint(column::BASE)?;
        }
        if self.has(column::TOP) {
            self.header.top = self.varint(column::TOP)?.max(self.header.last);
        }
        if self.header.base >= self.header.first {
            return Err(DecodeError::Malformed("base"));
        }
        let (has_positions, mut rows) = (self.has(column::POSITIONS), Vec::new());
        let (mut before, mut at, mut newest) = (None, 0i64, i64::MIN);
        for index in 0..u64::from(self.header.count) {
            let offset = if has_positions { self.varint(column::POSITIONS)? } else { index };
            let position = self
                .header
                .first
                .checked_add(offset)
                .filter(|p| *p <= self.header.last && Some(*p) > before);
            let position = position.ok_or(DecodeError::Malformed("positions"))?;
            before = Some(position);
            at = at.wrapping_add(unzigzag(self.varint(column::TIMES)?));
            newest = newest.max(at);
            rows.push(self.row(position, at)?);
        }
        if newest != self.header.newest.as_millis() {
            return Err(DecodeError::Malformed("times"));
        }
        let links = self.links()?;
        let egress =
            if self.has(column::EGRESS) { self.name(column::EGRESS)? } else { Span::default() };
        Ok(Batch { header: self.header, names: self.names, tags: self.tags, rows, links, egress })
    }

    fn links(&mut self) -> Read<Vec<LinkRow>> {
        let (mut rows, mut at, mut before) = (Vec::<LinkRow>::new(), 0i64, None);
        while self.has(column::LINK_STATES) {
            if rows.len() >= MAX_ATTEMPTS {
                return Err(DecodeError::TooLarge);
            }
            let offset = self.varint(column::LINK_STATES)?;
            let position = self
                .header
                .first
                .checked_add(offset)
                .filter(|p| *p <= self.header.last && Some(*p) > before);
            let position = position.ok_or(DecodeError::Malformed("positions"))?;
            before = Some(position);
            let domain = self.name(column::LINK_STATES)?;
            at = at.wrapping_add(unzigzag(self.varint(column::LINK_STATES)?));
            let pause_ms = self.varint(column::LINK_STATES)?;
            let attempts = u32::try_from(self.varint(column::LINK_STATES)?).unwrap_or(u32::MAX);
            let column = &mut self.columns[usize::from(column::LINK_STATES)];
            let [risk_level, hint] = column.fixed()?;
            let link = u64::from_le_bytes(column.fixed()?);
            rows.push(LinkRow { position, domain, at, pause_ms, attempts, risk_level, hint, link });
        }
        Ok(rows)
    }

    fn row(&mut self, position: u64, at: i64) -> Read<Row> {
        let fetcher = self.name(column::FETCHERS)?;
        let [bits] = self.columns[usize::from(column::BITS)].fixed()?;
        let duration_ms = self.varint(column::DURATIONS)?;
        let weight = match bits & bit::WEIGHT != 0 {
            true => f64::from_le_bytes(self.columns[usize::from(column::WEIGHTS)].fixed()?),
            false => 1.0,
        };
        if !(weight > 0.0 && weight <= 1.0) || duration_ms > MAX_DURATION {
            return Err(DecodeError::Malformed("weight or duration"));
        }
        let link = match bits & bit::BANNED != 0 {
            true => u64::from_le_bytes(self.columns[usize::from(column::LINKS)].fixed()?),
            false => 0,
        };
        let tags = self.tags()?;
        Ok(Row { position, at, fetcher, bits, duration_ms, weight, tags, link })
    }

    fn tags(&mut self) -> Read<Range<u32>> {
        let first = self.tags.len() as u32;
        let pattern = match self.varint(column::SHAPES)?.checked_sub(1) {
            Some(index) => {
                usize::try_from(index).ok().and_then(|index| self.patterns.get(index)).cloned()
            }
            None => Some(self.pattern()?),
        };
        let pattern = pattern.ok_or(DecodeError::Malformed("heuristic pattern"))?;
        if self.tags.len() + pattern.len() > MAX_TAGS_TOTAL {
            return Err(DecodeError::TooLarge);
        }
        let mut domain: Option<Span> = None;
        // The domain may follow the values that refer to it.
        let mut waiting = Vec::new();
        for place in pattern {
            let kind = self.kinds[place];
            let style = Style::of(self.text(kind));
            match style {
                Style::Domain => {
                    let value = self.name(column::DOMAINS)?;
                    domain = domain.or(Some(value));
                    self.tags.push((kind, value));
                }
                Style::Value => {
                    let value = self.name(column::VALUES)?;
                    self.tags.push((kind, value));
                }
                Style::Number => {
                    let value = match self.varint(column::NUMBERS)?.checked_sub(1) {
                        Some(number) => self.add(&number.to_string())?,
                        None => self.name(column::NUMBERS)?,
                    };
                    self.tags.push((kind, value));
                }
                Style::Site | Style::Part => {
                    waiting.push((self.tags.len(), style));
                    self.tags.push((kind, Span::default()));
                }
            }
        }
        for (index, style) in waiting {
            self.tags[index].1 = self.of_domain(style, domain.unwrap_or_default())?;
        }
        Ok(first..self.tags.len() as u32)
    }

    /// Reads a value that is encoded relative to the domain.
    fn of_domain(&mut self, style: Style, domain: Span) -> Read<Span> {
        if style == Style::Site {
            return match self.varint(column::SITES)? {
                0 => Ok(domain),
                1 => {
                    let parent =
                        parent_of(self.text(domain)).ok_or(DecodeError::Malformed("site"))?;
                    Ok(Span(domain.1 - parent.len() as u32, domain.1))
                }
                name => self.named(name - 2),
            };
        }
        match self.varint(column::PARTS)?.checked_sub(1) {
            None => self.name(column::PARTS),
            Some(name) => {
                let part = self.named(name)?;
                let whole = format!("{}|{}", self.text(domain), self.text(part));
                self.add(&whole)
            }
        }
    }

    fn pattern(&mut self) -> Read<Range<usize>> {
        let len = self.varint(column::PATTERNS)?;
        if len > MAX_TAGS as u64 {
            return Err(DecodeError::TooLarge);
        }
        let first = self.kinds.len();
        for _ in 0..len {
            let kind = self.name(column::PATTERNS)?;
            self.kinds.push(kind);
        }
        self.patterns.push(first..self.kinds.len());
        Ok(first..self.kinds.len())
    }

    fn name(&mut self, kind: u8) -> Read<Span> {
        let name = self.varint(kind)?;
        self.named(name)
    }

    /// Returns the name with this index.
    fn named(&mut self, name: u64) -> Read<Span> {
        if let Some(index) = name.checked_sub(1) {
            let known = usize::try_from(index).ok().and_then(|index| self.spans.get(index));
            return known.copied().ok_or(DecodeError::Malformed("unknown name index"));
        }
        let len = self.varint(column::NAME_LENS)?;
        if len > MAX_NAME as u64 {
            return Err(DecodeError::TooLarge);
        }
        let bytes = self.columns[usize::from(column::NAMES)].take(len)?;
        let text = std::str::from_utf8(bytes).map_err(|_| DecodeError::Malformed("name"))?;
        let span = self.add(text)?;
        self.spans.push(span);
        Ok(span)
    }

    fn add(&mut self, text: &str) -> Read<Span> {
        let first = self.names.len();
        if first + text.len() > MAX_ARENA {
            return Err(DecodeError::TooLarge);
        }
        self.names.push_str(text);
        Ok(Span(first as u32, self.names.len() as u32))
    }

    fn text(&self, span: Span) -> &str {
        self.names.get(span.0 as usize..span.1 as usize).unwrap_or_default()
    }
}
