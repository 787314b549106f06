//! The policy `published`: the published confidence formula by itself, for comparison with the
//! others.
//!
//! For each fetcher it takes all attempts that share a heuristic with the URL, and divides their
//! decayed successes by their undecayed number. To know that set exactly without a scan, it keeps a
//! counter for every combination of an attempt's heuristics and applies inclusion and exclusion to
//! those of the URL. It is not meant for the hot path: it locks, and an attempt with n heuristics
//! changes 2^n - 1 counters.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::{Mutex, PoisonError};

use url::Url;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{Choice, Policy, View};
use crate::evidence::PrehashedHasher;
use crate::score::confidence;
use fetchwise_types::attempt::{Attempt, Hint};
use fetchwise_types::decision::Rule;
use fetchwise_types::heuristic::url::UrlFeatures;
use fetchwise_types::registry::{FetcherId, canonical};
use fetchwise_types::time::Timestamp;

/// The published minimum of attempts.
const MIN_SAMPLE: f64 = 5.0;
/// The published half-life.
const HALF_LIFE_MS: f64 = 30.0 * 86_400_000.0;
/// More heuristics than the published extractor finds in any URL. Any further ones, which only an
/// import can have, are not counted.
const MAX_HEURISTICS: usize = 8;

/// The published formula over an exact union.
#[derive(Debug, Default)]
pub struct Published {
    memory: Mutex<Memory>,
}

#[derive(Debug, Default)]
struct Memory {
    /// The time as of which the counters are decayed.
    landmark: Option<Timestamp>,
    /// The attempts that have all heuristics of a combination.
    combinations: HashMap<u64, Vec<Counts>, BuildHasherDefault<PrehashedHasher>>,
}

/// The attempts of one fetcher.
#[derive(Clone, Copy, Debug)]
struct Counts {
    /// The hash of its name.
    fetcher: u64,
    success: f64,
    attempts: f64,
}

/// Returns whether the type is a pre-fetch type of the published extractor.
fn is_queried(kind: &str) -> bool {
    matches!(kind, "domain" | "suffix" | "path_depth") || kind.starts_with("contains_")
}

/// Returns the hashes of the heuristics that are queried, without duplicates.
fn queried<'h>(heuristics: impl Iterator<Item = (&'h str, &'h str)>) -> Vec<u64> {
    let mut hashes: Vec<u64> = heuristics
        .filter(|(kind, _)| is_queried(kind))
        .map(|(kind, value)| xxh3_64_with_seed(value.as_bytes(), xxh3_64(kind.as_bytes())))
        .collect();
    hashes.sort_unstable();
    hashes.dedup();
    hashes.truncate(MAX_HEURISTICS);
    hashes
}

/// Calls `f` with each combination of at least one of `hashes`: its key, which does not depend on
/// their order, and its size.
fn for_each_combination(hashes: &[u64], mut f: impl FnMut(u64, u32)) {
    for members in 1u32..1 << hashes.len() {
        let taken = hashes.iter().enumerate().filter(|(place, _)| members & (1 << place) != 0);
        f(taken.fold(0u64, |key, (_, hash)| key.wrapping_add(*hash)), members.count_ones());
    }
}

impl Memory {
    fn weight(&self, at: Timestamp) -> f64 {
        let landmark = self.landmark.unwrap_or(at);
        (at.as_millis().saturating_sub(landmark.as_millis()) as f64 / HALF_LIFE_MS)
            .clamp(-900.0, 900.0)
            .exp2()
    }

    fn add(&mut self, attempt: &Attempt) {
        self.landmark.get_or_insert(attempt.attempted_at);
        let fetcher = xxh3_64(canonical(&attempt.fetcher).as_bytes());
        let success = if attempt.success { self.weight(attempt.attempted_at) } else { 0.0 };
        let tags =
            attempt.heuristics.iter().map(|tag| (&*tag.heuristic.kind, &*tag.heuristic.value));
        for_each_combination(&queried(tags), |key, _| {
            let all = self.combinations.entry(key).or_default();
            match all.iter_mut().find(|counts| counts.fetcher == fetcher) {
                Some(counts) => {
                    counts.success += success;
                    counts.attempts += 1.0;
                }
                None => all.push(Counts { fetcher, success, attempts: 1.0 }),
            }
        });
    }

    /// Returns successes and attempts per fetcher over the union of all attempts that have any of
    /// the heuristics `hashes`.
    fn union(&self, hashes: &[u64], now: Timestamp) -> Vec<Counts> {
        let decay = 1.0 / self.weight(now);
        let mut sums: Vec<Counts> = Vec::new();
        for_each_combination(hashes, |key, members| {
            let sign = if members % 2 == 1 { 1.0 } else { -1.0 };
            for counts in self.combinations.get(&key).into_iter().flatten() {
                let (success, attempts) = (sign * counts.success * decay, sign * counts.attempts);
                match sums.iter_mut().find(|sum| sum.fetcher == counts.fetcher) {
                    Some(sum) => {
                        sum.success += success;
                        sum.attempts += attempts;
                    }
                    None => sums.push(Counts { fetcher: counts.fetcher, success, attempts }),
                }
            }
        });
        sums
    }
}

