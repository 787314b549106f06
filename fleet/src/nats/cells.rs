//! Cells as keys of JetStream's key-value buckets.
//!
//! Invariants: a cell is read from its stream's leader, never from a replica that may be behind; a swap is the broker's own comparison
//! of the key's last message. Must not know: what a cell says.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use async_nats::header::{HeaderMap, NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_EXPECTED_STREAM};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};

use super::Nats;
use super::error::NotStored;
use super::info::timestamp;
use super::link::Link;
use super::setup::max_age;
use super::tail::{Came, Message, Tail};
use crate::transport::{Cell, Cells, Change, Swapped, Table, TransportError};

/// The longest key, in bytes.
const KEY_MAX: usize = 512;
/// A table whose cells age is looked at so often.
const AGES_EVERY: Duration = Duration::from_secs(5);

/// What a key's last message is.
enum Last {
    Nothing,
    Deleted(u64),
    Held(Cell),
}

impl Link {
    async fn last(&self, table: Table, key: &str) -> Result<Last, TransportError> {
        let (subject, name) = (self.cell_subject(table, key)?, self.names.bucket_stream(table));
        let Some(message) = self.last_of(&name, &subject).await? else { return Ok(Last::Nothing) };
        let header = |header: &str| message.headers.get(header).map(|value| value.as_str().to_owned());
        let is_deleted = header("Nats-Marker-Reason").is_some()
            || header("KV-Operation").is_some_and(|what| what == "DEL" || what == "PURGE");
        Ok(if is_deleted {
            Last::Deleted(message.sequence)
        } else {
            Last::Held(Cell { value: message.payload, revision: message.sequence, at: timestamp(message.time) })
        })
    }

    fn cell_subject(&self, table: Table, key: &str) -> Result<String, TransportError> {
        if key.len() > KEY_MAX {
            return Err(TransportError::Invalid(format!("a cell's key of {} bytes", key.len())));
        }
        Ok(self.names.cell(table, key))
    }

    /// Writes a cell; at revision `seen` where that is said.
    async fn write(
        &self,
        table: Table,
        key: &str,
        seen: Option<u64>,
        operation: Option<&'static str>,
        value: Bytes,
    ) -> Result<u64, NotStored> {
        let subject = self.cell_subject(table, key).map_err(NotStored::Failed)?;
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
            Err(NotStored::Nobody) => Err(NotStored::Failed(self.nobody(&name).await)),
            Err(error) => Err(error),
        }
    }

    /// What somebody else has made of a cell whose last message was `passed`, 0 for none. The broker turns a writer away as soon as
    /// another's change is under way, and shows that change a moment later.
    async fn lost(&self, table: Table, key: &str, passed: u64) -> Result<Last, TransportError> {
        for wait in [0, 1, 2, 5, 10, 20, 50, 100, 200, 500] {
            tokio::time::sleep(Duration::from_millis(wait)).await;
            let last = self.last(table, key).await?;
            if last.revision() != passed {
                return Ok(last);
            }
        }
        Err(TransportError::Away(format!("a change of a cell of {} is under way and does not end", table.name())))
    }

    async fn swap(&self, table: Table, key: &str, seen: Option<u64>, value: Bytes) -> Result<Swapped, TransportError> {
        let mut expected = seen.unwrap_or(0);
        loop {
            match self.write(table, key, Some(expected), None, value.clone()).await {
                Ok(revision) => return Ok(Swapped::Done(revision)),
                Err(NotStored::Overtaken) => {}
                Err(error) => return Err(failed(error)),
            }
            match (seen, self.lost(table, key, expected).await?) {
                // A cell that was deleted is empty, and still has a last message.
                (None, Last::Deleted(revision)) => expected = revision,
                // It had been deleted, and the deletion has aged out.
                (None, Last::Nothing) => expected = 0,
                (_, last) => return Ok(Swapped::Lost(last.cell())),
            }
        }
    }
}

impl Last {
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

fn failed(error: NotStored) -> TransportError {
    match error {
        NotStored::Failed(error) => error,
        NotStored::Nobody | NotStored::Overtaken => TransportError::Away("a cell was changed by another".to_owned()),
    }
}

impl Cells for Nats {
    fn get<'a>(&'a self, table: Table, key: &'a str) -> BoxFuture<'a, Result<Option<Cell>, TransportError>> {
        Box::pin(async move { Ok(self.link.last(table, key).await?.cell()) })
    }

