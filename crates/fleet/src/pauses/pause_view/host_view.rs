//! What a node knows of one paused host, and what it does when that changes.
//!
//! Owns: the statements about the host, and the local pauses that were set because of them.
//!
//! Invariants: a local pause is lifted only while a statement of the fleet is its reason.
//!
//! Must not know: which nodes are believed, and other hosts.

use fetchwise::time::Timestamp;

use crate::pauses::state_machine::{HostStatements, Statement};

#[derive(Debug, Default)]
pub(super) struct HostView {
    pub(super) seen: HostStatements,
    /// The newest statement about the host that was applied.
    pub(super) newest: u64,
    pub(super) ours: FleetPauses,
    /// The end of the pause that this node's own attempts have set.
    pub(super) own_until: Option<Timestamp>,
    /// Whether an operator of this node has lifted what the fleet says.
    pub(super) is_waived: bool,
    /// Whether a claim is in progress.
    pub(super) is_claiming: bool,
    /// The time and outcome of the last failed claim.
    pub(super) failed: Option<(Timestamp, ClaimOutcome)>,
    /// Whether the host was tried without the broker.
    pub(super) is_tried: bool,
}

/// The local pauses of a host that were set because of the fleet only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FleetPauses {
    /// The pause that the statements of others set.
    pub(super) applied: Option<Timestamp>,
    /// The time until which the host is held because of a claim without a response.
    pub(super) held: Option<Timestamp>,
}

/// The local action that follows from a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LocalAction {
    Nothing,
    /// Pause the host until then, or longer if it is paused for another reason; with this level.
    Pause {
        until: Timestamp,
        ours: FleetPauses,
        level: u8,
    },
    /// Lift the pause if the fleet is still its reason; an own pause until then stays.
    Lift {
        ours: FleetPauses,
        own_until: Option<Timestamp>,
    },
    /// Let this node try the host, if it is still held; its pause was over at that time.
    Try {
        held: Timestamp,
        over: Timestamp,
    },
}

/// The outcome of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimOutcome {
    /// The current statements are known.
    Known,
    /// No broker responded.
    Unanswered,
    /// The claim of this node is rejected, because it made too many.
    Rejected,
}

impl FleetPauses {
    /// Returns whether a pause is one of them.
    pub(crate) fn has(&self, pause: Timestamp) -> bool {
        self.applied == Some(pause) || self.held == Some(pause)
    }
}

impl HostView {
    /// Returns the end of what this node has to respect: everything but its own process's
    /// statements.
    pub(super) fn hold(&self, now: Timestamp) -> Option<Timestamp> {
        let others = self.seen.all().iter().filter(|statement| !statement.is_ours);
        others.map(Statement::end).max().filter(|end| *end > now)
    }

    /// Returns what follows locally after the statements have changed; they had ended at `over`
    /// before.
    pub(super) fn settle(&mut self, over: Option<Timestamp>, now: Timestamp) -> LocalAction {
        let ours = self.ours;
        match (self.hold(now), ours.held, over) {
            (Some(end), None, _) if ours.applied == Some(end) => LocalAction::Nothing,
            (Some(end), ..) => {
                self.ours = FleetPauses { applied: Some(end), held: None };
                LocalAction::Pause {
                    until: end.max(self.own_until.unwrap_or(end)),
                    ours,
                    level: self.seen.level(),
                }
            }
            // The claim had arrived, but its response was lost.
            (None, Some(held), Some(over)) if self.seen.is_tried_here(now) => {
                LocalAction::Try { held, over }
            }
            // What held it was taken back before its end.
            (None, ..)
                if ours.applied.is_some_and(|applied| applied > now)
                    && !self.seen.is_tried_here(now) =>
            {
                self.ours.applied = None;
                LocalAction::Lift { ours, own_until: self.own_until.filter(|until| *until > now) }
            }
            _ => LocalAction::Nothing,
        }
    }
}
