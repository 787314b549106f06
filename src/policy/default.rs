//! The policy `default` and its two variants: which candidate Weitzman's index selects, and when
//! another one is tried.
//!
//! `docs/concepts/decisions.md` describes the rules by their names: eligibility, domain confidence,
//! best index, last attempt, exploration, last-ditch try.
//!
//! Must not know: anything outside the [`View`].

use std::cmp::Ordering;

use super::{Choice, Policy, View};
use crate::score::{Scored, Specificity};
use fetchwise_types::decision::Rule;

/// Decayed attempts on a domain above which a fetcher has evidence there.
const EVIDENCE_ATTEMPTS: f64 = 0.3;
/// Decayed attempts on a domain below which a fetcher is new there.
const NEW_ATTEMPTS: f64 = 0.9;

const DAY_S: f64 = 86_400.0;
/// Days after a failure on a domain before a fetcher is explored there more than the configured
/// rate.
const EXPLORE_AGAIN_DAYS: f64 = 1.0;
/// The expected long-term cost of a block, in plain requests, because it brings the address closer
/// to a ban.
const BLOCK_RISK: f64 = 10.0;

/// Purposes of random numbers, so that one draw does not depend on another.
mod purpose {
    pub(super) const EXPLORE: u8 = 1;
    pub(super) const LAST_DITCH: u8 = 2;
    pub(super) const IMPASSABLE_TRY: u8 = 3;
}

/// The shipped policy.
#[derive(Clone, Copy, Debug)]
pub struct Default;

/// The policy `default` without domain confidence: the best index always goes first.
#[derive(Clone, Copy, Debug)]
pub struct Index;

/// The policy `default` with the first attempt given to the cheapest confident candidate, else to
/// the probe.
#[derive(Clone, Copy, Debug)]
pub struct Confident;

impl Policy for Default {
    fn name(&self) -> &str {
        "default"
    }

    fn remembers(&self) -> bool {
        false
    }

    fn choose(&self, view: &View<'_>) -> Option<Choice> {
        if !view.is_first() {
            return later(view);
        }
        let sure = view.eligible().any(|c| c.is_confident(view.settings) && is_local(c));
        let choice = match sure {
            true => best(view.eligible().filter(|c| stays_eligible(c, view)), |c| c.index)
                .map(|c| (c, Rule::DomainConfident)),
            false => None,
        };
        first(
            view,
            choice.or_else(|| best(view.eligible(), |c| c.index).map(|c| (c, Rule::Index)))?,
        )
    }
}

impl Policy for Index {
    fn name(&self) -> &str {
        "index"
    }

    fn remembers(&self) -> bool {
        false
    }

    fn choose(&self, view: &View<'_>) -> Option<Choice> {
        if !view.is_first() {
            return later(view);
        }
        first(view, (best(view.eligible(), |c| c.index)?, Rule::Index))
    }
}

impl Policy for Confident {
    fn name(&self) -> &str {
        "confident"
    }

    fn remembers(&self) -> bool {
        false
    }

    fn choose(&self, view: &View<'_>) -> Option<Choice> {
        if !view.is_first() {
            return later(view);
        }
        let confident =
            best(view.eligible().filter(|c| c.is_confident(view.settings)), |c| -c.cost);
        let probe = || view.eligible().find(|c| c.is_probe).map(|c| (c, Rule::ProbeFirst));
        let choice = confident.map(|c| (c, Rule::CheapestConfident)).or_else(probe);
        first(
            view,
            choice.or_else(|| best(view.eligible(), |c| c.index).map(|c| (c, Rule::Index)))?,
        )
    }
}

/// Returns whether the candidate's confidence comes from this domain itself.
fn is_local(c: &Scored<'_>) -> bool {
    c.basis.is_some_and(|basis| {
        matches!(basis.specificity, Specificity::Domain | Specificity::DomainPath)
    })
}

/// Domain confidence: returns whether a candidate remains eligible when another one is confident on
/// this domain.
fn stays_eligible(c: &Scored<'_>, view: &View<'_>) -> bool {
    c.domain_attempts > EVIDENCE_ATTEMPTS
        || c.is_confident(view.settings)
            && c.basis.is_some_and(|basis| {
                matches!(basis.specificity, Specificity::Suffix | Specificity::Flag(_))
            })
}

/// Returns the candidate with the highest `worth`; at a tie the cheaper one, then the one
/// registered first.
fn best<'v, 'a: 'v>(
    candidates: impl Iterator<Item = &'v Scored<'a>>,
    worth: impl Fn(&Scored<'_>) -> f64,
) -> Option<&'v Scored<'a>> {
    candidates.reduce(|best, c| {
        let better = worth(c).total_cmp(&worth(best)).then(best.cost.total_cmp(&c.cost));
        if better == Ordering::Greater { c } else { best }
    })
}

