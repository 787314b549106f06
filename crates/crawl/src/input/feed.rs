//! The input of a crawl: addresses, files or stdin, in order, or a work queue.
//!
//! A separate thread reads it to its end and passes on where each link stands and which host it
//! has. It leaves out duplicates, and links that an earlier run finished. So reading waits for no
//! host, and a slow pipe delays nothing else.
//!
//! Must not know: the order in which links are fetched.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::mpsc;

use super::admission::SharedAdmission;
use super::batch::{Batch, Item};
use super::line::{self, MAX_LINE_BYTES};
use super::lines::Lines;
use super::link_list::LinkList;
use super::position::InputPosition;
#[cfg(feature = "fleet")]
use super::queue_feed::QueueFeed;
use super::results_file::{self, LinkToRetry};
use crate::error::CrawlError;
use crate::resume::{EarlierAdded, EarlierLinks};
use crate::spec::{CrawlSpec, LinkSource};
use fetchwise::pipeline::Link;

/// The number of links that are passed on at once.
const BATCH: usize = 1_024;
/// The number of batches that the thread is ahead of the scheduler, which is busy with results in
/// between.
const AHEAD: usize = 64;

/// The input of a run, opened.
pub(crate) struct Input {
    sources: Vec<Source>,
    /// The file whose lines stay where they are.
    file: Option<File>,
    named: Link,
    listed: Link,
    /// The number of items, if known.
    pub(crate) total: Option<u64>,
}

/// The stream of input items.
pub(crate) struct InputFeed {
    from: FeedSource,
    /// The text of the links.
    pub(crate) list: Arc<LinkList>,
    /// The admission of links that are added to the running crawl; none if nobody adds any.
    admission: Option<SharedAdmission>,
}

/// What a run knows of an interrupted one.
#[derive(Debug, Default)]
pub(crate) struct Earlier {
    pub(crate) links: EarlierLinks,
    pub(crate) added: Option<EarlierAdded>,
}

/// Where a feed takes its items from.
enum FeedSource {
    /// The thread that reads addresses, files or stdin.
    Reader(mpsc::Receiver<Batch>),
    #[cfg(feature = "fleet")]
    Queue(QueueFeed),
}

enum Source {
    One(u64, String),
    Retried(LinkToRetry),
    /// The links that were added to an interrupted run.
    Added(EarlierAdded),
    Lines {
        lines: Lines,
        path: PathBuf,
        /// Whether its lines are read again from the file.
        is_file: bool,
        /// The number of lines, if it is known.
        count: Option<u64>,
    },
}

impl Input {
    /// Opens all sources.
    pub(crate) fn open(spec: &CrawlSpec) -> Result<Self, CrawlError> {
        let (mut sources, mut file): (Vec<Source>, _) = (Vec::new(), None);
        for (before, source) in (0..).zip(&spec.sources) {
            match source {
                LinkSource::Url(url) => sources.push(Source::One(before + 1, url.clone())),
                LinkSource::Stdin => {
                    let lines = Lines::new(Box::new(io::stdin()), MAX_LINE_BYTES);
                    sources.push(Source::Lines {
                        lines,
                        path: PathBuf::from("stdin"),
                        is_file: false,
                        count: None,
                    });
                }
                // A results file is read whole: its last line may be about its first link.
                LinkSource::Results(path) => {
                    sources.extend(
                        results_file::read(path, &spec.only)?.into_iter().map(Source::Retried),
                    );
                }
                LinkSource::File(path) => {
                    let lines = Lines::of_file(path, MAX_LINE_BYTES)?;
                    // One file is read again where its lines are. A pipe gives its lines only once.
                    let is_first = file.is_none() && is_regular(path);
                    file = if is_first { File::open(path).ok() } else { file };
                    let is_file = is_first && file.is_some();
                    let count = count_lines(path).ok();
                    sources.push(Source::Lines { lines, path: path.clone(), is_file, count });
                }
            }
        }
        // How much a work queue holds is known once it was read, and changes.
        let total = if spec.sources.is_empty() { None } else { total(&sources) };
        Ok(Self { sources, file, named: spec.named.clone(), listed: spec.listed.clone(), total })
    }

    /// Starts to read, without the links that an earlier run finished. What is not in a file is
    /// spooled in `dir`. `grows` is whether links are added to the running crawl.
    pub(crate) fn start(
        self,
        dir: &Path,
        earlier: Earlier,
        grows: bool,
    ) -> Result<InputFeed, CrawlError> {
        let admission = SharedAdmission::new(earlier.links);
        let list = Arc::new(LinkList::new(dir, self.named, self.listed).with_file(self.file));
        let (to, batches) = mpsc::channel(AHEAD);
        let mut reader = Reader {
            list: Arc::clone(&list),
            to,
            admission: admission.clone(),
            batch: Batch::default(),
        };
        let mut sources = self.sources;
        // After the input, whose results come first.
        sources.extend(earlier.added.map(Source::Added));
        std::thread::Builder::new()
            .name("fetchwise-input".into())
            .spawn(move || reader.read(sources))
            .map_err(CrawlError::Thread)?;
        // Without the scheduler's part, the admission goes with the thread.
        let admission = grows.then_some(admission);
        Ok(InputFeed { from: FeedSource::Reader(batches), list, admission })
    }

