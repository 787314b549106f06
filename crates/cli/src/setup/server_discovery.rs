//! The server beside: a file in the data directory says where the one listens that has it.
//!
//! One that was killed leaves its file: whoever asks there finds out. Must not know what a server is asked.

use std::fs;
use std::path::Path;

/// The file's name.
pub(crate) const ADDRESS_FILE: &str = "SERVE";

/// Where the server of a data directory listens, if it says so.
pub(crate) fn server_of(dir: &Path) -> Option<String> {
    let text = fs::read_to_string(dir.join(ADDRESS_FILE)).ok()?;
    text.lines().next().map(|line| line.trim().to_owned()).filter(|line| line.starts_with("http"))
}
