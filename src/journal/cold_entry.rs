//! One entry of the evidence as bytes, which leaves memory and comes back.
//!
//! Owns: the layout of these bytes. Fetchers and signals are numbers in them, which mean nothing
//! without the table of fetchers and the table of signals that they were written with. One release
//! reads them.
//!
//! Invariants: an entry comes back equal to the bit, except for the order of its cells. Any bytes
//! decode or are rejected.
//!
//! Must not know: where the bytes are kept, and when.

use std::sync::atomic::Ordering;

use fetchwise_log::put_varint;

use super::entry_groups::{Bytes, is_finite, put_cell, put_day};
use super::fetcher_numbers::FetcherNumbers;
use crate::evidence::decayed_counts::RawCounts;
use crate::evidence::{Breaker, Entry};
use fetchwise_types::time::Timestamp;

/// What an entry has besides its attempts and cells.
mod has {
    pub(super) const SIGNALS: u8 = 1;
    pub(super) const SITE_SIGNALS: u8 = 1 << 1;
    pub(super) const SITE: u8 = 1 << 2;
    pub(super) const PAUSE: u8 = 1 << 3;
    pub(super) const BREAKERS: u8 = 1 << 4;
    pub(super) const DAYS: u8 = 1 << 5;
}

/// The bits of a tag above the part and the fetcher: the level, and whether it is about files. The
/// bit above them is set in each tag.
const FORM_SHIFT: u32 = 60;
const PART_AND_FETCHER: u64 = (1 << FORM_SHIFT) - 1;
const CLAIMED: u64 = 1 << 63;

/// Returns a number for a tag that is small if the tag has no part.
fn pack_tag(tag: u64) -> u64 {
    (tag & PART_AND_FETCHER) << 3 | tag >> FORM_SHIFT & 7
}

fn unpack_tag(packed: u64) -> Option<u64> {
    (packed < 1 << 63).then_some(packed >> 3 | (packed & 7) << FORM_SHIFT | CLAIMED)
}

/// Appends the bytes of an entry that nobody writes to. Returns false, and appends nothing of use,
/// if it has a weight that is not finite.
pub(super) fn encode_entry(entry: &Entry, fetchers: &FetcherNumbers, out: &mut Vec<u8>) -> bool {
    let (signals, site_signals) = (entry.signals.bits(), entry.site_signals.bits());
    let (site, days) = (entry.site(), entry.days().all());
    let paused = entry.paused_until().map_or(0, Timestamp::as_millis);
    let words = [(has::SIGNALS, signals), (has::SITE_SIGNALS, site_signals), (has::SITE, site)];
    let words =
        || words.into_iter().chain([(has::PAUSE, paused as u64)]).filter(|(_, word)| *word != 0);
    let (mut cells, mut breakers) = (0, 0);
    entry.each_cell(|_, _, _| cells += 1);
    entry.each_breaker(|_, _| breakers += 1);
    let lists =
        if breakers > 0 { has::BREAKERS } else { 0 } | if days.is_empty() { 0 } else { has::DAYS };
    out.push(words().fold(lists, |flags, (flag, _)| flags | flag));
    // Relaxed here and in what is called: the caller has synchronized with all who wrote.
    put_varint(out, u64::from(entry.attempts.load(Ordering::Relaxed)));
    put_varint(out, cells);
    words().for_each(|(_, word)| out.extend_from_slice(&word.to_le_bytes()));
    let (mut before, mut is_whole) = (RawCounts::default(), true);
    entry.each_cell(|group, fetcher, cell| {
        let raw = cell.raw();
        is_whole &= is_finite(&raw);
        put_cell(
            out,
            pack_tag(Entry::join_tag(group, u64::from(fetchers.number(fetcher)))),
            &raw,
            &before,
        );
        before = raw;
    });
    if breakers > 0 {
        put_varint(out, breakers);
        entry.each_breaker(|fetcher, Breaker { blocks, last }| {
            put_varint(out, u64::from(fetchers.number(fetcher)));
            out.push(blocks);
            put_varint(out, last.as_millis() as u64);
        });
    }
    if !days.is_empty() {
        put_varint(out, days.len() as u64);
        days.into_iter().for_each(|day| put_day(out, day));
    }
    is_whole
}

