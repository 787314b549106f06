//! Prometheus export of the counters: a [`Collector`] that a crawler registers in its own registry
//! of `prometheus-client`.
//!
//! The selector and its visits add to atomic counters. Everything else is computed at each scrape.
//! `docs/reference/metrics.md` explains what each metric is good for.
//!
//! Invariants: the number of rows is bounded, whatever hosts, vendors and importers supply, and no
//! row names a domain. Text from outside appears in label values only.
//!
//! Must not know: decisions.
//!
//! ```
//! use std::sync::Arc;
//! use fetchwise::metrics::Metrics;
//! use fetchwise::{Selector, fetch_result::Outcome, visit::Step};
//! use prometheus_client::{encoding::text, registry::Registry};
//!
//! let selector = Arc::new(Selector::builder().build()?);
//! let mut registry = Registry::default();
//! Metrics::new(Arc::clone(&selector)).register(&mut registry);
//!
//! let url = url::Url::parse("https://example.org/").unwrap();
//! let mut visit = selector.visit(&url)?;
//! while let Step::Fetch(fetch) = visit.next() {
//!     visit.report(fetch, Outcome::Content);
//! }
//! let mut page = String::new();
//! text::encode(&mut page, &registry).unwrap();
//! assert!(page.contains(r#"fetchwise_attempts_total{fetcher="direct_access",outcome="content"} 1"#));
//! # Ok::<(), fetchwise::Error>(())
//! ```

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;

#[cfg(feature = "journal")]
use crate::journal::Journal;
use crate::metrics::exporter::encode::FamilyEncoder;
use crate::metrics::recorder::counts;
use crate::metrics::recorder::counts::{ENDS, FETCHERS, OTHER_FETCHER, SOURCES, Via, WAITS, read};
use crate::metrics::recorder::outcome_index::{OUTCOMES, outcome_name};
use crate::metrics::recorder::{PauseCause, ProbeEnd};
use crate::selector::Selector;
use fetchwise_types::registry::FetcherId;

mod encode;
mod families;
#[cfg(feature = "journal")]
mod log;

pub use crate::metrics::recorder::durations::Durations;
pub use families::{Family, Kind};

/// Metrics of a selector, of its visits, and of the journal that it records to.
#[derive(Debug)]
pub struct Metrics {
    selector: Arc<Selector>,
    #[cfg(feature = "journal")]
    journal: Option<Arc<Journal>>,
}

impl Metrics {
    /// Creates the metrics of `selector`.
    pub fn new(selector: Arc<Selector>) -> Self {
        Self {
            selector,
            #[cfg(feature = "journal")]
            journal: None,
        }
    }

    /// Adds the metrics of `journal`: its lag, its health, its size on disk. They keep the journal
    /// alive for as long as they are registered.
    #[cfg(feature = "journal")]
    #[must_use]
    pub fn with_journal(self, journal: Arc<Journal>) -> Self {
        Self { journal: Some(journal), ..self }
    }

    /// Registers the metrics in `registry`.
    pub fn register(self, registry: &mut Registry) {
        registry.register_collector(Box::new(self));
    }

