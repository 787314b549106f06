//! What the plain fetcher met on a site tells of all other fetchers there, before any of them has been tried.
//!
//! A host belongs to a class: open, behind a wall, filled by scripts. Nobody knows it, but the plain fetcher's ends show it:
//! blocks mean a wall, empty pages mean scripts, content means neither. How the others do after each is known from everywhere
//! else (the hint cells), so two captchas send the next URL straight to stealth, although the browser has never failed here.
//! Must not know which level of the walk it is asked for.

use super::estimate::{Candidates, Step, Trace, Walk};
use crate::attempt::Hint;
use crate::evidence::{Entry, Group, Masses};
use crate::registry::{CANDIDATES_MAX, Class};

/// Fewer failures than this show nothing.
const FAILURES_MIN: f64 = 0.1;

impl Walk<'_> {
    /// Pulls all candidates but the plain one towards how they do where that one meets what it met under `entry`, its group
    /// `also` included.
    pub(super) fn pull_by_what_was_met(
        &self,
        candidates: &mut Candidates<'_>,
        entry: Option<&Entry>,
        also: Option<Group>,
        trace: &mut impl Trace,
    ) {
        let weight = self.settings.met_weight;
        let Some(entry) = entry.filter(|_| weight > 0.0) else { return };
        let Some(plain) = candidates.iter().find(|c| c.spec.class == Class::Plain).map(|c| c.id) else { return };
        let mut met = Masses::default();
        entry.each_masses(self.own, also, self.down, |id, masses| {
            if id == plain {
                met = *masses;
            }
        });
        let failed = met.alert_total - met.alert_success;
        if failed < FAILURES_MIN {
            return;
        }
        // Blocks are counted exactly, failures by the alert pair: of those that count now, the share that was blocked.
        let share = met.blocked / (met.total - met.success).max(f64::MIN_POSITIVE);
        let blocked = failed * share.clamp(0.0, 1.0);
        let empty = failed - blocked;
        let after_block = self.after(Hint::Blocked);
        let after_empty = self.after(Hint::Empty);
        let name = candidates.get(plain.index()).map_or("", |c| &*c.spec.name);
        for c in candidates.iter_mut().filter(|c| c.id != plain) {
            let chance = |(success, total): (f64, f64)| {
                (success + self.settings.level_weight * c.p) / (total + self.settings.level_weight)
            };
            let there = chance(after_block[c.id.index()]) * blocked + chance(after_empty[c.id.index()]) * empty;
            let (success, total) = (met.alert_success * c.p + there, met.alert_success + failed);
            let before = c.p;
            c.p = (success + weight * before) / (total + weight);
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
                p_before: before,
                p_after: c.p,
            });
        }
    }

    /// Successes and attempts of each candidate where the attempt before it ended as `hint` says, pseudo-attempts included.
    fn after(&self, hint: Hint) -> [(f64, f64); CANDIDATES_MAX] {
        let mut sums = [(0.0, 0.0); CANDIDATES_MAX];
        for &(id, success, total) in self.priors.of_hint(hint) {
            if let Some(sum) = sums.get_mut(id.index()) {
                *sum = (success, total);
            }
        }
        self.evidence.hint(hint).for_each(self.own, |id, cell| {
            if let Some(sum) = sums.get_mut(id.index()) {
                let masses = cell.read(self.down);
                *sum = (sum.0 + masses.success, sum.1 + masses.total);
            }
        });
        sums
    }
}
