//! The state of all peers, as a fold of events: a version vector per node, and what of it counts.
//!
//! Owns: the rules by which attempts and link states count. An attempt counts once, not in a
//! forgotten domain, and not from an excluded node.
//!
//! Invariants: the same events result in the same state: live, after a crash and offline.
//!
//! Must not know: files or brokers.

use std::collections::BTreeMap;

use bytes::Bytes;
use fetchwise::evidence::RemoteAttempt;
use fetchwise::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::codec::Batch;
use crate::model::evidence_snapshot::SnapshotHead;
use crate::model::node_id::NodeId;
use crate::model::options::Scope;
use crate::model::peer_link_states::{RemoteLinks, RowSource, StoredLink};
use crate::model::position::Position;
use crate::model::position_set::Intervals;

/// The maximum time in milliseconds by which an attempt may be newer than its message. A node that
/// exceeds it is set aside.
pub use crate::model::evidence_snapshot::MAX_AHEAD_MS;

/// The state of one peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerState {
    /// The positions that were seen, by epoch.
    pub seen: BTreeMap<u32, Intervals>,
    /// The base of each epoch.
    pub bases: BTreeMap<u32, u64>,
    /// Whether it is excluded: its evidence does not count and its messages are not read.
    pub is_excluded: bool,
    /// The reason why its messages are not read until an operator accepts them again.
    pub aside: Option<String>,
    /// The number of its attempts that count, those in snapshots excepted.
    pub facts: u64,
    /// The last position that its applied snapshot covers, if any.
    pub share: u64,
    /// Whether its evidence is mixed with that of a domain that was forgotten since. A newer
    /// snapshot replaces it.
    #[serde(default)]
    pub is_stale: bool,
    /// The time at which the broker stored its last message, in milliseconds since 1970; 0 if
    /// unknown.
    #[serde(default)]
    pub heard_at: i64,
    /// Whether it has been away for long: its gaps are not requested, and its evidence goes once it
    /// has faded.
    #[serde(default)]
    pub is_closed: bool,
    /// Whether only the evidence of some sites was applied.
    #[serde(default)]
    pub is_part: bool,
}

impl PeerState {
    /// Returns the time at which the broker stored its last message.
    pub fn last_heard(&self) -> Timestamp {
        Timestamp::from_millis(self.heard_at)
    }

    /// Returns whether its messages are read.
    pub fn is_accepted(&self) -> bool {
        !self.is_excluded && self.aside.is_none()
    }

    /// Returns whether all positions of a message were seen.
    pub fn covers(&self, epoch: u32, first: u64, last: u64) -> bool {
        self.seen.get(&epoch).is_some_and(|seen| seen.covers(first, last))
    }

    /// Returns the last known epoch.
    pub fn epoch(&self) -> u32 {
        self.seen.keys().next_back().copied().unwrap_or(0)
    }

    /// Returns the last known position of an epoch.
    pub fn top(&self, epoch: u32) -> u64 {
        self.seen.get(&epoch).and_then(Intervals::top).unwrap_or(0)
    }

    /// Returns the base of an epoch.
    pub fn base(&self, epoch: u32) -> u64 {
        self.bases.get(&epoch).copied().unwrap_or(0)
    }

    /// Returns the gaps of each epoch, given what else is known of its end.
    pub fn holes(&self, known: Option<(u32, u64, u64)>) -> Vec<(u32, u64, u64)> {
        let mut holes = Vec::new();
        let mut epochs: BTreeMap<u32, (u64, u64)> = self
            .seen
            .iter()
            .map(|(epoch, seen)| (*epoch, (self.base(*epoch), seen.top().unwrap_or(0))))
            .collect();
        if let Some((epoch, base, top)) = known {
            let known = epochs.entry(epoch).or_insert((base, 0));
            *known = (known.0.max(base), known.1.max(top));
        }
        let nothing = Intervals::default();
        for (epoch, (base, top)) in epochs {
            let seen = self.seen.get(&epoch).unwrap_or(&nothing);
            if base >= top {
                continue;
            }
            holes.extend(
                seen.holes(base.saturating_add(1), top).map(|(first, last)| (epoch, first, last)),
            );
        }
        holes
    }
}

