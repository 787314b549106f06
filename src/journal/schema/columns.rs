//! Blocks of attempts as a replay reads them: in columns, without making records.
//!
//! Owns: the cursors into the columns, and the attempt that is being read.
//!
//! Invariants: an attempt has the fields that its record would have. A block that cannot be
//! unpacked is refused, and any bytes are read or refused.
//!
//! Must not know: what attempts teach.

use std::ops::Range;

use fetchwise_log::{OwnedBlock, RecordRef, UnpackError};
use rkyv::util::AlignedVec;

use super::block::{
    ArchivedHotV1, ArchivedOutcomeV1, COLUMNS, Column, FLOATS, ID_TIMES, LITERAL_LENS, LITERALS,
    MAX_VALUE_BYTES, NUMBERS, SHAPE_TABLE, SHAPES, URL_LENS, URLS, WHOLE, host, op, section,
};
use super::codes::{NONE, OTHER, SchemaError, TAG_KINDS, VERSION, from_code, hint_of};
use super::records::access;
use super::view::outcome_number;
use crate::evidence::{Observation, ObservedFields};
use fetchwise_types::attempt::Hint;
use fetchwise_types::time::Timestamp;

/// A block, parsed once for all threads of a replay.
pub(crate) struct AttemptColumns {
    block: OwnedBlock,
    /// The columns in the cold part.
    columns: [Range<usize>; COLUMNS],
    /// `None` for one that no row may have.
    shapes: Vec<Option<Shape>>,
    starts: Vec<Start>,
    /// The key of each record.
    keys: Vec<u64>,
}

/// Where a record of the block begins in its columns.
#[derive(Clone, Copy)]
enum Start {
    Row(RowStart),
    /// A record that is stored whole, and its place in the column.
    Whole(u32),
}

/// Where a row begins in the columns, behind its link and its headers.
#[derive(Clone, Copy)]
struct RowStart {
    row: u16,
    shape: u16,
    url: u32,
    url_len: u32,
    literal_len: u32,
    literal: u32,
    number: u32,
}

/// How the heuristics of a row are built.
struct Shape {
    tags: Vec<ShapeTag>,
    /// Literals, and those before the ones of heuristics.
    literals: (usize, usize),
    /// Whether each number is that of a text, and the count of those before the ones of heuristics.
    numbers: (Vec<bool>, usize),
    float_bytes: usize,
}

struct ShapeTag {
    kind: Kind,
    value: ValueOp,
}

