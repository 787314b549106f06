//! Quota of a site at the levels that all sites share: what one site contributes there is bounded,
//! however many attempts are made on it. Otherwise a busy or hostile site would decide for all
//! others.
//!
//! An attempt beyond the quota carries
//! [`SITE_SATURATED`](fetchwise_types::heuristic::SITE_SATURATED) and changes only evidence about
//! its own site. The tag is written when the attempt is recorded, so that replays, retractions and
//! other nodes treat the attempt alike, in any order. A site is what one party can get: a
//! registrable domain, or a network of addresses. The sites below one name that somebody has
//! registered, such as `github.io`, have a quota together besides: anyone can get any number of
//! them.
//!
//! Owns: the quota.
//!
//! Must not know: which levels are shared.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::decayed_counts::DecayedCounts;
use super::{Entry, Evidence, Group, Key, Level};
use fetchwise_types::attempt::Attempt;
use fetchwise_types::heuristic::url::{self, ContentKind};
use fetchwise_types::heuristic::{Heuristic, SITE_SATURATED};
use fetchwise_types::registry::{FetcherId, Registry};
use fetchwise_types::time::Timestamp;

/// Decayed attempts of a site, for each fetcher and for files and pages, that count at the shared
/// levels.
pub(super) const SITE_QUOTA: f64 = 4.0;
/// The same for all sites below one registered name: as many as of four sites.
pub(super) const REGISTERED_QUOTA: f64 = 16.0;

impl Evidence {
    /// Calls `f` with the tags that `attempt`, which evidence has not learned from yet, gets for
    /// its site: whether it is beyond the quota of its site or of the registered name above, and
    /// what it says of the proof of its site.
    pub(crate) fn each_site_tag(
        &self,
        attempt: &Attempt,
        registry: &Registry,
        mut f: impl FnMut(Heuristic),
    ) {
        let Some(site) = attempt.heuristic("site").or_else(|| attempt.heuristic("domain")) else {
            return;
        };
        if attempt.weight <= 0.0 {
            return;
        }
        let (network, guard) = (network_of(site), self.guard());
        let entry = self.known(Key::domain(network.as_deref().unwrap_or(site)), &guard);
        let is_saturated = entry
            .is_some_and(|entry| self.has_used_up(entry, SITE_QUOTA, attempt, registry))
            || registered_above(site)
                .and_then(|name| self.known(Key::domain(name), &guard))
                .is_some_and(|service| {
                    self.has_used_up(service, REGISTERED_QUOTA, attempt, registry)
                });
        if is_saturated {
            f(Heuristic::flag(SITE_SATURATED));
        }
        if attempt.success || !is_saturated {
            self.each_proof_tag(entry, (attempt, site), registry, f);
        }
    }

    /// Returns whether `attempt` is beyond the quota of the sites that `entry` counts.
    ///
    /// What these have contributed is at most the quota at the time of the newest attempt, and has
    /// decayed since. The part that is free again admits the next attempt by chance, so that a busy
    /// site contributes its quota on average, and mostly by recent attempts.
    fn has_used_up(
        &self,
        entry: &Entry,
        quota: f64,
        attempt: &Attempt,
        registry: &Registry,
    ) -> bool {
        let Some(fetcher) = registry.find(&attempt.fetcher) else { return false };
        let (decay, at) = (self.decay(), attempt.attempted_at);
        let (mut total, mut newest_s) = (0.0, 0);
        each_of_site(entry, self.kind_of(attempt), |id, cell| {
            if id == fetcher {
                let weights = cell.read(decay.down(at));
                (total, newest_s) = (total + weights.total, newest_s.max(weights.newest_s));
            }
        });
        let newest = Timestamp::from_millis(i64::from(newest_s) * 1000);
        let decayed = (decay.up(newest) * decay.down(at)).min(1.0);
        let free = quota - f64::min(total, quota * decayed);
        free < attempt.weight && chance(attempt) * attempt.weight >= free
    }
}

/// Calls `f` for each fetcher's cells of the sites that an entry counts: those of the domain of its
/// name, and those of other domains.
pub(super) fn each_of_site(
    entry: &Entry,
    kind: ContentKind,
    mut f: impl FnMut(FetcherId, &DecayedCounts),
) {
    for level in [Level::Own, Level::Site] {
        entry.for_each(Group::new(level, kind, 0), &mut f);
    }
}

/// Returns the network of a bare address, which one party usually has as a whole: the first 24 bits
/// of an IPv4 address, or the first 48 of an IPv6 address.
pub(super) fn network_of(domain: &str) -> Option<String> {
    // Names are no addresses, and nearly all domains are names.
    if !domain.starts_with(|first: char| first == '[' || first.is_ascii_hexdigit()) {
        return None;
    }
    domain.trim_matches(['[', ']']).parse().ok().map(url::network_of)
}

/// Returns the registered name above a site, if the site is below a name of a service that gives
/// out names.
pub(super) fn registered_above(site: &str) -> Option<&str> {
    // Such a site has two dots at least, and most have one. The last byte of an address is a digit
    // or a bracket.
    let has_two_dots = site.bytes().filter(|byte| *byte == b'.').nth(1).is_some();
    if !has_two_dots || !site.ends_with(|last: char| last.is_ascii_lowercase()) {
        return None;
    }
    url::registered_domain(site).filter(|name| *name != site)
}

/// Returns a number in [0, 1) that is the same for the same attempt.
fn chance(attempt: &Attempt) -> f64 {
    let seed = attempt.attempted_at.as_millis() as u64;
    xxh3_64_with_seed(attempt.url.as_bytes(), seed) as f64 / 2f64.powi(64)
}
