//! Tables of a config file, one struct each: keys and their types.
//!
//! An absent key is `None`, so that each default stays with its use.
//!
//! Must not know: the effect of a value, which `build` knows, nor valid values, which `check` knows.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use url::Url;

use super::secret::Secret;
use super::value;
use crate::ab_test::Metric;
use crate::config::fetcher_sources::{ArchiveConfig, DownloadConfig, SearchConfig};
use crate::selector::AfterRefusal;
use fetchwise_pace::{CrawlDelay, PaceMode};
use fetchwise_types::cache_use::CacheUse;
use fetchwise_types::consent::{LicenseUse, OnReserved, Purpose, Vocabulary};
use fetchwise_types::registry::Class;
use fetchwise_types::robots_use::RobotsUse;

/// `[scoring]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScoringConfig {
    /// Value V of a page, in plain requests.
    pub page_value: Option<f64>,
    /// Extra cost of a blocked response.
    pub blocked_cost: Option<f64>,
    /// Success discount φ.
    pub success_discount: Option<f64>,
    /// Confidence above which a fetcher is trusted.
    pub min_confidence: Option<f64>,
    /// Number of attempts from which on a fetcher can be trusted.
    pub min_attempts: Option<f64>,
    /// Share of first attempts that explore.
    pub explore_rate: Option<f64>,
    /// Weight of exploring a cheaper fetcher that failed, once the host had no attempts for a while.
    pub explore_stale_rate: Option<f64>,
    /// Largest share of first attempts that explore.
    pub max_explore_rate: Option<f64>,
    /// Probability of a last-ditch try.
    pub last_ditch: Option<f64>,
    /// Weight of the plain fetcher's outcomes on a site relative to the other fetchers' general estimates; 0 turns it
    /// off.
    pub plain_outcome_weight: Option<f64>,
    /// Weight of an estimate relative to those of other hosts with the same vendor or framework; 0 turns it off.
    pub host_signal_weight: Option<f64>,
    /// Share of first attempts that are made although no fetcher passes the host's vendor.
    pub impassable_try_rate: Option<f64>,
    /// Largest number of attempts for a URL.
    pub max_attempts: Option<u32>,
}

/// `[detect]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DetectConfig {
    /// Confidence from which on a page counts as blocked.
    pub block_threshold: Option<f64>,
    /// Corrections for single hosts.
    pub host: BTreeMap<String, DetectHostConfig>,
}

/// `[detect.host."NAME"]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DetectHostConfig {
    /// Visible characters from which on a page of the host is content.
    pub min_chars: Option<u32>,
}

/// Effect of recorded importance on evidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImportanceMode {
    /// No effect.
    #[default]
    Off,
    /// Heuristics with little importance are not read.
    Prune,
    /// Heuristics count in proportion to their importance.
    Scale,
}

/// `[importance]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ImportanceConfig {
    /// Effect of importance on evidence.
    #[serde(rename = "use")]
    pub mode: Option<ImportanceMode>,
    /// Importance below which `prune` leaves a heuristic out; 0.02 by default.
    pub min: Option<f64>,
    /// Importance from which on `scale` counts a heuristic in full; 0.2 by default.
    pub full: Option<f64>,
}

/// `[backoff]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BackoffConfig {
    /// First pause after a block.
    #[serde(deserialize_with = "value::seconds")]
    pub blocked_base: Option<Duration>,
    /// First pause after another failure.
    #[serde(deserialize_with = "value::seconds")]
    pub failed_base: Option<Duration>,
    /// Longest `Retry-After` that is accepted.
    #[serde(deserialize_with = "value::seconds")]
    pub max_retry_after: Option<Duration>,
    /// Number of blocked links that pauses their host.
    pub host_block_threshold: Option<u32>,
    /// Window of that number.
    #[serde(deserialize_with = "value::seconds")]
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
    /// Metric of the comparison.
    #[serde(deserialize_with = "value::named")]
    pub metric: Option<Metric>,
    /// Confidence of the comparison.
    pub confidence: Option<f64>,
    /// Allowed difference.
    pub margin: Option<f64>,
    /// Pages per arm before the first interim look.
    pub min_pages: Option<u64>,
    /// Hosts per arm before the first interim look.
    pub min_hosts: Option<u64>,
    /// Time after which learning is tried again; never if unset.
    #[serde(deserialize_with = "value::seconds")]
    pub retry_after: Option<Duration>,
}

