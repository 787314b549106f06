//! Nodes as processes of their own, which can be killed like any other, and the naive fold that each of them is held against.
//!
//! A node is this test program again: it runs the ignored test `nodes::process`, told by its environment what to do. It records
//! invented attempts at a fixed rate, and says in a file how it is. Invariant: what it compares is what it has in memory.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fetchwise::journal::{self, Durability, Entry, Journal, JournalOptions};
use fetchwise::time::{Clock, Timestamp};
use fetchwise_fleet::nats::{Nats, NatsSettings};
use fetchwise_fleet::transport::Transport;
use fetchwise_fleet::{Fleet, Options, Status, Timing};
use serde::{Deserialize, Serialize};

use crate::common::{Luck, NOW, attempt, naive, selector};

/// Everything quiet takes so long at most.
const QUIET: Duration = Duration::from_secs(120);
const SITES: u64 = 200;
/// What an answer is named when a node was refused.
const REFUSED: &str = "refused";

/// How a node is, as it says.
#[derive(Debug, Serialize, Deserialize)]
pub struct Said {
    /// It has recorded all that it was to.
    pub is_done: bool,
    pub status: Status,
}

/// A node's directory, and its process while it has one.
pub struct Node {
    pub dir: PathBuf,
    urls: Vec<String>,
    number: usize,
    process: Option<Child>,
}

/// The nodes of one test.
pub struct Nodes {
    folder: tempfile::TempDir,
    pub all: Vec<Node>,
    checks: usize,
}

fn beside(dir: &Path, what: &str) -> PathBuf {
    dir.with_extension(what)
}

