//! What attempts add up to, for people: ban rates, statistics, conditional rates, importance. Folds over the journal, never on the hot path.
//!
//! Owns what each number counts. A fold takes attempts one by one, in any order, and keeps counts only. Must not know where
//! attempts come from nor how numbers are shown.

mod ban_rate;
mod importance;
mod query;
mod stats;

pub use ban_rate::{BanRate, DayHistory};
pub use importance::{Importance, ImportanceFold, SAMPLE_MIN};
pub use query::{Conditional, Query};
pub use stats::{By, Row, Stats};
