//! The operator's view of a selector: paused hosts, links at risk, ban rates, ending pauses early,
//! and forgetting.
//!
//! Nothing here decides, and no request goes through this file.
//!
//! Invariants: a replay of the log ends in the state that these functions leave, because the sink
//! is notified under the lock that guards the change.

use std::fmt;

use super::{Released, Selector};
use crate::backoff::LinkState;
use crate::ended_pauses::EndedPause;
use crate::evidence::BanRate;
use fetchwise_types::attempt::Hint;
use fetchwise_types::attempt::bounds::link_name;
use fetchwise_types::heuristic::url::{domain_of, parse};
use fetchwise_types::time::Timestamp;

/// A paused host.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PausedHost {
    /// The domain, as evidence has it.
    pub domain: String,
    /// The end of the pause.
    pub paused_until: Timestamp,
    /// The number of pauses in a row, this one included; 0 if pace decides for this host.
    pub times: u8,
}

/// A link whose last fetch failed, or that is paused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkAtRisk {
    /// The caller's name for the link.
    pub link: String,
    /// The domain of its URL; `None` if the link's name is not a URL.
    pub domain: Option<String>,
    /// Its backoff state.
    pub state: LinkState,
}

/// The reason why a link is at risk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RiskReason {
    /// The result of its last fetch.
    Failed(Hint),
    /// Its host asked for a pause.
    Held,
}

impl LinkAtRisk {
    /// Returns a link with this state.
    pub fn new(link: String, state: LinkState) -> Self {
        let domain = of_url(&link);
        Self { link, domain, state }
    }

    /// Returns the reason why it is at risk.
    pub fn reason(&self) -> RiskReason {
        match self.state.hint {
            Some(hint) => RiskReason::Failed(hint),
            None if self.state.risk_level > 0 => RiskReason::Failed(Hint::Unknown),
            None => RiskReason::Held,
        }
    }
}

impl RiskReason {
    /// Returns the name in JSON: that of the hint, or `host_held`.
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
            Self::Failed(Hint::Empty) => "empty page",
            Self::Failed(Hint::Timeout) => "no response in time",
            Self::Failed(Hint::Unknown) => "failed",
            Self::Held => "its host asked for a pause",
        })
    }
}

impl Selector {
    /// Returns how often the site of `domain` blocked within the last `days` whole UTC days, today
    /// included, for at most 90 days. The counts are kept next to the evidence, so this costs one
    /// look-up and reads no attempts. Where [evicted](Self::evicted_keys) evidence is forgotten, the
    /// domain starts again at zero.
    pub fn ban_rate(&self, domain: &str, days: u32) -> BanRate {
        self.ban_rate_at(domain, days, self.now())
    }

    /// Does the same with `now` as the present.
    pub fn ban_rate_at(&self, domain: &str, days: u32, now: Timestamp) -> BanRate {
        self.learned.evidence.ban_rate(domain, days, now)
    }

    /// Returns the time before which [`Selector::ban_rate`] misses attempts: these had been
    /// compacted before daily counts existed. `None` if none are missing.
    pub fn ban_rates_since(&self) -> Option<Timestamp> {
        self.learned.evidence.days_since()
    }

    /// Returns the hosts that are paused at `now`, sorted by name.
    pub fn paused_hosts(&self, now: Timestamp) -> Vec<PausedHost> {
        let known = self.state.hosts.pause_counts();
        let paused = known.into_iter().filter_map(|(domain, times)| {
            let paused_until = self.host_pause(&domain).filter(|until| *until > now)?;
            Some(PausedHost { domain, paused_until, times })
        });
        let mut paused: Vec<PausedHost> = paused.collect();
        paused.sort_by(|a, b| a.domain.cmp(&b.domain));
        paused
    }

