//! `importance`: how much each heuristic reveals about success, with an option to record it in the
//! log.

use clap::Args;

use crate::setup::log_scan;
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{HEADING, Output, Table, note, styled};
use fetchwise::analytics::{Importance, ImportanceFold, MIN_SAMPLE};
use fetchwise::journal::{ImportanceEntry, Journal, JournalOptions};
use fetchwise_present::ImportanceJson;

/// Show how much each heuristic reveals about success
///
/// Covers each type and each value with more than ten attempts that is known before a request, and
/// with --after also those that only the response tells, such as its status. The gain is the
/// distance between its success rate and that of all attempts; the bits are the mutual information
/// with success. Run it periodically, for example by a timer.
#[derive(Debug, Args)]
#[command(
    after_help = "The row of a type has no value; its gain is the mean over its attempts, each by its value. With \
    --write, the gains are recorded as importance; tuning.importance of the config decides whether they prune or scale \
    evidence.\n\n\
    Examples:\n  fetchwise importance --limit 20\n  fetchwise importance --after\n  fetchwise importance --write --json > importance.jsonl"
)]
pub(crate) struct ImportanceArgs {
    /// Include what only the response tells, such as its status
    #[arg(long)]
    pub(crate) after: bool,
    /// Record the gains as importance, also of what only the response tells
    #[arg(long)]
    pub(crate) write: bool,
    /// Show the first N types and the first N values
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
}

/// Runs the command.
pub(crate) fn run(
    args: &ImportanceArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let dir = settings.existing_dir()?;
    let mut fold = ImportanceFold::default();
    log_scan::attempts(&dir, |attempt| fold.observe(&attempt))?;
    let rows = fold.rows();
    if args.write && !rows.is_empty() {
        let (journal, _) = Journal::open(&dir, JournalOptions::default())?;
        let at = settings.clock.now();
        for row in &rows {
            let importance = row.gain.clamp(0.0, 1.0) as f32;
            let entry = ImportanceEntry {
                kind: row.kind.clone(),
                value: row.value.clone(),
                importance,
                at,
            };
            journal.append_importance(&entry)?;
        }
        journal.close()?;
    }
    let limit = args.limit.unwrap_or(usize::MAX);
    let groups: &[bool] = if args.after { &[false, true] } else { &[false] };
    let first = |after: bool, is_type: bool| -> Vec<&Importance> {
        rows.iter()
            .filter(|row| row.after == after && row.value.is_none() == is_type)
            .take(limit)
            .collect()
    };
    if out.json {
        for row in
            groups.iter().flat_map(|after| [first(*after, true), first(*after, false)]).flatten()
        {
            out.object(&ImportanceJson::from(row))?;
        }
    } else if rows.is_empty() {
        out.line(format_args!("no heuristic has more than {MIN_SAMPLE} attempts yet"))?;
    } else {
        let baseline = rows.first().map_or(0.0, |row| row.baseline);
        out.line(styled(
            HEADING,
            format_args!("{:.1} % of the attempts that count succeed", 100.0 * baseline),
        ))?;
        for after in groups {
            let what = if *after { "told by the response" } else { "known before the request" };
            out.line(format_args!("\n{}", styled(HEADING, what)))?;
            out.line(format_args!("\n{}", table(&first(*after, true))))?;
            out.line(format_args!("\n{}", table(&first(*after, false))))?;
        }
    }
    if args.write {
        let types = rows.iter().filter(|row| row.value.is_none()).count();
        note(format_args!(
            "recorded the importance of {types} types and {} values",
            rows.len() - types
        ));
    }
    Ok(Exit::Done)
}

fn table(rows: &[&Importance]) -> Table {
    let mut table = Table::new(&["type", "value", ">attempts", ">success", ">gain", ">bits"]);
    for row in rows {
        table.row([
            row.kind.clone(),
            row.value.clone().unwrap_or_else(|| "(any)".to_owned()),
            row.n.to_string(),
            format!("{:.1} %", 100.0 * row.conditional_rate),
            format!("{:.3}", row.gain),
            format!("{:.4}", row.mutual_information_bits),
        ]);
    }
    table
}
