//! Spans and events of visits and the journal for `tracing`. Without the feature of that name it
//! does nothing.
//!
//! A visit is a span. Each of its attempts is a span within it, and the fetch and the log append
//! are spans within the attempt.
//!
//! Invariants: URLs are recorded without user info. Without a subscriber nothing is formatted or
//! allocated.
//!
//! Must not know: decisions.

#[cfg(feature = "journal")]
use std::path::Path;

use url::Url;

use crate::router::{Fallback, Router};
use fetchwise_types::attempt::Attempt;
use fetchwise_types::decision::Selection;
use fetchwise_types::time::Timestamp;

/// Span of a piece of work. Cheap to create without a subscriber.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

/// Guard that keeps a span entered.
pub(crate) struct SpanGuard<'s> {
    #[cfg(feature = "tracing")]
    _entered: tracing::span::Entered<'s>,
    #[cfg(not(feature = "tracing"))]
    _span: std::marker::PhantomData<&'s Span>,
}

/// URL without user info.
#[cfg(feature = "tracing")]
struct WithoutUserInfo<'u>(&'u Url);

#[cfg(feature = "tracing")]
impl std::fmt::Display for WithoutUserInfo<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use url::Position;

        if self.0.username().is_empty() && self.0.password().is_none() {
            return f.write_str(self.0.as_str());
        }
        write!(f, "{}{}", &self.0[..Position::BeforeUsername], &self.0[Position::BeforeHost..])
    }
}

macro_rules! span {
    ($($fields:tt)*) => {
        Span {
            #[cfg(feature = "tracing")]
            span: tracing::span!($($fields)*),
        }
    };
}

#[cfg_attr(
    not(feature = "tracing"),
    allow(unused_variables, dead_code, clippy::unused_self, reason = "spans are compiled out")
)]
impl Span {
    /// Creates the span of a visit of `url`.
    #[inline]
    pub(crate) fn visit(url: &Url) -> Self {
        span!(
            tracing::Level::INFO,
            "visit",
            url = %WithoutUserInfo(url),
            link = tracing::field::Empty,
            end = tracing::field::Empty,
            error = tracing::field::Empty,
            requests = tracing::field::Empty
        )
    }

    /// Records the caller's id for the visited link.
    #[inline]
    pub(crate) fn link(&self, link: &str) {
        #[cfg(feature = "tracing")]
        self.span.record("link", link);
    }

    /// Records how the visit ended.
    #[inline]
    pub(crate) fn ended(&self, end: &'static str, error: Option<&str>, requests: u32) {
        #[cfg(feature = "tracing")]
        {
            self.span.record("end", end).record("requests", requests);
            if let Some(error) = error {
                self.span.record("error", error);
            }
        }
    }

    /// Creates the span of an attempt within this visit, when a request is handed out.
    #[inline]
    pub(crate) fn attempt(&self, url: &Url, fetcher: &str, take: &Selection, number: u32) -> Self {
        span!(
            parent: &self.span,
            tracing::Level::INFO,
            "attempt",
            url = %WithoutUserInfo(url),
            fetcher,
            source = take.source.name(),
            rule = take.rule.name(),
            confidence = take.confidence,
            number,
            outcome = tracing::field::Empty,
            status = tracing::field::Empty,
            duration_ms = tracing::field::Empty
        )
    }

    /// Records the result of the attempt, as it is logged.
    #[inline]
    pub(crate) fn recorded(&self, attempt: &Attempt) {
        #[cfg(feature = "tracing")]
        {
            let outcome = attempt.error_type.as_ref().map_or("content", |error| error.name());
            self.span.record("outcome", outcome).record("duration_ms", attempt.duration_ms);
            if let Some(status) = attempt.http_status {
                self.span.record("status", status);
            }
            tracing::debug!(
                parent: &self.span,
                url = attempt.url.as_str(),
                fetcher = attempt.fetcher.as_str(),
                error = attempt.error_type.as_ref().map(|error| error.name()),
                status = attempt.http_status,
                duration_ms = attempt.duration_ms,
                "attempt"
            );
        }
    }

    /// Reports that the visit has to wait until `until`.
    #[inline]
    pub(crate) fn waits(&self, why: impl std::fmt::Display, until: Timestamp) {
        #[cfg(feature = "tracing")]
        tracing::debug!(parent: &self.span, %why, until_ms = until.as_millis(), "wait");
    }

    /// Creates the span of the network request within this attempt.
    #[cfg(feature = "pipeline")]
    #[inline]
    pub(crate) fn fetch(&self, url: &Url, fetcher: &str) -> Self {
        span!(
            parent: &self.span,
            tracing::Level::INFO,
            "fetch",
            url = %WithoutUserInfo(url),
            fetcher,
            status = tracing::field::Empty,
            bytes = tracing::field::Empty,
            final_url = tracing::field::Empty,
            error = tracing::field::Empty
        )
    }

    /// Records the response.
    #[cfg(feature = "pipeline")]
    #[inline]
    pub(crate) fn fetched(&self, status: u16, bytes: u64, final_url: &Url) {
        #[cfg(feature = "tracing")]
        self.span
            .record("status", status)
            .record("bytes", bytes)
            .record("final_url", tracing::field::display(WithoutUserInfo(final_url)));
    }

