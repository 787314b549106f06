//! The robots.txt check before a link's visit: one request for each origin, through the gate of
//! pages.
//!
//! A link that may not be fetched ends here, without a request for its page and without an attempt.
//!
//! Must not know: how rules are read and stored. [`fetchwise_fetchers::robots`] does that.

use std::sync::Arc;
use std::time::Duration;

use url::Url;

use super::file_request::{FileRequests, FileSize, Refusal};
use super::{CrawlDelayCut, Link, Report, consent};
use crate::visit::redirect::RedirectRefusal;
use fetchwise_fetchers::robots::{MAX_READ, RobotsTxt, RobotsUse, Rules, Unknown, location};
use fetchwise_pace::Scope;
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::consent::Term;
use fetchwise_types::heuristic::url::domain_of;
use fetchwise_types::time::Timestamp;

/// The beginning that is read, of at most 8 MiB as they are sent.
const SIZE: FileSize = FileSize { enough: Some(MAX_READ as u64), max: 8 << 20 };

/// Checks whether its origin's robots.txt lets `link` be fetched. Returns its terms for the link,
/// as far as the file was read.
///
/// # Errors
/// The report of a link that may not be fetched.
pub(super) async fn check(
    files: &mut FileRequests<'_, '_>,
    link: &Link,
    url: &Url,
) -> Result<Vec<Term>, Box<Report>> {
    let pipeline = files.pipeline;
    let is_ignored = link.robots == RobotsUse::Ignore;
    // A crawl with purposes needs the terms, whatever it does with the rules.
    let needs_terms = consent::needs_robots(&pipeline.consent);
    if is_ignored && !(needs_terms && pipeline.robots.is_some()) {
        return Ok(Vec::new());
    }
    let Some(robots) = &pipeline.robots else {
        let message =
            "cannot fetch robots.txt: the pipeline was built without a fetcher for it".to_owned();
        return Err(Box::new(Report::without_request(Report::NO_FETCHER, message)));
    };
    let Some((rules, location)) = rules_for(files, robots, url).await? else {
        return Ok(Vec::new());
    };
    let is_obeyed = link.robots == RobotsUse::Obey;
    if is_obeyed || needs_terms && consent::skips(&pipeline.consent) {
        is_known(&rules, &location)?;
    }
    if is_obeyed {
        is_allowed(&rules, &location, url)?;
    }
    Ok(rules.terms(url))
}

/// Returns the rules for `url`, with the address of their file. `None` if its origin has no such
/// file.
///
/// # Errors
/// The report of a link for which they cannot be requested now.
pub(super) async fn rules_for(
    files: &mut FileRequests<'_, '_>,
    robots: &RobotsTxt,
    url: &Url,
) -> Result<Option<(Arc<Rules>, Url)>, Box<Report>> {
    let Some((origin, location)) = location(url) else { return Ok(None) };
    let rules = match robots.known(&origin, files.pipeline.selector.now()) {
        Some(rules) => rules,
        None => request_rules(files, robots, (&origin, &location)).await?,
    };
    Ok(Some((rules, location)))
}

/// Checks whether the rules could be read.
///
/// # Errors
/// The report of a link for which they could not.
pub(super) fn is_known(rules: &Rules, location: &Url) -> Result<(), Box<Report>> {
    rules.unknown().map_or(Ok(()), |unknown| Err(unreadable(location, unknown, rules.until())))
}

/// Checks whether known rules allow `url`.
///
/// # Errors
/// The report of a link that they forbid.
pub(super) fn is_allowed(rules: &Rules, location: &Url, url: &Url) -> Result<(), Box<Report>> {
    match rules.forbids(url) {
        None => Ok(()),
        Some(rule) => {
            let message = format!("disallowed by {location}: {rule}");
            Err(Box::new(Report::without_request(ErrorKind::Disallowed.name(), message)))
        }
    }
}

/// Returns the report of a link whose file at `location` cannot be read before `until`.
pub(super) fn unreadable(location: &Url, unknown: &Unknown, until: Timestamp) -> Box<Report> {
    let why = &unknown.message;
    let report = match unknown.kind {
        // There is a file, and it may come whole the next time.
        ErrorKind::RateLimited | ErrorKind::ServerError | ErrorKind::Truncated => Report {
            paused_until: Some(until),
            ..Report::without_request(
                Report::PAUSED,
                format!("cannot read {location}, so its site may not be fetched: {why}"),
            )
        },
        // The page would end in the same way, for the same reason.
        kind => Report::without_request(kind.name(), format!("{location}: {why}")),
    };
    Box::new(Report { robots_unread: true, ..report })
}

/// Requests the rules of `origin`, unless another task has done so meanwhile.
async fn request_rules(
    files: &mut FileRequests<'_, '_>,
    robots: &RobotsTxt,
    (origin, location): (&str, &Url),
) -> Result<Arc<Rules>, Box<Report>> {
    let selector = &files.pipeline.selector;
    let turn = robots.turn(origin);
    let _turn = match turn.try_lock() {
        Ok(turn) => turn,
        Err(_) => files.wait_for(turn.lock()).await,
    };
    if let Some(rules) = robots.known(origin, selector.now()) {
        return Ok(rules);
    }
    let answer = match files.request(robots, location, SIZE).await {
        Ok(answer) => answer,
        Err(Refusal { to, why: RedirectRefusal::Paused(until) }) if to != *location => {
            // No other link needs to ask where the file is.
            let message = format!(
                "the host {}, to which it redirects, is paused",
                to.host_str().unwrap_or_default()
            );
            let rules =
                Rules::unknown_until(until, Unknown { kind: ErrorKind::RateLimited, message });
            return Ok(robots.keep(origin, rules));
        }
        Err(refusal) => return Err(refusal.report(location, selector.now())),
    };
    if let Err(error) = &answer
        && error.local
    {
        // A local fault says nothing about the host, so nothing is stored.
        return Err(Box::new(Report::without_request(
            ErrorKind::LocalFault.name(),
            error.message.clone(),
        )));
    }
    let now = selector.now();
    let rules = Rules::from_answer(&answer, robots.agent(), now);
    if let (Some(delay), Some(pace)) = (rules.crawl_delay(), selector.pace()) {
        let domain = domain_of(location.host_str().unwrap_or_default());
        let interval = pace.set_min_interval(Scope::host(domain), delay, now);
        if interval.is_shortened && interval.is_new {
            let most = Duration::from_secs_f64(pace.settings().max_crawl_delay_s);
            files.cut = Some(CrawlDelayCut { host: domain.into(), asked: delay, believed: most });
        }
    }
    Ok(robots.keep(origin, rules))
}
