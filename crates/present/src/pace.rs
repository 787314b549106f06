//! A host's pace.

use serde::Serialize;

use super::TimeJson;
use fetchwise::pace::PaceExplanation;

/// The JSON of a pace.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Pace"))]
pub struct PaceJson {
    /// Requests per second.
    rate: f64,
    parallel: u8,
    /// Whether it is configured instead of learned.
    fixed: bool,
    /// The level that limits it: the host, its site or its address.
    level: String,
    /// The gap that the host's `Crawl-delay` causes.
    crawl_delay_s: Option<f64>,
    /// The gap that the host requested.
    crawl_delay_asked_s: Option<f64>,
    /// The configured upper limit of the gap.
    crawl_delay_cut_s: Option<f64>,
    ceiling: Option<f64>,
    window: Option<&'static str>,
    /// The rate at which the limit was found.
    limit: Option<f64>,
    /// The number of requests within `too_many_within` that was too many.
    too_many: Option<u64>,
    too_many_within: Option<&'static str>,
    confirmed: bool,
    lowered_at: Option<TimeJson>,
    lowered_reason: Option<String>,
    hold_until: Option<TimeJson>,
    penalty_s: Option<f64>,
    next_probe_at: Option<TimeJson>,
    next_rate: Option<f64>,
    latency_s: Option<f64>,
    latency_ratio: Option<f64>,
    /// The share of errors that the host gives at any rate, so that they do not lower it.
    error_noise: Option<f64>,
}

impl From<&PaceExplanation> for PaceJson {
    fn from(of: &PaceExplanation) -> Self {
        Self {
            rate: rounded(of.rate),
            parallel: of.parallel,
            fixed: of.is_fixed,
            level: of.level.to_string(),
            crawl_delay_s: of.min_gap.map(|gap| gap.as_secs_f64()),
            crawl_delay_asked_s: of.crawl_delay.map(|gap| rounded(gap.as_secs_f64())),
            crawl_delay_cut_s: of.crawl_delay_cut.map(|gap| gap.as_secs_f64()),
            ceiling: of.ceiling.map(|(rate, _)| rounded(rate)),
            window: of.ceiling.map(|(_, window)| window),
            limit: of.limit.map(rounded),
            too_many: of.too_many.map(|(count, _)| count),
            too_many_within: of.too_many.map(|(_, window)| window),
            confirmed: of.is_confirmed,
            lowered_at: of.last_limit_hit.map(|(at, _)| TimeJson::of_process(at)),
            lowered_reason: of.last_limit_hit.map(|(_, cause)| cause.to_string()),
            hold_until: of.hold_until.map(TimeJson::of_process),
            penalty_s: of.penalty.map(|span| rounded(span.as_secs_f64())),
            next_probe_at: of.next_probe.map(|(at, _)| TimeJson::of_process(at)),
            next_rate: of.next_probe.map(|(_, rate)| rounded(rate)),
            latency_s: of.latency.map(|(latency, _)| rounded(latency.as_secs_f64())),
            latency_ratio: of.latency.map(|(_, times)| rounded(times)),
            error_noise: of.error_noise.map(rounded),
        }
    }
}

/// Rounds to four significant digits, which is more than the estimate has.
fn rounded(value: f64) -> f64 {
    let unit = 10f64.powi(value.abs().log10().floor().clamp(-12.0, 12.0) as i32 - 3);
    if value == 0.0 { 0.0 } else { (value / unit).round() * unit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_rounded_to_four_digits() {
        let figures = [2.393_96, 0.001_234_56, 161.27, 0.0].map(rounded);
        assert_eq!(figures, [2.394, 0.001_235, 161.3, 0.0]);
    }
}
