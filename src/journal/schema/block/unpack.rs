//! Unpacking of a block into records.
//!
//! Owns: how the columns become attempts again.
//!
//! Invariants: any bytes are unpacked or refused, in bounded memory.
//!
//! Must not know: how a block was packed.

use std::borrow::Cow;

use fetchwise_log::{Block, RecordRef, UnpackError};
use rkyv::util::AlignedVec;

use super::super::codes::{NONE, OTHER, VERSION, kind};
use super::super::records::{AttemptV1, HeaderV1, TagV1, access, bytes_in};
use super::column::Column;
use super::layout::{
    ArchivedHotV1, COLUMNS, FLOATS, ID_TIMES, LITERAL_LENS, LITERALS, MAX_VALUE_BYTES, NUMBERS,
    SHAPE_TABLE, SHAPES, URL_LENS, URLS, WHOLE, op,
};
use super::url_parts::{host, section};

/// The most headers or heuristics that memory is reserved for before they are read, since their
/// number may be forged.
const RESERVED: usize = 16;

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

pub(super) fn unpack(
    block: &Block<'_>,
    f: &mut dyn FnMut(RecordRef<'_>),
) -> Result<(), UnpackError> {
    let hot = access::<ArchivedHotV1>(block.hot).map_err(|_| UnpackError::Bad)?;
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
        f(RecordRef { kind: kind::ATTEMPT, schema: VERSION, key_hash, payload: &payload });
        row += 1;
    }
    let is_read = columns.cold.iter().all(|column| column.0.is_empty());
    let is_all = hot.key.len() == row && whole.next().is_none() && rest.0.is_empty() && is_read;
    if is_all { Ok(()) } else { Err(UnpackError::Bad) }
}

impl<'a> Unpacker<'a> {
    fn whole(&mut self) -> Result<RecordRef<'a>, UnpackError> {
        let column = &mut self.cold[WHOLE];
        let (kind, schema) =
            (u16::from_le_bytes(column.array()?), u16::from_le_bytes(column.array()?));
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

    fn headers(&mut self, shape: &mut Column<'a>) -> Result<Vec<HeaderV1<'a>>, UnpackError> {
        let count = shape.len()?;
        let mut headers = Vec::with_capacity(count.min(RESERVED));
        for _ in 0..count {
            let name = Cow::Borrowed(shape.name()?);
            let op = shape.byte()?;
            let value = self.value(op, shape)?;
            self.spend(name.len() + value.len())?;
            headers.push(HeaderV1 { name, value });
        }
        Ok(headers)
    }

    fn tags(
        &mut self,
        shape: &mut Column<'a>,
        url: &'a str,
    ) -> Result<Vec<TagV1<'a>>, UnpackError> {
        let count = shape.len()?;
        let mut tags = Vec::with_capacity(count.min(RESERVED));
        for _ in 0..count {
            let kind = shape.byte()?;
            let kind_other = Cow::Borrowed(if kind == OTHER { shape.name()? } else { "" });
            let importance = if shape.flag()? {
                Some(f32::from_le_bytes(self.cold[FLOATS].array()?))
            } else {
                None
            };
            let value = self.heuristic(shape, url, &tags)?;
            self.spend(value.len())?;
            tags.push(TagV1 { kind, kind_other, value, importance });
        }
        Ok(tags)
    }

    fn attempt(
        &mut self,
        hot: &ArchivedHotV1,
        row: usize,
        mut shape: Column<'a>,
    ) -> Result<AttemptV1<'a>, UnpackError> {
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
        let response_headers = self.headers(&mut shape)?;
        let heuristics = self.tags(&mut shape, url)?;
        let text = |number| self.text(number).map(|text| Cow::Borrowed(text.unwrap_or_default()));
        Ok(AttemptV1 {
            id,
            attempted_at,
            duration_ms: u64::from(get(&hot.took, row)?.to_native()),
            weight: outcome.weight.to_native(),
            propensity,
            confidence,
            link,
            url: Cow::Borrowed(url),
            fetcher: text(outcome.fetcher)?,
            error_other: text(outcome.error_other)?,
            source_other: text(outcome.source_other)?,
            rule_other: text(outcome.rule_other)?,
            shadow_fetcher: self.text(outcome.shadow_fetcher)?.map(Cow::Borrowed),
            response_headers,
            heuristics,
            try_no: outcome.try_no.to_native(),
            http_status: outcome.http_status.to_native(),
            success: outcome.success != NONE,
            is_banned: outcome.is_banned != NONE,
            error: outcome.error,
            source: outcome.source,
            rule: outcome.rule,
            arm: outcome.arm,
            hint: outcome.hint,
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
        let mut place =
            || Ok(&earlier.get(usize::from(shape.byte()?)).ok_or(UnpackError::Bad)?.value);
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
