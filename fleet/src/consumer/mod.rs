//! The consumer: what others say is kept, learned from once, and asked for where it is missing.

mod allowance;
mod general;
mod limits;
mod mend;
mod moves;
mod reader;
mod report;
mod shares;
mod sites;

pub(crate) use reader::Consumer;
pub(crate) use shares::drop_shares;
