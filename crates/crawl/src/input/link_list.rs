//! The list of a run: the text of each link by its offset, in the file of `--input` or in a spool.
//!
//! A list in a file stays there. All else is spooled: arguments, stdin, pipes, and the links of
//! `--retry`. So the memory for a link that waits is its offset.
//!
//! Invariants: a link reads as it did when it came in, or not at all.
//!
//! Must not know: the order in which links are read or fetched.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::line::{self, MAX_LINE_BYTES};
use super::spool::Spool;
use crate::frontier::QueuedLink;
use crate::input::position::InputPosition;
use crate::positioned_io;
use fetchwise::pipeline::Link;

/// The offset of the file's first byte. Offsets below belong to the spool.
const FILE_BEGIN: u64 = 1 << 58;
/// The number of bytes that are read at first: most lines are shorter.
const FIRST_READ: usize = 512;
/// The error of a line that has changed since the run has read it.
const CHANGED: &str =
    "the line has changed since the run began; run the same command again to fetch the new one";

/// The first offset of links of a work queue, which stay in memory: few are read ahead.
const QUEUE_BEGIN: u64 = 1 << 59;

/// A link of a work queue that is not finished.
#[derive(Clone, Debug)]
pub(crate) struct HeldLink {
    pub text: String,
    /// Its position in the queue.
    pub seq: u64,
    /// Whether another result of it may have been written before.
    pub is_redelivered: bool,
}

/// The error of a link that another node fetches.
const WITHDRAWN: &str = "the link went back to its queue";

/// Where links are read again.
#[derive(Debug)]
pub(crate) struct LinkList {
    spool: Spool,
    file: Option<File>,
    /// The links of a work queue by their number.
    held: Mutex<HashMap<u64, HeldLink>>,
    /// The fields that arguments have in common, and those of the links of a list.
    named: Link,
    listed: Link,
}

/// The kind of a spooled link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A URL of the command line.
    Argument,
    /// A line of a list.
    Line,
    /// A result of an earlier run, as an id and a URL, from an argument or a line.
    RetriedArgument,
    RetriedLine,
    /// A URL that was added to the running crawl.
    Added,
}

impl LinkList {
    /// Returns an empty list that spools to a file in `dir`, with the fields that all arguments and
    /// all lines have.
    pub(crate) fn new(dir: &Path, named: Link, listed: Link) -> Self {
        Self { spool: Spool::new(dir), file: None, held: Mutex::default(), named, listed }
    }

    /// Adds the file whose lines [`file_line`](Self::file_line) names.
    pub(crate) fn with_file(self, file: Option<File>) -> Self {
        Self { file, ..self }
    }

    /// Returns the fields that the links of lines have in common.
    pub(crate) fn listed(&self) -> &Link {
        &self.listed
    }

    /// Returns a link of the command line.
    pub(crate) fn argument(&self, url: &str) -> Link {
        Link { url: url.to_owned(), ..self.named.clone() }
    }

    /// Returns the link of an earlier result.
    pub(crate) fn retried(&self, url: &str, id: Option<&str>) -> Link {
        Link { url: url.to_owned(), id: id.map(str::to_owned), ..self.listed.clone() }
    }

    /// Returns the offset of a line of the file that begins at `at`.
    pub(crate) fn file_line(at: u64) -> u64 {
        FILE_BEGIN + at
    }

    /// Keeps a URL of the command line and returns its offset.
    pub(crate) fn add_argument(&self, url: &str) -> u64 {
        self.spool.append(&[&[Kind::Argument.letter()], url.as_bytes()])
    }

    /// Keeps a URL that was added to the running crawl, which has the fields of a line, and returns
    /// its offset.
    pub(crate) fn add_added(&self, url: &str) -> u64 {
        self.spool.append(&[&[Kind::Added.letter()], url.as_bytes()])
    }

    /// Keeps a line and returns its offset.
    pub(crate) fn add_line(&self, text: &str) -> u64 {
        self.spool.append(&[&[Kind::Line.letter()], text.trim().as_bytes()])
    }

