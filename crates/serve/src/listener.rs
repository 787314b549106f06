//! The accept loop of a server: it accepts connections, checks admission of each request, and stops
//! gracefully.
//!
//! Owns: connections (their number, how long they may idle or stall, and their end).
//!
//! Must not know: what routes do.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::response::{IntoResponse, Response};
use hyper::body::{Bytes, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tower::ServiceExt;

use super::connections::{Connection, Connections};
use super::options::Options;
use crate::auth::Auth;
use crate::request_origin::MAX_HEAD_BYTES;
use crate::write_timeout::{Unstalled, Writing};

/// The time that a closing connection without an active request has for the rest of its last
/// response. A new connection waits as long for one that makes room.
const ROOM_WITHIN: Duration = Duration::from_secs(1);
/// The delay after a failed accept, such as for lack of file descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// The number of refused connections that stay open until their client has read why.
const MAX_REFUSED: usize = 16;
/// The bytes of a refused request that are read: a close with unread bytes would take the response
/// away.
const REFUSED_BYTES: u64 = 64 << 10;
/// The response on a connection beyond the bound. It needs no request.
const REFUSED: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n\
    Cache-Control: no-store\r\nContent-Type: application/problem+json\r\nContent-Length: 230\r\n\r\n\
    {\"type\":\"about:blank\",\"title\":\"Service Unavailable\",\"status\":503,\
    \"detail\":\"too many open connections: retry in a second\",\
    \"success\":false,\"error_type\":\"too_many_connections\",\"error\":\"too many open connections: retry in a second\"}\r\n";

/// The service behind a listener.
#[derive(Clone, Debug)]
pub(crate) struct Front {
    /// The admission check.
    pub(crate) auth: Arc<Auth>,
    /// The limits for clients.
    pub(crate) options: Arc<Options>,
    /// The routes.
    pub(crate) router: Router,
}

impl Front {
    /// Serves `listener` until `stop` completes, and then calls `stopping`. Active requests have
    /// [`Options::grace`] to finish. Returns the number of connections that it had to cut.
    pub(crate) async fn run(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()>,
        stopping: impl FnOnce(),
    ) -> usize {
        let connections = Arc::new(Connections::default());
        let (tell, told) = watch::channel(false);
        self.accept(&listener, stop, &connections, &told).await;
        drop(listener);
        stopping();
        tell.send_replace(true);
        all_closed(&connections, self.options.grace).await
    }

    /// Serves `listener` until `stop` completes. Other connections can be accepted from it
    /// afterwards.
    pub(crate) async fn run_until(self, listener: &TcpListener, stop: impl Future<Output = ()>) {
        let connections = Arc::new(Connections::default());
        let (tell, told) = watch::channel(false);
        self.accept(listener, stop, &connections, &told).await;
        tell.send_replace(true);
    }

    async fn accept(
        &self,
        listener: &TcpListener,
        stop: impl Future<Output = ()>,
        connections: &Arc<Connections>,
        told: &watch::Receiver<bool>,
    ) {
        let refusing = Arc::new(Semaphore::new(MAX_REFUSED));
        tokio::pin!(stop);
        loop {
            let (stream, from) = tokio::select! {
                biased;
                () = &mut stop => return,
                accepted = listener.accept() => match accepted {
                    Ok(accepted) => accepted,
                    // The client is gone, or no descriptor is free. Existing connections continue.
                    Err(_) => {
                        tokio::time::sleep(ACCEPT_AGAIN).await;
                        continue;
                    }
                },
            };
            // While this waits for room, further connections are not accepted.
            match connections.add(self.options.max_connections, ROOM_WITHIN).await {
                Some(connection) => {
                    let served = ServedConnection {
                        front: self.clone(),
                        connections: Arc::clone(connections),
                        connection,
                        from: from.ip().to_canonical(),
                    };
                    tokio::spawn(served.run(stream, told.clone()));
                }
                None => refuse(stream, &refusing),
            }
        }
    }
}

/// Waits until all connections are closed, for `grace` at most. Returns the number of those that
/// are not.
async fn all_closed(connections: &Connections, grace: Duration) -> usize {
    let grace = tokio::time::sleep(grace);
    tokio::pin!(grace);
    while connections.len() > 0 {
        tokio::select! {
            () = &mut grace => break,
            () = tokio::time::sleep(Duration::from_millis(5)) => {}
        }
    }
    connections.len()
}

/// Responds that there are too many connections, and closes this one.
fn refuse(mut stream: TcpStream, refusing: &Arc<Semaphore>) {
    // The buffer of a new connection has room for the response. If not, the client sees the close
    // only.
    let _ = stream.try_write(REFUSED);
    let Ok(place) = Arc::clone(refusing).try_acquire_owned() else { return };
    tokio::spawn(async move {
        let _ = stream.shutdown().await;
        let mut rest = stream.take(REFUSED_BYTES);
        let _ =
            tokio::time::timeout(ROOM_WITHIN, tokio::io::copy(&mut rest, &mut tokio::io::sink()))
                .await;
        drop((rest, place));
    });
}

/// A connection with its service.
struct ServedConnection {
    front: Front,
    connections: Arc<Connections>,
    connection: Arc<Connection>,
    from: IpAddr,
}

impl Drop for ServedConnection {
    fn drop(&mut self) {
        // The stream borrows this value, so it is closed already.
        self.connections.remove(&self.connection);
    }
}

impl ServedConnection {
    async fn run(self, stream: TcpStream, mut stop: watch::Receiver<bool>) {
        // A response is one write, so there is nothing to coalesce.
        let _ = stream.set_nodelay(true);
        let options = &self.front.options;
        let connection = &*self.connection;
        let stream = Unstalled::new(stream, options.write_time, |writing| match writing {
            Writing::Waits => connection.waits(true),
            Writing::Continues => connection.waits(false),
            Writing::Flushed => connection.flushed(),
        });
        let this = &self;
        let service = service_fn(|request: Request<Incoming>| this.answer(request));
        let mut builder = http1::Builder::new();
        // A read may go beyond this, so the admission counts again.
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(options.idle_time)
            .max_buf_size(MAX_HEAD_BYTES);
        let serving = builder.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(serving);
        let stopping = async {
            let _ = stop.wait_for(|stop| *stop).await;
        };
        tokio::pin!(stopping);
        let ended = loop {
            tokio::select! {
                // A client may break off in any way.
                _ = &mut serving => break true,
                () = connection.is_to_close() => match connection.is_idle() || connection.is_stalled() {
                    true => break true,
                    // A request arrived meanwhile, so another connection has to make room.
                    false => self.connections.stays(connection),
                },
                () = &mut stopping => break false,
            }
        };
        if !ended {
            serving.as_mut().graceful_shutdown();
            tokio::select! {
                _ = &mut serving => {}
                // An incomplete head is not a request and must not occupy a connection.
                () = connection.is_idle_for(ROOM_WITHIN) => {}
            }
        }
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response, std::convert::Infallible> {
        self.connections.busy(&self.connection, true);
        let (mut parts, body) = request.into_parts();
        let response = match self.front.auth.admit(&parts, self.from) {
            Err(problem) => problem.into_response(),
            Ok(client) => {
                parts.extensions.insert(client);
                let body = WatchedBody { body, connection: Arc::clone(&self.connection) };
                let request = Request::from_parts(parts, Body::new(body));
                match self.front.router.clone().oneshot(request).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                }
            }
        };
        self.connections.busy(&self.connection, false);
        Ok(response)
    }
}

/// The body of a request. It records whether the server waits for more of it.
struct WatchedBody {
    body: Incoming,
    connection: Arc<Connection>,
}

impl hyper::body::Body for WatchedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        self.connection.waits(frame.is_pending());
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for WatchedBody {
    fn drop(&mut self) {
        self.connection.waits(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_has_its_announced_length() {
        let text = std::str::from_utf8(REFUSED).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let announced =
            head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
        assert_eq!(announced.parse::<usize>().unwrap(), body.len());
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["error_type"], "too_many_connections");
    }
}
