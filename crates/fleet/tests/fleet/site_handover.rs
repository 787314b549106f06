//! Site handover in scope `own`: a new owner knows what the others had recorded of its sites when
//! it applied their evidence.
//!
//! The guarantee: a node knows the global evidence of every other node. Of the sites that it owned
//! when it last applied a node's evidence, it knows all that this node had published by then. A
//! node applies the evidence of all nodes when it starts, and of each one that has gone.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::common::{
    NOW, Node, Running, TestRng, assert_same, attempt, options, selector, settle, with_fact,
};
use bytes::Bytes;
use fetchwise::attempt::Attempt;
use fetchwise::evidence::EvidenceSnapshot;
use fetchwise::journal::{self, Entry};
use fetchwise::time::Clock;
use fetchwise_fleet::model::rendezvous::owner;
use fetchwise_fleet::sync::forget::notify_forgotten;
use fetchwise_fleet::transport::in_process::InProcessBroker;
use fetchwise_fleet::transport::{Cells, Table};
use fetchwise_fleet::{NodeId, Options, Scope};
use fetchwise_testsite::poll::until;

fn own_scope() -> Options {
    let mut options = options();
    options.scope = Scope::Own;
    options.timing.global_min_interval = Duration::from_millis(40);
    options.timing.owner = Duration::from_millis(1500);
    options.timing.lease = Duration::from_millis(400);
    options
}

/// A pool in which every node crawls every site.
struct Pool {
    broker: Arc<InProcessBroker>,
    clock: Arc<Clock>,
    nodes: Vec<Node>,
    /// By node and source: the owners of sites at the handover, and the number of attempts that the
    /// source had recorded.
    taken: HashMap<(usize, usize), (Vec<NodeId>, usize)>,
    recorded: Vec<usize>,
}

impl Pool {
    async fn new(count: usize, dir: &Path) -> Self {
        let clock = Arc::new(Clock::fixed(NOW));
        let broker = InProcessBroker::new(Arc::clone(&clock), 1);
        let nodes =
            (0..count).map(|n| Node::new(dir.join(n.to_string()), &broker, &clock)).collect();
        Self { broker, clock, nodes, taken: HashMap::new(), recorded: vec![0; count] }
    }

    async fn begin(&mut self, index: usize) {
        self.nodes[index].start(own_scope()).await.unwrap();
        self.settle().await;
        let others: Vec<usize> = (0..self.nodes.len()).filter(|other| *other != index).collect();
        others.into_iter().for_each(|other| self.takes(index, other));
    }

    /// Notes the handover from `other` to `index`.
    fn takes(&mut self, index: usize, other: usize) {
        let up = self.nodes.iter().filter(|node| node.running.is_some()).map(Node::name).collect();
        self.taken.insert((index, other), (up, self.recorded[other]));
    }

    async fn record(&mut self, index: usize, count: usize) {
        let mut rng = TestRng((index * 1000 + self.recorded[index]) as u64);
        for n in 0..count {
            let attempt = attempt(&mut rng, 12, (self.recorded[index] + n) as i64 * 50 - 100_000);
            self.nodes[index].record(&attempt);
        }
        self.recorded[index] += count;
        self.settle().await;
    }

    async fn settle(&self) {
        settle(&self.nodes).await;
    }

    /// Ends a node, and lets its last heartbeat age out.
    async fn dies(&mut self, index: usize) {
        let name = self.nodes[index].name();
        self.nodes[index].crash().await;
        self.broker
            .node(NodeId::random())
            .delete(Table::Nodes, &name.to_string(), None)
            .await
            .unwrap();
        let running = self.nodes.iter().filter_map(|node| node.running.as_ref());
        let knows = |up: &Running| up.fleet.nodes().contains(&name);
        until("sites are divided among the others", || !running.clone().any(knows)).await;
        self.settle().await;
        let left: Vec<usize> =
            (0..self.nodes.len()).filter(|n| self.nodes[*n].running.is_some()).collect();
        left.into_iter().for_each(|node| self.takes(node, index));
    }

    /// Returns what a node must know; `counts` selects the attempts of a node.
    fn expected(&self, index: usize, counts: impl Fn(usize, &Attempt) -> bool) -> EvidenceSnapshot {
        let oracle = selector(&self.clock);
        for (by, node) in self.nodes.iter().enumerate() {
            let mut number = 0;
            journal::replay(&node.dir, |_, entry| {
                let Entry::Attempt(attempt) = entry else { return };
                number += 1;
                let is_taken = self.taken.get(&(index, by)).is_some_and(|(nodes, upto)| {
                    number <= *upto
                        && owner(attempt.heuristic("site").unwrap(), nodes)
                            == Some(self.nodes[index].name())
                });
                match () {
                    () if !counts(by, &attempt) => {}
                    () if by == index || is_taken => oracle.observe(&attempt),
                    () => with_fact(&attempt, &oracle, |fact| {
                        oracle.learned().receive_global_part(fact)
                    }),
                }
            })
            .unwrap();
        }
        oracle.learned().evidence_snapshot(NOW, 0.0)
    }

    fn check(&self, what: &str, counts: impl Fn(usize, &Attempt) -> bool) {
        for (index, node) in
            self.nodes.iter().enumerate().filter(|(_, node)| node.running.is_some())
        {
            assert_same(
                &format!("{what}, node {index}"),
                &node.evidence(),
                &self.expected(index, &counts),
            );
        }
    }
}

/// Returns how many recorded positions of a node its stored snapshot lacks.
async fn behind_share(pool: &Pool, index: usize) -> u64 {
    let status = pool.nodes[index].up().fleet.status();
    status.published - status.snapshot_position
}

