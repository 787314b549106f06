//! [`BrowserFetcher`]: a fetcher of pages as Chromium renders them, over the DevTools protocol.
//!
//! Owns: one Chromium, started at the first fetch and again after a crash, and its tabs. No cookie
//! or storage passes from one fetch to the next, and no document. Fetches of one origin may share
//! the scripts and styles in a cache ([`BrowserOptions::shares_cache`]).
//!
//! Invariants: the browser dials nothing itself. All its traffic goes through the filtering proxy,
//! which enforces the address guard. A signature goes out with the one request that it was made
//! for, and to no third party unless [`SignatureScope::All`] says so.
//!
//! Must not know: how a page is judged.

mod cdp;
mod context_pool;
mod discovery;
mod errors;
mod options;
mod page_load;
mod process;
mod protocol;
mod settle;
mod starvation;
mod tab;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, Semaphore, mpsc};
use url::{Host, Url};

pub use discovery::{BrowserMissing, ENVIRONMENT, NAMES};
pub use options::{BrowserOptions, BrowserSigning, OptionsError, SignatureScope, UserAgent};
pub use process::LaunchError;

use super::dial::Dialer;
use super::proxy::FilteringProxy;
use super::{FetchError, FetchFuture, Fetcher, LimitMet, Request, Response};
use crate::fetch::browser::page_load::{Failure, LoadTimeouts, PageLoad};
use cdp::{Cdp, Event};
use context_pool::ContextPool;
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::response::{Header, media_type};
use process::Process;
use protocol::{CloseBrowser, CloseTarget, GetVersion, SetDiscoverTargets, Version};
use tab::{Identity, LoadedPage, Tab};

/// A browser that does not respond for this long hangs.
const HUNG_AFTER: Duration = Duration::from_secs(5);

/// Maximum time until the connection to a dead browser ends.
const MAX_CLOSE_DELAY: Duration = Duration::from_secs(1);

/// A start that takes more than this fraction of the deadline leaves the page too little time.
const MAX_LAUNCH_FRACTION: u32 = 10;

/// The browser to use.
#[derive(Debug)]
enum BrowserSource {
    /// A program, which is started and ended.
    Program(PathBuf),
    /// A running browser, which is left running.
    Remote {
        /// Its DevTools socket.
        address: String,
        /// Whether it is on this machine, and so can use the filtering proxy, which listens on
        /// loopback.
        is_local: bool,
    },
}

/// A fetcher of pages with Chromium. See the [module](self).
///
/// * Chromium starts at the first fetch, and again after it died; the fetch during which it died
///   ends as `network_error`.
/// * A response other than HTML (PDF, JSON, an image, an attachment) is returned as the bytes that
///   the server sent. A page that starts a download stays the page.
/// * A page with nothing to read yet is waited for while something in it can run, for up to
///   [`BrowserOptions::max_settle`]: [`Request::judge`] says which pages these are.
/// * HTML is returned as the document's text after its scripts ran, in UTF-8. `Content-Type` is
///   changed to UTF-8 if the server declared another encoding, and a byte order mark overrides a
///   conflicting `<meta charset>`.
/// * Open shadow roots are in that text as `<template shadowrootmode="open">`; the content of
///   frames is not.
/// * Status, headers and final URL are the main document's. Requests of the page to refused
///   addresses are blocked, and the page is still returned.
///
/// Dropping it kills the browser; [`BrowserFetcher::close`] ends it cleanly. The sandbox is off
/// when running as root (Chromium refuses otherwise), and on for any other user.
pub struct BrowserFetcher {
    inner: Arc<Inner>,
    slots: Semaphore,
}

struct Inner {
    source: BrowserSource,
    options: BrowserOptions,
    dialer: Dialer,
    running: Mutex<Option<Arc<RunningBrowser>>>,
    closed: AtomicBool,
    /// The reason why the last start failed.
    not_started: std::sync::Mutex<Option<String>>,
}

