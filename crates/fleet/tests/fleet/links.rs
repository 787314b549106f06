//! Link states apply at all nodes of an egress group: whole nodes over the in-process broker.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::links::{CrawlingNode, blocked, fails_here_and_waits_there, heard};
use crate::common::{NOW, flush, options};
use fetchwise::fetch_result::Outcome;
use fetchwise::time::{Clock, Timestamp};
use fetchwise_fleet::NodeId;
use fetchwise_fleet::peer_store::own_state_file::NodeState;
use fetchwise_fleet::sync::forget::notify_forgotten;
use fetchwise_fleet::transport::in_process::InProcessBroker;
use fetchwise_fleet::transport::{Cells, Table};
use fetchwise_testsite::poll::until;

async fn node(
    dir: &Path,
    broker: &Arc<InProcessBroker>,
    clock: &Arc<Clock>,
    egress: &str,
) -> CrawlingNode {
    std::fs::create_dir_all(dir).unwrap();
    let state = NodeState::load(dir).unwrap().unwrap_or_else(|| NodeState::new(NodeId::random()));
    state.save(dir).unwrap();
    let mut options = options();
    options.egress_group = egress.to_owned();
    options.timing.store_snapshot_after = 4;
    CrawlingNode::start(dir, Arc::new(broker.node(state.node_id)), clock, options).await
}

fn shared_setup() -> (tempfile::TempDir, Arc<Clock>, Arc<InProcessBroker>) {
    let clock = Arc::new(Clock::fixed(NOW));
    let broker = InProcessBroker::new(Arc::clone(&clock), 7);
    (tempfile::tempdir().unwrap(), clock, broker)
}

#[tokio::test(start_paused = true)]
async fn a_failed_link_is_paused_at_all_nodes_of_the_egress_group() {
    let (dir, clock, broker) = shared_setup();
    let a = node(&dir.path().join("a"), &broker, &clock, "").await;
    let b = node(&dir.path().join("b"), &broker, &clock, "").await;
    let c = node(&dir.path().join("c"), &broker, &clock, "eu").await;
    fails_here_and_waits_there(&a, &b, &c, &clock).await;
}

#[tokio::test(start_paused = true)]
async fn a_restarted_node_knows_paused_links() {
    let (dir, clock, broker) = shared_setup();
    let (there, link) = (dir.path().join("b"), "https://e.org/1");
    let a = node(&dir.path().join("a"), &broker, &clock, "").await;
    let b = node(&there, &broker, &clock, "").await;
    assert_eq!(a.ask(link, blocked()).await, None);
    let pause = a.pause(link);
    until("the pause at the other", || b.pause(link) == pause).await;
    b.stop().await;
    let b = node(&there, &broker, &clock, "").await;
    assert_eq!(b.pause(link), pause, "from the messages in `peers/`");
    // Snapshots replace messages.
    let snapshots = || {
        let all = std::fs::read_dir(there.join("peers")).unwrap();
        all.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(".fws"))
            .count()
    };
    let mut n = 1;
    while snapshots() == 0 || b.fleet.status().peers.iter().all(|peer| peer.position < 20) {
        n += 1;
        assert!(n < 2000, "no snapshot");
        assert_eq!(a.ask(&format!("https://f{n}.org/"), Outcome::Content).await, None);
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    b.stop().await;
    let b = node(&there, &broker, &clock, "").await;
    assert_eq!(b.pause(link), pause, "from a snapshot");
    // Its owner lifts the pause.
    assert!(a.selector.unpause_link(link, clock.now()).is_some());
    until("the lifted pause at the other", || b.pause(link).is_none()).await;
    assert_eq!(b.ask(link, Outcome::Content).await, None);
}

#[tokio::test(start_paused = true)]
async fn forgetting_or_exclusion_lifts_link_pauses() {
    let (dir, clock, broker) = shared_setup();
    let a = node(&dir.path().join("a"), &broker, &clock, "").await;
    let b = node(&dir.path().join("b"), &broker, &clock, "").await;
    let operator = broker.node(NodeId::random());
    let (link, other) = ("https://e.org/1", "https://f.org/1");
    assert_eq!((a.ask(link, blocked()).await, a.ask(other, blocked()).await), (None, None));
    until("the pauses at the other", || b.pause(link).is_some() && b.pause(other).is_some()).await;
    notify_forgotten(&operator, "e.org", clock.now()).await.unwrap();
    until("the domain's end", || b.pause(link).is_none()).await;
    assert!(b.pause(other).is_some());
    operator.put(Table::Excluded, &a.fleet.node_id().to_string(), "it lies".into()).await.unwrap();
    until("the node's end", || b.pause(other).is_none()).await;
    assert_eq!(b.ask(other, Outcome::Content).await, None);
    // It counts again, and its states that still apply with it.
    operator.delete(Table::Excluded, &a.fleet.node_id().to_string(), None).await.unwrap();
    until("the pause again", || b.pause(other).is_some()).await;
    heard(&b, &a).await;
    clock.set(Timestamp::from_millis(NOW.as_millis() + 600_000));
    assert_eq!((b.pause(link), b.pause(other)), (None, None));
}

#[tokio::test(start_paused = true)]
async fn a_new_node_knows_paused_links_from_a_snapshot() {
    let (dir, clock, broker) = shared_setup();
    let (one, two, gone) = ("https://e.org/1", "https://f.org/1", "https://g.org/1");
    let a = node(&dir.path().join("a"), &broker, &clock, "").await;
    for link in [one, two, gone] {
        assert_eq!(a.ask(link, blocked()).await, None);
    }
    assert!(a.selector.unpause_link(two, clock.now()).is_some());
    let (pause, operator) = (a.pause(one), broker.node(NodeId::random()));
    assert!(pause.is_some() && a.pause(two).is_none());
    flush(&a.journal).await;
    let CrawlingNode { fleet, .. } = a;
    fleet.leave().await.unwrap();
    // The snapshot is all that is left of it; no node can be asked.
    broker.age_out(u64::MAX);
    notify_forgotten(&operator, "g.org", clock.now()).await.unwrap();
    let there = dir.path().join("b");
    let b = node(&there, &broker, &clock, "").await;
    until("the share", || b.fleet.status().counts.snapshots_applied == 1).await;
    until("the pause", || b.pause(one) == pause).await;
    assert_eq!((b.pause(two), b.pause(gone)), (None, None), "one was lifted, one forgotten");
    until("the count", || b.fleet.status().links_waiting == 1).await;
    assert_eq!(b.fleet.status().links, 2);
    let elsewhere = node(&dir.path().join("c"), &broker, &clock, "eu").await;
    // The other node's as well, if it has one already.
    until("the share", || elsewhere.fleet.status().counts.snapshots_applied >= 1).await;
    assert_eq!(elsewhere.pause(one), None, "it was not blocked there");
    assert_eq!(
        (elsewhere.fleet.status().links_waiting, elsewhere.fleet.status().counts.rejected),
        (0, 0)
    );
    b.stop().await;
    let b = node(&there, &broker, &clock, "").await;
    assert_eq!(b.pause(one), pause, "from the snapshot in `peers/`");
    clock.set(pause.unwrap());
    assert_eq!(b.pause(one), None);
    until("the count", || b.fleet.status().links_waiting == 0).await;
}
