//! What an operator looks at and steers: paused hosts, links at risk, ban rates, ending a pause before its time, and forgetting. Nothing
//! here decides, and nothing of it is on the way of a request.
//!
//! Invariant: what is released here is what a replay of the log ends up with, since the sink is told under the lock that the change
//! is made under.

use std::fmt;

use super::{Released, Selector};
use crate::backoff::LinkState;
use crate::evidence::BanRate;
use fetchwise_types::attempt::Hint;
use fetchwise_types::attempt::bounds::link_name;
use fetchwise_types::heuristic::url::{domain_of, parse};
use fetchwise_types::time::Timestamp;

/// A host that is paused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PausedHost {
    /// The domain, as evidence knows it.
    pub domain: String,
    /// Until when.
    pub paused_until: Timestamp,
    /// How often it was paused in a row, this time included; 0 where its pace decides.
    pub times: u8,
}

/// A link whose last fetch failed, or that is paused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkAtRisk {
    /// The caller's name for it.
    pub link: String,
    /// The domain of its URL; none where the link is a name from which it cannot be told.
    pub domain: Option<String>,
    /// Its state.
    pub state: LinkState,
}

/// Why a link is at risk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RiskReason {
    /// Its last fetch ended in this way.
    Failed(Hint),
    /// Its host asked to be left alone.
    Held,
}

impl LinkAtRisk {
    /// A link in a state.
    pub fn new(link: String, state: LinkState) -> Self {
        let domain = of_url(&link);
        Self { link, domain, state }
    }

    /// Why it is at risk.
    pub fn reason(&self) -> RiskReason {
        match self.state.hint {
            Some(hint) => RiskReason::Failed(hint),
            None if self.state.risk_level > 0 => RiskReason::Failed(Hint::Unknown),
            None => RiskReason::Held,
        }
    }
}

impl RiskReason {
    /// Its name in JSON: a hint's, or `host_held`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Failed(hint) => hint.name(),
            Self::Held => "host_held",
        }
    }
}

impl fmt::Display for RiskReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed(Hint::Blocked) => "blocked",
            Self::Failed(Hint::Empty) => "nothing but an empty page",
            Self::Failed(Hint::Timeout) => "no answer in time",
            Self::Failed(Hint::Unknown) => "failed",
            Self::Held => "its host asked to be left alone",
        })
    }
}

impl Selector {
    /// How often the site of `domain` blocked within the last `days` whole UTC days, today included, of ninety at most: from counts that
    /// are kept beside evidence, not from attempts, so it costs one look-up. A domain that was [evicted](Self::evicted_keys) begins anew.
    pub fn ban_rate(&self, domain: &str, days: u32) -> BanRate {
        self.ban_rate_at(domain, days, self.now())
    }

    /// The same with `now` as the present.
    pub fn ban_rate_at(&self, domain: &str, days: u32, now: Timestamp) -> BanRate {
        self.evidence.ban_rate(domain, days, now)
    }

    /// Attempts before this are missing from [`Selector::ban_rate`], where they fall into its days: they had been compacted away before
    /// there were counts by day. None where none are missing.
    pub fn ban_rates_since(&self) -> Option<Timestamp> {
        self.evidence.days_since()
    }

    /// The hosts that are paused at `now`, by name.
    pub fn paused_hosts(&self, now: Timestamp) -> Vec<PausedHost> {
        let known = self.state.hosts.known();
        let paused = known.into_iter().filter_map(|(domain, times)| {
            let paused_until = self.host_pause(&domain).filter(|until| *until > now)?;
            Some(PausedHost { domain, paused_until, times })
        });
        let mut paused: Vec<PausedHost> = paused.collect();
        paused.sort_by(|a, b| a.domain.cmp(&b.domain));
        paused
    }

    /// The links whose last fetch failed or that are paused, by name. All others are in the default state.
    pub fn links_at_risk(&self) -> Vec<LinkAtRisk> {
        let mut links: Vec<LinkAtRisk> =
            self.state.links.all().into_iter().map(|(link, state)| LinkAtRisk::new(link, state)).collect();
        links.sort_by(|a, b| a.link.cmp(&b.link));
        links
    }

    /// Ends the pause of a host now, and the hold of its pace. It is as if it had never been paused: the next block begins with the
    /// shortest pause. What was learned of its pace stays, and the first request goes out alone. Returns until when it would have been;
    /// none, and nothing changed, when it was not paused. The sink is told.
    pub fn release_host(&self, domain: &str, now: Timestamp) -> Option<Timestamp> {
        let paused = self.host_pause(domain).filter(|until| *until > now);
        let paused = paused.max(self.pace.as_ref().and_then(|pace| pace.release(domain, now)));
        let until = paused?;
        self.state.hosts.release(self, domain, || {
            if let Some(sink) = &self.sink {
                sink.released(Released::Host(domain), now);
            }
        });
        self.tell_lifted(domain);
        Some(until)
    }

    /// Ends the pause of a link now: by the caller's name for it, or by a URL in any spelling. It stays at risk: when it fails again, its
    /// pause is the next longer one. Its host's pause is another matter. Returns until when it would have been; none, and nothing
    /// changed, when it was not paused. The sink is told.
    pub fn release_link(&self, link: &str, now: Timestamp) -> Option<Timestamp> {
        let recorded = link_name(link);
        let mut names = [link, &*recorded].into_iter();
        let (link, until) = names.find_map(|name| Some((name, self.state.links.get(name).pause_at(now)?)))?;
        let release = |state: LinkState| LinkState { paused_until: None, ..state };
        self.state.links.change(link, release, |_| {
            if let Some(sink) = &self.sink {
                sink.released(Released::Link(link), now);
            }
        });
        Some(until)
    }

    /// Drops at once what is known of a domain itself: its evidence, its paths and suffixes, its host's pause and pace, the states of its
    /// links. Of links whose names are no URLs nobody here knows whose they are: [`forget_link`](Self::forget_link) takes them one by one.
    /// Its share of what domains have in common goes when a journal with a tombstone for it is loaded. Cost: a look at each link at risk.
    pub fn forget_domain(&self, domain: &str) {
        self.evidence.forget_domain(domain);
        self.state.hosts.forget(domain);
        self.state.links.forget(|link| of_url(link).is_some_and(|of| of == domain));
        if let Some(pace) = &self.pace {
            pace.forget(domain, self.now());
        }
    }

    /// Drops the state of a link, and what neighbours have told of it, by the caller's name for it. Cost: a look at each link and host at risk.
    pub fn forget_link(&self, link: &str) {
        let recorded = link_name(link);
        let is_it = |known: &str| known == link || *known == *recorded;
        self.state.links.forget(is_it);
        self.state.links.untell(link);
        self.state.links.untell(&recorded);
        self.state.hosts.forget_links(is_it);
    }
}

/// The domain of a link whose name is its URL.
fn of_url(link: &str) -> Option<String> {
    parse(link).ok().and_then(|url| Some(domain_of(url.host_str()?).to_owned()))
}
