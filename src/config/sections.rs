//! The tables of a config file, one struct each: which keys there are and what type each has.
//!
//! A key that is absent is `None`, so that defaults stay where they are used. Must not know what a value does: that is
//! `build`'s; nor which values make sense: that is `check`'s.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use url::Url;

use super::secret::Secret;
use super::value;
use crate::ab_test::Metric;
use crate::config::fetcher_sources::{ArchiveConfig, DownloadConfig, SearchConfig};
use fetchwise_pace::{CrawlDelay, PaceMode};
use fetchwise_types::registry::Class;
use fetchwise_types::robots_use::RobotsUse;

/// `[scoring]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScoringConfig {
    /// V, in plain requests.
    pub page_value: Option<f64>,
    /// What a blocked response costs on top.
    pub blocked_cost: Option<f64>,
    /// φ.
    pub success_discount: Option<f64>,
    /// A fetcher is confident above this.
    pub min_confidence: Option<f64>,
    /// A fetcher is confident with so many attempts.
    pub min_attempts: Option<f64>,
    /// The share of first attempts that explore.
    pub explore_rate: Option<f64>,
    /// How eagerly something cheaper that failed is looked at again once a host has had a rest.
    pub explore_stale_rate: Option<f64>,
    /// The share of first attempts that explore at most.
    pub max_explore_rate: Option<f64>,
    /// The chance of a last-ditch try.
    pub last_ditch: Option<f64>,
    /// What the plain fetcher met on a site against the other fetchers' general estimates; 0 leaves it out.
    pub plain_outcome_weight: Option<f64>,
    /// An estimate against what is known of other hosts that showed the same vendor or framework; 0 leaves that out.
    pub host_signal_weight: Option<f64>,
    /// The share of first attempts that are made although nobody gets past the host's vendor.
    pub impassable_try_rate: Option<f64>,
    /// Attempts for a URL in all.
    pub max_attempts: Option<u32>,
}

/// `[detect]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DetectConfig {
    /// How sure evidence of a wall must be.
    pub block_threshold: Option<f64>,
}

/// What recorded importance does to evidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImportanceMode {
    /// Nothing.
    #[default]
    Off,
    /// Heuristics with little of it are not read.
    Prune,
    /// Heuristics count by how much they have of it.
    Scale,
}

/// `[importance]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ImportanceConfig {
    /// What importance does to evidence.
    #[serde(rename = "use")]
    pub mode: Option<ImportanceMode>,
    /// `prune` leaves out what has less importance; 0.02 unless said otherwise.
    pub min: Option<f64>,
    /// `scale` counts what has this importance in full, and less in proportion; 0.2 unless said otherwise.
    pub full: Option<f64>,
}

/// `[backoff]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BackoffConfig {
    /// The first pause after a block.
    #[serde(alias = "blocked_base_s", deserialize_with = "value::seconds")]
    pub blocked_base: Option<Duration>,
    /// The first pause after another failure.
    #[serde(alias = "failed_base_s", deserialize_with = "value::seconds")]
    pub failed_base: Option<Duration>,
    /// `Retry-After` is believed up to this.
    #[serde(alias = "max_retry_after_s", deserialize_with = "value::seconds")]
    pub max_retry_after: Option<Duration>,
    /// So many blocked links pause their host.
    pub host_block_threshold: Option<u32>,
    /// Within this time.
    #[serde(alias = "host_block_window_s", deserialize_with = "value::seconds")]
    pub host_block_window: Option<Duration>,
    /// Whether another fetcher is tried after a block.
    pub escalate_after_block: Option<bool>,
}

