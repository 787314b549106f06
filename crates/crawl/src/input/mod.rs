//! The input of a crawl: lists of links, and the text of each link while it waits.

pub mod batch;
pub mod line;
pub mod lines;
pub mod link_list;
pub mod position;
mod spool;
