//! Joint worlds from outside: the promises of their results.

use fetchwise_simulate::{
    CRAWLERS, JOINT_WORLDS, JointReport, JointWorld, PaceOptions, SimulateError, joint_html,
    joint_table, simulate_joint,
};

fn world(name: &str, classes: &[&str], changes: &[(&str, &str)]) -> JointWorld {
    let (_, text) = JOINT_WORLDS.iter().find(|(known, _)| *known == name).unwrap();
    let mut text = (*text).to_owned();
    for (key, value) in [("hosts", "1"), ("urls", "1500"), ("hours", "0.5")].iter().chain(changes) {
        let line =
            text.lines().find(|line| line.starts_with(&format!("{key} = "))).unwrap().to_owned();
        text = text.replacen(&line, &format!("{key} = {value}"), 1);
    }
    let mut world = JointWorld::parse(&text, "small").unwrap();
    world.classes.retain(|class| classes.is_empty() || classes.contains(&class.name.as_str()));
    world
}

fn run(world: &JointWorld, crawlers: &[&str], seeds: &[u64], threads: usize) -> Vec<JointReport> {
    simulate_joint(world, crawlers, seeds, &PaceOptions { threads, ..PaceOptions::default() })
        .unwrap()
}

fn as_json(reports: &[JointReport]) -> String {
    reports.iter().map(|report| serde_json::to_string(report).unwrap() + "\n").collect()
}

#[test]
fn equal_seeds_give_equal_bytes_on_any_number_of_threads() {
    let world = world("joint-1", &[], &[("urls", "120"), ("hours", "0.1")]);
    let once = run(&world, &CRAWLERS, &[1], 1);
    let again = run(&world, &CRAWLERS, &[1], 2);
    assert_eq!(as_json(&once), as_json(&again));
    assert_eq!(joint_table(&once), joint_table(&again));
    assert_eq!(joint_html(&once).unwrap(), joint_html(&again).unwrap());
    assert_ne!(as_json(&once), as_json(&run(&world, &CRAWLERS, &[2], 2)));
}

#[test]
fn an_application_with_a_limit_is_crawled_by_browser_below_the_limit() {
    let reports = run(
        &world("joint-1", &["shell-window"], &[]),
        &["fetchwise", "unpaced", "oracle"],
        &[1],
        0,
    );
    let [own, unpaced, oracle] = &reports[..] else { panic!("three of them") };
    assert!(own.renders_per_page > 0.95 && own.renders_per_page < 1.1, "{own:?}");
    assert!(own.share > 0.5 && own.share <= oracle.share * 1.1, "{own:?} {oracle:?}");
    assert!(own.blocked_per_1k * 5.0 < unpaced.blocked_per_1k, "{own:?} {unpaced:?}");
}

#[test]
fn a_limit_for_all_fetchers_does_not_count_against_the_plain_one() {
    let reports =
        run(&world("joint-1", &["wall-for-all", "bans"], &[]), &["fetchwise"], &[1, 2], 0);
    for report in &reports {
        assert!(
            report.renders_per_page < 0.05,
            "who is refused for speed gains nothing by rendering: {report:?}"
        );
        assert_eq!(report.lost_per_1k, 0.0, "{report:?}");
    }
}

#[test]
fn the_crawler_that_knows_everything_is_near_the_best_possible() {
    for report in run(&world("joint-1", &[], &[]), &["oracle"], &[1], 0) {
        assert!((0.5..=1.15).contains(&report.share), "{report:?}");
    }
}

#[test]
fn every_shipped_world_is_valid_and_invalid_keys_are_named() {
    for (name, text) in JOINT_WORLDS {
        assert!(JointWorld::is_one(text));
        assert_eq!(JointWorld::parse(text, name).unwrap().name, name);
    }
    let text = JOINT_WORLDS[0].1;
    for (from, to, key) in [
        ("sigma = 0.35", "sigma = 0.35\nsigmaa = 1", "sigmaa"),
        ("hours = 2.0", "hours = 0.0", "hours"),
        ("shells = 0.2", "shells = 1.2", "class.shells"),
        ("share = 0.1", "share = 1.1", "class.content_blocked.share"),
        ("places = 3", "places = 0", "fetcher.places"),
        ("name = \"playwright\"", "name = \"wget\"", "fetcher.name"),
        ("counts = [\"direct_access\"]", "counts = [\"archive_proxy\"]", "class.counts"),
        ("page_requests = [8.0, 25.0]", "page_requests = [0.1, 25.0]", "class.page_requests"),
        ("rate = [0.5, 6.0], window_s", "window_s", "class.rate"),
        ("limit = { limiter = \"bucket\"", "limit = { limiter = \"bukket\"", "bukket"),
    ] {
        let message =
            JointWorld::parse(&text.replacen(from, to, 1), "w.toml").unwrap_err().to_string();
        assert!(message.contains(key), "{key}: {message}");
    }
}

#[test]
fn unknown_names_and_missing_seeds_are_errors() {
    let (world, options) = (world("joint-1", &["bucket"], &[]), PaceOptions::default());
    let unknown = simulate_joint(&world, &["gremlins"], &[1], &options);
    assert!(matches!(unknown, Err(SimulateError::UnknownPolicy { .. })));
    assert!(matches!(
        simulate_joint(&world, &["oracle"], &[], &options),
        Err(SimulateError::NoSeeds)
    ));
}
