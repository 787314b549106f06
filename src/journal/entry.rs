//! Entry types of the journal, as the rest of the crate uses them.
//!
//! Owns: the entry types.
//!
//! Must not know: how an entry becomes bytes, which `schema` does.

use crate::backoff::LinkState;
use fetchwise_types::attempt::Attempt;
use fetchwise_types::heuristic::url::domain_of;
use fetchwise_types::registry::{Class, FetcherSpec};
use fetchwise_types::time::Timestamp;

/// Recorded entry.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all entries are attempts, and each is handed on at once"
)]
pub enum Entry {
    /// An attempt.
    Attempt(Attempt),
    /// State of a link after a fetch.
    Link(LinkEntry),
    /// Pause of a host.
    Host(HostEntry),
    /// Importance that analytics computed for a heuristic.
    Importance(ImportanceEntry),
    /// Order to forget a domain or a link.
    Tombstone(Tombstone),
    /// Learned request rate of a host.
    Pace(PaceEntry),
    /// Pause that an operator ended early.
    Release(Release),
    /// Class and cost of a fetcher.
    Fetcher(FetcherEntry),
}

impl Entry {
    /// Returns the time of the entry.
    pub fn at(&self) -> Timestamp {
        match self {
            Self::Attempt(attempt) => attempt.attempted_at,
            Self::Link(entry) => entry.at,
            Self::Host(entry) => entry.at,
            Self::Importance(entry) => entry.at,
            Self::Tombstone(entry) => entry.at,
            Self::Pace(entry) => entry.at,
            Self::Release(entry) => entry.at,
            Self::Fetcher(entry) => entry.at,
        }
    }
}

/// State of a link as of a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkEntry {
    /// Link: the caller's id for it.
    pub link: String,
    /// Domain of the link's URL.
    pub domain: String,
    /// State of the link.
    pub state: LinkState,
    /// Time of the change.
    pub at: Timestamp,
}

/// Pause of a host as of a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostEntry {
    /// Domain, as the heuristic has it.
    pub domain: String,
    /// End of the pause; `None` ends it at once.
    pub paused_until: Option<Timestamp>,
    /// Time of the change.
    pub at: Timestamp,
}

/// Persisted pace of a host, a site or an address as of a time. Only `pace` knows what the bytes
/// mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaceEntry {
    /// Level: 0 for a host, 1 for a site, 2 for an address.
    pub level: u8,
    /// Host, site or address.
    pub name: String,
    /// Persisted state.
    pub state: [u8; 64],
    /// Reason for the record.
    pub cause: u8,
    /// Time of the change.
    pub at: Timestamp,
}

/// Importance of a heuristic as of a time.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportanceEntry {
    /// Type of the heuristic.
    pub kind: String,
    /// Value of the heuristic; `None` for the whole type.
    pub value: Option<String>,
    /// Importance, from 0 to 1.
    pub importance: f32,
    /// Time of the computation.
    pub at: Timestamp,
}

/// Class and cost of a fetcher, as a selector that records here had them.
#[derive(Clone, Debug, PartialEq)]
pub struct FetcherEntry {
    /// Name under which attempts are recorded.
    pub name: String,
    /// Its class.
    pub class: Class,
    /// Cost of a request, in plain requests.
    pub cost: f64,
    /// Time of the registration.
    pub at: Timestamp,
}

impl FetcherEntry {
    /// Returns the entry of a fetcher.
    pub fn of(spec: &FetcherSpec, at: Timestamp) -> Self {
        Self { name: spec.name.to_string(), class: spec.class, cost: spec.cost, at }
    }

    /// Returns the fetcher with the defaults of its class. A cost that no selector would take
    /// counts as missing.
    pub fn spec(&self) -> FetcherSpec {
        let known = FetcherSpec::by_name(&self.name);
        let spec = if known.class == self.class {
            known
        } else {
            FetcherSpec::new(&self.name, self.class)
        };
        if self.cost.is_finite() && self.cost > 0.0 { spec.cost(self.cost) } else { spec }
    }

    /// Returns whether the entries say the same, whenever that was.
    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        let Self { name, class, cost, at: _ } = self;
        (name, class, cost) == (&other.name, &other.class, &other.cost)
    }
}

/// Order to forget the attempts, link states and host states of a target before this record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tombstone {
    /// Domain or link to forget.
    pub target: TombstoneTarget,
    /// Time of the request.
    pub at: Timestamp,
}

/// End of a pause by an operator: the host or link is not paused from here on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// Host or link whose pause ended.
    pub target: ReleaseTarget,
    /// Time of the request.
    pub at: Timestamp,
}

/// Target whose pause ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseTarget {
    /// Host of a domain.
    Host(String),
    /// Link.
    Link(String),
}

/// Target whose attempts are forgotten.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TombstoneTarget {
    /// All attempts of a domain.
    Domain(String),
    /// All attempts of a link.
    Link(String),
}

/// Returns the domain of a URL.
pub(super) fn domain_of_url(url: &str) -> Option<String> {
    let url = url::Url::parse(url).ok()?;
    Some(domain_of(url.host_str()?).to_owned())
}

/// Returns whether a link's state differs from that of an unknown link.
pub(super) fn is_at_risk(state: &LinkState) -> bool {
    state.risk_level > 0 || state.paused_until.is_some() || state.hint.is_some()
}
