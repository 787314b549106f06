//! The conversation with Chromium: commands out, replies and events in, over one web socket.
//!
//! chromiumoxide owns the socket and the types of the DevTools protocol. What this file adds is order: one task drives
//! the connection and hands each session its events in the order in which they came, which the tab's state machine
//! relies on. Events are kept as loose JSON, so that a newer Chromium with events or values that nobody has heard of is
//! no error: a message that does not parse is dropped and the conversation goes on. It must not know what a page is.

use std::borrow::Cow;
use std::collections::HashMap;

use chromiumoxide::types::{CallId, Command, EventMessage, Message, Method, Response};
use chromiumoxide::{Connection, error::CdpError};
use futures_util::StreamExt;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

/// An event, as loose as it came.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Event {
    /// E.g. `Network.requestWillBeSent`.
    pub(super) method: String,
    #[serde(rename = "sessionId")]
    session: Option<String>,
    /// What it says.
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

/// Why a command brought no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// The browser is gone, or the connection to it.
    #[error("the browser is gone")]
    Closed,
    /// The browser said no.
    #[error("{method}: {message}")]
    Refused {
        /// The command.
        method: Cow<'static, str>,
        /// The browser's words.
        message: String,
    },
    /// The answer is not what the protocol says.
    #[error("{method}: an answer that makes no sense: {source}")]
    Garbled {
        /// The command.
        method: Cow<'static, str>,
        /// What does not fit.
        source: serde_json::Error,
    },
}

enum Op {
    Call { method: Cow<'static, str>, session: Option<String>, params: Value, reply: Option<oneshot::Sender<Response>> },
    Listen { session: String, events: mpsc::UnboundedSender<Event> },
    Forget { session: String },
}

/// A handle on the conversation; clones share it. It ends when the last clone is dropped, or the browser goes.
#[derive(Clone)]
pub(super) struct Cdp {
    ops: mpsc::UnboundedSender<Op>,
}

impl Cdp {
    /// Connects to the DevTools socket and starts the task that drives it. Events of no session go to `root`.
    pub(super) async fn connect(socket: &str, root: mpsc::UnboundedSender<Event>) -> Result<Self, CdpError> {
        let connection = Connection::<Event>::connect(socket).await?;
        let (ops, receiver) = mpsc::unbounded_channel();
        tokio::spawn(drive(connection, receiver, root));
        Ok(Self { ops })
    }

    /// Whether the conversation is over.
    pub(super) fn is_closed(&self) -> bool {
        self.ops.is_closed()
    }

    /// Waits until it is.
    pub(super) async fn closed(&self) {
        self.ops.closed().await;
    }

    /// Sends a command and waits for its answer. It never ends by itself when the other side hangs: bound it.
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

    /// Sends a command whose answer does not matter.
    pub(super) fn send<C: Command>(&self, session: Option<&str>, command: C) {
        let method = command.identifier();
        if let Ok(params) = serde_json::to_value(command) {
            let _ = self.ops.send(Op::Call { method, session: session.map(str::to_owned), params, reply: None });
        }
    }

    /// Events of `session`, in the order in which they come from now on; the stream ends with the conversation.
    pub(super) fn listen(&self, session: &str) -> mpsc::UnboundedReceiver<Event> {
        let (events, receiver) = mpsc::unbounded_channel();
        let _ = self.ops.send(Op::Listen { session: session.to_owned(), events });
        receiver
    }

    /// Forgets the listener of `session`.
    pub(super) fn forget(&self, session: &str) {
        let _ = self.ops.send(Op::Forget { session: session.to_owned() });
    }
}

/// Runs until the browser goes or nobody holds a handle any more. Who still waits for an answer then finds the
/// conversation closed.
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
                    // Queues only: the next poll of the connection below sends it.
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
