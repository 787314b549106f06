//! Comparison of two images, and images reduced to some domains or to none.
//!
//! Owns: equality of images to within rounding, and the choice of the rows that belong to a domain
//! or to none.
//!
//! Must not know: how images are made.

use std::collections::{HashMap, HashSet};

use super::Key;
use super::entry::{Entry, Group, Level};
use crate::evidence::decayed_counts::RawCounts;
use crate::evidence::evidence_snapshot::{
    BreakerRow, CellRow, EntryAddress, EntryRow, EvidenceSnapshot, FADED, take,
};
use crate::evidence::remote::FetcherTotals;
use fetchwise_types::time::Timestamp;

impl EvidenceSnapshot {
    /// Returns whether the image has evidence of this domain itself.
    pub fn has_domain(&self, domain: &str) -> bool {
        let address = EntryAddress { kind: EntryAddress::MAP, key: Key::domain(domain).0 };
        let is_own = |view: &EntryView<'_>| {
            view.row.address == address
                && view.cells.iter().any(|cell| !Entry::split_tag(cell.tag).0.is_of_others())
        };
        EntryViews::of(self).any(|view| is_own(&view))
            || self.days.iter().any(|row| row.key == address.key)
    }

    /// Returns the totals of all attempts by fetcher.
    pub fn fetcher_totals(&self) -> Vec<FetcherTotals> {
        let address = EntryAddress { kind: EntryAddress::GLOBAL, key: 0 };
        EntryViews::of(self)
            .find(|view| view.row.address == address)
            .map(|view| self.by_fetcher(&view))
            .unwrap_or_default()
    }

    /// Returns the totals of some domains by fetcher, without domains that have no evidence. The
    /// snapshot has no names, so the caller must name the domains. Cost: a pass over all keys.
    pub fn domain_totals<'d>(
        &self,
        domains: impl Iterator<Item = &'d str>,
    ) -> HashMap<&'d str, Vec<FetcherTotals>> {
        let names: HashMap<u64, &'d str> =
            domains.map(|domain| (Key::domain(domain).0, domain)).collect();
        let wanted = EntryViews::of(self).filter(|view| view.row.address.kind == EntryAddress::MAP);
        wanted
            .filter_map(|view| Some((*names.get(&view.row.address.key)?, self.by_fetcher(&view))))
            .collect()
    }

    fn by_fetcher(&self, view: &EntryView<'_>) -> Vec<FetcherTotals> {
        let mut all: Vec<FetcherTotals> = Vec::new();
        let down = self.decay.map_or(0.0, |decay| decay.down(self.as_of));
        for cell in view.cells {
            let (group, fetcher) = Entry::split_tag(cell.tag);
            // The entry of all attempts has those beyond a quota in cells apart.
            let is_global = view.row.address.kind == EntryAddress::GLOBAL;
            let counts = !group.is_counted_elsewhere() && (group.is_own() || is_global);
            let Some(name) = self.fetchers.get(fetcher as usize).filter(|_| counts) else {
                continue;
            };
            let place =
                all.iter().position(|totals| totals.fetcher == *name).unwrap_or_else(|| {
                    all.push(FetcherTotals { fetcher: name.clone(), ..FetcherTotals::default() });
                    all.len() - 1
                });
            let totals = &mut all[place];
            totals.attempts += u64::from(cell.raw.attempts);
            totals.success += cell.raw.success * down;
            totals.total += cell.raw.total * down;
            totals.blocked += cell.raw.blocked * down;
        }
        all
    }

    /// Returns an image without anything that belongs to one domain or site. It keeps all attempts
    /// together, flags, hints, depths, suffixes, signals and the user's heuristics.
    pub fn global_part(&self) -> Self {
        let mut general = Self {
            decay: self.decay,
            as_of: self.as_of,
            fetchers: self.fetchers.clone(),
            signals: self.signals.clone(),
            signal_cells: self.signal_cells.clone(),
            ..Self::default()
        };
        for view in EntryViews::of(self).filter(EntryView::is_global) {
            general.entries.push(*view.row);
            general.cells.extend_from_slice(view.cells);
        }
        general
    }

    /// Returns the part that belongs to the domains of some sites: those whose hash `wants`
    /// accepts. Cells of a site's other domains are in the entry of its name.
    pub fn of_sites(&self, wants: impl Fn(u64) -> bool) -> Self {
        let mut kept = Self {
            decay: self.decay,
            as_of: self.as_of,
            fetchers: self.fetchers.clone(),
            signals: self.signals.clone(),
            ..Self::default()
        };
        let mut keys = HashSet::new();
        for view in EntryViews::of(self).filter(|view| !view.is_global()) {
            let site = if view.row.site == 0 { view.row.address.key } else { view.row.site };
            if wants(site) {
                keys.insert(view.row.address.key);
                kept.entries.push(*view.row);
                kept.cells.extend_from_slice(view.cells);
                kept.breakers.extend_from_slice(view.breakers);
            }
        }
        kept.days = self.days.iter().filter(|row| keys.contains(&row.key)).copied().collect();
        kept
    }

    /// Returns whether no part of the image belongs to one domain or site.
    pub fn is_global(&self) -> bool {
        self.days.is_empty()
            && self.breakers.is_empty()
            && EntryViews::of(self).all(|view| view.is_global())
    }

    /// Returns whether `attempts` attempts could have produced the image by `now`.
    ///
    /// No attempt weighs more than one. Each attempt is in at most one cell of an entry; in one
    /// cell of all attempts, of a domain, of a section, of a suffix on a domain and of a site; and
    /// in one day.
    ///
    /// A cell's weight is never compared with its own count. If an entry faded or was evicted, and
    /// was created again, subtracting an earlier attempt takes one from the count and hardly
    /// anything from the weight.
    pub fn is_plausible_for(&self, attempts: u64, now: Timestamp) -> bool {
        let down = self.decay.map_or(0.0, |decay| decay.down(now));
        // Clocks differ slightly, and sums are rounded.
        let most = attempts as f64 * 1.01;
        let fits = |raw: &RawCounts| {
            f64::from(raw.recent_total.max(raw.alert_total)) * down <= most
                && raw.duration * down <= most * u64::MAX as f64
        };
        let mut sums = [(0u64, 0.0); AttemptLevels::COUNT];
        for view in EntryViews::of(self) {
            let (mut of_entry, levels) = ((0u64, 0.0), AttemptLevels::of(&view));
            for cell in view.cells {
                let (count, weight) = (u64::from(cell.raw.attempts), cell.raw.total * down);
                let group = Entry::split_tag(cell.tag).0;
                if group.is_counted_elsewhere() {
                    continue;
                }
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
        let days =
            self.days.iter().map(|row| u64::from(row.day.attempts)).fold(0, u64::saturating_add);
        days <= attempts && sums.iter().all(|(count, weight)| *count <= attempts && *weight <= most)
    }

    /// Removes the lighter half of the entries in the map. Returns false if there is none.
    pub fn lighten(&mut self) -> bool {
        let mut weights: Vec<f64> = EntryViews::of(self)
            .filter(|view| view.row.address.kind == EntryAddress::MAP)
            .map(|view| view.weight())
            .collect();
        if weights.is_empty() {
            return false;
        }
        weights.sort_by(f64::total_cmp);
        let (least, mut room) = (weights[weights.len() / 2], weights.len() / 2);
        let mut kept =
            Self { entries: Vec::new(), cells: Vec::new(), breakers: Vec::new(), ..self.clone() };
        for view in EntryViews::of(self) {
            if view.row.address.kind == EntryAddress::MAP {
                if view.weight() < least || room == 0 {
                    continue;
                }
                room -= 1;
            }
            kept.entries.push(*view.row);
            kept.cells.extend_from_slice(view.cells);
            kept.breakers.extend_from_slice(view.breakers);
        }
        *self = kept;
        true
    }

    /// Removes this domain itself. Evidence about other domains of the site of its name stays.
    pub fn forget_domain(&mut self, domain: &str) {
        let address = EntryAddress { kind: EntryAddress::MAP, key: Key::domain(domain).0 };
        self.days.retain(|row| row.key != address.key);
        let Some(index) = self.entries.iter().position(|row| row.address == address) else {
            return;
        };
        let before = |of: fn(&EntryRow) -> u32| {
            self.entries[..index].iter().map(|row| of(row) as usize).sum::<usize>()
        };
        let (first, first_breaker) = (before(|row| row.cells), before(|row| row.breakers));
        let row = &mut self.entries[index];
        let breakers =
            first_breaker..(first_breaker + row.breakers as usize).min(self.breakers.len());
        self.breakers.drain(breakers);
        let mut cells = self.cells.split_off(first.min(self.cells.len()));
        let rest = cells.split_off((row.cells as usize).min(cells.len()));
        cells.retain(|cell| Entry::split_tag(cell.tag).0.is_of_others());
        (row.cells, row.breakers, row.attempts, row.signals) =
            (cells.len() as u32, 0, 0, [None; 4]);
        self.cells.append(&mut cells);
        self.cells.extend(rest);
        if self.entries[index].cells == 0 {
            self.entries.remove(index);
        }
    }

    /// Returns the largest difference between exact weights of two images, as a fraction of the
    /// larger total, and its key.
    pub fn distance(&self, other: &Self) -> (f64, u64) {
        let scale = match (self.decay, other.decay) {
            (Some(mine), Some(theirs)) => mine.rebase(&theirs),
            _ => 1.0,
        };
        let mut all: HashMap<(EntryAddress, u64, &str), [RawCounts; 2]> = HashMap::new();
        for (side, image) in [self, other].into_iter().enumerate() {
            for view in EntryViews::of(image) {
                for cell in view.cells {
                    let (group, rank) = Entry::split_tag(cell.tag);
                    let name = usize::try_from(rank).ok().and_then(|rank| image.fetchers.get(rank));
                    let key = (
                        view.row.address,
                        Entry::join_tag(group, 0),
                        name.map_or("", String::as_str),
                    );
                    all.entry(key).or_default()[side] = cell.raw;
                }
            }
        }
        let mut far = (0.0, 0);
        for ((address, ..), [a, b]) in all {
            let most = a.total.abs().max((b.total * scale).abs());
            let apart =
                |a: f64, b: f64| if most > 0.0 { (a - b * scale).abs() / most } else { 0.0 };
            let mut worst = apart(a.total, b.total)
                .max(apart(a.success, b.success))
                .max(apart(a.blocked, b.blocked));
            let longest = a.duration.abs().max((b.duration * scale).abs());
            if longest > 0.0 {
                worst = worst.max((a.duration - b.duration * scale).abs() / longest);
            }
            if a.attempts != b.attempts {
                worst = worst.max(1.0);
            }
            if worst > far.0 {
                far = (worst, address.key);
            }
        }
        far
    }

    /// Returns the decayed weight of all cells as of the image's time, which a compaction must not
    /// change.
    pub fn weight(&self) -> f64 {
        let down = self.decay.map_or(1.0, |decay| decay.down(self.as_of));
        self.cells.iter().map(|cell| cell.raw.total * down).sum()
    }

    /// Returns whether the decayed weight of each cell is below `least`.
    pub fn has_faded(&self, least: f64) -> bool {
        let down = self.decay.map_or(1.0, |decay| decay.down(self.as_of));
        self.cells.iter().all(|cell| cell.raw.total * down < least)
    }

    /// Returns the first difference between this image and `other` that exceeds rounding: an
    /// entry's key and a description. Both images must have the same scale and time.
    pub fn difference(&self, other: &Self) -> Option<(u64, &'static str)> {
        let different = self
            .days
            .iter()
            .zip(&other.days)
            .find(|(mine, theirs)| mine != theirs)
            .map(|(mine, _)| mine.key);
        let longer = || {
            self.days.get(other.days.len()).or(other.days.get(self.days.len())).map(|row| row.key)
        };
        if let Some(key) = different.or_else(longer) {
            return Some((key, "days differ"));
        }
        let down = self.decay.map_or(1.0, |decay| decay.down(self.as_of));
        let (mut mine, mut theirs) = (EntryViews::of(self), EntryViews::of(other));
        let (mut a, mut b) = (mine.next(), theirs.next());
        loop {
            let (left, right) = match (&a, &b) {
                (None, None) => return None,
                (Some(left), Some(right)) if left.row.address == right.row.address => (left, right),
                (Some(left), right)
                    if right.as_ref().is_none_or(|right| left.row.address < right.row.address) =>
                {
                    if left.weight() * down > FADED + 1e-6 {
                        return Some((left.row.address.key, "an entry is in only one of the two"));
                    }
                    a = mine.next();
                    continue;
                }
                (_, Some(right)) => {
                    if right.weight() * down > FADED + 1e-6 {
                        return Some((right.row.address.key, "an entry is in only one of the two"));
                    }
                    b = theirs.next();
                    continue;
                }
                (Some(_), None) => return None,
            };
            if let Some(what) = differ((left, self), (right, other)) {
                return Some((left.row.address.key, what));
            }
            (a, b) = (mine.next(), theirs.next());
        }
    }
}

/// Levels with at most one cell per attempt, over all entries of an image.
struct AttemptLevels {
    /// The level of the cells of the entry's own key, if they belong to one.
    own: Option<usize>,
}

impl AttemptLevels {
    /// All attempts, domains, sections, suffixes on domains, sites.
    const COUNT: usize = 5;

    fn of(view: &EntryView<'_>) -> Self {
        let own = match view.row.address.kind {
            EntryAddress::GLOBAL => Some(0),
            // Only the entries of domains count attempts.
            EntryAddress::MAP if view.row.attempts > 0 => Some(1),
            _ => None,
        };
        Self { own }
    }

    fn of_cell(&self, group: Group) -> Option<usize> {
        match group.level() {
            Level::Own => self.own,
            Level::Path => Some(2),
            Level::Suffix => Some(3),
            Level::Site if self.own == Some(0) => self.own,
            Level::Site => Some(4),
        }
    }
}

/// An iterator over the entries of an image, each with its cells and breakers.
struct EntryViews<'i> {
    entries: std::slice::Iter<'i, EntryRow>,
    cells: &'i [CellRow],
    breakers: &'i [BreakerRow],
}

