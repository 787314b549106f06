//! What happens in a tab while a page loads, as a state machine: events go in, what to do about them comes out.
//!
//! It owns the questions "which document is the page now", "did it fail", "is it done". It reads no clock and talks to
//! nobody: the tab does both, which is why all of this can be tested without a browser.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::cdp::Event;
use super::errors;
use crate::attempt::outcome::ErrorKind;
use crate::fetch::proxy::{ERROR_HEADER, own_failure};
use crate::fetch::{LimitMet, Limits};
use crate::response::{Header, header};

/// How long a navigation that was given up may wait for the one that takes its place.
const ABORT_GRACE: Duration = Duration::from_millis(500);
/// How often a script that keeps the page from getting on is stopped.
const STOP_EVERY: Duration = Duration::from_millis(500);
/// Decoded bytes from which the decompression ratio is looked at.
const RATIO_FROM: u64 = 1 << 20;
/// Requests are counted for so many hosts of a page.
const HOSTS_MAX: usize = 256;

/// What the tab has to do about an event.
#[derive(Debug, PartialEq)]
pub(super) enum Action {
    /// Nothing.
    None,
    /// Let the paused request go on.
    Continue(String),
    /// Close the dialog that is open.
    CloseDialog { accept: bool },
    /// Answer who asks for a password: with the proxy's, or that there is none.
    Authenticate { request: String, to_proxy: bool },
}

/// Where the page stands.
#[derive(Debug, PartialEq)]
pub(super) enum State {
    /// Ask again then, or after the next event.
    Wait(Instant),
    /// The document can be read.
    Ready,
    /// A script may keep the page from getting on: stop it, and ask again then, or after the next event.
    Stuck(Instant),
    /// The main document is none that a browser renders: its bytes wait behind this paused request.
    Raw(String),
    /// The main document came without a body (204, 205, 304).
    Bodyless,
    /// It failed.
    Failed(Failure),
}

fn host_of(url: &str) -> Option<String> {
    url::Url::parse(url).ok()?.host_str().map(str::to_owned)
}

/// Why a page did not come.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Failure {
    pub(super) kind: ErrorKind,
    pub(super) message: String,
    /// The proxy said no on the way to this URL, and knows why.
    pub(super) ask_proxy: Option<String>,
    /// This machine's fault.
    pub(super) local: bool,
    /// The limit of the request that ended it.
    pub(super) limit: Option<LimitMet>,
}

impl Failure {
    /// A failure that nobody else is asked about.
    pub(super) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), ask_proxy: None, local: false, limit: None }
    }

    /// The page went past `limit`.
    pub(super) fn past(limit: LimitMet, kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { limit: Some(limit), ..Self::new(kind, message) }
    }
}

/// A navigation of the main frame, and the response it brought.
#[derive(Clone, Debug, Default)]
pub(super) struct Document {
    id: String,
    pub(super) url: String,
    pub(super) status: Option<u16>,
    pub(super) headers: Vec<Header>,
    committed: bool,
    finished: bool,
    pub(super) truncated: bool,
    /// How many requests went to its host, this one included: what a page asks for costs the host as much as pages do.
    pub(super) requests: u16,
    decoded: u64,
    encoded: u64,
}

impl Document {
    /// How long the body is to be, when the server says so and nothing is done to it on the way.
    pub(super) fn announced(&self) -> Option<u64> {
        if header(&self.headers, "content-encoding").is_some() {
            return None;
        }
        header(&self.headers, "content-length")?.trim().parse().ok()
    }
}

/// Times that bound the wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// No request in flight for so long: the page is done.
    pub(super) quiet: Duration,
    /// So long after its load event a page that is never quiet is taken as it is.
    pub(super) after_load: Duration,
    /// At this time a page whose load event never comes is taken as it is.
    pub(super) give_in: Instant,
}

/// The state machine.
#[derive(Debug)]
pub(super) struct Watch {
    main_frame: String,
    /// What stands in the proxy's own answers.
    proxy_mark: String,
    /// Requests for which the proxy has been given its password: it asks once.
    authenticated: HashSet<String>,
    limits: Limits,
    patience: Patience,
    /// The newest navigation of the main frame.
    current: Option<Document>,
    /// The document before it, which stays when the newest is given up (a download, a 204).
    previous: Option<Document>,
    hops: u32,
    /// Requests by the host that they went to.
    asked: HashMap<String, u16>,
    in_flight: HashSet<String>,
    /// Requests that ended: the end may be told before the beginning, by another of Chromium's processes.
    done: HashSet<String>,
    /// When the network last changed between busy and quiet.
    changed: Instant,
    loaded: Option<Instant>,
    stopped: Option<End>,
    aborted: Option<(Instant, Failure)>,
    /// What the newest response to the main document's request set: its request, status and cookies.
    cookies: Option<(String, Option<u16>, Vec<Header>)>,
}

