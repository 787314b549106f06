//! One fetch in one tab: an incognito context without cookies, a navigation, a wait, the document's
//! text (or the received bytes), and the end of the tab.
//!
//! The page load state machine interprets the events; this file carries out its actions and moves
//! the bytes.
//!
//! Invariants: every wait ends with the browser or is cut off by the caller's deadline. Dropping
//! the future disposes of the tab.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::sync::mpsc;
use url::Url;

use super::cdp::{CallError, Cdp, Event};
use super::context_pool::Context;
use super::options::{BrowserSigning, SignatureScope};
use super::protocol::{
    AddScriptToEvaluateOnNewDocument, AttachToTarget, AuthChallengeResponse, BlockPattern,
    ClearDataForOrigin, CloseTarget, Command, ContinueRequest, ContinueWithAuth,
    CreateIsolatedWorld, CreateTarget, EnableFetch, EnableInspector, EnableNetwork, EnablePage,
    Evaluate, FailRequest, GetProcessInfo, HandleJavaScriptDialog, HeaderEntry, Navigate,
    ReadStream, RequestPattern, SetBlockedUrls, SetBypassServiceWorker, SetUserAgentOverride,
    TakeResponseBodyAsStream, TerminateExecution,
};
use crate::fetch::body::{Body, BodyCollector, BodyError};
use crate::fetch::browser::page_load::{
    Action, Document, Failure, LoadState, OutgoingRequest, PageLoad,
};
use crate::fetch::browser::settle::{self, ChangeCheck, Look, SettleCheck};
use crate::fetch::browser::starvation::ProcessorTimes;
use crate::fetch::host_headers::HostHeaders;
use crate::fetch::proxy::FilteringProxy;
use crate::fetch::signing::{RequestSigner, SIGNATURE};
use crate::fetch::{LimitMet, Limits, Request};
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::response::{Header, Page, header};

/// Serializes the document's text and returns its length.
const SERIALIZE: &str = include_str!("dom.js");
/// Runs in each document before its own scripts.
const INIT: &str = include_str!("init.js");
/// UTF-16 units of the document's text per read.
const TEXT_CHUNK: usize = 1 << 19;
/// Bytes of a raw body per read.
const RAW_CHUNK: u64 = 1 << 18;
/// Time for a page to respond before its script is stopped; doubled each time.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(400);
/// Time for a page to serialize its document; a large one needs more.
const SERIALIZE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of repeated reads when the document changes during a read.
const MAX_READS: u32 = 4;
/// Interval of the looks at a page that has nothing to read yet.
const LOOK_EVERY: Duration = Duration::from_millis(150);

/// Settings of a tab besides loading a page.
#[derive(Clone, Debug, Default)]
pub(super) struct Identity {
    /// Sent as `User-Agent` and visible to scripts.
    pub(super) user_agent: Option<String>,
    /// Runs in each document before its own scripts.
    pub(super) init_script: Option<String>,
    /// Signs requests.
    pub(super) signing: Option<BrowserSigning>,
    /// Headers of requests to some hosts.
    pub(super) host_headers: HostHeaders,
    /// Whether this process started the browser, so that the ids of its processes are those of this
    /// machine.
    pub(super) is_child: bool,
}

/// A loaded page, before it becomes a response.
pub(super) struct LoadedPage {
    pub(super) document: Document,
    pub(super) body: Body,
    /// Original encoding, if the body is the document's text and that encoding is not UTF-8. The
    /// body is always in UTF-8.
    pub(super) original_encoding: Option<String>,
}

/// A tab in a context, which is disposed of when this is dropped.
pub(super) struct Tab {
    cdp: Cdp,
    /// None once the tab is closed.
    context: Option<Context>,
    session: String,
    target: String,
    /// User and password for the proxy.
    credentials: (String, String),
    signer: Option<RequestSigner>,
    host_headers: HostHeaders,
    is_child: bool,
    events: mpsc::UnboundedReceiver<Event>,
}

impl Drop for Tab {
    fn drop(&mut self) {
        self.cdp.forget(&self.session);
    }
}