    /// Starts to take links from a work queue.
    #[cfg(feature = "fleet")]
    pub(crate) fn start_queue(
        self,
        dir: &Path,
        reader: fetchwise_fleet::queue::QueueReader,
    ) -> InputFeed {
        let list = Arc::new(LinkList::new(dir, self.named, self.listed));
        let from = FeedSource::Queue(QueueFeed::new(reader, Arc::clone(&list)));
        InputFeed { from, list, admission: None }
    }
}

impl InputFeed {
    /// Returns the next items if there are some now.
    pub(crate) fn try_next(&mut self) -> Option<Batch> {
        match &mut self.from {
            FeedSource::Reader(batches) => batches.try_recv().ok(),
            #[cfg(feature = "fleet")]
            FeedSource::Queue(queue) => queue.try_next(),
        }
    }

    /// Returns the next items; none at the end.
    pub(crate) async fn next(&mut self) -> Option<Batch> {
        match &mut self.from {
            FeedSource::Reader(batches) => batches.recv().await,
            #[cfg(feature = "fleet")]
            FeedSource::Queue(queue) => queue.next().await,
        }
    }

    /// Admits a link that was added to the running crawl. Returns it with what is to be taken in,
    /// which is empty if the link is left out.
    pub(crate) fn add(&self, url: &str) -> (Link, Batch) {
        let (link, mut batch) = (self.list.retried(url, None), Batch::default());
        if let Some(admission) = &self.admission {
            admission.lock().admit_added(&link, &mut batch, || self.list.add_added(url));
        }
        (link, batch)
    }

    /// Returns the number of links of the work queue without a result, at all nodes; none for any
    /// other input.
    pub(crate) fn queue_left(&self) -> Option<u64> {
        match &self.from {
            FeedSource::Reader(_) => None,
            #[cfg(feature = "fleet")]
            FeedSource::Queue(queue) => queue.left(),
        }
    }

    /// Returns whether the links come from a work queue, which remembers what is done.
    pub(crate) fn is_queue(&self) -> bool {
        match &self.from {
            FeedSource::Reader(_) => false,
            #[cfg(feature = "fleet")]
            FeedSource::Queue(_) => true,
        }
    }

    /// Records that the result of item `number` is written.
    #[cfg_attr(
        not(feature = "fleet"),
        allow(unused_variables, clippy::needless_pass_by_ref_mut, reason = "for queues")
    )]
    pub(crate) fn written(&mut self, number: u64) {
        match &mut self.from {
            FeedSource::Reader(_) => {}
            #[cfg(feature = "fleet")]
            FeedSource::Queue(queue) => queue.written(number),
        }
    }

    /// Gives a link back without a result.
    #[cfg_attr(
        not(feature = "fleet"),
        allow(unused_variables, clippy::needless_pass_by_ref_mut, reason = "for queues")
    )]
    pub(crate) fn dropped(&mut self, number: u64) {
        match &mut self.from {
            FeedSource::Reader(_) => {}
            #[cfg(feature = "fleet")]
            FeedSource::Queue(queue) => queue.dropped(number),
        }
    }

    /// Returns whether a link goes back to its queue and is not to be tried again here.
    #[cfg_attr(not(feature = "fleet"), allow(unused_variables, reason = "for queues"))]
    pub(crate) fn is_withdrawn(&self, number: u64) -> bool {
        match &self.from {
            FeedSource::Reader(_) => false,
            #[cfg(feature = "fleet")]
            FeedSource::Queue(queue) => queue.is_withdrawn(number),
        }
    }

    /// Ends the feed. A work queue gets back what has no result.
    #[cfg_attr(not(feature = "fleet"), allow(clippy::unused_async, reason = "for queues"))]
    pub(crate) async fn stop(self) {
        match self.from {
            FeedSource::Reader(_) => {}
            #[cfg(feature = "fleet")]
            FeedSource::Queue(queue) => queue.stop().await,
        }
    }
}

/// The thread that reads.
struct Reader {
    list: Arc<LinkList>,
    to: mpsc::Sender<Batch>,
    admission: SharedAdmission,
    batch: Batch,
}

/// Reading ends early: after an error, or because nobody waits for the input any longer.
struct Stopped;

impl Reader {
    /// Reads until the end of the input, or until the receiver is dropped.
    fn read(&mut self, sources: Vec<Source>) {
        let _ = self.read_all(sources).and_then(|()| self.pass_on());
        // The scheduler learns of the end after this.
        self.admission.lock().forget_earlier();
    }

