//! The table of host signals: their names, a row of cells for each, and the information that each
//! gives about success.
//!
//! There are 256 rows, two of them for what all blocks and all pages have in common. When a new
//! name needs a row, the least informative signal loses its own.
//!
//! Owns: the choice of the signal that takes a host's slot.
//!
//! Invariants: reading a row takes no lock. Names are behind a lock, which only recording and
//! explaining take.
//!
//! Must not know: hosts.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::decay::Decay;
use super::prehashed::SpreadingState;
use crate::evidence::decayed_counts::{pack, unpack};
use crate::evidence::host_signal_counts::{
    RawSignalCounts, SignalCounts, SignalObservation, seconds,
};
use crate::evidence::host_signal_slots::{SignalId, SignalSide};
use fetchwise_types::heuristic::is_mark;
use fetchwise_types::heuristic::url::ContentKind;
use fetchwise_types::registry::{FetcherId, FetcherSet, MAX_CANDIDATES};
use fetchwise_types::time::Timestamp;

/// Signal of a host whose blocks show a vendor that is no more informative than the block itself.
pub(crate) const ANY_BLOCK: &str = "walled";
/// Signal of a host with pages that show nothing else; the host's slot is empty.
pub(crate) const ANY_PAGE: &str = "served";
/// Prefix of a signal of blocks that is not a vendor's.
const BLOCK_PREFIX: &str = "wall:";
/// Prefix of a signal of blocks that is a vendor.
pub(crate) const VENDOR_PREFIX: &str = "block_";
const FRAMEWORK_PREFIX: &str = "spa_framework=";

const ROWS: usize = 256;
/// Number of vendors at which a crawler can be registered.
const MAX_REGISTRATIONS: usize = 32;
/// Attempts from which on a signal is rated by its information. One cell remembers 200 attempts,
/// and they begin to decay at once.
const RATED_FROM_ATTEMPTS: f32 = 190.0;
/// Information in bits below which a signal takes no slot.
const MIN_INFORMATION_BITS: f32 = 0.005;
/// Factor by which another signal must be more informative to take the slot of a vendor or a
/// framework.
const REPLACE_FACTOR: f32 = 1.5;
/// One host in this number tries out a signal that has too few attempts to be rated.
const TRIAL_HOST_RATIO: u64 = 16;
/// Number of observations after which a signal's information is computed again.
const OBSERVATIONS_PER_RATING: u32 = 32;

/// Heuristics that say how a response was classified, which the outcome says already.
const CLASSIFICATION_KINDS: [&str; 11] = [
    "has_captcha",
    "has_spa",
    "has_paywall",
    "has_login_wall",
    "soft_404",
    "is_queued",
    "network_block",
    "empty_body",
    "high_script_ratio",
    fetchwise_types::heuristic::SHORT_PAGE,
    fetchwise_types::heuristic::SAME_PAGE_OTHER_SITES,
];

/// Returns the key of a signal's name.
pub(crate) fn signal_key(name: &str) -> u64 {
    xxh3_64(name.as_bytes())
}

/// A signal's cells: pages and files of each candidate.
#[derive(Debug)]
pub(crate) struct SignalRow {
    /// Number of times that the row was given to another name.
    generation: AtomicU32,
    /// The key of its name.
    key: AtomicU64,
    /// Information in bits and decayed attempts, as of the last computation.
    information: AtomicU64,
    observations: AtomicU32,
    cells: Box<[SignalCounts]>,
}

impl SignalRow {
    fn new() -> Box<Self> {
        let cells = (0..2 * MAX_CANDIDATES).map(|_| SignalCounts::default()).collect();
        Box::new(Self {
            generation: AtomicU32::new(1),
            key: AtomicU64::new(0),
            information: AtomicU64::new(0),
            observations: AtomicU32::new(0),
            cells,
        })
    }

