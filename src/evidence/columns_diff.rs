//! Comparison of two images, and images reduced to some domains or to none.
//!
//! Owns: equality of images to within rounding, and the choice of the rows that belong to a domain or to none.
//!
//! Must not know: how images are made.

use std::collections::{HashMap, HashSet};

use super::Key;
use super::entry::{Entry, Group, Level};
use crate::evidence::columns::{BreakerRow, CellRow, EntryRow, FADED, Image, Place, take};
use crate::evidence::decayed_counts::Raw;
use crate::evidence::remote::Said;
use fetchwise_types::time::Timestamp;

impl Image {
    /// Returns whether the image has evidence of this domain itself.
    pub(crate) fn has_domain(&self, domain: &str) -> bool {
        let place = Place { kind: Place::MAP, key: Key::domain(domain).0 };
        let is_own = |whole: &Whole<'_>| {
            whole.row.place == place && whole.cells.iter().any(|cell| !Entry::split_tag(cell.tag).0.is_of_others())
        };
        Rows::of(self).any(|whole| is_own(&whole)) || self.days.iter().any(|row| row.key == place.key)
    }

    /// Returns the totals of all attempts by fetcher.
    pub(crate) fn said(&self) -> Vec<Said> {
        let place = Place { kind: Place::GLOBAL, key: 0 };
        Rows::of(self).find(|whole| whole.row.place == place).map(|whole| self.by_fetcher(&whole)).unwrap_or_default()
    }

    /// Returns the totals of some domains by fetcher. Domains without evidence are left out.
    pub(crate) fn said_of<'d>(&self, domains: impl Iterator<Item = &'d str>) -> HashMap<&'d str, Vec<Said>> {
        let names: HashMap<u64, &'d str> = domains.map(|domain| (Key::domain(domain).0, domain)).collect();
        let wanted = Rows::of(self).filter(|whole| whole.row.place.kind == Place::MAP);
        wanted.filter_map(|whole| Some((*names.get(&whole.row.place.key)?, self.by_fetcher(&whole)))).collect()
    }

    fn by_fetcher(&self, whole: &Whole<'_>) -> Vec<Said> {
        let mut all: Vec<Said> = Vec::new();
        let down = self.decay.map_or(0.0, |decay| decay.down(self.as_of));
        for cell in whole.cells {
            let (group, fetcher) = Entry::split_tag(cell.tag);
            let Some(name) = self.fetchers.get(fetcher as usize).filter(|_| group.is_own()) else { continue };
            let place = all.iter().position(|said| said.fetcher == *name).unwrap_or_else(|| {
                all.push(Said { fetcher: name.clone(), ..Said::default() });
                all.len() - 1
            });
            let said = &mut all[place];
            said.attempts += u64::from(cell.raw.attempts);
            said.success += cell.raw.success * down;
            said.total += cell.raw.total * down;
            said.blocked += cell.raw.blocked * down;
        }
        all
    }

    /// Returns an image without anything that belongs to one domain or site. It keeps all attempts together, flags,
    /// hints, depths, suffixes, signals and the user's heuristics.
    pub(crate) fn general(&self) -> Self {
        let mut general = Self {
            decay: self.decay,
            as_of: self.as_of,
            fetchers: self.fetchers.clone(),
            tags: self.tags.clone(),
            tag_cells: self.tag_cells.clone(),
            ..Self::default()
        };
        for whole in Rows::of(self).filter(Whole::is_general) {
            general.entries.push(*whole.row);
            general.cells.extend_from_slice(whole.cells);
        }
        general
    }

    /// Returns the part that belongs to the domains of some sites: those whose hash `wants` accepts. Cells of a site's
    /// other domains are in the entry of its name.
    pub(crate) fn of_sites(&self, wants: impl Fn(u64) -> bool) -> Self {
        let mut kept = Self {
            decay: self.decay,
            as_of: self.as_of,
            fetchers: self.fetchers.clone(),
            tags: self.tags.clone(),
            ..Self::default()
        };
        let mut keys = HashSet::new();
        for whole in Rows::of(self).filter(|whole| !whole.is_general()) {
            let site = if whole.row.site == 0 { whole.row.place.key } else { whole.row.site };
            if wants(site) {
                keys.insert(whole.row.place.key);
                kept.entries.push(*whole.row);
                kept.cells.extend_from_slice(whole.cells);
                kept.breakers.extend_from_slice(whole.breakers);
            }
        }
        kept.days = self.days.iter().filter(|row| keys.contains(&row.key)).copied().collect();
        kept
    }

    /// Returns whether no part of the image belongs to one domain or site.
    pub(crate) fn is_general(&self) -> bool {
        self.days.is_empty() && self.breakers.is_empty() && Rows::of(self).all(|whole| whole.is_general())
    }

    /// Returns whether `attempts` attempts could have produced the image by `now`.
    ///
    /// No attempt weighs more than one. Each attempt is in at most one cell of an entry; in one cell of all attempts,
    /// of a domain, of a section, of a suffix on a domain and of a site; and in one day.
    ///
    /// A cell's weight is never compared with its own count. If an entry faded or was evicted, and was created again,
    /// subtracting an earlier attempt takes one from the count and hardly anything from the weight.
    pub(crate) fn is_of(&self, attempts: u64, now: Timestamp) -> bool {
        let down = self.decay.map_or(0.0, |decay| decay.down(now));
        // Clocks differ slightly, and sums are rounded.
        let most = attempts as f64 * 1.01;
        let fits = |raw: &Raw| {
            f64::from(raw.recent_total.max(raw.alert_total)) * down <= most
                && raw.duration * down <= most * u64::MAX as f64
        };
        let mut sums = [(0u64, 0.0); Levels::COUNT];
        for whole in Rows::of(self) {
            let (mut of_entry, levels) = ((0u64, 0.0), Levels::of(&whole));
            for cell in whole.cells {
                let (count, weight) = (u64::from(cell.raw.attempts), cell.raw.total * down);
                let group = Entry::split_tag(cell.tag).0;
                let sum = levels.of_cell(group).and_then(|level| sums.get_mut(level));
                for sum in sum.into_iter().chain(group.is_own().then_some(&mut of_entry)) {
                    *sum = (sum.0.saturating_add(count), sum.1 + weight);
                }
                if !fits(&cell.raw) || count > attempts || weight > most {
                    return false;
                }
            }
            if of_entry.0 > attempts || of_entry.1 > most {
                return false;
            }
        }
        let days = self.days.iter().map(|row| u64::from(row.day.attempts)).fold(0, u64::saturating_add);
        days <= attempts && sums.iter().all(|(count, weight)| *count <= attempts && *weight <= most)
    }

    /// Removes the lighter half of the entries in the map. Returns false if there is none.
    pub(crate) fn lighten(&mut self) -> bool {
        let mut weights: Vec<f64> =
            Rows::of(self).filter(|whole| whole.row.place.kind == Place::MAP).map(|whole| whole.weight()).collect();
        if weights.is_empty() {
            return false;
        }
        weights.sort_by(f64::total_cmp);
        let (least, mut room) = (weights[weights.len() / 2], weights.len() / 2);
        let mut kept = Self { entries: Vec::new(), cells: Vec::new(), breakers: Vec::new(), ..self.clone() };
        for whole in Rows::of(self) {
            if whole.row.place.kind == Place::MAP {
                if whole.weight() < least || room == 0 {
                    continue;
                }
                room -= 1;
            }
            kept.entries.push(*whole.row);
            kept.cells.extend_from_slice(whole.cells);
            kept.breakers.extend_from_slice(whole.breakers);
        }
        *self = kept;
        true
    }

    /// Removes this domain itself. Evidence about other domains of the site of its name stays.
    pub(crate) fn forget_domain(&mut self, domain: &str) {
        let place = Place { kind: Place::MAP, key: Key::domain(domain).0 };
        self.days.retain(|row| row.key != place.key);
        let Some(index) = self.entries.iter().position(|row| row.place == place) else { return };
        let before = |of: fn(&EntryRow) -> u32| self.entries[..index].iter().map(|row| of(row) as usize).sum::<usize>();
        let (first, first_breaker) = (before(|row| row.cells), before(|row| row.breakers));
        let row = &mut self.entries[index];
        let breakers = first_breaker..(first_breaker + row.breakers as usize).min(self.breakers.len());
        self.breakers.drain(breakers);
        let mut cells = self.cells.split_off(first.min(self.cells.len()));
        let rest = cells.split_off((row.cells as usize).min(cells.len()));
        cells.retain(|cell| Entry::split_tag(cell.tag).0.is_of_others());
        (row.cells, row.breakers, row.attempts, row.shown) = (cells.len() as u32, 0, 0, [None; 4]);
        self.cells.append(&mut cells);
        self.cells.extend(rest);
        if self.entries[index].cells == 0 {
            self.entries.remove(index);
        }
    }

    /// Returns the largest difference between exact weights of two images, as a fraction of the larger total, and its
    /// key.
    pub(crate) fn distance(&self, other: &Self) -> (f64, u64) {
        let scale = match (self.decay, other.decay) {
            (Some(mine), Some(theirs)) => mine.rebase(&theirs),
            _ => 1.0,
        };
        let mut all: HashMap<(Place, u64, &str), [Raw; 2]> = HashMap::new();
        for (side, image) in [self, other].into_iter().enumerate() {
            for whole in Rows::of(image) {
                for cell in whole.cells {
                    let (group, rank) = Entry::split_tag(cell.tag);
                    let name = usize::try_from(rank).ok().and_then(|rank| image.fetchers.get(rank));
                    let key = (whole.row.place, Entry::join_tag(group, 0), name.map_or("", String::as_str));
                    all.entry(key).or_default()[side] = cell.raw;
                }
            }
        }
        let mut far = (0.0, 0);
        for ((place, ..), [a, b]) in all {
            let most = a.total.abs().max((b.total * scale).abs());
            let apart = |a: f64, b: f64| if most > 0.0 { (a - b * scale).abs() / most } else { 0.0 };
            let mut worst = apart(a.total, b.total).max(apart(a.success, b.success)).max(apart(a.blocked, b.blocked));
            let longest = a.duration.abs().max((b.duration * scale).abs());
            if longest > 0.0 {
                worst = worst.max((a.duration - b.duration * scale).abs() / longest);
            }
            if a.attempts != b.attempts {
                worst = worst.max(1.0);
            }
            if worst > far.0 {
                far = (worst, place.key);
            }
        }
        far
    }

    /// Returns the decayed weight of all cells as of the image's time, which a compaction must not change.
    pub(crate) fn weight(&self) -> f64 {
        let down = self.decay.map_or(1.0, |decay| decay.down(self.as_of));
        self.cells.iter().map(|cell| cell.raw.total * down).sum()
    }

    /// Returns whether the decayed weight of each cell is below `least`.
    pub(crate) fn has_faded(&self, least: f64) -> bool {
        let down = self.decay.map_or(1.0, |decay| decay.down(self.as_of));
        self.cells.iter().all(|cell| cell.raw.total * down < least)
    }

    /// Returns the first difference between this image and `other` that exceeds rounding: an entry's key and a
    /// description. Both images must have the same scale and time.
    pub(crate) fn difference(&self, other: &Self) -> Option<(u64, &'static str)> {
        let different =
            self.days.iter().zip(&other.days).find(|(mine, theirs)| mine != theirs).map(|(mine, _)| mine.key);
        let longer = || self.days.get(other.days.len()).or(other.days.get(self.days.len())).map(|row| row.key);
        if let Some(key) = different.or_else(longer) {
            return Some((key, "days differ"));
        }
        let down = self.decay.map_or(1.0, |decay| decay.down(self.as_of));
        // Only fetchers with a cell matter; one image may list names without any.
        let name = |image: &Self, rank: u64| image.fetchers.get(rank as usize).cloned();
        let (mut mine, mut theirs) = (Rows::of(self), Rows::of(other));
        let (mut a, mut b) = (mine.next(), theirs.next());
        loop {
            let (left, right) = match (&a, &b) {
                (None, None) => return None,
                (Some(left), Some(right)) if left.row.place == right.row.place => (left, right),
                (Some(left), right) if right.as_ref().is_none_or(|right| left.row.place < right.row.place) => {
                    if left.weight() * down > FADED + 1e-6 {
                        return Some((left.row.place.key, "an entry is in only one of the two"));
                    }
                    a = mine.next();
                    continue;
                }
                (_, Some(right)) => {
                    if right.weight() * down > FADED + 1e-6 {
                        return Some((right.row.place.key, "an entry is in only one of the two"));
                    }
                    b = theirs.next();
                    continue;
                }
                (Some(_), None) => return None,
            };
            let key = left.row.place.key;
            if left.cells.len() != right.cells.len() || left.breakers.len() != right.breakers.len() {
                return Some((key, "cells are in only one of the two"));
            }
            let pair = |cells: &[CellRow], image: &Self| {
                let mut named: Vec<_> = cells
                    .iter()
                    .map(|cell| {
                        let (group, rank) = Entry::split_tag(cell.tag);
                        ((Entry::join_tag(group, 0), name(image, rank)), cell.raw)
                    })
                    .collect();
                named.sort_by(|x, y| x.0.cmp(&y.0));
                named
            };
            for ((tag_a, raw_a), (tag_b, raw_b)) in pair(left.cells, self).iter().zip(&pair(right.cells, other)) {
                if tag_a != tag_b {
                    return Some((key, "cells are in only one of the two"));
                }
                if let Some(what) = raw_a.difference(raw_b) {
                    return Some((key, what));
                }
            }
            let named = |rows: &[BreakerRow], image: &Self| -> Vec<_> {
                let named = rows.iter().map(|row| (name(image, u64::from(row.fetcher)), row.blocks, row.last));
                named.collect()
            };
            if named(left.breakers, self) != named(right.breakers, other) {
                return Some((key, "breakers differ"));
            }
            (a, b) = (mine.next(), theirs.next());
        }
    }
}

