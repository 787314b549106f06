//! The pace of a host for a person to read.
//!
//! Invariants: reading changes nothing.

use std::fmt;
use std::time::Duration;

use crate::limiter::admission::Round;
use crate::limiter::window::{NAMES, SECONDS, WINDOWS};
use crate::signals::response::{Cause, Level};
use fetchwise_types::time::Timestamp;

/// The pace of a host: its rate, its limits, the counts, and the next ceiling probe.
///
/// Its `Display` is a few lines, each with a keyword in front.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Explained {
    /// Requests per second.
    pub rate: f64,
    /// Maximum parallel requests.
    pub parallel: u8,
    /// Requests in flight.
    pub in_flight: u8,
    /// The level with the lowest limit.
    pub level: Level,
    /// The rate is configured, not learned.
    pub is_fixed: bool,
    /// The gap that is kept because of the host's `Crawl-delay`: the delay, or the maximum.
    pub floor: Option<Duration>,
    /// The `Crawl-delay` of the host when its robots.txt was last read.
    pub crawl_delay: Option<Duration>,
    /// The maximum of the settings, if the `Crawl-delay` is longer: the gap is kept only up to it.
    pub crawl_delay_cut: Option<Duration>,
    /// The lowest ceiling, with its window.
    pub ceiling: Option<(f64, &'static str)>,
    /// The rate at which the limit was hit, in requests per second.
    pub limit: Option<f64>,
    /// The limit was hit twice.
    pub is_confirmed: bool,
    /// The last limit hit, with its cause.
    pub event: Option<(Timestamp, Cause)>,
    /// The end of the hold.
    pub hold_until: Option<Timestamp>,
    /// How long the host last refused requests.
    pub penalty: Option<Duration>,
    /// The number of requests that were too many, with their window.
    pub too_many: Option<(u64, &'static str)>,
    /// Windows that were cleared of suspicion.
    pub cleared: Vec<&'static str>,
    /// The next ceiling probe, with the rate that it tries.
    pub next_look: Option<(Timestamp, f64)>,
    /// The average latency, and its ratio to the latency of the quiet host.
    pub latency: Option<(Duration, f64)>,
    /// The time of this explanation.
    pub now: Timestamp,
}

impl Round<'_> {
    /// Returns the pace of the host, or of its site or address if that limits it.
    pub(super) fn explain(&mut self) -> Explained {
        self.wake();
        let mut level = Level::Host;
        let mut least = f64::INFINITY;
        for candidate in [Level::Host, Level::Site, Level::Address] {
            if let Some(live) = self.live(candidate)
                && live.rate() < least
            {
                (level, least) = (candidate, live.rate());
            }
        }
        let now = Timestamp::from_millis(self.now);
        let holds =
            [Level::Host, Level::Site, Level::Address].map(|level| self.live(level).and_then(|live| live.hold()));
        let latency = self
            .live(Level::Host)
            .filter(|live| !live.hot.fast.is_nan())
            .map(|live| (Duration::from_secs_f64(f64::from(live.hot.fast).exp().clamp(0.0, 1e6)), live.slowness()));
        let in_flight = self.live(Level::Host).map_or(0, |live| live.hot.in_flight);
        let parallel = self.live(Level::Host).map_or(0, |live| live.par());
        let floor = self.live(Level::Host).and_then(|live| live.floor_s()).map(Duration::from_secs_f64);
        let wish = self.live(Level::Host).and_then(|live| live.cold.wish.some());
        let most = self.settings.max_crawl_delay_s;
        let mut explained = Explained {
            rate: least,
            parallel,
            in_flight,
            level,
            is_fixed: false,
            floor,
            crawl_delay: wish.map(Duration::from_secs_f64),
            crawl_delay_cut: wish.filter(|wish| *wish > most).map(|_| Duration::from_secs_f64(most)),
            ceiling: None,
            limit: None,
            is_confirmed: false,
            event: None,
            hold_until: holds.into_iter().flatten().max().map(Timestamp::from_millis),
            penalty: None,
            too_many: None,
            cleared: Vec::new(),
            next_look: None,
            latency,
            now,
        };
        let now = self.now;
        let Some(live) = self.live(level) else { return explained };
        let cold = &*live.cold;
        explained.is_fixed = live.rules.is_fixed;
        if let Some(floor) = explained.floor {
            explained.rate = explained.rate.min(1.0 / floor.as_secs_f64());
        }
        explained.penalty = cold.penalty.some().map(Duration::from_secs_f64);
        explained.is_confirmed = cold.is_confirmed(now);
        if cold.event > 0 {
            explained.event = Some((Timestamp::from_millis(i64::from(cold.event) * 1000), cold.cause()));
        }
        let (ceiling, window) = live.ceiling();
        if let Some(window) = window.or(cold.blamed()).filter(|window| !cold.cap[*window].is_none()) {
            explained.ceiling = Some((ceiling, NAMES[window]));
            explained.limit = cold.hi[window].some();
            explained.too_many =
                cold.hi[window].some().map(|hi| ((hi * SECONDS[window]).round() as u64, NAMES[window]));
            let clear = |other: &usize| {
                *other != window && (cold.hi[*other].is_none() || cold.hi[*other] <= cold.clean[*other])
            };
            explained.cleared = (0..WINDOWS).filter(clear).map(|window| NAMES[window]).collect();
            if cold.given() != Some(window) && !live.rules.is_fixed {
                let at = Timestamp::from_millis((i64::from(cold.probe_at) * 1000).max(now));
                explained.next_look = Some((at, live.next_cap(window)));
            }
        }
        explained
    }
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pace     {} requests/s, {} at once", Figure(self.rate), self.parallel)?;
        match (self.is_fixed, &self.event) {
            (true, _) => f.write_str(": configured")?,
            (false, Some((at, cause))) => {
                write!(f, ": lowered {} ago after {cause}", Span(self.now.since(*at)))?;
                if let Some(limit) = self.limit {
                    write!(f, ", limit met at {}/s", Figure(limit))?;
                }
            }
            (false, None) => f.write_str(": no limit met so far")?,
        }
        match self.level {
            Level::Host => {}
            level => write!(f, " (shared with its {level})")?,
        }
        if let Some(until) = self.hold_until {
            write!(f, "\nheld     for {} more", Span(until.since(self.now)))?;
        }
        if let Some(wish) = self.crawl_delay {
            write!(f, "\ndelay    its Crawl-delay is {}", Span(wish))?;
            if let Some(cut) = self.crawl_delay_cut {
                write!(f, ", of which {} are kept (max_crawl_delay)", Span(cut))?;
            }
        }
        if let Some((count, window)) = self.too_many {
            write!(f, "\ncounted  {count} requests within {window} were too many")?;
            if self.is_confirmed {
                f.write_str(" (twice: confirmed)")?;
            }
            if !self.cleared.is_empty() {
                write!(f, "; cleared: {}", self.cleared.join(", "))?;
            }
        }
        if let Some((at, rate)) = self.next_look {
            write!(f, "\nnext     probes {}/s in {}", Figure(rate), Span(at.since(self.now)))?;
            if let Some(penalty) = self.penalty {
                write!(f, "; a block here costs about {}", Span(penalty))?;
            }
        }
        if let Some((latency, times)) = self.latency {
            write!(f, "\nlatency  {:.2} s, {times:.1} times that of the quiet host", latency.as_secs_f64())?;
        }
        Ok(())
    }
}

/// A rate with two or three significant digits.
struct Figure(f64);

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            rate if rate >= 10.0 => write!(f, "{rate:.0}"),
            rate if rate >= 0.1 => write!(f, "{rate:.1}"),
            rate => write!(f, "{rate:.3}"),
        }
    }
}

/// A duration in its largest unit.
struct Span(Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            seconds @ 0..120 => write!(f, "{seconds} s"),
            seconds @ 120..7200 => write!(f, "{} min", seconds / 60),
            seconds @ 7200..172_800 => write!(f, "{} h", seconds / 3600),
            seconds => write!(f, "{} days", seconds / 86_400),
        }
    }
}
