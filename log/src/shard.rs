//! Replay with several threads: one reads and checks, the others fold, each key always on the same thread.
//!
//! Owns: cutting the stream of frames into batches and handing them out. Invariants: records with one key are seen in order by
//! one shard; memory is bounded by a few batches, however large the log. Must not know: what a record means.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::error::Error;
use crate::format::{RecordRef, Records};
use crate::maintain::Progress;
use crate::reader::{Reader, Summary};
use crate::scan::AlignedBuf;

/// A batch is handed out when it has this many bytes.
const BATCH_BYTES: usize = 512 << 10;
/// So many batches wait for each shard.
const BATCHES: usize = 4;

/// How often a compaction may take a file away.
const REOPENINGS_MAX: u32 = 8;

/// Payloads of frames, one behind the other at multiples of 16.
#[derive(Default)]
struct Batch {
    bytes: AlignedBuf,
    used: usize,
    /// First sequence number, offset, length.
    frames: Vec<(u64, usize, usize)>,
}

impl Reader {
    /// Shows every record from `seq` on to `f`, with one thread for each of `shards` and one that reads. Records with one
    /// `key_hash` go to one shard, in order; different keys may overtake each other. `progress` is told after each segment.
    /// Memory: about 4 MiB.
    ///
    /// ```
    /// # use fetchwise_log::{Log, Options, Reader, Record};
    /// # let dir = tempfile::tempdir()?;
    /// # let (log, _) = Log::open(dir.path(), Options::default())?;
    /// # for key in 0..100 { log.append(Record { kind: 1, schema: 1, key_hash: key, time_ms: 0, payload: b"x" })?; }
    /// # log.close()?;
    /// let reader = Reader::open(dir.path())?;
    /// let (counts, summary) = reader.for_each_sharded(0, vec![0u64; 2], |count, _, _| *count += 1, |_| {})?;
    /// assert_eq!(counts.iter().sum::<u64>(), summary.records);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// What the system says; what was seen until then has been folded, and is of no use. A compaction that takes files away
    /// meanwhile is none, as what has replaced them is read instead, unless that has dropped records which were still to come:
    /// [`Error::Replaced`].
    pub fn for_each_sharded<S: Send>(
        &self,
        seq: u64,
        shards: Vec<S>,
        f: impl Fn(&mut S, u64, RecordRef<'_>) + Sync,
        mut progress: impl FnMut(Progress),
    ) -> Result<(Vec<S>, Summary), Error> {
        let count = shards.len() as u64;
        if count == 0 {
            return Err(Error::Invalid("a replay needs a shard".into()));
        }
        let f = &f;
        std::thread::scope(|scope| {
            let mut queues = Vec::new();
            let mut threads = Vec::new();
            for (index, state) in (0u64..).zip(shards) {
                let (queue, batches) = bounded(BATCHES);
                queues.push(queue);
                threads.push(scope.spawn(move || fold(state, &batches, seq, index, count, f)));
            }
            let read = self.read_all(seq, &queues, &mut progress);
            drop(queues);
            let mut states = Vec::new();
            for thread in threads {
                match thread.join() {
                    Ok(state) => states.push(state),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            Ok((states, read?))
        })
    }

    /// Reads everything from `seq` on, from a reader opened anew where a compaction came in between.
    fn read_all(
        &self,
        seq: u64,
        queues: &[Sender<Arc<Batch>>],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Summary, Error> {
        let mut summary = Summary::default();
        let mut read = self.read_batches(seq, queues, &mut summary, progress);
        for _ in 0..REOPENINGS_MAX {
            if !matches!(read, Err(Error::Replaced { .. })) {
                break;
            }
            let next = summary.last_seq.map_or(seq, |last| last + 1);
            let again = Self::open_with(self.fs.clone(), &self.dir)?;
            if again.floor_seq() >= next {
                // What comes next is in a snapshot now, which this replay does not begin with.
                break;
            }
            summary.damage.clear();
            read = again.read_batches(next, queues, &mut summary, progress);
        }
        read.map(|()| summary)
    }

    fn read_batches(
        &self,
        seq: u64,
        queues: &[Sender<Arc<Batch>>],
        summary: &mut Summary,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), Error> {
        let total = self.segments().filter(|s| s.next_seq.is_none_or(|next| next > seq)).map(|s| s.bytes).sum();
        summary.damage.extend_from_slice(self.damage());
        let mut batch = Batch::default();
        let mut done = 0;
        for (index, segment) in self.segments().enumerate() {
            if segment.next_seq.is_some_and(|next| next <= seq) {
                continue;
            }
            let mut part = Summary::default();
            let read = self.frames(index, &mut part, |part, frame| {
                let header = &frame.header;
                if header.next_seq() <= seq {
                    return;
                }
                let first = header.first_seq.max(seq);
                part.first_seq = part.first_seq.or(Some(first));
                part.last_seq = Some(header.next_seq() - 1);
                part.records += header.next_seq() - first;
                if !batch.fits(frame.payload.len()) {
                    hand_out(&mut batch, queues, frame.payload.len());
                }
                batch.add(header.first_seq, frame.payload);
            });
            summary.merge(part);
            if read.is_err() {
                // What was read until now is folded all the same: reading may go on behind it.
                hand_out(&mut batch, queues, 0);
                return read;
            }
            done += segment.bytes;
            progress(Progress { done, total });
        }
        hand_out(&mut batch, queues, 0);
        Ok(())
    }
}

impl Batch {
    fn fits(&self, len: usize) -> bool {
        self.used + len <= self.bytes.bytes().len()
    }

    fn add(&mut self, first_seq: u64, payload: &[u8]) {
        let start = self.used;
        self.bytes.bytes_mut()[start..start + payload.len()].copy_from_slice(payload);
        self.frames.push((first_seq, start, payload.len()));
        self.used = (start + payload.len()).next_multiple_of(16);
    }
}

/// Gives the batch to every shard and begins one that can hold `len` bytes.
fn hand_out(batch: &mut Batch, queues: &[Sender<Arc<Batch>>], len: usize) {
    let next = Batch { bytes: AlignedBuf::zeroed(if len == 0 { 0 } else { len.max(BATCH_BYTES) }), ..Batch::default() };
    let full = Arc::new(std::mem::replace(batch, next));
    if full.frames.is_empty() {
        return;
    }
    for queue in queues {
        // A shard that panicked is noticed when it is joined.
        let _ = queue.send(full.clone());
    }
}

fn fold<S>(
    mut state: S,
    batches: &Receiver<Arc<Batch>>,
    seq: u64,
    index: u64,
    count: u64,
    f: &(impl Fn(&mut S, u64, RecordRef<'_>) + Sync),
) -> S {
    for batch in batches {
        for (first_seq, start, len) in &batch.frames {
            let payload = batch.bytes.bytes().get(*start..start + len).unwrap_or_default();
            for (number, record) in (*first_seq..).zip(Records::new(payload)) {
                if number >= seq && record.key_hash % count == index {
                    f(&mut state, number, record);
                }
            }
        }
    }
    state
}
