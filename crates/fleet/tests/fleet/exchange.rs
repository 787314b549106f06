//! Whole nodes over the in-process broker: each node knows what all logs together say.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{NOW, Node, Running, TestRng, assert_same, attempt, naive, options, settle};
use fetchwise::journal::Journal;
use fetchwise::time::Clock;
use fetchwise_fleet::NodeId;
use fetchwise_fleet::transport::in_process::InProcessBroker;
use fetchwise_fleet::transport::{Cells, Table};
use fetchwise_testsite::poll::until;

const WITHIN: Duration = Duration::from_secs(60);

fn fleet_of(nodes: usize, dir: &Path) -> (Arc<InProcessBroker>, Arc<Clock>, Vec<Node>) {
    let clock = Arc::new(Clock::fixed(NOW));
    let broker = InProcessBroker::new(Arc::clone(&clock), 7);
    let all =
        (0..nodes).map(|n| Node::new(dir.join(format!("node{n}")), &broker, &clock)).collect();
    (broker, clock, all)
}

fn expect_all(nodes: &[Node], clock: &Arc<Clock>) {
    let dirs: Vec<&Path> = nodes.iter().map(|node| node.dir.as_path()).collect();
    let expected = naive(&dirs, clock, |_, _| true);
    for node in nodes.iter().filter(|node| node.running.is_some()) {
        assert_same(&format!("{}", node.dir.display()), &node.evidence(), &expected);
    }
}

fn record(nodes: &[Node], rng: &mut TestRng, count: usize) {
    let up: Vec<&Node> = nodes.iter().filter(|node| node.running.is_some()).collect();
    for _ in 0..count {
        let node = up[rng.below(up.len() as u64) as usize];
        let ms = -(rng.below(3_600_000) as i64);
        node.record(&attempt(rng, 40, ms));
    }
}

