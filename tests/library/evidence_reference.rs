//! Evidence and confidence against a naive reference that keeps every attempt and sums them one by
//! one.
//!
//! For any attempts, in any order, live or replayed, at any landmark, general weights and
//! confidence agree to 1e-9.

use std::sync::{Arc, LazyLock, Mutex};

use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::attempt::{Attempt, Hint, Tag};
use fetchwise::heuristic::url::{ContentKind, UrlFeatures};
use fetchwise::heuristic::{Heuristic, SITE_PROVEN, SITE_SATURATED, SITE_UNPROVEN};
use fetchwise::selector::{Prior, SelectContext, Selector, Sink, SinkError};
use fetchwise::time::Timestamp;
use proptest::prelude::*;
use url::Url;

const NOW_MS: i64 = 1_790_000_000_000;
const DAY_MS: i64 = 86_400_000;
/// The sample from which the next level is compared with one that agrees.
const LEAST_COMPARED: f64 = 0.75;
const FETCHERS: [&str; 4] = ["direct_access", "playwright", "playwright_stealth", "archive_proxy"];
const URLS: [&str; 10] = [
    "https://wikipedia.org/wiki/Rust",
    "https://www.wikipedia.org/wiki/Go/history/old",
    "https://en.wikipedia.org/wiki/Rust",
    "https://wikipedia.org/doc.pdf",
    "https://wikipedia.org/files/doc.pdf",
    "https://cdn.example.co.uk/cdn/static/app.js",
    "https://example.co.uk/",
    "https://example.co.uk/api/v1/items.json",
    "https://other.org/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r/s/t",
    "https://other.org/assets/x.pdf",
];

#[derive(Clone, Debug)]
struct Raw {
    url: usize,
    fetcher: usize,
    age_ms: i64,
    end: Option<ErrorKind>,
    hint: Option<Hint>,
    /// What the selector that recorded it said about its site.
    site_tags: Vec<Heuristic>,
}

impl Raw {
    fn has(&self, kind: &str) -> bool {
        self.site_tags.iter().any(|tag| tag.kind == kind)
    }

    fn decay(&self) -> f64 {
        0.5f64.powf(self.age_ms as f64 / (30 * DAY_MS) as f64)
    }
}

/// What the selector learns by from a URL.
struct Features {
    page: ContentKind,
    /// The type and the value of each heuristic.
    heuristics: Vec<(String, String)>,
}

/// The features of each of [`URLS`].
static FEATURES: LazyLock<Vec<Features>> = LazyLock::new(|| {
    let features = |text: &&str| {
        let url = Url::parse(text).unwrap();
        let features = UrlFeatures::extract(&url).unwrap();
        let heuristics = features.heuristics();
        let heuristics =
            heuristics.iter().map(|h| (h.kind.to_string(), h.value.to_string())).collect();
        Features { page: features.kind(), heuristics }
    };
    URLS.iter().map(features).collect()
});

fn raw() -> impl Strategy<Value = Raw> {
    let end = prop_oneof![
        3 => Just(None),
        2 => prop::sample::select(ErrorKind::ALL).prop_map(Some),
    ];
    let hint =
        prop_oneof![3 => Just(None), 1 => prop::sample::select(Hint::ALL.to_vec()).prop_map(Some)];
    (0..URLS.len(), 0..FETCHERS.len(), 0..200 * DAY_MS, end, hint).prop_map(
        |(url, fetcher, age_ms, end, hint)| Raw {
            url,
            fetcher,
            age_ms,
            end,
            hint,
            site_tags: Vec::new(),
        },
    )
}

fn attempt(raw: &Raw) -> Attempt {
    let url = Url::parse(URLS[raw.url]).unwrap();
    let attempt =
        Attempt::new(&url, FETCHERS[raw.fetcher], Timestamp::from_millis(NOW_MS - raw.age_ms))
            .unwrap();
    let mut attempt = match raw.end {
        None => attempt.delivered(),
        Some(kind) => attempt.failed(kind),
    };
    attempt.hint = raw.hint;
    attempt.heuristics.extend(raw.site_tags.iter().cloned().map(Tag::from));
    attempt
}

/// Returns whether only the attempt's own site has the heuristic.
fn is_own(kind: &str) -> bool {
    matches!(kind, "site" | "domain" | "domain_path" | "domain_suffix")
}

fn is_tagged(raw: &Raw, (kind, value): (&str, &str), page: ContentKind) -> bool {
    let features = &FEATURES[raw.url];
    let has = features.heuristics.iter().any(|h| h.0 == kind && h.1 == value)
        || kind == "global"
        || kind == "hint" && raw.hint.is_some_and(|hint| hint.name() == value);
    has && features.page == page
}

