//! Tests of the origin server over raw TCP: each site behaves as documented, and the ledger has
//! each request.
#![allow(clippy::unwrap_used)]

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::detect::{Detector, Scratch, Verdict};
use fetchwise::registry::FetcherSpec;
use fetchwise::response::{Header, Page};
use fetchwise_testsite::benchmark_sites::{BenchmarkOptions, BenchmarkSites, SiteKind, SitePlan};
use fetchwise_testsite::origin::{Challenge, Charset, Coding, Origin, Site};
use fetchwise_testsite::poll::until_blocking;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use url::Url;

const HOST: &str = "127.0.0.1";

/// A response as it arrived, with its chunks joined and nothing else decoded.
struct RawResponse {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl RawResponse {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

fn connect(origin: &Origin, address: &str) -> TcpStream {
    let stream = TcpStream::connect((address, origin.port())).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    stream
}

fn send(stream: &mut TcpStream, host: &str, path: &str, agent: &str) {
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {agent}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
}

/// Reads until the server closes the connection.
fn read_all(mut stream: TcpStream) -> io::Result<RawResponse> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").ok_or_else(|| {
        io::Error::new(io::ErrorKind::UnexpectedEof, format!("no head in {} bytes", bytes.len()))
    })?;
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut body = bytes[end + 4..].to_vec();
    if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        body = unchunk(&body);
    }
    Ok(RawResponse { status, head, body })
}

fn unchunk(mut bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some(end) = bytes.windows(2).position(|window| window == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            break;
        }
        let start = end + 2;
        out.extend_from_slice(&bytes[start..start + size]);
        bytes = &bytes[start + size + 2..];
    }
    out
}

fn get_as(origin: &Origin, host: &str, path: &str, agent: &str) -> RawResponse {
    let mut stream = connect(origin, host);
    send(&mut stream, &format!("{host}:{}", origin.port()), path, agent);
    read_all(stream).unwrap()
}

fn get(origin: &Origin, path: &str) -> RawResponse {
    get_as(origin, HOST, path, "test")
}

fn one(site: Site) -> Origin {
    Origin::start([(HOST, site)]).unwrap()
}

