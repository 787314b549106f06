//! `demo`: web sites on loopback, crawled round after round, so that a person sees learning happen.
//!
//! Each round fetches one page of each site, all sites at once. The demo shows only what the
//! pipeline reports and what the sites count. `model` holds the progress and `shared_model` shares
//! it; `interactive` crawls for a terminal, `view` draws, `screen` owns the terminal; `plain` does
//! all of it for a file or a pipe. `crawler` puts the crawler and its dashboard together for both.

mod args;
mod baselines;
mod crawler;
mod dashboard;
mod model;
mod plain;
mod rounds;
mod run;
mod screen;
mod shared_model;
mod sites;
mod view;

pub(crate) use args::DemoArgs;
pub(crate) use run::run;
