//! `testbed`: web sites to compare crawlers on.

mod args;
#[cfg(feature = "demo")]
mod run;

pub(crate) use args::TestbedArgs;

#[cfg(feature = "demo")]
pub(crate) use run::run;

/// Fails: the command needs the feature.
#[cfg(not(feature = "demo"))]
pub(crate) fn run(
    _: &TestbedArgs,
    _: &mut crate::terminal::output::Output,
) -> Result<crate::terminal::exit::Exit, crate::terminal::exit::Failure> {
    Err(crate::terminal::exit::Failure::missing_feature("the command testbed", "demo"))
}
