//! The rules of each origin, for how long they hold and for how many origins they are kept.
//!
//! Invariant: of all who want the rules of one origin at the same time, one asks for them. Must not know how a request is made, nor
//! who obeys the rules.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use robotxt::{AccessResult, Agent, Robots};
use tokio::sync::Mutex as Turn;
use url::{Position, Url};

use crate::fetch::{FetchError, Fetcher, Response};
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::time::Timestamp;

/// Redirects of a robots.txt that are followed.
pub const MAX_REDIRECTS: u32 = 5;
/// The longest robots.txt that is downloaded; of it the parser reads the first 500 KiB. A longer one counts as unreachable.
pub const MAX_BODY: u64 = 8 << 20;
/// How much of it is kept in memory while it is read.
pub const MAX_READ: usize = robotxt::BYTE_LIMIT + 1;
/// The name under which robots.txt knows this crawler, unless the caller has another one.
pub const DEFAULT_AGENT: &str = "fetchwise";

/// Rules hold for so long.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// A host whose robots.txt cannot be had is asked for it again after this.
const UNREACHABLE: Duration = Duration::from_secs(5 * 60);
/// The rules of so many origins are kept; with more, those that were used the longest time ago go.
const MAX_ORIGINS: usize = 10_000;
/// So many bytes of rules are kept in all.
const MAX_BYTES: usize = 64 << 20;

/// What the robots.txt of one origin says to one crawler.
#[derive(Clone, Debug)]
pub struct Rules {
    robots: Robots,
    until: Timestamp,
    /// Why nothing can be known of the origin's wishes.
    unknown: Option<Unknown>,
}

/// Why a robots.txt could not be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// What came of the request for it.
    pub kind: ErrorKind,
    /// The same for a person.
    pub message: String,
}

impl Rules {
    /// The rules of a robots.txt for the crawler called `agent`, read at `now`.
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
        Self { robots: Robots::parse(text, Agent::Exact(agent)), until: now.saturating_add(KEPT), unknown: None }
    }

    /// The rule that forbids `url`, as it stands in the file, with the group it is in; none when the crawler may fetch it.
    pub fn forbids(&self, url: &Url) -> Option<String> {
        if self.robots.is_url_allowed(url) {
            return None;
        }
        let path = &url[Position::BeforePath..Position::AfterQuery];
        let rule = self.robots.matching_rule(path).map_or("/", |rule| rule.pattern());
        Some(format!("Disallow: {rule} (User-agent: {})", self.robots.user_agent()))
    }

    /// The least time between two requests that the host asks for.
    pub fn crawl_delay(&self) -> Option<Duration> {
        self.robots.crawl_delay().filter(|delay| !delay.is_zero())
    }

    /// Until when they hold.
    pub fn until(&self) -> Timestamp {
        self.until
    }

    /// Why they could not be had: then nothing of the origin may be fetched.
    pub fn unknown(&self) -> Option<&Unknown> {
        self.unknown.as_ref()
    }

    /// What an answer to the request for a robots.txt comes to. A 4xx says that there is none; a 5xx, a 429 and no answer at all leave
    /// it open, and then nothing may be fetched for a while.
    pub fn from_answer(answer: &Result<Response, FetchError>, agent: &str, now: Timestamp) -> Self {
        let unreachable = |kind, message| Self {
            robots: Robots::from_access(AccessResult::Unreachable, agent),
            until: now.saturating_add(UNREACHABLE),
            unknown: Some(Unknown { kind, message }),
        };
        let access = match answer {
            Ok(response) => match response.status {
                200..=299 => return Self::read(response.body.head(), agent, now),
                // "Not now" is no word about the file.
                429 => return unreachable(ErrorKind::RateLimited, "status 429".to_owned()),
                status @ (0..=199 | 500..) => return unreachable(ErrorKind::ServerError, format!("status {status}")),
                300..=499 => AccessResult::Unavailable,
            },
            // More than five, or one that leads nowhere: as if there were none.
            Err(error) if error.kind == ErrorKind::RedirectLoop => AccessResult::TooManyRedirects,
            Err(error) => return unreachable(error.kind, error.message.clone()),
        };
        Self { robots: Robots::from_access(access, agent), until: now.saturating_add(KEPT), unknown: None }
    }

    fn bytes(&self) -> usize {
        const EACH: usize = size_of::<robotxt::Rule>();
        let rules: usize = self.robots.rules().iter().map(|rule| rule.pattern().len() + EACH).sum();
        let maps: usize = self.robots.sitemaps().iter().map(|url| url.as_str().len() + size_of::<Url>()).sum();
        size_of::<Self>() + rules + maps
    }
}

