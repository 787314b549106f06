//! The pace of a host for a person to read.
//!
//! Invariants: reading changes nothing.

use std::fmt;
use std::time::Duration;

use crate::limiter::admission::Admission;
use crate::limiter::rate_gate::RateGate;
use crate::limiter::window::{NAMES, SECONDS, WINDOWS};
use crate::signals::response::{Cause, Level};
use fetchwise_types::time::Timestamp;

/// The pace of a host: its rate, its limits, the counts, and the next ceiling probe.
///
/// Its `Display` is a few lines, each with a keyword in front.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PaceExplanation {
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
    pub min_gap: Option<Duration>,
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
    pub last_limit_hit: Option<(Timestamp, Cause)>,
    /// The end of the hold.
    pub hold_until: Option<Timestamp>,
    /// How long the host last refused requests.
    pub penalty: Option<Duration>,
    /// The number of requests that were too many, with their window.
    pub too_many: Option<(u64, &'static str)>,
    /// Windows that were cleared of suspicion.
    pub cleared: Vec<&'static str>,
    /// The next ceiling probe, with the rate that it tries.
    pub next_probe: Option<(Timestamp, f64)>,
    /// The average latency, and its ratio to the latency of the quiet host.
    pub latency: Option<(Duration, f64)>,
    /// The share of errors that the host gives at any rate, so that they do not lower it.
    pub error_noise: Option<f64>,
    /// Whether these errors are 503s only.
    pub is_noise_503: bool,
    /// The time of this explanation.
    pub now: Timestamp,
}

impl Admission<'_> {
    /// Returns the pace of the host, or of its site or address if that limits it.
    pub(super) fn explain(&mut self) -> PaceExplanation {
        self.wake();
        let mut level = Level::Host;
        let mut least = f64::INFINITY;
        for candidate in [Level::Host, Level::Site, Level::Address] {
            if let Some(gate) = self.gate(candidate)
                && gate.rate() < least
            {
                (level, least) = (candidate, gate.rate());
            }
        }
        let mut explanation = self.explain_host(level, least);
        let now = self.now;
        if let Some(gate) = self.gate(level) {
            explanation.add_limit(&gate, now);
        }
        explanation
    }

    /// Returns what the host itself shows. The limit, which may be another level's, is still
    /// absent.
    fn explain_host(&mut self, level: Level, rate: f64) -> PaceExplanation {
        let most = self.settings.max_crawl_delay_s;
        let holds = [Level::Host, Level::Site, Level::Address]
            .map(|level| self.gate(level).and_then(|gate| gate.hold()));
        let mut explanation = PaceExplanation {
            rate,
            parallel: 0,
            in_flight: 0,
            level,
            is_fixed: false,
            min_gap: None,
            crawl_delay: None,
            crawl_delay_cut: None,
            ceiling: None,
            limit: None,
            is_confirmed: false,
            last_limit_hit: None,
            hold_until: holds.into_iter().flatten().max().map(Timestamp::from_millis),
            penalty: None,
            too_many: None,
            cleared: Vec::new(),
            next_probe: None,
            latency: None,
            error_noise: None,
            is_noise_503: false,
            now: Timestamp::from_millis(self.now),
        };
        let Some(gate) = self.gate(Level::Host) else { return explanation };
        (explanation.parallel, explanation.in_flight) = (gate.par(), gate.active.in_flight);
        explanation.min_gap = gate.min_gap_s().map(Duration::from_secs_f64);
        let delay = gate.persisted.declared_gap.some();
        explanation.crawl_delay = delay.map(Duration::from_secs_f64);
        explanation.crawl_delay_cut =
            delay.filter(|delay| *delay > most).map(|_| Duration::from_secs_f64(most));
        if !gate.active.fast.is_nan() {
            let latency = f64::from(gate.active.fast).exp().clamp(0.0, 1e6);
            explanation.latency = Some((Duration::from_secs_f64(latency), gate.slowness()));
        }
        if let Some(trouble) = &gate.active.trouble {
            explanation.error_noise = trouble.noise.share();
            explanation.is_noise_503 = trouble.noise.is_503();
        }
        explanation
    }
}

