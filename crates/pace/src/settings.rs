//! How pace behaves where people differ: the mode, where a host starts, what bounds it, and what is known of single hosts.
//!
//! Everything else is a constant beside the rule that uses it. Must not know how a host's pace is learned.

use std::collections::HashMap;

/// How a host's pace is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum PaceMode {
    /// From what the host answers.
    #[default]
    Learn,
    /// It is [`PaceSettings::initial_rate`] for every host. Holds are kept.
    Fixed,
    /// There is none: every request goes out at once.
    Off,
}

/// What a `Crawl-delay` does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum CrawlDelay {
    /// Requests are never closer than that, and never two at once.
    #[default]
    Minimum,
    /// It is where the host starts; what the host answers decides from there on.
    Initial,
    /// Nothing.
    Ignore,
}

/// What somebody who knows a host says of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostPace {
    /// Requests a second, which are then not learned. Holds are kept.
    pub rate: Option<f64>,
    /// Requests at once, at most.
    pub parallel: Option<u8>,
}

/// How pace behaves.
#[derive(Clone, Debug, PartialEq)]
pub struct PaceSettings {
    /// How a host's pace is found.
    pub mode: PaceMode,
    /// Requests a second that a host nobody knows is asked at first.
    pub initial_rate: f64,
    /// Requests a second that no host is asked more than.
    pub max_rate: f64,
    /// Requests at once that no host is asked more than.
    pub max_parallel: u8,
    /// What a `Crawl-delay` does.
    pub crawl_delay: CrawlDelay,
    /// A longer `Crawl-delay` counts as this many seconds.
    pub max_crawl_delay_s: f64,
    /// `Retry-After` is believed up to this many seconds.
    pub max_retry_after_s: f64,
    /// What is known of single hosts, by domain.
    pub hosts: HashMap<String, HostPace>,
    /// Which numbers chance comes to.
    pub seed: u64,
}

impl Default for PaceSettings {
    fn default() -> Self {
        Self {
            mode: PaceMode::Learn,
            initial_rate: 2.0,
            max_rate: 20.0,
            max_parallel: 16,
            crawl_delay: CrawlDelay::Minimum,
            max_crawl_delay_s: 60.0,
            max_retry_after_s: 86_400.0,
            hosts: HashMap::new(),
            seed: 0,
        }
    }
}

/// The least and the most requests a second that make sense.
const RATES: (f64, f64) = (1e-5, 1e5);

impl PaceSettings {
    /// The same with every number within what can be kept: no setting makes a rate infinite, or a host wait forever.
    #[must_use]
    pub fn clamped(mut self) -> Self {
        let bounded = |value: f64, or: f64| if value.is_finite() { value.clamp(RATES.0, RATES.1) } else { or };
        self.max_rate = bounded(self.max_rate, RATES.1);
        self.initial_rate = bounded(self.initial_rate, 2.0).min(self.max_rate);
        self.max_parallel = self.max_parallel.max(1);
        let seconds = |value: f64, or: f64| if value.is_finite() { value.clamp(0.0, 366.0 * 86_400.0) } else { or };
        self.max_crawl_delay_s = seconds(self.max_crawl_delay_s, 60.0);
        self.max_retry_after_s = seconds(self.max_retry_after_s, 86_400.0);
        for host in self.hosts.values_mut() {
            host.rate = host.rate.map(|rate| bounded(rate, 2.0));
            host.parallel = host.parallel.map(|parallel| parallel.max(1));
        }
        self
    }
}
