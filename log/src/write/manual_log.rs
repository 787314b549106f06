//! The log without its thread, one step at a time: for the fault suite, which crashes at each call.
//!
//! Owns: nothing. Its caller determines the order of calls, and it uses the same recovery and
//! writer as the log.
//!
//! Must not know: queues and waiters.

use std::path::Path;
use std::sync::Arc;

use super::batch::Batch;
use super::directory_lock::create_durably;
use super::options::{LogOptions, Record};
use super::recover::{Plan, Recovery, recover};
use super::writer::Writer;
use crate::directory::lock::{Guard, LOCK, acquire};
use crate::error::Error;
use crate::format::{HEADER_LEN, RecordRef, put_record};
use crate::fs::Fs;

/// A log that is driven step by step.
#[derive(Debug)]
pub struct ManualLog {
    writer: Writer,
    next_seq: u64,
    batch: Option<Batch>,
    _lock: Guard,
}

impl ManualLog {
    /// As [`Log::open_with`](crate::Log::open_with).
    pub fn open(
        fs: Arc<dyn Fs>,
        dir: &Path,
        options: &LogOptions,
    ) -> Result<(Self, Recovery), Error> {
        create_durably(&*fs, dir)?;
        let lock = acquire(&*fs, dir, LOCK)?;
        let plan = Plan {
            fs,
            dir,
            fingerprint: options.fingerprint,
            accepts: &options.accepts,
            segment_bytes: options.segment_bytes.max(HEADER_LEN as u64 * 2),
            check: options.check,
            begin_segment: options.begin_segment,
            blocks: options.blocks,
            pack_from: options.pack_from,
            repack_bytes: options.repack_bytes,
        };
        let (writer, recovery) = recover(&plan)?;
        Ok((Self { writer, next_seq: recovery.next_seq, batch: None, _lock: lock }, recovery))
    }

    /// Adds a record to the next frame and returns its sequence number.
    pub fn append(&mut self, record: Record<'_>) -> u64 {
        let seq = self.next_seq;
        let batch = self.batch.get_or_insert_with(|| Batch::new(seq, Vec::new()));
        let Record { kind, schema, key_hash, time_ms, payload } = record;
        put_record(&mut batch.bytes, &RecordRef { kind, schema, key_hash, payload });
        batch.count += 1;
        batch.min_time = batch.min_time.min(time_ms);
        batch.max_time = batch.max_time.max(time_ms);
        self.next_seq += 1;
        seq
    }

    /// Writes the frame.
    pub fn write(&mut self) -> Result<(), Error> {
        self.finish();
        self.writer.pump()
    }

    /// Writes and syncs.
    pub fn sync(&mut self) -> Result<(), Error> {
        self.finish();
        self.writer.sync()
    }

    /// Packs what small batches have left, once it is enough.
    pub fn repack(&mut self) -> Result<(), Error> {
        self.finish();
        self.writer.repack()
    }

    /// Writes, syncs, and leaves a sync marker.
    pub fn mark(&mut self) -> Result<(), Error> {
        self.finish();
        self.writer.mark()
    }

    /// Closes in good order.
    pub fn close(mut self) -> Result<(), Error> {
        self.finish();
        self.writer.close()
    }

    /// The last sequence number acknowledged as handed to the system.
    pub fn written_seq(&self) -> u64 {
        self.writer.written_next() - 1
    }

    /// The last sequence number acknowledged as durable.
    pub fn durable_seq(&self) -> u64 {
        self.writer.durable_next() - 1
    }

    fn finish(&mut self) {
        if let Some(batch) = self.batch.take() {
            self.writer.push(batch);
        }
    }
}
