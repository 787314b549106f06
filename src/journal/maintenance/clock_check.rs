//! Whether the clock can be believed when it says that attempts are old.
//!
//! Owns the rule. A log that has been idle, on a machine that was perhaps switched off, is as old as a log in front of a clock that has
//! jumped. What tells them apart is the file system: its clock, and when the log's files were last written. Invariant: nothing is
//! changed. Must not know what hangs on the answer.

use std::fs;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use crate::journal::error::{ClockWitness, JournalError};
use fetchwise_types::time::Timestamp;

/// The newest record may be older than this before anybody asks whether the clock is right; and two clocks may differ by so much.
const JUMP_MAX: Duration = Duration::from_secs(48 * 3600);
/// A log that nobody has touched for longer than this is not taken for an idle one.
const IDLE_MAX: Duration = Duration::from_secs(400 * 86_400);

/// The file that whoever maintains the directory has locked, and written to, just now.
const MAINT_LOCK: &str = "MAINT.LOCK";

/// Says no where `now` is not plausible. The caller holds the maintenance lock of `dir`, and has changed nothing else yet.
///
/// The clock is plausible when the newest record is at most two days old. It is plausible, too, when it agrees with that of the file
/// system, and the log's files have been written within the last 400 days: then the log was idle. Every compaction and every crawl
/// writes some, so that a timer keeps a log plausible for as long as the machine runs.
pub(super) fn check(dir: &Path, newest: Timestamp, now: Timestamp) -> Result<(), JournalError> {
    if newest == Timestamp::default() || now.since(newest) <= JUMP_MAX {
        // Nothing has been recorded, or something just now.
        return Ok(());
    }
    let refused =
        |witness: ClockWitness| Err(JournalError::ClockJump { hours: now.since(newest).as_secs() / 3600, witness });
    match modified(&dir.join(MAINT_LOCK)) {
        Some(disk) if now.since(disk) <= JUMP_MAX => {}
        _ => return refused(ClockWitness::FileSystem),
    }
    let seen = files(dir).chain([newest]).max().unwrap_or(newest);
    if now.since(seen) > IDLE_MAX {
        return refused(ClockWitness::Idle { days: IDLE_MAX.as_secs() / 86_400 });
    }
    Ok(())
}

/// When the log's segments, snapshots and manifests were written. Locks are left out: who is refused touches them, too.
fn files(dir: &Path) -> impl Iterator<Item = Timestamp> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let is_ours =
        |name: &str| name.ends_with(".fwl") || name.ends_with(".fws") || name == "SNAPSHOT" || name == "SEGMENTS";
    entries
        .filter(move |entry| entry.file_name().to_str().is_some_and(is_ours))
        .filter_map(|entry| modified(&entry.path()))
}

fn modified(path: &Path) -> Option<Timestamp> {
    let since = path.metadata().ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(Timestamp::from_millis(i64::try_from(since.as_millis()).ok()?))
}
