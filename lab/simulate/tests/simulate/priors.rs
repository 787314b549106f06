//! Portable priors: a crawler that starts with what another one has learned in another web.

use fetchwise::selector::PortablePrior;
use fetchwise_simulate::{NamedPolicy, SHIPPED, SimulateOptions, World, learn_priors, simulate};

/// A shipped world of another size.
fn resized(name: &str, sites: usize, urls: usize) -> World {
    let text = SHIPPED
        .iter()
        .chain(&fetchwise_simulate::MORE)
        .find(|(known, _)| *known == name)
        .unwrap()
        .1;
    let mut text = text.to_owned();
    for (key, value) in [("urls", urls), ("sites", sites)] {
        let line =
            text.lines().find(|line| line.starts_with(&format!("{key} = "))).unwrap().to_owned();
        text = text.replacen(&line, &format!("{key} = {value}"), 1);
    }
    World::parse(&text, name).unwrap()
}

/// Returns the cold regret with priors as a share of that without, over equal seeds.
fn cold_regret_ratio(world: &World, priors: &[PortablePrior]) -> f64 {
    let policies = [NamedPolicy::by_name("default").unwrap(), NamedPolicy::warm(priors.to_vec())];
    let seeds: Vec<u64> = (7001..=7006).collect();
    let reports = simulate(world, &policies, &seeds, &SimulateOptions::default()).unwrap();
    reports[1].cold_regret / reports[0].cold_regret
}

/// A crawler that was trained in one web starts in another one with the same vendors, and in one
/// with other settings and another vendor. The rest of its cold regret is what only the hosts
/// themselves can tell: "A start with priors" in `docs/reports/simulator.md` has the measurement.
#[test]
fn priors_from_another_web_lower_the_cold_regret_of_a_start() {
    let priors = learn_priors(&resized("V1", 800, 20_000), 1).unwrap();
    assert!(
        priors.iter().any(|prior| prior.kind == "host_showed" && prior.value == "block_cloudflare")
    );
    assert!(priors.iter().all(|prior| prior.samples <= PortablePrior::max_samples(&prior.kind)));
    for (name, most) in [("V2", 0.8), ("V3", 0.82)] {
        let ratio = cold_regret_ratio(&resized(name, 300, 900), &priors);
        println!("V1 -> {name}: {ratio:.3}");
        assert!(ratio < most, "{name}: {ratio:.3}");
    }
    // A web without vendors, most of whose sites are protected: what it was not made for, it does
    // not harm.
    let ratio = cold_regret_ratio(&resized("W3", 300, 900), &priors);
    println!("V1 -> W3: {ratio:.3}");
    assert!(ratio < 1.0, "W3: {ratio:.3}");
}
