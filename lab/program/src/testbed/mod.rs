//! `testbed`: web sites to compare crawlers on.

mod args;
mod run;

pub(crate) use args::TestbedArgs;
pub(crate) use run::run;
