//! The information that a heuristic gives about success: gain (the published measure), and mutual
//! information in bits.
//!
//! Counts attempts of all fetchers and of any age: the question is whether knowing the heuristic
//! changes the expectation. Attempts that count neither for nor against their fetcher, such as a
//! missing page, are left out.
//!
//! Invariants: rows exist only for values and types with more than ten attempts.
//!
//! Must not know: how importance affects decisions.

use std::collections::HashMap;

use super::stats::is_judged;
use fetchwise_types::attempt::Attempt;
use fetchwise_types::heuristic::{Heuristic, is_of_response};

/// A value or type with this many attempts or fewer is left out: its rate would be mostly chance.
pub const MIN_SAMPLE: u64 = 10;

/// The information that one heuristic, or all of one type, gives about success.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Importance {
    /// The heuristic's type.
    pub kind: String,
    /// Its value; `None` for the type as a whole.
    pub value: Option<String>,
    /// Whether only the response tells it, so that no decision can use it.
    pub after: bool,
    /// Number of attempts with the heuristic that count for or against their fetcher.
    pub n: u64,
    /// The success rate of all attempts that count.
    pub baseline: f64,
    /// The success rate of the attempts with the heuristic.
    pub conditional_rate: f64,
    /// `|conditional_rate - baseline|`. For a type, the mean of that over its attempts, each by its
    /// value.
    pub gain: f64,
    /// Reduction of the uncertainty about success, in bits, when it is known whether an attempt has
    /// the heuristic.
    pub mutual_information_bits: f64,
}

/// Attempts and successes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    n: u64,
    success: u64,
}

impl Counts {
    fn add(&mut self, success: bool) {
        self.n += 1;
        self.success += u64::from(success);
    }

    fn merge(&mut self, other: Self) {
        self.n += other.n;
        self.success += other.success;
    }

    fn rate(self) -> f64 {
        if self.n == 0 { 0.0 } else { self.success as f64 / self.n as f64 }
    }
}

/// Adds attempts up, heuristic by heuristic.
///
/// ```
/// use fetchwise::analytics::ImportanceFold;
/// use fetchwise::attempt::{Attempt, error_kind::ErrorKind};
/// use fetchwise::time::Timestamp;
///
/// let mut fold = ImportanceFold::default();
/// for n in 0..40 {
///     let url = url::Url::parse(["https://a.org/", "https://b.org/"][n % 2]).unwrap();
///     let attempt = Attempt::new(&url, "direct_access", Timestamp::now()).unwrap();
///     fold.observe(&if n % 2 == 0 { attempt.delivered() } else { attempt.failed(ErrorKind::WrongTool) });
/// }
/// let rows = fold.rows();
/// let domain = rows.iter().find(|row| row.kind == "domain" && row.value.is_none()).unwrap();
/// assert_eq!((domain.n, domain.gain, domain.mutual_information_bits), (40, 0.5, 1.0));
/// ```
#[derive(Clone, Debug, Default)]
pub struct ImportanceFold {
    all: Counts,
    values: HashMap<Heuristic, Counts>,
    types: HashMap<String, Counts>,
    max_values: Option<usize>,
}

impl ImportanceFold {
    /// Returns a collector with bounded memory, for a long-lived process. Once it has `values`
    /// heuristics, new ones count for their type only; types have the same bound. Each takes about
    /// 200 bytes.
    #[must_use]
    pub fn at_most(values: usize) -> Self {
        Self { max_values: Some(values), ..Self::default() }
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: Self) {
        let most = self.max_values.unwrap_or(usize::MAX);
        self.all.merge(other.all);
        for (kind, counts) in other.types {
            let has_room = self.types.len() < most;
            match self.types.get_mut(&kind) {
                Some(known) => known.merge(counts),
                None if has_room => drop(self.types.insert(kind, counts)),
                None => {}
            }
        }
        for (heuristic, counts) in other.values {
            let has_room = self.values.len() < most;
            match self.values.get_mut(&heuristic) {
                Some(known) => known.merge(counts),
                None if has_room => drop(self.values.insert(heuristic, counts)),
                None => {}
            }
        }
    }

    /// Counts an attempt, unless it counts neither for nor against its fetcher. If it has several
    /// values of one type, only the first counts for the type.
    pub fn observe(&mut self, attempt: &Attempt) {
        if !is_judged(attempt) {
            return;
        }
        self.all.add(attempt.success);
        let most = self.max_values.unwrap_or(usize::MAX);
        for (place, tag) in attempt.heuristics.iter().enumerate() {
            let is_same_kind = |earlier: &&fetchwise_types::attempt::Tag| {
                earlier.heuristic.kind == tag.heuristic.kind
            };
            if attempt.heuristics[..place].iter().find(is_same_kind).is_none() {
                let has_room = self.types.len() < most;
                match self.types.get_mut(tag.heuristic.kind.as_ref()) {
                    Some(counts) => counts.add(attempt.success),
                    None if has_room => {
                        self.types
                            .entry(tag.heuristic.kind.to_string())
                            .or_default()
                            .add(attempt.success);
                    }
                    None => {}
                }
            }
            let has_room = self.values.len() < most;
            match self.values.get_mut(&tag.heuristic) {
                Some(counts) => counts.add(attempt.success),
                None if has_room => {
                    self.values.entry(tag.heuristic.clone()).or_default().add(attempt.success);
                }
                None => {}
            }
        }
    }

