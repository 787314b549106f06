//! The broker interface of a fleet: a message stream with retention, compare-and-swap cells, and
//! blobs.
//!
//! Owns: the interface.
//!
//! Invariants: it promises nothing that a broker under failure breaks. A published message may be
//! lost, duplicated or reordered, and readers must cope with that.
//!
//! Must not know: the content of messages, or which broker it is.

pub mod in_process;
#[cfg(feature = "nats")]
pub mod nats;

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use fetchwise::time::Timestamp;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use tokio::time::timeout;

use crate::model::node_id::NodeId;
pub use crate::model::position::Position;

/// The current bounds of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamBounds {
    /// The incarnation of the stream: see [`Position::incarnation`].
    pub incarnation: u64,
    /// The oldest message still stored; one more than `last` if there is none.
    pub first: u64,
    /// The newest message; 0 if there has been none.
    pub last: u64,
    /// The time of the oldest message by the broker's clock.
    pub first_at: Option<Timestamp>,
}

/// A delivery of the stream.
#[derive(Clone, Debug)]
pub enum Delivery {
    /// A message.
    Message {
        /// The sender, as the broker authenticates it: never as the message claims.
        node_id: NodeId,
        /// Its position.
        position: Position,
        /// The time at which the broker stored it, by its clock.
        at: Timestamp,
        /// The content.
        body: Bytes,
    },
    /// The stream is a different one now, and earlier messages may be lost. Reading continues with
    /// its first message.
    Wiped(StreamBounds),
}

/// A delivery of global snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GlobalDelivery {
    /// The newest snapshot of a node.
    Snapshot {
        /// The sender, as the broker authenticates it.
        node_id: NodeId,
        /// The time at which the broker stored it, by its clock.
        at: Timestamp,
        /// The content.
        body: Bytes,
    },
    /// All stored snapshots were delivered. Repeated each time the reader catches up.
    CaughtUp,
    /// The stored snapshots are lost; every node publishes its own again.
    Wiped,
}

/// The tables of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Table {
    /// Paused hosts and trials. Kept for 48 hours.
    Hosts,
    /// Forgotten domains. Kept for 400 days.
    Forget,
    /// Heartbeats. Kept for ten minutes; a node that is present sends one more often.
    Nodes,
    /// Excluded nodes. Kept forever.
    Excluded,
    /// Leases of sites whose links come from a work queue, with the sites' paces. Kept for a week.
    Sites,
}

impl Table {
    /// All tables.
    pub const ALL: [Self; 5] =
        [Self::Hosts, Self::Forget, Self::Nodes, Self::Excluded, Self::Sites];

    /// Returns the table's name at the broker.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hosts => "hosts",
            Self::Forget => "forget",
            Self::Nodes => "nodes",
            Self::Excluded => "excluded",
            Self::Sites => "sites",
        }
    }
}

/// The content of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The value.
    pub value: Bytes,
    /// The revision, which increases with each change.
    pub revision: u64,
    /// The time at which the broker stored it, by its clock.
    pub at: Timestamp,
}

/// A change of a cell, as a watcher sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key of the cell: any text.
    pub key: String,
    /// The new content; none if it was deleted or has aged out.
    pub cell: Option<Cell>,
    /// The revision of the cell or of its deletion; the last revision of one that has aged out.
    pub revision: u64,
}

/// The outcome of a swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwapOutcome {
    /// The cell holds the new value, with this revision.
    Done(u64),
    /// Another node was faster: the cell holds this, or nothing.
    Lost(Option<Cell>),
}

/// Compare-and-swap cells. Keys are any text of at most 512 bytes.
pub trait Cells: Send + Sync {
    /// Returns the current content, as a majority of the brokers has it.
    fn get<'a>(
        &'a self,
        table: Table,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Cell>, TransportError>>;