/// A Chromium that was started, and may have died since.
struct RunningBrowser {
    cdp: Cdp,
    /// `None` for a browser that was already running.
    pid: Option<u32>,
    process: Mutex<Option<Process>>,
    proxy: FilteringProxy,
    identity: Identity,
    contexts: ContextPool,
}

impl BrowserFetcher {
    /// Returns the Chromium to run: `explicit` if given, else `FETCHWISE_CHROMIUM` or `CHROME`,
    /// else the first of [`NAMES`] in `PATH`, else the place where macOS keeps applications.
    ///
    /// # Errors
    /// [`BrowserMissing`], whose text says how to install one.
    pub fn find(explicit: Option<&Path>) -> Result<PathBuf, BrowserMissing> {
        discovery::find(explicit)
    }

    /// Returns a fetcher that runs `program` and lets it reach what `dialer` dials. Starts nothing
    /// yet.
    ///
    /// # Errors
    /// [`OptionsError`] if no page could be fetched with these options.
    pub fn new(
        program: PathBuf,
        options: BrowserOptions,
        dialer: Dialer,
    ) -> Result<Self, OptionsError> {
        Self::at(BrowserSource::Program(program), options, dialer)
    }

    /// Returns a fetcher that uses a running Chromium, by its DevTools socket
    /// (`ws://127.0.0.1:9222/devtools/browser/...`). Each page gets its own context, and the
    /// browser is left running. [`BrowserOptions::extra_args`] have no effect.
    ///
    /// A browser on this machine uses the filtering proxy, as a started one does. A browser on
    /// another machine dials itself: only a page's host before the browser gets the URL, and its
    /// final URL, can be checked.
    ///
    /// # Errors
    /// [`OptionsError`] if the address is not a socket, or if no page could be fetched with these
    /// options.
    pub fn remote(
        address: &str,
        options: BrowserOptions,
        dialer: Dialer,
    ) -> Result<Self, OptionsError> {
        let socket = Url::parse(address).ok().filter(|url| matches!(url.scheme(), "ws" | "wss"));
        let host = socket.as_ref().and_then(Url::host).ok_or(OptionsError::NoAddress)?;
        let is_local = match host {
            Host::Domain(name) => name == "localhost" || name.ends_with(".localhost"),
            Host::Ipv4(ip) => ip.is_loopback(),
            Host::Ipv6(ip) => ip.is_loopback(),
        };
        Self::at(BrowserSource::Remote { address: address.to_owned(), is_local }, options, dialer)
    }

    fn at(
        source: BrowserSource,
        options: BrowserOptions,
        dialer: Dialer,
    ) -> Result<Self, OptionsError> {
        if options.tabs == 0 {
            return Err(OptionsError::NoTabs);
        }
        let slots = Semaphore::new(options.tabs.min(Semaphore::MAX_PERMITS));
        let inner = Inner {
            source,
            options,
            dialer,
            running: Mutex::new(None),
            closed: AtomicBool::new(false),
            not_started: std::sync::Mutex::default(),
        };
        Ok(Self { inner: Arc::new(inner), slots })
    }

    /// Returns the maximum number of open pages.
    pub fn max_in_flight(&self) -> usize {
        self.inner.options.tabs
    }

