//! The gate of a request: each host of a chain of redirects admits its own request, and so does the
//! first host for a request that no visit has handed out.
//!
//! Invariants: no lock is held while a request waits.
//!
//! Must not know: when a host admits a request.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use url::Url;

use super::Pipeline;
use super::link_slot::LinkSlot;
use super::wait::{pause, sits_out};
use crate::selector::Selector;
use crate::visit::redirect::RedirectRefusal;
use crate::visit::{Fetch, Visit, Wait};
use fetchwise_fetchers::fetch::redirect_gate::PassFuture;
use fetchwise_fetchers::fetch::{RedirectGate, Response};

/// A request that asks hosts for admission.
pub(super) trait Entrant: Send {
    /// Requests admission to the host of `to`. After a wait, it is called again with the same URL.
    fn enter(&mut self, to: &Url) -> Result<(), RedirectRefusal>;
}

/// A request for a page.
pub(super) struct PageRequest<'g, 'w> {
    pub(super) visit: &'g mut Visit<&'w Selector, &'w Url>,
    pub(super) fetch: &'g mut Fetch<&'w Selector>,
}

impl Entrant for PageRequest<'_, '_> {
    fn enter(&mut self, to: &Url) -> Result<(), RedirectRefusal> {
        self.visit.enter(self.fetch, to)
    }
}

/// The gate of one request.
pub(super) struct Gate<'g, E> {
    pipeline: &'g Pipeline,
    link_slot: &'g LinkSlot,
    state: Mutex<GateState<E>>,
}

struct GateState<E> {
    entrant: E,
    /// The time of waits that are over, and the beginning of the current one.
    waited: Duration,
    waiting_since: Option<Instant>,
    /// The target that was not requested, and the reason.
    refusal: Option<(Url, RedirectRefusal)>,
}

impl<'g, E: Entrant> Gate<'g, E> {
    pub(super) fn new(pipeline: &'g Pipeline, link_slot: &'g LinkSlot, entrant: E) -> Self {
        let state =
            GateState { entrant, waited: Duration::ZERO, waiting_since: None, refusal: None };
        Self { pipeline, link_slot, state: Mutex::new(state) }
    }

    /// Waits until the request to `to` may go out. Returns `false` if it may not. `has_begun` says
    /// whether the link has made a request.
    pub(super) async fn enter(&self, to: &Url, has_begun: bool) -> bool {
        loop {
            let wait = match self.ask(to, has_begun) {
                Ok(is_admitted) => return is_admitted,
                Err(wait) => wait,
            };
            self.lock().waiting_since = Some(Instant::now());
            pause(self.pipeline, self.link_slot, wait).await;
            let mut state = self.lock();
            let waited = state.waiting_since.take().map_or(Duration::ZERO, |since| since.elapsed());
            state.waited += waited;
        }
    }

    /// Returns the request, and the target that was not requested with the reason.
    pub(super) fn into_parts(self) -> (E, Option<(Url, RedirectRefusal)>) {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        (state.entrant, state.refusal)
    }

    fn lock(&self) -> MutexGuard<'_, GateState<E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for admission to `to`. Returns what to wait for, or whether the request may go out.
    fn ask(&self, to: &Url, has_begun: bool) -> Result<bool, Wait> {
        let mut state = self.lock();
        match state.entrant.enter(to) {
            Ok(()) => Ok(true),
            Err(RedirectRefusal::Wait(wait)) if sits_out(self.pipeline, &wait, has_begun) => {
                Err(wait)
            }
            Err(why) => {
                state.refusal = Some((to.clone(), why));
                Ok(false)
            }
        }
    }
}

impl<E> fmt::Debug for Gate<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}

impl<E: Entrant> RedirectGate for Gate<'_, E> {
    fn pass<'a>(&'a self, to: &'a Url) -> PassFuture<'a> {
        // The host that redirects has been asked.
        Box::pin(self.enter(to, true))
    }

    fn waited(&self) -> Duration {
        let state = self.lock();
        state.waited + state.waiting_since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// Returns the number of requests that went to the host that responded.
pub(super) fn requests(response: &Response) -> Option<u16> {
    let same = |other: &&Url| other.host() == response.final_url.host();
    let asked = response.chain.iter().chain(&response.unanswered).filter(same).count() + 1;
    response.requests.or(u16::try_from(asked).ok())
}