/// A held global snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldGlobalSnapshot {
    /// The epoch of its node.
    pub epoch: u32,
    /// The last position that it covers.
    pub position: u64,
    /// The time at which the broker stored it.
    pub at: Timestamp,
    /// The bytes as received. Its evidence is retracted when another snapshot replaces it.
    pub body: Bytes,
}

impl HeldGlobalSnapshot {
    pub(crate) fn new(head: &SnapshotHead, at: Timestamp, body: Bytes) -> Self {
        Self { epoch: head.epoch, position: head.position(), at, body }
    }
}

/// The result of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageCounts {
    /// Attempts that count from now on.
    pub learned: u64,
    /// Attempts that were already known.
    pub duplicate: u64,
    /// Attempts of forgotten domains.
    pub forgotten: u64,
}

/// The state of all peers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerStates {
    /// The peers by node id. This node is among them if another epoch of it was received.
    pub peers: BTreeMap<NodeId, PeerState>,
    /// In scope `own`: the global snapshot of each peer.
    pub global_snapshots: BTreeMap<NodeId, HeldGlobalSnapshot>,
    /// The last message that was read.
    pub cursor: Position,
    /// Forgotten domains, each with the time up to which nothing counts.
    pub forgotten: BTreeMap<String, Timestamp>,
    /// The link states of peers.
    pub links: RemoteLinks,
    /// This node, and the positions of its epochs that are in its own log.
    pub own: Option<(NodeId, BTreeMap<u32, Intervals>)>,
    /// For tests: whether positions that were seen before count again.
    pub(crate) counts_twice: bool,
}

/// The persisted form of [`PeerStates`].
#[derive(Debug, Serialize, Deserialize)]
struct StoredPeerStates {
    peers: BTreeMap<String, PeerState>,
    incarnation: u64,
    seq: u64,
    forgotten: BTreeMap<String, i64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    links: BTreeMap<String, Vec<StoredLink>>,
}

impl PeerStates {
    /// Returns whether positions are in the node's own log.
    fn is_own(&self, node_id: NodeId, epoch: u32, first: u64, last: u64) -> bool {
        let own = self.own.as_ref().filter(|(own, _)| *own == node_id);
        own.and_then(|(_, held)| held.get(&epoch)).is_some_and(|held| held.covers(first, last))
    }

    /// Returns whether a message has nothing new.
    pub fn is_known(&self, node_id: NodeId, epoch: u32, first: u64, last: u64) -> bool {
        self.is_own(node_id, epoch, first, last)
            || self.peers.get(&node_id).is_some_and(|peer| peer.covers(epoch, first, last))
                && !self.counts_twice
    }

    /// Returns whether messages of the node are read.
    pub fn is_accepted(&self, node_id: NodeId) -> bool {
        self.peers.get(&node_id).is_none_or(PeerState::is_accepted)
    }

    /// Returns whether an attempt is forgotten.
    pub fn is_forgotten(&self, fact: &RemoteAttempt<'_>) -> bool {
        let until = || self.forgotten.get(fact.domain()?);
        !self.forgotten.is_empty() && until().is_some_and(|until| fact.at <= *until)
    }

