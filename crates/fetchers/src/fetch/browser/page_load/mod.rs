//! The state machine of a page load in a tab: events go in, actions come out.
//!
//! Owns: which document is the page now, whether it failed, and whether it is done.
//!
//! Must not know: the clock and the connection. The tab has both, so all of this can be tested
//! without a browser.

mod document;
mod events;

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use url::Url;

pub(super) use document::Document;
use document::{host_of, is_download, is_rendered, is_same_site};
use events::{
    AuthRequired, Data, Dialog, ExtraInfo, Failed, Finished, Navigated, Paused, Received,
    WillBeSent,
};

use super::cdp::Event;
use super::errors;
use super::options::SignatureScope;
use crate::fetch::host_headers::HostHeaders;
use crate::fetch::proxy::{ERROR_HEADER, own_failure};
use crate::fetch::{LimitMet, Limits};
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::response::{Header, header};

/// Time for another navigation to replace a cancelled one.
const ABORT_GRACE: Duration = Duration::from_millis(500);
/// Interval at which a script that blocks the page is stopped.
const STOP_EVERY: Duration = Duration::from_millis(500);
/// Decoded bytes from which on the decompression ratio is checked.
const RATIO_FROM: u64 = 1 << 20;
/// Maximum number of hosts per page whose requests are counted.
const MAX_HOSTS: usize = 256;

/// The reaction of the tab to an event.
#[derive(Debug, PartialEq)]
pub(super) enum Action {
    /// No reaction.
    None,
    /// Continue the paused request.
    Continue(String),
    /// Cancel the paused request: the page stays.
    Cancel(String),
    /// Continue the paused request with further headers.
    AddHeaders(OutgoingRequest),
    /// Close the open dialog.
    CloseDialog { accept: bool },
    /// Respond to a password request: with the proxy's password, or with none.
    Authenticate { request: String, to_proxy: bool },
}

/// A paused request that has not gone out yet.
#[derive(Debug, PartialEq)]
pub(super) struct OutgoingRequest {
    /// Id of the pause.
    pub(super) id: String,
    pub(super) method: String,
    pub(super) url: Url,
    /// All headers that are known by now.
    pub(super) headers: Vec<Header>,
    /// Whether it is to be signed, if requests to its URL are.
    pub(super) is_signed: bool,
    /// Whether it gets the headers of its host.
    pub(super) gets_host_headers: bool,
}

/// The state of a page load.
#[derive(Debug, PartialEq)]
pub(super) enum LoadState {
    /// Check again at this time, or after the next event.
    Wait(Instant),
    /// The document can be read.
    Ready,
    /// A script may block the page: stop it, and check again at this time, or after the next event.
    Stuck(Instant),
    /// A browser does not render the main document: its bytes wait behind this paused request.
    Raw(String),
    /// The main document has no body (204, 205, 304).
    Bodyless,
    /// The load failed.
    Failed(Failure),
}

/// The reason why a page load failed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Failure {
    pub(super) kind: ErrorKind,
    pub(super) message: String,
    /// URL that the proxy refused, if it knows the reason.
    pub(super) ask_proxy: Option<String>,
    /// Whether this machine caused the fault.
    pub(super) local: bool,
    /// Limit of the request that ended the load.
    pub(super) limit: Option<LimitMet>,
    /// Whether the browser signs its requests and cannot sign now.
    pub(super) unsigned: bool,
}

impl Failure {
    /// Returns a failure whose reason is known.
    pub(super) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            ask_proxy: None,
            local: false,
            limit: None,
            unsigned: false,
        }
    }

    /// Returns the failure of a page that exceeds `limit`.
    pub(super) fn past(limit: LimitMet, kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { limit: Some(limit), ..Self::new(kind, message) }
    }
}

/// Times that bound the wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadTimeouts {
    /// The page is done after this long without a request in flight.
    pub(super) quiet: Duration,
    /// A page whose network is never quiet is read as it is this long after its load event.
    pub(super) after_load: Duration,
    /// A page without a load event is read as it is at this time.
    pub(super) read_at_latest: Instant,
}

