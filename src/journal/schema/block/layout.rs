//! The layout of a block of attempts: what is read in place, and the columns behind it.
//!
//! Owns: the rows and columns, and how a shape says where a value is found.
//!
//! Invariants: a released layout never changes.
//!
//! Must not know: how records are packed and unpacked.

use std::mem::{align_of, offset_of, size_of};

use rkyv::{Archive, Serialize};

/// What is read in place: one row for each attempt, and what rows refer to by number.
#[derive(Archive, Serialize)]
pub(crate) struct HotV1 {
    /// Times count from here.
    pub(crate) base_ms: i64,
    /// Texts that several rows have, and the names of fetchers.
    pub(crate) texts: Vec<String>,
    /// Keys of the records.
    pub(crate) keys: Vec<u64>,
    pub(crate) outcomes: Vec<OutcomeV1>,
    /// Places in the block of the records that are stored whole.
    pub(crate) whole: Vec<u16>,
    /// Milliseconds since `base_ms`. Empty if they span more than 49 days; then the times are in
    /// `wide_at`.
    pub(crate) at: Vec<u32>,
    pub(crate) wide_at: Vec<i64>,
    /// Duration, milliseconds.
    pub(crate) took: Vec<u32>,
    pub(crate) key: Vec<u16>,
    pub(crate) outcome: Vec<u16>,
    /// The last ten bytes of the id, which are random.
    pub(crate) id: Vec<[u8; 10]>,
}

/// What many attempts have in common. Texts are numbers in `texts` plus one; 0 is the empty text or
/// none.
#[derive(Archive, Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct OutcomeV1 {
    pub(crate) weight: f64,
    pub(crate) fetcher: u32,
    pub(crate) error_other: u32,
    pub(crate) source_other: u32,
    pub(crate) rule_other: u32,
    pub(crate) shadow_fetcher: u32,
    pub(crate) try_no: u32,
    pub(crate) http_status: u16,
    pub(crate) success: u8,
    pub(crate) is_banned: u8,
    pub(crate) error: u8,
    pub(crate) source: u8,
    pub(crate) hint: u8,
    pub(crate) rule: u8,
    pub(crate) arm: u8,
}

const _: () = {
    assert!(size_of::<ArchivedHotV1>() == 88 && align_of::<ArchivedHotV1>() == 8);
    assert!(offset_of!(ArchivedHotV1, base_ms) == 0 && offset_of!(ArchivedHotV1, texts) == 8);
    assert!(offset_of!(ArchivedHotV1, keys) == 16 && offset_of!(ArchivedHotV1, outcomes) == 24);
    assert!(offset_of!(ArchivedHotV1, whole) == 32 && offset_of!(ArchivedHotV1, at) == 40);
    assert!(offset_of!(ArchivedHotV1, wide_at) == 48 && offset_of!(ArchivedHotV1, took) == 56);
    assert!(offset_of!(ArchivedHotV1, key) == 64 && offset_of!(ArchivedHotV1, outcome) == 72);
    assert!(offset_of!(ArchivedHotV1, id) == 80);
    assert!(size_of::<ArchivedOutcomeV1>() == 48 && align_of::<ArchivedOutcomeV1>() == 8);
    assert!(
        offset_of!(ArchivedOutcomeV1, weight) == 0 && offset_of!(ArchivedOutcomeV1, fetcher) == 8
    );
    assert!(
        offset_of!(ArchivedOutcomeV1, shadow_fetcher) == 24
            && offset_of!(ArchivedOutcomeV1, try_no) == 28
    );
    assert!(
        offset_of!(ArchivedOutcomeV1, http_status) == 32
            && offset_of!(ArchivedOutcomeV1, arm) == 40
    );
};

/// How the value of a header or heuristic is found. Numbers of heuristics are places in the
/// attempt's list.
pub(crate) mod op {
    /// The next literal.
    pub(crate) const LITERAL: u8 = 0;
    /// The URL's host without `www.`.
    pub(crate) const HOST: u8 = 1;
    /// The value of heuristic k.
    pub(crate) const SAME: u8 = 2;
    /// The end of the value of heuristic k, as long as the next number says.
    pub(crate) const END: u8 = 3;
    /// The value of heuristic k, `|`, and the value of heuristic j.
    pub(crate) const PAIR: u8 = 4;
    /// The value of heuristic k, `|`, and the first segment of the URL's path.
    pub(crate) const SECTION: u8 = 5;
    /// The text with a number that the shape has.
    pub(crate) const TEXT: u8 = 6;
    /// The text with the next number.
    pub(crate) const NEXT_TEXT: u8 = 7;
}

/// The most bytes that the values of a block have, as many as a frame.
pub(crate) const MAX_VALUE_BYTES: usize = 16 << 20;

/// Columns of the cold part, in order.
pub(crate) const COLUMNS: usize = 10;
pub(crate) const ID_TIMES: usize = 0;
pub(crate) const URL_LENS: usize = 1;
pub(crate) const URLS: usize = 2;
pub(crate) const SHAPES: usize = 3;
pub(crate) const SHAPE_TABLE: usize = 4;
pub(crate) const NUMBERS: usize = 5;
pub(crate) const LITERAL_LENS: usize = 6;
pub(crate) const LITERALS: usize = 7;
pub(crate) const FLOATS: usize = 8;
pub(crate) const WHOLE: usize = 9;
