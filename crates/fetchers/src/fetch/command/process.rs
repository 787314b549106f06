//! The child process: started on demand, served by two tasks, restarted after it died.
//!
//! One task writes requests; another reads replies and passes each one to the request that waits
//! for it. Neither waits for the other, so a child that writes before it reads blocks nothing.
//!
//! Must not know: what a page is.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::options::CommandOptions;
use super::wire::{self, Reply};
use crate::fetch::local_faults::is_local_spawn_fault;
use crate::fetch::process_group::{ChildGroup, MAX_TAIL_LINE, ScratchDir, StderrTail, read_line};

/// Maximum time for a child to end after its standard input is closed.
const MAX_CLOSE: Duration = Duration::from_secs(2);
/// Maximum pause before a child is restarted.
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// Lines of standard error in a message.
const STDERR_LINES: usize = 5;

/// The reason why there is no child, or no reply from it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// No program is configured.
    #[error("missing program")]
    NoProgram,
    /// The program could not be run.
    #[error("cannot run '{program}': {reason}")]
    Spawn {
        /// Configured program.
        program: String,
        /// Reason of the failure.
        reason: String,
    },
    /// This machine lacked a resource that the program needs: a process, a descriptor, a folder for
    /// bodies.
    #[error("cannot start '{program}' now: {reason}")]
    Local {
        /// Configured program.
        program: String,
        /// Missing resource.
        reason: String,
    },
    /// The child died, or was ended because it broke the protocol.
    #[error("'{program}' {what}")]
    Died {
        /// Configured program.
        program: String,
        /// Description with the exit status and the last lines of standard error.
        what: String,
    },
    /// The child died a moment ago and is not restarted yet.
    #[error("'{program}' restarts in {wait_ms} ms: it {what}")]
    Resting {
        /// Configured program.
        program: String,
        /// Description of the death.
        what: String,
        /// Remaining pause.
        wait_ms: u64,
    },
    /// The fetcher was closed.
    #[error("the fetcher was closed")]
    Closed,
}

/// The result that a request waits for.
pub(super) type ReplyResult = Result<Reply, ReplyError>;

/// The reason why a sent request has no reply.
#[derive(Clone, Debug)]
pub(super) enum ReplyError {
    /// The child died.
    Died(CommandError),
    /// The reply's line exceeded the maximum length.
    LineTooLong(u64),
}

/// The running child, and the history of those before it.
pub(super) struct Supervisor {
    options: Arc<CommandOptions>,
    running: Option<Arc<ChildProcess>>,
    deaths: u32,
    paused_until: Option<Instant>,
    closed: bool,
}

/// A child that was started, and may have died since.
pub(super) struct ChildProcess {
    lines: mpsc::UnboundedSender<Vec<u8>>,
    waiting: Mutex<HashMap<u64, oneshot::Sender<ReplyResult>>>,
    next_id: AtomicU64,
    answered: AtomicBool,
    /// How it died, if it has.
    death: Mutex<Option<CommandError>>,
    stop: CancellationToken,
    over: CancellationToken,
    scratch: ScratchDir,
    pid: u32,
}

impl Supervisor {
    pub(super) fn new(options: Arc<CommandOptions>) -> Self {
        Self { options, running: None, deaths: 0, paused_until: None, closed: false }
    }

    /// Returns the running child, or starts a new one; [`CommandError::Resting`] during the pause
    /// after a death.
    pub(super) fn running(&mut self) -> Result<Arc<ChildProcess>, CommandError> {
        if self.closed {
            return Err(CommandError::Closed);
        }
        if let Some(running) = &self.running {
            let Some(death) = running.death() else { return Ok(Arc::clone(running)) };
            let now = Instant::now();
            let until = *self.paused_until.get_or_insert_with(|| {
                self.deaths = if running.answered.load(Ordering::Relaxed) {
                    0
                } else {
                    self.deaths.saturating_add(1)
                };
                let factor = 2_u32.saturating_pow(self.deaths.saturating_sub(1).min(16));
                now + self.options.backoff.saturating_mul(factor).min(MAX_BACKOFF)
            });
            if let Some(wait) = until.checked_duration_since(now).filter(|wait| !wait.is_zero()) {
                return Err(CommandError::Resting {
                    program: program(&self.options),
                    what: match death {
                        CommandError::Died { what, .. } => what,
                        other => other.to_string(),
                    },
                    wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1),
                });
            }
        }
        let running = ChildProcess::start(&self.options)?;
        self.paused_until = None;
        self.running = Some(Arc::clone(&running));
        Ok(running)
    }

    /// Stops starting children, and returns the running one so that the caller can end it.
    pub(super) fn close(&mut self) -> Option<Arc<ChildProcess>> {
        self.closed = true;
        self.running.take()
    }

    /// Returns the child's process id, while it runs.
    pub(super) fn pid(&self) -> Option<u32> {
        self.running.as_ref().filter(|r| r.death().is_none()).map(|r| r.pid)
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            running.stop.cancel();
        }
    }
}

