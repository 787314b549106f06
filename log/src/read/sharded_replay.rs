//! Sharded replay: one thread reads, checks and sorts; the others fold, each key always on the same
//! thread.
//!
//! Owns: cutting the stream of frames into batches and handing them out.
//!
//! Invariants: records with one key are seen in order by one shard; a shard looks at its own
//! records only; memory is bounded by a few batches, however large the log.
//!
//! Must not know: what a record means.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::error::{Damage, Error};
use crate::format::{
    AlignedBuf, BlockHead, FrameKind, OwnedBlock, RECORD_HEADER_LEN, RecordRef, SeqNumbers,
    UnpackError, record_len,
};
use crate::read::progress::Progress;
use crate::read::reader::{Reader, Summary};
use crate::read::segment_check::GoodFrame;
use crate::read::unpack::{FrameRecords, Unpacker, damage_of, refusal};

/// A batch is handed out when it has this many bytes.
const BATCH_BYTES: usize = 512 << 10;
/// The number of batches that may wait for each shard.
const BATCHES: usize = 4;

/// The number of records whose keys are prefetched.
const AHEAD: usize = 16;

/// How often a compaction may take a file away.
const MAX_REOPENINGS: u32 = 8;

/// Payloads of frames, one behind the other at multiples of 16, and where each shard's records are
/// in them.
#[derive(Default)]
struct Batch {
    bytes: AlignedBuf,
    used: usize,
    by_shard: Vec<Vec<RecordPosition>>,
}

/// The position and header of a record. The sorting thread has read the header, so the folding
/// threads need not read it again.
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

/// How an application folds the records of a block without making records of them.
///
/// A block is prepared once, on the thread that reads; all shards read what was prepared. Each gets
/// the places of the records that it folds.
pub trait BlockFold<S>: Sync {
    /// A block as the shards read it.
    type Prepared: Send + Sync;

    /// Prepares a block.
    ///
    /// # Errors
    ///
    /// [`UnpackError`], for a block that [`BlockFormat::unpack`](crate::BlockFormat::unpack)
    /// refuses too.
    fn prepare(&self, block: OwnedBlock) -> Result<Self::Prepared, UnpackError>;

    /// Returns the keys of its records, in order.
    fn keys<'p>(&self, block: &'p Self::Prepared) -> &'p [u64];

    /// Folds some records of a block, in order.
    ///
    /// # Errors
    ///
    /// As [`prepare`](Self::prepare).
    fn fold(
        &self,
        state: &mut S,
        block: &Self::Prepared,
        records: &[BlockRecord],
    ) -> Result<(), UnpackError>;
}

/// A record of a block, by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockRecord {
    /// Its sequence number.
    pub seq: u64,
    /// Its key.
    pub key_hash: u64,
    /// Its place among the records of the block, from 0 on.
    pub place: usize,
}

/// The fold of a reader whose blocks become records.
enum NoFold {}

impl<S> BlockFold<S> for NoFold {
    type Prepared = ();

    fn prepare(&self, _: OwnedBlock) -> Result<(), UnpackError> {
        match *self {}
    }

    fn keys<'p>(&self, (): &'p ()) -> &'p [u64] {
        match *self {}
    }

    fn fold(&self, _: &mut S, (): &(), _: &[BlockRecord]) -> Result<(), UnpackError> {
        match *self {}
    }
}

/// What a shard gets to do.
enum Work<P> {
    Records(Arc<Batch>),
    Block(Arc<BlockBatch<P>>),
}

impl<P> Clone for Work<P> {
    fn clone(&self) -> Self {
        match self {
            Self::Records(batch) => Self::Records(batch.clone()),
            Self::Block(block) => Self::Block(block.clone()),
        }
    }
}

/// A prepared block, and which of its records each shard folds.
struct BlockBatch<P> {
    prepared: P,
    by_shard: Vec<Vec<BlockRecord>>,
    /// What is damaged if a shard cannot read it.
    damage: Damage,
}

/// The state of a shard, and the first block that it could not read.
struct Folded<S> {
    state: S,
    refused: Option<(Damage, UnpackError)>,
}

