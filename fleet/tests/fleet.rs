//! Whole nodes over the broker in the process: what each knows is what all logs together say.
#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{Luck, NOW, Node, assert_same, attempt, naive, options, settle};
use fetchwise::time::Clock;
use fetchwise_fleet::memory::Memory;

const WITHIN: Duration = Duration::from_secs(60);

fn town(nodes: usize, dir: &Path) -> (Arc<Memory>, Arc<Clock>, Vec<Node>) {
    let clock = Arc::new(Clock::fixed(NOW));
    let broker = Memory::new(Arc::clone(&clock), 7);
    let all = (0..nodes).map(|n| Node::new(dir.join(format!("node{n}")), &broker, &clock)).collect();
    (broker, clock, all)
}

fn expect_all(nodes: &[Node], clock: &Arc<Clock>) {
    let dirs: Vec<&Path> = nodes.iter().map(|node| node.dir.as_path()).collect();
    let expected = naive(&dirs, clock, |_, _| true);
    for node in nodes.iter().filter(|node| node.running.is_some()) {
        assert_same(&format!("{}", node.dir.display()), &node.evidence(), &expected);
    }
}

fn record(nodes: &[Node], luck: &mut Luck, count: usize) {
    let up: Vec<&Node> = nodes.iter().filter(|node| node.running.is_some()).collect();
    for _ in 0..count {
        let node = up[luck.below(up.len() as u64) as usize];
        let ms = -(luck.below(3_600_000) as i64);
        node.record(&attempt(luck, 40, ms));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_and_a_late_one_know_what_all_logs_say() {
    let dir = tempfile::tempdir().unwrap();
    let (_, clock, mut nodes) = town(4, dir.path());
    let mut luck = Luck(1);
    for node in &mut nodes[..3] {
        node.start(options()).await.unwrap();
    }
    record(&nodes, &mut luck, 3000);
    settle(&nodes, WITHIN).await;
    expect_all(&nodes, &clock);
    nodes[3].start(options()).await.unwrap();
    record(&nodes, &mut luck, 500);
    settle(&nodes, WITHIN).await;
    expect_all(&nodes, &clock);
    let status = nodes[3].up().fleet.status();
    assert_eq!(status.peers.len(), 3);
    assert!(status.counts.shares > 0 && status.peers.iter().all(|peer| peer.holes == 0 && peer.present));
}
