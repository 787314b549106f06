//! Work queues: links that the nodes of a pool fetch together.
//!
//! The links of a site are delivered to one node at a time. That node holds the lease of the site:
//! a cell that names the node and its process. The lease lasts as long as the node's own heartbeat,
//! so a node that dies or is cut off loses all of its sites at once. The cell also carries the
//! paces of the site's hosts to the next node.
//!
//! `site_lease` is the content of the cell, `pace_handover` the paces, `held_site` a site that this
//! node holds, and `reader` the task that takes sites, delivers their links and returns both.
//! `overview` is what an operator sees.
//!
//! Invariants: two nodes never fetch links of one site at the same time. A node that cannot confirm
//! its heartbeat stops before another one may take its sites. A link stays in the queue until its
//! result is written. A link whose result may have been written before is marked.
//!
//! Must not know: what a link is, and in which order links are fetched.

mod held_site;
mod overview;
mod pace_handover;
mod reader;
mod site_lease;

pub use overview::{QueueNode, QueueOverview, inspect};
pub use reader::{QueueEvent, QueueLink, QueueOptions, QueueReader};
