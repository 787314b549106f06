//! The transport over NATS JetStream.
//!
//! A pool `P` has the stream `FW_P` with a subject per node, the stream `FW_P_general` likewise, a key-value bucket per
//! table, and an object store for evidence snapshots.
//!
//! Owns: the mapping of [`crate::transport`] to NATS.
//!
//! Invariants: every call ends in time, and no input from a broker causes a panic. Only the broker's guarantees for
//! single messages are relied on.
//!
//! Must not know: the content of messages, cells and blobs.

use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::header::{HeaderMap, NATS_EXPECTED_STREAM, NATS_MESSAGE_ID};
use bytes::Bytes;
use fetchwise::time::Timestamp;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};

use crate::model::node_id::Origin;
use crate::transport::{
    Blobs, Bounds, Cells, Delivery, General, Position, MAX_SAID, Transport, TransportError, Want, too_much_said,
};

mod connection;
mod error;
mod global_evidence;
mod kv;
mod names;
mod object_store;
mod permissions;
mod provision;
mod settings;
mod stream_info;
mod stream_reader;
mod streams;

pub use crate::transport::nats::provision::{How, Made};
pub use permissions::permissions;
pub use settings::NatsSettings;

use crate::transport::nats::connection::Link;
use crate::transport::nats::stream_reader::{Came, Tail};
use error::NotStored;

/// The interval at which a reader without a broker tries again.
const AGAIN: Duration = Duration::from_millis(500);
/// The length of a retransmit request on the wire: epoch, first and last.
const WANT_BYTES: usize = 20;

/// The brokers of one pool. See the [module](self).
pub struct Nats {
    link: Link,
}

impl Nats {
    /// Starts to connect and returns at once. [`Nats::ready`] and every call show whether a broker is available.
    ///
    /// # Errors
    /// [`TransportError::Invalid`] when the settings are invalid, [`TransportError::Refused`] when the credentials
    /// cannot be read.
    pub async fn connect(settings: NatsSettings) -> Result<Self, TransportError> {
        Ok(Self { link: Link::new(settings).await? })
    }

    /// Waits until the stream can be read, for at most `time`.
    ///
    /// # Errors
    /// Returns the error of the last try.
    pub async fn ready(&self, time: Duration) -> Result<Bounds, TransportError> {
        let until = tokio::time::Instant::now() + time;
        loop {
            match self.link.bounds().await {
                Err(TransportError::Away(_)) if tokio::time::Instant::now() < until => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                // A starting broker may refuse a node for a moment; a permanent refusal is repeated.
                result => return result,
            }
        }
    }

    /// Creates all missing streams, and returns how existing ones differ from their required configuration. With
    /// `change` it updates them. Idempotent.
    ///
    /// # Errors
    /// When the broker is away or denies permission.
    pub async fn init(&self, change: bool) -> Result<Vec<Made>, TransportError> {
        crate::transport::nats::provision::init(&self.link, change).await
    }

    /// Returns the version of the connected broker; none without a connection.
    pub fn broker_version(&self) -> Option<String> {
        self.link.client.try_server_info().map(|info| info.version)
    }

    /// Drops all messages before a sequence number, as if they aged out.
    ///
    /// # Errors
    /// When the broker is away or denies permission.
    #[doc(hidden)]
    pub async fn drop_before(&self, seq: u64) -> Result<(), TransportError> {
        let stream = self.link.names.stream();
        let subject = format!("STREAM.PURGE.{stream}");
        let purged = self.link.ask::<serde_json::Value>(&subject, &serde_json::json!({ "seq": seq }), &stream).await?;
        purged.map(drop).map_err(|error| error::told(&error, &stream))
    }

    /// Returns what one node has published from a position on, up to now.
    async fn facts_by(&self, origin: Origin, from: Position) -> Result<Vec<Bytes>, TransportError> {
        let names = &self.link.names;
        let mut tail = Tail::from(&self.link, names.stream(), names.facts_of(origin), from.incarnation, from.seq);
        let (anew, mut pending) = tail.open().await?;
        if anew.is_some() {
            pending = tail.open().await?.1;
        }
        let (mut said, mut room, time) = (Vec::new(), MAX_SAID, self.link.settings.timeout * 4);
        while pending > 0 {
            let late = |_| TransportError::Away(format!("what {origin} has said does not come"));
            match tokio::time::timeout(time, tail.next()).await.map_err(late)?? {
                Came::Message(message) => {
                    pending = message.pending;
                    room = room.checked_sub(message.body.len()).ok_or_else(too_much_said)?;
                    said.push(message.body);
                }
                Came::Anew(_) => return Err(TransportError::Away("the stream is being made anew".to_owned())),
                Came::Silence(_) => break,
            }
        }
        Ok(said)
    }

    async fn store_facts(&self, origin: Origin, id: &str, body: Bytes) -> Result<Position, TransportError> {
        if !id.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TransportError::Invalid("a message's id with a blank in it".to_owned()));
        }
        let stream = self.link.names.stream();
        let mut headers = HeaderMap::new();
        headers.insert(NATS_MESSAGE_ID, id);
        headers.insert(NATS_EXPECTED_STREAM, stream.as_str());
        headers.insert("Fw-Version", "1");
        match self.link.store(self.link.names.facts_of(origin), headers, body, &stream).await {
            Ok((seq, is_duplicate)) => {
                let incarnation = self.link.incarnation_at(seq, is_duplicate).await?;
                Ok(Position { incarnation, seq })
            }
            Err(NotStored::Nobody) => {
                self.link.incarnation.store(0, Ordering::Relaxed);
                Err(self.link.nobody(&stream).await)
            }
            Err(NotStored::Overtaken) => Err(TransportError::Invalid("a condition that nobody has set".to_owned())),
            Err(NotStored::Failed(error)) => Err(error),
        }
    }
}

