//! The filtering proxy, used by bare sockets as a browser uses it. Listeners without a connection
//! prove what it refuses.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::fetch::address_guard::{AddressGuard, parse_network};
use fetchwise::fetch::dial::{Dialer, LookupFuture, Resolve};
use fetchwise::fetch::proxy::FilteringProxy;
use fetchwise_testsite::ports::RefusingPort;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

async fn bounded<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(600), test).await.expect("the test hangs")
}

/// Starts a listener that counts its connections and passes them to `serve`.
async fn listen<F>(
    ip: [u8; 4],
    serve: impl Fn(TcpStream) -> F + Send + 'static,
) -> (SocketAddr, Arc<AtomicUsize>)
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
    (addr, connections)
}

/// Starts an origin that responds with the request: target, headers, body.
async fn mirror() -> (SocketAddr, Arc<AtomicUsize>) {
    async fn reflect(
        request: http::Request<Incoming>,
    ) -> Result<http::Response<Full<Bytes>>, Infallible> {
        let mut text = format!("{} {}\n", request.method(), request.uri());
        for (name, value) in request.headers() {
            text.push_str(&format!("{name}: {}\n", value.to_str().unwrap()));
        }
        let body = request.into_body().collect().await.unwrap().to_bytes();
        text.push_str(&String::from_utf8_lossy(&body));
        let response = http::Response::builder()
            .header("x-origin", "yes")
            .header("x-fetchwise-error", "dns_error")
            .header("x-fetchwise-refused", "1")
            .header("keep-alive", "timeout=5");
        Ok(response.body(Full::new(text.into())).unwrap())
    }
    listen([127, 0, 0, 1], |stream| async move {
        let http = hyper::server::conn::http1::Builder::new();
        let _ = http.serve_connection(TokioIo::new(stream), service_fn(reflect)).await;
    })
    .await
}

async fn echo() -> (SocketAddr, Arc<AtomicUsize>) {
    listen([127, 0, 0, 1], |mut stream| async move {
        let (mut read, mut write) = stream.split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
    })
    .await
}

fn opened(networks: &[&str]) -> AddressGuard {
    AddressGuard::new(networks.iter().map(|n| parse_network(n).unwrap()), false)
}

struct Names(Vec<(&'static str, &'static str)>);

impl Resolve for Names {
    fn lookup<'a>(&'a self, host: &'a str) -> LookupFuture<'a> {
        Box::pin(async move {
            let found: Vec<IpAddr> = self
                .0
                .iter()
                .filter(|(name, _)| *name == host)
                .map(|(_, ip)| ip.parse().unwrap())
                .collect();
            if found.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(found) }
        })
    }
}

async fn proxy_with(guard: AddressGuard, names: &[(&'static str, &'static str)]) -> FilteringProxy {
    let dialer = Dialer::with_resolver(guard, Arc::new(Names(names.to_vec())));
    FilteringProxy::start_with(dialer).await.unwrap()
}

/// Returns a proxy that may dial only 127.0.0.1 on this machine.
async fn proxy() -> FilteringProxy {
    FilteringProxy::start(opened(&["127.0.0.1"])).await.unwrap()
}