    /// Returns why the last start of the browser failed, as a message for a person; `None` after a
    /// success.
    pub fn why_not_started(&self) -> Option<String> {
        self.inner.not_started.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Starts the browser now, so the first fetch does not wait for it.
    ///
    /// # Errors
    /// [`LaunchError`] if it does not start.
    pub async fn start(&self) -> Result<(), LaunchError> {
        Inner::running(&self.inner).await.map(drop)
    }

    /// Returns the process id of the browser, while there is one.
    pub async fn pid(&self) -> Option<u32> {
        let running = self.inner.running.lock().await;
        running.as_ref().filter(|r| !r.cdp.is_closed()).and_then(|r| r.pid)
    }

    /// Ends the browser and waits until its processes and its profile are gone. Pending and later
    /// fetches fail.
    pub async fn close(&self) {
        self.inner.closed.store(true, Ordering::Release);
        self.slots.close();
        let running = self.inner.running.lock().await.take();
        if let Some(running) = running {
            if running.pid.is_some() {
                running.cdp.send(None, CloseBrowser {});
            }
            running.finish().await;
        }
    }

    async fn fetch_page(&self, request: Request<'_>) -> Result<Response, FetchError> {
        self.check_url(request.url).await?;
        let closed =
            || FetchError::new(ErrorKind::NetworkError, "the browser was closed", Duration::ZERO);
        let _slot = self.slots.acquire().await.map_err(|_| closed())?;
        let started = Instant::now();
        // A browser that does not start, or not in time, is not attributed to the page.
        match tokio::time::timeout(request.limits.deadline, Inner::running(&self.inner)).await {
            Ok(Ok(_)) => {}
            Ok(Err(why)) => return Err(launch_error(&why, started.elapsed())),
            Err(_) => {
                let message = format!(
                    "Chromium was not ready within {} ms",
                    request.limits.deadline.as_millis()
                );
                return Err(FetchError::local(message, started.elapsed()));
            }
        }
        let launched = started.elapsed();
        let mut load = None;
        let loading = self.load_page(request, started, &mut load);
        let result =
            match tokio::time::timeout(request.limits.deadline.saturating_sub(launched), loading)
                .await
            {
                Ok(result) => result,
                Err(_) => Err(timed_out(request.limits.deadline, launched, load.is_some())),
            };
        let duration = started.elapsed();
        let failed = |failure: Failure, load: Option<PageLoad>| {
            // Chromium refuses some ports itself, which says nothing about the URL.
            if failure.unsigned {
                return FetchError::unsigned(failure.message, duration);
            }
            let unavailable = errors::is_own_refusal(&failure.message);
            let error = FetchError::new(failure.kind, failure.message, duration);
            let mut error =
                FetchError { local: failure.local, limit: failure.limit, unavailable, ..error };
            if let Some(document) = load.as_ref().and_then(PageLoad::document) {
                error.status = document.status;
                error.headers = document.headers;
            }
            error
        };
        match result {
            Ok(loaded) => {
                let response = respond(loaded, request.url, duration)?;
                if !self.inner.is_filtered() && response.final_url.host() != request.url.host() {
                    self.check_url(&response.final_url).await?;
                }
                Ok(response)
            }
            Err(failure) => Err(failed(failure, load)),
        }
    }

    /// Refuses what can be refused before the browser gets the URL. The proxy looks names up when
    /// it dials.
    async fn check_url(&self, url: &Url) -> Result<(), FetchError> {
        let error = |kind, message: String| Err(FetchError::new(kind, message, Duration::ZERO));
        match (url.scheme(), url.host()) {
            ("http" | "https", Some(Host::Domain(_))) if self.inner.is_filtered() => Ok(()),
            ("http" | "https", Some(host)) => {
                match self.inner.dialer.check(&host.to_string()).await {
                    Ok(()) => Ok(()),
                    Err(why) if why.is_local() => {
                        Err(FetchError::local(why.to_string(), Duration::ZERO))
                    }
                    Err(why) => error(why.kind(), why.to_string()),
                }
            }
            _ => error(ErrorKind::InvalidUrl, "not an http or https URL with a host".to_owned()),
        }
    }

    async fn load_page(
        &self,
        request: Request<'_>,
        started: Instant,
        slot: &mut Option<PageLoad>,
    ) -> Result<LoadedPage, Failure> {
        let options = &self.inner.options;
        let timeouts = LoadTimeouts {
            quiet: options.quiet,
            after_load: options.max_settle,
            read_at_latest: started
                + request.limits.deadline * options.give_in_percent.min(100) / 100,
        };
        let (running, opened) = self.open_tab(request.url).await?;
        let faults = running.proxy.local_faults();
        let result = match opened {
            Ok(mut tab) => {
                let (frame, mark) = (tab.main_frame(), running.proxy.mark().to_owned());
                let load =
                    PageLoad::new(frame, mark, request.limits.clone(), timeouts, Instant::now())
                        .signing(options.signing.as_ref().map(|signing| signing.scope))
                        .host_headers(options.host_headers.clone());
                let loaded = tab.load(slot.insert(load), request).await;
                if let Ok(page) = &loaded
                    && let Ok(landed) = Url::parse(&page.document.url)
                {
                    running.contexts.put(tab.close([request.url, &landed]));
                }
                loaded
            }
            Err(failure) => Err(failure),
        };
        match result {
            Err(failure) if failure.message == tab::BROWSER_ENDED => {
                let how = running.death().await;
                Err(Failure { message: format!("{} ({how})", tab::BROWSER_ENDED), ..failure })
            }
            Err(failure) => Err(running.explain(failure, faults)),
            Ok(loaded) => Ok(loaded),
        }
    }

    /// Opens a tab. A browser that turns out to be dead, or a context that cannot be used again, is
    /// replaced once: no request was made yet.
    async fn open_tab(
        &self,
        url: &Url,
    ) -> Result<(Arc<RunningBrowser>, Result<Tab, Failure>), Failure> {
        let mut replaced = false;
        loop {
            let running = Inner::running(&self.inner).await.map_err(|error| Failure {
                local: true,
                ..Failure::new(ErrorKind::NetworkError, error.to_string())
            })?;
            // Dropped before a tab is open: the deadline passed, and the whole browser may hang.
            let hang_check = HangCheck { running: Some(Arc::clone(&running)) };
            let is_filtered = self.inner.is_filtered();
            let reused = running.contexts.take(url);
            let is_reused = reused.is_some();
            let opened =
                Tab::open(&running.cdp, (&running.proxy, is_filtered), &running.identity, reused)
                    .await;
            if opened.is_ok() {
                hang_check.disarm();
            }
            let opened = opened.map_err(|error| tab::call_failure(&error));
            let died = opened.as_ref().is_err_and(|failure| failure.message == tab::BROWSER_ENDED);
            let is_worn = is_reused && opened.is_err();
            if !died && !is_worn || replaced {
                return Ok((running, opened));
            }
            if died {
                // The connection may end a moment after the failure of the command.
                let _ = tokio::time::timeout(MAX_CLOSE_DELAY, running.cdp.closed()).await;
            }
            replaced = true;
        }
    }
}

impl Inner {
    /// Returns the running browser, or starts a new one. A separate task starts it, so a fetch that
    /// gives up does not abort the start.
    async fn running(this: &Arc<Self>) -> Result<Arc<RunningBrowser>, LaunchError> {
        let inner = Arc::clone(this);
        let task = tokio::spawn(async move {
            let mut slot = inner.running.lock().await;
            if inner.closed.load(Ordering::Acquire) {
                return Err(LaunchError::Closed);
            }
            if let Some(running) = slot.as_ref().filter(|r| !r.cdp.is_closed()) {
                return Ok(Arc::clone(running));
            }
            if let Some(dead) = slot.take() {
                dead.finish().await;
            }
            let launched = inner.launch().await;
            let why_not = launched.as_ref().err().map(ToString::to_string);
            *inner.not_started.lock().unwrap_or_else(PoisonError::into_inner) = why_not;
            let running = Arc::new(launched?);
            *slot = Some(Arc::clone(&running));
            Ok(running)
        });
        task.await.map_err(|error| LaunchError::Socket(error.to_string())).flatten()
    }

