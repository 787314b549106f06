//! Pauses and trials over real brokers: what one node pauses is paused at all, and of all one tries it out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fetchwise::Selector;
use fetchwise::answer::{Block, Outcome};
use fetchwise::backoff::BackoffSettings;
use fetchwise::time::{Clock, Timestamp};
use fetchwise::visit::{Ended, Fetch, Step, Visit};
use fetchwise_fleet::hosts::SharedHosts;
use fetchwise_fleet::nats::{Nats, NatsSettings};
use fetchwise_fleet::origin::Origin;
use fetchwise_fleet::transport::Transport;
use url::Url;

use crate::servers::Servers;

const LONG: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_secs(90);

type Own = Visit<Arc<Selector>, Url>;

struct Node {
    selector: Arc<Selector>,
    hosts: SharedHosts,
}

async fn node(servers: &Servers, clock: &Arc<Clock>, egress: &str) -> Node {
    let nats = Nats::connect(NatsSettings::new(servers.urls(), "test")).await.unwrap();
    nats.ready(LONG).await.unwrap();
    let backoff = BackoffSettings { blocked_base: PAUSE, ..BackoffSettings::default() };
    let selector = Selector::builder().clock(Arc::clone(clock)).around(clock.now()).backoff(backoff).build().unwrap();
    let selector = Arc::new(selector);
    let transport: Arc<dyn Transport> = Arc::new(nats);
    let hosts = SharedHosts::share(Arc::clone(&selector), transport, Origin::random(), egress).unwrap();
    Node { selector, hosts }
}

fn visit(node: &Node, host: &str, page: usize) -> Own {
    let url = Url::parse(&format!("https://{host}/{page}")).unwrap();
    Visit::new(Arc::clone(&node.selector), url).unwrap()
}

/// Fetches and is blocked, with every fetcher.
fn be_blocked(node: &Node, host: &str, page: usize) {
    let mut visit = visit(node, host, page);
    while let Step::Fetch(fetch) = visit.next() {
        visit.report(fetch, Outcome::Blocked(Block::refusal()));
    }
}