    /// Returns all families, including those of a journal.
    pub fn families() -> &'static [Family] {
        families::ALL
    }

    /// Returns the fetcher's name for a row.
    fn fetcher(&self, row: usize) -> &str {
        match u16::try_from(row) {
            Ok(id) if row < OTHER_FETCHER => self.selector.fetcher_name(FetcherId(id)),
            _ => "other",
        }
    }

    fn decisions(&self, encoder: &mut FamilyEncoder<'_>) -> fmt::Result {
        let counts = self.selector.recorder().counts();
        let mut rows = Vec::new();
        for (via, via_name) in Via::NAMES.iter().enumerate() {
            for source in 0..SOURCES {
                for fetcher in 0..FETCHERS {
                    let count = counts.decisions(via, source, fetcher);
                    if count > 0 {
                        // Decisions without a request have no fetcher.
                        let name =
                            if fetcher == OTHER_FETCHER { "" } else { self.fetcher(fetcher) };
                        rows.push((
                            vec![*via_name, counts::source_name(source), name],
                            count as f64,
                        ));
                    }
                }
            }
        }
        encoder.rows(&families::DECISIONS, rows)
    }

    fn attempts(&self, encoder: &mut FamilyEncoder<'_>) -> fmt::Result {
        let counts = self.selector.recorder().counts();
        let mut rows = Vec::new();
        for fetcher in 0..FETCHERS {
            for outcome in 0..OUTCOMES {
                let count = counts.attempts(fetcher, outcome);
                // A candidate without attempts appears with zero deliveries.
                let is_candidate = outcome == 0 && fetcher < self.selector.candidates().count();
                if count > 0 || is_candidate {
                    rows.push((vec![self.fetcher(fetcher), outcome_name(outcome)], count as f64));
                }
            }
        }
        encoder.rows(&families::ATTEMPTS, rows)?;
        let names = || self.selector.candidates().map(|(_, spec)| &*spec.name).chain(["other"]);
        let durations = names().zip(counts.durations()).flat_map(|(name, [delivered, not])| {
            [(vec![name, "true"], delivered), (vec![name, "false"], not)]
        });
        encoder.histograms(&families::DURATIONS, durations)?;
        encoder.rows(
            &families::COSTS,
            self.selector.candidates().map(|(_, spec)| (vec![&*spec.name], spec.cost)),
        )?;
        let vendors = counts.blocks.all();
        encoder.rows(
            &families::BLOCKS,
            vendors.iter().map(|(name, count)| (vec![name.as_str()], *count as f64)),
        )
    }

    fn visits(&self, encoder: &mut FamilyEncoder<'_>) -> fmt::Result {
        let counts = self.selector.recorder().counts();
        let rows = |names: &'static [&'static str],
                    all: &[std::sync::atomic::AtomicU64]|
         -> Vec<_> {
            names.iter().zip(all).map(|(name, count)| (vec![*name], read(count) as f64)).collect()
        };
        encoder.rows(&families::PROBES, rows(&ProbeEnd::NAMES, &counts.probes))?;
        // Ends are read before begins, so that a visit never appears to have ended without a begin.
        let ended: u64 = counts.visits.iter().map(read).sum();
        let begun = read(&counts.visits_begun);
        encoder.rows(&families::VISITS, rows(&ENDS, &counts.visits))?;
        encoder.one(&families::VISITS_IN_PROGRESS, begun.saturating_sub(ended) as f64)?;
        let [delivered, not] = &counts.visit_durations;
        encoder.histograms(
            &families::VISIT_DURATIONS,
            [(vec!["true"], delivered), (vec!["false"], not)],
        )?;
        encoder.rows(&families::WAITS, rows(&WAITS, &counts.waits))?;
        encoder.rows(&families::HOST_PAUSES, rows(&PauseCause::NAMES, &counts.host_pauses))?;
        let (selector, now) = (&*self.selector, self.selector.now());
        encoder
            .one(&families::HOSTS_PAUSED, selector.state().hosts.paused(selector, now) as f64)?;
        encoder.one(&families::LINK_PAUSES, read(&counts.link_pauses) as f64)?;
        encoder.one(&families::LINKS_AT_RISK, selector.state().links.len() as f64)?;
        if let Some(pace) = selector.pace() {
            encoder.rows(
                &families::RATE_LIMIT_HITS,
                rows(&["host", "site", "address"], &counts.rate_limit_hits),
            )?;
            encoder.one(&families::AMBIGUOUS_BLOCKS, read(&counts.ambiguous_blocks) as f64)?;
            paces(encoder, &pace.summary(now))?;
        }
        Ok(())
    }
}

fn paces(encoder: &mut FamilyEncoder<'_>, paces: &fetchwise_pace::PaceSummary) -> fmt::Result {
    let (held, all) = (paces.held as f64, paces.rates.len() as f64);
    encoder.rows(&families::PACE_HOSTS, [(vec!["held"], held), (vec!["open"], all - held)])?;
    encoder.one(&families::PACE_IN_FLIGHT, paces.in_flight as f64)?;
    let percentiles = [("10", 0.1), ("50", 0.5), ("90", 0.9)];
    let rate = |(name, share)| Some((vec![name], f64::from(paces.quantile(share)?)));
    encoder.rows(&families::PACE_RATES, percentiles.into_iter().filter_map(rate))
}

impl Collector for Metrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut encoder = FamilyEncoder(encoder);
        encoder.rows(&families::BUILD, [(vec![env!("CARGO_PKG_VERSION")], 1.0)])?;
        self.decisions(&mut encoder)?;
        self.attempts(&mut encoder)?;
        self.visits(&mut encoder)?;
        encoder.one(&families::KEYS, self.selector.key_count() as f64)?;
        encoder.one(&families::EVICTED, self.selector.evicted_keys() as f64)?;
        let evicted = self.selector.learned().evidence.cold_counts();
        encoder.one(&families::READ_BACK, evicted.brought_back as f64)?;
        #[cfg(feature = "journal")]
        let failed_merges = self.journal.as_ref().map_or(0, |journal| journal.failed_merges());
        #[cfg(not(feature = "journal"))]
        let failed_merges = 0;
        let failed = [
            ("merge", failed_merges),
            ("read", evicted.failed_reads),
            ("write", evicted.failed_writes),
        ];
        encoder.rows(
            &families::EVICTED_ERRORS,
            failed.map(|(what, times)| (vec![what], times as f64)),
        )?;
        encoder.one(&families::FUTURE_TIMESTAMPS, self.selector.clamped_attempt_count() as f64)?;
        #[cfg(feature = "journal")]
        if let Some(journal) = &self.journal {
            log::encode(&mut encoder, journal)?;
        }
        Ok(())
    }
}
