//! The pipeline: one URL's whole way, from the decision to the recorded attempt.
//!
//! [`Pipeline::fetch`] is the one entry. It owns the set of fetchers, the state of links at risk, single flight and trials;
//! `run` is one URL's way through. Must not judge pages (that is [`crate::detect`]) nor choose (that is the selector's).

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use tokio::sync::Semaphore;

use crate::attempt::Attempt;
use crate::backoff::LinkState;
use crate::decision::Source;
use crate::detect::{Detector, ResponseExtractor};
use crate::fetch::{Fetcher, Limits, Response};
use crate::registry::{FetcherId, FetcherSet, canonical};
use crate::router::Router;
use crate::selector::Selector;
use crate::store::Store;
use crate::time::{Clock, Timestamp};

mod flight;
mod hosts;
#[cfg(test)]
mod properties;
mod run;

/// One thing to fetch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its address, as text: what cannot be fetched ends as `invalid_url`.
    pub url: String,
    /// The caller's name for it; the URL unless it has another. Pauses hold for this name.
    pub id: Option<String>,
    /// Its own wish for (`true`) or against (`false`) learning, before every other setting.
    pub learning: Option<bool>,
    /// The fetcher that the caller wants for the first attempt.
    pub fetcher: Option<String>,
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
    /// How long it all took.
    pub duration: Duration,
    /// Where the body was stored.
    pub file: Option<PathBuf>,
    /// Until when the link is paused now.
    pub paused_until: Option<Timestamp>,
    /// What came, when it is content and there is no store.
    pub response: Option<Response>,
}

impl Report {
    /// The error type of a link that was not fetched because it, or its host, is paused.
    pub const PAUSED: &'static str = "paused";
    /// The error type of a link that the table should serve and cannot.
    pub const NO_ROUTE: &'static str = "no_route";
    /// The error type of a link for which no fetcher is to be had.
    pub const NO_FETCHER: &'static str = "no_fetcher";
    /// The error type of a page that came and could not be stored.
    pub const STORE_ERROR: &'static str = "store_error";

    /// Whether it ended as the table of outcomes says, rather than for want of a route, a fetcher or a place to store.
    pub fn is_classified(&self) -> bool {
        !matches!(self.error_type, Some(Self::NO_ROUTE | Self::NO_FETCHER | Self::STORE_ERROR))
    }
}

/// Where link and host states go beside memory, so that a restart remembers pauses: the log.
pub trait StateLog: Send + Sync {
    /// Takes over a link's new state.
    fn link_state(&self, link: &str, url: &str, state: &LinkState, at: Timestamp);
    /// Takes over a host's pause, or its end.
    fn host_pause(&self, domain: &str, until: Option<Timestamp>, at: Timestamp);
}

/// What a request may cost, and how far a block goes.
#[derive(Clone, Debug)]
pub struct PipelineSettings {
    /// The limits of a full request.
    pub limits: Limits,
    /// The limits of a probe.
    pub probe_limits: Limits,
    /// Whether another fetcher is tried after a block; if not, a block ends the URL at once.
    pub escalate_after_block: bool,
}

impl Default for PipelineSettings {
    fn default() -> Self {
        let limits = Limits::default();
        let probe_limits = Limits { deadline: Duration::from_secs(3), max_redirects: 5, ..limits.clone() };
        Self { limits, probe_limits, escalate_after_block: true }
    }
}

/// Builds a [`Pipeline`].
pub struct PipelineBuilder {
    selector: Arc<Selector>,
    fetchers: Vec<Arc<dyn Fetcher>>,
    missing: HashMap<String, String>,
    settings: PipelineSettings,
    router: Router,
    detector: Option<Arc<Detector>>,
    extractors: Vec<Box<dyn ResponseExtractor>>,
    store: Option<Arc<dyn Store>>,
    states: Option<Arc<dyn StateLog>>,
    links: HashMap<String, LinkState>,
    host_levels: HashMap<String, u8>,
    clock: Arc<Clock>,
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

