//! Success of the fetchers on other hosts behind the same vendor or framework: for explanations,
//! and for visits that make no request.
//!
//! Nothing here decides.

use std::fmt;

use url::Url;

use super::{SelectContext, Selector};
use crate::evidence::{HostSignals, SignalSide, day_of};
use crate::explain::{HostSignalFetcher, HostSignalView};
use crate::score::estimate::{Local, LocalKeys};
use fetchwise_types::heuristic::url::{UrlError, UrlFeatures};
use fetchwise_types::registry::FetcherId;
use fetchwise_types::time::Timestamp;

/// The reason why a visit makes no request: no fetcher gets past its host's vendor.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NoViableFetcher {
    /// The vendor, as blocks name it: `block_datadome`.
    pub(crate) vendor: String,
    /// The fetcher that would most likely deliver here, and its chance.
    best: (String, f64),
    /// The same fetcher behind the same vendor on other hosts: its success rate and its number of
    /// attempts.
    other_hosts: Option<(f64, f64)>,
    /// The share of first attempts that are made anyway.
    try_rate: f64,
}

impl fmt::Display for NoViableFetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let vendor = self.vendor.strip_prefix("block_").unwrap_or(&self.vendor);
        let (best, chance) = &self.best;
        write!(
            f,
            "no fetcher gets past {vendor}: the best one, {best}, delivers in {:.0} %",
            100.0 * chance
        )?;
        if let Some((rate, attempts)) = self.other_hosts {
            write!(f, " ({:.0} % of {attempts:.0} attempts on other hosts)", 100.0 * rate)?;
        }
        if self.try_rate > 0.0 {
            write!(f, "; one URL in {:.0} is tried anyway", 1.0 / self.try_rate)
        } else {
            Ok(())
        }
    }
}

impl Selector {
    /// Returns the reason why no request is made for this URL.
    pub(crate) fn no_viable_fetcher(&self, url: &Url, now: Timestamp) -> NoViableFetcher {
        let try_rate = self.settings.impassable_try_rate;
        let Ok(explanation) = self.explain(url, &SelectContext::first_attempt(now)) else {
            return NoViableFetcher::default();
        };
        let best = explanation
            .candidates
            .iter()
            .filter(|c| !c.excluded)
            .max_by(|a, b| a.success.total_cmp(&b.success));
        let best = best.map_or_else(Default::default, |c| (c.fetcher.clone(), c.success));
        let view = explanation.shown.into_iter().find(|view| view.is_vendor);
        let of_best = view.iter().flat_map(|view| &view.fetchers).find(|of| of.fetcher == best.0);
        let other_hosts = of_best.map(|of| (of.success_rate, of.attempts));
        NoViableFetcher {
            vendor: view.map(|view| view.tag).unwrap_or_default(),
            best,
            other_hosts,
            try_rate,
        }
    }

    /// Returns the signals that the host of `url` showed, and the success of the fetchers on other
    /// hosts that showed the same.
    pub(super) fn host_signals_of(
        &self,
        url: &Url,
        now: Timestamp,
    ) -> Result<Vec<HostSignalView>, UrlError> {
        let features = UrlFeatures::extract(url)?;
        let guard = self.learned.evidence.guard();
        let local = Local::find(&self.learned.evidence, LocalKeys::of(&features), &guard);
        let (signals, today, down) =
            (self.learned.evidence.signals(), day_of(now), self.learned.evidence.decay().down(now));
        let known = if self.settings.host_signal_weight > 0.0 {
            local.shown_signals(today)
        } else {
            [None; 2]
        };
        let mut views = Vec::new();
        for (side, (id, day)) in
            SignalSide::BOTH.into_iter().zip(known).filter_map(|(side, known)| Some((side, known?)))
        {
            let (Some(tag), Some(row)) = (signals.name_of(id), signals.row(id)) else { continue };
            let of = |(fetcher, name): (FetcherId, &str)| {
                let cell = row.cell(fetcher, self.learned.evidence.kind(&features))?.read(down);
                let all = signals
                    .category(side)?
                    .cell(fetcher, self.learned.evidence.kind(&features))?
                    .read(down);
                let at = |seconds: u32| Timestamp::from_millis(i64::from(seconds) * 1000);
                (cell.total > 0.0).then(|| HostSignalFetcher {
                    fetcher: name.to_owned(),
                    success_rate: cell.success / cell.total,
                    attempts: cell.total,
                    hosts: cell.hosts,
                    category_rate: all.success / all.total.max(f64::MIN_POSITIVE),
                    weight: if side == SignalSide::Blocked {
                        cell.alike
                    } else {
                        self.settings.level_weight
                    },
                    turned_at: (cell.turned_s > 0).then(|| at(cell.turned_s)),
                })
            };
            let fetchers = self
                .learned
                .registry
                .candidates()
                .map(|(id, spec)| (id, &*spec.name))
                .filter_map(of)
                .collect();
            views.push(HostSignalView {
                tag: tag.into(),
                is_vendor: side == SignalSide::Blocked && !HostSignals::is_category(id),
                last_shown: Timestamp::from_millis(i64::from(day) * 86_400_000),
                fetchers,
            });
        }
        Ok(views)
    }
}