/// The state machine.
#[derive(Debug)]
pub(super) struct PageLoad {
    main_frame: String,
    /// Mark in the proxy's own responses.
    proxy_mark: String,
    /// Requests that got the proxy's password: it is provided once per request.
    authenticated: HashSet<String>,
    limits: Limits,
    timeouts: LoadTimeouts,
    /// Newest navigation of the main frame.
    current: Option<Document>,
    /// Document before it, which stays if the newest navigation is cancelled (a download, a 204).
    previous: Option<Document>,
    hops: u32,
    /// Requests by host.
    requests_by_host: HashMap<String, u16>,
    in_flight: HashSet<String>,
    /// Open sockets.
    sockets: HashSet<String>,
    /// Ended requests: another process of Chromium may report the end before the beginning.
    done: HashSet<String>,
    /// Time of the last change between a busy and a quiet network.
    changed: Instant,
    loaded: Option<Instant>,
    final_state: Option<FinalState>,
    aborted: Option<(Instant, Failure)>,
    /// Cookies of the newest response to the main document's request, with its request and status.
    cookies: Option<(String, Option<u16>, Vec<Header>)>,
    /// Requests that are signed, if any.
    signs: Option<SignatureScope>,
    host_headers: HostHeaders,
    /// Loaders of requests, if those to the page's site get further headers: a request may be one
    /// of the document before.
    loaders: HashMap<String, String>,
    /// Head of a response to the main frame that nothing has taken yet.
    response_head: Option<(Url, Vec<Header>)>,
}

/// Final states, whatever events follow.
#[derive(Clone, Debug)]
enum FinalState {
    Raw(String),
    Bodyless,
    Failed(Failure),
}

impl PageLoad {
    /// Returns the state of a tab that was just told to navigate. `main_frame` is its top frame,
    /// and its proxy marks responses with `proxy_mark`.
    pub(super) fn new(
        main_frame: String,
        proxy_mark: String,
        limits: Limits,
        timeouts: LoadTimeouts,
        now: Instant,
    ) -> Self {
        Self {
            main_frame,
            proxy_mark,
            authenticated: HashSet::new(),
            limits,
            timeouts,
            current: None,
            previous: None,
            hops: 0,
            requests_by_host: HashMap::new(),
            in_flight: HashSet::new(),
            sockets: HashSet::new(),
            done: HashSet::new(),
            changed: now,
            loaded: None,
            final_state: None,
            aborted: None,
            cookies: None,
            signs: None,
            host_headers: HostHeaders::default(),
            loaders: HashMap::new(),
            response_head: None,
        }
    }

    /// Sets the requests that are signed.
    pub(super) fn signing(self, signs: Option<SignatureScope>) -> Self {
        Self { signs, ..self }
    }

    /// Sets the headers of requests to some hosts.
    pub(super) fn host_headers(self, host_headers: HostHeaders) -> Self {
        Self { host_headers, ..self }
    }

    /// Ends the load: one of its requests cannot be signed.
    pub(super) fn cannot_sign(&mut self, why: String) {
        let failure = Failure { unsigned: true, ..Failure::new(ErrorKind::LocalFault, why) };
        self.stop(FinalState::Failed(failure));
    }

    /// Returns the head of the newest response to the main frame, once, if requests are signed.
    pub(super) fn take_response_head(&mut self) -> Option<(Url, Vec<Header>)> {
        self.response_head.take()
    }

    /// Returns the document that is the page, as far as it is known.
    pub(super) fn document(&self) -> Option<Document> {
        let mut document = self.current.clone()?;
        // A redirect has the same request but its own cookies, which are not the document's.
        if let Some((id, status, cookies)) = &self.cookies
            && *id == document.id
            && *status == document.status
        {
            document.headers.extend(cookies.iter().cloned());
        }
        document.requests = host_of(&document.url)
            .and_then(|host| self.requests_by_host.get(&host))
            .map_or(1, |count| *count);
        Some(document)
    }

