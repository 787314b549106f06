//! Worlds of hosts with limits from outside: the promises of their results.

use fetchwise_simulate::{
    PACE_WORLDS, PACERS, PaceOptions, PaceReport, PaceWorld, SimulateError, pace_html, pace_table,
    simulate_pace,
};

fn world(changes: &[(&str, &str)]) -> PaceWorld {
    let mut text = PACE_WORLDS[0].1.to_owned();
    for (key, value) in [("hosts", "2"), ("urls", "2000"), ("hours", "0.5")].iter().chain(changes) {
        let line =
            text.lines().find(|line| line.starts_with(&format!("{key} = "))).unwrap().to_owned();
        text = text.replacen(&line, &format!("{key} = {value}"), 1);
    }
    PaceWorld::parse(&text, "small").unwrap()
}

fn run(world: &PaceWorld, pacers: &[&str], seeds: &[u64], threads: usize) -> Vec<PaceReport> {
    simulate_pace(world, pacers, seeds, &PaceOptions { threads, ..PaceOptions::default() }).unwrap()
}

fn as_json(reports: &[PaceReport]) -> String {
    reports.iter().map(|report| serde_json::to_string(report).unwrap() + "\n").collect()
}

#[test]
fn equal_seeds_give_equal_bytes_on_any_number_of_threads() {
    let world = world(&[("urls", "200"), ("hours", "0.1")]);
    let once = run(&world, &PACERS, &[1], 1);
    let again = run(&world, &PACERS, &[1], 2);
    assert_eq!(as_json(&once), as_json(&again));
    assert_eq!(pace_table(&once), pace_table(&again));
    assert_eq!(pace_html(&once).unwrap(), pace_html(&again).unwrap());
    assert_ne!(as_json(&once), as_json(&run(&world, &PACERS, &[2], 2)));
}

#[test]
fn the_learned_pace_delivers_more_than_one_request_per_second_with_few_blocks() {
    let reports = run(&world(&[]), &["pace", "one_a_second", "none"], &[1], 0);
    let mean = |pacer: &str, of: fn(&PaceReport) -> f64| {
        let all: Vec<f64> =
            reports.iter().filter(|r| r.pacer == pacer && r.in_mean).map(of).collect();
        all.iter().sum::<f64>() / all.len() as f64
    };
    let share = |pacer: &str| mean(pacer, |report| report.share);
    let blocked = |pacer: &str| mean(pacer, |report| report.blocked_per_1k);
    assert!(
        share("pace") > 1.5 * share("one_a_second"),
        "{} {}",
        share("pace"),
        share("one_a_second")
    );
    assert!(100.0 * blocked("pace") < blocked("none"), "{} {}", blocked("pace"), blocked("none"));
}

#[test]
fn every_shipped_world_is_valid_and_invalid_keys_are_named() {
    for (name, text) in PACE_WORLDS {
        assert!(PaceWorld::is_one(text));
        assert_eq!(PaceWorld::parse(text, name).unwrap().name, name);
    }
    let text = PACE_WORLDS[0].1;
    for (from, to, key) in [
        ("sigma = 0.35", "sigma = 0.35\nsigmaa = 1", "sigmaa"),
        ("hours = 2.0", "hours = 0.0", "hours"),
        ("n = [30.0, 600.0]", "n = [600.0, 30.0]", "class.n"),
        ("penalty_s = { any = [10.0, 60.0] }", "", "class.penalty_s"),
        ("retry_after = 0.5", "retry_after = 1.5", "class.retry_after"),
    ] {
        let message =
            PaceWorld::parse(&text.replacen(from, to, 1), "w.toml").unwrap_err().to_string();
        assert!(message.contains(key), "{message}");
    }
}

#[test]
fn unknown_names_and_missing_seeds_are_errors() {
    let options = PaceOptions::default();
    let unknown = simulate_pace(&world(&[]), &["gremlins"], &[1], &options);
    assert!(matches!(unknown, Err(SimulateError::UnknownPolicy { .. })));
    assert!(matches!(
        simulate_pace(&world(&[]), &["pace"], &[], &options),
        Err(SimulateError::NoSeeds)
    ));
}
