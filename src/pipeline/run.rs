//! The driver of one URL's visit on tokio, with the pipeline's fetchers and store.
//!
//! Owns: waiting (for a fetcher's free slot, and for the events of a visit), and storing a
//! delivered page.
//!
//! Must not know: how to decide, judge or record. The visit does that.

use std::io;
use std::time::Instant;

use tokio::sync::{Semaphore, SemaphorePermit};
use url::Url;

use super::file_request::FileRequests;
use super::gate::{Gate, PageRequest, requests};
use super::link_slot::LinkSlot;
use super::local_delay::LocalDelay;
use super::page_judge::DetectorJudge;
use super::wait::{self, pause};
use super::{AvailableFetcher, GRACE, Link, Pipeline, Report, cache, consent, licenses, robots};
use crate::router::Mode;
use crate::selector::Selector;
use crate::trace::Span;
use crate::visit::passage::Passage;
use crate::visit::{End, Fetch, Step, Visit, VisitOutcome, Wait};
use fetchwise_fetchers::fetch::http::CookieJar;
use fetchwise_fetchers::fetch::redirect_gate::within;
use fetchwise_fetchers::fetch::{FetchError, Limits, RedirectGate, Request, Response};
use fetchwise_fetchers::payment_offers::payment_offers;
use fetchwise_fetchers::store::Delivered;
use fetchwise_fetchers::store::failed_pages::FailedPage;
use fetchwise_fetchers::store::validators::CachedPage;
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::attempt::{ErrorType, stored_headers};
use fetchwise_types::consent::{Consent, Term};
use fetchwise_types::fetch_result::{FetchResult, Outcome};
use fetchwise_types::heuristic::url as urls;
use fetchwise_types::registry::{Class, canonical};
use fetchwise_types::response::header;
use fetchwise_types::time::Timestamp;

pub(super) type PipelineVisit<'w> = Visit<&'w Selector, &'w Url>;

/// Fetches `link` and reports the result.
pub(super) async fn run(pipeline: &Pipeline, link: &Link, link_slot: &LinkSlot) -> Report {
    let begun = Instant::now();
    let mut files = FileRequests::new(pipeline, link_slot);
    let mut report = match urls::parse(&link.url) {
        Ok(url) => match permitting_terms(&mut files, link, &url).await {
            Ok(terms) => {
                let passage = files.take_passage();
                run_permitted(pipeline, link, (&url, &terms), (passage, link_slot)).await
            }
            Err(report) => *report,
        },
        Err(error) => Report::without_request(ErrorKind::InvalidUrl.name(), error.to_string()),
    };
    report.url.clone_from(&link.url);
    report.crawl_delay_cut = files.cut;
    report.duration = begun.elapsed();
    report
}

/// Returns the terms of robots.txt and its licences, which permit to fetch `link`.
///
/// # Errors
/// The report of a link that may not be fetched.
async fn permitting_terms(
    files: &mut FileRequests<'_, '_>,
    link: &Link,
    url: &Url,
) -> Result<Vec<Term>, Box<Report>> {
    let terms = robots::check(files, link, url).await?;
    let terms = licenses::with_files(files, link.robots, url, terms).await?;
    consent::reserved(files.pipeline, &terms, url).map_or(Ok(terms), Err)
}

/// Fetches a link that robots.txt and its terms permit, unless an earlier body is still fresh.
async fn run_permitted(
    pipeline: &Pipeline,
    link: &Link,
    (url, terms): (&Url, &[Term]),
    (passage, link_slot): (Passage<&Selector>, &LinkSlot),
) -> Report {
    let earlier = cache::earlier(pipeline, url).await;
    if let Some(report) =
        earlier.as_ref().and_then(|earlier| cache::fresh(pipeline, terms, earlier))
    {
        return report;
    }
    match begin(pipeline, link, url) {
        Ok(visit) => {
            drive(pipeline, visit.continuing(passage), (url, terms, earlier), link_slot).await
        }
        Err(report) => *report,
    }
}

