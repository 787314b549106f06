//! Groups of entries in a snapshot: what an entry has, row by row, with what repeats written once.
//!
//! Owns: the layout of a group, which `log/FORMAT.md` describes.
//!
//! Invariants: an encoded group decodes to the same rows, to the bit. Any bytes decode or are
//! rejected.
//!
//! Must not know: sections, files.

use fetchwise_log::{get_varint, put_varint};

use crate::evidence::daily_block_counts::Day;
use crate::evidence::decayed_counts::RawCounts;
use crate::evidence::evidence_snapshot::{
    BreakerRow, CellRow, DayRow, EntryAddress, EntryRow, EvidenceSnapshot, take,
};
use crate::evidence::snapshot_groups::GROUP_ENTRIES;
use fetchwise_types::time::Timestamp;

/// Bits of a cell's tag that are the fetcher's number.
const FETCHER_BITS: u32 = 12;
/// Places of the tags that were written last, by their hash. A tag that is not among them is
/// written again.
const RECENT_TAGS: usize = 1 << 12;

/// How a number of a cell is stored: two bits for each.
mod how {
    pub(super) const STORED: u16 = 0;
    pub(super) const ZERO: u16 = 1;
    /// As another number of the same cell.
    pub(super) const SAME: u16 = 2;
    /// As in the cell before, of the same entry.
    pub(super) const BEFORE: u16 = 3;
}

/// The numbers of a group, which its bytes begin with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct GroupTotals {
    pub(super) entries: u64,
    pub(super) cells: u64,
    /// Undecayed weight of all cells.
    pub(super) weight: f64,
}

impl GroupTotals {
    fn of(rows: &EvidenceSnapshot) -> Self {
        Self {
            entries: rows.entries.len() as u64,
            cells: rows.cells.len() as u64,
            weight: rows.cells.iter().map(|cell| cell.raw.total).sum(),
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            entries: self.entries + other.entries,
            cells: self.cells + other.cells,
            weight: self.weight + other.weight,
        }
    }
}

/// A group as a snapshot holds it.
pub(super) struct EncodedGroup {
    pub(super) bytes: Vec<u8>,
    pub(super) totals: GroupTotals,
    /// Whether all weights are finite. No reader accepts others.
    pub(super) is_finite: bool,
}

/// Returns the groups of an image, each of entries of one place.
pub(super) fn encode_groups(image: &EvidenceSnapshot) -> Vec<EncodedGroup> {
    let (mut cells, mut breakers, mut days) =
        (&image.cells[..], &image.breakers[..], &image.days[..]);
    let places = image.entries.chunk_by(|a, b| a.address.kind == b.address.kind);
    let parts: Vec<&[EntryRow]> = places.flat_map(|place| place.chunks(GROUP_ENTRIES)).collect();
    let mut rows =
        EvidenceSnapshot { fetchers: image.fetchers.clone(), ..EvidenceSnapshot::default() };
    let mut groups: Vec<EncodedGroup> = Vec::with_capacity(parts.len());
    for part in parts {
        rows.clear_rows();
        rows.entries.extend_from_slice(part);
        rows.cells.extend_from_slice(take(&mut cells, part.iter().map(|entry| entry.cells).sum()));
        rows.breakers
            .extend_from_slice(take(&mut breakers, part.iter().map(|entry| entry.breakers).sum()));
        if let Some(EntryRow { address: EntryAddress { kind: EntryAddress::MAP, key }, .. }) =
            part.last()
        {
            let own = days.partition_point(|day| day.key <= *key) as u32;
            rows.days.extend_from_slice(take(&mut days, own));
        }
        groups.push(encode_group(&rows));
    }
    if !days.is_empty() {
        rows.clear_rows();
        rows.days.extend_from_slice(days);
        groups.push(encode_group(&rows));
    }
    groups
}