/// Returns the number of visible characters of simple HTML: the text between tags, without head,
/// scripts and styles.
fn visible_chars(html: &str) -> usize {
    let body = html.split("<body").nth(1).unwrap_or(html);
    let mut text = String::new();
    for (i, piece) in body.split('<').enumerate() {
        if i > 0 && !piece.starts_with("script") && !piece.starts_with("style") {
            text.push_str(piece.split_once('>').map_or("", |(_, after)| after));
        }
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().count()
}

#[test]
fn thirty_static_pages_are_thirty_requests_for_thirty_texts() {
    let origin = one(Site::Static);
    let mut bodies = HashSet::new();
    for n in 0..30 {
        let page = get(&origin, &format!("/notes/{n}"));
        assert_eq!(page.status, 200);
        assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
        assert!(visible_chars(&page.text()) > 1000);
        assert!(bodies.insert(page.text()));
    }
    assert_eq!(origin.hits(HOST), 30);
    assert_eq!(origin.hits_at(HOST, "/notes/7"), 1);
    assert_eq!(origin.requests().len(), 30);
    assert!(
        origin
            .requests()
            .iter()
            .all(|request| request.user_agent() == Some("test") && request.method == "GET")
    );
    assert_eq!(origin.hits("127.0.0.9"), 0);
}

#[test]
fn links_of_a_page_lead_to_pages_of_the_same_site() {
    let origin = one(Site::Static);
    let page = get(&origin, "/").text();
    let links: Vec<&str> =
        page.split("<li><a href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(links.len(), 5);
    assert_eq!(get(&origin, links[0]).status, 200);
}

#[test]
fn a_path_cannot_inject_markup_into_its_page() {
    assert!(!get(&one(Site::Static), "/<script>alert(1)</script>").text().contains("<script>"));
    assert!(
        !get(&one(Site::LoginWall), "/login?next=%22%3E%3Cscript%3E").text().contains("<script>")
    );
}

#[test]
fn addresses_and_names_are_distinct_hosts() {
    let sites =
        [(HOST, Site::Static), ("127.0.0.2", Site::FORBIDDEN), ("Shop.localhost", Site::GONE)];
    let origin = Origin::start(sites).unwrap();
    assert_eq!(get_as(&origin, HOST, "/", "test").status, 200);
    assert_eq!(get_as(&origin, "127.0.0.2", "/", "test").status, 403);
    let mut stream = connect(&origin, HOST);
    send(&mut stream, &format!("SHOP.localhost:{}", origin.port()), "/", "test");
    assert_eq!(read_all(stream).unwrap().status, 410);
    assert_eq!(
        (origin.hits(HOST), origin.hits("127.0.0.2"), origin.hits("shop.localhost")),
        (1, 1, 1)
    );
    assert_eq!(origin.connections(IpAddr::from([127, 0, 0, 1])), 2);
    assert_eq!(origin.connections(IpAddr::from([127, 0, 0, 2])), 1);
    let hosts: Vec<String> = origin.requests().into_iter().map(|request| request.host).collect();
    assert_eq!(hosts, [HOST, "127.0.0.2", "shop.localhost"]);
}

#[test]
fn an_unknown_name_on_an_address_without_a_site_is_misdirected() {
    let origin = Origin::start([("shop.localhost", Site::Static)]).unwrap();
    assert_eq!(get_as(&origin, HOST, "/", "test").status, 421);
    assert!(origin.requests().is_empty());
}

#[test]
fn only_loopback_is_served_and_each_host_once() {
    let refused = |sites: &[&str]| {
        Origin::start(sites.iter().map(|host| (*host, Site::Static))).unwrap_err().kind()
    };
    assert_eq!(refused(&["10.0.0.1"]), io::ErrorKind::InvalidInput);
    assert_eq!(refused(&["0.0.0.0"]), io::ErrorKind::InvalidInput);
    assert_eq!(refused(&[HOST, HOST]), io::ErrorKind::InvalidInput);
    assert_eq!(refused(&[]), io::ErrorKind::InvalidInput);
}

#[test]
fn a_dropped_origin_sends_no_responses() {
    // No other test binds this address, so nobody takes the port.
    let host = "127.0.83.1";
    let origin = Origin::start([(host, Site::Silent)]).unwrap();
    let port = origin.port();
    let mut waiting = connect(&origin, host);
    send(&mut waiting, host, "/", "test");
    until_blocking("the request arrives", || origin.hits(host) == 1);
    drop(origin);
    assert!(read_all(waiting).is_err());
    assert!(TcpStream::connect((host, port)).is_err());
}

#[test]
fn a_connection_is_kept_alive() {
    let origin = one(Site::Empty);
    let mut stream = connect(&origin, HOST);
    write!(
        stream,
        "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut both = String::new();
    stream.read_to_string(&mut both).unwrap();
    assert_eq!(both.matches("HTTP/1.1 200 OK").count(), 2);
    assert_eq!((origin.hits(HOST), origin.connections(IpAddr::from([127, 0, 0, 1]))), (2, 1));
}

#[test]
fn the_react_shell_is_one_empty_page_with_real_assets_and_data_for_each_path() {
    let origin = one(Site::ReactShell);
    let shell = get(&origin, "/notes/1");
    assert_eq!((shell.status, shell.text()), (200, get(&origin, "/other").text()));
    assert!(visible_chars(&shell.text()) < 60);
    let html = shell.text();
    let assets: Vec<&str> = html.split('"').filter(|part| part.starts_with("/assets/")).collect();
    assert_eq!(assets.len(), 2);
    for asset in &assets {
        let page = get(&origin, asset);
        assert_eq!(page.status, 200, "{asset}");
        assert!(page.header("content-type").unwrap().starts_with("text/"));
        assert_eq!(page.header("content-length").unwrap(), page.body.len().to_string());
    }
    assert_eq!(get(&origin, "/assets/none.js").status, 404);
    let page = |path: &str| -> serde_json::Value {
        let page = get(&origin, &format!("/api/page?path={path}"));
        assert_eq!(page.header("content-type"), Some("application/json"));
        serde_json::from_slice(&page.body).unwrap()
    };
    assert_ne!(page("%2Fnotes%2F1")["sections"], page("%2Fnotes%2F2")["sections"]);
    assert!(page("%2F")["sections"].to_string().len() > 1000);
    assert_eq!(get(&origin, "/api/page").status, 400);
}

#[test]
fn a_challenge_stops_plain_clients_and_admits_stealthy_ones() {
    let origin = one(Site::captcha(403));
    let page = get(&origin, "/a");
    assert_eq!((page.status, page.header("cf-mitigated")), (403, Some("challenge")));
    assert!(page.text().contains("<title>Just a moment...</title>"));
    let content = get_as(&origin, HOST, "/a", "Mozilla/5.0 (stealth)");
    assert_eq!(content.status, 200);
    assert!(visible_chars(&content.text()) > 1000);

    let site = Site::Captcha {
        challenge: Challenge::Cloudflare,
        status: 200,
        admits: None,
        behind: Box::new(Site::Static),
    };
    let page = get_as(&one(site), HOST, "/a", "stealth");
    assert_eq!((page.status, page.header("cf-mitigated")), (200, None));
    assert!(page.text().contains("window._cf_chl_opt"));
}

#[test]
fn every_challenge_prints_a_different_identifier_for_each_path() {
    for challenge in [Challenge::Cloudflare, Challenge::DataDome, Challenge::Unlisted] {
        let origin = one(Site::Captcha {
            challenge,
            status: 403,
            admits: None,
            behind: Box::new(Site::Static),
        });
        let (a, b) = (get(&origin, "/a").text(), get(&origin, "/b").text());
        assert!(!a.contains("{{") && a != b, "{challenge:?}");
    }
}

#[test]
fn rate_limits_come_with_retry_after_and_after_the_free_requests() {
    let limited = get(&one(Site::rate_limited(120)), "/");
    assert_eq!((limited.status, limited.header("retry-after")), (429, Some("120")));
    let origin =
        one(Site::RateLimited { retry_after: "Wed, 21 Oct 2065 07:28:00 GMT".to_owned(), free: 2 });
    assert_eq!([(); 4].map(|()| get(&origin, "/").status), [200, 200, 429, 429]);
    assert_eq!(get(&origin, "/").header("retry-after"), Some("Wed, 21 Oct 2065 07:28:00 GMT"));
}

#[test]
fn status_pages_have_their_status_and_little_text() {
    let sites =
        [Site::FORBIDDEN, Site::NOT_FOUND, Site::GONE, Site::SERVER_ERROR, Site::Status(500)];
    for (site, status) in sites.into_iter().zip([403, 404, 410, 503, 500]) {
        let page = get(&one(site), "/");
        assert_eq!(page.status, status);
        assert!(visible_chars(&page.text()) < 200);
    }
    assert!(get(&one(Site::Status(401)), "/").header("www-authenticate").is_some());
}

#[test]
fn documents_have_their_own_types() {
    let pdf = get(&one(Site::Pdf), "/report");
    assert_eq!(pdf.header("content-type"), Some("application/pdf"));
    assert!(pdf.body.starts_with(b"%PDF-1.4") && pdf.body.ends_with(b"%%EOF\n"));
    let origin = one(Site::Static);
    assert_eq!(get(&origin, "/report.pdf?v=1").header("content-type"), Some("application/pdf"));
    let json: serde_json::Value =
        serde_json::from_slice(&get(&origin, "/report.json").body).unwrap();
    assert!(json["title"].is_string());
    assert_eq!(
        get(&origin, "/robots.txt").header("content-type"),
        Some("text/plain; charset=utf-8")
    );
}

#[test]
fn a_slow_site_takes_its_time() {
    let origin = one(Site::slow(Duration::from_millis(300)));
    let start = Instant::now();
    assert_eq!(get(&origin, "/").status, 200);
    assert!(start.elapsed() >= Duration::from_millis(300));
}

#[test]
fn a_dripping_site_sends_its_head_before_its_body_comes_in_pieces() {
    // The head comes, although its body takes hours.
    let origin = one(Site::Drip { every: Duration::from_secs(3600), bytes: 1000 });
    let mut stream = connect(&origin, HOST);
    send(&mut stream, HOST, "/a", "test");
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");

    let origin = one(Site::Drip { every: Duration::from_millis(40), bytes: 1000 });
    let mut stream = connect(&origin, HOST);
    let start = Instant::now();
    send(&mut stream, HOST, "/a", "test");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    let whole = get(&one(Site::Static), "/a").body.len();
    let pieces = u32::try_from(whole / 1000).unwrap();
    assert!(rest.len() > whole && pieces >= 2);
    assert!(start.elapsed() >= Duration::from_millis(40) * (pieces - 1));
}

#[test]
fn the_bomb_is_small_on_the_wire_and_more_than_a_gibibyte_unpacked() {
    let bomb = get(&one(Site::GzipBomb), "/");
    assert_eq!(bomb.header("content-encoding"), Some("gzip"));
    assert!(bomb.body.len() < 2 << 20, "{} bytes", bomb.body.len());
    let mut decoder = flate2::read::GzDecoder::new(bomb.body.as_slice());
    let mut head = [0; 15];
    decoder.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"<!doctype html>");
    // Reading to the end makes the decoder check the checksum and the length.
    let rest = io::copy(&mut decoder, &mut io::sink()).unwrap();
    assert!(rest > 1 << 30, "{rest} bytes");
}

#[test]
fn codings_decode_to_the_page_that_is_sent_plain() {
    let plain = get(&one(Site::Static), "/a").body;
    for (coding, name) in
        [(Coding::Gzip, "gzip"), (Coding::Deflate, "deflate"), (Coding::RawDeflate, "deflate")]
    {
        let page = get(&one(Site::Compressed(coding)), "/a");
        assert_eq!(page.header("content-encoding"), Some(name));
        let wire = page.body.as_slice();
        let mut decoded = Vec::new();
        match coding {
            Coding::Gzip => flate2::read::GzDecoder::new(wire).read_to_end(&mut decoded).unwrap(),
            Coding::Deflate => {
                flate2::read::ZlibDecoder::new(wire).read_to_end(&mut decoded).unwrap()
            }
            _ => flate2::read::DeflateDecoder::new(wire).read_to_end(&mut decoded).unwrap(),
        };
        assert!(wire.len() < plain.len() && decoded == plain, "{coding:?}");
    }
    let zstd = get(&one(Site::Compressed(Coding::Zstd)), "/a");
    assert_eq!(
        (zstd.header("content-encoding"), &zstd.body[..4]),
        (Some("zstd"), &[0x28, 0xb5, 0x2f, 0xfd][..])
    );
    let brotli = get(&one(Site::Compressed(Coding::Brotli)), "/a");
    assert!(brotli.header("content-encoding") == Some("br") && brotli.body.len() < plain.len());
}

fn location(origin: &Origin, path: &str) -> String {
    let page = get(origin, path);
    assert_eq!(page.status, 302);
    page.header("location").unwrap().to_owned()
}

#[test]
fn redirects_out_name_addresses_that_must_not_be_dialled() {
    let origin = one(Site::RedirectOut);
    assert_eq!(location(&origin, "/"), "http://10.255.255.1/");
    assert_eq!(location(&origin, "/metadata"), "http://169.254.169.254/latest/meta-data/");
    assert_eq!(location(&origin, "/mapped"), "http://[::ffff:169.254.169.254]/latest/meta-data/");
}

#[test]
fn a_redirect_loop_never_visits_a_path_twice() {
    let origin = one(Site::RedirectLoop);
    let mut path = "/a?b=c".to_owned();
    let mut seen = HashSet::new();
    for _ in 0..40 {
        path = location(&origin, &path);
        assert!(seen.insert(path.clone()), "{path} came twice");
    }
}

#[test]
fn a_redirect_keeps_its_status_and_its_target() {
    let target = one(Site::Static).url(HOST, "/x");
    let moved = get(&one(Site::Redirect { status: 308, to: target.clone() }), "/");
    assert_eq!((moved.status, moved.header("location")), (308, Some(target.as_str())));
}

#[test]
fn foreign_pages_are_not_utf8_and_decode_as_declared() {
    let page = get(&one(Site::NonUtf8(Charset::Windows1251ByHeader)), "/");
    assert_eq!(page.header("content-type"), Some("text/html; charset=windows-1251"));
    assert!(std::str::from_utf8(&page.body).is_err());
    assert!(visible_chars(&encoding_rs::WINDOWS_1251.decode(&page.body).0) > 200);
    let page = get(&one(Site::NonUtf8(Charset::ShiftJisByMeta)), "/");
    assert_eq!(page.header("content-type"), Some("text/html"));
    assert!(page.body.windows(9).any(|window| window == b"shift_jis"));
    assert!(visible_chars(&encoding_rs::SHIFT_JIS.decode(&page.body).0) > 200);
    let page = get(&one(Site::NonUtf8(Charset::Utf16ByMark)), "/");
    assert!(
        page.body.starts_with(&[0xff, 0xfe]) && page.header("content-type") == Some("text/html")
    );
}

#[test]
fn an_empty_site_responds_with_200_and_no_body() {
    let page = get(&one(Site::Empty), "/");
    assert_eq!((page.status, page.body.len(), page.header("content-length")), (200, 0, Some("0")));
}

#[test]
fn a_flaky_site_fails_every_third_page_and_resource_requests_do_not_count() {
    let origin = one(Site::flaky(3));
    assert_eq!([(); 7].map(|()| get(&origin, "/a").status), [200, 200, 503, 200, 200, 503, 200]);
    for path in ["/favicon.ico", "/assets/x.js", "/api/x", "/cdn-cgi/x"] {
        get(&origin, path);
    }
    assert_eq!([(); 2].map(|()| get(&origin, "/a").status), [200, 503]);
    assert_eq!(origin.hits(HOST), 13);
}

#[test]
fn a_reset_request_is_counted() {
    let origin = one(Site::Reset);
    let mut stream = connect(&origin, HOST);
    send(&mut stream, HOST, "/", "test");
    let error = stream.read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    assert_eq!(origin.hits(HOST), 1);
}

#[test]
fn a_drifting_site_changes_after_its_count_and_any_site_by_set_site() {
    let origin = one(Site::drifting(2, Site::captcha(403)));
    assert_eq!([(); 4].map(|()| get(&origin, "/a").status), [200, 200, 403, 403]);
    assert!(origin.set_site(HOST, Site::GONE));
    assert_eq!(get(&origin, "/a").status, 410);
    assert_eq!(origin.hits(HOST), 5);
    assert!(!origin.set_site("127.0.0.9", Site::GONE));
}

#[test]
fn a_truncated_body_is_shorter_than_announced() {
    let page = get(&one(Site::Truncated), "/");
    let announced: usize = page.header("content-length").unwrap().parse().unwrap();
    assert_eq!((page.status, page.body.len()), (200, announced / 2));
}

#[test]
fn an_endless_body_continues_as_long_as_the_client_reads() {
    let origin = one(Site::EndlessBody);
    let mut stream = connect(&origin, HOST);
    send(&mut stream, HOST, "/", "test");
    let read = io::copy(&mut (&mut stream).take(64 << 20), &mut io::sink()).unwrap();
    assert_eq!(read, 64 << 20);
}

#[test]
fn a_header_may_be_a_megabyte_long() {
    let page = get(&one(Site::HugeHeader { bytes: 1 << 20 }), "/");
    assert_eq!(page.header("x-filler").map(str::len), Some(1 << 20));
    assert_eq!(page.status, 200);
}

#[test]
fn a_waiting_room_has_its_own_page() {
    let page = get(&one(Site::QueueRoom), "/");
    assert!(page.status == 200 && page.text().contains("<title>Waiting Room</title>"));
}

#[test]
fn on_a_mixed_host_the_longest_prefix_decides() {
    let parts = [
        ("/", Site::Static),
        ("/members", Site::LoginWall),
        ("/login", Site::LoginWall),
        ("/members/open", Site::Static),
    ];
    let origin = one(Site::Mixed(parts.map(|(prefix, site)| (prefix.to_owned(), site)).to_vec()));
    assert_eq!(get(&origin, "/notes").status, 200);
    assert_eq!(get(&origin, "/members/open").status, 200);
    assert_eq!(location(&origin, "/members/list?a=1"), "/login?next=%2Fmembers%2Flist%3Fa%3D1");
    let login = get(&origin, "/login?next=%2Fmembers%2Flist").text();
    assert!(login.contains("type=\"password\"") && login.contains("value=\"/members/list\""));
    assert_eq!(get(&one(Site::Mixed(Vec::new())), "/").status, 404);
}

#[test]
fn files_are_served_but_nothing_outside_their_directory() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    std::fs::create_dir_all(root.join("guide")).unwrap();
    std::fs::write(folder.path().join("secret.txt"), "secret").unwrap();
    std::fs::write(root.join("index.html"), "<h1>Front</h1>").unwrap();
    std::fs::write(root.join("guide/index.html"), "<h1>Guide</h1>").unwrap();
    std::fs::write(root.join("guide/a b.css"), "b{}").unwrap();
    let origin = one(Site::Files(root.clone()));

    assert_eq!(get(&origin, "/").text(), "<h1>Front</h1>");
    assert_eq!(get(&origin, "/guide/?q=1").text(), "<h1>Guide</h1>");
    let moved = get(&origin, "/guide");
    assert_eq!((moved.status, moved.header("location")), (301, Some("/guide/")));
    let style = get(&origin, "/guide/a%20b.css");
    assert_eq!(
        (style.text().as_str(), style.header("content-type")),
        ("b{}", Some("text/css; charset=utf-8"))
    );
    for path in [
        "/none",
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/guide/..%2f..%2fsecret.txt",
        "/%zz",
        "/a%00b",
    ] {
        assert_eq!(get(&origin, path).status, 404, "{path}");
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(folder.path().join("secret.txt"), root.join("link.txt"))
            .unwrap();
        assert_eq!(get(&origin, "/link.txt").status, 404);
    }
}

static DETECTOR: LazyLock<Detector> = LazyLock::new(Detector::new);

/// Returns the detector's verdict on the page at `path`, and the outcome of a plain fetcher's
/// attempt.
fn inspect(site: Site, path: &str) -> (Verdict, Result<(), ErrorKind>) {
    let page = get(&one(site), path);
    let headers: Vec<Header> = page
        .head
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(": "))
        .map(|(k, v)| Header::new(k, v))
        .collect();
    let inspected =
        Page { status: page.status, headers: &headers, body: &page.body, ..Page::default() };
    let verdict = DETECTOR.inspect(&inspected, &mut Scratch::default());
    let counts = verdict.outcome(&inspected).counts_as(&FetcherSpec::by_name("direct_access"));
    (verdict, counts.map_err(|error| error.kind().unwrap_or_else(|| panic!("{error:?}"))))
}

