//! The table of host signals: their names, a row of cells for each, and the information that each gives about success.
//!
//! There are 256 rows, two of them for what all blocks and all pages have in common. When a new name needs a row, the
//! least informative signal loses its own.
//!
//! Owns: the choice of the signal that takes a host's slot.
//!
//! Invariants: reading a row takes no lock. Names are behind a lock, which only recording and explaining take.
//!
//! Must not know: hosts.

use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock};

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::decay::Decay;
use super::keys::Hashed;
use crate::evidence::decayed_counts::{pack, unpack};
use crate::evidence::host_signal_counts::{TagCell, Voice};
use crate::evidence::host_signal_slots::{Side, TagId};
use fetchwise_types::heuristic::url::ContentKind;
use fetchwise_types::registry::{MAX_CANDIDATES, FetcherId};

/// Signal of a host whose blocks show a vendor that is no more informative than the block itself.
pub(crate) const WALLED: &str = "walled";
/// Signal of a host with pages that show nothing else; the host's slot is empty.
pub(crate) const SERVED: &str = "served";
/// Prefix of a signal of blocks that is not a vendor's.
const WALL: &str = "wall:";
const BLOCK: &str = "block_";
const FRAMEWORK: &str = "spa_framework=";

const PLACES: usize = 256;
/// Attempts from which on a signal is rated by its information. One cell remembers 200 attempts, and they begin to
/// decay at once.
const JUDGED_FROM: f32 = 190.0;
/// Information in bits below which a signal takes no slot.
const TELLS_MIN: f32 = 0.005;
/// Factor by which another signal must be more informative to take the slot of a vendor or a framework.
const TELLS_MORE: f32 = 1.5;
/// One host in this number tries out a signal that has too few attempts to be rated.
const TRIED_ON: u64 = 16;
/// Number of observations after which a signal's information is computed again.
const JUDGED_EACH: u32 = 32;

/// Heuristics that say how a response was classified, which the outcome says already.
const READINGS: [&str; 9] = [
    "has_captcha",
    "has_spa",
    "has_paywall",
    "has_login_wall",
    "soft_404",
    "is_queued",
    "empty_body",
    "high_script_ratio",
    fetchwise_types::heuristic::SHORT_PAGE,
];

/// A signal's cells: pages and files of each candidate.
#[derive(Debug)]
pub(crate) struct Row {
    /// Number of times that the row was given to another name.
    generation: AtomicU32,
    /// Information in bits and decayed attempts, as of the last computation.
    told: AtomicU64,
    voices: AtomicU32,
    cells: Box<[TagCell]>,
}

impl Row {
    fn new() -> Box<Self> {
        let cells = (0..2 * MAX_CANDIDATES).map(|_| TagCell::default()).collect();
        Box::new(Self { generation: AtomicU32::new(1), told: AtomicU64::new(0), voices: AtomicU32::new(0), cells })
    }

    /// Returns the cell of a candidate.
    #[inline]
    pub(crate) fn cell(&self, fetcher: FetcherId, kind: ContentKind) -> Option<&TagCell> {
        self.cells.get(MAX_CANDIDATES * kind as usize + fetcher.index())
    }

    /// Returns the information in bits and the decayed attempts.
    fn told(&self) -> (f32, f32) {
        unpack(self.told.load(Ordering::Relaxed))
    }

    fn is_judged(&self) -> bool {
        self.told().1 >= JUDGED_FROM
    }

    fn tells_nothing(&self) -> bool {
        self.is_judged() && self.told().0 < TELLS_MIN
    }