    /// Returns the cell of a candidate. Other fetchers, which only the log names, have none.
    #[inline]
    pub(crate) fn cell(&self, fetcher: FetcherId, kind: ContentKind) -> Option<&SignalCounts> {
        if fetcher.index() >= MAX_CANDIDATES {
            return None;
        }
        self.cells.get(MAX_CANDIDATES * kind as usize + fetcher.index())
    }

    /// Returns the key of its name.
    #[inline]
    pub(crate) fn key(&self) -> u64 {
        // Relaxed: a decision that reads a row which just got another name is about a host with
        // neither.
        self.key.load(Ordering::Relaxed)
    }

    /// Returns the information in bits and the decayed attempts.
    fn information(&self) -> (f32, f32) {
        unpack(self.information.load(Ordering::Relaxed))
    }

    fn is_rated(&self) -> bool {
        self.information().1 >= RATED_FROM_ATTEMPTS
    }

    fn is_uninformative(&self) -> bool {
        self.is_rated() && self.information().0 < MIN_INFORMATION_BITS
    }

    /// Returns the information that the signal adds to its category, in bits, and its decayed
    /// attempts.
    ///
    /// The information is the mean, over the signal's attempts, of the divergence between its rate
    /// and the category's, cell by cell. The value that an uninformative signal would show by
    /// chance in as many attempts is subtracted.
    fn compute_information(&self, category: &Self, down: f64) -> (f32, f32) {
        let rate = |cell: &SignalCounts| {
            let weights = cell.read(down);
            (weights.total, (weights.success + 0.5) / (weights.total + 1.0))
        };
        let (mut sum, mut total, mut used) = (0.0, 0.0, 0.0);
        for (own, all) in self.cells.iter().zip(&category.cells) {
            let ((n, p), (_, q)) = (rate(own), rate(all));
            if n >= 1.0 {
                sum += n * (p * (p / q).log2() + (1.0 - p) * ((1.0 - p) / (1.0 - q)).log2());
                total += n;
                used += 1.0;
            }
        }
        if total <= 0.0 {
            return (0.0, 0.0);
        }
        let by_chance = used / (2.0 * total * std::f64::consts::LN_2);
        (((sum / total) - by_chance).max(0.0) as f32, total as f32)
    }
}

/// A row as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SignalRowState {
    pub(crate) name: String,
    pub(crate) generation: u8,
    /// Information in bits and decayed attempts, as of the last computation.
    pub(crate) information: (f32, f32),
    pub(crate) observations: u32,
    /// The cells that are not empty, each with its fetcher and its kind of page.
    pub(crate) cells: Vec<(FetcherId, ContentKind, RawSignalCounts)>,
}

/// Names by row number.
#[derive(Debug, Default)]
struct SignalNames {
    list: Vec<Box<str>>,
}

/// All signals.
#[derive(Debug)]
pub(crate) struct HostSignals {
    rows: Box<[OnceLock<Box<SignalRow>>]>,
    /// Ids by the hash of the name.
    ids: papaya::HashMap<u64, SignalId, SpreadingState>,
    names: RwLock<SignalNames>,
    /// The candidates that sign.
    signed: FetcherSet,
    /// The vendors at which the crawler was registered: the key of the signal, and the second.
    registrations: Registrations,
}

/// Registrations at vendors, which evidence shares with a fold of the same attempts.
type Registrations = Arc<[OnceLock<(u64, AtomicU32)>; MAX_REGISTRATIONS]>;

/// The signal that takes a host's slot from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SignalChoice {
    /// The response showed no signal; the slot stays as it is.
    Unchanged,
    /// The slot becomes empty.
    Empty,
    /// The signal of this name.
    Name(String),
}

impl HostSignals {
    pub(super) fn new() -> Self {
        let signals = Self {
            rows: (0..ROWS).map(|_| OnceLock::new()).collect(),
            ids: papaya::HashMap::builder().hasher(SpreadingState::default()).build(),
            names: RwLock::default(),
            signed: FetcherSet::EMPTY,
            registrations: Default::default(),
        };
        for name in [ANY_BLOCK, ANY_PAGE] {
            signals.id(name);
        }
        signals
    }

