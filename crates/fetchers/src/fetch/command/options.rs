//! The settings of a command fetcher.
//!
//! Must not know: the protocol of its program.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Settings of a [`CommandFetcher`](super::CommandFetcher).
#[derive(Clone, Debug)]
pub struct CommandOptions {
    /// Name under which attempts are logged.
    pub name: String,
    /// Program and its arguments. No shell is involved.
    pub argv: Vec<OsString>,
    /// Whether the program runs a page's scripts.
    pub renders: bool,
    /// Maximum number of concurrent requests to the child; further ones wait, and that wait does
    /// not count against their deadline.
    pub max_in_flight: usize,
    /// Maximum bytes of one line of the child. A longer body uses `body_path`.
    pub max_line: usize,
    /// Pause before a dead child is started again; doubled each time it dies without a response, up
    /// to one minute.
    pub backoff: Duration,
    /// Working directory of the child; `None` inherits ours.
    pub current_dir: Option<PathBuf>,
    /// Further environment variables for the child.
    pub env: Vec<(OsString, OsString)>,
}

impl CommandOptions {
    /// Returns the options for a program under `name` that does not render pages and takes 8
    /// concurrent requests.
    pub fn new(
        name: impl Into<String>,
        argv: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Self {
        Self {
            name: name.into(),
            argv: argv.into_iter().map(Into::into).collect(),
            renders: false,
            max_in_flight: 8,
            max_line: 32 << 20,
            backoff: Duration::from_millis(250),
            current_dir: None,
            env: Vec::new(),
        }
    }
}
