//! `export`: all attempts, as JSON lines or CSV.

use serde_json::Value;

use super::args::{ExportArgs, ExportFormat};
use super::failure::{Exit, Failure};
use super::out::Out;
use super::settings::{Settings, say_torn};
use crate::attempt::Attempt;
use crate::attempt::json::{AttemptJson, FIELDS, to_json_line};
use crate::journal::{self, Entry};

/// Runs the command.
pub(crate) fn run(args: &ExportArgs, settings: &Settings, out: &mut Out) -> Result<Exit, Failure> {
    let dir = settings.data_dir()?;
    let mut written = match args.format {
        ExportFormat::Jsonl => Ok(()),
        ExportFormat::Csv => csv_line(out, FIELDS),
    };
    let replayed = journal::replay(&dir, |_, entry| {
        let Entry::Attempt(attempt) = entry else { return };
        if written.is_ok() {
            written = match args.format {
                ExportFormat::Jsonl => out.line(to_json_line(&attempt)),
                ExportFormat::Csv => csv_row(out, &attempt),
            };
        }
    });
    // Whoever read stdout may be gone, but a damaged log is worth more than that.
    let replayed = replayed?;
    say_torn(replayed.torn_tail.as_ref());
    written.map(|()| Exit::Done)
}

/// The same fields as in JSON; what has a structure of its own stays JSON.
fn csv_row(out: &mut Out, attempt: &Attempt) -> Result<(), Failure> {
    let value = serde_json::to_value(AttemptJson(attempt)).map_err(Failure::failed)?;
    csv_line(
        out,
        FIELDS.iter().map(|field| match value.get(field) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        }),
    )
}

fn csv_line(out: &mut Out, cells: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<(), Failure> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(cells).map_err(Failure::failed)?;
    let line = writer.into_inner().map_err(Failure::failed)?;
    out.raw(&line)
}