    /// Sets which candidates sign.
    pub(super) fn with_signed(self, signed: FetcherSet) -> Self {
        Self { signed, ..self }
    }

    /// Shares the registrations of others from now on.
    pub(super) fn with_registrations_of(self, others: &Self) -> Self {
        Self { registrations: Arc::clone(&others.registrations), ..self }
    }

    /// Takes note of a registration at a vendor. Returns false if there is no room for another
    /// vendor.
    pub(crate) fn register(&self, vendor: &str, at: Timestamp) -> bool {
        let key = signal_key(&format!("{VENDOR_PREFIX}{vendor}"));
        // The next full second: what was recorded in the second before the registration is older.
        let at = at.saturating_add(std::time::Duration::from_millis(999));
        for slot in self.registrations.iter() {
            // The first thread takes the slot; a loser reads its key and goes on.
            let (known, at_s) = slot.get_or_init(|| (key, AtomicU32::new(0)));
            if *known == key {
                // Relaxed: a decision at the same moment may read the evidence of before.
                at_s.fetch_max(seconds(at), Ordering::Relaxed);
                return true;
            }
        }
        false
    }

    /// Returns the second of the registration at the vendor whose signal has this key; 0 if there
    /// was none.
    fn registered_s(&self, key: u64) -> u32 {
        let known =
            self.registrations.iter().map_while(OnceLock::get).find(|(known, _)| *known == key);
        known.map_or(0, |(_, at_s)| at_s.load(Ordering::Relaxed))
    }

    /// Returns whether evidence of some vendor is limited to what came after a registration.
    #[inline]
    pub(crate) fn has_registrations(&self) -> bool {
        !self.signed.is_empty() && self.registrations[0].get().is_some()
    }

    /// Returns the time of the registration at the vendor of this signal; the beginning of time if
    /// there was none.
    pub(crate) fn registered_at(&self, vendor: Option<SignalId>) -> Timestamp {
        let row = vendor.and_then(|id| self.row(id));
        Timestamp::from_millis(row.map_or(0, |row| i64::from(self.registered_s(row.key())) * 1000))
    }

    /// Returns the second of the registration that a fetcher's evidence behind a vendor has to
    /// follow; 0 for none.
    #[inline]
    pub(crate) fn valid_from_s(&self, row: &SignalRow, fetcher: FetcherId) -> u32 {
        if self.signed.contains(fetcher) { self.registered_s(row.key()) } else { 0 }
    }

    /// Returns the name of a response's heuristic as a signal of one side; `None` if it only says
    /// how the response was classified.
    pub(super) fn name(side: SignalSide, kind: &str, value: &str) -> Option<String> {
        // An imported attempt has its marks before its host's signal is chosen.
        if CLASSIFICATION_KINDS.contains(&kind) || is_mark(kind) || kind.is_empty() {
            return None;
        }
        let label = if value == "true" { kind.to_owned() } else { format!("{kind}={value}") };
        Some(match side {
            SignalSide::Blocked if !label.starts_with(VENDOR_PREFIX) => {
                format!("{BLOCK_PREFIX}{label}")
            }
            _ => label,
        })
    }

    /// Returns the side that a name belongs to.
    pub(super) fn side(name: &str) -> SignalSide {
        let of_blocks =
            name.starts_with(VENDOR_PREFIX) || name.starts_with(BLOCK_PREFIX) || name == ANY_BLOCK;
        if of_blocks { SignalSide::Blocked } else { SignalSide::Served }
    }

    /// Returns whether the name is of a signal that is used from the first attempt on: a vendor or
    /// a framework.
    pub(super) fn is_primary(name: &str) -> bool {
        name.starts_with(VENDOR_PREFIX) || name.starts_with(FRAMEWORK_PREFIX)
    }

    /// Returns the id of a name, if it has one.
    pub(crate) fn find(&self, name: &str) -> Option<SignalId> {
        self.ids.pin().get(&signal_key(name)).copied()
    }

