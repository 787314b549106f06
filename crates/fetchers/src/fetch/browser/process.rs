//! One running Chromium: its flags, its profile, its start and its end.
//!
//! The process group and its watcher are [`ChildGroup`]'s, so no Chromium outlives us; and it holds one end of a pipe whose
//! closing ends it by itself, should the watcher be killed first. The profile is a temporary folder and goes with the browser,
//! crash reports and caches included. It must not know what a page is.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufRead, BufReader};
use tokio::process::Command;
use tokio::sync::oneshot;

use crate::fetch::local_faults::is_local_spawn_fault;
use crate::fetch::process_group::{ChildGroup, Scratch, MAX_TAIL_LINE, Tail, read_line};

/// How long Chromium may take from its start to its DevTools socket.
const MAX_LAUNCH: Duration = Duration::from_secs(20);
/// How long Chromium may take to end once it was asked to.
const MAX_CLOSE: Duration = Duration::from_secs(3);
/// How long the end of a browser whose socket closed may take to show.
const MAX_EXIT: Duration = Duration::from_secs(1);

/// What each browser is started with, whatever it is for. Chromium by itself looks up hosts, updates components and
/// reports; a crawler's browser makes no request but those of the page.
const FLAGS: &[&str] = &[
    "--headless=new",
    "--remote-debugging-port=0",
    // Nothing is said over the pipe: Chromium ends when it closes.
    #[cfg(unix)]
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-startup-window",
    "--no-default-browser-check",
    // No request of its own.
    "--disable-background-networking",
    "--disable-client-side-phishing-detection",
    "--disable-component-extensions-with-background-pages",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-field-trial-config",
    "--disable-search-engine-choice-screen",
    "--disable-sync",
    "--dns-prefetch-disable",
    "--metrics-recording-only",
    "--no-pings",
    "--no-service-autorun",
    "--disable-breakpad",
    "--disable-crash-reporter",
    // HttpsUpgrades: a page asked for as http is fetched as http, as every other fetcher does.
    "--disable-features=AutofillServerCommunication,CertificateTransparencyComponentUpdater,DialMediaRouteProvider,\
     DnsOverHttps,HttpsFirstBalancedModeAutoEnable,HttpsUpgrades,InterestFeedContentSuggestions,LensOverlay,\
     MediaRouter,NetworkTimeServiceQuerying,OptimizationGuideModelDownloading,OptimizationHints,\
     OptimizationHintsFetching,OptimizationTargetPrediction,Prerender2,PreconnectToSearch,SafeBrowsing,\
     SegmentationPlatform,Translate",
    // Nothing beside the proxy: no QUIC, and WebRTC only where the proxy can carry it (it cannot carry UDP).
    "--disable-quic",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    // Nothing that waits for a person.
    "--deny-permission-prompts",
    "--disable-hang-monitor",
    "--disable-notifications",
    "--disable-prompt-on-repost",
    "--disable-print-preview",
    "--noerrdialogs",
    // Runs on a server: no sound, no keyring, no graphics card, small /dev/shm in containers.
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--hide-scrollbars",
    "--mute-audio",
    "--password-store=basic",
    "--use-mock-keychain",
    // A tab in the background renders like one in front.
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
];

/// Settings for which there is no flag. Without an authentication scheme that it knows, Chromium takes a 401 as it
/// comes; otherwise it asks a person for a password, and an image that needs one is waited for for ever. The one that may ask
/// is the proxy, and the tab answers.
fn local_state(proxy: SocketAddr) -> String {
    format!(r#"{{"auth":{{"schemes":"none","http_auth_allowed_for_origins":["http://{proxy}"]}}}}"#)
}

/// Settings of the profile, which the pages' contexts inherit. The first keeps Chromium from asking a host of Google's
/// whether a certificate error is a hotel's doing; the others repeat flags that have come and gone.
const PREFERENCES: &str = r#"{
    "alternate_error_pages": {"enabled": false},
    "net": {"network_prediction_options": 2},
    "safebrowsing": {"enabled": false},
    "search": {"suggest_enabled": false},
    "signin": {"allowed": false},
    "webrtc": {"ip_handling_policy": "disable_non_proxied_udp"}
}"#;

/// Why Chromium did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The program could not be run.
    #[error("cannot run {}: {source}", program.display())]
    Spawn {
        /// The program.
        program: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It ended, or said nothing, before it could be spoken to.
    #[error("Chromium {what}{last_words}")]
    NoSocket {
        /// What it did instead.
        what: String,
        /// It still ran, and might have come up later.
        slow: bool,
        /// The end of its standard error, ready to be added to a sentence.
        last_words: String,
    },
    /// Its socket could not be spoken to.
    #[error("cannot speak to Chromium: {0}")]
    Socket(String),
    /// A browser that is to run already cannot be reached.
    #[error("the browser that is to run already cannot be spoken to: {0}")]
    Remote(String),
    /// No folder for its profile.
    #[error("cannot make a folder for Chromium's profile: {0}")]
    Profile(io::Error),
    /// The fetcher was closed.
    #[error("the browser was closed")]
    Closed,
    /// The proxy that it goes through did not start.
    #[error("cannot start the filtering proxy: {0}")]
    Proxy(io::Error),
}