    /// Stores `value` if the cell is unchanged: at revision `seen`, or empty.
    fn swap<'a>(
        &'a self,
        table: Table,
        key: &'a str,
        seen: Option<u64>,
        value: Bytes,
    ) -> BoxFuture<'a, Result<SwapOutcome, TransportError>>;

    /// Stores `value` unconditionally.
    fn put<'a>(
        &'a self,
        table: Table,
        key: &'a str,
        value: Bytes,
    ) -> BoxFuture<'a, Result<u64, TransportError>>;

    /// Empties the cell if it is at revision `seen`; unconditionally if `seen` is none.
    fn delete<'a>(
        &'a self,
        table: Table,
        key: &'a str,
        seen: Option<u64>,
    ) -> BoxFuture<'a, Result<SwapOutcome, TransportError>>;

    /// Streams all cells, then changes. Ends with an error when the broker is gone; the caller
    /// watches again.
    fn watch(&self, table: Table) -> BoxStream<'_, Result<Change, TransportError>>;

    /// Returns all cells.
    fn list(&self, table: Table) -> BoxFuture<'_, Result<Vec<(String, Cell)>, TransportError>>;

    /// Returns the incarnation of the table: a different number each time it is created again, with
    /// all cells lost. None if the broker does not report it.
    fn incarnation(&self, table: Table) -> BoxFuture<'_, Result<Option<u64>, TransportError>> {
        let _ = table;
        async { Ok(None) }.boxed()
    }
}

/// A stored blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobInfo {
    /// Its name.
    pub name: String,
    /// The note that was stored with it, at most 1 KiB.
    pub note: String,
    /// The length in bytes.
    pub len: u64,
}

/// Large objects by name. Storing one again replaces it as a whole.
pub trait Blobs: Send + Sync {
    /// Stores a blob.
    fn put<'a>(
        &'a self,
        name: &'a str,
        note: &'a str,
        body: Bytes,
    ) -> BoxFuture<'a, Result<(), TransportError>>;

    /// Returns a blob of at most `max` bytes; none if there is none by that name.
    fn get<'a>(
        &'a self,
        name: &'a str,
        max: u64,
    ) -> BoxFuture<'a, Result<Option<Bytes>, TransportError>>;

    /// Returns all blobs.
    fn list(&self) -> BoxFuture<'_, Result<Vec<BlobInfo>, TransportError>>;

    /// Deletes a blob; no error if there is none.
    fn delete<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), TransportError>>;
}

/// The maximum size of a link in a work queue, in bytes.
pub const MAX_QUEUED_LINK: usize = 256 << 10;

/// A link that a work queue delivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedMessage {
    /// Its position in the queue.
    pub seq: u64,
    /// The content.
    pub body: Bytes,
    /// The broker's name of this delivery, for the acknowledgement.
    pub receipt: String,
}

/// The links that a work queue holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueContent {
    /// The number of links that are not acknowledged, of all sites.
    pub links: u64,
    /// The number of their sites.
    pub sites: u64,
}

/// The sites of a work queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueSites {
    /// The sites with links that are not acknowledged.
    pub sites: Vec<String>,
    /// The number of messages that belong to no site as nodes name it. No node ever reads them.
    pub unreadable: u64,
}

/// What an operator sees of a work queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueStatistics {
    /// The number of links that are not acknowledged, of all sites.
    pub links: u64,
    /// The time at which the oldest of them was stored, by the broker's clock.
    pub oldest_at: Option<Timestamp>,
    /// The open sites, each with the number of its links that are delivered and not acknowledged.
    pub open_sites: Vec<(String, u64)>,
}

/// Work queues of links by site. A link stays in its queue until it is acknowledged. A site's links
/// are delivered to the last caller of [`open`](Self::open) only if all callers agree on who that
/// is: the queue does not check it.
pub trait WorkQueues: Send + Sync {
    /// Creates the queue if it is missing and this node may do so.
    fn ensure<'a>(&'a self, queue: &'a str) -> BoxFuture<'a, Result<(), TransportError>>;

