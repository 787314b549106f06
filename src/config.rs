//! Settings from a TOML file: what can be set, under which name, and what each means for the parts.
//!
//! Owns the names and the checks of values. An unknown key is an error that names it. Must not read the environment or the
//! command line: those go before it, and the command line resolves them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::backoff::BackoffSettings;
use crate::evidence::decay::HALF_LIFE_DAYS_DEFAULT;
use crate::policy;
use crate::registry::{BUILT_IN, Class, FetcherSpec};
use crate::router::{Mode, RouteTable, TableError};
use crate::score::{ImportanceUse, Settings};
use crate::selector::{Prior, SelectorBuilder};

/// A segment takes a good number of attempts; a file for each would be the end of any directory.
const SEGMENT_BYTES_MIN: u64 = 64 << 10;
/// What `[importance]` prunes below, unless said otherwise.
const IMPORTANCE_MIN: f64 = 0.02;
/// What `[importance]` counts in full, unless said otherwise.
const IMPORTANCE_FULL: f64 = 0.2;

/// A config that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is no TOML, or has a key or a type that is not known; the message shows where.
    #[error("{path}: {message}")]
    Syntax {
        /// Which file.
        path: PathBuf,
        /// Line, column and what was expected.
        message: String,
    },
    /// A value is out of its range.
    #[error("{key} is {value}; {expected}")]
    Value {
        /// The key's full name.
        key: String,
        /// What it was set to.
        value: String,
        /// What it can be.
        expected: &'static str,
    },
    /// The router table cannot be used.
    #[error("{path}: {source}")]
    Table {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: TableError,
    },
}

/// Everything that a config file can say. Absent keys keep their defaults.
///
/// ```
/// let config = fetchwise::config::Config::from_toml("mode = 'shadow'\n[scoring]\nvalue = 50.0", "x.toml".as_ref()).unwrap();
/// assert_eq!(config.scoring.value, Some(50.0));
/// let error = fetchwise::config::Config::from_toml("colour = 'red'", "x.toml".as_ref()).unwrap_err();
/// assert!(error.to_string().contains("colour"));
/// ```
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// `learning`, `legacy`, `shadow` or `split`.
    pub mode: Option<String>,
    /// The share of domains that `split` gives to learning.
    pub split_share: Option<f64>,
    /// The policy: `default`, `index`, `confident` or `published`.
    pub policy: Option<String>,
    /// Where the log is.
    pub data_dir: Option<PathBuf>,
    /// The legacy table, TOML or CSV.
    pub router: Option<PathBuf>,
    /// More detection rules, TOML.
    pub rules: Option<PathBuf>,
    /// Half-life of evidence in days, 7 to 365.
    pub half_life_days: Option<f64>,
    /// Beyond so many keys (domains, sites, suffixes ...) in memory the least attempted go.
    pub keys_max: Option<usize>,
    /// The constants of the decision.
    pub scoring: ScoringConfig,
    /// What recorded importance does.
    pub importance: ImportanceConfig,
    /// Pauses.
    pub backoff: BackoffConfig,
    /// Requests.
    pub http: HttpConfig,
    /// What may be dialled.
    pub network: NetworkConfig,
    /// Chromium.
    pub browser: BrowserConfig,
    /// The attempt log.
    pub log: LogConfig,
    /// Fetchers: those named here are the candidates, in this order, in place of the built-in ones.
    #[serde(rename = "fetcher")]
    pub fetchers: Vec<FetcherConfig>,
    /// Priors, in addition to the built-in ones.
    #[serde(rename = "prior")]
    pub priors: Vec<PriorConfig>,
    /// Whether the built-in priors hold.
    pub built_in_priors: Option<bool>,
}