/// `[rollout]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RolloutConfig {
    /// Whether learning is taken out of service when it is worse than the router table.
    pub fall_back: Option<bool>,
    /// What it must not be worse in.
    #[serde(deserialize_with = "value::named")]
    pub metric: Option<Metric>,
    /// How sure that it is worse.
    pub confidence: Option<f64>,
    /// How much worse it may be.
    pub margin: Option<f64>,
    /// No look before each arm was asked for so many pages.
    pub min_pages: Option<u64>,
    /// No look before each arm has so many hosts.
    pub min_hosts: Option<u64>,
    /// After so long it gets another chance; never unless set.
    #[serde(alias = "retry_after_s", deserialize_with = "value::seconds")]
    pub retry_after: Option<Duration>,
}

/// `[http]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpConfig {
    /// The deadline of a request.
    #[serde(alias = "timeout_s", deserialize_with = "value::seconds")]
    pub timeout: Option<Duration>,
    /// The deadline of a probe.
    #[serde(alias = "probe_timeout_s", deserialize_with = "value::seconds")]
    pub probe_timeout: Option<Duration>,
    /// The longest body, in bytes after decoding.
    #[serde(deserialize_with = "value::bytes")]
    pub max_body: Option<u64>,
    /// Redirects followed.
    pub max_redirects: Option<u32>,
    /// The `User-Agent`.
    pub user_agent: Option<String>,
    /// A file of certificate authorities (PEM) that the plain fetcher trusts beside Mozilla's.
    pub ca_file: Option<PathBuf>,
}

/// `[pace]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PaceConfig {
    /// How a host's pace is found.
    #[serde(deserialize_with = "value::pace_mode")]
    pub mode: Option<PaceMode>,
    /// Requests a second at first.
    pub initial_rate: Option<f64>,
    /// Requests a second at most.
    pub max_rate: Option<f64>,
    /// Requests at once at most.
    pub max_parallel: Option<u8>,
    /// What a `Crawl-delay` does.
    #[serde(deserialize_with = "value::crawl_delay")]
    pub crawl_delay: Option<CrawlDelay>,
    /// A longer `Crawl-delay` counts as this.
    #[serde(alias = "max_crawl_delay_s", deserialize_with = "value::seconds")]
    pub max_crawl_delay: Option<Duration>,
    /// A link waits so long for its host.
    #[serde(alias = "max_wait_s", deserialize_with = "value::seconds")]
    pub max_wait: Option<Duration>,
    /// What is known of single hosts.
    #[serde(rename = "host")]
    pub hosts: BTreeMap<String, PaceHostConfig>,
}

/// `[pace.host."example.org"]`
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PaceHostConfig {
    /// Requests a second.
    pub rate: Option<f64>,
    /// Requests at once at most.
    pub parallel: Option<u8>,
}

/// `[robots]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RobotsConfig {
    /// What is done about it for every link.
    #[serde(rename = "use", deserialize_with = "value::named")]
    pub wish: Option<RobotsUse>,
    /// The name that groups of rules are looked for by.
    pub agent: Option<String>,
}

/// `[network]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkConfig {
    /// Networks that may be dialled although they are not public, as CIDR.
    pub allow: Vec<String>,
    /// Whether loopback and private ranges may be dialled.
    pub allow_private: bool,
}

/// What a node of a fleet reads of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FleetScope {
    /// Everything.
    #[default]
    All,
    /// What belongs to no one site: each site has its own node.
    Own,
}

/// `[fleet]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FleetConfig {
    /// Where the brokers are: `tls://host:4222`. Without any there is no fleet.
    pub url: Vec<String>,
    /// Those who share what they learn.
    pub pool: Option<String>,
    /// A name for the addresses that requests come from: pauses hold for those who share it.
    pub egress_group: Option<String>,
    /// What is read of the others.
    pub scope: Option<FleetScope>,
    /// A `.creds` file, or one with the seed of an NKey.
    pub credentials: Option<PathBuf>,
    /// Certificates of those who vouch for the brokers, PEM.
    pub tls_ca_file: Option<PathBuf>,
    /// This node's own certificate, PEM.
    pub certificate: Option<PathBuf>,
    /// The key of that, PEM.
    pub key: Option<PathBuf>,
    /// Whether `nats://` may be used for other machines.
    pub plaintext: bool,
    /// Whether a start without a broker fails.
    pub required: bool,
    /// How long the stream keeps messages.
    #[serde(alias = "max_age_s", deserialize_with = "value::seconds")]
    pub max_age: Option<Duration>,
    /// Facts a second that are taken of one other node.
    pub max_attempts_per_second: Option<f64>,
    /// New keys a second that one other node may bring.
    pub max_new_keys_per_second: Option<f64>,
    /// What images of others take together, in bytes.
    #[serde(deserialize_with = "value::bytes")]
    pub max_snapshot_bytes: Option<u64>,
}

