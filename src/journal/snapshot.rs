//! Contents of a journal's snapshot, encoded as plain little-endian columns.
//!
//! Owns: the sections, whose layout `log/FORMAT.md` describes.
//!
//! Invariants: a released section never changes; a new version is added alongside it. Encoded contents decode to the
//! same. Any bytes decode or are rejected.
//!
//! Must not know: files.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use fetchwise_log::{Section, Snapshot, SnapshotMeta};
use xxhash_rust::xxh3::xxh3_128;

use super::entry::{HostEntry, ImportanceEntry, LinkEntry, PaceEntry};
use super::error::JournalError;
use super::schema;
use crate::evidence::daily_block_counts::Day;
use crate::evidence::decay::Decay;
use crate::evidence::decayed_counts::RawCounts;
use crate::evidence::evidence_image::{
    BreakerRow, CellRow, DayRow, EntryAddress, EntryRow, EvidenceImage, SignalCellRow,
};
use crate::evidence::host_signal_counts::RawSignalCounts;
use crate::journal::column_codec::{ColumnReader, ColumnWriter};
use crate::journal::entry_groups::{GroupTotals, decode_group};
use crate::journal::outcome_counts::OutcomeCounts;
use crate::metrics::recorder::outcome_index::{outcome_name, outcome_named};
use crate::selector::Prior;
use fetchwise_types::time::Timestamp;

/// Numbers of the sections.
mod kind {
    pub(super) const STATE: u32 = 1;
    pub(super) const FETCHERS: u32 = 2;
    pub(super) const ENTRIES: u32 = 3;
    pub(super) const CELLS: u32 = 4;
    pub(super) const BREAKERS: u32 = 5;
    pub(super) const LINKS: u32 = 6;
    pub(super) const HOSTS: u32 = 7;
    pub(super) const IMPORTANCE: u32 = 8;
    pub(super) const PRIORS: u32 = 9;
    /// Alert pairs of all cells, in their order. Releases that do not know the section ignore it. Without it the recent
    /// pairs are used.
    pub(super) const ALERTS: u32 = 10;
    /// Host signals. Releases that do not know these sections ignore them. Without them no signals are known.
    pub(super) const TAGS: u32 = 11;
    pub(super) const TAG_CELLS: u32 = 12;
    pub(super) const SHOWN: u32 = 13;
    pub(super) const MARKS: u32 = 14;
    /// Paces. Releases that do not know the section ignore it.
    pub(super) const PACES: u32 = 15;
    /// Daily counts of domains, and the time since when they are complete. Releases that do not know the sections
    /// ignore them. Without them the counts are rebuilt from the attempts that are still there.
    pub(super) const DAYS: u32 = 16;
    pub(super) const DAYS_SINCE: u32 = 17;
    /// Attempts by outcome. Releases that do not know the section ignore it. Without it the counts are rebuilt.
    pub(super) const OUTCOME_COUNTS: u32 = 18;
    /// Sites of domains, where they differ from the domain itself. Releases that do not know the section ignore it.
    /// Without it the next attempt sets the site.
    pub(super) const SITES: u32 = 19;
    /// Hosts with complete short pages. Releases that do not know the section ignore it. Without it each host has one
    /// page rendered again.
    pub(super) const SHORT_PAGE_HOSTS: u32 = 20;
    /// A group of the entries that are not in the sections above, in version 2 only: a release that does not know the
    /// section must not ignore it.
    pub(super) const ENTRY_GROUP: u32 = 21;
}

/// Version of every section that this release writes, except for groups of entries.
const VERSION: u32 = 1;
const GROUP_VERSION: u32 = 2;

fn version_of(kind: u32) -> u32 {
    if kind == kind::ENTRY_GROUP { GROUP_VERSION } else { VERSION }
}

/// The problem with a snapshot of a newer release.
const NEWER: &str = "a newer release of fetchwise wrote it";

/// Encoding of an absent time.
const NEVER: i64 = i64::MIN;

