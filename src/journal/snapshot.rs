//! Contents of a journal's snapshot, encoded as plain little-endian columns and groups of entries.
//!
//! Owns: the sections, whose layout `log/FORMAT.md` describes.
//!
//! Invariants: a released section never changes; a new version is added alongside it. Encoded
//! contents decode to the same. Any bytes decode or are rejected.
//!
//! Must not know: where a file is, and when one is written.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use fetchwise_log::{Error as LogError, Section, Snapshot, SnapshotMeta, StoredSection};
use xxhash_rust::xxh3::xxh3_128;

use super::entry::{FetcherEntry, HostEntry, ImportanceEntry, LinkEntry, PaceEntry};
use super::error::JournalError;
use super::schema;
use crate::evidence::Learned;
use crate::evidence::decay::Decay;
use crate::evidence::evidence_snapshot::{EntryAddress, EvidenceSnapshot, SignalCellRow};
use crate::evidence::host_signal_counts::RawSignalCounts;
use crate::journal::column_codec::{ColumnReader, ColumnWriter};
use crate::journal::entry_groups::{
    EncodedGroup, GroupTotals, decode_group, encode_groups, place_of,
};
use crate::journal::outcome_counts::OutcomeCounts;
use crate::metrics::recorder::outcome_index::{outcome_name, outcome_named};
use crate::selector::Prior;
use fetchwise_types::time::Timestamp;

/// Numbers of the sections.
pub(super) mod kind {
    pub(in crate::journal) const STATE: u32 = 1;
    pub(in crate::journal) const FETCHERS: u32 = 2;
    /// Any number of these, in the order of their entries.
    pub(in crate::journal) const ENTRY_GROUP: u32 = 3;
    pub(in crate::journal) const SIGNALS: u32 = 4;
    pub(in crate::journal) const SIGNAL_CELLS: u32 = 5;
    pub(in crate::journal) const LINKS: u32 = 6;
    pub(in crate::journal) const HOSTS: u32 = 7;
    pub(in crate::journal) const IMPORTANCE: u32 = 8;
    pub(in crate::journal) const PRIORS: u32 = 9;
    pub(in crate::journal) const PACES: u32 = 10;
    pub(in crate::journal) const OUTCOME_COUNTS: u32 = 11;
    pub(in crate::journal) const SHORT_PAGE_HOSTS: u32 = 12;
    pub(in crate::journal) const REGISTERED: u32 = 13;
}

/// Version of every section.
const VERSION: u32 = 1;

/// The problem with a snapshot of a newer release.
pub(super) const NEWER: &str = "a newer release of fetchwise wrote it";

const BAD_GROUP: &str = "an inconsistent group of entries";

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
    pub(super) image: EvidenceSnapshot,
    /// Totals of the groups of entries that are not in `image`.
    pub(super) grouped: GroupTotals,
    pub(super) links: Vec<LinkEntry>,
    pub(super) hosts: Vec<HostEntry>,
    /// Hosts with a short page that was the whole content, sorted.
    pub(super) short_page_hosts: Vec<String>,
    pub(super) importance: Vec<ImportanceEntry>,
    pub(super) paces: Vec<PaceEntry>,
    /// Fetchers whose class and cost the log knows, by name.
    pub(super) registered: Vec<FetcherEntry>,
    pub(super) outcome_counts: OutcomeCounts,
    pub(super) priors: Vec<Prior>,
}

impl SnapshotContents {
    /// Drops short pages of hosts of which no evidence is left: they are as good as unknown.
    pub(super) fn without_unknown_hosts(mut self, learned: &Learned) -> Self {
        self.short_page_hosts
            .retain(|domain| learned.evidence.is_in_image(domain, self.image.as_of));
        self
    }

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

    /// Returns the decayed weight of all cells as of the image's time, which a compaction must not
    /// change.
    pub(super) fn weight(&self) -> f64 {
        let down = self.image.decay.map_or(1.0, |decay| decay.down(self.image.as_of));
        self.image.weight() + self.grouped.weight * down
    }

