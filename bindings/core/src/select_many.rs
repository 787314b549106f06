//! Decisions about many URLs in one call.
//!
//! Must not know: how the packages name a link that is not its URL; here each link has the name of
//! its URL.

use fetchwise::Selector;
use fetchwise::decision::Decision;
use fetchwise::heuristic::url::{UrlError, identity};
use fetchwise::selector::SelectContext;
use url::Url;

/// Decides about each URL as [`Selector::select`] does, in the context `all` but with the state of
/// that URL's link. The evidence of several URLs is requested before the first of them is decided.
///
/// # Errors
/// [`UrlError`] of the first URL that cannot be fetched.
pub fn select_many(
    selector: &Selector,
    urls: &[Url],
    all: &SelectContext<'_>,
) -> Result<Vec<Decision>, UrlError> {
    let mut out = Vec::with_capacity(urls.len());
    for urls in urls.chunks(Selector::PREFETCHED) {
        selector.prefetch(urls);
        for url in urls {
            selector.bring_back(url, all.heuristics);
            out.push(selector.select(
                url,
                &SelectContext { link: selector.link_state(identity(url)), ..*all },
            )?);
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fetchwise::backoff::LinkState;
    use fetchwise::time::Timestamp;

    use super::*;

    #[test]
    fn each_url_gets_the_decision_that_it_gets_alone() {
        let (selector, now) = (Selector::builder().build().unwrap(), Timestamp::now());
        let urls: Vec<Url> =
            (0..40).map(|n| format!("https://site{}.org/{n}", n % 9).parse().unwrap()).collect();
        selector.set_host_pause("site3.org", Some(now.saturating_add(Duration::from_secs(60))));
        let paused = LinkState {
            paused_until: Some(now.saturating_add(Duration::from_secs(9))),
            ..LinkState::default()
        };
        selector.restore_links([(identity(&urls[1]).to_owned(), paused)]);
        let all = SelectContext::first_attempt(now);
        let many = select_many(&selector, &urls, &all).unwrap();
        let alone = |url| {
            selector.select(url, &SelectContext { link: selector.link_state(identity(url)), ..all })
        };
        assert_eq!(many, urls.iter().map(|url| alone(url).unwrap()).collect::<Vec<_>>());
        assert!(matches!(many[1], Decision::Paused { host: false, .. }));
        assert!(matches!(many[3], Decision::Paused { host: true, .. }));
        let error =
            select_many(&selector, &["ftp://example.org/".parse().unwrap()], &all).unwrap_err();
        assert!(matches!(error, UrlError::Scheme { .. }));
    }
}
