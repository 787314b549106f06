//! `repair`: keeps what is good of a damaged log, and says what is lost.

use clap::Args;
use serde::Serialize;

use super::{DamageJson, damage_json, show_damage};
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Out, note};
use fetchwise::journal::maintenance;
use fetchwise::journal::maintenance::RepairOptions;

/// Keep what is good of a damaged data directory
///
/// Every damaged range is copied to quarantine/ first. Without an option nothing else is done. A torn tail, which a crash leaves,
/// is no damage: the next start mends it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  fetchwise verify\n  fetchwise repair --salvage\n  fetchwise repair --rebuild-manifest"
)]
pub(crate) struct RepairArgs {
    /// Write damaged segments anew from their good records, and name the sequence numbers that are lost
    #[arg(long)]
    pub(crate) salvage: bool,
    /// Make SEGMENTS and SNAPSHOT anew from what is there, when they are damaged
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
pub(crate) fn run(args: &RepairArgs, settings: &Settings, out: &mut Out) -> Result<Exit, Failure> {
    let mut options = RepairOptions::default();
    (options.salvage, options.rebuild_manifest) = (args.salvage, args.rebuild_manifest);
    let report = maintenance::repair(&settings.existing_dir()?, options)?;
    let quarantined: Vec<String> = report.quarantined.iter().map(|path| path.display().to_string()).collect();
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
            out.line(format_args!("{manifest} was written anew"))?;
        }
        if report.rewritten > 0 {
            out.line(format_args!("segments written anew from what is good of them: {}", report.rewritten))?;
        }
        if args.salvage && report.remaining.is_empty() {
            for (first, last) in report.damage.iter().filter_map(|damage| damage.records) {
                let last = if last == u64::MAX { "the end".to_owned() } else { last.to_string() };
                out.line(format_args!("lost for good: what was damaged among records {first} to {last}"))?;
            }
        }
        if report.damage.is_empty() {
            out.line("nothing is damaged")?;
        }
    }
    if report.remaining.is_empty() {
        return Ok(Exit::Done);
    }
    if !args.salvage {
        note("fetchwise: nothing was changed; --salvage writes damaged segments anew from what is good of them");
    }
    if !args.rebuild_manifest {
        note("fetchwise: --rebuild-manifest makes SEGMENTS and SNAPSHOT anew when those are damaged");
    }
    Ok(Exit::Refused)
}
