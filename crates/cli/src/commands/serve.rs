//! `serve`: decisions, attempts and visits over HTTP, for crawlers in any language.
//!
//! Owns: how a server is built from the settings, its start and its end. The crate
//! `fetchwise-serve` responds to requests.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::fetch::args::{PaceArgs, parse_size, parse_time};
use super::live_control::LiveControl;
use crate::commands::fetch::build_crawler::{
    about_guard, journal_options, pace, reloaded_pace, visits,
};
use crate::commands::fetch::crawl_options::CrawlOptions;
use crate::commands::fetch::shutdown;
use crate::setup::background_maintenance;
use crate::setup::fetcher_availability::{BrowserArgs, FetcherAvailability, NoBrowser};
use crate::setup::identity::{Identity, publisher, request_signer};
use crate::setup::listen::{ListenHints, listen, listen_publicly, tokens};
use crate::setup::reload;
use crate::setup::reload::{ReloadedParts, Reloader};
use crate::setup::server_discovery::ADDRESS_FILE;
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Output, note, plain, shown};
use crate::terminal::warnings::warn_torn_tail;
use fetchwise::detect::Detector;
use fetchwise::fetch::local_faults::raise_descriptor_limit;
use fetchwise::journal::{Follower, Journal, OnFull};
use fetchwise::pace::Pace;
use fetchwise::rollout::Guard;
use fetchwise::selector::{Selector, SelectorBuilder};
use fetchwise_serve::{Handle, Options, Parts, PublicSite, Server, Tokens};

/// The default address.
const LISTEN: &str = "127.0.0.1:7117";
/// The hints for an address that cannot be used.
const LISTEN_HINTS: ListenHints = ListenHints {
    example: "--listen 127.0.0.1:7117",
    token: "create a token with `fetchwise serve --new-token --token-file tokens.txt`, or set FETCHWISE_TOKEN",
};
/// The hints for a public address that cannot be used.
const PUBLIC_HINTS: ListenHints =
    ListenHints { example: "--public 127.0.0.1:7118", ..LISTEN_HINTS };
/// The largest number of connections of the public listener.
const PUBLIC_CONNECTIONS: usize = 1024;
/// File descriptors that are not connections: the log, its segments, the runtime.
const RESERVED: u64 = 128;
/// The default rate limit of a client in requests per second, if other machines can connect.
const RATE: u32 = 2000;
/// The interval at which the messages of background maintenance are checked.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(2);