/// Levels with at most one cell per attempt, over all entries of an image.
struct Levels {
    /// The level of the cells of the entry's own key, if they belong to one.
    own: Option<usize>,
}

impl Levels {
    /// All attempts, domains, sections, suffixes on domains, sites.
    const COUNT: usize = 5;

    fn of(whole: &Whole<'_>) -> Self {
        let own = match whole.row.place.kind {
            Place::GLOBAL => Some(0),
            // Only the entries of domains count attempts.
            Place::MAP if whole.row.attempts > 0 => Some(1),
            _ => None,
        };
        Self { own }
    }

    fn of_cell(&self, group: Group) -> Option<usize> {
        match group.level() {
            Level::Own => self.own,
            Level::Path => Some(2),
            Level::Suffix => Some(3),
            Level::Site => Some(4),
        }
    }
}

/// An iterator over the entries of an image, each with its cells and breakers.
struct Rows<'i> {
    entries: std::slice::Iter<'i, EntryRow>,
    cells: &'i [CellRow],
    breakers: &'i [BreakerRow],
}

struct Whole<'i> {
    row: &'i EntryRow,
    cells: &'i [CellRow],
    breakers: &'i [BreakerRow],
}

impl Whole<'_> {
    /// Returns whether the entry belongs to no single domain. An attempt is counted in its domain's entry only; the
    /// entry of a site's name without attempts has cells of the site's other domains.
    fn is_general(&self) -> bool {
        let is_plain = self.row.attempts == 0 && self.breakers.is_empty() && self.row.shown == [None; 4];
        self.row.place.kind != Place::MAP
            || is_plain && self.cells.iter().all(|cell| Entry::split_tag(cell.tag).0.is_own())
    }

    fn weight(&self) -> f64 {
        self.cells.iter().map(|cell| cell.raw.total).sum()
    }
}

impl<'i> Rows<'i> {
    fn of(image: &'i Image) -> Self {
        Self { entries: image.entries.iter(), cells: &image.cells, breakers: &image.breakers }
    }
}

impl<'i> Iterator for Rows<'i> {
    type Item = Whole<'i>;

    fn next(&mut self) -> Option<Whole<'i>> {
        let row = self.entries.next()?;
        let (cells, breakers) = (take(&mut self.cells, row.cells), take(&mut self.breakers, row.breakers));
        Some(Whole { row, cells, breakers })
    }
}
