//! Blobs as messages of one stream: a head and chunks, on subjects that hold the blob's name.
//!
//! The stream keeps the newest message of each subject. A blob has two slots, and its head names
//! the one that counts. A new blob goes to the other slot, so that the earlier one stays whole
//! until the new head is stored. Nothing needs the right to purge a stream or to roll it up, and
//! permissions by subject let a node write its own blob only.
//!
//! Invariants: a returned blob is whole, by its length and checksum.
//!
//! Must not know: the content of blobs.

use std::collections::HashMap;
use std::time::Duration;

use async_nats::header::{HeaderMap, NATS_EXPECTED_STREAM};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use xxhash_rust::xxh3::xxh3_64;

use super::Nats;
use super::error::{StoreError, api_error};
use crate::transport::nats::stream_reader::{StreamEvent, StreamReader};
use crate::transport::{BlobInfo, Blobs, TransportError};

/// The maximum length of a note in bytes.
const MAX_NOTE: usize = 1024;
/// The maximum length of a head in bytes.
const MAX_HEAD: usize = 16 << 10;
/// The length of a chunk; the last one is shorter.
const CHUNK: u64 = 512 << 10;
/// The maximum number of old chunks that are cleared; a head may claim any number.
const MAX_CLEARED: u64 = 4096;
/// The number of chunks that are stored at once.
const MAX_IN_FLIGHT: usize = 4;
/// The minimum transfer rate in bytes per second; it extends the timeout of a call.
const MIN_BYTES_PER_SECOND: u64 = 1 << 20;
/// The number of times that a blob is read which changes meanwhile.
const READS: u32 = 3;

/// The head of a blob.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    note: String,
    len: u64,
    /// The XXH3-64 of the content.
    xxh3: u64,
    /// The slot with the content, and the number of chunks in each.
    slot: usize,
    chunks: [u64; 2],
}

impl Head {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let head: Self = if bytes.len() > MAX_HEAD {
            return None;
        } else {
            serde_json::from_slice(bytes).ok()?
        };
        (head.slot < 2 && head.note.len() <= MAX_NOTE).then_some(head)
    }
}

impl Nats {
    fn transfer(&self, bytes: u64) -> Duration {
        self.connection.settings.timeout + Duration::from_secs(bytes / MIN_BYTES_PER_SECOND)
    }

    /// Returns the head of a blob; none if there is none.
    async fn head(&self, name: &str) -> Result<Option<Head>, TransportError> {
        let names = &self.connection.names;
        let last =
            self.connection.last_of(&names.snapshot_stream(), &names.blob_head(name)).await?;
        Ok(last.and_then(|message| Head::decode(&message.payload)))
    }

    async fn store_part(&self, subject: String, body: Bytes) -> Result<(), TransportError> {
        let stream = self.connection.names.snapshot_stream();
        let mut headers = HeaderMap::new();
        headers.insert(NATS_EXPECTED_STREAM, stream.as_str());
        match self.connection.store(subject, headers, body, &stream).await {
            Ok(_) => Ok(()),
            Err(StoreError::NoListener) => Err(self.connection.no_listener(&stream).await),
            Err(StoreError::WrongRevision) => {
                Err(TransportError::Invalid("an unexpected revision check".to_owned()))
            }
            Err(StoreError::Failed(error)) => Err(error),
        }
    }

    async fn store_blob(&self, name: &str, note: &str, body: Bytes) -> Result<(), TransportError> {
        let before = self.head(name).await?;
        let slot = before.as_ref().map_or(0, |head| 1 - head.slot);
        let mut chunks = before.map_or([0; 2], |head| head.chunks);
        let parts: Vec<Bytes> =
            body.chunks(CHUNK as usize).map(|chunk| body.slice_ref(chunk)).collect();
        let count = parts.len() as u64;
        // A longer blob may have left parts in the slot, which nothing else removes.
        let cleared = count..chunks[slot].min(count.saturating_add(MAX_CLEARED));
        chunks[slot] = count;
        let all = (0..).zip(parts).chain(cleared.map(|index| (index, Bytes::new())));
        let names = &self.connection.names;
        let storing =
            all.map(|(index, part)| self.store_part(names.blob_chunk(name, slot, index), part));
        stream::iter(storing).buffer_unordered(MAX_IN_FLIGHT).try_collect::<()>().await?;
        let head = Head {
            note: note.to_owned(),
            len: body.len() as u64,
            xxh3: xxh3_64(&body),
            slot,
            chunks,
        };
        // Numbers and texts always serialise.
        let head = serde_json::to_vec(&head).unwrap_or_default();
        self.store_part(names.blob_head(name), head.into()).await
    }

