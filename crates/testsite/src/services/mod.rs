//! Stand-ins for services of the web, on loopback: a web archive, and whatever else a closure answers for.
//!
//! Each is a small HTTP/1.1 server with one thread for each connection, which keeps what it was asked. Must not be used for
//! sites: those are [`crate::origin`].

pub mod archive;
pub mod proxy;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A connection that says nothing is given up after this.
const IDLE: Duration = Duration::from_secs(10);
/// Bytes of a request's body that are read at most.
const BODY_MAX: u64 = 1 << 20;

/// A request as it arrived.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// `GET`, `POST`, ...
    pub method: String,
    /// What stands in the request line: path and query, or a whole URL when a proxy is asked.
    pub target: String,
    /// Headers in order, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Asked {
    /// The first header called `name`, in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The value of a parameter of the query, decoded.
    pub fn parameter(&self, name: &str) -> Option<String> {
        let (_, query) = self.target.split_once('?')?;
        url::form_urlencoded::parse(query.as_bytes()).find(|(known, _)| known == name).map(|(_, value)| value.into())
    }
}

/// What is answered.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    /// The status; 0 closes the connection without an answer.
    pub status: u16,
    /// Headers beside `Content-Length` and `Connection`.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Reply {
    /// An answer with this status and nothing else.
    pub fn status(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    /// The same with a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// The same with a body of this type.
    #[must_use]
    pub fn body(self, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self { body: body.into(), ..self.header("Content-Type", content_type) }
    }
}

/// A running service. Dropping it stops it.
#[derive(Debug)]
pub struct Service {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    stop: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Service {
    /// Serves what `answer` says, on a free port of `ip`, which must be a loopback address.
    ///
    /// # Errors
    /// An address that is not loopback, or cannot be bound; no thread for the service.
    pub fn start(ip: IpAddr, answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> io::Result<Self> {
        if !ip.is_loopback() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{ip} is no loopback address")));
        }
        let listener = TcpListener::bind((ip, 0))?;
        let address = listener.local_addr()?;
        let (asked, stop, answer) = (Arc::default(), Arc::new(AtomicBool::new(false)), Arc::new(answer));
        let (keeping, stopping) = (Arc::clone(&asked), Arc::clone(&stop));
        let accepting = thread::Builder::new().name("service".to_owned()).spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if stopping.load(Ordering::Acquire) {
                    return;
                }
                let (asked, answer) = (Arc::clone(&keeping), Arc::clone(&answer));
                let _ = thread::Builder::new().spawn(move || serve(&stream, &asked, &*answer));
            }
        })?;
        Ok(Self { address, asked, stop, accepting: Some(accepting) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of `path`, which begins with `/`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The requests so far, the oldest first.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

/// Answers one request, then closes the connection.
fn serve(stream: &TcpStream, asked: &Mutex<Vec<Asked>>, answer: &(impl Fn(&Asked) -> Reply + ?Sized)) {
    let _ = stream.set_read_timeout(Some(IDLE));
    let Some(request) = read(&mut BufReader::new(stream)) else { return };
    asked.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
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
    let _ =
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&reply.body)).and_then(|()| stream.flush());
}

fn read(from: &mut impl BufRead) -> Option<Asked> {
    let mut line = String::new();
    from.read_line(&mut line).ok()?;
    let mut words = line.split_ascii_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut asked = Asked { method, target, ..Asked::default() };
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
        asked.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let len: u64 = asked.header("content-length").and_then(|len| len.parse().ok()).unwrap_or(0);
    from.take(len.min(BODY_MAX)).read_to_end(&mut asked.body).ok()?;
    Some(asked)
}
