//! Pages that come for several addresses of a host. The attempt is tagged. If another fetcher got
//! something else for one of the addresses, the page is a block that no rule knows.

use std::borrow::Borrow;
use std::ops::Deref;

use url::Url;
use xxhash_rust::xxh3::xxh3_64;

use super::Visit;
use crate::selector::Selector;
use crate::state::repeated_pages::{PageHistory, PageSighting};
use fetchwise_types::fetch_result::{Block, BlockKind, FetchResult, Outcome};
use fetchwise_types::heuristic::{Heuristic, SAME_PAGE_AGAIN};
use fetchwise_types::registry::FetcherId;

/// The rule name of such blocks.
const RULE: &str = "same_page_again";

impl<S: Deref<Target = Selector> + Clone, U: Borrow<Url>> Visit<S, U> {
    /// Tags a repeated page, and turns it into a block if another fetcher got something else.
    /// Returns what the host has shown before.
    pub(super) fn judge_repeated_page(
        &mut self,
        result: &mut FetchResult,
        fetcher: FetcherId,
    ) -> PageHistory {
        if result.outcome != Outcome::Content {
            return PageHistory::default();
        }
        let link = xxh3_64(self.link_name().as_bytes());
        let sighting =
            PageSighting { link, fetcher: u32::from(fetcher.0), simhash: result.simhash };
        let history = self.selector.state().pages.record(self.host(), sighting);
        let Some(repeated) = history.repeated else { return history };
        // A page that reports itself missing is not a block; the site just lacks the status for it.
        let is_missing = result.heuristics.iter().any(|shown| shown.kind == "soft_404");
        let what = match (repeated.differs, is_missing) {
            (true, false) => "blocked",
            (true, true) => "soft_404",
            (false, _) => "true",
        };
        result.heuristics.push(Heuristic::new(SAME_PAGE_AGAIN, what));
        if what == "blocked" {
            let links = repeated.links;
            result.message = Some(format!(
                "{links} addresses of the host got the same page, and another fetcher got a different one"
            ));
            result.outcome =
                Outcome::Blocked(Block::new(BlockKind::Refusal, None, Some(RULE.into())));
        }
        history
    }
}
