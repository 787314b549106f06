//! Blocks of attempts: the layout in which maintenance packs them, schema version 3.
//!
//! Owns: the columns, and the conversion of records to and from them.
//!
//! Invariants: a record comes back equal in every byte. What the columns do not hold exactly goes into the block as a
//! whole record: every other kind and version, and an attempt that the columns would change. A released layout never
//! changes, as that of a record.
//!
//! Must not know: frames, files, what attempts teach.

use std::borrow::Cow;
use std::collections::HashMap;
use std::mem::{align_of, offset_of, size_of};

use fetchwise_log::{Block, BlockFormat, PackedBlock, RecordRef, UnpackError, get_varint, put_varint};
use rkyv::{Archive, Serialize};

use super::codes::{NONE, OTHER, V2, kind};
use super::records::{ArchivedAttemptV2, AttemptV1, AttemptV2, HeaderV1, TagV1, access, bytes_of};

/// Schema version of a block.
const V3: u16 = 3;

/// The layout of this release's blocks, for readers and for compaction.
pub(crate) static BLOCKS: AttemptBlocks = AttemptBlocks;

/// The layout of blocks of attempts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttemptBlocks;

/// What is read in place: one row for each attempt, and what rows refer to by number.
#[derive(Archive, Serialize)]
struct HotV3 {
    /// Times count from here.
    base_ms: i64,
    /// Texts that several rows have, and the names of fetchers.
    texts: Vec<String>,
    /// Keys of the records.
    keys: Vec<u64>,
    outcomes: Vec<OutcomeV3>,
    /// Places in the block of the records that are stored whole.
    whole: Vec<u16>,
    /// Milliseconds since `base_ms`.
    at: Vec<u32>,
    /// Duration, milliseconds.
    took: Vec<u32>,
    key: Vec<u16>,
    outcome: Vec<u16>,
    /// The last ten bytes of the id, which are random.
    id: Vec<[u8; 10]>,
}

/// What many attempts have in common. Texts are numbers in `texts` plus one; 0 is the empty text or none.
#[derive(Archive, Clone, Copy, Debug, PartialEq, Serialize)]
struct OutcomeV3 {
    weight: f64,
    fetcher: u32,
    error_other: u32,
    source_other: u32,
    rule_other: u32,
    shadow_fetcher: u32,
    try_no: u32,
    http_status: u16,
    success: u8,
    is_banned: u8,
    error: u8,
    source: u8,
    hint: u8,
    rule: u8,
    arm: u8,
}

const _: () = {
    assert!(size_of::<ArchivedHotV3>() == 80 && align_of::<ArchivedHotV3>() == 8);
    assert!(offset_of!(ArchivedHotV3, base_ms) == 0 && offset_of!(ArchivedHotV3, texts) == 8);
    assert!(offset_of!(ArchivedHotV3, keys) == 16 && offset_of!(ArchivedHotV3, outcomes) == 24);
    assert!(offset_of!(ArchivedHotV3, whole) == 32 && offset_of!(ArchivedHotV3, at) == 40);
    assert!(offset_of!(ArchivedHotV3, took) == 48 && offset_of!(ArchivedHotV3, key) == 56);
    assert!(offset_of!(ArchivedHotV3, outcome) == 64 && offset_of!(ArchivedHotV3, id) == 72);
    assert!(size_of::<ArchivedOutcomeV3>() == 48 && align_of::<ArchivedOutcomeV3>() == 8);
    assert!(offset_of!(ArchivedOutcomeV3, weight) == 0 && offset_of!(ArchivedOutcomeV3, fetcher) == 8);
    assert!(offset_of!(ArchivedOutcomeV3, shadow_fetcher) == 24 && offset_of!(ArchivedOutcomeV3, try_no) == 28);
    assert!(offset_of!(ArchivedOutcomeV3, http_status) == 32 && offset_of!(ArchivedOutcomeV3, arm) == 40);
};

/// How the value of a header or heuristic is found. Numbers of heuristics are places in the attempt's list.
mod op {
    /// The next literal.
    pub(super) const LITERAL: u8 = 0;
    /// The URL's host without `www.`.
    pub(super) const HOST: u8 = 1;
    /// The value of heuristic k.
    pub(super) const SAME: u8 = 2;
    /// The end of the value of heuristic k, as long as the next number says.
    pub(super) const END: u8 = 3;
    /// The value of heuristic k, `|`, and the value of heuristic j.
    pub(super) const PAIR: u8 = 4;
    /// The value of heuristic k, `|`, and the first segment of the URL's path.
    pub(super) const SECTION: u8 = 5;
    /// The text with a number that the shape has.
    pub(super) const TEXT: u8 = 6;
    /// The text with the next number.
    pub(super) const NEXT_TEXT: u8 = 7;
}