impl ChildProcess {
    fn start(options: &Arc<CommandOptions>) -> Result<Arc<Self>, CommandError> {
        let Some((name, arguments)) = options.argv.split_first() else {
            return Err(CommandError::NoProgram);
        };
        let local = |what: &str, error: &io::Error| CommandError::Local {
            program: program(options),
            reason: format!("{what}: {error}"),
        };
        let scratch = ScratchDir::new("fetchwise-command-")
            .map_err(|error| local("cannot create a folder for its bodies", &error))?;
        let mut command = Command::new(name);
        command
            .args(arguments)
            .envs(options.env.iter().map(|(k, v)| (k, v)))
            .env("FETCHWISE_SCRATCH", scratch.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(dir) = &options.current_dir {
            command.current_dir(dir);
        }
        let mut group = ChildGroup::spawn(command, Some(scratch.path())).map_err(|error| {
            if is_local_spawn_fault(&error) {
                local("it did not start", &error)
            } else {
                CommandError::Spawn { program: program(options), reason: spawn_reason(&error) }
            }
        })?;
        let tail = StderrTail::default();
        let child = group.child();
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (lines, outgoing) = mpsc::unbounded_channel();
        let running = Arc::new(Self {
            lines,
            waiting: Mutex::default(),
            next_id: AtomicU64::new(1),
            answered: AtomicBool::new(false),
            death: Mutex::default(),
            stop: CancellationToken::new(),
            over: CancellationToken::new(),
            scratch,
            pid: group.pid(),
        });
        if let Some(stderr) = stderr {
            let tail = tail.clone();
            tokio::spawn(async move {
                let (mut from, mut line) = (BufReader::new(stderr), Vec::new());
                while let Ok(Some(_)) = read_line(&mut from, &mut line, MAX_TAIL_LINE).await {
                    tail.push(&String::from_utf8_lossy(&line));
                }
            });
        }
        if let (Some(stdin), Some(stdout)) = (stdin, stdout) {
            let quiet = running.stop.clone();
            tokio::spawn(write(stdin, outgoing, quiet));
            tokio::spawn(supervise(Arc::clone(&running), group, stdout, tail, Arc::clone(options)));
        }
        Ok(running)
    }

    /// Returns how it died, if it has.
    fn death(&self) -> Option<CommandError> {
        self.death.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the folder for the child's bodies.
    pub(super) fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Sends the line that `line_of` makes of a new id. The returned value waits for the reply, and
    /// cancels the request when it is dropped.
    pub(super) fn send(
        self: &Arc<Self>,
        line_of: impl FnOnce(u64) -> Vec<u8>,
    ) -> Result<PendingReply, CommandError> {
        // Relaxed: ids only have to differ.
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, reply) = oneshot::channel();
        {
            // Under the lock, so a child that dies now either sees this request or has recorded its
            // death.
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(death) = self.death() {
                return Err(death);
            }
            waiting.insert(id, sender);
        }
        // If the writer is gone, the child ends soon, and its end completes the request.
        let _ = self.lines.send(line_of(id));
        Ok(PendingReply { running: Arc::clone(self), id, reply, answered: false })
    }

    /// Ends the child: closes its standard input, and kills what is left after a short time.
    pub(super) async fn end(&self) {
        self.stop.cancel();
        self.over.cancelled().await;
    }

    fn deliver(&self, id: u64, outcome: ReplyResult) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        // If nothing waits, the deadline passed and the reply is too late.
        if let Some(waiting) = waiting {
            self.answered.store(true, Ordering::Relaxed);
            let _ = waiting.send(outcome);
        }
    }

    /// Completes all pending requests with the death of the child, and records it for later ones.
    fn fail_pending(&self, death: &CommandError) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        *self.death.lock().unwrap_or_else(PoisonError::into_inner) = Some(death.clone());
        for (_, sender) in waiting.drain() {
            let _ = sender.send(Err(ReplyError::Died(death.clone())));
        }
    }
}

