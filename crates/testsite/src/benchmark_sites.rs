//! A town to compare crawlers on: which sites there are, what a good page of each is, and how a crawler did.
//!
//! Owns the list of kinds and the score. Invariant: what was asked and refused is what the sites have counted, and what is good is
//! decided here by the text that a crawler hands in, never by what it says of it. `hall` is where crawlers meet it over HTTP.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use url::{Position, Url};

use crate::origin::{Origin, Site, Tally, Wall};

/// What a rendered page costs, in plain requests.
pub const RENDER_COST: u64 = 20;
/// Sites that a town can have: each has a loopback address of its own.
pub const SITES_MAX: usize = 200;

/// What a site is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// Articles.
    Static,
    /// An application: nothing to read without scripts.
    Shell,
    /// A wall in Cloudflare's manner with status 403, open to user agents with the word `stealth`.
    Cloudflare,
    /// The same in DataDome's manner.
    Datadome,
    /// A wall with status 200 that no rule names, open to the same.
    Sly,
    /// 40 pages in ten seconds, 429 with `Retry-After` for who asks for more.
    Limited,
    /// A heading and a sentence.
    Short,
    /// A stub that leads on in HTML.
    Redirect,
    /// Articles at first; an application once half as many pages as are listed were asked for.
    Drift,
    /// Articles after a second.
    Slow,
    /// Articles, and 503 for every fourth request.
    Flaky,
    /// Articles, and a reset connection for every fifth request.
    Broken,
    /// Articles whose links lead ever deeper, where robots.txt forbids to go.
    Trap,
    /// 403 for everybody.
    Forbidden,
    /// 404 for everybody.
    Gone,
}

impl Kind {
    /// All of them, with how many of each the usual town has.
    pub const ALL: [(Self, usize); 15] = [
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
    ];

    /// Whether anybody can get pages there.
    pub const fn has_pages(self) -> bool {
        !matches!(self, Self::Forbidden | Self::Gone)
    }

    fn site(self, pages: u32) -> Site {
        let wall = |wall, status| Site::Captcha {
            wall,
            status,
            admits: Some("stealth".to_owned()),
            behind: Box::new(Site::Static),
        };
        let site = match self {
            Self::Static => Site::Static,
            Self::Shell => Site::ReactShell,
            Self::Cloudflare => wall(Wall::Cloudflare, 403),
            Self::Datadome => wall(Wall::DataDome, 403),
            Self::Sly => wall(Wall::Unlisted, 200),
            Self::Limited => Site::quota(40, Duration::from_secs(10)),
            Self::Short => Site::Short,
            Self::Redirect => Site::HtmlRedirect,
            Self::Drift => Site::drifting(u64::from(pages / 2), Site::ReactShell),
            Self::Slow => Site::slow(Duration::from_secs(1)),
            Self::Flaky => Site::flaky(4),
            Self::Broken => Site::Flaky { every: 5, failing: Box::new(Site::Reset), otherwise: Box::new(Site::Static) },
            Self::Trap => Site::Trap,
            Self::Forbidden => Site::FORBIDDEN,
            Self::Gone => Site::NOT_FOUND,
        };
        Site::Watched(Box::new(site))
    }

    /// The path whose content a crawler has in the end that begins with `path`.
    fn content_of(self, path: &str) -> String {
        if self == Self::Redirect { format!("/now{path}") } else { path.to_owned() }
    }
}

/// Sites of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// What they are like.
    pub kind: Kind,
    /// How many there are.
    #[serde(default = "one")]
    pub count: usize,
    /// How many pages of each are listed; none: as many as everywhere.
    pub pages: Option<u32>,
}

fn one() -> usize {
    1
}

/// The town that is served unless somebody plans another one.
pub fn usual() -> Vec<Plan> {
    Kind::ALL.into_iter().map(|(kind, count)| Plan { kind, count, pages: None }).collect()
}

/// A page that a crawler hands in.
#[derive(Clone, Debug, Deserialize)]
pub struct HandedIn {
    /// The link, as it was listed.
    pub url: String,
    /// What the crawler takes for its content: text or HTML.
    pub text: String,
}

