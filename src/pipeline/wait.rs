//! Waiting on tokio for the events of a visit.

use super::Pipeline;
use crate::visit::{Wait, WaitReason};

/// Sits out a wait. Returns whether only a clock that stands still could say that it is not over.
pub(super) async fn pause(pipeline: &Pipeline, mut wait: Wait) -> bool {
    let (why, at_most) = (wait.reason(), wait.until().since(pipeline.selector.now()));
    tokio::select! {
        () = wait.notified() => false,
        () = tokio::time::sleep(at_most) => why == WaitReason::LocalFault,
    }
}