/// Texts with a smaller number are part of the shape; with others, there would be too many shapes.
const SHAPE_TEXTS: u32 = 48;

/// Columns of the cold part, in order.
const COLUMNS: usize = 10;
const ID_TIMES: usize = 0;
const URL_LENS: usize = 1;
const URLS: usize = 2;
const SHAPES: usize = 3;
const SHAPE_TABLE: usize = 4;
const NUMBERS: usize = 5;
const LITERAL_LENS: usize = 6;
const LITERALS: usize = 7;
const FLOATS: usize = 8;
const WHOLE: usize = 9;

impl BlockFormat for AttemptBlocks {
    fn pack(&self, records: &[RecordRef<'_>]) -> Option<PackedBlock> {
        if records.len() > usize::from(u16::MAX) {
            return None;
        }
        let mut rows: Vec<Option<Row<'_>>> = records.iter().map(Row::of).collect();
        let base_ms = rows.iter().flatten().map(Row::at).min()?;
        for row in &mut rows {
            *row = row.take().filter(|row| u32::try_from(row.at().saturating_sub(base_ms)).is_ok());
        }
        let packed = Packer::pack(base_ms, records, &rows)?;
        // An attempt that would come back different is stored whole.
        let (mut at, mut is_equal) = (0, true);
        let block = Block { schema: V3, records: records.len(), hot: &packed.hot, cold: &packed.cold };
        let mut aligned = rkyv::util::AlignedVec::<16>::new();
        aligned.extend_from_slice(&packed.hot);
        let compared = unpack(&Block { hot: &aligned, ..block }, &mut |back| {
            if records.get(at) != Some(&back) {
                is_equal = false;
                rows.get_mut(at).map(Option::take);
            }
            at += 1;
        });
        compared.ok()?;
        if is_equal { Some(packed) } else { Packer::pack(base_ms, records, &rows) }
    }

    fn unpack(&self, block: &Block<'_>, f: &mut dyn FnMut(RecordRef<'_>)) -> Result<(), UnpackError> {
        if block.schema != V3 {
            return Err(UnpackError::Newer(format!("layout {} of a block of attempts", block.schema)));
        }
        unpack(block, f)
    }
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
}

/// Gives numbers to values, in the order in which they come.
struct Numbering<T> {
    all: Vec<T>,
    numbers: HashMap<T, usize>,
}

impl<T: Clone + Eq + std::hash::Hash> Numbering<T> {
    fn new() -> Self {
        Self { all: Vec::new(), numbers: HashMap::new() }
    }

    fn number(&mut self, value: &T) -> usize {
        match self.numbers.get(value) {
            Some(&number) => number,
            None => {
                self.all.push(value.clone());
                self.numbers.insert(value.clone(), self.all.len() - 1);
                self.all.len() - 1
            }
        }
    }
}

/// The columns being filled.
struct Packer<'a> {
    texts: HashMap<&'a str, u32>,
    cold: [Vec<u8>; COLUMNS],
}