/// `[scoring]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScoringConfig {
    /// V, in plain requests.
    pub value: Option<f64>,
    /// What a blocked response costs on top.
    pub blocked_cost: Option<f64>,
    /// φ.
    pub phi: Option<f64>,
    /// A fetcher is confident above this.
    pub min_confidence: Option<f64>,
    /// A fetcher is confident with so many attempts.
    pub min_attempts: Option<f64>,
    /// The share of first attempts that explore.
    pub explore: Option<f64>,
    /// How eagerly something cheaper that failed is looked at again once a host has had a rest.
    pub explore_rested: Option<f64>,
    /// The share of first attempts that explore at most.
    pub explore_most: Option<f64>,
    /// The chance of a last-ditch try.
    pub last_ditch: Option<f64>,
    /// What the plain fetcher met on a site against the other fetchers' general estimates; 0 leaves it out.
    pub met_weight: Option<f64>,
    /// Attempts for a URL in all.
    pub max_attempts: Option<u32>,
}

/// `[importance]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ImportanceConfig {
    /// `off`, `prune` or `scale`.
    #[serde(rename = "use")]
    pub mode: Option<String>,
    /// `prune` leaves out what has less importance; 0.02 unless said otherwise.
    pub min: Option<f64>,
    /// `scale` counts what has this importance in full, and less in proportion; 0.2 unless said otherwise.
    pub full: Option<f64>,
}

/// `[backoff]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BackoffConfig {
    /// The first pause after a block, in seconds.
    pub blocked_base_s: Option<u64>,
    /// The first pause after another failure, in seconds.
    pub failed_base_s: Option<u64>,
    /// `Retry-After` is believed up to this, in seconds.
    pub retry_after_max_s: Option<u64>,
    /// So many blocked links pause their host.
    pub host_links: Option<u32>,
    /// Within so many seconds.
    pub host_window_s: Option<u64>,
    /// Whether another fetcher is tried after a block.
    pub escalate_after_block: Option<bool>,
}

/// `[http]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpConfig {
    /// The deadline of a request, in seconds.
    pub timeout_s: Option<f64>,
    /// The deadline of a probe, in seconds.
    pub probe_timeout_s: Option<f64>,
    /// The longest body, in bytes after decoding.
    pub max_body: Option<u64>,
    /// Redirects followed.
    pub max_redirects: Option<u32>,
    /// The `User-Agent`.
    pub user_agent: Option<String>,
    /// A file of certificate authorities (PEM) that the plain fetcher trusts beside Mozilla's.
    pub ca_file: Option<PathBuf>,
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

/// `[log]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// `memory`, `os`, `interval` or `sync`.
    pub durability: Option<String>,
    /// The interval, in milliseconds.
    pub interval_ms: Option<u64>,
    /// The size at which a segment is full, in bytes.
    pub segment_bytes: Option<u64>,
    /// How many days raw attempts are kept by a compaction.
    pub retain_days: Option<u32>,
}

