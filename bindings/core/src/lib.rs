//! The code that the Python and the Node package share: a selector from a config file, its
//! candidates by name, attempts as JSON lines, the names of outcomes, decisions about many URLs,
//! visits by steps, a signer of requests, and the journal as the sink of a selector. The crate
//! `fetchwise-present` has explanations as JSON and text.
//!
//! Owns: every piece of logic that both packages need. Invariants: nothing here panics on a
//! caller's arguments; errors are text or errors of the library. Must not know: Python, JavaScript,
//! and how either converts its arguments.

pub mod candidates;
pub mod config;
pub mod journal_sink;
pub mod jsonl;
pub mod outcome;
pub mod select_many;
pub mod signer;
pub mod visit;
