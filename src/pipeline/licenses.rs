//! The files of RSL that robots.txt names: one request a day for each, through the gate of pages.
//! The robots.txt of their host applies to them.
//!
//! Invariants: a crawl for purposes fetches no page whose licence it could not read to its end. A
//! file that is not there says nothing, so that it neither permits nor reserves.
//!
//! Must not know: what a file says. [`fetchwise_types::consent`] reads it.

use std::sync::Arc;
use std::time::Duration;

use url::Url;

use super::file_request::{FileRequests, FileResult, FileSize};
use super::license_files::LicenseFile;
use super::{Report, consent, robots};
use fetchwise_fetchers::fetch::LimitMet;
use fetchwise_fetchers::robots::{RobotsTxt, RobotsUse, Unknown};
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::consent::{LicenseUse, MAX_RSL_BYTES, RslTerms, Term};
use fetchwise_types::time::Timestamp;

/// Lifetime of a file.
const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// Pause before a file is requested again that could not be had.
const RETRY_PAUSE: Duration = Duration::from_secs(5 * 60);
/// The length of a file.
const SIZE: FileSize = FileSize { enough: None, max: MAX_RSL_BYTES as u64 };

/// Adds to the terms of robots.txt for `url` those of the files that they name.
///
/// # Errors
/// The report of a link that may not be fetched until a file is read.
pub(super) async fn with_files(
    files: &mut FileRequests<'_, '_>,
    robots_use: RobotsUse,
    url: &Url,
    mut terms: Vec<Term>,
) -> Result<Vec<Term>, Box<Report>> {
    let pipeline = files.pipeline;
    let (Some(robots), LicenseUse::Read) = (&pipeline.robots, pipeline.consent.licenses) else {
        return Ok(terms);
    };
    let Ok(root) = url.join("/") else { return Ok(terms) };
    let named: Vec<_> = terms
        .iter()
        .filter_map(|term| Some((root.join(term.license.as_deref()?).ok()?, term.place)))
        .collect();
    for (location, place) in named {
        if !matches!(location.scheme(), "http" | "https") {
            continue;
        }
        let file = read(files, (robots, robots_use), &location).await;
        let file = file.and_then(|file| match &file.unknown {
            Some(unknown) => Err(robots::unreadable(&location, unknown, file.until)),
            None => Ok(file),
        });
        match file {
            Ok(file) => terms.extend(file.terms.at(url, place)),
            Err(report) if consent::needs_licenses(&pipeline.consent) => return Err(report),
            Err(_) => {}
        }
    }
    Ok(terms)
}

/// Returns the file at `location`.
///
/// # Errors
/// The report of a link for which it cannot be requested now.
async fn read(
    files: &mut FileRequests<'_, '_>,
    (robots, robots_use): (&RobotsTxt, RobotsUse),
    location: &Url,
) -> Result<LicenseFile, Box<Report>> {
    let pipeline = files.pipeline;
    let slot = pipeline.licenses.slot(location.as_str());
    let mut kept = match slot.try_lock() {
        Ok(kept) => kept,
        Err(_) => files.wait_for(slot.lock()).await,
    };
    if let Some(known) = kept.as_ref().filter(|known| known.until > pipeline.selector.now()) {
        return Ok(known.clone());
    }
    if robots_use == RobotsUse::Obey
        && let Some((rules, at)) = robots::rules_for(files, robots, location).await?
    {
        robots::is_known(&rules, &at)?;
        if robots::is_allowed(&rules, &at, location).is_err() {
            return Ok(LicenseFile::silent(rules.until()));
        }
    }
    let answer = files.request(robots, location, SIZE).await;
    let answer = answer.map_err(|refusal| refusal.report(location, pipeline.selector.now()))?;
    if let Err(error) = &answer
        && error.local
    {
        return Err(Box::new(Report::without_request(
            ErrorKind::LocalFault.name(),
            error.message.clone(),
        )));
    }
    let file = LicenseFile::of(&answer, pipeline.selector.now());
    *kept = Some(file.clone());
    Ok(file)
}

impl LicenseFile {
    /// Returns a file that says nothing until then.
    fn silent(until: Timestamp) -> Self {
        Self { terms: Arc::default(), until, unknown: None }
    }

    /// Returns the file as it came. A response that is not whole, or that says "not now", leaves it
    /// unknown.
    fn of(answer: &FileResult, now: Timestamp) -> Self {
        let unknown = |kind, message: String| Self {
            unknown: Some(Unknown { kind, message }),
            ..Self::silent(now.saturating_add(RETRY_PAUSE))
        };
        match answer {
            Ok(response) => match response.status {
                200..=299 if response.is_incomplete() => {
                    unknown(ErrorKind::Truncated, "the file is incomplete".to_owned())
                }
                200..=299 => {
                    let terms = Arc::new(RslTerms::read(response.body.head()));
                    Self { terms, ..Self::silent(now.saturating_add(LIFETIME)) }
                }
                429 => unknown(ErrorKind::RateLimited, "status 429".to_owned()),
                status @ 500.. => unknown(ErrorKind::ServerError, format!("status {status}")),
                _ => Self::silent(now.saturating_add(LIFETIME)),
            },
            Err(error) if matches!(error.limit, Some(LimitMet::Body(_))) => {
                Self::silent(now.saturating_add(LIFETIME))
            }
            Err(error) if matches!(error.kind, ErrorKind::Timeout | ErrorKind::NetworkError) => {
                unknown(error.kind, error.message.clone())
            }
            Err(_) => Self::silent(now.saturating_add(RETRY_PAUSE)),
        }
    }
}
