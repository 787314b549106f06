//! The heuristics before the fetch: features borrowed from a URL, extracted in one pass without an
//! allocation.
//!
//! Owns: which URLs can be fetched at all ([`fetchable`]), and the types `domain`, `site`,
//! `suffix`, `contains_*`, `path_depth`, `domain_suffix` and `domain_path`.
//!
//! Must not know: the evidence about any of them.

use std::borrow::Cow;
use std::fmt;

use fetchwise_public_suffix::registrable_domain;
pub use fetchwise_public_suffix::{network_of, registered_domain};
use url::{Host, Position, Url};

use super::Heuristic;

/// The longest accepted URL, in bytes. Longer ones are not addresses of pages, and each attempt
/// stores its URL.
pub const MAX_URL_BYTES: usize = 64 << 10;

/// The longest first path segment with evidence, in bytes; a longer one is data, not a section of a
/// site.
const MAX_SEGMENT_BYTES: usize = 128;

/// The reason why a URL cannot be fetched. The message names the URL, shortened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// It does not parse.
    #[error("not a URL: {url}: {reason}")]
    Parse {
        /// The text, shortened.
        url: String,
        /// The parser's message.
        reason: url::ParseError,
    },
    /// It is longer than [`MAX_URL_BYTES`].
    #[error("URL of {bytes} bytes is longer than the limit of {MAX_URL_BYTES}: {url}")]
    TooLong {
        /// The text, shortened.
        url: String,
        /// Its length in bytes.
        bytes: usize,
    },
    /// Its scheme is neither http nor https.
    #[error("unsupported scheme {scheme:?} (only http and https can be fetched): {url}")]
    Scheme {
        /// The text, shortened.
        url: String,
        /// The scheme.
        scheme: String,
    },
    /// It names no host.
    #[error("no host in URL: {url}")]
    NoHost {
        /// The text, shortened.
        url: String,
    },
}

/// Reads `text` as a URL that can be fetched: http or https, with a host. Removes user info and
/// fragment, so that neither is logged. Cost: one parse.
///
/// # Errors
/// [`UrlError`] names the URL and the error in it.
///
/// ```
/// let url = fetchwise_types::heuristic::url::parse("https://me:secret@example.org/a#top").unwrap();
/// assert_eq!(url.as_str(), "https://example.org/a");
/// assert!(fetchwise_types::heuristic::url::parse("data:text/plain,hi").is_err());
/// ```
#[inline]
pub fn parse(text: &str) -> Result<Url, UrlError> {
    if text.len() > MAX_URL_BYTES {
        return Err(UrlError::TooLong { url: shown(text), bytes: text.len() });
    }
    let mut url =
        Url::parse(text).map_err(|reason| UrlError::Parse { url: shown(text), reason })?;
    fetchable(&url)?;
    if !url.username().is_empty() || url.password().is_some() {
        // Both are infallible on a URL with a host, which `fetchable` has just checked.
        let _ = url.set_username("");
        let _ = url.set_password(None);
    }
    url.set_fragment(None);
    Ok(url)
}

/// Checks that `url` can be fetched: http or https, with a host, not too long.
///
/// # Errors
/// [`UrlError`] says why it cannot.
#[inline]
pub fn fetchable(url: &Url) -> Result<(), UrlError> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(UrlError::Scheme { url: shown(url.as_str()), scheme: url.scheme().to_owned() });
    }
    if url.as_str().len() > MAX_URL_BYTES {
        return Err(UrlError::TooLong { url: shown(url.as_str()), bytes: url.as_str().len() });
    }
    match url.host_str() {
        // The parser accepts a host of dots alone, which names nothing.
        Some(host) if host.bytes().any(|b| b != b'.') => Ok(()),
        _ => Err(UrlError::NoHost { url: shown(url.as_str()) }),
    }
}

/// File or page. Their evidence is separate, since the fetcher that works for a site's pages may
/// not work for its PDF files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ContentKind {
    /// Everything that is not a file.
    Page = 0,
    /// A document, image, archive or another resource that a browser would not render as a page.
    File = 1,
}

