//! Fetchers, the cache of robots.txt rules, and stores for page bodies.
//!
//! Owns: the [`Fetcher`](fetch::Fetcher) trait and the fetchers that ship with fetchwise (plain
//! HTTP, Chromium, child processes, archives, search APIs, FlareSolverr, yt-dlp), the cache of
//! robots.txt rules, and the stores that write bodies to disk.
//!
//! Invariants: every connection passes the address guard; every body is bounded.
//!
//! Must not know: which fetcher is selected for a URL and why. That is the selector's part.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod fetch;
pub mod payment_offers;
pub mod robots;
pub mod store;
