//! The pipeline: one URL's whole way, from the decision to the recorded attempt.
//!
//! [`Pipeline::fetch`] is the one entry: a [visit](crate::visit), a set of fetchers and a store, on tokio. `run` drives the visit.
//! Must not judge pages (that is [`fetchwise_detect`]) nor choose, record or pause (that is the visit's).

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::error::Error;
use crate::selector::Selector;
use fetchwise_detect::{Detector, ResponseExtractor};
use fetchwise_fetchers::fetch::{Fetcher, Limits, Response};
use fetchwise_fetchers::robots::{RobotsTxt, RobotsUse};
use fetchwise_fetchers::store::Store;
use fetchwise_types::decision::Source;
use fetchwise_types::heuristic::Heuristic;
use fetchwise_types::provenance::Provenance;
use fetchwise_types::registry::{FetcherId, FetcherSet, canonical};
use fetchwise_types::time::Timestamp;

mod robots;
mod run;
mod wait;

/// A fetcher that does not keep to its deadline is cut off this much later.
const GRACE: Duration = Duration::from_secs(2);

/// A link waits so long for its host's pace, unless the builder says otherwise.
const WAIT_AT_MOST: Duration = Duration::from_secs(15 * 60);

/// One thing to fetch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its address, as text: what cannot be fetched ends as `invalid_url`.
    pub url: String,
    /// The caller's name for it; the URL unless it has another. Pauses hold for this name.
    pub id: Option<String>,
    /// Its own wish for (`true`) or against (`false`) learning, before every other setting.
    pub learning: Option<bool>,
    /// The fetcher that the caller wants for the first attempt; another one where it is not to be had.
    pub fetcher: Option<String>,
    /// What the caller knows of it beside its URL: see [`Heuristic::of_caller`].
    pub heuristics: Vec<Heuristic>,
    /// What is done about the robots.txt of its origin; by itself nothing is. With anything else the pipeline needs
    /// [`PipelineBuilder::robots`].
    pub robots: RobotsUse,
}

impl Link {
    /// A link of which only the address is known.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), ..Self::default() }
    }
}

/// How the fetch of a link ended.
#[derive(Debug, Default)]
pub struct Report {
    /// The address as it was given.
    pub url: String,
    /// The fetcher that delivered, or that made the last attempt.
    pub fetcher: Option<String>,
    /// The decision that delivered, or that ended it.
    pub source: Option<Source>,
    /// The fetcher's confidence when it was chosen.
    pub confidence: f64,
    /// The last HTTP status.
    pub status: Option<u16>,
    /// Whether content came.
    pub success: bool,
    /// Why none came: an error type of the table, or one of [`Report::PAUSED`] and its neighbours.
    pub error_type: Option<&'static str>,
    /// The same for a person, with what to do about it.
    pub message: Option<String>,
    /// Whether any attempt was blocked.
    pub is_banned: bool,
    /// Attempts made, each of them logged: the probe and a retry included. The redirects of one attempt are no more of them, and
    /// one that ended before anything was sent (`refused_address`, `dns_error`) is one all the same. 0 when nothing was tried:
    /// paused, no URL, no route, no fetcher.
    pub requests: u32,
    /// Bytes of the delivered body.
    pub bytes: u64,
    /// Who delivered in the site's place, and from when the copy is, where the site itself did not.
    pub elsewhere: Option<Provenance>,
    /// How long it all took.
    pub duration: Duration,
    /// Where the body was stored.
    pub file: Option<PathBuf>,
    /// Until when the link is paused now.
    pub paused_until: Option<Timestamp>,
    /// What came, when it is content and there is no store.
    pub response: Option<Response>,
    /// The host's `Crawl-delay` turned out to be longer than the settings believe. Told once a host, with the link that found it out.
    pub crawl_delay_cut: Option<CrawlDelayCut>,
}

/// A `Crawl-delay` that is longer than the settings believe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrawlDelayCut {
    /// Whose it is.
    pub host: Box<str>,
    /// The gap that it asks for.
    pub asked: Duration,
    /// The longest that is believed.
    pub believed: Duration,
}

impl Report {
    /// The error type of a link that was not fetched because it, or its host, is paused.
    pub const PAUSED: &'static str = "paused";
    /// The error type of a link that was not fetched because its host's pace had no place for it, and the pipeline waits no longer: ask
    /// again at [`Report::paused_until`].
    pub const PACED: &'static str = "paced";
    /// The error type of a link that the table should serve and cannot.
    pub const NO_ROUTE: &'static str = "no_route";
    /// The error type of a link for which no fetcher is to be had.
    pub const NO_FETCHER: &'static str = "no_fetcher";
    /// `error_type` of a link for which no request was made, since nobody gets past its host's vendor. The link is paused.
    pub const NO_FETCHER_GETS_PAST: &'static str = "no_fetcher_gets_past";
    /// The error type of a page that came and could not be stored.
    pub const STORE_ERROR: &'static str = "store_error";

    /// How a link ends for which nothing was asked.
    fn unasked(error_type: &'static str, message: String) -> Self {
        Self { error_type: Some(error_type), message: Some(message), ..Self::default() }
    }

    /// Whether it ended as the table of outcomes says, rather than for want of a route, a fetcher or a place to store.
    pub fn is_classified(&self) -> bool {
        !matches!(self.error_type, Some(Self::NO_ROUTE | Self::NO_FETCHER | Self::STORE_ERROR))
    }
}

