//! What a fleet asks of a broker: a stream of messages that is kept for a while, cells that are swapped, and blobs.
//!
//! Owns: the words for it. Invariant: nothing here is promised that a broker under failure breaks: a message that was published may
//! be lost, doubled or delivered out of order, and whoever reads must be right all the same. Must not know: what a message says, or
//! which broker it is.

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

use crate::model::node_id::Origin;

/// A place in the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Which stream: another number for each time that it was made anew.
    pub incarnation: u64,
    /// Which message of it, from 1 on.
    pub seq: u64,
}

/// What the stream holds now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Which stream: see [`Position::incarnation`].
    pub incarnation: u64,
    /// The oldest message that is still there; one more than `last` where there is none.
    pub first: u64,
    /// The newest message; 0 where there has been none.
    pub last: u64,
    /// When the oldest message came, by the broker's clock.
    pub first_at: Option<Timestamp>,
}

/// What comes out of the stream.
#[derive(Clone, Debug)]
pub enum Delivery {
    /// A message.
    Message {
        /// Whose it is, by what the broker guards: never by what the message says.
        origin: Origin,
        /// Where it stands.
        position: Position,
        /// When the broker stored it, by its clock.
        at: Timestamp,
        /// What it says.
        body: Bytes,
    },
    /// The stream is another one now: what was published before may be gone. Reading goes on with its first message.
    Wiped(Bounds),
}

/// What comes of images of what belongs to no one site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum General {
    /// A node's newest.
    Image {
        /// Whose it is, by what the broker guards.
        origin: Origin,
        /// When the broker stored it, by its clock.
        at: Timestamp,
        /// What it says.
        body: Bytes,
    },
    /// All that there is has come. Said again whenever that is so.
    Read,
    /// What was there is gone: whoever has said something says it again.
    Wiped,
}

/// The tables of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Table {
    /// Hosts that are paused, and trials. Kept for 48 hours.
    Hosts,
    /// Domains that were forgotten. Kept for 400 days.
    Forget,
    /// What nodes say of themselves. Kept for ten minutes; who is there says so more often.
    Nodes,
    /// Nodes whose evidence does not count. Kept.
    Excluded,
}

impl Table {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Hosts, Self::Forget, Self::Nodes, Self::Excluded];

    /// Its name among the broker's.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hosts => "hosts",
            Self::Forget => "forget",
            Self::Nodes => "nodes",
            Self::Excluded => "excluded",
        }
    }
}

/// What a cell holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// What was put there.
    pub value: Bytes,
    /// Another number for each change, greater than those before.
    pub revision: u64,
    /// When the broker stored it, by its clock.
    pub at: Timestamp,
}

/// One change of a cell, as a watcher sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which cell: any text.
    pub key: String,
    /// What it holds; none: it was deleted, or has aged out.
    pub cell: Option<Cell>,
    /// Of which revision that is: the cell's, or its deletion's; of one that has aged out, the last that it had.
    pub revision: u64,
}

/// What came of a swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swapped {
    /// It holds the new value, by this revision.
    Done(u64),
    /// Somebody was faster: it holds this, or nothing.
    Lost(Option<Cell>),
}

/// Cells that change by compare-and-swap. Keys are any text of at most 512 bytes.
pub trait Cells: Send + Sync {
    /// What it holds now, by a majority of the brokers.
    fn get<'a>(&'a self, table: Table, key: &'a str) -> BoxFuture<'a, Result<Option<Cell>, TransportError>>;