    /// Appends a link of `site`. Returns false if the queue has seen this `id` in the last hour.
    fn enqueue<'a>(
        &'a self,
        queue: &'a str,
        site: &'a str,
        id: &'a str,
        body: Bytes,
    ) -> BoxFuture<'a, Result<bool, TransportError>>;

    /// Returns how much the queue holds.
    fn content<'a>(&'a self, queue: &'a str)
    -> BoxFuture<'a, Result<QueueContent, TransportError>>;

    /// Returns the sites with links that are not acknowledged, those of one shard or all.
    fn sites<'a>(
        &'a self,
        queue: &'a str,
        shard: Option<u8>,
    ) -> BoxFuture<'a, Result<QueueSites, TransportError>>;

    /// Returns the last position of a link that was delivered since the site was opened; 0 if it is
    /// not open.
    fn delivered<'a>(
        &'a self,
        queue: &'a str,
        site: &'a str,
    ) -> BoxFuture<'a, Result<u64, TransportError>>;

    /// Starts the delivery of a site over: every link that is not acknowledged is delivered again.
    fn open<'a>(
        &'a self,
        queue: &'a str,
        site: &'a str,
    ) -> BoxFuture<'a, Result<(), TransportError>>;

    /// Delivers at most `max` further links of an open site; none if there are none now. A site
    /// that is not open is [`TransportError::NoQueue`].
    fn pull<'a>(
        &'a self,
        queue: &'a str,
        site: &'a str,
        max: usize,
    ) -> BoxFuture<'a, Result<Vec<QueuedMessage>, TransportError>>;

    /// Removes a link from its queue, perhaps a moment later: see [`is_settled`](Self::is_settled).
    /// No error if it was removed before.
    fn acknowledge<'a>(
        &'a self,
        queue: &'a str,
        message: &'a QueuedMessage,
    ) -> BoxFuture<'a, Result<(), TransportError>>;

    /// Returns whether all links of an open site that were acknowledged have left the queue.
    /// Before, they may be delivered again when the site is opened. May return false without need.
    fn is_settled<'a>(
        &'a self,
        queue: &'a str,
        site: &'a str,
    ) -> BoxFuture<'a, Result<bool, TransportError>>;

    /// Ends the delivery of a site. Links that are not acknowledged stay in the queue.
    fn close<'a>(
        &'a self,
        queue: &'a str,
        site: &'a str,
    ) -> BoxFuture<'a, Result<(), TransportError>>;

    /// Returns what an operator sees of the queue. Its parts may be of different moments.
    fn statistics<'a>(
        &'a self,
        queue: &'a str,
    ) -> BoxFuture<'a, Result<QueueStatistics, TransportError>>;

    /// Removes all links, also those that are delivered. Returns their number. Their ids are known
    /// for the rest of their hour.
    fn purge<'a>(&'a self, queue: &'a str) -> BoxFuture<'a, Result<u64, TransportError>>;
}

/// The number of shards of a work queue's sites.
pub const QUEUE_SHARDS: u8 = 64;

/// Returns the shard of a site.
pub fn shard_of(site: &str) -> u8 {
    (xxhash_rust::xxh3::xxh3_64(site.as_bytes()) % u64::from(QUEUE_SHARDS)) as u8
}

/// Checks the name of a work queue: letters, digits and `-`.
///
/// # Errors
/// [`TransportError::Invalid`] for any other name.
pub fn check_queue_name(queue: &str) -> Result<(), TransportError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    match !queue.is_empty() && queue.len() <= 64 && queue.bytes().all(plain) {
        true => Ok(()),
        false => {
            let shown: String = queue.chars().take(64).collect();
            Err(TransportError::Invalid(format!(
                "{shown:?} is not a valid queue name: use at most 64 letters, digits and -"
            )))
        }
    }
}

