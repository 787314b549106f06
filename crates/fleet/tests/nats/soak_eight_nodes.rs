//! A soak test: eight nodes that record 200 attempts per second each, over three brokers. Nodes and
//! brokers are killed, cut off and wiped. It checks what the nodes know in the end, and measures
//! how long that took.

use std::collections::HashMap;
use std::path::Path;
use std::time::Instant;

use fetchwise::journal::{self, Entry};
use fetchwise::time::Timestamp;

use crate::cluster_faults::wait;
use crate::common::TestRng;
use crate::node_control::{NodeCommand, Nodes, beside};
use crate::proxy::Proxy;
use crate::servers::{self, Servers};

const NODES: usize = 8;
const RATE: usize = 200;
/// More attempts than any log gets.
const ENDLESS: usize = 10_000_000;

/// Returns when each position of a log was recorded, in milliseconds.
fn recorded(dir: &Path) -> HashMap<u64, i64> {
    let mut all = HashMap::new();
    journal::replay(dir, |seq, entry| {
        if let Entry::Attempt(attempt) = entry {
            all.insert(seq, attempt.attempted_at.as_millis());
        }
    })
    .unwrap();
    all
}

/// Returns the delays from each record to each other node, for records between two times.
fn delays(nodes: &Nodes, (begin, end): (i64, i64)) -> Vec<i64> {
    let names: Vec<String> =
        nodes.all.iter().map(|node| node.said().unwrap().status.node).collect();
    let logs: Vec<HashMap<u64, i64>> = nodes.all.iter().map(|node| recorded(&node.dir)).collect();
    let mut delays = Vec::new();
    for node in &nodes.all {
        let text = std::fs::read_to_string(beside(&node.dir, "samples")).unwrap();
        let mut tops: HashMap<&str, u64> = HashMap::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let (at, top): (i64, u64) = (words[0].parse().unwrap(), words[2].parse().unwrap());
            let Some(of) = names.iter().position(|name| name == words[1]) else { continue };
            let before = tops.insert(words[1], top).unwrap_or(0);
            let times = (before + 1..=top).filter_map(|seq| logs[of].get(&seq));
            delays.extend(times.filter(|time| (begin..end).contains(*time)).map(|time| at - time));
        }
    }
    delays.sort_unstable();
    delays
}

fn say(what: &str, delays: &[i64]) {
    let at = |part: usize| delays[(delays.len() * part / 1000).min(delays.len() - 1)];
    println!(
        "{what}: recorded to applied p50 {} ms, p99 {} ms, max {} ms, of {} attempts at the other nodes",
        at(500),
        at(990),
        delays.last().unwrap(),
        delays.len()
    );
}

#[test]
#[ignore = "takes minutes: make fleet-suite runs it, and prints what it measures"]
fn eight_nodes_with_200_attempts_per_second() {
    if !servers::is_available() {
        return;
    }
    let mut servers = Servers::start(3);
    let proxies: Vec<Proxy> = (0..NODES).map(|_| Proxy::start(servers.ports())).collect();
    let mut nodes = Nodes::new(NODES, &servers.urls());
    for (node, proxy) in nodes.all.iter_mut().zip(&proxies) {
        node.connect_to(proxy.urls());
        node.set("REAL", 1);
        node.set("SAMPLES", 1);
    }
    nodes.start_all(ENDLESS, RATE);
    nodes.begun();
    wait(5000);
    let begin = Timestamp::now().as_millis();
    wait(30_000);
    let end = Timestamp::now().as_millis();
    wait(6000);
    let said: Vec<_> = nodes.all.iter().map(|node| node.said().unwrap()).collect();
    let (bytes, facts) = said.iter().fold((0, 0), |sum: (u64, u64), said| {
        (sum.0 + said.status.counts.bytes, sum.1 + said.status.counts.published)
    });
    println!("{:.1} bytes an attempt, without subject and headers", bytes as f64 / facts as f64);
    say("undisturbed", &delays(&nodes, (begin, end)));
    let (begin, faults) = (Timestamp::now().as_millis(), Instant::now());
    disturb(&mut servers, &mut nodes, &proxies);
    println!("disturbed for {:.0} s", faults.elapsed().as_secs_f64());
    let all: Vec<usize> = (0..NODES).collect();
    nodes.wait_until(&all, "all nodes are back", |said| said.status.broker);
    for node in &mut nodes.all {
        let recorded = node.said().unwrap().recorded;
        node.tell(&NodeCommand::Until(recorded));
    }
    let (end, calm) = (Timestamp::now().as_millis(), Instant::now());
    nodes.settle();
    println!("converged after {:.1} s", calm.elapsed().as_secs_f64());
    say("with faults", &delays(&nodes, (begin, end)));
    nodes.check();
    let joins = Instant::now();
    let ninth = nodes.add(&servers.urls());
    nodes.all[ninth].set("REAL", 1);
    nodes.all[ninth].start(0, 1);
    nodes.settle();
    println!(
        "a ninth node knows everything {:.1} s after its start",
        joins.elapsed().as_secs_f64()
    );
    nodes.check();
    let all: usize = nodes.all.iter().map(|node| node.said().unwrap().recorded).sum();
    println!("{all} attempts of {NODES} nodes, equal to one fold of all logs at all nine");
}

/// Kills nodes and brokers, cuts nodes off, and wipes all brokers in the middle.
fn disturb(servers: &mut Servers, nodes: &mut Nodes, proxies: &[Proxy]) {
    let mut rng = TestRng(8);
    let mut kill = |nodes: &mut Nodes| {
        let node = &mut nodes.all[rng.below(NODES as u64) as usize];
        node.kill();
        wait(700);
        node.start(ENDLESS, RATE);
        wait(1500);
    };
    for broker in 0..3 {
        servers.kill(broker);
        kill(nodes);
        servers.revive(broker);
        wait(3000);
    }
    // Half of the nodes are cut off while the others go on.
    proxies[..NODES / 2].iter().for_each(|proxy| proxy.cut(true));
    wait(8000);
    (0..3).for_each(|broker| servers.wipe(broker));
    wait(500);
    (0..3).for_each(|broker| servers.revive(broker));
    kill(nodes);
    wait(4000);
    proxies[..NODES / 2].iter().for_each(|proxy| proxy.cut(false));
    wait(3000);
    servers.kill(0);
    servers.kill(1);
    kill(nodes);
    servers.revive(0);
    servers.revive(1);
    kill(nodes);
    wait(3000);
}