/// The fetch that the visit gets, or how it ends without one.
async fn goes(visit: &mut Own) -> Result<Fetch<Arc<Selector>>, Ended> {
    loop {
        match visit.next() {
            Step::Fetch(fetch) => return Ok(fetch),
            Step::End(end) => return Err(end.how),
            Step::Wait(mut wait) => drop(tokio::time::timeout(Duration::from_secs(1), wait.notified()).await),
            other => unreachable!("there are no other steps: {other:?}"),
        }
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LONG, "{what} did not come about");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn percentile(sorted: &[Duration], part: usize) -> Duration {
    sorted[(sorted.len() * part / 100).min(sorted.len() - 1)]
}

/// 8 nodes and `hosts` hosts: each host is paused by one, and tried out by one.
async fn one_trial_each(mut servers: Servers, hosts: usize, kills: &[usize]) {
    let clock = Arc::new(Clock::fixed(Timestamp::now()));
    let mut nodes = Vec::new();
    for _ in 0..8 {
        nodes.push(node(&servers, &clock, "").await);
    }
    let names: Vec<String> = (0..hosts).map(|n| format!("h{n}.example")).collect();
    let mut delays = Vec::new();
    for (n, host) in names.iter().enumerate() {
        (0..3).for_each(|page| be_blocked(&nodes[n % 8], host, page));
        let told = Instant::now();
        until("a pause at all nodes", || nodes.iter().all(|node| node.selector.host_pause(host).is_some())).await;
        delays.push(told.elapsed());
    }
    delays.sort_unstable();
    println!("paused at all 8 nodes: p50 {:?}, p99 {:?}", percentile(&delays, 50), percentile(&delays, 99));
    kills.iter().for_each(|broker| servers.kill(*broker));
    // All at once, when the time is up.
    clock.set(clock.now().saturating_add(PAUSE));
    let (mut winners, mut rounds) = (BTreeMap::<String, (usize, Own, Fetch<_>)>::new(), 0);
    while winners.len() < hosts {
        rounds += 1;
        assert!(rounds < 30, "every host is tried out, and not {} of {hosts}", winners.len());
        let mut coming = Vec::new();
        for (number, node) in nodes.iter().enumerate() {
            // Behind a trial of its own a node would wait for that one's end.
            let has_it = |host: &&String| winners.get(*host).is_some_and(|(by, ..)| *by == number);
            for host in names.iter().filter(|host| !has_it(host)) {
                let (mut visit, host) = (visit(node, host, 99), host.clone());
                coming.push(tokio::spawn(async move {
                    let gone = goes(&mut visit).await;
                    (host, number, visit, gone)
                }));
            }
        }
        for end in coming {
            let (host, number, visit, gone) = end.await.unwrap();
            match gone {
                Ok(fetch) => {
                    let before = winners.insert(host.clone(), (number, visit, fetch));
                    assert!(before.is_none(), "two try {host} out");
                }
                Err(end) => assert!(matches!(end, Ended::Paused { .. }), "{end:?}"),
            }
        }
        // Brokers that choose a leader answer nobody for a moment: whoever got no answer asks again.
        if winners.len() < hosts {
            tokio::time::sleep(Duration::from_secs(1)).await;
            clock.set(clock.now().saturating_add(Duration::from_secs(6)));
        }
    }
    assert_eq!(winners.len(), hosts, "every host is tried out");
    let trials: u64 = nodes.iter().map(|node| node.hosts.counts().trials).sum();
    assert_eq!(trials, hosts as u64);
    // Half of them are fine again, and the others are not.
    for (n, host) in names.iter().enumerate() {
        let (_, mut visit, fetch) = winners.remove(host).unwrap();
        let outcome = if n % 2 == 0 { Outcome::Content } else { Outcome::Blocked(Block::refusal()) };
        visit.report(fetch, outcome);
        // A trial that was blocked may go on with another fetcher, and is blocked there too.
        while let Ok(fetch) = goes(&mut visit).await {
            visit.report(fetch, Outcome::Blocked(Block::refusal()));
        }
    }
    until("the end of the trials at all nodes", || {
        let settled = |host: &String, is_fine: bool, node: &Node| match node.selector.host_pause(host) {
            None => is_fine,
            Some(until) => !is_fine && until > clock.now(),
        };
        nodes.iter().all(|node| names.iter().enumerate().all(|(n, host)| settled(host, n % 2 == 0, node)))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "fails now and then on a machine that is busy: cargo test --workspace --all-features --test nats -- --ignored hosts"]
async fn of_eight_nodes_one_tries_a_host_out() {
    one_trial_each(Servers::start(3), 200, &[]).await;
}

/// Row 17, with a majority of brokers left.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "fails now and then on a machine that is busy: cargo test --workspace --all-features --test nats -- --ignored hosts"]
async fn a_broker_that_is_killed_when_pauses_end_makes_no_second_trial() {
    one_trial_each(Servers::start(3), 40, &[1]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_of_three_nodes_pause_a_host_at_all() {
    let servers = Servers::start(1);
    let clock = Arc::new(Clock::fixed(Timestamp::now()));
    let (a, b) = (node(&servers, &clock, "").await, node(&servers, &clock, "").await);
    let elsewhere = node(&servers, &clock, "eu").await;
    be_blocked(&a, "e.org", 1);
    assert_eq!(a.selector.blocked_elsewhere("e.org", 7, clock.now(), clock.now()), None);
    let long_ago = Timestamp::from_millis(clock.now().as_millis() - 700_000);
    assert_eq!(
        a.selector.blocked_elsewhere("e.org", 9, long_ago, clock.now()),
        None,
        "what is long past does not count"
    );
    assert!(a.selector.blocked_elsewhere("e.org", 8, clock.now(), clock.now()).is_some());
    until("a pause at the other", || b.selector.host_pause("e.org").is_some()).await;
    assert_eq!(b.selector.host_pause("e.org"), a.selector.host_pause("e.org"));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(elsewhere.selector.host_pause("e.org"), None, "another address is another matter");
    // An operator lets it go, at one node.
    b.selector.release_host("e.org", clock.now()).unwrap();
    until("the release at the other", || a.selector.host_pause("e.org").is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_broker_each_side_tries_a_host_out_once_and_tells_later() {
    let mut servers = Servers::start(1);
    let clock = Arc::new(Clock::fixed(Timestamp::now()));
    let (a, b) = (node(&servers, &clock, "").await, node(&servers, &clock, "").await);
    (0..3).for_each(|page| be_blocked(&a, "e.org", page));
    until("a pause at the other", || b.selector.host_pause("e.org").is_some()).await;
    servers.kill(0);
    tokio::time::sleep(Duration::from_millis(300)).await;
    clock.set(clock.now().saturating_add(PAUSE));
    // Nobody goes at once, unless the moment falls on it; everybody once within the minute.
    let mut gone = [0, 0];
    for _ in 0..130 {
        for (n, node) in [&a, &b].into_iter().enumerate() {
            if let Ok(fetch) = goes(&mut visit(node, "e.org", 50)).await {
                gone[n] += 1;
                // It comes to nothing: the fetch is dropped, and with it the trial.
                drop(fetch);
            }
        }
        clock.set(clock.now().saturating_add(Duration::from_secs(1)));
    }
    assert_eq!(gone, [1, 1]);
    assert_eq!((a.hosts.counts().own_trials, b.hosts.counts().own_trials), (1, 1));
    // What one pauses meanwhile reaches the other when the broker is back. A pause counts from when the broker has it, by its clock.
    clock.set(Timestamp::now());
    (0..3).for_each(|page| be_blocked(&a, "f.org", page));
    assert!(a.selector.host_pause("f.org").is_some());
    servers.revive(0);
    until("the pause at the other", || b.selector.host_pause("f.org").is_some()).await;
}
