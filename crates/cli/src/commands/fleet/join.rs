//! Membership of a crawler or server in a fleet: joining at the start, a status file during the
//! run, publishing the rest at the end.
//!
//! Owns: which exit code a failure to join has.
//!
//! Must not know: what the nodes share.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fetchwise::config::FleetScope;
use fetchwise::journal::Journal;
use fetchwise::selector::Selector;
use fetchwise_fleet::pauses::SharedHosts;
use fetchwise_fleet::queue::{QueueOptions, QueueReader};
use fetchwise_fleet::transport::nats::{Nats, NatsSettings};
use fetchwise_fleet::transport::{Transport, TransportError, check_queue_name};
use fetchwise_fleet::{Fleet, FleetError, FleetStatus, Options, Scope};
use fetchwise_serve::Membership;

use super::args::FleetArgs;
use super::membership::ServerStatus;
use crate::setup::settings::Settings;
use crate::terminal::exit::Failure;
use crate::terminal::output::{note, plain};

/// The time for a broker to respond at the start.
const READY: Duration = Duration::from_secs(5);
/// The time to publish the rest at the end.
const PUBLISH_TIME: Duration = Duration::from_secs(5);
/// The interval at which the status file is rewritten.
const STATUS_INTERVAL: Duration = Duration::from_millis(500);
/// The maximum number of links of a work queue that a crawl holds.
const MAX_QUEUED_LINKS: usize = 20_000;
/// The maximum number of them for one site.
const MAX_SITE_LINKS: usize = 40;
/// The number of sites that a crawl holds per URL that it fetches at the same time, within bounds.
const SITES_PER_SLOT: usize = 16;
const MIN_SITES: usize = 256;
const MAX_SITES: usize = 2_000;
/// The status file of the process that uses the data directory.
pub(super) const STATUS_FILE: &str = "fleet.status.json";

/// Fails if this build has no fleets, which it has.
#[allow(
    clippy::unnecessary_wraps,
    reason = "the signature is the same as without the feature fleet"
)]
pub(crate) fn check(_: &Settings, _: &FleetArgs) -> Result<(), Failure> {
    Ok(())
}

