//! The default methods of a transport: over a stream that has lost messages, the last ones too, and
//! with readers that hang. Nothing but tokio keeps time here, so the clock is paused: it jumps to
//! the next timer when all tasks wait.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{NOW, Node, TestRng, attempt, options, selector};
use bytes::Bytes;
use fetchwise::journal::{Durability, Journal, JournalOptions};
use fetchwise::time::Clock;
use fetchwise_fleet::transport::in_process::{InProcessBroker, InProcessNode};
use fetchwise_fleet::transport::{
    Blobs, Cells, Delivery, Position, RetransmitRequest, StreamBounds, Transport, TransportError,
};
use fetchwise_fleet::{Fleet, NodeId};
use fetchwise_testsite::poll::until;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};
use tokio::time::timeout;

/// The timeout of every wait.
const LONG: Duration = Duration::from_secs(60);

/// A broker with only the required methods.
struct Plain {
    node: InProcessNode,
    /// The number of readers that hang from their first message on.
    hang: AtomicUsize,
    /// The time after which it answers where its stream ends.
    delay: Duration,
}

impl Transport for Plain {
    fn publish<'a>(
        &'a self,
        node_id: NodeId,
        id: &'a str,
        body: Bytes,
    ) -> BoxFuture<'a, Result<Position, TransportError>> {
        self.node.publish(node_id, id, body)
    }

    fn read(&self, from: Position) -> BoxStream<'_, Result<Delivery, TransportError>> {
        let less = |left: usize| left.checked_sub(1);
        match self.hang.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) {
            Ok(_) => self.node.read(from).take(1).chain(stream::pending()).boxed(),
            Err(_) => self.node.read(from),
        }
    }

    fn bounds(&self) -> BoxFuture<'_, Result<StreamBounds, TransportError>> {
        async move {
            tokio::time::sleep(self.delay).await;
            self.node.bounds().await
        }
        .boxed()
    }

    fn cells(&self) -> &dyn Cells {
        self.node.cells()
    }

    fn blobs(&self) -> &dyn Blobs {
        self.node.blobs()
    }

    fn signal(
        &self,
        to: NodeId,
        want: RetransmitRequest,
    ) -> BoxFuture<'_, Result<(), TransportError>> {
        self.node.signal(to, want)
    }

    fn signals(&self, own: NodeId) -> BoxStream<'_, Result<RetransmitRequest, TransportError>> {
        self.node.signals(own)
    }

    fn is_up(&self) -> bool {
        self.node.is_up()
    }
}

fn text(n: u64) -> Bytes {
    Bytes::from(format!("message {n}"))
}

/// Publishes ten messages of two nodes in turn; the first is from `one`.
async fn ten() -> (Arc<InProcessBroker>, Plain, [NodeId; 2]) {
    let broker = InProcessBroker::new(Arc::new(Clock::fixed(NOW)), 2);
    let both = [NodeId::random(), NodeId::random()];
    let plain =
        Plain { node: broker.node(both[0]), hang: AtomicUsize::new(0), delay: Duration::ZERO };
    for n in 1..=10 {
        plain.publish(both[(n as usize + 1) % 2], &format!("{n}"), text(n)).await.unwrap();
    }
    (broker, plain, both)
}

async fn newest(plain: &Plain, of: NodeId) -> Option<Bytes> {
    timeout(LONG, plain.newest(of)).await.expect("it does not wait for what is gone").unwrap()
}

