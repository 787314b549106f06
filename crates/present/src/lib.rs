//! The results of fetchwise as JSON for programs: one type per kind of result, which the commands' `--json`, HTTP, Python and Node share.
//!
//! Owns: the names of fields.
//!
//! Invariant: releases only add fields.
//!
//! Must not know: who requests a result, where it goes, HTTP, the command line and terminals.

mod ban_rate;
mod decision;
mod explanation;
mod fleet;
mod hosts;
mod importance;
mod pace;
mod pause;
mod paused_links;
mod problem;
mod stats;
mod verdict;

pub use ban_rate::BanRateJson;
pub use decision::{DecisionJson, Unavailable};
pub use explanation::{ExplainInput, ExplanationJson, own_total};
pub use fleet::{FleetJson, SharedHostsJson};
pub use hosts::{HostJson, UnpausedJson};
pub use importance::ImportanceJson;
pub use pace::PaceJson;
pub use pause::{PauseCause, PauseJson};
pub use paused_links::{ForgetReportJson, LinkJson};
pub use problem::ProblemJson;
pub use stats::StatsJson;
pub use verdict::{CueJson, CuesJson, HeuristicJson, MatchJson, VerdictJson, headers};
