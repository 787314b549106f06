//! The policies of a simulation: those that run by name, and those of the caller.

use std::fmt;
use std::sync::Arc;

use super::baseline;
use super::error::SimulateError;
use crate::learning_baselines;
use fetchwise::policy::{self, Policy};
use fetchwise::registry::Class;
use fetchwise::selector::PortablePrior;

/// The names of the policies that can run by name.
pub const NAMES: [&str; 16] = [
    "default",
    "untagged",
    "index",
    "confident",
    "published",
    "oracle",
    "always_direct",
    "always_browser",
    "ladder",
    "hinted_ladder",
    "hinted_breaker",
    "smart",
    "crawlee",
    "tier_tracker",
    "webpeel",
    "one_probe",
];

/// A policy of a simulation, built again for each seed.
pub struct NamedPolicy {
    pub(crate) name: String,
    /// None for the oracle.
    pub(crate) make: Option<Box<dyn Fn() -> RunPolicy + Send + Sync>>,
}

/// Whether a URL is also fetched by the browser.
pub(crate) type Compares = Box<dyn Fn(&str) -> bool>;

/// A policy with the options of its run.
pub(crate) struct RunPolicy {
    pub(crate) policy: Box<dyn Policy>,
    /// Whether a URL that delivered content is also fetched by the browser, for comparison.
    pub(crate) compares: Option<Compares>,
    /// Whether host signals count.
    pub(crate) tags: bool,
    /// What another crawler has learned of no single host.
    pub(crate) priors: Vec<PortablePrior>,
}

impl fmt::Debug for NamedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedPolicy").field("name", &self.name).finish_non_exhaustive()
    }
}

impl NamedPolicy {
    /// Returns the shipped policy, the baseline, or the oracle called `name`.
    ///
    /// # Errors
    /// [`SimulateError::UnknownPolicy`] lists the known names.
    pub fn by_name(name: &str) -> Result<Self, SimulateError> {
        let always = |name, class| baseline::Always { name, class };
        let ladder = |name, hints, breaker| baseline::Ladder { name, hints, breaker };
        Ok(match name {
            "oracle" => Self { name: name.to_owned(), make: None },
            "always_direct" => {
                Self::new(name, move || Box::new(always("always_direct", Class::Plain)))
            }
            "always_browser" => {
                Self::new(name, move || Box::new(always("always_browser", Class::Rendering)))
            }
            "ladder" => Self::new(name, move || Box::new(ladder("ladder", false, false))),
            "hinted_ladder" => {
                Self::new(name, move || Box::new(ladder("hinted_ladder", true, false)))
            }
            "hinted_breaker" => {
                Self::new(name, move || Box::new(ladder("hinted_breaker", true, true)))
            }
            "smart" => Self::new(name, || Box::new(baseline::Smart)),
            "tier_tracker" => {
                Self::new(name, || Box::new(learning_baselines::TierTracker::default()))
            }
            "webpeel" => Self::new(name, || Box::new(learning_baselines::WebPeel::default())),
            "one_probe" => Self::new(name, || Box::new(learning_baselines::OneProbe::default())),
            "untagged" => Self { name: name.to_owned(), make: Some(Box::new(untagged)) },
            "crawlee" => Self { name: name.to_owned(), make: Some(Box::new(crawlee)) },
            _ => {
                let unknown =
                    || SimulateError::UnknownPolicy { name: name.to_owned(), known: &NAMES };
                policy::by_name(name).map_err(|_| unknown())?;
                let owned = name.to_owned();
                Self::new(name, move || {
                    policy::by_name(&owned).unwrap_or_else(|_| Box::new(policy::Default))
                })
            }
        })
    }

    /// Returns a policy of the caller; `make` is called once per seed.
    pub fn new(name: &str, make: impl Fn() -> Box<dyn Policy> + Send + Sync + 'static) -> Self {
        let player =
            move || RunPolicy { policy: make(), compares: None, tags: true, priors: Vec::new() };
        Self { name: name.to_owned(), make: Some(Box::new(player)) }
    }

    /// Returns the default policy of a crawler that starts with `priors`, under the name `warm`.
    pub fn warm(priors: Vec<PortablePrior>) -> Self {
        let make = move || RunPolicy {
            policy: Box::new(policy::Default),
            compares: None,
            tags: true,
            priors: priors.clone(),
        };
        Self { name: "warm".to_owned(), make: Some(Box::new(make)) }
    }

    /// Returns the name in results.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Returns `default` without host signals.
fn untagged() -> RunPolicy {
    RunPolicy { policy: Box::new(policy::Default), compares: None, tags: false, priors: Vec::new() }
}

fn crawlee() -> RunPolicy {
    let crawlee = Arc::new(learning_baselines::Crawlee::default());
    let asked = Arc::clone(&crawlee);
    let compares: Compares = Box::new(move |url| asked.compares(url));
    RunPolicy {
        policy: Box::new(crawlee),
        compares: Some(compares),
        tags: true,
        priors: Vec::new(),
    }
}
