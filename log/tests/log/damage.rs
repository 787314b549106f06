//! Fault suite, rows 1 and 2: every truncation, every bit flip, and blocks that are zeroed, doubled
//! or swapped, in a real log of three segments. Each is repaired as a torn tail or refused with a
//! range; no record is ever wrong.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::{DIR, Oracle, last_segment, options, reopen, report, scaled};
use fetchwise_log::format::{FrameHeader, FrameKind, HEADER_LEN, SegmentHeader};
use fetchwise_log::fs::sim::{Rng, SimFs, Survival};
use fetchwise_log::fuzzing::PlainBlocks;
use fetchwise_log::{CompactOptions, Error, Maintenance, ManualLog, Reader};

/// How the last session of the log ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Closed properly.
    Closed,
    /// Killed some time after the last record: a sync marker follows it.
    Marked,
    /// Killed right after an acknowledgement.
    Killed,
    /// Closed properly, and a compaction merged the first two segments.
    Merged,
    /// As merged, and its records were packed.
    Packed,
}

struct Victim {
    fs: SimFs,
    oracle: Oracle,
    ending: Ending,
    last: PathBuf,
    /// The frames of the last segment, and where they are.
    frames: Vec<(usize, FrameHeader)>,
    born_len: u64,
}

/// The frames of an undamaged segment.
fn frames_of(content: &[u8]) -> (Vec<(usize, FrameHeader)>, u64) {
    let header = SegmentHeader::decode(content).unwrap();
    let mut frames = Vec::new();
    let mut at = HEADER_LEN;
    while let Some(frame) =
        content.get(at..).and_then(|b| FrameHeader::decode(b, header.nonce, at as u64))
    {
        frames.push((at, frame));
        at += frame.frame_len() as usize;
    }
    (frames, header.born_len)
}

fn victim(ending: Ending, seed: u64) -> Victim {
    let fs = SimFs::new(seed);
    let mut oracle = Oracle::default();
    let mut rng = Rng::new(seed);
    for session in 0..3 {
        let mut options = options();
        if ending == Ending::Merged {
            // A log of records only.
            options.blocks = None;
        }
        let (mut log, _) = ManualLog::open(Arc::new(fs.clone()), Path::new(DIR), &options).unwrap();
        for step in 0..6 {
            for _ in 0..2 {
                oracle.append(&mut log, &mut rng);
            }
            if step % 3 == 1 { log.write().unwrap() } else { log.sync().unwrap() }
        }
        match ending {
            Ending::Marked if session == 2 => log.mark().unwrap(),
            Ending::Killed if session == 2 => {}
            _ => log.close().unwrap(),
        }
    }
    if matches!(ending, Ending::Merged | Ending::Packed) {
        let maintenance = Maintenance::lock_with(Arc::new(fs.clone()), Path::new(DIR)).unwrap();
        let mut options = CompactOptions::new(0, 0);
        options.max_jump = None;
        options.blocks = if ending == Ending::Packed { Some(&PlainBlocks) } else { None };
        let done = maintenance.compact(&options, &mut |_, _| true, &mut |_| {}).unwrap();
        assert_eq!(done.rewritten, 1);
    }
    let fs = fs.crash(Survival::All, &mut rng);
    let last = last_segment(&fs);
    let (frames, born_len) = frames_of(&fs.read(&last).unwrap());
    // By the writer, and by the compaction of the sealed segments.
    let first = fs.files().into_iter().find(|f| f.extension().is_some_and(|e| e == "fwl")).unwrap();
    for segment in [&first, &last] {
        let (frames, _) = frames_of(&fs.read(segment).unwrap());
        let has_blocks = frames.iter().any(|(_, frame)| frame.kind == FrameKind::Block);
        assert_eq!(has_blocks, ending != Ending::Merged, "{ending:?}, {}", segment.display());
    }
    Victim { fs, oracle, ending, last, frames, born_len }
}

/// The counts of the outcomes.
#[derive(Default, Debug)]
struct Tally {
    tried: u64,
    harmless: u64,
    torn: u64,
    refused: u64,
}

impl Victim {
    fn files(&self) -> Vec<PathBuf> {
        self.fs
            .files()
            .into_iter()
            .filter(|f| !f.ends_with("LOCK") && !f.ends_with("MAINT.LOCK"))
            .collect()
    }

    /// Replaces a file with changed content and checks the reaction of the log.
    fn try_content(&self, path: &Path, content: Vec<u8>, tally: &mut Tally) -> Result<(), String> {
        tally.tried += 1;
        let original = self.fs.read(path).unwrap();
        let excused_from = if *path == self.last { self.excused_from(&content) } else { u64::MAX };
        self.fs.put(path, content);
        let judged = self.judge(excused_from, tally);
        self.fs.put(path, original);
        judged
    }

