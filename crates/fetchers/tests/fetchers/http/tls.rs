//! TLS with a test certificate, and HTTP/2 over it.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::fetch::http::HttpFetcher;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http_body_util::StreamBody;
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use url::Url;

use super::harness::*;

type Streamed = StreamBody<BoxStream<'static, Result<Frame<Bytes>, io::Error>>>;

struct Tls {
    server: Server,
    root: Vec<u8>,
}

impl Tls {
    /// Starts a TLS server for `secure.example` with `protocol`, and returns it with the
    /// certificate to trust.
    async fn speaking(protocol: &'static str) -> Self {
        Self::serving(protocol, move |stream| async move {
            let service = service_fn(|request| async move { Ok::<_, Infallible>(serve(&request)) });
            let io = TokioIo::new(stream);
            if protocol == "h2" {
                let h2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _ = h2.serve_connection(io, service).await;
            } else {
                let _ =
                    hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
            }
        })
        .await
    }

    /// Starts a TLS server for `secure.example` that offers `protocol` (with commas: several) and
    /// passes each connection to `serve`.
    async fn serving<F>(
        protocol: &'static str,
        serve: impl Fn(TlsStream<TcpStream>) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let key = rcgen::generate_simple_self_signed(vec!["secure.example".to_owned()]).unwrap();
        let root = key.cert.der().to_vec();
        let private = PrivateKeyDer::try_from(key.signing_key.serialize_der()).unwrap();
        let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(
            rustls::crypto::ring::default_provider(),
        ))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![key.cert.der().clone()], private)
        .unwrap();
        config.alpn_protocols = protocol.split(',').map(|name| name.as_bytes().to_vec()).collect();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let server = Server::raw(move |stream| {
            let (acceptor, serve) = (acceptor.clone(), serve.clone());
            async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    serve(stream).await;
                }
            }
        })
        .await;
        Self { server, root }
    }

    fn fetcher(&self) -> HttpFetcher {
        let names = Names::of(&[
            ("secure.example", &[&["127.0.0.1"]]),
            ("other.example", &[&["127.0.0.1"]]),
        ]);
        builder().resolver(names).root_certificate(self.root.clone()).build().unwrap()
    }

    fn url(&self, path: &str) -> Url {
        format!("https://secure.example:{}{path}", self.server.addr.port()).parse().unwrap()
    }
}

