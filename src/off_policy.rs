//! Off-policy evaluation: the worth of a policy, estimated from a log that another policy made.
//!
//! Attempts are replayed in the order of the log. At the first attempt of each fetch, the evaluated
//! policy decides with the evidence of that moment; the logged propensity is the probability with
//! which the log's policy took its fetcher. The evaluation concerns the first decision: later
//! attempts are the log's.
//!
//! There are two estimates. Inverse propensity uses the log alone. The doubly robust estimate takes
//! the selector's own estimate of each fetcher's worth and corrects it by the log where the two
//! agree on the fetcher. Both need a log whose policy occasionally took other fetchers;
//! [`Evaluation::warnings`] reports a log without such decisions.
//!
//! Must not know: where attempts come from.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64;

use crate::selector::{CandidateView, SelectContext, Selector};
use fetchwise_types::attempt::{Arm, Attempt};
use fetchwise_types::heuristic::url::parse;

/// Normal quantile of a two-sided 95 % interval.
const NORMAL_95: f64 = 1.96;
/// Effective number of fetches below which there is no conclusion.
const MIN_EFFECTIVE: f64 = 100.0;
/// Fraction of unsupported decisions above which an estimate is the model's, not the log's.
const MAX_UNSUPPORTED: f64 = 0.05;
/// Number of domains, which are the clusters, below which an interval from their spread is
/// meaningless.
const MIN_DOMAINS: usize = 10;

/// One estimate with its 95 % confidence interval, which takes into account that fetches of one
/// domain resemble each other.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Estimate {
    /// Worth per fetch, in plain requests.
    pub value: f64,
    /// The interval's lower end.
    pub ci_low: f64,
    /// Its upper end.
    pub ci_high: f64,
}

/// The result of an evaluation.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Evaluation {
    /// The evaluated policy.
    pub policy: String,
    /// Doubly robust: the main estimate.
    pub doubly_robust: Estimate,
    /// By inverse propensity, with normalized weights.
    pub inverse_propensity: Estimate,
    /// The worth of the logged fetches.
    pub logged: Estimate,
    /// The doubly robust estimate less the logged worth, with the interval of the difference.
    pub gain: Estimate,
    /// Fetches that were evaluated.
    pub fetches: u64,
    /// Fetches for which the evaluated policy agreed with the log.
    pub agreed: u64,
    /// Effective number of equally weighted fetches.
    pub effective_sample: f64,
    /// Fraction of fetches where the evaluated policy takes a fetcher that the log's policy never
    /// took.
    pub unsupported_share: f64,
    /// Fetches left out because their first attempt has no propensity.
    pub left_out: u64,
    /// Reasons not to rely on the estimate; empty without any.
    pub warnings: Vec<String>,
}

/// A fetch that may have more attempts.
#[derive(Clone, Copy, Debug)]
struct OpenFetch {
    fetch: LoggedFetch,
    first_failed: bool,
    /// The worth of the first attempt alone.
    first: f64,
}

/// The inputs of an estimate for one fetch.
#[derive(Clone, Copy, Debug)]
struct LoggedFetch {
    domain: u64,
    /// The logged return.
    worth: f64,
    propensity: f64,
    agreed: bool,
    /// The model's estimates for the fetcher that was taken, and for the one of the evaluated
    /// policy.
    expected_taken: f64,
    expected_wanted: f64,
}

/// Collects the attempts of a log and then evaluates a policy.
///
/// ```
/// use fetchwise::attempt::Attempt;
/// use fetchwise::off_policy::OffPolicyEvaluator;
/// use fetchwise::selector::Selector;
/// use fetchwise::time::Timestamp;
///
/// let mut evaluator = OffPolicyEvaluator::new(Selector::builder().build().unwrap());
/// let url = url::Url::parse("https://example.org/").unwrap();
/// let mut attempt = Attempt::new(&url, "direct_access", Timestamp::now()).unwrap().delivered();
/// attempt.propensity = Some(1.0);
/// evaluator.add(&attempt);
/// let evaluation = evaluator.finish();
/// assert_eq!((evaluation.fetches, evaluation.agreed), (1, 1));
/// assert!(!evaluation.warnings.is_empty(), "one fetch shows nothing");
/// ```
#[derive(Debug)]
pub struct OffPolicyEvaluator {
    selector: Selector,
    /// Whether to evaluate the logged choices of learning in fetches that the table served.
    is_shadow: bool,
    open: HashMap<u64, OpenFetch>,
    done: Vec<LoggedFetch>,
    left_out: u64,
    /// Sum and number of returns after a failed first attempt: the model's estimate for the next
    /// one.
    after_failure: (f64, u64),
}

