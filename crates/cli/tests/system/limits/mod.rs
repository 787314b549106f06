//! `fetch` against servers that limit: what they refuse and what they deliver, counted by the servers themselves.
//!
//! What ends within half a minute runs always. What measures for minutes is ignored unless it is asked for: `make limits` runs it, and
//! prints what it found.


mod bans;
mod crawl;
mod hosts;
mod limiters;
mod nginx;
mod server;
