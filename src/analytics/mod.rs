//! Figures for people: ban rates, statistics, conditional success rates, importance.
//!
//! They are computed from attempts, not from evidence, and never on the hot path. Each collector
//! takes attempts one by one in any order and keeps counts only.
//!
//! Owns: the definition of each number.
//!
//! Must not know: where attempts come from, nor how numbers are displayed.

mod ban_rate;
mod conditional_success;
mod costs;
mod importance;
mod stats;

pub use crate::evidence::BanRate;
pub use ban_rate::DayHistory;
pub use conditional_success::{Conditional, Query};
pub use costs::{Cost, Costs};
pub use importance::{Importance, ImportanceFold, MIN_SAMPLE};
pub use stats::{By, Row, Stats};
