//! Cells as keys of JetStream's key-value buckets.
//!
//! Invariants: a cell is read from its stream's leader, never from a replica that may be behind. A
//! swap is the broker's own comparison of the key's last message.
//!
//! Must not know: the content of cells.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use async_nats::header::{HeaderMap, NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_EXPECTED_STREAM};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};

use super::Nats;
use super::error::StoreError;
use crate::transport::nats::connection::Connection;
use crate::transport::nats::provision::max_age;
use crate::transport::nats::stream_info::timestamp;
use crate::transport::nats::stream_reader::{Message, StreamEvent, StreamReader};
use crate::transport::{Cell, Cells, Change, StreamBounds, SwapOutcome, Table, TransportError};

/// The maximum length of a key in bytes.
const MAX_KEY: usize = 512;
/// The interval at which a table is checked for cells that have aged out.
const AGE_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The last message of a key.
enum LastMessage {
    Nothing,
    Deleted(u64),
    Held(Cell),
}

impl Connection {
    async fn last(&self, table: Table, key: &str) -> Result<LastMessage, TransportError> {
        let (subject, name) = (self.cell_subject(table, key)?, self.names.bucket_stream(table));
        let Some(message) = self.last_of(&name, &subject).await? else {
            return Ok(LastMessage::Nothing);
        };
        let header =
            |header: &str| message.headers.get(header).map(|value| value.as_str().to_owned());
        let is_deleted = header("Nats-Marker-Reason").is_some()
            || header("KV-Operation").is_some_and(|what| what == "DEL" || what == "PURGE");
        Ok(if is_deleted {
            LastMessage::Deleted(message.sequence)
        } else {
            LastMessage::Held(Cell {
                value: message.payload,
                revision: message.sequence,
                at: timestamp(message.time),
            })
        })
    }

    fn cell_subject(&self, table: Table, key: &str) -> Result<String, TransportError> {
        if key.len() > MAX_KEY {
            return Err(TransportError::Invalid(format!(
                "a cell key of {} bytes is too long",
                key.len()
            )));
        }
        Ok(self.names.cell(table, key))
    }

    /// Writes a cell; only at revision `seen`, if it is given.
    async fn write(
        &self,
        table: Table,
        key: &str,
        seen: Option<u64>,
        operation: Option<&'static str>,
        value: Bytes,
    ) -> Result<u64, StoreError> {
        let subject = self.cell_subject(table, key).map_err(StoreError::Failed)?;
        let name = self.names.bucket_stream(table);
        let mut headers = HeaderMap::new();
        headers.insert(NATS_EXPECTED_STREAM, name.as_str());
        if let Some(seen) = seen {
            headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, seen.to_string());
        }
        if let Some(operation) = operation {
            headers.insert("KV-Operation", operation);
        }
        match self.store(subject, headers, value, &name).await {
            Ok((revision, _)) => Ok(revision),
            Err(StoreError::NoListener) => Err(StoreError::Failed(self.no_listener(&name).await)),
            Err(error) => Err(error),
        }
    }

    /// Returns the change by another writer to a cell whose last message was `passed` (0 for none).
    /// The broker refuses a writer as soon as another change is in progress, and shows that change
    /// a moment later.
    async fn lost(
        &self,
        table: Table,
        key: &str,
        passed: u64,
    ) -> Result<LastMessage, TransportError> {
        let (begun, mut wait) = (Instant::now(), Duration::ZERO);
        // Brokers that are busy or elect a leader take longer than a moment.
        while begun.elapsed() <= self.settings.timeout {
            tokio::time::sleep(wait).await;
            let last = self.last(table, key).await?;
            if last.revision() != passed {
                return Ok(last);
            }
            wait = (wait * 2).clamp(Duration::from_millis(1), Duration::from_millis(500));
        }
        Err(TransportError::Away(format!("a change of a cell of {} does not finish", table.name())))
    }

    async fn swap(
        &self,
        table: Table,
        key: &str,
        seen: Option<u64>,
        value: Bytes,
    ) -> Result<SwapOutcome, TransportError> {
        let mut expected = seen.unwrap_or(0);
        loop {
            match self.write(table, key, Some(expected), None, value.clone()).await {
                Ok(revision) => return Ok(SwapOutcome::Done(revision)),
                Err(StoreError::WrongRevision) => {}
                Err(error) => return Err(failed(error)),
            }
            match (seen, self.lost(table, key, expected).await?) {
                // A deleted cell is empty but still has a last message.
                (None, LastMessage::Deleted(revision)) => expected = revision,
                // It was deleted, and the deletion has aged out.
                (None, LastMessage::Nothing) => expected = 0,
                (_, last) => return Ok(SwapOutcome::Lost(last.cell())),
            }
        }
    }
}

