//! The progress of a run as text: the lines of the live region, and the status line without a
//! terminal.
//!
//! Must not know: how the lines are drawn.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use indicatif::HumanCount;

use crate::terminal::live_region;
use crate::terminal::output::{counted, plain};
use crate::terminal::pace_text::{countdown, rate, short_time, span};
use fetchwise::time::Timestamp;
use fetchwise_crawl::{CrawlStatus, PauseSummary, RemainingTime, SlowHost, Totals};
use fetchwise_serve::CrawlFigures;

/// The time over which the rate of results is measured.
const RATE_WINDOW: Duration = Duration::from_secs(15);
/// The width of the bar on a wide terminal.
const BAR_WIDTH: usize = 30;

/// The interval of status lines without a terminal.
const STATUS_INTERVAL: Duration = Duration::from_secs(60);

/// The times of status lines.
#[derive(Debug)]
pub(super) struct StatusTimer {
    last: Instant,
}

impl StatusTimer {
    /// Returns a timer whose first line is due an interval after `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self { last: now }
    }

    /// Returns whether a line is due.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now.duration_since(self.last) >= STATUS_INTERVAL
    }

    /// Returns whether a line is due, and starts the next interval if so.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let is_due = self.is_due(now);
        if is_due {
            self.last = now;
        }
        is_due
    }
}

/// The numbers behind the text.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The number of links, if known.
    pub(super) total: Option<u64>,
    /// The number of links that a work queue still has, at all nodes; none without a queue.
    pub(super) queue_left: Option<u64>,
    /// Since when no site answers this machine; none while its connection is good.
    pub(super) connection_lost: Option<Timestamp>,
    /// The number of finished links, with those of an earlier run.
    pub(super) done: u64,
    /// The remaining time of the links that wait for no pause.
    pub(super) remaining: RemainingTime,
    /// The links that wait for the end of a pause; none without one.
    pub(super) paused: Option<PauseSummary>,
    /// The time of the other values.
    pub(super) now: Timestamp,
    /// Times at which links finished, with their number; the newest last.
    recent: VecDeque<(Instant, u64)>,
}

impl Progress {
    /// Takes over the status of a crawl, which was made at `now`.
    pub(super) fn update(&mut self, status: &CrawlStatus<'_>, now: Instant) {
        (self.total, self.done, self.queue_left) = (status.total, status.done, status.queue_left);
        (self.remaining, self.paused, self.now) =
            (status.remaining.clone(), status.paused, status.at);
        self.connection_lost = status.connection_lost;
        let sum = status.totals;
        self.measure(sum.delivered + sum.missing + sum.not_delivered(), now);
    }

    /// Records the number of links that this run has finished so far.
    fn measure(&mut self, finished: u64, now: Instant) {
        self.recent.push_back((now, finished));
        while self.recent.len() > 2
            && self.recent.front().is_some_and(|(at, _)| now.duration_since(*at) > RATE_WINDOW)
        {
            self.recent.pop_front();
        }
    }

    /// Returns the rate of results per second.
    fn rate(&self) -> Option<f64> {
        let ((from, before), (to, after)) = (self.recent.front()?, self.recent.back()?);
        let seconds = to.duration_since(*from).as_secs_f64();
        (seconds > 0.5 && after > before).then(|| (after - before) as f64 / seconds)
    }

    /// Returns the time for the links that wait for no pause: from the paces of their hosts, or
    /// else from the rate of results. None if neither is known or no such link is left.
    fn left(&self) -> Option<Duration> {
        self.remaining.left.or_else(|| {
            let paused = self.paused.map_or(0, |paused| paused.links as u64);
            let links = self.total?.checked_sub(self.done + paused).filter(|links| *links > 0)?;
            Some(Duration::from_secs_f64((links as f64 / self.rate()?).clamp(1.0, 1e9)))
        })
    }

