//! The results of fetchwise as JSON for programs, one type per kind of result, and parts of them in
//! words for people. The commands' `--json`, HTTP, Python and Node share them.
//!
//! Owns: the names of fields.
//!
//! Invariant: releases only add fields.
//!
//! Must not know: who requests a result, where it goes, HTTP, the command line and terminals.

mod ban_rate;
mod decision;
mod explanation;
mod explanation_html;
pub mod explanation_text;
mod fleet;
mod heuristic;
mod hosts;
mod importance;
mod pace;
mod pause;
mod paused_links;
mod problem;
#[cfg(feature = "pipeline")]
mod report;
mod stats;
mod time;
mod verdict;
mod visit_end;

pub use ban_rate::BanRateJson;
pub use decision::{DecisionJson, Unavailable};
pub use explanation::{ExplainInput, ExplanationJson, own_total};
pub use explanation_html::explanation_html;
pub use fleet::{FleetJson, SharedHostsJson};
pub use heuristic::HeuristicJson;
pub use hosts::{ForeignPages, HostJson, UnpausedJson};
pub use importance::ImportanceJson;
pub use pace::PaceJson;
pub use pause::{PauseCause, PauseJson};
pub use paused_links::{ForgetReportJson, LinkJson};
pub use problem::ProblemJson;
#[cfg(feature = "pipeline")]
pub use report::{InputPlace, ReportJson, shown_url};
pub use stats::StatsJson;
pub use time::TimeJson;
pub use verdict::{CueJson, CuesJson, MatchJson, VerdictJson, headers};
pub use visit_end::VisitEndJson;
