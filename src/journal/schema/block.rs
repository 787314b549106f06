//! Blocks of attempts: the layout in which maintenance packs them, schema version 3.
//!
//! Owns: the columns, and the conversion of records to and from them.
//!
//! Invariants: a record comes back equal in every byte. What the columns do not hold exactly goes into the block as a
//! whole record: every other kind and version, and an attempt that the columns would change. A released layout never
//! changes, as that of a record.
//!
//! Must not know: frames, files, what attempts teach.

use std::borrow::{Borrow, Cow};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, RandomState};
use std::mem::{align_of, offset_of, size_of};

use fetchwise_log::{Block, BlockFormat, PackedBlock, RecordRef, UnpackError, get_varint, put_varint};
use rkyv::util::AlignedVec;
use rkyv::{Archive, Serialize};

use super::codes::{NONE, OTHER, V2, kind};
use super::records::{ArchivedAttemptV2, AttemptV1, AttemptV2, HeaderV1, TagV1, access, bytes_in, bytes_of};
use crate::evidence::PrehashedHasher;

/// Schema version of a block.
pub(super) const V3: u16 = 3;

/// The layout of this release's blocks, for readers and for compaction.
pub(crate) static BLOCKS: AttemptBlocks = AttemptBlocks;

/// The layout of blocks of attempts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttemptBlocks;

/// What is read in place: one row for each attempt, and what rows refer to by number.
#[derive(Archive, Serialize)]
pub(super) struct HotV3 {
    /// Times count from here.
    pub(super) base_ms: i64,
    /// Texts that several rows have, and the names of fetchers.
    pub(super) texts: Vec<String>,
    /// Keys of the records.
    pub(super) keys: Vec<u64>,
    pub(super) outcomes: Vec<OutcomeV3>,
    /// Places in the block of the records that are stored whole.
    pub(super) whole: Vec<u16>,
    /// Milliseconds since `base_ms`. Empty if they span more than 49 days; then the times are in `wide_at`.
    pub(super) at: Vec<u32>,
    pub(super) wide_at: Vec<i64>,
    /// Duration, milliseconds.
    pub(super) took: Vec<u32>,
    pub(super) key: Vec<u16>,
    pub(super) outcome: Vec<u16>,
    /// The last ten bytes of the id, which are random.
    pub(super) id: Vec<[u8; 10]>,
}

/// What many attempts have in common. Texts are numbers in `texts` plus one; 0 is the empty text or none.
#[derive(Archive, Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct OutcomeV3 {
    pub(super) weight: f64,
    pub(super) fetcher: u32,
    pub(super) error_other: u32,
    pub(super) source_other: u32,
    pub(super) rule_other: u32,
    pub(super) shadow_fetcher: u32,
    pub(super) try_no: u32,
    pub(super) http_status: u16,
    pub(super) success: u8,
    pub(super) is_banned: u8,
    pub(super) error: u8,
    pub(super) source: u8,
    pub(super) hint: u8,
    pub(super) rule: u8,
    pub(super) arm: u8,
}

const _: () = {
    assert!(size_of::<ArchivedHotV3>() == 88 && align_of::<ArchivedHotV3>() == 8);
    assert!(offset_of!(ArchivedHotV3, base_ms) == 0 && offset_of!(ArchivedHotV3, texts) == 8);
    assert!(offset_of!(ArchivedHotV3, keys) == 16 && offset_of!(ArchivedHotV3, outcomes) == 24);
    assert!(offset_of!(ArchivedHotV3, whole) == 32 && offset_of!(ArchivedHotV3, at) == 40);
    assert!(offset_of!(ArchivedHotV3, wide_at) == 48 && offset_of!(ArchivedHotV3, took) == 56);
    assert!(offset_of!(ArchivedHotV3, key) == 64 && offset_of!(ArchivedHotV3, outcome) == 72);
    assert!(offset_of!(ArchivedHotV3, id) == 80);
    assert!(size_of::<ArchivedOutcomeV3>() == 48 && align_of::<ArchivedOutcomeV3>() == 8);
    assert!(offset_of!(ArchivedOutcomeV3, weight) == 0 && offset_of!(ArchivedOutcomeV3, fetcher) == 8);
    assert!(offset_of!(ArchivedOutcomeV3, shadow_fetcher) == 24 && offset_of!(ArchivedOutcomeV3, try_no) == 28);
    assert!(offset_of!(ArchivedOutcomeV3, http_status) == 32 && offset_of!(ArchivedOutcomeV3, arm) == 40);
};

/// How the value of a header or heuristic is found. Numbers of heuristics are places in the attempt's list.
pub(super) mod op {
    /// The next literal.
    pub(in crate::journal::schema) const LITERAL: u8 = 0;
    /// The URL's host without `www.`.
    pub(in crate::journal::schema) const HOST: u8 = 1;
    /// The value of heuristic k.
    pub(in crate::journal::schema) const SAME: u8 = 2;
    /// The end of the value of heuristic k, as long as the next number says.
    pub(in crate::journal::schema) const END: u8 = 3;
    /// The value of heuristic k, `|`, and the value of heuristic j.
    pub(in crate::journal::schema) const PAIR: u8 = 4;
    /// The value of heuristic k, `|`, and the first segment of the URL's path.
    pub(in crate::journal::schema) const SECTION: u8 = 5;
    /// The text with a number that the shape has.
    pub(in crate::journal::schema) const TEXT: u8 = 6;
    /// The text with the next number.
    pub(in crate::journal::schema) const NEXT_TEXT: u8 = 7;
}

/// Texts with a smaller number are part of the shape; with others, there would be too many shapes.
const SHAPE_TEXTS: u32 = 48;

/// The most bytes that the values of a block have, as many as a frame.
pub(super) const MAX_VALUE_BYTES: usize = 16 << 20;

/// The most headers or heuristics that memory is reserved for before they are read, since their number may be forged.
const RESERVED: usize = 16;

/// Columns of the cold part, in order.
pub(super) const COLUMNS: usize = 10;
pub(super) const ID_TIMES: usize = 0;
pub(super) const URL_LENS: usize = 1;
pub(super) const URLS: usize = 2;
pub(super) const SHAPES: usize = 3;
pub(super) const SHAPE_TABLE: usize = 4;
pub(super) const NUMBERS: usize = 5;
pub(super) const LITERAL_LENS: usize = 6;
pub(super) const LITERALS: usize = 7;
pub(super) const FLOATS: usize = 8;
pub(super) const WHOLE: usize = 9;

impl BlockFormat for AttemptBlocks {
    fn pack(&self, records: &[RecordRef<'_>], whole: &[usize]) -> Option<PackedBlock> {
        if records.len() > usize::from(u16::MAX) {
            return None;
        }
        let mut rows: Vec<Option<Row<'_>>> = records.iter().map(Row::of).collect();
        for &place in whole {
            rows.get_mut(place).map(Option::take);
        }
        Packer::pack(records, &rows)
    }

    fn unpack(&self, block: &Block<'_>, f: &mut dyn FnMut(RecordRef<'_>)) -> Result<(), UnpackError> {
        if block.schema != V3 {
            return Err(UnpackError::Newer(format!("layout {} of a block of attempts", block.schema)));
        }
        unpack(block, f)
    }
}

