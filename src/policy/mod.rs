//! Policies: which candidate is taken, given the numbers of all of them. All policies share one trait; `default` and its variants
//! are in one file, `published` in another.
//!
//! A policy is asked through [`Policy::choose`] with a [`View`] and answers with a [`Choice`]. It must not read evidence, a clock or
//! random numbers from anywhere else, so that a replay of the log decides the same.

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

/// What a policy sees of one decision.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct View<'a> {
    /// All candidates, in order of registration.
    pub candidates: &'a [Scored<'a>],
    /// The constants.
    pub settings: &'a Settings,
    /// Attempts already made for this URL.
    pub attempts: u32,
    /// What the URL's last failure looked like.
    pub hint: Option<Hint>,
    /// The URL, without its fragment.
    pub url: &'a str,
    /// Attempts that counted on the domain so far, by any fetcher.
    pub domain_attempts: u32,
    /// The time of the decision.
    pub now: Timestamp,
    /// Whether the host has shown whose wall stands before it, and enough attempts behind that vendor have been made on other hosts to
    /// say who gets past it. Only looked at for a first attempt.
    pub behind_vendor: bool,
}

impl View<'_> {
    /// Whether this is the first attempt for the URL.
    pub fn is_first(&self) -> bool {
        self.attempts == 0
    }

    /// Whether this is the last attempt allowed.
    pub fn is_last(&self) -> bool {
        self.attempts + 1 >= self.settings.max_attempts
    }

    /// A number in [0, 1) that looks random but is the same at each replay: a hash of URL, domain attempts and `purpose`.
    pub fn chance(&self, purpose: u8) -> f64 {
        let seed = u64::from(self.domain_attempts) << 8 | u64::from(purpose);
        xxh3_64_with_seed(self.url.as_bytes(), seed) as f64 / 2f64.powi(64)
    }

    /// Eligibility: the candidates that may be taken. Those that were tried are left out, and those whose breaker is open, unless all
    /// others' are open too.
    pub fn eligible(&self) -> impl Iterator<Item = &Scored<'_>> + Clone {
        let all_open = !self.candidates.iter().any(|c| !c.tried && !c.open);
        self.candidates.iter().filter(move |c| !c.tried && (all_open || !c.open))
    }
}

/// What a policy answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The candidate.
    pub fetcher: FetcherId,
    /// By which rule.
    pub rule: Rule,
    /// The chance that this policy gives to this choice here.
    pub propensity: f64,
}

/// A way to choose.
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
    /// The name it is called by.
    fn name(&self) -> &str;

    /// Chooses, or gives up. Called for each attempt of a URL until content came.
    fn choose(&self, view: &View<'_>) -> Option<Choice>;

    /// Sees each attempt that is recorded, for a policy that keeps a memory of its own. At a start it sees every attempt that the
    /// log still has; those that were compacted away live on in evidence only.
    fn observe(&self, _attempt: &Attempt) {}

    /// Whether [`observe`](Self::observe) does anything: a start is faster when it does not.
    fn remembers(&self) -> bool {
        true
    }
}

/// A policy that somebody else holds on to as well.
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

/// The names that [`by_name`] knows.
pub const NAMES: [&str; 4] = ["default", "index", "confident", "published"];

/// The shipped policy called `name`.
///
/// # Errors
/// [`UnknownName`] names the policies there are.
pub fn by_name(name: &str) -> Result<Box<dyn Policy>, UnknownName> {
    match name {
        "default" => Ok(Box::new(Default)),
        "index" => Ok(Box::new(Index)),
        "confident" => Ok(Box::new(Confident)),
        "published" => Ok(Box::new(Published::default())),
        _ => Err(UnknownName::new("policy", name, NAMES)),
    }
}
