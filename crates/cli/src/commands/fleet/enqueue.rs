//! `fleet enqueue`: publishes the links of a list to a work queue.
//!
//! Invariants: an invalid line keeps no other line from the queue. A link that is published twice
//! within an hour is stored once, so an interrupted command can be run again.
//!
//! Must not know: who fetches the links.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fetchwise::heuristic::url::{parse, site_of};
use fetchwise::pipeline::Link;
use fetchwise_fleet::transport::{MAX_QUEUED_LINK, Transport, TransportError};
use futures_util::stream::{FuturesUnordered, StreamExt};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use tokio::sync::mpsc;

use super::args::EnqueueArgs;
use super::join::{broker_failure, connect, nats};
use crate::parse::input::open_lines;
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Output, note, plain};
use fetchwise_crawl::input::line::{self, MAX_LINE_BYTES, host_of};
use fetchwise_crawl::input::lines::Lines;

/// The number of links on their way to the broker.
const IN_FLIGHT: usize = 256;
/// The number of lines that are read ahead.
const READ_AHEAD: usize = 1_024;
/// The time for which a broker that does not respond is tried again.
const RETRY_TIME: Duration = Duration::from_secs(30);
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// A line of the list.
enum ReadLine {
    Link { site: String, id: String, body: Bytes },
    Invalid { line: u64, error: String },
    Broken(String),
}

#[derive(Serialize)]
struct InvalidJson<'a> {
    line: u64,
    error: &'a str,
}

#[derive(Default, Serialize)]
struct EnqueuedJson<'a> {
    queue: &'a str,
    enqueued: u64,
    duplicates: u64,
    invalid: u64,
}

