//! Which short pages are believed. A page with little to read is a shell's, a wall's, or merely short; who renders can tell.
//!
//! Where a rendered page shows no more text than the plain answer did, there is no more: the page is short, and content. The plain
//! fetcher, whose attempt was recorded as the wrong tool's, is credited, and the host's other short pages are believed at once.
//! Never believed are pages without a visible character, with a hint of a wall, or with a text that came for another address of the
//! host: short walls are what a crawler must not deliver.

use std::borrow::Borrow;
use std::ops::Deref;

use url::Url;
use xxhash_rust::xxh3::xxh3_64;

use super::Visit;
use crate::selector::Selector;
use fetchwise_types::fetch_result::{FetchResult, Outcome};
use fetchwise_types::heuristic::{Heuristic, SHORT_PAGE, SHORT_PAGE_TRUE};
use fetchwise_types::registry::{FetcherId, FetcherSpec};

impl<S: Deref<Target = Selector> + Clone, U: Borrow<Url>> Visit<S, U> {
    /// Takes a short page for content where it is all there is.
    pub(super) fn judge_short(&mut self, answer: &mut FetchResult, fetcher: FetcherId, by: &FetcherSpec) {
        let Some(page) = answer.short.filter(|_| answer.outcome == Outcome::Empty) else { return };
        let hosts = &self.selector.state().hosts;
        let domain = self.domain();
        let came_before = hosts.short_page(domain, xxh3_64(self.link_name().as_bytes()), &page);
        if page.chars == 0 || page.is_suspect || came_before {
            return;
        }
        let (credit, shows_all) = if by.renders {
            let plain = self.shorts.plain.filter(|(_, plain)| page.chars <= plain.chars);
            (plain.map(|(id, _)| id), plain.is_some())
        } else {
            let rendered = self.shorts.rendered.is_some_and(|rendered| rendered.chars <= page.chars);
            (None, rendered || hosts.has_short_pages(domain))
        };
        if !shows_all {
            match by.renders {
                true => self.shorts.rendered = Some(page),
                false => self.shorts.plain = Some((fetcher, page)),
            }
            return;
        }
        hosts.set_short_pages(domain);
        // The tag names who is credited: what is learned must be the same when the log is read again.
        let whom = credit.map_or(SHORT_PAGE_TRUE, |id| self.selector.fetcher_name(id));
        answer.heuristics.push(Heuristic::new(SHORT_PAGE, whom.to_owned()));
        answer.outcome = Outcome::Content;
    }
}
