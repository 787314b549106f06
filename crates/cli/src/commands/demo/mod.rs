//! `demo`: web sites on loopback, crawled round after round, so that a person sees learning happen.
//!
//! Each round fetches one page of each site, all sites at once. The demo shows only what the pipeline reports and what
//! the sites count. `model` holds the progress and `shared_model` shares it; `interactive` crawls for a terminal,
//! `view` draws, `screen` owns the terminal; `plain` does all of it for a file or a pipe. `dashboard` serves the
//! dashboard for both.

mod args;
#[cfg(feature = "demo")]
mod baselines;
#[cfg(feature = "demo")]
mod dashboard;
#[cfg(feature = "demo")]
mod interactive;
#[cfg(feature = "demo")]
mod model;
#[cfg(feature = "demo")]
mod plain;
#[cfg(feature = "demo")]
mod run;
#[cfg(feature = "demo")]
mod screen;
#[cfg(feature = "demo")]
mod shared_model;
#[cfg(feature = "demo")]
mod sites;
#[cfg(feature = "demo")]
mod view;

pub(crate) use args::DemoArgs;

#[cfg(feature = "demo")]
pub(crate) use run::run;

/// Fails: the command needs the feature.
#[cfg(not(feature = "demo"))]
pub(crate) fn run(
    _: &DemoArgs,
    _: &crate::setup::settings::Settings,
    _: &mut crate::terminal::output::Output,
) -> Result<crate::terminal::exit::Exit, crate::terminal::exit::Failure> {
    Err(crate::terminal::exit::Failure::missing_feature("the command demo", "demo"))
}
