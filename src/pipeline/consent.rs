//! The terms of a page: those of robots.txt before the request, those of the response after it.
//!
//! Must not know: how terms are written and what they mean. [`fetchwise_types::consent`] does that.

use url::Url;

use super::{Pipeline, Report};
use fetchwise_detect::robots_meta;
use fetchwise_fetchers::fetch::Response;
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::consent::{
    Consent, ConsentSettings, Term, TermPlace, Vocabulary, header_terms, robots_directives,
};
use fetchwise_types::fetch_result::{FetchResult, Outcome};

/// Returns whether the terms of robots.txt decide about a page, so that the file is needed.
pub(super) fn needs_robots(settings: &ConsentSettings) -> bool {
    let of_robots = [Vocabulary::ContentUsage, Vocabulary::ContentSignal];
    !settings.purposes.is_empty() && settings.respect.iter().any(|vocabulary| of_robots.contains(vocabulary))
}

/// Returns the report of a page that is not requested, because robots.txt reserves it.
pub(super) fn reserved(pipeline: &Pipeline, robots_terms: &[Term], url: &Url) -> Option<Box<Report>> {
    let consent = pipeline.consent.judge(robots_terms.to_vec())?;
    if !pipeline.consent.withholds(&consent) {
        return None;
    }
    let message = format!("robots.txt of {} reserves it: {}", url.host_str().unwrap_or_default(), consent.terms_text());
    let report = Report::without_request(ErrorKind::Reserved.name(), message);
    Some(Box::new(Report { consent: Some(Box::new(consent)), ..report }))
}

/// Adds the consent of a page that came. One that is reserved against every purpose becomes
/// [`Reserved`](Outcome::Reserved).
pub(super) fn apply(pipeline: &Pipeline, robots_terms: &[Term], response: &Response, result: &mut FetchResult) {
    if !matches!(result.outcome, Outcome::Content | Outcome::NotModified) {
        // The terms of an error page are not those of the page.
        return;
    }
    let settings = &pipeline.consent;
    let mut terms = robots_terms.to_vec();
    // The headers of an archive are its own.
    if response.provenance.is_none() {
        terms.append(&mut header_terms(&response.headers, &settings.agent));
    }
    for directives in robots_meta(response.body.head(), &settings.agent) {
        robots_directives(&directives, TermPlace::Meta, &settings.agent, &mut terms);
    }
    let Some(consent) = settings.judge(terms) else { return };
    if settings.withholds(&consent) {
        result.outcome = Outcome::Reserved;
        result.message = Some(format!("the site reserves it: {}", consent.terms_text()));
    }
    result.consent = Some(Box::new(consent));
}

/// Returns the consent of a page as far as robots.txt gives it.
pub(super) fn of_robots(pipeline: &Pipeline, robots_terms: &[Term]) -> Option<Box<Consent>> {
    pipeline.consent.judge(robots_terms.to_vec()).map(Box::new)
}
