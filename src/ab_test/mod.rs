//! The two arms side by side: what learning and the router table each came to, from attempts that say which arm served them.
//!
//! `fold` adds attempts up to visits, by host and arm; `figures` are what people read, `interval` how sure each of them is,
//! `agreement` where both arms would take the same fetcher, `guard` when learning is worse beyond doubt.
//!
//! Invariant: attempts of one host are never taken for independent: hosts are what was dealt out to the arms, so hosts are what is
//! resampled, permuted and counted. Must not know where attempts come from, nor what is done about what they show.

mod aggregate;
mod agreement;
mod confidence_interval;
mod sequential_test;
mod summary;
#[cfg(test)]
mod tests;

pub use crate::ab_test::aggregate::{Aggregate, Window};
pub use crate::ab_test::sequential_test::{GuardSettings, Look, InterimLooks, Metric};
pub use crate::ab_test::summary::{ArmFigures, Comparison, Difference, FetcherShare, Figure, Method, Shares};
pub use agreement::{Agreement, Differing, HostAgreement};
