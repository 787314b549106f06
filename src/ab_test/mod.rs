//! Comparison of the two arms, learning and the router table, from attempts that say which arm
//! served them.
//!
//! `aggregate` collects attempts into visits, by host and arm. `summary` has the figures for
//! people, `confidence_interval` their intervals, `agreement` the visits in which both arms would
//! take the same fetcher, and `sequential_test` decides when learning is significantly worse.
//!
//! Invariants: attempts of one host are never treated as independent. Hosts were assigned to the
//! arms, so hosts are resampled, permuted and counted.
//!
//! Must not know: where attempts come from, nor the consequences of the results.

mod aggregate;
mod agreement;
mod confidence_interval;
mod sequential_test;
mod summary;
#[cfg(test)]
mod tests;

pub use aggregate::{Aggregate, Window};
pub use agreement::{Agreement, Differing, HostAgreement};
pub use sequential_test::{GuardSettings, InterimLooks, Look, Metric};
pub use summary::{ArmFigures, Comparison, Difference, FetcherShare, Figure, Method, Shares};
