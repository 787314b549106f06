//! Hostile servers by name. A [`Temper`] is the behaviour of a plain server, a [`Flood`] the
//! endless frames of an HTTP/2 server. Both listen on loopback, count what reaches them, and end
//! with the runtime of their test.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// The behaviour of a server of plain HTTP/1.1 (or the same with TLS).
#[derive(Clone, Debug)]
pub(crate) enum Temper {
    /// Responds to the first request of each connection, and closes it silently when the second one
    /// comes.
    HangsUpOnTheSecond,
    /// Responds to the first request of each connection, and closes in the middle of the second
    /// response.
    BreaksOffOnTheSecond,
    /// Responds to the first request of each connection, and resets it after one byte when the
    /// second one comes.
    ResetsOnTheSecond,
    /// `/0` redirects to `/1` and so on; `/N` is the page.
    LeadsOn(u32),
    /// Announces this number of content codings; the body is plain text.
    WrapsUp(usize),
    /// A 403 that impersonates the filtering proxy.
    SpeaksForTheProxy,
    /// A page of this number of incompressible bytes.
    GoesOnAndOn(usize),
    /// Asks for a password, for its page and for the page's resources.
    AsksForPasswords,
    /// Serves this page.
    Shows(String),
}

/// A hostile server, and what has reached it.
pub(crate) struct Hostile {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
}

impl Hostile {
    pub(crate) async fn start(temper: Temper) -> Self {
        Self::serve(temper, None).await
    }

    /// Starts the same with TLS, with its own certificate.
    pub(crate) async fn start_tls(temper: Temper, certificate: &Certificate) -> Self {
        Self::serve(temper, Some(certificate.acceptor(b"http/1.1"))).await
    }

    async fn serve(temper: Temper, tls: Option<TlsAcceptor>) -> Self {
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&requests);
        let (address, connections) = listen(move |stream| {
            let (temper, log, tls) = (temper.clone(), Arc::clone(&log), tls.clone());
            async move {
                match tls {
                    None => converse(stream, &temper, &log).await,
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            converse(stream, &temper, &log).await;
                        }
                    }
                }
            }
        })
        .await;
        Self { address, requests, connections }
    }

    pub(crate) fn url(&self, path: &str) -> url::Url {
        format!("http://{}{path}", self.address).parse().unwrap()
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn listen<F>(
    serve: impl Fn(TcpStream) -> F + Send + 'static,
) -> (SocketAddr, Arc<AtomicUsize>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    count.fetch_add(1, Ordering::SeqCst);
                    tokio::spawn(serve(stream));
                }
                // The tests that exhaust the descriptors do so in this process, too.
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    });
    (address, connections)
}

async fn converse(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    temper: &Temper,
    log: &Mutex<Vec<String>>,
) {
    for nth in 0.. {
        let Some(path) = read_request(&mut stream).await else { return };
        log.lock().unwrap().push(path.clone());
        let answer = match temper {
            Temper::HangsUpOnTheSecond if nth > 0 => return,
            Temper::BreaksOffOnTheSecond if nth > 0 => {
                let _ = stream.write_all(b"HTTP/1.1 2").await;
                let _ = stream.shutdown().await;
                return;
            }
            Temper::ResetsOnTheSecond if nth > 0 => {
                let _ = stream.write_all(b"H").await;
                let _ = stream.flush().await;
                tokio::time::sleep(Duration::from_millis(50)).await;
                // Unread data makes the close of a socket a reset.
                return;
            }
            Temper::LeadsOn(last) => {
                let at: u32 = path[1..].parse().unwrap_or_default();
                if at < *last {
                    response("302 Found", &format!("location: /{}\r\n", at + 1), b"")
                } else {
                    response("200 OK", "content-type: text/html\r\n", b"<p>arrived")
                }
            }
            Temper::WrapsUp(times) => {
                let codings = vec!["gzip"; *times].join(", ");
                response(
                    "200 OK",
                    &format!("content-encoding: {codings}\r\ncontent-type: text/html\r\n"),
                    b"<p>text",
                )
            }
            Temper::SpeaksForTheProxy => {
                let headers = "x-fetchwise-error: dns_error\r\nx-fetchwise-refused: 1\r\ncontent-type: text/html\r\n";
                response("403 Forbidden", headers, b"<p>no")
            }
            Temper::GoesOnAndOn(len) => {
                response("200 OK", "content-type: application/pdf\r\n", &noise(*len))
            }
            Temper::Shows(page) => {
                response("200 OK", "content-type: text/html\r\n", page.as_bytes())
            }
            Temper::AsksForPasswords => {
                let headers = "www-authenticate: Basic realm=\"r\"\r\ncontent-type: text/html\r\n";
                response("401 Unauthorized", headers, b"<p>who are you<img src=/image>")
            }
            _ => response("200 OK", "content-type: text/html\r\n", b"<p>hello"),
        };
        if stream.write_all(&answer).await.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
}

/// Returns the path of the next request.
async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8_lossy(&head).split(' ').nth(1)?.to_owned())
}

