//! A polite crawler as a library: a frontier with a queue for each host, runs that continue where
//! they stopped, results in any order or in that of the input, and links that wait for the end of a
//! pause without holding others up.
//!
//! `fetchwise` chooses the fetcher of each page, keeps the pace of each host and learns from every
//! request. This crate decides which link goes next. It prints nothing and reads no arguments: a
//! [`CrawlSpec`] says what to crawl, and a [`CrawlSink`] gets the results. The program
//! `fetchwise fetch` is one user of it.
//!
//! # A polite crawler
//!
//! It obeys robots.txt, asks a new host twice per second at most, and slows down or pauses where a
//! site says so. Run again after an interruption, it continues where it stopped.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use fetchwise::fetch::http::HttpFetcher;
//! use fetchwise::journal::{self, Journal, JournalOptions};
//! use fetchwise::prelude::*;
//! use fetchwise::robots::RobotsTxt;
//! use fetchwise_crawl::{Crawl, CrawlResult, CrawlSpec};
//!
//! # type Failure = Box<dyn std::error::Error>;
//! # #[tokio::main]
//! # async fn main() -> Result<(), Failure> {
//! let dir = std::path::Path::new("crawl-data");
//! let journal = Arc::new(Journal::open(dir, JournalOptions::default())?.0);
//! let plain = FetcherSpec::plain("direct_access");
//! let selector = Selector::builder().fetcher(plain).sink(Arc::clone(&journal)).build()?;
//! journal::load(dir, &selector, fetchwise::time::Timestamp::now())?;
//!
//! let client = Arc::new(HttpFetcher::builder().user_agent("examplebot/1.0").build()?);
//! let robots = RobotsTxt::new(Arc::clone(&client) as _, "examplebot");
//! let pipeline = Crawl::pipeline(Arc::new(selector)).fetcher(client).robots(robots).build()?;
//!
//! let mut print = |result: CrawlResult<'_>| -> Result<(), Failure> {
//!     if let CrawlResult::Fetched { report, .. } = result {
//!         println!("{} {}", report.url, report.error_type.unwrap_or("ok"));
//!     }
//!     Ok(())
//! };
//! let crawl = Crawl::open(CrawlSpec::default().file("urls.txt"))?;
//! let summary = crawl.run(Arc::new(pipeline), journal, &mut print).await?;
//! println!("{} delivered", summary.totals.delivered);
//! # Ok(())
//! # }
//! ```
//!
//! # What a crawl guarantees
//!
//! * At most [`CrawlSpec::concurrency`] links are at work. A host that hangs or has to wait takes
//!   no place of others, and no site takes all.
//! * A result reaches the sink once the attempts of its link survive the end of the process. A
//!   killed crawl that is continued loses no result, and passes on every result at least once.
//! * A link that waits is an offset in its list, so that memory alone bounds the number of links.
//!
//! # A crawl that follows links
//!
//! [`Crawl::link_adder`] returns a handle with which a sink adds the links that it finds in pages.
//! Each one is fetched once. The caller decides which links to follow, and how far. A run that is
//! continued still has the links that were added.
//!
//! With the feature `fleet`, `Crawl::of_queue` takes links from a work queue that several nodes
//! share.

mod cost_report;
mod crawl;
mod error;
// Public for the benchmark of a step: an id of a host means nothing to another frontier.
#[doc(hidden)]
pub mod frontier;
pub mod input;
mod link_adder;
mod link_end;
mod link_fate;
mod log_watch;
mod pause_control;
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
pub use link_adder::LinkAdder;
pub use link_end::{LeftLinks, LinkEnd};
pub use pause_control::PauseControl;
pub use paused_links::{PauseSummary, PauseWait};
pub use remaining_time::{RemainingTime, SlowHost};
pub use resume::{LeftForPause, left_for_pause};
pub use run_log::{RunLog, RunLogSink};
pub use scheduler::{CrawlEnd, CrawlSummary};
pub use sink::{CrawlEvent, CrawlResult, CrawlSink, CrawlStatus, QueueSizes};
pub use spec::{Bodies, CrawlSpec, LinkSource, MAX_WAIT, Output};
pub use totals::{HostTotals, PausedHosts, Totals};
