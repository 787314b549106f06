//! The same evidence in maps that a user would choose instead: aggregates per heuristic, looked up,
//! read and added to.
//!
//! They decide by the published formula over sums of aggregates (fetchwise's estimate is more
//! work), with keys hashed once and the same decay. The only difference is how the map is read
//! while others write. Invariants: no map locks more than its kind needs.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};

use dashmap::DashMap;
use fetchwise::attempt::Attempt;
use fetchwise::heuristic::url::{FLAGS, UrlFeatures};
use fetchwise::time::Timestamp;
use url::Url;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::traffic::FETCHERS;

const KINDS: [&str; 6] = ["domain", "site", "suffix", "path_depth", "domain_suffix", "domain_path"];
const HALF_LIFE_MS: f64 = 30.0 * 86_400_000.0;
const MAX_FETCHERS: usize = 4;

/// Successes and attempts, decayed, by fetcher.
pub(crate) type Sums = [[f64; 2]; MAX_FETCHERS];

/// [`Sums`] that can be added to by reference.
#[derive(Default)]
pub(crate) struct Cells([[AtomicU64; 2]; MAX_FETCHERS]);

impl Cells {
    fn add(&self, added: Added) {
        let Added { fetcher, success, weight } = added;
        let add = |cell: &AtomicU64, weight: f64| {
            let more = |bits| Some((f64::from_bits(bits) + weight).to_bits());
            // Relaxed, like a plain counter: it publishes nothing else.
            let _ = cell.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        };
        add(&self.0[fetcher][1], weight);
        if success {
            add(&self.0[fetcher][0], weight);
        }
    }

    fn read_into(&self, sums: &mut Sums) {
        for (sum, cell) in sums.iter_mut().flatten().zip(self.0.iter().flatten()) {
            *sum += f64::from_bits(cell.load(Ordering::Relaxed));
        }
    }
}

/// The contribution of one attempt.
#[derive(Clone, Copy)]
pub(crate) struct Added {
    fetcher: usize,
    success: bool,
    weight: f64,
}

/// A map from hashed keys to aggregates.
pub(crate) trait Map: Sync + Default {
    fn read(&self, keys: &[u64], sums: &mut Sums);
    fn add(&self, keys: &[u64], added: Added);
}

/// All maps use keys that are hashes already.
#[derive(Default)]
pub(crate) struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are u64");
    }
    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

type Build = BuildHasherDefault<Hashed>;

#[derive(Default)]
pub(crate) struct DashMutex(DashMap<u64, Mutex<Sums>, Build>);

impl Map for DashMutex {
    fn read(&self, keys: &[u64], sums: &mut Sums) {
        for entry in keys.iter().filter_map(|key| self.0.get(key)) {
            let found = entry.lock().unwrap();
            sums.iter_mut()
                .flatten()
                .zip(found.iter().flatten())
                .for_each(|(sum, more)| *sum += more);
        }
    }

    fn add(&self, keys: &[u64], added: Added) {
        let add = |sums: &Mutex<Sums>| {
            let mut sums = sums.lock().unwrap();
            sums[added.fetcher][1] += added.weight;
            sums[added.fetcher][0] += if added.success { added.weight } else { 0.0 };
        };
        for key in keys {
            match self.0.get(key) {
                Some(entry) => add(&entry),
                None => add(&self.0.entry(*key).or_default()),
            }
        }
    }
}

#[derive(Default)]
pub(crate) struct Papaya(papaya::HashMap<u64, Cells, Build>);

impl Map for Papaya {
    fn read(&self, keys: &[u64], sums: &mut Sums) {
        let map = self.0.pin();
        keys.iter().filter_map(|key| map.get(key)).for_each(|cells| cells.read_into(sums));
    }

    fn add(&self, keys: &[u64], added: Added) {
        let map = self.0.pin();
        keys.iter().for_each(|key| map.get_or_insert_with(*key, Cells::default).add(added));
    }
}

/// papaya with fetchwise's settings: readers continue in the old table while a writer moves
/// everything to the new one.
pub(crate) struct PapayaBlocking(Papaya);

impl Default for PapayaBlocking {
    fn default() -> Self {
        let map = papaya::HashMap::builder()
            .hasher(Build::default())
            .resize_mode(papaya::ResizeMode::Blocking)
            .build();
        Self(Papaya(map))
    }
}

impl Map for PapayaBlocking {
    fn read(&self, keys: &[u64], sums: &mut Sums) {
        self.0.read(keys, sums);
    }

    fn add(&self, keys: &[u64], added: Added) {
        self.0.add(keys, added);
    }
}

#[derive(Default)]
pub(crate) struct Scc(scc::HashMap<u64, Cells, Build>);

