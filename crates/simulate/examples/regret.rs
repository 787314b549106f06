use fetchwise_simulate::*;
fn main() {
    let seeds: Vec<u64> = std::env::args().nth(1).unwrap().split(',').map(|s| s.parse().unwrap()).collect();
    let names = ["W1", "W2", "W3", "W4", "W5", "W6", "W7", "V1", "V2", "V3", "V4"];
    let mut sum = (0.0, 0.0);
    for name in names {
        let (_, text) =
            SHIPPED.iter().chain(MORE.iter()).find(|(n, _)| n.starts_with(name)).unwrap_or_else(|| panic!("{name}"));
        let world = World::parse(text, name).unwrap();
        let reports =
            simulate(&world, &[NamedPolicy::by_name("default").unwrap()], &seeds, &SimulateOptions::default()).unwrap();
        let r = reports.iter().find(|r| r.policy == "default").unwrap();
        println!("{name} {:.4} sd {:.3} cold {:.3} bans {:.3}", r.regret, r.regret_sd, r.cold_regret, r.bans_per_1k);
        sum.0 += r.regret;
        sum.1 += r.cold_regret;
    }
    println!("mean {:.4} cold {:.4}", sum.0 / 11.0, sum.1 / 11.0);
}
