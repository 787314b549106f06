//! Packing of attempts into a block.
//!
//! Owns: which values are derived, numbered or stored as they are.
//!
//! Invariants: an attempt that does not fit the columns is not packed into them.
//!
//! Must not know: how a block is read.

use std::borrow::Borrow;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, RandomState};

use fetchwise_log::{PackedBlock, RecordRef, put_varint};

use super::super::codes::{OTHER, VERSION, kind};
use super::super::records::{ArchivedAttemptV1, access, bytes_of};
use super::column::{put_name, put_signed, put_text};
use super::layout::{
    COLUMNS, FLOATS, HotV1, ID_TIMES, LITERAL_LENS, LITERALS, NUMBERS, OutcomeV1, SHAPE_TABLE,
    SHAPES, URL_LENS, URLS, WHOLE, op,
};
use super::url_parts::{host, section};
use crate::evidence::PrehashedHasher;

/// Texts with a smaller number are part of the shape; with others, there would be too many shapes.
const SHAPE_TEXTS: u32 = 48;

/// An attempt that fits the columns.
pub(super) struct Row<'a> {
    attempt: &'a ArchivedAttemptV1<'a>,
    key_hash: u64,
}

impl<'a> Row<'a> {
    pub(super) fn of(record: &RecordRef<'a>) -> Option<Self> {
        let is_attempt = (record.kind, record.schema) == (kind::ATTEMPT, VERSION);
        let attempt =
            is_attempt.then(|| access::<ArchivedAttemptV1<'_>>(record.payload).ok())??;
        u32::try_from(attempt.duration_ms.to_native()).ok()?;
        Some(Self { attempt, key_hash: record.key_hash })
    }

    fn at(&self) -> i64 {
        self.attempt.attempted_at.to_native()
    }

    /// The time in its id, ms.
    fn id_time(&self) -> i64 {
        let mut bytes = [0; 8];
        bytes[2..].copy_from_slice(&self.attempt.id[..6]);
        i64::from_be_bytes(bytes)
    }

    /// Texts of its outcome.
    fn names(&self) -> [&'a str; 5] {
        let a = self.attempt;
        let shadow = a.shadow_fetcher.as_ref().map_or("", |name| name.as_str());
        [
            a.fetcher.as_str(),
            a.error_other.as_str(),
            a.source_other.as_str(),
            self.attempt.rule_other.as_str(),
            shadow,
        ]
    }

    /// The outcome, with its weight as bits so that it can be compared.
    fn outcome(&self, names: [u32; 5]) -> Outcome {
        let a = self.attempt;
        let codes =
            [a.error, a.source, a.hint, a.rule, a.arm, u8::from(a.success), u8::from(a.is_banned)];
        (
            a.weight.to_native().to_bits(),
            names,
            a.try_no.to_native(),
            a.http_status.to_native(),
            codes,
        )
    }
}

/// Gives numbers to values, in the order in which they come.
struct Numbering<T, S = RandomState> {
    all: Vec<T>,
    numbers: HashMap<T, usize, S>,
}

/// Numbers of keys, which are hashes already.
type KeyNumbering = Numbering<u64, BuildHasherDefault<PrehashedHasher>>;

/// Values with a smaller number are found by comparing, which is faster than hashing. Most attempts
/// of a batch end in one of a few ways.
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
        if let Some(number) =
            self.all.iter().take(COMPARED).position(|known| known.borrow() == value)
        {
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
    /// The values of all rows. A row has the values of its headers first, and then those of its
    /// heuristics.
    values: Vec<Found>,
}

impl<'a> Findings<'a> {
    /// The texts that get a number are names of outcomes, and values that occur twice; the most
    /// frequent come first.
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
        let (mut names, mut values, mut earlier) =
            (Vec::with_capacity(rows.len()), Vec::new(), Vec::new());
        for row in rows.iter().flatten() {
            names.push(row.names().map(|name| match name {
                "" => 0,
                name => see(name, true) + 1,
            }));
            let mut text = |value| Found::Text(see(value, false));
            let a = row.attempt;
            values.extend(a.response_headers.iter().map(|header| text(header.value.as_str())));
            let (url, host) = (a.url.as_str(), host(a.url.as_str()));
            earlier.clear();
            for tag in a.heuristics.iter() {
                let value = tag.value.as_str();
                values.push(
                    derive(value, url, host, &earlier).map_or_else(|| text(value), Found::Derived),
                );
                earlier.push(value);
            }
        }
        let is_kept = |number: &u32| matches!(counts[*number as usize], (2.., _) | (_, true));
        let mut kept: Vec<u32> = (0..seen.all.len() as u32).filter(is_kept).collect();
        kept.sort_unstable_by_key(|&seen_as| {
            (Reverse(counts[seen_as as usize].0), seen.all[seen_as as usize])
        });
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
        Self {
            texts: kept.into_iter().map(|seen_as| seen.all[seen_as as usize]).collect(),
            names,
            values,
        }
    }
}

