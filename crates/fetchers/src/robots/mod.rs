//! robots.txt: what a host asks crawlers to leave alone, and how fast it wants to be asked (RFC 9309).
//!
//! Whether anybody obeys it is the caller's decision, link by link: [`RobotsUse`]. `cache` reads and keeps the rules. Must not know how
//! a request is made: the pipeline fetches, with the address guard, the limits and the pace that pages have.

mod cache;

pub use cache::{MAX_BODY, MAX_READ, MAX_REDIRECTS, location};
pub use cache::{DEFAULT_AGENT, RobotsTxt, Rules};
pub use fetchwise_types::robots_use::RobotsUse;
