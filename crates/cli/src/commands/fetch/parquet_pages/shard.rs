//! One file of the data set.
//!
//! Owns: its columns.
//!
//! Invariants: one row group is in memory at a time. A file gets its name when it is complete and
//! on the disk.
//!
//! Must not know: where rows come from.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

use super::folder_of;
use super::spool::{Row, Spool};
use crate::commands::export::parquet::write_column;
use crate::setup::part_file::part_file;

/// The size of the pages in a row group.
const GROUP_BYTES: usize = 64 << 20;
/// The number of rows in a group.
const GROUP_ROWS: usize = 16 << 10;
/// The number of rows after which the writer looks whether a data page is full: pages of the web
/// are long.
const BATCH_ROWS: usize = 8;
/// The key of the file's metadata that names the rows of which it was made.
const ROWS_ID: &str = "fetchwise.rows";

/// The schema. Columns are written in this order.
const SCHEMA: &str = "
message page {
  REQUIRED BYTE_ARRAY url (UTF8);
  REQUIRED BYTE_ARRAY final_url (UTF8);
  REQUIRED INT32 status;
  OPTIONAL BYTE_ARRAY content_type (UTF8);
  REQUIRED BYTE_ARRAY fetcher (UTF8);
  REQUIRED INT64 fetched_at (TIMESTAMP(MILLIS,true));
  OPTIONAL BYTE_ARRAY html (UTF8);
  OPTIONAL BYTE_ARRAY body;
}";

/// Writes all rows to a new file at `path`.
pub(super) fn write(spool: &Spool, path: &Path) -> io::Result<()> {
    let part = part_file(folder_of(path))?;
    let mut writer = writer(part.as_file().try_clone()?, spool.id())?;
    let (mut rows, mut group, mut bytes) = (spool.read()?, Vec::new(), 0);
    while let Some(row) = rows.next_row()? {
        bytes += row.content.len();
        group.push(row);
        if bytes >= GROUP_BYTES || group.len() >= GROUP_ROWS {
            write_group(&mut writer, std::mem::take(&mut group))?;
            bytes = 0;
        }
    }
    if !group.is_empty() {
        write_group(&mut writer, group)?;
    }
    writer.close()?;
    part.as_file().sync_all()?;
    part.persist_noclobber(path).map_err(|failed| failed.error).map(drop)
}

/// Returns whether the file at `path` was made of the rows with this id.
pub(super) fn is_made_of(path: &Path, id: &str) -> bool {
    let Ok(Ok(reader)) = File::open(path).map(SerializedFileReader::new) else { return false };
    let keys = reader.metadata().file_metadata().key_value_metadata();
    keys.is_some_and(|keys| {
        keys.iter().any(|pair| pair.key == ROWS_ID && pair.value.as_deref() == Some(id))
    })
}

fn writer(to: File, id: &str) -> Result<SerializedFileWriter<File>, ParquetError> {
    let id = KeyValue::new(ROWS_ID.to_owned(), id.to_owned());
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_write_batch_size(BATCH_ROWS)
        .set_key_value_metadata(Some(vec![id]));
    for long in ["html", "body"] {
        properties = without_statistics(properties, long);
    }
    SerializedFileWriter::new(
        to,
        Arc::new(parse_message_type(SCHEMA)?),
        Arc::new(properties.build()),
    )
}

/// Smallest and largest values of pages help no query, and neither does a dictionary.
fn without_statistics(
    properties: WriterPropertiesBuilder,
    column: &str,
) -> WriterPropertiesBuilder {
    let column = ColumnPath::from(column);
    properties
        .set_column_statistics_enabled(column.clone(), EnabledStatistics::None)
        .set_column_dictionary_enabled(column, false)
}

/// Writes `rows` as a row group.
fn write_group(
    writer: &mut SerializedFileWriter<File>,
    rows: Vec<Row>,
) -> Result<(), ParquetError> {
    let mut group = writer.next_row_group()?;
    let text =
        |of: fn(&Row) -> &str| rows.iter().map(|row| ByteArray::from(of(row))).collect::<Vec<_>>();
    write_column::<_, ByteArrayType>(&mut group, &text(|row| &row.url), None, None)?;
    write_column::<_, ByteArrayType>(&mut group, &text(|row| &row.final_url), None, None)?;
    write_column::<_, Int32Type>(
        &mut group,
        &rows.iter().map(|row| i32::from(row.status)).collect::<Vec<_>>(),
        None,
        None,
    )?;
    let types = rows
        .iter()
        .filter_map(|row| row.content_type.as_deref())
        .map(ByteArray::from)
        .collect::<Vec<_>>();
    write_column::<_, ByteArrayType>(
        &mut group,
        &types,
        Some(&levels(&rows, |row| row.content_type.is_some())),
        None,
    )?;
    write_column::<_, ByteArrayType>(&mut group, &text(|row| &row.fetcher), None, None)?;
    write_column::<_, Int64Type>(
        &mut group,
        &rows.iter().map(|row| row.fetched_at).collect::<Vec<_>>(),
        None,
        None,
    )?;
    let (html, body) = (levels(&rows, |row| row.is_text), levels(&rows, |row| !row.is_text));
    let (text, other): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(|row| row.is_text);
    let contents = |rows: Vec<Row>| {
        rows.into_iter().map(|row| ByteArray::from(row.content)).collect::<Vec<_>>()
    };
    write_column::<_, ByteArrayType>(&mut group, &contents(text), Some(&html), None)?;
    write_column::<_, ByteArrayType>(&mut group, &contents(other), Some(&body), None)?;
    group.close().map(drop)
}

/// Returns which rows have a value.
fn levels(rows: &[Row], has: impl Fn(&Row) -> bool) -> Vec<i16> {
    rows.iter().map(|row| i16::from(has(row))).collect()
}
