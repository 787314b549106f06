//! Links that wait for the end of a pause, and how long a run waits for them.
//!
//! Invariants: the run waits only while nothing else is left to do. The time is counted from the
//! end of other work, or from the last delivered page, so a host that blocks every trial cannot
//! prolong a run.
//!
//! Must not know: how a link is fetched, and why it is paused.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use fetchwise::time::Timestamp;

/// The maximum number of links that wait for a pause. Further ones are reported as paused at once.
const MAX_LINKS: usize = 100_000;

/// How long a run waits for paused links once it has no other work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseWait {
    /// At most this long; zero reports paused links at once.
    AtMost(Duration),
    /// Until every pause has ended.
    Forever,
}

impl PauseWait {
    /// Returns whether a pause of `time` lasts longer.
    pub(crate) fn is_shorter_than(self, time: Duration) -> bool {
        matches!(self, Self::AtMost(limit) if time > limit)
    }
}

/// How many links wait for the end of a pause, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseSummary {
    /// The number of links.
    pub links: usize,
    /// The number of their hosts.
    pub hosts: usize,
    /// The end of the first pause.
    pub first_end: Timestamp,
    /// The end of the last pause.
    pub last_end: Timestamp,
}

/// Links by the end of their pause.
#[derive(Debug)]
pub(crate) struct PausedLinks<T> {
    links: BTreeMap<(Timestamp, u64), (Arc<str>, T)>,
    /// The number of links of each host. Counting them when asked would take too long with many
    /// links.
    hosts: HashMap<Arc<str>, usize>,
    wait: PauseWait,
    number: u64,
    /// The time at which the run had nothing else to do; none after a delivered page.
    idle_since: Option<Timestamp>,
}

impl<T> PausedLinks<T> {
    /// Returns an empty collection.
    pub(crate) fn new(wait: PauseWait) -> Self {
        Self { links: BTreeMap::new(), hosts: HashMap::new(), wait, number: 0, idle_since: None }
    }

    /// Returns the number of links.
    pub(crate) fn len(&self) -> usize {
        self.links.len()
    }

    /// Returns whether a link of `host` waits.
    pub(crate) fn has_host(&self, host: &str) -> bool {
        self.hosts.contains_key(host)
    }

    /// Returns the number of links and hosts, and the ends of their pauses; none without a link.
    pub(crate) fn summary(&self) -> Option<PauseSummary> {
        let (((first_end, _), _), ((last_end, _), _)) =
            (self.links.first_key_value()?, self.links.last_key_value()?);
        let (links, hosts) = (self.links.len(), self.hosts.len());
        Some(PauseSummary { links, hosts, first_end: *first_end, last_end: *last_end })
    }

    /// Adds a link of `host` that is paused until `until`.
    ///
    /// # Errors
    /// The link, if the run does not wait or too many links wait already.
    pub(crate) fn push(&mut self, until: Timestamp, host: &Arc<str>, link: T) -> Result<(), T> {
        if self.wait == PauseWait::AtMost(Duration::ZERO) || self.links.len() >= MAX_LINKS {
            return Err(link);
        }
        self.links.insert((until, self.number), (Arc::clone(host), link));
        *self.hosts.entry(Arc::clone(host)).or_default() += 1;
        self.number += 1;
        Ok(())
    }

    /// Removes and returns a link whose pause is over at `now`, with its host.
    pub(crate) fn pop(&mut self, now: Timestamp) -> Option<(Arc<str>, T)> {
        let (until, _) = *self.links.first_key_value()?.0;
        let (_, (host, link)) = if until <= now { self.links.pop_first()? } else { return None };
        self.uncount(&host);
        Some((host, link))
    }

    /// Returns the end of the first pause.
    pub(crate) fn next_at(&self) -> Option<Timestamp> {
        self.links.first_key_value().map(|((until, _), _)| *until)
    }

    /// Returns the end of the first pause if the run, which has no other work, waits for it.
    pub(crate) fn wait_when_idle(&mut self, now: Timestamp) -> Option<Timestamp> {
        let next = self.next_at()?;
        let since = *self.idle_since.get_or_insert(now);
        match self.wait {
            wait if wait.is_shorter_than(next.since(since)) => None,
            _ => Some(next),
        }
    }

    /// Records a delivered page: the run makes progress.
    pub(crate) fn record_delivery(&mut self) {
        self.idle_since = None;
    }