/// Returns S and N of one heuristic and fetcher, the slow way: files and pages separate. Only
/// attempts that `wants`.
fn sums(
    all: &[Raw],
    heuristic: (&str, &str),
    page: ContentKind,
    fetcher: usize,
    wants: impl Fn(&Raw) -> bool,
) -> (f64, f64) {
    let (mut success, mut total) = (0.0, 0.0);
    for raw in all
        .iter()
        .filter(|raw| raw.fetcher == fetcher && is_tagged(raw, heuristic, page) && wants(raw))
    {
        let weight = raw.end.map_or(1.0, ErrorKind::weight) * raw.decay();
        total += weight;
        if raw.end.is_none() {
            success += weight;
        }
    }
    (success, total)
}

fn naive_weights(
    all: &[Raw],
    kind: &str,
    value: &str,
    page: ContentKind,
    fetcher: usize,
) -> (f64, f64) {
    sums(all, (kind, value), page, fetcher, |raw| is_own(kind) || !raw.has(SITE_SATURATED))
}

/// Returns the same as confidence reads it: failures of sites that had delivered nothing are a
/// fifth of all attempts at most, with the pseudo-attempts and the two attempts of the estimate
/// before, unless their sites delivered later.
fn naive_counted(
    all: &[Raw],
    kind: &str,
    value: &str,
    page: ContentKind,
    fetcher: usize,
) -> (f64, f64) {
    if is_own(kind) {
        return naive_weights(all, kind, value, page, fetcher);
    }
    let is_counted = |raw: &Raw| !raw.has(SITE_SATURATED);
    let known =
        sums(all, (kind, value), page, fetcher, |raw| is_counted(raw) && !raw.has(SITE_UNPROVEN));
    let failed =
        sums(all, (kind, value), page, fetcher, |raw| is_counted(raw) && raw.has(SITE_UNPROVEN)).1;
    let proofs = all
        .iter()
        .filter(|raw| raw.end.is_none() && is_tagged(raw, (kind, value), page))
        .flat_map(|raw| {
            let stated = raw
                .site_tags
                .iter()
                .filter(|tag| tag.kind == SITE_PROVEN)
                .map(|tag| tag.value.split_once(' '));
            stated
                .flatten()
                .filter(|(_, name)| *name == FETCHERS[fetcher])
                .map(|(weight, _)| weight.parse::<f64>().unwrap() * raw.decay())
        });
    let proven = proofs.sum::<f64>().min(failed);
    let most = 0.25 * (known.1 + proven + 2.0 + naive_prior(kind, value, fetcher).1);
    (known.0, known.1 + proven + (failed - proven).min(most))
}

fn naive_prior(kind: &str, value: &str, fetcher: usize) -> (f64, f64) {
    let priors = Prior::built_in();
    let prior = priors
        .iter()
        .find(|p| p.kind == kind && p.value == value && p.fetcher == FETCHERS[fetcher]);
    prior.map_or((0.0, 0.0), |prior| (prior.success_rate * prior.samples, prior.samples))
}

/// Returns confidence and sample size as `docs/concepts/decisions.md` describes them. `slack` moves
/// the compared values, samples by its first part, rates and confidences by its second, so that a
/// tie can be tried on either side of its rounding.
fn naive_confidence(all: &[Raw], url: usize, fetcher: usize, slack: (f64, f64)) -> (f64, f64) {
    let features = &FEATURES[url];
    let order = [
        "contains_api",
        "contains_assets",
        "contains_static",
        "contains_cdn",
        "suffix",
        "site",
        "domain",
        "domain_path",
    ];
    let confidence = |(success, total): (f64, f64)| success / total * f64::min(1.0, total / 10.0);
    // The level that counts so far, and the nearest more general one.
    let (mut counts, mut general) = (None, None);
    for kind in order {
        let Some((_, value)) = features.heuristics.iter().find(|h| h.0 == kind) else { continue };
        let (success, total) = naive_counted(all, kind, value, features.page, fetcher);
        let (prior_success, prior_total) = naive_prior(kind, value, fetcher);
        let level = (success + prior_success, total + prior_total);
        if level.1 <= 0.0 {
            continue;
        }
        if let (Some(so_far), Some((general_success, general_total))) = (counts, general) {
            let so_far: (f64, f64) = so_far;
            let gap: f64 = general_success / general_total - level.0 / level.1;
            let disagrees = gap > 0.5 / level.1.sqrt() * (1.0 + slack.1);
            let keeps = match level.1 >= 4.5 {
                true => confidence(so_far) > confidence(level) * (1.0 + slack.1),
                false => so_far.1 > level.1 * (1.0 + slack.0),
            };
            if disagrees || !keeps {
                counts = Some(level);
            }
            if disagrees || level.1 >= LEAST_COMPARED {
                general = Some(level);
            }
        } else {
            (counts, general) = (Some(level), Some(level));
        }
    }
    counts.map_or((0.0, 0.0), |level| (confidence(level), level.1))
}

