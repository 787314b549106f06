//! Bodies of an earlier crawl: which page is requested with validators, which is not requested at
//! all, and what is kept for the next crawl.
//!
//! Invariants: validators belong to a page that a plain fetcher brought without a redirect and that
//! was judged content. A body that the store no longer has as it stored it is requested in full. So
//! is a page whose terms are unknown, in a crawl with purposes. A response that reserves its page
//! ends the earlier entry.
//!
//! Must not know: where validators and bodies are.

use url::Url;

use super::{Pipeline, Report, consent};
use fetchwise_fetchers::fetch::Response;
use fetchwise_fetchers::store::StoredBody;
use fetchwise_fetchers::store::validators::CachedPage;
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::cache_use::CacheUse;
use fetchwise_types::consent::Term;
use fetchwise_types::fetch_result::{FetchResult, Outcome};
use fetchwise_types::registry::{Class, FetcherId};

/// Returns the earlier response of `url`, if it can stand for a new one. In a crawl with purposes
/// its terms are known.
pub(super) async fn earlier(pipeline: &Pipeline, url: &Url) -> Option<CachedPage> {
    let page = pipeline.validators.as_ref()?.get(url)?;
    let is_judged = page.terms.is_some() || pipeline.consent.purposes.is_empty();
    let is_usable = is_judged && !page.is_expired(pipeline.selector.clock().date());
    (is_usable && is_held(pipeline, page.body.clone()).await).then_some(page)
}

/// Returns whether the body of an earlier response is still there.
async fn is_held(pipeline: &Pipeline, body: Option<StoredBody>) -> bool {
    // A caller that keeps no bodies misses none.
    let Some(store) = pipeline.store.clone() else { return true };
    let Some(body) = body else { return false };
    tokio::task::spawn_blocking(move || store.holds(&body)).await.unwrap_or(false)
}

/// Returns the report of a page that is not requested because it is fresh. The terms that it came
/// with still hold, together with those that robots.txt has now.
pub(super) fn fresh(
    pipeline: &Pipeline,
    robots_terms: &[Term],
    earlier: &CachedPage,
) -> Option<Report> {
    if pipeline.cache_use != CacheUse::Fresh || !earlier.is_fresh(pipeline.selector.clock().date())
    {
        return None;
    }
    let terms = robots_terms.iter().chain(earlier.terms.iter().flatten()).cloned().collect();
    Some(match consent::judge(pipeline, terms) {
        Ok(consent) => of_earlier(Report { success: true, consent, ..Report::default() }, earlier),
        Err((consent, why)) => {
            let report = Report::without_request(ErrorKind::Reserved.name(), why);
            Report { consent: Some(consent), ..report }
        }
    })
}

/// Returns whether this fetcher can revalidate: it brings pages as the site sends them.
pub(super) fn can_revalidate(pipeline: &Pipeline, fetcher: FetcherId) -> bool {
    pipeline
        .selector
        .fetcher(fetcher)
        .is_some_and(|spec| spec.class == Class::Plain && !spec.renders)
}

/// Returns the result of a 304 to the validators of `earlier`; `None` for any other response.
pub(super) fn not_modified(response: &Response, earlier: &CachedPage) -> Option<FetchResult> {
    let is_own = response.status == 304
        && response.chain.is_empty()
        && response.provenance.is_none()
        && earlier.validators.are_confirmed_by(&response.headers);
    is_own.then(|| {
        let mut result = FetchResult::from(Outcome::NotModified)
            .with_status(304)
            .with_duration(response.duration);
        result.headers = response.headers.clone();
        result
    })
}

/// Keeps what a 304 says, with the terms that the page has after it.
pub(super) fn keep_confirmed(
    pipeline: &Pipeline,
    earlier: CachedPage,
    terms: Vec<Term>,
    response: &Response,
) {
    if let Some(log) = &pipeline.validators {
        // Without the entry the next crawl requests the page in full.
        let _ = log.put(
            &earlier
                .confirmed(&response.headers, pipeline.selector.clock().date())
                .with_terms(terms),
        );
    }
}

/// Keeps the validators of a delivered page.
pub(super) fn keep(pipeline: &Pipeline, url: &Url, page: DeliveredHead, body: Option<StoredBody>) {
    let Some(log) = &pipeline.validators else { return };
    let entry = page.is_plain.then(|| {
        let now = pipeline.selector.clock().date();
        CachedPage::of(url, &page.headers, page.bytes, body, now)
    });
    let _ = match entry.flatten() {
        Some(entry) => log.put(&entry.with_terms(page.terms)),
        None => log.forget(url),
    };
}

/// Forgets the earlier response of a page that its new one reserves: a later 304 would bring the
/// earlier body back.
pub(super) fn forget(pipeline: &Pipeline, url: &Url) {
    if let Some(log) = &pipeline.validators {
        let _ = log.forget(url);
    }
}

/// What is kept of a delivered response until its body is stored.
pub(super) struct DeliveredHead {
    headers: Vec<fetchwise_types::response::Header>,
    bytes: u64,
    /// The terms of the response and of its page.
    terms: Vec<Term>,
    /// Whether it came from the URL itself, by a fetcher that can revalidate.
    is_plain: bool,
}

impl DeliveredHead {
    /// Returns the head of a response that `fetcher` brought for `url`; `None` if nothing is kept.
    pub(super) fn of(
        pipeline: &Pipeline,
        url: &Url,
        (response, terms): (&Response, Vec<Term>),
        fetcher: Option<FetcherId>,
    ) -> Option<Self> {
        pipeline.validators.as_ref()?;
        let is_plain = fetcher.is_some_and(|fetcher| can_revalidate(pipeline, fetcher))
            && response.chain.is_empty()
            && response.provenance.is_none()
            && !response.truncated
            && response.status == 200
            && urls_are_equal(&response.final_url, url);
        Some(Self {
            headers: response.headers.clone(),
            bytes: response.body.len(),
            terms,
            is_plain,
        })
    }
}

fn urls_are_equal(a: &Url, b: &Url) -> bool {
    use fetchwise_types::heuristic::url::identity;
    identity(a) == identity(b)
}

/// Adds the earlier body to the report.
pub(super) fn of_earlier(report: Report, earlier: &CachedPage) -> Report {
    let body = earlier.body.as_ref();
    let record = body.and_then(|body| body.record.as_ref());
    let (record, record_offset) = record.map(|record| (record.id.clone(), record.offset)).unzip();
    Report {
        not_modified: true,
        file: body.map(|body| body.file.clone()),
        record,
        record_offset,
        ..report
    }
}
