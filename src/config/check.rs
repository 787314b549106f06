//! Validation of config values: ranges, dependencies between keys, duplicate fetchers and their number.

use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::time::Duration;

use url::Url;

use super::build::FetchMethod;
use super::error::InvalidValue;
use super::value::{CompactThreshold, CostConfig};
use super::{Config, FetcherConfig, PriorConfig};
use fetchwise_types::registry::{MAX_CANDIDATES, canonical};

/// Longest name of a fetcher, in bytes.
const MAX_NAME_BYTES: usize = 100;
/// Shortest and longest deadline of a request.
const DEADLINES: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(86_400);

/// Values of `like`.
const LIKENESSES: [&str; 3] = ["direct_access", "playwright", "playwright_stealth"];

impl Config {
    /// Returns every invalid value.
    pub(super) fn check(&self) -> Vec<InvalidValue> {
        let mut found = InvalidValues::default();
        self.check_numbers(&mut found);
        self.check_pace(&mut found);
        self.check_identity(&mut found);
        self.check_log(&mut found);
        self.check_fetchers(&mut found);
        (0..).zip(&self.fetchers).for_each(|(place, fetcher)| fetcher.check(place, &mut found));
        (0..).zip(&self.priors).for_each(|(place, prior)| prior.check(place, &mut found));
        found.0
    }

    fn check_numbers(&self, found: &mut InvalidValues) {
        let scoring = &self.scoring;
        let share = "expected 0 to 1";
        found.within("half_life_days", self.half_life_days, 7.0..=365.0, "expected 7 to 365");
        found.within("split_share", self.split_share, 0.0..=1.0, share);
        found.within("importance.min", self.importance.min, 0.0..=1.0, share);
        found.within(
            "importance.full",
            self.importance.full,
            f64::MIN_POSITIVE..=1.0,
            "expected a number above 0, up to 1",
        );
        found.within("detect.block_threshold", self.detect.block_threshold, 0.05..=1.0, "expected 0.05 to 1");
        found.within(
            "scoring.success_discount",
            scoring.success_discount,
            0.0..=1.0 - f64::EPSILON,
            "expected 0 to just under 1",
        );
        found.within("scoring.max_attempts", scoring.max_attempts, 1..=u32::MAX, "expected 1 or more");
        for (key, value) in [
            ("scoring.min_confidence", scoring.min_confidence),
            ("scoring.explore_rate", scoring.explore_rate),
            ("scoring.max_explore_rate", scoring.max_explore_rate),
            ("scoring.last_ditch", scoring.last_ditch),
            ("scoring.impassable_try_rate", scoring.impassable_try_rate),
        ] {
            found.within(key, value, 0.0..=1.0, share);
        }
        for (key, value) in [
            ("scoring.page_value", scoring.page_value),
            ("scoring.blocked_cost", scoring.blocked_cost),
            ("scoring.explore_stale_rate", scoring.explore_stale_rate),
            ("scoring.plain_outcome_weight", scoring.plain_outcome_weight),
            ("scoring.host_signal_weight", scoring.host_signal_weight),
            ("scoring.min_attempts", scoring.min_attempts),
        ] {
            found.within(key, value, 0.0..=1e9, "expected a number from 0 up");
        }
        found.within("rollout.confidence", self.rollout.confidence, 0.5..=0.9999, "expected 0.5 to 0.9999");
        found.within("rollout.margin", self.rollout.margin, 0.0..=1.0, share);
        found.within("rollout.min_pages", self.rollout.min_pages, 1..=u64::MAX, "expected 1 or more");
        found.within("rollout.min_hosts", self.rollout.min_hosts, 1..=u64::MAX, "expected 1 or more");
        let deadline = "expected \"1ms\" to \"1day\"";
        found.within("http.timeout", self.http.timeout, DEADLINES, deadline);
        found.within("http.probe_timeout", self.http.probe_timeout, DEADLINES, deadline);
        found.within("http.max_body", self.http.max_body, 1..=u64::MAX, "expected 1 or more");
        found.within("max_keys", self.max_keys, 1..=usize::MAX, "expected 1 or more");
        let (rates, rate) = (1.0..=1e9, "expected 1 to 1000000000 per second");
        found.within("fleet.max_attempts_per_second", self.fleet.max_attempts_per_second, rates.clone(), rate);
        found.within("fleet.max_new_keys_per_second", self.fleet.max_new_keys_per_second, rates, rate);
        found.within("browser.tabs", self.browser.tabs, 1..=usize::MAX, "expected 1 or more");
        found.within("browser.quiet", self.browser.quiet, DEADLINES, deadline);
        found.within("browser.max_settle", self.browser.max_settle, DEADLINES, deadline);
    }

