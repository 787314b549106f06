//! Hosts at risk: several blocked links of one host, or its "not now", pause the whole host,
//! because sites ban addresses.
//!
//! Owns: the recent blocks of each host, the number of its pauses in a row, and the short pages
//! that it has shown. The pause itself is an atomic in the selector's domain entry, where `select`
//! reads it without a lock. This file reaches it through the trait below.

#[cfg(test)]
use std::collections::HashMap;
use std::collections::VecDeque;
use std::time::Duration;

use dashmap::DashMap;

use crate::backoff::{BackoffSettings, LEFT_FOR, MAX_RISK_LEVEL, pause};
use crate::metrics::recorder::PauseCause;
use crate::state::sweep_trigger::SweepTrigger;
use fetchwise_types::fetch_result::ShortPage;
use fetchwise_types::registry::FetcherId;
use fetchwise_types::time::Timestamp;

/// With more hosts at risk than this, and again whenever they have doubled, those that are no
/// longer at risk are searched for and dropped.
const HOSTS_BEFORE_SCAN: usize = 10_000;
/// A host that declines again within this time of its pause has said nothing new.
const LEFT_AGAIN: Duration = Duration::from_secs(10 * 60);
/// Number of short pages kept per host, to recognise one that comes back under another address.
const MAX_SHORT_PAGES: usize = 8;
/// Time for which the words of a doubtful page, or a page of the network, need no other render.
const SETTLED_FOR: Duration = Duration::from_secs(3_600);

/// Storage of the pauses of hosts.
pub(crate) trait PauseStore {
    /// Returns the end of the host's last pause, if it ever was paused.
    fn until(&self, domain: &str) -> Option<Timestamp>;
    /// Pauses the host, or lifts its pause.
    fn set(&self, domain: &str, until: Option<Timestamp>);
}

/// The hosts that had blocked links lately, that were paused, or that showed short pages.
#[derive(Debug)]
pub(crate) struct HostPauses {
    at_risk: DashMap<String, HostRecord>,
    sweep: SweepTrigger,
    /// Number of hosts that searches have looked at.
    #[cfg(test)]
    looked_at: std::sync::atomic::AtomicUsize,
}

impl Default for HostPauses {
    fn default() -> Self {
        Self {
            at_risk: DashMap::default(),
            sweep: SweepTrigger::new(HOSTS_BEFORE_SCAN),
            #[cfg(test)]
            looked_at: std::sync::atomic::AtomicUsize::default(),
        }
    }
}

#[derive(Debug, Default)]
struct HostRecord {
    /// Links that ended blocked, with the time, oldest first.
    blocks: VecDeque<(String, Timestamp)>,
    /// Number of pauses in a row.
    level: u8,
    /// The fetcher of the last trial of its pace's hold, if that was refused.
    refused_trial: Option<FetcherId>,
    /// When the crawler's network last put a page in place of one of its pages for a browser, too.
    network_refused_at: Option<Timestamp>,
    /// A page of it was compared with its rendering and was merely short.
    has_complete_short_page: bool,
    /// Hashes of text and link of its last short pages.
    short_pages: VecDeque<(u64, u64)>,
    /// Hashes of the texts of doubtful pages for which a browser showed the same words, and the
    /// times.
    settled_pages: VecDeque<(u64, Timestamp)>,
}

/// The reason for a host's pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PauseReason {
    /// One of its links ended blocked; several of them pause the host.
    Blocked,
    /// It answered "not now", and for how long if it said so.
    Limited(Option<Duration>),
    /// It declines this crawler. It is left for [`LEFT_FOR`], and the number of its pauses in a row
    /// stays.
    Declined,
}

impl PauseReason {
    /// Returns the cause that the metrics count.
    pub(crate) fn cause(self) -> PauseCause {
        match self {
            Self::Blocked => PauseCause::Blocked,
            Self::Limited(_) => PauseCause::Limited,
            Self::Declined => PauseCause::Declined,
        }
    }
}

/// Whether a request is the one trial of a host whose pause has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrialRole {
    /// It is the trial: its result decides about the host.
    Trial,
    /// It is an ordinary request.
    Ordinary,
}

/// A link that ended without content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkFailure<'a> {
    /// The domain of the host that failed.
    pub(crate) domain: &'a str,
    /// The link's name.
    pub(crate) link: &'a str,
    /// Whether its request was the host's trial.
    pub(crate) role: TrialRole,
    /// What the host responded.
    pub(crate) why: PauseReason,
    /// The time of the response.
    pub(crate) now: Timestamp,
}

