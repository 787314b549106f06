//! Attempts as Apache Parquet, with the fields of the JSON form.
//!
//! Owns: the schema and the conversion of fields to columns.
//!
//! Invariants: rows are buffered for one row group at a time, so memory is limited for a log of any
//! length.

use std::io::Write;
use std::mem::take;
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use crate::commands::export::flat_columns::FlatColumns;
use crate::terminal::exit::Failure;
use crate::terminal::output::Output;
use fetchwise::attempt::{Attempt, ErrorType};

/// The number of rows in a group.
const GROUP_ROWS: usize = 64 << 10;

/// The schema. Columns are written in this order.
const SCHEMA: &str = "
message attempt {
  REQUIRED BYTE_ARRAY id (UTF8);
  REQUIRED BYTE_ARRAY link (UTF8);
  REQUIRED BYTE_ARRAY url (UTF8);
  REQUIRED BYTE_ARRAY fetcher (UTF8);
  REQUIRED BOOLEAN success;
  REQUIRED BOOLEAN is_banned;
  OPTIONAL BYTE_ARRAY error_type (UTF8);
  OPTIONAL INT32 http_status;
  REQUIRED GROUP response_headers (LIST) {
    REPEATED GROUP list {
      REQUIRED GROUP element {
        REQUIRED BYTE_ARRAY name (UTF8);
        REQUIRED BYTE_ARRAY value (UTF8);
      }
    }
  }
  REQUIRED INT64 duration_ms;
  REQUIRED INT64 attempted_at (TIMESTAMP(MILLIS,true));
  OPTIONAL BYTE_ARRAY source (UTF8);
  OPTIONAL DOUBLE propensity;
  OPTIONAL BYTE_ARRAY hint (UTF8);
  REQUIRED DOUBLE weight;
  REQUIRED INT64 try_no;
  OPTIONAL BYTE_ARRAY shadow_fetcher (UTF8);
  REQUIRED GROUP heuristics (LIST) {
    REPEATED GROUP list {
      REQUIRED GROUP element {
        REQUIRED BYTE_ARRAY type (UTF8);
        REQUIRED BYTE_ARRAY value (UTF8);
        OPTIONAL FLOAT importance;
      }
    }
  }
  OPTIONAL BYTE_ARRAY rule (UTF8);
  OPTIONAL DOUBLE confidence;
  OPTIONAL BYTE_ARRAY arm (UTF8);
  OPTIONAL BYTE_ARRAY domain (UTF8);
  OPTIONAL BYTE_ARRAY site (UTF8);
  REQUIRED DOUBLE cost;
  OPTIONAL INT64 bytes;
  REQUIRED BYTE_ARRAY visit (UTF8);
}";

/// A writer of attempts to stdout.
pub(crate) struct ParquetOut {
    writer: SerializedFileWriter<Vec<u8>>,
    rows: Vec<Attempt>,
    flat: Vec<FlatColumns>,
}

impl ParquetOut {
    /// Starts a file.
    pub(crate) fn new() -> Result<Self, Failure> {
        let schema = Arc::new(parse_message_type(SCHEMA).map_err(failed)?);
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let writer =
            SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).map_err(failed)?;
        Ok(Self { writer, rows: Vec::new(), flat: Vec::new() })
    }

    /// Adds an attempt.
    pub(crate) fn add(
        &mut self,
        attempt: Attempt,
        flat: FlatColumns,
        out: &mut Output,
    ) -> Result<(), Failure> {
        self.rows.push(attempt);
        self.flat.push(flat);
        if self.rows.len() >= GROUP_ROWS { self.write_group(out) } else { Ok(()) }
    }

    /// Writes the remaining rows and the end of the file.
    pub(crate) fn finish(mut self, out: &mut Output) -> Result<(), Failure> {
        if !self.rows.is_empty() {
            self.write_group(out)?;
        }
        out.raw(&self.writer.into_inner().map_err(failed)?)
    }

    fn write_group(&mut self, out: &mut Output) -> Result<(), Failure> {
        let mut group = self.writer.next_row_group().map_err(failed)?;
        columns(&self.rows, &self.flat, &mut group).map_err(failed)?;
        group.close().map_err(failed)?;
        self.rows.clear();
        self.flat.clear();
        // The writer counts the bytes itself, so the printed ones need not stay in memory.
        out.raw(&take(self.writer.inner_mut()))
    }
}

