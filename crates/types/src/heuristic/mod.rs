//! Heuristics: the `(type, value)` pairs by which attempts are tagged and evidence is kept.
//!
//! [`url`] owns the heuristics before the fetch; those of the response are in `detect`. Both sets
//! are open: evidence and queries use a new type from its first attempt on.

use std::borrow::Cow;

pub mod files;
pub mod platform;
pub mod url;

/// The type of the tag on an attempt that got a page which is merely short. The value is
/// [`SHORT_PAGE_TRUE`]. On an attempt that rendered the page and found nothing more, it is the
/// fetcher whose plain response was complete: that fetcher gets the credit.
pub const SHORT_PAGE: &str = "thin";

/// The type of the tag with a signal that an attempt's host had shown before it: `block_datadome`,
/// `spa_framework=next`.
pub const HOST_SHOWED: &str = "host_showed";

/// The type of the tag on an attempt whose response showed a signal that its host is remembered by
/// from now on.
pub const HOST_SHOWS: &str = "host_shows";

/// The type of the tag on an attempt whose site had contributed its share to the evidence that all
/// sites have in common. The attempt counts for its own site only. The value is `true`.
pub const SITE_SATURATED: &str = "site_saturated";

/// The type of the tag on a failed attempt whose site had not delivered anything yet, by any
/// fetcher. All failures with this tag together count little for other sites, until their site
/// delivers. The value is `true`.
pub const SITE_UNPROVEN: &str = "site_unproven";

/// The type of the tag on the first attempt that got something from a site. The value is a weight
/// and a fetcher: as much of that fetcher's earlier failures there counts for other sites from now
/// on. There is a tag for each such fetcher.
pub const SITE_PROVEN: &str = "site_proven";

/// The value of [`SHORT_PAGE`] on an attempt that is credited itself.
pub const SHORT_PAGE_TRUE: &str = "true";

/// The type of the tag on an attempt that got the same few words as attempts for other addresses of
/// its host. The value is `blocked` if another fetcher got something else for one of them; then the
/// attempt counts as blocked. It is `soft_404` if the page also reports itself missing, and `true`
/// if no fetcher got anything else.
pub const SAME_PAGE_AGAIN: &str = "same_page_again";

/// The type of the tag on an attempt that got the same few words as attempts for other sites. The
/// value is `network_block` if the crawler's network put the page there, and otherwise
/// [`DEFAULT_PAGE`].
pub const SAME_PAGE_OTHER_SITES: &str = "same_page_other_sites";

/// The value of [`SAME_PAGE_OTHER_SITES`] on an attempt that got a page of no site: of a parked
/// domain, a hoster, or a product before its log-in. Such an attempt is no evidence.
pub const DEFAULT_PAGE: &str = "default_page";

/// The type of the tag on an attempt whose URL led to another host. The value is the domain of the
/// requested URL. All tags that a URL determines, such as `domain`, are then those of the URL that
/// responded: the attempt is evidence about that host, and none about the host that redirected.
pub const REDIRECTED_BY: &str = "redirected_by";

/// The type of the tag on an attempt of a crawler that signs: the response had `Accept-Signature`.
pub const ASKS_SIGNATURE: &str = "asks_signature";

/// The type of the tag on an attempt of a crawler that signs: the site asks for a price.
pub const CHARGES: &str = "charges";

/// One observable feature of a URL or a response, e.g. `(domain, wikipedia.org)` or
/// `(status_403, true)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Heuristic {
    /// The type: any text.
    pub kind: Cow<'static, str>,
    /// The value; flags have the value `true`.
    pub value: Cow<'static, str>,
}

impl Heuristic {
    /// Returns a heuristic of its two parts.
    #[inline]
    pub fn new(kind: impl Into<Cow<'static, str>>, value: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: kind.into(), value: value.into() }
    }

