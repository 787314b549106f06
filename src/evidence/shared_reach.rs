//! Where an attempt counts at the levels that all sites share, as its tags say.
//!
//! Invariants: the reach depends on the attempt alone, so that every process and every replay finds
//! the same.
//!
//! Must not know: how the tags come about.

use super::entry::{Group, Level};
use super::observation::Observation;
use fetchwise_types::heuristic::url::ContentKind;
use fetchwise_types::heuristic::{SITE_SATURATED, SITE_UNPROVEN};

/// Where an attempt counts at the levels that all sites share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SharedReach {
    /// With all others.
    Full,
    /// Among the failures of unproven sites.
    Unproven,
    /// Among the failures of unproven sites that are proven by now.
    ProvenLater,
    /// Nowhere but in the number of all attempts: its site has used up its quota.
    None,
}

impl SharedReach {
    /// Returns the reach of an attempt by its tags.
    pub(super) fn of(attempt: &impl Observation) -> Self {
        let mut reach = Self::Full;
        attempt.each_heuristic(&mut |kind, _| match kind {
            // Nearly all heuristics are others.
            _ if !kind.starts_with("site_") => {}
            SITE_SATURATED => reach = Self::None,
            SITE_UNPROVEN if reach == Self::Full => reach = Self::Unproven,
            _ => {}
        });
        reach
    }

    /// Returns the group of an attempt's cells at the shared levels; `None` if it has none there.
    pub(super) fn group(self, kind: ContentKind) -> Option<Group> {
        match self {
            Self::Full => Some(Group::new(Level::Own, kind, 0)),
            Self::Unproven => Some(Group::unproven(kind)),
            Self::ProvenLater => Some(Group::proven_later(kind)),
            Self::None => None,
        }
    }
}
