//! A small server that decides about each request by a limiter, and counts.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The response to a request. Status 0 closes the connection without a response.
pub(crate) struct Verdict {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<u64>,
}

impl Verdict {
    pub(crate) const GOOD: Self = Self { status: 200, retry_after: None };

    pub(crate) fn refused(status: u16) -> Self {
        Self { status, retry_after: None }
    }
}

/// Decides about a request; may take its time.
pub(crate) type Limiter = Box<dyn Fn(&str, Instant) -> Verdict + Send + Sync>;

/// A request with a response.
#[derive(Clone, Debug)]
pub(crate) struct ServedRequest {
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) at: Instant,
    pub(crate) status: u16,
}

/// A server on one port of several loopback addresses. It ends with the test's process.
pub(crate) struct Server {
    pub(crate) port: u16,
    seen: Arc<Mutex<Vec<ServedRequest>>>,
    ended: Arc<AtomicBool>,
    listening: Vec<JoinHandle<()>>,
    hosts: Vec<String>,
}

impl Server {
    /// Serves each host by its limiter.
    pub(crate) fn start(limiters: impl IntoIterator<Item = (String, Limiter)>) -> Self {
        let (seen, ended) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (mut port, mut listening, mut hosts) = (0, Vec::new(), Vec::new());
        for (host, limiter) in limiters {
            let listener = TcpListener::bind((&*host, port)).unwrap();
            port = listener.local_addr().unwrap().port();
            let (seen, ended, limiter, name) =
                (Arc::clone(&seen), Arc::clone(&ended), Arc::new(limiter), host.clone());
            hosts.push(host);
            listening.push(std::thread::spawn(move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    if ended.load(Ordering::Relaxed) {
                        return;
                    }
                    let (seen, limiter, name) =
                        (Arc::clone(&seen), Arc::clone(&limiter), name.clone());
                    std::thread::spawn(move || serve(&stream, &name, &limiter, &seen));
                }
            }));
        }
        Self { port, seen, ended, listening, hosts }
    }

    pub(crate) fn base(&self, host: &str) -> String {
        format!("http://{host}:{}", self.port)
    }

    /// Returns all requests with a response, in order.
    pub(crate) fn seen(&self) -> Vec<ServedRequest> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn refusals(&self) -> usize {
        self.seen().iter().filter(|seen| seen.status != 200).count()
    }

    /// Returns how often each page was delivered.
    pub(crate) fn deliveries(&self) -> HashMap<String, usize> {
        let mut deliveries = HashMap::new();
        for seen in self.seen().into_iter().filter(|seen| seen.status == 200) {
            *deliveries.entry(format!("{}{}", seen.host, seen.path)).or_default() += 1;
        }
        deliveries
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        for (listening, host) in self.listening.drain(..).zip(&self.hosts) {
            let _ = TcpStream::connect((&**host, self.port));
            let _ = listening.join();
        }
    }
}

fn serve(stream: &TcpStream, host: &str, limiter: &Limiter, seen: &Mutex<Vec<ServedRequest>>) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(120)));
    let _ = stream.set_nodelay(true);
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    while let Some(request) = lines.next() {
        let path = request.split(' ').nth(1).unwrap_or("/").to_owned();
        if !lines.by_ref().any(|line| line.is_empty()) {
            return;
        }
        let at = Instant::now();
        let verdict = limiter(&path, at);
        let status = verdict.status;
        let page =
            if status == 200 { article(&path) } else { "<h1>Too many requests</h1>".to_owned() };
        let wait = verdict
            .retry_after
            .map_or(String::new(), |seconds| format!("Retry-After: {seconds}\r\n"));
        let head = format!(
            "HTTP/1.1 {status} So\r\nContent-Type: text/html\r\nContent-Length: {}\r\n{wait}\r\n",
            page.len()
        );
        seen.lock().unwrap().push(ServedRequest { host: host.to_owned(), path, at, status });
        if status == 0 {
            let _ = stream.shutdown(std::net::Shutdown::Both);
            return;
        }
        let mut to = stream;
        if to.write_all((head + &page).as_bytes()).is_err() {
            return;
        }
    }
}

fn article(path: &str) -> String {
    let text = format!(
        "<p>The ferry of {path} leaves at noon and comes back in the evening, on every day.</p>"
    );
    format!("<!doctype html><title>Ferries</title><h1>Ferries</h1>{}", text.repeat(20))
}