    /// Returns a heuristic that the caller knows of a URL, such as `(video_platform, vimeo)`.
    ///
    /// # Errors
    /// [`ReservedHeuristic`] if the type or value is empty or too long, and for types that
    /// fetchwise finds itself: two values of one type would contradict each other.
    #[inline]
    pub fn of_caller(kind: &str, value: &str) -> Result<Self, ReservedHeuristic> {
        let wrong = |why| Err(ReservedHeuristic { kind: url::shorten(kind), why });
        match () {
            () if kind.is_empty() || value.is_empty() => wrong("type and value cannot be empty"),
            () if kind.len() > MAX_KIND_BYTES || value.len() > MAX_VALUE_BYTES => {
                wrong("it is too long")
            }
            () if kind.contains(char::is_control) || value.contains(char::is_control) => {
                wrong("it contains control characters")
            }
            () if matches!(
                kind,
                "domain" | "site" | "suffix" | "domain_suffix" | "domain_path" | "path_depth"
            ) || url::FLAGS.contains(&kind) =>
            {
                wrong("the URL determines that type")
            }
            () if is_mark(kind) || matches!(kind, SHORT_PAGE | "global" | "hint") => {
                wrong("fetchwise reserves that type")
            }
            () => Ok(Self::new(kind.to_owned(), value.to_owned())),
        }
    }

    /// Returns a flag: the value is `true`. Only flags that are set are recorded.
    #[inline]
    pub fn flag(kind: impl Into<Cow<'static, str>>) -> Self {
        Self::new(kind, "true")
    }
}

/// Returns whether a type is a mark that fetchwise sets on recorded attempts: what its host showed,
/// who redirected to it, and how far its evidence reaches. A mark itself has no evidence.
///
/// ```
/// use fetchwise_types::heuristic::is_mark;
/// assert!(is_mark("host_showed") && !is_mark("domain"));
/// ```
pub fn is_mark(kind: &str) -> bool {
    matches!(
        kind,
        HOST_SHOWED | HOST_SHOWS | REDIRECTED_BY | SITE_SATURATED | SITE_UNPROVEN | SITE_PROVEN
    )
}

/// Returns whether a type is that of a response, so that its heuristics are known only after the
/// request, or a mark that fetchwise sets on recorded attempts. All others are known before the
/// request: those of the URL, those of a caller, and what the host has shown earlier.
///
/// ```
/// use fetchwise_types::heuristic::is_of_response;
/// assert!(is_of_response("status_404") && is_of_response("empty_body"));
/// assert!(!is_of_response("domain") && !is_of_response("host_showed"));
/// ```
pub fn is_of_response(kind: &str) -> bool {
    const TYPES: [&str; 20] = [
        "server",
        "content_type",
        "has_captcha",
        "has_spa",
        "has_paywall",
        "has_login_wall",
        "soft_404",
        "is_queued",
        "network_block",
        "empty_body",
        "high_script_ratio",
        "spa_framework",
        SHORT_PAGE,
        HOST_SHOWS,
        SAME_PAGE_AGAIN,
        SAME_PAGE_OTHER_SITES,
        REDIRECTED_BY,
        SITE_SATURATED,
        SITE_UNPROVEN,
        SITE_PROVEN,
    ];
    TYPES.contains(&kind)
        || ["status_", "server_", "waf_", "block_"].iter().any(|start| kind.starts_with(start))
}

/// The longest type of a caller's heuristic, in bytes.
const MAX_KIND_BYTES: usize = 64;
/// The longest value, in bytes.
const MAX_VALUE_BYTES: usize = 256;

/// A heuristic that callers cannot set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid heuristic {kind:?}: {why}")]
pub struct ReservedHeuristic {
    kind: String,
    why: &'static str,
}

/// A custom extractor of heuristics that are known before the fetch.
///
/// Register it with the selector's builder. It runs inside `select`, so it should not allocate: it
/// passes each value to `emit` as borrowed text. Extractors that are registered earlier take
/// precedence for confidence.
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
    /// Calls `emit(type, value)` for each heuristic of `url`.
    fn extract(&self, url: &::url::Url, emit: &mut dyn FnMut(&str, &str));
}
