//! Files on disk: names, archives, and the state after a kill.

use std::fs;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};

use fetchwise::fetch::{Body, Limits, Response};
use fetchwise::response::Header;
use fetchwise::store::files::Files;
use fetchwise::store::warc::Warc;
use fetchwise::store::{Delivered, Store};
use fetchwise::time::Timestamp;
use url::Url;

use crate::support::{alone, bounded, builder, get, is_alone, within};
use crate::tempers::{Hostile, Temper, noise};

fn page(url: &Url, headers: Vec<Header>, body: Body) -> Response {
    Response::new(200, headers, body, url.clone())
}

fn put(store: &dyn Store, url: &Url, response: &Response) -> std::path::PathBuf {
    let at = Timestamp::from_millis(0);
    store.put(&Delivered::new(url, response, "direct_access", at)).unwrap()
}

#[test]
fn stored_names_are_not_options_and_keep_their_extension() {
    let dir = tempfile::tempdir().unwrap();
    let store = Files::new(dir.path()).unwrap();
    for (url, extension) in [
        ("http://-e.example/-rf", "html"),
        ("http://e.org/--output=x.pdf", "pdf"),
        ("http://e.org/report.pdf?page=2", "pdf"),
    ] {
        let url: Url = url.parse().unwrap();
        let headers = vec![Header::new("content-type", "text/html")];
        let path = put(&store, &url, &page(&url, headers, Body::in_memory("x")));
        let below = path.strip_prefix(dir.path()).unwrap();
        assert!(
            below.iter().all(|part| !part.to_string_lossy().starts_with('-')),
            "{}",
            path.display()
        );
        assert_eq!(path.extension().unwrap(), extension, "{}", path.display());
    }
}

#[test]
fn a_page_has_no_name_until_it_is_stored_completely() {
    let dir = tempfile::tempdir().unwrap();
    let store = Files::new(dir.path()).unwrap();
    let url: Url = "http://e.org/long".parse().unwrap();
    let len = 256 << 20;
    let (host, looks) = (dir.path().join("e.org"), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let stored = scope.spawn(|| {
            let file = tempfile::tempfile().unwrap();
            // Zeros that take no memory until they are copied.
            file.set_len(len).unwrap();
            let response = page(&url, Vec::new(), Body::spilled(Vec::new(), len, file));
            // Again and again until the other thread has looked often enough.
            loop {
                let path = put(&store, &url, &response);
                if looks.load(Ordering::SeqCst) > 10 {
                    return path;
                }
            }
        });
        while !stored.is_finished() {
            for entry in fs::read_dir(&host).into_iter().flatten().flatten() {
                let seen = entry.metadata().map_or(len, |about| about.len());
                assert_eq!(seen, len, "{} exists before it is complete", entry.path().display());
            }
            looks.fetch_add(1, Ordering::SeqCst);
        }
        let path = stored.join().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), len);
        // The same page again replaces the first one.
        let again = put(&store, &url, &page(&url, Vec::new(), Body::in_memory("short")));
        assert_eq!((again.clone(), fs::read(&again).unwrap()), (path, b"short".to_vec()));
        assert_eq!(fs::read_dir(&host).unwrap().count(), 1);
    });
}

/// Returns the peak memory of this process, in bytes.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn an_archive_streams_long_bodies() {
    if !is_alone() {
        // Memory is that of the whole process: other tests would be measured, too.
        return alone("files::an_archive_streams_long_bodies", ":");
    }
    let dir = tempfile::tempdir().unwrap();
    // More than memory may grow.
    let len = 40 << 20;
    let url: Url = "http://e.org/long".parse().unwrap();
    let chunk = noise(1 << 20);
    // All bodies differ, or the second would only be a reference to the first.
    let spilled = |n: u8| {
        let mut file = tempfile::tempfile_in(dir.path()).unwrap();
        file.write_all(&[n]).unwrap();
        for _ in 0..len >> 20 {
            file.write_all(&chunk).unwrap();
        }
        page(&url, Vec::new(), Body::spilled(vec![n], len + 1, file))
    };
    let before = peak();
    for name in ["crawl.warc", "crawl.warc.gz"] {
        let path = dir.path().join(name);
        let archive = Warc::open(&path).unwrap();
        for n in 0..2 {
            put(&archive, &url, &spilled(n));
        }
        assert!(fs::metadata(&path).unwrap().len() > 2 * len);
        let again = Warc::open(&path);
        assert!(again.is_err(), "one writer at a time");
        drop(archive);
        assert!(Warc::open(&path).unwrap().torn().is_none(), "{name}");
    }
    let grown = peak() - before;
    println!("{} MB in two archives: {} MB more memory", (4 * len) >> 20, grown >> 20);
    assert!(grown < 32 << 20, "{grown} bytes more for bodies of {len}");
}

#[test]
fn a_truncated_body_leaves_no_partial_record() {
    let dir = tempfile::tempdir().unwrap();
    let url: Url = "http://e.org/short".parse().unwrap();
    for name in ["crawl.warc", "crawl.warc.gz"] {
        let path = dir.path().join(name);
        let archive = Warc::open(&path).unwrap();
        let whole = fs::metadata(&path).unwrap().len();
        for len in [100_000, 10 << 20] {
            let mut file = tempfile::tempfile_in(dir.path()).unwrap();
            file.write_all(&noise(50_000)).unwrap();
            let response = page(&url, Vec::new(), Body::spilled(Vec::new(), len, file));
            let page = Delivered::new(&url, &response, "x", Timestamp::from_millis(0));
            assert!(archive.put(&page).is_err());
            assert_eq!(fs::metadata(&path).unwrap().len(), whole, "{name}, {len} bytes");
        }
    }
}

#[test]
fn a_header_with_a_line_break_in_its_name_does_not_get_into_an_archive() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("crawl.warc");
    let url: Url = "http://e.org/".parse().unwrap();
    let headers =
        vec![Header::new("x\r\nset-cookie: evil", "1"), Header::new("server", "s\r\nevil: 1")];
    put(&Warc::open(&path).unwrap(), &url, &page(&url, headers, Body::in_memory("<p>x")));
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("server: sevil: 1\r\n") && !text.contains("set-cookie"), "{text}");
}

#[tokio::test]
async fn a_long_body_has_no_name_until_it_is_stored_completely() {
    bounded(async {
        let (dir, server) =
            (tempfile::tempdir().unwrap(), Hostile::start(Temper::GoesOnAndOn(3 << 20)).await);
        let fetcher = builder().temp_dir(dir.path()).build().unwrap();
        let limits = Limits { max_in_memory: 1000, ..within(120) };
        let response = get(&fetcher, &server.url("/"), &limits).await.unwrap();
        assert!(response.body.spill().is_some());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert_eq!(crate::support::body(&response), noise(3 << 20));
    })
    .await;
}