/// Packs records as the log does: those that come back different are stored whole.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn pack_exactly(records: &[RecordRef<'_>]) -> Option<PackedBlock> {
    let packed = BLOCKS.pack(records, &[])?;
    let mut hot = rkyv::util::AlignedVec::<16>::new();
    hot.extend_from_slice(&packed.hot);
    let (mut at, mut whole) = (0, Vec::new());
    unpack(&Block { schema: V3, records: records.len(), hot: &hot, cold: &packed.cold }, &mut |back| {
        whole.extend((records.get(at) != Some(&back)).then_some(at));
        at += 1;
    })
    .ok()?;
    if whole.is_empty() { Some(packed) } else { BLOCKS.pack(records, &whole) }
}

/// An attempt that fits the columns.
struct Row<'a> {
    attempt: &'a ArchivedAttemptV2<'a>,
    key_hash: u64,
}

impl<'a> Row<'a> {
    fn of(record: &RecordRef<'a>) -> Option<Self> {
        let is_attempt = (record.kind, record.schema) == (kind::ATTEMPT, V2);
        let attempt = is_attempt.then(|| access::<ArchivedAttemptV2<'_>>(record.payload).ok())??;
        u32::try_from(attempt.v1.duration_ms.to_native()).ok()?;
        Some(Self { attempt, key_hash: record.key_hash })
    }

    fn at(&self) -> i64 {
        self.attempt.v1.attempted_at.to_native()
    }

    /// The time in its id, ms.
    fn id_time(&self) -> i64 {
        let mut bytes = [0; 8];
        bytes[2..].copy_from_slice(&self.attempt.v1.id[..6]);
        i64::from_be_bytes(bytes)
    }

    /// Texts of its outcome.
    fn names(&self) -> [&'a str; 5] {
        let v1 = &self.attempt.v1;
        let shadow = v1.shadow_fetcher.as_ref().map_or("", |name| name.as_str());
        [
            v1.fetcher.as_str(),
            v1.error_other.as_str(),
            v1.source_other.as_str(),
            self.attempt.rule_other.as_str(),
            shadow,
        ]
    }

    /// The outcome, with its weight as bits so that it can be compared.
    fn outcome(&self, names: [u32; 5]) -> Outcome {
        let (v1, v2) = (&self.attempt.v1, self.attempt);
        let codes = [v1.error, v1.source, v1.hint, v2.rule, v2.arm, u8::from(v1.success), u8::from(v1.is_banned)];
        (v1.weight.to_native().to_bits(), names, v1.try_no.to_native(), v1.http_status.to_native(), codes)
    }
}

/// Gives numbers to values, in the order in which they come.
struct Numbering<T, S = RandomState> {
    all: Vec<T>,
    numbers: HashMap<T, usize, S>,
}

/// Numbers of keys, which are hashes already.
type KeyNumbering = Numbering<u64, BuildHasherDefault<PrehashedHasher>>;

/// Values with a smaller number are found by comparing, which is faster than hashing. Most attempts of a batch end in
/// one of a few ways.
const COMPARED: usize = 8;

impl<T: Clone + Eq + Hash, S: BuildHasher + Default> Numbering<T, S> {
    fn new() -> Self {
        Self { all: Vec::new(), numbers: HashMap::default() }
    }

    fn number<Q>(&mut self, value: &Q) -> usize
    where
        T: Borrow<Q>,
        Q: ToOwned<Owned = T> + Eq + Hash + ?Sized,
    {
        if let Some(number) = self.all.iter().take(COMPARED).position(|known| known.borrow() == value) {
            return number;
        }
        if let Some(&number) = self.numbers.get(value) {
            return number;
        }
        let number = self.all.len();
        self.all.push(value.to_owned());
        self.numbers.insert(value.to_owned(), number);
        number
    }
}

/// How the value of a header or heuristic is stored.
#[derive(Clone, Copy)]
enum Found {
    Derived(Derived),
    /// The text with this number.
    Text(u32),
    Literal,
}

/// What all rows say in texts, looked up once.
struct Findings<'a> {
    /// The texts that have a number.
    texts: Vec<&'a str>,
    /// The numbers of each row's [`Row::names`], plus one. The empty text is 0.
    names: Vec<[u32; 5]>,
    /// The values of all rows. A row has the values of its headers first, and then those of its heuristics.
    values: Vec<Found>,
}

impl<'a> Findings<'a> {
    /// The texts that get a number are names of outcomes, and values that occur twice; the most frequent come first.
    fn of(rows: &[Option<Row<'a>>]) -> Self {
        let (mut seen, mut counts) = (Numbering::<&str>::new(), Vec::<(usize, bool)>::new());
        let mut see = |text: &'a str, is_name: bool| {
            let number = seen.number(&text);
            counts.resize(seen.all.len(), (0, false));
            let (count, is_any_name) = &mut counts[number];
            *count += usize::from(!is_name);
            *is_any_name |= is_name;
            number as u32
        };
        let (mut names, mut values, mut earlier) = (Vec::with_capacity(rows.len()), Vec::new(), Vec::new());
        for row in rows.iter().flatten() {
            names.push(row.names().map(|name| match name {
                "" => 0,
                name => see(name, true) + 1,
            }));
            let mut text = |value| Found::Text(see(value, false));
            let v1 = &row.attempt.v1;
            values.extend(v1.response_headers.iter().map(|header| text(header.value.as_str())));
            let (url, host) = (v1.url.as_str(), host(v1.url.as_str()));
            earlier.clear();
            for tag in v1.heuristics.iter() {
                let value = tag.value.as_str();
                values.push(derive(value, url, host, &earlier).map_or_else(|| text(value), Found::Derived));
                earlier.push(value);
            }
        }
        let is_kept = |number: &u32| matches!(counts[*number as usize], (2.., _) | (_, true));
        let mut kept: Vec<u32> = (0..seen.all.len() as u32).filter(is_kept).collect();
        kept.sort_unstable_by_key(|&seen_as| (Reverse(counts[seen_as as usize].0), seen.all[seen_as as usize]));
        let mut numbers = vec![None; seen.all.len()];
        for (number, &seen_as) in (0..).zip(&kept) {
            numbers[seen_as as usize] = Some(number);
        }
        for name in names.iter_mut().flatten().filter(|name| **name > 0) {
            // Each name is kept.
            *name = numbers[*name as usize - 1].map_or(0, |number: u32| number + 1);
        }
        for value in &mut values {
            if let Found::Text(seen_as) = *value {
                *value = numbers[seen_as as usize].map_or(Found::Literal, Found::Text);
            }
        }
        Self { texts: kept.into_iter().map(|seen_as| seen.all[seen_as as usize]).collect(), names, values }
    }
}

