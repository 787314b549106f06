//! What differs between the settings of a running process and those that it reloads, in words.
//!
//! Owns: which keys of a config take effect at once.
//!
//! Must not know: how they take effect.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::path::Path;

use fetchwise::config::{Config, Resolved};
use fetchwise::pace::{HostPace, PaceSettings};
use fetchwise::registry::FetcherSpec;

/// The largest number of hosts, or of keys, that a list names.
const MAX_NAMED: usize = 5;
/// Keys that take effect at once. Those that end in a dot or an underscore stand for all keys that
/// begin so.
const LIVE: [&str; 8] = [
    "mode",
    "split_share",
    "router",
    "rules",
    "rollout.",
    "tuning.rollout_",
    "tuning.pace_min_rate",
    "pace.",
];
/// The key of pace that does not: visits that wait have their limit already.
const LIMIT_OF_WAITS: &str = "pace.max_wait";
/// The keys of fetchers, whose costs take effect at once.
const FETCHERS: &str = "fetcher";

/// Returns the keys whose change takes effect at the next start.
pub(crate) fn keys_after_restart(before: &Resolved, now: &Resolved) -> Vec<String> {
    let values = |resolved: &Resolved| -> BTreeMap<String, String> {
        let settings = resolved.settings().into_iter().filter(|setting| !is_live(&setting.key));
        let of_fetchers = format!("{FETCHERS}.");
        let others = settings
            .filter(|setting| !setting.key.starts_with(&of_fetchers) && setting.key != FETCHERS);
        others.map(|setting| (setting.key, format!("{:?}", setting.value))).collect()
    };
    let (old, new) = (values(before), values(now));
    let all: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let mut keys: Vec<String> =
        all.into_iter().filter(|key| old.get(*key) != new.get(*key)).cloned().collect();
    if fetchers(before) != fetchers(now) {
        keys.push(FETCHERS.to_owned());
    }
    shortened(keys, "keys")
}

fn is_live(key: &str) -> bool {
    let is_it = |live: &&str| key == *live || live.ends_with(['.', '_']) && key.starts_with(*live);
    key != LIMIT_OF_WAITS && LIVE.iter().any(is_it)
}

/// Returns the fetchers of a config without their costs, in a form that can be compared. Built-in
/// ones that are as the program has them are the same as none.
fn fetchers(resolved: &Resolved) -> String {
    let built_in = || {
        Config::from_toml("[fetcher.direct_access]", Path::new("")).map(|config| config.fetchers)
    };
    let mut fetchers = resolved.config.fetchers.clone();
    if fetchers.is_empty() {
        fetchers = built_in().unwrap_or_default();
    }
    fetchers.iter_mut().for_each(|fetcher| fetcher.cost = None);
    format!("{fetchers:?}")
}

/// Returns what differs between two settings of pace.
pub(crate) fn pace_changes(before: &PaceSettings, after: &PaceSettings) -> Vec<String> {
    let mut changes: Vec<String> = [
        change("mode", &before.mode, &after.mode),
        change("initial_rate", &before.initial_rate, &after.initial_rate),
        change("max_rate", &before.max_rate, &after.max_rate),
        change("min_rate", &before.min_rate, &after.min_rate),
        change("max_parallel", &before.max_parallel, &after.max_parallel),
        change("crawl_delay", &before.crawl_delay, &after.crawl_delay),
        change("max_crawl_delay", &before.max_crawl_delay_s, &after.max_crawl_delay_s),
    ]
    .into_iter()
    .flatten()
    .collect();
    let names: BTreeSet<&String> = before.hosts.keys().chain(after.hosts.keys()).collect();
    let hosts = names.into_iter().filter_map(|name| {
        change(name, &host_pace(before.hosts.get(name)), &host_pace(after.hosts.get(name)))
    });
    changes.extend(shortened(hosts.collect(), "hosts"));
    changes
}