impl Tab {
    /// Opens a tab in a separate context and configures it. All its requests go to `proxy` if there
    /// is one. `reused` is a context that has loaded other pages of the origin.
    pub(super) async fn open(
        cdp: &Cdp,
        (proxy, is_filtered): (&FilteringProxy, bool),
        identity: &Identity,
        reused: Option<Context>,
    ) -> Result<Self, CallError> {
        let context = match reused {
            Some(context) => {
                context.clear_cookies().await?;
                context
            }
            None => Context::create(cdp, is_filtered.then_some(proxy)).await?,
        };
        let target = CreateTarget { url: "about:blank", browser_context_id: context.id.clone() };
        let target = cdp.call(None, target).await?.target_id;
        let attach = AttachToTarget { target_id: target.clone(), flatten: true };
        let session = cdp.call(None, attach).await?.session_id;
        let events = cdp.listen(&session);
        let (user, password) = proxy.credentials();
        let credentials = (user.to_owned(), password.to_owned());
        let signer = identity.signing.as_ref().map(|signing| signing.signer.clone());
        let (host_headers, is_child) = (identity.host_headers.clone(), identity.is_child);
        let (cdp, context) = (cdp.clone(), Some(context));
        let tab = Self {
            cdp,
            context,
            session,
            target,
            credentials,
            signer,
            host_headers,
            is_child,
            events,
        };
        for origin in tab.context.iter().flat_map(|context| &context.origins) {
            tab.set(ClearDataForOrigin { origin: origin.clone(), storage_types: "all" }).await?;
        }
        tab.set_up(identity).await?;
        Ok(tab)
    }

    /// Closes the tab. Returns its context, which has loaded these pages.
    pub(super) fn close(mut self, pages: [&Url; 2]) -> Option<Context> {
        self.cdp.send(None, CloseTarget { target_id: self.target.clone() });
        let mut context = self.context.take()?;
        pages.into_iter().for_each(|page| context.record(page));
        Some(context)
    }

    /// Configures the tab and waits for each reply: a page sends events only after its process
    /// received the command, and processes reply in any order.
    async fn set_up(&self, identity: &Identity) -> Result<(), CallError> {
        let documents = |stage| RequestPattern {
            resource_type: Some("Document"),
            url_pattern: None,
            request_stage: stage,
        };
        // Chromium reports who requires a password only if it also pauses requests. The first
        // request of a context is for a document; for all others it remembers the credentials for
        // the proxy.
        let mut patterns = vec![documents("Request"), documents("Response")];
        patterns.extend(identity.signing.iter().flat_map(signed_patterns));
        patterns.extend(host_patterns(&identity.host_headers));
        let intercept = EnableFetch { patterns, handle_auth_requests: true };
        let user_agent = async {
            match &identity.user_agent {
                Some(user_agent) => {
                    self.set(SetUserAgentOverride { user_agent: user_agent.clone() }).await
                }
                None => Ok(()),
            }
        };
        let init_script = async {
            match &identity.init_script {
                Some(script) => {
                    self.set(AddScriptToEvaluateOnNewDocument { source: script.clone() }).await
                }
                None => Ok(()),
            }
        };
        tokio::try_join!(
            self.set(EnablePage {}),
            self.set(EnableInspector {}),
            // Post data would be part of each request event.
            self.set(EnableNetwork { max_post_data_size: 0 }),
            self.set(SetBypassServiceWorker { bypass: true }),
            self.set(intercept),
            self.set(AddScriptToEvaluateOnNewDocument { source: INIT.to_owned() }),
            user_agent,
            init_script,
        )?;
        // The only request that Chromium makes itself. A Chromium without such patterns is not a
        // failure.
        let icon = BlockPattern { url_pattern: "*://*:*/favicon.ico", block: true };
        let _ = self.set(SetBlockedUrls { url_patterns: vec![icon] }).await;
        Ok(())
    }

    async fn set<C: Command>(&self, command: C) -> Result<(), CallError> {
        self.cdp.call(Some(&self.session), command).await.map(drop)
    }

