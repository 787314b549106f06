//! Pauses and trials over the in-process broker, with late and lost responses.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::NOW;
use crate::common::visits::{Own, PAUSE, Sharer, be_blocked, ends, goes, sharer, visit};
use fetchwise::Selector;
use fetchwise::ended_pauses::{EndedPause, PauseListener};
use fetchwise::time::{Clock, Timestamp};
use fetchwise::visit::{Fetch, VisitOutcome};
use fetchwise_fleet::NodeId;
use fetchwise_fleet::pauses::state_machine::{HostState, MAX_PAUSES_PER_HOUR, Phase, key};
use fetchwise_fleet::transport::in_process::{Faults, InProcessBroker};
use fetchwise_fleet::transport::{Cells, Table};
use fetchwise_testsite::poll::until;

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
    until("a pause at all", || {
        nodes.iter().all(|(_, node)| node.selector.host_pause(host).is_some())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_clock_was_put_right_shares_pauses_of_the_right_length() {
    // The first node began with a clock that was an hour ahead.
    let clocks = [Duration::from_secs(3600), Duration::ZERO]
        .map(|ahead| Arc::new(Clock::fixed(NOW.saturating_add(ahead))));
    clocks[0].set_date(NOW);
    let broker = InProcessBroker::new(Arc::clone(&clocks[1]), 7);
    let node = |clock| {
        let own = NodeId::random();
        (own, sharer(Arc::new(broker.node(own)), own, clock, ""))
    };
    let nodes: Vec<_> = clocks.iter().map(node).collect();
    for (by, host) in ["first.org", "second.org"].into_iter().enumerate() {
        paused_by(&nodes, by, host).await;
        let rests = nodes.iter().zip(&clocks).map(|((_, node), clock)| {
            node.selector.host_pause(host).map(|until| until.since(clock.now()))
        });
        assert_eq!(rests.collect::<Vec<_>>(), [Some(PAUSE); 2], "{host}");
    }
}

#[derive(Debug, Default)]
struct EndedHosts(Mutex<Vec<String>>);

impl PauseListener for EndedHosts {
    fn pause_ended(&self, ended: EndedPause<'_>) {
        if let EndedPause::Host(domain) = ended {
            self.0.lock().unwrap().push(domain.to_owned());
        }
    }
}

/// The bug: nothing told a crawl that another node had ended a pause, so its links waited until the
/// old end.
#[tokio::test(start_paused = true)]
async fn a_pause_that_one_node_ends_is_told_to_the_listeners_of_all() {
    let (_, clock, nodes) = fleet_of(2);
    let heard = [(); 2].map(|()| Arc::new(EndedHosts::default()));
    let listeners = heard.each_ref().map(|heard| Arc::clone(heard) as Arc<dyn PauseListener>);
    for ((_, node), listener) in nodes.iter().zip(&listeners) {
        node.selector.add_pause_listener(listener);
    }
    paused_by(&nodes, 0, "e.org").await;
    assert!(nodes[0].1.selector.unpause_host("e.org", clock.now()).is_some());
    let all = || heard.iter().map(|heard| heard.0.lock().unwrap().clone()).collect::<Vec<_>>();
    until("both have heard it", || all() == [["e.org"], ["e.org"]]).await;
    drop(listeners);
    paused_by(&nodes, 1, "f.org").await;
    let [first, _] = heard;
    assert!(nodes[1].1.selector.unpause_host("f.org", clock.now()).is_some());
    until("it is over at all", || {
        nodes.iter().all(|(_, node)| node.selector.host_pause("f.org").is_none())
    })
    .await;
    assert_eq!(Arc::strong_count(&first), 1, "nobody keeps a listener");
}

/// Returns the numbers of trials that were won, and of those that were made without the broker.
fn trials(nodes: &[(NodeId, Sharer)]) -> (u64, u64) {
    let counts = nodes.iter().map(|(_, node)| node.hosts.counts());
    counts.fold((0, 0), |(won, own), counts| (won + counts.trials, own + counts.own_trials))
}

/// Visits until the fetch is allowed. The clock stands still.
async fn goes_at_last(node: &Sharer, host: &str) -> (Own, Fetch<Arc<Selector>>) {
    loop {
        let mut trial = visit(node, host, 9);
        if let Ok(fetch) = goes(&mut trial).await {
            return (trial, fetch);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(start_paused = true)]
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
    until("the end at all", || {
        nodes.iter().all(|(_, node)| node.selector.host_pause("e.org").is_none())
    })
    .await;
    assert_eq!(trials(&nodes), (1, 0));
}

#[tokio::test(start_paused = true)]
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
        until("the end at all", || {
            nodes.iter().all(|(_, node)| node.selector.host_pause(host) == expected)
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
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
        hosts
            .iter()
            .all(|host| nodes[..2].iter().all(|(_, node)| of(node, host) == of(&nodes[2].1, host)))
    })
    .await;
    let rejected: u64 = nodes.iter().map(|(_, node)| node.hosts.counts().rejected).sum();
    assert_eq!((trials(&nodes), rejected), ((150, 0), 0));
}

#[tokio::test(start_paused = true)]
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

/// Returns a node that says what it wants, on a broker without permissions.
async fn liar(broker: &Arc<InProcessBroker>) -> (NodeId, impl Cells + use<>) {
    let own = NodeId::random();
    let hands = broker.node(own);
    hands.put(Table::Nodes, &own.to_string(), "{}".into()).await.unwrap();
    (own, hands)
}

fn says(phase: Phase, until: Timestamp) -> bytes::Bytes {
    HostState { phase, until, at: NOW, level: 6 }.encode().into()
}

/// Returns the number of these hosts that the node has paused.
fn paused(node: &Sharer, hosts: impl Iterator<Item = String>) -> usize {
    hosts.filter(|host| node.selector.host_pause(host).is_some()).count()
}

#[tokio::test(start_paused = true)]
async fn one_node_pauses_no_more_than_its_quota_of_hosts() {
    let (broker, clock, nodes) = fleet_of(2);
    let (liar, hands) = liar(&broker).await;
    let (victim, until_then) = (&nodes[0], clock.now().saturating_add(PAUSE));
    let pause = || says(Phase::Paused, until_then);
    let (invented, stolen, own) = (
        || (0..2000).map(|n| format!("invented{n}.example")),
        || (0..150).map(|n| format!("stolen{n}.example")),
        || (0..300).map(|n| format!("own{n}.example")),
    );
    for host in invented() {
        hands.put(Table::Hosts, &key(NodeId::random(), "", &host), pause()).await.unwrap();
    }
    // With the victim's name: on a broker with permissions only the victim could write there. It
    // has a quota like every other name, and its heartbeat does not vouch for what the process did
    // not write.
    for host in stolen() {
        hands.put(Table::Hosts, &key(victim.0, "", &host), pause()).await.unwrap();
    }
    for host in own() {
        hands.put(Table::Hosts, &key(liar, "", &host), pause()).await.unwrap();
    }
    // The old layout, whose value names the writer.
    hands.put(Table::Hosts, "old.example", pause()).await.unwrap();
    paused_by(&nodes, 1, "last.example").await;
    assert_eq!(paused(&victim.1, invented()), 0, "names without a heartbeat");
    assert!(paused(&victim.1, stolen()) <= MAX_PAUSES_PER_HOUR);
    assert_eq!(paused(&victim.1, own()), MAX_PAUSES_PER_HOUR);
    assert_eq!(victim.1.selector.host_pause("old.example"), None);
    assert!(victim.1.hosts.counts().rejected >= 2200, "{:?}", victim.1.hosts.counts());
    // An operator excludes the node: its pauses end, those of others last.
    hands.put(Table::Excluded, &liar.to_string(), "".into()).await.unwrap();
    until("the end of its pauses", || paused(&victim.1, own()) == 0).await;
    // A response of the broker, which a node can have stored anywhere, neither ends an exclusion
    // nor makes one.
    for node in [liar, nodes[1].0] {
        hands
            .put(Table::Excluded, &node.to_string(), r#"{"stream":"FW_p","seq":9}"#.into())
            .await
            .unwrap();
    }
    hands.put(Table::Hosts, &key(liar, "", "again.example"), pause()).await.unwrap();
    paused_by(&nodes, 1, "later.example").await;
    assert_eq!(victim.1.selector.host_pause("again.example"), None);
    assert!(victim.1.selector.host_pause("last.example").is_some());
}

#[tokio::test(start_paused = true)]
async fn no_other_node_lifts_a_pause() {
    let (broker, clock, nodes) = fleet_of(2);
    let (liar, hands) = liar(&broker).await;
    paused_by(&nodes, 0, "e.org").await;
    let before = nodes[0].1.selector.host_pause("e.org");
    // It says that the host is fine, extends the pause, takes that back, claims the trial, and
    // deletes the cell of the node that was blocked, which a broker with permissions refuses.
    let longer = clock.now().saturating_add(PAUSE * 2);
    let mine = key(liar, "", "e.org");
    hands.put(Table::Hosts, &mine, says(Phase::Fine, longer)).await.unwrap();
    hands.put(Table::Hosts, &mine, says(Phase::Trial, longer)).await.unwrap();
    hands.put(Table::Hosts, &mine, says(Phase::Paused, longer)).await.unwrap();
    until("the longer pause", || {
        nodes.iter().all(|(_, node)| node.selector.host_pause("e.org") == Some(longer))
    })
    .await;
    hands.put(Table::Hosts, &mine, says(Phase::Fine, longer)).await.unwrap();
    until("the end of the longer one", || {
        nodes.iter().all(|(_, node)| node.selector.host_pause("e.org") == before)
    })
    .await;
    hands.delete(Table::Hosts, &key(nodes[0].0, "", "e.org"), None).await.unwrap();
    paused_by(&nodes, 1, "last.example").await;
    assert_eq!(nodes[0].1.selector.host_pause("e.org"), before, "its own attempts have set it");
    let end = goes(&mut visit(&nodes[0].1, "e.org", 8)).await.err();
    assert!(matches!(end, Some(VisitOutcome::Paused { .. })), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn an_operator_lifts_a_pause_where_it_was_set() {
    let (_, clock, nodes) = fleet_of(3);
    paused_by(&nodes, 0, "e.org").await;
    // At a node that has it from another one, it ends there only.
    nodes[1].1.selector.unpause_host("e.org", clock.now()).unwrap();
    assert!(goes(&mut visit(&nodes[1].1, "e.org", 8)).await.is_ok());
    paused_by(&nodes, 2, "last.example").await;
    assert!(
        nodes[0].1.selector.host_pause("e.org").is_some()
            && nodes[2].1.selector.host_pause("e.org").is_some()
    );
    assert_eq!(nodes[1].1.selector.host_pause("e.org"), None);
    nodes[0].1.selector.unpause_host("e.org", clock.now()).unwrap();
    until("the end at all", || {
        nodes.iter().all(|(_, node)| node.selector.host_pause("e.org").is_none())
    })
    .await;
}