    /// Returns the id of a name. A name without an id gets a row.
    pub(crate) fn id(&self, name: &str) -> SignalId {
        if let Some(id) = self.find(name) {
            return id;
        }
        let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = self.find(name) {
            return id;
        }
        let row_index =
            if names.list.len() < ROWS { names.list.len() } else { self.least_informative_row() };
        let row = self.rows[row_index].get_or_init(SignalRow::new);
        let ids = self.ids.pin();
        if let Some(old) = names.list.get_mut(row_index) {
            ids.remove(&signal_key(old));
            // Hosts with the old name see by the generation that it is gone.
            let generation = row.generation.load(Ordering::Relaxed) % 255 + 1;
            row.generation.store(generation, Ordering::Relaxed);
            row.cells.iter().for_each(SignalCounts::clear);
            row.information.store(0, Ordering::Relaxed);
            row.observations.store(0, Ordering::Relaxed);
            *old = name.into();
        } else {
            names.list.push(name.into());
        }
        row.key.store(signal_key(name), Ordering::Relaxed);
        let id = SignalId::new(row_index as u8, row.generation.load(Ordering::Relaxed) as u8);
        ids.insert(signal_key(name), id);
        id
    }

    /// Returns the row that is missed least: first uninformative signals, then those with few
    /// attempts, then the least informative one.
    fn least_informative_row(&self) -> usize {
        let missed = |row_index: &usize| match self.rows[*row_index].get() {
            None => (0, 0.0),
            Some(row) if row.is_uninformative() => (1, row.information().0),
            Some(row) if !row.is_rated() => (2, row.observations.load(Ordering::Relaxed) as f32),
            Some(row) => (3, row.information().0),
        };
        let rows = 2..ROWS;
        rows.min_by(|a, b| missed(a).partial_cmp(&missed(b)).unwrap_or(std::cmp::Ordering::Equal))
            .unwrap_or(2)
    }

    /// Returns the row of an id, unless it was given to another name.
    #[inline]
    pub(crate) fn row(&self, id: SignalId) -> Option<&SignalRow> {
        let row = self.rows[id.row_index()].get()?;
        (row.generation.load(Ordering::Relaxed) == u32::from(id.generation())).then_some(&**row)
    }

    /// Returns the row of all hosts that showed a vendor, or anything by pages.
    #[inline]
    pub(crate) fn category(&self, side: SignalSide) -> Option<&SignalRow> {
        self.rows[side_row(side)].get().map(|row| &**row)
    }

    /// Returns whether the id is a category's.
    pub(crate) fn is_category(id: SignalId) -> bool {
        id.row_index() < 2
    }

    /// Returns the name of an id, unless its row was given to another name.
    pub(crate) fn name_of(&self, id: SignalId) -> Option<Box<str>> {
        self.row(id)?;
        self.names.read().unwrap_or_else(PoisonError::into_inner).list.get(id.row_index()).cloned()
    }

    /// Returns all names by row number.
    pub(super) fn names(&self) -> Vec<Box<str>> {
        self.names.read().unwrap_or_else(PoisonError::into_inner).list.clone()
    }

    /// Calls `f` for each cell of the signal in a row.
    pub(super) fn each_cell(
        &self,
        row_index: usize,
        mut f: impl FnMut(FetcherId, ContentKind, &SignalCounts),
    ) {
        let Some(row) = self.rows.get(row_index).and_then(OnceLock::get) else { return };
        for (index, cell) in row.cells.iter().enumerate() {
            let is_file = index / MAX_CANDIDATES == ContentKind::File as usize;
            let kind = if is_file { ContentKind::File } else { ContentKind::Page };
            f(FetcherId((index % MAX_CANDIDATES) as u16), kind, cell);
        }
    }

    /// Returns whether there are only the rows that each table begins with.
    pub(super) fn is_blank(&self) -> bool {
        self.names().len() == SignalSide::BOTH.len()
    }

