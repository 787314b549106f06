//! `select`: which fetcher would be used, without any network.

use super::args::SelectArgs;
use super::decide::{Decider, each_url, read_url, show_bad_line, show_error};
use super::failure::{Exit, Failure};
use super::out::{Out, plain};
use super::settings::Settings;

/// Runs the command.
pub(crate) fn run(args: &SelectArgs, settings: &Settings, out: &mut Out) -> Result<Exit, Failure> {
    let mut decider = Decider::new(settings, &args.situation)?;
    let mut exit = Exit::Done;
    each_url(&args.urls, |text, line| {
        let text = match text {
            Ok(text) => text,
            Err(error) => {
                exit = Exit::Failed;
                return show_bad_line(out, line, error);
            }
        };
        match read_url(text).and_then(|url| decider.decide(&url)) {
            Ok(decided) if out.json => out.object(&decider.json(text, &decided)),
            Ok(decided) => out.line(format_args!("{}  {}", plain(text), decider.words(&decided))),
            Err(error) => {
                exit = Exit::Failed;
                show_error(out, text, &error)
            }
        }
    })?;
    Ok(exit)
}
