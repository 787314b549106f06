//! A complete crawler in one file, on the visit: a frontier with a queue for each host, every URL
//! once, robots.txt, links of every page, all cores. It crawls the demo sites on this machine:
//! first with one fetcher for all pages, as a crawler without fetchwise does, and then with
//! fetchwise choosing. The sites count the refused requests.
//!
//! `cargo run --release -p fetchwise-example-crawler -- [SECONDS]`
//!
//! Storing pages, and forgetting known URLs when memory gets short, are left out: fetchwise has no
//! part in them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fetchwise::Selector;
use fetchwise::detect::Detector;
use fetchwise::fetch::address_guard::{AddressGuard, parse_network};
use fetchwise::fetch::browser::{BrowserFetcher, BrowserOptions};
use fetchwise::fetch::dial::Dialer;
use fetchwise::fetch::http::HttpFetcher;
use fetchwise::fetch::{FetchError, Fetcher, Limits, Request, Response};
use fetchwise::fetch_result::{FetchResult, Outcome};
use fetchwise::registry::FetcherSpec;
use fetchwise::robots::Rules;
use fetchwise::time::Timestamp;
use fetchwise::visit::{Step, Visit};
use fetchwise_testsite::origin::{Origin, Site};
use tokio::sync::{OnceCell, Semaphore};
use url::{Position, Url};

/// Parallel requests to one host.
const PER_HOST: usize = 4;
/// Response time of a server. Without it, sites on this machine would measure the processors only.
const LATENCY: Duration = Duration::from_millis(100);
/// The crawler's name in robots.txt.
const AGENT: &str = "examplebot";

/// The choice of the fetcher for a page.
#[derive(Clone)]
enum Chooser {
    /// Always this one; every response with status 200 counts as a page.
    Always(&'static str),
    /// The selector's evidence.
    Fetchwise(Arc<Selector>, Arc<Detector>),
}

struct Crawler {
    chooser: Chooser,
    /// The fetchers, each with its maximum of parallel requests.
    fetchers: HashMap<&'static str, (Arc<dyn Fetcher>, Semaphore)>,
    limits: Limits,
    until: Instant,
    seen: Mutex<HashSet<String>>,
    hosts: Mutex<HashMap<String, Arc<Host>>>,
    counts: Counts,
}

struct Host {
    queue: Mutex<VecDeque<Url>>,
    rules: OnceCell<Rules>,
    /// Wakes its workers, one for each link.
    links: Semaphore,
}

#[derive(Default)]
struct Counts {
    good: AtomicU64,
    wrong: AtomicU64,
    renders: AtomicU64,
}

impl Crawler {
    /// Queues a link, unless it is known. A new host gets workers.
    fn add(self: &Arc<Self>, url: Url) {
        if !matches!(url.scheme(), "http" | "https")
            || !self
                .seen
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(url[..Position::AfterQuery].to_owned())
        {
            return;
        }
        let origin = url[..Position::BeforePath].to_owned();
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let host = hosts.entry(origin).or_insert_with(|| {
            let host = Arc::new(Host {
                queue: Mutex::default(),
                rules: OnceCell::new(),
                links: Semaphore::new(0),
            });
            for _ in 0..PER_HOST {
                tokio::spawn(Arc::clone(self).work(Arc::clone(&host)));
            }
            host
        });
        host.queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(url);
        host.links.add_permits(1);
    }

    /// Fetches one page of a host after the other.
    async fn work(self: Arc<Self>, host: Arc<Host>) {
        while let Ok(link) = host.links.acquire().await {
            link.forget();
            let Some(url) = host.queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
            else {
                continue;
            };
            let rules = host.rules.get_or_init(|| self.robots(&url)).await;
            if rules.forbids(&url).is_some() {
                continue;
            }
            if let Some(response) = self.get(&url).await {
                if Instant::now() > self.until {
                    return;
                }
                let body = response.body.head();
                // All pages of these sites contain it; a block and an application's shell do not.
                let is_good = body.windows(7).any(|text| text == b"Read on");
                let count = if is_good { &self.counts.good } else { &self.counts.wrong };
                count.fetch_add(1, Relaxed);
                for link in links(body, &response.final_url) {
                    self.add(link);
                }
            }
        }
    }

    async fn robots(&self, url: &Url) -> Rules {
        let there = url.join("/robots.txt").expect("a valid path");
        let answer = self.ask("direct_access", &there, self.limits.deadline).await;
        // Rules that cannot be read forbid everything.
        Rules::from_answer(&answer, AGENT, Timestamp::now())
    }

    /// Returns the page, with the fetcher that the visit chooses.
    async fn get(&self, url: &Url) -> Option<Response> {
        let (selector, detector) = match &self.chooser {
            Chooser::Always(name) => {
                let response = self.ask(name, url, self.limits.deadline).await.ok()?;
                return Some(response).filter(|response| response.status == 200);
            }
            Chooser::Fetchwise(selector, detector) => (selector, detector),
        };
        // This is the whole integration: the visit returns the next fetch, and takes its result.
        let mut visit = Visit::new(Arc::clone(selector), url.clone()).ok()?;
        let mut page = None;
        loop {
            match visit.next() {
                Step::Fetch(fetch) => {
                    let (asked, name) = (visit.url().clone(), fetch.fetcher().to_owned());
                    let answer = match self.ask(&name, &asked, fetch.deadline()).await {
                        Ok(response) => {
                            let answer = detector
                                .judge_with(&response.page(&asked), &[])
                                .with_duration(response.duration);
                            page = Some(response);
                            answer
                        }
                        Err(error) => {
                            FetchResult::from(Outcome::from(error.kind)).with_message(error.message)
                        }
                    };
                    visit.report(fetch, answer);
                }
                Step::Wait(mut wait) => {
                    let left = wait.until().since(Timestamp::now());
                    let _ = tokio::time::timeout(left, wait.notified()).await;
                }
                Step::End(end) => return page.filter(|_| end.is_delivered()),
            }
        }
    }

