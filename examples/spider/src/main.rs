//! The `spider` crate with fetchwise choosing plain HTTP or Chrome for each page.
//!
//! spider keeps its part: the frontier, robots.txt, budgets, links, the subscription. Its hook for
//! custom fetchers (`with_remote_fetcher`) gets each URL, and fetchwise's pipeline decides,
//! fetches, judges, waits and learns. The same crawl runs first with spider's own client, and the
//! sites count what each was served. The pipeline keeps a pace: each new host gets two requests per
//! second, then as many as its responses allow.
//!
//! `cargo run --release --manifest-path examples/spider/Cargo.toml`

use std::sync::Arc;

use fetchwise::Selector;
use fetchwise::fetch::address_guard::{AddressGuard, parse_network};
use fetchwise::fetch::browser::{BrowserFetcher, BrowserOptions};
use fetchwise::fetch::dial::Dialer;
use fetchwise::fetch::http::HttpFetcher;
use fetchwise::pipeline::{Link, Pipeline};
use fetchwise::registry::FetcherSpec;
use fetchwise_testsite::origin::{Origin, Site};
use spider::client::StatusCode;
use spider::fetcher::{FetchContext, RemoteFetcher, SharedRemoteFetcher};
use spider::tokio;
use spider::utils::PageResponse;
use spider::website::Website;

const PAGES_OF_EACH: u32 = 12;

/// The fetcher that replaces spider's client.
struct Fetchwise(Pipeline);

#[async_trait::async_trait]
impl RemoteFetcher for Fetchwise {
    async fn fetch(&self, asked: FetchContext<'_>) -> PageResponse {
        let mut page = PageResponse::default();
        let report = self.0.fetch(&Link::new(asked.url)).await;
        match report.response {
            Some(response) => {
                page.status_code =
                    StatusCode::from_u16(response.status).unwrap_or(StatusCode::BAD_GATEWAY);
                page.final_url = Some(response.final_url.to_string());
                page.content = Some(response.body.head().to_vec());
            }
            // A block or an empty shell is not a page: spider takes no links from it, and its
            // subscribers see the failure.
            None => page.status_code = StatusCode::BAD_GATEWAY,
        }
        page
    }
}

/// The pipeline: plain HTTP at one unit, Chrome at twenty.
fn fetchwise() -> Result<Fetchwise, Box<dyn std::error::Error>> {
    // These sites are on loopback, which is refused by default.
    let mut guard = AddressGuard::default();
    guard.allow_network(parse_network("127.0.0.0/8")?);
    let plain = HttpFetcher::builder().guard(guard.clone()).build()?;
    let chrome = BrowserFetcher::new(
        BrowserFetcher::find(None)?,
        BrowserOptions::default(),
        Dialer::new(guard),
    )?;
    let selector = Selector::builder()
        .fetcher(FetcherSpec::by_name("direct_access"))
        .fetcher(FetcherSpec::by_name("playwright"))
        .build()?;
    let pipeline =
        Pipeline::builder(Arc::new(selector)).fetcher(Arc::new(plain)).fetcher(Arc::new(chrome));
    Ok(Fetchwise(pipeline.build()?))
}

/// Crawls one site, and counts pages with their text and those without.
async fn crawl(front: &str, fetcher: Option<SharedRemoteFetcher>) -> (u32, u32) {
    let mut website = Website::new(front);
    website.with_respect_robots_txt(true).with_limit(PAGES_OF_EACH);
    if let Some(fetcher) = fetcher {
        website.with_shared_remote_fetcher(fetcher);
    }
    let mut pages = website.subscribe(PAGES_OF_EACH as usize * 2);
    website.crawl_raw().await;
    website.unsubscribe();
    let (mut good, mut other) = (0, 0);
    while let Ok(page) = pages.try_recv() {
        // All pages of these sites contain it.
        if page.get_html().contains("Read on") {
            good += 1;
        } else {
            other += 1;
        }
    }
    (good, other)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!(
        "{:<10} {:<12} {:>5} {:>6} {:>9} {:>8}",
        "", "site", "good", "other", "requests", "refused"
    );
    for learns in [false, true] {
        let sites = [
            ("127.0.0.2", "articles", Site::Static),
            ("127.0.0.3", "application", Site::ReactShell),
            ("127.0.0.4", "forbidden", Site::FORBIDDEN),
        ];
        let origin = Origin::start(sites.clone().map(|(host, _, site)| (host, site)))?;
        let fetcher: Option<SharedRemoteFetcher> = match learns {
            true => Some(Arc::new(fetchwise()?)),
            false => None,
        };
        let who = if learns { "fetchwise" } else { "spider" };
        for (host, what, _) in sites {
            let (good, other) = crawl(&origin.url(host, "/"), fetcher.clone()).await;
            let (requests, refused) = (origin.hits(host), origin.refusals(host));
            println!("{who:<10} {what:<12} {good:>5} {other:>6} {requests:>9} {refused:>8}");
        }
    }
    Ok(())
}