    /// Returns the state at `now`.
    pub(super) fn state(&self, now: Instant) -> LoadState {
        match &self.final_state {
            Some(FinalState::Raw(request)) => return LoadState::Raw(request.clone()),
            Some(FinalState::Bodyless) => return LoadState::Bodyless,
            Some(FinalState::Failed(failure)) => return LoadState::Failed(failure.clone()),
            None => {}
        }
        if let Some((at, failure)) = &self.aborted {
            let until = *at + ABORT_GRACE;
            return if now >= until {
                LoadState::Failed(failure.clone())
            } else {
                LoadState::Wait(until)
            };
        }
        let readable = self.current.as_ref().is_some_and(|d| d.committed && d.finished);
        let read_at_latest = self.read_at_latest();
        if readable && now >= read_at_latest {
            return LoadState::Ready;
        }
        if !readable {
            // The tab's deadline ends this wait.
            return if now < read_at_latest {
                LoadState::Wait(read_at_latest)
            } else {
                LoadState::Stuck(now + STOP_EVERY)
            };
        }
        if self.loaded.is_some() && self.in_flight.is_empty() {
            let until = self.changed + self.timeouts.quiet;
            return if now >= until {
                LoadState::Ready
            } else {
                LoadState::Wait(until.min(read_at_latest))
            };
        }
        LoadState::Wait(read_at_latest)
    }

    /// Returns whether a socket of the page is open: what it brings is no request.
    pub(super) fn has_open_socket(&self) -> bool {
        !self.sockets.is_empty()
    }

    /// Returns how long a page must show the same to be done.
    pub(super) fn quiet(&self) -> Duration {
        self.timeouts.quiet
    }

    /// Returns when a page with a document is read as it is, whatever it does.
    pub(super) fn read_at_latest(&self) -> Instant {
        match self.loaded {
            Some(at) => self.timeouts.read_at_latest.min(at + self.timeouts.after_load),
            None => self.timeouts.read_at_latest,
        }
    }

    /// Records that the navigation was refused before it made a request.
    pub(super) fn on_navigate_error(&mut self, error_text: &str, url: &str, now: Instant) {
        if self.final_state.is_none() && self.aborted.is_none() {
            let url = self.current.as_ref().map_or(url, |d| &d.url).to_owned();
            self.fail_or_abort(error_text, &url, now);
        }
    }

    /// Processes an event.
    pub(super) fn on(&mut self, event: &Event, now: Instant) -> Action {
        match event.method.as_str() {
            "Network.requestWillBeSent" => self.with(event, now, Self::on_request),
            "Network.responseReceived" => self.with(event, now, Self::on_response),
            "Network.responseReceivedExtraInfo" => self.with(event, now, Self::on_extra_info),
            "Network.webSocketCreated" => self.with(event, now, Self::on_socket),
            "Network.webSocketClosed" => self.with(event, now, Self::on_socket_closed),
            "Network.dataReceived" => self.with(event, now, Self::on_data),
            "Network.loadingFinished" => self.with(event, now, Self::on_finished),
            "Network.loadingFailed" => self.with(event, now, Self::on_failed),
            "Fetch.requestPaused" => self.with(event, now, Self::on_paused),
            "Fetch.authRequired" => self.with(event, now, Self::on_auth),
            "Page.frameNavigated" => self.with(event, now, Self::on_navigated),
            "Page.loadEventFired" => {
                if self.current.iter().chain(&self.previous).any(|document| document.committed) {
                    self.loaded = Some(now);
                }
                Action::None
            }
            "Page.javascriptDialogOpening" => self.with(event, now, Self::on_dialog),
            "Inspector.targetCrashed" => self.fail_gone("the tab crashed"),
            "Target.detachedFromTarget" => self.fail_gone("the tab closed"),
            _ => Action::None,
        }
    }

