//! robots.txt: the paths that a host forbids to crawlers, and its crawl delay (RFC 9309).
//!
//! `cache` parses and keeps the rules. The caller decides per link whether to obey them:
//! [`RobotsUse`].
//!
//! Must not know: how a request is made. The pipeline fetches, with the same address guard, limits
//! and pace as for pages.

mod cache;

pub use cache::{DEFAULT_AGENT, RobotsTxt, Rules, Turn, Unknown};
pub use cache::{MAX_READ, MAX_REDIRECTS, location};
pub use fetchwise_types::robots_use::RobotsUse;