/// `[http]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpConfig {
    /// Deadline of a request.
    #[serde(deserialize_with = "value::seconds")]
    pub timeout: Option<Duration>,
    /// Deadline of a probe.
    #[serde(deserialize_with = "value::seconds")]
    pub probe_timeout: Option<Duration>,
    /// Longest body, in bytes after decoding.
    #[serde(deserialize_with = "value::bytes")]
    pub max_body: Option<u64>,
    /// Largest number of redirects.
    pub max_redirects: Option<u32>,
    /// The `User-Agent`.
    pub user_agent: Option<String>,
    /// File of certificate authorities (PEM) that the plain fetcher trusts besides Mozilla's.
    pub ca_file: Option<PathBuf>,
}

/// `[pace]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PaceConfig {
    /// Mode of pace.
    #[serde(deserialize_with = "value::pace_mode")]
    pub mode: Option<PaceMode>,
    /// Initial rate, in requests per second.
    pub initial_rate: Option<f64>,
    /// Highest rate, in requests per second.
    pub max_rate: Option<f64>,
    /// Lowest rate that errors alone can bring, in requests per second.
    pub min_rate: Option<f64>,
    /// Largest number of parallel requests.
    pub max_parallel: Option<u8>,
    /// Use of a `Crawl-delay`.
    #[serde(deserialize_with = "value::crawl_delay")]
    pub crawl_delay: Option<CrawlDelay>,
    /// Longest `Crawl-delay` that is accepted; longer ones are cut.
    #[serde(deserialize_with = "value::seconds")]
    pub max_crawl_delay: Option<Duration>,
    /// Longest wait of a link for its host.
    #[serde(deserialize_with = "value::seconds")]
    pub max_wait: Option<Duration>,
    /// Settings of single hosts.
    #[serde(rename = "host")]
    pub hosts: BTreeMap<String, PaceHostConfig>,
}

/// `[pace.host."example.org"]`
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PaceHostConfig {
    /// Requests per second.
    pub rate: Option<f64>,
    /// Largest number of parallel requests.
    pub parallel: Option<u8>,
}

/// `[robots]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RobotsConfig {
    /// Use of robots.txt for every link.
    #[serde(rename = "use", deserialize_with = "value::named")]
    pub mode: Option<RobotsUse>,
    /// Name of the agent in the groups of rules.
    pub agent: Option<String>,
}

/// `[consent]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConsentConfig {
    /// Purposes of the crawl. Without one, terms are recorded and no page is skipped.
    #[serde(deserialize_with = "value::named_list")]
    pub purposes: Option<Vec<Purpose>>,
    /// Vocabularies whose terms decide; all by default.
    #[serde(deserialize_with = "value::named_list")]
    pub respect: Option<Vec<Vocabulary>>,
    /// What happens to a page that is reserved against every purpose.
    #[serde(deserialize_with = "value::named")]
    pub on_reserved: Option<OnReserved>,
    /// Use of licences in RSL.
    #[serde(deserialize_with = "value::named")]
    pub licenses: Option<LicenseUse>,
}

/// `[cache]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheConfig {
    /// Use of pages that an earlier crawl has stored.
    #[serde(rename = "use", deserialize_with = "value::named")]
    pub mode: Option<CacheUse>,
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

/// Which requests are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SigningMode {
    /// None.
    Never,
    /// Signed requests alongside unsigned ones.
    Learned,
    /// Each plain https request.
    Always,
}

/// The parts of a request that a signature covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SigningCoverage {
    /// Authority, method and path.
    #[default]
    Request,
    /// The authority.
    Authority,
}