/// Ends that are final, whatever comes later.
#[derive(Clone, Debug)]
enum End {
    Raw(String),
    Bodyless,
    Failed(Failure),
}

impl Watch {
    /// A tab that was just told to navigate; `main_frame` is its top frame, and its proxy signs with `proxy_mark`.
    pub(super) fn new(
        main_frame: String,
        proxy_mark: String,
        limits: Limits,
        patience: Patience,
        now: Instant,
    ) -> Self {
        Self {
            main_frame,
            proxy_mark,
            authenticated: HashSet::new(),
            limits,
            patience,
            current: None,
            previous: None,
            hops: 0,
            asked: HashMap::new(),
            in_flight: HashSet::new(),
            done: HashSet::new(),
            changed: now,
            loaded: None,
            stopped: None,
            aborted: None,
            cookies: None,
        }
    }

    /// The document that is the page, as far as it came.
    pub(super) fn document(&self) -> Option<Document> {
        let mut document = self.current.clone()?;
        // A redirect has the same request, and cookies of its own: they are not the document's.
        if let Some((id, status, cookies)) = &self.cookies
            && *id == document.id
            && *status == document.status
        {
            document.headers.extend(cookies.iter().cloned());
        }
        document.requests = host_of(&document.url).and_then(|host| self.asked.get(&host)).map_or(1, |asked| *asked);
        Some(document)
    }

    /// Where the page stands at `now`.
    pub(super) fn state(&self, now: Instant) -> State {
        match &self.stopped {
            Some(End::Raw(request)) => return State::Raw(request.clone()),
            Some(End::Bodyless) => return State::Bodyless,
            Some(End::Failed(failure)) => return State::Failed(failure.clone()),
            None => {}
        }
        if let Some((at, failure)) = &self.aborted {
            let until = *at + ABORT_GRACE;
            return if now >= until { State::Failed(failure.clone()) } else { State::Wait(until) };
        }
        let readable = self.current.as_ref().is_some_and(|d| d.committed && d.finished);
        let give_in = match self.loaded {
            Some(at) => self.patience.give_in.min(at + self.patience.after_load),
            None => self.patience.give_in,
        };
        if readable && now >= give_in {
            return State::Ready;
        }
        if !readable {
            // The deadline, which is the tab's, ends this.
            return if now < give_in { State::Wait(give_in) } else { State::Stuck(now + STOP_EVERY) };
        }
        if self.loaded.is_some() && self.in_flight.is_empty() {
            let until = self.changed + self.patience.quiet;
            return if now >= until { State::Ready } else { State::Wait(until.min(give_in)) };
        }
        State::Wait(give_in)
    }

    /// The navigation was refused before it made a request.
    pub(super) fn on_navigate_error(&mut self, error_text: &str, url: &str, now: Instant) {
        if self.stopped.is_none() && self.aborted.is_none() {
            let url = self.current.as_ref().map_or(url, |d| &d.url).to_owned();
            self.fail_or_abort(error_text, &url, now);
        }
    }

    /// Takes one event in.
    pub(super) fn on(&mut self, event: &Event, now: Instant) -> Action {
        match event.method.as_str() {
            "Network.requestWillBeSent" => self.with(event, now, Self::on_request),
            "Network.responseReceivedExtraInfo" => self.with(event, now, Self::on_extra_info),
            "Network.dataReceived" => self.with(event, now, Self::on_data),
            "Network.loadingFinished" => self.with(event, now, Self::on_finished),
            "Network.loadingFailed" => self.with(event, now, Self::on_failed),
            "Fetch.requestPaused" => self.with(event, now, Self::on_paused),
            "Fetch.authRequired" => self.with(event, now, Self::on_auth),
            "Page.frameNavigated" => self.with(event, now, Self::on_navigated),
            "Page.loadEventFired" => {
                if self.current.as_ref().is_some_and(|d| d.committed) {
                    self.loaded = Some(now);
                }
                Action::None
            }
            "Page.javascriptDialogOpening" => self.with(event, now, Self::on_dialog),
            "Inspector.targetCrashed" => self.gone("the tab crashed"),
            "Target.detachedFromTarget" => self.gone("the tab closed"),
            _ => Action::None,
        }
    }

