//! The journal from end to end: what a second start knows, what a tombstone covers, what is refused.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::attempt::Attempt;
use crate::attempt::outcome::ErrorKind;
use crate::backoff::LinkState;
use crate::heuristic::url::ContentKind;
use crate::selector::Selector;
use crate::selector::Situation;
use crate::time::Timestamp;

const T0: Timestamp = Timestamp::from_millis(1_790_000_000_000);

fn minutes(n: u64) -> Timestamp {
    T0.saturating_add(Duration::from_secs(60 * n))
}

fn attempt(text: &str, fetcher: &str, at: Timestamp) -> Attempt {
    Attempt::new(&url::Url::parse(text).unwrap(), fetcher, at).unwrap()
}

fn selector() -> Selector {
    Selector::builder().around(T0).build().unwrap()
}

#[test]
fn a_second_start_knows_what_the_first_learned() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
    let mut live = selector();
    live.set_sink(Box::new(Arc::new(journal)));
    for n in 0..200 {
        let a = attempt(&format!("https://e.org/s{}/{n}", n % 3), ["playwright", "mine"][n % 2], minutes(n as u64));
        let a = if n % 5 == 0 { a.failed(ErrorKind::BlockedCaptcha) } else { a.delivered() };
        live.record(a, minutes(500)).unwrap();
    }
    drop(std::mem::replace(&mut live, selector()));
    let again = selector();
    let loaded = load(dir.path(), &again, minutes(500)).unwrap();
    assert_eq!((loaded.replayed.attempts, loaded.replayed.torn_tail), (200, None));
    let weights = again.weights(("domain", "e.org"), ContentKind::Page, "mine", minutes(500));
    assert_eq!(weights.attempts, 100);
    let url = url::Url::parse("https://e.org/s1/new").unwrap();
    let take = again.select(&url, &Situation::first(minutes(500))).unwrap().taken().unwrap();
    assert!(take.confidence > 0.5, "{take:?}");
    assert_eq!(survey(dir.path()).unwrap().fetchers, ["mine", "playwright"]);
}

#[test]
fn pauses_come_back_and_links_without_risk_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
    let paused = LinkState { paused_until: Some(minutes(10)), risk_level: 1, ..LinkState::default() };
    for (link, state) in [("a", paused), ("b", paused), ("b", LinkState::default())] {
        let (link, domain) = (link.to_owned(), "e.org".to_owned());
        journal.append_link(&LinkEntry { link, domain, state, at: T0 }).unwrap();
    }
    journal.append_host("e.org", Some(minutes(30)), T0).unwrap();
    journal.append_host("f.org", Some(minutes(30)), T0).unwrap();
    journal.append_host("f.org", None, minutes(1)).unwrap();
    journal.close().unwrap();
    let selector = selector();
    let loaded = load(dir.path(), &selector, T0).unwrap();
    assert_eq!(loaded.host_levels, HashMap::from([("e.org".to_owned(), 2)]));
    assert_eq!(loaded.links, HashMap::from([("a".to_owned(), paused)]));
    assert_eq!(selector.host_pause("e.org"), Some(minutes(30)));
    assert_eq!(selector.host_pause("f.org"), None);
}

#[test]
fn what_a_wrong_clock_wrote_counts_as_of_now() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
    let years_ahead = minutes(4 * 365 * 24 * 60);
    journal.append_attempt(&attempt("https://e.org/1", "playwright", years_ahead).delivered()).unwrap();
    journal.append_host("e.org", Some(years_ahead), years_ahead).unwrap();
    journal.close().unwrap();
    let selector = selector();
    load(dir.path(), &selector, T0).unwrap();
    let weights = selector.weights(("domain", "e.org"), ContentKind::Page, "playwright", T0);
    assert!((weights.total - 1.0).abs() < 1e-9, "{weights:?}");
    assert_eq!(selector.host_pause("e.org"), Some(minutes(24 * 60)));
}

#[test]
fn a_tombstone_covers_what_came_before_it_only() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
    let write = |text: &str| journal.append_attempt(&attempt(text, "f", T0).delivered()).unwrap();
    write("https://www.gone.org/1");
    write("https://kept.org/1");
    write("https://kept.org/2");
    journal.append_host("gone.org", Some(minutes(5)), T0).unwrap();
    for target in
        [TombstoneTarget::Domain("gone.org".to_owned()), TombstoneTarget::Link("https://kept.org/2".to_owned())]
    {
        journal.append_tombstone(&Tombstone { target, at: T0 }).unwrap();
    }
    write("https://www.gone.org/2");
    journal.close().unwrap();
    let mut urls = Vec::new();
    let replayed = replay(dir.path(), |_, entry| {
        if let Entry::Attempt(attempt) = entry {
            urls.push(attempt.url);
        }
    });
    assert_eq!(urls, ["https://kept.org/1", "https://www.gone.org/2"]);
    assert_eq!(replayed.unwrap().forgotten, 3);
}