/// Returns what differs between the costs of candidates before and after a change.
pub(crate) fn cost_changes<'s>(
    before: &[FetcherSpec],
    after: impl Iterator<Item = &'s FetcherSpec>,
) -> Vec<String> {
    let cost = |spec: &FetcherSpec| match spec.measures_cost {
        true => format!("measured from {}", spec.cost),
        false => spec.cost.to_string(),
    };
    before
        .iter()
        .zip(after)
        .filter_map(|(old, new)| change(&new.name, &cost(old), &cost(new)))
        .collect()
}

fn change(key: &str, before: &dyn Display, after: &dyn Display) -> Option<String> {
    let (before, after) = (before.to_string(), after.to_string());
    (before != after).then(|| format!("{key} {before} -> {after}"))
}

fn host_pace(pace: Option<&HostPace>) -> String {
    let pace = pace.copied().unwrap_or_default();
    let rate = pace.rate.map(|rate| format!("rate {rate}"));
    let parallel = pace.parallel.map(|parallel| format!("parallel {parallel}"));
    let parts: Vec<String> = rate.into_iter().chain(parallel).collect();
    if parts.is_empty() { "learned".to_owned() } else { parts.join(" and ") }
}

/// Returns a list with its end in one word if it is long.
fn shortened(mut list: Vec<String>, what: &str) -> Vec<String> {
    let more = list.len().saturating_sub(MAX_NAMED);
    list.truncate(MAX_NAMED);
    list.extend((more > 0).then(|| format!("{more} more {what}")));
    list
}

#[cfg(test)]
mod tests {
    use fetchwise::config::Layers;

    use super::*;

    fn resolved(text: &str) -> Resolved {
        let mut layers = Layers::default();
        layers.text(text, Path::new("c.toml")).unwrap();
        layers.resolve().unwrap()
    }

    #[test]
    fn only_keys_that_need_a_restart_are_named() {
        let of = |text: &str| keys_after_restart(&resolved(""), &resolved(text)).join(", ");
        assert_eq!(of(""), "");
        assert_eq!(
            of(
                "rollout.retry_after = '1day'\n[tuning]\nrollout_confidence = 0.9\nrollout_min_hosts = 5\n\
                pace_min_rate = 0.5\n[pace]\nmode = 'fixed'\n[pace.host.\"a.org\"]\nrate = 3\n"
            ),
            ""
        );
        assert_eq!(
            of("pace.max_wait = '9s'\ntuning.explore_rate = 0.1"),
            "pace.max_wait, tuning.explore_rate"
        );
        let many: String =
            (0..8).map(|n| format!("[detect.host.\"{n}.org\"]\nmin_chars = 9\n")).collect();
        assert!(of(&many).ends_with(", 3 more keys"), "{}", of(&many));
    }

    #[test]
    fn costs_need_no_restart_and_other_changes_of_fetchers_do() {
        let of =
            |old: &str, new: &str| keys_after_restart(&resolved(old), &resolved(new)).join(", ");
        let cheap = "[fetcher.playwright]\ncost = 2";
        assert_eq!(of(cheap, "[fetcher.playwright]\ncost = 'measured'"), "");
        assert_eq!((of("", cheap), of(cheap, "")), (String::new(), String::new()));
        assert_eq!(of(cheap, "[fetcher.playwright]\ncost = 2\nquality = 0.5"), "fetcher");
        assert_eq!(of("", "[[fetcher]]\nname = 'mine'"), "fetcher");
    }

    #[test]
    fn a_pace_is_described_by_what_differs() {
        let host = |rate, parallel| HostPace { rate, parallel };
        let before = PaceSettings {
            hosts: [("a.org".to_owned(), host(Some(1.5), None))].into(),
            ..Default::default()
        };
        let hosts = [
            ("a.org".to_owned(), host(Some(3.0), Some(2))),
            ("b.org".to_owned(), host(None, Some(1))),
        ]
        .into();
        let after = PaceSettings { max_rate: 5.0, hosts, ..PaceSettings::default() };
        let said = [
            "max_rate 20 -> 5",
            "a.org rate 1.5 -> rate 3 and parallel 2",
            "b.org learned -> parallel 1",
        ];
        assert_eq!(pace_changes(&before, &after), said);
        assert!(pace_changes(&after, &after).is_empty());
    }
}
