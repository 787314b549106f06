//! Hosts at risk: when several links of one host are blocked, the host is paused, because the address is what gets banned.
//!
//! Owns the recent blocks of each host and how often it was paused in a row. The pause itself is an atomic in the
//! selector's domain entry, where `select` reads it without a lock.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use dashmap::DashMap;

use crate::backoff::{BackoffSettings, RISK_LEVEL_MAX, pause};
use crate::selector::Selector;
use crate::time::Timestamp;

/// A trial that is neither settled nor given back holds the others off no longer than this.
const TRIAL_MAX: Duration = Duration::from_secs(600);
/// With more hosts at risk than this, those that are so no longer are looked for and dropped.
const HOSTS_BEFORE_SWEEP: usize = 10_000;

/// The hosts that had links blocked lately.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    at_risk: DashMap<String, Host>,
}

#[derive(Debug, Default)]
struct Host {
    /// Links that ended blocked, with the time, oldest first.
    blocks: VecDeque<(String, Timestamp)>,
    /// Pauses in a row.
    level: u8,
}

/// Whether a request may go out to a host.
pub(crate) enum Admission<'s> {
    /// Nothing stands against it.
    Open,
    /// The pause is over and this caller has the trial: how it ends decides about the host.
    Trial(Trial<'s>),
    /// Another caller has the trial.
    Wait(Timestamp),
}

/// The one trial request of a host whose pause is over. Dropped without a verdict, the next caller may try at once.
pub(crate) struct Trial<'s> {
    selector: &'s Selector,
    domain: String,
    held_until: Timestamp,
    ended: Timestamp,
    is_settled: bool,
}

impl Trial<'_> {
    /// Its verdict is in the host's pause: nothing is given back.
    pub(crate) fn settle(mut self) {
        self.is_settled = true;
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        // Compare and swap: a pause that another trial's verdict set, or lifted, stays. That this one's own verdict might end at
        // the very moment that it was held until is why it has to be settled.
        if !self.is_settled {
            self.selector.claim_host_trial(&self.domain, self.held_until, self.ended);
        }
    }
}

impl Hosts {
    /// Starts with the levels that a replay found.
    pub(crate) fn with_levels(levels: HashMap<String, u8>) -> Self {
        let host = |(domain, level)| (domain, Host { level, ..Host::default() });
        Self { at_risk: levels.into_iter().map(host).collect() }
    }

    /// Asks for admission to `domain`, whose pause, if any, is over.
    pub(crate) fn admit<'s>(selector: &'s Selector, domain: &str, now: Timestamp) -> Admission<'s> {
        let Some(ended) = selector.host_pause(domain) else { return Admission::Open };
        let held_until = now.saturating_add(TRIAL_MAX);
        if ended <= now && selector.claim_host_trial(domain, ended, held_until) {
            Admission::Trial(Trial { selector, domain: domain.to_owned(), held_until, ended, is_settled: false })
        } else {
            Admission::Wait(selector.host_pause(domain).unwrap_or(held_until))
        }
    }

    /// A link of the host ended blocked. Returns until when the host is paused now, when this set a pause.
    pub(crate) fn blocked(
        &self,
        selector: &Selector,
        domain: &str,
        link: &str,
        trial: bool,
        settings: &BackoffSettings,
        now: Timestamp,
    ) -> Option<Timestamp> {
        self.sweep(settings, now);
        let mut host = self.at_risk.entry(domain.to_owned()).or_default();
        // Requests that were under way when the pause began, or when the trial did, say nothing new.
        if !trial && selector.host_pause(domain).is_some_and(|until| until > now) {
            return None;
        }
        host.blocks.retain(|(blocked, at)| now.since(*at) <= settings.host_window && blocked != link);
        host.blocks.push_back((link.to_owned(), now));
        if !trial && host.blocks.len() < settings.host_links.max(1) as usize {
            return None;
        }
        let until = now.saturating_add(pause(settings.blocked_base, host.level));
        host.level = (host.level + 1).min(RISK_LEVEL_MAX);
        host.blocks.clear();
        selector.set_host_pause(domain, Some(until));
        Some(until)
    }

    /// The trial of a host delivered content: the host is fine, and its pause is lifted.
    pub(crate) fn trial_delivered(&self, selector: &Selector, domain: &str) {
        self.at_risk.remove(domain);
        selector.set_host_pause(domain, None);
    }

    /// Drops the hosts whose blocks are long past and that were not paused.
    fn sweep(&self, settings: &BackoffSettings, now: Timestamp) {
        if self.at_risk.len() > HOSTS_BEFORE_SWEEP {
            let recent = |host: &Host| host.blocks.back().is_some_and(|(_, at)| now.since(*at) <= settings.host_window);
            self.at_risk.retain(|_, host| host.level > 0 || recent(host));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_blocked_links_pause_the_host_and_one_trial_decides() {
        let (selector, hosts) = (Selector::builder().build().unwrap(), Hosts::default());
        let settings = BackoffSettings::default();
        let now = Timestamp::now();
        let block = |link: &str, trial, at| hosts.blocked(&selector, "e.org", link, trial, &settings, at);
        assert_eq!(block("a", false, now), None);
        assert_eq!(block("a", false, now), None, "the same link counts once");
        assert_eq!(block("b", false, now), None);
        let until = block("c", false, now).unwrap();
        assert_eq!(until.since(now), Duration::from_secs(600));
        let Admission::Trial(trial) = Hosts::admit(&selector, "e.org", until) else { panic!("the pause is over") };
        assert!(matches!(Hosts::admit(&selector, "e.org", until), Admission::Wait(_)));
        assert_eq!(block("z", false, until), None, "only the trial's end counts while it is on");
        let again = block("d", true, until).unwrap();
        drop(trial);
        assert_eq!(selector.host_pause("e.org"), Some(again), "the trial's end does not undo its verdict");
        assert_eq!(again.since(until), Duration::from_secs(1200));
        let Admission::Trial(trial) = Hosts::admit(&selector, "e.org", again) else { panic!("the pause is over") };
        hosts.trial_delivered(&selector, "e.org");
        drop(trial);
        assert!(matches!(Hosts::admit(&selector, "e.org", again), Admission::Open));
    }

    #[test]
    fn a_trial_without_a_verdict_is_given_back() {
        let selector = Selector::builder().build().unwrap();
        let now = Timestamp::now();
        selector.set_host_pause("e.org", Some(now));
        let Admission::Trial(trial) = Hosts::admit(&selector, "e.org", now) else { panic!("the pause is over") };
        drop(trial);
        assert!(matches!(Hosts::admit(&selector, "e.org", now), Admission::Trial(_)));
    }

    #[test]
    fn a_burst_of_blocks_pauses_the_host_once() {
        let (selector, hosts, now) = (Selector::builder().build().unwrap(), Hosts::default(), Timestamp::now());
        let settings = BackoffSettings::default();
        let paused: Vec<_> =
            (0..18).filter_map(|n| hosts.blocked(&selector, "e.org", &n.to_string(), false, &settings, now)).collect();
        assert_eq!(paused, [now.saturating_add(Duration::from_secs(600))]);
    }

    #[test]
    fn blocks_far_apart_do_not_add_up() {
        let (selector, hosts) = (Selector::builder().build().unwrap(), Hosts::default());
        let settings = BackoffSettings::default();
        for n in 0..20u64 {
            let at = Timestamp::now().saturating_add(Duration::from_secs(n * 601));
            assert_eq!(hosts.blocked(&selector, "e.org", &n.to_string(), false, &settings, at), None);
        }
    }
}