/// `[[fetcher]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FetcherConfig {
    /// Its name.
    pub name: String,
    /// Its class: `plain`, `rendering`, `stealth`, `archive`, `special` or `unknown`.
    pub class: Option<String>,
    /// The cost of a request, in plain requests.
    pub cost: Option<f64>,
    /// The worth of what it delivers, 0 to 1.
    pub quality: Option<f64>,
    /// The chance of success before anything is known.
    pub prior: Option<f64>,
    /// Whether it runs scripts.
    pub renders: Option<bool>,
    /// The program that fetches, with its arguments; without it the name must be a built-in one that is shipped.
    pub command: Option<Vec<String>>,
    /// Requests in flight at once through the command.
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

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`ConfigError`] names file, line and key.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::from_toml(&text, path)
    }

    /// Reads and checks a text; `path` is for messages.
    ///
    /// # Errors
    /// [`ConfigError`] names line and key.
    pub fn from_toml(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text)
            .map_err(|error| ConfigError::Syntax { path: path.to_owned(), message: error.to_string() })?;
        config.check()?;
        Ok(config)
    }

    /// The mode, if the file sets one.
    pub fn mode(&self) -> Option<Mode> {
        self.mode.as_deref().and_then(Mode::from_name)
    }

    /// A selector's builder with everything that the file sets. Without `[[fetcher]]` the built-in names are candidates.
    pub fn selector(&self) -> SelectorBuilder {
        let mut builder = SelectorBuilder::default()
            .settings(self.settings())
            .backoff(self.backoff())
            .half_life_days(self.half_life_days.unwrap_or(HALF_LIFE_DAYS_DEFAULT))
            .keys_max(self.keys_max);
        if let Some(policy) = self.policy.as_deref().and_then(policy::by_name) {
            builder = builder.policy(policy);
        }
        for fetcher in &self.fetchers {
            builder = builder.fetcher(fetcher.spec());
        }
        if self.built_in_priors == Some(false) {
            builder = builder.no_priors();
        }
        for prior in &self.priors {
            let mut made = Prior::new(&prior.kind, &prior.value, &prior.fetcher, prior.success_rate);
            made.samples = prior.samples.unwrap_or(made.samples);
            builder = builder.prior(made);
        }
        builder
    }

    /// The constants of the decision.
    pub fn settings(&self) -> Settings {
        let (set, base) = (&self.scoring, Settings::default());
        Settings {
            value: set.value.unwrap_or(base.value),
            blocked_cost: set.blocked_cost.unwrap_or(base.blocked_cost),
            phi: set.phi.unwrap_or(base.phi),
            min_confidence: set.min_confidence.unwrap_or(base.min_confidence),
            // Attempts of last week have decayed to nine tenths of their number, and still count as that many.
            min_sample: set.min_attempts.map_or(base.min_sample, |attempts| attempts * 0.9),
            explore: set.explore.unwrap_or(base.explore),
            explore_rested: set.explore_rested.unwrap_or(base.explore_rested),
            explore_most: set.explore_most.unwrap_or(base.explore_most),
            last_ditch: set.last_ditch.unwrap_or(base.last_ditch),
            met_weight: set.met_weight.unwrap_or(base.met_weight),
            max_attempts: set.max_attempts.unwrap_or(base.max_attempts),
            importance: match self.importance.mode.as_deref() {
                Some("prune") => ImportanceUse::Prune { min: self.importance.min.unwrap_or(IMPORTANCE_MIN) },
                Some("scale") => ImportanceUse::Scale { full: self.importance.full.unwrap_or(IMPORTANCE_FULL) },
                _ => ImportanceUse::Off,
            },
            ..base
        }
    }

    /// How long things wait.
    pub fn backoff(&self) -> BackoffSettings {
        let (set, base) = (&self.backoff, BackoffSettings::default());
        let seconds = |value: Option<u64>, default| value.map_or(default, Duration::from_secs);
        BackoffSettings {
            blocked_base: seconds(set.blocked_base_s, base.blocked_base),
            failed_base: seconds(set.failed_base_s, base.failed_base),
            retry_after_max: seconds(set.retry_after_max_s, base.retry_after_max),
            host_links: set.host_links.unwrap_or(base.host_links),
            host_window: seconds(set.host_window_s, base.host_window),
            ..base
        }
    }

    fn check(&self) -> Result<(), ConfigError> {
        let bad = |key: &str, value: &dyn std::fmt::Debug, expected: &'static str| {
            Err(ConfigError::Value { key: key.to_owned(), value: format!("{value:?}"), expected })
        };
        if let Some(mode) = &self.mode
            && Mode::from_name(mode).is_none()
        {
            return bad("mode", mode, "it can be learning, legacy, shadow or split");
        }
        if let Some(name) = &self.policy
            && policy::by_name(name).is_none()
        {
            return bad("policy", name, "it can be default, index, confident or published");
        }
        if let Some(durability) = &self.log.durability
            && !matches!(durability.as_str(), "memory" | "os" | "interval" | "sync")
        {
            return bad("log.durability", durability, "it can be memory, os, interval or sync");
        }
        if let Some(days) = self.half_life_days
            && !(7.0..=365.0).contains(&days)
        {
            return bad("half_life_days", &days, "it can be 7 to 365");
        }
        if let Some(days) = self.log.retain_days
            && days > 36_500
        {
            return bad("log.retain_days", &days, "it can be 0 to 36500");
        }
        if let Some(mode) = &self.importance.mode
            && !matches!(mode.as_str(), "off" | "prune" | "scale")
        {
            return bad("importance.use", mode, "it can be off, prune or scale");
        }
        if self.importance.full == Some(0.0) {
            return bad("importance.full", &0.0, "it can be anything above 0, up to 1");
        }
        let scoring = &self.scoring;
        let shares = [
            ("split_share", self.split_share),
            ("importance.min", self.importance.min),
            ("importance.full", self.importance.full),
            ("scoring.min_confidence", scoring.min_confidence),
            ("scoring.explore", scoring.explore),
            ("scoring.explore_most", scoring.explore_most),
            ("scoring.last_ditch", scoring.last_ditch),
        ];
        for (key, value) in shares.into_iter().filter_map(|(key, value)| Some((key, value?))) {
            if !(0.0..=1.0).contains(&value) {
                return bad(key, &value, "it can be 0 to 1");
            }
        }
        let amounts = [
            ("scoring.value", scoring.value),
            ("scoring.blocked_cost", scoring.blocked_cost),
            ("scoring.explore_rested", scoring.explore_rested),
            ("scoring.met_weight", scoring.met_weight),
            ("scoring.min_attempts", scoring.min_attempts),
        ];
        for (key, value) in amounts.into_iter().filter_map(|(key, value)| Some((key, value?))) {
            if !(0.0..=1e9).contains(&value) {
                return bad(key, &value, "it can be any number from 0 up");
            }
        }
        for (key, value) in
            [("http.timeout_s", self.http.timeout_s), ("http.probe_timeout_s", self.http.probe_timeout_s)]
        {
            if let Some(seconds) = value.filter(|seconds| !(0.001..=86_400.0).contains(seconds)) {
                return bad(key, &seconds, "it can be 0.001 to 86400");
            }
        }
        if self.keys_max == Some(0) {
            return bad("keys_max", &0, "it can be 1 or more");
        }
        if self.browser.tabs == Some(0) {
            return bad("browser.tabs", &0, "it can be 1 or more; [browser] enabled = false does without a browser");
        }
        if let Some(bytes) = self.log.segment_bytes
            && bytes < SEGMENT_BYTES_MIN
        {
            return bad("log.segment_bytes", &bytes, "it can be 65536 or more");
        }
        if self.http.max_body == Some(0) {
            return bad("http.max_body", &0, "it can be 1 or more");
        }
        let names: Vec<&str> = self.fetchers.iter().map(|fetcher| crate::registry::canonical(&fetcher.name)).collect();
        if let Some(twice) = names.iter().enumerate().find_map(|(at, name)| names[..at].contains(name).then_some(name))
        {
            return bad("fetcher.name", twice, "each fetcher can be listed once");
        }
        if let Some(phi) = scoring.phi
            && !(0.0..1.0).contains(&phi)
        {
            return bad("scoring.phi", &phi, "it can be 0 to just under 1");
        }
        if scoring.max_attempts == Some(0) {
            return bad("scoring.max_attempts", &0, "it can be 1 or more");
        }
        self.fetchers.iter().try_for_each(FetcherConfig::check)?;
        for prior in &self.priors {
            if !(0.0..=1.0).contains(&prior.success_rate) {
                return bad("prior.success_rate", &prior.success_rate, "it can be 0 to 1");
            }
            if let Some(samples) = prior.samples.filter(|samples| !(0.0..=1e6).contains(samples)) {
                return bad("prior.samples", &samples, "it can be 0 to 1000000");
            }
        }
        Ok(())
    }
}

