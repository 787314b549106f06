//! The remaining time of a crawl, from the paces of its hosts and from how fast their links became
//! fewer.
//!
//! Must not know: how links are queued or displayed.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use fetchwise::pace::Pace;
use fetchwise::time::Timestamp;

/// The number of hosts included, those with the most links first; more would take too long.
const MAX_HOSTS: usize = 256;
/// The number of slowest hosts that are named.
const NAMED_HOSTS: usize = 3;
/// The shortest time over which the waiting links of a host are compared.
const MEASURE_TIME: Duration = Duration::from_secs(5);

/// A host with waiting links.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowHost {
    /// Its name.
    pub name: String,
    /// The number of its waiting links.
    pub links: usize,
    /// Links per second: the pace, or what was measured where that is less.
    pub rate: f64,
    /// The end of a hold of its pace; none without one.
    pub held_until: Option<Timestamp>,
    /// The time for its links.
    pub left: Duration,
}

/// The waiting links of one host at two moments.
#[derive(Clone, Copy, Debug)]
struct Drain {
    since: Instant,
    links: usize,
    /// Links per second between the two moments before.
    rate: Option<f64>,
}

impl Drain {
    /// Returns the links per second that left the queue, if that is known.
    fn measure(&mut self, links: usize, at: Instant) -> Option<f64> {
        let elapsed = at.duration_since(self.since);
        if links > self.links {
            (self.since, self.links, self.rate) = (at, links, None);
        } else if elapsed >= MEASURE_TIME {
            let rate = (self.links - links) as f64 / elapsed.as_secs_f64();
            (self.since, self.links, self.rate) = (at, links, (rate > 0.0).then_some(rate));
        }
        self.rate
    }
}

/// Estimates the remaining time again and again.
///
/// A host's pace is what it may be asked; pages that a browser renders take longer than that on a
/// small machine.
#[derive(Debug, Default)]
pub(crate) struct Estimator {
    drains: HashMap<String, Drain>,
}

/// The remaining time of a crawl.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RemainingTime {
    /// The time for all links; none if no pace is known.
    pub left: Option<Duration>,
    /// The hosts that take longest, the slowest first: at most three.
    pub slowest: Vec<SlowHost>,
}

/// The time of an estimate, on both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EstimateTime {
    /// The time of the pace.
    pub(crate) now: Timestamp,
    /// The time of what is measured.
    pub(crate) at: Instant,
}