impl<'a> Packer<'a> {
    fn pack(base_ms: i64, records: &[RecordRef<'a>], rows: &[Option<Row<'a>>]) -> Option<PackedBlock> {
        let texts = common_texts(rows);
        let numbers = (0..).zip(&texts).map(|(number, text)| (*text, number)).collect();
        let mut packer = Packer { texts: numbers, cold: Default::default() };
        let (mut keys, mut outcomes, mut shapes) = (Numbering::new(), Numbering::new(), Numbering::new());
        let mut hot = HotV3 {
            base_ms,
            texts: texts.iter().map(|text| (*text).to_owned()).collect(),
            keys: Vec::new(),
            outcomes: Vec::new(),
            whole: Vec::new(),
            at: Vec::new(),
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
            hot.at.push(u32::try_from(row.at() - base_ms).ok()?);
            hot.took.push(u32::try_from(v1.duration_ms.to_native()).ok()?);
            hot.key.push(u16::try_from(keys.number(&row.key_hash)).ok()?);
            let outcome = packer.outcome(row);
            hot.outcome.push(u16::try_from(outcomes.number(&outcome)).ok()?);
            hot.id.push(*v1.id.last_chunk()?);
            put_signed(&mut packer.cold[ID_TIMES], row.id_time().wrapping_sub(row.at()));
            put_text(&mut packer.cold, (URL_LENS, URLS), v1.url.as_str());
            let shape = packer.shape(row);
            put_varint(&mut packer.cold[SHAPES], shapes.number(&shape) as u64);
        }
        for shape in &shapes.all {
            put_varint(&mut packer.cold[SHAPE_TABLE], shape.len() as u64);
            packer.cold[SHAPE_TABLE].extend_from_slice(shape);
        }
        hot.keys = keys.all;
        hot.outcomes = outcomes.all.into_iter().map(OutcomeV3::from).collect();
        let mut cold = Vec::new();
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

    /// The outcome, with its weight as bits so that it can be compared.
    fn outcome(&self, row: &Row<'_>) -> Outcome {
        let (v1, v2) = (&row.attempt.v1, row.attempt);
        let names = row.names().map(|name| match name {
            "" => 0,
            name => self.texts.get(name).map_or(0, |number| number + 1),
        });
        let codes = [v1.error, v1.source, v1.hint, v2.rule, v2.arm, u8::from(v1.success), u8::from(v1.is_banned)];
        (v1.weight.to_native().to_bits(), names, v1.try_no.to_native(), v1.http_status.to_native(), codes)
    }

    /// Which headers and heuristics an attempt has, and how their values are found. What differs between attempts of one
    /// shape goes to other columns.
    fn shape(&mut self, row: &Row<'a>) -> Vec<u8> {
        let (v1, v2) = (&row.attempt.v1, row.attempt);
        let mut shape = vec![u8::from(v1.link.is_some())];
        if let Some(link) = v1.link.as_ref() {
            put_text(&mut self.cold, (LITERAL_LENS, LITERALS), link.as_str());
        }
        let floats = [v1.propensity.as_ref(), v2.confidence.as_ref()];
        for value in floats.map(|value| value.map(|value| value.to_native())) {
            shape.push(u8::from(value.is_some()));
            self.cold[FLOATS].extend(value.iter().flat_map(|value| value.to_le_bytes()));
        }
        put_varint(&mut shape, v1.response_headers.len() as u64);
        for header in v1.response_headers.iter() {
            put_name(&mut shape, header.name.as_str());
            self.put_value(&mut shape, header.value.as_str());
        }
        put_varint(&mut shape, v1.heuristics.len() as u64);
        let url = v1.url.as_str();
        let mut values: Vec<&str> = Vec::with_capacity(v1.heuristics.len());
        for tag in v1.heuristics.iter() {
            shape.push(tag.kind);
            if tag.kind == OTHER {
                put_name(&mut shape, tag.kind_other.as_str());
            }
            let importance = tag.importance.as_ref().map(|importance| importance.to_native());
            shape.push(u8::from(importance.is_some()));
            self.cold[FLOATS].extend(importance.iter().flat_map(|value| value.to_le_bytes()));
            let value = tag.value.as_str();
            match derive(value, url, &values) {
                Some(Derived { op, k, j, len }) => {
                    shape.push(op);
                    shape.extend(k);
                    shape.extend(j);
                    len.iter().for_each(|&len| put_varint(&mut self.cold[NUMBERS], len as u64));
                }
                None => self.put_value(&mut shape, value),
            }
            values.push(value);
        }
        shape
    }

    fn put_value(&mut self, shape: &mut Vec<u8>, value: &str) {
        match self.texts.get(value) {
            Some(&number) if number < SHAPE_TEXTS => {
                shape.push(op::TEXT);
                put_varint(shape, u64::from(number));
            }
            Some(&number) => {
                shape.push(op::NEXT_TEXT);
                put_varint(&mut self.cold[NUMBERS], u64::from(number));
            }
            None => {
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
struct Derived {
    op: u8,
    k: Option<u8>,
    j: Option<u8>,
    len: Option<usize>,
}

fn derive(value: &str, url: &str, values: &[&str]) -> Option<Derived> {
    // Flags and numbers are texts.
    if value.len() < 4 || value == "true" {
        return None;
    }
    let found = |op, k: Option<usize>, j: Option<usize>, len| {
        let place = |place: usize| u8::try_from(place).ok();
        let (k, j) = (k.map(place), j.map(place));
        (k != Some(None) && j != Some(None)).then_some(Derived { op, k: k.flatten(), j: j.flatten(), len })
    };
    if value == host(url) {
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
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let authority = rest.find(['/', '?', '#']).and_then(|end| rest.get(..end)).unwrap_or(rest);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = host.split_once(':').map_or(host, |(host, _)| host);
    host.strip_prefix("www.").unwrap_or(host)
}

/// The first segment of the path in the text of a URL.
fn section(url: &str) -> &str {
    let rest = url.split_once("://").and_then(|(_, rest)| rest.split_once('/')).map_or("", |(_, path)| path);
    rest.find(['/', '?', '#']).and_then(|end| rest.get(..end)).unwrap_or(rest)
}

/// The texts that get a number, the most frequent first: names of outcomes, and values that occur twice.
fn common_texts<'a>(rows: &[Option<Row<'a>>]) -> Vec<&'a str> {
    let mut counts: HashMap<&str, (usize, bool)> = HashMap::new();
    for row in rows.iter().flatten() {
        for name in row.names().into_iter().filter(|name| !name.is_empty()) {
            counts.entry(name).or_default().1 = true;
        }
        let v1 = &row.attempt.v1;
        for header in v1.response_headers.iter() {
            counts.entry(header.value.as_str()).or_default().0 += 1;
        }
        let url = v1.url.as_str();
        let mut values: Vec<&str> = Vec::with_capacity(v1.heuristics.len());
        for tag in v1.heuristics.iter() {
            let value = tag.value.as_str();
            if derive(value, url, &values).is_none() {
                counts.entry(value).or_default().0 += 1;
            }
            values.push(value);
        }
    }
    let mut texts: Vec<_> = counts.into_iter().filter(|(_, (count, is_name))| *count > 1 || *is_name).collect();
    texts.sort_unstable_by(|(a, (more, _)), (b, (fewer, _))| fewer.cmp(more).then(a.cmp(b)));
    texts.into_iter().map(|(text, _)| text).collect()
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
    put_varint(out, (value << 1 ^ value >> 63) as u64);
}

/// A column being read. Past its end there is nothing.
#[derive(Clone, Copy, Default)]
struct Column<'a>(&'a [u8]);

impl<'a> Column<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], UnpackError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(UnpackError::Bad)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], UnpackError> {
        self.take(N)?.try_into().map_err(|_| UnpackError::Bad)
    }

