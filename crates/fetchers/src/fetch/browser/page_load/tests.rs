//! Tests of the state machine with recorded events of a tab.

#![allow(clippy::unwrap_used)]
use super::*;
use serde_json::{Value, json};

/// A page load, and a clock in milliseconds.
struct TestLoad {
    load: PageLoad,
    start: Instant,
}

impl TestLoad {
    fn new() -> Self {
        let start = Instant::now();
        let timeouts = LoadTimeouts {
            quiet: Duration::from_millis(500),
            after_load: Duration::from_secs(10),
            read_at_latest: start + Duration::from_secs(20),
        };
        let limits = Limits { max_body: 1000, max_redirects: 2, ..Limits::default() };
        Self {
            load: PageLoad::new("top".to_owned(), "mark".to_owned(), limits, timeouts, start),
            start,
        }
    }

    fn at(&self, ms: u64) -> Instant {
        self.start + Duration::from_millis(ms)
    }

    fn on(&mut self, ms: u64, method: &str, params: Value) -> Action {
        let event = Event { method: method.to_owned(), params };
        self.load.on(&event, self.at(ms))
    }

    fn request(&mut self, ms: u64, id: &str, url: &str, kind: &str) {
        let params = json!({"requestId": id, "loaderId": id, "frameId": "top", "type": kind, "request": {"url": url}});
        self.on(ms, "Network.requestWillBeSent", params);
    }

    fn response(&mut self, ms: u64, id: &str, url: &str, status: u16, headers: Value) -> Action {
        let params = json!({"requestId": format!("paused-{id}"), "networkId": id, "frameId": "top",
            "resourceType": "Document", "request": {"url": url}, "responseStatusCode": status, "responseHeaders": headers});
        self.on(ms, "Fetch.requestPaused", params)
    }

    /// Adds the events of a page that is loaded at `ms`.
    fn page(&mut self, ms: u64, id: &str) {
        self.request(ms, id, "http://a/", "Document");
        let headers = json!([{"name": "Content-Type", "value": "text/html"}]);
        assert_eq!(
            self.response(ms, id, "http://a/", 200, headers),
            Action::Continue(format!("paused-{id}"))
        );
        self.on(
            ms,
            "Page.frameNavigated",
            json!({"frame": {"id": "top", "loaderId": id, "url": "http://a/"}}),
        );
        self.on(ms, "Network.loadingFinished", json!({"requestId": id}));
        self.on(ms, "Page.loadEventFired", json!({}));
    }

