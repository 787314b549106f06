//! `simulate`: policies in synthetic worlds.

mod args;
#[cfg(feature = "simulate")]
mod run;

pub(crate) use args::SimulateArgs;

#[cfg(feature = "simulate")]
pub(crate) use run::run;

/// Fails: the command needs the feature.
#[cfg(not(feature = "simulate"))]
pub(crate) fn run(
    _: &SimulateArgs,
    _: &mut crate::terminal::output::Output,
) -> Result<crate::terminal::exit::Exit, crate::terminal::exit::Failure> {
    Err(crate::terminal::exit::Failure::missing_feature("the command simulate", "simulate"))
}
