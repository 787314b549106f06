//! Rate limits and long absences: whole nodes over the in-process broker.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{NOW, Node, TestRng, assert_same, attempt, flush, naive, options, settle};
use fetchwise::attempt::Attempt;
use fetchwise::fleet_status::PeerStatus;
use fetchwise::heuristic::url::ContentKind;
use fetchwise::time::{Clock, Timestamp};
use fetchwise_fleet::NodeId;
use fetchwise_fleet::transport::in_process::InProcessBroker;
use fetchwise_fleet::transport::{RetransmitRequest, Transport};
use fetchwise_testsite::poll::until;

fn fleet_of(nodes: usize, dir: &Path) -> (Arc<Clock>, Vec<Node>) {
    let (_, clock, all) = nodes_and_broker(nodes, dir);
    (clock, all)
}

fn nodes_and_broker(nodes: usize, dir: &Path) -> (Arc<InProcessBroker>, Arc<Clock>, Vec<Node>) {
    let clock = Arc::new(Clock::fixed(NOW));
    let broker = InProcessBroker::new(Arc::clone(&clock), 7);
    let all =
        (0..nodes).map(|n| Node::new(dir.join(format!("node{n}")), &broker, &clock)).collect();
    (broker, clock, all)
}

fn record(node: &Node, rng: &mut TestRng, count: usize, sites: u64) {
    for _ in 0..count {
        let ms = -(rng.below(3_600_000) as i64);
        node.record(&attempt(rng, sites, ms));
    }
}

fn expect_all(nodes: &[Node], clock: &Arc<Clock>) {
    let dirs: Vec<&Path> = nodes.iter().map(|node| node.dir.as_path()).collect();
    let expected = naive(&dirs, clock, |_, _| true);
    for node in nodes {
        assert_same(&node.dir.display().to_string(), &node.evidence(), &expected);
    }
}

/// Returns what `of` knows of `node`.
fn peer(of: &Node, node: &Node) -> Option<PeerStatus> {
    let name = node.name().to_string();
    of.up().fleet.status().peers.into_iter().find(|peer| peer.node == name)
}

