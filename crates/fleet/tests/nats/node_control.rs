//! Nodes as separate processes that can be killed, and the naive fold that each of them is compared
//! with.
//!
//! A node is this test program again: see `node_process`.
//!
//! Invariants: a requested comparison is made, or the test fails.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fetchwise_fleet::FleetStatus;
use fetchwise_testsite::poll::found_within;
use serde::{Deserialize, Serialize};

/// The timeout of convergence.
pub const PATIENCE: Duration = Duration::from_secs(300);
/// The signal of a process that aborts.
const SIGABRT: i32 = 6;
/// The name of the result file of a node that was refused.
pub const REFUSED: &str = "refused";

/// The status that a node reports.
#[derive(Debug, Serialize, Deserialize)]
pub struct NodeReport {
    /// Whether it has recorded everything that it was to.
    pub is_done: bool,
    /// The number of attempts in its log, and of those that the log did not accept.
    pub recorded: usize,
    pub refused: usize,
    pub status: FleetStatus,
}

/// A command to a running node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum NodeCommand {
    /// Compare the evidence in memory.
    Compare { number: usize, oracle: Oracle },
    /// Set the clock offset in milliseconds.
    Clock(i64),
    /// Record until the log has this number of attempts.
    Until(usize),
}

/// The evidence that a node must have in memory.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Oracle {
    /// The logs, each attempt counted once.
    pub logs: Vec<PathBuf>,
    /// Attempts after this time count at the node that recorded them only.
    pub latest: Option<i64>,
    /// A forgotten domain, and the time up to which it is.
    pub forgotten: Option<(String, i64)>,
    /// In scope `own`: the handovers between nodes.
    pub divided: Option<Handovers>,
}

/// The handovers between nodes of scope `own`; of everything else they know global evidence only.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Handovers {
    /// The node id of each directory.
    pub names: BTreeMap<PathBuf, String>,
    /// The handovers. The later of two replaces the earlier one.
    pub taken: Vec<Handover>,
}

/// A handover: what one node has applied of the sites that another one had recorded.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Handover {
    pub by: PathBuf,
    pub of: PathBuf,
    /// The owners of sites at that time.
    pub among: Vec<String>,
    /// The number of attempts that had been published.
    pub attempts: usize,
}

/// A node's directory, and its process while it runs.
pub struct Node {
    pub dir: PathBuf,
    urls: Vec<String>,
    number: usize,
    settings: Vec<(&'static str, String)>,
    process: Option<Child>,
}

/// The nodes of one test.
pub struct Nodes {
    folder: tempfile::TempDir,
    pub all: Vec<Node>,
    checks: usize,
}

pub fn beside(dir: &Path, what: &str) -> PathBuf {
    dir.with_extension(what)
}

impl Node {
    /// Starts the node: it records until its log has `count` attempts, at `rate` per second.
    pub fn start(&mut self, count: usize, rate: usize) {
        assert!(self.process.is_none());
        let _ = fs::remove_file(beside(&self.dir, "said"));
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([
            "node_process::node",
            "--exact",
            "--ignored",
            "--nocapture",
            "--test-threads",
            "1",
        ]);
        command
            .env("FETCHWISE_TEST_NODE", &self.dir)
            .env("FETCHWISE_TEST_URLS", self.urls.join(","));
        command
            .env("FETCHWISE_TEST_COUNT", count.to_string())
            .env("FETCHWISE_TEST_RATE", rate.to_string());
        command.env("FETCHWISE_TEST_SEED", (self.number + 1).to_string());
        command.envs(
            self.settings.iter().map(|(name, value)| (format!("FETCHWISE_TEST_{name}"), value)),
        );
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(beside(&self.dir, "log"))
            .unwrap();
        // Its standard input ends with this process, and it ends with its input.
        command.stdin(Stdio::piped()).stdout(log.try_clone().unwrap()).stderr(log);
        self.process = Some(command.spawn().unwrap());
    }

    /// Connects to these brokers from now on.
    pub fn connect_to(&mut self, urls: Vec<String>) {
        self.urls = urls;
    }

