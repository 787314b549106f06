//! fetchwise learns which fetcher works for which URL, and keeps a crawler from getting its IP
//! address banned.
//!
//! # A visit, with any HTTP client
//!
//! A [`Visit`](visit::Visit) is the fetch of one URL. It returns the next step and takes the result
//! of each request. It records, retries, escalates and pauses on its own. It does no I/O, so any
//! client on any runtime can drive it. `examples/visit.rs` shows the same loop with a real client.
//!
//! A visit keeps a pace: a new host gets two requests per second, then as many as its responses
//! allow. The other visits of the host get [`Step::Wait`](visit::Step::Wait).
//! [`without_pace`](selector::SelectorBuilder::without_pace) turns this off.
//!
//! ```
//! use fetchwise::prelude::*;
//! # fn get(_: &url::Url, _: &str) -> std::io::Result<(u16, Vec<(String, String)>, Vec<u8>)> {
//! #     Ok((200, Vec::new(), format!("<p>{}", "The ferry leaves at noon. ".repeat(20)).into_bytes()))
//! # }
//! # let dir = tempfile::tempdir().unwrap();
//! # let dir = dir.path();
//!
//! let selector = Selector::builder()
//!     .fetcher(FetcherSpec::plain("direct_access"))
//!     .fetcher(FetcherSpec::rendering("playwright").cost(15.0))
//!     .journal(dir) // loads what earlier runs learned, and keeps what this run learns
//!     .build()?;
//! let detector = Detector::new();
//!
//! let url = url::Url::parse("https://example.org/ferries").unwrap();
//! let mut visit = selector.visit(&url)?;
//! let end = loop {
//!     match visit.next() {
//!         Step::Fetch(fetch) => {
//!             let result = match get(visit.url(), fetch.fetcher()) {
//!                 Ok((status, headers, body)) => detector.judge(status, headers, &body),
//!                 Err(error) => FetchResult::from(Outcome::from(error)),
//!             };
//!             visit.report(fetch, result);
//!         }
//!         Step::Wait(wait) => wait.block(std::time::Duration::from_secs(1)),
//!         Step::End(end) => break end,
//!     }
//! };
//! assert!(end.is_delivered());
//! # Ok::<(), fetchwise::Error>(())
//! ```
//!
//! # A decision only
//!
//! ```
//! use fetchwise::attempt::Attempt;
//! use fetchwise::selector::SelectContext;
//! use fetchwise::time::Timestamp;
//! use fetchwise::Selector;
//!
//! let selector = Selector::builder().build()?;
//! let url = url::Url::parse("https://example.org/report.pdf").unwrap();
//! let selection = selector.select(&url, &SelectContext::first_attempt(Timestamp::now()))?.selected().unwrap();
//! assert_eq!(selector.fetcher_name(selection.fetcher), "direct_access");
//! let attempt = Attempt::new(&url, "direct_access", Timestamp::date())?;
//! selector.record(attempt.delivered(), Timestamp::now()).unwrap();
//! # Ok::<(), fetchwise::Error>(())
//! ```
//!
//! # The detector alone
//!
//! [`Detector::judge`](crate::detect::Detector::judge) classifies a response: content, a block and
//! its vendor, an application shell, or an empty page.
//!
//! # The pipeline
//!
//! With the feature `pipeline`, `pipeline::Pipeline` drives visits on tokio with any set of
//! `fetch::Fetcher`s: the shipped ones (`HttpFetcher`, `CommandFetcher`, `BrowserFetcher` with the
//! feature `browser`) and your own. A [`Policy`](policy::Policy) replaces the way fetchwise
//! chooses. The folder `examples` has a program for each.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | (none) | the selector and visits: heuristics, evidence, decisions |
//! | `journal` (default) | evidence survives the process |
//! | `detect` (default) | classifies responses, with rules in TOML |
//! | `json`, `config` | attempts and decisions as JSON, analytics over a journal; settings from TOML |
//! | `pipeline` | visits on tokio, plain HTTP, child processes, stores |
//! | `browser` | Chromium over the DevTools protocol |
//! | `identity` | signed requests: keys, signatures, the key directory |
//! | `tracing` | spans and events of visits |
//! | `metrics` | counters, as a collector for a registry of `prometheus-client` |
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(any(feature = "json", feature = "config"))]
pub mod ab_test;
#[cfg(all(feature = "json", feature = "journal"))]
pub mod analytics;
pub mod backoff;
#[cfg(feature = "config")]
pub mod config;
pub mod ended_pauses;
pub mod error;
pub mod evidence;
pub(crate) mod explain;
#[cfg(feature = "json")]
pub mod explain_text;
#[cfg(feature = "journal")]
pub mod journal;
pub mod metrics;
pub mod off_policy;
pub mod pause_coordination;
#[cfg(feature = "pipeline")]
pub mod pipeline;
pub mod policy;
#[cfg(all(feature = "json", feature = "journal"))]
pub mod rollout;
pub mod router;
pub mod score;
pub mod selector;
pub(crate) mod state;
pub(crate) mod trace;
pub mod visit;

/// What most crawlers import: `use fetchwise::prelude::*;`.
pub mod prelude {
    #[cfg(feature = "detect")]
    pub use crate::detect::Detector;
    pub use crate::fetch_result::{FetchResult, Outcome};
    pub use crate::pace::{Pace, PaceSettings};
    pub use crate::registry::FetcherSpec;
    pub use crate::visit::{End, Fetch, Step, Visit, VisitOutcome, Wait};
    pub use crate::{Error, Selector};
}

#[cfg(feature = "detect")]
#[doc(inline)]
pub use fetchwise_detect as detect;
#[cfg(feature = "pipeline")]
pub use fetchwise_fetchers::{fetch, robots, store};
#[cfg(feature = "identity")]
pub use fetchwise_identity as identity;
#[doc(inline)]
pub use fetchwise_pace as pace;
pub use fetchwise_types::{
    attempt, cache_use, consent, decision, fetch_result, heuristic, provenance, query_hash,
    registry, response, robots_use, time, unknown_name,
};
#[cfg(feature = "json")]
pub use fetchwise_types::{fleet_status, rfc3339};

pub use error::Error;
pub use selector::Selector;
#[doc(hidden)]
pub use state::sweep_trigger::SweepTrigger;

/// Compiles and runs the programs of the guide with the other documentation tests.
#[cfg(all(doctest, feature = "journal", feature = "detect"))]
#[doc = include_str!("../docs/guides/rust.md")]
struct RustGuide;

/// Compiles and runs the README's example with the other documentation tests.
#[cfg(all(doctest, feature = "journal"))]
#[doc = include_str!("../README.md")]
struct Readme;
