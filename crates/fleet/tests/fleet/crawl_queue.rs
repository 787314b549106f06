//! Work queues over the in-process broker: each site at one node at a time, and each link at least
//! once, although nodes die and are cut off.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use fetchwise::time::Clock;
use fetchwise_fleet::model::heartbeat::Heartbeat;
use fetchwise_fleet::model::lease_proof::LeaseProof;
use fetchwise_fleet::model::rendezvous::owner;
use fetchwise_fleet::queue::{
    QueueEvent, QueueLink, QueueNode, QueueOptions, QueueReader, inspect,
};
use fetchwise_fleet::transport::in_process::{InProcessBroker, SiteCall};
use fetchwise_fleet::transport::{Table, Transport, TransportError};
use fetchwise_fleet::{NodeId, Options};
use fetchwise_testsite::poll::until;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::common::visits::{Heartbeats, LONG};
use crate::common::{Node, options, tokio_clock};

const QUEUE: &str = "crawl";

/// What all nodes have done.
#[derive(Default)]
struct Written {
    /// For each link, whether each of its results is marked.
    results: BTreeMap<u64, Vec<bool>>,
    /// The node that works on a site.
    busy: BTreeMap<String, usize>,
    /// Sites on which two nodes worked at the same time.
    shared: BTreeSet<String>,
    /// The number of results of each node and site.
    by_site: BTreeMap<(usize, String), usize>,
    /// The sites that each node has worked on since this was last cleared.
    sites: BTreeMap<usize, BTreeSet<String>>,
    /// The number of results that each node may write for each site; missing is any number. Tests
    /// stop a crawl with it, so that it does not end before they have done their part. A limit of
    /// nodes alone would let one of them finish the few sites that it gets first.
    site_limit: BTreeMap<usize, usize>,
}

impl Written {
    fn may_write(&self, number: usize, site: &str) -> bool {
        let count = self.by_site.get(&(number, site.to_owned())).unwrap_or(&0);
        self.site_limit.get(&number).is_none_or(|limit| count < limit)
    }

    fn write(&mut self, number: usize, site: &str, link: &QueueLink) {
        if self.busy.insert(site.to_owned(), number).is_some_and(|other| other != number) {
            self.shared.insert(site.to_owned());
        }
        self.results.entry(link.seq).or_default().push(link.is_redelivered);
        *self.by_site.entry((number, site.to_owned())).or_default() += 1;
        self.sites.entry(number).or_default().insert(site.to_owned());
    }
}

/// A broker, and the place of the nodes.
struct World {
    broker: Arc<InProcessBroker>,
    clock: Arc<Clock>,
    dir: tempfile::TempDir,
    written: Arc<Mutex<Written>>,
}

impl World {
    fn new(seed: u64) -> Self {
        let clock = tokio_clock();
        let broker = InProcessBroker::new(Arc::clone(&clock), seed);
        Self { broker, clock, dir: tempfile::tempdir().unwrap(), written: Arc::default() }
    }
}

/// A node whose crawl takes a moment for each link of a site, one after the other.
struct Worker {
    node: Node,
    crawl: JoinHandle<()>,
}

fn queue_options() -> Options {
    let mut options = options();
    options.queue = QUEUE.to_owned();
    // Longer than the interval at which nodes are listed.
    (options.timing.heartbeat, options.timing.lease) =
        (Duration::from_millis(200), Duration::from_secs(6));
    options
}

impl Worker {
    async fn start(number: usize, world: &World) -> Self {
        let World { broker, clock, dir, written } = world;
        let mut node = Node::new(dir.path().join(number.to_string()), broker, clock);
        node.start(queue_options()).await.unwrap();
        let up = node.up();
        let transport: Arc<dyn Transport> = Arc::new(broker.node(up.fleet.node_id()));
        // Room for all sites, although the test stops some of them.
        let options = QueueOptions {
            queue: QUEUE.to_owned(),
            max_links: 300,
            max_sites: 30,
            max_site_links: 8,
        };
        let (selector, lease) = (Arc::clone(&up.selector), up.fleet.lease());
        let reader = QueueReader::start(transport, selector, up.fleet.node_id(), lease, options);
        let crawl = tokio::spawn(crawl(reader, number, Arc::clone(written)));
        Self { node, crawl }
    }

