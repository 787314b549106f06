//! A server that follows the log of another process: it reads new entries and writes nothing.
//!
//! Owns: how often the log is read.
//!
//! Invariants: figures and evidence contain each attempt once. No file of the followed directory is
//! written or locked.

use std::sync::Arc;
use std::time::Duration;

use crate::state::State;
use fetchwise::journal::{Entry, Follower, apply};

/// The pause between two reads.
const READ_EVERY: Duration = Duration::from_secs(1);

/// Reads new entries for as long as the server runs.
pub(crate) async fn follow(state: Arc<State>, mut follower: Follower) {
    let Some(followed) = state.followed.clone() else { return };
    loop {
        tokio::time::sleep(READ_EVERY).await;
        let reading = Arc::clone(&state);
        let done = tokio::task::spawn_blocking(move || {
            let read = read(&reading, &mut follower);
            (follower, read)
        });
        let Ok((back, read)) = done.await else {
            followed.set_error(Some("a thread that read the log has failed".to_owned()));
            return;
        };
        follower = back;
        let (recount_to, error) = read;
        followed.set_error(error);
        if let Some(end) = recount_to {
            state.dashboard.forget();
            state.rescan(end);
        }
    }
}

/// Applies new entries. Returns the position up to which the log has to be counted again, if
/// something was forgotten, and the error.
fn read(state: &State, follower: &mut Follower) -> (Option<u64>, Option<String>) {
    let mut recount_to = None;
    let read = follower.read(|seq, entry| {
        apply(&entry, &state.selector, state.selector.now());
        match entry {
            Entry::Attempt(attempt) => state.attempts.count(&attempt),
            Entry::Tombstone(_) => {
                state.attempts.restart();
                recount_to = Some(seq + 1);
            }
            _ => {}
        }
    });
    (recount_to, read.err().map(|error| error.to_string()))
}