    /// Keeps a link of a work queue until it is [removed](Self::remove_held), and returns its
    /// offset.
    #[cfg_attr(
        not(feature = "fleet"),
        allow(dead_code, reason = "work queues are a part of fleets")
    )]
    pub(crate) fn hold(&self, number: u64, link: HeldLink) -> u64 {
        self.held().insert(number, link);
        QUEUE_BEGIN + number
    }

    /// Drops a link of a work queue.
    #[cfg_attr(
        not(feature = "fleet"),
        allow(dead_code, reason = "work queues are a part of fleets")
    )]
    pub(crate) fn remove_held(&self, number: u64) {
        self.held().remove(&number);
    }

    fn held(&self) -> MutexGuard<'_, HashMap<u64, HeldLink>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the link of an earlier result and returns its offset.
    pub(crate) fn add_retried(&self, place: InputPosition, url: &str, id: Option<&str>) -> u64 {
        let kind = match place {
            InputPosition::Position(_) => Kind::RetriedArgument,
            InputPosition::Line(_) | InputPosition::Queue { .. } | InputPosition::Added(_) => {
                Kind::RetriedLine
            }
        };
        let id_len = id.map_or(u32::MAX, |id| id.len() as u32);
        let id = id.unwrap_or_default();
        self.spool.append(&[&[kind.letter()], &id_len.to_le_bytes(), id.as_bytes(), url.as_bytes()])
    }

    /// Reads a link and its place in the input.
    ///
    /// # Errors
    /// The text cannot be read, or it is not a link any longer.
    pub(crate) fn read(&self, link: QueuedLink) -> Result<(InputPosition, Link), String> {
        if let Some(number) = link.offset.checked_sub(QUEUE_BEGIN) {
            let HeldLink { text, seq, is_redelivered } =
                self.held().get(&number).cloned().ok_or(WITHDRAWN)?;
            let link_of = line::link(&text, &self.listed).and_then(Result::ok);
            return Ok((
                InputPosition::Queue { number, seq, is_redelivered },
                link_of.ok_or(CHANGED)?,
            ));
        }
        match link.offset.checked_sub(FILE_BEGIN) {
            Some(at) => {
                let text = self.read_line(at)?;
                let link_of = line::link(&text, &self.listed).and_then(Result::ok);
                Ok((InputPosition::Line(link.line), link_of.ok_or(CHANGED)?))
            }
            None => {
                let record = self
                    .spool
                    .read(link.offset)
                    .map_err(|error| format!("cannot read it again: {error}"))?;
                self.parse(&record, link.line).ok_or_else(|| CHANGED.to_owned())
            }
        }
    }

    /// Reads a link, which has to be one of `host`.
    ///
    /// # Errors
    /// Those of [`read`](Self::read), and a link of another host.
    pub(crate) fn read_of_host(
        &self,
        link: QueuedLink,
        host: &str,
    ) -> Result<(InputPosition, Link), String> {
        let (place, link) = self.read(link)?;
        if *line::host_of(&link.url) == *host { Ok((place, link)) } else { Err(CHANGED.to_owned()) }
    }

    /// Reads the line of the file that begins at `at`.
    fn read_line(&self, at: u64) -> Result<String, String> {
        let file = self.file.as_ref().ok_or(CHANGED)?;
        let (mut text, mut wanted) = (Vec::new(), FIRST_READ);
        loop {
            let begin = text.len();
            text.resize(begin + wanted, 0);
            let count = positioned_io::read_up_to(file, &mut text[begin..], at + begin as u64);
            let count = count.map_err(|error| format!("cannot read it again: {error}"))?;
            text.truncate(begin + count);
            if let Some(end) = memchr::memchr(b'\n', &text[begin..]) {
                text.truncate(begin + end);
                break;
            }
            if count < wanted {
                break;
            }
            if text.len() > MAX_LINE_BYTES + 2 {
                return Err(CHANGED.to_owned());
            }
            wanted = text.len() * 3;
        }
        let text = String::from_utf8(text).map_err(|_| CHANGED)?;
        Ok(match at {
            0 => text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text),
            _ => text,
        })
    }

    fn parse(&self, record: &[u8], number: u64) -> Option<(InputPosition, Link)> {
        let (letter, rest) = record.split_first()?;
        let kind = Kind::from_letter(*letter)?;
        let text = |bytes| std::str::from_utf8(bytes).ok();
        let link = match kind {
            Kind::Argument => self.argument(text(rest)?),
            Kind::Line => line::link(text(rest)?, &self.listed)?.ok()?,
            Kind::Added => self.retried(text(rest)?, None),
            Kind::RetriedArgument | Kind::RetriedLine => {
                let (len, rest) = rest.split_first_chunk()?;
                match u32::from_le_bytes(*len) {
                    u32::MAX => self.retried(text(rest)?, None),
                    len => {
                        let (id, url) = rest.split_at_checked(len as usize)?;
                        self.retried(text(url)?, text(id))
                    }
                }
            }
        };
        let place = match kind {
            Kind::Argument | Kind::RetriedArgument => InputPosition::Position(number),
            Kind::Line | Kind::RetriedLine => InputPosition::Line(number),
            Kind::Added => InputPosition::Added(number),
        };
        Some((place, link))
    }
}

