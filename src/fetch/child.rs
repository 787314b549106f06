//! Child processes that end when we end.
//!
//! Invariant: no child outlives us. Each child leads a process group of its own (Ctrl-C in a terminal is for us, and
//! its whole family can be ended at once); a drop kills the group; and when this process is itself killed, a watcher (a
//! `sh` at the other end of a pipe) sees the pipe close and kills the group. It must not know what the child is for.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

/// How long the watcher may take to go home.
const WATCHER_MAX: Duration = Duration::from_secs(3);
/// Lines of standard error that are kept for messages.
const TAIL_LINES: usize = 20;
/// Bytes of one such line that are kept.
pub(super) const TAIL_LINE_MAX: usize = 2000;

/// A child and its process group.
pub(super) struct ChildGroup {
    child: Child,
    pid: u32,
    watcher: Option<Child>,
}

impl ChildGroup {
    /// Starts `command` as the leader of a group. When we are killed, the watcher also removes the folder `scratch`.
    pub(super) fn spawn(mut command: Command, scratch: Option<&Path>) -> io::Result<Self> {
        command.kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        let child = command.spawn()?;
        let pid = child.id().unwrap_or_default();
        Ok(Self { child, pid, watcher: watch(pid, scratch) })
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
        if let Some(mut watcher) = self.watcher.take() {
            if let Some(mut stdin) = watcher.stdin.take() {
                let _ = stdin.write_all(b"done\n").await;
            }
            let _ = tokio::time::timeout(WATCHER_MAX, watcher.wait()).await;
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

/// Starts the watcher of group `pid`. Its standard input is a pipe whose other end only we hold: a line `done` sends it
/// home, an end of file means that we are gone. Without `/bin/sh` there is no watcher, and a kill -9 of ourselves may
/// leave the child behind.
#[cfg(unix)]
fn watch(pid: u32, scratch: Option<&Path>) -> Option<Child> {
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
fn watch(_pid: u32, _scratch: Option<&Path>) -> Option<Child> {
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
