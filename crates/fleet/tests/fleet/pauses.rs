//! Pauses and trials over the in-process broker, with late and lost responses.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::NOW;
use crate::common::visits::{LONG, Own, PAUSE, Sharer, be_blocked, ends, goes, sharer, until, visit};
use fetchwise::Selector;
use fetchwise::time::Clock;
use fetchwise::visit::{Fetch, VisitOutcome};
use fetchwise_fleet::NodeId;
use fetchwise_fleet::transport::in_process::{Faults, InProcessBroker};

fn fleet_of(n: usize) -> (Arc<InProcessBroker>, Arc<Clock>, Vec<(NodeId, Sharer)>) {
    let clock = Arc::new(Clock::fixed(NOW));
    let broker = InProcessBroker::new(Arc::clone(&clock), 7);
    let node = |_| {
        let own = NodeId::random();
        (own, sharer(Arc::new(broker.node(own)), own, &clock, ""))
    };
    let nodes = (0..n).map(node).collect();
    (broker, clock, nodes)
}

async fn paused_by(nodes: &[(NodeId, Sharer)], by: usize, host: &str) {
    (0..3).for_each(|page| be_blocked(&nodes[by].1, host, page));
    until("a pause at all", || nodes.iter().all(|(_, node)| node.selector.host_pause(host).is_some())).await;
}

/// Returns the numbers of trials that were won, and of those that were made without the broker.
fn trials(nodes: &[(NodeId, Sharer)]) -> (u64, u64) {
    let counts = nodes.iter().map(|(_, node)| node.hosts.counts());
    counts.fold((0, 0), |(won, own), counts| (won + counts.trials, own + counts.own_trials))
}

/// Visits until the fetch is allowed. The clock stands still.
async fn goes_at_last(node: &Sharer, host: &str) -> (Own, Fetch<Arc<Selector>>) {
    let begun = Instant::now();
    loop {
        let mut trial = visit(node, host, 9);
        match goes(&mut trial).await {
            Ok(fetch) => return (trial, fetch),
            Err(end) => assert!(begun.elapsed() < LONG, "the fetch never starts: {end:?}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trial_seen_before_its_response_is_counted() {
    let (broker, clock, nodes) = fleet_of(2);
    paused_by(&nodes, 0, "e.org").await;
    // Watchers see the trial long before its claim gets a response.
    broker.set_faults(Faults { response_delay: Duration::from_secs(3), ..Faults::default() });
    clock.set(clock.now().saturating_add(PAUSE));
    let mut trial = visit(&nodes[1].1, "e.org", 9);
    let fetch = goes(&mut trial).await.unwrap();
    assert_eq!(trials(&nodes), (1, 0));
    ends(&mut trial, fetch, true).await;
    until("the end at all", || nodes.iter().all(|(_, node)| node.selector.host_pause("e.org").is_none())).await;
    assert_eq!(trials(&nodes), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_responses_cause_no_second_trial_and_hide_no_end() {
    let (broker, clock, nodes) = fleet_of(3);
    broker.set_faults(Faults { lose_response: 1.0, ..Faults::default() });
    for (host, is_fine) in [("fine.org", true), ("blocked.org", false)] {
        paused_by(&nodes, 0, host).await;
        clock.set(clock.now().saturating_add(PAUSE));
        let before = trials(&nodes).0;
        let (mut trial, fetch) = goes_at_last(&nodes[1].1, host).await;
        for other in [0, 2] {
            let end = goes(&mut visit(&nodes[other].1, host, 8)).await.err();
            assert!(matches!(end, Some(VisitOutcome::Paused { .. })), "{end:?}");
        }
        assert_eq!(trials(&nodes), (before + 1, 0));
        ends(&mut trial, fetch, is_fine).await;
        let expected = nodes[1].1.selector.host_pause(host);
        assert_eq!(expected.is_none(), is_fine);
        until("the end at all", || nodes.iter().all(|(_, node)| node.selector.host_pause(host) == expected)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_tries_more_than_100_hosts_is_accepted_for_all() {
    let (_, clock, nodes) = fleet_of(3);
    let hosts: Vec<String> = (0..150).map(|n| format!("h{n}.example")).collect();
    for (n, host) in hosts.iter().enumerate() {
        paused_by(&nodes, n % 2, host).await;
    }
    clock.set(clock.now().saturating_add(PAUSE));
    for host in &hosts {
        let mut trial = visit(&nodes[2].1, host, 9);
        let fetch = goes(&mut trial).await.unwrap();
        ends(&mut trial, fetch, false).await;
    }
    until("the new pauses at all", || {
        let of = |node: &Sharer, host: &String| node.selector.host_pause(host);
        hosts.iter().all(|host| nodes[..2].iter().all(|(_, node)| of(node, host) == of(&nodes[2].1, host)))
    })
    .await;
    let rejected: u64 = nodes.iter().map(|(_, node)| node.hosts.counts().rejected).sum();
    assert_eq!((trials(&nodes), rejected), ((150, 0), 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_cut_off_during_a_trial_learns_its_end() {
    let (broker, clock, nodes) = fleet_of(2);
    paused_by(&nodes, 0, "e.org").await;
    broker.cut(nodes[1].0, true);
    clock.set(clock.now().saturating_add(PAUSE));
    let end = goes(&mut visit(&nodes[1].1, "e.org", 8)).await.err();
    assert!(matches!(end, Some(VisitOutcome::Paused { .. })), "no response: {end:?}");
    let mut trial = visit(&nodes[0].1, "e.org", 9);
    let fetch = goes(&mut trial).await.unwrap();
    ends(&mut trial, fetch, true).await;
    until("the end at the one", || nodes[0].1.selector.host_pause("e.org").is_none()).await;
    // One node's claim and its message that the host is fine may still be on their way.
    tokio::time::sleep(Duration::from_millis(100)).await;
    broker.cut(nodes[1].0, false);
    until("the end at the other", || nodes[1].1.selector.host_pause("e.org").is_none()).await;
    assert_eq!(trials(&nodes), (1, 0));
}