/// Serve decisions, attempts, visits and the dashboard over HTTP
///
/// A crawler in any language asks which fetcher to use, fetches with its own client, and reports
/// the result: by a visit, or by single decisions and attempts. The server has exclusive access to
/// the data directory while it runs.
#[derive(Debug, Args)]
#[command(
    after_help = "Tokens come from --token-file (one per line, in plain text or as `sha256:HASH`) or from \
    $FETCHWISE_TOKEN. A server needs one unless it listens on loopback only.\n\n\
    Examples:\n  fetchwise serve --listen 127.0.0.1:7117\n  \
    curl -d '{\"urls\": [\"https://example.org/\"]}' http://127.0.0.1:7117/v1/select\n  \
    fetchwise serve --new-token --token-file tokens.txt       print a new token and store its hash\n  \
    fetchwise serve --listen 0.0.0.0:7117 --token-file tokens.txt\n  \
    fetchwise serve --public 127.0.0.1:7118 --config fetchwise.toml    publish the crawler's keys and card\n  \
    fetchwise serve --read-only data    watch the log of a running crawl"
)]
pub(crate) struct ServeArgs {
    /// Listen on this address; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = LISTEN)]
    pub(crate) listen: String,
    /// Accept the tokens in this file, one token or hash per line
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Print a new token, add its hash to --token-file, and stop
    #[arg(long, requires = "token_file")]
    pub(crate) new_token: bool,
    /// Follow the log of another process and change nothing; without DIR that of the data directory
    #[arg(
        long,
        value_name = "DIR",
        num_args = 0..=1,
        conflicts_with_all = ["new_token", "brokers"]
    )]
    pub(crate) read_only: Option<Option<PathBuf>>,
    /// Publish key directory, card, page and IP ranges of `[identity]` on this address, without a
    /// token
    #[arg(long, value_name = "ADDR")]
    pub(crate) public: Option<String>,
    /// Sign requests of clients by `[identity]`: `POST /v1/sign`, and `headers` of visits; needs a
    /// token
    #[arg(long, conflicts_with = "read_only")]
    pub(crate) sign: bool,
    /// Consider every fetcher by name, not only those of the config and of reported attempts
    #[arg(long)]
    pub(crate) all_fetchers: bool,
    /// Assume that crawlers have no browser
    #[arg(long)]
    pub(crate) no_browser: bool,
    #[command(flatten)]
    pub(crate) pace: PaceArgs,
    #[command(flatten)]
    pub(crate) fleet: super::fleet::FleetArgs,
    /// Limit the body of a request
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "16MiB")]
    pub(crate) max_body: u64,
    /// Limit requests per second and client, 0 for no limit [default: 0 on loopback, 2000
    /// otherwise]
    #[arg(long, value_name = "N")]
    pub(crate) client_rate: Option<u32>,
    /// Limit open connections; beyond that an idle or stalled one is closed, or the new one gets a
    /// 503
    #[arg(long, value_name = "N", default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_connections: u32,
    /// Limit open visits
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_visits: u32,
    /// End a visit that nobody continues for this long after its deadline
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    pub(crate) visit_timeout: Duration,
    /// Let open requests finish within this time after SIGTERM
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    pub(crate) grace: Duration,
    /// Accept this host name besides addresses and localhost, for a server without tokens;
    /// repeatable
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Vec<String>,
}

#[derive(Serialize)]
struct ListeningJson<'a> {
    listening: &'a str,
    url: &'a str,
    /// The public listener.
    #[serde(skip_serializing_if = "Option::is_none")]
    public: Option<String>,
}

#[derive(Serialize)]
struct TokenJson<'a> {
    token: &'a str,
}

/// Runs the command.
pub(crate) fn run(
    args: &ServeArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    if let Some(file) = args.token_file.as_deref().filter(|_| args.new_token) {
        return new_token(file, out);
    }
    let tokens = tokens(args.token_file.as_deref())?;
    if args.sign && tokens.is_empty() {
        return Err(Failure::usage("refusing to sign requests of clients without a token")
            .advise(LISTEN_HINTS.token));
    }
    if let Some(dir) = &args.read_only {
        return follow(args, settings, dir.as_deref(), tokens, out);
    }
    super::fleet::check(settings, &args.fleet)?;
    let identity = if args.sign { Identity::for_clients(settings)? } else { Identity::default() };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failure::failed)?;
    let ended = runtime.block_on(serve(args, settings, tokens, &identity, out));
    // Reading a long page blocks a thread that cannot be stopped.
    runtime.shutdown_timeout(Duration::from_millis(500));
    let journal = ended?;
    let dir = journal.dir().to_owned();
    if let Ok(journal) = Arc::try_unwrap(journal) {
        journal.close()?;
    }
    settings.snapshot_if_due(&dir);
    Ok(Exit::Done)
}

/// Waits until the process is asked to stop, and says that it does.
async fn stop_asked(mut stop: shutdown::Stop) {
    let _ = stop.changed().await;
    note("stopping: finishing open requests");
}

