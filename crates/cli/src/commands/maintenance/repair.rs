//! `repair`: recovery of the intact part of a damaged log, and a report of the loss.

use clap::Args;
use serde::Serialize;

use super::{DamageJson, damage_json, show_damage};
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Output, note};
use fetchwise::journal::maintenance;
use fetchwise::journal::maintenance::RepairOptions;

/// Recover the intact part of a damaged data directory
///
/// Copies every damaged range to quarantine/ first. Without an option it does nothing else. A torn
/// tail, which a crash leaves, is not damage: the next start repairs it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  fetchwise verify\n  fetchwise repair --salvage\n  fetchwise repair --rebuild-manifest"
)]
pub(crate) struct RepairArgs {
    /// Rewrite damaged segments with their intact records, and report the lost sequence numbers
    #[arg(long)]
    pub(crate) salvage: bool,
    /// Rebuild SEGMENTS and SNAPSHOT from the existing files if they are damaged
    #[arg(long)]
    pub(crate) rebuild_manifest: bool,
}

#[derive(Serialize)]
struct RepairJson<'a> {
    damage: Vec<DamageJson<'a>>,
    quarantined: Vec<String>,
    segments_rewritten: usize,
    manifests_rewritten: &'a [&'static str],
    remaining: Vec<DamageJson<'a>>,
}

/// Runs the command.
pub(crate) fn run(
    args: &RepairArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let mut options = RepairOptions::default();
    (options.salvage, options.rebuild_manifest) = (args.salvage, args.rebuild_manifest);
    let report = maintenance::repair(&settings.existing_dir()?, options)?;
    let quarantined: Vec<String> =
        report.quarantined.iter().map(|path| path.display().to_string()).collect();
    if out.json {
        out.object(&RepairJson {
            damage: damage_json(&report.damage),
            quarantined,
            segments_rewritten: report.rewritten,
            manifests_rewritten: &report.manifests,
            remaining: damage_json(&report.remaining),
        })?;
    } else {
        show_damage(out, &report.damage)?;
        for path in quarantined {
            out.line(format_args!("copied to {path}"))?;
        }
        for manifest in &report.manifests {
            out.line(format_args!("rebuilt {manifest}"))?;
        }
        if report.rewritten > 0 {
            out.line(format_args!(
                "segments rewritten with their intact records: {}",
                report.rewritten
            ))?;
        }
        if args.salvage && report.remaining.is_empty() {
            for (first, last) in report.damage.iter().filter_map(|damage| damage.records) {
                let last = if last == u64::MAX { "the end".to_owned() } else { last.to_string() };
                out.line(format_args!("lost: the damaged ones of the records {first} to {last}"))?;
            }
        }
        if report.damage.is_empty() {
            out.line("no damage found")?;
        }
    }
    if report.remaining.is_empty() {
        return Ok(Exit::Done);
    }
    if !args.salvage {
        note(
            "fetchwise: nothing was changed; --salvage rewrites damaged segments with their intact records",
        );
    }
    if !args.rebuild_manifest {
        note("fetchwise: --rebuild-manifest rebuilds damaged SEGMENTS and SNAPSHOT files");
    }
    Ok(Exit::Refused)
}
