//! The robots.txt rules of each origin, with their lifetime and a bound on their number.
//!
//! Invariants: of all concurrent callers that need the rules of one origin, one requests them. An
//! origin takes memory while it has rules in the cache, or while somebody requests them. No step
//! looks at all origins or locks them.
//!
//! Must not know: how a request is made, and who obeys the rules.

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lru::LruCache;
use robotxt::{ANY_AGENT, Robots};
use tokio::sync::Mutex as AsyncMutex;
use url::{Position, Url};
use xxhash_rust::xxh3::xxh3_64;

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
/// Number of parts of the cache. Each has its share of both limits.
const SHARDS: usize = 16;

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
    /// Parts by the hash of an origin, so that origins seldom wait for each other.
    shards: [Mutex<Shard>; SHARDS],
}

/// A part of the cache.
struct Shard {
    rules: LruCache<Box<str>, Arc<Rules>>,
    /// The bytes of all rules.
    bytes: usize,
    /// The turns of the origins whose rules somebody requests or waits for.
    turns: HashMap<Box<str>, Arc<AsyncMutex<()>>>,
}

impl Default for Shard {
    fn default() -> Self {
        Self { rules: LruCache::unbounded(), bytes: 0, turns: HashMap::new() }
    }
}

/// The turn to request the rules of one origin. The holder of its lock requests them, and the
/// others wait. The cache forgets a turn once nobody has it.
pub struct Turn<'c> {
    cache: &'c RobotsTxt,
    origin: Box<str>,
    lock: Arc<AsyncMutex<()>>,
}

impl Deref for Turn<'_> {
    type Target = AsyncMutex<()>;

    fn deref(&self) -> &AsyncMutex<()> {
        &self.lock
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut shard = self.cache.shard(&self.origin);
        // Only the table and this turn have it. Nobody gets another one without the shard's lock.
        if Arc::strong_count(&self.lock) == 2 {
            shard.turns.remove(&self.origin);
        }
    }
}

impl fmt::Debug for Turn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").field("origin", &self.origin).finish_non_exhaustive()
    }
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
        Self { fetcher, agent: agent.into(), shards: std::array::from_fn(|_| Mutex::default()) }
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
        self.shard(origin).rules.get(origin).filter(|rules| rules.until > now).cloned()
    }

    /// Returns the turn to request the rules of `origin`: after waiting for its lock, a caller
    /// checks [`known`](Self::known) again before its request.
    pub fn turn(&self, origin: &str) -> Turn<'_> {
        let lock = Arc::clone(self.shard(origin).turns.entry(origin.into()).or_default());
        Turn { cache: self, origin: origin.into(), lock }
    }

    /// Stores the rules of `origin`.
    pub fn keep(&self, origin: &str, rules: Rules) -> Arc<Rules> {
        let rules = Arc::new(rules);
        self.shard(origin).keep(origin, Arc::clone(&rules));
        rules
    }

    fn shard(&self, origin: &str) -> MutexGuard<'_, Shard> {
        let index = xxh3_64(origin.as_bytes()) % SHARDS as u64;
        // The maps are consistent even if a thread panicked with them.
        self.shards[index as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shard {
    /// Stores rules, and evicts the least recently used ones if there are too many.
    fn keep(&mut self, origin: &str, rules: Arc<Rules>) {
        self.bytes += rules.bytes();
        if let Some(before) = self.rules.put(origin.into(), rules) {
            self.bytes -= before.bytes();
        }
        // Those that came last stay, however large they are.
        while self.rules.len() > 1
            && (self.rules.len() > MAX_ORIGINS / SHARDS || self.bytes > MAX_BYTES / SHARDS)
            && let Some((_, evicted)) = self.rules.pop_lru()
        {
            self.bytes -= evicted.bytes();
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetch::{FetchFuture, Request};

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    /// A fetcher that nothing is requested from.
    struct Unused;

    impl Fetcher for Unused {
        fn name(&self) -> &str {
            "unused"
        }

        fn renders(&self) -> bool {
            false
        }

        fn fetch<'a>(&'a self, _: Request<'a>) -> FetchFuture<'a> {
            Box::pin(std::future::pending())
        }
    }

    fn cache() -> RobotsTxt {
        RobotsTxt::new(Arc::new(Unused), DEFAULT_AGENT)
    }

    fn rules() -> Rules {
        Rules::read(b"User-agent: *\nDisallow: /a", DEFAULT_AGENT, NOW)
    }

    fn origin(n: usize) -> String {
        format!("https://h{n}.example.org")
    }

    fn turns(cache: &RobotsTxt) -> usize {
        cache.shards.iter().map(|shard| shard.lock().unwrap().turns.len()).sum()
    }

    /// The bug: an origin whose rules were requested and not stored, because its host was paused or
    /// this machine was offline, kept its entry, and nothing bounded their number.
    #[test]
    fn an_origin_whose_rules_were_not_stored_takes_no_memory() {
        let cache = cache();
        (0..MAX_ORIGINS + 10).for_each(|n| drop(cache.turn(&origin(n))));
        assert_eq!(turns(&cache), 0);
        let (first, second) = (cache.turn("https://e.org"), cache.turn("https://e.org"));
        drop(first);
        assert_eq!(turns(&cache), 1, "somebody waits");
        drop(second);
        assert_eq!(turns(&cache), 0);
    }

    /// The bug: eviction took an origin whose rules were being requested, and with it the turn, so
    /// the next caller requested them once more at the same time.
    #[test]
    fn a_turn_outlives_the_rules_of_many_other_origins() {
        let cache = cache();
        let turn = cache.turn("https://e.org");
        let held = turn.try_lock().unwrap();
        for n in 0..3 * MAX_ORIGINS {
            cache.keep(&origin(n), rules());
        }
        assert!(cache.turn("https://e.org").try_lock().is_err(), "it is held");
        drop(held);
        assert!(cache.turn("https://e.org").try_lock().is_ok());
    }

    #[test]
    fn the_least_recently_used_rules_go_first() {
        let cache = cache();
        cache.keep("https://e.org", rules());
        for n in 0..2 * MAX_ORIGINS {
            cache.keep(&origin(n), rules());
            assert!(cache.known("https://e.org", NOW).is_some(), "it is in use: {n}");
        }
        let kept = |cache: &RobotsTxt| -> (usize, usize) {
            let shards = cache.shards.iter().map(|shard| shard.lock().unwrap());
            shards.fold((0, 0), |sum, shard| (sum.0 + shard.rules.len(), sum.1 + shard.bytes))
        };
        let (count, bytes) = kept(&cache);
        assert!(count <= MAX_ORIGINS && count > MAX_ORIGINS / 2, "{count}");
        assert_eq!(bytes, count * rules().bytes());
        assert!(cache.known(&origin(0), NOW).is_none());
        let line = format!("Disallow: /{}\n", "x".repeat(500));
        let large = format!("User-agent: *\n{}", line.repeat(500));
        let large = Rules::read(large.as_bytes(), DEFAULT_AGENT, NOW);
        for n in 0..1_000 {
            cache.keep(&origin(n), large.clone());
        }
        assert!(kept(&cache).1 <= MAX_BYTES);
    }
}