fn failed(error: ParquetError) -> Failure {
    Failure::failed(format_args!("cannot write Parquet: {error}"))
}

type Group<'g> = SerializedRowGroupWriter<'g, Vec<u8>>;

/// Writes all columns of `rows` in the order of the schema.
fn columns(
    rows: &[Attempt],
    flat: &[FlatColumns],
    group: &mut Group<'_>,
) -> Result<(), ParquetError> {
    let text = |of: fn(&Attempt) -> &str| {
        rows.iter().map(|row| ByteArray::from(of(row))).collect::<Vec<_>>()
    };
    let ids: Vec<ByteArray> =
        rows.iter().map(|row| ByteArray::from(row.id.to_string().into_bytes())).collect();
    required::<ByteArrayType>(group, &ids)?;
    required::<ByteArrayType>(group, &text(|row| &row.link))?;
    required::<ByteArrayType>(group, &text(|row| &row.url))?;
    required::<ByteArrayType>(group, &text(|row| &row.fetcher))?;
    required::<BoolType>(group, &each(rows, |row| row.success))?;
    required::<BoolType>(group, &each(rows, |row| row.is_banned))?;
    optional::<_, ByteArrayType>(group, rows, |row| {
        row.error_type.as_ref().map(ErrorType::name).map(ByteArray::from)
    })?;
    optional::<_, Int32Type>(group, rows, |row| row.http_status.map(i32::from))?;
    let headers = Lists::of(rows, |row| row.response_headers.len());
    let of_headers = |part: fn(&fetchwise::response::Header) -> &str| {
        rows.iter()
            .flat_map(|row| &row.response_headers)
            .map(|h| ByteArray::from(part(h)))
            .collect::<Vec<_>>()
    };
    headers.write::<ByteArrayType>(group, &of_headers(|header| &header.name))?;
    headers.write::<ByteArrayType>(group, &of_headers(|header| &header.value))?;
    required::<Int64Type>(
        group,
        &each(rows, |row| i64::try_from(row.duration_ms).unwrap_or(i64::MAX)),
    )?;
    required::<Int64Type>(group, &each(rows, |row| row.attempted_at.as_millis()))?;
    optional::<_, ByteArrayType>(group, rows, |row| row.source.as_deref().map(ByteArray::from))?;
    optional::<_, DoubleType>(group, rows, |row| row.propensity)?;
    optional::<_, ByteArrayType>(group, rows, |row| {
        row.hint.map(|hint| ByteArray::from(hint.name()))
    })?;
    required::<DoubleType>(group, &each(rows, |row| row.weight))?;
    required::<Int64Type>(group, &each(rows, |row| i64::from(row.try_no)))?;
    optional::<_, ByteArrayType>(group, rows, |row| {
        row.shadow_fetcher.as_deref().map(ByteArray::from)
    })?;
    let tags = || rows.iter().flat_map(|row| &row.heuristics);
    let lists = Lists::of(rows, |row| row.heuristics.len());
    let of_tags = |part: fn(&fetchwise::attempt::Tag) -> &str| {
        tags().map(|t| ByteArray::from(part(t))).collect::<Vec<_>>()
    };
    lists.write::<ByteArrayType>(group, &of_tags(|tag| &tag.heuristic.kind))?;
    lists.write::<ByteArrayType>(group, &of_tags(|tag| &tag.heuristic.value))?;
    lists.write_optional::<FloatType>(group, tags().map(|tag| tag.importance))?;
    optional::<_, ByteArrayType>(group, rows, |row| row.rule.as_deref().map(ByteArray::from))?;
    optional::<_, DoubleType>(group, rows, |row| row.confidence)?;
    optional::<_, ByteArrayType>(group, rows, |row| {
        row.arm.map(|arm| ByteArray::from(arm.name()))
    })?;
    optional::<_, ByteArrayType>(group, flat, |row| row.domain.as_deref().map(ByteArray::from))?;
    optional::<_, ByteArrayType>(group, flat, |row| row.site.as_deref().map(ByteArray::from))?;
    required::<DoubleType>(group, &each(flat, |row| row.cost))?;
    optional::<_, Int64Type>(group, flat, |row| {
        row.bytes.map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX))
    })?;
    required::<ByteArrayType>(
        group,
        &each(flat, |row| ByteArray::from(row.visit.to_string().into_bytes())),
    )
}