    /// Parses an event that a newer Chromium may have changed; an event that does not parse is
    /// ignored.
    fn with<T: DeserializeOwned>(
        &mut self,
        event: &Event,
        now: Instant,
        then: impl FnOnce(&mut Self, T, Instant) -> Action,
    ) -> Action {
        match T::deserialize(&event.params) {
            Ok(read) => then(self, read, now),
            Err(_) => Action::None,
        }
    }

    fn on_request(&mut self, event: WillBeSent, now: Instant) -> Action {
        // An event stream or a socket stays open as long as the page, so it is not waited for.
        let endless = matches!(event.kind.as_deref(), Some("EventSource" | "WebSocket" | "Ping"));
        // The end of a frame's document is reported elsewhere if the frame has its own process. The
        // load event waits for it.
        let is_frame_document = event.kind.as_deref() == Some("Document")
            && event.frame_id.as_deref().is_some_and(|frame| frame != self.main_frame);
        // Data in the page needs no network, and the end of a worker's script is reported to the
        // worker.
        let is_inline =
            ["blob:", "data:"].iter().any(|scheme| event.request.url.starts_with(scheme));
        if !is_inline && let Some(host) = host_of(&event.request.url) {
            // For a page with more hosts than the maximum, only the first ones are counted.
            if self.requests_by_host.len() < MAX_HOSTS || self.requests_by_host.contains_key(&host)
            {
                let count = self.requests_by_host.entry(host).or_default();
                *count = count.saturating_add(1);
            }
        }
        if !endless
            && !is_frame_document
            && !is_inline
            && !self.done.contains(&event.request_id)
            && self.in_flight.insert(event.request_id.clone())
        {
            self.changed = now;
        }
        if self.signs == Some(SignatureScope::Site) || !self.host_headers.is_empty() {
            self.loaders.insert(event.request_id.clone(), event.loader_id.clone());
        }
        let is_main = event.kind.as_deref() == Some("Document")
            && event.frame_id.as_deref() == Some(self.main_frame.as_str())
            && event.loader_id == event.request_id;
        if is_main {
            let new = self.current.as_ref().is_none_or(|d| d.id != event.request_id);
            // The first navigation is ours; each later one, and each redirect, is a hop.
            if self.current.is_some() {
                self.hops += 1;
            }
            self.aborted = None;
            if new {
                self.start(event.request_id, event.request.url);
            } else if let Some(current) = &mut self.current {
                current.url = event.request.url;
            }
            if self.hops > self.limits.max_redirects {
                let max = self.limits.max_redirects;
                self.fail_past(
                    LimitMet::Redirects(max),
                    ErrorKind::RedirectLoop,
                    format!("more than {max} redirects"),
                );
            }
        }
        Action::None
    }

    fn on_socket(&mut self, event: Finished, _now: Instant) -> Action {
        self.sockets.insert(event.request_id);
        Action::None
    }

    fn on_socket_closed(&mut self, event: Finished, _now: Instant) -> Action {
        self.sockets.remove(&event.request_id);
        Action::None
    }

    /// Takes back a request that the cache has answered.
    fn on_response(&mut self, event: Received, _now: Instant) -> Action {
        let host = host_of(&event.response.url).filter(|_| event.response.from_disk_cache);
        if let Some(count) = host.and_then(|host| self.requests_by_host.get_mut(&host)) {
            *count = count.saturating_sub(1);
        }
        Action::None
    }

    fn start(&mut self, id: String, url: String) {
        let old = self.current.replace(Document { id, url, ..Document::default() });
        // A page that navigates at once may do so before its own commit is reported.
        if let Some(old) = old.filter(|document| document.committed || document.is_shown()) {
            self.previous = Some(old);
        }
    }

