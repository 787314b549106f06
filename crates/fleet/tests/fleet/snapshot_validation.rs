//! Snapshot validation: snapshots of every honest log are accepted, whatever has happened to it,
//! and none that weighs more than its attempts can.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{NOW, Node, TestRng, assert_same, attempt, naive, options, selector, settle};
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::attempt::{Attempt, Tag};
use fetchwise::evidence::EvidenceSnapshot;
use fetchwise::heuristic::Heuristic;
use fetchwise::journal::replication::fold;
use fetchwise::journal::{Journal, JournalOptions, TombstoneTarget, maintenance};
use fetchwise::selector::Selector;
use fetchwise::time::{Clock, Timestamp};
use fetchwise_fleet::Scope;
use fetchwise_fleet::model::evidence_snapshot::{
    SnapshotHead, SnapshotNote, pack, unpack, validate,
};
use fetchwise_fleet::model::position_set::Intervals;
use fetchwise_fleet::transport::in_process::InProcessBroker;
use fetchwise_fleet::transport::{Blobs, Transport};
use proptest::prelude::*;

const DAY_MS: i64 = 86_400_000;

/// With the shortest half-life, evidence fades while attempts are still in the log one by one.
fn fading() -> Selector {
    Selector::builder().around(NOW).half_life_days(7.0).build().unwrap()
}

#[derive(Clone, Copy, Debug)]
enum Happens {
    Attempts(u8, u8),
    Days(u8),
    ForgetDomain(u8),
    ForgetLink(u8),
    Snapshot,
    Compact(u8),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        8 => (1u8..40, any::<u8>()).prop_map(|(count, what)| Happens::Attempts(count, what)),
        4 => (1u8..90).prop_map(Happens::Days),
        2 => (0u8..3).prop_map(Happens::ForgetDomain),
        2 => (0u8..6).prop_map(Happens::ForgetLink),
        2 => Just(Happens::Snapshot),
        2 => (1u8..200).prop_map(Happens::Compact),
    ]
}

fn link(n: u8) -> String {
    format!("https://site{}.example/{}", n % 3, n / 3)
}

/// Attempts of a crawl, some of them with a future time.
fn made(now: Timestamp, what: u8, n: u8) -> Attempt {
    let ahead = if what.is_multiple_of(5) { 600_000 } else { -i64::from(n) * 50 };
    let at = Timestamp::from_millis(now.as_millis() + ahead);
    let fetcher = ["direct_access", "playwright"][usize::from((what ^ n) & 1)];
    let mut attempt =
        Attempt::new(&url::Url::parse(&link(what.wrapping_add(n) % 6)).unwrap(), fetcher, at)
            .unwrap();
    attempt.duration_ms = if what == 7 { u64::MAX } else { u64::from(n) };
    attempt = match (what / 3).wrapping_add(n) % 5 {
        0 => attempt.failed(ErrorKind::BlockedCaptcha),
        1 => attempt.failed(ErrorKind::Timeout),
        2 => attempt.failed(ErrorKind::NotFound),
        _ => attempt.delivered(),
    };
    if attempt.success && fetcher == "playwright" && n.is_multiple_of(3) {
        // It found no more than the plain response before it, which gets the credit.
        attempt
            .heuristics
            .push(Tag::from(Heuristic::new("short_page", "direct_access".to_owned())));
    }
    attempt.heuristics.push(Tag::from(Heuristic::new("shop", format!("{}", what % 4))));
    attempt
}

