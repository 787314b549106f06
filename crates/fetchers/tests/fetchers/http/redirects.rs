//! Redirects: their targets, their end, and the headers that are kept.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::fetch::Limits;
use hyper::body::Incoming;
use tokio::io::AsyncWriteExt;

use super::harness::*;

#[tokio::test]
async fn redirects_are_followed_to_the_page() {
    bounded(async {
        let server = Server::http(|request| {
            let host = request.headers()["host"].to_str().unwrap();
            match request.uri().path() {
                "/1" => redirect(301, "2"),
                "/2" => redirect(302, "/3?x=y"),
                "/3" => redirect(303, &format!("//{host}/4")),
                "/4" => redirect(307, "./5#there"),
                "/5" => redirect(308, &format!("http://user:secret@{host}/6")),
                "/6" => {
                    assert!(!request.headers().contains_key("authorization"));
                    response(200, "page")
                }
                _ => response(404, ""),
            }
        })
        .await;
        let response = get(&server.url("/1#here")).await.unwrap();
        assert_eq!((response.status, body(&response)), (200, b"page".to_vec()));
        assert_eq!(response.final_url, server.url("/6#there"));
        for status in [300, 304, 305] {
            let other = Server::http(move |_| redirect(status, "/x")).await;
            assert_eq!(
                get(&other.url("/")).await.unwrap().status,
                status,
                "is not a redirect to follow"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn redirects_with_an_invalid_target_and_loops_are_a_redirect_loop() {
    bounded(async {
        let server = Server::http(|request| match request.uri().path() {
            "/self" => redirect(302, "/self"),
            "/ping" => redirect(302, "/pong"),
            "/pong" => redirect(302, "/ping"),
            "/file" => redirect(302, "file:///etc/passwd"),
            "/script" => redirect(302, "javascript:alert(1)"),
            "/bad" => redirect(302, "http://[::1/"),
            path => redirect(302, &format!("{path}x")),
        })
        .await;
        for path in ["/self", "/ping", "/file", "/script", "/bad", "/longer"] {
            let error = get(&server.url(path)).await.unwrap_err();
            assert_eq!((error.kind, error.status), (ErrorKind::RedirectLoop, Some(302)), "{path}");
        }
        for (max_redirects, found) in [(0, false), (1, true)] {
            let once =
                Server::http(
                    |r| if r.uri() == "/" { redirect(301, "/x") } else { response(200, "") },
                )
                .await;
            let limits = Limits { max_redirects, ..limits() };
            assert_eq!(get_with(&fetcher(), &once.url("/"), &limits).await.is_ok(), found);
        }
    })
    .await;
}

/// The server knows the client by its address or its session, so that no cookie tells the second
/// request from the first.
#[tokio::test]
async fn a_redirect_to_itself_or_back_is_followed() {
    bounded(async {
        for way in ["/page?b=2&a=1", "/other"] {
            let asked = AtomicUsize::new(0);
            let server = Server::http(move |request| match request.uri().path() {
                "/other" => redirect(303, "/page?b=2&a=1"),
                _ if asked.fetch_add(1, Ordering::SeqCst) == 0 => redirect(302, way),
                _ => response(200, "page"),
            })
            .await;
            let response = get(&server.url("/page?b=2&a=1")).await.unwrap();
            assert_eq!((response.status, &body(&response)[..]), (200, &b"page"[..]), "{way}");
            assert_eq!(response.chain.len(), if way == "/other" { 2 } else { 1 }, "{way}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_redirect_without_a_location_is_the_final_response() {
    bounded(async {
        for status in [301, 302, 303, 307, 308] {
            let server = Server::http(move |request| match request.uri().path() {
                "/empty" => redirect(status, ""),
                "/blank" => redirect(status, " "),
                "/first" => redirect(301, "/none"),
                _ => response(status, "page"),
            })
            .await;
            for path in ["/none", "/empty", "/blank", "/first"] {
                let response = get(&server.url(path)).await.unwrap();
                assert_eq!(response.status, status, "{path}");
                assert_eq!(
                    response.final_url.path(),
                    if path == "/first" { "/none" } else { path }
                );
            }
            assert_eq!(body(&get(&server.url("/none")).await.unwrap()), b"page");
        }
    })
    .await;
}

/// RFC 9110, sections 15.5.9 and 15.5.20.
#[tokio::test]
async fn a_request_after_a_408_or_421_has_a_connection_of_its_own() {
    bounded(async {
        for (status, connections) in [(408, 2), (421, 2), (425, 1), (404, 1)] {
            let server = Server::http(move |_| response(status, "not here")).await;
            let fetcher = fetcher();
            for _ in 0..2 {
                assert_eq!(
                    get_with(&fetcher, &server.url("/"), &limits()).await.unwrap().status,
                    status
                );
            }
            assert_eq!(server.connections(), connections, "{status}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_redirects_late_body_does_not_cost_the_connection() {
    bounded(async {
        let server = Server::raw(|mut stream| async move {
            read_head(&mut stream).await;
            let head = b"HTTP/1.1 302 Found\r\nlocation: /page\r\ncontent-length: 5\r\n\r\n";
            stream.write_all(head).await.unwrap();
            // The client reads the head and begins to wait for the body.
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            stream.write_all(b"moved").await.unwrap();
            read_head(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
        })
        .await;
        assert_eq!(body(&get(&server.url("/")).await.unwrap()), b"ok");
        assert_eq!(server.connections(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_redirects_endless_body_is_not_read() {
    bounded(async {
        let target = Server::http(|_| response(200, "page")).await;
        let head = format!("HTTP/1.1 302 Found\r\nlocation: {}\r\n\r\n", target.url("/"));
        let server = Server::endless(head.as_bytes(), vec![b'x'; 1000], Duration::ZERO).await;
        assert_eq!(get(&server.url("/")).await.unwrap().status, 200);
        // A redirect that announces a body and never sends it does not hold the fetch either.
        let head = format!(
            "HTTP/1.1 302 Found\r\nlocation: {}\r\ncontent-length: 9\r\n\r\n",
            target.url("/")
        );
        let stuck = Server::raw(move |mut stream| {
            let head = head.clone();
            async move {
                read_head(&mut stream).await;
                stream.write_all(head.as_bytes()).await.unwrap();
                read_to_close(&mut stream).await;
            }
        })
        .await;
        let response = get(&stuck.url("/")).await.unwrap();
        assert_eq!(response.status, 200);
    })
    .await;
}

#[tokio::test]
async fn secrets_stay_with_their_origin() {
    bounded(async {
        let show = |request: &http::Request<Incoming>| {
            let has = |name| request.headers().contains_key(name);
            format!("{} {} {}", has("authorization"), has("cookie"), has("x-other"))
        };
        let other = Server::http(move |request| response(200, show(&request))).await;
        let elsewhere = other.url("/").to_string();
        let server = Server::http(move |request| match request.uri().path() {
            "/here" => redirect(302, "/show"),
            "/away" => redirect(302, &elsewhere),
            _ => response(200, show(&request)),
        })
        .await;
        let secrets = builder()
            .header("Authorization", "x")
            .header("Cookie", "x")
            .header("X-Other", "x")
            .build()
            .unwrap();
        let here = get_with(&secrets, &server.url("/here"), &limits()).await.unwrap();
        assert_eq!(body(&here), b"true true true");
        let away = get_with(&secrets, &server.url("/away"), &limits()).await.unwrap();
        assert_eq!(body(&away), b"false false true");
    })
    .await;
}
