//! Settings from a TOML file, and router tables from TOML or CSV.
//!
//! A key is declared once: those of the top level here, those of the tables in `sections`, `tuning`
//! and `fetcher_sources`. `declare` has what follows from a declaration, `rule` the valid values,
//! and `check` the rules for several keys together. `build` converts the config to the settings of
//! each part, and `router_table` has the router table. `layers` merges files and variables. It uses
//! `tree`, which keeps the origin of each value.
//!
//! Invariants: all problems are reported at once, each with its line. An unknown name comes with
//! the most similar known one.
//!
//! Must not know: the environment or the command line. A caller passes the variables, and the
//! program passes its options.

use std::path::PathBuf;

use serde::Deserialize;

use crate::router::Mode;
use declare::{Declared, KeyList, settings};
use rule::{SHARE, one_or_more};
use value::list;

pub use build::{FetchMethod, built_in_fetchers};
pub use declare::{ANY, Key, KeyDefault, Kind};
pub use env::variable_of;
pub use error::ConfigError;
pub use fetcher_sources::{ArchiveConfig, ArchiveFrom, DownloadConfig, SearchConfig};
pub use layers::{Layers, Resolved, Setting};
pub use origin::{Origin, Problem, TextPosition};
pub use router_table::{
    LearnedRoute, TableWarnings, learned_table, load_route_table, read_route_table,
};
pub use secret::{Secret, without_password};
pub use sections::{
    BackoffConfig, BrowserConfig, CacheConfig, ConsentConfig, DetectConfig, DetectHostConfig,
    DurabilityName, FetcherConfig, FleetConfig, FleetScope, HttpConfig, IdentityConfig,
    IdentityHostConfig, ImportanceMode, LogConfig, NetworkConfig, PriorConfig, QueryName,
    RobotsConfig, RolloutConfig, ScoringConfig, SignedHttp, SigningBrowserScope, SigningCoverage,
    SigningForm, SigningMode,
};
pub use sections::{PaceConfig, PaceHostConfig};
pub use tuning::TuningConfig;
pub use value::{CompactThreshold, CostConfig};

mod build;
mod built_in_changes;
mod check;
mod declare;
mod env;
mod error;
mod fetcher_sources;
mod layers;
mod origin;
mod router_table;
mod rule;
mod secret;
mod sections;
mod signed_arms;
mod tree;
mod tuning;
mod value;

/// Example config file with every key, its meaning and its default, all commented out.
pub const EXAMPLE: &str = include_str!("../../fetchwise.example.toml");

