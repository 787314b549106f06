//! Construction of a segment that replaces others, for compaction and repair.
//!
//! Owns: the bytes of a `REWRITTEN` segment and the order of its publication.
//!
//! Invariants: the new file is complete, synced and read back before it gets a name. Replaced files
//! are unlinked only after that name is durable.
//!
//! Must not know: which records are kept.

use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::format::segment_name;
use crate::format::{
    BLOCK_BYTES, BLOCK_RECORDS, BlockFormat, FRAME_HEADER_LEN, FrameHeader, FrameKind, HEADER_LEN,
    INCOMPAT_BLOCKS, INCOMPAT_REWRITTEN, Link, MINOR, RecordRef, Records, SEAL_LEN, Seal,
    SegmentHeader, TIME_UNKNOWN, frame_len, next_digest, pack_block, payload_crc, put_record,
    record_len,
};
use crate::fs::{Fs, FsFile, SyncSite, sync, write_all_at};
use crate::read::scan::{Extent, Scanner, Step};

/// A frame is cut when it has this many bytes.
const FRAME_BYTES: usize = 1 << 20;

/// The identity of the new segment.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) store: [u8; 16],
    pub(crate) number: u32,
    pub(crate) stands_to: u32,
    pub(crate) first_seq: u64,
    pub(crate) epoch: u64,
    pub(crate) prev_number: u32,
    pub(crate) prev: Link,
    pub(crate) fingerprint: [u8; 16],
    /// What its successor says of the original. `None` for the last segment, which has no successor
    /// yet: then it stands for itself, up to this sequence number at least.
    pub(crate) alias: Result<Link, u64>,
    /// The layout to pack records in.
    pub(crate) blocks: Option<&'static dyn BlockFormat>,
}

/// A segment being built under a temporary name.
#[derive(Debug)]
pub(crate) struct Builder<'a> {
    fs: &'a dyn Fs,
    dir: &'a Path,
    tmp: PathBuf,
    file: Box<dyn FsFile>,
    header: SegmentHeader,
    own_alias: Option<u64>,
    offset: u64,
    frames: Vec<[u8; FRAME_HEADER_LEN]>,
    /// The frame being filled: its first sequence number, its count, its latest time, its bytes.
    first_seq: u64,
    count: u32,
    frame_max_time: i64,
    bytes: Vec<u8>,
    next_seq: u64,
    records: u64,
    max_time: i64,
    blocks: Option<&'static dyn BlockFormat>,
    /// Records to be packed, as the payload of a frame, and their numbers.
    unpacked: Vec<u8>,
    seqs: Vec<u64>,
}

impl<'a> Builder<'a> {
    pub(crate) fn create(
        fs: &'a dyn Fs,
        dir: &'a Path,
        identity: &Identity,
    ) -> Result<Self, Error> {
        let tmp = dir.join(format!("tmp-maint-{:08x}", identity.number));
        let _ = fs.remove(&tmp);
        let file = fs.create_new(&tmp).map_err(|e| Error::io("write", &tmp, e))?;
        let header = SegmentHeader {
            minor: MINOR,
            store: identity.store,
            number: identity.number,
            stands_to: identity.stands_to,
            first_seq: identity.first_seq,
            epoch: identity.epoch,
            nonce: fs.random(),
            created_ms: fs.now_ms(),
            prev_number: identity.prev_number,
            prev: identity.prev,
            fingerprint: identity.fingerprint,
            compat: 0,
            // Also if nothing in it can be packed: it was tried, and is not tried again.
            incompat: INCOMPAT_REWRITTEN
                | if identity.blocks.is_some() { INCOMPAT_BLOCKS } else { 0 },
            born_len: HEADER_LEN as u64,
            alias: identity.alias.unwrap_or_default(),
        };
        Ok(Self {
            fs,
            dir,
            tmp,
            file,
            own_alias: identity.alias.err(),
            offset: HEADER_LEN as u64,
            frames: Vec::new(),
            first_seq: 0,
            count: 0,
            frame_max_time: TIME_UNKNOWN,
            bytes: vec![0; FRAME_HEADER_LEN],
            next_seq: header.first_seq,
            records: 0,
            max_time: TIME_UNKNOWN,
            blocks: identity.blocks,
            unpacked: Vec::new(),
            seqs: Vec::new(),
            header,
        })
    }

