//! Model-based tests: publishers and consumers are driven step by step over a faulty broker, and
//! compared with the naive fold of all logs. Each safeguard is switched off once, which must make a
//! test fail.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use fetchwise::attempt::Attempt;
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::evidence::EvidenceSnapshot;
use fetchwise::journal::{self, Durability, Entry, Journal, JournalOptions};
use fetchwise::selector::Selector;
use fetchwise::time::{Clock, Timestamp};
use futures_util::{FutureExt, StreamExt};
use proptest::prelude::*;

use crate::model::node_id::NodeId;
use crate::model::options::{Limits, Options, Safeguards};
use crate::peer_store::PeerStore;
use crate::peer_store::own_state_file::NodeState;
use crate::sync::consumer::Consumer;
use crate::sync::publisher::Publisher;
use crate::transport::in_process::{Faults, InProcessBroker, InProcessNode};
use crate::transport::{Cells, Delivery, RetransmitRequest, Table, Transport};

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn later(ms: i64) -> Timestamp {
    Timestamp::from_millis(NOW.as_millis() + ms)
}

fn blank(clock: &Arc<Clock>) -> Selector {
    Selector::builder().around(NOW).clock(Arc::clone(clock)).build().unwrap()
}

struct RunningNode {
    selector: Arc<Selector>,
    journal: Arc<Journal>,
    hands: Arc<InProcessNode>,
    publisher: Publisher,
    consumer: Consumer,
}

struct Node {
    dir: PathBuf,
    node_id: NodeId,
    live: Option<RunningNode>,
}

struct World {
    clock: Arc<Clock>,
    broker: Arc<InProcessBroker>,
    nodes: Vec<Node>,
    options: Options,
    copies: u32,
    luck: u64,
    root: tempfile::TempDir,
}

impl Drop for World {
    fn drop(&mut self) {
        self.nodes.clear();
        // A node finishes pending writes a moment later; until then its folder cannot be removed.
        let goes = |_| std::fs::remove_dir_all(self.root.path()).is_ok();
        (0..500)
            .map(goes)
            .take_while(|gone| !gone)
            .for_each(|_| std::thread::sleep(std::time::Duration::from_millis(2)));
    }
}

impl World {
    async fn new(nodes: usize, safeguards: Safeguards) -> Self {
        let root = tempfile::tempdir().unwrap();
        let clock = Arc::new(Clock::fixed(NOW));
        let broker = InProcessBroker::new(Arc::clone(&clock), 11);
        let mut options = Options { safeguards, ..Options::default() };
        options.timing.gap = std::time::Duration::ZERO;
        let mut world =
            Self { root, clock, broker, nodes: Vec::new(), options, copies: 0, luck: 5 };
        for n in 0..nodes {
            let dir = world.root.path().join(format!("node{n}"));
            std::fs::create_dir_all(&dir).unwrap();
            let state = NodeState::new(NodeId::from_bytes([n as u8 + 1; 16]));
            state.save(&dir).unwrap();
            world.nodes.push(Node { dir, node_id: state.node_id, live: None });
        }
        world
    }

    async fn start(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        let options = JournalOptions::default()
            .durability(Durability::Memory)
            .linger(std::time::Duration::ZERO);
        let (journal, _) = Journal::open(&node.dir, options).unwrap();
        let (journal, selector) = (Arc::new(journal), Arc::new(blank(&self.clock)));
        journal::load(&node.dir, &selector, NOW).unwrap();
        let hands = Arc::new(self.broker.node(node.node_id));
        let state = NodeState::load(&node.dir).unwrap().unwrap();
        let transport: Arc<dyn Transport> = Arc::clone(&hands) as Arc<dyn Transport>;
        let (a, b, c) = (Arc::clone(&journal), Arc::clone(&selector), Arc::clone(&transport));
        let mut publisher = Publisher::new(a, b, c, self.options.clone(), state);
        while publisher.detect_restore().await.is_err() {}
        let own = (node.node_id, publisher.state.own());
        let peers = PeerStore::open(&node.dir, own, Arc::clone(&selector)).unwrap();
        let logs = (Arc::clone(&journal), Arc::clone(&selector));
        let consumer = Consumer::new(node.node_id, peers, logs, transport, self.options.clone());
        node.live = Some(RunningNode { selector, journal, hands, publisher, consumer });
    }

