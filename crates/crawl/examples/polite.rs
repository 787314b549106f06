//! A polite crawler: it obeys robots.txt, each host has its own pace, and the same crawl continues
//! where it stopped. It crawls two small sites on this machine.
//!
//! `cargo run -p fetchwise-crawl --example polite`

use std::error::Error;
use std::sync::Arc;

use fetchwise::Selector;
use fetchwise::fetch::address_guard::{AddressGuard, parse_network};
use fetchwise::fetch::http::HttpFetcher;
use fetchwise::journal::{self, Journal, JournalOptions};
use fetchwise::registry::FetcherSpec;
use fetchwise::robots::RobotsTxt;
use fetchwise::time::Timestamp;
use fetchwise_crawl::{Crawl, CrawlResult, CrawlSpec};
use fetchwise_testsite::origin::{Origin, Site};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let origin = Origin::start([("127.0.0.2", Site::Static), ("127.0.0.3", Site::Trap)])?;
    let pages = ["/", "/news", "/deeper/1"];
    let urls =
        ["127.0.0.2", "127.0.0.3"].iter().flat_map(|host| pages.map(|page| origin.url(host, page)));
    let dir = tempfile::tempdir()?;
    // Private addresses are refused unless they are opened.
    let mut guard = AddressGuard::default();
    guard.allow_network(parse_network("127.0.0.0/8")?);

    // What it learns about the sites is in the journal, and so is what it has fetched.
    let journal = Arc::new(Journal::open(dir.path(), JournalOptions::default())?.0);
    let plain = FetcherSpec::by_name("direct_access");
    let selector = Selector::builder().fetcher(plain).sink(Arc::clone(&journal)).build()?;
    journal::load(dir.path(), &selector, Timestamp::now())?;
    let client = Arc::new(HttpFetcher::builder().guard(guard).user_agent("politebot/1.0").build()?);
    let robots = RobotsTxt::new(Arc::clone(&client) as _, "politebot");
    let pipeline = Crawl::pipeline(Arc::new(selector)).fetcher(client).robots(robots).build()?;

    let mut print = |result: CrawlResult<'_>| -> Result<(), Box<dyn Error>> {
        match result {
            CrawlResult::Fetched { report, .. } if report.success => {
                println!("{}: {} bytes", report.url, report.bytes)
            }
            CrawlResult::Fetched { report, .. } => {
                println!("{}: {:?}", report.url, report.error_type)
            }
            CrawlResult::Invalid { error, .. } => println!("no link: {error}"),
        }
        Ok(())
    };
    let crawl = Crawl::open(CrawlSpec::default().urls(urls).ordered())?;
    let summary = crawl.run(Arc::new(pipeline), journal, &mut print).await?;
    println!("{} delivered with {} requests", summary.totals.delivered, summary.totals.requests);
    Ok(())
}
