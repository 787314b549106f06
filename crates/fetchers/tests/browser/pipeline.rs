//! The pipeline with a real Chromium: a shell goes to the browser, and the site is remembered for
//! it.

use std::sync::Arc;
use std::time::Duration;

use fetchwise::fetch::address_guard::AddressGuard;
use fetchwise::fetch::browser::{BrowserFetcher, BrowserOptions};
use fetchwise::fetch::dial::Dialer;
use fetchwise::fetch::http::HttpFetcher;
use fetchwise::pipeline::{Link, Pipeline};
use fetchwise::registry::FetcherSpec;
use fetchwise::selector::{Selector, VisitSettings};
use fetchwise_testsite::origin::{Origin, Site};

use crate::chromium;

#[tokio::test(flavor = "multi_thread")]
async fn a_react_shell_is_rendered_and_the_site_is_remembered_for_the_browser() {
    let origin = Origin::start([("127.0.0.1", Site::ReactShell)]).unwrap();
    let guard = AddressGuard::new(["127.0.0.0/8".parse().unwrap()], false);
    let Some(program) = chromium() else { return };
    let browser = Arc::new(
        BrowserFetcher::new(program, BrowserOptions::default(), Dialer::new(guard.clone()))
            .unwrap(),
    );
    let selector = Selector::builder()
        .without_pace()
        .fetcher(FetcherSpec::by_name("direct_access"))
        .fetcher(FetcherSpec::by_name("playwright"))
        .visits(VisitSettings { deadline: Duration::from_secs(60), ..VisitSettings::default() })
        .build()
        .unwrap();
    let pipeline = Pipeline::builder(Arc::new(selector))
        .fetcher(Arc::new(HttpFetcher::new(guard).unwrap()))
        .fetcher(Arc::clone(&browser) as _)
        .build()
        .unwrap();

    let first = pipeline.fetch(&Link::new(origin.url("127.0.0.1", "/stories/1"))).await;
    assert!(first.success && first.requests == 2, "{first:?}");
    assert_eq!(first.fetcher.as_deref(), Some("playwright"));
    let body = first.response.as_ref().unwrap().body.head().clone();
    let shell = shell_of(&origin).await;
    assert!(
        body.len() > shell.len(),
        "the rendered page is longer than its shell of {} bytes",
        shell.len()
    );

    let mut sources = Vec::new();
    for n in 2..12 {
        let report =
            pipeline.fetch(&Link::new(origin.url("127.0.0.1", &format!("/stories/{n}")))).await;
        assert!(report.success, "{report:?}");
        sources.push((report.source.unwrap().name(), report.requests));
    }
    assert_eq!(sources.last().unwrap().0, "learned", "{sources:?}");
    // Now and then a decision explores, or a busy machine needs a second look.
    assert!(sources.iter().filter(|(_, requests)| *requests == 1).count() >= 8, "{sources:?}");
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_page_costs_one_render_and_other_pages_of_the_site_one_request_each() {
    let page = |n: u32| {
        Site::Html(format!(
            "<!doctype html><title>Note {n}</title><p>Note {n}: ferry<iframe></iframe>"
        ))
    };
    let notes: Vec<(String, Site)> = (1..9).map(|n| (format!("/notes/{n}"), page(n))).collect();
    let origin = Origin::start([("127.0.0.1", Site::Mixed(notes))]).unwrap();
    let guard = AddressGuard::new(["127.0.0.0/8".parse().unwrap()], false);
    let Some(program) = chromium() else { return };
    let browser = Arc::new(
        BrowserFetcher::new(program, BrowserOptions::default(), Dialer::new(guard.clone()))
            .unwrap(),
    );
    let selector = ["direct_access", "playwright"].map(FetcherSpec::by_name);
    let selector = selector
        .into_iter()
        .fold(Selector::builder().without_pace(), |builder, spec| builder.fetcher(spec));
    let pipeline = Pipeline::builder(Arc::new(selector.build().unwrap()))
        .fetcher(Arc::new(HttpFetcher::new(guard).unwrap()))
        .fetcher(Arc::clone(&browser) as _)
        .build()
        .unwrap();
    let mut costs = Vec::new();
    for n in 1..9 {
        let report =
            pipeline.fetch(&Link::new(origin.url("127.0.0.1", &format!("/notes/{n}")))).await;
        assert!(report.success, "{report:?}");
        costs.push((report.fetcher.unwrap(), report.requests));
    }
    assert_eq!(costs[0], ("playwright".to_owned(), 2), "{costs:?}");
    assert!(costs[1..].iter().all(|cost| *cost == ("direct_access".to_owned(), 1)), "{costs:?}");
    browser.close().await;
}

/// Returns the shell as a plain request gets it.
async fn shell_of(origin: &Origin) -> Vec<u8> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", origin.port())).await.unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.unwrap();
    response
}