fn each<R, T>(rows: &[R], of: impl Fn(&R) -> T) -> Vec<T> {
    rows.iter().map(of).collect()
}

/// Writes a column in which every row has a value.
fn required<T: DataType>(group: &mut Group<'_>, values: &[T::T]) -> Result<(), ParquetError> {
    write_column::<_, T>(group, values, None, None)
}

/// Writes a column in which rows may have no value.
fn optional<R, T: DataType>(
    group: &mut Group<'_>,
    rows: &[R],
    of: impl Fn(&R) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let all: Vec<Option<T::T>> = rows.iter().map(of).collect();
    let levels: Vec<i16> = all.iter().map(|value| i16::from(value.is_some())).collect();
    write_column::<_, T>(group, &all.into_iter().flatten().collect::<Vec<_>>(), Some(&levels), None)
}

/// The levels of a list column: which values belong to one row, and which rows have none.
struct Lists {
    definition: Vec<i16>,
    repetition: Vec<i16>,
}

impl Lists {
    fn of(rows: &[Attempt], len: impl Fn(&Attempt) -> usize) -> Self {
        let (mut definition, mut repetition) = (Vec::new(), Vec::new());
        for len in rows.iter().map(len) {
            if len == 0 {
                definition.push(0);
                repetition.push(0);
            }
            for place in 0..len {
                definition.push(1);
                repetition.push(i16::from(place > 0));
            }
        }
        Self { definition, repetition }
    }

    fn write<T: DataType>(
        &self,
        group: &mut Group<'_>,
        values: &[T::T],
    ) -> Result<(), ParquetError> {
        write_column::<_, T>(group, values, Some(&self.definition), Some(&self.repetition))
    }

    /// Writes a list column whose elements may have no value; `values` are those of all elements.
    fn write_optional<T: DataType>(
        &self,
        group: &mut Group<'_>,
        values: impl Iterator<Item = Option<T::T>>,
    ) -> Result<(), ParquetError> {
        let mut values = values.peekable();
        let mut there = Vec::new();
        let mut definition = Vec::with_capacity(self.definition.len());
        for level in &self.definition {
            let value = if *level == 0 { None } else { values.next().flatten() };
            definition.push(*level + i16::from(value.is_some()));
            there.extend(value);
        }
        write_column::<_, T>(group, &there, Some(&definition), Some(&self.repetition))
    }
}

