//! `verify`: a complete check of the data directory.

use clap::Args;
use serde::Serialize;

use super::{DamageJson, bar, bytes, damage_json, show_damage};
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{CHOSEN, ERROR, Output, note, styled};
use crate::terminal::warnings::warn_torn_tail;
use fetchwise::journal::maintenance;
use fetchwise::journal::maintenance::{RefoldReport, VerificationReport};

/// Check every byte of the data directory without changing it
///
/// Reads every record, checks every checksum, link and sequence number, and recomputes the newest
/// snapshot from the one before it and the records after that. Exits with 3 if there is damage.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fetchwise verify --json")]
pub(crate) struct VerifyArgs {}

#[derive(Serialize)]
struct VerifyJson<'a> {
    sound: bool,
    segments: usize,
    records: u64,
    attempts: u64,
    bytes: u64,
    torn_tail_kept: Option<u64>,
    damage: Vec<DamageJson<'a>>,
    snapshot_seq: Option<u64>,
    floor_seq: u64,
    snapshots_rejected: Vec<DamageJson<'a>>,
    refold: &'static str,
    refolded_records: Option<u64>,
    difference: Option<&'a str>,
}

/// Runs the command.
pub(crate) fn run(_: &VerifyArgs, settings: &Settings, out: &mut Output) -> Result<Exit, Failure> {
    let found = maintenance::verify(&settings.existing_dir()?, &mut bar())?;
    warn_torn_tail(found.log.log.torn.as_ref());
    let damage: Vec<_> =
        found.log.log.damage.iter().chain(&found.log.snapshot_damage).cloned().collect();
    let rejected = &found.log.snapshots_rejected;
    let (refold, records, difference) = match &found.refold {
        RefoldReport::Same { records } => ("same", Some(*records), None),
        RefoldReport::Differs { what } => ("differs", None, Some(what.as_str())),
        RefoldReport::NoBase => ("no_base", None, None),
        _ => ("not_tried", None, None),
    };
    if out.json {
        out.object(&VerifyJson {
            sound: found.is_sound(),
            segments: found.log.segments,
            records: found.log.log.records,
            attempts: found.attempts,
            bytes: found.log.log.bytes,
            torn_tail_kept: found.log.log.torn.as_ref().map(|torn| torn.records_kept),
            damage: damage_json(&damage),
            snapshot_seq: found.log.snapshot_seq,
            floor_seq: found.log.floor_seq,
            snapshots_rejected: damage_json(rejected),
            refold,
            refolded_records: records,
            difference,
        })?;
    } else {
        show_damage(out, &damage)?;
        show_damage(out, rejected)?;
        let log = &found.log.log;
        out.line(format_args!(
            "{} segments, {} records ({})",
            found.log.segments,
            log.records,
            bytes(log.bytes)
        ))?;
        show_refold(&found, out)?;
        out.line(if found.is_sound() {
            styled(CHOSEN, "sound")
        } else {
            styled(ERROR, "not sound")
        })?;
    }
    if found.is_sound() {
        return Ok(Exit::Done);
    }
    if !damage.is_empty() {
        note("fetchwise: repair --salvage recovers the intact part and reports the loss");
    } else {
        note("fetchwise: nothing is lost: the next snapshot replaces the damaged one");
    }
    Ok(Exit::Refused)
}

fn show_refold(found: &VerificationReport, out: &mut Output) -> Result<(), Failure> {
    let Some(seq) = found.log.snapshot_seq else { return out.line("no snapshot") };
    match &found.refold {
        RefoldReport::Same { records } => out.line(format_args!(
            "the snapshot of records up to {seq} matches them ({records} recomputed)"
        )),
        RefoldReport::Differs { what } => out.line(format_args!(
            "{} the snapshot of records up to {seq} does not match them: {what}",
            styled(ERROR, "differs")
        )),
        RefoldReport::NoBase => out.line(format_args!(
            "snapshot of records up to {seq}, not recomputed: the snapshot before it is damaged"
        )),
        _ => out.line(format_args!("snapshot of records up to {seq}")),
    }
}