fn serve(request: &http::Request<Incoming>) -> http::Response<Streamed> {
    let stream = |data: &'static [u8]| stream_of(Bytes::from_static(data));
    let response = http::Response::builder();
    let version = if request.version() == http::Version::HTTP_2 { b"h2" } else { b"h1" };
    match request.uri().path() {
        "/moved" => response.status(301).header("location", "/").body(stream(b"")),
        "/down" => {
            let response =
                response.header("set-cookie", "safe=1; Secure").header("set-cookie", "any=2");
            response
                .status(302)
                .header("location", request.uri().query().unwrap())
                .body(stream(b""))
        }
        "/cookies" => {
            let cookies = request.headers().get("cookie").map(|value| value.as_bytes().to_vec());
            response.body(stream_of(Bytes::from(cookies.unwrap_or_default())))
        }
        "/cut" => {
            // The error is delayed, because a reset overtakes unsent bytes.
            let half = futures_util::stream::iter([Ok(Frame::data(Bytes::from_static(b"half")))]);
            let gone = futures_util::stream::once(async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                Err(io::Error::other("gone"))
            });
            response.body(StreamBody::new(Box::pin(half.chain(gone)) as BoxStream<'static, _>))
        }
        "/header" => {
            let len = request.uri().query().unwrap().parse().unwrap();
            response.header("x", "y".repeat(len)).body(stream(b""))
        }
        _ => response.body(stream(version)),
    }
    .unwrap()
}

fn stream_of(data: Bytes) -> Streamed {
    StreamBody::new(Box::pin(futures_util::stream::iter([Ok(Frame::data(data))])))
}

#[tokio::test]
async fn http_2_is_used_when_the_server_offers_it() {
    bounded(async {
        for (alpn, version) in [("h2", "h2"), ("http/1.1", "h1")] {
            let tls = Tls::speaking(alpn).await;
            let fetcher = tls.fetcher();
            for _ in 0..3 {
                let response = get_with(&fetcher, &tls.url("/moved"), &limits()).await.unwrap();
                assert_eq!(body(&response), version.as_bytes());
            }
            assert_eq!(tls.server.connections(), 1);
        }
    })
    .await;
}

/// Returns a frame of HTTP/2.
fn h2_frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Frames that are neither a response head nor a body used to keep a core busy until the deadline,
/// and again on the retry.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_http_2_frames_ends_the_fetch() {
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const PRIORITY: u8 = 2;
    const SETTINGS: u8 = 4;
    const WINDOW_UPDATE: u8 = 8;
    const END_HEADERS: u8 = 4;
    // The status in HPACK: a literal with the name of index 8, or index 8 itself.
    let early_hints = h2_frame(HEADERS, END_HEADERS, 1, b"\x08\x03103");
    let ok = h2_frame(HEADERS, END_HEADERS, 1, b"\x88");
    let floods = [
        ("window updates", Vec::new(), h2_frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])),
        ("priorities", Vec::new(), h2_frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 16])),
        ("unknown frames", Vec::new(), h2_frame(0xee, 0, 1, b"")),
        ("early hints", Vec::new(), early_hints),
        ("empty data", ok.clone(), h2_frame(DATA, 0, 1, b"")),
        ("priorities in a body", ok, h2_frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 16])),
    ];
    // Each computes for a second or more: together, they use all processors.
    let floods = floods.map(|(name, first, flood)| async move {
        let sent = Arc::new(AtomicU64::new(0));
        let (count, first) = (Arc::clone(&sent), [h2_frame(SETTINGS, 0, 0, b""), first].concat());
        let flood = Arc::new(flood.repeat(2000));
        let tls = Tls::serving("h2", move |mut stream| {
            let (count, first, flood) = (Arc::clone(&count), first.clone(), Arc::clone(&flood));
            async move {
                // The preface, the settings and the request come in one or more reads. A response
                // before the request would be a protocol error.
                let mut seen = Vec::new();
                while !contains_request(&seen) {
                    assert!(stream.read_buf(&mut seen).await.unwrap() > 0);
                }
                stream.write_all(&first).await.unwrap();
                while stream.write_all(&flood).await.is_ok() {
                    count.fetch_add(flood.len() as u64, Ordering::Relaxed);
                }
            }
        })
        .await;
        let fetched = bounded(get_with(&tls.fetcher(), &tls.url("/"), &limits())).await;
        let error = fetched.expect_err(name);
        assert_eq!(error.kind, ErrorKind::TooLarge, "{name}: {error}");
        assert_eq!(tls.server.connections(), 1, "{name}");
        // The rest was in buffers.
        assert!(sent.load(Ordering::Relaxed) < 48 << 20, "{name}: {sent:?}");
    });
    for ended in futures_util::future::join_all(floods.map(tokio::spawn)).await {
        ended.unwrap();
    }
}

/// Returns whether the bytes of a client contain the HEADERS frame of its first request.
fn contains_request(bytes: &[u8]) -> bool {
    let Some(mut rest) = bytes.strip_prefix(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") else {
        return false;
    };
    while let [a, b, c, kind, _, _, _, _, _, tail @ ..] = rest {
        let len = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        if *kind == 1 && tail.len() >= len {
            return true;
        }
        rest = tail.get(len..).unwrap_or_default();
    }
    false
}

/// A large body on a slow reader, and many responses on one connection, are no flood.
#[tokio::test]
async fn much_content_is_no_flood() {
    bounded(async {
        let large = Bytes::from(vec![b'x'; 4 << 20]);
        let tls = Tls::serving("h2", move |stream| {
            let large = large.clone();
            async move {
                let service = service_fn(move |_| {
                    let response = http::Response::new(stream_of(large.clone()));
                    async move { Ok::<_, Infallible>(response) }
                });
                let h2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _ = h2.serve_connection(TokioIo::new(stream), service).await;
            }
        })
        .await;
        let (fetcher, limits) = (tls.fetcher(), limits());
        get_with(&fetcher, &tls.url("/"), &limits).await.unwrap();
        for _ in 0..4 {
            let urls: Vec<_> = (0..4).map(|n| tls.url(&format!("/{n}"))).collect();
            for response in futures_util::future::join_all(
                urls.iter().map(|url| get_with(&fetcher, url, &limits)),
            )
            .await
            {
                assert_eq!(body(&response.unwrap()).len(), 4 << 20);
            }
        }
        assert_eq!(tls.server.connections(), 1);
    })
    .await;
}