/// Serves until a signal, and returns the journal that the server wrote.
async fn serve(
    args: &ServeArgs,
    settings: &Settings,
    tokens: Tokens,
    identity: &Identity,
    out: &mut Output,
) -> Result<Arc<Journal>, Failure> {
    let needs_token = !tokens.is_empty();
    let stop = shutdown::listen().map_err(Failure::failed)?;
    let public = PublicListener::start(args, settings, &stop).await?;
    let listener = listen(&args.listen, &tokens, &LISTEN_HINTS).await?;
    let address = listener.local_addr().map_err(Failure::failed)?;
    let options = options(args, address);
    let loading = Loading::start(listener, &tokens, &options, stop.clone());
    // Loading occupies this thread; the others respond to health checks and signals meanwhile.
    let assembled =
        tokio::task::block_in_place(|| assemble(args, settings, tokens, options, identity));
    let (server, journal, reloader) = assembled?;
    let address_file = write_address_file(journal.dir(), address);
    let upkeep = background_maintenance::start(settings, journal.dir())?;
    let handle = server.handle();
    let fleet =
        super::fleet::join(settings, &args.fleet, &journal, handle.selector(), None).await?;
    let server = match &fleet {
        Some(fleet) => server.in_fleet(fleet.membership()),
        None => server,
    };
    let control = LiveControl::new(
        handle.selector(),
        &journal,
        fleet.as_ref().map(|fleet| fleet.membership()),
    );
    let control = LiveControl { server: Some(handle.clone()), reloader: Some(reloader), ..control }
        .listen("serve");
    let listener = loading.end().await?;
    Served {
        address,
        public: public.as_ref(),
        dir: journal.dir(),
        needs_token,
        is_read_only: false,
    }
    .print(out)?;
    let asked = stop_asked(stop);
    let forgot = || fleet.as_ref().map_or(0, |fleet| fleet.forgot());
    let maintenance = watch_maintenance(upkeep.as_ref(), &handle, forgot);
    let ended = tokio::select! {
        ended = server.run(listener, asked) => ended,
        () = maintenance => unreachable!("maintenance messages are checked until the server ends"),
    };
    if let Some(upkeep) = upkeep {
        upkeep.stop();
    }
    if let Some(control) = control {
        control.close().await;
    }
    let cut = ended.map_err(log_failure)?;
    drop(address_file);
    if let Some(public) = public {
        public.end().await;
    }
    if let Some(fleet) = fleet {
        fleet.end().await;
    }
    report_cut(cut, args.grace);
    Ok(journal)
}

/// Returns the failure of a log that cannot be written at the end.
fn log_failure(error: std::io::Error) -> Failure {
    Failure::failed(format_args!("cannot write the attempt log: {error}"))
        .advise("acknowledged attempts are on disk; send the others again")
}

/// Reports the requests that did not finish in time.
fn report_cut(cut: usize, grace: Duration) {
    if cut > 0 {
        let grace = humantime::format_duration(grace);
        note(format_args!("{cut} requests did not finish within {grace} and were cut off"));
    }
}

/// Serves the log of another process, which it neither locks nor changes.
fn follow(
    args: &ServeArgs,
    settings: &Settings,
    dir: Option<&Path>,
    tokens: Tokens,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let settings = &dir.map_or_else(|| settings.clone(), |dir| settings.with_dir(dir));
    let dir = settings.existing_dir()?;
    // A server has a journal. Nothing is written to this one, because every request that would is
    // refused.
    let place = tempfile::tempdir().map_err(Failure::failed)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failure::failed)?;
    runtime.block_on(async {
        let stop = shutdown::listen().map_err(Failure::failed)?;
        let public = PublicListener::start(args, settings, &stop).await?;
        let (listener, needs_token) =
            (listen(&args.listen, &tokens, &LISTEN_HINTS).await?, !tokens.is_empty());
        let address = listener.local_addr().map_err(Failure::failed)?;
        let mut options = options(args, address);
        options.read_only = true;
        let loading = Loading::start(listener, &tokens, &options, stop.clone());
        let server = tokio::task::block_in_place(|| {
            let (detector, classifier) = detectors(settings)?;
            let (journal, _) = Journal::open(place.path(), journal_options(settings))?;
            let crawl_options = CrawlOptions { pace: args.pace.clone(), ..CrawlOptions::default() };
            let visits = visits(settings, &crawl_options);
            let router = settings.router()?.clone();
            let pace = Pace::new(pace(settings, &crawl_options));
            let with = |builder: SelectorBuilder| {
                let clock = Arc::clone(&settings.clock);
                let builder = builder.visits(visits).router(router).clock(clock).pace(pace);
                // In the folder of this process: the one that it follows stays as it is.
                builder.keep_evicted(&journal)
            };
            let (selector, loaded) = settings.load_selector_with(with)?;
            let registered = settings.specs(&selector, &loaded.registered);
            let unavailable =
                if args.all_fetchers { Vec::new() } else { missing(args, settings, &selector)? };
            let parts = Parts {
                selector,
                registered,
                journal: Arc::new(journal),
                detector,
                classifier,
                unavailable,
                tokens,
                options,
                guard: None,
                followed: Some(Follower::after(&dir, &loaded)),
            };
            Server::new(parts).map_err(Failure::from)
        })?;
        let listener = loading.end().await?;
        Served { address, public: public.as_ref(), dir: &dir, needs_token, is_read_only: true }
            .print(out)?;
        server.run(listener, stop_asked(stop)).await.map_err(Failure::failed)?;
        if let Some(public) = public {
            public.end().await;
        }
        Ok::<_, Failure>(())
    })?;
    runtime.shutdown_timeout(Duration::from_millis(500));
    Ok(Exit::Done)
}

