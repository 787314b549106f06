//! Tombstones of a log that is read again and again, kept between the passes.
//!
//! Must not know: what a tombstone covers.

use std::path::Path;

use fetchwise_log::ResumeMark;

use super::error::JournalError;
use super::read::pass_range;
use super::tombstones::TombstoneSet;

/// Cached tombstones of a log for a repeated reader, and the position at which its last pass ended.
#[derive(Clone, Debug, Default)]
pub struct Tombstones {
    pub(super) known: TombstoneSet,
    /// First position of the known range.
    from: u64,
    /// Last position of the known range.
    pub(super) upto: u64,
    /// Position from which on the caller knows that there is no tombstone, if any.
    none_from: Option<u64>,
    /// Position at which the last pass over attempts ended.
    pub(super) mark: ResumeMark,
}

impl Tombstones {
    /// Declares that there are no tombstones from `seq` on, so that none are searched for there.
    pub fn none_from(&mut self, seq: u64) {
        self.none_from = Some(seq);
    }

    /// Reads the tombstones from `from` up to `upto`.
    pub(super) fn read_range(
        &mut self,
        dir: &Path,
        from: u64,
        upto: u64,
    ) -> Result<(), JournalError> {
        if self.none_from.is_some_and(|none| from >= none) {
            return Ok(());
        }
        let is_first = self.upto == 0;
        let wanted = |seq: u64| {
            seq >= from && seq <= upto && (is_first || seq < self.from || seq > self.upto)
        };
        if is_first || from < self.from || upto > self.upto {
            let start = if is_first || from < self.from { from } else { self.upto + 1 };
            let mut found = TombstoneSet::default();
            pass_range(
                dir,
                start,
                |seq, record| if wanted(seq) { found.add_record(seq, &record) } else { Ok(()) },
                upto,
                &mut ResumeMark::default(),
            )?;
            for (seq, target) in found.after(0) {
                self.known.add(seq, target);
            }
            self.from = if is_first { from } else { self.from.min(from) };
            self.upto = self.upto.max(upto);
        }
        Ok(())
    }
}
