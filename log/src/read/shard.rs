//! Sharded replay: one thread reads, checks and sorts; the others fold, each key always on the same thread.
//!
//! Owns: cutting the stream of frames into batches and handing them out.
//!
//! Invariants: records with one key are seen in order by one shard; a shard looks at its own records only; memory is
//! bounded by a few batches, however large the log.
//!
//! Must not know: what a record means.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::error::Error;
use crate::format::{AlignedBuf, RECORD_HEADER_LEN, RecordRef, record_len};
use crate::read::progress::Progress;
use crate::read::reader::{Reader, Summary};
use crate::read::unpack::FrameRecords;

/// A batch is handed out when it has this many bytes.
const BATCH_BYTES: usize = 512 << 10;
/// The number of batches that may wait for each shard.
const BATCHES: usize = 4;

/// The number of records whose keys are prefetched.
const AHEAD: usize = 16;

/// How often a compaction may take a file away.
const MAX_REOPENINGS: u32 = 8;

/// Payloads of frames, one behind the other at multiples of 16, and where each shard's records are in them.
#[derive(Default)]
struct Batch {
    bytes: AlignedBuf,
    used: usize,
    by_shard: Vec<Vec<RecordPosition>>,
}

/// The position and header of a record. The sorting thread has read the header, so the folding threads need not read it
/// again.
#[derive(Clone, Copy)]
struct RecordPosition {
    seq: u64,
    key_hash: u64,
    /// Of the payload.
    start: u32,
    len: u32,
    kind: u16,
    schema: u16,
}

