//! Scope `own`: each node has its own sites, and the global evidence of the others, as if it had
//! seen all attempts itself.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{
    NOW, Node, TestRng, assert_same, attempt, naive, options, selector, settle, with_fact,
};
use bytes::Bytes;
use fetchwise::attempt::Attempt;
use fetchwise::evidence::EvidenceSnapshot;
use fetchwise::journal::{self, Entry};
use fetchwise::time::Clock;
use fetchwise_fleet::model::evidence_snapshot::SnapshotHead;
use fetchwise_fleet::model::global_evidence::{pack, unpack};
use fetchwise_fleet::model::position_set::Intervals;
use fetchwise_fleet::model::rendezvous::owner;
use fetchwise_fleet::sync::forget::notify_forgotten;
use fetchwise_fleet::transport::in_process::InProcessBroker;
use fetchwise_fleet::transport::{Cells, Table};
use fetchwise_fleet::{FleetError, NodeId, Options, Scope};
use fetchwise_testsite::poll::until;

fn own_scope() -> Options {
    let mut options = options();
    options.scope = Scope::Own;
    options.timing.global_min_interval = Duration::from_millis(40);
    options
}

fn clock() -> Arc<Clock> {
    Arc::new(Clock::fixed(NOW))
}

async fn nodes(
    count: usize,
    dir: &Path,
    broker: &Arc<InProcessBroker>,
    clock: &Arc<Clock>,
) -> Vec<Node> {
    let mut nodes: Vec<Node> =
        (0..count).map(|n| Node::new(dir.join(n.to_string()), broker, clock)).collect();
    for node in &mut nodes {
        node.start(own_scope()).await.unwrap();
    }
    // A starting node applies the others' evidence of its sites: here, nothing yet
    // (`site_handover.rs` covers that).
    settle(&nodes).await;
    nodes
}

/// Records attempts at sites that no other node has.
fn record(node: &Node, seed: u64, count: i64) {
    let mut rng = TestRng(seed);
    (0..count).for_each(|n| node.record(&attempt(&mut rng, 30, n * 50 - 100_000)));
}

/// Returns what a node must know: all that it recorded, and the global evidence of the others,
/// folded attempt by attempt.
fn expected(
    own: &Path,
    others: &[&Path],
    clock: &Arc<Clock>,
    counts: impl Fn(&Attempt) -> bool,
) -> EvidenceSnapshot {
    let oracle = selector(clock);
    for dir in others.iter().copied().chain([own]) {
        journal::replay(dir, |_, entry| match entry {
            Entry::Attempt(attempt) if !counts(&attempt) => {}
            Entry::Attempt(attempt) if dir == own => oracle.observe(&attempt),
            Entry::Attempt(attempt) => {
                with_fact(&attempt, &oracle, |fact| oracle.learned().receive_global_part(fact))
            }
            _ => {}
        })
        .unwrap();
    }
    oracle.learned().evidence_snapshot(NOW, 0.0)
}

fn dirs(nodes: &[Node]) -> Vec<&Path> {
    nodes.iter().map(|node| node.dir.as_path()).collect()
}

fn assert_all_as_expected(what: &str, nodes: &[Node], counts: impl Fn(&Attempt) -> bool) {
    let all = dirs(nodes);
    for (index, node) in nodes.iter().enumerate().filter(|(_, node)| node.running.is_some()) {
        let others: Vec<&Path> = all.iter().copied().filter(|dir| *dir != node.dir).collect();
        assert_same(
            &format!("{what}, node {index}"),
            &node.evidence(),
            &expected(&node.dir, &others, &node.clock, &counts),
        );
    }
}

fn assert_general(what: &str, nodes: &[Node], counts: impl Fn(&Path, &Attempt) -> bool) {
    for node in nodes.iter().filter(|node| node.running.is_some()) {
        let expected = naive(&dirs(nodes), &node.clock, &counts).global_part();
        assert_same(what, &node.evidence().global_part(), &expected);
    }
}