    fn swap<'a>(
        &'a self,
        table: Table,
        key: &'a str,
        seen: Option<u64>,
        value: Bytes,
    ) -> BoxFuture<'a, Result<Swapped, TransportError>> {
        Box::pin(self.link.swap(table, key, seen, value))
    }

    fn put<'a>(&'a self, table: Table, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<u64, TransportError>> {
        Box::pin(async move { self.link.write(table, key, None, None, value).await.map_err(failed) })
    }

    fn delete<'a>(
        &'a self,
        table: Table,
        key: &'a str,
        seen: Option<u64>,
    ) -> BoxFuture<'a, Result<Swapped, TransportError>> {
        Box::pin(async move {
            match self.link.write(table, key, seen, Some("DEL"), Bytes::new()).await {
                Ok(revision) => Ok(Swapped::Done(revision)),
                Err(NotStored::Overtaken) => {
                    let last = self.link.lost(table, key, seen.unwrap_or(0)).await?;
                    Ok(Swapped::Lost(last.cell()))
                }
                Err(error) => Err(failed(error)),
            }
        })
    }

    fn watch(&self, table: Table) -> BoxStream<'_, Result<Change, TransportError>> {
        let watch = Watch {
            tail: self.tail_of(table),
            link: &self.link,
            table,
            held: HashMap::new(),
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
        Box::pin(async move { Ok(Some(self.link.bounds_of(&self.link.names.bucket_stream(table)).await?.incarnation)) })
    }

    fn list(&self, table: Table) -> BoxFuture<'_, Result<Vec<(String, Cell)>, TransportError>> {
        Box::pin(async move {
            let listing = async {
                let (mut tail, mut held) = (self.tail_of(table), HashMap::new());
                if tail.open().await?.1 == 0 {
                    return Ok(held);
                }
                loop {
                    let Came::Message(message) = tail.next().await? else {
                        return Err(TransportError::Away(format!("the list of {} broke off", table.name())));
                    };
                    let is_last = message.pending == 0;
                    let Some(key) = self.link.names.key(table, &message.subject) else { continue };
                    match message.is_deletion {
                        true => held.remove(&key),
                        false => held.insert(key, cell(message)),
                    };
                    if is_last {
                        return Ok(held);
                    }
                }
            };
            let listed = tokio::time::timeout(self.link.settings.timeout * 4, listing).await;
            let held = listed.map_err(|_| TransportError::Away(format!("no list of {} in time", table.name())))??;
            Ok(held.into_iter().collect())
        })
    }
}

fn cell(message: Message) -> Cell {
    Cell { value: message.body, revision: message.seq, at: message.at }
}

impl Nats {
    fn tail_of(&self, table: Table) -> Tail<'_> {
        let names = &self.link.names;
        Tail::newest(&self.link, names.bucket_stream(table), names.all_cells(table))
    }
}

/// A table under watch. A cell that ages out goes without a message: it is gone when the stream begins later than where it was.
struct Watch<'l> {
    tail: Tail<'l>,
    link: &'l Link,
    table: Table,
    held: HashMap<String, u64>,
    aged: Vec<String>,
    looked: Instant,
}

impl Watch<'_> {
    async fn next(&mut self) -> Result<Change, TransportError> {
        loop {
            if let Some(key) = self.aged.pop() {
                return Ok(Change { key, cell: None });
            }
            if self.looked.elapsed() > AGES_EVERY {
                let first = self.link.bounds_of(&self.link.names.bucket_stream(self.table)).await?.first;
                self.age(first);
                continue;
            }
            match self.tail.next().await? {
                Came::Message(message) => {
                    let Some(key) = self.link.names.key(self.table, &message.subject) else { continue };
                    if message.is_deletion {
                        self.held.remove(&key);
                        return Ok(Change { key, cell: None });
                    }
                    if max_age(self.table).is_some() {
                        self.held.insert(key.clone(), message.seq);
                    }
                    return Ok(Change { key, cell: Some(cell(message)) });
                }
                Came::Silence(bounds) => self.age(bounds.first),
                Came::Anew(_) => {
                    return Err(TransportError::Away(format!("{} has been made anew", self.table.name())));
                }
            }
        }
    }

    fn age(&mut self, first: u64) {
        self.looked = Instant::now();
        self.aged.extend(self.held.extract_if(|_, revision| *revision < first).map(|(key, _)| key));
    }
}
