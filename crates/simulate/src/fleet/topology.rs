//! How nodes crawl a world together, and from which addresses.

use std::time::Duration;

use serde::Serialize;

/// Which addresses the nodes' requests come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Egress {
    /// All share one: a host that bans it bans all nodes.
    #[default]
    One,
    /// Each has its own.
    Each,
}

/// How nodes crawl a world together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// URLs reach nodes at random, and each node learns from its own.
    Apart,
    /// Each site has one node, by rendezvous hashing; each node learns from its own.
    Sites,
    /// The same, and each node learns from all others what belongs to no one site.
    Own,
    /// URLs reach nodes at random, and what each learns the others have at most so long afterwards.
    Sharing(Duration),
}