    /// Returns whether all connections of the browser go through the filtering proxy.
    fn is_filtered(&self) -> bool {
        !matches!(self.source, BrowserSource::Remote { is_local: false, .. })
    }

    async fn launch(&self) -> Result<RunningBrowser, LaunchError> {
        let proxy =
            FilteringProxy::start_with(self.dialer.clone()).await.map_err(LaunchError::Proxy)?;
        let (root, events) = mpsc::unbounded_channel();
        let (process, cdp) = match &self.source {
            BrowserSource::Program(program) => {
                let (process, socket) =
                    Process::launch(program, proxy.addr(), &self.options.extra_args).await?;
                let cdp = Cdp::connect(&socket, root)
                    .await
                    .map_err(|error| LaunchError::Socket(error.to_string()))?;
                cdp.send(None, SetDiscoverTargets { discover: true });
                tokio::spawn(close_popups(cdp.clone(), events));
                (Some(process), cdp)
            }
            // Its windows may belong to another program; ours are closed with their contexts.
            BrowserSource::Remote { address, .. } => {
                let cdp = Cdp::connect(address, root)
                    .await
                    .map_err(|error| LaunchError::Remote(error.to_string()))?;
                (None, cdp)
            }
        };
        let user_agent = match &self.options.user_agent {
            UserAgent::Chromium => None,
            UserAgent::Custom(text) => Some(text.clone()),
            UserAgent::NotHeadless => {
                Some(version_of(&cdp).await?.user_agent.replace("HeadlessChrome", "Chrome"))
            }
            UserAgent::Versioned(text) => {
                let product = version_of(&cdp).await?.product;
                let version = product.rsplit_once('/').map_or(&*product, |(_, version)| version);
                Some(text.replace(UserAgent::VERSION, version))
            }
        };
        let (init_script, signing) =
            (self.options.init_script.clone(), self.options.signing.clone());
        let host_headers = self.options.host_headers.clone();
        let pid = process.as_ref().map(Process::pid);
        let identity =
            Identity { user_agent, init_script, signing, host_headers, is_child: pid.is_some() };
        // As many origins as tabs can each have their contexts.
        let contexts =
            ContextPool::new(if self.options.shares_cache { 2 * self.options.tabs } else { 0 });
        Ok(RunningBrowser { cdp, pid, process: Mutex::new(process), proxy, identity, contexts })
    }
}

impl RunningBrowser {
    async fn finish(&self) {
        if let Some(process) = self.process.lock().await.take() {
            process.finish().await;
        }
    }

