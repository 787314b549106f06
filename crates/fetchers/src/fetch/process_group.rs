//! Child processes that end when we end.
//!
//! Invariant: no child outlives us. Each child leads a process group of its own (Ctrl-C in a terminal is for us, and
//! its whole family can be ended at once); a drop kills the group; and when this process is itself killed, a watcher (a
//! `sh` at the other end of a pipe) sees the pipe close and kills the group. A watcher that ends before its time is replaced.
//! What a child leaves on disk is in its scratch folder, which goes with it; one that nobody was left to remove is removed at
//! the next start. It must not know what the child is for.

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

/// How long the watcher may take to go home.
const MAX_WATCHER: Duration = Duration::from_secs(3);
/// Lines of standard error that are kept for messages.
const TAIL_LINES: usize = 20;
/// Bytes of one such line that are kept.
pub(super) const MAX_TAIL_LINE: usize = 2000;

/// The file in a scratch folder that is locked for as long as its owner lives.
const LOCK: &str = ".fetchwise-lock";
/// A scratch folder that is younger may not be locked yet.
const STALE_AFTER: Duration = Duration::from_secs(60);
/// The pause before a watcher that ended is replaced.
const WATCHER_PAUSE: Duration = Duration::from_millis(100);

/// A folder for one child, gone with it.
pub(super) struct Scratch {
    dir: TempDir,
    _lock: File,
}

impl Scratch {
    /// Makes a folder whose name begins with `prefix` in the system's folder for temporary files, and removes those of dead
    /// owners there.
    pub(super) fn new(prefix: &str) -> io::Result<Self> {
        let parent = std::env::temp_dir();
        sweep(&parent, prefix);
        Self::within(&parent, prefix)
    }

