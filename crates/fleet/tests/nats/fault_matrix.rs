//! The rows of the fault suite in which a node itself fails or an operator steps in. See
//! `cluster_faults`.

use std::time::{Duration, Instant};

use bytes::Bytes;
use fetchwise::evidence::RemoteAttempt;
use fetchwise::time::Timestamp;
use fetchwise_fleet::failpoints;
use fetchwise_fleet::model::codec::{Builder, VERSION};
use fetchwise_fleet::model::node_id::NodeId;
use fetchwise_fleet::sync::forget::notify_forgotten;
use fetchwise_fleet::transport::nats::{Nats, NatsSettings};
use fetchwise_fleet::transport::{Table, Transport};
use fetchwise_testsite::poll::found_within;
use fetchwise_testsite::requirements::{NO_MOUNT, skip};
use tokio::runtime::Runtime;

use crate::cluster_faults::{exact_after, times, wait};
use crate::common::{TestRng, attempt};
use crate::full_disk::{fill, free};
use crate::node_control::{NodeCommand, NodeReport, Nodes, Oracle, PATIENCE};
use crate::proxy::Proxy;
use crate::servers::{self, Servers};
use crate::small_disk::Small;
use crate::version_skew::with_version;

const MINUTE: i64 = 60_000;

/// Returns an operator's connection to the brokers.
fn operator(runtime: &Runtime, servers: &Servers) -> Nats {
    runtime.block_on(async {
        let nats = Nats::connect(NatsSettings::new(servers.urls(), "suite")).await.unwrap();
        nats.ready(Duration::from_secs(120)).await.unwrap();
        nats
    })
}

#[test]
fn row_03_a_node_is_killed_inside_its_steps() {
    if !servers::is_available() {
        return;
    }
    let mut order: Vec<&str> = failpoints::ALL.to_vec();
    let mut rng = TestRng(3);
    let mut servers = Servers::start(3);
    let mut nodes = Nodes::new(3, &servers.urls());
    for node in &mut nodes.all {
        // So that every step happens from time to time.
        node.set("SHARE_AFTER", 150);
        node.set("KEEP_AFTER", 12);
    }
    nodes.start_all(1_000_000, 60);
    nodes.begun();
    let mut lives = 0;
    for _ in 0..times(1, 2, 40) {
        // Each failpoint after every other one: the next process begins with what was left half
        // done.
        for last in (1..order.len()).rev() {
            order.swap(last, rng.below(last as u64 + 1) as usize);
        }
        for point in &order {
            if point.starts_with("share ") {
                // Meanwhile the others store new snapshots, which it applies on start.
                wait(3500);
            }
            nodes.all[0].kill();
            nodes.all[0].set("POINT", point);
            nodes.all[0].start(1_000_000, 60);
            nodes.all[0].ended(point);
            lives += 1;
        }
    }
    println!("a process ended inside a step {lives} times");
    nodes.all[0].unset("POINT");
    nodes.all[0].start(1_000_000, 60);
    nodes.wait_until(&[0], "the node comes back", |said| said.status.broker);
    for node in &mut nodes.all {
        let recorded = node.said().unwrap().recorded;
        node.tell(&NodeCommand::Until(recorded));
    }
    nodes.exact_for_late_comers_too(&servers.urls());
    (0..3).for_each(|broker| servers.kill(broker));
}

#[test]
fn row_07_a_brokers_disk_loses_and_changes_what_it_had() {
    if !servers::is_available() {
        return;
    }
    let mut rng = TestRng(7);
    for round in 0..times(1, 3, 100) {
        exact_after(3, 8, |servers, nodes| {
            wait(2500);
            // One broker alone, or all at once: then only the nodes' logs have a whole copy.
            let all = round % 3 == 2;
            let hurt: Vec<usize> = if all { vec![0, 1, 2] } else { vec![round % 3] };
            (0..3)
                .filter(|broker| all || hurt.contains(broker))
                .for_each(|broker| servers.kill(broker));
            for broker in &hurt {
                assert!(servers.damage(*broker, "FW_suite", round % 2 == 0, |n| rng.below(n)) > 0);
            }
            hurt.iter().for_each(|broker| servers.revive(*broker));
            wait(1500);
            // The damaged broker may become the leader.
            let other = (hurt[0] + 1) % 3;
            servers.kill(other);
            wait(1500);
            servers.revive(other);
            nodes.all[2].kill();
            wait(500);
            nodes.all[2].start(800, 100);
        });
    }
}

