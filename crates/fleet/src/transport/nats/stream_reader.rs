//! An ordered reader of a stream from a sequence number on.
//!
//! JetStream's consumers are read here but not trusted. A consumer may hang after a broker's
//! restart, skip, repeat, or belong to a stream that was created again.
//!
//! Invariants: sequence numbers of delivered messages increase. A message is delivered with the
//! incarnation that it belongs to. After two seconds of silence the reader checks the stream's
//! bounds.
//!
//! Must not know: the content of messages.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, ReplayPolicy, pull};
use bytes::Bytes;
use fetchwise::time::Timestamp;
use futures_util::StreamExt;
use tokio::time::timeout;

use super::error::other_error;
use crate::transport::nats::connection::Connection;
use crate::transport::nats::stream_info::timestamp;
use crate::transport::{StreamBounds, TransportError};

/// The time of silence after which the stream is checked.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(2);
/// The time after which the broker deletes an unused consumer.
const CONSUMER_EXPIRY: Duration = Duration::from_secs(120);
/// The number of messages per request.
const MESSAGES: usize = 256;
const BYTES: usize = 16 << 20;

/// An event of a reader.
pub(super) enum StreamEvent {
    Message(Message),
    /// The stream was created again. Its first message comes next.
    Recreated(StreamBounds),
    /// No message has arrived, and none is left.
    Idle(StreamBounds),
}

/// A message.
pub(super) struct Message {
    pub(super) subject: String,
    pub(super) seq: u64,
    pub(super) at: Timestamp,
    /// The number of messages that follow at once.
    pub(super) pending: u64,
    pub(super) is_deletion: bool,
    pub(super) body: Bytes,
}

/// A reader of one stream.
pub(super) struct StreamReader<'l> {
    connection: &'l Connection,
    stream: String,
    filter: String,
    /// Whether only the newest message of each subject is read at the beginning.
    newest_only: bool,
    /// None until the first check.
    incarnation: Option<u64>,
    /// The sequence number of the next message.
    next: u64,
    messages: Option<pull::Stream>,
    /// The number of messages that this consumer has delivered.
    delivered: u64,
}

impl<'l> StreamReader<'l> {
    /// Reads everything from `next` on if the stream has this incarnation (0: any); from its first
    /// message on if it has another.
    pub(super) fn from(
        connection: &'l Connection,
        stream: String,
        filter: String,
        incarnation: u64,
        next: u64,
    ) -> Self {
        let incarnation = Some(incarnation).filter(|known| *known != 0);
        Self {
            connection,
            stream,
            filter,
            newest_only: false,
            incarnation,
            next: next.max(1),
            messages: None,
            delivered: 0,
        }
    }

    /// Returns the incarnation of the stream; 0 before the first check.
    pub(super) fn incarnation(&self) -> u64 {
        self.incarnation.unwrap_or(0)
    }

    /// Returns the sequence number up to which everything was delivered.
    pub(super) fn delivered(&self) -> u64 {
        self.next.saturating_sub(1)
    }

    /// Reads the newest message of each subject, and then everything.
    pub(super) fn newest(connection: &'l Connection, stream: String, filter: String) -> Self {
        Self {
            connection,
            stream,
            filter,
            newest_only: true,
            incarnation: None,
            next: 1,
            messages: None,
            delivered: 0,
        }
    }

