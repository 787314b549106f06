//! Fleets from outside: the promises of their results.

use std::time::Duration;

use fetchwise_simulate::{
    Egress, FleetOptions, FleetReport, NamedPolicy, SHIPPED, SimulateOptions, World, fleet_html,
    fleet_plots, fleet_table, simulate, simulate_fleet,
};

/// A shipped world, reduced so that a debug build runs it quickly.
fn small(urls: usize, sites: usize) -> World {
    World { urls, sites, ..World::parse(SHIPPED[0].1, "small").unwrap() }
}

fn run(
    world: &World,
    seeds: &[u64],
    nodes: &[usize],
    delays: &[u64],
    threads: usize,
) -> Vec<FleetReport> {
    let (nodes, delays) =
        (nodes.to_vec(), delays.iter().map(|s| Duration::from_secs(*s)).collect());
    let options = FleetOptions { nodes, delays, threads, ..FleetOptions::default() };
    simulate_fleet(world, &NamedPolicy::by_name("default").unwrap(), seeds, &options).unwrap()
}

fn by<'r>(reports: &'r [FleetReport], way: &str) -> &'r FleetReport {
    reports.iter().find(|report| report.topology == way).unwrap()
}

#[test]
fn nodes_of_scope_own_share_global_evidence() {
    let world = small(3000, 300);
    let options = FleetOptions { nodes: vec![30], own: true, ..FleetOptions::default() };
    let reports =
        simulate_fleet(&world, &NamedPolicy::by_name("default").unwrap(), &[1, 2], &options)
            .unwrap();
    let (own, sites) = (by(&reports, "own"), by(&reports, "sites"));
    assert!(own.regret < sites.regret, "{} against {}", own.regret, sites.regret);
    // In so small a crawl the quota of each site leaves little that is shared at first.
    assert!(
        own.cold_regret < 1.05 * sites.cold_regret,
        "{} against {}",
        own.cold_regret,
        sites.cold_regret
    );
    let image = own.snapshot_bytes.unwrap();
    assert!((500.0..30_000.0).contains(&image), "{image} bytes");
    assert!((own.held_bytes.unwrap() - 29.0 * image).abs() < 1.0);
    // Each attempt is published within five minutes, in a separate snapshot or with others.
    assert!((1.0..1000.0 * own.attempts_per_url + 1.0).contains(&own.messages_per_1k.unwrap()));
    assert_eq!(
        (sites.snapshot_bytes, sites.messages_per_1k, own.bytes_per_attempt),
        (None, None, None)
    );
    assert!(fleet_table(&reports).contains("30 in scope own"));
}

/// Prints the figures of docs/reports/simulator.md for fleets in scope `own`:
/// `cargo test -p fetchwise-simulate --all-features --test fleets -- --ignored --nocapture`.
#[test]
#[ignore = "takes minutes, and prints"]
fn a_thousand_nodes_of_scope_own() {
    for (urls, nodes) in [(10_000, vec![10, 100, 1000]), (40_000, vec![2])] {
        let world = World { urls, ..World::parse(SHIPPED[0].1, "W1").unwrap() };
        let options = FleetOptions { nodes, own: true, ..FleetOptions::default() };
        let reports = simulate_fleet(
            &world,
            &NamedPolicy::by_name("default").unwrap(),
            &[9001, 9002],
            &options,
        )
        .unwrap();
        println!("{}", fleet_table(&reports));
        for report in reports.iter().filter(|report| report.topology == "own") {
            println!("{}", serde_json::to_string(report).unwrap());
            assert!(report.regret_ratio < 1.1, "{}", report.regret_ratio);
        }
    }
}

#[test]
fn equal_seeds_give_equal_bytes_on_any_number_of_threads() {
    let world = small(500, 40);
    let print = |threads| {
        let reports = run(&world, &[1, 2], &[3, 5], &[2, 60], threads);
        let json: Vec<String> =
            reports.iter().map(|report| serde_json::to_string(report).unwrap()).collect();
        (json, fleet_table(&reports), fleet_html(&reports).unwrap(), fleet_plots(&reports).unwrap())
    };
    let once = print(1);
    assert_eq!(once, print(2));
    assert_eq!(once.0.len(), 1 + 2 * (2 + 2));
    assert_eq!(
        once.3.iter().map(|plot| plot.0).collect::<Vec<_>>(),
        ["regret-by-nodes", "regret-by-delay", "bans-by-nodes", "bans-by-delay"]
    );
    assert!(once.2.contains("<svg") && !once.2.contains("<script"));
}

#[test]
fn a_fleet_of_one_node_equals_a_single_policy() {
    let world = small(2000, 80);
    let alone = simulate(
        &world,
        &[NamedPolicy::by_name("default").unwrap()],
        &[4],
        &SimulateOptions::default(),
    )
    .unwrap();
    let fleet = run(&world, &[4], &[2], &[2], 0);
    assert_eq!(fleet[0].topology, "one");
    assert_eq!((fleet[0].regret, fleet[0].bans_per_1k), (alone[0].regret, alone[0].bans_per_1k));
    assert_eq!((fleet[0].regret_ratio, fleet[0].messages_per_1k), (1.0, None));
}

#[test]
fn sharing_nodes_are_near_one_node_and_independent_nodes_are_not() {
    let reports = run(&small(6000, 75), &[1], &[10], &[2, 3600], 0);
    let (one, apart, sites) = (by(&reports, "one"), by(&reports, "apart"), by(&reports, "sites"));
    let late = reports.iter().find(|report| report.delay_s == Some(3600.0)).unwrap();
    let soon = by(&reports, "sharing");
    assert!(apart.regret > 1.5 * one.regret, "{} against {}", apart.regret, one.regret);
    assert!(soon.regret < 0.6 * apart.regret, "{} against {}", soon.regret, apart.regret);
    assert!(sites.regret < 0.8 * apart.regret, "{} against {}", sites.regret, apart.regret);
    assert!(
        soon.bans_per_1k <= late.bans_per_1k,
        "{} against {}",
        soon.bans_per_1k,
        late.bans_per_1k
    );
    // Every attempt with evidence has travelled in messages of the real format.
    assert!(
        soon.bytes_per_attempt.unwrap() > 10.0 && soon.messages_per_1k.unwrap() > 100.0,
        "{soon:?}"
    );
}

#[test]
fn nodes_with_separate_addresses_are_banned_separately() {
    let world = small(4000, 40);
    let run = |egress| {
        let options = FleetOptions { nodes: vec![10], egress, ..FleetOptions::default() };
        simulate_fleet(&world, &NamedPolicy::by_name("default").unwrap(), &[1], &options).unwrap()
    };
    let (one, each) = (run(Egress::One), run(Egress::Each));
    assert!(by(&each, "apart").bans_per_1k < by(&one, "apart").bans_per_1k);
    assert_eq!(by(&each, "one").regret, by(&one, "one").regret);
}

#[test]
fn invalid_fleets_are_errors() {
    let options = FleetOptions { nodes: vec![2], ..FleetOptions::default() };
    let of = |name: &str, seeds: &[u64]| {
        simulate_fleet(&small(100, 5), &NamedPolicy::by_name(name).unwrap(), seeds, &options)
            .unwrap_err()
            .to_string()
    };
    assert!(of("oracle", &[1]).contains("learns"));
    assert!(of("default", &[]).contains("seeds"));
}
