//! The pipeline: the whole way of one URL, from the decision to the recorded attempt.
//!
//! Owns: [`Pipeline::fetch`], which puts a [visit](crate::visit), a set of fetchers and a store
//! together on tokio. `run` drives the visit.
//!
//! Must not know: how pages are judged ([`fetchwise_detect`] does that), and how to choose, record
//! or pause (the visit does).

use std::collections::HashMap;
use std::io;
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
use fetchwise_fetchers::store::failed_pages::FailedPages;
use fetchwise_fetchers::store::validators::ValidatorLog;
use fetchwise_types::attempt::verdict_reason::VerdictReason;
use fetchwise_types::cache_use::CacheUse;
use fetchwise_types::consent::{Consent, ConsentSettings};
use fetchwise_types::decision::Source;
use fetchwise_types::heuristic::Heuristic;
use fetchwise_types::provenance::Provenance;
use fetchwise_types::registry::{FetcherId, FetcherSet, canonical};
use fetchwise_types::time::Timestamp;

mod cache;
mod consent;
mod file_request;
mod gate;
mod license_files;
mod licenses;
mod link_slot;
mod local_delay;
mod page_judge;
mod robots;
mod run;
mod signature_rejections;
mod store_queue;
mod wait;

use license_files::LicenseFiles;
pub use link_slot::{LinkSlot, LinkSlots};
pub use page_judge::DetectorJudge;
use signature_rejections::SignatureRejections;
use store_queue::StoreQueue;

/// Time after its deadline at which a fetcher is cut off.
const GRACE: Duration = Duration::from_secs(2);

/// Default time that a link waits for its host's pace.
const DEFAULT_MAX_WAIT: Duration = Duration::from_secs(15 * 60);

/// A link to fetch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its address, as text; an address that cannot be fetched ends as `invalid_url`.
    pub url: String,
    /// The caller's name for it; the URL if `None`. Pauses apply to this name.
    pub id: Option<String>,
    /// The link's own mode: learning (`true`) or the table (`false`). It takes precedence over
    /// every other setting.
    pub learning: Option<bool>,
    /// The fetcher for the first attempt; another one if it is unavailable.
    pub prefer: Option<String>,
    /// Heuristics that the caller knows besides the URL: see [`Heuristic::of_caller`].
    pub heuristics: Vec<Heuristic>,
    /// The use of its origin's robots.txt; the default ignores it. Any other value needs
    /// [`PipelineBuilder::robots`].
    pub robots: RobotsUse,
}

impl Link {
    /// Returns a link with this address and no options.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), ..Self::default() }
    }
}

