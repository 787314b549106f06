//! Work queues as JetStream streams with work-queue retention: a subject and a pull consumer per
//! site.
//!
//! Invariants: a link is removed by its acknowledgement only. A consumer never delivers a link
//! twice by itself within the life of a lease: who takes a site over starts its consumer over.
//!
//! Must not know: who may take a site, and what a link is.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use async_nats::datetime::parse_rfc3339;
use async_nats::header::{HeaderMap, NATS_EXPECTED_STREAM, NATS_MESSAGE_ID};
use async_nats::jetstream::ErrorCode;
use async_nats::{Request, StatusCode};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Nats;
use super::error::{ApiError, StoreError, api_error, other_error, request_error};
use super::names::Names;
use crate::transport::nats::connection::Connection;
use crate::transport::nats::provision;
use crate::transport::nats::stream_info;
use crate::transport::{
    QueueContent, QueueSites, QueueStatistics, QueuedMessage, TransportError, WorkQueues,
    check_queue_name,
};

/// The time after which the broker delivers a link again by itself. It is longer than any pause of
/// a host: when a node dies, its lease ends long before.
const ACK_WAIT: Duration = Duration::from_secs(14 * 24 * 60 * 60);
/// The maximum number of links of a site that are delivered and not acknowledged.
const MAX_ACK_PENDING: usize = 10_000;

#[derive(Deserialize)]
struct ContentResponse {
    state: ContentState,
    /// The number of subjects that match the question. One response names some of them only.
    #[serde(default)]
    total: usize,
    #[serde(default)]
    cluster: Cluster,
}

/// The brokers that keep the stream, besides the one that responds.
#[derive(Default, Deserialize)]
struct Cluster {
    #[serde(default)]
    replicas: Vec<Replica>,
}

#[derive(Deserialize)]
struct Replica {
    #[serde(default)]
    current: bool,
    #[serde(default)]
    offline: bool,
    /// The number of changes that it does not have yet.
    #[serde(default)]
    lag: u64,
}

#[derive(Deserialize)]
struct ContentState {
    messages: u64,
    #[serde(default)]
    first_ts: String,
    #[serde(default)]
    num_subjects: u64,
    #[serde(default)]
    subjects: HashMap<String, u64>,
}

/// One part of the list of a stream's consumers.
#[derive(Deserialize)]
struct ConsumersResponse {
    #[serde(default)]
    total: usize,
    #[serde(default)]
    consumers: Option<Vec<ListedConsumer>>,
}

#[derive(Deserialize)]
struct ListedConsumer {
    config: ListedConfig,
    #[serde(default)]
    num_ack_pending: u64,
}

#[derive(Deserialize)]
struct ListedConfig {
    #[serde(default)]
    filter_subject: String,
}

#[derive(Deserialize)]
struct PurgeResponse {
    #[serde(default)]
    purged: u64,
}

#[derive(Deserialize)]
struct ConsumerResponse {
    delivered: Delivered,
    /// The number of links that are not delivered yet.
    #[serde(default)]
    num_pending: u64,
    /// The number of links that are delivered and not acknowledged.
    #[serde(default)]
    num_ack_pending: u64,
}

#[derive(Deserialize)]
struct Delivered {
    stream_seq: u64,
}

impl Connection {
    async fn queue_state(
        &self,
        queue: &str,
        filter: Option<String>,
    ) -> Result<ContentState, TransportError> {
        Ok(self.queue_info(queue, filter).await?.state)
    }

    async fn queue_info(
        &self,
        queue: &str,
        filter: Option<String>,
    ) -> Result<ContentResponse, TransportError> {
        check_queue_name(queue)?;
        let question =
            filter.map_or_else(|| json!({}), |filter| json!({ "subjects_filter": filter }));
        self.ask_queue(queue, &question).await
    }

    async fn ask_queue(
        &self,
        queue: &str,
        question: &Value,
    ) -> Result<ContentResponse, TransportError> {
        let stream = self.names.queue_stream(queue);
        let answer = self
            .api_request::<ContentResponse>(&format!("STREAM.INFO.{stream}"), question, &stream)
            .await?;
        answer.map_err(|error| queue_error(&error, queue, &stream))
    }

