//! The transport over NATS JetStream.
//!
//! A pool `P` has the stream `FW_P` with a subject per node, the stream `FW_P_general` likewise, a
//! key-value bucket per table, and the stream `FW_P_shares` of evidence snapshots. A work queue `Q`
//! is the stream `FWQ_P_Q`.
//!
//! Owns: the mapping of [`crate::transport`] to NATS.
//!
//! Invariants: every call ends in time, and no input from a broker causes a panic. Only the
//! broker's guarantees for single messages are relied on.
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

use crate::model::node_id::NodeId;
use crate::transport::{
    Blobs, Cells, Delivery, GlobalDelivery, MAX_PUBLISHED, Position, RetransmitRequest,
    StreamBounds, Transport, TransportError, WorkQueues, too_much_published,
};

mod connection;
mod error;
mod global_evidence;
mod kv;
mod names;
mod permissions;
mod provision;
mod settings;
mod snapshot_store;
mod stream_bounds;
mod stream_info;
mod stream_reader;
mod work_queue;

pub use permissions::permissions;
pub use provision::{StreamReport, StreamState};
pub use settings::NatsSettings;

use crate::transport::nats::connection::Connection;
use crate::transport::nats::stream_reader::{StreamEvent, StreamReader};
use error::StoreError;

/// The interval at which a reader without a broker tries again.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// The length of a retransmit request on the wire: epoch, first and last.
const REQUEST_LEN: usize = 20;

/// The brokers of one pool. See the [module](self).
pub struct Nats {
    connection: Connection,
}

impl Nats {
    /// Starts to connect and returns at once. [`Nats::ready`] and every call show whether a broker
    /// is available.
    ///
    /// # Errors
    /// [`TransportError::Invalid`] when the settings are invalid, [`TransportError::Refused`] when
    /// the credentials cannot be read.
    pub async fn connect(settings: NatsSettings) -> Result<Self, TransportError> {
        Ok(Self { connection: Connection::new(settings).await? })
    }

    /// Waits until the stream can be read, for at most `time`.
    ///
    /// # Errors
    /// Returns the error of the last try.
    pub async fn ready(&self, time: Duration) -> Result<StreamBounds, TransportError> {
        let until = tokio::time::Instant::now() + time;
        loop {
            match self.connection.bounds().await {
                Err(TransportError::Away(_)) if tokio::time::Instant::now() < until => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                // A starting broker may refuse a node for a moment; a permanent refusal is
                // repeated.
                result => return result,
            }
        }
    }

    /// Creates all missing streams, and returns how existing ones differ from their required
    /// configuration. With `change` it updates them. Idempotent.
    ///
    /// # Errors
    /// When the broker is away or denies permission.
    pub async fn init(&self, change: bool) -> Result<Vec<StreamReport>, TransportError> {
        provision::init(&self.connection, change).await
    }

    /// Returns the version of the connected broker; none without a connection.
    pub fn broker_version(&self) -> Option<String> {
        self.connection.client.try_server_info().map(|info| info.version)
    }

    /// Drops all messages before a sequence number, as if they aged out.
    ///
    /// # Errors
    /// When the broker is away or denies permission.
    #[doc(hidden)]
    pub async fn drop_before(&self, seq: u64) -> Result<(), TransportError> {
        let stream = self.connection.names.stream();
        let subject = format!("STREAM.PURGE.{stream}");
        let purged = self
            .connection
            .api_request::<serde_json::Value>(&subject, &serde_json::json!({ "seq": seq }), &stream)
            .await?;
        purged.map(drop).map_err(|error| error::api_error(&error, &stream))
    }

    /// Returns what one node has published from a position on, up to now.
    async fn messages_by(
        &self,
        node_id: NodeId,
        from: Position,
    ) -> Result<Vec<Bytes>, TransportError> {
        let names = &self.connection.names;
        let mut reader = StreamReader::from(
            &self.connection,
            names.stream(),
            names.message_subject(node_id),
            from.incarnation,
            from.seq,
        );
        let (anew, mut pending) = reader.open().await?;
        if anew.is_some() {
            pending = reader.open().await?.1;
        }
        let (mut said, mut room, time) =
            (Vec::new(), MAX_PUBLISHED, self.connection.settings.timeout * 4);
        while pending > 0 {
            let late = |_| TransportError::Away(format!("messages of {node_id} do not arrive"));
            match tokio::time::timeout(time, reader.next()).await.map_err(late)?? {
                StreamEvent::Message(message) => {
                    pending = message.pending;
                    room = room.checked_sub(message.body.len()).ok_or_else(too_much_published)?;
                    said.push(message.body);
                }
                StreamEvent::Recreated(_) => {
                    return Err(TransportError::Away("the stream is being recreated".to_owned()));
                }
                StreamEvent::Idle(_) => break,
            }
        }
        Ok(said)
    }

    async fn store_message(
        &self,
        node_id: NodeId,
        id: &str,
        body: Bytes,
    ) -> Result<Position, TransportError> {
        if !id.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TransportError::Invalid(
                "invalid message id: it contains a blank".to_owned(),
            ));
        }
        let stream = self.connection.names.stream();
        let mut headers = HeaderMap::new();
        headers.insert(NATS_MESSAGE_ID, id);
        headers.insert(NATS_EXPECTED_STREAM, stream.as_str());
        headers.insert("Fw-Version", "1");
        match self
            .connection
            .store(self.connection.names.message_subject(node_id), headers, body, &stream)
            .await
        {
            Ok((seq, is_duplicate)) => {
                let incarnation = self.connection.incarnation_at(seq, is_duplicate).await?;
                Ok(Position { incarnation, seq })
            }
            Err(StoreError::NoListener) => {
                self.connection.incarnation.store(0, Ordering::Relaxed);
                Err(self.connection.no_listener(&stream).await)
            }
            Err(StoreError::WrongRevision) => {
                Err(TransportError::Invalid("an unexpected revision check".to_owned()))
            }
            Err(StoreError::Failed(error)) => Err(error),
        }
    }
}