    /// Returns how long the run waits.
    pub(crate) fn limit(&self) -> PauseWait {
        self.wait
    }

    /// Removes and returns the links that `is_wanted` selects, with their hosts, in the order of
    /// their pauses.
    pub(crate) fn extract(&mut self, is_wanted: impl Fn(&str, &T) -> bool) -> Vec<(Arc<str>, T)> {
        let (wanted, kept): (BTreeMap<_, _>, _) = std::mem::take(&mut self.links)
            .into_iter()
            .partition(|(_, (host, link))| is_wanted(host, link));
        self.links = kept;
        wanted.values().for_each(|(host, _)| self.uncount(host));
        wanted.into_values().collect()
    }

    /// Counts one link of a host less.
    fn uncount(&mut self, host: &str) {
        if let Some(count) = self.hosts.get_mut(host) {
            *count -= 1;
            if *count == 0 {
                self.hosts.remove(host);
            }
        }
    }

    /// Removes and returns all links with their hosts, in the order of their pauses.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = (Arc<str>, T)> + use<T> {
        self.hosts.clear();
        std::mem::take(&mut self.links).into_values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    fn after(seconds: u64) -> Timestamp {
        NOW.saturating_add(Duration::from_secs(seconds))
    }

    fn host(name: &str) -> Arc<str> {
        name.into()
    }

    fn at_most(seconds: u64) -> PausedLinks<u32> {
        PausedLinks::new(PauseWait::AtMost(Duration::from_secs(seconds)))
    }

    #[test]
    fn a_link_comes_back_when_its_pause_is_over() {
        let mut paused = at_most(60);
        for (until, link) in [(20, 1), (10, 2), (20, 3)] {
            paused.push(after(until), &host("a.org"), link).unwrap();
        }
        let mut pop = |second| paused.pop(after(second)).map(|(_, link)| link);
        assert_eq!([pop(9), pop(10), pop(10)], [None, Some(2), None]);
        assert_eq!([pop(20), pop(20), pop(20)], [Some(1), Some(3), None]);
    }

    #[test]
    fn the_summary_counts_each_host_once_for_as_long_as_it_has_a_link() {
        let mut paused = at_most(60);
        for (until, name, link) in
            [(10, "a.org", 1), (30, "a.org", 2), (20, "b.org", 3), (25, "c.org", 4)]
        {
            paused.push(after(until), &host(name), link).unwrap();
        }
        let of = |links, hosts, first, last| {
            Some(PauseSummary { links, hosts, first_end: after(first), last_end: after(last) })
        };
        assert_eq!(paused.summary(), of(4, 3, 10, 30));
        assert_eq!(paused.pop(after(10)), Some((host("a.org"), 1)));
        assert_eq!(paused.summary(), of(3, 3, 20, 30));
        assert_eq!(paused.extract(|name, _| name == "c.org"), [(host("c.org"), 4)]);
        assert_eq!(paused.pop(after(20)), Some((host("b.org"), 3)));
        assert_eq!(paused.summary(), of(1, 1, 30, 30));
        assert_eq!(paused.take_all().map(|(_, link)| link).collect::<Vec<_>>(), [2]);
        assert_eq!(paused.summary(), None);
    }

    #[test]
    fn the_limit_counts_from_the_end_of_other_work() {
        let mut paused = at_most(60);
        paused.push(after(100), &host("a.org"), 1).unwrap();
        assert_eq!(paused.wait_when_idle(after(50)), Some(after(100)));
        // The trial was blocked, and the host is paused again.
        paused.pop(after(100)).unwrap();
        paused.push(after(115), &host("a.org"), 2).unwrap();
        assert_eq!(paused.wait_when_idle(after(100)), None, "the first idle moment was at 50 s");
        paused.record_delivery();
        assert_eq!(
            paused.wait_when_idle(after(100)),
            Some(after(115)),
            "a delivered page is progress"
        );
        paused.push(after(100_000), &host("a.org"), 3).unwrap();
        assert_eq!(paused.take_all().map(|(_, link)| link).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn a_run_waits_forever_or_not_at_all() {
        assert_eq!(at_most(0).push(after(1), &host("a.org"), 1), Err(1));
        let mut forever = PausedLinks::new(PauseWait::Forever);
        forever.push(after(1_000_000), &host("a.org"), 1).unwrap();
        assert_eq!(forever.wait_when_idle(NOW), Some(after(1_000_000)));
    }
}
