//! Which values make sense: ranges, what needs what, and fetchers that are listed twice or are too many.

use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::error::BadValue;
use super::value::CostConfig;
use super::{Config, FetcherConfig, PriorConfig};
use crate::registry::{CANDIDATES_MAX, canonical};

/// The longest name of a fetcher, in bytes.
const NAME_MAX_BYTES: usize = 100;
/// The shortest and the longest deadline of a request.
const DEADLINES: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(86_400);

/// What a fetcher can be like.
const LIKENESSES: [&str; 3] = ["direct_access", "playwright", "playwright_stealth"];

impl Config {
    /// Finds the first value that makes no sense.
    pub(super) fn check(&self) -> Result<(), BadValue> {
        self.check_numbers()?;
        self.check_fetchers()?;
        (0..).zip(&self.fetchers).try_for_each(|(place, fetcher)| fetcher.check(place))?;
        (0..).zip(&self.priors).try_for_each(|(place, prior)| prior.check(place))
    }

    fn check_numbers(&self) -> Result<(), BadValue> {
        let scoring = &self.scoring;
        let share = "it can be 0 to 1";
        within("half_life_days", self.half_life_days, 7.0..=365.0, "it can be 7 to 365")?;
        within("split_share", self.split_share, 0.0..=1.0, share)?;
        within("importance.min", self.importance.min, 0.0..=1.0, share)?;
        within("importance.full", self.importance.full, f64::MIN_POSITIVE..=1.0, "it can be above 0, up to 1")?;
        within("detect.block_threshold", self.detect.block_threshold, 0.05..=1.0, "it can be 0.05 to 1")?;
        within("scoring.phi", scoring.phi, 0.0..=1.0 - f64::EPSILON, "it can be 0 to just under 1")?;
        within("scoring.max_attempts", scoring.max_attempts, 1..=u32::MAX, "it can be 1 or more")?;
        for (key, value) in [
            ("scoring.min_confidence", scoring.min_confidence),
            ("scoring.explore", scoring.explore),
            ("scoring.explore_most", scoring.explore_most),
            ("scoring.last_ditch", scoring.last_ditch),
            ("scoring.try_all_the_same", scoring.try_all_the_same),
        ] {
            within(key, value, 0.0..=1.0, share)?;
        }
        for (key, value) in [
            ("scoring.value", scoring.value),
            ("scoring.blocked_cost", scoring.blocked_cost),
            ("scoring.explore_rested", scoring.explore_rested),
            ("scoring.met_weight", scoring.met_weight),
            ("scoring.tag_weight", scoring.tag_weight),
            ("scoring.min_attempts", scoring.min_attempts),
        ] {
            within(key, value, 0.0..=1e9, "it can be any number from 0 up")?;
        }
        within("rollout.confidence", self.rollout.confidence, 0.5..=0.9999, "it can be 0.5 to 0.9999")?;
        within("rollout.margin", self.rollout.margin, 0.0..=1.0, share)?;
        within("rollout.min_pages", self.rollout.min_pages, 1..=u64::MAX, "it can be 1 or more")?;
        within("rollout.min_hosts", self.rollout.min_hosts, 1..=u64::MAX, "it can be 1 or more")?;
        #[cfg(feature = "pace")]
        self.check_pace()?;
        let deadline = "it can be \"1ms\" to \"1day\"";
        within("http.timeout", self.http.timeout, DEADLINES, deadline)?;
        within("http.probe_timeout", self.http.probe_timeout, DEADLINES, deadline)?;
        within("http.max_body", self.http.max_body, 1..=u64::MAX, "it can be 1 or more")?;
        within("keys_max", self.keys_max, 1..=usize::MAX, "it can be 1 or more")?;
        // A segment takes a good number of attempts; a file for each would be the end of any directory.
        within("log.segment_bytes", self.log.segment_bytes, 64 << 10..=u64::MAX, "it can be \"64KiB\" or more")?;
        within("browser.tabs", self.browser.tabs, 1..=usize::MAX, "it can be 1 or more")?;
        within("log.retain_days", self.log.retain_days, 0..=36_500, "it can be 0 to 36500")
    }

    #[cfg(feature = "pace")]
    fn check_pace(&self) -> Result<(), BadValue> {
        let pace = &self.pace;
        let (rates, rate) = (1e-4..=1e4, "it can be 0.0001 to 10000 requests a second");
        let (at_once, number) = (1..=u8::MAX, "it can be 1 to 255");
        within("pace.start", pace.start, rates.clone(), rate)?;
        within("pace.rate_max", pace.rate_max, rates.clone(), rate)?;
        within("pace.parallel_max", pace.parallel_max, at_once.clone(), number)?;
        for (name, host) in &pace.hosts {
            let bad = |key: &str, value: &dyn Debug, expected: &str| {
                let way = way(&["pace", "host", name, key]);
                Err(BadValue { way, value: format!("{value:?}"), expected: expected.to_owned() })
            };
            if let Some(value) = host.rate.filter(|value| !rates.contains(value)) {
                return bad("rate", &value, rate);
            }
            if let Some(value) = host.parallel.filter(|value| !at_once.contains(value)) {
                return bad("parallel", &value, number);
            }
        }
        Ok(())
    }

