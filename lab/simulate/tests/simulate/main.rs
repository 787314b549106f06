//! The simulator as its callers see it: policies, paces, joint worlds and fleets. Equal arguments
//! give equal bytes. Its driver records the same attempts as the other drivers of visits.
#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod driver_equivalence;
#[cfg(feature = "fleet")]
mod fleets;
mod joint;
mod pace;
mod policies;
mod priors;
