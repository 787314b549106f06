//! A crawler's or a server's part in a fleet: joining at its start, telling beside it how it goes, and saying what is left at its end.
//!
//! Owns what a failure to join means for the command. Must not know what is shared.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use fetchwise::config::FleetScope;
use fetchwise::journal::Journal;
use fetchwise::selector::Selector;
use fetchwise_fleet::pauses::SharedHosts;
use fetchwise_fleet::transport::nats::{Nats, NatsSettings};
use fetchwise_fleet::transport::{Transport, TransportError};
use fetchwise_fleet::{Fleet, FleetError, Options, Scope, Status};
use fetchwise_serve::Membership;

use crate::commands::fleet::server_status::Told;
use crate::setup::settings::Settings;
use crate::terminal::exit::Failure;
use crate::terminal::output::{note, plain};

/// A broker gets so long to answer at the start.
const READY: Duration = Duration::from_secs(5);
/// What is left gets so long to be published at the end.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How often the file of the status is written anew.
const STATUS_EVERY: Duration = Duration::from_millis(500);
/// The file in the data directory with the status of whoever crawls there.
pub(super) const STATUS_FILE: &str = "fleet.status.json";

/// Where the fleet is.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct FleetArgs {
    /// Learn with other nodes, over these brokers of NATS: nats://127.0.0.1:4222, tls://nats1:4222; several with commas
    #[arg(
        long = "fleet",
        value_name = "URL[,URL]",
        env = "FETCHWISE_FLEET",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub(crate) brokers: Vec<String>,
    /// The pool of nodes to learn with [default: that of the config, or default]
    #[arg(long, value_name = "NAME")]
    pub(crate) pool: Option<String>,
}

/// The settings of the broker; none where nobody wants a fleet.
pub(super) fn nats(settings: &Settings, args: &FleetArgs) -> Result<Option<NatsSettings>, Failure> {
    let config = &settings.config.fleet;
    let urls = if args.brokers.is_empty() { &config.url } else { &args.brokers };
    if urls.is_empty() {
        return Ok(None);
    }
    let certificate = match (&config.certificate, &config.key) {
        (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
        (None, None) => None,
        _ => return Err(Failure::usage("fleet.certificate and fleet.key belong together: one of them is missing")),
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
    args.pool.clone().or_else(|| settings.config.fleet.pool.clone()).unwrap_or_else(|| "default".to_owned())
}

/// How this node takes part.
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
    let limits = &mut options.limits;
    limits.facts_per_s = config.max_attempts_per_second.unwrap_or(limits.facts_per_s);
    limits.keys_per_s = config.max_new_keys_per_second.unwrap_or(limits.keys_per_s);
    limits.max_snapshot_bytes = config.max_snapshot_bytes.unwrap_or(limits.max_snapshot_bytes);
    options
}

/// What is wrong, and whose it is to mend.
pub(super) fn about(error: FleetError) -> Failure {
    match error {
        FleetError::Transport(error) => about_broker(&error),
        FleetError::Journal(error) => error.into(),
        error @ (FleetError::Differs { .. } | FleetError::OtherScope { .. }) => {
            Failure::usage(plain(&error.to_string()))
        }
        error if error.is_refusal() => Failure::refused(plain(&error.to_string())),
        error => Failure::failed(plain(&error.to_string())),
    }
}

pub(super) fn about_broker(error: &TransportError) -> Failure {
    let words = plain(&error.to_string());
    match error {
        TransportError::Invalid(_) => Failure::usage(words),
        TransportError::Away(_) => Failure::failed(words)
            .advise("start one with `nats-server -js`, or name where it is with --fleet; docs/guides/fleet.md tells more"),
        _ => Failure::failed(words),
    }
}

/// A part in a fleet.
pub(crate) struct Joined {
    fleet: Arc<Fleet>,
    hosts: Option<Arc<SharedHosts>>,
    transport: Arc<dyn Transport>,
    journal: Arc<Journal>,
    telling: tokio::task::JoinHandle<()>,
    file: PathBuf,
}

/// Joins the fleet that the settings name, if they name one. A broker that is away is waited for while the crawl goes on, unless the
/// settings require one.
pub(crate) async fn join(
    settings: &Settings,
    args: &FleetArgs,
    journal: &Arc<Journal>,
    selector: &Arc<Selector>,
) -> Result<Option<Joined>, Failure> {
    let Some(nats) = nats(settings, args)? else { return Ok(None) };
    let transport = connect(nats, settings.config.fleet.required).await?;
    let options = options(settings, args);
    let egress = options.egress_group.clone();
    let joining = Fleet::join(Arc::clone(journal), Arc::clone(selector), Arc::clone(&transport), options);
    let fleet = Arc::new(joining.await.map_err(about)?);
    let hosts = SharedHosts::share(Arc::clone(selector), Arc::clone(&transport), fleet.origin(), &egress).map(Arc::new);
    let file = journal.dir().join(STATUS_FILE);
    let telling = tokio::spawn(tell(Arc::clone(&fleet), file.clone()));
    Ok(Some(Joined { fleet, hosts, transport, journal: Arc::clone(journal), telling, file }))
}

/// A connection, which a broker that is away gets later.
pub(super) async fn connect(nats: NatsSettings, is_required: bool) -> Result<Arc<dyn Transport>, Failure> {
    let nats = Nats::connect(nats).await.map_err(|error| about_broker(&error))?;
    match nats.ready(READY).await {
        Ok(_) => {}
        Err(error @ TransportError::Away(_)) if !is_required => {
            note(format_args!("warning: {}; this node goes on alone until there is one", plain(&error.to_string())))
        }
        Err(error) => return Err(about_broker(&error)),
    }
    Ok(Arc::new(nats))
}

impl Joined {
    /// What a server is told of it.
    pub(crate) fn told(&self) -> Arc<dyn Membership> {
        let hosts = self.hosts.as_ref().map(Arc::downgrade).unwrap_or_default();
        Arc::new(Told { fleet: Arc::downgrade(&self.fleet), hosts, transport: Arc::clone(&self.transport) })
    }

    /// How often a domain was forgotten because some node was told to.
    pub(crate) fn forgot(&self) -> u64 {
        self.fleet.status().forgot
    }

    /// Says what is left, and leaves go of everything.
    pub(crate) async fn end(self) {
        let Self { fleet, hosts, journal, telling, file, .. } = self;
        if journal.flush().await.is_ok() && fleet.status().broker {
            let said = async {
                while fleet.status().published < journal.durable_seq() {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            if tokio::time::timeout(LAST_WORDS, said).await.is_err() {
                note("the broker has not taken all that was learned: the rest follows with the next run");
            }
        }
        telling.abort();
        let _ = telling.await;
        let _ = std::fs::remove_file(file);
        if let Some(hosts) = hosts.and_then(Arc::into_inner) {
            hosts.stop().await;
        }
        if let Some(fleet) = Arc::into_inner(fleet) {
            fleet.stop().await;
        }
    }
}

/// Keeps the status in a file, for `fleet status` beside this process.
async fn tell(fleet: Arc<Fleet>, file: PathBuf) {
    let mut every = tokio::time::interval(STATUS_EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        // The directory may be full; the next one may get there.
        let _ = write(&file, &fleet.status());
    }
}

fn write(file: &Path, status: &Status) -> std::io::Result<()> {
    let new = file.with_extension("new");
    std::fs::write(&new, serde_json::to_vec(status)?)?;
    std::fs::rename(new, file)
}
