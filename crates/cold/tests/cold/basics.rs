//! What a caller sees of a store on a healthy disk.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fetchwise_cold::{ColdOptions, ColdStore, Error, MAX_TAG_LEN, MAX_VALUE_LEN};
use fetchwise_log::fs::sim::SimFs;

/// A key as a hash would make it.
pub(crate) fn key(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Small buffers and steps, so that a few entries make many runs.
pub(crate) fn options() -> ColdOptions {
    let mut options = ColdOptions::default();
    options.buffer_bytes = 4000;
    options.step_bytes = 2000;
    options
}

pub(crate) fn content(store: &ColdStore) -> Result<BTreeMap<u64, Vec<u8>>, Error> {
    let mut found = BTreeMap::new();
    let mut last = None;
    store.for_each_sorted(0..=u64::MAX, |key, value| {
        assert!(last.is_none_or(|last| last < key), "keys ascend");
        last = Some(key);
        found.insert(key, value.to_vec());
        Ok::<_, Error>(())
    })?;
    Ok(found)
}

pub(crate) fn settle(store: &ColdStore) {
    while store.maintain().unwrap() {}
}

fn value_of(store: &ColdStore, key: u64) -> Option<Vec<u8>> {
    store.get(key, <[u8]>::to_vec).unwrap()
}

#[test]
fn the_newest_value_of_a_key_wins_in_memory_on_disk_and_after_merges() {
    let dir = tempfile::tempdir().unwrap();
    let store = ColdStore::open(dir.path(), options()).unwrap();
    for round in 0..20_u64 {
        for n in 0..200 {
            store.put(key(n), format!("{n} of {round}").as_bytes()).unwrap();
        }
        store.remove(key(round)).unwrap();
        for n in 0..200 {
            let expected = (n != round).then(|| format!("{n} of {round}").into_bytes());
            assert_eq!(value_of(&store, key(n)), expected, "round {round}");
        }
        if round % 3 == 0 {
            settle(&store);
        }
    }
    store.checkpoint(b"twenty").unwrap();
    settle(&store);
    drop(store);
    let store = ColdStore::open(dir.path(), options()).unwrap();
    assert_eq!(store.tag(), Some(&b"twenty"[..]));
    assert_eq!(value_of(&store, key(19)), None);
    assert_eq!(value_of(&store, key(3)), Some(b"3 of 19".to_vec()));
    assert_eq!(content(&store).unwrap().len(), 199);
}

#[test]
fn entries_after_the_last_checkpoint_are_gone_and_so_are_their_files() {
    let dir = tempfile::tempdir().unwrap();
    let store = ColdStore::open(dir.path(), options()).unwrap();
    assert_eq!(store.tag(), None);
    store.put(1, b"kept").unwrap();
    store.checkpoint(b"").unwrap();
    let files = || std::fs::read_dir(dir.path()).unwrap().count();
    let before = files();
    for n in 0..500 {
        store.put(key(n), &[7; 40]).unwrap();
    }
    settle(&store);
    assert!(files() > before);
    drop(store);
    let store = ColdStore::open(dir.path(), options()).unwrap();
    assert_eq!((store.tag(), files()), (Some(&b""[..]), before));
    assert_eq!(content(&store).unwrap(), BTreeMap::from([(1, b"kept".to_vec())]));
}

#[test]
fn a_merge_that_reaches_the_oldest_run_drops_tombstones_and_a_checkpoint_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let store = ColdStore::open(dir.path(), options()).unwrap();
    for n in 0..300 {
        store.put(key(n), &[1; 30]).unwrap();
    }
    store.checkpoint(b"full").unwrap();
    for n in 0..300 {
        store.remove(key(n)).unwrap();
    }
    while store.stats().entries > 0 {
        // Each makes a small run, until the oldest one of each part is merged, too.
        for n in 1000..1100 {
            store.put(key(n), b"x").unwrap();
            store.remove(key(n)).unwrap();
        }
        store.checkpoint(b"empty").unwrap();
        settle(&store);
    }
    assert_eq!(
        (store.stats().runs, store.stats().disk_bytes, store.stats().index_bytes),
        (0, 0, 0)
    );
    store.checkpoint(b"empty").unwrap();
    let names = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(names.into_iter().all(|name| !name.starts_with("run-")));
}

