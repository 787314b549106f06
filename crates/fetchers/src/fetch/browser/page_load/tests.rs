//! The machine, told by tapes of events what a tab sees.

#![allow(clippy::unwrap_used)]
use super::*;
use serde_json::{Value, json};

/// A watch, and a clock in milliseconds.
struct Tape {
    watch: Watch,
    start: Instant,
}

impl Tape {
    fn new() -> Self {
        let start = Instant::now();
        let patience = Patience {
            quiet: Duration::from_millis(500),
            after_load: Duration::from_secs(10),
            give_in: start + Duration::from_secs(20),
        };
        let limits = Limits { max_body: 1000, max_redirects: 2, ..Limits::default() };
        Self { watch: Watch::new("top".to_owned(), "mark".to_owned(), limits, patience, start), start }
    }

    fn at(&self, ms: u64) -> Instant {
        self.start + Duration::from_millis(ms)
    }

    fn on(&mut self, ms: u64, method: &str, params: Value) -> Action {
        let event = serde_json::from_value(json!({"method": method, "sessionId": "s", "params": params})).unwrap();
        self.watch.on(&event, self.at(ms))
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

    /// A page that is there and loaded at `ms`.
    fn page(&mut self, ms: u64, id: &str) {
        self.request(ms, id, "http://a/", "Document");
        let headers = json!([{"name": "Content-Type", "value": "text/html"}]);
        assert_eq!(self.response(ms, id, "http://a/", 200, headers), Action::Continue(format!("paused-{id}")));
        self.on(ms, "Page.frameNavigated", json!({"frame": {"id": "top", "loaderId": id, "url": "http://a/"}}));
        self.on(ms, "Network.loadingFinished", json!({"requestId": id}));
        self.on(ms, "Page.loadEventFired", json!({}));
    }

    fn failure(&self, ms: u64) -> ErrorKind {
        match self.watch.state(self.at(ms)) {
            State::Failed(failure) => failure.kind,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_page_is_ready_when_its_network_was_quiet_for_long_enough() {
    let mut tape = Tape::new();
    tape.page(100, "d");
    assert_eq!(tape.watch.state(tape.at(599)), State::Wait(tape.at(600)));
    tape.request(400, "x", "http://a/x", "Fetch");
    assert_eq!(tape.watch.state(tape.at(2000)), State::Wait(tape.at(10_100)), "x is under way");
    tape.on(3000, "Network.loadingFailed", json!({"requestId": "x", "errorText": "net::ERR_ABORTED"}));
    assert_eq!(tape.watch.state(tape.at(3499)), State::Wait(tape.at(3500)));
    assert_eq!(tape.watch.state(tape.at(3500)), State::Ready);
}

#[test]
fn a_page_that_is_never_quiet_is_ready_at_the_end_of_patience() {
    let mut tape = Tape::new();
    tape.page(100, "d");
    tape.request(400, "x", "http://a/x", "Fetch");
    assert_eq!(tape.watch.state(tape.at(10_100)), State::Ready);
}

#[test]
fn requests_that_never_end_by_design_are_not_waited_for() {
    let mut tape = Tape::new();
    tape.page(100, "d");
    tape.request(400, "x", "http://a/x", "EventSource");
    // The end of a request may be told before its beginning.
    tape.on(400, "Network.loadingFinished", json!({"requestId": "y"}));
    tape.request(410, "y", "http://a/y", "Image");
    assert_eq!(tape.watch.state(tape.at(600)), State::Ready);
}

#[test]
fn frames_and_workers_whose_end_is_told_elsewhere_are_not_waited_for() {
    let mut tape = Tape::new();
    tape.request(0, "d", "http://a/", "Document");
    let params = json!({"requestId": "i", "loaderId": "i", "frameId": "inner", "type": "Document",
        "request": {"url": "http://b/"}});
    tape.on(50, "Network.requestWillBeSent", params);
    tape.request(60, "w", "blob:http://a/1234", "Script");
    tape.page(100, "d");
    assert_eq!(tape.watch.state(tape.at(600)), State::Ready);
}

#[test]
fn a_script_is_stopped_only_when_patience_ends_before_the_document_is_there() {
    let mut tape = Tape::new();
    tape.request(0, "d", "http://a/", "Document");
    assert_eq!(tape.watch.state(tape.at(19_999)), State::Wait(tape.at(20_000)));
    assert!(matches!(tape.watch.state(tape.at(20_000)), State::Stuck(_)));
}

#[test]
fn the_document_is_the_last_one_that_came() {
    let mut tape = Tape::new();
    tape.page(0, "d");
    tape.page(100, "e");
    assert_eq!(tape.watch.state(tape.at(600)), State::Ready);
    assert_eq!(tape.watch.document().unwrap().id, "e");
    // A download that is given up leaves the page where it was.
    tape.request(700, "f", "http://a/f", "Document");
    tape.on(800, "Network.loadingFailed", json!({"requestId": "f", "errorText": "net::ERR_ABORTED"}));
    assert_eq!(tape.watch.state(tape.at(1300)), State::Ready);
    assert_eq!(tape.watch.document().unwrap().id, "e");
}

#[test]
fn a_navigation_that_is_given_up_is_a_failure_unless_another_one_follows() {
    let mut tape = Tape::new();
    tape.request(0, "d", "http://a/", "Document");
    tape.on(10, "Network.loadingFailed", json!({"requestId": "d", "errorText": "net::ERR_ABORTED"}));
    assert!(matches!(tape.watch.state(tape.at(20)), State::Wait(_)));
    assert_eq!(tape.failure(1000), ErrorKind::NetworkError);
    tape.page(400, "e");
    assert_eq!(tape.watch.state(tape.at(1000)), State::Ready);
}

#[test]
fn redirects_of_every_sort_count_as_hops() {
    let mut tape = Tape::new();
    tape.request(0, "d", "http://a/1", "Document");
    tape.request(1, "d", "http://a/2", "Document");
    tape.request(2, "e", "http://a/3", "Document");
    assert!(matches!(tape.watch.state(tape.at(3)), State::Wait(_)), "two are allowed");
    tape.request(3, "f", "http://a/4", "Document");
    assert_eq!(tape.failure(4), ErrorKind::RedirectLoop);
}

#[test]
fn a_documents_cookies_are_its_own_and_not_its_redirects() {
    let mut tape = Tape::new();
    tape.request(0, "d", "http://a/1", "Document");
    let extra = |status, cookie| json!({"requestId": "d", "statusCode": status, "headers": {"Set-Cookie": cookie}});
    tape.on(1, "Network.responseReceivedExtraInfo", extra(302, "r=1"));
    tape.response(2, "d", "http://a/2", 200, json!([]));
    assert_eq!(tape.watch.document().unwrap().headers, []);
    tape.on(3, "Network.responseReceivedExtraInfo", extra(200, "a=1\nb=2"));
    let cookies = [Header::new("Set-Cookie", "a=1"), Header::new("Set-Cookie", "b=2")];
    assert_eq!(tape.watch.document().unwrap().headers, cookies);
}

#[test]
fn only_the_main_frames_html_is_rendered() {
    let pdf = json!([{"name": "content-type", "value": "application/pdf"}]);
    let mut tape = Tape::new();
    tape.request(0, "d", "http://a/", "Document");
    assert_eq!(tape.response(1, "d", "http://a/", 200, pdf.clone()), Action::None);
    assert_eq!(tape.watch.state(tape.at(2)), State::Raw("paused-d".to_owned()));

    let mut tape = Tape::new();
    tape.page(0, "d");
    let params = json!({"requestId": "p", "networkId": "i", "frameId": "inner", "resourceType": "Document",
        "request": {"url": "http://a/i"}, "responseStatusCode": 200, "responseHeaders": pdf});
    assert_eq!(tape.on(1, "Fetch.requestPaused", params), Action::Continue("p".to_owned()));
    assert_eq!(tape.watch.state(tape.at(501)), State::Ready);
}

#[test]
fn limits_and_the_proxys_refusals_end_it_and_the_first_end_stands() {
    for (headers, kind) in [
        (json!([{"name": "content-length", "value": "1001"}]), ErrorKind::TooLarge),
        (json!([{"name": "x", "value": "y".repeat(70_000)}]), ErrorKind::TooLarge),
        (json!([{"name": ERROR_HEADER, "value": "refused_address mark"}]), ErrorKind::RefusedAddress),
    ] {
        let mut tape = Tape::new();
        tape.request(0, "d", "http://a/", "Document");
        assert_eq!(tape.response(1, "d", "http://a/", 200, headers), Action::None);
        tape.on(2, "Inspector.targetCrashed", json!({}));
        assert_eq!(tape.failure(3), kind);
    }
    let mut tape = Tape::new();
    tape.request(0, "d", "http://a/", "Document");
    tape.on(1, "Network.dataReceived", json!({"requestId": "d", "dataLength": 1001, "encodedDataLength": 1}));
    assert_eq!(tape.failure(2), ErrorKind::TooLarge);
}

#[test]
fn a_server_cannot_speak_for_the_proxy() {
    for (url, value) in [("https://a/", "dns_error mark"), ("http://a/", "dns_error"), ("http://a/", "dns_error mask")]
    {
        let mut tape = Tape::new();
        tape.request(0, "d", url, "Document");
        let headers = json!([{"name": ERROR_HEADER, "value": value}, {"name": "Content-Type", "value": "text/html"}]);
        assert_eq!(tape.response(1, "d", url, 403, headers), Action::Continue("paused-d".to_owned()), "{url} {value}");
    }
}

#[test]
fn the_proxy_is_told_its_password_once_and_a_server_none() {
    let mut tape = Tape::new();
    let mut asks = |source: &str| {
        let params = json!({"requestId": "r", "authChallenge": {"source": source, "origin": "http://127.0.0.1:1",
            "scheme": "basic", "realm": "r"}});
        tape.on(0, "Fetch.authRequired", params)
    };
    let answer = |to_proxy| Action::Authenticate { request: "r".to_owned(), to_proxy };
    assert_eq!(asks("Server"), answer(false));
    assert_eq!(asks("Proxy"), answer(true));
    assert_eq!(asks("Proxy"), answer(false), "what is asked again is not the proxy's question");
}

#[test]
fn events_that_make_no_sense_are_passed_over() {
    let mut tape = Tape::new();
    for method in ["Network.requestWillBeSent", "Fetch.requestPaused", "Page.frameNavigated", "Page.new", ""] {
        for params in [json!(null), json!([]), json!({"requestId": 7}), json!({"frame": {}})] {
            tape.on(0, method, params);
        }
    }
    tape.page(100, "d");
    assert_eq!(tape.watch.state(tape.at(600)), State::Ready);
}
