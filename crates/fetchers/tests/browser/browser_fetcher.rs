//! `BrowserFetcher` against real servers on loopback, with the real Chromium. Each test is bounded
//! in time.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::fetch::address_guard::{AddressGuard, parse_network};
use fetchwise::fetch::browser::{BrowserFetcher, BrowserOptions};
use fetchwise::fetch::dial::{Dialer, LookupFuture, Resolve};
use fetchwise::fetch::{FetchError, Fetcher, Limits, Request, Response};
use fetchwise::response::header;
use futures_util::StreamExt;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use url::Url;

use fetchwise_testsite::poll::until;
use fetchwise_testsite::ports::RefusingPort;

use crate::chromium;

pub(super) type Reply = hyper::Response<BoxBody<Bytes, Infallible>>;

/// A requested path, and the headers of the request.
type SeenRequest = (String, HashMap<String, String>);

/// A web site on loopback that counts its connections and records its requests.
pub(super) struct Site {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<SeenRequest>>>,
}

impl Site {
    /// Serves `respond(path)` on a free port of `ip`.
    async fn on(
        ip: &str,
        respond: impl Fn(String) -> Reply + Clone + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((ip, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (count, log) = (Arc::clone(&connections), Arc::clone(&requests));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let (respond, log) = (respond.clone(), Arc::clone(&log));
                let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                    let path = request.uri().path().to_owned();
                    let headers = request
                        .headers()
                        .iter()
                        .map(|(k, v)| (k.to_string(), v.to_str().unwrap_or("").to_owned()))
                        .collect();
                    log.lock().unwrap().push((path.clone(), headers));
                    let respond = respond.clone();
                    async move {
                        if let Some(ms) = path.strip_prefix("/slow/") {
                            tokio::time::sleep(Duration::from_millis(ms.parse().unwrap())).await;
                        }
                        Ok::<_, Infallible>(respond(path))
                    }
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        Self { address, connections, requests }
    }

    pub(super) async fn new(
        respond: impl Fn(String) -> Reply + Clone + Send + Sync + 'static,
    ) -> Self {
        Self::on("127.0.0.1", respond).await
    }

    pub(super) fn url(&self, path: &str) -> Url {
        Url::parse(&format!("http://{}{path}", self.address)).unwrap()
    }

    pub(super) fn requests_of(&self, path: &str) -> usize {
        self.requests.lock().unwrap().iter().filter(|(p, _)| p == path).count()
    }
}

pub(super) fn reply(status: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Reply {
    let mut builder = hyper::Response::builder().status(status);
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(Full::new(body.into()).boxed()).unwrap()
}

pub(super) fn html(body: impl Into<Bytes>) -> Reply {
    reply(200, &[("content-type", "text/html; charset=utf-8")], body)
}

/// Returns the bytes of a body in a file.
fn whole(response: &Response) -> Vec<u8> {
    assert!(response.body.spill().is_some());
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut response.body.reader(), &mut bytes).unwrap();
    bytes
}

/// Returns a browser that may reach only 127.0.0.0/24, or `None` without a Chromium.
pub(super) fn browser() -> Option<BrowserFetcher> {
    browser_with(BrowserOptions::default())
}

pub(super) fn browser_with(options: BrowserOptions) -> Option<BrowserFetcher> {
    let program = chromium()?;
    let guard = AddressGuard::new([parse_network("127.0.0.0/24").unwrap()], false);
    Some(
        BrowserFetcher::new(program, options, Dialer::with_resolver(guard, Arc::new(Names)))
            .unwrap(),
    )
}

/// A resolver with fixed names, without lookups over the network.
struct Names;

/// Names that a browser of this process looked up and that no test uses.
static UNKNOWN_NAMES: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl Resolve for Names {
    fn lookup<'a>(&'a self, host: &'a str) -> LookupFuture<'a> {
        if !host.ends_with(".test") && host != "no-such-host.invalid" {
            UNKNOWN_NAMES.lock().unwrap().push(host.to_owned());
        }
        Box::pin(async move {
            match host {
                "outside.test" => Ok(vec!["127.0.0.1".parse().unwrap()]),
                "inside.test" => Ok(vec!["127.0.1.7".parse().unwrap()]),
                _ => Err(std::io::ErrorKind::NotFound.into()),
            }
        })
    }
}

/// Starts a TLS server with an unknown certificate.
async fn self_signed_server() -> SocketAddr {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()])
        .unwrap()
        .self_signed(&key)
        .unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_safe_default_protocol_versions()
    .unwrap()
    .with_no_client_auth()
    .with_single_cert(vec![certificate.der().clone()], key)
    .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = acceptor.accept(stream).await;
        }
    });
    address
}

pub(super) async fn get(
    browser: &BrowserFetcher,
    url: &Url,
    limits: &Limits,
) -> Result<Response, FetchError> {
    browser.fetch(Request::new(url, limits)).await
}

pub(super) fn seconds(deadline: u64) -> Limits {
    Limits { deadline: Duration::from_secs(deadline), ..Limits::default() }
}

pub(super) fn text(response: &Response) -> String {
    String::from_utf8(response.body.head().to_vec()).unwrap()
}