#[test]
fn row_11_a_nodes_disk_is_full() {
    if !servers::is_available() {
        return;
    }
    for round in 0..times(1, 2, 20) {
        let mut servers = Servers::start(3);
        let mut nodes = Nodes::new(3, &servers.urls());
        // All of its directory, or its peer store only.
        let place = nodes.all[0].dir.join(if round % 2 == 0 { "" } else { "peers" });
        let Some(small) = Small::mount(&place, "6m") else {
            skip(NO_MOUNT);
            return;
        };
        nodes.start_all(1_000_000, 100);
        nodes.begun();
        let begun = Instant::now();
        let said = |nodes: &Nodes| nodes.all[0].said().unwrap();
        let is_full = |nodes: &Nodes| {
            said(nodes).status.stopped.is_some_and(|why| why.contains("No space left"))
        };
        // Preallocated and freed space is used up first.
        for _ in 0..15 {
            fill(&place);
            wait(200);
        }
        while round % 2 == 0 && !is_full(&nodes) {
            assert!(begun.elapsed() < PATIENCE, "the disk is never full: {:?}", said(&nodes));
            fill(&place);
            wait(200);
        }
        wait(2000);
        let attempts = |said: &NodeReport| said.recorded + said.refused;
        let before = attempts(&said(&nodes));
        nodes.wait_until(&[0], "the crawl goes on", |said| attempts(said) > before);
        let after = said(&nodes);
        free(&place);
        // It recovers without help.
        let all_there = |said: &NodeReport| {
            said.status.stopped.is_none() && said.status.position as usize >= after.recorded
        };
        nodes.wait_until(&[0], "what was recorded is on disk", all_there);
        for node in &mut nodes.all {
            let recorded = node.said().unwrap().recorded;
            node.tell(&NodeCommand::Until(recorded));
        }
        if said(&nodes).refused > 0 {
            // It has learned the attempts that its log did not accept, until it restarts.
            nodes.all[0].kill();
            nodes.all[0].start(0, 100);
        }
        nodes.exact_for_late_comers_too(&servers.urls());
        nodes.all.iter_mut().for_each(crate::node_control::Node::kill);
        drop(small);
        (0..3).for_each(|broker| servers.kill(broker));
    }
}

#[test]
fn row_12_a_nodes_clock_jumps() {
    if !servers::is_available() {
        return;
    }
    let jumps =
        [MINUTE, -MINUTE, 60 * MINUTE, -60 * MINUTE, 10 * 365 * 24 * 60 * MINUTE, 20 * MINUTE];
    for round in 0..times(1, 2, 10) {
        let mut servers = Servers::start(3);
        let mut nodes = Nodes::new(3, &servers.urls());
        nodes.all[0].set("JUMPS", 1);
        // Late nodes begin with snapshots of what was recorded meanwhile.
        nodes.all[0].set("SHARE_AFTER", 150);
        nodes.start_all(1_000_000, 100);
        nodes.begun();
        for (n, ms) in jumps.iter().enumerate() {
            nodes.all[0].tell(&NodeCommand::Clock(*ms));
            wait(1500);
            if ms.abs() > 10 * MINUTE {
                let says = |said: &NodeReport| {
                    said.status.stopped.as_ref().is_some_and(|why| why.contains("clock"))
                };
                nodes.wait_until(&[0], "it reports a wrong clock", says);
            }
            if (n + round) % 2 == 0 {
                // It may restart with a wrong clock, too.
                nodes.all[0].tell(&NodeCommand::Clock(0));
                wait(500);
            }
        }
        nodes.all[0].tell(&NodeCommand::Clock(0));
        wait(1000);
        for node in &mut nodes.all {
            let recorded = node.said().unwrap().recorded;
            node.tell(&NodeCommand::Until(recorded));
        }
        let now = Timestamp::now().as_millis();
        nodes.settle();
        let withheld = nodes.all[0].said().unwrap().status.withheld;
        assert!(withheld > 0, "some attempts had a future time");
        // Attempts with a time far ahead count where they were recorded only.
        let oracle = |nodes: &Nodes| Oracle { latest: Some(now + 5 * MINUTE), ..nodes.oracle() };
        let expected = oracle(&nodes);
        nodes.check_by(&expected);
        let late = nodes.add(&servers.urls());
        nodes.all[late].start(0, 1);
        nodes.settle();
        let expected = oracle(&nodes);
        nodes.check_by(&expected);
        (0..3).for_each(|broker| servers.kill(broker));
    }
}

/// Returns a message with one attempt.
fn message(position: u64) -> Bytes {
    let attempt = attempt(&mut TestRng(1), 5, 0);
    let heuristics: Vec<(&str, &str)> = attempt
        .heuristics
        .iter()
        .map(|tag| (&*tag.heuristic.kind, &*tag.heuristic.value))
        .collect();
    let mut builder = Builder::new(1, 0, position);
    let fact = RemoteAttempt {
        at: Timestamp::now(),
        fetcher: "direct_access",
        weight: 1.0,
        success: true,
        is_banned: false,
        duration_ms: 5,
        hint: None,
        is_file: false,
        heuristics: &heuristics,
    };
    builder.push(&fact, 0);
    builder.finish(0).unwrap().1
}