    /// Records cookies, which Chromium omits from all other events.
    fn on_extra_info(&mut self, event: ExtraInfo, _now: Instant) -> Action {
        let cookies =
            event.headers.into_iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
        let cookies: Vec<Header> = cookies
            .filter_map(|(name, value)| Some((name, value.as_str()?.to_owned())))
            .flat_map(|(name, values)| {
                values.lines().map(|v| Header::new(&*name, v)).collect::<Vec<_>>()
            })
            .collect();
        if self.current.as_ref().is_some_and(|d| d.id == event.request_id) {
            self.cookies = Some((event.request_id, event.status_code, cookies));
        }
        Action::None
    }

    fn on_data(&mut self, event: Data, _now: Instant) -> Action {
        let Some(current) = self.current.as_mut().filter(|d| d.id == event.request_id) else {
            return Action::None;
        };
        current.decoded += event.data_length;
        current.encoded += event.encoded_data_length;
        let (decoded, encoded) = (current.decoded, current.encoded);
        let packed = header(&current.headers, "content-encoding").is_some();
        if decoded > self.limits.max_body {
            self.fail_too_long();
        } else if packed
            && decoded > RATIO_FROM
            && encoded > 0
            && decoded / encoded > self.limits.max_decompression_ratio
        {
            let ratio = self.limits.max_decompression_ratio;
            let message = format!("the body unpacks to more than {ratio} times its size");
            self.fail_past(LimitMet::DecompressionRatio(ratio), ErrorKind::TooLarge, message);
        }
        Action::None
    }

    fn on_finished(&mut self, event: Finished, now: Instant) -> Action {
        self.ended(&event.request_id, now);
        let mut documents = self.current.iter_mut().chain(&mut self.previous);
        if let Some(document) = documents.find(|document| document.id == event.request_id) {
            document.finished = true;
        }
        Action::None
    }

    fn on_failed(&mut self, event: Failed, now: Instant) -> Action {
        self.ended(&event.request_id, now);
        let Some(current) = self.current.as_mut().filter(|d| d.id == event.request_id) else {
            return Action::None;
        };
        current.finished = true;
        if matches!(self.final_state, Some(FinalState::Raw(_))) {
            current.truncated = true;
        } else if current.committed {
            // The body broke off. A script that stopped it (`window.stop()`) or another navigation
            // is not a fault of the server.
            current.truncated = !errors::is_abort(&event.error_text);
            // No further events follow, not even the load event.
            self.loaded.get_or_insert(now);
        } else {
            let url = current.url.clone();
            self.fail_or_abort(&event.error_text, &url, now);
        }
        Action::None
    }

    fn fail_or_abort(&mut self, error_text: &str, url: &str, now: Instant) {
        let from_proxy = errors::is_from_proxy(error_text);
        let failure = Failure {
            ask_proxy: from_proxy.then(|| url.to_owned()),
            local: errors::is_local(error_text),
            ..Failure::new(errors::kind_of(error_text), error_text)
        };
        let has_response = self.current.as_ref().is_some_and(|d| d.status.is_some());
        if has_response && error_text.contains("ERR_HTTP_RESPONSE_CODE_FAILURE") {
            // An error status without a body, for which Chromium would show its own page.
            self.stop(FinalState::Bodyless);
        } else if !errors::is_abort(error_text) {
            self.stop(FinalState::Failed(failure));
        } else if let Some(previous) = self.previous.take() {
            self.current = Some(previous);
        } else {
            self.aborted = Some((
                now,
                Failure { message: "the navigation was cancelled".to_owned(), ..failure },
            ));
        }
    }

