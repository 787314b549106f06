//! The robots.txt check before a link's visit: one request for each origin, with the limits of pages.
//!
//! A link that may not be fetched ends here, without a request for its page and without an attempt.
//!
//! Must not know: how rules are read and stored. [`fetchwise_fetchers::robots`] does that.

use std::sync::Arc;
use std::time::{Duration, Instant};

use url::Url;

use super::link_slot::LinkSlot;
use super::local_delay::LocalDelay;
use super::wait::pause;
use super::{CrawlDelayCut, GRACE, Link, Pipeline, Report, consent};
use crate::backoff::retry_after;
use crate::selector::Selector;
use crate::state::host_pauses::TrialRole;
use crate::visit::Wait;
use crate::visit::pace_permit::PacePermit;
use fetchwise_fetchers::fetch::{FetchError, Limits, Request, Response};
use fetchwise_fetchers::robots::{MAX_BODY, MAX_READ, MAX_REDIRECTS, RobotsTxt, RobotsUse, Rules, location};
use fetchwise_pace;
use fetchwise_pace::{Cost, RateLimit, ResponseEffect, Scope, Signal};
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::consent::Term;
use fetchwise_types::fetch_result::Outcome;
use fetchwise_types::heuristic::url::domain_of;
use fetchwise_types::response::header;
use fetchwise_types::time::Timestamp;

/// The wait before a request is made again that this machine is to blame for.
const LOCAL_FAULT_WAIT: Duration = Duration::from_millis(250);

/// Checks whether its origin's robots.txt lets `link` be fetched. Returns its terms for the link, as far as the file was
/// read.
///
/// # Errors
/// The report of a link that may not be fetched.
pub(super) async fn check(
    pipeline: &Pipeline,
    link: &Link,
    url: &Url,
    link_slot: &LinkSlot,
    cut: &mut Option<CrawlDelayCut>,
) -> Result<Vec<Term>, Box<Report>> {
    let is_ignored = link.robots == RobotsUse::Ignore;
    // A crawl with purposes needs the terms, whatever it does with the rules.
    if is_ignored && !(consent::needs_robots(&pipeline.consent) && pipeline.robots.is_some()) {
        return Ok(Vec::new());
    }
    let Some(robots) = &pipeline.robots else {
        let message = "cannot fetch robots.txt: the pipeline was built without a fetcher for it".to_owned();
        return Err(Box::new(Report::without_request(Report::NO_FETCHER, message)));
    };
    let Some((origin, location)) = location(url) else { return Ok(Vec::new()) };
    let rules = match robots.known(&origin, pipeline.selector.now()) {
        Some(rules) => rules,
        None => request_rules(pipeline, robots, (&origin, &location), link_slot, cut).await?,
    };
    let terms = rules.terms(url);
    if link.robots != RobotsUse::Obey {
        return Ok(terms);
    }
    if let Some(unknown) = rules.unknown() {
        return Err(Box::new(unreachable(&location, unknown.kind, &unknown.message, rules.until())));
    }
    match rules.forbids(url) {
        None => Ok(terms),
        Some(rule) => Err(Box::new(Report::without_request(
            ErrorKind::Disallowed.name(),
            format!("disallowed by {location}: {rule}"),
        ))),
    }
}

/// Returns the report of a link whose origin's rules cannot be read.
fn unreachable(location: &Url, kind: ErrorKind, why: &str, until: Timestamp) -> Report {
    match kind {
        // Its page would end in the same way, for the same reason.
        ErrorKind::DnsError
        | ErrorKind::TlsError
        | ErrorKind::ProxyError
        | ErrorKind::RefusedAddress
        | ErrorKind::InvalidUrl => Report::without_request(kind.name(), format!("{location}: {why}")),
        _ => Report {
            paused_until: Some(until),
            ..Report::without_request(
                Report::PAUSED,
                format!("cannot read {location}, so its site may not be fetched: {why}"),
            )
        },
    }
}

/// Requests the rules of `origin`, unless another task has done so meanwhile.
async fn request_rules(
    pipeline: &Pipeline,
    robots: &RobotsTxt,
    (origin, location): (&str, &Url),
    link_slot: &LinkSlot,
    cut: &mut Option<CrawlDelayCut>,
) -> Result<Arc<Rules>, Box<Report>> {
    let turn = robots.turn(origin);
    let _turn = match turn.try_lock() {
        Ok(turn) => turn,
        Err(_) => link_slot.leave_during(turn.lock()).await,
    };
    let now = pipeline.selector.now();
    if let Some(rules) = robots.known(origin, now) {
        return Ok(rules);
    }
    let domain = domain_of(location.host_str().unwrap_or_default());
    if let Some(until) = pause_beyond_pace(pipeline, domain, now) {
        let message = format!("the host is paused for another {} s", until.since(now).as_secs());
        return Err(Box::new(Report { paused_until: Some(until), ..Report::without_request(Report::PAUSED, message) }));
    }
    let mut permit = pace_permit(pipeline, link_slot, domain).await?;
    let answer = request(pipeline, robots, location, MAX_BODY).await;
    if let Some(permit) = permit.take() {
        report_to_pace(pipeline, robots, permit, domain, &answer);
    }
    if let Err(error) = &answer
        && error.local
    {
        // A local fault says nothing about the host, so nothing is stored.
        return Err(Box::new(Report::without_request(ErrorKind::LocalFault.name(), error.message.clone())));
    }
    let now = pipeline.selector.now();
    let rules = Rules::from_answer(&answer, robots.agent(), now);
    if let (Some(delay), Some(pace)) = (rules.crawl_delay(), pipeline.selector.pace()) {
        let interval = pace.set_min_interval(Scope::host(domain), delay, now);
        if interval.is_shortened && interval.is_new {
            let most = Duration::from_secs_f64(pace.settings().max_crawl_delay_s);
            *cut = Some(CrawlDelayCut { host: domain.into(), asked: delay, believed: most });
        }
    }
    Ok(robots.keep(origin, rules))
}

