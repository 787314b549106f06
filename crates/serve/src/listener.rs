//! The front of a server: it accepts connections, has the gate look at each request, and stops so that nothing under way is lost.
//!
//! Owns connections: how many, how long they may idle or stall, and their end. Must not know what routes do.

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
use crate::auth::Gate;
use crate::write_timeout::Unstalled;

/// The head of a request, its URL included, is no longer than this.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// A connection that is to end, and on which no request is under way, gets so long for the rest of its last answer.
const ROOM_WITHIN: Duration = Duration::from_secs(1);
/// After an accept that failed, for want of a descriptor for one, the next one is tried so much later.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// What answers on a listener.
#[derive(Clone, Debug)]
pub(crate) struct Front {
    /// Who may come in.
    pub(crate) gate: Arc<Gate>,
    /// What clients are allowed.
    pub(crate) options: Arc<Options>,
    /// Where requests go.
    pub(crate) router: Router,
}

impl Front {
    /// Answers on `listener` until `stop` ends, and says so by `stopping`; then lets what is under way come to its end, within
    /// [`Options::grace`]. Says how many connections it has had to cut.
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
                        let served = Served {
                            front: self.clone(),
                            connections: Arc::clone(&connections),
                            connection,
                            from: from.ip().to_canonical(),
                        };
                        tokio::spawn(served.run(stream, told.clone()));
                    }
                    // The client has gone, or there are no descriptors: what is there goes on.
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

/// A connection that is served.
struct Served {
    front: Front,
    connections: Arc<Connections>,
    connection: Arc<Connection>,
    from: IpAddr,
}

impl Served {
    async fn run(self, stream: TcpStream, mut stop: watch::Receiver<bool>) {
        // An answer is one write: there is nothing to gather.
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
            // How a client breaks off is its own affair.
            _ = &mut serving => true,
            () = self.connection.is_to_close() => false,
            () = &mut stopping => false,
        };
        if !ended {
            serving.as_mut().graceful_shutdown();
            tokio::select! {
                _ = &mut serving => {}
                // A head that does not come to its end is no request, and takes nobody's room.
                () = self.connection.is_idle_for(ROOM_WITHIN) => {}
            }
        }
        self.connections.remove(&self.connection);
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response, std::convert::Infallible> {
        self.connections.busy(&self.connection, true);
        let (mut parts, body) = request.into_parts();
        let response = match self.front.gate.admit(&parts, self.from) {
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
