//! spider on the town, in its smart mode, which asks plainly and renders what needs it: one `Website` a site, as its guide has it.
//!
//! It gets the links of each site before it begins and is kept to them, as the other crawlers are.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;

use spider::compact_str::CompactString;
use spider::hashbrown::HashSet;
use spider::website::Website;
use spider::{CaseInsensitiveString, tokio, url::Url};

/// Below what the town takes at once.
const BATCH: usize = 900_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let listed = ureq::get(std::env::var("LINKS")?).call()?.body_mut().read_to_string()?;
    let mut sites: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for link in listed.split_whitespace() {
        sites.entry(Url::parse(link)?.authority().to_owned()).or_default().push(link.to_owned());
    }
    let mut crawls = tokio::task::JoinSet::new();
    for links in sites.into_values() {
        crawls.spawn(site(links));
    }
    let mut pages = HashMap::new();
    while let Some(found) = crawls.join_next().await {
        pages.extend(found?);
    }
    hand_in(&pages)
}

/// What came of each link of a site.
async fn site(links: Vec<String>) -> HashMap<String, String> {
    let mut website = Website::new(&links[0]);
    website.with_respect_robots_txt(true).with_whitelist_url(Some(links.iter().map(CompactString::from).collect()));
    let rest: HashSet<CaseInsensitiveString> =
        links.iter().skip(1).map(|link| CaseInsensitiveString::new(link)).collect();
    website.set_extra_links(rest);
    let mut arriving = website.subscribe(links.len() * 2);
    let taken = tokio::spawn(async move {
        let mut pages = HashMap::new();
        while let Ok(page) = arriving.recv().await {
            // What failed is not a page to it either.
            if page.status_code.is_success() && links.iter().any(|link| link == page.get_url()) {
                pages.insert(page.get_url().to_owned(), page.get_html());
            }
        }
        pages
    });
    website.crawl_smart().await;
    website.unsubscribe();
    drop(website);
    taken.await.unwrap_or_default()
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
