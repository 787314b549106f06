//! The addon of the package `fetchwise`: fetchwise's selector, visits, detector and journal for
//! Node.
//!
//! Owns: converting arguments, wrapping results, and moving long work off the event loop.
//! `index.js` exports it, with the parts that are simpler in JavaScript. Invariants: no argument
//! makes it panic. Must not know: how anything is decided; the library decides.

mod attempt;
mod build_selector;
mod convert;
mod decision;
mod detector;
mod errors;
mod explain;
mod fetch_result;
mod journal;
mod selector;
mod signer;
mod thread_pool;
mod transfer;
mod visit;