    fn read_all(&mut self, sources: Vec<Source>) -> Result<(), Stopped> {
        for source in sources {
            match source {
                Source::One(position, url) => {
                    let link = self.list.argument(&url);
                    self.add(&link, InputPosition::Position(position), |list| {
                        list.add_argument(&url)
                    })?;
                }
                Source::Retried(left) => {
                    let link = self.list.retried(&left.url, left.id.as_deref());
                    self.add(&link, left.place, |list| {
                        list.add_retried(left.place, &left.url, left.id.as_deref())
                    })?;
                }
                Source::Added(added) => self.read_added(added)?,
                Source::Lines { lines, path, is_file, .. } => {
                    self.read_lines(lines, &path, is_file)?
                }
            }
        }
        Ok(())
    }

    fn read_added(&mut self, mut added: EarlierAdded) -> Result<(), Stopped> {
        loop {
            let url = match added.next() {
                Ok(Some(url)) => url,
                Ok(None) => return Ok(()),
                Err(error) => return self.end_with(error),
            };
            let link = self.list.retried(&url, None);
            let place = self.admission.lock().next_added();
            self.batch.added += 1;
            self.add(&link, place, |list| list.add_added(&url))?;
        }
    }

    /// Passes an error on that ends the input early.
    fn end_with(&mut self, error: CrawlError) -> Result<(), Stopped> {
        self.batch.items.push(Item::Broken(error));
        self.pass_on()?;
        Err(Stopped)
    }

    fn read_lines(&mut self, mut lines: Lines, path: &Path, is_file: bool) -> Result<(), Stopped> {
        let mut at = 0;
        loop {
            // The next line may take long to come.
            if !lines.has_line() {
                self.pass_on()?;
            }
            let line = match lines.next_line() {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(()),
                Err(error) => {
                    return self.end_with(CrawlError::Read { path: path.to_owned(), error });
                }
            };
            let begin = at;
            at += line.bytes;
            let read = line.text.map_err(|error| error.to_string());
            let error = match read.map(|text| (line::link(&text, self.list.listed()), text)) {
                Ok((None, _)) => continue,
                Ok((Some(Ok(link)), text)) => {
                    let offset = |list: &LinkList| match is_file {
                        true => LinkList::file_line(begin),
                        false => list.add_line(&text),
                    };
                    self.add(&link, InputPosition::Line(line.number), offset)?;
                    continue;
                }
                Ok((Some(Err(error)), _)) | Err(error) => error,
            };
            let number = self.admission.lock().next_number();
            let bad = Item::Bad { number, place: InputPosition::Line(line.number), error };
            self.batch.items.push(bad);
            self.pass_on_if_full()?;
        }
    }

    /// Adds a link unless it is left out.
    fn add(
        &mut self,
        link: &Link,
        place: InputPosition,
        keep: impl FnOnce(&LinkList) -> u64,
    ) -> Result<(), Stopped> {
        self.admission.lock().admit(link, place, &mut self.batch, || keep(&self.list));
        self.pass_on_if_full()
    }

    fn pass_on_if_full(&mut self) -> Result<(), Stopped> {
        if self.batch.items.len() >= BATCH { self.pass_on() } else { Ok(()) }
    }

    fn pass_on(&mut self) -> Result<(), Stopped> {
        let batch = std::mem::take(&mut self.batch);
        if batch.items.is_empty()
            && batch.duplicates + batch.left_out + batch.skipped + batch.added == 0
        {
            return Ok(());
        }
        self.to.blocking_send(batch).map_err(|_| Stopped)
    }
}

/// Returns the number of items, including comments; none if it is not known before the end.
fn total(sources: &[Source]) -> Option<u64> {
    sources.iter().try_fold(0, |total, source| match source {
        Source::One(..) | Source::Retried(_) => Some(total + 1),
        // Counted as they are read.
        Source::Added(_) => Some(total),
        Source::Lines { count, .. } => count.map(|count| total + count),
    })
}

fn is_regular(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
}

fn count_lines(path: &Path) -> io::Result<u64> {
    if !is_regular(path) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let mut from = BufReader::with_capacity(256 << 10, File::open(path)?);
    let (mut lines, mut last) = (0, b'\n');
    loop {
        let piece = from.fill_buf()?;
        let Some(end) = piece.last() else { return Ok(lines + u64::from(last != b'\n')) };
        last = *end;
        lines += memchr::memchr_iter(b'\n', piece).count() as u64;
        let used = piece.len();
        from.consume(used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_with_and_without_a_last_break() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (text, want) in [("", 0), ("a\nb\n", 2), ("a\nb", 2), ("\n", 1)] {
            std::fs::write(file.path(), text).unwrap();
            assert_eq!(count_lines(file.path()).unwrap(), want, "{text:?}");
        }
    }
}
