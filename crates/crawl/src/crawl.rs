//! A crawl from its specification to its summary.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::error::CrawlError;
use crate::input::feed::Input;
use crate::resume::Resume;
use crate::scheduler::{CrawlSummary, Parts, Scheduler};
use crate::sink::{CrawlEvent, CrawlSink};
use crate::spec::CrawlSpec;
use crate::stop::StopWatch;
use fetchwise::journal::Journal;
use fetchwise::pipeline::{Pipeline, PipelineBuilder};
use fetchwise::selector::Selector;
#[cfg(feature = "fleet")]
use fetchwise_fleet::queue::QueueReader;

/// A crawl whose sources are open.
pub struct Crawl {
    spec: CrawlSpec,
    input: Input,
    stop: Option<watch::Receiver<u32>>,
    #[cfg(feature = "fleet")]
    queue: Option<QueueReader>,
}

impl Crawl {
    /// Opens the sources of a crawl. Nothing is fetched or written yet.
    ///
    /// # Errors
    /// A source cannot be opened, or a file of results is none.
    pub fn open(spec: CrawlSpec) -> Result<Self, CrawlError> {
        let input = Input::open(&spec)?;
        Ok(Self {
            spec,
            input,
            stop: None,
            #[cfg(feature = "fleet")]
            queue: None,
        })
    }

    /// Returns a builder of a pipeline for a crawl. Such a pipeline does not wait for a host: its links do that in the
    /// frontier, where they take nobody's place.
    #[must_use]
    pub fn pipeline(selector: Arc<Selector>) -> PipelineBuilder {
        Pipeline::builder(selector).wait_at_most(Duration::ZERO)
    }

    /// Returns the number of items of the input, with comments; none if it is not known yet.
    #[must_use]
    pub fn total(&self) -> Option<u64> {
        self.input.total
    }

    /// Stops the crawl when the number of requests to stop is above zero. The first request lets open requests finish
    /// within [`CrawlSpec::grace`], and the second one abandons them. What is not fetched is left to the next run.
    #[must_use]
    pub fn stop_on(mut self, requests: watch::Receiver<u32>) -> Self {
        self.stop = Some(requests);
        self
    }

    /// Takes links from a work queue of the fleet, in place of the sources.
    #[cfg(feature = "fleet")]
    #[must_use]
    pub fn of_queue(mut self, queue: QueueReader) -> Self {
        self.queue = Some(queue);
        self
    }

    /// Fetches all links and passes their results to `sink`. The pipeline's selector has to record to `journal`, whose
    /// directory also gets the state of the run.
    ///
    /// # Errors
    /// The state of the last run cannot be read, or the sink takes no further result.
    pub async fn run<S: CrawlSink>(
        self,
        pipeline: Arc<Pipeline>,
        journal: Arc<Journal>,
        sink: &mut S,
    ) -> Result<CrawlSummary, S::Error> {
        let mut opened = Resume::open(journal.dir(), &self.spec)?;
        if let Some(ignored) = &opened.ignored {
            sink.event(CrawlEvent::ResultsIgnored { file: &ignored.file, reason: ignored.reason });
        }
        let earlier = opened.resume.take_earlier();
        let total = self.input.total;
        #[cfg(feature = "fleet")]
        let feed = match self.queue {
            Some(queue) => self.input.start_queue(journal.dir(), queue),
            None => self.input.start(journal.dir(), earlier)?,
        };
        #[cfg(not(feature = "fleet"))]
        let feed = self.input.start(journal.dir(), earlier)?;
        let stop = StopWatch::new(self.stop, self.spec.grace);
        let parts = Parts { pipeline, journal, feed, opened, stop, total };
        Scheduler::new(&self.spec, parts, sink).run().await
    }
}
