//! The options of a log, and the records to append.
//!
//! Owns: the settings and their defaults.
//!
//! Must not know: their use.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::error::UnknownName;
use crate::format::BlockFormat;

/// The default size at which a segment is full, in bytes.
pub const DEFAULT_SEGMENT_BYTES: u64 = 64 << 20;

/// The default number of records from which on a batch is packed.
const DEFAULT_PACK_FROM: u32 = 256;

/// The default number of bytes that may wait to be packed.
const DEFAULT_REPACK_BYTES: u64 = 512 << 10;

/// The meaning of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// The record is queued in the process.
    Memory,
    /// The operating system has the record: it survives the end of the process, `kill -9` included.
    Os,
    /// As `Os`; a power loss costs at most the records of this interval plus the time of one sync.
    Interval(Duration),
    /// The record is on disk: `fdatasync` has returned. Concurrent records share one sync.
    Sync,
}

impl Default for Durability {
    fn default() -> Self {
        Self::Interval(Duration::from_millis(100))
    }
}

impl fmt::Display for Durability {
    /// The name that [`FromStr`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Os => f.write_str("os"),
            Self::Interval(_) if *self == Self::default() => f.write_str("interval"),
            Self::Interval(interval) => write!(f, "interval:{}ms", interval.as_millis()),
            Self::Sync => f.write_str("sync"),
        }
    }
}

impl FromStr for Durability {
    type Err = UnknownName;

    /// `memory`, `os`, `interval` (of 100 ms), `interval:250ms` or `sync`.
    ///
    /// ```
    /// use fetchwise_log::Durability;
    ///
    /// assert_eq!("sync".parse(), Ok(Durability::Sync));
    /// assert_eq!("interval:250ms".parse::<Durability>()?.to_string(), "interval:250ms");
    /// assert!("disk".parse::<Durability>().is_err());
    /// # Ok::<(), fetchwise_log::UnknownName>(())
    /// ```
    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let interval = || text.strip_prefix("interval:")?.strip_suffix("ms")?.parse().ok();
        match text {
            "memory" => Ok(Self::Memory),
            "os" => Ok(Self::Os),
            "interval" => Ok(Self::default()),
            "sync" => Ok(Self::Sync),
            _ => interval().map(|ms| Self::Interval(Duration::from_millis(ms))).ok_or_else(|| {
                UnknownName {
                    kind: "durability",
                    text: text.to_owned(),
                    known: "memory, os, interval, interval:250ms or sync",
                }
            }),
        }
    }
}

/// The behaviour of an append to a full queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFull {
    /// Waits for room. Never in a degraded log: there it is an error at once.
    #[default]
    Block,
    /// Returns [`AppendError::Full`](crate::AppendError::Full).
    Error,
    /// Drops the record and counts it.
    Shed,
}

impl fmt::Display for OnFull {
    /// The name that [`FromStr`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Block => "block",
            Self::Error => "error",
            Self::Shed => "shed",
        })
    }
}

impl FromStr for OnFull {
    type Err = UnknownName;

    /// `block`, `error` or `shed`.
    fn from_str(text: &str) -> Result<Self, UnknownName> {
        match text {
            "block" => Ok(Self::Block),
            "error" => Ok(Self::Error),
            "shed" => Ok(Self::Shed),
            _ => Err(UnknownName {
                kind: "behaviour on a full queue",
                text: text.to_owned(),
                known: "block, error or shed",
            }),
        }
    }
}

/// How to open a log.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LogOptions {
    /// What an acknowledgement means.
    pub durability: Durability,
    /// The longest time to gather records without a waiter; an eighth of an interval is a second
    /// limit. Gathering saves wake-ups of the writer thread and frames. A wait, a flush, a close, a
    /// half-full queue and an append without room end it. Zero disables gathering, and so does
    /// [`Durability::Sync`].
    pub linger: Duration,
    /// A segment is sealed and the next one begun at about this many bytes.
    pub segment_bytes: u64,
    /// Bytes that may wait in the queue.
    pub queue_bytes: usize,
    /// Records that may wait in the queue; at most 16 777 214.
    pub queue_records: usize,
    /// The behaviour of an append to a full queue.
    pub on_full: OnFull,
    /// Identifies the layout of the records; written into each segment and compared at open.
    pub fingerprint: [u8; 16],
    /// Other fingerprints of segments that this build can read.
    pub accepts: Vec<[u8; 16]>,
    /// The extent of the check at open.
    pub check: OpenCheck,
    /// Begin a new segment now instead of with the first record, so that all earlier records can be
    /// compacted.
    pub begin_segment: bool,
    /// The layout in which the writer packs a batch of at least [`pack_from`](Self::pack_from)
    /// records into one block. Releases that do not know blocks refuse the segments of such a
    /// writer. `None` writes records only.
    pub blocks: Option<&'static dyn BlockFormat>,
    /// The number of records from which on a batch is packed. A batch is what has been gathered
    /// when a frame is written; it is acknowledged as one.
    pub pack_from: u32,
    /// Bytes of batches that were too small for a block, from which on the writer packs them: it
    /// writes its segment again, up to four times this size, with all records in blocks. A close
    /// packs them, too. Memory: five times as much. A segment that fills up before is not packed,
    /// so this is at most an eighth of [`segment_bytes`](Self::segment_bytes). Meaningless without
    /// [`blocks`](Self::blocks).
    pub repack_bytes: u64,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            durability: Durability::default(),
            linger: Duration::from_millis(2),
            segment_bytes: DEFAULT_SEGMENT_BYTES,
            queue_bytes: 16 << 20,
            queue_records: 1 << 16,
            on_full: OnFull::default(),
            fingerprint: [0; 16],
            accepts: Vec::new(),
            check: OpenCheck::default(),
            begin_segment: false,
            blocks: None,
            pack_from: DEFAULT_PACK_FROM,
            repack_bytes: DEFAULT_REPACK_BYTES,
        }
    }
}

/// The extent of the check by [`Log::open`](crate::Log::open).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenCheck {
    /// Every frame of every segment. Always safe.
    #[default]
    Full,
    /// Every header and link, and every frame of the last segment. For a caller who replays the log
    /// through a [`Reader`](crate::Reader) anyway and looks at the damage that
    /// [`Summary`](crate::Summary) reports; or who starts from a snapshot.
    Tail,
}

/// A record to append.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The application's kind.
    pub kind: u16,
    /// The application's schema version.
    pub schema: u16,
    /// Records with one key keep their order in a parallel replay.
    pub key_hash: u64,
    /// When it happened, ms since the Unix epoch; only the latest time of a frame is stored.
    pub time_ms: i64,
    /// At most [`MAX_RECORD_LEN`](crate::MAX_RECORD_LEN) bytes.
    pub payload: &'a [u8],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_durability_and_policy_is_read_back_from_its_name() {
        let interval = Durability::Interval(Duration::from_millis(7));
        for durability in
            [Durability::Memory, Durability::Os, Durability::default(), interval, Durability::Sync]
        {
            assert_eq!(durability.to_string().parse(), Ok(durability));
        }
        for policy in [OnFull::Block, OnFull::Error, OnFull::Shed] {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        for other in ["", "Sync", "interval:", "interval:-1ms", "interval:1s"] {
            let error = other.parse::<Durability>().unwrap_err();
            assert!(error.to_string().contains(&format!("{other:?}")), "{error}");
        }
    }
}