    async fn ask(&self, name: &str, url: &Url, deadline: Duration) -> Result<Response, FetchError> {
        let Some((fetcher, places)) = self.fetchers.get(name) else {
            return Err(FetchError::unavailable(name));
        };
        let _place = places.acquire().await;
        if fetcher.renders() {
            self.counts.renders.fetch_add(1, Relaxed);
        }
        let limits = Limits { deadline, ..self.limits.clone() };
        fetcher.fetch(Request::new(url, &limits)).await
    }
}

/// Returns the links of a page.
fn links(body: &[u8], base: &Url) -> Vec<Url> {
    let mut links = Vec::new();
    let each =
        lol_html::element!("a[href]", |element: &mut lol_html::html_content::Element<'_, '_>| {
            let there = element.get_attribute("href").and_then(|href| base.join(&href).ok());
            links.extend(there.map(|mut there| {
                there.set_fragment(None);
                there
            }));
            Ok(())
        });
    let settings = lol_html::RewriteStrSettings::new().append_element_content_handler(each);
    // Only HTML has links.
    let _ = lol_html::rewrite_str(&String::from_utf8_lossy(body), settings);
    links
}

/// Returns the demo sites: mostly plain pages, some applications, some blocks, some limits.
fn sites() -> Vec<(String, Site)> {
    let mut sites = vec![Site::Static; 8];
    sites.extend(vec![Site::ReactShell; 2]);
    sites.extend(vec![
        Site::captcha(403),
        Site::captcha(200),
        Site::FORBIDDEN,
        Site::quota(40, Duration::from_secs(10)),
    ]);
    let slow = |site| Site::Slow { wait: LATENCY, behind: Box::new(site) };
    (2..).zip(sites).map(|(n, site)| (format!("127.0.44.{n}"), slow(site))).collect()
}

type Fetchers = HashMap<&'static str, (Arc<dyn Fetcher>, Semaphore)>;

/// Returns a plain client, one that resembles a person's, and a browser.
fn fetchers() -> Result<Fetchers, Box<dyn std::error::Error>> {
    let mut guard = AddressGuard::default();
    guard.allow_network(parse_network("127.0.0.0/8")?);
    let plain = HttpFetcher::builder().guard(guard.clone()).build()?;
    let stealth = HttpFetcher::builder()
        .name("stealth_http")
        .guard(guard.clone())
        .user_agent("stealth")
        .build()?;
    let options = BrowserOptions { quiet: Duration::from_millis(150), ..BrowserOptions::default() };
    let browser = BrowserFetcher::new(BrowserFetcher::find(None)?, options, Dialer::new(guard))?;
    let tabs = browser.max_in_flight();
    Ok(HashMap::from([
        ("direct_access", (Arc::new(plain) as Arc<dyn Fetcher>, Semaphore::new(256))),
        ("stealth_http", (Arc::new(stealth) as Arc<dyn Fetcher>, Semaphore::new(64))),
        ("playwright", (Arc::new(browser) as Arc<dyn Fetcher>, Semaphore::new(tabs))),
    ]))
}

async fn crawl(
    what: &str,
    chooser: Chooser,
    time: Duration,
) -> Result<(), Box<dyn std::error::Error>> {
    let sites = sites();
    let origin = Origin::start(sites.clone())?;
    let crawler = Arc::new(Crawler {
        chooser,
        fetchers: fetchers()?,
        limits: Limits::default(),
        until: Instant::now() + time,
        seen: Mutex::default(),
        hosts: Mutex::default(),
        counts: Counts::default(),
    });
    for (host, _) in &sites {
        crawler.add(Url::parse(&origin.url(host, "/"))?);
    }
    tokio::time::sleep_until(crawler.until.into()).await;
    let blocked: u64 = sites.iter().map(|(host, _)| origin.refusals(host)).sum();
    let Counts { good, wrong, renders } = &crawler.counts;
    let (good, wrong, renders) = (good.load(Relaxed), wrong.load(Relaxed), renders.load(Relaxed));
    println!(
        "{what:<16} {good:>6} {:>8.1} {wrong:>6} {renders:>8} {blocked:>8}",
        good as f64 / time.as_secs_f64()
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(20), |text| text.parse())?;
    println!(
        "{:<16} {:>6} {:>8} {:>6} {:>8} {:>8}",
        "", "good", "per s", "wrong", "renders", "refused"
    );
    for name in ["direct_access", "playwright", "fetchwise"] {
        let chooser = match name {
            "fetchwise" => {
                let stealth = FetcherSpec {
                    renders: false,
                    ..FetcherSpec::stealth("stealth_http").cost(3.0)
                };
                let fetchers = [
                    FetcherSpec::by_name("direct_access"),
                    stealth,
                    FetcherSpec::by_name("playwright"),
                ];
                // The demo sites are on this machine and may be fetched at full speed.
                let builder = Selector::builder().without_pace();
                let selector = fetchers
                    .into_iter()
                    .fold(builder, |builder, spec| builder.fetcher(spec))
                    .build()?;
                Chooser::Fetchwise(Arc::new(selector), Arc::new(Detector::new()))
            }
            name => Chooser::Always(name),
        };
        // One runtime each, which ends what is still in flight.
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(crawl(name, chooser, Duration::from_secs(seconds)))?;
        runtime.shutdown_timeout(Duration::from_secs(5));
    }
    Ok(())
}