/// Exploration: occasionally gives a first attempt to a cheaper candidate, if that one looks best
/// without this site's evidence.
fn first(view: &View<'_>, (chosen, rule): (&Scored<'_>, Rule)) -> Option<Choice> {
    if view.behind_vendor && chosen.index <= -view.settings.page_value {
        return give_up_or_try(view, chosen);
    }
    if let Some(other) = second_look(view, chosen) {
        return Some(Choice { fetcher: other.id, rule: Rule::Explore, propensity: 1.0 });
    }
    let cheaper = best(view.candidates.iter().filter(|c| !c.tried), |c| c.general_index)
        .filter(|c| c.cost < chosen.cost && !c.open);
    let Some(other) = cheaper else {
        return Some(Choice { fetcher: chosen.id, rule, propensity: 1.0 });
    };
    let explore = explore_share(view, chosen, other);
    Some(match view.chance(purpose::EXPLORE) < explore {
        true => Choice { fetcher: other.id, rule: Rule::Explore, propensity: explore },
        false => Choice { fetcher: chosen.id, rule, propensity: 1.0 - explore },
    })
}

/// Second look: returns the cheapest candidate whose only failures here say little, if the chosen
/// one delivers: the host may have been down before.
fn second_look<'v>(view: &'v View<'_>, chosen: &Scored<'_>) -> Option<&'v Scored<'v>> {
    let may_look = chosen.has_delivered_here && view.settings.explore_rate > 0.0;
    let failed = view.eligible().filter(|c| c.is_hardly_tried_here && c.cost < chosen.cost);
    best(failed, |c| -c.cost)
        .filter(|c| may_look && days_since(view, c.domain_newest_s) < EXPLORE_AGAIN_DAYS)
}

fn days_since(view: &View<'_>, second: u32) -> f64 {
    (view.now.as_millis() as f64 / 1000.0 - f64::from(second)).max(0.0) / DAY_S
}

/// Giving up: behind this vendor no fetcher is worth even a first attempt. The best one is still
/// tried occasionally, to learn when the vendor changes its policy.
fn give_up_or_try(view: &View<'_>, best: &Scored<'_>) -> Option<Choice> {
    let share = view.settings.impassable_try_rate;
    (view.chance(purpose::IMPASSABLE_TRY) < share).then_some(Choice {
        fetcher: best.id,
        rule: Rule::ImpassableTry,
        propensity: share,
    })
}

/// Returns the fraction of first attempts that explore whether `other` works by now.
///
/// It is the configured rate, and higher once a day has passed since `other` was last tried here.
/// The number of tries per day follows from the cost of one and from the savings that a change
/// would bring at the host's number of URLs per day. It is the square root of their ratio, as for
/// any inspection that costs more when it is frequent and finds a change later when it is rare.
///
/// Tries happen after the host had a pause, and the likelier the longer it was, because an
/// additional request in the middle of a burst may get an address banned.
fn explore_share(view: &View<'_>, chosen: &Scored<'_>, other: &Scored<'_>) -> f64 {
    let settings = view.settings;
    let least = settings.explore_rate;
    if least <= 0.0
        || other.domain_newest_s == 0
        || days_since(view, other.domain_newest_s) < EXPLORE_AGAIN_DAYS
    {
        return least;
    }
    let newest = view.candidates.iter().map(|c| c.domain_newest_s).max().unwrap_or(0);
    let attempts: f64 = view.candidates.iter().map(|c| c.domain_attempts).sum();
    let saves = (other.general_index - chosen.index).max(0.0);
    let costs = other.cost
        + (settings.blocked_cost + BLOCK_RISK) * other.block
        + other.spec.false_success * settings.page_value;
    if costs <= 0.0 {
        return least.max(settings.max_explore_rate);
    }
    let tries_a_day = settings.explore_stale_rate * (attempts * saves / costs).sqrt();
    least.max((tries_a_day * days_since(view, newest)).min(settings.max_explore_rate))
}

/// After a failure: takes the best index or the last attempt while that is worth its cost, else
/// occasionally a last-ditch try.
fn later(view: &View<'_>) -> Option<Choice> {
    if view.attempts >= view.settings.max_attempts {
        return None;
    }
    let worth_it = if view.is_last() {
        best(view.eligible(), |c| c.last_worth)
            .filter(|c| c.last_worth > 0.0)
            .map(|c| (c, Rule::LastAttempt))
    } else {
        best(view.eligible(), |c| c.index)
            .filter(|c| c.index > -view.settings.page_value)
            .map(|c| (c, Rule::Index))
    };
    if let Some((chosen, rule)) = worth_it {
        return Some(Choice { fetcher: chosen.id, rule, propensity: 1.0 });
    }
    let last_ditch = view.settings.last_ditch;
    if view.chance(purpose::LAST_DITCH) >= last_ditch {
        return None;
    }
    let new_here = view
        .eligible()
        .filter(|c| c.domain_attempts < NEW_ATTEMPTS && c.cost < view.settings.page_value / 2.0);
    let cheapest = best(new_here, |c| -c.cost)?;
    Some(Choice { fetcher: cheapest.id, rule: Rule::LastDitch, propensity: last_ditch })
}
