//! Hosts at risk: when several links of one host are blocked, the host is paused, because the address is what gets banned.
//!
//! Owns the recent blocks of each host and how often it was paused in a row. The pause itself is an atomic in the
//! selector's domain entry, where `select` reads it without a lock.

use std::collections::VecDeque;
use std::time::Duration;

use dashmap::DashMap;

use crate::backoff::{BackoffSettings, RISK_LEVEL_MAX, pause};
use crate::selector::Selector;
use crate::time::Timestamp;

/// How long a trial may take before another caller may make one.
const TRIAL: Duration = Duration::from_secs(120);

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Nothing stands against it.
    Open,
    /// The pause is over and this caller has the trial: how it ends decides about the host.
    Trial,
    /// Another caller has the trial.
    Wait(Timestamp),
}

impl Hosts {
    /// Asks for admission to `domain`, whose pause, if any, is over.
    pub(crate) fn admit(selector: &Selector, domain: &str, now: Timestamp) -> Admission {
        let Some(ended) = selector.host_pause(domain) else { return Admission::Open };
        let next = now.saturating_add(TRIAL);
        if ended <= now && selector.claim_host_trial(domain, ended, next) {
            Admission::Trial
        } else {
            Admission::Wait(selector.host_pause(domain).unwrap_or(next))
        }
    }

    /// A link of the host ended blocked. Returns until when the host is paused now, when it is.
    pub(crate) fn blocked(
        &self,
        selector: &Selector,
        domain: &str,
        link: &str,
        trial: bool,
        settings: &BackoffSettings,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let mut host = self.at_risk.entry(domain.to_owned()).or_default();
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

    /// A link of the host delivered content: the host is fine. True when a pause was lifted.
    pub(crate) fn delivered(&self, selector: &Selector, domain: &str, trial: bool) -> bool {
        self.at_risk.remove(domain);
        if trial {
            selector.set_host_pause(domain, None);
        }
        trial
    }

    /// A trial ended with neither content nor a block: the next caller may make one at once.
    pub(crate) fn inconclusive(selector: &Selector, domain: &str, now: Timestamp) {
        selector.set_host_pause(domain, Some(now));
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
        assert_eq!(Hosts::admit(&selector, "e.org", until), Admission::Trial);
        assert!(matches!(Hosts::admit(&selector, "e.org", until), Admission::Wait(_)));
        let again = block("d", true, until).unwrap();
        assert_eq!(again.since(until), Duration::from_secs(1200));
        assert_eq!(Hosts::admit(&selector, "e.org", again), Admission::Trial);
        assert!(hosts.delivered(&selector, "e.org", true));
        assert_eq!(Hosts::admit(&selector, "e.org", again), Admission::Open);
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