#[tokio::test(start_paused = true)]
async fn all_nodes_know_global_evidence_and_only_owners_know_sites() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let broker = InProcessBroker::new(Arc::clone(&clock), 1);
    let mut nodes = nodes(4, dir.path(), &broker, &clock).await;
    for round in 0..3 {
        nodes.iter().zip(0..).for_each(|(node, n)| record(node, round * 10 + n, 120));
        settle(&nodes).await;
    }
    assert_all_as_expected("while they run", &nodes, |_| true);
    let all = naive(&dirs(&nodes), &clock, |_, _| true);
    for node in &nodes {
        assert_same("what belongs to all", &node.evidence().global_part(), &all.global_part());
        let status = node.up().fleet.status();
        assert_eq!(
            (status.scope.as_str(), status.counts.received),
            ("own", 0),
            "no attempts are read"
        );
        assert!(
            status.counts.global_snapshots_applied >= 3
                && status.counts.global_snapshots_published >= 1,
            "{:?}",
            status.counts
        );
    }
    // A node that restarts while the broker is away has everything on its disk.
    for node in &mut nodes {
        node.crash().await;
    }
    nodes.iter().for_each(|node| broker.cut(node.name(), true));
    for node in &mut nodes {
        node.start(own_scope()).await.unwrap();
    }
    assert_all_as_expected("from the disk", &nodes, |_| true);
    let foreign = selector(&clock);
    assert_eq!(fetchwise_fleet::peer_store::load_peers(&nodes[0].dir, &foreign).unwrap(), 3);
    assert!(foreign.learned().evidence_snapshot(NOW, 0.0).is_global());
}

#[tokio::test(start_paused = true)]
async fn a_store_snapshot_holds_the_newest_global_snapshot_of_each_node() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let broker = InProcessBroker::new(Arc::clone(&clock), 2);
    let mut options = own_scope();
    options.timing.store_snapshot_after = 3;
    let mut nodes: Vec<Node> =
        (0..3).map(|n| Node::new(dir.path().join(n.to_string()), &broker, &clock)).collect();
    for node in &mut nodes {
        node.start(options.clone()).await.unwrap();
    }
    for round in 0..6 {
        nodes.iter().zip(0..).for_each(|(node, n)| record(node, round * 10 + n, 40));
        settle(&nodes).await;
    }
    for node in &mut nodes {
        node.crash().await;
        let found =
            fetchwise_log::load_snapshot(&node.dir.join("peers")).unwrap().snapshot.unwrap();
        assert_eq!(found.sections().iter().filter(|section| section.kind == 103).count(), 2);
        node.start(options.clone()).await.unwrap();
    }
    settle(&nodes).await;
    assert_general("behind a snapshot", &nodes, |_, _| true);
}

#[tokio::test(start_paused = true)]
async fn a_global_snapshot_follows_exclusion_and_inclusion() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let broker = InProcessBroker::new(Arc::clone(&clock), 3);
    let mut nodes = nodes(3, dir.path(), &broker, &clock).await;
    nodes.iter().zip(0..).for_each(|(node, n)| record(node, n, 150));
    settle(&nodes).await;
    let (liar, hands) = (nodes[2].name(), broker.node(NodeId::random()));
    hands.put(Table::Excluded, &liar.to_string(), Bytes::new()).await.unwrap();
    let is_out = |node: &Node| {
        node.up().fleet.status().peers.iter().any(|p| p.node == liar.to_string() && p.excluded)
    };
    until("the others exclude it", || nodes[..2].iter().all(is_out)).await;
    let honest = |nodes: &[Node]| assert_general("without the liar", &nodes[..2], |_, _| true);
    honest(&nodes);
    // A restart does not bring it back either.
    nodes[0].crash().await;
    nodes[0].start(own_scope()).await.unwrap();
    until("it still excludes it", || is_out(&nodes[0])).await;
    honest(&nodes);
    hands.delete(Table::Excluded, &liar.to_string(), None).await.unwrap();
    until("the others include it", || !nodes[..2].iter().any(is_out)).await;
    settle(&nodes).await;
    assert_general("included again", &nodes, |_, _| true);
}

