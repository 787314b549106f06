//! Scope `own` over a real broker: all nodes know the global evidence, late nodes read it, and it
//! is published again when the broker has lost it.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fetchwise::evidence::EvidenceSnapshot;
use fetchwise::journal::{self, Durability, Journal, JournalOptions};
use fetchwise::selector::Selector;
use fetchwise::time::{Clock, Timestamp};
use fetchwise_fleet::model::codec::Batch;
use fetchwise_fleet::model::rendezvous::owner;
use fetchwise_fleet::transport::nats::{Nats, NatsSettings};
use fetchwise_fleet::transport::{GlobalDelivery, Position, Transport};
use fetchwise_fleet::{Fleet, NodeId, Options, Scope};
use fetchwise_testsite::poll::until;
use futures_util::StreamExt;
use xxhash_rust::xxh3::xxh3_64;

use crate::common::{NOW, TestRng, assert_same, attempt, naive, selector};
use crate::node_process::timing;
use crate::servers::{self, Servers};

const SOON: Duration = Duration::from_secs(120);

async fn broker(servers: &Servers) -> Nats {
    let nats = Nats::connect(NatsSettings::new(servers.urls(), "own")).await.unwrap();
    nats.ready(SOON).await.unwrap();
    nats
}

struct Up {
    journal: Arc<Journal>,
    selector: Arc<Selector>,
    fleet: Fleet,
}

async fn start(dir: &Path, servers: &Servers, clock: &Arc<Clock>) -> Up {
    let (journal, _) =
        Journal::open(dir, JournalOptions::default().durability(Durability::Os)).unwrap();
    let selector = Arc::new(selector(clock));
    journal::load(dir, &selector, NOW).unwrap();
    let journal = Arc::new(journal);
    let mut options = Options::default();
    (options.pool, options.scope, options.timing) = ("own".into(), Scope::Own, timing());
    (options.timing.global_min_interval, options.timing.lease) =
        (Duration::from_millis(200), Duration::from_secs(10));
    let nats: Arc<dyn Transport> = Arc::new(broker(servers).await);
    let fleet =
        Fleet::join(Arc::clone(&journal), Arc::clone(&selector), nats, options).await.unwrap();
    Up { journal, selector, fleet }
}

fn record(up: &Up, seed: u64, count: i64) {
    let (mut rng, now) = (TestRng(seed), Timestamp::now().as_millis() - NOW.as_millis());
    for n in 0..count {
        let attempt = attempt(&mut rng, 20, now - 60_000 + n);
        up.selector.observe(&attempt);
        up.journal.append_attempt(&attempt).unwrap();
    }
}

/// Waits until all nodes have the global evidence of all logs.
async fn agree(what: &str, nodes: &[Up], clock: &Arc<Clock>) {
    for up in nodes {
        up.journal.flush().await.unwrap();
    }
    let dirs: Vec<&Path> = nodes.iter().map(|up| up.journal.dir()).collect();
    let expected = naive(&dirs, clock, |_, _| true).global_part();
    let far = || {
        let distances = nodes.iter().map(|up| global_part(up).distance(&expected).0);
        distances.fold(0.0, f64::max)
    };
    until(what, || far() <= 1e-9).await;
    nodes.iter().for_each(|up| assert_same(what, &global_part(up), &expected));
}

fn global_part(up: &Up) -> EvidenceSnapshot {
    up.selector.learned().evidence_snapshot(NOW, 0.0).global_part()
}

/// Checks the last node, which started when the others had recorded everything: of its sites it
/// knows what all know together.
async fn takes_its_sites(nodes: &[Up], nats: &Nats, clock: &Arc<Clock>) {
    let late = &nodes[3];
    until("it has converged", || late.fleet.is_converged()).await;
    let names: Vec<NodeId> = nodes.iter().map(|up| up.fleet.node_id()).collect();
    let sites: HashSet<u64> = (0..20)
        .map(|n| format!("site{n}.example"))
        .filter(|site| owner(site, &names) == Some(late.fleet.node_id()))
        .map(|site| xxh3_64(site.as_bytes()))
        .collect();
    let of_sites = |share: EvidenceSnapshot| share.of_sites(|site| sites.contains(&site));
    let dirs: Vec<&Path> = nodes.iter().map(|up| up.journal.dir()).collect();
    let expected = of_sites(naive(&dirs, clock, |_, _| true));
    let found = of_sites(late.selector.learned().evidence_snapshot(NOW, 0.0));
    assert!(
        found.distance(&expected).0 <= 1e-9,
        "{:?}, {} of {} keys",
        found.distance(&expected),
        found.keys(),
        expected.keys()
    );
    // The messages of one node arrive by themselves, in order, and from a position on.
    let first = nats.published_by(names[0], Position::default()).await.unwrap();
    let last = Batch::decode(first.last().unwrap()).unwrap();
    assert_eq!(last.header().last, nodes[0].fleet.status().published);
    let bounds = nats.bounds().await.unwrap();
    let behind = Position { incarnation: bounds.incarnation, seq: bounds.last + 1 };
    assert!(nats.published_by(names[0], behind).await.unwrap().is_empty());
    assert!(nats.published_by(NodeId::random(), Position::default()).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_scope_own_share_global_evidence_over_a_real_broker() {
    if !servers::is_available() {
        return;
    }
    let (dir, servers) = (tempfile::tempdir().unwrap(), Servers::start(1));
    let clock = Arc::new(Clock::System);
    let mut nodes = Vec::new();
    for n in 0..3 {
        nodes.push(start(&dir.path().join(n.to_string()), &servers, &clock).await);
        record(&nodes[n], n as u64, 80);
    }
    agree("three nodes", &nodes, &clock).await;
    nodes.iter().zip(10..).for_each(|(up, seed)| record(up, seed, 40));
    agree("and more", &nodes, &clock).await;
    let said: u64 =
        nodes.iter().map(|up| up.fleet.status().counts.global_snapshots_published).sum();
    assert!(said >= 6, "{said}");

    // The stream has one message per node, and a late reader begins with them.
    let nats = broker(&servers).await;
    let mut all = nats.global_snapshots();
    let mut node_ids = Vec::new();
    while let Some(GlobalDelivery::Snapshot { node_id, .. }) = all.next().await.transpose().unwrap()
    {
        node_ids.push(node_id.to_string());
    }
    drop(all);
    let mut names: Vec<String> = nodes.iter().map(|up| up.fleet.node_id().to_string()).collect();
    names.sort();
    node_ids.sort();
    assert_eq!(node_ids, names);
    nodes.push(start(&dir.path().join("late"), &servers, &clock).await);
    record(&nodes[3], 99, 1);
    agree("one that came later", &nodes, &clock).await;
    takes_its_sites(&nodes, &nats, &clock).await;

    // An unreadable snapshot is refused, and its node is named.
    let liar = NodeId::random();
    nats.publish_global(liar, Bytes::from_static(b"nothing")).await.unwrap();
    let names = |up: &Up| {
        let status = up.fleet.status();
        status.peers.iter().any(|peer| peer.node == liar.to_string() && peer.rejected.is_some())
    };
    until("all refuse it", || nodes.iter().all(names)).await;
    agree("in spite of it", &nodes, &clock).await;
    for up in nodes {
        up.fleet.stop().await;
    }
}
