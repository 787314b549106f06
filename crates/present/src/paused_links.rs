//! The JSON of links at risk, and of what was forgotten.

use serde::Serialize;

use super::TimeJson;
use fetchwise::journal::TombstoneTarget;
use fetchwise::journal::maintenance::ForgetReport;
use fetchwise::selector::LinkAtRisk;
use fetchwise::time::Timestamp;

/// A link.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Link"))]
pub struct LinkJson<'a> {
    link: &'a str,
    domain: Option<&'a str>,
    /// The end of its pause; null if it is not paused.
    paused_until: Option<TimeJson>,
    /// Seconds from now.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    paused_for_s: Option<f64>,
    risk_level: u8,
    attempts: u32,
    last_attempt_at: Option<TimeJson>,
    reason: &'static str,
    /// The end of its host's pause, which also applies to the link.
    host_paused_until: Option<TimeJson>,
}

impl<'a> LinkJson<'a> {
    /// Creates the JSON of a link at `now`, with the pause of its host, if any.
    pub fn new(of: &'a LinkAtRisk, host_pause: Option<Timestamp>, now: Timestamp) -> Self {
        let paused_until = of.state.pause_at(now);
        Self {
            link: &of.link,
            domain: of.domain.as_deref(),
            paused_until: paused_until.map(TimeJson::of_process),
            paused_for_s: paused_until.map(|until| until.since(now).as_secs_f64()),
            risk_level: of.state.risk_level,
            attempts: of.state.attempt_count,
            last_attempt_at: of.state.last_attempt_at.map(TimeJson::of_process),
            reason: of.reason().name(),
            host_paused_until: host_pause.map(TimeJson::of_process),
        }
    }
}

/// The result of forgetting a domain or a link.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "ForgetReport"))]
pub struct ForgetReportJson<'a> {
    domain: Option<&'a str>,
    link: Option<&'a str>,
    attempts: u64,
    states: u64,
    in_snapshot: bool,
    /// Whether the other nodes were notified; only for a domain in a fleet.
    fleet_notified: bool,
    /// The number of attempts removed from the directory's `peers/`, and of nodes whose older
    /// evidence of the domain was removed; only if the directory has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "u64"))]
    peer_attempts: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "u64"))]
    peer_snapshot_nodes: Option<u64>,
}

impl<'a> ForgetReportJson<'a> {
    /// Creates the result for `target`; `fleet_notified` says whether the other nodes were
    /// notified.
    pub fn new(target: &'a TombstoneTarget, forgot: &ForgetReport, fleet_notified: bool) -> Self {
        let (domain, link) = match target {
            TombstoneTarget::Domain(domain) => (Some(domain.as_str()), None),
            TombstoneTarget::Link(link) => (None, Some(link.as_str())),
        };
        let ForgetReport { attempts, states, in_snapshot, .. } = *forgot;
        let (peer_attempts, peer_snapshot_nodes) = (None, None);
        Self {
            domain,
            link,
            attempts,
            states,
            in_snapshot,
            fleet_notified,
            peer_attempts,
            peer_snapshot_nodes,
        }
    }

    /// Adds what was received from peers: single attempts, and nodes whose records were present as
    /// evidence only.
    #[must_use]
    pub fn with_peers(self, attempts: u64, nodes: u64) -> Self {
        Self { peer_attempts: Some(attempts), peer_snapshot_nodes: Some(nodes), ..self }
    }
}
