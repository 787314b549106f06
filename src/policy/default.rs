//! The policy `default` and its two variants: rules 1 to 6 of the decision over Weitzman's index.

use std::cmp::Ordering;

use super::{Choice, Policy, View};
use crate::decision::Rule;
use crate::registry::PROBE_FETCHER;
use crate::score::{Scored, Specificity};

/// Decayed attempts on a domain from which on it has shown something of a fetcher.
const SHOWN_ATTEMPTS: f64 = 0.3;
/// Decayed attempts on a domain under which a fetcher is new there.
const NEW_ATTEMPTS: f64 = 0.9;

const DAY_S: f64 = 86_400.0;
/// A fetcher that failed on a domain is left alone there for so long, but for the configured share.
const LOOK_AGAIN_DAYS: f64 = 1.0;
/// What a block may lead to, in plain requests: the address comes nearer to a ban.
const BLOCK_RISK: f64 = 10.0;

/// What a draw is for: each has its own chance.
mod purpose {
    pub(super) const EXPLORE: u8 = 1;
    pub(super) const LAST_DITCH: u8 = 2;
}

/// The shipped policy.
#[derive(Clone, Copy, Debug)]
pub struct Default;

/// `default` without rule 2: confidence plays no part in the choice.
#[derive(Clone, Copy, Debug)]
pub struct Index;

/// `default` with the first attempt given to the cheapest confident candidate, else to the probe.
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
            true => best(view.eligible().filter(|c| is_shown(c, view)), |c| c.z).map(|c| (c, Rule::DomainConfident)),
            false => None,
        };
        first(view, choice.or_else(|| best(view.eligible(), |c| c.z).map(|c| (c, Rule::Index)))?)
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
        first(view, (best(view.eligible(), |c| c.z)?, Rule::Index))
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
        let confident = best(view.eligible().filter(|c| c.is_confident(view.settings)), |c| -c.spec.cost);
        let probe = || view.eligible().find(|c| &*c.spec.name == PROBE_FETCHER).map(|c| (c, Rule::ProbeFirst));
        let choice = confident.map(|c| (c, Rule::CheapestConfident)).or_else(probe);
        first(view, choice.or_else(|| best(view.eligible(), |c| c.z).map(|c| (c, Rule::Index)))?)
    }
}

/// Whether the candidate's confidence comes from this domain itself.
fn is_local(c: &Scored<'_>) -> bool {
    c.basis.is_some_and(|basis| matches!(basis.specificity, Specificity::Domain | Specificity::DomainPath))
}

/// Rule 2: whether a candidate stays in when another is confident on this domain.
fn is_shown(c: &Scored<'_>, view: &View<'_>) -> bool {
    c.domain_attempts > SHOWN_ATTEMPTS
        || c.is_confident(view.settings)
            && c.basis.is_some_and(|basis| matches!(basis.specificity, Specificity::Suffix | Specificity::Flag(_)))
}

/// The highest by `worth`; at a tie the cheaper one, then the one registered first.
fn best<'v, 'a: 'v>(
    candidates: impl Iterator<Item = &'v Scored<'a>>,
    worth: impl Fn(&Scored<'_>) -> f64,
) -> Option<&'v Scored<'a>> {
    candidates.reduce(|best, c| {
        let better = worth(c).total_cmp(&worth(best)).then(best.spec.cost.total_cmp(&c.spec.cost));
        if better == Ordering::Greater { c } else { best }
    })
}

/// Rule 5: a first attempt explores now and then, when a cheaper candidate looks best without this site's evidence.
fn first(view: &View<'_>, (chosen, rule): (&Scored<'_>, Rule)) -> Option<Choice> {
    let cheaper = best(view.candidates.iter().filter(|c| !c.tried), |c| c.z_general)
        .filter(|c| c.spec.cost < chosen.spec.cost && !c.open);
    let Some(other) = cheaper else { return Some(Choice { fetcher: chosen.id, rule, propensity: 1.0 }) };
    let explore = share_of_looks(view, chosen, other);
    Some(match view.chance(purpose::EXPLORE) < explore {
        true => Choice { fetcher: other.id, rule: Rule::Explore, propensity: explore },
        false => Choice { fetcher: chosen.id, rule, propensity: 1.0 - explore },
    })
}

/// How often a first attempt looks whether `other` works by now.
///
/// The configured share, and more when a second look is due: `other` failed here a day or longer ago. What a look costs
/// against what a change would save, at so many URLs a day, says how many looks a day are worth it (the square root of
/// their ratio, as for any inspection whose cost goes down with its number and whose delay goes up). They are taken when the
/// host has had a rest, the longer the likelier: in the middle of a burst a request too many is what gets an address banned.
fn share_of_looks(view: &View<'_>, chosen: &Scored<'_>, other: &Scored<'_>) -> f64 {
    let settings = view.settings;
    let least = settings.explore;
    let days_since = |second: u32| (view.now.as_millis() as f64 / 1000.0 - f64::from(second)).max(0.0) / DAY_S;
    if least <= 0.0 || other.domain_newest_s == 0 || days_since(other.domain_newest_s) < LOOK_AGAIN_DAYS {
        return least;
    }
    let newest = view.candidates.iter().map(|c| c.domain_newest_s).max().unwrap_or(0);
    let attempts: f64 = view.candidates.iter().map(|c| c.domain_attempts).sum();
    let saves = (other.z_general - chosen.z).max(0.0);
    let costs =
        other.spec.cost + (settings.blocked_cost + BLOCK_RISK) * other.b + other.spec.false_success * settings.value;
    if costs <= 0.0 {
        return least.max(settings.explore_most);
    }
    let looks_a_day = settings.explore_rested * (attempts * saves / costs).sqrt();
    least.max((looks_a_day * days_since(newest)).min(settings.explore_most))
}

/// Rule 3 after a failure: go on while it is worth it, and now and then a little longer.
fn later(view: &View<'_>) -> Option<Choice> {
    if view.attempts >= view.settings.max_attempts {
        return None;
    }
    let worth_it = if view.is_last() {
        best(view.eligible(), |c| c.u).filter(|c| c.u > 0.0).map(|c| (c, Rule::LastAttempt))
    } else {
        best(view.eligible(), |c| c.z).filter(|c| c.z > -view.settings.value).map(|c| (c, Rule::Index))
    };
    if let Some((chosen, rule)) = worth_it {
        return Some(Choice { fetcher: chosen.id, rule, propensity: 1.0 });
    }
    let last_ditch = view.settings.last_ditch;
    if view.chance(purpose::LAST_DITCH) >= last_ditch {
        return None;
    }
    let new_here =
        view.eligible().filter(|c| c.domain_attempts < NEW_ATTEMPTS && c.spec.cost < view.settings.value / 2.0);
    let cheapest = best(new_here, |c| -c.spec.cost)?;
    Some(Choice { fetcher: cheapest.id, rule: Rule::LastDitch, propensity: last_ditch })
}
