//! The FlareSolverr fetcher with a stand-in service on loopback: its pages, its faults, and the
//! guard.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::fetch::address_guard::AddressGuard;
use fetchwise::fetch::dial::Dialer;
use fetchwise::fetch::flaresolverr::{SolverFetcher, SolverOptions};
use fetchwise::fetch::{FetchError, Fetcher, Limits, Request, Response};
use fetchwise_testsite::services::{Reply, Service, ServiceRequest};
use serde_json::{Value, json};

/// Responds as the service does: the page in a solution, or a 500 with a message.
fn solve(request: &ServiceRequest) -> Reply {
    let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let url = message["url"].as_str().unwrap_or_default();
    let solved = |status: u16, url: &str, body: &str| {
        let headers = json!({"content-type": "text/html; charset=latin1", "content-encoding": "gzip", "server": "nginx", "x y": "1"});
        let solution = json!({"url": url, "status": status, "headers": headers, "response": body, "cookies": [], "userAgent": "x"});
        Reply::status(200).body(
            "application/json",
            json!({"status": "ok", "message": "", "solution": solution}).to_string(),
        )
    };
    let failed = |message: &str| {
        Reply::status(500)
            .body("application/json", json!({"status": "error", "message": message}).to_string())
    };
    match url.rsplit('/').next().unwrap_or_default() {
        "page" => solved(200, url, "<html><h1>Straße</h1></html>"),
        "gone" => solved(404, url, "<h1>no</h1>"),
        "inside" => solved(200, "http://10.1.2.3/", "<h1>secret</h1>"),
        "long" => solved(200, url, &"x".repeat(5000)),
        "slow" => failed("Error: Error solving the challenge. Timeout after 60.0 seconds."),
        "captcha" => failed(
            "Error: Error solving the challenge. Captcha detected but no automatic solver is configured.",
        ),
        "nowhere" => failed("Error: net::ERR_NAME_NOT_RESOLVED at http://x/"),
        "nonsense" => Reply::status(200).body("text/html", "<h1>hello</h1>"),
        // Until the process ends.
        "silent" => loop {
            std::thread::park();
        },
        _ => Reply::status(503),
    }
}

fn service() -> Service {
    Service::start(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 51)), solve).unwrap()
}

/// Returns a fetcher whose pages may be on one public address only; the service is on loopback.
fn fetcher(service: &Service) -> SolverFetcher {
    let options = SolverOptions::new("solver", service.url("/v1").parse().unwrap());
    let options = SolverOptions { max_time: Duration::ZERO, ..options };
    SolverFetcher::new(options, Dialer::new(AddressGuard::default())).unwrap()
}

async fn get(fetcher: &SolverFetcher, path: &str, limits: &Limits) -> Result<Response, FetchError> {
    // A public address, which this machine never dials.
    let url = format!("http://93.184.215.14/{path}").parse().unwrap();
    fetcher.fetch(Request::new(&url, limits)).await
}

#[tokio::test]
async fn a_page_has_its_status_headers_and_text() {
    let service = service();
    let one = fetcher(&service);
    assert!(one.renders());
    let response = get(&one, "page", &Limits::default()).await.unwrap();
    assert_eq!(
        (response.status, response.body.head().as_ref()),
        (200, "<html><h1>Straße</h1></html>".as_bytes())
    );
    let mut names: Vec<&str> = response.headers.iter().map(|header| &*header.name).collect();
    names.sort_unstable();
    assert_eq!(names, ["content-type", "server"]);
    assert_eq!(get(&one, "gone", &Limits::default()).await.unwrap().status, 404);
    let requests = service.requests();
    let message: Value = serde_json::from_slice(&requests[0].body).unwrap();
    assert_eq!((&requests[0].method, &requests[0].target), (&"POST".to_owned(), &"/v1".to_owned()));
    assert_eq!(
        (&message["cmd"], &message["url"]),
        (&json!("request.get"), &json!("http://93.184.215.14/page"))
    );
    assert!((15_000..30_000).contains(&message["maxTimeout"].as_u64().unwrap()), "{message}");
}

#[tokio::test]
async fn failures_of_pages_are_distinguished_from_faults_of_the_service() {
    let service = service();
    for (path, kind) in [
        ("slow", ErrorKind::Timeout),
        ("captcha", ErrorKind::BlockedCaptcha),
        ("nowhere", ErrorKind::DnsError),
        ("nonsense", ErrorKind::ProxyError),
        ("else", ErrorKind::ProxyError),
    ] {
        let error = get(&fetcher(&service), path, &Limits::default()).await.unwrap_err();
        assert_eq!((error.kind, error.status), (kind, None), "{path}: {error}");
    }
    let short = Limits { max_body: 4000, ..Limits::default() };
    assert_eq!(
        get(&fetcher(&service), "long", &short).await.unwrap_err().kind,
        ErrorKind::TooLarge
    );
    let hasty = Limits { deadline: Duration::from_millis(500), ..Limits::default() };
    assert_eq!(
        get(&fetcher(&service), "silent", &hasty).await.unwrap_err().kind,
        ErrorKind::Timeout
    );
}

#[tokio::test]
async fn an_unreachable_service_is_paused_after_a_while() {
    let service = service();
    let one = fetcher(&service);
    drop(service);
    for _ in 0..2 {
        let error = get(&one, "page", &Limits::default()).await.unwrap_err();
        assert_eq!((error.kind, error.unavailable), (ErrorKind::ProxyError, false), "{error}");
    }
    assert!(get(&one, "page", &Limits::default()).await.unwrap_err().unavailable);
}

#[tokio::test]
async fn the_guard_applies_to_requested_and_final_urls() {
    let service = service();
    let one = fetcher(&service);
    let url = "http://127.0.0.1:9/page".parse().unwrap();
    let error = one.fetch(Request::new(&url, &Limits::default())).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::RefusedAddress, "{error}");
    assert!(service.requests().is_empty());
    let error = get(&one, "inside", &Limits::default()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::RefusedAddress, "{error}");
}
