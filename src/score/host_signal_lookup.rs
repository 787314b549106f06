//! The tags of one host, looked up: which rows of evidence a decision reads for them.
//!
//! Invariant: two look-ups in arrays, and nothing is allocated. Must not know what the rows are read for.

use super::Scored;
use crate::evidence::{Known, Row, Side, TagId, Tags};
use fetchwise_types::heuristic::url::ContentKind;

/// Before so many attempts on hosts of a vendor, nobody is given up there: what is thought of fetchers is mostly what is thought of
/// all walls.
const ATTEMPTS_TO_GIVE_UP: f64 = 20.0;

/// The tags of one host, looked up.
#[derive(Clone, Copy, Default)]
pub(crate) struct ShownHere<'t> {
    pub(super) served: Option<(TagId, &'t Row)>,
    pub(super) walled: Option<&'t Row>,
    /// None where all that is known is that there is a wall.
    pub(super) vendor: Option<(TagId, &'t Row)>,
}

impl<'t> ShownHere<'t> {
    /// The rows of what is known of a host.
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

    /// Whether the host has a wall.
    #[inline]
    pub(crate) fn is_walled(&self) -> bool {
        self.walled.is_some()
    }

    /// Whether so much is known of the vendor, by `candidates` behind it on other hosts, that it can be said who gets past it.
    #[inline]
    pub(crate) fn knows_the_vendor(&self, candidates: &[Scored<'_>], kind: ContentKind, down: f64) -> bool {
        let Some((_, row)) = self.vendor else { return false };
        let of = |id| row.cell(id, kind).map_or(0.0, |cell| cell.pair(down).1);
        candidates.iter().map(|c| of(c.id)).sum::<f64>() >= ATTEMPTS_TO_GIVE_UP
    }
}
