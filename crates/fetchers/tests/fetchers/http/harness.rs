//! Servers on loopback, a resolver with a table, and helpers for requests.

use std::convert::Infallible;
use std::future::Future;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::fetch::address_guard::{AddressGuard, parse_network};
use fetchwise::fetch::dial::{LookupFuture, Resolve};
use fetchwise::fetch::http::{HttpFetcher, HttpFetcherBuilder};
use fetchwise::fetch::{FetchError, Fetcher, Limits, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

/// Ends a test that hangs.
pub(crate) async fn bounded<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(600), test).await.expect("the test hangs")
}

pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Server {
    /// Starts a listener on `ip` that passes each connection to `serve`.
    pub(crate) async fn on<F>(ip: [u8; 4], serve: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::from(ip), 0)).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream));
            }
        });
        Self { addr, connections }
    }

    pub(crate) async fn raw<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::on([127, 0, 0, 1], serve).await
    }

    /// Starts a server that responds to each connection's first request with `bytes`, then closes.
    pub(crate) async fn canned(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = Arc::new(bytes.into());
        Self::raw(move |mut stream| {
            let bytes = Arc::clone(&bytes);
            async move {
                read_head(&mut stream).await;
                let _ = stream.write_all(&bytes).await;
                let _ = stream.shutdown().await;
                // Further reads keep the kernel from answering late bytes with a reset.
                read_to_close(&mut stream).await;
            }
        })
        .await
    }

    /// Starts a server that writes `head`, then `chunk` repeatedly until the client hangs up, with
    /// `pause` after each.
    pub(crate) async fn endless(head: &[u8], chunk: Vec<u8>, pause: Duration) -> Self {
        let (head, chunk) = (Arc::new(head.to_vec()), Arc::new(chunk));
        Self::raw(move |mut stream| {
            let (head, chunk) = (Arc::clone(&head), Arc::clone(&chunk));
            async move {
                read_head(&mut stream).await;
                stream.write_all(&head).await.unwrap();
                while stream.write_all(&chunk).await.is_ok() {
                    if !pause.is_zero() {
                        tokio::time::sleep(pause).await;
                    }
                }
            }
        })
        .await
    }

    /// Starts a listener that accepts connections and never responds.
    pub(crate) async fn silent(ip: [u8; 4]) -> Self {
        Self::on(ip, |mut stream| async move { read_to_close(&mut stream).await }).await
    }

    /// Starts a hyper server, HTTP/1.1 with keep-alive.
    pub(crate) async fn http(
        respond: impl Fn(http::Request<Incoming>) -> http::Response<Full<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        let respond = Arc::new(respond);
        Self::raw(move |stream| {
            let respond = Arc::clone(&respond);
            async move {
                let service = service_fn(move |request| {
                    let response = respond(request);
                    async move { Ok::<_, Infallible>(response) }
                });
                let http = hyper::server::conn::http1::Builder::new();
                let _ = http.serve_connection(TokioIo::new(stream), service).await;
            }
        })
        .await
    }

    pub(crate) fn url(&self, path: &str) -> Url {
        format!("http://{}{path}", self.addr).parse().unwrap()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

pub(crate) async fn read_head(stream: &mut TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
}

pub(crate) async fn read_to_close(stream: &mut TcpStream) {
    let mut buffer = [0; 4096];
    while let Ok(1..) = stream.read(&mut buffer).await {}
}

pub(crate) fn response(status: u16, body: impl Into<Bytes>) -> http::Response<Full<Bytes>> {
    http::Response::builder().status(status).body(Full::new(body.into())).unwrap()
}

pub(crate) fn redirect(status: u16, location: &str) -> http::Response<Full<Bytes>> {
    let builder = http::Response::builder().status(status).header("location", location);
    builder.body(Full::new("moved".into())).unwrap()
}

pub(crate) fn opened(networks: &[&str]) -> AddressGuard {
    AddressGuard::new(networks.iter().map(|n| parse_network(n).unwrap()), false)
}

/// Returns a builder of a fetcher that may dial only 127.0.0.1 on this machine.
pub(crate) fn builder() -> HttpFetcherBuilder {
    HttpFetcher::builder().guard(opened(&["127.0.0.1"]))
}

pub(crate) fn fetcher() -> HttpFetcher {
    builder().build().unwrap()
}

/// Returns limits with a deadline that no test reaches.
pub(crate) fn limits() -> Limits {
    Limits { deadline: Duration::from_secs(3600), ..Limits::default() }
}

pub(crate) async fn get_with(
    fetcher: &HttpFetcher,
    url: &Url,
    limits: &Limits,
) -> Result<Response, FetchError> {
    fetcher.fetch(Request::new(url, limits)).await
}

pub(crate) async fn get(url: &Url) -> Result<Response, FetchError> {
    get_with(&fetcher(), url, &limits()).await
}

/// Fetches `url` and returns the error at the deadline. If it is not `expected`, the machine was
/// too busy for the stage that the test is about, and the next deadline is twice as long.
pub(crate) async fn timeout_with(
    url: &Url,
    limits: &Limits,
    expected: impl Fn(&FetchError) -> bool,
) -> FetchError {
    let mut limits = limits.clone();
    loop {
        let error = get_with(&fetcher(), url, &limits).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Timeout, "{error}");
        assert!(error.duration >= limits.deadline, "{:?} of {:?}", error.duration, limits.deadline);
        if expected(&error) {
            return error;
        }
        limits.deadline *= 2;
        assert!(
            limits.deadline < Duration::from_secs(60),
            "never within {:?}: {error}",
            error.duration
        );
    }
}