/// Returns the settings of the broker; none if no fleet is configured.
pub(super) fn nats(settings: &Settings, args: &FleetArgs) -> Result<Option<NatsSettings>, Failure> {
    let config = &settings.config.fleet;
    let urls = if args.brokers.is_empty() { &config.url } else { &args.brokers };
    if urls.is_empty() {
        return Ok(None);
    }
    let certificate = match (&config.certificate, &config.key) {
        (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
        (None, None) => None,
        _ => return Err(Failure::usage("missing fleet.certificate or fleet.key: set both")),
    };
    let mut nats = NatsSettings::new(urls.iter(), &pool(settings, args));
    nats.credentials.clone_from(&config.credentials);
    nats.tls_ca_file.clone_from(&config.tls_ca_file);
    nats.certificate = certificate;
    nats.plaintext = config.plaintext;
    nats.max_age = config.max_age.unwrap_or(nats.max_age);
    Ok(Some(nats))
}

fn pool(settings: &Settings, args: &FleetArgs) -> String {
    args.pool
        .clone()
        .or_else(|| settings.config.fleet.pool.clone())
        .unwrap_or_else(|| "default".to_owned())
}

/// Returns the options of this node.
pub(super) fn options(settings: &Settings, args: &FleetArgs) -> Options {
    let config = &settings.config.fleet;
    let mut options = Options::default();
    options.scope = match config.scope.unwrap_or_default() {
        FleetScope::All => Scope::All,
        FleetScope::Own => Scope::Own,
    };
    options.pool = pool(settings, args);
    options.egress_group = config.egress_group.clone().unwrap_or_default();
    options.max_age = config.max_age.unwrap_or(options.max_age);
    options.version = env!("CARGO_PKG_VERSION").to_owned();
    let (limits, tuning) = (&mut options.limits, &settings.config.tuning);
    limits.attempts_per_s = tuning.fleet_max_attempts_per_second.unwrap_or(limits.attempts_per_s);
    limits.new_keys_per_s = tuning.fleet_max_new_keys_per_second.unwrap_or(limits.new_keys_per_s);
    limits.max_snapshot_bytes =
        tuning.fleet_max_snapshot_bytes.unwrap_or(limits.max_snapshot_bytes);
    options
}

/// Returns the failure for an error of the fleet.
pub(super) fn fleet_failure(error: FleetError) -> Failure {
    match error {
        FleetError::Transport(error) => broker_failure(&error),
        FleetError::Journal(error) => error.into(),
        error @ (FleetError::Differs { .. } | FleetError::OtherScope { .. }) => {
            Failure::usage(plain(&error.to_string()))
        }
        error if error.is_refusal() => Failure::refused(plain(&error.to_string())),
        error => Failure::failed(plain(&error.to_string())),
    }
}

pub(super) fn broker_failure(error: &TransportError) -> Failure {
    let words = plain(&error.to_string());
    match error {
        TransportError::Invalid(_) => Failure::usage(words),
        TransportError::Away(_) => Failure::failed(words)
            .advise("start one with `nats-server -js`, or give its address with --fleet; see docs/guides/fleet.md"),
        _ => Failure::failed(words),
    }
}

/// The membership in a fleet.
pub(crate) struct FleetMembership {
    fleet: Arc<Fleet>,
    hosts: Option<Arc<SharedHosts>>,
    transport: Arc<dyn Transport>,
    journal: Arc<Journal>,
    status_task: tokio::task::JoinHandle<()>,
    file: PathBuf,
}

/// Joins the fleet that the settings name, if there is one. If the broker is unavailable, the crawl
/// starts anyway and connects later, unless the settings require the broker. `queue` is the work
/// queue that the crawl reads.
pub(crate) async fn join(
    settings: &Settings,
    args: &FleetArgs,
    journal: &Arc<Journal>,
    selector: &Arc<Selector>,
    queue: Option<&str>,
) -> Result<Option<FleetMembership>, Failure> {
    queue.map_or(Ok(()), check_queue_name).map_err(|error| broker_failure(&error))?;
    let Some(nats) = nats(settings, args)? else { return Ok(None) };
    let transport = connect(nats, settings.config.fleet.required).await?;
    let mut options = options(settings, args);
    options.queue = queue.unwrap_or_default().to_owned();
    let egress = options.egress_group.clone();
    let joining =
        Fleet::join(Arc::clone(journal), Arc::clone(selector), Arc::clone(&transport), options);
    let fleet = Arc::new(joining.await.map_err(fleet_failure)?);
    let hosts =
        SharedHosts::share(Arc::clone(selector), Arc::clone(&transport), fleet.node_id(), &egress)
            .map(Arc::new);
    let file = journal.dir().join(STATUS_FILE);
    let status_task = tokio::spawn(keep_status_file(Arc::clone(&fleet), file.clone()));
    Ok(Some(FleetMembership {
        fleet,
        hosts,
        transport,
        journal: Arc::clone(journal),
        status_task,
        file,
    }))
}

/// Returns a connection. If the broker is unavailable, the connection is made later.
pub(super) async fn connect(
    nats: NatsSettings,
    is_required: bool,
) -> Result<Arc<dyn Transport>, Failure> {
    let nats = Nats::connect(nats).await.map_err(|error| broker_failure(&error))?;
    match nats.ready(READY).await {
        Ok(_) => {}
        Err(error @ TransportError::Away(_)) if !is_required => note(format_args!(
            "warning: {}; this node continues alone until it can connect",
            plain(&error.to_string())
        )),
        Err(error) => return Err(broker_failure(&error)),
    }
    Ok(Arc::new(nats))
}

impl FleetMembership {
    /// Returns the view of the fleet for a server.
    pub(crate) fn membership(&self) -> Arc<dyn Membership> {
        let hosts = self.hosts.as_ref().map(Arc::downgrade).unwrap_or_default();
        Arc::new(ServerStatus {
            fleet: Arc::downgrade(&self.fleet),
            hosts,
            transport: Arc::clone(&self.transport),
        })
    }

    /// Returns how often a domain was forgotten on request of any node.
    pub(crate) fn forgot(&self) -> u64 {
        self.fleet.status().forgot
    }

    /// Starts to read a work queue for a crawl that fetches `concurrency` links at the same time.
    pub(crate) fn read_queue(
        &self,
        queue: &str,
        selector: &Arc<Selector>,
        concurrency: usize,
    ) -> QueueReader {
        let options = QueueOptions {
            queue: queue.to_owned(),
            max_links: MAX_QUEUED_LINKS,
            max_sites: (concurrency * SITES_PER_SLOT).clamp(MIN_SITES, MAX_SITES),
            max_site_links: MAX_SITE_LINKS,
        };
        let (transport, selector) = (Arc::clone(&self.transport), Arc::clone(selector));
        QueueReader::start(transport, selector, self.fleet.node_id(), self.fleet.lease(), options)
    }

    /// Publishes the rest and leaves.
    pub(crate) async fn end(self) {
        let Self { fleet, hosts, journal, status_task, file, .. } = self;
        fleet.leave_queue();
        if journal.flush().await.is_ok() && fleet.status().broker {
            let said = async {
                while fleet.status().published < journal.durable_seq() {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            if tokio::time::timeout(PUBLISH_TIME, said).await.is_err() {
                note("the broker has not accepted everything: the rest follows in the next run");
            }
        }
        status_task.abort();
        let _ = status_task.await;
        let _ = std::fs::remove_file(file);
        if let Some(hosts) = hosts.and_then(Arc::into_inner) {
            hosts.stop().await;
        }
        if let Some(fleet) = Arc::into_inner(fleet) {
            fleet.stop().await;
        }
    }
}

/// Keeps the status in a file, for `fleet status` alongside this process.
async fn keep_status_file(fleet: Arc<Fleet>, file: PathBuf) {
    let mut every = tokio::time::interval(STATUS_INTERVAL);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        // If the file system is full, the next write may succeed.
        let _ = write(&file, &fleet.status());
    }
}

fn write(file: &Path, status: &FleetStatus) -> std::io::Result<()> {
    let new = file.with_extension("new");
    std::fs::write(&new, serde_json::to_vec(status)?)?;
    std::fs::rename(new, file)
}
