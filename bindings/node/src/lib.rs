//! The addon of the package `fetchwise`: fetchwise's selector, visits, detector and journal for Node.
//!
//! Everything is decided in the library; here arguments are taken, results are wrapped, and what takes long is moved off the event loop.
//! `index.js` exports it, with what is easier said in JavaScript. It must not panic because of what it is given.

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
mod thread_pool;
mod transfer;
mod visit;
