//! A program that fetches with `reqwest`. It keeps its clients, cookies and proxies, and lets the
//! visit choose between the clients. Two clients stand for a cheap and an expensive one; a browser
//! or an unlocking service would be a third arm of `ask`. The visits keep a pace: each new host
//! gets two requests per second, then as many as its responses allow.
//!
//! `cargo run --example reqwest --features pipeline`
//!
//! This is not a middleware of `reqwest` or `tower`. A middleware wraps one client and sees one
//! request after the other; here the choice is which client makes the next request. So the visit
//! stands outside, and a client keeps its middleware.

use std::sync::Arc;
use std::time::Duration;

use fetchwise::Selector;
use fetchwise::detect::Detector;
use fetchwise::fetch_result::{FetchResult, Outcome};
use fetchwise::registry::FetcherSpec;
use fetchwise::response::{Header, Page};
use fetchwise::time::Timestamp;
use fetchwise::visit::{Step, Visit};
use fetchwise_testsite::origin::{Origin, Site};
use reqwest::Client;
use url::Url;

/// The rest of a page is not read.
const MAX_BODY: usize = 8 << 20;

struct Fetchwise {
    selector: Arc<Selector>,
    detector: Detector,
    plain: Client,
    stealth: Client,
}

struct Delivered {
    url: Url,
    status: u16,
    headers: Vec<Header>,
    body: Vec<u8>,
}

impl Fetchwise {
    fn new() -> Result<Self, Box<dyn std::error::Error>> {
        let stealth =
            FetcherSpec { renders: false, ..FetcherSpec::stealth("stealth_http").cost(3.0) };
        let selector = Selector::builder()
            .fetcher(FetcherSpec::by_name("direct_access"))
            .fetcher(stealth)
            .build()?;
        Ok(Self {
            selector: Arc::new(selector),
            detector: Detector::new(),
            plain: Client::builder().user_agent("examplebot/1.0").build()?,
            // The difference is up to you: a proxy, other headers, another TLS stack.
            stealth: Client::builder().user_agent("Mozilla/5.0 (stealth)").build()?,
        })
    }

    /// Replaces `client.get(url).send()`.
    async fn get(&self, url: &Url) -> Result<Delivered, String> {
        let mut visit = Visit::new(Arc::clone(&self.selector), url.clone())
            .map_err(|error| error.to_string())?;
        let mut page = Err(String::new());
        loop {
            match visit.next() {
                Step::Fetch(fetch) => {
                    let asked = visit.url().clone();
                    let response = self.ask(fetch.fetcher(), &asked, fetch.deadline()).await;
                    let answer = match &response {
                        Ok(delivered) => self.detector.judge_page(&Page {
                            url: Some(asked.as_str()),
                            final_url: Some(delivered.url.as_str()),
                            status: delivered.status,
                            headers: &delivered.headers,
                            body: &delivered.body,
                        }),
                        Err(error) if error.is_timeout() => Outcome::Timeout.into(),
                        Err(error) => {
                            FetchResult::from(Outcome::Network).with_message(error.to_string())
                        }
                    };
                    page = response.map_err(|error| error.to_string());
                    visit.report(fetch, answer);
                }
                // The host has had enough requests, or another visit tries it out.
                Step::Wait(mut wait) => {
                    let left = wait.until().since(Timestamp::now());
                    let _ = tokio::time::timeout(left, wait.notified()).await;
                }
                Step::End(end) if end.is_delivered() => return page,
                Step::End(end) => return Err(end.message),
            }
        }
    }

    async fn ask(
        &self,
        fetcher: &str,
        url: &Url,
        deadline: Duration,
    ) -> reqwest::Result<Delivered> {
        let client = if fetcher == "stealth_http" { &self.stealth } else { &self.plain };
        let mut response = client.get(url.clone()).timeout(deadline).send().await?;
        let text = |value: &reqwest::header::HeaderValue| {
            String::from_utf8_lossy(value.as_bytes()).into_owned()
        };
        let headers = response
            .headers()
            .iter()
            .map(|(name, value)| Header::new(name.as_str(), text(value)))
            .collect();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_BODY {
                body.truncate(MAX_BODY);
                break;
            }
        }
        Ok(Delivered {
            url: response.url().clone(),
            status: response.status().as_u16(),
            headers,
            body,
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // If reqwest is built with TLS but without a provider, the program names one.
    let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
    let sites = [
        ("127.0.0.2", Site::Static),
        ("127.0.0.3", Site::captcha(403)),
        ("127.0.0.4", Site::FORBIDDEN),
    ];
    let hosts = sites.clone().map(|(host, _)| host);
    let origin = Origin::start(sites)?;
    let fetchwise = Fetchwise::new()?;
    for host in hosts {
        for n in 1..=3 {
            let url = Url::parse(&origin.url(host, &format!("/page/{n}")))?;
            match fetchwise.get(&url).await {
                Ok(page) => println!("{host}  {}: {} bytes", page.status, page.body.len()),
                Err(why) => println!("{host}  {why}"),
            }
        }
        println!("{host}  asked {} times, refused {}", origin.hits(host), origin.refusals(host));
    }
    Ok(())
}
