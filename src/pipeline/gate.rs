//! The gate of redirects that a fetcher follows by itself: each host of the chain admits its own request.
//!
//! Invariants: no lock is held while a request waits.
//!
//! Must not know: when a host admits a request. The visit decides that.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use url::Url;

use super::Pipeline;
use super::link_slot::LinkSlot;
use super::wait::{pause, sits_out};
use crate::selector::Selector;
use crate::visit::redirect::RedirectRefusal;
use crate::visit::{Fetch, Visit};
use fetchwise_fetchers::fetch::RedirectGate;
use fetchwise_fetchers::fetch::redirect_gate::PassFuture;

/// The gate of one request.
pub(super) struct Gate<'g, 'w> {
    pipeline: &'w Pipeline,
    link_slot: &'g LinkSlot,
    state: Mutex<GateState<'g, 'w>>,
}

struct GateState<'g, 'w> {
    visit: &'g mut Visit<&'w Selector, &'w Url>,
    fetch: &'g mut Fetch<&'w Selector>,
    /// The time of waits that are over, and the beginning of the current one.
    waited: Duration,
    waiting_since: Option<Instant>,
    /// The target that was not requested, and the reason.
    refusal: Option<(Url, RedirectRefusal)>,
}

impl<'g, 'w> Gate<'g, 'w> {
    pub(super) fn new(
        pipeline: &'w Pipeline,
        link_slot: &'g LinkSlot,
        visit: &'g mut Visit<&'w Selector, &'w Url>,
        fetch: &'g mut Fetch<&'w Selector>,
    ) -> Self {
        let state = GateState { visit, fetch, waited: Duration::ZERO, waiting_since: None, refusal: None };
        Self { pipeline, link_slot, state: Mutex::new(state) }
    }

    /// Returns the target that was not requested, and the reason.
    pub(super) fn into_refusal(self) -> Option<(Url, RedirectRefusal)> {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).refusal
    }

    fn lock(&self) -> MutexGuard<'_, GateState<'g, 'w>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for admission to `to`. Returns what to wait for, or whether the request may go out.
    fn ask(&self, to: &Url) -> Result<bool, crate::visit::Wait> {
        let mut state = self.lock();
        let GateState { visit, fetch, refusal, .. } = &mut *state;
        match visit.enter(fetch, to) {
            Ok(()) => Ok(true),
            // The host that redirects has been asked.
            Err(RedirectRefusal::Wait(wait)) if sits_out(self.pipeline, &wait, true) => Err(wait),
            Err(why) => {
                *refusal = Some((to.clone(), why));
                Ok(false)
            }
        }
    }
}

impl fmt::Debug for Gate<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}

impl RedirectGate for Gate<'_, '_> {
    fn pass<'a>(&'a self, to: &'a Url) -> PassFuture<'a> {
        Box::pin(async move {
            loop {
                let wait = match self.ask(to) {
                    Ok(admitted) => return admitted,
                    Err(wait) => wait,
                };
                self.lock().waiting_since = Some(Instant::now());
                pause(self.pipeline, self.link_slot, wait).await;
                let mut state = self.lock();
                let waited = state.waiting_since.take().map_or(Duration::ZERO, |since| since.elapsed());
                state.waited += waited;
            }
        })
    }

    fn waited(&self) -> Duration {
        let state = self.lock();
        state.waited + state.waiting_since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}