    /// Returns a row for each type and each value with more than [`MIN_SAMPLE`] attempts: types
    /// first, then by descending gain.
    pub fn rows(&self) -> Vec<Importance> {
        let enough = |counts: &Counts| counts.n > MIN_SAMPLE;
        let types = self
            .types
            .iter()
            .filter(|(_, counts)| enough(counts))
            .map(|(kind, counts)| self.of_type(kind, *counts));
        let values =
            self.values.iter().filter(|(_, counts)| enough(counts)).map(|(heuristic, counts)| {
                Importance {
                    kind: heuristic.kind.to_string(),
                    after: is_of_response(&heuristic.kind),
                    value: Some(heuristic.value.to_string()),
                    gain: (counts.rate() - self.all.rate()).abs(),
                    mutual_information_bits: self.information([*counts].into_iter()),
                    ..self.row(*counts)
                }
            });
        let mut rows: Vec<Importance> = types.chain(values).collect();
        rows.sort_by(|a, b| {
            let order = a.value.is_some().cmp(&b.value.is_some()).then(b.gain.total_cmp(&a.gain));
            order.then(b.n.cmp(&a.n)).then_with(|| (&a.kind, &a.value).cmp(&(&b.kind, &b.value)))
        });
        rows
    }

    fn row(&self, counts: Counts) -> Importance {
        Importance {
            kind: String::new(),
            value: None,
            after: false,
            n: counts.n,
            baseline: self.all.rate(),
            conditional_rate: counts.rate(),
            gain: 0.0,
            mutual_information_bits: 0.0,
        }
    }

    /// Returns a type's row. Values with too few attempts are grouped, because each alone would
    /// seem to explain its few attempts perfectly.
    fn of_type(&self, kind: &str, of_kind: Counts) -> Importance {
        let mut groups: Vec<Counts> = Vec::new();
        let mut rest = of_kind;
        for (_, counts) in
            self.values.iter().filter(|(h, counts)| h.kind == kind && counts.n > MIN_SAMPLE)
        {
            groups.push(*counts);
            rest.n = rest.n.saturating_sub(counts.n);
            rest.success = rest.success.saturating_sub(counts.success).min(rest.n);
        }
        groups.push(rest);
        // Sorted, because sums of floats, and so the output, must not depend on the map's order.
        groups.sort_unstable_by_key(|counts| (counts.n, counts.success));
        let off = |counts: &Counts| counts.n as f64 * (counts.rate() - self.all.rate()).abs();
        let n: f64 = groups.iter().map(|counts| counts.n as f64).sum();
        Importance {
            kind: kind.to_owned(),
            after: is_of_response(kind),
            gain: if n > 0.0 { groups.iter().map(off).sum::<f64>() / n } else { 0.0 },
            mutual_information_bits: self.information(groups.into_iter()),
            ..self.row(of_kind)
        }
    }

