//! Recording: an attempt becomes evidence, and goes to the sink.
//!
//! Owns: the tags that an attempt gets from what the selector knew before it, and the order of
//! memory and sink.
//!
//! Invariants: an attempt is in memory before the sink has it. Recording on a known host allocates
//! nothing.
//!
//! Must not know: how the sink stores attempts.

use std::sync::atomic::Ordering;

use url::Url;

use super::{Selector, SinkError};
use crate::trace::Span;
use fetchwise_types::attempt::{Attempt, Tag};
use fetchwise_types::heuristic::url::is_of_url;
use fetchwise_types::heuristic::{HOST_SHOWED, HOST_SHOWS, Heuristic};
use fetchwise_types::heuristic::{SITE_PROVEN, SITE_SATURATED, SITE_UNPROVEN};
use fetchwise_types::registry::MAX_CANDIDATES;
use fetchwise_types::time::Timestamp;

impl Selector {
    /// Records an attempt: in memory first, then in the sink. An attempt has the date at which it
    /// was made, and `now` is the time ([`time`](fetchwise_types::time) explains both). A date in
    /// the future becomes the present one.
    ///
    /// # Errors
    /// [`SinkError`] if the attempt will not survive the process; it is in memory anyway.
    pub fn record(&self, attempt: Attempt, now: Timestamp) -> Result<(), SinkError> {
        self.record_with_heuristics(attempt, &[], now)
    }

    /// Records an attempt that also has heuristics which the caller knew before it.
    pub(crate) fn record_with_heuristics(
        &self,
        mut attempt: Attempt,
        known: &[Heuristic],
        now: Timestamp,
    ) -> Result<(), SinkError> {
        let ahead_ms = self.clock.ahead_ms();
        let present = now.moved_by(ahead_ms);
        if attempt.attempted_at > present {
            attempt.attempted_at = present;
            // Relaxed: a statistic only.
            self.clamped.fetch_add(1, Ordering::Relaxed);
        }
        let date = attempt.attempted_at;
        // Evidence has times, and the sink gets dates.
        attempt.attempted_at = date.moved_by(ahead_ms.saturating_neg());
        self.tag_with_known(&mut attempt, known);
        self.learn(&attempt);
        attempt.attempted_at = date;
        if let Some(sink) = &self.sink {
            let span = Span::append("attempt");
            let _entered = span.enter();
            sink.append(&attempt)?;
        }
        // The counter has only attempts that the log has taken.
        #[cfg(feature = "metrics")]
        self.recorder.count_attempt(&attempt, self.learned.registry.find(&attempt.fetcher));
        Ok(())
    }

    /// Adds the tags that depend on what the selector knows so far: the signals of the attempt's
    /// host, whether its site has used up its quota, and whether the site has delivered before.
    /// [`Selector::record`] does this. A program that appends attempts to a journal by itself calls
    /// it before, and [`Selector::observe`] after.
    pub fn tag(&self, attempt: &mut Attempt) {
        let date = attempt.attempted_at;
        attempt.attempted_at = self.clock.time_of(date);
        self.tag_with_known(attempt, &[]);
        attempt.attempted_at = date;
    }

    fn tag_with_known(&self, attempt: &mut Attempt, known: &[Heuristic]) {
        self.tag_host_signals(attempt, known);
        let is_carried = |tag: &Tag| {
            matches!(&*tag.heuristic.kind, SITE_SATURATED | SITE_UNPROVEN | SITE_PROVEN)
        };
        if attempt.heuristics.iter().any(is_carried) {
            return;
        }
        let (evidence, registry) = (&self.learned.evidence, &self.learned.registry);
        // On the stack: recording on a known host allocates nothing.
        let mut tags = arrayvec::ArrayVec::<Heuristic, { MAX_CANDIDATES + 1 }>::new();
        evidence.each_site_tag(attempt, registry, |tag| drop(tags.try_push(tag)));
        attempt.heuristics.extend(tags.into_iter().map(Tag::from));
    }

    /// Tags an attempt with the signals that its host showed before and that it shows from now on,
    /// unless it has such tags already.
    fn tag_host_signals(&self, attempt: &mut Attempt, known: &[Heuristic]) {
        let is_carried = |tag: &Tag| matches!(&*tag.heuristic.kind, HOST_SHOWED | HOST_SHOWS);
        if self.settings.host_signal_weight <= 0.0 || attempt.heuristics.iter().any(is_carried) {
            return;
        }
        let own = match self.extractors.is_empty() {
            true => Vec::new(),
            false => Url::parse(&attempt.url)
                .ok()
                .and_then(|url| self.heuristics(&url).ok())
                .unwrap_or_default(),
        };
        let is_of_url = |heuristic: &Heuristic| {
            is_of_url(&heuristic.kind) || own.contains(heuristic) || known.contains(heuristic)
        };
        let carried =
            self.learned.evidence.signal_heuristics(attempt, &self.learned.registry, is_of_url);
        attempt.heuristics.extend(carried.into_iter().map(Tag::from));
    }

    /// Learns from an attempt without passing it to the sink: for replay.
    pub fn observe(&self, attempt: &Attempt) {
        let attempted_at = self.clock.time_of(attempt.attempted_at);
        if attempted_at == attempt.attempted_at {
            self.learn(attempt);
        } else {
            // Somebody has set the clock since the start.
            self.learn(&Attempt { attempted_at, ..attempt.clone() });
        }
    }

    /// Learns from an attempt that has a time instead of a date.
    fn learn(&self, attempt: &Attempt) {
        self.learned.evidence.observe(attempt, &self.learned.registry);
        self.policy.observe(attempt);
    }
}
