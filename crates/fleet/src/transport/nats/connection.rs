//! The connection to the brokers: requests to JetStream and stored messages, each within a timeout.
//!
//! Invariants: no call starts while there is no connection; it would otherwise be carried out
//! whenever one is back.
//!
//! Must not know: the content of messages and cells, or which streams must exist.

use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use async_nats::connection::State;
use async_nats::header::HeaderMap;
use async_nats::jetstream::{Context, context::ContextBuilder};
use async_nats::{Client, ClientError, Event, Request, RequestErrorKind, ServerError};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::{ApiError, StoreError, api_error, request_error};
use super::names::Names;
use super::settings::{NatsSettings, redacted};
use crate::transport::TransportError;

/// The maximum number of remembered errors of the broker.
const MAX_COMPLAINTS: usize = 8;

/// A connection to the brokers of one pool.
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) js: Context,
    pub(super) names: Names,
    pub(super) settings: NatsSettings,
    /// The incarnation of the message stream at the last check; 0 before the first.
    pub(super) incarnation: AtomicU64,
    /// The newest known message of the message stream.
    pub(super) newest: AtomicU64,
    events: Arc<Mutex<ConnectionEvents>>,
    /// Held while streams are created.
    pub(super) creating: tokio::sync::Mutex<()>,
}

/// Errors that the brokers or the client have reported.
#[derive(Default)]
struct ConnectionEvents {
    /// The reason why the last attempt to connect failed.
    unconnected: Option<String>,
    complaints: VecDeque<(Instant, String)>,
}

/// The response to a request.
#[derive(Deserialize)]
#[serde(untagged)]
enum ApiResponse<A> {
    Error { error: ApiError },
    Fine(A),
}

/// The acknowledgement of a stored message.
#[derive(Deserialize)]
struct PubAck {
    seq: u64,
    #[serde(default)]
    duplicate: bool,
}

impl ConnectionEvents {
    fn hear(&mut self, event: &Event) {
        match event {
            Event::Connected => self.unconnected = None,
            Event::ClientError(ClientError::Other(why)) => self.unconnected = Some(why.clone()),
            Event::ServerError(ServerError::AuthorizationViolation) => {
                self.unconnected = Some("authorization violation".to_owned());
            }
            Event::ServerError(ServerError::Other(what)) => {
                self.complaints.truncate(MAX_COMPLAINTS - 1);
                self.complaints.push_front((Instant::now(), what.clone()));
            }
            _ => {}
        }
    }
}

impl Connection {
    /// Starts to connect, and keeps trying in the background.
    pub(super) async fn new(settings: NatsSettings) -> Result<Self, TransportError> {
        settings.check()?;
        let (names, addresses) = (Names::new(&settings.pool)?, settings.addresses()?);
        if addresses[0].tls_required() {
            use async_nats::rustls::crypto::{CryptoProvider, ring};
            // The client uses the process's default provider. If none is set, it is the one that
            // the rest of fetchwise uses.
            if CryptoProvider::get_default().is_none() {
                drop(ring::default_provider().install_default());
            }
        }
        let events = Arc::new(Mutex::new(ConnectionEvents::default()));
        let sender = Arc::clone(&events);
        let options = settings.options(&addresses).await?.event_callback(move |event| {
            sender.lock().unwrap_or_else(PoisonError::into_inner).hear(&event);
            std::future::ready(())
        });
        let client = options.connect(addresses).await.map_err(|error| {
            TransportError::Away(format!("{}: {}", broker_list(&settings), error.kind()))
        })?;
        let js = ContextBuilder::new()
            .timeout(settings.timeout)
            .ack_timeout(settings.timeout)
            .build(client.clone());
        Ok(Self {
            client,
            js,
            names,
            settings,
            incarnation: AtomicU64::new(0),
            newest: AtomicU64::new(0),
            events,
            creating: tokio::sync::Mutex::new(()),
        })
    }

