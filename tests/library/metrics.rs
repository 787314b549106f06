//! Metrics as an embedder sees them: in its own registry, as text and as protobuf.

use std::collections::BTreeMap;
use std::sync::Arc;

use fetchwise::attempt::Attempt;
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::fetch_result::{Block, FetchResult, Outcome};
use fetchwise::heuristic::Heuristic;
use fetchwise::metrics::{Kind, Metrics};
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;
use fetchwise::visit::Step;
use fetchwise_testsite::poll::until_blocking;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use url::Url;

fn registry(selector: &Arc<Selector>) -> Registry {
    let mut registry = Registry::default();
    Metrics::new(Arc::clone(selector)).register(&mut registry);
    registry
}

/// Returns the samples of a page, by name and labels as they are written.
fn samples(registry: &Registry) -> BTreeMap<String, f64> {
    let mut page = String::new();
    text::encode(&mut page, registry).unwrap();
    assert!(page.ends_with("# EOF\n"));
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}

fn sum(samples: &BTreeMap<String, f64>, name: &str) -> f64 {
    samples
        .iter()
        .filter(|(key, _)| key.split('{').next() == Some(name))
        .map(|(_, value)| value)
        .sum()
}

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

#[test]
fn a_visit_is_counted_from_its_decision_to_its_end() {
    let selector = Arc::new(Selector::builder().without_pace().build().unwrap());
    let registry = registry(&selector);
    let page = url("https://e.org/page");
    let mut visit = selector.visit(&page).unwrap();
    let Step::Fetch(fetch) = visit.next() else { panic!("a new host is asked") };
    assert_eq!(samples(&registry)["fetchwise_visits_in_progress"], 1.0);
    let mut answer =
        FetchResult::from(Outcome::Blocked(Block::challenge().by("datadome"))).with_status(403);
    answer.heuristics.push(Heuristic::flag("block_datadome"));
    visit.report(fetch, answer);
    let Step::Fetch(fetch) = visit.next() else { panic!("another fetcher is tried") };
    visit.report(fetch, Outcome::Content);
    assert!(matches!(visit.next(), Step::End(_)));
    let seen = samples(&registry);
    let one = |name: &str| assert_eq!(seen.get(name), Some(&1.0), "{name}: {seen:#?}");
    one(r#"fetchwise_decisions_total{via="visit",source="probe",fetcher="direct_access"}"#);
    one(r#"fetchwise_attempts_total{fetcher="direct_access",outcome="blocked_captcha"}"#);
    one(r#"fetchwise_blocks_total{vendor="datadome"}"#);
    one(r#"fetchwise_probes_total{result="failed"}"#);
    one(r#"fetchwise_visits_total{end="delivered"}"#);
    one(r#"fetchwise_visit_duration_seconds_count{delivered="true"}"#);
    one(r#"fetchwise_attempt_duration_seconds_count{fetcher="direct_access",delivered="false"}"#);
    one(
        r#"fetchwise_attempt_duration_seconds_bucket{le="+Inf",fetcher="direct_access",delivered="false"}"#,
    );
    assert_eq!(sum(&seen, "fetchwise_attempts_total"), 2.0);
    assert_eq!(sum(&seen, "fetchwise_decisions_total"), 2.0);
    assert_eq!(seen["fetchwise_visits_in_progress"], 0.0);
    // A further request for a step changes nothing, and neither does dropping a visit that ended.
    let _ = visit.next();
    drop(visit);
    assert_eq!(samples(&registry), seen);
}

#[test]
fn an_unfinished_visit_ends_as_abandoned() {
    let selector = Arc::new(Selector::builder().build().unwrap());
    let registry = registry(&selector);
    let page = url("https://e.org/page");
    drop(selector.visit(&page).unwrap());
    let mut visit = selector.visit(&page).unwrap();
    drop(visit.next());
    drop(visit);
    let seen = samples(&registry);
    assert_eq!(seen[r#"fetchwise_visits_total{end="abandoned"}"#], 1.0);
    assert_eq!(seen["fetchwise_visits_in_progress"], 0.0);
    assert_eq!(sum(&seen, "fetchwise_attempts_total"), 0.0);
}

#[test]
fn pauses_of_links_and_hosts_are_counted_as_they_begin() {
    let selector = Arc::new(Selector::builder().without_pace().build().unwrap());
    let registry = registry(&selector);
    let page = url("https://e.org/page");
    let mut visit = selector.visit(&page).unwrap();
    while let Step::Fetch(fetch) = visit.next() {
        visit.report(fetch, FetchResult::from(Outcome::Http(429)).with_status(429));
    }
    let again = url("https://e.org/other");
    let next = selector.visit(&again).unwrap().next();
    assert!(matches!(next, Step::End(_)), "{next:?}");
    let seen = samples(&registry);
    assert_eq!(seen[r#"fetchwise_host_pauses_total{cause="limited"}"#], 1.0, "{seen:#?}");
    assert_eq!(seen["fetchwise_hosts_paused"], 1.0);
    assert_eq!(seen[r#"fetchwise_visits_total{end="paused"}"#], 1.0);
    assert_eq!(seen[r#"fetchwise_decisions_total{via="visit",source="paused",fetcher=""}"#], 1.0);
}

#[test]
fn text_from_outside_appears_in_label_values_only() {
    let selector = Arc::new(Selector::builder().build().unwrap());
    let registry = registry(&selector);
    let now = Timestamp::now();
    let evil = "evil\"} 1\nfetchwise_attempts_total{fetcher=\"x\",outcome=\"content\"} 99\n#\\";
    for n in 0..300 {
        let mut attempt = Attempt::new(&url("https://e.org/"), evil, now)
            .unwrap()
            .failed(ErrorKind::BlockedCaptcha);
        let vendor =
            if n == 0 { "block_v\"} 7\nx 1".to_owned() } else { format!("block_made-up-{n}") };
        attempt.heuristics.push(Heuristic::flag(vendor).into());
        selector.record(attempt, now).unwrap();
        let fetcher = format!("stranger-{n}");
        selector
            .record(Attempt::new(&url("https://e.org/"), &fetcher, now).unwrap().delivered(), now)
            .unwrap();
    }
    let seen = samples(&registry);
    assert_eq!(sum(&seen, "fetchwise_attempts_total"), 600.0);
    assert_eq!(sum(&seen, "fetchwise_blocks_total"), 300.0);
    assert!(seen.keys().all(|key| !key.contains(r#"fetcher="x""#)), "{seen:#?}");
    assert!(
        seen.keys().any(|key| key == r#"fetchwise_blocks_total{vendor="v\"} 7�x 1"}"#),
        "{seen:#?}"
    );
    assert!(seen.len() < 600, "{} rows, however many names are made up", seen.len());
}

#[test]
fn exported_families_are_the_listed_ones() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = fetchwise::journal::Journal::open(dir.path(), Default::default()).unwrap();
    let journal = Arc::new(journal);
    let selector =
        Selector::builder().pace(Default::default()).sink(Arc::clone(&journal)).build().unwrap();
    let selector = Arc::new(selector);
    let mut registry = Registry::default();
    Metrics::new(Arc::clone(&selector)).with_journal(Arc::clone(&journal)).register(&mut registry);
    let page = url("https://e.org/page");
    let mut visit = selector.visit(&page).unwrap();
    while let Step::Fetch(fetch) = visit.next() {
        visit.report(fetch, Outcome::Blocked(Block::refusal()));
    }
    journal.flush().wait().unwrap();
    let mut page = String::new();
    // The writer thread counts a sync a moment after it has acknowledged it.
    until_blocking("a sync is counted", || {
        page.clear();
        text::encode(&mut page, &registry).unwrap();
        page.contains("last_sync")
    });
    let given: Vec<(&str, &str)> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    for (name, kind) in &given {
        let family = Metrics::families().iter().find(|family| family.name == *name);
        let family = family.unwrap_or_else(|| panic!("{name} is given and not listed"));
        assert_eq!(format!("{:?}", family.kind).to_lowercase(), *kind, "{name}");
    }
    // This log has no compaction and no snapshot.
    let absent = [
        "fetchwise_log_last_snapshot_timestamp_seconds",
        "fetchwise_log_last_compaction_timestamp_seconds",
    ];
    for family in Metrics::families().iter().filter(|family| !absent.contains(&family.name)) {
        assert!(
            given.iter().any(|(name, _)| *name == family.name),
            "{} is listed and not given:\n{page}",
            family.name
        );
    }
}

#[test]
fn the_reference_lists_every_metric_and_no_other() {
    let page = include_str!("../../docs/reference/metrics.md");
    let row = |line: &str| -> Option<(String, String, Vec<String>)> {
        let mut cells = line.strip_prefix("| `fetchwise_")?.split('|').map(str::trim);
        let name = format!("fetchwise_{}", cells.next()?.trim_end_matches('`'));
        let kind = cells.next()?.to_owned();
        let labels =
            cells.next()?.split(',').map(|label| label.trim().trim_matches('`').to_owned());
        Some((name, kind, labels.filter(|label| !label.is_empty()).collect()))
    };
    let written: Vec<_> = page
        .lines()
        .filter_map(row)
        .filter(|(name, ..)| {
            !["fetchwise_http_", "fetchwise_crawl_", "fetchwise_fleet_"]
                .iter()
                .any(|of| name.starts_with(of))
        })
        .collect();
    let listed: Vec<_> = Metrics::families()
        .iter()
        .map(|family| {
            let kind = match family.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            (
                family.full_name(),
                kind.to_owned(),
                family.labels.iter().map(|label| (*label).to_owned()).collect(),
            )
        })
        .collect();
    assert_eq!(written, listed, "docs/reference/metrics.md and the list of families differ");
}

#[test]
fn attempt_counts_continue_from_the_log() {
    use fetchwise::journal::maintenance;
    use fetchwise::journal::maintenance::CompactOptions;
    use std::time::Duration;

    let dir = tempfile::tempdir().unwrap();
    let start = || Arc::new(Selector::builder().journal(dir.path()).build().unwrap());
    let now = Timestamp::now();
    let old = Timestamp::from_millis(now.as_millis() - 200 * 86_400_000);
    let record = |selector: &Selector, domain: &str, at: Timestamp, kind: Option<ErrorKind>| {
        let attempt =
            Attempt::new(&url(&format!("https://{domain}/")), "direct_access", at).unwrap();
        let attempt =
            kind.map_or_else(|| attempt.clone().delivered(), |kind| attempt.clone().failed(kind));
        selector.record(attempt, now).unwrap();
    };
    let counted = |selector: &Arc<Selector>| {
        let mut all = samples(&registry(selector));
        all.retain(|name, count| name.starts_with("fetchwise_attempts_total") && *count > 0.0);
        all
    };
    let selector = start();
    (0..30).for_each(|_| record(&selector, "old.org", old, None));
    (0..7).for_each(|_| record(&selector, "old.org", old, Some(ErrorKind::Timeout)));
    (0..5).for_each(|_| record(&selector, "new.org", now, Some(ErrorKind::BlockedCaptcha)));
    let before = counted(&selector);
    assert_eq!(sum(&before, "fetchwise_attempts_total"), 42.0);
    drop(selector);

    let selector = start();
    assert_eq!(counted(&selector), before, "what the log has is counted");
    record(&selector, "new.org", now, None);
    let before = counted(&selector);
    assert_eq!(sum(&before, "fetchwise_attempts_total"), 43.0);
    drop(selector);

    // A compaction drops old attempts, but not their counts.
    let fresh = Selector::builder().build().unwrap();
    let mut options = CompactOptions::default();
    options.retain = Duration::from_secs(90 * 86_400);
    let done = maintenance::compact(dir.path(), &fresh, &options, now, &mut |_, _| {}).unwrap();
    assert_eq!(done.attempts, (43, 6));
    let selector = start();
    assert_eq!(counted(&selector), before);
    record(&selector, "new.org", now, None);
    drop(selector);

    // Forgotten attempts leave the counts. Compacted ones cannot be told apart, so they stay.
    let target = fetchwise::journal::TombstoneTarget::Domain("new.org".to_owned());
    maintenance::forget(dir.path(), target, now).unwrap();
    assert_eq!(sum(&counted(&start()), "fetchwise_attempts_total"), 37.0);
}
