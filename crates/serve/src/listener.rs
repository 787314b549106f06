//! The accept loop of a server: it accepts connections, checks admission of each request, and stops gracefully.
//!
//! Owns: connections (their number, how long they may idle or stall, and their end).
//!
//! Must not know: what routes do.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tower::ServiceExt;

use super::connections::{Connection, Connections};
use super::options::Options;
use crate::auth::Auth;
use crate::write_timeout::Unstalled;

/// The longest head of a request, URL included.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// The time that a closing connection without an active request has for the rest of its last response.
const ROOM_WITHIN: Duration = Duration::from_secs(1);
/// The delay after a failed accept, such as for lack of file descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

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
    /// Serves `listener` until `stop` completes, and then calls `stopping`. Active requests have [`Options::grace`] to
    /// finish. Returns the number of connections that it had to cut.
    pub(crate) async fn run(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()>,
        stopping: impl FnOnce(),
    ) -> usize {
        let connections = Arc::new(Connections::default());
        let (tell, told) = watch::channel(false);
        tokio::pin!(stop);
        loop {
            tokio::select! {
                biased;
                () = &mut stop => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, from)) => {
                        let connection = connections.add(self.options.max_connections);
                        let served = ServedConnection {
                            front: self.clone(),
                            connections: Arc::clone(&connections),
                            connection,
                            from: from.ip().to_canonical(),
                        };
                        tokio::spawn(served.run(stream, told.clone()));
                    }
                    // The client is gone, or no descriptor is free. Existing connections continue.
                    Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
                },
            }
        }
        drop(listener);
        stopping();
        tell.send_replace(true);
        let grace = tokio::time::sleep(self.options.grace);
        tokio::pin!(grace);
        while connections.len() > 0 {
            tokio::select! {
                () = &mut grace => break,
                () = tokio::time::sleep(Duration::from_millis(5)) => {}
            }
        }
        connections.len()
    }
}

/// A connection with its service.
struct ServedConnection {
    front: Front,
    connections: Arc<Connections>,
    connection: Arc<Connection>,
    from: IpAddr,
}

impl ServedConnection {
    async fn run(self, stream: TcpStream, mut stop: watch::Receiver<bool>) {
        // A response is one write, so there is nothing to coalesce.
        let _ = stream.set_nodelay(true);
        let options = &self.front.options;
        let stream = Unstalled::new(stream, options.write_time);
        let this = &self;
        let service = service_fn(|request: Request<Incoming>| this.answer(request));
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(options.idle_time).max_buf_size(MAX_HEAD_BYTES);
        let serving = builder.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(serving);
        let stopping = async {
            let _ = stop.wait_for(|stop| *stop).await;
        };
        tokio::pin!(stopping);
        let ended = tokio::select! {
            // A client may break off in any way.
            _ = &mut serving => true,
            () = self.connection.is_to_close() => false,
            () = &mut stopping => false,
        };
        if !ended {
            serving.as_mut().graceful_shutdown();
            tokio::select! {
                _ = &mut serving => {}
                // An incomplete head is not a request and must not occupy a connection.
                () = self.connection.is_idle_for(ROOM_WITHIN) => {}
            }
        }
        self.connections.remove(&self.connection);
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response, std::convert::Infallible> {
        self.connections.busy(&self.connection, true);
        let (mut parts, body) = request.into_parts();
        let response = match self.front.auth.admit(&parts, self.from) {
            Err(problem) => problem.into_response(),
            Ok(client) => {
                parts.extensions.insert(client);
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