impl LaunchError {
    /// Whether it may start another time: it was slow, or this machine lacked something that comes back.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Spawn { source, .. } => is_local_spawn_fault(source),
            Self::NoSocket { slow, .. } => *slow,
            Self::Socket(_) | Self::Profile(_) | Self::Proxy(_) => true,
            Self::Closed | Self::Remote(_) => false,
        }
    }
}

/// A Chromium that runs, and what has to go with it.
pub(super) struct Process {
    group: ChildGroup,
    profile: Option<Scratch>,
    tail: Tail,
}

impl Process {
    /// Starts `program`, with no way to any network but the HTTP proxy `proxy`, which its browser contexts have to be
    /// given. Returns it with the address of its DevTools socket.
    pub(super) async fn launch(
        program: &Path,
        proxy: SocketAddr,
        extra: &[String],
    ) -> Result<(Self, String), LaunchError> {
        let profile = tokio::task::spawn_blocking(|| Scratch::new("fetchwise-chromium-"));
        let profile = profile.await.map_err(io::Error::other).flatten().map_err(LaunchError::Profile)?;
        furnish(profile.path(), proxy).map_err(LaunchError::Profile)?;
        let mut group = ChildGroup::spawn(command(program, proxy, extra, profile.path()), Some(profile.path()))
            .map_err(|source| LaunchError::Spawn { program: program.to_owned(), source })?;
        let (found, socket) = oneshot::channel();
        let tail = Tail::default();
        if let Some(stderr) = group.child().stderr.take() {
            tokio::spawn(read_stderr(BufReader::new(stderr), tail.clone(), found));
        }
        let mut process = Self { group, profile: Some(profile), tail };
        let (what, slow) = match tokio::time::timeout(MAX_LAUNCH, socket).await {
            Ok(Ok(socket)) => return Ok((process, socket)),
            Ok(Err(_)) => (format!("ended at its start ({})", process.exit_text().await), false),
            Err(_) => (format!("gave no DevTools socket within {} s", MAX_LAUNCH.as_secs()), true),
        };
        Err(LaunchError::NoSocket { what, slow, last_words: process.tail.last_words(5) })
    }

    /// The process id of the browser.
    pub(super) fn pid(&self) -> u32 {
        self.group.pid()
    }

    /// How it ended, for a message: it has ended, or is about to.
    pub(super) async fn exit_text(&mut self) -> String {
        match self.group.wait(MAX_EXIT).await {
            Some(status) => status.to_string(),
            None => "it hung".to_owned(),
        }
    }

    /// Waits for the end of a browser that was asked to close, kills it when that takes too long, removes the profile.
    pub(super) async fn finish(mut self) {
        let profile = self.profile.take();
        self.group.finish(MAX_CLOSE).await;
        if let Some(profile) = profile {
            let _ = tokio::task::spawn_blocking(move || profile.remove()).await;
        }
    }
}

fn command(program: &Path, proxy: SocketAddr, extra: &[String], profile: &Path) -> Command {
    let mut command = with_pipe(program);
    command
        .args(FLAGS)
        .arg(format!("--user-data-dir={}", profile.display()))
        // What the browser itself would like to ask (updates, accounts) goes to a proxy that is nowhere: no flag stops
        // all of it. Only the pages' contexts get the proxy that is there.
        .arg("--proxy-server=http://nowhere.invalid:9")
        .arg("--proxy-bypass-list=<-loopback>")
        // And without it no name resolves.
        .arg(format!("--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE {}", proxy.ip()))
        // Its sockets and shared memory files go with the profile; so do crash reports, which no flag stops, and whatever
        // else it would put into its user's own folders.
        .env("TMPDIR", profile)
        .env("BREAKPAD_DUMP_LOCATION", profile.join("crashes"))
        .env("XDG_CONFIG_HOME", profile.join("config"))
        .env("XDG_CACHE_HOME", profile.join("cache"))
        .stderr(Stdio::piped());
    if is_root() {
        // Chromium's sandbox refuses to run as root. For any other user it stays on.
        command.arg("--no-sandbox");
    }
    command.args(extra);
    command
}

/// The program with the two ends of `--remote-debugging-pipe` where it looks for them, at descriptors 3 and 4.
#[cfg(unix)]
fn with_pipe(program: &Path) -> Command {
    // The shell is the one way to descriptors of those numbers without unsafe code; it becomes the program.
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null", "sh"]).arg(program);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

#[cfg(not(unix))]
fn with_pipe(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Puts the settings into a new profile.
fn furnish(profile: &Path, proxy: SocketAddr) -> io::Result<()> {
    std::fs::write(profile.join("Local State"), local_state(proxy))?;
    std::fs::create_dir(profile.join("Default"))?;
    std::fs::write(profile.join("Default").join("Preferences"), PREFERENCES)
}

#[cfg(unix)]
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(not(unix))]
fn is_root() -> bool {
    false
}

/// Reads standard error to its end, so that the browser never blocks on it, and hands on the address of the socket.
async fn read_stderr(mut stderr: impl AsyncBufRead + Unpin, tail: Tail, found: oneshot::Sender<String>) {
    let mut found = Some(found);
    let mut line = Vec::new();
    while let Ok(Some(_)) = read_line(&mut stderr, &mut line, MAX_TAIL_LINE).await {
        let text = String::from_utf8_lossy(&line);
        if let Some((_, socket)) = text.split_once("DevTools listening on ")
            && let Some(found) = found.take()
        {
            let _ = found.send(socket.trim().to_owned());
        }
        tail.push(&text);
    }
}