    /// Returns the mutual information of success and an attempt's group; attempts outside all
    /// `groups` form one more group.
    fn information(&self, groups: impl Iterator<Item = Counts>) -> f64 {
        let all = self.all.n as f64;
        let rate = self.all.rate();
        let mut outside = self.all;
        let mut bits = 0.0;
        let mut add = |counts: Counts| {
            for (joint, share) in [(counts.success, rate), (counts.n - counts.success, 1.0 - rate)]
            {
                if joint > 0 {
                    let (joint, group) = (joint as f64 / all, counts.n as f64 / all);
                    bits += joint * (joint / (group * share)).log2();
                }
            }
        };
        for counts in groups {
            outside.n = outside.n.saturating_sub(counts.n);
            outside.success = outside.success.saturating_sub(counts.success).min(outside.n);
            add(counts);
        }
        add(outside);
        bits.max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fetchwise_types::attempt::Tag;
    use fetchwise_types::attempt::error_kind::ErrorKind;
    use fetchwise_types::time::Timestamp;

    fn attempt(success: bool, tags: &[(&'static str, &'static str)]) -> Attempt {
        let url = url::Url::parse("https://e.org/").unwrap();
        let mut attempt = Attempt::new(&url, "f", Timestamp::from_millis(0)).unwrap();
        attempt.heuristics =
            tags.iter().map(|(kind, value)| Tag::from(Heuristic::new(*kind, *value))).collect();
        if success { attempt.delivered() } else { attempt.failed(ErrorKind::BlockedCaptcha) }
    }

    fn row(fold: &ImportanceFold, kind: &str, value: Option<&str>) -> Option<Importance> {
        fold.rows().into_iter().find(|row| row.kind == kind && row.value.as_deref() == value)
    }

    #[test]
    fn gain_is_the_distance_from_the_baseline_and_information_is_in_bits() {
        let mut fold = ImportanceFold::default();
        // 20 of 40 succeed, and 2 of the 16 with a captcha.
        (0..16).for_each(|n| fold.observe(&attempt(n < 2, &[("has_captcha", "true")])));
        (0..24).for_each(|n| fold.observe(&attempt(n < 18, &[])));
        let captcha = row(&fold, "has_captcha", Some("true")).unwrap();
        assert_eq!(
            (captcha.n, captcha.baseline, captcha.conditional_rate, captcha.gain),
            (16, 0.5, 0.125, 0.375)
        );
        // H(1/2) - 0.4 H(1/8) - 0.6 H(3/4), computed by hand.
        let h = |p: f64| -p * p.log2() - (1.0 - p) * (1.0 - p).log2();
        let want = 1.0 - 0.4 * h(0.125) - 0.6 * h(0.75);
        assert!((captcha.mutual_information_bits - want).abs() < 1e-12);
        let of_type = row(&fold, "has_captcha", None).unwrap();
        assert!((of_type.mutual_information_bits - want).abs() < 1e-12 && of_type.gain == 0.375);
    }

    /// Each dead link lowered the rate of its site, and the baseline.
    #[test]
    fn missing_pages_count_neither_as_attempts_nor_as_failures() {
        let mut fold = ImportanceFold::default();
        let tags = &[("site", "e.org")];
        (0..30).for_each(|n| fold.observe(&attempt(n < 24, tags)));
        let missing = |kind: ErrorKind| {
            Attempt { error_type: None, success: false, ..attempt(false, tags) }.failed(kind)
        };
        (0..50).for_each(|_| fold.observe(&missing(ErrorKind::NotFound)));
        (0..50).for_each(|_| fold.observe(&missing(ErrorKind::RateLimited)));
        let site = row(&fold, "site", Some("e.org")).unwrap();
        assert_eq!((site.n, site.baseline, site.conditional_rate, site.gain), (30, 0.8, 0.8, 0.0));
    }

    #[test]
    fn ten_attempts_are_too_few_and_eleven_are_not() {
        let mut fold = ImportanceFold::default();
        (0..10).for_each(|_| fold.observe(&attempt(true, &[("a", "x")])));
        (0..11).for_each(|_| fold.observe(&attempt(false, &[("a", "y")])));
        assert!(row(&fold, "a", Some("x")).is_none());
        assert_eq!(row(&fold, "a", Some("y")).unwrap().n, 11);
        assert_eq!(row(&fold, "a", None).unwrap().n, 21);
    }

    #[test]
    fn many_rare_values_give_no_information() {
        let mut fold = ImportanceFold::default();
        for n in 0..1000u32 {
            let mut attempt = attempt(n.is_multiple_of(3), &[]);
            attempt.heuristics.push(Tag::from(Heuristic::new("id", n.to_string())));
            fold.observe(&attempt);
        }
        let id = row(&fold, "id", None).unwrap();
        assert!(id.gain < 1e-12 && id.mutual_information_bits < 1e-12, "{id:?}");
    }

    #[test]
    fn merged_halves_equal_the_whole() {
        let attempts: Vec<Attempt> = (0..60)
            .map(|n| {
                attempt(n % 3 == 0, &[("a", ["x", "y", "z"][n % 3]), ("b", ["v", "w"][n % 2])])
            })
            .collect();
        let fold = |of: &[Attempt]| {
            let mut fold = ImportanceFold::default();
            of.iter().for_each(|attempt| fold.observe(attempt));
            fold
        };
        let mut halves = fold(&attempts[..25]);
        halves.merge(fold(&attempts[25..]));
        assert_eq!(halves.rows(), fold(&attempts).rows());
    }

    #[test]
    fn with_a_bound_new_values_count_for_their_type_only() {
        let mut fold = ImportanceFold::at_most(2);
        for value in ["x", "y", "z"] {
            (0..20).for_each(|n| fold.observe(&attempt(n < 5, &[("a", value)])));
        }
        assert!(row(&fold, "a", Some("x")).is_some() && row(&fold, "a", Some("y")).is_some());
        assert!(row(&fold, "a", Some("z")).is_none());
        assert_eq!(row(&fold, "a", None).unwrap().n, 60);
    }

    #[test]
    fn nothing_gives_no_rows() {
        assert!(ImportanceFold::default().rows().is_empty());
    }
}