    fn check_identity(&self, found: &mut InvalidValues) {
        let identity = &self.identity;
        let mut bad = |key: &str, value: &str, expected: &str| {
            found.bad(&["identity", key], format!("{value:?}"), expected.to_owned());
        };
        let url = |text: &String| Url::parse(text).ok();
        let is_origin =
            |url: Url| url.scheme() == "https" && format!("{}/", url.origin().ascii_serialization()) == url.as_str();
        if let Some(agent) = identity.agent.as_ref().filter(|agent| !url(agent).is_some_and(is_origin)) {
            bad("agent", agent, "expected an https origin without a path, such as \"https://bot.example\"");
        }
        let is_page = |url: Url| matches!(url.scheme(), "http" | "https") && url.as_str().is_ascii();
        if let Some(about) = identity.about.as_ref().filter(|about| !url(about).is_some_and(is_page)) {
            bad("about", about, "expected an http or https URL");
        }
        let is_token = |name: &str| {
            (1..=64).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        if let Some(name) = identity.name.as_ref().filter(|name| !is_token(name)) {
            bad("name", name, "expected 1 to 64 letters, digits, - or _, such as \"ExampleBot\"");
        }
        let is_host =
            |name: &str| Url::parse(&format!("https://{name}/")).is_ok_and(|url| url.host_str() == Some(name));
        for (name, host) in &identity.hosts {
            if !is_host(name) {
                let expected = "expected a host, such as \"shop.example\", in lower case".to_owned();
                found.bad(&["identity", "host", name], format!("{name:?}"), expected);
            }
            if host.headers_env.as_ref().is_some_and(String::is_empty) {
                let expected = "expected the name of a variable".to_owned();
                found.bad(&["identity", "host", name, "headers_env"], "\"\"".to_owned(), expected);
            }
        }
    }

    fn check_log(&self, found: &mut InvalidValues) {
        let log = &self.log;
        // A segment holds many attempts. With one file per attempt the directory would overflow.
        found.within("log.segment_bytes", log.segment_bytes, 64 << 10..=u64::MAX, "expected \"64KiB\" or more");
        found.within("log.retain_days", log.retain_days, 0..=36_500, "expected 0 to 36500");
        found.within("log.max_disk_bytes", log.max_disk_bytes, 1 << 20..=u64::MAX, "expected \"1MiB\" or more");
        let share = log.compact_threshold.and_then(CompactThreshold::share);
        found.within("log.compact_threshold", share, 0.01..=1.0, "expected 0.01 to 1, or \"never\"");
    }

    fn check_pace(&self, found: &mut InvalidValues) {
        let pace = &self.pace;
        let (rates, rate) = (1e-4..=1e4, "expected 0.0001 to 10000 requests per second");
        let (at_once, number) = (1..=u8::MAX, "expected 1 to 255");
        found.within("pace.initial_rate", pace.initial_rate, rates.clone(), rate);
        found.within("pace.max_rate", pace.max_rate, rates.clone(), rate);
        found.within("pace.min_rate", pace.min_rate, rates.clone(), rate);
        found.within("pace.max_parallel", pace.max_parallel, at_once.clone(), number);
        for (name, host) in &pace.hosts {
            found.within_at(&["pace", "host", name, "rate"], host.rate, rates.clone(), rate);
            found.within_at(&["pace", "host", name, "parallel"], host.parallel, at_once.clone(), number);
        }
    }

    /// Checks that each fetcher is listed once, and that all fit among the candidates.
    fn check_fetchers(&self, found: &mut InvalidValues) {
        let names: Vec<&str> = self.fetchers.iter().map(|fetcher| canonical(&fetcher.name)).collect();
        for (place, name) in names.iter().enumerate() {
            let way = ["fetcher", &place.to_string(), "name"];
            if let Some(first) = names[..place].iter().position(|known| known == name) {
                let expected = format!("duplicate of fetcher number {}", first + 1);
                found.bad(&way, format!("{:?}", self.fetchers[place].name), expected);
            }
            if place == MAX_CANDIDATES {
                let expected = format!("at most {MAX_CANDIDATES} fetchers are possible");
                found.bad(&way, format!("{name:?}"), expected);
            }
        }
    }
}

impl FetcherConfig {
    fn check(&self, place: usize, found: &mut InvalidValues) {
        let place = place.to_string();
        let mut bad = |key: &str, value: &dyn Debug, expected: &str| {
            let expected = format!("{expected} (fetcher {:?})", self.name);
            found.bad(&["fetcher", &place, key], format!("{value:?}"), expected);
        };
        if self.name.is_empty() || self.name.len() > MAX_NAME_BYTES || self.name.chars().any(char::is_control) {
            bad("name", &self.name, "expected 1 to 100 printable characters");
        }
        for (key, value) in [("quality", self.quality), ("prior", self.prior)] {
            if let Some(value) = value.filter(|value| !(0.0..=1.0).contains(value)) {
                bad(key, &value, "expected 0 to 1");
            }
        }
        if let Some(CostConfig::Requests(cost)) = self.cost
            && !(cost.is_finite() && cost > 0.0)
        {
            bad("cost", &cost, "expected a number above 0");
        }
        if self.max_in_flight == Some(0) {
            bad("max_in_flight", &0, "expected 1 or more");
        }
        if let Some(command) = self.command.as_ref().filter(|command| command.first().is_none_or(String::is_empty)) {
            bad("command", &command.iter().take(1).collect::<Vec<_>>(), "missing program");
        }
        let mut ways = self.ways();
        if let (Some(first), Some(second)) = (ways.next(), ways.next()) {
            bad(second, &"set", &format!("conflicts with {first}"));
        }
        drop(ways);
        if let Some(like) = self.like.as_ref().filter(|like| !LIKENESSES.contains(&canonical(like))) {
            bad("like", like, &format!("expected one of {}", LIKENESSES.join(", ")));
        }
        if let Some(variable) = self.proxy_user_env.as_ref().filter(|_| self.proxy.is_none()) {
            bad("proxy_user_env", variable, "missing proxy");
        }
        if let Some(search) = self.search.as_ref().filter(|_| canonical(&self.name) != "nytime_searcher") {
            if search.url.as_ref().is_none_or(|url| !url.0.contains("{url}")) {
                bad("search", &search.url, "url must contain {url}");
            }
            if search.title.is_none() {
                bad("search", &search.title, "missing title");
            }
        }
        if self.signed == Some(true) && !self.can_sign() && self.method() != FetchMethod::External {
            bad(
                "signed",
                &true,
                "only requests of plain fetchers and browsers like playwright, without a proxy, can be signed",
            );
        }
        for archive in self.archive.iter().flat_map(|archive| &archive.from) {
            let named = [("wayback", &archive.wayback), ("timegate", &archive.timegate)];
            let named: Vec<&str> = named.iter().filter(|(_, url)| url.is_some()).map(|(name, _)| *name).collect();
            if named.len() != 1 {
                bad("archive", &named, "expected either wayback or timegate for each archive");
            }
        }
    }