    async fn sites(&self, queue: &str, shard: Option<u8>) -> Result<QueueSites, TransportError> {
        check_queue_name(queue)?;
        let filter = match shard {
            None => self.names.queue_subjects(queue),
            Some(shard) => self.names.queue_shard(queue, shard),
        };
        let (mut found, mut seen) = (QueueSites::default(), 0);
        loop {
            let part = self
                .ask_queue(queue, &json!({ "subjects_filter": filter, "offset": seen }))
                .await?;
            let is_last =
                part.state.subjects.is_empty() || seen + part.state.subjects.len() >= part.total;
            seen += part.state.subjects.len();
            for (subject, links) in part.state.subjects {
                match self.names.site_of_subject(queue, &subject) {
                    Some(site) => found.sites.push(site),
                    None => found.unreadable += links,
                }
            }
            if is_last {
                return Ok(found);
            }
        }
    }

    /// Compares the links of a site in the stream with those that its consumer still has to
    /// deliver, or to see acknowledged: what is acknowledged leaves the consumer first. A broker
    /// that lags may deliver it again, too.
    async fn is_settled(&self, queue: &str, site: &str) -> Result<bool, TransportError> {
        // The consumer first: a link that comes in between looks like one that is not removed,
        // never the other way round.
        let consumer = self.consumer::<ConsumerResponse>("INFO", queue, site).await?;
        let left = consumer.map_or(0, |consumer| consumer.num_pending + consumer.num_ack_pending);
        let info = self.queue_info(queue, Some(self.names.queue_site(queue, site))).await?;
        Ok(info.state.subjects.values().sum::<u64>() <= left && info.cluster.is_caught_up())
    }

    async fn consumer<A: serde::de::DeserializeOwned>(
        &self,
        what: &str,
        queue: &str,
        site: &str,
    ) -> Result<Option<A>, TransportError> {
        let (stream, consumer) = (self.names.queue_stream(queue), Names::queue_consumer(site));
        let subject = format!("CONSUMER.{what}.{stream}.{consumer}");
        match self.api_request::<A>(&subject, &json!({}), &stream).await? {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if error.is(ErrorCode::CONSUMER_NOT_FOUND) => Ok(None),
            Err(error) => Err(queue_error(&error, queue, &stream)),
        }
    }

    async fn ensure_queue(&self, queue: &str) -> Result<(), TransportError> {
        match self.queue_state(queue, None).await {
            Err(TransportError::NoQueue(_)) if self.settings.make => {
                provision::create(self, provision::work_queue(self, queue)).await
            }
            known => known.map(drop),
        }
    }

    async fn enqueue(
        &self,
        queue: &str,
        site: &str,
        id: &str,
        body: Bytes,
    ) -> Result<bool, TransportError> {
        let stream = self.names.queue_stream(queue);
        let mut headers = HeaderMap::new();
        headers.insert(NATS_MESSAGE_ID, id);
        headers.insert(NATS_EXPECTED_STREAM, stream.as_str());
        match self.store(self.names.queue_site(queue, site), headers, body, &stream).await {
            Ok((_, is_duplicate)) => Ok(!is_duplicate),
            Err(StoreError::NoListener) => match self.queue_state(queue, None).await {
                Ok(_) => Err(TransportError::Away(format!("{stream} did not accept a link"))),
                Err(error) => Err(error),
            },
            Err(StoreError::WrongRevision) => {
                Err(TransportError::Invalid("an unexpected revision check".to_owned()))
            }
            Err(StoreError::Failed(error)) => Err(error),
        }
    }

    async fn open(&self, queue: &str, site: &str) -> Result<(), TransportError> {
        // Without its consumer nothing counts as delivered.
        self.consumer::<Value>("DELETE", queue, site).await?;
        let (stream, consumer) = (self.names.queue_stream(queue), Names::queue_consumer(site));
        let filter = self.names.queue_site(queue, site);
        let question = json!({ "stream_name": stream, "config": {
            "name": consumer, "durable_name": consumer, "filter_subject": filter, "deliver_policy": "all",
            "ack_policy": "explicit", "ack_wait": ACK_WAIT.as_nanos() as u64, "max_deliver": -1,
            "max_ack_pending": MAX_ACK_PENDING, "replay_policy": "instant",
        } });
        let subject = format!("CONSUMER.CREATE.{stream}.{consumer}.{filter}");
        let made = self.api_request::<Value>(&subject, &question, &stream).await?;
        made.map(drop).map_err(|error| queue_error(&error, queue, &stream))
    }