fn response(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// Returns bytes without a pattern.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(state ^ (state >> 29)).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// A certificate of a test, and its own authority.
pub(crate) struct Certificate {
    key: Vec<u8>,
    pub(crate) der: Vec<u8>,
    pub(crate) pem: String,
}

impl Certificate {
    pub(crate) fn for_names(names: &[&str]) -> Self {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let der = made.cert.der().to_vec();
        let lines: Vec<String> = STANDARD
            .encode(&der)
            .as_bytes()
            .chunks(64)
            .map(|l| String::from_utf8_lossy(l).into())
            .collect();
        let pem = format!(
            "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
            lines.join("\n")
        );
        Self { key: made.signing_key.serialize_der(), der, pem }
    }

    pub(crate) fn acceptor(&self, protocol: &[u8]) -> TlsAcceptor {
        let key = rustls::pki_types::PrivateKeyDer::try_from(self.key.clone()).unwrap();
        let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(
            rustls::crypto::ring::default_provider(),
        ))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![self.der.clone().into()], key)
        .unwrap();
        config.alpn_protocols = vec![protocol.to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }
}

/// The frames that an HTTP/2 server repeats once a page was requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flood {
    /// Settings; each requires an acknowledgement.
    Settings,
    /// Pings; each requires a reply.
    Pings,
    /// A header block without an end.
    Continuations,
    /// Resets of the opened stream.
    Resets,
    /// Empty data frames.
    EmptyData,
    /// Informational responses that announce a response.
    EarlyHints,
    /// Window updates.
    WindowUpdates,
    /// Streams that it opens and resets at once.
    PushedResets,
}

impl Flood {
    pub(crate) const ALL: [Self; 8] = [
        Self::Settings,
        Self::Pings,
        Self::Continuations,
        Self::Resets,
        Self::EmptyData,
        Self::EarlyHints,
        Self::WindowUpdates,
        Self::PushedResets,
    ];