#[test]
fn there_is_one_writer_and_readers_do_not_mind() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
    journal.append_attempt(&attempt("https://e.org/", "f", T0).delivered()).unwrap();
    journal.flush().wait().unwrap();
    let error = Journal::open(dir.path(), JournalOptions::default()).unwrap_err();
    assert!(error.is_refusal() && error.to_string().contains("locked"), "{error}");
    assert_eq!(replay(dir.path(), |_, _| {}).unwrap().attempts, 1);
}

#[test]
fn an_embedder_says_how_long_attempts_are_gathered() {
    let dir = tempfile::tempdir().unwrap();
    let options = JournalOptions::default().linger(Duration::from_secs(60)).durability(Durability::Os);
    let (journal, _) = Journal::open(dir.path(), options).unwrap();
    for n in 0..3 {
        journal.append_attempt(&attempt(&format!("https://e.org/{n}"), "f", T0).delivered()).unwrap();
        // Longer than the log would gather them by itself.
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(journal.metrics().written_seq, 0, "nobody has asked for them yet");
    journal.flush().wait().unwrap();
    assert_eq!(journal.metrics().written_seq, 3);
}

#[test]
fn an_absent_directory_is_an_empty_journal_and_stays_absent() {
    let dir = tempfile::tempdir().unwrap();
    let absent = dir.path().join("absent");
    assert!(survey(&absent).unwrap().fetchers.is_empty());
    assert!(!absent.exists());
}

/// The one segment of a journal with `attempts` attempts that was closed in good order.
fn written(dir: &Path, attempts: usize) -> std::path::PathBuf {
    let (journal, _) = Journal::open(dir, JournalOptions::default()).unwrap();
    for n in 0..attempts {
        journal.append_attempt(&attempt(&format!("https://e.org/{n}"), "f", T0).delivered()).unwrap();
        // Each in a frame of its own.
        journal.flush().wait().unwrap();
    }
    journal.close().unwrap();
    let mut segments: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    segments.retain(|path| path.extension().is_some_and(|extension| extension == "fwl"));
    segments.pop().unwrap()
}

#[test]
fn a_flipped_bit_in_the_middle_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let segment = written(dir.path(), 20);
    let mut bytes = std::fs::read(&segment).unwrap();
    let at = 4096 + 2000;
    bytes[at] ^= 4;
    std::fs::write(&segment, bytes).unwrap();
    let error = survey(dir.path()).unwrap_err();
    assert!(error.is_refusal() && error.to_string().contains("damaged"), "{error}");
    assert!(Journal::open(dir.path(), JournalOptions::default()).unwrap_err().is_refusal());
}

#[cfg(feature = "pace")]
#[test]
fn paces_come_back_from_the_log_and_from_a_snapshot_and_can_be_forgotten() {
    use crate::pace::{Cause, Keep, Level, Note, Pace, State};
    let dir = tempfile::tempdir().unwrap();
    let keep = |name: &str, first: u8, at: Timestamp| {
        let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
        let mut state = [0; 64];
        // A rate, and the day on which the host was asked last.
        (state[0], state[1]) = (first, 0x80);
        state[42..44].copy_from_slice(&(at.utc_day() as u16).to_le_bytes());
        journal.keep(&Note { level: Level::Host, name, state: State(state), cause: Cause::Limited, at });
        journal.close().unwrap();
    };
    let rates = || {
        let pace = Pace::default();
        let loaded = load(dir.path(), &selector(), minutes(60)).unwrap();
        loaded.restore_pace(&pace, minutes(60));
        ["a.org", "b.org"].map(|name| pace.state(Level::Host, name).map(|state| state.0[0]))
    };
    keep("a.org", 1, T0);
    keep("b.org", 2, T0);
    keep("a.org", 3, minutes(1));
    assert_eq!(rates(), [Some(3), Some(2)]);
    let snapshot = || maintain::snapshot(dir.path(), &selector(), minutes(2), &mut |_, _| {}).unwrap();
    snapshot();
    assert_eq!(rates(), [Some(3), Some(2)]);
    keep("a.org", 4, minutes(3));
    assert_eq!(rates(), [Some(4), Some(2)]);
    let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
    let target = TombstoneTarget::Domain("a.org".to_owned());
    journal.append_tombstone(&Tombstone { target, at: minutes(4) }).unwrap();
    journal.close().unwrap();
    assert_eq!(rates(), [None, Some(2)]);
    snapshot();
    keep("b.org", 5, minutes(5));
    assert_eq!(rates(), [None, Some(5)]);
}
