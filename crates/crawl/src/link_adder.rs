//! A handle by which a caller adds links to a running crawl, such as those that it finds in pages.
//!
//! Must not know: what becomes of a link.

use tokio::sync::mpsc;

/// Adds links to a running crawl. Clones add to the same crawl, and have no effect once it has
/// ended.
///
/// A link that is added is treated as one of a list: it obeys robots.txt and has the other fields
/// of [`CrawlSpec::listed`](crate::CrawlSpec::listed), it waits for the pace of its host, and it is
/// fetched once, however often it is added or listed. An invalid URL gets a result that says so.
/// Which links to follow, and how far, is the caller's choice.
///
/// What a sink adds while it takes a result survives the end of the process with that result: a run
/// that is continued fetches it. A crawl ends once no link waits or is in progress and its sink has
/// taken every result.
#[derive(Clone, Debug)]
pub struct LinkAdder(mpsc::UnboundedSender<String>);

/// The URLs that were added.
#[derive(Debug)]
pub(crate) struct AddedUrls(mpsc::UnboundedReceiver<String>);

impl LinkAdder {
    /// Returns a handle, and what it adds.
    pub(crate) fn new() -> (Self, AddedUrls) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), AddedUrls(receiver))
    }

    /// Adds the link of a URL.
    pub fn add(&self, url: impl Into<String>) {
        let _ = self.0.send(url.into());
    }
}

impl AddedUrls {
    /// Returns the next URL if there is one now.
    pub(crate) fn try_next(&mut self) -> Option<String> {
        self.0.try_recv().ok()
    }

    /// Waits for the next URL; none if nobody can add any. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<String> {
        self.0.recv().await
    }
}