#[tokio::test]
async fn requests_of_one_host_share_an_http_2_connection() {
    bounded(async {
        let tls = Tls::speaking("h2").await;
        let fetcher = tls.fetcher();
        get_with(&fetcher, &tls.url("/"), &limits()).await.unwrap();
        let urls: Vec<_> = (0..50).map(|n| tls.url(&format!("/{n}"))).collect();
        let limits = limits();
        for response in
            futures_util::future::join_all(urls.iter().map(|url| get_with(&fetcher, url, &limits)))
                .await
        {
            assert_eq!(body(&response.unwrap()), b"h2");
        }
        assert_eq!(tls.server.connections(), 1);
    })
    .await;
}

#[tokio::test]
async fn http_2_has_the_same_limits() {
    bounded(async {
        let tls = Tls::speaking("h2").await;
        let fetcher = tls.fetcher();
        for path in [
            "/header?270000",
            "/header?400000",
            "/header?600000",
            "/header?1100000",
            "/header?9000000",
        ] {
            let error = get_with(&fetcher, &tls.url(path), &limits()).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::TooLarge, "{path}: {error}");
        }
        let response = get_with(&fetcher, &tls.url("/cut"), &limits()).await.unwrap();
        assert!(response.truncated && body(&response) == b"half");
    })
    .await;
}

#[tokio::test]
async fn a_redirect_may_lead_from_https_to_http() {
    bounded(async {
        let plain = Server::http(|_| response(200, "plain")).await;
        let tls = Tls::speaking("h2").await;
        let url = tls.url(&format!("/down?{}", plain.url("/")));
        let response = get_with(&tls.fetcher(), &url, &limits()).await.unwrap();
        assert_eq!((body(&response), response.final_url), (b"plain".to_vec(), plain.url("/")));
    })
    .await;
}

#[tokio::test]
async fn a_secure_cookie_is_sent_over_tls_but_not_over_plain_http() {
    bounded(async {
        let plain = Server::http(|request| match request.uri().path() {
            "/up" => {
                let mut up = redirect(302, request.uri().query().unwrap());
                up.headers_mut().append("set-cookie", "forged=1; Secure".parse().unwrap());
                up.headers_mut().append("set-cookie", "any=2".parse().unwrap());
                up
            }
            _ => response(
                200,
                request
                    .headers()
                    .get("cookie")
                    .map_or("", |value| value.to_str().unwrap())
                    .to_owned(),
            ),
        })
        .await;
        for protocol in ["h2", "http/1.1"] {
            let tls = Tls::speaking(protocol).await;
            let fetcher = tls.fetcher();
            // The same host name on both sides: cookies ignore ports.
            let plain_url =
                |path: &str| format!("http://secure.example:{}{path}", plain.addr.port());
            for (start, expected) in [
                (tls.url("/down?/cookies"), "safe=1; any=2"),
                (tls.url(&format!("/down?{}", plain_url("/"))), "any=2"),
                (plain_url(&format!("/up?{}", tls.url("/cookies"))).parse().unwrap(), "any=2"),
            ] {
                let response = get_with(&fetcher, &start, &limits()).await.unwrap();
                assert_eq!(
                    String::from_utf8(body(&response)).unwrap(),
                    expected,
                    "{start} over {protocol}"
                );
            }
        }
    })
    .await;
}

#[tokio::test]
async fn an_invalid_certificate_is_a_tls_error() {
    bounded(async {
        let tls = Tls::speaking("h2").await;
        let trusting = tls.fetcher();
        let names = Names::of(&[("secure.example", &[&["127.0.0.1"]])]);
        let distrusting = builder().resolver(names).build().unwrap();
        let port = tls.server.addr.port();
        let plain = Server::raw(|mut stream| async move {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ =
                stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
            read_to_close(&mut stream).await;
        })
        .await;
        for (fetcher, url) in [
            (&distrusting, format!("https://secure.example:{port}/")),
            (&trusting, format!("https://other.example:{port}/")),
            (&trusting, format!("https://127.0.0.1:{port}/")),
            (&trusting, format!("https://{}/", plain.addr)),
        ] {
            let error = get_with(fetcher, &url.parse().unwrap(), &limits()).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::TlsError, "{url}: {error}");
        }
        // A connection closed during the handshake proves nothing about the certificate.
        let closes = Server::raw(|mut stream| async move {
            let _ = stream.read(&mut [0; 4096]).await;
        })
        .await;
        let url = format!("https://{}/", closes.addr).parse().unwrap();
        assert_eq!(
            get_with(&trusting, &url, &limits()).await.unwrap_err().kind,
            ErrorKind::NetworkError
        );
    })
    .await;
}

