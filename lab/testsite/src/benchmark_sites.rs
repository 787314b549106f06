//! Sites on which crawlers are compared: the kinds of site, the check for a good page, and the
//! score of a crawler.
//!
//! Owns: the list of kinds and the score.
//!
//! Invariants: requests and blocks are the counts of the sites. Whether a page is good is decided
//! here by the submitted text, never by a claim of the crawler.
//!
//! The [submission server](crate::submission_server) offers the sites to crawlers over HTTP.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use url::{Position, Url};

use crate::origin::{Certificate, Challenge, Origin, Site, Tally, VerifiedBots};

/// Cost of a rendered page, in plain requests.
pub const RENDER_COST: u64 = 20;
/// Maximum number of sites, because each needs its own loopback address.
pub const MAX_SITES: usize = 200;

/// The behaviour of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SiteKind {
    /// Articles.
    Static,
    /// An application: no content without scripts.
    Shell,
    /// A Cloudflare-like challenge with status 403 that lets user agents with the word `stealth`
    /// pass.
    Cloudflare,
    /// A DataDome-like challenge with status 403 that lets the same user agents pass.
    Datadome,
    /// A challenge with status 200 that no rule names and that lets the same user agents pass.
    Sly,
    /// 40 pages per ten seconds, then 429 with `Retry-After`.
    Limited,
    /// A heading and one sentence.
    Short,
    /// A stub that redirects in HTML.
    Redirect,
    /// Articles at first; an application after requests for half as many pages as are listed.
    Drift,
    /// Articles after one second.
    Slow,
    /// Articles, and 503 for every fourth request.
    Flaky,
    /// Articles, and a connection reset for every fifth request.
    Broken,
    /// Articles whose links lead ever deeper, into paths that robots.txt forbids.
    Trap,
    /// 403 for every request.
    Forbidden,
    /// 404 for every request.
    Gone,
    /// 403 with `crawler-error: CrawlerForbidden` for every request.
    Declined,
    /// 402 with `crawler-price` for every request.
    Toll,
    /// Articles that robots.txt and each page reserve against training:
    /// `Content-Usage: train-ai=n`.
    Reserved,
    /// Articles with `ETag` and `Last-Modified`, and 304 for a client that has the current version.
    Validators,
    /// Articles for known bots that sign their requests and for user agents with the word
    /// `stealth`; a Cloudflare-like challenge with status 403 for everybody else.
    Verified,
}

impl SiteKind {
    /// All kinds, with the default number of sites of each.
    pub const ALL: [(Self, usize); 20] = [
        (Self::Static, 6),
        (Self::Shell, 2),
        (Self::Cloudflare, 1),
        (Self::Datadome, 1),
        (Self::Sly, 1),
        (Self::Limited, 2),
        (Self::Short, 1),
        (Self::Redirect, 1),
        (Self::Drift, 1),
        (Self::Slow, 1),
        (Self::Flaky, 1),
        (Self::Broken, 1),
        (Self::Trap, 1),
        (Self::Forbidden, 1),
        (Self::Gone, 1),
        // Served when the plan names them: the default sites stay comparable over time.
        (Self::Declined, 0),
        (Self::Toll, 0),
        (Self::Reserved, 0),
        (Self::Validators, 0),
        (Self::Verified, 0),
    ];

    /// Returns whether any client can get pages there.
    pub const fn has_pages(self) -> bool {
        !matches!(self, Self::Forbidden | Self::Gone | Self::Declined | Self::Toll)
    }

    fn site(self, pages: u32, bots: &VerifiedBots) -> Site {
        let challenge = |challenge, status| Site::Captcha {
            challenge,
            status,
            admits: Some("stealth".to_owned()),
            behind: Box::new(Site::Static),
        };
        let site = match self {
            Self::Static => Site::Static,
            Self::Shell => Site::ReactShell,
            Self::Cloudflare => challenge(Challenge::Cloudflare, 403),
            Self::Datadome => challenge(Challenge::DataDome, 403),
            Self::Sly => challenge(Challenge::Unlisted, 200),
            Self::Limited => Site::quota(40, Duration::from_secs(10)),
            Self::Short => Site::Short,
            Self::Redirect => Site::HtmlRedirect,
            Self::Drift => Site::drifting(u64::from(pages / 2), Site::ReactShell),
            Self::Slow => Site::slow(Duration::from_secs(1)),
            Self::Flaky => Site::flaky(4),
            Self::Broken => Site::Flaky {
                every: 5,
                failing: Box::new(Site::Reset),
                otherwise: Box::new(Site::Static),
            },
            Self::Trap => Site::Trap,
            Self::Forbidden => Site::FORBIDDEN,
            Self::Gone => Site::NOT_FOUND,
            Self::Declined => Site::Declined,
            Self::Toll => Site::Toll { price: "USD 0.01".to_owned() },
            Self::Reserved => Site::reserved("train-ai"),
            Self::Validators => Site::Validators { max_age: None, version: 0 },
            Self::Verified => Site::verified(bots.clone()),
        };
        Site::CountRenders(Box::new(site))
    }