fn share_of(
    dir: &Path,
    upto: u64,
    now: Timestamp,
    withheld: Option<u64>,
) -> (SnapshotHead, EvidenceSnapshot) {
    let latest = Timestamp::from_millis(now.as_millis() + 600_000);
    let is_out = |seq: u64| Some(seq) == withheld;
    let leaves_out: Option<&dyn Fn(u64) -> bool> =
        if withheld.is_some() { Some(&is_out) } else { None };
    let blank = fading();
    let half_life_ms = blank.learned().half_life_ms();
    let share = fold(dir, blank.learned(), upto, leaves_out, latest).unwrap().share;
    let head = SnapshotHead {
        epoch: 1,
        covers: [(1, Intervals::of(1, upto))].into(),
        half_life_ms,
        ..SnapshotHead::default()
    };
    // As other nodes read it.
    unpack(&pack(&head, &share).unwrap()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.div_ceil(4), ..ProptestConfig::default() })]

    /// A log may have forgotten, compacted, withheld or faded attempts and been rebuilt. Its
    /// snapshot is accepted, as a whole and without its sites.
    #[test]
    fn the_snapshot_of_an_honest_log_is_accepted(events in prop::collection::vec(happens(), 1..30), withheld in 1u64..200) {
        let dir = tempfile::tempdir().unwrap();
        let (mut now, mut last) = (NOW, 0);
        let open = || Journal::open(dir.path(), JournalOptions::default().linger(Duration::ZERO)).unwrap().0;
        for event in events {
            match event {
                Happens::Attempts(count, what) => {
                    let journal = open();
                    for n in 0..count {
                        journal.append_attempt(&made(now, what, n)).unwrap();
                    }
                    journal.close().unwrap();
                }
                Happens::Days(days) => now = Timestamp::from_millis(now.as_millis() + i64::from(days) * DAY_MS),
                Happens::ForgetDomain(n) => {
                    let _ = maintenance::forget(dir.path(), TombstoneTarget::Domain(format!("site{n}.example")), now);
                }
                Happens::ForgetLink(n) => drop(maintenance::forget(dir.path(), TombstoneTarget::Link(link(n)), now)),
                Happens::Snapshot => drop(maintenance::snapshot(dir.path(), &fading(), now, &mut |_, _| {})),
                Happens::Compact(days) => {
                    let mut options = maintenance::CompactOptions::default();
                    options.retain = Duration::from_secs(u64::from(days) * 86_400);
                    options.trust_clock = true;
                    let _ = maintenance::compact(dir.path(), &fading(), &options, now, &mut |_, _| {});
                }
            }
            let journal = open();
            last = journal.next_seq() - 1;
            journal.close().unwrap();
        }
        prop_assume!(last > 0);
        for withheld in [None, Some(withheld)] {
            let (head, share) = share_of(dir.path(), last, now, withheld);
            prop_assert_eq!(validate(&head, &share, fading().learned().half_life_ms(), Some(now)), Ok(()));
            prop_assert_eq!(validate(&head, &share.global_part(), fading().learned().half_life_ms(), Some(now)), Ok(()));
            prop_assert_eq!(validate(&head, &share, fading().learned().half_life_ms(), None), Ok(()));
        }
    }
}

#[test]
fn impossible_evidence_is_rejected() {
    let (clock, half_life_ms) = (Arc::new(Clock::fixed(NOW)), fading().learned().half_life_ms());
    let told = |attempts: i64, ahead_ms: i64, positions: u64| {
        let liar = Selector::builder()
            .around(NOW)
            .clock(Arc::clone(&clock))
            .half_life_days(7.0)
            .build()
            .unwrap();
        let mut rng = TestRng(3);
        (0..attempts).for_each(|n| liar.observe(&attempt(&mut rng, 4, ahead_ms + n)));
        let covers = [(1, Intervals::of(1, positions))].into();
        let head = SnapshotHead { epoch: 1, covers, half_life_ms, ..SnapshotHead::default() };
        validate(&head, &liar.learned().evidence_snapshot(NOW, 0.0), half_life_ms, Some(NOW))
    };
    assert_eq!(told(300, -1000, 300), Ok(()));
    assert_eq!(told(300, 1_800_000, 300), Ok(()), "its clock is half an hour ahead");
    assert_eq!(told(300, -1000, 200), Err("more weight than its attempts allow"));
    assert_eq!(
        told(300, 40 * DAY_MS, 300),
        Err("more weight than its attempts allow"),
        "of future days"
    );
    let head = SnapshotHead { half_life_ms, ..SnapshotHead::default() };
    assert_eq!(
        validate(&head, &EvidenceSnapshot::default(), half_life_ms, None),
        Err("invalid coverage")
    );
    assert_eq!(validate(&head, &EvidenceSnapshot::default(), 1, None), Err("different half-life"));
}