settings! {
    /// Content of a config file. Absent keys keep their defaults.
    ///
    /// ```
    /// let text = "mode = 'shadow'\n[scoring]\npage_value = 50.0";
    /// let config = fetchwise::config::Config::from_toml(text, "x.toml".as_ref()).unwrap();
    /// assert_eq!(config.scoring.page_value, Some(50.0));
    /// let error = fetchwise::config::Config::from_toml("colour = 'red'", "x.toml".as_ref()).unwrap_err();
    /// assert!(error.to_string().contains("colour"));
    /// ```
    #[derive(Clone, Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct Config {
        /// learning, legacy (the router table), shadow (the table; the log also gets the choice of
        /// learning) or split.
        #[serde(deserialize_with = "value::named")]
        pub mode: Option<Mode> = "learning";
        /// With split: the share of domains that learning serves.
        pub split_share: Option<f64> = 0.5, valid SHARE;
        /// default, index, confident or published: the policy that decides.
        #[serde(deserialize_with = "value::policy")]
        pub policy: Option<String> = "default";
        /// Directory of the attempt log.
        pub data_dir: Option<PathBuf>, unset "the data directory of the system", such as "crawl-data";
        /// The legacy router table, CSV or TOML.
        pub router: Option<PathBuf>, unset "none", such as "routes.csv";
        /// Detection rules in addition to the built-in ones, TOML.
        pub rules: Option<PathBuf>, unset "none", such as "my-rules.toml";
        /// Domains, sites and other keys in memory. Beyond this the least attempted go to disk, in
        /// the data directory.
        pub max_keys: Option<usize>, unset "no limit", such as 1_000_000, valid one_or_more::<usize>();
        /// Additional suffixes of files, as in [".dcm"]. Files and pages of a host are learned
        /// separately.
        #[serde(deserialize_with = "value::suffixes")]
        pub file_suffixes: Vec<String> = list(&[]);
        /// Suffixes of pages that the built-in list counts as files, as in [".xml"].
        #[serde(deserialize_with = "value::suffixes")]
        pub page_suffixes: Vec<String> = list(&[]);
        /// Detection of content.
        pub detect: DetectConfig;
        /// Value of pages, and effort for them.
        pub scoring: ScoringConfig;
        /// Pauses.
        pub backoff: BackoffConfig;
        /// Requests.
        pub http: HttpConfig;
        /// Signed requests (Web Bot Auth). docs/guides/identity.md explains it.
        /// `fetchwise identity init` creates the key.
        pub identity: IdentityConfig;
        /// Which requests a program signs that has found out whether it has a key. `None` for a
        /// program that signs by itself: the fetchers of the config are the candidates as they are.
        #[serde(skip)]
        pub signing: Option<SigningMode>;
        /// Request rates of hosts.
        pub pace: PaceConfig;
        /// Automatic fallback to the router table. docs/guides/rollout.md explains it.
        pub rollout: RolloutConfig;
        /// Use of robots.txt.
        pub robots: RobotsConfig;
        /// What sites permit: Content-Usage, Content-Signal, X-Robots-Tag, RSL.
        pub consent: ConsentConfig;
        /// Pages that an earlier crawl has stored.
        pub cache: CacheConfig;
        /// Networks that may be reached.
        pub network: NetworkConfig;
        /// Nodes that learn together. docs/guides/fleet.md explains it.
        pub fleet: FleetConfig;
        /// Chromium.
        pub browser: BrowserConfig;
        /// The attempt log.
        pub log: LogConfig;
        /// Constants that only experiments change. Without promises: a release may rename, change
        /// or remove them.
        pub tuning: TuningConfig;
        /// Fetchers. Those named here are the candidates, in this order, instead of the built-in
        /// ones.
        #[serde(rename = "fetcher")]
        pub fetchers: Vec<FetcherConfig>, unset "the built-in ones, and those in the log";
        /// Priors, in addition to the built-in ones.
        #[serde(rename = "prior")]
        pub priors: Vec<PriorConfig>, unset "the built-in ones";
    }
}

