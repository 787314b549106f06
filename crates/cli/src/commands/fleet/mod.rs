//! `fleet`: the broker of a fleet, and the state of its nodes. `fetch`, `serve`, `import` and
//! `forget` join one with `--fleet`.
//!
//! `args` is the syntax, which every build has. With the feature `fleet`, `operator_commands` has
//! the commands, `join` is the membership of a crawler or server, and `session` that of a command
//! that only writes. Without it, `without_fleets` says which build has fleets.

mod args;

#[cfg(feature = "fleet")]
mod enqueue;
#[cfg(feature = "fleet")]
mod join;
#[cfg(feature = "fleet")]
mod membership;
#[cfg(feature = "fleet")]
mod operator_commands;
#[cfg(feature = "fleet")]
mod outliers;
#[cfg(feature = "fleet")]
mod session;
#[cfg(feature = "fleet")]
mod work_queue;

#[cfg(not(feature = "fleet"))]
mod without_fleets;

pub(crate) use args::{FleetArgs, FleetCommand};

#[cfg(feature = "fleet")]
pub(crate) use {
    join::{check, join},
    operator_commands::{forget, forget_peer_evidence, run},
    session::{FleetSession, open_session},
};

#[cfg(not(feature = "fleet"))]
pub(crate) use without_fleets::{
    FleetSession, check, forget, forget_peer_evidence, join, open_session, run,
};
