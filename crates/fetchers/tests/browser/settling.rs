//! When a page counts as settled, and a renderer that gets no processor time, with the real
//! Chromium.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::detect::Detector;
use fetchwise::fetch::address_guard::AddressGuard;
use fetchwise::fetch::browser::{BrowserFetcher, BrowserOptions};
use fetchwise::fetch::dial::Dialer;
use fetchwise::fetch::{Fetcher, PageJudge, Request};
use fetchwise::pipeline::{DetectorJudge, Link, Pipeline};
use fetchwise::registry::FetcherSpec;
use fetchwise::response::Page;
use fetchwise::selector::{SelectContext, Selector, VisitSettings};
use fetchwise_testsite::poll::until;
use futures_util::StreamExt as _;
use tokio::net::TcpListener;

use crate::browser_fetcher::{
    Site, bounded, browser, browser_with, descendants, get, html, reply, seconds, text,
};
use crate::chromium;

#[tokio::test(flavor = "multi_thread")]
async fn a_page_whose_scripts_come_or_run_late_is_waited_for() {
    let site = Site::new(|path| match path.as_str() {
        // Two and a half seconds after the load event, which is longer than any wait for a quiet
        // network.
        "/loads-late" => html(
            "<p id=x>loading</p><script>addEventListener('load', () => setTimeout(() => { \
             const script = document.createElement('script'); script.src = '/slow/2500'; document.head.append(script) \
             }, 100))</script>",
        ),
        "/slow/2500" => {
            reply(200, &[("content-type", "text/javascript")], "document.getElementById('x').textContent = 'arrived'")
        }
        // Its network is quiet all the time: only the main thread shows that it is not done.
        "/runs-late" => html(
            "<p id=x>loading</p><script>const block = () => { const end = performance.now() + 900; \
             while (performance.now() < end); }; addEventListener('load', () => setTimeout(() => { block(); \
             setTimeout(() => { block(); setTimeout(() => { block(); x.textContent = 'arrived' }, 0) }, 0) }, 100)) \
             </script>",
        ),
        _ => reply(404, &[], ""),
    })
    .await;
    let Some(browser) = browser() else { return };
    bounded(&browser, async {
        for path in ["/loads-late", "/runs-late"] {
            let page = text(&get(&browser, &site.url(path), &seconds(40)).await.unwrap());
            assert!(page.contains("<p id=\"x\">arrived</p>"), "{path}: {page}");
        }
    })
    .await;
}

/// A page that opens a socket to `/ready` when it has loaded and its network is quiet: no request
/// of a page is a socket.
const READY: &str = "<title>The harbour</title><h1>The harbour</h1><p>here</p>\
    <p>The ferry leaves the harbour at seven in the morning and comes back at noon. It carries mail, bread and people \
    who work on the island. In winter it leaves an hour later, because the ice has to be broken first.</p>\
    <p>The harbour was built in three years, by men from the villages around it. Most of the stones came from the hill \
    behind the church, and the rest by ship. Its lamp was lit for the first time on a night of storm, and the keeper \
    wrote down each ship that came in.</p><script>addEventListener('load', () => setTimeout(() => \
    new WebSocket('ws://' + location.host + '/ready'), 100))</script>";

/// Returns options that give a test time to stop the renderer before the page is read.
fn patient() -> BrowserOptions {
    BrowserOptions {
        quiet: Duration::from_secs(2),
        max_settle: Duration::from_secs(6),
        ..BrowserOptions::default()
    }
}

/// Stops the renderers of a browser, and returns their ids.
#[cfg(target_os = "linux")]
async fn stop_renderers(browser: &BrowserFetcher) -> Vec<String> {
    let renderers = descendants(browser.pid().await.unwrap(), "--type=renderer");
    let renderers: Vec<String> = renderers.iter().map(u32::to_string).collect();
    assert!(
        std::process::Command::new("kill")
            .arg("-STOP")
            .args(&renderers)
            .status()
            .unwrap()
            .success()
    );
    renderers
}

