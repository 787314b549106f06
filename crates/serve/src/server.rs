//! The server: construction, run and graceful stop.
//!
//! Owns: the background tasks (expiry of visits, checks of the log, recounts).
//!
//! Must not know: what routes do.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use super::options::Options;
use super::routes;
use super::state::State;
use super::token::Tokens;
use crate::attempt_sink::AttemptStore;
use crate::auth::Auth;
use crate::crawl_progress::CrawlProgress;
use crate::event_marks::EventKind;
use crate::fleet_membership::Membership;
use crate::follow::follow;
use crate::followed_log::FollowedLog;
use crate::listener::Front;
use crate::signing::RequestSigner;
use crate::unavailable_fetchers::UnavailableFetchers;
use fetchwise::detect::Detector;
use fetchwise::journal::{Follower, Journal, JournalError, TombstoneTarget};
use fetchwise::registry::FetcherSpec;
use fetchwise::rollout::Guard;
use fetchwise::selector::{Selector, Sink};

/// The interval between two checks for abandoned visits.
const SWEEP: Duration = Duration::from_secs(1);

/// The interval between two checks whether the log was synced.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// The parts of a server.
#[derive(Debug)]
pub struct Parts {
    /// The selector, which has replayed the journal. The server sets its sink.
    pub selector: Selector,
    /// Fetchers with a known class and cost; candidates need not be among them.
    pub registered: Vec<FetcherSpec>,
    /// The journal for attempts. Only the selector may write to it. It should refuse records when
    /// its queue is full ([`OnFull::Error`](fetchwise::journal::OnFull::Error)), so that no request
    /// waits for a disk.
    pub journal: Arc<Journal>,
    /// The detector for responses that visits report.
    pub detector: Arc<Detector>,
    /// The detector for responses that are only classified.
    pub classifier: Arc<Detector>,
    /// Unavailable candidates, and why they are unavailable.
    pub unavailable: Vec<(String, String)>,
    /// The tokens; without any, the server is open to every client that reaches it.
    pub tokens: Tokens,
    /// The limits for clients.
    pub options: Options,
    /// The automatic rollback that compares the arms of a rollout, if any; it counts recorded
    /// attempts.
    pub guard: Option<Arc<Guard>>,
    /// The log of another process that the server shows instead of its journal. The options must be
    /// read-only, and the journal one that nothing is written to.
    pub followed: Option<Follower>,
}

/// Returns the candidates, then the other fetchers of `registered`.
fn with_candidates(registered: Vec<FetcherSpec>, selector: &Selector) -> Vec<FetcherSpec> {
    let mut specs: Vec<FetcherSpec> = selector.candidates().map(|(_, spec)| spec.clone()).collect();
    let is_candidate =
        |spec: &FetcherSpec| selector.candidates().any(|(_, known)| known.name == spec.name);
    specs.extend(registered.into_iter().filter(|spec| !is_candidate(spec)));
    specs
}

/// A server that does not listen yet.
#[derive(Debug)]
pub struct Server {
    state: Arc<State>,
    end: u64,
    follower: Option<Follower>,
}

impl Server {
    /// Creates a server. Must be called within a runtime.
    ///
    /// # Errors
    /// If the journal does not report its end.
    pub fn new(parts: Parts) -> Result<Self, JournalError> {
        Self::observed(parts, |sink| Box::new(sink))
    }

    /// Works like [`Server::new`]; the selector records to what `observe` returns, which must pass
    /// everything on.
    ///
    /// # Errors
    /// As [`Server::new`].
    pub fn observed(
        parts: Parts,
        observe: impl FnOnce(Arc<dyn Sink>) -> Box<dyn Sink>,
    ) -> Result<Self, JournalError> {
        let Parts {
            mut selector,
            registered,
            journal,
            detector,
            classifier,
            unavailable,
            tokens,
            options,
            guard,
            followed,
        } = parts;
        let unavailable = Arc::new(UnavailableFetchers::new(&selector, unavailable));
        let dir = followed.as_ref().map_or_else(|| journal.dir(), Follower::dir).to_owned();
        let attempts = AttemptStore::new(
            journal,
            dir,
            Arc::clone(&unavailable),
            with_candidates(registered, &selector),
            Arc::clone(selector.clock()),
        );
        attempts.marks().add(selector.clock().date(), EventKind::Started, "");
        let attempts = Arc::new(attempts);
        selector.set_sink(observe(match &guard {
            Some(guard) => Arc::new(guard.watched(Arc::clone(&attempts))),
            None => Arc::clone(&attempts) as Arc<dyn Sink>,
        }));
        let auth = Auth::new(tokens, &options);
        let detectors = (detector, classifier);
        let state =
            State::new(Arc::new(selector), attempts, unavailable, detectors, (options, auth));
        let state = state
            .watched_by(guard)
            .showing(followed.as_ref().map(|_| Arc::new(FollowedLog::default())));
        let end = match &followed {
            Some(follower) => follower.next_seq(),
            None => state.attempts.end()?,
        };
        Ok(Self { state: Arc::new(state), end, follower: followed })
    }