    /// Returns whether all weights are finite. A reader drops or rejects others.
    pub(super) fn is_finite(&self) -> bool {
        let cells = self.image.cells.iter().map(|cell| &cell.raw);
        let mut exact =
            cells.clone().flat_map(|raw| [raw.success, raw.total, raw.blocked, raw.duration]);
        let mut recent =
            cells.flat_map(|r| [r.recent_success, r.recent_total, r.alert_success, r.alert_total]);
        let signals = self.image.signal_cells.iter().map(|cell| &cell.raw);
        let mut signals = signals.flat_map(|raw| [raw.pair, raw.short, raw.alike, (raw.both, 0.0)]);
        exact.all(f64::is_finite)
            && recent.all(f32::is_finite)
            && signals.all(|(a, b)| a.is_finite() && b.is_finite())
    }

    /// Returns the sections, each with its kind. The groups of entries are those of the image.
    pub(super) fn encode(&self) -> Vec<(u32, Vec<u8>)> {
        let image = &self.image;
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
            c.i64s([millis(image.days_since)]);
        });
        put(kind::FETCHERS, image.fetchers.len(), &|c| {
            c.texts(image.fetchers.iter().map(String::as_str))
        });
        put(kind::SIGNALS, image.signals.len(), &|c| {
            c.texts(image.signals.iter().map(String::as_str))
        });
        put(kind::SIGNAL_CELLS, image.signal_cells.len(), &|c| {
            signal_columns(&image.signal_cells, c)
        });
        put(kind::LINKS, self.links.len(), &|c| link_columns(&self.links, c));
        put(kind::HOSTS, self.hosts.len(), &|c| {
            c.i64s(self.hosts.iter().map(|h| h.at.as_millis()));
            c.i64s(self.hosts.iter().map(|h| millis(h.paused_until)));
            c.texts(self.hosts.iter().map(|h| h.domain.as_str()));
        });
        put(kind::SHORT_PAGE_HOSTS, self.short_page_hosts.len(), &|c| {
            c.texts(self.short_page_hosts.iter().map(String::as_str));
        });
        put(kind::IMPORTANCE, self.importance.len(), &|c| {
            c.i64s(self.importance.iter().map(|i| i.at.as_millis()));
            c.u32s(self.importance.iter().map(|i| i.importance.to_bits()));
            c.u32s(self.importance.iter().map(|i| u32::from(i.value.is_some())));
            c.texts(self.importance.iter().map(|i| i.kind.as_str()));
            c.texts(self.importance.iter().map(|i| i.value.as_deref().unwrap_or_default()));
        });
        put(kind::PACES, self.paces.len(), &|c| pace_columns(&self.paces, c));
        put(kind::REGISTERED, self.registered.len(), &|c| {
            c.i64s(self.registered.iter().map(|of| of.at.as_millis()));
            c.u64s(self.registered.iter().map(|of| of.cost.to_bits()));
            c.u32s(self.registered.iter().map(|of| u32::from(schema::class_code(of.class))));
            c.texts(self.registered.iter().map(|of| of.name.as_str()));
        });
        let mut rows = Vec::new();
        self.outcome_counts.for_each(|fetcher, outcome, attempts| {
            rows.push((fetcher, outcome_name(outcome), attempts));
        });
        put(kind::OUTCOME_COUNTS, rows.len(), &|c| {
            c.u64s(rows.iter().map(|(.., attempts)| *attempts));
            c.texts(rows.iter().map(|(fetcher, ..)| *fetcher));
            c.texts(rows.iter().map(|(_, outcome, _)| *outcome));
        });
        put(kind::PRIORS, self.priors.len(), &|c| {
            c.u64s(self.priors.iter().map(|p| p.success_rate.to_bits()));
            c.u64s(self.priors.iter().map(|p| p.samples.to_bits()));
            c.texts(self.priors.iter().map(|p| p.kind.as_str()));
            c.texts(self.priors.iter().map(|p| p.value.as_str()));
            c.texts(self.priors.iter().map(|p| p.fetcher.as_str()));
        });
        sections
            .extend(encode_groups(image).into_iter().map(|group| (kind::ENTRY_GROUP, group.bytes)));
        sections
    }
}

fn millis(time: Option<Timestamp>) -> i64 {
    time.map_or(NEVER, Timestamp::as_millis)
}

fn link_columns(links: &[LinkEntry], to: &mut ColumnWriter) {
    to.i64s(links.iter().map(|link| link.at.as_millis()));
    to.i64s(links.iter().map(|link| millis(link.state.paused_until)));
    to.i64s(links.iter().map(|link| millis(link.state.last_attempt_at)));
    to.u32s(links.iter().map(|link| link.state.attempt_count));
    to.u32s(links.iter().map(|link| u32::from(link.state.risk_level)));
    to.u32s(links.iter().map(|link| u32::from(schema::hint_code(link.state.hint))));
    to.texts(links.iter().map(|link| link.link.as_str()));
    to.texts(links.iter().map(|link| link.domain.as_str()));
}

