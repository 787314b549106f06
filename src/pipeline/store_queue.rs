//! The queue of pages for a store. A busy crawl hands over most of its pages without waking a
//! thread: the writer that is at work takes all that waits.
//!
//! Owns: the number of writers. Another one starts only when those at work fall behind, as on a
//! slow disk: a few pages may wait for one that takes long.
//!
//! Invariants: work never waits without a writer. Its caller gets the result, or learns that there
//! is none.
//!
//! Must not know: what a store writes.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

/// Maximum number of writers.
const MAX_WRITERS: usize = 8;
/// Waiting pages of each writer from which on another one starts.
const BACKLOG: usize = 4;

type Work = Box<dyn FnOnce() + Send>;

/// A queue of work that blocks.
#[derive(Default)]
pub(super) struct StoreQueue(Arc<Mutex<QueueState>>);

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<Work>,
    /// Writers at work, with those whose thread has not started yet.
    writers: usize,
}

impl StoreQueue {
    /// Calls `work` on a thread for blocking work. `None` if it panicked, or if the runtime ends
    /// before it begins.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (result, done) = oneshot::channel();
        self.push(Box::new(move || drop(result.send(work()))));
        done.await.ok()
    }

    fn push(&self, work: Work) {
        let mut state = lock(&self.0);
        state.waiting.push_back(work);
        if state.writers < MAX_WRITERS && state.waiting.len() > BACKLOG * state.writers {
            state.writers += 1;
            drop(state);
            let writer = Writer { queue: Arc::clone(&self.0), is_at_work: true };
            spawn_blocking(move || writer.run());
        }
    }
}

/// A writer, which works until nothing waits.
struct Writer {
    queue: Arc<Mutex<QueueState>>,
    is_at_work: bool,
}

impl Writer {
    fn run(mut self) {
        while let Some(work) = self.next() {
            // The missing result tells the caller.
            let _ = catch_unwind(AssertUnwindSafe(work));
        }
    }

    /// Returns the next work. With the last one the writer ends, under the same lock: what comes
    /// later starts another.
    fn next(&mut self) -> Option<Work> {
        let mut state = lock(&self.queue);
        let next = state.waiting.pop_front();
        if next.is_none() {
            state.writers -= 1;
            self.is_at_work = false;
        }
        next
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.is_at_work {
            // Its runtime ended before its thread began. No other writer may be left for what
            // waits.
            let mut state = lock(&self.queue);
            state.writers -= 1;
            state.waiting.clear();
        }
    }
}

fn lock(state: &Mutex<QueueState>) -> MutexGuard<'_, QueueState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use futures_util::future::join_all;

    use super::*;

    #[tokio::test]
    async fn all_work_is_done_once_and_no_writer_is_left() {
        let queue = StoreQueue::default();
        let results = join_all((0..1000).map(|n| queue.run(move || n))).await;
        assert_eq!(results, (0..1000).map(Some).collect::<Vec<_>>());
        assert_eq!(queue.run(|| 7).await, Some(7), "a later one starts a writer again");
    }

    #[tokio::test]
    async fn work_that_panics_takes_no_other_with_it() {
        let queue = StoreQueue::default();
        let results =
            join_all((0..50).map(|n| queue.run(move || assert!(n % 7 != 3, "a bug of a store"))))
                .await;
        let lost: Vec<usize> = (0..50).filter(|n| results[*n].is_none()).collect();
        assert_eq!(lost, [3, 10, 17, 24, 31, 38, 45]);
    }

    /// With one thread for all, a long page would hold up all others.
    #[tokio::test]
    async fn work_that_takes_long_holds_up_a_few_at_most() {
        let (queue, done) = (StoreQueue::default(), Arc::new(AtomicUsize::new(0)));
        let (release, released) = mpsc::channel::<()>();
        let slow = queue.run(move || released.recv().is_ok());
        // The last few may wait for it: they are no backlog.
        let fast = (0..=2 * BACKLOG).map(|_| {
            let (done, release) = (Arc::clone(&done), release.clone());
            queue.run(move || {
                (done.fetch_add(1, Ordering::Relaxed) == BACKLOG).then(|| release.send(()))
            })
        });
        assert_eq!(futures_util::future::join(slow, join_all(fast)).await.0, Some(true));
    }
}
