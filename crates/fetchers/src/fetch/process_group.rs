//! Child processes that end with this process.
//!
//! Invariants: no child outlives this process. Each child leads its own process group, so Ctrl-C in
//! a terminal reaches only this process, and all of the child's descendants can be ended at once.
//! Dropping the group kills it. If this process is killed, a watcher (a `sh` at the other end of a
//! pipe) sees the pipe close and kills the group. A watcher that ends early is replaced. A child's
//! files on disk are in its scratch folder, which is removed with it, or at the next start if no
//! process was left to remove it.
//!
//! Must not know: the purpose of the child.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::local_faults::restore_descriptor_limit;

/// Maximum time for the watcher to end.
const MAX_WATCHER_EXIT: Duration = Duration::from_secs(3);
/// Lines of standard error that are kept for messages.
const TAIL_LINES: usize = 20;
/// Bytes per such line that are kept.
pub(super) const MAX_TAIL_LINE: usize = 2000;

/// The file in a scratch folder that is locked as long as its owner lives.
const LOCK: &str = ".fetchwise-lock";
/// A scratch folder younger than this may not be locked yet.
const STALE_AFTER: Duration = Duration::from_secs(60);
/// Pause before a watcher that ended is replaced.
const WATCHER_PAUSE: Duration = Duration::from_millis(100);

/// A temporary folder for one child, removed with it.
pub(super) struct ScratchDir {
    dir: TempDir,
    _lock: File,
}

impl ScratchDir {
    /// Creates a folder whose name begins with `prefix` in the system's temporary folder, and
    /// removes the folders of dead owners there.
    pub(super) fn new(prefix: &str) -> io::Result<Self> {
        let parent = std::env::temp_dir();
        remove_stale(&parent, prefix);
        Self::within(&parent, prefix)
    }

