//! Requests for the files that say what a crawler may do: robots.txt, and the licences that it
//! names.
//!
//! They take the gate that pages take. The host at the end of a chain is charged with what it
//! responds: its limit pauses it for pages, too. Beyond limits and failures nothing counts, since a
//! file that comes does not mean that pages would.
//!
//! Invariants: no claim of a trial is held while a link waits for another link's request.
//!
//! Must not know: what a file says.

use std::future::Future;
use std::time::{Duration, Instant};

use url::Url;

use super::gate::{Entrant, Gate, requests};
use super::link_slot::LinkSlot;
use super::local_delay::LocalDelay;
use super::{CrawlDelayCut, GRACE, Pipeline, Report};
use crate::backoff::retry_after;
use crate::selector::Selector;
use crate::state::host_pauses::PauseReason;
use crate::state::proxies::{ProxyFaults, WAITS};
use crate::state::uplink::{Sign, Silence};
use crate::visit::pace_permit::PacePermit;
use crate::visit::passage::Passage;
use crate::visit::redirect::RedirectRefusal;
use crate::visit::{Wait, WaitReason};
use fetchwise_fetchers::fetch::redirect_gate::within;
use fetchwise_fetchers::fetch::{FetchError, Limits, Request, Response};
use fetchwise_fetchers::robots::{MAX_READ, MAX_REDIRECTS, RobotsTxt};
use fetchwise_pace::{Cost, RateLimit, ResponseEffect, Signal};
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::fetch_result::Outcome;
use fetchwise_types::heuristic::url::domain_of;
use fetchwise_types::registry::FetcherId;
use fetchwise_types::response::header;
use fetchwise_types::time::Timestamp;

/// The wait before a request is made again that this machine is to blame for.
const LOCAL_FAULT_WAIT: Duration = Duration::from_millis(250);

/// The response with a file, or the failure of its request.
pub(super) type FileResult = Result<Response, FetchError>;

/// The requests of one link for files.
pub(super) struct FileRequests<'l, 'p> {
    pub(super) pipeline: &'p Pipeline,
    pub(super) link_slot: &'l LinkSlot,
    /// The way of the link, which its page continues.
    pub(super) passage: Passage<&'p Selector>,
    pub(super) cut: Option<CrawlDelayCut>,
    has_begun: bool,
}

/// The size of a file.
#[derive(Clone, Copy)]
pub(super) struct FileSize {
    /// Bytes that are enough; the rest is not read.
    pub(super) enough: Option<u64>,
    /// Bytes beyond which the request fails.
    pub(super) max: u64,
}

/// A host that does not admit the request now.
pub(super) struct Refusal {
    /// The address that was not requested.
    pub(super) to: Url,
    pub(super) why: RedirectRefusal,
}

impl<'l, 'p> FileRequests<'l, 'p> {
    /// Returns the requests of a link that has made none.
    pub(super) fn new(pipeline: &'p Pipeline, link_slot: &'l LinkSlot) -> Self {
        Self {
            pipeline,
            link_slot,
            passage: Passage::new(&*pipeline.selector),
            cut: None,
            has_begun: false,
        }
    }

