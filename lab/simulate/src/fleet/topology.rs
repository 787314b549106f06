//! The topologies of a crawl by many nodes, and their addresses.

use std::time::Duration;

use serde::Serialize;

/// The addresses of the nodes' requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Egress {
    /// All nodes share one: a host that bans it bans all nodes.
    #[default]
    One,
    /// Each node has its own.
    Each,
}

/// The topology of a crawl by many nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    /// URLs reach nodes at random, and each node observes only its own attempts.
    Apart,
    /// Each site has one node, by rendezvous hashing; each node observes only its own attempts.
    Sites,
    /// The same, and each node receives the global evidence of all others.
    Own,
    /// URLs reach nodes at random, and each node receives all attempts of the others within this
    /// delay.
    Sharing(Duration),
}