struct EntryView<'i> {
    row: &'i EntryRow,
    cells: &'i [CellRow],
    breakers: &'i [BreakerRow],
}

impl EntryView<'_> {
    /// Returns whether the entry belongs to no single domain. An attempt is counted in its domain's
    /// entry only; the entry of a site's name without attempts has cells of the site's other
    /// domains.
    fn is_global(&self) -> bool {
        let is_plain =
            self.row.attempts == 0 && self.breakers.is_empty() && self.row.signals == [None; 4];
        self.row.address.kind != EntryAddress::MAP
            || is_plain && self.cells.iter().all(|cell| Entry::split_tag(cell.tag).0.is_own())
    }

    fn weight(&self) -> f64 {
        self.cells.iter().map(|cell| cell.raw.total).sum()
    }
}

type NamedCells = Vec<((u64, Option<String>), RawCounts)>;

impl EntryView<'_> {
    /// Its cells with the names of their fetchers, in order. Two images number fetchers
    /// differently, and one may list names without any cell.
    fn named_cells(&self, image: &EvidenceSnapshot) -> NamedCells {
        let mut named: Vec<_> = self
            .cells
            .iter()
            .map(|cell| {
                let (group, rank) = Entry::split_tag(cell.tag);
                ((Entry::join_tag(group, 0), image.fetchers.get(rank as usize).cloned()), cell.raw)
            })
            .collect();
        named.sort_by(|x, y| x.0.cmp(&y.0));
        named
    }

    fn named_breakers(&self, image: &EvidenceSnapshot) -> Vec<(Option<String>, u32, Timestamp)> {
        let rows = self.breakers.iter();
        rows.map(|row| (image.fetchers.get(row.fetcher as usize).cloned(), row.blocks, row.last))
            .collect()
    }
}