async fn said(plain: &Plain, of: NodeId, seq: u64) -> Vec<Bytes> {
    let incarnation = plain.bounds().await.unwrap().incarnation;
    let said = plain.published_by(of, Position { incarnation, seq });
    timeout(LONG, said).await.expect("it does not wait for what is gone").unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_newest_message_is_found_although_later_ones_are_lost() {
    let (broker, plain, [one, two]) = ten().await;
    assert_eq!(
        (newest(&plain, one).await, newest(&plain, two).await),
        (Some(text(9)), Some(text(10)))
    );
    assert_eq!(said(&plain, one, 4).await, [5, 7, 9].map(text));
    assert!([9, 10].iter().all(|seq| broker.lose(*seq)));
    assert_eq!(
        (newest(&plain, one).await, newest(&plain, two).await),
        (Some(text(7)), Some(text(8)))
    );
    assert_eq!(said(&plain, two, 4).await, [4, 6, 8].map(text));
    assert_eq!(newest(&plain, NodeId::random()).await, None);
    (1..=8).for_each(|seq| assert!(broker.lose(seq)));
    assert_eq!(newest(&plain, one).await, None, "nothing is left");
    assert!(said(&plain, one, 1).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_hanging_reader_does_not_count_as_the_end() {
    let (_, plain, [one, two]) = ten().await;
    plain.hang.store(1, Ordering::Relaxed);
    assert_eq!(newest(&plain, two).await, Some(text(10)));
    plain.hang.store(3, Ordering::Relaxed);
    assert_eq!(
        said(&plain, one, 1).await,
        [1, 3, 5, 7, 9].map(text),
        "each brings one, and then says nothing"
    );
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_goes_away_results_in_an_error() {
    let (broker, plain, [one, _]) = ten().await;
    assert!(broker.lose(10));
    let node = broker.clone();
    let asked = plain.newest(one);
    let cut = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        node.cut(one, true);
    };
    let (newest, ()) = timeout(LONG, futures_util::future::join(asked, cut)).await.unwrap();
    assert!(matches!(newest, Err(TransportError::Away(_))), "{newest:?}");
    let (said, seq) =
        (plain.published_by(one, Position::default()).now_or_never(), plain.bounds().await);
    assert!(seq.is_err() && said.is_some_and(|said| said.is_err()));
}

/// Joins as a node whose broker answers slowly.
async fn join_slowly(
    dir: &Path,
    broker: &Arc<InProcessBroker>,
    clock: &Arc<Clock>,
) -> (Fleet, Arc<Journal>) {
    let delay = options().timing.check * 5;
    let slow = Plain { node: broker.node(NodeId::random()), hang: AtomicUsize::new(0), delay };
    let (journal, _) =
        Journal::open(dir, JournalOptions::default().durability(Durability::Os)).unwrap();
    let (journal, learner) = (Arc::new(journal), Arc::new(selector(clock)));
    let fleet =
        Fleet::join(Arc::clone(&journal), learner, Arc::new(slow), options()).await.unwrap();
    until("it has begun", || !fleet.status().syncing).await;
    (fleet, journal)
}

/// The bug: a check that took longer than the interval between checks was followed by the next one
/// at once, so that no message was read.
#[tokio::test(start_paused = true)]
async fn a_node_reads_although_its_broker_answers_slowly() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(Clock::fixed(NOW)));
    let broker = InProcessBroker::new(Arc::clone(&clock), 3);
    let mut writer = Node::new(dir.path().join("writer"), &broker, &clock);
    writer.start(options()).await.unwrap();
    let (reader, _) = join_slowly(&dir.path().join("reader"), &broker, &clock).await;
    let mut rng = TestRng(6);
    (0..20).for_each(|n| writer.record(&attempt(&mut rng, 10, n)));
    let has_read = until("it reads", || reader.status().counts.received > 0);
    timeout(LONG, has_read).await.expect("messages arrive one by one");
    reader.stop().await;
}

/// The same for turns of the publisher, after which no request was answered.
#[tokio::test(start_paused = true)]
async fn a_node_answers_requests_although_its_broker_answers_slowly() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(Clock::fixed(NOW)));
    let broker = InProcessBroker::new(Arc::clone(&clock), 3);
    let (writer, journal) = join_slowly(&dir.path().join("writer"), &broker, &clock).await;
    let mut rng = TestRng(6);
    for n in 0..20 {
        journal.append_attempt(&attempt(&mut rng, 10, n)).unwrap();
    }
    let sent = || writer.status().counts.published;
    until("it is published", || writer.status().published >= 20).await;
    let (before, operator) = (sent(), broker.node(NodeId::random()));
    operator
        .signal(writer.node_id(), RetransmitRequest { epoch: 1, first: 1, last: 20 })
        .await
        .unwrap();
    timeout(LONG, until("it publishes again", || sent() > before))
        .await
        .expect("requests are answered");
    writer.stop().await;
}