/// Starts the visit for `link`.
fn begin<'w>(
    pipeline: &'w Pipeline,
    link: &Link,
    url: &'w Url,
) -> Result<PipelineVisit<'w>, Box<Report>> {
    let invalid = |error: crate::Error| {
        Box::new(Report::without_request(ErrorKind::InvalidUrl.name(), error.to_string()))
    };
    let mut visit = pipeline
        .selector
        .visit(url)
        .map_err(invalid)?
        .without(pipeline.unavailable)
        .waits_without_limit();
    if let Some(id) = &link.id {
        visit = visit.link_id(id);
    }
    if !link.heuristics.is_empty() {
        visit = visit.with_heuristics(link.heuristics.iter().cloned());
    }
    if let Some(learning) = link.learning {
        visit = visit.mode(if learning { Mode::Learning } else { Mode::Legacy });
    }
    if let Some(name) = &link.prefer {
        // The name is a wish for the first attempt: an unavailable fetcher leaves the choice to the
        // selector, an unknown name is an error.
        let missing = || {
            Box::new(Report::without_request(Report::NO_FETCHER, missing_reason(pipeline, name)))
        };
        let preferred = pipeline
            .selector
            .fetcher_id(name)
            .filter(|id| pipeline.selector.is_candidate(*id))
            .ok_or_else(missing)?;
        if pipeline.fetcher(preferred).is_some() {
            visit = visit.prefer(name).map_err(|_| missing())?;
        }
    }
    Ok(visit)
}

/// Drives a visit to its end. `terms` are those of robots.txt for its URL, `earlier` is the page of
/// an earlier crawl.
async fn drive<'p>(
    pipeline: &'p Pipeline,
    mut visit: PipelineVisit<'p>,
    (url, terms, earlier): (&Url, &[Term], Option<CachedPage>),
    link_slot: &LinkSlot,
) -> Report {
    let mut brought = Brought::default();
    let end = loop {
        match visit.next() {
            Step::Fetch(fetch) => {
                let input = (terms, earlier.as_ref());
                let end =
                    fetch_page(pipeline, (&mut visit, fetch), input, link_slot, &mut brought).await;
                if let Some(end) = end {
                    break end;
                }
            }
            Step::Wait(wait) if sits_out(pipeline, &visit, &wait) => {
                if pause(pipeline, link_slot, wait).await {
                    visit.waited();
                }
            }
            Step::Wait(wait) => break visit.give_up(&wait),
            Step::End(end) => break end,
        }
    };
    let report = report(pipeline, end, brought.bytes);
    brought.keep(pipeline, report, (url, terms, earlier)).await
}

/// Makes one request of a visit and reports its result. Returns the end of the visit if the request
/// may not follow a redirect.
async fn fetch_page<'p>(
    pipeline: &'p Pipeline,
    (visit, mut fetch): (&mut PipelineVisit<'p>, Fetch<&'p Selector>),
    (terms, earlier): (&[Term], Option<&CachedPage>),
    link_slot: &LinkSlot,
    brought: &mut Brought,
) -> Option<End> {
    let Some(AvailableFetcher { fetcher, slots }) = pipeline.fetcher(fetch.fetcher_id()) else {
        let why = missing_reason(pipeline, fetch.fetcher());
        visit.unavailable(fetch, why);
        return None;
    };
    // The slot comes last. A follower with the only slot of its leader would wait without end.
    let _slot = acquire_slot(pipeline, (slots, link_slot), visit, &mut fetch).await?;
    let mut limits = limits(pipeline, &fetch);
    limits.deadline = fetcher.deadline(limits.deadline);
    let begun = Instant::now();
    let asked = visit.url().clone();
    let begun_span = fetch.trace().fetch(&asked, fetcher.name());
    let is_archive = is_archive(pipeline, &fetch);
    let asked_again = earlier.filter(|_| can_revalidate(pipeline, &fetch));
    let gate = Gate::new(pipeline, link_slot, PageRequest { visit, fetch: &mut fetch });
    let admission = (!is_archive).then_some(&gate as &dyn RedirectGate);
    let validators =
        asked_again.map(|earlier| &earlier.validators).filter(|known| !known.is_empty());
    let by = DetectorJudge(&pipeline.detector);
    let judged = Request { judge: Some(&by), ..Request::new(&asked, &limits) };
    let cookies = Some(&brought.cookies);
    let request = Request { gate: admission, validators, cookies, ..judged };
    let mut local_delay = LocalDelay::default();
    let result = {
        let asking = local_delay.measure(begun_span.around(fetcher.fetch(request)));
        let result = within(limits.deadline + GRACE, admission, asking).await;
        let result = result.unwrap_or_else(|| Err(no_response(&limits, begun)));
        let result = local_delay.attribute(result, limits.deadline);
        // The span ends with the request, before its result is judged.
        end_span(begun_span, &result);
        result
    };
    let (_, refusal) = gate.into_parts();
    match result {
        Err(error)
            if error.stopped
                && let Some((to, why)) = refusal =>
        {
            return Some(visit.stop_before(fetch, to, why));
        }
        Err(error) if error.unavailable => visit.unavailable(fetch, error.message),
        Err(error) => {
            brought.clear_request();
            visit.report(fetch, failed_result(error));
        }
        Ok(mut response) => {
            let asked_again = asked_again.filter(|_| validators.is_some());
            let mut answer = brought.judge(pipeline, (&response, asked_again), &asked, terms);
            answer.unanswered = std::mem::take(&mut response.unanswered);
            answer.local_delay = Some(local_delay.average());
            let redirects = fetch.redirects();
            visit.report(fetch, answer);
            brought.add(response, visit.redirects() > redirects);
        }
    }
    None
}

