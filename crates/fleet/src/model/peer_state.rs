//! What has come from others, as a fold of events: who has been heard up to where, and what of it counts.
//!
//! Owns the rules by which a message's facts count: once, not where a domain was forgotten, not from who is excluded; and so for what
//! it says of links. Invariant: the
//! same events give the same book, live, after a crash and offline. Must not know files nor brokers.

use std::collections::BTreeMap;

use bytes::Bytes;
use fetchwise::evidence::Fact;
use fetchwise::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::codec::Batch;
use crate::model::evidence_snapshot::Head;
use crate::model::intervals::Intervals;
use crate::model::links::{Heard, Kept as KeptLink, Links};
use crate::model::node_id::Origin;
use crate::model::options::Scope;
use crate::transport::Position;

/// A fact may be so much later than its message; an origin that sends a later one is set aside.
pub use crate::model::evidence_snapshot::AHEAD_MAX_MS;

/// What is known of one origin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// What has been seen of each of its histories.
    pub seen: BTreeMap<u32, Intervals>,
    /// Where each begins.
    pub bases: BTreeMap<u32, u64>,
    /// Its evidence does not count, and nothing of it is read.
    pub is_excluded: bool,
    /// Why its messages are not read until an operator says so.
    pub aside: Option<String>,
    /// How many facts of it count, shares left out.
    pub facts: u64,
    /// The position that its share, if one was taken, covers of its history then.
    pub share: u64,
    /// Its evidence is mixed with that of a domain which was forgotten since: a share made after that is to take its place.
    #[serde(default)]
    pub is_stale: bool,
    /// When the broker had its last message, in milliseconds since 1970; 0 where that is not known.
    #[serde(default)]
    pub heard_at: i64,
    /// It has not been seen for long: nobody asks for what is missing of it, and its evidence goes when it has faded.
    #[serde(default)]
    pub is_closed: bool,
    /// What was taken of it belongs to some sites only.
    #[serde(default)]
    pub is_part: bool,
}

impl Peer {
    /// When the broker had its last message.
    pub fn heard(&self) -> Timestamp {
        Timestamp::from_millis(self.heard_at)
    }

    /// Whether it is listened to.
    pub fn is_heard(&self) -> bool {
        !self.is_excluded && self.aside.is_none()
    }

    /// Whether all positions of a message have been seen.
    pub fn covers(&self, epoch: u32, first: u64, last: u64) -> bool {
        self.seen.get(&epoch).is_some_and(|seen| seen.covers(first, last))
    }

    /// The last history that anything is known of.
    pub fn epoch(&self) -> u32 {
        self.seen.keys().next_back().copied().unwrap_or(0)
    }

    /// The last position that is known of a history.
    pub fn top(&self, epoch: u32) -> u64 {
        self.seen.get(&epoch).and_then(Intervals::top).unwrap_or(0)
    }

    /// The base of a history.
    pub fn base(&self, epoch: u32) -> u64 {
        self.bases.get(&epoch).copied().unwrap_or(0)
    }

    /// What is missing of each history, given what else is known of its end.
    pub fn holes(&self, known: Option<(u32, u64, u64)>) -> Vec<(u32, u64, u64)> {
        let mut holes = Vec::new();
        let mut epochs: BTreeMap<u32, (u64, u64)> =
            self.seen.iter().map(|(epoch, seen)| (*epoch, (self.base(*epoch), seen.top().unwrap_or(0)))).collect();
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
            holes.extend(seen.holes(base.saturating_add(1), top).map(|(first, last)| (epoch, first, last)));
        }
        holes
    }
}

/// A general image that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The history of its origin that it is of.
    pub epoch: u32,
    /// Up to which position.
    pub position: u64,
    /// When the broker had it.
    pub at: Timestamp,
    /// It, as it came: what was learned from it is taken back when another takes its place.
    pub body: Bytes,
}

impl Held {
    pub(crate) fn new(head: &Head, at: Timestamp, body: Bytes) -> Self {
        Self { epoch: head.epoch, position: head.position(), at, body }
    }
}

/// What came of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Facts that count from now on.
    pub learned: u64,
    /// Facts that were known.
    pub duplicate: u64,
    /// Facts of domains that were forgotten.
    pub forgotten: u64,
}

/// What has come from others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Book {
    /// By origin; its own one where another history of it has been heard of.
    pub peers: BTreeMap<Origin, Peer>,
    /// In scope `own`, what belongs to no one site of each of the others.
    pub generals: BTreeMap<Origin, Held>,
    /// The last message that was read.
    pub cursor: Position,
    /// Domains of which nothing counts that is not later than this.
    pub forgotten: BTreeMap<String, Timestamp>,
    /// What others have said of links.
    pub links: Links,
    /// The node itself, and what of its histories is in its own log.
    pub own: Option<(Origin, BTreeMap<u32, Intervals>)>,
    /// A switch for tests: whether what has been seen before is left out.
    pub(crate) counts_twice: bool,
}

