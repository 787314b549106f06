//! The domain of a URL, and the target of a response that redirects.
//!
//! Must not know: visits.

use url::Url;

use fetchwise_types::fetch_result::{FetchResult, Outcome};
use fetchwise_types::heuristic::url::domain_of;
use fetchwise_types::response::header;

/// Returns the domain of a URL.
pub(super) fn domain(url: &Url) -> &str {
    domain_of(url.host_str().unwrap_or_default())
}

/// Returns the target of a response that redirects: in HTML, or by status, for a client that
/// follows no redirects.
pub(super) fn target(result: &FetchResult) -> Option<Box<str>> {
    match &result.outcome {
        Outcome::Redirect { to } => Some(to.clone()),
        Outcome::Http(301 | 302 | 303 | 307 | 308) => {
            header(&result.headers, "location").map(Into::into)
        }
        _ => None,
    }
}
