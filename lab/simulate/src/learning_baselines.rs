//! Baselines that learn: other crawlers, as policies with their own memory that observe each
//! attempt.
//!
//! They are written from descriptions of those projects, and adapted to the fetchers of these
//! worlds.
//!
//! Must not know: the selector's evidence.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::baseline::{choice, untried};
use fetchwise::attempt::{Attempt, ErrorType, Hint};
use fetchwise::heuristic::url::domain_of;
use fetchwise::policy::{Choice, Policy, View};
use fetchwise::registry::{Class, FetcherSpec};
use fetchwise::time::Timestamp;

fn lock<T>(memory: &Mutex<T>) -> MutexGuard<'_, T> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the host part of a URL's text, like the `domain` heuristic.
fn domain_in(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    domain_of(rest.split(['/', '?', '#', ':']).next().unwrap_or_default())
}

/// Returns the hint of a failed attempt; none for content.
fn look(attempt: &Attempt) -> Option<Hint> {
    match &attempt.error_type {
        None => None,
        Some(ErrorType::Known(kind)) => Some(Hint::after(*kind)),
        Some(ErrorType::Other(_)) => Some(Hint::Unknown),
    }
}

fn class_of(attempt: &Attempt) -> Class {
    FetcherSpec::by_name(&attempt.fetcher).class
}

/// Probes each host once, and follows the verdict for a day.
#[derive(Debug, Default)]
pub(super) struct OneProbe {
    verdicts: Mutex<HashMap<String, (Timestamp, Class)>>,
}

const VERDICT_HOLDS: Duration = Duration::from_secs(86_400);

impl Policy for OneProbe {
    fn name(&self) -> &str {
        "one_probe"
    }

    fn choose(&self, view: &View<'_>) -> Option<Choice> {
        let verdict = lock(&self.verdicts).get(domain_in(view.url)).copied();
        let class =
            verdict.filter(|(at, _)| view.now.since(*at) < VERDICT_HOLDS).map(|(_, class)| class);
        match view.attempts {
            0 => untried(view, class.unwrap_or(Class::Plain)),
            // The second attempt follows the probe's verdict; there is no third.
            1 => class.and_then(|class| untried(view, class)),
            _ => None,
        }
    }

    fn observe(&self, attempt: &Attempt) {
        let Some(domain) = attempt.heuristic("domain") else { return };
        if attempt.try_no != 1 || class_of(attempt) != Class::Plain || attempt.weight == 0.0 {
            return;
        }
        let class = match look(attempt) {
            Some(Hint::Blocked) => Class::Stealth,
            Some(Hint::Empty) => Class::Rendering,
            _ => Class::Plain,
        };
        let mut verdicts = lock(&self.verdicts);
        let held = verdicts
            .get(domain)
            .is_some_and(|(at, _)| attempt.attempted_at.since(*at) < VERDICT_HOLDS);
        if !held {
            verdicts.insert(domain.to_owned(), (attempt.attempted_at, class));
        }
    }
}

/// The tiers of the climbing baselines.
const TIERS: [Class; 4] = [Class::Plain, Class::Rendering, Class::Stealth, Class::Archive];

/// Keeps one tier per domain. An error adds to the weight of its tier, and each further request
/// reduces the weights of the others. The domain moves to a neighbouring tier with less weight.
#[derive(Debug, Default)]
pub(super) struct TierTracker {
    domains: Mutex<HashMap<String, Tiers>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tiers {
    weights: [u32; TIERS.len()],
    current: usize,
}

const ERROR_WEIGHS: u32 = 10;

impl Tiers {
    fn predict(&mut self) -> usize {
        for (tier, weight) in self.weights.iter_mut().enumerate() {
            if tier != self.current {
                *weight = weight.saturating_sub(1);
            }
        }
        let here = self.weights[self.current];
        let below = self.current.checked_sub(1).map(|tier| (self.weights[tier], tier));
        let above = self.weights.get(self.current + 1).map(|weight| (*weight, self.current + 1));
        let lighter = [below, above].into_iter().flatten().min_by_key(|(weight, _)| *weight);
        match (lighter, below) {
            (Some((weight, tier)), _) if weight < here => self.current = tier,
            // The cheaper tier wins a tie.
            (_, Some((weight, tier))) if weight == here => self.current = tier,
            _ => {}
        }
        self.current
    }
}

impl Policy for TierTracker {
    fn name(&self) -> &str {
        "tier_tracker"
    }