/// How a site, or the whole town, was crawled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Score {
    /// Pages that are listed.
    pub listed: u64,
    /// Those of them that anybody can get.
    pub servable: u64,
    /// Those whose content the site has sent.
    pub sent: u64,
    /// Pages handed in that have the content.
    pub good: u64,
    /// Pages handed in that have not: a wall, a shell, an error page.
    pub wrong: u64,
    /// Requests of every kind.
    pub requests: u64,
    /// Requests answered with 401, 403, 429 or a wall.
    pub blocked: u64,
    /// Pages rendered.
    pub renders: u64,
    /// What it cost: a page request counts one, and [`RENDER_COST`] where it was rendered.
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

    /// Good pages for what a hundred plain requests cost.
    pub fn good_per_hundred(&self) -> f64 {
        if self.cost == 0 { 0.0 } else { self.good as f64 * 100.0 / self.cost as f64 }
    }
}

/// The ledger: how each kind of site was crawled, and all together.
#[derive(Clone, Debug, Serialize)]
pub struct Ledger {
    /// By kind.
    pub kinds: BTreeMap<Kind, Score>,
    /// Together.
    pub total: Score,
    /// Pages handed in whose URL is on no list.
    pub unlisted: u64,
}

#[derive(Debug)]
struct Place {
    host: String,
    kind: Kind,
    paths: Vec<String>,
}

/// A town that is being served.
#[derive(Debug)]
pub struct Benchmark {
    places: Vec<Place>,
    origin: Origin,
    /// What was handed in, by URL: whether it is good.
    handed_in: Mutex<HashMap<String, bool>>,
    unlisted: Mutex<u64>,
}

