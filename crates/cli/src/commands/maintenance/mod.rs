//! Maintenance of the data directory: `snapshot`, `compact`, `verify`, `repair`, `forget`.
//!
//! Owns: progress and the display of damage for all of them. `journal::maintenance` does the work.

use clap::Subcommand;
use indicatif::HumanBytes;
use serde::Serialize;

use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{ERROR, Output, plain, styled};
use crate::terminal::progress::ByteBar;
use crate::terminal::warnings::warn_torn_tail;
use fetchwise::journal::maintenance;
use fetchwise::journal::maintenance::Phase;
use fetchwise::journal::{Damage, Progress};

mod compact;
mod forget;
mod repair;
mod snapshot;
mod verify;

/// The commands that maintain the data directory.
#[derive(Debug, Subcommand)]
pub(crate) enum MaintainCommand {
    Snapshot(snapshot::SnapshotArgs),
    Compact(compact::CompactArgs),
    Verify(verify::VerifyArgs),
    Repair(repair::RepairArgs),
    Forget(forget::ForgetArgs),
}

/// Runs one of the commands.
pub(crate) fn run(
    command: &MaintainCommand,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    // Reported before a command repairs it. `verify` reports it itself.
    if !matches!(command, MaintainCommand::Verify(_)) {
        let torn = maintenance::torn_tail(&settings.existing_dir()?).ok().flatten();
        warn_torn_tail(torn.as_ref());
    }
    match command {
        MaintainCommand::Snapshot(args) => snapshot::run(args, settings, out),
        MaintainCommand::Compact(args) => compact::run(args, settings, out),
        MaintainCommand::Verify(args) => verify::run(args, settings, out),
        MaintainCommand::Repair(args) => repair::run(args, settings, out),
        MaintainCommand::Forget(args) => forget::run(args, settings, out),
    }
}

/// A damaged range, as JSON.
#[derive(Debug, Serialize)]
struct DamageJson<'a> {
    file: &'a str,
    offset: u64,
    bytes: u64,
    first_seq: Option<u64>,
    /// Null also if it is unknown.
    last_seq: Option<u64>,
    what: &'a str,
}

impl<'a> From<&'a Damage> for DamageJson<'a> {
    fn from(damage: &'a Damage) -> Self {
        Self {
            file: &damage.file,
            offset: damage.offset,
            bytes: damage.len,
            first_seq: damage.records.map(|(first, _)| first),
            last_seq: damage.records.map(|(_, last)| last).filter(|last| *last < u64::MAX),
            what: damage.what,
        }
    }
}

fn damage_json(damage: &[Damage]) -> Vec<DamageJson<'_>> {
    damage.iter().map(DamageJson::from).collect()
}

fn show_damage(out: &mut Output, damage: &[Damage]) -> Result<(), Failure> {
    damage.iter().try_for_each(|damage| {
        out.line(format_args!("{}  {}", styled(ERROR, "damaged"), plain(&damage.to_string())))
    })
}

/// Returns a callback that shows the progress of maintenance.
fn bar() -> impl FnMut(Phase, Progress) {
    let mut bar = ByteBar::new();
    move |phase, progress| {
        let what = match phase {
            Phase::Folding => "reading records",
            Phase::Compacting => "compacting",
            _ => "reading",
        };
        bar.show(what, progress);
    }
}

fn change(before: u64, after: u64) -> String {
    format!("{before} -> {after}")
}

fn bytes(n: u64) -> String {
    HumanBytes(n).to_string()
}