/// A request that was sent.
pub(super) struct PendingReply {
    running: Arc<ChildProcess>,
    id: u64,
    reply: oneshot::Receiver<ReplyResult>,
    answered: bool,
}

impl PendingReply {
    /// Waits for the reply, without a timeout: the caller bounds it.
    pub(super) async fn reply(&mut self) -> ReplyResult {
        let outcome = (&mut self.reply).await;
        self.answered = true;
        outcome.unwrap_or(Err(ReplyError::Died(CommandError::Closed)))
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        if !self.answered {
            self.running.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
            let _ = self.running.lines.send(wire::cancel_line(self.id));
        }
    }
}

/// Writes lines until all senders are gone or the child stops reading. Its end closes the child's
/// standard input.
async fn write(
    mut stdin: ChildStdin,
    mut lines: mpsc::UnboundedReceiver<Vec<u8>>,
    stop: CancellationToken,
) {
    let work = async {
        while let Some(line) = lines.recv().await {
            if stdin.write_all(&line).await.is_err() || stdin.flush().await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = work => {}
        () = stop.cancelled() => {}
    }
}

/// Reads until the child ends, breaks the protocol or is told to stop, and then ends it.
async fn supervise(
    running: Arc<ChildProcess>,
    mut group: ChildGroup,
    stdout: ChildStdout,
    tail: StderrTail,
    options: Arc<CommandOptions>,
) {
    let violation = tokio::select! {
        violation = read(&running, stdout, options.max_line) => violation,
        () = running.stop.cancelled() => Some("was closed".to_owned()),
    };
    let what = match violation {
        // It still runs, but is no longer trusted.
        Some(what) => format!("{what}{}", tail.summary(STDERR_LINES)),
        None => {
            // Its output ended; its exit status and the end of its standard error are about to
            // arrive.
            let status = group.wait(MAX_CLOSE).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            let how = status.map_or("closed its standard output".to_owned(), |status| {
                format!("ended ({status})")
            });
            format!("{how}{}", tail.summary(STDERR_LINES))
        }
    };
    let is_requested = running.stop.is_cancelled();
    running.fail_pending(&CommandError::Died { program: program(&options), what });
    // Closes its standard input, which tells it to end.
    running.stop.cancel();
    group.finish(if is_requested { MAX_CLOSE } else { Duration::ZERO }).await;
    running.over.cancel();
}

/// Returns how the child broke the protocol, or `None` when its output ended.
async fn read(running: &ChildProcess, stdout: ChildStdout, max_line: usize) -> Option<String> {
    let (mut from, mut line) = (BufReader::with_capacity(64 << 10, stdout), Vec::new());
    loop {
        let len = match read_line(&mut from, &mut line, max_line).await {
            Ok(Some(len)) => len,
            Ok(None) | Err(_) => return None,
        };
        if len > line.len() as u64 {
            match wire::id_of_beginning(&line) {
                Some(id) => running.deliver(id, Err(ReplyError::LineTooLong(len))),
                None => {
                    return Some(format!(
                        "wrote a line of {len} bytes without an id at its beginning"
                    ));
                }
            }
        } else if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        } else {
            match wire::read(&line) {
                Ok((id, reply)) => running.deliver(id, Ok(reply)),
                Err(bad) => return Some(format!("wrote an invalid line: {bad}")),
            }
        }
        // The buffer of a very long line is not kept for short ones.
        if line.capacity() > 1 << 20 {
            line = Vec::new();
        }
    }
}

/// Returns the name of the program for messages.
pub(super) fn program(options: &CommandOptions) -> String {
    options.argv.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn spawn_reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such program at that path or in PATH".to_owned(),
        io::ErrorKind::PermissionDenied => "not executable".to_owned(),
        _ => error.to_string(),
    }
}

/// Returns the file at `named` if it is in `scratch`: a child (or a site that tricks it) cannot
/// have any other file read or removed.
pub(super) fn in_scratch(scratch: &Path, named: &str) -> io::Result<PathBuf> {
    let folder = scratch.canonicalize()?;
    let file = folder.join(named).canonicalize()?;
    if !file.starts_with(&folder) || !file.is_file() {
        return Err(io::Error::other("not a file in the FETCHWISE_SCRATCH folder"));
    }
    Ok(file)
}