    /// Ends a node like `kill -9` or a power failure: everything that is not in its files is lost.
    async fn crash(&mut self, n: usize) {
        self.copies += 1;
        let to = self.root.path().join(format!("copy{}", self.copies));
        // A crash freezes the files at one moment. A copy takes longer, and the log is still being
        // written meanwhile.
        loop {
            let before = stamps(&self.nodes[n].dir);
            copy(&self.nodes[n].dir, &to);
            if stamps(&self.nodes[n].dir) == before {
                break;
            }
            std::fs::remove_dir_all(&to).unwrap();
        }
        self.nodes[n].live = None;
        std::fs::remove_dir_all(&self.nodes[n].dir).unwrap();
        self.nodes[n].dir = to;
    }

    fn record(&mut self, n: usize, ms: i64) {
        self.luck = self
            .luck
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let luck = self.luck >> 33;
        let site = luck % 5;
        let path = ["a/b", "", "x.pdf"][(luck / 5 % 3) as usize];
        let url = url::Url::parse(&format!("https://site{site}.example/{path}")).unwrap();
        let fetcher = ["direct_access", "playwright"][(luck / 15 % 2) as usize];
        let mut attempt = Attempt::new(&url, fetcher, later(ms)).unwrap();
        attempt.duration_ms = luck % 3000;
        let attempt = match luck / 30 % 4 {
            0 => attempt.failed(ErrorKind::BlockedCaptcha),
            1 => attempt.failed(ErrorKind::Timeout),
            _ => attempt.delivered(),
        };
        let node = &self.nodes[n];
        if let Some(live) = &node.live {
            live.selector.observe(&attempt);
            live.journal.append_attempt(&attempt).unwrap();
        }
    }

    async fn publish(&mut self, n: usize) {
        let Some(live) = &mut self.nodes[n].live else { return };
        if self.options.safeguards.sync {
            let _ = live.journal.flush().await;
        } else {
            // Without this safeguard a publisher reads what is written but not synced.
            let _ = live.journal.settled().await;
        }
        let _ = live.publisher.turn(true).await;
        let heartbeat = live.publisher.heartbeat("holder", "directory");
        let name = live.publisher.node_id().to_string();
        let _ = live.hands.put(Table::Nodes, &name, heartbeat.encode()).await;
    }

    async fn read(&mut self, n: usize, most: usize) {
        let Some(live) = &mut self.nodes[n].live else { return };
        let transport = Arc::clone(&live.hands);
        let mut stream = transport.read(live.consumer.cursor());
        for _ in 0..most {
            match stream.next().now_or_never() {
                Some(Some(Ok(delivery))) => {
                    let is_wiped = matches!(delivery, Delivery::Wiped(_));
                    live.consumer.deliver(delivery).await.unwrap();
                    if is_wiped {
                        continue;
                    }
                }
                _ => break,
            }
        }
    }

    async fn repair_gaps(&mut self, n: usize) {
        let Some(live) = &mut self.nodes[n].live else { return };
        let _ = live.consumer.check_tables().await;
        let _ = live.consumer.repair_gaps().await;
        assert_eq!(live.consumer.counts.rejected, 0, "a snapshot of an honest node is accepted");
        live.publisher.forgot = live.consumer.tombstones();
        live.publisher.is_excluded = live.consumer.is_excluded;
    }