    /// Kills a browser that does not even report its version; the next fetch starts a new one.
    async fn kill_if_hung(&self) {
        let answer = tokio::time::timeout(HUNG_AFTER, self.cdp.call(None, GetVersion {})).await;
        if answer.is_err() {
            drop(self.process.lock().await.take());
        }
    }

    /// Replaces Chromium's error by the proxy's reason: Chromium only knows that the tunnel failed.
    /// `faults` is the proxy's count of local faults when the fetch began.
    fn explain(&self, mut failure: Failure, faults: u64) -> Failure {
        // A transient failure while this machine lacked a resource was most likely caused by that.
        failure.local |= failure.kind.is_transient() && self.proxy.local_faults() > faults;
        let url = failure.ask_proxy.as_deref().and_then(|url| Url::parse(url).ok());
        let known =
            url.and_then(|url| self.proxy.failure(url.host_str()?, url.port_or_known_default()?));
        match known {
            Some(known) => {
                Failure { local: known.local, ..Failure::new(known.kind, known.message) }
            }
            None => failure,
        }
    }

    /// Returns how the browser ended, for a message.
    async fn death(&self) -> String {
        match self.process.lock().await.as_mut() {
            Some(process) => process.exit_text().await,
            None => "it was closed".to_owned(),
        }
    }
}

/// Converts a launch error: to an unavailable fetcher if a retry would not help, else to a local
/// fault.
fn launch_error(why: &LaunchError, took: Duration) -> FetchError {
    if why.is_local() {
        FetchError::local(why.to_string(), took)
    } else {
        FetchError::unavailable(why.to_string())
    }
}

/// Returns the failure of a passed deadline. A page that waited for the browser had less time than
/// its limit says.
fn timed_out(deadline: Duration, launched: Duration, is_requested: bool) -> Failure {
    let failure =
        |message| Failure::past(LimitMet::Deadline(deadline), ErrorKind::Timeout, message);
    if !is_requested {
        let message = format!("Chromium did not open a tab within {} ms", deadline.as_millis());
        return Failure { local: true, ..failure(message) };
    }
    let local = launched > deadline / MAX_LAUNCH_FRACTION;
    let wait = if local {
        format!(", {} ms of which Chromium took to start", launched.as_millis())
    } else {
        String::new()
    };
    Failure {
        local,
        ..failure(format!("the page did not load within {} ms{wait}", deadline.as_millis()))
    }
}

/// A check of the browser that runs if the opening of a tab is given up.
struct HangCheck {
    running: Option<Arc<RunningBrowser>>,
}

impl HangCheck {
    fn disarm(mut self) {
        self.running = None;
    }
}

impl Drop for HangCheck {
    fn drop(&mut self) {
        if let (Some(running), Ok(runtime)) =
            (self.running.take(), tokio::runtime::Handle::try_current())
        {
            runtime.spawn(async move { running.kill_if_hung().await });
        }
    }
}

async fn version_of(cdp: &Cdp) -> Result<Version, LaunchError> {
    cdp.call(None, GetVersion {}).await.map_err(|error| LaunchError::Socket(error.to_string()))
}

/// Closes the popup windows that pages open.
async fn close_popups(cdp: Cdp, mut events: mpsc::UnboundedReceiver<Event>) {
    while let Some(event) = events.recv().await {
        if event.method != "Target.targetCreated" {
            continue;
        }
        let info = &event.params["targetInfo"];
        if info["type"] == "page"
            && info["openerId"].is_string()
            && let Some(id) = info["targetId"].as_str()
        {
            cdp.send(None, CloseTarget { target_id: id.to_owned() });
        }
    }
}

fn respond(
    loaded: LoadedPage,
    requested: &Url,
    duration: Duration,
) -> Result<Response, FetchError> {
    let LoadedPage { document, body, original_encoding } = loaded;
    let Some(status) = document.status else {
        return Err(FetchError::new(ErrorKind::NetworkError, "the page has no response", duration));
    };
    let mut headers = document.headers;
    if original_encoding.is_some() {
        declare_utf8(&mut headers);
    }
    let final_url = Url::parse(&document.url).unwrap_or_else(|_| requested.clone());
    let (truncated, requests) = (document.truncated, Some(document.requests));
    Ok(Response {
        duration,
        truncated,
        requests,
        ..Response::new(status, headers, body, final_url)
    })
}

/// Declares UTF-8: the document's text is in UTF-8, whatever the server's bytes were in.
fn declare_utf8(headers: &mut Vec<Header>) {
    let value = format!("{}; charset=utf-8", media_type(headers).unwrap_or("text/html"));
    headers.retain(|header| !header.name.eq_ignore_ascii_case("content-type"));
    headers.push(Header::new("content-type", value));
}

impl Fetcher for BrowserFetcher {
    fn name(&self) -> &str {
        &self.inner.options.name
    }

    fn max_in_flight(&self) -> usize {
        Self::max_in_flight(self)
    }

    fn renders(&self) -> bool {
        true
    }

    fn fetch<'a>(&'a self, request: Request<'a>) -> FetchFuture<'a> {
        Box::pin(self.fetch_page(request))
    }
}

impl fmt::Debug for BrowserFetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrowserFetcher")
            .field("source", &self.inner.source)
            .field("options", &self.inner.options)
            .finish_non_exhaustive()
    }
}
