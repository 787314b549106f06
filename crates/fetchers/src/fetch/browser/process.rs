//! One running Chromium: its flags, its profile, its start and its end.
//!
//! Invariants: no Chromium outlives this process. [`ChildGroup`] owns the process group and its
//! watcher. Chromium also holds one end of a pipe and ends itself when the pipe closes, in case the
//! watcher is killed first. The profile is a temporary folder that is removed with the browser,
//! including crash reports and caches.
//!
//! Must not know: what a page is.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufRead, BufReader};
use tokio::process::Command;
use tokio::sync::oneshot;

use crate::fetch::local_faults::is_local_spawn_fault;
use crate::fetch::process_group::{ChildGroup, MAX_TAIL_LINE, ScratchDir, StderrTail, read_line};

/// Maximum time from Chromium's start to its DevTools socket.
const MAX_LAUNCH: Duration = Duration::from_secs(20);
/// Maximum time for Chromium to end after it was told to close.
const MAX_CLOSE: Duration = Duration::from_secs(3);
/// Maximum time for the end of a browser whose socket closed.
const MAX_EXIT: Duration = Duration::from_secs(1);

/// Flags of every browser. Chromium itself looks up hosts, updates components and sends reports; a
/// crawler's browser makes only the requests of the page.
const FLAGS: &[&str] = &[
    "--headless=new",
    "--remote-debugging-port=0",
    // Nothing is sent over the pipe: Chromium ends when it closes.
    #[cfg(unix)]
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-startup-window",
    "--no-default-browser-check",
    // No requests of Chromium itself.
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
    // HttpsUpgrades: a page requested by http is fetched by http, as in every other fetcher.
    // WebUIOmnibox*: each page has a window, which nobody sees. For the pop-ups below its address
    // bar, each window would load pages, which take more of the processor than a small page does.
    "--disable-features=AutofillServerCommunication,CertificateTransparencyComponentUpdater,DialMediaRouteProvider,\
     DnsOverHttps,HttpsFirstBalancedModeAutoEnable,HttpsUpgrades,InterestFeedContentSuggestions,LensOverlay,\
     MediaRouter,NetworkTimeServiceQuerying,OptimizationGuideModelDownloading,OptimizationHints,\
     OptimizationHintsFetching,OptimizationTargetPrediction,Prerender2,PreconnectToSearch,SafeBrowsing,\
     SegmentationPlatform,Translate,WebUIOmniboxAimPopup,WebUIOmniboxFullPopup,WebUIOmniboxPopup",
    // Nothing bypasses the proxy: no QUIC, and WebRTC only through the proxy (which cannot carry
    // UDP).
    "--disable-quic",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    // Nothing waits for a person.
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

/// Settings without a flag. Without a supported authentication scheme, Chromium treats a 401 as an
/// ordinary response. Otherwise it asks a person for a password, and an image behind one never
/// finishes. Only the proxy may require authentication, and the tab responds.
fn local_state(proxy: SocketAddr) -> String {
    format!(r#"{{"auth":{{"schemes":"none","http_auth_allowed_for_origins":["http://{proxy}"]}}}}"#)
}

/// Settings of the profile, which the pages' contexts inherit. The first stops Chromium from asking
/// a Google host whether a captive portal caused a certificate error; the others repeat flags that
/// come and go between versions.
const PREFERENCES: &str = r#"{
    "alternate_error_pages": {"enabled": false},
    "net": {"network_prediction_options": 2},
    "safebrowsing": {"enabled": false},
    "search": {"suggest_enabled": false},
    "signin": {"allowed": false},
    "webrtc": {"ip_handling_policy": "disable_non_proxied_udp"}
}"#;

/// The reason why Chromium did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The program could not be run.
    #[error("cannot run {}: {source}", program.display())]
    Spawn {
        /// Program.
        program: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// It ended, or printed no socket, before a connection was possible.
    #[error("Chromium {what}{stderr}")]
    NoSocket {
        /// Description of what it did instead.
        what: String,
        /// Whether it still ran and might have started later.
        slow: bool,
        /// Suffix with the end of its standard error.
        stderr: String,
    },
    /// The connection to its socket failed.
    #[error("cannot connect to Chromium: {0}")]
    Socket(String),
    /// The connection to a running browser failed.
    #[error("cannot connect to the running browser: {0}")]
    Remote(String),
    /// The folder for its profile could not be created.
    #[error("cannot create a folder for Chromium's profile: {0}")]
    Profile(io::Error),
    /// The fetcher was closed.
    #[error("the browser was closed")]
    Closed,
    /// The filtering proxy did not start.
    #[error("cannot start the filtering proxy: {0}")]
    Proxy(io::Error),
}

impl LaunchError {
    /// Returns whether a later start may succeed: it was slow, or this machine lacked a resource
    /// that becomes available again.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Spawn { source, .. } => is_local_spawn_fault(source),
            Self::NoSocket { slow, .. } => *slow,
            Self::Socket(_) | Self::Profile(_) | Self::Proxy(_) => true,
            Self::Closed | Self::Remote(_) => false,
        }
    }
}

