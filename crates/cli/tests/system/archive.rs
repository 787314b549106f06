//! `fetch --warc --cdx` read by common archive programs: warcio checks each digest and length, pywb
//! replays pages.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fetchwise_testsite::poll::found;
use fetchwise_testsite::ports::on_a_free_port;
use serde_json::Value;

use crate::support::{PATIENCE, TestDir, lines};

/// A site with pages, redirects to them, identical pages, and a file, on its own loopback port.
struct Site {
    port: u16,
    stop: Arc<AtomicBool>,
    holds: Arc<AtomicBool>,
}

/// The first page that a site holds back if it is told to.
const HELD: usize = 60;

impl Site {
    fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let (port, stop) =
            (listener.local_addr().unwrap().port(), Arc::new(AtomicBool::new(false)));
        let holds = Arc::new(AtomicBool::new(false));
        let (ended, holding) = (Arc::clone(&stop), Arc::clone(&holds));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                if let Ok(stream) = stream {
                    let holding = Arc::clone(&holding);
                    std::thread::spawn(move || drop(answer(stream, &holding)));
                }
            }
        });
        Self { port, stop, holds }
    }

    /// Sets whether pages from [`HELD`] on get no response for now.
    fn hold(&self, holds: bool) {
        self.holds.store(holds, Ordering::Release);
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.hold(false);
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

/// Returns the content of the site at a path: type and bytes.
fn page(path: &str) -> (&'static str, Vec<u8>) {
    let text = |about: &str| {
        let words = format!("{about} has its own paragraph, and a few more words so that there is something to read. ")
            .repeat(6);
        format!("<!doctype html><title>{about}</title><article><p>{words}</p></article>")
            .into_bytes()
    };
    match path {
        "/paper.pdf" => ("application/pdf", b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n".repeat(50)),
        path if path.starts_with("/same/") => ("text/html", text("The page that all have")),
        path => ("text/html; charset=utf-8", text(path)),
    }
}

fn answer(stream: TcpStream, holds: &AtomicBool) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut line, mut stream) = (String::new(), stream);
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or("/").to_owned();
    while line.trim() != "" {
        line.clear();
        reader.read_line(&mut line)?;
    }
    let number = path.split(['/', '?']).nth(2).and_then(|number| number.parse::<usize>().ok());
    while number.is_some_and(|number| number >= HELD) && holds.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(5));
    }
    if let Some(rest) = path.strip_prefix("/go/") {
        return write!(
            stream,
            "HTTP/1.1 302 Found\r\nLocation: /p/{rest}\r\nSet-Cookie: seen=1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
    }
    let (mime, body) = page(&path);
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: {mime}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    stream.write_all(&body)
}

/// Returns a program that `.ci/warc-tools` installs.
fn tool(name: &str) -> PathBuf {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/warc-tools/bin");
    let path = tools.join(name);
    assert!(path.exists(), "there is no {}: .ci/warc-tools installs it", path.display());
    path
}

/// Returns the records of an archive by type, as warcio reads them; fails for a wrong digest or
/// length.
fn checked(files: &[PathBuf]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for file in files {
        let check = Command::new(tool("warcio")).arg("check").arg("-v").arg(file).output().unwrap();
        let said = String::from_utf8_lossy(&check.stdout);
        assert!(
            check.status.success() && said.contains("digest pass") && !said.contains("not present"),
            "{said}"
        );
        let index = Command::new(tool("warcio"))
            .args(["index", "-f", "warc-type"])
            .arg(file)
            .output()
            .unwrap();
        for line in String::from_utf8(index.stdout).unwrap().lines() {
            let record: Value = serde_json::from_str(line).unwrap();
            *counts.entry(record["warc-type"].as_str().unwrap().to_owned()).or_default() += 1;
        }
    }
    counts
}

/// Returns the URLs of the site as an input file.
fn input(site: &Site, pages: usize) -> (Vec<String>, String) {
    let mut paths: Vec<String> = (0..pages)
        .map(|n| match n % 4 {
            0 => format!("/go/{n}"),
            1 => format!("/same/{n}"),
            _ => format!("/p/{n}?b={n}&A=1"),
        })
        .collect();
    paths.push("/paper.pdf".to_owned());
    let text = paths.iter().map(|path| site.url(path) + "\n").collect();
    (paths, text)
}

const FETCH: [&str; 16] = [
    "fetch",
    "--input",
    "urls.txt",
    "--warc",
    "crawl.warc.gz",
    "--cdx",
    "index.cdxj",
    "--allow-private-network",
    "--no-browser",
    "--concurrency",
    "4",
    "--json",
    "--pace",
    "off",
    "--robots",
    "ignore",
];