    /// Returns the top frame, which has the name of the tab.
    pub(super) fn main_frame(&self) -> String {
        self.target.clone()
    }

    /// Navigates and waits until the page is done, or is read as it is. Never returns if the server
    /// does not respond.
    pub(super) async fn load(
        &mut self,
        load: &mut PageLoad,
        request: Request<'_>,
    ) -> Result<LoadedPage, Failure> {
        let cdp = self.cdp.clone();
        let session = self.session.clone();
        let (url, limits) = (request.url.as_str(), request.limits);
        let navigate = Navigate { url: url.to_owned() };
        let mut navigation = Box::pin(async move { cdp.call(Some(&session), navigate).await });
        let mut navigating = true;
        let mut reading = Reading::default();
        loop {
            let wake = match load.state(Instant::now()) {
                LoadState::Failed(failure) => return Err(failure),
                LoadState::Raw(request) => return self.read_raw(load, &request, limits).await,
                LoadState::Bodyless => return loaded(load, Body::in_memory(Vec::new()), None),
                LoadState::Ready => match self.read(load, request, &mut reading).await? {
                    Some(page) => return Ok(page),
                    None => continue,
                },
                LoadState::Wait(until) => until,
                LoadState::Stuck(until) => {
                    self.send(TerminateExecution {});
                    until
                }
            };
            tokio::select! {
                answer = &mut navigation, if navigating => {
                    navigating = false;
                    match answer {
                        Ok(answer) => if let Some(error) = answer.error_text {
                            load.on_navigate_error(&error, url, Instant::now());
                        },
                        Err(CallError::Closed) => return Err(browser_ended()),
                        Err(error) => return Err(failure(ErrorKind::InvalidUrl, &error.to_string())),
                    }
                }
                event = self.events.recv() => match event {
                    Some(event) => self.act(load, &event),
                    None => return Err(browser_ended()),
                },
                () = tokio::time::sleep_until(until_instant(wake)) => {}
            }
        }
    }

    /// Takes the next step of reading a page whose network is quiet; none if there is more to wait
    /// for.
    async fn read(
        &mut self,
        load: &mut PageLoad,
        request: Request<'_>,
        reading: &mut Reading,
    ) -> Result<Option<LoadedPage>, Failure> {
        if !reading.is_settled {
            reading.is_settled = self.settle(load, &mut reading.settling).await?;
            return Ok(None);
        }
        match self.read_document(load, request.limits).await {
            // The page moved on to another document: wait for that one.
            Err(ReadError::DocumentReplaced) if reading.replaced < MAX_READS => {
                *reading = Reading { replaced: reading.replaced + 1, ..Reading::default() };
                Ok(None)
            }
            Err(ReadError::DocumentReplaced) => {
                Err(failure(ErrorKind::Timeout, "the page keeps changing"))
            }
            Err(ReadError::Failed(failure)) => Err(failure),
            Ok((body, original_encoding)) => {
                let has_refresh = load
                    .document()
                    .is_some_and(|document| header(&document.headers, "refresh").is_some());
                let shown = reading.settling.last().filter(|look| look.may_change() || has_refresh);
                let has_time = Instant::now() < load.read_at_latest();
                if let Some(shown) =
                    shown.filter(|shown| has_time && is_unfinished(load, request, &body, shown))
                {
                    self.await_change(load, shown).await?;
                    *reading = Reading { replaced: reading.replaced, ..Reading::default() };
                    return Ok(None);
                }
                loaded(load, body, original_encoding).map(Some)
            }
        }
    }