enum Kind {
    Known(&'static str),
    Other(String),
    /// A number that this release does not know.
    Unknown(u8),
}

#[derive(Clone, Copy)]
enum ValueOp {
    Literal,
    Host,
    Same(usize),
    End(usize),
    Pair(usize, usize),
    Section(usize),
    Text(usize),
    NextText,
}

/// A value of the attempt that is being read.
#[derive(Clone, Copy)]
enum Value<'b> {
    Text(&'b str),
    /// A range of the reader's `built`.
    Built(usize, usize),
}

/// The reason why a row cannot be read.
pub(crate) enum RowError {
    /// The block is refused.
    Block(UnpackError),
    /// The record would not be valid.
    Record(SchemaError),
}

impl From<UnpackError> for RowError {
    fn from(error: UnpackError) -> Self {
        Self::Block(error)
    }
}

/// Returns a place as a cursor holds it. A column has at most 16 MiB.
fn small(place: usize) -> Result<u32, UnpackError> {
    u32::try_from(place).map_err(|_| UnpackError::Bad)
}

/// Returns where each column is in `cold`: a length stands before each.
fn column_ranges(cold: &[u8]) -> Result<[Range<usize>; COLUMNS], UnpackError> {
    let (mut columns, mut at) = ([const { 0..0 }; COLUMNS], 0);
    for column in &mut columns {
        let len = u32::from_le_bytes(Column(cold.get(at..).unwrap_or_default()).array()?) as usize;
        *column = at + 4..at + 4 + len;
        at = column.end;
    }
    if at == cold.len() { Ok(columns) } else { Err(UnpackError::Bad) }
}

impl AttemptColumns {
    /// Parses a block.
    pub(crate) fn parse(block: OwnedBlock) -> Result<Self, UnpackError> {
        let view = block.as_block();
        if view.schema != VERSION {
            return Err(UnpackError::Newer(format!(
                "layout {} of a block of attempts",
                view.schema
            )));
        }
        let hot = access::<ArchivedHotV1>(view.hot).map_err(|_| UnpackError::Bad)?;
        let columns = column_ranges(view.cold)?;
        let column =
            |column: usize| Column(view.cold.get(columns[column].clone()).unwrap_or_default());
        let (mut table, mut shapes) = (column(SHAPE_TABLE), Vec::new());
        while !table.0.is_empty() {
            let len = table.len()?;
            shapes.push(Shape::parse(Column(table.take(len)?), hot.texts.len()).ok());
        }
        let text = |at: usize| std::str::from_utf8(column(at).0).map_err(|_| UnpackError::Bad);
        let mut walk = Walk {
            texts: hot.texts.len(),
            urls: text(URLS)?,
            literals: text(LITERALS)?,
            id_times: column(ID_TIMES),
            url_lens: column(URL_LENS),
            shapes: column(SHAPES),
            literal_lens: column(LITERAL_LENS),
            numbers: column(NUMBERS),
            whole: column(WHOLE),
            url: 0,
            literal: 0,
            float: 0,
        };
        let lens = [LITERAL_LENS, NUMBERS, WHOLE].map(|at| columns[at].len());
        let mut whole = hot.whole.iter().map(|place| usize::from(place.to_native())).peekable();
        let (mut starts, mut keys) =
            (Vec::with_capacity(view.records), Vec::with_capacity(view.records));
        let mut row = 0;
        for place in 0..view.records {
            if whole.next_if_eq(&place).is_some() {
                starts.push(Start::Whole(small(lens[2] - walk.whole.0.len())?));
                keys.push(whole_record(&mut walk.whole)?.key_hash);
                continue;
            }
            let key = hot.key.get(row).ok_or(UnpackError::Bad)?.to_native();
            keys.push(hot.keys.get(usize::from(key)).ok_or(UnpackError::Bad)?.to_native());
            starts.push(Start::Row(walk.row(row, &shapes, lens)?));
            row += 1;
        }
        let rest = [
            walk.id_times,
            walk.url_lens,
            walk.shapes,
            walk.literal_lens,
            walk.numbers,
            walk.whole,
        ];
        let is_read = rest.iter().all(|column| column.0.is_empty())
            && [(URLS, walk.url), (LITERALS, walk.literal), (FLOATS, walk.float)]
                .iter()
                .all(|(column, end)| columns[*column].len() == *end);
        if hot.key.len() != row || whole.next().is_some() || !is_read {
            return Err(UnpackError::Bad);
        }
        Ok(Self { block, columns, shapes, starts, keys })
    }

    /// Returns the key of each record, in order.
    pub(crate) fn keys(&self) -> &[u64] {
        &self.keys
    }

    /// Returns a reader of its records.
    pub(crate) fn reader(&self) -> Result<ColumnsReader<'_>, UnpackError> {
        let view = self.block.as_block();
        let hot = access::<ArchivedHotV1>(view.hot).map_err(|_| UnpackError::Bad)?;
        let column =
            |column: usize| view.cold.get(self.columns[column].clone()).unwrap_or_default();
        let text = |column| std::str::from_utf8(column).map_err(|_| UnpackError::Bad);
        Ok(ColumnsReader {
            of: self,
            hot,
            texts: hot.texts.iter().map(|text| text.as_str()).collect(),
            urls: text(column(URLS))?,
            literals: text(column(LITERALS))?,
            literal_lens: column(LITERAL_LENS),
            numbers: column(NUMBERS),
            whole: column(WHOLE),
            copy: AlignedVec::new(),
            budget: MAX_VALUE_BYTES,
        })
    }
}

