//! Lists the HTML files in a folder: real pages for tests and benchmarks.

use std::path::{Path, PathBuf};

/// Adds every HTML file below `dir` to `out`; none if the folder does not exist.
pub(crate) fn html_files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            html_files(&path, out);
        } else if path.extension().is_some_and(|e| e == "html") {
            out.push(path);
        }
    }
}