    /// Returns all rows as they are, in order.
    pub(super) fn row_states(&self) -> Vec<SignalRowState> {
        let state = |index: usize, name: &str| {
            let mut state = SignalRowState { name: name.to_owned(), ..SignalRowState::default() };
            if let Some(row) = self.rows.get(index).and_then(OnceLock::get) {
                state.generation = row.generation.load(Ordering::Relaxed) as u8;
                state.information = row.information();
                state.observations = row.observations.load(Ordering::Relaxed);
            }
            self.each_cell(index, |fetcher, kind, cell| {
                let raw = cell.raw();
                if raw != RawSignalCounts::default() {
                    state.cells.push((fetcher, kind, raw));
                }
            });
            state
        };
        self.names().iter().enumerate().map(|(index, name)| state(index, name)).collect()
    }

    /// Sets all rows. Nobody else has the table yet, and it has no other names.
    pub(super) fn restore_rows(&self, states: &[SignalRowState]) {
        let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        let ids = self.ids.pin();
        names.list.clear();
        for (index, (state, row)) in states.iter().zip(&self.rows).enumerate() {
            let row = row.get_or_init(SignalRow::new);
            row.generation.store(u32::from(state.generation), Ordering::Relaxed);
            row.key.store(signal_key(&state.name), Ordering::Relaxed);
            row.information
                .store(pack(state.information.0, state.information.1), Ordering::Relaxed);
            row.observations.store(state.observations, Ordering::Relaxed);
            for (fetcher, kind, raw) in &state.cells {
                if let Some(cell) = row.cell(*fetcher, *kind) {
                    cell.set(raw);
                }
            }
            ids.insert(signal_key(&state.name), SignalId::new(index as u8, state.generation));
            names.list.push(state.name.as_str().into());
        }
    }

    /// Computes the information of each signal again, as of the time that `down` belongs to.
    pub(super) fn update_information(&self, down: f64) {
        for (row_index, name) in self.names().iter().enumerate().skip(2) {
            let rows = (self.rows[row_index].get(), self.category(Self::side(name)));
            if let (Some(row), Some(all)) = rows {
                let (bits, total) = row.compute_information(all, down);
                row.information.store(pack(bits, total), Ordering::Relaxed);
            }
        }
    }

    /// Adds one observation to the signals of its host and to their categories.
    pub(crate) fn observe(&self, decay: &Decay, observation: &SignalObservation) {
        for (side, id) in SignalSide::BOTH.into_iter().zip(observation.signals) {
            let (Some(id), Some(all)) = (id, self.category(side)) else { continue };
            let Some(cell) = all.cell(observation.fetcher, observation.kind) else { return };
            cell.observe(decay, observation, false);
            let Some(row) = self.row(id).filter(|_| !Self::is_category(id)) else { continue };
            let valid_from_s = self.valid_from_s(row, observation.fetcher);
            if seconds(observation.at) < valid_from_s {
                continue;
            }
            if let Some(cell) = row.cell(observation.fetcher, observation.kind) {
                if cell.turned_s() < valid_from_s {
                    cell.restart(valid_from_s);
                }
                cell.observe(decay, observation, side == SignalSide::Blocked);
            }
            if row.observations.fetch_add(1, Ordering::Relaxed) % OBSERVATIONS_PER_RATING
                == OBSERVATIONS_PER_RATING - 1
            {
                let (bits, total) = row.compute_information(all, decay.down(observation.at));
                row.information.store(pack(bits, total), Ordering::Relaxed);
            }
        }
    }

