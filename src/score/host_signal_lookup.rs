//! The signal rows of one host that a decision reads.
//!
//! Invariants: two look-ups in arrays, and no allocation.
//!
//! Must not know: the use of the rows.

use super::Scored;
use super::priors::Priors;
use crate::evidence::{HostSignals, ShownSignals, SignalId, SignalRow, SignalSide};
use fetchwise_types::heuristic::url::ContentKind;

/// Attempts on hosts of a vendor below which no visit gives up there: the estimates of fetchers
/// then rest mostly on all blocks.
const MIN_VENDOR_ATTEMPTS: f64 = 20.0;

/// The signal rows of one host.
#[derive(Clone, Copy, Default)]
pub(crate) struct HostSignalLookup<'t> {
    pub(super) served: Option<(SignalId, &'t SignalRow)>,
    pub(super) all_blocks: Option<&'t SignalRow>,
    /// `None` if the host is known to block, but not by which vendor.
    pub(super) vendor: Option<(SignalId, &'t SignalRow)>,
}

impl<'t> HostSignalLookup<'t> {
    /// Returns the rows of a host's signals.
    #[inline]
    pub(crate) fn find(signals: &'t HostSignals, known: ShownSignals) -> Self {
        let [blocked, served] = known;
        let of =
            |slot: Option<(SignalId, u16)>| slot.and_then(|(id, _)| Some((id, signals.row(id)?)));
        let (blocked, served) = (of(blocked), of(served));
        Self {
            served,
            all_blocks: blocked.and_then(|_| signals.category(SignalSide::Blocked)),
            vendor: blocked.filter(|(id, _)| !HostSignals::is_category(*id)),
        }
    }

    /// Returns whether the host blocks.
    #[inline]
    pub(crate) fn is_blocking(&self) -> bool {
        self.all_blocks.is_some()
    }

    /// Returns whether `candidates` made enough attempts behind the vendor on other hosts,
    /// pseudo-attempts included, to tell which of them succeed.
    #[inline]
    pub(crate) fn has_vendor_evidence(
        &self,
        candidates: &[Scored<'_>],
        kind: ContentKind,
        down: f64,
        priors: &Priors,
    ) -> bool {
        let Some((_, row)) = self.vendor else { return false };
        let known = priors.of_signal(row.key(), kind);
        let pseudo = |id| known.iter().find(|prior| prior.0 == id).map_or(0.0, |prior| prior.2);
        let of = |id| row.cell(id, kind).map_or(0.0, |cell| cell.pair(down).1) + pseudo(id);
        candidates.iter().map(|c| of(c.id)).sum::<f64>() >= MIN_VENDOR_ATTEMPTS
    }
}
