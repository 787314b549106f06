//! WARC archives that a crash truncated: at every byte of a record, plain and compressed, with
//! bodies that look like records.

use std::fs;
use std::io::{BufReader, Cursor, Read, Write};
use std::path::{Path, PathBuf};

use fetchwise::fetch::{Body, Response};
use fetchwise::response::Header;
use fetchwise::store::warc::{Warc, WarcError, WarcOptions, cdxj};
use fetchwise::store::{Delivered, Store};
use fetchwise::time::Timestamp;
use flate2::read::MultiGzDecoder;
use url::Url;
use warc::{WarcHeader, WarcReader};

/// Opens an archive with one record per page, so that pages and records end at the same bytes.
fn open(path: &Path) -> Result<Warc, WarcError> {
    Warc::with(path, WarcOptions::default().metadata(false).revisits(false))
}

const NAMES: [&str; 2] = ["crawl.warc", "crawl.warc.gz"];

fn put(archive: &Warc, path: &str, body: &[u8]) {
    let url: Url = format!("http://e.org/{path}").parse().unwrap();
    let response = Response::new(
        200,
        vec![Header::new("content-type", "text/plain")],
        Body::in_memory(body.to_vec()),
        url.clone(),
    );
    let page = Delivered::new(&url, &response, "direct_access", Timestamp::from_millis(0));
    archive.put(&page).unwrap();
}

/// Returns the URLs in an archive, in order, as an independent reader finds them; `-` for a record
/// without one.
fn urls(path: &Path) -> Vec<String> {
    let mut bytes = fs::read(path).unwrap();
    if path.extension().unwrap() == "gz" {
        let mut plain = Vec::new();
        MultiGzDecoder::new(bytes.as_slice()).read_to_end(&mut plain).unwrap();
        bytes = plain;
    }
    let records = WarcReader::new(BufReader::new(Cursor::new(bytes))).iter_records();
    records
        .map(|record| {
            record
                .unwrap()
                .header(WarcHeader::TargetURI)
                .map_or_else(|| "-".to_owned(), |url| url.into_owned())
        })
        .collect()
}

/// Returns an archive of the records `/0`, `/1` ... with these bodies, as bytes, and the end of
/// each record, including the first.
fn archive(name: &str, bodies: &[&[u8]]) -> (Vec<u8>, Vec<usize>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    let len = || fs::metadata(&path).unwrap().len() as usize;
    let archive = open(&path).unwrap();
    let mut ends = vec![len()];
    for (n, body) in bodies.iter().enumerate() {
        put(&archive, &n.to_string(), body);
        ends.push(len());
    }
    (fs::read(&path).unwrap(), ends)
}

struct ArchiveFolder {
    dir: tempfile::TempDir,
    path: PathBuf,
}

impl ArchiveFolder {
    /// Creates a folder with one archive in it.
    fn with(name: &str, bytes: &[u8]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        Self { dir, path }
    }

    fn files(&self) -> usize {
        fs::read_dir(self.dir.path()).unwrap().count()
    }
}

/// Returns bytes without a pattern, which cannot be compressed.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(&mut next).take(len).collect()
}

#[test]
fn an_incomplete_record_is_moved_to_a_file_and_no_complete_one_is_lost() {
    let tricky =
        b"HTTP/1.1\r\n\r\nWARC/1.0\r\ncontent-length: 9999\r\n\r\n\x1f\x8b\x08\0 no record";
    for name in NAMES {
        let (bytes, ends) =
            archive(name, &[b"first", tricky, &[&noise(300), &tricky[..]].concat()]);
        let (whole, all) = (ends[ends.len() - 2], bytes.len());
        for cut in whole..=all {
            let folder = ArchiveFolder::with(name, &bytes[..cut]);
            let archive = open(&folder.path).unwrap();
            let mut expected = vec!["-", "http://e.org/0", "http://e.org/1"];
            match archive.torn() {
                None => {
                    assert!(cut == whole || cut == all, "{name} cut at {cut}");
                    assert_eq!(folder.files(), 1);
                    if cut == all {
                        expected.push("http://e.org/2");
                    }
                }
                Some(torn) => {
                    assert_eq!(
                        (torn.at as usize, torn.bytes as usize),
                        (whole, cut - whole),
                        "{name} cut at {cut}"
                    );
                    assert_eq!(fs::read(&torn.kept).unwrap(), &bytes[whole..cut]);
                    assert_eq!(fs::read(&folder.path).unwrap(), &bytes[..whole]);
                }
            }
            put(&archive, "new", b"after the crash");
            expected.push("http://e.org/new");
            assert_eq!(urls(&folder.path), expected, "{name} cut at {cut}");
        }
    }
}