impl LastMessage {
    fn revision(&self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Deleted(revision) => *revision,
            Self::Held(cell) => cell.revision,
        }
    }

    fn cell(self) -> Option<Cell> {
        match self {
            Self::Held(cell) => Some(cell),
            Self::Nothing | Self::Deleted(_) => None,
        }
    }
}

fn failed(error: StoreError) -> TransportError {
    match error {
        StoreError::Failed(error) => error,
        StoreError::NoListener | StoreError::WrongRevision => {
            TransportError::Away("another client changed the cell".to_owned())
        }
    }
}

impl Cells for Nats {
    fn get<'a>(
        &'a self,
        table: Table,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Cell>, TransportError>> {
        Box::pin(async move { Ok(self.connection.last(table, key).await?.cell()) })
    }

    fn swap<'a>(
        &'a self,
        table: Table,
        key: &'a str,
        seen: Option<u64>,
        value: Bytes,
    ) -> BoxFuture<'a, Result<SwapOutcome, TransportError>> {
        Box::pin(self.connection.swap(table, key, seen, value))
    }

    fn put<'a>(
        &'a self,
        table: Table,
        key: &'a str,
        value: Bytes,
    ) -> BoxFuture<'a, Result<u64, TransportError>> {
        Box::pin(async move {
            self.connection.write(table, key, None, None, value).await.map_err(failed)
        })
    }

    fn delete<'a>(
        &'a self,
        table: Table,
        key: &'a str,
        seen: Option<u64>,
    ) -> BoxFuture<'a, Result<SwapOutcome, TransportError>> {
        Box::pin(async move {
            match self.connection.write(table, key, seen, Some("DEL"), Bytes::new()).await {
                Ok(revision) => Ok(SwapOutcome::Done(revision)),
                Err(StoreError::WrongRevision) => {
                    let last = self.connection.lost(table, key, seen.unwrap_or(0)).await?;
                    Ok(SwapOutcome::Lost(last.cell()))
                }
                Err(error) => Err(failed(error)),
            }
        })
    }

    fn watch(&self, table: Table) -> BoxStream<'_, Result<Change, TransportError>> {
        let (reader, connection) = (self.tail_of(table), &self.connection);
        let watch = TableWatch {
            reader,
            connection,
            table,
            ages: CellAges::default(),
            aged: Vec::new(),
            looked: Instant::now(),
        };
        stream::unfold(Some(watch), |watch| async move {
            let mut watch = watch?;
            match watch.next().await {
                Ok(change) => Some((Ok(change), Some(watch))),
                Err(error) => Some((Err(error), None)),
            }
        })
        .boxed()
    }

    fn incarnation(&self, table: Table) -> BoxFuture<'_, Result<Option<u64>, TransportError>> {
        Box::pin(async move {
            Ok(Some(
                self.connection
                    .bounds_of(&self.connection.names.bucket_stream(table))
                    .await?
                    .incarnation,
            ))
        })
    }

    fn list(&self, table: Table) -> BoxFuture<'_, Result<Vec<(String, Cell)>, TransportError>> {
        Box::pin(async move {
            let listing = async {
                let (mut reader, mut held) = (self.tail_of(table), HashMap::new());
                if reader.open().await?.1 == 0 {
                    return Ok(held);
                }
                loop {
                    let StreamEvent::Message(message) = reader.next().await? else {
                        return Err(TransportError::Away(format!(
                            "the listing of {} was interrupted",
                            table.name()
                        )));
                    };
                    let is_last = message.pending == 0;
                    let Some(key) = self.connection.names.key(table, &message.subject) else {
                        continue;
                    };
                    match message.is_deletion {
                        true => held.remove(&key),
                        false => held.insert(key, cell(message)),
                    };
                    if is_last {
                        return Ok(held);
                    }
                }
            };
            let listed = tokio::time::timeout(self.connection.settings.timeout * 4, listing).await;
            let held = listed.map_err(|_| {
                TransportError::Away(format!("the listing of {} timed out", table.name()))
            })??;
            Ok(held.into_iter().collect())
        })
    }
}

