//! How much room the log takes on the disk, and from when on attempts are to be kept so that it takes less.
//!
//! Owns the sums. Invariant: what is not kept is older than all that is. Must not know how records are dropped.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use fetchwise_log::Brake;

use crate::journal::error::JournalError;
use crate::journal::read::pass;
use crate::journal::schema;
use fetchwise_types::time::Timestamp;

const MINUTE_MS: i64 = 60_000;

/// What the log takes on the disk, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskUsage {
    /// All of it: segments, snapshots, manifests, what is kept back, and unfinished files.
    pub total: u64,
    /// Segments that nobody writes to any more.
    pub sealed: u64,
    /// The newest snapshot.
    pub snapshot: u64,
}

impl DiskUsage {
    /// Looks at the files in `dir`. Space that is allocated ahead counts. Cost: a look at each file's entry.
    ///
    /// # Errors
    /// What the system says. A file that goes meanwhile is none.
    pub fn taken(dir: &Path) -> std::io::Result<Self> {
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
            // Their names sort as they do.
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

/// From when on attempts are kept, where those up to `floor_seq` are to take `keep` bytes at most; none where they do already. Cost: one
/// or two passes over the log.
pub(super) fn cutoff(
    dir: &Path,
    floor_seq: u64,
    keep: u64,
    brake: Option<&Brake>,
) -> Result<Option<Timestamp>, JournalError> {
    let minutes = sums(dir, floor_seq, brake, &|at| Some(at.as_millis().div_euclid(MINUTE_MS)))?;
    let Some((minute, room)) = first_too_many(&minutes, keep) else { return Ok(None) };
    let within =
        sums(dir, floor_seq, brake, &|at| Some(at.as_millis()).filter(|at| at.div_euclid(MINUTE_MS) == minute))?;
    let last = first_too_many(&within, room).map(|(at, _)| at);
    Ok(last.map(|at| Timestamp::from_millis(at.saturating_add(1))))
}

/// The bytes of attempts by what `of` makes of their time.
fn sums(
    dir: &Path,
    floor_seq: u64,
    brake: Option<&Brake>,
    of: &dyn Fn(Timestamp) -> Option<i64>,
) -> Result<BTreeMap<i64, u64>, JournalError> {
    let mut sums = BTreeMap::new();
    pass(dir, |seq, record| {
        if seq > floor_seq || seq.is_multiple_of(256) && brake.is_some_and(|brake| !brake.breathe()) {
            return Ok(());
        }
        if let Some(attempt) = schema::attempt(record.kind, record.schema, record.payload)?
            && let Some(time) = of(attempt.at())
        {
            *sums.entry(time).or_default() += record.stored_len();
        }
        Ok(())
    })?;
    Ok(sums)
}

/// From the newest on: the first that does not fit into `room` any more, and what room was left for it.
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
    fn the_oldest_do_not_fit() {
        let sums = BTreeMap::from([(1, 10), (2, 20), (3, 30)]);
        assert_eq!(first_too_many(&sums, 60), None);
        assert_eq!(first_too_many(&sums, 59), Some((1, 9)));
        assert_eq!(first_too_many(&sums, 49), Some((2, 19)));
        assert_eq!(first_too_many(&sums, 0), Some((3, 0)));
    }
}
