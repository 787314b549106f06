//! Discovery of the server that uses a data directory, by the address file in it.
//!
//! A killed server leaves its file behind; a client notices that when it connects.
//!
//! Must not know: the requests to the server.

use std::fs;
use std::path::Path;

/// The name of the address file.
pub(crate) const ADDRESS_FILE: &str = "SERVE";

/// Returns the address of the server that uses a data directory, if it has written one.
pub(crate) fn server_of(dir: &Path) -> Option<String> {
    let text = fs::read_to_string(dir.join(ADDRESS_FILE)).ok()?;
    text.lines().next().map(|line| line.trim().to_owned()).filter(|line| line.starts_with("http"))
}
