//! Construction of the parts from a config: the selector's builder, scoring constants, pace,
//! backoff, fetchers.

use std::borrow::Cow;
use std::time::Duration;

use url::Url;

use super::PaceHostConfig;
use super::value::CostConfig;
use super::{
    ArchiveConfig, Config, DownloadConfig, FetcherConfig, ImportanceMode, SearchConfig, Secret,
    SigningMode,
};
use crate::ab_test::GuardSettings;
use crate::backoff::BackoffSettings;
use crate::evidence::decay::DEFAULT_HALF_LIFE_DAYS;
use crate::policy;
use crate::score::{ImportanceUse, Settings};
use crate::selector::{Prior, SelectorBuilder};
use fetchwise_pace::{HostPace, Pace, PaceSettings};
use fetchwise_types::consent::ConsentSettings;
use fetchwise_types::heuristic::files::FileSuffixes;
use fetchwise_types::heuristic::platform::VideoPlatform;
use fetchwise_types::heuristic::url::domain_of;
use fetchwise_types::registry::{BUILT_IN, Class, FetcherSpec, PROBE_FETCHER, canonical};

/// Default of `importance_min`.
const MIN_IMPORTANCE: f64 = 0.02;
/// Default of `importance_full`.
const IMPORTANCE_FULL: f64 = 0.2;

impl Config {
    /// Returns a selector's builder with everything that the config sets. Without `[[fetcher]]` the
    /// built-in fetchers are candidates.
    pub fn selector(&self) -> SelectorBuilder {
        let mut builder = SelectorBuilder::default()
            .settings(self.settings())
            .backoff(self.backoff())
            .half_life_days(self.tuning.half_life_days.unwrap_or(DEFAULT_HALF_LIFE_DAYS))
            .max_keys(self.max_keys)
            .file_suffixes(self.suffixes())
            .extractor(VideoPlatform)
            .pace(Pace::new(self.pace()));
        if let Some(policy) = self.policy.as_deref().and_then(|name| policy::by_name(name).ok()) {
            builder = builder.policy(policy);
        }
        builder = self.candidates().into_iter().fold(builder, SelectorBuilder::fetcher);
        // With `always` no unsigned fetcher hides, so a host that refuses the signed ones is left.
        let after_refusal =
            self.identity.after_refusal.filter(|_| self.signing != Some(SigningMode::Always));
        builder = builder.after_refusal(after_refusal.unwrap_or_default());
        if self.tuning.built_in_priors == Some(false) {
            builder = builder.no_priors();
        }
        for prior in &self.priors {
            let mut made =
                Prior::new(&prior.kind, &prior.value, &prior.fetcher, prior.success_rate);
            made.samples = prior.samples.unwrap_or(made.samples);
            builder = builder.prior(made);
        }
        builder
    }

    /// Returns the candidates that the config lists; none if it leaves them at the built-in ones.
    pub fn candidates(&self) -> Vec<FetcherSpec> {
        self.with_signed_arms(self.fetchers.iter().map(super::FetcherConfig::spec).collect())
    }

    /// Returns the file suffixes.
    pub fn suffixes(&self) -> FileSuffixes {
        let files = self.file_suffixes.iter().map(|suffix| (suffix, true));
        let pages = self.page_suffixes.iter().map(|suffix| (suffix, false));
        files.chain(pages).fold(FileSuffixes::default(), |suffixes, (suffix, is_file)| {
            let with =
                if is_file { suffixes.clone().file(suffix) } else { suffixes.clone().page(suffix) };
            // Reading a file rejects invalid suffixes. A config that was built by hand is not worth
            // an error.
            with.unwrap_or(suffixes)
        })
    }