#[tokio::test(start_paused = true)]
async fn a_lost_global_snapshot_is_published_again() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let broker = InProcessBroker::new(Arc::clone(&clock), 4);
    let mut nodes = nodes(2, dir.path(), &broker, &clock).await;
    nodes.iter().zip(0..).for_each(|(node, n)| record(node, n, 60));
    settle(&nodes).await;
    let said = broker.global_traffic().0;
    broker.wipe_global_snapshots();
    until("both publish again", || broker.global_traffic().0 >= said + 2).await;
    // So that late nodes know it, too.
    nodes.push(Node::new(dir.path().join("late"), &broker, &clock));
    nodes[2].start(own_scope()).await.unwrap();
    record(&nodes[2], 9, 5);
    settle(&nodes).await;
    assert_general("after a wipe", &nodes, |_, _| true);
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_domain_leaves_the_global_evidence() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let broker = InProcessBroker::new(Arc::clone(&clock), 5);
    let nodes = nodes(3, dir.path(), &broker, &clock).await;
    nodes.iter().zip(0..).for_each(|(node, n)| record(node, n, 200));
    settle(&nodes).await;
    assert!(nodes.iter().any(|node| node.evidence().has_domain("shop.site1.example")));
    notify_forgotten(&broker.node(NodeId::random()), "shop.site1.example", NOW).await.unwrap();
    until("all forget", || nodes.iter().all(|node| node.up().fleet.status().forgot == 1)).await;
    settle(&nodes).await;
    assert_all_as_expected("without it", &nodes, |attempt| {
        attempt.heuristic("domain") != Some("shop.site1.example")
    });
}

/// Builds a malicious global snapshot.
fn image(share: &EvidenceSnapshot, positions: u64) -> Vec<u8> {
    let covers = [(1, Intervals::of(1, positions))].into();
    let head = SnapshotHead {
        epoch: 1,
        covers,
        half_life_ms: share.half_life_ms().unwrap(),
        ..SnapshotHead::default()
    };
    fetchwise_fleet::model::evidence_snapshot::pack(&head, share).unwrap().to_vec()
}

#[tokio::test(start_paused = true)]
async fn an_invalid_global_snapshot_is_refused_and_its_node_named() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let broker = InProcessBroker::new(Arc::clone(&clock), 6);
    let nodes = nodes(1, dir.path(), &broker, &clock).await;
    let liar = selector(&clock);
    let mut rng = TestRng(7);
    (0..50).for_each(|n| liar.observe(&attempt(&mut rng, 5, n - 100_000)));
    let all = liar.learned().evidence_snapshot(NOW, 0.0);
    let bad: [(&str, Vec<u8>); 4] = [
        ("not an evidence snapshot", b"nothing that anybody could read, and long enough".to_vec()),
        ("contains evidence of sites", image(&all, 50)),
        ("more weight than its attempts allow", image(&all.global_part(), 10)),
        ("too long", vec![7; (1 << 20) - 4000]),
    ];
    let before = nodes[0].evidence();
    for (n, (what, body)) in bad.into_iter().enumerate() {
        let node_id = NodeId::from_bytes([n as u8 + 1; 16]);
        broker.publish_global(node_id, body.into());
        let named = || {
            let status = nodes[0].up().fleet.status();
            let peer = status.peers.iter().find(|peer| peer.node == node_id.to_string());
            peer.is_some_and(|peer| {
                peer.rejected.as_deref() == Some(&format!("global snapshot: {what}"))
            })
        };
        until(what, named).await;
    }
    assert_eq!(nodes[0].up().fleet.status().counts.rejected, 4);
    assert!(before.difference(&nodes[0].evidence()).is_none());
    // A valid one is accepted, and one that was published before it is not.
    let node_id = NodeId::from_bytes([9; 16]);
    broker.publish_global(node_id, image(&all.global_part(), 60).into());
    let counts = || nodes[0].up().fleet.status().counts;
    until("it is applied", || counts().global_snapshots_applied == 1).await;
    broker.publish_global(node_id, image(&all.global_part(), 55).into());
    until("it is a duplicate", || counts().duplicate == 1).await;
    assert_same("the newer one", &nodes[0].evidence(), &all.global_part());
}

