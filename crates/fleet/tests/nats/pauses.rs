//! Pauses and trials over real brokers: a pause of one node applies to all, and one node makes the
//! trial.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fetchwise::time::{Clock, Timestamp};
use fetchwise::visit::{Fetch, VisitOutcome};
use fetchwise_fleet::model::node_id::NodeId;
use fetchwise_fleet::transport::nats::{Nats, NatsSettings};
use fetchwise_fleet::transport::{
    Blobs, Cell, Cells, Change, Delivery, Position, RetransmitRequest, StreamBounds, SwapOutcome,
    Table, Transport, TransportError,
};
use fetchwise_testsite::poll::until;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;

use crate::cluster_faults::times;
use crate::common::visits::{LONG, Own, PAUSE, Sharer, be_blocked, ends, goes, sharer, visit};
use crate::servers::{self, Servers};

async fn connect(servers: &Servers) -> Nats {
    let nats = Nats::connect(NatsSettings::new(servers.urls(), "test")).await.unwrap();
    nats.ready(LONG).await.unwrap();
    nats
}

async fn node(servers: &Servers, clock: &Arc<Clock>, egress: &str) -> Sharer {
    sharer(Arc::new(connect(servers).await), NodeId::random(), clock, egress)
}

/// Waits until `node` has heard everything that was stored before: a pause of another node of its
/// group.
async fn has_heard_all(node: &Sharer, other: &Sharer) {
    (0..3).for_each(|page| be_blocked(other, "last.example", page));
    until("the last pause", || node.selector.host_pause("last.example").is_some()).await;
}

/// A clock that runs normally and can be set ahead. Nodes use it to decide that a broker is gone.
struct Going {
    clock: Arc<Clock>,
    ahead_ms: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Going {
    fn start() -> Self {
        let going = Self {
            clock: Arc::new(Clock::fixed(Timestamp::now())),
            ahead_ms: Arc::default(),
            is_over: Arc::default(),
        };
        let (clock, ahead) = (Arc::clone(&going.clock), Arc::clone(&going.ahead_ms));
        let is_over = Arc::clone(&going.is_over);
        std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                clock.set(
                    Timestamp::now()
                        .saturating_add(Duration::from_millis(ahead.load(Ordering::Relaxed))),
                );
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        going
    }

    /// Sets the clock ahead, and returns once it is.
    async fn set_ahead(&self, by: Duration) {
        let then = self.clock.now().saturating_add(by);
        self.ahead_ms.fetch_add(u64::try_from(by.as_millis()).unwrap(), Ordering::Relaxed);
        until("the clock goes", || self.clock.now() >= then).await;
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Brokers whose clock runs with that of the nodes: the times at which cells were stored are
/// shifted.
struct ShiftedNats {
    nats: Nats,
    ahead_ms: Arc<AtomicU64>,
}

impl ShiftedNats {
    fn shift(&self, cell: Cell) -> Cell {
        Cell {
            at: cell
                .at
                .saturating_add(Duration::from_millis(self.ahead_ms.load(Ordering::Relaxed))),
            ..cell
        }
    }
}

impl Cells for ShiftedNats {
    fn get<'a>(
        &'a self,
        table: Table,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Cell>, TransportError>> {
        Box::pin(async move {
            Ok(self.nats.cells().get(table, key).await?.map(|cell| self.shift(cell)))
        })
    }

    fn swap<'a>(
        &'a self,
        table: Table,
        key: &'a str,
        seen: Option<u64>,
        value: Bytes,
    ) -> BoxFuture<'a, Result<SwapOutcome, TransportError>> {
        self.nats.cells().swap(table, key, seen, value)
    }

    fn put<'a>(
        &'a self,
        table: Table,
        key: &'a str,
        value: Bytes,
    ) -> BoxFuture<'a, Result<u64, TransportError>> {
        self.nats.cells().put(table, key, value)
    }

    fn delete<'a>(
        &'a self,
        table: Table,
        key: &'a str,
        seen: Option<u64>,
    ) -> BoxFuture<'a, Result<SwapOutcome, TransportError>> {
        self.nats.cells().delete(table, key, seen)
    }

    fn watch(&self, table: Table) -> BoxStream<'_, Result<Change, TransportError>> {
        let shift =
            |change: Change| Change { cell: change.cell.map(|cell| self.shift(cell)), ..change };
        Box::pin(self.nats.cells().watch(table).map(move |change| change.map(shift)))
    }

    fn list(&self, table: Table) -> BoxFuture<'_, Result<Vec<(String, Cell)>, TransportError>> {
        let shift = |(key, cell)| (key, self.shift(cell));
        Box::pin(async move {
            Ok(self.nats.cells().list(table).await?.into_iter().map(shift).collect())
        })
    }

    fn incarnation(&self, table: Table) -> BoxFuture<'_, Result<Option<u64>, TransportError>> {
        self.nats.cells().incarnation(table)
    }
}

