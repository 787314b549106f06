//! Cookies that redirects set: where they are sent within one fetch, and that they do not leave it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::fetch::Limits;
use http_body_util::Full;
use hyper::body::Incoming;
use url::Url;

use super::harness::*;

type TestResponse = http::Response<Full<Bytes>>;

/// Returns the `Cookie` header of `request`.
fn cookie(request: &http::Request<Incoming>) -> String {
    assert!(request.headers().get_all("cookie").iter().count() <= 1);
    request.headers().get("cookie").map_or("", |value| value.to_str().unwrap()).to_owned()
}

/// Returns a redirect that sets `cookies`.
fn redirect_with(location: &str, cookies: &[&str]) -> TestResponse {
    let mut response = redirect(302, location);
    for cookie in cookies {
        response.headers_mut().append("set-cookie", cookie.parse().unwrap());
    }
    response
}

/// The requests of a server: one line per request, with its path and its cookies.
#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<Vec<String>>>);

impl Ledger {
    fn record(&self, request: &http::Request<Incoming>) {
        self.0.lock().unwrap().push(format!("{} {}", request.uri().path(), cookie(request)));
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Starts a server that records each request and responds by `respond`.
async fn recording(
    respond: impl Fn(http::Request<Incoming>) -> TestResponse + Send + Sync + 'static,
) -> (Server, Ledger) {
    let ledger = Ledger::default();
    let notes = ledger.clone();
    let server = Server::http(move |request| {
        notes.record(&request);
        respond(request)
    })
    .await;
    (server, ledger)
}

/// Responds with the page to clients that send the cookie, and sets it for the others.
fn gate(request: http::Request<Incoming>) -> TestResponse {
    match cookie(&request).contains("consent=yes") {
        true => response(200, "page"),
        false => redirect_with(request.uri().path(), &["consent=yes; Path=/; HttpOnly"]),
    }
}

fn port_of(text: &str, server: &Server) -> Url {
    text.replace("PORT", &server.addr.port().to_string()).parse().unwrap()
}

#[tokio::test]
async fn a_site_that_sets_a_cookie_and_redirects_is_fetched_and_the_next_fetch_has_no_cookie() {
    bounded(async {
        let (server, ledger) = recording(gate).await;
        let fetcher = fetcher();
        for path in ["/a", "/a", "/b"] {
            let response = get_with(&fetcher, &server.url(path), &limits()).await.unwrap();
            assert_eq!((response.status, body(&response)), (200, b"page".to_vec()));
            assert_eq!(response.final_url, server.url(path));
            assert_eq!(ledger.take(), [format!("{path} "), format!("{path} consent=yes")]);
        }
        assert_eq!(server.connections(), 1, "and all over one connection");
        // Concurrent fetches do not share cookies either.
        let urls: Vec<_> = (0..20).map(|n| server.url(&format!("/{n}"))).collect();
        let limits = limits();
        for response in
            futures_util::future::join_all(urls.iter().map(|url| get_with(&fetcher, url, &limits)))
                .await
        {
            assert_eq!(response.unwrap().status, 200);
        }
        let seen = ledger.take();
        assert_eq!((seen.len(), seen.iter().filter(|line| line.ends_with(' ')).count()), (40, 20));
    })
    .await;
}

#[tokio::test]
async fn a_redirect_with_one_redirect_allowed_may_be_the_one_that_sets_the_cookie() {
    bounded(async {
        let (server, _) = recording(gate).await;
        for (max_redirects, kind) in [(1, None), (0, Some(ErrorKind::RedirectLoop))] {
            let limits = Limits { max_redirects, ..limits() };
            let ended = get_with(&fetcher(), &server.url("/"), &limits).await;
            assert_eq!(ended.err().map(|error| error.kind), kind);
        }
    })
    .await;
}

#[tokio::test]
async fn the_number_of_redirects_ends_a_loop_with_cookies() {
    bounded(async {
        let limits = Limits { max_redirects: 3, ..limits() };
        let (stubborn, ledger) = recording(|_| redirect_with("/", &["seen=1"])).await;
        let error = get_with(&fetcher(), &stubborn.url("/"), &limits).await.unwrap_err();
        assert_eq!((error.kind, error.status), (ErrorKind::RedirectLoop, Some(302)));
        assert_eq!(ledger.take(), ["/ ", "/ seen=1", "/ seen=1", "/ seen=1"]);

        let (indifferent, ledger) = recording(|request| match request.uri().path() {
            "/a" => redirect_with("/b", &["a=1; Max-Age=60"]),
            _ => redirect_with("/a", &["b=2"]),
        })
        .await;
        let error = get_with(&fetcher(), &indifferent.url("/a"), &limits).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::RedirectLoop);
        assert_eq!(ledger.take(), ["/a ", "/b a=1", "/a a=1; b=2", "/b a=1; b=2"]);

        // The cookie for a path may change on the way through another one.
        let (detour, _) =
            recording(|request| match (request.uri().path(), cookie(&request).as_str()) {
                ("/page", "seen=1") => response(200, "page"),
                ("/page", _) => redirect_with("/check", &["seen=1; Path=/page"]),
                _ => redirect(302, "/page"),
            })
            .await;
        assert_eq!(body(&get(&detour.url("/check")).await.unwrap()), b"page");
    })
    .await;
}

#[tokio::test]
async fn a_cookie_that_changes_each_time_ends_with_the_last_redirect_allowed() {
    bounded(async {
        let n = AtomicUsize::new(0);
        let (server, ledger) = recording(move |_| {
            let fresh = format!("id={}", n.fetch_add(1, Ordering::SeqCst));
            redirect_with("/", &[&fresh])
        })
        .await;
        let limits = Limits { max_redirects: 4, ..limits() };
        let error = get_with(&fetcher(), &server.url("/"), &limits).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::RedirectLoop);
        assert!(error.message.contains("more than 4 redirects"), "{error}");
        assert_eq!(ledger.take(), ["/ ", "/ id=0", "/ id=1", "/ id=2", "/ id=3"]);
    })
    .await;
}