#[test]
fn cleared_entries_come_back_only_with_the_checkpoint_that_has_them() {
    let dir = tempfile::tempdir().unwrap();
    let store = ColdStore::open(dir.path(), options()).unwrap();
    for n in 0..300 {
        store.put(key(n), &[1; 30]).unwrap();
    }
    store.checkpoint(b"full").unwrap();
    store.put(key(500), b"new").unwrap();
    store.clear();
    assert_eq!((content(&store).unwrap().len(), store.stats().entries), (0, 0));
    drop(store);
    let store = ColdStore::open(dir.path(), options()).unwrap();
    assert_eq!(content(&store).unwrap().len(), 300);
    store.clear();
    store.put(7, b"seven").unwrap();
    store.checkpoint(b"seven").unwrap();
    drop(store);
    let store = ColdStore::open(dir.path(), options()).unwrap();
    assert_eq!(content(&store).unwrap(), BTreeMap::from([(7, b"seven".to_vec())]));
}

#[test]
fn values_of_every_length_and_keys_at_both_ends_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = ColdStore::open(dir.path(), options()).unwrap();
    let lens = [
        0,
        1,
        126,
        127,
        128,
        4076,
        4077,
        4078,
        4079,
        4080,
        4096,
        8192,
        100_000,
        MAX_VALUE_LEN - 1,
        MAX_VALUE_LEN,
    ];
    let bytes = |len: usize| (0..len).map(|at| (at % 251) as u8).collect::<Vec<u8>>();
    for (n, len) in lens.into_iter().enumerate() {
        for key in [n as u64, key(n as u64), u64::MAX - n as u64] {
            store.put(key, &bytes(len)).unwrap();
        }
    }
    store.checkpoint(b"").unwrap();
    settle(&store);
    for (n, len) in lens.into_iter().enumerate() {
        for key in [n as u64, key(n as u64), u64::MAX - n as u64] {
            assert!(value_of(&store, key) == Some(bytes(len)), "{len} bytes under {key}");
        }
    }
    assert_eq!(content(&store).unwrap().len(), 3 * lens.len() - 1, "the key 0 is twice among them");
    let error = store.put(1, &vec![0; MAX_VALUE_LEN + 1]).unwrap_err();
    assert_eq!(error.to_string(), "the value is too long: 1048577 bytes, at most 1048576");
    assert!(matches!(
        store.checkpoint(&[0; MAX_TAG_LEN + 1]),
        Err(Error::TooLong { what: "tag", .. })
    ));
}

#[test]
fn an_iteration_shows_its_range_as_it_was_when_it_began() {
    let dir = tempfile::tempdir().unwrap();
    let store = ColdStore::open(dir.path(), options()).unwrap();
    for n in 0..1000 {
        store.put(key(n), &n.to_le_bytes()).unwrap();
    }
    let (first, last) = (1 << 62, 3 << 62);
    let mut seen = BTreeMap::new();
    store
        .for_each_sorted(first..=last, |at, value| {
            // What others do meanwhile does not show, whatever becomes of the files.
            store.put(key(seen.len() as u64), b"changed")?;
            store.put(at + 1, b"new")?;
            store.maintain()?;
            if seen.len() % 100 == 0 {
                store.clear();
                store.checkpoint(b"")?;
            }
            seen.insert(at, value.to_vec());
            Ok::<_, Error>(())
        })
        .unwrap();
    let expected = (0..1000_u64).map(|n| (key(n), n.to_le_bytes().to_vec()));
    assert_eq!(seen, expected.filter(|(key, _)| (first..=last).contains(key)).collect());
    let stopped = store.for_each_sorted(0..=u64::MAX, |_, _| {
        Err::<(), _>(Box::<dyn std::error::Error>::from("stop"))
    });
    assert_eq!(stopped.unwrap_err().to_string(), "stop");
}

