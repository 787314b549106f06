//! A benchmark of joining a fleet that knows much. Printed for `docs/reports/fleet.md`.
//!
//! `FETCHWISE_SYSTEM_TESTS=1 cargo test --release -p fetchwise-fleet --all-features --test nats
//! bench_join:: -- --ignored --nocapture`

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fetchwise::attempt::Attempt;
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::heuristic::url::ContentKind;
use fetchwise::journal::{Journal, JournalOptions};
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;
use fetchwise_fleet::model::evidence_snapshot::{SnapshotHead, SnapshotNote, pack};
use fetchwise_fleet::model::position_set::Intervals;
use fetchwise_fleet::transport::Transport;
use fetchwise_fleet::transport::nats::{Nats, NatsSettings};
use fetchwise_fleet::{Fleet, NodeId, Options};
use url::Url;

use crate::common::TestRng;
use crate::servers::{self, Servers};

const ORIGINS: u8 = 10;
const SITES: u64 = 1_000_000;

/// Returns the evidence of another node: each site with one attempt, some with more.
fn peer_evidence(node_id: u8, now: Timestamp) -> Selector {
    let selector = Selector::builder().without_pace().around(now).max_keys(None).build().unwrap();
    let mut rng = TestRng(u64::from(node_id));
    for site in 0..SITES {
        for page in 0..1 + u64::from(rng.below(4) == 0) {
            let url = Url::parse(&format!("https://site{site}.example/section{}/{page}", site % 7))
                .unwrap();
            let fetcher = ["direct_access", "playwright"][usize::from(rng.below(4) == 0)];
            let at = Timestamp::from_millis(now.as_millis() - rng.below(30 * 86_400_000) as i64);
            let attempt = Attempt::new(&url, fetcher, at).unwrap();
            selector.observe(&match rng.below(8) {
                0 => attempt.failed(ErrorKind::Timeout),
                _ => attempt.delivered(),
            });
        }
    }
    selector
}

fn bytes_in(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| if path.is_dir() { bytes_in(&path) } else { path.metadata().unwrap().len() })
        .sum()
}

/// Returns the peak memory of this process in MiB, since `from_here` was written to Linux's
/// counter.
fn peak_mib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or_default() / 1024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes, in a release build: prints what it measures"]
async fn ten_nodes_of_a_million_sites_each() {
    if !servers::is_available() {
        return;
    }
    let now = Timestamp::now();
    let servers = Servers::start(3);
    let nats = Nats::connect(NatsSettings::new(servers.urls(), "start")).await.unwrap();
    nats.ready(Duration::from_secs(30)).await.unwrap();
    let bounds = nats.bounds().await.unwrap();
    let (mut keys, mut put) = (0, 0);
    for number in 1..=ORIGINS {
        let selector = peer_evidence(number, now);
        keys = selector.key_count();
        let position = SITES * 2;
        let covers = [(1, Intervals::of(1, position))].into();
        let (incarnation, seq) = (bounds.incarnation, bounds.last);
        let half_life_ms = selector.learned().half_life_ms();
        let head = SnapshotHead {
            epoch: 1,
            base: 0,
            covers,
            incarnation,
            seq,
            half_life_ms,
            ..SnapshotHead::default()
        };
        let bytes = pack(&head, &selector.learned().evidence_snapshot(now, 0.01)).unwrap();
        let note = serde_json::to_string(&SnapshotNote { epoch: 1, position }).unwrap();
        let (begun, len) = (Instant::now(), bytes.len());
        nats.blobs()
            .put(&NodeId::from_bytes([number; 16]).to_string(), &note, bytes)
            .await
            .unwrap();
        println!(
            "a snapshot of {keys} keys is {} MiB, stored in {:.1} s",
            len >> 20,
            begun.elapsed().as_secs_f64()
        );
        put += len;
    }
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
    let selector =
        Arc::new(Selector::builder().without_pace().around(now).max_keys(None).build().unwrap());
    // Building the snapshots does not count.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let before = peak_mib();
    let mut options = Options::default();
    options.pool = "start".into();
    let (begun, journal) = (Instant::now(), Arc::new(journal));
    let fleet = Fleet::join(Arc::clone(&journal), Arc::clone(&selector), Arc::new(nats), options)
        .await
        .unwrap();
    while fleet.status().syncing || fleet.status().peers.len() < usize::from(ORIGINS) {
        assert!(begun.elapsed() < Duration::from_secs(600), "{:#?}", fleet.status());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!(
        "{ORIGINS} shares, {} MiB: begun after {:.1} s; {} keys; at most {} MiB of memory more; {} MiB in the data directory",
        put >> 20,
        begun.elapsed().as_secs_f64(),
        selector.key_count(),
        peak_mib() - before,
        bytes_in(dir.path()) >> 20
    );
    assert!(selector.key_count() >= keys);
    let url = Url::parse("https://site77.example/section0/0").unwrap();
    let weights = ["direct_access", "playwright"].map(|fetcher| {
        let weights = selector.weights(("site", "site77.example"), ContentKind::Page, fetcher, now);
        weights.total
    });
    assert!(weights.iter().sum::<f64>() > 1.0, "all ten have been at {url}: {weights:?}");
    fleet.stop().await;
}