/// Contents of a snapshot.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SnapshotContents {
    pub(super) covers_seq: u64,
    /// Time that counted as the present. Later times were brought down to it.
    pub(super) now: Timestamp,
    /// Attempts before this may be gone from the log.
    pub(super) cutoff: Option<Timestamp>,
    pub(super) image: EvidenceImage,
    /// Totals of the groups of entries that are not in `image`.
    pub(super) grouped: GroupTotals,
    pub(super) links: Vec<LinkEntry>,
    pub(super) hosts: Vec<HostEntry>,
    /// Hosts with a short page that was the whole content, sorted.
    pub(super) short_page_hosts: Vec<String>,
    pub(super) importance: Vec<ImportanceEntry>,
    pub(super) paces: Vec<PaceEntry>,
    /// Outcome counts; `None` in a snapshot by a release that kept none.
    pub(super) outcome_counts: Option<OutcomeCounts>,
    pub(super) priors: Vec<Prior>,
    /// Set if the release that took the snapshot kept no daily counts.
    pub(super) lacks_days: bool,
}

impl SnapshotContents {
    /// Returns the header of the container.
    pub(super) fn meta(&self) -> SnapshotMeta {
        let (landmark, half_life) = match self.image.decay {
            Some(decay) => (decay.landmark().as_millis(), decay.half_life().as_millis() as u64),
            None => (0, 0),
        };
        SnapshotMeta {
            covers_seq: self.covers_seq,
            landmark_ms: landmark,
            half_life_ms: half_life,
            config_hash: config_hash(half_life, &self.priors),
            fingerprint: schema::fingerprint(),
            taken_ms: 0,
        }
    }

    /// Returns the decayed weight of all cells as of the image's time, which a compaction must not change.
    pub(super) fn weight(&self) -> f64 {
        let down = self.image.decay.map_or(1.0, |decay| decay.down(self.image.as_of));
        self.image.weight() + self.grouped.weight * down
    }

    /// Returns whether all weights are finite. A reader drops or rejects others.
    pub(super) fn is_finite(&self) -> bool {
        let cells = self.image.cells.iter().map(|cell| &cell.raw);
        let mut exact = cells.clone().flat_map(|raw| [raw.success, raw.total, raw.blocked, raw.duration]);
        let mut recent = cells.flat_map(|r| [r.recent_success, r.recent_total, r.alert_success, r.alert_total]);
        let signals = self.image.signal_cells.iter().map(|cell| &cell.raw);
        let mut signals = signals.flat_map(|raw| [raw.pair, raw.short, raw.alike, (raw.both, 0.0)]);
        exact.all(f64::is_finite) && recent.all(f32::is_finite) && signals.all(|(a, b)| a.is_finite() && b.is_finite())
    }