#[tokio::test]
async fn a_tls_server_is_not_dialled_at_a_refused_address() {
    bounded(async {
        let tls = Tls::speaking("h2").await;
        let names = Names::of(&[("secure.example", &[&["127.0.0.1"]])]);
        let fetcher = HttpFetcher::builder()
            .resolver(names)
            .root_certificate(tls.root.clone())
            .build()
            .unwrap();
        let error = get_with(&fetcher, &tls.url("/"), &limits()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::RefusedAddress);
        assert_eq!(tls.server.connections(), 0);
    })
    .await;
}

/// Serves HTTP/1.1 on a connection whose client was not told to speak HTTP/2.
async fn serve_http1(stream: TlsStream<TcpStream>) {
    let service = service_fn(|request| async move { Ok::<_, Infallible>(serve(&request)) });
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// Returns a server that offers both versions, and answers each request over HTTP/2 with `refusal`.
async fn refusing_http2(refusal: Vec<u8>) -> Tls {
    Tls::serving("h2,http/1.1", move |mut stream| {
        let refusal = refusal.clone();
        async move {
            if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
                return serve_http1(stream).await;
            }
            let mut seen = Vec::new();
            while !contains_request(&seen) {
                if !matches!(stream.read_buf(&mut seen).await, Ok(1..)) {
                    return;
                }
            }
            let _ = stream.write_all(&refusal).await;
            let _ = stream.shutdown().await;
            while let Ok(1..) = stream.read_buf(&mut seen).await {}
        }
    })
    .await
}

#[tokio::test]
async fn a_server_that_wants_http_1_gets_it_and_is_remembered() {
    const HTTP_1_1_REQUIRED: u8 = 13;
    let settings = h2_frame(4, 0, 0, b"");
    let of_stream = h2_frame(3, 0, 1, &[0, 0, 0, HTTP_1_1_REQUIRED]);
    let of_connection = h2_frame(7, 0, 0, &[0, 0, 0, 0, 0, 0, 0, HTTP_1_1_REQUIRED]);
    bounded(async {
        for (name, refusal) in [
            ("of the stream", [&settings[..], &of_stream].concat()),
            ("of the connection", [&settings[..], &of_connection].concat()),
            ("in HTTP/1.1", b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n".to_vec()),
        ] {
            let tls = refusing_http2(refusal).await;
            let fetcher = tls.fetcher();
            let first = get_with(&fetcher, &tls.url("/"), &limits())
                .await
                .unwrap_or_else(|why| panic!("{name}: {why}"));
            assert_eq!((body(&first), first.unanswered.len()), (b"h1".to_vec(), 1), "{name}");
            assert_eq!(tls.server.connections(), 2, "{name}");
            let next = get_with(&fetcher, &tls.url("/next"), &limits()).await.unwrap();
            assert_eq!((body(&next), next.unanswered.len()), (b"h1".to_vec(), 0), "{name}");
            assert_eq!(
                tls.server.connections(),
                2,
                "{name}: the host is known, and its connection kept"
            );
        }
    })
    .await;
}

/// Servers that pass on the headers of another one send `Connection` or `Upgrade` over HTTP/2. Each
/// such page of a host was lost.
#[tokio::test]
async fn a_malformed_response_over_http_2_is_asked_for_over_http_1() {
    const STATUS_200: u8 = 0x88;
    let good = [h2_frame(4, 0, 0, b""), h2_frame(1, 5, 1, &[STATUS_200])].concat();
    let with_connection = [&[STATUS_200, 0, 10][..], b"connection", &[10], b"keep-alive"].concat();
    let malformed = h2_frame(1, 5, 3, &with_connection);
    bounded(async {
        let tls = Tls::serving("h2,http/1.1", move |mut stream| {
            let answers = [good.clone(), malformed.clone()];
            async move {
                if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
                    return serve_http1(stream).await;
                }
                let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
                let mut seen = Vec::new();
                for answer in answers {
                    while !contains_request(&seen) {
                        if !matches!(stream.read_buf(&mut seen).await, Ok(1..)) {
                            return;
                        }
                    }
                    seen = preface.to_vec();
                    let _ = stream.write_all(&answer).await;
                }
                while let Ok(1..) = stream.read_buf(&mut seen).await {}
            }
        })
        .await;
        let fetcher = tls.fetcher();
        let first = get_with(&fetcher, &tls.url("/robots.txt"), &limits()).await.unwrap();
        assert_eq!((first.status, first.unanswered.len()), (200, 0));
        let page = get_with(&fetcher, &tls.url("/"), &limits()).await.unwrap();
        assert_eq!((body(&page), page.unanswered.len()), (b"h1".to_vec(), 1));
        let next = get_with(&fetcher, &tls.url("/next"), &limits()).await.unwrap();
        assert_eq!((body(&next), next.unanswered.len()), (b"h1".to_vec(), 0), "it is remembered");
    })
    .await;
}

