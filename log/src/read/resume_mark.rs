//! A resume mark: the position of a pass, for a later pass over the records written since.
//!
//! Invariant: a mark is valid only in the segment that it was made in.
//!
//! Must not know: what records mean.

use super::scan::Reached;
use crate::format::SegmentHeader;

/// The position of a pass:
/// [`Reader::segment_for_each_marked`](crate::Reader::segment_for_each_marked).
#[derive(Clone, Debug, Default)]
pub struct ResumeMark {
    at: Option<(SegmentHeader, Reached)>,
}

impl ResumeMark {
    /// Returns the position in the segment with this header from which to read the record `seq`;
    /// none for the beginning.
    pub(crate) fn before(&self, header: &SegmentHeader, seq: u64) -> Option<Reached> {
        self.at
            .as_ref()
            .filter(|(of, reached)| of == header && reached.next_seq <= seq)
            .map(|(_, reached)| *reached)
    }

    /// Stores a position unless a later one is known, so that a pass over older records does not
    /// lose it.
    pub(crate) fn keep(&mut self, header: &SegmentHeader, reached: Reached) {
        if self.at.as_ref().is_none_or(|(_, known)| known.next_seq <= reached.next_seq) {
            self.at = Some((header.clone(), reached));
        }
    }
}
