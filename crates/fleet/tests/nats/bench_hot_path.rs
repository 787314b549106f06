//! A benchmark of `select` and `record` with and without a fleet, on the same node in the same run.
//! Printed for `docs/reports/fleet.md`.
//!
//! `FETCHWISE_SYSTEM_TESTS=1 cargo test --release -p fetchwise-fleet --all-features --test nats
//! bench_hot_path:: -- --ignored --nocapture`

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fetchwise::journal::{Durability, Journal, JournalOptions};
use fetchwise::selector::{SelectContext, Selector};
use fetchwise::time::{Clock, Timestamp};
use fetchwise_fleet::transport::nats::{Nats, NatsSettings};
use fetchwise_fleet::{Fleet, Options};
use url::Url;

use crate::common::{NOW, TestRng, attempt};
use crate::servers::{self, Servers};

const SITES: u64 = 20_000;
/// The attempts that both know beforehand, so that growth does not slow down the measurement.
const KNOWN: usize = 400_000;
/// Out, in, in, out: drift over time affects both.
const ROUNDS: [bool; 16] = [
    false, true, true, false, false, true, true, false, false, true, true, false, false, true,
    true, false,
];
/// The attempts in a round, and the time between two.
const ATTEMPTS: usize = 10_000;
const EVERY: Duration = Duration::from_micros(500);

/// A node that joins and leaves the fleet.
struct Node {
    journal: Arc<Journal>,
    selector: Arc<Selector>,
    urls: Vec<String>,
}

impl Node {
    fn new(dir: &Path, urls: Vec<String>) -> Self {
        let (journal, _) =
            Journal::open(dir, JournalOptions::default().durability(Durability::Os)).unwrap();
        let selector = Selector::builder()
            .without_pace()
            .around(Timestamp::now())
            .clock(Arc::new(Clock::System))
            .build()
            .unwrap();
        let (mut rng, now) = (TestRng(3), Timestamp::now().as_millis() - NOW.as_millis());
        for _ in 0..KNOWN {
            selector.observe(&attempt(&mut rng, SITES, now));
        }
        Self { journal: Arc::new(journal), selector: Arc::new(selector), urls }
    }

    async fn join(&self) -> Fleet {
        let nats = Nats::connect(NatsSettings::new(self.urls.clone(), "hot")).await.unwrap();
        nats.ready(Duration::from_secs(30)).await.unwrap();
        let mut options = Options::default();
        options.pool = "hot".into();
        let (journal, selector) = (Arc::clone(&self.journal), Arc::clone(&self.selector));
        Fleet::join(journal, selector, Arc::new(nats), options).await.unwrap()
    }

    fn record(&self, rng: &mut TestRng) {
        let attempt = attempt(rng, SITES, Timestamp::now().as_millis() - NOW.as_millis());
        self.selector.observe(&attempt);
        self.journal.append_attempt(&attempt).unwrap();
    }

    /// Runs a round of a crawl on a separate thread; collects the nanoseconds of each `select` and
    /// each record, and those of the pairs during which the system gave the core to no other
    /// thread.
    fn round(&self, rng: &mut TestRng, taken: &mut Times) {
        let (mut next, mut preemptions) = (Instant::now(), preemptions());
        for _ in 0..ATTEMPTS {
            let url =
                Url::parse(&format!("https://site{}.example/news/x", rng.below(SITES))).unwrap();
            let attempt = attempt(rng, SITES, Timestamp::now().as_millis() - NOW.as_millis());
            // Sleeping would measure how fast the system wakes a thread.
            while Instant::now() < next {
                std::hint::spin_loop();
            }
            next += EVERY;
            let begun = Instant::now();
            self.selector.select(&url, &SelectContext::first_attempt(Timestamp::now())).unwrap();
            let chosen = Instant::now();
            self.selector.observe(&attempt);
            self.journal.append_attempt(&attempt).unwrap();
            let times = [chosen - begun, chosen.elapsed()].map(|time| time.as_nanos() as u64);
            // Only after the times are taken: a pair from before the wait counts as interrupted,
            // too.
            let before = std::mem::replace(&mut preemptions, self::preemptions());
            for (what, time) in times.into_iter().enumerate() {
                taken.all[what].push(time);
                if before == preemptions {
                    taken.undisturbed[what].push(time);
                }
            }
        }
    }
}

/// The nanoseconds of `select` and of record.
#[derive(Default)]
struct Times {
    all: [Vec<u64>; 2],
    undisturbed: [Vec<u64>; 2],
}

/// Returns how often the system has taken the core from this thread.
fn preemptions() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let count = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    count.unwrap().trim().parse().unwrap()
}

fn at(sorted: &[u64], part: usize) -> u64 {
    sorted[(sorted.len() * part / 1000).min(sorted.len() - 1)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes, in a release build: prints what it measures"]
async fn select_and_record_in_a_fleet() {
    if !servers::is_available() {
        return;
    }
    let servers = Servers::start(3);
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [node, other] = dirs.each_ref().map(|dir| Arc::new(Node::new(dir.path(), servers.urls())));
    // Another node publishes all the time, whether it is read or not.
    let others_fleet = other.join().await;
    let feeder = tokio::spawn({
        let other = Arc::clone(&other);
        async move {
            let (mut rng, mut next) = (TestRng(2), tokio::time::interval(Duration::from_millis(1)));
            loop {
                next.tick().await;
                other.record(&mut rng);
            }
        }
    });
    // [without, with] the fleet, by [select, record].
    let mut taken: [Times; 2] = Default::default();
    let mut rng = TestRng(1);
    for is_in in ROUNDS {
        let fleet = if is_in { Some(node.join().await) } else { None };
        tokio::time::sleep(Duration::from_secs(3)).await;
        let (worker, mut own, mut of_round) = (Arc::clone(&node), rng.clone(), Times::default());
        (rng, of_round) = tokio::task::spawn_blocking(move || {
            worker.round(&mut own, &mut of_round);
            (own, of_round)
        })
        .await
        .unwrap();
        let all = &mut taken[usize::from(is_in)];
        for what in 0..2 {
            all.all[what].append(&mut of_round.all[what]);
            all.undisturbed[what].append(&mut of_round.undisturbed[what]);
        }
        if let Some(fleet) = fleet {
            assert!(fleet.status().counts.received > 0, "nothing came");
            fleet.stop().await;
        }
    }
    feeder.abort();
    others_fleet.stop().await;
    println!("| ns | without | in a fleet | ratio |\n|---|---|---|---|");
    let interrupted = |times: &Times| times.all[0].len() - times.undisturbed[0].len();
    let [without, with] = taken.each_ref().map(interrupted);
    println!("| interrupted pairs | {without} | {with} | {:.3} |", with as f64 / without as f64);
    for (what, name) in ["select", "record"].into_iter().enumerate() {
        let all = taken.each_ref().map(|times| times.all[what].clone());
        let undisturbed = taken.each_ref().map(|times| times.undisturbed[what].clone());
        for (which, mut sets) in [("", all), (", not interrupted", undisturbed)] {
            sets.iter_mut().for_each(|set| set.sort_unstable());
            for (part, percentile) in [(500, "p50"), (990, "p99"), (999, "p99.9"), (1000, "max")] {
                let [without, with] = sets.each_ref().map(|set| at(set, part));
                println!(
                    "| {name}{which} {percentile} | {without} | {with} | {:.3} |",
                    with as f64 / without as f64
                );
            }
        }
    }
}
