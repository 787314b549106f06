//! What visits and the journal do, as spans and events for `tracing`; nothing at all without the feature of that name.
//!
//! A visit is a span, each of its attempts one within it, and within an attempt are the fetch and what is handed to the log.
//! Invariants: addresses are told without user info; where nobody listens nothing is put together or allocated. Must not decide
//! anything.

#[cfg(feature = "journal")]
use std::path::Path;

use url::Url;

use crate::router::{Fallback, Router};
use fetchwise_types::attempt::Attempt;
use fetchwise_types::decision::Selection;
use fetchwise_types::time::Timestamp;

/// A piece of work that is under way. Cheap to make where nobody listens.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

/// Whatever happens while this is there happens within the span.
pub(crate) struct Entered<'s> {
    #[cfg(feature = "tracing")]
    _entered: tracing::span::Entered<'s>,
    #[cfg(not(feature = "tracing"))]
    _span: std::marker::PhantomData<&'s Span>,
}

/// An address without user info.
#[cfg(feature = "tracing")]
struct Bare<'u>(&'u Url);

#[cfg(feature = "tracing")]
impl std::fmt::Display for Bare<'_> {
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
    /// A visit of `url`.
    #[inline]
    pub(crate) fn visit(url: &Url) -> Self {
        span!(
            tracing::Level::INFO,
            "visit",
            url = %Bare(url),
            link = tracing::field::Empty,
            end = tracing::field::Empty,
            error = tracing::field::Empty,
            requests = tracing::field::Empty
        )
    }

    /// The caller has a name of its own for what the visit fetches.
    #[inline]
    pub(crate) fn link(&self, link: &str) {
        #[cfg(feature = "tracing")]
        self.span.record("link", link);
    }

    /// How the visit ended.
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

    /// An attempt within this visit: a request is handed out.
    #[inline]
    pub(crate) fn attempt(&self, url: &Url, fetcher: &str, take: &Selection, number: u32) -> Self {
        span!(
            parent: &self.span,
            tracing::Level::INFO,
            "attempt",
            url = %Bare(url),
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

    /// What the attempt came to, as it is recorded.
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

    /// The visit has to wait until then.
    #[inline]
    pub(crate) fn waits(&self, why: impl std::fmt::Display, until: Timestamp) {
        #[cfg(feature = "tracing")]
        tracing::debug!(parent: &self.span, %why, until_ms = until.as_millis(), "wait");
    }

    /// The network is asked within this attempt.
    #[cfg(feature = "pipeline")]
    #[inline]
    pub(crate) fn fetch(&self, url: &Url, fetcher: &str) -> Self {
        span!(
            parent: &self.span,
            tracing::Level::INFO,
            "fetch",
            url = %Bare(url),
            fetcher,
            status = tracing::field::Empty,
            bytes = tracing::field::Empty,
            final_url = tracing::field::Empty,
            error = tracing::field::Empty
        )
    }

    /// What came over the network.
    #[cfg(feature = "pipeline")]
    #[inline]
    pub(crate) fn fetched(&self, status: u16, bytes: u64, final_url: &Url) {
        #[cfg(feature = "tracing")]
        self.span
            .record("status", status)
            .record("bytes", bytes)
            .record("final_url", tracing::field::display(Bare(final_url)));
    }

    /// Nothing came, for this reason.
    #[cfg(feature = "pipeline")]
    #[inline]
    pub(crate) fn not_fetched(&self, error: impl std::fmt::Display) {
        #[cfg(feature = "tracing")]
        self.span.record("error", tracing::field::display(error));
    }

    /// Something is handed to the log, within whatever this thread is doing.
    #[inline]
    pub(crate) fn append(what: &'static str) -> Self {
        span!(tracing::Level::INFO, "journal append", what)
    }

    /// Old attempts are dropped from the log in `dir`.
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

    /// What a compaction did: attempts, and bytes of segments, before and after.
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

    /// Until the end of the scope everything happens within it.
    #[inline]
    pub(crate) fn enter(&self) -> Entered<'_> {
        Entered {
            #[cfg(feature = "tracing")]
            _entered: self.span.enter(),
            #[cfg(not(feature = "tracing"))]
            _span: std::marker::PhantomData,
        }
    }

    /// Everything that `future` does happens within it.
    #[cfg(feature = "pipeline")]
    pub(crate) fn around<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        #[cfg(feature = "tracing")]
        return tracing::Instrument::instrument(future, self.span.clone());
        #[cfg(not(feature = "tracing"))]
        future
    }

    /// For whoever makes spans of its own within this one.
    #[cfg(feature = "tracing")]
    pub(crate) fn inner(&self) -> &tracing::Span {
        &self.span
    }
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
pub(crate) fn fell_back(why: &Fallback) {
    #[cfg(feature = "tracing")]
    tracing::error!(from = why.from.name(), reason = why.reason.as_str(), "fell back to the router table");
}

#[cfg(all(test, feature = "tracing"))]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_without_user_info() {
        let bare = |text: &str| Bare(&Url::parse(text).unwrap()).to_string();
        assert_eq!(bare("https://user:secret@e.org:8443/a?b#c"), "https://e.org:8443/a?b#c");
        assert_eq!(bare("https://user@e.org/"), "https://e.org/");
        assert_eq!(bare("https://:secret@e.org/"), "https://e.org/");
        assert_eq!(bare("https://e.org/a@b"), "https://e.org/a@b");
    }
}
