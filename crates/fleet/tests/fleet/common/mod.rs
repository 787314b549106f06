//! Nodes over the in-process broker, synthetic attempts, and the naive fold that every result is
//! compared with.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test uses a part of it; an error fails the test"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::attempt::{Attempt, Tag};
use fetchwise::evidence::{EvidenceSnapshot, RemoteAttempt};
use fetchwise::heuristic::Heuristic;
use fetchwise::journal::{self, Durability, Entry, Journal, JournalOptions};
use fetchwise::selector::Selector;
use fetchwise::time::{Clock, Timestamp};
use fetchwise_fleet::transport::in_process::{InProcessBroker, InProcessNode};
use fetchwise_fleet::{Fleet, FleetError, FleetStatus, NodeId, Options, Timing};

pub(crate) mod links;
pub(crate) mod visits;

/// The time at which all tests run.
pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// The time after which nodes that have not settled never will, by a paused clock.
const PATIENCE: Duration = Duration::from_secs(300);
const SETTLE_CHECK: Duration = Duration::from_millis(40);
/// The number of checks in a row that find nothing under way.
const CALM_CHECKS: usize = 6;

/// A reproducible pseudo-random number generator (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct TestRng(pub(crate) u64);

impl TestRng {
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.draw() % n.max(1)
    }
}

/// A synthetic attempt, `ms` after the beginning.
pub(crate) fn attempt(rng: &mut TestRng, sites: u64, ms: i64) -> Attempt {
    let site = rng.below(sites).min(rng.below(sites));
    let host = ["", "www.", "shop."][rng.below(3) as usize];
    let path =
        ["", "a", "news/2026/x", "static/p.png", "d/report.pdf", "api/v1"][rng.below(6) as usize];
    let url =
        url::Url::parse(&format!("https://{host}site{site}.example/{path}?p={}", rng.below(50)))
            .unwrap();
    let fetcher = ["direct_access", "playwright", "wayback"][rng.below(3) as usize];
    let at = Timestamp::from_millis(NOW.as_millis() + ms);
    let mut attempt = Attempt::new(&url, fetcher, at).unwrap();
    attempt.duration_ms = rng.below(4000);
    attempt = match rng.below(10) {
        0..6 => attempt.delivered(),
        6 => attempt.failed(ErrorKind::BlockedCaptcha),
        7 => attempt.failed(ErrorKind::Timeout),
        8 => attempt.failed(ErrorKind::EmptyContent),
        _ => attempt.failed(ErrorKind::NotFound),
    };
    if attempt.is_banned {
        attempt.heuristics.push(Tag::from(Heuristic::new("block_datadome", "true".to_owned())));
    }
    attempt
}