    /// Sets a variable for its future processes.
    pub fn set(&mut self, name: &'static str, value: impl ToString) {
        self.settings.retain(|(known, _)| *known != name);
        self.settings.push((name, value.to_string()));
    }

    /// Unsets a variable.
    pub fn unset(&mut self, name: &str) {
        self.settings.retain(|(known, _)| *known != name);
    }

    pub fn is_up(&self) -> bool {
        self.process.is_some()
    }

    /// Waits until its process has ended by itself.
    pub fn ended(&mut self, why: &str) {
        let begun = Instant::now();
        let ended = loop {
            if let Some(ended) = self.process.as_mut().unwrap().try_wait().unwrap() {
                break ended;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end ({why}): {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        };
        assert_eq!(ended.signal(), Some(SIGABRT), "it was not ended by {why}: {}", self.log());
        self.process = None;
    }

    /// Sends SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Sends a signal such as SIGSTOP or SIGCONT.
    pub fn signal(&self, signal: &str) {
        let id = self.process.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// Returns its status, once it has reported one.
    pub fn said(&self) -> Option<NodeReport> {
        serde_json::from_slice(&fs::read(beside(&self.dir, "said")).ok()?).ok()
    }

    pub fn tell(&mut self, told: &NodeCommand) {
        let stdin = self.process.as_mut().unwrap().stdin.as_mut().unwrap();
        writeln!(stdin, "{}", serde_json::to_string(told).unwrap()).unwrap();
    }

    pub fn log(&self) -> String {
        let text = fs::read_to_string(beside(&self.dir, "log")).unwrap_or_default();
        text.chars().rev().take(3000).collect::<String>().chars().rev().collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Nodes {
    pub fn new(n: usize, urls: &[String]) -> Self {
        let mut nodes = Self { folder: tempfile::tempdir().unwrap(), all: Vec::new(), checks: 0 };
        for _ in 0..n {
            nodes.add(urls);
        }
        nodes
    }

    /// Adds a node that is not started yet.
    pub fn add(&mut self, urls: &[String]) -> usize {
        let number = self.all.len();
        let dir = self.folder.path().join(format!("node{number}"));
        fs::create_dir_all(&dir).unwrap();
        self.all.push(Node {
            dir,
            urls: urls.to_vec(),
            number,
            settings: Vec::new(),
            process: None,
        });
        number
    }

    pub fn start_all(&mut self, count: usize, rate: usize) {
        self.all
            .iter_mut()
            .filter(|node| node.process.is_none())
            .for_each(|node| node.start(count, rate));
    }

    /// Waits until every running node has published something.
    pub fn begun(&self) {
        let begun = Instant::now();
        let has = |node: &Node| node.said().is_some_and(|said| said.status.published > 0);
        while !self.all.iter().filter(|node| node.is_up()).all(has) {
            if begun.elapsed() > PATIENCE {
                let refused = |node: &Node| {
                    fs::read_to_string(beside(&node.dir, REFUSED)).unwrap_or_default()
                };
                let how =
                    |node: &Node| format!("{:#?}\n{}\n{}", node.said(), refused(node), node.log());
                let all: Vec<String> =
                    self.all.iter().filter(|node| node.is_up()).map(how).collect();
                panic!("a node does not start: {}", all.join("\n----\n"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until every running node has recorded everything and knows what all have.
    pub fn settle(&self) {
        let all: Vec<usize> = (0..self.all.len()).collect();
        self.settle_among(&all);
    }

    /// Works like [`settle`](Self::settle), for these nodes only.
    pub fn settle_among(&self, who: &[usize]) {
        let begun = Instant::now();
        let mut calm = 0;
        while calm < 3 {
            std::thread::sleep(Duration::from_millis(200));
            let up: Vec<&Node> =
                who.iter().map(|n| &self.all[*n]).filter(|node| node.is_up()).collect();
            let said: Vec<Option<NodeReport>> = up.iter().map(|node| node.said()).collect();
            let tops: Vec<(&str, u64)> = said
                .iter()
                .flatten()
                .map(|said| (said.status.node.as_str(), said.status.position))
                .collect();
            let knows = |said: &NodeReport| {
                let of = |node_id: &str| said.status.peers.iter().find(|peer| peer.node == node_id);
                said.is_done
                    && said.status.converged
                    && tops.iter().all(|(node_id, top)| {
                        *node_id == said.status.node
                            || of(node_id).is_some_and(|peer| {
                                peer.position >= *top && peer.missing_records == 0
                            })
                    })
            };
            let is_calm = said.iter().all(|said| said.as_ref().is_some_and(knows));
            calm = if is_calm { calm + 1 } else { 0 };
            if begun.elapsed() > PATIENCE {
                let logs: Vec<String> = up.iter().map(|node| node.log()).collect();
                panic!("not converged: {said:#?}\n{}", logs.join("\n----\n"));
            }
        }
    }

    /// Waits until a condition holds for the status of these nodes.
    pub fn wait_until(&self, who: &[usize], what: &str, holds: impl Fn(&NodeReport) -> bool) {
        found_within(PATIENCE, what, || {
            let said: Vec<_> = who.iter().map(|n| self.all[*n].said()).collect();
            let is_met = said.iter().all(|said| said.as_ref().is_some_and(&holds));
            if is_met { Ok(()) } else { Err(format!("{said:#?}")) }
        });
    }

    /// Checks that each node has the evidence of all logs in memory, to 1e-9.
    pub fn check(&mut self) {
        self.check_with(&[]);
    }

    /// Works like [`check`](Self::check), with more logs.
    pub fn check_with(&mut self, more: &[PathBuf]) {
        let mut oracle = self.oracle();
        oracle.logs.extend_from_slice(more);
        self.check_by(&oracle);
    }

    /// Returns the oracle of all logs.
    pub fn oracle(&self) -> Oracle {
        Oracle { logs: self.all.iter().map(|node| node.dir.clone()).collect(), ..Oracle::default() }
    }

    /// Checks that each node has the oracle's evidence in memory.
    pub fn check_by(&mut self, oracle: &Oracle) {
        let all: Vec<usize> = (0..self.all.len()).collect();
        self.check_of(&all, oracle);
    }

    /// Checks that these nodes have the oracle's evidence in memory.
    pub fn check_of(&mut self, who: &[usize], oracle: &Oracle) {
        self.compare(who, oracle).unwrap();
    }

    /// Returns how the evidence of these nodes in memory differs from the oracle's.
    pub fn compare(&mut self, who: &[usize], oracle: &Oracle) -> Result<(), String> {
        self.checks += 1;
        let number = self.checks;
        let who: Vec<usize> = who.iter().copied().filter(|n| self.all[*n].is_up()).collect();
        for n in &who {
            self.all[*n].tell(&NodeCommand::Compare { number, oracle: oracle.clone() });
        }
        for n in who {
            let node = &self.all[n];
            let begun = Instant::now();
            let answer = loop {
                let answer = fs::read_to_string(beside(&node.dir, "answer")).unwrap_or_default();
                if let Some(("\n", rest)) =
                    answer.strip_prefix(&number.to_string()).map(|rest| rest.split_at(1))
                {
                    break rest.to_owned();
                }
                assert!(begun.elapsed() < PATIENCE, "no response: {}", node.log());
                std::thread::sleep(Duration::from_millis(20));
            };
            let words: Vec<&str> = answer.split(' ').collect();
            let (far, keys): (f64, usize) = (words[0].parse().unwrap(), words[1].parse().unwrap());
            assert!(keys > 100, "nothing to compare: {keys} keys");
            if words[2] != "clean" {
                return Err(format!("node {} has evidence of a forgotten domain", node.number));
            }
            if far > 1e-9 {
                return Err(format!("node {} is {far} off, of {keys} keys", node.number));
            }
        }
        Ok(())
    }

    /// Checks the final state, also for a node that joins late.
    pub fn exact_for_late_comers_too(&mut self, urls: &[String]) {
        self.settle();
        self.check();
        let late = self.add(urls);
        self.all[late].start(0, 1);
        self.settle();
        self.check();
    }

    /// Returns the reason if a process was refused.
    pub fn was_refused(&self, number: usize) -> Option<String> {
        fs::read_to_string(beside(&self.all[number].dir, REFUSED)).ok()
    }
}
