//! Policies: the choice among candidates, given the numbers of all of them.
//!
//! All policies share one trait; `default` and its variants are in one file, `published` in
//! another. The selector calls [`Policy::choose`] with a [`View`] and gets a [`Choice`].
//!
//! Must not know: evidence, the clock or random numbers other than those of the view, so that a
//! replay of the log decides the same.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::score::{Scored, Settings};
use fetchwise_types::attempt::{Attempt, Hint};
use fetchwise_types::decision::Rule;
use fetchwise_types::registry::FetcherId;
use fetchwise_types::time::Timestamp;
use fetchwise_types::unknown_name::UnknownName;

mod default;
mod published;

pub use default::{Confident, Default, Index};
pub use published::Published;

/// The input of one decision of a policy.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct View<'a> {
    /// All candidates, in order of registration.
    pub candidates: &'a [Scored<'a>],
    /// The constants.
    pub settings: &'a Settings,
    /// Attempts already made for this URL.
    pub attempts: u32,
    /// The hint from the URL's last failure.
    pub hint: Option<Hint>,
    /// The URL, without its fragment.
    pub url: &'a str,
    /// Attempts that counted on the domain so far, by any fetcher.
    pub domain_attempts: u32,
    /// The time of the decision.
    pub now: Timestamp,
    /// Whether the host's vendor is known, and enough attempts behind that vendor on other hosts
    /// show which fetchers succeed. Only set for a first attempt.
    pub behind_vendor: bool,
}

impl View<'_> {
    /// Returns whether this is the first attempt for the URL.
    pub fn is_first(&self) -> bool {
        self.attempts == 0
    }

    /// Returns whether this is the last attempt allowed.
    pub fn is_last(&self) -> bool {
        self.attempts + 1 >= self.settings.max_attempts
    }

    /// Returns a pseudo-random number in [0, 1) that is the same at each replay: a hash of URL,
    /// domain attempts and `purpose`.
    pub fn chance(&self, purpose: u8) -> f64 {
        let seed = u64::from(self.domain_attempts) << 8 | u64::from(purpose);
        xxh3_64_with_seed(self.url.as_bytes(), seed) as f64 / 2f64.powi(64)
    }

    /// Eligibility: returns the candidates that may be taken. Tried candidates are left out, and so
    /// are those with an open breaker, unless all others are open too.
    pub fn eligible(&self) -> impl Iterator<Item = &Scored<'_>> + Clone {
        let all_open = !self.candidates.iter().any(|c| !c.tried && !c.open);
        self.candidates.iter().filter(move |c| !c.tried && (all_open || !c.open))
    }
}

/// The result of a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The candidate.
    pub fetcher: FetcherId,
    /// The rule that selected it.
    pub rule: Rule,
    /// The probability with which this policy makes this choice here.
    pub propensity: f64,
}

/// A decision policy.
///
/// ```
/// use fetchwise::decision::Rule;
/// use fetchwise::policy::{Choice, Policy, View};
///
/// /// Always the cheapest that has not been tried.
/// struct Cheapest;
/// impl Policy for Cheapest {
///     fn name(&self) -> &str {
///         "cheapest"
///     }
///     fn choose(&self, view: &View<'_>) -> Option<Choice> {
///         let cheapest = view.eligible().min_by(|a, b| a.spec.cost.total_cmp(&b.spec.cost))?;
///         Some(Choice { fetcher: cheapest.id, rule: Rule::Custom, propensity: 1.0 })
///     }
/// }
/// ```
pub trait Policy: Send + Sync {
    /// Returns the policy's name.
    fn name(&self) -> &str;

    /// Chooses a candidate, or gives up. Called for each attempt of a URL until content is
    /// delivered.
    fn choose(&self, view: &View<'_>) -> Option<Choice>;

    /// Receives each recorded attempt, for a policy with its own state. At startup it receives
    /// every attempt that the log still has; compacted attempts remain in evidence only.
    fn observe(&self, _attempt: &Attempt) {}

    /// Returns whether [`observe`](Self::observe) does anything: startup is faster if it does not.
    fn remembers(&self) -> bool {
        true
    }
}

/// A shared policy.
impl<P: Policy + ?Sized> Policy for Arc<P> {
    fn name(&self) -> &str {
        P::name(self)
    }

    fn choose(&self, view: &View<'_>) -> Option<Choice> {
        P::choose(self, view)
    }

    fn observe(&self, attempt: &Attempt) {
        P::observe(self, attempt);
    }

    fn remembers(&self) -> bool {
        P::remembers(self)
    }
}

/// The names that [`by_name`] accepts.
pub const NAMES: [&str; 4] = ["default", "index", "confident", "published"];

/// Returns the shipped policy called `name`.
///
/// # Errors
/// [`UnknownName`] lists the valid names.
pub fn by_name(name: &str) -> Result<Box<dyn Policy>, UnknownName> {
    match name {
        "default" => Ok(Box::new(Default)),
        "index" => Ok(Box::new(Index)),
        "confident" => Ok(Box::new(Confident)),
        "published" => Ok(Box::new(Published::default())),
        _ => Err(UnknownName::new("policy", name, NAMES)),
    }
}
