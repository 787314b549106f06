//! `select`: the fetcher that would be used, without any request.

use clap::Args;

use crate::setup::decider::{ContextArgs, Decider, each_url, read_url, show_bad_line, show_error};
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Output, plain};
use fetchwise::heuristic::url::without_user;

/// Show which fetcher would be used, without any request
///
/// Considers the fetchers that `fetch` could use: those of the config; without any, a plain request
/// and the browser if there is one. If the best fetcher according to the log is unavailable, the
/// output names it and the fallback. Results come in the order of the URLs.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    fetchwise select https://example.org/docs/a.pdf\n  \
    fetchwise select --json --tried direct_access --last-failure blocked https://example.org/\n  \
    fetchwise select - < urls.txt")]
pub(crate) struct SelectArgs {
    /// Decide for this URL; - reads lines from stdin
    #[arg(value_name = "URL", required = true)]
    pub(crate) urls: Vec<String>,
    #[command(flatten)]
    pub(crate) context: ContextArgs,
}

/// Runs the command.
pub(crate) fn run(
    args: &SelectArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let mut decider = Decider::new(settings, &args.context)?;
    let mut exit = Exit::Done;
    each_url(&args.urls, |text, line| {
        let text = match text {
            Ok(text) => text,
            Err(error) => {
                exit = Exit::Failed;
                return show_bad_line(out, line, error);
            }
        };
        let text = &without_user(text);
        match read_url(text).and_then(|url| decider.decide(&url)) {
            Ok(decided) if out.json => out.object(&decider.json(text, &decided)),
            Ok(decided) => out.line(format_args!("{}  {}", plain(text), decider.text(&decided))),
            Err(error) => {
                exit = Exit::Failed;
                show_error(out, text, &error)
            }
        }
    })?;
    Ok(exit)
}