    /// Reads an event that a newer Chromium may have changed: what does not read is passed over.
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
        // A stream of events or a socket stays open for as long as the page does: it says nothing about being done.
        let endless = matches!(event.kind.as_deref(), Some("EventSource" | "WebSocket" | "Ping"));
        // The end of a frame's document is told elsewhere when the frame has a process of its own. The load event waits for it.
        let framed = event.kind.as_deref() == Some("Document")
            && event.frame_id.as_deref().is_some_and(|frame| frame != self.main_frame);
        // What is in the page already needs no network, and the end of a worker's script is told to the worker.
        let inside = ["blob:", "data:"].iter().any(|scheme| event.request.url.starts_with(scheme));
        if !inside && let Some(host) = host_of(&event.request.url) {
            // A page that asks for more hosts than any does is counted for those that came first.
            if self.asked.len() < HOSTS_MAX || self.asked.contains_key(&host) {
                let asked = self.asked.entry(host).or_default();
                *asked = asked.saturating_add(1);
            }
        }
        if !endless
            && !framed
            && !inside
            && !self.done.contains(&event.request_id)
            && self.in_flight.insert(event.request_id.clone())
        {
            self.changed = now;
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
                self.fail_past(LimitMet::Redirects(max), ErrorKind::RedirectLoop, format!("more than {max} redirects"));
            }
        }
        Action::None
    }

    fn start(&mut self, id: String, url: String) {
        let old = self.current.replace(Document { id, url, ..Document::default() });
        if let Some(old) = old.filter(|d| d.committed) {
            self.previous = Some(old);
        }
    }

    /// Chromium keeps cookies out of all other events.
    fn on_extra_info(&mut self, event: ExtraInfo, _now: Instant) -> Action {
        let cookies = event.headers.into_iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
        let cookies: Vec<Header> = cookies
            .filter_map(|(name, value)| Some((name, value.as_str()?.to_owned())))
            .flat_map(|(name, values)| values.lines().map(|v| Header::new(&*name, v)).collect::<Vec<_>>())
            .collect();
        if self.current.as_ref().is_some_and(|d| d.id == event.request_id) {
            self.cookies = Some((event.request_id, event.status_code, cookies));
        }
        Action::None
    }

    fn on_data(&mut self, event: Data, _now: Instant) -> Action {
        let Some(current) = self.current.as_mut().filter(|d| d.id == event.request_id) else { return Action::None };
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
        if let Some(current) = self.current.as_mut().filter(|d| d.id == event.request_id) {
            current.finished = true;
        }
        Action::None
    }

    fn on_failed(&mut self, event: Failed, now: Instant) -> Action {
        self.ended(&event.request_id, now);
        let Some(current) = self.current.as_mut().filter(|d| d.id == event.request_id) else { return Action::None };
        current.finished = true;
        if matches!(self.stopped, Some(End::Raw(_))) {
            current.truncated = true;
        } else if current.committed {
            // It broke off; a script that stopped it (`window.stop()`) or another navigation is no fault of the
            // server's.
            current.truncated = !errors::is_abort(&event.error_text);
            // Nothing more comes, the load event included.
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
        let answered = self.current.as_ref().is_some_and(|d| d.status.is_some());
        if answered && error_text.contains("ERR_HTTP_RESPONSE_CODE_FAILURE") {
            // An error status without a body, for which Chromium would show a page of its own.
            self.stop(End::Bodyless);
        } else if !errors::is_abort(error_text) {
            self.stop(End::Failed(failure));
        } else if let Some(previous) = self.previous.take() {
            self.current = Some(previous);
        } else {
            self.aborted = Some((now, Failure { message: "the navigation was given up".to_owned(), ..failure }));
        }
    }

    fn on_paused(&mut self, event: Paused, _now: Instant) -> Action {
        let request = event.request_id;
        let main = event.frame_id.as_deref() == Some(self.main_frame.as_str())
            && event.resource_type.as_deref() == Some("Document");
        let Some(status) = event.response_status_code.filter(|_| main && self.stopped.is_none()) else {
            return Action::Continue(request);
        };
        if let Some(id) = event.network_id
            && self.current.as_ref().is_none_or(|d| d.id != id)
        {
            self.start(id, event.request.url.clone());
        }
        let Some(current) = &mut self.current else { return Action::Continue(request) };
        let headers: Vec<Header> =
            event.response_headers.unwrap_or_default().into_iter().map(|h| Header::new(h.name, h.value)).collect();
        // Through a tunnel the proxy says nothing: such a header is a server's.
        let signed = header(&headers, ERROR_HEADER).filter(|_| event.request.url.starts_with("http://"));
        if let Some(kind) = signed.and_then(|value| own_failure(value, &self.proxy_mark)) {
            let message = format!("the proxy says {kind}");
            let failure = Failure { ask_proxy: Some(event.request.url), ..Failure::new(kind, message) };
            self.stop(End::Failed(failure));
            return Action::None;
        }
        if matches!(status, 301 | 302 | 303 | 307 | 308) && header(&headers, "location").is_some() {
            return Action::Continue(request);
        }
        current.url = event.request.url;
        current.status = Some(status);
        current.headers = headers;
        let headers = &current.headers;
        let head_bytes: usize = headers.iter().map(|h| h.name.len() + h.value.len() + 4).sum();
        let announced = header(headers, "content-length").and_then(|n| n.trim().parse::<u64>().ok());
        if head_bytes > self.limits.max_headers {
            let max = self.limits.max_headers;
            let message = format!("the headers are longer than {max} bytes");
            self.fail_past(LimitMet::Headers(max), ErrorKind::TooLarge, message);
        } else if announced.is_some_and(|n| n > self.limits.max_body) {
            self.fail_too_long();
        } else if matches!(status, 204 | 205 | 304) {
            self.stop(End::Bodyless);
        } else if !is_rendered(headers) {
            self.stop(End::Raw(request));
        } else {
            return Action::Continue(request);
        }
        // The request stays paused: the tab reads its body, or goes away.
        Action::None
    }

    /// Only the proxy has a password; a server that asks for one gets none, and its 401 is the page.
    fn on_auth(&mut self, event: AuthRequired, _now: Instant) -> Action {
        let to_proxy = event.auth_challenge.source.as_deref() == Some("Proxy")
            && self.authenticated.insert(event.request_id.clone());
        Action::Authenticate { request: event.request_id, to_proxy }
    }

    fn on_navigated(&mut self, event: Navigated, now: Instant) -> Action {
        let frame = event.frame;
        if frame.parent_id.is_none()
            && frame.unreachable_url.is_none()
            && let Some(current) = self.current.as_mut().filter(|d| d.id == frame.loader_id)
        {
            current.committed = true;
            self.previous = None;
            self.loaded = None;
            self.changed = now;
        }
        Action::None
    }

    fn on_dialog(&mut self, event: Dialog, _now: Instant) -> Action {
        // "Leave this page?" is answered with yes, all else with no.
        Action::CloseDialog { accept: event.kind == "beforeunload" }
    }

    fn gone(&mut self, message: &str) -> Action {
        self.fail(ErrorKind::NetworkError, message.to_owned());
        Action::None
    }

    fn fail(&mut self, kind: ErrorKind, message: String) {
        self.stop(End::Failed(Failure::new(kind, message)));
    }

    fn fail_past(&mut self, limit: LimitMet, kind: ErrorKind, message: String) {
        self.stop(End::Failed(Failure::past(limit, kind, message)));
    }

    fn fail_too_long(&mut self) {
        let max = self.limits.max_body;
        self.fail_past(LimitMet::Body(max), ErrorKind::TooLarge, format!("the body is longer than {max} bytes"));
    }

    /// The first end stands.
    fn stop(&mut self, state: End) {
        self.stopped.get_or_insert(state);
    }

    fn ended(&mut self, request: &str, now: Instant) {
        if self.in_flight.remove(request) {
            self.changed = now;
        }
        self.done.insert(request.to_owned());
    }
}

