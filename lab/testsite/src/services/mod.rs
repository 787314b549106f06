//! Stand-ins for services of the web, on loopback: a web archive, a proxy, and any service that a
//! closure can play.
//!
//! Each service is a small HTTP/1.1 server with one thread per connection that records its
//! requests. Sites are served by [`crate::origin`] instead.

pub mod archive;
pub mod proxy;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Idle time after which a connection is closed.
const IDLE: Duration = Duration::from_secs(10);
/// Maximum number of body bytes that are read.
const MAX_BODY: u64 = 1 << 20;

/// A request as it arrived.
#[derive(Clone, Debug, Default)]
pub struct ServiceRequest {
    /// Method: `GET`, `POST`, ...
    pub method: String,
    /// Target in the request line: path and query, or a whole URL when a proxy gets the request.
    pub target: String,
    /// Headers in order, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl ServiceRequest {
    /// Returns the first header called `name`, in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns the decoded value of a query parameter.
    pub fn parameter(&self, name: &str) -> Option<String> {
        let (_, query) = self.target.split_once('?')?;
        url::form_urlencoded::parse(query.as_bytes())
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.into())
    }
}

/// A prepared response.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    /// Status; 0 closes the connection without a response.
    pub status: u16,
    /// Headers besides `Content-Length` and `Connection`.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Reply {
    /// Returns a response with this status and nothing else.
    pub fn status(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Adds a body of this type.
    #[must_use]
    pub fn body(self, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self { body: body.into(), ..self.header("Content-Type", content_type) }
    }
}

/// A running service. Dropping it stops it.
#[derive(Debug)]
pub struct Service {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<ServiceRequest>>>,
    stop: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Service {
    /// Serves the replies of `answer` on a free port of `ip`, which must be a loopback address.
    ///
    /// # Errors
    /// Fails for an address that is not loopback or cannot be bound, and when no thread can be
    /// started.
    pub fn start(
        ip: IpAddr,
        answer: impl Fn(&ServiceRequest) -> Reply + Send + Sync + 'static,
    ) -> io::Result<Self> {
        if !ip.is_loopback() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{ip} is not a loopback address"),
            ));
        }
        let listener = TcpListener::bind((ip, 0))?;
        let address = listener.local_addr()?;
        let (requests, stop, answer) =
            (Arc::default(), Arc::new(AtomicBool::new(false)), Arc::new(answer));
        let (recorded, stopping) = (Arc::clone(&requests), Arc::clone(&stop));
        let accepting = thread::Builder::new().name("service".to_owned()).spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if stopping.load(Ordering::Acquire) {
                    return;
                }
                let (requests, answer) = (Arc::clone(&recorded), Arc::clone(&answer));
                let _ = thread::Builder::new().spawn(move || serve(&stream, &requests, &*answer));
            }
        })?;
        Ok(Self { address, requests, stop, accepting: Some(accepting) })
    }

    /// Returns the address that the service listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of `path`, which begins with `/`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the requests so far, oldest first.
    pub fn requests(&self) -> Vec<ServiceRequest> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

/// Responds to one request, then closes the connection.
fn serve(
    stream: &TcpStream,
    requests: &Mutex<Vec<ServiceRequest>>,
    answer: &(impl Fn(&ServiceRequest) -> Reply + ?Sized),
) {
    let _ = stream.set_read_timeout(Some(IDLE));
    let Some(request) = read(&mut BufReader::new(stream)) else { return };
    requests.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
    let reply = answer(&request);
    if reply.status == 0 {
        return;
    }
    let mut head = format!("HTTP/1.1 {} Stand-in\r\nConnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("Content-Length: {}\r\n\r\n", reply.body.len()));
    let mut stream = stream;
    let _ = stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(&reply.body))
        .and_then(|()| stream.flush());
}

fn read(from: &mut impl BufRead) -> Option<ServiceRequest> {
    let mut line = String::new();
    from.read_line(&mut line).ok()?;
    let mut words = line.split_ascii_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut request = ServiceRequest { method, target, ..ServiceRequest::default() };
    loop {
        let mut line = String::new();
        if from.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':')?;
        request.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let len: u64 = request.header("content-length").and_then(|len| len.parse().ok()).unwrap_or(0);
    from.take(len.min(MAX_BODY)).read_to_end(&mut request.body).ok()?;
    Some(request)
}
