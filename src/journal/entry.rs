//! What the journal holds, as the rest of the crate sees it.
//!
//! Owns the entry types and what a tombstone covers. Must not know how an entry becomes bytes: that is `schema`.

use std::collections::HashMap;

use fetchwise_log::RecordRef;

use super::schema::{self, SchemaError};
use crate::attempt::Attempt;
use crate::attempt::bounds::link_name;
use crate::backoff::LinkState;
use crate::heuristic::url::domain_of;
use crate::time::Timestamp;

/// Something that was recorded.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Entry {
    /// An attempt.
    Attempt(Attempt),
    /// A link's state after a fetch.
    Link(LinkEntry),
    /// A host's pause.
    Host(HostEntry),
    /// What analytics worked out about a heuristic.
    Importance(ImportanceEntry),
    /// What shall be forgotten.
    Tombstone(Tombstone),
}

/// A link's state as of a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkEntry {
    /// The link: the caller's name for it.
    pub link: String,
    /// The domain of its URL.
    pub domain: String,
    /// Its state.
    pub state: LinkState,
    /// When it came to be so.
    pub at: Timestamp,
}

/// A host's pause as of a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostEntry {
    /// The domain, as the heuristic has it.
    pub domain: String,
    /// Until when it is paused; none lifts a pause.
    pub paused_until: Option<Timestamp>,
    /// When it came to be so.
    pub at: Timestamp,
}

/// A heuristic's importance as of a time.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportanceEntry {
    /// The heuristic's type.
    pub kind: String,
    /// Its value; none for the whole type.
    pub value: Option<String>,
    /// From 0 to 1.
    pub importance: f32,
    /// When it was worked out.
    pub at: Timestamp,
}

/// Attempts, link and host states before this record are not to be known any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tombstone {
    /// Whose.
    pub target: TombstoneTarget,
    /// When it was asked for.
    pub at: Timestamp,
}

/// Whose attempts are forgotten.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TombstoneTarget {
    /// Those of a domain.
    Domain(String),
    /// Those of a link.
    Link(String),
}

/// The domain of a URL.
pub(super) fn domain_of_url(url: &str) -> Option<String> {
    let url = url::Url::parse(url).ok()?;
    Some(domain_of(url.host_str()?).to_owned())
}

fn keep_last(all: &mut HashMap<String, u64>, name: String, seq: u64) {
    let last = all.entry(name).or_default();
    *last = seq.max(*last);
}

/// All tombstones of a log: what lies before the last one of its target is forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Forgotten {
    domains: HashMap<String, u64>,
    links: HashMap<String, u64>,
}

impl Forgotten {
    /// Takes a tombstone with its sequence number.
    pub(super) fn add(&mut self, seq: u64, target: TombstoneTarget) {
        match target {
            TombstoneTarget::Domain(domain) => keep_last(&mut self.domains, domain, seq),
            TombstoneTarget::Link(link) => {
                // Attempts are recorded under another spelling of some links than states are.
                let recorded = link_name(&link).into_owned();
                keep_last(&mut self.links, recorded, seq);
                keep_last(&mut self.links, link, seq);
            }
        }
    }

    /// Whether the entry with the sequence number `seq` is forgotten.
    pub(super) fn covers(&self, seq: u64, entry: &Entry) -> bool {
        match entry {
            Entry::Attempt(attempt) => {
                self.covers_link(seq, &attempt.link) || self.covers_domain(seq, attempt.heuristic("domain"))
            }
            Entry::Link(entry) => self.covers_link(seq, &entry.link) || self.covers_domain(seq, Some(&entry.domain)),
            Entry::Host(host) => self.covers_domain(seq, Some(&host.domain)),
            Entry::Importance(_) | Entry::Tombstone(_) => false,
        }
    }

    /// Whether what the record `seq` says of `link` is forgotten.
    pub(super) fn covers_link(&self, seq: u64, link: &str) -> bool {
        !self.links.is_empty() && self.links.get(link).is_some_and(|last| seq < *last)
    }

    /// Whether what the record `seq` says of `domain` is forgotten.
    pub(super) fn covers_domain(&self, seq: u64, domain: Option<&str>) -> bool {
        let last = || self.domains.get(domain?);
        !self.domains.is_empty() && last().is_some_and(|last| seq < *last)
    }

    /// Takes a record that is a tombstone.
    pub(super) fn look(&mut self, seq: u64, record: &RecordRef<'_>) -> Result<(), SchemaError> {
        if record.kind == schema::kind::TOMBSTONE
            && let Entry::Tombstone(tombstone) = schema::decode(record.kind, record.schema, record.payload)?
        {
            self.add(seq, tombstone.target);
        }
        Ok(())
    }
}
