//! `peers/`: what others have told, as a log of its own beside the node's.
//!
//! Owns what is kept of others, and what of it counts. Must not know brokers.

mod event;
mod facts;
mod fold;
mod general;
mod keep;
mod learn;
mod offline;
mod sites;
mod store;

pub use facts::{Shown, facts};
pub use fold::FOLDER;
pub(crate) use fold::SHARE_MAX;
pub(crate) use keep::{Faded, Keeper, with_own_past};
pub use keep::{Kept, foreign};
pub use offline::{Forgotten, forget};
pub(crate) use sites::part_of;
pub(crate) use store::Peers;