#[tokio::test(start_paused = true)]
async fn three_nodes_and_a_late_one_know_all_logs() {
    let dir = tempfile::tempdir().unwrap();
    let (_, clock, mut nodes) = fleet_of(4, dir.path());
    let mut rng = TestRng(1);
    for node in &mut nodes[..3] {
        node.start(options()).await.unwrap();
    }
    record(&nodes, &mut rng, 3000);
    settle(&nodes).await;
    expect_all(&nodes, &clock);
    let has_snapshot = |node: &Node| node.up().fleet.status().snapshot_position > 0;
    until("each has a snapshot", || nodes[..3].iter().all(has_snapshot)).await;
    nodes[3].start(options()).await.unwrap();
    record(&nodes, &mut rng, 500);
    settle(&nodes).await;
    expect_all(&nodes, &clock);
    let status = nodes[3].up().fleet.status();
    assert_eq!(status.peers.len(), 3);
    assert!(
        status.counts.snapshots_applied > 0
            && status.peers.iter().all(|peer| peer.missing_records == 0 && peer.present),
        "{status:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn wiped_brokers_crashes_and_late_nodes_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (broker, clock, mut nodes) = fleet_of(5, dir.path());
    let mut rng = TestRng(2);
    for node in &mut nodes[..3] {
        node.start(options()).await.unwrap();
    }
    record(&nodes, &mut rng, 800);
    settle(&nodes).await;
    broker.wipe_stream();
    record(&nodes, &mut rng, 400);
    nodes[0].crash().await;
    record(&nodes, &mut rng, 400);
    // Its earlier attempts are in its log, and some of them were never published.
    nodes[0].start(options()).await.unwrap();
    settle(&nodes).await;
    expect_all(&nodes, &clock);
    broker.wipe_stream();
    broker.wipe_blobs();
    broker.wipe_cells();
    nodes[3].start(options()).await.unwrap();
    settle(&nodes).await;
    expect_all(&nodes, &clock);
    // Two nodes join late, when the beginning of the stream is gone, and one has lost its peer
    // store.
    broker.age_out(u64::MAX);
    nodes[1].crash().await;
    std::fs::remove_dir_all(nodes[1].dir.join("peers")).unwrap();
    nodes[1].start(options()).await.unwrap();
    nodes[4].start(options()).await.unwrap();
    settle(&nodes).await;
    expect_all(&nodes, &clock);
}

#[tokio::test(start_paused = true)]
async fn lost_duplicated_and_reordered_messages_are_repaired() {
    use fetchwise_fleet::transport::in_process::Faults;
    let dir = tempfile::tempdir().unwrap();
    let (broker, clock, mut nodes) = fleet_of(3, dir.path());
    let mut rng = TestRng(3);
    broker.set_faults(Faults {
        lose: 0.2,
        double: 0.3,
        shuffle: 20,
        lose_signal: 0.3,
        lose_response: 0.1,
        ..Faults::default()
    });
    for node in &mut nodes {
        while node.start(options()).await.is_err() {
            node.crash().await;
        }
    }
    for _ in 0..30 {
        record(&nodes, &mut rng, 60);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    broker.set_faults(Faults { lose: 0.2, shuffle: 20, ..Faults::default() });
    settle(&nodes).await;
    expect_all(&nodes, &clock);
    let wants: u64 =
        nodes.iter().map(|node| node.up().fleet.status().counts.retransmit_requests).sum();
    assert!(wants > 0, "no request was sent, so no message was lost");
}

#[tokio::test(start_paused = true)]
async fn a_liar_is_excluded_and_included_again() {
    use fetchwise_fleet::transport::{Cells, Table};
    let dir = tempfile::tempdir().unwrap();
    let (broker, clock, mut nodes) = fleet_of(3, dir.path());
    let mut rng = TestRng(4);
    let mut options = options();
    options.timing.store_snapshot_after = 10;
    for node in &mut nodes {
        node.start(options.clone()).await.unwrap();
    }
    for _ in 0..10 {
        record(&nodes, &mut rng, 100);
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    settle(&nodes).await;
    let liar = nodes[2].name();
    let operator = broker.node(fetchwise_fleet::NodeId::random());
    operator.put(Table::Excluded, &liar.to_string(), "it lies".into()).await.unwrap();
    record(&nodes, &mut rng, 100);
    until("the liar knows", || nodes[2].up().fleet.status().excluded).await;
    let excludes = |node: &Node| node.up().fleet.status().peers.iter().any(|peer| peer.excluded);
    until("the others know", || nodes[..2].iter().all(excludes)).await;
    settle(&nodes[..2]).await;
    let honest: Vec<&Path> = nodes[..2].iter().map(|node| node.dir.as_path()).collect();
    let expected = naive(&honest, &clock, |_, _| true);
    for node in &nodes[..2] {
        assert_same("without the liar", &node.evidence(), &expected);
    }
    // It still learns but publishes nothing.
    let status = nodes[2].up().fleet.status();
    assert!(status.excluded && status.stopped.is_some(), "{status:?}");
    let all: Vec<&Path> = nodes.iter().map(|node| node.dir.as_path()).collect();
    let everything = naive(&all, &clock, |_, _| true);
    assert_same("the liar", &nodes[2].evidence(), &everything);
    // A response of the broker in place of its exclusion does not end it, and excludes no other
    // node.
    for excluded in [liar, nodes[1].name()] {
        let response = r#"{"stream":"FW_test","seq":3}"#;
        operator.put(Table::Excluded, &excluded.to_string(), response.into()).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    // A restart does not bring it back either.
    nodes[0].crash().await;
    nodes[0].start(options.clone()).await.unwrap();
    settle(&nodes[..2]).await;
    assert_same("without the liar, after a restart", &nodes[0].evidence(), &expected);
    operator.delete(Table::Excluded, &liar.to_string(), None).await.unwrap();
    until("it is back", || {
        !nodes[2].up().fleet.status().excluded && !nodes[..2].iter().any(excludes)
    })
    .await;
    settle(&nodes).await;
    assert!(nodes.iter().all(|node| !node.up().fleet.status().excluded));
    expect_all(&nodes, &clock);
}

#[tokio::test(start_paused = true)]
async fn a_domain_is_forgotten_everywhere_even_if_attempts_arrive_late() {
    use fetchwise_fleet::sync::forget::notify_forgotten;
    let dir = tempfile::tempdir().unwrap();
    let (broker, clock, mut nodes) = fleet_of(4, dir.path());
    let mut rng = TestRng(5);
    for node in &mut nodes[..3] {
        node.start(options()).await.unwrap();
    }
    record(&nodes[..3], &mut rng, 900);
    settle(&nodes).await;
    // One node is cut off and knows more of the domain than it has published.
    let cut = nodes[1].name();
    broker.cut(cut, true);
    record(&nodes[..3], &mut rng, 300);
    let domain = "shop.site0.example";
    let operator = broker.node(fetchwise_fleet::NodeId::random());
    notify_forgotten(&operator, domain, NOW).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    broker.cut(cut, false);
    nodes[3].start(options()).await.unwrap();
    settle(&nodes).await;
    // Everything that the nodes have of it is older.
    let dirs: Vec<&Path> = nodes.iter().map(|node| node.dir.as_path()).collect();
    let expected = naive(&dirs, &clock, |_, attempt| attempt.heuristic("domain") != Some(domain));
    for node in &nodes {
        assert!(!node.evidence().has_domain(domain), "{}", node.dir.display());
        assert_same(&node.dir.display().to_string(), &node.evidence(), &expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_restored_directory_begins_another_epoch() {
    let dir = tempfile::tempdir().unwrap();
    let (_, clock, mut nodes) = fleet_of(3, dir.path());
    let mut rng = TestRng(6);
    nodes[0].start(options()).await.unwrap();
    nodes[1].start(options()).await.unwrap();
    record(&nodes, &mut rng, 500);
    settle(&nodes).await;
    nodes[0].crash().await;
    let backup = dir.path().join("backup");
    copy(&nodes[0].dir, &backup);
    nodes[0].start(options()).await.unwrap();
    record(&nodes[..1], &mut rng, 200);
    settle(&nodes).await;
    // The disk is lost; the others have everything published since the backup.
    nodes[0].crash().await;
    let lost = dir.path().join("lost");
    std::fs::rename(&nodes[0].dir, &lost).unwrap();
    copy(&backup, &nodes[0].dir);
    nodes[0].start(options()).await.unwrap();
    record(&nodes, &mut rng, 300);
    nodes[2].start(options()).await.unwrap();
    settle(&nodes).await;
    assert_eq!(nodes[0].up().fleet.status().epoch, 2);
    let before: std::collections::HashSet<_> = ids(&backup);
    let dirs = [nodes[0].dir.as_path(), nodes[1].dir.as_path(), lost.as_path()];
    // Attempts of the lost log that are in the backup count once.
    let expected = naive(&dirs, &clock, |of, attempt| of != lost || !before.contains(&attempt.id));
    for node in &nodes {
        assert_same(&node.dir.display().to_string(), &node.evidence(), &expected);
    }
}

fn ids(dir: &Path) -> std::collections::HashSet<uuid::Uuid> {
    let mut all = std::collections::HashSet::new();
    fetchwise::journal::ids(dir, |id| {
        all.insert(id);
    })
    .unwrap();
    all
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target)
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_copied_directory_may_not_join_alongside_the_original() {
    let dir = tempfile::tempdir().unwrap();
    let (broker, clock, mut nodes) = fleet_of(1, dir.path());
    nodes[0].start(options()).await.unwrap();
    record(&nodes, &mut TestRng(7), 50);
    settle(&nodes).await;
    let mut twin = Node::new(dir.path().join("twin"), &broker, &clock);
    copy(&nodes[0].dir, &twin.dir);
    let error = twin.start(options()).await.unwrap_err();
    assert!(
        matches!(error, fetchwise_fleet::FleetError::Held { .. }) && error.is_refusal(),
        "{error}"
    );
    // Once the original has been gone for the length of a lease, the copy may join.
    nodes[0].crash().await;
    twin.start(options()).await.unwrap();
    assert!(nodes[0].start(options()).await.is_err(), "now the original comes second");
}

#[tokio::test(start_paused = true)]
async fn records_compacted_before_publishing_travel_in_a_snapshot() {
    use fetchwise::journal::maintenance::{CompactOptions, compact};
    let dir = tempfile::tempdir().unwrap();
    let (broker, clock, mut nodes) = fleet_of(2, dir.path());
    let mut rng = TestRng(8);
    // An old log, a part of which is about to be dropped.
    let days = |n: i64| -n * 86_400_000;
    {
        let (journal, _) =
            fetchwise::journal::Journal::open(&nodes[0].dir, Default::default()).unwrap();
        for n in 0..400 {
            journal.append_attempt(&attempt(&mut rng, 20, days(91) + n * 1000)).unwrap();
        }
        for n in 0..400 {
            journal.append_attempt(&attempt(&mut rng, 20, days(89) + n * 1000)).unwrap();
        }
        journal.close().unwrap();
    }
    let everything = naive(&[&nodes[0].dir], &clock, |_, _| true);
    let mut how = CompactOptions::default();
    how.trust_clock = true;
    let done = compact(&nodes[0].dir, &crate::common::selector(&clock), &how, NOW, &mut |_, _| {})
        .unwrap();
    assert_eq!(done.attempts, (800, 400), "half of it is older than is kept");
    for node in &mut nodes {
        node.start(options()).await.unwrap();
    }
    settle(&nodes).await;
    for node in &nodes {
        assert_same(&node.dir.display().to_string(), &node.evidence(), &everything);
    }
    // And alongside a node that publishes and is asked for dropped positions.
    for n in 0..300 {
        nodes[0].record(&attempt(&mut rng, 20, n * 100 - 50_000));
        if n == 150 {
            compact(&nodes[0].dir, &crate::common::selector(&clock), &how, NOW, &mut |_, _| {})
                .unwrap();
        }
    }
    settle(&nodes).await;
    nodes[1].crash().await;
    std::fs::remove_dir_all(nodes[1].dir.join("peers")).unwrap();
    broker.wipe_blobs();
    nodes[1].start(options()).await.unwrap();
    settle(&nodes).await;
    let expected = nodes[0].evidence();
    assert_same("the other", &nodes[1].evidence(), &expected);
}

#[tokio::test(start_paused = true)]
async fn a_node_with_future_times_is_set_aside_until_readmitted() {
    use fetchwise_fleet::model::codec::Builder;
    use fetchwise_fleet::transport::Transport;
    let dir = tempfile::tempdir().unwrap();
    let (broker, clock, mut nodes) = fleet_of(2, dir.path());
    let mut rng = TestRng(9);
    for node in &mut nodes {
        node.start(options()).await.unwrap();
    }
    record(&nodes, &mut rng, 200);
    settle(&nodes).await;
    // It claims so itself, and its claim is not accepted.
    let liar = fetchwise_fleet::NodeId::random();
    let hands = broker.node(liar);
    let publish = |first: u64, ms: i64| {
        let mut builder = Builder::new(1, 0, first);
        let attempt = attempt(&mut TestRng(1), 5, ms);
        let heuristics: Vec<(&str, &str)> = attempt
            .heuristics
            .iter()
            .map(|tag| (&*tag.heuristic.kind, &*tag.heuristic.value))
            .collect();
        let fact = fetchwise::evidence::RemoteAttempt {
            at: attempt.attempted_at,
            fetcher: "direct_access",
            weight: 1.0,
            success: true,
            is_banned: false,
            duration_ms: 5,
            hint: None,
            is_file: false,
            heuristics: &heuristics,
        };
        builder.push(&fact, 0);
        builder.finish(0).unwrap().1
    };
    hands.publish(liar, "1", publish(1, 10 * 365 * 86_400_000)).await.unwrap();
    hands.publish(liar, "2", publish(2, 0)).await.unwrap();
    hands.publish(liar, "3", bytes::Bytes::from_static(b"nonsense")).await.unwrap();
    let is_set_aside = |node: &Node| {
        let peers = node.up().fleet.status().peers;
        peers.iter().any(|peer| peer.node == liar.to_string() && peer.set_aside_reason.is_some())
    };
    until("it is set aside", || nodes.iter().all(is_set_aside)).await;
    // Who has read a later message has read all of the liar's.
    record(&nodes, &mut rng, 20);
    settle(&nodes).await;
    expect_all(&nodes, &clock);
    assert!(nodes.iter().all(is_set_aside));
    let rejected = |node: &Node| node.up().fleet.status().counts.rejected;
    let before = rejected(&nodes[0]);
    nodes[0].up().fleet.readmit(liar).await.unwrap();
    until("its messages are rejected again", || rejected(&nodes[0]) > before).await;
    until("it is set aside again", || is_set_aside(&nodes[0])).await;
}

#[tokio::test(start_paused = true)]
async fn nodes_with_a_different_half_life_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (broker, clock, mut nodes) = fleet_of(2, dir.path());
    nodes[0].start(options()).await.unwrap();
    let other = fetchwise::Selector::builder()
        .around(NOW)
        .half_life_days(14.0)
        .clock(Arc::clone(&clock))
        .build()
        .unwrap();
    let (journal, _) =
        fetchwise::journal::Journal::open(&nodes[1].dir, Default::default()).unwrap();
    let hands = Arc::new(broker.node(nodes[1].name()));
    let joined =
        fetchwise_fleet::Fleet::join(Arc::new(journal), Arc::new(other), hands, options()).await;
    let error = joined.unwrap_err();
    assert!(error.is_refusal() && error.to_string().contains("half-life"), "{error}");
    // Alone in the pool, it may keep its half-life.
    nodes[0].crash().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_evicts_keys_is_exact_in_the_rest_and_harms_no_other() {
    use fetchwise::heuristic::url::ContentKind;
    use fetchwise::journal::{Journal, JournalOptions};
    let dir = tempfile::tempdir().unwrap();
    let (broker, clock, mut nodes) = fleet_of(2, dir.path());
    let mut rng = TestRng(10);
    for node in &mut nodes {
        node.start(options()).await.unwrap();
    }
    let small = dir.path().join("small");
    let (journal, _) = Journal::open(&small, JournalOptions::default()).unwrap();
    let few = fetchwise::Selector::builder()
        .around(NOW)
        .max_keys(60)
        .clock(Arc::clone(&clock))
        .build()
        .unwrap();
    let (journal, few) = (Arc::new(journal), Arc::new(few));
    let hands = Arc::new(broker.node(fetchwise_fleet::NodeId::random()));
    let fleet =
        fetchwise_fleet::Fleet::join(journal, Arc::clone(&few), hands, options()).await.unwrap();
    // One host that all nodes fetch again and again, and many that are fetched once.
    for n in 0..1500i64 {
        let mut one = attempt(&mut rng, if n % 3 == 0 { 1 } else { 4000 }, n - 5000);
        one.duration_ms = 100;
        nodes[(n % 2) as usize].record(&one);
    }
    settle(&nodes).await;
    let has_all = || fleet.status().peers.iter().map(|peer| peer.position).sum::<u64>() == 1500;
    until("it has converged", || fleet.is_converged() && has_all()).await;
    assert!(few.evicted_keys() > 0, "{:?}", fleet.status());
    expect_all(&nodes, &clock);
    let whole = &nodes[0].up().selector;
    let of = |selector: &fetchwise::Selector| {
        selector.weights(("domain", "site0.example"), ContentKind::Page, "direct_access", NOW)
    };
    let (kept, all) = (of(&few), of(whole));
    assert!(
        all.total > 10.0 && (kept.total - all.total).abs() <= 1e-9 * all.total,
        "{kept:?} {all:?}"
    );
    fleet.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stopping_node_reports_its_last_position() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(Clock::fixed(NOW)));
    let broker = InProcessBroker::new(Arc::clone(&clock), 4);
    let mut node = Node::new(dir.path().join("node"), &broker, &clock);
    let (hands, name) = (broker.node(NodeId::random()), node.name().to_string());
    let mut settings = options();
    // It ends before it would send a heartbeat by itself.
    settings.timing.heartbeat = Duration::from_secs(3600);
    let mut said = Vec::new();
    for ends in ["crash", "stop", "crash"] {
        node.start(settings.clone()).await.unwrap();
        (0..20).for_each(|n| node.record(&attempt(&mut TestRng(n), 5, n as i64)));
        settle(std::slice::from_ref(&node)).await;
        match ends {
            "crash" => node.crash().await,
            _ => {
                let Running { fleet, journal, selector } = node.running.take().unwrap();
                fleet.stop().await;
                drop(selector);
                drop(Arc::try_unwrap(journal).map(Journal::close));
            }
        }
        let cell = hands.get(Table::Nodes, &name).await.unwrap().unwrap();
        let presence: serde_json::Value = serde_json::from_slice(&cell.value).unwrap();
        said.push(presence["position"].as_u64().unwrap());
    }
    assert_eq!(said, [0, 40, 40]);
    // A node ends even if the broker does not respond.
    node.start(settings).await.unwrap();
    node.record(&attempt(&mut TestRng(1), 5, 1));
    settle(std::slice::from_ref(&node)).await;
    broker.cut(node.name(), true);
    let Running { fleet, .. } = node.running.take().unwrap();
    tokio::time::timeout(WITHIN, fleet.stop()).await.expect("it ends");
}
