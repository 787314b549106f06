//! Visitors of a fold: they pass evidence to a selector, to a separate evidence table, or to a
//! list.

use fetchwise::attempt::Hint;
use fetchwise::evidence::{EvidenceSnapshot, Learned, RemoteAttempt};
use fetchwise::time::Timestamp;

use super::fold::FoldVisitor;
use crate::model::node_id::NodeId;

/// A visitor that adds to what a selector has learned.
pub(super) struct LiveEvidence<'s> {
    pub(super) learned: &'s Learned,
}

impl FoldVisitor for LiveEvidence<'_> {
    fn visit_snapshot(&mut self, _: &[NodeId], share: &EvidenceSnapshot) {
        self.learned.add_snapshot(share);
    }

    fn visit_attempt(&mut self, _: NodeId, fact: &RemoteAttempt<'_>) {
        self.learned.receive_attempt(fact);
    }
}

/// A visitor that folds the evidence of one node separately.
pub(super) struct SeparateEvidence {
    pub(super) learned: Learned,
    pub(super) newest: Timestamp,
    pub(super) with_general: bool,
}

impl FoldVisitor for SeparateEvidence {
    fn visit_snapshot(&mut self, _: &[NodeId], share: &EvidenceSnapshot) {
        self.newest = self.newest.max(share.as_of());
        self.learned.add_snapshot(share);
    }

    fn visit_attempt(&mut self, _: NodeId, fact: &RemoteAttempt<'_>) {
        self.newest = self.newest.max(fact.at);
        self.learned.receive_attempt(fact);
    }

    fn visit_global(&mut self, node_id: NodeId, share: &EvidenceSnapshot) {
        if self.with_general {
            self.visit_snapshot(&[node_id], share);
        }
    }
}

/// A remote attempt with owned texts.
#[derive(Clone, Debug)]
pub(super) struct OwnedAttempt {
    at: Timestamp,
    fetcher: String,
    weight: f64,
    bits: (bool, bool, bool),
    duration_ms: u64,
    hint: Option<Hint>,
    heuristics: Vec<(String, String)>,
}

impl OwnedAttempt {
    fn of(fact: &RemoteAttempt<'_>) -> Self {
        Self {
            at: fact.at,
            fetcher: fact.fetcher.to_owned(),
            weight: fact.weight,
            bits: (fact.success, fact.is_banned, fact.is_file),
            duration_ms: fact.duration_ms,
            hint: fact.hint,
            heuristics: fact
                .heuristics
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
        }
    }

    pub(super) fn with(&self, f: impl FnOnce(&RemoteAttempt<'_>)) {
        let heuristics: Vec<(&str, &str)> =
            self.heuristics.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        f(&RemoteAttempt {
            at: self.at,
            fetcher: &self.fetcher,
            weight: self.weight,
            success: self.bits.0,
            is_banned: self.bits.1,
            duration_ms: self.duration_ms,
            hint: self.hint,
            is_file: self.bits.2,
            heuristics: &heuristics,
        });
    }
}

/// A visitor that collects the attempts of a domain.
pub(super) struct DomainAttempts {
    pub(super) domain: String,
    pub(super) until: Timestamp,
    pub(super) found: Vec<OwnedAttempt>,
    /// Nodes that have evidence of the domain in a folded snapshot.
    pub(super) mixed: Vec<NodeId>,
}

impl FoldVisitor for DomainAttempts {
    fn visit_snapshot(&mut self, of: &[NodeId], share: &EvidenceSnapshot) {
        if share.has_domain(&self.domain) {
            self.mixed.extend_from_slice(of);
        }
    }

    fn visit_attempt(&mut self, _: NodeId, fact: &RemoteAttempt<'_>) {
        if fact.domain() == Some(&self.domain) && fact.at <= self.until {
            self.found.push(OwnedAttempt::of(fact));
        }
    }
}