    async fn pull(
        &self,
        queue: &str,
        site: &str,
        max: usize,
    ) -> Result<Vec<QueuedMessage>, TransportError> {
        self.connected()?;
        let (stream, consumer) = (self.names.queue_stream(queue), Names::queue_consumer(site));
        let (subject, begun) =
            (format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"), Instant::now());
        let away = |error: &(dyn std::error::Error + 'static)| other_error(error, &stream);
        let inbox = self.client.new_inbox();
        let mut replies =
            self.client.subscribe(inbox.clone()).await.map_err(|error| away(&error))?;
        let question = json!({ "batch": max, "no_wait": true }).to_string();
        self.client
            .publish_with_reply(subject.clone(), inbox, question.into())
            .await
            .map_err(|error| away(&error))?;
        let mut links = Vec::new();
        let reading = async {
            while links.len() < max
                && let Some(message) = replies.next().await
            {
                match message.status {
                    None | Some(StatusCode::OK) => {}
                    // It has no more.
                    Some(StatusCode::NOT_FOUND | StatusCode::TIMEOUT) => return Ok(()),
                    Some(StatusCode::NO_RESPONDERS) => {
                        return Err(TransportError::NoQueue(queue.to_owned()));
                    }
                    Some(status) => {
                        return Err(TransportError::Away(format!("{stream}: status {status}")));
                    }
                }
                let Some(receipt) = message.reply.as_ref().map(ToString::to_string) else {
                    continue;
                };
                let body = message.payload.clone();
                let message = async_nats::jetstream::Message { message, context: self.js.clone() };
                let Ok(seq) = message.info().map(|info| info.stream_sequence) else { continue };
                links.push(QueuedMessage { seq, body, receipt });
            }
            Ok(())
        };
        match tokio::time::timeout(self.settings.timeout, reading).await {
            Ok(Ok(())) => Ok(links),
            Ok(Err(error)) if links.is_empty() => Err(error),
            // These are delivered; what is missing is asked for again.
            _ if !links.is_empty() => Ok(links),
            _ => Err(self
                .forbidden(begun, &subject)
                .unwrap_or_else(|| TransportError::Away(format!("{stream}: no links in time")))),
        }
    }

    async fn queue_statistics(&self, queue: &str) -> Result<QueueStatistics, TransportError> {
        let state = self.queue_state(queue, None).await?;
        let oldest_at = match state.messages {
            0 => None,
            _ => parse_rfc3339(&state.first_ts).ok().map(stream_info::timestamp),
        };
        let mut found =
            QueueStatistics { links: state.messages, oldest_at, open_sites: Vec::new() };
        let (stream, mut seen) = (self.names.queue_stream(queue), 0);
        loop {
            let subject = format!("CONSUMER.LIST.{stream}");
            let part = self
                .api_request::<ConsumersResponse>(&subject, &json!({ "offset": seen }), &stream)
                .await?;
            let part = part.map_err(|error| queue_error(&error, queue, &stream))?;
            let consumers = part.consumers.unwrap_or_default();
            seen += consumers.len();
            let is_last = consumers.is_empty() || seen >= part.total;
            for consumer in consumers {
                // Consumers of other programs read no site.
                if let Some(site) =
                    self.names.site_of_subject(queue, &consumer.config.filter_subject)
                {
                    found.open_sites.push((site, consumer.num_ack_pending));
                }
            }
            if is_last {
                return Ok(found);
            }
        }
    }

    async fn purge_queue(&self, queue: &str) -> Result<u64, TransportError> {
        check_queue_name(queue)?;
        let stream = self.names.queue_stream(queue);
        let answer = self
            .api_request::<PurgeResponse>(&format!("STREAM.PURGE.{stream}"), &json!({}), &stream)
            .await?;
        answer.map(|answer| answer.purged).map_err(|error| queue_error(&error, queue, &stream))
    }

    async fn acknowledge(
        &self,
        queue: &str,
        message: &QueuedMessage,
    ) -> Result<(), TransportError> {
        self.connected()?;
        let (stream, begun) = (self.names.queue_stream(queue), Instant::now());
        let request = Request::new().payload("+ACK".into()).timeout(Some(self.settings.timeout));
        let asked = self.client.send_request(message.receipt.clone(), request);
        match tokio::time::timeout(self.settings.timeout * 2, asked).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(self
                .forbidden(begun, &message.receipt)
                .unwrap_or_else(|| request_error(&error, &stream))),
            Err(_) => {
                Err(TransportError::Away(format!("{stream}: an acknowledgement cannot be sent")))
            }
        }
    }
}

impl Cluster {
    /// Returns whether all brokers that are there have every change.
    fn is_caught_up(&self) -> bool {
        self.replicas.iter().all(|replica| replica.offline || replica.current && replica.lag == 0)
    }
}

/// Converts an error of the broker about a queue.
fn queue_error(error: &ApiError, queue: &str, stream: &str) -> TransportError {
    match api_error(error, stream) {
        TransportError::Missing(_) => TransportError::NoQueue(queue.to_owned()),
        error => error,
    }
}

impl WorkQueues for Nats {
    fn ensure<'a>(&'a self, queue: &'a str) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(self.connection.ensure_queue(queue))
    }

