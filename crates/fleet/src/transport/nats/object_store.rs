//! Blobs as objects of JetStream's object store.
//!
//! Invariants: a returned blob is whole, by its checksum.
//!
//! Must not know: the content of blobs.

use std::collections::HashMap;
use std::time::Duration;

use async_nats::jetstream::object_store::{DeleteErrorKind, GetErrorKind, InfoErrorKind};
use async_nats::jetstream::object_store::{ObjectInfo, ObjectMetadata, ObjectStore};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::Nats;
use super::error::other_error;
use crate::transport::nats::stream_reader::{StreamEvent, StreamReader};
use crate::transport::{BlobInfo, Blobs, TransportError};

/// The maximum length of a note in bytes.
const MAX_NOTE: usize = 1024;
/// The minimum transfer rate in bytes per second; it extends the timeout of a call.
const MIN_BYTES_PER_SECOND: u64 = 1 << 20;

impl Nats {
    async fn store(&self) -> Result<ObjectStore, TransportError> {
        // Checked each time, because the store may have been created again.
        self.connection.bounds_of(&self.connection.names.snapshot_store_stream()).await?;
        let name = self.connection.names.snapshot_store();
        self.connection.js.get_object_store(&name).await.map_err(|error| other_error(&error, &name))
    }

    fn transfer(&self, bytes: u64) -> Duration {
        self.connection.settings.timeout + Duration::from_secs(bytes / MIN_BYTES_PER_SECOND)
    }

    async fn fetch(&self, name: &str, max: u64) -> Result<Option<Bytes>, TransportError> {
        let mut object = match self.store().await?.get(name).await {
            Ok(object) => object,
            Err(error) if error.kind() == GetErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(other_error(&error, name)),
        };
        let size = object.info.size as u64;
        if size > max {
            return Err(TransportError::Invalid(format!("{name} has {size} bytes, more than the limit of {max}")));
        }
        let mut body = Vec::with_capacity(object.info.size);
        let mut bounded = (&mut object).take(max + 1);
        let read = timeout(self.transfer(size), bounded.read_to_end(&mut body)).await;
        let read = read.map_err(|_| TransportError::Away(format!("reading {name} timed out")))?;
        // The digest is compared at the end.
        read.map_err(|error| other_error(&error, name))?;
        if body.len() as u64 != size {
            return Err(TransportError::Away(format!("{name} is truncated: {} of {size} bytes", body.len())));
        }
        Ok(Some(body.into()))
    }

    async fn infos(&self) -> Result<Vec<BlobInfo>, TransportError> {
        let names = &self.connection.names;
        let mut reader = StreamReader::newest(
            &self.connection,
            names.snapshot_store_stream(),
            format!("$O.{}.M.>", names.snapshot_store()),
        );
        let (mut all, mut pending) = (HashMap::new(), reader.open().await?.1);
        while pending > 0 {
            let StreamEvent::Message(message) = reader.next().await? else {
                return Err(TransportError::Away("the listing of evidence snapshots was interrupted".to_owned()));
            };
            pending = message.pending;
            // Other clients may have stored anything there.
            let Ok(info) = serde_json::from_slice::<ObjectInfo>(&message.body) else { continue };
            if info.deleted {
                all.remove(&info.name);
            } else {
                let note = info.description.filter(|note| note.len() <= MAX_NOTE).unwrap_or_default();
                all.insert(info.name.clone(), BlobInfo { name: info.name, note, len: info.size as u64 });
            }
        }
        Ok(all.into_values().collect())
    }
}

impl Blobs for Nats {
    fn put<'a>(&'a self, name: &'a str, note: &'a str, body: Bytes) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            if note.len() > MAX_NOTE {
                return Err(TransportError::Invalid(format!("a note of {} bytes is too long", note.len())));
            }
            self.connection.connected()?;
            let meta =
                ObjectMetadata { name: name.to_owned(), description: Some(note.to_owned()), ..Default::default() };
            let store = self.store().await?;
            let mut reader = &body[..];
            let putting = timeout(self.transfer(body.len() as u64), store.put(meta, &mut reader)).await;
            let put = putting.map_err(|_| TransportError::Away(format!("storing {name} timed out")))?;
            put.map(drop).map_err(|error| other_error(&error, name))
        })
    }

    fn get<'a>(&'a self, name: &'a str, max: u64) -> BoxFuture<'a, Result<Option<Bytes>, TransportError>> {
        Box::pin(self.fetch(name, max))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<BlobInfo>, TransportError>> {
        Box::pin(async move {
            let listed = timeout(self.connection.settings.timeout * 4, self.infos()).await;
            listed.map_err(|_| TransportError::Away("the listing of evidence snapshots timed out".to_owned()))?
        })
    }

    fn delete<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let store = self.store().await?;
            // A second deletion would leave a second tombstone.
            match store.info(name).await {
                Ok(info) if info.deleted => return Ok(()),
                Err(error) if error.kind() == InfoErrorKind::NotFound => return Ok(()),
                _ => {}
            }
            match store.delete(name).await {
                Err(error) if error.kind() != DeleteErrorKind::NotFound => Err(other_error(&error, name)),
                _ => Ok(()),
            }
        })
    }
}
