//! What a server allows its clients. Owns the defaults.

use std::num::NonZeroU32;
use std::time::Duration;

/// What a server allows its clients.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The longest body of a request, in bytes.
    pub max_body: usize,
    /// A body has to come within this.
    pub body_time: Duration,
    /// The head of a request has to come within this, and a connection is closed that is idle for so long.
    pub idle_time: Duration,
    /// An answer that its client does not read for so long is given up.
    pub write_time: Duration,
    /// So many connections at once. With one more, the one that has been idle for longest is closed.
    pub max_connections: usize,
    /// So many requests a second of each client (a token, or an address); none for as many as come.
    pub rate: Option<NonZeroU32>,
    /// So many visits at once.
    pub max_visits: usize,
    /// A visit ends that nobody comes back to for so long after it was to.
    pub visit_timeout: Duration,
    /// So many URLs, visits or reports in one call.
    pub max_items: usize,
    /// What is under way may take so long after somebody has asked the server to stop.
    pub grace: Duration,
    /// Names that the server is reached under beside addresses and `localhost`, where it is open to all who reach it.
    pub hosts: Vec<String>,
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
        }
    }
}
