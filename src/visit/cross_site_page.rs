//! Pages with little text that come for several sites. The attempt is tagged. Such a page is the
//! network's if another fetcher got something else for one of its addresses, or if sites with
//! content turned to it; otherwise it is a default page: it is delivered, and is no evidence for a
//! fetcher.

use std::borrow::Borrow;
use std::ops::Deref;

use url::Url;
use xxhash_rust::xxh3::xxh3_64;

use super::Visit;
use crate::selector::Selector;
use crate::state::cross_site_pages::SiteSighting;
use crate::state::repeated_pages::PageHistory;
use fetchwise_types::fetch_result::{FetchResult, Outcome};
use fetchwise_types::heuristic::url::{ContentKind, site_of};
use fetchwise_types::heuristic::{DEFAULT_PAGE, Heuristic, SAME_PAGE_OTHER_SITES};
use fetchwise_types::registry::FetcherId;
use fetchwise_types::time::Timestamp;

impl<S: Deref<Target = Selector> + Clone, U: Borrow<Url>> Visit<S, U> {
    /// Tags a page that other sites show, and makes it the network's if it is.
    pub(super) fn judge_cross_site_page(
        &mut self,
        result: &mut FetchResult,
        (fetcher, history): (FetcherId, PageHistory),
        now: Timestamp,
    ) {
        // A copy from an archive is of another time, so it refutes nothing.
        if result.outcome != Outcome::Content || result.provenance.is_some() {
            return;
        }
        let pages = &self.selector.state().cross_site_pages;
        history.other_pages.iter().for_each(|simhash| pages.refute(*simhash));
        let Some(simhash) = result.simhash else { return };
        let site = xxh3_64(site_of(self.host()).as_bytes());
        let turned = self.has_turned(result, fetcher, &history, now);
        let Some(page) = pages.record(SiteSighting { simhash, site, turned, at: now }) else {
            if history.differs {
                pages.refute(simhash);
            }
            return;
        };
        if history.differs {
            pages.refute(simhash);
        }
        if !(page.is_of_network || history.differs) {
            result.heuristics.push(Heuristic::new(SAME_PAGE_OTHER_SITES, DEFAULT_PAGE));
            return;
        }
        result.heuristics.push(Heuristic::new(SAME_PAGE_OTHER_SITES, "network_block"));
        result.heuristics.push(Heuristic::flag("network_block"));
        result.message =
            Some(format!("{} sites show this page, which is none of theirs", page.sites));
        result.outcome = Outcome::NetworkBlock;
    }

    /// Returns whether the host had shown content to this fetcher, and shows this page for the
    /// second address in a row. A log-in in place of the content is the site's own.
    fn has_turned(
        &self,
        result: &FetchResult,
        fetcher: FetcherId,
        history: &PageHistory,
        now: Timestamp,
    ) -> bool {
        if history.run != 2 || result.heuristics.iter().any(|shown| shown.kind == "has_login_wall")
        {
            return false;
        }
        let name = self.selector.fetcher_name(fetcher);
        let weights = self.selector.weights(("domain", self.host()), ContentKind::Page, name, now);
        // The first of the two counts as a success itself.
        weights.success > 1.5
    }
}