/// `[browser]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BrowserConfig {
    /// Whether Chromium is used at all.
    pub enabled: Option<bool>,
    /// Where it is.
    pub path: Option<PathBuf>,
    /// Pages open at once.
    pub tabs: Option<usize>,
}

/// When a record counts as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DurabilityName {
    /// In this process.
    Memory,
    /// With the operating system.
    Os,
    /// With the operating system, and on the disk at intervals.
    Interval,
    /// On the disk.
    Sync,
}

/// `[log]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// When a record counts as written.
    pub durability: Option<DurabilityName>,
    /// The interval.
    #[serde(alias = "interval_ms", deserialize_with = "value::milliseconds")]
    pub interval: Option<Duration>,
    /// The size at which a segment is full, in bytes.
    #[serde(deserialize_with = "value::bytes")]
    pub segment_bytes: Option<u64>,
    /// How many days raw attempts are kept by a compaction.
    pub retain_days: Option<u32>,
    /// The share of raw attempts older than that from which a crawl compacts in the background; 0.25 unless said otherwise.
    #[serde(deserialize_with = "value::compact_threshold")]
    pub compact_threshold: Option<value::CompactThreshold>,
    /// What the log may take on the disk, in bytes; unbounded unless set.
    #[serde(deserialize_with = "value::bytes")]
    pub max_disk_bytes: Option<u64>,
}

/// `[[fetcher]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FetcherConfig {
    /// Its name.
    pub name: String,
    /// Its class, which sets the defaults of what follows.
    #[serde(default, deserialize_with = "value::class")]
    pub class: Option<Class>,
    /// The cost of a request, in plain requests, or `"measured"`.
    #[serde(default, deserialize_with = "value::cost")]
    pub cost: Option<value::CostConfig>,
    /// The worth of what it delivers, 0 to 1.
    pub quality: Option<f64>,
    /// The chance of success before anything is known.
    pub prior: Option<f64>,
    /// Whether it runs scripts.
    pub renders: Option<bool>,
    /// The program that fetches, with its arguments; without it the name must be a built-in one that is shipped.
    pub command: Option<Vec<String>>,
    /// As the shipped fetcher of this name does: `direct_access`, `playwright` or `playwright_stealth`.
    pub like: Option<String>,
    /// The proxy that it goes through, `http://host:port` or `socks5://host:port`.
    pub proxy: Option<Secret>,
    /// The variable of the environment that has the proxy's `user:password`.
    pub proxy_user_env: Option<String>,
    /// From web archives.
    pub archive: Option<ArchiveConfig>,
    /// From a search interface.
    pub search: Option<SearchConfig>,
    /// Media, by yt-dlp.
    pub download: Option<DownloadConfig>,
    /// From a browser that runs already: the address of its DevTools socket.
    pub cdp: Option<Secret>,
    /// From a service that fetches with a browser of its own, as FlareSolverr does: its address.
    #[serde(default, deserialize_with = "value::secret_address")]
    pub solver: Option<Secret<Url>>,
    /// Requests in flight at once.
    pub max_in_flight: Option<usize>,
}

/// `[[prior]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriorConfig {
    /// The heuristic's type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its value.
    pub value: String,
    /// The fetcher.
    pub fetcher: String,
    /// The share of successes.
    pub success_rate: f64,
    /// How many pseudo-attempts it counts for; 10 unless said otherwise.
    pub samples: Option<f64>,
}
