//! The traffic of all measurements: sites with a section and pages, each fetched by two fetchers.

use std::fmt::Write as _;

use fetchwise::attempt::Attempt;
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::response::Header;
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;
use url::Url;

use crate::measure::Random;

/// The fetchers.
pub(crate) const FETCHERS: [&str; 2] = ["direct_access", "playwright"];

/// The shape of the last segment of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// No suffix: `/section3/page-17`.
    Plain,
    /// `.html`, a page.
    Html,
    /// `.pdf`, a file.
    Pdf,
}

impl Shape {
    pub(crate) const ALL: [(&str, Self); 3] =
        [("plain", Self::Plain), ("html", Self::Html), ("pdf", Self::Pdf)];

    fn suffix(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Html => ".html",
            Self::Pdf => ".pdf",
        }
    }
}

/// Writes the address of a page of site `site` into `out`. A site has one section.
pub(crate) fn write_url(out: &mut String, site: usize, page: usize, shape: Shape) {
    out.clear();
    let _ =
        write!(out, "https://www.site{site}.org/section{}/page-{page}{}", site % 7, shape.suffix());
}

pub(crate) fn url(site: usize, page: usize, shape: Shape) -> Url {
    let mut text = String::new();
    write_url(&mut text, site, page, shape);
    Url::parse(&text).unwrap()
}

/// Returns an attempt at a page of `site`. Plain HTTP works for most sites; each seventh needs the
/// browser.
pub(crate) fn attempt(
    site: usize,
    page: usize,
    fetcher: usize,
    shape: Shape,
    now: Timestamp,
) -> Attempt {
    let attempt = Attempt::new(&url(site, page, shape), FETCHERS[fetcher], now).unwrap();
    ended(attempt, site, fetcher)
}

fn ended(mut attempt: Attempt, site: usize, fetcher: usize) -> Attempt {
    attempt.duration_ms = 120 + (site % 100) as u64;
    let fails = fetcher == 0 && site.is_multiple_of(7);
    if fails { attempt.failed(ErrorKind::WrongTool) } else { attempt.delivered() }
}

/// Returns an attempt at a page whose URL has little in common with the others, with response
/// headers: a crawl of many sites that keeps headers.
pub(crate) fn diverse(n: usize, now: Timestamp) -> Attempt {
    const SYLLABLES: [&str; 16] = [
        "ba", "ren", "co", "dri", "el", "fos", "ga", "hum", "in", "jor", "ka", "lu", "mar", "net",
        "or", "pra",
    ];
    let mut random = Random(n as u64);
    let mut word = |least: usize| -> String {
        let count = least + random.below(2);
        (0..count).map(|_| SYLLABLES[random.below(SYLLABLES.len())]).collect()
    };
    let (host, section, slug) = (word(3), word(2), [word(2), word(1), word(3)].join("-"));
    let page = Random(!(n as u64)).next() >> 24;
    let url =
        Url::parse(&format!("https://www.{host}.com/{section}/{slug}-{page:x}.html")).unwrap();
    let at = Timestamp::from_millis(now.as_millis() - (n as i64) * 40);
    let mut attempt = ended(Attempt::new(&url, FETCHERS[n % 2], at).unwrap(), n, n % 2);
    attempt.response_headers =
        vec![Header::new("server", ["nginx", "cloudflare", "Apache"][n % 3])];
    if n % 3 == 1 {
        attempt.response_headers.push(Header::new("cf-ray", format!("{page:x}-FRA")));
    }
    attempt
}

/// Returns attempts at sites in random order.
pub(crate) fn pool(count: usize, sites: usize, now: Timestamp) -> Vec<Attempt> {
    let mut random = Random(3);
    (0..count)
        .map(|page| attempt(random.below(sites), page, random.below(2), Shape::Plain, now))
        .collect()
}

/// Makes `selector` observe one attempt by each fetcher at each of `sites`.
pub(crate) fn teach(
    selector: &Selector,
    sites: std::ops::Range<usize>,
    shape: Shape,
    now: Timestamp,
) {
    for site in sites {
        for fetcher in 0..FETCHERS.len() {
            selector.observe(&attempt(site, site, fetcher, shape, now));
        }
    }
}

/// Returns a selector with evidence of `sites` sites.
pub(crate) fn warm(sites: usize, now: Timestamp) -> Selector {
    let selector = Selector::builder().without_pace().build().unwrap();
    std::thread::scope(|scope| {
        let (half, shared) = (sites / 2, &selector);
        scope.spawn(move || teach(shared, 0..half, Shape::Plain, now));
        teach(&selector, half..sites, Shape::Plain, now);
    });
    selector
}