    /// Adds a record; numbers must grow. `max_time` is that of the frame it comes from.
    pub(crate) fn add(
        &mut self,
        seq: u64,
        record: &RecordRef<'_>,
        max_time: i64,
    ) -> Result<(), Error> {
        if self.blocks.is_none() {
            return self.add_plain(seq, record, max_time);
        }
        let is_far = self.seqs.first().is_some_and(|first| seq - first >= u64::from(u32::MAX));
        let is_full = self.unpacked.len() + record_len(record.payload.len()) > BLOCK_BYTES;
        if is_full || is_far || self.seqs.len() == BLOCK_RECORDS {
            self.end_block()?;
        }
        put_record(&mut self.unpacked, record);
        self.seqs.push(seq);
        self.frame_max_time = self.frame_max_time.max(max_time);
        Ok(())
    }

    /// Writes the records that wait to be packed: as a block, or as records if that is not
    /// possible.
    fn end_block(&mut self) -> Result<(), Error> {
        let (Some(format), Some(&first), Some(&last)) =
            (self.blocks, self.seqs.first(), self.seqs.last())
        else {
            return Ok(());
        };
        let (unpacked, seqs) = (std::mem::take(&mut self.unpacked), std::mem::take(&mut self.seqs));
        let max_time = std::mem::replace(&mut self.frame_max_time, TIME_UNKNOWN);
        match pack_block(format, &unpacked, &seqs) {
            Some(payload) => {
                let (span, records) = ((last - first + 1) as u32, seqs.len() as u32);
                self.write_block(first, span, records, max_time, &payload)?;
            }
            None => {
                for (seq, record) in seqs.iter().zip(Records::new(&unpacked)) {
                    self.add_plain(*seq, &record, max_time)?;
                }
                self.end_frame()?;
            }
        }
        (self.unpacked, self.seqs) = (unpacked, seqs);
        self.unpacked.clear();
        self.seqs.clear();
        Ok(())
    }

    /// Adds a block as it is.
    pub(crate) fn add_block(
        &mut self,
        frame: &FrameHeader,
        records: u32,
        payload: &[u8],
    ) -> Result<(), Error> {
        self.end_block()?;
        self.end_frame()?;
        self.header.incompat |= INCOMPAT_BLOCKS;
        self.write_block(frame.first_seq, frame.count, records, frame.max_time, payload)
    }

    fn write_block(
        &mut self,
        first: u64,
        span: u32,
        records: u32,
        max_time: i64,
        block: &[u8],
    ) -> Result<(), Error> {
        self.bytes.extend_from_slice(block);
        self.write_frame(FrameKind::Block, first, span, max_time)?;
        self.max_time = self.max_time.max(max_time);
        self.records += u64::from(records);
        self.next_seq = first + u64::from(span);
        Ok(())
    }

    fn add_plain(&mut self, seq: u64, record: &RecordRef<'_>, max_time: i64) -> Result<(), Error> {
        let continues = self.count > 0 && seq == self.next_seq;
        let fits = self.bytes.len() + record_len(record.payload.len()) <= FRAME_BYTES;
        if !(continues && fits) {
            self.end_frame()?;
            self.first_seq = seq;
        }
        put_record(&mut self.bytes, record);
        self.count += 1;
        self.records += 1;
        self.next_seq = seq + 1;
        self.frame_max_time = self.frame_max_time.max(max_time);
        Ok(())
    }

    /// Ends the last frame and returns the length of the file once it is sealed.
    pub(crate) fn len_at_end(&mut self) -> Result<u64, Error> {
        self.end_block()?;
        self.end_frame()?;
        Ok(self.offset + frame_len(SEAL_LEN))
    }

    /// Gives the file up.
    pub(crate) fn discard(self) {
        let _ = self.fs.remove(&self.tmp);
    }