    fn failure(&self, ms: u64) -> ErrorKind {
        match self.load.state(self.at(ms)) {
            LoadState::Failed(failure) => failure.kind,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_page_is_ready_when_its_network_was_quiet_for_long_enough() {
    let mut test = TestLoad::new();
    test.page(100, "d");
    assert_eq!(test.load.state(test.at(599)), LoadState::Wait(test.at(600)));
    test.request(400, "x", "http://a/x", "Fetch");
    assert_eq!(test.load.state(test.at(2000)), LoadState::Wait(test.at(10_100)), "x is in flight");
    test.on(
        3000,
        "Network.loadingFailed",
        json!({"requestId": "x", "errorText": "net::ERR_ABORTED"}),
    );
    assert_eq!(test.load.state(test.at(3499)), LoadState::Wait(test.at(3500)));
    assert_eq!(test.load.state(test.at(3500)), LoadState::Ready);
}

#[test]
fn a_page_that_is_never_quiet_is_ready_at_its_timeout() {
    let mut test = TestLoad::new();
    test.page(100, "d");
    test.request(400, "x", "http://a/x", "Fetch");
    assert_eq!(test.load.state(test.at(10_100)), LoadState::Ready);
}

#[test]
fn requests_that_never_end_by_design_are_not_waited_for() {
    let mut test = TestLoad::new();
    test.page(100, "d");
    test.request(400, "x", "http://a/x", "EventSource");
    // The end of a request may be reported before its beginning.
    test.on(400, "Network.loadingFinished", json!({"requestId": "y"}));
    test.request(410, "y", "http://a/y", "Image");
    assert_eq!(test.load.state(test.at(600)), LoadState::Ready);
}

#[test]
fn frames_and_workers_whose_end_is_reported_elsewhere_are_not_waited_for() {
    let mut test = TestLoad::new();
    test.request(0, "d", "http://a/", "Document");
    let params = json!({"requestId": "i", "loaderId": "i", "frameId": "inner", "type": "Document",
        "request": {"url": "http://b/"}});
    test.on(50, "Network.requestWillBeSent", params);
    test.request(60, "w", "blob:http://a/1234", "Script");
    test.page(100, "d");
    assert_eq!(test.load.state(test.at(600)), LoadState::Ready);
}

#[test]
fn a_script_is_stopped_only_at_the_timeout_without_a_document() {
    let mut test = TestLoad::new();
    test.request(0, "d", "http://a/", "Document");
    assert_eq!(test.load.state(test.at(19_999)), LoadState::Wait(test.at(20_000)));
    assert!(matches!(test.load.state(test.at(20_000)), LoadState::Stuck(_)));
}

#[test]
fn the_document_is_the_newest_one() {
    let mut test = TestLoad::new();
    test.page(0, "d");
    test.page(100, "e");
    assert_eq!(test.load.state(test.at(600)), LoadState::Ready);
    assert_eq!(test.load.document().unwrap().id, "e");
    // A cancelled download leaves the page as it was.
    test.request(700, "f", "http://a/f", "Document");
    test.on(
        800,
        "Network.loadingFailed",
        json!({"requestId": "f", "errorText": "net::ERR_ABORTED"}),
    );
    assert_eq!(test.load.state(test.at(1300)), LoadState::Ready);
    assert_eq!(test.load.document().unwrap().id, "e");
}

#[test]
fn a_download_leaves_the_page_that_started_it() {
    let zip = || json!([{"name": "Content-Type", "value": "application/zip"}]);
    let mut test = TestLoad::new();
    test.page(0, "d");
    test.request(100, "f", "http://a/f.zip", "Document");
    assert_eq!(
        test.response(110, "f", "http://a/f.zip", 200, zip()),
        Action::Cancel("paused-f".to_owned())
    );
    test.on(
        120,
        "Network.loadingFailed",
        json!({"requestId": "f", "errorText": "net::ERR_ABORTED"}),
    );
    assert_eq!(test.load.state(test.at(620)), LoadState::Ready);
    assert_eq!(test.load.document().unwrap().id, "d");
    // So does a response without content.
    test.request(700, "g", "http://a/g", "Document");
    assert_eq!(
        test.response(710, "g", "http://a/g", 204, json!([])),
        Action::Cancel("paused-g".to_owned())
    );
    // The commit of the page may be reported after the request that it makes at once.
    let mut early = TestLoad::new();
    early.request(0, "d", "http://a/", "Document");
    let html = json!([{"name": "Content-Type", "value": "text/html"}]);
    early.response(10, "d", "http://a/", 200, html);
    early.request(20, "f", "http://a/f.zip", "Document");
    early.on(
        30,
        "Page.frameNavigated",
        json!({"frame": {"id": "top", "loaderId": "d", "url": "http://a/"}}),
    );
    assert_eq!(
        early.response(40, "f", "http://a/f.zip", 200, zip()),
        Action::Cancel("paused-f".to_owned())
    );
    early.on(50, "Network.loadingFinished", json!({"requestId": "d"}));
    early.on(
        60,
        "Network.loadingFailed",
        json!({"requestId": "f", "errorText": "net::ERR_ABORTED"}),
    );
    early.on(70, "Page.loadEventFired", json!({}));
    assert_eq!(
        (early.load.state(early.at(600)), early.load.document().unwrap().id),
        (LoadState::Ready, "d".to_owned())
    );
    // An address that is a file itself is read.
    let mut file = TestLoad::new();
    file.request(0, "f", "http://a/f.zip", "Document");
    file.response(10, "f", "http://a/f.zip", 200, zip());
    assert_eq!(file.load.state(file.at(20)), LoadState::Raw("paused-f".to_owned()));
}

#[test]
fn a_cancelled_navigation_is_a_failure_unless_another_one_follows() {
    let mut test = TestLoad::new();
    test.request(0, "d", "http://a/", "Document");
    test.on(
        10,
        "Network.loadingFailed",
        json!({"requestId": "d", "errorText": "net::ERR_ABORTED"}),
    );
    assert!(matches!(test.load.state(test.at(20)), LoadState::Wait(_)));
    assert_eq!(test.failure(1000), ErrorKind::NetworkError);
    test.page(400, "e");
    assert_eq!(test.load.state(test.at(1000)), LoadState::Ready);
}

#[test]
fn redirects_of_every_kind_count_as_hops() {
    let mut test = TestLoad::new();
    test.request(0, "d", "http://a/1", "Document");
    test.request(1, "d", "http://a/2", "Document");
    test.request(2, "e", "http://a/3", "Document");
    assert!(matches!(test.load.state(test.at(3)), LoadState::Wait(_)), "two are allowed");
    test.request(3, "f", "http://a/4", "Document");
    assert_eq!(test.failure(4), ErrorKind::RedirectLoop);
}

#[test]
fn a_documents_cookies_do_not_include_its_redirects() {
    let mut test = TestLoad::new();
    test.request(0, "d", "http://a/1", "Document");
    let extra = |status, cookie| json!({"requestId": "d", "statusCode": status, "headers": {"Set-Cookie": cookie}});
    test.on(1, "Network.responseReceivedExtraInfo", extra(302, "r=1"));
    test.response(2, "d", "http://a/2", 200, json!([]));
    assert_eq!(test.load.document().unwrap().headers, []);
    test.on(3, "Network.responseReceivedExtraInfo", extra(200, "a=1\nb=2"));
    let cookies = [Header::new("Set-Cookie", "a=1"), Header::new("Set-Cookie", "b=2")];
    assert_eq!(test.load.document().unwrap().headers, cookies);
}

#[test]
fn only_the_main_frames_html_is_rendered() {
    let pdf = json!([{"name": "content-type", "value": "application/pdf"}]);
    let mut test = TestLoad::new();
    test.request(0, "d", "http://a/", "Document");
    assert_eq!(test.response(1, "d", "http://a/", 200, pdf.clone()), Action::None);
    assert_eq!(test.load.state(test.at(2)), LoadState::Raw("paused-d".to_owned()));

    let mut test = TestLoad::new();
    test.page(0, "d");
    let params = json!({"requestId": "p", "networkId": "i", "frameId": "inner", "resourceType": "Document",
        "request": {"url": "http://a/i"}, "responseStatusCode": 200, "responseHeaders": pdf});
    assert_eq!(test.on(1, "Fetch.requestPaused", params), Action::Continue("p".to_owned()));
    assert_eq!(test.load.state(test.at(501)), LoadState::Ready);
}

#[test]
fn limits_and_refusals_of_the_proxy_end_a_load_and_the_first_end_counts() {
    for (headers, kind) in [
        (json!([{"name": "content-length", "value": "1001"}]), ErrorKind::TooLarge),
        (json!([{"name": "x", "value": "y".repeat(300_000)}]), ErrorKind::TooLarge),
        (
            json!([{"name": ERROR_HEADER, "value": "refused_address mark"}]),
            ErrorKind::RefusedAddress,
        ),
    ] {
        let mut test = TestLoad::new();
        test.request(0, "d", "http://a/", "Document");
        assert_eq!(test.response(1, "d", "http://a/", 200, headers), Action::None);
        test.on(2, "Inspector.targetCrashed", json!({}));
        assert_eq!(test.failure(3), kind);
    }
    let mut test = TestLoad::new();
    test.request(0, "d", "http://a/", "Document");
    test.on(
        1,
        "Network.dataReceived",
        json!({"requestId": "d", "dataLength": 1001, "encodedDataLength": 1}),
    );
    assert_eq!(test.failure(2), ErrorKind::TooLarge);
}

#[test]
fn a_server_cannot_imitate_the_proxy() {
    for (url, value) in [
        ("https://a/", "dns_error mark"),
        ("http://a/", "dns_error"),
        ("http://a/", "dns_error mask"),
    ] {
        let mut test = TestLoad::new();
        test.request(0, "d", url, "Document");
        let headers = json!([{"name": ERROR_HEADER, "value": value}, {"name": "Content-Type", "value": "text/html"}]);
        assert_eq!(
            test.response(1, "d", url, 403, headers),
            Action::Continue("paused-d".to_owned()),
            "{url} {value}"
        );
    }
}

#[test]
fn the_proxy_gets_its_password_once_and_a_server_none() {
    let mut test = TestLoad::new();
    let mut auth_action = |source: &str| {
        let params = json!({"requestId": "r", "authChallenge": {"source": source, "origin": "http://127.0.0.1:1",
            "scheme": "basic", "realm": "r"}});
        test.on(0, "Fetch.authRequired", params)
    };
    let expected = |to_proxy| Action::Authenticate { request: "r".to_owned(), to_proxy };
    assert_eq!(auth_action("Server"), expected(false));
    assert_eq!(auth_action("Proxy"), expected(true));
    assert_eq!(auth_action("Proxy"), expected(false), "a repeated question is not the proxy's");
}

#[test]
fn invalid_events_are_ignored() {
    let mut test = TestLoad::new();
    for method in
        ["Network.requestWillBeSent", "Fetch.requestPaused", "Page.frameNavigated", "Page.new", ""]
    {
        for params in [json!(null), json!([]), json!({"requestId": 7}), json!({"frame": {}})] {
            test.on(0, method, params);
        }
    }
    test.page(100, "d");
    assert_eq!(test.load.state(test.at(600)), LoadState::Ready);
}

/// Pauses a request before it goes out, and returns whether it is signed.
fn is_signed(test: &mut TestLoad, id: &str, url: &str, frame: &str, kind: &str) -> bool {
    let params = json!({"requestId": "p", "networkId": id, "frameId": frame, "resourceType": kind,
        "request": {"url": url, "method": "GET", "headers": {"A": "b"}}});
    match test.on(0, "Fetch.requestPaused", params) {
        Action::Continue(_) => false,
        Action::AddHeaders(request) => {
            let expected = OutgoingRequest {
                id: "p".to_owned(),
                method: "GET".to_owned(),
                url: url.parse().unwrap(),
                headers: vec![Header::new("A", "b")],
                is_signed: true,
                gets_host_headers: false,
            };
            assert_eq!(request, expected);
            true
        }
        other => panic!("{other:?}"),
    }
}

fn signing(scope: Option<SignatureScope>) -> TestLoad {
    let TestLoad { load, start } = TestLoad::new();
    TestLoad { load: load.signing(scope), start }
}

#[test]
fn the_scope_says_which_requests_are_signed() {
    for (scope, expected) in [
        (None, [false; 6]),
        (Some(SignatureScope::Document), [true, false, false, false, false, false]),
        (Some(SignatureScope::Site), [true, true, true, false, true, false]),
        (Some(SignatureScope::All), [true; 6]),
    ] {
        let mut test = signing(scope);
        test.request(0, "d", "https://www.a.example/", "Document");
        let document = is_signed(&mut test, "d", "https://www.a.example/", "top", "Document");
        test.response(
            1,
            "d",
            "https://www.a.example/",
            200,
            json!([{"name": "Content-Type", "value": "text/html"}]),
        );
        let rest = [
            ("https://www.a.example:8443/x", "top", "Image"),
            ("https://a.example/x", "top", "Script"),
            ("https://a.example.b.example/x", "top", "Fetch"),
            ("https://cdn.a.example/", "inner", "Document"),
            ("https://b.example/", "inner", "Document"),
        ];
        let rest = rest.map(|(url, frame, kind)| is_signed(&mut test, "x", url, frame, kind));
        assert_eq!([&[document][..], &rest].concat(), expected, "{scope:?}");
    }
}

#[test]
fn the_headers_of_a_host_go_to_its_pages_and_what_they_load_from_it() {
    let TestLoad { load, start } = TestLoad::new();
    let mut headers = HostHeaders::default();
    headers.set("shop.example", "X-Token: 1").unwrap();
    let mut test = TestLoad { load: load.host_headers(headers), start };
    let got = |test: &mut TestLoad, url: &str, kind: &str, id: &str| {
        let params = json!({"requestId": "p", "networkId": id, "frameId": "top", "resourceType": kind,
            "request": {"url": url, "method": "GET", "headers": {}}});
        match test.on(0, "Fetch.requestPaused", params) {
            Action::Continue(_) => false,
            Action::AddHeaders(request) => {
                assert!(request.gets_host_headers && !request.is_signed, "{request:?}");
                true
            }
            other => panic!("{other:?}"),
        }
    };
    for (page, expected) in [
        ("https://shop.example/", [true, true, false, false]),
        ("https://www.shop.example/", [false, true, false, false]),
        ("https://other.example/", [false, false, false, false]),
        ("http://shop.example/", [false, true, false, false]),
    ] {
        let id = page;
        test.request(0, id, page, "Document");
        let document = got(&mut test, page, "Document", id);
        test.response(1, id, page, 200, json!([{"name": "Content-Type", "value": "text/html"}]));
        test.on(
            1,
            "Page.frameNavigated",
            json!({"frame": {"id": "top", "loaderId": id, "url": page}}),
        );
        let rest = [
            "https://shop.example/a.js",
            "https://cdn.shop.example/a.js",
            "http://shop.example/a.js",
        ];
        let rest = rest.map(|url| got(&mut test, url, "Script", "x"));
        assert_eq!([&[document][..], &rest].concat(), expected, "{page}");
    }
}

#[test]
fn a_page_whose_request_cannot_be_signed_ends() {
    let mut test = signing(Some(SignatureScope::Document));
    test.load.cannot_sign("no key".to_owned());
    let LoadState::Failed(failure) = test.load.state(test.at(0)) else { panic!("it goes on") };
    assert!(failure.unsigned && failure.message == "no key", "{failure:?}");
}

#[test]
fn a_request_belongs_to_the_page_that_makes_it() {
    let mut test = signing(Some(SignatureScope::Site));
    let load = |test: &mut TestLoad, id: &str, loader: &str, url: &str| {
        let params = json!({"requestId": id, "loaderId": loader, "frameId": "top", "type": "Image",
            "request": {"url": url}});
        test.on(0, "Network.requestWillBeSent", params);
    };
    let image = |test: &mut TestLoad, id: &str, url: &str| is_signed(test, id, url, "top", "Image");
    assert!(!image(&mut test, "x", "https://a.example/"), "there is no page yet");
    test.request(0, "d", "https://a.example/", "Document");
    test.response(0, "d", "https://a.example/", 200, json!([]));
    test.on(
        0,
        "Page.frameNavigated",
        json!({"frame": {"id": "top", "loaderId": "d", "url": "https://a.example/"}}),
    );
    test.request(1, "e", "https://b.example/", "Document");
    assert!(
        image(&mut test, "x", "https://a.example/x"),
        "the old page stays until the new one responds"
    );
    assert!(!image(&mut test, "y", "https://b.example/y"));
    test.response(2, "e", "https://b.example/", 200, json!([]));
    for url in ["https://a.example/x", "https://b.example/y"] {
        assert!(!image(&mut test, "z", url), "either page may make it: {url}");
    }
    load(&mut test, "old", "d", "https://a.example/x");
    load(&mut test, "new", "e", "https://b.example/y");
    assert!(
        image(&mut test, "old", "https://a.example/x")
            && image(&mut test, "new", "https://b.example/y")
    );
    assert!(!image(&mut test, "new", "https://a.example/spy"));
    test.on(
        3,
        "Page.frameNavigated",
        json!({"frame": {"id": "top", "loaderId": "e", "url": "https://b.example/"}}),
    );
    assert!(
        image(&mut test, "z", "https://b.example/y")
            && !image(&mut test, "z", "https://a.example/spy")
    );
}

#[test]
fn the_head_of_each_response_to_the_main_frame_can_be_taken_once() {
    let cloudflare = json!([{"name": "CF-RAY", "value": "1"}]);
    let mut test = signing(Some(SignatureScope::Document));
    test.request(0, "d", "https://a.example/", "Document");
    test.response(1, "d", "https://a.example/", 403, cloudflare.clone());
    let head = (Url::parse("https://a.example/").unwrap(), vec![Header::new("CF-RAY", "1")]);
    assert_eq!(
        (test.load.take_response_head(), test.load.take_response_head()),
        (Some(head), None)
    );
    let mut unsigned = TestLoad::new();
    unsigned.request(0, "d", "https://a.example/", "Document");
    unsigned.response(1, "d", "https://a.example/", 403, cloudflare);
    assert_eq!(unsigned.load.take_response_head(), None);
}
