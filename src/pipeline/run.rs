//! One URL's way: decide, fetch, judge, attribute, record; then deliver, retry, escalate or pause.
//!
//! Invariant: each request is recorded once, under the name of the fetcher that made it, before the next one starts.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use tokio::sync::SemaphorePermit;
use url::Url;

use super::flight::{Lead, Role, landed};
use super::hosts::{Admission, Hosts, Trial};
use super::{Available, Link, Pipeline, Report};
use crate::attempt::outcome::{ErrorKind, Next};
use crate::attempt::{Attempt, Hint, Tag, stored_headers};
use crate::backoff::{FetchEnd, LinkState, retry_after};
use crate::decision::{Decision, Rule, Source, Take};
use crate::detect::{self, Scratch};
use crate::fetch::{FetchError, Request, Response};
use crate::heuristic::Heuristic;
use crate::heuristic::url as urls;
use crate::registry::{FetcherId, FetcherSet};
use crate::response::{Header, header};
use crate::router::Mode;
use crate::selector::Situation;
use crate::store::Delivered;
use crate::time::Timestamp;

/// A fetcher that does not keep to its deadline is cut off this much later.
const GRACE: Duration = Duration::from_secs(2);

/// Fetches `link` and says how it ended.
pub(super) async fn run(pipeline: &Pipeline, link: &Link) -> Report {
    let begun = Instant::now();
    let mut report = match urls::parse(&link.url) {
        Ok(url) => match Run::new(pipeline, link, &url) {
            Ok(run) => run.go().await,
            Err(report) => *report,
        },
        Err(error) => Report {
            error_type: Some(ErrorKind::InvalidUrl.name()),
            message: Some(error.to_string()),
            ..Report::default()
        },
    };
    report.url.clone_from(&link.url);
    report.duration = begun.elapsed();
    report
}

/// The state of one URL on its way.
struct Run<'p> {
    pipeline: &'p Pipeline,
    link: &'p Link,
    url: &'p Url,
    id: String,
    domain: String,
    tags: Vec<Tag>,
    state: LinkState,
    wanted: Option<FetcherId>,
    /// Candidates that are not to be had, or were tried.
    excluded: FetcherSet,
    hint: Option<Hint>,
    /// Attempts, a retry not among them.
    attempts: u32,
    /// Attempts as they are logged: each call of a fetcher that was there to be called.
    requests: u32,
    retried: bool,
    banned: bool,
    retry_after: Option<Duration>,
    /// This URL is the one trial of a host whose pause has ended.
    trial: Option<Trial<'p>>,
    /// Another URL's probe has been waited for.
    followed: bool,
    /// The first decision's arm.
    arm: Mode,
    shadow: Option<String>,
    last_attempt_at: Option<Timestamp>,
    /// Why a fetcher that was chosen could not be had.
    why_unavailable: Option<String>,
    report: Report,
}

/// Why there is no page.
enum Failed {
    /// A request was made and brought none.
    Attempt(ErrorKind),
    /// The fetcher could not be had: no request was made.
    Unavailable(String),
}

/// A decision and all that it takes to go ahead with it.
struct Go<'p> {
    take: Take,
    /// The right to probe, when it is a probe.
    lead: Option<Lead>,
    /// Waiting for a free place is no part of the deadline: the site has not been asked yet.
    place: SemaphorePermit<'p>,
}

impl<'p> Run<'p> {
    /// Prepares the way of `url`.
    fn new(pipeline: &'p Pipeline, link: &'p Link, url: &'p Url) -> Result<Self, Box<Report>> {
        let refuse = |error_type, message: String| {
            Box::new(Report { error_type: Some(error_type), message: Some(message), ..Report::default() })
        };
        let heuristics = pipeline
            .selector
            .heuristics(url)
            .map_err(|error| refuse(ErrorKind::InvalidUrl.name(), error.to_string()))?;
        let wanted = match &link.fetcher {
            None => None,
            Some(name) => match pipeline.selector.fetcher_id(name).filter(|id| pipeline.fetcher(*id).is_some()) {
                Some(id) => Some(id),
                None => return Err(refuse(Report::NO_FETCHER, why_missing(pipeline, name))),
            },
        };
        let id = link.id.clone().unwrap_or_else(|| urls::identity(url).to_owned());
        let state = pipeline.link_state(&id);
        Ok(Self {
            pipeline,
            link,
            url,
            domain: urls::domain_of(url.host_str().unwrap_or_default()).to_owned(),
            tags: heuristics.into_iter().map(Tag::from).collect(),
            hint: state.hint,
            state,
            id,
            wanted,
            excluded: pipeline.unavailable,
            attempts: 0,
            requests: 0,
            retried: false,
            banned: false,
            retry_after: None,
            trial: None,
            followed: false,
            arm: Mode::Learning,
            shadow: None,
            last_attempt_at: None,
            why_unavailable: None,
            report: Report::default(),
        })
    }