#[test]
fn an_archive_of_a_killed_crawl_passes_warcio_and_pywb() {
    let (place, site) = (TestDir::new(), Site::start());
    let (paths, text) = input(&site, 80);
    place.write("urls.txt", &text);
    site.hold(true);
    let mut first = place.spawn(&FETCH);
    let results = lines(first.stdout.take().unwrap());
    for _ in 0..25 {
        results.recv_timeout(PATIENCE).unwrap();
    }
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(!place.path("index.cdxj").exists(), "it was killed before it came to that");
    site.hold(false);
    let rest = place.run(&FETCH);
    assert_eq!(rest.code, 0, "{}", rest.stderr);
    let archive = place.path("crawl.warc.gz");
    let counts = checked(std::slice::from_ref(&archive));
    assert!(counts["revisit"] >= 10, "pages that are the same are kept once a run: {counts:?}");
    assert!(
        counts["request"] >= paths.len() + 20 && counts["metadata"] >= paths.len(),
        "{counts:?}"
    );
    let index = std::fs::read_to_string(place.path("index.cdxj")).unwrap();
    assert!(
        index.lines().is_sorted()
            && index.lines().count() == counts["response"] + counts["revisit"],
        "{counts:?}"
    );
    let before = index.clone();
    assert_eq!(place.run(&FETCH.iter().copied().chain(["--restart"]).collect::<Vec<_>>()).code, 0);
    let index = std::fs::read_to_string(place.path("index.cdxj")).unwrap();
    assert!(
        index.lines().is_sorted() && index.lines().count() > before.lines().count(),
        "an index grows with its archive"
    );
    replays(&place, &site, &paths);
}

/// Serves the archive by pywb and compares the pages with those of the site.
fn replays(place: &TestDir, site: &Site, paths: &[String]) {
    for folder in ["archive", "indexes"] {
        std::fs::create_dir_all(place.path(&format!("web/collections/test/{folder}"))).unwrap();
    }
    std::fs::copy(
        place.path("crawl.warc.gz"),
        place.path("web/collections/test/archive/crawl.warc.gz"),
    )
    .unwrap();
    std::fs::copy(place.path("index.cdxj"), place.path("web/collections/test/indexes/index.cdxj"))
        .unwrap();
    let (_pywb, port) = on_a_free_port(Ipv4Addr::LOCALHOST.into(), |address| {
        let mut command = Command::new(tool("wayback"));
        command
            .args(["-b", "127.0.0.1", "-p", &address.port().to_string(), "-d"])
            .arg(place.path("web"));
        let mut pywb =
            ChildGuard(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let listens = found("pywb listens", || {
            let has_ended = pywb.0.try_wait().unwrap().is_some();
            if has_ended { Ok(false) } else { TcpStream::connect(address).map(|_| true) }
        });
        listens.then(|| (pywb, address.port()))
    });
    for path in paths {
        let (head, body) = get(port, &format!("/test/2030id_/{}", site.url(path)));
        match path.strip_prefix("/go/") {
            // The target page has its own URL.
            Some(rest) => {
                assert!(head.contains(" 302 ") || head.contains(" 307 "), "{path}: {head}");
                let (head, body) =
                    get(port, &format!("/test/2030id_/{}", site.url(&format!("/p/{rest}"))));
                assert!(
                    head.starts_with("HTTP/1.1 200") && body == page(&format!("/p/{rest}")).1,
                    "{path}: {head}"
                );
            }
            None => {
                assert!(head.starts_with("HTTP/1.1 200") && body == page(path).1, "{path}: {head}")
            }
        }
    }
}

struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the head and the body of a response.
fn get(port: u16, path: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    (String::from_utf8_lossy(&answer[..end]).into_owned(), answer[end + 4..].to_vec())
}

#[test]
fn an_archive_continues_in_a_new_file_at_the_size_limit() {
    let (place, site) = (TestDir::new(), Site::start());
    let (paths, text) = input(&site, 40);
    place.write("urls.txt", &text);
    let mut args = FETCH.to_vec();
    args.extend(["--warc-size", "8kB"]);
    assert_eq!(place.run(&args).code, 0);
    let files: Vec<PathBuf> = (0..)
        .map(|n| {
            place.path(&if n == 0 {
                "crawl.warc.gz".to_owned()
            } else {
                format!("crawl-{n:05}.warc.gz")
            })
        })
        .take_while(|path| path.exists())
        .collect();
    assert!(files.len() > 2, "{files:?}");
    let counts = checked(&files);
    assert_eq!(counts["warcinfo"], files.len(), "each file says what it is");
    let index = std::fs::read_to_string(place.path("index.cdxj")).unwrap();
    assert_eq!(index.lines().count(), counts["response"] + counts["revisit"]);
    assert!(
        counts["metadata"] == paths.len()
            && files.iter().all(|file| {
                index.contains(&format!("\"{}\"", file.file_name().unwrap().to_string_lossy()))
            })
    );
    // A second run continues in the last file.
    args.push("--restart");
    assert_eq!(place.run(&args).code, 0);
    assert_eq!(checked(&files[..1])["warcinfo"], 1);
}