    /// Returns the sections, each with its kind.
    pub(super) fn encode(&self) -> Vec<(u32, Vec<u8>)> {
        let image = &self.image;
        let millis = |t: Option<Timestamp>| t.map_or(NEVER, Timestamp::as_millis);
        let (entries, cells, breakers) = (&image.entries, &image.cells, &image.breakers);
        let mut sections = Vec::new();
        let mut put = |kind, rows: usize, fill: &dyn Fn(&mut ColumnWriter)| {
            let mut columns = ColumnWriter::new(rows);
            fill(&mut columns);
            sections.push((kind, columns.bytes));
        };
        put(kind::STATE, 1, &|c| {
            c.i64s([image.as_of.as_millis()]);
            c.i64s([self.now.as_millis()]);
            c.i64s([millis(self.cutoff)]);
        });
        put(kind::FETCHERS, image.fetchers.len(), &|c| c.texts(image.fetchers.iter().map(String::as_str)));
        put(kind::ENTRIES, entries.len(), &|c| {
            c.u64s(entries.iter().map(|e| e.address.key));
            c.u32s(entries.iter().map(|e| e.address.kind));
            c.u32s(entries.iter().map(|e| e.attempts));
            c.u32s(entries.iter().map(|e| e.cells));
            c.u32s(entries.iter().map(|e| e.breakers));
        });
        put(kind::CELLS, cells.len(), &|c| {
            c.u64s(cells.iter().map(|cell| cell.tag));
            c.u64s(cells.iter().map(|cell| cell.raw.success.to_bits()));
            c.u64s(cells.iter().map(|cell| cell.raw.total.to_bits()));
            c.u64s(cells.iter().map(|cell| cell.raw.blocked.to_bits()));
            c.u64s(cells.iter().map(|cell| cell.raw.duration.to_bits()));
            c.u32s(cells.iter().map(|cell| cell.raw.recent_success.to_bits()));
            c.u32s(cells.iter().map(|cell| cell.raw.recent_total.to_bits()));
            c.u32s(cells.iter().map(|cell| cell.raw.newest_s));
            c.u32s(cells.iter().map(|cell| cell.raw.attempts));
        });
        put(kind::ALERTS, cells.len(), &|c| {
            c.u32s(cells.iter().map(|cell| cell.raw.alert_success.to_bits()));
            c.u32s(cells.iter().map(|cell| cell.raw.alert_total.to_bits()));
        });
        put(kind::TAGS, image.signals.len(), &|c| c.texts(image.signals.iter().map(String::as_str)));
        put(kind::TAG_CELLS, image.signal_cells.len(), &|c| tag_columns(&image.signal_cells, c));
        let shown = || (0u32..).zip(entries).filter(|(_, e)| e.signals != [None; 4]);
        put(kind::SHOWN, shown().count(), &|c| {
            c.u32s(shown().map(|(place, _)| place));
            for slot in 0..4 {
                c.u32s(shown().map(|(_, e)| e.signals[slot].map_or(0, |(tag, _)| tag + 1)));
                c.u32s(shown().map(|(_, e)| e.signals[slot].map_or(0, |(_, day)| u32::from(day))));
            }
        });
        let of_sites = || (0u32..).zip(entries).filter(|(_, e)| e.site != 0);
        put(kind::SITES, of_sites().count(), &|c| {
            c.u64s(of_sites().map(|(_, e)| e.site));
            c.u32s(of_sites().map(|(place, _)| place));
        });
        let marked = || (0u32..).zip(cells).filter(|(_, cell)| cell.raw.marks != 0);
        put(kind::MARKS, marked().count(), &|c| {
            c.u32s(marked().map(|(place, _)| place));
            c.u32s(marked().map(|(_, cell)| cell.raw.marks));
        });
        put(kind::BREAKERS, breakers.len(), &|c| {
            c.i64s(breakers.iter().map(|b| b.last.as_millis()));
            c.u32s(breakers.iter().map(|b| b.fetcher));
            c.u32s(breakers.iter().map(|b| b.blocks));
        });
        put(kind::LINKS, self.links.len(), &|c| {
            c.i64s(self.links.iter().map(|l| l.at.as_millis()));
            c.i64s(self.links.iter().map(|l| millis(l.state.paused_until)));
            c.i64s(self.links.iter().map(|l| millis(l.state.last_attempt_at)));
            c.u32s(self.links.iter().map(|l| l.state.attempt_count));
            c.u32s(self.links.iter().map(|l| u32::from(l.state.risk_level)));
            c.u32s(self.links.iter().map(|l| u32::from(schema::hint_code(l.state.hint))));
            c.texts(self.links.iter().map(|l| l.link.as_str()));
            c.texts(self.links.iter().map(|l| l.domain.as_str()));
        });
        put(kind::HOSTS, self.hosts.len(), &|c| {
            c.i64s(self.hosts.iter().map(|h| h.at.as_millis()));
            c.i64s(self.hosts.iter().map(|h| millis(h.paused_until)));
            c.texts(self.hosts.iter().map(|h| h.domain.as_str()));
        });
        if !self.short_page_hosts.is_empty() {
            put(kind::SHORT_PAGE_HOSTS, self.short_page_hosts.len(), &|c| {
                c.texts(self.short_page_hosts.iter().map(String::as_str));
            });
        }
        put(kind::IMPORTANCE, self.importance.len(), &|c| {
            c.i64s(self.importance.iter().map(|i| i.at.as_millis()));
            c.u32s(self.importance.iter().map(|i| i.importance.to_bits()));
            c.u32s(self.importance.iter().map(|i| u32::from(i.value.is_some())));
            c.texts(self.importance.iter().map(|i| i.kind.as_str()));
            c.texts(self.importance.iter().map(|i| i.value.as_deref().unwrap_or_default()));
        });
        put(kind::PACES, self.paces.len(), &|c| {
            c.i64s(self.paces.iter().map(|p| p.at.as_millis()));
            c.u32s(self.paces.iter().map(|p| u32::from(p.level)));
            c.u32s(self.paces.iter().map(|p| u32::from(p.cause)));
            for word in 0..8 {
                c.u64s(self.paces.iter().map(|p| u64::from_le_bytes(std::array::from_fn(|n| p.state[word * 8 + n]))));
            }
            c.texts(self.paces.iter().map(|p| p.name.as_str()));
        });
        if let Some(outcome_counts) = &self.outcome_counts {
            let mut rows = Vec::new();
            outcome_counts.for_each(|fetcher, outcome, attempts| rows.push((fetcher, outcome_name(outcome), attempts)));
            put(kind::OUTCOME_COUNTS, rows.len(), &|c| {
                c.u64s(rows.iter().map(|(.., attempts)| *attempts));
                c.texts(rows.iter().map(|(fetcher, ..)| *fetcher));
                c.texts(rows.iter().map(|(_, outcome, _)| *outcome));
            });
        }
        let days = || image.days.iter();
        put(kind::DAYS, image.days.len(), &|c| {
            c.u64s(days().map(|row| row.key));
            c.u32s(days().map(|row| u32::from(row.day.day)));
            c.u32s(days().map(|row| row.day.attempts));
            c.u32s(days().map(|row| row.day.banned));
        });
        put(kind::DAYS_SINCE, 1, &|c| c.i64s([millis(image.days_since)]));
        put(kind::PRIORS, self.priors.len(), &|c| {
            c.u64s(self.priors.iter().map(|p| p.success_rate.to_bits()));
            c.u64s(self.priors.iter().map(|p| p.samples.to_bits()));
            c.texts(self.priors.iter().map(|p| p.kind.as_str()));
            c.texts(self.priors.iter().map(|p| p.value.as_str()));
            c.texts(self.priors.iter().map(|p| p.fetcher.as_str()));
        });
        sections
    }
}

