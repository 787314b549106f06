//! `fleet`: the broker of a fleet, and the state of its nodes. `fetch`, `serve`, `import` and `forget` join one with
//! `--fleet`.
//!
//! `args` is the syntax, which every build has. With the feature `fleet`, `operate` has the commands, `join` is the
//! membership of a crawler or server, and `session` that of a command that only writes. Without it, `absent` says which
//! build has fleets.

mod args;

#[cfg(feature = "fleet")]
mod join;
#[cfg(feature = "fleet")]
mod membership;
#[cfg(feature = "fleet")]
mod operate;
#[cfg(feature = "fleet")]
mod outliers;
#[cfg(feature = "fleet")]
mod session;

#[cfg(not(feature = "fleet"))]
mod absent;

pub(crate) use args::{FleetArgs, FleetCommand};

#[cfg(feature = "fleet")]
pub(crate) use {
    join::{check, join},
    operate::{forget, forget_peer_evidence, run},
    session::{FleetSession, open_session},
};

#[cfg(not(feature = "fleet"))]
pub(crate) use absent::{FleetSession, check, forget, forget_peer_evidence, join, open_session, run};
