//! The judgement of a page that a fetcher still renders: whether there is something to read yet.
//!
//! Must not know: what makes a page a shell.

use std::fmt;

use fetchwise_types::response::Page;

/// Judges a page while a fetcher that renders waits for it.
pub trait PageJudge: fmt::Debug + Send + Sync {
    /// Returns whether the page has nothing to read yet: it is empty or a shell, or it only leads
    /// to another page. A fetcher that renders waits for more then, within its limits. It calls
    /// this on a thread of the runtime, with the beginning of the document's text.
    fn is_unfinished(&self, page: &Page<'_>) -> bool;
}