/// What the requests of a visit have brought so far.
#[derive(Default)]
struct Brought {
    /// The last response that did not redirect.
    delivered: Option<Response>,
    /// The URLs that redirected, in order, since the last such response.
    chain: Vec<Url>,
    /// The cookies of those.
    cookies: CookieJar,
    /// Length of the last body, in bytes.
    bytes: u64,
    /// Whether the last response confirmed the page of an earlier crawl.
    is_not_modified: bool,
    offers: Vec<Box<str>>,
    consent: Option<Box<Consent>>,
    terms: Vec<Term>,
}

impl Brought {
    /// Forgets the redirects that led to a request that failed.
    fn clear_request(&mut self) {
        self.chain.clear();
        self.cookies = CookieJar::default();
        self.bytes = 0;
    }

    /// Adds a response that was judged.
    fn add(&mut self, mut response: Response, is_redirect: bool) {
        if is_redirect {
            self.cookies.add(&response.headers, &response.final_url);
            self.chain.append(&mut response.chain);
            self.chain.push(response.final_url);
        } else {
            response.chain.splice(0..0, self.chain.drain(..));
            self.cookies = CookieJar::default();
            self.delivered = Some(response);
        }
    }

    /// Judges a response, and remembers what the report needs of it. `asked_again` is the page of
    /// an earlier crawl, if the request had its validators.
    fn judge(
        &mut self,
        pipeline: &Pipeline,
        (response, asked_again): (&Response, Option<&CachedPage>),
        asked: &Url,
        terms: &[Term],
    ) -> FetchResult {
        self.bytes = response.body.len();
        let unchanged = asked_again.and_then(|earlier| cache::not_modified(response, earlier));
        self.is_not_modified = unchanged.is_some();
        let mut answer = unchanged.unwrap_or_else(|| judge(pipeline, response, asked));
        answer.requests = requests(response);
        let confirmed = asked_again.filter(|_| self.is_not_modified);
        self.terms = consent::apply(pipeline, terms, (response, confirmed), &mut answer);
        self.consent = answer.consent.clone();
        self.offers = payment_offers(response);
        answer
    }

    /// Stores the delivered page, and completes the report. `terms` are those of robots.txt.
    async fn keep(
        self,
        pipeline: &Pipeline,
        mut report: Report,
        (url, terms, earlier): (&Url, &[Term], Option<CachedPage>),
    ) -> Report {
        if report.error_type == Some(ErrorKind::PaymentRequired.name()) {
            report.offers = self.offers;
        }
        if report.error_type == Some(ErrorKind::IdentityRejected.name()) {
            let host = self.delivered.as_ref().and_then(|response| response.final_url.host_str());
            report.signature_rejected_by =
                host.and_then(|host| pipeline.signature_rejections.add(host));
        }
        let is_reserved = report.error_type == Some(ErrorKind::Reserved.name());
        let is_page = report.success || is_reserved;
        let Some(response) = self.delivered else { return report };
        if !is_page {
            return keep_failed(pipeline, report, response, url).await;
        }
        report.final_url = Some(response.final_url.as_str().into());
        report.content_type = header(&response.headers, "content-type").map(Into::into);
        report.consent = self.consent.or_else(|| consent::of_robots(pipeline, terms));
        match earlier.filter(|_| self.is_not_modified) {
            Some(earlier) if is_reserved => {
                cache::keep_confirmed(pipeline, earlier, self.terms, &response)
            }
            Some(earlier) => {
                return store_not_modified(pipeline, report, (response, self.terms, earlier), url)
                    .await;
            }
            None if is_reserved => cache::forget(pipeline, url),
            None => return store_page(pipeline, report, (response, self.terms), url).await,
        }
        report
    }
}

fn is_archive(pipeline: &Pipeline, fetch: &Fetch<&Selector>) -> bool {
    pipeline.selector.fetcher(fetch.fetcher_id()).is_some_and(|spec| spec.class == Class::Archive)
}