/// The result of fetching a link.
#[derive(Debug, Default)]
pub struct Report {
    /// The address as it was given.
    pub url: String,
    /// The fetcher that delivered, or that made the last attempt.
    pub fetcher: Option<String>,
    /// The label of the decision that delivered, or that ended the visit.
    pub source: Option<Source>,
    /// The fetcher's confidence when it was chosen.
    pub confidence: f64,
    /// The last HTTP status.
    pub status: Option<u16>,
    /// Whether content was delivered.
    pub success: bool,
    /// Why no content was delivered: an error type of the table, or a constant of this type such as
    /// [`Report::PAUSED`].
    pub error_type: Option<&'static str>,
    /// The reason in words, with a hint what to do.
    pub message: Option<String>,
    /// Whether any attempt was blocked.
    pub is_banned: bool,
    /// Whether the page was not requested because its origin's robots.txt could not be read.
    pub robots_unread: bool,
    /// Whether the last attempt was the trial of a host that served until it began to refuse all
    /// requests, and still does. That says nothing of the link.
    pub was_trial: bool,
    /// Number of attempts, each of them logged, with probe and retry. Redirects belong to their
    /// attempt. An attempt that ended before anything was sent (`refused_address`, `dns_error`)
    /// counts. 0 if there was no attempt: paused, invalid URL, no route, no fetcher.
    pub requests: u32,
    /// Bytes of the delivered body.
    pub bytes: u64,
    /// The server that delivered in place of the site, and the time of its copy.
    pub provenance: Option<Provenance>,
    /// Total duration.
    pub duration: Duration,
    /// Where the body was stored: of a delivered page, or of a failed one that was kept.
    pub file: Option<PathBuf>,
    /// The end of the link's pause, if it is paused now.
    pub paused_until: Option<Timestamp>,
    /// Whether the page is the one of an earlier crawl: a 304 to its validators, or a page that is
    /// still fresh and was not requested. [`file`](Self::file) and [`record`](Self::record) name
    /// the earlier body.
    pub not_modified: bool,
    /// The record of the body in a web archive, as `urn:uuid:...`.
    pub record: Option<String>,
    /// The byte of the archive at which that record begins.
    pub record_offset: Option<u64>,
    /// The address that delivered, after all redirects.
    pub final_url: Option<Box<str>>,
    /// The `Content-Type` of what was delivered, as the server wrote it.
    pub content_type: Option<Box<str>>,
    /// The terms of the page and the purposes that they leave: of a delivered page that has terms
    /// or was fetched for purposes, and of one that is `reserved`.
    pub consent: Option<Box<Consent>>,
    /// Whether the delivered page is one of no site: of a parked domain, a hoster, or a product
    /// before its log-in.
    pub is_default_page: bool,
    /// The reason of the detector's verdict on the last attempt, if that failed.
    pub verdict: Option<Box<VerdictReason>>,
    /// The price that a 402 named.
    pub price: Option<Box<str>>,
    /// The other offers of a 402, none of which is accepted: `x402 SCHEME NETWORK AMOUNT ASSET` or
    /// `rsl ADDRESS`.
    pub offers: Vec<Box<str>>,
    /// The response, if it is content and there is no store.
    pub response: Option<Response>,
    /// The host's `Crawl-delay`, if it is longer than the settings accept. Reported once per host,
    /// with the link that found it.
    pub crawl_delay_cut: Option<CrawlDelayCut>,
    /// The host, if it rejects the crawler's signature (`identity_rejected`). Reported once per
    /// host, with the link that met it first.
    pub signature_rejected_by: Option<Box<str>>,
}

/// A `Crawl-delay` that is longer than the settings accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrawlDelayCut {
    /// The host that asks for it.
    pub host: Box<str>,
    /// The requested gap.
    pub asked: Duration,
    /// The longest accepted gap.
    pub believed: Duration,
}

impl Report {
    /// The error type of a link that was not fetched because it, or its host, is paused.
    pub const PAUSED: &'static str = "paused";
    /// The error type of a link that was not fetched because its host's pace did not admit it in
    /// time. Fetch it again at [`Report::paused_until`].
    pub const PACED: &'static str = "paced";
    /// The error type of a link that the table should serve and cannot.
    pub const NO_ROUTE: &'static str = "no_route";
    /// The error type of a link without an available fetcher.
    pub const NO_FETCHER: &'static str = "no_fetcher";
    /// The error type of a link for which no request was made, because no fetcher gets past its
    /// host's vendor. The link is paused.
    pub const NO_VIABLE_FETCHER: &'static str = "no_viable_fetcher";
    /// The error type of a page that was delivered and could not be stored.
    pub const STORE_ERROR: &'static str = "store_error";

    /// Returns the report of a link for which no request was made.
    fn without_request(error_type: &'static str, message: String) -> Self {
        Self { error_type: Some(error_type), message: Some(message), ..Self::default() }
    }

    /// Returns whether it ended with an outcome of the table, rather than for lack of a route, a
    /// fetcher or storage.
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
    failed_pages: Option<FailedPageKeeper>,
    robots: Option<Arc<RobotsTxt>>,
    consent: ConsentSettings,
    cache_use: CacheUse,
    validators: Option<Arc<ValidatorLog>>,
    wait_at_most: Duration,
}

