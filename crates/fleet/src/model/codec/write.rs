//! The encoder of messages.
//!
//! Owns: the columns and the dictionary of names.
//!
//! Invariants: positions increase.
//!
//! Must not know: when a message is full.

use std::collections::HashMap;

use bytes::Bytes;
use fetchwise::backoff::LinkState;
use fetchwise::evidence::RemoteAttempt;
use fetchwise::journal::replication::RemoteLinkState;
use fetchwise::time::Timestamp;

use super::names::{KNOWN, number_of as well_known};
use super::{
    HEADER_LEN, Header, MAGIC, Style, VERSION, bit, code_of, column, number_of, parent_of,
    put_varint, zigzag,
};

/// The zstd level of large messages. A higher level costs ten times the time and saves a tenth of
/// the bytes. That is worth it for small messages, which are sent about once per second.
const LEVEL: i32 = 3;
const LEVEL_OF_SMALL: i32 = 15;
/// The maximum size of a small message before compression, in bytes.
const SMALL: usize = 16 << 10;

/// A link state with an owned domain.
#[derive(Clone, Debug)]
struct LinkRow {
    offset: u64,
    domain: Box<str>,
    link: u64,
    state: LinkState,
    at: i64,
}

/// The builder of a message.
#[derive(Debug, Default)]
pub struct Builder {
    epoch: u32,
    base: u64,
    first: u64,
    next: u64,
    newest: Option<i64>,
    before_ms: i64,
    count: u32,
    names: HashMap<Box<str>, u64>,
    patterns: HashMap<Vec<u64>, u64>,
    columns: [Vec<u8>; column::COUNT],
    /// Written after all attempts, because a reader numbers names in that order.
    links: Vec<LinkRow>,
    egress: Box<str>,
    /// The size of all columns in bytes.
    len: usize,
    has_holes: bool,
}

impl Builder {
    /// Creates a message that begins at position `first` of an epoch that begins after `base`.
    pub fn new(epoch: u32, base: u64, first: u64) -> Self {
        Self { epoch, base, first, next: first, ..Self::default() }
    }

    /// Sets the egress group that link states apply to.
    #[must_use]
    pub fn behind(self, egress: &str) -> Self {
        Self { egress: egress.into(), ..self }
    }

    /// Returns the next position.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Returns the number of positions that the message covers.
    pub fn positions(&self) -> u64 {
        self.next - self.first
    }

    /// Returns the number of attempts.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the approximate size before compression in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the message covers no position.
    pub fn is_empty(&self) -> bool {
        self.next == self.first
    }

    /// Skips the next position, which has nothing that other nodes learn from.
    pub fn skip(&mut self) {
        self.next += 1;
        self.has_holes = true;
    }

    /// Adds a link state at the next position.
    pub fn link(&mut self, link: &RemoteLinkState<'_>) {
        let (offset, domain) = (self.next - self.first, link.domain.into());
        self.links.push(LinkRow {
            offset,
            domain,
            link: link.link,
            state: link.state,
            at: link.at.as_millis(),
        });
        self.len += 24 + link.domain.len();
        self.skip();
    }

    fn put_links(&mut self) {
        let links = std::mem::take(&mut self.links);
        let mut before = 0;
        for LinkRow { offset, domain, link, state, at } in &links {
            self.put(column::LINK_STATES, *offset);
            let domain = self.name(domain);
            self.put(column::LINK_STATES, domain);
            self.put(
                column::LINK_STATES,
                zigzag(at.wrapping_sub(std::mem::replace(&mut before, *at))),
            );
            // A pause that ends before it begins counts as none.
            let pause_ms =
                state.paused_until.map_or(0, |until| until.as_millis().saturating_sub(*at).max(0));
            self.put(column::LINK_STATES, pause_ms as u64);
            self.put(column::LINK_STATES, u64::from(state.attempt_count));
            let out = &mut self.columns[usize::from(column::LINK_STATES)];
            out.extend_from_slice(&[state.risk_level, code_of(state.hint)]);
            out.extend_from_slice(&link.to_le_bytes());
        }
        if !links.is_empty() && !self.egress.is_empty() {
            let egress = std::mem::take(&mut self.egress);
            let egress = self.name(&egress);
            self.put(column::EGRESS, egress);
        }
    }

    /// Adds the attempt at the next position. `link` is the hash of its link and travels with
    /// blocked attempts only.
    pub fn push(&mut self, fact: &RemoteAttempt<'_>, link: u64) {
        let at = fact.at.as_millis();
        self.put(column::POSITIONS, self.next - self.first);
        let before = std::mem::replace(&mut self.before_ms, at);
        self.put(column::TIMES, zigzag(at.wrapping_sub(if self.count == 0 { 0 } else { before })));
        let fetcher = self.name(fact.fetcher);
        self.put(column::FETCHERS, fetcher);
        let mut bits = code_of(fact.hint) << bit::HINT_SHIFT;
        for (is_set, flag) in
            [(fact.success, bit::SUCCESS), (fact.is_banned, bit::BANNED), (fact.is_file, bit::FILE)]
        {
            bits |= if is_set { flag } else { 0 };
        }
        if fact.weight.to_bits() != 1f64.to_bits() {
            bits |= bit::WEIGHT;
            self.columns[usize::from(column::WEIGHTS)]
                .extend_from_slice(&fact.weight.to_le_bytes());
        }
        self.columns[usize::from(column::BITS)].push(bits);
        self.put(column::DURATIONS, fact.duration_ms);
        if fact.is_banned {
            self.columns[usize::from(column::LINKS)].extend_from_slice(&link.to_le_bytes());
        }
        self.tags(fact);
        self.newest = self.newest.max(Some(at));
        self.count += 1;
        self.next += 1;
        self.len += 12;
    }

