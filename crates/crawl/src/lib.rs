//! A polite crawler as a library.

pub mod cost_report;
pub mod frontier;
pub mod input;
pub mod link_end;
pub mod link_fate;
pub mod paused_links;
pub mod positioned_io;
pub mod results;
pub mod run_log;
pub mod totals;