impl OffPolicyEvaluator {
    /// Returns an evaluator of the policy of `selector`, which must have no evidence, and the
    /// candidates, costs and constants in question.
    pub fn new(selector: Selector) -> Self {
        Self {
            selector,
            is_shadow: false,
            open: HashMap::new(),
            done: Vec::new(),
            left_out: 0,
            after_failure: (0.0, 0),
        }
    }

    /// Returns an evaluator of learning's choices in fetches that the router table served, as
    /// logged with each attempt. `selector` is as for [`new`](Self::new); its own choices are not
    /// used. A table always takes the same fetcher, so if learning prefers another one, the
    /// estimate is the model's: [`Evaluation::unsupported_share`] says how often.
    pub fn of_shadow(selector: Selector) -> Self {
        Self { is_shadow: true, ..Self::new(selector) }
    }

    /// Adds the next attempt of the log, oldest first. Cost: one explained decision for the first
    /// attempt of a fetch.
    pub fn add(&mut self, attempt: &Attempt) {
        let link = xxh3_64(attempt.link.as_bytes());
        let worth = self.worth(attempt);
        if attempt.try_no <= 1 {
            self.close(link);
            if self.is_shadow
                && (attempt.arm != Some(Arm::Legacy) || attempt.shadow_fetcher.is_none())
            {
                self.selector.observe(attempt);
                return;
            }
            match self.begin(attempt, worth) {
                Some(open) => drop(self.open.insert(link, open)),
                None => self.left_out += 1,
            }
        } else if let Some(open) = self.open.get_mut(&link) {
            open.fetch.worth += worth;
        }
        self.selector.observe(attempt);
    }

    /// Learns from an attempt without evaluating it.
    pub fn learn(&mut self, attempt: &Attempt) {
        self.selector.observe(attempt);
    }

    /// Returns the worth of an attempt: the page, less the request and the block.
    fn worth(&self, attempt: &Attempt) -> f64 {
        let settings = self.selector.settings();
        let spec =
            self.selector.fetcher_id(&attempt.fetcher).and_then(|id| self.selector.fetcher(id));
        let (cost, quality) = spec.map_or((0.0, 1.0), |spec| (spec.cost, spec.quality));
        let page = if attempt.success { quality * settings.page_value } else { 0.0 };
        page - cost - if attempt.is_banned { settings.blocked_cost } else { 0.0 }
    }

    /// Returns a new fetch with the decision of the evaluated policy.
    fn begin(&self, attempt: &Attempt, worth: f64) -> Option<OpenFetch> {
        let propensity = attempt.propensity.filter(|p| *p > 0.0 && *p <= 1.0)?;
        let url = parse(&attempt.url).ok()?;
        let situation = SelectContext {
            hint: attempt.hint,
            ..SelectContext::first_attempt(attempt.attempted_at)
        };
        let explained = self.selector.explain(&url, &situation).ok()?;
        let decided =
            || explained.decision.selected().map(|take| self.selector.fetcher_name(take.fetcher));
        let logged = attempt.shadow_fetcher.as_deref().map(fetchwise_types::registry::canonical);
        let wanted = if self.is_shadow { logged } else { decided() };
        let expected = |name: &str| {
            explained
                .candidates
                .iter()
                .find(|c| c.fetcher == name)
                .map_or(0.0, |candidate| self.expected(candidate))
        };
        let fetch = LoggedFetch {
            domain: xxh3_64(attempt.heuristic("domain").unwrap_or_default().as_bytes()),
            worth,
            propensity,
            agreed: wanted == Some(fetchwise_types::registry::canonical(&attempt.fetcher)),
            expected_taken: expected(&attempt.fetcher),
            expected_wanted: wanted.map_or(0.0, expected),
        };
        Some(OpenFetch { fetch, first_failed: !attempt.success, first: worth })
    }

    /// Returns the model's estimate for a candidate as the first attempt, including the returns
    /// after its failure.
    fn expected(&self, candidate: &CandidateView) -> f64 {
        let settings = self.selector.settings();
        let spec =
            self.selector.fetcher_id(&candidate.fetcher).and_then(|id| self.selector.fetcher(id));
        let quality = spec.map_or(1.0, |spec| spec.quality);
        let (sum, count) = self.after_failure;
        let then = if count == 0 { 0.0 } else { sum / count as f64 };
        quality * settings.page_value * candidate.success
            - candidate.cost
            - settings.blocked_cost * candidate.block
            + (1.0 - candidate.success) * then
    }

    fn close(&mut self, link: u64) {
        let Some(open) = self.open.remove(&link) else { return };
        if open.first_failed {
            self.after_failure.0 += open.fetch.worth - open.first;
            self.after_failure.1 += 1;
        }
        self.done.push(open.fetch);
    }

