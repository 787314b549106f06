//! `fleet`: the broker of a fleet, and how its nodes are.
//!
//! Owns what an operator does with a fleet: making its streams, looking at it, leaving nodes out. What nodes share, and how, is the
//! crate `fetchwise-fleet`'s.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use fetchwise::journal::{Journal, JournalError, JournalOptions, LogError, Tombstone, TombstoneTarget};
use fetchwise::time::Timestamp;
use fetchwise_fleet::model::rendezvous::owner;
use fetchwise_fleet::peer_store;
use fetchwise_fleet::peer_store::node_state::State;
use fetchwise_fleet::sync::forget::tell_forgotten;
use fetchwise_fleet::transport::Table;
use fetchwise_fleet::transport::nats::{How, Made, Nats, NatsSettings, permissions};
use fetchwise_fleet::{Fleet, Origin, Status};
use serde::Serialize;

use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Out, plain};
use join::{STATUS_FILE, about, about_broker, connect, nats, options};

use crate::commands::fleet::outliers::ComparedJson;

pub(crate) use crate::commands::fleet::session::{Part, part};
pub(crate) use join::{FleetArgs, join};

mod join;
mod outliers;
mod server_status;
mod session;

/// A status that is older was left behind by a process that has gone.
const FRESH: Duration = Duration::from_secs(5);
/// A node that begins gets so long to look around.
const FIRST_LOOK: Duration = Duration::from_secs(3);

/// Many nodes that learn as one: look at them, and at their broker
///
/// `fetch --fleet URL`, `serve --fleet URL` and `import --fleet URL` take part; these commands are for who looks after it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  fetchwise fleet init --fleet nats://127.0.0.1:4222\n  \
    fetchwise fetch --fleet nats://127.0.0.1:4222 https://example.org/\n  \
    fetchwise fleet status --fleet nats://127.0.0.1:4222 --wait 30s")]
pub(crate) struct FleetCommand {
    #[command(subcommand)]
    pub(crate) what: What,
}

#[derive(Debug, Subcommand)]
pub(crate) enum What {
    Init(InitArgs),
    Status(StatusArgs),
    Exclude(NodeArgs),
    Include(IncludeArgs),
    Leave(LeaveArgs),
    Owner(OwnerArgs),
    Permissions(PermissionsArgs),
}

/// Make the streams that a fleet needs, and say how those that are there differ
///
/// Doing it again changes nothing, and what is there stays as it is without --change.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
    /// So many brokers keep each message [default: 3 in a cluster, 1 where a broker is alone]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=5))]
    pub(crate) replicas: Option<u8>,
    /// The stream keeps messages for so long, 10min to 90days [default: that of the config, or 7days]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) max_age: Option<Duration>,
    /// The stream grows to this at most, such as 20GB; the oldest go first
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) max_bytes: Option<u64>,
    /// Change what differs
    #[arg(long)]
    pub(crate) change: bool,
}

/// Say how this data directory's node is, and how the others are, seen from it
///
/// Beside a crawler or server that runs it tells what that one knows. Where none runs, it takes part itself for as long as it
/// looks.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
    /// Wait until all is published, read and learned, for so long at most
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) wait: Option<Duration>,
    /// Name nodes whose attempts of the last week say something else than those of all others on the sites that they share
    #[arg(long)]
    pub(crate) suspicious: bool,
}

/// Take a node's evidence back out of all others
#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    /// The node, as `fleet status` prints it
    #[arg(value_name = "NODE")]
    pub(crate) node: Origin,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

/// Count a node's evidence again that was excluded
#[derive(Debug, Args)]
pub(crate) struct IncludeArgs {
    /// The node, as `fleet status` prints it
    #[arg(value_name = "NODE")]
    pub(crate) node: Origin,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

/// Publish what this data directory's node has left, and a last share
#[derive(Debug, Args)]
pub(crate) struct LeaveArgs {
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

/// Say which node a URL's site belongs to, for a crawl that is divided by site
///
/// Sites are divided among the nodes that were there within the last ten minutes.
#[derive(Debug, Args)]
pub(crate) struct OwnerArgs {
    /// URLs
    #[arg(value_name = "URL", required = true)]
    pub(crate) urls: Vec<String>,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

/// Print what a broker's configuration has to allow a node, and an operator
#[derive(Debug, Args)]
pub(crate) struct PermissionsArgs {
    /// The node [default: this data directory's]
    #[arg(value_name = "NODE")]
    pub(crate) node: Option<Origin>,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
}

#[derive(Serialize)]
struct MadeJson<'a> {
    name: &'a str,
    state: &'static str,
    differences: &'a [String],
}

#[derive(Serialize)]
struct StatusJson<'a> {
    #[serde(flatten)]
    status: &'a Status,
    #[serde(flatten)]
    compared: Option<ComparedJson<'a>>,
}

#[derive(Serialize)]
struct OwnerJson<'a> {
    url: &'a str,
    owner: Option<String>,
    own: bool,
}