/// What is kept of a book.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    peers: BTreeMap<String, Peer>,
    incarnation: u64,
    seq: u64,
    forgotten: BTreeMap<String, i64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    links: BTreeMap<String, Vec<KeptLink>>,
}

impl Book {
    /// Whether a position stands in the node's own log.
    fn is_own(&self, origin: Origin, epoch: u32, first: u64, last: u64) -> bool {
        let own = self.own.as_ref().filter(|(own, _)| *own == origin);
        own.and_then(|(_, held)| held.get(&epoch)).is_some_and(|held| held.covers(first, last))
    }

    /// Whether a message has nothing new.
    pub fn knows(&self, origin: Origin, epoch: u32, first: u64, last: u64) -> bool {
        self.is_own(origin, epoch, first, last)
            || self.peers.get(&origin).is_some_and(|peer| peer.covers(epoch, first, last)) && !self.counts_twice
    }

    /// Whether anything of the origin is listened to.
    pub fn is_heard(&self, origin: Origin) -> bool {
        self.peers.get(&origin).is_none_or(Peer::is_heard)
    }

    /// Whether what a fact says is forgotten.
    pub fn is_forgotten(&self, fact: &Fact<'_>) -> bool {
        let until = || self.forgotten.get(fact.domain()?);
        !self.forgotten.is_empty() && until().is_some_and(|until| fact.at <= *until)
    }

