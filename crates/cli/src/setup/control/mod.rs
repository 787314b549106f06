//! Control of a process that uses a data directory, through a Unix domain socket in that directory.
//!
//! A command that finds the directory locked sends one line of JSON, and gets one back. `listener`
//! is the side of the running process, `client` that of the command.
//!
//! Invariants: only the user of the running process gets an answer. Every line has a maximum
//! length, and every wait has an end. A system without Unix domain sockets has no control, and then
//! commands say that the directory is locked.
//!
//! Must not know: how a request is performed.

use std::future::Future;
#[cfg(unix)]
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

#[cfg(unix)]
mod client;
#[cfg(unix)]
mod listener;
#[cfg(not(unix))]
mod without_sockets;

#[cfg(unix)]
pub(crate) use {client::ask, listener::ControlSocket};
#[cfg(not(unix))]
pub(crate) use {without_sockets::ControlSocket, without_sockets::ask};

/// The name of the socket in the data directory.
#[cfg(unix)]
const SOCKET: &str = "control.sock";
/// The maximum length of a request and of an answer in bytes.
#[cfg(unix)]
const MAX_LINE: u64 = 64 << 10;

/// What a running process can be asked to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum ControlRequest {
    /// End the pause of a host or a link.
    Unpause {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        link: Option<String>,
    },
    /// Forget a domain or a link.
    Forget {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        domain: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        link: Option<String>,
    },
    /// Read the settings again.
    Reload {},
}

/// What a running process has done; the fields that its request is about are set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ControlResult {
    /// Whether a pause was active.
    pub(crate) unpaused: bool,
    /// The end that the pause would have had.
    pub(crate) was_paused_until: Option<String>,
    /// The attempts that the next compaction removes.
    pub(crate) attempts: u64,
    /// The forgotten records of pauses and risk.
    pub(crate) states: u64,
    /// Whether a snapshot had evidence of it.
    pub(crate) in_snapshot: bool,
    /// The forgotten attempts of peers, and the peers with older evidence; none if no peer has sent
    /// anything.
    pub(crate) peers: Option<(u64, u64)>,
    /// Whether the other nodes of the fleet were notified.
    pub(crate) fleet_notified: bool,
    /// What applies after a reload, for people.
    pub(crate) reloaded: Option<String>,
}

/// A line of the running process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ControlAnswer {
    /// The id of the process.
    pub(crate) pid: u32,
    /// Its command.
    pub(crate) process: String,
    /// What was done; none if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) done: Option<ControlResult>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

impl ControlAnswer {
    /// Returns who has done it, for people: `the running fetch, pid 7`.
    pub(crate) fn actor(&self) -> String {
        format!("the running {}, pid {}", self.process, self.pid)
    }
}

/// Something that performs requests.
pub(crate) trait Controlled: Send + Sync + 'static {
    /// Performs a request. The error says, for people, why it failed.
    fn perform(
        &self,
        request: ControlRequest,
    ) -> impl Future<Output = Result<ControlResult, String>> + Send;
}

/// Returns the path of the socket of a directory, which the system limits to some hundred bytes. A
/// longer one is reached through the open directory, where the system can do that.
#[cfg(unix)]
fn socket_path(
    dir: &std::path::Path,
    name: &str,
) -> std::io::Result<(PathBuf, Option<std::fs::File>)> {
    /// Below the limits of all systems, with the end of the string.
    const MAX_PATH: usize = 100;
    let path = dir.join(name);
    if path.as_os_str().len() <= MAX_PATH || !cfg!(target_os = "linux") {
        return Ok((path, None));
    }
    use std::os::fd::AsRawFd;
    let open = std::fs::File::open(dir)?;
    Ok((PathBuf::from(format!("/proc/self/fd/{}/{name}", open.as_raw_fd())), Some(open)))
}