#[test]
fn an_archive_that_was_cut_in_its_first_record_starts_again() {
    for name in NAMES {
        let (bytes, _) = archive(name, &[]);
        for cut in 0..bytes.len() {
            let folder = ArchiveFolder::with(name, &bytes[..cut]);
            let archive = open(&folder.path).unwrap();
            assert_eq!(
                archive.torn().map(|torn| torn.bytes as usize),
                (cut > 0).then_some(cut),
                "{name}"
            );
            assert_eq!(urls(&folder.path), ["-"], "{name} cut at {cut}");
        }
    }
}

#[test]
fn a_second_torn_tail_at_the_same_byte_does_not_overwrite_the_first() {
    let (bytes, ends) = archive(NAMES[0], &[b"first", b"second"]);
    let folder = ArchiveFolder::with(NAMES[0], &bytes[..ends[1] + 20]);
    let kept = |bytes: &[u8]| {
        fs::write(&folder.path, bytes).unwrap();
        let archive = open(&folder.path).unwrap();
        let torn = archive.torn().unwrap();
        assert!(torn.to_string().contains(&format!("its last {} bytes", torn.bytes)), "{torn}");
        torn.kept.clone()
    };
    let (a, b) = (kept(&bytes[..ends[1] + 20]), kept(&bytes[..ends[1] + 30]));
    assert_eq!((fs::read(a).unwrap().len(), fs::read(b).unwrap().len()), (20, 30));
}

#[test]
fn an_archive_has_one_writer_at_a_time() {
    let folder = ArchiveFolder::with(NAMES[0], b"");
    let first = open(&folder.path).unwrap();
    assert!(matches!(open(&folder.path), Err(WarcError::Busy { .. })));
    drop(first);
    assert!(open(&folder.path).is_ok());
}

#[test]
fn other_damage_is_refused_and_changes_nothing() {
    for name in NAMES {
        let (bytes, ends) = archive(name, &[&noise(300), b"second", b"third"]);
        let cut = bytes.len() - 7;
        let flipped = |at: usize, cut: usize| {
            let mut bytes = bytes[..cut].to_vec();
            bytes[at] ^= 0xff;
            bytes
        };
        let cases = [
            ("a damaged head, and a torn tail", flipped(ends[0], cut), ends[0]),
            ("a damaged last head", flipped(ends[2], bytes.len()), ends[2]),
            ("a damaged end", flipped(bytes.len() - 1, bytes.len()), ends[2]),
            ("bytes after the last record", [&bytes[..], b"\0\0x\0"].concat(), bytes.len()),
            ("not an archive", b"<!doctype html><p>a page that has the wrong name".to_vec(), 0),
        ];
        for (what, bytes, from) in cases {
            let folder = ArchiveFolder::with(name, &bytes);
            match open(&folder.path) {
                Err(WarcError::Damaged { at, len, .. }) => {
                    assert_eq!((at as usize, len as usize), (from, bytes.len()))
                }
                other => panic!("{what}: {name}: {other:?}"),
            }
            assert_eq!((fs::read(&folder.path).unwrap(), folder.files()), (bytes, 1), "{what}");
        }
    }
}

#[test]
fn zeros_after_a_power_failure_are_a_torn_tail() {
    for name in NAMES {
        let (bytes, _) = archive(name, &[b"first", b"second"]);
        let folder = ArchiveFolder::with(name, &[&bytes[..], &[0; 100_000]].concat());
        let opened = open(&folder.path).unwrap();
        let torn = opened.torn().unwrap();
        assert_eq!(
            (torn.at as usize, torn.bytes, folder.files()),
            (bytes.len(), 100_000, 2),
            "{name}"
        );
        assert_eq!(fs::read(&folder.path).unwrap(), bytes, "{name}");
    }
}

#[test]
fn a_wrong_length_in_the_middle_is_not_a_torn_tail() {
    let (bytes, ends) = archive(NAMES[0], &[&noise(300), b"second", b"third"]);
    let text = bytes.iter().map(|&byte| char::from(byte.to_ascii_lowercase())).collect::<String>();
    let digits =
        ends[0] + text[ends[0]..].find("content-length: ").unwrap() + "content-length: ".len();
    let mut bytes = bytes[..bytes.len() - 7].to_vec();
    bytes[digits] = b'9';
    bytes.insert(digits, b'9');
    let folder = ArchiveFolder::with(NAMES[0], &bytes);
    assert!(
        matches!(open(&folder.path), Err(WarcError::Damaged { at, .. }) if at as usize == ends[0])
    );
    assert_eq!(fs::read(&folder.path).unwrap(), bytes);
}

