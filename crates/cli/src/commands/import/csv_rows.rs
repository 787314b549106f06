//! Attempts from CSV, in the form that `export --format csv` writes: each row becomes a line of
//! JSON.
//!
//! Must not know: what an attempt is.

use serde_json::{Map, Value};

use fetchwise::attempt::json::MAX_LINE_BYTES;
use fetchwise_crawl::input::lines::{Line, Lines};

/// The columns that `export` computes from others.
pub(super) const COMPUTED: [&str; 5] = ["domain", "site", "cost", "bytes", "visit"];
/// The columns with a JSON value in each cell.
const JSON_COLUMNS: [&str; 2] = ["response_headers", "heuristics"];
/// The columns with text in each cell, which may look like another type.
const TEXT_COLUMNS: [&str; 10] = [
    "id",
    "link",
    "url",
    "fetcher",
    "error_type",
    "source",
    "hint",
    "shadow_fetcher",
    "rule",
    "arm",
];

/// The head of a CSV file.
pub(super) struct CsvHead(Vec<String>);

impl CsvHead {
    /// Returns the head in the first line of a file, if it is one of attempts.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let names = cells(line)?;
        let has = |name: &str| names.iter().any(|known| known == name);
        (has("url") && has("fetcher")).then_some(Self(names))
    }

    /// Returns the rest of a row whose quoted cells span several lines.
    pub(super) fn complete(lines: &mut Lines, mut first: Line) -> std::io::Result<Line> {
        let is_odd =
            |text: &str| !memchr::memchr_iter(b'"', text.as_bytes()).count().is_multiple_of(2);
        // Each line is counted once, so that a quote that is never closed costs no more than
        // reading the file.
        let mut is_open = first.text.as_ref().is_ok_and(|text| is_odd(text));
        while is_open
            && let Ok(text) = &mut first.text
            && text.len() <= MAX_LINE_BYTES
        {
            let Some(next) = lines.next_line()? else { break };
            first.bytes += next.bytes;
            match next.text {
                Ok(more) => {
                    is_open ^= is_odd(&more);
                    text.push('\n');
                    text.push_str(&more);
                }
                Err(error) => first.text = Err(error),
            }
        }
        Ok(first)
    }

    /// Returns a row as a line of JSON.
    pub(super) fn to_json(&self, row: &str) -> Result<String, String> {
        let cells = cells(row).ok_or_else(|| "invalid CSV: expected one row".to_owned())?;
        if cells.len() != self.0.len() {
            return Err(format!(
                "invalid row: expected {} cells, found {}",
                self.0.len(),
                cells.len()
            ));
        }
        let mut line = Map::new();
        for (name, cell) in self.0.iter().zip(cells) {
            if cell.is_empty() || COMPUTED.contains(&name.as_str()) {
                continue;
            }
            let value = match name.as_str() {
                name if JSON_COLUMNS.contains(&name) => serde_json::from_str(&cell)
                    .map_err(|error| format!("invalid {name}: {error}"))?,
                name if TEXT_COLUMNS.contains(&name) => Value::from(without_guard(&cell)),
                "success" | "is_banned" if cell.eq_ignore_ascii_case("true") => Value::from(true),
                "success" | "is_banned" if cell.eq_ignore_ascii_case("false") => Value::from(false),
                // A number, or a text such as a time.
                _ => match serde_json::from_str(&cell) {
                    Ok(value @ Value::Number(_)) => value,
                    _ => Value::from(without_guard(&cell)),
                },
            };
            line.insert(name.clone(), value);
        }
        Ok(Value::Object(line).to_string())
    }
}

/// Returns a text without the apostrophe that keeps a spreadsheet from running it.
fn without_guard(cell: &str) -> &str {
    match cell.strip_prefix('\'') {
        Some(rest) if rest.starts_with(['=', '+', '-', '@', '\t', '\r']) => rest,
        _ => cell,
    }
}

/// Returns the cells of one row; none if it is not exactly one.
fn cells(row: &str) -> Option<Vec<String>> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(row.as_bytes());
    let mut rows = reader.records();
    let first = rows.next()?.ok()?;
    rows.next().is_none().then(|| first.iter().map(str::to_owned).collect())
}
