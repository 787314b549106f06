//! The robots.txt rules of each origin, with their lifetime and a bound on their number.
//!
//! Invariants: of all concurrent callers that need the rules of one origin, one requests them.
//!
//! Must not know: how a request is made, and who obeys the rules.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use robotxt::{ANY_AGENT, Robots};
use tokio::sync::Mutex as AsyncMutex;
use url::{Position, Url};

use crate::fetch::{FetchError, Fetcher, Response};
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::consent::{MAX_ROBOTS_BYTES, RobotsGroup, RobotsTerms, Term};
use fetchwise_types::time::Timestamp;

/// Maximum number of redirects for a robots.txt.
pub const MAX_REDIRECTS: u32 = 5;
/// Bytes of a robots.txt that are read: the first 500 KiB count, and one more byte says whether the
/// last line is whole.
pub const MAX_READ: usize = MAX_ROBOTS_BYTES + 1;
/// Default name of this crawler in robots.txt.
pub const DEFAULT_AGENT: &str = "fetchwise";

/// Lifetime of the rules.
const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// Pause before an unreachable robots.txt is requested again.
const RETRY_PAUSE: Duration = Duration::from_secs(5 * 60);
/// Maximum number of origins with rules; beyond it, the least recently used ones are evicted.
const MAX_ORIGINS: usize = 10_000;
/// Maximum bytes of all rules.
const MAX_BYTES: usize = 64 << 20;

/// The rules of one origin's robots.txt for one crawler.
#[derive(Clone, Debug)]
pub struct Rules {
    robots: Robots,
    /// The name of the groups that the rules come from.
    group: Box<str>,
    /// The terms on which its pages may be used.
    terms: RobotsTerms,
    until: Timestamp,
    /// The reason if the rules are unknown.
    unknown: Option<Unknown>,
}

/// The reason why a robots.txt is unavailable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// Outcome of the request for it.
    pub kind: ErrorKind,
    /// Message for a person.
    pub message: String,
}

impl Rules {
    /// Parses a robots.txt for the crawler called `agent`, read at `now`.
    ///
    /// ```
    /// use fetchwise_fetchers::robots::Rules;
    /// use fetchwise_types::time::Timestamp;
    ///
    /// let text = b"User-agent: *\nDisallow: /private/\nCrawl-delay: 2";
    /// let rules = Rules::read(text, "fetchwise", Timestamp::now());
    /// let url = url::Url::parse("https://example.org/private/7").unwrap();
    /// assert_eq!(rules.forbids(&url).unwrap(), "Disallow: /private/ (User-agent: *)");
    /// assert_eq!(rules.crawl_delay(), Some(std::time::Duration::from_secs(2)));
    /// ```
    pub fn read(text: &[u8], agent: &str, now: Timestamp) -> Self {
        let group = RobotsGroup::read(text, agent);
        let robots = Robots::parse(&group.access_rules(), ANY_AGENT);
        Self {
            group: group.name().into(),
            terms: RobotsTerms::of(&group),
            ..Self::without_terms(robots, now, LIFETIME)
        }
    }

    fn without_terms(robots: Robots, now: Timestamp, lifetime: Duration) -> Self {
        let until = now.saturating_add(lifetime);
        Self {
            robots,
            group: ANY_AGENT.into(),
            terms: RobotsTerms::default(),
            until,
            unknown: None,
        }
    }

    /// Returns the rule that forbids `url`, as written in the file, with its group; `None` if the
    /// crawler may fetch it.
    pub fn forbids(&self, url: &Url) -> Option<String> {
        if self.robots.is_url_allowed(url) {
            return None;
        }
        let path = &url[Position::BeforePath..Position::AfterQuery];
        let rule = self.robots.matching_rule(path).map_or("/", |rule| rule.pattern());
        Some(format!("Disallow: {rule} (User-agent: {})", self.group))
    }

    /// Returns the terms on which `url` may be used.
    pub fn terms(&self, url: &Url) -> Vec<Term> {
        self.terms.at(&url[Position::BeforePath..Position::AfterQuery])
    }

    /// Returns the minimum time between two requests that the host asks for.
    pub fn crawl_delay(&self) -> Option<Duration> {
        self.robots.crawl_delay().filter(|delay| !delay.is_zero())
    }

    /// Returns the time at which the rules expire.
    pub fn until(&self) -> Timestamp {
        self.until
    }

    /// Returns why the rules are unavailable; then no page of the origin may be fetched.
    pub fn unknown(&self) -> Option<&Unknown> {
        self.unknown.as_ref()
    }

    /// Converts the response to a robots.txt request. A 4xx means that there are no rules. A 5xx, a
    /// 429, no response and one that was cut off leave the rules unknown, and then no page may be
    /// fetched for a while.
    pub fn from_answer(answer: &Result<Response, FetchError>, agent: &str, now: Timestamp) -> Self {
        let unknown = match answer {
            Ok(response) => match response.status {
                // The rules that are missing may forbid what the others allow.
                200..=299 if response.is_incomplete() => {
                    (ErrorKind::Truncated, "the file is incomplete".to_owned())
                }
                200..=299 => return Self::read(response.body.head(), agent, now),
                300..=428 | 430..=499 => {
                    return Self::without_terms(Robots::allow_all(), now, LIFETIME);
                }
                // "Not now" says nothing about the file.
                429 => (ErrorKind::RateLimited, "status 429".to_owned()),
                status => (ErrorKind::ServerError, format!("status {status}")),
            },
            // More than five redirects, or an invalid one: as if there were no file.
            Err(error) if error.kind == ErrorKind::RedirectLoop => {
                return Self::without_terms(Robots::allow_all(), now, LIFETIME);
            }
            Err(error) => (error.kind, error.message.clone()),
        };
        let (kind, message) = unknown;
        Self::unknown_until(now.saturating_add(RETRY_PAUSE), Unknown { kind, message })
    }

