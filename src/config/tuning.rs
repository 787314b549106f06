//! `[tuning]`: constants that only experiments change.
//!
//! Owns: their declarations, and the new place of a key that somebody looks for in the table of its
//! part.
//!
//! Invariants: nothing here is promised to the next release, and no guide needs a key of it.
//!
//! Must not know: the effect of a value, which `build` knows.

use std::time::Duration;

use serde::Deserialize;

use super::declare::{Key, settings};
use super::rule::{AMOUNT, DEADLINE, FLEET_RATE, RATE, Rule, SHARE, one_or_more};
use super::sections::{ImportanceMode, SignedHttp, SigningCoverage, SigningForm};
use super::value;

/// Name of the table.
const TABLE: &str = "tuning";

settings! {
    /// `[tuning]`
    #[derive(Clone, Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct TuningConfig {
        /// Cost of a blocked response in addition to its request.
        pub blocked_cost: Option<f64> = 2.0, valid AMOUNT;
        /// Discount of estimates of success, as a share of them.
        pub success_discount: Option<f64> = 0.1, valid Rule::Range(0.0..=1.0 - f64::EPSILON, "0 to just under 1");
        /// Confidence above which a fetcher is trusted.
        pub min_confidence: Option<f64> = 0.6, valid SHARE;
        /// Number of attempts from which on a fetcher can be trusted.
        pub min_attempts: Option<f64> = 5.0, valid AMOUNT;
        /// Explorations, as a share of first attempts; 0 for none.
        pub explore_rate: Option<f64> = 0.02, valid SHARE;
        /// Rate of retrying a cheaper fetcher that failed, on a host that was idle; 0 for no more
        /// than explore_rate.
        pub explore_stale_rate: Option<f64> = 0.03, valid AMOUNT;
        /// Upper limit of explorations, as a share of first attempts.
        pub max_explore_rate: Option<f64> = 0.2, valid SHARE;
        /// Probability of one more try before giving up.
        pub last_ditch: Option<f64> = 0.2, valid SHARE;
        /// Pseudo-attempts against the plain fetcher's outcomes on a site; 0 ignores those
        /// outcomes.
        pub plain_outcome_weight: Option<f64> = 0.5, valid AMOUNT;
        /// Pseudo-attempts against hosts with the same vendor or framework; 0 ignores them and
        /// never gives a host up.
        pub host_signal_weight: Option<f64> = 5.0, valid AMOUNT;
        /// Requests to a host whose vendor no fetcher passes, as a share of first attempts.
        pub impassable_try_rate: Option<f64> = 0.05, valid SHARE;
        /// Half-life of evidence in days: an attempt of this age has half its weight.
        pub half_life_days: Option<f64> = 30.0, valid Rule::Range(7.0..=365.0, "7 to 365");
        /// Whether the built-in priors are used: .pdf, .mp4 and /cdn/ start with direct_access.
        pub built_in_priors: Option<bool> = true;
        /// off, prune or scale: effect of the recorded results of `fetchwise importance --write` on
        /// evidence.
        pub importance: Option<ImportanceMode> = "off";
        /// With importance prune: heuristics with less importance are ignored.
        pub importance_min: Option<f64> = 0.02, valid SHARE;
        /// With importance scale: heuristics with this importance count in full, others in
        /// proportion.
        pub importance_full: Option<f64> = 0.2, valid Rule::Range(f64::MIN_POSITIVE..=1.0, "a number above 0, up to 1");
        /// Confidence from which on a page counts as blocked. docs/concepts/detection.md explains
        /// it.
        pub block_threshold: Option<f64> = 0.5, valid Rule::Range(0.05..=1.0, "0.05 to 1");
        /// First pause of a link after a captcha, 403 or 429.
        #[serde(deserialize_with = "value::seconds")]
        pub blocked_base: Option<Duration> = "10m";
        /// First pause of a link after another failure.
        #[serde(deserialize_with = "value::seconds")]
        pub failed_base: Option<Duration> = "5m";
        /// Number of blocked links within host_block_window that pauses their host.
        pub host_block_threshold: Option<u32> = 3;
        /// Time within which blocked links of a host count together.
        #[serde(deserialize_with = "value::seconds")]
        pub host_block_window: Option<Duration> = "10m";
        /// Requests per second of a host below which errors alone lower no rate; a 429, a
        /// Retry-After or a block does.
        pub pace_min_rate: Option<f64> = 0.2, valid RATE;
        /// Deadline of one probe.
        #[serde(deserialize_with = "value::seconds")]
        pub probe_timeout: Option<Duration> = "3s", valid DEADLINE;
        /// Time without a request after which a loaded page is read, once its scripts no longer
        /// change it and it has something to read.
        #[serde(deserialize_with = "value::seconds")]
        pub browser_quiet: Option<Duration> = "500ms", valid DEADLINE;
        /// Time after which a loaded page that keeps changing, or has nothing to read yet, is read
        /// as it is.
        #[serde(deserialize_with = "value::seconds")]
        pub browser_max_settle: Option<Duration> = "10s", valid DEADLINE;
        /// request or authority: what a signature covers.
        pub signature_coverage: Option<SigningCoverage> = "request";
        /// auto, dictionary or string: the form of Signature-Agent.
        pub signature_form: Option<SigningForm> = "auto";
        /// never or loopback: signed plain http, for tests.
        pub sign_http: Option<SignedHttp> = "never";
        /// Probability of no false alarm within a stage of a rollout, over any number of interim
        /// looks.
        pub rollout_confidence: Option<f64> = 0.95, valid Rule::Range(0.5..=0.9999, "0.5 to 0.9999");
        /// Tolerated difference between the arms of a rollout: for success and bans as a share, for
        /// cost and requests in proportion (there 0.1).
        pub rollout_margin: Option<f64> = 0.02, valid SHARE;
        /// Pages that each arm of a rollout has served before the first interim look.
        pub rollout_min_pages: Option<u64> = 100, valid one_or_more::<u64>();
        /// Hosts of these pages, for each arm.
        pub rollout_min_hosts: Option<u64> = 10, valid one_or_more::<u64>();
        /// Remote attempts per second that are accepted from one node in the long run. The rest
        /// waits.
        pub fleet_max_attempts_per_second: Option<f64> = 2000, valid FLEET_RATE;
        /// New keys per second that are accepted from one node. The rest waits.
        pub fleet_max_new_keys_per_second: Option<f64> = 200, valid FLEET_RATE;
        /// Evidence of single nodes in the snapshots of peers/.
        #[serde(deserialize_with = "value::bytes")]
        pub fleet_max_snapshot_bytes: Option<u64> = "8GiB";
        /// Size at which a segment of the log is full. It holds many attempts, so that the
        /// directory holds few files.
        #[serde(deserialize_with = "value::bytes")]
        pub segment_bytes: Option<u64> = "64MiB", valid Rule::Range(64 << 10..=u64::MAX, "\"64KiB\" or more");
    }
}