    /// Returns the first record that the changed content of the last segment no longer proves
    /// durable. Only such records may be missing without a report.
    fn excused_from(&self, changed: &[u8]) -> u64 {
        if matches!(self.ending, Ending::Closed | Ending::Merged | Ending::Packed) {
            return u64::MAX;
        }
        let original = self.fs.read(&self.last).unwrap();
        let whole = |at: usize| changed.get(at..at + 48) == original.get(at..at + 48);
        let left =
            self.frames.iter().filter(|(at, _)| whole(*at)).map(|(_, frame)| frame.durable_off);
        let proven = left.max().unwrap_or(0).max(self.born_len);
        let behind = self.frames.iter().find(|(at, frame)| *at as u64 + frame.frame_len() > proven);
        behind.map_or(u64::MAX, |(_, frame)| frame.first_seq)
    }

    fn judge(&self, excused_from: u64, tally: &mut Tally) -> Result<(), String> {
        let reader = match Reader::open_with(Arc::new(self.fs.clone()), Path::new(DIR)) {
            Ok(reader) => reader.with_blocks(&PlainBlocks),
            // A flip must not look like a newer version: checksums are checked first.
            Err(e) => return Err(format!("the reader failed: {e}")),
        };
        let mut seen = BTreeSet::new();
        let mut wrong = None;
        let summary = reader
            .for_each(|seq, record| {
                let right =
                    self.oracle.given.get(seq as usize - 1).is_some_and(|p| p == record.payload);
                if !right || !seen.insert(seq) || seen.last() != Some(&seq) {
                    wrong = Some(seq);
                }
            })
            .map_err(|e| e.to_string())?;
        if let Some(seq) = wrong {
            return Err(format!("record {seq} is wrong, doubled or out of order"));
        }
        let total = self.oracle.given.len() as u64;
        let reported = |seq| {
            summary.damage.iter().any(|d| d.records.is_some_and(|(a, b)| a <= seq && seq <= b))
        };
        let unreported: Vec<u64> =
            (1..=total).filter(|seq| !seen.contains(seq) && !reported(*seq)).collect();
        if let Some(first) = unreported.first() {
            let tail = *first + unreported.len() as u64 - 1 == total;
            if !tail || *first < excused_from {
                return Err(format!(
                    "records {unreported:?} are missing without a report; only {excused_from} and after may be"
                ));
            }
        }
        let opened = ManualLog::open(
            Arc::new(self.fs.crash(Survival::All, &mut Rng::new(1))),
            Path::new(DIR),
            &options(),
        );
        match opened {
            Ok((_, recovery)) => {
                if !summary.damage.is_empty() {
                    return Err("damage was opened for writing".into());
                }
                if recovery.next_seq != seen.last().copied().unwrap_or(0) + 1 {
                    return Err("recovery and reader disagree".into());
                }
                if recovery.torn.is_some() { tally.torn += 1 } else { tally.harmless += 1 }
            }
            Err(e @ Error::Corrupt { .. }) => {
                if summary.damage.is_empty() {
                    return Err(format!("refused though the reader sees nothing: {e}"));
                }
                tally.refused += 1;
            }
            Err(e) => return Err(format!("failed instead of judging: {e}")),
        }
        Ok(())
    }
}

const ENDINGS: [Ending; 5] =
    [Ending::Closed, Ending::Marked, Ending::Killed, Ending::Merged, Ending::Packed];

#[test]
fn every_truncation_is_repaired_or_refused() {
    let mut tally = Tally::default();
    let stride = scaled(7, 1, 1) as usize;
    for ending in ENDINGS {
        let victim = victim(ending, 11);
        for path in victim.files() {
            let content = victim.fs.read(&path).unwrap();
            for len in (0..content.len()).step_by(stride) {
                if let Err(e) = victim.try_content(&path, content[..len].to_vec(), &mut tally) {
                    panic!("{ending:?}, {} cut to {len}: {e}", path.display());
                }
            }
        }
    }
    assert!(tally.torn > 0 && tally.refused > 0, "{tally:?}");
    report("1", "truncations of segments and manifests", tally.tried, 0, 0);
}