    /// Seals, syncs and reads back the file, gives it its name, and makes the name durable. Returns
    /// its length.
    pub(crate) fn finish(mut self) -> Result<u64, Error> {
        let done = self.try_finish();
        if done.is_err() {
            let _ = self.fs.remove(&self.tmp);
        }
        done
    }

    fn try_finish(&mut self) -> Result<u64, Error> {
        self.header.born_len = self.len_at_end()?;
        if let Some(last_seq) = self.own_alias {
            let last_seq = last_seq.max(self.next_seq - 1);
            // No segment links to this one yet, so any value serves as digest, as long as the next
            // segment repeats it.
            self.header.alias =
                Link { valid_len: self.header.born_len, last_seq, digest: self.header.nonce };
        }
        let digest = self
            .frames
            .iter()
            .fold(self.header.digest(), |digest, frame| next_digest(digest, frame));
        let seal = Seal {
            count: self.records,
            first_seq: self.header.first_seq,
            last_seq: self.next_seq - 1,
            digest,
            min_time: TIME_UNKNOWN,
            max_time: self.max_time,
        };
        self.bytes.extend_from_slice(&seal.encode());
        self.write_frame(FrameKind::Seal, self.next_seq, 0, self.max_time)?;
        let page = self.header.encode();
        let written =
            write_all_at(&*self.file, &page, 0).and_then(|()| sync(&*self.file, SyncSite::Rewrite));
        written.map_err(|e| Error::io("write", &self.tmp, e))?;
        self.verify()?;
        let path = self.dir.join(segment_name(self.header.number, self.header.first_seq));
        let named = self
            .fs
            .rename(&self.tmp, &path)
            .and_then(|()| self.fs.sync_dir(self.dir, SyncSite::RewriteDir));
        named.map_err(|e| Error::io("write", &path, e))?;
        Ok(self.header.born_len)
    }

    fn end_frame(&mut self) -> Result<(), Error> {
        if self.count == 0 {
            return Ok(());
        }
        self.write_frame(FrameKind::Records, self.first_seq, self.count, self.frame_max_time)?;
        self.max_time = self.max_time.max(self.frame_max_time);
        self.count = 0;
        self.frame_max_time = TIME_UNKNOWN;
        Ok(())
    }

    fn write_frame(
        &mut self,
        kind: FrameKind,
        first_seq: u64,
        count: u32,
        max_time: i64,
    ) -> Result<(), Error> {
        let payload = &self.bytes[FRAME_HEADER_LEN..];
        let header = FrameHeader {
            payload_len: payload.len() as u32,
            pcrc: payload_crc(self.header.nonce, first_seq, payload),
            first_seq,
            // The file gets its name only when all of it is durable.
            durable_off: self.offset,
            count,
            kind,
            max_time,
        };
        let raw = header.encode(self.header.nonce, self.offset);
        self.bytes[..FRAME_HEADER_LEN].copy_from_slice(&raw);
        self.bytes.resize(header.frame_len() as usize, 0);
        write_all_at(&*self.file, &self.bytes, self.offset)
            .map_err(|e| Error::io("write", &self.tmp, e))?;
        self.frames.push(raw);
        self.offset += header.frame_len();
        self.bytes.truncate(FRAME_HEADER_LEN);
        Ok(())
    }

    fn misread(&self, what: &str) -> Result<(), Error> {
        let text =
            format!("what was written reads back differently at byte {}: {what}", self.offset);
        Err(Error::io("verify", &self.tmp, std::io::Error::other(text)))
    }

    /// Reads the file back, from the disk if the system lets us.
    fn verify(&self) -> Result<(), Error> {
        self.file.drop_cache();
        let mut scanner =
            Scanner::new(&*self.file, &self.tmp, &self.header, Extent::Fixed(self.header.born_len));
        loop {
            match scanner.step()? {
                Step::Frame(_) => {}
                Step::End if scanner.records == self.records && scanner.sealed => return Ok(()),
                Step::End => return self.misread("its end comes too early"),
                Step::Bad(what) => return self.misread(what),
            }
        }
    }
}
