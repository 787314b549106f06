//! What sites that only ever failed can teach about others: little, however many they are.
//!
//! Anyone can register names that answer every fetcher with failures. Such a failure says that the
//! fetcher does not get past something, or that there is nothing to get. Nobody knows which until
//! the site delivers something to some fetcher, which proves it. So the failures before that have
//! cells apart at the levels that sites share, and an estimate counts them only up to a share of
//! what proven sites say there. The attempt that proves a site says how many of its earlier
//! failures count in full from then on: on the site of an application, the plain fetcher fails
//! before the browser delivers.
//!
//! Tags carry both ([`SITE_UNPROVEN`], [`SITE_PROVEN`]). They are written when the attempt is
//! recorded, so that replays, retractions and other nodes treat the attempt alike, in any order.
//! All sums are sums over attempts; the bound applies when they are read.
//!
//! Owns: which attempts carry the tags, and the bound.
//!
//! Must not know: which levels are shared.

use super::decayed_counts::{Increment, Weights};
use super::site_quota::{REGISTERED_QUOTA, SITE_QUOTA, each_of_site, registered_above};
use super::{AttemptChange, Entry, Evidence, Group, Key, Level, Observation};
use crate::evidence::shared_reach::SharedReach;
use fetchwise_types::attempt::Attempt;
use fetchwise_types::heuristic::url::ContentKind;
use fetchwise_types::heuristic::{Heuristic, SITE_PROVEN, SITE_UNPROVEN};
use fetchwise_types::registry::{FetcherId, Registry};

/// The failures of unproven sites that an estimate counts, as a share of the other attempts that it
/// counts.
const UNPROVEN_SHARE: f64 = 0.25;
/// The steps of the weights that proven failures are stated in: few values are few texts in the
/// log.
const WEIGHT_STEP: f64 = 0.5;

impl Evidence {
    /// Returns whether the host of `attempt` has delivered to any fetcher.
    pub(crate) fn has_host_delivered(&self, attempt: &Attempt) -> bool {
        attempt.heuristic("domain").is_some_and(|host| {
            self.known(Key::domain(host), &self.guard()).is_some_and(has_delivered)
        })
    }

    /// Calls `f` with the tags that say whether the site of `attempt`, which evidence has not
    /// learned from yet, is proven.
    pub(super) fn each_proof_tag(
        &self,
        entry: Option<&Entry>,
        (attempt, site): (&Attempt, &str),
        registry: &Registry,
        mut f: impl FnMut(Heuristic),
    ) {
        if entry.is_some_and(has_delivered) {
            return;
        }
        match (attempt.success, entry) {
            (false, _) => f(Heuristic::flag(SITE_UNPROVEN)),
            (true, Some(entry)) => self.each_proven(entry, (attempt, site), registry, f),
            (true, None) => {}
        }
    }

    /// Calls `f` with a tag for each fetcher whose failures the site's first delivery shows to be
    /// those of a real site.
    fn each_proven(
        &self,
        entry: &Entry,
        (attempt, site): (&Attempt, &str),
        registry: &Registry,
        mut f: impl FnMut(Heuristic),
    ) {
        let (kind, down, guard) =
            (self.kind_of(attempt), self.decay().down(attempt.attempted_at), self.guard());
        let service = registered_above(site).and_then(|name| self.known(Key::domain(name), &guard));
        // Both parts of a site can have a cell of one fetcher.
        let sum_of = |entry: &Entry, fetcher: FetcherId| {
            let mut sum = 0.0;
            each_of_site(entry, kind, |id, cell| {
                sum += if id == fetcher { cell.read(down).total } else { 0.0 }
            });
            sum
        };
        for (fetcher, spec) in registry.candidates() {
            // What is beyond a quota was not counted at all.
            let is_counted =
                service.is_none_or(|service| sum_of(service, fetcher) <= REGISTERED_QUOTA);
            let failed = sum_of(entry, fetcher).min(SITE_QUOTA);
            let weight = (failed / WEIGHT_STEP).round() * WEIGHT_STEP;
            if is_counted && weight > 0.0 {
                f(Heuristic::new(SITE_PROVEN, format!("{weight} {}", spec.name)));
            }
        }
    }