impl Transport for ShiftedNats {
    fn publish<'a>(
        &'a self,
        node_id: NodeId,
        id: &'a str,
        body: Bytes,
    ) -> BoxFuture<'a, Result<Position, TransportError>> {
        self.nats.publish(node_id, id, body)
    }

    fn read(&self, from: Position) -> BoxStream<'_, Result<Delivery, TransportError>> {
        self.nats.read(from)
    }

    fn bounds(&self) -> BoxFuture<'_, Result<StreamBounds, TransportError>> {
        self.nats.bounds()
    }

    fn cells(&self) -> &dyn Cells {
        self
    }

    fn blobs(&self) -> &dyn Blobs {
        self.nats.blobs()
    }

    fn signal(
        &self,
        to: NodeId,
        want: RetransmitRequest,
    ) -> BoxFuture<'_, Result<(), TransportError>> {
        self.nats.signal(to, want)
    }

    fn signals(&self, own: NodeId) -> BoxStream<'_, Result<RetransmitRequest, TransportError>> {
        self.nats.signals(own)
    }

    fn is_up(&self) -> bool {
        self.nats.is_up()
    }
}

fn percentile(sorted: &[Duration], part: usize) -> Duration {
    sorted[(sorted.len() * part / 100).min(sorted.len() - 1)]
}

/// Runs 8 nodes and `hosts` hosts: each host is paused by one node and tried by one.
async fn one_trial_each(mut servers: Servers, hosts: usize, kills: &[usize]) {
    let going = Going::start();
    let mut nodes = Vec::new();
    for _ in 0..8 {
        let nats = connect(&servers).await;
        let shifted = ShiftedNats { nats, ahead_ms: Arc::clone(&going.ahead_ms) };
        nodes.push(sharer(Arc::new(shifted), NodeId::random(), &going.clock, ""));
    }
    let names: Vec<String> = (0..hosts).map(|n| format!("h{n}.example")).collect();
    let mut delays = Vec::new();
    for (n, host) in names.iter().enumerate() {
        (0..3).for_each(|page| be_blocked(&nodes[n % 8], host, page));
        let told = Instant::now();
        until("a pause at all nodes", || {
            nodes.iter().all(|node| node.selector.host_pause(host).is_some())
        })
        .await;
        delays.push(told.elapsed());
    }
    delays.sort_unstable();
    println!(
        "paused at all 8 nodes: p50 {:?}, p99 {:?}",
        percentile(&delays, 50),
        percentile(&delays, 99)
    );
    kills.iter().for_each(|broker| servers.kill(*broker));
    // All at once, when the pause ends.
    going.set_ahead(PAUSE).await;
    let mut winners = all_tried_out(&nodes, &names).await;
    let counts: Vec<_> = nodes.iter().map(|node| node.hosts.counts()).collect();
    assert_eq!(counts.iter().map(|counts| counts.trials).sum::<u64>(), hosts as u64, "{counts:?}");
    assert_eq!(counts.iter().map(|counts| counts.own_trials).sum::<u64>(), 0, "{counts:?}");
    // Half of them are fine again, and the others are not.
    for (n, host) in names.iter().enumerate() {
        let (_, mut visit, fetch) = winners.remove(host).unwrap();
        ends(&mut visit, fetch, n % 2 == 0).await;
    }
    until("the end of the trials at all nodes", || {
        let settled =
            |host: &String, is_fine: bool, node: &Sharer| match node.selector.host_pause(host) {
                None => is_fine,
                Some(until) => !is_fine && until > going.clock.now(),
            };
        nodes
            .iter()
            .all(|node| names.iter().enumerate().all(|(n, host)| settled(host, n % 2 == 0, node)))
    })
    .await;
}