fn cell(message: Message) -> Cell {
    Cell { value: message.body, revision: message.seq, at: message.at }
}

impl Nats {
    fn tail_of(&self, table: Table) -> StreamReader<'_> {
        let names = &self.connection.names;
        StreamReader::newest(&self.connection, names.bucket_stream(table), names.all_cells(table))
    }
}

/// A watched table. A cell ages out without a message: it is gone once the stream begins after its
/// position.
struct TableWatch<'l> {
    reader: StreamReader<'l>,
    connection: &'l Connection,
    table: Table,
    ages: CellAges,
    aged: Vec<(String, u64)>,
    looked: Instant,
}

impl TableWatch<'_> {
    async fn next(&mut self) -> Result<Change, TransportError> {
        loop {
            if let Some((key, revision)) = self.aged.pop() {
                return Ok(Change { key, cell: None, revision });
            }
            if self.looked.elapsed() > AGE_CHECK_INTERVAL {
                let bounds = self
                    .connection
                    .bounds_of(&self.connection.names.bucket_stream(self.table))
                    .await?;
                self.look(&bounds);
                continue;
            }
            match self.reader.next().await? {
                StreamEvent::Message(message) => {
                    let Some(key) = self.connection.names.key(self.table, &message.subject) else {
                        continue;
                    };
                    let (revision, is_deletion) = (message.seq, message.is_deletion);
                    if max_age(self.table).is_some() {
                        self.ages.event(&key, (!is_deletion).then_some(revision));
                        self.aged = self.ages.aged(revision);
                    }
                    let cell = (!is_deletion).then(|| cell(message));
                    return Ok(Change { key, cell, revision });
                }
                StreamEvent::Idle(bounds) => self.look(&bounds),
                StreamEvent::Recreated(_) => {
                    return Err(TransportError::Away(format!(
                        "{} was recreated",
                        self.table.name()
                    )));
                }
            }
        }
    }

    fn look(&mut self, bounds: &StreamBounds) {
        self.looked = Instant::now();
        self.ages.look(bounds);
        self.aged = self.ages.aged(self.reader.delivered());
    }
}

/// The delivered cells, and which of them have aged out.
#[derive(Debug, Default)]
struct CellAges {
    held: HashMap<String, u64>,
    /// The bounds of the stream at the last check.
    looked: Option<(u64, u64)>,
}

impl CellAges {
    /// Records a cell's revision, or its deletion.
    fn event(&mut self, key: &str, revision: Option<u64>) {
        match revision {
            Some(revision) => drop(self.held.insert(key.to_owned(), revision)),
            None => drop(self.held.remove(key)),
        }
    }

    fn look(&mut self, bounds: &StreamBounds) {
        self.looked = Some((bounds.first, bounds.last));
    }

    /// Returns the cells that have aged out with their last revision, provided that everything up
    /// to `delivered` has arrived. That must include the bounds of the last check: until then a
    /// cell that is no longer at its position may have been changed rather than gone.
    fn aged(&mut self, delivered: u64) -> Vec<(String, u64)> {
        match self.looked {
            Some((first, last)) if delivered >= last => {
                self.looked = None;
                self.held.extract_if(|_, revision| *revision < first).collect()
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(first: u64, last: u64) -> StreamBounds {
        StreamBounds { incarnation: 1, first, last, first_at: None }
    }

    #[test]
    fn a_changed_cell_has_not_aged_out_before_its_delivery() {
        let mut ages = CellAges::default();
        ages.event("a", Some(1));
        ages.event("b", Some(2));
        assert_eq!(ages.aged(2), []);
        // Both were changed since. The check sees it before the watcher does.
        ages.look(&bounds(3, 4));
        assert_eq!(ages.aged(2), []);
        ages.event("a", Some(3));
        assert_eq!(ages.aged(3), []);
        ages.event("b", Some(4));
        assert_eq!(ages.aged(4), []);
        // Now one of them really ages out.
        ages.look(&bounds(4, 4));
        assert_eq!(ages.aged(4), [("a".to_owned(), 3)]);
        ages.event("b", None);
        ages.look(&bounds(6, 5));
        assert_eq!(ages.aged(5), []);
    }
}