/// Lets stopped renderers run again. The one of a closed tab has ended meanwhile.
#[cfg(target_os = "linux")]
fn resume(renderers: &[String]) {
    let _ = std::process::Command::new("kill").arg("-CONT").args(renderers).output().unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_renderer_without_processor_time_is_a_local_fault() {
    let site = Site::new(|_| html(READY)).await;
    let Some(browser) = browser_with(patient()) else { return };
    bounded(&browser, async {
        let (limits, url) = (seconds(60), site.url("/"));
        let stop = async {
            until("the page did not load", || site.requests_of("/ready") == 1).await;
            stop_renderers(&browser).await
        };
        let (result, renderers) = tokio::join!(get(&browser, &url, &limits), stop);
        resume(&renderers);
        let error = result.unwrap_err();
        assert_eq!((error.kind, error.local), (ErrorKind::LocalFault, true), "{error}");
        assert!(error.message.contains("no processor time"), "{error}");
        assert!(text(&get(&browser, &url, &limits).await.unwrap()).contains("<p>here</p>"));
    })
    .await;
}

/// A page that appends and then waits for a response, with its main thread, uses no processor time.
/// It counted as a local fault, which is tried again six times.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_keeps_itself_waiting_is_no_local_fault() {
    let site = Site::new(|path| match path.as_str() {
        "/" => html(
            "<p>here</p><script>const append = () => { document.body.append('more'); \
             const request = new XMLHttpRequest(); request.open('GET', '/slow/60000?' + Math.random(), false); \
             try { request.send() } catch {} setTimeout(append, 0) }; \
             addEventListener('load', () => setTimeout(append, 550))</script>",
        ),
        _ => html("<p>warm</p>"),
    })
    .await;
    let Some(browser) = browser() else { return };
    bounded(&browser, async {
        // The start of the browser is no part of what is tested.
        get(&browser, &site.url("/warm"), &seconds(40)).await.unwrap();
        let ended = get(&browser, &site.url("/"), &seconds(6)).await;
        let error = ended.map(|page| text(&page)).unwrap_err();
        assert_eq!((error.kind, error.local), (ErrorKind::Timeout, false), "{error}");
    })
    .await;
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_renderer_without_processor_time_is_no_failure_of_its_fetcher() {
    let site = Site::new(|_| html(READY)).await;
    let Some(program) = chromium() else { return };
    let guard = AddressGuard::new(["127.0.0.0/8".parse().unwrap()], false);
    let browser = Arc::new(BrowserFetcher::new(program, patient(), Dialer::new(guard)).unwrap());
    let visits = VisitSettings { deadline: Duration::from_secs(60), ..VisitSettings::default() };
    let selector = Selector::builder()
        .without_pace()
        .fetcher(FetcherSpec::by_name("playwright"))
        .visits(visits)
        .build()
        .unwrap();
    let selector = Arc::new(selector);
    let pipeline = Pipeline::builder(Arc::clone(&selector))
        .fetcher(Arc::clone(&browser) as _)
        .build()
        .unwrap();
    let link = Link::new(site.url("/").to_string());
    bounded(&browser, async {
        let stop = async {
            until("the page did not load", || site.requests_of("/ready") == 1).await;
            let renderers = stop_renderers(&browser).await;
            until("the page was not requested again", || site.requests_of("/") == 2).await;
            resume(&renderers);
        };
        let (report, ()) = tokio::join!(pipeline.fetch(&link), stop);
        assert!(report.success, "{report:?}");
        assert_eq!(report.requests, 1, "the fault is no attempt: {report:?}");
        let context = SelectContext::first_attempt(selector.now());
        let known = selector.explain(&site.url("/"), &context).unwrap();
        let known =
            known.candidates.iter().find(|candidate| candidate.fetcher == "playwright").unwrap();
        assert!(known.domain_attempts > 0.9 && known.domain_attempts < 1.1, "{known:?}");
    })
    .await;
}

/// Much text, and a script that shows it.
fn filling(when: &str) -> String {
    format!(
        "<!DOCTYPE html><title>App</title><div id=root></div><script>const fill = (text) => root.innerHTML = \
         '<main><h1>Rendered</h1><p>' + (text ?? 'There is a page of words to read here, and more of them. '.repeat(20)) \
         + '</p></main>';{when}</script>"
    )
}

/// Serves one WebSocket per connection, which sends `text` when `ready` says so.
async fn socket_server(
    text: &'static str,
    ready: impl Fn() -> bool + Clone + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let ready = ready.clone();
            tokio::spawn(async move {
                let mut socket = async_tungstenite::tokio::accept_async(stream).await.unwrap();
                until("the page did not load", ready).await;
                // Longer than the wait for a quiet network.
                tokio::time::sleep(Duration::from_millis(2_000)).await;
                for piece in text.split('|') {
                    socket.send(piece.to_owned().into()).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                while let Some(Ok(_)) = socket.next().await {}
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_with_nothing_to_read_yet_is_waited_for() {
    let asked = Arc::new(AtomicBool::new(false));
    let loaded = Arc::clone(&asked);
    let words = "first words of the page, which say in a sentence of some length what all of it is about, and |more of them, as \
        they come, so that nobody who has read so far takes the page for the mere frame of one |and the last ones";
    let socket = socket_server(words, move || loaded.load(Ordering::SeqCst)).await;
    let site = Site::new(move |path| match path.as_str() {
        "/timer" => html(filling("setTimeout(() => fill(), 1500)")),
        "/chain" => html(filling(
            "let n = 0; const step = () => ++n < 12 ? setTimeout(step, 150) : fill(); addEventListener('load', step)",
        )),
        "/events" => html(filling("new EventSource('/slow/1500').onmessage = (event) => fill(event.data.repeat(20))")),
        "/slow/1500" => reply(200, &[("content-type", "text/event-stream")], "data: Words of a stream. \n\n"),
        "/socket" => {
            asked.store(true, Ordering::SeqCst);
            html(filling(&format!(
                "let all = ''; new WebSocket('ws://{socket}/').onmessage = (event) => fill(all += event.data)"
            )))
        }
        "/frame-first" => html(format!(
            "<title>App</title><p>Skip to main content</p><h1>Glossary</h1><button>Stop</button><div id=root></div>\
             <script>new WebSocket('ws://{socket}/').onmessage = (event) => root.append(event.data)</script>"
        )),
        "/handler" => html(
            "<title>App</title><body onload=\"setTimeout(() => document.body.innerHTML = \
            '<p>' + 'Words of the handler. '.repeat(20), 1500)\">",
        ),
        _ => reply(404, &[], ""),
    })
    .await;
    let Some(browser) = browser() else { return };
    let detector = Detector::new();
    let judge = DetectorJudge(&detector);
    bounded(&browser, async {
        for judge in [None, Some(&judge as &dyn PageJudge)] {
            for (path, expected) in [
                ("/timer", "There is a page of words"),
                ("/chain", "There is a page of words"),
                ("/events", "Words of a stream."),
                ("/socket", "and the last ones"),
                // A few words had come before the rest, and were all that was read.
                ("/frame-first", "and the last ones"),
                ("/handler", "Words of the handler."),
            ] {
                let (url, limits) = (site.url(path), seconds(60));
                let request = Request { judge, ..Request::new(&url, &limits) };
                let page = text(&browser.fetch(request).await.unwrap());
                assert!(page.contains(expected), "{path} {judge:?}: {page}");
            }
        }
    })
    .await;
}

#[derive(Debug)]
struct NeverFinished;

impl PageJudge for NeverFinished {
    fn is_unfinished(&self, _: &Page<'_>) -> bool {
        true
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_wait_for_a_page_ends_at_its_limit_or_when_nothing_runs() {
    let site = Site::new(|path| match path.as_str() {
        "/still" => html("<title>Nothing</title><body><p></p></body>"),
        "/shell" => html("<title>App</title><div id=root></div><script>let app;</script>"),
        "/busy" => html(
            "<title>App</title><div id=root></div><script>setInterval(() => root.append('.'.repeat(40)), 50)</script>",
        ),
        _ => reply(404, &[], ""),
    })
    .await;
    let options =
        BrowserOptions { max_settle: Duration::from_secs(3), ..BrowserOptions::default() };
    let Some(browser) = browser_with(options) else { return };
    bounded(&browser, async {
        let (limits, judge) = (seconds(60), NeverFinished);
        for (path, waits) in [("/still", false), ("/shell", true), ("/busy", true)] {
            let url = site.url(path);
            let request = Request { judge: Some(&judge), ..Request::new(&url, &limits) };
            let response = browser.fetch(request).await.unwrap();
            assert_eq!(response.status, 200, "{path}");
            assert!(
                !waits || response.duration >= Duration::from_secs(3),
                "{path}: {:?}",
                response.duration
            );
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refresh_is_followed_where_its_page_has_nothing_to_read() {
    let words =
        format!("<title>There</title><p>{}</p>", "Words to read, line by line. ".repeat(20));
    let stays = format!("<meta http-equiv=refresh content='3;url=/there'>{words}<p>stays</p>");
    let site = Site::new(move |path| match path.as_str() {
        "/element" => html("<meta http-equiv=refresh content='1;url=/there'>"),
        "/header" => reply(200, &[("content-type", "text/html"), ("refresh", "1; url=/there")], ""),
        "/header/of/text" => reply(
            200,
            &[("content-type", "text/html"), ("refresh", "2; url=../../there")],
            "<p>Moved",
        ),
        "/base" => {
            html("<base href=/x/y/><meta http-equiv=refresh content='1;url=../../there'><p>Moved")
        }
        "/twice" => html("<meta http-equiv=refresh content='1;url=/element'>"),
        "/there" => html(words.clone()),
        "/stays" => html(stays.clone()),
        _ => reply(404, &[], ""),
    })
    .await;
    let Some(browser) = browser() else { return };
    let detector = Detector::new();
    let judge = DetectorJudge(&detector);
    bounded(&browser, async {
        for path in ["/element", "/header", "/header/of/text", "/base", "/twice"] {
            let (url, limits) = (site.url(path), seconds(60));
            let request = Request { judge: Some(&judge), ..Request::new(&url, &limits) };
            let response = browser.fetch(request).await.unwrap();
            assert_eq!(response.final_url.path(), "/there", "{path}: {}", text(&response));
            assert!(text(&response).contains("Words to read"), "{path}");
        }
        let (url, limits) = (site.url("/stays"), seconds(60));
        let request = Request { judge: Some(&judge), ..Request::new(&url, &limits) };
        let response = browser.fetch(request).await.unwrap();
        assert!(
            text(&response).contains("<p>stays</p>"),
            "a page to read is not left: {}",
            text(&response)
        );
    })
    .await;
}