fn pace_columns(paces: &[PaceEntry], to: &mut ColumnWriter) {
    to.i64s(paces.iter().map(|pace| pace.at.as_millis()));
    to.u32s(paces.iter().map(|pace| u32::from(pace.level)));
    to.u32s(paces.iter().map(|pace| u32::from(pace.cause)));
    for word in 0..8 {
        let of = |pace: &PaceEntry| {
            u64::from_le_bytes(std::array::from_fn(|byte| pace.state[word * 8 + byte]))
        };
        to.u64s(paces.iter().map(of));
    }
    to.texts(paces.iter().map(|pace| pace.name.as_str()));
}

/// Converts sections to those of the container.
#[cfg(test)]
pub(super) fn sections(encoded: &[(u32, Vec<u8>)]) -> Vec<Section<'_>> {
    encoded.iter().map(|(kind, bytes)| section(*kind, bytes)).collect()
}

/// Returns a section of the container.
pub(super) fn section(kind: u32, bytes: &[u8]) -> Section<'_> {
    Section { kind, version: VERSION, bytes }
}

/// Returns the section of the container for a group of entries.
pub(super) fn group_section(group: &EncodedGroup) -> Section<'_> {
    section(kind::ENTRY_GROUP, &group.bytes)
}

/// Returns a hash of the settings that a fold depends on, and of the priors that decisions were
/// made with.
fn config_hash(half_life_ms: u64, priors: &[Prior]) -> [u8; 16] {
    let mut text = half_life_ms.to_string();
    for Prior { kind, value, fetcher, success_rate, samples } in priors {
        text.push_str(&format!("\n{kind}\t{value}\t{fetcher}\t{success_rate}\t{samples}"));
    }
    xxh3_128(text.as_bytes()).to_le_bytes()
}

/// The reason why a snapshot is not decoded.
#[derive(Debug)]
pub(super) enum DecodeError {
    /// Its bytes are intact, but this release cannot decode them.
    Content {
        /// The file.
        file: PathBuf,
        /// The problem.
        what: &'static str,
    },
    /// It could not be read.
    Read(LogError),
}

impl DecodeError {
    fn of(snapshot: &Snapshot, what: &'static str) -> Self {
        Self::Content { file: snapshot.path().to_owned(), what }
    }

    /// Returns whether a newer release can decode it.
    pub(super) fn is_newer(&self) -> bool {
        matches!(self, Self::Content { what, .. } if *what == NEWER)
    }

    /// Returns the problem with the content.
    pub(super) fn content(self) -> Result<&'static str, LogError> {
        match self {
            Self::Content { what, .. } => Ok(what),
            Self::Read(error) => Err(error),
        }
    }
}

impl From<LogError> for DecodeError {
    fn from(error: LogError) -> Self {
        Self::Read(error)
    }
}

impl From<DecodeError> for JournalError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Content { file, what } => Self::Snapshot { file, what },
            DecodeError::Read(error) => error.into(),
        }
    }
}

/// Checks that this release can decode a snapshot. Returns the damage that it finds.
pub(super) fn check(found: &Snapshot) -> Result<Option<&'static str>, LogError> {
    match decode_without_groups(found) {
        // A newer release can decode it, so it is not damaged.
        Err(error) if !error.is_newer() => error.content().map(Some),
        _ => Ok(None),
    }
}

/// Decodes a snapshot's sections, with all rows.
#[cfg(test)]
pub(super) fn decode(snapshot: &Snapshot) -> Result<SnapshotContents, DecodeError> {
    let mut contents = decode_without_groups(snapshot)?;
    let mut rows = contents.image.without_rows();
    for group in groups(snapshot) {
        rows.clear_rows();
        read_group(snapshot, &group, &mut rows)?;
        contents.image.append_rows(&rows);
    }
    contents.grouped = GroupTotals::default();
    contents.image.days.sort_unstable();
    Ok(contents)
}