#[test]
fn row_13_other_releases_are_in_the_pool() {
    if !servers::is_available() {
        return;
    }
    let runtime = Runtime::new().unwrap();
    for round in 0..times(1, 2, 10) {
        let mut servers = Servers::start(3);
        let mut nodes = Nodes::new(3, &servers.urls());
        // One node, or two of three, send more than the others understand.
        for node in &mut nodes.all[..1 + round % 2] {
            node.set("NEWER", 1);
        }
        nodes.start_all(400, 100);
        nodes.begun();
        let nats = operator(&runtime, &servers);
        let stranger = NodeId::random();
        for n in 1..=3 {
            let body = with_version(&message(n), VERSION.0 + 1, 0);
            runtime
                .block_on(nats.publish(stranger, &format!("{stranger}.1.{n}-{n}"), body))
                .unwrap();
        }
        let named = |said: &NodeReport| {
            let of = said.status.peers.iter().find(|peer| peer.node == stranger.to_string());
            said.status.counts.rejected >= 3
                && of.is_some_and(|peer| {
                    peer.rejected.as_ref().is_some_and(|why| why.contains("newer release"))
                })
        };
        nodes.wait_until(&[0, 1, 2], "a node that is too new is reported", named);
        nodes.exact_for_late_comers_too(&servers.urls());
        nodes.wait_until(&[3], "a node that is too new is reported to late nodes", named);
        (0..3).for_each(|broker| servers.kill(broker));
    }
}

#[test]
fn row_15_a_domain_is_forgotten_while_nodes_are_cut_off() {
    if !servers::is_available() {
        return;
    }
    let runtime = Runtime::new().unwrap();
    let domain = "shop.site0.example";
    for round in 0..times(1, 2, 100) {
        let mut servers = Servers::start(3);
        let proxy = Proxy::start(servers.ports());
        let mut nodes = Nodes::new(3, &servers.urls());
        nodes.all[1].connect_to(proxy.urls());
        for node in &mut nodes.all {
            // Snapshots contain the domain.
            node.set("SHARE_AFTER", 120);
        }
        nodes.start_all(400, 100);
        nodes.begun();
        wait(1500);
        proxy.cut(true);
        // It knows more of the domain than it has published, and publishes it late.
        nodes.wait_until(&[0, 1, 2], "everything is recorded", |said| said.is_done);
        if round % 2 == 1 {
            nodes.all[2].kill();
        }
        let until = Timestamp::now();
        let nats = operator(&runtime, &servers);
        runtime.block_on(notify_forgotten(&nats, domain, until)).unwrap();
        wait(2500);
        nodes.start_all(400, 100);
        proxy.cut(false);
        nodes.settle();
        let oracle = |nodes: &Nodes| Oracle {
            forgotten: Some((domain.to_owned(), until.as_millis())),
            ..nodes.oracle()
        };
        forgotten_at(&mut nodes, &oracle);
        let late = nodes.add(&servers.urls());
        nodes.all[late].start(0, 1);
        nodes.settle();
        forgotten_at(&mut nodes, &oracle);
        (0..3).for_each(|broker| servers.kill(broker));
    }
}

/// Checks that all nodes forget the domain as soon as they have read the request.
fn forgotten_at(nodes: &mut Nodes, oracle: &impl Fn(&Nodes) -> Oracle) {
    nodes.settle();
    let (expected, all) = (oracle(nodes), (0..nodes.all.len()).collect::<Vec<_>>());
    found_within(PATIENCE, "all nodes have read the request", || nodes.compare(&all, &expected));
}

#[test]
fn row_16_a_liar_is_excluded_and_included_again() {
    if !servers::is_available() {
        return;
    }
    let runtime = Runtime::new().unwrap();
    for round in 0..times(1, 2, 20) {
        let mut servers = Servers::start(3);
        let mut nodes = Nodes::new(3, &servers.urls());
        for node in &mut nodes.all {
            node.set("SHARE_AFTER", 200);
            node.set("KEEP_AFTER", 10);
        }
        nodes.start_all(600, 100);
        nodes.begun();
        wait(1500);
        let liar = nodes.all[2].said().unwrap().status.node;
        let nats = operator(&runtime, &servers);
        runtime
            .block_on(nats.cells().put(Table::Excluded, &liar, Bytes::from_static(b"it lies")))
            .unwrap();
        let is_out = |said: &NodeReport| {
            said.status.node == liar
                || said.status.peers.iter().any(|peer| peer.node == liar && peer.excluded)
        };
        nodes.wait_until(&[0, 1], "the liar is excluded", is_out);
        nodes.wait_until(&[2], "the liar knows", |said| said.status.excluded && said.is_done);
        if round % 2 == 1 {
            nodes.all[0].kill();
            nodes.all[0].start(600, 100);
        }
        let late = nodes.add(&servers.urls());
        nodes.all[late].start(0, 1);
        nodes.settle_among(&[0, 1, late]);
        let honest = Oracle {
            logs: nodes.all[..2].iter().map(|node| node.dir.clone()).collect(),
            ..Oracle::default()
        };
        nodes.wait_until(&[0, 1, late], "the liar is excluded", is_out);
        nodes.check_of(&[0, 1, late], &honest);
        runtime.block_on(nats.cells().delete(Table::Excluded, &liar, None)).unwrap();
        let is_back = |said: &NodeReport| {
            !said.status.excluded && said.status.peers.iter().all(|peer| !peer.excluded)
        };
        nodes.wait_until(&[0, 1, 2, late], "the liar is back", is_back);
        nodes.exact_for_late_comers_too(&servers.urls());
        (0..3).for_each(|broker| servers.kill(broker));
    }
}