/// The listener for what the agent publishes. It needs no log, so it responds before the log is
/// loaded.
struct PublicListener {
    address: SocketAddr,
    responding: JoinHandle<()>,
}

impl PublicListener {
    /// Starts it if the command asks for one.
    async fn start(
        args: &ServeArgs,
        settings: &Settings,
        stop: &shutdown::Stop,
    ) -> Result<Option<Self>, Failure> {
        let Some(address) = &args.public else { return Ok(None) };
        let crawl_options = CrawlOptions { pace: args.pace.clone(), ..CrawlOptions::default() };
        let publisher = publisher(settings, &pace(settings, &crawl_options))?;
        let listener = listen_publicly(address, &PUBLIC_HINTS).await?;
        let address = listener.local_addr().map_err(Failure::failed)?;
        let site = PublicSite::new(publisher, public_options(args, address));
        let mut stop = stop.clone();
        let responding = tokio::spawn(site.run(listener, async move {
            let _ = stop.changed().await;
        }));
        Ok(Some(Self { address, responding }))
    }

    /// Waits for its end, which the signal that ends the server has asked for.
    async fn end(self) {
        let _ = self.responding.await;
    }
}

/// The server while its log is loaded: it responds to health checks, and a signal ends the process.
struct Loading {
    loaded: oneshot::Sender<()>,
    responding: JoinHandle<TcpListener>,
}

impl Loading {
    fn start(
        listener: TcpListener,
        tokens: &Tokens,
        options: &Options,
        mut stop: shutdown::Stop,
    ) -> Self {
        let (loaded, until) = oneshot::channel();
        let (tokens, options) = (tokens.clone(), options.clone());
        let responding = tokio::spawn(async move {
            let until = async {
                tokio::select! {
                    _ = until => {}
                    asked = stop.changed() => match asked {
                        // No attempt was accepted yet, and a log that is only read needs no orderly
                        // end.
                        Ok(()) => end_while_loading(),
                        Err(_) => std::future::pending().await,
                    },
                }
            };
            fetchwise_serve::while_loading(&listener, tokens, &options, until).await;
            listener
        });
        Self { loaded, responding }
    }

    /// Ends it, and returns the listener for the server.
    async fn end(self) -> Result<TcpListener, Failure> {
        let _ = self.loaded.send(());
        self.responding.await.map_err(Failure::failed)
    }
}

/// Ends the process: the thread that loads the log cannot be interrupted.
fn end_while_loading() {
    note("stopped while loading the log");
    std::process::exit(i32::from(Exit::Done as u8));
}

/// Prints a new token and stores its hash.
fn new_token(file: &Path, out: &mut Output) -> Result<Exit, Failure> {
    let token = Tokens::random()
        .map_err(|error| Failure::failed(format_args!("cannot create a token: {error}")))?;
    Tokens::append(file, &token).map_err(|error| {
        Failure::failed(format_args!("cannot write to {}: {error}", shown(file)))
    })?;
    match out.json {
        true => out.object(&TokenJson { token: &token })?,
        false => out.line(&token)?,
    }
    Ok(Exit::Done)
}

