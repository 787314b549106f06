//! What a host's answers showed says who gets past it: hosts that showed the same vendor or framework are alike, some more than
//! others.
//!
//! Owns the level between the general evidence and a host's own. Each tag moves the estimate of every candidate towards how it does
//! on other hosts that had shown the tag: the framework, then all walls, then the vendor, so that the one that tells most has the last
//! word. Must not know how a host came by its tags.

use super::estimate::{Candidates, Step, Trace, Walk};
use crate::evidence::{Row, TagId};
use crate::score::host_signal_lookup::ShownHere;
use fetchwise_types::heuristic::HOST_SHOWED;

/// All walls count for so many times as many attempts before they move an estimate as one vendor does.
const CATEGORY_WEIGHS: f64 = 2.0;

impl Walk<'_> {
    /// Moves the estimates of all candidates towards how they do on other hosts that showed the same, and notes how much that counts
    /// against this host's own evidence.
    pub(super) fn pull_by_what_was_shown(
        &self,
        candidates: &mut Candidates<'_>,
        here: &ShownHere<'_>,
        trace: &mut impl Trace,
    ) {
        let weight = self.settings.host_signal_weight;
        if let Some((id, row)) = here.served {
            self.pull_by_row(candidates, row, weight, Some(id), false, trace);
        }
        if let Some(row) = here.walled {
            self.pull_by_row(candidates, row, weight * CATEGORY_WEIGHS, None, false, trace);
        }
        if let Some((id, row)) = here.vendor {
            self.pull_by_row(candidates, row, weight, Some(id), true, trace);
        }
    }

    #[inline]
    fn pull_by_row(
        &self,
        candidates: &mut Candidates<'_>,
        row: &Row,
        weight: f64,
        tag: Option<TagId>,
        is_vendor: bool,
        trace: &mut impl Trace,
    ) {
        for c in candidates.iter_mut() {
            let Some(cell) = row.cell(c.id, self.kind) else { continue };
            if is_vendor {
                (c.host_weight, c.turned_s) = (cell.weight(), cell.turned_s());
            }
            let (success, total) = cell.pair(self.down);
            if total <= 0.0 {
                continue;
            }
            let before = c.success;
            c.success = (success + weight * before) / (total + weight);
            trace.step(Step {
                kind: HOST_SHOWED,
                value: "",
                fetcher: c.id,
                success,
                total,
                exact_success: success,
                exact_total: total,
                blocked: 0.0,
                attempts: 0,
                estimate_before: before,
                estimate_after: c.success,
                tag,
            });
        }
    }
}
