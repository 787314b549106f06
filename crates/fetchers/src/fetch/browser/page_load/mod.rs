//! What happens in a tab while a page loads, as a state machine: events go in, what to do about them comes out.
//!
//! It owns the questions "which document is the page now", "did it fail", "is it done". It reads no clock and talks to
//! nobody: the tab does both, which is why all of this can be tested without a browser.

mod document;
mod events;

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

pub(super) use document::Document;
use document::{host_of, is_rendered};
use events::{AuthRequired, Data, Dialog, ExtraInfo, Failed, Finished, Navigated, Paused, WillBeSent};

use super::cdp::Event;
use super::errors;
use crate::fetch::proxy::{ERROR_HEADER, own_failure};
use crate::fetch::{LimitMet, Limits};
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::response::{Header, header};

/// How long a navigation that was given up may wait for the one that takes its place.
const ABORT_GRACE: Duration = Duration::from_millis(500);
/// How often a script that keeps the page from getting on is stopped.
const STOP_EVERY: Duration = Duration::from_millis(500);
/// Decoded bytes from which the decompression ratio is looked at.
const RATIO_FROM: u64 = 1 << 20;
/// Requests are counted for so many hosts of a page.
const MAX_HOSTS: usize = 256;

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
            if self.asked.len() < MAX_HOSTS || self.asked.contains_key(&host) {
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

#[cfg(test)]
mod tests;