    /// Each fetcher is listed once, and all of them have room among the candidates.
    fn check_fetchers(&self) -> Result<(), BadValue> {
        let names: Vec<&str> = self.fetchers.iter().map(|fetcher| canonical(&fetcher.name)).collect();
        for (place, name) in names.iter().enumerate() {
            let way = || way(&["fetcher", &place.to_string(), "name"]);
            if let Some(first) = names[..place].iter().position(|earlier| earlier == name) {
                let expected = format!("each fetcher can be listed once, and number {} is the same one", first + 1);
                return Err(BadValue { way: way(), value: format!("{:?}", self.fetchers[place].name), expected });
            }
            if place >= CANDIDATES_MAX {
                let expected = format!("there can be {CANDIDATES_MAX} fetchers, and this is one more");
                return Err(BadValue { way: way(), value: format!("{name:?}"), expected });
            }
        }
        Ok(())
    }
}

impl FetcherConfig {
    fn check(&self, place: usize) -> Result<(), BadValue> {
        let place = place.to_string();
        let bad = |key: &str, value: &dyn Debug, expected: &str| {
            let expected = format!("for the fetcher {:?} {expected}", self.name);
            Err(BadValue { way: way(&["fetcher", &place, key]), value: format!("{value:?}"), expected })
        };
        if self.name.is_empty() || self.name.len() > NAME_MAX_BYTES || self.name.chars().any(char::is_control) {
            return bad("name", &self.name, "it must be 1 to 100 printable characters");
        }
        for (key, value) in [("quality", self.quality), ("prior", self.prior)] {
            if let Some(value) = value.filter(|value| !(0.0..=1.0).contains(value)) {
                return bad(key, &value, "it can be 0 to 1");
            }
        }
        if let Some(CostConfig::Requests(cost)) = self.cost
            && !(cost.is_finite() && cost > 0.0)
        {
            return bad("cost", &cost, "it can be any number above 0");
        }
        if self.max_in_flight == Some(0) {
            return bad("max_in_flight", &0, "it can be 1 or more");
        }
        if let Some(command) = self.command.as_ref().filter(|command| command.first().is_none_or(String::is_empty)) {
            return bad("command", command, "it needs a program");
        }
        let ways = [
            ("command", self.command.is_some()),
            ("archive", self.archive.is_some()),
            ("search", self.search.is_some()),
            ("download", self.download.is_some()),
            ("solver", self.solver.is_some()),
            ("cdp", self.cdp.is_some()),
            ("like", self.like.is_some()),
        ];
        let mut ways = ways.iter().filter(|(_, is_there)| *is_there).map(|(name, _)| *name);
        if let (Some(first), Some(second)) = (ways.next(), ways.next()) {
            return bad(second, &"there", &format!("there is another way to get pages already, {first}"));
        }
        if let Some(like) = self.like.as_ref().filter(|like| !LIKENESSES.contains(&canonical(like))) {
            return bad("like", like, &format!("it can be {}", LIKENESSES.join(", ")));
        }
        if let Some(variable) = self.proxy_user_env.as_ref().filter(|_| self.proxy.is_none()) {
            return bad("proxy_user_env", variable, "there is no proxy");
        }
        if let Some(search) = self.search.as_ref().filter(|_| canonical(&self.name) != "nytime_searcher") {
            if search.url.as_ref().is_none_or(|url| !url.contains("{url}")) {
                return bad("search", &search.url, "url is to say where {url} is asked for");
            }
            if search.title.is_none() {
                return bad("search", &search.title, "title is to say where the title is");
            }
        }
        let from = self.archive.iter().flat_map(|archive| &archive.from);
        for archive in from {
            if archive.wayback.is_some() == archive.timegate.is_some() {
                return bad("archive", &archive, "each archive has either wayback or timegate");
            }
        }
        Ok(())
    }
}

impl PriorConfig {
    fn check(&self, place: usize) -> Result<(), BadValue> {
        let key = |name: &str| format!("prior.{place}.{name}");
        within(&key("success_rate"), Some(self.success_rate), 0.0..=1.0, "it can be 0 to 1")?;
        within(&key("samples"), self.samples, 0.0..=1e6, "it can be 0 to 1000000")
    }
}

/// Whether `value`, where there is one, lies in `range`. A number that is none lies in no range.
fn within<T: PartialOrd + Debug>(
    key: &str,
    value: Option<T>,
    range: RangeInclusive<T>,
    expected: &str,
) -> Result<(), BadValue> {
    match value {
        Some(value) if !range.contains(&value) => Err(BadValue {
            way: way(&key.split('.').collect::<Vec<_>>()),
            value: format!("{value:?}"),
            expected: expected.to_owned(),
        }),
        _ => Ok(()),
    }
}

fn way(steps: &[&str]) -> Vec<String> {
    steps.iter().map(|&step| step.to_owned()).collect()
}