/// Runs a test with a timeout, and closes the browser at its end.
///
/// Fails if a browser looked up a name that no test uses: Chromium must not make requests itself.
pub(super) async fn bounded<F: Future<Output = ()>>(browser: &BrowserFetcher, test: F) {
    tokio::time::timeout(Duration::from_secs(240), test).await.expect("the test hangs");
    browser.close().await;
    assert!(UNKNOWN_NAMES.lock().unwrap().is_empty(), "{UNKNOWN_NAMES:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_has_the_text_after_its_scripts_ran() {
    let site = Site::new(|path| match path.as_str() {
        "/" => html(
            "<!DOCTYPE html><title>shell</title><div id=app></div><script>\
             fetch('/api').then(r => r.json()).then(j => document.getElementById('app').textContent = j.text)</script>",
        ),
        "/api" => reply(200, &[("content-type", "application/json")], r#"{"text":"rendered: žluťoučký 🦊"}"#),
        _ => reply(404, &[], ""),
    })
    .await;
    let Some(browser) = browser() else { return };
    bounded(&browser, async {
        let response = get(&browser, &site.url("/"), &seconds(30)).await.unwrap();
        assert_eq!(response.status, 200);
        assert_eq!(header(&response.headers, "content-type"), Some("text/html; charset=utf-8"));
        assert_eq!(response.final_url, site.url("/"));
        let text = text(&response);
        assert!(text.starts_with("<!DOCTYPE html><html>"), "{text}");
        assert!(text.contains("<div id=\"app\">rendered: žluťoučký 🦊</div>"), "{text}");
        assert!(!response.truncated);
        assert_eq!(browser.name(), "playwright");
        assert!(browser.renders());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn content_of_web_components_is_in_the_text() {
    let site = Site::new(|_| {
        html(
            "<!DOCTYPE html><html lang=en><x-outer>light</x-outer><script>for (const [name, inside] of [\
             ['x-outer', '<p>outer <slot></slot></p><x-inner></x-inner>'], ['x-inner', '<p>inner</p>']]) \
             customElements.define(name, class extends HTMLElement { constructor() { super(); \
             this.attachShadow({mode: 'open'}).innerHTML = inside } })</script>",
        )
    })
    .await;
    let Some(browser) = browser() else { return };
    bounded(&browser, async {
        let text = text(&get(&browser, &site.url("/"), &seconds(30)).await.unwrap());
        let outer = "<x-outer><template shadowrootmode=\"open\"><p>outer <slot></slot></p><x-inner>\
                     <template shadowrootmode=\"open\"><p>inner</p></template></x-inner></template>light</x-outer>";
        assert!(text.starts_with("<!DOCTYPE html><html lang=\"en\"><head>") && text.ends_with("</html>"), "{text}");
        assert!(text.contains(outer), "{text}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn status_headers_and_final_url_are_the_main_documents() {
    let site = Site::new(|path| match path.as_str() {
        "/old" => reply(302, &[("location", "/new")], ""),
        "/new" => reply(
            200,
            &[
                ("content-type", "text/html"),
                ("x-which", "main"),
                ("set-cookie", "a=1"),
                ("set-cookie", "b=2"),
            ],
            "<p>arrived</p><img src=/missing.png>",
        ),
        "/js" => html("<script>location.replace('/new')</script>leaving"),
        "/gone" => reply(410, &[("content-type", "text/html")], "<p>gone for good</p>"),
        "/broken" => {
            reply(503, &[("content-type", "text/html"), ("retry-after", "7")], "<p>later</p>")
        }
        "/secret" => reply(
            401,
            &[("content-type", "text/html"), ("www-authenticate", "Basic realm=x")],
            "<p>who?</p>",
        ),
        "/nothing" => reply(204, &[("x-which", "nothing")], ""),
        _ => reply(404, &[("content-type", "text/html")], "<p>no such page</p>"),
    })
    .await;
    let Some(browser) = browser() else { return };
    bounded(&browser, async {
        for from in ["/old", "/js"] {
            let response = get(&browser, &site.url(from), &seconds(20)).await.unwrap();
            assert_eq!(
                (response.status, response.final_url.clone()),
                (200, site.url("/new")),
                "{from}"
            );
            assert_eq!(header(&response.headers, "x-which"), Some("main"));
            let cookies: Vec<_> = response
                .headers
                .iter()
                .filter(|h| h.name.eq_ignore_ascii_case("set-cookie"))
                .collect();
            assert_eq!(cookies.len(), 2, "repeated headers stay separate");
            assert!(text(&response).contains("<p>arrived</p>"));
        }
        for (path, status, part) in [
            ("/gone", 410, "gone for good"),
            ("/broken", 503, "later"),
            ("/secret", 401, "who?"),
            ("/nowhere", 404, "no such page"),
        ] {
            let response = get(&browser, &site.url(path), &seconds(20)).await.unwrap();
            assert_eq!(response.status, status, "{path}");
            assert!(text(&response).contains(part), "{path}");
        }
        let nothing = get(&browser, &site.url("/nothing"), &seconds(20)).await.unwrap();
        assert_eq!((nothing.status, nothing.body.len()), (204, 0));
        assert_eq!(header(&nothing.headers, "x-which"), Some("nothing"));
        assert_eq!(site.requests_of("/favicon.ico"), 0, "a request that no page made");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_other_than_html_are_the_sent_bytes() {
    let pdf: Vec<u8> =
        b"%PDF-1.4\n".iter().copied().chain((0..=255).cycle().take(700_000)).collect();
    let sent = pdf.clone();
    let site = Site::new(move |path| match path.as_str() {
        "/a.pdf" => reply(200, &[("content-type", "application/pdf")], sent.clone()),
        "/a.json" => reply(200, &[("content-type", "application/json")], r#"{"a": [1, 2]}"#),
        "/feed" => reply(200, &[("content-type", "application/rss+xml")], "<rss><channel/></rss>"),
        "/a.png" => reply(200, &[("content-type", "image/png")], &b"\x89PNG\r\n\x1a\n"[..]),
        "/report" => reply(
            200,
            &[
                ("content-type", "text/html"),
                ("content-disposition", "attachment; filename=r.html"),
            ],
            "<p>kept as it is",
        ),
        "/zip" => reply(200, &[("content-type", "application/zip")], "PK\x03\x04"),
        "/error.json" => reply(500, &[("content-type", "application/json")], r#"{"error": 1}"#),
        "/empty" => reply(200, &[("content-type", "text/plain")], ""),
        _ => reply(404, &[], ""),
    })
    .await;
    let Some(browser) = browser() else { return };
    bounded(&browser, async {
        let limits = Limits { max_in_memory: 1000, ..seconds(20) };
        let response = get(&browser, &site.url("/a.pdf"), &limits).await.unwrap();
        assert_eq!(header(&response.headers, "content-type"), Some("application/pdf"));
        assert_eq!(response.body.len(), pdf.len() as u64);
        assert_eq!(response.body.head()[..], pdf[..1000]);
        assert_eq!(whole(&response), pdf);
        for (path, status, body) in [
            ("/a.json", 200, &br#"{"a": [1, 2]}"#[..]),
            ("/feed", 200, b"<rss><channel/></rss>"),
            ("/a.png", 200, b"\x89PNG\r\n\x1a\n"),
            ("/report", 200, b"<p>kept as it is"),
            ("/zip", 200, b"PK\x03\x04"),
            ("/error.json", 500, br#"{"error": 1}"#),
            ("/empty", 200, b""),
        ] {
            let response = get(&browser, &site.url(path), &seconds(20)).await.unwrap();
            assert_eq!(response.status, status, "{path}");
            assert_eq!(response.body.head()[..], *body, "{path}");
            assert_eq!(site.requests_of(path), 1, "{path} was requested once");
        }
    })
    .await;
}

/// Serves pages that never come to rest (path, HTML, and a part of what is read), and expects that
/// each is read as it is.
async fn expect_read_as_they_are(pages: &'static [(&str, &str, &str)]) {
    let site = Site::new(|path| match path.as_str() {
        "/file" => reply(200, &[("content-type", "application/octet-stream")], "data"),
        "/locked.png" => reply(401, &[("www-authenticate", "Basic realm=x")], ""),
        path => match pages.iter().find(|page| page.0 == path) {
            Some((_, page, _)) => html(*page),
            None => reply(200, &[("content-type", "text/plain")], "ok"),
        },
    })
    .await;
    let options = BrowserOptions {
        max_settle: Duration::from_millis(1500),
        give_in_percent: 10,
        ..BrowserOptions::default()
    };
    let Some(browser) = browser_with(options) else { return };
    bounded(&browser, async {
        // Most of the deadline is a reserve for a busy machine.
        for (path, _, part) in pages {
            let mut response = get(&browser, &site.url(path), &seconds(40)).await;
            // On a machine that is too busy for a page's scripts the fetch ends as a local fault,
            // and a crawler tries again.
            while matches!(&response, Err(error) if error.local) {
                response = get(&browser, &site.url(path), &seconds(40)).await;
            }
            let response = response.unwrap_or_else(|e| panic!("{path}: {e}"));
            assert!(text(&response).contains(part), "{path}: {}", text(&response));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_whose_requests_never_end_is_read_as_it_is() {
    expect_read_as_they_are(&[
        (
            "/polls",
            "<p id=x>polling</p><script>setInterval(() => fetch('/tick'), 50)</script>",
            ">polling</p>",
        ),
        ("/long-poll", "<p>waiting</p><script>fetch('/slow/60000')</script>", "<p>waiting</p>"),
        (
            "/events",
            "<p>streaming</p><script>new EventSource('/slow/60000')</script>",
            "<p>streaming</p>",
        ),
        ("/slow-image", "<p>pictures</p><img src=/slow/60000>", "<p>pictures</p>"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_whose_scripts_never_end_is_read_as_it_is() {
    expect_read_as_they_are(&[
        ("/busy", "<p>thinking</p><script>for (;;) {}</script>", "<p>thinking</p>"),
        (
            "/busy-later",
            "<p>thinking later</p><script>setTimeout(() => { for (;;) {} }, 100)</script>",
            "<p>thinking later</p>",
        ),
        ("/alerts", "<p>shouting</p><script>for (;;) alert('!')</script><p>unheard</p>", "<p>shouting</p>"),
        (
            "/questions",
            "<p id=x></p><script>x.textContent = `${confirm('?')} ${prompt('?')}`; setInterval(alert, 10)</script>",
            ">false null</p>",
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_opens_loads_or_asks_for_something_is_read_as_it_is() {
    expect_read_as_they_are(&[
        (
            "/popups",
            "<p>popping</p><a id=a href=/popup target=_blank></a><script>for (let i = 0; i < 5; i++) { \
             window.open('/popup'); a.click() }</script>",
            "<p>popping</p>",
        ),
        (
            "/download",
            "<p>starts shortly</p><a id=a href=/file download></a><script>a.click()</script>",
            "<p>starts shortly</p>",
        ),
        ("/frames", "<p>framing</p><iframe src=/file></iframe><iframe src=/locked.png></iframe>", "<p>framing</p>"),
        ("/auth-image", "<p>locked</p><img src=/locked.png>", "<p>locked</p>"),
        (
            "/print",
            "<p>printing</p><script>print(); Notification.requestPermission(); \
             navigator.geolocation.getCurrentPosition(() => {})</script>",
            "<p>printing</p>",
        ),
        // A page cannot prevent its own end.
        ("/unload", "<p>staying</p><script>onbeforeunload = () => 'stay?'; location = '/left'</script>", "ok"),
    ])
    .await;
}

/// A navigation that becomes a download does not replace the document, and neither does one without
/// content.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_starts_a_download_stays_the_page() {
    const WAYS: [(&str, &str); 8] = [
        ("/location", "setTimeout(() => location = '/setup.zip', 20)"),
        (
            "/click",
            "setTimeout(() => { const a = document.createElement('a'); a.href = '/setup.zip'; a.click() }, 20)",
        ),
        (
            "/download",
            "{ const a = document.createElement('a'); a.href = '/setup.zip'; a.download = 'x'; a.click() }",
        ),
        ("/attachment", "setTimeout(() => location = '/page.html', 20)"),
        (
            "/frame",
            "{ const f = document.createElement('iframe'); f.src = '/setup.zip'; document.body.append(f) }",
        ),
        (
            "/blob",
            "setTimeout(() => location = URL.createObjectURL(new Blob(['PK'], { type: 'application/zip' })), 20)",
        ),
        ("/nothing", "setTimeout(() => location = '/no-content', 20)"),
        ("/large", "setTimeout(() => location = '/large.zip', 20)"),
    ];
    let thanks = format!("<h1>Thanks</h1><p>{}</p>", "Your download begins. ".repeat(20));
    let site = Site::new(move |path| match path.as_str() {
        "/setup.zip" => reply(200, &[("content-type", "application/zip")], vec![b'P'; 4000]),
        "/large.zip" => {
            reply(200, &[("content-type", "application/octet-stream")], vec![b'P'; 200_000])
        }
        "/page.html" => {
            let headers = [
                ("content-type", "text/html"),
                ("content-disposition", "attachment; filename=a.html"),
            ];
            reply(200, &headers, "<p>not this</p>")
        }
        "/no-content" => reply(204, &[], ""),
        "/moved" => reply(302, &[("location", "/setup.zip")], ""),
        "/refresh" => html(format!("<meta http-equiv=refresh content='0;url=/setup.zip'>{thanks}")),
        path => match WAYS.iter().find(|(way, _)| *way == path) {
            Some((_, script)) => html(format!("{thanks}<script>{script}</script>")),
            None => reply(404, &[], ""),
        },
    })
    .await;
    let Some(browser) = browser() else { return };
    bounded(&browser, async {
        let limits = Limits { max_body: 100_000, ..seconds(60) };
        for path in WAYS.iter().map(|(path, _)| *path).chain(["/refresh"]) {
            let response = get(&browser, &site.url(path), &limits)
                .await
                .unwrap_or_else(|why| panic!("{path}: {why}"));
            assert_eq!((response.status, response.final_url.path()), (200, path));
            assert!(text(&response).contains("<h1>Thanks</h1>"), "{path}: {}", text(&response));
        }
        // What is a file from the first on is delivered.
        for path in ["/setup.zip", "/moved"] {
            let response = get(&browser, &site.url(path), &limits).await.unwrap();
            assert_eq!(
                (response.final_url.path(), response.body.len()),
                ("/setup.zip", 4000),
                "{path}"
            );
        }
        assert_eq!(
            text(&get(&browser, &site.url("/page.html"), &limits).await.unwrap()),
            "<p>not this</p>"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_end_a_fetch_with_their_own_error() {
    let endless = || {
        let chunks = futures_util::stream::iter(std::iter::repeat_with(|| {
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[b'x'; 10_000])))
        }));
        BodyExt::boxed(StreamBody::new(chunks.then(|frame| async {
            tokio::task::yield_now().await;
            frame
        })))
    };
    let typed = move |kind: &str| {
        hyper::Response::builder().header("content-type", kind).body(endless()).unwrap()
    };
    let site = Site::new(move |path| match path.as_str() {
        "/endless.html" => typed("text/html"),
        "/endless.bin" => typed("application/octet-stream"),
        "/long.html" => html(vec![b'x'; 200_000]),
        "/long.bin" => reply(200, &[("content-type", "application/pdf")], vec![b'x'; 200_000]),
        "/grows" => html("<p id=x></p><script>x.textContent = 'x'.repeat(200_000)</script>"),
        "/head" => reply(
            200,
            &[("content-type", "text/html"), ("x-long", &"x".repeat(300_000))],
            "<p>page</p>",
        ),
        "/loop" => reply(302, &[("location", "/loop2")], ""),
        "/loop2" => reply(302, &[("location", "/loop")], ""),
        "/reload" => html("<script>location.reload()</script>"),
        "/four" => reply(302, &[("location", "/three")], ""),
        "/three" => reply(302, &[("location", "/two")], ""),
        "/two" => reply(302, &[("location", "/one")], ""),
        "/one" => reply(302, &[("location", "/")], ""),
        "/scheme" => reply(302, &[("location", "file:///etc/passwd")], ""),
        _ => html("<p>home</p>"),
    })
    .await;
    let Some(browser) = browser() else { return };
    bounded(&browser, async {
        let limits = Limits { max_body: 100_000, max_redirects: 3, ..seconds(30) };
        for (path, kind) in [
            ("/endless.html", ErrorKind::TooLarge),
            ("/endless.bin", ErrorKind::TooLarge),
            ("/long.html", ErrorKind::TooLarge),
            ("/long.bin", ErrorKind::TooLarge),
            ("/grows", ErrorKind::TooLarge),
            ("/head", ErrorKind::TooLarge),
            ("/loop", ErrorKind::RedirectLoop),
            ("/reload", ErrorKind::RedirectLoop),
            ("/four", ErrorKind::RedirectLoop),
            ("/scheme", ErrorKind::RedirectLoop),
            ("/slow/60000", ErrorKind::Timeout),
        ] {
            let limits = Limits {
                deadline: Duration::from_secs(if path == "/slow/60000" { 2 } else { 30 }),
                ..limits.clone()
            };
            let error =
                get(&browser, &site.url(path), &limits).await.map(|r| r.status).unwrap_err();
            assert_eq!(error.kind, kind, "{path}: {error}");
        }
        assert_eq!(
            get(&browser, &site.url("/three"), &limits).await.unwrap().final_url,
            site.url("/")
        );
        // The tabs still work.
        assert!(text(&get(&browser, &site.url("/"), &seconds(30)).await.unwrap()).contains("home"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_addresses_are_never_dialled() {
    // 127.0.1.x is loopback too, but outside the allowed network.
    let shut = Site::on("127.0.1.7", |_| html("<p>inside</p>")).await;
    let secret = shut.url("/secret");
    let ws = format!("ws://{}/ws", shut.address);
    let udp = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let stun = udp.local_addr().unwrap();
    let page = format!(
        "<p>outside</p><img src='{secret}'><iframe src='{secret}'></iframe><link rel=stylesheet href='{secret}'>\
         <link rel=preconnect href='{secret}'><link rel=dns-prefetch href='{secret}'><script>\
         fetch('{secret}', {{mode: 'no-cors'}}).catch(() => 0); new WebSocket('{ws}'); navigator.sendBeacon('{secret}', 'x'); \
         new EventSource('{secret}'); new Worker(URL.createObjectURL(new Blob([`fetch('{secret}')`]))); \
         const rtc = new RTCPeerConnection({{iceServers: [{{urls: 'stun:{stun}'}}]}}); rtc.createDataChannel('x'); \
         rtc.createOffer().then(o => rtc.setLocalDescription(o)); window.open('{secret}');</script>"
    );
    let (to, js) = (secret.to_string(), format!("<script>location = '{secret}'</script>"));
    let site = Site::new(move |path| match path.as_str() {
        "/page" => html(page.clone()),
        "/redirect" => reply(302, &[("location", &to)], ""),
        "/js" => html(js.clone()),
        "/meta" => html(format!("<meta http-equiv=refresh content='0;url={to}'>")),
        _ => reply(404, &[], ""),
    })
    .await;
    let Some(browser) = browser() else { return };
    bounded(&browser, async {
        let response = get(&browser, &site.url("/page"), &seconds(30)).await.unwrap();
        assert!(text(&response).contains("<p>outside</p>"));
        for path in ["/redirect", "/js", "/meta"] {
            let error = get(&browser, &site.url(path), &seconds(20)).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::RefusedAddress, "{path}: {error}");
            assert!(error.message.contains("127.0.1.7"), "{error}");
        }
        for url in [
            secret.clone(),
            Url::parse(&format!("https://{}/", shut.address)).unwrap(),
            Url::parse("http://169.254.169.254/latest/meta-data").unwrap(),
            Url::parse("http://[::1]/").unwrap(),
            Url::parse(&format!("http://inside.test:{}/", shut.address.port())).unwrap(),
            Url::parse(&format!("https://inside.test:{}/", shut.address.port())).unwrap(),
        ] {
            let error = get(&browser, &url, &seconds(20)).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::RefusedAddress, "{url}: {error}");
        }
        let by_name =
            Url::parse(&format!("http://outside.test:{}/nowhere", site.address.port())).unwrap();
        assert_eq!(
            get(&browser, &by_name, &seconds(20)).await.unwrap().status,
            404,
            "another name is allowed"
        );
        assert_eq!(shut.connections.load(Ordering::SeqCst), 0, "a refused address was dialled");
        let mut buffer = [0; 1500];
        let datagram =
            tokio::time::timeout(Duration::from_millis(300), udp.recv_from(&mut buffer)).await;
        assert!(datagram.is_err(), "WebRTC bypassed the proxy");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_navigations_have_their_own_error_kinds() {
    let broken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let broken_address = broken.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = broken.accept().await {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let mut head = vec![0; 4096];
            let read = stream.read(&mut head).await.unwrap_or(0);
            let head = String::from_utf8_lossy(&head[..read]).into_owned();
            if head.contains("/cut.html") {
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 1000\r\n\r\n<p>half")
                    .await;
            } else if head.contains("/cut.bin") {
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: 1000\r\n\r\nhalf")
                    .await;
            }
        }
    });
    let no_tls = Site::new(|_| html("plain")).await;
    let self_signed = self_signed_server().await;
    let refusing = RefusingPort::on(std::net::Ipv4Addr::LOCALHOST).unwrap();
    let unused = refusing.address();
    let Some(browser) = browser() else { return };
    bounded(&browser, async {
        for (url, kind) in [
            (format!("http://{unused}/"), ErrorKind::NetworkError),
            (format!("https://{unused}/"), ErrorKind::NetworkError),
            (format!("http://{broken_address}/"), ErrorKind::NetworkError),
            (format!("https://{broken_address}/"), ErrorKind::NetworkError),
            (format!("https://{}/", no_tls.address), ErrorKind::TlsError),
            (format!("https://{self_signed}/"), ErrorKind::TlsError),
            ("http://no-such-host.invalid/".to_owned(), ErrorKind::DnsError),
            ("https://no-such-host.invalid/".to_owned(), ErrorKind::DnsError),
            ("ftp://127.0.0.1/".to_owned(), ErrorKind::InvalidUrl),
            ("file:///etc/passwd".to_owned(), ErrorKind::InvalidUrl),
            ("data:text/html,x".to_owned(), ErrorKind::InvalidUrl),
            // Chromium refuses this port itself: another fetcher may do better.
            ("http://127.0.0.1:25/".to_owned(), ErrorKind::NetworkError),
        ] {
            let error = get(&browser, &Url::parse(&url).unwrap(), &seconds(20))
                .await
                .map(|r| text(&r))
                .unwrap_err();
            println!("{url}: {error}");
            assert_eq!(error.kind, kind, "{url}: {error}");
            assert_eq!(error.unavailable, url.ends_with(":25/"), "{url}: {error}");
        }
        for path in ["cut.html", "cut.bin"] {
            let url = Url::parse(&format!("http://{broken_address}/{path}")).unwrap();
            let response = get(&browser, &url, &seconds(20)).await.unwrap();
            assert!(response.truncated, "{path}");
            // Chromium makes no document from such a short beginning.
            assert!(path == "cut.html" || text(&response) == "half", "{path}");
        }
    })
    .await;
}

/// Each rendered page of a site requested all of its scripts and styles again.
#[tokio::test(flavor = "multi_thread")]
async fn pages_of_one_origin_share_scripts_and_styles_and_nothing_else() {
    let site = Site::new(|path| match path.as_str() {
        "/style.css" => reply(200, &[("content-type", "text/css"), ("cache-control", "max-age=3600")], "p { color: red }"),
        "/script.js" => reply(
            200,
            &[("content-type", "text/javascript"), ("cache-control", "max-age=3600")],
            "document.querySelector('p').textContent = `[${document.cookie}] [${localStorage.x}] [${sessionStorage.x}]`;
             localStorage.x = sessionStorage.x = 1; document.cookie = 'by=script; max-age=3600'",
        ),
        _ => reply(
            200,
            &[("content-type", "text/html"), ("set-cookie", "who=me; httponly; max-age=3600"), ("cache-control", "max-age=3600")],
            "<link rel=stylesheet href=/style.css><p></p><script src=/script.js></script>",
        ),
    })
    .await;
    let Some(browser) = browser() else { return };
    bounded(&browser, async {
        let mut counts = Vec::new();
        for path in ["/a", "/b", "/c", "/a"] {
            let page = get(&browser, &site.url(path), &seconds(20)).await.unwrap();
            assert!(
                text(&page).contains("<p>[] [undefined] [undefined]</p>"),
                "{path}: {}",
                text(&page)
            );
            counts.push(page.requests.unwrap());
        }
        assert!(
            counts[1] + 2 <= counts[0] && counts[2] == counts[1] && counts[3] == counts[0],
            "{counts:?}"
        );
    })
    .await;
    let documents = |(path, _): &&SeenRequest| path.len() == 2;
    let requests = site.requests.lock().unwrap().clone();
    assert_eq!(
        requests.iter().filter(documents).count(),
        4,
        "each document is requested, the same one too"
    );
    assert_eq!(requests.len(), 4 + 2 + 2, "{requests:?}");
    assert!(
        requests.iter().filter(documents).all(|(_, headers)| !headers.contains_key("cookie")),
        "{requests:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stealthy_browser_shares_no_cache() {
    let site = Site::new(|path| match path.as_str() {
        "/style.css" => reply(
            200,
            &[("content-type", "text/css"), ("cache-control", "max-age=3600")],
            "p { color: red }",
        ),
        _ => html("<link rel=stylesheet href=/style.css><p>text</p>"),
    })
    .await;
    let Some(browser) = browser_with(BrowserOptions::stealth()) else { return };
    bounded(&browser, async {
        for path in ["/a", "/b"] {
            get(&browser, &site.url(path), &seconds(20)).await.unwrap();
        }
    })
    .await;
    assert_eq!(site.requests_of("/style.css"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn fetches_share_nothing_and_run_concurrently() {
    let site = Site::new(|path| match path.as_str() {
        "/set" => reply(
            200,
            &[("content-type", "text/html"), ("set-cookie", "who=me"), ("cache-control", "max-age=3600")],
            "<script>localStorage.x = 1; document.title = 'set'</script>",
        ),
        "/read" => {
            html("<p></p><script>document.querySelector('p').textContent = document.cookie + localStorage.x</script>")
        }
        _ => html("<p></p><script>setTimeout(() => document.querySelector('p').textContent = 'done', 200)</script>"),
    })
    .await;
    let Some(browser) = browser() else { return };
    bounded(&browser, async {
        get(&browser, &site.url("/set"), &seconds(20)).await.unwrap();
        let second = get(&browser, &site.url("/set"), &seconds(20)).await.unwrap();
        assert_eq!(header(&second.headers, "set-cookie"), Some("who=me"));
        assert_eq!(site.requests_of("/set"), 2, "another fetch's cache is not used");
        let read = get(&browser, &site.url("/read"), &seconds(20)).await.unwrap();
        assert!(text(&read).contains("<p>undefined</p>"), "{}", text(&read));
        let with_cookie =
            site.requests.lock().unwrap().iter().filter(|(_, h)| h.contains_key("cookie")).count();
        assert_eq!(with_cookie, 0);

        let (browser, limits) = (&browser, &seconds(30));
        let urls: Vec<Url> = (0..8).map(|n| site.url(&format!("/page{n}"))).collect();
        let fetches =
            urls.iter().map(|url| async move { text(&get(browser, url, limits).await.unwrap()) });
        for page in futures_util::future::join_all(fetches).await {
            assert!(page.contains("<p>done</p>"), "{page}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_in_another_encoding_is_returned_in_utf8_with_its_charset() {
    let site = Site::new(|path| match path.as_str() {
        "/header" => reply(
            200,
            &[("content-type", "text/html; charset=windows-1251")],
            &b"<p>\xcf\xf0\xe8</p>"[..],
        ),
        _ => reply(
            200,
            &[("content-type", "text/html")],
            &b"<meta charset=windows-1251><p>\xcf\xf0\xe8</p>"[..],
        ),
    })
    .await;
    let Some(browser) = browser() else { return };
    bounded(&browser, async {
        for path in ["/header", "/meta"] {
            let response = get(&browser, &site.url(path), &seconds(20)).await.unwrap();
            assert!(
                text(&response).starts_with('\u{feff}') && text(&response).contains("<p>При</p>")
            );
            assert_eq!(header(&response.headers, "content-type"), Some("text/html; charset=utf-8"));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_longer_than_a_slice_are_complete() {
    // Clobbered properties, a lone surrogate, pairs across slice boundaries, and several megabytes.
    let site = Site::new(|_| {
        html(
            "<!DOCTYPE html PUBLIC \"-//W3C//DTD HTML 4.01//EN\" \"http://www.w3.org/TR/html4/strict.dtd\"><body>\
             <form name=documentElement></form><form name=doctype></form><p id=x></p><script>\
             Document.prototype.evaluate = null; String.prototype.slice = () => 'forged'; \
             x.textContent = 'a' + '🦊'.repeat(1_000_000) + '\\ud800' + 'end'</script>",
        )
    })
    .await;
    let Some(browser) = browser() else { return };
    bounded(&browser, async {
        let limits = Limits { max_in_memory: 1 << 20, ..seconds(40) };
        let response = get(&browser, &site.url("/"), &limits).await.unwrap();
        let whole = String::from_utf8(whole(&response)).unwrap();
        assert_eq!(whole.len() as u64, response.body.len());
        assert!(whole.starts_with(
            "<!DOCTYPE html PUBLIC \"-//W3C//DTD HTML 4.01//EN\" \"http://www.w3.org/TR/html4/strict.dtd\"><html>"
        ));
        // One more is in the script that made them.
        assert_eq!(whole.matches('🦊').count(), 1_000_001);
        assert!(whole.contains("\u{fffd}end") && whole.ends_with("</html>"));
    })
    .await;
}

/// Returns whether a process runs, rather than being a zombie.
fn lives(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn kill(pid: u32) {
    let status =
        std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap();
    assert!(status.success());
}

/// Returns the descendants of `pid` whose command line contains `part`.
pub(super) fn descendants(pid: u32, part: &str) -> Vec<u32> {
    let mut parents = HashMap::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(child) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else {
            continue;
        };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let after = stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned()).unwrap_or_default();
        if let Some(parent) = after.split(' ').nth(1).and_then(|p| p.parse::<u32>().ok()) {
            parents.insert(child, parent);
        }
    }
    let descends = |mut child: u32| {
        for _ in 0..20 {
            match parents.get(&child) {
                Some(&parent) if parent == pid => return true,
                Some(&parent) => child = parent,
                None => return false,
            }
        }
        false
    };
    let has = |child: u32| {
        std::fs::read(format!("/proc/{child}/cmdline"))
            .is_ok_and(|c| String::from_utf8_lossy(&c).contains(part))
    };
    parents.keys().copied().filter(|&child| descends(child) && has(child)).collect()
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_ends_one_fetch_and_the_next_one_starts_a_new_browser() {
    let site = Site::new(|_| html("<p>here</p>")).await;
    let Some(browser) = browser() else { return };
    bounded(&browser, async {
        assert_eq!(browser.pid().await, None, "no process before the first fetch");
        get(&browser, &site.url("/"), &seconds(30)).await.unwrap();
        let first = browser.pid().await.unwrap();

        // The whole browser, in the middle of a fetch.
        let limits = seconds(60);
        let slow = site.url("/slow/50000");
        let fetch = get(&browser, &slow, &limits);
        let killer = async {
            until("no request arrived", || site.requests_of("/slow/50000") == 1).await;
            kill(first);
        };
        let (result, ()) = tokio::join!(fetch, killer);
        let error = result.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NetworkError);
        assert!(
            error.message.contains("Chromium ended") && error.message.contains("signal: 9"),
            "{error}"
        );
        assert!(text(&get(&browser, &site.url("/"), &seconds(30)).await.unwrap()).contains("here"));
        let second = browser.pid().await.unwrap();
        assert_ne!(first, second);

        // Its tabs only.
        let fetch = get(&browser, &slow, &limits);
        let killer = async {
            until("no request arrived", || site.requests_of("/slow/50000") == 2).await;
            let tabs = descendants(second, "--type=renderer");
            assert!(!tabs.is_empty());
            // No window has pages for its pop-ups: nobody sees them, and they take more work than a
            // small page.
            assert_eq!(descendants(second, "--top-chrome-webui"), [0; 0]);
            tabs.into_iter().for_each(kill);
        };
        let (result, ()) = tokio::join!(fetch, killer);
        let error = result.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NetworkError, "{error}");
        assert!(text(&get(&browser, &site.url("/"), &seconds(30)).await.unwrap()).contains("here"));
        assert_eq!(browser.pid().await, Some(second), "a crashed tab costs no browser");

        // A browser that hangs completely, before a tab is open.
        let stopped = std::process::Command::new("kill")
            .args(["-STOP", &second.to_string()])
            .status()
            .unwrap();
        assert!(stopped.success());
        let error = get(&browser, &site.url("/"), &seconds(1)).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Timeout);
        until("the hung browser still runs", || !lives(second)).await;
        assert!(text(&get(&browser, &site.url("/"), &seconds(30)).await.unwrap()).contains("here"));
    })
    .await;
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_behind_after_close_drop_or_a_cancelled_fetch() {
    let site = Site::new(|_| html("<p>here</p>")).await;
    let profile_of = |pid: u32| {
        let cmdline = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        let cmdline = String::from_utf8_lossy(&cmdline).into_owned();
        let flag = cmdline
            .split(['\0', ' '])
            .find_map(|arg| arg.strip_prefix("--user-data-dir="))
            .unwrap()
            .to_owned();
        std::path::PathBuf::from(flag)
    };

    let Some(closed) = browser() else { return };
    get(&closed, &site.url("/"), &seconds(30)).await.unwrap();
    let pid = closed.pid().await.unwrap();
    let (profile, family) = (profile_of(pid), descendants(pid, ""));
    assert!(profile.is_dir() && family.len() > 1);
    // A dropped fetch leaves no tab.
    let url = site.url("/slow/60000");
    let limits = seconds(60);
    let is_requested =
        || site.requests.lock().unwrap().iter().any(|request| request.0 == "/slow/60000");
    tokio::select! {
        response = closed.fetch(Request::new(&url, &limits)) => panic!("{response:?}"),
        () = until("the page is requested", is_requested) => {}
    }
    closed.close().await;
    assert!(!lives(pid) && !profile.exists());
    until("a helper process is left", || !family.iter().any(|&pid| lives(pid))).await;
    assert_eq!(closed.pid().await, None);
    let error = get(&closed, &site.url("/"), &seconds(30)).await.unwrap_err();
    assert!(error.message.contains("closed"), "{error}");

    let Some(dropped) = browser() else { return };
    get(&dropped, &site.url("/"), &seconds(30)).await.unwrap();
    let pid = dropped.pid().await.unwrap();
    let (profile, family) = (profile_of(pid), descendants(pid, ""));
    drop(dropped);
    until("a process is left", || !lives(pid) && !family.iter().any(|&pid| lives(pid))).await;
    until("the profile is left", || !profile.exists()).await;
}

/// A helper of the next test, which runs it in a separate process and kills it.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn helper_that_runs_a_browser_and_waits() {
    if std::env::var_os("FETCHWISE_TEST_HELPER").is_some() {
        let Some(browser) = browser() else { return };
        browser.start().await.unwrap();
        println!("pid={}", browser.pid().await.unwrap());
        // It ends by itself, in case the test that would kill it has failed.
        tokio::time::sleep(Duration::from_secs(600)).await;
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn no_browser_outlives_a_killed_process() {
    use tokio::io::{AsyncBufReadExt, BufReader};
    if chromium().is_none() {
        return;
    }
    let mut helper = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["browser_fetcher::helper_that_runs_a_browser_and_waits", "--exact", "--nocapture"])
        .env("FETCHWISE_TEST_HELPER", "1")
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(helper.stdout.take().unwrap()).lines();
    let pid = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if let Some((_, pid)) = line.split_once("pid=") {
                return pid.trim().parse::<u32>().unwrap();
            }
        }
        panic!("the helper ended without a browser");
    }
    .await;
    assert!(lives(pid));
    helper.kill().await.unwrap();
    until("the browser outlived the process that started it", || !lives(pid)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stealth_browser_does_not_reveal_that_it_is_automated() {
    let site = Site::new(|_| {
        html(
            "<p></p><script>document.querySelector('p').textContent = navigator.webdriver</script>",
        )
    })
    .await;
    let Some(browser) = browser_with(BrowserOptions::stealth()) else { return };
    bounded(&browser, async {
        assert_eq!(browser.name(), "playwright_stealth");
        let response = get(&browser, &site.url("/"), &seconds(30)).await.unwrap();
        assert!(text(&response).contains("<p>false</p>"), "{}", text(&response));
        let requests = site.requests.lock().unwrap();
        let user_agent = &requests[0].1["user-agent"];
        assert!(user_agent.contains("Chrome/") && !user_agent.contains("Headless"), "{user_agent}");
    })
    .await;
}

#[tokio::test]
async fn a_program_that_is_not_a_browser_is_a_clear_error() {
    let url = Url::parse("http://127.0.0.1:9/").unwrap();
    for (program, part) in
        [("/nonexistent/chromium", "/nonexistent/chromium"), ("/bin/false", "exit status: 1")]
    {
        let browser = BrowserFetcher::new(program.into(), BrowserOptions::default(), {
            Dialer::new(AddressGuard::new([parse_network("127.0.0.0/24").unwrap()], false))
        })
        .unwrap();
        let error = get(&browser, &url, &seconds(20)).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NetworkError);
        assert!(error.message.contains(part), "{error}");
    }
}
