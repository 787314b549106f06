//! `reload`: a running process reads its settings again.

use clap::Args;
use serde::Serialize;

use crate::setup::control::{self, ControlRequest};
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Output, plain};

/// Let the running `fetch` or `serve` read its settings again
///
/// Mode, router table, rules, `[rollout]`, `[pace]` and the costs of fetchers take effect at once.
/// If a file is invalid, all settings stay, and the error is that of `config check`.
#[derive(Debug, Args)]
#[command(
    after_help = "The process reads the files and the environment that it was started with. SIGHUP does the same.\n\n\
    Examples:\n  fetchwise reload\n  fetchwise reload --data-dir crawl --json"
)]
pub(crate) struct ReloadArgs {}

#[derive(Serialize)]
struct ReloadJson<'a> {
    /// What applies now, for people.
    reloaded: &'a str,
    /// The id of the running process.
    pid: u32,
}

/// Runs the command.
pub(crate) fn run(settings: &Settings, out: &mut Output) -> Result<Exit, Failure> {
    let dir = settings.existing_dir()?;
    let Some(answer) = control::ask(&dir, &ControlRequest::Reload {})? else {
        return Err(Failure::failed(format_args!("no fetch or serve is running in {}", dir.display()))
            .advise("start it: a new process reads its settings anyway; or name its directory with --data-dir"));
    };
    let actor = answer.actor();
    let words = answer.done.and_then(|done| done.reloaded).unwrap_or_default();
    match out.json {
        true => out.object(&ReloadJson { reloaded: &words, pid: answer.pid })?,
        false => out.line(format_args!("{} (done by {})", plain(&words), plain(&actor)))?,
    }
    Ok(Exit::Done)
}