    /// Calls `f` for the failures that `attempt` proves to be those of a real site: each is at most
    /// one attempt's weight.
    pub(super) fn each_proof(
        attempt: &impl Observation,
        registry: &Registry,
        change: &AttemptChange,
        mut f: impl FnMut(&AttemptChange),
    ) {
        if !change.what.success {
            return;
        }
        attempt.each_heuristic(&mut |kind, value| {
            if kind != SITE_PROVEN {
                return;
            }
            let Some((weight, name)) = value.split_once(' ') else { return };
            let (Ok(mut left), Some(fetcher)) = (weight.parse::<f64>(), registry.find(name)) else {
                return;
            };
            // Other nodes can state anything.
            left = if left.is_finite() { left.min(SITE_QUOTA) } else { 0.0 };
            while left > 0.0 {
                let what = Increment {
                    weight: left.min(1.0),
                    success: false,
                    blocked: false,
                    duration_ms: 0.0,
                    ..change.what
                };
                f(&AttemptChange { fetcher, what, reach: SharedReach::ProvenLater, ..*change });
                left -= 1.0;
            }
        });
    }
}

/// Returns whether a site or a host has delivered a file or a page to any fetcher.
fn has_delivered(entry: &Entry) -> bool {
    let mut delivered = false;
    for kind in [ContentKind::Page, ContentKind::File] {
        each_of_site(entry, kind, |_, cell| delivered |= cell.has_success());
    }
    delivered
}

impl Entry {
    /// Calls `f` with the weights of each fetcher under a key that sites share, as an estimate
    /// counts them. `other` is what the estimate counts besides, in attempts: its weight so far and
    /// its pseudo-attempts.
    #[inline]
    pub(crate) fn each_shared_weights(
        &self,
        kind: ContentKind,
        down: f64,
        other: impl Fn(FetcherId) -> f64,
        mut f: impl FnMut(FetcherId, &Weights),
    ) {
        let own = Group::new(Level::Own, kind, 0);
        let mut has_unproven = false;
        self.for_each(Group::unproven(kind), |_, _| has_unproven = true);
        if !has_unproven {
            return self.for_each(own, |id, cell| f(id, &cell.read(down)));
        }
        self.for_each(own, |id, cell| {
            f(id, &self.with_unproven((id, cell.read(down)), kind, down, other(id)))
        });
        self.for_each(Group::unproven(kind), |id, _| {
            let mut is_alone = true;
            self.for_each(own, |of, _| is_alone &= of != id);
            if is_alone {
                f(id, &self.with_unproven((id, Weights::default()), kind, down, other(id)));
            }
        });
    }

    /// Adds the failures of unproven sites to the weights of a fetcher: those of sites that are
    /// proven by now, and of the others as many as the bound permits.
    #[cold]
    fn with_unproven(
        &self,
        (id, known): (FetcherId, Weights),
        kind: ContentKind,
        down: f64,
        other: f64,
    ) -> Weights {
        let (mut failed, mut proven) = (Weights::default(), 0.0);
        self.for_each(Group::unproven(kind), |of, cell| {
            if of == id {
                failed = cell.read(down);
            }
        });
        self.for_each(Group::proven_later(kind), |of, cell| {
            if of == id {
                proven = cell.read(down).total;
            }
        });
        if failed.total <= 0.0 {
            return known;
        }
        let proven = f64::min(proven, failed.total);
        let counted =
            proven + (failed.total - proven).min(UNPROVEN_SHARE * (known.total + proven + other));
        let part = counted / failed.total;
        Weights {
            total: known.total + counted,
            blocked: known.blocked + failed.blocked * part,
            duration_ms: known.duration_ms + failed.duration_ms * part,
            attempts: known.attempts.saturating_add(failed.attempts),
            ..known
        }
    }
}