    fn on_paused(&mut self, event: Paused, _now: Instant) -> Action {
        let main = event.frame_id.as_deref() == Some(self.main_frame.as_str())
            && event.resource_type.as_deref() == Some("Document");
        if event.is_outgoing() {
            let (is_signed, gets_host_headers) =
                (self.is_signed(&event, main), self.gets_host_headers(&event, main));
            if is_signed || gets_host_headers {
                return outgoing(event, is_signed, gets_host_headers);
            }
        }
        let request = event.request_id;
        let Some(status) =
            event.response_status_code.filter(|_| main && self.final_state.is_none())
        else {
            return Action::Continue(request);
        };
        // A link with the attribute `download` starts a request that is no navigation.
        if event.network_id.is_none()
            && self.current.as_ref().is_some_and(|document| document.status.is_some())
        {
            return Action::Cancel(request);
        }
        if let Some(id) = event.network_id
            && self.current.as_ref().is_none_or(|d| d.id != id)
        {
            self.start(id, event.request.url.clone());
        }
        if self.current.is_none() {
            return Action::Continue(request);
        }
        let headers: Vec<Header> = event
            .response_headers
            .unwrap_or_default()
            .into_iter()
            .map(|h| Header::new(h.name, h.value))
            .collect();
        self.on_head(request, event.request.url, status, headers)
    }

    /// Decides what becomes of the page when its head is here: it goes on to the tab, or stays
    /// paused until its body is read or the tab closes.
    fn on_head(
        &mut self,
        request: String,
        url: String,
        status: u16,
        headers: Vec<Header>,
    ) -> Action {
        if self.signs.is_some() {
            self.response_head = Url::parse(&url).ok().map(|url| (url, headers.clone()));
        }
        // Nothing from the proxy arrives through a tunnel: there such a header is a server's.
        let signed = header(&headers, ERROR_HEADER).filter(|_| url.starts_with("http://"));
        if let Some(kind) = signed.and_then(|value| own_failure(value, &self.proxy_mark)) {
            let message = format!("the proxy reported {kind}");
            let failure = Failure { ask_proxy: Some(url), ..Failure::new(kind, message) };
            self.stop(FinalState::Failed(failure));
            return Action::None;
        }
        if matches!(status, 301 | 302 | 303 | 307 | 308) && header(&headers, "location").is_some() {
            return Action::Continue(request);
        }
        // The page stays where a browser would show nothing else: the navigation ends as cancelled.
        if self.previous.is_some() && (matches!(status, 204 | 205) || is_download(&headers)) {
            return Action::Cancel(request);
        }
        let head_bytes: usize = headers.iter().map(|h| h.name.len() + h.value.len() + 4).sum();
        let announced =
            header(&headers, "content-length").and_then(|n| n.trim().parse::<u64>().ok());
        let is_rendered = is_rendered(&headers);
        if let Some(current) = &mut self.current {
            current.url = url;
            current.status = Some(status);
            current.headers = headers;
        }
        if head_bytes > self.limits.max_headers {
            let max = self.limits.max_headers;
            let message = format!("the headers are longer than {max} bytes");
            self.fail_past(LimitMet::Headers(max), ErrorKind::TooLarge, message);
        } else if announced.is_some_and(|n| n > self.limits.max_body) {
            self.fail_too_long();
        } else if matches!(status, 204 | 205 | 304) {
            self.stop(FinalState::Bodyless);
        } else if !is_rendered {
            self.stop(FinalState::Raw(request));
        } else {
            return Action::Continue(request);
        }
        // The request stays paused: the tab reads its body, or closes.
        Action::None
    }

    /// Returns whether a request is signed. `is_main` is the one for the page itself, which is
    /// signed at each redirect.
    fn is_signed(&self, event: &Paused, is_main: bool) -> bool {
        match self.signs {
            None => false,
            Some(SignatureScope::Document) => is_main,
            Some(SignatureScope::All) => true,
            Some(SignatureScope::Site) => is_main || self.is_of_its_site(event),
        }
    }

    /// Returns whether a request gets the headers of its host. Pages of other sites cannot make use
    /// of them.
    fn gets_host_headers(&self, event: &Paused, is_main: bool) -> bool {
        let has_headers = || {
            Url::parse(&event.request.url)
                .is_ok_and(|url| self.host_headers.for_url(&url).is_some())
        };
        !self.host_headers.is_empty() && has_headers() && (is_main || self.is_of_its_site(event))
    }

