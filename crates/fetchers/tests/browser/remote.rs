//! The browser fetcher with a running Chromium, by its DevTools socket: it delivers pages, the
//! guard applies, and it is left running.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::fetch::address_guard::AddressGuard;
use fetchwise::fetch::browser::{BrowserFetcher, BrowserOptions};
use fetchwise::fetch::dial::Dialer;
use fetchwise::fetch::{FetchError, Fetcher, Limits, Request, Response};
use fetchwise_testsite::origin::{Origin, Site};

use crate::chromium;

const SITE: &str = "127.0.0.61";

/// A browser of another program, and its socket.
pub(crate) struct ForeignBrowser {
    child: Child,
    pub(crate) socket: String,
    _profile: tempfile::TempDir,
}

impl ForeignBrowser {
    pub(crate) fn start(program: &Path, further: &[&str]) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let mut child = Command::new(program)
            .args([
                "--headless=new",
                "--no-sandbox",
                "--remote-debugging-port=0",
                "--no-first-run",
                "--disable-gpu",
            ])
            .args(further)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let socket = lines
            .find_map(|line| line.ok()?.strip_prefix("DevTools listening on ").map(str::to_owned))
            .expect("Chromium prints its socket");
        // Its further output must be read, so that it never blocks.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, socket, _profile: profile }
    }
}

impl Drop for ForeignBrowser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn fetcher(socket: &str) -> BrowserFetcher {
    let guard = AddressGuard::new([format!("{SITE}/32").parse().unwrap()], false);
    let options = BrowserOptions { name: "remote".to_owned(), ..BrowserOptions::default() };
    BrowserFetcher::remote(socket, options, Dialer::new(guard)).unwrap()
}

async fn get(fetcher: &BrowserFetcher, url: &str) -> Result<Response, FetchError> {
    let limits = Limits { deadline: Duration::from_secs(25), ..Limits::default() };
    fetcher.fetch(Request::new(&url.parse().unwrap(), &limits)).await
}

#[tokio::test]
async fn a_running_browser_renders_pages_under_the_guard_and_is_left_running() {
    let Some(program) = chromium() else { return };
    let origin = Origin::start([(SITE, Site::ReactShell)]).unwrap();
    let mut browser = ForeignBrowser::start(&program, &[]);
    for _ in 0..2 {
        let one = fetcher(&browser.socket);
        let response = get(&one, &origin.url(SITE, "/a")).await.unwrap();
        let text = String::from_utf8_lossy(response.body.head()).into_owned();
        assert!(response.status == 200 && text.contains("<article"), "{text}");
        let error = get(&one, "http://127.0.0.1:9/").await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::RefusedAddress, "{error}");
        assert_eq!(one.pid().await, None);
        one.close().await;
        assert!(browser.child.try_wait().unwrap().is_none(), "the browser is left running");
    }
}

#[tokio::test]
async fn a_missing_browser_is_unavailable() {
    let error = get(&fetcher("ws://127.0.0.1:9/devtools/browser/x"), "http://127.0.0.61:9/")
        .await
        .unwrap_err();
    assert!(error.unavailable, "{error:?}");
    for address in ["http://127.0.0.1:9/", "nonsense", "ws://"] {
        let options = BrowserOptions::default();
        assert!(
            BrowserFetcher::remote(address, options, Dialer::new(AddressGuard::default())).is_err(),
            "{address}"
        );
    }
}
