//! `select`: which fetcher would be used, without any network.

use super::args::SelectArgs;
use super::decide::{Decider, each_url, read_url, show_error};
use super::failure::{Exit, Failure};
use super::out::{Out, plain};
use super::settings::Settings;

/// Runs the command.
pub(crate) fn run(args: &SelectArgs, settings: &Settings, out: &mut Out) -> Result<Exit, Failure> {
    let decider = Decider::new(settings, &args.situation)?;
    let mut exit = Exit::Done;
    each_url(&args.urls, |text| match read_url(text).and_then(|url| decider.decide(&url)) {
        Ok(routed) if out.json => out.object(&decider.json(text, &routed)),
        Ok(routed) => out.line(format_args!("{}  {}", plain(text), decider.words(&routed))),
        Err(error) => {
            exit = Exit::Failed;
            show_error(out, text, &error)
        }
    })?;
    Ok(exit)
}
