//! Hosts that refuse the crawler's signature: whether fetchers that do not declare themselves may
//! go on there.
//!
//! Owns: the standing of a host, and which candidates it leaves out.
//!
//! Invariants: reads evidence only, without a lock. Without a candidate that signs nothing is left
//! out.

use std::time::Duration;

use url::Url;

use super::Selector;
use crate::evidence::{Entry, Group, Level, ShownSignals};
use crate::score::estimate::{Local, LocalKeys};
use fetchwise_types::heuristic::url::{ContentKind, UrlFeatures};
use fetchwise_types::registry::{Class, FetcherId, FetcherSpec};
use fetchwise_types::time::Timestamp;
use fetchwise_types::unknown_name::UnknownName;

/// The time for which a success of a fetcher that signs, and a refusal, count.
const REMEMBERED: Duration = Duration::from_secs(30 * 86_400);
/// Number of blocks in a row of fetchers that sign from which on a host refuses them.
const REFUSED_FROM_BLOCKS: u32 = 2;
/// The time after a block before a fetcher is tried again on a host that refuses signed requests.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(86_400);

/// What happens on a host that blocks the fetchers that sign.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantNames,
)]
#[strum(serialize_all = "lowercase", parse_err_ty = UnknownName, parse_err_fn = no_reaction)]
pub enum AfterRefusal {
    /// Fetchers that do not declare themselves are no candidates there for 30 days.
    #[default]
    Leave,
    /// All fetchers stay candidates.
    Escalate,
}

fn no_reaction(name: &str) -> UnknownName {
    UnknownName::new(
        "after_refusal",
        name,
        <AfterRefusal as strum::VariantNames>::VARIANTS.iter().copied(),
    )
}

/// How a host treats the fetchers that sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It has blocked none of them since their last success, or nobody asked.
    Open,
    /// It has blocked one of them once. Another signed request has to show whether it refuses them.
    Doubtful,
    /// It has blocked them twice in a row, and delivered nothing to them for 30 days.
    Refused,
}

impl Standing {
    /// Returns whether the host leaves out no fetcher.
    pub(super) fn is_open(self) -> bool {
        self == Self::Open
    }

    /// Returns whether a candidate may not be taken on the host of `entry`.
    #[cold]
    pub(super) fn leaves_out(
        self,
        spec: &FetcherSpec,
        id: FetcherId,
        entry: Option<&Entry>,
        now: Timestamp,
    ) -> bool {
        match self {
            Self::Open => false,
            Self::Doubtful => !spec.declared,
            // One try a day shows when the host changes its mind. An archive asks another host.
            Self::Refused if spec.declared && spec.class != Class::Archive => {
                entry.is_some_and(|entry| {
                    let breaker = entry.breaker(id);
                    breaker.blocks > 0 && now < breaker.last.saturating_add(TRY_AGAIN_AFTER)
                })
            }
            Self::Refused => !spec.declared,
        }
    }
}

impl Selector {
    /// Returns how the host of `entry` treats the fetchers that sign. `signals` are those that it
    /// shows.
    #[inline]
    pub(super) fn standing(
        &self,
        entry: Option<&Entry>,
        signals: ShownSignals,
        now: Timestamp,
    ) -> Standing {
        if self.learned.registry.signed().is_empty() || self.after_refusal != AfterRefusal::Leave {
            return Standing::Open;
        }
        match entry.filter(|entry| entry.has_breakers()) {
            Some(entry) => self.standing_after_blocks(entry, signals, now),
            None => Standing::Open,
        }
    }

    #[cold]
    fn standing_after_blocks(
        &self,
        entry: &Entry,
        signals: ShownSignals,
        now: Timestamp,
    ) -> Standing {
        let signed = self.learned.registry.signed();
        let registered =
            self.learned.evidence.signals().registered_at(signals[0].map(|(id, _)| id));
        let mut blocks = 0u32;
        for (id, _) in self.learned.registry.candidates().filter(|(id, _)| signed.contains(*id)) {
            let breaker = entry.breaker(id);
            // A block before the registration says nothing about requests since.
            let is_recent =
                now < breaker.last.saturating_add(REMEMBERED) && breaker.last >= registered;
            blocks += if is_recent { u32::from(breaker.blocks) } else { 0 };
        }
        if blocks == 0 {
            return Standing::Open;
        }
        let decay = self.learned.evidence.decay();
        let down = decay.down(now);
        let mut successes = 0.0;
        for kind in [ContentKind::Page, ContentKind::File] {
            entry.for_each(Group::new(Level::Own, kind, 0), |id, cell| {
                if signed.contains(id) {
                    successes += cell.read(down).success;
                }
            });
        }
        // The weight of one success of that age. Several older ones may weigh as much.
        let earliest = Timestamp::from_millis(now.as_millis() - REMEMBERED.as_millis() as i64);
        match blocks {
            _ if successes >= decay.up(earliest) * down => Standing::Open,
            REFUSED_FROM_BLOCKS.. => Standing::Refused,
            _ => Standing::Doubtful,
        }
    }

    /// Returns whether the crawl's policy leaves the host of `url`: it refuses signed requests.
    pub(crate) fn is_left_by_policy(&self, url: &Url, now: Timestamp) -> bool {
        if self.learned.registry.signed().is_empty() {
            return false;
        }
        let Ok(features) = UrlFeatures::extract(url) else { return false };
        let guard = self.learned.evidence.guard();
        let local = Local::find(&self.learned.evidence, LocalKeys::of(&features), &guard);
        let signals = local.shown_signals(crate::evidence::day_of(now));
        self.standing(local.domain, signals, now) == Standing::Refused
    }

    /// Returns the vendor that the newest blocks of the host of `url` named, such as `cloudflare`,
    /// as far as the evidence tells. It takes a lock: no part of a decision.
    pub fn block_vendor(&self, url: &Url) -> Option<Box<str>> {
        let features = UrlFeatures::extract(url).ok()?;
        self.bring_back(url, &[]);
        let guard = self.learned.evidence.guard();
        let local = Local::find(&self.learned.evidence, LocalKeys::of(&features), &guard);
        let [vendor, _] = local.shown_signals(crate::evidence::day_of(self.now()));
        let name = self.learned.evidence.signals().name_of(vendor?.0)?;
        name.strip_prefix(crate::evidence::VENDOR_PREFIX).map(Into::into)
    }

    /// Takes note that the crawler was registered at a vendor, such as `cloudflare`. Earlier
    /// evidence of the fetchers that sign is not read behind that vendor from then on. Call it
    /// before evidence is loaded, and when it happens.
    ///
    /// Returns false if there is no room for another vendor.
    pub fn register_at_vendor(&self, vendor: &str, at: Timestamp) -> bool {
        self.learned.evidence.signals().register(vendor, at)
    }
}