/// The columns of a block on the way from row to row.
struct Walk<'a> {
    texts: usize,
    urls: &'a str,
    literals: &'a str,
    id_times: Column<'a>,
    url_lens: Column<'a>,
    shapes: Column<'a>,
    literal_lens: Column<'a>,
    numbers: Column<'a>,
    whole: Column<'a>,
    url: usize,
    literal: usize,
    float: usize,
}

impl Walk<'_> {
    fn row(
        &mut self,
        row: usize,
        shapes: &[Option<Shape>],
        lens: [usize; 3],
    ) -> Result<RowStart, UnpackError> {
        let number = self.shapes.len()?;
        let shape = shapes.get(number).and_then(Option::as_ref).ok_or(UnpackError::Bad)?;
        self.id_times.varint()?;
        let (url, url_len) = (self.url, self.url_lens.len()?);
        self.url = end_of_text(self.urls, url, url_len)?;
        self.float += shape.float_bytes;
        let mut start = RowStart {
            row: u16::try_from(row).map_err(|_| UnpackError::Bad)?,
            shape: u16::try_from(number).map_err(|_| UnpackError::Bad)?,
            url: small(url)?,
            url_len: small(url_len)?,
            literal_len: 0,
            literal: 0,
            number: 0,
        };
        let (literals, before) = shape.literals;
        for literal in 0..=literals {
            if literal == before {
                (start.literal_len, start.literal) =
                    (small(lens[0] - self.literal_lens.0.len())?, small(self.literal)?);
            }
            if literal < literals {
                self.literal = end_of_text(self.literals, self.literal, self.literal_lens.len()?)?;
            }
        }
        let (numbers, before) = (&shape.numbers.0, shape.numbers.1);
        for place in 0..=numbers.len() {
            if place == before {
                start.number = small(lens[1] - self.numbers.0.len())?;
            }
            if let Some(is_text) = numbers.get(place) {
                let number = self.numbers.len()?;
                if *is_text && number >= self.texts {
                    return Err(UnpackError::Bad);
                }
            }
        }
        Ok(start)
    }
}

impl Shape {
    fn parse(mut shape: Column<'_>, texts: usize) -> Result<Self, UnpackError> {
        let mut this =
            Self { tags: Vec::new(), literals: (0, 0), numbers: (Vec::new(), 0), float_bytes: 0 };
        this.literals.0 += usize::from(shape.flag()?);
        for _ in 0..2 {
            this.float_bytes += if shape.flag()? { size_of::<f64>() } else { 0 };
        }
        for _ in 0..shape.len()? {
            shape.name()?;
            let op = shape.byte()?;
            this.value(op, &mut shape, texts)?;
        }
        (this.literals.1, this.numbers.1) = (this.literals.0, this.numbers.0.len());
        for _ in 0..shape.len()? {
            let kind = match shape.byte()? {
                OTHER => Kind::Other(shape.name()?.to_owned()),
                code => from_code(&TAG_KINDS, code, "a heuristic's type")
                    .map_or(Kind::Unknown(code), Kind::Known),
            };
            this.float_bytes += if shape.flag()? { size_of::<f32>() } else { 0 };
            let value = this.heuristic(&mut shape, texts)?;
            this.tags.push(ShapeTag { kind, value });
        }
        Ok(this)
    }

    fn value(
        &mut self,
        op: u8,
        shape: &mut Column<'_>,
        texts: usize,
    ) -> Result<ValueOp, UnpackError> {
        match op {
            op::LITERAL => {
                self.literals.0 += 1;
                Ok(ValueOp::Literal)
            }
            op::TEXT => Ok(ValueOp::Text(shape.len().and_then(|number| below(number, texts))?)),
            op::NEXT_TEXT => {
                self.numbers.0.push(true);
                Ok(ValueOp::NextText)
            }
            _ => Err(UnpackError::Bad),
        }
    }