    /// Returns the way of the link so far.
    pub(super) fn take_passage(&mut self) -> Passage<&'p Selector> {
        std::mem::replace(&mut self.passage, Passage::new(&*self.pipeline.selector))
    }

    /// Waits for a file that another link requests. That link may wait for a trial that this one
    /// has claimed, so the claim is returned.
    pub(super) async fn wait_for<T>(&mut self, turn: impl Future<Output = T>) -> T {
        drop(self.take_passage());
        self.link_slot.leave_during(turn).await
    }

    /// Requests the file at `location`, again if its connection failed: all links that need the file
    /// end if it does not come. A request that this machine is to blame for is made once more, and
    /// again for as long as no site can be reached.
    pub(super) async fn request(
        &mut self,
        robots: &RobotsTxt,
        location: &Url,
        size: FileSize,
    ) -> Result<FileResult, Refusal> {
        let selector = &self.pipeline.selector;
        let is_retried = selector.visit_settings().max_retries > 0;
        let mut waits = WAITS.into_iter().filter(|_| is_retried);
        let mut is_second = false;
        let fetcher = self.fetcher(robots);
        let mut proxy_faults = ProxyFaults::default();
        loop {
            match self.request_once(robots, location, size).await? {
                Err(error) if error.kind == ErrorKind::ProxyError && !error.local && is_retried => {
                    let proxies = &selector.state().proxies;
                    let Some(wait) = proxies.failed(fetcher, &mut proxy_faults, selector.now())
                    else {
                        return Ok(Err(error));
                    };
                    tokio::time::sleep(wait).await;
                }
                Err(error)
                    if error.local
                        && (!is_second || selector.connection_lost_since().is_some()) =>
                {
                    tokio::time::sleep(LOCAL_FAULT_WAIT).await;
                    is_second = true;
                }
                Err(error) if error.kind == ErrorKind::NetworkError && !error.local => {
                    let Some(wait) = waits.next() else { return Ok(Err(error)) };
                    self.wait_for(tokio::time::sleep(wait)).await;
                }
                answer => return Ok(answer),
            }
        }
    }

    /// Returns the fetcher of files, as the selector knows it.
    fn fetcher(&self, robots: &RobotsTxt) -> FetcherId {
        self.pipeline.selector.fetcher_id(robots.fetcher().name()).unwrap_or(FetcherId(0))
    }

    /// Requests the file at `location`, once each host of the chain admits it.
    async fn request_once(
        &mut self,
        robots: &RobotsTxt,
        location: &Url,
        size: FileSize,
    ) -> Result<FileResult, Refusal> {
        let (pipeline, selector) = (self.pipeline, &*self.pipeline.selector);
        let limits = Limits {
            deadline: selector.visit_settings().deadline,
            max_redirects: MAX_REDIRECTS,
            // A limit for pages says nothing about the rules for them.
            max_body: size.max,
            max_in_memory: MAX_READ,
            ..pipeline.limits.clone()
        };
        let fetcher = self.fetcher(robots);
        let hosts = FileHosts {
            passage: &mut self.passage,
            fetcher,
            host: Box::default(),
            is_admitted: false,
            permit: None,
        };
        while let Some(until) = selector.state().uplink.wait(selector.now()) {
            tokio::time::sleep(until.since(selector.now())).await;
        }
        let gate = Gate::new(pipeline, self.link_slot, hosts);
        if !gate.enter(location, self.has_begun).await {
            return Err(Refusal::of(gate.into_parts().1, location));
        }
        self.has_begun = true;
        selector.state().uplink.sends(selector.now());
        let (begun, sent) = (Instant::now(), selector.now());
        let request = Request {
            gate: Some(&gate),
            read_at_most: size.enough,
            ..Request::new(location, &limits)
        };
        let mut local_delay = LocalDelay::default();
        let asking = local_delay.measure(robots.fetcher().fetch(request));
        let answer =
            within(limits.deadline + GRACE, Some(&gate), asking).await.unwrap_or_else(|| {
                let message = format!("no response within {} s", limits.deadline.as_secs_f64());
                Err(FetchError::new(ErrorKind::Timeout, message, begun.elapsed()))
            });
        let answer = local_delay.attribute(answer, limits.deadline);
        let (hosts, refused) = gate.into_parts();
        if let Err(error) = &answer
            && error.stopped
        {
            return Err(Refusal::of(refused, location));
        }
        if answer.is_ok() {
            selector.state().proxies.passed(fetcher);
        }
        let answer = of_connection(selector, location, answer);
        hosts.charge(location, &answer, sent);
        Ok(answer)
    }
}

/// Tells the state of this machine's connection what came. A failure is a local fault if no site can
/// be reached.
fn of_connection(selector: &Selector, location: &Url, answer: FileResult) -> FileResult {
    let (asked, sign) = match &answer {
        Ok(response) => (&response.final_url, Sign::Answered),
        Err(error) if error.local || error.unavailable || error.status.is_some() => return answer,
        Err(error) => {
            let asked = error.final_url.as_deref().unwrap_or(location);
            (asked, Sign::without_answer(&Outcome::from(error.kind)))
        }
    };
    if selector.take_sign(asked, sign, selector.now()) == Some(Silence::Uplink) {
        return answer.map_err(|error| FetchError {
            local: true,
            kind: ErrorKind::LocalFault,
            message: format!("no site answers this machine: {}", error.message),
            ..error
        });
    }
    answer
}

/// The hosts of a chain, of which each admits its own request.
struct FileHosts<'h, 'p> {
    passage: &'h mut Passage<&'p Selector>,
    fetcher: FetcherId,
    /// The host that was asked last, whether it has admitted the request, and its permit if it has
    /// a pace.
    host: Box<str>,
    is_admitted: bool,
    permit: Option<PacePermit<&'p Selector>>,
}

