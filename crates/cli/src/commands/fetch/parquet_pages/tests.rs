//! Tests of data sets: what a reader finds in their files after a run, and after one that did not
//! end.
//!
//! Owns: nothing of the product. Invariants: each file is read back with the crate that other
//! programs use.

use std::io::Write as _;

use super::*;
use fetchwise::fetch::{Body, Response};
use fetchwise::response::Header;
use fetchwise::time::Timestamp;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use url::Url;

const AT: Timestamp = Timestamp::from_millis(1_790_000_000_123);

fn put(
    pages: &ParquetPages,
    path: &str,
    content_type: Option<&str>,
    body: &[u8],
) -> io::Result<PathBuf> {
    let url = Url::parse("https://e.org/").unwrap().join(path).unwrap();
    let headers =
        content_type.map(|value| Header::new("Content-Type", value)).into_iter().collect();
    let response =
        Response::new(200, headers, Body::in_memory(body.to_vec()), url.join("/landed").unwrap());
    pages.put(&Delivered::new(&url, &response, "direct_access", AT))
}

/// Returns the rows of a file, each as the texts of its columns, and the number of its row groups.
fn read(path: &Path) -> (Vec<Vec<String>>, usize) {
    let reader = SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
    let text = |field: &Field| match field {
        Field::Str(text) => text.clone(),
        Field::Bytes(bytes) => format!("{:?}", bytes.data()),
        Field::Null => String::new(),
        other => other.to_string(),
    };
    let rows = reader.get_row_iter(None).unwrap();
    let rows =
        rows.map(|row| row.unwrap().get_column_iter().map(|(_, field)| text(field)).collect());
    (rows.collect(), reader.metadata().num_row_groups())
}

fn paths_of(file: &Path) -> Vec<String> {
    read(file).0.iter().map(|row| row[0].trim_start_matches("https://e.org/").to_owned()).collect()
}

#[test]
fn text_is_decoded_and_anything_else_keeps_its_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("below/pages.parquet");
    let pages = ParquetPages::open(&file).unwrap();
    put(&pages, "a", Some("text/html; charset=windows-1251"), b"<p>\xCF\xF0").unwrap();
    put(&pages, "b", Some("image/png"), b"\x89PNG").unwrap();
    assert_eq!(put(&pages, "c", None, b"<!doctype html><title>C</title>").unwrap(), file);
    put(&pages, "d", Some("text/plain"), b"").unwrap();
    assert!(!file.exists(), "a file appears when it is complete");
    pages.finish().unwrap();
    let (rows, groups) = read(&file);
    let of = |row: usize, columns: std::ops::Range<usize>| rows[row][columns].to_vec();
    assert_eq!((rows.len(), groups), (4, 1));
    let landed = "https://e.org/landed";
    assert_eq!(
        of(0, 0..5),
        ["https://e.org/a", landed, "200", "text/html; charset=windows-1251", "direct_access"]
    );
    assert!(rows[0][5].starts_with("2026-09-21"), "{}", rows[0][5]);
    assert_eq!(of(0, 6..8), ["<p>Пр", ""]);
    assert_eq!(of(1, 6..8), ["", "[137, 80, 78, 71]"]);
    assert_eq!(
        (of(2, 3..4), of(2, 6..7)),
        (vec![String::new()], vec!["<!doctype html><title>C</title>".to_owned()])
    );
    assert_eq!(fs::read_dir(dir.path().join("below")).unwrap().count(), 1, "nothing else is left");
    assert!(put(&pages, "e", None, b"").is_err(), "a page that comes too late is not stored");
}