fn challenge(challenge: Challenge, status: u16) -> Site {
    Site::Captcha { challenge, status, admits: None, behind: Box::new(Site::Static) }
}

#[test]
fn the_detector_classifies_each_site_as_intended() {
    let cases = [
        (Site::Static, "/notes/1", Ok(())),
        (Site::Pdf, "/notes/1", Ok(())),
        (Site::NonUtf8(Charset::Windows1251ByHeader), "/", Ok(())),
        (Site::NonUtf8(Charset::ShiftJisByMeta), "/", Ok(())),
        (Site::NonUtf8(Charset::Utf16ByMark), "/", Ok(())),
        (Site::ReactShell, "/notes/1", Err(ErrorKind::WrongTool)),
        (Site::Empty, "/", Err(ErrorKind::WrongTool)),
        (challenge(Challenge::Cloudflare, 403), "/", Err(ErrorKind::BlockedCaptcha)),
        (challenge(Challenge::Cloudflare, 200), "/", Err(ErrorKind::BlockedCaptcha)),
        (challenge(Challenge::DataDome, 403), "/", Err(ErrorKind::BlockedCaptcha)),
        (challenge(Challenge::DataDome, 200), "/", Err(ErrorKind::BlockedCaptcha)),
        (challenge(Challenge::Unlisted, 403), "/", Err(ErrorKind::BlockedCaptcha)),
        (challenge(Challenge::Unlisted, 200), "/", Err(ErrorKind::BlockedCaptcha)),
        (Site::NOT_FOUND, "/", Err(ErrorKind::NotFound)),
        (Site::GONE, "/", Err(ErrorKind::NotFound)),
        (Site::SERVER_ERROR, "/", Err(ErrorKind::ServerError)),
        (Site::Status(401), "/", Err(ErrorKind::AuthRequired)),
        (Site::QueueRoom, "/", Err(ErrorKind::Queued)),
    ];
    for (site, path, expected) in cases {
        let name = format!("{site:?}");
        let (verdict, outcome) = inspect(site, path);
        assert_eq!(outcome, expected, "{name}: {verdict:?}");
    }
}