#[tokio::test]
async fn a_cookie_stays_with_its_host_unless_it_names_a_domain() {
    bounded(async {
        let (server, ledger) = recording(|request| match request.uri().query() {
            Some(next) => {
                let cookies = [
                    "own=1",
                    "site=2; Domain=shop.example",
                    "all=3; Domain=example",
                    "foreign=4; Domain=other.test",
                ];
                redirect_with(next, &cookies)
            }
            None => response(200, ""),
        })
        .await;
        let hosts = [
            "www.shop.example",
            "cdn.shop.example",
            "shop.example",
            "myshop.example",
            "other.test",
        ];
        let here: &[&[&str]] = &[&["127.0.0.1"]];
        let table = hosts.map(|host| (host, here));
        let fetcher = builder().resolver(Names::of(&table)).build().unwrap();
        for (to, expected) in [
            ("www.shop.example", "own=1; site=2"),
            ("cdn.shop.example", "site=2"),
            ("shop.example", "site=2"),
            ("myshop.example", ""),
            ("other.test", ""),
            ("127.0.0.1", ""),
        ] {
            let start =
                port_of(&format!("http://www.shop.example:PORT/a?http://{to}:PORT/b"), &server);
            assert_eq!(get_with(&fetcher, &start, &limits()).await.unwrap().status, 200);
            assert_eq!(ledger.take(), ["/a ".to_owned(), format!("/b {expected}")], "to {to}");
        }
    })
    .await;
}

#[tokio::test]
async fn paths_and_expiry_are_respected() {
    bounded(async {
        let (server, ledger) = recording(|request| match request.uri().path() {
            "/shop/in" => redirect_with(
                "/shop/next",
                &[
                    "here=1",
                    "root=2; Path=/",
                    "away=3; Path=/other",
                    "old=4; Expires=Wed, 21 Oct 2015 07:28:00 GMT",
                ],
            ),
            "/shop/next" => redirect_with("/other/x", &["root=; Path=/; Max-Age=0"]),
            "/other/x" => redirect_with(
                "/shop/page",
                &["here=; Path=/shop; Expires=Thu, 01 Jan 1970 00:00:00 GMT"],
            ),
            _ => response(200, ""),
        })
        .await;
        get(&server.url("/shop/in")).await.unwrap();
        assert_eq!(
            ledger.take(),
            ["/shop/in ", "/shop/next here=1; root=2", "/other/x away=3", "/shop/page "]
        );
    })
    .await;
}

#[tokio::test]
async fn configured_cookies_are_sent_in_addition_and_stay_with_their_origin() {
    bounded(async {
        let (other, at_other) = recording(|_| response(200, "")).await;
        let away = other.url("/away").to_string();
        let (server, ledger) = recording(move |request| match request.uri().path() {
            "/start" => redirect_with("/next", &["set=1", "renewed=2"]),
            "/next" => redirect(302, &away),
            _ => response(200, ""),
        })
        .await;
        let fetcher = builder().header("Cookie", "mine=0; renewed=old").build().unwrap();
        get_with(&fetcher, &server.url("/start"), &limits()).await.unwrap();
        assert_eq!(ledger.take(), ["/start mine=0; renewed=old", "/next mine=0; set=1; renewed=2"]);
        // Another port is another origin, but the same host for cookies that were set.
        assert_eq!(at_other.take(), ["/away set=1; renewed=2"]);
        get_with(&fetcher, &server.url("/plain"), &limits()).await.unwrap();
        assert_eq!(ledger.take(), ["/plain mine=0; renewed=old"]);
    })
    .await;
}

#[tokio::test]
async fn a_flood_of_cookies_is_not_sent_back() {
    bounded(async {
        let (server, ledger) = recording(|request| {
            let step: usize = request.uri().path()[1..].parse().unwrap();
            let cookies: Vec<_> =
                (0..200).map(|n| format!("c{step}-{n}={}", "x".repeat(200))).collect();
            match step {
                9 => response(200, ""),
                _ => redirect_with(
                    &format!("/{}", step + 1),
                    &cookies.iter().map(String::as_str).collect::<Vec<_>>(),
                ),
            }
        })
        .await;
        get(&server.url("/0")).await.unwrap();
        let seen = ledger.take();
        assert_eq!(seen.len(), 10);
        assert!(seen.iter().skip(1).all(|line| line.contains("c0-0=x") && line.len() < 17 << 10));
    })
    .await;
}

#[tokio::test]
async fn a_redirect_that_sets_a_cookie_is_checked_like_any_other() {
    bounded(async {
        let forbidden = Server::silent([127, 0, 0, 2]).await;
        let out = forbidden.url("/").to_string();
        let (server, _) = recording(move |_| redirect_with(&out, &["a=b"])).await;
        assert_eq!(error_kind(&server.url("/")).await, ErrorKind::RefusedAddress);
        assert_eq!(forbidden.connections(), 0);
    })
    .await;
}
