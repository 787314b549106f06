//! The detector as the judge of pages that a browser still renders.
//!
//! Must not know: browsers, and how long they wait.

use std::cell::RefCell;

use fetchwise_detect::{Detector, Scratch};
use fetchwise_fetchers::fetch::PageJudge;
use fetchwise_types::fetch_result::Outcome;
use fetchwise_types::response::Page;

thread_local! {
    /// Buffers of the size of a page. Each thread keeps its own.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// A detector that tells a fetcher whether a page has something to read yet.
#[derive(Clone, Copy, Debug)]
pub struct DetectorJudge<'d>(pub &'d Detector);

impl PageJudge for DetectorJudge<'_> {
    fn is_unfinished(&self, page: &Page<'_>) -> bool {
        let outcome =
            SCRATCH.with_borrow_mut(|scratch| self.0.inspect(page, scratch).outcome(page));
        matches!(outcome, Outcome::Shell { .. } | Outcome::Empty | Outcome::Redirect { .. })
    }
}
