//! The connection to the brokers: requests to JetStream and stored messages, each within a timeout.
//!
//! Invariants: no call starts while there is no connection; it would otherwise be carried out whenever one is back.
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

use super::error::{NotStored, Told, told, unanswered};
use super::names::Names;
use super::settings::{NatsSettings, shown};
use crate::transport::TransportError;

/// The maximum number of remembered errors of the broker.
const COMPLAINTS: usize = 8;

/// A connection to the brokers of one pool.
pub(super) struct Link {
    pub(super) client: Client,
    pub(super) js: Context,
    pub(super) names: Names,
    pub(super) settings: NatsSettings,
    /// The incarnation of the message stream at the last check; 0 before the first.
    pub(super) incarnation: AtomicU64,
    /// The newest known message of the message stream.
    pub(super) newest: AtomicU64,
    heard: Arc<Mutex<Heard>>,
    /// Held while streams are created.
    pub(super) making: tokio::sync::Mutex<()>,
}

/// Errors that the brokers or the client have reported.
#[derive(Default)]
struct Heard {
    /// The reason why the last attempt to connect failed.
    unconnected: Option<String>,
    complaints: VecDeque<(Instant, String)>,
}

/// The response to a request.
#[derive(Deserialize)]
#[serde(untagged)]
enum Answer<A> {
    Error { error: Told },
    Fine(A),
}

/// The acknowledgement of a stored message.
#[derive(Deserialize)]
struct Stored {
    seq: u64,
    #[serde(default)]
    duplicate: bool,
}

impl Heard {
    fn hear(&mut self, event: &Event) {
        match event {
            Event::Connected => self.unconnected = None,
            Event::ClientError(ClientError::Other(why)) => self.unconnected = Some(why.clone()),
            Event::ServerError(ServerError::AuthorizationViolation) => {
                self.unconnected = Some("authorization violation".to_owned());
            }
            Event::ServerError(ServerError::Other(what)) => {
                self.complaints.truncate(COMPLAINTS - 1);
                self.complaints.push_front((Instant::now(), what.clone()));
            }
            _ => {}
        }
    }
}

impl Link {
    /// Starts to connect, and keeps trying in the background.
    pub(super) async fn new(settings: NatsSettings) -> Result<Self, TransportError> {
        settings.check()?;
        let (names, addresses) = (Names::new(&settings.pool)?, settings.addresses()?);
        if addresses[0].tls_required() {
            use async_nats::rustls::crypto::{CryptoProvider, ring};
            // The client uses the process's default provider. If none is set, it is the one that the rest of fetchwise
            // uses.
            if CryptoProvider::get_default().is_none() {
                drop(ring::default_provider().install_default());
            }
        }
        let heard = Arc::new(Mutex::new(Heard::default()));
        let hears = Arc::clone(&heard);
        let options = settings.options(&addresses).await?.event_callback(move |event| {
            hears.lock().unwrap_or_else(PoisonError::into_inner).hear(&event);
            std::future::ready(())
        });
        let client = options
            .connect(addresses)
            .await
            .map_err(|error| TransportError::Away(format!("{}: {}", where_to(&settings), error.kind())))?;
        let js = ContextBuilder::new().timeout(settings.timeout).ack_timeout(settings.timeout).build(client.clone());
        Ok(Self {
            client,
            js,
            names,
            settings,
            incarnation: AtomicU64::new(0),
            newest: AtomicU64::new(0),
            heard,
            making: tokio::sync::Mutex::new(()),
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
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let place = where_to(&self.settings);
        match &heard.unconnected {
            Some(why) if why.contains("authorization") || why.contains("signing") => {
                Err(TransportError::Refused(format!("{place}: {why}; are its credentials right?")))
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
    ) -> Result<Result<A, Told>, NotStored> {
        self.connected().map_err(NotStored::Failed)?;
        let (begun, time) = (Instant::now(), self.settings.timeout);
        let mut request = Request::new().payload(body).timeout(Some(time));
        if let Some(headers) = headers {
            request = request.headers(headers);
        }
        // Its own timeout starts when the connection has taken the request.
        let asked = tokio::time::timeout(time * 2, self.client.send_request(subject.clone(), request)).await;
        let forbidden = || self.forbidden(begun, &subject);
        let message = match asked {
            Ok(Ok(message)) => message,
            Ok(Err(error)) if error.kind() == RequestErrorKind::NoResponders => return Err(NotStored::Nobody),
            Ok(Err(error)) => return Err(NotStored::Failed(forbidden().unwrap_or_else(|| unanswered(&error, what)))),
            Err(_) => return Err(NotStored::Failed(TransportError::Away(format!("{what}: it cannot be sent")))),
        };
        match serde_json::from_slice(&message.payload) {
            Ok(Answer::Error { error }) => Ok(Err(error)),
            Ok(Answer::Fine(answer)) => Ok(Ok(answer)),
            Err(_) => Err(NotStored::Failed(TransportError::Invalid(format!("{what}: an answer that cannot be read")))),
        }
    }

    /// Sends a request to JetStream's API.
    pub(super) async fn ask<A: DeserializeOwned>(
        &self,
        subject: &str,
        question: &(impl Serialize + Sync),
        what: &str,
    ) -> Result<Result<A, Told>, TransportError> {
        let body = serde_json::to_vec(question).map_err(|error| TransportError::Invalid(format!("{what}: {error}")))?;
        match self.request(format!("$JS.API.{subject}"), None, body.into(), what).await {
            Ok(answer) => Ok(answer),
            Err(NotStored::Failed(error)) => Err(error),
            Err(NotStored::Nobody | NotStored::Overtaken) => Err(TransportError::Away(format!(
                "{what}: nobody answers for JetStream; is it switched on, and has it a leader?"
            ))),
        }
    }

    /// Returns the error if the broker has denied permission for a subject since then. It reports that separately; the
    /// request itself never gets a response.
    pub(super) fn forbidden(&self, since: Instant, subject: &str) -> Option<TransportError> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let mut recent = heard.complaints.iter().filter(|(at, _)| *at >= since);
        let found =
            recent.find(|(_, what)| what.to_ascii_lowercase().contains("permissions") && what.contains(subject))?;
        Some(TransportError::Refused(format!("{}. `fetchwise fleet permissions` prints what a node needs", found.1)))
    }

    /// Stores a message. Returns its sequence number and whether it was a duplicate.
    pub(super) async fn store(
        &self,
        subject: String,
        headers: HeaderMap,
        body: Bytes,
        what: &str,
    ) -> Result<(u64, bool), NotStored> {
        match self.request::<Stored>(subject, Some(headers), body, what).await? {
            Ok(stored) => Ok((stored.seq, stored.duplicate)),
            Err(error) if error.is_overtaken() => Err(NotStored::Overtaken),
            Err(error) => Err(NotStored::Failed(told(&error, what))),
        }
    }
}

/// Returns the broker addresses, for error messages.
fn where_to(settings: &NatsSettings) -> String {
    settings.urls.iter().map(|url| shown(url).to_string()).collect::<Vec<_>>().join(", ")
}