#[tokio::test]
async fn a_stream_that_is_reset_for_another_reason_is_an_error() {
    bounded(async {
        for code in [1, 2, 7, 11, 12] {
            let refusal = [h2_frame(4, 0, 0, b""), h2_frame(3, 0, 1, &[0, 0, 0, code])].concat();
            let tls = refusing_http2(refusal).await;
            let mut limits = limits();
            limits.deadline = Duration::from_secs(20);
            let error = get_with(&tls.fetcher(), &tls.url("/"), &limits).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::NetworkError, "{code}: {error}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_wrong_connection_is_exchanged_for_one_of_http_1() {
    bounded(async {
        let tls = Tls::serving("h2,http/1.1", |stream| async move {
            if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
                return serve_http1(stream).await;
            }
            let service = service_fn(|_| async move {
                let response =
                    http::Response::builder().status(421).body(stream_of(Bytes::new())).unwrap();
                Ok::<_, Infallible>(response)
            });
            let h2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = h2.serve_connection(TokioIo::new(stream), service).await;
        })
        .await;
        let response = get_with(&tls.fetcher(), &tls.url("/"), &limits()).await.unwrap();
        assert_eq!((response.status, body(&response)), (200, b"h1".to_vec()));
        assert_eq!(response.requests, Some(2), "the host was asked twice");
    })
    .await;
}

#[tokio::test]
async fn an_error_of_tls_says_whether_another_client_may_do_better() {
    bounded(async {
        let tls = Tls::speaking("http/1.1").await;
        let names = || {
            Names::of(&[
                ("secure.example", &[&["127.0.0.1"]]),
                ("other.example", &[&["127.0.0.1"]]),
            ])
        };
        let unknown = builder().resolver(names()).build().unwrap();
        let error = get_with(&unknown, &tls.url("/"), &limits()).await.unwrap_err();
        assert_eq!(
            (error.kind, error.of_client),
            (ErrorKind::TlsError, true),
            "its issuer is unknown here: {error}"
        );
        let other = format!("https://other.example:{}/", tls.server.addr.port()).parse().unwrap();
        let error = get_with(&tls.fetcher(), &other, &limits()).await.unwrap_err();
        assert_eq!(
            (error.kind, error.of_client),
            (ErrorKind::TlsError, false),
            "another host's: {error}"
        );
        let refuses = Server::raw(|mut stream| async move {
            let mut hello = [0; 512];
            let _ = stream.read(&mut hello).await;
            // A fatal alert: no version or no cipher in common.
            let _ = stream.write_all(&[21, 3, 3, 0, 2, 2, 40]).await;
            read_to_close(&mut stream).await;
        })
        .await;
        let url = format!("https://{}/", refuses.addr).parse().unwrap();
        let error = get_with(&unknown, &url, &limits()).await.unwrap_err();
        assert_eq!((error.kind, error.of_client), (ErrorKind::TlsError, true), "{error}");
        let plain = Server::raw(|mut stream| async move {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
            read_to_close(&mut stream).await;
        })
        .await;
        let url = format!("https://{}/", plain.addr).parse().unwrap();
        let error = get_with(&unknown, &url, &limits()).await.unwrap_err();
        assert_eq!((error.kind, error.of_client), (ErrorKind::TlsError, false), "no TLS: {error}");
    })
    .await;
}

#[tokio::test]
async fn a_body_that_ends_with_an_unannounced_end_of_tls_is_complete_by_its_length_only() {
    bounded(async {
        for (head, is_whole) in
            [("", false), ("Content-Length: 4\r\n", true), ("Content-Length: 5\r\n", false)]
        {
            let tls = Tls::serving("http/1.1", move |mut stream| async move {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    assert!(stream.read_buf(&mut request).await.unwrap() > 0);
                }
                stream
                    .write_all(format!("HTTP/1.1 200 OK\r\n{head}\r\npage").as_bytes())
                    .await
                    .unwrap();
                stream.flush().await.unwrap();
                // Without the alert that says so.
                stream.get_mut().0.shutdown().await.unwrap();
                read_to_close(stream.get_mut().0).await;
            })
            .await;
            let response = get_with(&tls.fetcher(), &tls.url("/"), &limits()).await.unwrap();
            assert_eq!(
                (body(&response), response.truncated),
                (b"page".to_vec(), !is_whole),
                "{head}"
            );
        }
    })
    .await;
}
