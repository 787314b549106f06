//! Stores for delivered bodies. [`files`] writes one file per page, [`warc`] one archive for all. A
//! crawler that keeps bodies itself needs none. [`failed_pages`] keeps the last bodies of pages
//! that failed.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::fetch::Response;
use fetchwise_types::consent::Consent;
use fetchwise_types::time::Timestamp;

pub use file_content::FileContent;

pub mod failed_pages;
mod file_content;
pub mod files;
pub mod validators;
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

    /// Does the same as [`put`](Self::put), and returns what is needed to find the body again.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    fn put_body(&self, page: &Delivered<'_>) -> io::Result<StoredBody> {
        let file = self.put(page)?;
        let content = Some(FileContent::of(&file)?);
        Ok(StoredBody { file, content, record: None })
    }

    /// Returns whether a body that an earlier crawl stored is still there as it was stored, in a
    /// form that this store can refer to. Blocks: it reads the body.
    fn holds(&self, body: &StoredBody) -> bool {
        let StoredBody { file, content: Some(content), record: None } = body else { return false };
        FileContent::of(file).is_ok_and(|found| found == *content)
    }

    /// Records that the page is the same as `earlier`. `page.response` is the 304. A store of files
    /// only looks whether it still [holds](Self::holds) the body. Blocks.
    ///
    /// # Errors
    /// Fails if that could not be recorded, or if the body is gone.
    fn put_not_modified(&self, page: &Delivered<'_>, earlier: &StoredBody) -> io::Result<()> {
        let _ = page;
        if self.holds(earlier) { Ok(()) } else { Err(body_is_gone(&earlier.file)) }
    }
}

/// Makes the files of a builder as readable as the umask says: temporary files are private, and
/// what a store writes is not temporary.
fn readable_by_umask(builder: &mut tempfile::Builder<'_, '_>) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    #[cfg(not(unix))]
    let _ = builder;
}

/// Returns the error of an unchanged page whose earlier body is gone.
fn body_is_gone(file: &Path) -> io::Error {
    io::Error::new(
        io::ErrorKind::NotFound,
        format!("its earlier body in {} is gone or has changed", file.display()),
    )
}

/// The place of a stored body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredBody {
    /// The file: of the page, or of the archive.
    pub file: PathBuf,
    /// The content of the file of a page; none for an archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<FileContent>,
    /// The record in an archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<ArchiveRecord>,
}

/// A record in a web archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveRecord {
    /// Its id, as `urn:uuid:...`.
    pub id: String,
    /// The byte of the file at which it begins.
    pub offset: u64,
    /// Its URL.
    pub url: String,
    /// Its time, in milliseconds.
    pub at: i64,
    /// The digest of its payload, as `sha1:...`.
    pub payload: String,
}