#[tokio::test(start_paused = true)]
async fn a_pool_and_a_directory_have_one_scope() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let broker = InProcessBroker::new(Arc::clone(&clock), 8);
    let mut nodes = nodes(2, dir.path(), &broker, &clock).await;
    nodes.iter().zip(0..).for_each(|(node, n)| record(node, n, 20));
    settle(&nodes).await;
    nodes[1].crash().await;
    let refused = nodes[1].start(options()).await.unwrap_err();
    assert!(matches!(&refused, FleetError::Differs { what: "the scope", .. }), "{refused:?}");
    // The whole pool has moved to the other scope: what was read in the former one does not count
    // as well.
    nodes[0].crash().await;
    broker.wipe_cells();
    let refused = nodes[1].start(options()).await.unwrap_err();
    assert!(matches!(&refused, FleetError::OtherScope { ours: "all" }), "{refused:?}");
    for node in &nodes {
        std::fs::remove_dir_all(node.dir.join("peers")).unwrap();
    }
    for node in &mut nodes {
        node.start(options()).await.unwrap();
    }
    settle(&nodes).await;
    let all = naive(&dirs(&nodes), &clock, |_, _| true);
    nodes.iter().for_each(|node| assert_same("in scope all", &node.evidence(), &all));
    nodes[0].crash().await;
    nodes[1].crash().await;
    broker.wipe_cells();
    let refused = nodes[0].start(own_scope()).await.unwrap_err();
    assert!(matches!(&refused, FleetError::OtherScope { ours: "own" }), "{refused:?}");
}

#[test]
fn an_oversized_global_snapshot_drops_the_lightest_keys() {
    let clock = clock();
    let own = selector(&clock);
    let mut rng = TestRng(3);
    let mut all = attempt(&mut rng, 3, 0);
    for n in 0..100_000u64 {
        all.heuristics.truncate(4);
        all.heuristics.push(fetchwise::attempt::Tag::from(fetchwise::heuristic::Heuristic::new(
            "shop_item",
            format!("{}", rng.draw()),
        )));
        all.duration_ms = rng.below(5000);
        all.weight = if n < 10 { 1.0 } else { 0.5 };
        own.observe(&all);
    }
    let share = own.learned().evidence_snapshot(NOW, 0.0);
    let head = SnapshotHead {
        epoch: 1,
        covers: [(1, Intervals::of(1, 100_000))].into(),
        half_life_ms: own.learned().half_life_ms(),
        ..SnapshotHead::default()
    };
    let packed = pack(&head, &share).unwrap();
    let (_, read) = unpack(&packed, own.learned().half_life_ms(), NOW).unwrap();
    assert!(read.keys() > 1000 && read.keys() < 99_000, "{}", read.keys());
    assert_eq!(read.fetcher_totals(), share.fetcher_totals(), "the totals of all attempts stay");
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (entry, is_dir) =
            entry.map(|entry| (entry.path(), entry.file_type().unwrap().is_dir())).unwrap();
        let to = to.join(entry.file_name().unwrap());
        match is_dir {
            true => copy(&entry, &to),
            false => drop(std::fs::copy(entry, to).unwrap()),
        }
    }
}