    /// Connects the server to the fleet of its node: the server then shows its state and metrics,
    /// and forwards requests to forget.
    #[must_use]
    pub fn in_fleet(self, fleet: Arc<dyn Membership>) -> Self {
        self.state.join(fleet);
        self
    }

    /// Makes the dashboard show the progress of the crawl that runs alongside the server.
    #[must_use]
    pub fn of_crawl(self, crawl: CrawlProgress) -> Self {
        self.state.accompany(crawl);
        self
    }

    /// Makes the server sign requests that its clients make: `POST /v1/sign`, and the requests that
    /// visits hand out to candidates that sign. Only clients with a token get signatures.
    #[must_use]
    pub fn signing(self, signer: Arc<dyn RequestSigner>) -> Self {
        self.state.sign_with(signer);
        self
    }

    /// Returns a handle, which stays usable while the server runs.
    pub fn handle(&self) -> Handle {
        Handle { state: Arc::clone(&self.state) }
    }

    /// Serves `listener` until `stop` completes. Active requests then have [`Options::grace`] to
    /// finish, and the journal is synced. Returns the number of connections that the server had to
    /// cut.
    ///
    /// # Errors
    /// If the journal cannot be written at the end. Acknowledged attempts are safe, others may be
    /// lost.
    pub async fn run(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()>,
    ) -> io::Result<usize> {
        let Self { state, end, follower } = self;
        state.rescan(end);
        let following = follower.map(|follower| tokio::spawn(follow(Arc::clone(&state), follower)));
        let sweeper = tokio::spawn(sweep(Arc::clone(&state)));
        let watching = tokio::spawn(watch_log(Arc::clone(&state)));
        let router = routes::router(Arc::clone(&state));
        let front =
            Front { auth: Arc::clone(&state.auth), options: Arc::clone(&state.options), router };
        let cut = front.run(listener, stop, || state.stop()).await;
        sweeper.abort();
        watching.abort();
        if let Some(following) = following {
            following.abort();
        }
        // Unreported requests count as never handed out.
        state.visits.clear();
        if let Some(pace) = state.selector.pace() {
            // The next run starts with the current state of hosts.
            pace.close(state.selector.now());
        }
        state.journal().flush().await.map_err(io::Error::other)?;
        Ok(cut)
    }
}

/// Serves `listener` while a server is being built, until `loaded` completes: health checks get a
/// response, and all other requests a 503.
pub async fn while_loading(
    listener: &TcpListener,
    tokens: Tokens,
    options: &Options,
    loaded: impl Future<Output = ()>,
) {
    let auth = Arc::new(Auth::new(tokens, options));
    let front =
        Front { auth, options: Arc::new(options.clone()), router: routes::health::while_loading() };
    front.run_until(listener, loaded).await;
}

/// A handle to a running server.
#[derive(Clone, Debug)]
pub struct Handle {
    state: Arc<State>,
}

impl Handle {
    /// Returns the selector.
    pub fn selector(&self) -> &Arc<Selector> {
        &self.state.selector
    }

    /// Marks on the dashboard's charts that settings were read again; `text` says what applies now.
    pub fn mark_reload(&self, text: &str) {
        self.state.attempts.marks().add(self.selector().clock().date(), EventKind::Reloaded, text);
    }

    /// Counts the log again with the costs that the candidates have now.
    pub async fn costs_changed(&self) {
        self.state.attempts.set_costs(self.selector().candidates().map(|(_, spec)| spec));
        self.recount().await;
    }

    /// Drops the marks of the charts that name a forgotten domain or link; those of all hosts if it
    /// is not known which.
    pub fn forget_marks(&self, target: Option<&TombstoneTarget>) {
        self.state.attempts.marks().forget(target);
    }

    /// Counts the log again, because old attempts were dropped from it. Requests for figures wait
    /// until the count is complete.
    pub async fn recount(&self) {
        let attempts = Arc::clone(&self.state.attempts);
        match tokio::task::spawn_blocking(move || attempts.reset()).await {
            Ok(Ok(end)) => {
                self.state.dashboard.forget();
                self.state.rescan(end);
            }
            _ => self.state.attempts.set_scan_failed(),
        }
    }
}

/// Drops abandoned visits for as long as the server runs.
async fn sweep(state: Arc<State>) {
    let mut timer = tokio::time::interval(SWEEP);
    timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        timer.tick().await;
        state.visits.sweep();
    }
}

/// Checks periodically whether the log was synced.
async fn watch_log(state: Arc<State>) {
    let mut ticks = tokio::time::interval(WATCH_EVERY);
    loop {
        ticks.tick().await;
        state.dashboard.watch(&state.journal().metrics(), state.selector.clock().date());
    }
}
