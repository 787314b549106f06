//! Others who ask from the same address: what a host does to one of them it does to all.
//!
//! Owns: what is told to them of a host, and what they are asked before a host is tried out. Invariant: nobody is asked about a host
//! that was never paused. Must not know: who they are, or how they are reached.

use std::fmt;

use event_listener::{Event, EventListener};

use fetchwise_types::time::Timestamp;

/// Those who share the address. Set with [`Selector::set_neighbours`](crate::Selector::set_neighbours).
///
/// All of it is called while a visit is under way: none of it may block, or ask anything of the selector.
pub trait Neighbours: fmt::Debug + Send + Sync {
    /// This process has paused a host at `at`, until then.
    fn paused(&self, domain: &str, until: Timestamp, at: Timestamp);

    /// This process has found that a host is fine again, or was told so by an operator.
    fn lifted(&self, domain: &str);

    /// The pause of a host ended at `ended`: may this process be the one to try it out?
    fn may_try(&self, domain: &str, ended: Timestamp, now: Timestamp) -> MayTry;
}

/// Whether a host may be tried out.
#[derive(Debug)]
pub enum MayTry {
    /// By this process, now.
    Now,
    /// By somebody else: not before then.
    NotBefore(Timestamp),
    /// That is being settled: ask again when it is.
    Asking(Settled),
}

/// The end of something that is being settled.
#[derive(Debug)]
pub struct Settled(pub(crate) EventListener);

/// Wakes those who wait for something to be settled.
#[derive(Debug, Default)]
pub struct Settling(Event);

impl Settling {
    /// Is woken by the next [`Settling::settled`]. Listen first, and look then whether it has come already.
    pub fn wait(&self) -> Settled {
        Settled(self.0.listen())
    }

    /// It is settled.
    pub fn settled(&self) {
        self.0.notify(usize::MAX);
    }
}