/// Converts sections to those of the container.
pub(super) fn sections(encoded: &[(u32, Vec<u8>)]) -> Vec<Section<'_>> {
    encoded.iter().map(|(kind, bytes)| Section { kind: *kind, version: VERSION, bytes }).collect()
}

/// Returns the sections of the container for groups of entries.
pub(super) fn group_sections(groups: &[Vec<u8>]) -> impl Iterator<Item = Section<'_>> {
    groups.iter().map(|bytes| Section { kind: kind::ENTRY_GROUP, version: GROUP_VERSION, bytes })
}

/// Returns a hash of the settings that a fold depends on, and of the priors that decisions were made with.
fn config_hash(half_life_ms: u64, priors: &[Prior]) -> [u8; 16] {
    let mut text = half_life_ms.to_string();
    for Prior { kind, value, fetcher, success_rate, samples } in priors {
        text.push_str(&format!("\n{kind}\t{value}\t{fetcher}\t{success_rate}\t{samples}"));
    }
    xxh3_128(text.as_bytes()).to_le_bytes()
}

/// Error of a snapshot whose bytes are intact, but which this release cannot decode.
#[derive(Debug)]
pub(super) struct DecodeError {
    file: PathBuf,
    pub(super) what: &'static str,
}

impl DecodeError {
    /// Returns whether a newer release can decode it.
    pub(super) fn is_newer(&self) -> bool {
        self.what == NEWER
    }
}

impl From<DecodeError> for JournalError {
    fn from(DecodeError { file, what }: DecodeError) -> Self {
        Self::Snapshot { file, what }
    }
}

/// Checks that this release can decode a snapshot.
pub(super) fn check(found: &Snapshot) -> Result<(), &'static str> {
    match decode_without_groups(found) {
        // A newer release can decode it, so it is not damaged.
        Err(error) if !error.is_newer() => Err(error.what),
        _ => Ok(()),
    }
}

/// Decodes a snapshot's sections, with all rows.
pub(super) fn decode(snapshot: &Snapshot) -> Result<SnapshotContents, DecodeError> {
    decode_with(snapshot, &all_sections(snapshot)?)
}

/// Decodes a snapshot's sections except for its groups of entries, of which it returns the totals. The groups are valid.
pub(super) fn decode_without_groups(snapshot: &Snapshot) -> Result<SnapshotContents, DecodeError> {
    let mut sections = all_sections(snapshot)?;
    sections.retain(|(kind, _)| *kind != kind::ENTRY_GROUP);
    let mut contents = decode_with(snapshot, &sections)?;
    let refused = |what| DecodeError { file: snapshot.path().to_owned(), what };
    let groups = groups(snapshot);
    contents.grouped = totals(&groups, &contents.image).ok_or_else(|| refused("an inconsistent group of entries"))?;
    if contents.image.decay.is_none() && !groups.is_empty() {
        return Err(refused("invalid half-life"));
    }
    Ok(contents)
}