impl HostPauses {
    /// Adds the levels that a replay found.
    pub(crate) fn restore(&self, levels: impl IntoIterator<Item = (String, u8)>) {
        for (domain, level) in levels {
            self.at_risk.entry(domain).or_default().level = level;
        }
    }

    /// Returns the number of hosts that are paused at `now`.
    #[cfg(feature = "metrics")]
    pub(crate) fn paused(&self, pauses: &impl PauseStore, now: Timestamp) -> usize {
        let is_paused = |domain: &String| pauses.until(domain).is_some_and(|until| until > now);
        self.at_risk.iter().filter(|host| is_paused(host.key())).count()
    }

    /// Returns every host that may be paused, with its number of pauses in a row, in no order.
    pub(crate) fn pause_counts(&self) -> Vec<(String, u8)> {
        self.at_risk.iter().map(|entry| (entry.key().clone(), entry.value().level)).collect()
    }

    /// Ends a host's pause for an operator: its earlier blocks no longer count. `on_change` runs
    /// before another thread can change the host.
    pub(crate) fn release(&self, pauses: &impl PauseStore, domain: &str, on_change: impl FnOnce()) {
        let mut host = self.at_risk.entry(domain.to_owned()).or_default();
        host.reset();
        pauses.set(domain, None);
        on_change();
        drop(host);
        self.at_risk.remove_if(domain, |_, host| host.is_idle());
    }

    /// Forgets a host. The caller lifts its pause.
    pub(crate) fn forget(&self, domain: &str) {
        self.at_risk.remove(domain);
    }

    /// Forgets the blocks of all links that `is_forgotten` matches.
    pub(crate) fn forget_links(&self, is_forgotten: impl Fn(&str) -> bool) {
        self.at_risk
            .iter_mut()
            .for_each(|mut host| host.blocks.retain(|(link, _)| !is_forgotten(link)));
    }

    /// Returns the number of pauses in a row of each host.
    #[cfg(test)]
    pub(crate) fn levels(&self) -> HashMap<String, u8> {
        let paused = self.at_risk.iter().filter(|entry| entry.value().level > 0);
        paused.map(|entry| (entry.key().clone(), entry.value().level)).collect()
    }

    /// Records that a link of a host ended without content. Returns the end of the host's pause if
    /// this set one. `on_change` runs before another thread can change the host.
    pub(crate) fn record_failure(
        &self,
        pauses: &impl PauseStore,
        failure: LinkFailure<'_>,
        settings: &BackoffSettings,
        on_change: impl FnOnce(Timestamp),
    ) -> Option<Timestamp> {
        let LinkFailure { domain, link, role, why, now } = failure;
        self.drop_idle(pauses, settings, now);
        let mut host = self.at_risk.entry(domain.to_owned()).or_default();
        let paused = pauses.until(domain).filter(|until| *until > now);
        let is_trial = role == TrialRole::Trial;
        let until = match why {
            PauseReason::Limited(asked) => {
                let asked = asked
                    .map(|span| span.min(settings.max_retry_after))
                    .filter(|span| !span.is_zero());
                let until = now.saturating_add(
                    asked.unwrap_or_else(|| pause(settings.limited_base, host.level)),
                );
                // Sixteen responses to parallel requests are one event: the longest requested pause
                // counts.
                if !is_trial && paused.is_some_and(|paused| paused >= until) {
                    return None;
                }
                until
            }
            PauseReason::Declined => {
                let until = now.saturating_add(LEFT_FOR);
                // Parallel requests are declined at almost the same time: one pause is enough.
                if !is_trial
                    && paused.is_some_and(|paused| paused.saturating_add(LEFT_AGAIN) >= until)
                {
                    return None;
                }
                until
            }
            PauseReason::Blocked => {
                // Requests that were in flight when the pause or the trial began are no new
                // evidence.
                if !is_trial && paused.is_some() {
                    return None;
                }
                host.blocks.retain(|(blocked, at)| {
                    now.since(*at) <= settings.host_block_window && blocked != link
                });
                host.blocks.push_back((link.to_owned(), now));
                if !is_trial && host.blocks.len() < settings.host_block_threshold.max(1) as usize {
                    return None;
                }
                now.saturating_add(pause(settings.blocked_base, host.level))
            }
        };
        if why != PauseReason::Declined && (is_trial || paused.is_none()) {
            host.level = (host.level + 1).min(MAX_RISK_LEVEL);
        }
        host.blocks.clear();
        pauses.set(domain, Some(until));
        on_change(until);
        Some(until)
    }

