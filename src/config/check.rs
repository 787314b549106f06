//! Validation of a config: the rules of its declarations, and those that need more than one value:
//! names of hosts, keys of a fetcher that exclude each other, duplicate fetchers and their number.
//!
//! Must not know: the valid values of a single key, which its declaration has.

use std::fmt::Debug;

use url::Url;

use super::build::FetchMethod;
use super::declare::{Checked, Declared};
use super::error::InvalidValue;
use super::value::CostConfig;
use super::{Config, FetcherConfig};
use fetchwise_types::registry::{MAX_CANDIDATES, canonical};

/// Longest name of a fetcher, in bytes.
const MAX_NAME_BYTES: usize = 100;

/// Values of `like`.
const LIKENESSES: [&str; 3] = ["direct_access", "playwright", "playwright_stealth"];

impl Config {
    /// Returns every invalid value.
    pub(super) fn check(&self) -> Vec<InvalidValue> {
        let mut found = Checked::default();
        self.check_values(&mut found);
        self.check_hosts(&mut found);
        self.check_fetchers(&mut found);
        (0..).zip(&self.fetchers).for_each(|(place, fetcher)| fetcher.check(place, &mut found));
        found.invalid
    }

    /// Checks the hosts with headers of their own, which have to be as URLs have them.
    fn check_hosts(&self, found: &mut Checked) {
        let is_host = |name: &str| {
            Url::parse(&format!("https://{name}/")).is_ok_and(|url| url.host_str() == Some(name))
        };
        for name in self.identity.hosts.keys().filter(|name| !is_host(name)) {
            let expected = "expected a host, such as \"shop.example\", in lower case";
            found.bad(&["identity", "host", name], format!("{name:?}"), expected.to_owned());
        }
    }

    /// Checks that each fetcher is listed once, and that all fit among the candidates.
    fn check_fetchers(&self, found: &mut Checked) {
        let names: Vec<&str> =
            self.fetchers.iter().map(|fetcher| canonical(&fetcher.name)).collect();
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
    fn check(&self, place: usize, found: &mut Checked) {
        let place = place.to_string();
        let mut bad = |key: &str, value: &dyn Debug, expected: &str| {
            let expected = format!("{expected} (fetcher {:?})", self.name);
            found.bad(&["fetcher", &place, key], format!("{value:?}"), expected);
        };
        if self.name.is_empty()
            || self.name.len() > MAX_NAME_BYTES
            || self.name.chars().any(char::is_control)
        {
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
        if let Some(command) =
            self.command.as_ref().filter(|command| command.first().is_none_or(String::is_empty))
        {
            bad("command", &command.iter().take(1).collect::<Vec<_>>(), "missing program");
        }
        let mut ways = self.ways();
        if let (Some(first), Some(second)) = (ways.next(), ways.next()) {
            bad(second, &"set", &format!("conflicts with {first}"));
        }
        drop(ways);
        if let Some(like) = self.like.as_ref().filter(|like| !LIKENESSES.contains(&canonical(like)))
        {
            bad("like", like, &format!("expected one of {}", LIKENESSES.join(", ")));
        }
        if let Some(variable) = self.proxy_user_env.as_ref().filter(|_| self.proxy.is_none()) {
            bad("proxy_user_env", variable, "missing proxy");
        }
        if let Some(search) =
            self.search.as_ref().filter(|_| canonical(&self.name) != "nytime_searcher")
        {
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
            let named: Vec<&str> =
                named.iter().filter(|(_, url)| url.is_some()).map(|(name, _)| *name).collect();
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
