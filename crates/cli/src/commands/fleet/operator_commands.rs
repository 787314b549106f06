//! The commands of `fleet`, and what `forget` tells a fleet.
//!
//! Owns: what an operator does with a fleet: creating its streams, showing its state, excluding
//! nodes. The crate `fetchwise-fleet` owns what nodes share.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fetchwise::journal::{
    Journal, JournalError, JournalOptions, LogError, Tombstone, TombstoneTarget,
};
use fetchwise::time::Timestamp;
use fetchwise_fleet::model::rendezvous::owner;
use fetchwise_fleet::peer_store;
use fetchwise_fleet::peer_store::own_state_file::NodeState;
use fetchwise_fleet::sync::forget::notify_forgotten;
use fetchwise_fleet::transport::Table;
use fetchwise_fleet::transport::nats::{
    Nats, NatsSettings, StreamReport, StreamState, permissions,
};
use fetchwise_fleet::{Fleet, FleetStatus, NodeId};
use serde::Serialize;

use super::args::{
    FleetArgs, FleetCommand, FleetSubcommand, InitArgs, LeaveArgs, OwnerArgs, PermissionsArgs,
    StatusArgs,
};
use super::enqueue::enqueue;
use super::join::{STATUS_FILE, broker_failure, connect, fleet_failure, nats, options};
use super::outliers::{self, ComparedJson};
use super::work_queue::queue;
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Output, plain, shown};

/// An older status file was left by a process that has ended.
const FRESH: Duration = Duration::from_secs(5);
/// The time for a new node to learn the state of the fleet.
const JOIN_TIME: Duration = Duration::from_secs(3);

#[derive(Serialize)]
struct MadeJson<'a> {
    name: &'a str,
    state: &'static str,
    differences: &'a [String],
}

#[derive(Serialize)]
struct StatusJson<'a> {
    #[serde(flatten)]
    status: &'a FleetStatus,
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

/// Runs the command.
pub(crate) fn run(
    command: &FleetCommand,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    if let FleetSubcommand::Permissions(args) = &command.what {
        return print_permissions(args, settings, out);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failure::failed)?;
    let ended = runtime.block_on(async {
        match &command.what {
            FleetSubcommand::Init(args) => init(args, settings, out).await,
            FleetSubcommand::Status(args) => status(args, settings, out).await,
            FleetSubcommand::Exclude(args) => {
                set_excluded(&args.node, &args.fleet, true, settings, out).await
            }
            FleetSubcommand::Include(args) => {
                set_excluded(&args.node, &args.fleet, false, settings, out).await
            }
            FleetSubcommand::Leave(args) => leave(args, settings).await,
            FleetSubcommand::Owner(args) => owners(args, settings, out).await,
            FleetSubcommand::Enqueue(args) => enqueue(args, settings, out).await,
            FleetSubcommand::Queue(args) => queue(args, settings, out).await,
            FleetSubcommand::Permissions(_) => Ok(Exit::Done),
        }
    });
    runtime.shutdown_timeout(Duration::from_millis(500));
    ended
}

/// Returns the broker that the settings name.
fn broker(settings: &Settings, args: &FleetArgs) -> Result<NatsSettings, Failure> {
    nats(settings, args)?.ok_or_else(|| {
        Failure::usage("missing broker")
            .advise("give one with --fleet nats://127.0.0.1:4222, or with fleet.url in the config")
    })
}

