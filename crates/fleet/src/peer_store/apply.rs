//! Visitors of a fold: they pass evidence to a selector, to a separate evidence table, or to a list.

use fetchwise::attempt::Hint;
use fetchwise::evidence::{Fact, Share};
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;

use super::fold::Learns;
use crate::model::node_id::Origin;

/// A visitor that teaches a selector.
pub(super) struct Teaches<'s> {
    pub(super) selector: &'s Selector,
}

impl Learns for Teaches<'_> {
    fn share(&mut self, _: &[Origin], share: &Share) {
        self.selector.take_share(share);
    }

    fn fact(&mut self, _: Origin, fact: &Fact<'_>) {
        self.selector.learn_fact(fact);
    }
}

/// A visitor that folds the evidence of one node separately.
pub(super) struct Apart {
    pub(super) selector: Selector,
    pub(super) newest: Timestamp,
    pub(super) with_general: bool,
}

impl Learns for Apart {
    fn share(&mut self, _: &[Origin], share: &Share) {
        self.newest = self.newest.max(share.as_of());
        self.selector.take_share(share);
    }

    fn fact(&mut self, _: Origin, fact: &Fact<'_>) {
        self.newest = self.newest.max(fact.at);
        self.selector.learn_fact(fact);
    }

    fn general(&mut self, origin: Origin, share: &Share) {
        if self.with_general {
            self.share(&[origin], share);
        }
    }
}

/// A remote attempt with owned texts.
#[derive(Clone, Debug)]
pub(super) struct OwnedFact {
    at: Timestamp,
    fetcher: String,
    weight: f64,
    bits: (bool, bool, bool),
    duration_ms: u64,
    hint: Option<Hint>,
    heuristics: Vec<(String, String)>,
}

impl OwnedFact {
    fn of(fact: &Fact<'_>) -> Self {
        Self {
            at: fact.at,
            fetcher: fact.fetcher.to_owned(),
            weight: fact.weight,
            bits: (fact.success, fact.is_banned, fact.is_file),
            duration_ms: fact.duration_ms,
            hint: fact.hint,
            heuristics: fact.heuristics.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        }
    }

    pub(super) fn with(&self, f: impl FnOnce(&Fact<'_>)) {
        let heuristics: Vec<(&str, &str)> = self.heuristics.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        f(&Fact {
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
pub(super) struct FactsOf {
    pub(super) domain: String,
    pub(super) until: Timestamp,
    pub(super) found: Vec<OwnedFact>,
    /// Nodes that have evidence of the domain in a folded snapshot.
    pub(super) mixed: Vec<Origin>,
}

impl Learns for FactsOf {
    fn share(&mut self, of: &[Origin], share: &Share) {
        if share.has_domain(&self.domain) {
            self.mixed.extend_from_slice(of);
        }
    }

    fn fact(&mut self, _: Origin, fact: &Fact<'_>) {
        if fact.domain() == Some(&self.domain) && fact.at <= self.until {
            self.found.push(OwnedFact::of(fact));
        }
    }
}
