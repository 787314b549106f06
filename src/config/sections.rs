//! Tables of a config file: each key with its type, default, valid values and meaning.
//!
//! Owns: the declarations. What follows from them is in `declare`, and the top level is
//! [`Config`](super::Config). An absent key is `None`, so that each part uses its own default;
//! tests compare those with the defaults that are declared.
//!
//! Invariants: a default needs no other key. Rules for several keys together are in `check`.
//!
//! Must not know: the effect of a value, which `build` knows.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use url::Url;

use super::declare::{settings, single_values};
use super::fetcher_sources::{ArchiveConfig, DownloadConfig, SearchConfig};
use super::rule::{
    AMOUNT, COMPACT_THRESHOLD, DEADLINE, ORIGIN, PAGE, PARALLEL, PRODUCT_TOKEN, RATE, Rule, SHARE,
    VARIABLE, one_or_more,
};
use super::secret::Secret;
use super::value::{self, list};
use crate::ab_test::Metric;
use crate::router::Mode;
use crate::selector::AfterRefusal;
use fetchwise_pace::{CrawlDelay, PaceMode};
use fetchwise_types::cache_use::CacheUse;
use fetchwise_types::consent::{LicenseUse, OnReserved, Purpose, Vocabulary};
use fetchwise_types::registry::Class;
use fetchwise_types::robots_use::RobotsUse;