    /// Returns whether a page makes a request to its own site.
    fn is_of_its_site(&self, event: &Paused) -> bool {
        let page = self.page_of(event.network_id.as_deref());
        page.is_some_and(|page| is_same_site(&page.url, &event.request.url))
    }

    /// Returns the page that makes a request. None while the old page may still make requests and
    /// the new one already may: a signature for one of them could tell a third party of the other
    /// that the crawler was there.
    fn page_of(&self, request: Option<&str>) -> Option<&Document> {
        let (current, previous) = (self.current.as_ref(), self.previous.as_ref());
        let loader = request.and_then(|id| self.loaders.get(id));
        let by_loader =
            [current, previous].into_iter().flatten().find(|document| Some(&document.id) == loader);
        by_loader.or(match current? {
            document if document.committed || previous.is_none() => current,
            document if document.status.is_none() => previous,
            _ => None,
        })
    }

    /// Only the proxy has a password; a server that requires one gets none, and its 401 is the
    /// page.
    fn on_auth(&mut self, event: AuthRequired, _now: Instant) -> Action {
        let to_proxy = event.auth_challenge.source.as_deref() == Some("Proxy")
            && self.authenticated.insert(event.request_id.clone());
        Action::Authenticate { request: event.request_id, to_proxy }
    }

    fn on_navigated(&mut self, event: Navigated, now: Instant) -> Action {
        let frame = event.frame;
        if frame.parent_id.is_some() || frame.unreachable_url.is_some() {
            return Action::None;
        }
        if let Some(previous) = self.previous.as_mut().filter(|d| d.id == frame.loader_id) {
            previous.committed = true;
            (self.loaded, self.changed) = (None, now);
        } else if let Some(current) = self.current.as_mut().filter(|d| d.id == frame.loader_id) {
            current.committed = true;
            self.previous = None;
            self.loaded = None;
            self.changed = now;
        }
        Action::None
    }

    fn on_dialog(&mut self, event: Dialog, _now: Instant) -> Action {
        // "Leave this page?" is answered with yes, other dialogs with no.
        Action::CloseDialog { accept: event.kind == "beforeunload" }
    }

    fn fail_gone(&mut self, message: &str) -> Action {
        self.fail(ErrorKind::NetworkError, message.to_owned());
        Action::None
    }

    fn fail(&mut self, kind: ErrorKind, message: String) {
        self.stop(FinalState::Failed(Failure::new(kind, message)));
    }

    fn fail_past(&mut self, limit: LimitMet, kind: ErrorKind, message: String) {
        self.stop(FinalState::Failed(Failure::past(limit, kind, message)));
    }

    fn fail_too_long(&mut self) {
        let max = self.limits.max_body;
        self.fail_past(
            LimitMet::Body(max),
            ErrorKind::TooLarge,
            format!("the body is longer than {max} bytes"),
        );
    }

    /// Ends the load; only the first end counts.
    fn stop(&mut self, state: FinalState) {
        self.final_state.get_or_insert(state);
    }

    fn ended(&mut self, request: &str, now: Instant) {
        if self.in_flight.remove(request) {
            self.changed = now;
        }
        self.done.insert(request.to_owned());
    }
}

/// Returns the action for a request that gets further headers.
fn outgoing(event: Paused, is_signed: bool, gets_host_headers: bool) -> Action {
    let Ok(url) = Url::parse(&event.request.url) else { return Action::Continue(event.request_id) };
    let headers = event.request.headers.into_iter();
    let headers =
        headers.filter_map(|(name, value)| Some(Header::new(name, value.as_str()?))).collect();
    let (id, method) = (event.request_id, event.request.method);
    Action::AddHeaders(OutgoingRequest { id, method, url, headers, is_signed, gets_host_headers })
}

#[cfg(test)]
mod tests;
