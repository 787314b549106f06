//! What is in force of a selector's router: mode, share and table, and whether learning was taken out of service. All of it can be
//! exchanged while other threads decide.
//!
//! Invariant: whoever reads it finds one router, the old one or the new one. Must not know who decides by it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;

use crate::router::{Fallback, Router};

/// What is in force.
pub(super) struct Steering {
    pub(super) now: ArcSwap<InForce>,
    /// Only learning is asked: what nearly every decision has to know. Written after `now`; whoever reads an old `true` decides as if
    /// it had come a moment earlier, whoever reads an old `false` finds the truth in `now`.
    pub(super) is_plain: AtomicBool,
}

#[derive(Clone)]
pub(super) struct InForce {
    pub(super) router: Arc<Router>,
    pub(super) fallen: Option<Arc<Fallback>>,
}

impl InForce {
    /// A fall-back needs something to fall back on.
    pub(super) fn has_fallen(&self) -> bool {
        self.fallen.is_some() && !self.router.table.is_empty()
    }
}

impl fmt::Debug for Steering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Steering").field("router", &self.now.load().router).finish_non_exhaustive()
    }
}

impl Steering {
    pub(super) fn new(router: Router) -> Self {
        let is_plain = AtomicBool::new(router.is_plain());
        Self { now: ArcSwap::from_pointee(InForce { router: Arc::new(router), fallen: None }), is_plain }
    }

    pub(super) fn change(&self, change: impl Fn(&InForce) -> InForce) {
        self.now.rcu(|now| change(now));
        // Two threads that change at once may come here in either order: each writes what it finds, and the later one finds what
        // both have done. Release and the Acquire below: whoever reads `false` finds the router that it was written for.
        let now = self.now.load();
        self.is_plain.store(now.router.is_plain() && !now.has_fallen(), Ordering::Release);
        drop(now);
        let again = self.now.load();
        if !again.router.is_plain() || again.has_fallen() {
            self.is_plain.store(false, Ordering::Release);
        }
    }
}