/// The suffixes that make a URL a [`ContentKind::File`], sorted, without the dot.
pub const FILE_SUFFIXES: &[&str] = &[
    "7z", "aac", "apk", "arj", "avi", "avif", "bin", "bmp", "bz2", "css", "csv", "deb", "dmg",
    "doc", "docx", "eot", "epub", "exe", "flac", "flv", "gif", "gz", "heic", "ico", "iso", "jar",
    "jpeg", "jpg", "js", "json", "jsonl", "m4a", "m4v", "mjs", "mkv", "mobi", "mov", "mp3", "mp4",
    "mpeg", "mpg", "msi", "ndjson", "odp", "ods", "odt", "oga", "ogg", "ogv", "opus", "otf", "pdf",
    "png", "ppt", "pptx", "ps", "rar", "rpm", "rtf", "so", "svg", "tar", "tgz", "tif", "tiff",
    "tsv", "ttf", "txt", "wasm", "wav", "webm", "webp", "wma", "wmv", "woff", "woff2", "xls",
    "xlsx", "xml", "xz", "zip", "zst",
];

/// The suffixes as numbers, in the same order; each comparison is one step.
const FILE_SUFFIX_NUMBERS: [u128; FILE_SUFFIXES.len()] = {
    let mut numbers = [0; FILE_SUFFIXES.len()];
    let mut index = 0;
    while index < numbers.len() {
        numbers[index] = number_of(FILE_SUFFIXES[index].as_bytes());
        index += 1;
    }
    numbers
};

/// Returns at most 16 bytes as a number that sorts as they do.
const fn number_of(bytes: &[u8]) -> u128 {
    let mut all = [0; 16];
    let mut index = 0;
    while index < bytes.len() {
        all[index] = bytes[index];
        index += 1;
    }
    u128::from_be_bytes(all)
}

/// A lower-case suffix with its dot, e.g. `.pdf`, stored inline.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Suffix {
    bytes: [u8; 11],
    len: u8,
}

impl Suffix {
    /// Returns the suffix of a path's last segment: at most ten letters and digits after a dot, at
    /// least one of them a letter.
    pub(super) fn of_segment(segment: &str) -> Option<Self> {
        let dot = segment.bytes().rposition(|b| b == b'.')?;
        let extension = &segment[dot + 1..];
        let fits = dot > 0
            && (1..=10).contains(&extension.len())
            && extension.bytes().all(|b| b.is_ascii_alphanumeric())
            && extension.bytes().any(|b| b.is_ascii_alphabetic());
        if !fits {
            return None;
        }
        let mut bytes = [0; 11];
        bytes[0] = b'.';
        for (to, from) in bytes[1..].iter_mut().zip(extension.bytes()) {
            *to = from.to_ascii_lowercase();
        }
        Some(Self { bytes, len: extension.len() as u8 + 1 })
    }

    /// Returns the suffix as text, with its dot.
    #[inline]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }

    /// Returns whether it means a file or a page, by the shipped list.
    #[inline]
    pub fn kind(&self) -> ContentKind {
        match FILE_SUFFIX_NUMBERS.binary_search(&number_of(&self.bytes[1..])) {
            Ok(_) => ContentKind::File,
            Err(_) => ContentKind::Page,
        }
    }
}

impl fmt::Debug for Suffix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The flags that a path can set, in their order of precedence for confidence.
pub const FLAGS: [&str; 4] = ["contains_cdn", "contains_static", "contains_assets", "contains_api"];

/// The path segments that set [`FLAGS`].
const FLAG_SEGMENTS: [&str; 4] = ["cdn", "static", "assets", "api"];

/// The features of one URL, borrowed from it.
///
/// ```
/// use fetchwise_types::heuristic::url::UrlFeatures;
/// let url = url::Url::parse("https://www.wikipedia.org/wiki/static/Rust.PDF").unwrap();
/// let features = UrlFeatures::extract(&url).unwrap();
/// assert_eq!((features.domain, features.site, features.path_depth), ("wikipedia.org", "wikipedia.org", 3));
/// assert_eq!(features.suffix.unwrap().as_str(), ".pdf");
/// assert_eq!(features.section, Some("wiki"));
/// assert_eq!(features.flags, [false, true, false, false]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct UrlFeatures<'u> {
    /// The host without `www.`, in lower case and ASCII form; without the port.
    pub domain: &'u str,
    /// The registrable domain by the Public Suffix List; an IP address is its own site.
    pub site: &'u str,
    /// The suffix of the last path segment.
    pub suffix: Option<Suffix>,
    /// Which of [`FLAGS`] the path sets.
    pub flags: [bool; 4],
    /// The number of path segments that are not empty.
    pub path_depth: u32,
    /// The first path segment, unless it is a file name: the section of the site.
    pub section: Option<&'u str>,
}