    /// Reads the content that a head describes; none if it is not there as a whole.
    async fn content(&self, name: &str, head: &Head) -> Result<Option<Bytes>, TransportError> {
        let names = &self.connection.names;
        let mut parts = vec![Bytes::new(); usize::try_from(parts_of(head.len)).unwrap_or_default()];
        if !parts.is_empty() {
            let filter = names.blob_chunks(name, head.slot);
            let mut reader =
                StreamReader::newest(&self.connection, names.snapshot_stream(), filter);
            let mut pending = reader.open().await?.1;
            while pending > 0 {
                let StreamEvent::Message(message) = reader.next().await? else { return Ok(None) };
                pending = message.pending;
                let part =
                    names.chunk_index(&message.subject).and_then(|index| parts.get_mut(index));
                if let Some(part) = part {
                    *part = message.body;
                }
            }
        }
        let body = Bytes::from(parts.concat());
        Ok((body.len() as u64 == head.len && xxh3_64(&body) == head.xxh3).then_some(body))
    }

    async fn read_blob(&self, name: &str, max: u64) -> Result<Option<Bytes>, TransportError> {
        for _ in 0..READS {
            let Some(head) = self.head(name).await? else { return Ok(None) };
            if head.len > max {
                let len = head.len;
                return Err(TransportError::Invalid(format!(
                    "{name} has {len} bytes, more than the limit of {max}"
                )));
            }
            let reading = timeout(self.transfer(head.len), self.content(name, &head)).await;
            let late = |_| TransportError::Away(format!("reading {name} timed out"));
            if let Some(body) = reading.map_err(late)?? {
                return Ok(Some(body));
            }
            // It was replaced meanwhile, or a replica is behind.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Err(TransportError::Away(format!("{name} is not there as a whole")))
    }

    async fn infos(&self) -> Result<Vec<BlobInfo>, TransportError> {
        let names = &self.connection.names;
        let mut reader =
            StreamReader::newest(&self.connection, names.snapshot_stream(), names.blob_heads());
        let (mut all, mut pending) = (HashMap::new(), reader.open().await?.1);
        while pending > 0 {
            let StreamEvent::Message(message) = reader.next().await? else {
                return Err(TransportError::Away(
                    "the listing of evidence snapshots was interrupted".to_owned(),
                ));
            };
            pending = message.pending;
            let Some(name) = names.blob_of_head(&message.subject) else { continue };
            match Head::decode(&message.body) {
                Some(head) => {
                    all.insert(name.clone(), BlobInfo { name, note: head.note, len: head.len })
                }
                None => all.remove(&name),
            };
        }
        Ok(all.into_values().collect())
    }
}

/// Returns the number of chunks of a blob.
fn parts_of(len: u64) -> u64 {
    len.div_ceil(CHUNK)
}

impl Blobs for Nats {
    fn put<'a>(
        &'a self,
        name: &'a str,
        note: &'a str,
        body: Bytes,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            if note.len() > MAX_NOTE {
                return Err(TransportError::Invalid(format!(
                    "a note of {} bytes is too long",
                    note.len()
                )));
            }
            self.connection.connected()?;
            let putting =
                timeout(self.transfer(body.len() as u64), self.store_blob(name, note, body)).await;
            putting.map_err(|_| TransportError::Away(format!("storing {name} timed out")))?
        })
    }

    fn get<'a>(
        &'a self,
        name: &'a str,
        max: u64,
    ) -> BoxFuture<'a, Result<Option<Bytes>, TransportError>> {
        Box::pin(self.read_blob(name, max))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<BlobInfo>, TransportError>> {
        Box::pin(async move {
            let listed = timeout(self.connection.settings.timeout * 4, self.infos()).await;
            listed.map_err(|_| {
                TransportError::Away("the listing of evidence snapshots timed out".to_owned())
            })?
        })
    }

    fn delete<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            if self.head(name).await?.is_none() {
                return Ok(());
            }
            let stream = self.connection.names.snapshot_stream();
            let filter = serde_json::json!({ "filter": self.connection.names.blob_parts(name) });
            let subject = format!("STREAM.PURGE.{stream}");
            let purged = self
                .connection
                .api_request::<serde_json::Value>(&subject, &filter, &stream)
                .await?;
            purged.map(drop).map_err(|error| api_error(&error, &stream))
        })
    }
}
