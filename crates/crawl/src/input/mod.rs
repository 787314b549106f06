//! The input of a crawl: lists of links, and the text of each link while it waits.

pub(crate) mod admission;
pub(crate) mod batch;
pub(crate) mod feed;
pub mod line;
pub mod lines;
pub(crate) mod link_list;
pub mod position;
#[cfg(feature = "fleet")]
mod queue_feed;
mod results_file;
mod spool;