/// Returns a selector that recorded all attempts, and keeps what it said about their sites.
fn recorded(all: &mut [Raw]) -> Selector {
    let mut selector = Selector::builder()
        .around(Timestamp::from_millis(NOW_MS))
        .exact_estimates()
        .build()
        .unwrap();
    let kept = Arc::new(Mutex::new(Vec::new()));
    selector.set_sink(Box::new(Keep(Arc::clone(&kept))));
    for raw in all.iter() {
        selector.record(attempt(raw), Timestamp::from_millis(NOW_MS)).unwrap();
    }
    for (raw, tags) in all.iter_mut().zip(kept.lock().unwrap().iter()) {
        raw.site_tags.clone_from(tags);
    }
    selector
}

/// A sink that keeps what each attempt says about its site.
struct Keep(Arc<Mutex<Vec<Vec<Heuristic>>>>);

impl Sink for Keep {
    fn append(&self, attempt: &Attempt) -> Result<(), SinkError> {
        let tags = attempt.heuristics.iter().map(|tag| &tag.heuristic);
        let is_of_site =
            |tag: &&Heuristic| [SITE_SATURATED, SITE_UNPROVEN, SITE_PROVEN].contains(&&*tag.kind);
        self.0.lock().unwrap().push(tags.filter(is_of_site).cloned().collect());
        Ok(())
    }
}

fn replayed(landmark_ms: i64, all: &[Raw]) -> Selector {
    let selector = Selector::builder()
        .around(Timestamp::from_millis(landmark_ms))
        .exact_estimates()
        .build()
        .unwrap();
    all.iter().for_each(|raw| selector.observe(&attempt(raw)));
    selector
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}

/// Returns whether samples differ only by rounding: they can fall on either side of the threshold,
/// and prove nothing.
fn on_the_edge(all: &[Raw]) -> bool {
    FEATURES.iter().any(|features| {
        features.heuristics.iter().any(|(kind, value)| {
            (0..FETCHERS.len()).any(|fetcher| {
                let (_, total) = naive_counted(all, kind, value, features.page, fetcher);
                let (_, prior) = naive_prior(kind, value, fetcher);
                [4.5, LEAST_COMPARED].iter().any(|edge| (total + prior - edge).abs() < 1e-9)
            })
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(8)))]

    #[test]
    fn weights_and_confidence_agree_with_the_naive_reference(
        all in prop::collection::vec(raw(), 0..80),
        shuffled_seed in any::<u64>(),
        landmark_days in -400i64..400,
    ) {
        prop_assume!(!on_the_edge(&all));
        let mut all = all;
        let live = recorded(&mut all);
        prop_assume!(!on_the_edge(&all));
        let mut shuffled = all.clone();
        shuffled.sort_by_key(|raw| xxhash_rust::xxh3::xxh3_64_with_seed(format!("{raw:?}").as_bytes(), shuffled_seed));
        let now = Timestamp::from_millis(NOW_MS);
        let replayed = replayed(NOW_MS + landmark_days * DAY_MS, &shuffled);
        for (url, text) in URLS.iter().enumerate() {
            let parsed = Url::parse(text).unwrap();
            let features = &FEATURES[url];
            for selector in [&live, &replayed] {
                let explanation = selector.explain(&parsed, &SelectContext::first_attempt(now)).unwrap();
                for (fetcher, name) in FETCHERS.iter().enumerate() {
                    let view = explanation.candidates.iter().find(|c| c.fetcher == *name).unwrap();
                    // The recent pair is stored as f32, so a tie may differ by more than the exact
                    // weights do.
                    let slacks = [(-1e-5, -1e-5), (-1e-5, 1e-5), (1e-5, -1e-5), (1e-5, 1e-5)];
                    let naive = slacks.map(|slack| naive_confidence(&all, url, fetcher, slack));
                    let agrees = |(confidence, sample): &(f64, f64)| {
                        close(view.confidence, *confidence) && close(view.sample_size, *sample)
                    };
                    let seen = (view.confidence, view.sample_size);
                    prop_assert!(naive.iter().any(agrees), "{text} {name}: {seen:?} {naive:?}");
                    let mut keys = features.heuristics.clone();
                    keys.push(("global".to_owned(), String::new()));
                    keys.extend(Hint::ALL.iter().map(|hint| ("hint".to_owned(), hint.name().to_owned())));
                    for (kind, value) in &keys {
                        let weights = selector.weights((kind, value), features.page, name, now);
                        let (success, total) = naive_weights(&all, kind, value, features.page, fetcher);
                        prop_assert!(close(weights.success, success) && close(weights.total, total), "{kind} {value} {name}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_future_attempt_is_clamped_to_now_and_counted() {
    let selector = Selector::builder().build().unwrap();
    let now = Timestamp::from_millis(NOW_MS);
    let url = Url::parse(URLS[0]).unwrap();
    let tomorrow = Timestamp::from_millis(NOW_MS + DAY_MS);
    selector.record(Attempt::new(&url, "playwright", tomorrow).unwrap().delivered(), now).unwrap();
    assert_eq!(selector.clamped_attempt_count(), 1);
    let weights =
        selector.weights(("domain", "wikipedia.org"), ContentKind::Page, "playwright", now);
    assert!((weights.total - 1.0).abs() < 1e-12, "{weights:?}");
}