impl<'u> UrlFeatures<'u> {
    /// Extracts all features. Allocates nothing; linear in the URL's length.
    ///
    /// # Errors
    /// [`UrlError`] if the URL cannot be fetched.
    #[inline]
    pub fn extract(url: &'u Url) -> Result<Self, UrlError> {
        fetchable(url)?;
        let host = url.host_str().unwrap_or_default();
        let domain = domain_of(host);
        let site = match url.host() {
            Some(Host::Domain(_)) => registrable_domain(domain).unwrap_or(domain),
            _ => domain,
        };
        let mut features =
            Self { domain, site, suffix: None, flags: [false; 4], path_depth: 0, section: None };
        let path = url.path().strip_prefix('/').unwrap_or(url.path());
        // Segments are short: stepping through their bytes is faster than any search that needs a
        // set-up.
        let (mut start, mut last) = (0, false);
        while !last {
            let end = path.as_bytes()[start..]
                .iter()
                .position(|&b| b == b'/')
                .map_or(path.len(), |len| start + len);
            let segment = &path[start..end];
            (start, last) = (end + 1, end == path.len());
            if segment.is_empty() {
                continue;
            }
            features.path_depth += 1;
            if last {
                features.suffix = Suffix::of_segment(segment);
            } else if let Some(flag) = FLAG_SEGMENTS.iter().position(|&name| name == segment) {
                features.flags[flag] = true;
            }
            let is_file_name = last && features.suffix.is_some();
            if features.path_depth == 1 && !is_file_name && segment.len() <= MAX_SEGMENT_BYTES {
                features.section = Some(segment);
            }
        }
        Ok(features)
    }

    /// Returns whether the domain is a registrable domain itself, not a subdomain. The site's name
    /// is always the end of the domain's, so this compares their lengths only.
    #[inline]
    pub fn is_site(&self) -> bool {
        self.site.len() == self.domain.len()
    }

    /// Returns file or page, by the suffix and the shipped list.
    #[inline]
    pub fn kind(&self) -> ContentKind {
        self.suffix.map_or(ContentKind::Page, |suffix| suffix.kind())
    }

    /// Returns the features as heuristics for an attempt: only flags that are set.
    #[inline]
    pub fn heuristics(&self) -> Vec<Heuristic> {
        let mut out = Vec::with_capacity(8);
        out.push(Heuristic::new("domain", self.domain.to_owned()));
        out.push(Heuristic::new("site", self.site.to_owned()));
        if let Some(suffix) = self.suffix {
            out.push(Heuristic::new("suffix", suffix.as_str().to_owned()));
            out.push(Heuristic::new(
                "domain_suffix",
                format!("{}|{}", self.domain, suffix.as_str()),
            ));
        }
        for (&flag, set) in FLAGS.iter().zip(self.flags) {
            if set {
                out.push(Heuristic::flag(flag));
            }
        }
        out.push(Heuristic::new("path_depth", self.path_depth.to_string()));
        if let Some(section) = self.section {
            out.push(Heuristic::new("domain_path", format!("{}|{section}", self.domain)));
        }
        out
    }
}

/// Returns `host` as the `domain` heuristic has it: without `www.` and trailing dots. `www.com`
/// stays unchanged.
#[inline]
pub fn domain_of(host: &str) -> &str {
    let host = host.trim_end_matches('.');
    match host.strip_prefix("www.") {
        Some(rest) if rest.contains('.') => rest,
        _ => host,
    }
}

/// Returns the registrable domain of `domain`, or `domain` itself if it has none (`localhost`, a
/// public suffix, an address).
#[inline]
pub fn site_of(domain: &str) -> &str {
    if domain.starts_with('[') || domain.parse::<std::net::Ipv4Addr>().is_ok() {
        return domain;
    }
    registrable_domain(domain).unwrap_or(domain)
}

