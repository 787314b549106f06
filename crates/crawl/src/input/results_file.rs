//! The results of an earlier run, from which the links to fetch are taken.
//!
//! Invariants: the last result of a link counts, so a file may hold the results of several runs.

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;

use super::lines::Lines;
use super::position::InputPosition;
use crate::error::CrawlError;
use crate::link_end::{LeftLinks, LinkEnd};

/// The maximum length of a result in bytes.
const MAX_LINE_BYTES: usize = 1 << 20;

/// A link to fetch again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LinkToRetry {
    pub(crate) url: String,
    pub(crate) id: Option<String>,
    /// Its place in the input of the run that left it.
    pub(crate) place: InputPosition,
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

/// Reads the links of `path` that ended as one of `which`; with none, those that failed or are
/// paused.
pub(crate) fn read(path: &Path, which: &[LeftLinks]) -> Result<Vec<LinkToRetry>, CrawlError> {
    let which = if which.is_empty() { &[LeftLinks::Failed, LeftLinks::Paused] } else { which };
    let mut lines = Lines::of_file(path, MAX_LINE_BYTES)?;
    let mut links: Vec<Option<LinkToRetry>> = Vec::new();
    let mut places: HashMap<(String, Option<String>), usize> = HashMap::new();
    let unreadable = |error| CrawlError::Read { path: path.to_owned(), error };
    while let Some(line) = lines.next_line().map_err(unreadable)? {
        let number = line.number;
        let invalid =
            |reason: String| CrawlError::NotAResult { path: path.to_owned(), line: number, reason };
        let text = line.text.map_err(|error| invalid(error.to_string()))?;
        let is_unended = line.bytes == text.len() as u64;
        if text.trim().is_empty() {
            continue;
        }
        let result: ResultLine = match serde_json::from_str(&text) {
            // A run that was killed, or a full disk, has cut off the last one.
            Err(error) if error.is_eof() && is_unended => break,
            read => read.map_err(|error| invalid(error.to_string()))?,
        };
        // An invalid line of the input has no URL.
        let Some(url) = result.url else { continue };
        let end = LinkEnd::from_result(
            result.success,
            result.error_type.as_deref(),
            result.paused_until.is_some(),
        );
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
        let mut text =
            result("http://e.org/a", 1, "paused") + &result("http://e.org/b", 2, "timeout");
        text += &(result("http://e.org/c", 3, "not_found") + &result("http://e.org/d", 4, ""));
        text += &(result("http://e.org/a", 1, "") + "\n");
        text += r#"{"url":"http://e.org/torn","li"#;
        std::fs::write(&path, text).unwrap();
        let urls = |which: &[LeftLinks]| {
            read(&path, which)
                .unwrap()
                .into_iter()
                .map(|link| (link.url, link.place))
                .collect::<Vec<_>>()
        };
        assert_eq!(urls(&[]), [("http://e.org/b".to_owned(), InputPosition::Line(2))]);
        assert_eq!(
            urls(&[LeftLinks::Missing]),
            [("http://e.org/c".to_owned(), InputPosition::Line(3))]
        );
        std::fs::write(&path, "http://e.org/a\n").unwrap();
        assert!(read(&path, &[]).unwrap_err().to_string().contains("line 1"));
    }
}