    fn heuristic(&mut self, shape: &mut Column<'_>, texts: usize) -> Result<ValueOp, UnpackError> {
        let op = shape.byte()?;
        let earlier = self.tags.len();
        let mut place = || below(usize::from(shape.byte()?), earlier);
        Ok(match op {
            op::HOST => ValueOp::Host,
            op::SAME => ValueOp::Same(place()?),
            op::END => {
                self.numbers.0.push(false);
                ValueOp::End(place()?)
            }
            op::PAIR => ValueOp::Pair(place()?, place()?),
            op::SECTION => ValueOp::Section(place()?),
            _ => return self.value(op, shape, texts),
        })
    }
}

/// Returns the end of a text in a column of them.
fn end_of_text(column: &str, from: usize, len: usize) -> Result<usize, UnpackError> {
    from.checked_add(len).filter(|end| column.is_char_boundary(*end)).ok_or(UnpackError::Bad)
}

fn below(number: usize, end: usize) -> Result<usize, UnpackError> {
    if number < end { Ok(number) } else { Err(UnpackError::Bad) }
}

fn whole_record<'a>(column: &mut Column<'a>) -> Result<RecordRef<'a>, UnpackError> {
    let (kind, schema) = (u16::from_le_bytes(column.array()?), u16::from_le_bytes(column.array()?));
    let key_hash = u64::from_le_bytes(column.array()?);
    let len = column.len()?;
    Ok(RecordRef { kind, schema, key_hash, payload: column.take(len)? })
}

/// Reads the records of a block, in any order.
pub(crate) struct ColumnsReader<'b> {
    of: &'b AttemptColumns,
    hot: &'b ArchivedHotV1,
    texts: Vec<&'b str>,
    urls: &'b str,
    literals: &'b str,
    literal_lens: &'b [u8],
    numbers: &'b [u8],
    whole: &'b [u8],
    /// Bytes of a whole record, at an address that its type needs.
    copy: AlignedVec,
    /// Bytes that values may still have, so that a forged block does not fill the memory.
    budget: usize,
}

/// Space for the attempt that is being read. It is used again for the next one.
#[derive(Default)]
pub(crate) struct RowBuffer<'b> {
    values: Vec<(&'b str, Value<'b>)>,
    /// Values that are no part of the block.
    built: String,
}

/// A record of a block.
pub(crate) enum ColumnsRecord<'r, 'b> {
    Attempt(ColumnAttempt<'r, 'b>),
    /// A record that is stored whole.
    Whole(RecordRef<'r>),
}

/// An attempt in columns.
#[derive(Clone, Copy)]
pub(crate) struct ColumnAttempt<'r, 'b> {
    url: &'b str,
    fetcher: &'b str,
    at: Timestamp,
    duration_ms: u64,
    hint: Option<Hint>,
    outcome: &'b ArchivedOutcomeV1,
    row: &'r RowBuffer<'b>,
}

impl<'b> ColumnsReader<'b> {
    /// Returns the name of the fetcher of an attempt in columns, `None` for a record that is stored
    /// whole.
    pub(crate) fn fetcher(&self, place: usize) -> Result<Option<&'b str>, UnpackError> {
        match self.of.starts.get(place) {
            Some(Start::Row(start)) => {
                self.text(self.outcome(start)?.fetcher.to_native()).map(Some)
            }
            Some(Start::Whole(_)) => Ok(None),
            None => Err(UnpackError::Bad),
        }
    }

