//! The limits of a server for its clients.
//!
//! Owns: the defaults.

use std::num::NonZeroU32;
use std::time::Duration;

/// The limits of a server for its clients.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Maximum size of a request's body, in bytes. All unfinished bodies together take at most four
    /// times as much, and those of one client twice as much, besides 32 MiB for bodies up to 64
    /// KiB.
    pub max_body: usize,
    /// Maximum time for a body to arrive.
    pub body_time: Duration,
    /// Maximum time for the head of a request to arrive, and maximum idle time of a connection.
    pub idle_time: Duration,
    /// Maximum time without progress while a client reads a response.
    pub write_time: Duration,
    /// Maximum number of open connections. One more closes the connection that has been idle for
    /// longest or is stalled; if there is none, the new one gets a 503.
    pub max_connections: usize,
    /// Maximum requests per second and client (a token or an address); none for no limit.
    pub rate: Option<NonZeroU32>,
    /// Maximum number of active visits.
    pub max_visits: usize,
    /// Time after which a visit ends if its client does not return when it should.
    pub visit_timeout: Duration,
    /// Maximum number of URLs, visits or reports in one call.
    pub max_items: usize,
    /// Time for active requests to finish after the server was asked to stop.
    pub grace: Duration,
    /// Host names of the server besides addresses and `localhost`. They matter only without tokens.
    pub hosts: Vec<String>,
    /// Whether clients may only look: every request but GET and HEAD gets a 405.
    pub read_only: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_body: 16 << 20,
            body_time: Duration::from_secs(30),
            idle_time: Duration::from_secs(30),
            write_time: Duration::from_secs(30),
            max_connections: 16_384,
            rate: None,
            max_visits: 200_000,
            visit_timeout: Duration::from_secs(60),
            max_items: 10_000,
            grace: Duration::from_secs(10),
            hosts: Vec::new(),
            read_only: false,
        }
    }
}
