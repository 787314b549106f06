//! The JSON of hosts with a pause or a known pace, and of ended pauses.

use serde::Serialize;

use super::{PaceJson, TimeJson};
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::attempt::{Attempt, ErrorType};
use fetchwise::heuristic::{DEFAULT_PAGE, SAME_PAGE_OTHER_SITES};
use fetchwise::pace::PaceExplanation;
use fetchwise::selector::PausedHost;
use fetchwise::time::Timestamp;

/// A host.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Host"))]
pub struct HostJson<'a> {
    host: &'a str,
    paused_until: Option<TimeJson>,
    /// Seconds from now.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    paused_for_s: Option<f64>,
    /// The number of consecutive pauses; 0 if the pace decides.
    times_paused: Option<u8>,
    #[serde(flatten)]
    foreign: ForeignPages,
    pace: Option<PaceJson>,
}

/// Pages that came in place of a host's own, within the last 24 hours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForeignPages {
    /// Pages that this crawler's network refused.
    pub network_blocks: u64,
    /// Pages that other sites show as well.
    pub default_pages: u64,
}

impl ForeignPages {
    /// Returns what `attempt` adds.
    pub fn of(attempt: &Attempt) -> Self {
        let is_refused = attempt.error_type == Some(ErrorType::Known(ErrorKind::NetworkBlock));
        let is_default = attempt.heuristic(SAME_PAGE_OTHER_SITES) == Some(DEFAULT_PAGE);
        Self { network_blocks: is_refused.into(), default_pages: is_default.into() }
    }
}

impl<'a> HostJson<'a> {
    /// Creates the JSON of `host` at `now`.
    pub fn new(
        host: &'a str,
        paused: Option<&PausedHost>,
        pace: Option<&PaceExplanation>,
        foreign: ForeignPages,
        now: Timestamp,
    ) -> Self {
        Self {
            host,
            paused_until: paused.map(|of| TimeJson::of_process(of.paused_until)),
            paused_for_s: paused.map(|of| of.paused_until.since(now).as_secs_f64()),
            times_paused: paused.map(|of| of.times),
            foreign,
            pace: pace.map(PaceJson::from),
        }
    }
}

/// The result of ending a pause.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Unpaused"))]
pub struct UnpausedJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    host: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    link: Option<&'a str>,
    /// Whether a pause was active.
    unpaused: bool,
    /// The end that the pause would have had.
    #[cfg_attr(feature = "schema", schemars(with = "Option<TimeJson>"))]
    was_paused_until: Option<String>,
}

impl<'a> UnpausedJson<'a> {
    /// Creates the result for a host or a link. `was_paused_until` is RFC 3339.
    pub fn new(
        host: Option<&'a str>,
        link: Option<&'a str>,
        unpaused: bool,
        was_paused_until: Option<String>,
    ) -> Self {
        Self { host, link, unpaused, was_paused_until }
    }
}
