//! The fault suite's row of scope `own`: nodes are killed; each knows its own sites, and global
//! evidence of the rest.
//!
//! Global evidence is compared with one fold of all logs. For a site whose owner did not record it,
//! the owner knows what had been published at the handover: everything, if all nodes had converged
//! before.

use std::path::PathBuf;

use crate::cluster_faults::{times, wait};
use crate::common::TestRng;
use crate::node_control::{Handover, Handovers, Node, Nodes, Oracle};
use crate::servers::{self, Servers};

const RATE: usize = 50;

/// Returns all nodes by directory, with the number of attempts in each log.
fn all(nodes: &Nodes) -> Vec<(PathBuf, String, usize)> {
    let of = |node: &Node| {
        let said = node.said().unwrap();
        (node.dir.clone(), said.status.node, said.recorded)
    };
    nodes.all.iter().map(of).collect()
}

/// Returns the expected evidence after every node has applied that of all others, with sites
/// divided among all.
fn divided(nodes: &Nodes) -> Oracle {
    let all = all(nodes);
    let among: Vec<String> = all.iter().map(|(_, name, _)| name.clone()).collect();
    let names = all.iter().map(|(dir, name, _)| (dir.clone(), name.clone())).collect();
    let mut divided = Handovers { names, taken: Vec::new() };
    for (by, ..) in &all {
        for (of, _, attempts) in all.iter().filter(|(of, ..)| of != by) {
            let (by, of) = (by.clone(), of.clone());
            divided.taken.push(Handover { by, of, among: among.clone(), attempts: *attempts });
        }
    }
    Oracle { divided: Some(divided), ..nodes.oracle() }
}

/// Kills a node after convergence; the others take over its sites.
fn one_goes(nodes: &mut Nodes, oracle: &mut Oracle, gone: usize) {
    let left: Vec<usize> = (0..nodes.all.len()).filter(|n| *n != gone).collect();
    let all = all(nodes);
    let among: Vec<String> = left.iter().map(|n| all[*n].1.clone()).collect();
    let before: Vec<u64> = left
        .iter()
        .map(|n| nodes.all[*n].said().unwrap().status.counts.snapshots_applied)
        .collect();
    nodes.all[gone].kill();
    for (n, before) in left.iter().zip(before) {
        nodes.wait_until(&[*n], "its sites have new owners", |said| {
            said.status.counts.snapshots_applied > before
        });
        let (by, of) = (all[*n].0.clone(), all[gone].0.clone());
        let taken = Handover { by, of, among: among.clone(), attempts: all[gone].2 };
        oracle.divided.as_mut().unwrap().taken.push(taken);
    }
}

#[test]
fn row_02_nodes_of_scope_own_are_killed() {
    if !servers::is_available() {
        return;
    }
    let (mut rng, mut left) = (TestRng(20), times(3, 10, 200));
    while left > 0 {
        let kills = left.min(10);
        left -= kills;
        let mut servers = Servers::start(3);
        let mut nodes = Nodes::new(4, &servers.urls());
        nodes.all.iter_mut().for_each(|node| node.set("OWN", 1));
        // A snapshot covers the beginning, and the stream the rest.
        nodes.all.iter_mut().for_each(|node| node.set("SHARE_AFTER", 120));
        let count = (5 + kills / 2) * RATE;
        nodes.start_all(count, RATE);
        nodes.begun();
        for _ in 0..kills {
            wait(200 + rng.below(900));
            let node = &mut nodes.all[rng.below(4) as usize];
            node.kill();
            wait(rng.below(400));
            node.start(count, RATE);
        }
        nodes.settle();
        // At its last start a node may have applied more from one node than from another. Once all
        // restart, it is everything.
        nodes.all.iter_mut().for_each(Node::kill);
        nodes.start_all(count, RATE);
        nodes.settle();
        let mut oracle = divided(&nodes);
        nodes.check_by(&oracle);

        let gone = rng.below(4) as usize;
        one_goes(&mut nodes, &mut oracle, gone);
        let who: Vec<usize> = (0..4).filter(|n| *n != gone).collect();
        nodes.check_of(&who, &oracle);

        // A broker is down when it comes back, records more, and is killed once more. On start it
        // applies the others' evidence of its sites.
        servers.kill(rng.below(3) as usize);
        nodes.all[gone].start(count + 2 * RATE, RATE);
        wait(1500);
        nodes.all[gone].kill();
        (0..3).for_each(|broker| servers.revive(broker));
        nodes.all[gone].start(count + 2 * RATE, RATE);
        nodes.settle();
        // Of its attempts after the handover the others know global evidence only.
        nodes.check_by(&oracle);
    }
}
