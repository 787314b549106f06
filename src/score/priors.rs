//! Priors: pseudo-attempts that are added to the evidence of a heuristic, configured or brought
//! from another crawler.
//!
//! Invariants: pseudo-attempts are no evidence. They do not decay, no snapshot has them as
//! evidence, and no other node receives them.
//!
//! Must not know: what the estimates are used for.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use crate::evidence::{Key, PrehashedHasher, part_hash, signal_key};
use fetchwise_types::attempt::Hint;
use fetchwise_types::heuristic::HOST_SHOWED;
use fetchwise_types::heuristic::url::{ContentKind, FLAGS};
use fetchwise_types::registry::{Class, FetcherId, Registry};

/// Pseudo-attempts that are added to the evidence of one heuristic, so that there is an estimate
/// before the first attempt. They do not decay.
#[derive(Clone, Debug, PartialEq)]
pub struct Prior {
    /// The heuristic's type.
    pub kind: String,
    /// Its value.
    pub value: String,
    /// The fetcher.
    pub fetcher: String,
    /// The success rate.
    pub success_rate: f64,
    /// Number of pseudo-attempts.
    pub samples: f64,
}

impl Prior {
    /// Returns a prior of ten pseudo-attempts.
    pub fn new(kind: &str, value: &str, fetcher: &str, success_rate: f64) -> Self {
        let [kind, value, fetcher] = [kind, value, fetcher].map(str::to_owned);
        Self { kind, value, fetcher, success_rate, samples: 10.0 }
    }

    /// Returns the built-in priors of every selector: a plain request delivers files and CDN paths.
    pub fn built_in() -> Vec<Self> {
        vec![
            Self::new("suffix", ".pdf", "direct_access", 0.95),
            Self::new("suffix", ".mp4", "direct_access", 0.95),
            Self::new("contains_cdn", "true", "direct_access", 0.85),
        ]
    }
}

/// The pseudo-attempts of each hint: their number, and the success rate by class of fetcher. They
/// lead the very first captcha to stealth, and the first shell to the browser.
const HINT_SAMPLES: f64 = 10.0;
const HINT_RATES: [(Hint, &[(Class, f64)]); 2] = [
    (Hint::Blocked, &[(Class::Rendering, 0.3), (Class::Stealth, 0.9), (Class::Archive, 0.6)]),
    (Hint::Empty, &[(Class::Rendering, 0.95), (Class::Stealth, 0.95), (Class::Archive, 0.15)]),
];

/// Pseudo-attempts of one candidate: successes and total.
pub(super) type PseudoAttempts = (FetcherId, f64, f64);

/// All priors by their keys.
#[derive(Debug, Default)]
pub(crate) struct Priors {
    by_key: ByContent<Keyed>,
    by_hint: ByContent<[Vec<PseudoAttempts>; 4]>,
    by_signal: ByContent<Keyed>,
}

/// One for pages, one for files.
type ByContent<T> = [T; 2];
type Keyed = HashMap<u64, Vec<PseudoAttempts>, BuildHasherDefault<PrehashedHasher>>;

impl Priors {
    pub(crate) fn new(priors: &[Prior], registry: &Registry) -> Self {
        let mut all = Self::default();
        for prior in priors {
            let Some(id) = registry.find(&prior.fetcher) else { continue };
            let key = prior_key(&prior.kind, &prior.value);
            for id in with_signed(registry, id) {
                let pseudo = (id, prior.success_rate * prior.samples, prior.samples);
                all.by_key
                    .iter_mut()
                    .for_each(|by_key| add(by_key.entry(key).or_default(), pseudo));
            }
        }
        for (hint, rates) in HINT_RATES {
            for (id, spec) in registry.candidates() {
                if let Some((_, rate)) = rates.iter().find(|(class, _)| *class == spec.class) {
                    let pseudo = (id, rate * HINT_SAMPLES, HINT_SAMPLES);
                    all.by_hint.iter_mut().for_each(|by_hint| by_hint[hint as usize].push(pseudo));
                }
            }
        }
        all
    }

    /// Adds what another crawler has learned of no single host. Unknown fetchers and heuristics
    /// have no effect.
    pub(crate) fn add_portable(&mut self, priors: &[PortablePrior], registry: &Registry) {
        for prior in priors {
            let Some(id) = registry.find(&prior.fetcher) else { continue };
            let (samples, content) =
                (prior.bounded_samples() * import_weight(&prior.kind), prior.content as usize);
            let pseudo = (id, prior.success_rate.clamp(0.0, 1.0) * samples, samples);
            match prior.kind.as_str() {
                HOST_SHOWED => add(
                    self.by_signal[content].entry(signal_key(&prior.value)).or_default(),
                    pseudo,
                ),
                "hint" => {
                    let Some(hint) = Hint::from_name(&prior.value) else { continue };
                    // They replace the built-in ones, which know only the class of the fetcher.
                    let of_hint = &mut self.by_hint[content][hint as usize];
                    of_hint.retain(|known| known.0 != id);
                    of_hint.push(pseudo);
                }
                kind if is_portable(kind) => {
                    let of_key =
                        self.by_key[content].entry(prior_key(kind, &prior.value)).or_default();
                    // The attempts after a block, and behind a vendor, are about requests without a
                    // signature.
                    with_signed(registry, id).for_each(|id| add(of_key, (id, pseudo.1, pseudo.2)));
                }
                _ => {}
            }
        }
    }