    /// Records that there was no response.
    #[cfg(feature = "pipeline")]
    #[inline]
    pub(crate) fn not_fetched(&self, error: impl std::fmt::Display) {
        #[cfg(feature = "tracing")]
        self.span.record("error", tracing::field::display(error));
    }

    /// Creates the span of a log append within the current span of this thread.
    #[inline]
    pub(crate) fn append(what: &'static str) -> Self {
        span!(tracing::Level::INFO, "journal append", what)
    }

    /// Creates the span of a compaction of the log in `dir`.
    #[cfg(feature = "journal")]
    #[inline]
    pub(crate) fn compaction(dir: &Path) -> Self {
        span!(
            tracing::Level::INFO,
            "compaction",
            dir = %dir.display(),
            attempts_before = tracing::field::Empty,
            attempts_after = tracing::field::Empty,
            bytes_before = tracing::field::Empty,
            bytes_after = tracing::field::Empty
        )
    }

    /// Records the result of a compaction: attempts, and bytes of segments, before and after.
    #[cfg(feature = "journal")]
    #[inline]
    pub(crate) fn compacted(&self, attempts: (u64, u64), bytes: (u64, u64)) {
        #[cfg(feature = "tracing")]
        self.span
            .record("attempts_before", attempts.0)
            .record("attempts_after", attempts.1)
            .record("bytes_before", bytes.0)
            .record("bytes_after", bytes.1);
    }

    /// Enters the span until the end of the scope.
    #[inline]
    pub(crate) fn enter(&self) -> SpanGuard<'_> {
        SpanGuard {
            #[cfg(feature = "tracing")]
            _entered: self.span.enter(),
            #[cfg(not(feature = "tracing"))]
            _span: std::marker::PhantomData,
        }
    }

    /// Runs `future` within the span.
    #[cfg(feature = "pipeline")]
    pub(crate) fn around<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        #[cfg(feature = "tracing")]
        return tracing::Instrument::instrument(future, self.span.clone());
        #[cfg(not(feature = "tracing"))]
        future
    }

    /// Returns the inner span, for callers that create their own spans within it.
    #[cfg(feature = "tracing")]
    pub(crate) fn inner(&self) -> &tracing::Span {
        &self.span
    }
}

/// Reports a host pause.
#[cfg_attr(not(feature = "tracing"), allow(unused_variables, reason = "events are compiled out"))]
pub(crate) fn host_paused(domain: &str, until: Timestamp) {
    #[cfg(feature = "tracing")]
    tracing::warn!(domain, until_ms = until.as_millis(), "host paused");
}

/// Reports that no site answers this machine any more, or that one does again.
#[cfg_attr(not(feature = "tracing"), allow(unused_variables, reason = "events are compiled out"))]
pub(crate) fn connection(is_lost: bool) {
    #[cfg(feature = "tracing")]
    match is_lost {
        true => tracing::warn!("no site answers this machine: requests wait for its connection"),
        false => tracing::warn!("a site answers this machine again"),
    }
}

/// Reports a failure of the files with evicted evidence.
#[cfg(feature = "journal")]
#[cfg_attr(not(feature = "tracing"), allow(unused_variables, reason = "events are compiled out"))]
pub(crate) fn cold_tier_failed(what: &str, error: &dyn std::fmt::Display) {
    #[cfg(feature = "tracing")]
    tracing::warn!(what, %error, "evicted evidence cannot be stored or read");
}

/// Reports that a start reads the log, because the checkpoint of evidence on disk does not fit.
#[cfg(feature = "journal")]
#[cfg_attr(not(feature = "tracing"), allow(unused_variables, reason = "events are compiled out"))]
pub(crate) fn checkpoint_unfit(why: &str) {
    #[cfg(feature = "tracing")]
    tracing::warn!(why, "the checkpoint of evidence on disk does not fit");
}

/// Reports that no checkpoint of evidence on disk was made.
#[cfg(feature = "journal")]
#[cfg_attr(not(feature = "tracing"), allow(unused_variables, reason = "events are compiled out"))]
pub(crate) fn checkpoint_failed(error: &dyn std::fmt::Display) {
    #[cfg(feature = "tracing")]
    tracing::warn!(%error, "no checkpoint of evidence on disk");
}

/// Reports a changed router.
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

/// Reports that learning was taken out of service.
#[cfg_attr(not(feature = "tracing"), allow(unused_variables, reason = "events are compiled out"))]
pub(crate) fn fell_back(why: &Fallback) {
    #[cfg(feature = "tracing")]
    tracing::error!(
        from = why.from.name(),
        reason = why.reason.as_str(),
        "fell back to the router table"
    );
}

#[cfg(all(test, feature = "tracing"))]
mod tests {
    use super::*;

    #[test]
    fn urls_are_recorded_without_user_info() {
        let shown = |text: &str| WithoutUserInfo(&Url::parse(text).unwrap()).to_string();
        assert_eq!(shown("https://user:secret@e.org:8443/a?b#c"), "https://e.org:8443/a?b#c");
        assert_eq!(shown("https://user@e.org/"), "https://e.org/");
        assert_eq!(shown("https://:secret@e.org/"), "https://e.org/");
        assert_eq!(shown("https://e.org/a@b"), "https://e.org/a@b");
    }
}