/// Runs the command.
pub(super) async fn enqueue(
    args: &EnqueueArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let nats = nats(settings, &args.fleet)?.ok_or_else(|| {
        Failure::usage("missing broker")
            .advise("give one with --fleet nats://127.0.0.1:4222, or with fleet.url in the config")
    })?;
    let lines = open_lines(&args.file, MAX_LINE_BYTES)?;
    let transport = connect(nats, true).await?;
    let queues =
        transport.work_queues().ok_or_else(|| Failure::failed("this broker has no work queues"))?;
    queues.ensure(&args.queue).await.map_err(|error| broker_failure(&error))?;
    let (to, mut read) = mpsc::channel(READ_AHEAD);
    // A slow pipe must not keep the responses of the broker waiting.
    let reader = std::thread::Builder::new().name("fetchwise-input".into());
    let path = args.file.clone();
    reader.spawn(move || read_lines(lines, &path, &to)).map_err(Failure::failed)?;
    let (bar, mut sum) = (bar(), EnqueuedJson { queue: &args.queue, ..EnqueuedJson::default() });
    let (mut sending, mut more) = (FuturesUnordered::new(), true);
    while more || !sending.is_empty() {
        tokio::select! {
            line = read.recv(), if more && sending.len() < IN_FLIGHT => match line {
                None => more = false,
                Some(ReadLine::Link { site, id, body }) => {
                    sending.push(send(Arc::clone(&transport), &args.queue, site, id, body));
                }
                Some(ReadLine::Invalid { line, error }) => {
                    sum.invalid += 1;
                    match out.json {
                        true => out.object(&InvalidJson { line, error: &error })?,
                        false => bar.suspend(|| note(format_args!("line {line}: {}", plain(&error)))),
                    }
                }
                Some(ReadLine::Broken(error)) => return Err(Failure::failed(error).advise(
                    "run the same command again: links that are in the queue already are left out for an hour",
                )),
            },
            Some(sent) = sending.next(), if !sending.is_empty() => {
                match sent.map_err(|error| broker_failure(&error))? {
                    true => sum.enqueued += 1,
                    false => sum.duplicates += 1,
                }
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    match out.json {
        true => out.object(&sum)?,
        false => out.line(format_args!(
            "{} enqueued, {} duplicates, {} invalid",
            sum.enqueued, sum.duplicates, sum.invalid
        ))?,
    }
    Ok(if sum.invalid > 0 { Exit::Failed } else { Exit::Done })
}

/// Publishes a link. Returns false for a duplicate.
async fn send(
    transport: Arc<dyn Transport>,
    queue: &str,
    site: String,
    id: String,
    body: Bytes,
) -> Result<bool, TransportError> {
    let begun = Instant::now();
    loop {
        let queues = transport
            .work_queues()
            .ok_or_else(|| TransportError::Refused("no work queues".to_owned()))?;
        match queues.enqueue(queue, &site, &id, body.clone()).await {
            // The id keeps a link whose response was lost from being stored twice.
            Err(TransportError::Away(_)) if begun.elapsed() < RETRY_TIME => {
                tokio::time::sleep(RETRY_INTERVAL).await
            }
            sent => return sent,
        }
    }
}

/// Reads the list until its end, or until nobody waits for it any longer.
fn read_lines(mut lines: Lines, path: &Path, to: &mpsc::Sender<ReadLine>) {
    let (base, mut buffer) = (Link::default(), String::new());
    loop {
        let line = match lines.next_line() {
            Ok(Some(line)) => line,
            Ok(None) => return,
            Err(error) => {
                let error = format!("cannot read {}: {error}", plain(&path.to_string_lossy()));
                let _ = to.blocking_send(ReadLine::Broken(error));
                return;
            }
        };
        let text = line.text.map_err(|error| error.to_string());
        let read = match text.and_then(|text| parse_line(&text, &base, &mut buffer)) {
            Ok(None) => continue,
            Ok(Some(link)) => link,
            Err(error) => ReadLine::Invalid { line: line.number, error },
        };
        if to.blocking_send(read).is_err() {
            return;
        }
    }
}

/// Returns the link of a line; none for an empty line or a comment.
fn parse_line(text: &str, base: &Link, buffer: &mut String) -> Result<Option<ReadLine>, String> {
    let text = text.trim();
    let Some(link) = line::link(text, base) else { return Ok(None) };
    let link = link?;
    parse(&link.url).map_err(|error| error.to_string())?;
    if text.len() > MAX_QUEUED_LINK {
        return Err(format!("longer than {MAX_QUEUED_LINK} bytes"));
    }
    let site = site_of(&host_of(&link.url)).to_owned();
    let id = format!("{:016x}", line::hash(&link, buffer));
    Ok(Some(ReadLine::Link { site, id, body: Bytes::copy_from_slice(text.as_bytes()) }))
}

/// Returns the progress, which shows on a terminal only.
fn bar() -> ProgressBar {
    let bar = match std::io::stderr().is_terminal() {
        true => ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()),
        false => ProgressBar::hidden(),
    };
    if let Ok(style) = ProgressStyle::with_template("enqueuing {human_pos} links, {per_sec}") {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Option<(String, String)>, String> {
        let read = parse_line(line, &Link::default(), &mut String::new())?;
        Ok(read.and_then(|read| match read {
            ReadLine::Link { site, id, .. } => Some((site, id)),
            _ => None,
        }))
    }

    #[test]
    fn a_link_is_published_by_its_site() {
        let site = |line| read(line).unwrap().unwrap().0;
        assert_eq!(site(" http://www.example.co.uk/a "), "example.co.uk");
        assert_eq!(site(r#"{"url": "http://127.0.0.1:8080/", "id": "7"}"#), "127.0.0.1");
        assert_eq!((read("# later"), read("")), (Ok(None), Ok(None)));
        for invalid in ["no url", "ftp://e.org/", "http://", r#"{"id": "7"}"#] {
            assert!(read(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn equal_links_have_one_id() {
        let id = |line| read(line).unwrap().unwrap().1;
        assert_eq!(id("http://e.org/"), id(r#" {"url": "http://e.org/"}"#));
        assert_ne!(id("http://e.org/"), id(r#"{"url": "http://e.org/", "id": "7"}"#));
        assert_ne!(id("http://e.org/"), id("http://e.org/a"));
        // The rule of lists: a fragment reaches no server.
        assert_eq!(id("http://e.org/a"), id("http://e.org/a#top"));
        assert_ne!(id("http://e.org/a?b"), id("http://e.org/a#?b"));
    }
}