    /// Returns the fetcher of the last trial of its pace's hold, if that was refused.
    pub(crate) fn refused_trial(&self, domain: &str) -> Option<FetcherId> {
        self.at_risk.get(domain)?.refused_trial
    }

    /// Pauses the host until the hold of its pace ends, unless it has a longer pause. The number of
    /// pauses in a row counts only for pauses without a pace. `refused` is the fetcher of a trial.
    /// `on_change` runs before another thread can change the host.
    pub(crate) fn record_hold(
        &self,
        pauses: &impl PauseStore,
        domain: &str,
        (role, refused): (TrialRole, Option<FetcherId>),
        until: Timestamp,
        on_change: impl FnOnce(Timestamp),
    ) {
        let mut host = self.at_risk.entry(domain.to_owned()).or_default();
        host.blocks.clear();
        host.refused_trial = refused;
        if role == TrialRole::Ordinary && pauses.until(domain).is_some_and(|paused| paused >= until)
        {
            return;
        }
        pauses.set(domain, Some(until));
        on_change(until);
    }

    /// Records that the trial of a host delivered content: the host is fine, and its pause is
    /// lifted.
    pub(crate) fn record_trial_delivery(&self, pauses: &impl PauseStore, domain: &str) {
        if let Some(mut host) = self.at_risk.get_mut(domain) {
            host.reset();
        }
        self.at_risk.remove_if(domain, |_, host| host.is_idle());
        pauses.set(domain, None);
    }

    /// Records that a link of the host was delivered: its earlier blocks no longer count.
    pub(crate) fn record_link_delivery(&self, domain: &str, link: &str) {
        let Some(mut host) = self.at_risk.get_mut(domain) else { return };
        host.blocks.retain(|(blocked, _)| blocked != link);
        drop(host);
        self.at_risk.remove_if(domain, |_, host| host.is_idle());
    }

    /// Records that the crawler's network refuses the host to a browser, too.
    pub(crate) fn record_network_refusal(&self, domain: &str, now: Timestamp) {
        self.make_room();
        self.at_risk.entry(domain.to_owned()).or_default().network_refused_at = Some(now);
    }

    /// Returns whether the crawler's network refused the host to a browser, too, within the hour.
    pub(crate) fn is_refused_by_network(&self, domain: &str, now: Timestamp) -> bool {
        let at = self.at_risk.get(domain).and_then(|host| host.network_refused_at);
        at.is_some_and(|at| now.since(at) <= SETTLED_FOR)
    }

    /// Remembers a short page of the host, and returns whether the same text came for another of
    /// its links before.
    pub(crate) fn record_short_page(&self, domain: &str, link_hash: u64, page: &ShortPage) -> bool {
        self.make_room();
        let mut host = self.at_risk.entry(domain.to_owned()).or_default();
        let came_before = host
            .short_pages
            .iter()
            .any(|(text, link)| *text == page.text_hash && *link != link_hash);
        if !host.short_pages.contains(&(page.text_hash, link_hash)) {
            if host.short_pages.len() == MAX_SHORT_PAGES {
                host.short_pages.pop_front();
            }
            host.short_pages.push_back((page.text_hash, link_hash));
        }
        came_before
    }

    /// Records that a browser showed the same words as a doubtful page.
    pub(crate) fn settle_short_page(&self, domain: &str, text: u64, now: Timestamp) {
        self.make_room();
        let mut host = self.at_risk.entry(domain.to_owned()).or_default();
        host.settled_pages.retain(|(settled, _)| *settled != text);
        if host.settled_pages.len() == MAX_SHORT_PAGES {
            host.settled_pages.pop_front();
        }
        host.settled_pages.push_back((text, now));
    }

    /// Returns whether a browser showed the same words as this doubtful page within the hour.
    pub(crate) fn is_short_page_settled(&self, domain: &str, text: u64, now: Timestamp) -> bool {
        let is_settled =
            |&(settled, at): &(u64, Timestamp)| settled == text && now.since(at) <= SETTLED_FOR;
        self.at_risk.get(domain).is_some_and(|host| host.settled_pages.iter().any(is_settled))
    }

