//! The global evidence of nodes in scope `own`, in virtual time.
//!
//! Owns: the time at which a node publishes a global snapshot, and what the others then know.
//!
//! Invariants: each snapshot is encoded and decoded by the real codec. Every node receives the same
//! snapshots, so they are summed once, and a node uses that sum without its own snapshot.
//!
//! Must not know: how anything is decided.

use std::collections::BTreeSet;

use fetchwise::attempt::Attempt;
use fetchwise::evidence::{EvidenceSnapshot, Learned};
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;
use fetchwise_fleet::model::evidence_snapshot::SnapshotHead;
use fetchwise_fleet::model::global_evidence::{pack, unpack};
use fetchwise_fleet::model::options::Timing;
use fetchwise_fleet::model::position_set::Intervals;

use crate::error::SimulateError;
use crate::fleet::message_delay::with_fact;
use crate::run::BEGIN_MS;

/// Entries of less weight are left out of snapshots.
const FADED: f64 = 0.01;

/// The traffic of snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SnapshotTraffic {
    pub(super) said: u64,
    /// The size of the newest snapshots of all nodes in bytes.
    pub(super) bytes: u64,
}

/// The state of one node.
struct Side {
    /// The evidence of the node's own attempts.
    folded: Learned,
    position: u64,
    newest: Timestamp,
    said_ms: Option<i64>,
    /// Its last published snapshot.
    image: Option<EvidenceSnapshot>,
    len: u64,
    /// The sum that it has applied, its own snapshot in that sum, and the number of the sum.
    taken: Option<(EvidenceSnapshot, Option<EvidenceSnapshot>)>,
    version: u64,
}

/// The snapshots of all nodes.
pub(super) struct GlobalEvidence {
    sides: Vec<Side>,
    /// The times at which nodes publish their snapshots.
    due: BTreeSet<(i64, usize)>,
    all: Learned,
    newest: Timestamp,
    version: u64,
    every_ms: i64,
    said: u64,
}

fn failed(error: &dyn std::fmt::Display) -> SimulateError {
    SimulateError::Codec(error.to_string())
}

impl GlobalEvidence {
    pub(super) fn new<'s>(
        nodes: impl Iterator<Item = &'s Selector>,
    ) -> Result<Option<Self>, SimulateError> {
        let mut all = None;
        let mut sides = Vec::new();
        for selector in nodes {
            let blank = || selector.learned().empty_copy().map_err(|error| failed(&error));
            if all.is_none() {
                all = Some(blank()?);
            }
            sides.push(Side {
                folded: blank()?,
                position: 0,
                newest: Timestamp::default(),
                said_ms: None,
                image: None,
                len: 0,
                taken: None,
                version: 0,
            });
        }
        let every_ms =
            i64::try_from(Timing::default().global_min_interval.as_millis()).unwrap_or(i64::MAX);
        let (due, newest) = (BTreeSet::new(), Timestamp::default());
        Ok(all.map(|all| Self { sides, due, all, newest, version: 0, every_ms, said: 0 }))
    }

    /// Records an attempt of node `of` at `now_ms`.
    pub(super) fn record(
        &mut self,
        of: usize,
        attempt: &Attempt,
        selector: &Selector,
        now_ms: i64,
    ) {
        let side = &mut self.sides[of];
        side.position += 1;
        with_fact(attempt, selector, |fact| {
            side.folded.receive_global_part(fact);
            side.newest = side.newest.max(fact.at);
        });
        let at = side.said_ms.map_or(now_ms, |said| now_ms.max(said + self.every_ms));
        if !self.due.iter().any(|(_, who)| *who == of) {
            self.due.insert((at, of));
        }
    }

    /// Publishes every snapshot that is due.
    pub(super) fn advance(&mut self, now_ms: i64) -> Result<(), SimulateError> {
        while let Some((at_ms, of)) = self.due.first().copied().filter(|(at, _)| *at <= now_ms) {
            self.due.remove(&(at_ms, of));
            let side = &mut self.sides[of];
            let half_life_ms = side.folded.half_life_ms();
            let covers = [(1, Intervals::of(1, side.position))].into();
            let head = SnapshotHead { epoch: 1, covers, half_life_ms, ..SnapshotHead::default() };
            let packed = pack(&head, &side.folded.evidence_snapshot(side.newest, FADED))
                .map_err(|error| failed(&error))?;
            let at = Timestamp::from_millis(BEGIN_MS + now_ms);
            let (_, share) = unpack(&packed, half_life_ms, at).map_err(|what| failed(&what))?;
            self.all.add_snapshot(&share);
            if let Some(before) = side.image.replace(share) {
                self.all.retract_snapshot(&before);
            }
            (side.said_ms, side.len) = (Some(at_ms), packed.len() as u64);
            self.newest = self.newest.max(side.newest);
            self.version += 1;
            self.said += 1;
        }
        Ok(())
    }

    /// Applies the snapshots of the other nodes to node `of`.
    pub(super) fn read(&mut self, of: usize, selector: &Selector) {
        let side = &mut self.sides[of];
        if side.version == self.version {
            return;
        }
        side.version = self.version;
        let all = self.all.evidence_snapshot(self.newest, 0.0);
        selector.learned().add_snapshot(&all);
        if let Some(own) = &side.image {
            selector.learned().retract_snapshot(own);
        }
        if let Some((all, own)) = side.taken.replace((all, side.image.clone())) {
            if let Some(own) = own {
                selector.learned().add_snapshot(&own);
            }
            selector.learned().retract_snapshot(&all);
        }
    }

    pub(super) fn images(&self) -> SnapshotTraffic {
        SnapshotTraffic { said: self.said, bytes: self.sides.iter().map(|side| side.len).sum() }
    }
}
