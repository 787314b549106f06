//! The terms of a page: those of robots.txt before the request, those of the response after it.
//!
//! Must not know: how terms are written and what they mean. [`fetchwise_types::consent`] does that.

use url::Url;

use super::{Pipeline, Report};
use fetchwise_detect::robots_meta;
use fetchwise_fetchers::fetch::Response;
use fetchwise_fetchers::store::validators::CachedPage;
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::consent::{
    Consent, ConsentSettings, LicenseUse, OnReserved, Term, TermPlace, Vocabulary, header_terms,
    robots_directives,
};
use fetchwise_types::fetch_result::{FetchResult, Outcome};

/// Returns whether the terms of robots.txt decide about a page, so that the file is needed.
pub(super) fn needs_robots(settings: &ConsentSettings) -> bool {
    let is_of_robots = |vocabulary: &Vocabulary| match vocabulary {
        Vocabulary::ContentUsage | Vocabulary::ContentSignal => true,
        Vocabulary::Rsl => settings.licenses == LicenseUse::Read,
        Vocabulary::XRobotsTag => false,
    };
    !settings.purposes.is_empty() && settings.respect.iter().any(is_of_robots)
}

/// Returns whether pages that are reserved are skipped, so that none is requested before its terms
/// are known.
pub(super) fn skips(settings: &ConsentSettings) -> bool {
    !settings.purposes.is_empty() && settings.on_reserved == OnReserved::Skip
}

/// Returns whether a page is not requested before the licences that robots.txt names are read.
pub(super) fn needs_licenses(settings: &ConsentSettings) -> bool {
    skips(settings)
        && settings.licenses == LicenseUse::Read
        && settings.respect.contains(&Vocabulary::Rsl)
}

/// Returns the report of a page that is not requested, because robots.txt reserves it.
pub(super) fn reserved(
    pipeline: &Pipeline,
    robots_terms: &[Term],
    url: &Url,
) -> Option<Box<Report>> {
    let consent = pipeline.consent.judge(robots_terms.to_vec())?;
    if !pipeline.consent.withholds(&consent) {
        return None;
    }
    let message = format!(
        "robots.txt of {} reserves it: {}",
        url.host_str().unwrap_or_default(),
        consent.terms_text()
    );
    let report = Report::without_request(ErrorKind::Reserved.name(), message);
    Some(Box::new(Report { consent: Some(Box::new(consent)), ..report }))
}

/// Adds the consent of a page that came: `response` itself, or `earlier` if the response is a 304
/// to its validators. One that is reserved against every purpose becomes
/// [`Reserved`](Outcome::Reserved). Returns the terms of the page without those of robots.txt,
/// which another crawl may find changed.
pub(super) fn apply(
    pipeline: &Pipeline,
    robots_terms: &[Term],
    (response, earlier): (&Response, Option<&CachedPage>),
    result: &mut FetchResult,
) -> Vec<Term> {
    let of_page = match (&result.outcome, earlier) {
        (Outcome::Content, _) => of_response(pipeline, response),
        (Outcome::NotModified, Some(earlier)) => earlier.terms_after(
            &response.headers,
            header_terms(&response.headers, &pipeline.consent.agent),
        ),
        // The terms of an error page are not those of the page.
        _ => return Vec::new(),
    };
    match judge(pipeline, robots_terms.iter().chain(&of_page).cloned().collect()) {
        Ok(consent) => result.consent = consent,
        Err((consent, why)) => {
            (result.outcome, result.message) = (Outcome::Reserved, Some(why));
            result.consent = Some(consent);
        }
    }
    of_page
}

/// Returns the terms in the headers of a response and in its page.
fn of_response(pipeline: &Pipeline, response: &Response) -> Vec<Term> {
    let agent = &pipeline.consent.agent;
    // The headers of an archive are its own.
    let mut terms = match response.provenance {
        None => header_terms(&response.headers, agent),
        Some(_) => Vec::new(),
    };
    for directives in robots_meta(response.body.head(), agent) {
        robots_directives(&directives, TermPlace::Meta, agent, &mut terms);
    }
    terms
}

/// Returns the consent that these terms give.
///
/// # Errors
/// The consent of a page that is reserved against every purpose, and the reason in words.
pub(super) fn judge(
    pipeline: &Pipeline,
    terms: Vec<Term>,
) -> Result<Option<Box<Consent>>, (Box<Consent>, String)> {
    match pipeline.consent.judge(terms).map(Box::new) {
        Some(consent) if pipeline.consent.withholds(&consent) => {
            let why = format!("the site reserves it: {}", consent.terms_text());
            Err((consent, why))
        }
        consent => Ok(consent),
    }
}

/// Returns the consent of a page as far as robots.txt gives it.
pub(super) fn of_robots(pipeline: &Pipeline, robots_terms: &[Term]) -> Option<Box<Consent>> {
    pipeline.consent.judge(robots_terms.to_vec()).map(Box::new)
}