    /// Waits until a page with nothing to read shows something else, makes requests, or has no time
    /// left. Sockets, streams of events and timers are waited for like this: their text shows, and
    /// nothing else of them does.
    async fn await_change(&mut self, load: &mut PageLoad, shown: Look) -> Result<(), Failure> {
        let mut check = ChangeCheck::new(shown);
        loop {
            let next_look = Instant::now() + LOOK_EVERY;
            while Instant::now() < next_look {
                if load.state(Instant::now()) != LoadState::Ready
                    || Instant::now() >= load.read_at_latest()
                {
                    return Ok(());
                }
                match tokio::time::timeout_at(until_instant(next_look), self.events.recv()).await {
                    Ok(Some(event)) => self.act(load, &event),
                    Ok(None) => return Err(browser_ended()),
                    Err(_) => {}
                }
            }
            let until = until_instant(load.read_at_latest());
            match tokio::time::timeout_at(until, self.look(load)).await {
                Ok(Ok(Some(look))) if !check.has_changed(look, load.quiet(), Instant::now()) => {}
                Ok(Err(CallError::Closed)) => return Err(browser_ended()),
                // It has changed, its document was replaced, or its time is over.
                _ => return Ok(()),
            }
        }
    }

    /// Waits until the page's main thread comes around, and returns whether the page can be read:
    /// it has settled, or its time is over.
    ///
    /// # Errors
    /// A local fault if the time is over and the browser had no processor time.
    async fn settle(
        &mut self,
        load: &mut PageLoad,
        settling: &mut SettleCheck,
    ) -> Result<bool, Failure> {
        let until = load.read_at_latest();
        let begun = Instant::now();
        if begun >= until {
            return Ok(true);
        }
        let before = self.processor_times().await;
        match tokio::time::timeout_at(until_instant(until), self.look(load)).await {
            Ok(Ok(Some(look))) => Ok(settling.has_settled(look)),
            // The document was replaced: the load says what comes next.
            Ok(Ok(None)) => Ok(true),
            Ok(Err(CallError::Closed)) => Err(browser_ended()),
            // The read reports what is wrong with the page.
            Ok(Err(_)) => Ok(true),
            Err(_) => {
                let times = self.processor_times().await.zip(before);
                match times {
                    Some((now, before)) if now.is_starved_since(&before, begun.elapsed()) => {
                        let message = "the browser got no processor time for the page's scripts";
                        Err(Failure { local: true, ..failure(ErrorKind::LocalFault, message) })
                    }
                    _ => Ok(true),
                }
            }
        }
    }

    /// Returns what the page shows once its main thread has come around; none if the document was
    /// replaced.
    async fn look(&mut self, load: &mut PageLoad) -> Result<Option<Look>, CallError> {
        let world = CreateIsolatedWorld { frame_id: self.target.clone() };
        let world = self.call(load, world).await?.execution_context_id;
        let expression = settle::LOOK.to_owned();
        let look =
            Evaluate { expression, context_id: world, return_by_value: true, await_promise: true };
        let shown = self.call(load, look).await?.result.value;
        Ok(shown.as_ref().and_then(serde_json::Value::as_str).and_then(Look::parse))
    }

    /// Returns the processor times of the browser; none if it is not this process's own, or does
    /// not tell.
    async fn processor_times(&self) -> Option<ProcessorTimes> {
        if !self.is_child {
            return None;
        }
        let asked = self.cdp.call(None, GetProcessInfo {});
        let processes =
            tokio::time::timeout(RESPONSE_TIMEOUT, asked).await.ok()?.ok()?.process_info;
        let used = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let processes =
            processes.iter().filter_map(|of| Some((u32::try_from(of.id).ok()?, used(of.cpu_time))));
        Some(ProcessorTimes::read(processes))
    }

    /// Processes an event and starts the resulting action. Does not wait.
    fn act(&self, load: &mut PageLoad, event: &Event) {
        let action = load.on(event, Instant::now());
        // Before the next request is signed: the response shows which form its host reads.
        if let (Some(signer), Some((url, headers))) = (&self.signer, load.take_response_head()) {
            signer.observe(&url, None, &header_map(&headers));
        }
        match action {
            Action::None => {}
            Action::Continue(request_id) => {
                self.send(ContinueRequest { request_id, headers: None })
            }
            Action::Cancel(request_id) => {
                self.send(FailRequest { request_id, error_reason: "Aborted" })
            }
            Action::AddHeaders(request) => {
                if let Err(why) = self.add_headers(request) {
                    load.cannot_sign(why);
                }
            }
            Action::Authenticate { request, to_proxy } => {
                let (username, password) = self.credentials.clone();
                let auth_challenge_response = match to_proxy {
                    true => AuthChallengeResponse::ProvideCredentials { username, password },
                    false => AuthChallengeResponse::CancelAuth,
                };
                self.send(ContinueWithAuth { request_id: request, auth_challenge_response });
            }
            Action::CloseDialog { accept } => self.send(HandleJavaScriptDialog { accept }),
        }
    }