impl Transport for Nats {
    fn publish<'a>(
        &'a self,
        origin: Origin,
        id: &'a str,
        body: Bytes,
    ) -> BoxFuture<'a, Result<Position, TransportError>> {
        Box::pin(self.store_facts(origin, id, body))
    }

    fn read(&self, from: Position) -> BoxStream<'_, Result<Delivery, TransportError>> {
        let names = &self.link.names;
        let tail = Tail::from(&self.link, names.stream(), names.facts(), from.incarnation, from.seq);
        stream::unfold(Some(tail), move |tail| async move {
            let mut tail = tail?;
            loop {
                match tail.next().await {
                    Ok(Came::Message(message)) => {
                        // A subject without a valid node id belongs to no node: the broker's permissions let no node
                        // write there.
                        let Some(origin) = self.link.names.origin(&message.subject) else { continue };
                        let position = Position { incarnation: tail.incarnation(), seq: message.seq };
                        let delivery = Delivery::Message { origin, position, at: message.at, body: message.body };
                        return Some((Ok(delivery), Some(tail)));
                    }
                    Ok(Came::Anew(bounds)) => {
                        self.link.incarnation.store(bounds.incarnation, Ordering::Relaxed);
                        return Some((Ok(Delivery::Wiped(bounds)), Some(tail)));
                    }
                    Ok(Came::Silence(_)) => {}
                    Err(TransportError::Away(_)) => tokio::time::sleep(AGAIN).await,
                    Err(error) => return Some((Err(error), None)),
                }
            }
        })
        .boxed()
    }

    fn bounds(&self) -> BoxFuture<'_, Result<Bounds, TransportError>> {
        Box::pin(self.link.bounds())
    }

    fn newest(&self, origin: Origin) -> BoxFuture<'_, Result<Option<Bytes>, TransportError>> {
        Box::pin(async move {
            let (stream, subject) = (self.link.names.stream(), self.link.names.facts_of(origin));
            Ok(self.link.last_of(&stream, &subject).await?.map(|message| message.payload))
        })
    }

    fn said_by(&self, origin: Origin, from: Position) -> BoxFuture<'_, Result<Vec<Bytes>, TransportError>> {
        Box::pin(self.facts_by(origin, from))
    }

    fn put_general(&self, origin: Origin, body: Bytes) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(self.store_general(origin, body))
    }

    fn generals(&self) -> BoxStream<'_, Result<General, TransportError>> {
        self.read_generals()
    }

    fn now(&self) -> BoxFuture<'_, Result<Option<Timestamp>, TransportError>> {
        Box::pin(async move { Ok(self.link.info_of(&self.link.names.stream()).await?.now()) })
    }

    fn cells(&self) -> &dyn Cells {
        self
    }

    fn blobs(&self) -> &dyn Blobs {
        self
    }

    fn signal(&self, to: Origin, want: Want) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(async move {
            self.link.connected()?;
            let mut body = Vec::with_capacity(WANT_BYTES);
            body.extend_from_slice(&want.epoch.to_le_bytes());
            body.extend_from_slice(&want.first.to_le_bytes());
            body.extend_from_slice(&want.last.to_le_bytes());
            let sending = self.link.client.publish(self.link.names.wants_of(to), body.into());
            let sent = tokio::time::timeout(self.link.settings.timeout, sending).await;
            let sent = sent.map_err(|_| TransportError::Away("a want was not sent in time".to_owned()))?;
            sent.map_err(|error| TransportError::Away(format!("a want was not sent: {}", error.kind())))
        })
    }

    fn signals(&self, own: Origin) -> BoxStream<'_, Result<Want, TransportError>> {
        let subject = self.link.names.wants_of(own);
        let subscribed = async move {
            match self.link.client.subscribe(subject).await {
                // The subscription survives reconnections.
                Ok(wants) => wants.filter_map(|message| async move { want(&message.payload) }).map(Ok).boxed(),
                Err(error) => {
                    let error = TransportError::Away(format!("wants are not heard: {error}"));
                    stream::iter([Err(error)]).boxed()
                }
            }
        };
        stream::once(subscribed).flatten().boxed()
    }

    fn is_up(&self) -> bool {
        self.link.is_up()
    }
}

/// Decodes a retransmit request; none if it is invalid.
fn want(body: &[u8]) -> Option<Want> {
    let body: &[u8; WANT_BYTES] = body.try_into().ok()?;
    let (epoch, rest) = body.split_first_chunk()?;
    let (first, rest) = rest.split_first_chunk()?;
    let (last, _) = rest.split_first_chunk()?;
    let want =
        Want { epoch: u32::from_le_bytes(*epoch), first: u64::from_le_bytes(*first), last: u64::from_le_bytes(*last) };
    (want.first <= want.last).then_some(want)
}