impl FetcherConfig {
    /// What the decision has to know of it.
    pub fn spec(&self) -> FetcherSpec {
        let class = self.class.as_deref().and_then(Class::from_name);
        let mut spec = match class {
            Some(class) => FetcherSpec::new(crate::registry::canonical(&self.name), class),
            None => FetcherSpec::by_name(&self.name),
        };
        if let Some(renders) = self.renders {
            spec.renders = renders;
            spec.false_success = if renders { 0.0 } else { 0.05 };
        }
        spec.cost = self.cost.unwrap_or(spec.cost);
        spec.quality = self.quality.unwrap_or(spec.quality);
        spec.prior = self.prior.unwrap_or(spec.prior);
        spec
    }

    fn check(&self) -> Result<(), ConfigError> {
        let bad = |key: &str, value: &dyn std::fmt::Debug, expected: &'static str| {
            let key = format!("fetcher {:?}: {key}", self.name);
            Err(ConfigError::Value { key, value: format!("{value:?}"), expected })
        };
        if self.name.is_empty() || self.name.len() > 100 || self.name.chars().any(char::is_control) {
            return bad("name", &self.name, "it must be 1 to 100 printable characters");
        }
        if let Some(class) = &self.class
            && Class::from_name(class).is_none()
        {
            return bad("class", class, "it can be plain, rendering, stealth, archive, special or unknown");
        }
        for (key, value) in [("quality", self.quality), ("prior", self.prior)] {
            if let Some(value) = value.filter(|value| !(0.0..=1.0).contains(value)) {
                return bad(key, &value, "it can be 0 to 1");
            }
        }
        if let Some(cost) = self.cost.filter(|cost| !(cost.is_finite() && *cost > 0.0)) {
            return bad("cost", &cost, "it can be any number above 0");
        }
        if let Some(command) = self.command.as_ref().filter(|command| command.first().is_none_or(String::is_empty)) {
            return bad("command", command, "it needs a program");
        }
        if self.max_in_flight == Some(0) {
            return bad("max_in_flight", &0, "it can be 1 or more");
        }
        Ok(())
    }
}