    /// Continues a request with a signature, if it is one that is signed, and with the headers of
    /// its host.
    ///
    /// # Errors
    /// The reason why nothing can be signed now. The request stays paused.
    fn add_headers(&self, request: OutgoingRequest) -> Result<(), String> {
        let OutgoingRequest { id: request_id, method, url, headers, is_signed, gets_host_headers } =
            request;
        let given = self.host_headers.for_url(&url).filter(|_| gets_host_headers);
        let has_signature = given.is_some_and(|given| given.contains_key(SIGNATURE));
        let signer = self.signer.as_ref().filter(|_| is_signed && !has_signature);
        let signature =
            signer.map(|signer| signer.sign(&method, &url, None)).transpose()?.flatten();
        let entry =
            |name: &str, value: &str| HeaderEntry { name: name.into(), value: value.into() };
        let signed = signature.iter().flat_map(|signature| signature.headers());
        let mut added: Vec<HeaderEntry> = signed.map(|(name, value)| entry(name, value)).collect();
        let given = given.into_iter().flatten();
        added.extend(
            given.filter_map(|(name, value)| Some(entry(name.as_str(), value.to_str().ok()?))),
        );
        let plain = ContinueRequest { request_id, headers: None };
        if added.is_empty() {
            self.send(plain);
            return Ok(());
        }
        // Scripts of the page can set headers too.
        let is_own = |header: &Header| {
            added.iter().all(|added| !header.name.eq_ignore_ascii_case(&added.name))
        };
        let own = headers
            .into_iter()
            .filter(is_own)
            .map(|header| HeaderEntry { name: header.name, value: header.value });
        let headers = own.collect::<Vec<_>>().into_iter().chain(added).collect();
        let with_headers = ContinueRequest { headers: Some(headers), ..plain.clone() };
        let (cdp, session) = (self.cdp.clone(), self.session.clone());
        // A request whose headers Chromium refuses would stay paused forever.
        tokio::spawn(async move {
            if let Err(CallError::Refused { .. }) = cdp.call(Some(&session), with_headers).await {
                cdp.send(Some(&session), plain);
            }
        });
        Ok(())
    }

    /// Reads the bytes behind a paused request (content-decoded).
    async fn read_raw(
        &mut self,
        load: &mut PageLoad,
        request: &str,
        limits: &Limits,
    ) -> Result<LoadedPage, Failure> {
        let stream =
            self.call(load, TakeResponseBodyAsStream { request_id: request.to_owned() }).await;
        let stream = stream.map_err(|error| call_failure(&error))?.stream;
        let mut collector = BodyCollector::new(limits);
        let mut truncated = false;
        loop {
            let read = ReadStream { handle: stream.clone(), size: RAW_CHUNK };
            let chunk = match self.call(load, read).await {
                Ok(chunk) => chunk,
                // The body broke off: the received part is kept.
                Err(CallError::Refused { .. }) => {
                    truncated = true;
                    break;
                }
                Err(error) => return Err(call_failure(&error)),
            };
            let data = if chunk.base64_encoded == Some(true) {
                STANDARD
                    .decode(&chunk.data)
                    .map_err(|e| failure(ErrorKind::NetworkError, &e.to_string()))?
            } else {
                chunk.data.into_bytes()
            };
            collector.push(&data).await.map_err(body_failure)?;
            if chunk.eof {
                break;
            }
        }
        let body = collector.finish().await.map_err(body_failure)?;
        let mut loaded = loaded(load, body, None)?;
        // Chromium does not report that a body broke off.
        let short =
            loaded.document.announced().is_some_and(|announced| announced > loaded.body.len());
        loaded.document.truncated |= truncated || short;
        Ok(loaded)
    }