#[test]
fn the_detector_counts_a_bare_403_or_429_as_a_ban() {
    for site in [Site::FORBIDDEN, Site::rate_limited(5)] {
        let name = format!("{site:?}");
        let (verdict, outcome) = inspect(site, "/");
        assert!(
            verdict.is_blocked && outcome.is_err_and(ErrorKind::is_banned),
            "{name}: {verdict:?}"
        );
    }
}

#[test]
fn the_detector_names_vendors_and_frameworks() {
    assert_eq!(
        inspect(challenge(Challenge::Cloudflare, 403), "/").0.vendor.as_deref(),
        Some("cloudflare")
    );
    assert_eq!(
        inspect(challenge(Challenge::Cloudflare, 200), "/").0.vendor.as_deref(),
        Some("cloudflare")
    );
    assert_eq!(
        inspect(challenge(Challenge::DataDome, 200), "/").0.vendor.as_deref(),
        Some("datadome")
    );
    assert_eq!(inspect(challenge(Challenge::Unlisted, 200), "/").0.vendor, None);
    let shell = inspect(Site::ReactShell, "/").0;
    assert!(shell.has_spa && shell.framework.as_deref() == Some("react"), "{shell:?}");
}

/// Connects to the site of `link` over TLS, and returns the stream and the protocol that the server
/// chose.
async fn connect_tls(
    link: &Url,
    authority_pem: &str,
    offered: &[&str],
) -> (tokio_rustls::client::TlsStream<tokio::net::TcpStream>, String) {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority_pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = offered.iter().map(|name| name.as_bytes().to_vec()).collect();
    let (host, port) = (link.host_str().unwrap().to_owned(), link.port().unwrap());
    let stream = tokio::net::TcpStream::connect((host.as_str(), port)).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = connector.connect(ServerName::try_from(host).unwrap(), stream).await.unwrap();
    let chosen =
        String::from_utf8(stream.get_ref().1.alpn_protocol().unwrap_or_default().to_vec()).unwrap();
    (stream, chosen)
}