    fn enqueue<'a>(
        &'a self,
        queue: &'a str,
        site: &'a str,
        id: &'a str,
        body: Bytes,
    ) -> BoxFuture<'a, Result<bool, TransportError>> {
        Box::pin(self.connection.enqueue(queue, site, id, body))
    }

    fn content<'a>(
        &'a self,
        queue: &'a str,
    ) -> BoxFuture<'a, Result<QueueContent, TransportError>> {
        Box::pin(async move {
            let state = self.connection.queue_state(queue, None).await?;
            Ok(QueueContent { links: state.messages, sites: state.num_subjects })
        })
    }

    fn sites<'a>(
        &'a self,
        queue: &'a str,
        shard: Option<u8>,
    ) -> BoxFuture<'a, Result<QueueSites, TransportError>> {
        Box::pin(self.connection.sites(queue, shard))
    }

    fn delivered<'a>(
        &'a self,
        queue: &'a str,
        site: &'a str,
    ) -> BoxFuture<'a, Result<u64, TransportError>> {
        Box::pin(async move {
            let known = self.connection.consumer::<ConsumerResponse>("INFO", queue, site).await?;
            Ok(known.map_or(0, |consumer| consumer.delivered.stream_seq))
        })
    }

    fn open<'a>(
        &'a self,
        queue: &'a str,
        site: &'a str,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(self.connection.open(queue, site))
    }

    fn pull<'a>(
        &'a self,
        queue: &'a str,
        site: &'a str,
        max: usize,
    ) -> BoxFuture<'a, Result<Vec<QueuedMessage>, TransportError>> {
        Box::pin(self.connection.pull(queue, site, max))
    }

    fn acknowledge<'a>(
        &'a self,
        queue: &'a str,
        message: &'a QueuedMessage,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(self.connection.acknowledge(queue, message))
    }

    fn is_settled<'a>(
        &'a self,
        queue: &'a str,
        site: &'a str,
    ) -> BoxFuture<'a, Result<bool, TransportError>> {
        Box::pin(self.connection.is_settled(queue, site))
    }

    fn close<'a>(
        &'a self,
        queue: &'a str,
        site: &'a str,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(
            async move { self.connection.consumer::<Value>("DELETE", queue, site).await.map(drop) },
        )
    }

    fn statistics<'a>(
        &'a self,
        queue: &'a str,
    ) -> BoxFuture<'a, Result<QueueStatistics, TransportError>> {
        Box::pin(self.connection.queue_statistics(queue))
    }

    fn purge<'a>(&'a self, queue: &'a str) -> BoxFuture<'a, Result<u64, TransportError>> {
        Box::pin(self.connection.purge_queue(queue))
    }
}
