//! What a checkpoint of evidence on disk has besides the entries in its store, as bytes: the tag of
//! the store, and the file of the state.
//!
//! Owns: the layout of both, and the list of what a replay builds and a start would miss. The
//! entries of the map are in the store. The state has the rest of the evidence
//! (`src/evidence/unkeyed.rs` lists it), the fetchers by their numbers, and what a snapshot has
//! besides evidence: states of links, pauses of hosts, hosts with short pages, importance, paces,
//! registered fetchers, counts of outcomes, the time of the newest record, the time that counted as
//! the present, and the cutoff of compaction. Nothing else outlives a process: the rest of a
//! selector comes from its configuration, or is a cache. A policy that remembers attempts reads
//! them itself.
//!
//! Invariants: whatever is decoded is what was encoded. Any bytes decode or are rejected.
//!
//! Must not know: files, and whether a checkpoint fits.

use fetchwise_log::put_varint;
use xxhash_rust::xxh3::xxh3_128;

use super::cold_entry::{decode_entry, decode_into, encode_entry};
use super::entry_groups::Bytes;
use super::fetcher_numbers::{FetcherNumbers, StoredFetcher};
use super::schema;
use super::snapshot::{SnapshotContents, decode_sections};
use crate::evidence::host_signal_counts::RawSignalCounts;
use crate::evidence::host_signals::SignalRowState;
use crate::evidence::{Entry, Evidence, Learned};
use fetchwise_types::heuristic::url::ContentKind;
use fetchwise_types::registry::MAX_CANDIDATES;
use fetchwise_types::time::Timestamp;

/// Version of the tag, of the state and of the entries. Another version is read by nobody: the log
/// is read instead.
const LAYOUT: u64 = 1;

/// Kinds of parts, behind those of a snapshot.
mod kind {
    pub(super) const FETCHERS: u32 = 100;
    pub(super) const ENTRIES: u32 = 101;
    pub(super) const SIGNALS: u32 = 102;
    pub(super) const SCALE: u32 = 103;
}

/// Encoding of an absent time.
const NEVER: i64 = i64::MIN;

/// What a checkpoint is of, and what it depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tag {
    /// Identity of the log.
    pub(super) log: [u8; 16],
    /// Last record whose effect it has.
    pub(super) covers_seq: u64,
    /// Hash of that record.
    pub(super) record: u64,
    pub(super) half_life_ms: u64,
    /// Hash of which suffixes are files.
    pub(super) suffixes: u64,
    /// Number of keys in the store.
    pub(super) keys: u64,
    pub(super) state_len: u64,
    pub(super) state_hash: [u8; 16],
}

impl Tag {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = LAYOUT.to_le_bytes().to_vec();
        out.extend_from_slice(&schema::fingerprint());
        out.extend_from_slice(&self.log);
        for word in [
            self.covers_seq,
            self.record,
            self.half_life_ms,
            self.suffixes,
            self.keys,
            self.state_len,
        ] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&self.state_hash);
        out
    }

    /// Returns the tag of these bytes; `None` if another release wrote them.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut bytes = Bytes(bytes);
        if bytes.u64()? != LAYOUT || bytes.array::<16>()? != schema::fingerprint() {
            return None;
        }
        let tag = Self {
            log: bytes.array()?,
            covers_seq: bytes.u64()?,
            record: bytes.u64()?,
            half_life_ms: bytes.u64()?,
            suffixes: bytes.u64()?,
            keys: bytes.u64()?,
            state_len: bytes.u64()?,
            state_hash: bytes.array()?,
        };
        bytes.0.is_empty().then_some(tag)
    }

    /// Returns the tag for this state.
    pub(super) fn with_state(self, state: &[u8]) -> Self {
        Self { state_len: state.len() as u64, state_hash: xxh3_128(state).to_le_bytes(), ..self }
    }

    /// Returns whether these bytes are the state.
    pub(super) fn is_of(&self, state: &[u8]) -> bool {
        self.with_state(state) == *self
    }
}

/// A decoded state.
#[derive(Debug)]
pub(super) struct State {
    /// What it has besides evidence, and the names of all fetchers of attempts.
    pub(super) contents: SnapshotContents,
    pub(super) fetchers: Vec<StoredFetcher>,
    pub(super) landmark: Timestamp,
    days_since: Option<Timestamp>,
    entries: Vec<u8>,
    signals: Vec<u8>,
}

/// Returns the state of a fold, whose entries in the map are elsewhere.
pub(super) fn encode(
    contents: &SnapshotContents,
    learned: &Learned,
    fetchers: &FetcherNumbers,
) -> Option<Vec<u8>> {
    let evidence = &learned.evidence;
    let mut parts = contents.encode();
    let mut named = Vec::new();
    for StoredFetcher { name, class, signed } in fetchers.fetchers(&learned.registry) {
        named.extend([schema::class_code(class), u8::from(signed)]);
        put_text(&mut named, &name);
    }
    parts.push((kind::FETCHERS, named));
    let mut entries = Vec::new();
    for entry in evidence.fixed_entries() {
        let mut bytes = Vec::new();
        if !encode_entry(entry, fetchers, &mut bytes) {
            return None;
        }
        put_varint(&mut entries, bytes.len() as u64);
        entries.extend_from_slice(&bytes);
    }
    parts.push((kind::ENTRIES, entries));
    parts.push((kind::SIGNALS, encode_signals(&evidence.signal_rows(), fetchers)));
    let times = [
        evidence.decay().landmark().as_millis(),
        evidence.days_since().map_or(NEVER, Timestamp::as_millis),
    ];
    parts.push((kind::SCALE, times.iter().flat_map(|ms| ms.to_le_bytes()).collect()));
    let mut out = Vec::new();
    for (kind, bytes) in parts {
        put_varint(&mut out, u64::from(kind));
        put_varint(&mut out, bytes.len() as u64);
        out.extend_from_slice(&bytes);
    }
    Some(out)
}