    /// Excludes a node at all others, or includes it again.
    async fn exclude(&mut self, n: usize, is_out: bool) {
        let (operator, name) =
            (self.broker.node(NodeId::from_bytes([99; 16])), self.nodes[n].node_id.to_string());
        let _ = match is_out {
            true => operator.put(Table::Excluded, &name, "".into()).await.map(drop),
            false => operator.delete(Table::Excluded, &name, None).await.map(drop),
        };
    }

    /// Delivers the retransmit requests.
    async fn deliver_requests(&mut self, wants: &mut VecDeque<(NodeId, RetransmitRequest)>) {
        while let Some((to, want)) = wants.pop_front() {
            let live = self
                .nodes
                .iter_mut()
                .find(|node| node.node_id == to)
                .and_then(|node| node.live.as_mut());
            if let Some(live) = live {
                let _ = live.publisher.retransmit(want).await;
            }
        }
    }

    /// Runs without further faults until no node misses anything. Returns whether that happened.
    async fn settle(&mut self) -> bool {
        self.broker.set_faults(Faults::default());
        for n in 0..self.nodes.len() {
            self.exclude(n, false).await;
            if self.nodes[n].live.is_none() {
                self.start(n).await;
            }
        }
        for _ in 0..40 {
            for n in 0..self.nodes.len() {
                self.publish(n).await;
            }
            for n in 0..self.nodes.len() {
                self.read(n, usize::MAX).await;
                self.repair_gaps(n).await;
            }
            let mut wants: VecDeque<_> = self.broker.take_signals().into();
            let asked = !wants.is_empty();
            self.deliver_requests(&mut wants).await;
            let is_calm = self
                .nodes
                .iter()
                .filter_map(|node| node.live.as_ref())
                .all(|live| live.consumer.is_converged() && live.publisher.is_done());
            if is_calm && !asked {
                for n in 0..self.nodes.len() {
                    self.read(n, usize::MAX).await;
                }
                return true;
            }
        }
        false
    }

    fn evidence(&self, n: usize) -> EvidenceSnapshot {
        self.nodes[n].live.as_ref().unwrap().selector.learned().evidence_snapshot(NOW, 0.0)
    }

    fn naive(&self, counts: impl Fn(usize, &Attempt) -> bool) -> EvidenceSnapshot {
        let oracle = blank(&self.clock);
        for (n, node) in self.nodes.iter().enumerate() {
            journal::replay(&node.dir, |_, entry| {
                if let Entry::Attempt(attempt) = entry
                    && counts(n, &attempt)
                {
                    oracle.observe(&attempt);
                }
            })
            .unwrap();
        }
        oracle.learned().evidence_snapshot(NOW, 0.0)
    }

    /// Returns how far the worst node is from the naive fold.
    async fn distance(&mut self) -> f64 {
        for node in &self.nodes {
            let _ = node.live.as_ref().unwrap().journal.flush().await;
        }
        let expected = self.naive(|_, _| true);
        (0..self.nodes.len()).map(|n| self.evidence(n).distance(&expected).0).fold(0.0, f64::max)
    }
}

/// Returns the modification time and the length of each file.
fn stamps(dir: &Path) -> BTreeMap<PathBuf, (SystemTime, u64)> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        // A file may be renamed or removed at this moment.
        let Ok(about) = path.metadata() else { continue };
        if about.is_dir() {
            found.extend(stamps(&path));
        } else {
            found.insert(path, (about.modified().unwrap(), about.len()));
        }
    }
    found
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            // A file may be renamed or removed at this moment.
            let _ = std::fs::copy(entry.path(), target);
        }
    }
}

