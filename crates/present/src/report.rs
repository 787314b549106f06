//! The result of one link of a crawl.

use std::borrow::Cow;
use std::path::Path;

use serde::Serialize;

use fetchwise::attempt::verdict_reason::VerdictReason;
use fetchwise::consent::{Purpose, Term};
use fetchwise::decision::Source;
use fetchwise::heuristic::url::{MAX_URL_BYTES, shorten, without_user};
use fetchwise::pipeline::Report;
use fetchwise::rfc3339;

/// The place of a link in the input of its crawl; only one kind of input has each number.
#[derive(Clone, Copy, Debug, Default)]
pub struct InputPlace {
    /// The line of a file.
    pub line: Option<u64>,
    /// The position among the arguments.
    pub position: Option<u64>,
    /// The position in a work queue, and whether another result of the link may have been written
    /// before.
    pub queue: Option<(u64, bool)>,
}

/// A result as JSON.
#[derive(Debug, Serialize)]
pub struct ReportJson<'a> {
    /// Null for an invalid line.
    url: Option<Cow<'a, str>>,
    id: Option<&'a str>,
    line: Option<u64>,
    position: Option<u64>,
    fetcher: Option<&'a str>,
    source: Option<&'static str>,
    confidence: Option<f64>,
    status: Option<u16>,
    /// The address that delivered, after all redirects.
    final_url: Option<&'a str>,
    content_type: Option<&'a str>,
    success: bool,
    error_type: Option<&'a str>,
    error: Option<&'a str>,
    /// Whether the page is one of no site.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    default_page: bool,
    /// The reason of the verdict on a failed page.
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<&'a VerdictReason>,
    is_banned: bool,
    requests: u32,
    bytes: u64,
    duration_ms: u64,
    file: Option<&'a Path>,
    paused_until: Option<String>,
    /// Whether the page is the one of an earlier crawl.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    not_modified: bool,
    /// The record of the body in an archive, and the byte at which it begins; absent without an
    /// archive.
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    record_offset: Option<u64>,
    /// The terms of the page, and where each was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    consent: Option<&'a [Term]>,
    /// The purposes of the crawl that these terms leave.
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed_for: Option<&'a [Purpose]>,
    /// The price that a 402 named.
    #[serde(skip_serializing_if = "Option::is_none")]
    price: Option<&'a str>,
    /// The other offers of a 402.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    offers: &'a [Box<str>],
    /// The host that delivered instead of the site.
    served_by: Option<&'a str>,
    /// The date of an archive's copy.
    archived_at: Option<String>,
    /// The position in the work queue; absent for other inputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_position: Option<u64>,
    /// Whether another result of this link may have been written before; absent for other inputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    redelivered: Option<bool>,
}

impl<'a> ReportJson<'a> {
    /// Creates the result of the link with the caller's `id`, with its place in the input.
    pub fn new(place: InputPlace, id: Option<&'a str>, report: &'a Report) -> Self {
        Self {
            url: Some(shown_url(report)),
            id,
            line: place.line,
            position: place.position,
            fetcher: report.fetcher.as_deref(),
            source: report.source.map(Source::name),
            // Confidence belongs to a fetcher: without one there is none.
            confidence: report.fetcher.as_ref().map(|_| report.confidence),
            status: report.status,
            final_url: report.final_url.as_deref(),
            content_type: report.content_type.as_deref(),
            success: report.success,
            error_type: report.error_type,
            error: report.message.as_deref(),
            default_page: report.is_default_page,
            verdict: report.verdict.as_deref(),
            is_banned: report.is_banned,
            requests: report.requests,
            bytes: report.bytes,
            duration_ms: u64::try_from(report.duration.as_millis()).unwrap_or(u64::MAX),
            file: report.file.as_deref(),
            paused_until: report.paused_until.map(rfc3339::format_time),
            not_modified: report.not_modified,
            record: report.record.as_deref(),
            record_offset: report.record_offset,
            consent: report.consent.as_ref().map(|consent| &*consent.terms),
            allowed_for: report.consent.as_ref().map(|consent| &*consent.allowed_for),
            price: report.price.as_deref(),
            offers: &report.offers,
            served_by: report.provenance.as_ref().map(|provenance| &*provenance.by),
            archived_at: report
                .provenance
                .as_ref()
                .and_then(|provenance| provenance.captured)
                .map(rfc3339::format),
            queue_position: place.queue.map(|(seq, _)| seq),
            redelivered: place.queue.map(|(_, is_redelivered)| is_redelivered),
        }
    }

    /// Returns the result of an invalid line, which has no URL.
    #[must_use]
    pub fn without_url(self) -> Self {
        Self { url: None, ..self }
    }
}

/// Returns the URL as given, without user and password, and shortened if it exceeds the limit for
/// URLs.
pub fn shown_url(report: &Report) -> Cow<'_, str> {
    let url = without_user(&report.url);
    if url.len() > MAX_URL_BYTES { Cow::Owned(shorten(&url)) } else { url }
}
