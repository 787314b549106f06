//! Baselines that do not learn: the behaviour of other crawlers, as policies that decide by one
//! URL.
//!
//! Invariants: nothing is remembered from one URL to the next. Baselines with a memory are in
//! `learning_baselines`.

use fetchwise::attempt::Hint;
use fetchwise::decision::Rule;
use fetchwise::policy::{Choice, Policy, View};
use fetchwise::registry::Class;
use fetchwise::score::Scored;

/// Returns the choice of a baseline.
pub(super) fn choice(c: &Scored<'_>) -> Choice {
    Choice { fetcher: c.id, rule: Rule::Custom, propensity: 1.0 }
}

/// Returns the first untried candidate of `class`.
pub(super) fn untried(view: &View<'_>, class: Class) -> Option<Choice> {
    view.candidates.iter().find(|c| !c.tried && c.spec.class == class).map(choice)
}

/// One fetcher for every URL, once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Always {
    pub(super) name: &'static str,
    pub(super) class: Class,
}

impl Policy for Always {
    fn name(&self) -> &str {
        self.name
    }

    fn choose(&self, view: &View<'_>) -> Option<Choice> {
        if view.is_first() { untried(view, self.class) } else { None }
    }
}

/// The fixed order of a crawler without memory.
const ORDER: [Class; 4] = [Class::Plain, Class::Rendering, Class::Stealth, Class::Archive];

/// Climbs from direct requests to the browser, stealth and the archive. With hints, it skips the
/// browser after a recognised block. With a breaker, it skips fetchers that a domain keeps
/// blocking.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ladder {
    pub(super) name: &'static str,
    pub(super) hints: bool,
    pub(super) breaker: bool,
}

impl Policy for Ladder {
    fn name(&self) -> &str {
        self.name
    }

    fn choose(&self, view: &View<'_>) -> Option<Choice> {
        if view.attempts >= view.settings.max_attempts {
            return None;
        }
        let skips_browser = self.hints && view.hint == Some(Hint::Blocked);
        let all_open = !view.eligible().any(|c| !c.open);
        let usable = |c: &&Scored<'_>| !c.tried && (!self.breaker || all_open || !c.open);
        let step = |class| view.candidates.iter().filter(usable).find(|c| c.spec.class == class);
        let mut steps =
            ORDER.into_iter().filter(|class| !(skips_browser && *class == Class::Rendering));
        steps.find_map(step).map(choice)
    }
}

/// Starts with the plain request; after a shell, an empty page or a block, the browser follows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Smart;

impl Policy for Smart {
    fn name(&self) -> &str {
        "smart"
    }

    fn choose(&self, view: &View<'_>) -> Option<Choice> {
        match (view.attempts, view.hint) {
            (0, _) => untried(view, Class::Plain),
            (1, Some(Hint::Blocked | Hint::Empty)) => untried(view, Class::Rendering),
            _ => None,
        }
    }
}