    /// Ends the log and returns the evaluation.
    pub fn finish(mut self) -> Evaluation {
        let mut links: Vec<u64> = self.open.keys().copied().collect();
        links.sort_unstable();
        links.into_iter().for_each(|link| self.close(link));
        let fetches = self.done.len() as f64;
        let weight = |fetch: &LoggedFetch| if fetch.agreed { 1.0 / fetch.propensity } else { 0.0 };
        let weights: f64 = self.done.iter().map(weight).sum();
        let squares: f64 = self.done.iter().map(|fetch| weight(fetch).powi(2)).sum();
        let effective_sample = if squares > 0.0 { weights * weights / squares } else { 0.0 };
        let unsupported =
            self.done.iter().filter(|fetch| !fetch.agreed && fetch.propensity >= 1.0).count();
        let doubly_robust = clustered(&self.done, |f| {
            (f.expected_wanted + weight(f) * (f.worth - f.expected_taken), 1.0)
        });
        let mut evaluation = Evaluation {
            policy: if self.is_shadow {
                "shadow".to_owned()
            } else {
                self.selector.policy_name().to_owned()
            },
            doubly_robust,
            inverse_propensity: clustered(&self.done, |f| (weight(f) * f.worth, weight(f))),
            logged: clustered(&self.done, |f| (f.worth, 1.0)),
            gain: clustered(&self.done, |f| {
                (f.expected_wanted + weight(f) * (f.worth - f.expected_taken) - f.worth, 1.0)
            }),
            fetches: self.done.len() as u64,
            agreed: self.done.iter().filter(|fetch| fetch.agreed).count() as u64,
            effective_sample,
            unsupported_share: if fetches > 0.0 { unsupported as f64 / fetches } else { 0.0 },
            left_out: self.left_out,
            warnings: Vec::new(),
        };
        let mut domains: Vec<u64> = self.done.iter().map(|fetch| fetch.domain).collect();
        domains.sort_unstable();
        domains.dedup();
        evaluation.warn(domains.len());
        evaluation
    }
}

impl Evaluation {
    fn warn(&mut self, domains: usize) {
        let mut warn = |text: String| self.warnings.push(text);
        if self.effective_sample < MIN_EFFECTIVE {
            warn(format!(
                "the log has an effective sample of {:.0} fetches; at least {MIN_EFFECTIVE:.0} are needed",
                self.effective_sample
            ));
        }
        if self.unsupported_share > MAX_UNSUPPORTED {
            warn(format!(
                "in {:.0} % of the fetches the policy wants a fetcher that the log's policy never took: the \
                 estimate rests on the model alone",
                100.0 * self.unsupported_share
            ));
        }
        if domains < MIN_DOMAINS {
            warn(format!("{domains} domains are too few for an interval"));
        }
        if self.left_out > 0 {
            warn(format!("{} fetches were left out: unknown propensity", self.left_out));
        }
    }
}