impl PipelineBuilder {
    /// Adds a fetcher; its name must be one of the selector's candidates to be chosen.
    #[must_use]
    pub fn fetcher(mut self, fetcher: Arc<dyn Fetcher>) -> Self {
        self.fetchers.push(fetcher);
        self
    }

    /// Sets the reason why a candidate is unavailable, for the message when a link asks for it.
    #[must_use]
    pub fn missing(mut self, fetcher: &str, reason: impl Into<String>) -> Self {
        self.missing.insert(canonical(fetcher).to_owned(), reason.into());
        self
    }

    /// Sets the limits of a request. The visit sets its deadline and redirects: see
    /// [`VisitSettings`](crate::selector::VisitSettings).
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the detector. The default has the shipped rules.
    #[must_use]
    pub fn detector(mut self, detector: Arc<Detector>) -> Self {
        self.detector = Some(detector);
        self
    }

    /// Adds a custom extractor of post-fetch heuristics.
    #[must_use]
    pub fn extractor(mut self, extractor: impl ResponseExtractor + 'static) -> Self {
        self.extractors.push(Box::new(extractor));
        self
    }

    /// Sets the store of bodies. Without a store they stay in the report.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// Keeps the last bodies of pages that failed. [`Report::file`] then names the body of a failed
    /// page. A body that cannot be kept changes no result: `on_error` gets the error.
    #[must_use]
    pub fn failed_pages(
        mut self,
        pages: Arc<FailedPages>,
        on_error: impl Fn(&io::Error) + Send + Sync + 'static,
    ) -> Self {
        self.failed_pages = Some((pages, Arc::new(on_error)));
        self
    }

    /// Sets how long a link may wait for its host's pace; the default is 15 minutes. A link that
    /// would have to wait longer ends as [`Report::PACED`] at once. With zero, a caller with its
    /// own frontier gets back every link that cannot go out now. A link with a retry or another
    /// fetcher to come still waits for up to a minute.
    #[must_use]
    pub fn wait_at_most(mut self, time: Duration) -> Self {
        self.wait_at_most = time;
        self
    }

    /// Sets how robots.txt is fetched, for links that obey it ([`Link::robots`]). The address guard
    /// of its fetcher and the limits of the pipeline apply. Redirects of a page are followed
    /// everywhere: only the link's own address is checked against the rules.
    #[must_use]
    pub fn robots(mut self, robots: RobotsTxt) -> Self {
        self.robots = Some(Arc::new(robots));
        self
    }

    /// Sets the purposes of the crawl, and what happens to pages whose terms reserve them against
    /// all. The default records terms and skips nothing. With purposes, robots.txt is requested for
    /// its terms wherever [`robots`](Self::robots) is set, also for links that ignore its rules.
    #[must_use]
    pub fn consent(mut self, settings: ConsentSettings) -> Self {
        self.consent = settings;
        self
    }

    /// Sets the use of pages that an earlier crawl has stored, and the log of their validators. A
    /// page that has not changed comes without a response and without a body:
    /// [`Report::not_modified`] is set. Only plain fetchers revalidate, and each page is requested
    /// in full once in 30 days.
    #[must_use]
    pub fn cache(mut self, cache_use: CacheUse, validators: Arc<ValidatorLog>) -> Self {
        self.cache_use = cache_use;
        self.validators = (cache_use != CacheUse::Off).then_some(validators);
        self
    }