/// The form of `Signature-Agent`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SigningForm {
    /// The one that the host's vendor reads.
    #[default]
    Auto,
    /// A dictionary, as the draft demands.
    Dictionary,
    /// A string, as older drafts had it.
    String,
}

/// The requests of a browser's pages that are signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SigningBrowserScope {
    /// The page's document, with its redirects.
    Document,
    /// Also those to the page's registrable domain.
    #[default]
    Site,
    /// All, third parties included.
    All,
}

/// Plain http requests that are signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SignedHttp {
    /// None.
    #[default]
    Never,
    /// Those to loopback addresses, for tests.
    Loopback,
}

/// `[identity]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IdentityConfig {
    /// Which requests are signed.
    pub mode: Option<SigningMode>,
    /// Https origin that publishes the keys.
    pub agent: Option<String>,
    /// Product token.
    pub name: Option<String>,
    /// URL of a page about the crawler.
    pub about: Option<String>,
    /// Mail address or URL for questions.
    pub contact: Option<String>,
    /// Networks that requests come from, as CIDR.
    pub ips: Vec<String>,
    /// Directory of the keys.
    pub keys: Option<PathBuf>,
    /// Environment variable that holds the key (PEM), instead of files.
    pub key_env: Option<String>,
    /// The parts of a request that a signature covers.
    pub coverage: Option<SigningCoverage>,
    /// The form of `Signature-Agent`.
    pub form: Option<SigningForm>,
    /// What happens on hosts that block signed requests, with `learned`.
    #[serde(deserialize_with = "value::named")]
    pub after_refusal: Option<AfterRefusal>,
    /// The requests of a browser's pages that are signed.
    pub browser_scope: Option<SigningBrowserScope>,
    /// Plain http requests that are signed.
    pub http: Option<SignedHttp>,
    /// Settings of single hosts.
    #[serde(rename = "host")]
    pub hosts: BTreeMap<String, IdentityHostConfig>,
}

/// `[identity.host."shop.example"]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IdentityHostConfig {
    /// Environment variable with the headers of requests to the host, one `Name: value` per line.
    pub headers_env: Option<String>,
}

/// Evidence that a node of a fleet receives from its peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FleetScope {
    /// All evidence.
    #[default]
    All,
    /// Only evidence that belongs to no single site. Each site has its own node.
    Own,
}

/// `[fleet]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FleetConfig {
    /// URLs of the brokers: `tls://host:4222`. If empty, there is no fleet.
    pub url: Vec<String>,
    /// Name of the group of nodes that share evidence.
    pub pool: Option<String>,
    /// Name of the addresses that requests come from. Nodes with the same name share pauses.
    pub egress_group: Option<String>,
    /// Evidence to receive from peers.
    pub scope: Option<FleetScope>,
    /// File with credentials: a `.creds` file, or one with the seed of an NKey.
    pub credentials: Option<PathBuf>,
    /// Certificates of the authorities that sign the brokers' certificates, PEM.
    pub tls_ca_file: Option<PathBuf>,
    /// Certificate of this node, PEM.
    pub certificate: Option<PathBuf>,
    /// Private key of the certificate, PEM.
    pub key: Option<PathBuf>,
    /// Whether `nats://` is allowed for other machines.
    pub plaintext: bool,
    /// Whether a start without a broker fails.
    pub required: bool,
    /// Age up to which the stream keeps messages.
    #[serde(deserialize_with = "value::seconds")]
    pub max_age: Option<Duration>,
    /// Remote attempts per second that are accepted from one peer.
    pub max_attempts_per_second: Option<f64>,
    /// New keys per second that are accepted from one peer.
    pub max_new_keys_per_second: Option<f64>,
    /// Largest total size of the peers' evidence snapshots, in bytes.
    #[serde(deserialize_with = "value::bytes")]
    pub max_snapshot_bytes: Option<u64>,
}

