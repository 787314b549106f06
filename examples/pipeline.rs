//! The pipeline: fetchwise decides, fetches, judges, retries, pauses and records on its own. It
//! crawls small sites on this machine that behave differently. It keeps a pace: each new host gets
//! two requests per second, then as many as its responses allow.
//!
//! `cargo run --example pipeline --features pipeline`

use std::sync::Arc;
use std::time::Duration;

use fetchwise::Selector;
use fetchwise::fetch::address_guard::{AddressGuard, parse_network};
use fetchwise::fetch::http::HttpFetcher;
use fetchwise::pipeline::{Link, Pipeline};
use fetchwise::registry::FetcherSpec;
use fetchwise_testsite::origin::{Origin, Site};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let sites = [
        ("127.0.0.2", Site::Static),
        ("127.0.0.3", Site::captcha(403)),
        ("127.0.0.4", Site::flaky(3)),
        ("127.0.0.5", Site::rate_limited(120)),
    ];
    let hosts = sites.clone().map(|(host, _)| host);
    let origin = Origin::start(sites)?;

    // Private addresses are refused unless they are opened.
    let mut guard = AddressGuard::default();
    guard.allow_network(parse_network("127.0.0.0/8")?);
    // The sites' captcha lets a certain user agent pass, so a second plain fetcher can stand for a
    // stealthy browser.
    let plain = HttpFetcher::builder().guard(guard.clone()).build()?;
    let stealth = HttpFetcher::builder()
        .name("playwright_stealth")
        .guard(guard)
        .user_agent("stealth")
        .build()?;
    let selector = Selector::builder()
        .fetcher(FetcherSpec::by_name("direct_access"))
        .fetcher(FetcherSpec::by_name("playwright_stealth"))
        .build()?;
    let pipeline = Pipeline::builder(Arc::new(selector))
        .fetcher(Arc::new(plain))
        .fetcher(Arc::new(stealth))
        // A crawl would come back to a limited host after minutes; a demonstration ends with it.
        .wait_at_most(Duration::from_secs(5))
        .build()?;

    for round in 1..=4 {
        for host in hosts {
            let report =
                pipeline.fetch(&Link::new(origin.url(host, &format!("/page/{round}")))).await;
            let source = report.source.map_or_else(String::new, |source| source.to_string());
            let how = match report.success {
                true => format!("{} bytes by {}", report.bytes, report.fetcher.unwrap_or_default()),
                false => report.message.unwrap_or_default(),
            };
            println!("{host}  {source}: {how} ({} requests)", report.requests);
        }
    }
    Ok(())
}