    /// Applies a message: calls `learn` with each attempt that counts and did not count before.
    ///
    /// `at` is the time at which the broker stored it. A node that publishes has not left.
    pub fn apply_message(
        &mut self,
        node_id: NodeId,
        batch: &Batch,
        at: Timestamp,
        mut learn: impl FnMut(&RemoteAttempt<'_>),
    ) -> MessageCounts {
        let header = *batch.header();
        let own = self
            .own
            .as_ref()
            .filter(|(own, _)| *own == node_id)
            .and_then(|(_, held)| held.get(&header.epoch));
        let mut counted = MessageCounts::default();
        let nothing = Intervals::default();
        let seen = self
            .peers
            .get(&node_id)
            .and_then(|peer| peer.seen.get(&header.epoch))
            .unwrap_or(&nothing);
        batch.each(|position, fact, _| {
            let is_known = own.is_some_and(|own| own.contains(position));
            if is_known || seen.contains(position) && !self.counts_twice {
                counted.duplicate += 1;
            } else if self.is_forgotten(fact) {
                counted.forgotten += 1;
            } else {
                counted.learned += 1;
                learn(fact);
            }
        });
        let own = own.cloned();
        let peer = self.peers.entry(node_id).or_default();
        let seen = peer.seen.entry(header.epoch).or_default();
        seen.insert(header.first, header.last);
        // Positions of a former epoch that the node's own log holds are not missing.
        own.iter().for_each(|own| seen.extend(own));
        peer.bases.insert(header.epoch, header.base);
        peer.facts += counted.learned;
        (peer.heard_at, peer.is_closed) = (peer.heard_at.max(at.as_millis()), false);
        counted
    }

    /// Applies the link states of a message that the broker stored at `at`. Returns the links whose
    /// state may have changed.
    pub fn apply_links(&mut self, node_id: NodeId, batch: &Batch, at: Timestamp) -> Vec<u64> {
        let mut changed = Vec::new();
        if batch.links() == 0 {
            return changed;
        }
        let epoch = batch.header().epoch;
        let own = self
            .own
            .as_ref()
            .filter(|(own, _)| *own == node_id)
            .and_then(|(_, held)| held.get(&epoch));
        batch.each_link(|position, link| {
            if !own.is_some_and(|own| own.contains(position)) {
                let forgotten = self.forgotten.get(link.domain).copied();
                changed.extend(self.links.apply(
                    RowSource { node_id, position, at },
                    link,
                    batch.egress(),
                    forgotten,
                ));
            }
        });
        changed
    }

    /// Returns whether a message that the broker stored at `at` has a newer link state although all
    /// of its attempts are known. That happens after a snapshot, which may lack link states.
    pub fn has_newer_links(&self, node_id: NodeId, batch: &Batch, at: Timestamp) -> bool {
        let mut is_newer = false;
        batch.each_link(|position, link| {
            let is_forgotten =
                self.forgotten.get(link.domain).is_some_and(|until| link.at <= *until);
            is_newer |=
                !is_forgotten && self.links.is_newer(RowSource { node_id, position, at }, link);
        });
        is_newer
    }

    /// Replaces everything known of a node by a snapshot. `is_stale` if it is mixed with evidence
    /// that was forgotten.
    pub fn apply_snapshot(
        &mut self,
        node_id: NodeId,
        covers: &BTreeMap<u32, Intervals>,
        base: (u32, u64),
        is_stale: bool,
        at: Timestamp,
    ) {
        let peer = self.peers.entry(node_id).or_default();
        peer.heard_at = peer.heard_at.max(at.as_millis());
        peer.seen.clone_from(covers);
        peer.bases.insert(base.0, base.1);
        // Each epoch begins where its coverage begins, unless a better base is known.
        for (epoch, seen) in covers {
            let begin = seen.runs().first().map_or(0, |run| run.0.saturating_sub(1));
            peer.bases.entry(*epoch).or_insert(begin);
        }
        peer.is_stale = is_stale;
        peer.facts = 0;
        peer.share = covers.get(&base.0).and_then(Intervals::top).unwrap_or(0);
    }

    /// Sets whether the snapshot was applied for some sites only.
    pub(crate) fn set_partial(&mut self, node_id: NodeId, is_part: bool) {
        self.peers.entry(node_id).or_default().is_part = is_part;
    }

    /// Excludes a node: none of its evidence counts any more.
    pub fn exclude(&mut self, node_id: NodeId) {
        let peer = self.peers.entry(node_id).or_default();
        *peer = PeerState { is_excluded: true, aside: peer.aside.take(), ..PeerState::default() };
        self.global_snapshots.remove(&node_id);
        self.links.drop_node(node_id);
    }

    /// Replaces the global snapshot of a node.
    pub(crate) fn set_global_snapshot(&mut self, node_id: NodeId, held: HeldGlobalSnapshot) {
        self.global_snapshots.insert(node_id, held);
    }

    /// Returns whether the state was read in this scope, as far as it shows.
    pub(crate) fn matches_scope(&self, scope: Scope) -> bool {
        match scope {
            Scope::All => {
                self.global_snapshots.is_empty() && !self.peers.values().any(|peer| peer.is_part)
            }
            // A node may already know lost epochs of this log.
            Scope::Own => {
                let own = self.own.as_ref().map(|(own, _)| *own);
                self.peers.iter().all(|(node_id, peer)| {
                    Some(*node_id) == own || peer.is_part || peer.seen.is_empty()
                })
            }
        }
    }

    /// Includes a node again, from nothing on.
    pub fn include(&mut self, node_id: NodeId) {
        let peer = self.peers.entry(node_id).or_default();
        (peer.is_excluded, peer.aside) = (false, None);
    }

    /// Sets a node aside: its messages are not read until an operator accepts them again.
    pub fn set_aside(&mut self, node_id: NodeId, why: String) {
        self.peers.entry(node_id).or_default().aside = Some(why);
    }

    /// Closes a node that seems to have left for good.
    pub fn close(&mut self, node_id: NodeId) {
        self.peers.entry(node_id).or_default().is_closed = true;
    }

    /// Reopens a node that is back.
    pub fn reopen(&mut self, node_id: NodeId, now: Timestamp) {
        let peer = self.peers.entry(node_id).or_default();
        (peer.is_closed, peer.heard_at) = (false, peer.heard_at.max(now.as_millis()));
    }

    /// Drops the faded evidence of a closed node. Its seen positions stay as one run.
    pub fn drop_faded(&mut self, node_id: NodeId) {
        let Some(peer) = self.peers.get_mut(&node_id).filter(|peer| peer.is_closed) else { return };
        for (epoch, seen) in &mut peer.seen {
            let base = peer.bases.get(epoch).copied().unwrap_or(0);
            *seen = Intervals::of(base.saturating_add(1), seen.top().unwrap_or(base));
        }
        peer.is_stale = false;
    }

    /// Resets the nodes of a mix, whose evidence cannot be separated.
    pub fn dissolve(&mut self, group: &[NodeId]) {
        for node_id in group {
            let peer = self.peers.entry(*node_id).or_default();
            let (is_excluded, aside, heard_at) =
                (peer.is_excluded, peer.aside.take(), peer.heard_at);
            *peer = PeerState { is_excluded, aside, heard_at, ..PeerState::default() };
        }
    }

    /// Forgets a domain up to `until`. Returns false if that was known.
    pub fn forget(&mut self, domain: &str, until: Timestamp) -> bool {
        self.links.forget(domain, until);
        match self.forgotten.get_mut(domain) {
            Some(known) if *known >= until => false,
            Some(known) => {
                *known = until;
                true
            }
            None => self.forgotten.insert(domain.to_owned(), until).is_none(),
        }
    }

    /// Encodes the state for a snapshot.
    pub fn encode(&self) -> Vec<u8> {
        let kept = StoredPeerStates {
            peers: self
                .peers
                .iter()
                .map(|(node_id, peer)| (node_id.to_string(), peer.clone()))
                .collect(),
            incarnation: self.cursor.incarnation,
            seq: self.cursor.seq,
            forgotten: self
                .forgotten
                .iter()
                .map(|(domain, until)| (domain.clone(), until.as_millis()))
                .collect(),
            links: self.links.stored(),
        };
        // Numbers, texts and maps of them always serialise.
        serde_json::to_vec(&kept).unwrap_or_default()
    }

    /// Decodes the state from a snapshot.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let kept: StoredPeerStates =
            serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let (mut peers, mut links) = (BTreeMap::new(), RemoteLinks::default());
        for (node_id, rows) in kept.links {
            links.restore(
                node_id
                    .parse()
                    .map_err(|error: crate::model::node_id::InvalidNodeId| error.to_string())?,
                rows,
            );
        }
        for (node_id, peer) in kept.peers {
            peers.insert(
                node_id
                    .parse()
                    .map_err(|error: crate::model::node_id::InvalidNodeId| error.to_string())?,
                peer,
            );
        }
        let cursor = Position { incarnation: kept.incarnation, seq: kept.seq };
        let forgotten = kept
            .forgotten
            .into_iter()
            .map(|(name, ms)| (name, Timestamp::from_millis(ms)))
            .collect();
        Ok(Self { peers, cursor, forgotten, links, ..Self::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_positions_are_counted_without_overflow() {
        let mut peer = PeerState::default();
        peer.seen.insert(1, Intervals::of(3, 9));
        assert_eq!(peer.holes(None), [(1, 1, 2)]);
        assert_eq!(peer.holes(Some((1, 2, 12))), [(1, 10, 12)]);
        assert_eq!(peer.holes(Some((2, u64::MAX, u64::MAX))), [(1, 1, 2)]);
        let all = peer.holes(Some((2, 0, u64::MAX)));
        assert_eq!(
            crate::model::position_set::count(all.iter().map(|(_, first, last)| (*first, *last))),
            u64::MAX
        );
    }
}