/// Returns the bytes of a group of rows of one place.
pub(super) fn encode_group(rows: &EvidenceSnapshot) -> EncodedGroup {
    let is_finite = rows.cells.iter().all(|cell| is_finite(&cell.raw));
    let (mut tags, mut body) =
        (Tags::default(), Vec::with_capacity(rows.cells.len() * 24 + rows.entries.len() * 16));
    let (mut cells, mut breakers) = (rows.cells.iter(), rows.breakers.iter());
    let mut days = rows.days.iter().peekable();
    let mut orphans: Vec<&DayRow> = Vec::new();
    for entry in &rows.entries {
        let key = entry.address.key;
        while let Some(day) = days.next_if(|day| day.key < key) {
            orphans.push(day);
        }
        let own: Vec<&DayRow> = std::iter::from_fn(|| days.next_if(|day| day.key == key)).collect();
        let has_signals = entry.signals != [None; 4];
        body.extend_from_slice(&key.to_le_bytes());
        body.push(
            u8::from(has_signals)
                | u8::from(entry.site != 0) << 1
                | u8::from(entry.breakers > 0) << 2,
        );
        put_varint(&mut body, u64::from(entry.attempts));
        put_varint(&mut body, u64::from(entry.cells));
        put_varint(&mut body, own.len() as u64);
        if has_signals {
            for slot in entry.signals {
                put_varint(&mut body, slot.map_or(0, |(tag, _)| u64::from(tag) + 1));
                slot.iter().for_each(|(_, day)| put_varint(&mut body, u64::from(*day)));
            }
        }
        if entry.site != 0 {
            body.extend_from_slice(&entry.site.to_le_bytes());
        }
        let mut before = RawCounts::default();
        for cell in cells.by_ref().take(entry.cells as usize) {
            put_cell(&mut body, tags.number(cell.tag), &cell.raw, &before);
            before = cell.raw;
        }
        if entry.breakers > 0 {
            put_varint(&mut body, u64::from(entry.breakers));
        }
        for breaker in breakers.by_ref().take(entry.breakers as usize) {
            body.extend_from_slice(&breaker.last.as_millis().to_le_bytes());
            put_varint(&mut body, u64::from(breaker.fetcher));
            put_varint(&mut body, u64::from(breaker.blocks));
        }
        own.iter().for_each(|row| put_day(&mut body, row.day));
    }
    orphans.extend(days);
    put_varint(&mut body, orphans.len() as u64);
    for row in orphans {
        body.extend_from_slice(&row.key.to_le_bytes());
        put_day(&mut body, row.day);
    }
    let mut out = Vec::with_capacity(body.len() + tags.all.len() * 8 + 1024);
    let place = rows.entries.first().map_or(EntryAddress::MAP, |entry| entry.address.kind);
    out.extend_from_slice(&place.to_le_bytes());
    let numbers = [rows.entries.len(), rows.cells.len(), rows.fetchers.len(), tags.all.len()];
    numbers.iter().for_each(|number| out.extend_from_slice(&(*number as u32).to_le_bytes()));
    for name in &rows.fetchers {
        put_varint(&mut out, name.len() as u64);
        out.extend_from_slice(name.as_bytes());
    }
    tags.all.iter().for_each(|tag| out.extend_from_slice(&tag.to_le_bytes()));
    out.extend_from_slice(&body);
    EncodedGroup { bytes: out, totals: GroupTotals::of(rows), is_finite }
}

/// The tags of a group by number.
struct Tags {
    all: Vec<u64>,
    recent: Vec<(u64, u32)>,
}

impl Default for Tags {
    fn default() -> Self {
        Self { all: Vec::new(), recent: vec![(0, u32::MAX); RECENT_TAGS] }
    }
}

impl Tags {
    fn number(&mut self, tag: u64) -> u64 {
        let place = (tag.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 52) as usize;
        let number = match self.recent.get(place) {
            Some(&(known, number)) if known == tag && number < u32::MAX => number,
            _ => {
                self.all.push(tag);
                let number = (self.all.len() - 1) as u32;
                if let Some(recent) = self.recent.get_mut(place) {
                    *recent = (tag, number);
                }
                number
            }
        };
        u64::from(number)
    }
}

/// Returns whether all weights of a cell can be read again.
pub(super) fn is_finite(raw: &RawCounts) -> bool {
    [raw.success, raw.total, raw.blocked, raw.duration].iter().all(|weight| weight.is_finite())
        && [raw.recent_success, raw.recent_total, raw.alert_success, raw.alert_total]
            .iter()
            .all(|w| w.is_finite())
}

pub(super) fn put_day(out: &mut Vec<u8>, day: Day) {
    out.extend_from_slice(&day.day.to_le_bytes());
    put_varint(out, u64::from(day.attempts));
    put_varint(out, u64::from(day.banned));
}

/// Chooses how a number is stored.
fn choose<T: PartialEq>(value: T, zero: T, same: Option<T>, before: T) -> u16 {
    match () {
        () if value == zero => how::ZERO,
        () if same.is_some_and(|same| same == value) => how::SAME,
        () if before == value => how::BEFORE,
        () => how::STORED,
    }
}