    /// Returns the path of the content that a crawler gets in the end when it starts at `path`.
    fn content_of(self, path: &str) -> String {
        if self == Self::Redirect { format!("/now{path}") } else { path.to_owned() }
    }
}

/// A number of sites of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SitePlan {
    /// SiteKind of the sites.
    pub kind: SiteKind,
    /// Number of sites.
    #[serde(default = "one")]
    pub count: usize,
    /// Listed pages per site; `None` uses the number given for all sites.
    pub pages: Option<u32>,
}

fn one() -> usize {
    1
}

/// Returns the sites that are served by default.
pub fn default_plans() -> Vec<SitePlan> {
    SiteKind::ALL.into_iter().map(|(kind, count)| SitePlan { kind, count, pages: None }).collect()
}

/// A page that a crawler submits.
#[derive(Clone, Debug, Deserialize)]
pub struct SubmittedPage {
    /// The link, as it was listed.
    pub url: String,
    /// The content that the crawler extracted, as text or HTML.
    pub text: String,
}

/// Results of a crawl, for one kind of site or all sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Score {
    /// Listed pages.
    pub listed: u64,
    /// Listed pages that a client can get.
    pub servable: u64,
    /// Listed pages whose content the site has sent.
    pub sent: u64,
    /// Submitted pages with the right content.
    pub good: u64,
    /// Submitted pages without it: a block page, a shell or an error page.
    pub wrong: u64,
    /// Requests of every kind.
    pub requests: u64,
    /// Requests that got 401, 403, 429 or a block page.
    pub blocked: u64,
    /// Rendered pages.
    pub renders: u64,
    /// Total cost: 1 per page request, or [`RENDER_COST`] if the page was rendered.
    pub cost: u64,
}

impl Score {
    fn add(&mut self, other: &Self) {
        let Self { listed, servable, sent, good, wrong, requests, blocked, renders, cost } = other;
        self.listed += listed;
        self.servable += servable;
        self.sent += sent;
        self.good += good;
        self.wrong += wrong;
        self.requests += requests;
        self.blocked += blocked;
        self.renders += renders;
        self.cost += cost;
    }

    /// Returns the good pages per cost of 100 plain requests.
    pub fn good_per_hundred(&self) -> f64 {
        if self.cost == 0 { 0.0 } else { self.good as f64 * 100.0 / self.cost as f64 }
    }
}

/// Scores by kind of site, and in total.
#[derive(Clone, Debug, Serialize)]
pub struct Ledger {
    /// Scores by kind.
    pub kinds: BTreeMap<SiteKind, Score>,
    /// Total score.
    pub total: Score,
    /// Submitted pages whose URL is not listed.
    pub unlisted: u64,
}

#[derive(Debug)]
struct BenchmarkSite {
    host: String,
    kind: SiteKind,
    paths: Vec<String>,
}

/// How the sites are served.
#[derive(Clone, Debug, Default)]
pub struct BenchmarkOptions {
    /// Over https, with HTTP/2 and HTTP/1.1.
    pub is_https: bool,
    /// The bots that sites of the kind [`SiteKind::Verified`] know.
    pub bots: VerifiedBots,
}

/// The benchmark sites while they are served.
#[derive(Debug)]
pub struct BenchmarkSites {
    sites: Vec<BenchmarkSite>,
    origin: Origin,
    authority: Option<String>,
    /// Whether each submitted page is good, by URL.
    submitted: Mutex<HashMap<String, bool>>,
    unlisted: Mutex<u64>,
}