    /// Returns which of the signals of a response takes the host's slot: a vendor or a framework,
    /// unless it is uninformative or another signal is much more informative. A few hosts, chosen
    /// by their hash, try out unrated signals.
    pub(super) fn choose<'t>(
        &self,
        side: SignalSide,
        shown: impl Iterator<Item = (&'t str, &'t str)>,
        host: u64,
    ) -> SignalChoice {
        let (mut primary, mut best, mut tried) = (None, None::<(f32, String)>, None);
        for (kind, value) in shown {
            let Some(name) = Self::name(side, kind, value) else { continue };
            let row = self.find(&name).and_then(|id| self.row(id));
            if Self::is_primary(&name) {
                primary = primary.or(Some((name, row)));
                continue;
            }
            match row.filter(|row| row.is_rated()) {
                Some(row) if row.is_uninformative() => {}
                Some(row)
                    if best.as_ref().is_some_and(|(bits, _)| *bits >= row.information().0) => {}
                Some(row) => best = Some((row.information().0, name)),
                None if xxh3_64_with_seed(name.as_bytes(), host)
                    .is_multiple_of(TRIAL_HOST_RATIO) =>
                {
                    tried = Some(name)
                }
                None => {}
            }
        }
        let other = |primary: Option<f32>| {
            best.filter(|(bits, _)| primary.is_none_or(|p| *bits > REPLACE_FACTOR * p))
        };
        let chosen = match (tried, &primary) {
            (Some(name), _) => return SignalChoice::Name(name),
            // A vendor that is no more informative than any block may change its policy, and then
            // it is: only frameworks are left out.
            (None, Some((_, Some(row))))
                if side == SignalSide::Served && row.is_uninformative() =>
            {
                return match other(None) {
                    Some((_, name)) => SignalChoice::Name(name),
                    None => SignalChoice::Empty,
                };
            }
            (None, Some((_, Some(row)))) if row.is_rated() => other(Some(row.information().0)),
            (None, Some(_)) => None,
            (None, None) => other(None),
        };
        match (chosen, primary) {
            (Some((_, name)), _) | (None, Some((name, _))) => SignalChoice::Name(name),
            (None, None) => SignalChoice::Unchanged,
        }
    }
}