    fn tags(&mut self, fact: &RemoteAttempt<'_>) {
        let codes: Vec<u64> = fact.heuristics.iter().map(|(kind, _)| self.name(kind)).collect();
        let pattern: Vec<u64> =
            fact.heuristics.iter().filter_map(|(kind, _)| self.place(kind)).collect();
        let fresh = self.patterns.len() as u64;
        let known = self.patterns.get(&pattern).copied();
        self.put(column::SHAPES, known.map_or(0, |index| index + 1));
        if known.is_none() {
            self.put(column::PATTERNS, codes.len() as u64);
            codes.iter().for_each(|kind| self.put(column::PATTERNS, *kind));
            self.patterns.insert(pattern, fresh);
        }
        let domain = fact.domain().unwrap_or_default();
        // Values that are encoded relative to the domain come last, because a reader must know the
        // domain first.
        let is_last = |kind: &str| matches!(Style::of(kind), Style::Site | Style::Part);
        let first = fact.heuristics.iter().filter(|(kind, _)| !is_last(kind));
        for (kind, value) in first.chain(fact.heuristics.iter().filter(|(kind, _)| is_last(kind))) {
            match Style::of(kind) {
                Style::Domain => {
                    let name = self.name(value);
                    self.put(column::DOMAINS, name);
                }
                Style::Site if *value == domain => self.put(column::SITES, 0),
                Style::Site if Some(*value) == parent_of(domain) => self.put(column::SITES, 1),
                Style::Site => {
                    let name = self.name(value);
                    self.put(column::SITES, name + 2);
                }
                Style::Part => {
                    match value.strip_prefix(domain).and_then(|rest| rest.strip_prefix('|')) {
                        Some(part) => {
                            let name = self.name(part);
                            self.put(column::PARTS, name + 1);
                        }
                        None => {
                            let name = self.name(value);
                            self.put(column::PARTS, 0);
                            self.put(column::PARTS, name);
                        }
                    }
                }
                Style::Number => match number_of(value) {
                    Some(number) => self.put(column::NUMBERS, u64::from(number) + 1),
                    None => {
                        let name = self.name(value);
                        self.put(column::NUMBERS, 0);
                        self.put(column::NUMBERS, name);
                    }
                },
                Style::Value => {
                    let name = self.name(value);
                    self.put(column::VALUES, name);
                }
            }
        }
    }

    /// Returns the code of a name: 0 for a new name, else its index plus one.
    fn name(&mut self, name: &str) -> u64 {
        if let Some(place) = self.place(name) {
            return place + 1;
        }
        self.names.insert(name.into(), (KNOWN.len() + self.names.len()) as u64);
        self.put(column::NAME_LENS, name.len() as u64);
        self.columns[usize::from(column::NAMES)].extend_from_slice(name.as_bytes());
        self.len += name.len();
        0
    }

    /// Returns the index of a static name, or of a name that was used before.
    fn place(&self, name: &str) -> Option<u64> {
        well_known(name).or_else(|| self.names.get(name).copied())
    }

    fn put(&mut self, kind: u8, value: u64) {
        put_varint(&mut self.columns[usize::from(kind)], value);
        self.len += 1;
    }

    /// Finishes the message. `top` is the last position that was ever published in this epoch, if
    /// it is a later one.
    ///
    /// # Errors
    /// Returns errors of the compressor. None are expected.
    pub fn finish(mut self, top: u64) -> std::io::Result<(Header, Bytes)> {
        let last = self.next.saturating_sub(1);
        if !self.has_holes {
            self.columns[usize::from(column::POSITIONS)].clear();
        }
        self.put_links();
        if self.base > 0 {
            self.put(column::BASE, self.base);
        }
        if top > last {
            self.put(column::TOP, top);
        }
        let mut raw = Vec::with_capacity(self.len + 64);
        for (kind, bytes) in (0u8..).zip(&self.columns) {
            if !bytes.is_empty() {
                raw.push(kind);
                put_varint(&mut raw, bytes.len() as u64);
                raw.extend_from_slice(bytes);
            }
        }
        let frame =
            zstd::bulk::compress(&raw, if raw.len() <= SMALL { LEVEL_OF_SMALL } else { LEVEL })?;
        let mut body = Vec::with_capacity(HEADER_LEN + frame.len());
        body.extend_from_slice(&MAGIC);
        body.extend_from_slice(&[VERSION.0, VERSION.1, 0, 0]);
        body.extend_from_slice(&self.epoch.to_le_bytes());
        body.extend_from_slice(&self.first.to_le_bytes());
        body.extend_from_slice(&last.to_le_bytes());
        let newest = self.newest.unwrap_or(i64::MIN);
        body.extend_from_slice(&newest.to_le_bytes());
        body.extend_from_slice(&self.count.to_le_bytes());
        body.extend_from_slice(&(raw.len() as u32).to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&body), &frame);
        body.extend_from_slice(&crc.to_le_bytes());
        body.extend_from_slice(&frame);
        let header = Header {
            epoch: self.epoch,
            base: self.base,
            first: self.first,
            last,
            newest: Timestamp::from_millis(newest),
            count: self.count,
            top: top.max(last),
        };
        Ok((header, body.into()))
    }
}
