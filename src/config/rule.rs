//! Valid values of settings.
//!
//! Owns: the rules that several keys share, and those that are more than a range.
//!
//! Invariants: no range contains NaN.
//!
//! Must not know: which keys a rule applies to.

use std::ops::RangeInclusive;
use std::time::Duration;

use url::Url;

use super::value::CompactThreshold;

/// Valid values of a key, with the words for them that stand after "expected".
pub(super) enum Rule<T> {
    Range(RangeInclusive<T>, &'static str),
    Test(fn(&T) -> bool, &'static str),
}

impl<T: PartialOrd> Rule<T> {
    pub(super) fn accepts(&self, value: &T) -> bool {
        match self {
            Self::Range(range, _) => range.contains(value),
            Self::Test(is_valid, _) => is_valid(value),
        }
    }

    pub(super) fn expected(&self) -> &'static str {
        match self {
            Self::Range(_, expected) | Self::Test(_, expected) => expected,
        }
    }
}

/// Returns the rule for a number that counts something.
pub(super) fn one_or_more<T: PartialOrd + From<u8>>() -> Rule<T> {
    Rule::Test(|number| *number >= T::from(1), "1 or more")
}

pub(super) const SHARE: Rule<f64> = Rule::Range(0.0..=1.0, "0 to 1");
pub(super) const AMOUNT: Rule<f64> = Rule::Range(0.0..=1e9, "a number from 0 up");
pub(super) const DEADLINE: Rule<Duration> =
    Rule::Range(Duration::from_millis(1)..=Duration::from_secs(86_400), "\"1ms\" to \"1day\"");
/// Requests per second of a host.
pub(super) const RATE: Rule<f64> = Rule::Range(1e-4..=1e4, "0.0001 to 10000 requests per second");
pub(super) const PARALLEL: Rule<u8> = Rule::Range(1..=u8::MAX, "1 to 255");
/// Messages of one node of a fleet.
pub(super) const FLEET_RATE: Rule<f64> = Rule::Range(1.0..=1e9, "1 to 1000000000 per second");

pub(super) const COMPACT_THRESHOLD: Rule<CompactThreshold> = Rule::Test(
    |threshold| threshold.share().is_none_or(|share| (0.01..=1.0).contains(&share)),
    "0.01 to 1, or \"never\"",
);

pub(super) const ORIGIN: Rule<String> = Rule::Test(
    |text| {
        let is_origin = |url: Url| {
            url.scheme() == "https"
                && format!("{}/", url.origin().ascii_serialization()) == url.as_str()
        };
        Url::parse(text).is_ok_and(is_origin)
    },
    "an https origin without a path, such as \"https://bot.example\"",
);

pub(super) const PAGE: Rule<String> = Rule::Test(
    |text| {
        Url::parse(text)
            .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.as_str().is_ascii())
    },
    "an http or https URL",
);

pub(super) const PRODUCT_TOKEN: Rule<String> = Rule::Test(
    |name| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        (1..=64).contains(&name.len()) && name.bytes().all(is_allowed)
    },
    "1 to 64 letters, digits, - or _, such as \"ExampleBot\"",
);

pub(super) const VARIABLE: Rule<String> =
    Rule::Test(|name| !name.is_empty(), "the name of a variable");
