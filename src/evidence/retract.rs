//! Retraction: evidence of an attempt is subtracted, or a domain is cleared.
//!
//! Must not know: why evidence is retracted.

use super::{CellRole, Observation, domain_of};
use super::{Evidence, Key};
use crate::evidence::daily_block_counts::Day;
use fetchwise_types::registry::Registry;

impl Evidence {
    /// Subtracts what evidence learned from `attempt`. `with_domain` says whether its domain's
    /// entry still contains it.
    pub(crate) fn retract(
        &self,
        attempt: &impl Observation,
        registry: &Registry,
        with_domain: bool,
    ) {
        let facts = attempt.fields();
        if let Some((domain, day)) =
            domain_of(attempt).zip(Day::of(facts.at, facts.is_banned)).filter(|_| with_domain)
            && let Some(entry) = self.entry_to_change(Key::domain(domain), &self.guard())
        {
            entry.days().subtract(day);
        }
        let Some(change) = self.change_by(attempt, registry) else { return };
        let wants = |role| {
            with_domain || !matches!(role, CellRole::Domain | CellRole::Path | CellRole::Suffix)
        };
        self.each_cell_of(self, attempt, &change, wants, |_, cell, role| {
            cell.subtract(change.up, &change.what, role.is_recent());
            true
        });
        Self::each_proof(attempt, registry, &change, |proof| {
            self.each_cell_of(
                self,
                attempt,
                proof,
                |role| role == CellRole::Plain,
                |_, cell, _| {
                    cell.subtract(proof.up, &proof.what, false);
                    true
                },
            );
        });
        if let Some(credit) = Self::credited(attempt, registry, &change) {
            let wants = |role: CellRole| role.is_credited() && wants(role);
            self.each_cell_of(self, attempt, &credit, wants, |_, cell, role| {
                cell.subtract_credit(credit.up, role.is_recent());
                true
            });
        }
    }

    /// Clears a domain: its cells, its paths and suffixes, its pause. Evidence about other domains
    /// of the site of that name stays.
    pub(crate) fn forget_domain(&self, domain: &str) {
        if let Some(entry) = self.entry_to_change(Key::domain(domain), &self.guard()) {
            entry.forget_domain();
        }
    }
}
