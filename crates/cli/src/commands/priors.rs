//! `priors`: what a crawler has learned that belongs to no host, for a new crawler to start with.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::setup::priors_file;
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Output, shown};

/// Write what was learned of no single host to a file, or start a new crawler with such a file
#[derive(Debug, Args)]
#[command(
    after_help = "A file has success rates by fetcher: after each kind of failure, by suffix, by flag of the URL, and \
    behind each vendor,\nframework and server. It has no host and no path.\n\n\
    Examples:\n  fetchwise priors export priors.json\n  fetchwise priors import priors.json --data-dir new\n  \
    fetchwise fetch --priors priors.json --input urls.txt"
)]
pub(crate) struct PriorsArgs {
    #[command(subcommand)]
    command: PriorsCommand,
}

#[derive(Debug, Subcommand)]
enum PriorsCommand {
    /// Write what the log has taught of no single host; - is stdout
    Export {
        /// Write this file
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Overwrite an existing file
        #[arg(long)]
        force: bool,
    },
    /// Make the data directory start with the priors of this file, in place of earlier ones
    ///
    /// The file is copied to priors.json in the data directory. Remove that file to start without
    /// priors. A running crawler goes on as before.
    Import {
        /// Read this file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

#[derive(Serialize)]
struct PriorsJson<'a> {
    file: &'a str,
    priors: usize,
}

/// Runs the command.
pub(crate) fn run(
    args: &PriorsArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    match &args.command {
        PriorsCommand::Export { file, force } => export(file, *force, settings, out),
        PriorsCommand::Import { file } => import(file, settings, out),
    }
}

fn export(
    file: &Path,
    is_forced: bool,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    settings.existing_dir()?;
    let (selector, _) = settings.load_selector()?;
    let priors = selector.portable_priors(settings.clock.now());
    let text = priors_file::text(&priors)?;
    if file.as_os_str() == "-" {
        out.raw(text.as_bytes())?;
        return Ok(Exit::Done);
    }
    priors_file::write(file, &text, is_forced)?;
    done(file, priors.len(), "written to", out)
}

fn import(file: &Path, settings: &Settings, out: &mut Output) -> Result<Exit, Failure> {
    let priors = priors_file::read(file)?;
    let dir = settings.data_dir()?;
    let mut builder = std::fs::DirBuilder::new();
    // As the log makes it.
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
        .recursive(true)
        .create(&dir)
        .map_err(|error| Failure::failed(format_args!("cannot create {}: {error}", shown(&dir))))?;
    let path = priors_file::path_in(&dir);
    priors_file::write(&path, &priors_file::text(&priors)?, true)?;
    done(&path, priors.len(), "in", out)
}

fn done(file: &Path, priors: usize, what: &str, out: &mut Output) -> Result<Exit, Failure> {
    match out.json {
        true => out.object(&PriorsJson { file: &file.to_string_lossy(), priors })?,
        false => out.line(format_args!("{priors} priors {what} {}", shown(file)))?,
    }
    Ok(Exit::Done)
}