/// A request to a node to publish positions of its log again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RetransmitRequest {
    /// The epoch of the positions.
    pub epoch: u32,
    /// The first missing position.
    pub first: u64,
    /// The last missing position.
    pub last: u64,
}

/// The maximum size of what one node has published since its last snapshot, in bytes. A node makes
/// a snapshot after a million attempts.
pub(crate) const MAX_PUBLISHED: usize = 256 << 20;

/// Returns the error for more than that.
pub(crate) fn too_much_published() -> TransportError {
    TransportError::Invalid(format!(
        "more than {} MiB of messages since its evidence snapshot",
        MAX_PUBLISHED >> 20
    ))
}

/// Returns whether a value is a response of a NATS broker. NATS does not check the subjects to
/// which clients have it send responses, so a node can place one in any cell, but with no content
/// of its choice.
pub fn is_broker_response(value: &[u8]) -> bool {
    let Ok(serde_json::Value::Object(fields)) = serde_json::from_slice(value) else { return false };
    let is_api = fields
        .get("type")
        .and_then(|kind| kind.as_str())
        .is_some_and(|kind| kind.starts_with("io.nats."));
    is_api
        || fields.contains_key("stream")
            && (fields.contains_key("seq") || fields.contains_key("error"))
        || fields.len() == 1 && fields.contains_key("error")
}

const NO_GLOBAL: &str = "this broker stores no global snapshots, which scope `own` needs";

/// The time after which a silent reader is checked.
const SILENCE: Duration = Duration::from_secs(2);

/// Calls `take` with what the stream held at these bounds, from `next` on. Lost messages are not
/// waited for, not even the last ones: two silent readers in a row, while the broker reports that
/// the stream exists, mean that nothing more comes.
async fn each_held<T: Transport + ?Sized>(
    transport: &T,
    bounds: StreamBounds,
    mut next: u64,
    take: &mut (dyn FnMut(NodeId, Bytes) -> Result<(), TransportError> + Send),
) -> Result<(), TransportError> {
    let anew = || TransportError::Away("the stream is being recreated".to_owned());
    let mut is_second = false;
    while next <= bounds.last {
        let mut all = transport.read(Position { incarnation: bounds.incarnation, seq: next });
        while next <= bounds.last
            && let Ok(Some(delivery)) = timeout(SILENCE, all.next()).await
        {
            match delivery? {
                Delivery::Message { node_id, position, body, .. } if position.seq >= next => {
                    (next, is_second) = (position.seq + 1, false);
                    // Newer messages are not needed.
                    if position.seq <= bounds.last {
                        take(node_id, body)?;
                    }
                }
                Delivery::Message { .. } => {}
                Delivery::Wiped(_) => return Err(anew()),
            }
        }
        if next <= bounds.last && transport.bounds().await?.incarnation != bounds.incarnation {
            return Err(anew());
        }
        if std::mem::replace(&mut is_second, true) {
            break;
        }
    }
    Ok(())
}