    fn choose(&self, view: &View<'_>) -> Option<Choice> {
        if view.attempts >= view.settings.max_attempts {
            return None;
        }
        let tier = lock(&self.domains).entry(domain_in(view.url).to_owned()).or_default().predict();
        untried(view, TIERS[tier])
    }

    fn observe(&self, attempt: &Attempt) {
        let Some(domain) = attempt.heuristic("domain") else { return };
        let tier = TIERS.iter().position(|class| *class == class_of(attempt));
        if let (false, true, Some(tier)) = (attempt.success, attempt.weight > 0.0, tier) {
            lock(&self.domains).entry(domain.to_owned()).or_default().weights[tier] += ERROR_WEIGHS;
        }
    }
}

/// Starts with the fetcher that worked for a host within the last hour, if it was the same at least
/// three times; else climbs.
#[derive(Debug, Default)]
pub(super) struct WebPeel {
    hosts: Mutex<HashMap<String, VecDeque<(Timestamp, Class)>>>,
}

const MIN_SAMPLES: usize = 3;
const MAX_SAMPLES: usize = 32;
const FORGETS_AFTER: Duration = Duration::from_secs(3600);

impl WebPeel {
    fn recommended(&self, view: &View<'_>) -> Option<Class> {
        let mut hosts = lock(&self.hosts);
        let samples = hosts.get_mut(domain_in(view.url))?;
        samples.retain(|(at, _)| view.now.since(*at) < FORGETS_AFTER);
        let first = samples.front()?.1;
        (samples.len() >= MIN_SAMPLES && samples.iter().all(|(_, class)| *class == first))
            .then_some(first)
    }
}

impl Policy for WebPeel {
    fn name(&self) -> &str {
        "webpeel"
    }

    fn choose(&self, view: &View<'_>) -> Option<Choice> {
        if view.is_first()
            && let Some(choice) = self.recommended(view).and_then(|class| untried(view, class))
        {
            return Some(choice);
        }
        let highest = |class: &Class| TIERS.iter().position(|tier| tier == class);
        let tried =
            view.candidates.iter().filter(|c| c.tried).filter_map(|c| highest(&c.spec.class)).max();
        let next = tried.map_or(0, |tier| tier + 1);
        // It has no archive tier.
        let class = TIERS[..3].get(next)?;
        view.candidates.iter().find(|c| !c.tried && c.spec.class == *class).map(choice)
    }

