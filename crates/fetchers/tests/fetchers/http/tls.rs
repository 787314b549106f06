//! TLS with a test certificate, and HTTP/2 over it.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
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
use url::Url;

use super::harness::*;

type Streamed = StreamBody<BoxStream<'static, Result<Frame<Bytes>, io::Error>>>;

struct Tls {
    server: Server,
    root: Vec<u8>,
}

impl Tls {
    /// Starts a TLS server for `secure.example` with `protocol`, and returns it with the certificate to trust.
    async fn speaking(protocol: &'static str) -> Self {
        let key = rcgen::generate_simple_self_signed(vec!["secure.example".to_owned()]).unwrap();
        let root = key.cert.der().to_vec();
        let private = PrivateKeyDer::try_from(key.signing_key.serialize_der()).unwrap();
        let mut config =
            rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![key.cert.der().clone()], private)
                .unwrap();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let server = Server::raw(move |stream| {
            let acceptor = acceptor.clone();
            async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service = service_fn(|request| async move { Ok::<_, Infallible>(serve(&request)) });
                let io = TokioIo::new(stream);
                if protocol == "h2" {
                    let h2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    let _ = h2.serve_connection(io, service).await;
                } else {
                    let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
                }
            }
        })
        .await;
        Self { server, root }
    }

    fn fetcher(&self) -> HttpFetcher {
        let names = Names::of(&[("secure.example", &[&["127.0.0.1"]]), ("other.example", &[&["127.0.0.1"]])]);
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
            let response = response.header("set-cookie", "safe=1; Secure").header("set-cookie", "any=2");
            response.status(302).header("location", request.uri().query().unwrap()).body(stream(b""))
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

#[tokio::test]
async fn requests_of_one_host_share_an_http_2_connection() {
    bounded(async {
        let tls = Tls::speaking("h2").await;
        let fetcher = tls.fetcher();
        get_with(&fetcher, &tls.url("/"), &limits()).await.unwrap();
        let urls: Vec<_> = (0..50).map(|n| tls.url(&format!("/{n}"))).collect();
        let limits = limits();
        for response in futures_util::future::join_all(urls.iter().map(|url| get_with(&fetcher, url, &limits))).await {
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
        for path in ["/header?70000", "/header?400000", "/header?600000", "/header?1100000", "/header?9000000"] {
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
            _ => response(200, request.headers().get("cookie").map_or("", |value| value.to_str().unwrap()).to_owned()),
        })
        .await;
        for protocol in ["h2", "http/1.1"] {
            let tls = Tls::speaking(protocol).await;
            let fetcher = tls.fetcher();
            // The same host name on both sides: cookies ignore ports.
            let plain_url = |path: &str| format!("http://secure.example:{}{path}", plain.addr.port());
            for (start, expected) in [
                (tls.url("/down?/cookies"), "safe=1; any=2"),
                (tls.url(&format!("/down?{}", plain_url("/"))), "any=2"),
                (plain_url(&format!("/up?{}", tls.url("/cookies"))).parse().unwrap(), "any=2"),
            ] {
                let response = get_with(&fetcher, &start, &limits()).await.unwrap();
                assert_eq!(String::from_utf8(body(&response)).unwrap(), expected, "{start} over {protocol}");
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
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
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
        assert_eq!(get_with(&trusting, &url, &limits()).await.unwrap_err().kind, ErrorKind::NetworkError);
    })
    .await;
}

#[tokio::test]
async fn a_tls_server_is_not_dialled_at_a_refused_address() {
    bounded(async {
        let tls = Tls::speaking("h2").await;
        let names = Names::of(&[("secure.example", &[&["127.0.0.1"]])]);
        let fetcher = HttpFetcher::builder().resolver(names).root_certificate(tls.root.clone()).build().unwrap();
        let error = get_with(&fetcher, &tls.url("/"), &limits()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::RefusedAddress);
        assert_eq!(tls.server.connections(), 0);
    })
    .await;
}
