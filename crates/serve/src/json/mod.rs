//! The JSON for programs: one type per kind of result, shared by the commands' `--json` and HTTP.
//!
//! Owns: the names of fields.
//!
//! Invariant: releases only add fields.
//!
//! Must not know: who requests a result, where it goes.

mod ban_rate;
mod dashboard;
mod decision;
mod explanation;
mod fleet;
mod hosts;
mod pace;
mod pause;
mod paused_links;
mod problem;
mod stats;
mod verdict;

pub use ban_rate::BanRateJson;
pub(crate) use dashboard::{
    AttentionItem, AttentionJson, BoardJson, BusyJson, DomainBoardJson, DomainJson, DomainsJson, FetcherJson, LogJson,
    SeriesJson,
};
pub use decision::{DecisionJson, Unavailable};
pub use explanation::{ExplainInput, ExplanationJson, own_total};
pub use fleet::{FleetJson, SharedHostsJson};
pub use hosts::{HostJson, UnpausedJson};
pub use pace::PaceJson;
pub use pause::{PauseCause, PauseJson};
pub use paused_links::{ForgetReportJson, LinkJson};
pub(crate) use problem::ProblemDetails;
pub use problem::ProblemJson;
pub use stats::StatsJson;
pub use verdict::{CueJson, CuesJson, HeuristicJson, MatchJson, VerdictJson, headers};