/// Builds a [`Pipeline`].
pub struct PipelineBuilder {
    selector: Arc<Selector>,
    fetchers: Vec<Arc<dyn Fetcher>>,
    missing: HashMap<String, String>,
    limits: Limits,
    detector: Option<Arc<Detector>>,
    extractors: Vec<Box<dyn ResponseExtractor>>,
    store: Option<Arc<dyn Store>>,
    robots: Option<Arc<RobotsTxt>>,
    wait_at_most: Duration,
}

impl PipelineBuilder {
    /// Adds a fetcher; its name must be one of the selector's candidates to be chosen.
    #[must_use]
    pub fn fetcher(mut self, fetcher: Arc<dyn Fetcher>) -> Self {
        self.fetchers.push(fetcher);
        self
    }

    /// Says why a candidate is not to be had, for the message when somebody asks for it.
    #[must_use]
    pub fn missing(mut self, fetcher: &str, reason: impl Into<String>) -> Self {
        self.missing.insert(canonical(fetcher).to_owned(), reason.into());
        self
    }

    /// Sets what a request may cost. Its time and its redirects are the visit's to say: see
    /// [`VisitSettings`](crate::selector::VisitSettings).
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the detector; the shipped rules unless set.
    #[must_use]
    pub fn detector(mut self, detector: Arc<Detector>) -> Self {
        self.detector = Some(detector);
        self
    }

    /// Adds a user's own post-fetch heuristics.
    #[must_use]
    pub fn extractor(mut self, extractor: impl ResponseExtractor + 'static) -> Self {
        self.extractors.push(Box::new(extractor));
        self
    }

    /// Sets where bodies go. Without a store they stay in the report.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// Sets how long a link may wait for a place in its host's pace, 15 minutes unless set. One that would have to wait longer ends as
    /// [`Report::PACED`] at once. With zero a caller with a frontier of its own gets everything back that cannot go out now; a link that
    /// is half way, with a retry or another fetcher to come, still waits for a minute.
    #[must_use]
    pub fn wait_at_most(mut self, time: Duration) -> Self {
        self.wait_at_most = time;
        self
    }

    /// Sets how robots.txt is asked for, for links that want it obeyed ([`Link::robots`]). It goes by the address guard of its
    /// fetcher, and by the pipeline's limits. Redirects of a page are followed wherever they lead: rules are looked at for the
    /// link's own address.
    #[must_use]
    pub fn robots(mut self, robots: RobotsTxt) -> Self {
        self.robots = Some(Arc::new(robots));
        self
    }

    /// Builds it.
    ///
    /// # Errors
    /// [`Error::UnknownFetcher`] when a fetcher is no candidate of the selector: it could never be chosen.
    pub fn build(self) -> Result<Pipeline, Error> {
        let known = |name: &str| self.selector.candidates().any(|(_, spec)| *spec.name == *canonical(name));
        if let Some(stranger) = self.fetchers.iter().find(|fetcher| !known(fetcher.name())) {
            let known = self.selector.candidates().map(|(_, spec)| spec.name.to_string()).collect();
            return Err(Error::UnknownFetcher { name: stranger.name().to_owned(), known });
        }
        let find = |name: &str| self.fetchers.iter().find(|f| canonical(f.name()) == name).cloned();
        let fetchers: Vec<_> =
            self.selector.candidates().map(|(_, spec)| find(&spec.name).map(Available::new)).collect();
        let mut unavailable = FetcherSet::EMPTY;
        for (id, _) in self.selector.candidates().filter(|(id, _)| fetchers[id.index()].is_none()) {
            unavailable.insert(id);
        }
        Ok(Pipeline {
            fetchers,
            unavailable,
            selector: self.selector,
            missing: self.missing,
            limits: self.limits,
            detector: self.detector.unwrap_or_else(|| Arc::new(Detector::new())),
            extractors: self.extractors,
            store: self.store,
            robots: self.robots,
            wait_at_most: self.wait_at_most,
        })
    }
}

/// Fetches links: decides, fetches, judges, records, escalates, pauses. Shared by reference between tasks.
pub struct Pipeline {
    selector: Arc<Selector>,
    /// By candidate; None where there is no such fetcher here.
    fetchers: Vec<Option<Available>>,
    unavailable: FetcherSet,
    missing: HashMap<String, String>,
    limits: Limits,
    detector: Arc<Detector>,
    extractors: Vec<Box<dyn ResponseExtractor>>,
    store: Option<Arc<dyn Store>>,
    robots: Option<Arc<RobotsTxt>>,
    wait_at_most: Duration,
}

/// A fetcher that is there, and its free places.
struct Available {
    fetcher: Arc<dyn Fetcher>,
    places: Semaphore,
}

impl Available {
    fn new(fetcher: Arc<dyn Fetcher>) -> Self {
        let places = Semaphore::new(fetcher.max_in_flight().clamp(1, Semaphore::MAX_PERMITS));
        Self { fetcher, places }
    }
}

impl Pipeline {
    /// Starts building one around `selector`.
    pub fn builder(selector: Arc<Selector>) -> PipelineBuilder {
        PipelineBuilder {
            selector,
            fetchers: Vec::new(),
            missing: HashMap::new(),
            limits: Limits::default(),
            detector: None,
            extractors: Vec::new(),
            store: None,
            robots: None,
            wait_at_most: WAIT_AT_MOST,
        }
    }

    /// Fetches one link. Each request is recorded as one attempt under the name of the fetcher that made it. Never fails: how
    /// it ended is in the report. Cancelled by dropping the future; what was under way is then not recorded.
    pub async fn fetch(&self, link: &Link) -> Report {
        run::run(self, link).await
    }

    /// The selector it decides with.
    pub fn selector(&self) -> &Selector {
        &self.selector
    }

    fn fetcher(&self, id: FetcherId) -> Option<&Available> {
        self.fetchers.get(id.index())?.as_ref()
    }
}
