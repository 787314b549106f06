//! A routed decision: the hand-written table or the evidence decides, as the router says.
//!
//! Owns: how the two arms are called.
//!
//! Must not know: which of them serves (the router's rule), and how learning decides (the
//! selector's).

use url::Url;

use super::{SelectContext, Selector};
use crate::router::{Mode, RouteError, Routed, Router};
use fetchwise_types::decision::{Decision, Rule, Selection, Source};
use fetchwise_types::heuristic::url::UrlFeatures;
use fetchwise_types::registry::FetcherId;

impl Router {
    /// Decides about a first attempt. `learning` is the link's own mode, which takes precedence
    /// over the router's.
    ///
    /// # Errors
    /// [`RouteError`] if the URL cannot be fetched, or if the table should serve it and cannot.
    pub fn decide(
        &self,
        selector: &Selector,
        url: &Url,
        context: &SelectContext<'_>,
        learning: Option<bool>,
    ) -> Result<Routed, RouteError> {
        let routed = self.decide_as(selector, url, context, learning, false)?;
        selector.recorder().count_decision(&routed.decision);
        Ok(routed)
    }

    /// Does the same, uncounted, for a router whose learning may have been taken out of service.
    pub(super) fn decide_as(
        &self,
        selector: &Selector,
        url: &Url,
        context: &SelectContext<'_>,
        learning: Option<bool>,
        has_fallen: bool,
    ) -> Result<Routed, RouteError> {
        let learned = selector.select_uncounted(url, context)?;
        let domain = UrlFeatures::extract(url)?.domain;
        let (serve_table, ask_both) = self.arms(domain, learning, has_fallen);
        let settled = match learned {
            Decision::Paused { .. } => true,
            Decision::Selected(selection) => selection.source == Source::Requested,
            Decision::GiveUp | Decision::NoViableFetcher => false,
        };
        if settled || !serve_table {
            let shadow =
                if ask_both && !settled { self.route(selector, domain).ok() } else { None };
            let arm = if serve_table { Mode::Legacy } else { Mode::Learning };
            return Ok(Routed { decision: learned, arm, shadow });
        }
        let fetcher = self.route(selector, domain)?;
        // Confidence and sample size are the evidence's view of the routed fetcher, whichever arm
        // decided.
        let Some(asked) = selector
            .select_uncounted(url, &SelectContext { prefer: Some(fetcher), ..*context })?
            .selected()
        else {
            return Ok(Routed { decision: learned, arm: Mode::Legacy, shadow: None });
        };
        let selection = Selection { source: Source::HardCoded, rule: Rule::RouterTable, ..asked };
        let shadow =
            if ask_both { learned.selected().map(|selection| selection.fetcher) } else { None };
        Ok(Routed { decision: Decision::Selected(selection), arm: Mode::Legacy, shadow })
    }

    fn route(&self, selector: &Selector, domain: &str) -> Result<FetcherId, RouteError> {
        let Some(fetcher) = self.table.get(domain) else {
            return Err(RouteError::NoRoute { domain: domain.to_owned() });
        };
        selector
            .fetcher_id(fetcher)
            .filter(|id| selector.candidates().any(|(candidate, _)| candidate == *id))
            .ok_or_else(|| RouteError::UnknownFetcher {
                domain: domain.to_owned(),
                fetcher: fetcher.to_owned(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::RouteTable;
    use fetchwise_types::time::Timestamp;

    fn router(mode: Mode) -> Router {
        let mut table = RouteTable::default();
        table.insert("WWW.Example.com", "simple_http").unwrap();
        table.insert("video.example", "youtube_downloader").unwrap();
        Router { mode, table, split_share: 0.5 }
    }

    fn decide(router: &Router, text: &str, learning: Option<bool>) -> Result<Routed, RouteError> {
        let selector = Selector::builder().build().unwrap();
        let url = Url::parse(text).unwrap();
        router.decide(&selector, &url, &SelectContext::first_attempt(Timestamp::now()), learning)
    }

    fn source(routed: &Routed) -> &'static str {
        routed.decision.selected().unwrap().source.name()
    }

    #[test]
    fn the_table_serves_legacy_and_only_legacy() {
        assert_eq!(
            source(&decide(&router(Mode::Legacy), "http://www.example.com/a", None).unwrap()),
            "hard_coded"
        );
        assert_eq!(
            source(&decide(&router(Mode::Learning), "http://example.com/a", None).unwrap()),
            "probe"
        );
        assert_eq!(
            source(&decide(&router(Mode::Legacy), "http://example.com/a", Some(true)).unwrap()),
            "probe"
        );
        assert_eq!(
            source(&decide(&router(Mode::Learning), "http://example.com/a", Some(false)).unwrap()),
            "hard_coded"
        );
    }

    #[test]
    fn a_domain_without_a_route_is_a_clear_error() {
        let error = decide(&router(Mode::Legacy), "http://other.org/", None).unwrap_err();
        assert!(error.to_string().starts_with("no route for domain other.org"), "{error}");
    }

    #[test]
    fn shadow_serves_the_table_and_names_the_choice_of_learning() {
        let routed = decide(&router(Mode::Shadow), "http://video.example/watch", None).unwrap();
        assert_eq!((routed.arm, source(&routed)), (Mode::Legacy, "hard_coded"));
        assert!(
            routed.shadow.is_some()
                && routed.shadow != routed.decision.selected().map(|selection| selection.fetcher)
        );
    }
}