#[derive(Serialize)]
struct CountsJson<'a> {
    node: &'a str,
    excluded: bool,
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    text.parse::<bytesize::ByteSize>().map(|size| size.as_u64())
}

/// Runs the command.
pub(crate) fn run(command: &FleetCommand, settings: &Settings, out: &mut Out) -> Result<Exit, Failure> {
    if let What::Permissions(args) = &command.what {
        return print_permissions(args, settings, out);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::failed)?;
    let ended = runtime.block_on(async {
        match &command.what {
            What::Init(args) => init(args, settings, out).await,
            What::Status(args) => status(args, settings, out).await,
            What::Exclude(args) => count(&args.node, &args.fleet, true, settings, out).await,
            What::Include(args) => count(&args.node, &args.fleet, false, settings, out).await,
            What::Leave(args) => leave(args, settings).await,
            What::Owner(args) => owners(args, settings, out).await,
            What::Permissions(_) => Ok(Exit::Done),
        }
    });
    runtime.shutdown_timeout(Duration::from_millis(500));
    ended
}

/// The broker that the settings name.
fn broker(settings: &Settings, args: &FleetArgs) -> Result<NatsSettings, Failure> {
    nats(settings, args)?.ok_or_else(|| {
        Failure::usage("no broker is named")
            .advise("name one with --fleet nats://127.0.0.1:4222, or as fleet.url in the config")
    })
}

async fn init(args: &InitArgs, settings: &Settings, out: &mut Out) -> Result<Exit, Failure> {
    let mut nats = broker(settings, &args.fleet)?;
    nats.replicas = args.replicas.map(usize::from);
    nats.max_age = args.max_age.unwrap_or(nats.max_age);
    nats.max_bytes = args.max_bytes;
    // What is missing is made by what follows, and counted.
    nats.make = false;
    let nats = Nats::connect(nats).await.map_err(|error| about_broker(&error))?;
    let begun = Instant::now();
    let made = loop {
        match nats.init(args.change).await {
            // A cluster that has just begun has no leader for a moment.
            Err(fetchwise_fleet::transport::TransportError::Away(_)) if begun.elapsed() < Duration::from_secs(20) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            made => break made.map_err(|error| about_broker(&error))?,
        }
    };
    let mut differs = false;
    for Made { name, how } in &made {
        let (state, differences): (_, &[String]) = match how {
            How::Made => ("made", &[]),
            How::There => ("there", &[]),
            How::Differs(what) => ("differs", what),
            How::Changed(what) => ("changed", what),
            _ => ("unknown", &[]),
        };
        differs |= state == "differs";
        match out.json {
            true => out.object(&MadeJson { name, state, differences })?,
            false if differences.is_empty() => out.line(format_args!("{name}: {state}"))?,
            false => out.line(format_args!("{name}: {state}: {}", differences.join("; ")))?,
        }
    }
    if differs {
        return Err(Failure::failed("some streams differ from what was asked for, and were left as they are")
            .advise("`fetchwise fleet init --change` with the same options changes them"));
    }
    Ok(Exit::Done)
}