    async fn go(mut self) -> Report {
        let mut end = None;
        while let Some(go) = self.decide().await {
            let take = go.take;
            match self.attempt(go).await {
                Ok(response) => return self.deliver(response).await,
                Err(Failed::Unavailable(why)) => {
                    self.excluded.insert(take.fetcher);
                    self.why_unavailable = Some(format!("{} is not available: {why}", self.name(take.fetcher)));
                }
                Err(Failed::Attempt(kind)) => {
                    end = Some(kind);
                    if self.after(kind, take) {
                        break;
                    }
                }
            }
        }
        match end {
            Some(kind) => self.fail(kind),
            None => self.report,
        }
    }

    /// The next decision, with all that it takes to go ahead. None when the URL ends here; the report says why.
    async fn decide(&mut self) -> Option<Go<'p>> {
        loop {
            let now = self.pipeline.clock.now();
            let mut take = self.ask(now)?;
            if self.attempts == 0 && self.trial.is_none() {
                match Hosts::admit(&self.pipeline.selector, &self.domain, now) {
                    Admission::Open => {}
                    Admission::Trial(trial) => self.trial = Some(trial),
                    Admission::Wait(until) => {
                        self.paused(until, true);
                        return None;
                    }
                }
            }
            let claims = !take.breaker_ignored;
            if claims && !self.pipeline.selector.claim_breaker_trial(&self.domain, take.fetcher, now) {
                // Whoever has the trial has opened the breaker again: the next answer knows that.
                continue;
            }
            let mut lead = None;
            if take.source == Source::Probe && self.attempts == 0 {
                if self.followed {
                    (take.source, take.rule) = (Source::Inferred, Rule::SharedProbe);
                } else {
                    match self.pipeline.flights.join(&self.domain) {
                        Role::Leader(right) => lead = Some(right),
                        Role::Follower(flight) => {
                            self.followed = landed(flight).await;
                            continue;
                        }
                    }
                }
            }
            // The place comes last: a follower that held the leader's only place would wait for it for ever.
            if let Some(place) = self.place(&take).await {
                return Some(Go { take, lead, place });
            }
        }
    }

    /// A free place with the fetcher. None when the host was paused while this URL waited for it: ask again.
    async fn place(&self, take: &Take) -> Option<SemaphorePermit<'p>> {
        let places = &self.pipeline.fetcher(take.fetcher)?.places;
        if let Ok(place) = places.try_acquire() {
            return Some(place);
        }
        let place = places.acquire().await.ok()?;
        let now = self.pipeline.clock.now();
        let paused = self.pipeline.selector.host_pause(&self.domain).is_some_and(|until| until > now);
        (self.trial.is_some() || !paused).then_some(place)
    }

    /// Asks the router (at first) or the selector (later) once.
    fn ask(&mut self, now: Timestamp) -> Option<Take> {
        let pipeline = self.pipeline;
        let first = self.attempts == 0;
        if first {
            // Another fetch of the same link may have ended while this one waited.
            self.state = pipeline.link_state(&self.id);
            self.hint = self.state.hint;
        }
        let situation = Situation {
            now,
            // The pause was looked at before the first attempt; this URL's own failures do not stop it half way.
            link: if first { self.state } else { LinkState { paused_until: None, ..self.state } },
            hint: self.hint,
            excluded: self.excluded,
            attempts: self.attempts,
            wanted: self.wanted.filter(|_| first),
            host_trial: self.trial.is_some(),
        };
        let decision = if first {
            match pipeline.router.decide(&pipeline.selector, self.url, &situation, self.link.learning) {
                Ok(routed) => {
                    self.arm = routed.arm;
                    self.shadow = routed.shadow.map(|id| pipeline.selector.fetcher_name(id).to_owned());
                    routed.decision
                }
                Err(error) => {
                    self.report.source = Some(Source::HardCoded);
                    self.report.error_type = Some(Report::NO_ROUTE);
                    self.report.message = Some(error.to_string());
                    return None;
                }
            }
        } else {
            pipeline.selector.select(self.url, &situation).ok()?
        };
        match decision {
            Decision::Take(take)
                if pipeline.fetcher(take.fetcher).is_some() && !self.excluded.contains(take.fetcher) =>
            {
                Some(take)
            }
            Decision::Take(take) => {
                self.no_fetcher(why_missing(pipeline, pipeline.selector.fetcher_name(take.fetcher)));
                None
            }
            Decision::Paused { until, host } => {
                if first {
                    self.paused(until, host);
                }
                None
            }
            Decision::GiveUp => {
                if first {
                    self.no_fetcher("no configured fetcher is available".to_owned());
                }
                None
            }
        }
    }

    /// Makes one request, and a second one when the first failed in a way that may pass. Records both.
    async fn attempt(&mut self, go: Go<'p>) -> Result<Response, Failed> {
        let Go { take, lead, place: _place } = go;
        let settings = &self.pipeline.settings;
        // A probe is short because a longer request can follow: the retry, which is there once.
        let is_probe = take.source == Source::Probe && self.attempts == 0;
        let limits = if is_probe { &settings.probe_limits } else { &settings.limits };
        let ended = match self.request(take, limits, true).await {
            Err(Failed::Attempt(kind)) if kind.is_transient() && !self.retried => {
                self.retried = true;
                self.request(take, &settings.limits, false).await
            }
            ended => ended,
        };
        if let Err(Failed::Unavailable(_)) = ended {
            return ended;
        }
        self.attempts += 1;
        if let Some(lead) = lead {
            lead.verdict();
        }
        ended
    }

    /// Makes one request and records it. `may_retry` says that a failure which may pass is not final yet.
    async fn request(
        &mut self,
        take: Take,
        limits: &crate::fetch::Limits,
        may_retry: bool,
    ) -> Result<Response, Failed> {
        let pipeline = self.pipeline;
        let Some(Available { fetcher, .. }) = pipeline.fetcher(take.fetcher) else {
            return Err(Failed::Unavailable(why_missing(pipeline, self.name(take.fetcher))));
        };
        let at = pipeline.clock.now();
        let begun = Instant::now();
        let request = Request { url: self.url, limits };
        let result = match tokio::time::timeout(limits.deadline + GRACE, fetcher.fetch(request)).await {
            Ok(Err(error)) if error.unavailable => return Err(Failed::Unavailable(error.message)),
            Ok(result) => result,
            Err(_) => {
                let message = format!("no answer within {} s", limits.deadline.as_secs_f64());
                Err(FetchError::new(ErrorKind::Timeout, message, begun.elapsed()))
            }
        };
        self.requests += 1;
        let judged = self.judge(&result, fetcher.renders());
        let end = judged.end;
        let final_yet = !(may_retry && !self.retried && end.is_err_and(ErrorKind::is_transient));
        self.record(take, fetcher.name(), at, judged, final_yet);
        match (end, result) {
            (Ok(()), Ok(response)) => Ok(response),
            (Err(kind), _) => Err(Failed::Attempt(kind)),
            (Ok(()), Err(error)) => Err(Failed::Attempt(error.kind)),
        }
    }

    fn name(&self, fetcher: FetcherId) -> &'p str {
        self.pipeline.selector.fetcher_name(fetcher)
    }

    /// Reads what came.
    fn judge(&mut self, result: &Result<Response, FetchError>, renders: bool) -> Judged {
        match result {
            Ok(response) => {
                let page = response.page(self.url);
                let verdict = SCRATCH.with_borrow_mut(|scratch| self.pipeline.detector.inspect(&page, scratch));
                let end = detect::outcome(&page, &verdict, renders, response.truncated);
                let mut heuristics = Vec::new();
                detect::heuristics(&page, &verdict, &mut heuristics);
                for extractor in &self.pipeline.extractors {
                    extractor.extract(&page, &verdict, &mut heuristics);
                }
                let message = end.err().map(|kind| describe(kind, Some(response.status), &verdict));
                Judged {
                    end,
                    message,
                    status: Some(response.status),
                    headers: stored_headers(&response.headers),
                    duration: response.duration,
                    bytes: response.body.len(),
                    heuristics,
                }
            }
            Err(error) => Judged {
                end: Err(error.kind),
                message: Some(error.message.clone()),
                status: error.status,
                headers: stored_headers(&error.headers),
                duration: error.duration,
                bytes: 0,
                heuristics: Vec::new(),
            },
        }
    }

    /// Records the attempt and keeps what the report and the pause need of it.
    fn record(&mut self, take: Take, name: &str, at: Timestamp, judged: Judged, final_yet: bool) {
        self.keep_retry_after(&judged.headers);
        self.report.fetcher = Some(name.to_owned());
        self.report.source = Some(take.source);
        self.report.confidence = take.confidence;
        self.report.status = judged.status;
        self.report.message = judged.message;
        self.report.bytes = judged.bytes;
        self.last_attempt_at = Some(at);
        let mut tags = self.tags.clone();
        tags.extend(judged.heuristics.into_iter().map(Tag::from));
        let Ok(attempt) = Attempt::tagged(self.url, name, at, tags) else { return };
        let mut attempt = match judged.end {
            Ok(()) => attempt.delivered(),
            Err(kind) => attempt.failed(kind),
        };
        if !final_yet {
            attempt.weight = 0.0;
        }
        self.banned |= attempt.is_banned;
        attempt.link.clone_from(&self.id);
        attempt.http_status = judged.status;
        attempt.response_headers = judged.headers;
        attempt.duration_ms = u64::try_from(judged.duration.as_millis()).unwrap_or(u64::MAX);
        attempt.source = Some(take.source.name().into());
        attempt.propensity = Some(take.propensity);
        attempt.hint = self.hint;
        attempt.try_no = self.requests;
        attempt.shadow_fetcher.clone_from(&self.shadow);
        self.pipeline.record(attempt);
    }

    fn keep_retry_after(&mut self, headers: &[Header]) {
        let now = self.pipeline.clock.now();
        let asked = header(headers, "retry-after").and_then(|value| retry_after(value, now));
        self.retry_after = self.retry_after.max(asked);
    }

    /// Whether the URL ends with this failure; if not, the next decision knows what happened.
    fn after(&mut self, kind: ErrorKind, take: Take) -> bool {
        let ends = matches!(kind.next(), Next::End | Next::RetryThenEnd);
        self.excluded.insert(take.fetcher);
        self.hint = Some(Hint::after(kind));
        let strict = kind.is_banned() && !self.pipeline.settings.escalate_after_block;
        // The table's arm does what the table says; only an empty page is taken to the browser, as it always was.
        let table_only = self.arm == Mode::Legacy && kind != ErrorKind::WrongTool;
        ends || strict || table_only
    }

    /// Content came.
    async fn deliver(mut self, response: Response) -> Report {
        let now = self.pipeline.clock.now();
        let pipeline = self.pipeline;
        self.keep_state(FetchEnd::Delivered, None, now);
        if let Some(trial) = self.trial.take() {
            pipeline.hosts.trial_delivered(&pipeline.selector, &self.domain);
            trial.settle();
            pipeline.keep_host_pause(&self.domain, None, now);
        }
        self.finish();
        self.report.success = true;
        self.report.message = None;
        let Some(store) = pipeline.store.clone() else {
            self.report.response = Some(response);
            return self.report;
        };
        let (url, fetcher) = (self.url.clone(), self.report.fetcher.clone().unwrap_or_default());
        let stored = tokio::task::spawn_blocking(move || {
            store.put(&Delivered { url: &url, response: &response, fetcher: &fetcher, at: now })
        });
        match stored.await {
            Ok(Ok(file)) => self.report.file = Some(file),
            Ok(Err(error)) => self.store_failed(error.to_string()),
            Err(error) => self.store_failed(error.to_string()),
        }
        self.report
    }

    fn store_failed(&mut self, message: String) {
        self.report.success = false;
        self.report.error_type = Some(Report::STORE_ERROR);
        self.report.message = Some(format!("the page came but could not be stored: {message}"));
    }

    /// The URL ends without content, with `kind`.
    fn fail(mut self, kind: ErrorKind) -> Report {
        let pipeline = self.pipeline;
        let now = pipeline.clock.now();
        let end = match kind {
            ErrorKind::Queued => FetchEnd::Queued,
            _ if kind.is_neutral() => FetchEnd::Neutral,
            _ if self.banned => FetchEnd::Blocked,
            _ => FetchEnd::Failed,
        };
        if end == FetchEnd::Blocked {
            let (trial, settings) = (self.trial.is_some(), pipeline.selector.backoff());
            let until = pipeline.hosts.blocked(&pipeline.selector, &self.domain, &self.id, trial, settings, now);
            if until.is_some() {
                if let Some(trial) = self.trial.take() {
                    trial.settle();
                }
                pipeline.keep_host_pause(&self.domain, until, now);
            }
        }
        let hint = (end != FetchEnd::Neutral).then(|| Hint::after(kind));
        let state = self.keep_state(end, hint, now);
        self.finish();
        self.report.error_type = Some(kind.name());
        self.report.paused_until = state.pause_at(now);
        self.report.bytes = 0;
        self.report
    }

    /// Brings the link's state up to date, from what it is now: another fetch of the same link may have ended meanwhile.
    fn keep_state(&self, end: FetchEnd, hint: Option<Hint>, now: Timestamp) -> LinkState {
        let settings = self.pipeline.selector.backoff();
        self.pipeline.keep_state(&self.id, self.url.as_str(), now, |state| {
            let state = LinkState {
                attempt_count: state.attempt_count.saturating_add(self.requests),
                last_attempt_at: self.last_attempt_at.or(state.last_attempt_at),
                hint: hint.or(state.hint),
                ..state
            };
            state.after(end, self.retry_after, settings, now)
        })
    }

    fn finish(&mut self) {
        self.report.requests = self.requests;
        self.report.is_banned = self.banned;
    }

    fn paused(&mut self, until: Timestamp, host: bool) {
        self.report.source = Some(Source::Paused);
        self.report.error_type = Some(Report::PAUSED);
        self.report.paused_until = Some(until);
        let what = if host { "the host" } else { "the link" };
        let wait = until.since(self.pipeline.clock.now()).as_secs();
        self.report.message = Some(format!("{what} is paused for another {wait} s"));
    }

    fn no_fetcher(&mut self, message: String) {
        let message = self.why_unavailable.take().unwrap_or(message);
        self.report.error_type = Some(Report::NO_FETCHER);
        self.report.message = Some(message);
    }
}

/// What a request brought, as the attempt records it.
struct Judged {
    end: Result<(), ErrorKind>,
    message: Option<String>,
    status: Option<u16>,
    headers: Vec<Header>,
    duration: Duration,
    bytes: u64,
    heuristics: Vec<Heuristic>,
}

thread_local! {
    /// Reading a page needs buffers of its size; each thread keeps its own from page to page.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

fn describe(kind: ErrorKind, status: Option<u16>, verdict: &detect::Verdict) -> String {
    match kind {
        ErrorKind::BlockedCaptcha
        | ErrorKind::Blocked403
        | ErrorKind::WrongTool
        | ErrorKind::EmptyContent
        | ErrorKind::Queued => verdict.reason(),
        _ => match status {
            Some(status) => format!("{kind} (status {status})"),
            None => kind.to_string(),
        },
    }
}

fn why_missing(pipeline: &Pipeline, name: &str) -> String {
    match pipeline.missing.get(crate::registry::canonical(name)) {
        Some(reason) => format!("{name} is not available: {reason}"),
        None => format!("there is no fetcher called {name}"),
    }
}