    /// Returns the scoring constants.
    pub fn settings(&self) -> Settings {
        let (set, base) = (&self.tuning, Settings::default());
        Settings {
            page_value: self.scoring.page_value.unwrap_or(base.page_value),
            blocked_cost: set.blocked_cost.unwrap_or(base.blocked_cost),
            success_discount: set.success_discount.unwrap_or(base.success_discount),
            min_confidence: set.min_confidence.unwrap_or(base.min_confidence),
            // Attempts of last week have decayed to nine tenths of their number, and still count as
            // that many.
            min_sample: set.min_attempts.map_or(base.min_sample, |attempts| attempts * 0.9),
            explore_rate: set.explore_rate.unwrap_or(base.explore_rate),
            explore_stale_rate: set.explore_stale_rate.unwrap_or(base.explore_stale_rate),
            max_explore_rate: set.max_explore_rate.unwrap_or(base.max_explore_rate),
            last_ditch: set.last_ditch.unwrap_or(base.last_ditch),
            plain_outcome_weight: set.plain_outcome_weight.unwrap_or(base.plain_outcome_weight),
            host_signal_weight: set.host_signal_weight.unwrap_or(base.host_signal_weight),
            impassable_try_rate: set.impassable_try_rate.unwrap_or(base.impassable_try_rate),
            max_attempts: self.scoring.max_attempts.unwrap_or(base.max_attempts),
            importance: match set.importance.unwrap_or_default() {
                ImportanceMode::Off => ImportanceUse::Off,
                ImportanceMode::Prune => {
                    ImportanceUse::Prune { min: set.importance_min.unwrap_or(MIN_IMPORTANCE) }
                }
                ImportanceMode::Scale => {
                    ImportanceUse::Scale { full: set.importance_full.unwrap_or(IMPORTANCE_FULL) }
                }
            },
            ..base
        }
    }

    /// Returns the settings of pace.
    pub fn pace(&self) -> PaceSettings {
        let (set, base) = (&self.pace, PaceSettings::default());
        let seconds = |span: Option<Duration>, or: f64| span.map_or(or, |span| span.as_secs_f64());
        let host = |(name, known): (&String, &PaceHostConfig)| {
            let name = name.to_ascii_lowercase();
            (domain_of(&name).to_owned(), HostPace { rate: known.rate, parallel: known.parallel })
        };
        PaceSettings {
            mode: set.mode.unwrap_or(base.mode),
            initial_rate: set.initial_rate.unwrap_or(base.initial_rate),
            max_rate: set.max_rate.unwrap_or(base.max_rate),
            min_rate: self.tuning.pace_min_rate.unwrap_or(base.min_rate),
            max_parallel: set.max_parallel.unwrap_or(base.max_parallel),
            crawl_delay: set.crawl_delay.unwrap_or(base.crawl_delay),
            max_crawl_delay_s: seconds(set.max_crawl_delay, base.max_crawl_delay_s),
            max_retry_after_s: self.backoff().max_retry_after.as_secs_f64(),
            hosts: set.hosts.iter().map(host).collect(),
            ..base
        }
    }

    /// Returns the settings of the automatic fallback to the router table.
    pub fn guard(&self) -> GuardSettings {
        let (set, tuning) = (&self.rollout, &self.tuning);
        let mut guard = GuardSettings::default();
        guard.is_on = set.fall_back.unwrap_or(guard.is_on);
        guard.metric = set.metric.unwrap_or(guard.metric);
        guard.confidence = tuning.rollout_confidence.unwrap_or(guard.confidence);
        guard.margin = tuning.rollout_margin;
        guard.visits_min = tuning.rollout_min_pages.unwrap_or(guard.visits_min);
        guard.hosts_min = tuning.rollout_min_hosts.unwrap_or(guard.hosts_min);
        guard.retry_after = set.retry_after;
        guard
    }

    /// Returns the backoff settings.
    pub fn backoff(&self) -> BackoffSettings {
        let (set, tuning, base) = (&self.backoff, &self.tuning, BackoffSettings::default());
        BackoffSettings {
            blocked_base: tuning.blocked_base.unwrap_or(base.blocked_base),
            failed_base: tuning.failed_base.unwrap_or(base.failed_base),
            max_retry_after: set.max_retry_after.unwrap_or(base.max_retry_after),
            host_block_threshold: tuning.host_block_threshold.unwrap_or(base.host_block_threshold),
            host_block_window: tuning.host_block_window.unwrap_or(base.host_block_window),
            ..base
        }
    }
}