/// Returns what a node with a restored directory must know: all that it ever recorded, the global
/// evidence of the others, and what it has applied of them.
fn expected_with_past(
    own: &[&Path],
    others: &[&Path],
    is_taken: impl Fn(&Attempt) -> bool,
    clock: &Arc<Clock>,
) -> EvidenceSnapshot {
    let (oracle, mut seen) = (selector(clock), HashSet::new());
    for (dir, is_own) in
        own.iter().map(|dir| (dir, true)).chain(others.iter().map(|dir| (dir, false)))
    {
        journal::replay(dir, |_, entry| match entry {
            // A log and the one restored from it have their beginning in common.
            Entry::Attempt(attempt) if !seen.insert(attempt.id) => {}
            Entry::Attempt(attempt) if is_own || is_taken(&attempt) => oracle.observe(&attempt),
            Entry::Attempt(attempt) => {
                with_fact(&attempt, &oracle, |fact| oracle.learned().receive_global_part(fact))
            }
            _ => {}
        })
        .unwrap();
    }
    oracle.learned().evidence_snapshot(NOW, 0.0)
}

#[tokio::test(start_paused = true)]
async fn a_restored_directory_recovers_the_lost_attempts() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
    let broker = InProcessBroker::new(Arc::clone(&clock), 12);
    let mut nodes = nodes(2, dir.path(), &broker, &clock).await;
    nodes.iter().zip(0..).for_each(|(node, n)| record(node, n, 100));
    settle(&nodes).await;
    let (backup, lost) = (dir.path().join("backup"), dir.path().join("lost"));
    nodes[0].crash().await;
    copy(&nodes[0].dir, &backup);
    nodes[0].start(own_scope()).await.unwrap();
    record(&nodes[0], 7, 60);
    settle(&nodes).await;
    nodes[0].crash().await;
    std::fs::rename(&nodes[0].dir, &lost).unwrap();
    std::fs::rename(&backup, &nodes[0].dir).unwrap();

    let names: Vec<NodeId> = nodes.iter().map(Node::name).collect();
    let check = async |what: &str, nodes: &[Node]| {
        let (restored, other) = (nodes[0].dir.as_path(), nodes[1].dir.as_path());
        // At each start it has applied the other node's evidence of its sites, which had recorded
        // everything by then.
        let is_its_own =
            |attempt: &Attempt| owner(attempt.heuristic("site").unwrap(), &names) == Some(names[0]);
        let (of_restored, of_other) = (
            expected_with_past(&[&lost, restored], &[other], is_its_own, &clock),
            expected_with_past(&[other], &[&lost, restored], |_| false, &clock),
        );
        // A snapshot with the attempt replaces one without it.
        until("the other knows it", || nodes[1].evidence().distance(&of_other).0 <= 1e-9).await;
        assert_same(&format!("{what}: restored"), &nodes[0].evidence(), &of_restored);
        assert_same(&format!("{what}: the other"), &nodes[1].evidence(), &of_other);
        assert!(nodes.iter().all(|node| node.up().fleet.status().counts.rejected == 0));
    };
    nodes[0].start(own_scope()).await.unwrap();
    settle(&nodes).await;
    assert_eq!(nodes[0].up().fleet.status().epoch, 2);
    check("it is back", &nodes).await;
    record(&nodes[0], 8, 30);
    settle(&nodes).await;
    check("and goes on", &nodes).await;
    nodes[0].crash().await;
    nodes[0].start(own_scope()).await.unwrap();
    settle(&nodes).await;
    check("and begins again", &nodes).await;

    // The broker was away when it started: it learns later that it was restored.
    nodes[0].crash().await;
    std::fs::remove_dir_all(nodes[0].dir.join("peers")).unwrap();
    broker.cut(nodes[0].name(), true);
    nodes[0].start(own_scope()).await.unwrap();
    record(&nodes[0], 9, 10);
    tokio::time::sleep(Duration::from_millis(300)).await;
    broker.cut(nodes[0].name(), false);
    settle(&nodes).await;
    check("without what it had read", &nodes).await;
}