impl Transport for Nats {
    fn publish<'a>(
        &'a self,
        node_id: NodeId,
        id: &'a str,
        body: Bytes,
    ) -> BoxFuture<'a, Result<Position, TransportError>> {
        Box::pin(self.store_message(node_id, id, body))
    }

    fn read(&self, from: Position) -> BoxStream<'_, Result<Delivery, TransportError>> {
        let names = &self.connection.names;
        let reader = StreamReader::from(
            &self.connection,
            names.stream(),
            names.message_subjects(),
            from.incarnation,
            from.seq,
        );
        stream::unfold(Some(reader), move |reader| async move {
            let mut reader = reader?;
            loop {
                match reader.next().await {
                    Ok(StreamEvent::Message(message)) => {
                        // A subject without a valid node id belongs to no node: the broker's
                        // permissions let no node write there.
                        let Some(node_id) = self.connection.names.node_of_message(&message.subject)
                        else {
                            continue;
                        };
                        let position =
                            Position { incarnation: reader.incarnation(), seq: message.seq };
                        let delivery = Delivery::Message {
                            node_id,
                            position,
                            at: message.at,
                            body: message.body,
                        };
                        return Some((Ok(delivery), Some(reader)));
                    }
                    Ok(StreamEvent::Recreated(bounds)) => {
                        self.connection.incarnation.store(bounds.incarnation, Ordering::Relaxed);
                        return Some((Ok(Delivery::Wiped(bounds)), Some(reader)));
                    }
                    Ok(StreamEvent::Idle(_)) => {}
                    Err(TransportError::Away(_)) => tokio::time::sleep(RETRY_INTERVAL).await,
                    Err(error) => return Some((Err(error), None)),
                }
            }
        })
        .boxed()
    }

    fn bounds(&self) -> BoxFuture<'_, Result<StreamBounds, TransportError>> {
        Box::pin(self.connection.bounds())
    }

    fn newest(&self, node_id: NodeId) -> BoxFuture<'_, Result<Option<Bytes>, TransportError>> {
        Box::pin(async move {
            let (stream, subject) =
                (self.connection.names.stream(), self.connection.names.message_subject(node_id));
            Ok(self.connection.last_of(&stream, &subject).await?.map(|message| message.payload))
        })
    }

    fn published_by(
        &self,
        node_id: NodeId,
        from: Position,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, TransportError>> {
        Box::pin(self.messages_by(node_id, from))
    }

    fn publish_global(
        &self,
        node_id: NodeId,
        body: Bytes,
    ) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(self.store_global(node_id, body))
    }

    fn global_snapshots(&self) -> BoxStream<'_, Result<GlobalDelivery, TransportError>> {
        self.read_global()
    }

    fn now(&self) -> BoxFuture<'_, Result<Option<Timestamp>, TransportError>> {
        Box::pin(async move {
            Ok(self.connection.info_of(&self.connection.names.stream()).await?.now())
        })
    }

    fn cells(&self) -> &dyn Cells {
        self
    }

    fn blobs(&self) -> &dyn Blobs {
        self
    }

    fn work_queues(&self) -> Option<&dyn WorkQueues> {
        Some(self)
    }

    fn signal(
        &self,
        to: NodeId,
        want: RetransmitRequest,
    ) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(async move {
            self.connection.connected()?;
            let mut body = Vec::with_capacity(REQUEST_LEN);
            body.extend_from_slice(&want.epoch.to_le_bytes());
            body.extend_from_slice(&want.first.to_le_bytes());
            body.extend_from_slice(&want.last.to_le_bytes());
            let sending = self
                .connection
                .client
                .publish(self.connection.names.request_subject(to), body.into());
            let sent = tokio::time::timeout(self.connection.settings.timeout, sending).await;
            let sent = sent.map_err(|_| {
                TransportError::Away("sending a retransmit request timed out".to_owned())
            })?;
            sent.map_err(|error| {
                TransportError::Away(format!("cannot send a retransmit request: {}", error.kind()))
            })
        })
    }

    fn signals(&self, own: NodeId) -> BoxStream<'_, Result<RetransmitRequest, TransportError>> {
        let subject = self.connection.names.request_subject(own);
        let subscribed = async move {
            match self.connection.client.subscribe(subject).await {
                // The subscription survives reconnections.
                Ok(wants) => wants
                    .filter_map(|message| async move { want(&message.payload) })
                    .map(Ok)
                    .boxed(),
                Err(error) => {
                    let error = TransportError::Away(format!(
                        "cannot subscribe to retransmit requests: {error}"
                    ));
                    stream::iter([Err(error)]).boxed()
                }
            }
        };
        stream::once(subscribed).flatten().boxed()
    }

    fn is_up(&self) -> bool {
        self.connection.is_up()
    }
}

/// Decodes a retransmit request; none if it is invalid.
fn want(body: &[u8]) -> Option<RetransmitRequest> {
    let body: &[u8; REQUEST_LEN] = body.try_into().ok()?;
    let (epoch, rest) = body.split_first_chunk()?;
    let (first, rest) = rest.split_first_chunk()?;
    let (last, _) = rest.split_first_chunk()?;
    let want = RetransmitRequest {
        epoch: u32::from_le_bytes(*epoch),
        first: u64::from_le_bytes(*first),
        last: u64::from_le_bytes(*last),
    };
    (want.first <= want.last).then_some(want)
}