/// Appends a cell. `tag` is what the reader finds its tag by, and `before` the cell before it, of
/// the same entry.
pub(super) fn put_cell(out: &mut Vec<u8>, tag: u64, raw: &RawCounts, before: &RawCounts) {
    // Compared by their bits, so that each comes back as it was.
    let wide = |value: f64, same: Option<f64>, before: f64| {
        choose(value.to_bits(), 0, same.map(f64::to_bits), before.to_bits())
    };
    let single = |value: f32, same: Option<f32>, before: f32| {
        choose(value.to_bits(), 0, same.map(f32::to_bits), before.to_bits())
    };
    let pair = |raw: &RawCounts| (raw.alert_success.to_bits(), raw.alert_total.to_bits());
    let recent = (raw.recent_success.to_bits(), raw.recent_total.to_bits());
    let codes = [
        wide(raw.total, None, before.total),
        wide(raw.success, Some(raw.total), before.success),
        wide(raw.blocked, Some(raw.total), before.blocked),
        wide(raw.duration, None, before.duration),
        single(raw.recent_total, Some(raw.total as f32), before.recent_total),
        single(raw.recent_success, Some(raw.recent_total), before.recent_success),
        choose(pair(raw), (0, 0), Some(recent), pair(before)),
        choose(raw.newest_s, 0, None, before.newest_s),
    ];
    let flags = codes.iter().rev().fold(0, |flags, code| flags << 2 | code);
    out.extend_from_slice(&flags.to_le_bytes());
    put_varint(out, tag);
    put_varint(out, u64::from(raw.attempts) << 2 | u64::from(raw.marks & 3));
    for (code, value) in codes.iter().zip([raw.total, raw.success, raw.blocked, raw.duration]) {
        if *code == how::STORED {
            out.extend_from_slice(&value.to_le_bytes());
        }
    }
    for (code, value) in codes[4..6].iter().zip([raw.recent_total, raw.recent_success]) {
        if *code == how::STORED {
            out.extend_from_slice(&value.to_le_bytes());
        }
    }
    if codes[6] == how::STORED {
        out.extend_from_slice(&raw.alert_success.to_le_bytes());
        out.extend_from_slice(&raw.alert_total.to_le_bytes());
    }
    if codes[7] == how::STORED {
        out.extend_from_slice(&raw.newest_s.to_le_bytes());
    }
}

/// Returns the place of the entries of a group.
pub(super) fn place_of(group: &[u8]) -> Option<u32> {
    group.first_chunk().map(|place| u32::from_le_bytes(*place))
}

/// Adds the rows of a group to an image, whose fetchers and signals they refer to. Returns the
/// totals; `None` for bytes that are no group.
pub(super) fn decode_group(bytes: &[u8], image: &mut EvidenceSnapshot) -> Option<GroupTotals> {
    let mut bytes = Bytes(bytes);
    let place = bytes.u32().filter(|place| *place <= EntryAddress::MAP)?;
    let [entries, cells, fetchers, tags] = [bytes.u32()?, bytes.u32()?, bytes.u32()?, bytes.u32()?];
    let mut names = Vec::new();
    for _ in 0..fetchers {
        let len = usize::try_from(bytes.varint()?).ok()?;
        let name = std::str::from_utf8(bytes.take(len)?).ok()?;
        names.push(image.fetchers.iter().position(|known| known == name)? as u64);
    }
    let tags = bytes.take((tags as usize).checked_mul(8)?)?.as_chunks::<8>().0;
    let (first, signals) = (image.cells.len(), image.signals.len() as u64);
    let mut totals =
        GroupTotals { entries: u64::from(entries), cells: u64::from(cells), weight: 0.0 };
    for _ in 0..entries {
        let key = bytes.u64()?;
        let flags = bytes.u8()?;
        let (attempts, own_cells, days) = (bytes.small()?, bytes.small()?, bytes.small()?);
        let mut slots = [None; 4];
        if flags & 1 != 0 {
            for slot in &mut slots {
                if let Some(tag) = bytes.varint()?.checked_sub(1) {
                    let tag = u32::try_from(tag).ok().filter(|tag| u64::from(*tag) < signals)?;
                    *slot = Some((tag, u16::try_from(bytes.varint()?).ok()?));
                }
            }
        }
        let site = if flags & 2 != 0 { bytes.u64()? } else { 0 };
        let mut before = RawCounts::default();
        for _ in 0..own_cells {
            let tag_of =
                |number| Some(u64::from_le_bytes(*tags.get(usize::try_from(number).ok()?)?));
            let (tag, raw) = bytes.cell(tag_of, &before)?;
            let fetcher = *names.get((tag & ((1 << FETCHER_BITS) - 1)) as usize)?;
            totals.weight += raw.total;
            image.cells.push(CellRow { tag: tag >> FETCHER_BITS << FETCHER_BITS | fetcher, raw });
            before = raw;
        }
        let breakers = if flags & 4 != 0 { bytes.small()? } else { 0 };
        for _ in 0..breakers {
            let last = Timestamp::from_millis(bytes.u64()? as i64);
            let fetcher = *names.get(usize::try_from(bytes.varint()?).ok()?)? as u32;
            image.breakers.push(BreakerRow { fetcher, blocks: bytes.small()?, last });
        }
        for _ in 0..days {
            image.days.push(DayRow { key, day: bytes.day()? });
        }
        let address = EntryAddress { kind: place, key };
        image.entries.push(EntryRow {
            address,
            attempts,
            cells: own_cells,
            breakers,
            signals: slots,
            site,
        });
    }
    let orphans = bytes.varint()?;
    for _ in 0..orphans {
        image.days.push(DayRow { key: bytes.u64()?, day: bytes.day()? });
    }
    (bytes.0.is_empty() && image.cells.len() - first == cells as usize).then_some(totals)
}

