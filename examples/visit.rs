//! A visit with a custom HTTP client, here a few lines over a TCP stream: the visit says what to
//! fetch and with which fetcher, the client fetches, the detector judges. The visits keep a pace:
//! each new host gets two requests per second, then as many as its responses allow.
//!
//! `cargo run --example visit`

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use fetchwise::Selector;
use fetchwise::detect::Detector;
use fetchwise::fetch_result::{FetchResult, Outcome};
use fetchwise::registry::FetcherSpec;
use fetchwise::visit::{End, Step};
use fetchwise_testsite::origin::{Origin, Site};
use url::Url;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let sites = [
        ("127.0.0.2", Site::Static),
        ("127.0.0.3", Site::captcha(403)),
        ("127.0.0.4", Site::rate_limited(120)),
    ];
    let origin = Origin::start(sites)?;
    let selector = Selector::builder()
        .fetcher(FetcherSpec::by_name("direct_access"))
        .fetcher(FetcherSpec::by_name("playwright_stealth"))
        .build()?;
    let detector = Detector::new();
    for host in ["127.0.0.2", "127.0.0.3", "127.0.0.4"] {
        for n in 1..=3 {
            let url = Url::parse(&origin.url(host, &format!("/page/{n}")))?;
            println!("{url}");
            let end = visit(&selector, &detector, &url)?;
            let delivered = if end.is_delivered() { "delivered" } else { &end.message };
            println!("  {delivered}, {} requests", end.requests);
        }
    }
    Ok(())
}

/// Drives one URL to its end.
fn visit(selector: &Selector, detector: &Detector, url: &Url) -> Result<End, fetchwise::Error> {
    let mut visit = selector.visit(url)?;
    loop {
        match visit.next() {
            Step::Fetch(fetch) => {
                println!("  {} ({})", fetch.fetcher(), fetch.decision().source);
                // A redirect written in HTML leads to another address than the visit's own.
                let answer = match get(visit.url(), fetch.fetcher(), fetch.deadline()) {
                    Ok(response) => response.judge(detector),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        Outcome::Timeout.into()
                    }
                    Err(error) => {
                        FetchResult::from(Outcome::Network).with_message(error.to_string())
                    }
                };
                visit.report(fetch, answer);
            }
            Step::Wait(wait) => wait.block(Duration::from_secs(1)),
            Step::End(end) => return Ok(end),
        }
    }
}

/// A response in parts.
struct Response {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Response {
    fn judge(&self, detector: &Detector) -> FetchResult {
        detector.judge(
            self.status,
            self.headers.iter().map(|(name, value)| (name, value)),
            &self.body,
        )
    }
}

/// The HTTP client. Its second fetcher differs from the first by its `User-Agent` alone, which is
/// enough for this server.
fn get(url: &Url, fetcher: &str, deadline: Duration) -> io::Result<Response> {
    let agent = if fetcher == "playwright_stealth" { "stealth" } else { "plain" };
    let address = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or(80));
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(deadline))?;
    // HTTP/1.0: the body ends with the connection.
    write!(
        stream,
        "GET {} HTTP/1.0\r\nHost: {}\r\nUser-Agent: {agent}\r\n\r\n",
        url.path(),
        address.0
    )?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    parse(&bytes).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "this is not HTTP"))
}

fn parse(bytes: &[u8]) -> Option<Response> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..end]);
    let mut lines = head.lines();
    let status = lines.next()?.split_whitespace().nth(1)?.parse().ok()?;
    let headers = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(n, v)| (n.to_owned(), v.to_owned()))
        .collect();
    Some(Response { status, headers, body: bytes[end + 4..].to_vec() })
}
