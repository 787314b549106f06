//! How fetchers fare on other hosts that showed what this one did, for whoever explains a decision or says why no request was made.
//! Nothing here decides.

use std::fmt;

use url::Url;

use super::Selector;
use crate::evidence::{Side, Tags, day_of};
use crate::explain::{TagFetcher, TagView};
use crate::heuristic::url::{UrlError, UrlFeatures};
use crate::registry::FetcherId;
use crate::score::estimate::Local;
use crate::time::Timestamp;

/// How every candidate fares behind one vendor's walls.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Passed {
    /// As blocks show it: `block_datadome`.
    pub(crate) vendor: String,
    attempts: f64,
    best: f64,
    share: f64,
}

impl fmt::Display for Passed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { vendor, attempts, best, share } = self;
        let vendor = vendor.strip_prefix("block_").unwrap_or(vendor);
        write!(
            f,
            "behind {vendor} nobody delivers ({attempts:.0} attempts, the best fetcher in {:.0} %)",
            100.0 * best
        )?;
        if *share > 0.0 { write!(f, "; one URL in {:.0} is tried all the same", 1.0 / share) } else { Ok(()) }
    }
}

impl Selector {
    /// Who gets past the vendor of this URL's host.
    pub(crate) fn who_passes(&self, url: &Url, now: Timestamp) -> Passed {
        let views = self.shown_by_host(url, now).unwrap_or_default();
        let share = self.settings.try_all_the_same;
        let Some(view) = views.into_iter().find(|view| view.is_vendor) else {
            return Passed { share, ..Passed::default() };
        };
        let attempts = view.fetchers.iter().map(|of| of.attempts).sum();
        let best = view.fetchers.iter().map(|of| of.success_rate).fold(0.0, f64::max);
        Passed { vendor: view.tag, attempts, best, share }
    }

    /// What the host of `url` showed, and how fetchers fare on other hosts that showed the same.
    pub(super) fn shown_by_host(&self, url: &Url, now: Timestamp) -> Result<Vec<TagView>, UrlError> {
        let features = UrlFeatures::extract(url)?;
        let guard = self.evidence.guard();
        let local = Local::find(&self.evidence, &features, &guard);
        let (tags, today, down) = (self.evidence.tags(), day_of(now), self.evidence.decay().down(now));
        let known = if self.settings.tag_weight > 0.0 { local.known(today) } else { [None; 2] };
        let mut views = Vec::new();
        for (side, (id, day)) in Side::BOTH.into_iter().zip(known).filter_map(|(side, known)| Some((side, known?))) {
            let (Some(tag), Some(row)) = (tags.name_of(id), tags.row(id)) else { continue };
            let of = |(fetcher, name): (FetcherId, &str)| {
                let heard = row.cell(fetcher, features.kind())?.read(down);
                let all = tags.category(side)?.cell(fetcher, features.kind())?.read(down);
                let at = |seconds: u32| Timestamp::from_millis(i64::from(seconds) * 1000);
                (heard.total > 0.0).then(|| TagFetcher {
                    fetcher: name.to_owned(),
                    success_rate: heard.success / heard.total,
                    attempts: heard.total,
                    hosts: heard.hosts,
                    category_rate: all.success / all.total.max(f64::MIN_POSITIVE),
                    weight: if side == Side::Blocked { heard.alike } else { self.settings.level_weight },
                    turned_at: (heard.turned_s > 0).then(|| at(heard.turned_s)),
                })
            };
            let fetchers = self.registry.candidates().map(|(id, spec)| (id, &*spec.name)).filter_map(of).collect();
            views.push(TagView {
                tag: tag.into(),
                is_vendor: side == Side::Blocked && !Tags::is_category(id),
                last_shown: Timestamp::from_millis(i64::from(day) * 86_400_000),
                fetchers,
            });
        }
        Ok(views)
    }
}