/// The columns being filled.
#[derive(Default)]
struct Packer {
    cold: [Vec<u8>; COLUMNS],
}

impl Packer {
    fn pack(records: &[RecordRef<'_>], rows: &[Option<Row<'_>>]) -> Option<PackedBlock> {
        let times = || rows.iter().flatten().map(Row::at);
        let base_ms = times().min()?;
        let is_wide = times().any(|at| at.checked_sub(base_ms).is_none_or(|span| u32::try_from(span).is_err()));
        let Findings { texts, names, values } = Findings::of(rows);
        let (mut names, mut values) = (names.into_iter(), values.into_iter());
        let mut packer = Self::default();
        let (mut keys, mut outcomes) = (KeyNumbering::new(), Numbering::<Outcome>::new());
        keys.numbers.reserve(rows.len());
        let (mut shapes, mut shape) = (Numbering::<Vec<u8>>::new(), Vec::new());
        let mut hot = HotV3 {
            base_ms,
            texts: texts.iter().map(|text| (*text).to_owned()).collect(),
            keys: Vec::new(),
            outcomes: Vec::new(),
            whole: Vec::new(),
            at: Vec::new(),
            wide_at: Vec::new(),
            took: Vec::new(),
            key: Vec::new(),
            outcome: Vec::new(),
            id: Vec::new(),
        };
        for ((place, record), row) in records.iter().enumerate().zip(rows) {
            let Some(row) = row else {
                hot.whole.push(u16::try_from(place).ok()?);
                packer.put_whole(record);
                continue;
            };
            let v1 = &row.attempt.v1;
            match is_wide {
                true => hot.wide_at.push(row.at()),
                false => hot.at.push(u32::try_from(row.at() - base_ms).ok()?),
            }
            hot.took.push(u32::try_from(v1.duration_ms.to_native()).ok()?);
            hot.key.push(u16::try_from(keys.number(&row.key_hash)).ok()?);
            let outcome = row.outcome(names.next()?);
            hot.outcome.push(u16::try_from(outcomes.number(&outcome)).ok()?);
            hot.id.push(*v1.id.last_chunk()?);
            put_signed(&mut packer.cold[ID_TIMES], row.id_time().wrapping_sub(row.at()));
            put_text(&mut packer.cold, (URL_LENS, URLS), v1.url.as_str());
            shape.clear();
            packer.put_shape(row, &mut values, &mut shape)?;
            put_varint(&mut packer.cold[SHAPES], shapes.number(&shape[..]) as u64);
        }
        for shape in &shapes.all {
            put_varint(&mut packer.cold[SHAPE_TABLE], shape.len() as u64);
            packer.cold[SHAPE_TABLE].extend_from_slice(shape);
        }
        hot.keys = keys.all;
        hot.outcomes = outcomes.all.into_iter().map(OutcomeV3::from).collect();
        let mut cold = Vec::with_capacity(packer.cold.iter().map(|column| column.len() + 4).sum());
        for column in &packer.cold {
            cold.extend_from_slice(&u32::try_from(column.len()).ok()?.to_le_bytes());
            cold.extend_from_slice(column);
        }
        let hot = bytes_of(&hot).ok()?.to_vec();
        Some(PackedBlock { schema: V3, hot, cold })
    }

    fn put_whole(&mut self, record: &RecordRef<'_>) {
        let out = &mut self.cold[WHOLE];
        out.extend_from_slice(&record.kind.to_le_bytes());
        out.extend_from_slice(&record.schema.to_le_bytes());
        out.extend_from_slice(&record.key_hash.to_le_bytes());
        put_varint(out, record.payload.len() as u64);
        out.extend_from_slice(record.payload);
    }

    /// Appends to `shape` which headers and heuristics an attempt has, and how their values are found. What differs
    /// between attempts of one shape goes to other columns.
    fn put_shape(&mut self, row: &Row<'_>, found: &mut impl Iterator<Item = Found>, shape: &mut Vec<u8>) -> Option<()> {
        let (v1, v2) = (&row.attempt.v1, row.attempt);
        shape.push(u8::from(v1.link.is_some()));
        if let Some(link) = v1.link.as_ref() {
            put_text(&mut self.cold, (LITERAL_LENS, LITERALS), link.as_str());
        }
        let floats = [v1.propensity.as_ref(), v2.confidence.as_ref()];
        for value in floats.map(|value| value.map(|value| value.to_native())) {
            shape.push(u8::from(value.is_some()));
            self.cold[FLOATS].extend(value.iter().flat_map(|value| value.to_le_bytes()));
        }
        put_varint(shape, v1.response_headers.len() as u64);
        for header in v1.response_headers.iter() {
            put_name(shape, header.name.as_str());
            self.put_value(shape, header.value.as_str(), found.next()?);
        }
        put_varint(shape, v1.heuristics.len() as u64);
        for tag in v1.heuristics.iter() {
            shape.push(tag.kind);
            if tag.kind == OTHER {
                put_name(shape, tag.kind_other.as_str());
            }
            let importance = tag.importance.as_ref().map(|importance| importance.to_native());
            shape.push(u8::from(importance.is_some()));
            self.cold[FLOATS].extend(importance.iter().flat_map(|value| value.to_le_bytes()));
            self.put_value(shape, tag.value.as_str(), found.next()?);
        }
        Some(())
    }

    fn put_value(&mut self, shape: &mut Vec<u8>, value: &str, found: Found) {
        match found {
            Found::Derived(Derived { op, k, j, len }) => {
                shape.push(op);
                shape.extend(k);
                shape.extend(j);
                len.iter().for_each(|&len| put_varint(&mut self.cold[NUMBERS], len as u64));
            }
            Found::Text(number) if number < SHAPE_TEXTS => {
                shape.push(op::TEXT);
                put_varint(shape, u64::from(number));
            }
            Found::Text(number) => {
                shape.push(op::NEXT_TEXT);
                put_varint(&mut self.cold[NUMBERS], u64::from(number));
            }
            Found::Literal => {
                shape.push(op::LITERAL);
                put_text(&mut self.cold, (LITERAL_LENS, LITERALS), value);
            }
        }
    }
}

type Outcome = (u64, [u32; 5], u32, u16, [u8; 7]);

impl From<Outcome> for OutcomeV3 {
    fn from((weight, names, try_no, http_status, codes): Outcome) -> Self {
        let [fetcher, error_other, source_other, rule_other, shadow_fetcher] = names;
        let [error, source, hint, rule, arm, success, is_banned] = codes;
        Self {
            weight: f64::from_bits(weight),
            fetcher,
            error_other,
            source_other,
            rule_other,
            shadow_fetcher,
            try_no,
            http_status,
            success,
            is_banned,
            error,
            source,
            hint,
            rule,
            arm,
        }
    }
}