async fn status(args: &StatusArgs, settings: &Settings, out: &mut Out) -> Result<Exit, Failure> {
    let dir = settings.data_dir()?;
    let wait = args.wait.unwrap_or_default();
    let status = match Journal::open(&dir, JournalOptions::default()) {
        Ok((journal, _)) => by_itself(journal, wait, args, settings).await?,
        Err(JournalError::Log(LogError::Locked { .. })) => beside(&dir, wait).await?,
        Err(error) => return Err(error.into()),
    };
    let compared =
        if args.suspicious { Some(crate::commands::fleet::outliers::compare(&dir, &status, settings)?) } else { None };
    if out.json {
        out.object(&StatusJson {
            status: &status,
            compared: compared.as_ref().map(crate::commands::fleet::outliers::json),
        })?;
        return Ok(Exit::Done);
    }
    let yes = |is: bool| if is { "yes" } else { "no" };
    // One that an older release beside this one has written does not say.
    let scope = if status.scope == "own" { ", scope own" } else { "" };
    out.line(format_args!("node {} of pool {}{scope}", status.node, plain(&status.pool)))?;
    out.line(format_args!("  broker: {}, quiet: {}", if status.broker { "there" } else { "away" }, yes(status.converged)))?;
    out.line(format_args!(
        "  log: position {}, published {}, share {}, withheld {}",
        status.position, status.published, status.snapshot_position, status.withheld
    ))?;
    if status.links > 0 {
        let (waiting, links) = (status.links_waiting, status.links);
        out.line(format_args!("  links: {waiting} wait here, of {links} that others have spoken of"))?;
    }
    if let Some(why) = &status.stopped {
        out.line(format_args!("  publishes nothing: {}", plain(why)))?;
    }
    for peer in &status.peers {
        out.line(format_args!(
            "peer {}: position {} of {}, share {}, holes {} ({} for ever), {:.1} s behind, version {}, {}{}",
            plain(&peer.origin),
            peer.position,
            // It says so every few seconds, and may have been killed before it did.
            peer.published.max(peer.position),
            peer.snapshot_position,
            peer.missing_records,
            peer.lost,
            peer.lag_s,
            plain(&peer.version),
            if peer.present { "there" } else { "gone" },
            if peer.excluded { ", excluded" } else { "" },
        ))?;
    }
    compared.iter().try_for_each(|compared| crate::commands::fleet::outliers::show(compared, out))?;
    Ok(Exit::Done)
}

