//! The input of `fetch`: arguments, a file or stdin, in order.
//!
//! A separate thread reads it, so that a slow pipe delays nothing else. Each item has its place in the input, because
//! results appear in another order.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tokio::sync::mpsc;

use super::FetchArgs;
use crate::commands::fetch::input_position::InputPosition;
use crate::commands::fetch::results_file;
use crate::parse::input::{Lines, is_stdin};
use crate::setup::settings::Settings;
use crate::terminal::exit::Failure;
use crate::terminal::output::shown;
use fetchwise::heuristic::Heuristic;
use fetchwise::pipeline::Link;
use fetchwise::robots::RobotsUse;

/// The maximum length of an input line in bytes: enough for a message about any URL.
const MAX_LINE_BYTES: usize = 1 << 20;
/// The number of links that are read ahead.
const AHEAD: usize = 256;

/// An item of the input.
#[derive(Debug)]
pub(super) enum Item {
    /// A link to fetch.
    Link(InputPosition, Link),
    /// An invalid line.
    Bad {
        /// The line number, counted from 1.
        line: u64,
        /// Why it is invalid.
        error: String,
    },
    /// A read error, which ends the input early.
    Broken(String),
}

/// The stream of input items.
pub(super) struct InputFeed {
    items: mpsc::Receiver<Item>,
    /// The number of items, if known.
    pub(super) total: Option<u64>,
}

/// A line with a JSON object.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkJson {
    url: String,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    learning: Option<bool>,
    #[serde(default)]
    fetcher: Option<String>,
    #[serde(default)]
    tags: BTreeMap<String, String>,
}

impl InputFeed {
    /// Opens all sources and starts to read.
    pub(super) fn start(args: &FetchArgs, settings: &Settings) -> Result<Self, Failure> {
        let total = total(args);
        let wish = args.robots.or(settings.config.robots.mode);
        let named = Link {
            fetcher: args.fetcher.clone(),
            heuristics: args.tag.clone(),
            robots: wish.unwrap_or(RobotsUse::Ignore),
            ..Link::default()
        };
        // A person who names a URL wants that page; a list is a crawl.
        let listed = Link { robots: wish.unwrap_or(RobotsUse::Obey), ..named.clone() };
        let mut sources: Vec<Source> = Vec::new();
        for (before, url) in (0..).zip(&args.urls) {
            sources.push(match url.as_str() {
                "-" => Source::Lines(Lines::open(Path::new("-"), MAX_LINE_BYTES)?, PathBuf::from("stdin")),
                url => Source::One(InputPosition::Position(before + 1), url.to_owned()),
            });
        }
        if let Some(path) = &args.retry {
            // A results file is read whole: its last line may be about its first link.
            sources.extend(results_file::read(path, &args.only)?.into_iter().map(|left| {
                let link = Link { url: left.url, id: left.id, ..listed.clone() };
                Source::Link(left.place, Box::new(link))
            }));
        }
        let total = if args.retry.is_some() { Some(sources.len() as u64) } else { total };
        if let Some(path) = &args.input {
            sources.push(Source::Lines(Lines::open(path, MAX_LINE_BYTES)?, path.clone()));
        }
        let (to, items) = mpsc::channel(AHEAD);
        std::thread::Builder::new()
            .name("fetchwise-input".into())
            .spawn(move || read(sources, &named, &listed, &to))
            .map_err(|error| Failure::failed(format_args!("cannot start a thread: {error}")))?;
        Ok(Self { items, total })
    }

    /// Returns the next item; none at the end.
    pub(super) async fn next(&mut self) -> Option<Item> {
        self.items.recv().await
    }
}

enum Source {
    One(InputPosition, String),
    Link(InputPosition, Box<Link>),
    Lines(Lines, PathBuf),
}

