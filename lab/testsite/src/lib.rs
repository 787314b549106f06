//! Local web sites with known behaviour, for demos and tests of crawlers.
//!
//! [`origin`] is the server, and `pages` holds the pages that it serves. [`demo_sites`] lists the
//! sites of the `demo` command. [`benchmark_sites`] serves the sites on which crawlers are
//! compared, and [`submission_server`] takes their pages. [`services`] holds stand-ins for web
//! archives, proxies and web APIs. [`poll`] waits for a condition, [`ports`] takes ports,
//! [`program`] runs programs, and [`requirements`] skips tests on machines that lack one.
//!
//! Must not know: selectors, fetchers and logs.

pub mod benchmark_sites;
pub mod demo_sites;
pub mod origin;
mod pages;
pub mod poll;
pub mod ports;
pub mod program;
pub mod requirements;
pub mod services;
pub mod submission_server;
