//! The DevTools connection to Chromium: commands out, replies and events in, over one web socket.
//!
//! chromiumoxide owns the socket and the types of the DevTools protocol. This file adds order: one task drives the
//! connection and passes each session its events in the order of arrival, which the page load state machine needs.
//! Events are untyped JSON, so unknown events or values of a newer Chromium are not an error: a message that does not
//! parse is dropped.
//!
//! Must not know: what a page is.

use std::borrow::Cow;
use std::collections::HashMap;

use chromiumoxide::types::{CallId, Command, EventMessage, Message, Method, Response};
use chromiumoxide::{Connection, error::CdpError};
use futures_util::StreamExt;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

/// An untyped event.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Event {
    /// Name, e.g. `Network.requestWillBeSent`.
    pub(super) method: String,
    #[serde(rename = "sessionId")]
    session: Option<String>,
    /// Parameters.
    #[serde(default)]
    pub(super) params: Value,
}

impl Method for Event {
    fn identifier(&self) -> Cow<'static, str> {
        Cow::Owned(self.method.clone())
    }
}

impl EventMessage for Event {
    fn session_id(&self) -> Option<&str> {
        self.session.as_deref()
    }
}

/// The reason why a command has no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// The browser, or the connection to it, is gone.
    #[error("the browser is gone")]
    Closed,
    /// The browser refused the command.
    #[error("{method}: {message}")]
    Refused {
        /// Command.
        method: Cow<'static, str>,
        /// Message of the browser.
        message: String,
    },
    /// The reply violates the protocol.
    #[error("{method}: invalid reply: {source}")]
    Garbled {
        /// Command.
        method: Cow<'static, str>,
        /// Parse error.
        source: serde_json::Error,
    },
}

enum Op {
    Call { method: Cow<'static, str>, session: Option<String>, params: Value, reply: Option<oneshot::Sender<Response>> },
    Listen { session: String, events: mpsc::UnboundedSender<Event> },
    Forget { session: String },
}

/// A handle on the connection; clones share it. The connection ends when the last clone is dropped, or the browser
/// ends.
#[derive(Clone)]
pub(super) struct Cdp {
    ops: mpsc::UnboundedSender<Op>,
}

impl Cdp {
    /// Connects to the DevTools socket and starts the task that drives it. Events without a session go to `root`.
    pub(super) async fn connect(socket: &str, root: mpsc::UnboundedSender<Event>) -> Result<Self, CdpError> {
        let connection = Connection::<Event>::connect(socket).await?;
        let (ops, receiver) = mpsc::unbounded_channel();
        tokio::spawn(drive(connection, receiver, root));
        Ok(Self { ops })
    }

    /// Returns whether the connection has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.ops.is_closed()
    }

    /// Waits until the connection has ended.
    pub(super) async fn closed(&self) {
        self.ops.closed().await;
    }

    /// Sends a command and waits for its reply. It never returns if the other side hangs: the caller bounds it.
    pub(super) async fn call<C: Command>(&self, session: Option<&str>, command: C) -> Result<C::Response, CallError> {
        let method = command.identifier();
        let params = match serde_json::to_value(command) {
            Ok(params) => params,
            Err(source) => return Err(CallError::Garbled { method, source }),
        };
        let (reply, answer) = oneshot::channel();
        let op = Op::Call { method: method.clone(), session: session.map(str::to_owned), params, reply: Some(reply) };
        self.ops.send(op).map_err(|_| CallError::Closed)?;
        let response = answer.await.map_err(|_| CallError::Closed)?;
        if let Some(error) = response.error {
            return Err(CallError::Refused { method, message: error.message });
        }
        C::response_from_value(response.result.unwrap_or(Value::Null))
            .map_err(|source| CallError::Garbled { method, source })
    }

    /// Sends a command without waiting for its reply.
    pub(super) fn send<C: Command>(&self, session: Option<&str>, command: C) {
        let method = command.identifier();
        if let Ok(params) = serde_json::to_value(command) {
            let _ = self.ops.send(Op::Call { method, session: session.map(str::to_owned), params, reply: None });
        }
    }

    /// Returns the events of `session` from now on, in order of arrival; the stream ends with the connection.
    pub(super) fn listen(&self, session: &str) -> mpsc::UnboundedReceiver<Event> {
        let (events, receiver) = mpsc::unbounded_channel();
        let _ = self.ops.send(Op::Listen { session: session.to_owned(), events });
        receiver
    }

    /// Removes the listener of `session`.
    pub(super) fn forget(&self, session: &str) {
        let _ = self.ops.send(Op::Forget { session: session.to_owned() });
    }
}

/// Runs until the browser ends or no handle is left. Pending calls then find the connection closed.
async fn drive(
    mut connection: Connection<Event>,
    mut ops: mpsc::UnboundedReceiver<Op>,
    root: mpsc::UnboundedSender<Event>,
) {
    let mut waiting: HashMap<CallId, oneshot::Sender<Response>> = HashMap::new();
    let mut sessions: HashMap<String, mpsc::UnboundedSender<Event>> = HashMap::new();
    loop {
        tokio::select! {
            op = ops.recv() => match op {
                None => break,
                Some(Op::Call { method, session, params, reply }) => {
                    // Queues only; the next poll of the connection below sends it.
                    if let Ok(id) = connection.submit_command(method, session.map(Into::into), params)
                        && let Some(reply) = reply
                    {
                        waiting.insert(id, reply);
                    }
                }
                Some(Op::Listen { session, events }) => {
                    sessions.insert(session, events);
                }
                Some(Op::Forget { session }) => {
                    sessions.remove(&session);
                }
            },
            message = connection.next() => match message {
                Some(Ok(Message::Response(response))) => {
                    if let Some(reply) = waiting.remove(&response.id) {
                        let _ = reply.send(response);
                    }
                }
                Some(Ok(Message::Event(event))) => {
                    match &event.session {
                        None => drop(root.send(event)),
                        Some(session) => if let Some(events) = sessions.get(session) {
                            let _ = events.send(event);
                        }
                    }
                }
                Some(Err(CdpError::InvalidMessage(..))) => {}
                Some(Err(_)) | None => break,
            },
        }
    }
}
