//! Tombstones of a log, and what they cover.
//!
//! Owns: the rule that a tombstone covers everything before it and nothing after it.
//!
//! Must not know: where evidence of the covered entries is kept.

use std::collections::HashMap;

use fetchwise_log::RecordRef;

use super::entry::{Entry, ReleaseTarget, TombstoneTarget};
use super::schema::{self, AttemptView, SchemaError};
use fetchwise_types::attempt::bounds::link_name;
use fetchwise_types::heuristic::REDIRECTED_BY;

fn keep_last(all: &mut HashMap<String, u64>, name: String, seq: u64) {
    let last = all.entry(name).or_default();
    *last = seq.max(*last);
}

/// Set of the tombstones of a log. Everything before the last tombstone of a target is forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TombstoneSet {
    domains: HashMap<String, u64>,
    links: HashMap<String, u64>,
}

impl TombstoneSet {
    /// Adds a tombstone with its sequence number.
    pub(super) fn add(&mut self, seq: u64, target: TombstoneTarget) {
        match target {
            TombstoneTarget::Domain(domain) => keep_last(&mut self.domains, domain, seq),
            TombstoneTarget::Link(link) => {
                // Attempts record some links in another spelling than link states do.
                let recorded = link_name(&link).into_owned();
                keep_last(&mut self.links, recorded, seq);
                keep_last(&mut self.links, link, seq);
            }
        }
    }

    /// Returns whether the entry with the sequence number `seq` is forgotten.
    pub(super) fn covers(&self, seq: u64, entry: &Entry) -> bool {
        match entry {
            Entry::Attempt(attempt) => {
                self.covers_link(seq, &attempt.link)
                    || self.covers_domain(seq, attempt.heuristic("domain"))
                    || self.covers_domain(seq, attempt.heuristic(REDIRECTED_BY))
            }
            Entry::Link(entry) => {
                self.covers_link(seq, &entry.link) || self.covers_domain(seq, Some(&entry.domain))
            }
            Entry::Host(host) => self.covers_domain(seq, Some(&host.domain)),
            Entry::Pace(pace) => pace.level == 0 && self.covers_domain(seq, Some(&pace.name)),
            Entry::Release(release) => match &release.target {
                ReleaseTarget::Host(domain) => self.covers_domain(seq, Some(domain)),
                ReleaseTarget::Link(link) => self.covers_link(seq, link),
            },
            Entry::Importance(_) | Entry::Tombstone(_) | Entry::Fetcher(_) => false,
        }
    }

    /// Returns whether the attempt of record `seq` is forgotten: with its link, with the host that
    /// responded, or with the host that redirected there.
    pub(super) fn covers_attempt(&self, seq: u64, attempt: &AttemptView<'_>) -> bool {
        self.covers_link(seq, attempt.link())
            || !self.domains.is_empty()
                && (self.covers_domain(seq, attempt.domain())
                    || self.covers_domain(seq, attempt.redirected_by()))
    }

    /// Returns whether record `seq` about `link` is forgotten.
    pub(super) fn covers_link(&self, seq: u64, link: &str) -> bool {
        !self.links.is_empty() && self.links.get(link).is_some_and(|last| seq < *last)
    }

    /// Returns whether record `seq` about `domain` is forgotten.
    pub(super) fn covers_domain(&self, seq: u64, domain: Option<&str>) -> bool {
        let last = || self.domains.get(domain?);
        !self.domains.is_empty() && last().is_some_and(|last| seq < *last)
    }

    /// Returns the tombstones after the record `seq`.
    pub(super) fn after(&self, seq: u64) -> Vec<(u64, TombstoneTarget)> {
        let after = |(name, last): (&String, &u64)| (*last > seq).then(|| (*last, name.clone()));
        let domains = self
            .domains
            .iter()
            .filter_map(after)
            .map(|(at, name)| (at, TombstoneTarget::Domain(name)));
        let links =
            self.links.iter().filter_map(after).map(|(at, name)| (at, TombstoneTarget::Link(name)));
        domains.chain(links).collect()
    }

    /// Adds a record if it is a tombstone.
    pub(super) fn add_record(
        &mut self,
        seq: u64,
        record: &RecordRef<'_>,
    ) -> Result<(), SchemaError> {
        if record.kind == schema::kind::TOMBSTONE
            && let Entry::Tombstone(tombstone) =
                schema::decode(record.kind, record.schema, record.payload)?
        {
            self.add(seq, tombstone.target);
        }
        Ok(())
    }
}