impl Benchmark {
    /// Serves the planned sites on loopback addresses of their own. `seed` says which pages they list and in which order they stand;
    /// `pages` how many of each site, unless its plan says so.
    ///
    /// # Errors
    /// No site, or more than [`SITES_MAX`]; addresses that cannot be bound.
    pub fn start(plans: &[Plan], pages: u32, seed: u64) -> io::Result<Self> {
        let count: usize = plans.iter().map(|plan| plan.count).sum();
        if !(1..=SITES_MAX).contains(&count) {
            let message = format!("a town has 1 to {SITES_MAX} sites, not {count}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let all = plans.iter().flat_map(|plan| std::iter::repeat_n(plan, plan.count)).enumerate();
        let place = |(n, plan): (usize, &Plan)| {
            let host = format!("127.0.77.{}", n + 2);
            let section = xxhash_rust::xxh3::xxh3_64_with_seed(host.as_bytes(), seed) % 10_000;
            let paths = (1..=plan.pages.unwrap_or(pages)).map(|page| format!("/s{section}/{page}")).collect();
            Place { host, kind: plan.kind, paths }
        };
        let places: Vec<Place> = all.map(place).collect();
        let site = |place: &Place| {
            let pages = u32::try_from(place.paths.len()).unwrap_or(u32::MAX);
            (place.host.clone(), place.kind.site(pages))
        };
        let origin = Origin::start(places.iter().map(site))?;
        Ok(Self { places, origin, handed_in: Mutex::default(), unlisted: Mutex::default() })
    }

    /// All links, as a crawler meets them: one of each site, then the next of each.
    pub fn links(&self) -> Vec<String> {
        let longest = self.places.iter().map(|place| place.paths.len()).max().unwrap_or_default();
        (0..longest)
            .flat_map(|n| self.places.iter().filter_map(move |place| Some((place, place.paths.get(n)?))))
            .map(|(place, path)| self.origin.url(&place.host, path))
            .collect()
    }

    /// Takes a page. Handing in a link again takes the place of what came before.
    pub fn hand_in(&self, page: &HandedIn) {
        match self.is_good(page) {
            Some(is_good) => {
                let url = Url::parse(&page.url).map_or_else(|_| page.url.clone(), String::from);
                self.handed_in.lock().unwrap_or_else(PoisonError::into_inner).insert(url, is_good);
            }
            None => *self.unlisted.lock().unwrap_or_else(PoisonError::into_inner) += 1,
        }
    }

    /// Whether the page has its link's content; none for a link that is not listed.
    fn is_good(&self, page: &HandedIn) -> Option<bool> {
        let (place, path) = self.find(&page.url)?;
        // Each page has a title of its own, which no shell, wall or error page has.
        let title = Origin::title(&place.host, &place.kind.content_of(path));
        Some(place.kind.has_pages() && page.text.contains(&title))
    }

    fn find(&self, url: &str) -> Option<(&Place, &str)> {
        let url = Url::parse(url).ok()?;
        let place = self.places.iter().find(|place| url.host_str() == Some(place.host.as_str()))?;
        let path = &url[Position::BeforePath..Position::AfterQuery];
        Some((place, place.paths.iter().find(|known| *known == path)?))
    }

    /// What everybody was counted for so far.
    pub fn ledger(&self) -> Ledger {
        let handed_in = self.handed_in.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kinds: BTreeMap<Kind, Score> = BTreeMap::new();
        for place in &self.places {
            let Tally { requests, pages, blocked, renders, .. } = self.origin.tally(&place.host);
            let listed = place.paths.len() as u64;
            let sent = |path: &&String| self.origin.has_shown(&place.host, &place.kind.content_of(path));
            let mut score = Score {
                listed,
                servable: if place.kind.has_pages() { listed } else { 0 },
                sent: place.paths.iter().filter(sent).count() as u64,
                requests,
                blocked,
                renders,
                cost: pages + renders * (RENDER_COST - 1),
                ..Score::default()
            };
            for path in &place.paths {
                match handed_in.get(&self.origin.url(&place.host, path)) {
                    Some(true) => score.good += 1,
                    Some(false) => score.wrong += 1,
                    None => {}
                }
            }
            kinds.entry(place.kind).or_default().add(&score);
        }
        let mut total = Score::default();
        kinds.values().for_each(|score| total.add(score));
        Ledger { kinds, total, unlisted: *self.unlisted.lock().unwrap_or_else(PoisonError::into_inner) }
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
        let mut stream = TcpStream::connect((url.host_str().unwrap(), url.port().unwrap())).unwrap();
        write!(stream, "GET {} HTTP/1.0\r\nHost: {}\r\nUser-Agent: {agent}\r\n\r\n", url.path(), url.host().unwrap())
            .unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[test]
    fn what_a_plain_client_gets_of_each_kind_is_counted() {
        let plan = |(kind, _)| Plan { kind, count: 1, pages: Some(2) };
        let kinds = Kind::ALL.into_iter().filter(|(kind, _)| !matches!(kind, Kind::Broken | Kind::Slow));
        let town = Benchmark::start(&kinds.map(plan).collect::<Vec<_>>(), 9, 1).unwrap();
        for link in town.links() {
            let text = get(&link, "plain");
            town.hand_in(&HandedIn { url: link, text });
        }
        town.hand_in(&HandedIn { url: "http://127.0.77.2/unheard".to_owned(), text: String::new() });
        let ledger = town.ledger();
        let good = |kind| (ledger.kinds[&kind].good, ledger.kinds[&kind].wrong);
        for kind in [Kind::Static, Kind::Limited, Kind::Short, Kind::Flaky, Kind::Trap] {
            assert_eq!(good(kind), (2, 0), "{kind:?}");
        }
        for kind in [Kind::Shell, Kind::Cloudflare, Kind::Datadome, Kind::Sly, Kind::Redirect, Kind::Gone] {
            assert_eq!(good(kind), (0, 2), "{kind:?}");
        }
        assert_eq!(good(Kind::Drift), (1, 1));
        for kind in [Kind::Cloudflare, Kind::Datadome, Kind::Sly, Kind::Forbidden] {
            assert_eq!(ledger.kinds[&kind].blocked, 2, "{kind:?}");
        }
        assert_eq!((ledger.total.blocked, ledger.total.renders, ledger.unlisted), (8, 0, 1));
        assert_eq!((ledger.total.cost, ledger.total.servable), (26, 22));
        let stealth = get(&town.links()[3], "stealth");
        town.hand_in(&HandedIn { url: town.links()[3].clone(), text: stealth });
        assert_eq!(town.ledger().kinds[&Kind::Datadome].good, 1, "what is handed in again takes the first one's place");
    }

    #[test]
    fn the_seed_moves_the_pages() {
        let plans = [Plan { kind: Kind::Static, count: 1, pages: None }];
        let paths = |seed| {
            let town = Benchmark::start(&plans, 3, seed).unwrap();
            town.links().iter().map(|link| Url::parse(link).unwrap().path().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(paths(1), paths(1));
        assert_ne!(paths(1), paths(2));
        assert!(Benchmark::start(&[], 3, 1).is_err());
    }
}