    /// Returns the keys that choose the implementation.
    fn ways(&self) -> impl Iterator<Item = &'static str> {
        let ways = [
            ("command", self.command.is_some()),
            ("archive", self.archive.is_some()),
            ("search", self.search.is_some()),
            ("download", self.download.is_some()),
            ("solver", self.solver.is_some()),
            ("cdp", self.cdp.is_some()),
            ("like", self.like.is_some()),
        ];
        ways.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name)
    }
}

impl PriorConfig {
    fn check(&self, place: usize, found: &mut InvalidValues) {
        let place = place.to_string();
        let key = |name| ["prior", &place, name];
        found.within_at(&key("success_rate"), Some(self.success_rate), 0.0..=1.0, "expected 0 to 1");
        found.within_at(&key("samples"), self.samples, 0.0..=1e6, "expected 0 to 1000000");
    }
}

/// Invalid values found so far.
#[derive(Debug, Default)]
struct InvalidValues(Vec<InvalidValue>);

impl InvalidValues {
    /// Checks that `value`, if set, lies in `range`. NaN lies in no range.
    fn within<T: PartialOrd + Debug>(&mut self, key: &str, value: Option<T>, range: RangeInclusive<T>, expected: &str) {
        self.within_at(&key.split('.').collect::<Vec<_>>(), value, range, expected);
    }

    fn within_at<T: PartialOrd + Debug>(
        &mut self,
        way: &[&str],
        value: Option<T>,
        range: RangeInclusive<T>,
        expected: &str,
    ) {
        if let Some(value) = value.filter(|value| !range.contains(value)) {
            self.bad(way, format!("{value:?}"), expected.to_owned());
        }
    }

    fn bad(&mut self, way: &[&str], value: String, expected: String) {
        self.0.push(InvalidValue { way: way.iter().map(|&step| step.to_owned()).collect(), value, expected });
    }
}