/// `[browser]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BrowserConfig {
    /// Whether Chromium is used.
    pub enabled: Option<bool>,
    /// Path of Chromium.
    pub path: Option<PathBuf>,
    /// Largest number of open pages.
    pub tabs: Option<usize>,
    /// Time without a request after which a page may be read.
    #[serde(deserialize_with = "value::seconds")]
    pub quiet: Option<Duration>,
    /// Longest time that a loaded page has to settle.
    #[serde(deserialize_with = "value::seconds")]
    pub max_settle: Option<Duration>,
}

/// Point at which a record counts as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DurabilityName {
    /// In the memory of this process.
    Memory,
    /// Passed to the operating system.
    Os,
    /// Passed to the operating system, and synced at intervals.
    Interval,
    /// Synced to disk.
    Sync,
}

/// How the data directory stores the values of query strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueryName {
    /// As they are.
    Keep,
    /// As hashes with a key of the directory.
    Hash,
}

/// `[log]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// Point at which a record counts as written.
    pub durability: Option<DurabilityName>,
    /// Interval of syncs.
    #[serde(deserialize_with = "value::milliseconds")]
    pub interval: Option<Duration>,
    /// Size at which a segment is full, in bytes.
    #[serde(deserialize_with = "value::bytes")]
    pub segment_bytes: Option<u64>,
    /// Number of days for which compaction keeps raw attempts.
    pub retain_days: Option<u32>,
    /// Share of expired raw attempts from which on a crawl compacts in the background; 0.25 by default.
    #[serde(deserialize_with = "value::compact_threshold")]
    pub compact_threshold: Option<value::CompactThreshold>,
    /// How the data directory stores the values of query strings; as they are unless set.
    pub query: Option<QueryName>,
    /// Largest disk usage of the log in bytes; unbounded if unset.
    #[serde(deserialize_with = "value::bytes")]
    pub max_disk_bytes: Option<u64>,
}

/// `[[fetcher]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FetcherConfig {
    /// Name of the fetcher.
    pub name: String,
    /// Class, which sets the defaults of the other keys.
    #[serde(default, deserialize_with = "value::class")]
    pub class: Option<Class>,
    /// Cost of a request, in plain requests, or `"measured"`.
    #[serde(default, deserialize_with = "value::cost")]
    pub cost: Option<value::CostConfig>,
    /// Quality of the delivered pages, 0 to 1.
    pub quality: Option<f64>,
    /// Probability of success before anything is known.
    pub prior: Option<f64>,
    /// Whether it runs scripts.
    pub renders: Option<bool>,
    /// Program that fetches, with its arguments.
    pub command: Option<Vec<String>>,
    /// Shipped fetcher that it works like: `direct_access`, `playwright` or `playwright_stealth`.
    pub like: Option<String>,
    /// Proxy, `http://host:port` or `socks5://host:port`.
    pub proxy: Option<Secret>,
    /// Environment variable that holds the proxy's `user:password`.
    pub proxy_user_env: Option<String>,
    /// Web archives.
    pub archive: Option<ArchiveConfig>,
    /// Search API.
    pub search: Option<SearchConfig>,
    /// Media downloads with yt-dlp.
    pub download: Option<DownloadConfig>,
    /// Address of the DevTools socket of a browser that is already running.
    pub cdp: Option<Secret>,
    /// URL of a service that fetches with its own browser, such as FlareSolverr.
    #[serde(default, deserialize_with = "value::secret_address")]
    pub solver: Option<Secret<Url>>,
    /// Largest number of requests in flight.
    pub max_in_flight: Option<usize>,
    /// Whether it signs its requests.
    pub signed: Option<bool>,
}

/// `[[prior]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriorConfig {
    /// Type of the heuristic.
    #[serde(rename = "type")]
    pub kind: String,
    /// Value of the heuristic.
    pub value: String,
    /// Fetcher.
    pub fetcher: String,
    /// Share of successes.
    pub success_rate: f64,
    /// Number of pseudo-attempts that it counts for; 10 by default.
    pub samples: Option<f64>,
}