/// Reads a router table: TOML (`[routes]` with `domain = "fetcher"`, `[[route]]` with `domain` and `fetcher`, or bare
/// `"domain" = "fetcher"` lines) when the file is called `.toml`, else CSV with the columns domain and fetcher.
///
/// # Errors
/// [`ConfigError`] names file and line.
pub fn load_route_table(path: &Path) -> Result<RouteTable, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    let table = if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml")) {
        table_from_toml(&text).map_err(|message| ConfigError::Syntax { path: path.to_owned(), message })?
    } else {
        table_from_csv(&text)
    };
    table.map_err(|source| ConfigError::Table { path: path.to_owned(), source })
}

fn table_from_toml(text: &str) -> Result<Result<RouteTable, TableError>, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Route {
        domain: String,
        fetcher: String,
    }
    #[derive(Deserialize)]
    struct File {
        #[serde(default)]
        routes: std::collections::BTreeMap<String, String>,
        #[serde(default)]
        route: Vec<Route>,
        #[serde(flatten)]
        bare: std::collections::BTreeMap<String, String>,
    }
    let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
    let listed = file.route.into_iter().map(|route| (route.domain, route.fetcher));
    let mut table = RouteTable::default();
    let mut all = file.routes.into_iter().chain(file.bare).chain(listed);
    Ok(all.try_for_each(|(domain, fetcher)| table.insert(&domain, &fetcher)).map(|()| table))
}

fn table_from_csv(text: &str) -> Result<RouteTable, TableError> {
    let mut table = RouteTable::default();
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .comment(Some(b'#'))
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    for (index, record) in reader.records().enumerate() {
        let fail = |line: u64, reason: String| TableError::Line { line: line as usize, reason };
        let record = record.map_err(|error| {
            fail(error.position().map_or(0, csv::Position::line), "not a line of CSV: ".to_owned() + &error.to_string())
        })?;
        let line = record.position().map_or(0, csv::Position::line);
        let (Some(domain), Some(fetcher)) = (record.get(0), record.get(1)) else {
            return Err(fail(line, "expected two columns, domain and fetcher".to_owned()));
        };
        if domain.is_empty() || fetcher.is_empty() {
            return Err(fail(line, "domain or fetcher is empty".to_owned()));
        }
        let is_head = index == 0 && domain.eq_ignore_ascii_case("domain");
        if !is_head {
            table.insert(domain, fetcher)?;
        }
    }
    Ok(table)
}

