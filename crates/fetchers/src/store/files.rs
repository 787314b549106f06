//! A store with one file per page, in one folder per host. File names are readable, and no two URLs
//! share one.
//!
//! Invariants: whatever a URL or a header contains, the file is inside the folder, and gets its
//! name only when it is complete. Before that it has no name at all if the system supports unnamed
//! files, so a kill leaves nothing behind. The umask of the process says who may read it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use url::Url;
use xxhash_rust::xxh3::xxh3_64;

use super::file_content::HashedCopy;
use super::{Delivered, Store, StoredBody, readable_by_umask};
use fetchwise_types::heuristic::url::{UrlFeatures, identity};
use fetchwise_types::response::media_type;

/// Maximum length of the readable part of a name.
const MAX_STEM: usize = 80;

/// A folder of pages.
#[derive(Debug)]
pub struct Files {
    dir: PathBuf,
}

impl Files {
    /// Opens a store in the folder `dir`, which is created if it is missing.
    ///
    /// # Errors
    /// Fails if the folder cannot be created.
    pub fn new(dir: impl Into<PathBuf>) -> io::Result<Self> {
        let dir = dir.into();
        fs::create_dir_all(&dir)?;
        Ok(Self { dir })
    }

    /// Returns the path of `url`'s page below the folder.
    pub(super) fn name(url: &Url, media_type: Option<&str>) -> PathBuf {
        let host = clean(url.host_str().unwrap_or("unknown"));
        let path = url.path().trim_matches('/');
        let suffix = UrlFeatures::extract(url).ok().and_then(|features| features.suffix);
        let stem = match &suffix {
            Some(suffix) => {
                path.get(..path.len().saturating_sub(suffix.as_str().len())).unwrap_or(path)
            }
            None => path,
        };
        let stem = clean(stem);
        let stem = if stem.is_empty() { "index".to_owned() } else { stem };
        let query = if url.query().is_some() { "_q" } else { "" };
        let extension = match &suffix {
            Some(suffix) => suffix.as_str().to_owned(),
            None => extension_of(media_type).to_owned(),
        };
        // The hash distinguishes URLs that cleaning made equal: case, queries, ports, long paths.
        let hash = xxh3_64(identity(url).as_bytes());
        Path::new(&host).join(format!("{stem}{query}-{hash:016x}{extension}"))
    }
}

impl Store for Files {
    fn put(&self, page: &Delivered<'_>) -> io::Result<PathBuf> {
        self.put_body(page).map(|body| body.file)
    }

    fn put_body(&self, page: &Delivered<'_>) -> io::Result<StoredBody> {
        let path = self.dir.join(Self::name(page.url, media_type(&page.response.headers)));
        let folder = path.parent().unwrap_or(&self.dir);
        let write = |file: &File| {
            let mut copy = HashedCopy::to(file);
            page.response.body.copy_to(&mut copy)?;
            Ok::<_, io::Error>(Some(copy.content()))
        };
        let mut unnamed = unnamed_in(folder);
        if unnamed.is_none() {
            // Most pages are of a host whose folder exists.
            fs::create_dir_all(folder)?;
            unnamed = unnamed_in(folder);
        }
        if let Some(file) = unnamed {
            let content = write(&file)?;
            if give_name(&file, folder, &path) {
                return Ok(StoredBody { file: path, content, record: None });
            }
        }
        let file = part().tempfile_in(folder)?;
        let content = write(file.as_file())?;
        file.persist(&path).map_err(|error| error.error)?;
        Ok(StoredBody { file: path, content, record: None })
    }
}

/// Returns a builder of files that do not have their final name yet.
pub(super) fn part() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".part-");
    readable_by_umask(&mut builder);
    builder
}

/// Returns an unnamed file in `folder`; `None` if the file system has none.
#[cfg(target_os = "linux")]
fn unnamed_in(folder: &Path) -> Option<File> {
    use std::os::unix::fs::OpenOptionsExt as _;

    let flags = rustix::fs::OFlags::TMPFILE.bits().cast_signed();
    fs::OpenOptions::new().read(true).write(true).mode(0o666).custom_flags(flags).open(folder).ok()
}

#[cfg(not(target_os = "linux"))]
fn unnamed_in(_folder: &Path) -> Option<File> {
    None
}