    /// Returns the links whose last fetch failed or that are paused, sorted by name. All other
    /// links are in the default state.
    pub fn links_at_risk(&self) -> Vec<LinkAtRisk> {
        let mut links: Vec<LinkAtRisk> = self
            .state
            .links
            .all()
            .into_iter()
            .map(|(link, state)| LinkAtRisk::new(link, state))
            .collect();
        links.sort_by(|a, b| a.link.cmp(&b.link));
        links
    }

    /// Ends the pause of a host now, and the hold of its pace. Afterwards it counts as never
    /// paused: the next block starts with the shortest pause. The learned pace stays, and the first
    /// request goes out alone. Returns the end of the pause that was lifted, or `None` if the host
    /// was not paused; then nothing changes. The sink is notified.
    pub fn unpause_host(&self, domain: &str, now: Timestamp) -> Option<Timestamp> {
        let paused = self.host_pause(domain).filter(|until| *until > now);
        let paused = paused.max(self.pace.as_ref().and_then(|pace| pace.end_hold(domain, now)));
        let until = paused?;
        self.state.hosts.release(self, domain, || {
            if let Some(sink) = &self.sink {
                sink.released(Released::Host(domain), now);
            }
        });
        self.notify_lifted(domain);
        self.tell_ended_pause(EndedPause::Host(domain));
        Some(until)
    }

    /// Ends the pause of a link now, by the caller's name for it or by its URL in any spelling. The
    /// link stays at risk: if it fails again, its pause is the next longer one. The pause of its
    /// host is unaffected. Returns the end of the pause that was lifted, or `None` if the link was
    /// not paused; then nothing changes. The sink is notified.
    pub fn unpause_link(&self, link: &str, now: Timestamp) -> Option<Timestamp> {
        let recorded = link_name(link);
        let mut names = [link, &*recorded].into_iter();
        let (link, until) =
            names.find_map(|name| Some((name, self.state.links.get(name).pause_at(now)?)))?;
        let release = |state: LinkState| LinkState { paused_until: None, ..state };
        self.state.links.change(link, release, |_| {
            if let Some(sink) = &self.sink {
                sink.released(Released::Link(link), now);
            }
        });
        self.tell_ended_pause(EndedPause::Link(self.link_hash(link)));
        Some(until)
    }

    /// Drops everything known about a domain at once: its evidence with its paths and suffixes, the
    /// pause and pace of its host, and the states of its links. A link whose name is not a URL has
    /// no known domain; [`forget_link`](Self::forget_link) drops such links one by one. The part of
    /// its evidence that domains share goes when a journal with a tombstone for it is loaded. Cost:
    /// linear in the links at risk.
    pub fn forget_domain(&self, domain: &str) {
        self.learned.evidence.forget_domain(domain);
        self.state.hosts.forget(domain);
        self.state.links.forget(|link| of_url(link).is_some_and(|of| of == domain));
        if let Some(pace) = &self.pace {
            pace.forget(domain, self.now());
        }
        self.tell_ended_pause(EndedPause::Host(domain));
    }

    /// Drops the state of a link, and the states that other nodes reported for it, by the caller's
    /// name for it. Cost: linear in the links and hosts at risk.
    pub fn forget_link(&self, link: &str) {
        let recorded = link_name(link);
        let is_it = |known: &str| known == link || *known == *recorded;
        let (name, recorded_name) = (self.state.links.name(link), self.state.links.name(&recorded));
        self.state
            .links
            .forget(|known| is_it(known) || *known == *name || *known == *recorded_name);
        self.state.links.clear_remote(link);
        self.state.links.clear_remote(&recorded);
        self.state.hosts.forget_links(is_it);
        for name in [link, &*recorded] {
            self.tell_ended_pause(EndedPause::Link(self.link_hash(name)));
        }
    }
}

/// Returns the domain of a link whose name is its URL.
fn of_url(link: &str) -> Option<String> {
    parse(link).ok().and_then(|url| Some(domain_of(url.host_str()?).to_owned()))
}