/// Returns the suffix in the text of a URL without parsing it. For attempts, whose URL was parsed
/// when they were made: it is the suffix that [`UrlFeatures::extract`] finds. Cost: linear in the
/// length of the text.
///
/// ```
/// use fetchwise_types::heuristic::url::suffix_of;
/// assert_eq!(suffix_of("https://example.org/a.PDF?page=2").unwrap().as_str(), ".pdf");
/// assert!(suffix_of("https://example.zip").is_none());
/// ```
#[inline]
pub fn suffix_of(url: &str) -> Option<Suffix> {
    let end = memchr::memchr2(b'?', b'#', url.as_bytes()).unwrap_or(url.len());
    let bytes = &url.as_bytes()[..end];
    let scheme =
        bytes.iter().position(|&b| b == b':').filter(|&colon| bytes[colon..].starts_with(b"://"));
    // The authority is not part of the path: a bare `https://example.zip` is a page.
    let authority = scheme.map_or(0, |colon| colon + 3);
    let segment = match memchr::memrchr(b'/', &bytes[authority..]) {
        Some(slash) => &url[authority + slash + 1..end],
        None if scheme.is_some() => "",
        None => &url[..end],
    };
    Suffix::of_segment(segment)
}

/// Returns whether a heuristic of type `kind` is extracted from the URL by [`UrlFeatures`]. The
/// types of custom extractors and those of responses are not.
#[inline]
pub fn is_of_url(kind: &str) -> bool {
    matches!(kind, "domain" | "site" | "suffix" | "domain_suffix" | "domain_path" | "path_depth")
        || FLAGS.contains(&kind)
}

/// Returns the URL without its fragment: the identity of the page.
#[inline]
pub fn identity(url: &Url) -> &str {
    &url[..Position::AfterQuery]
}

/// Returns the text of a URL without its user and password, for people. An invalid URL may contain
/// them, too.
///
/// ```
/// use fetchwise_types::heuristic::url::without_user;
/// assert_eq!(without_user("https://me:secret@example.org:0x/a@b"), "https://example.org:0x/a@b");
/// assert_eq!(without_user("me:secret@example.org"), "example.org");
/// assert_eq!(without_user("https://example.org/a@b"), "https://example.org/a@b");
/// ```
pub fn without_user(text: &str) -> Cow<'_, str> {
    let is_slash = |c| matches!(c, '/' | '\\');
    // The authority follows the slashes after the scheme; without them, whatever precedes an `@`
    // may be a password.
    let begin = match text.split_once(':') {
        Some((_, rest)) if rest.starts_with(is_slash) => {
            text.len() - rest.trim_start_matches(is_slash).len()
        }
        _ => 0,
    };
    let rest = &text[begin..];
    let authority =
        &rest[..rest.find(|c| is_slash(c) || matches!(c, '?' | '#')).unwrap_or(rest.len())];
    match authority.rfind('@') {
        Some(at) => Cow::Owned(format!("{}{}", &text[..begin], &rest[at + 1..])),
        None => Cow::Borrowed(text),
    }
}

/// Returns a URL for a message.
fn shown(text: &str) -> String {
    shorten(&without_user(text))
}

