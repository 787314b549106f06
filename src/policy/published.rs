//! The policy `published`: the seeds' formula to the letter, for comparison with the others.
//!
//! Of all attempts that share any heuristic with the URL it takes, per fetcher, decayed successes over the undecayed count.
//! An exact union needs each attempt's whole set of heuristics, so this policy keeps counters per combination of them and
//! scans those. Not for the hot path: it locks, and its cost grows with the number of combinations.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use url::Url;

use super::{Choice, Policy, View};
use crate::attempt::Attempt;
use crate::decision::Rule;
use crate::heuristic::url::UrlFeatures;
use crate::registry::PROBE_FETCHER;
use crate::score::confidence;
use crate::time::Timestamp;

/// The seeds' minimum of attempts.
const MIN_SAMPLE: f64 = 5.0;
/// The seeds' half-life.
const HALF_LIFE_MS: f64 = 30.0 * 86_400_000.0;

/// The published formula over an exact union.
#[derive(Debug, Default)]
pub struct Published {
    memory: Mutex<Memory>,
}

#[derive(Debug, Default)]
struct Memory {
    /// The time that masses refer to.
    landmark: Option<Timestamp>,
    combinations: HashMap<Vec<String>, HashMap<String, Counts>>,
    /// Which combinations a heuristic is part of.
    with: HashMap<String, Vec<Vec<String>>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    success: f64,
    attempts: f64,
}

/// The pre-fetch types of the published extractor.
fn is_queried(kind: &str) -> bool {
    matches!(kind, "domain" | "suffix" | "path_depth") || kind.starts_with("contains_")
}

fn name_of(kind: &str, value: &str) -> String {
    format!("{kind}={value}")
}

impl Memory {
    fn weight(&self, at: Timestamp) -> f64 {
        let landmark = self.landmark.unwrap_or(at);
        (at.as_millis().saturating_sub(landmark.as_millis()) as f64 / HALF_LIFE_MS).clamp(-900.0, 900.0).exp2()
    }

    fn add(&mut self, attempt: &Attempt) {
        self.landmark.get_or_insert(attempt.attempted_at);
        let mut combination: Vec<String> = attempt
            .heuristics
            .iter()
            .filter(|tag| is_queried(&tag.heuristic.kind))
            .map(|tag| name_of(&tag.heuristic.kind, &tag.heuristic.value))
            .collect();
        combination.sort_unstable();
        combination.dedup();
        let success = if attempt.success { self.weight(attempt.attempted_at) } else { 0.0 };
        if !self.combinations.contains_key(&combination) {
            for name in &combination {
                self.with.entry(name.clone()).or_default().push(combination.clone());
            }
        }
        let counts = self.combinations.entry(combination).or_default().entry(attempt.fetcher.clone()).or_default();
        counts.success += success;
        counts.attempts += 1.0;
    }

    /// Successes and attempts per fetcher over the union of all attempts that share a heuristic with `names`.
    fn union(&self, names: &[String], now: Timestamp) -> HashMap<&str, Counts> {
        let decay = 1.0 / self.weight(now);
        let mut sums: HashMap<&str, Counts> = HashMap::new();
        for (place, name) in names.iter().enumerate() {
            for combination in self.with.get(name).into_iter().flatten() {
                // Each combination counts once: at the first of the URL's heuristics that it holds.
                if names[..place].iter().any(|earlier| combination.contains(earlier)) {
                    continue;
                }
                for (fetcher, counts) in self.combinations.get(combination).into_iter().flatten() {
                    let sum = sums.entry(fetcher).or_default();
                    sum.success += counts.success * decay;
                    sum.attempts += counts.attempts;
                }
            }
        }
        sums
    }
}

impl Policy for Published {
    fn name(&self) -> &str {
        "published"
    }

    fn choose(&self, view: &View<'_>) -> Option<Choice> {
        let take = |id| Some(Choice { fetcher: id, rule: Rule::Published, propensity: 1.0 });
        if !view.is_first() {
            return escalate(view).and_then(take);
        }
        let url = Url::parse(view.url).ok()?;
        let features = UrlFeatures::extract(&url).ok()?;
        let names: Vec<String> =
            features.heuristics().iter().filter(|h| is_queried(&h.kind)).map(|h| name_of(&h.kind, &h.value)).collect();
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let sums = memory.union(&names, view.now);
        let best = view
            .eligible()
            .filter_map(|c| {
                let counts = sums.get(&*c.spec.name).filter(|counts| counts.attempts >= MIN_SAMPLE)?;
                Some((c.id, confidence(counts.success, counts.attempts)))
            })
            .reduce(|best, other| if other.1 > best.1 { other } else { best });
        match best {
            Some((id, sure)) if sure > view.settings.min_confidence => take(id),
            _ => take(named(view, PROBE_FETCHER).or_else(|| view.eligible().next().map(|c| c.id))?),
        }
    }

    fn observe(&self, attempt: &Attempt) {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).add(attempt);
    }
}

fn named(view: &View<'_>, name: &str) -> Option<crate::registry::FetcherId> {
    view.eligible().find(|c| &*c.spec.name == name).map(|c| c.id)
}

/// After a failed probe: stealth when it was blocked, else the browser; nothing after that.
fn escalate(view: &View<'_>) -> Option<crate::registry::FetcherId> {
    if view.attempts > 1 {
        return None;
    }
    let order = match view.hint {
        Some(crate::attempt::Hint::Blocked) => ["playwright_stealth", "playwright"],
        _ => ["playwright", "playwright_stealth"],
    };
    order.iter().find_map(|name| named(view, name))
}
