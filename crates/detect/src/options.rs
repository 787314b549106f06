//! The options of a detector, and what reading a page needs of them.

use std::collections::HashMap;

use crate::html::tokenizer::Finders;

/// Options of a detector.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct DetectorOptions {
    /// Maximum body size that is read, in bytes. Default: 1 MiB.
    pub max_bytes: usize,
    /// Whether visible text is counted to the end of those bytes even when the verdict is already
    /// clear. Default: no.
    pub count_all: bool,
    /// Minimum confidence of evidence that makes a page a block, from 0 to 1. A status of 403, 429
    /// or 451 is a refusal at any threshold. Default: 0.5.
    pub block_threshold: f32,
}

impl Default for DetectorOptions {
    fn default() -> Self {
        Self { max_bytes: 1 << 20, count_all: false, block_threshold: 0.5 }
    }
}

impl DetectorOptions {
    /// Sets the maximum body size, in bytes (at least 1 KiB).
    #[must_use]
    pub fn with_max_bytes(self, bytes: usize) -> Self {
        Self { max_bytes: bytes.max(1024), ..self }
    }

    /// Sets the minimum confidence of a block (from 0.05 to 1).
    #[must_use]
    pub fn with_block_threshold(self, confidence: f32) -> Self {
        let block_threshold =
            if confidence.is_nan() { self.block_threshold } else { confidence.clamp(0.05, 1.0) };
        Self { block_threshold, ..self }
    }

    /// Counts all visible text, for reports.
    #[must_use]
    pub fn counting_all(self) -> Self {
        Self { count_all: true, ..self }
    }
}

/// What every page is read with: the compiled searches and the options. The rules come separately,
/// because they are exchanged at run time.
#[derive(Debug)]
pub(crate) struct ReadContext {
    pub(crate) finders: Finders,
    pub(crate) options: DetectorOptions,
    /// Minimum visible characters of content on single hosts, in lower case.
    pub(crate) min_chars: HashMap<Box<str>, u32>,
}