/// A value that can be told from the URL and from earlier values.
#[derive(Clone, Copy)]
struct Derived {
    op: u8,
    k: Option<u8>,
    j: Option<u8>,
    len: Option<usize>,
}

fn derive(value: &str, url: &str, host: &str, values: &[&str]) -> Option<Derived> {
    // Flags and numbers are texts.
    if value.len() < 4 || value == "true" {
        return None;
    }
    let found = |op, k: Option<usize>, j: Option<usize>, len| {
        let place = |place: usize| u8::try_from(place).ok();
        let (k, j) = (k.map(place), j.map(place));
        (k != Some(None) && j != Some(None)).then_some(Derived { op, k: k.flatten(), j: j.flatten(), len })
    };
    if value == host {
        return found(op::HOST, None, None, None);
    }
    if let Some(k) = values.iter().position(|earlier| *earlier == value) {
        return found(op::SAME, Some(k), None, None);
    }
    if let Some((first, second)) = value.split_once('|') {
        let k = values.iter().position(|earlier| *earlier == first)?;
        return match values.iter().position(|earlier| *earlier == second) {
            Some(j) => found(op::PAIR, Some(k), Some(j), None),
            None if section(url) == second => found(op::SECTION, Some(k), None, None),
            None => None,
        };
    }
    let k = values.iter().position(|earlier| earlier.ends_with(value))?;
    found(op::END, Some(k), None, Some(value.len()))
}

/// The host in the text of a URL, without user and port, and without `www.`.
pub(super) fn host(url: &str) -> &str {
    let authority = up_to_delimiter(after_scheme(url).unwrap_or_default());
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = host.split_once(':').map_or(host, |(host, _)| host);
    host.strip_prefix("www.").unwrap_or(host)
}

/// The first segment of the path in the text of a URL.
pub(super) fn section(url: &str) -> &str {
    up_to_delimiter(after_scheme(url).and_then(|rest| rest.split_once('/')).map_or("", |(_, path)| path))
}

/// What follows the first `://`. A search for the three characters at once takes several times as long.
fn after_scheme(url: &str) -> Option<&str> {
    let mut rest = url;
    while let Some((_, behind)) = rest.split_once(':') {
        if let Some(found) = behind.strip_prefix("//") {
            return Some(found);
        }
        rest = behind;
    }
    None
}

fn up_to_delimiter(text: &str) -> &str {
    let end = text.bytes().position(|byte| matches!(byte, b'/' | b'?' | b'#'));
    end.and_then(|end| text.get(..end)).unwrap_or(text)
}

fn put_text(cold: &mut [Vec<u8>; COLUMNS], (lens, bytes): (usize, usize), text: &str) {
    put_varint(&mut cold[lens], text.len() as u64);
    cold[bytes].extend_from_slice(text.as_bytes());
}

fn put_name(out: &mut Vec<u8>, name: &str) {
    put_varint(out, name.len() as u64);
    out.extend_from_slice(name.as_bytes());
}

/// Appends a number that may be negative: its distance from zero doubled, and one less for a negative one.
fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_varint(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// A column being read. Past its end there is nothing.
#[derive(Clone, Copy, Default)]
pub(super) struct Column<'a>(pub(super) &'a [u8]);

impl<'a> Column<'a> {
    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], UnpackError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(UnpackError::Bad)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], UnpackError> {
        self.take(N)?.try_into().map_err(|_| UnpackError::Bad)
    }

    pub(super) fn byte(&mut self) -> Result<u8, UnpackError> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn varint(&mut self) -> Result<u64, UnpackError> {
        get_varint(&mut self.0).ok_or(UnpackError::Bad)
    }

    pub(super) fn len(&mut self) -> Result<usize, UnpackError> {
        usize::try_from(self.varint()?).map_err(|_| UnpackError::Bad)
    }

    pub(super) fn signed(&mut self) -> Result<i64, UnpackError> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    pub(super) fn text(&mut self, len: usize) -> Result<&'a str, UnpackError> {
        std::str::from_utf8(self.take(len)?).map_err(|_| UnpackError::Bad)
    }

    pub(super) fn name(&mut self) -> Result<&'a str, UnpackError> {
        let len = self.len()?;
        self.text(len)
    }

    pub(super) fn flag(&mut self) -> Result<bool, UnpackError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(UnpackError::Bad),
        }
    }
}

fn get<T: Copy>(all: &[T], place: usize) -> Result<T, UnpackError> {
    all.get(place).copied().ok_or(UnpackError::Bad)
}

/// The columns being read.
struct Unpacker<'a> {
    texts: Vec<&'a str>,
    /// Bytes that values may still have, so that a forged block does not fill the memory.
    budget: usize,
    cold: [Column<'a>; COLUMNS],
}

fn unpack(block: &Block<'_>, f: &mut dyn FnMut(RecordRef<'_>)) -> Result<(), UnpackError> {
    let hot = access::<ArchivedHotV3>(block.hot).map_err(|_| UnpackError::Bad)?;
    let mut rest = Column(block.cold);
    let mut cold = [Column::default(); COLUMNS];
    for column in &mut cold {
        let len = u32::from_le_bytes(rest.array()?) as usize;
        *column = Column(rest.take(len)?);
    }
    let mut shapes = Vec::new();
    while !cold[SHAPE_TABLE].0.is_empty() {
        let len = cold[SHAPE_TABLE].len()?;
        shapes.push(Column(cold[SHAPE_TABLE].take(len)?));
    }
    let texts = hot.texts.iter().map(|text| text.as_str()).collect();
    let mut columns = Unpacker { texts, budget: MAX_VALUE_BYTES, cold };
    let mut whole = hot.whole.iter().map(|place| usize::from(place.to_native())).peekable();
    let (mut row, mut payload) = (0, AlignedVec::new());
    for place in 0..block.records {
        if whole.next_if_eq(&place).is_some() {
            f(columns.whole()?);
            continue;
        }
        let key = usize::from(get(&hot.key, row)?.to_native());
        let shape = columns.cold[SHAPES].len()?;
        let attempt = columns.attempt(hot, row, get(&shapes, shape)?)?;
        // One buffer for all records: growing one for each takes as long as filling it.
        payload.clear();
        payload = bytes_in(&attempt, payload).map_err(|_| UnpackError::Bad)?;
        let key_hash = get(&hot.keys, key)?.to_native();
        f(RecordRef { kind: kind::ATTEMPT, schema: V2, key_hash, payload: &payload });
        row += 1;
    }
    let is_read = columns.cold.iter().all(|column| column.0.is_empty());
    let is_all = hot.key.len() == row && whole.next().is_none() && rest.0.is_empty() && is_read;
    if is_all { Ok(()) } else { Err(UnpackError::Bad) }
}

