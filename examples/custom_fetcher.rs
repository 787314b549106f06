//! A custom fetcher: pages that were saved earlier, tried before the network. The pages come from
//! no host, so the selector keeps no pace.
//!
//! `cargo run --example custom_fetcher --features pipeline`

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fetchwise::Selector;
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::fetch::{Body, FetchError, FetchFuture, Fetcher, Request, Response};
use fetchwise::pipeline::{Link, Pipeline};
use fetchwise::registry::{Class, FetcherSpec};
use fetchwise::response::Header;

/// Pages by URL.
struct Saved {
    name: &'static str,
    pages: HashMap<String, String>,
}

impl Fetcher for Saved {
    fn name(&self) -> &str {
        self.name
    }

    fn renders(&self) -> bool {
        // The saved pages were rendered by a browser.
        true
    }

    fn fetch<'a>(&'a self, request: Request<'a>) -> FetchFuture<'a> {
        Box::pin(async move {
            let missing = || {
                FetchError::new(ErrorKind::EmptyContent, "this page was not saved", Duration::ZERO)
            };
            let page = self.pages.get(request.url.as_str()).ok_or_else(missing)?;
            Ok(Response::new(
                200,
                vec![Header::new("Content-Type", "text/html")],
                Body::in_memory(page.clone()),
                request.url.clone(),
            ))
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = |n: usize| format!("https://library.example/books/{n}");
    let page = |n: usize| {
        (url(n), format!("<title>Book {n}</title><p>{}", "A sentence of the book. ".repeat(30)))
    };
    let morning = Saved { name: "morning", pages: (1..=3).map(page).collect() };
    let evening = Saved { name: "evening", pages: (2..=6).map(page).collect() };

    // The class sets the defaults of cost and chance; both can be set instead.
    let cheap = FetcherSpec { cost: 1.0, ..FetcherSpec::new("morning", Class::Archive) };
    let dear = FetcherSpec { cost: 3.0, ..FetcherSpec::new("evening", Class::Archive) };
    let selector =
        Arc::new(Selector::builder().without_pace().fetcher(cheap).fetcher(dear).build()?);
    let pipeline = Pipeline::builder(Arc::clone(&selector))
        .fetcher(Arc::new(morning))
        .fetcher(Arc::new(evening))
        .build()?;
    for n in 1..=7 {
        let report = pipeline.fetch(&Link::new(url(n))).await;
        let fetcher = report.fetcher.unwrap_or_default();
        match report.success {
            true => println!(
                "{}: {} bytes by {fetcher} ({} requests)",
                report.url, report.bytes, report.requests
            ),
            false => println!(
                "{}: {} ({} requests)",
                report.url,
                report.message.unwrap_or_default(),
                report.requests
            ),
        }
    }
    Ok(())
}
