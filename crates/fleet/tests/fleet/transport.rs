//! The default methods of a transport: over a stream that has lost messages, the last ones too, and with readers that
//! hang. Nothing but tokio keeps time here, so the clock is paused: it jumps to the next timer when all tasks wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::NOW;
use bytes::Bytes;
use fetchwise::time::Clock;
use fetchwise_fleet::NodeId;
use fetchwise_fleet::transport::in_process::{InProcessBroker, InProcessNode};
use fetchwise_fleet::transport::{
    Blobs, Cells, Delivery, Position, RetransmitRequest, StreamBounds, Transport, TransportError,
};
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
        self.node.bounds()
    }

    fn cells(&self) -> &dyn Cells {
        self.node.cells()
    }

    fn blobs(&self) -> &dyn Blobs {
        self.node.blobs()
    }

    fn signal(&self, to: NodeId, want: RetransmitRequest) -> BoxFuture<'_, Result<(), TransportError>> {
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
    let plain = Plain { node: broker.node(both[0]), hang: AtomicUsize::new(0) };
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
    assert_eq!((newest(&plain, one).await, newest(&plain, two).await), (Some(text(9)), Some(text(10))));
    assert_eq!(said(&plain, one, 4).await, [5, 7, 9].map(text));
    assert!([9, 10].iter().all(|seq| broker.lose(*seq)));
    assert_eq!((newest(&plain, one).await, newest(&plain, two).await), (Some(text(7)), Some(text(8))));
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
    assert_eq!(said(&plain, one, 1).await, [1, 3, 5, 7, 9].map(text), "each brings one, and then says nothing");
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
    let (said, seq) = (plain.published_by(one, Position::default()).now_or_never(), plain.bounds().await);
    assert!(seq.is_err() && said.is_some_and(|said| said.is_err()));
}
