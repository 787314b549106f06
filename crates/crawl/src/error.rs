//! Why a crawl cannot begin, or ends early.

use std::io;
use std::path::PathBuf;

/// Why a crawl cannot begin, or ends early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CrawlError {
    /// A source cannot be opened.
    #[error("cannot read {}: {error}", path.display())]
    Open {
        /// The source.
        path: PathBuf,
        /// Why it cannot be opened.
        error: io::Error,
    },
    /// A source cannot be read to its end.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The source.
        path: PathBuf,
        /// Why it cannot be read.
        error: io::Error,
    },
    /// A line of an earlier run's results is not one.
    #[error("{} line {line}: not a result of a crawl: {reason}", path.display())]
    NotAResult {
        /// The file of results.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// The state of the last run cannot be read.
    #[error("cannot read the state of the last run: {0}")]
    State(io::Error),
    /// The last run was interrupted, and this one would fetch only what a complete run left.
    #[error(
        "cannot read the state of the last run: an earlier run was interrupted; continue it without a selection first"
    )]
    Interrupted,
    /// A result that waited for an earlier one cannot be read again.
    #[error("cannot read a result again that waited for an earlier one: {0}")]
    WaitingResult(io::Error),
    /// The thread that reads the input cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The work queue cannot be read.
    #[error("cannot read the queue: {0}")]
    Queue(String),
    /// Links cannot be added to a crawl of a work queue: its nodes fetch what the queue has.
    #[error("cannot add links to a crawl of a work queue: put them into the queue")]
    AddedToQueue,
    /// The work queue is empty but for messages that belong to no site.
    #[error("{} of the queue cannot be read: another program put them on subjects that belong to no site", messages(*.0))]
    ForeignMessages(u64),
}

fn messages(count: u64) -> String {
    if count == 1 { "1 message".to_owned() } else { format!("{count} messages") }
}
