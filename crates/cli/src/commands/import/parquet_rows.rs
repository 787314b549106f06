//! Attempts from Parquet, in the form that `export --format parquet` writes: each row becomes a
//! line of JSON.
//!
//! Must not know: what an attempt is.

use std::fs::File;
use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::reader::RowIter;
use parquet::record::{Field, Row};
use serde_json::{Map, Value};

use super::csv_rows::COMPUTED;
use super::target::{Record, RecordPosition};
use crate::parse::input::{is_stdin, unreadable};
use crate::terminal::exit::Failure;
use crate::terminal::output::shown;

/// The rows of a file.
pub(super) struct ParquetRows {
    rows: RowIter<'static>,
    number: u64,
    /// The bytes of the file per row.
    row_bytes: u64,
    is_ended: bool,
}

impl ParquetRows {
    /// Opens a file that has the columns of attempts.
    pub(super) fn open(file: &Path) -> Result<Self, Failure> {
        if is_stdin(file) {
            return Err(Failure::usage("stdin has Parquet, which is read from its end")
                .advise("save it, and name the file: fetchwise import attempts.parquet"));
        }
        let opened = File::open(file).map_err(|error| unreadable(file, &error))?;
        let bytes = opened.metadata().map_or(0, |metadata| metadata.len());
        let invalid =
            |error| Failure::failed(format_args!("{} is not valid Parquet: {error}", shown(file)));
        let reader = SerializedFileReader::new(opened).map_err(invalid)?;
        let meta = reader.metadata().file_metadata();
        let has = |name: &str| meta.schema().get_fields().iter().any(|field| field.name() == name);
        if !has("url") || !has("fetcher") {
            return Err(Failure::usage(format_args!(
                "{} has no columns `url` and `fetcher`",
                shown(file)
            ))
            .advise("import reads Parquet with the columns that export --format parquet writes"));
        }
        let rows = u64::try_from(meta.num_rows()).unwrap_or(1).max(1);
        Ok(Self {
            rows: RowIter::from_file_into(Box::new(reader)),
            number: 0,
            row_bytes: bytes / rows,
            is_ended: false,
        })
    }

    /// Returns the next row; none at the end.
    pub(super) fn next(&mut self) -> Option<Record> {
        if self.is_ended {
            return None;
        }
        let row = self.rows.next()?;
        // A group of rows that cannot be read hides what follows it.
        self.is_ended = row.is_err();
        self.number += 1;
        let text = row
            .map(|row| object(&row, &COMPUTED).to_string())
            .map_err(|error| format!("invalid row: {error}"));
        Some(Record {
            position: RecordPosition::Row(format!("row {}", self.number)),
            text,
            bytes: self.row_bytes,
        })
    }
}

/// Returns a row as an object, without nulls and the columns in `but`.
fn object(row: &Row, but: &[&str]) -> Value {
    let fields = row.get_column_iter().filter(|(name, _)| !but.contains(&name.as_str()));
    let fields = fields.map(|(name, field)| match name.as_str() {
        "response_headers" => (name.clone(), pairs(value(field))),
        _ => (name.clone(), value(field)),
    });
    let fields = fields.filter(|(_, value)| !value.is_null());
    Value::Object(fields.collect::<Map<_, _>>())
}

/// Returns a list of records with a name and a value as pairs, which JSON has for headers.
fn pairs(list: Value) -> Value {
    let Value::Array(records) = list else { return list };
    records
        .into_iter()
        .map(|record| Value::from(vec![record["name"].clone(), record["value"].clone()]))
        .collect()
}

fn value(field: &Field) -> Value {
    match field {
        Field::Bool(value) => Value::from(*value),
        Field::Byte(value) => Value::from(*value),
        Field::Short(value) => Value::from(*value),
        Field::Int(value) => Value::from(*value),
        Field::UByte(value) => Value::from(*value),
        Field::UShort(value) => Value::from(*value),
        Field::UInt(value) => Value::from(*value),
        Field::ULong(value) => Value::from(*value),
        Field::Long(value) | Field::TimestampMillis(value) => Value::from(*value),
        Field::TimestampMicros(value) => Value::from(*value / 1000),
        Field::Float(value) => Value::from(*value),
        // Analysis tools write whole numbers that may be missing as floating-point numbers.
        Field::Double(value) if value.fract() == 0.0 && value.abs() < 9e15 => {
            Value::from(*value as i64)
        }
        Field::Double(value) => Value::from(*value),
        Field::Str(text) => Value::from(text.as_str()),
        Field::Bytes(bytes) => bytes.as_utf8().map_or(Value::Null, Value::from),
        Field::Group(row) => object(row, &[]),
        Field::ListInternal(list) => list.elements().iter().map(value).collect(),
        _ => Value::Null,
    }
}