#[test]
fn a_page_that_is_an_archive_itself_is_one_record() {
    for name in NAMES {
        let (inner, inner_ends) = archive(name, &[&noise(100), b"inner"]);
        let (bytes, ends) = archive(name, &[b"first", &inner]);
        let folder = ArchiveFolder::with(name, &bytes);
        let reopened = open(&folder.path).unwrap();
        assert!(reopened.torn().is_none());
        let whole = ends[1];
        let inner_at = bytes.windows(inner.len()).position(|window| window == inner);
        for cut in whole + 1..bytes.len() {
            let folder = ArchiveFolder::with(name, &bytes[..cut]);
            match open(&folder.path) {
                Ok(archive) if archive.torn().is_none() => {
                    // The documented exception.
                    let of_inner = inner_at.map(|at| cut - at);
                    assert!(
                        of_inner.is_some_and(|end| inner_ends.contains(&end)),
                        "{name} cut at {cut}"
                    );
                }
                Ok(archive) => {
                    assert_eq!(archive.torn().unwrap().at as usize, whole, "{name} cut at {cut}")
                }
                Err(WarcError::Damaged { at, .. }) => {
                    assert_eq!(at as usize, whole, "{name} cut at {cut}")
                }
                Err(error) => panic!("{name} cut at {cut}: {error}"),
            }
        }
    }
}

#[test]
fn an_archive_in_one_gzip_member_is_appended_to() {
    let (plain, _) = archive(NAMES[0], &[&noise(3000), b"second"]);
    // All records in one gzip member, with a name and a time in its head.
    let mut encoder = flate2::GzBuilder::new()
        .filename("crawl.warc")
        .mtime(7)
        .write(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&plain).unwrap();
    let compressed = encoder.finish().unwrap();
    let folder = ArchiveFolder::with(NAMES[1], &compressed);
    let archive = open(&folder.path).unwrap();
    assert!(archive.torn().is_none());
    put(&archive, "new", b"more");
    assert_eq!(urls(&folder.path), ["-", "http://e.org/0", "http://e.org/1", "http://e.org/new"]);
}

#[test]
fn a_record_longer_than_a_search_step_is_found() {
    for name in NAMES {
        let (bytes, ends) = archive(name, &[b"first", &noise(900_000)]);
        let folder = ArchiveFolder::with(name, &bytes);
        assert!(open(&folder.path).unwrap().torn().is_none());
        let folder = ArchiveFolder::with(name, &bytes[..bytes.len() - 1]);
        assert_eq!(open(&folder.path).unwrap().torn().map(|torn| torn.at as usize), Some(ends[1]));
    }
}

#[test]
fn headers_and_urls_of_a_hostile_server_add_no_records_or_fields() {
    let forged = "a\r\n\r\nWARC/1.1\r\nWARC-Type: response\r\nContent-Length: 0\r\n\r\n\r\n\r\n";
    let headers = vec![
        Header::new("content-type", format!("text/html\r\nX-Forged: 1\r\n\r\n{forged}")),
        Header::new("X-Name\r\nX-Forged", "1"),
        Header::new(format!("X: {forged}"), "1"),
        Header::new("Content-Length", "999999"),
        Header::new("Transfer-Encoding", "chunked"),
        Header::new("", forged),
        Header::new("Warc-Type", "\u{85}\u{2028}\u{b}\u{0}conversion"),
    ];
    for name in NAMES {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        let archive = Warc::open(&path).unwrap();
        for text in [
            "http://e.org/a%0d%0aWARC-Type:%20conversion",
            "http://e.org/?\r\nWARC-Type: conversion",
            "http://e.org/#\n",
        ] {
            let url: Url = text.parse().unwrap();
            let body = Body::in_memory(format!("{text}{forged}").into_bytes());
            let response = Response::new(200, headers.clone(), body, url.clone());
            let at = Timestamp::from_millis(0);
            archive.put(&Delivered::new(&url, &response, "x\r\nWARC-Type: y", at)).unwrap();
        }
        drop(archive);
        let mut bytes = fs::read(&path).unwrap();
        if name.ends_with("gz") {
            let mut plain = Vec::new();
            MultiGzDecoder::new(bytes.as_slice()).read_to_end(&mut plain).unwrap();
            bytes = plain;
        }
        let mut responses = 0;
        for record in WarcReader::new(BufReader::new(Cursor::new(bytes))).iter_records() {
            let record = record.unwrap();
            assert_ne!(record.header(WarcHeader::WarcType).unwrap(), "conversion");
            if record.header(WarcHeader::WarcType).unwrap() != "response" {
                continue;
            }
            responses += 1;
            let block = String::from_utf8_lossy(record.body()).into_owned();
            let (head, body) = block.split_once("\r\n\r\n").unwrap();
            assert!(body.starts_with("http://e.org/") && body.ends_with(forged), "{block:?}");
            let names: Vec<&str> =
                head.lines().skip(1).map(|line| line.split(':').next().unwrap()).collect();
            assert_eq!(names, ["content-type", "Warc-Type", "Content-Length"], "{head:?}");
            assert!(head.ends_with(&format!("Content-Length: {}", body.len())), "{head:?}");
        }
        assert_eq!(responses, 3, "{name}");
    }
}