#[tokio::test]
async fn a_benchmark_over_https_speaks_http_2_and_http_1_1() {
    let plans = [SitePlan { kind: SiteKind::Static, count: 1, pages: None }];
    let options = BenchmarkOptions { is_https: true, ..BenchmarkOptions::default() };
    let sites = BenchmarkSites::start_with(&plans, 2, 1, &options).unwrap();
    let link: Url = sites.links()[0].parse().unwrap();
    let pem = sites.authority_pem().unwrap();

    let (stream, chosen) = connect_tls(&link, pem, &["http/1.1", "h2"]).await;
    assert_eq!(chosen, "h2", "the server prefers HTTP/2");
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let request = http::Request::get(link.as_str()).body(Empty::<Bytes>::new()).unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(
        (response.status(), response.version()),
        (http::StatusCode::OK, http::Version::HTTP_2)
    );
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let title = Origin::title(link.host_str().unwrap(), link.path());
    assert!(String::from_utf8_lossy(&body).contains(&title));

    let (mut stream, chosen) = connect_tls(&link, pem, &["http/1.1"]).await;
    assert_eq!(chosen, "http/1.1");
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        link.path(),
        link.authority()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // The server closes without an end of TLS.
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(&title), "{answer}");
    assert_eq!((sites.ledger().total.requests, sites.ledger().total.sent), (2, 1));
}
