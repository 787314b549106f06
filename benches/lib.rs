//! Benchmarks of fetchwise: one file each, and the side-by-side report in `report/`.
//!
//! Must not know: anything that a test asserts. Benchmarks measure; they fail only when they cannot run.