    /// Ends it without giving anything back.
    async fn crash(mut self, number: usize, written: &Mutex<Written>) {
        self.crawl.abort();
        let _ = self.crawl.await;
        self.node.crash().await;
        written.lock().unwrap().busy.retain(|_, by| *by != number);
    }
}

async fn crawl(mut reader: QueueReader, number: usize, written: Arc<Mutex<Written>>) {
    let mut waiting: BTreeMap<Arc<str>, Vec<QueueLink>> = BTreeMap::new();
    loop {
        while let Some(event) = reader.try_next() {
            match event {
                QueueEvent::Links(site, links) => waiting.entry(site).or_default().extend(links),
                QueueEvent::Withdrawn(site) | QueueEvent::Revoked(site) => {
                    let dropped = waiting.remove(&site).unwrap_or_default();
                    dropped.iter().for_each(|link| reader.dropped(&site, link));
                }
                QueueEvent::Drained { .. } => return reader.stop().await,
                QueueEvent::Failed(error) => panic!("{error}"),
            }
        }
        for (site, links) in &mut waiting {
            let mut all = written.lock().unwrap();
            if all.may_write(number, site)
                && let Some(link) = links.pop()
            {
                all.write(number, site, &link);
                reader.written(site, &link);
            }
        }
        // Meanwhile the requests of this round are open.
        tokio::time::sleep(Duration::from_millis(5)).await;
        written.lock().unwrap().busy.retain(|_, by| *by != number);
    }
}

