//! Limits on the cost of a server: length, headers, time, memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::fetch::Limits;
use fetchwise::response::header;
use tokio::io::AsyncWriteExt;

use super::harness::*;

#[tokio::test]
async fn an_announced_length_over_the_limit_is_refused_at_once() {
    bounded(async {
        // A fetch that waits for the body never ends.
        let server = Server::raw(|mut stream| async move {
            read_head(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1001\r\n\r\n").await.unwrap();
            read_to_close(&mut stream).await;
        })
        .await;
        let limits = Limits { max_body: 1000, ..limits() };
        let error = get_with(&fetcher(), &server.url("/"), &limits).await.unwrap_err();
        assert_eq!((error.kind, error.status), (ErrorKind::TooLarge, Some(200)));
    })
    .await;
}

#[tokio::test]
async fn a_silent_port_under_https_gets_a_hint() {
    bounded(async {
        let server = Server::silent([127, 0, 0, 1]).await;
        let url = format!("https://{}/", server.addr).parse().unwrap();
        let limits = Limits { deadline: Duration::from_millis(300), ..limits() };
        timeout_with(&url, &limits, |error| {
            error.message.contains("if the port speaks no TLS, try http://")
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn endless_interim_responses_end_the_fetch() {
    bounded(async {
        let early_hints = b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(1000);
        let server = Server::endless(b"", early_hints, Duration::ZERO).await;
        let error = get_with(&fetcher(), &server.url("/"), &limits()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::TooLarge, "{error}");
        assert_eq!(server.connections(), 1);
    })
    .await;
}

#[tokio::test]
async fn an_endless_body_ends_at_the_limit() {
    bounded(async {
        let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        let chunk = [b"1000\r\n", &[b'x'; 4096][..], b"\r\n"].concat();
        // A gzip header with an endless file name, and empty stored blocks: neither ever decodes to
        // a byte.
        let gzip =
            b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n\x1f\x8b\x08\x08\0\0\0\0\0\x03";
        let deflate = b"HTTP/1.1 200 OK\r\ncontent-encoding: deflate\r\n\r\n";
        for (head, chunk) in [
            (&b"HTTP/1.0 200 OK\r\n\r\n"[..], vec![b'x'; 8192]),
            (chunked, chunk),
            (gzip, vec![b'n'; 8192]),
            (deflate, [0, 0, 0, 0xff, 0xff].repeat(2000)),
        ] {
            let server = Server::endless(head, chunk, Duration::ZERO).await;
            let limits = Limits { max_body: 4 << 20, max_in_memory: 1 << 20, ..limits() };
            let error = get_with(&fetcher(), &server.url("/"), &limits).await.unwrap_err();
            assert_eq!(
                (error.kind, error.status),
                (ErrorKind::TooLarge, Some(200)),
                "{}: {error}",
                head.escape_ascii()
            );
        }
    })
    .await;
}

#[tokio::test]
async fn long_bodies_go_to_a_file() {
    bounded(async {
        let page = text(3_000_000);
        let copy = page.clone();
        let server = Server::http(move |_| response(200, copy.clone())).await;
        let dir = tempfile::tempdir().unwrap();
        let fetcher = builder().temp_dir(dir.path()).build().unwrap();
        let limits = Limits { max_in_memory: 100_000, ..limits() };
        let response = get_with(&fetcher, &server.url("/"), &limits).await.unwrap();
        assert_eq!(response.body.head()[..], page[..100_000]);
        assert!(response.body.spill().is_some());
        assert!(body(&response) == page);
        drop(response);

        let too_small = Limits { max_body: 2_999_999, ..limits };
        assert_eq!(
            get_with(&fetcher, &server.url("/"), &too_small).await.unwrap_err().kind,
            ErrorKind::TooLarge
        );
        assert_eq!(dir.path().read_dir().unwrap().count(), 0, "nothing is left behind");
    })
    .await;
}

#[tokio::test]
async fn a_body_without_room_in_its_folder_goes_to_the_temporary_folder() {
    bounded(async {
        let server = Server::http(|_| response(200, "x".repeat(1000))).await;
        let fetcher = builder().temp_dir("/nonexistent/fetchwise").build().unwrap();
        let limits = Limits { max_in_memory: 10, ..limits() };
        let response = get_with(&fetcher, &server.url("/"), &limits).await.unwrap();
        assert_eq!((response.body.len(), response.body.head().len()), (1000, 10));
    })
    .await;
}

#[tokio::test]
async fn headers_over_the_limit_are_too_large() {
    bounded(async {
        let with =
            |header: String| format!("HTTP/1.1 200 OK\r\n{header}content-length: 2\r\n\r\nok");
        for long in [
            with(format!("x: {}\r\n", "y".repeat(1 << 20))),
            with(format!("x: {}\r\n", "y".repeat(262_144))),
            with("set-cookie: a=b\r\n".repeat(1_200)),
            with("set-cookie: a=b\r\n".repeat(5000)),
        ] {
            let server = Server::canned(long).await;
            assert_eq!(error_kind(&server.url("/")).await, ErrorKind::TooLarge);
        }
        let server = Server::canned(with(format!("x: {}\r\n", "y".repeat(260_000)))).await;
        assert_eq!(get(&server.url("/")).await.unwrap().status, 200);
        let server = Server::canned(with("set-cookie: a=b\r\n".repeat(1_000))).await;
        assert_eq!(get(&server.url("/")).await.unwrap().headers.len(), 1_001);

        let lines = b"x: yyyyyyyyyyyyyyyyyyy\r\n".repeat(100);
        let endless = Server::endless(b"HTTP/1.1 200 OK\r\n", lines, Duration::ZERO).await;
        assert_eq!(error_kind(&endless.url("/")).await, ErrorKind::TooLarge);
    })
    .await;
}

/// Starts a server that redirects without end, after a moment each time.
async fn slow_redirects() -> Server {
    let hop = Arc::new(AtomicUsize::new(0));
    Server::raw(move |mut stream| {
        let hop = Arc::clone(&hop);
        async move {
            read_head(&mut stream).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
            let to = hop.fetch_add(1, Ordering::SeqCst);
            let head =
                format!("HTTP/1.1 302 Found\r\nlocation: /{to}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            let _ = stream.write_all(head.as_bytes()).await;
        }
    })
    .await
}

#[tokio::test]
async fn the_deadline_applies_at_every_stage() {
    bounded(async {
        let rest = Duration::from_millis(20);
        let silent = Server::silent([127, 0, 0, 1]).await;
        let slow_head = Server::endless(b"HTTP/1.1 200 OK\r\n", b"x: y\r\n".to_vec(), rest).await;
        let slow_body =
            Server::endless(b"HTTP/1.1 503 Busy\r\nretry-after: 7\r\n\r\n", b"x".to_vec(), rest)
                .await;
        let slow_chain = slow_redirects().await;
        let limits =
            Limits { deadline: Duration::from_millis(300), max_redirects: 1000, ..limits() };
        for (server, status) in
            [(&silent, None), (&slow_head, None), (&slow_body, Some(503)), (&slow_chain, None)]
        {
            let error =
                timeout_with(&server.url("/"), &limits, |error| error.status == status).await;
            if status.is_some() {
                assert_eq!(header(&error.headers, "retry-after"), Some("7"));
            }
        }
    })
    .await;
}