/// Writes the server's address into the data directory, for commands that need the server. The file
/// is removed when the returned value is dropped.
fn write_address_file(dir: &Path, address: SocketAddr) -> AddressFile {
    let file = dir.join(ADDRESS_FILE);
    if let Err(error) = std::fs::write(&file, format!("http://{address}\n")) {
        note(format_args!(
            "warning: cannot write {}, so commands cannot find the server: {error}",
            shown(&file)
        ));
    }
    AddressFile(file)
}

/// The address file of the server.
struct AddressFile(PathBuf);

impl Drop for AddressFile {
    fn drop(&mut self) {
        // A file that stays is harmless: a client notices that no server listens there.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// What a server tells about itself once it listens.
struct Served<'a> {
    address: SocketAddr,
    public: Option<&'a PublicListener>,
    dir: &'a Path,
    needs_token: bool,
    is_read_only: bool,
}

impl Served<'_> {
    fn print(&self, out: &mut Output) -> Result<(), Failure> {
        let (address, url) = (self.address.to_string(), format!("http://{}", self.address));
        let public = self.public.map(|public| public.address.to_string());
        if out.json {
            out.object(&ListeningJson { listening: &address, url: &url, public })?;
            return out.flush();
        }
        out.line(format_args!("listening on {url}"))?;
        out.line(format_args!("  dashboard  {url}/"))?;
        out.line(format_args!("  API        {url}/v1/ (described by {url}/openapi.json)"))?;
        out.line(format_args!("  metrics    {url}/metrics"))?;
        let access = if self.is_read_only { ", read only" } else { "" };
        out.line(format_args!("  data       {}{access}", shown(self.dir)))?;
        let token =
            if self.needs_token { "required" } else { "none: only this machine can connect" };
        out.line(format_args!("  token      {token}"))?;
        if let Some(public) = public {
            out.line(format_args!("publishing on http://{public}"))?;
        }
        out.flush()
    }
}

/// Opens the data directory for writing, loads its evidence, and builds a server. Called within a
/// runtime.
fn assemble(
    args: &ServeArgs,
    settings: &Settings,
    tokens: Tokens,
    options: Options,
    identity: &Identity,
) -> Result<(Server, Arc<Journal>, Arc<Reloader>), Failure> {
    let hangups = reload::listen(settings).map_err(Failure::failed)?;
    let router = settings.router()?.clone();
    let crawl_options = CrawlOptions { pace: args.pace.clone(), ..CrawlOptions::default() };
    let (detector, classifier) = detectors(settings)?;
    let (journal, recovery) =
        Journal::open(&settings.data_dir()?, journal_options(settings).on_full(OnFull::Error))?;
    warn_torn_tail(recovery.torn.as_ref());
    let journal = Arc::new(journal);
    let pace = Pace::new(pace(settings, &crawl_options)).with_store(Box::new(Arc::clone(&journal)));
    let visits = visits(settings, &crawl_options);
    let with = |builder: SelectorBuilder| {
        let builder =
            builder.visits(visits).router(router.clone()).clock(Arc::clone(&settings.clock));
        builder.pace(pace).keep_evicted(&journal)
    };
    let (selector, loaded) = settings.load_selector_with(with)?;
    journal.register_fetchers(&selector, &loaded.registered)?;
    let registered = settings.specs(&selector, &loaded.registered);
    let (guard, said) =
        Guard::open(journal.dir(), &selector, settings.config.guard()).map_err(about_guard)?;
    said.iter().for_each(reload::report_event);
    let missing = if args.all_fetchers { Vec::new() } else { missing(args, settings, &selector)? };
    let parts = Parts {
        selector,
        registered,
        journal: Arc::clone(&journal),
        detector: Arc::clone(&detector),
        classifier: Arc::clone(&classifier),
        unavailable: missing,
        tokens,
        options,
        guard: Some(Arc::clone(&guard)),
        followed: None,
    };
    let mut server = Server::new(parts)?;
    if let Some(signer) = request_signer(identity) {
        server = server.signing(signer);
    }
    let handle = server.handle();
    identity.read_vendors_of(handle.selector());
    let parts = ReloadedParts {
        selector: handle.selector(),
        journal: &journal,
        detectors: &[&detector, &classifier],
        guard: &guard,
        identity,
    };
    let reloader = Reloader::new(settings, &parts, reloaded_pace(&crawl_options));
    // Both tasks end with the runtime.
    reload::watch_rollback(&guard, handle.selector());
    reload::on_hangup(hangups, Arc::clone(&reloader));
    Ok((server, journal, reloader))
}