    /// Reads a record by its place.
    pub(crate) fn read<'r>(
        &'r mut self,
        place: usize,
        buffer: &'r mut RowBuffer<'b>,
    ) -> Result<ColumnsRecord<'r, 'b>, RowError> {
        match self.of.starts.get(place) {
            None => Err(UnpackError::Bad.into()),
            Some(Start::Row(start)) => self.row(start, buffer).map(ColumnsRecord::Attempt),
            Some(Start::Whole(at)) => {
                let record =
                    whole_record(&mut Column(self.whole.get(*at as usize..).unwrap_or_default()))?;
                self.copy.clear();
                self.copy.extend_from_slice(record.payload);
                Ok(ColumnsRecord::Whole(RecordRef { payload: &self.copy, ..record }))
            }
        }
    }

    fn outcome(&self, start: &RowStart) -> Result<&'b ArchivedOutcomeV1, UnpackError> {
        let number =
            self.hot.outcome.get(usize::from(start.row)).ok_or(UnpackError::Bad)?.to_native();
        self.hot.outcomes.get(usize::from(number)).ok_or(UnpackError::Bad)
    }

    /// Returns a text of an outcome; empty for 0.
    fn text(&self, number: u32) -> Result<&'b str, UnpackError> {
        match number.checked_sub(1) {
            None => Ok(""),
            Some(number) => self.texts.get(number as usize).copied().ok_or(UnpackError::Bad),
        }
    }

    fn row<'r>(
        &mut self,
        start: &'b RowStart,
        buffer: &'r mut RowBuffer<'b>,
    ) -> Result<ColumnAttempt<'r, 'b>, RowError> {
        let row = usize::from(start.row);
        let outcome = self.outcome(start)?;
        // All that could refuse the block comes before what could refuse the record.
        let fetcher = self.text(outcome.fetcher.to_native())?;
        // The record has these texts too.
        for text in
            [outcome.error_other, outcome.source_other, outcome.rule_other, outcome.shadow_fetcher]
        {
            self.text(text.to_native())?;
        }
        let at = match self.hot.wide_at.get(row) {
            Some(at) => at.to_native(),
            None => {
                let since = self.hot.at.get(row).ok_or(UnpackError::Bad)?.to_native();
                self.hot.base_ms.to_native().wrapping_add(i64::from(since))
            }
        };
        let took = self.hot.took.get(row).ok_or(UnpackError::Bad)?.to_native();
        self.hot.id.get(row).ok_or(UnpackError::Bad)?;
        let from = start.url as usize;
        let url = self.urls.get(from..from + start.url_len as usize).ok_or(UnpackError::Bad)?;
        let shape = self
            .of
            .shapes
            .get(usize::from(start.shape))
            .and_then(Option::as_ref)
            .ok_or(UnpackError::Bad)?;
        self.values(shape, start, url, buffer)?;
        Ok(ColumnAttempt {
            url,
            fetcher,
            at: Timestamp::from_millis(at),
            duration_ms: u64::from(took),
            hint: hint_of(outcome.hint).map_err(RowError::Record)?,
            outcome,
            row: buffer,
        })
    }

    /// Finds the values of the heuristics of a row.
    fn values(
        &mut self,
        shape: &'b Shape,
        start: &RowStart,
        url: &'b str,
        buffer: &mut RowBuffer<'b>,
    ) -> Result<(), RowError> {
        let mut literal_lens =
            Column(self.literal_lens.get(start.literal_len as usize..).unwrap_or_default());
        let mut numbers = Column(self.numbers.get(start.number as usize..).unwrap_or_default());
        let mut literal = start.literal as usize;
        buffer.values.clear();
        buffer.built.clear();
        let mut unknown = None;
        for tag in &shape.tags {
            let value = match tag.value {
                ValueOp::Literal => {
                    let len = literal_lens.len()?;
                    let text = self.literals.get(literal..literal + len).ok_or(UnpackError::Bad)?;
                    literal += len;
                    Value::Text(text)
                }
                ValueOp::Host => Value::Text(host(url)),
                ValueOp::Same(k) => buffer.value(k)?,
                ValueOp::End(k) => buffer.end_of(k, numbers.len()?)?,
                ValueOp::Pair(k, j) => {
                    let (k, j) = (buffer.value(k)?, buffer.value(j)?);
                    buffer.pair(k, j)
                }
                ValueOp::Section(k) => {
                    let k = buffer.value(k)?;
                    buffer.pair(k, Value::Text(section(url)))
                }
                ValueOp::Text(number) => {
                    Value::Text(self.texts.get(number).ok_or(UnpackError::Bad)?)
                }
                ValueOp::NextText => {
                    Value::Text(self.texts.get(numbers.len()?).ok_or(UnpackError::Bad)?)
                }
            };
            let kind = match &tag.kind {
                Kind::Known(name) => name,
                Kind::Other(name) => name.as_str(),
                Kind::Unknown(code) => {
                    unknown = unknown.or(Some(*code));
                    ""
                }
            };
            self.budget =
                self.budget.checked_sub(buffer.text(value).len()).ok_or(UnpackError::Bad)?;
            buffer.values.push((kind, value));
        }
        // Only now: a later value may still refuse the block.
        let what = "a heuristic's type";
        unknown.map_or(Ok(()), |code| Err(RowError::Record(SchemaError::Code { what, code })))
    }
}

