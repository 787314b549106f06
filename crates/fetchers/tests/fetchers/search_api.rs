//! The search API fetcher with a stand-in on loopback: its records, the secrecy of the key, and the
//! attribution of faults.

use std::net::{IpAddr, Ipv4Addr};

use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::detect::Detector;
use fetchwise::fetch::address_guard::AddressGuard;
use fetchwise::fetch::http::HttpFetcher;
use fetchwise::fetch::search_api::{SearchFetcher, SearchOptions};
use fetchwise::fetch::{FetchError, Fetcher, Limits, Request, Response};
use fetchwise::fetch_result::Outcome;
use fetchwise_testsite::services::{Reply, Service, ServiceRequest};
use serde_json::{Value, json};

const PAGE: &str = "https://www.nytimes.com/2024/11/06/us/harbour.html?smid=url-share";
const KEY: &str = "s3cret/+key";

/// Responds like the New York Times' API: a list of documents, or null if there is none.
fn article_search(request: &ServiceRequest) -> Reply {
    if request.parameter("api-key").as_deref() != Some(KEY) {
        return Reply::status(401)
            .body("application/json", r#"{"fault":{"faultstring":"Invalid ApiKey"}}"#);
    }
    let filter = request.parameter("fq").unwrap_or_default();
    let docs = if filter.contains("harbour") {
        json!([
            {"web_url": "https://www.nytimes.com/2024/11/05/us/other.html", "headline": {"main": "Another one"}},
            {"web_url": "https://www.nytimes.com/2024/11/06/us/harbour.html", "headline": {"main": "The Harbour"},
             "abstract": "What the council did.", "lead_paragraph": "The council met.", "pub_date": "2024-11-06T05:00:00+0000"}
        ])
    } else {
        Value::Null
    };
    Reply::status(200)
        .body("application/json", json!({"status": "OK", "response": {"docs": docs}}).to_string())
}

fn service(respond: impl Fn(&ServiceRequest) -> Reply + Send + Sync + 'static) -> Service {
    Service::start(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 10)), respond).unwrap()
}

/// Returns a fetcher with the shipped configuration and the stand-in's address.
fn fetcher(service: &Service, key: &str) -> SearchFetcher {
    let shipped = SearchOptions::new_york_times(Some(key.to_owned()));
    let url = shipped.url.replace("https://api.nytimes.com", service.url("").trim_end_matches('/'));
    let http = HttpFetcher::builder().guard(AddressGuard::new([], true));
    SearchFetcher::new(SearchOptions { url, ..shipped }, http).unwrap()
}

async fn get(fetcher: &SearchFetcher, url: &str) -> Result<Response, FetchError> {
    fetcher.fetch(Request::new(&url.parse().unwrap(), &Limits::default())).await
}

#[tokio::test]
async fn the_record_of_the_requested_page_is_content() {
    let service = service(article_search);
    let response = get(&fetcher(&service, KEY), PAGE).await.unwrap();
    let record: Value = serde_json::from_slice(response.body.head()).unwrap();
    assert_eq!(
        (&record["title"], &record["abstract"]),
        (&json!("The Harbour"), &json!("What the council did."))
    );
    assert_eq!((&record["body"], &record["url"]), (&json!("The council met."), &json!(PAGE)));
    assert_eq!(record["date"], "2024-11-06T05:00:00+0000");
    assert_eq!(record["record"]["headline"]["main"], "The Harbour");
    assert_eq!(&*response.provenance.as_ref().unwrap().by, "127.0.0.10");
    let verdict = Detector::new().judge_page(&response.page(&PAGE.parse().unwrap()));
    assert_eq!(verdict.outcome, Outcome::Content);
}

#[tokio::test]
async fn the_key_is_sent_to_the_api_only() {
    let service = service(article_search);
    let one = fetcher(&service, KEY);
    let response = get(&one, PAGE).await.unwrap();
    assert_eq!(service.requests()[0].parameter("api-key").as_deref(), Some(KEY));
    assert!(
        service.requests()[0].parameter("fq").unwrap().contains(PAGE),
        "{:?}",
        service.requests()
    );
    let printed = format!("{one:?} {response:?} {}", response.final_url);
    assert!(!printed.contains("s3cret"), "{printed}");
    // Errors of an invalid response and of a stopped server contain the requested address.
    let address = service.address();
    drop(service);
    let error = get(&one, PAGE).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::ProxyError);
    assert!(
        !format!("{error:?}").contains("s3cret") && error.message.contains(&address.to_string()),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_redirect_does_not_carry_the_key() {
    let other = service(|_| Reply::status(200));
    let to = other.url("/elsewhere");
    let first = service(move |_| Reply::status(302).header("Location", to.clone()));
    let error = get(&fetcher(&first, KEY), PAGE).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::ProxyError, "{error}");
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn a_missing_record_is_not_held_and_other_sites_are_not_requested() {
    let service = service(article_search);
    let one = fetcher(&service, KEY);
    let error = get(&one, "https://www.nytimes.com/2020/01/01/nothing.html").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotHeld, "{error}");
    let before = service.requests().len();
    for other in ["https://example.org/harbour", "https://notnytimes.com/harbour"] {
        let error = get(&one, other).await.unwrap_err();
        assert!(error.unavailable, "{error:?}");
    }
    assert_eq!(service.requests().len(), before);
}

#[tokio::test]
async fn a_refused_key_is_not_tried_for_the_next_page() {
    let service = service(article_search);
    let one = fetcher(&service, "wrong");
    let error = get(&one, PAGE).await.unwrap_err();
    assert_eq!((error.kind, error.status), (ErrorKind::ProxyError, None));
    assert!(error.message.contains("refused the key"), "{error}");
    assert!(get(&one, PAGE).await.unwrap_err().unavailable);
    assert_eq!(service.requests().len(), 1);
}

#[tokio::test]
async fn another_publisher_only_needs_configuration() {
    let service = service(|request| match request.header("x-key") {
        Some("k") => {
            Reply::status(200).body("application/json", r#"{"article":{"t":"A title","n":7}}"#)
        }
        _ => Reply::status(403),
    });
    let options = SearchOptions {
        name: "other".to_owned(),
        url: format!("{}?about={{url}}", service.url("/find")),
        key: Some("k".to_owned()),
        key_header: Some("x-key".to_owned()),
        hosts: Vec::new(),
        records: "/article".to_owned(),
        address: None,
        title: "/t".to_owned(),
        body: Some("/n".to_owned()),
        ..SearchOptions::new_york_times(None)
    };
    let http = HttpFetcher::builder().guard(AddressGuard::new([], true));
    let one = SearchFetcher::new(options, http).unwrap();
    let response = get(&one, "https://example.org/a?b={key}").await.unwrap();
    let record: Value = serde_json::from_slice(response.body.head()).unwrap();
    assert_eq!(
        (&record["title"], &record["body"], &record["date"]),
        (&json!("A title"), &json!("7"), &Value::Null)
    );
    assert_eq!(
        service.requests()[0].parameter("about").as_deref(),
        Some("https://example.org/a?b={key}")
    );
}