/// The broker. Every call is bounded in time and fails when the broker does not respond.
pub trait Transport: Send + Sync {
    /// Stores a message at least once. `id` is for the broker's duplicate window.
    fn publish<'a>(
        &'a self,
        node_id: NodeId,
        id: &'a str,
        body: Bytes,
    ) -> BoxFuture<'a, Result<Position, TransportError>>;

    /// Streams the messages from `from` on (or from the oldest one still stored), then new ones. A
    /// position of another incarnation gives [`Delivery::Wiped`] first. Continues over
    /// reconnections; ends with an error when the caller must start over.
    fn read(&self, from: Position) -> BoxStream<'_, Result<Delivery, TransportError>>;

    /// Returns the bounds of the stream.
    fn bounds(&self) -> BoxFuture<'_, Result<StreamBounds, TransportError>>;

    /// Returns the newest message of a node in the stream. Needed once, when a node joins. The
    /// default implementation reads the whole stream.
    fn newest(&self, node_id: NodeId) -> BoxFuture<'_, Result<Option<Bytes>, TransportError>> {
        async move {
            let (bounds, mut newest) = (self.bounds().await?, None);
            let mut take = |by, body| {
                newest = if by == node_id { Some(body) } else { newest.take() };
                Ok(())
            };
            each_held(self, bounds, bounds.first, &mut take).await?;
            Ok(newest)
        }
        .boxed()
    }

    /// Returns the messages of one node from `from` on that are still in the stream, up to now. The
    /// default implementation reads the messages of all nodes.
    fn published_by(
        &self,
        node_id: NodeId,
        from: Position,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, TransportError>> {
        async move {
            let (bounds, mut said, mut room) = (self.bounds().await?, Vec::new(), MAX_PUBLISHED);
            let from = if from.incarnation == bounds.incarnation {
                from.seq.max(bounds.first)
            } else {
                bounds.first
            };
            let mut take = |by, body: Bytes| {
                if by == node_id {
                    room = room.checked_sub(body.len()).ok_or_else(too_much_published)?;
                    said.push(body);
                }
                Ok(())
            };
            each_held(self, bounds, from, &mut take).await?;
            Ok(said)
        }
        .boxed()
    }

    /// Replaces the global snapshot of `node_id`. A broker without this feature refuses.
    fn publish_global(
        &self,
        node_id: NodeId,
        body: Bytes,
    ) -> BoxFuture<'_, Result<(), TransportError>> {
        let _ = (node_id, body);
        async { Err(TransportError::Refused(NO_GLOBAL.to_owned())) }.boxed()
    }

    /// Streams the newest global snapshot of each node, then new ones. Continues over
    /// reconnections; ends with an error when the caller must start over.
    fn global_snapshots(&self) -> BoxStream<'_, Result<GlobalDelivery, TransportError>> {
        futures_util::stream::iter([Err(TransportError::Refused(NO_GLOBAL.to_owned()))]).boxed()
    }

    /// Returns the time by the broker's clock; none if it does not report it.
    fn now(&self) -> BoxFuture<'_, Result<Option<Timestamp>, TransportError>> {
        async { Ok(None) }.boxed()
    }

    /// Returns the cells.
    fn cells(&self) -> &dyn Cells;

    /// Returns the blobs.
    fn blobs(&self) -> &dyn Blobs;

    /// Returns the work queues; none if this broker has none.
    fn work_queues(&self) -> Option<&dyn WorkQueues> {
        None
    }

    /// Sends a retransmit request to a node. It may get lost.
    fn signal(
        &self,
        to: NodeId,
        want: RetransmitRequest,
    ) -> BoxFuture<'_, Result<(), TransportError>>;

    /// Streams the retransmit requests to `own`.
    fn signals(&self, own: NodeId) -> BoxStream<'_, Result<RetransmitRequest, TransportError>>;

    /// Returns whether the node is connected, as far as is known.
    fn is_up(&self) -> bool;
}

/// The reason why a broker call failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The broker does not respond, or not in time. It may later.
    #[error("the broker does not respond: {0}")]
    Away(String),
    /// The streams do not exist.
    #[error("the fleet's streams are missing ({0}): `fetchwise fleet init` creates them")]
    Missing(String),
    /// The work queue does not exist.
    #[error("queue {0} is missing: `fetchwise fleet enqueue --queue {0} FILE` creates it")]
    NoQueue(String),
    /// The broker denies permission.
    #[error("the broker refused: {0}")]
    Refused(String),
    /// A stored or received value is invalid.
    #[error("invalid setting or response of the broker: {0}")]
    Invalid(String),
}

impl TransportError {
    /// Returns whether trying again does not help: somebody has to change something first.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Away(_) => false,
            Self::Missing(_) | Self::NoQueue(_) | Self::Refused(_) | Self::Invalid(_) => true,
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.incarnation, self.seq)
    }
}
