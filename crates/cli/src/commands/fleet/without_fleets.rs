//! A build without fleets: options and commands that name a fleet fail, and all others work without
//! one.
//!
//! Invariants: the signatures are those of `join`, `operator_commands` and `session`. A configured
//! fleet is never ignored.

use std::path::Path;
use std::sync::Arc;

use fetchwise::journal::{Journal, Tombstone};
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;
use fetchwise_serve::Membership;

use super::args::{FleetArgs, FleetCommand};
use crate::setup::peer_attempt_counts;
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::Output;

/// The membership in a fleet, which this build cannot have.
pub(crate) enum FleetMembership {}

impl FleetMembership {
    pub(crate) fn membership(&self) -> Arc<dyn Membership> {
        match *self {}
    }

    pub(crate) fn forgot(&self) -> u64 {
        match *self {}
    }

    #[allow(clippy::unused_async, reason = "the signature is the same as with the feature fleet")]
    pub(crate) async fn end(self) {
        match self {}
    }
}

/// A short membership, which this build cannot have.
pub(crate) enum FleetSession {}

impl FleetSession {
    pub(crate) fn end(self) -> bool {
        match self {}
    }
}

/// Fails: the command needs the feature.
pub(crate) fn run(_: &FleetCommand, _: &Settings, _: &mut Output) -> Result<Exit, Failure> {
    Err(Failure::missing_feature("the command fleet", "fleet"))
}

/// Fails if the settings name a fleet: crawling alone would learn something else than they ask for.
pub(crate) fn check(settings: &Settings, args: &FleetArgs) -> Result<(), Failure> {
    match (&args.brokers[..], &settings.config.fleet.url[..]) {
        ([], []) => Ok(()),
        ([_, ..], _) => Err(Failure::missing_feature("--fleet", "fleet")),
        ([], _) => Err(Failure::missing_feature("fleet.url in the config", "fleet")),
    }
}

/// Returns none, unless the settings name a fleet.
#[allow(clippy::unused_async, reason = "the signature is the same as with the feature fleet")]
pub(crate) async fn join(
    settings: &Settings,
    args: &FleetArgs,
    _: &Arc<Journal>,
    _: &Arc<Selector>,
    _: Option<&str>,
) -> Result<Option<FleetMembership>, Failure> {
    check(settings, args).map(|()| None)
}

/// Returns none, unless the settings name a fleet.
pub(crate) fn open_session(
    settings: &Settings,
    args: &FleetArgs,
    _: &Arc<Journal>,
) -> Result<Option<FleetSession>, Failure> {
    check(settings, args).map(|()| None)
}

/// Returns false, unless the settings name a fleet.
pub(crate) fn forget(
    settings: &Settings,
    args: &FleetArgs,
    _: &str,
    _: Timestamp,
) -> Result<bool, Failure> {
    check(settings, args).map(|()| false)
}

/// Returns none. Warns if peers have sent attempts, which stay.
#[allow(clippy::unnecessary_wraps, reason = "the signature is the same as with the feature fleet")]
pub(crate) fn forget_peer_evidence(
    dir: &Path,
    _: &str,
    _: Timestamp,
    _: impl FnOnce(&Tombstone) -> Result<(), Failure>,
) -> Result<Option<(u64, u64)>, Failure> {
    peer_attempt_counts::warn_if_ignored(dir);
    Ok(None)
}