    fn within(parent: &Path, prefix: &str) -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix(prefix).tempdir_in(parent)?;
        let lock = File::create(dir.path().join(LOCK))?;
        // Where there are no locks nobody can take it for a dead owner's either.
        let _ = lock.try_lock();
        Ok(Self { dir, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Removes it; processes that are being killed may still write to it for a moment. Blocks.
    #[cfg_attr(not(feature = "browser"), allow(dead_code, reason = "only a browser has a profile to remove"))]
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

/// Removes the scratch folders in `parent` that have a lock which nobody holds.
fn sweep(parent: &Path, prefix: &str) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(prefix)
            && entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !ours {
            continue;
        }
        let Ok(lock) = File::open(entry.path().join(LOCK)) else { continue };
        let age = lock.metadata().and_then(|about| about.modified()).map(|at| at.elapsed().unwrap_or_default());
        if age.is_ok_and(|age| age > STALE_AFTER) && lock.try_lock().is_ok() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// A child and its process group.
pub(super) struct ChildGroup {
    child: Child,
    pid: u32,
    watch: Option<Watch>,
}

/// Those who look after a group when we are gone. When this is dropped they do what they are there for.
struct Watch {
    go_home: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl ChildGroup {
    /// Starts `command` as the leader of a group. When we are killed, the watcher also removes the folder `scratch`.
    pub(super) fn spawn(mut command: Command, scratch: Option<&Path>) -> io::Result<Self> {
        command.kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        let child = command.spawn()?;
        let pid = child.id().unwrap_or_default();
        Ok(Self { child, pid, watch: watch(pid, scratch) })
    }

    /// The process id of the child.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// The child's pipes.
    pub(super) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Waits for the child's end, for `max` at most.
    pub(super) async fn wait(&mut self, max: Duration) -> Option<ExitStatus> {
        tokio::time::timeout(max, self.child.wait()).await.ok()?.ok()
    }

    /// Waits for the end of a child that was told to end; kills it, and what is left of its family, after `max`.
    pub(super) async fn finish(mut self, max: Duration) {
        if self.wait(max).await.is_none() {
            kill_group(self.pid);
            let _ = self.child.wait().await;
        }
        kill_group(self.pid);
        if let Some(watch) = self.watch.take() {
            let _ = watch.go_home.send(());
            let _ = tokio::time::timeout(MAX_WATCHER, watch.task).await;
        }
        self.pid = 0;
    }
}

impl Drop for ChildGroup {
    fn drop(&mut self) {
        // The watcher, whose pipe closes now, kills what this misses and removes the scratch folder.
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

/// Has group `pid` watched; none when there is nobody to do it.
fn watch(pid: u32, scratch: Option<&Path>) -> Option<Watch> {
    let mut watcher = start_watcher(pid, scratch)?;
    let scratch = scratch.map(Path::to_owned);
    let (go_home, mut homeward) = oneshot::channel();
    let task = tokio::spawn(async move {
        loop {
            // Its pipe, which closes with us.
            let Some(mut stdin) = watcher.stdin.take() else { return };
            tokio::select! {
                _ = watcher.wait() => {}
                told = &mut homeward => {
                    if told.is_ok() {
                        let _ = stdin.write_all(b"done\n").await;
                        drop(stdin);
                        let _ = watcher.wait().await;
                    }
                    return;
                }
            }
            tokio::time::sleep(WATCHER_PAUSE).await;
            match start_watcher(pid, scratch.as_deref()) {
                Some(next) => watcher = next,
                None => return,
            }
        }
    });
    Some(Watch { go_home, task })
}

/// Starts the watcher of group `pid`. Its standard input is a pipe whose other end only we hold: a line `done` sends it
/// home, an end of file means that we are gone. Without `/bin/sh` there is no watcher, and a kill -9 of ourselves may
/// leave the child behind.
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
pub(super) struct Tail(Arc<Mutex<VecDeque<String>>>);

impl Tail {
    /// Keeps `line`, unless there is nothing on it.
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

    /// `; last words: ...` for the end of a message, or nothing when it said nothing.
    pub(super) fn last_words(&self, lines: usize) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last: Vec<&str> = kept.iter().skip(kept.len().saturating_sub(lines)).map(String::as_str).collect();
        if last.is_empty() { String::new() } else { format!("; last words: {}", last.join(" | ")) }
    }
}

/// The next line of `from` without its end, in `line`, and how long it really was; `line` holds `max` bytes of it at
/// most. `None` at the end of the stream. Memory stays bounded however long the line is.
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
    fn last_words_are_the_last_lines_only() {
        let tail = Tail::default();
        assert_eq!(tail.last_words(3), "");
        for n in 0..30 {
            tail.push(&format!("line {n}\n"));
        }
        tail.push("   ");
        assert_eq!(tail.last_words(2), "; last words: line 28 | line 29");
    }

    #[test]
    fn folders_of_dead_owners_are_swept_and_those_of_living_ones_are_not() {
        let parent = tempfile::tempdir().unwrap();
        let old = std::time::SystemTime::now() - 2 * STALE_AFTER;
        let make = |old_lock: bool| {
            let scratch = Scratch::within(parent.path(), "test-").unwrap();
            if old_lock {
                scratch._lock.set_modified(old).unwrap();
            }
            scratch
        };
        let (living, dead, young) = (make(true), make(true), make(false));
        let stranger = parent.path().join("other-1");
        std::fs::create_dir(&stranger).unwrap();
        // A killed owner removes nothing, and its locks are free.
        let killed = |Scratch { dir, _lock }: Scratch| dir.keep();
        let (dead, young) = (killed(dead), killed(young));
        sweep(parent.path(), "test-");
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
        let mut pid = String::new();
        for _ in 0..200 {
            pid = std::fs::read_to_string(&file).unwrap_or_default();
            if pid.ends_with('\n') {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let stat = Path::new("/proc").join(pid.trim()).join("stat");
        let alive = || std::fs::read_to_string(&stat).is_ok_and(|s| !s.contains(") Z "));
        assert!(alive(), "the grandchild {pid} did not start");
        drop(group);
        for _ in 0..200 {
            if !alive() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the grandchild {pid} still runs");
    }
}