/// Returns the ratio of two sums over all fetches, with an interval from the spread between
/// domains.
fn clustered(fetches: &[LoggedFetch], of: impl Fn(&LoggedFetch) -> (f64, f64)) -> Estimate {
    let (mut above, mut below) = (0.0, 0.0);
    for fetch in fetches {
        let (value, weight) = of(fetch);
        above += value;
        below += weight;
    }
    if below <= 0.0 {
        return Estimate::default();
    }
    let value = above / below;
    let mut clusters: Vec<(u64, f64)> = fetches
        .iter()
        .map(|fetch| (fetch.domain, of(fetch)))
        .map(|(domain, (v, w))| (domain, v - value * w))
        .collect();
    clusters.sort_by_key(|(domain, _)| *domain);
    let groups = clusters
        .chunk_by(|a, b| a.0 == b.0)
        .map(|group| group.iter().map(|(_, off)| off).sum::<f64>());
    let (mut count, mut squares) = (0.0, 0.0);
    for off in groups {
        count += 1.0;
        squares += off * off;
    }
    let correction = if count > 1.0 { count / (count - 1.0) } else { 1.0 };
    let half = NORMAL_95 * (squares * correction).sqrt() / below;
    Estimate { value, ci_low: value - half, ci_high: value + half }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Choice, Policy, View};
    use fetchwise_types::attempt::error_kind::ErrorKind;
    use fetchwise_types::decision::Rule;
    use fetchwise_types::registry::FetcherSpec;
    use fetchwise_types::time::Timestamp;
    use std::time::Duration;
    use url::Url;
    use xxhash_rust::xxh3::xxh3_64_with_seed;

    struct Only(&'static str);

    impl Policy for Only {
        fn name(&self) -> &str {
            "only"
        }
        fn choose(&self, view: &View<'_>) -> Option<Choice> {
            let c = view.candidates.iter().find(|c| &*c.spec.name == self.0)?;
            Some(Choice { fetcher: c.id, rule: Rule::Custom, propensity: 1.0 })
        }
    }

    fn evaluator(policy: &'static str) -> OffPolicyEvaluator {
        let names = ["direct_access", "playwright"];
        let builder =
            names.iter().fold(Selector::builder(), |b, name| b.fetcher(FetcherSpec::by_name(name)));
        OffPolicyEvaluator::new(builder.policy(Box::new(Only(policy))).build().unwrap())
    }

    fn unit(n: u64, purpose: u64) -> f64 {
        xxh3_64_with_seed(&n.to_le_bytes(), purpose) as f64 / 2f64.powi(64)
    }

    /// Returns a log of 4000 fetches over 50 domains. Plain requests succeed with probability .4,
    /// the browser with .9. The log's policy took the browser with probability `browser`.
    fn log(browser: f64) -> Vec<Attempt> {
        let begin = Timestamp::from_millis(1_800_000_000_000);
        (0..4000u64)
            .map(|n| {
                let url = Url::parse(&format!("https://d{}.org/{n}", n % 50)).unwrap();
                let took_browser = unit(n, 1) < browser;
                let (name, chance) =
                    if took_browser { ("playwright", 0.9) } else { ("direct_access", 0.4) };
                let at = begin.saturating_add(Duration::from_secs(60 * n));
                let attempt = Attempt::new(&url, name, at).unwrap();
                let ended = unit(n, 2) < chance;
                let mut attempt = if ended {
                    attempt.delivered()
                } else {
                    attempt.failed(ErrorKind::EmptyContent)
                };
                attempt.propensity = Some(if took_browser { browser } else { 1.0 - browser });
                attempt
            })
            .collect()
    }

    fn evaluation(policy: &'static str, browser: f64) -> Evaluation {
        let mut evaluator = evaluator(policy);
        log(browser).iter().for_each(|attempt| evaluator.add(attempt));
        evaluator.finish()
    }

    #[test]
    fn both_estimates_find_the_worth_of_rare_choices() {
        // True worth: .9 * 100 - 20 for the browser, .4 * 100 - 1 for the plain request.
        for (policy, browser, truth) in [("playwright", 0.1, 70.0), ("direct_access", 0.9, 39.0)] {
            let evaluation = evaluation(policy, browser);
            for estimate in [evaluation.doubly_robust, evaluation.inverse_propensity] {
                assert!(
                    estimate.ci_low < truth && truth < estimate.ci_high,
                    "{policy}: {estimate:?}"
                );
                assert!(estimate.ci_high - estimate.ci_low < 16.0, "{policy}: {estimate:?}");
            }
            assert!((300.0..500.0).contains(&evaluation.effective_sample), "{evaluation:?}");
            assert!(evaluation.warnings.is_empty(), "{:?}", evaluation.warnings);
        }
    }

    #[test]
    fn a_log_without_the_policys_choices_gives_warnings() {
        let evaluation = evaluation("playwright", 0.0);
        assert_eq!((evaluation.agreed, evaluation.unsupported_share), (0, 1.0));
        assert!(
            evaluation.warnings.iter().any(|w| w.contains("never took")),
            "{:?}",
            evaluation.warnings
        );
        assert!(
            evaluation.warnings.iter().any(|w| w.contains("sample of 0 fetches")),
            "{:?}",
            evaluation.warnings
        );
    }

    #[test]
    fn a_policy_equal_to_the_logs_own_has_the_logged_worth() {
        let evaluation = evaluation("playwright", 1.0);
        assert_eq!(evaluation.agreed, evaluation.fetches);
        assert!((evaluation.inverse_propensity.value - evaluation.logged.value).abs() < 1e-9);
        assert!((evaluation.effective_sample - 4000.0).abs() < 1e-6);
    }

    #[test]
    fn later_attempts_add_to_their_fetch() {
        let mut evaluator = evaluator("direct_access");
        let url = Url::parse("https://e.org/").unwrap();
        let at = Timestamp::from_millis(1_800_000_000_000);
        let mut first =
            Attempt::new(&url, "direct_access", at).unwrap().failed(ErrorKind::BlockedCaptcha);
        first.propensity = Some(1.0);
        let mut second = Attempt::new(&url, "playwright", at).unwrap().delivered();
        second.try_no = 2;
        evaluator.add(&first);
        evaluator.add(&second);
        // 100 - 20 for the second, -1 - 2 for the first.
        assert_eq!(evaluator.finish().logged.value, 77.0);
    }

    #[test]
    fn attempts_without_propensity_are_left_out_with_a_warning() {
        let mut evaluator = evaluator("direct_access");
        let url = Url::parse("https://e.org/").unwrap();
        evaluator.add(&Attempt::new(&url, "direct_access", Timestamp::now()).unwrap().delivered());
        let evaluation = evaluator.finish();
        assert_eq!((evaluation.fetches, evaluation.left_out), (0, 1));
        assert!(evaluation.warnings.iter().any(|w| w.contains("left out")));
    }
}
