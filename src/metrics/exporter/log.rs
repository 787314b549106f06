//! Metrics of the log: its own counters, and the files in its directory.
//!
//! Must not know: the content of records, which it never reads.

use std::fmt;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fetchwise_log::{Health, Reader};

use super::families;
use crate::journal::Journal;
use crate::metrics::exporter::encode::FamilyEncoder;

/// Files in the log's directory.
#[derive(Debug, Default)]
struct Files {
    written: usize,
    rewritten: usize,
    segment_bytes: u64,
    snapshot_bytes: u64,
    /// Time since 1970.
    snapshot_at: Option<Duration>,
    compacted_at: Option<Duration>,
}

impl Files {
    /// Measures the directory, in about ten microseconds per segment. Unreadable files are left
    /// out; the log itself reports what is wrong with it.
    fn look(dir: &Path) -> Self {
        let mut files = Self::default();
        let since_1970 = |time: SystemTime| time.duration_since(UNIX_EPOCH).ok();
        let reader = Reader::open(dir).ok();
        files.compacted_at = reader.as_ref().and_then(Reader::compacted_at).and_then(since_1970);
        for segment in reader.iter().flat_map(Reader::segments) {
            files.segment_bytes += segment.bytes;
            if segment.rewritten {
                files.rewritten += 1;
            } else {
                files.written += 1;
            }
        }
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| name.starts_with("snap-")) {
                let Ok(meta) = entry.metadata() else { continue };
                files.snapshot_bytes += meta.len();
                files.snapshot_at =
                    files.snapshot_at.max(meta.modified().ok().and_then(since_1970));
            }
        }
        files
    }
}

/// Encodes all metrics of `journal`.
pub(super) fn encode(encoder: &mut FamilyEncoder<'_>, journal: &Journal) -> fmt::Result {
    let log = journal.metrics();
    let as_number = |health| f64::from(u8::from(matches!(health, Health::Good)));
    encoder.one(&families::EVICTED_HEALTHY, as_number(journal.evidence_health()))?;
    encoder.one(&families::LOG_HEALTHY, as_number(journal.log_health()))?;
    encoder.one(&families::LOG_APPENDED, log.appended as f64)?;
    encoder.one(&families::LOG_LOST, journal.lost().records as f64)?;
    encoder.one(&families::LOG_QUEUED, log.queued_records as f64)?;
    encoder.one(&families::LOG_QUEUED_BYTES, log.queued_bytes as f64)?;
    let unsynced = (log.written_seq + log.queued_records).saturating_sub(log.durable_seq);
    encoder.one(&families::LOG_LAG, unsynced as f64)?;
    encoder.one(&families::LOG_WRITTEN_BYTES, log.bytes as f64)?;
    encoder.one(&families::LOG_SYNCS, log.syncs as f64)?;
    if log.synced_ms > 0 {
        encoder.one(&families::LOG_SYNCED, log.synced_ms as f64 / 1e3)?;
    }
    encoder.one(&families::LOG_FAILURES, log.failures as f64)?;
    let files = Files::look(journal.dir());
    let segments =
        [(vec!["written"], files.written as f64), (vec!["compacted"], files.rewritten as f64)];
    encoder.rows(&families::LOG_SEGMENTS, segments)?;
    encoder.one(&families::LOG_SEGMENT_BYTES, files.segment_bytes as f64)?;
    encoder.one(&families::LOG_SNAPSHOT_BYTES, files.snapshot_bytes as f64)?;
    if let Some(at) = files.snapshot_at {
        encoder.one(&families::LOG_SNAPSHOT, at.as_secs_f64())?;
    }
    if let Some(at) = files.compacted_at {
        encoder.one(&families::LOG_COMPACTED, at.as_secs_f64())?;
    }
    Ok(())
}