pub(crate) async fn error_kind(url: &Url) -> ErrorKind {
    match get(url).await {
        Ok(response) => panic!("{url}: {response:?}"),
        Err(error) => error.kind,
    }
}

pub(crate) fn body(response: &Response) -> Vec<u8> {
    let mut bytes = Vec::new();
    response.body.reader().read_to_end(&mut bytes).unwrap();
    bytes
}

/// Returns text that compresses to about a third.
pub(crate) fn text(len: usize) -> Vec<u8> {
    let words =
        ["fetch", "probe", "learn", "pause", "block", "index", "cell", "host", "risk", "page"];
    let mut state = 1_u32;
    let mut out = Vec::new();
    while out.len() < len {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        out.extend_from_slice(words[(state >> 16) as usize % words.len()].as_bytes());
        out.extend_from_slice((state >> 8).to_string().as_bytes());
    }
    out.truncate(len);
    out
}

/// A resolver with a table: the n-th result of a name for its n-th lookup. It counts the lookups.
pub(crate) struct Names {
    table: Vec<(&'static str, Vec<Vec<IpAddr>>)>,
    looked_up: Mutex<Vec<String>>,
}

impl Names {
    pub(crate) fn of(table: &[(&'static str, &[&[&str]])]) -> Arc<Self> {
        let parse = |answers: &[&[&str]]| {
            answers.iter().map(|a| a.iter().map(|ip| ip.parse().unwrap()).collect()).collect()
        };
        let table = table.iter().map(|(name, answers)| (*name, parse(answers))).collect();
        Arc::new(Self { table, looked_up: Mutex::default() })
    }

    pub(crate) fn lookups(&self) -> usize {
        self.looked_up.lock().unwrap().len()
    }
}

impl Resolve for Names {
    fn lookup<'a>(&'a self, host: &'a str) -> LookupFuture<'a> {
        Box::pin(async move {
            let mut looked_up = self.looked_up.lock().unwrap();
            let before = looked_up.iter().filter(|name| *name == host).count();
            looked_up.push(host.to_owned());
            let found = self.table.iter().find(|(name, _)| *name == host);
            let (_, answers) = found.ok_or(io::Error::from(io::ErrorKind::NotFound))?;
            Ok(answers[before.min(answers.len() - 1)].clone())
        })
    }
}
