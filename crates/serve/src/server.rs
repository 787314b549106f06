//! The server: it is put together, answers for as long as it is wanted, and stops so that nothing is lost.
//!
//! Owns what goes on beside requests: sweeping visits, watching the log, counting it anew. Must not know what routes do.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use super::options::Options;
use super::routes;
use super::state::State;
use super::token::Tokens;
use crate::attempt_store::Kept;
use crate::auth::Gate;
use crate::fleet_membership::Membership;
use crate::listener::Front;
use crate::unavailable_fetchers::Missing;
use fetchwise::detect::Detector;
use fetchwise::journal::{Journal, JournalError};
use fetchwise::rollout::Guard;
use fetchwise::selector::Selector;

/// How often visits are looked for that nobody came back to.
const SWEEP: Duration = Duration::from_secs(1);

/// So often it is seen whether the log was synced.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// What a server is made of.
#[derive(Debug)]
pub struct Parts {
    /// Who decides, and knows what is in the journal. Its sink is set here.
    pub selector: Selector,
    /// Where attempts go. Nobody may write to it beside the selector. It should refuse what it has no room for
    /// ([`OnFull::Error`](fetchwise::journal::OnFull::Error)), so that no request is held up by a disk.
    pub journal: Arc<Journal>,
    /// Reads what visits report.
    pub detector: Arc<Detector>,
    /// Reads what is only to be classified.
    pub classifier: Arc<Detector>,
    /// Candidates that are not to be had, and why.
    pub missing: Vec<(String, String)>,
    /// The tokens; without any the server answers to all who reach it.
    pub tokens: Tokens,
    /// What clients are allowed.
    pub options: Options,
    /// Who compares the arms of a rollout, if somebody does: it counts what is recorded.
    pub guard: Option<Arc<Guard>>,
}

/// A server that does not listen yet.
#[derive(Debug)]
pub struct Server {
    state: Arc<State>,
    end: u64,
}

impl Server {
    /// Puts a server together. Called within a runtime.
    ///
    /// # Errors
    /// When the journal cannot say where it ends, or the system has no randomness.
    pub fn new(parts: Parts) -> Result<Self, JournalError> {
        let Parts { mut selector, journal, detector, classifier, missing, tokens, options, guard } = parts;
        let missing = Arc::new(Missing::new(&selector, missing));
        let mut seed = [0; 8];
        // Without randomness ids are told apart all the same, only not by a secret.
        let _ = getrandom::fill(&mut seed);
        let kept = Kept::new(journal, Arc::clone(&missing), Arc::clone(selector.clock()), u64::from_ne_bytes(seed));
        let kept = Arc::new(kept);
        selector.set_sink(match &guard {
            Some(guard) => Box::new(guard.watched(Arc::clone(&kept))),
            None => Box::new(Arc::clone(&kept)),
        });
        let gate = Gate::new(tokens, &options);
        let detectors = (detector, classifier);
        let state = Arc::new(State::new(Arc::new(selector), kept, missing, detectors, guard, options, gate));
        let end = state.kept.end()?;
        Ok(Self { state, end })
    }

    /// Says that the server's node has joined a fleet: it is then shown, counted, and told what is to be forgotten.
    #[must_use]
    pub fn in_fleet(self, fleet: Arc<dyn Membership>) -> Self {
        self.state.join(fleet);
        self
    }

    /// What may be asked of the server from outside of it, also while it runs.
    pub fn handle(&self) -> Handle {
        Handle { state: Arc::clone(&self.state) }
    }

    /// Answers on `listener` until `stop` ends; then lets what is under way come to its end, within
    /// [`Options::grace`], and sees to it that the journal has everything on disk. Says how many connections it has had to cut.
    ///
    /// # Errors
    /// When the journal cannot be written at the end: what was acknowledged is there, what was not may be lost.
    pub async fn run(self, listener: TcpListener, stop: impl Future<Output = ()>) -> io::Result<usize> {
        let Self { state, end } = self;
        state.look(end);
        let sweeper = tokio::spawn(sweep(Arc::clone(&state)));
        let watching = tokio::spawn(watch_log(Arc::clone(&state)));
        let router = routes::router(Arc::clone(&state));
        let front = Front { gate: Arc::clone(&state.gate), options: Arc::clone(&state.options), router };
        let cut = front.run(listener, stop, || state.stop()).await;
        sweeper.abort();
        watching.abort();
        // What was handed out and not reported is as if it had never been.
        state.visits.clear();
        if let Some(pace) = state.selector.pace() {
            // Where hosts stand now is where the next run begins.
            pace.close(state.selector.now());
        }
        state.journal().flush().await.map_err(io::Error::other)?;
        Ok(cut)
    }
}

/// A server, for those who look after it.
#[derive(Clone, Debug)]
pub struct Handle {
    state: Arc<State>,
}

impl Handle {
    /// Who decides.
    pub fn selector(&self) -> &Arc<Selector> {
        &self.state.selector
    }

    /// Counts the log anew, since old attempts were dropped from it. The figures are those of before until that is done, and requests
    /// for them wait.
    pub async fn recount(&self) {
        let kept = Arc::clone(&self.state.kept);
        match tokio::task::spawn_blocking(move || kept.renew()).await {
            Ok(Ok(end)) => {
                self.state.board.forget();
                self.state.look(end);
            }
            _ => self.state.kept.cannot_look(),
        }
    }
}

/// Drops the visits that nobody comes back to, for as long as the server runs.
async fn sweep(state: Arc<State>) {
    let mut timer = tokio::time::interval(SWEEP);
    timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        timer.tick().await;
        state.visits.sweep();
    }
}

/// Sees when the log is synced.
async fn watch_log(state: Arc<State>) {
    let mut ticks = tokio::time::interval(WATCH_EVERY);
    loop {
        ticks.tick().await;
        state.board.watch(&state.journal().metrics(), state.selector.now());
    }
}