impl Estimator {
    /// Returns the remaining time and the hosts that take longest. `unread` links are not read yet
    /// and are assumed to be distributed like the others.
    pub(crate) fn estimate<'h>(
        &mut self,
        pace: &Pace,
        hosts: impl Iterator<Item = (&'h str, usize)>,
        unread: u64,
        EstimateTime { now, at }: EstimateTime,
    ) -> RemainingTime {
        let mut hosts: Vec<_> = hosts.collect();
        let all: usize = hosts.iter().map(|(_, links)| links).sum();
        if hosts.len() > MAX_HOSTS {
            // Sorting all of a hundred thousand hosts, four times per second, would take too long.
            hosts.select_nth_unstable_by_key(MAX_HOSTS, |(_, links)| std::cmp::Reverse(*links));
            hosts.truncate(MAX_HOSTS);
        }
        let mut drains = HashMap::with_capacity(hosts.len());
        let waiting = hosts.into_iter().filter_map(|(name, links)| {
            let pace = pace.explain(name, now)?;
            let held = pace.hold_until.map_or(Duration::ZERO, |until| until.since(now));
            // A queue that is still filled, or whose host is held, says nothing about the rate.
            let is_measured = unread == 0 && held.is_zero();
            let mut drain = self.drains.remove(name).filter(|_| is_measured);
            let measured =
                drain.get_or_insert(Drain { since: at, links, rate: None }).measure(links, at);
            drains.extend(drain.map(|drain| (name.to_owned(), drain)));
            let rate = measured.map_or(pace.rate, |measured| measured.min(pace.rate));
            let left = held + Duration::from_secs_f64((links as f64 / rate.max(1e-6)).min(1e9));
            let held_until = pace.hold_until.filter(|until| *until > now);
            Some(SlowHost { name: name.to_owned(), links, rate, held_until, left })
        });
        let mut waiting: Vec<SlowHost> = waiting.collect();
        self.drains = drains;
        waiting.sort_unstable_by_key(|host| std::cmp::Reverse(host.left));
        let more = if all > 0 { 1.0 + unread as f64 / all as f64 } else { 1.0 };
        let left = waiting
            .first()
            .map(|host| Duration::from_secs_f64((host.left.as_secs_f64() * more).min(1e9)));
        waiting.truncate(NAMED_HOSTS);
        RemainingTime { left, slowest: waiting }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fetchwise::pace::{Admit, Cost, PaceMode, PaceSettings, Scope};

    fn text(host: &SlowHost) -> String {
        format!("{} {} links at {:.1}/s", host.name, host.links, host.rate)
    }

    #[test]
    fn the_slowest_host_determines_the_remaining_time() {
        let now = Timestamp::from_millis(1_790_000_000_000);
        let settings =
            PaceSettings { mode: PaceMode::Fixed, initial_rate: 2.0, ..PaceSettings::default() };
        let pace = Pace::new(settings);
        for host in ["a.org", "b.org"] {
            let Admit::Go(permit) = pace.admit(Scope::host(host), Cost::Plain, now) else {
                panic!("it is free")
            };
            pace.cancel(permit, now);
        }
        let hosts = [("a.org", 20), ("b.org", 600), ("unknown.org", 9)];
        let (mut estimator, start) = (Estimator::default(), Instant::now());
        let time = EstimateTime { now, at: start };
        let five = estimator.estimate(&pace, hosts.into_iter(), 0, time);
        assert_eq!(five.left, Some(Duration::from_secs(300)));
        assert_eq!(
            five.slowest.iter().map(text).collect::<Vec<_>>(),
            ["b.org 600 links at 2.0/s", "a.org 20 links at 2.0/s"]
        );
        assert_eq!(
            estimator.estimate(&pace, hosts.into_iter(), 629, time).left,
            Some(Duration::from_secs(600))
        );
        assert_eq!(estimator.estimate(&pace, [].into_iter(), 0, time), RemainingTime::default());
    }

    #[test]
    fn a_host_whose_pages_take_longer_than_its_pace_is_estimated_by_them() {
        let now = Timestamp::from_millis(1_790_000_000_000);
        let settings =
            PaceSettings { mode: PaceMode::Fixed, initial_rate: 8.0, ..PaceSettings::default() };
        let pace = Pace::new(settings);
        let Admit::Go(permit) = pace.admit(Scope::host("a.org"), Cost::Plain, now) else {
            panic!("it is free")
        };
        pace.cancel(permit, now);
        let (mut estimator, start) = (Estimator::default(), Instant::now());
        let mut left = |links: usize, unread: u64, second: u64| {
            let at = start + Duration::from_secs(second);
            text(
                &estimator
                    .estimate(
                        &pace,
                        [("a.org", links)].into_iter(),
                        unread,
                        EstimateTime { now, at },
                    )
                    .slowest[0],
            )
        };
        assert_eq!(left(120, 0, 0), "a.org 120 links at 8.0/s");
        // Ten links in five seconds are two per second, and stay it until the next five have
        // passed.
        assert_eq!(left(110, 0, 5), "a.org 110 links at 2.0/s");
        assert_eq!(left(109, 0, 6), "a.org 109 links at 2.0/s");
        // Faster than the pace allows cannot be: those links were withdrawn.
        assert_eq!(left(20, 0, 11), "a.org 20 links at 8.0/s");
        // No link in five seconds, more links, and a list that is still read say nothing.
        assert_eq!(left(20, 0, 17), "a.org 20 links at 8.0/s");
        assert_eq!(left(30, 0, 23), "a.org 30 links at 8.0/s");
        assert_eq!(left(20, 9, 29), "a.org 20 links at 8.0/s");
    }
}