#[tokio::test(start_paused = true)]
async fn evidence_of_a_site_is_handed_to_its_next_owner() {
    let dir = tempfile::tempdir().unwrap();
    let mut pool = Pool::new(4, dir.path()).await;
    for index in 0..3 {
        pool.begin(index).await;
    }
    for (index, count) in [(0, 150), (1, 200), (2, 100), (0, 80), (1, 120)] {
        pool.record(index, count).await;
    }
    pool.check("each for itself", |_, _| true);

    // A new node knows what the others have recorded of its sites, from their snapshots and their
    // later messages.
    assert!(
        behind_share(&pool, 0).await > 0 && pool.nodes[0].up().fleet.status().snapshot_position > 0
    );
    pool.begin(3).await;
    pool.record(3, 60).await;
    pool.check("one more", |_, _| true);

    // A node that dies leaves its sites to the others, and its evidence of them.
    pool.dies(1).await;
    pool.check("one less", |_, _| true);
    let (_, upto) = pool.taken[&(0, 1)];
    assert_eq!(upto, 320);
    for index in [0, 2, 3] {
        pool.record(index, 40).await;
    }
    pool.check("and on", |_, _| true);

    // It comes back and knows what happened to its sites meanwhile. So does a restarted node.
    pool.begin(1).await;
    pool.check("it is back", |_, _| true);
    pool.nodes[2].crash().await;
    pool.begin(2).await;
    pool.check("started again", |_, _| true);
}

#[tokio::test(start_paused = true)]
async fn handed_over_evidence_respects_exclusion_and_forgetting() {
    let dir = tempfile::tempdir().unwrap();
    let mut pool = Pool::new(3, dir.path()).await;
    pool.begin(0).await;
    pool.begin(1).await;
    pool.record(0, 200).await;
    pool.record(1, 200).await;
    pool.begin(2).await;
    pool.check("it began", |_, _| true);

    let (liar, hands) = (pool.nodes[1].name().to_string(), pool.broker.node(NodeId::random()));
    hands.put(Table::Excluded, &liar, Bytes::new()).await.unwrap();
    let is_out = |pool: &Pool, index: usize| {
        let status = pool.nodes[index].up().fleet.status();
        status.peers.iter().any(|peer| peer.node == liar && peer.excluded)
    };
    until("both exclude it", || is_out(&pool, 0) && is_out(&pool, 2)).await;
    for index in [0, 2] {
        assert_same(
            "without it",
            &pool.nodes[index].evidence(),
            &pool.expected(index, |by, _| by != 1),
        );
    }
    hands.delete(Table::Excluded, &liar, None).await.unwrap();
    until("both include it", || !is_out(&pool, 0) && !is_out(&pool, 2)).await;
    pool.settle().await;
    // A node that includes it applies its evidence again.
    for index in [0, 2] {
        pool.takes(index, 1);
    }
    pool.check("with it again", |_, _| true);

    let nodes = pool.nodes.iter().map(Node::name).collect::<Vec<_>>();
    let mut domains =
        (0..12).map(|n| (format!("site{n}.example"), format!("shop.site{n}.example")));
    // By their random names, any of the nodes can be without a site.
    let known = |(site, domain): (String, String)| {
        let at = nodes.iter().position(|node| owner(&site, &nodes) == Some(*node))?;
        pool.nodes[at].evidence().has_domain(&domain).then_some((domain, at))
    };
    let (domain, at) = domains.find_map(known).unwrap();
    notify_forgotten(&hands, &domain, NOW).await.unwrap();
    until("all forget", || pool.nodes.iter().all(|node| node.up().fleet.status().forgot == 1))
        .await;
    pool.settle().await;
    assert!(pool.nodes.iter().all(|node| !node.evidence().has_domain(&domain)));
    pool.check("forgotten", |_, attempt| attempt.heuristic("domain") != Some(&domain));
    pool.nodes[at].crash().await;
    pool.begin(at).await;
    pool.check("and after a start", |_, attempt| attempt.heuristic("domain") != Some(&domain));
}

#[tokio::test(start_paused = true)]
async fn a_broker_outage_does_not_make_nodes_look_gone() {
    let dir = tempfile::tempdir().unwrap();
    let mut pool = Pool::new(2, dir.path()).await;
    pool.begin(0).await;
    pool.begin(1).await;
    pool.record(0, 100).await;
    pool.record(1, 100).await;
    let names: Vec<NodeId> = pool.nodes.iter().map(Node::name).collect();
    names.iter().for_each(|name| pool.broker.cut(*name, true));
    tokio::time::sleep(Duration::from_millis(2500)).await;
    // The broker comes back with an empty table of nodes.
    pool.broker.wipe_cells();
    pool.broker.cut(names[0], false);
    tokio::time::sleep(Duration::from_millis(300)).await;
    pool.broker.cut(names[1], false);
    tokio::time::sleep(Duration::from_millis(2500)).await;
    pool.settle().await;
    pool.check("as before", |_, _| true);
    assert!(pool.nodes.iter().all(|node| node.up().fleet.status().counts.snapshots_applied == 0));
}

/// A node's directory, for offline readers.
#[tokio::test(start_paused = true)]
async fn handed_over_evidence_counts_as_peer_evidence_offline() {
    let dir = tempfile::tempdir().unwrap();
    let mut pool = Pool::new(2, dir.path()).await;
    pool.begin(0).await;
    pool.record(0, 200).await;
    pool.begin(1).await;
    let own: PathBuf = pool.nodes[1].dir.clone();
    let found = pool.nodes[1].evidence();
    pool.nodes[1].crash().await;
    let foreign = selector(&pool.clock);
    fetchwise_fleet::peer_store::load_peers(&own, &foreign).unwrap();
    assert_same("all of it", &foreign.learned().evidence_snapshot(NOW, 0.0), &found);
    assert!(!found.is_global(), "it has sites");
}
