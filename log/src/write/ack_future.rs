//! The future of an acknowledgement, which threads can wait for as well.
//!
//! Owns: the future.
//!
//! Invariant: a dropped future leaves nothing behind, and the writer thread learns of each waiter.
//!
//! Must not know: files, frames.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::shared::Shared;
use crate::error::WaitError;
use crate::write::ack_tracker::Goal;

/// An outstanding acknowledgement: a future, and something to block on.
#[derive(Debug)]
#[must_use = "a flush has no result unless it is awaited"]
pub struct Acknowledgement {
    shared: Arc<Shared>,
    goal: Goal,
    since: Option<u64>,
    id: Option<u64>,
    done: Option<Result<(), WaitError>>,
}

impl Acknowledgement {
    /// One that waits for nothing.
    pub(super) fn done(shared: Arc<Shared>, result: Result<(), WaitError>) -> Self {
        Self { shared, goal: Goal::Written(0), since: None, id: None, done: Some(result) }
    }

    /// One that waits for `goal`; see [`Acks::wait`](crate::write::ack_tracker::Acks::wait) for
    /// `since`.
    pub(super) fn pending(shared: Arc<Shared>, goal: Goal, since: Option<u64>) -> Self {
        Self { shared, goal, since, id: None, done: None }
    }

    /// Blocks until it is done.
    ///
    /// # Errors
    ///
    /// If the attempt failed. The records stay in memory, and the log retries.
    pub fn wait(self) -> Result<(), WaitError> {
        match &self.done {
            Some(result) => result.clone(),
            None => self.shared.wait(self.goal, self.since),
        }
    }
}

impl Future for Acknowledgement {
    type Output = Result<(), WaitError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(result) = &this.done {
            return Poll::Ready(result.clone());
        }
        match this.shared.acks.poll(this.goal, this.since, &mut this.id, cx.waker()) {
            Some(result) => {
                this.done = Some(result.clone());
                Poll::Ready(result)
            }
            None => {
                this.shared.want(this.goal);
                Poll::Pending
            }
        }
    }
}

impl Drop for Acknowledgement {
    fn drop(&mut self) {
        if let (Some(id), None) = (self.id, &self.done) {
            self.shared.acks.forget(id);
        }
    }
}