impl Reader {
    /// Calls `f` with every record from `seq` on, with one thread per shard and one that reads. Records with one
    /// `key_hash` go to one shard, in order; different keys may overtake each other. `progress` is called after each
    /// segment. `ahead` gets the keys of the next few records of a shard, so that it can prefetch their data. Uses some
    /// 4 MiB of memory, and 32 B per record in flight.
    ///
    /// ```
    /// # use fetchwise_log::{Log, LogOptions, Reader, Record};
    /// # let dir = tempfile::tempdir()?;
    /// # let (log, _) = Log::open(dir.path(), LogOptions::default())?;
    /// # for key in 0..100 { log.append(Record { kind: 1, schema: 1, key_hash: key, time_ms: 0, payload: b"x" })?; }
    /// # log.close()?;
    /// let reader = Reader::open(dir.path())?;
    /// let count = |count: &mut u64, _, _: fetchwise_log::RecordRef<'_>| *count += 1;
    /// let (counts, summary) = reader.for_each_sharded(0, vec![0u64; 2], |_, _| {}, count, |_| {})?;
    /// assert_eq!(counts.iter().sum::<u64>(), summary.records);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The system's error; the records folded until then are of no use. A concurrent compaction is not an error,
    /// because the replacing files are read instead, unless it dropped records that were still to come:
    /// [`Error::Replaced`].
    pub fn for_each_sharded<S: Send>(
        &self,
        seq: u64,
        shards: Vec<S>,
        ahead: impl Fn(&S, &[u64]) + Sync,
        f: impl Fn(&mut S, u64, RecordRef<'_>) + Sync,
        mut progress: impl FnMut(Progress),
    ) -> Result<(Vec<S>, Summary), Error> {
        if shards.is_empty() {
            return Err(Error::Invalid("a replay needs at least one shard".into()));
        }
        let (ahead, f) = (&ahead, &f);
        std::thread::scope(|scope| {
            let mut queues = Vec::new();
            let mut threads = Vec::new();
            for (index, state) in shards.into_iter().enumerate() {
                let (queue, batches) = bounded(BATCHES);
                queues.push(queue);
                threads.push(scope.spawn(move || fold(state, &batches, index, ahead, f)));
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

    /// Reads all records from `seq` on, with a new reader after each concurrent compaction.
    fn read_all(
        &self,
        seq: u64,
        queues: &[Sender<Arc<Batch>>],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Summary, Error> {
        let mut summary = Summary::default();
        let mut read = self.read_batches(seq, queues, &mut summary, progress);
        for _ in 0..MAX_REOPENINGS {
            if !matches!(read, Err(Error::Replaced { .. })) {
                break;
            }
            let next = summary.last_seq.map_or(seq, |last| last + 1);
            let again = Self { blocks: self.blocks, ..Self::open_with(self.fs.clone(), &self.dir)? };
            if again.floor_seq() >= next {
                // The records that come next were dropped and are in a snapshot now. This replay did not begin with
                // that one.
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
        let mut batches = Batches::new(queues);
        let mut done = 0;
        for (index, segment) in self.segments().enumerate() {
            if segment.next_seq.is_some_and(|next| next <= seq) {
                continue;
            }
            let mut part = Summary::default();
            let read = self.frames(index, seq, &mut part, |part, frame| {
                part.records += batches.add(seq, &frame);
                part.first_seq = part.first_seq.or_else(|| frame.seqs().find(|&first| first >= seq));
                part.last_seq = Some(frame.header.next_seq() - 1);
            });
            summary.merge(part);
            if read.is_err() {
                // What was read until now is handed out, because reading may go on behind it.
                batches.hand_out();
                return read;
            }
            done += segment.bytes;
            progress(Progress { done, total });
        }
        batches.hand_out();
        Ok(())
    }
}

impl Batch {
    fn fits(&self, len: usize) -> bool {
        self.used + len <= self.bytes.bytes().len()
    }

    /// Takes over a frame's records from `from` on, and returns how many.
    fn add(&mut self, from: u64, frame: &FrameRecords<'_>) -> u64 {
        let (start, payload) = (self.used, frame.payload);
        let mut added = 0;
        self.bytes.bytes_mut()[start..start + payload.len()].copy_from_slice(payload);
        self.used = (start + payload.len()).next_multiple_of(16);
        let shards = self.by_shard.len() as u64;
        let mut at = start + RECORD_HEADER_LEN;
        for (seq, RecordRef { kind, schema, key_hash, payload }) in frame.numbered() {
            if seq >= from {
                added += 1;
                // A batch is no longer than a frame may be, or than `BATCH_BYTES`.
                let (start, len) = (at as u32, payload.len() as u32);
                let shard = (key_hash % shards) as usize;
                self.by_shard[shard].push(RecordPosition { seq, key_hash, start, len, kind, schema });
            }
            at += record_len(payload.len());
        }
        added
    }

    fn payload(&self, place: &RecordPosition) -> &[u8] {
        let start = place.start as usize;
        self.bytes.bytes().get(start..start + place.len as usize).unwrap_or_default()
    }
}

/// Batches on their way to the shards. One that all of them are done with is filled again.
struct Batches<'q> {
    queues: &'q [Sender<Arc<Batch>>],
    filling: Batch,
    handed_out: Vec<Arc<Batch>>,
}

impl<'q> Batches<'q> {
    fn new(queues: &'q [Sender<Arc<Batch>>]) -> Self {
        Self { queues, filling: Self::empty(queues.len()), handed_out: Vec::new() }
    }

    fn empty(shards: usize) -> Batch {
        Batch { by_shard: vec![Vec::new(); shards], ..Batch::default() }
    }

    fn add(&mut self, from: u64, frame: &FrameRecords<'_>) -> u64 {
        let payload = frame.payload;
        if !self.filling.fits(payload.len()) {
            self.hand_out();
            if !self.filling.fits(payload.len()) {
                self.filling.bytes = AlignedBuf::zeroed(payload.len().max(BATCH_BYTES));
            }
        }
        self.filling.add(from, frame)
    }

    /// Gives what has been filled to every shard.
    fn hand_out(&mut self) {
        if self.filling.used == 0 {
            return;
        }
        let spare = self.handed_out.iter_mut().position(|batch| Arc::get_mut(batch).is_some());
        let spare = spare.and_then(|index| Arc::into_inner(self.handed_out.swap_remove(index)));
        let mut next = spare.unwrap_or_else(|| Self::empty(self.queues.len()));
        next.used = 0;
        next.by_shard.iter_mut().for_each(Vec::clear);
        let full = Arc::new(std::mem::replace(&mut self.filling, next));
        for queue in self.queues {
            // A shard that panicked is noticed when it is joined.
            let _ = queue.send(full.clone());
        }
        self.handed_out.push(full);
    }
}

fn fold<S>(
    mut state: S,
    batches: &Receiver<Arc<Batch>>,
    index: usize,
    ahead: &(impl Fn(&S, &[u64]) + Sync),
    f: &(impl Fn(&mut S, u64, RecordRef<'_>) + Sync),
) -> S {
    let mut keys = Vec::with_capacity(AHEAD);
    for batch in batches {
        for places in batch.by_shard[index].chunks(AHEAD) {
            keys.clear();
            keys.extend(places.iter().map(|place| place.key_hash));
            ahead(&state, &keys);
            for place in places {
                let RecordPosition { seq, key_hash, kind, schema, .. } = *place;
                f(&mut state, seq, RecordRef { kind, schema, key_hash, payload: batch.payload(place) });
            }
        }
    }
    state
}