    /// Returns the counts and the remaining time:
    /// `1,259/2,000 42/s 5 min left, then paused links of 3 hosts until 06:56Z`.
    fn figures(&self) -> Vec<String> {
        let done = HumanCount(self.done);
        let mut figures = vec![match self.total {
            Some(total) => format!("{done}/{}", HumanCount(total)),
            None => format!("{done} done"),
        }];
        figures
            .extend(self.queue_left.map(|left| format!("{} left in the queue", HumanCount(left))));
        figures.extend(self.rate().map(rate));
        match self.connection_lost {
            Some(since) => figures.push(format!(
                "no site answers this machine since {}: waiting for its connection",
                short_time(since, self.now)
            )),
            None => figures.extend(self.remaining_text()),
        }
        figures
    }

    /// Returns the remaining time as text; none if nothing is known of it. While a pause is all
    /// that is left, it counts down to the next trial.
    fn remaining_text(&self) -> Option<String> {
        let left = self.left().map(|left| format!("{} left", span(left)));
        let Some(paused) = self.paused else { return left };
        let last = short_time(paused.last_end, self.now);
        let hosts = counted(paused.hosts, "host", "hosts");
        Some(match left {
            Some(left) => format!("{left}, then paused links of {hosts} until {last}"),
            None => {
                let next = countdown(paused.first_end.since(self.now));
                format!("paused links of {hosts}, next trial in {next}, last at {last}")
            }
        })
    }

    /// Returns the same for the dashboard.
    pub(super) fn crawl_figures(&self) -> CrawlFigures {
        let mut figures = CrawlFigures::default();
        (figures.total, figures.done) = (self.total, self.done);
        let left = self.total.map(|total| total.saturating_sub(self.done));
        figures.left = left.or(self.queue_left);
        (figures.rate, figures.remaining) = (self.rate(), self.left());
        if let Some(paused) = self.paused {
            (figures.paused_links, figures.paused_hosts) =
                (paused.links as u64, paused.hosts as u64);
            (figures.next_pause_end, figures.last_pause_end) =
                (Some(paused.first_end), Some(paused.last_end));
        }
        figures
    }

    /// Returns the lines of the live region for a terminal of this width.
    pub(super) fn lines(&self, totals: &Totals, width: usize, is_utf8: bool) -> Vec<String> {
        let figures = self.figures().join("  ");
        let first = match self.total {
            Some(total) => {
                let room = width.saturating_sub(figures.chars().count() + 2);
                match room.min(BAR_WIDTH) {
                    0..5 => figures,
                    bar => {
                        format!("{}  {figures}", live_region::bar(self.done, total, bar, is_utf8))
                    }
                }
            }
            None => figures,
        };
        let mut lines = vec![first, self.outcomes(totals).join("  ")];
        for (index, host) in self.remaining.slowest.iter().enumerate() {
            let label = if index == 0 { "slowest:  " } else { "          " };
            lines.push(format!("{label}{}", slow_host(host, self.now)));
        }
        lines
    }

    /// Returns the status line without a terminal.
    pub(super) fn status(&self, totals: &Totals) -> String {
        let slowest = self
            .remaining
            .slowest
            .first()
            .map(|host| format!("slowest host {}", slow_host(host, self.now)));
        self.figures()
            .into_iter()
            .chain(self.outcomes(totals))
            .chain(slowest)
            .collect::<Vec<_>>()
            .join(", ")
    }

    fn outcomes(&self, totals: &Totals) -> Vec<String> {
        let counts = [
            (totals.delivered, "delivered"),
            (totals.missing, "missing"),
            (totals.failed, "failed"),
            (totals.unclassified, "not fetched"),
            (totals.paused + self.paused.map_or(0, |paused| paused.links as u64), "paused"),
            (totals.skipped, "done earlier"),
            (totals.requests, "requests"),
        ];
        let counts = counts.into_iter().filter(|(count, name)| *count > 0 || *name == "delivered");
        counts.map(|(count, name)| format!("{} {name}", HumanCount(count))).collect()
    }
}

