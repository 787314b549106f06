//! The signal rows of one host that a decision reads.
//!
//! Invariants: two look-ups in arrays, and no allocation.
//!
//! Must not know: the use of the rows.

use super::Scored;
use crate::evidence::{Known, Row, Side, TagId, Tags};
use fetchwise_types::heuristic::url::ContentKind;

/// Attempts on hosts of a vendor below which no visit gives up there: the estimates of fetchers then rest mostly on all
/// blocks.
const ATTEMPTS_TO_GIVE_UP: f64 = 20.0;

/// The signal rows of one host.
#[derive(Clone, Copy, Default)]
pub(crate) struct ShownHere<'t> {
    pub(super) served: Option<(TagId, &'t Row)>,
    pub(super) walled: Option<&'t Row>,
    /// `None` if the host is known to block, but not by which vendor.
    pub(super) vendor: Option<(TagId, &'t Row)>,
}

impl<'t> ShownHere<'t> {
    /// Returns the rows of a host's signals.
    #[inline]
    pub(crate) fn find(tags: &'t Tags, known: Known) -> Self {
        let [blocked, served] = known;
        let of = |slot: Option<(TagId, u16)>| slot.and_then(|(id, _)| Some((id, tags.row(id)?)));
        let (blocked, served) = (of(blocked), of(served));
        Self {
            served,
            walled: blocked.and_then(|_| tags.category(Side::Blocked)),
            vendor: blocked.filter(|(id, _)| !Tags::is_category(*id)),
        }
    }

    /// Returns whether the host blocks.
    #[inline]
    pub(crate) fn is_walled(&self) -> bool {
        self.walled.is_some()
    }

    /// Returns whether `candidates` made enough attempts behind the vendor on other hosts to tell which of them
    /// succeed.
    #[inline]
    pub(crate) fn knows_the_vendor(&self, candidates: &[Scored<'_>], kind: ContentKind, down: f64) -> bool {
        let Some((_, row)) = self.vendor else { return false };
        let of = |id| row.cell(id, kind).map_or(0.0, |cell| cell.pair(down).1);
        candidates.iter().map(|c| of(c.id)).sum::<f64>() >= ATTEMPTS_TO_GIVE_UP
    }
}