    /// Returns the pseudo-attempts of a hint.
    pub(super) fn of_hint(&self, hint: Hint, content: ContentKind) -> &[PseudoAttempts] {
        &self.by_hint[content as usize][hint as usize]
    }

    /// Returns the pseudo-attempts of the host signal whose name has this key.
    #[inline]
    pub(super) fn of_signal(&self, key: u64, content: ContentKind) -> &[PseudoAttempts] {
        of(&self.by_signal[content as usize], key)
    }

    /// Returns the pseudo-attempts of a heuristic.
    #[inline]
    pub(super) fn of_key(&self, key: u64, content: ContentKind) -> &[PseudoAttempts] {
        of(&self.by_key[content as usize], key)
    }
}

/// Returns a fetcher and the candidates that make its requests with a signature.
fn with_signed(registry: &Registry, id: FetcherId) -> impl Iterator<Item = FetcherId> {
    let signed =
        registry.twins().iter().filter(move |(_, twin)| *twin == id).map(|(signed, _)| *signed);
    std::iter::once(id).chain(signed)
}

#[inline]
fn of(keyed: &Keyed, key: u64) -> &[PseudoAttempts] {
    if keyed.is_empty() { &[] } else { keyed.get(&key).map_or(&[], Vec::as_slice) }
}

/// Adds pseudo-attempts to those of the same fetcher.
fn add(to: &mut Vec<PseudoAttempts>, more: PseudoAttempts) {
    match to.iter_mut().find(|pseudo| pseudo.0 == more.0) {
        Some(pseudo) => *pseudo = (more.0, pseudo.1 + more.1, pseudo.2 + more.2),
        None => to.push(more),
    }
}

/// Returns the key of a prior: that of its heuristic, combined with the domain's part if it has
/// one.
fn prior_key(kind: &str, value: &str) -> u64 {
    match (kind, value.split_once('|')) {
        ("domain_path", Some((domain, part))) => path_key(Key::domain(domain), part_hash(part)),
        ("site", _) => site_key(Key::domain(value)),
        _ => Key::of(kind, value).bits(),
    }
}

pub(super) fn path_key(domain: Key, part: u64) -> u64 {
    domain.bits() ^ part.rotate_left(1)
}

/// A site has the key of the domain of its name; a prior is for one or the other, so the site's
/// bits are inverted.
pub(super) fn site_key(site: Key) -> u64 {
    !site.bits()
}

/// What a crawler has learned of a fetcher on many hosts, for another crawler: pseudo-attempts of
/// one heuristic that belongs to no host.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PortablePrior {
    /// The type: `hint`, `suffix`, `host_showed` or a flag of the URL.
    pub kind: String,
    /// Its value, such as `.pdf`, `blocked` or `block_cloudflare`.
    pub value: String,
    /// Whether it concerns pages or files.
    pub content: ContentKind,
    /// The fetcher.
    pub fetcher: String,
    /// The success rate.
    pub success_rate: f64,
    /// Number of pseudo-attempts, at most [`PortablePrior::max_samples`].
    pub samples: f64,
}

impl PortablePrior {
    /// Returns the maximum number of pseudo-attempts of a cell. A signal of hosts has more, because
    /// a host counts for it once a day.
    pub fn max_samples(kind: &str) -> f64 {
        if kind == HOST_SHOWED { 50.0 } else { 20.0 }
    }

    /// Returns a prior; `None` if it belongs to a host, or if a number is out of range.
    pub fn new(
        (kind, value): (&str, &str),
        content: ContentKind,
        fetcher: &str,
        success_rate: f64,
        samples: f64,
    ) -> Option<Self> {
        let is_valid = is_portable(kind) && (0.0..=1.0).contains(&success_rate) && samples > 0.0;
        let [kind, value, fetcher] = [kind, value, fetcher].map(str::to_owned);
        is_valid.then_some(Self { kind, value, content, fetcher, success_rate, samples })
    }

    fn bounded_samples(&self) -> f64 {
        self.samples.clamp(0.0, Self::max_samples(&self.kind))
    }
}

/// Returns how many attempts of a crawler's own outweigh a pseudo-attempt. After a failure and
/// behind a signal, a new crawler has little else to go by, and what it meets first is too little
/// to correct the rates of many hosts. The simulator's report has the measurement.
fn import_weight(kind: &str) -> f64 {
    if matches!(kind, "hint" | HOST_SHOWED) { 4.0 } else { 1.0 }
}

/// Returns whether heuristics of this type belong to no host.
fn is_portable(kind: &str) -> bool {
    matches!(kind, "hint" | "suffix" | HOST_SHOWED) || FLAGS.contains(&kind)
}
