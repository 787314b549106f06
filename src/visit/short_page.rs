//! Short pages: content, an application shell, or a block. A fetcher that renders can tell which.
//!
//! If a rendered page shows no more text than the plain response did, the page is short, and it is
//! content. The plain fetcher, whose attempt was recorded as `wrong_tool`, gets the credit, and the
//! other short pages of the host count as content at once. Three kinds of short pages never do:
//! those without a visible character, those that hint at a block, and those whose text came for
//! another address of the host. A crawler must not deliver short blocks. What a browser shows the
//! same words for is settled for an hour, though: another address with these words costs no render.

use std::borrow::Borrow;
use std::ops::Deref;

use url::Url;
use xxhash_rust::xxh3::xxh3_64;

use super::Visit;
use crate::selector::Selector;
use fetchwise_types::fetch_result::{FetchResult, Outcome, ShortPage};
use fetchwise_types::heuristic::{Heuristic, SHORT_PAGE, SHORT_PAGE_TRUE};
use fetchwise_types::registry::{FetcherId, FetcherSpec};
use fetchwise_types::time::Timestamp;

impl<S: Deref<Target = Selector> + Clone, U: Borrow<Url>> Visit<S, U> {
    /// Turns a short page into content if it is complete.
    pub(super) fn judge_short_page(
        &mut self,
        result: &mut FetchResult,
        (fetcher, by): (FetcherId, &FetcherSpec),
        now: Timestamp,
    ) {
        self.seen.short_pages.is_settled = false;
        let Some(page) = result.short.filter(|_| result.outcome == Outcome::Empty) else { return };
        let hosts = &self.selector.state().hosts;
        let domain = self.host();
        let came_before =
            hosts.record_short_page(domain, xxh3_64(self.link_name().as_bytes()), &page);
        if page.chars == 0 || page.is_suspect || came_before {
            return self.settle_doubtful_page(&page, by, now);
        }
        let (credit, shows_all) = if by.renders {
            let plain = self.seen.short_pages.plain.filter(|(_, plain)| page.chars <= plain.chars);
            (plain.map(|(id, _)| id), plain.is_some())
        } else {
            let rendered =
                self.seen.short_pages.rendered.is_some_and(|rendered| rendered.chars <= page.chars);
            (None, rendered || hosts.has_complete_short_page(domain))
        };
        if !shows_all {
            match by.renders {
                true => self.seen.short_pages.rendered = Some(page),
                false => self.seen.short_pages.plain = Some((fetcher, page)),
            }
            return;
        }
        hosts.set_complete_short_page(domain);
        if by.renders
            && self
                .seen
                .short_pages
                .plain
                .is_some_and(|(_, plain)| plain.text_hash == page.text_hash)
        {
            hosts.settle_short_page(domain, page.text_hash, now);
        }
        // The tag names the credited fetcher, so that a replay of the log learns the same.
        let whom = credit.map_or(SHORT_PAGE_TRUE, |id| self.selector.fetcher_name(id));
        result.heuristics.push(Heuristic::new(SHORT_PAGE, whom.to_owned()));
        result.outcome = Outcome::Content;
    }

    /// Compares a doubtful page with its rendering, once for its words.
    fn settle_doubtful_page(&mut self, page: &ShortPage, by: &FetcherSpec, now: Timestamp) {
        let hosts = &self.selector.state().hosts;
        if page.chars == 0 {
            return;
        }
        if !by.renders {
            self.seen.short_pages.is_settled =
                hosts.is_short_page_settled(self.host(), page.text_hash, now);
            self.seen.short_pages.doubtful = Some(page.text_hash);
        } else if self.seen.short_pages.doubtful == Some(page.text_hash) {
            hosts.settle_short_page(self.host(), page.text_hash, now);
        }
    }
}
