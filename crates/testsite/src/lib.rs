//! The demo: a small town of web sites on this machine, each with a temper of its own, for a crawler to learn on.
//!
//! [`origin`] is the server, used by the `demo` command and by the acceptance tests alike; the pages it serves are in
//! `pages`, and [`town`] says who lives where; [`services`] are stand-ins for archives and interfaces of the web;
//! [`benchmark`] is a town that crawlers are compared on, and [`hall`] where they meet it. Nothing outside this module depends on it, and it knows nothing about
//! selectors, fetchers or logs.

pub mod benchmark_sites;
pub mod demo_sites;
pub mod origin;
mod pages;
pub mod services;
pub mod submission_server;