/// Returns a host with waiting links as text.
fn slow_host(host: &SlowHost, now: Timestamp) -> String {
    let held = host
        .held_until
        .map_or_else(String::new, |until| format!(", held for {}", span(until.since(now))));
    let links = if host.links == 1 { "link" } else { "links" };
    format!("{} {} {links} at {}{held}", plain(&host.name), host.links, rate(host.rate))
}

/// Returns the links, their hosts and the ends of their pauses as text that stays right while time
/// passes.
pub(super) fn pauses(paused: &PauseSummary, now: Timestamp) -> String {
    let links = counted(paused.links, "paused URL", "paused URLs");
    let hosts = counted(paused.hosts, "host", "hosts");
    let [first, last] = [paused.first_end, paused.last_end].map(|end| short_time(end, now));
    match first == last {
        true => format!("{links} of {hosts} until {last}"),
        false => format!("{links} of {hosts}: the first pause ends at {first}, the last at {last}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress() -> (Progress, Totals) {
        let totals = Totals {
            delivered: 1_179,
            missing: 74,
            failed: 6,
            requests: 1_304,
            ..Totals::default()
        };
        let slow = |name: &str, links, rate| SlowHost {
            name: name.to_owned(),
            links,
            rate,
            held_until: None,
            left: Duration::ZERO,
        };
        let slowest = vec![slow("127.0.0.27", 189, 0.6), slow("b.org", 20, 2.0)];
        let remaining = RemainingTime { left: Some(Duration::from_secs(300)), slowest };
        // 14:13:20 UTC.
        let now = Timestamp::from_millis(1_790_000_000_000);
        let [first_end, last_end] =
            [400, 795].map(|seconds| now.saturating_add(Duration::from_secs(seconds)));
        let paused = Some(PauseSummary { links: 244, hosts: 3, first_end, last_end });
        let mut progress = Progress {
            total: Some(2_000),
            done: 1_259,
            remaining,
            paused,
            now,
            ..Progress::default()
        };
        let begun = Instant::now();
        progress.measure(1_000, begun);
        progress.measure(1_259, begun + Duration::from_secs(6));
        (progress, totals)
    }

    #[test]
    fn the_region_has_a_bar_counts_and_the_slowest_hosts() {
        let (progress, totals) = progress();
        let lines = progress.lines(&totals, 119, false);
        let left = "1,259/2,000  43/s  5 min left, then paused links of 3 hosts until 14:26:35Z";
        assert_eq!(lines[0], format!("##################------------  {left}"));
        assert_eq!(lines[1], "1,179 delivered  74 missing  6 failed  244 paused  1,304 requests");
        assert_eq!(
            lines[2..],
            ["slowest:  127.0.0.27 189 links at 0.6/s", "          b.org 20 links at 2.0/s"]
        );
        for width in [79, 59, 40, 20] {
            assert!(
                progress.lines(&totals, width, true)[0].chars().count() <= width.max(left.len()),
                "{width}"
            );
        }
    }

    #[test]
    fn pauses_follow_the_remaining_time_and_count_down_once_nothing_else_is_left() {
        // 14:13:20 UTC.
        let now = Timestamp::from_millis(1_790_000_000_000);
        let after = |seconds| now.saturating_add(Duration::from_secs(seconds));
        let of = |left: Option<u64>, paused: Option<(usize, usize, u64, u64)>, at| {
            let paused = paused.map(|(links, hosts, first, last)| PauseSummary {
                links,
                hosts,
                first_end: after(first),
                last_end: after(last),
            });
            let left = left.map(Duration::from_secs);
            let remaining = RemainingTime { left, ..RemainingTime::default() };
            Progress { remaining, paused, now: after(at), ..Progress::default() }.remaining_text()
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(of(Some(20), None, 0), some("20 s left"));
        let both = Some((301, 3, 400, 795));
        assert_eq!(
            of(Some(20), both, 0),
            some("20 s left, then paused links of 3 hosts until 14:26:35Z")
        );
        let idle = |at| of(None, both, at).unwrap();
        assert_eq!(idle(0), "paused links of 3 hosts, next trial in 6 min 40 s, last at 14:26:35Z");
        assert_eq!(idle(1), "paused links of 3 hosts, next trial in 6 min 39 s, last at 14:26:35Z");
        assert_eq!(
            of(None, Some((1, 1, 9, 9)), 0),
            some("paused links of 1 host, next trial in 9 s, last at 14:13:29Z")
        );
        assert_eq!(of(None, None, 0), None);
        let text = |first, last| {
            pauses(
                &PauseSummary {
                    links: 294,
                    hosts: 2,
                    first_end: after(first),
                    last_end: after(last),
                },
                now,
            )
        };
        assert_eq!(text(400, 400), "294 paused URLs of 2 hosts until 14:20:00Z");
        let two = "294 paused URLs of 2 hosts: the first pause ends at 14:20:00Z, the last at 2026-09-22T18:00:00Z";
        assert_eq!(text(400, 100_000), two);
    }

    #[test]
    fn without_a_pace_the_rate_of_results_gives_the_remaining_time() {
        let (mut progress, _) = progress();
        progress.remaining = RemainingTime::default();
        // 741 links less 244 paused ones, at 259 in six seconds.
        assert_eq!(progress.left().map(|left| left.as_secs()), Some(11));
        progress.done = 1_755;
        assert_eq!(progress.left(), Some(Duration::from_secs(1)), "the last link is being fetched");
        progress.done = 1_756;
        assert_eq!(progress.left(), None);
        progress.total = None;
        assert_eq!(progress.left(), None);
    }

    #[test]
    fn a_status_line_is_due_once_a_minute() {
        let begun = Instant::now();
        let mut timer = StatusTimer::new(begun);
        // A run looks at the timer four times per second.
        let seconds = |quarter: u64| Duration::from_millis(250 * quarter);
        let due: Vec<u64> =
            (0..=4 * 200).filter(|quarter| timer.take(begun + seconds(*quarter))).collect();
        assert_eq!(due, [240, 480, 720]);
        // A run that was stopped for a while catches up with one line.
        assert!(timer.is_due(begun + seconds(4 * 3600)) && timer.take(begun + seconds(4 * 3600)));
        assert!(!timer.take(begun + seconds(4 * 3600 + 239)));
    }

    #[test]
    fn a_work_queue_has_no_total_and_says_what_is_left() {
        let (mut progress, totals) = progress();
        (progress.total, progress.queue_left, progress.remaining.left) = (None, Some(1_205), None);
        let status = progress.status(&totals);
        let begin = "1,259 done, 1,205 left in the queue, 43/s, paused links of 3 hosts, next trial in 6 min 40 s, ";
        assert!(status.starts_with(begin), "{status}");
        assert_eq!(progress.crawl_figures().left, Some(1_205));
    }

    #[test]
    fn a_lost_connection_takes_the_place_of_the_remaining_time() {
        let (mut progress, totals) = progress();
        progress.connection_lost = Some(progress.now.moved_by(-90_000));
        let status = progress.status(&totals);
        let figures = "1,259/2,000, 43/s, no site answers this machine since 14:11:50Z: waiting for its connection, 1,179";
        assert!(status.starts_with(figures), "{status}");
    }

    #[test]
    fn without_a_terminal_there_is_one_line() {
        let (progress, totals) = progress();
        let status = progress.status(&totals);
        assert!(status.starts_with(
            "1,259/2,000, 43/s, 5 min left, then paused links of 3 hosts until 14:26:35Z, 1,179 delivered, 74 missing"
        ), "{status}");
        assert!(status.ends_with("slowest host 127.0.0.27 189 links at 0.6/s"), "{status}");
    }
}