/// The candidates when neither a config nor a log names others: the built-in ones.
pub fn built_in_fetchers() -> Vec<FetcherSpec> {
    BUILT_IN.iter().map(|&(name, class)| FetcherSpec::new(name, class)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(text: &str) -> String {
        Config::from_toml(text, Path::new("c.toml")).unwrap_err().to_string()
    }

    #[test]
    fn unknown_keys_and_bad_values_are_named() {
        assert!(error_of("[scoring]\nvalu = 1").contains("valu"));
        assert!(error_of("half_life_days = 3").contains("7 to 365"));
        assert!(error_of("mode = 'auto'").contains("auto"));
        assert!(error_of("[[fetcher]]\nname = 'x'\nclass = 'fast'").contains("\"fast\""));
        assert!(error_of("[scoring]\nphi = 1.0").contains("scoring.phi"));
        assert!(error_of("[importance]\nuse = 'maybe'").contains("off, prune or scale"));
        assert!(error_of("[importance]\nfull = 0.0").contains("importance.full"));
        assert!(error_of("mode = ").contains("c.toml"));
        assert!(error_of("[http]\ntimeout_s = 0.0").contains("http.timeout_s"));
        for (text, message) in [
            ("[http]\nprobe_timeout_s = -1.0", "http.probe_timeout_s is -1.0; it can be 0.001 to 86400"),
            ("[browser]\ntabs = 0", "browser.tabs is 0; it can be 1 or more"),
            ("[log]\nsegment_bytes = 1", "log.segment_bytes is 1; it can be 65536 or more"),
            ("keys_max = 0", "keys_max is 0; it can be 1 or more"),
            ("[[fetcher]]\nname = 'x'\ncost = -1.0", "fetcher \"x\": cost is -1.0; it can be any number above 0"),
            ("[[fetcher]]\nname = 'x'\nmax_in_flight = 0", "max_in_flight is 0; it can be 1 or more"),
        ] {
            assert!(error_of(text).contains(message), "{}", error_of(text));
        }
        assert!(error_of("[[fetcher]]\nname = 'direct_access'\n[[fetcher]]\nname = 'simple_http'").contains("once"));
    }

    #[test]
    fn a_fetcher_overrides_its_class() {
        let text = "[[fetcher]]\nname = 'mine'\nclass = 'archive'\ncost = 3.5\n[[fetcher]]\nname = 'simple_http'";
        let config = Config::from_toml(text, Path::new("c.toml")).unwrap();
        let selector = config.selector().build().unwrap();
        let specs: Vec<_> = selector.candidates().map(|(_, spec)| (spec.name.to_string(), spec.cost)).collect();
        assert_eq!(specs, [("mine".to_owned(), 3.5), ("direct_access".to_owned(), 1.0)]);
    }

    #[test]
    fn tables_read_from_csv_and_each_form_of_toml() {
        let csv = table_from_csv("domain,fetcher\nwww.a.org, playwright\n\n# old\n\"b.org\",simple_http\n").unwrap();
        assert_eq!((csv.get("a.org"), csv.get("b.org")), (Some("playwright"), Some("direct_access")));
        assert_eq!(
            table_from_csv("a.org\n").unwrap_err().to_string(),
            "line 1: expected two columns, domain and fetcher"
        );
        for text in [
            "[routes]\n'a.org' = 'playwright'",
            "[[route]]\ndomain = 'a.org'\nfetcher = 'playwright'",
            "'a.org' = 'playwright'",
        ] {
            assert_eq!(table_from_toml(text).unwrap().unwrap().get("a.org"), Some("playwright"), "{text}");
        }
    }
}
