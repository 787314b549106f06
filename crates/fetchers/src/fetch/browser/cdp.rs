//! The DevTools connection to Chromium: commands out, replies and events in, over one web socket.
//!
//! One task drives the connection and passes each session its events in the order of arrival, which
//! the page load state machine needs. Events are untyped JSON, so unknown events or values of a
//! newer Chromium are not an error: a message that does not parse is dropped.
//!
//! Must not know: what a page is.

use std::collections::HashMap;
use std::pin::pin;

use async_tungstenite::WebSocketStream;
use async_tungstenite::tokio::{ConnectStream, connect_async_with_config};
use async_tungstenite::tungstenite;
use async_tungstenite::tungstenite::protocol::WebSocketConfig;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::protocol::Command;

/// An untyped event.
#[derive(Clone, Debug)]
pub(super) struct Event {
    /// Name, e.g. `Network.requestWillBeSent`.
    pub(super) method: String,
    /// Parameters.
    pub(super) params: Value,
}

/// A message of the browser: a reply if it has an id, an event otherwise.
#[derive(Debug, Deserialize)]
struct Incoming {
    id: Option<u64>,
    #[serde(default)]
    result: Value,
    error: Option<Refusal>,
    method: Option<String>,
    #[serde(rename = "sessionId")]
    session: Option<String>,
    #[serde(default)]
    params: Value,
}

/// The error of a reply.
#[derive(Debug, Deserialize)]
struct Refusal {
    message: String,
}

/// A command on its way out.
#[derive(Serialize)]
struct Outgoing<'a> {
    id: u64,
    method: &'static str,
    #[serde(rename = "sessionId", skip_serializing_if = "Option::is_none")]
    session: Option<&'a str>,
    params: &'a Value,
}

type Reply = oneshot::Sender<Result<Value, Refusal>>;

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
        method: &'static str,
        /// Message of the browser.
        message: String,
    },
    /// The reply violates the protocol.
    #[error("{method}: invalid reply: {source}")]
    Garbled {
        /// Command.
        method: &'static str,
        /// Parse error.
        source: serde_json::Error,
    },
}

enum Op {
    Call { method: &'static str, session: Option<String>, params: Value, reply: Option<Reply> },
    Listen { session: String, events: mpsc::UnboundedSender<Event> },
    Forget { session: String },
}

/// A handle on the connection; clones share it. The connection ends when the last clone is dropped,
/// or the browser ends.
#[derive(Clone)]
pub(super) struct Cdp {
    ops: mpsc::UnboundedSender<Op>,
}

impl Cdp {
    /// Connects to the DevTools socket and starts the task that drives it. Events without a session
    /// go to `root`.
    pub(super) async fn connect(
        socket: &str,
        root: mpsc::UnboundedSender<Event>,
    ) -> Result<Self, tungstenite::Error> {
        // A large page is one message; the fetch limits its size.
        let config = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
        let (connection, _) = connect_async_with_config(socket, Some(config)).await?;
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

    /// Sends a command and waits for its reply. It never returns if the other side hangs: the
    /// caller bounds it.
    pub(super) async fn call<C: Command>(
        &self,
        session: Option<&str>,
        command: C,
    ) -> Result<C::Response, CallError> {
        let method = C::METHOD;
        let params = serde_json::to_value(command)
            .map_err(|source| CallError::Garbled { method, source })?;
        let (reply, answer) = oneshot::channel();
        let op =
            Op::Call { method, session: session.map(str::to_owned), params, reply: Some(reply) };
        self.ops.send(op).map_err(|_| CallError::Closed)?;
        match answer.await.map_err(|_| CallError::Closed)? {
            Ok(result) => serde_json::from_value(result)
                .map_err(|source| CallError::Garbled { method, source }),
            Err(Refusal { message }) => Err(CallError::Refused { method, message }),
        }
    }

    /// Sends a command without waiting for its reply.
    pub(super) fn send<C: Command>(&self, session: Option<&str>, command: C) {
        if let Ok(params) = serde_json::to_value(command) {
            let _ = self.ops.send(Op::Call {
                method: C::METHOD,
                session: session.map(str::to_owned),
                params,
                reply: None,
            });
        }
    }

    /// Returns the events of `session` from now on, in order of arrival; the stream ends with the
    /// connection.
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
    connection: WebSocketStream<ConnectStream>,
    mut ops: mpsc::UnboundedReceiver<Op>,
    root: mpsc::UnboundedSender<Event>,
) {
    let (mut sink, mut messages) = connection.split();
    let (outbox, mut queue) = mpsc::unbounded_channel::<String>();
    // Alongside the reads: a browser that waits until its own messages are read accepts none.
    let mut writes = pin!(async move {
        while let Some(text) = queue.recv().await {
            if sink.send(tungstenite::Message::text(text)).await.is_err() {
                break;
            }
        }
    });
    let mut next_id = 0;
    let mut waiting: HashMap<u64, Reply> = HashMap::new();
    let mut sessions: HashMap<String, mpsc::UnboundedSender<Event>> = HashMap::new();
    loop {
        tokio::select! {
            // The last command leaves before the last handle is noticed to be gone.
            biased;
            () = &mut writes => break,
            op = ops.recv() => match op {
                None => break,
                Some(Op::Call { method, session, params, reply }) => {
                    let command = Outgoing { id: next_id, method, session: session.as_deref(), params: &params };
                    if let Ok(text) = serde_json::to_string(&command) && outbox.send(text).is_ok() {
                        waiting.extend(reply.map(|reply| (next_id, reply)));
                        next_id += 1;
                    }
                }
                Some(Op::Listen { session, events }) => {
                    sessions.insert(session, events);
                }
                Some(Op::Forget { session }) => {
                    sessions.remove(&session);
                }
            },
            message = messages.next() => match message {
                Some(Ok(tungstenite::Message::Text(text))) => {
                    if let Ok(incoming) = serde_json::from_str(&text) {
                        deliver(incoming, &mut waiting, &sessions, &root);
                    }
                }
                Some(Ok(tungstenite::Message::Close(_)) | Err(_)) | None => break,
                Some(Ok(_)) => {}
            },
        }
    }
}

/// Passes a message to the call or the session that waits for it.
fn deliver(
    incoming: Incoming,
    waiting: &mut HashMap<u64, Reply>,
    sessions: &HashMap<String, mpsc::UnboundedSender<Event>>,
    root: &mpsc::UnboundedSender<Event>,
) {
    let Incoming { id, result, error, method, session, params } = incoming;
    if let Some(id) = id {
        if let Some(reply) = waiting.remove(&id) {
            let _ = reply.send(error.map_or(Ok(result), Err));
        }
        return;
    }
    let Some(method) = method else { return };
    let listener = match &session {
        None => Some(root),
        Some(session) => sessions.get(session),
    };
    if let Some(events) = listener {
        let _ = events.send(Event { method, params });
    }
}