impl Kind {
    const ALL: [Self; 5] =
        [Self::Argument, Self::Line, Self::RetriedArgument, Self::RetriedLine, Self::Added];

    fn letter(self) -> u8 {
        match self {
            Self::Argument => b'a',
            Self::Line => b'l',
            Self::RetriedArgument => b'A',
            Self::RetriedLine => b'L',
            Self::Added => b'd',
        }
    }

    fn from_letter(letter: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.letter() == letter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn list(dir: &Path) -> LinkList {
        let listed = Link { prefer: Some("f".to_owned()), ..Link::default() };
        LinkList::new(dir, Link::default(), listed)
    }

    fn queued(offset: u64, line: u64) -> QueuedLink {
        QueuedLink { offset, line, ..QueuedLink::default() }
    }

    #[test]
    fn a_spooled_link_reads_as_it_came_in() {
        let dir = tempfile::tempdir().unwrap();
        let list = list(dir.path());
        let listed = |url: &str, id: Option<&str>| list.retried(url, id);
        let argument = list.add_argument("http://e.org/a\nb");
        assert_eq!(
            list.read(queued(argument, 3)).unwrap(),
            (InputPosition::Position(3), Link::new("http://e.org/a\nb"))
        );
        let line = list.add_line(r#" {"url": "http://e.org/", "id": "7"} "#);
        assert_eq!(
            list.read(queued(line, 9)).unwrap(),
            (InputPosition::Line(9), listed("http://e.org/", Some("7")))
        );
        for (place, id) in [
            (InputPosition::Line(4), None),
            (InputPosition::Position(5), Some("")),
            (InputPosition::Line(6), Some("x")),
        ] {
            let offset = list.add_retried(place, "http://e.org/r", id);
            let number = place.line().or(place.position()).unwrap();
            assert_eq!(
                list.read(queued(offset, number)).unwrap(),
                (place, listed("http://e.org/r", id))
            );
        }
    }

    #[test]
    fn a_line_of_a_file_is_read_where_it_stands() {
        let dir = tempfile::tempdir().unwrap();
        let long = format!("http://e.org/{}", "x".repeat(5_000));
        let mut file = tempfile::NamedTempFile::new().unwrap();
        write!(file, "\u{feff}http://e.org/first\r\n{long}\nhttp://e.org/last").unwrap();
        let list = list(dir.path()).with_file(Some(file.reopen().unwrap()));
        let url = |at: u64| list.read(queued(LinkList::file_line(at), 1)).map(|(_, link)| link.url);
        let second = 3 + "http://e.org/first\r\n".len() as u64;
        assert_eq!(url(0).unwrap(), "http://e.org/first");
        assert_eq!(url(second).unwrap(), long);
        assert_eq!(url(second + long.len() as u64 + 1).unwrap(), "http://e.org/last");
        file.as_file().set_len(second).unwrap();
        assert!(url(second).unwrap_err().contains("has changed"), "the file was cut off");
    }
}
