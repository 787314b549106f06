//! What robots.txt says about a link, before its visit begins: asked for once an origin, with the limits that pages have.
//!
//! A link that may not be fetched ends here, without a request to its page and without an attempt. Must not know how rules are read or
//! kept: that is [`crate::robots`].

use std::sync::Arc;
use std::time::Instant;

use url::Url;

use super::{GRACE, Link, Pipeline, Report};
use crate::attempt::outcome::ErrorKind;
use crate::fetch::{FetchError, Limits, Request, Response};
use crate::heuristic::url::domain_of;
use crate::robots::{BODY_MAX, READ_MAX, REDIRECTS_MAX, RobotsTxt, RobotsUse, Rules, location};
use crate::time::Timestamp;

/// Whether `link` may be fetched, as far as its origin's robots.txt goes.
///
/// # Errors
/// How the link ends instead.
pub(super) async fn look(pipeline: &Pipeline, link: &Link, url: &Url) -> Result<(), Box<Report>> {
    if link.robots == RobotsUse::Ignore {
        return Ok(());
    }
    let Some(robots) = &pipeline.robots else {
        let message = "this pipeline cannot ask for robots.txt: its builder was given no way to".to_owned();
        return Err(Box::new(Report::unasked(Report::NO_FETCHER, message)));
    };
    let Some((origin, location)) = location(url) else { return Ok(()) };
    let rules = match robots.known(&origin, pipeline.selector.now()) {
        Some(rules) => rules,
        None => ask(pipeline, robots, &origin, &location).await?,
    };
    if link.robots == RobotsUse::Delay {
        return Ok(());
    }
    if let Some(unknown) = rules.unknown() {
        return Err(Box::new(unreachable(&location, unknown.kind, &unknown.message, rules.until())));
    }
    match rules.forbids(url) {
        None => Ok(()),
        Some(rule) => {
            Err(Box::new(Report::unasked(ErrorKind::Disallowed.name(), format!("{location} says so: {rule}"))))
        }
    }
}

/// How a link ends whose origin's wishes cannot be known.
fn unreachable(location: &Url, kind: ErrorKind, why: &str, until: Timestamp) -> Report {
    match kind {
        // Its page would end in the same way, for the same reason.
        ErrorKind::DnsError
        | ErrorKind::TlsError
        | ErrorKind::ProxyError
        | ErrorKind::RefusedAddress
        | ErrorKind::InvalidUrl => Report::unasked(kind.name(), format!("{location}: {why}")),
        _ => Report {
            paused_until: Some(until),
            ..Report::unasked(
                Report::PAUSED,
                format!("{location} could not be read, so nothing there may be fetched: {why}"),
            )
        },
    }
}

/// Asks for the rules of `origin`, unless somebody else has done so meanwhile.
async fn ask(pipeline: &Pipeline, robots: &RobotsTxt, origin: &str, location: &Url) -> Result<Arc<Rules>, Box<Report>> {
    let turn = robots.turn(origin);
    let _turn = turn.lock().await;
    let now = pipeline.selector.now();
    if let Some(rules) = robots.known(origin, now) {
        return Ok(rules);
    }
    let domain = domain_of(location.host_str().unwrap_or_default());
    if let Some(until) = pipeline.selector.host_pause(domain).filter(|until| *until > now) {
        let message = format!("the host is paused for another {} s", until.since(now).as_secs());
        return Err(Box::new(Report { paused_until: Some(until), ..Report::unasked(Report::PAUSED, message) }));
    }
    let answer = request(pipeline, robots, location).await;
    if let Err(error) = &answer
        && error.local
    {
        // It says nothing about the host, so that nothing is kept of it.
        return Err(Box::new(Report::unasked(ErrorKind::LocalFault.name(), error.message.clone())));
    }
    Ok(robots.keep(origin, Rules::from_answer(&answer, robots.agent(), pipeline.selector.now())))
}

async fn request(pipeline: &Pipeline, robots: &RobotsTxt, location: &Url) -> Result<Response, FetchError> {
    let limits = Limits {
        deadline: pipeline.selector.visit_settings().deadline,
        max_redirects: REDIRECTS_MAX,
        max_body: pipeline.limits.max_body.min(BODY_MAX),
        max_in_memory: READ_MAX,
        ..pipeline.limits.clone()
    };
    let begun = Instant::now();
    let request = Request { url: location, limits: &limits };
    match tokio::time::timeout(limits.deadline + GRACE, robots.fetcher().fetch(request)).await {
        Ok(answer) => answer,
        Err(_) => {
            let message = format!("no answer within {} s", limits.deadline.as_secs_f64());
            Err(FetchError::new(ErrorKind::Timeout, message, begun.elapsed()))
        }
    }
}
