//! The rows of the fault suite with whole nodes over three real brokers. After convergence, every
//! node has the evidence of all logs in memory.
//!
//! `FETCHWISE_FLEET_FAULTS` sets the size: small by default, `ci` or `full`.

use std::time::Duration;

use fetchwise_fleet::transport::Transport;
use fetchwise_fleet::transport::nats::{Nats, NatsSettings};
use fetchwise_testsite::poll::found;

use crate::common::TestRng;
use crate::node_control::Nodes;
use crate::proxy::Proxy;
use crate::servers::{self, Servers};

/// Returns the number of repetitions: at a desk, in CI, and in the full suite.
pub fn times(desk: usize, ci: usize, full: usize) -> usize {
    match std::env::var("FETCHWISE_FLEET_FAULTS").as_deref() {
        Ok("full") => full,
        Ok("ci") => ci,
        _ => desk,
    }
}

pub fn wait(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// Runs `n` nodes that record for some `seconds` while `faults` happen.
pub fn exact_after(
    n: usize,
    seconds: usize,
    faults: impl FnOnce(&mut Servers, &mut Nodes),
) -> (Servers, Nodes) {
    const RATE: usize = 100;
    let mut servers = Servers::start(3);
    let mut nodes = Nodes::new(n, &servers.urls());
    nodes.start_all(seconds * RATE, RATE);
    nodes.begun();
    faults(&mut servers, &mut nodes);
    for broker in 0..servers.len() {
        servers.revive(broker);
    }
    nodes.start_all(seconds * RATE, RATE);
    nodes.exact_for_late_comers_too(&servers.urls());
    (servers, nodes)
}

#[test]
fn row_01_nothing_happens() {
    if !servers::is_available() {
        return;
    }
    for n in if times(0, 1, 1) == 0 { vec![3] } else { vec![1, 3, 8] } {
        for _ in 0..times(1, 1, 10) {
            exact_after(n, 4, |_, _| {});
        }
    }
}

#[test]
fn row_02_nodes_are_killed() {
    if !servers::is_available() {
        return;
    }
    let kills = times(4, 20, 500);
    let (mut rng, mut left) = (TestRng(2), kills);
    while left > 0 {
        let now = left.min(20);
        left -= now;
        exact_after(3, 4 + now / 2, |_, nodes| {
            for _ in 0..now {
                wait(200 + rng.below(900));
                let node = &mut nodes.all[rng.below(3) as usize];
                node.kill();
                wait(rng.below(400));
                node.start((4 + now / 2) * 100, 100);
            }
        });
    }
}

#[test]
fn row_04_brokers_are_killed() {
    if !servers::is_available() {
        return;
    }
    for round in 0..times(1, 2, 50) {
        exact_after(3, 12, |servers, _| {
            for broker in 0..3 {
                wait(800 + 37 * round as u64 % 500);
                servers.kill(broker);
                wait(600);
                servers.revive(broker);
            }
            wait(1000);
            (0..2).for_each(|broker| servers.kill(broker));
            wait(1000);
            (0..2).for_each(|broker| servers.revive(broker));
            wait(1000);
            (0..3).for_each(|broker| servers.kill(broker));
            wait(500);
        });
    }
}

#[test]
fn row_05_brokers_and_nodes_are_stopped() {
    if !servers::is_available() {
        return;
    }
    for round in 0..times(1, 2, 33) {
        exact_after(3, 10, |servers, nodes| {
            wait(500);
            let broker = round % 3;
            servers.stop(broker);
            wait(2500);
            servers.resume(broker);
            wait(500);
            // Longer than its lease: no other process has its directory, so it keeps its node id.
            nodes.all[round % 3].signal("-STOP");
            wait(if round % 2 == 0 { 2000 } else { 6000 });
            nodes.all[round % 3].signal("-CONT");
            wait(500);
            (0..2).for_each(|broker| servers.stop(broker));
            wait(1500);
            (0..2).for_each(|broker| servers.resume(broker));
        });
    }
}

#[test]
fn row_06_stores_are_wiped() {
    if !servers::is_available() {
        return;
    }
    for round in 0..times(1, 2, 30) {
        exact_after(3, 8, |servers, nodes| {
            wait(3000);
            if round % 2 == 0 {
                (0..3).for_each(|broker| servers.wipe(broker));
                wait(300);
                (0..3).for_each(|broker| servers.revive(broker));
                wait(1500);
            }
            // One node is away when it happens again.
            nodes.all[2].kill();
            (0..3).for_each(|broker| servers.wipe(broker));
            (0..3).for_each(|broker| servers.revive(broker));
            wait(3000);
        });
    }
}

#[test]
fn row_09_the_stream_ages_out_under_a_reader_that_stands() {
    if !servers::is_available() {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for _ in 0..times(1, 2, 20) {
        exact_after(3, 6, |servers, nodes| {
            nodes.all[1].signal("-STOP");
            wait(3000);
            // As if all messages had aged out at once.
            runtime.block_on(async {
                let nats = Nats::connect(NatsSettings::new(servers.urls(), "suite")).await.unwrap();
                let bounds = nats.ready(Duration::from_secs(120)).await.unwrap();
                assert!(bounds.last > 0);
                nats.drop_before(bounds.last).await.unwrap();
                assert!(nats.bounds().await.unwrap().first >= bounds.last);
            });
            nodes.all[1].signal("-CONT");
        });
    }
}

#[test]
fn row_10_nodes_are_cut_off() {
    if !servers::is_available() {
        return;
    }
    for round in 0..times(1, 2, 30) {
        let mut servers = Servers::start(3);
        let proxies: Vec<Proxy> = (0..3).map(|_| Proxy::start(servers.ports())).collect();
        let mut nodes = Nodes::new(3, &servers.urls());
        for (node, proxy) in nodes.all.iter_mut().zip(&proxies) {
            node.connect_to(proxy.urls());
        }
        nodes.start_all(1000, 100);
        nodes.begun();
        wait(500);
        proxies[0].cut(true);
        wait(if round % 2 == 0 { 2500 } else { 10_000 });
        proxies[1].cut(true);
        wait(1000);
        proxies[0].cut(false);
        servers.kill(round % 3);
        wait(1500);
        proxies[1].cut(false);
        servers.revive(round % 3);
        nodes.exact_for_late_comers_too(&servers.urls());
    }
}

#[test]
fn row_14_a_backup_is_restored_and_a_copy_is_turned_away() {
    if !servers::is_available() {
        return;
    }
    for _ in 0..times(1, 2, 10) {
        let (servers, mut nodes) = exact_after(3, 3, |_, _| {});
        // A copy of a running node's directory, at another place.
        let original = nodes.all[0].dir.clone();
        let copied = nodes.add(&servers.urls());
        let copy = nodes.all[copied].dir.clone();
        copy_files(&original, &copy);
        nodes.all[copied].start(0, 1);
        let refusal = found("a second process with the same node id is refused", || {
            nodes.was_refused(copied).ok_or("it is not refused")
        });
        assert!(refusal.contains("already in the fleet"), "{refusal}");
        nodes.all[copied].kill();
        // The original goes on, is lost, and is restored.
        nodes.all[0].kill();
        nodes.all[0].start(500, 200);
        nodes.settle();
        nodes.all[0].kill();
        let kept = nodes.all[0].dir.with_extension("lost");
        std::fs::rename(&original, &kept).unwrap();
        std::fs::rename(&copy, &original).unwrap();
        std::fs::create_dir_all(&copy).unwrap();
        nodes.all[0].start(600, 200);
        nodes.settle();
        let said = nodes.all[0].said().unwrap();
        assert_eq!(said.status.epoch, 2, "another epoch of the same node");
        // Attempts of the lost directory count: its log is one of all.
        nodes.check_with(&[kept]);
    }
}

fn copy_files(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let name = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_files(&entry.path(), &name),
            false => drop(std::fs::copy(entry.path(), name).unwrap()),
        }
    }
}