/// The columns being filled.
#[derive(Default)]
pub(super) struct Packer {
    cold: [Vec<u8>; COLUMNS],
}

impl Packer {
    pub(super) fn pack(records: &[RecordRef<'_>], rows: &[Option<Row<'_>>]) -> Option<PackedBlock> {
        let times = || rows.iter().flatten().map(Row::at);
        let base_ms = times().min()?;
        let is_wide = times()
            .any(|at| at.checked_sub(base_ms).is_none_or(|span| u32::try_from(span).is_err()));
        let Findings { texts, names, values } = Findings::of(rows);
        let (mut names, mut values) = (names.into_iter(), values.into_iter());
        let mut packer = Self::default();
        let (mut keys, mut outcomes) = (KeyNumbering::new(), Numbering::<Outcome>::new());
        keys.numbers.reserve(rows.len());
        let (mut shapes, mut shape) = (Numbering::<Vec<u8>>::new(), Vec::new());
        let mut hot = HotV1 {
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
            let a = row.attempt;
            match is_wide {
                true => hot.wide_at.push(row.at()),
                false => hot.at.push(u32::try_from(row.at() - base_ms).ok()?),
            }
            hot.took.push(u32::try_from(a.duration_ms.to_native()).ok()?);
            hot.key.push(u16::try_from(keys.number(&row.key_hash)).ok()?);
            let outcome = row.outcome(names.next()?);
            hot.outcome.push(u16::try_from(outcomes.number(&outcome)).ok()?);
            hot.id.push(*a.id.last_chunk()?);
            put_signed(&mut packer.cold[ID_TIMES], row.id_time().wrapping_sub(row.at()));
            put_text(&mut packer.cold, (URL_LENS, URLS), a.url.as_str());
            shape.clear();
            packer.put_shape(row, &mut values, &mut shape)?;
            put_varint(&mut packer.cold[SHAPES], shapes.number(&shape[..]) as u64);
        }
        for shape in &shapes.all {
            put_varint(&mut packer.cold[SHAPE_TABLE], shape.len() as u64);
            packer.cold[SHAPE_TABLE].extend_from_slice(shape);
        }
        hot.keys = keys.all;
        hot.outcomes = outcomes.all.into_iter().map(OutcomeV1::from).collect();
        let mut cold = Vec::with_capacity(packer.cold.iter().map(|column| column.len() + 4).sum());
        for column in &packer.cold {
            cold.extend_from_slice(&u32::try_from(column.len()).ok()?.to_le_bytes());
            cold.extend_from_slice(column);
        }
        let hot = bytes_of(&hot).ok()?.to_vec();
        Some(PackedBlock { schema: VERSION, hot, cold })
    }

    fn put_whole(&mut self, record: &RecordRef<'_>) {
        let out = &mut self.cold[WHOLE];
        out.extend_from_slice(&record.kind.to_le_bytes());
        out.extend_from_slice(&record.schema.to_le_bytes());
        out.extend_from_slice(&record.key_hash.to_le_bytes());
        put_varint(out, record.payload.len() as u64);
        out.extend_from_slice(record.payload);
    }

    /// Appends to `shape` which headers and heuristics an attempt has, and how their values are
    /// found. What differs between attempts of one shape goes to other columns.
    fn put_shape(
        &mut self,
        row: &Row<'_>,
        found: &mut impl Iterator<Item = Found>,
        shape: &mut Vec<u8>,
    ) -> Option<()> {
        let a = row.attempt;
        shape.push(u8::from(a.link.is_some()));
        if let Some(link) = a.link.as_ref() {
            put_text(&mut self.cold, (LITERAL_LENS, LITERALS), link.as_str());
        }
        let floats = [a.propensity.as_ref(), a.confidence.as_ref()];
        for value in floats.map(|value| value.map(|value| value.to_native())) {
            shape.push(u8::from(value.is_some()));
            self.cold[FLOATS].extend(value.iter().flat_map(|value| value.to_le_bytes()));
        }
        put_varint(shape, a.response_headers.len() as u64);
        for header in a.response_headers.iter() {
            put_name(shape, header.name.as_str());
            self.put_value(shape, header.value.as_str(), found.next()?);
        }
        put_varint(shape, a.heuristics.len() as u64);
        for tag in a.heuristics.iter() {
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

impl From<Outcome> for OutcomeV1 {
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
        (k != Some(None) && j != Some(None)).then_some(Derived {
            op,
            k: k.flatten(),
            j: j.flatten(),
            len,
        })
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
