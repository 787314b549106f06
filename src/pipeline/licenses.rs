//! The files of RSL that robots.txt names: one request a day for each, with the guard, limits and pace of robots.txt.
//!
//! Invariants: a file that cannot be read says nothing, so that it neither permits nor reserves.
//!
//! Must not know: what a file says. [`fetchwise_types::consent`] reads it.

use std::sync::Arc;
use std::time::Duration;

use url::Url;

use super::license_files::LicenseFile;
use super::link_slot::LinkSlot;
use super::{Pipeline, robots};
use fetchwise_fetchers::fetch::LimitMet;
use fetchwise_fetchers::robots::RobotsTxt;
use fetchwise_types::consent::{LicenseUse, MAX_RSL_BYTES, RslTerms, Term};
use fetchwise_types::heuristic::url::domain_of;

/// Lifetime of a file.
const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// Pause before a file is requested again that could not be had.
const RETRY_PAUSE: Duration = Duration::from_secs(5 * 60);

/// Returns the terms of robots.txt for `url`, with those of the files that they name.
pub(super) async fn with_files(
    pipeline: &Pipeline,
    url: &Url,
    mut terms: Vec<Term>,
    link_slot: &LinkSlot,
) -> Vec<Term> {
    let (Some(robots), LicenseUse::Read) = (&pipeline.robots, pipeline.consent.licenses) else { return terms };
    let Ok(root) = url.join("/") else { return terms };
    let named: Vec<_> =
        terms.iter().filter_map(|term| Some((root.join(term.license.as_deref()?).ok()?, term.place))).collect();
    for (location, place) in named {
        if matches!(location.scheme(), "http" | "https") {
            let file = read(pipeline, robots, &location, link_slot).await;
            terms.extend(file.iter().flat_map(|file| file.at(url, place)));
        }
    }
    terms
}

/// Returns the file at `location`; `None` if it cannot be requested now.
async fn read(pipeline: &Pipeline, robots: &RobotsTxt, location: &Url, link_slot: &LinkSlot) -> Option<Arc<RslTerms>> {
    let slot = pipeline.licenses.slot(location.as_str());
    let mut file = match slot.try_lock() {
        Ok(file) => file,
        Err(_) => link_slot.leave_during(slot.lock()).await,
    };
    let now = pipeline.selector.now();
    if let Some(known) = file.as_ref().filter(|known| known.until > now) {
        return Some(Arc::clone(&known.terms));
    }
    let domain = domain_of(location.host_str().unwrap_or_default());
    if robots::pause_beyond_pace(pipeline, domain, now).is_some() {
        return None;
    }
    let permit = robots::pace_permit(pipeline, link_slot, domain).await.ok()?;
    let answer = robots::request(pipeline, robots, location, MAX_RSL_BYTES as u64).await;
    if let Some(permit) = permit {
        robots::report_to_pace(pipeline, robots, permit, domain, &answer);
    }
    let (terms, lifetime) = match &answer {
        Ok(response) if response.truncated || matches!(response.status, 429 | 500..) => {
            (RslTerms::default(), RETRY_PAUSE)
        }
        Ok(response) if response.status == 200 => (RslTerms::read(response.body.head()), LIFETIME),
        Ok(_) => (RslTerms::default(), LIFETIME),
        Err(error) if matches!(error.limit, Some(LimitMet::Body(_))) => (RslTerms::default(), LIFETIME),
        Err(error) if error.local => return None,
        Err(_) => (RslTerms::default(), RETRY_PAUSE),
    };
    let read = LicenseFile { terms: Arc::new(terms), until: pipeline.selector.now().saturating_add(lifetime) };
    let terms = Arc::clone(&read.terms);
    *file = Some(read);
    Some(terms)
}
