//! A crawl from its specification to its summary.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::error::CrawlError;
use crate::input::feed::{Earlier, Input};
use crate::link_adder::{AddedUrls, LinkAdder};
use crate::pause_control::{PauseControl, Releases};
use crate::resume::Resume;
use crate::scheduler::{CrawlSummary, Parts, Scheduler};
use crate::sink::{CrawlEvent, CrawlSink};
use crate::spec::CrawlSpec;
use crate::stop::StopWatch;
use fetchwise::ended_pauses::PauseListener;
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
    pauses: PauseControl,
    releases: Releases,
    added: Option<(LinkAdder, AddedUrls)>,
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
        let (pauses, releases) = PauseControl::new();
        Ok(Self {
            spec,
            input,
            stop: None,
            pauses,
            releases,
            added: None,
            #[cfg(feature = "fleet")]
            queue: None,
        })
    }

    /// Returns a builder of a pipeline for a crawl. Such a pipeline does not wait for a host: its
    /// links wait in the frontier, and leave their places to links of other hosts.
    #[must_use]
    pub fn pipeline(selector: Arc<Selector>) -> PipelineBuilder {
        Pipeline::builder(selector).wait_at_most(Duration::ZERO)
    }

    /// Returns the number of items of the input, with comments; none if it is not known yet.
    #[must_use]
    pub fn total(&self) -> Option<u64> {
        self.input.total
    }

    /// Stops the crawl when the number of requests to stop is above zero. The first request lets
    /// open requests finish within [`CrawlSpec::grace`], and the second one abandons them. What is
    /// not fetched is left to the next run.
    #[must_use]
    pub fn stop_on(mut self, requests: watch::Receiver<u32>) -> Self {
        self.stop = Some(requests);
        self
    }

    /// Returns a handle that tells this crawl that the settings of the pace have changed.
    #[must_use]
    pub fn pause_control(&self) -> PauseControl {
        self.pauses.clone()
    }

    /// Returns a handle that adds links to this crawl while it runs, such as those that its sink
    /// finds in pages. It needs no other source.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use fetchwise::fetch::{Body, FetchFuture, Fetcher, Request, Response};
    /// # use fetchwise::journal::{Journal, JournalOptions};
    /// # use fetchwise::prelude::*;
    /// # use fetchwise::response::Header;
    /// # use fetchwise::robots::RobotsUse;
    /// use fetchwise_crawl::{Bodies, Crawl, CrawlError, CrawlResult, CrawlSpec};
    ///
    /// # /// A site whose pages link to each other, and to another site.
    /// # struct Site;
    /// # impl Fetcher for Site {
    /// #     fn name(&self) -> &str { "direct_access" }
    /// #     fn renders(&self) -> bool { false }
    /// #     fn fetch<'a>(&'a self, request: Request<'a>) -> FetchFuture<'a> {
    /// #         Box::pin(async move {
    /// #             let text = "A sentence of the page. ".repeat(30);
    /// #             let links = "<a href='/'>first</a><a href='/b#top'>b</a><a href='http://elsewhere.org/'>e</a>";
    /// #             let page = format!("<title>Page</title>{links}<p>{text}");
    /// #             let headers = vec![Header::new("Content-Type", "text/html")];
    /// #             Ok(Response::new(200, headers, Body::in_memory(page), request.url.clone()))
    /// #         })
    /// #     }
    /// # }
    /// # fn links_of(page: &[u8]) -> Vec<String> {
    /// #     let page = String::from_utf8_lossy(page).into_owned();
    /// #     page.split("href='").skip(1).filter_map(|rest| Some(rest.split('\'').next()?.to_owned())).collect()
    /// # }
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let journal = Arc::new(Journal::open(dir.path(), JournalOptions::default())?.0);
    /// # let plain = FetcherSpec::plain("direct_access");
    /// # let selector = Selector::builder().without_pace().fetcher(plain).sink(Arc::clone(&journal)).build()?;
    /// # let pipeline = Crawl::pipeline(Arc::new(selector)).fetcher(Arc::new(Site)).build()?;
    /// let spec = CrawlSpec::default().urls(["http://example.org/"]).bodies(Bodies::All);
    /// # let spec = spec.robots(RobotsUse::Ignore);
    /// let mut crawl = Crawl::open(spec)?;
    /// let links = crawl.link_adder();
    /// let mut fetched = Vec::new();
    /// let mut follow = |result: CrawlResult<'_>| -> Result<(), CrawlError> {
    ///     let CrawlResult::Fetched { report, .. } = result else { return Ok(()) };
    ///     let Some(page) = &report.response else { return Ok(()) };
    ///     fetched.push(report.url.clone());
    ///     for href in links_of(page.body.head()) {
    ///         // This crawl stays on the host of the page.
    ///         if let Ok(url) = page.final_url.join(&href) && url.host() == page.final_url.host() {
    ///             links.add(url);
    ///         }
    ///     }
    ///     Ok(())
    /// };
    /// crawl.run(Arc::new(pipeline), journal, &mut follow).await?;
    /// assert_eq!(fetched, ["http://example.org/", "http://example.org/b#top"]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn link_adder(&mut self) -> LinkAdder {
        self.added.get_or_insert_with(LinkAdder::new).0.clone()
    }

    /// Takes links from a work queue of the fleet, in place of the sources.
    #[cfg(feature = "fleet")]
    #[must_use]
    pub fn of_queue(mut self, queue: QueueReader) -> Self {
        self.queue = Some(queue);
        self
    }

    /// Fetches all links and passes their results to `sink`. The pipeline's selector has to record
    /// to `journal`, whose directory also gets the state of the run.
    ///
    /// # Errors
    /// The state of the last run cannot be read, the sink takes no further result, or links are to
    /// be added to a crawl of a work queue.
    pub async fn run<S: CrawlSink>(
        self,
        pipeline: Arc<Pipeline>,
        journal: Arc<Journal>,
        sink: &mut S,
    ) -> Result<CrawlSummary, S::Error> {
        let mut opened = Resume::open(journal.dir(), &self.spec)?;
        opened.resume.set_query_hash(journal.query_hash());
        if let Some(ignored) = &opened.ignored {
            sink.event(CrawlEvent::ResultsIgnored { file: &ignored.file, reason: ignored.reason });
        }
        let (links, added) = (opened.resume.take_earlier(), opened.resume.earlier_added()?);
        let earlier = Earlier { links, added };
        // The run keeps no handle: it does not wait for what it could add itself.
        let added = self.added.map(|(_, added)| added);
        let grows = added.is_some();
        let total = self.input.total;
        #[cfg(feature = "fleet")]
        let feed = match self.queue {
            Some(_) if grows => return Err(CrawlError::AddedToQueue.into()),
            Some(queue) => self.input.start_queue(journal.dir(), queue),
            None => self.input.start(journal.dir(), earlier, grows)?,
        };
        #[cfg(not(feature = "fleet"))]
        let feed = self.input.start(journal.dir(), earlier, grows)?;
        let stop = StopWatch::new(self.stop, self.spec.grace);
        // Told for as long as this run lasts.
        let listener: Arc<dyn PauseListener> = Arc::new(self.pauses);
        pipeline.selector().add_pause_listener(&listener);
        let releases = self.releases;
        let parts = Parts { pipeline, journal, feed, added, opened, stop, total, releases };
        Scheduler::new(&self.spec, parts, sink).run().await
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::scheduler::CrawlEnd;
    use crate::sink::CrawlResult;
    use crate::spec::{Bodies, LinkSource};
    use fetchwise::backoff::LinkState;
    use fetchwise::fetch::{Body, FetchFuture, Fetcher, Request, Response};
    use fetchwise::journal::JournalOptions;
    use fetchwise::registry::{Class, FetcherSpec};
    use fetchwise::response::Header;
    use fetchwise::robots::RobotsUse;
    use fetchwise::time::Timestamp;

    /// Every page of the web, saved.
    struct Saved;

    impl Fetcher for Saved {
        fn name(&self) -> &str {
            "saved"
        }

        fn renders(&self) -> bool {
            true
        }

        fn fetch<'a>(&'a self, request: Request<'a>) -> FetchFuture<'a> {
            Box::pin(async move {
                let page =
                    format!("<title>Page</title><p>{}", "A sentence of the page. ".repeat(30));
                let headers = vec![Header::new("Content-Type", "text/html")];
                Ok(Response::new(200, headers, Body::in_memory(page), request.url.clone()))
            })
        }
    }

    /// Runs a crawl until its sink has taken `most` results. Returns their names, and how it ended.
    async fn run(
        dir: &Path,
        spec: CrawlSpec,
        most: usize,
    ) -> (Vec<String>, Result<CrawlSummary, CrawlError>) {
        follow(dir, spec, most, None).await
    }

    /// Returns the URLs that a sink adds when it gets the result of this one.
    type Found<'f> = &'f dyn Fn(&str) -> Vec<String>;

    /// Runs a crawl like [`run`] whose sink adds links.
    async fn follow(
        dir: &Path,
        spec: CrawlSpec,
        most: usize,
        found: Option<Found<'_>>,
    ) -> (Vec<String>, Result<CrawlSummary, CrawlError>) {
        let journal =
            Arc::new(Journal::open(&dir.join("data"), JournalOptions::default()).unwrap().0);
        let saved = FetcherSpec::new("saved", Class::Archive);
        let selector = Selector::builder()
            .without_pace()
            .fetcher(saved)
            .sink(Arc::clone(&journal))
            .build()
            .unwrap();
        let pipeline =
            Crawl::pipeline(Arc::new(selector)).fetcher(Arc::new(Saved)).build().unwrap();
        let mut names = Vec::new();
        let mut crawl = Crawl::open(spec.robots(RobotsUse::Ignore)).unwrap();
        let adder = found.map(|found| (found, crawl.link_adder()));
        let mut take = |result: CrawlResult<'_>| match result {
            _ if names.len() == most => Err(CrawlError::Queue("the sink is full".to_owned())),
            CrawlResult::Fetched { link, report, .. } => {
                assert!(report.success, "{report:?}");
                if let Some((found, links)) = &adder {
                    found(&link.url).into_iter().for_each(|url| links.add(url));
                }
                names.push(link.id.clone().unwrap_or_else(|| link.url.clone()));
                Ok(())
            }
            CrawlResult::Invalid { error, .. } => {
                names.push(error.to_owned());
                Ok(())
            }
        };
        let ended = crawl.run(Arc::new(pipeline), journal, &mut take).await;
        (names, ended)
    }

    fn page(n: usize) -> String {
        format!("http://h{}.example.org/{n}", n % 3)
    }

    fn number(url: &str) -> usize {
        url.rsplit('/').next().unwrap().parse().unwrap()
    }

    #[tokio::test]
    async fn a_link_that_a_sink_adds_is_fetched_once_and_the_crawl_ends_after_the_last_page() {
        for spec in [CrawlSpec::default(), CrawlSpec::default().ordered()] {
            let dir = tempfile::tempdir().unwrap();
            let spec = spec.urls([page(0), page(20)]).concurrency(3);
            // Each page names itself, an earlier one, the next one in two spellings, and a listed
            // one.
            let found = |url: &str| {
                let n = number(url);
                let next = (n < 29).then(|| page(n + 1));
                let again = next.as_ref().map(|url| format!("{url}#top"));
                let known = [page(n), page(n / 2), page(20)];
                known.into_iter().chain(next).chain(again).collect()
            };
            let is_ordered = spec.ordered;
            let (names, ended) = follow(dir.path(), spec, 100, Some(&found)).await;
            let mut numbers: Vec<usize> = names.iter().map(|name| number(name)).collect();
            if is_ordered {
                assert_eq!(numbers[..2], [0, 20], "the input comes first");
            }
            numbers.sort_unstable();
            assert_eq!(numbers, (0..30).collect::<Vec<_>>());
            let summary = ended.unwrap();
            assert!(matches!(summary.end, CrawlEnd::Complete));
            assert_eq!((summary.totals.delivered, summary.totals.duplicates), (30, 0));
        }
    }

    #[tokio::test]
    async fn an_interrupted_crawl_still_has_the_links_that_its_sink_has_added() {
        for spec in [CrawlSpec::default(), CrawlSpec::default().ordered()] {
            let dir = tempfile::tempdir().unwrap();
            let spec = || CrawlSpec { ..spec.clone() }.urls([page(0)]).concurrency(2);
            // A tree: the pages that named the rest are done, and will not be read again.
            let found = |url: &str| match number(url) {
                n if n < 7 => vec![page(2 * n + 1), page(2 * n + 2)],
                _ => Vec::new(),
            };
            let mut all = Vec::new();
            for (most, want) in [(4, 0), (3, 4), (100, 7)] {
                let (names, ended) = follow(dir.path(), spec(), most, Some(&found)).await;
                all.extend(names);
                match ended {
                    Ok(summary) => assert_eq!(summary.totals.skipped, want),
                    Err(error) => assert!(matches!(error, CrawlError::Queue(_))),
                }
            }
            let mut numbers: Vec<usize> = all.iter().map(|name| number(name)).collect();
            numbers.sort_unstable();
            assert_eq!(numbers, (0..15).collect::<Vec<_>>(), "each one once");
            let (again, _) = run(dir.path(), spec(), 100).await;
            assert_eq!(again, [page(0)], "a complete run is forgotten");
        }
    }

    #[cfg(feature = "fleet")]
    #[tokio::test]
    async fn links_are_not_added_to_a_crawl_of_a_work_queue() {
        use fetchwise_fleet::NodeId;
        use fetchwise_fleet::queue::QueueOptions;
        use fetchwise_fleet::transport::in_process::InProcessBroker;
        let dir = tempfile::tempdir().unwrap();
        let journal = Arc::new(Journal::open(dir.path(), JournalOptions::default()).unwrap().0);
        let selector = Selector::builder().fetcher(FetcherSpec::new("saved", Class::Archive));
        let selector = Arc::new(selector.build().unwrap());
        let pipeline =
            Crawl::pipeline(Arc::clone(&selector)).fetcher(Arc::new(Saved)).build().unwrap();
        let id = NodeId::random();
        let broker = InProcessBroker::new(Arc::clone(selector.clock()), 1);
        let (max_links, max_sites, max_site_links) = (9, 9, 9);
        let queue = "crawl".to_owned();
        let options = QueueOptions { queue, max_links, max_sites, max_site_links };
        let lease = (watch::channel(None).1, Duration::from_secs(9));
        let reader = QueueReader::start(Arc::new(broker.node(id)), selector, id, lease, options);
        let mut crawl = Crawl::open(CrawlSpec::default()).unwrap().of_queue(reader);
        let links = crawl.link_adder();
        let mut take = |_: CrawlResult<'_>| -> Result<(), CrawlError> { Ok(()) };
        let ended = crawl.run(Arc::new(pipeline), journal, &mut take).await;
        assert!(matches!(ended, Err(CrawlError::AddedToQueue)));
        links.add("http://e.org/");
    }

    fn numbered(dir: &Path) -> CrawlSpec {
        let lines: String = (0..9)
            .map(|n| format!("{{\"url\":\"http://h{}.example.org/{n}\",\"id\":\"{n}\"}}\n", n % 4))
            .collect();
        std::fs::write(dir.join("list"), lines).unwrap();
        CrawlSpec::default().file(dir.join("list")).concurrency(3)
    }

    #[tokio::test]
    async fn a_crawl_whose_sink_failed_continues_with_what_it_had_not_passed_on() {
        let dir = tempfile::tempdir().unwrap();
        let (first, ended) = run(dir.path(), numbered(dir.path()), 4).await;
        assert!(matches!(ended, Err(CrawlError::Queue(_))));
        let (second, ended) = run(dir.path(), numbered(dir.path()), 100).await;
        let summary = ended.unwrap();
        assert!(matches!(summary.end, CrawlEnd::Complete));
        assert_eq!((summary.totals.skipped, summary.totals.delivered), (4, 5));
        let mut all = [first, second].concat();
        all.sort();
        assert_eq!(all, ["0", "1", "2", "3", "4", "5", "6", "7", "8"]);
        let (again, _) = run(dir.path(), numbered(dir.path()), 100).await;
        assert_eq!(again.len(), 9, "after a complete crawl all links are fetched again");
    }

    #[tokio::test]
    async fn results_and_invalid_lines_come_in_the_order_of_the_input() {
        let dir = tempfile::tempdir().unwrap();
        let spec = CrawlSpec { bodies: Bodies::All, ..numbered(dir.path()).ordered() };
        let sources = [LinkSource::Url("http://a.example.org/".to_owned())]
            .into_iter()
            .chain(spec.sources.clone());
        let mut spec = CrawlSpec { sources: sources.collect(), ..spec };
        std::fs::write(dir.path().join("more"), "{}\nhttp://b.example.org/\n").unwrap();
        spec = spec.file(dir.path().join("more"));
        let (names, ended) = run(dir.path(), spec, 100).await;
        assert_eq!(names[0], "http://a.example.org/");
        assert_eq!(names[1..10], ["0", "1", "2", "3", "4", "5", "6", "7", "8"]);
        assert!(names[10].starts_with("not a JSON object"), "{names:?}");
        assert_eq!(names[11..], ["http://b.example.org/"], "a second list is read, too");
        assert_eq!(ended.unwrap().totals.unclassified, 1);
    }

    /// A change of a selector.
    type Change = fn(&Selector);

    const PAUSED: &str = "http://b.example.org/";

    fn an_hour() -> Option<Timestamp> {
        Some(Timestamp::now().saturating_add(Duration::from_secs(3600)))
    }

    /// The bug: a pause that another node of the fleet had ended, or an operator at the dashboard,
    /// kept the links that waited for its end. The crawl heard of the control socket only.
    #[tokio::test]
    async fn links_are_asked_again_when_an_operator_or_a_peer_ends_their_pause() {
        let pause_host: Change = |selector| selector.set_host_pause("b.example.org", an_hour());
        let pause_link: Change = |selector| {
            let state =
                LinkState { paused_until: an_hour(), risk_level: 1, ..LinkState::default() };
            selector.set_remote_link_state(selector.link_hash(PAUSED), Some(state));
        };
        let all: [(Change, Change); 5] = [
            (pause_host, |selector| selector.set_host_pause("b.example.org", None)),
            (pause_host, |selector| {
                assert!(selector.unpause_host("b.example.org", selector.now()).is_some());
            }),
            (pause_host, |selector| selector.forget_domain("b.example.org")),
            (pause_link, |selector| {
                selector.set_remote_link_state(selector.link_hash(PAUSED), None);
            }),
            (pause_link, |selector| {
                assert!(selector.unpause_link(PAUSED, selector.now()).is_some());
            }),
        ];
        for (begins, ends) in all {
            let dir = tempfile::tempdir().unwrap();
            let journal = Arc::new(Journal::open(dir.path(), JournalOptions::default()).unwrap().0);
            let selector = Selector::builder()
                .without_pace()
                .fetcher(FetcherSpec::new("saved", Class::Archive))
                .sink(Arc::clone(&journal));
            let selector = Arc::new(selector.build().unwrap());
            begins(&selector);
            let pipeline =
                Crawl::pipeline(Arc::clone(&selector)).fetcher(Arc::new(Saved)).build().unwrap();
            let mut names = Vec::new();
            let mut take = |result: CrawlResult<'_>| -> Result<(), CrawlError> {
                let CrawlResult::Fetched { link, report, .. } = result else { return Ok(()) };
                if names.is_empty() {
                    ends(&selector);
                }
                names.push((link.url.clone(), report.success));
                Ok(())
            };
            let spec = CrawlSpec::default().urls([PAUSED, "http://a.example.org/"]).concurrency(1);
            let crawl = Crawl::open(spec.robots(RobotsUse::Ignore)).unwrap();
            crawl.run(Arc::new(pipeline), journal, &mut take).await.unwrap();
            let want = ["http://a.example.org/", PAUSED].map(|url| (url.to_owned(), true));
            assert_eq!(names, want);
        }
    }

    #[tokio::test]
    async fn a_crawl_that_is_told_to_stop_leaves_the_rest_to_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let journal =
            Arc::new(Journal::open(&dir.path().join("data"), JournalOptions::default()).unwrap().0);
        let saved = FetcherSpec::new("saved", Class::Archive);
        let selector = Selector::builder()
            .without_pace()
            .fetcher(saved)
            .sink(Arc::clone(&journal))
            .build()
            .unwrap();
        let pipeline =
            Crawl::pipeline(Arc::new(selector)).fetcher(Arc::new(Saved)).build().unwrap();
        let (ask, asked) = watch::channel(0);
        let mut taken = 0;
        let mut take = |_: CrawlResult<'_>| -> Result<(), CrawlError> {
            taken += 1;
            ask.send_replace(1);
            Ok(())
        };
        let spec = numbered(dir.path()).robots(RobotsUse::Ignore).concurrency(1);
        let crawl = Crawl::open(spec).unwrap().stop_on(asked);
        let summary = crawl.run(Arc::new(pipeline), journal, &mut take).await.unwrap();
        assert!(matches!(summary.end, CrawlEnd::Stopped));
        let (rest, _) = run(dir.path(), numbered(dir.path()), 100).await;
        assert!(taken > 0 && rest.len() + taken == 9, "{taken} and {rest:?}");
    }
}
