//! Disk usage of the log, and the age limit that brings it below a bound.
//!
//! Owns: the sums.
//!
//! Invariants: what the limit drops is older than everything that it keeps.
//!
//! Must not know: how records are dropped.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::ops::Range;
use std::path::Path;

use fetchwise_log::Throttle;

use crate::journal::error::JournalError;
use crate::journal::read::{open, pass};
use crate::journal::schema;
use fetchwise_types::time::Timestamp;

const MINUTE_MS: i64 = 60_000;
/// Factor by which packing is assumed to make attempts smaller, as long as none are packed. Most logs get five times
/// smaller.
const FIRST_FACTOR: u64 = 2;

/// Disk usage of the log, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskUsage {
    /// All files: segments, snapshots, manifests, the reserve, and unfinished files.
    pub total: u64,
    /// Segments that have no writer any more.
    pub sealed: u64,
    /// Newest snapshot.
    pub snapshot: u64,
}

impl DiskUsage {
    /// Measures the files in `dir`. Space that is allocated ahead counts. Cost: one metadata read per file.
    ///
    /// # Errors
    /// I/O errors. A file that disappears meanwhile is not an error.
    pub fn measure(dir: &Path) -> std::io::Result<Self> {
        let (mut room, mut last_segment, mut last_snapshot) = (Self::default(), None, None);
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let Ok(meta) = entry.metadata() else { continue };
            let is_segment = name.ends_with(".fwl");
            let is_snapshot = name.ends_with(".fws");
            let is_other = matches!(&*name, "SEGMENTS" | "SNAPSHOT" | "RESERVE") || name.starts_with("tmp-");
            if !meta.is_file() || !(is_segment || is_snapshot || is_other) {
                continue;
            }
            let len = meta.len();
            room.total += len;
            // Names of segments and snapshots sort by age.
            if is_segment {
                room.sealed += len;
                last_segment = last_segment.max(Some((name, len)));
            } else if is_snapshot {
                last_snapshot = last_snapshot.max(Some((name, len)));
            }
        }
        room.sealed -= last_segment.map_or(0, |(_, len)| len);
        room.snapshot = last_snapshot.map_or(0, |(_, len)| len);
        Ok(room)
    }
}

/// Returns the time from which on attempts have to be kept, so that those up to `floor_seq` take at most `keep` bytes.
/// Returns `None` if they already do. Cost: one or two passes over the log.
pub(super) fn cutoff(
    dir: &Path,
    floor_seq: u64,
    keep: u64,
    throttle: Option<&Throttle>,
) -> Result<Option<Timestamp>, JournalError> {
    let mut packed = PackedSegments::find(dir, floor_seq)?;
    let minutes = sums(dir, floor_seq, throttle, &mut packed, &|at| Some(at.as_millis().div_euclid(MINUTE_MS)))?;
    let keep = packed.unpacked_bytes(keep);
    let Some((minute, room)) = first_too_many(&minutes, keep) else { return Ok(None) };
    let within = sums(dir, floor_seq, throttle, &mut PackedSegments::default(), &|at| {
        Some(at.as_millis()).filter(|at| at.div_euclid(MINUTE_MS) == minute)
    })?;
    let last = first_too_many(&within, room).map(|(at, _)| at);
    Ok(last.map(|at| Timestamp::from_millis(at.saturating_add(1))))
}

/// Segments that maintenance has packed, and how much smaller that made them. A compaction packs the others too.
#[derive(Debug, Default)]
struct PackedSegments {
    /// Their sequence numbers, in order.
    ranges: VecDeque<Range<u64>>,
    file_bytes: u64,
    /// Bytes of their records as the log hands them out.
    record_bytes: u64,
}

impl PackedSegments {
    fn find(dir: &Path, floor_seq: u64) -> Result<Self, JournalError> {
        let mut found = Self::default();
        for segment in open(dir)?.segments().filter(|segment| segment.packed && segment.rewritten) {
            if let Some(next) = segment.next_seq.filter(|next| *next <= floor_seq.saturating_add(1)) {
                found.ranges.push_back(segment.first_seq..next);
                found.file_bytes += segment.bytes;
            }
        }
        Ok(found)
    }

    /// Counts a record; they come in order.
    fn add(&mut self, seq: u64, bytes: u64) {
        while self.ranges.front().is_some_and(|range| range.end <= seq) {
            self.ranges.pop_front();
        }
        if self.ranges.front().is_some_and(|range| range.contains(&seq)) {
            self.record_bytes += bytes;
        }
    }

    /// Returns how many bytes of records take `file_bytes` once they are packed. The factor is that of what is packed
    /// already; before anything is, a cautious guess, since what turns out too large is cut by the next compaction.
    fn unpacked_bytes(&self, file_bytes: u64) -> u64 {
        let (records, files) = match self.record_bytes {
            0 => (FIRST_FACTOR, 1),
            bytes => (bytes.max(self.file_bytes), self.file_bytes.max(1)),
        };
        (u128::from(file_bytes) * u128::from(records) / u128::from(files)).min(u64::MAX.into()) as u64
    }
}

/// Sums up the bytes of attempts by the value of `of` for their time, and those of packed records in `packed`.
fn sums(
    dir: &Path,
    floor_seq: u64,
    throttle: Option<&Throttle>,
    packed: &mut PackedSegments,
    of: &dyn Fn(Timestamp) -> Option<i64>,
) -> Result<BTreeMap<i64, u64>, JournalError> {
    let mut sums = BTreeMap::new();
    pass(dir, |seq, record| {
        if seq > floor_seq || seq.is_multiple_of(256) && throttle.is_some_and(|throttle| !throttle.checkpoint()) {
            return Ok(());
        }
        packed.add(seq, record.stored_len());
        if let Some(attempt) = schema::attempt(record.kind, record.schema, record.payload)?
            && let Some(time) = of(attempt.at())
        {
            *sums.entry(time).or_default() += record.stored_len();
        }
        Ok(())
    })?;
    Ok(sums)
}

/// Returns the newest time whose bytes do not fit into `room`, and the room that was left for it.
fn first_too_many(sums: &BTreeMap<i64, u64>, mut room: u64) -> Option<(i64, u64)> {
    for (time, bytes) in sums.iter().rev() {
        match room.checked_sub(*bytes) {
            Some(left) => room = left,
            None => return Some((*time, room)),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_on_files_is_one_on_the_records_that_they_will_hold() {
        let mut packed = PackedSegments { ranges: [1..10, 20..30].into(), file_bytes: 100, record_bytes: 0 };
        assert_eq!(packed.unpacked_bytes(1000), 2000, "nothing is known yet");
        for seq in [3, 9, 10, 19, 20, 29, 30] {
            packed.add(seq, 100);
        }
        assert_eq!((packed.record_bytes, packed.unpacked_bytes(1000)), (400, 4000));
        // A header takes more than its few records.
        let small = PackedSegments { file_bytes: 5000, record_bytes: 10, ..PackedSegments::default() };
        assert_eq!(small.unpacked_bytes(1000), 1000);
    }

    #[test]
    fn the_oldest_attempts_do_not_fit() {
        let sums = BTreeMap::from([(1, 10), (2, 20), (3, 30)]);
        assert_eq!(first_too_many(&sums, 60), None);
        assert_eq!(first_too_many(&sums, 59), Some((1, 9)));
        assert_eq!(first_too_many(&sums, 49), Some((2, 19)));
        assert_eq!(first_too_many(&sums, 0), Some((3, 0)));
    }
}