    fn observe(&self, attempt: &Attempt) {
        let Some(domain) = attempt.heuristic("domain").filter(|_| attempt.success) else { return };
        let mut hosts = lock(&self.hosts);
        let samples = hosts.entry(domain.to_owned()).or_default();
        if samples.len() == MAX_SAMPLES {
            samples.pop_front();
        }
        samples.push_back((attempt.attempted_at, class_of(attempt)));
    }
}

/// Crawlee's predictor of rendering types: static or client-only, by similarity to earlier URLs and
/// a logistic regression. Occasionally it tries both ways.
#[derive(Debug, Default)]
pub(super) struct Crawlee {
    memory: Mutex<Predictor>,
}

/// The purpose of its random numbers in [`View::chance`].
const DETECTS: u8 = 1;
/// The similarity from which parts of a path count as alike.
const SIMILAR: f64 = 0.8;
const STEPS: usize = 1000;
const RATE: f64 = 0.05;
/// The difference of the two scores below which neither is trusted.
const CLOSE: f64 = 0.1;
/// Examples kept per label, examples used in training, and the growth of their number before the
/// next training. The original keeps all of them and trains on all after each result, which is too
/// slow for hundreds of thousands of URLs.
const KEPT: usize = 64;
const TRAINED_ON: usize = 400;
const RETRAIN_AT: f64 = 1.05;

#[derive(Debug, Default)]
struct Predictor {
    labels: HashMap<String, Label>,
    /// Features and whether the page was static, the latest last.
    examples: VecDeque<([f64; 2], bool)>,
    weights: Option<[[f64; 2]; 2]>,
    results: f64,
    trained_at: f64,
    /// The URL that is tried both ways, and whether the plain request delivered content.
    detecting: Option<(String, Option<bool>)>,
}

#[derive(Debug, Default)]
struct Label {
    results: usize,
    static_: VecDeque<Vec<String>>,
    client: VecDeque<Vec<String>>,
}

fn components(url: &str) -> Vec<String> {
    let path = url
        .split_once("://")
        .map_or(url, |(_, rest)| rest)
        .split(['?', '#'])
        .next()
        .unwrap_or_default();
    path.split('/').map(str::to_owned).collect()
}

/// Returns 0 for other hosts, else the share of path parts that are alike.
fn similarity(a: &[String], b: &[String]) -> f64 {
    if a.first() != b.first() {
        return 0.0;
    }
    let places = a.len().max(b.len());
    let part = |of: &[String], place: usize| of.get(place).cloned().unwrap_or_default();
    let alike = (0..places).filter(|&place| {
        let (left, right) = (part(a, place), part(b, place));
        left == right || strsim::jaro_winkler(&left, &right) > SIMILAR
    });
    alike.count() as f64 / places as f64
}

fn mean_similarity(url: &[String], stored: &VecDeque<Vec<String>>) -> f64 {
    if stored.is_empty() {
        return 0.0;
    }
    stored.iter().map(|other| similarity(url, other)).sum::<f64>() / stored.len() as f64
}

fn logistic(weights: [f64; 2], features: [f64; 2]) -> f64 {
    1.0 / (1.0 + (-(weights[0] * features[0] + weights[1] * features[1])).exp())
}

impl Predictor {
    fn features(&self, url: &str) -> [f64; 2] {
        let Some(label) = self.labels.get(domain_in(url)) else { return [0.0; 2] };
        let url = components(url);
        [mean_similarity(&url, &label.static_), mean_similarity(&url, &label.client)]
    }

    /// Returns whether the page is static, and the probability of trying both ways.
    fn predict(&self, url: &str) -> (bool, f64) {
        let Some([static_, client]) = self.weights else { return (false, 1.0) };
        let features = self.features(url);
        let (static_, client) = (logistic(static_, features), logistic(client, features));
        let results = self.labels.get(domain_in(url)).map_or(0, |label| label.results);
        let unsure = (static_ - client).abs() < CLOSE;
        (
            static_ > client,
            if unsure {
                1.0
            } else {
                (0.1 * 5usize.saturating_sub(results).max(1) as f64).min(1.0)
            },
        )
    }

    fn store(&mut self, url: &str, is_static: bool) {
        let features = self.features(url);
        let label = self.labels.entry(domain_in(url).to_owned()).or_default();
        label.results += 1;
        let stored = if is_static { &mut label.static_ } else { &mut label.client };
        stored.push_back(components(url));
        if stored.len() > KEPT {
            stored.pop_front();
        }
        self.examples.push_back((features, is_static));
        if self.examples.len() > TRAINED_ON {
            self.examples.pop_front();
        }
        self.results += 1.0;
        if self.results > self.trained_at * RETRAIN_AT {
            self.trained_at = self.results;
            self.weights = Some([self.train(true), self.train(false)]);
        }
    }