    fn byte(&mut self) -> Result<u8, UnpackError> {
        self.array().map(|[byte]| byte)
    }

    fn varint(&mut self) -> Result<u64, UnpackError> {
        get_varint(&mut self.0).ok_or(UnpackError::Bad)
    }

    fn len(&mut self) -> Result<usize, UnpackError> {
        usize::try_from(self.varint()?).map_err(|_| UnpackError::Bad)
    }

    fn signed(&mut self) -> Result<i64, UnpackError> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn text(&mut self, len: usize) -> Result<&'a str, UnpackError> {
        std::str::from_utf8(self.take(len)?).map_err(|_| UnpackError::Bad)
    }

    fn name(&mut self) -> Result<&'a str, UnpackError> {
        let len = self.len()?;
        self.text(len)
    }

    fn flag(&mut self) -> Result<bool, UnpackError> {
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
    let mut columns = Unpacker { texts: hot.texts.iter().map(|text| text.as_str()).collect(), cold };
    let mut whole = hot.whole.iter().map(|place| usize::from(place.to_native())).peekable();
    let mut row = 0;
    for place in 0..block.records {
        if whole.next_if_eq(&place).is_some() {
            f(columns.whole()?);
            continue;
        }
        let key = usize::from(get(&hot.key, row)?.to_native());
        let shape = columns.cold[SHAPES].len()?;
        let attempt = columns.attempt(hot, row, get(&shapes, shape)?)?;
        let payload = bytes_of(&attempt).map_err(|_| UnpackError::Bad)?;
        let key_hash = get(&hot.keys, key)?.to_native();
        f(RecordRef { kind: kind::ATTEMPT, schema: V2, key_hash, payload: &payload });
        row += 1;
    }
    let is_read = columns.cold.iter().all(|column| column.0.is_empty());
    let is_all = hot.at.len() == row && whole.next().is_none() && rest.0.is_empty() && is_read;
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
        let at = hot.base_ms.to_native().checked_add(i64::from(get(&hot.at, row)?.to_native()));
        let attempted_at = at.ok_or(UnpackError::Bad)?;
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
        let mut response_headers = Vec::new();
        for _ in 0..shape.len()? {
            let name = Cow::Borrowed(shape.name()?);
            let op = shape.byte()?;
            response_headers.push(HeaderV1 { name, value: self.value(op, &mut shape)? });
        }
        let mut heuristics = Vec::new();
        for _ in 0..shape.len()? {
            let kind = shape.byte()?;
            let kind_other = Cow::Borrowed(if kind == OTHER { shape.name()? } else { "" });
            let importance = if shape.flag()? { Some(f32::from_le_bytes(self.cold[FLOATS].array()?)) } else { None };
            let value = self.heuristic(&mut shape, url, &heuristics)?;
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
            op::PAIR => Cow::Owned(format!("{}|{}", place()?, place()?)),
            op::SECTION => Cow::Owned(format!("{}|{}", place()?, section(url))),
            _ => self.value(op, shape)?,
        })
    }
}