    fn within(parent: &Path, prefix: &str) -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix(prefix).tempdir_in(parent)?;
        let lock = File::create(dir.path().join(LOCK))?;
        // Without file locks, other processes cannot mistake it for a dead owner's either.
        let _ = lock.try_lock();
        Ok(Self { dir, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Removes the folder; processes that are being killed may still write to it for a moment.
    /// Blocks.
    #[cfg_attr(
        not(feature = "browser"),
        allow(dead_code, reason = "only the browser fetcher removes a profile")
    )]
    pub(super) fn remove(self) {
        let path = self.dir.keep();
        for _ in 0..20 {
            if std::fs::remove_dir_all(&path).is_ok() || !path.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Removes the scratch folders in `parent` whose lock is free.
fn remove_stale(parent: &Path, prefix: &str) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(prefix)
            && entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !ours {
            continue;
        }
        let Ok(lock) = File::open(entry.path().join(LOCK)) else { continue };
        let age = lock
            .metadata()
            .and_then(|about| about.modified())
            .map(|at| at.elapsed().unwrap_or_default());
        if age.is_ok_and(|age| age > STALE_AFTER) && lock.try_lock().is_ok() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// A child and its process group.
pub(super) struct ChildGroup {
    child: Child,
    pid: u32,
    watcher: Option<Watcher>,
}

/// The watcher of a group and the task that replaces it. Dropping this triggers the kill.
struct Watcher {
    dismiss: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl ChildGroup {
    /// Starts `command` as the leader of a group. The watcher also removes the folder `scratch`
    /// when this process is killed.
    pub(super) fn spawn(mut command: Command, scratch: Option<&Path>) -> io::Result<Self> {
        command.kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        let child = command.spawn()?;
        let pid = child.id().unwrap_or_default();
        restore_descriptor_limit(pid);
        Ok(Self { child, pid, watcher: watch(pid, scratch) })
    }

    /// Returns the process id of the child.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the child, for its pipes.
    pub(super) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Waits for the end of the child, at most `max`.
    pub(super) async fn wait(&mut self, max: Duration) -> Option<ExitStatus> {
        tokio::time::timeout(max, self.child.wait()).await.ok()?.ok()
    }

    /// Waits for the end of a child that was told to end. Kills it after `max`, together with its
    /// remaining descendants.
    pub(super) async fn finish(mut self, max: Duration) {
        if self.wait(max).await.is_none() {
            kill_group(self.pid);
            let _ = self.child.wait().await;
        }
        kill_group(self.pid);
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.dismiss.send(());
            let _ = tokio::time::timeout(MAX_WATCHER_EXIT, watcher.task).await;
        }
        self.pid = 0;
    }
}

impl Drop for ChildGroup {
    fn drop(&mut self) {
        // The watcher, whose pipe closes now, kills what this misses and removes the scratch
        // folder.
        kill_group(self.pid);
    }
}

#[cfg(unix)]
fn kill_group(pid: u32) {
    use rustix::process::{Pid, Signal, kill_process_group};
    // Pid 0 would mean our own group.
    if let Some(pid) = i32::try_from(pid).ok().filter(|&pid| pid > 0).and_then(Pid::from_raw) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
}

#[cfg(not(unix))]
fn kill_group(_pid: u32) {}

/// Starts watching group `pid`; `None` if no watcher can be started.
fn watch(pid: u32, scratch: Option<&Path>) -> Option<Watcher> {
    let mut process = start_watcher(pid, scratch)?;
    let scratch = scratch.map(Path::to_owned);
    let (dismiss, mut dismissed) = oneshot::channel();
    let task = tokio::spawn(async move {
        loop {
            // The pipe to the watcher, which closes with this process.
            let Some(mut stdin) = process.stdin.take() else { return };
            tokio::select! {
                _ = process.wait() => {}
                result = &mut dismissed => {
                    if result.is_ok() {
                        let _ = stdin.write_all(b"done\n").await;
                        drop(stdin);
                        let _ = process.wait().await;
                    }
                    return;
                }
            }
            tokio::time::sleep(WATCHER_PAUSE).await;
            match start_watcher(pid, scratch.as_deref()) {
                Some(next) => process = next,
                None => return,
            }
        }
    });
    Some(Watcher { dismiss, task })
}

/// Starts the watcher of group `pid`. Its standard input is a pipe whose other end only this
/// process holds. The line `done` dismisses it; an end of file means that this process is gone.
/// Without `/bin/sh` there is no watcher, and a kill -9 of this process may leave the child behind.
#[cfg(unix)]
fn start_watcher(pid: u32, scratch: Option<&Path>) -> Option<Child> {
    use std::process::Stdio;

    const SCRIPT: &str = "trap '' HUP INT TERM; read -r line; [ \"$line\" = done ] && exit 0; \
                          kill -s KILL -- \"-$1\" 2>/dev/null; [ -n \"$2\" ] || exit 0; n=0; \
                          while [ \"$n\" -lt 20 ] && ! rm -rf -- \"$2\" 2>/dev/null; do sleep 0.1; n=$((n+1)); done";
    if pid == 0 {
        return None;
    }
    Command::new("/bin/sh")
        .args(["-c", SCRIPT, "fetchwise-watcher", &pid.to_string()])
        .arg(scratch.unwrap_or(Path::new("")))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .ok()
}

#[cfg(not(unix))]
fn start_watcher(_pid: u32, _scratch: Option<&Path>) -> Option<Child> {
    None
}

/// The last lines that a child wrote to its standard error; clones share them.
#[derive(Clone, Default)]
pub(super) struct StderrTail(Arc<Mutex<VecDeque<String>>>);

impl StderrTail {
    /// Keeps `line`, unless it is blank.
    pub(super) fn push(&self, line: &str) {
        if line.trim().is_empty() {
            return;
        }
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == TAIL_LINES {
            lines.pop_front();
        }
        lines.push_back(line.trim().to_owned());
    }

    /// Returns `; stderr: ...` for the end of a message, or nothing if there was no output.
    pub(super) fn summary(&self, lines: usize) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last: Vec<&str> =
            kept.iter().skip(kept.len().saturating_sub(lines)).map(String::as_str).collect();
        if last.is_empty() { String::new() } else { format!("; stderr: {}", last.join(" | ")) }
    }
}

/// Reads the next line of `from` into `line`, without its line end. Returns the actual length;
/// `line` holds at most `max` bytes of it. `None` at the end of the stream. Memory is bounded,
/// whatever the length of the line.
pub(super) async fn read_line(
    from: &mut (impl AsyncBufRead + Unpin),
    line: &mut Vec<u8>,
    max: usize,
) -> io::Result<Option<u64>> {
    line.clear();
    let mut len = 0_u64;
    let mut any = false;
    loop {
        let chunk = from.fill_buf().await?;
        if chunk.is_empty() {
            return Ok(any.then_some(len));
        }
        any = true;
        let end = chunk.iter().position(|&b| b == b'\n');
        let part = &chunk[..end.unwrap_or(chunk.len())];
        len += part.len() as u64;
        line.extend_from_slice(&part[..part.len().min(max.saturating_sub(line.len()))]);
        let used = part.len() + usize::from(end.is_some());
        from.consume(used);
        if end.is_some() {
            return Ok(Some(len));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use fetchwise_testsite::poll::until;

    use super::*;

    #[tokio::test]
    async fn a_line_longer_than_the_limit_is_cut_and_measured_and_the_next_is_whole() {
        let text = [b"x".repeat(100), b"\nsecond\n\nlast".to_vec()].concat();
        let mut from = tokio::io::BufReader::with_capacity(7, &text[..]);
        let mut line = Vec::new();
        assert_eq!(read_line(&mut from, &mut line, 10).await.unwrap(), Some(100));
        assert_eq!(line, b"xxxxxxxxxx");
        assert_eq!(read_line(&mut from, &mut line, 10).await.unwrap(), Some(6));
        assert_eq!(line, b"second");
        assert_eq!(read_line(&mut from, &mut line, 10).await.unwrap(), Some(0));
        assert_eq!(read_line(&mut from, &mut line, 10).await.unwrap(), Some(4));
        assert_eq!(read_line(&mut from, &mut line, 10).await.unwrap(), None);
    }

    #[test]
    fn the_summary_has_the_last_lines_only() {
        let tail = StderrTail::default();
        assert_eq!(tail.summary(3), "");
        for n in 0..30 {
            tail.push(&format!("line {n}\n"));
        }
        tail.push("   ");
        assert_eq!(tail.summary(2), "; stderr: line 28 | line 29");
    }

    #[test]
    fn folders_of_dead_owners_are_removed_and_those_of_living_ones_stay() {
        let parent = tempfile::tempdir().unwrap();
        let old = std::time::SystemTime::now() - 2 * STALE_AFTER;
        let make = |old_lock: bool| {
            let scratch = ScratchDir::within(parent.path(), "test-").unwrap();
            if old_lock {
                scratch._lock.set_modified(old).unwrap();
            }
            scratch
        };
        let (living, dead, young) = (make(true), make(true), make(false));
        let stranger = parent.path().join("other-1");
        std::fs::create_dir(&stranger).unwrap();
        // A killed owner removes nothing, and its locks are free.
        let killed = |ScratchDir { dir, _lock }: ScratchDir| dir.keep();
        let (dead, young) = (killed(dead), killed(young));
        remove_stale(parent.path(), "test-");
        assert!(living.path().exists() && young.exists() && stranger.exists());
        assert!(!dead.exists());
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_dropped_group_takes_its_grandchildren_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("grandchild");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "sleep 300 & echo $! > \"$1\"; wait", "sh"]).arg(&file);
        let group = ChildGroup::spawn(command, None).unwrap();
        let read_pid = || std::fs::read_to_string(&file).unwrap_or_default();
        until("the grandchild starts", || read_pid().ends_with('\n')).await;
        let pid = read_pid();
        let stat = Path::new("/proc").join(pid.trim()).join("stat");
        let alive = || std::fs::read_to_string(&stat).is_ok_and(|s| !s.contains(") Z "));
        assert!(alive(), "the grandchild {pid} did not start");
        drop(group);
        until("the grandchild ends", || !alive()).await;
    }
}
