//! Ordinary pages, and connections that are kept for the next request.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::fetch::dial::{LookupFuture, Resolve};
use fetchwise::fetch::http::BuildError;
use fetchwise::fetch::{Fetcher, Request};
use fetchwise::response::header;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use url::Position;

use super::harness::*;

#[tokio::test]
async fn a_page_has_status_headers_body_and_duration() {
    bounded(async {
        let server = Server::http(|request| {
            let agent = request.headers()["user-agent"].to_str().unwrap().to_owned();
            assert_eq!(request.headers()["accept-encoding"], "gzip, deflate, br, zstd");
            assert!(
                request.headers().contains_key("accept")
                    && request.headers().contains_key("accept-language")
            );
            let mut response = response(418, format!("{} {agent}", request.uri()));
            response.headers_mut().append("x-two", "1".parse().unwrap());
            response.headers_mut().append("x-two", "2".parse().unwrap());
            response
        })
        .await;
        let fetcher = fetcher();
        assert_eq!((fetcher.name(), fetcher.renders()), ("direct_access", false));
        let url = server.url("/a%20b?q=1|2#frag");
        let response = get_with(&fetcher, &url, &limits()).await.unwrap();
        assert_eq!(response.status, 418);
        assert!(body(&response).starts_with(b"/a%20b?q=1|2 fetchwise/"));
        let two: Vec<_> = response
            .headers
            .iter()
            .filter(|h| h.name == "x-two")
            .map(|h| h.value.as_str())
            .collect();
        assert_eq!(two, ["1", "2"]);
        assert_eq!(response.final_url, url);
        assert!(!response.truncated && response.duration > Duration::ZERO);
    })
    .await;
}

#[tokio::test]
async fn configured_headers_replace_the_default_ones() {
    bounded(async {
        let server = Server::http(|request| {
            assert_eq!(request.headers().get_all("user-agent").iter().count(), 1);
            let text = |name: &str| request.headers()[name].to_str().unwrap().to_owned();
            response(200, text("user-agent") + &text("accept") + &text("x-mine"))
        })
        .await;
        let mine = builder()
            .name("mine")
            .user_agent("ua")
            .header("Accept", "/a")
            .header("X-Mine", "/m")
            .build()
            .unwrap();
        assert_eq!(mine.name(), "mine");
        assert_eq!(body(&get_with(&mine, &server.url("/"), &limits()).await.unwrap()), b"ua/a/m");

        assert!(matches!(
            builder().header("host", "x").build(),
            Err(BuildError::TransportHeader { .. })
        ));
        assert!(matches!(
            builder().header("bad name", "x").build(),
            Err(BuildError::Header { .. })
        ));
        assert!(matches!(
            builder().header("x", "a\r\nb: c").build(),
            Err(BuildError::Header { .. })
        ));
        assert!(matches!(
            builder().root_certificate(*b"junk").build(),
            Err(BuildError::Certificate(_))
        ));
    })
    .await;
}

#[tokio::test]
async fn header_names_are_written_as_browsers_write_them() {
    bounded(async {
        let server = Server::raw(|mut stream| async move {
            let mut head = vec![0; 4096];
            let len = stream.read(&mut head).await.unwrap();
            stream.write_all(&[b"HTTP/1.0 200 OK\r\n\r\n", &head[..len]].concat()).await.unwrap();
        })
        .await;
        let head = String::from_utf8(body(&get(&server.url("/")).await.unwrap())).unwrap();
        for name in [
            "User-Agent: fetchwise/",
            "Accept: ",
            "Accept-Language: ",
            "Accept-Encoding: ",
            "Host: 127.0.0.1:",
        ] {
            assert!(head.contains(&format!("\r\n{name}")), "{head}");
        }
    })
    .await;
}