/// Decodes a snapshot's sections except for the groups of the map's entries, of which it returns
/// the totals. The groups are valid. Memory holds a few groups at a time.
pub(super) fn decode_without_groups(snapshot: &Snapshot) -> Result<SnapshotContents, DecodeError> {
    let mut contents = decode_without_entries(snapshot)?;
    let groups = groups(snapshot);
    if contents.image.decay.is_none() && !groups.is_empty() {
        return Err(DecodeError::of(snapshot, "invalid half-life"));
    }
    let (totals, fixed) = read_groups(snapshot, &groups, &contents.image)?;
    (contents.grouped, contents.image) = (totals, fixed);
    Ok(contents)
}

/// Decodes a snapshot's sections except for all groups of entries, which are not looked at.
pub(super) fn decode_without_entries(snapshot: &Snapshot) -> Result<SnapshotContents, DecodeError> {
    if snapshot.sections().iter().any(|section| section.version != VERSION) {
        return Err(DecodeError::of(snapshot, NEWER));
    }
    let others = snapshot.sections().iter().filter(|section| section.kind != kind::ENTRY_GROUP);
    let sections = others
        .map(|section| Ok((section.kind, snapshot.read(section)?)))
        .collect::<Result<Vec<_>, LogError>>()?;
    let sections: Vec<(u32, &[u8])> =
        sections.iter().map(|(kind, bytes)| (*kind, &bytes[..])).collect();
    decode_with(snapshot, &sections)
}

/// Returns the groups of entries of a snapshot.
pub(super) fn groups(snapshot: &Snapshot) -> Vec<StoredSection> {
    let all = snapshot.sections().iter();
    all.filter(|section| section.kind == kind::ENTRY_GROUP).copied().collect()
}

/// Adds the rows of a group to `rows`, if its entries are those of the map. `rows` has the fetchers
/// and signals of the snapshot.
pub(super) fn read_group(
    snapshot: &Snapshot,
    group: &StoredSection,
    rows: &mut EvidenceSnapshot,
) -> Result<(), DecodeError> {
    let bytes = snapshot.read(group)?;
    if place_of(&bytes) == Some(EntryAddress::MAP) && decode_group(&bytes, rows).is_none() {
        return Err(DecodeError::of(snapshot, BAD_GROUP));
    }
    Ok(())
}

/// Decodes all groups, with several threads. Returns the totals of those of the map's entries, and
/// the image with the rows of the others.
fn read_groups(
    snapshot: &Snapshot,
    groups: &[StoredSection],
    image: &EvidenceSnapshot,
) -> Result<(GroupTotals, EvidenceSnapshot), DecodeError> {
    let next = AtomicUsize::new(0);
    let read = |group: &StoredSection, rows: &mut EvidenceSnapshot| {
        rows.clear_rows();
        let bytes = snapshot.read(group)?;
        let totals =
            decode_group(&bytes, rows).ok_or_else(|| DecodeError::of(snapshot, BAD_GROUP))?;
        let is_fixed = place_of(&bytes) != Some(EntryAddress::MAP);
        Ok::<_, DecodeError>((totals, is_fixed.then(|| rows.clone())))
    };
    let work = || {
        let (mut rows, mut done) = (image.without_rows(), Vec::new());
        // Relaxed: each index is taken once, and what it stands for does not change.
        while let Some((index, group)) = Some(next.fetch_add(1, Ordering::Relaxed))
            .and_then(|index| Some((index, groups.get(index)?)))
        {
            done.push((index, read(group, &mut rows)));
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
    let (mut sum, mut image) = (GroupTotals::default(), image.clone());
    for (_, read) in all {
        match read? {
            (totals, None) => sum = sum.plus(totals),
            (_, Some(fixed)) => image.append_rows(&fixed),
        }
    }
    image.days.sort_unstable();
    Ok((sum, image))
}

fn decode_with(
    snapshot: &Snapshot,
    sections: &[(u32, &[u8])],
) -> Result<SnapshotContents, DecodeError> {
    let meta = snapshot.meta();
    let half_life = std::time::Duration::from_millis(meta.half_life_ms);
    let decay = Decay::at_landmark(half_life, Timestamp::from_millis(meta.landmark_ms));
    let contents = decode_sections(sections, meta.covers_seq)
        .ok_or_else(|| DecodeError::of(snapshot, "inconsistent columns"))?;
    Ok(SnapshotContents { image: EvidenceSnapshot { decay, ..contents.image }, ..contents })
}

pub(super) fn decode_sections(
    sections: &[(u32, &[u8])],
    covers_seq: u64,
) -> Option<SnapshotContents> {
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
        contents.image.days_since = time(*state.i64s()?.first()?);
    }
    contents.image.fetchers = open(kind::FETCHERS)?.texts()?;
    contents.image.signals = open(kind::SIGNALS)?.texts()?;
    contents.image.signal_cells = decode_signal_cells(open(kind::SIGNAL_CELLS)?)?;
    for (_, bytes) in sections.iter().filter(|(k, _)| *k == kind::ENTRY_GROUP) {
        decode_group(bytes, &mut contents.image)?;
    }
    if !contents.image.days.is_sorted() {
        contents.image.days.sort_unstable();
    }
    contents.links = decode_links(open(kind::LINKS)?)?;
    let mut rows = open(kind::HOSTS)?;
    let (at, until) = (rows.i64s()?, rows.i64s()?);
    contents.hosts = (rows.texts()?.into_iter().zip(at).zip(until))
        .map(|((domain, at), until)| HostEntry {
            domain,
            paused_until: time(until),
            at: Timestamp::from_millis(at),
        })
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
    contents.registered = decode_registered(open(kind::REGISTERED)?)?;
    contents.outcome_counts = decode_outcome_counts(open(kind::OUTCOME_COUNTS)?)?;
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

fn decode_registered(mut rows: ColumnReader<'_>) -> Option<Vec<FetcherEntry>> {
    let (at, costs, classes) = (rows.i64s()?, rows.u64s()?, rows.u32s()?);
    (rows.texts()?.into_iter().enumerate())
        .map(|(i, name)| {
            let class = schema::class_of(u8::try_from(classes[i]).ok()?).ok()?;
            Some(FetcherEntry {
                name,
                class,
                cost: f64::from_bits(costs[i]),
                at: Timestamp::from_millis(at[i]),
            })
        })
        .collect()
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
            Some(PaceEntry {
                level: small(levels[i])?,
                name,
                state: states[i],
                cause: small(causes[i])?,
                at,
            })
        })
        .collect()
}