impl PaceExplanation {
    /// Adds the limit of the level that decides.
    fn add_limit(&mut self, gate: &RateGate<'_>, now: i64) {
        let persisted = &*gate.persisted;
        self.is_fixed = gate.rules.is_fixed;
        if let Some(min_gap) = self.min_gap {
            self.rate = self.rate.min(1.0 / min_gap.as_secs_f64());
        }
        self.penalty = persisted.penalty.some().map(Duration::from_secs_f64);
        self.is_confirmed = persisted.is_confirmed(now);
        if persisted.limit_hit_at > 0 {
            let at = Timestamp::from_millis(i64::from(persisted.limit_hit_at) * 1000);
            self.last_limit_hit = Some((at, persisted.cause()));
        }
        let (ceiling, window) = gate.ceiling();
        let Some(window) =
            window.or(persisted.blamed()).filter(|window| !persisted.cap[*window].is_none())
        else {
            return;
        };
        self.ceiling = Some((ceiling, NAMES[window]));
        self.limit = persisted.hi[window].some();
        self.too_many = self.limit.map(|hi| ((hi * SECONDS[window]).round() as u64, NAMES[window]));
        let clear = |other: &usize| {
            *other != window
                && (persisted.hi[*other].is_none()
                    || persisted.hi[*other] <= persisted.clean[*other])
        };
        self.cleared = (0..WINDOWS).filter(clear).map(|window| NAMES[window]).collect();
        if persisted.declared_window() != Some(window) && !gate.rules.is_fixed {
            let at = Timestamp::from_millis((i64::from(persisted.probe_at) * 1000).max(now));
            self.next_probe = Some((at, gate.next_cap(window)));
        }
    }

    /// Returns which share of the answers fails at any rate, in words; `None` for a host that is
    /// not flaky.
    pub fn noise_text(&self) -> Option<String> {
        let kind = if self.is_noise_503 { "503" } else { "errors" };
        self.error_noise
            .map(|share| format!("{:.0} % of answers are {kind} at any rate", 100.0 * share))
    }
}

impl fmt::Display for PaceExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pace     {} requests/s, {} at once", RateText(self.rate), self.parallel)?;
        match (self.is_fixed, &self.last_limit_hit) {
            (true, _) => f.write_str(": configured")?,
            (false, Some((at, cause))) => {
                write!(f, ": lowered {} ago after {cause}", DurationText(self.now.since(*at)))?;
                if let Some(limit) = self.limit {
                    write!(f, ", limit met at {}/s", RateText(limit))?;
                }
            }
            (false, None) => f.write_str(": no limit met so far")?,
        }
        match self.level {
            Level::Host => {}
            level => write!(f, " (shared with its {level})")?,
        }
        if let Some(until) = self.hold_until {
            write!(f, "\nheld     for {} more", DurationText(until.since(self.now)))?;
        }
        if let Some(declared_gap) = self.crawl_delay {
            write!(f, "\ndelay    its Crawl-delay is {}", DurationText(declared_gap))?;
            if let Some(cut) = self.crawl_delay_cut {
                write!(f, ", of which {} are kept (max_crawl_delay)", DurationText(cut))?;
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
        if let Some((at, rate)) = self.next_probe {
            let left = at.since(self.now);
            write!(f, "\nnext     probes {}/s ", RateText(rate))?;
            match left.as_secs() {
                0 => f.write_str("now")?,
                _ => write!(f, "in {}", DurationText(left))?,
            }
            if let Some(penalty) = self.penalty {
                write!(f, "; a block here costs about {}", DurationText(penalty))?;
            }
        }
        if let Some(noise) = self.noise_text() {
            write!(f, "\nflaky    {noise}")?;
        }
        if let Some((latency, times)) = self.latency {
            write!(
                f,
                "\nlatency  {}, {times:.1} times that of the quiet host",
                LatencyText(latency)
            )?;
        }
        Ok(())
    }
}

/// A rate with two or three significant digits.
struct RateText(f64);

impl fmt::Display for RateText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            rate if rate >= 10.0 => write!(f, "{rate:.0}"),
            rate if rate >= 0.1 => write!(f, "{rate:.1}"),
            rate => write!(f, "{rate:.3}"),
        }
    }
}

/// A latency with two or three significant digits.
struct LatencyText(Duration);

impl fmt::Display for LatencyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs_f64() {
            seconds if seconds < 0.9995 => write!(f, "{:.0} ms", 1000.0 * seconds),
            seconds => write!(f, "{seconds:.2} s"),
        }
    }
}

/// A duration in its largest unit.
struct DurationText(Duration);

impl fmt::Display for DurationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            seconds @ 0..120 => write!(f, "{seconds} s"),
            seconds @ 120..7200 => write!(f, "{} min", seconds / 60),
            seconds @ 7200..172_800 => write!(f, "{} h", seconds / 3600),
            seconds => write!(f, "{} days", seconds / 86_400),
        }
    }
}
