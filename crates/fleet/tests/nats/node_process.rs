//! The process of a node: it records synthetic attempts at a fixed rate and reports its status in a
//! file.
//!
//! It is this test program again, which runs the ignored test `node_process::node` with settings
//! from its environment.
//!
//! Invariants: a comparison uses the evidence in memory.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use fetchwise::attempt::Attempt;
use fetchwise::evidence::EvidenceSnapshot;
use fetchwise::journal::{self, Durability, Entry, Journal, JournalOptions};
use fetchwise::selector::Selector;
use fetchwise::time::{Clock, Timestamp};
use fetchwise_fleet::model::rendezvous::owner;
use fetchwise_fleet::transport::Transport;
use fetchwise_fleet::transport::nats::{Nats, NatsSettings};
use fetchwise_fleet::{Fleet, NodeId, Options, Scope, Timing, failpoints};

use crate::common::{NOW, TestRng, attempt, naive, selector, with_fact};
use crate::node_control::{Handovers, NodeCommand, NodeReport, Oracle, REFUSED, beside};
use crate::version_skew::NextRelease;

const SITES: u64 = 200;

/// Returns the intervals of nodes at a real broker: like in a crawl, about five times as fast.
pub(crate) fn timing() -> Timing {
    let mut timing = Timing::default();
    if setting::<String>("REAL").is_some() {
        // The interval of status reports, which is what is measured.
        timing.check = Duration::from_millis(100);
        return timing;
    }
    timing.batch = Duration::from_millis(200);
    timing.heartbeat = Duration::from_secs(1);
    timing.lease = Duration::from_secs(4);
    timing.gap = Duration::from_millis(800);
    timing.max_request_interval = Duration::from_secs(3);
    timing.check = Duration::from_millis(300);
    timing.tables = Duration::from_secs(1);
    timing.snapshot_after = setting("SHARE_AFTER").unwrap_or(1500);
    timing.store_snapshot_after = setting("KEEP_AFTER").unwrap_or(timing.store_snapshot_after);
    timing
}

fn setting<T: std::str::FromStr<Err: std::fmt::Debug>>(name: &str) -> Option<T> {
    std::env::var(format!("FETCHWISE_TEST_{name}")).ok().map(|value| value.parse().unwrap())
}

fn put(path: &Path, text: &[u8]) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(&new, path).unwrap();
}