/// Advances the clock slowly enough for every node to send heartbeats.
async fn go_on(clock: &Clock, seconds: i64) {
    for _ in 0..seconds / 20 {
        clock.set(Timestamp::from_millis(clock.now().as_millis() + 20_000));
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_waits_is_reported_and_is_learned_later() {
    let dir = tempfile::tempdir().unwrap();
    let (clock, mut nodes) = fleet_of(3, dir.path());
    let mut tight = options();
    (tight.limits.attempt_burst, tight.limits.attempts_per_s) = (300.0, 40.0);
    // The waiting messages do not all fit.
    tight.limits.waiting_bytes = 8 << 10;
    for (n, node) in nodes.iter_mut().enumerate() {
        node.start(if n == 1 { tight.clone() } else { options() }).await.unwrap();
    }
    let mut rng = TestRng(31);
    for n in 1..=20 {
        record(&nodes[0], &mut rng, 100, 40);
        // In messages of which at least one fits.
        until("they are sent", || nodes[0].up().fleet.status().published >= 100 * n).await;
    }
    record(&nodes[2], &mut rng, 60, 40);
    until("the flood is seen", || peer(&nodes[1], &nodes[0]).is_some_and(|peer| peer.waiting > 0))
        .await;
    until("the others are read", || {
        peer(&nodes[1], &nodes[2]).is_some_and(|peer| peer.position >= 60)
    })
    .await;
    let status = nodes[1].up().fleet.status();
    let flooding = peer(&nodes[1], &nodes[0]).unwrap();
    assert!(flooding.limited.is_some_and(|why| why.contains("attempts")), "{status:?}");
    assert!(
        status.counts.received < 1200 && status.counts.throttled > 0 && !status.converged,
        "{status:?}"
    );
    assert_eq!(peer(&nodes[1], &nodes[2]).unwrap().limited, None);
    assert_eq!(peer(&nodes[2], &nodes[0]).unwrap().limited, None, "another node may take more");
    go_on(&clock, 100).await;
    settle(&nodes).await;
    expect_all(&nodes, &clock);
    assert_eq!(
        peer(&nodes[1], &nodes[0]).map(|peer| (peer.waiting, peer.limited)),
        Some((0, None))
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_with_too_many_keys_waits() {
    let dir = tempfile::tempdir().unwrap();
    let (clock, mut nodes) = fleet_of(2, dir.path());
    let mut tight = options();
    (tight.limits.new_key_burst, tight.limits.new_keys_per_s) = (500.0, 100.0);
    nodes[0].start(options()).await.unwrap();
    nodes[1].start(tight).await.unwrap();
    let mut rng = TestRng(32);
    for _ in 0..20 {
        record(&nodes[0], &mut rng, 60, 1_000_000);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    until("the keys are seen", || peer(&nodes[1], &nodes[0]).is_some_and(|peer| peer.waiting > 0))
        .await;
    let flooding = peer(&nodes[1], &nodes[0]).unwrap();
    assert!(flooding.limited.is_some_and(|why| why.contains("keys")));
    assert!(nodes[1].up().selector.key_count() < nodes[0].up().selector.key_count());
    go_on(&clock, 120).await;
    settle(&nodes).await;
    expect_all(&nodes, &clock);
}

#[tokio::test(start_paused = true)]
async fn a_node_is_closed_after_a_long_absence_and_reopened() {
    let dir = tempfile::tempdir().unwrap();
    let (clock, mut nodes) = fleet_of(2, dir.path());
    for node in &mut nodes {
        node.start(options()).await.unwrap();
    }
    let mut rng = TestRng(33);
    record(&nodes[0], &mut rng, 200, 20);
    record(&nodes[1], &mut rng, 200, 20);
    settle(&nodes).await;
    nodes[0].crash().await;
    let day = 86_400_000;
    clock.set(Timestamp::from_millis(NOW.as_millis() + 29 * day));
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(peer(&nodes[1], &nodes[0]).map(|peer| peer.closed), Some(false));
    clock.set(Timestamp::from_millis(NOW.as_millis() + 31 * day));
    until("it is closed", || peer(&nodes[1], &nodes[0]).is_some_and(|peer| peer.closed)).await;
    // A restart keeps that.
    nodes[1].crash().await;
    nodes[1].start(options()).await.unwrap();
    until("it is closed still", || peer(&nodes[1], &nodes[0]).is_some_and(|peer| peer.closed))
        .await;
    nodes[0].start(options()).await.unwrap();
    record(&nodes[0], &mut rng, 50, 20);
    until("it is open", || peer(&nodes[1], &nodes[0]).is_some_and(|peer| !peer.closed)).await;
    settle(&nodes).await;
    expect_all(&nodes, &clock);
}

/// Floods a node that keeps few keys with another node's keys. Returns how many of the first node's
/// 150 domains are left.
async fn flooded_with_keys(is_doubted: bool) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let (clock, mut nodes) = fleet_of(2, dir.path());
    nodes[1].max_keys = Some(600);
    let mut tight = options();
    (tight.limits.new_key_burst, tight.limits.new_keys_per_s) = (300.0, 100.0);
    tight.safeguards.doubt = is_doubted;
    nodes[0].start(options()).await.unwrap();
    nodes[1].start(tight).await.unwrap();
    let page = |domain: String, ms: i64| {
        let url = url::Url::parse(&format!("https://{domain}/")).unwrap();
        Attempt::new(&url, "direct_access", Timestamp::from_millis(NOW.as_millis() + ms))
            .unwrap()
            .delivered()
    };
    // Its own attempts are older, so they weigh less.
    (0..150).for_each(|n| nodes[1].record(&page(format!("own{n}.org"), -10 * 86_400_000)));
    for n in 0..3000 {
        nodes[0].record(&page(format!("flood{n}.net"), 0));
        // In small messages, so that the limit is found before there is no room.
        let is_read = || {
            peer(&nodes[1], &nodes[0])
                .is_some_and(|peer| peer.position > n || peer.limited.is_some())
        };
        if n % 20 == 19 && n < 400 {
            flush(&nodes[0].up().journal).await;
            until("it is read, or has to wait", is_read).await;
        }
    }
    let all_came =
        |peer: PeerStatus| peer.limited.is_some() && peer.position + peer.waiting >= 3000;
    until("it is limited, and everything has arrived", || {
        peer(&nodes[1], &nodes[0]).is_some_and(all_came)
    })
    .await;
    go_on(&clock, 200).await;
    until("everything is learned", || {
        peer(&nodes[1], &nodes[0]).is_some_and(|peer| peer.position >= 3000)
    })
    .await;
    let selector = &nodes[1].up().selector;
    assert!(
        selector.key_count() <= 600 && selector.evicted_keys() > 2000,
        "{} keys",
        selector.key_count()
    );
    let is_there = |n: &usize| {
        let own = format!("own{n}.org");
        selector.weights(("domain", &own), ContentKind::Page, "direct_access", NOW).total > 0.0
    };
    (0..150).filter(is_there).count()
}

#[tokio::test(start_paused = true)]
async fn keys_over_a_nodes_limit_are_evicted_first() {
    assert_eq!(flooded_with_keys(true).await, 150);
    let left = flooded_with_keys(false).await;
    assert!(left < 50, "without marks the least attempted keys are evicted: {left}");
}

#[tokio::test(start_paused = true)]
async fn the_snapshot_of_a_closed_node_is_deleted_once_it_has_faded() {
    use fetchwise_fleet::transport::Blobs;
    let dir = tempfile::tempdir().unwrap();
    let (broker, clock, mut nodes) = nodes_and_broker(3, dir.path());
    let mut often = options();
    often.timing.store_snapshot_after = 1;
    for node in &mut nodes {
        node.start(often.clone()).await.unwrap();
    }
    let mut rng = TestRng(34);
    record(&nodes[0], &mut rng, 200, 20);
    settle(&nodes).await;
    let (gone, operator) = (nodes[0].name(), broker.node(fetchwise_fleet::NodeId::random()));
    let names = async || {
        operator.list().await.unwrap().into_iter().map(|info| info.name).collect::<Vec<_>>()
    };
    until("it has a snapshot", || nodes[0].up().fleet.status().snapshot_position > 0).await;
    let weight = |node: &Node| {
        let selector = &node.up().selector;
        selector.weights(("global", ""), ContentKind::Page, "direct_access", clock.now()).total
    };
    nodes[0].crash().await;
    // It has been away for long, and its evidence has not faded completely: after half a year, and
    // after two years.
    let days = |days: i64| Timestamp::from_millis(NOW.as_millis() + days * 86_400_000);
    for (when, is_left) in [(180, true), (730, false)] {
        clock.set(days(when));
        assert_eq!(weight(&nodes[1]) > 0.01, is_left, "{}", weight(&nodes[1]));
        until("it is closed", || peer(&nodes[1], &nodes[0]).is_some_and(|peer| peer.closed)).await;
        // Another node publishes from time to time, so that snapshots are taken.
        let mut told = 0;
        while (is_left && told < 40) || (!is_left && names().await.contains(&gone.to_string())) {
            assert!(told < 4000, "its snapshot is still stored");
            let url = url::Url::parse("https://other.example/").unwrap();
            nodes[2].record(&Attempt::new(&url, "direct_access", clock.now()).unwrap().delivered());
            tokio::time::sleep(Duration::from_millis(30)).await;
            told += 1;
        }
        assert_eq!(names().await.contains(&gone.to_string()), is_left, "at {when} days");
    }
    assert!(names().await.contains(&nodes[2].name().to_string()), "that of others stays");
    settle(&nodes[1..]).await;
    assert_eq!(
        peer(&nodes[1], &nodes[0]).map(|peer| (peer.position >= 200, peer.missing_records)),
        Some((true, 0))
    );
    // It is back: its messages are read, and it has a snapshot again.
    nodes[0].start(often).await.unwrap();
    record(&nodes[0], &mut rng, 5, 20);
    until("it is open", || {
        peer(&nodes[1], &nodes[0]).is_some_and(|peer| !peer.closed && peer.missing_records == 0)
    })
    .await;
}

/// Each request is a little different, so that none equals an earlier one.
#[tokio::test(start_paused = true)]
async fn requests_make_a_node_publish_nothing_twice_within_a_moment() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Arc::new(Clock::fixed(NOW)));
    let broker = InProcessBroker::new(Arc::clone(&clock), 3);
    let mut node = Node::new(folder.path().join("a"), &broker, &clock);
    let mut options = options();
    options.timing.gap = Duration::from_secs(600);
    node.start(options).await.unwrap();
    let mut rng = TestRng(5);
    for n in 0..3000 {
        node.record(&attempt(&mut rng, 20, n));
    }
    let nodes = [node];
    settle(&nodes).await;
    let (node, hands) = (&nodes[0], broker.node(NodeId::random()));
    let (before, name) = (broker.traffic().1, node.name());
    let sent = || node.up().fleet.status().counts.published;
    let first = sent();
    for n in 0..1500 {
        for epoch in [1, 77 + n as u32] {
            hands
                .signal(name, RetransmitRequest { epoch, first: 1 + n, last: 3000 - n })
                .await
                .unwrap();
        }
    }
    // Meanwhile it publishes what is new. The last request is answered after all others.
    node.record(&attempt(&mut rng, 20, 9000).delivered());
    settle(&nodes).await;
    hands.signal(name, RetransmitRequest { epoch: 1, first: 3001, last: 3001 }).await.unwrap();
    until("all requests are answered", || sent() >= 2 * (first + 1)).await;
    assert!(broker.traffic().1 < before * 5 / 2, "{before} bytes became {}", broker.traffic().1);
}
