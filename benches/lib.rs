//! Benchmarks of fetchwise: one file each. The side-by-side report is in `lab/report`.
//!
//! Must not know: anything that a test asserts. Benchmarks measure; they fail only when they cannot
//! run.