impl BenchmarkSites {
    /// Serves the planned sites, each on its own loopback address. `seed` determines the paths that
    /// the sites list. `pages` is the number of pages per site, unless the plan gives another one.
    ///
    /// # Errors
    /// Fails without a site, with more than [`MAX_SITES`] sites, and when an address cannot be
    /// bound.
    pub fn start(plans: &[SitePlan], pages: u32, seed: u64) -> io::Result<Self> {
        Self::start_with(plans, pages, seed, &BenchmarkOptions::default())
    }

    /// Serves the planned sites as [`start`](Self::start) does, with `options`.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(
        plans: &[SitePlan],
        pages: u32,
        seed: u64,
        options: &BenchmarkOptions,
    ) -> io::Result<Self> {
        let count: usize = plans.iter().map(|plan| plan.count).sum();
        if !(1..=MAX_SITES).contains(&count) {
            let message = format!("invalid number of sites {count}: expected 1 to {MAX_SITES}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let all = plans.iter().flat_map(|plan| std::iter::repeat_n(plan, plan.count)).enumerate();
        let site = |(n, plan): (usize, &SitePlan)| {
            let host = format!("127.0.77.{}", n + 2);
            let section = xxhash_rust::xxh3::xxh3_64_with_seed(host.as_bytes(), seed) % 10_000;
            let paths = (1..=plan.pages.unwrap_or(pages))
                .map(|page| format!("/s{section}/{page}"))
                .collect();
            BenchmarkSite { host, kind: plan.kind, paths }
        };
        let sites: Vec<BenchmarkSite> = all.map(site).collect();
        let site = |site: &BenchmarkSite| {
            let pages = u32::try_from(site.paths.len()).unwrap_or(u32::MAX);
            (site.host.clone(), site.kind.site(pages, &options.bots))
        };
        let certificate = match options.is_https {
            true => Some(Certificate::new(sites.iter().map(|site| site.host.clone()))?),
            false => None,
        };
        let origin = match &certificate {
            Some(certificate) => Origin::start_tls(sites.iter().map(site), certificate)?,
            None => Origin::start(sites.iter().map(site))?,
        };
        let authority = certificate.as_ref().map(Certificate::authority_pem);
        Ok(Self {
            sites,
            origin,
            authority,
            submitted: Mutex::default(),
            unlisted: Mutex::default(),
        })
    }

    /// Returns the certificate of the authority that clients have to trust, as PEM, if the sites
    /// are served over https.
    pub fn authority_pem(&self) -> Option<&str> {
        self.authority.as_deref()
    }

    /// Returns all links in rounds: one page of each site, then the next page of each.
    pub fn links(&self) -> Vec<String> {
        let longest = self.sites.iter().map(|site| site.paths.len()).max().unwrap_or_default();
        (0..longest)
            .flat_map(|n| {
                self.sites.iter().filter_map(move |site| Some((site, site.paths.get(n)?)))
            })
            .map(|(site, path)| self.origin.url(&site.host, path))
            .collect()
    }

    /// Takes a page. A link that is submitted again replaces its earlier page.
    pub fn submit(&self, page: &SubmittedPage) {
        match self.is_good(page) {
            Some(is_good) => {
                let url = Url::parse(&page.url).map_or_else(|_| page.url.clone(), String::from);
                self.submitted.lock().unwrap_or_else(PoisonError::into_inner).insert(url, is_good);
            }
            None => *self.unlisted.lock().unwrap_or_else(PoisonError::into_inner) += 1,
        }
    }

    /// Returns whether the page has its link's content, or `None` if the link is not listed.
    fn is_good(&self, page: &SubmittedPage) -> Option<bool> {
        let (site, path) = self.find(&page.url)?;
        // Each page has a unique title, which no shell, block page or error page has.
        let title = Origin::title(&site.host, &site.kind.content_of(path));
        Some(site.kind.has_pages() && page.text.contains(&title))
    }

    fn find(&self, url: &str) -> Option<(&BenchmarkSite, &str)> {
        let url = Url::parse(url).ok()?;
        let site = self.sites.iter().find(|site| url.host_str() == Some(site.host.as_str()))?;
        let path = &url[Position::BeforePath..Position::AfterQuery];
        Some((site, site.paths.iter().find(|known| *known == path)?))
    }

    /// Returns the scores so far.
    pub fn ledger(&self) -> Ledger {
        let submitted = self.submitted.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kinds: BTreeMap<SiteKind, Score> = BTreeMap::new();
        for site in &self.sites {
            let Tally { requests, pages, blocked, renders, .. } = self.origin.tally(&site.host);
            let listed = site.paths.len() as u64;
            let sent =
                |path: &&String| self.origin.has_sent(&site.host, &site.kind.content_of(path));
            let mut score = Score {
                listed,
                servable: if site.kind.has_pages() { listed } else { 0 },
                sent: site.paths.iter().filter(sent).count() as u64,
                requests,
                blocked,
                renders,
                cost: pages + renders * (RENDER_COST - 1),
                ..Score::default()
            };
            for path in &site.paths {
                match submitted.get(&self.origin.url(&site.host, path)) {
                    Some(true) => score.good += 1,
                    Some(false) => score.wrong += 1,
                    None => {}
                }
            }
            kinds.entry(site.kind).or_default().add(&score);
        }
        let mut total = Score::default();
        kinds.values().for_each(|score| total.add(score));
        Ledger {
            kinds,
            total,
            unlisted: *self.unlisted.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    fn get(url: &str, agent: &str) -> String {
        let url = Url::parse(url).unwrap();
        let mut stream =
            TcpStream::connect((url.host_str().unwrap(), url.port().unwrap())).unwrap();
        write!(
            stream,
            "GET {} HTTP/1.0\r\nHost: {}\r\nUser-Agent: {agent}\r\n\r\n",
            url.path(),
            url.host().unwrap()
        )
        .unwrap();
        let mut respond = Vec::new();
        let _ = stream.read_to_end(&mut respond);
        String::from_utf8_lossy(&respond).into_owned()
    }

    #[test]
    fn pages_of_a_plain_client_are_scored_by_kind() {
        let plan = |(kind, _)| SitePlan { kind, count: 1, pages: Some(2) };
        let kinds = SiteKind::ALL
            .into_iter()
            .filter(|(kind, _)| !matches!(kind, SiteKind::Broken | SiteKind::Slow));
        let sites = BenchmarkSites::start(&kinds.map(plan).collect::<Vec<_>>(), 9, 1).unwrap();
        for link in sites.links() {
            let text = get(&link, "plain");
            sites.submit(&SubmittedPage { url: link, text });
        }
        sites.submit(&SubmittedPage {
            url: "http://127.0.77.2/unheard".to_owned(),
            text: String::new(),
        });
        let ledger = sites.ledger();
        let good = |kind| (ledger.kinds[&kind].good, ledger.kinds[&kind].wrong);
        for kind in [
            SiteKind::Static,
            SiteKind::Limited,
            SiteKind::Short,
            SiteKind::Flaky,
            SiteKind::Trap,
            SiteKind::Reserved,
            SiteKind::Validators,
        ] {
            assert_eq!(good(kind), (2, 0), "{kind:?}");
        }
        for kind in [
            SiteKind::Shell,
            SiteKind::Cloudflare,
            SiteKind::Datadome,
            SiteKind::Sly,
            SiteKind::Redirect,
            SiteKind::Gone,
            SiteKind::Declined,
            SiteKind::Toll,
            SiteKind::Verified,
        ] {
            assert_eq!(good(kind), (0, 2), "{kind:?}");
        }
        assert_eq!(good(SiteKind::Drift), (1, 1));
        for kind in [
            SiteKind::Cloudflare,
            SiteKind::Datadome,
            SiteKind::Sly,
            SiteKind::Forbidden,
            SiteKind::Declined,
            SiteKind::Verified,
        ] {
            assert_eq!(ledger.kinds[&kind].blocked, 2, "{kind:?}");
        }
        assert_eq!((ledger.total.blocked, ledger.total.renders, ledger.unlisted), (12, 0, 1));
        assert_eq!((ledger.total.cost, ledger.total.servable), (36, 28));
        let stealth = get(&sites.links()[3], "stealth");
        sites.submit(&SubmittedPage { url: sites.links()[3].clone(), text: stealth });
        assert_eq!(
            sites.ledger().kinds[&SiteKind::Datadome].good,
            1,
            "a page that is submitted again replaces the first one"
        );
    }

    #[test]
    fn the_seed_changes_the_paths() {
        let plans = [SitePlan { kind: SiteKind::Static, count: 1, pages: None }];
        let paths = |seed| {
            let sites = BenchmarkSites::start(&plans, 3, seed).unwrap();
            sites
                .links()
                .iter()
                .map(|link| Url::parse(link).unwrap().path().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(paths(1), paths(1));
        assert_ne!(paths(1), paths(2));
        assert!(BenchmarkSites::start(&[], 3, 1).is_err());
    }
}
