//! The stream of global snapshots, which keeps the newest message of each node's subject.
//!
//! Must not know: the content of a snapshot.

use std::time::Duration;

use async_nats::header::{HeaderMap, NATS_EXPECTED_STREAM};
use async_nats::jetstream::stream::{Config, DiscardPolicy};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};

use super::error::NotStored;
use super::names::Names;
use super::{AGAIN, Nats};
use crate::model::node_id::Origin;
use crate::transport::nats::connection::Link;
use crate::transport::nats::stream_reader::{Came, Tail};
use crate::transport::{General, TransportError};

/// The time for which the snapshot of a node that has gone is kept: the same as for attempts.
const MAX_AGE: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// Returns the configuration of the stream; the rest is `common`.
pub(super) fn wanted(names: &Names, max_message: i32, common: &Config) -> Config {
    Config {
        name: names.general_stream(),
        description: Some("What belongs to no one site, of each node of a fetchwise pool of scope own".to_owned()),
        subjects: vec![names.generals()],
        discard: DiscardPolicy::Old,
        max_age: MAX_AGE,
        max_messages_per_subject: 1,
        max_message_size: max_message,
        duplicate_window: Duration::from_secs(120),
        deny_delete: true,
        ..common.clone()
    }
}

impl Nats {
    /// Replaces the global snapshot of a node.
    pub(super) async fn store_general(&self, origin: Origin, body: Bytes) -> Result<(), TransportError> {
        let stream = self.link.names.general_stream();
        let mut headers = HeaderMap::new();
        headers.insert(NATS_EXPECTED_STREAM, stream.as_str());
        headers.insert("Fw-Version", "1");
        match self.link.store(self.link.names.general_of(origin), headers, body, &stream).await {
            Ok(_) => Ok(()),
            Err(NotStored::Nobody) => Err(self.link.nobody(&stream).await),
            Err(NotStored::Overtaken) => Err(TransportError::Invalid("a condition that nobody has set".to_owned())),
            Err(NotStored::Failed(error)) => Err(error),
        }
    }

    /// Streams the newest snapshot of each node, then new ones.
    pub(super) fn read_generals(&self) -> BoxStream<'_, Result<General, TransportError>> {
        let reader = Reader { link: &self.link, tail: None, is_read: false };
        stream::unfold(Some(reader), |reader| async move {
            let mut reader = reader?;
            loop {
                match reader.next().await {
                    Ok(came) => return Some((Ok(came), Some(reader))),
                    Err(TransportError::Away(_)) => tokio::time::sleep(AGAIN).await,
                    Err(error) => return Some((Err(error), None)),
                }
            }
        })
        .boxed()
    }
}

struct Reader<'l> {
    link: &'l Link,
    tail: Option<Tail<'l>>,
    /// All stored snapshots were delivered, and the reader has not been told yet.
    is_read: bool,
}

impl Reader<'_> {
    async fn next(&mut self) -> Result<General, TransportError> {
        if std::mem::take(&mut self.is_read) {
            return Ok(General::Read);
        }
        let names = &self.link.names;
        let tail = match &mut self.tail {
            Some(tail) => tail,
            None => {
                let mut tail = Tail::newest(self.link, names.general_stream(), names.generals());
                let (_, pending) = tail.open().await?;
                let tail = self.tail.insert(tail);
                if pending == 0 {
                    return Ok(General::Read);
                }
                tail
            }
        };
        loop {
            match tail.next().await? {
                Came::Message(message) => {
                    self.is_read = message.pending == 0;
                    // A subject without a valid node id belongs to no node: the broker's permissions let no node write
                    // there.
                    match names.origin_of_general(&message.subject) {
                        Some(origin) => return Ok(General::Image { origin, at: message.at, body: message.body }),
                        None if std::mem::take(&mut self.is_read) => return Ok(General::Read),
                        None => {}
                    }
                }
                Came::Anew(_) => return Ok(General::Wiped),
                Came::Silence(_) => return Ok(General::Read),
            }
        }
    }
}