/// Returns what differs between an entry of two images by more than rounding.
fn differ(
    (left, mine): (&EntryView<'_>, &EvidenceSnapshot),
    (right, theirs): (&EntryView<'_>, &EvidenceSnapshot),
) -> Option<&'static str> {
    const MISSING: &str = "cells are in only one of the two";
    if left.cells.len() != right.cells.len() || left.breakers.len() != right.breakers.len() {
        return Some(MISSING);
    }
    let cells = left.named_cells(mine).into_iter().zip(right.named_cells(theirs));
    for ((tag_a, raw_a), (tag_b, raw_b)) in cells {
        if tag_a != tag_b {
            return Some(MISSING);
        }
        if let Some(what) = raw_a.difference(&raw_b) {
            return Some(what);
        }
    }
    (left.named_breakers(mine) != right.named_breakers(theirs)).then_some("breakers differ")
}

impl<'i> EntryViews<'i> {
    fn of(image: &'i EvidenceSnapshot) -> Self {
        Self { entries: image.entries.iter(), cells: &image.cells, breakers: &image.breakers }
    }
}

impl<'i> Iterator for EntryViews<'i> {
    type Item = EntryView<'i>;

    fn next(&mut self) -> Option<EntryView<'i>> {
        let row = self.entries.next()?;
        let (cells, breakers) =
            (take(&mut self.cells, row.cells), take(&mut self.breakers, row.breakers));
        Some(EntryView { row, cells, breakers })
    }
}