#[test]
#[ignore = "a node that other tests start as a separate process"]
fn node() {
    let Some(dir) = setting::<PathBuf>("NODE") else { return };
    if setting::<String>("POINT").is_some() {
        assert!(failpoints::listen(|place| {
            // As with SIGKILL: nothing is written, closed or sent any more.
            if std::env::var("FETCHWISE_TEST_POINT").is_ok_and(|point| point == place) {
                std::process::abort();
            }
        }));
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(live(dir));
}

/// Returns the node's clock, and its offset.
fn clock() -> (Arc<Clock>, Arc<AtomicI64>) {
    let off = Arc::new(AtomicI64::new(0));
    if setting::<String>("JUMPS").is_none() {
        return (Arc::new(Clock::System), off);
    }
    let clock = Arc::new(Clock::fixed(Timestamp::now()));
    let (goes, by) = (Arc::clone(&clock), Arc::clone(&off));
    std::thread::spawn(move || {
        loop {
            goes.set(Timestamp::from_millis(
                Timestamp::now().as_millis() + by.load(Ordering::Relaxed),
            ));
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    (clock, off)
}

async fn join(dir: &Path, journal: &Arc<Journal>, selector: &Arc<Selector>) -> Option<Fleet> {
    let urls: String = setting("URLS").unwrap();
    let nats = Nats::connect(NatsSettings::new(urls.split(','), "suite")).await.unwrap();
    // A node that cannot wait goes on alone.
    let _ = nats.ready(Duration::from_secs(5)).await;
    let transport: Arc<dyn Transport> = if setting::<String>("NEWER").is_some() {
        Arc::new(NextRelease(nats))
    } else {
        Arc::new(nats)
    };
    let mut options = Options::default();
    options.pool = "suite".into();
    options.timing = timing();
    if setting::<String>("OWN").is_some() {
        options.scope = Scope::Own;
        options.timing.global_min_interval = Duration::from_millis(500);
        // Longer than a killed process takes to be back.
        options.timing.owner = Duration::from_secs(30);
    }
    match Fleet::join(Arc::clone(journal), Arc::clone(selector), transport, options).await {
        Ok(fleet) => Some(fleet),
        Err(error) => {
            put(&beside(dir, REFUSED), error.to_string().as_bytes());
            None
        }
    }
}

/// The times at which positions of peers became known here.
struct Samples {
    file: fs::File,
    tops: std::collections::HashMap<String, u64>,
}

impl Samples {
    fn take(&mut self, fleet: &Fleet) {
        let now = Timestamp::now().as_millis();
        for peer in fleet.status().peers {
            let top = self.tops.entry(peer.node.clone()).or_default();
            if peer.position > *top && peer.missing_records == 0 {
                *top = peer.position;
                writeln!(self.file, "{now} {} {}", peer.node, peer.position).unwrap();
            }
        }
    }
}

fn draw(rng: &mut TestRng, clock: &Clock) -> Attempt {
    attempt(rng, SITES, clock.now().as_millis() - NOW.as_millis())
}

async fn live(dir: PathBuf) {
    let (mut count, rate, seed): (usize, u32, u64) =
        (setting("COUNT").unwrap(), setting("RATE").unwrap(), setting("SEED").unwrap());
    let (clock, off) = clock();
    let (journal, _) =
        Journal::open(&dir, JournalOptions::default().durability(Durability::Os)).unwrap();
    let selector = Arc::new(selector(&clock));
    journal::load(&dir, &selector, Timestamp::now()).unwrap();
    let (mut recorded, mut refused) = (0, 0);
    journal::replay(&dir, |_, entry| recorded += usize::from(matches!(entry, Entry::Attempt(_))))
        .unwrap();
    let journal = Arc::new(journal);
    let Some(fleet) = join(&dir, &journal, &selector).await else { return };
    let (tells, mut told) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let _ = tells.send(serde_json::from_str::<NodeCommand>(&line).unwrap());
        }
        // The parent process has gone.
        std::process::exit(0);
    });
    let mut samples = setting::<String>("SAMPLES").map(|_| {
        let file =
            fs::OpenOptions::new().create(true).append(true).open(beside(&dir, "samples")).unwrap();
        Samples { file, tops: Default::default() }
    });
    // Each process has a different seed.
    let mut rng = TestRng(seed.wrapping_mul(1 << 32).wrapping_add(recorded as u64));
    let is_real = setting::<String>("REAL").is_some();
    let mut next = tokio::time::interval(Duration::from_secs(1) / rate);
    let mut says = tokio::time::interval(Duration::from_millis(100));
    let mut takes = tokio::time::interval(Duration::from_millis(20));
    loop {
        tokio::select! {
            _ = next.tick(), if recorded < count => {
                let mut attempt = draw(&mut rng, &clock);
                // In a measured crawl one of 500 attempts is blocked, because each block results in
                // a separate message.
                while is_real && attempt.is_banned && rng.below(50) > 0 {
                    attempt = draw(&mut rng, &clock);
                }
                selector.observe(&attempt);
                // A crawler goes on without its log.
                match journal.append_attempt(&attempt) {
                    Ok(_) => recorded += 1,
                    Err(_) => refused += 1,
                }
            }
            _ = says.tick() => {
                let said = NodeReport { is_done: recorded >= count, recorded, refused, status: fleet.status() };
                put(&beside(&dir, "said"), &serde_json::to_vec(&said).unwrap());
            }
            _ = takes.tick(), if samples.is_some() => {
                if let Some(samples) = &mut samples {
                    samples.take(&fleet);
                }
            }
            Some(told) = told.recv() => match told {
                NodeCommand::Compare { number, oracle } => {
                    let answer = compare(&dir, &oracle, &selector, &clock);
                    put(&beside(&dir, "answer"), format!("{number}\n{answer}").as_bytes());
                }
                NodeCommand::Clock(ms) => off.store(ms, Ordering::Relaxed),
                NodeCommand::Until(more) => count = more,
            }
        }
    }
}

/// Returns the expected evidence of a node of scope `own`: all that it recorded, what it has
/// applied of the others, and global evidence of the rest.
fn of_divided(
    own: &Path,
    oracle: &Oracle,
    divided: &Handovers,
    clock: &Arc<Clock>,
) -> EvidenceSnapshot {
    let (all, name) = (selector(clock), divided.names[own].parse::<NodeId>().unwrap());
    for dir in &oracle.logs {
        let taken = divided.taken.iter().rfind(|taken| taken.by == own && taken.of == *dir);
        let among: Vec<NodeId> =
            taken.iter().flat_map(|taken| &taken.among).map(|name| name.parse().unwrap()).collect();
        let mut number = 0;
        journal::replay(dir, |_, entry| {
            let Entry::Attempt(attempt) = entry else { return };
            number += 1;
            let site = attempt.heuristic("site").unwrap();
            let is_taken = taken.is_some_and(|taken| number <= taken.attempts)
                && owner(site, &among) == Some(name);
            match dir == own || is_taken {
                true => all.observe(&attempt),
                false => with_fact(&attempt, &all, |fact| all.learned().receive_global_part(fact)),
            }
        })
        .unwrap();
    }
    all.learned().evidence_snapshot(NOW, 0.0)
}

/// Compares the evidence in memory with `oracle`: the distance, the number of keys, and whether
/// forgotten domains are gone.
fn compare(own: &Path, oracle: &Oracle, selector: &Selector, clock: &Arc<Clock>) -> String {
    let dirs: Vec<&Path> = oracle.logs.iter().map(PathBuf::as_path).collect();
    // A log and the one restored from it have their beginning in common.
    let seen = RefCell::new(HashSet::new());
    let expected = naive(&dirs, clock, |dir, attempt| {
        let at = attempt.attempted_at.as_millis();
        let is_late = dir != own && oracle.latest.is_some_and(|latest| at > latest);
        let is_forgotten = oracle.forgotten.as_ref().is_some_and(|(domain, until)| {
            at <= *until && attempt.heuristic("domain") == Some(domain)
        });
        !is_late && !is_forgotten && seen.borrow_mut().insert(attempt.id)
    });
    let expected =
        oracle.divided.as_ref().map_or(expected, |divided| of_divided(own, oracle, divided, clock));
    let found = selector.learned().evidence_snapshot(NOW, 0.0);
    let far = found.distance(&expected).0;
    let is_known = oracle
        .forgotten
        .as_ref()
        .is_some_and(|(domain, _)| found.has_domain(domain) && !expected.has_domain(domain));
    format!("{far} {} {}", expected.keys(), if is_known { "unclean" } else { "clean" })
}
