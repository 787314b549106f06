//! Helpers: the browser to test with, short requests, a resolver with a fixed table, and tests that
//! run again in their own process.

use std::future::Future;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fetchwise::fetch::address_guard::{AddressGuard, parse_network};
use fetchwise::fetch::browser::BrowserFetcher;
use fetchwise::fetch::dial::{Dialer, LookupFuture, Resolve};
use fetchwise::fetch::http::{HttpFetcher, HttpFetcherBuilder};
use fetchwise::fetch::{FetchError, Fetcher, Limits, Request, Response};
use fetchwise_testsite::requirements::{NO_CHROMIUM, required};
use url::Url;

/// Returns the Chromium to test with. Without one, reports the test as skipped.
pub(crate) fn chromium() -> Option<PathBuf> {
    required(BrowserFetcher::find(None), NO_CHROMIUM)
}

/// Ends a test that hangs.
pub(crate) async fn bounded<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(240), test).await.expect("the test hangs")
}

/// Returns a guard that allows 127.0.0.1 and no other local address.
pub(crate) fn guard() -> AddressGuard {
    AddressGuard::new([parse_network("127.0.0.1").unwrap()], false)
}

pub(crate) fn builder() -> HttpFetcherBuilder {
    HttpFetcher::builder().guard(guard())
}

pub(crate) fn dialer() -> Dialer {
    Dialer::new(guard())
}

pub(crate) fn within(seconds: u64) -> Limits {
    Limits { deadline: Duration::from_secs(seconds), ..Limits::default() }
}

pub(crate) async fn get(
    fetcher: &dyn Fetcher,
    url: &Url,
    limits: &Limits,
) -> Result<Response, FetchError> {
    fetcher.fetch(Request::new(url, limits)).await
}

pub(crate) fn body(response: &Response) -> Vec<u8> {
    let mut bytes = Vec::new();
    response.body.reader().read_to_end(&mut bytes).unwrap();
    bytes
}

/// Answers the n-th lookup of any name with the n-th of these addresses, and then with the last.
pub(crate) struct Rebinding {
    answers: Vec<IpAddr>,
    asked: Mutex<usize>,
}

impl Rebinding {
    pub(crate) fn new(answers: &[&str]) -> Arc<Self> {
        let answers = answers.iter().map(|ip| ip.parse().unwrap()).collect();
        Arc::new(Self { answers, asked: Mutex::new(0) })
    }

    pub(crate) fn asked(&self) -> usize {
        *self.asked.lock().unwrap()
    }
}

impl Resolve for Rebinding {
    fn lookup<'a>(&'a self, _host: &'a str) -> LookupFuture<'a> {
        let mut asked = self.asked.lock().unwrap();
        let answer = self.answers[(*asked).min(self.answers.len() - 1)];
        *asked += 1;
        Box::pin(async move { Ok::<_, io::Error>(vec![answer]) })
    }
}

/// Returns the memory that this process uses now, in bytes.
pub(crate) fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Tells a test that it runs in its own process.
const ALONE: &str = "FETCHWISE_TEST_ALONE";

/// Returns whether this is the process of [`alone`].
pub(crate) fn is_alone() -> bool {
    std::env::var_os(ALONE).is_some()
}

/// Runs the test `name` in its own process, after the shell has executed `setup` (limits, a mask,
/// variables).
pub(crate) fn alone(name: &str, setup: &str) {
    let Output { status, stdout, stderr } = Command::new("/bin/sh")
        .args(["-c", &format!("{setup}\nexec \"$@\""), "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads", "1"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success() && stdout.contains("1 passed"), "{status}\n{stdout}\n{stderr}");
}