/// Prints the messages of background maintenance. Recounts the log when attempts were removed: by
/// maintenance, or because a node of the fleet requested to forget a domain, which `forgot` counts.
async fn watch_maintenance(
    upkeep: Option<&background_maintenance::RunningMaintenance>,
    server: &Handle,
    forgot: impl Fn() -> u64,
) {
    let mut ticks = tokio::time::interval(MAINTENANCE_INTERVAL);
    let mut known = forgot();
    loop {
        ticks.tick().await;
        let said: Vec<String> = upkeep
            .into_iter()
            .flat_map(background_maintenance::RunningMaintenance::messages)
            .collect();
        said.iter().for_each(|words| note(plain(words)));
        let forgotten = forgot();
        if forgotten != known {
            server.forget_marks(None);
        }
        if !said.is_empty() || forgotten != known {
            known = forgotten;
            server.recount().await;
        }
    }
}

fn options(args: &ServeArgs, address: SocketAddr) -> Options {
    let files = usize::try_from(raise_descriptor_limit().saturating_sub(RESERVED))
        .unwrap_or(usize::MAX)
        .max(1);
    let most = args.max_connections as usize;
    if files < most {
        note(format_args!(
            "warning: at most {files} connections instead of {most}: this process may open no more files; raise the \
             limit (ulimit -n)"
        ));
    }
    let mut options = Options::default();
    options.max_body = usize::try_from(args.max_body).unwrap_or(usize::MAX);
    options.rate = client_rate(args, address);
    options.max_connections = most.min(files);
    options.max_visits = args.max_visits as usize;
    options.visit_timeout = args.visit_timeout;
    options.grace = args.grace;
    options.hosts.clone_from(&args.host);
    options
}

/// Returns the limits of the public listener, which has four short documents.
fn public_options(args: &ServeArgs, address: SocketAddr) -> Options {
    let mut options = Options::default();
    options.rate = client_rate(args, address);
    options.max_connections = PUBLIC_CONNECTIONS.min(args.max_connections as usize);
    options.grace = args.grace;
    options
}

/// Returns the limit of requests per second and client.
fn client_rate(args: &ServeArgs, address: SocketAddr) -> Option<NonZeroU32> {
    let default = if address.ip().to_canonical().is_loopback() { 0 } else { RATE };
    NonZeroU32::new(args.client_rate.unwrap_or(default))
}

/// Returns the detector for pages of visits and the one for `classify` requests. SIGHUP reloads the
/// rules of both.
fn detectors(settings: &Settings) -> Result<(Arc<Detector>, Arc<Detector>), Failure> {
    let detector = Arc::new(settings.detector()?);
    let options = settings.detector_options().counting_all();
    let classifier = Arc::new(settings.detector()?.with_options(options));
    Ok((detector, classifier))
}

/// Returns the candidates that no crawler has. A browser is not one of them: most crawlers have
/// one, even if this machine has not.
fn missing(
    args: &ServeArgs,
    settings: &Settings,
    selector: &Selector,
) -> Result<Vec<(String, String)>, Failure> {
    let available = FetcherAvailability::find(
        settings,
        &BrowserArgs { chromium: None, no_browser: args.no_browser },
    )?;
    let of_here = match &available.browser {
        Err(NoBrowser::Missing(reason)) => Some(reason.clone()),
        _ => None,
    };
    let why = |name: &str| {
        let why =
            available.unavailable_reason(name).filter(|why| of_here.as_deref() != Some(why))?;
        Some((name.to_owned(), why.lines().next().unwrap_or_default().to_owned()))
    };
    Ok(selector.candidates().filter_map(|(_, spec)| why(&spec.name)).collect())
}
