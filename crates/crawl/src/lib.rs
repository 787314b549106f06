//! A polite crawler as a library.

mod cost_report;
mod crawl;
mod error;
pub mod frontier;
pub mod input;
mod link_end;
mod link_fate;
mod log_watch;
mod paused_links;
mod positioned_io;
mod progress;
mod remaining_time;
mod results;
mod resume;
mod run_log;
mod scheduler;
mod sink;
mod spec;
mod stop;
mod totals;

pub use cost_report::{Alternative, CostReport, FetcherCost};
pub use crawl::Crawl;
pub use error::CrawlError;
pub use link_end::{LeftLinks, LinkEnd};
pub use paused_links::{PauseSummary, PauseWait};
pub use remaining_time::{RemainingTime, SlowHost};
pub use resume::{LeftForPause, left_for_pause};
pub use run_log::{RunLog, RunLogSink};
pub use scheduler::{CrawlEnd, CrawlSummary};
pub use sink::{CrawlEvent, CrawlResult, CrawlSink, CrawlStatus, QueueSizes};
pub use spec::{Bodies, CrawlSpec, LinkSource, MAX_WAIT, Output};
pub use totals::{HostTotals, PausedHosts, Totals};
