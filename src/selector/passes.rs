//! Who gets past the wall of a host's vendor, for whoever says why no request was made. Nothing here decides.

use std::fmt;

use url::Url;

use super::Selector;
use crate::heuristic::url::UrlFeatures;
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
        let Ok(features) = UrlFeatures::extract(url) else { return Passed::default() };
        let guard = self.evidence.guard();
        let local = Local::find(&self.evidence, &features, &guard).showing(&self.evidence, now);
        let tags = self.evidence.tags();
        let Some(id) = local.shown.vendor() else { return Passed::default() };
        let vendor = tags.name_of(id).map_or_else(String::new, String::from);
        let mut passed = Passed { vendor, share: self.settings.try_all_the_same, ..Passed::default() };
        let down = self.evidence.decay().down(now);
        for (fetcher, _) in self.registry.candidates() {
            let heard = tags.row(id).and_then(|row| row.cell(fetcher, features.kind())).map(|cell| cell.read(down));
            let Some(heard) = heard.filter(|heard| heard.total > 0.0) else { continue };
            passed.attempts += heard.total;
            passed.best = passed.best.max(heard.success / heard.total);
        }
        passed
    }
}