/// Returns at most 80 characters of `text`, for a message.
#[inline]
pub fn shorten(text: &str) -> String {
    const MAX_CHARS: usize = 80;
    match text.char_indices().nth(MAX_CHARS) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features_of(text: &str) -> (String, String, Option<String>, u32, Option<String>) {
        let url = Url::parse(text).unwrap();
        let f = UrlFeatures::extract(&url).unwrap();
        (
            f.domain.to_owned(),
            f.site.to_owned(),
            f.suffix.map(|s| s.as_str().to_owned()),
            f.path_depth,
            f.section.map(str::to_owned),
        )
    }

    fn owned(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn the_suffix_list_is_sorted_and_a_url_can_have_each_suffix() {
        assert!(FILE_SUFFIXES.is_sorted_by(|a, b| a < b), "sorted, without duplicates");
        assert!(FILE_SUFFIX_NUMBERS.is_sorted_by(|a, b| a < b));
        for suffix in FILE_SUFFIXES {
            let found = Suffix::of_segment(&format!("a.{}", suffix.to_uppercase()));
            assert_eq!(found.map(|found| found.kind()), Some(ContentKind::File), "{suffix}");
            assert_eq!(
                found.unwrap().as_str().strip_prefix('.'),
                Some(*suffix),
                "as a URL's suffix is written"
            );
        }
        assert_eq!(
            Suffix::of_segment("a.html").map(|suffix| suffix.kind()),
            Some(ContentKind::Page)
        );
    }

    #[test]
    fn domain_drops_www_port_case_and_trailing_dot() {
        assert_eq!(features_of("HTTP://WWW.Example.ORG.:8080/").0, "example.org");
        assert_eq!(features_of("http://example.org../").0, "example.org");
        assert_eq!(features_of("http://www.com/").0, "www.com");
        assert_eq!(features_of("http://b\u{fc}cher.de/").0, "xn--bcher-kva.de");
    }

    #[test]
    fn site_is_the_registrable_domain_and_an_address_is_its_own_site() {
        assert_eq!(features_of("https://news.bbc.co.uk/").1, "bbc.co.uk");
        assert_eq!(features_of("https://me.github.io/x").1, "me.github.io");
        assert_eq!(features_of("http://127.0.0.1:81/").1, "127.0.0.1");
        assert_eq!(features_of("http://[::1]:81/").1, "[::1]");
        assert_eq!(features_of("http://localhost/").1, "localhost");
    }

    #[test]
    fn suffix_is_a_short_extension_with_a_letter_in_the_last_segment() {
        assert_eq!(features_of("http://e.org/a/B.PDF?x=.html#y.js").2, owned(".pdf"));
        assert_eq!(features_of("http://e.org/a.tar.gz").2, owned(".gz"));
        for none in ["/v1.2", "/a.pdf/", "/.htaccess", "/a.b-c", "/a.abcdefghijk", "/a.", "/"] {
            assert_eq!(features_of(&format!("http://e.org{none}")).2, None, "{none}");
        }
    }

    #[test]
    fn section_is_the_first_segment_unless_it_is_a_file() {
        assert_eq!(features_of("http://e.org/wiki/Rust").4, owned("wiki"));
        assert_eq!(features_of("http://e.org//wiki").4, owned("wiki"));
        assert_eq!(features_of("http://e.org/doc.pdf").4, None);
        assert_eq!(features_of("http://e.org/v1.0/doc.pdf").4, owned("v1.0"));
    }

    #[test]
    fn flags_need_a_whole_directory_segment() {
        let flags = |text: &str| UrlFeatures::extract(&Url::parse(text).unwrap()).unwrap().flags;
        assert_eq!(flags("http://e.org/cdn/x/assets/y"), [true, false, true, false]);
        assert_eq!(flags("http://e.org/cdn"), [false; 4]);
        assert_eq!(flags("http://e.org/mycdn/x"), [false; 4]);
    }

    #[test]
    fn a_url_that_cannot_be_fetched_is_named_in_the_error() {
        for (text, want) in [
            ("", "not a URL"),
            ("not a url", "not a URL"),
            ("ftp://e.org/", "unsupported scheme \"ftp\""),
            ("data:text/html,hi", "unsupported scheme \"data\""),
            ("http://", "not a URL"),
            ("http://./a", "no host in URL"),
            ("http://../a", "no host in URL"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(want) && message.contains(text), "{text}: {message}");
        }
        let long = format!("http://e.org/{}", "a".repeat(10 << 20));
        let message = parse(&long).unwrap_err().to_string();
        assert!(message.contains("longer than") && message.len() < 300, "{message}");
    }

    #[test]
    fn the_suffix_of_the_text_is_that_of_the_features() {
        for text in [
            "http://e.org/a.pdf?q=1",
            "http://e.org/a",
            "https://e.zip",
            "https://e.zip/",
            "http://e.org/a.HTML#x.pdf",
        ] {
            let url = Url::parse(text).unwrap();
            assert_eq!(suffix_of(text), UrlFeatures::extract(&url).unwrap().suffix, "{text}");
        }
        assert_eq!(
            suffix_of("http://e.org/a.pdf?q=1").map(|suffix| suffix.kind()),
            Some(ContentKind::File)
        );
    }
}
