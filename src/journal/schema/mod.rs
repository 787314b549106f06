//! Records of the log: the layout of each kind, and its conversion to the types that the rest of
//! the crate uses.

mod block;
mod codec;
mod codes;
mod columns;
mod records;
mod view;

pub(crate) use block::BLOCKS;
#[cfg(feature = "fuzzing")]
pub(crate) use block::pack_exactly;
#[cfg(feature = "fuzzing")]
pub(crate) use codec::encode;
pub(crate) use codec::{
    EncodedRecord, decode, encode_attempt, encode_fetcher, encode_host, encode_importance,
    encode_link, encode_pace, encode_release, encode_tombstone, key_of_domain,
};
pub use codes::SchemaError;
pub(crate) use codes::{VERSION, class_code, class_of, hint_code, hint_of, kind};
pub(crate) use columns::{AttemptColumns, ColumnsRecord, RowBuffer, RowError};
pub(crate) use records::fingerprint;
pub(crate) use view::{AttemptView, ClampedAttempt, attempt};
