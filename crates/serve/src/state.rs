//! The state that all requests share: the selector, the log, the detector and the limits for
//! clients.
//!
//! Must not know: routes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::Semaphore;

use super::options::Options;
use super::problem::Problem;
use super::visits::Visits;
use crate::attempt_sink::AttemptStore;
use crate::auth::Auth;
use crate::crawl_progress::{CrawlFigures, CrawlProgress};
use crate::dashboard_cache::DashboardCache;
use crate::fleet_membership::Membership;
use crate::followed_log::FollowedLog;
use crate::request_body::{Bodies, RequestBody};
use crate::signing::{RequestSigner, StepSigner};
use crate::unavailable_fetchers::UnavailableFetchers;
use fetchwise::detect::Detector;
use fetchwise::journal::Journal;
use fetchwise::rollout::Guard;
use fetchwise::selector::Selector;

/// The largest body that is read inline, which takes some ten microseconds.
const ON_THE_SPOT_BYTES: usize = 4 << 10;

/// The state that all requests share.
pub(crate) struct State {
    /// The selector, which decides and learns.
    pub(crate) selector: Arc<Selector>,
    /// The attempt store.
    pub(crate) attempts: Arc<AttemptStore>,
    /// Unavailable candidates.
    pub(crate) unavailable: Arc<UnavailableFetchers>,
    /// The detector for responses that visits report.
    pub(crate) detector: Arc<Detector>,
    /// The detector for responses that are only classified. It reads whole pages, as the command
    /// does.
    pub(crate) classifier: Arc<Detector>,
    /// The automatic rollback of a rollout, if any.
    pub(crate) guard: Option<Arc<Guard>>,
    /// The log of another process that the server follows, if it writes none itself.
    pub(crate) followed: Option<Arc<FollowedLog>>,
    /// The cache of the dashboard.
    pub(crate) dashboard: DashboardCache,
    fleet: OnceLock<Arc<dyn Membership>>,
    crawl: OnceLock<CrawlProgress>,
    signer: OnceLock<Arc<dyn RequestSigner>>,
    /// The limits for clients.
    pub(crate) options: Arc<Options>,
    /// The admission check.
    pub(crate) auth: Arc<Auth>,
    /// The room for request bodies.
    pub(crate) bodies: Bodies,
    /// The active visits.
    pub(crate) visits: Visits,
    /// Permits for work that would block other requests.
    workers: Semaphore,
    /// The permit for work that reads the whole log.
    pub(crate) reader: Semaphore,
    stopping: AtomicBool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("selector", &self.selector)
            .field("auth", &self.auth)
            .finish_non_exhaustive()
    }
}

impl State {
    pub(crate) fn new(
        selector: Arc<Selector>,
        attempts: Arc<AttemptStore>,
        unavailable: Arc<UnavailableFetchers>,
        (detector, classifier): (Arc<Detector>, Arc<Detector>),
        (options, auth): (Options, Auth),
    ) -> Self {
        let visits = Visits::new(&options, auth.needs_token());
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let dashboard = DashboardCache::new(selector.clock().date());
        Self {
            selector,
            dashboard,
            attempts,
            unavailable,
            detector,
            classifier,
            guard: None,
            followed: None,
            fleet: OnceLock::new(),
            crawl: OnceLock::new(),
            signer: OnceLock::new(),
            bodies: Bodies::new(&options),
            options: Arc::new(options),
            auth: Arc::new(auth),
            visits,
            workers: Semaphore::new(threads),
            reader: Semaphore::new(1),
            stopping: AtomicBool::new(false),
        }
    }

    /// Sets the guard of the rollout.
    pub(crate) fn watched_by(self, guard: Option<Arc<Guard>>) -> Self {
        Self { guard, ..self }
    }

    /// Sets the log that the server follows, in place of one that it writes.
    pub(crate) fn showing(self, followed: Option<Arc<FollowedLog>>) -> Self {
        Self { followed, ..self }
    }

    /// Returns the journal.
    pub(crate) fn journal(&self) -> &Arc<Journal> {
        self.attempts.journal()
    }

    /// Returns the directory of the log that the server shows.
    pub(crate) fn log_dir(&self) -> &Path {
        self.attempts.dir()
    }

    /// Returns the fleet of the server's node, if any.
    pub(crate) fn fleet(&self) -> Option<&Arc<dyn Membership>> {
        self.fleet.get()
    }

    /// Sets the fleet of the node; only the first call has an effect.
    pub(crate) fn join(&self, fleet: Arc<dyn Membership>) {
        let _ = self.fleet.set(fleet);
    }

    /// Returns how far the crawl alongside the server is; none without one.
    pub(crate) fn crawl(&self) -> Option<CrawlFigures> {
        self.crawl.get().and_then(CrawlProgress::get)
    }

    /// Sets the crawl alongside the server; only the first call has an effect.
    pub(crate) fn accompany(&self, crawl: CrawlProgress) {
        let _ = self.crawl.set(crawl);
    }

    /// Returns the signer of requests that clients make, if any.
    pub(crate) fn signer(&self) -> Option<&Arc<dyn RequestSigner>> {
        self.signer.get()
    }

    /// Sets the signer of requests that clients make; only the first call has an effect.
    pub(crate) fn sign_with(&self, signer: Arc<dyn RequestSigner>) {
        let signed = self.selector.candidates().filter(|(_, spec)| spec.signed);
        let fetchers = signed.map(|(_, spec)| spec.name.clone()).collect();
        self.visits.sign_with(StepSigner { signer: Arc::clone(&signer), fetchers });
        let _ = self.signer.set(signer);
    }

    /// Runs work that would block other requests on a separate thread, within the permits.
    ///
    /// # Errors
    /// If the server stops, or the work panicked.
    pub(crate) async fn run_blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Self>) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let _place = self
            .workers
            .acquire()
            .await
            .map_err(|_| Problem::internal("the server is stopping"))?;
        let state = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || work(&state)).await;
        done.map_err(|error| Problem::internal(error.to_string()))
    }

    /// Runs work on a body: at once if it is short, and on a separate thread if parsing it would
    /// delay other requests.
    ///
    /// # Errors
    /// If the server stops, or the work panicked.
    pub(crate) async fn with_body<T: Send + 'static>(
        self: &Arc<Self>,
        body: RequestBody,
        work: impl FnOnce(&Arc<Self>, &[u8]) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        match body.len() <= ON_THE_SPOT_BYTES {
            true => Ok(work(self, &body)),
            false => self.run_blocking(move |state| work(state, &body)).await,
        }
    }

    /// Scans the log up to the position `end` on a separate thread.
    pub(crate) fn rescan(self: &Arc<Self>, end: u64) {
        let state = Arc::clone(self);
        tokio::spawn(async move {
            let Ok(_place) = state.reader.acquire().await else { return };
            let attempts = Arc::clone(&state.attempts);
            let scanned = tokio::task::spawn_blocking(move || attempts.rescan(end)).await;
            if !matches!(scanned, Ok(Ok(()))) {
                state.attempts.set_scan_failed();
            }
        });
    }

    /// Stops the server from accepting new work.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Returns whether the server is stopping.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}