/// Returns whether the request may ask if the page of an earlier crawl is still the same.
fn can_revalidate(pipeline: &Pipeline, fetch: &Fetch<&Selector>) -> bool {
    fetch.redirected_to().is_none() && cache::can_revalidate(pipeline, fetch.fetcher_id())
}

/// Returns the error of a fetcher that did not end in time.
fn no_response(limits: &Limits, begun: Instant) -> FetchError {
    let message = format!("no response within {} s", limits.deadline.as_secs_f64());
    FetchError::new(ErrorKind::Timeout, message, begun.elapsed())
}

/// Ends the span of a request with its result.
fn end_span(span: Span, result: &Result<Response, FetchError>) {
    match result {
        Ok(response) => span.fetched(response.status, response.body.len(), &response.final_url),
        Err(error) => span.not_fetched(error),
    }
}

/// Waits for a free slot of the fetcher. `None` if the host was paused meanwhile: ask for the next
/// step again. The wait is not part of the deadline, since no request was made yet, and it does not
/// block the host's pace.
async fn acquire_slot<'p>(
    pipeline: &'p Pipeline,
    (slots, link_slot): (&'p Semaphore, &LinkSlot),
    visit: &PipelineVisit<'p>,
    fetch: &mut Fetch<&'p Selector>,
) -> Option<SemaphorePermit<'p>> {
    if let Ok(slot) = slots.try_acquire() {
        return Some(slot);
    }
    visit.return_pace_permit(fetch);
    loop {
        let slot = link_slot.leave_during(slots.acquire()).await.ok()?;
        if visit.is_host_paused() {
            return None;
        }
        match visit.retake_pace_permit(fetch) {
            Ok(()) => return Some(slot),
            Err(wait) => {
                drop(slot);
                pause(pipeline, link_slot, wait).await;
            }
        }
    }
}

/// Returns the limits of this request: the pipeline's, with the time and redirects that the visit
/// allows.
fn limits(pipeline: &Pipeline, fetch: &Fetch<&Selector>) -> Limits {
    Limits {
        deadline: fetch.deadline(),
        max_redirects: fetch.max_redirects(),
        ..pipeline.limits.clone()
    }
}

/// Returns whether to sit out a wait. A visit that has made a request is not ended for a short
/// wait.
fn sits_out(pipeline: &Pipeline, visit: &PipelineVisit<'_>, wait: &Wait) -> bool {
    wait::sits_out(pipeline, wait, visit.requests() > 0 || visit.redirects() > 0)
}

/// Judges a response.
fn judge(pipeline: &Pipeline, response: &Response, url: &Url) -> FetchResult {
    let page = response.page(url);
    let mut answer =
        pipeline.detector.judge_with(&page, &pipeline.extractors).with_duration(response.duration);
    if response.truncated {
        answer.outcome = answer.outcome.truncated();
    }
    if response.is_signature_rejected
        && matches!(answer.outcome, Outcome::Blocked(_) | Outcome::Http(_))
    {
        // It is about the key, not about the fetcher: a block would make the host one that refuses
        // signed requests.
        (answer.outcome, answer.message) = (Outcome::IdentityRejected, None);
    }
    match &response.provenance {
        Some(provenance) => answer.with_provenance(provenance.clone()),
        None => answer,
    }
}

/// Returns the result of a request without a response.
fn failed_result(error: FetchError) -> FetchResult {
    let outcome = if error.local { Outcome::Local } else { Outcome::from(error.kind) };
    let mut answer =
        FetchResult::from(outcome).with_duration(error.duration).with_message(error.message);
    answer.status = error.status;
    (answer.is_refused, answer.is_of_client) = (error.refused, error.of_client);
    answer.headers = stored_headers(&error.headers);
    (answer.final_url, answer.unanswered) = (error.final_url, error.unanswered.into_vec());
    answer
}

fn report(pipeline: &Pipeline, end: End, bytes: u64) -> Report {
    let error_type = match &end.how {
        VisitOutcome::Delivered => None,
        VisitOutcome::Failed(ErrorType::Known(kind)) => Some(kind.name()),
        VisitOutcome::Failed(_) => Some(ErrorKind::NetworkError.name()),
        other => Some(other.name()),
    };
    let success = error_type.is_none();
    Report {
        fetcher: end.fetcher.map(|id| pipeline.selector.fetcher_name(id).to_owned()),
        source: end.source,
        confidence: end.confidence,
        status: end.status,
        success,
        error_type,
        message: Some(end.message).filter(|message| !message.is_empty()),
        is_banned: end.is_banned,
        was_trial: end.was_trial,
        requests: end.requests,
        bytes: if success { bytes } else { 0 },
        paused_until: end.paused_until,
        is_default_page: end.is_default_page,
        verdict: end.verdict,
        price: end.price,
        ..Report::default()
    }
}

