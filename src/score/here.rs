//! The tags of one host, looked up: which rows of evidence a decision reads for them.
//!
//! Invariant: two look-ups in arrays, and nothing is allocated. Must not know what the rows are read for.

use crate::evidence::{Known, Row, Side, TagId, Tags};

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

    /// Whose wall it is, if that is known.
    #[inline]
    pub(crate) fn vendor(&self) -> Option<TagId> {
        self.vendor.map(|(id, _)| id)
    }
}
