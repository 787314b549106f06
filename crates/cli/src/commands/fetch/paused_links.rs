//! Links that wait for the end of a pause, and how long a run waits for them.
//!
//! Invariants: the run waits only while nothing else is left to do. The time is counted from the end of other work, or
//! from the last delivered page, so a host that blocks every trial cannot prolong a run.
//!
//! Must not know: how a link is fetched, and why it is paused.

use std::collections::BTreeMap;
use std::time::Duration;

use fetchwise::time::Timestamp;

/// The maximum number of links that wait for a pause. Further ones are reported as paused at once.
const MAX_LINKS: usize = 100_000;

/// How long a run waits for paused links once it has no other work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PauseWait {
    /// At most this long; zero reports paused links at once.
    AtMost(Duration),
    /// Until every pause has ended.
    Forever,
}

impl PauseWait {
    /// Returns whether a pause of `time` lasts longer.
    pub(super) fn is_shorter_than(self, time: Duration) -> bool {
        matches!(self, Self::AtMost(limit) if time > limit)
    }
}

/// Links by the end of their pause.
#[derive(Debug)]
pub(super) struct PausedLinks<T> {
    links: BTreeMap<(Timestamp, u64), T>,
    wait: PauseWait,
    number: u64,
    /// The time at which the run had nothing else to do; none after a delivered page.
    idle_since: Option<Timestamp>,
}

impl<T> PausedLinks<T> {
    /// Returns an empty collection.
    pub(super) fn new(wait: PauseWait) -> Self {
        Self { links: BTreeMap::new(), wait, number: 0, idle_since: None }
    }

    /// Returns the number of links.
    pub(super) fn len(&self) -> usize {
        self.links.len()
    }

    /// Adds a link that is paused until `until`.
    ///
    /// # Errors
    /// The link, if the run does not wait or too many links wait already.
    pub(super) fn push(&mut self, until: Timestamp, link: T) -> Result<(), T> {
        if self.wait == PauseWait::AtMost(Duration::ZERO) || self.links.len() >= MAX_LINKS {
            return Err(link);
        }
        self.links.insert((until, self.number), link);
        self.number += 1;
        Ok(())
    }

    /// Removes and returns a link whose pause is over at `now`.
    pub(super) fn pop(&mut self, now: Timestamp) -> Option<T> {
        let (until, _) = *self.links.first_key_value()?.0;
        if until <= now { self.links.pop_first().map(|(_, link)| link) } else { None }
    }

    /// Returns the end of the first pause.
    pub(super) fn next_at(&self) -> Option<Timestamp> {
        self.links.first_key_value().map(|((until, _), _)| *until)
    }

    /// Returns the end of the first pause if the run, which has no other work, waits for it.
    pub(super) fn wait_when_idle(&mut self, now: Timestamp) -> Option<Timestamp> {
        let next = self.next_at()?;
        let since = *self.idle_since.get_or_insert(now);
        match self.wait {
            wait if wait.is_shorter_than(next.since(since)) => None,
            _ => Some(next),
        }
    }

    /// Records a delivered page: the run makes progress.
    pub(super) fn record_delivery(&mut self) {
        self.idle_since = None;
    }

    /// Returns how long the run waits.
    pub(super) fn limit(&self) -> PauseWait {
        self.wait
    }

    /// Removes and returns the links that `is_wanted` selects.
    pub(super) fn extract(&mut self, is_wanted: impl Fn(&T) -> bool) -> Vec<T> {
        let (wanted, kept) = std::mem::take(&mut self.links).into_iter().partition(|(_, link)| is_wanted(link));
        self.links = kept;
        BTreeMap::into_values(wanted).collect()
    }

    /// Removes and returns all links in the order of their pauses.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = T> + use<T> {
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

    fn at_most(seconds: u64) -> PausedLinks<u32> {
        PausedLinks::new(PauseWait::AtMost(Duration::from_secs(seconds)))
    }

    #[test]
    fn a_link_comes_back_when_its_pause_is_over() {
        let mut paused = at_most(60);
        for (until, link) in [(20, 1), (10, 2), (20, 3)] {
            paused.push(after(until), link).unwrap();
        }
        assert_eq!((paused.pop(after(9)), paused.next_at()), (None, Some(after(10))));
        assert_eq!([paused.pop(after(10)), paused.pop(after(10))], [Some(2), None]);
        assert_eq!([paused.pop(after(20)), paused.pop(after(20))], [Some(1), Some(3)]);
    }

    #[test]
    fn the_limit_counts_from_the_end_of_other_work() {
        let mut paused = at_most(60);
        paused.push(after(100), 1).unwrap();
        assert_eq!(paused.wait_when_idle(after(50)), Some(after(100)));
        // The trial was blocked, and the host is paused again.
        paused.pop(after(100)).unwrap();
        paused.push(after(115), 2).unwrap();
        assert_eq!(paused.wait_when_idle(after(100)), None, "the first idle moment was at 50 s");
        paused.record_delivery();
        assert_eq!(paused.wait_when_idle(after(100)), Some(after(115)), "a delivered page is progress");
        paused.push(after(100_000), 3).unwrap();
        assert_eq!(paused.take_all().collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn a_run_waits_forever_or_not_at_all() {
        assert_eq!(at_most(0).push(after(1), 1), Err(1));
        let mut forever = PausedLinks::new(PauseWait::Forever);
        forever.push(after(1_000_000), 1).unwrap();
        assert_eq!(forever.wait_when_idle(NOW), Some(after(1_000_000)));
    }
}