#[test]
fn the_smallest_bounds_work() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = ColdOptions::default();
    (options.buffer_bytes, options.step_bytes) = (0, 0);
    let store = ColdStore::open(dir.path(), options).unwrap();
    for n in 0..400 {
        store.put(key(n), &[1; 100]).unwrap();
        settle(&store);
    }
    assert!(store.stats().runs < 60, "{:?}", store.stats());
    assert_eq!(content(&store).unwrap().len(), 400);
}

/// Nobody has to call `maintain` for memory to be bounded.
#[test]
fn buffers_stay_within_their_bound_without_maintenance_and_on_a_full_disk() {
    let fs = SimFs::new(1);
    let store = ColdStore::open_with(Arc::new(fs.clone()), Path::new("/cold"), options()).unwrap();
    let most = 4 * (options().buffer_bytes + 200);
    for n in 0..500 {
        store.put(key(n), &[1; 100]).unwrap();
        assert!(store.stats().buffer_bytes <= most);
    }
    fs.set_capacity(Some(fs.used()));
    let mut accepted = 500;
    while store.put(key(accepted), &[1; 100]).is_ok() {
        accepted += 1;
        assert!(store.stats().buffer_bytes <= most);
    }
    assert!(store.put(key(3), b"refused").is_err() && store.remove(key(4)).is_err());
    assert_eq!(
        (value_of(&store, key(3)), value_of(&store, key(accepted))),
        (Some(vec![1; 100]), None)
    );
    assert_eq!(content(&store).unwrap().len() as u64, accepted);
    fs.set_capacity(None);
    store.put(key(accepted), b"again").unwrap();
    assert_eq!(content(&store).unwrap().len() as u64, accepted + 1);
}

#[test]
fn a_directory_has_one_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = ColdStore::open(dir.path(), options()).unwrap();
    let error = ColdStore::open(dir.path(), options()).unwrap_err();
    assert!(
        matches!(&error, Error::Locked { holder, .. } if *holder == format!("pid {}", std::process::id())),
        "{error}"
    );
    drop(store);
    ColdStore::open(dir.path(), options()).unwrap();
}