settings! {
    /// `[detect]`
    #[derive(Clone, Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct DetectConfig {
        /// Corrections for one host.
        pub host: BTreeMap<String, DetectHostConfig> = toml::Table::new();
    }

    /// `[detect.host."NAME"]`
    #[derive(Clone, Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct DetectHostConfig {
        /// Visible characters from which on a page of the host is content.
        pub min_chars: Option<u32>, unset "200", such as 20;
    }

    /// `[scoring]`
    #[derive(Clone, Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct ScoringConfig {
        /// Value of a page, in plain requests.
        pub page_value: Option<f64> = 100.0, valid AMOUNT;
        /// Attempts per URL; retries after a transient failure do not count.
        pub max_attempts: Option<u32> = 4, valid one_or_more::<u32>();
    }

    /// `[backoff]`
    #[derive(Clone, Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct BackoffConfig {
        /// Longest Retry-After that is honoured.
        #[serde(deserialize_with = "value::seconds")]
        pub max_retry_after: Option<Duration> = "1day";
        /// Whether another fetcher is tried after a block; with false, a block ends the URL at
        /// once.
        pub escalate_after_block: Option<bool> = true;
    }

    /// `[http]`
    #[derive(Clone, Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct HttpConfig {
        /// Deadline of one full request, from the DNS lookup to the last byte.
        #[serde(deserialize_with = "value::seconds")]
        pub timeout: Option<Duration> = "30s", valid DEADLINE;
        /// Longest body, after decoding.
        #[serde(deserialize_with = "value::bytes")]
        pub max_body: Option<u64> = "256MiB", valid one_or_more::<u64>();
        /// Largest number of redirects.
        pub max_redirects: Option<u32> = 10;
        /// The User-Agent header.
        pub user_agent: Option<String>
            = concat!("fetchwise/", env!("CARGO_PKG_VERSION"), " (+", env!("CARGO_PKG_REPOSITORY"), ")");
        /// Certificate authorities (PEM) that the plain fetcher trusts in addition to Mozilla's.
        pub ca_file: Option<PathBuf>, unset "Mozilla's authorities only", such as "ca.pem";
    }

    /// `[identity]`
    #[derive(Clone, Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct IdentityConfig {
        /// never, learned (signed requests alongside unsigned ones) or always: which requests are
        /// signed.
        pub mode: Option<SigningMode>, unset "always if agent is set and a key exists, else never", such as "always";
        /// Https origin that publishes the keys.
        pub agent: Option<String>, unset "none", such as "https://bot.example", valid ORIGIN;
        /// Product token, in the User-Agent and, unless robots.agent is set, in robots.txt.
        pub name: Option<String>, unset "none", such as "ExampleBot", valid PRODUCT_TOKEN;
        /// Page about the crawler.
        pub about: Option<String>, unset "the page /bot of the agent", such as "https://bot.example/bot", valid PAGE;
        /// Mail address or URL for questions.
        pub contact: Option<String>, unset "none", such as "bot@example.org";
        /// Networks that requests come from, as in ["192.0.2.0/24"].
        pub ips: Vec<String> = list(&[]);
        /// Directory of the keys.
        pub keys: Option<PathBuf>,
            unset "fetchwise/identity in the user's configuration directory", such as "identity";
        /// Variable with the key (PEM), instead of files.
        pub key_env: Option<String>, unset "none", such as "BOT_KEY";
        /// leave or escalate: with learned, what happens on a host that blocks signed requests.
        #[serde(deserialize_with = "value::named")]
        pub after_refusal: Option<AfterRefusal> = "leave";
        /// document, site or all: the requests of a browser's pages that are signed. site: those to
        /// the page's registrable domain. With all, third parties can track the crawler by its key.
        pub browser_scope: Option<SigningBrowserScope> = "site";
        /// Headers that a host has issued for the crawler, such as a signature of a Shopify store.
        #[serde(rename = "host")]
        pub hosts: BTreeMap<String, IdentityHostConfig> = toml::Table::new();
    }

    /// `[identity.host."shop.example"]`
    #[derive(Clone, Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct IdentityHostConfig {
        /// Variable with the headers, one "Name: value" per line. They go to this host over https
        /// and are never shown.
        pub headers_env: Option<String>, unset "none", such as "SHOP_HEADERS", valid VARIABLE;
    }

    /// `[pace]`
    #[derive(Clone, Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct PaceConfig {
        /// learn, fixed or off: off sends requests as fast as possible.
        #[serde(deserialize_with = "value::pace_mode")]
        pub mode: Option<PaceMode> = "learn";
        /// Requests per second for an unknown host at first; with fixed at all times.
        pub initial_rate: Option<f64> = 2.0, valid RATE;
        /// Requests per second and host at most.
        pub max_rate: Option<f64> = 20.0, valid RATE;
        /// Parallel requests per host at most.
        pub max_parallel: Option<u8> = 16, valid PARALLEL;
        /// minimum, initial or ignore: effect of the Crawl-delay in robots.txt.
        #[serde(deserialize_with = "value::crawl_delay")]
        pub crawl_delay: Option<CrawlDelay> = "minimum";
        /// Longest Crawl-delay; a longer one counts as this.
        #[serde(deserialize_with = "value::seconds")]
        pub max_crawl_delay: Option<Duration> = "1m";
        /// Longest hold that a link waits for, and how long `fetch` waits for paused links at its
        /// end.
        #[serde(deserialize_with = "value::seconds")]
        pub max_wait: Option<Duration> = "15m";
        /// Known values of one host, which are not learned.
        #[serde(rename = "host")]
        pub hosts: BTreeMap<String, PaceHostConfig> = toml::Table::new();
    }

    /// `[pace.host."example.org"]`
    #[derive(Clone, Copy, Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct PaceHostConfig {
        /// Requests per second.
        pub rate: Option<f64>, unset "learned", such as 5.0, valid RATE;
        /// Parallel requests at most.
        pub parallel: Option<u8>, unset "learned", such as 4, valid PARALLEL;
    }

    /// `[rollout]`
    #[derive(Clone, Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct RolloutConfig {
        /// Whether learning is taken out of service, with mode split, when it is worse than the
        /// router table.
        pub fall_back: Option<bool> = true;
        /// success, cost, requests or bans: what to compare.
        #[serde(deserialize_with = "value::named")]
        pub metric: Option<Metric> = "success";
        /// Time out of service after which learning gets another chance, then after twice as long.
        #[serde(deserialize_with = "value::seconds")]
        pub retry_after: Option<Duration>, unset "never", such as "30days";
    }

    /// `[robots]`
    #[derive(Clone, Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct RobotsConfig {
        /// obey, delay or ignore: use of robots.txt.
        #[serde(rename = "use", deserialize_with = "value::named")]
        pub mode: Option<RobotsUse>,
            unset "obey for lists, ignore for URLs on the command line", such as "obey";
        /// Name to search for in robots.txt; unless set, also that of identity.name.
        pub agent: Option<String> = "fetchwise";
    }

    /// `[consent]`
    #[derive(Clone, Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct ConsentConfig {
        /// Purposes of the crawl: search, train-ai, ai-input, archive. Without any, terms are
        /// recorded and no page is skipped. With some, a page that is reserved against all of them
        /// ends as `reserved`, and robots.txt is read for its terms whatever robots.use says.
        #[serde(deserialize_with = "value::named_list")]
        pub purposes: Option<Vec<Purpose>> = list(&[]);
        /// Vocabularies whose terms decide. Those of others are recorded only.
        #[serde(deserialize_with = "value::named_list")]
        pub respect: Option<Vec<Vocabulary>> = list(&["content-usage", "content-signal", "x-robots-tag", "rsl"]);
        /// skip: a reserved page is not requested, or not kept. mark: it comes, and its result says
        /// so.
        #[serde(deserialize_with = "value::named")]
        pub on_reserved: Option<OnReserved> = "skip";
        /// Licences in RSL. record: their addresses are recorded. read: files that robots.txt names
        /// are read as well, once a day.
        #[serde(deserialize_with = "value::named")]
        pub licenses: Option<LicenseUse> = "record";
    }

    /// `[cache]`
    #[derive(Clone, Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct CacheConfig {
        /// off, revalidate (an unchanged page costs a request and no body) or fresh (as well, and a
        /// page within its max-age is not requested).
        #[serde(rename = "use", deserialize_with = "value::named")]
        pub mode: Option<CacheUse> = "off";
    }

    /// `[network]`
    #[derive(Clone, Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct NetworkConfig {
        /// Non-public networks that fetchwise may connect to, as in ["10.1.0.0/16"].
        pub allow: Vec<String> = list(&[]);
        /// Whether loopback and private ranges are allowed; never link-local or metadata addresses.
        pub allow_private: bool = false;
    }

    /// `[fleet]`
    #[derive(Clone, Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct FleetConfig {
        /// Brokers, as in ["tls://nats1:4222", "tls://nats2:4222"]. No fleet without one. --fleet
        /// and FETCHWISE_FLEET override this key.
        pub url: Vec<String> = list(&[]);
        /// Name of the group of nodes that share what they learn.
        pub pool: Option<String> = "default";
        /// Name for the addresses that requests leave from. Nodes of one group share pauses.
        pub egress_group: Option<String> = "";
        /// What the node reads from others: all, or own. Use own in a pool of more than a hundred
        /// nodes: each site then has its own node, and the others send only evidence that is tied
        /// to no site. The same for all nodes of a pool.
        pub scope: Option<FleetScope> = "all";
        /// A .creds file, or a file with the seed of an NKey.
        pub credentials: Option<PathBuf>, unset "none", such as "node.creds";
        /// Certificate authorities for the brokers, PEM.
        pub tls_ca_file: Option<PathBuf>, unset "the system's authorities", such as "ca.pem";
        /// Certificate of this node, PEM.
        pub certificate: Option<PathBuf>, unset "none", such as "node.pem";
        /// Private key of the certificate, PEM.
        pub key: Option<PathBuf>, unset "none", such as "node.key";
        /// Whether nats:// to other machines, without encryption, is allowed.
        pub plaintext: bool = false;
        /// Whether a start without a broker fails.
        pub required: bool = false;
        /// Retention of messages in newly created streams, 10min to 90days.
        #[serde(deserialize_with = "value::seconds")]
        pub max_age: Option<Duration> = "7days";
    }

    /// `[browser]`
    #[derive(Clone, Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct BrowserConfig {
        /// Whether Chromium is used.
        pub enabled: Option<bool> = true;
        /// Path of Chromium.
        pub path: Option<PathBuf>, unset "the first one on the PATH", such as "/usr/bin/chromium";
        /// Open pages at a time.
        pub tabs: Option<usize> = 4, valid one_or_more::<usize>();
    }

    /// `[log]`
    #[derive(Clone, Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct LogConfig {
        /// memory, os, interval or sync: when an attempt counts as written.
        pub durability: Option<DurabilityName> = "interval";
        /// Time between two syncs; a bare number is in milliseconds.
        #[serde(deserialize_with = "value::milliseconds")]
        pub interval: Option<Duration> = "100ms";
        /// Days after which a compaction drops raw attempts; their evidence stays.
        pub retain_days: Option<u32> = 90, valid Rule::Range(0..=36_500, "0 to 36500");
        /// Older attempts, as a share of the log, from which on a crawl compacts in the background;
        /// "never" turns it off.
        #[serde(deserialize_with = "value::compact_threshold")]
        pub compact_threshold: Option<value::CompactThreshold> = 0.25, valid COMPACT_THRESHOLD;
        /// Disk space of the log. Beyond it the log drops its oldest raw attempts, of any age, but
        /// never evidence. docs/reports/reliability.md has its limits.
        #[serde(deserialize_with = "value::bytes")]
        pub max_disk_bytes: Option<u64>,
            unset "no limit", such as "10GiB", valid Rule::Range(1 << 20..=u64::MAX, "\"1MiB\" or more");
        /// keep or hash: hash replaces the values of query strings in the data directory by hashes
        /// with a key, for URLs with secrets.
        pub query: Option<QueryName> = "keep";
    }

    /// `[[fetcher]]`. Its defaults depend on its class, and its rules on other keys: see `check`.
    #[derive(Clone, Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct FetcherConfig {
        /// Name of the fetcher.
        pub name: String;
        /// Class, which sets the defaults of the other keys.
        #[serde(default, deserialize_with = "value::class")]
        pub class: Option<Class>;
        /// Cost of a request, in plain requests, or `"measured"`.
        #[serde(default, deserialize_with = "value::cost")]
        pub cost: Option<value::CostConfig>;
        /// Quality of the delivered pages, 0 to 1.
        pub quality: Option<f64>;
        /// Probability of success before anything is known.
        pub prior: Option<f64>;
        /// Whether it runs scripts.
        pub renders: Option<bool>;
        /// Program that fetches, with its arguments.
        pub command: Option<Vec<String>>;
        /// Shipped fetcher that it works like: `direct_access`, `playwright` or
        /// `playwright_stealth`.
        pub like: Option<String>;
        /// Proxy, `http://host:port` or `socks5://host:port`.
        pub proxy: Option<Secret>;
        /// Environment variable that holds the proxy's `user:password`.
        pub proxy_user_env: Option<String>;
        /// Web archives.
        pub archive: Option<ArchiveConfig>;
        /// Search API.
        pub search: Option<SearchConfig>;
        /// Media downloads with yt-dlp.
        pub download: Option<DownloadConfig>;
        /// Address of the DevTools socket of a browser that is already running.
        pub cdp: Option<Secret>;
        /// URL of a service that fetches with its own browser, such as FlareSolverr.
        #[serde(default, deserialize_with = "value::secret_address")]
        pub solver: Option<Secret<Url>>;
        /// Largest number of requests in flight.
        pub max_in_flight: Option<usize>;
        /// Whether it signs its requests.
        pub signed: Option<bool>;
    }

    /// `[[prior]]`
    #[derive(Clone, Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct PriorConfig {
        /// Type of the heuristic.
        #[serde(rename = "type")]
        pub kind: String;
        /// Value of the heuristic.
        pub value: String;
        /// Fetcher, which must be a candidate.
        pub fetcher: String;
        /// Share of successes.
        pub success_rate: f64, valid SHARE;
        /// Number of pseudo-attempts that it counts for; 10 by default.
        pub samples: Option<f64>, valid Rule::Range(0.0..=1e6, "0 to 1000000");
    }
}

single_values! {
    Any: value::CompactThreshold, value::CostConfig;
    Text: AfterRefusal, CacheUse, Class, CrawlDelay, DurabilityName, FleetScope, ImportanceMode, LicenseUse, Metric,
        Mode, OnReserved, PaceMode, Purpose, QueryName, RobotsUse, SignedHttp, SigningBrowserScope, SigningCoverage,
        SigningForm, SigningMode, Vocabulary;
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

/// How the data directory stores the values of query strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueryName {
    /// As they are.
    Keep,
    /// As hashes with a key of the directory.
    Hash,
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