    /// Trains one side of the regression, by gradient descent from zero, with one artificial row
    /// for each side.
    fn train(&self, side: bool) -> [f64; 2] {
        let rows: Vec<([f64; 2], f64)> = [([0.0, 1.0], false), ([1.0, 0.0], true)]
            .iter()
            .chain(&self.examples)
            .map(|(features, is_static)| (*features, f64::from(u8::from(*is_static == side))))
            .collect();
        let mut weights = [0.0; 2];
        for _ in 0..STEPS {
            let mut gradient = [0.0; 2];
            for (features, truth) in &rows {
                let off = logistic(weights, *features) - truth;
                gradient[0] += off * features[0];
                gradient[1] += off * features[1];
            }
            weights[0] -= RATE * gradient[0] / rows.len() as f64;
            weights[1] -= RATE * gradient[1] / rows.len() as f64;
        }
        weights
    }
}

impl Policy for Crawlee {
    fn name(&self) -> &str {
        "crawlee"
    }

    fn choose(&self, view: &View<'_>) -> Option<Choice> {
        let mut memory = lock(&self.memory);
        if !view.is_first() {
            let plain_was_tried =
                view.candidates.iter().any(|c| c.tried && c.spec.class == Class::Plain);
            return if view.attempts == 1 && plain_was_tried {
                untried(view, Class::Rendering)
            } else {
                None
            };
        }
        let (is_static, detects) = memory.predict(view.url);
        memory.detecting = (view.chance(DETECTS) < detects).then(|| (view.url.to_owned(), None));
        if memory.detecting.is_some() || is_static {
            untried(view, Class::Plain)
        } else {
            untried(view, Class::Rendering)
        }
    }

    fn observe(&self, attempt: &Attempt) {
        let mut memory = lock(&self.memory);
        let Some((url, plain)) = memory.detecting.take().filter(|(url, _)| *url == attempt.url)
        else {
            return;
        };
        match (class_of(attempt), plain) {
            (Class::Plain, None) => memory.detecting = Some((url, Some(attempt.success))),
            // Equal results mean static; nothing is learned when the browser fails too.
            (Class::Rendering, Some(plain)) if attempt.success => memory.store(&url, plain),
            _ => {}
        }
    }
}

impl Crawlee {
    /// Returns whether `url` is also fetched by the browser although the plain request delivered
    /// content, for comparison.
    pub(super) fn compares(&self, url: &str) -> bool {
        lock(&self.memory)
            .detecting
            .as_ref()
            .is_some_and(|(of, plain)| of == url && *plain == Some(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_compared_segment_by_segment_on_one_host_only() {
        let parts = |url: &str| components(url);
        let one = parts("https://e.org/products/1234");
        assert_eq!(similarity(&one, &parts("https://e.org/products/1235")), 1.0);
        assert_eq!(similarity(&one, &parts("https://e.org/products")), 2.0 / 3.0);
        assert_eq!(similarity(&one, &parts("https://f.org/products/1234")), 0.0);
    }

    #[test]
    fn the_predictor_learns_to_distinguish_static_and_client_only_hosts() {
        let mut predictor = Predictor::default();
        assert_eq!(predictor.predict("https://a.org/p/1"), (false, 1.0));
        for n in 0..40 {
            predictor.store(&format!("https://a.org/p/{n}"), true);
            predictor.store(&format!("https://b.org/p/{n}"), false);
        }
        assert_eq!(predictor.predict("https://a.org/p/99"), (true, 0.1));
        assert_eq!(predictor.predict("https://b.org/p/99"), (false, 0.1));
    }

    #[test]
    fn a_domain_moves_to_a_lighter_neighbouring_tier_and_back() {
        let mut tiers = Tiers::default();
        assert_eq!(tiers.predict(), 0);
        tiers.weights[0] += ERROR_WEIGHS;
        assert_eq!(tiers.predict(), 1);
        let back = (0..20).position(|_| tiers.predict() == 0);
        assert_eq!(back, Some(ERROR_WEIGHS as usize - 1));
    }
}