impl<'a> Unpacker<'a> {
    fn whole(&mut self) -> Result<RecordRef<'a>, UnpackError> {
        let column = &mut self.cold[WHOLE];
        let (kind, schema) = (u16::from_le_bytes(column.array()?), u16::from_le_bytes(column.array()?));
        let key_hash = u64::from_le_bytes(column.array()?);
        let len = column.len()?;
        Ok(RecordRef { kind, schema, key_hash, payload: column.take(len)? })
    }

    /// A text of an outcome; none for 0.
    fn text(&self, number: rkyv::rend::u32_le) -> Result<Option<&'a str>, UnpackError> {
        match number.to_native() as usize {
            0 => Ok(None),
            number => get(&self.texts, number - 1).map(Some),
        }
    }

    fn spend(&mut self, bytes: usize) -> Result<(), UnpackError> {
        self.budget = self.budget.checked_sub(bytes).ok_or(UnpackError::Bad)?;
        Ok(())
    }

    fn literal(&mut self) -> Result<&'a str, UnpackError> {
        let len = self.cold[LITERAL_LENS].len()?;
        self.cold[LITERALS].text(len)
    }

    fn attempt(
        &mut self,
        hot: &ArchivedHotV3,
        row: usize,
        mut shape: Column<'a>,
    ) -> Result<AttemptV2<'a>, UnpackError> {
        let place = usize::from(get(&hot.outcome, row)?.to_native());
        let outcome = hot.outcomes.get(place).ok_or(UnpackError::Bad)?;
        let attempted_at = match hot.wide_at.get(row) {
            Some(at) => at.to_native(),
            None => hot.base_ms.to_native().wrapping_add(i64::from(get(&hot.at, row)?.to_native())),
        };
        let mut id = [0; 16];
        let time = self.cold[ID_TIMES].signed()?.wrapping_add(attempted_at);
        id[..6].copy_from_slice(&time.to_be_bytes()[2..]);
        id[6..].copy_from_slice(&get(&hot.id, row)?);
        let url_len = self.cold[URL_LENS].len()?;
        let url = self.cold[URLS].text(url_len)?;
        let link = if shape.flag()? { Some(Cow::Borrowed(self.literal()?)) } else { None };
        let mut floats = [None; 2];
        for float in &mut floats {
            if shape.flag()? {
                *float = Some(f64::from_le_bytes(self.cold[FLOATS].array()?));
            }
        }
        let [propensity, confidence] = floats;
        let count = shape.len()?;
        let mut response_headers = Vec::with_capacity(count.min(RESERVED));
        for _ in 0..count {
            let name = Cow::Borrowed(shape.name()?);
            let op = shape.byte()?;
            let value = self.value(op, &mut shape)?;
            self.spend(name.len() + value.len())?;
            response_headers.push(HeaderV1 { name, value });
        }
        let count = shape.len()?;
        let mut heuristics = Vec::with_capacity(count.min(RESERVED));
        for _ in 0..count {
            let kind = shape.byte()?;
            let kind_other = Cow::Borrowed(if kind == OTHER { shape.name()? } else { "" });
            let importance = if shape.flag()? { Some(f32::from_le_bytes(self.cold[FLOATS].array()?)) } else { None };
            let value = self.heuristic(&mut shape, url, &heuristics)?;
            self.spend(value.len())?;
            heuristics.push(TagV1 { kind, kind_other, value, importance });
        }
        let text = |number| self.text(number).map(|text| Cow::Borrowed(text.unwrap_or_default()));
        Ok(AttemptV2 {
            v1: AttemptV1 {
                id,
                attempted_at,
                duration_ms: u64::from(get(&hot.took, row)?.to_native()),
                weight: outcome.weight.to_native(),
                propensity,
                link,
                url: Cow::Borrowed(url),
                fetcher: text(outcome.fetcher)?,
                error_other: text(outcome.error_other)?,
                source_other: text(outcome.source_other)?,
                shadow_fetcher: self.text(outcome.shadow_fetcher)?.map(Cow::Borrowed),
                response_headers,
                heuristics,
                try_no: outcome.try_no.to_native(),
                http_status: outcome.http_status.to_native(),
                success: outcome.success != NONE,
                is_banned: outcome.is_banned != NONE,
                error: outcome.error,
                source: outcome.source,
                hint: outcome.hint,
            },
            confidence,
            rule_other: text(outcome.rule_other)?,
            rule: outcome.rule,
            arm: outcome.arm,
        })
    }

    /// A value that the shape does not derive.
    fn value(&mut self, op: u8, shape: &mut Column<'a>) -> Result<Cow<'a, str>, UnpackError> {
        let number = match op {
            op::LITERAL => return self.literal().map(Cow::Borrowed),
            op::TEXT => shape.len()?,
            op::NEXT_TEXT => self.cold[NUMBERS].len()?,
            _ => return Err(UnpackError::Bad),
        };
        get(&self.texts, number).map(Cow::Borrowed)
    }

    fn heuristic(
        &mut self,
        shape: &mut Column<'a>,
        url: &'a str,
        earlier: &[TagV1<'a>],
    ) -> Result<Cow<'a, str>, UnpackError> {
        let op = shape.byte()?;
        let mut place = || Ok(&earlier.get(usize::from(shape.byte()?)).ok_or(UnpackError::Bad)?.value);
        Ok(match op {
            op::HOST => Cow::Borrowed(host(url)),
            op::SAME => place()?.clone(),
            op::END => {
                let (value, len) = (place()?, self.cold[NUMBERS].len()?);
                let from = value.len().checked_sub(len).ok_or(UnpackError::Bad)?;
                let end = match value {
                    Cow::Borrowed(value) => value.get(from..).map(Cow::Borrowed),
                    Cow::Owned(value) => value.get(from..).map(|end| Cow::Owned(end.to_owned())),
                };
                end.ok_or(UnpackError::Bad)?
            }
            op::PAIR => Cow::Owned([place()?, "|", place()?].concat()),
            op::SECTION => Cow::Owned([place()?, "|", section(url)].concat()),
            _ => self.value(op, shape)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::collection::vec;
    use proptest::option::of;
    use proptest::prelude::*;
    use uuid::Uuid;

    use fetchwise_log::OwnedBlock;

    use super::super::codec::{decode, encode_attempt, encode_host};
    use super::super::codes::{SchemaError, V1};
    use super::super::columns::{AttemptColumns, ColumnsRecord, RowBuffer, RowError};
    use super::super::view::{self, ClampedAttempt};
    use super::*;
    use crate::evidence::Observation;
    use crate::journal::entry::Entry;
    use fetchwise_types::attempt::error_kind::ErrorKind;
    use fetchwise_types::attempt::{Arm, Attempt, ErrorType, Hint, Tag};
    use fetchwise_types::heuristic::Heuristic;
    use fetchwise_types::response::Header;
    use fetchwise_types::time::Timestamp;

    const T0: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    /// Record as a block takes it, with its bytes.
    type Stored = (u16, u16, u64, Vec<u8>);

    fn stored(attempt: &Attempt) -> Stored {
        let encoded = encode_attempt(attempt).unwrap();
        (encoded.kind, V2, encoded.key_hash, encoded.payload.to_vec())
    }

    /// Packs and unpacks records; returns them and the block.
    fn round(all: &[Stored]) -> (Vec<Stored>, Option<PackedBlock>) {
        // Records start at addresses divisible by 8.
        let aligned: Vec<_> = all
            .iter()
            .map(|(.., payload)| {
                let mut bytes = rkyv::util::AlignedVec::<16>::new();
                bytes.extend_from_slice(payload);
                bytes
            })
            .collect();
        let records: Vec<_> = all
            .iter()
            .zip(&aligned)
            .map(|(&(kind, schema, key_hash, _), payload)| RecordRef { kind, schema, key_hash, payload })
            .collect();
        let Some(packed) = pack_exactly(&records) else { return (all.to_vec(), None) };
        (unpacked(&packed, all.len()).unwrap(), Some(packed))
    }

    fn unpacked(packed: &PackedBlock, records: usize) -> Result<Vec<Stored>, UnpackError> {
        let mut hot = rkyv::util::AlignedVec::<16>::new();
        hot.extend_from_slice(&packed.hot);
        let mut back = Vec::new();
        let block = Block { schema: packed.schema, records, hot: &hot, cold: &packed.cold };
        BLOCKS.unpack(&block, &mut |r| back.push((r.kind, r.schema, r.key_hash, r.payload.to_vec())))?;
        Ok(back)
    }

    /// What a fold learns from a record: its key and everything that evidence reads.
    fn learned(key: u64, attempt: &impl Observation, fetcher: &str, outcome: usize) -> String {
        let mut heuristics = Vec::new();
        attempt.each_heuristic(&mut |kind, value| heuristics.push((kind, value)));
        format!("{key} {:?} {heuristics:?} {fetcher:?} {outcome}", attempt.fields())
    }

    /// What a fold sees of a record.
    fn see(record: &RecordRef<'_>) -> String {
        let (key, RecordRef { kind, schema, payload, .. }) = (record.key_hash, *record);
        match view::attempt(kind, schema, payload) {
            Ok(Some(view)) => {
                let whole = ClampedAttempt(view, Timestamp::from_millis(i64::MAX));
                learned(key, &whole, view.fetcher(), view.outcome())
            }
            Ok(None) => format!("{key} {kind} {schema} {payload:?}"),
            // The text of the error has addresses.
            Err(SchemaError::Invalid(_)) => format!("{key} not a valid record"),
            Err(error) => format!("{key} {error}"),
        }
    }

    /// What a fold sees of the records of a block, one by one; `None` if the block is refused.
    fn seen(packed: &PackedBlock, records: usize) -> Option<Vec<String>> {
        let all = unpacked(packed, records).ok()?.into_iter().map(|(kind, schema, key_hash, payload)| {
            let mut bytes = rkyv::util::AlignedVec::<16>::new();
            bytes.extend_from_slice(&payload);
            see(&RecordRef { kind, schema, key_hash, payload: &bytes })
        });
        Some(all.collect())
    }

    /// What a fold sees of a block that it reads in columns.
    fn seen_in_columns(packed: &PackedBlock, records: usize) -> Option<Vec<String>> {
        let block = OwnedBlock::new(&Block { schema: packed.schema, records, hot: &packed.hot, cold: &packed.cold });
        let columns = AttemptColumns::parse(block).ok()?;
        let (mut reader, mut buffer) = (columns.reader().ok()?, RowBuffer::default());
        let mut all = Vec::new();
        for (place, &key) in columns.keys().iter().enumerate() {
            all.push(match reader.read(place, &mut buffer) {
                Ok(ColumnsRecord::Attempt(attempt)) => learned(key, &attempt, attempt.fetcher(), attempt.outcome()),
                Ok(ColumnsRecord::Whole(record)) => see(&record),
                Err(RowError::Record(error)) => format!("{key} {error}"),
                Err(RowError::Block(_)) => return None,
            });
        }
        (all.len() == records).then_some(all)
    }

    fn attempt(n: u64) -> Attempt {
        let text = format!("https://www.site{n}.example.org/section{}/page-{n}.html?q={n}", n % 7);
        let mut attempt =
            Attempt::new(&url::Url::parse(&text).unwrap(), ["plain", "browser"][n as usize % 2], T0).unwrap();
        attempt.id = Uuid::from_u128(u128::from(n) << 70 | 0x7000_0000_0000_8000_0000_0000_0000);
        attempt.duration_ms = 100 + n % 50;
        if n.is_multiple_of(5) { attempt.failed(ErrorKind::Blocked403) } else { attempt.delivered() }
    }

    /// Bytes that a release has written stay readable. `FETCHWISE_BLESS=1` writes a missing file.
    #[test]
    fn a_golden_block_unpacks_to_the_same_records_and_is_packed_to_the_same_bytes() {
        let mut records: Vec<Stored> = (0..20).map(attempt).map(|attempt| stored(&attempt)).collect();
        let host = encode_host("example.org", Some(T0), T0).unwrap();
        records.insert(7, (host.kind, V1, host.key_hash, host.payload.to_vec()));
        let mut rich = attempt(3);
        rich.link = "article 17".to_owned();
        rich.response_headers = vec![Header::new("Server", "cloudflare"), Header::new("CF-Ray", "8a1b2c3d4e5f-FRA")];
        rich.propensity = Some(0.02);
        rich.confidence = Some(0.25);
        rich.hint = Some(Hint::Empty);
        rich.arm = Some(Arm::Legacy);
        rich.rule = Some("my own rule".into());
        rich.source = Some("my own".into());
        rich.error_type = Some(ErrorType::from_name("gremlins"));
        rich.shadow_fetcher = Some("direct_access".to_owned());
        rich.heuristics.push(Tag { heuristic: Heuristic::flag("status_403"), importance: Some(0.75) });
        records.push(stored(&rich));
        let (back, packed) = round(&records);
        let packed = packed.unwrap();
        assert!(back == records);
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/blocks");
        for (name, bytes) in [("attempts-v3.hot", &packed.hot), ("attempts-v3.cold", &packed.cold)] {
            if std::env::var_os("FETCHWISE_BLESS").is_some() && !dir.join(name).exists() {
                std::fs::create_dir_all(&dir).unwrap();
                std::fs::write(dir.join(name), bytes).unwrap();
            }
            assert!(std::fs::read(dir.join(name)).unwrap() == *bytes, "{name}");
        }
    }

    #[test]
    fn a_block_of_ordinary_attempts_is_small_and_holds_none_of_them_whole() {
        let records: Vec<Stored> = (0..1000).map(attempt).map(|attempt| stored(&attempt)).collect();
        let (back, packed) = round(&records);
        assert!(back == records);
        let packed = packed.unwrap();
        let mut hot = rkyv::util::AlignedVec::<16>::new();
        hot.extend_from_slice(&packed.hot);
        assert!(access::<ArchivedHotV3>(&hot).unwrap().whole.is_empty());
        assert!(packed.hot.len() < 33_000, "{}", packed.hot.len());
        // The whole way, with the compression of the log.
        let dir = tempfile::tempdir().unwrap();
        append(dir.path(), &records);
        append(dir.path(), &records[..1]);
        let size = || fetchwise_log::Reader::open(dir.path()).unwrap().segments().next().unwrap().bytes;
        let before = size();
        pack(dir.path());
        println!("{before} bytes of 1000 attempts become {}", size());
        assert!(size() < before / 4, "{before} and {}", size());
    }

    /// Appends records to the log in a new segment.
    fn append(dir: &Path, records: &[Stored]) {
        let mut options = fetchwise_log::LogOptions::default();
        options.fingerprint = super::super::fingerprint();
        options.begin_segment = true;
        let (log, _) = fetchwise_log::Log::open(dir, options).unwrap();
        for (kind, schema, key_hash, payload) in records {
            let (kind, schema, key_hash, time_ms) = (*kind, *schema, *key_hash, T0.as_millis());
            log.append(fetchwise_log::Record { kind, schema, key_hash, time_ms, payload }).unwrap();
        }
        log.close().unwrap();
    }

    /// Packs all segments but the last.
    fn pack(dir: &Path) {
        let maintenance = fetchwise_log::Maintenance::lock(dir).unwrap();
        let mut options = fetchwise_log::CompactOptions::new(0, T0.as_millis());
        options.blocks = Some(&BLOCKS);
        maintenance.compact(&options, &mut |_, _| true, &mut |_| {}).unwrap();
    }

    #[test]
    fn a_layout_of_a_newer_release_is_refused_as_such() {
        let (_, packed) = round(&[stored(&attempt(1))]);
        let newer = PackedBlock { schema: V3 + 1, ..packed.unwrap() };
        assert!(matches!(unpacked(&newer, 1), Err(UnpackError::Newer(_))));
    }

    /// Journal of attempts in records of version 1, records of version 2 and, if `packs`, blocks: (its directory,
    /// attempts).
    fn mixed(packs: bool) -> (tempfile::TempDir, Vec<Attempt>) {
        let dir = tempfile::tempdir().unwrap();
        let all: Vec<Attempt> = (0..900).map(attempt).collect();
        for (session, some) in all.chunks(300).enumerate() {
            let as_written = |(n, attempt): (usize, &Attempt)| {
                let (kind, schema, key_hash, payload) = stored(attempt);
                match n % 3 {
                    1 => (kind, V1, key_hash, bytes_of(&AttemptV1::from(attempt)).unwrap().to_vec()),
                    _ => (kind, schema, key_hash, payload),
                }
            };
            let records: Vec<Stored> = some.iter().enumerate().map(as_written).collect();
            append(dir.path(), &records);
            if session == 1 && packs {
                pack(dir.path());
            }
        }
        let reader = fetchwise_log::Reader::open(dir.path()).unwrap();
        let kinds: Vec<bool> = reader.segments().map(|segment| segment.packed).collect();
        assert!(kinds.contains(&packs) && kinds.contains(&false), "{kinds:?}");
        (dir, all)
    }

    #[test]
    fn a_log_with_blocks_gives_the_evidence_of_one_of_records_to_the_bit() {
        let image = |packs: bool| {
            let (dir, _) = mixed(packs);
            let selector = crate::selector::Selector::builder().around(T0).build().unwrap();
            let loaded = crate::journal::load(dir.path(), &selector, T0).unwrap();
            assert_eq!((loaded.replayed.attempts, loaded.last_seq), (900, 900));
            let surveyed = crate::journal::survey(dir.path()).unwrap();
            assert_eq!(surveyed.fetchers, ["browser", "plain"]);
            (selector.image(T0, &[]), loaded.replayed)
        };
        assert!(image(true) == image(false));
    }

    /// A block that a fold cannot read is damage that is named, as for every other reader.
    #[test]
    fn a_fold_reports_a_block_that_it_cannot_read_with_the_records_in_it() {
        struct Refuses;
        impl fetchwise_log::BlockFold<u64> for Refuses {
            type Prepared = AttemptColumns;
            fn prepare(&self, block: OwnedBlock) -> Result<AttemptColumns, UnpackError> {
                AttemptColumns::parse(block)
            }
            fn keys<'p>(&self, block: &'p AttemptColumns) -> &'p [u64] {
                block.keys()
            }
            fn fold(
                &self,
                _: &mut u64,
                _: &AttemptColumns,
                all: &[fetchwise_log::BlockRecord],
            ) -> Result<(), UnpackError> {
                if all.is_empty() { Ok(()) } else { Err(UnpackError::Bad) }
            }
        }
        let (dir, _) = mixed(true);
        let reader = fetchwise_log::Reader::open(dir.path()).unwrap();
        let count = |seen: &mut u64, _, _: RecordRef<'_>| *seen += 1;
        let folded = reader.fold_sharded(0, vec![0; 2], |_, _| {}, count, &Refuses, |_| {});
        let Err(fetchwise_log::Error::Corrupt { damage, .. }) = folded else { panic!("{folded:?}") };
        assert_eq!(damage[0].records, Some((1, 300)));
        assert_eq!(damage[0].what, "a block cannot be unpacked");
    }

    #[test]
    fn records_of_both_versions_and_blocks_in_one_log_give_the_evidence_of_what_was_live() {
        let (dir, all) = mixed(true);
        let mut seen = Vec::new();
        crate::journal::replay(dir.path(), |seq, entry| seen.push((seq, entry))).unwrap();
        let expected: Vec<_> = (1..).zip(all.iter().cloned().map(Entry::Attempt)).collect();
        assert!(seen == expected);
        let build = || crate::selector::Selector::builder().around(T0).build().unwrap();
        let (live, replayed) = (build(), build());
        all.iter().for_each(|attempt| live.observe(attempt));
        crate::journal::load(dir.path(), &replayed, T0).unwrap();
        for n in 0..900 {
            for key in [("domain", &*format!("site{n}.example.org")), ("suffix", ".html"), ("path_depth", "2")] {
                for fetcher in ["plain", "browser"] {
                    let page = fetchwise_types::heuristic::url::ContentKind::Page;
                    let of = |selector: &crate::selector::Selector| selector.weights(key, page, fetcher, T0);
                    let (a, b) = (of(&live), of(&replayed));
                    assert_eq!(a.attempts, b.attempts, "{key:?} {fetcher}");
                    let pairs = [(a.total, b.total), (a.success, b.success), (a.blocked, b.blocked)];
                    assert!(
                        pairs.iter().all(|(a, b)| (a - b).abs() < 1e-9 * a.max(1.0)),
                        "{key:?} {fetcher}: {pairs:?}"
                    );
                }
            }
        }
        assert!(crate::journal::maintenance::verify(dir.path(), &mut |_, _| {}).unwrap().is_sound());
        // A reader that does not know the layout says so and hands out nothing wrong.
        let reader = fetchwise_log::Reader::open(dir.path()).unwrap();
        let error = reader.for_each(|_, _| {}).unwrap_err().to_string();
        assert!(error.contains("packed records"), "{error}");
    }

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![
            Just(String::new()),
            Just("true".to_owned()),
            "[a-z]{1,3}",
            "[a-z]{9,12}",
            "\\PC{0,40}",
            ".{0,20}\\|.{0,9}"
        ]
    }

    fn url() -> impl Strategy<Value = String> {
        prop_oneof![
            "https?://(www\\.)?[a-c]{1,2}\\.(co\\.uk|org|example)(/[a-z]{0,4}){0,3}(\\.pdf|\\.html)?(\\?q=[0-9])?",
            "http://u:p@(www\\.)?h[0-9]\\.org:8080/x\\|y/",
            Just("http://[2001:db8::1]/a".to_owned()),
            Just("http://10.0.0.1/".to_owned()),
            Just("http://www.com/".to_owned()),
        ]
    }

    fn odd_float() -> impl Strategy<Value = f64> {
        prop_oneof![Just(1.0), Just(0.5), Just(-0.0), Just(f64::NAN), Just(f64::INFINITY), any::<f64>()]
    }

    fn odd_attempt() -> impl Strategy<Value = Attempt> {
        let numbers = (any::<u128>(), any::<bool>(), any::<i64>(), any::<u64>(), any::<u16>(), 0u32..3);
        let flags = (any::<bool>(), any::<bool>(), any::<bool>(), 0u8..6);
        let texts = (of(text()), of(text()), of(text()), of(text()), of(text()), text());
        let lists = (vec((text(), text()), 0..3), vec((text(), text(), of(any::<f32>())), 0..4));
        let floats = (odd_float(), of(odd_float()), of(odd_float()));
        (url(), numbers, flags, texts, lists, floats).prop_filter_map(
            "a URL",
            |(url, numbers, flags, texts, lists, floats)| {
                let (id, is_near, at, took, status, try_no) = numbers;
                let at = if is_near { T0.as_millis() + at % 100_000 } else { at };
                let at = Timestamp::from_millis(at);
                let mut a = Attempt::new(&url::Url::parse(&url).ok()?, "plain", at).ok()?;
                (a.id, a.duration_ms) = (Uuid::from_u128(id), if is_near { took % 100_000 } else { took });
                // A record writes no status as 0.
                (a.http_status, a.try_no) = ((status % 3 == 1).then_some(status), try_no);
                let (success, is_banned, has_fetcher, hint) = flags;
                (a.success, a.is_banned) = (success, is_banned);
                a.hint = [None, Some(Hint::Blocked), Some(Hint::Empty), Some(Hint::Timeout), Some(Hint::Unknown), None]
                    [usize::from(hint)];
                let (link, error, source, rule, shadow, fetcher) = texts;
                a.link = link.unwrap_or_else(|| a.url.clone());
                a.error_type = error.map(|name| ErrorType::from_name(&name));
                (a.source, a.rule) = (source.map(Into::into), rule.map(Into::into));
                a.shadow_fetcher = shadow;
                if has_fetcher {
                    a.fetcher = fetcher;
                }
                let (headers, tags) = lists;
                a.response_headers = headers.iter().map(|(name, value)| Header::new(name, value)).collect();
                for (kind, value, importance) in tags {
                    a.heuristics.push(Tag { heuristic: Heuristic::new(kind, value), importance });
                }
                (a.weight, a.propensity, a.confidence) = floats;
                Some(a)
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 4, ..ProptestConfig::default() })]
        /// Equal in every byte, so in every field.
        #[test]
        fn any_attempts_come_back_exactly(odd in vec(odd_attempt(), 1..40), plain in 0u64..20) {
            let mut records: Vec<Stored> = odd.iter().map(stored).collect();
            records.extend((0..plain).map(|n| stored(&attempt(n))));
            let (back, packed) = round(&records);
            // Such attempts are stored whole, and there is no block of nothing else.
            let is_whole = |a: &Attempt| u32::try_from(a.duration_ms).is_err() || a.shadow_fetcher.as_deref() == Some("");
            prop_assert!(packed.is_some() || plain == 0 && odd.iter().all(is_whole));
            prop_assert!(back == records);
            if let Some(packed) = packed {
                prop_assert_eq!(seen(&packed, records.len()), seen_in_columns(&packed, records.len()));
            }
            for ((kind, schema, _, payload), attempt) in back.iter().zip(&odd) {
                let Ok(Entry::Attempt(back)) = decode(*kind, *schema, payload) else { panic!("not an attempt") };
                // NaN is not equal to itself.
                prop_assert_eq!(format!("{back:?}"), format!("{attempt:?}"));
            }
        }

        /// Records of other kinds and versions, and bytes that are no record, are kept as they are.
        #[test]
        fn any_records_come_back_exactly(
            odd in vec((0u16..4, 0u16..4, any::<u64>(), vec(any::<u8>(), 0..300)), 0..20),
            at in 0usize..20,
            flip in (any::<u16>(), 0u8..8),
        ) {
            let mut records: Vec<Stored> = odd;
            let place = at.min(records.len());
            records.insert(place, stored(&attempt(1)));
            // A record that decodes, but is not what this release would write.
            let mut other = stored(&attempt(2));
            let byte = usize::from(flip.0) % other.3.len();
            other.3[byte] ^= 1 << flip.1;
            records.insert(place, other);
            let (back, packed) = round(&records);
            prop_assert!(packed.is_some() && back == records);
        }

        /// Bytes that passed the checksum may still be wrong: they are refused or read, and never panic. Whether their
        /// records are made or not is the same.
        #[test]
        fn damaged_blocks_never_panic(
            odd in vec(odd_attempt(), 0..4),
            flips in vec((any::<u32>(), 0u8..8), 1..6),
            cut in any::<u16>(),
        ) {
            let mut records: Vec<Stored> = (0..12).map(|n| stored(&attempt(n))).collect();
            records.extend(odd.iter().map(stored));
            let (_, packed) = round(&records);
            let mut packed = packed.unwrap();
            for (at, bit) in flips {
                let (at, cold) = (at as usize, packed.hot.len());
                match at % (cold + packed.cold.len()) {
                    at if at < cold => packed.hot[at] ^= 1 << bit,
                    at => packed.cold[at - cold] ^= 1 << bit,
                }
            }
            prop_assert_eq!(seen(&packed, records.len()), seen_in_columns(&packed, records.len()));
            packed.cold.truncate(usize::from(cut) % packed.cold.len());
            prop_assert!(unpacked(&packed, records.len()).is_err());
            prop_assert!(seen_in_columns(&packed, records.len()).is_none());
        }
    }
}
