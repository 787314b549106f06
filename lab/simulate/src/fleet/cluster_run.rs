//! One run of many nodes: which node gets which URL, and which remote attempts it knows when it
//! decides.
//!
//! Invariants: a node observes each attempt of another node once, by the peer state of real nodes,
//! and not before its message has arrived.
//!
//! Must not know: the use of the counters.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use fetchwise::attempt::Attempt;
use fetchwise::selector::{Selector, Sink, SinkError};
use fetchwise::time::Clock;
use fetchwise_fleet::model::node_id::NodeId;
use fetchwise_fleet::model::peer_state::PeerStates;
use fetchwise_fleet::model::position_set::Intervals;
use fetchwise_fleet::model::rendezvous::owner;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::counters::Counters;
use crate::environment::Environment;
use crate::error::SimulateError;
use crate::fleet::global_evidence::{GlobalEvidence, SnapshotTraffic};
use crate::fleet::message_delay::{MessageBroker, Traffic};
use crate::fleet::topology::{Egress, Topology};
use crate::generate::Visit;
use crate::policies::{Compares, RunPolicy};
use crate::run::{Crawler, RunContext};
use crate::visit_driver::Timing;

/// The number of URLs after which all nodes read the arrived messages, so that they need not be
/// kept.
const READ_EVERY: usize = 1024;
/// The purpose of the random assignment of URLs, besides the seed.
const HANDED: u64 = 0x0066_6c65_6574;

/// The result of a run.
pub(super) struct Run {
    pub(super) tally: Counters,
    pub(super) traffic: Traffic,
    pub(super) images: SnapshotTraffic,
}

/// A sink that holds attempts like a node's log, until they are published.
#[derive(Clone, Default)]
struct PendingAttempts(Arc<Mutex<Vec<Attempt>>>);

impl PendingAttempts {
    fn take(&self) -> Vec<Attempt> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Sink for PendingAttempts {
    fn append(&self, attempt: &Attempt) -> Result<(), SinkError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(attempt.clone());
        Ok(())
    }
}

/// A node.
struct Node {
    selector: Selector,
    compares: Option<Compares>,
    taken: PendingAttempts,
    states: PeerStates,
    /// The next message to read.
    next: u64,
}

impl Node {
    fn new(
        stage: &RunContext<'_>,
        player: RunPolicy,
        clock: &Arc<Clock>,
        origin: NodeId,
    ) -> Result<Self, SimulateError> {
        let mut selector = stage.selector(player.policy, player.tags, player.priors, clock)?;
        let taken = PendingAttempts::default();
        selector.set_sink(Box::new(taken.clone()));
        // A node's log contains all of its attempts.
        let own = BTreeMap::from([(1, Intervals::of(1, u64::MAX))]);
        let mut states = PeerStates::default();
        states.own = Some((origin, own));
        Ok(Self { selector, compares: player.compares, taken, states, next: 0 })
    }

    /// Applies the arrived messages.
    fn read(&mut self, wire: &MessageBroker, now_ms: i64) {
        while let Some(message) = wire.come(self.next, now_ms) {
            let selector = &self.selector;
            self.states.apply_message(message.origin, &message.batch, message.at(), |fact| {
                selector.learned().receive_attempt(fact)
            });
            self.next += 1;
        }
    }
}

/// Runs one topology in a world.
pub(super) fn run(
    stage: &RunContext<'_>,
    make: &dyn Fn() -> RunPolicy,
    way: Topology,
    count: usize,
    egress: Egress,
) -> Result<Run, SimulateError> {
    let clock = RunContext::clock();
    let origins = origins(count);
    let nodes: Result<Vec<Node>, _> =
        origins.iter().map(|origin| Node::new(stage, make(), &clock, *origin)).collect();
    let mut nodes = nodes?;
    let grounds = if egress == Egress::Each { count } else { 1 };
    let mut grounds: Vec<Environment<'_>> = (0..grounds)
        .map(|_| Environment::new(stage.world, stage.web, stage.tools, stage.seed))
        .collect();
    let sites = if matches!(way, Topology::Sites | Topology::Own) {
        by_site(stage, &origins)
    } else {
        Vec::new()
    };
    let mut wire = match way {
        Topology::Sharing(delay) => Some(MessageBroker::new(
            origins,
            i64::try_from(delay.as_millis()).unwrap_or(i64::MAX / 4),
        )),
        _ => None,
    };
    let mut generals = match way {
        Topology::Own => GlobalEvidence::new(nodes.iter().map(|node| &node.selector))?,
        _ => None,
    };
    let (mut failed, mut visits) = (None, 0usize);
    let tally = stage.run(|visit| {
        let of = match way {
            Topology::Sites | Topology::Own => {
                sites[stage.web.hosts[visit.host as usize].site as usize]
            }
            _ => drawn(stage.seed, visit, count),
        };
        if let Some(wire) = &mut wire {
            let come = wire.advance(visit.at_ms);
            failed = failed.take().or(come.err());
            nodes[of].read(wire, visit.at_ms);
        }
        if let Some(generals) = &mut generals {
            failed = failed.take().or(generals.advance(visit.at_ms).err());
            generals.read(of, &nodes[of].selector);
        }
        let node = &nodes[of];
        let crawler =
            Crawler { selector: &node.selector, compares: node.compares.as_deref(), clock: &clock };
        let ground = if grounds.len() > 1 { of } else { 0 };
        let fetched = stage.fetch(crawler, visit, &mut grounds[ground], &mut Timing::default());
        let taken = node.taken.take();
        if let Some(generals) = &mut generals {
            taken
                .iter()
                .for_each(|attempt| generals.record(of, attempt, &node.selector, visit.at_ms));
        }
        if let Some(wire) = &mut wire {
            for attempt in &taken {
                let recorded = wire.record(of, attempt, &node.selector, visit.at_ms);
                failed = failed.take().or(recorded.err());
            }
            visits += 1;
            if visits.is_multiple_of(READ_EVERY) {
                nodes.iter_mut().for_each(|node| node.read(wire, visit.at_ms));
                wire.forget(nodes.iter().map(|node| node.next).min().unwrap_or(0));
            }
        }
        fetched
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(Run {
            tally,
            traffic: wire.map(|wire| wire.traffic).unwrap_or_default(),
            images: generals.map(|generals| generals.images()).unwrap_or_default(),
        }),
    }
}

/// Returns the node names, the same in each run.
fn origins(count: usize) -> Vec<NodeId> {
    let name = |number: usize| {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&xxh3_64(&number.to_le_bytes()).to_le_bytes());
        bytes[8..].copy_from_slice(&number.to_le_bytes()[..8]);
        NodeId::from_bytes(bytes)
    };
    (0..count).map(name).collect()
}

/// Returns the node of a URL in a random assignment.
fn drawn(seed: u64, visit: &Visit, count: usize) -> usize {
    (xxh3_64_with_seed(&visit.id.to_le_bytes(), seed ^ HANDED) % count.max(1) as u64) as usize
}

/// Returns the node of each site, in a crawl divided by site.
fn by_site(stage: &RunContext<'_>, origins: &[NodeId]) -> Vec<usize> {
    let sites = stage.web.hosts.iter().map(|host| host.site as usize + 1).max().unwrap_or(0);
    let of = |site: usize| {
        let owner = owner(&format!("site{site}.com"), origins);
        origins.iter().position(|origin| Some(*origin) == owner).unwrap_or(0)
    };
    (0..sites).map(of).collect()
}
