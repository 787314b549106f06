//! The syntax of `fleet`, and of the options by which other commands join a fleet. Every build
//! parses them.
//!
//! Must not know: brokers and nodes.
#![cfg_attr(not(feature = "fleet"), allow(dead_code, reason = "read only with the feature fleet"))]

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
#[cfg(feature = "fleet")]
use fetchwise_fleet::NodeId;

/// The id of a node, which a build without fleets does not read.
#[cfg(not(feature = "fleet"))]
pub(crate) type NodeId = String;

/// Manage a fleet: many nodes that learn together
///
/// `fetch --fleet URL`, `serve --fleet URL` and `import --fleet URL` join a fleet; these commands
/// are for its operator.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  fetchwise fleet init --fleet nats://127.0.0.1:4222\n  \
    fetchwise fetch --fleet nats://127.0.0.1:4222 https://example.org/\n  \
    fetchwise fleet status --fleet nats://127.0.0.1:4222 --wait 30s")]
pub(crate) struct FleetCommand {
    #[command(subcommand)]
    pub(crate) what: FleetSubcommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FleetSubcommand {
    Init(InitArgs),
    Status(StatusArgs),
    Exclude(NodeArgs),
    Include(IncludeArgs),
    Leave(LeaveArgs),
    Owner(OwnerArgs),
    Enqueue(EnqueueArgs),
    Queue(QueueArgs),
    Permissions(PermissionsArgs),
}

/// Create the streams that a fleet needs, and report how existing ones differ
///
/// Running it again changes nothing. Existing streams stay as they are without --change.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
    /// Keep each message on N brokers [default: 3 in a cluster, 1 on a single broker]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=5))]
    pub(crate) replicas: Option<u8>,
    /// Keep messages for this long, 10min to 90days [default: that of the config, or 7days]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) max_age: Option<Duration>,
    /// Limit the size of the stream, such as 20GB; the oldest messages go first
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) max_bytes: Option<u64>,
    /// Change existing streams that differ
    #[arg(long)]
    pub(crate) change: bool,
}

/// Show the state of this data directory's node, and its view of the others
///
/// Alongside a running crawler or server it shows the state of that process. Otherwise it joins the
/// fleet while it runs.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
    /// Wait until everything is published, read and learned, at most for this long; then exit with
    /// 1
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) wait: Option<Duration>,
    /// Show nodes whose attempts of the last week disagree with those of all others
    #[arg(long)]
    pub(crate) outliers: bool,
}

/// Remove a node's evidence from all others
#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    /// Exclude this node, as `fleet status` prints it
    #[arg(value_name = "NODE")]
    pub(crate) node: NodeId,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

/// Count the evidence of an excluded node again
#[derive(Debug, Args)]
pub(crate) struct IncludeArgs {
    /// Include this node, as `fleet status` prints it
    #[arg(value_name = "NODE")]
    pub(crate) node: NodeId,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

/// Publish the rest of this data directory, and a last evidence snapshot
#[derive(Debug, Args)]
pub(crate) struct LeaveArgs {
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

/// Show which node owns a URL's site, for a crawl that is divided by site
///
/// Sites are divided among the nodes that were seen within the last ten minutes.
#[derive(Debug, Args)]
pub(crate) struct OwnerArgs {
    /// Show the owners of these URLs
    #[arg(value_name = "URL", required = true)]
    pub(crate) urls: Vec<String>,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

/// Put the links of a list into a work queue, for `fetch --queue`
///
/// Creates the queue if it is missing. A link that was put into the queue within the last hour is a
/// duplicate and is left out. Invalid lines are reported, and all others are put into the queue.
#[derive(Debug, Args)]
pub(crate) struct EnqueueArgs {
    /// Read links from this file, one per line as for `fetch --input`; - reads stdin
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Put them into this queue: letters, digits and -
    #[arg(long, value_name = "QUEUE")]
    pub(crate) queue: String,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

/// Show how many links of a work queue are left, in progress and at which node, and how old the
/// oldest is
///
/// A link is in progress while a node has it and has not written its result. With --purge the queue
/// is emptied instead. Nodes still fetch the links that they have, and a link that was put there
/// within the last hour stays a duplicate.
#[derive(Debug, Args)]
pub(crate) struct QueueArgs {
    /// Show this queue
    #[arg(value_name = "QUEUE")]
    pub(crate) name: String,
    /// Remove all links from the queue, after a question
    #[arg(long)]
    pub(crate) purge: bool,
    /// Ask no question
    #[arg(long, requires = "purge")]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

/// Print the permissions that a broker must grant to a node, and to an operator
#[derive(Debug, Args)]
pub(crate) struct PermissionsArgs {
    /// Print the permissions of this node [default: this data directory's]
    #[arg(value_name = "NODE")]
    pub(crate) node: Option<NodeId>,
    /// Include what `fetch --queue` needs for this work queue; repeatable
    #[arg(long, value_name = "QUEUE")]
    pub(crate) queue: Vec<String>,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

/// The fleet to join.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct FleetArgs {
    /// Learn with other nodes over these NATS brokers, such as
    /// nats://127.0.0.1:4222,tls://nats1:4222
    #[arg(
        long = "fleet",
        value_name = "URL[,URL]",
        env = "FETCHWISE_FLEET",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub(crate) brokers: Vec<String>,
    /// Learn with this pool of nodes [default: that of the config, or default]
    #[arg(long, value_name = "NAME")]
    pub(crate) pool: Option<String>,
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    text.parse::<bytesize::ByteSize>().map(|size| size.as_u64())
}
