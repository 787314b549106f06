//! The failure of the command for an error of a crawl.

use crate::terminal::exit::Failure;
use crate::terminal::output::shown;
use fetchwise_crawl::CrawlError;

impl From<CrawlError> for Failure {
    fn from(error: CrawlError) -> Self {
        match &error {
            CrawlError::Open { path, error } => {
                Self::usage(format_args!("cannot read {}: {error}", shown(path)))
            }
            CrawlError::Read { path, error } => {
                Self::failed(format_args!("cannot read {}: {error}", shown(path)))
            }
            CrawlError::NotAResult { path, line, reason } => Self::usage(format_args!(
                "{} line {line}: not a result of fetch: {reason}",
                path.display()
            ))
            .advise("--retry reads what `fetch --json` printed"),
            CrawlError::Interrupted => Self::failed(
                "cannot read the state of the last run: an earlier run was interrupted; continue it without --only \
                 first",
            ),
            CrawlError::WaitingResult(error) => {
                Self::failed(format_args!("cannot read a result of --ordered again: {error}"))
            }
            _ => Self::failed(error),
        }
    }
}