fn side_row(side: SignalSide) -> usize {
    match side {
        SignalSide::Blocked => 0,
        SignalSide::Served => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN_MS: i64 = 1_800_000_000_000;

    fn decay() -> Decay {
        Decay::new(30.0, Timestamp::from_millis(BEGIN_MS)).unwrap()
    }

    /// Adds `count` observations of a signal, of which a `share` are successes.
    fn observe_many(signals: &HostSignals, name: &str, count: usize, share: f64) {
        let id = signals.id(name);
        for n in 0..count {
            let mut of = [None; 2];
            of[usize::from(HostSignals::side(name) == SignalSide::Served)] = Some(id);
            let success = ((n + 1) as f64 * share) as usize > (n as f64 * share) as usize;
            let observation = SignalObservation {
                signals: of,
                fetcher: FetcherId(0),
                kind: ContentKind::Page,
                at: Timestamp::from_millis(BEGIN_MS),
                weight: 1.0,
                success,
                last: None,
                is_first: true,
            };
            signals.observe(&decay(), &observation);
        }
    }

    fn choose(
        signals: &HostSignals,
        side: SignalSide,
        shown: &[(&str, &str)],
        host: u64,
    ) -> SignalChoice {
        signals.choose(side, shown.iter().copied(), host)
    }

    fn named(name: &str) -> SignalChoice {
        SignalChoice::Name(name.to_owned())
    }

    #[test]
    fn a_vendor_always_keeps_its_slot_and_an_uninformative_framework_does_not() {
        let signals = HostSignals::new();
        for _ in 0..8 {
            observe_many(&signals, "block_a", 40, 0.5);
            observe_many(&signals, "block_b", 40, 0.5);
            observe_many(&signals, "spa_framework=next", 40, 0.9);
            observe_many(&signals, "spa_framework=vue", 40, 0.2);
            observe_many(&signals, "spa_framework=plain", 40, 0.55);
        }
        assert_eq!(
            choose(&signals, SignalSide::Blocked, &[("block_a", "true")], 1),
            named("block_a")
        );
        let framework =
            |value| choose(&signals, SignalSide::Served, &[("spa_framework", value)], 1);
        assert_eq!(framework("next"), named("spa_framework=next"));
        assert_eq!(framework("vue"), named("spa_framework=vue"));
        assert_eq!(framework("plain"), SignalChoice::Empty);
        assert_eq!(framework("new"), named("spa_framework=new"), "a new framework is used");
        assert_eq!(
            choose(&signals, SignalSide::Blocked, &[("has_captcha", "true")], 1),
            SignalChoice::Unchanged
        );
    }

    #[test]
    fn a_callers_signal_is_tried_on_a_few_hosts_and_takes_the_slot_when_it_is_more_informative() {
        let signals = HostSignals::new();
        let shown = [("block_a", "true"), ("cookie_wall", "strict")];
        let tries = (0..1600)
            .filter(|host| choose(&signals, SignalSide::Blocked, &shown, *host) != named("block_a"))
            .count();
        assert!((50..160).contains(&tries), "one host in sixteen tries it out: {tries}");
        for _ in 0..8 {
            observe_many(&signals, "block_a", 40, 0.45);
            observe_many(&signals, "wall:cookie_wall=strict", 40, 0.95);
            observe_many(&signals, "wall:cookie_wall=lax", 40, 0.02);
            observe_many(&signals, "wall:server_nginx", 40, 0.47);
        }
        for host in 0..100 {
            assert_eq!(
                choose(&signals, SignalSide::Blocked, &shown, host),
                named("wall:cookie_wall=strict")
            );
            let idle = [("server_nginx", "true"), ("block_a", "true")];
            assert_eq!(choose(&signals, SignalSide::Blocked, &idle, host), named("block_a"));
        }
    }

    #[test]
    fn the_least_informative_name_loses_its_row_and_its_hosts_notice() {
        let signals = HostSignals::new();
        let first = signals.id("block_first");
        for _ in 0..10 {
            observe_many(&signals, "block_other", 40, 0.1);
            observe_many(&signals, "block_loud", 40, 0.9);
        }
        observe_many(&signals, "block_first", 3, 0.5);
        for n in 0..ROWS - 5 {
            observe_many(&signals, &format!("block_{n}"), 10, 0.5);
        }
        assert!(signals.row(first).is_some());
        let new = signals.id("block_new");
        assert_eq!(new.row_index(), first.row_index());
        assert_eq!((signals.row(first).is_none(), signals.name_of(first)), (true, None));
        assert_eq!(signals.name_of(new).as_deref(), Some("block_new"));
        assert!(signals.find("block_loud").is_some() && signals.find("block_first").is_none());
        let cell = signals.row(new).unwrap().cell(FetcherId(0), ContentKind::Page).unwrap();
        assert_eq!(cell.read(1.0).total, 0.0, "the new name begins with nothing");
    }

    /// A log may name more fetchers than can be candidates. The pages of one beyond them counted as
    /// files of the first.
    #[test]
    fn a_fetcher_that_cannot_be_a_candidate_has_no_cell() {
        let row = SignalRow::new();
        for kind in [ContentKind::Page, ContentKind::File] {
            let has_cell = |index: usize| row.cell(FetcherId(index as u16), kind).is_some();
            assert!(
                has_cell(MAX_CANDIDATES - 1)
                    && !has_cell(MAX_CANDIDATES)
                    && !has_cell(2 * MAX_CANDIDATES)
            );
        }
    }

    #[test]
    fn observations_of_a_signal_also_count_for_its_category() {
        let signals = HostSignals::new();
        observe_many(&signals, "block_a", 10, 1.0);
        observe_many(&signals, "block_b", 30, 0.0);
        let down = decay().down(Timestamp::from_millis(BEGIN_MS));
        let total = |row: &SignalRow| {
            row.cell(FetcherId(0), ContentKind::Page).map(|cell| cell.read(down)).unwrap()
        };
        let blocks = total(signals.category(SignalSide::Blocked).unwrap());
        assert!(
            (blocks.total - 40.0).abs() < 1e-3 && (blocks.success - 10.0).abs() < 1e-3,
            "{blocks:?}"
        );
        assert_eq!(total(signals.category(SignalSide::Served).unwrap()).total, 0.0);
    }
}