/// Returns the key of `[tuning]` that the unknown key at `way` stands for: one of the same name,
/// one of that name after the name of its table, or the only one that ends in it. A table of which
/// one key is left has the name of that key.
pub(super) fn meant<'k>(keys: &'k [Key], way: &[String]) -> Option<&'k Key> {
    let [table @ .., name] = way else { return None };
    let named = |name: &str| keys_of_table(keys).find(|(_, own)| *own == name).map(|(key, _)| key);
    let Some(table) = table.last() else { return named(name) };
    named(name)
        .or_else(|| named(&format!("{table}_{name}")))
        .or_else(|| only_end(keys, name))
        .or_else(|| named(table))
}

/// Returns the only key of `[tuning]` whose name ends in `name`.
fn only_end<'k>(keys: &'k [Key], name: &str) -> Option<&'k Key> {
    let end = format!("_{name}");
    let mut alike = keys_of_table(keys).filter(|(_, own)| own.ends_with(&end));
    match (alike.next(), alike.next()) {
        (Some((key, _)), None) => Some(key),
        _ => None,
    }
}

fn keys_of_table(keys: &[Key]) -> impl Iterator<Item = (&Key, &str)> {
    keys.iter().filter_map(|key| match &key.way[..] {
        [table, name] if table == TABLE => Some((key, name.as_str())),
        _ => None,
    })
}
