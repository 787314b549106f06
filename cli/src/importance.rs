//! `importance`: how much each heuristic tells about success; on request written back to the log.

use serde::Serialize;

use super::args::ImportanceArgs;
use super::failure::{Exit, Failure};
use super::out::{HEADING, Out, Table, note, styled};
use super::pass;
use super::settings::Settings;
use fetchwise::analytics::{Importance, ImportanceFold, SAMPLE_MIN};
use fetchwise::journal::{ImportanceEntry, Journal, JournalOptions};

#[derive(Serialize)]
struct ImportanceJson<'a> {
    r#type: &'a str,
    value: Option<&'a str>,
    n: u64,
    baseline: f64,
    conditional_rate: f64,
    gain: f64,
    mutual_information_bits: f64,
}

/// Runs the command.
pub(crate) fn run(args: &ImportanceArgs, settings: &Settings, out: &mut Out) -> Result<Exit, Failure> {
    let dir = settings.existing_dir()?;
    let mut fold = ImportanceFold::default();
    pass::attempts(&dir, |attempt| fold.observe(&attempt))?;
    let rows = fold.rows();
    if args.write && !rows.is_empty() {
        let (journal, _) = Journal::open(&dir, JournalOptions::default())?;
        let at = settings.clock.now();
        for row in &rows {
            let importance = row.gain.clamp(0.0, 1.0) as f32;
            let entry = ImportanceEntry { kind: row.kind.clone(), value: row.value.clone(), importance, at };
            journal.append_importance(&entry)?;
        }
        journal.close()?;
    }
    let limit = args.limit.unwrap_or(usize::MAX);
    let (types, values): (Vec<&Importance>, Vec<&Importance>) = rows.iter().partition(|row| row.value.is_none());
    let shown = [&types[..types.len().min(limit)], &values[..values.len().min(limit)]];
    if out.json {
        for row in shown.into_iter().flatten() {
            out.object(&json(row))?;
        }
    } else if rows.is_empty() {
        out.line(format_args!("no heuristic has more than {SAMPLE_MIN} attempts yet"))?;
    } else {
        let baseline = rows.first().map_or(0.0, |row| row.baseline);
        out.line(styled(HEADING, format_args!("{:.1} % of all attempts succeed", 100.0 * baseline)))?;
        out.line(format_args!("\n{}", table(shown[0])))?;
        out.line(format_args!("\n{}", table(shown[1])))?;
    }
    if args.write {
        note(format_args!("recorded the importance of {} types and {} values", types.len(), values.len()));
    }
    Ok(Exit::Done)
}

fn json(row: &Importance) -> ImportanceJson<'_> {
    ImportanceJson {
        r#type: &row.kind,
        value: row.value.as_deref(),
        n: row.n,
        baseline: row.baseline,
        conditional_rate: row.conditional_rate,
        gain: row.gain,
        mutual_information_bits: row.mutual_information_bits,
    }
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