/// Returns every key of a config, in the order of declaration.
pub fn keys() -> Vec<Key> {
    let mut list = KeyList::default();
    Config::list(&mut list);
    list.keys.retain(|key| key.kind != Kind::Table);
    list.keys
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;

    mod documents;

    fn error_of(text: &str) -> String {
        Config::from_toml(text, Path::new("c.toml")).unwrap_err().to_string()
    }

    #[test]
    fn an_unknown_key_or_name_comes_with_its_line_and_the_nearest_one() {
        for (text, want) in [
            ("[scoring]\n\npage_valu = 1", "c.toml, line 3: unknown field `page_valu`"),
            ("[scoring]\npage_valu = 1", "did you mean `page_value`?"),
            ("mode = 'lerning'", "line 1: unknown mode \"lerning\"; did you mean \"learning\"?"),
            (
                "policy = 'confidant'",
                "line 1: unknown policy \"confidant\"; did you mean \"confident\"?",
            ),
            (
                "[[fetcher]]\nname = 'x'\nclass = 'fast'",
                "line 3: unknown class \"fast\"; expected plain,",
            ),
            (
                "[tuning]\nimportance = 'prun'",
                "line 2: unknown variant `prun`, expected one of `off`, `prune`, `scale`",
            ),
            ("[log]\ndurability = 'synch'", "line 2: unknown variant `synch`"),
            ("[log]\ndurability = 'synch'", "did you mean `sync`?"),
            ("\nmode = ", "c.toml, line 2: "),
            (
                "[pace]\nmode = 'lern'",
                "line 2: unknown mode of pace \"lern\"; did you mean \"learn\"?",
            ),
            (
                "[rollout]\nmetric = 'succes'",
                "line 2: unknown metric \"succes\"; did you mean \"success\"?",
            ),
            (
                "[consent]\npurposes = ['search', 'train']",
                "line 2: unknown purpose \"train\"; did you mean \"train-ai\"?",
            ),
            ("[consent]\nrespect = ['content-sage']", "did you mean \"content-usage\"?"),
            ("[consent]\non_reserved = 'marc'", "did you mean \"mark\"?"),
            ("[consent]\nlicenses = 'reed'", "did you mean \"read\"?"),
            (
                "[cache]\nuse = 'revalidat'",
                "line 2: unknown use of the cache \"revalidat\"; did you mean \"revalidate\"?",
            ),
            (
                "[robots]\nuse = 'obay'",
                "line 2: unknown use of robots.txt \"obay\"; did you mean \"obey\"?",
            ),
            (
                "[identity]\nmode = 'sometimes'",
                "line 2: unknown variant `sometimes`, expected one of `never`",
            ),
            ("tuning.half_life_days = 'long'", "line 1: invalid type: string \"long\""),
        ] {
            let error = error_of(text);
            assert!(error.contains(want), "{error}");
        }
    }

    #[test]
    fn a_constant_in_the_table_of_its_part_is_found_in_tuning() {
        for (text, meant) in [
            ("half_life_days = 30", "half_life_days"),
            ("built_in_priors = false", "built_in_priors"),
            ("[importance]\nuse = 'prune'", "importance"),
            ("[scoring]\nexplore_rate = 0.1", "explore_rate"),
            ("[scoring]\nmin_attempts = 3", "min_attempts"),
            ("[detect]\nblock_threshold = 0.6", "block_threshold"),
            ("[backoff]\nblocked_base = '1m'", "blocked_base"),
            ("[backoff]\nfailed_base = '1m'", "failed_base"),
            ("[backoff]\nhost_block_window = '1m'", "host_block_window"),
            ("[pace]\nmin_rate = 1.0", "pace_min_rate"),
            ("[http]\nprobe_timeout = 1", "probe_timeout"),
            ("[browser]\nquiet = 1", "browser_quiet"),
            ("[browser]\nmax_settle = 1", "browser_max_settle"),
            ("[identity]\ncoverage = 'request'", "signature_coverage"),
            ("[identity]\nform = 'auto'", "signature_form"),
            ("[identity]\nhttp = 'never'", "sign_http"),
            ("[rollout]\nconfidence = 0.9", "rollout_confidence"),
            ("[rollout]\nmin_hosts = 3", "rollout_min_hosts"),
            ("[fleet]\nmax_snapshot_bytes = 1", "fleet_max_snapshot_bytes"),
            ("[log]\nsegment_bytes = '1MiB'", "segment_bytes"),
        ] {
            let error = error_of(text);
            let want = format!("; did you mean `tuning.{meant}`?");
            assert!(error.contains("unknown field") && error.contains(&want), "{error}");
        }
        let mut layers = Layers::default();
        let variables = [
            ("HALF_LIFE_DAYS", "HALF_LIFE_DAYS"),
            ("IDENTITY__HTTP", "SIGN_HTTP"),
            ("IMPORTANCE__USE", "IMPORTANCE"),
            ("PACE__MIN_RATE", "PACE_MIN_RATE"),
            ("SCORING__EXPLORE_RATE", "EXPLORE_RATE"),
        ];
        layers
            .variables(variables.map(|(old, _)| (format!("FETCHWISE_{old}"), "1".to_owned())), &[]);
        let warnings = layers.resolve().unwrap().warnings;
        let meant: Vec<_> = warnings.iter().map(|warning| warning.meant.clone().unwrap()).collect();
        assert_eq!(meant, variables.map(|(_, new)| format!("FETCHWISE_TUNING__{new}")));
    }

    #[test]
    fn a_value_out_of_its_range_comes_with_its_line_and_the_range() {
        for (text, want) in [
            (
                "[identity]\nagent = 'http://b'",
                "line 2: invalid identity.agent \"http://b\": expected an https origin",
            ),
            (
                "[identity]\nname = 'My Bot'",
                "line 2: invalid identity.name \"My Bot\": expected 1 to 64 letters",
            ),
            (
                "[identity]\nabout = 'me'",
                "line 2: invalid identity.about \"me\": expected an http or https URL",
            ),
            (
                "[identity.host.'https://x.org']\nheaders_env = 'X'",
                "line 1: invalid identity.host.https://x.org \"https://x.org\": expected a host, such as \"shop.example\"",
            ),
            (
                "[identity.host.'x.org']\nheaders_env = ''",
                "line 2: invalid identity.host.x.org.headers_env \"\"",
            ),
            (
                "\ntuning.half_life_days = 3",
                "c.toml, line 2: invalid tuning.half_life_days 3.0: expected 7 to 365",
            ),
            ("tuning.half_life_days = nan", "line 1: invalid tuning.half_life_days NaN"),
            (
                "[tuning]\nlast_ditch = 1\nsuccess_discount = 1.0",
                "line 3: invalid tuning.success_discount 1.0",
            ),
            ("[tuning]\nimportance_full = 0.0", "line 2: invalid tuning.importance_full 0.0"),
            (
                "[tuning]\nrollout_confidence = 1.0",
                "line 2: invalid tuning.rollout_confidence 1.0: expected 0.5 to 0.9999",
            ),
            ("[http]\n# none\ntimeout = 0.0", "line 3: invalid http.timeout 0ns"),
            ("[http]\nmax_body = 0", "line 2: invalid http.max_body 0"),
            ("[pace]\ninitial_rate = 0.0", "line 2: invalid pace.initial_rate 0.0"),
            (
                "[pace.host.\"x.org\"]\nrate = 2.0\nparallel = 0",
                "line 3: invalid pace.host.x.org.parallel 0",
            ),
            (
                "[[fetcher]]\nname = 'a'\n[[fetcher]]\nname = 'b'\ncost = -1",
                "line 5: invalid fetcher.1.cost -1.0: expected a number above 0 (fetcher \"b\")",
            ),
            ("[[fetcher]]\nname = 'b'\ncommand = []", "line 3: invalid fetcher.0.command []"),
            (
                "[[fetcher]]\nname = 'b'\ncost = 'learned'",
                "invalid cost \"learned\": expected a number or \"measured\"",
            ),
            (
                "[[prior]]\ntype = 's'\nvalue = 'v'\nfetcher = 'f'\nsuccess_rate = 2",
                "line 5: invalid prior.0.success_rate 2.0: expected 0 to 1",
            ),
        ] {
            let error = error_of(text);
            assert!(error.contains(want), "{error}");
        }
    }

    #[test]
    fn all_problems_are_reported_at_once_with_line_and_column() {
        let text = "modus = 'learning'\nsplit_share = 2\n[scoring]\n  page_valu = 1\nmax_attempts = 'x'\n[[fetcher]]\ncost = 3\n\
                    [[fetcher]]\nname = 'b'\nprior = 7\nquality = -1\n[http]\ntimeout = '1s'\ntimeout_s = 2";
        let error = Config::from_toml(text, Path::new("c.toml")).unwrap_err();
        let places: Vec<_> =
            error.problems().iter().map(|problem| problem.place().unwrap().1).collect();
        let places: Vec<(usize, usize)> = places.iter().map(|at| (at.line, at.column)).collect();
        let want = [(1, 1), (2, 15), (4, 3), (5, 16), (6, 1), (10, 9), (11, 11), (14, 1)];
        assert_eq!(places, want, "{error}");
        let problems = error.problems();
        assert_eq!(problems[0].meant.as_deref(), Some("mode"));
        assert_eq!(
            (problems[2].key.as_str(), problems[2].meant.as_deref()),
            ("scoring.page_valu", Some("page_value"))
        );
        assert!(
            error.to_string().contains("c.toml, line 7: missing field `name`")
                || error.to_string().contains("line 6"),
            "{error}"
        );
        let broken = Config::from_toml("a = \nb = 1\nc = [", Path::new("c.toml")).unwrap_err();
        assert!(broken.problems().len() > 1, "{broken}");
    }

    #[test]
    fn a_secret_is_in_no_message_and_in_no_dump() {
        let secrets = "[[fetcher]]\nname = 'a'\nproxy = 'socks5://u:hunter2@h:1'\n[[fetcher]]\nname = 'b'\n\
                       solver = 'http://u:hunter2@h/'\n[[fetcher]]\nname = 'c'\ncdp = 'ws://h/?token=hunter2'\n\
                       [[fetcher]]\nname = 'nytime_searcher'\nsearch = {url = 'http://h/?key=hunter2&{url}'}\n\
                       [[fetcher]]\nname = 'archive_proxy'\narchive.from = [{timegate = 'https://u:hunter2@h/'}]";
        let mut layers = Layers::default();
        layers.text(secrets, Path::new("c.toml")).unwrap();
        let resolved = layers.resolve().unwrap();
        let shown = format!(
            "{:?} {:?}",
            resolved.settings(),
            resolved.config.fetchers.iter().map(FetcherConfig::method).collect::<Vec<_>>()
        );
        assert!(!shown.contains("hunter2"), "{shown}");
        let dump = format!("{:?}", resolved.config);
        assert_eq!(dump.matches("hunter2").count(), 0, "{dump}");
        for wrong in [
            "[[fetcher]]\nname = 'a'\nproxy = ['hunter2']",
            "[[fetcher]]\nname = 'a'\nsolver = 'ftp://u:hunter2@h'",
            "[[fetcher]]\nname = 'a'\nsolver = 'hunter2'",
            "[[fetcher]]\nname = 'a'\narchive.from = [{wayback = 'x://u:hunter2@h'}]",
            "[[fetcher]]\nname = 'a'\nsearch = {url = 'http://hunter2'}",
        ] {
            let error = error_of(wrong);
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_variable_overrides_the_file_and_an_invalid_one_is_named() {
        let variables = |list: &[(&str, &str)]| -> Vec<(String, String)> {
            list.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
        };
        let mut layers = Layers::default();
        layers.text("[log]\nretain_days = 5\n[http]\ntimeout = 3", Path::new("c.toml")).unwrap();
        layers.variables(
            variables(&[
                ("FETCHWISE_LOG__RETAIN_DAYS", "7"),
                ("FETCHWISE_HTTP__TIMEOUT", "1m"),
                ("FETCHWISE_NETWORK__ALLOW", "10.0.0.0/8, 192.168.0.0/16"),
                (
                    "FETCHWISE_FETCHER",
                    "[{name = 'a', proxy = 'http://h:1', proxy_user_env = 'FETCHWISE_MY_PROXY'}]",
                ),
                ("FETCHWISE_FETCHER__A__COST", "measured"),
                ("FETCHWISE_MY_PROXY", "user:password"),
                ("FETCHWISE_TOKEN", "t"),
                ("FETCHWISE_LOGG__RETAIN_DAYS", "9"),
                ("FETCHWISE_MODE", ""),
            ]),
            &["FETCHWISE_TOKEN"],
        );
        let resolved = layers.resolve().unwrap();
        assert_eq!(
            (resolved.config.log.retain_days, resolved.config.http.timeout),
            (Some(7), Some(Duration::from_secs(60)))
        );
        assert_eq!(resolved.config.network.allow.len(), 2);
        assert_eq!(resolved.config.fetchers[0].cost, Some(CostConfig::Measured));
        assert_eq!(resolved.warnings.len(), 1, "{:?}", resolved.warnings);
        assert_eq!(resolved.warnings[0].meant.as_deref(), Some("FETCHWISE_LOG__RETAIN_DAYS"));
        assert_eq!(
            resolved.origin(&["log", "retain_days"]),
            Origin::Variable("FETCHWISE_LOG__RETAIN_DAYS".to_owned())
        );

        let mut layers = Layers::default();
        layers.variables(
            variables(&[
                ("FETCHWISE_TUNING__SUCCESS_DISCOUNT", "much"),
                ("FETCHWISE_SPLIT_SHARE", "3"),
            ]),
            &[],
        );
        let error = layers.resolve().unwrap_err().to_string();
        assert!(
            error.contains("the variable FETCHWISE_TUNING__SUCCESS_DISCOUNT: tuning.success_discount: invalid type"),
            "{error}"
        );
        assert!(
            error.contains(
                "the variable FETCHWISE_SPLIT_SHARE: invalid split_share 3.0: expected 0 to 1"
            ),
            "{error}"
        );
    }

    #[test]
    fn a_fetcher_that_is_listed_twice_or_is_one_too_many_is_named() {
        let error =
            error_of("[[fetcher]]\nname = 'direct_access'\n[[fetcher]]\nname = 'simple_http'");
        assert!(
            error.contains(
                "line 4: invalid fetcher.1.name \"simple_http\": duplicate of fetcher number 1"
            ),
            "{error}"
        );
        let many: String = (0..65).map(|n| format!("[[fetcher]]\nname = 'f{n}'\n")).collect();
        let error = error_of(&many);
        assert!(
            error.contains("line 130: invalid fetcher.64.name \"f64\": at most 64 fetchers"),
            "{error}"
        );
        let fits = many.rsplit_once("[[").unwrap().0;
        assert_eq!(Config::from_toml(fits, Path::new("c.toml")).unwrap().fetchers.len(), 64);
    }

    #[test]
    fn a_built_in_fetcher_is_changed_without_a_list_of_all() {
        let config = Config::from_toml(
            "[fetcher.playwright]\ncost = 12\n[fetcher.archive_proxy]",
            Path::new("c.toml"),
        );
        let specs: Vec<_> = config.unwrap().fetchers.iter().map(FetcherConfig::spec).collect();
        let names: Vec<_> = specs.iter().map(|spec| &*spec.name).collect();
        assert_eq!(names, ["direct_access", "playwright", "playwright_stealth", "archive_proxy"]);
        assert_eq!([specs[0].cost, specs[1].cost], [1.0, 12.0]);
        let mut layers = Layers::default();
        layers.variables(
            [
                ("FETCHWISE_FETCHER__SIMPLE_HTTP__COST", "2"),
                ("FETCHWISE_FETCHER__PLAYWRIGHT__COST", "13"),
            ]
            .map(|(name, text)| (name.to_owned(), text.to_owned())),
            &[],
        );
        let resolved = layers.resolve().unwrap();
        assert_eq!(resolved.config.fetchers[1].spec().cost, 13.0);
        assert_eq!(
            resolved.origin(&["fetcher", "1", "cost"]).to_string(),
            "FETCHWISE_FETCHER__PLAYWRIGHT__COST"
        );
        assert!(
            resolved.warnings[0].to_string().contains("expected one of DIRECT_ACCESS, PLAYWRIGHT")
        );
        let error = error_of("mode = 'learning'\n[fetcher.playwrigt]\ncost = 3");
        assert!(
            error.contains("line 2") && error.contains("did you mean `playwright`?"),
            "{error}"
        );
        let error = error_of("[fetcher.playwright]\ncosts = 3");
        assert!(error.contains("line 2") && error.contains("did you mean `cost`?"), "{error}");
    }

    #[test]
    fn times_and_sizes_are_text_with_a_unit_or_numbers() {
        let text = "[http]\ntimeout = '1m 30s'\nmax_body = '1.5 MiB'\n\
                    [log]\ninterval = 20\n[tuning]\nprobe_timeout = 2.5\nsegment_bytes = 1048576\nfailed_base = 7";
        let config = Config::from_toml(text, Path::new("c.toml")).unwrap();
        assert_eq!(config.http.timeout, Some(Duration::from_secs(90)));
        assert_eq!(config.tuning.probe_timeout, Some(Duration::from_millis(2500)));
        assert_eq!(config.http.max_body, Some(3 << 19));
        assert_eq!(config.log.interval, Some(Duration::from_millis(20)));
        assert_eq!(
            (config.tuning.segment_bytes, config.tuning.failed_base),
            (Some(1 << 20), Some(Duration::from_secs(7)))
        );
        for bad in [
            "[http]\ntimeout = 'soon'",
            "[http]\ntimeout = true",
            "[http]\ntimeout = -1",
            "[http]\nmax_body = 'big'",
        ] {
            assert!(error_of(bad).contains("line 2"), "{}", error_of(bad));
        }
    }

    #[test]
    fn a_fetcher_overrides_its_class() {
        let text = "[[fetcher]]\nname = 'mine'\nclass = 'archive'\ncost = 3.5\n[[fetcher]]\nname = 'simple_http'\ncost = 'measured'";
        let config = Config::from_toml(text, Path::new("c.toml")).unwrap();
        let selector = config.selector().build().unwrap();
        let of = |spec: &fetchwise_types::registry::FetcherSpec| {
            (spec.name.to_string(), spec.cost, spec.measures_cost)
        };
        let specs: Vec<_> = selector.candidates().map(|(_, spec)| of(spec)).collect();
        assert_eq!(
            specs,
            [("mine".to_owned(), 3.5, false), ("direct_access".to_owned(), 1.0, true)]
        );
    }
}
