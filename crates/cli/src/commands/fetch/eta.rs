//! The remaining time of a crawl, from the paces of its hosts.
//!
//! Must not know: how links are queued or displayed.

use std::time::Duration;

use crate::terminal::output::plain;
use crate::terminal::pace_text::{rate, span};
use fetchwise::pace::{Pace, PaceExplanation};
use fetchwise::time::Timestamp;

/// The number of hosts included, those with the most links first; more would take too long.
const MAX_HOSTS: usize = 256;
/// The number of slowest hosts shown.
const SHOWN_HOSTS: usize = 3;

/// A host with waiting links.
struct WaitingHost {
    name: String,
    links: usize,
    pace: PaceExplanation,
    left: Duration,
}

/// The remaining time of a crawl.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RemainingTime {
    /// The time for all links; none if no pace is known.
    pub(super) left: Option<Duration>,
    /// The hosts that take longest, the slowest first.
    pub(super) slowest: Vec<String>,
}

/// Returns the remaining time and the hosts that take longest. `unread` links are not read yet and are assumed to be
/// distributed like the others.
pub(super) fn estimate<'h>(
    pace: &Pace,
    hosts: impl Iterator<Item = (&'h str, usize)>,
    unread: u64,
    now: Timestamp,
) -> RemainingTime {
    let mut hosts: Vec<_> = hosts.collect();
    let all: usize = hosts.iter().map(|(_, links)| links).sum();
    if hosts.len() > MAX_HOSTS {
        // Sorting all of a hundred thousand hosts, four times per second, would take too long.
        hosts.select_nth_unstable_by_key(MAX_HOSTS, |(_, links)| std::cmp::Reverse(*links));
    }
    let waiting = hosts.into_iter().take(MAX_HOSTS).filter_map(|(name, links)| {
        let pace = pace.explain(name, now)?;
        let held = pace.hold_until.map_or(Duration::ZERO, |until| until.since(now));
        let left = held + Duration::from_secs_f64((links as f64 / pace.rate.max(1e-6)).min(1e9));
        Some(WaitingHost { name: name.to_owned(), links, pace, left })
    });
    let mut waiting: Vec<WaitingHost> = waiting.collect();
    waiting.sort_unstable_by_key(|host| std::cmp::Reverse(host.left));
    let more = if all > 0 { 1.0 + unread as f64 / all as f64 } else { 1.0 };
    RemainingTime {
        left: waiting.first().map(|host| Duration::from_secs_f64((host.left.as_secs_f64() * more).min(1e9))),
        slowest: waiting.iter().take(SHOWN_HOSTS).map(|host| host.text(now)).collect(),
    }
}

impl WaitingHost {
    fn text(&self, now: Timestamp) -> String {
        let held = self.pace.hold_until.filter(|until| *until > now);
        let held = held.map_or(String::new(), |until| format!(", held for {}", span(until.since(now))));
        let links = if self.links == 1 { "link" } else { "links" };
        format!("{} {} {links} at {}{held}", plain(&self.name), self.links, rate(self.pace.rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fetchwise::pace::{Admit, Cost, PaceMode, PaceSettings, Scope};

    #[test]
    fn the_slowest_host_determines_the_remaining_time() {
        let now = Timestamp::from_millis(1_790_000_000_000);
        let settings = PaceSettings { mode: PaceMode::Fixed, initial_rate: 2.0, ..PaceSettings::default() };
        let pace = Pace::new(settings);
        for host in ["a.org", "b.org"] {
            let Admit::Go(permit) = pace.admit(Scope::host(host), Cost::Plain, now) else { panic!("it is free") };
            pace.cancel(permit, now);
        }
        let hosts = [("a.org", 20), ("b.org", 600), ("unknown.org", 9)];
        let five = estimate(&pace, hosts.into_iter(), 0, now);
        assert_eq!(five.left, Some(Duration::from_secs(300)));
        assert_eq!(five.slowest, ["b.org 600 links at 2.0/s", "a.org 20 links at 2.0/s"]);
        assert_eq!(estimate(&pace, hosts.into_iter(), 629, now).left, Some(Duration::from_secs(600)));
        assert_eq!(estimate(&pace, [].into_iter(), 0, now), RemainingTime::default());
    }
}