    pub(super) fn is_up(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Fails if there is no connection now.
    pub(super) fn connected(&self) -> Result<(), TransportError> {
        if self.is_up() {
            return Ok(());
        }
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let place = broker_list(&self.settings);
        match &events.unconnected {
            Some(why) if why.contains("authorization") || why.contains("signing") => {
                Err(TransportError::Refused(format!("{place}: {why}; check the credentials")))
            }
            Some(why) => Err(TransportError::Away(format!("{place}: {why}"))),
            None => Err(TransportError::Away(place)),
        }
    }

    /// Sends a request and waits for the response. A stream acknowledges a message this way.
    async fn request<A: DeserializeOwned>(
        &self,
        subject: String,
        headers: Option<HeaderMap>,
        body: Bytes,
        what: &str,
    ) -> Result<Result<A, ApiError>, StoreError> {
        self.connected().map_err(StoreError::Failed)?;
        let (begun, time) = (Instant::now(), self.settings.timeout);
        let mut request = Request::new().payload(body).timeout(Some(time));
        if let Some(headers) = headers {
            request = request.headers(headers);
        }
        // Its own timeout starts when the connection has taken the request.
        let asked =
            tokio::time::timeout(time * 2, self.client.send_request(subject.clone(), request))
                .await;
        let forbidden = || self.forbidden(begun, &subject);
        let message = match asked {
            Ok(Ok(message)) => message,
            Ok(Err(error)) if error.kind() == RequestErrorKind::NoResponders => {
                return Err(StoreError::NoListener);
            }
            Ok(Err(error)) => {
                return Err(StoreError::Failed(
                    forbidden().unwrap_or_else(|| request_error(&error, what)),
                ));
            }
            Err(_) => {
                return Err(StoreError::Failed(TransportError::Away(format!(
                    "{what}: cannot be sent"
                ))));
            }
        };
        match serde_json::from_slice(&message.payload) {
            Ok(ApiResponse::Error { error }) => Ok(Err(error)),
            Ok(ApiResponse::Fine(answer)) => Ok(Ok(answer)),
            Err(_) => Err(StoreError::Failed(TransportError::Invalid(format!(
                "{what}: unreadable response"
            )))),
        }
    }

    /// Sends a request to JetStream's API.
    pub(super) async fn api_request<A: DeserializeOwned>(
        &self,
        subject: &str,
        question: &(impl Serialize + Sync),
        what: &str,
    ) -> Result<Result<A, ApiError>, TransportError> {
        let body = serde_json::to_vec(question)
            .map_err(|error| TransportError::Invalid(format!("{what}: {error}")))?;
        match self.request(format!("$JS.API.{subject}"), None, body.into(), what).await {
            Ok(answer) => Ok(answer),
            Err(StoreError::Failed(error)) => Err(error),
            Err(StoreError::NoListener | StoreError::WrongRevision) => {
                Err(TransportError::Away(format!(
                    "{what}: JetStream does not respond; is it enabled, and does it have a leader?"
                )))
            }
        }
    }

    /// Returns the error if the broker has denied permission for a subject since then. It reports
    /// that separately; the request itself never gets a response.
    pub(super) fn forbidden(&self, since: Instant, subject: &str) -> Option<TransportError> {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let mut recent = events.complaints.iter().filter(|(at, _)| *at >= since);
        let found = recent.find(|(_, what)| {
            what.to_ascii_lowercase().contains("permissions") && what.contains(subject)
        })?;
        Some(TransportError::Refused(format!(
            "{}. `fetchwise fleet permissions` prints what a node needs",
            found.1
        )))
    }

    /// Stores a message. Returns its sequence number and whether it was a duplicate.
    pub(super) async fn store(
        &self,
        subject: String,
        headers: HeaderMap,
        body: Bytes,
        what: &str,
    ) -> Result<(u64, bool), StoreError> {
        match self.request::<PubAck>(subject, Some(headers), body, what).await? {
            Ok(stored) => Ok((stored.seq, stored.duplicate)),
            Err(error) if error.is_wrong_revision() => Err(StoreError::WrongRevision),
            Err(error) => Err(StoreError::Failed(api_error(&error, what))),
        }
    }
}

/// Returns the broker addresses, for error messages.
fn broker_list(settings: &NatsSettings) -> String {
    settings.urls.iter().map(|url| redacted(url).to_string()).collect::<Vec<_>>().join(", ")
}