/// The rules of the origins that a pipeline has met.
///
/// Rules are kept for a day in memory, for ten thousand origins and 64 MiB at most. Give one to
/// [`PipelineBuilder::robots`](fetchwise::pipeline::PipelineBuilder::robots).
pub struct RobotsTxt {
    fetcher: Arc<dyn Fetcher>,
    agent: String,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    origins: HashMap<Box<str>, Slot>,
    bytes: usize,
    /// Counts uses, so that the oldest can be told.
    uses: u64,
}

/// One origin. Whoever holds its turn asks for the file, the others wait.
struct Slot {
    turn: Arc<Turn<()>>,
    rules: Option<Arc<Rules>>,
    used: u64,
}

impl fmt::Debug for RobotsTxt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RobotsTxt").field("agent", &self.agent).finish_non_exhaustive()
    }
}

impl RobotsTxt {
    /// Asks with `fetcher`, which should be a plain one, for what is said to the crawler called `agent`, such as [`DEFAULT_AGENT`].
    pub fn new(fetcher: Arc<dyn Fetcher>, agent: impl Into<String>) -> Self {
        Self { fetcher, agent: agent.into(), kept: Mutex::default() }
    }

    /// The name that groups of rules are looked for by.
    pub fn agent(&self) -> &str {
        &self.agent
    }

    /// The fetcher that requests robots.txt.
    pub fn fetcher(&self) -> &dyn Fetcher {
        &*self.fetcher
    }

    /// The rules of `origin` where they are known and hold at `now`.
    pub fn known(&self, origin: &str, now: Timestamp) -> Option<Arc<Rules>> {
        let mut kept = self.kept();
        kept.uses += 1;
        let uses = kept.uses;
        let slot = kept.origins.get_mut(origin)?;
        slot.used = uses;
        slot.rules.clone().filter(|rules| rules.until > now)
    }

    /// The right to ask `origin`: whoever waits for it looks at [`known`](Self::known) again before it asks.
    pub fn turn(&self, origin: &str) -> Arc<Turn<()>> {
        let mut kept = self.kept();
        kept.uses += 1;
        let uses = kept.uses;
        let slot =
            kept.origins.entry(origin.into()).or_insert_with(|| Slot { turn: Arc::default(), rules: None, used: uses });
        Arc::clone(&slot.turn)
    }

    /// Keeps the rules of `origin`.
    pub fn keep(&self, origin: &str, rules: Rules) -> Arc<Rules> {
        let rules = Arc::new(rules);
        let mut kept = self.kept();
        kept.bytes += rules.bytes();
        let uses = kept.uses;
        let slot =
            kept.origins.entry(origin.into()).or_insert_with(|| Slot { turn: Arc::default(), rules: None, used: uses });
        let before = slot.rules.replace(Arc::clone(&rules));
        kept.bytes -= before.map_or(0, |before| before.bytes());
        kept.make_room();
        rules
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        // Whoever panicked with it left a map that is whole.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// Drops the half that was used the longest time ago once there are too many.
    fn make_room(&mut self) {
        if self.origins.len() <= MAX_ORIGINS && self.bytes <= MAX_BYTES {
            return;
        }
        let mut used: Vec<u64> = self.origins.values().map(|slot| slot.used).collect();
        let half = used.len() / 2;
        let (_, &mut median, _) = used.select_nth_unstable(half);
        // An origin that is being asked for the first time goes, too: whoever asks holds its turn, and keeps what came.
        self.origins.retain(|_, slot| slot.used > median);
        self.bytes = self.origins.values().filter_map(|slot| slot.rules.as_ref()).map(|rules| rules.bytes()).sum();
    }
}

/// The origin of `url` as it is kept, and where its robots.txt is.
pub fn location(url: &Url) -> Option<(String, Url)> {
    let origin = url.origin().ascii_serialization();
    let mut location = url.join("/robots.txt").ok()?;
    location.set_query(None);
    location.set_fragment(None);
    // The URL of a link has neither; they fail only where there is no host.
    let _ = location.set_username("");
    let _ = location.set_password(None);
    Some((origin, location))
}