/// Writes the next column of a row group.
pub(crate) fn write_column<W: Write + Send, T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    definition: Option<&[i16]>,
    repetition: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General("more columns than the schema has".to_owned()));
    };
    column.typed::<T>().write_batch(values, definition, repetition)?;
    column.close()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fetchwise::attempt::error_kind::ErrorKind;
    use fetchwise::attempt::{Arm, Tag};
    use fetchwise::heuristic::Heuristic;
    use fetchwise::response::Header;
    use fetchwise::time::Timestamp;
    use parquet::file::reader::{FileReader, SerializedFileReader};

    fn flat(row: &Attempt) -> FlatColumns {
        let (domain, site) = (Some("e.org".to_owned()), None);
        FlatColumns { domain, site, cost: 2.5, bytes: row.success.then_some(7), visit: row.id }
    }

    /// Returns `rows` as the reader prints them after a round trip.
    fn round(rows: &[Attempt]) -> Vec<serde_json::Value> {
        let mut out = ParquetOut::new().unwrap();
        let mut group = out.writer.next_row_group().unwrap();
        let flat: Vec<FlatColumns> = rows.iter().map(flat).collect();
        columns(rows, &flat, &mut group).unwrap();
        group.close().unwrap();
        let bytes = bytes::Bytes::from(out.writer.into_inner().unwrap());
        let reader = SerializedFileReader::new(bytes).unwrap();
        let field = |row: parquet::record::Row, name: &str| {
            let found = row
                .get_column_iter()
                .find(|(column, _)| *column == name)
                .map(|(_, field)| field.to_string());
            serde_json::Value::from(found)
        };
        let names = [
            "url",
            "success",
            "error_type",
            "http_status",
            "attempted_at",
            "heuristics",
            "response_headers",
            "rule",
            "confidence",
            "arm",
            "domain",
            "site",
            "cost",
            "bytes",
            "visit",
        ];
        reader
            .get_row_iter(None)
            .unwrap()
            .map(|row| {
                let row = row.unwrap();
                names.iter().map(|name| ((*name).to_owned(), field(row.clone(), name))).collect()
            })
            .collect()
    }

    #[test]
    fn lists_nulls_and_values_survive_a_round_trip() {
        let url = url::Url::parse("https://e.org/a").unwrap();
        let at = Timestamp::from_millis(1_790_000_000_123);
        let mut bare = Attempt::new(&url, "f", at).unwrap().delivered();
        bare.heuristics.clear();
        let mut full = Attempt::new(&url, "f", at).unwrap().failed(ErrorKind::BlockedCaptcha);
        full.http_status = Some(403);
        (full.rule, full.confidence, full.arm) =
            (Some("explore".into()), Some(0.25), Some(Arm::Legacy));
        full.response_headers = vec![Header::new("server", "x"), Header::new("via", "y")];
        let tag =
            |kind: &'static str, importance| Tag { importance, ..Tag::from(Heuristic::flag(kind)) };
        full.heuristics = vec![tag("a", None), tag("b", Some(0.5)), tag("c", None)];
        let rows = round(&[bare.clone(), full, bare]);
        assert_eq!(rows.len(), 3);
        let text = |row: usize, name: &str| rows[row][name].as_str().unwrap().to_owned();
        assert_eq!(
            (text(0, "success"), text(1, "success")),
            ("true".to_owned(), "false".to_owned())
        );
        assert_eq!(
            (text(0, "error_type"), text(0, "http_status")),
            ("null".to_owned(), "null".to_owned())
        );
        assert_eq!(
            (text(1, "error_type"), text(1, "http_status")),
            ("\"blocked_captcha\"".to_owned(), "403".to_owned())
        );
        assert_eq!(
            (text(0, "heuristics"), text(2, "response_headers")),
            ("[]".to_owned(), "[]".to_owned())
        );
        assert_eq!(
            ["rule", "confidence", "arm"].map(|name| text(1, name)),
            ["\"explore\"", "0.25", "\"legacy\""]
        );
        assert_eq!(
            ["rule", "confidence", "arm"].map(|name| text(2, name)),
            ["null", "null", "null"]
        );
        assert_eq!(
            ["domain", "site", "cost"].map(|name| text(1, name)),
            ["\"e.org\"", "null", "2.5"]
        );
        assert_eq!((text(0, "bytes"), text(1, "bytes")), ("7".to_owned(), "null".to_owned()));
        assert_eq!(text(1, "visit").len(), 38);
        let tags = text(1, "heuristics");
        assert_eq!(
            (
                tags.matches("type").count(),
                tags.matches("0.5").count(),
                tags.matches("null").count()
            ),
            (3, 1, 2)
        );
        assert!(text(1, "response_headers").contains("\"via\""), "{}", text(1, "response_headers"));
        assert!(text(2, "attempted_at").starts_with("2026-09-21"), "{}", text(2, "attempted_at"));
    }
}