    /// Takes a message: shows `learn` each fact that counts and did not before.
    ///
    /// `at` is when the broker had it: whoever says something has not left.
    pub fn message(
        &mut self,
        origin: Origin,
        batch: &Batch,
        at: Timestamp,
        mut learn: impl FnMut(&Fact<'_>),
    ) -> Counted {
        let header = *batch.header();
        let own = self.own.as_ref().filter(|(own, _)| *own == origin).and_then(|(_, held)| held.get(&header.epoch));
        let mut counted = Counted::default();
        let nothing = Intervals::default();
        let seen = self.peers.get(&origin).and_then(|peer| peer.seen.get(&header.epoch)).unwrap_or(&nothing);
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
        let peer = self.peers.entry(origin).or_default();
        let seen = peer.seen.entry(header.epoch).or_default();
        seen.insert(header.first, header.last);
        // What the node's own log holds of a history that it has left is not missing.
        own.iter().for_each(|own| seen.extend(own));
        peer.bases.insert(header.epoch, header.base);
        peer.facts += counted.learned;
        (peer.heard_at, peer.is_closed) = (peer.heard_at.max(at.as_millis()), false);
        counted
    }

    /// Takes what a message says of links, that the broker had at `at`. Returns the links whose state may be another one now.
    pub fn links_of(&mut self, origin: Origin, batch: &Batch, at: Timestamp) -> Vec<u64> {
        let mut changed = Vec::new();
        if batch.links() == 0 {
            return changed;
        }
        let epoch = batch.header().epoch;
        let own = self.own.as_ref().filter(|(own, _)| *own == origin).and_then(|(_, held)| held.get(&epoch));
        batch.each_link(|position, link| {
            if !own.is_some_and(|own| own.contains(position)) {
                let forgotten = self.forgotten.get(link.domain).copied();
                changed.extend(self.links.take(Heard { origin, position, at }, link, batch.egress(), forgotten));
            }
        });
        changed
    }

    /// Whether a message that the broker had at `at` says of some link what is not known, though all of its facts are: where a share
    /// has told those, which says nothing of links.
    pub fn has_news_of_links(&self, origin: Origin, batch: &Batch, at: Timestamp) -> bool {
        let mut is_news = false;
        batch.each_link(|position, link| {
            let is_forgotten = self.forgotten.get(link.domain).is_some_and(|until| link.at <= *until);
            is_news |= !is_forgotten && self.links.is_news(Heard { origin, position, at }, link);
        });
        is_news
    }

    /// A share has taken the place of all that was known of an origin. `is_stale` where it is mixed with what was forgotten.
    pub fn share(
        &mut self,
        origin: Origin,
        covers: &BTreeMap<u32, Intervals>,
        base: (u32, u64),
        is_stale: bool,
        at: Timestamp,
    ) {
        let peer = self.peers.entry(origin).or_default();
        peer.heard_at = peer.heard_at.max(at.as_millis());
        peer.seen.clone_from(covers);
        peer.bases.insert(base.0, base.1);
        // Each history begins where what it covers begins, unless that is known better.
        for (epoch, seen) in covers {
            let begin = seen.runs().first().map_or(0, |run| run.0.saturating_sub(1));
            peer.bases.entry(*epoch).or_insert(begin);
        }
        peer.is_stale = is_stale;
        peer.facts = 0;
        peer.share = covers.get(&base.0).and_then(Intervals::top).unwrap_or(0);
    }

    /// Whether its share was taken for some sites only.
    pub(crate) fn is_part(&mut self, origin: Origin, is_part: bool) {
        self.peers.entry(origin).or_default().is_part = is_part;
    }

    /// Nothing of an origin counts any more.
    pub fn exclude(&mut self, origin: Origin) {
        let peer = self.peers.entry(origin).or_default();
        *peer = Peer { is_excluded: true, aside: peer.aside.take(), ..Peer::default() };
        self.generals.remove(&origin);
        self.links.drop_origin(origin);
    }

    /// A general image has taken the place of its origin's one before.
    pub(crate) fn general(&mut self, origin: Origin, held: Held) {
        self.generals.insert(origin, held);
    }

    /// Whether it was read in that scope, as far as it says anything.
    pub(crate) fn is_of(&self, scope: Scope) -> bool {
        match scope {
            Scope::All => self.generals.is_empty() && !self.peers.values().any(|peer| peer.is_part),
            // Of histories of its own that a node has lost it may know from before.
            Scope::Own => {
                let own = self.own.as_ref().map(|(own, _)| *own);
                self.peers.iter().all(|(origin, peer)| Some(*origin) == own || peer.is_part || peer.seen.is_empty())
            }
        }
    }

    /// It counts again, from nothing on.
    pub fn include(&mut self, origin: Origin) {
        let peer = self.peers.entry(origin).or_default();
        (peer.is_excluded, peer.aside) = (false, None);
    }

    /// It is not listened to until an operator says so.
    pub fn set_aside(&mut self, origin: Origin, why: String) {
        self.peers.entry(origin).or_default().aside = Some(why);
    }

    /// It has left for good, as far as anybody can tell.
    pub fn close(&mut self, origin: Origin) {
        self.peers.entry(origin).or_default().is_closed = true;
    }

    /// It is there again.
    pub fn reopen(&mut self, origin: Origin, now: Timestamp) {
        let peer = self.peers.entry(origin).or_default();
        (peer.is_closed, peer.heard_at) = (false, peer.heard_at.max(now.as_millis()));
    }

    /// Nothing is left of a closed origin's evidence: what was seen of it stays as one run.
    pub fn fade(&mut self, origin: Origin) {
        let Some(peer) = self.peers.get_mut(&origin).filter(|peer| peer.is_closed) else { return };
        for (epoch, seen) in &mut peer.seen {
            let base = peer.bases.get(epoch).copied().unwrap_or(0);
            *seen = Intervals::of(base.saturating_add(1), seen.top().unwrap_or(base));
        }
        peer.is_stale = false;
    }

    /// Of these origins nothing is known any more: what was known of them was mixed, and could not be taken apart otherwise.
    pub fn dissolve(&mut self, group: &[Origin]) {
        for origin in group {
            let peer = self.peers.entry(*origin).or_default();
            let (is_excluded, aside, heard_at) = (peer.is_excluded, peer.aside.take(), peer.heard_at);
            *peer = Peer { is_excluded, aside, heard_at, ..Peer::default() };
        }
    }

    /// Nothing of a domain counts that is not later than `until`. False when that is known.
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

    /// What a snapshot keeps of it.
    pub fn encode(&self) -> Vec<u8> {
        let kept = Kept {
            peers: self.peers.iter().map(|(origin, peer)| (origin.to_string(), peer.clone())).collect(),
            incarnation: self.cursor.incarnation,
            seq: self.cursor.seq,
            forgotten: self.forgotten.iter().map(|(domain, until)| (domain.clone(), until.as_millis())).collect(),
            links: self.links.kept(),
        };
        // Numbers, texts and maps of them always serialise.
        serde_json::to_vec(&kept).unwrap_or_default()
    }

    /// Reads what a snapshot has kept.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let kept: Kept = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let (mut peers, mut links) = (BTreeMap::new(), Links::default());
        for (origin, rows) in kept.links {
            links.restore(origin.parse().map_err(|error: crate::model::node_id::BadOrigin| error.to_string())?, rows);
        }
        for (origin, peer) in kept.peers {
            peers.insert(origin.parse().map_err(|error: crate::model::node_id::BadOrigin| error.to_string())?, peer);
        }
        let cursor = Position { incarnation: kept.incarnation, seq: kept.seq };
        let forgotten = kept.forgotten.into_iter().map(|(name, ms)| (name, Timestamp::from_millis(ms))).collect();
        Ok(Self { peers, cursor, forgotten, links, ..Self::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_that_nobody_has_are_missing_and_no_sum_of_them_overflows() {
        let mut peer = Peer::default();
        peer.seen.insert(1, Intervals::of(3, 9));
        assert_eq!(peer.holes(None), [(1, 1, 2)]);
        assert_eq!(peer.holes(Some((1, 2, 12))), [(1, 10, 12)]);
        assert_eq!(peer.holes(Some((2, u64::MAX, u64::MAX))), [(1, 1, 2)]);
        let all = peer.holes(Some((2, 0, u64::MAX)));
        assert_eq!(crate::model::intervals::count(all.iter().map(|(_, first, last)| (*first, *last))), u64::MAX);
    }
}