/// Appends the columns of the host signals' cells.
fn signal_columns(cells: &[SignalCellRow], c: &mut ColumnWriter) {
    c.u32s(cells.iter().map(|cell| cell.tag));
    c.u32s(cells.iter().map(|cell| cell.fetcher));
    c.u32s(cells.iter().map(|cell| u32::from(cell.is_file)));
    let weights: [fn(&RawSignalCounts) -> f32; 7] = [
        |r| r.pair.0,
        |r| r.pair.1,
        |r| r.short.0,
        |r| r.short.1,
        |r| r.alike.0,
        |r| r.alike.1,
        |r| r.both,
    ];
    for weight in weights {
        c.u32s(cells.iter().map(|cell| weight(&cell.raw).to_bits()));
    }
    c.u32s(cells.iter().map(|cell| cell.raw.newest_s));
    c.u32s(cells.iter().map(|cell| cell.raw.turned_s));
    c.u32s(cells.iter().map(|cell| cell.raw.hosts));
}

fn decode_signal_cells(mut rows: ColumnReader<'_>) -> Option<Vec<SignalCellRow>> {
    let (tags, fetchers, files) = (rows.u32s()?, rows.u32s()?, rows.u32s()?);
    let mut weights = [const { Vec::new() }; 7];
    for column in &mut weights {
        *column = rows.u32s()?.into_iter().map(f32::from_bits).collect();
        // A sum of weights is neither infinite nor negative.
        if column.iter().any(|weight: &f32| !weight.is_finite() || *weight < 0.0) {
            return None;
        }
    }
    let [success, total, short_success, short_total, alike, had_before, both] = weights;
    let (newest, turned, hosts) = (rows.u32s()?, rows.u32s()?, rows.u32s()?);
    let row = |i: usize| SignalCellRow {
        tag: tags[i],
        fetcher: fetchers[i],
        is_file: files[i] != 0,
        raw: RawSignalCounts {
            pair: (success[i], total[i]),
            short: (short_success[i], short_total[i]),
            alike: (alike[i], had_before[i]),
            both: both[i],
            newest_s: newest[i],
            turned_s: turned[i],
            hosts: hosts[i],
        },
    };
    Some((0..rows.rows).map(row).collect())
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
