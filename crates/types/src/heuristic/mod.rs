//! Heuristics: `(type, value)` pairs that an attempt is tagged with and evidence is kept by.
//!
//! [`url`] owns what is known before the fetch; the response side is in `detect`. Both are open: a type nobody has seen
//! before is learned from and queried from its first attempt on.

use std::borrow::Cow;

pub mod files;
pub mod platform;
pub mod url;

/// The type of the tag on an attempt that brought a page which is merely short. The value is [`SHORT_PAGE_TRUE`], or, on an attempt
/// that rendered the page and found nothing more, the fetcher whose plain answer was all there is: it is credited with it.
pub const SHORT_PAGE: &str = "thin";

/// The type of the tag that says what an attempt's host had shown before it: `block_datadome`, `spa_framework=next`.
pub const HOST_SHOWED: &str = "host_showed";

/// The type of the tag on an attempt whose answer showed something that its host is remembered by from now on.
pub const HOST_SHOWS: &str = "host_shows";

/// See [`SHORT_PAGE`].
pub const SHORT_PAGE_TRUE: &str = "true";

/// The type of the tag on an attempt that brought the same few words as attempts for other addresses of its host. The value is
/// `blocked` where another fetcher brought something else for one of them, so that the attempt counts as blocked; `soft_404` where the
/// page besides says of itself that nothing is there; `true` where nobody brought anything else.
pub const SAME_PAGE_AGAIN: &str = "same_page_again";

/// One observable feature of a URL or a response, e.g. `(domain, wikipedia.org)` or `(status_403, true)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Heuristic {
    /// The heuristic's type: open-ended text.
    pub kind: Cow<'static, str>,
    /// Its value; flags have the value `true`.
    pub value: Cow<'static, str>,
}

impl Heuristic {
    /// A heuristic from its two parts.
    pub fn new(kind: impl Into<Cow<'static, str>>, value: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: kind.into(), value: value.into() }
    }

    /// What a caller knows of a URL, such as `(video_platform, vimeo)`: a type of its own, and a value.
    ///
    /// # Errors
    /// [`ReservedHeuristic`] when the type or value is empty or too long, and for types that fetchwise finds out itself: two words about one
    /// thing would contradict each other.
    pub fn of_caller(kind: &str, value: &str) -> Result<Self, ReservedHeuristic> {
        let wrong = |why| Err(ReservedHeuristic { kind: url::shorten(kind), why });
        match () {
            () if kind.is_empty() || value.is_empty() => wrong("type and value cannot be empty"),
            () if kind.len() > MAX_KIND_BYTES || value.len() > MAX_VALUE_BYTES => wrong("it is too long"),
            () if kind.contains(char::is_control) || value.contains(char::is_control) => {
                wrong("it has control characters in it")
            }
            () if matches!(kind, "domain" | "site" | "suffix" | "domain_suffix" | "domain_path" | "path_depth")
                || url::FLAGS.contains(&kind) =>
            {
                wrong("the URL tells that by itself")
            }
            () if matches!(kind, SHORT_PAGE | HOST_SHOWED | HOST_SHOWS | "global" | "hint") => {
                wrong("fetchwise uses that type itself")
            }
            () => Ok(Self::new(kind.to_owned(), value.to_owned())),
        }
    }

    /// A flag: the value is `true`. Only what is true is recorded.
    pub fn flag(kind: impl Into<Cow<'static, str>>) -> Self {
        Self::new(kind, "true")
    }
}

/// The longest type that a caller can name, in bytes.
const MAX_KIND_BYTES: usize = 64;
/// The longest value, in bytes.
const MAX_VALUE_BYTES: usize = 256;

/// A heuristic that a caller cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the heuristic {kind:?} cannot be given: {why}")]
pub struct ReservedHeuristic {
    kind: String,
    why: &'static str,
}

/// A user's own heuristics, known before the fetch.
///
/// Registered with the selector's builder. It runs inside `select`, so it should not allocate: it hands each value to
/// `emit` as borrowed text. Confidence goes by the order in which extractors were registered.
///
/// ```
/// use fetchwise_types::heuristic::UrlExtractor;
///
/// struct VideoPlatform;
/// impl UrlExtractor for VideoPlatform {
///     fn extract(&self, url: &url::Url, emit: &mut dyn FnMut(&str, &str)) {
///         if matches!(url.host_str(), Some("www.youtube.com" | "vimeo.com")) {
///             emit("video_platform", "true");
///         }
///     }
/// }
///
/// struct DeepPath;
/// impl UrlExtractor for DeepPath {
///     fn extract(&self, url: &url::Url, emit: &mut dyn FnMut(&str, &str)) {
///         if url.path().matches('/').count() > 5 {
///             emit("deep_path", "true");
///         }
///     }
/// }
///
/// struct ComplexQuery;
/// impl UrlExtractor for ComplexQuery {
///     fn extract(&self, url: &url::Url, emit: &mut dyn FnMut(&str, &str)) {
///         if url.query().is_some_and(|query| query.len() > 50) {
///             emit("complex_query", "true");
///         }
///     }
/// }
/// ```
pub trait UrlExtractor: Send + Sync {
    /// Calls `emit(type, value)` for each heuristic that `url` has.
    fn extract(&self, url: &::url::Url, emit: &mut dyn FnMut(&str, &str));
}