    /// Reads the document's text after the page's scripts ran.
    async fn read_document(
        &mut self,
        load: &mut PageLoad,
        limits: &Limits,
    ) -> Result<(Body, Option<String>), ReadError> {
        let world = CreateIsolatedWorld { frame_id: self.target.clone() };
        let world = self.call_busy(load, world, RESPONSE_TIMEOUT).await?.execution_context_id;
        let evaluate = |expression: String| {
            let (return_by_value, await_promise) = (true, false);
            Evaluate { expression, context_id: world, return_by_value, await_promise }
        };
        let summary = self
            .call_busy(load, evaluate(SERIALIZE.to_owned()), SERIALIZE_TIMEOUT)
            .await?
            .result
            .value;
        let summary = summary.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default();
        let Some((units, encoding)) = summary.split_once(' ') else {
            return Err(ReadError::DocumentReplaced);
        };
        let units: usize = units.parse().map_err(|_| ReadError::DocumentReplaced)?;
        if units as u64 > limits.max_body {
            let message = format!("the document is longer than {} bytes", limits.max_body);
            let limit = LimitMet::Body(limits.max_body);
            return Err(ReadError::Failed(Failure::past(limit, ErrorKind::TooLarge, message)));
        }
        let mut collector = BodyCollector::new(limits);
        let original_encoding =
            (!encoding.eq_ignore_ascii_case("utf-8")).then(|| encoding.to_owned());
        if original_encoding.is_some() {
            // The text declares another encoding than it now has; a byte order mark overrides that.
            collector
                .push(b"\xef\xbb\xbf")
                .await
                .map_err(|e| ReadError::Failed(body_failure(e)))?;
        }
        let mut at = 0;
        while at < units {
            // A slice does not end in the middle of a surrogate pair.
            let slice = format!(
                "(() => {{ const t = globalThis.fetchwiseText; let e = Math.min({at} + {TEXT_CHUNK}, t.length); \
                 const c = t.charCodeAt(e - 1); if (e < t.length && c >= 0xD800 && c < 0xDC00) e -= 1; \
                 return t.slice({at}, e); }})()"
            );
            let text = self.call_busy(load, evaluate(slice), SERIALIZE_TIMEOUT).await?.result.value;
            let text = text.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default();
            if text.is_empty() {
                return Err(ReadError::DocumentReplaced);
            }
            at += text.encode_utf16().count();
            collector
                .push(text.as_bytes())
                .await
                .map_err(|e| ReadError::Failed(body_failure(e)))?;
        }
        let body = collector.finish().await.map_err(|e| ReadError::Failed(body_failure(e)))?;
        Ok((body, original_encoding))
    }

    /// Sends a command to a page that may be busy with its own script forever: after a while that
    /// script is stopped.
    async fn call_busy<C: Command + Clone>(
        &mut self,
        load: &mut PageLoad,
        command: C,
        mut timeout: Duration,
    ) -> Result<C::Response, ReadError> {
        loop {
            match tokio::time::timeout(timeout, self.call(load, command.clone())).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(CallError::Refused { .. } | CallError::Garbled { .. })) => {
                    return Err(ReadError::DocumentReplaced);
                }
                Ok(Err(CallError::Closed)) => return Err(ReadError::Failed(browser_ended())),
                Err(_) => {
                    self.send(TerminateExecution {});
                    timeout *= 2;
                }
            }
            if let LoadState::Failed(failure) = load.state(Instant::now()) {
                return Err(ReadError::Failed(failure));
            }
        }
    }

    /// Sends a command and processes events until its reply arrives: an open dialog would otherwise
    /// block it.
    async fn call<C: Command>(
        &mut self,
        load: &mut PageLoad,
        command: C,
    ) -> Result<C::Response, CallError> {
        let cdp = self.cdp.clone();
        let session = self.session.clone();
        let mut answer = Box::pin(async move { cdp.call(Some(&session), command).await });
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => return answer,
                event = self.events.recv() => match event {
                    Some(event) => self.act(load, &event),
                    None => return Err(CallError::Closed),
                },
            }
        }
    }

    fn send<C: Command>(&self, command: C) {
        self.cdp.send(Some(&self.session), command);
    }
}