/// Returns the end of the host's pause; none for a hold of its pace, which the permit waits for.
pub(super) fn pause_beyond_pace(pipeline: &Pipeline, domain: &str, now: Timestamp) -> Option<Timestamp> {
    let selector = &pipeline.selector;
    selector.host_pause(domain).filter(|until| *until > now && !selector.is_pace_hold(domain, *until, now))
}

/// Waits for a permit in the host's pace, which a robots.txt needs like any page.
pub(super) async fn pace_permit<'p>(
    pipeline: &'p Pipeline,
    link_slot: &LinkSlot,
    domain: &str,
) -> Result<Option<PacePermit<&'p Selector>>, Box<Report>> {
    loop {
        let now = pipeline.selector.now();
        match PacePermit::take(&*pipeline.selector, domain, Cost::Plain, now) {
            Ok(permit) => return Ok(permit),
            Err(later) if later.until.since(now) <= pipeline.wait_at_most => {
                pause(pipeline, link_slot, Wait::for_pace(later)).await;
            }
            Err(later) => {
                let message = "the host's pace does not admit the request for its robots.txt yet".to_owned();
                let report = Report::without_request(Report::PACED, message);
                return Err(Box::new(Report { paused_until: Some(later.until), ..report }));
            }
        }
    }
}

/// Reports the response to the host's pace. Only limits count: a delivered robots.txt does not mean that pages would be
/// delivered.
pub(super) fn report_to_pace(
    pipeline: &Pipeline,
    robots: &RobotsTxt,
    permit: PacePermit<&Selector>,
    domain: &str,
    answer: &Result<Response, FetchError>,
) {
    let (selector, now) = (&*pipeline.selector, pipeline.selector.now());
    let Some(fetcher) = selector.fetcher_id(robots.fetcher().name()) else { return };
    let (signal, headers) = match answer {
        Ok(response) => match response.status {
            status @ (429 | 500..) => (Signal::of(&Outcome::Http(status), Some(status)), &response.headers),
            _ => (Signal::ClientError, &response.headers),
        },
        Err(error) => (Signal::of(&Outcome::from(error.kind), error.status), &error.headers),
    };
    let asked = header(headers, "retry-after").and_then(|value| retry_after(value, selector.clock().date_of(now)));
    let pace_response = fetchwise_pace::Response {
        retry_after: asked,
        policy: RateLimit::read(headers, selector.clock().date_of(now)),
        ..fetchwise_pace::Response::new(signal, fetcher)
    };
    if let ResponseEffect::LimitHit { hold_until, .. } = permit.report(&pace_response, now) {
        selector.state().hosts.record_hold(selector, domain, TrialRole::Ordinary, hold_until, |until| {
            if let Some(sink) = selector.sink() {
                sink.host_pause(domain, Some(until), now);
            }
        });
    }
}

/// Requests a robots.txt, or a file that one names, of at most `max_body` bytes. A request that this machine is to blame
/// for is made once more.
pub(super) async fn request(
    pipeline: &Pipeline,
    robots: &RobotsTxt,
    location: &Url,
    max_body: u64,
) -> Result<Response, FetchError> {
    match request_once(pipeline, robots, location, max_body).await {
        Err(error) if error.local => {
            tokio::time::sleep(LOCAL_FAULT_WAIT).await;
            request_once(pipeline, robots, location, max_body).await
        }
        answer => answer,
    }
}

async fn request_once(
    pipeline: &Pipeline,
    robots: &RobotsTxt,
    location: &Url,
    max_body: u64,
) -> Result<Response, FetchError> {
    let limits = Limits {
        deadline: pipeline.selector.visit_settings().deadline,
        max_redirects: MAX_REDIRECTS,
        max_body: pipeline.limits.max_body.min(max_body),
        max_in_memory: MAX_READ,
        ..pipeline.limits.clone()
    };
    let begun = Instant::now();
    let request = Request::new(location, &limits);
    let mut local_delay = LocalDelay::default();
    let asking = local_delay.measure(robots.fetcher().fetch(request));
    let answer = tokio::time::timeout(limits.deadline + GRACE, asking).await.unwrap_or_else(|_| {
        let message = format!("no response within {} s", limits.deadline.as_secs_f64());
        Err(FetchError::new(ErrorKind::Timeout, message, begun.elapsed()))
    });
    local_delay.attribute(answer, limits.deadline)
}