/// Stores a snapshot that claims ten times the attempts of its positions.
async fn lie(node: &Node, clock: &Arc<Clock>, positions: u64) {
    let (liar, mut rng) = (selector(clock), TestRng(9));
    (0..positions as i64 * 10).for_each(|n| liar.observe(&attempt(&mut rng, 2, n - 100_000)));
    let share = liar.learned().evidence_snapshot(NOW, 0.0);
    let (covers, half_life_ms) =
        ([(1, Intervals::of(1, positions))].into(), share.half_life_ms().unwrap());
    let head = SnapshotHead { epoch: 1, covers, half_life_ms, ..SnapshotHead::default() };
    let note = serde_json::to_string(&SnapshotNote { epoch: 1, position: positions }).unwrap();
    let hands = node.broker.node(node.name());
    let blobs: &dyn Blobs = Transport::blobs(&hands);
    blobs.put(&node.name().to_string(), &note, pack(&head, &share).unwrap()).await.unwrap();
}

fn refused(of: &Node, liar: &Node) -> Option<String> {
    let (status, name) = (of.up().fleet.status(), liar.name().to_string());
    status.peers.into_iter().find(|peer| peer.node == name).and_then(|peer| peer.rejected)
}

/// A new node refuses the snapshot, names its node and the reason, counts it once, and learns that
/// node's published attempts one by one.
#[tokio::test(start_paused = true)]
async fn an_overweight_snapshot_is_rejected_and_published_messages_are_learned() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(Clock::fixed(NOW)));
    let broker = InProcessBroker::new(Arc::clone(&clock), 3);
    let mut nodes: Vec<Node> =
        (0..2).map(|n| Node::new(dir.path().join(n.to_string()), &broker, &clock)).collect();
    let mut settings = options();
    // No later snapshot replaces the false one.
    settings.timing.snapshot_after = u64::MAX;
    nodes[0].start(settings).await.unwrap();
    let mut rng = TestRng(4);
    (0..80).for_each(|n| nodes[0].record(&attempt(&mut rng, 10, n - 1000)));
    settle(&nodes[..1]).await;
    lie(&nodes[0], &clock, 80).await;
    nodes[1].start(options()).await.unwrap();
    settle(&nodes[1..]).await;
    let what = "evidence snapshot: more weight than its attempts allow";
    assert_eq!(
        refused(&nodes[1], &nodes[0]).as_deref(),
        Some(what),
        "later messages do not clear it"
    );
    assert_eq!(
        (
            nodes[1].up().fleet.status().counts.rejected,
            nodes[1].up().fleet.status().counts.snapshots_applied
        ),
        (1, 0)
    );
    let expected = naive(&[&nodes[0].dir], &clock, |_, _| true);
    assert_same("the newcomer", &nodes[1].evidence(), &expected);
}

/// The same where a node takes over the sites of one that is gone.
#[tokio::test(start_paused = true)]
async fn an_overweight_snapshot_is_not_used_for_site_handover() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(Clock::fixed(NOW)));
    let broker = InProcessBroker::new(Arc::clone(&clock), 4);
    let mut nodes: Vec<Node> =
        (0..2).map(|n| Node::new(dir.path().join(n.to_string()), &broker, &clock)).collect();
    let own = || {
        let mut own = options();
        own.scope = Scope::Own;
        own
    };
    nodes[0].start(own()).await.unwrap();
    let mut rng = TestRng(4);
    (0..80).for_each(|n| nodes[0].record(&attempt(&mut rng, 10, n - 1000)));
    settle(&nodes[..1]).await;
    nodes[0].crash().await;
    lie(&nodes[0], &clock, 80).await;
    nodes[1].start(own()).await.unwrap();
    settle(&nodes[1..]).await;
    assert_eq!(
        refused(&nodes[1], &nodes[0]).as_deref(),
        Some("evidence snapshot: more weight than its attempts allow")
    );
    assert!(!nodes[1].evidence().has_domain("site0.example"), "none of its sites was applied");
}