/// Returns the requests that are paused besides documents, to be signed.
fn signed_patterns(signing: &BrowserSigning) -> Vec<RequestPattern> {
    match signing.scope {
        SignatureScope::Document => Vec::new(),
        _ if signing.signer.signs_loopback() => vec![outgoing("https://*"), outgoing("http://*")],
        _ => vec![outgoing("https://*")],
    }
}

/// Returns the requests that are paused besides documents, to get the headers of their host.
fn host_patterns(headers: &HostHeaders) -> impl Iterator<Item = RequestPattern> {
    headers
        .hosts()
        .flat_map(|host| [format!("https://{host}/*"), format!("https://{host}:*")])
        .map(outgoing)
}

/// Returns the pattern for requests to URLs, before they go out.
fn outgoing(urls: impl Into<Cow<'static, str>>) -> RequestPattern {
    RequestPattern { resource_type: None, url_pattern: Some(urls.into()), request_stage: "Request" }
}

fn header_map(headers: &[Header]) -> HeaderMap {
    let headers = headers.iter().filter_map(|header| {
        Some((
            HeaderName::try_from(&*header.name).ok()?,
            HeaderValue::from_str(&header.value).ok()?,
        ))
    });
    headers.collect()
}

/// How far the reading of a page has come.
#[derive(Default)]
struct Reading {
    is_settled: bool,
    settling: SettleCheck,
    /// How often the document was replaced during a read.
    replaced: u32,
}

/// Returns whether a page has nothing to read yet, or a few words and a socket that may bring the
/// rest.
fn is_unfinished(load: &PageLoad, request: Request<'_>, body: &Body, shown: &Look) -> bool {
    if load.has_open_socket() && shown.is_short() {
        return true;
    }
    let (Some(judge), Some(document)) = (request.judge, load.document()) else {
        return !shown.has_text();
    };
    let Some(status) = document.status else { return false };
    judge.is_unfinished(&Page {
        url: Some(request.url.as_str()),
        final_url: Some(&document.url),
        status,
        headers: &document.headers,
        body: body.head(),
    })
}

/// The reason why the document was not read.
enum ReadError {
    /// The document was replaced meanwhile.
    DocumentReplaced,
    Failed(Failure),
}

fn loaded(
    load: &PageLoad,
    body: Body,
    original_encoding: Option<String>,
) -> Result<LoadedPage, Failure> {
    match load.document() {
        Some(document) => Ok(LoadedPage { document, body, original_encoding }),
        None => Err(failure(ErrorKind::NetworkError, "the page has no document")),
    }
}

fn failure(kind: ErrorKind, message: &str) -> Failure {
    Failure::new(kind, message)
}

fn browser_ended() -> Failure {
    failure(ErrorKind::NetworkError, BROWSER_ENDED)
}

/// Message of a fetch whose browser ended; the fetcher, which holds the process, adds how it ended.
pub(super) const BROWSER_ENDED: &str = "Chromium ended during the fetch";

pub(super) fn call_failure(error: &CallError) -> Failure {
    match error {
        CallError::Closed => browser_ended(),
        other => failure(ErrorKind::NetworkError, &other.to_string()),
    }
}

fn body_failure(error: BodyError) -> Failure {
    match error {
        BodyError::TooLarge { limit } => {
            Failure::past(LimitMet::Body(limit), ErrorKind::TooLarge, error.to_string())
        }
        // The disk is local.
        BodyError::Io(_) => {
            Failure { local: true, ..Failure::new(ErrorKind::NetworkError, error.to_string()) }
        }
    }
}

fn until_instant(at: Instant) -> tokio::time::Instant {
    tokio::time::Instant::from_std(at)
}
