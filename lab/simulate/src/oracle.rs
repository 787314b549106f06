//! The oracle: knows the probabilities of every fetcher for a URL and whether its host has banned
//! the crawler, but not the random outcomes. No policy can beat it by learning, only by luck or by
//! foresight about bans.
//!
//! It tries every order of at most this number of fetchers and keeps the one of the highest
//! expected value. An order that ends early gives up there.

use std::collections::HashMap;

use super::world::World;
use crate::environment::{Condition, Probabilities, Tool};

/// The best orders of one world, computed on first use.
pub(crate) struct Oracle<'w> {
    world: &'w World,
    tools: &'w [Tool],
    orders: HashMap<Condition, Vec<usize>>,
}

/// One fetcher under one condition, for the search.
struct Try {
    success: f64,
    deceived: f64,
    cost: f64,
    /// The cost for a dead URL.
    cost_dead: f64,
    worth: f64,
    shut_out: bool,
}

impl<'w> Oracle<'w> {
    pub(crate) fn new(world: &'w World, tools: &'w [Tool]) -> Self {
        Self { world, tools, orders: HashMap::new() }
    }

    /// Returns the best order under `condition`.
    pub(crate) fn order(&mut self, condition: &Condition) -> &[usize] {
        let (world, tools) = (self.world, self.tools);
        self.orders.entry(*condition).or_insert_with(|| search(world, tools, condition).0)
    }
}

/// Returns the best order and its expected value.
pub(crate) fn search(world: &World, tools: &[Tool], condition: &Condition) -> (Vec<usize>, f64) {
    let tries: Vec<Try> = tools
        .iter()
        .map(|tool| {
            let chances = Probabilities::of(world, tool, condition);
            let (success, blocked, deceived) = chances.ends();
            Try {
                success,
                deceived,
                cost: tool.cost + world.blocked_cost * blocked,
                cost_dead: tool.cost + if chances.shut_out { world.blocked_cost } else { 0.0 },
                worth: tool.quality * world.value,
                shut_out: chances.shut_out,
            }
        })
        .collect();
    let mut search = Search { world, tries: &tries, order: Vec::new(), best: (Vec::new(), 0.0) };
    search.extend(1.0, 1.0, 0.0);
    search.best
}

struct Search<'s> {
    world: &'s World,
    tries: &'s [Try],
    order: Vec<usize>,
    best: (Vec<usize>, f64),
}

impl Search<'_> {
    /// Tries every continuation. `alive` is the probability that a live URL gets here without
    /// having ended, `unknown` the same for a dead one, and `worth` the value so far.
    fn extend(&mut self, alive: f64, unknown: f64, worth: f64) {
        if worth > self.best.1 {
            self.best = (self.order.clone(), worth);
        }
        if self.order.len() >= self.world.max_attempts as usize {
            return;
        }
        let dead = self.world.dead;
        for place in 0..self.tries.len() {
            if self.order.contains(&place) {
                continue;
            }
            let this = &self.tries[place];
            let of_live = this.worth * this.success
                - self.world.false_success_cost * this.deceived
                - this.cost;
            // A dead URL is recognised at the first try that is not shut out.
            let more = (1.0 - dead) * alive * of_live - dead * unknown * this.cost_dead;
            let left = alive * (1.0 - this.success - this.deceived);
            self.order.push(place);
            self.extend(left, if this.shut_out { unknown } else { 0.0 }, worth + more);
            self.order.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SHIPPED;
    use crate::world::{Protection, Render};

    fn order(render: Render, protection: Protection, banned: bool) -> (Vec<usize>, f64) {
        let world = World::parse(SHIPPED[0].1, "test").unwrap();
        let tools = Tool::all(&world);
        search(
            &world,
            &tools,
            &Condition { render, protection, vendor_block: None, flaky: false, banned },
        )
    }

    #[test]
    fn the_best_first_fetcher_is_the_obvious_one() {
        for (render, protection, first) in [
            (Render::Static, Protection::None, 0),
            (Render::Spa, Protection::Rate, 1),
            (Render::Static, Protection::Captcha, 2),
            (Render::Video, Protection::None, 4),
            (Render::File, Protection::None, 0),
        ] {
            assert_eq!(order(render, protection, false).0[0], first, "{render:?} {protection:?}");
        }
    }

    #[test]
    fn a_ban_excludes_fetchers_and_lowers_the_value() {
        let (banned, worth) = order(Render::Static, Protection::Rate, true);
        assert!(banned.iter().all(|place| [2, 3].contains(place)), "{banned:?}");
        assert!(worth < order(Render::Static, Protection::Rate, false).1);
    }

    #[test]
    fn no_order_is_longer_than_the_attempts_allowed() {
        assert!(order(Render::Spa, Protection::Fortress, false).0.len() <= 4);
    }
}
