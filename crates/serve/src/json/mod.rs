//! The JSON that programs read: one shape for each kind of result, the same from a command with `--json` and over HTTP.
//!
//! Owns the names of fields, which are a contract: they are only ever added. Must not know who asks nor where answers go.

mod ban_rate;
mod dashboard;
mod decision;
mod explanation;
mod fleet;
mod hosts;
mod links;
mod pace;
mod problem;
mod stats;
mod verdict;

pub use ban_rate::BanRateJson;
pub(crate) use dashboard::{BoardJson, BusyJson, DomainJson, DomainsJson, FetcherJson, LogJson, SeriesJson};
pub use decision::{DecisionJson, Unavailable};
pub use explanation::{Asked, ExplanationJson, own_total, rule_text};
pub use fleet::{FleetCountsJson, FleetJson, NodeJson, SharedHostsJson};
pub use hosts::{HostJson, UnpausedJson};
pub use links::{ForgotJson, LinkJson};
pub use pace::PaceJson;
pub use problem::ProblemJson;
pub use stats::StatsJson;
pub use verdict::{CueJson, CuesJson, HeuristicJson, MatchJson, VerdictJson, headers};