/// Whether a browser makes a document of it. All else (PDF, JSON, images, feeds, attachments) is wanted as the bytes
/// that came, not as what a viewer makes of them.
fn is_rendered(headers: &[Header]) -> bool {
    let attachment = header(headers, "content-disposition")
        .is_some_and(|v| v.trim_start().get(..10).is_some_and(|start| start.eq_ignore_ascii_case("attachment")));
    let essence = header(headers, "content-type")
        .and_then(|v| v.split(';').next())
        .map(|v| v.trim().to_ascii_lowercase())
        .filter(|v| v.contains('/'));
    // Without a type the browser looks at the bytes; what it does not render it would download, which ends as given up.
    !attachment && essence.is_none_or(|e| e == "text/html" || e == "application/xhtml+xml")
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WillBeSent {
    request_id: String,
    #[serde(default)]
    loader_id: String,
    frame_id: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    request: Target,
}

#[derive(Deserialize)]
struct Target {
    url: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExtraInfo {
    request_id: String,
    status_code: Option<u16>,
    #[serde(default)]
    headers: serde_json::Map<String, serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    request_id: String,
    data_length: u64,
    #[serde(default)]
    encoded_data_length: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Finished {
    request_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Failed {
    request_id: String,
    #[serde(default)]
    error_text: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Paused {
    request_id: String,
    network_id: Option<String>,
    frame_id: Option<String>,
    resource_type: Option<String>,
    request: Target,
    response_status_code: Option<u16>,
    response_headers: Option<Vec<HeaderEntry>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuthRequired {
    request_id: String,
    auth_challenge: Challenge,
}

#[derive(Deserialize)]
struct Challenge {
    source: Option<String>,
}

#[derive(Deserialize)]
struct HeaderEntry {
    name: String,
    value: String,
}

#[derive(Deserialize)]
struct Navigated {
    frame: Frame,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Frame {
    parent_id: Option<String>,
    #[serde(default)]
    loader_id: String,
    unreachable_url: Option<String>,
}

#[derive(Deserialize)]
struct Dialog {
    #[serde(rename = "type")]
    kind: String,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    /// A watch, and a clock in milliseconds.
    struct Tape {
        watch: Watch,
        start: Instant,
    }

    impl Tape {
        fn new() -> Self {
            let start = Instant::now();
            let patience = Patience {
                quiet: Duration::from_millis(500),
                after_load: Duration::from_secs(10),
                give_in: start + Duration::from_secs(20),
            };
            let limits = Limits { max_body: 1000, max_redirects: 2, ..Limits::default() };
            Self { watch: Watch::new("top".to_owned(), "mark".to_owned(), limits, patience, start), start }
        }

        fn at(&self, ms: u64) -> Instant {
            self.start + Duration::from_millis(ms)
        }

        fn on(&mut self, ms: u64, method: &str, params: Value) -> Action {
            let event = serde_json::from_value(json!({"method": method, "sessionId": "s", "params": params})).unwrap();
            self.watch.on(&event, self.at(ms))
        }

        fn request(&mut self, ms: u64, id: &str, url: &str, kind: &str) {
            let params =
                json!({"requestId": id, "loaderId": id, "frameId": "top", "type": kind, "request": {"url": url}});
            self.on(ms, "Network.requestWillBeSent", params);
        }

        fn response(&mut self, ms: u64, id: &str, url: &str, status: u16, headers: Value) -> Action {
            let params = json!({"requestId": format!("paused-{id}"), "networkId": id, "frameId": "top",
                "resourceType": "Document", "request": {"url": url}, "responseStatusCode": status, "responseHeaders": headers});
            self.on(ms, "Fetch.requestPaused", params)
        }

        /// A page that is there and loaded at `ms`.
        fn page(&mut self, ms: u64, id: &str) {
            self.request(ms, id, "http://a/", "Document");
            let headers = json!([{"name": "Content-Type", "value": "text/html"}]);
            assert_eq!(self.response(ms, id, "http://a/", 200, headers), Action::Continue(format!("paused-{id}")));
            self.on(ms, "Page.frameNavigated", json!({"frame": {"id": "top", "loaderId": id, "url": "http://a/"}}));
            self.on(ms, "Network.loadingFinished", json!({"requestId": id}));
            self.on(ms, "Page.loadEventFired", json!({}));
        }

        fn failure(&self, ms: u64) -> ErrorKind {
            match self.watch.state(self.at(ms)) {
                State::Failed(failure) => failure.kind,
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_page_is_ready_when_its_network_was_quiet_for_long_enough() {
        let mut tape = Tape::new();
        tape.page(100, "d");
        assert_eq!(tape.watch.state(tape.at(599)), State::Wait(tape.at(600)));
        tape.request(400, "x", "http://a/x", "Fetch");
        assert_eq!(tape.watch.state(tape.at(2000)), State::Wait(tape.at(10_100)), "x is under way");
        tape.on(3000, "Network.loadingFailed", json!({"requestId": "x", "errorText": "net::ERR_ABORTED"}));
        assert_eq!(tape.watch.state(tape.at(3499)), State::Wait(tape.at(3500)));
        assert_eq!(tape.watch.state(tape.at(3500)), State::Ready);
    }

    #[test]
    fn a_page_that_is_never_quiet_is_ready_at_the_end_of_patience() {
        let mut tape = Tape::new();
        tape.page(100, "d");
        tape.request(400, "x", "http://a/x", "Fetch");
        assert_eq!(tape.watch.state(tape.at(10_100)), State::Ready);
    }

    #[test]
    fn requests_that_never_end_by_design_are_not_waited_for() {
        let mut tape = Tape::new();
        tape.page(100, "d");
        tape.request(400, "x", "http://a/x", "EventSource");
        // The end of a request may be told before its beginning.
        tape.on(400, "Network.loadingFinished", json!({"requestId": "y"}));
        tape.request(410, "y", "http://a/y", "Image");
        assert_eq!(tape.watch.state(tape.at(600)), State::Ready);
    }

    #[test]
    fn frames_and_workers_whose_end_is_told_elsewhere_are_not_waited_for() {
        let mut tape = Tape::new();
        tape.request(0, "d", "http://a/", "Document");
        let params = json!({"requestId": "i", "loaderId": "i", "frameId": "inner", "type": "Document",
            "request": {"url": "http://b/"}});
        tape.on(50, "Network.requestWillBeSent", params);
        tape.request(60, "w", "blob:http://a/1234", "Script");
        tape.page(100, "d");
        assert_eq!(tape.watch.state(tape.at(600)), State::Ready);
    }

    #[test]
    fn a_script_is_stopped_only_when_patience_ends_before_the_document_is_there() {
        let mut tape = Tape::new();
        tape.request(0, "d", "http://a/", "Document");
        assert_eq!(tape.watch.state(tape.at(19_999)), State::Wait(tape.at(20_000)));
        assert!(matches!(tape.watch.state(tape.at(20_000)), State::Stuck(_)));
    }

    #[test]
    fn the_document_is_the_last_one_that_came() {
        let mut tape = Tape::new();
        tape.page(0, "d");
        tape.page(100, "e");
        assert_eq!(tape.watch.state(tape.at(600)), State::Ready);
        assert_eq!(tape.watch.document().unwrap().id, "e");
        // A download that is given up leaves the page where it was.
        tape.request(700, "f", "http://a/f", "Document");
        tape.on(800, "Network.loadingFailed", json!({"requestId": "f", "errorText": "net::ERR_ABORTED"}));
        assert_eq!(tape.watch.state(tape.at(1300)), State::Ready);
        assert_eq!(tape.watch.document().unwrap().id, "e");
    }

    #[test]
    fn a_navigation_that_is_given_up_is_a_failure_unless_another_one_follows() {
        let mut tape = Tape::new();
        tape.request(0, "d", "http://a/", "Document");
        tape.on(10, "Network.loadingFailed", json!({"requestId": "d", "errorText": "net::ERR_ABORTED"}));
        assert!(matches!(tape.watch.state(tape.at(20)), State::Wait(_)));
        assert_eq!(tape.failure(1000), ErrorKind::NetworkError);
        tape.page(400, "e");
        assert_eq!(tape.watch.state(tape.at(1000)), State::Ready);
    }

    #[test]
    fn redirects_of_every_sort_count_as_hops() {
        let mut tape = Tape::new();
        tape.request(0, "d", "http://a/1", "Document");
        tape.request(1, "d", "http://a/2", "Document");
        tape.request(2, "e", "http://a/3", "Document");
        assert!(matches!(tape.watch.state(tape.at(3)), State::Wait(_)), "two are allowed");
        tape.request(3, "f", "http://a/4", "Document");
        assert_eq!(tape.failure(4), ErrorKind::RedirectLoop);
    }

    #[test]
    fn a_documents_cookies_are_its_own_and_not_its_redirects() {
        let mut tape = Tape::new();
        tape.request(0, "d", "http://a/1", "Document");
        let extra = |status, cookie| json!({"requestId": "d", "statusCode": status, "headers": {"Set-Cookie": cookie}});
        tape.on(1, "Network.responseReceivedExtraInfo", extra(302, "r=1"));
        tape.response(2, "d", "http://a/2", 200, json!([]));
        assert_eq!(tape.watch.document().unwrap().headers, []);
        tape.on(3, "Network.responseReceivedExtraInfo", extra(200, "a=1\nb=2"));
        let cookies = [Header::new("Set-Cookie", "a=1"), Header::new("Set-Cookie", "b=2")];
        assert_eq!(tape.watch.document().unwrap().headers, cookies);
    }

    #[test]
    fn only_the_main_frames_html_is_rendered() {
        let pdf = json!([{"name": "content-type", "value": "application/pdf"}]);
        let mut tape = Tape::new();
        tape.request(0, "d", "http://a/", "Document");
        assert_eq!(tape.response(1, "d", "http://a/", 200, pdf.clone()), Action::None);
        assert_eq!(tape.watch.state(tape.at(2)), State::Raw("paused-d".to_owned()));

        let mut tape = Tape::new();
        tape.page(0, "d");
        let params = json!({"requestId": "p", "networkId": "i", "frameId": "inner", "resourceType": "Document",
            "request": {"url": "http://a/i"}, "responseStatusCode": 200, "responseHeaders": pdf});
        assert_eq!(tape.on(1, "Fetch.requestPaused", params), Action::Continue("p".to_owned()));
        assert_eq!(tape.watch.state(tape.at(501)), State::Ready);
    }

    #[test]
    fn limits_and_the_proxys_refusals_end_it_and_the_first_end_stands() {
        for (headers, kind) in [
            (json!([{"name": "content-length", "value": "1001"}]), ErrorKind::TooLarge),
            (json!([{"name": "x", "value": "y".repeat(70_000)}]), ErrorKind::TooLarge),
            (json!([{"name": ERROR_HEADER, "value": "refused_address mark"}]), ErrorKind::RefusedAddress),
        ] {
            let mut tape = Tape::new();
            tape.request(0, "d", "http://a/", "Document");
            assert_eq!(tape.response(1, "d", "http://a/", 200, headers), Action::None);
            tape.on(2, "Inspector.targetCrashed", json!({}));
            assert_eq!(tape.failure(3), kind);
        }
        let mut tape = Tape::new();
        tape.request(0, "d", "http://a/", "Document");
        tape.on(1, "Network.dataReceived", json!({"requestId": "d", "dataLength": 1001, "encodedDataLength": 1}));
        assert_eq!(tape.failure(2), ErrorKind::TooLarge);
    }

    #[test]
    fn a_server_cannot_speak_for_the_proxy() {
        for (url, value) in
            [("https://a/", "dns_error mark"), ("http://a/", "dns_error"), ("http://a/", "dns_error mask")]
        {
            let mut tape = Tape::new();
            tape.request(0, "d", url, "Document");
            let headers =
                json!([{"name": ERROR_HEADER, "value": value}, {"name": "Content-Type", "value": "text/html"}]);
            assert_eq!(
                tape.response(1, "d", url, 403, headers),
                Action::Continue("paused-d".to_owned()),
                "{url} {value}"
            );
        }
    }

    #[test]
    fn the_proxy_is_told_its_password_once_and_a_server_none() {
        let mut tape = Tape::new();
        let mut asks = |source: &str| {
            let params = json!({"requestId": "r", "authChallenge": {"source": source, "origin": "http://127.0.0.1:1",
                "scheme": "basic", "realm": "r"}});
            tape.on(0, "Fetch.authRequired", params)
        };
        let answer = |to_proxy| Action::Authenticate { request: "r".to_owned(), to_proxy };
        assert_eq!(asks("Server"), answer(false));
        assert_eq!(asks("Proxy"), answer(true));
        assert_eq!(asks("Proxy"), answer(false), "what is asked again is not the proxy's question");
    }

    #[test]
    fn events_that_make_no_sense_are_passed_over() {
        let mut tape = Tape::new();
        for method in ["Network.requestWillBeSent", "Fetch.requestPaused", "Page.frameNavigated", "Page.new", ""] {
            for params in [json!(null), json!([]), json!({"requestId": 7}), json!({"frame": {}})] {
                tape.on(0, method, params);
            }
        }
        tape.page(100, "d");
        assert_eq!(tape.watch.state(tape.at(600)), State::Ready);
    }
}
