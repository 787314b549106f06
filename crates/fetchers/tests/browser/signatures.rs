//! Signed requests of a real Chromium, held against verifiers.

use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use fetchwise::fetch::address_guard::{AddressGuard, parse_network};
use fetchwise::fetch::browser::{
    BrowserFetcher, BrowserOptions, BrowserSigning, SignatureScope, UserAgent,
};
use fetchwise::fetch::dial::{Dialer, LookupFuture, Resolve};
use fetchwise::fetch::host_headers::HostHeaders;
use fetchwise::fetch::{Fetcher, Limits, Request, Response};
use fetchwise::identity::verify::{RawRequest, verify};
use fetchwise::identity::{FormSetting, Signer};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use url::Url;

use crate::chromium;
use crate::remote::ForeignBrowser;
use crate::signed::{ReceivedRequest, keyring, see_wrong_clock, signer};

/// Each name has the address of the servers.
struct Names;

impl Resolve for Names {
    fn lookup<'a>(&'a self, host: &'a str) -> LookupFuture<'a> {
        let is_known = host.ends_with(".test");
        Box::pin(async move {
            match is_known {
                true => Ok(vec!["127.0.0.1".parse().unwrap()]),
                false => Err(std::io::ErrorKind::NotFound.into()),
            }
        })
    }
}

type Reply = http::Response<Full<Bytes>>;

/// A server over TLS and one without, for all names. They keep every request.
struct Sites {
    https: u16,
    http: u16,
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl Sites {
    /// Starts servers that respond by host and path.
    async fn start(
        respond: impl Fn(&str, &str, u16) -> Reply + Clone + Send + Sync + 'static,
    ) -> Self {
        let key = rcgen::generate_simple_self_signed(vec!["shop.test".to_owned()]).unwrap();
        let private = PrivateKeyDer::try_from(key.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let config = config.with_single_cert(vec![key.cert.der().clone()], private).unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let secure = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let plain = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (https, http) =
            (secure.local_addr().unwrap().port(), plain.local_addr().unwrap().port());
        let seen: Arc<Mutex<Vec<ReceivedRequest>>> = Arc::default();
        let kept = Arc::clone(&seen);
        let service = move |request: http::Request<hyper::body::Incoming>| {
            let got = ReceivedRequest::of(&request);
            let host = got.authority.split(':').next().unwrap_or_default().to_owned();
            let response = respond(&host, &got.path, https);
            kept.lock().unwrap().push(got);
            async move { Ok::<_, Infallible>(response) }
        };
        let plain_service = service.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = secure.accept().await {
                let (acceptor, service) = (acceptor.clone(), service.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let http = hyper::server::conn::http1::Builder::new();
                    let _ = http.serve_connection(TokioIo::new(stream), service_fn(service)).await;
                });
            }
        });
        tokio::spawn(async move {
            while let Ok((stream, _)) = plain.accept().await {
                let http = hyper::server::conn::http1::Builder::new();
                tokio::spawn(
                    http.serve_connection(TokioIo::new(stream), service_fn(plain_service.clone())),
                );
            }
        });
        Self { https, http, seen }
    }

    fn url(&self, host: &str, path: &str) -> Url {
        format!("https://{host}:{}{path}", self.https).parse().unwrap()
    }

    fn take(&self) -> Vec<ReceivedRequest> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