/// Reads until the end of the input, or until the receiver is dropped.
fn read(sources: Vec<Source>, named: &Link, listed: &Link, to: &mpsc::Sender<Item>) {
    for source in sources {
        let (mut lines, path) = match source {
            Source::One(place, url) => {
                let link = Link { url, ..named.clone() };
                if to.blocking_send(Item::Link(place, link)).is_err() {
                    return;
                }
                continue;
            }
            Source::Link(place, link) => {
                if to.blocking_send(Item::Link(place, *link)).is_err() {
                    return;
                }
                continue;
            }
            Source::Lines(lines, path) => (lines, path),
        };
        loop {
            let line = match lines.next_line() {
                Ok(Some(line)) => line,
                Ok(None) => break,
                Err(error) => {
                    let _ = to.blocking_send(Item::Broken(format!("cannot read {}: {error}", shown(&path))));
                    return;
                }
            };
            let item = match line.text {
                Ok(text) => match link(&text, listed) {
                    None => continue,
                    Some(Ok(link)) => Item::Link(InputPosition::Line(line.number), link),
                    Some(Err(error)) => Item::Bad { line: line.number, error },
                },
                Err(error) => Item::Bad { line: line.number, error: error.to_string() },
            };
            if to.blocking_send(item).is_err() {
                return;
            }
        }
    }
}

/// Returns the link of a line; none for an empty line or a comment.
fn link(line: &str, base: &Link) -> Option<Result<Link, String>> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    if !line.starts_with('{') {
        return Some(Ok(Link { url: line.to_owned(), ..base.clone() }));
    }
    let expected = r#"{"url", "id", "learning", "fetcher", "tags"}"#;
    let read: Result<LinkJson, _> = serde_json::from_str(line);
    Some(read.map_err(|error| format!("not a JSON object {expected}: {error}")).and_then(|json| of_json(json, base)))
}

/// Returns the link of a JSON line; its own fields take precedence over the common ones.
fn of_json(json: LinkJson, base: &Link) -> Result<Link, String> {
    let fetcher = json.fetcher.or_else(|| base.fetcher.clone());
    let mut heuristics = Vec::new();
    for (kind, value) in &json.tags {
        heuristics.push(Heuristic::of_caller(kind, value).map_err(|error| error.to_string())?);
    }
    heuristics.extend(base.heuristics.iter().filter(|tag| !json.tags.contains_key(&*tag.kind)).cloned());
    Ok(Link { url: json.url, id: json.id, learning: json.learning, fetcher, heuristics, ..base.clone() })
}

/// Returns the number of items, including comments, for the progress bar.
fn total(args: &FetchArgs) -> Option<u64> {
    if args.urls.iter().any(|url| url == "-") || args.input.as_deref().is_some_and(is_stdin) {
        return None;
    }
    let lines = args.input.as_deref().map_or(Ok(0), count_lines).ok()?;
    Some(args.urls.len() as u64 + lines)
}

fn count_lines(path: &Path) -> io::Result<u64> {
    if !std::fs::metadata(path)?.is_file() {
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
    fn a_line_is_a_url_or_a_json_object() {
        let base = Link { fetcher: Some("f".to_owned()), robots: RobotsUse::Obey, ..Link::default() };
        assert!(link("  ", &base).is_none() && link("# later", &base).is_none());
        assert_eq!(
            link(" http://e.org/ ", &base).unwrap().unwrap(),
            Link { url: "http://e.org/".to_owned(), ..base.clone() }
        );
        let line =
            r#"{"url":"http://e.org/","id":"7","learning":false,"fetcher":"g","tags":{"video_platform":"vimeo"}}"#;
        let read = link(line, &base).unwrap().unwrap();
        let want = Link {
            url: "http://e.org/".to_owned(),
            id: Some("7".to_owned()),
            learning: Some(false),
            fetcher: Some("g".to_owned()),
            heuristics: vec![Heuristic::new("video_platform", "vimeo")],
            robots: RobotsUse::Obey,
        };
        assert_eq!(read, want);
        for bad in ["{", r#"{"id":"7"}"#, r#"{"url":"http://e.org/","ulr":1}"#, r#"{"url":"x","tags":{"domain":"x"}}"#]
        {
            assert!(link(bad, &base).unwrap().is_err(), "{bad}");
        }
    }

    #[test]
    fn lines_are_counted_with_and_without_a_last_break() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (text, want) in [("", 0), ("a\nb\n", 2), ("a\nb", 2), ("\n", 1)] {
            std::fs::write(file.path(), text).unwrap();
            assert_eq!(count_lines(file.path()).unwrap(), want, "{text:?}");
        }
    }
}