/// Bytes of a group or an entry that are still to be read.
pub(super) struct Bytes<'b>(pub(super) &'b [u8]);

impl<'b> Bytes<'b> {
    #[inline]
    pub(super) fn take(&mut self, len: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Option<u64> {
        match self.0.split_first()? {
            (&byte, rest) if byte < 0x80 => {
                self.0 = rest;
                Some(u64::from(byte))
            }
            _ => get_varint(&mut self.0),
        }
    }

    pub(super) fn small(&mut self) -> Option<u32> {
        u32::try_from(self.varint()?).ok()
    }

    pub(super) fn day(&mut self) -> Option<Day> {
        let day = u16::from_le_bytes(self.array()?);
        Day::new(u32::from(day), self.small()?, self.small()?)
    }

    /// Reads a sum of weights, which is neither infinite nor negative.
    #[inline]
    fn wide(&mut self, code: u16, same: Option<f64>, before: f64) -> Option<f64> {
        let value = match code {
            how::STORED => f64::from_bits(self.u64()?),
            how::ZERO => 0.0,
            how::SAME => same?,
            _ => before,
        };
        (value.is_finite() && value >= 0.0).then_some(value)
    }

    #[inline]
    fn single(&mut self, code: u16, same: f32, before: f32) -> Option<f32> {
        let value = match code {
            how::STORED => f32::from_bits(self.u32()?),
            how::ZERO => 0.0,
            how::SAME => same,
            _ => before,
        };
        (value.is_finite() && value >= 0.0).then_some(value)
    }

    /// Reads a cell and its tag, which `tag_of` finds.
    #[inline]
    pub(super) fn cell(
        &mut self,
        tag_of: impl FnOnce(u64) -> Option<u64>,
        before: &RawCounts,
    ) -> Option<(u64, RawCounts)> {
        let flags = u16::from_le_bytes(self.array()?);
        let code = |place: u32| flags >> (2 * place) & 3;
        let tag = tag_of(self.varint()?)?;
        let counted = self.varint()?;
        let mut raw = RawCounts {
            attempts: u32::try_from(counted >> 2).ok()?,
            marks: (counted & 3) as u32,
            total: self.wide(code(0), None, before.total)?,
            ..RawCounts::default()
        };
        raw.success = self.wide(code(1), Some(raw.total), before.success)?;
        raw.blocked = self.wide(code(2), Some(raw.total), before.blocked)?;
        raw.duration = self.wide(code(3), None, before.duration)?;
        raw.recent_total = self.single(code(4), raw.total as f32, before.recent_total)?;
        raw.recent_success = self.single(code(5), raw.recent_total, before.recent_success)?;
        (raw.alert_success, raw.alert_total) = match code(6) {
            how::STORED => {
                (self.single(how::STORED, 0.0, 0.0)?, self.single(how::STORED, 0.0, 0.0)?)
            }
            how::ZERO => (0.0, 0.0),
            how::SAME => (raw.recent_success, raw.recent_total),
            _ => (before.alert_success, before.alert_total),
        };
        raw.newest_s = match code(7) {
            how::STORED => self.u32()?,
            how::ZERO => 0,
            how::SAME => return None,
            _ => before.newest_s,
        };
        Some((tag, raw))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn weight() -> impl Strategy<Value = f64> {
        prop_oneof![Just(0.0), Just(1.5), Just(-0.0), (0u32..5).prop_map(f64::from), 0.0..1e200]
    }

    fn recent() -> impl Strategy<Value = f32> {
        prop_oneof![Just(0.0f32), Just(1.5), (0u8..5).prop_map(f32::from), 0.0f32..1e30]
    }

    fn raw() -> impl Strategy<Value = RawCounts> {
        let exact = (weight(), weight(), weight(), weight());
        let pairs = (recent(), recent(), recent(), recent(), any::<bool>());
        (exact, pairs, 0u32..3, 1u32..1 << 30, 0u32..4).prop_map(
            |(exact, pairs, newest_s, attempts, marks)| {
                let (success, total, blocked, duration) = exact;
                let (recent_success, recent_total, alert_success, alert_total, is_calm) = pairs;
                let alert = if is_calm {
                    (recent_success, recent_total)
                } else {
                    (alert_success, alert_total)
                };
                let (alert_success, alert_total) = alert;
                RawCounts {
                    success,
                    total,
                    blocked,
                    duration,
                    recent_success,
                    recent_total,
                    alert_success,
                    alert_total,
                    newest_s,
                    attempts,
                    marks,
                }
            },
        )
    }

    /// Any entry: its cells with their tags, its breakers, its days, its signals, its site.
    type Any = (
        Vec<(u64, RawCounts)>,
        Vec<(u32, u32, i64)>,
        Vec<(u16, u32)>,
        [Option<(u32, u16)>; 4],
        u64,
    );

    fn entry() -> impl Strategy<Value = Any> {
        let slot = || proptest::option::of((0u32..2, any::<u16>()));
        let cell = (prop_oneof![0u64..4, any::<u64>()], raw());
        (
            vec(cell, 0..5),
            vec((0u32..3, any::<u32>(), any::<i64>()), 0..3),
            vec((any::<u16>(), 1u32..5), 0..3),
            [slot(), slot(), slot(), slot()],
            prop_oneof![Just(0u64), any::<u64>()],
        )
    }

    fn blank() -> EvidenceSnapshot {
        EvidenceSnapshot {
            fetchers: ["a", "b", "c"].map(str::to_owned).to_vec(),
            signals: vec!["block_x".to_owned(), "spa_framework=y".to_owned()],
            ..EvidenceSnapshot::default()
        }
    }

    fn image(all: &[Any], orphans: &[u64]) -> EvidenceSnapshot {
        let mut image = blank();
        for (place, (cells, breakers, days, signals, site)) in all.iter().enumerate() {
            let key = place as u64 * 1000 + 500;
            image.entries.push(EntryRow {
                address: EntryAddress { kind: EntryAddress::MAP, key },
                attempts: place as u32 * 77,
                cells: cells.len() as u32,
                breakers: breakers.len() as u32,
                signals: *signals,
                site: *site,
            });
            for (tag, raw) in cells {
                image.cells.push(CellRow { tag: (tag >> 12 << 12) | (tag % 3), raw: *raw });
            }
            for &(fetcher, blocks, last) in breakers {
                image.breakers.push(BreakerRow {
                    fetcher,
                    blocks,
                    last: Timestamp::from_millis(last),
                });
            }
            for &(day, attempts) in days {
                image.days.push(DayRow { key, day: Day { day, attempts, banned: attempts / 2 } });
            }
        }
        let day = Day { day: 9, attempts: 1, banned: 0 };
        image.days.extend(orphans.iter().map(|key| DayRow { key: key % 9000 / 1000 * 1000, day }));
        image.days.sort_by_key(|row| row.key);
        image
    }

    proptest! {
        #[test]
        fn a_group_comes_back_to_the_bit(all in vec(entry(), 0..8), orphans in vec(any::<u64>(), 0..3)) {
            let rows = image(&all, &orphans);
            let EncodedGroup { bytes, totals, .. } = encode_group(&rows);
            let mut back = blank();
            prop_assert_eq!(decode_group(&bytes, &mut back), Some(totals));
            back.days.sort_by_key(|row| row.key);
            // As text, in which -0 differs from 0.
            prop_assert_eq!(format!("{back:?}"), format!("{rows:?}"));
            // Cut anywhere, it is refused.
            for len in 0..bytes.len() {
                prop_assert!(decode_group(&bytes[..len], &mut blank()).is_none());
            }
        }

        /// Bytes that passed the checksum may still be wrong.
        #[test]
        fn damaged_groups_never_panic(all in vec(entry(), 1..4), flips in vec((any::<u32>(), 0u8..8), 1..6)) {
            let EncodedGroup { mut bytes, .. } = encode_group(&image(&all, &[]));
            for (at, bit) in flips {
                let at = at as usize % bytes.len();
                bytes[at] ^= 1 << bit;
            }
            let mut rows = blank();
            let _ = decode_group(&bytes, &mut rows);
            prop_assert!(rows.cells.len() + rows.entries.len() + rows.days.len() <= bytes.len());
        }
    }
}
