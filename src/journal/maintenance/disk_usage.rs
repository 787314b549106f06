//! Disk usage of the log, and the age limit that brings it below a bound.
//!
//! Owns: the sums.
//!
//! Invariants: what the limit drops is older than everything that it keeps.
//!
//! Must not know: how records are dropped.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use fetchwise_log::Throttle;

use crate::journal::error::JournalError;
use crate::journal::read::{open, pass};
use crate::journal::schema;
use fetchwise_types::time::Timestamp;

const MINUTE_MS: i64 = 60_000;

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
    let (files, mut records) = (file_bytes(dir, floor_seq)?, 0);
    let minutes = sums(dir, floor_seq, throttle, &mut records, &|at| Some(at.as_millis().div_euclid(MINUTE_MS)))?;
    // Packed records take less space than the log hands out.
    let keep =
        (u128::from(keep) * u128::from(records.max(files)) / u128::from(files.max(1))).min(u64::MAX.into()) as u64;
    let Some((minute, room)) = first_too_many(&minutes, keep) else { return Ok(None) };
    let within = sums(dir, floor_seq, throttle, &mut 0, &|at| {
        Some(at.as_millis()).filter(|at| at.div_euclid(MINUTE_MS) == minute)
    })?;
    let last = first_too_many(&within, room).map(|(at, _)| at);
    Ok(last.map(|at| Timestamp::from_millis(at.saturating_add(1))))
}

/// Returns the bytes of segments with records up to `floor_seq`.
fn file_bytes(dir: &Path, floor_seq: u64) -> Result<u64, JournalError> {
    let reader = open(dir)?;
    let below = reader.segments().filter(|segment| match segment.next_seq {
        Some(next) => next <= floor_seq.saturating_add(1),
        None => floor_seq == u64::MAX,
    });
    Ok(below.map(|segment| segment.bytes).sum())
}

/// Sums up the bytes of attempts by the value of `of` for their time, and those of all records in `records`.
fn sums(
    dir: &Path,
    floor_seq: u64,
    throttle: Option<&Throttle>,
    records: &mut u64,
    of: &dyn Fn(Timestamp) -> Option<i64>,
) -> Result<BTreeMap<i64, u64>, JournalError> {
    let mut sums = BTreeMap::new();
    pass(dir, |seq, record| {
        if seq > floor_seq || seq.is_multiple_of(256) && throttle.is_some_and(|throttle| !throttle.checkpoint()) {
            return Ok(());
        }
        *records += record.stored_len();
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
    fn the_oldest_attempts_do_not_fit() {
        let sums = BTreeMap::from([(1, 10), (2, 20), (3, 30)]);
        assert_eq!(first_too_many(&sums, 60), None);
        assert_eq!(first_too_many(&sums, 59), Some((1, 9)));
        assert_eq!(first_too_many(&sums, 49), Some((2, 19)));
        assert_eq!(first_too_many(&sums, 0), Some((3, 0)));
    }
}
