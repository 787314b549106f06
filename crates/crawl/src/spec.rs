//! What a crawl fetches, and within which limits: plain data, without a reader, a task or a
//! connection.
//!
//! Must not know: how any of it is done.

use std::path::PathBuf;
use std::time::Duration;

use crate::link_end::LeftLinks;
use crate::paused_links::PauseWait;
use fetchwise::pipeline::Link;
use fetchwise::robots::RobotsUse;

/// The default limit of a link's wait for its host, and of a run's wait for paused links.
pub const MAX_WAIT: Duration = Duration::from_secs(15 * 60);
/// The default number of links at work.
const CONCURRENCY: usize = 16;
/// The default time for open requests after a request to stop.
const GRACE: Duration = Duration::from_secs(5);

/// Where links come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkSource {
    /// This address.
    Url(String),
    /// The lines of a file. A line is a URL, or a JSON object with `url` and any of `id`,
    /// `learning`, `fetcher` and `tags`; empty lines and lines that start with `#` are left out.
    File(PathBuf),
    /// The lines of standard input, as those of a file.
    Stdin,
    /// Results of an earlier run as JSON lines with `url`, `id`, `line` or `position`, `success`,
    /// `error_type` and `paused_until`. The links that ended as [`CrawlSpec::only`] says are
    /// fetched again, by default those that failed or are paused.
    Results(PathBuf),
}

/// Where the pages of a run are kept. The pipeline's store does that: here it only tells runs
/// apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Files in this folder.
    Folder(PathBuf),
    /// Records in this archive.
    Archive(PathBuf),
    /// A place that the caller names.
    Named(String),
}

/// Which results have the response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bodies {
    /// None: the pipeline's store has the pages, or nobody needs them.
    #[default]
    None,
    /// That of the first link.
    First,
    /// All. With [`CrawlSpec::ordered`] those that wait for an earlier one are in memory, and a run
    /// that is continued fetches them again.
    All,
}

/// What a crawl fetches, and within which limits.
///
/// The sources and the output identify a run: a crawl with the same ones continues an interrupted
/// run where it stopped.
///
/// ```
/// use fetchwise_crawl::CrawlSpec;
///
/// let spec = CrawlSpec::default().file("urls.txt").concurrency(32).ordered();
/// assert_eq!(spec.concurrency, 32);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct CrawlSpec {
    /// The sources of links, in the order in which they are read. Default: none.
    pub sources: Vec<LinkSource>,
    /// The fields of links of [`LinkSource::Url`], without `url` and `id`. By default they obey
    /// robots.txt.
    pub named: Link,
    /// The fields that links of all other sources have unless their line names others. By default
    /// they obey robots.txt.
    pub listed: Link,
    /// The limit of links at work. Links that wait in the middle of a visit do not count. Default: 16.
    pub concurrency: usize,
    /// The limit of links of one host at work. Default: none, so that the pace of the host alone
    /// decides.
    pub per_host: Option<u8>,
    /// The limit of a link's wait for its host's pace. A link that would wait longer counts as
    /// paused. Default: 15 minutes.
    pub max_wait: Duration,
    /// How long the run waits for paused links once nothing else is left. Default: 15 minutes.
    pub pause_wait: PauseWait,
    /// The time for open requests after a request to stop. Default: 5 seconds.
    pub grace: Duration,
    /// Whether results come in the order of the input. One that waits for an earlier one is in a
    /// file. Default: no.
    pub ordered: bool,
    /// Which results have the response. Default: none.
    pub bodies: Bodies,
    /// Where pages are kept. Default: unknown.
    pub output: Option<Output>,
    /// Only the links that the last run with the same sources and output left, and that ended like
    /// this. Default: all links.
    pub only: Vec<LeftLinks>,
    /// Whether an interrupted run is forgotten instead of continued. Default: no.
    pub restart: bool,
}

impl Default for CrawlSpec {
    fn default() -> Self {
        let obedient = Link { robots: RobotsUse::Obey, ..Link::default() };
        Self {
            sources: Vec::new(),
            named: obedient.clone(),
            listed: obedient,
            concurrency: CONCURRENCY,
            per_host: None,
            max_wait: MAX_WAIT,
            pause_wait: PauseWait::AtMost(MAX_WAIT),
            grace: GRACE,
            ordered: false,
            bodies: Bodies::None,
            output: None,
            only: Vec::new(),
            restart: false,
        }
    }
}

impl CrawlSpec {
    /// Adds addresses.
    #[must_use]
    pub fn urls(mut self, urls: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.sources.extend(urls.into_iter().map(|url| LinkSource::Url(url.into())));
        self
    }

    /// Adds the lines of a file.
    #[must_use]
    pub fn file(mut self, path: impl Into<PathBuf>) -> Self {
        self.sources.push(LinkSource::File(path.into()));
        self
    }

    /// Sets the use of robots.txt for the links of all sources.
    #[must_use]
    pub fn robots(mut self, robots: RobotsUse) -> Self {
        (self.named.robots, self.listed.robots) = (robots, robots);
        self
    }

    /// Sets the limit of links at work.
    #[must_use]
    pub fn concurrency(mut self, links: usize) -> Self {
        self.concurrency = links;
        self
    }

    /// Sets the limit of links of one host at work.
    #[must_use]
    pub fn per_host(mut self, links: u8) -> Self {
        self.per_host = Some(links);
        self
    }

    /// Sets how long the run waits for paused links once nothing else is left.
    #[must_use]
    pub fn pause_wait(mut self, wait: PauseWait) -> Self {
        self.pause_wait = wait;
        self
    }

    /// Returns results in the order of the input.
    #[must_use]
    pub fn ordered(mut self) -> Self {
        self.ordered = true;
        self
    }

    /// Sets which results have the response.
    #[must_use]
    pub fn bodies(mut self, bodies: Bodies) -> Self {
        self.bodies = bodies;
        self
    }

    /// Forgets an interrupted run instead of continuing it.
    #[must_use]
    pub fn restart(mut self) -> Self {
        self.restart = true;
        self
    }

    /// Returns whether the links are those of an earlier run's results.
    pub(crate) fn retries(&self) -> bool {
        self.sources.iter().any(|source| matches!(source, LinkSource::Results(_)))
    }
}