impl Policy for Published {
    fn name(&self) -> &str {
        "published"
    }

    fn choose(&self, view: &View<'_>) -> Option<Choice> {
        let learned = self.learned(view)?;
        let (fetcher, rule) = match (view.is_first(), learned) {
            (true, Some(id)) => (id, Rule::Published),
            (true, None) => {
                (untried_probe(view).or_else(|| first_untried(view))?, Rule::ProbeFirst)
            }
            (false, learned) => (escalate(view, learned.is_some())?, Rule::Published),
        };
        Some(Choice { fetcher, rule, propensity: 1.0 })
    }

    fn observe(&self, attempt: &Attempt) {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).add(attempt);
    }
}

impl Published {
    /// Returns the fetcher with the highest confidence over the union, tried or not, if that
    /// confidence is sufficient. Returns `None` for a URL that cannot be fetched.
    fn learned(&self, view: &View<'_>) -> Option<Option<FetcherId>> {
        let url = Url::parse(view.url).ok()?;
        let heuristics = UrlFeatures::extract(&url).ok()?.heuristics();
        let hashes = queried(heuristics.iter().map(|h| (&*h.kind, &*h.value)));
        let sums =
            self.memory.lock().unwrap_or_else(PoisonError::into_inner).union(&hashes, view.now);
        let confidences =
            view.candidates.iter().filter(|c| !(view.is_first() && c.tried)).filter_map(|c| {
                let fetcher = xxh3_64(c.spec.name.as_bytes());
                let sum =
                    sums.iter().find(|sum| sum.fetcher == fetcher && sum.attempts >= MIN_SAMPLE)?;
                Some((c.id, confidence(sum.success, sum.attempts)))
            });
        let best = confidences.reduce(|best, other| if other.1 > best.1 { other } else { best });
        Some(best.filter(|best| best.1 > view.settings.min_confidence).map(|best| best.0))
    }
}

fn untried(view: &View<'_>, name: &str) -> Option<FetcherId> {
    view.candidates.iter().find(|c| !c.tried && &*c.spec.name == name).map(|c| c.id)
}

fn untried_probe(view: &View<'_>) -> Option<FetcherId> {
    view.candidates.iter().find(|c| !c.tried && c.is_probe).map(|c| c.id)
}

fn first_untried(view: &View<'_>) -> Option<FetcherId> {
    view.candidates.iter().find(|c| !c.tried).map(|c| c.id)
}

/// Returns the published escalation, which is one step: an empty page leads to the browser, and a
/// block of a probe to stealth. A block of a learned fetcher ends the URL, as does every other
/// failure.
fn escalate(view: &View<'_>, learned: bool) -> Option<FetcherId> {
    let probed = !learned && view.candidates.iter().any(|c| c.tried && c.is_probe);
    match view.hint {
        _ if view.attempts > 1 => None,
        Some(Hint::Blocked) if probed => untried(view, "playwright_stealth"),
        Some(Hint::Empty) => untried(view, "playwright"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_union_counts_an_attempt_with_several_shared_heuristics_once() {
        let mut memory = Memory::default();
        let at = Timestamp::from_millis(1_800_000_000_000);
        let mut add = |url: &str, success: bool| {
            let attempt = Attempt::new(&Url::parse(url).unwrap(), "direct_access", at).unwrap();
            memory.add(&if success { attempt.delivered() } else { attempt });
        };
        add("https://a.org/x/y.pdf", true); // shares domain, suffix and depth
        add("https://a.org/z", false); // domain
        add("https://b.org/x/y.pdf", true); // suffix and depth
        add("https://b.org/x/y", true); // depth
        add("https://b.org/z", false); // nothing
        let heuristics = UrlFeatures::extract(&Url::parse("https://a.org/1/2.pdf").unwrap())
            .unwrap()
            .heuristics();
        let sums = memory.union(&queried(heuristics.iter().map(|h| (&*h.kind, &*h.value))), at);
        assert_eq!((sums.len(), sums[0].success, sums[0].attempts), (1, 3.0, 4.0));
    }

    #[test]
    fn the_denominator_does_not_decay() {
        let mut memory = Memory::default();
        let at = Timestamp::from_millis(1_800_000_000_000);
        let url = Url::parse("https://a.org/").unwrap();
        for _ in 0..8 {
            memory.add(&Attempt::new(&url, "direct_access", at).unwrap().delivered());
        }
        let later = Timestamp::from_millis(at.as_millis() + HALF_LIFE_MS as i64);
        let heuristics = UrlFeatures::extract(&url).unwrap().heuristics();
        let sums = memory.union(&queried(heuristics.iter().map(|h| (&*h.kind, &*h.value))), later);
        assert_eq!((sums[0].success, sums[0].attempts), (4.0, 8.0));
    }
}
