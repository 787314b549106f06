//! `simulate`: policies in synthetic worlds.

mod args;
mod run;

pub(crate) use args::SimulateArgs;
pub(crate) use run::run;
