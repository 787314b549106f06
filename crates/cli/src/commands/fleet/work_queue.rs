//! `fleet queue`: what a work queue holds and who works on it, and emptying it.
//!
//! Invariants: nothing is removed without a confirmation.
//!
//! Must not know: what a link is.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use fetchwise::rfc3339;
use fetchwise::time::Timestamp;
use fetchwise_fleet::queue::{QueueOverview, inspect};
use fetchwise_fleet::transport::Transport;
use serde::Serialize;

use super::args::QueueArgs;
use super::join::{broker_failure, connect, nats, options};
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Output, counted, plain};
use crate::terminal::pace_text::span;

#[derive(Serialize)]
struct QueueJson<'a> {
    queue: &'a str,
    left: u64,
    in_progress: u64,
    oldest_at: Option<String>,
    nodes: Vec<NodeJson<'a>>,
}

#[derive(Serialize)]
struct NodeJson<'a> {
    node: &'a str,
    present: bool,
    sites: u64,
    in_progress: u64,
}

#[derive(Serialize)]
struct PurgedJson<'a> {
    queue: &'a str,
    purged: u64,
}

/// Runs the command.
pub(super) async fn queue(
    args: &QueueArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let nats = nats(settings, &args.fleet)?.ok_or_else(|| {
        Failure::usage("missing broker")
            .advise("give one with --fleet nats://127.0.0.1:4222, or with fleet.url in the config")
    })?;
    let transport = connect(nats, true).await?;
    let lease = options(settings, &args.fleet).timing.lease;
    let found =
        inspect(&*transport, &args.name, lease).await.map_err(|error| broker_failure(&error))?;
    if args.purge {
        return purge(args, &found, &*transport, out).await;
    }
    if out.json {
        out.object(&json(&args.name, &found))?;
        return Ok(Exit::Done);
    }
    for line in lines(&args.name, &found) {
        out.line(line)?;
    }
    Ok(Exit::Done)
}

async fn purge(
    args: &QueueArgs,
    found: &QueueOverview,
    transport: &dyn Transport,
    out: &mut Output,
) -> Result<Exit, Failure> {
    if found.left > 0 && !args.yes && !confirm(&args.name, found.left)? {
        return Err(Failure::refused("nothing was removed"));
    }
    let queues =
        transport.work_queues().ok_or_else(|| Failure::failed("this broker has no work queues"))?;
    let purged = queues.purge(&args.name).await.map_err(|error| broker_failure(&error))?;
    match out.json {
        true => out.object(&PurgedJson { queue: &args.name, purged })?,
        false => {
            out.line(format_args!("queue {}: {} removed", plain(&args.name), links(purged)))?
        }
    }
    Ok(Exit::Done)
}

/// Asks on a terminal whether to remove the links.
fn confirm(name: &str, left: u64) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage("missing confirmation")
            .advise("--yes removes the links without a question"));
    }
    let mut terminal = std::io::stderr();
    let asked = write!(terminal, "remove {} from the queue {}? [y/N] ", links(left), plain(name));
    asked.and_then(|()| terminal.flush()).map_err(Failure::failed)?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(Failure::failed)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

fn json<'a>(name: &'a str, found: &'a QueueOverview) -> QueueJson<'a> {
    let nodes = found.nodes.iter().map(|of| NodeJson {
        node: &of.node,
        present: of.is_present,
        sites: of.sites,
        in_progress: of.in_progress,
    });
    QueueJson {
        queue: name,
        left: found.left,
        in_progress: found.in_progress,
        oldest_at: found.oldest_at.map(rfc3339::format_time),
        nodes: nodes.collect(),
    }
}

/// Returns the queue, then each node.
fn lines(name: &str, found: &QueueOverview) -> Vec<String> {
    let mut first = match found.left {
        0 => format!("queue {}: empty", plain(name)),
        left => format!(
            "queue {}: {} left, {} in progress",
            plain(name),
            links(left),
            found.in_progress
        ),
    };
    if let Some(age) = age(found.oldest_at, found.now) {
        first.push_str(&format!(", the oldest for {}", span(age)));
    }
    let mut lines = vec![first];
    lines.extend(found.nodes.iter().map(|of| {
        let sites = counted(of.sites as usize, "site", "sites");
        let absent = if of.is_present { "" } else { ", absent: its sites go to other nodes" };
        format!(
            "  node {}: {} in progress of {sites}{absent}",
            plain(&of.node),
            links(of.in_progress)
        )
    }));
    lines
}

/// Returns how long the oldest link has been there, by the broker's clock.
fn age(oldest_at: Option<Timestamp>, now: Option<Timestamp>) -> Option<Duration> {
    Some(now?.since(oldest_at?))
}

fn links(count: u64) -> String {
    counted(usize::try_from(count).unwrap_or(usize::MAX), "link", "links")
}

#[cfg(test)]
mod tests {
    use super::*;
    use fetchwise_fleet::queue::QueueNode;

    #[test]
    fn a_queue_is_a_line_and_so_is_each_node() {
        let at = |seconds: i64| Some(Timestamp::from_millis(1_790_000_000_000 + 1000 * seconds));
        let node = |name: &str, sites, in_progress, is_present| QueueNode {
            node: name.to_owned(),
            sites,
            in_progress,
            is_present,
        };
        let nodes = vec![node("a", 3, 36, true), node("b", 1, 1, false)];
        let found =
            QueueOverview { left: 2_705, in_progress: 37, oldest_at: at(0), now: at(7_440), nodes };
        let want = [
            "queue crawl: 2,705 links left, 37 in progress, the oldest for 2 h 4 min",
            "  node a: 36 links in progress of 3 sites",
            "  node b: 1 link in progress of 1 site, absent: its sites go to other nodes",
        ];
        assert_eq!(lines("crawl", &found), want);
        assert_eq!(lines("crawl", &QueueOverview::default()), ["queue crawl: empty"]);
    }
}
