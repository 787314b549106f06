//! Blocks of attempts: the layout in which maintenance packs them.
//!
//! Owns: the columns, and the conversion of records to and from them.
//!
//! Invariants: a record comes back equal in every byte. What the columns do not hold exactly goes
//! into the block as a whole record: every other kind and version, and an attempt that the columns
//! would change. A released layout never changes, as that of a record.
//!
//! Must not know: frames, files, what attempts teach.

mod column;
mod layout;
mod pack;
#[cfg(test)]
mod tests;
mod unpack;
mod url_parts;

use fetchwise_log::{Block, BlockFormat, PackedBlock, RecordRef, UnpackError};

use super::codes::VERSION;
use pack::{Packer, Row};
use unpack::unpack;

pub(super) use column::Column;
pub(super) use layout::{
    ArchivedHotV1, ArchivedOutcomeV1, COLUMNS, FLOATS, ID_TIMES, LITERAL_LENS, LITERALS,
    MAX_VALUE_BYTES, NUMBERS, SHAPE_TABLE, SHAPES, URL_LENS, URLS, WHOLE, op,
};
pub(super) use url_parts::{host, section};

/// The layout of this release's blocks, for readers and for compaction.
pub(crate) static BLOCKS: AttemptBlocks = AttemptBlocks;

/// The layout of blocks of attempts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttemptBlocks;

impl BlockFormat for AttemptBlocks {
    fn pack(&self, records: &[RecordRef<'_>], whole: &[usize]) -> Option<PackedBlock> {
        if records.len() > usize::from(u16::MAX) {
            return None;
        }
        let mut rows: Vec<Option<Row<'_>>> = records.iter().map(Row::of).collect();
        for &place in whole {
            rows.get_mut(place).map(Option::take);
        }
        Packer::pack(records, &rows)
    }

    fn unpack(
        &self,
        block: &Block<'_>,
        f: &mut dyn FnMut(RecordRef<'_>),
    ) -> Result<(), UnpackError> {
        if block.schema != VERSION {
            return Err(UnpackError::Newer(format!(
                "layout {} of a block of attempts",
                block.schema
            )));
        }
        unpack(block, f)
    }
}

/// Packs records as the log does: those that come back different are stored whole.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn pack_exactly(records: &[RecordRef<'_>]) -> Option<PackedBlock> {
    let packed = BLOCKS.pack(records, &[])?;
    let mut hot = rkyv::util::AlignedVec::<16>::new();
    hot.extend_from_slice(&packed.hot);
    let (mut at, mut whole) = (0, Vec::new());
    unpack(
        &Block { schema: VERSION, records: records.len(), hot: &hot, cold: &packed.cold },
        &mut |back| {
            whole.extend((records.get(at) != Some(&back)).then_some(at));
            at += 1;
        },
    )
    .ok()?;
    if whole.is_empty() { Some(packed) } else { BLOCKS.pack(records, &whole) }
}