impl Reader {
    /// Calls `f` with every record from `seq` on, with one thread per shard and one that reads.
    /// Records with one `key_hash` go to one shard, in order; different keys may overtake each
    /// other. `progress` is called after each segment. `ahead` gets the keys of the next few
    /// records of a shard, so that it can prefetch their data. Uses some 4 MiB of memory, and 32 B
    /// per record in flight.
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
    /// The system's error; the records folded until then are of no use. A concurrent compaction is
    /// not an error, because the replacing files are read instead, unless it dropped records that
    /// were still to come: [`Error::Replaced`].
    pub fn for_each_sharded<S: Send>(
        &self,
        seq: u64,
        shards: Vec<S>,
        ahead: impl Fn(&S, &[u64]) + Sync,
        f: impl Fn(&mut S, u64, RecordRef<'_>) + Sync,
        mut progress: impl FnMut(Progress),
    ) -> Result<(Vec<S>, Summary), Error> {
        self.sharded(seq, shards, &Handlers { ahead, f, blocks: None::<&NoFold> }, &mut progress)
    }

    /// As [`for_each_sharded`](Self::for_each_sharded), with blocks that are folded as they are:
    /// `blocks` gets their records instead of `f`. A block that a shard refuses is an error; then
    /// the records folded are of no use.
    ///
    /// # Errors
    ///
    /// As [`for_each_sharded`](Self::for_each_sharded).
    pub fn fold_sharded<S: Send>(
        &self,
        seq: u64,
        shards: Vec<S>,
        ahead: impl Fn(&S, &[u64]) + Sync,
        f: impl Fn(&mut S, u64, RecordRef<'_>) + Sync,
        blocks: &impl BlockFold<S>,
        mut progress: impl FnMut(Progress),
    ) -> Result<(Vec<S>, Summary), Error> {
        self.sharded(seq, shards, &Handlers { ahead, f, blocks: Some(blocks) }, &mut progress)
    }

    fn sharded<S: Send, A, F, B>(
        &self,
        seq: u64,
        shards: Vec<S>,
        handlers: &Handlers<'_, A, F, B>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(Vec<S>, Summary), Error>
    where
        A: Fn(&S, &[u64]) + Sync,
        F: Fn(&mut S, u64, RecordRef<'_>) + Sync,
        B: BlockFold<S>,
    {
        if shards.is_empty() {
            return Err(Error::Invalid("a replay needs at least one shard".into()));
        }
        std::thread::scope(|scope| {
            let mut queues = Vec::new();
            let mut threads = Vec::new();
            for (index, state) in shards.into_iter().enumerate() {
                let (queue, work) = bounded(BATCHES);
                queues.push(queue);
                threads.push(scope.spawn(move || handlers.work(state, &work, index)));
            }
            let read = self.read_all(seq, &queues, handlers.blocks, progress);
            drop(queues);
            let (mut states, mut refused) = (Vec::new(), Vec::new());
            for thread in threads {
                match thread.join() {
                    Ok(folded) => {
                        states.push(folded.state);
                        refused.extend(folded.refused);
                    }
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            match refused.into_iter().min_by_key(|(damage, _)| damage.records) {
                Some((damage, why)) => Err(refusal(&self.dir, damage, why)),
                None => Ok((states, read?)),
            }
        })
    }

    /// Reads all records from `seq` on, with a new reader after each concurrent compaction.
    fn read_all<S, B: BlockFold<S>>(
        &self,
        seq: u64,
        queues: &[Sender<Work<B::Prepared>>],
        blocks: Option<&B>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Summary, Error> {
        let mut summary = Summary::default();
        let mut read = self.read_batches(seq, queues, blocks, &mut summary, progress);
        for _ in 0..MAX_REOPENINGS {
            if !matches!(read, Err(Error::Replaced { .. })) {
                break;
            }
            let next = summary.last_seq.map_or(seq, |last| last + 1);
            let again =
                Self { blocks: self.blocks, ..Self::open_with(self.fs.clone(), &self.dir)? };
            if again.floor_seq() >= next {
                // The records that come next were dropped and are in a snapshot now. This replay
                // did not begin with that one.
                break;
            }
            summary.damage.clear();
            read = again.read_batches(next, queues, blocks, &mut summary, progress);
        }
        read.map(|()| summary)
    }

    fn read_batches<S, B: BlockFold<S>>(
        &self,
        seq: u64,
        queues: &[Sender<Work<B::Prepared>>],
        blocks: Option<&B>,
        summary: &mut Summary,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(), Error> {
        let total = self
            .segments()
            .filter(|s| s.next_seq.is_none_or(|next| next > seq))
            .map(|s| s.bytes)
            .sum();
        summary.damage.extend_from_slice(self.damage());
        let mut batches = Batches::new(queues);
        let mut done = 0;
        for (index, segment) in self.segments().enumerate() {
            if segment.next_seq.is_some_and(|next| next <= seq) {
                continue;
            }
            let mut part = Summary::default();
            let (mut unpacker, mut failed) = (Unpacker::new(self.blocks, &self.dir), None);
            let read = self.good_frames(index, &mut part, |part, frame| {
                if frame.header.next_seq() <= seq {
                    return true;
                }
                let first = part.first_seq;
                let added = match blocks {
                    Some(blocks) if frame.header.kind == FrameKind::Block => {
                        let damage = damage_of(&segment.file, &frame);
                        let added = batches.add_block(seq, &frame, blocks, damage.clone());
                        added.map(Some).map_err(|why| refusal(&self.dir, damage, why))
                    }
                    _ => unpacker.records(&segment.file, &frame).map(|records| {
                        records.map(|records| {
                            (batches.add(seq, &records), records.seqs().find(|&first| first >= seq))
                        })
                    }),
                };
                match added {
                    Ok(Some((records, from))) => {
                        part.records += records;
                        part.first_seq = first.or(from);
                        part.last_seq = Some(frame.header.next_seq() - 1);
                    }
                    Ok(None) => {}
                    Err(error) => failed = Some(error),
                }
                failed.is_none()
            });
            summary.merge(part);
            if let Err(error) = failed.map_or(read, Err) {
                // What was read until now is handed out, because reading may go on behind it.
                batches.hand_out();
                return Err(error);
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
                self.by_shard[shard].push(RecordPosition {
                    seq,
                    key_hash,
                    start,
                    len,
                    kind,
                    schema,
                });
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
struct Batches<'q, P> {
    queues: &'q [Sender<Work<P>>],
    filling: Batch,
    handed_out: Vec<Arc<Batch>>,
}

impl<'q, P> Batches<'q, P> {
    fn new(queues: &'q [Sender<Work<P>>]) -> Self {
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

    /// Hands out a block. Returns how many records from `from` on it has, and the number of the
    /// first one.
    fn add_block<S, B: BlockFold<S, Prepared = P>>(
        &mut self,
        from: u64,
        frame: &GoodFrame<'_>,
        blocks: &B,
        damage: Damage,
    ) -> Result<(u64, Option<u64>), UnpackError> {
        let head = BlockHead::decode(frame.payload, frame.header.count).ok_or(UnpackError::Bad)?;
        let prepared = blocks.prepare(head.take(frame.payload)?)?;
        let keys = blocks.keys(&prepared);
        if keys.len() != head.records as usize {
            return Err(UnpackError::Bad);
        }
        let shards = self.queues.len();
        let mut by_shard = vec![Vec::with_capacity(keys.len() / shards * 9 / 8 + 16); shards];
        let (mut records, mut first) = (0, None);
        let seqs = SeqNumbers::new(frame.header.first_seq, head.gaps(frame.payload));
        for ((place, &key_hash), seq) in
            keys.iter().enumerate().zip(seqs).filter(|(_, seq)| *seq >= from)
        {
            (records, first) = (records + 1, first.or(Some(seq)));
            by_shard[(key_hash % shards as u64) as usize].push(BlockRecord {
                seq,
                key_hash,
                place,
            });
        }
        // Records before the block come first.
        self.hand_out();
        self.send(&Work::Block(Arc::new(BlockBatch { prepared, by_shard, damage })));
        Ok((records, first))
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
        self.send(&Work::Records(full.clone()));
        self.handed_out.push(full);
    }

    fn send(&self, work: &Work<P>) {
        for queue in self.queues {
            // A shard that panicked is noticed when it is joined.
            let _ = queue.send(work.clone());
        }
    }
}

/// What the threads of a fold do with records and blocks.
struct Handlers<'h, A, F, B> {
    ahead: A,
    f: F,
    /// Without it, blocks become records.
    blocks: Option<&'h B>,
}

impl<A, F, B> Handlers<'_, A, F, B> {
    /// Folds everything that one shard gets.
    fn work<S>(&self, state: S, work: &Receiver<Work<B::Prepared>>, index: usize) -> Folded<S>
    where
        A: Fn(&S, &[u64]) + Sync,
        F: Fn(&mut S, u64, RecordRef<'_>) + Sync,
        B: BlockFold<S>,
    {
        let mut folded = Folded { state, refused: None };
        let mut keys = Vec::with_capacity(AHEAD);
        for work in work {
            let state = &mut folded.state;
            match (&work, self.blocks) {
                _ if folded.refused.is_some() => {}
                (Work::Records(batch), _) => {
                    for places in batch.by_shard[index].chunks(AHEAD) {
                        keys.clear();
                        keys.extend(places.iter().map(|place| place.key_hash));
                        (self.ahead)(state, &keys);
                        for place in places {
                            let RecordPosition { seq, key_hash, kind, schema, .. } = *place;
                            (self.f)(
                                state,
                                seq,
                                RecordRef { kind, schema, key_hash, payload: batch.payload(place) },
                            );
                        }
                    }
                }
                (Work::Block(block), Some(blocks)) => {
                    if let Err(why) = blocks.fold(state, &block.prepared, &block.by_shard[index]) {
                        folded.refused = Some((block.damage.clone(), why));
                    }
                }
                (Work::Block(_), None) => {}
            }
        }
        folded
    }
}