/// Returns the state of these bytes.
pub(super) fn decode(bytes: &[u8], covers_seq: u64) -> Option<State> {
    let mut bytes = Bytes(bytes);
    let mut parts = Vec::new();
    while !bytes.0.is_empty() {
        let (kind, len) = (bytes.small()?, usize::try_from(bytes.varint()?).ok()?);
        parts.push((kind, bytes.take(len)?));
    }
    let part = |kind| parts.iter().find(|(of, _)| *of == kind).map(|(_, bytes)| *bytes);
    let (mut named, mut fetchers) = (Bytes(part(kind::FETCHERS)?), Vec::new());
    while !named.0.is_empty() {
        let (class, signed) = (schema::class_of(named.u8()?).ok()?, named.u8()? != 0);
        fetchers.push(StoredFetcher { name: text(&mut named)?, class, signed });
    }
    let mut times = Bytes(part(kind::SCALE)?);
    let (landmark, days_since) = (times.u64()? as i64, times.u64()? as i64);
    Some(State {
        contents: decode_sections(&parts, covers_seq)?,
        fetchers,
        landmark: Timestamp::from_millis(landmark),
        days_since: (days_since != NEVER).then(|| Timestamp::from_millis(days_since)),
        entries: part(kind::ENTRIES)?.to_vec(),
        signals: part(kind::SIGNALS)?.to_vec(),
    })
}

impl State {
    /// Restores what the state has of evidence into some that has learned nothing. Changes nothing
    /// if it is not valid, and returns `None`.
    pub(super) fn restore(&self, evidence: &Evidence, fetchers: &FetcherNumbers) -> Option<()> {
        let rows = decode_signals(&self.signals, fetchers)?;
        self.each_entry(evidence, |_, bytes| decode_entry(bytes, fetchers).map(drop))?;
        evidence.restore_unkeyed(self.landmark, self.days_since, &rows);
        self.each_entry(evidence, |entry, bytes| decode_into(entry, bytes, fetchers))
    }

    /// Calls `f` with each entry at a fixed place and its bytes.
    fn each_entry(
        &self,
        evidence: &Evidence,
        f: impl Fn(&Entry, &[u8]) -> Option<()>,
    ) -> Option<()> {
        let mut bytes = Bytes(&self.entries);
        for entry in evidence.fixed_entries() {
            let len = usize::try_from(bytes.varint()?).ok()?;
            f(entry, bytes.take(len)?)?;
        }
        bytes.0.is_empty().then_some(())
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn text(bytes: &mut Bytes<'_>) -> Option<String> {
    let len = usize::try_from(bytes.varint()?).ok()?;
    Some(std::str::from_utf8(bytes.take(len)?).ok()?.to_owned())
}

fn encode_signals(rows: &[SignalRowState], fetchers: &FetcherNumbers) -> Vec<u8> {
    let mut out = Vec::new();
    for SignalRowState { name, generation, information, observations, cells } in rows {
        put_text(&mut out, name);
        out.push(*generation);
        put_words(&mut out, &[information.0.to_bits(), information.1.to_bits(), *observations]);
        put_varint(&mut out, cells.len() as u64);
        for (fetcher, content, raw) in cells {
            put_varint(
                &mut out,
                u64::from(fetchers.number(*fetcher)) << 1
                    | u64::from(*content == ContentKind::File),
            );
            let RawSignalCounts { pair, short, alike, both, newest_s, turned_s, hosts } = *raw;
            let weights =
                [pair.0, pair.1, short.0, short.1, alike.0, alike.1, both].map(f32::to_bits);
            put_words(&mut out, &weights);
            put_words(&mut out, &[newest_s, turned_s, hosts]);
        }
    }
    out
}

fn put_words(out: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
}

fn decode_signals(bytes: &[u8], fetchers: &FetcherNumbers) -> Option<Vec<SignalRowState>> {
    let (mut bytes, mut rows) = (Bytes(bytes), Vec::new());
    while !bytes.0.is_empty() {
        let mut row = SignalRowState {
            name: text(&mut bytes)?,
            generation: bytes.u8()?,
            ..SignalRowState::default()
        };
        row.information = (f32::from_bits(bytes.u32()?), f32::from_bits(bytes.u32()?));
        row.observations = bytes.u32()?;
        for _ in 0..bytes.varint()? {
            let packed = bytes.varint()?;
            let fetcher = fetchers.id(u16::try_from(packed >> 1).ok()?);
            let content = if packed & 1 == 0 { ContentKind::Page } else { ContentKind::File };
            let mut weights = [0.0; 7];
            for weight in &mut weights {
                *weight = f32::from_bits(bytes.u32()?);
            }
            let [success, total, short_success, short_total, alike, compared, both] = weights;
            let raw = RawSignalCounts {
                pair: (success, total),
                short: (short_success, short_total),
                alike: (alike, compared),
                both,
                newest_s: bytes.u32()?,
                turned_s: bytes.u32()?,
                hosts: bytes.u32()?,
            };
            // The table has cells for the first fetchers only.
            if fetcher.index() >= MAX_CANDIDATES {
                return None;
            }
            row.cells.push((fetcher, content, raw));
        }
        rows.push(row);
    }
    Some(rows)
}
