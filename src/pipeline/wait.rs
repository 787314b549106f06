//! Waiting on tokio for the events of a visit.

use std::time::Duration;

use super::Pipeline;
use super::link_slot::LinkSlot;
use crate::visit::{Wait, WaitReason};

/// Minimum time that a visit waits once it has made a request.
const MIN_STARTED_WAIT: Duration = Duration::from_secs(60);

/// Returns whether to sit out a wait, for a visit that has or has not made a request.
pub(super) fn sits_out(pipeline: &Pipeline, wait: &Wait, has_begun: bool) -> bool {
    let left = wait.until().since(pipeline.selector.now());
    wait.reason() != WaitReason::Pace
        || left <= pipeline.wait_at_most
        || has_begun && left <= MIN_STARTED_WAIT
}

/// Sits out a wait, without the link's place unless this machine is the reason. Returns whether only
/// a clock that stands still could say that it is not over.
pub(super) async fn pause(pipeline: &Pipeline, link_slot: &LinkSlot, mut wait: Wait) -> bool {
    let at_most = wait.until().since(pipeline.selector.now());
    if wait.reason() == WaitReason::LocalFault {
        // Other links could not go on in its place either.
        tokio::time::sleep(at_most).await;
        return true;
    }
    link_slot
        .leave_during(async {
            tokio::select! {
                () = wait.notified() => (),
                () = tokio::time::sleep(at_most) => (),
            }
        })
        .await;
    false
}
