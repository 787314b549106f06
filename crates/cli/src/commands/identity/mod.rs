//! `identity`: the keys of signed requests, what the crawler publishes, and checks of both.
//!
//! `args` is the syntax, which every build has. With the feature `identity`, `keys` creates, shows
//! and exchanges keys, `publish` writes and checks what is published, `requests` signs and
//! verifies, and `registered` records registrations.

mod args;
#[cfg(feature = "identity")]
mod keys;
#[cfg(feature = "identity")]
mod publish;
#[cfg(feature = "identity")]
mod registered;
#[cfg(feature = "identity")]
mod requests;

pub(crate) use args::IdentityCommand;
#[cfg(feature = "identity")]
use args::IdentitySubcommand;

use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::Output;

/// Runs the command.
#[cfg(feature = "identity")]
pub(crate) fn run(
    command: &IdentityCommand,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    match &command.what {
        IdentitySubcommand::Init(args) => keys::init(args, settings, out),
        IdentitySubcommand::Show(_) => keys::show(settings, out),
        IdentitySubcommand::Rotate(args) => keys::rotate(args, settings, out),
        IdentitySubcommand::Directory(args) => publish::directory(args, settings, out),
        IdentitySubcommand::Sign(args) => requests::sign(args, settings, out),
        IdentitySubcommand::Verify(args) => requests::verify(args, settings, out),
        IdentitySubcommand::Check(_) => publish::check(settings, out),
        IdentitySubcommand::Registered(args) => registered::registered(args, settings, out),
    }
}

/// Fails: the command needs the feature.
#[cfg(not(feature = "identity"))]
pub(crate) fn run(_: &IdentityCommand, _: &Settings, _: &mut Output) -> Result<Exit, Failure> {
    Err(Failure::missing_feature("the command identity", "identity"))
}