    /// Puts `value` in where the cell is as the caller has seen it: at revision `seen`, or empty.
    fn swap<'a>(
        &'a self,
        table: Table,
        key: &'a str,
        seen: Option<u64>,
        value: Bytes,
    ) -> BoxFuture<'a, Result<Swapped, TransportError>>;

    /// Puts `value` in whatever is there.
    fn put<'a>(&'a self, table: Table, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<u64, TransportError>>;

    /// Empties it where it is at revision `seen`, and whatever is there where `seen` is none.
    fn delete<'a>(
        &'a self,
        table: Table,
        key: &'a str,
        seen: Option<u64>,
    ) -> BoxFuture<'a, Result<Swapped, TransportError>>;

    /// All that there is, then what changes. Ends with an error when the broker is gone; the caller watches anew.
    fn watch(&self, table: Table) -> BoxStream<'_, Result<Change, TransportError>>;

    /// All that there is.
    fn list(&self, table: Table) -> BoxFuture<'_, Result<Vec<(String, Cell)>, TransportError>>;

    /// Which table it is: another number for each time that it was made anew, and all that it held was lost. None where the broker
    /// does not say.
    fn incarnation(&self, table: Table) -> BoxFuture<'_, Result<Option<u64>, TransportError>> {
        let _ = table;
        async { Ok(None) }.boxed()
    }
}

/// A blob that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobInfo {
    /// Its name.
    pub name: String,
    /// What was said of it when it was put, of at most 1 KiB.
    pub note: String,
    /// In bytes.
    pub len: u64,
}

/// Large things by name. Putting one again replaces it as a whole.
pub trait Blobs: Send + Sync {
    /// Puts one.
    fn put<'a>(&'a self, name: &'a str, note: &'a str, body: Bytes) -> BoxFuture<'a, Result<(), TransportError>>;

    /// One of at most `max` bytes, or none where there is none by that name.
    fn get<'a>(&'a self, name: &'a str, max: u64) -> BoxFuture<'a, Result<Option<Bytes>, TransportError>>;

    /// All that there are.
    fn list(&self) -> BoxFuture<'_, Result<Vec<BlobInfo>, TransportError>>;

    /// Deletes one; no error where there is none.
    fn delete<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), TransportError>>;
}

/// "I miss these positions of your log": asked of an origin by who has a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Want {
    /// Of which history of it.
    pub epoch: u32,
    /// The first that is missing.
    pub first: u64,
    /// The last.
    pub last: u64,
}

/// What one origin has published since its share takes no more bytes than this: a share is made after a million facts.
pub(crate) const MAX_SAID: usize = 256 << 20;

/// Why no more of it is read.
pub(crate) fn too_much_said() -> TransportError {
    TransportError::Invalid(format!("more than {} MiB since its share", MAX_SAID >> 20))
}

const NO_GENERAL: &str = "this broker keeps no general images, which scope `own` needs";

/// A reader that says nothing for so long is looked into.
const SILENCE: Duration = Duration::from_secs(2);