    /// Returns the next event. It may be called again after an error.
    pub(super) async fn next(&mut self) -> Result<StreamEvent, TransportError> {
        loop {
            let Some(messages) = &mut self.messages else {
                if let Some(anew) = self.open().await?.0 {
                    return Ok(StreamEvent::Recreated(anew));
                }
                continue;
            };
            match timeout(SILENCE_TIMEOUT, messages.next()).await {
                Ok(Some(Ok(message))) => {
                    if let Some(message) = self.take(&message) {
                        return Ok(StreamEvent::Message(message));
                    }
                }
                // The consumer is gone or does not respond. Another one is created after a delay.
                Ok(Some(Err(_)) | None) => {
                    self.messages = None;
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Err(_) => {
                    if let Some(event) = self.look().await? {
                        return Ok(event);
                    }
                }
            }
        }
    }

    /// Creates a consumer. Returns the bounds if the stream was created again, and the number of
    /// messages for the consumer.
    pub(super) async fn open(&mut self) -> Result<(Option<StreamBounds>, u64), TransportError> {
        self.messages = None;
        let bounds = self.connection.bounds_of(&self.stream).await?;
        if self.incarnation.is_some_and(|known| known != bounds.incarnation) {
            (self.incarnation, self.next) = (Some(bounds.incarnation), 1);
            return Ok((Some(bounds), 0));
        }
        self.incarnation = Some(bounds.incarnation);
        // A broker that lost acknowledged messages assigns their sequence numbers again.
        self.next = self.next.min(bounds.last + 1).max(bounds.first.min(bounds.last + 1));
        let is_first = self.newest_only && self.next <= bounds.first;
        let deliver_policy = if is_first {
            DeliverPolicy::LastPerSubject
        } else {
            DeliverPolicy::ByStartSequence { start_sequence: self.next }
        };
        let config = pull::Config {
            deliver_policy,
            ack_policy: AckPolicy::None,
            replay_policy: ReplayPolicy::Instant,
            filter_subject: self.filter.clone(),
            inactive_threshold: CONSUMER_EXPIRY,
            num_replicas: 1,
            memory_storage: true,
            ..pull::Config::default()
        };
        let fail = |error: &(dyn std::error::Error + 'static)| other_error(error, &self.stream);
        let creating = self.connection.js.create_consumer_on_stream(config, self.stream.as_str());
        let consumer = timeout(self.connection.settings.timeout, creating)
            .await
            .map_err(|_| {
                TransportError::Away(format!("{}: creating a consumer timed out", self.stream))
            })?
            .map_err(|error| fail(&error))?;
        // The consumer belongs to the checked stream only if that one still exists.
        if self.connection.bounds_of(&self.stream).await?.incarnation != bounds.incarnation {
            return Err(TransportError::Away(format!("{} is being recreated", self.stream)));
        }
        let pending = consumer.cached_info().num_pending;
        let messages =
            consumer.stream().max_messages_per_batch(MESSAGES).max_bytes_per_batch(BYTES);
        let messages = messages
            .heartbeat(Duration::from_secs(5))
            .expires(Duration::from_secs(30))
            .messages()
            .await;
        (self.messages, self.delivered) = (Some(messages.map_err(|error| fail(&error))?), 0);
        Ok((None, pending))
    }

    /// Returns the message if it is the next one.
    fn take(&mut self, message: &async_nats::jetstream::Message) -> Option<Message> {
        let Ok(info) = message.info() else {
            self.messages = None;
            return None;
        };
        if info.consumer_sequence != self.delivered + 1 {
            // A message got lost on the way: start over at its position.
            self.messages = None;
            return None;
        }
        self.delivered = info.consumer_sequence;
        if info.stream_sequence < self.next {
            return None;
        }
        self.next = info.stream_sequence + 1;
        let operation = message.headers.as_ref().and_then(|headers| headers.get("KV-Operation"));
        let marker = message.headers.as_ref().and_then(|headers| headers.get("Nats-Marker-Reason"));
        Some(Message {
            subject: message.subject.to_string(),
            seq: info.stream_sequence,
            at: timestamp(info.published),
            pending: info.pending,
            is_deletion: marker.is_some()
                || operation.is_some_and(|what| matches!(what.as_str(), "DEL" | "PURGE")),
            body: message.payload.clone(),
        })
    }

    /// Checks whether a silent reader has really nothing to read.
    async fn look(&mut self) -> Result<Option<StreamEvent>, TransportError> {
        let bounds = match self.connection.bounds_of(&self.stream).await {
            Ok(bounds) => bounds,
            Err(error) => {
                self.messages = None;
                return Err(error);
            }
        };
        if self.incarnation != Some(bounds.incarnation) {
            self.messages = None;
            (self.incarnation, self.next) = (Some(bounds.incarnation), 1);
            return Ok(Some(StreamEvent::Recreated(bounds)));
        }
        if bounds.last + 1 != self.next {
            // The consumer hangs, its messages have aged out, or the stream was set back.
            self.messages = None;
            return Ok(None);
        }
        Ok(Some(StreamEvent::Idle(bounds)))
    }
}
