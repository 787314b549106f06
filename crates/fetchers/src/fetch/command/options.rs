//! How a command fetcher is set up. Must not know how its program is spoken to.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// How a [`CommandFetcher`](super::CommandFetcher) is run.
#[derive(Clone, Debug)]
pub struct CommandOptions {
    /// The name that attempts are logged under.
    pub name: String,
    /// The program and its arguments. No shell is involved.
    pub argv: Vec<OsString>,
    /// Whether the program runs a page's scripts.
    pub renders: bool,
    /// Requests given to the child at a time; further ones wait for their turn, and that wait is no part of their
    /// deadline.
    pub max_in_flight: usize,
    /// Bytes of one line of the child's. A body that does not fit comes as `body_path`.
    pub max_line: usize,
    /// The pause before a child that died is started again; doubled each time it dies without an answer, up to a
    /// minute.
    pub backoff: Duration,
    /// Where the child runs; none: where we do.
    pub current_dir: Option<PathBuf>,
    /// Further environment variables for the child.
    pub env: Vec<(OsString, OsString)>,
}

impl CommandOptions {
    /// A program under `name` that renders no pages and takes 8 requests at a time.
    pub fn new(name: impl Into<String>, argv: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
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