/// Makes every node visit every host until each host is being tried, and checks that only one node
/// tries it. Returns the node and its trial by host.
async fn all_tried_out(
    nodes: &[Sharer],
    names: &[String],
) -> BTreeMap<String, (usize, Own, Fetch<Arc<fetchwise::Selector>>)> {
    let (mut winners, mut rounds) = (BTreeMap::<String, (usize, Own, Fetch<_>)>::new(), 0);
    while winners.len() < names.len() {
        rounds += 1;
        assert!(rounds < 300, "only {} of {} hosts were tried", winners.len(), names.len());
        let mut coming = Vec::new();
        for (number, node) in nodes.iter().enumerate() {
            // A node would wait for the end of a trial that it makes itself.
            let has_it = |host: &&String| winners.get(*host).is_some_and(|(by, ..)| *by == number);
            for host in names.iter().filter(|host| !has_it(host)) {
                let (mut visit, host) = (visit(node, host, 99), host.clone());
                coming.push(tokio::spawn(async move {
                    let gone = goes(&mut visit).await;
                    (host, number, visit, gone)
                }));
            }
        }
        for end in coming {
            let (host, number, visit, gone) = end.await.unwrap();
            match gone {
                Ok(fetch) => {
                    let before = winners.insert(host.clone(), (number, visit, fetch));
                    assert!(before.is_none(), "two nodes try {host}");
                }
                Err(end) => assert!(matches!(end, VisitOutcome::Paused { .. }), "{end:?}"),
            }
        }
        // Brokers that elect a leader do not respond for a moment. A node without a response asks
        // again.
        if winners.len() < names.len() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
    winners
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_eight_nodes_tries_a_host() {
    if !servers::is_available() {
        return;
    }
    one_trial_each(Servers::start(3), 200, &[]).await;
}

/// A majority of the brokers is left.
#[tokio::test(flavor = "multi_thread")]
async fn row_17_a_broker_that_is_killed_when_pauses_end_makes_no_second_trial() {
    if !servers::is_available() {
        return;
    }
    for round in 0..times(1, 3, 60) {
        one_trial_each(Servers::start(3), times(40, 200, 200), &[round % 3]).await;
    }
}

/// Part of row 12.
#[tokio::test(flavor = "multi_thread")]
async fn row_12_a_clock_that_is_wrong_makes_no_pause_longer() {
    if !servers::is_available() {
        return;
    }
    let servers = Servers::start(3);
    let hour = Duration::from_secs(3600);
    let right = Arc::new(Clock::fixed(Timestamp::now()));
    let ahead = Arc::new(Clock::fixed(Timestamp::now().saturating_add(hour)));
    let behind =
        Arc::new(Clock::fixed(Timestamp::from_millis(Timestamp::now().as_millis() - 3_600_000)));
    let (b, c) = (node(&servers, &right, "").await, node(&servers, &right, "").await);
    for (n, clock) in [ahead, behind].iter().enumerate() {
        let (a, host) = (node(&servers, clock, "").await, format!("h{n}.example"));
        (0..3).for_each(|page| be_blocked(&a, &host, page));
        let meant = a.selector.host_pause(&host).unwrap().since(clock.now());
        until("the pause is stored", || a.hosts.counts().sent == 1).await;
        // A pause that is over by every clock but its writer's has no effect.
        if n == 0 {
            until("a pause at the other", || b.selector.host_pause(&host).is_some()).await;
        } else {
            has_heard_all(&b, &c).await;
        }
        let latest = Timestamp::now().saturating_add(meant);
        assert!(
            b.selector.host_pause(&host).is_none_or(|until| until <= latest),
            "no longer than it was meant"
        );
        a.hosts.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_at_three_nodes_pause_a_host_everywhere() {
    if !servers::is_available() {
        return;
    }
    let servers = Servers::start(1);
    let clock = Arc::new(Clock::fixed(Timestamp::now()));
    let (a, b) = (node(&servers, &clock, "").await, node(&servers, &clock, "").await);
    let (elsewhere, there) =
        (node(&servers, &clock, "eu").await, node(&servers, &clock, "eu").await);
    be_blocked(&a, "e.org", 1);
    assert_eq!(a.selector.observe_remote_block("e.org", 7, clock.now(), clock.now()), None);
    let long_ago = Timestamp::from_millis(clock.now().as_millis() - 700_000);
    assert_eq!(
        a.selector.observe_remote_block("e.org", 9, long_ago, clock.now()),
        None,
        "what is long past does not count"
    );
    assert!(a.selector.observe_remote_block("e.org", 8, clock.now(), clock.now()).is_some());
    until("a pause at the other", || b.selector.host_pause("e.org").is_some()).await;
    assert_eq!(b.selector.host_pause("e.org"), a.selector.host_pause("e.org"));
    has_heard_all(&elsewhere, &there).await;
    assert_eq!(
        elsewhere.selector.host_pause("e.org"),
        None,
        "other egress groups are not affected"
    );
    // An operator lifts it at the node that set it.
    a.selector.unpause_host("e.org", clock.now()).unwrap();
    until("the lifted pause at the other", || b.selector.host_pause("e.org").is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_broker_each_node_tries_a_host_once_and_reports_later() {
    if !servers::is_available() {
        return;
    }
    let mut servers = Servers::start(1);
    let clock = Arc::new(Clock::fixed(Timestamp::now()));
    let links = [Arc::new(connect(&servers).await), Arc::new(connect(&servers).await)];
    let [a, b] = links.each_ref().map(|link| {
        let transport: Arc<dyn Transport> = Arc::clone(link) as Arc<dyn Transport>;
        sharer(transport, NodeId::random(), &clock, "")
    });
    (0..3).for_each(|page| be_blocked(&a, "e.org", page));
    until("a pause at the other", || b.selector.host_pause("e.org").is_some()).await;
    // Its own statement, too.
    has_heard_all(&a, &b).await;
    servers.kill(0);
    until("both have noticed it", || links.iter().all(|link| !link.is_up())).await;
    clock.set(clock.now().saturating_add(PAUSE));
    // No node goes at once, unless its random time is now. Each goes once within the minute after
    // it has noticed that there is no response, and not again.
    let (mut gone, mut after) = ([0, 0], 0);
    for _ in 0..600 {
        for (n, node) in [&a, &b].into_iter().enumerate() {
            if let Ok(fetch) = goes(&mut visit(node, "e.org", 50)).await {
                gone[n] += 1;
                // The trial has no outcome: the fetch is dropped.
                drop(fetch);
            }
        }
        clock.set(clock.now().saturating_add(Duration::from_secs(1)));
        after += u32::from(gone.iter().all(|times| *times > 0));
        if after == 70 {
            break;
        }
    }
    assert_eq!(gone, [1, 1]);
    assert_eq!((a.hosts.counts().own_trials, b.hosts.counts().own_trials), (1, 1));
    // A pause set meanwhile reaches the other node when the broker is back. It counts from the
    // broker's time of storing it.
    clock.set(Timestamp::now());
    (0..3).for_each(|page| be_blocked(&a, "f.org", page));
    assert!(a.selector.host_pause("f.org").is_some());
    servers.revive(0);
    until("the pause at the other", || b.selector.host_pause("f.org").is_some()).await;
}