impl Entrant for FileHosts<'_, '_> {
    fn enter(&mut self, to: &Url) -> Result<(), RedirectRefusal> {
        let (selector, target) = (self.passage.selector(), domain(to));
        let now = selector.now();
        if *self.host != *target {
            if let Some(permit) = self.permit.take() {
                report_redirect(permit, self.fetcher, now);
            }
            (self.host, self.is_admitted) = (target.into(), false);
        }
        if !self.is_admitted {
            self.passage.admit_host(target, now)?;
            let permit = PacePermit::take(selector, target, Cost::Plain, now);
            self.permit = permit.map_err(|later| RedirectRefusal::Wait(Wait::for_pace(later)))?;
            self.is_admitted = true;
        }
        Ok(())
    }
}

impl FileHosts<'_, '_> {
    /// Charges the host that responded, or at which the request failed.
    fn charge(self, location: &Url, answer: &FileResult, sent: Timestamp) {
        let selector = self.passage.selector();
        let now = selector.now();
        let (landed, status, headers) = match answer {
            Ok(response) => (Some(&response.final_url), Some(response.status), &response.headers),
            Err(error) => (error.final_url.as_deref(), error.status, &error.headers),
        };
        let host = domain(landed.unwrap_or(location));
        let date = selector.clock().date_of(now);
        let asked = header(headers, "retry-after").and_then(|value| retry_after(value, date));
        let response = fetchwise_pace::Response {
            retry_after: asked,
            policy: RateLimit::read(headers, date),
            cost: answer.as_ref().ok().and_then(requests),
            ..fetchwise_pace::Response::new(signal(answer), self.fetcher)
        };
        let permit = match self.permit {
            // The fetcher has followed redirects without asking.
            Some(permit) if permit.domain() != host => {
                report_redirect(permit, self.fetcher, now);
                PacePermit::of_sent(selector, host, Cost::Plain, sent, now)
            }
            permit => permit,
        };
        if let Some(ResponseEffect::LimitHit { hold_until, level }) =
            permit.map(|permit| permit.report(&response, now))
        {
            selector.recorder().count_rate_limit_hit(level as usize);
            return self.passage.pause_for_hold(host, hold_until, None, now);
        }
        let is_limit = status == Some(429) || status == Some(503) && asked.is_some();
        if is_limit && self.passage.remaining_hold(host, now).is_none() {
            self.passage.record_host_failure(
                host,
                location.as_str(),
                PauseReason::Limited(asked),
                now,
            );
        }
    }
}

impl Refusal {
    fn of(refused: Option<(Url, RedirectRefusal)>, location: &Url) -> Self {
        // A gate that admits nothing has a reason.
        let (to, why) = refused
            .unwrap_or_else(|| (location.clone(), RedirectRefusal::Paused(Timestamp::default())));
        Self { to, why }
    }

    /// Returns the report of a link that cannot go on without the file.
    pub(super) fn report(self, location: &Url, now: Timestamp) -> Box<Report> {
        let host = match domain(&self.to) == domain(location) {
            true => "the host".to_owned(),
            false => format!("the host {} (a redirect of {location})", domain(&self.to)),
        };
        let (error_type, until, message) = match &self.why {
            RedirectRefusal::Wait(wait) if wait.reason() == WaitReason::Pace => (
                Report::PACED,
                wait.until(),
                format!("the pace of {host} does not admit the request for {location} yet"),
            ),
            RedirectRefusal::Wait(wait) => {
                (Report::PAUSED, wait.until(), paused(&host, wait.until().since(now)))
            }
            RedirectRefusal::Paused(until) => {
                (Report::PAUSED, *until, paused(&host, until.since(now)))
            }
        };
        Box::new(Report {
            paused_until: Some(until),
            ..Report::without_request(error_type, message)
        })
    }
}

fn paused(host: &str, left: Duration) -> String {
    format!("{host} is paused for another {} s", left.as_secs())
}

/// Returns what a response means for the pace of its host.
fn signal(answer: &FileResult) -> Signal {
    match answer {
        Ok(response) => match response.status {
            status @ (429 | 500..) => Signal::of(&Outcome::Http(status), Some(status)),
            200..=299 if response.truncated => {
                Signal::of(&Outcome::Truncated, Some(response.status))
            }
            _ => Signal::ClientError,
        },
        Err(error) => Signal::of(&Outcome::from(error.kind), error.status),
    }
}

/// Reports a redirect to the pace of the host that sent it.
fn report_redirect(permit: PacePermit<&Selector>, fetcher: FetcherId, now: Timestamp) {
    let _ = permit.report(&fetchwise_pace::Response::new(Signal::ClientError, fetcher), now);
}

fn domain(url: &Url) -> &str {
    domain_of(url.host_str().unwrap_or_default())
}