    /// Sets limits and strictness.
    #[must_use]
    pub fn settings(mut self, settings: PipelineSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Sets the router; learning, with an empty table, unless set.
    #[must_use]
    pub fn router(mut self, router: Router) -> Self {
        self.router = router;
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

    /// Sets where link and host states go beside memory.
    #[must_use]
    pub fn states(mut self, states: Arc<dyn StateLog>) -> Self {
        self.states = Some(states);
        self
    }

    /// Starts with these link states, as a replay found them.
    #[must_use]
    pub fn links(mut self, links: HashMap<String, LinkState>) -> Self {
        self.links = links;
        self
    }

    /// Starts with these hosts paused so many times in a row, as a replay found them.
    #[must_use]
    pub fn host_levels(mut self, levels: HashMap<String, u8>) -> Self {
        self.host_levels = levels;
        self
    }

    /// Sets the clock; the system's unless set.
    #[must_use]
    pub fn clock(mut self, clock: Arc<Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Builds it.
    pub fn build(self) -> Pipeline {
        let find = |name: &str| self.fetchers.iter().find(|f| canonical(f.name()) == name).cloned();
        let fetchers: Vec<_> =
            self.selector.candidates().map(|(_, spec)| find(&spec.name).map(Available::new)).collect();
        let mut unavailable = FetcherSet::EMPTY;
        for (id, _) in self.selector.candidates().filter(|(id, _)| fetchers[id.index()].is_none()) {
            unavailable.insert(id);
        }
        Pipeline {
            fetchers,
            unavailable,
            selector: self.selector,
            missing: self.missing,
            settings: self.settings,
            router: self.router,
            detector: self.detector.unwrap_or_else(|| Arc::new(Detector::new())),
            extractors: self.extractors,
            store: self.store,
            states: self.states,
            links: self.links.into_iter().collect(),
            clock: self.clock,
            flights: flight::Flights::default(),
            hosts: hosts::Hosts::with_levels(self.host_levels),
        }
    }
}

/// Fetches links: decides, fetches, judges, records, escalates, pauses. Shared by reference between tasks.
pub struct Pipeline {
    selector: Arc<Selector>,
    /// By candidate; None where there is no such fetcher here.
    fetchers: Vec<Option<Available>>,
    unavailable: FetcherSet,
    missing: HashMap<String, String>,
    settings: PipelineSettings,
    router: Router,
    detector: Arc<Detector>,
    extractors: Vec<Box<dyn ResponseExtractor>>,
    store: Option<Arc<dyn Store>>,
    states: Option<Arc<dyn StateLog>>,
    /// Links at risk or paused; all others have the default state.
    links: DashMap<String, LinkState>,
    clock: Arc<Clock>,
    flights: flight::Flights,
    hosts: hosts::Hosts,
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
            settings: PipelineSettings::default(),
            router: Router::default(),
            detector: None,
            extractors: Vec::new(),
            store: None,
            states: None,
            links: HashMap::new(),
            host_levels: HashMap::new(),
            clock: Arc::default(),
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

    /// The state of a link, as the pipeline keeps it.
    pub fn link_state(&self, link: &str) -> LinkState {
        self.links.get(link).map_or_else(LinkState::default, |state| *state)
    }

    fn fetcher(&self, id: FetcherId) -> Option<&Available> {
        self.fetchers.get(id.index())?.as_ref()
    }

    /// Changes a link's state: in memory while it is at risk, and in the log. Both under the entry's lock, so that the log
    /// has the changes in the order in which they were made.
    fn keep_state(
        &self,
        link: &str,
        url: &str,
        at: Timestamp,
        change: impl FnOnce(LinkState) -> LinkState,
    ) -> LinkState {
        let say = |state: &LinkState| {
            if let Some(states) = &self.states {
                states.link_state(link, url, state, at);
            }
        };
        let at_risk = |state: &LinkState| state.risk_level > 0 || state.paused_until.is_some() || state.hint.is_some();
        match self.links.entry(link.to_owned()) {
            Entry::Occupied(mut entry) => {
                let state = change(*entry.get());
                say(&state);
                if at_risk(&state) {
                    entry.insert(state);
                } else {
                    entry.remove();
                }
                state
            }
            Entry::Vacant(entry) => {
                let state = change(LinkState::default());
                if at_risk(&state) {
                    say(&state);
                    entry.insert(state);
                }
                state
            }
        }
    }

    fn keep_host_pause(&self, domain: &str, until: Option<Timestamp>, at: Timestamp) {
        if let Some(states) = &self.states {
            states.host_pause(domain, until, at);
        }
    }

    /// Records an attempt. A log that cannot take it says so itself; memory has it all the same.
    fn record(&self, attempt: Attempt) {
        let _ = self.selector.record(attempt, self.clock.now());
    }
}