#[test]
fn a_large_data_set_continues_in_numbered_files_and_so_does_the_next_run() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pages.parquet");
    let pages = ParquetPages::with_shards(&file, 3000).unwrap();
    let body = [b'x'; 1000];
    let named: Vec<PathBuf> =
        (0..5).map(|n| put(&pages, &n.to_string(), Some("text/plain"), &body).unwrap()).collect();
    let second = dir.path().join("pages-00001.parquet");
    let third = dir.path().join("pages-00002.parquet");
    assert_eq!(named.iter().collect::<Vec<_>>(), [&file, &file, &second, &second, &third]);
    assert_eq!(paths_of(&file), ["0", "1"], "a full file is complete while the run goes on");
    pages.finish().unwrap();
    assert_eq!(
        (paths_of(&second), paths_of(&named[4])),
        (vec!["2".to_owned(), "3".to_owned()], vec!["4".to_owned()])
    );
    let again = ParquetPages::open(&file).unwrap();
    assert_eq!(put(&again, "5", None, b"").unwrap(), dir.path().join("pages-00003.parquet"));
    again.finish().unwrap();
    ParquetPages::open(&file).unwrap().finish().unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4, "a run without pages writes no file");
}

#[test]
fn pages_of_a_killed_run_are_in_the_file_that_was_named_for_them() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pages.parquet");
    let pages = ParquetPages::open(&file).unwrap();
    for name in ["a", "b"] {
        put(&pages, name, Some("text/html"), name.as_bytes()).unwrap();
    }
    // A dropped store is one of a process that ended.
    drop(pages);
    // The last page was being written.
    let rows = rows_path(&file);
    let whole = fs::read(&rows).unwrap();
    fs::OpenOptions::new().append(true).open(&rows).unwrap().write_all(&whole[50..90]).unwrap();
    let pages = ParquetPages::open(&file).unwrap();
    assert_eq!(put(&pages, "c", None, b"").unwrap(), file);
    pages.finish().unwrap();
    assert_eq!(paths_of(&file), ["a", "b", "c"]);
}

#[test]
fn a_row_with_a_changed_byte_ends_the_rows_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pages.parquet");
    let pages = ParquetPages::open(&file).unwrap();
    for name in ["a", "b", "c"] {
        put(&pages, name, Some("text/html"), b"text").unwrap();
    }
    drop(pages);
    let rows = rows_path(&file);
    let mut bytes = fs::read(&rows).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&rows, bytes).unwrap();
    ParquetPages::open(&file).unwrap().finish().unwrap();
    assert_eq!(paths_of(&file), ["a", "b"]);
}

#[test]
fn rows_that_are_in_a_file_already_are_not_written_twice() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pages.parquet");
    let pages = ParquetPages::open(&file).unwrap();
    put(&pages, "a", None, b"").unwrap();
    let rows = fs::read(rows_path(&file)).unwrap();
    pages.finish().unwrap();
    // The process ended between the file and the removal of its rows.
    fs::write(rows_path(&file), rows).unwrap();
    let pages = ParquetPages::open(&file).unwrap();
    put(&pages, "b", None, b"").unwrap();
    pages.finish().unwrap();
    assert_eq!(
        (paths_of(&file), paths_of(&dir.path().join("pages-00001.parquet"))),
        (vec!["a".into()], vec!["b".into()])
    );
}

#[test]
fn rows_of_another_process_and_other_files_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pages.parquet");
    let pages = ParquetPages::open(&file).unwrap();
    let refused = |file: &Path| ParquetPages::open(file).map(drop).unwrap_err().exit();
    assert_eq!(refused(&file), crate::terminal::exit::Exit::Refused);
    pages.finish().unwrap();
    for foreign in
        ["a file of mine, longer than the line that begins rows of a data set", "mine", "\u{e9}"]
    {
        fs::write(rows_path(&file), foreign).unwrap();
        assert_eq!(refused(&file), crate::terminal::exit::Exit::Refused);
        assert_eq!(fs::read_to_string(rows_path(&file)).unwrap(), foreign);
    }
    assert_eq!(refused(dir.path()), crate::terminal::exit::Exit::Usage);
}

#[test]
fn a_file_has_several_row_groups() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pages.parquet");
    let pages = ParquetPages::open(&file).unwrap();
    let body = vec![b'x'; 9 << 20];
    for n in 0..9 {
        put(&pages, &n.to_string(), Some("text/plain"), &body).unwrap();
    }
    pages.finish().unwrap();
    let (rows, groups) = read(&file);
    assert_eq!((rows.len(), groups), (9, 2));
    assert!(rows.iter().all(|row| row[6].len() == body.len()));
}
