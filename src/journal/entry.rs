//! What the journal holds, as the rest of the crate sees it.
//!
//! Owns the entry types. Must not know how an entry becomes bytes: that is `schema`.

use crate::backoff::LinkState;
use fetchwise_types::attempt::Attempt;
use fetchwise_types::heuristic::url::domain_of;
use fetchwise_types::time::Timestamp;

/// Something that was recorded.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "nearly all entries are attempts, and each is handed on at once")]
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
    /// How fast a host may be asked.
    Pace(PaceEntry),
    /// A pause that an operator has ended before its time.
    Release(Release),
}

impl Entry {
    /// The time that it bears.
    pub fn at(&self) -> Timestamp {
        match self {
            Self::Attempt(attempt) => attempt.attempted_at,
            Self::Link(entry) => entry.at,
            Self::Host(entry) => entry.at,
            Self::Importance(entry) => entry.at,
            Self::Tombstone(entry) => entry.at,
            Self::Pace(entry) => entry.at,
            Self::Release(entry) => entry.at,
        }
    }
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

/// What is remembered of a host's pace, or of a site's or an address's, as of a time. What the bytes mean is `pace`'s to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaceEntry {
    /// Whose it is: 0 a host's, 1 a site's, 2 an address's.
    pub level: u8,
    /// The host, the site or the address.
    pub name: String,
    /// What is remembered.
    pub state: [u8; 64],
    /// Why it was recorded.
    pub cause: u8,
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

/// An operator has ended a pause before its time: the host or link is not paused from here on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// Whose.
    pub target: ReleaseTarget,
    /// When.
    pub at: Timestamp,
}

/// Whose pause is ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseTarget {
    /// That of a domain's host.
    Host(String),
    /// That of a link.
    Link(String),
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

/// Whether a link's state is more than that of one that was never seen.
pub(super) fn is_at_risk(state: &LinkState) -> bool {
    state.risk_level > 0 || state.paused_until.is_some() || state.hint.is_some()
}