/// Shows `take` what the stream held when it had these bounds, from the place `next` on. Messages that are gone, the last ones too, are not
/// waited for: where two readers one after the other are silent, while the broker says that the stream is there, nothing more comes.
async fn each_held<T: Transport + ?Sized>(
    transport: &T,
    bounds: Bounds,
    mut next: u64,
    take: &mut (dyn FnMut(Origin, Bytes) -> Result<(), TransportError> + Send),
) -> Result<(), TransportError> {
    let anew = || TransportError::Away("the stream is being made anew".to_owned());
    let mut is_second = false;
    while next <= bounds.last {
        let mut all = transport.read(Position { incarnation: bounds.incarnation, seq: next });
        while next <= bounds.last
            && let Ok(Some(delivery)) = timeout(SILENCE, all.next()).await
        {
            match delivery? {
                Delivery::Message { origin, position, body, .. } if position.seq >= next => {
                    (next, is_second) = (position.seq + 1, false);
                    // What has come since is not asked for.
                    if position.seq <= bounds.last {
                        take(origin, body)?;
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

/// The broker. Everything is bounded in time: a call that cannot be answered fails.
pub trait Transport: Send + Sync {
    /// Stores a message, at least once. `id` is for the broker's duplicate window.
    fn publish<'a>(
        &'a self,
        origin: Origin,
        id: &'a str,
        body: Bytes,
    ) -> BoxFuture<'a, Result<Position, TransportError>>;

    /// What was published, from `from` on (or from the oldest that is still there), then what comes. A position of another
    /// incarnation than the stream's gives [`Delivery::Wiped`] first. Goes on over reconnections; ends with an error when the caller
    /// must begin again.
    fn read(&self, from: Position) -> BoxStream<'_, Result<Delivery, TransportError>>;

    /// What the stream holds.
    fn bounds(&self) -> BoxFuture<'_, Result<Bounds, TransportError>>;

    /// The newest message of an origin that is in the stream. Asked once, when a node joins. What this does unless a broker has a
    /// better way reads the whole stream.
    fn newest(&self, origin: Origin) -> BoxFuture<'_, Result<Option<Bytes>, TransportError>> {
        async move {
            let (bounds, mut newest) = (self.bounds().await?, None);
            let mut take = |by, body| {
                newest = if by == origin { Some(body) } else { newest.take() };
                Ok(())
            };
            each_held(self, bounds, bounds.first, &mut take).await?;
            Ok(newest)
        }
        .boxed()
    }

    /// What one origin has published from `from` on, as far as it is still in the stream; ends with what there is now. What this does
    /// unless a broker has a better way reads what all have.
    fn said_by(&self, origin: Origin, from: Position) -> BoxFuture<'_, Result<Vec<Bytes>, TransportError>> {
        async move {
            let (bounds, mut said, mut room) = (self.bounds().await?, Vec::new(), MAX_SAID);
            let from = if from.incarnation == bounds.incarnation { from.seq.max(bounds.first) } else { bounds.first };
            let mut take = |by, body: Bytes| {
                if by == origin {
                    room = room.checked_sub(body.len()).ok_or_else(too_much_said)?;
                    said.push(body);
                }
                Ok(())
            };
            each_held(self, bounds, from, &mut take).await?;
            Ok(said)
        }
        .boxed()
    }

    /// Puts `body` in the place of what `origin` has said last of what belongs to no one site. A broker without this refuses.
    fn put_general(&self, origin: Origin, body: Bytes) -> BoxFuture<'_, Result<(), TransportError>> {
        let _ = (origin, body);
        async { Err(TransportError::Refused(NO_GENERAL.to_owned())) }.boxed()
    }

    /// The newest that each origin has said of it, then what comes. Goes on over reconnections; ends with an error when the caller must
    /// begin again.
    fn generals(&self) -> BoxStream<'_, Result<General, TransportError>> {
        futures_util::stream::iter([Err(TransportError::Refused(NO_GENERAL.to_owned()))]).boxed()
    }

    /// The time by the broker's clock; none where it does not say.
    fn now(&self) -> BoxFuture<'_, Result<Option<Timestamp>, TransportError>> {
        async { Ok(None) }.boxed()
    }

    /// The cells.
    fn cells(&self) -> &dyn Cells;

    /// The blobs.
    fn blobs(&self) -> &dyn Blobs;

    /// Tells an origin what is wanted of it. May get lost.
    fn signal(&self, to: Origin, want: Want) -> BoxFuture<'_, Result<(), TransportError>>;

    /// What is wanted of `own`.
    fn signals(&self, own: Origin) -> BoxStream<'_, Result<Want, TransportError>>;

    /// Whether it is connected, as far as is known.
    fn is_up(&self) -> bool;
}

/// Why a broker could not.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// It does not answer, or not in time: it may later.
    #[error("the broker does not answer: {0}")]
    Away(String),
    /// The streams are not there.
    #[error("the fleet's streams are not there ({0}): `fetchwise fleet init` makes them")]
    Missing(String),
    /// It does not let this node.
    #[error("the broker refuses it: {0}")]
    Refused(String),
    /// What it holds or says cannot be.
    #[error("the broker's answer makes no sense: {0}")]
    Invalid(String),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.incarnation, self.seq)
    }
}
