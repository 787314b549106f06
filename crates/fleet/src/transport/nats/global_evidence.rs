//! The stream of global snapshots, which keeps the newest message of each node's subject.
//!
//! Must not know: the content of a snapshot.

use async_nats::header::{HeaderMap, NATS_EXPECTED_STREAM};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};

use super::error::StoreError;
use super::{Nats, RETRY_INTERVAL};
use crate::model::node_id::NodeId;
use crate::transport::nats::connection::Connection;
use crate::transport::nats::stream_reader::{StreamEvent, StreamReader};
use crate::transport::{GlobalDelivery, TransportError};

impl Nats {
    /// Replaces the global snapshot of a node.
    pub(super) async fn store_global(
        &self,
        node_id: NodeId,
        body: Bytes,
    ) -> Result<(), TransportError> {
        let stream = self.connection.names.global_stream();
        let mut headers = HeaderMap::new();
        headers.insert(NATS_EXPECTED_STREAM, stream.as_str());
        headers.insert("Fw-Version", "1");
        match self
            .connection
            .store(self.connection.names.global_subject(node_id), headers, body, &stream)
            .await
        {
            Ok(_) => Ok(()),
            Err(StoreError::NoListener) => Err(self.connection.no_listener(&stream).await),
            Err(StoreError::WrongRevision) => {
                Err(TransportError::Invalid("an unexpected revision check".to_owned()))
            }
            Err(StoreError::Failed(error)) => Err(error),
        }
    }

    /// Streams the newest snapshot of each node, then new ones.
    pub(super) fn read_global(&self) -> BoxStream<'_, Result<GlobalDelivery, TransportError>> {
        let reader = Reader { connection: &self.connection, reader: None, is_read: false };
        stream::unfold(Some(reader), |reader| async move {
            let mut reader = reader?;
            loop {
                match reader.next().await {
                    Ok(event) => return Some((Ok(event), Some(reader))),
                    Err(TransportError::Away(_)) => tokio::time::sleep(RETRY_INTERVAL).await,
                    Err(error) => return Some((Err(error), None)),
                }
            }
        })
        .boxed()
    }
}

struct Reader<'l> {
    connection: &'l Connection,
    reader: Option<StreamReader<'l>>,
    /// All stored snapshots were delivered, and the reader has not been told yet.
    is_read: bool,
}

impl Reader<'_> {
    async fn next(&mut self) -> Result<GlobalDelivery, TransportError> {
        if std::mem::take(&mut self.is_read) {
            return Ok(GlobalDelivery::CaughtUp);
        }
        let names = &self.connection.names;
        let reader = match &mut self.reader {
            Some(reader) => reader,
            None => {
                let mut reader = StreamReader::newest(
                    self.connection,
                    names.global_stream(),
                    names.global_subjects(),
                );
                let (_, pending) = reader.open().await?;
                let reader = self.reader.insert(reader);
                if pending == 0 {
                    return Ok(GlobalDelivery::CaughtUp);
                }
                reader
            }
        };
        loop {
            match reader.next().await? {
                StreamEvent::Message(message) => {
                    self.is_read = message.pending == 0;
                    // A subject without a valid node id belongs to no node: the broker's
                    // permissions let no node write there.
                    match names.node_of_global(&message.subject) {
                        Some(node_id) => {
                            return Ok(GlobalDelivery::Snapshot {
                                node_id,
                                at: message.at,
                                body: message.body,
                            });
                        }
                        None if std::mem::take(&mut self.is_read) => {
                            return Ok(GlobalDelivery::CaughtUp);
                        }
                        None => {}
                    }
                }
                StreamEvent::Recreated(_) => return Ok(GlobalDelivery::Wiped),
                StreamEvent::Idle(_) => return Ok(GlobalDelivery::CaughtUp),
            }
        }
    }
}