#[tokio::test]
async fn connections_are_reused() {
    bounded(async {
        let server = Server::http(|request| match request.uri().path() {
            "/old" => redirect(302, "/new"),
            _ => response(200, "x".repeat(100_000)),
        })
        .await;
        let fetcher = fetcher();
        for _ in 0..5 {
            get_with(&fetcher, &server.url("/old"), &limits()).await.unwrap();
        }
        assert_eq!(server.connections(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_connection_that_was_closed_while_idle_costs_no_error() {
    bounded(async {
        // Each connection responds once, then reads the next request and hangs up, like a server's
        // idle timeout that crosses the request on the wire.
        let server = Server::raw(|mut stream| async move {
            read_head(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
            read_head(&mut stream).await;
        })
        .await;
        let fetcher = fetcher();
        let mut unanswered = 0;
        for _ in 0..3 {
            let response = get_with(&fetcher, &server.url("/"), &limits()).await.unwrap();
            assert_eq!(response.status, 200);
            unanswered += response.unanswered.len();
        }
        // The server has read five requests: three that it answered, and two that it did not.
        assert_eq!((server.connections(), unanswered), (3, 2));
    })
    .await;
}

#[tokio::test]
async fn a_new_connection_that_breaks_is_not_retried() {
    bounded(async {
        let server = Server::raw(|mut stream| async move { read_head(&mut stream).await }).await;
        assert_eq!(error_kind(&server.url("/")).await, ErrorKind::NetworkError);
        assert_eq!(server.connections(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_crawl_of_many_hosts_does_not_keep_a_connection_to_each() {
    struct Everywhere;
    impl Resolve for Everywhere {
        fn lookup<'a>(&'a self, _: &'a str) -> LookupFuture<'a> {
            Box::pin(async { Ok(vec![Ipv4Addr::LOCALHOST.into()]) })
        }
    }
    bounded(async {
        let open = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&open);
        let server = Server::raw(move |mut stream| {
            let count = Arc::clone(&count);
            async move {
                count.fetch_add(1, Ordering::SeqCst);
                read_head(&mut stream).await;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
                read_to_close(&mut stream).await;
                count.fetch_sub(1, Ordering::SeqCst);
            }
        })
        .await;
        let fetcher = builder().resolver(Arc::new(Everywhere)).build().unwrap();
        for host in 0..300 {
            let url = format!("http://h{host}.example:{}/", server.addr.port()).parse().unwrap();
            assert_eq!(get_with(&fetcher, &url, &limits()).await.unwrap().status, 200);
        }
        assert_eq!(server.connections(), 300);
        while open.load(Ordering::SeqCst) > 260 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(open.load(Ordering::SeqCst) > 200, "connections within the limit are kept");
    })
    .await;
}

#[tokio::test]
async fn concurrent_requests_each_get_their_own_response() {
    bounded(async {
        let server = Server::http(|request| response(200, request.uri().path().to_owned())).await;
        let fetcher = fetcher();
        let urls: Vec<_> = (0..100).map(|n| server.url(&format!("/{n}"))).collect();
        let limits = limits();
        let all =
            futures_util::future::join_all(urls.iter().map(|url| get_with(&fetcher, url, &limits)))
                .await;
        for (url, response) in urls.iter().zip(all) {
            assert_eq!(body(&response.unwrap()), url.path().as_bytes());
        }
    })
    .await;
}

#[tokio::test]
async fn every_framing_of_http_1_is_understood() {
    bounded(async {
        for (wire, expected) in [
            (&b"HTTP/1.0 200 OK\r\n\r\nuntil close"[..], &b"until close"[..]),
            (b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nuntil close", b"until close"),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabcdef", b"abc"),
            (
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nt: r\r\n\r\n",
                b"abcde",
            ),
            (b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", b"ok"),
            (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200\r\ncontent-length: 2\r\n\r\nok", b"ok"),
            (b"HTTP/1.1 200 OK\ncontent-length: 2\n\nok", b"ok"),
            (b"HTTP/1.1 200 OK\r\nbad header line\r\ncontent-length: 2\r\n\r\nok", b"ok"),
            (b"HTTP/1.1 200 OK\r\ncontent-length : 2\r\n\r\nok", b"ok"),
            (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
            (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 500\r\n\r\n", b""),
            (b"HTTP/1.1 999 Odd\r\ncontent-length: 0\r\n\r\n", b""),
        ] {
            let server = Server::canned(wire).await;
            let response = get(&server.url("/")).await.unwrap_or_else(|e| panic!("{}: {e}", wire.escape_ascii()));
            assert_eq!(body(&response), expected, "{}", wire.escape_ascii());
            assert!(!response.truncated, "{}", wire.escape_ascii());
        }
    })
    .await;
}

#[tokio::test]
async fn header_values_that_are_not_utf_8_have_replacement_characters() {
    bounded(async {
        let wire = b"HTTP/1.1 200 OK\r\nx-odd: gr\xfcn\r\nX-Good: gr\xc3\xbcn\r\ncontent-length: 0\r\n\r\n";
        let server = Server::canned(wire).await;
        let response = get(&server.url("/")).await.unwrap();
        assert_eq!(header(&response.headers, "x-odd"), Some("gr\u{fffd}n"));
        assert_eq!(header(&response.headers, "x-good"), Some("gr\u{fc}n"));
    })
    .await;
}

#[tokio::test]
async fn every_character_of_a_url_can_be_requested() {
    bounded(async {
        let server = Server::http(|request| response(200, request.uri().to_string())).await;
        let fetcher = fetcher();
        let ascii = (0..=0x7f_u8).map(char::from).filter(|c| !"#/?\\".contains(*c));
        for c in ascii.chain(['\u{e9}', '\u{20ac}', '\u{1f600}']) {
            let url = server.url(&format!("/p{c}p?q{c}q"));
            let response = get_with(&fetcher, &url, &limits()).await;
            let response = response.unwrap_or_else(|error| panic!("{c:?} {url}: {error}"));
            assert_eq!(String::from_utf8(body(&response)).unwrap(), url[Position::BeforePath..]);
        }
    })
    .await;
}

#[tokio::test]
async fn dropping_the_future_closes_the_connection() {
    bounded(async {
        let (closed, mut was_closed) = tokio::sync::mpsc::channel(1);
        let server = Server::raw(move |mut stream| {
            let closed = closed.clone();
            async move {
                read_head(&mut stream).await;
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc")
                    .await
                    .unwrap();
                read_to_close(&mut stream).await;
                closed.send(()).await.unwrap();
            }
        })
        .await;
        let fetcher = fetcher();
        let (url, limits) = (server.url("/"), limits());
        let fetch = fetcher.fetch(Request::new(&url, &limits));
        assert!(tokio::time::timeout(Duration::from_millis(200), fetch).await.is_err());
        was_closed.recv().await.unwrap();
    })
    .await;
}
