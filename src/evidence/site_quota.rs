//! Quota of a site at the levels that all sites share: what one site contributes there is bounded, however many attempts
//! are made on it. Otherwise a busy or hostile site would decide for all others.
//!
//! An attempt beyond the quota carries [`SITE_SATURATED`] and changes only evidence about its own site. The tag is
//! written when the attempt is recorded, so that replays, retractions and other nodes treat the attempt alike, in any
//! order. A site is what one party can get: a registrable domain, or a network of addresses.
//!
//! Owns: the quota.
//!
//! Must not know: which levels are shared.

use std::net::IpAddr;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{Evidence, Group, Key, Level, Observation};
use fetchwise_types::attempt::Attempt;
use fetchwise_types::heuristic::SITE_SATURATED;
use fetchwise_types::heuristic::url::suffix_of;
use fetchwise_types::registry::Registry;
use fetchwise_types::time::Timestamp;

/// Decayed attempts of a site, for each fetcher and for files and pages, that count at the shared levels.
const SITE_QUOTA: f64 = 4.0;

impl Evidence {
    /// Returns whether `attempt`, which evidence has not learned from yet, is beyond its site's quota.
    ///
    /// What the site has contributed is at most the quota at the time of its newest attempt, and has decayed since. The
    /// part that is free again admits the next attempt by chance, so that a busy site contributes its quota on average,
    /// and mostly by recent attempts.
    pub(crate) fn is_over_quota(&self, attempt: &Attempt, registry: &Registry) -> bool {
        let Some(site) = attempt.heuristic("site").or_else(|| attempt.heuristic("domain")) else { return false };
        let (Some(fetcher), guard) = (registry.find(&attempt.fetcher), self.guard()) else { return false };
        let network = network_of(site);
        let key = Key::domain(network.as_deref().unwrap_or(site));
        let Some(entry) = self.entry(key, &guard).filter(|_| attempt.weight > 0.0) else { return false };
        let (decay, at) = (self.decay(), attempt.attempted_at);
        let kind = self.suffixes.kind(suffix_of(&attempt.url));
        let (mut total, mut newest_s) = (0.0, 0);
        for level in [Level::Own, Level::Site] {
            entry.for_each(Group::new(level, kind, 0), |id, cell| {
                if id == fetcher {
                    let weights = cell.read(decay.down(at));
                    (total, newest_s) = (total + weights.total, newest_s.max(weights.newest_s));
                }
            });
        }
        let newest = Timestamp::from_millis(i64::from(newest_s) * 1000);
        let decayed = (decay.up(newest) * decay.down(at)).min(1.0);
        let free = SITE_QUOTA - f64::min(total, SITE_QUOTA * decayed);
        free < attempt.weight && chance(attempt) * attempt.weight >= free
    }
}

/// Returns the network of a bare address, which one party usually has as a whole: the first 24 bits of an IPv4 address,
/// or the first 48 of an IPv6 address.
pub(super) fn network_of(domain: &str) -> Option<String> {
    // Names are no addresses, and nearly all domains are names.
    if !domain.starts_with(|first: char| first == '[' || first.is_ascii_hexdigit()) {
        return None;
    }
    match domain.trim_matches(['[', ']']).parse().ok()? {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            Some(format!("{a}.{b}.{c}.0/24"))
        }
        IpAddr::V6(address) => {
            let [a, b, c, ..] = address.segments();
            Some(format!("{a:x}:{b:x}:{c:x}::/48"))
        }
    }
}

/// Returns a number in [0, 1) that is the same for the same attempt.
fn chance(attempt: &Attempt) -> f64 {
    let seed = attempt.attempted_at.as_millis() as u64;
    xxh3_64_with_seed(attempt.url.as_bytes(), seed) as f64 / 2f64.powi(64)
}

/// Returns whether the attempt counts at the levels that all sites share.
pub(super) fn counts_everywhere(attempt: &impl Observation) -> bool {
    let mut counts = true;
    attempt.each_heuristic(&mut |kind, _| counts &= kind != SITE_SATURATED);
    counts
}
