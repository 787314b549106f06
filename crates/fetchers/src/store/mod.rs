//! Stores: where delivered bodies go. [`files`] keeps one file a page, [`warc`] one archive for all; a crawler that keeps
//! bodies itself uses none.

use std::io;
use std::path::PathBuf;

use crate::fetch::Response;
use fetchwise_types::time::Timestamp;

pub mod files;
pub mod warc;

/// One delivered page, to be kept.
#[derive(Clone, Copy, Debug)]
pub struct Delivered<'a> {
    /// The URL that was asked for.
    pub url: &'a url::Url,
    /// What came.
    pub response: &'a Response,
    /// The fetcher that brought it.
    pub fetcher: &'a str,
    /// When it was asked for.
    pub at: Timestamp,
}

/// Keeps delivered pages.
pub trait Store: Send + Sync {
    /// Keeps one and says where. Blocking: the pipeline calls it off its own threads.
    ///
    /// # Errors
    /// When it could not be kept; nothing is left behind under the final name.
    fn put(&self, page: &Delivered<'_>) -> io::Result<PathBuf>;
}
