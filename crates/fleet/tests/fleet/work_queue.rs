//! Work queues over the in-process broker: each site at one node at a time, and each link at least once, although nodes
//! die and are cut off.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use fetchwise::time::Clock;
use fetchwise_fleet::Options;
use fetchwise_fleet::queue::{QueueEvent, QueueLink, QueueOptions, QueueReader};
use fetchwise_fleet::transport::in_process::InProcessBroker;
use fetchwise_fleet::transport::{Transport, TransportError};
use tokio::task::JoinHandle;

use crate::common::visits::until;
use crate::common::{Node, options};

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
    by_node: BTreeMap<usize, usize>,
}

/// A node whose crawl takes a moment for each link of a site, one after the other.
struct Worker {
    node: Node,
    crawl: JoinHandle<()>,
}

fn queue_options() -> Options {
    let mut options = options();
    options.queue = QUEUE.to_owned();
    // Long enough for a machine that is busy with other tests.
    (options.timing.heartbeat, options.timing.lease) = (Duration::from_millis(200), Duration::from_secs(6));
    options
}

impl Worker {
    async fn start(dir: &Path, number: usize, broker: &Arc<InProcessBroker>, written: &Arc<Mutex<Written>>) -> Self {
        let clock = Arc::new(Clock::System);
        let mut node = Node::new(dir.join(number.to_string()), broker, &clock);
        node.start(queue_options()).await.unwrap();
        let up = node.up();
        let transport: Arc<dyn Transport> = Arc::new(broker.node(up.fleet.node_id()));
        let options = QueueOptions { queue: QUEUE.to_owned(), max_links: 200, max_sites: 30, max_site_links: 8 };
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
                    dropped.iter().for_each(|link| reader.dropped(&site, link.seq));
                }
                QueueEvent::Drained => return reader.stop().await,
                QueueEvent::Failed(error) => panic!("{error}"),
            }
        }
        for (site, links) in &mut waiting {
            let Some(link) = links.pop() else { continue };
            let mut all = written.lock().unwrap();
            if all.busy.insert(site.to_string(), number).is_some_and(|other| other != number) {
                all.shared.insert(site.to_string());
            }
            all.results.entry(link.seq).or_default().push(link.is_redelivered);
            *all.by_node.entry(number).or_default() += 1;
            drop(all);
            reader.written(site, &link);
        }
        // The requests of this round have ended.
        written.lock().unwrap().busy.retain(|_, by| *by != number);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn fill(broker: &Arc<InProcessBroker>, links: usize) {
    let operator = broker.node(fetchwise_fleet::NodeId::random());
    let queues = operator.work_queues().unwrap();
    queues.ensure(QUEUE).await.unwrap();
    for n in 0..links {
        let (site, id) = (format!("site{}.example", n % 30), n.to_string());
        assert!(queues.enqueue(QUEUE, &site, &id, Bytes::from(id.clone())).await.unwrap());
        assert!(!queues.enqueue(QUEUE, &site, &id, Bytes::from(id.clone())).await.unwrap(), "a duplicate");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "passes alone; together with other tests on a busy machine it did not end within its limit, for a reason not found yet"]
async fn every_link_has_a_result_although_nodes_die_and_are_cut_off() {
    const LINKS: usize = 2_400;
    let (dir, written) = (tempfile::tempdir().unwrap(), Arc::new(Mutex::new(Written::default())));
    let broker = InProcessBroker::new(Arc::new(Clock::System), 1);
    fill(&broker, LINKS).await;
    let mut workers = Vec::new();
    for number in 0..3 {
        workers.push(Worker::start(dir.path(), number, &broker, &written).await);
    }
    let count = || written.lock().unwrap().results.len();
    until("all nodes work", || written.lock().unwrap().by_node.len() == 3).await;
    until("a tenth is done", || count() > LINKS / 10).await;
    workers.remove(0).crash(0, &written).await;
    let cut = workers[0].node.name();
    broker.cut(cut, true);
    let alone = || written.lock().unwrap().by_node.get(&2).copied().unwrap_or(0);
    let before = alone();
    until("the third one goes on alone", || alone() > before + LINKS / 10).await;
    broker.cut(cut, false);
    until("all are done", || workers.iter().all(|worker| worker.crawl.is_finished())).await;
    let all = written.lock().unwrap();
    assert_eq!(all.results.len(), LINKS);
    assert_eq!(all.shared, BTreeSet::new(), "two nodes worked on a site");
    for (seq, marks) in all.results.iter().filter(|(_, marks)| marks.len() > 1) {
        assert_eq!(marks.iter().filter(|is_marked| !**is_marked).count(), 1, "{seq}: {marks:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_joins_late_gets_its_sites() {
    let (dir, written) = (tempfile::tempdir().unwrap(), Arc::new(Mutex::new(Written::default())));
    let broker = InProcessBroker::new(Arc::new(Clock::System), 2);
    fill(&broker, 20_000).await;
    let first = Worker::start(dir.path(), 0, &broker, &written).await;
    until("the first one works", || written.lock().unwrap().by_node.contains_key(&0)).await;
    let second = Worker::start(dir.path(), 1, &broker, &written).await;
    until("the second one works, too", || written.lock().unwrap().by_node.contains_key(&1)).await;
    first.crawl.abort();
    second.crawl.abort();
    let all = written.lock().unwrap();
    assert_eq!(all.shared, BTreeSet::new());
    let is_fine = |marks: &Vec<bool>| marks.iter().filter(|is_marked| !**is_marked).count() == 1;
    assert!(all.results.values().all(is_fine), "given back, not lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_queue_is_reported() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(Clock::System));
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