/// A running Chromium and its resources.
pub(super) struct Process {
    group: ChildGroup,
    profile: Option<ScratchDir>,
    tail: StderrTail,
}

impl Process {
    /// Starts `program`. Its only network access is the HTTP proxy `proxy`, which its browser
    /// contexts must be given. Returns it with the address of its DevTools socket.
    pub(super) async fn launch(
        program: &Path,
        proxy: SocketAddr,
        extra: &[String],
    ) -> Result<(Self, String), LaunchError> {
        let profile = tokio::task::spawn_blocking(|| ScratchDir::new("fetchwise-chromium-"));
        let profile =
            profile.await.map_err(io::Error::other).flatten().map_err(LaunchError::Profile)?;
        write_settings(profile.path(), proxy).map_err(LaunchError::Profile)?;
        let mut group =
            ChildGroup::spawn(command(program, proxy, extra, profile.path()), Some(profile.path()))
                .map_err(|source| LaunchError::Spawn { program: program.to_owned(), source })?;
        let (found, socket) = oneshot::channel();
        let tail = StderrTail::default();
        if let Some(stderr) = group.child().stderr.take() {
            tokio::spawn(read_stderr(BufReader::new(stderr), tail.clone(), found));
        }
        let mut process = Self { group, profile: Some(profile), tail };
        let (what, slow) = match tokio::time::timeout(MAX_LAUNCH, socket).await {
            Ok(Ok(socket)) => return Ok((process, socket)),
            Ok(Err(_)) => {
                (format!("ended during its start ({})", process.exit_text().await), false)
            }
            Err(_) => {
                (format!("printed no DevTools socket within {} s", MAX_LAUNCH.as_secs()), true)
            }
        };
        Err(LaunchError::NoSocket { what, slow, stderr: process.tail.summary(5) })
    }

    /// Returns the process id of the browser.
    pub(super) fn pid(&self) -> u32 {
        self.group.pid()
    }

    /// Returns how it ended, for a message; it has ended or is about to.
    pub(super) async fn exit_text(&mut self) -> String {
        match self.group.wait(MAX_EXIT).await {
            Some(status) => status.to_string(),
            None => "it hung".to_owned(),
        }
    }

    /// Waits for the end of a browser that was told to close, kills it after a timeout, and removes
    /// the profile.
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
        // The browser's own requests (updates, accounts) go to a nonexistent proxy, because no flag
        // stops all of them. Only the pages' contexts get the real proxy.
        .arg("--proxy-server=http://nowhere.invalid:9")
        .arg("--proxy-bypass-list=<-loopback>")
        // And without it no name resolves.
        .arg(format!("--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE {}", proxy.ip()))
        // Its sockets and shared memory files are removed with the profile. So are crash reports,
        // which no flag stops, and files that it would put into the user's folders.
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

/// Returns a command for the program with the two ends of `--remote-debugging-pipe` at descriptors
/// 3 and 4, where it expects them.
#[cfg(unix)]
fn with_pipe(program: &Path) -> Command {
    // Without unsafe code, only a shell can set up descriptors with these numbers; it then becomes
    // the program.
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

/// Writes the settings into a new profile.
fn write_settings(profile: &Path, proxy: SocketAddr) -> io::Result<()> {
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

/// Reads standard error to its end, so the browser never blocks on it, and sends the address of the
/// socket.
async fn read_stderr(
    mut stderr: impl AsyncBufRead + Unpin,
    tail: StderrTail,
    found: oneshot::Sender<String>,
) {
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
