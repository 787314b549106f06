//! The addon of the package `fetchwise`: fetchwise's selector, visits, detector and journal for Node.
//!
//! Everything is decided in the library; here arguments are taken, results are wrapped, and what takes long is moved off the event loop.
//! `index.js` exports it, with what is easier said in JavaScript. It must not panic because of what it is given.

mod fetch_result;
mod build_selector;
mod attempt;
// What a TOML file says, JSON lines and explanations are one text for both packages.
#[path = "../../python/rust/config.rs"]
mod configured;
mod decision;
mod detector;
mod errors;
mod explain;
#[path = "../../python/rust/explain_json.rs"]
mod explained;
mod journal;
#[path = "../../python/rust/jsonl.rs"]
mod lines;
mod selector;
mod convert;
mod transfer;
mod visit;
mod thread_pool;
