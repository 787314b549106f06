//! What visits do, as events for `tracing`; nothing at all without the feature of that name. Must not decide anything.

use url::Url;

use crate::attempt::Attempt;
use crate::decision::Take;
use crate::time::Timestamp;

/// A request is handed out.
#[cfg_attr(not(feature = "tracing"), allow(unused_variables, reason = "events are compiled out"))]
pub(crate) fn fetch(url: &Url, fetcher: &str, take: &Take) {
    #[cfg(feature = "tracing")]
    tracing::debug!(
        url = url.as_str(),
        fetcher,
        source = take.source.name(),
        rule = take.rule.name(),
        confidence = take.confidence,
        "fetch"
    );
}

/// An attempt is recorded.
#[cfg_attr(not(feature = "tracing"), allow(unused_variables, reason = "events are compiled out"))]
pub(crate) fn attempt(attempt: &Attempt) {
    #[cfg(feature = "tracing")]
    tracing::debug!(
        url = attempt.url.as_str(),
        fetcher = attempt.fetcher.as_str(),
        error = attempt.error_type.as_ref().map(|error| error.name()),
        status = attempt.http_status,
        duration_ms = attempt.duration_ms,
        "attempt"
    );
}

/// A host is paused.
#[cfg_attr(not(feature = "tracing"), allow(unused_variables, reason = "events are compiled out"))]
pub(crate) fn host_paused(domain: &str, until: Timestamp) {
    #[cfg(feature = "tracing")]
    tracing::warn!(domain, until_ms = until.as_millis(), "host paused");
}