fn run<T>(of: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(of)
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Record(usize, usize),
    Publish(usize),
    Read(usize, usize),
    RepairGaps(usize),
    Retransmit,
    Crash(usize),
    Start(usize),
    WipeStream,
    WipeBlobs,
    WipeCells,
    AgeOut(u64),
    Lose(u64),
    Keep(usize),
    EvidenceSnapshot(usize),
    Exclude(usize),
    Include(usize),
    Faults(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let n = || 0usize..3;
    prop_oneof![
        6 => (n(), 1usize..12).prop_map(|(n, count)| Step::Record(n, count)),
        6 => n().prop_map(Step::Publish),
        6 => (n(), 1usize..20).prop_map(|(n, most)| Step::Read(n, most)),
        3 => n().prop_map(Step::RepairGaps),
        2 => Just(Step::Retransmit),
        2 => n().prop_map(Step::Crash),
        3 => n().prop_map(Step::Start),
        1 => Just(Step::WipeStream),
        1 => Just(Step::WipeBlobs),
        1 => Just(Step::WipeCells),
        1 => (0u64..30).prop_map(Step::AgeOut),
        2 => (1u64..30).prop_map(Step::Lose),
        1 => n().prop_map(Step::Keep),
        1 => n().prop_map(Step::EvidenceSnapshot),
        1 => n().prop_map(Step::Exclude),
        1 => n().prop_map(Step::Include),
        2 => any::<u8>().prop_map(Step::Faults),
    ]
}

async fn play(steps: &[Step]) -> Result<(), TestCaseError> {
    let mut world = World::new(3, Safeguards::default()).await;
    if steps.len() % 2 == 1 {
        // Evidence of peers is always mixed.
        world.options.limits.max_snapshot_bytes = 1;
    }
    for n in 0..3 {
        world.start(n).await;
    }
    for (index, step) in steps.iter().enumerate() {
        match *step {
            Step::Record(n, count) => {
                (0..count).for_each(|k| world.record(n, (index * 100 + k) as i64 - 50_000))
            }
            Step::Publish(n) => world.publish(n).await,
            Step::Read(n, most) => world.read(n, most).await,
            Step::RepairGaps(n) => world.repair_gaps(n).await,
            Step::Retransmit => {
                let mut wants = world.broker.take_signals().into();
                world.deliver_requests(&mut wants).await;
            }
            Step::Crash(n) if world.nodes[n].live.is_some() => world.crash(n).await,
            Step::Start(n) if world.nodes[n].live.is_none() => world.start(n).await,
            Step::Crash(_) | Step::Start(_) => {}
            Step::WipeStream => world.broker.wipe_stream(),
            Step::WipeBlobs => world.broker.wipe_blobs(),
            Step::WipeCells => world.broker.wipe_cells(),
            Step::AgeOut(upto) => world.broker.age_out(upto),
            Step::Lose(seq) => drop(world.broker.lose(seq)),
            Step::Keep(n) => {
                if let Some(live) = &world.nodes[n].live {
                    let _ = live.consumer.flush().unwrap().await;
                    live.consumer.take_snapshot_now(NOW).unwrap();
                }
            }
            Step::EvidenceSnapshot(n) => {
                if let Some(live) = &mut world.nodes[n].live {
                    let _ = live.publisher.publish_snapshot().await;
                }
            }
            Step::Exclude(n) => world.exclude(n, true).await,
            Step::Include(n) => world.exclude(n, false).await,
            Step::Faults(bits) => world.broker.set_faults(Faults {
                lose: if bits & 1 != 0 { 0.2 } else { 0.0 },
                double: if bits & 2 != 0 { 0.5 } else { 0.0 },
                shuffle: if bits & 4 != 0 { 1000 } else { usize::from(bits >> 5) },
                lose_response: if bits & 8 != 0 { 0.2 } else { 0.0 },
                lose_signal: if bits & 16 != 0 { 0.5 } else { 0.0 },
                ..Faults::default()
            }),
        }
    }
    let is_calm = world.settle().await;
    let far = world.distance().await;
    let states: Vec<String> = world
        .nodes
        .iter()
        .map(|node| {
            let live = node.live.as_ref().unwrap();
            format!("{:?} {:?}", live.publisher.state, live.consumer.status())
        })
        .collect();
    prop_assert!(is_calm && far <= 1e-9, "calm: {is_calm}, {far} apart\n{}", states.join("\n"));
    Ok(())
}

/// Returns the number of cases: from the fault suite's size, as for its rows.
fn cases() -> u32 {
    match std::env::var("FETCHWISE_FLEET_FAULTS").as_deref() {
        Ok("full") => 10_000,
        Ok("ci") => 200,
        _ => 24,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn all_nodes_know_all_logs_whatever_happens(steps in prop::collection::vec(step(), 1..60)) {
        run(play(&steps))?;
    }
}

/// Runs two nodes; every message arrives twice.
async fn doubled(safeguards: Safeguards) -> f64 {
    let mut world = World::new(2, safeguards).await;
    world.broker.set_faults(Faults { double: 1.0, ..Faults::default() });
    for n in 0..2 {
        world.start(n).await;
    }
    (0..20).for_each(|k| world.record(k % 2, k as i64));
    for n in 0..2 {
        world.publish(n).await;
    }
    world.settle().await;
    world.distance().await
}

/// Loses an acknowledged message that no snapshot covers.
async fn lost(safeguards: Safeguards) -> f64 {
    let mut world = World::new(2, safeguards).await;
    for n in 0..2 {
        world.start(n).await;
    }
    for round in 0..3 {
        (0..10).for_each(|k| world.record(0, round * 100 + k));
        world.publish(0).await;
    }
    let last = world.broker.node(world.nodes[0].node_id).bounds().await.unwrap().last;
    assert!(world.broker.lose(last));
    world.settle().await;
    world.distance().await
}

/// Wipes the broker; then a node joins that depends on what is published again.
async fn wiped(safeguards: Safeguards) -> f64 {
    let mut world = World::new(3, safeguards).await;
    for n in 0..2 {
        world.start(n).await;
    }
    for round in 0..2 {
        (0..20).for_each(|k| world.record(k % 2, round * 100 + k as i64));
        for n in 0..2 {
            world.publish(n).await;
            world.read(n, usize::MAX).await;
        }
    }
    for n in 0..2 {
        // No snapshot is in progress when the store is wiped.
        world.nodes[n].live.as_mut().unwrap().publisher.publish_snapshot().await.unwrap();
    }
    world.broker.wipe_stream();
    world.broker.wipe_blobs();
    world.broker.wipe_cells();
    world.settle().await;
    world.distance().await
}

/// Returns whether anything was ever in the stream that was not on disk.
async fn published_unsynced(safeguards: Safeguards) -> bool {
    let mut world = World::new(1, safeguards).await;
    world.start(0).await;
    let mut ever = false;
    for round in 0..20 {
        (0..5).for_each(|k| world.record(0, round * 100 + k));
        world.publish(0).await;
        let hands = world.broker.node(world.nodes[0].node_id);
        let newest = hands.newest(world.nodes[0].node_id).await.unwrap();
        let last = newest.map_or(0, |body| crate::model::codec::peek(&body).unwrap().last);
        ever |= last > world.nodes[0].live.as_ref().unwrap().journal.durable_seq();
    }
    ever
}

/// Records with a clock that is sometimes half an hour ahead. Returns how far the other node is
/// from the fold without those attempts.
async fn ahead(safeguards: Safeguards) -> f64 {
    let mut world = World::new(2, safeguards).await;
    for n in 0..2 {
        world.start(n).await;
    }
    (0..20i64).for_each(|k| world.record(0, if k % 4 == 0 { 1_800_000 } else { -k }));
    world.publish(0).await;
    // Snapshots leave them out as well.
    world.nodes[0].live.as_mut().unwrap().publisher.publish_snapshot().await.unwrap();
    world.settle().await;
    let expected = world.naive(|_, attempt| attempt.attempted_at <= NOW);
    world.evidence(1).distance(&expected).0
}

/// Returns how much a late attempt of another node changes the last outcome of a host.
async fn startled(safeguards: Safeguards) -> f64 {
    use fetchwise::heuristic::url::ContentKind;
    let mut world = World::new(2, safeguards).await;
    for n in 0..2 {
        world.start(n).await;
    }
    for k in 0..200 {
        world.record(0, k - 86_400_000);
        world.record(1, k);
    }
    let recent = |world: &World| {
        let selector = &world.nodes[1].live.as_ref().unwrap().selector;
        let weights =
            selector.weights(("domain", "site1.example"), ContentKind::Page, "direct_access", NOW);
        assert!(weights.total > 0.0);
        (weights.recent_success, weights.recent_total)
    };
    let before = recent(&world);
    world.settle().await;
    assert!(world.distance().await <= 1e-9, "weights are exact either way");
    let after = recent(&world);
    (after.0 - before.0).abs() + (after.1 - before.1).abs()
}

/// Publishes many attempts at once. Returns how many of them the other node learns without time
/// passing, and how far it is from the fold later.
async fn flooded(safeguards: Safeguards, limits: impl Fn(&mut Limits)) -> (u64, f64) {
    let mut world = World::new(2, safeguards).await;
    limits(&mut world.options.limits);
    for n in 0..2 {
        world.start(n).await;
    }
    for round in 0..40 {
        (0..5).for_each(|k| world.record(0, round * 100 + k));
        world.publish(0).await;
    }
    world.read(1, usize::MAX).await;
    world.repair_gaps(1).await;
    let learned = world.nodes[1].live.as_ref().unwrap().consumer.counts.received;
    for hour in 1..20 {
        world.clock.set(later(hour * 3_600_000));
        world.settle().await;
    }
    (learned, world.distance().await)
}

/// Closes a node while some of its positions are missing. Returns how often they are requested a
/// month later.
async fn gone(safeguards: Safeguards) -> u64 {
    let mut world = World::new(2, safeguards).await;
    for n in 0..2 {
        world.start(n).await;
    }
    for round in 0..3 {
        (0..10).for_each(|k| world.record(0, round * 100 + k));
        world.publish(0).await;
    }
    assert!(world.broker.lose(2));
    world.read(1, usize::MAX).await;
    let _ = world.nodes[1].live.as_ref().unwrap().consumer.flush().unwrap().await;
    world.crash(0).await;
    // No snapshot covers the missing positions.
    world.broker.wipe_blobs();
    let wants =
        |world: &World| world.nodes[1].live.as_ref().unwrap().consumer.counts.retransmit_requests;
    for _ in 0..4 {
        world.repair_gaps(1).await;
    }
    assert!(wants(&world) > 0, "it is requested at first");
    world.clock.set(later(31 * 86_400_000));
    // A node seen a minute ago counts as present, whatever the calendar says, so another process
    // checks now.
    world.crash(1).await;
    world.start(1).await;
    world.broker.wipe_cells();
    for _ in 0..4 {
        world.repair_gaps(1).await;
    }
    wants(&world)
}

/// Limits the size of evidence so that two nodes are mixed, then excludes one. Returns how far the
/// third node is from the fold without it.
async fn mixed(safeguards: Safeguards) -> f64 {
    let mut world = World::new(3, safeguards).await;
    world.options.limits.max_snapshot_bytes = 1;
    for n in 0..3 {
        world.start(n).await;
    }
    for round in 0..3 {
        (0..30).for_each(|k| world.record(k % 3, round * 100 + k as i64));
        for n in 0..3 {
            world.publish(n).await;
        }
    }
    world.read(2, usize::MAX).await;
    let live = world.nodes[2].live.as_ref().unwrap();
    let _ = live.consumer.flush().unwrap().await;
    assert_eq!(live.consumer.take_snapshot_now(NOW).unwrap().node_ids, 2);
    world.exclude(0, true).await;
    for _ in 0..20 {
        for n in 0..3 {
            world.publish(n).await;
            world.read(n, usize::MAX).await;
            world.repair_gaps(n).await;
        }
        let mut wants = world.broker.take_signals().into();
        world.deliver_requests(&mut wants).await;
    }
    let expected = world.naive(|n, _| n != 0);
    world.evidence(2).distance(&expected).0
}

/// Messages may come before the heartbeat that announces them, and so are missed by nobody.
#[test]
fn a_node_has_not_converged_while_messages_wait() {
    run(async {
        let mut world = World::new(2, Safeguards::default()).await;
        (world.options.limits.attempt_burst, world.options.limits.attempts_per_s) = (20.0, 0.02);
        for n in 0..2 {
            world.start(n).await;
        }
        let is_converged =
            |world: &World| world.nodes[1].live.as_ref().unwrap().consumer.is_converged();
        world.record(0, 0);
        world.publish(0).await;
        world.read(1, usize::MAX).await;
        world.repair_gaps(1).await;
        assert!(is_converged(&world));
        for round in 1..10 {
            (0..5).for_each(|k| world.record(0, round * 100 + k));
            world.publish(0).await;
        }
        world.read(1, usize::MAX).await;
        assert!(!is_converged(&world), "no heartbeat has announced what waits");
        world.clock.set(later(3_600_000));
        assert!(!world.settle().await, "an hour is enough for some of it");
        world.clock.set(later(2 * 3_600_000));
        assert!(world.settle().await);
        assert!(world.distance().await <= 1e-9);
    });
}

#[test]
fn each_safeguard_is_needed() {
    let all = Safeguards::default();
    run(async {
        let few =
            |limits: &mut Limits| (limits.attempt_burst, limits.attempts_per_s) = (20.0, 0.02);
        let fewer = |limits: &mut Limits| {
            few(limits);
            limits.waiting_bytes = 500;
        };
        let (learned, far) = flooded(all, few).await;
        assert!(learned < 30 && far <= 1e-9, "{learned} at once, {far} apart later");
        let (learned, far) = flooded(all, fewer).await;
        assert!(
            learned < 30 && far <= 1e-9,
            "{learned} at once, {far} apart later, what did not fit in is asked for"
        );
        assert!(
            flooded(Safeguards { floods: false, ..all }, few).await.0 > 100,
            "without a limit of attempts"
        );
        let few =
            |limits: &mut Limits| (limits.new_key_burst, limits.new_keys_per_s) = (5.0, 0.005);
        let (learned, far) = flooded(all, few).await;
        assert!(learned < 30 && far <= 1e-9, "{learned} at once, {far} apart later");
        assert!(
            flooded(Safeguards { keys: false, ..all }, few).await.0 > 100,
            "without a limit of new keys"
        );
        assert_eq!(gone(all).await, 0);
        assert!(gone(Safeguards { close: false, ..all }).await > 0, "without closing nodes");
        assert!(mixed(all).await <= 1e-9);
        assert!(
            mixed(Safeguards { apart: false, ..all }).await > 0.1,
            "without discarding mixed evidence"
        );
        assert!(doubled(all).await <= 1e-9);
        assert!(doubled(Safeguards { intervals: false, ..all }).await > 0.1, "without intervals");
        assert!(lost(all).await <= 1e-9);
        assert!(
            lost(Safeguards { want: false, ..all }).await > 0.1,
            "without requesting missing positions"
        );
        // A requested node publishes wiped messages again, so both safeguards are tested
        // separately.
        let alone = Safeguards { want: false, ..all };
        assert!(wiped(alone).await <= 1e-9);
        assert!(wiped(Safeguards { rewind: false, ..alone }).await > 0.1, "with a cursor alone");
        assert!(!published_unsynced(all).await);
        assert!(
            published_unsynced(Safeguards { sync: false, ..all }).await,
            "without waiting for a sync"
        );
        assert!(ahead(all).await <= 1e-9);
        assert!(
            ahead(Safeguards { withhold: false, ..all }).await > 0.1,
            "without withholding future times"
        );
        assert!(startled(all).await <= 1e-9);
        assert!(
            startled(Safeguards { late: false, ..all }).await > 0.1,
            "with late attempts as the last ones"
        );
    });
}
