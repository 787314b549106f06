//! What visits do, as events for `tracing`; nothing at all without the feature of that name. Must not decide anything.

use url::Url;

use crate::attempt::Attempt;
use crate::decision::Take;
use crate::router::{FallBack, Router};
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

/// Another router is in force.
#[cfg_attr(not(feature = "tracing"), allow(unused_variables, reason = "events are compiled out"))]
pub(crate) fn router(router: &Router) {
    #[cfg(feature = "tracing")]
    tracing::info!(
        mode = router.mode.name(),
        split_share = router.split_share,
        routes = router.table.len(),
        "router changed"
    );
}

/// Learning is taken out of service.
#[cfg_attr(not(feature = "tracing"), allow(unused_variables, reason = "events are compiled out"))]
pub(crate) fn fell_back(why: &FallBack) {
    #[cfg(feature = "tracing")]
    tracing::error!(from = why.from.name(), reason = why.reason.as_str(), "fell back to the router table");
}
