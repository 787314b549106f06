//! One file a page, in a folder a host. Names can be read by a person, and no two URLs share one.
//!
//! Invariant: whatever a URL or a header says, the file is inside the folder, and appears under its name only when it is
//! whole. Until then it has no name at all where the system knows such files, so that a kill leaves nothing behind.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use url::Url;
use xxhash_rust::xxh3::xxh3_64;

use super::{Delivered, Store};
use fetchwise_types::heuristic::url::{UrlFeatures, identity};
use fetchwise_types::response::header;

/// The readable part of a name is not longer than this.
const MAX_STEM: usize = 80;

/// What is copied at a time.
const COPY_CHUNK: usize = 256 << 10;

/// A folder of pages.
#[derive(Debug)]
pub struct Files {
    dir: PathBuf,
}

impl Files {
    /// Keeps pages in `dir`, which is made if it is not there.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(dir: impl Into<PathBuf>) -> io::Result<Self> {
        let dir = dir.into();
        fs::create_dir_all(&dir)?;
        Ok(Self { dir })
    }

    /// Where the page of `url` goes, below the folder.
    fn name(url: &Url, content_type: Option<&str>) -> PathBuf {
        let host = clean(url.host_str().unwrap_or("unknown"));
        let path = url.path().trim_matches('/');
        let suffix = UrlFeatures::extract(url).ok().and_then(|features| features.suffix);
        let stem = match &suffix {
            Some(suffix) => path.get(..path.len().saturating_sub(suffix.as_str().len())).unwrap_or(path),
            None => path,
        };
        let stem = clean(stem);
        let stem = if stem.is_empty() { "index".to_owned() } else { stem };
        let query = if url.query().is_some() { "_q" } else { "" };
        let extension = match &suffix {
            Some(suffix) => suffix.as_str().to_owned(),
            None => extension_of(content_type).to_owned(),
        };
        // The hash tells apart what cleaning has made alike: case, queries, ports, long paths.
        let hash = xxh3_64(identity(url).as_bytes());
        Path::new(&host).join(format!("{stem}{query}-{hash:016x}{extension}"))
    }
}

impl Store for Files {
    fn put(&self, page: &Delivered<'_>) -> io::Result<PathBuf> {
        let path = self.dir.join(Self::name(page.url, header(&page.response.headers, "content-type")));
        let folder = path.parent().unwrap_or(&self.dir);
        fs::create_dir_all(folder)?;
        let body = || BufReader::with_capacity(COPY_CHUNK, page.response.body.reader());
        let mut file = tempfile::tempfile_in(folder)?;
        io::copy(&mut body(), &mut file)?;
        readable(&file)?;
        if !give_name(&file, folder, &path) {
            let mut file = part().tempfile_in(folder)?;
            io::copy(&mut body(), file.as_file_mut())?;
            readable(file.as_file())?;
            file.persist(&path).map_err(|error| error.error)?;
        }
        Ok(path)
    }
}

/// The name of a file that is not under its own name yet.
fn part() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".part-");
    builder
}

/// Gives a file without a name the name `path`, in place of what has it. False where that is not to be had: the file system
/// knows no such files, or there is no `/proc`.
#[cfg(target_os = "linux")]
fn give_name(file: &File, folder: &Path, path: &Path) -> bool {
    use std::os::fd::AsRawFd as _;

    use rustix::fs::{AtFlags, CWD, linkat};

    let nameless = format!("/proc/self/fd/{}", file.as_raw_fd());
    let link = |to: &Path| linkat(CWD, &nameless, CWD, to, AtFlags::SYMLINK_FOLLOW).map_err(io::Error::from);
    // A link replaces nothing; a name of its own first, and then a renaming, does.
    part().make_in(folder, link).is_ok_and(|linked| linked.persist(path).is_ok())
}

#[cfg(not(target_os = "linux"))]
fn give_name(_file: &File, _folder: &Path, _path: &Path) -> bool {
    false
}

/// Temporary files are the owner's alone; a stored page is an ordinary file.
#[cfg(unix)]
fn readable(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    file.set_permissions(fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn readable(_: &File) -> io::Result<()> {
    Ok(())
}

/// Letters, digits, dots, dashes; all else becomes `_`. Never empty in a way that leaves the folder, never long, and never
/// what a program that is given the name would take for an option.
fn clean(text: &str) -> String {
    let kept: String = text
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') { c } else { '_' })
        .take(MAX_STEM)
        .collect();
    let kept = kept.trim_matches('.').replace("..", "_");
    if kept.starts_with('-') { kept.replacen('-', "_", 1) } else { kept }
}

/// The suffix for a content type.
fn extension_of(content_type: Option<&str>) -> &'static str {
    let essence = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
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

    fn name(url: &str, content_type: &str) -> String {
        Files::name(&Url::parse(url).unwrap(), Some(content_type)).to_string_lossy().into_owned()
    }

    #[test]
    fn names_can_be_read_and_stay_inside() {
        let plain = name("http://e.org/wiki/Rust", "text/html; charset=utf-8");
        assert!(plain.starts_with("e.org/wiki_Rust-") && plain.ends_with(".html"), "{plain}");
        assert!(name("http://e.org/a/b.PDF", "text/html").ends_with(".pdf"));
        assert!(name("http://e.org/", "text/html").starts_with("e.org/index-"));
        for nasty in ["http://e.org/..%2f..%2fetc/passwd", "http://[::1]/%00", "http://e.org/....//....//"] {
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
        for url in ["http://e.org/-rf", "http://-e.example/", "http://e.org/.-x", "http://e.org/--help.txt"] {
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
