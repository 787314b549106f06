//! spider on the testbed, in its smart mode, which makes plain requests and renders when needed.
//!
//! It follows links and takes no list, so each listed page is a crawl of one page.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;

use spider::tokio;
use spider::tokio::sync::Semaphore;
use spider::website::Website;

/// Parallel pages.
const AT_ONCE: usize = 8;
/// Below the maximum size of a submission.
const BATCH: usize = 900_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let listed = ureq::get(std::env::var("LINKS")?).call()?.body_mut().read_to_string()?;
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut crawls = tokio::task::JoinSet::new();
    for link in listed.split_whitespace().map(str::to_owned) {
        let places = Arc::clone(&places);
        crawls.spawn(async move {
            let _place = places.acquire().await;
            (page(&link).await).map(|text| (link, text))
        });
    }
    let mut pages = HashMap::new();
    while let Some(found) = crawls.join_next().await {
        pages.extend(found?);
    }
    hand_in(&pages)
}

/// Returns the page of a link, if there is one.
async fn page(link: &str) -> Option<String> {
    let mut website = Website::new(link);
    website.with_respect_robots_txt(true).with_limit(1);
    let mut arriving = website.subscribe(4);
    website.crawl_smart().await;
    website.unsubscribe();
    let page = arriving.try_recv().ok()?;
    // spider does not count a failed response as a page either.
    page.status_code.is_success().then(|| page.get_html())
}

fn hand_in(pages: &HashMap<String, String>) -> Result<(), Box<dyn Error + Send + Sync>> {
    let there = std::env::var("PAGES")?;
    let mut batch = String::new();
    for (url, text) in pages {
        let line = serde_json::json!({ "url": url, "text": text }).to_string();
        if batch.len() + line.len() > BATCH {
            ureq::post(&there).send(&std::mem::take(&mut batch))?;
        }
        batch.push_str(&line);
        batch.push('\n');
    }
    ureq::post(&there).send(&batch)?;
    Ok(())
}