/// Calls `f` with an attempt in the form that other nodes learn from.
pub(crate) fn with_fact(attempt: &Attempt, like: &Selector, f: impl FnOnce(&RemoteAttempt<'_>)) {
    let heuristics: Vec<(&str, &str)> = attempt
        .heuristics
        .iter()
        .map(|tag| (&*tag.heuristic.kind, &*tag.heuristic.value))
        .collect();
    f(&RemoteAttempt {
        at: attempt.attempted_at,
        fetcher: &attempt.fetcher,
        weight: attempt.weight.min(1.0),
        success: attempt.success,
        is_banned: attempt.is_banned,
        duration_ms: attempt.duration_ms,
        hint: attempt.hint,
        is_file: like.learned().is_file(&attempt.url),
        heuristics: &heuristics,
    });
}

/// All intervals a hundred times shorter than the defaults, by a paused clock. A real broker needs
/// longer ones.
pub(crate) fn quick() -> Timing {
    let mut timing = Timing::default();
    timing.batch = Duration::from_millis(15);
    timing.urgent = Duration::from_millis(5);
    timing.heartbeat = Duration::from_millis(60);
    timing.lease = Duration::from_millis(900);
    timing.gap = Duration::from_millis(60);
    timing.max_request_interval = Duration::from_millis(400);
    timing.silence = Duration::from_millis(100);
    timing.check = Duration::from_millis(30);
    timing.tables = Duration::from_millis(30);
    timing
}

pub(crate) fn options() -> Options {
    let mut options = Options::default();
    options.timing = quick();
    options
}

/// Returns a clock that goes with tokio's, paused or not.
pub(crate) fn tokio_clock() -> Arc<Clock> {
    let (clock, begun) = (Arc::new(Clock::fixed(NOW)), tokio::time::Instant::now());
    let going = Arc::downgrade(&clock);
    tokio::spawn(async move {
        while let Some(clock) = going.upgrade() {
            clock.set(NOW.saturating_add(begun.elapsed()));
            drop(clock);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    clock
}

pub(crate) fn selector(clock: &Arc<Clock>) -> Selector {
    Selector::builder().around(NOW).clock(Arc::clone(clock)).build().unwrap()
}

/// A node: a directory, and a process that can be ended and started again.
pub(crate) struct Node {
    pub(crate) dir: PathBuf,
    pub(crate) broker: Arc<InProcessBroker>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) max_keys: Option<usize>,
    pub(crate) running: Option<Running>,
}

pub(crate) struct Running {
    pub(crate) selector: Arc<Selector>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) fleet: Fleet,
}

impl Node {
    pub(crate) fn new(dir: PathBuf, broker: &Arc<InProcessBroker>, clock: &Arc<Clock>) -> Self {
        std::fs::create_dir_all(&dir).unwrap();
        Self {
            dir,
            broker: Arc::clone(broker),
            clock: Arc::clone(clock),
            max_keys: None,
            running: None,
        }
    }

    pub(crate) async fn start(&mut self, options: Options) -> Result<(), FleetError> {
        let (journal, _) =
            Journal::open(&self.dir, JournalOptions::default().durability(Durability::Os)).unwrap();
        let builder =
            Selector::builder().around(NOW).clock(Arc::clone(&self.clock)).max_keys(self.max_keys);
        let selector = Arc::new(builder.build().unwrap());
        journal::load(&self.dir, &selector, NOW).unwrap();
        let journal = Arc::new(journal);
        let hands: Arc<InProcessNode> = Arc::new(self.broker.node(self.name()));
        let fleet =
            Fleet::join(Arc::clone(&journal), Arc::clone(&selector), hands, options).await?;
        self.running = Some(Running { selector, journal, fleet });
        Ok(())
    }

    /// Returns the node's id, which is created if it has none.
    pub(crate) fn name(&self) -> NodeId {
        use fetchwise_fleet::peer_store::own_state_file::NodeState;
        match NodeState::load(&self.dir).unwrap() {
            Some(state) => state.node_id,
            None => {
                let state = NodeState::new(NodeId::random());
                state.save(&self.dir).unwrap();
                state.node_id
            }
        }
    }

    pub(crate) fn up(&self) -> &Running {
        self.running.as_ref().unwrap()
    }

    pub(crate) fn record(&self, attempt: &Attempt) {
        let up = self.up();
        up.selector.observe(attempt);
        up.journal.append_attempt(attempt).unwrap();
    }

    /// Ends it without a last heartbeat, like a crash.
    pub(crate) async fn crash(&mut self) {
        if let Some(running) = self.running.take() {
            let Running { fleet, journal, selector } = running;
            fleet.crash().await;
            drop(selector);
            // The writer has ended once nothing holds the journal.
            drop(Arc::try_unwrap(journal).map(Journal::close));
        }
    }

    pub(crate) fn evidence(&self) -> EvidenceSnapshot {
        self.up().selector.learned().evidence_snapshot(NOW, 0.0)
    }
}

/// Folds all attempts of these logs one by one; `counts` selects them.
pub(crate) fn naive(
    dirs: &[&Path],
    clock: &Arc<Clock>,
    counts: impl Fn(&Path, &Attempt) -> bool,
) -> EvidenceSnapshot {
    let oracle = selector(clock);
    for dir in dirs {
        journal::replay(dir, |_, entry| {
            if let Entry::Attempt(attempt) = entry
                && counts(dir, &attempt)
            {
                oracle.observe(&attempt);
            }
        })
        .unwrap();
    }
    oracle.learned().evidence_snapshot(NOW, 0.0)
}

/// Waits until a log has synced everything. A paused clock stands still meanwhile.
pub(crate) async fn flush(journal: &Journal) {
    let flushed = journal.flush();
    tokio::task::spawn_blocking(move || flushed.wait()).await.unwrap().unwrap();
}

/// Waits until all nodes have everything that the others have published. Needs a paused clock.
pub(crate) async fn settle(nodes: &[Node]) {
    for node in nodes.iter().filter(|node| node.running.is_some()) {
        flush(&node.up().journal).await;
    }
    let mut calm = 0;
    for _ in 0..PATIENCE.as_millis() / SETTLE_CHECK.as_millis() {
        tokio::time::sleep(SETTLE_CHECK).await;
        let all = statuses(nodes);
        let tops: Vec<(String, u64)> =
            all.iter().map(|status| (status.node.clone(), status.published)).collect();
        let knows = |status: &FleetStatus| {
            tops.iter().all(|(node_id, top)| {
                *node_id == status.node
                    || *top == 0
                    || status
                        .peers
                        .iter()
                        .any(|p| p.node == *node_id && (p.position >= *top || p.excluded))
            })
        };
        let is_calm = all.iter().all(|status| status.converged && knows(status));
        calm = if is_calm { calm + 1 } else { 0 };
        if calm == CALM_CHECKS {
            return;
        }
    }
    panic!("not converged: {:#?}", statuses(nodes));
}

fn statuses(nodes: &[Node]) -> Vec<FleetStatus> {
    nodes.iter().filter_map(|node| node.running.as_ref()).map(|up| up.fleet.status()).collect()
}

/// Asserts that two evidences are equal to 1e-9.
pub(crate) fn assert_same(what: &str, found: &EvidenceSnapshot, expected: &EvidenceSnapshot) {
    let (far, key) = found.distance(expected);
    assert!(
        far <= 1e-9,
        "{what}: {far} apart at {key:x} ({} keys, expected {})",
        found.keys(),
        expected.keys()
    );
    assert!(expected.weight() > 0.0, "{what}: there is nothing to compare");
}