/// Sends `request` and reads the response to its end.
async fn ask(proxy: &FilteringProxy, request: &str) -> String {
    let mut stream = TcpStream::connect(proxy.addr()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.unwrap();
    String::from_utf8_lossy(&response).into_owned()
}

async fn get(proxy: &FilteringProxy, url: &str) -> String {
    let known = proxy.authorization();
    ask(proxy, &format!("GET {url} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: {known}\r\nConnection: close\r\n\r\n"))
        .await
}

/// Returns the response to a CONNECT, up to the end of its head.
async fn connect(proxy: &FilteringProxy, target: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(proxy.addr()).await.unwrap();
    let known = proxy.authorization();
    let request = format!(
        "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: {known}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    (stream, String::from_utf8(head).unwrap())
}

#[tokio::test]
async fn plain_http_is_forwarded_without_the_headers_for_the_proxy() {
    bounded(async {
        let (origin, _) = mirror().await;
        let proxy = proxy().await;
        let known = proxy.authorization();
        let response = ask(
            &proxy,
            &format!(
                "POST http://{origin}/path?q HTTP/1.1\r\nHost: elsewhere.example\r\nX-Kept: a\r\nX-Named: b\r\n\
                 Proxy-Connection: keep-alive\r\nProxy-Authorization: {known}\r\nConnection: close, x-named\r\n\
                 Content-Length: 4\r\n\r\nbody"
            ),
        )
        .await;
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(body.starts_with("POST /path?q\n") && body.ends_with("body"), "{body}");
        assert!(body.contains("x-kept: a\n") && body.contains(&format!("host: {origin}\n")), "{body}");
        for gone in ["x-named", "proxy-", "connection", "elsewhere"] {
            assert!(!body.contains(gone), "{gone}: {body}");
        }
        assert!(head.contains("x-origin: yes") && !head.contains("keep-alive"), "{head}");
        assert!(!head.contains("x-fetchwise"), "an origin cannot imitate the proxy: {head}");
    })
    .await;
}

#[tokio::test]
async fn clients_without_the_password_are_refused() {
    bounded(async {
        let (origin, connections) = mirror().await;
        let (proxy, other) = (proxy().await, proxy().await);
        let wrong = format!("Proxy-Authorization: {}\r\n", other.authorization());
        let (user, password) = proxy.credentials();
        let plain = format!("Proxy-Authorization: {user}:{password}\r\n");
        for sent in ["", "Proxy-Authorization: Basic\r\n", &wrong, &plain] {
            for request in
                [format!("GET http://{origin}/"), format!("CONNECT {origin}"), "GET /".to_owned()]
            {
                let request =
                    format!("{request} HTTP/1.1\r\nHost: x\r\n{sent}Connection: close\r\n\r\n");
                let response = ask(&proxy, &request).await;
                assert!(response.starts_with("HTTP/1.1 407 "), "{request}{response}");
                assert!(response.contains("proxy-authenticate: Basic"), "{response}");
                assert!(!response.contains("x-fetchwise"), "no secrets are sent: {response}");
            }
        }
        assert_eq!(connections.load(Ordering::SeqCst), 0);
    })
    .await;
}

#[tokio::test]
async fn the_proxys_own_responses_have_its_mark() {
    bounded(async {
        let (proxy, other) = (proxy().await, proxy().await);
        let response = get(&proxy, "http://127.0.0.2:9/").await;
        let (_, rest) = response.split_once("x-fetchwise-error: ").unwrap();
        let value = rest.lines().next().unwrap();
        assert_eq!(proxy.own_failure(value), Some(ErrorKind::RefusedAddress));
        assert_eq!(other.own_failure(value), None);
        assert_eq!(proxy.own_failure("refused_address"), None);
    })
    .await;
}

#[tokio::test]
async fn one_connection_carries_many_requests() {
    bounded(async {
        let (origin, _) = mirror().await;
        let proxy = proxy().await;
        let mut stream = TcpStream::connect(proxy.addr()).await.unwrap();
        for n in 0..20 {
            let known = proxy.authorization();
            let request =
                format!("GET http://{origin}/{n} HTTP/1.1\r\nHost: {origin}\r\nProxy-Authorization: {known}\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut seen = Vec::new();
            let wanted = format!("GET /{n}\n");
            while !String::from_utf8_lossy(&seen).contains(&wanted) {
                seen.push(stream.read_u8().await.unwrap());
            }
            // The rest of the body: one line, the Host header.
            while stream.read_u8().await.unwrap() != b'\n' {}
        }
    })
    .await;
}

#[tokio::test]
async fn tunnels_carry_bytes_in_both_directions() {
    bounded(async {
        let (origin, _) = echo().await;
        let proxy = proxy().await;
        let (mut tunnel, head) = connect(&proxy, &origin.to_string()).await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        let (mut read, mut write) = tunnel.split();
        let sent: Vec<u8> = (0..=255).cycle().take(1_000_000).collect();
        let send = async {
            write.write_all(&sent).await.unwrap();
            write.shutdown().await.unwrap();
        };
        let mut received = Vec::new();
        let ((), read) = tokio::join!(send, read.read_to_end(&mut received));
        read.unwrap();
        assert!(received == sent);
    })
    .await;
}

#[tokio::test]
async fn a_refused_address_is_never_dialled() {
    bounded(async {
        let (forbidden, connections) = listen([127, 0, 0, 2], |_| async {}).await;
        let port = forbidden.port();
        let names = [("inside.example", "127.0.0.2"), ("metadata.example", "169.254.169.254")];
        let proxy = proxy_with(opened(&["127.0.0.1"]), &names).await;
        for host in [
            "127.0.0.2",
            "inside.example",
            "metadata.example",
            "169.254.169.254",
            "10.0.0.1",
            "0.0.0.0",
            "[::1]",
            "[::ffff:127.0.0.2]",
            "[fd00:ec2::254]",
        ] {
            assert!(!proxy.refused(host, port));
            let response = get(&proxy, &format!("http://{host}:{port}/")).await;
            assert!(response.starts_with("HTTP/1.1 403 "), "{host}: {response}");
            assert!(response.contains("x-fetchwise-refused: 1"), "{response}");
            assert!(response.contains("x-fetchwise-error: refused_address"), "{response}");
            assert!(proxy.refused(host, port) && !proxy.refused(host, port + 1), "{host}");

            let (_, head) = connect(&proxy, &format!("{host}:443")).await;
            assert!(
                head.starts_with("HTTP/1.1 403 ") && head.contains("x-fetchwise-refused: 1"),
                "{host}: {head}"
            );
            assert!(proxy.refused(host, 443), "{host}");
        }
        assert_eq!(connections.load(Ordering::SeqCst), 0);
    })
    .await;
}

#[tokio::test]
async fn numbers_that_the_systems_resolver_takes_for_addresses_are_refused_too() {
    bounded(async {
        let (origin, connections) = echo().await;
        let proxy = FilteringProxy::start(AddressGuard::default()).await.unwrap();
        for host in ["2130706433", "0x7f000001", "127.1", "0177.0.0.1", "localhost", "LOCALHOST"] {
            let (_, head) = connect(&proxy, &format!("{host}:{}", origin.port())).await;
            assert!(head.starts_with("HTTP/1.1 403 "), "{host}: {head}");
            assert!(proxy.refused(host, origin.port()), "{host}");
        }
        assert_eq!(connections.load(Ordering::SeqCst), 0);
    })
    .await;
}

#[tokio::test]
async fn other_failures_have_their_own_kinds_and_end_with_a_success() {
    bounded(async {
        let gone = RefusingPort::on(Ipv4Addr::LOCALHOST).unwrap();
        let port = gone.address().port();
        let proxy = proxy_with(opened(&["127.0.0.1"]), &[("there.example", "127.0.0.1")]).await;
        for (host, kind) in
            [("there.example", ErrorKind::NetworkError), ("gone.example", ErrorKind::DnsError)]
        {
            let response = get(&proxy, &format!("http://{host}:{port}/")).await;
            assert!(response.starts_with("HTTP/1.1 502 "), "{response}");
            assert!(
                response.contains(&format!("x-fetchwise-error: {kind}"))
                    && !response.contains("refused: 1"),
                "{response}"
            );
            assert_eq!(proxy.failure(host, port).unwrap().kind, kind);
            let (_, head) = connect(&proxy, &format!("{host}:{port}")).await;
            assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
            assert!(!proxy.refused(host, port));
        }
        let _back = gone.listen().unwrap();
        let (_, head) = connect(&proxy, &format!("There.Example:{port}")).await;
        // The name is looked up as written; `Names` has it in lower case only.
        assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
        let (_, head) = connect(&proxy, &format!("there.example:{port}")).await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert_eq!(proxy.failure("there.example", port), None);
    })
    .await;
}

#[tokio::test]
async fn an_origin_without_http_is_a_network_error() {
    bounded(async {
        let (origin, _) = listen([127, 0, 0, 1], |mut stream| async move {
            let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").await;
        })
        .await;
        let proxy = proxy().await;
        let response = get(&proxy, &format!("http://{origin}/")).await;
        assert!(
            response.starts_with("HTTP/1.1 502 ")
                && response.contains("x-fetchwise-error: network_error"),
            "{response}"
        );
    })
    .await;
}

#[tokio::test]
async fn requests_that_are_not_for_a_proxy_are_refused() {
    bounded(async {
        let proxy = proxy().await;
        let known = format!("Proxy-Authorization: {}\r\nConnection: close", proxy.authorization());
        for request in [
            "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".to_owned(),
            "GET https://127.0.0.1/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_owned(),
            "GET ftp://127.0.0.1/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_owned(),
            "CONNECT 127.0.0.1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_owned(),
            "nonsense\r\n\r\n".to_owned(),
        ] {
            let request = request.replace("Connection: close", &known);
            let response = ask(&proxy, &request).await;
            assert!(response.starts_with("HTTP/1.1 400 "), "{request}{response}");
        }
    })
    .await;
}

#[tokio::test]
async fn dropping_the_proxy_ends_its_tunnels_and_frees_its_port() {
    bounded(async {
        let (origin, _) = echo().await;
        let proxy = proxy().await;
        let addr = proxy.addr();
        let (mut tunnel, _) = connect(&proxy, &origin.to_string()).await;
        tunnel.write_all(b"x").await.unwrap();
        assert_eq!(tunnel.read_u8().await.unwrap(), b'x');
        drop(proxy);
        assert_eq!(tunnel.read(&mut [0; 1]).await.unwrap_or(0), 0, "the tunnel ends");
        while TcpStream::connect(addr).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn connections_over_the_limit_wait() {
    bounded(async {
        let (origin, connections) = echo().await;
        let proxy = proxy().await;
        let mut tunnels = Vec::new();
        for _ in 0..128 {
            tunnels.push(connect(&proxy, &origin.to_string()).await);
        }
        let target = origin.to_string();
        let late = connect(&proxy, &target);
        tokio::pin!(late);
        assert!(tokio::time::timeout(Duration::from_millis(300), &mut late).await.is_err());
        assert_eq!(connections.load(Ordering::SeqCst), 128);
        tunnels.truncate(127);
        let (_, head) = late.await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    })
    .await;
}