async fn fill(broker: &Arc<InProcessBroker>, links: usize) {
    let operator = broker.node(fetchwise_fleet::NodeId::random());
    let queues = operator.work_queues().unwrap();
    queues.ensure(QUEUE).await.unwrap();
    for n in 0..links {
        let (site, id) = (format!("site{}.example", n % 30), n.to_string());
        assert!(queues.enqueue(QUEUE, &site, &id, Bytes::from(id.clone())).await.unwrap());
        assert!(
            !queues.enqueue(QUEUE, &site, &id, Bytes::from(id.clone())).await.unwrap(),
            "a duplicate"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn every_link_has_a_result_although_nodes_die_and_are_cut_off() {
    const SITES: usize = 30;
    const LINKS: usize = 80 * SITES;
    let world = World::new(1);
    let World { broker, written, .. } = &world;
    fill(broker, LINKS).await;
    // Each site has more links than all limits together.
    written.lock().unwrap().site_limit = BTreeMap::from([(0, 10), (1, 10), (2, 10)]);
    let mut workers = Vec::new();
    for number in 0..3 {
        workers.push(Worker::start(number, &world).await);
    }
    until("all nodes work", || written.lock().unwrap().sites.len() == 3).await;
    workers.remove(0).crash(0, written).await;
    let cut = workers[0].node.name();
    broker.cut(cut, true);
    {
        let mut all = written.lock().unwrap();
        all.site_limit.insert(2, 40);
        all.sites.clear();
    }
    let alone = || written.lock().unwrap().sites.get(&2).map_or(0, BTreeSet::len);
    until("the third one has the sites of all", || alone() == SITES).await;
    broker.cut(cut, false);
    written.lock().unwrap().site_limit.clear();
    until("all are done", || workers.iter().all(|worker| worker.crawl.is_finished())).await;
    let all = written.lock().unwrap();
    assert_eq!(all.results.len(), LINKS);
    assert_eq!(all.shared, BTreeSet::new(), "two nodes worked on a site");
    for (seq, marks) in all.results.iter().filter(|(_, marks)| marks.len() > 1) {
        assert_eq!(marks.iter().filter(|is_marked| !**is_marked).count(), 1, "{seq}: {marks:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_joins_late_gets_its_sites() {
    let world = World::new(2);
    let written = &world.written;
    fill(&world.broker, 3_000).await;
    written.lock().unwrap().site_limit.insert(0, 30);
    let first = Worker::start(0, &world).await;
    until("the first one works", || written.lock().unwrap().sites.contains_key(&0)).await;
    let second = Worker::start(1, &world).await;
    until("the second one works, too", || written.lock().unwrap().sites.contains_key(&1)).await;
    first.crawl.abort();
    second.crawl.abort();
    let all = written.lock().unwrap();
    assert_eq!(all.shared, BTreeSet::new());
    let is_fine = |marks: &Vec<bool>| marks.iter().filter(|is_marked| !**is_marked).count() == 1;
    assert!(all.results.values().all(is_fine), "given back, not lost");
}

/// A node whose lease the test controls. Its heartbeats never stop.
struct ManualNode {
    id: NodeId,
    transport: Arc<dyn Transport>,
    proofs: watch::Sender<Option<LeaseProof>>,
    reader: QueueReader,
    _heartbeats: Heartbeats,
}

/// The lease of such a node, as other nodes see it. Its own proofs last as long as the test wants.
const MANUAL_LEASE: Duration = Duration::from_secs(3);

impl ManualNode {
    fn start(broker: &Arc<InProcessBroker>) -> Self {
        let id = NodeId::random();
        let transport: Arc<dyn Transport> = Arc::new(broker.node(id));
        let proofs = watch::Sender::new(None);
        // Room for all sites, although the test stops some of them.
        let options = QueueOptions {
            queue: QUEUE.to_owned(),
            max_links: 300,
            max_sites: 30,
            max_site_links: 8,
        };
        let selector = Arc::new(fetchwise::Selector::builder().build().unwrap());
        let lease = (proofs.subscribe(), MANUAL_LEASE);
        let reader = QueueReader::start(Arc::clone(&transport), selector, id, lease, options);
        let beat =
            Heartbeat { holder: id.to_string(), queue: QUEUE.to_owned(), ..Heartbeat::default() };
        let heartbeats = Heartbeats::start(Arc::clone(&transport), id, beat);
        let node = Self { id, transport, proofs, reader, _heartbeats: heartbeats };
        node.renew();
        node
    }

    fn renew(&self) {
        let sent = Instant::now() + Duration::from_secs(86_400);
        self.proofs.send_replace(Some(LeaseProof { holder: self.id.to_string(), sent }));
    }

    async fn event(&mut self) -> QueueEvent {
        tokio::time::timeout(LONG, self.reader.next()).await.unwrap().unwrap()
    }

    /// Returns the next links of a site.
    async fn links(&mut self, wanted: &str) -> (Arc<str>, Vec<QueueLink>) {
        loop {
            match self.event().await {
                QueueEvent::Links(site, links) if &*site == wanted => return (site, links),
                _ => {}
            }
        }
    }

    /// Waits until these sites are here.
    async fn all_links(&mut self, mut wanted: BTreeSet<String>) {
        while !wanted.is_empty() {
            if let QueueEvent::Links(site, _) = self.event().await {
                wanted.remove(&*site);
            }
        }
    }

    /// Ends the lease and begins it again, before another node has noticed anything.
    async fn stumble(&mut self, mut sites: BTreeSet<String>) {
        self.proofs.send_replace(None);
        while !sites.is_empty() {
            if let QueueEvent::Revoked(site) = self.event().await {
                sites.remove(&*site);
            }
        }
        self.renew();
    }
}

async fn enqueue(broker: &Arc<InProcessBroker>, site: &str, id: &str) {
    let operator = broker.node(NodeId::random());
    let queues = operator.work_queues().unwrap();
    queues.ensure(QUEUE).await.unwrap();
    assert!(queues.enqueue(QUEUE, site, id, Bytes::from(id.to_owned())).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_site_that_is_another_nodes_is_free_after_its_holder_has_lost_its_lease_for_a_moment() {
    let broker = InProcessBroker::new(tokio_clock(), 4);
    fill(&broker, 300).await;
    let all: BTreeSet<String> = (0..30).map(|n| format!("site{n}.example")).collect();
    let mut first = ManualNode::start(&broker);
    first.all_links(all.clone()).await;
    let mut second = ManualNode::start(&broker);
    let nodes = [first.id, second.id];
    let moving: BTreeSet<String> =
        all.iter().filter(|site| owner(site, &nodes) == Some(second.id)).cloned().collect();
    let mut left = moving.clone();
    while !left.is_empty() {
        if let QueueEvent::Withdrawn(site) = first.event().await {
            left.remove(&*site);
        }
    }
    // Its requests to these sites are still open.
    first.stumble(all).await;
    second.all_links(moving).await;
}

#[tokio::test(start_paused = true)]
async fn a_link_of_an_earlier_holding_does_not_end_the_present_one() {
    let broker = InProcessBroker::new(tokio_clock(), 5);
    enqueue(&broker, "a.example", "1").await;
    let mut node = ManualNode::start(&broker);
    let (old_site, old) = node.links("a.example").await;
    node.stumble(BTreeSet::from(["a.example".to_owned()])).await;
    let (site, links) = node.links("a.example").await;
    assert!(links[0].is_redelivered && links[0].seq == old[0].seq);
    node.reader.dropped(&old_site, &old[0]);
    // After the links of two further sites, an empty site would have been given back and taken
    // again.
    for other in ["b.example", "c.example"] {
        enqueue(&broker, other, other).await;
        let event = node.event().await;
        assert!(matches!(&event, QueueEvent::Links(site, _) if &**site == other), "{event:?}");
    }
    node.reader.written(&site, &links[0]);
    node.reader.stop().await;
    let queues = node.transport.work_queues().unwrap();
    assert_eq!(queues.content(QUEUE).await.unwrap().links, 2);
}

#[tokio::test(start_paused = true)]
async fn an_operator_sees_what_is_left_and_at_which_node() {
    let broker = InProcessBroker::new(tokio_clock(), 7);
    let operator = broker.node(NodeId::random());
    let look = || inspect(&operator, QUEUE, MANUAL_LEASE);
    assert!(matches!(look().await, Err(TransportError::NoQueue(_))));
    fill(&broker, 300).await;
    let seen = look().await.unwrap();
    assert_eq!((seen.left, seen.in_progress, seen.nodes), (300, 0, Vec::new()));
    assert!(seen.oldest_at.unwrap() <= seen.now.unwrap());
    let mut node = ManualNode::start(&broker);
    node.all_links((0..30).map(|n| format!("site{n}.example")).collect()).await;
    let seen = look().await.unwrap();
    let of = |is_present| QueueNode {
        node: node.id.to_string(),
        sites: 30,
        in_progress: seen.in_progress,
        is_present,
    };
    assert_eq!((seen.left, &seen.nodes), (300, &vec![of(true)]));
    assert!((30..=240).contains(&seen.in_progress), "{seen:?}");
    assert_eq!(node.reader.left(), Some(300), "the run itself knows it");
    let gone = of(false);
    drop(node);
    // Its lease is over then, by the clock of the test.
    tokio::time::sleep(MANUAL_LEASE * 2).await;
    assert_eq!(look().await.unwrap().nodes, [gone]);
    assert_eq!(operator.work_queues().unwrap().purge(QUEUE).await.unwrap(), 300);
    let seen = look().await.unwrap();
    assert_eq!((seen.left, seen.in_progress, seen.oldest_at), (0, 0, None));
}

#[tokio::test(start_paused = true)]
async fn a_reader_ends_although_the_broker_is_away() {
    let broker = InProcessBroker::new(tokio_clock(), 6);
    enqueue(&broker, "a.example", "1").await;
    let mut node = ManualNode::start(&broker);
    let (site, links) = node.links("a.example").await;
    broker.cut(node.id, true);
    node.reader.written(&site, &links[0]);
    tokio::time::timeout(LONG, node.reader.stop()).await.unwrap();
    broker.cut(node.id, false);
    let queues = node.transport.work_queues().unwrap();
    assert_eq!(
        queues.content(QUEUE).await.unwrap().links,
        1,
        "not acknowledged, so it comes again"
    );
}

/// The bug: a site was given back as soon as its links were acknowledged, while a cluster was still
/// removing them. Who opened the site next got them again as if they had no result. Here this is
/// the same node.
#[tokio::test(start_paused = true)]
async fn an_acknowledged_link_that_is_not_removed_comes_again_only_marked() {
    let broker = InProcessBroker::new(tokio_clock(), 7);
    enqueue(&broker, "a.example", "1").await;
    broker.hold_removals(true);
    let mut node = ManualNode::start(&broker);
    let (site, links) = node.links("a.example").await;
    assert!(!links[0].is_redelivered);
    node.reader.written(&site, &links[0]);
    let (site, again) = node.links("a.example").await;
    assert!(again[0].is_redelivered && again[0].seq == links[0].seq, "{again:?}");
    node.reader.written(&site, &again[0]);
    // Once it is removed, the queue is empty.
    broker.hold_removals(false);
    loop {
        match node.event().await {
            QueueEvent::Drained { .. } => break,
            QueueEvent::Links(_, links) => {
                assert!(links.iter().all(|link| link.is_redelivered), "{links:?}")
            }
            event => panic!("{event:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_site_is_given_back_once_what_is_acknowledged_is_removed() {
    let broker = InProcessBroker::new(tokio_clock(), 8);
    enqueue(&broker, "a.example", "1").await;
    broker.hold_removals(true);
    let mut node = ManualNode::start(&broker);
    let (site, links) = node.links("a.example").await;
    node.reader.written(&site, &links[0]);
    until("it is acknowledged", || broker.held_removals() == 1).await;
    let transport = Arc::clone(&node.transport);
    let cells = transport.cells();
    let lease = cells.get(Table::Sites, "a.example").await.unwrap().unwrap();
    assert!(
        String::from_utf8_lossy(&lease.value).contains(&node.id.to_string()),
        "it still holds the site"
    );
    broker.hold_removals(false);
    assert!(
        matches!(node.event().await, QueueEvent::Drained { unreadable: 0 }),
        "nothing comes again"
    );
    let free = cells.get(Table::Sites, "a.example").await.unwrap().unwrap();
    assert!(!String::from_utf8_lossy(&free.value).contains(&node.id.to_string()));
}

/// A message on a subject that no node reads kept every node of a queue waiting forever.
#[tokio::test(start_paused = true)]
async fn nobody_waits_for_messages_that_no_node_reads() {
    let broker = InProcessBroker::new(tokio_clock(), 9);
    enqueue(&broker, "a.example", "1").await;
    enqueue(&broker, "", "2").await;
    enqueue(&broker, "", "3").await;
    let mut node = ManualNode::start(&broker);
    let (site, links) = node.links("a.example").await;
    node.reader.written(&site, &links[0]);
    let event = node.event().await;
    assert!(matches!(event, QueueEvent::Drained { unreadable: 2 }), "{event:?}");
    let left = node.transport.work_queues().unwrap().content(QUEUE).await.unwrap();
    assert_eq!(left.links, 2, "they stay for the program that put them there");
}

/// Every call about a site, and whether the site has a link at the crawl before it.
const SITE_CALLS: [(SiteCall, bool); 5] = [
    (SiteCall::WriteLease, false),
    (SiteCall::Open, false),
    (SiteCall::Pull, false),
    (SiteCall::Acknowledge, true),
    (SiteCall::Close, true),
];

/// Returns how the reading of a queue with one link ends if a call about its site fails, and how
/// long that takes once the crawl has done its part.
async fn ends_if_failing(
    call: SiteCall,
    has_link: bool,
    error: TransportError,
) -> (QueueEvent, Duration) {
    let broker = InProcessBroker::new(tokio_clock(), 10);
    enqueue(&broker, "a.example", "1").await;
    let mut begun = Instant::now();
    if !has_link {
        broker.fail(call, Some(error.clone()));
    }
    let mut node = ManualNode::start(&broker);
    if has_link {
        let (site, links) = node.links("a.example").await;
        broker.fail(call, Some(error));
        node.reader.written(&site, &links[0]);
        begun = Instant::now();
    }
    let event = tokio::time::timeout(LONG * 100, node.reader.next()).await.unwrap().unwrap();
    (event, begun.elapsed())
}

/// The bug: a call about a site that the broker refused was tried again for ever, and the crawl
/// neither went on nor learned why.
#[tokio::test(start_paused = true)]
async fn a_refused_call_about_a_site_ends_the_crawl_with_the_reason() {
    for (call, has_link) in SITE_CALLS {
        let refused = TransportError::Refused("no permission".to_owned());
        let (event, time) = ends_if_failing(call, has_link, refused).await;
        // Where links cannot be pulled, the queue cannot be read.
        let is_reading = matches!(call, SiteCall::Pull);
        let is_patient = time >= Duration::from_secs(10);
        assert!(is_reading || is_patient, "{call:?}: one refusal is no reason: {time:?}");
        assert!(
            matches!(event, QueueEvent::Failed(TransportError::Refused(_))),
            "{call:?}: {event:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_crawl_without_links_does_not_wait_for_ever_for_a_call_that_fails() {
    for (call, has_link) in SITE_CALLS {
        let away = TransportError::Away("no leader".to_owned());
        let (event, time) = ends_if_failing(call, has_link, away).await;
        assert!(
            matches!(&event, QueueEvent::Failed(TransportError::Away(why)) if why == "no leader"),
            "{call:?}: {event:?}"
        );
        assert!(time >= Duration::from_secs(300), "{call:?}: brokers elect leaders: {time:?}");
    }
}

/// The bug: after a time away, a single refusal ended the crawl.
#[tokio::test(start_paused = true)]
async fn a_refusal_after_a_time_away_is_tried_again() {
    let broker = InProcessBroker::new(tokio_clock(), 10);
    enqueue(&broker, "a.example", "1").await;
    broker.fail(SiteCall::Open, Some(TransportError::Away("no leader".to_owned())));
    let mut node = ManualNode::start(&broker);
    tokio::time::sleep(Duration::from_secs(60)).await;
    broker.fail(SiteCall::Open, Some(TransportError::Refused("no permission".to_owned())));
    tokio::time::sleep(Duration::from_secs(5)).await;
    broker.fail(SiteCall::Open, None);
    let (site, links) = node.links("a.example").await;
    node.reader.written(&site, &links[0]);
    let event = node.event().await;
    assert!(matches!(event, QueueEvent::Drained { unreadable: 0 }), "{event:?}");
}

#[tokio::test(start_paused = true)]
async fn a_site_that_cannot_be_taken_does_not_end_the_crawl_of_others() {
    let broker = InProcessBroker::new(tokio_clock(), 11);
    enqueue(&broker, "a.example", "1").await;
    let mut node = ManualNode::start(&broker);
    let (site, links) = node.links("a.example").await;
    broker.fail(SiteCall::Open, Some(TransportError::Away("no leader".to_owned())));
    enqueue(&broker, "b.example", "2").await;
    tokio::time::sleep(Duration::from_secs(1_000)).await;
    node.reader.written(&site, &links[0]);
    broker.fail(SiteCall::Open, None);
    let (site, links) = node.links("b.example").await;
    node.reader.written(&site, &links[0]);
    let event = node.event().await;
    assert!(matches!(event, QueueEvent::Drained { unreadable: 0 }), "{event:?}");
}

#[tokio::test(start_paused = true)]
async fn a_missing_queue_is_reported() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), tokio_clock());
    let broker = InProcessBroker::new(Arc::clone(&clock), 3);
    let mut node = Node::new(dir.path().join("n"), &broker, &clock);
    node.start(queue_options()).await.unwrap();
    let (up, queue) = (node.up(), QUEUE.to_owned());
    let transport: Arc<dyn Transport> = Arc::new(broker.node(up.fleet.node_id()));
    let options = QueueOptions { queue, max_links: 9, max_sites: 9, max_site_links: 9 };
    let (selector, lease) = (Arc::clone(&up.selector), up.fleet.lease());
    let mut reader = QueueReader::start(transport, selector, up.fleet.node_id(), lease, options);
    let event = tokio::time::timeout(Duration::from_secs(60), reader.next()).await.unwrap();
    assert!(matches!(event, Some(QueueEvent::Failed(TransportError::NoQueue(_)))), "{event:?}");
}
