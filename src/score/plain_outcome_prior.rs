//! A prior from the plain fetcher's outcomes on a site, for all other fetchers before they have
//! been tried there.
//!
//! A host may be open, protected by blocks, or filled by scripts. The outcomes of plain requests
//! show which: blocks mean protection, empty pages mean scripts, content means neither. The
//! evidence of the hints, from all other hosts, says how the other fetchers do after a block or an
//! empty page. So two captchas send the next URL straight to stealth, although the browser has
//! never failed on this host.
//!
//! Must not know: the level that the prior is applied to.

use super::estimate::{Candidates, Step, Trace, Walk};
use crate::evidence::{Entry, Group, Weights};
use fetchwise_types::attempt::Hint;
use fetchwise_types::registry::{Class, FetcherId, MAX_CANDIDATES};

/// Decayed failures below which the estimates do not change.
const MIN_FAILURES: f64 = 0.1;

impl Walk<'_> {
    /// Moves the estimates of all candidates but the plain one, given the plain one's outcomes
    /// under `entry` plus those of the group `also`. For a host with a known vendor, the estimates
    /// behind that vendor replace those after a block anywhere.
    pub(super) fn apply_plain_outcomes(
        &self,
        candidates: &mut Candidates<'_>,
        entry: Option<&Entry>,
        also: Option<Group>,
        is_blocking: bool,
        trace: &mut impl Trace,
    ) {
        let Some(entry) = entry.filter(|_| self.settings.plain_outcome_weight > 0.0) else {
            return;
        };
        let Some(plain) = candidates.iter().find(|c| c.spec.class == Class::Plain).map(|c| c.id)
        else {
            return;
        };
        // Requests without a signature show most of what those with one show, and the other way
        // round.
        let twin = self.twins.iter().find(|(signed, _)| *signed == plain).map(|(_, twin)| *twin);
        for plain in twin.into_iter().chain([plain]) {
            self.apply_outcomes_of(plain, candidates, (entry, also), is_blocking, trace);
        }
    }

    #[inline(always)]
    fn apply_outcomes_of(
        &self,
        plain: FetcherId,
        candidates: &mut Candidates<'_>,
        (entry, also): (&Entry, Option<Group>),
        is_blocking: bool,
        trace: &mut impl Trace,
    ) {
        let weight = self.settings.plain_outcome_weight;
        let turned_s = candidates.get(plain.index()).map_or(0, |c| c.turned_s);
        let mut outcomes = Weights::default();
        entry.each_weights(self.own, also, self.down, |id, weights| {
            if id == plain {
                outcomes = *weights;
            }
        });
        let failed = outcomes.alert_total - outcomes.alert_success;
        if failed < MIN_FAILURES || outcomes.newest_s < turned_s {
            return;
        }
        // Blocks are kept as exact weights only: their fraction of all failures is applied to the
        // failures of the alert pair.
        let share = outcomes.blocked / (outcomes.total - outcomes.success).max(f64::MIN_POSITIVE);
        let blocked = failed * share.clamp(0.0, 1.0);
        let empty = failed - blocked;
        let after_block = self.after(Hint::Blocked);
        let after_empty = self.after(Hint::Empty);
        let name = candidates.get(plain.index()).map_or("", |c| &*c.spec.name);
        for c in candidates.iter_mut().filter(|c| c.id != plain) {
            let chance = |(success, total): (f64, f64)| {
                (success + self.settings.level_weight * c.success)
                    / (total + self.settings.level_weight)
            };
            let past_block =
                if is_blocking { c.success } else { chance(after_block[c.id.index()]) };
            let there = past_block * blocked + chance(after_empty[c.id.index()]) * empty;
            let (success, total) =
                (outcomes.alert_success * c.success + there, outcomes.alert_success + failed);
            let before = c.success;
            c.success = (success + weight * before) / (total + weight);
            trace.step(Step {
                kind: "met_here",
                value: name,
                fetcher: c.id,
                success,
                total,
                exact_success: success,
                exact_total: total,
                blocked: 0.0,
                attempts: 0,
                estimate_before: before,
                estimate_after: c.success,
                signal: None,
            });
        }
    }

    /// Returns successes and attempts of each candidate after an attempt with this `hint`,
    /// pseudo-attempts included.
    fn after(&self, hint: Hint) -> [(f64, f64); MAX_CANDIDATES] {
        let mut sums = [(0.0, 0.0); MAX_CANDIDATES];
        for &(id, success, total) in self.priors.of_hint(hint, self.kind) {
            if let Some(sum) = sums.get_mut(id.index()) {
                *sum = (success, total);
            }
        }
        let of_priors = sums;
        let other = |id: FetcherId| {
            self.settings.level_weight + of_priors.get(id.index()).map_or(0.0, |sum| sum.1)
        };
        self.evidence.hint(hint).each_shared_weights(self.kind, self.down, other, |id, weights| {
            if let Some(sum) = sums.get_mut(id.index()) {
                *sum = (sum.0 + weights.success, sum.1 + weights.total);
            }
        });
        sums
    }
}
