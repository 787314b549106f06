//! The side of the running process: a socket in its data directory, and an answer to each line.
//!
//! Invariants: the socket has its mode before it has its name, so nobody else connects in between.
//! The caller has the lock of the directory, so an older socket there belongs to a process that has
//! ended, and is replaced.
//!
//! Must not know: what a request does.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::{ControlAnswer, ControlRequest, Controlled, MAX_LINE, SOCKET, socket_path};
use crate::terminal::output::{note, shown};

/// The number of clients that get an answer at the same time; others wait.
const MAX_CLIENTS: usize = 8;
/// The time for a client to send its line, and to take the answer.
const CLIENT_TIME: Duration = Duration::from_secs(5);
/// The time for requests in progress when the process ends.
const GRACE: Duration = Duration::from_secs(2);
/// The pause after a failed accept: the process may have no free file descriptor.
const RETRY: Duration = Duration::from_millis(100);
/// The maximum length of an error that repeats what a client sent.
const MAX_ERROR_CHARS: usize = 200;

/// The socket of this process. Its file is removed when this is dropped.
pub(crate) struct ControlSocket {
    path: PathBuf,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl ControlSocket {
    /// Listens in `dir`, whose lock the caller has. `process` is the command that runs. A socket
    /// that cannot be created is reported, and the process runs without it. Called within a
    /// runtime.
    pub(crate) fn open(
        dir: &Path,
        process: &'static str,
        controlled: impl Controlled,
    ) -> Option<Self> {
        match listen(dir) {
            Ok(listener) => {
                let (stop, stopped) = watch::channel(false);
                let task = tokio::spawn(serve(listener, process, Arc::new(controlled), stopped));
                Some(Self { path: dir.join(SOCKET), stop, task })
            }
            Err(error) => {
                let path = dir.join(SOCKET);
                note(format_args!(
                    "warning: cannot listen on {}, so commands cannot change this run: {error}",
                    shown(&path)
                ));
                None
            }
        }
    }

    /// Stops to listen, and lets requests in progress finish within a time.
    pub(crate) async fn close(mut self) {
        let _ = std::fs::remove_file(&self.path);
        let _ = self.stop.send(true);
        if timeout(GRACE, &mut self.task).await.is_err() {
            self.task.abort();
            let _ = (&mut self.task).await;
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.task.abort();
        // After `close` it is gone. A socket that stays is replaced by the next process.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Creates the socket.
fn listen(dir: &Path) -> io::Result<UnixListener> {
    // Such a folder is private. The socket gets its name there once its mode is right.
    let private = tempfile::Builder::new().prefix(".control").tempdir_in(dir)?;
    let (path, _open) = socket_path(private.path(), "s")?;
    let listener = UnixListener::bind(path)?;
    let made = private.path().join("s");
    std::fs::set_permissions(&made, Permissions::from_mode(0o600))?;
    std::fs::rename(&made, dir.join(SOCKET))?;
    Ok(listener)
}

/// Answers clients until `stopped`, then finishes what is in progress.
async fn serve<C: Controlled>(
    listener: UnixListener,
    process: &'static str,
    controlled: Arc<C>,
    mut stopped: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(MAX_CLIENTS));
    let mut clients = JoinSet::new();
    loop {
        while clients.try_join_next().is_some() {}
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await.map_err(io::Error::other)?;
            Ok::<_, io::Error>((listener.accept().await?.0, place))
        };
        tokio::select! {
            _ = stopped.changed() => break,
            accepted = accepted => match accepted {
                Ok((stream, place)) => {
                    let controlled = Arc::clone(&controlled);
                    clients.spawn(async move {
                        answer_client(stream, process, &*controlled).await;
                        drop(place);
                    });
                }
                Err(_) => tokio::time::sleep(RETRY).await,
            },
        }
    }
    drop(listener);
    while clients.join_next().await.is_some() {}
}

/// Answers one client. One that sends nothing, or is another user, gets no answer.
async fn answer_client<C: Controlled>(
    mut stream: UnixStream,
    process: &'static str,
    controlled: &C,
) {
    let is_own = |uid: u32| uid == rustix::process::geteuid().as_raw() || uid == 0;
    if !stream.peer_cred().is_ok_and(|peer| is_own(peer.uid())) {
        return;
    }
    let request = match timeout(CLIENT_TIME, read_line(&mut stream)).await {
        Ok(Ok(line)) if line.is_empty() => return,
        Ok(Ok(line)) => parse(&line),
        Ok(Err(_)) => return,
        Err(_) => Err(format!("no complete line within {} s", CLIENT_TIME.as_secs())),
    };
    let done = match request {
        Ok(request) => controlled.perform(request).await,
        Err(error) => Err(error),
    };
    let (done, error) = match done {
        Ok(done) => (Some(done), None),
        Err(error) => (None, Some(error)),
    };
    let answer =
        ControlAnswer { pid: std::process::id(), process: process.to_owned(), done, error };
    let mut line = serde_json::to_vec(&answer).unwrap_or_default();
    line.push(b'\n');
    // A client that has left does not need it.
    let _ = timeout(CLIENT_TIME, stream.write_all(&line)).await;
}

/// Reads a line, or what is before the end. A line that is too long is returned in part.
async fn read_line(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    BufReader::new(stream.take(MAX_LINE + 1)).read_until(b'\n', &mut line).await?;
    Ok(line)
}

/// Returns the request of a line, which may be anything.
fn parse(line: &[u8]) -> Result<ControlRequest, String> {
    if line.len() as u64 > MAX_LINE {
        return Err(format!("the request is longer than {MAX_LINE} bytes"));
    }
    serde_json::from_slice(line).map_err(|error| {
        let why: String = error.to_string().chars().take(MAX_ERROR_CHARS).collect();
        format!(
            "invalid request: expected one line such as {{\"command\":\"unpause\",\"host\":\"example.org\"}}: {why}"
        )
    })
}