impl<'b> RowBuffer<'b> {
    fn value(&self, place: usize) -> Result<Value<'b>, UnpackError> {
        self.values.get(place).map(|(_, value)| *value).ok_or(UnpackError::Bad)
    }

    fn text<'r>(&'r self, value: Value<'b>) -> &'r str {
        match value {
            Value::Text(text) => text,
            Value::Built(from, to) => self.built.get(from..to).unwrap_or_default(),
        }
    }

    /// Returns the last `len` bytes of a value.
    fn end_of(&self, place: usize, len: usize) -> Result<Value<'b>, UnpackError> {
        let bad = UnpackError::Bad;
        match self.value(place)? {
            Value::Text(text) => text
                .len()
                .checked_sub(len)
                .and_then(|from| text.get(from..))
                .map(Value::Text)
                .ok_or(bad),
            Value::Built(from, to) => {
                let from =
                    to.checked_sub(len).filter(|start| *start >= from).ok_or(UnpackError::Bad)?;
                if self.built.is_char_boundary(from) {
                    Ok(Value::Built(from, to))
                } else {
                    Err(bad)
                }
            }
        }
    }

    /// Builds two values with a `|` between them.
    fn pair(&mut self, first: Value<'b>, second: Value<'b>) -> Value<'b> {
        let from = self.built.len();
        self.add(first);
        self.built.push('|');
        self.add(second);
        Value::Built(from, self.built.len())
    }

    fn add(&mut self, value: Value<'b>) {
        match value {
            Value::Text(text) => self.built.push_str(text),
            Value::Built(from, to) => self.built.extend_from_within(from..to),
        }
    }
}

impl ColumnAttempt<'_, '_> {
    pub(crate) fn at(&self) -> Timestamp {
        self.at
    }

    pub(crate) fn fetcher(&self) -> &str {
        self.fetcher
    }

    /// Returns the number of the outcome, as of a record.
    pub(crate) fn outcome(&self) -> usize {
        outcome_number(self.outcome.success != NONE, self.outcome.error)
    }

    /// Returns the attempt with a time that is at most `now`.
    pub(crate) fn clamped(self, now: Timestamp) -> Self {
        Self { at: self.at.min(now), ..self }
    }
}

impl Observation for ColumnAttempt<'_, '_> {
    fn fields(&self) -> ObservedFields<'_> {
        ObservedFields {
            url: self.url,
            kind: None,
            fetcher: self.fetcher,
            at: self.at,
            weight: self.outcome.weight.to_native(),
            success: self.outcome.success != NONE,
            is_banned: self.outcome.is_banned != NONE,
            duration_ms: self.duration_ms,
            hint: self.hint,
        }
    }

    fn each_heuristic<'a>(&'a self, f: &mut impl FnMut(&'a str, &'a str)) {
        self.row.values.iter().for_each(|(kind, value)| f(kind, self.row.text(*value)));
    }
}
