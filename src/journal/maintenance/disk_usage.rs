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
/// Factor by which packing is assumed to make attempts smaller, as long as none are packed. Most
/// logs get five times smaller.
const FIRST_FACTOR: f64 = 2.0;

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
    /// Measures the files in `dir`. Space that is allocated ahead counts. Cost: one metadata read
    /// per file.
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
            let is_other =
                matches!(&*name, "SEGMENTS" | "SNAPSHOT" | "RESERVE") || name.starts_with("tmp-");
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

/// Returns the time from which on attempts have to be kept, so that those up to `floor_seq` take at
/// most `keep` bytes of files after a compaction that packs them or not. Returns `None` if they
/// already do. Cost: one or two passes over the log.
pub(super) fn cutoff(
    dir: &Path,
    floor_seq: u64,
    keep: u64,
    packs: bool,
    throttle: Option<&Throttle>,
) -> Result<Option<Timestamp>, JournalError> {
    let segments = PackedSegments::find(dir, floor_seq)?;
    let mut packed = segments.clone();
    let minutes = sums(dir, floor_seq, throttle, &mut packed, &|at| {
        Some(at.as_millis().div_euclid(MINUTE_MS))
    })?;
    let factor = packed.factor();
    let on_disk = |sums: BTreeMap<i64, AttemptBytes>| -> BTreeMap<i64, u64> {
        sums.into_iter().map(|(at, bytes)| (at, bytes.on_disk(factor, packs))).collect()
    };
    let Some((minute, room)) = first_too_many(&on_disk(minutes), keep) else { return Ok(None) };
    let within = sums(dir, floor_seq, throttle, &mut segments.clone(), &|at| {
        Some(at.as_millis()).filter(|at| at.div_euclid(MINUTE_MS) == minute)
    })?;
    let last = first_too_many(&on_disk(within), room).map(|(at, _)| at);
    Ok(last.map(|at| Timestamp::from_millis(at.saturating_add(1))))
}

/// Bytes of attempts as the log hands them out, by whether maintenance has packed them.
#[derive(Clone, Copy, Debug, Default)]
struct AttemptBytes {
    packed: u64,
    others: u64,
}

impl AttemptBytes {
    /// Returns how many bytes of files they take after a compaction. `factor` is how much smaller
    /// packing makes them; `None` if that is not known.
    fn on_disk(self, factor: Option<f64>, packs: bool) -> u64 {
        let others = if packs {
            self.others as f64 / factor.unwrap_or(FIRST_FACTOR)
        } else {
            self.others as f64
        };
        (self.packed as f64 / factor.unwrap_or(1.0) + others) as u64
    }
}

/// Segments that maintenance has packed, and how much smaller that made them.
#[derive(Clone, Debug, Default)]
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
            if let Some(next) = segment.next_seq.filter(|next| *next <= floor_seq.saturating_add(1))
            {
                found.ranges.push_back(segment.first_seq..next);
                found.file_bytes += segment.bytes;
            }
        }
        Ok(found)
    }

    /// Counts a record, and returns whether it is in one of them; records come in order.
    fn add(&mut self, seq: u64, bytes: u64) -> bool {
        while self.ranges.front().is_some_and(|range| range.end <= seq) {
            self.ranges.pop_front();
        }
        let is_in = self.ranges.front().is_some_and(|range| range.contains(&seq));
        self.record_bytes += if is_in { bytes } else { 0 };
        is_in
    }

    /// Returns the bytes of records for each byte of file, once all records are counted.
    fn factor(&self) -> Option<f64> {
        let factor = self.record_bytes as f64 / self.file_bytes.max(1) as f64;
        // A header takes more than a few records.
        (self.record_bytes > 0).then(|| factor.max(1.0))
    }
}

/// Sums up the bytes of attempts by the value of `of` for their time, and counts all records in
/// `packed`.
fn sums(
    dir: &Path,
    floor_seq: u64,
    throttle: Option<&Throttle>,
    packed: &mut PackedSegments,
    of: &dyn Fn(Timestamp) -> Option<i64>,
) -> Result<BTreeMap<i64, AttemptBytes>, JournalError> {
    let mut sums = BTreeMap::<i64, AttemptBytes>::new();
    pass(dir, |seq, record| {
        if seq > floor_seq
            || seq.is_multiple_of(256) && throttle.is_some_and(|throttle| !throttle.checkpoint())
        {
            return Ok(());
        }
        let is_packed = packed.add(seq, record.stored_len());
        if let Some(attempt) = schema::attempt(record.kind, record.schema, record.payload)?
            && let Some(time) = of(attempt.at())
        {
            let sum = sums.entry(time).or_default();
            *(if is_packed { &mut sum.packed } else { &mut sum.others }) += record.stored_len();
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
    fn attempts_count_as_the_bytes_of_files_that_they_will_take() {
        let mut packed =
            PackedSegments { ranges: [1..10, 20..30].into(), file_bytes: 100, record_bytes: 0 };
        assert_eq!(packed.factor(), None, "nothing is known yet");
        let is_in = [3, 9, 10, 19, 20, 29, 30].map(|seq| packed.add(seq, 100));
        assert_eq!(is_in, [true, true, false, false, true, true, false]);
        assert_eq!(packed.factor(), Some(4.0));
        let bytes = AttemptBytes { packed: 400, others: 1000 };
        assert_eq!((bytes.on_disk(Some(4.0), true), bytes.on_disk(Some(4.0), false)), (350, 1100));
        let first = AttemptBytes { packed: 0, others: 1000 };
        assert_eq!((first.on_disk(None, true), first.on_disk(None, false)), (500, 1000));
        // A header takes more than its few records.
        let small =
            PackedSegments { file_bytes: 5000, record_bytes: 10, ..PackedSegments::default() };
        assert_eq!(small.factor(), Some(1.0));
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
