//! The result of one URL: its value, its cost, and its attempts.

use super::world::World;
use crate::environment::{End, Outcome, Tool};
use fetchwise::decision::Source;

/// The result of one URL.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct VisitResult {
    pub(crate) utility: f64,
    pub(crate) cost: f64,
    pub(crate) attempts: u32,
    pub(crate) blocked: u32,
    pub(crate) bans: u32,
    pub(crate) success: bool,
    pub(crate) deceived: bool,
    /// The first attempt's fetcher and label.
    pub(crate) first: Option<(usize, Source)>,
}

impl VisitResult {
    /// Adds one try. Returns true when the URL has ended.
    pub(crate) fn add(&mut self, world: &World, tool: &Tool, outcome: &Outcome) -> bool {
        self.attempts += 1;
        self.cost += tool.cost;
        self.utility -= tool.cost;
        if outcome.banned_now {
            self.bans += 1;
            self.utility -= world.ban_cost;
        }
        match outcome.end {
            End::Content => {
                self.success = true;
                self.utility += tool.quality * world.value;
            }
            End::False => {
                self.deceived = true;
                self.utility -= world.false_success_cost;
            }
            End::Blocked => {
                self.blocked += 1;
                self.utility -= world.blocked_cost;
            }
            End::Empty | End::Timeout | End::NotFound => {}
        }
        matches!(outcome.end, End::Content | End::False | End::NotFound)
    }
}
