//! The estimate level of host signals: hosts that showed the same vendor or framework are alike, to
//! a degree that is measured.
//!
//! Owns: the level between the general evidence and a host's own. Each signal moves the estimate of
//! every candidate towards its success rate on other hosts that had shown the signal: the
//! framework, then all blocks, then the vendor, so that the most informative one comes last.
//!
//! Must not know: how a host got its signals.

use super::estimate::{Candidates, Step, Trace, Walk};
use crate::evidence::{SignalId, SignalRow};
use crate::score::host_signal_lookup::HostSignalLookup;
use fetchwise_types::heuristic::HOST_SHOWED;

/// Factor of the weight of an estimate against the evidence of all blocks, compared with that of
/// one vendor.
const CATEGORY_WEIGHT_FACTOR: f64 = 2.0;

/// How the evidence of a signal counts.
#[derive(Clone, Copy)]
struct SignalUse<'r> {
    /// The weight of the estimate before.
    weight: f64,
    /// The signal that a trace names.
    signal: Option<SignalId>,
    /// The vendor at which a registration makes older evidence void.
    vendor: Option<&'r SignalRow>,
    /// Whether the signal is that of the vendor itself.
    is_vendor: bool,
}

impl Walk<'_> {
    /// Moves the estimates of all candidates towards their success rates on other hosts that showed
    /// the same signals. Stores the weight of that evidence against this host's own.
    pub(super) fn apply_host_signals(
        &self,
        candidates: &mut Candidates<'_>,
        here: &HostSignalLookup<'_>,
        trace: &mut impl Trace,
    ) {
        let weight = self.settings.host_signal_weight;
        if let Some((id, row)) = here.served {
            self.apply_signal_row(
                candidates,
                row,
                SignalUse { weight, signal: Some(id), vendor: None, is_vendor: false },
                trace,
            );
        }
        // Evidence of before the registration at the vendor says nothing about signed requests
        // since.
        let registered = here.vendor.map(|(_, row)| row);
        if let Some(row) = here.all_blocks {
            let weight = weight * CATEGORY_WEIGHT_FACTOR;
            let all = SignalUse { weight, signal: None, vendor: registered, is_vendor: false };
            self.apply_signal_row(candidates, row, all, trace);
        }
        if let Some((id, row)) = here.vendor {
            let of_vendor =
                SignalUse { weight, signal: Some(id), vendor: Some(row), is_vendor: true };
            self.apply_signal_row(candidates, row, of_vendor, trace);
        }
    }

    #[inline]
    fn apply_signal_row(
        &self,
        candidates: &mut Candidates<'_>,
        row: &SignalRow,
        SignalUse { weight, signal, vendor, is_vendor }: SignalUse<'_>,
        trace: &mut impl Trace,
    ) {
        let priors = self.priors.of_signal(row.key(), self.kind);
        let vendor = vendor.filter(|_| self.evidence.signals().has_registrations());
        for c in candidates.iter_mut() {
            let Some(cell) = row.cell(c.id, self.kind) else { continue };
            let valid_from_s =
                vendor.map_or(0, |vendor| self.evidence.signals().valid_from_s(vendor, c.id));
            if valid_from_s > cell.turned_s() || valid_from_s > 0 && !is_vendor {
                c.turned_s = c.turned_s.max(valid_from_s);
                continue;
            }
            if is_vendor {
                (c.host_weight, c.turned_s) = (cell.weight(), cell.turned_s());
            }
            let (mut success, mut total) = cell.pair(self.down);
            if let Some((_, more, of)) = priors.iter().find(|prior| prior.0 == c.id) {
                (success, total) = (success + more, total + of);
            }
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
                signal,
            });
        }
    }
}
