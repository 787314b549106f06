//! One file or folder per subcommand: its arguments, its work, and its results. `args` lists the
//! commands.
//!
//! A command of a feature has its syntax in every build. Without the feature it fails and names the
//! build that has it.
//!
//! Must not know: how the program starts and ends.

pub(crate) mod attempts;
pub(crate) mod ban_rate;
pub(crate) mod classify;
pub(crate) mod command_line;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod detect;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod fetch;
pub(crate) mod fetchers;
pub(crate) mod fleet;
pub(crate) mod hosts;
pub(crate) mod identity;
pub(crate) mod import;
pub(crate) mod importance;
pub(crate) mod lab;
pub(crate) mod links;
pub(crate) mod live_control;
pub(crate) mod maintenance;
pub(crate) mod priors;
pub(crate) mod query;
pub(crate) mod reload;
pub(crate) mod replay_policy;
pub(crate) mod rollout;
pub(crate) mod select;
pub(crate) mod serve;
pub(crate) mod stats;
pub(crate) mod try_url;
pub(crate) mod unpause;
