//! The decision context: what a caller states about a URL, shared by `select`, `explain` and
//! visits.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::StatusCode;
use serde::Deserialize;
use url::Url;

use crate::problem::Problem;
use crate::request_body::{few, few_if_any, few_named};
use crate::state::State;
use crate::unavailable_fetchers::UnavailableSnapshot;
use fetchwise::attempt::Hint;
use fetchwise::heuristic::Heuristic;
use fetchwise::heuristic::url::identity;
use fetchwise::registry::{FetcherId, FetcherSet};
use fetchwise::router::{RouteError, Routed};
use fetchwise::selector::{SelectContext, Selector};
use fetchwise::time::Timestamp;
use fetchwise::unknown_name::UnknownName;
use fetchwise_present::{DecisionJson, Unavailable};

/// The names of failures that a caller may state.
pub(super) const HINTS: [&str; 4] = ["blocked", "empty", "timeout", "unknown"];

/// The statements of a caller about a URL or about all URLs of a call.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub(crate) struct CallerContext {
    /// What the caller knows besides the URL, by heuristic type.
    #[serde(deserialize_with = "few_named")]
    pub(crate) tags: BTreeMap<String, String>,
    /// The fetcher that the caller prefers.
    pub(crate) prefer: Option<String>,
    /// The fetchers that are available to the caller; default: all.
    #[serde(deserialize_with = "few_if_any")]
    pub(crate) fetchers: Option<Vec<String>>,
    /// Fetchers that were already tried.
    #[serde(deserialize_with = "few")]
    pub(crate) tried: Vec<String>,
    /// The error type of the last failure.
    #[cfg_attr(test, schemars(extend("enum" = HINTS)))]
    pub(crate) last_failure: Option<String>,
}

/// The statements, resolved to ids of the selector.
#[derive(Debug)]
pub(crate) struct ResolvedContext {
    pub(crate) heuristics: Vec<Heuristic>,
    pub(crate) prefer: Option<FetcherId>,
    pub(crate) tried: FetcherSet,
    /// The fetchers that are unavailable to this caller.
    lacking: FetcherSet,
    hint: Option<Hint>,
    listed: Arc<UnavailableSnapshot>,
    now: Timestamp,
}

/// A decision, and the preferred candidate if it is unavailable.
#[derive(Debug)]
pub(crate) struct ContextDecision {
    pub(crate) routed: Routed,
    pub(crate) unavailable: Option<FetcherId>,
}

impl CallerContext {
    /// Fills missing statements from `all`.
    #[must_use]
    pub(crate) fn or(self, all: &Self) -> Self {
        let mut tags = all.tags.clone();
        tags.extend(self.tags);
        Self {
            tags,
            prefer: self.prefer.or_else(|| all.prefer.clone()),
            fetchers: self.fetchers.or_else(|| all.fetchers.clone()),
            tried: if self.tried.is_empty() { all.tried.clone() } else { self.tried },
            last_failure: self.last_failure.or_else(|| all.last_failure.clone()),
        }
    }
}

impl ResolvedContext {
    /// Resolves the statements of a caller.
    ///
    /// # Errors
    /// 422 for an unknown name or an invalid tag.
    pub(crate) fn of(said: &CallerContext, state: &State) -> Result<Self, Problem> {
        let selector = &*state.selector;
        let mut heuristics = Vec::with_capacity(said.tags.len());
        for (kind, value) in &said.tags {
            heuristics
                .push(Heuristic::of_caller(kind, value).map_err(|error| wrong(error.to_string()))?);
        }
        let candidate = |name: &String| candidate(selector, name);
        let prefer = said.prefer.as_ref().map(candidate).transpose()?;
        let mut tried = FetcherSet::EMPTY;
        for name in &said.tried {
            tried.insert(candidate(name)?);
        }
        let hint = said.last_failure.as_deref().map(hint).transpose()?;
        let listed = state.unavailable.listed();
        let lacking = match &said.fetchers {
            None => listed.set,
            Some(names) => {
                let mut had = FetcherSet::EMPTY;
                for name in names {
                    had.insert(candidate(name)?);
                }
                let mut lacking = FetcherSet::EMPTY;
                selector
                    .candidates()
                    .filter(|(id, _)| !had.contains(*id))
                    .for_each(|(id, _)| lacking.insert(id));
                lacking
            }
        };
        Ok(Self { heuristics, prefer, tried, lacking, hint, listed, now: selector.now() })
    }

    /// Returns the select context of a decision about `url`.
    pub(crate) fn select_context<'k>(
        &'k self,
        id: Option<&str>,
        url: &Url,
        state: &State,
    ) -> SelectContext<'k> {
        SelectContext { excluded: self.tried.union(self.lacking), ..self.with_all(id, url, state) }
    }

    /// Decides about `url` with the caller's `id`.
    ///
    /// # Errors
    /// If the URL cannot be fetched, or the router table should serve it and cannot.
    pub(crate) fn decide(
        &self,
        id: Option<&str>,
        url: &Url,
        state: &State,
    ) -> Result<ContextDecision, RouteError> {
        let selector = &*state.selector;
        selector.bring_back(url, &self.heuristics);
        let routed = selector.route(url, &self.select_context(id, url, state), None)?;
        let mut unavailable = None;
        if !self.lacking.is_empty() {
            let all = selector.route(url, &self.with_all(id, url, state), None)?;
            unavailable = all
                .decision
                .selected()
                .map(|take| take.fetcher)
                .filter(|id| self.lacking.contains(*id));
        }
        Ok(ContextDecision { routed, unavailable })
    }

    /// Returns the decision as JSON; `text` is the URL as the caller wrote it.
    pub(crate) fn json<'a>(
        &'a self,
        text: &'a str,
        decided: &ContextDecision,
        state: &'a State,
    ) -> DecisionJson<'a> {
        let selector = &*state.selector;
        let unavailable = decided.unavailable.map(|id| Unavailable {
            fetcher: selector.fetcher_name(id),
            reason: self.listed.why(id).or(Some("the caller does not have it")),
        });
        DecisionJson::new(text, selector, selector.router().mode, &decided.routed, unavailable)
    }

    /// Returns the fetchers that are unavailable to this caller.
    pub(crate) fn lacking(&self) -> FetcherSet {
        self.lacking
    }

    fn with_all<'k>(&'k self, id: Option<&str>, url: &Url, state: &State) -> SelectContext<'k> {
        let link = state.selector.link_state(id.unwrap_or_else(|| identity(url)));
        SelectContext {
            link,
            hint: self.hint.or(link.hint),
            prefer: self.prefer,
            excluded: self.tried,
            attempts: u32::try_from(self.tried.len()).unwrap_or(u32::MAX),
            heuristics: &self.heuristics,
            ..SelectContext::first_attempt(self.now)
        }
    }
}

/// Creates a 422 with a message.
pub(crate) fn wrong(words: impl Into<String>) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_value", words)
}

fn candidate(selector: &Selector, name: &str) -> Result<FetcherId, Problem> {
    let known = selector.fetcher_id(name).filter(|id| selector.is_candidate(*id));
    known.ok_or_else(|| {
        let names = selector.candidates().map(|(_, spec)| &*spec.name);
        wrong(UnknownName::new("fetcher", name, names).to_string())
    })
}

fn hint(name: &str) -> Result<Hint, Problem> {
    Hint::from_name(name).ok_or_else(|| wrong(UnknownName::new("failure", name, HINTS).to_string()))
}