    /// Returns rules that are unknown until then, for this reason.
    pub fn unknown_until(until: Timestamp, why: Unknown) -> Self {
        Self {
            unknown: Some(why),
            ..Self::without_terms(Robots::disallow_all(), until, Duration::ZERO)
        }
    }

    fn bytes(&self) -> usize {
        const EACH: usize = size_of::<robotxt::Rule>();
        let rules: usize = self.robots.rules().iter().map(|rule| rule.pattern().len() + EACH).sum();
        let maps: usize =
            self.robots.sitemaps().iter().map(|url| url.as_str().len() + size_of::<Url>()).sum();
        size_of::<Self>() + rules + maps + self.terms.bytes()
    }
}

/// A cache of the rules of origins.
///
/// Rules are kept in memory for one day, for at most 10,000 origins and 64 MiB. Pass one to
/// `fetchwise::pipeline::PipelineBuilder::robots`.
pub struct RobotsTxt {
    fetcher: Arc<dyn Fetcher>,
    agent: String,
    cache: Mutex<RuleCache>,
}

#[derive(Default)]
struct RuleCache {
    origins: HashMap<Box<str>, Slot>,
    bytes: usize,
    /// Counts uses, to find the least recently used origins.
    uses: u64,
}

/// One origin. The holder of its turn requests the file; the others wait.
struct Slot {
    turn: Arc<AsyncMutex<()>>,
    rules: Option<Arc<Rules>>,
    used: u64,
}

impl fmt::Debug for RobotsTxt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RobotsTxt").field("agent", &self.agent).finish_non_exhaustive()
    }
}

impl RobotsTxt {
    /// Returns a cache that requests files with `fetcher`, which should be a plain one, and reads
    /// the rules for the crawler called `agent`, such as [`DEFAULT_AGENT`].
    pub fn new(fetcher: Arc<dyn Fetcher>, agent: impl Into<String>) -> Self {
        Self { fetcher, agent: agent.into(), cache: Mutex::default() }
    }

    /// Returns the name by which groups of rules are selected.
    pub fn agent(&self) -> &str {
        &self.agent
    }

    /// Returns the fetcher that requests robots.txt.
    pub fn fetcher(&self) -> &dyn Fetcher {
        &*self.fetcher
    }

    /// Returns the rules of `origin` if they are known and valid at `now`.
    pub fn known(&self, origin: &str, now: Timestamp) -> Option<Arc<Rules>> {
        let mut cache = self.lock();
        cache.uses += 1;
        let uses = cache.uses;
        let slot = cache.origins.get_mut(origin)?;
        slot.used = uses;
        slot.rules.clone().filter(|rules| rules.until > now)
    }

    /// Returns the lock for requests to `origin`: after waiting for it, a caller checks
    /// [`known`](Self::known) again before its request.
    pub fn turn(&self, origin: &str) -> Arc<AsyncMutex<()>> {
        let mut cache = self.lock();
        cache.uses += 1;
        let uses = cache.uses;
        let slot = cache.origins.entry(origin.into()).or_insert_with(|| Slot {
            turn: Arc::default(),
            rules: None,
            used: uses,
        });
        Arc::clone(&slot.turn)
    }

    /// Stores the rules of `origin`.
    pub fn keep(&self, origin: &str, rules: Rules) -> Arc<Rules> {
        let rules = Arc::new(rules);
        let mut cache = self.lock();
        cache.bytes += rules.bytes();
        let uses = cache.uses;
        let slot = cache.origins.entry(origin.into()).or_insert_with(|| Slot {
            turn: Arc::default(),
            rules: None,
            used: uses,
        });
        let before = slot.rules.replace(Arc::clone(&rules));
        cache.bytes -= before.map_or(0, |before| before.bytes());
        cache.evict_if_full();
        rules
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, RuleCache> {
        // The map is consistent even if a thread panicked with it.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RuleCache {
    /// Evicts the least recently used half if there are too many.
    fn evict_if_full(&mut self) {
        if self.origins.len() <= MAX_ORIGINS && self.bytes <= MAX_BYTES {
            return;
        }
        let mut used: Vec<u64> = self.origins.values().map(|slot| slot.used).collect();
        let half = used.len() / 2;
        let (_, &mut median, _) = used.select_nth_unstable(half);
        // An origin whose first request is pending is evicted too: its caller holds the turn, and
        // stores the result.
        self.origins.retain(|_, slot| slot.used > median);
        self.bytes = self
            .origins
            .values()
            .filter_map(|slot| slot.rules.as_ref())
            .map(|rules| rules.bytes())
            .sum();
    }
}

/// Returns the origin of `url` as it is stored, and the URL of its robots.txt.
pub fn location(url: &Url) -> Option<(String, Url)> {
    let origin = url.origin().ascii_serialization();
    let mut location = url.join("/robots.txt").ok()?;
    location.set_query(None);
    location.set_fragment(None);
    // A link's URL has neither; these fail only without a host.
    let _ = location.set_username("");
    let _ = location.set_password(None);
    Some((origin, location))
}
