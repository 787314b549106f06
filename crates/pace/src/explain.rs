//! The pace of a host as a person reads it.
//!
//! Must not change anything.

use std::fmt;
use std::time::Duration;

use crate::limiter::admission::Round;
use crate::limiter::window::{NAMES, SECONDS, WINDOWS};
use crate::signals::response::{Cause, Level};
use fetchwise_types::time::Timestamp;

/// The pace of a host: what it is, what limits it, what was counted, and when it is looked at again.
///
/// Its `Display` is some lines, each with a word in front.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Explained {
    /// Requests a second.
    pub rate: f64,
    /// Requests at once, at most.
    pub parallel: u8,
    /// Requests under way.
    pub in_flight: u8,
    /// Whose limit is the lowest.
    pub level: Level,
    /// The rate is given, not learned.
    pub is_fixed: bool,
    /// The gap that is kept because the host's `Crawl-delay` asks for it, or for a longer one.
    pub floor: Option<Duration>,
    /// The gap that its `Crawl-delay` asked for when its robots.txt was read last.
    pub crawl_delay: Option<Duration>,
    /// That gap is longer than the settings believe, and is or would be kept only up to this.
    pub crawl_delay_cut: Option<Duration>,
    /// The lowest ceiling and the window that it is of.
    pub ceiling: Option<(f64, &'static str)>,
    /// Where the limit was met, in requests a second.
    pub limit: Option<f64>,
    /// The limit was met twice.
    pub is_sure: bool,
    /// When the host limited last, and by what.
    pub event: Option<(Timestamp, Cause)>,
    /// Until when the host is held.
    pub hold_until: Option<Timestamp>,
    /// How long it refused last.
    pub penalty: Option<Duration>,
    /// So many requests within this window were too many.
    pub too_many: Option<(u64, &'static str)>,
    /// Windows that are not to blame.
    pub cleared: Vec<&'static str>,
    /// When it is tried whether more is allowed, and what would be tried.
    pub next_look: Option<(Timestamp, f64)>,
    /// The average latency, and how many times that of the quiet host it is.
    pub latency: Option<(Duration, f64)>,
    /// When this was so.
    pub now: Timestamp,
}

impl Round<'_> {
    /// The pace of the host, or of its site or address where that is what limits it.
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
            is_sure: false,
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
        explained.is_sure = cold.is_sure(now);
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
            (true, _) => f.write_str(": given")?,
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
            level => write!(f, " (with all others of its {level})")?,
        }
        if let Some(until) = self.hold_until {
            write!(f, "\nheld     for {} more", Span(until.since(self.now)))?;
        }
        if let Some(wish) = self.crawl_delay {
            write!(f, "\nwish     its Crawl-delay is {}", Span(wish))?;
            if let Some(cut) = self.crawl_delay_cut {
                write!(f, ", of which {} are kept (max_crawl_delay)", Span(cut))?;
            }
        }
        if let Some((count, window)) = self.too_many {
            write!(f, "\ncounted  {count} requests within {window} were too many")?;
            if self.is_sure {
                f.write_str(" (twice: sure)")?;
            }
            if !self.cleared.is_empty() {
                write!(f, "; not to blame: {}", self.cleared.join(", "))?;
            }
        }
        if let Some((at, rate)) = self.next_look {
            write!(f, "\nnext     looks for {}/s in {}", Figure(rate), Span(at.since(self.now)))?;
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

/// A rate with two or three digits that mean something.
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

/// A length of time in its largest unit.
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