async fn init(args: &InitArgs, settings: &Settings, out: &mut Output) -> Result<Exit, Failure> {
    let mut nats = broker(settings, &args.fleet)?;
    nats.replicas = args.replicas.map(usize::from);
    nats.max_age = args.max_age.unwrap_or(nats.max_age);
    nats.max_bytes = args.max_bytes;
    // `init` creates missing streams and counts them, so the connection must not.
    nats.make = false;
    let nats = Nats::connect(nats).await.map_err(|error| broker_failure(&error))?;
    let begun = Instant::now();
    let made = loop {
        match nats.init(args.change).await {
            // A new cluster has no leader for a moment.
            Err(fetchwise_fleet::transport::TransportError::Away(_))
                if begun.elapsed() < Duration::from_secs(20) =>
            {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            made => break made.map_err(|error| broker_failure(&error))?,
        }
    };
    let mut differs = false;
    for StreamReport { name, state } in &made {
        let (state, differences): (_, &[String]) = match state {
            StreamState::Created => ("created", &[]),
            StreamState::Exists => ("exists", &[]),
            StreamState::Differs(what) => ("differs", what),
            StreamState::Changed(what) => ("changed", what),
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
        return Err(Failure::failed("some streams differ from the settings and were not changed")
            .advise("change them with `fetchwise fleet init --change` and the same options"));
    }
    Ok(Exit::Done)
}

async fn status(args: &StatusArgs, settings: &Settings, out: &mut Output) -> Result<Exit, Failure> {
    let dir = settings.data_dir()?;
    let wait = args.wait.unwrap_or_default();
    let status = match Journal::open(&dir, JournalOptions::default()) {
        Ok((journal, _)) => status_by_joining(journal, wait, args, settings).await?,
        Err(JournalError::Log(LogError::Locked { .. })) => {
            status_of_running_process(&dir, wait).await?
        }
        Err(error) => return Err(error.into()),
    };
    let is_late = args.wait.is_some() && !status.converged;
    let exit = if is_late { Exit::Failed } else { Exit::Done };
    let compared =
        if args.outliers { Some(outliers::compare(&dir, &status, settings)?) } else { None };
    if out.json {
        out.object(&StatusJson {
            status: &status,
            compared: compared.as_ref().map(outliers::json),
        })?;
        return Ok(exit);
    }
    let yes = |is: bool| if is { "yes" } else { "no" };
    // An older version of a running process may not report the scope.
    let scope = if status.scope == "own" { ", scope own" } else { "" };
    out.line(format_args!("node {} of pool {}{scope}", status.node, plain(&status.pool)))?;
    let broker = if status.broker { "connected" } else { "unavailable" };
    out.line(format_args!("  broker: {broker}, converged: {}", yes(status.converged)))?;
    out.line(format_args!(
        "  log: position {}, published {}, snapshot {}, withheld {}",
        status.position, status.published, status.snapshot_position, status.withheld
    ))?;
    if status.links > 0 {
        let (waiting, links) = (status.links_waiting, status.links);
        out.line(format_args!(
            "  links: {waiting} wait here, of {links} that other nodes reported"
        ))?;
    }
    if let Some(why) = &status.stopped {
        out.line(format_args!("  publishes nothing: {}", plain(why)))?;
    }
    for peer in &status.peers {
        out.line(format_args!(
            "peer {}: position {} of {}, snapshot {}, missing {} ({} lost), {:.1} s behind, version {}, {}{}",
            plain(&peer.node),
            peer.position,
            // The node reports it every few seconds, and may have ended before that.
            peer.published.max(peer.position),
            peer.snapshot_position,
            peer.missing_records,
            peer.lost,
            peer.lag_s,
            plain(&peer.version),
            if peer.present { "present" } else { "absent" },
            if peer.excluded { ", excluded" } else { "" },
        ))?;
    }
    compared.iter().try_for_each(|compared| outliers::show(compared, out))?;
    Ok(exit)
}

/// Returns the state of the process that uses the directory.
async fn status_of_running_process(dir: &Path, wait: Duration) -> Result<FleetStatus, Failure> {
    let (file, begun) = (dir.join(STATUS_FILE), Instant::now());
    loop {
        let is_fresh = std::fs::metadata(&file)
            .and_then(|file| file.modified())
            .is_ok_and(|at| at.elapsed().is_ok_and(|age| age < FRESH));
        let status = std::fs::read(&file)
            .ok()
            .and_then(|text| serde_json::from_slice::<FleetStatus>(&text).ok());
        let is_over = begun.elapsed() >= wait.max(JOIN_TIME);
        match status.filter(|_| is_fresh) {
            Some(status) if status.converged || begun.elapsed() >= wait => return Ok(status),
            None if is_over => {
                return Err(Failure::refused(format_args!(
                    "the process that uses {} is not in a fleet",
                    shown(dir)
                ))
                .advise("start it with --fleet URL, or set fleet.url in its config"));
            }
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Joins the fleet to find out its state.
async fn status_by_joining(
    journal: Journal,
    wait: Duration,
    args: &StatusArgs,
    settings: &Settings,
) -> Result<FleetStatus, Failure> {
    let fleet = take_part(journal, &args.fleet, settings, false).await?;
    let begun = Instant::now();
    loop {
        let status = fleet.status();
        if status.converged || begun.elapsed() >= wait.max(JOIN_TIME) {
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
    let (selector, _) = settings.load_selector()?;
    Fleet::join(Arc::new(journal), Arc::new(selector), transport, options(settings, args))
        .await
        .map_err(fleet_failure)
}

async fn leave(args: &LeaveArgs, settings: &Settings) -> Result<Exit, Failure> {
    let (journal, _) = Journal::open(&settings.data_dir()?, JournalOptions::default())?;
    let fleet = take_part(journal, &args.fleet, settings, true).await?;
    fleet.leave().await.map_err(fleet_failure)?;
    Ok(Exit::Done)
}

async fn set_excluded(
    node: &NodeId,
    args: &FleetArgs,
    is_excluded: bool,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let transport = connect(broker(settings, args)?, true).await?;
    let name = node.to_string();
    let done = match is_excluded {
        true => transport.cells().put(Table::Excluded, &name, "{}".into()).await.map(drop),
        false => transport.cells().delete(Table::Excluded, &name, None).await.map(drop),
    };
    done.map_err(|error| broker_failure(&error))?;
    match (out.json, is_excluded) {
        (true, excluded) => out.object(&CountsJson { node: &name, excluded })?,
        (false, true) => out.line(format_args!("{name}: excluded"))?,
        (false, false) => out.line(format_args!("{name}: included"))?,
    }
    Ok(Exit::Done)
}

/// Makes all nodes forget a domain. Returns false without a fleet.
pub(crate) fn forget(
    settings: &Settings,
    args: &FleetArgs,
    domain: &str,
    until: Timestamp,
) -> Result<bool, Failure> {
    let Some(nats) = nats(settings, args)? else { return Ok(false) };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::failed)?;
    let told = runtime.block_on(async {
        let transport = connect(nats, true).await?;
        notify_forgotten(&*transport, domain, until).await.map_err(|error| broker_failure(&error))
    });
    told.map(|()| true).map_err(|failure| {
        failure.advise("run the same command again to notify the other nodes; it is forgotten here")
    })
}

/// Forgets a domain in what peers sent to the node of a directory. Returns the number of their
/// attempts, and of nodes whose evidence snapshot covered the domain; none if no peer has sent
/// anything. `append` passes the tombstone to the node's own log, unless that has it already.
pub(crate) fn forget_peer_evidence(
    dir: &Path,
    domain: &str,
    until: Timestamp,
    append: impl FnOnce(&Tombstone) -> Result<(), Failure>,
) -> Result<Option<(u64, u64)>, Failure> {
    if !dir.join(peer_store::FOLDER).is_dir() {
        return Ok(None);
    }
    // With the tombstone the node notifies the others when it joins, and their snapshots leave out
    // the domain.
    append(&Tombstone { target: TombstoneTarget::Domain(domain.to_owned()), at: until })?;
    let found = peer_store::forget(dir, domain, until).map_err(fleet_failure)?;
    Ok(found.map(|found| (found.attempts, found.folded as u64)))
}

async fn owners(args: &OwnerArgs, settings: &Settings, out: &mut Output) -> Result<Exit, Failure> {
    let own =
        NodeState::load(&settings.data_dir()?).map_err(fleet_failure)?.map(|state| state.node_id);
    let transport = connect(broker(settings, &args.fleet)?, true).await?;
    let listed =
        transport.cells().list(Table::Nodes).await.map_err(|error| broker_failure(&error))?;
    let nodes: Vec<NodeId> = listed.iter().filter_map(|(name, _)| name.parse().ok()).collect();
    let (selector, _) = settings.load_selector()?;
    for text in &args.urls {
        let url = fetchwise::heuristic::url::parse(text).map_err(Failure::usage)?;
        let shown = selector.heuristics(&url).map_err(Failure::usage)?;
        let of =
            |kind: &str| shown.iter().find(|shown| &*shown.kind == kind).map(|shown| &*shown.value);
        let owner = owner(of("site").or(of("domain")).unwrap_or_default(), &nodes);
        let is_own = owner.is_some() && owner == own;
        match out.json {
            true => out.object(&OwnerJson {
                url: text,
                owner: owner.map(|owner| owner.to_string()),
                own: is_own,
            })?,
            false => match owner {
                Some(owner) => out.line(format_args!("{owner} {}", plain(text)))?,
                None => out.line(format_args!("none {}", plain(text)))?,
            },
        }
    }
    Ok(Exit::Done)
}

fn print_permissions(
    args: &PermissionsArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let own =
        NodeState::load(&settings.data_dir()?).map_err(fleet_failure)?.map(|state| state.node_id);
    let node = args.node.or(own).ok_or_else(|| {
        Failure::usage("missing node: this data directory has never joined a fleet")
            .advise("give a node, as `fetchwise fleet status` prints it")
    })?;
    let options = options(settings, &args.fleet);
    out.line(
        permissions(&options.pool, node, &args.queue).map_err(|error| broker_failure(&error))?,
    )?;
    Ok(Exit::Done)
}