/// Implementation of a configured fetcher.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum FetchMethod<'c> {
    /// A plain HTTP request.
    Direct,
    /// The browser.
    Browser,
    /// An external program.
    Command(&'c [String]),
    /// A shipped fetcher of this name with other settings.
    Like(&'c str),
    /// Web archives.
    Archive(Cow<'c, ArchiveConfig>),
    /// A search API.
    Search(Cow<'c, SearchConfig>),
    /// Media downloads with yt-dlp.
    Download(Cow<'c, DownloadConfig>),
    /// A browser that is already running.
    Remote(&'c Secret),
    /// A service that fetches with its own browser.
    Solver(&'c Secret<Url>),
    /// Another program fetches with it, and its attempts are imported.
    External,
}

impl FetchMethod<'_> {
    /// Returns the class of the implementation, unless the fetcher's name determines the class.
    fn class(&self) -> Option<Class> {
        match self {
            Self::Archive(_) => Some(Class::Archive),
            Self::Search(_) | Self::Download(_) => Some(Class::Special),
            Self::Solver(_) => Some(Class::Stealth),
            Self::Remote(_) => Some(Class::Rendering),
            Self::Like(name) => {
                BUILT_IN.iter().find(|(known, _)| known == name).map(|&(_, class)| class)
            }
            Self::Direct | Self::Browser | Self::Command(_) | Self::External => None,
        }
    }
}

impl FetcherConfig {
    /// Returns the implementation. A built-in name without further keys stands for the shipped
    /// fetcher of that name.
    pub fn method(&self) -> FetchMethod<'_> {
        if let Some(argv) = &self.command {
            return FetchMethod::Command(argv);
        }
        if let Some(archive) = &self.archive {
            return FetchMethod::Archive(Cow::Borrowed(archive));
        }
        if let Some(search) = &self.search {
            return FetchMethod::Search(Cow::Borrowed(search));
        }
        if let Some(download) = &self.download {
            return FetchMethod::Download(Cow::Borrowed(download));
        }
        if let Some(address) = &self.cdp {
            return FetchMethod::Remote(address);
        }
        if let Some(solver) = &self.solver {
            return FetchMethod::Solver(solver);
        }
        if let Some(like) = &self.like {
            return FetchMethod::Like(canonical(like));
        }
        match canonical(&self.name) {
            name @ (PROBE_FETCHER | "playwright" | "playwright_stealth")
                if self.proxy.is_some() =>
            {
                FetchMethod::Like(name)
            }
            "archive_proxy" => FetchMethod::Archive(Cow::default()),
            "nytime_searcher" => FetchMethod::Search(Cow::default()),
            "youtube_downloader" => FetchMethod::Download(Cow::default()),
            _ if self.proxy.is_some() => FetchMethod::Like(PROBE_FETCHER),
            PROBE_FETCHER | "direct_signed" => FetchMethod::Direct,
            "playwright" | "playwright_stealth" | "browser_signed" => FetchMethod::Browser,
            _ => FetchMethod::External,
        }
    }

    /// Returns the specification of the fetcher that decisions use.
    pub fn spec(&self) -> FetcherSpec {
        let mut spec = match self.class.or_else(|| self.method().class()) {
            Some(class) => FetcherSpec::new(canonical(&self.name), class),
            None => FetcherSpec::by_name(&self.name),
        };
        if let Some(renders) = self.renders {
            spec.renders = renders;
            spec.false_success = if renders { 0.0 } else { 0.05 };
        }
        match self.cost {
            Some(CostConfig::Requests(cost)) => spec.cost = cost,
            Some(CostConfig::Measured) => spec.measures_cost = true,
            None => {}
        }
        spec.quality = self.quality.unwrap_or(spec.quality);
        spec.prior = self.prior.unwrap_or(spec.prior);
        self.signed_spec(spec)
    }
}

impl super::ConsentConfig {
    /// Returns the use of terms by the crawler called `agent`.
    pub fn settings(&self, agent: &str) -> ConsentSettings {
        let default = ConsentSettings::default();
        ConsentSettings {
            purposes: self.purposes.clone().unwrap_or_default(),
            respect: self.respect.clone().unwrap_or(default.respect),
            on_reserved: self.on_reserved.unwrap_or(default.on_reserved),
            licenses: self.licenses.unwrap_or(default.licenses),
            agent: agent.to_owned(),
        }
    }
}

/// Returns the built-in fetchers, which are the candidates if neither a config nor a log names
/// others.
pub fn built_in_fetchers() -> Vec<FetcherSpec> {
    BUILT_IN.iter().map(|&(name, class)| FetcherSpec::new(name, class)).collect()
}
