//! What belongs to no one site, as images that travel at rest: for pools in which each site has its own node.

mod image;
mod own;

pub use image::{BYTES_MAX, pack, unpack};
pub(crate) use own::{Around, OwnGeneral};