/// Passes a delivered page to the store, or puts it into the report if there is none.
async fn store_page(
    pipeline: &Pipeline,
    mut report: Report,
    (response, terms): (Response, Vec<Term>),
    url: &Url,
) -> Report {
    report.provenance.clone_from(&response.provenance);
    let fetcher = report.fetcher.as_deref().and_then(|name| pipeline.selector.fetcher_id(name));
    let head = cache::DeliveredHead::of(pipeline, url, (&response, terms), fetcher);
    let Some(store) = pipeline.store.clone() else {
        if let Some(head) = head {
            cache::keep(pipeline, url, head, None);
        }
        report.response = Some(response);
        return report;
    };
    let stored = on_store(pipeline, &report, url, move |page| store.put_body(page), response).await;
    match stored {
        Ok(body) => {
            report.file = Some(body.file.clone());
            let record = body.record.as_ref();
            (report.record, report.record_offset) =
                record.map(|record| (record.id.clone(), record.offset)).unzip();
            if let Some(head) = head {
                cache::keep(pipeline, url, head, Some(body));
            }
            report
        }
        Err(message) => not_stored(report, &message),
    }
}

/// Keeps the body of a page that failed, if the pipeline does that.
async fn keep_failed(
    pipeline: &Pipeline,
    mut report: Report,
    response: Response,
    url: &Url,
) -> Report {
    let Some((pages, on_error)) = pipeline.failed_pages.clone() else { return report };
    let Some(error_type) = report.error_type else { return report };
    let (url, at) = (url.clone(), pipeline.selector.clock().date());
    let (fetcher, verdict) = (report.fetcher.clone().unwrap_or_default(), report.verdict.clone());
    let kept = tokio::task::spawn_blocking(move || {
        let (response, verdict) = (&response, verdict.as_deref());
        pages.keep(&FailedPage { url: &url, response, fetcher: &fetcher, error_type, verdict, at })
    });
    match kept.await.unwrap_or_else(|error| Err(io::Error::other(error))) {
        Ok(file) => report.file = Some(file),
        Err(error) => on_error(&error),
    }
    report
}

/// Records in the store that the page is the one of an earlier crawl.
async fn store_not_modified(
    pipeline: &Pipeline,
    report: Report,
    (response, terms, earlier): (Response, Vec<Term>, CachedPage),
    url: &Url,
) -> Report {
    let report = cache::of_earlier(Report { bytes: 0, ..report }, &earlier);
    cache::keep_confirmed(pipeline, earlier.clone(), terms, &response);
    let (Some(store), Some(body)) = (pipeline.store.clone(), earlier.body) else { return report };
    let recorded =
        on_store(pipeline, &report, url, move |page| store.put_not_modified(page, &body), response)
            .await;
    match recorded {
        Ok(()) => report,
        Err(message) => not_stored(report, &message),
    }
}

/// Calls `write` with the delivered page on a thread for blocking work.
async fn on_store<T: Send + 'static>(
    pipeline: &Pipeline,
    report: &Report,
    url: &Url,
    write: impl FnOnce(&Delivered<'_>) -> io::Result<T> + Send + 'static,
    response: Response,
) -> Result<T, String> {
    let (url, fetcher) = (url.clone(), report.fetcher.clone().unwrap_or_default());
    let (at, consent): (Timestamp, _) = (pipeline.selector.clock().date(), report.consent.clone());
    let is_long = response.body.spill().is_some();
    let write = move || {
        write(&Delivered {
            consent: consent.as_deref(),
            ..Delivered::new(&url, &response, &fetcher, at)
        })
    };
    // No other page waits for a long one.
    let written = match is_long {
        true => tokio::task::spawn_blocking(write).await.ok(),
        false => pipeline.store_queue.run(write).await,
    };
    match written {
        Some(written) => written.map_err(|error| error.to_string()),
        None => Err("bug in fetchwise: the store panicked".to_owned()),
    }
}

fn not_stored(report: Report, message: &str) -> Report {
    Report {
        success: false,
        error_type: Some(Report::STORE_ERROR),
        message: Some(format!("cannot store the page: {message}")),
        ..report
    }
}

fn missing_reason(pipeline: &Pipeline, name: &str) -> String {
    match pipeline.missing.get(canonical(name)) {
        Some(reason) => format!("{name} is not available: {reason}"),
        None => format!("unknown fetcher {name}"),
    }
}
