//! Settings of pace: the mode, the initial rate, the limits, and known hosts.
//!
//! Everything else is a constant next to the rule that uses it.
//!
//! Must not know: how a host's pace is learned.

use std::collections::HashMap;

/// The source of a host's pace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum PaceMode {
    /// Learned from the host's responses.
    #[default]
    Learn,
    /// [`PaceSettings::initial_rate`] for every host. Holds are kept.
    Fixed,
    /// No pace: every request goes out at once.
    Off,
}

/// The effect of a `Crawl-delay`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum CrawlDelay {
    /// It is the minimum gap between requests, which are never parallel.
    #[default]
    Minimum,
    /// It gives the initial rate; responses decide from there on.
    Initial,
    /// No effect.
    Ignore,
}

/// Configured pace of one host.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostPace {
    /// Requests per second; the rate is then not learned. Holds are kept.
    pub rate: Option<f64>,
    /// Maximum parallel requests.
    pub parallel: Option<u8>,
}

/// Settings of a [`Pace`](crate::Pace).
#[derive(Clone, Debug, PartialEq)]
pub struct PaceSettings {
    /// The source of a host's pace.
    pub mode: PaceMode,
    /// Initial rate of an unknown host, in requests per second.
    pub initial_rate: f64,
    /// Maximum rate of any host, in requests per second.
    pub max_rate: f64,
    /// A rate below this, in requests per second, needs a better reason than errors: a 429, a
    /// `Retry-After` or a block.
    pub min_rate: f64,
    /// Maximum parallel requests of any host.
    pub max_parallel: u8,
    /// The effect of a `Crawl-delay`.
    pub crawl_delay: CrawlDelay,
    /// Maximum `Crawl-delay`, in seconds; a longer one counts as this.
    pub max_crawl_delay_s: f64,
    /// Maximum `Retry-After`, in seconds; a longer one counts as this.
    pub max_retry_after_s: f64,
    /// Configured hosts, by domain.
    pub hosts: HashMap<String, HostPace>,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for PaceSettings {
    fn default() -> Self {
        Self {
            mode: PaceMode::Learn,
            initial_rate: 2.0,
            max_rate: 20.0,
            min_rate: 0.2,
            max_parallel: 16,
            crawl_delay: CrawlDelay::Minimum,
            max_crawl_delay_s: 60.0,
            max_retry_after_s: 86_400.0,
            hosts: HashMap::new(),
            seed: 0,
        }
    }
}

/// Minimum and maximum of sensible rates, in requests per second.
const RATES: (f64, f64) = (1e-5, 1e5);

impl PaceSettings {
    /// Clamps every number to its valid range: no setting makes a rate infinite, or a host wait
    /// forever.
    #[must_use]
    pub fn clamped(mut self) -> Self {
        let bounded = |value: f64, or: f64| {
            if value.is_finite() { value.clamp(RATES.0, RATES.1) } else { or }
        };
        self.max_rate = bounded(self.max_rate, RATES.1);
        self.initial_rate = bounded(self.initial_rate, 2.0).min(self.max_rate);
        self.min_rate = bounded(self.min_rate, 0.2).min(self.max_rate);
        self.max_parallel = self.max_parallel.max(1);
        let seconds = |value: f64, or: f64| {
            if value.is_finite() { value.clamp(0.0, 366.0 * 86_400.0) } else { or }
        };
        self.max_crawl_delay_s = seconds(self.max_crawl_delay_s, 60.0);
        self.max_retry_after_s = seconds(self.max_retry_after_s, 86_400.0);
        for host in self.hosts.values_mut() {
            host.rate = host.rate.map(|rate| bounded(rate, 2.0));
            host.parallel = host.parallel.map(|parallel| parallel.max(1));
        }
        self
    }
}
