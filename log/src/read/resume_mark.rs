//! How far a pass has come, for one who comes back for what was written since.
//!
//! Invariant: a mark is believed in the very segment that it was made in, and nowhere else. Must not know what records say.

use super::scan::Reached;
use crate::format::SegmentHeader;

/// How far a pass has come: [`Reader::segment_for_each_marked`](crate::Reader::segment_for_each_marked).
#[derive(Clone, Debug, Default)]
pub struct Mark {
    at: Option<(SegmentHeader, Reached)>,
}

impl Mark {
    /// Where to begin in the segment with this header to see the record `seq`; none for its beginning.
    pub(crate) fn before(&self, header: &SegmentHeader, seq: u64) -> Option<Reached> {
        self.at.as_ref().filter(|(of, reached)| of == header && reached.next_seq <= seq).map(|(_, reached)| *reached)
    }

    /// Keeps a place, unless a later one is known: who looks back for something does not lose it.
    pub(crate) fn keep(&mut self, header: &SegmentHeader, reached: Reached) {
        if self.at.as_ref().is_none_or(|(_, known)| known.next_seq <= reached.next_seq) {
            self.at = Some((header.clone(), reached));
        }
    }
}
