//! The results of an earlier run, from which `--retry` takes the links to fetch.
//!
//! Invariants: the last result of a link counts, so a file may hold the results of several runs.

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;

use crate::parse::input::{open_lines, unreadable};
use crate::terminal::exit::Failure;
use fetchwise_crawl::input::position::InputPosition;
use fetchwise_crawl::link_end::{LeftLinks, LinkEnd};

/// The maximum length of a result in bytes.
const MAX_LINE_BYTES: usize = 1 << 20;

/// A link to fetch again.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LinkToRetry {
    pub(super) url: String,
    pub(super) id: Option<String>,
    /// Its place in the input of the run that left it.
    pub(super) place: InputPosition,
}

/// The fields of a result that matter here.
#[derive(Deserialize)]
struct ResultLine {
    url: Option<String>,
    id: Option<String>,
    line: Option<u64>,
    position: Option<u64>,
    success: bool,
    error_type: Option<String>,
    paused_until: Option<String>,
}

/// Reads the links of `path` that ended as one of `which`; with none, those that failed or are paused.
pub(super) fn read(path: &Path, which: &[LeftLinks]) -> Result<Vec<LinkToRetry>, Failure> {
    let which = if which.is_empty() { &[LeftLinks::Failed, LeftLinks::Paused] } else { which };
    let mut lines = open_lines(path, MAX_LINE_BYTES)?;
    let mut links: Vec<Option<LinkToRetry>> = Vec::new();
    let mut places: HashMap<(String, Option<String>), usize> = HashMap::new();
    while let Some(line) = lines.next_line().map_err(|error| unreadable(path, &error))? {
        let number = line.number;
        let invalid = |error: String| {
            Failure::usage(format_args!("{} line {number}: not a result of fetch: {error}", path.display()))
                .advise("--retry reads what `fetch --json` printed")
        };
        let text = line.text.map_err(|error| invalid(error.to_string()))?;
        if text.trim().is_empty() {
            continue;
        }
        let result: ResultLine = serde_json::from_str(&text).map_err(|error| invalid(error.to_string()))?;
        // An invalid line of the input has no URL.
        let Some(url) = result.url else { continue };
        let end = LinkEnd::from_result(result.success, result.error_type.as_deref(), result.paused_until.is_some());
        let place = match (result.line, result.position) {
            (Some(line), _) => InputPosition::Line(line),
            (None, position) => InputPosition::Position(position.unwrap_or(number)),
        };
        let index = *places.entry((url.clone(), result.id.clone())).or_insert_with(|| {
            links.push(None);
            links.len() - 1
        });
        let is_left = which.iter().any(|which| which.selects(end));
        links[index] = is_left.then_some(LinkToRetry { url, id: result.id, place });
    }
    Ok(links.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_result_of_a_link_counts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("results.jsonl");
        let result = |url: &str, line: u64, error: &str| {
            format!(
                "{}\n",
                serde_json::json!({"url": url, "line": line, "success": error.is_empty(), "error_type": error})
            )
        };
        let mut text = result("http://e.org/a", 1, "paused") + &result("http://e.org/b", 2, "timeout");
        text += &(result("http://e.org/c", 3, "not_found") + &result("http://e.org/d", 4, ""));
        text += &(result("http://e.org/a", 1, "") + "\n");
        std::fs::write(&path, text).unwrap();
        let urls = |which: &[LeftLinks]| {
            read(&path, which).unwrap().into_iter().map(|link| (link.url, link.place)).collect::<Vec<_>>()
        };
        assert_eq!(urls(&[]), [("http://e.org/b".to_owned(), InputPosition::Line(2))]);
        assert_eq!(urls(&[LeftLinks::Missing]), [("http://e.org/c".to_owned(), InputPosition::Line(3))]);
        std::fs::write(&path, "http://e.org/a\n").unwrap();
        assert!(read(&path, &[]).unwrap_err().to_string().contains("line 1"));
    }
}
