//! A custom policy, compared with the shipped ones in a simulated world.
//!
//! `cargo run -p fetchwise-simulate --example custom_policy`

use fetchwise::decision::Rule;
use fetchwise::policy::{Choice, Policy, View};
use fetchwise::score::Scored;
use fetchwise_simulate::{NamedPolicy, SHIPPED, SimulateOptions, World, simulate, table};

/// Never pays for a browser if a plain request has a fair chance, whatever the index says.
struct Frugal {
    fair_chance: f64,
}

impl Policy for Frugal {
    fn name(&self) -> &str {
        "frugal"
    }

    fn choose(&self, view: &View<'_>) -> Option<Choice> {
        if view.attempts >= view.settings.max_attempts {
            return None;
        }
        let take = |c: &Scored<'_>| Choice { fetcher: c.id, rule: Rule::Custom, propensity: 1.0 };
        let fair = view.eligible().filter(|c| c.success >= self.fair_chance);
        let cheapest = fair.min_by(|a, b| a.spec.cost.total_cmp(&b.spec.cost));
        // No fetcher has a fair chance: the best by the index, while that is worth it.
        let best =
            || view.eligible().filter(|c| c.index > 0.0).max_by(|a, b| a.index.total_cmp(&b.index));
        cheapest.or_else(best).map(take)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut policies: Vec<NamedPolicy> =
        ["default", "ladder"].into_iter().map(NamedPolicy::by_name).collect::<Result<_, _>>()?;
    for fair_chance in [0.3, 0.8] {
        let name = format!("frugal {fair_chance}");
        policies.push(NamedPolicy::new(&name, move || Box::new(Frugal { fair_chance })));
    }
    let world = World { sites: 200, urls: 5_000, ..World::parse(SHIPPED[0].1, "W1")? };
    print!("{}", table(&simulate(&world, &policies, &[1], &SimulateOptions::default())?));
    Ok(())
}