    /// Builds the pipeline.
    ///
    /// # Errors
    /// [`Error::UnknownFetcher`] if a fetcher is not a candidate of the selector: it could never be
    /// chosen.
    pub fn build(self) -> Result<Pipeline, Error> {
        let known =
            |name: &str| self.selector.candidates().any(|(_, spec)| *spec.name == *canonical(name));
        if let Some(unknown) = self.fetchers.iter().find(|fetcher| !known(fetcher.name())) {
            let known = self.selector.candidates().map(|(_, spec)| spec.name.to_string()).collect();
            return Err(Error::UnknownFetcher { name: unknown.name().to_owned(), known });
        }
        let find = |name: &str| self.fetchers.iter().find(|f| canonical(f.name()) == name).cloned();
        let fetchers: Vec<_> = self
            .selector
            .candidates()
            .map(|(_, spec)| find(&spec.name).map(AvailableFetcher::new))
            .collect();
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
            store_queue: StoreQueue::default(),
            failed_pages: self.failed_pages,
            robots: self.robots,
            consent: self.consent,
            cache_use: self.cache_use,
            validators: self.validators,
            wait_at_most: self.wait_at_most,
            licenses: LicenseFiles::default(),
            signature_rejections: SignatureRejections::default(),
        })
    }
}

/// The folder of failed pages, and what is called when a body cannot be kept there.
type FailedPageKeeper = (Arc<FailedPages>, Arc<dyn Fn(&io::Error) + Send + Sync>);

/// Fetches links: decides, fetches, judges, records, escalates, pauses. Tasks share it by
/// reference.
pub struct Pipeline {
    selector: Arc<Selector>,
    /// By candidate; `None` if the pipeline lacks that fetcher.
    fetchers: Vec<Option<AvailableFetcher>>,
    unavailable: FetcherSet,
    missing: HashMap<String, String>,
    limits: Limits,
    detector: Arc<Detector>,
    extractors: Vec<Box<dyn ResponseExtractor>>,
    store: Option<Arc<dyn Store>>,
    store_queue: StoreQueue,
    failed_pages: Option<FailedPageKeeper>,
    robots: Option<Arc<RobotsTxt>>,
    consent: ConsentSettings,
    cache_use: CacheUse,
    validators: Option<Arc<ValidatorLog>>,
    wait_at_most: Duration,
    licenses: LicenseFiles,
    signature_rejections: SignatureRejections,
}

/// An available fetcher, and its free slots.
struct AvailableFetcher {
    fetcher: Arc<dyn Fetcher>,
    slots: Semaphore,
}

impl AvailableFetcher {
    fn new(fetcher: Arc<dyn Fetcher>) -> Self {
        let slots = Semaphore::new(fetcher.max_in_flight().clamp(1, Semaphore::MAX_PERMITS));
        Self { fetcher, slots }
    }
}

impl Pipeline {
    /// Returns a builder of a pipeline around `selector`.
    pub fn builder(selector: Arc<Selector>) -> PipelineBuilder {
        PipelineBuilder {
            selector,
            fetchers: Vec::new(),
            missing: HashMap::new(),
            limits: Limits::default(),
            detector: None,
            extractors: Vec::new(),
            store: None,
            failed_pages: None,
            robots: None,
            consent: ConsentSettings::default(),
            cache_use: CacheUse::Off,
            validators: None,
            wait_at_most: DEFAULT_MAX_WAIT,
        }
    }

    /// Fetches one link. Each request is recorded as one attempt, under the name of its fetcher.
    /// Never fails: the report has the result. Drop the future to cancel; the attempt in flight is
    /// then not recorded.
    pub async fn fetch(&self, link: &Link) -> Report {
        self.fetch_in_slot(link, &LinkSlot::unlimited()).await
    }

    /// Does the same as [`fetch`](Self::fetch) for a caller that limits its links at work. The link
    /// gives up its slot while it waits for a host, a fetcher or another link, so that one that can
    /// go on takes it.
    pub async fn fetch_in_slot(&self, link: &Link, slot: &LinkSlot) -> Report {
        run::run(self, link, slot).await
    }

    /// Returns the selector that it decides with.
    pub fn selector(&self) -> &Selector {
        &self.selector
    }

    fn fetcher(&self, id: FetcherId) -> Option<&AvailableFetcher> {
        self.fetchers.get(id.index())?.as_ref()
    }
}