/// What the process knows that has the directory.
async fn beside(dir: &Path, wait: Duration) -> Result<Status, Failure> {
    let (file, begun) = (dir.join(STATUS_FILE), Instant::now());
    loop {
        let is_fresh = std::fs::metadata(&file)
            .and_then(|file| file.modified())
            .is_ok_and(|at| at.elapsed().is_ok_and(|age| age < FRESH));
        let status = std::fs::read(&file).ok().and_then(|text| serde_json::from_slice::<Status>(&text).ok());
        let is_over = begun.elapsed() >= wait.max(FIRST_LOOK);
        match status.filter(|_| is_fresh) {
            Some(status) if status.converged || begun.elapsed() >= wait => return Ok(status),
            None if is_over => {
                return Err(Failure::refused(format_args!("whoever has {} is in no fleet", dir.display()))
                    .advise("start it with --fleet URL, or name the brokers in its config"));
            }
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Takes part, for as long as it looks.
async fn by_itself(
    journal: Journal,
    wait: Duration,
    args: &StatusArgs,
    settings: &Settings,
) -> Result<Status, Failure> {
    let fleet = take_part(journal, &args.fleet, settings, false).await?;
    let begun = Instant::now();
    loop {
        let status = fleet.status();
        if status.converged || begun.elapsed() >= wait.max(FIRST_LOOK) {
            fleet.stop().await;
            return Ok(status);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn take_part(
    journal: Journal,
    args: &FleetArgs,
    settings: &Settings,
    is_required: bool,
) -> Result<Fleet, Failure> {
    let transport = connect(broker(settings, args)?, is_required).await?;
    let (selector, _) = settings.learned()?;
    Fleet::join(Arc::new(journal), Arc::new(selector), transport, options(settings, args)).await.map_err(about)
}

async fn leave(args: &LeaveArgs, settings: &Settings) -> Result<Exit, Failure> {
    let (journal, _) = Journal::open(&settings.data_dir()?, JournalOptions::default())?;
    let fleet = take_part(journal, &args.fleet, settings, true).await?;
    fleet.leave().await.map_err(about)?;
    Ok(Exit::Done)
}

async fn count(
    node: &Origin,
    args: &FleetArgs,
    is_excluded: bool,
    settings: &Settings,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let transport = connect(broker(settings, args)?, true).await?;
    let name = node.to_string();
    let done = match is_excluded {
        true => transport.cells().put(Table::Excluded, &name, "{}".into()).await.map(drop),
        false => transport.cells().delete(Table::Excluded, &name, None).await.map(drop),
    };
    done.map_err(|error| about_broker(&error))?;
    match (out.json, is_excluded) {
        (true, excluded) => out.object(&CountsJson { node: &name, excluded })?,
        (false, true) => out.line(format_args!("{name} counts for nobody else any more"))?,
        (false, false) => out.line(format_args!("{name} counts"))?,
    }
    Ok(Exit::Done)
}

/// Has all nodes forget a domain. False where there is no fleet.
pub(crate) fn forget(settings: &Settings, args: &FleetArgs, domain: &str, until: Timestamp) -> Result<bool, Failure> {
    let Some(nats) = nats(settings, args)? else { return Ok(false) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::failed)?;
    let told = runtime.block_on(async {
        let transport = connect(nats, true).await?;
        tell_forgotten(&*transport, domain, until).await.map_err(|error| about_broker(&error))
    });
    told.map(|()| true)
        .map_err(|failure| failure.advise("it is forgotten here; the same command tells the other nodes"))
}

/// Forgets a domain in what others have told the node in a directory. How many of their attempts, and of how many nodes older evidence,
/// counted until then; none where nobody has told it anything. `has_stone` where the node's own log has a tombstone of it.
pub(crate) fn forget_foreign(
    dir: &Path,
    domain: &str,
    until: Timestamp,
    has_stone: bool,
) -> Result<Option<(u64, u64)>, Failure> {
    if !dir.join(peer_store::FOLDER).is_dir() {
        return Ok(None);
    }
    if !has_stone {
        // By it the node tells the others when it joins, who make shares without the domain then.
        let (journal, _) = Journal::open(dir, JournalOptions::default())?;
        let target = TombstoneTarget::Domain(domain.to_owned());
        journal.append_tombstone(&Tombstone { target, at: until })?;
        journal.close()?;
    }
    let found = peer_store::forget(dir, domain, until).map_err(about)?;
    Ok(found.map(|found| (found.attempts, found.folded as u64)))
}

async fn owners(args: &OwnerArgs, settings: &Settings, out: &mut Out) -> Result<Exit, Failure> {
    let own = State::load(&settings.data_dir()?).map_err(about)?.map(|state| state.origin);
    let transport = connect(broker(settings, &args.fleet)?, true).await?;
    let listed = transport.cells().list(Table::Nodes).await.map_err(|error| about_broker(&error))?;
    let nodes: Vec<Origin> = listed.iter().filter_map(|(name, _)| name.parse().ok()).collect();
    let (selector, _) = settings.learned()?;
    for text in &args.urls {
        let url = fetchwise::heuristic::url::parse(text).map_err(Failure::usage)?;
        let shown = selector.heuristics(&url).map_err(Failure::usage)?;
        let of = |kind: &str| shown.iter().find(|shown| &*shown.kind == kind).map(|shown| &*shown.value);
        let owner = owner(of("site").or(of("domain")).unwrap_or_default(), &nodes);
        let is_own = owner.is_some() && owner == own;
        match out.json {
            true => out.object(&OwnerJson { url: text, owner: owner.map(|owner| owner.to_string()), own: is_own })?,
            false => match owner {
                Some(owner) => out.line(format_args!("{owner} {}", plain(text)))?,
                None => out.line(format_args!("nobody {}", plain(text)))?,
            },
        }
    }
    Ok(Exit::Done)
}

fn print_permissions(args: &PermissionsArgs, settings: &Settings, out: &mut Out) -> Result<Exit, Failure> {
    let own = State::load(&settings.data_dir()?).map_err(about)?.map(|state| state.origin);
    let node = args.node.or(own).ok_or_else(|| {
        Failure::usage("this data directory has joined no fleet yet, and no node is named")
            .advise("name one, as `fetchwise fleet status` prints it")
    })?;
    let options = options(settings, &args.fleet);
    out.line(permissions(&options.pool, node).map_err(|error| about_broker(&error))?)?;
    Ok(Exit::Done)
}