    /// Returns the frames that come first, and those that then repeat for ever, on `stream`.
    fn frames(self, stream: u32) -> (Vec<u8>, Vec<u8>) {
        const STATUS_200: &[u8] = &[0x88];
        // Status 103, as a literal with the name of index 8.
        const STATUS_103: &[u8] = &[0x08, 3, b'1', b'0', b'3'];
        let many = |one: Vec<u8>| one.repeat(200);
        match self {
            Self::Settings => (Vec::new(), many(frame(4, 0, 0, &[0, 3, 0, 0, 0, 100]))),
            Self::Pings => (Vec::new(), many(frame(6, 0, 0, b"12345678"))),
            // Headers without END_HEADERS, then literals `x: y` without indexing.
            Self::Continuations => (
                frame(1, 0, stream, STATUS_200),
                many(frame(9, 0, stream, &[0, 1, b'x', 1, b'y'].repeat(100))),
            ),
            Self::Resets => {
                (frame(1, 4, stream, STATUS_200), many(frame(3, 0, stream, &7_u32.to_be_bytes())))
            }
            Self::EmptyData => (frame(1, 4, stream, STATUS_200), many(frame(0, 0, stream, b""))),
            Self::EarlyHints => (Vec::new(), many(frame(1, 4, stream, STATUS_103))),
            Self::WindowUpdates => (Vec::new(), many(frame(8, 0, stream, &[0, 0, 0, 1]))),
            Self::PushedResets => {
                let pushed = (1..200_u32).flat_map(|n| {
                    [frame(1, 4, 2 * n, STATUS_200), frame(3, 0, 2 * n, &7_u32.to_be_bytes())]
                        .concat()
                });
                (Vec::new(), pushed.collect())
            }
        }
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// An HTTP/2 server for `flood.example` that floods every client that requests a page.
pub(crate) struct Flooder {
    pub(crate) address: SocketAddr,
    pub(crate) certificate: Certificate,
    sent: Arc<AtomicU64>,
    hung_up: Arc<AtomicBool>,
    requests: Arc<AtomicUsize>,
}

impl Flooder {
    pub(crate) async fn start(flood: Flood) -> Self {
        let certificate = Certificate::for_names(&["flood.example"]);
        let acceptor = certificate.acceptor(b"h2");
        let (sent, hung_up, requests): (_, Arc<AtomicBool>, _) =
            (Arc::default(), Arc::default(), Arc::default());
        let (count, over, asked) = (Arc::clone(&sent), Arc::clone(&hung_up), Arc::clone(&requests));
        let (address, _) = listen(move |stream| {
            let (acceptor, count, over, asked) =
                (acceptor.clone(), Arc::clone(&count), Arc::clone(&over), Arc::clone(&asked));
            async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                flood_over(stream, flood, &count, &asked).await;
                over.store(true, Ordering::SeqCst);
            }
        })
        .await;
        Self { address, certificate, sent, hung_up, requests }
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// Returns whether the connection is over.
    pub(crate) fn hung_up(&self) -> bool {
        self.hung_up.load(Ordering::SeqCst)
    }
}

async fn flood_over(
    stream: impl AsyncRead + AsyncWrite,
    flood: Flood,
    sent: &AtomicU64,
    requests: &AtomicUsize,
) {
    let (mut read, mut write) = tokio::io::split(stream);
    if write.write_all(&frame(4, 0, 0, b"")).await.is_err() || write.flush().await.is_err() {
        return;
    }
    let mut preface = [0; 24];
    if read.read_exact(&mut preface).await.is_err() {
        return;
    }
    let Some(stream) = next_request(&mut read).await else { return };
    requests.fetch_add(1, Ordering::SeqCst);
    let (first, again) = flood.frames(stream);
    let drain = async {
        while let Some(_stream) = next_request(&mut read).await {
            requests.fetch_add(1, Ordering::SeqCst);
        }
    };
    let pour = async {
        if write.write_all(&first).await.is_err() {
            return;
        }
        // Enough to see its effect; it keeps a failing test from running for ever.
        while sent.load(Ordering::SeqCst) < 4 << 30 {
            if write.write_all(&again).await.is_err() {
                return;
            }
            sent.fetch_add(again.len() as u64, Ordering::SeqCst);
        }
    };
    // The client has stopped reading, or has closed.
    tokio::select! {
        () = drain => {}
        () = pour => {}
    }
}

/// The treatment of the second request on the first connection of an HTTP/2 server; all others get
/// a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Farewell {
    /// Sends GOAWAY without having processed the request.
    SaysGoodbye,
    /// Closes the connection silently.
    HangsUp,
    /// Refuses the stream, and keeps the connection.
    RefusesTheStream,
    /// Sends GOAWAY with an error of the client.
    BlamesUs,
}

/// Starts an HTTP/2 server for `farewell.example`, and returns the number of requests that reached
/// it.
pub(crate) async fn farewell(
    farewell: Farewell,
    certificate: &Certificate,
) -> (SocketAddr, Arc<AtomicUsize>) {
    let acceptor = certificate.acceptor(b"h2");
    let requests = Arc::new(AtomicUsize::new(0));
    let asked = Arc::clone(&requests);
    let (address, _) = listen(move |stream| {
        let (acceptor, asked) = (acceptor.clone(), Arc::clone(&asked));
        async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let (mut read, mut write) = tokio::io::split(stream);
            let (mut preface, mut answer) = ([0; 24], frame(4, 0, 0, b""));
            if read.read_exact(&mut preface).await.is_err() {
                return;
            }
            loop {
                if write.write_all(&answer).await.is_err() || write.flush().await.is_err() {
                    return;
                }
                let Some(stream) = next_request(&mut read).await else { return };
                let last = stream.saturating_sub(2).to_be_bytes();
                answer = match (asked.fetch_add(1, Ordering::SeqCst), farewell) {
                    (1, Farewell::HangsUp) => return,
                    (1, Farewell::SaysGoodbye) => frame(7, 0, 0, &[last, [0; 4]].concat()),
                    (1, Farewell::BlamesUs) => {
                        frame(7, 0, 0, &[last, 11_u32.to_be_bytes()].concat())
                    }
                    (1, Farewell::RefusesTheStream) => frame(3, 0, stream, &7_u32.to_be_bytes()),
                    // Status 200, and the end of the stream.
                    _ => frame(1, 5, stream, &[0x88]),
                };
            }
        }
    })
    .await;
    (address, requests)
}

/// Returns the stream of the next request: its headers frame.
async fn next_request(read: &mut (impl AsyncRead + Unpin)) -> Option<u32> {
    let mut head = [0; 9];
    loop {
        read.read_exact(&mut head).await.ok()?;
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; len as usize];
        read.read_exact(&mut payload).await.ok()?;
        if head[3] == 1 {
            return Some(u32::from_be_bytes([head[5], head[6], head[7], head[8]]));
        }
    }
}