impl Node {
    /// Starts it: it records until its log has `count` attempts, `rate` a second.
    pub fn start(&mut self, count: usize, rate: usize) {
        assert!(self.process.is_none());
        let _ = fs::remove_file(beside(&self.dir, "said"));
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["nodes::process", "--exact", "--ignored", "--nocapture", "--test-threads", "1"]);
        command.env("FETCHWISE_TEST_NODE", &self.dir).env("FETCHWISE_TEST_URLS", self.urls.join(","));
        command.env("FETCHWISE_TEST_COUNT", count.to_string()).env("FETCHWISE_TEST_RATE", rate.to_string());
        command.env("FETCHWISE_TEST_SEED", (self.number + 1).to_string());
        let log = fs::OpenOptions::new().create(true).append(true).open(beside(&self.dir, "log")).unwrap();
        // Its input ends with this process, and it with its input.
        command.stdin(Stdio::piped()).stdout(log.try_clone().unwrap()).stderr(log);
        self.process = Some(command.spawn().unwrap());
    }

    /// Connects to these from now on.
    pub fn connect_to(&mut self, urls: Vec<String>) {
        self.urls = urls;
    }

    pub fn is_up(&self) -> bool {
        self.process.is_some()
    }

    /// kill -9.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// SIGSTOP and SIGCONT.
    pub fn signal(&self, signal: &str) {
        let id = self.process.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// How it is, once it has said so.
    pub fn said(&self) -> Option<Said> {
        serde_json::from_slice(&fs::read(beside(&self.dir, "said")).ok()?).ok()
    }

    fn ask(&mut self, line: &str) {
        let stdin = self.process.as_mut().unwrap().stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").unwrap();
    }

    fn log(&self) -> String {
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

    /// One more, which is not started yet.
    pub fn add(&mut self, urls: &[String]) -> usize {
        let number = self.all.len();
        let dir = self.folder.path().join(format!("node{number}"));
        fs::create_dir_all(&dir).unwrap();
        self.all.push(Node { dir, urls: urls.to_vec(), number, process: None });
        number
    }

    pub fn start_all(&mut self, count: usize, rate: usize) {
        self.all.iter_mut().filter(|node| node.process.is_none()).for_each(|node| node.start(count, rate));
    }

    /// Waits until everybody who is up has published something.
    pub fn begun(&self) {
        let begun = Instant::now();
        let has = |node: &Node| node.said().is_some_and(|said| said.status.published > 0);
        while !self.all.iter().filter(|node| node.is_up()).all(has) {
            assert!(begun.elapsed() < QUIET, "a node does not begin");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until everybody who is up has recorded all, and knows what all have.
    pub fn settle(&self) {
        let begun = Instant::now();
        let mut calm = 0;
        while calm < 3 {
            std::thread::sleep(Duration::from_millis(200));
            let up: Vec<&Node> = self.all.iter().filter(|node| node.is_up()).collect();
            let said: Vec<Option<Said>> = up.iter().map(|node| node.said()).collect();
            let tops: Vec<(&str, u64)> =
                said.iter().flatten().map(|said| (said.status.origin.as_str(), said.status.position)).collect();
            let knows = |said: &Said| {
                let of = |origin: &str| said.status.peers.iter().find(|peer| peer.origin == origin);
                said.is_done
                    && said.status.quiet
                    && tops.iter().all(|(origin, top)| {
                        *origin == said.status.origin
                            || of(origin).is_some_and(|peer| peer.position >= *top && peer.holes == 0)
                    })
            };
            let is_calm = said.iter().all(|said| said.as_ref().is_some_and(knows));
            calm = if is_calm { calm + 1 } else { 0 };
            if begun.elapsed() > QUIET {
                let logs: Vec<String> = up.iter().map(|node| node.log()).collect();
                panic!("not quiet: {said:#?}\n{}", logs.join("\n----\n"));
            }
        }
    }

    /// What each node has in memory is what all logs together say, to 1e-9.
    pub fn check(&mut self) {
        self.check_with(&[]);
    }

    /// The same, with more logs.
    pub fn check_with(&mut self, more: &[PathBuf]) {
        self.checks += 1;
        let number = self.checks.to_string();
        let dirs = self.all.iter().map(|node| &node.dir).chain(more);
        let dirs: Vec<String> = dirs.map(|dir| dir.display().to_string()).collect();
        let line = format!("{number}\t{}", dirs.join("\t"));
        self.all.iter_mut().filter(|node| node.is_up()).for_each(|node| node.ask(&line));
        for node in self.all.iter().filter(|node| node.is_up()) {
            let begun = Instant::now();
            let answer = loop {
                let answer = fs::read_to_string(beside(&node.dir, "answer")).unwrap_or_default();
                if let Some(("\n", rest)) = answer.strip_prefix(&number).map(|rest| rest.split_at(1)) {
                    break rest.to_owned();
                }
                assert!(begun.elapsed() < QUIET, "no answer: {}", node.log());
                std::thread::sleep(Duration::from_millis(20));
            };
            let (far, keys) = answer.split_once(' ').unwrap();
            let far: f64 = far.parse().unwrap();
            assert!(far <= 1e-9, "node {} is {far} off, of {keys} keys", node.number);
            assert!(keys.parse::<usize>().unwrap() > 100, "the comparison has something to compare: {keys}");
        }
    }

    /// Everything is as it should be in the end, for a late comer, too.
    pub fn exact_for_late_comers_too(&mut self, urls: &[String]) {
        self.settle();
        self.check();
        let late = self.add(urls);
        self.all[late].start(0, 1);
        self.settle();
        self.check();
    }

    /// Whether a process was turned away, and what it said.
    pub fn was_refused(&self, number: usize) -> Option<String> {
        fs::read_to_string(beside(&self.all[number].dir, REFUSED)).ok()
    }
}

/// As in a crawl, some five times as fast.
fn timing() -> Timing {
    let mut timing = Timing::default();
    timing.batch = Duration::from_millis(200);
    timing.presence = Duration::from_secs(1);
    timing.lease = Duration::from_secs(4);
    timing.hole = Duration::from_millis(800);
    timing.want_max = Duration::from_secs(3);
    timing.look = Duration::from_millis(300);
    timing.share_after = 1500;
    timing
}

fn put(path: &Path, text: &[u8]) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(&new, path).unwrap();
}

#[test]
#[ignore = "a node that other tests start as a process of its own"]
fn process() {
    let Some(dir) = std::env::var_os("FETCHWISE_TEST_NODE").map(PathBuf::from) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(live(dir));
}

fn told<T: std::str::FromStr<Err: std::fmt::Debug>>(name: &str) -> T {
    std::env::var(name).unwrap().parse().unwrap()
}

async fn live(dir: PathBuf) {
    let (count, rate, seed): (usize, usize, u64) =
        (told("FETCHWISE_TEST_COUNT"), told("FETCHWISE_TEST_RATE"), told("FETCHWISE_TEST_SEED"));
    let urls: String = told("FETCHWISE_TEST_URLS");
    let clock = Arc::new(Clock::System);
    let (journal, _) = Journal::open(&dir, JournalOptions::default().durability(Durability::Os)).unwrap();
    let selector = Arc::new(selector(&clock));
    journal::load(&dir, &selector, Timestamp::now()).unwrap();
    let mut recorded = 0;
    journal::replay(&dir, |_, entry| recorded += usize::from(matches!(entry, Entry::Attempt(_)))).unwrap();
    let journal = Arc::new(journal);
    let nats = Nats::connect(NatsSettings::new(urls.split(','), "suite")).await.unwrap();
    // Whoever cannot wait goes on alone.
    let _ = nats.ready(Duration::from_secs(5)).await;
    let transport: Arc<dyn Transport> = Arc::new(nats);
    let mut options = Options::default();
    options.pool = "suite".into();
    options.timing = timing();
    let fleet = match Fleet::join(Arc::clone(&journal), Arc::clone(&selector), transport, options).await {
        Ok(fleet) => fleet,
        Err(error) => return put(&beside(&dir, REFUSED), error.to_string().as_bytes()),
    };
    let (asks, mut asked) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let _ = asks.send(line);
        }
        // Whoever started it has gone.
        std::process::exit(0);
    });
    // Another life, other luck.
    let mut luck = Luck(seed.wrapping_mul(1 << 32).wrapping_add(recorded as u64));
    let mut next = tokio::time::interval(Duration::from_secs(1) / u32::try_from(rate).unwrap());
    let mut says = tokio::time::interval(Duration::from_millis(100));
    loop {
        tokio::select! {
            _ = next.tick(), if recorded < count => {
                let attempt = attempt(&mut luck, SITES, Timestamp::now().as_millis() - NOW.as_millis());
                selector.observe(&attempt);
                journal.append_attempt(&attempt).unwrap();
                recorded += 1;
            }
            _ = says.tick() => {
                let said = Said { is_done: recorded >= count, status: fleet.status() };
                put(&beside(&dir, "said"), &serde_json::to_vec(&said).unwrap());
            }
            Some(line) = asked.recv() => {
                let mut words = line.split('\t');
                let number = words.next().unwrap().to_owned();
                let dirs: Vec<&Path> = words.map(Path::new).collect();
                // A log and what was restored of it have their beginning in common.
                let seen = RefCell::new(HashSet::new());
                let expected = naive(&dirs, &clock, |_, attempt| seen.borrow_mut().insert(attempt.id));
                let found = selector.share(NOW, 0.0);
                let far = found.distance(&expected).0;
                put(&beside(&dir, "answer"), format!("{number}\n{far} {}", expected.keys()).as_bytes());
            }
        }
    }
}