impl Map for Scc {
    fn read(&self, keys: &[u64], sums: &mut Sums) {
        for key in keys {
            self.0.read_sync(key, |_, cells| cells.read_into(sums));
        }
    }

    fn add(&self, keys: &[u64], added: Added) {
        for key in keys {
            if self.0.read_sync(key, |_, cells| cells.add(added)).is_none() {
                self.0.entry_sync(*key).or_default().get().add(added);
            }
        }
    }
}

#[derive(Default)]
pub(crate) struct Locked(RwLock<HashMap<u64, Cells, Build>>);

impl Map for Locked {
    fn read(&self, keys: &[u64], sums: &mut Sums) {
        let map = self.0.read().unwrap();
        keys.iter().filter_map(|key| map.get(key)).for_each(|cells| cells.read_into(sums));
    }

    fn add(&self, keys: &[u64], added: Added) {
        let map = self.0.read().unwrap();
        let missing: Keys = keys
            .iter()
            .copied()
            .filter(|key| map.get(key).map(|cells| cells.add(added)).is_none())
            .collect();
        drop(map);
        if !missing.is_empty() {
            let mut map = self.0.write().unwrap();
            missing.iter().for_each(|key| map.entry(*key).or_default().add(added));
        }
    }
}

/// The keys of one URL: the six kinds and the flags.
type Keys = arrayvec::ArrayVec<u64, 10>;

/// A learner over one of the maps.
pub(crate) struct Peer<M> {
    map: M,
    landmark: Timestamp,
}

impl<M: Map> Peer<M> {
    pub(crate) fn new(landmark: Timestamp) -> Self {
        Self { map: M::default(), landmark }
    }

    fn up(&self, at: Timestamp) -> f64 {
        ((at.as_millis() - self.landmark.as_millis()) as f64 / HALF_LIFE_MS).exp2()
    }

    /// Returns the fetcher with the highest confidence by the published formula, and that
    /// confidence.
    pub(crate) fn select(&self, url: &Url, now: Timestamp) -> Option<(usize, f64)> {
        let features = UrlFeatures::extract(url).ok()?;
        let mut sums = Sums::default();
        self.map.read(&keys(&features), &mut sums);
        let down = 1.0 / self.up(now);
        let confidence = |[success, total]: [f64; 2]| match total > 0.0 {
            true => success / total * (total * down / 10.0).min(1.0),
            false => 0.0,
        };
        sums.into_iter().map(confidence).enumerate().max_by(|a, b| a.1.total_cmp(&b.1))
    }

    pub(crate) fn record(&self, attempt: &Attempt) {
        let Some(fetcher) = FETCHERS.iter().position(|name| *name == attempt.fetcher) else {
            return;
        };
        let weight = self.up(attempt.attempted_at) * attempt.weight;
        let tags =
            attempt.heuristics.iter().map(|tag| key_of(&tag.heuristic.kind, &tag.heuristic.value));
        self.map.add(
            &tags.take(10).collect::<Keys>(),
            Added { fetcher, success: attempt.success, weight },
        );
    }
}

fn key(kind: usize, value: &str) -> u64 {
    xxh3_64_with_seed(value.as_bytes(), kind as u64 + 1)
}

fn pair(kind: usize, domain: u64, part: &str) -> u64 {
    xxh3_64_with_seed(part.as_bytes(), domain ^ kind as u64)
}

fn keys(features: &UrlFeatures<'_>) -> Keys {
    let domain = key(0, features.domain);
    let mut keys: Keys =
        [domain, key(1, features.site), key(3, &digits(features.path_depth))].into_iter().collect();
    if let Some(suffix) = features.suffix {
        keys.extend([key(2, suffix.as_str()), pair(4, domain, suffix.as_str())]);
    }
    keys.extend(features.section.map(|section| pair(5, domain, section)));
    let flags = features.flags.iter().enumerate().filter(|(_, set)| **set);
    keys.extend(flags.map(|(flag, _)| key(KINDS.len() + flag, "true")));
    keys
}

/// Returns a small number as text, without allocation.
fn digits(number: u32) -> arrayvec::ArrayString<10> {
    let mut text = arrayvec::ArrayString::new();
    let _ = std::fmt::Write::write_fmt(&mut text, format_args!("{number}"));
    text
}

fn key_of(kind: &str, value: &str) -> u64 {
    match KINDS.iter().position(|known| *known == kind) {
        Some(known @ (4 | 5)) => {
            let (domain, part) = value.split_once('|').unwrap_or((value, ""));
            pair(known, key(0, domain), part)
        }
        Some(known) => key(known, value),
        None => key(
            KINDS.len() + FLAGS.iter().position(|flag| *flag == kind).unwrap_or(FLAGS.len()),
            value,
        ),
    }
}