/// Each writer has its own keys and says after each put which value a reader finds at least.
#[test]
fn readers_beside_writers_and_merges_find_the_newest_value() {
    const KEYS: u64 = 64;
    const ROUNDS: u64 = 200;
    let dir = tempfile::tempdir().unwrap();
    let store = ColdStore::open(dir.path(), options()).unwrap();
    let newest: Vec<AtomicU64> = (0..2 * KEYS).map(|_| AtomicU64::new(0)).collect();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let (store, newest) = (&store, &newest);
                scope.spawn(move || {
                    for round in 1..=ROUNDS {
                        for n in writer * KEYS..(writer + 1) * KEYS {
                            store.put(key(n), &round.to_le_bytes()).unwrap();
                            newest[n as usize].store(round, Ordering::SeqCst);
                        }
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_done.load(Ordering::SeqCst) {
                    for (n, newest) in newest.iter().enumerate() {
                        let at_least = newest.load(Ordering::SeqCst);
                        let found = value_of(&store, key(n as u64))
                            .map(|value| u64::from_le_bytes(value.try_into().unwrap()));
                        assert!(
                            found.unwrap_or(0) >= at_least,
                            "key {n}: {found:?} instead of {at_least}"
                        );
                    }
                }
            });
        }
        scope.spawn(|| {
            while !is_done.load(Ordering::SeqCst) {
                store.maintain().unwrap();
                store.checkpoint(b"").unwrap();
                let mut count = 0;
                store
                    .for_each_sorted(0..=u64::MAX, |_, _| {
                        count += 1;
                        Ok::<_, Error>(())
                    })
                    .unwrap();
                assert!(count <= 2 * KEYS);
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        is_done.store(true, Ordering::SeqCst);
    });
    settle(&store);
    for n in 0..2 * KEYS {
        assert_eq!(value_of(&store, key(n)), Some(ROUNDS.to_le_bytes().to_vec()));
    }
}

#[test]
fn adopted_entries_are_read_merged_and_left_in_the_other_directory() {
    let (own_dir, other_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let other = ColdStore::open(other_dir.path(), options()).unwrap();
    for round in 0..3 {
        (0..300).for_each(|n| other.put(key(n), format!("{n} of {round}").as_bytes()).unwrap());
        settle(&other);
    }
    other.checkpoint(b"base").unwrap();
    let expected = content(&other).unwrap();
    let own = ColdStore::open(own_dir.path(), options()).unwrap();
    own.put(key(900), b"gone").unwrap();
    own.adopt(&other);
    assert_eq!(content(&own).unwrap(), expected);
    // The other store goes on, and removes what it has merged.
    (0..300).for_each(|n| other.put(key(n), b"later").unwrap());
    settle(&other);
    other.checkpoint(b"later").unwrap();
    drop(other);
    assert_eq!(content(&own).unwrap(), expected);
    for round in 0..20 {
        (0..100).for_each(|n| own.put(key(n), format!("own {round}").as_bytes()).unwrap());
        settle(&own);
    }
    assert_eq!(
        (value_of(&own, key(5)), value_of(&own, key(250))),
        (Some(b"own 19".to_vec()), Some(b"250 of 2".to_vec()))
    );
    assert!(matches!(own.checkpoint(b"none"), Err(Error::Io { .. })));
    drop(own);
    let again = ColdStore::open(other_dir.path(), options()).unwrap();
    assert_eq!(ColdStore::read_tag(other_dir.path()).unwrap(), Some(b"later".to_vec()));
    assert!(content(&again).unwrap().values().all(|value| value == b"later"));
    assert_eq!(ColdStore::read_tag(own_dir.path()).unwrap(), None);
}

/// A merge of the largest runs wrote a new copy of everything before the old one could go, and both
/// stayed until the next checkpoint.
#[test]
fn at_most_a_part_of_the_entries_is_on_disk_twice() {
    let fs = SimFs::new(1);
    let store = ColdStore::open_with(Arc::new(fs.clone()), Path::new("/cold"), options()).unwrap();
    let mut largest_share = 0.0;
    for round in 0..24_u64 {
        for n in round * 1000..(round + 1) * 1000 {
            store.put(key(n), &[round as u8; 100]).unwrap();
            // As the thread for merges does.
            store.maintain().unwrap();
        }
        store.checkpoint(&round.to_le_bytes()).unwrap();
        let before = fs.used();
        let mut most = before;
        while store.maintain().unwrap() {
            most = most.max(fs.used());
        }
        assert!(fs.used() <= before, "a merge leaves nothing behind");
        largest_share = f64::max(largest_share, (most - before) as f64 / before as f64);
    }
    assert!(fs.used() < 24_000 * 140, "{} bytes", fs.used());
    assert!(largest_share < 0.25, "{largest_share}");
    let entries = content(&store).unwrap();
    drop(store);
    let again = ColdStore::open_with(Arc::new(fs.clone()), Path::new("/cold"), options()).unwrap();
    assert_eq!(again.tag(), Some(&23_u64.to_le_bytes()[..]));
    assert!(entries.len() == 24_000 && content(&again).unwrap() == entries);
}

/// A start removed what a killed process had left before it went on.
#[test]
fn a_store_that_is_opened_empty_removes_what_is_there_step_by_step() {
    let dir = tempfile::tempdir().unwrap();
    let store = ColdStore::open(dir.path(), options()).unwrap();
    (0..1000).for_each(|n| store.put(key(n), &[1; 40]).unwrap());
    store.checkpoint(b"old").unwrap();
    settle(&store);
    drop(store);
    let runs = || {
        let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_str().unwrap().starts_with("run-")).count()
    };
    let old = runs();
    assert!(old > 4);
    let store = ColdStore::open_empty(dir.path(), options()).unwrap();
    assert_eq!((store.tag(), runs(), content(&store).unwrap().len()), (None, old, 0));
    store.put(7, b"seven").unwrap();
    assert!(store.maintain().unwrap());
    assert_eq!(runs(), old - 1);
    settle(&store);
    assert_eq!((runs(), value_of(&store, 7)), (0, Some(b"seven".to_vec())));
    store.checkpoint(b"new").unwrap();
    drop(store);
    let store = ColdStore::open(dir.path(), options()).unwrap();
    assert_eq!(content(&store).unwrap(), BTreeMap::from([(7, b"seven".to_vec())]));
}