/// Returns the kind and the URL of each record with a URL.
fn pages(path: &Path) -> Vec<(String, String)> {
    let mut bytes = fs::read(path).unwrap();
    if path.extension().unwrap() == "gz" {
        let mut plain = Vec::new();
        MultiGzDecoder::new(bytes.as_slice()).read_to_end(&mut plain).unwrap();
        bytes = plain;
    }
    let records =
        WarcReader::new(BufReader::new(Cursor::new(bytes))).iter_records().map(Result::unwrap);
    let page = |record: warc::Record<warc::BufferedBody>| {
        let url = record.header(WarcHeader::TargetURI)?.into_owned();
        Some((record.header(WarcHeader::WarcType)?.into_owned(), url))
    };
    records.filter_map(page).collect()
}

/// A payload that the archive had when it was stored became a revisit, although its record was gone
/// by then.
#[test]
fn a_page_whose_earlier_record_was_cut_off_is_stored_again() {
    for name in NAMES {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        let archive = Warc::with(&path, WarcOptions::default().metadata(false)).unwrap();
        put(&archive, "0", b"a page");
        put(&archive, "1", b"a page");
        let of = |kind: &str, n: u8| (kind.to_owned(), format!("http://e.org/{n}"));
        assert_eq!(pages(&path), [of("response", 0), of("revisit", 1)], "{name}");
        // As `copytruncate` of logrotate does it.
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
        put(&archive, "2", b"a page");
        put(&archive, "3", b"a page");
        assert_eq!(pages(&path), [of("response", 2), of("revisit", 3)], "{name}");
    }
}

/// An index knew the indexed part of an archive by the archive's name: the beginning of another
/// archive of that name was never indexed, and the lines of the former one stayed.
#[test]
fn another_archive_of_the_same_name_is_indexed_from_its_start() {
    for name in NAMES {
        let dir = tempfile::tempdir().unwrap();
        let (path, index) = (dir.path().join(name), dir.path().join("index.cdxj"));
        let fill = |path: &Path, pages: &[&str]| {
            let archive = open(path).unwrap();
            pages.iter().for_each(|page| put(&archive, page, page.as_bytes()));
        };
        let update =
            || cdxj::update(&[dir.path().join("kept.warc"), path.clone()], &index).unwrap();
        fill(&dir.path().join("kept.warc"), &["kept"]);
        fill(&path, &["a", "b"]);
        assert_eq!(update(), 3);
        fill(&path, &["c"]);
        assert_eq!((update(), update()), (1, 0), "{name}: only what is new");
        fs::remove_file(&path).unwrap();
        fill(&path, &["a much longer page than before", "d", "e", "f"]);
        assert_eq!(update(), 4, "{name}");
        let lines = fs::read_to_string(&index).unwrap();
        let urls = |line: &str| line.split(' ').next().unwrap().to_owned();
        let want = ["a%20much%20longer%20page%20than%20before", "d", "e", "f", "kept"]
            .map(|page| format!("org,e)/{page}"));
        assert_eq!(lines.lines().map(urls).collect::<Vec<_>>(), want, "{name}");
        // A cut archive lacks the last record that was indexed.
        fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(fs::metadata(&path).unwrap().len() - 1)
            .unwrap();
        assert_eq!(
            (update(), fs::read_to_string(&index).unwrap().lines().count()),
            (3, 4),
            "{name}"
        );
    }
}

#[test]
fn the_headers_of_a_page_keep_their_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("crawl.warc");
    let value: Vec<u8> = (0x20..=0x7e_u8).chain(0x80..=0xff).chain([b'\t', b'z']).collect();
    let url: Url = "http://e.org/x".parse().unwrap();
    let headers =
        vec![Header::new("content-type", "text/plain"), Header::from_bytes("location", &value)];
    let response = Response::new(200, headers, Body::in_memory(b"page".to_vec()), url.clone());
    let page = Delivered::new(&url, &response, "direct_access", Timestamp::from_millis(0));
    let archive = open(&path).unwrap();
    archive.put(&page).unwrap();
    let line = [b"\r\nlocation: ", &value[..], b"\r\n"].concat();
    let bytes = fs::read(&path).unwrap();
    assert!(memchr::memmem::find(&bytes, &line).is_some(), "{}", bytes.escape_ascii());
}
