//! The records of a good frame, whether it holds them one by one or packed.
//!
//! Owns: the buffer that blocks are unpacked into.
//!
//! Invariant: a block gives all of its records, or none and the reason.
//!
//! Must not know: what a record means.

use std::iter::Zip;
use std::path::{Path, PathBuf};

use crate::error::{Damage, Error};
use crate::format::{
    AlignedBuf, BlockFormat, BlockHead, FrameHeader, FrameKind, Records, SeqNumbers, UnpackError,
    unpack_block,
};
use crate::read::segment_check::GoodFrame;

/// Unpacks frames, one at a time.
#[derive(Debug)]
pub(crate) struct Unpacker {
    format: Option<&'static dyn BlockFormat>,
    dir: PathBuf,
    buf: AlignedBuf,
}

/// The records of a frame.
#[derive(Debug)]
pub(crate) struct FrameRecords<'a> {
    pub(crate) header: FrameHeader,
    /// The records one behind the other, at an address divisible by 16.
    pub(crate) payload: &'a [u8],
    gaps: &'a [u8],
}

impl Unpacker {
    pub(crate) fn new(format: Option<&'static dyn BlockFormat>, dir: &Path) -> Self {
        Self { format, dir: dir.to_owned(), buf: AlignedBuf::default() }
    }

    /// Returns the records of a frame; `None` for a frame of another kind. `file` is named in
    /// errors. A block that has its checksums and cannot be unpacked is an error, as a record that
    /// cannot be decoded is one for the application: not the disk is at fault, but the release that
    /// wrote it.
    pub(crate) fn records<'a>(
        &'a mut self,
        file: &str,
        frame: &GoodFrame<'a>,
    ) -> Result<Option<FrameRecords<'a>>, Error> {
        let header = frame.header;
        match header.kind {
            FrameKind::Marker | FrameKind::Seal => return Ok(None),
            FrameKind::Records => {
                return Ok(Some(FrameRecords { header, payload: frame.payload, gaps: &[] }));
            }
            FrameKind::Block => {}
        }
        let Some(format) = self.format else {
            let what =
                format!("{file} has packed records, and this reader was not told their layout");
            return Err(Error::Invalid(what));
        };
        let refused = |why| refusal(&self.dir, damage_of(file, frame), why);
        let head = BlockHead::decode(frame.payload, header.count)
            .ok_or_else(|| refused(UnpackError::Bad))?;
        unpack_block(&head, frame.payload, format, &mut self.buf).map_err(refused)?;
        Ok(Some(FrameRecords { header, payload: self.buf.bytes(), gaps: head.gaps(frame.payload) }))
    }
}

/// What is damaged if the block in a frame cannot be unpacked.
pub(crate) fn damage_of(file: &str, frame: &GoodFrame<'_>) -> Damage {
    let header = &frame.header;
    let records = Some((header.first_seq, header.next_seq() - 1));
    let (offset, len) = (frame.end - header.frame_len(), header.frame_len());
    Damage { file: file.to_owned(), offset, len, records, what: "a block cannot be unpacked" }
}

/// Returns the error for a block that cannot be unpacked.
pub(crate) fn refusal(dir: &Path, damage: Damage, why: UnpackError) -> Error {
    match why {
        UnpackError::Bad => Error::Corrupt { dir: dir.to_owned(), damage: vec![damage] },
        UnpackError::Newer(found) => {
            let supported = "LZ4 and the layouts of this release".to_owned();
            Error::NewerFormat { file: damage.file.into(), found, supported }
        }
    }
}

impl<'a> FrameRecords<'a> {
    /// The numbers of its records.
    pub(crate) fn seqs(&self) -> SeqNumbers<'a> {
        SeqNumbers::new(self.header.first_seq, self.gaps)
    }

    /// Its records with their numbers.
    pub(crate) fn numbered(&self) -> Zip<SeqNumbers<'a>, Records<'a>> {
        self.seqs().zip(Records::new(self.payload))
    }
}