/// Names an unnamed file `path`, replacing an existing file. Returns false if that is not possible:
/// the file system has no unnamed files, or there is no `/proc`.
#[cfg(target_os = "linux")]
fn give_name(file: &File, folder: &Path, path: &Path) -> bool {
    use std::os::fd::AsRawFd as _;

    use rustix::fs::{AtFlags, CWD, linkat};

    let nameless = format!("/proc/self/fd/{}", file.as_raw_fd());
    let link = |to: &Path| {
        linkat(CWD, &nameless, CWD, to, AtFlags::SYMLINK_FOLLOW).map_err(io::Error::from)
    };
    match link(path) {
        // A link cannot replace a file, so the file first gets a temporary name and is then
        // renamed.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            part().make_in(folder, link).is_ok_and(|linked| linked.persist(path).is_ok())
        }
        linked => linked.is_ok(),
    }
}

#[cfg(not(target_os = "linux"))]
fn give_name(_file: &File, _folder: &Path, _path: &Path) -> bool {
    false
}

/// Replaces everything but letters, digits, dots and dashes by `_`. The result never leaves the
/// folder, is never long, and never looks like an option to a program.
fn clean(text: &str) -> String {
    let kept: String = text
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') { c } else { '_' })
        .take(MAX_STEM)
        .collect();
    let kept = kept.trim_matches('.').replace("..", "_");
    if kept.starts_with('-') { kept.replacen('-', "_", 1) } else { kept }
}

/// Returns the file extension for a media type.
fn extension_of(media_type: Option<&str>) -> &'static str {
    match media_type.unwrap_or_default().to_ascii_lowercase().as_str() {
        "text/html" | "application/xhtml+xml" => ".html",
        "text/plain" => ".txt",
        "application/json" => ".json",
        "application/pdf" => ".pdf",
        "application/xml" | "text/xml" => ".xml",
        "image/png" => ".png",
        "image/jpeg" => ".jpg",
        "image/gif" => ".gif",
        "image/webp" => ".webp",
        "image/svg+xml" => ".svg",
        "text/css" => ".css",
        "text/javascript" | "application/javascript" => ".js",
        "video/mp4" => ".mp4",
        "application/zip" => ".zip",
        _ => ".bin",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(url: &str, media_type: &str) -> String {
        Files::name(&Url::parse(url).unwrap(), Some(media_type)).to_string_lossy().into_owned()
    }

    #[test]
    fn names_are_readable_and_stay_inside() {
        let plain = name("http://e.org/wiki/Rust", "Text/HTML");
        assert!(plain.starts_with("e.org/wiki_Rust-") && plain.ends_with(".html"), "{plain}");
        assert!(name("http://e.org/a/b.PDF", "text/html").ends_with(".pdf"));
        assert!(name("http://e.org/", "text/html").starts_with("e.org/index-"));
        for nasty in
            ["http://e.org/..%2f..%2fetc/passwd", "http://[::1]/%00", "http://e.org/....//....//"]
        {
            let name = name(nasty, "text/html");
            assert_eq!(Path::new(&name).components().count(), 2, "{name}");
            assert!(!name.contains(".."), "{name}");
        }
        assert!(name(&format!("http://e.org/{}", "x".repeat(5000)), "").len() < 200);
    }

    #[test]
    fn an_extension_stays_where_a_query_follows_it() {
        let name = name("http://e.org/report.pdf?version=2", "text/html");
        assert!(name.starts_with("e.org/report_q-") && name.ends_with(".pdf"), "{name}");
    }

    #[test]
    fn no_name_begins_with_a_dash() {
        for url in [
            "http://e.org/-rf",
            "http://-e.example/",
            "http://e.org/.-x",
            "http://e.org/--help.txt",
        ] {
            let name = name(url, "text/html");
            assert!(name.split('/').all(|part| !part.starts_with('-')), "{name}");
        }
    }

    #[test]
    fn urls_that_look_alike_keep_their_own_names() {
        assert_ne!(name("http://e.org/a?b", "text/html"), name("http://e.org/a?c", "text/html"));
        assert_ne!(
            name("http://e.org/A", "text/html").to_lowercase(),
            name("http://e.org/a", "text/html").to_lowercase()
        );
        assert_ne!(name("http://e.org:81/a", "text/html"), name("http://e.org:82/a", "text/html"));
    }
}