#[test]
fn every_bit_flip_is_repaired_or_refused() {
    let mut tally = Tally::default();
    let stride = scaled(29, 1, 1) as usize;
    for (i, ending) in ENDINGS.into_iter().enumerate() {
        for seed in 0..scaled(1, 2, 4) {
            let victim = victim(ending, 20 + seed);
            for path in victim.files() {
                let content = victim.fs.read(&path).unwrap();
                for bit in (i..content.len() * 8).step_by(stride) {
                    let mut flipped = content.clone();
                    flipped[bit / 8] ^= 1 << (bit % 8);
                    if let Err(e) = victim.try_content(&path, flipped, &mut tally) {
                        panic!("{ending:?}, {} bit {bit}: {e}", path.display());
                    }
                }
            }
        }
    }
    report("2", "single bit flips", tally.tried, 0, 0);
}

#[test]
fn every_zeroed_doubled_or_swapped_block_is_repaired_or_refused() {
    let mut tally = Tally::default();
    for ending in ENDINGS {
        for seed in 0..scaled(1, 5, 20) {
            let victim = victim(ending, 40 + seed);
            for path in victim.files() {
                let content = victim.fs.read(&path).unwrap();
                for block in [512, 4096] {
                    let blocks = content.len() / block;
                    for i in 0..blocks {
                        for j in 0..=blocks {
                            let mut changed = content.clone();
                            let (a, b) = (i * block, j * block);
                            if j == blocks {
                                changed[a..a + block].fill(0);
                            } else if i < j {
                                changed.copy_within(a..a + block, b);
                            } else if i > j {
                                let kept = changed[a..a + block].to_vec();
                                changed.copy_within(b..b + block, a);
                                changed[b..b + block].copy_from_slice(&kept);
                            }
                            if let Err(e) = victim.try_content(&path, changed, &mut tally) {
                                panic!(
                                    "{ending:?}, {} blocks of {block}: {i} and {j}: {e}",
                                    path.display()
                                );
                            }
                        }
                    }
                }
            }
        }
    }
    report("2", "blocks of 512 and 4096 bytes zeroed, doubled or swapped", tally.tried, 0, 0);
}

#[test]
fn bytes_of_an_older_segment_are_not_taken_for_frames() {
    // The file system may hand out old blocks: frames of a deleted segment behind the end of the
    // new one.
    let old = victim(Ending::Closed, 60);
    let new = victim(Ending::Killed, 61);
    let mut content = new.fs.read(&new.last).unwrap();
    let end = content.iter().rposition(|&b| b != 0).unwrap() + 1;
    let stale = old.fs.read(&old.last).unwrap();
    content.resize(content.len().max(stale.len()), 0);
    let from = end.next_multiple_of(16);
    content[from..stale.len().max(from)].copy_from_slice(&stale[from.min(stale.len())..]);
    new.fs.put(&new.last, content);
    let (_, recovery) = reopen(&new.fs).unwrap();
    assert_eq!(recovery.next_seq, new.oracle.given.len() as u64 + 1);
}

#[test]
fn any_lost_or_foreign_file_is_detected() {
    for ending in ENDINGS {
        let victim = victim(ending, 70);
        let total = victim.oracle.given.len() as u64;
        for path in victim.files() {
            let copy = victim.fs.crash(Survival::All, &mut Rng::new(1));
            copy.lose(&path);
            let is_segment = path.extension().is_some();
            match reopen(&copy) {
                Ok((_, recovery)) => {
                    assert!(!is_segment && recovery.next_seq == total + 1, "{path:?} lost")
                }
                Err(e) => {
                    // Exactly the lost numbers are reported.
                    assert!(is_segment && e.damage().len() == 1, "{path:?}: {e}");
                    let (first, last) = e.damage()[0].records.unwrap();
                    let mut left = BTreeSet::new();
                    let reader = Reader::open_with(Arc::new(copy), Path::new(DIR))
                        .unwrap()
                        .with_blocks(&PlainBlocks);
                    reader.for_each(|seq, _| assert!(left.insert(seq))).unwrap();
                    let lost: Vec<u64> = (1..=total).filter(|seq| !left.contains(seq)).collect();
                    assert_eq!(first, lost[0], "{path:?}: {e}");
                    // The manifest knows only the beginning of the last segment of a log that was
                    // not closed.
                    let known = path != victim.last
                        || matches!(ending, Ending::Closed | Ending::Merged | Ending::Packed);
                    let end = lost[lost.len() - 1];
                    assert!(if known { last == end } else { last <= end }, "{path:?}: {e}");
                }
            }
        }
        let stranger = self::victim(ending, 71);
        for path in stranger.files().into_iter().filter(|p| p.extension().is_some()) {
            let copy = victim.fs.crash(Survival::All, &mut Rng::new(1));
            copy.put(&path, stranger.fs.read(&path).unwrap());
            assert!(reopen(&copy).is_err(), "{path:?} of another store was taken");
        }
    }
}
