//! Stores for delivered bodies. [`files`] writes one file per page, [`warc`] one archive for all. A crawler that keeps
//! bodies itself needs none.

use std::io;
use std::path::PathBuf;

use crate::fetch::Response;
use fetchwise_types::consent::Consent;
use fetchwise_types::time::Timestamp;

pub mod files;
pub mod warc;

/// A delivered page to store.
#[derive(Clone, Copy, Debug)]
pub struct Delivered<'a> {
    /// Requested URL.
    pub url: &'a url::Url,
    /// Response.
    pub response: &'a Response,
    /// Fetcher that delivered it.
    pub fetcher: &'a str,
    /// Time of the request.
    pub at: Timestamp,
    /// What its terms permit, if it has some.
    pub consent: Option<&'a Consent>,
}

impl<'a> Delivered<'a> {
    /// Returns a page without terms.
    pub fn new(url: &'a url::Url, response: &'a Response, fetcher: &'a str, at: Timestamp) -> Self {
        Self { url, response, fetcher, at, consent: None }
    }
}

/// A store of delivered pages.
pub trait Store: Send + Sync {
    /// Stores a page and returns its path. Blocks: the pipeline calls it on a separate thread.
    ///
    /// # Errors
    /// Fails if the page could not be stored; then no file with the final name exists.
    fn put(&self, page: &Delivered<'_>) -> io::Result<PathBuf>;
}