    /// Returns the information that the signal adds to its category, in bits, and its decayed attempts.
    ///
    /// The information is the mean, over the signal's attempts, of the divergence between its rate and the category's,
    /// cell by cell. The value that an uninformative signal would show by chance in as many attempts is subtracted.
    fn tells(&self, category: &Self, down: f64) -> (f32, f32) {
        let rate = |cell: &TagCell| {
            let heard = cell.read(down);
            (heard.total, (heard.success + 0.5) / (heard.total + 1.0))
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

/// Names by row number.
#[derive(Debug, Default)]
struct Names {
    list: Vec<Box<str>>,
}

/// All signals.
#[derive(Debug)]
pub(crate) struct Tags {
    rows: Box<[OnceLock<Box<Row>>]>,
    /// Ids by the hash of the name.
    ids: papaya::HashMap<u64, TagId, BuildHasherDefault<Hashed>>,
    names: RwLock<Names>,
}

/// The signal that takes a host's slot from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// The response showed no signal; the slot stays as it is.
    None,
    /// The slot becomes empty.
    Nothing,
    /// The signal of this name.
    Name(String),
}

impl Tags {
    pub(super) fn new() -> Self {
        let tags = Self {
            rows: (0..PLACES).map(|_| OnceLock::new()).collect(),
            ids: papaya::HashMap::builder().hasher(BuildHasherDefault::default()).build(),
            names: RwLock::default(),
        };
        for name in [WALLED, SERVED] {
            tags.id(name);
        }
        tags
    }

    /// Returns the name of a response's heuristic as a signal of one side; `None` if it only says how the response was
    /// classified.
    pub(super) fn name(side: Side, kind: &str, value: &str) -> Option<String> {
        if READINGS.contains(&kind) || kind.is_empty() {
            return None;
        }
        let label = if value == "true" { kind.to_owned() } else { format!("{kind}={value}") };
        Some(match side {
            Side::Blocked if !label.starts_with(BLOCK) => format!("{WALL}{label}"),
            _ => label,
        })
    }

    /// Returns the side that a name belongs to.
    pub(super) fn side(name: &str) -> Side {
        let of_blocks = name.starts_with(BLOCK) || name.starts_with(WALL) || name == WALLED;
        if of_blocks { Side::Blocked } else { Side::Served }
    }

    /// Returns whether the name is of a signal that is used from the first attempt on: a vendor or a framework.
    pub(super) fn is_primary(name: &str) -> bool {
        name.starts_with(BLOCK) || name.starts_with(FRAMEWORK)
    }

    /// Returns the id of a name, if it has one.
    pub(crate) fn find(&self, name: &str) -> Option<TagId> {
        self.ids.pin().get(&xxh3_64(name.as_bytes())).copied()
    }

    /// Returns the id of a name. A name without an id gets a row.
    pub(crate) fn id(&self, name: &str) -> TagId {
        if let Some(id) = self.find(name) {
            return id;
        }
        let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = self.find(name) {
            return id;
        }
        let place = if names.list.len() < PLACES { names.list.len() } else { self.least() };
        let row = self.rows[place].get_or_init(Row::new);
        let ids = self.ids.pin();
        if let Some(old) = names.list.get_mut(place) {
            ids.remove(&xxh3_64(old.as_bytes()));
            // Hosts with the old name see by the generation that it is gone.
            let generation = row.generation.load(Ordering::Relaxed) % 255 + 1;
            row.generation.store(generation, Ordering::Relaxed);
            row.cells.iter().for_each(TagCell::clear);
            row.told.store(0, Ordering::Relaxed);
            row.voices.store(0, Ordering::Relaxed);
            *old = name.into();
        } else {
            names.list.push(name.into());
        }
        let id = TagId::new(place as u8, row.generation.load(Ordering::Relaxed) as u8);
        ids.insert(xxh3_64(name.as_bytes()), id);
        id
    }

    /// Returns the row that is missed least: first uninformative signals, then those with few attempts, then the least
    /// informative one.
    fn least(&self) -> usize {
        let missed = |place: &usize| match self.rows[*place].get() {
            None => (0, 0.0),
            Some(row) if row.tells_nothing() => (1, row.told().0),
            Some(row) if !row.is_judged() => (2, row.voices.load(Ordering::Relaxed) as f32),
            Some(row) => (3, row.told().0),
        };
        let places = 2..PLACES;
        places.min_by(|a, b| missed(a).partial_cmp(&missed(b)).unwrap_or(std::cmp::Ordering::Equal)).unwrap_or(2)
    }

    /// Returns the row of an id, unless it was given to another name.
    #[inline]
    pub(crate) fn row(&self, id: TagId) -> Option<&Row> {
        let row = self.rows[id.place()].get()?;
        (row.generation.load(Ordering::Relaxed) == u32::from(id.generation())).then_some(&**row)
    }

    /// Returns the row of all hosts that showed a vendor, or anything by pages.
    #[inline]
    pub(crate) fn category(&self, side: Side) -> Option<&Row> {
        self.rows[side_place(side)].get().map(|row| &**row)
    }

    /// Returns whether the id is a category's.
    pub(crate) fn is_category(id: TagId) -> bool {
        id.place() < 2
    }

    /// Returns the name of an id, unless its row was given to another name.
    pub(crate) fn name_of(&self, id: TagId) -> Option<Box<str>> {
        self.row(id)?;
        self.names.read().unwrap_or_else(PoisonError::into_inner).list.get(id.place()).cloned()
    }

    /// Returns all names by row number.
    #[cfg(feature = "journal")]
    pub(super) fn names(&self) -> Vec<Box<str>> {
        self.names.read().unwrap_or_else(PoisonError::into_inner).list.clone()
    }

    /// Calls `f` for each cell of the signal in a row.
    #[cfg(feature = "journal")]
    pub(super) fn each_cell(&self, place: usize, mut f: impl FnMut(FetcherId, ContentKind, &TagCell)) {
        let Some(row) = self.rows.get(place).and_then(OnceLock::get) else { return };
        for (index, cell) in row.cells.iter().enumerate() {
            let is_file = index / MAX_CANDIDATES == ContentKind::File as usize;
            let kind = if is_file { ContentKind::File } else { ContentKind::Page };
            f(FetcherId((index % MAX_CANDIDATES) as u16), kind, cell);
        }
    }

    /// Computes the information of each signal again, as of the time that `down` belongs to.
    #[cfg(feature = "journal")]
    pub(super) fn judge(&self, down: f64) {
        for (place, name) in self.names().iter().enumerate().skip(2) {
            let rows = (self.rows[place].get(), self.category(Self::side(name)));
            if let (Some(row), Some(all)) = rows {
                let (tells, total) = row.tells(all, down);
                row.told.store(pack(tells, total), Ordering::Relaxed);
            }
        }
    }

    /// Adds one observation to the signals of its host and to their categories.
    pub(crate) fn hear(&self, decay: &Decay, voice: &Voice) {
        for (side, id) in Side::BOTH.into_iter().zip(voice.tags) {
            let (Some(id), Some(all)) = (id, self.category(side)) else { continue };
            let Some(cell) = all.cell(voice.fetcher, voice.kind) else { return };
            cell.hear(decay, voice, false);
            let Some(row) = self.row(id).filter(|_| !Self::is_category(id)) else { continue };
            if let Some(cell) = row.cell(voice.fetcher, voice.kind) {
                cell.hear(decay, voice, side == Side::Blocked);
            }
            if row.voices.fetch_add(1, Ordering::Relaxed) % JUDGED_EACH == JUDGED_EACH - 1 {
                let (tells, total) = row.tells(all, decay.down(voice.at));
                row.told.store(pack(tells, total), Ordering::Relaxed);
            }
        }
    }

    /// Returns which of the signals of a response takes the host's slot: a vendor or a framework, unless it is
    /// uninformative or another signal is much more informative. A few hosts, chosen by their hash, try out unrated
    /// signals.
    pub(super) fn choose<'t>(&self, side: Side, shown: impl Iterator<Item = (&'t str, &'t str)>, host: u64) -> Choice {
        let (mut primary, mut best, mut tried) = (None, None::<(f32, String)>, None);
        for (kind, value) in shown {
            let Some(name) = Self::name(side, kind, value) else { continue };
            let row = self.find(&name).and_then(|id| self.row(id));
            if Self::is_primary(&name) {
                primary = primary.or(Some((name, row)));
                continue;
            }
            match row.filter(|row| row.is_judged()) {
                Some(row) if row.tells_nothing() => {}
                Some(row) if best.as_ref().is_some_and(|(tells, _)| *tells >= row.told().0) => {}
                Some(row) => best = Some((row.told().0, name)),
                None if xxh3_64_with_seed(name.as_bytes(), host).is_multiple_of(TRIED_ON) => tried = Some(name),
                None => {}
            }
        }
        let other = |primary: Option<f32>| best.filter(|(tells, _)| primary.is_none_or(|p| *tells > TELLS_MORE * p));
        let chosen = match (tried, &primary) {
            (Some(name), _) => return Choice::Name(name),
            // A vendor that is no more informative than any block may change its policy, and then it is: only
            // frameworks are left out.
            (None, Some((_, Some(row)))) if side == Side::Served && row.tells_nothing() => {
                return match other(None) {
                    Some((_, name)) => Choice::Name(name),
                    None => Choice::Nothing,
                };
            }
            (None, Some((_, Some(row)))) if row.is_judged() => other(Some(row.told().0)),
            (None, Some(_)) => None,
            (None, None) => other(None),
        };
        match (chosen, primary) {
            (Some((_, name)), _) | (None, Some((name, _))) => Choice::Name(name),
            (None, None) => Choice::None,
        }
    }
}

fn side_place(side: Side) -> usize {
    match side {
        Side::Blocked => 0,
        Side::Served => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fetchwise_types::time::Timestamp;

    const BEGIN_MS: i64 = 1_800_000_000_000;

    fn decay() -> Decay {
        Decay::new(30.0, Timestamp::from_millis(BEGIN_MS)).unwrap()
    }

    /// Adds `count` observations of a signal, of which a `share` are successes.
    fn hear(tags: &Tags, name: &str, count: usize, share: f64) {
        let id = tags.id(name);
        for n in 0..count {
            let mut of = [None; 2];
            of[usize::from(Tags::side(name) == Side::Served)] = Some(id);
            let success = ((n + 1) as f64 * share) as usize > (n as f64 * share) as usize;
            let voice = Voice {
                tags: of,
                fetcher: FetcherId(0),
                kind: ContentKind::Page,
                at: Timestamp::from_millis(BEGIN_MS),
                weight: 1.0,
                success,
                last: None,
                is_first: true,
            };
            tags.hear(&decay(), &voice);
        }
    }

    fn choose(tags: &Tags, side: Side, shown: &[(&str, &str)], host: u64) -> Choice {
        tags.choose(side, shown.iter().copied(), host)
    }

    fn named(name: &str) -> Choice {
        Choice::Name(name.to_owned())
    }

    #[test]
    fn a_vendor_always_keeps_its_slot_and_an_uninformative_framework_does_not() {
        let tags = Tags::new();
        for _ in 0..8 {
            hear(&tags, "block_a", 40, 0.5);
            hear(&tags, "block_b", 40, 0.5);
            hear(&tags, "spa_framework=next", 40, 0.9);
            hear(&tags, "spa_framework=vue", 40, 0.2);
            hear(&tags, "spa_framework=plain", 40, 0.55);
        }
        assert_eq!(choose(&tags, Side::Blocked, &[("block_a", "true")], 1), named("block_a"));
        let framework = |value| choose(&tags, Side::Served, &[("spa_framework", value)], 1);
        assert_eq!(framework("next"), named("spa_framework=next"));
        assert_eq!(framework("vue"), named("spa_framework=vue"));
        assert_eq!(framework("plain"), Choice::Nothing);
        assert_eq!(framework("new"), named("spa_framework=new"), "a new framework is used");
        assert_eq!(choose(&tags, Side::Blocked, &[("has_captcha", "true")], 1), Choice::None);
    }

    #[test]
    fn a_callers_signal_is_tried_on_a_few_hosts_and_takes_the_slot_when_it_is_more_informative() {
        let tags = Tags::new();
        let shown = [("block_a", "true"), ("cookie_wall", "strict")];
        let tries = (0..1600).filter(|host| choose(&tags, Side::Blocked, &shown, *host) != named("block_a")).count();
        assert!((50..160).contains(&tries), "one host in sixteen tries it out: {tries}");
        for _ in 0..8 {
            hear(&tags, "block_a", 40, 0.45);
            hear(&tags, "wall:cookie_wall=strict", 40, 0.95);
            hear(&tags, "wall:cookie_wall=lax", 40, 0.02);
            hear(&tags, "wall:server_nginx", 40, 0.47);
        }
        for host in 0..100 {
            assert_eq!(choose(&tags, Side::Blocked, &shown, host), named("wall:cookie_wall=strict"));
            let idle = [("server_nginx", "true"), ("block_a", "true")];
            assert_eq!(choose(&tags, Side::Blocked, &idle, host), named("block_a"));
        }
    }

    #[test]
    fn the_least_informative_name_loses_its_row_and_its_hosts_notice() {
        let tags = Tags::new();
        let first = tags.id("block_first");
        for _ in 0..10 {
            hear(&tags, "block_other", 40, 0.1);
            hear(&tags, "block_loud", 40, 0.9);
        }
        hear(&tags, "block_first", 3, 0.5);
        for n in 0..PLACES - 5 {
            hear(&tags, &format!("block_{n}"), 10, 0.5);
        }
        assert!(tags.row(first).is_some());
        let new = tags.id("block_new");
        assert_eq!(new.place(), first.place());
        assert_eq!((tags.row(first).is_none(), tags.name_of(first)), (true, None));
        assert_eq!(tags.name_of(new).as_deref(), Some("block_new"));
        assert!(tags.find("block_loud").is_some() && tags.find("block_first").is_none());
        let cell = tags.row(new).unwrap().cell(FetcherId(0), ContentKind::Page).unwrap();
        assert_eq!(cell.read(1.0).total, 0.0, "the new name begins with nothing");
    }

    #[test]
    fn observations_of_a_signal_also_count_for_its_category() {
        let tags = Tags::new();
        hear(&tags, "block_a", 10, 1.0);
        hear(&tags, "block_b", 30, 0.0);
        let down = decay().down(Timestamp::from_millis(BEGIN_MS));
        let total = |row: &Row| row.cell(FetcherId(0), ContentKind::Page).map(|cell| cell.read(down)).unwrap();
        let walls = total(tags.category(Side::Blocked).unwrap());
        assert!((walls.total - 40.0).abs() < 1e-3 && (walls.success - 10.0).abs() < 1e-3, "{walls:?}");
        assert_eq!(total(tags.category(Side::Served).unwrap()).total, 0.0);
    }
}