/// Returns the entry of these bytes; `None` for bytes that are no entry.
pub(super) fn decode_entry(bytes: &[u8], fetchers: &FetcherNumbers) -> Option<Entry> {
    let entry = Entry::default();
    decode_into(&entry, bytes, fetchers)?;
    Some(entry)
}

/// Fills an empty entry that nobody else has yet. Bytes that are no entry may fill it in part.
pub(super) fn decode_into(entry: &Entry, bytes: &[u8], fetchers: &FetcherNumbers) -> Option<()> {
    let mut bytes = Bytes(bytes);
    let flags = bytes.u8()?;
    entry.attempts.store(bytes.small()?, Ordering::Relaxed);
    let cells = bytes.varint()?;
    let mut word = |flag| if flags & flag != 0 { bytes.u64() } else { Some(0) };
    entry.signals.restore(word(has::SIGNALS)?);
    entry.site_signals.restore(word(has::SITE_SIGNALS)?);
    entry.set_site(word(has::SITE)?);
    if let Some(ms) = Some(word(has::PAUSE)?).filter(|ms| *ms != 0) {
        entry.set_paused_until(Some(Timestamp::from_millis(ms as i64)));
    }
    let mut before = RawCounts::default();
    for _ in 0..cells {
        let (tag, raw) = bytes.cell(unpack_tag, &before)?;
        let (group, fetcher) = Entry::split_tag(tag);
        entry.claim(group, fetchers.id(u16::try_from(fetcher).ok()?))?.restore(&raw);
        before = raw;
    }
    if flags & has::BREAKERS != 0 {
        for _ in 0..bytes.varint()? {
            let fetcher = fetchers.id(u16::try_from(bytes.varint()?).ok()?);
            let (blocks, last) = (bytes.u8()?, Timestamp::from_millis(bytes.varint()? as i64));
            entry.set_breaker(fetcher, Breaker { blocks, last });
        }
    }
    if flags & has::DAYS != 0 {
        for _ in 0..bytes.varint()? {
            entry.days().add(bytes.day()?);
        }
    }
    bytes.0.is_empty().then_some(())
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

    use super::*;
    use crate::evidence::daily_block_counts::Day;
    use crate::evidence::{Group, Level};
    use fetchwise_types::heuristic::url::ContentKind;
    use fetchwise_types::registry::FetcherId;

    /// Everything that an entry has.
    fn facts(entry: &Entry) -> impl PartialEq + std::fmt::Debug + use<> {
        let (mut cells, mut breakers) = (Vec::new(), Vec::new());
        let bits = |raw: RawCounts| {
            let wide = [raw.success, raw.total, raw.blocked, raw.duration].map(f64::to_bits);
            let single = [raw.recent_success, raw.recent_total, raw.alert_success, raw.alert_total]
                .map(f32::to_bits);
            (wide, single, raw.newest_s, raw.attempts, raw.marks)
        };
        entry.each_cell(|group, fetcher, cell| {
            cells.push((Entry::join_tag(group, u64::from(fetcher.0)), bits(cell.raw())));
        });
        cells.sort_unstable();
        entry.each_breaker(|fetcher, breaker| breakers.push((fetcher, breaker)));
        let words =
            (entry.signals.bits(), entry.site_signals.bits(), entry.site(), entry.paused_until());
        let attempts = entry.attempts.load(Ordering::Relaxed);
        let is_plain = (entry.may_be_shared(), entry.has_breakers());
        (cells, breakers, words, attempts, entry.days().all(), is_plain)
    }

    fn weight() -> impl Strategy<Value = f64> {
        prop_oneof![Just(0.0), Just(1.5), Just(-0.0), (0u32..5).prop_map(f64::from), 0.0..1e200]
    }

    fn recent() -> impl Strategy<Value = f32> {
        prop_oneof![Just(0.0f32), Just(1.5), 0.0f32..1e30]
    }

    fn raw() -> impl Strategy<Value = RawCounts> {
        let weights = (weight(), weight(), weight(), weight());
        let pairs = (recent(), recent(), recent(), recent());
        (weights, pairs, any::<u32>(), 0u32..1 << 30, 0u32..4).prop_map(
            |(weights, pairs, newest_s, attempts, marks)| {
                let (success, total, blocked, duration) = weights;
                let (recent_success, recent_total, alert_success, alert_total) = pairs;
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

    fn entry() -> impl Strategy<Value = Entry> {
        let level = prop_oneof![
            Just(Level::Own),
            Just(Level::Path),
            Just(Level::Suffix),
            Just(Level::Site)
        ];
        let part = prop_oneof![Just(0u64), Just(1 << 16), any::<u64>()];
        let cell = (level, any::<bool>(), part, 0u16..4096, raw());
        let words = (any::<u64>(), any::<u64>(), any::<u64>(), prop_oneof![Just(0), any::<i64>()]);
        let counts = (
            vec((0u16..4096, any::<u8>(), 0i64..1 << 44), 0..9),
            vec((20_000u16..20_060, 1u32..9), 0..30),
        );
        (vec(cell, 0..40), counts, words, any::<u32>()).prop_map(
            |(cells, (breakers, days), words, attempts)| {
                let entry = Entry::default();
                for (level, is_file, part, fetcher, raw) in cells {
                    let kind = if is_file { ContentKind::File } else { ContentKind::Page };
                    entry
                        .claim(Group::new(level, kind, part), FetcherId(fetcher))
                        .unwrap()
                        .restore(&raw);
                }
                for (fetcher, blocks, last) in breakers {
                    entry.set_breaker(
                        FetcherId(fetcher),
                        Breaker { blocks, last: Timestamp::from_millis(last) },
                    );
                }
                days.into_iter().for_each(|(day, attempts)| {
                    entry.days().add(Day { day, attempts, banned: attempts / 2 })
                });
                entry.signals.restore(words.0);
                entry.site_signals.restore(words.1);
                entry.set_site(words.2);
                entry.set_paused_until(
                    Some(words.3).filter(|ms| *ms != 0).map(Timestamp::from_millis),
                );
                entry.attempts.store(attempts, Ordering::Relaxed);
                entry
            },
        )
    }

    fn runner() -> TestRunner {
        let config = Config { cases: 96, failure_persistence: None, ..Config::default() };
        TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]))
    }

    #[test]
    fn an_entry_comes_back_to_the_bit() {
        let whole = runner().run(&entry(), |entry| {
            let mut bytes = Vec::new();
            prop_assert!(encode_entry(&entry, &FetcherNumbers::default(), &mut bytes));
            let again = decode_entry(&bytes, &FetcherNumbers::default()).unwrap();
            prop_assert_eq!(facts(&again), facts(&entry));
            Ok(())
        });
        whole.unwrap();
    }

    #[test]
    fn cut_and_changed_bytes_decode_or_are_rejected() {
        let damaged = (entry(), any::<prop::sample::Index>(), any::<u8>());
        let rejected = runner().run(&damaged, |(entry, place, byte)| {
            let mut bytes = Vec::new();
            encode_entry(&entry, &FetcherNumbers::default(), &mut bytes);
            let place = place.index(bytes.len());
            prop_assert!(
                decode_entry(&bytes[..place], &FetcherNumbers::default()).is_none(),
                "a part is no entry"
            );
            bytes[place] = byte;
            let _ = decode_entry(&bytes, &FetcherNumbers::default());
            Ok(())
        });
        rejected.unwrap();
    }

    #[test]
    fn weights_that_are_not_finite_are_not_written() {
        let entry = Entry::default();
        let cell = entry.claim(Group::new(Level::Own, ContentKind::Page, 0), FetcherId(0)).unwrap();
        cell.restore(&RawCounts { total: f64::INFINITY, attempts: 1, ..RawCounts::default() });
        assert!(!encode_entry(&entry, &FetcherNumbers::default(), &mut Vec::new()));
    }
}