fn reply(status: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Reply {
    let mut builder = http::Response::builder().status(status);
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(Full::new(body.into())).unwrap()
}

fn html(body: impl Into<Bytes>) -> Reply {
    reply(200, &[("content-type", "text/html; charset=utf-8")], body)
}

fn browser(options: BrowserOptions) -> Option<BrowserFetcher> {
    // The certificate is not part of these tests.
    let options =
        BrowserOptions { extra_args: vec!["--ignore-certificate-errors".to_owned()], ..options };
    let guard = AddressGuard::new([parse_network("127.0.0.0/24").unwrap()], false);
    Some(
        BrowserFetcher::new(chromium()?, options, Dialer::with_resolver(guard, Arc::new(Names)))
            .unwrap(),
    )
}

fn signing(signer: &Arc<Signer>, scope: SignatureScope) -> BrowserOptions {
    let signing = Some(BrowserSigning { signer: Arc::clone(signer).into(), scope });
    BrowserOptions { signing, ..BrowserOptions::default() }
}

async fn get(browser: &BrowserFetcher, url: &Url) -> Response {
    let limits = Limits { deadline: Duration::from_secs(60), ..Limits::default() };
    let fetched =
        tokio::time::timeout(Duration::from_secs(180), browser.fetch(Request::new(url, &limits)))
            .await;
    fetched.expect("the fetch hangs").unwrap_or_else(|error| panic!("{url}: {error}"))
}

fn text(response: &Response) -> String {
    String::from_utf8(response.body.head().to_vec()).unwrap()
}

fn is_third_party(request: &ReceivedRequest) -> bool {
    request.authority.starts_with("third.test")
        || request.authority.starts_with("shop.test.third.test")
}

/// Returns whether a request has a signature. It has all three headers or none.
fn is_signed(request: &ReceivedRequest) -> bool {
    let has = ["signature", "signature-input", "signature-agent"]
        .map(|name| request.header(name).is_some());
    assert!(has[0] == has[1] && has[1] == has[2], "{request:?}");
    has[0]
}

/// Verifies a request with the crate's own verifier and with one that shares no code with it.
fn assert_valid(request: &ReceivedRequest, signer: &Signer) {
    assert!(is_signed(request) && request.is_valid(&keyring(&signer.keys())), "{request:?}");
    let query = request.query.as_ref().map_or_else(String::new, |query| format!("?{query}"));
    let lines: String =
        request.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let raw =
        format!("{} {}{query} {:?}\r\n{lines}\r\n", request.method, request.path, request.version);
    let raw = RawRequest::parse(raw.as_bytes(), "https").unwrap();
    let now = fetchwise::time::Timestamp::now().as_millis() / 1000;
    verify(&raw, &signer.keys(), Some(signer.agent()), now)
        .unwrap_or_else(|error| panic!("{error}: {request:?}"));
}

/// A page with 20 resources of many kinds, 5 of them of third parties. It comes after 3 redirects,
/// the first of which is of another site.
fn page_with_resources(host: &str, path: &str, port: u16) -> Reply {
    let css = ("content-type", "text/css");
    let to = |host: &str, path: &str| format!("https://{host}:{port}{path}");
    let open = [("access-control-allow-origin", "*"), ("access-control-allow-headers", "*")];
    match (host, path) {
        ("short.test", "/s") => reply(302, &[("location", &to("shop.test", "/1"))], ""),
        ("shop.test", "/1") => {
            reply(301, &[("location", &to("www.shop.test", "/2")), ("set-cookie", "a=1")], "")
        }
        ("www.shop.test", "/2") => {
            reply(307, &[("location", "/page?x=1"), ("set-cookie", "b=2")], "")
        }
        ("www.shop.test", "/page") => {
            let (own, cdn, third) =
                (to("www.shop.test", ""), to("cdn.shop.test", ""), to("third.test", ""));
            let lookalike = to("shop.test.third.test", "/lookalike.png");
            html(format!(
                "<!DOCTYPE html><link rel=stylesheet href=/1.css><link rel=stylesheet href={cdn}/2.css>\
                 <script src=/3.js></script><script src={cdn}/4.js></script><img src='/5|^{{}}.png?a=b|c'><img src={cdn}/6.png>\
                 <img src=/hop.png><iframe src=/8.html></iframe><script type=module src=/9.mjs></script>\
                 <video src=/10.mp4 preload=auto></video><link rel=preload as=fetch href=/11.json crossorigin>\
                 <img src={third}/1.png><script src={third}/2.js></script><link rel=stylesheet href={third}/3.css>\
                 <img src={lookalike}><iframe src={third}/5.html></iframe>\
                 <p id=out></p><script>Promise.all([fetch('/12.json'), fetch('/13', {{method: 'POST', body: 'x'}}), \
                 fetch('{cdn}/14.json'), fetch('{own}/15.json', {{headers: {{Signature: 'mine', 'Signature-Agent': 'x'}}}})]) \
                 .then(all => Promise.all(all.map(one => one.text()))).then(all => out.textContent = all.join('+'))</script>"
            ))
        }
        (_, "/hop.png") => reply(302, &[("location", &to("cdn.shop.test", "/hopped.png"))], ""),
        (_, path) if path.ends_with(".css") => reply(200, &[css], "p { color: red }"),
        (_, path) if path.ends_with("js") => {
            reply(200, &[("content-type", "text/javascript")], "1")
        }
        (_, path) if path.ends_with(".html") => html("<p>frame</p>"),
        (_, path) if path.ends_with(".png") => reply(200, &[("content-type", "image/png")], ""),
        _ => reply(200, &open, path.trim_start_matches('/').to_owned()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_a_page_to_its_site_verify_and_third_parties_get_no_signature() {
    let sites = Sites::start(page_with_resources).await;
    let signer = Arc::new(signer(FormSetting::Auto));
    let Some(browser) = browser(signing(&signer, SignatureScope::Site)) else { return };
    let response = get(&browser, &sites.url("short.test", "/s")).await;
    let page = text(&response);
    assert!(page.contains("<p id=\"out\">12.json+13+14.json+15.json</p>"), "{page}");
    let seen = sites.take();
    for request in &seen {
        println!(
            "{} {} {} signed={}",
            request.method,
            request.authority,
            request.path,
            is_signed(request)
        );
    }
    let (third, first): (Vec<&ReceivedRequest>, Vec<&ReceivedRequest>) =
        seen.iter().partition(|request| is_third_party(request));
    assert!(third.len() == 5 && first.len() == 20, "{} {}", third.len(), first.len());
    for request in &third {
        assert!(!is_signed(request), "{request:?}");
    }
    for request in &first {
        assert_valid(request, &signer);
    }
    let nonces: HashSet<String> = first.iter().map(|request| request.nonce()).collect();
    assert_eq!(nonces.len(), first.len());
    browser.close().await;
}

/// Pages and resources of one site, which tell what a script sees.
fn shop(host: &str, path: &str, port: u16) -> Reply {
    let to = |host: &str, path: &str| format!("https://{host}:{port}{path}");
    match path {
        "/page" => {
            let (cdn, third) = (to("cdn.shop.test", "/a.js"), to("third.test", "/b.js"));
            let script = "<script>fetch('/c', {headers: {'X-Own': '1'}}).then(() => fetch('/d', {method: 'PUT', body: 'x'}))\
                .then(() => out.textContent = navigator.userAgent)</script>";
            let body = format!(
                "<p id=out></p><script src={cdn}></script><script src={third}></script>{script}"
            );
            reply(200, &[("content-type", "text/html"), ("set-cookie", "a=1")], body)
        }
        // One site leads to another, which uses resources of the first.
        "/leave" => html(format!(
            "<script>location = '{}'</script><img src=/old.png>",
            to("third.test", "/arrive")
        )),
        "/arrive" => {
            let spy = to("shop.test", "/spy.png");
            html(format!(
                "<p>arrived</p><img src={spy}><img src=/own.png><script>fetch('{spy}', {{mode: 'no-cors'}})</script>"
            ))
        }
        "/outer" => {
            html(format!("<p>outer</p><iframe src='{}'></iframe>", to("third.test", "/inner")))
        }
        "/inner" => html(format!(
            "<img src=/of-frame.png><img src='{}'>",
            to("shop.test", "/from-frame.png")
        )),
        // Requests that are not ordinary ones.
        "/odd" => {
            let api = to("api.shop.test", "/api");
            html(format!(
                "<p id=out></p><iframe srcdoc='<img src=/framed.png>'></iframe><link rel=prefetch href=/prefetched.js>\
                 <style>@font-face {{ font-family: f; src: url(/font.woff2) }} p {{ font-family: f }}</style>text<script>\
                 new EventSource('/events'); navigator.sendBeacon('/beacon', 'x'); new WebSocket('wss://' + location.host + '/socket');\
                 const worker = new Worker('/worker.js'); worker.onmessage = () => {{ out.textContent = 'done' }};\
                 fetch('{api}', {{headers: {{'X-Own': '1'}}}}).catch(() => 0)</script>"
            ))
        }
        "/worker.js" => reply(
            200,
            &[("content-type", "text/javascript")],
            "fetch('/worked').then(() => postMessage(1))",
        ),
        "/api" => {
            let origin = to("shop.test", "");
            reply(
                200,
                &[
                    ("access-control-allow-origin", &origin),
                    ("access-control-allow-headers", "x-own"),
                ],
                "{}",
            )
        }
        _ if path.ends_with(".js") => reply(200, &[("content-type", "text/javascript")], "1"),
        _ => reply(200, &[], host.to_owned()),
    }
}

/// Returns what was requested, and whether it was signed.
fn signed_by_path(seen: &[ReceivedRequest]) -> BTreeMap<String, bool> {
    seen.iter()
        .map(|request| (format!("{} {}", request.method, request.path), is_signed(request)))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_page_is_requested_as_an_unsigned_one_besides_its_signatures() {
    let sites = Sites::start(shop).await;
    let signer = Arc::new(signer(FormSetting::Auto));
    let declared = "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; ExampleBot/1.0; \
        +https://bot.example/bot) Chrome/W.X.Y.Z Safari/537.36";
    let user_agent = UserAgent::Versioned(declared.to_owned());
    let mut received = Vec::new();
    for options in [BrowserOptions::default(), signing(&signer, SignatureScope::All)] {
        let options = BrowserOptions { user_agent: user_agent.clone(), ..options };
        let Some(browser) = browser(options) else { return };
        let page = text(&get(&browser, &sites.url("shop.test", "/page")).await);
        let (_, version) = page.split_once("Chrome/").unwrap();
        let version = version.split_once(' ').unwrap().0;
        assert!(version.split('.').count() == 4 && !version.contains('W'), "{page}");
        let named = declared.replace("W.X.Y.Z", version);
        assert!(page.contains(&format!("<p id=\"out\">{named}</p>")), "{page}");
        let seen = sites.take();
        assert!(
            seen.iter().all(|request| request.header("user-agent") == Some(&*named)),
            "{seen:?}"
        );
        let headers = |request: &ReceivedRequest| {
            let ours = |name: &str| name.starts_with("signature");
            let kept = request.headers.iter().filter(|(name, _)| !ours(name)).cloned();
            (
                format!("{} {}", request.method, request.path),
                kept.collect::<BTreeMap<String, String>>(),
            )
        };
        received.push(seen.iter().map(headers).collect::<BTreeMap<_, _>>());
        let is_signing = received.len() == 2;
        assert!(seen.iter().all(|request| is_signed(request) == is_signing), "{seen:?}");
        if is_signing {
            seen.iter().for_each(|request| assert_valid(request, &signer));
        }
        browser.close().await;
    }
    assert_eq!(received[0], received[1]);
    let requested: Vec<&str> = received[0].keys().map(String::as_str).collect();
    assert_eq!(requested, ["GET /a.js", "GET /b.js", "GET /c", "GET /page", "PUT /d"]);
    assert_eq!(received[1]["GET /c"]["cookie"], "a=1");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scope_says_what_is_signed_and_plain_http_never_is() {
    let sites = Sites::start(shop).await;
    let signer = Arc::new(signer(FormSetting::Auto));
    let plain: Url = format!("http://shop.test:{}/page", sites.http).parse().unwrap();
    for (scope, [page, own, cdn, third]) in [
        (SignatureScope::Document, [true, false, false, false]),
        (SignatureScope::Site, [true, true, true, false]),
        (SignatureScope::All, [true, true, true, true]),
    ] {
        let Some(browser) = browser(signing(&signer, scope)) else { return };
        get(&browser, &sites.url("shop.test", "/page")).await;
        let expected = [
            ("GET /a.js", cdn),
            ("GET /b.js", third),
            ("GET /c", own),
            ("GET /page", page),
            ("PUT /d", own),
        ];
        let expected =
            expected.map(|(path, is_signed)| (path.to_owned(), is_signed)).into_iter().collect();
        assert_eq!(signed_by_path(&sites.take()), expected, "{scope:?}");
        // The page and its own resources are plain here.
        get(&browser, &plain).await;
        let seen = signed_by_path(&sites.take());
        assert!(
            !seen["GET /page"] && !seen["GET /c"] && !seen["PUT /d"] && seen["GET /a.js"] == cdn,
            "{scope:?} {seen:?}"
        );
        browser.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_site_that_a_page_leaves_for_another_is_a_third_party_there() {
    let sites = Sites::start(shop).await;
    let signer = Arc::new(signer(FormSetting::Auto));
    let Some(browser) = browser(signing(&signer, SignatureScope::Site)) else { return };
    let page = text(&get(&browser, &sites.url("shop.test", "/leave")).await);
    assert!(page.contains("arrived"), "{page}");
    let seen = signed_by_path(&sites.take());
    assert!(
        seen["GET /leave"] && seen["GET /arrive"] && seen["GET /own.png"] && !seen["GET /spy.png"],
        "{seen:?}"
    );
    // Frames of other sites have separate targets, whose requests are not paused.
    get(&browser, &sites.url("shop.test", "/outer")).await;
    let expected = [
        ("GET /from-frame.png", false),
        ("GET /inner", false),
        ("GET /of-frame.png", false),
        ("GET /outer", true),
    ];
    let seen: Vec<(String, bool)> = signed_by_path(&sites.take()).into_iter().collect();
    assert_eq!(seen, expected.map(|(path, signed)| (path.to_owned(), signed)));
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_every_kind_are_signed_except_web_sockets() {
    let sites = Sites::start(shop).await;
    let signer = Arc::new(signer(FormSetting::Auto));
    let Some(browser) = browser(signing(&signer, SignatureScope::Site)) else { return };
    let page = text(&get(&browser, &sites.url("shop.test", "/odd")).await);
    assert!(page.contains("done"), "{page}");
    let seen = sites.take();
    seen.iter()
        .filter(|request| is_signed(request))
        .for_each(|request| assert_valid(request, &signer));
    let mut seen = signed_by_path(&seen);
    // Chromium prefetches when it has nothing else to do.
    assert_ne!(seen.remove("GET /prefetched.js"), Some(false));
    let expected = [
        ("GET /api", true),
        ("GET /events", true),
        ("GET /font.woff2", true),
        ("GET /framed.png", true),
        ("GET /odd", true),
        ("GET /socket", false),
        ("GET /worked", true),
        ("GET /worker.js", true),
        ("OPTIONS /api", true),
        ("POST /beacon", true),
    ];
    assert_eq!(
        seen.into_iter().collect::<Vec<_>>(),
        expected.map(|(path, signed)| (path.to_owned(), signed))
    );
    browser.close().await;
}

/// Passes a DevTools connection on, and keeps what the client sends.
async fn relay(socket: &str) -> (String, Arc<Mutex<Vec<u8>>>) {
    let (_, place) = socket.split_once("://").unwrap();
    let (address, path) = place.split_once('/').unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = format!("ws://{}/{path}", listener.local_addr().unwrap());
    let (address, sent) = (address.to_owned(), Arc::new(Mutex::new(Vec::new())));
    let kept = Arc::clone(&sent);
    tokio::spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        let browser = tokio::net::TcpStream::connect(address).await.unwrap();
        let ((mut from_client, mut to_client), (mut from_browser, mut to_browser)) =
            (client.into_split(), browser.into_split());
        tokio::spawn(async move { tokio::io::copy(&mut from_browser, &mut to_client).await });
        let mut buffer = vec![0; 1 << 16];
        while let Ok(len @ 1..) = from_client.read(&mut buffer).await {
            kept.lock().unwrap().extend_from_slice(&buffer[..len]);
            if to_browser.write_all(&buffer[..len]).await.is_err() {
                break;
            }
        }
    });
    (own, sent)
}

/// Returns the commands in what a client has sent: a handshake, then masked frames of web sockets.
fn commands(sent: &[u8]) -> Vec<serde_json::Value> {
    let begin = sent.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    let (mut rest, mut found) = (&sent[begin..], Vec::new());
    while rest.len() > 6 {
        let (len, mask) = match rest[1] & 0x7f {
            126 => (usize::from(u16::from_be_bytes([rest[2], rest[3]])), 4),
            127 => {
                (usize::try_from(u64::from_be_bytes(rest[2..10].try_into().unwrap())).unwrap(), 10)
            }
            len => (usize::from(len), 2),
        };
        let (key, payload) = (&rest[mask..mask + 4], &rest[mask + 4..mask + 4 + len]);
        let text: Vec<u8> =
            payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key).collect();
        if rest[0] & 0xf == 1 {
            found.push(serde_json::from_slice(&text).unwrap());
        }
        rest = &rest[mask + 4 + len..];
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_document_costs_no_further_command() {
    let sites = Sites::start(|_, path, _| match path {
        "/1" => reply(302, &[("location", "/2")], ""),
        "/2" => reply(302, &[("location", "/3")], ""),
        _ => html("<p>here</p>"),
    })
    .await;
    let Some(program) = chromium() else { return };
    let running = ForeignBrowser::start(&program, &["--ignore-certificate-errors"]);
    let signer = Arc::new(signer(FormSetting::Auto));
    let mut counts = Vec::new();
    for options in [BrowserOptions::default(), signing(&signer, SignatureScope::Site)] {
        let (socket, sent) = relay(&running.socket).await;
        let guard = AddressGuard::new([parse_network("127.0.0.0/24").unwrap()], false);
        let browser =
            BrowserFetcher::remote(&socket, options, Dialer::with_resolver(guard, Arc::new(Names)))
                .unwrap();
        assert!(text(&get(&browser, &sites.url("shop.test", "/1")).await).contains("here"));
        let sent = commands(&sent.lock().unwrap());
        let of_fetch =
            sent.iter().filter(|command| command["method"].as_str().unwrap().starts_with("Fetch."));
        counts.push((
            of_fetch.count(),
            sites.take().iter().filter(|request| is_signed(request)).count(),
        ));
        browser.close().await;
    }
    // One to begin with, one for the proxy's password, then one before each request and one after
    // its head.
    assert_eq!(counts, [(8, 0), (8, 3)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_cannot_be_signed_is_not_requested() {
    let sites = Sites::start(shop).await;
    let signer = Arc::new(signer(FormSetting::Auto));
    let Some(browser) = browser(signing(&signer, SignatureScope::Site)) else { return };
    see_wrong_clock(&signer);
    let limits = Limits { deadline: Duration::from_secs(60), ..Limits::default() };
    let url = sites.url("shop.test", "/x");
    let error = browser.fetch(Request::new(&url, &limits)).await.unwrap_err();
    assert!(error.unavailable && error.local && error.message.contains("clock"), "{error:?}");
    assert!(sites.take().is_empty());
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_headers_of_a_host_go_to_its_pages_and_to_what_its_site_loads_from_it() {
    let respond = |host: &str, path: &str, port: u16| match (host, path) {
        ("shop.test", "/1") => {
            reply(302, &[("location", &format!("https://third.test:{port}/2"))], "")
        }
        ("third.test", "/2") => {
            reply(302, &[("location", &format!("https://shop.test:{port}/page"))], "")
        }
        ("third.test", "/page") => {
            html(format!("<p>x</p><img src=https://shop.test:{port}/spy.png>"))
        }
        ("shop.test", "/page") => html(format!(
            "<p>x</p><img src=/own.png><img src=https://cdn.shop.test:{port}/cdn.png><img src=https://third.test:{port}/third.png>"
        )),
        _ => reply(200, &[("content-type", "image/png")], ""),
    };
    let sites = Sites::start(respond).await;
    let mut host_headers = HostHeaders::default();
    host_headers.set("shop.test", "Signature: sig=:AAAA:\nX-Shop: hunter2").unwrap();
    let Some(browser) = browser(BrowserOptions { host_headers, ..BrowserOptions::default() })
    else {
        return;
    };
    for (page, expected) in [
        (sites.url("shop.test", "/1"), &["/1", "/page", "/own.png"] as &[&str]),
        (sites.url("third.test", "/page"), &[]),
    ] {
        get(&browser, &page).await;
        let seen = sites.take();
        let mut got = Vec::new();
        for request in &seen {
            let headers = [request.header("signature"), request.header("x-shop")];
            match headers {
                [None, None] => {}
                [Some("sig=:AAAA:"), Some("hunter2")] => got.push(request.path.as_str()),
                _ => panic!("{request:?}"),
            }
        }
        assert_eq!(got, expected, "{page}: {seen:?}");
        assert!(seen.len() > got.len());
    }
    browser.close().await;
}