    /// Returns whether a short page of the host was compared with its rendering and was the whole
    /// content.
    pub(crate) fn has_complete_short_page(&self, domain: &str) -> bool {
        self.at_risk.get(domain).is_some_and(|host| host.has_complete_short_page)
    }

    /// Records that a short page of the host was compared with its rendering and was the whole
    /// content.
    pub(crate) fn set_complete_short_page(&self, domain: &str) {
        self.make_room();
        self.at_risk.entry(domain.to_owned()).or_default().has_complete_short_page = true;
    }

    /// Drops the hosts of which only pages and refusals of the network are known, once there are
    /// many. That costs a render for each that comes back.
    fn make_room(&self) {
        if self.sweep.is_due(self.at_risk.len()) {
            self.at_risk.retain(|_, host| {
                host.level > 0 || !host.blocks.is_empty() || host.refused_trial.is_some()
            });
            self.sweep.done(self.at_risk.len());
        }
    }

    /// Drops the hosts whose blocks are old and that are not paused. Their short pages go with
    /// them, which costs one more comparison each.
    fn drop_idle(&self, pauses: &impl PauseStore, settings: &BackoffSettings, now: Timestamp) {
        if self.sweep.is_due(self.at_risk.len()) {
            let recent = |host: &HostRecord| {
                host.blocks
                    .back()
                    .is_some_and(|(_, at)| now.since(*at) <= settings.host_block_window)
            };
            let paused = |domain: &str| pauses.until(domain).is_some_and(|until| until > now);
            self.at_risk.retain(|domain, host| {
                #[cfg(test)]
                self.looked_at.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                host.level > 0 || recent(host) || paused(domain)
            });
            self.sweep.done(self.at_risk.len());
        }
    }
}

impl HostRecord {
    /// Resets the blocks: the host is fine.
    fn reset(&mut self) {
        self.level = 0;
        self.blocks.clear();
        self.refused_trial = None;
    }