/// Returns the groups of entries of a snapshot.
pub(super) fn groups(snapshot: &Snapshot) -> Vec<&[u8]> {
    snapshot.sections().filter(|section| section.kind == kind::ENTRY_GROUP).map(|section| section.bytes).collect()
}

/// Decodes all groups, with several threads, and returns their totals; `None` if one is not valid.
fn totals(groups: &[&[u8]], image: &EvidenceImage) -> Option<GroupTotals> {
    let next = AtomicUsize::new(0);
    let work = || {
        let (fetchers, signals) = (image.fetchers.clone(), image.signals.clone());
        let mut rows = EvidenceImage { fetchers, signals, ..EvidenceImage::default() };
        let mut done = Vec::new();
        // Relaxed: each index is taken once, and what it stands for does not change.
        while let Some((index, group)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|index| Some((index, groups.get(index)?)))
        {
            rows.clear_rows();
            done.push((index, decode_group(group, &mut rows)));
        }
        done
    };
    let mut all = std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(groups.len());
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut all = work();
        for other in others {
            match other.join() {
                Ok(part) => all.extend(part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    });
    // In order, so that the sum is the same each time.
    all.sort_unstable_by_key(|(index, _)| *index);
    all.into_iter().try_fold(GroupTotals::default(), |sum, (_, totals)| Some(sum.plus(totals?)))
}

fn all_sections(snapshot: &Snapshot) -> Result<Vec<(u32, &[u8])>, DecodeError> {
    let section = |section: Section<'_>| (section.version == version_of(section.kind)).then_some(section.kind);
    if snapshot.sections().any(|found| section(found).is_none()) {
        return Err(DecodeError { file: snapshot.path().to_owned(), what: NEWER });
    }
    Ok(snapshot.sections().map(|section| (section.kind, section.bytes)).collect())
}

fn decode_with(snapshot: &Snapshot, sections: &[(u32, &[u8])]) -> Result<SnapshotContents, DecodeError> {
    let refused = |what| DecodeError { file: snapshot.path().to_owned(), what };
    let meta = snapshot.meta();
    let half_life = std::time::Duration::from_millis(meta.half_life_ms);
    let decay = Decay::at_landmark(half_life, Timestamp::from_millis(meta.landmark_ms));
    let contents = decode_sections(sections, meta.covers_seq).ok_or_else(|| refused("inconsistent columns"))?;
    if decay.is_none() && !contents.image.entries.is_empty() {
        return Err(refused("invalid half-life"));
    }
    Ok(SnapshotContents { image: EvidenceImage { decay, ..contents.image }, ..contents })
}

pub(super) fn decode_sections(sections: &[(u32, &[u8])], covers_seq: u64) -> Option<SnapshotContents> {
    let open = |kind| {
        let bytes = sections.iter().find(|(k, _)| *k == kind).map(|(_, bytes)| *bytes);
        // A missing section has no rows. The sixteen zeros also stand for its empty texts.
        ColumnReader::open(bytes.unwrap_or(&[0; 16]))
    };
    let time = |ms: i64| (ms != NEVER).then(|| Timestamp::from_millis(ms));
    let mut contents = SnapshotContents { covers_seq, ..SnapshotContents::default() };
    let mut state = open(kind::STATE)?;
    if state.rows == 1 {
        contents.image.as_of = Timestamp::from_millis(*state.i64s()?.first()?);
        contents.now = Timestamp::from_millis(*state.i64s()?.first()?);
        contents.cutoff = time(*state.i64s()?.first()?);
    }
    contents.image.fetchers = open(kind::FETCHERS)?.texts()?;
    let mut rows = open(kind::ENTRIES)?;
    let (keys, kinds, attempts) = (rows.u64s()?, rows.u32s()?, rows.u32s()?);
    let (cells, breakers) = (rows.u32s()?, rows.u32s()?);
    contents.image.entries = (0..rows.rows)
        .map(|i| EntryRow {
            address: EntryAddress { kind: kinds[i], key: keys[i] },
            attempts: attempts[i],
            cells: cells[i],
            breakers: breakers[i],
            signals: [None; 4],
            site: 0,
        })
        .collect();
    let mut rows = open(kind::SITES)?;
    for (site, place) in rows.u64s()?.into_iter().zip(rows.u32s()?) {
        contents.image.entries.get_mut(place as usize)?.site = site;
    }
    contents.image.cells = decode_cells(open(kind::CELLS)?)?;
    decode_alerts(open(kind::ALERTS)?, &mut contents.image.cells)?;
    decode_marks(open(kind::MARKS)?, &mut contents.image.cells)?;
    contents.image.signals = open(kind::TAGS)?.texts()?;
    contents.image.signal_cells = decode_tags(open(kind::TAG_CELLS)?)?;
    decode_shown(open(kind::SHOWN)?, &mut contents.image.entries)?;
    let mut rows = open(kind::BREAKERS)?;
    let (last, fetchers, blocks) = (rows.i64s()?, rows.u32s()?, rows.u32s()?);
    contents.image.breakers = (0..rows.rows)
        .map(|i| BreakerRow { fetcher: fetchers[i], blocks: blocks[i], last: Timestamp::from_millis(last[i]) })
        .collect();
    let sum = |counts: &[u32]| counts.iter().map(|n| *n as usize).sum::<usize>();
    if sum(&cells) != contents.image.cells.len() || sum(&breakers) != contents.image.breakers.len() {
        return None;
    }
    for (_, bytes) in sections.iter().filter(|(k, _)| *k == kind::ENTRY_GROUP) {
        decode_group(bytes, &mut contents.image)?;
    }
    contents.links = decode_links(open(kind::LINKS)?)?;
    let mut rows = open(kind::HOSTS)?;
    let (at, until) = (rows.i64s()?, rows.i64s()?);
    contents.hosts = (rows.texts()?.into_iter().zip(at).zip(until))
        .map(|((domain, at), until)| HostEntry { domain, paused_until: time(until), at: Timestamp::from_millis(at) })
        .collect();
    contents.short_page_hosts = open(kind::SHORT_PAGE_HOSTS)?.texts()?;
    let mut rows = open(kind::IMPORTANCE)?;
    let (at, importance, has_value) = (rows.i64s()?, rows.u32s()?, rows.u32s()?);
    let (kinds, values) = (rows.texts()?, rows.texts()?);
    contents.importance = (kinds.into_iter().zip(values).enumerate())
        .map(|(i, (kind, value))| ImportanceEntry {
            kind,
            value: (has_value[i] == 1).then_some(value),
            importance: f32::from_bits(importance[i]),
            at: Timestamp::from_millis(at[i]),
        })
        .collect();
    contents.paces = decode_paces(open(kind::PACES)?)?;
    if sections.iter().any(|(k, _)| *k == kind::OUTCOME_COUNTS) {
        contents.outcome_counts = Some(decode_outcome_counts(open(kind::OUTCOME_COUNTS)?)?);
    }
    contents.lacks_days = sections.iter().all(|(k, _)| *k != kind::DAYS);
    contents.image.days.extend(decode_days(open(kind::DAYS)?)?);
    if !contents.image.days.is_sorted() {
        contents.image.days.sort_unstable();
    }
    contents.image.days_since = open(kind::DAYS_SINCE)?.i64s()?.first().copied().and_then(time);
    let mut rows = open(kind::PRIORS)?;
    let (rates, samples) = (rows.u64s()?, rows.u64s()?);
    let (kinds, values, fetchers) = (rows.texts()?, rows.texts()?, rows.texts()?);
    contents.priors = (kinds.into_iter().zip(values).zip(fetchers).enumerate())
        .map(|(i, ((kind, value), fetcher))| Prior {
            kind,
            value,
            fetcher,
            success_rate: f64::from_bits(rates[i]),
            samples: f64::from_bits(samples[i]),
        })
        .collect();
    Some(contents)
}

fn decode_outcome_counts(mut rows: ColumnReader<'_>) -> Option<OutcomeCounts> {
    let (attempts, fetchers, outcomes) = (rows.u64s()?, rows.texts()?, rows.texts()?);
    let mut outcome_counts = OutcomeCounts::default();
    for ((fetcher, outcome), attempts) in fetchers.iter().zip(&outcomes).zip(attempts) {
        outcome_counts.add(fetcher, outcome_named(outcome), attempts);
    }
    Some(outcome_counts)
}

fn decode_days(mut rows: ColumnReader<'_>) -> Option<Vec<DayRow>> {
    let (keys, days, attempts, banned) = (rows.u64s()?, rows.u32s()?, rows.u32s()?, rows.u32s()?);
    (0..keys.len()).map(|i| Some(DayRow { key: keys[i], day: Day::new(days[i], attempts[i], banned[i])? })).collect()
}

fn decode_paces(mut rows: ColumnReader<'_>) -> Option<Vec<PaceEntry>> {
    let (at, levels, causes) = (rows.i64s()?, rows.u32s()?, rows.u32s()?);
    let mut states = vec![[0; 64]; at.len()];
    for word in 0..8 {
        for (state, bytes) in states.iter_mut().zip(rows.u64s()?) {
            state[word * 8..][..8].copy_from_slice(&bytes.to_le_bytes());
        }
    }
    let small = |number: u32| u8::try_from(number).ok();
    (rows.texts()?.into_iter().enumerate())
        .map(|(i, name)| {
            let at = Timestamp::from_millis(at[i]);
            Some(PaceEntry { level: small(levels[i])?, name, state: states[i], cause: small(causes[i])?, at })
        })
        .collect()
}

fn decode_cells(mut rows: ColumnReader<'_>) -> Option<Vec<CellRow>> {
    let (tags, success, total) = (rows.u64s()?, rows.u64s()?, rows.u64s()?);
    let (blocked, duration) = (rows.u64s()?, rows.u64s()?);
    let (recent_success, recent_total) = (rows.u32s()?, rows.u32s()?);
    let (newest, attempts) = (rows.u32s()?, rows.u32s()?);
    let row = |i: usize| CellRow {
        tag: tags[i],
        raw: RawCounts {
            success: f64::from_bits(success[i]),
            total: f64::from_bits(total[i]),
            blocked: f64::from_bits(blocked[i]),
            duration: f64::from_bits(duration[i]),
            recent_success: f32::from_bits(recent_success[i]),
            recent_total: f32::from_bits(recent_total[i]),
            // A separate section holds these two.
            alert_success: 0.0,
            alert_total: 0.0,
            newest_s: newest[i],
            attempts: attempts[i],
            marks: 0,
        },
    };
    let mut cells: Vec<CellRow> = (0..rows.rows).map(row).collect();
    // A sum of weights is neither infinite nor negative.
    let is_weight = |raw: &RawCounts| {
        [raw.success, raw.total, raw.blocked, raw.duration].iter().all(|weight| weight.is_finite() && *weight >= 0.0)
    };
    for cell in &mut cells {
        let recent = (cell.raw.recent_success, cell.raw.recent_total);
        (cell.raw.recent_success, cell.raw.recent_total) = decode_pair(recent)?;
    }
    cells.iter().all(|cell| is_weight(&cell.raw)).then_some(cells)
}

/// Returns a pair of weights, or `None` if it is invalid. An infinite pair is dropped: the first releases wrote such
/// pairs under a clock that was wrong by more than 128 half-lives.
fn decode_pair((success, total): (f32, f32)) -> Option<(f32, f32)> {
    match success.is_finite() && total.is_finite() {
        true => (success >= 0.0 && total >= 0.0).then_some((success, total)),
        false => Some((0.0, 0.0)),
    }
}

/// Fills in the alert pairs. An older release writes none at all.
fn decode_alerts(mut rows: ColumnReader<'_>, cells: &mut [CellRow]) -> Option<()> {
    if rows.rows == 0 {
        return Some(());
    }
    let (success, total) = (rows.u32s()?, rows.u32s()?);
    if rows.rows != cells.len() {
        return None;
    }
    for (cell, (success, total)) in cells.iter_mut().zip(success.into_iter().zip(total)) {
        let alert = (f32::from_bits(success), f32::from_bits(total));
        (cell.raw.alert_success, cell.raw.alert_total) = decode_pair(alert)?;
    }
    Some(())
}

/// Fills in the marks of the cells that have any.
fn decode_marks(mut rows: ColumnReader<'_>, cells: &mut [CellRow]) -> Option<()> {
    let (places, marks) = (rows.u32s()?, rows.u32s()?);
    for (place, marks) in places.into_iter().zip(marks) {
        cells.get_mut(place as usize)?.raw.marks = marks & 3;
    }
    Some(())
}

/// Appends the columns of the host signals' cells.
fn tag_columns(cells: &[SignalCellRow], c: &mut ColumnWriter) {
    c.u32s(cells.iter().map(|cell| cell.tag));
    c.u32s(cells.iter().map(|cell| cell.fetcher));
    c.u32s(cells.iter().map(|cell| u32::from(cell.is_file)));
    let weights: [fn(&RawSignalCounts) -> f32; 7] =
        [|r| r.pair.0, |r| r.pair.1, |r| r.short.0, |r| r.short.1, |r| r.alike.0, |r| r.alike.1, |r| r.both];
    for weight in weights {
        c.u32s(cells.iter().map(|cell| weight(&cell.raw).to_bits()));
    }
    c.u32s(cells.iter().map(|cell| cell.raw.newest_s));
    c.u32s(cells.iter().map(|cell| cell.raw.turned_s));
    c.u32s(cells.iter().map(|cell| cell.raw.hosts));
}

fn decode_tags(mut rows: ColumnReader<'_>) -> Option<Vec<SignalCellRow>> {
    let (tags, fetchers, files) = (rows.u32s()?, rows.u32s()?, rows.u32s()?);
    let mut weights = [const { Vec::new() }; 7];
    for column in &mut weights {
        *column = rows.u32s()?.into_iter().map(f32::from_bits).collect();
        if column.iter().any(|weight: &f32| weight.is_nan() || *weight < 0.0) {
            return None;
        }
    }
    let pair = |i: usize, a: usize, b: usize| decode_pair((weights[a][i], weights[b][i])).unwrap_or_default();
    let (newest, turned, hosts) = (rows.u32s()?, rows.u32s()?, rows.u32s()?);
    let row = |i: usize| SignalCellRow {
        tag: tags[i],
        fetcher: fetchers[i],
        is_file: files[i] != 0,
        raw: RawSignalCounts {
            pair: pair(i, 0, 1),
            short: pair(i, 2, 3),
            alike: pair(i, 4, 5),
            both: if weights[6][i].is_finite() { weights[6][i] } else { 0.0 },
            newest_s: newest[i],
            turned_s: turned[i],
            hosts: hosts[i],
        },
    };
    Some((0..rows.rows).map(row).collect())
}

/// Fills in the host signals of the entries.
fn decode_shown(mut rows: ColumnReader<'_>, entries: &mut [EntryRow]) -> Option<()> {
    let places = rows.u32s()?;
    for slot in 0..4 {
        let (tags, days) = (rows.u32s()?, rows.u32s()?);
        for ((place, tag), day) in places.iter().zip(tags).zip(days) {
            let shown = tag.checked_sub(1).map(|tag| Some((tag, u16::try_from(day).ok()?)));
            entries.get_mut(*place as usize)?.signals[slot] = shown.flatten();
        }
    }
    Some(())
}

fn decode_links(mut rows: ColumnReader<'_>) -> Option<Vec<LinkEntry>> {
    use crate::backoff::LinkState;
    let time = |ms: i64| (ms != NEVER).then(|| Timestamp::from_millis(ms));
    let (at, until, last) = (rows.i64s()?, rows.i64s()?, rows.i64s()?);
    let (counts, levels, hints) = (rows.u32s()?, rows.u32s()?, rows.u32s()?);
    let (links, domains) = (rows.texts()?, rows.texts()?);
    let link = |(i, (link, domain))| {
        Some(LinkEntry {
            link,
            domain,
            state: LinkState {
                paused_until: time(*until.get::<usize>(i)?),
                risk_level: u8::try_from(levels[i]).ok()?,
                attempt_count: counts[i],
                last_attempt_at: time(last[i]),
                hint: schema::hint_of(u8::try_from(hints[i]).ok()?).ok()?,
            },
            at: Timestamp::from_millis(at[i]),
        })
    };
    links.into_iter().zip(domains).enumerate().map(link).collect()
}