    fn is_idle(&self) -> bool {
        let has_pages = !self.short_pages.is_empty()
            || !self.settled_pages.is_empty()
            || self.has_complete_short_page;
        let is_refused = self.refused_trial.is_some() || self.network_refused_at.is_some();
        self.level == 0 && self.blocks.is_empty() && !is_refused && !has_pages
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    #[derive(Default)]
    struct InMemoryPauses(RefCell<HashMap<String, Timestamp>>);

    impl PauseStore for InMemoryPauses {
        fn until(&self, domain: &str) -> Option<Timestamp> {
            self.0.borrow().get(domain).copied()
        }

        fn set(&self, domain: &str, until: Option<Timestamp>) {
            match until {
                Some(until) => drop(self.0.borrow_mut().insert(domain.to_owned(), until)),
                None => drop(self.0.borrow_mut().remove(domain)),
            }
        }
    }

    fn after(seconds: u64) -> Timestamp {
        NOW.saturating_add(Duration::from_secs(seconds))
    }

    fn fail(
        hosts: &HostPauses,
        pauses: &InMemoryPauses,
        link: &str,
        role: TrialRole,
        why: PauseReason,
        now: Timestamp,
    ) -> Option<u64> {
        let failure = LinkFailure { domain: "e.org", link, role, why, now };
        let until = hosts.record_failure(pauses, failure, &BackoffSettings::default(), |_| {});
        until.map(|until| until.since(now).as_secs())
    }

    #[test]
    fn three_blocked_links_pause_the_host_and_the_trial_decides() {
        let (hosts, pauses) = (HostPauses::default(), InMemoryPauses::default());
        let block = |link, role, now| fail(&hosts, &pauses, link, role, PauseReason::Blocked, now);
        assert_eq!(block("a", TrialRole::Ordinary, NOW), None);
        assert_eq!(block("a", TrialRole::Ordinary, NOW), None, "the same link counts once");
        assert_eq!(block("b", TrialRole::Ordinary, NOW), None);
        assert_eq!(block("c", TrialRole::Ordinary, NOW), Some(600));
        assert_eq!(
            block("z", TrialRole::Ordinary, after(599)),
            None,
            "it was in flight when the pause began"
        );
        assert_eq!(block("d", TrialRole::Trial, after(600)), Some(1200));
        hosts.record_trial_delivery(&pauses, "e.org");
        assert_eq!(pauses.until("e.org"), None);
        assert!(hosts.levels().is_empty());
    }

    #[test]
    fn a_burst_of_blocks_pauses_the_host_once() {
        let (hosts, pauses) = (HostPauses::default(), InMemoryPauses::default());
        let paused: Vec<_> = (0..18)
            .filter_map(|n| {
                fail(
                    &hosts,
                    &pauses,
                    &n.to_string(),
                    TrialRole::Ordinary,
                    PauseReason::Blocked,
                    NOW,
                )
            })
            .collect();
        assert_eq!(paused, [600]);
    }

    #[test]
    fn blocks_far_apart_do_not_add_up() {
        let (hosts, pauses) = (HostPauses::default(), InMemoryPauses::default());
        for n in 0..20u64 {
            let paused = fail(
                &hosts,
                &pauses,
                &n.to_string(),
                TrialRole::Ordinary,
                PauseReason::Blocked,
                after(n * 601),
            );
            assert_eq!(paused, None);
        }
    }

    #[test]
    fn a_host_that_says_not_now_is_paused_from_its_first_response_on() {
        let (hosts, pauses) = (HostPauses::default(), InMemoryPauses::default());
        let limit = |asked: Option<u64>, role, now| {
            fail(
                &hosts,
                &pauses,
                "a",
                role,
                PauseReason::Limited(asked.map(Duration::from_secs)),
                now,
            )
        };
        assert_eq!(limit(Some(3600), TrialRole::Ordinary, NOW), Some(3600));
        assert_eq!(
            limit(Some(60), TrialRole::Ordinary, after(1)),
            None,
            "a shorter request of the same burst changes nothing"
        );
        assert_eq!(
            limit(Some(7200), TrialRole::Ordinary, after(1)),
            Some(7200),
            "a longer one does"
        );
        assert_eq!(
            hosts.levels(),
            HashMap::from([("e.org".to_owned(), 1)]),
            "and both are one event"
        );
        assert_eq!(
            limit(None, TrialRole::Trial, after(7201)),
            Some(60),
            "twice thirty seconds: the second in a row"
        );
        assert_eq!(
            limit(Some(1 << 40), TrialRole::Trial, after(8000)),
            Some(86_400),
            "a request is cut to one day"
        );
    }

    #[test]
    fn hosts_of_which_only_pages_or_a_refusal_by_the_network_are_known_stay_bounded() {
        let hosts = HostPauses::default();
        for n in 0..10 * HOSTS_BEFORE_SCAN {
            hosts.record_network_refusal(&format!("{n}.org"), NOW);
            hosts.set_complete_short_page(&format!("{n}.example"));
        }
        assert!(hosts.at_risk.len() <= 2 * HOSTS_BEFORE_SCAN, "{}", hosts.at_risk.len());
        assert!(hosts.is_refused_by_network(&format!("{}.org", 10 * HOSTS_BEFORE_SCAN - 1), NOW));
    }

    /// With more than 10,000 hosts at risk, each block at a further one looked at all of them.
    #[test]
    fn a_host_at_risk_costs_the_same_however_many_there_are() {
        let (hosts, pauses, settings) =
            (HostPauses::default(), InMemoryPauses::default(), BackoffSettings::default());
        let block = |n: usize, now| {
            let (host, role, why) = (format!("{n}.org"), TrialRole::Ordinary, PauseReason::Blocked);
            let failure = LinkFailure { domain: &host, link: "link", role, why, now };
            hosts.record_failure(&pauses, failure, &settings, |_| {});
        };
        let most = 10 * HOSTS_BEFORE_SCAN;
        (0..most).for_each(|n| block(n, NOW));
        assert_eq!(hosts.at_risk.len(), most, "all of them have a recent block");
        let looked_at = hosts.looked_at.load(std::sync::atomic::Ordering::Relaxed);
        assert!(looked_at <= 2 * most, "{looked_at}");
        let later = NOW.saturating_add(2 * settings.host_block_window);
        (most..3 * most).for_each(|n| block(n, later));
        assert!(!hosts.at_risk.contains_key("0.org"), "old blocks go");
    }

    #[test]
    fn a_short_page_that_comes_under_another_address_is_recognised() {
        let hosts = HostPauses::default();
        let page = ShortPage::new(20, 7);
        assert!(!hosts.record_short_page("e.org", 1, &page));
        assert!(!hosts.record_short_page("e.org", 1, &page), "the same link may show it again");
        assert!(hosts.record_short_page("e.org", 2, &page));
        assert!(
            !hosts.record_short_page("f.org", 2, &page),
            "pages of different hosts are independent"
        );
    }
}
